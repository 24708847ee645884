//! The public traces beside the checkout: each replays, and `trace info` agrees with the table in their README. Where
//! the folder is absent this prints SKIPPED; synthesized equivalents are in `sim`.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidewater_tests::{at, root, run, run_well, skipped};

/// How the format of each trace is called, by the beginning of its file name.
const FORMATS: &[(&str, &str)] = &[
    ("umass_financial1_first949", "spc"),
    ("umass_financial1_first10000", "ssdsim"),
    ("umass_financial1_first50000", "flashsim"),
    ("umass_websearch1", "flashsim"),
    ("mqsim_tpcc", "mqsim"),
    ("ms_MSNStorage", "etw"),
    ("ms_exchange", "mqsim64"),
    ("msr_rsrch_1", "msr"),
    ("msr_wdev_1", "msr"),
    ("msr_hm", "msr"),
    ("systor17", "systor17"),
    ("flashnet", "flashnet"),
    ("tencent", "tencent"),
    ("cloudphysics", "vscsi"),
    ("ycsb", "blkparse"),
    ("wiscsee", "wiscsee"),
    ("disksim", "disksim"),
];

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TIDEWATER_TRACES").map_or_else(|| root().join("../shared/traces"), PathBuf::from);
    folder.join("README.md").is_file().then_some(folder)
}

/// One row of the table: file, and the cells behind its format.
struct Row {
    file: PathBuf,
    format: &'static str,
    cells: Vec<String>,
}

/// The first number of a cell such as `13,780` or `1,695 Q`; none in `all within 1 s` or `artefact`.
fn number(cell: &str) -> Option<f64> {
    let digits: String = cell.chars().filter(|c| *c != ',').take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().ok()
}

fn rows(folder: &Path) -> Vec<Row> {
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the README of the traces");
    let rows: Vec<Row> = readme
        .lines()
        .filter_map(|line| {
            let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            let (_, format) = FORMATS.iter().find(|(prefix, _)| cells[0].starts_with(prefix))?;
            // `flashnet_tencent...537.trace.csv` stands for a longer name; `(whole volume)` is a remark.
            let shown = cells[0].split(' ').next().unwrap_or_default();
            let (head, tail) = shown.split_once("...").unwrap_or((shown, ""));
            let file = std::fs::read_dir(folder).expect("the folder of traces").find_map(|entry| {
                let name = entry.expect("an entry").file_name().into_string().expect("names are UTF-8");
                let stem = name.strip_suffix(".zst")?;
                (stem.starts_with(head) && stem.ends_with(tail)).then(|| folder.join(&name))
            });
            let file = file.unwrap_or_else(|| panic!("{shown} is in the table, and not in the folder"));
            Some(Row { file, format, cells })
        })
        .collect();
    assert_eq!(rows.len(), FORMATS.len(), "the table has a row for each trace");
    rows
}

