//! What the pages, tables and summaries hold, whatever the record.

#[path = "../examples/sample/record.rs"]
#[allow(dead_code, reason = "shared: each test uses part of it")]
mod sample;
#[allow(dead_code, reason = "shared: each test uses part of it")]
mod support;

use support::{balanced, plots};
use tidewater_report::compare::{self, Labelled};
use tidewater_report::record::*;
use tidewater_report::{page, summary};

/// What must hold for every page: complete, alone, and without a figure that is no number.
fn sound(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let (markup, script) = html.split_once("<script>").expect("one script");
    for bad in ["NaN", "inf ", "inf<", "inf\"", "Infinity", "src=", "href=", "url(", "@import", "null"] {
        assert!(!markup.contains(bad), "the page has {bad:?}");
    }
    // The only address is the name of SVG's namespace, which nothing fetches.
    assert_eq!(script.matches("http").count(), script.matches("http://www.w3.org/2000/svg").count());
    assert!(!markup.contains("http://") && !markup.contains("https://"));
    for path in markup.split(" d=\"").skip(1) {
        let path = path.split('"').next().unwrap();
        assert!(path.starts_with('M') && path.len() > 4, "an empty path: {path:?}");
    }
    balanced(markup);
}

#[test]
fn a_full_record_has_every_section_and_every_plot() {
    let html = page(&sample::rich());
    sound(&html);
    for title in [
        "Latency",
        "Distribution",
        "Tail",
        "Over time",
        "Requests per second",
        "Bandwidth",
        "Blocks erased",
        "What was written to the flash",
        "How busy channels and dies were",
        "Wear",
        "Counters",
        "Destage length",
        "Write buffer and read cache",
        "How to run it again",
        "Before you believe the figures",
    ] {
        assert!(html.contains(&format!(">{title}<")), "no {title}");
    }
    assert_eq!(plots(&html), 10);
    assert_eq!(html.matches("data-name=\"read\"").count(), 4);
    assert_eq!(html.matches("class=\"heat\"").count(), 64 + 8 + 20);
    assert!(html.contains("tidewater replay --profile generic --set ftl.over_provisioning=0.07"));
    assert!(html.contains("All 12 settings"));
    assert!(!html.contains("PARTIAL"));
    assert!(html.len() < 400 << 10, "{} bytes", html.len());
    assert_eq!(html, page(&sample::rich()), "a page depends on its record only");
}

#[test]
fn records_with_little_or_nothing_have_sound_pages() {
    let mut no_reads = sample::rich();
    no_reads.latency_us.retain(|name, _| name != "read");
    let mut no_writes = sample::rich();
    no_writes.latency_us.retain(|name, _| name == "read");
    no_writes.flash = Flash::default();
    no_writes.write_amplification = 0.0;
    let mut no_curves = sample::rich();
    for latency in no_curves.latency_us.values_mut() {
        latency.cdf.clear();
    }
    no_curves.destage_length_pages.cdf.clear();
    no_curves.time_series.points.clear();
    no_curves.utilization = Utilization::default();
    no_curves.wear.histogram.clear();
    for record in [Record::default(), sample::small(), no_reads, no_writes, no_curves] {
        sound(&page(&record));
        assert!(summary(&record).lines().count() > 5);
    }
    let html = page(&sample::small());
    assert!(html.contains("data-name=\"read\" d=\"M") && html.contains("class=\"dot\""));
    assert!(page(&Record::default()).contains("no requests"));
}

#[test]
fn a_stopped_run_says_so_everywhere() {
    let mut record = sample::small();
    record.partial = true;
    record.partial_reason = Some("interrupted by Ctrl-C".into());
    assert!(page(&record).contains("<b>PARTIAL</b>") && page(&record).contains("interrupted by Ctrl-C"));
    assert!(summary(&record).starts_with("PARTIAL: interrupted by Ctrl-C"));
    let runs = [Labelled { label: "one".into(), record }, Labelled { label: "two".into(), record: sample::small() }];
    assert!(compare::table(&runs, 80).contains("`one` was stopped before its end"));
    assert!(compare::page(&runs, "x").contains("<b>PARTIAL</b>"));
}

