//! `tidewater experiment`, as a user meets it.

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};
use tempfile::TempDir;
use tidewater_tests::{run, run_refused, run_well, tidewater};

/// One that is done in no time.
const SMALL: &str = "x-ssd/movements";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("standard output holds JSON and nothing else")
}

fn array<'a>(document: &'a Value, field: &str) -> &'a Vec<Value> {
    document[field].as_array().unwrap_or_else(|| panic!("{field} is no array in {document}"))
}

/// Holds for the document of every experiment.
fn complete(document: &Value) {
    for field in ["name", "title", "source", "description", "version"] {
        assert!(document[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {}", document[field]);
    }
    let columns = array(document, "columns");
    assert!(columns.iter().all(|column| column["doc"].as_str().is_some_and(|doc| !doc.is_empty())), "{columns:?}");
    let rows = array(document, "rows");
    assert!(!rows.is_empty());
    for row in rows {
        let cells = row.as_array().expect("a row is an array");
        assert_eq!(cells.len(), columns.len());
        assert!(cells.iter().all(|cell| cell.is_number() || cell.is_string()), "{row}");
    }
    let checks = array(document, "checks");
    assert!(!checks.is_empty());
    for check in checks {
        for field in ["statement", "expected", "measured"] {
            assert!(check[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {check}");
        }
        assert!(check["ok"].is_boolean(), "{check}");
    }
    let points = |series: &Value| array(series, "points").len();
    for figure in array(document, "figures") {
        assert!(array(figure, "series").iter().map(points).sum::<usize>() > 0, "{figure}");
    }
}

/// Whether every check of these documents holds, and the exit status says so.
fn status_tells(output: &Output, documents: &[&Value]) {
    let holds = documents.iter().flat_map(|one| array(one, "checks")).all(|check| check["ok"] == true);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(if holds { 0 } else { 3 }), "{errors}");
    assert_eq!(errors.contains("not hold"), !holds, "{errors}");
}

#[test]
fn the_list_names_every_experiment_once() {
    let list = run_well(folder().path(), &["experiment", "list"]);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for name in ["x-ssd/fig9", "x-ssd/fig10", "x-ssd/fig11", "x-ssd/fig12", "x-ssd/fig13", SMALL] {
        assert_eq!(names.iter().filter(|other| **other == name).count(), 1, "{name} in {list}");
    }
    assert!(list.lines().all(|line| line.split_whitespace().count() > 3), "every name has a title: {list}");
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest() {
    let message = run_refused(folder().path(), &["experiment", "run", "x-ssd/fig10", "x-ssd/fgi11", "--json", "-"]);
    assert!(message.contains("x-ssd/fgi11") && message.contains("x-ssd/fig11"), "{message}");
    let status = run(folder().path(), &["experiment", "run", "x-ssd/fgi11"]).status;
    assert_eq!(status.code(), Some(2), "not the status of a check that does not hold");
    assert!(run_refused(folder().path(), &["experiment", "run"]).contains("required"));
    let place = run_refused(folder().path(), &["experiment", "run", SMALL, "--report", "absent/p.html"]);
    assert!(place.contains("mkdir"), "{place}");
}

#[test]
fn one_document_stands_alone_on_standard_output() {
    let output = run(folder().path(), &["experiment", "run", "x-ssd/fig10", "--quick", "--json", "-"]);
    let document = json(&output.stdout);
    complete(&document);
    assert_eq!(document["name"], "x-ssd/fig10");
    assert_eq!(document["schema"], "tidewater-experiment/1");
    let differences = array(&document, "differences");
    assert!(differences.iter().any(|text| text.as_str().is_some_and(|text| text.contains("--quick"))));
    status_tells(&output, &[&document]);
    let again = run(folder().path(), &["experiment", "run", "x-ssd/fig10", "--quick", "--json", "-"]);
    assert_eq!(json(&again.stdout), document, "the same seed, the same document");
}

#[test]
fn several_documents_are_one_array_in_the_order_given() {
    let folder = folder();
    let names = [SMALL, "x-ssd/fig11", "x-ssd/fig10"];
    let output = run(folder.path(), &[&["experiment", "run", "--quick", "--json", "-"][..], &names].concat());
    let documents = json(&output.stdout);
    let documents: Vec<&Value> = documents.as_array().expect("an array").iter().collect();
    documents.iter().for_each(|document| complete(document));
    assert_eq!(documents.iter().map(|d| d["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    status_tells(&output, &documents);
}

#[test]
fn what_is_measured_is_said_beside_what_the_paper_says() {
    let folder = folder();
    let arguments = ["experiment", "run", SMALL, "--json", "m.json", "--report", "m.html"];
    let output = run(folder.path(), &arguments);
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let document = json(&std::fs::read(folder.path().join("m.json")).expect("the document"));
    complete(&document);
    status_tells(&output, &[&document]);
    assert!(text.starts_with(SMALL), "{text}");
    let marks = text.lines().filter(|line| line.starts_with("ok  ") || line.starts_with("FAILED  ")).count();
    assert_eq!(marks, array(&document, "checks").len(), "{text}");
    for words in ["expected  ", "measured  ", "m.json", "m.html"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    // The page can be made again from the document alone.
    let page = std::fs::read_to_string(folder.path().join("m.html")).expect("the page");
    assert_eq!(run_well(folder.path(), &["report", "m.json", "-o", "-"]), page);
    let summary = run_well(folder.path(), &["report", "m.json"]);
    assert!(text.starts_with(&summary), "{summary}");
}

#[test]
fn the_ledger_counts_what_was_recorded_or_what_a_file_has() {
    let folder = folder();
    let counts = run_well(folder.path(), &["experiment", "ledger", "--counts"]);
    assert!(
        counts.lines().last().is_some_and(|line| line.starts_with("Of ") && line.contains(" of 4 papers: ")),
        "{counts}"
    );
    let ledger = |more: &[&str]| {
        let text = run_well(folder.path(), &[&["experiment", "ledger", "--json"], more].concat());
        json(text.as_bytes()).as_array().expect("an array").clone()
    };
    let all = ledger(&[]);
    assert!(all.iter().all(|line| line["verdict"] != "not-run"), "every result is recorded");
    let of_one = ledger(&["--source", "x-ssd"]);
    assert!(!of_one.is_empty() && of_one.len() < all.len() && of_one.iter().all(|line| line["source"] == "x-ssd"));

    run_well(folder.path(), &["experiment", "run", SMALL, "--json", "m.json"]);
    let of_file = ledger(&["--from", "m.json"]);
    let decided = |lines: &[Value]| {
        let by_checks = lines.iter().filter(|line| !array(line, "checks").is_empty());
        by_checks.filter(|line| line["verdict"] != "not-run").cloned().collect::<Vec<_>>()
    };
    let movements = decided(&of_file);
    assert_eq!(movements.len(), 1, "{movements:#?}");
    assert_eq!(array(&movements[0], "checks"), &[Value::from("x-ssd/movements/two-against-four")]);
    assert!(of_one.contains(&movements[0]), "as it is recorded");
    assert!(run_refused(folder.path(), &["experiment", "ledger", "--from", "absent.json"]).contains("absent.json"));
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().expect("a pipe");
    writer.into()
}

#[test]
fn a_reader_that_went_away_costs_no_results() {
    let folder = folder();
    let run = |arguments: &[&str]| {
        tidewater(folder.path()).args(arguments).stdout(closed()).status().expect("it starts").code()
    };
    let status = run(&["experiment", "run", SMALL, "--json", "m.json", "--report", "m.html"]);
    assert_eq!(status, Some(0));
    complete(&json(&std::fs::read(folder.path().join("m.json")).expect("the document")));
    assert!(folder.path().join("m.html").exists());
    let probe = ["probe", "generic", "--capacity", "64MiB", "--stages", "stripe", "--json", "p.json"];
    assert_eq!(run(&probe), Some(0));
    assert!(folder.path().join("p.json").exists());
}

#[test]
fn a_file_that_cannot_be_written_costs_no_other() {
    let folder = folder();
    let arguments = ["experiment", "run", SMALL, "--quick", "--json", "/dev/full", "--report", "m.html"];
    let output = run(folder.path(), &arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("cannot write /dev/full"), "{message}");
    assert!(folder.path().join("m.html").exists());
}

#[test]
fn ctrl_c_keeps_the_experiments_that_were_done() {
    let folder = folder();
    let mut run = tidewater(folder.path());
    // The second takes much longer than the first, which is done when its line is printed.
    run.args(["experiment", "run", SMALL, "x-ssd/fig9", "--json", "done.json"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(run.stdout.as_mut().expect("it is piped")).read_line(&mut first).expect("a line is printed");
    assert!(first.starts_with(SMALL), "{first}");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(run.id() as i32), nix::sys::signal::Signal::SIGINT)
        .expect("the process can be signalled");
    let output = run.wait_with_output().expect("the process can be waited for");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("interrupted after 1 of 2 experiments"), "{message}");
    let documents = json(&std::fs::read(folder.path().join("done.json")).expect("the document"));
    assert_eq!(documents.as_array().expect("an array").len(), 1);
    complete(&documents[0]);
}

#[test]
fn broken_documents_are_refused_in_words() {
    let folder = folder();
    run(folder.path(), &["experiment", "run", SMALL, "--quick", "--json", "m.json"]);
    let good = std::fs::read_to_string(folder.path().join("m.json")).expect("the document");
    let refused = |text: &str| {
        std::fs::write(folder.path().join("bad.json"), text).expect("written");
        run_refused(folder.path(), &["report", "bad.json"])
    };
    assert!(refused(&good.replacen("\"statement\"", "\"sentence\"", 1)).contains("missing field `statement`"));
    assert!(refused(&good.replacen("experiment/1", "experiment/7", 1)).contains("tidewater-experiment/7"));
    let mixed = run_refused(folder.path(), &["report", "m.json", "bad.json", "-o", "x.html"]);
    assert!(mixed.contains("bad.json"), "{mixed}");
    assert!(!folder.path().join("x.html").exists());
}
