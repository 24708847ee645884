//! Every figure of every page as a file of each format. With FIGURES_OUT=DIR the files are kept there, to be looked at.

#[path = "../../report/examples/sample/experiment.rs"]
#[allow(dead_code, reason = "shared: each test uses part of it")]
mod experiments;
#[path = "../../report/examples/sample/log.rs"]
mod logs;
#[path = "../../report/examples/sample/record.rs"]
#[allow(dead_code, reason = "shared: each test uses part of it")]
mod sample;

use resvg::{tiny_skia, usvg};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;
use tidewater_figures::{COLUMN_MM, DPI, Drawing, Error, Format, PAGE_MM, WIDTH_MIN_MM};
use tidewater_report::compare::{self, Axes, Labelled};
use tidewater_report::experiment::{self, Experiment, Form, Point, Series};
use tidewater_report::figure::Figure;
use tidewater_report::log;
use tidewater_report::probe::{self, ProbeRecord, Stage, TargetInfo};

/// The document as a program that knows our font reads it.
fn parsed(svg: &[u8]) -> usvg::Tree {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(include_bytes!("../font/Inter-Regular.ttf").to_vec());
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    usvg::Tree::from_data(svg, &options).unwrap()
}

/// The words of a document, and whether any of them lies outside of it.
fn words(group: &usvg::Group, size: usvg::Size, all: &mut Vec<String>) {
    for node in group.children() {
        match node {
            usvg::Node::Group(group) => words(group, size, all),
            usvg::Node::Text(text) => {
                let at = node.abs_bounding_box();
                let said: String = text.chunks().iter().map(|chunk| chunk.text()).collect();
                let within = at.left() > -0.1
                    && at.top() > -0.1
                    && at.right() < size.width() + 0.1
                    && at.bottom() < size.height() + 0.1;
                assert!(within, "{said:?} is cut off: {at:?} in {size:?}");
                all.push(said);
            }
            _ => {}
        }
    }
}

/// The characters that a PDF says its glyphs are: what makes its text selectable.
fn characters(pdf: &[u8]) -> BTreeSet<char> {
    let mut characters = BTreeSet::new();
    let mut rest = pdf;
    while let Some(at) = rest.windows(6).position(|bytes| bytes == b"stream") {
        rest = &rest[at + 6..];
        let body = rest.strip_prefix(b"\r\n").or(rest.strip_prefix(b"\n")).unwrap_or(rest);
        let mut text = Vec::new();
        if flate2::read::ZlibDecoder::new(body).read_to_end(&mut text).is_err() {
            text = body[..body.windows(9).position(|bytes| bytes == b"endstream").unwrap_or(0)].to_vec();
        }
        let text = String::from_utf8_lossy(&text);
        for map in text.split("beginbfchar").skip(1) {
            let map = map.split("endbfchar").next().unwrap();
            for unicode in map.lines().filter_map(|line| line.split('<').nth(2)) {
                let digits = unicode.trim_end_matches(['>', ' ']);
                let units: Vec<u16> = (0..digits.len() / 4)
                    .filter_map(|i| u16::from_str_radix(&digits[4 * i..4 * i + 4], 16).ok())
                    .collect();
                characters.extend(String::from_utf16_lossy(&units).chars());
            }
        }
    }
    characters
}

