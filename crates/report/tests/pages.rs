//! Contents of the pages, tables and summaries, for every record.

use crate::sample;
use crate::support::{balanced, plots};
use tidewater_report::compare::{self, Labelled};
use tidewater_report::record::*;
use tidewater_report::{page, summary};

/// Checks that a page is complete and self-contained, and that every figure is a number.
fn sound(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let (markup, script) = html.split_once("<script>").expect("the page has a script");
    // Links of the contents stay within the page.
    let markup = &markup.replace("<a href=\"#", "<a to=\"#");
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
    assert_eq!(html.matches("data-name=\"read\"").count(), 2 * 5);
    assert_eq!(html.matches("class=\"heat\"").count(), 2 * (64 + 8 + 20));
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
    record.memory.push(Placement { memory: evil.into(), r#use: evil.into(), size_bytes: u64::MAX, note: evil.into() });
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
    record.map_cache = Some(MapCache { written: u64::MAX, moved: u64::MAX, ..MapCache::default() });
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
    assert_eq!(html.matches("data-name=\"fast\"").count(), 2 * 6);
}

/// Runs that differ in what `change` does to them, by number.
fn changed(count: usize, change: impl Fn(usize, &mut Record)) -> Vec<Labelled> {
    let run = |i| {
        let mut record = sample::scaled(1.0);
        change(i, &mut record);
        Labelled { label: format!("run{i}"), record }
    };
    (0..count).map(run).collect()
}

/// The row of a figure in the table of runs that stand side by side.
fn row(runs: &[Labelled], name: &str) -> String {
    let table = compare::table(runs, 400);
    table
        .lines()
        .rfind(|line| line.starts_with(&format!("{name}  ")))
        .unwrap_or_else(|| panic!("no {name}: {table}"))
        .to_owned()
}

#[test]
fn values_that_look_alike_are_best_together_or_not_at_all() {
    let nearly = changed(3, |i, r| r.latency_us.get_mut("read").unwrap().mean = 100.0 + 0.001 * i as f64);
    assert_eq!(row(&nearly, "read mean").matches('*').count(), 0);
    assert!(!row(&nearly, "read mean").contains("+0."), "{}", row(&nearly, "read mean"));
    let two = changed(3, |i, r| r.latency_us.get_mut("read").unwrap().mean = [100.0, 100.001, 200.0][i]);
    assert_eq!(row(&two, "read mean").matches('*').count(), 2);
}

#[test]
fn a_stopped_run_gets_no_star_and_takes_none_away() {
    let runs = changed(3, |i, r| {
        r.erases = [10, 500, 900][i];
        r.partial = i == 0;
    });
    let row = row(&runs, "blocks erased");
    let cells: Vec<&str> = row.split("  ").filter(|cell| !cell.trim().is_empty()).collect();
    assert!(cells[1].trim() == "10" && cells[2].ends_with('*') && !cells[3].ends_with('*'), "{cells:?}");
    let alone = changed(2, |i, r| {
        r.erases = [10, 500][i];
        r.partial = i == 0;
    });
    let table = compare::table(&alone, 400);
    assert_eq!(table.lines().filter(|line| line.trim_end().ends_with('*')).count(), 0, "{table}");
}

#[test]
fn lengths_have_no_best_and_great_changes_are_factors() {
    let runs = changed(3, |i, r| {
        r.destage_length_pages.mean = 1.0 + i as f64;
        r.erases = [1, 400, 200_000][i];
    });
    assert_eq!(row(&runs, "destage length").matches('*').count(), 0);
    let row = row(&runs, "blocks erased");
    assert!(row.contains("400 (×400)") && row.contains("200 k (–)"), "{row}");
}

#[test]
fn a_comparison_of_power_cuts_tells_of_recovery() {
    let runs = changed(2, |i, r| {
        r.recovery =
            Some(Recovery { seconds: [0.5, 1.5][i], pages_read: [1_000, 3_000][i], pages_lost: Some(i as u64) });
    });
    assert!(row(&runs, "recovery time").contains("500 ms *"));
    assert!(row(&runs, "pages read in recovery").contains("3 k (+200 %)"));
    assert!(row(&runs, "pages lost unflushed").contains("0 *"));
    let without = compare::table(&changed(2, |_, r| r.recovery = None), 400);
    assert!(!without.contains("recovery"), "{without}");
    assert!(page(&runs[1].record).contains("pages of completed writes lost"));
    assert!(summary(&runs[1].record).contains("1 page of completed writes lost"));
}

#[test]
fn what_the_buffer_absorbs_is_told_beside_write_amplification() {
    let runs = changed(2, |i, r| r.flash_written_per_host_byte = [Some(0.25), Some(2.5)][i]);
    assert!(row(&runs, "flash written per host byte").contains("0.25 *"));
    assert!(row(&runs, "write amplification").contains("2.31"));
    let html = page(&runs[0].record);
    assert!(
        html.contains("Flash written per host byte") && html.contains("programmed per unit that left the write buffer")
    );
    assert!(!html.contains("bytes of flash written per byte of the host"));
    assert!(summary(&runs[0].record).contains("; 0.25 bytes of flash per byte of the host\n"));
    // A record from before there was the field has what it takes.
    let mut old = runs[0].record.clone();
    old.flash_written_per_host_byte = None;
    let programmed = old.flash.units_total() as f64 * 4096.0;
    assert_eq!(old.written_per_host_byte(), Some(programmed / old.bytes_written as f64));
    old.bytes_written = 0;
    assert_eq!(old.written_per_host_byte(), None);
}

#[test]
fn a_comparison_says_what_was_compared_and_how_to_do_it_again() {
    let mut runs = changed(2, |i, r| {
        let size = ["16MiB", "64MiB"][i];
        r.profile.settings.insert("buffer.write_size".into(), size.into());
        r.profile.changed = vec![format!("buffer.write_size={size}")];
        r.profile.description += &format!("; changed: buffer.write_size={size}");
        r.workload.options.insert("precondition".into(), "steady".into());
        r.command_line = Some("tidewater compare --vary buffer.write_size=16MiB,64MiB".into());
    });
    let html = compare::page(&runs, "x");
    sound(&html);
    let (common, varies) = html.split_once("What varies").expect("the page lists the varied settings");
    for part in ["<dd>generic</dd>", "mail-server.csv.zst", "<dt>precondition</dt><dd>steady</dd>", "<dt>seed</dt>"] {
        assert!(common.contains(part), "no {part}");
    }
    assert!(common.contains("page-mapped TLC drive, 8 channels of 8 dies, PCIe 4.0 x4</dd>"));
    let varies = varies.split("<h2").next().unwrap();
    for part in ["<th class=\"words\">buffer.write_size</th>", "16 MiB", "64 MiB"] {
        assert!(varies.contains(part), "no {part} in {varies}");
    }
    assert_eq!(html.matches("tidewater compare --vary").count(), 1);
    runs[1].record.command_line = Some("tidewater replay".into());
    assert!(compare::page(&runs, "x").contains("<h3>run1</h3>\n<pre>tidewater replay</pre>"));
}

#[test]
fn latency_over_time_is_of_reads_and_writes_apart() {
    let html = page(&sample::rich());
    assert!(html.contains("The mean of the reads and of the writes that ended in each interval"));
    let mut old = sample::rich();
    for point in &mut old.time_series.points {
        (point.read_latency_us, point.write_latency_us) = (None, None);
    }
    let html = page(&old);
    assert!(html.contains("The mean of all requests that ended, reads and writes together, in each interval"));
    assert!(html.contains("data-name=\"mean\""));
}

#[test]
fn one_of_a_thing_is_singular() {
    let mut record = sample::rich();
    record.read_retries = 1;
    record.erases = 1;
    record.collections = 1;
    record.destage_length_pages.mean = 1.0;
    let text = summary(&record);
    for words in ["1 read repeated", "1 block in 1 collection;", "destages of 1 page,"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
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
    runs[1].record.capacity_bytes += 4096;
    runs[2].record.workload.source = "another.csv".into();
    let table = compare::table(&runs, 100);
    assert!(table.contains("different workloads") && table.contains("different seeds"), "{table}");
    assert_eq!(compare::table(&[], 80), "Nothing to compare.\n");
    sound(&compare::page(&[], "x"));
    sound(&compare::page(&runs[..1], "x"));
}

#[test]
fn runs_of_several_seeds_begin_with_their_medians() {
    let mut runs = three();
    for (run, (label, seed)) in runs.iter_mut().zip([("x seed=1", 1), ("x seed=2", 2), ("y seed=1", 1)]) {
        (run.label, run.record.seed) = (label.into(), seed);
    }
    runs[2].record.profile.settings.insert("buffer.write_policy".into(), "y".into());
    let table = compare::table(&runs, 100);
    let medians = table.strip_prefix("Over seeds: ").expect(&table);
    let figures = medians.split("\n\n").next().unwrap();
    assert!(figures.lines().all(|line| line.chars().count() <= 100), "{figures}");
    let head = medians.lines().nth(1).unwrap();
    assert!(head.contains("x (2 seeds)") && head.contains("y seed=1 (1 seed)"), "{medians}");
    let mean = medians.lines().find(|line| line.starts_with("mean response")).unwrap();
    assert!(mean.contains(" to "), "{mean}");
    assert!(table.contains("\n\nEach run:\n") && !table.contains("different seeds"), "{table}");
    let html = compare::page(&runs, "x");
    sound(&html);
    assert!(html.contains("<h2 id=\"seeds\">Over seeds</h2>") && html.contains("<th>x (2 seeds)</th>"));
    assert!(!compare::page(&three(), "x").contains("id=\"seeds\""));
}

#[test]
fn a_summary_fits_a_screen() {
    let text = summary(&sample::rich());
    let lines: Vec<&str> = text.lines().collect();
    assert!((15..=28).contains(&lines.len()), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 120 && line.trim_end() == *line), "{text}");
    for word in ["IOPS", "p99.9", "write amplification", "write buffer", "64.4 k"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
}
