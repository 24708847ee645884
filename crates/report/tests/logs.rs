//! The document of a log, and its schema.

#[path = "../examples/sample/log.rs"]
mod sample;

use crate::support::{page_lists, wrong};
use sample::record;
use tidewater_report::log::*;

const FILE: &str = "log.schema.json";

#[test]
fn a_document_keeps_to_the_schema_and_survives_its_text() {
    let plain = LogRecord { command_line: None, notes: Vec::new(), ..record() };
    for record in [record(), plain] {
        let text = record.to_json();
        let wrong = wrong(FILE, &text);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(LogRecord::from_json(&text).unwrap(), record);
    }
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let good = record().to_json();
    for (from, to) in [
        ("\"seed\": 1", "\"seed\": -1"),
        ("tidewater-log/1", "tidewater-log/2"),
        ("\"to\": \"none\"", "\"to\": \"nowhere\""),
        ("\"survives\": true", "\"survives\": 1"),
        ("\"commit_us\"", "\"commits_us\""),
        ("[10.0, 0.1]", "[10.0, 1.1]"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not in the sample");
        assert!(!wrong(FILE, &bad).is_empty(), "{to} was let through");
    }
}

#[test]
fn the_reference_page_lists_what_the_schema_says() {
    page_lists("log.md", FILE, "The document");
}