/// A record whose every text is an attack, and whose every number is at its limit.
fn hostile() -> Record {
    let evil = "</script><img src=x onerror=\"alert('1')\">\u{1b}[2J\u{0}";
    let mut record = sample::rich();
    record.tool_version = evil.into();
    record.command_line = Some(evil.into());
    record.partial = true;
    record.partial_reason = Some(evil.into());
    record.profile.name = evil.into();
    record.profile.description = evil.into();
    record.profile.settings.insert(evil.into(), evil.into());
    record.profile.changed.push(evil.into());
    record.workload.source = evil.into();
    record.workload.description = evil.into();
    record.workload.options.insert(evil.into(), evil.into());
    record.warnings.push(evil.into());
    record.memory.push(Placement { memory: evil.into(), usage: evil.into(), size_bytes: u64::MAX, note: evil.into() });
    record.write_buffer = Cache {
        policy: evil.into(),
        memory: evil.into(),
        hits: u64::MAX,
        misses: u64::MAX,
        hit_ratio: -5.0,
        ..Cache::default()
    };
    let latency = Latency {
        count: u64::MAX,
        mean: f64::MAX,
        min: -1.0,
        max: f64::MAX,
        cdf: vec![(f64::MAX, -3.0), (-1.0, 7.0), (0.0, f64::MAX)],
        ..Latency::default()
    };
    record.latency_us.insert(evil.into(), latency.clone());
    record.latency_us.insert("read".into(), latency);
    record.flash = Flash { unit_bytes: u64::MAX, units_host: u64::MAX, units_collected: u64::MAX, ..Flash::default() };
    record.wear.histogram = vec![(u64::MAX, u64::MAX), (0, u64::MAX), (7, 1)];
    record.time_series.interval_seconds = -1.0;
    record.time_series.points.push(TimePoint {
        t_seconds: f64::MAX,
        read_iops: f64::MAX,
        mean_latency_us: 1e300,
        ..TimePoint::default()
    });
    record.time_series.points.push(TimePoint { t_seconds: -4.0, write_mib_s: -8.0, ..TimePoint::default() });
    record.utilization.dies.push(DieUse { channel: u32::MAX, die: u32::MAX, read_share: 1e300, ..DieUse::default() });
    record.destage_length_pages.cdf.push((f64::MAX, 2.0));
    record.simulated_seconds = f64::MAX;
    record.iops = f64::MAX;
    record
}

#[test]
fn foreign_text_and_numbers_stay_harmless() {
    let record = hostile();
    let runs = [
        Labelled { label: "</td><script>".into(), record: record.clone() },
        Labelled { label: "b".into(), record: sample::rich() },
    ];
    for html in [page(&record), compare::page(&runs, "<script>alert(1)</script>")] {
        let before =
            html.split_once("\n<script>\n\"use strict\"").or(html.split_once("\n<script>\n//")).expect("our script").0;
        assert!(!before.contains("<script") && !before.contains("<img") && !before.contains('\u{1b}'));
        assert!(before.contains("&lt;/script&gt;"));
        balanced(before);
        for bad in ["NaN", "inf ", "inf\""] {
            assert!(!before.contains(bad), "{bad}");
        }
    }
    for text in [summary(&record), compare::table(&runs, 80)] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{0}'));
    }
}

#[test]
fn numbers_that_are_not_finite_reach_no_page() {
    let mut record = sample::rich();
    record.iops = f64::NAN;
    record.write_amplification = f64::INFINITY;
    record.time_series.points[3].read_iops = f64::NAN;
    record.time_series.points[4].mean_latency_us = f64::INFINITY;
    record.latency_us.get_mut("read").unwrap().p99 = f64::NAN;
    record.latency_us.get_mut("read").unwrap().cdf[3] = (f64::NAN, f64::NAN);
    record.utilization.dies[0].read_share = f64::NAN;
    record.wear.mean = f64::NAN;
    sound(&page(&record));
    let runs = [Labelled { label: "a".into(), record }, Labelled { label: "b".into(), record: sample::rich() }];
    sound(&compare::page(&runs, "x"));
    assert!(!compare::table(&runs, 80).contains("NaN"));
}

