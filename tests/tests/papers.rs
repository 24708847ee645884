//! Pages say the same of the papers as the ledger and its record, and the record is the result of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use tidewater_papers::{all, ledger};
use tidewater_report::ledger::{Line, Outcome, headline, markdown, tally_table};
use tidewater_tests::markdown::wrap;
use tidewater_tests::{root, tidewater};

/// Experiments that take longer than some seconds where nothing is optimized. Each run of the tests compares what all
/// others give.
const LONG: &[&str] = &["x-ssd/fig12", "hmb/fig10", "cbm/"];

const HOW: &str = "UPDATE_DOCS=1 cargo test -p tidewater-tests --test simulations papers";

fn lines() -> Vec<Line<'static>> {
    ledger::lines(ledger::recorded())
}

/// The statements of a source that are not on the page yet and stand at one of `places`; all that are left for `rest`.
fn take<'a>(left: &mut Vec<Line<'a>>, spec: &str) -> Vec<Line<'a>> {
    let (source, places) = spec.split_once(": ").unwrap_or_else(|| panic!("`{spec}` names no places"));
    let places: Vec<&str> = places.split(" | ").collect();
    let is_here = |line: &Line<'_>| {
        let statement = line.statement;
        let at =
            |place: &&str| statement.at.contains(place) || statement.value.as_ref().is_some_and(|v| v.contains(place));
        line.source.key == source && (places == ["rest"] || places.iter().any(at))
    };
    let (here, others) = std::mem::take(left).into_iter().partition(is_here);
    *left = others;
    here
}

/// The fitted values, each with the statements that it was fitted to.
fn fits(lines: &[Line<'_>]) -> String {
    let mut fits: BTreeMap<(usize, &str), Vec<String>> = BTreeMap::new();
    let mut sources: Vec<&str> = lines.iter().map(|line| &*line.source.name).collect();
    sources.dedup();
    for line in lines {
        let place = sources.iter().position(|name| *name == line.source.name).expect("the source is listed");
        for fitted in &line.statement.fitted {
            fits.entry((place, fitted)).or_default().push(line.statement.at.clone());
        }
    }
    let item = |((place, fitted), mut at): ((usize, &str), Vec<String>)| {
        at.sort();
        at.dedup();
        format!("- {}, {}: {}.\n", sources[place], at.join("; "), fitted.trim_end_matches('.'))
    };
    fits.into_iter().map(item).collect()
}

/// The page with each of its blocks as it has to be.
fn with_blocks(page: &str, lines: &[Line<'static>]) -> String {
    let mut left = lines.to_vec();
    let (mut out, mut rest) = (String::new(), page);
    while let Some(start) =
        ["<!-- statements ", "<!-- counts -->", "<!-- fits -->"].iter().filter_map(|m| rest.find(m)).min()
    {
        let (before, marked) = rest.split_at(start);
        let (mark, behind) = marked.split_once('\n').expect("a mark ends its line");
        let end = behind.find("<!-- end").unwrap_or_else(|| panic!("{mark} has no end"));
        let text = match mark.trim_start_matches("<!-- ").trim_end_matches(" -->") {
            "counts" => tally_table(lines),
            "fits" => fits(lines),
            statements => {
                let spec = statements.trim_start_matches("statements ");
                let here = take(&mut left, spec);
                assert!(!here.is_empty(), "no statement stands at `{spec}`");
                markdown(&here)
            }
        };
        out += &format!("{before}{mark}\n\n{}\n", wrap(&text));
        rest = &behind[end..];
    }
    assert!(!page.contains("<!-- statements ") || left.is_empty(), "not on the page: {:?}", left.first());
    out + rest
}

#[test]
fn pages_say_what_the_ledger_says() {
    let lines = lines();
    for page in ["docs/papers.md", "docs/internals/accuracy.md"] {
        let path = root().join(page);
        let is = std::fs::read_to_string(&path).expect("the page is there");
        let wanted = with_blocks(&is, &lines);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &wanted).expect("the checkout can be written");
        } else {
            assert!(is == wanted, "{page} is not what the ledger says: {HOW}");
        }
    }
}

#[test]
fn the_readme_has_the_headline_of_the_ledger() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the file can be read");
    let headline = headline(&lines());
    assert!(words(&readme).contains(headline.trim_end_matches('.')), "README.md lacks: {headline}");
}

#[test]
fn every_test_that_a_statement_names_is_there() {
    for line in lines() {
        for test in &line.statement.tests {
            let (file, name) = test.split_once(' ').unwrap_or_else(|| panic!("{test}: no file and name"));
            let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            assert!(text.contains(&format!("fn {name}(")), "{}: {file} has no {name}", line.statement.says);
        }
    }
}

/// The checks of a whole run of these experiments, as the command gives them.
fn run(names: &[&str]) -> BTreeMap<String, Outcome> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tidewater(folder.path());
    command.args(["experiment", "run", "--seed", &ledger::SEED.to_string(), "--json", "-"]).args(names);
    let output = command.env_remove("TIDEWATER_TRACES").output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let documents = tidewater_report::experiment::Experiment::all_from_json(&text).expect("documents");
    tidewater_report::ledger::Results::of(&documents)
}

fn hold(found: &BTreeMap<String, Outcome>) {
    let recorded = ledger::recorded();
    let differ: Vec<_> = found.iter().filter(|(name, outcome)| recorded.get(*name) != Some(outcome)).collect();
    assert!(differ.is_empty(), "not what is recorded; `make torture ARGS=every_recorded_result` says how: {differ:#?}");
}

#[test]
fn experiments_that_take_seconds_give_what_is_recorded() {
    let names = all().iter().map(|info| info.name);
    hold(&run(&names.filter(|name| !LONG.iter().any(|long| name.starts_with(long))).collect::<Vec<_>>()));
}

/// The record anew: `UPDATE_DOCS=1 make torture ARGS=every_recorded_result`.
#[test]
#[ignore = "all experiments take minutes"]
fn every_recorded_result_is_that_of_a_run() {
    let names: Vec<&str> = all().iter().map(|info| info.name).collect();
    let mut found = run(&names);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        found.values_mut().for_each(|outcome| outcome.because = None);
        let path: PathBuf = root().join("experiments/ledger/recorded.json");
        let text = serde_json::to_string_pretty(&found).expect("it is JSON");
        return std::fs::write(path, text + "\n").expect("the checkout can be written");
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), ledger::recorded().keys().collect::<Vec<_>>());
    hold(&found);
}
