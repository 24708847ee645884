//! The document of a probe, its schema, its page and its text.

use crate::support::{balanced, page_lists, wrong};
use tidewater_report::experiment::{Figure, Form, Point, Series};
use tidewater_report::probe::*;

const FILE: &str = "probe.schema.json";

fn record() -> ProbeRecord {
    let verdict = |what: &str, answer| Verdict {
        what: what.into(),
        answer,
        bytes: (answer == Answer::Found).then_some(786_432),
        range_bytes: (answer == Answer::Found).then_some([786_432, 794_624]),
        place: None,
        confidence: 0.999,
        because: "768 KiB that were read are found again, 776 KiB are not".into(),
    };
    let points = [(4.0, 4.2), (768.0, 4.3), (776.0, 67.9)].map(|(x, y)| Point { x, y, spread: None }).to_vec();
    ProbeRecord {
        schema: SCHEMA.into(),
        version: "0.1.0".into(),
        target: TargetInfo {
            name: "<generic>".into(),
            kind: "simulated drive".into(),
            capacity_bytes: 1 << 30,
            block_bytes: 512,
        },
        seed: 1,
        ended_early: Some("interrupted".into()),
        stages: vec![
            Stage {
                name: "read-cache".into(),
                title: "Data that is read again without flash".into(),
                skipped: None,
                requests: 9_788,
                bytes_read: 40_091_648,
                bytes_written: 0,
                seconds: 0.584,
                verdicts: vec![verdict(ask::READ_CACHE, Answer::Found), verdict(ask::MAP_REACH, Answer::Absent)],
                notes: vec!["a note".into()],
                figures: vec![Figure {
                    title: "Read, and read again".into(),
                    form: Form::Lines,
                    x_label: "KiB that are read".into(),
                    y_label: "µs for a request, median".into(),
                    x_log: true,
                    y_log: false,
                    series: vec![Series { name: "second pass".into(), from_paper: false, points }],
                }],
            },
            Stage {
                name: "write-buffer".into(),
                title: "What is taken from the host before it waits for flash".into(),
                skipped: Some("it holds data".into()),
                requests: 0,
                bytes_read: 0,
                bytes_written: 0,
                seconds: 0.0,
                verdicts: vec![verdict(ask::WRITE_BUFFER_PLACE, Answer::CannotTell)],
                notes: Vec::new(),
                figures: Vec::new(),
            },
        ],
    }
}

#[test]
fn a_document_keeps_to_the_schema_and_survives_its_text() {
    let text = record().to_json();
    let wrong = wrong(FILE, &text);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(ProbeRecord::from_json(&text).unwrap(), record());
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let good = record().to_json();
    for (from, to) in [
        ("\"seed\": 1", "\"seed\": -1"),
        ("tidewater-probe/1", "tidewater-probe/2"),
        ("\"confidence\": 0.999", "\"confidence\": 1.5"),
        ("\"answer\": \"found\"", "\"answer\": \"maybe\""),
        ("\"because\"", "\"cause\""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not in the sample");
        assert!(!wrong(FILE, &bad).is_empty(), "{to} was let through");
    }
}

#[test]
fn the_reference_page_lists_what_the_schema_says() {
    page_lists("probe.md", FILE, "The document");
}

/// A stage that measures by the requests of others has no section of its own.
#[test]
fn a_stage_without_anything_to_show_has_no_heading() {
    let mut record = record();
    let heading = format!("<h2 id=\"{}\">", record.stages[0].name);
    assert!(page(&record).contains(&heading));
    let stage = &mut record.stages[0];
    (stage.requests, stage.skipped) = (0, None);
    stage.notes.clear();
    stage.figures.clear();
    assert!(!page(&record).contains(&heading) && page(&record).contains("768 KiB"), "its verdicts are in the table");
}

#[test]
fn the_page_is_whole_and_says_what_was_found() {
    let html = page(&record());
    let (markup, _) = html.split_once("<script>").expect("the page has a script");
    for part in [
        "&lt;generic&gt;",
        "ENDED EARLY",
        "768 KiB",
        "<svg class=\"plot\"",
        "cannot tell",
        "none seen",
        "it holds data",
    ] {
        assert!(markup.contains(part), "{part}");
    }
    for bad in ["NaN", "src=", "url(", "http://", "https://", "<generic>"] {
        assert!(!markup.contains(bad), "the page has {bad:?}");
    }
    balanced(markup);
    assert!(summary(&record(), 100).contains("read cache: 768 KiB, within 768 KiB to 776 KiB (confidence 99.9 %)"));
}