fn three() -> Vec<Labelled> {
    [("base", 1.0), ("fast", 0.5), ("slow", 2.0)]
        .map(|(label, slower)| Labelled { label: label.into(), record: sample::scaled(slower) })
        .into()
}

#[test]
fn a_comparison_marks_the_best_and_says_by_how_much() {
    let table = compare::table(&three(), 100);
    let row = table.lines().find(|line| line.starts_with("IOPS")).unwrap();
    assert!(row.contains("129 k (+100 %) *") && row.contains("32.2 k (−50 %)"), "{row}");
    let row = table.lines().find(|line| line.starts_with("read p99 ")).unwrap();
    assert!(row.contains("(−50 %) *") && row.contains("(+100 %)"), "{row}");
    assert!(!table.contains("note:"), "{table}");
    let html = compare::page(&three(), "slowness");
    sound(&html);
    assert!(html.matches('★').count() > 8);
    assert_eq!(html.matches("data-name=\"fast\"").count(), 6);
}

#[test]
fn a_table_says_each_warning_once_and_whose_it_is() {
    let mut runs = three();
    for run in &mut runs {
        run.record.warnings = vec!["of all".into()];
    }
    runs[1].record.warnings.push("of one".into());
    let table = compare::table(&runs, 100);
    assert_eq!(table.matches("of all").count(), 1);
    assert!(table.contains("\nwarning: of all\n"), "{table}");
    assert!(table.contains(&format!("\nwarning: {}: of one\n", runs[1].label)), "{table}");
}

#[test]
fn a_table_that_is_too_wide_goes_on_below() {
    let many: Vec<Labelled> =
        (0..7).map(|i| Labelled { label: format!("buffer.write_size={i} MiB"), record: sample::small() }).collect();
    let table = compare::table(&many, 80);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.matches("buffer.write_size=0 MiB").count() > 2);
    for run in &many {
        assert!(table.contains(&run.label));
    }
    // However narrow, it ends.
    assert!(compare::table(&many, 0).contains("=6 MiB"));
}

#[test]
fn many_runs_begin_with_a_row_each_the_best_first() {
    let mut runs = three();
    let first_line = |runs: &[Labelled]| compare::table(runs, 100).lines().next().unwrap_or_default().to_owned();
    assert!(first_line(&runs).contains("base"), "three stand side by side");
    runs.push(Labelled { label: "slowest".into(), record: sample::scaled(4.0) });
    let table = compare::table(&runs, 100);
    let first: Vec<&str> = table.lines().take(6).map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    assert_eq!(first, ["mean", "fast", "base", "slow", "slowest", ""], "{table}");
    assert!(table.lines().nth(1).unwrap().contains(" *"), "{table}");
    let narrow = compare::table(&runs, 40);
    assert!(narrow.lines().take(5).all(|line| line.chars().count() <= 40), "{narrow}");
}

#[test]
fn unlike_runs_are_not_compared_in_silence() {
    let mut runs = three();
    runs[1].record.seed = 9;
    runs[2].record.workload.source = "another.csv".into();
    let table = compare::table(&runs, 100);
    assert!(table.contains("different workloads") && table.contains("different seeds"), "{table}");
    assert_eq!(compare::table(&[], 80), "Nothing to compare.\n");
    sound(&compare::page(&[], "x"));
    sound(&compare::page(&runs[..1], "x"));
}

#[test]
fn a_summary_fits_a_screen() {
    let text = summary(&sample::rich());
    let lines: Vec<&str> = text.lines().collect();
    assert!((15..=27).contains(&lines.len()), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 120 && line.trim_end() == *line), "{text}");
    for word in ["IOPS", "p99.9", "write amplification", "write buffer", "64.4 k"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
}
