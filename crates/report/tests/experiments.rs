//! The document of an experiment, its schema, its page and its text.

#[path = "../examples/sample/experiment.rs"]
#[allow(dead_code, reason = "shared: each test uses part of it")]
mod sample;

use crate::support::{balanced, page_lists, plots, wrong};
use tidewater_report::experiment::*;

const FILE: &str = "experiment.schema.json";

/// Checks that a page is complete and self-contained, and that every figure is a number.
fn sound(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let (markup, _) = html.split_once("<script>").expect("the page has a script");
    for bad in ["NaN", "inf ", "inf<", "inf\"", "Infinity", "src=", "url(", "@import", "null", "http://", "https://"] {
        assert!(!markup.contains(bad), "the page has {bad:?}");
    }
    for path in markup.split(" d=\"").skip(1) {
        let path = path.split('"').next().unwrap();
        assert!(path.starts_with('M') && path.len() > 4, "an empty path: {path:?}");
    }
    // Every link leads to a place of this page.
    for link in markup.split("href=\"").skip(1) {
        let id = link.split('"').next().unwrap().strip_prefix('#').expect("links stay in the page");
        assert_eq!(markup.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
    balanced(markup);
}

#[test]
fn documents_keep_to_the_schema_and_survive_their_text() {
    for experiment in sample::all() {
        let text = experiment.to_json();
        let wrong = wrong(FILE, &text);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(Experiment::from_json(&text).unwrap(), experiment);
    }
    let all = sample::all();
    assert_eq!(Experiment::all_from_json(&array_to_json(&all)).unwrap(), all);
    assert_eq!(Experiment::all_from_json(&all[0].to_json()).unwrap(), all[..1]);
    assert_eq!(Experiment::all_from_json(&array_to_json(&[])).unwrap(), []);
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let good = sample::candles().to_json();
    for (from, to) in [
        ("\"seed\": 1", "\"seed\": -1"),
        ("tidewater-experiment/1", "tidewater-experiment/2"),
        ("\"ok\": true", "\"ok\": 1"),
        ("\"form\": \"candles\"", "\"form\": \"candle\""),
        ("\"spread\": [4.5, ", "\"spread\": ["),
        ("\"spread\": [4.5, ", "\"spread\": [4.5, 4.5, "),
        ("\"y_log\"", "\"y_logarithm\""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not in the sample");
        assert!(!wrong(FILE, &bad).is_empty(), "{to} was let through");
    }
    let cells = sample::lines().to_json().replacen("[\"no log\", 1.0, ", "[true, 1.0, ", 1);
    assert!(!wrong(FILE, &cells).is_empty(), "a cell that is neither number nor word was let through");
}

#[test]
fn the_reference_page_lists_what_the_schema_says() {
    page_lists("experiment.md", FILE, "The document");
}

#[test]
fn what_is_no_document_is_refused_in_words() {
    let message = |text: &str| Experiment::all_from_json(text).unwrap_err().to_string();
    let good = sample::lines().to_json();
    let changed = |from: &str, to: &str| {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not in the sample");
        message(&bad)
    };
    assert!(message("").contains("cut short"));
    assert!(message(&good[..good.len() / 2]).contains("cut short"));
    assert!(message("{}").contains("no text `schema`"));
    assert!(message("{\"schema\": 1}").contains("no text `schema`"), "a run record is no experiment");
    assert!(changed("experiment/1", "experiment/9").contains("tidewater-experiment/9"));
    let missing = changed("\"source\"", "\"origin\"");
    assert!(missing.contains("missing field `source`") && missing.contains("line "), "{missing}");
    assert!(changed("\"ok\": true", "\"ok\": \"yes\"").contains("line "));
    assert!(changed("[\"no log\", 1.0, ", "[\"no log\", ").contains("rows[0] has 2 cells, and there are 3 columns"));
    let array = array_to_json(&sample::all()).replacen("sample/bars\"", "sample/bars\", \"schema\": \"x\"", 1);
    assert!(message(&array).contains("document 1 of the array"), "{}", message(&array));
    let mut crossed = sample::candles();
    crossed.figures[0].series[0].points[2].spread = Some([4.0, 9.0, 6.0, 10.0]);
    let crossed = message(&crossed.to_json());
    assert!(crossed.contains("\"Latency\"") && crossed.contains("points[2]"), "{crossed}");
}

#[test]
fn numbers_that_are_not_finite_are_written_as_zero() {
    let mut one = sample::lines();
    one.rows[0][2] = Cell::Number(f64::NAN);
    let back = Experiment::from_json(&one.to_json()).unwrap();
    assert_eq!(back.rows[0][2], Cell::Number(0.0));
}

#[test]
fn a_page_shows_every_figure_statement_and_row() {
    let html = page(&sample::all());
    sound(&html);
    assert_eq!(plots(&html), 5);
    for text in [
        "4 experiments: 4 of 5 checks hold.",
        ">2 of 3 ✗<",
        ">1 of 1 ✓<",
        ">no checks<",
        "href=\"#sample-candles\"",
        "The conventional side stops at about 200 ktxn/s",
        ">180 to 220 ktxn/s at 8 workers<",
        ">243 ktxn/s<",
        "✗ no",
        "✓ yes",
        "Differences from the paper",
        "Fitted and assumed parameters",
        "16 KiB",
        "Raw measurements: 20 rows",
        ">140</td>",
        "Mean time from begin to durable.",
        "mean latency of a transaction, log scale",
        "1 point cannot be drawn, and is left out.",
    ] {
        assert!(html.contains(text), "the page has no {text:?}");
    }
    assert_eq!(html, page(&sample::all()), "a page depends on its documents only");
}

#[test]
fn a_loss_that_is_explained_is_no_failure() {
    let mut one = sample::lines();
    let broken = one.checks.iter().position(|check| !check.ok).unwrap();
    assert_eq!((one.failures(), one.holds()), (1, false));
    assert!(summary(&one, 100).contains("FAILED  "));
    one.checks[broken].because = Some("the queue is full".into());
    one.found = vec!["an unexpected thing".into()];
    assert_eq!((one.failures(), one.holds()), (0, false), "it still does not hold");
    let text = summary(&one, 100);
    assert!(text.contains("; the other one has a documented explanation."), "{text}");
    for words in ["LOSS    ", "because   the queue is full", "found   an unexpected thing", "documented explanation"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let html = page(std::slice::from_ref(&one));
    sound(&html);
    assert!(
        html.contains("✗ no, explained") && html.contains("the queue is full") && html.contains("an unexpected thing")
    );
    assert!(wrong(FILE, &one.to_json()).is_empty());
    assert_eq!(Experiment::from_json(&one.to_json()).unwrap(), one);
}

/// A response time of minutes stood as "100 M" on an axis of microseconds.
#[test]
fn long_times_along_an_axis_have_a_larger_unit() {
    let mut one = sample::bars();
    one.figures.truncate(1);
    (one.figures[0].y_label, one.figures[0].y_log) = ("response time, µs".into(), true);
    for point in one.figures[0].series.iter_mut().flat_map(|series| &mut series.points) {
        (point.y, point.spread) = (2e8, None);
    }
    let html = page(&[one.clone()]);
    assert!(html.contains(">100 s<") && !html.contains(">100 M<"), "{html}");
    for (label, time) in [("response time (us)", "response time"), ("µs for a read", "time for a read")] {
        (one.figures[0].y_label, one.figures[0].y_log) = (label.into(), false);
        for point in one.figures[0].series.iter_mut().flat_map(|series| &mut series.points) {
            point.y = 1_900.0;
        }
        let html = page(&[one.clone()]);
        assert!(html.contains(">0.5 ms<") && html.contains(&format!(">{time}<")), "{html}");
    }
}

#[test]
fn a_page_of_one_experiment_is_about_it() {
    let html = page(&[sample::bars()]);
    sound(&html);
    assert!(html.contains("<h1>Bandwidth by the size of a write</h1>"));
    assert!(!html.contains("SOME CHECKS DO NOT HOLD") && !html.contains("href=\"http"));
    sound(&page(&[]));
}

#[test]
fn the_papers_values_are_told_from_ours() {
    let html = page(&[sample::lines()]);
    assert!(html.contains("data-name=\"No log (paper)\""));
    let line = |name: &str| {
        let before = html
            .split(&format!("data-name=\"{name}\""))
            .nth(1)
            .map(|_| html.split(&format!("data-name=\"{name}\"")).next().unwrap());
        let before = before.unwrap_or_else(|| panic!("no line {name}"));
        let group = before.rsplit("<g class=\"").next().unwrap();
        (group.split('"').next().unwrap().to_owned(), group.rsplit("class=\"").next().unwrap().trim_end().to_owned())
    };
    // The same colour, and another stroke.
    assert_eq!(line("no log"), ("c0".into(), "line d0\"".into()));
    assert_eq!(line("No log (paper)"), ("c0".into(), "line d1\"".into()));
    assert!(html.contains("class=\"dot hollow\""));
    let bars = page(&[sample::bars()]);
    assert_eq!(bars.matches("<path class=\"outline\"").count(), 2 * 4 + 1, "four bars, for two widths, and their key");
    // The name says it already, and whose colour it has is clear.
    let candles = page(&[sample::candles()]);
    assert!(!candles.contains("the paper's (paper)"));
    assert_eq!(candles.matches("class=\"key c0\"").count(), 2);
}

/// More groups than can be distinguished are not left out in silence.
#[test]
fn groups_that_are_not_drawn_are_counted() {
    let mut one = sample::bars();
    let points = (0..150).map(|x| Point { x: f64::from(x), y: 1.0, spread: None }).collect();
    one.figures[0].series = vec![Series { name: "many".into(), from_paper: false, points }];
    let html = page(&[one]);
    sound(&html);
    assert!(html.contains("30 points cannot be drawn, and are left out."));
}

#[test]
fn whatever_a_document_says_the_page_is_sound() {
    let evil = "</script><img src=x onerror=\"alert('1')\">\u{1b}[2J\u{0}";
    let mut hostile = sample::all();
    let numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e308, -1e308, 1e-308, f64::MAX];
    for one in &mut hostile {
        for text in [&mut one.name, &mut one.title, &mut one.source, &mut one.description, &mut one.version] {
            *text = evil.into();
        }
        one.fitted = vec![evil.into()];
        one.differences = vec![evil.into()];
        one.parameters = vec![Parameter { name: evil.into(), value: evil.into(), doc: evil.into() }];
        one.columns = vec![Column { name: evil.into(), doc: evil.into() }];
        one.rows = numbers.into_iter().map(|number| vec![number.into()]).chain([vec![evil.into()]]).collect();
        one.checks = vec![Check {
            name: evil.into(),
            fitted: vec![evil.into()],
            statement: evil.into(),
            expected: evil.into(),
            measured: evil.into(),
            ok: false,
            because: Some(evil.into()),
        }];
        for figure in &mut one.figures {
            (figure.title, figure.x_label, figure.y_label) = (evil.into(), evil.into(), evil.into());
            for series in &mut figure.series {
                series.name = evil.into();
                series.points = numbers
                    .iter()
                    .flat_map(|x| numbers.map(|y| Point { x: *x, y, spread: Some([y, *x, y, *x]) }))
                    .collect();
            }
        }
    }
    for log in [false, true] {
        for one in &mut hostile {
            for figure in &mut one.figures {
                (figure.x_log, figure.y_log) = (log, !log);
            }
        }
        let html = page(&hostile);
        let markup = html.split("<script>").next().unwrap().replace(" src=x onerror", "");
        assert!(!markup.contains("<img") && !markup.contains('\u{1b}'));
        sound(&html.replace(" src=x onerror", ""));
        let text = summary(&hostile[0], 80);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{0}'));
    }
    // Nothing at all to draw.
    let mut empty = sample::lines();
    empty.figures[0].series.clear();
    empty.figures[1].series[0].points.clear();
    sound(&page(&[empty]));
}

#[test]
fn a_summary_says_what_holds_within_its_width() {
    let text = summary(&sample::lines(), 80);
    assert!(text.starts_with("sample/lines: Latency falls"), "{text}");
    assert!(text.contains("\nFAILED  The conventional side stops"), "{text}");
    assert!(text.contains("\nok      Logging against NVDIMM"), "{text}");
    assert!(text.contains("measured  243 ktxn/s\n"), "{text}");
    assert!(text.ends_with("2 of 3 checks hold.\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 && line.trim_end() == line), "{text}");
    assert!(summary(&sample::bars(), 80).ends_with("The check holds.\n"));
    // However narrow, it ends.
    assert!(summary(&sample::lines(), 0).contains("conventional"));
}
