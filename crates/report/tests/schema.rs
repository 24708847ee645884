//! The record, its schema and its reference page say the same.

use crate::sample;
use crate::support::{json, page_lists, reference, wrong};
use tidewater_base::numbers::{Shape, Shaped};
use tidewater_report::Record;

const FILE: &str = "record.schema.json";

#[test]
fn the_schema_and_its_page_are_made_of_the_rows_of_the_record() {
    let Shape::Group(record) = Record::SHAPE else { panic!("a record is a group of rows") };
    let made = json::schema("Tidewater run record", record);
    let path = reference(FILE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == made, "docs/reference/{FILE} is old; set UPDATE_DOCS=1");
    page_lists("record.md", FILE, "The record");
}

#[test]
fn every_record_keeps_to_the_schema() {
    let mut partial = sample::small();
    partial.partial = true;
    partial.partial_reason = Some("interrupted by Ctrl-C".into());
    partial.command_line = Some("tidewater replay".into());
    for record in [sample::rich(), sample::small(), partial, Record::default()] {
        let wrong = wrong(FILE, &record.to_json());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let good = sample::small().to_json();
    for (from, to) in [
        ("\"requests\": 1", "\"requests\": -1"),
        ("\"requests\": 1", "\"requests\": \"1\""),
        ("\"requests\": 1", "\"requisites\": 1"),
        ("\"kind\": \"job\"", "\"kind\": \"jib\""),
        ("\"hit_ratio\": 0.0", "\"hit_ratio\": 2.0"),
        ("[81.5, 1.0]", "[81.5, 1.0, 3]"),
        ("\"schema\": 1", "\"schema\": 2"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not in the sample");
        assert!(!wrong(FILE, &bad).is_empty(), "{to} was let through");
    }
}