/// Every row that `check` finds wrong, in words; prints SKIPPED when there are no traces.
fn each(check: impl Fn(&Row, &Path) -> Result<(), String>) {
    let Some(folder) = folder() else {
        skipped(FORMATS.len(), "no public traces beside the checkout (../shared/traces, or TIDEWATER_TRACES)");
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let wrong: Vec<String> = rows(&folder)
        .iter()
        .filter_map(|row| check(row, temporary.path()).err().map(|why| format!("{}: {why}", row.file.display())))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Does a figure agree with its cell, as exactly as the cell was rounded?
fn agrees(info: &Value, key: &str, cell: &str) -> Result<(), String> {
    let Some(stated) = number(cell) else { return Ok(()) };
    let found = at(info, key).as_f64().ok_or_else(|| format!("{key} is missing"))?;
    // One unit of the last digit that the table shows, and half a per cent for ends that are counted differently.
    let decimals = cell.split_once('.').map_or(0, |(_, d)| d.chars().take_while(char::is_ascii_digit).count());
    let tolerance = 10f64.powi(-(decimals as i32)).max(stated * 0.005);
    if (found - stated).abs() <= tolerance { Ok(()) } else { Err(format!("{key} is {found}, the table says {stated}")) }
}

#[test]
fn trace_info_agrees_with_the_published_statistics() {
    each(|row, folder| {
        let file = row.file.to_str().expect("UTF-8");
        let text = run_well(folder, &["trace", "info", file, "--format", row.format, "--json", "-"]);
        let info: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        agrees(&info, "requests", &row.cells[2])?;
        agrees(&info, "mean_kib", &row.cells[3])?;
        agrees(&info, "write_percent", &row.cells[4])?;
        agrees(&info, "sequential_percent", &row.cells[5])?;
        agrees(&info, "mean_interarrival_ms", &row.cells[6])?;
        agrees(&info, "footprint_mib", &row.cells[7])
    });
}

#[test]
fn every_trace_replays_to_its_last_request() {
    each(|row, folder| {
        let file = row.file.to_str().expect("UTF-8");
        let text = run_well(folder, &["replay", "--trace", file, "--format", row.format, "--json", "-"]);
        let run: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        if at(&run, "partial") != &Value::Bool(false) {
            return Err("the run did not end".to_owned());
        }
        agrees(&run, "requests", &row.cells[2])
    });
}

#[test]
fn a_format_is_detected_or_the_choices_are_named() {
    each(|row, folder| {
        let file = row.file.to_str().expect("UTF-8");
        let with = run_well(folder, &["trace", "info", file, "--format", row.format, "--json", "-"]);
        let without = run(folder, &["trace", "info", file, "--json", "-"]);
        let message = String::from_utf8_lossy(&without.stderr);
        if without.status.success() {
            // Detected: then rightly.
            let figures = |text: &str| -> Result<Vec<Value>, String> {
                let info: Value = serde_json::from_str(text).map_err(|e| format!("{e}: {text}"))?;
                let keys = ["requests", "mean_kib", "write_percent", "mean_interarrival_ms", "footprint_mib"];
                Ok(keys.iter().map(|key| info[*key].clone()).collect())
            };
            let (right, found) = (figures(&with)?, figures(&String::from_utf8_lossy(&without.stdout))?);
            if right == found { Ok(()) } else { Err(format!("taken for another format: {found:?}, not {right:?}")) }
        } else if message.contains("--format") && message.contains(row.format) {
            Ok(())
        } else {
            Err(format!("refused without naming {} for --format: {message}", row.format))
        }
    });
}

/// Compares `trace info` of a trace and of its stand-in: every figure that is promised, as near as the guide says.
fn stands_in(folder: &Path, file: &str, format: &str) -> Result<(), String> {
    run_well(folder, &["trace", "synth", "stand-in.spc", "--like", file, "--format", format]);
    let info = |file: &str, format: &str| -> Result<Value, String> {
        let text = run_well(folder, &["trace", "info", file, "--format", format, "--locality", "--json", "-"]);
        serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
    };
    let (trace, made) = (info(file, format)?, info("stand-in.spc", "spc")?);
    let figure = |info: &Value, key: &str| at(info, key).as_f64().unwrap_or(f64::NAN);
    let near = |key: &str, tolerance: f64| {
        let (wanted, got) = (figure(&trace, key), figure(&made, key));
        if (got - wanted).abs() <= tolerance { Ok(()) } else { Err(format!("{key} is {got}, not {wanted}")) }
    };
    let parts = |key: &str, share: f64| near(key, figure(&trace, key) * share);
    near("requests", 0.0)?;
    parts("mean_kib", 0.01)?;
    // A kind that hardly occurs has the mean of the few sizes that were drawn.
    for (key, share) in [
        ("mean_read_kib", 100.0 - figure(&trace, "write_percent")),
        ("mean_write_kib", figure(&trace, "write_percent")),
    ] {
        let few = share / 100.0 * figure(&trace, "requests") < 100.0;
        parts(key, if few { 0.1 } else { 0.01 })?;
    }
    near("write_percent", 0.3)?;
    // Ten requests are chance, of however few.
    near("sequential_percent", (1_000.0 / figure(&trace, "requests")).max(0.3))?;
    near("aligned_percent", 5.0)?;
    parts("mean_interarrival_ms", 0.01)?;
    parts("footprint_mib", 0.05)
}

#[test]
fn the_sample_has_a_stand_in() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert_eq!(stands_in(folder.path(), "sample", "spc"), Ok(()));
    // Both are printed side by side, and an option takes the place of the trace's figure.
    let given = ["trace", "synth", "x.spc", "--like", "sample", "--write-percent", "80", "--mean-kib", "16"];
    let said = run_well(folder.path(), &given);
    let row = |what: &str| said.lines().find(|line| line.starts_with(what)).unwrap_or_default().to_owned();
    assert!(row("writes").contains("40 %") && row("writes").contains("80 %"), "{said}");
    assert!(row("mean size").contains("16") && row("skew").len() > 20, "{said}");
}

#[test]
fn every_trace_has_a_stand_in_that_is_described_alike() {
    each(|row, folder| stands_in(folder, row.file.to_str().expect("UTF-8"), row.format));
}