/// Writes each figure in each format, and checks what it holds.
fn every(page: &str, figures: &[Figure<'_>]) {
    assert!(!figures.is_empty(), "{page} has figures");
    let names: BTreeSet<&str> = figures.iter().map(Figure::name).collect();
    assert_eq!(names.len(), figures.len(), "one name is one figure: {names:?}");
    for figure in figures {
        assert!(figure.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{names:?}");
        for (what, width) in [("column", COLUMN_MM), ("page", PAGE_MM), ("least", WIDTH_MIN_MM)] {
            let drawing = Drawing::new(figure, width).unwrap();
            assert!((drawing.size_mm().0 - width).abs() < 0.05, "{} is {:?}", figure.name(), drawing.size_mm());
            let svg = drawing.encode(Format::Svg).unwrap();
            let tree = parsed(&svg);
            let mut all = Vec::new();
            words(tree.root(), tree.size(), &mut all);
            assert!(!all.is_empty(), "{} has no words", figure.name());
            let pdf = drawing.encode(Format::Pdf).unwrap();
            assert!(pdf.starts_with(b"%PDF-"));
            // The names of resources came in the order of a hash map.
            assert_eq!(drawing.encode(Format::Pdf).unwrap(), pdf, "{} differs each time", figure.name());
            let known = characters(&pdf);
            let unknown: Vec<char> =
                all.concat().chars().filter(|c| !c.is_whitespace() && !known.contains(c)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?} can't be selected; {known:?}", figure.name());
            if what == "column" {
                let png = drawing.encode(Format::Png).unwrap();
                let pixels = tiny_skia::Pixmap::decode_png(&png).unwrap();
                let density = png.windows(4).position(|part| part == b"pHYs").expect("the PNG states its density");
                let per_metre = u32::from_be_bytes(png[density + 4..density + 8].try_into().unwrap());
                assert!((f64::from(per_metre) * 0.0254 - f64::from(DPI)).abs() < 0.1, "{per_metre}");
                let wide = width / 25.4 * f64::from(DPI);
                assert!((f64::from(pixels.width()) - wide).abs() < 3.0, "{} pixels wide", pixels.width());
                assert!(pixels.pixels().iter().all(|pixel| pixel.is_opaque()), "the ground is white");
                assert!(pixels.pixels().iter().any(|pixel| pixel.red() < 200));
                keep(page, figure.name(), "png", &png);
            }
            keep(page, &format!("{}-{what}", figure.name()), "svg", &svg);
            keep(page, &format!("{}-{what}", figure.name()), "pdf", &pdf);
        }
        assert!(figure.caption().split_whitespace().count() > 3, "{}: {}", figure.name(), figure.caption());
        assert!(figure.data().rows() > 0, "{}", figure.name());
    }
}

fn keep(page: &str, name: &str, ending: &str, bytes: &[u8]) {
    if let Some(folder) = std::env::var_os("FIGURES_OUT") {
        std::fs::write(std::path::Path::new(&folder).join(format!("{page}-{name}.{ending}")), bytes).unwrap();
    }
}

#[test]
fn of_a_run() {
    every("run", &tidewater_report::figures(&sample::rich()));
    every("small", &tidewater_report::figures(&sample::small()));
}

#[test]
fn of_experiments() {
    every("experiments", &experiment::figures(&experiments::all()));
}

#[test]
fn of_a_log() {
    every("log", &log::figures(&logs::record()));
}

#[test]
fn of_a_probe() {
    let points = (1..40).map(|i| Point { x: f64::from(i) * 64.0, y: if i < 13 { 4.2 } else { 67.9 }, spread: None });
    let shown = |title: &str| experiment::Figure {
        title: title.into(),
        form: Form::Lines,
        x_label: "KiB that were read".into(),
        y_label: "latency, µs".into(),
        x_log: true,
        y_log: false,
        series: vec![Series { name: "second pass".into(), from_paper: false, points: points.clone().collect() }],
    };
    let stage = |name: &str, figures| Stage {
        name: name.into(),
        title: "Data that is read again without flash".into(),
        skipped: None,
        requests: 9_788,
        bytes_read: 40_091_648,
        bytes_written: 0,
        seconds: 0.5,
        verdicts: Vec::new(),
        notes: Vec::new(),
        figures,
    };
    let record = ProbeRecord {
        schema: probe::SCHEMA.into(),
        version: "0.1.0".into(),
        target: TargetInfo {
            name: "generic".into(),
            kind: "simulated drive".into(),
            capacity_bytes: 1 << 30,
            block_bytes: 512,
        },
        seed: 1,
        ended_early: None,
        stages: vec![
            stage("read-cache", vec![shown("Read again")]),
            stage("map", vec![shown("First"), shown("Second")]),
        ],
    };
    let figures = probe::figures(&record);
    let names: Vec<&str> = figures.iter().map(Figure::name).collect();
    assert_eq!(names, ["read-cache", "map-1", "map-2"]);
    every("probe", &figures);
}

/// Runs of every policy, size and seed.
fn grid(policies: &[&str], sizes: &[&str], seeds: u64) -> Vec<Labelled> {
    let mut runs = Vec::new();
    for (p, policy) in policies.iter().enumerate() {
        for (s, size) in sizes.iter().enumerate() {
            for seed in 1..=seeds {
                let by = 1.0 + 0.3 * p as f64 + 0.5 * s as f64 + 0.1 * (seed as f64 * 2.7).sin();
                let mut record = sample::scaled(by);
                (record.iops, record.write_amplification, record.seed) = (90_000.0 / by, 1.0 + by, seed);
                record.profile.settings.insert("buffer.write_policy".into(), (*policy).into());
                record.profile.settings.insert("buffer.write_size".into(), (*size).into());
                let label = format!("buffer.write_policy={policy} buffer.write_size={size} seed={seed}");
                runs.push(Labelled { label, record });
            }
        }
    }
    runs
}

#[test]
fn of_a_comparison() {
    let runs: Vec<Labelled> = grid(&["cbm", "lru"], &["16MiB"], 1);
    every("compare", &compare::figures(&runs, &Axes::default()).unwrap());
}

#[test]
fn of_a_comparison_with_seeds() {
    let runs = grid(&["cbm", "lru", "fab"], &["1MiB", "4MiB", "16MiB", "64MiB"], 3);
    let axes = Axes { y: vec!["iops".into(), "read p99".into()], ..Axes::default() };
    let all = compare::figures(&runs, &axes).unwrap();
    let of = |name: &str| all.iter().any(|figure| figure.name() == name);
    assert!(of("iops") && of("iops-map") && of("read-p99") && of("write-amplification"), "every figure has a name");
    let shown: Vec<Figure> = all
        .into_iter()
        .filter(|figure| ["iops", "iops-map", "read-p99", "flash-writes"].contains(&figure.name()))
        .collect();
    every("seeds", &shown);
    let axes = Axes { x: Some("buffer.write_policy".into()), y: vec!["iops".into()], ..Axes::default() };
    let figures = compare::figures(&runs, &axes).unwrap();
    every("policies", &figures[..2]);
    assert!(figures[0].data().column("buffer.write_policy").is_some());
}

#[test]
fn many_runs_that_no_setting_tells_apart_are_rows() {
    let mut runs = grid(&["cbm"], &["1MiB"], 1);
    let one = runs[0].record.clone();
    runs.extend((1..24).map(|i| {
        let mut record = one.clone();
        record.iops = 50_000.0 + 1_000.0 * f64::from(i);
        Labelled { label: format!("a run with a rather long name, number {i}"), record }
    }));
    let axes = Axes { y: vec!["iops".into()], ..Axes::default() };
    every("rows", &compare::figures(&runs, &axes).unwrap()[..1]);
}

/// Words of others, as long as they are and in whatever script, stay within the figure.
#[test]
fn foreign_names_are_not_cut_off() {
    let mut one: Experiment = experiments::lines();
    let long = "Überlastungsabwehrfähigkeit <&> 延迟 ".repeat(6);
    for figure in &mut one.figures {
        (figure.x_label, figure.y_label) = (long.clone(), long.clone());
        figure.series.iter_mut().for_each(|series| series.name = long.clone());
    }
    let documents = [one];
    for figure in experiment::figures(&documents) {
        let drawing = Drawing::new(&figure, COLUMN_MM).unwrap();
        let tree = parsed(&drawing.encode(Format::Svg).unwrap());
        words(tree.root(), tree.size(), &mut Vec::new());
        keep("foreign", figure.name(), "svg", &drawing.encode(Format::Svg).unwrap());
    }
}

#[test]
fn the_ending_decides_and_others_are_refused_by_name() {
    let of = |name: &str| Format::of(std::path::Path::new(name));
    assert_eq!(
        (of("a.SVG").unwrap(), of("b.pdf").unwrap(), of("c.png").unwrap()),
        (Format::Svg, Format::Pdf, Format::Png)
    );
    for name in ["fig", "fig.jpg", "fig.svg.gz"] {
        let Err(refused @ Error::Ending { .. }) = of(name) else { panic!("{name}") };
        assert!(refused.to_string().starts_with(name) && refused.to_string().contains(".svg, .pdf or .png"));
    }
}
