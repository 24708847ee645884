//! `tidewater log`, as a user meets it.

use serde_json::Value;
use std::path::Path;
use tidewater_tests::{run_refused, run_well};

fn rows(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = run_well(folder, arguments);
    let document: Value = serde_json::from_str(&output).expect("standard output holds JSON and nothing else");
    assert!(document["profile"].is_string() && document["seed"].is_number(), "{document}");
    document["sides"].as_array().expect("one object for each side").clone()
}

#[test]
fn each_side_has_its_line_and_the_fast_one_is_faster() {
    let all = "none,memory,fast,conventional";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let rows =
        rows(here, &["log", "--to", all, "--workers", "4", "--seconds", "0.02", "--warm-up", "0.005", "--json", "-"]);
    assert_eq!(rows.iter().map(|row| row["to"].as_str().unwrap()).collect::<Vec<_>>().join(","), all);
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
    let commit = |row: &Value| row["commit_us"]["mean"].as_f64().unwrap();
    for row in &rows {
        assert!(number(row, "transactions_per_second") > 100_000.0 && row["latency_us"]["p99"].is_number(), "{row}");
    }
    assert!(commit(&rows[2]) < commit(&rows[3]), "{rows:?}");
    assert!(number(&rows[2], "pages_destaged") > 0.0 && number(&rows[3], "pages_destaged") == 0.0);
    assert!(number(&rows[2], "credit_reads") > 0.0);
}

#[test]
fn a_log_of_ones_own_is_replayed_and_what_is_wrong_with_it_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("my.csv");
    let name = path.to_str().expect("a name in UTF-8");
    std::fs::write(&path, "time_us,size\n0,20000\n30,100\n31,70000\n").unwrap();
    let here = folder.path();
    let rows = rows(here, &["log", "--log", name, "--to", "fast", "--json", "-"]);
    assert_eq!((rows.len(), &rows[0]["transactions"], &rows[0]["log_bytes"]), (1, &3.into(), &90_100.into()));
    // Without a log, the first line is done at the instant in which it comes.
    let rows = self::rows(here, &["log", "--log", name, "--to", "none,memory", "--json", "-"]);
    for row in &rows {
        assert_eq!((&row["transactions"], &row["log_bytes"]), (&3.into(), &90_100.into()), "{row}");
    }
    std::fs::write(&path, "time_us,size\n0,20000\n30,many\n").unwrap();
    let refused = run_refused(here, &["log", "--log", name]);
    assert!(refused.contains("my.csv:3:4"), "{refused}");
    let refused = run_refused(here, &["log", "--profile", "generic"]);
    assert!(refused.contains("no fast side"), "{refused}");
}

#[test]
fn more_time_than_there_is_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (seconds, warm_up) in [("1e9", "1"), ("1", "1e300"), ("1e7", "1e7")] {
        let refused = run_refused(folder.path(), &["log", "--seconds", seconds, "--warm-up", warm_up]);
        assert!(refused.contains("simulated time is limited to 200 days"), "{refused}");
    }
}

#[test]
fn a_full_log_is_an_error_and_a_group_larger_than_a_command_is_split() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let short = ["--seconds", "0.05", "--warm-up", "0.001", "--json", "-"];
    let full = ["log", "--to", "fast", "--set", "fast.on_wrap=wait-for-trim", "--set", "fast.log_size=16MiB"];
    let refused = run_refused(here, &[&full[..], &short[..]].concat());
    assert!(refused.contains("there is no trim"), "{refused}");
    let commit = |group: &str| {
        let arguments = ["log", "--to", "conventional", "--group-bytes", group];
        rows(here, &[&arguments[..], &short[..]].concat())[0]["commit_us"]["mean"].as_f64().unwrap()
    };
    let (one, four) = (commit("1MiB"), commit("4MiB"));
    assert!(four > 2.0 * one, "{four} us for four times the bytes of {one} us");
}

#[test]
fn a_page_says_what_each_side_costs_and_how_the_log_stands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let run = ["log", "--seconds", "0.02", "--warm-up", "0.005", "--json", "log.json", "--report", "log.html"];
    let said = run_well(here, &run);
    assert!(said.contains("conventional") && said.contains("log.html"), "{said}");
    let read = |name: &str| std::fs::read_to_string(here.join(name)).expect("a file");
    let (page, document) = (read("log.html"), read("log.json"));
    for words in [
        "Commit: tail",
        "If the power failed here",
        "level DESTAGED",
        "What waits for flash",
        "tidewater log --seconds",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // The stream's ends are in order, and no more is credited than the ring can hold.
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let state = &document["sides"][0]["state"];
    let end = |name: &str| state[name].as_u64().unwrap_or_else(|| panic!("{name} in {state}"));
    let ends = ["arrived", "credited", "left_ring", "destaged", "readable_from"].map(end);
    assert!(ends.is_sorted_by(|a, b| a >= b) && ends[3] > 0, "{ends:?}");
    assert!(end("credited") - end("left_ring") <= end("ring_bytes"), "{state}");
    assert!(state["backlog"].as_array().is_some_and(|points| points.len() > 100), "{state}");
    assert!(document["sides"][1]["state"].is_null(), "the conventional side has no ring");
    // The page is made again from the document, and so is the table.
    run_well(here, &["report", "log.json", "-o", "again.html"]);
    assert_eq!(read("again.html"), page);
    let table = run_well(here, &["report", "log.json"]);
    assert!(said.starts_with(&table), "{table}");
    // A document of another version is named as such.
    std::fs::write(here.join("later.json"), "{\"schema\": \"tidewater-log/9\"}").expect("a file");
    let refused = run_refused(here, &["report", "later.json"]);
    assert!(refused.contains("later.json: the schema `tidewater-log/9` is not `tidewater-log/1`"), "{refused}");
    let refused = run_refused(here, &["log", "--json", "x", "--report", "x"]);
    assert!(refused.contains("two results"), "{refused}");
}
