//! `tidewater experiment ledger`: every statement of the papers with its verdict.

use crate::args::ExperimentLedger;
use crate::failure::Failure;
use crate::output;
use crate::text::width;
use tidewater_papers::ledger;
use tidewater_report::experiment::{Experiment, page, page_with};
use tidewater_report::ledger::{Line, Verdict, headline, text, to_json};

/// `tidewater experiment ledger`.
///
/// # Errors
/// A file of results that cannot be read, and a terminal that cannot be written to.
pub fn command(given: &ExperimentLedger) -> Result<(), Failure> {
    let mut lines = match &given.from {
        None => ledger::lines(ledger::recorded()),
        Some(file) => {
            let place = file.display();
            let text = std::fs::read_to_string(file).map_err(|e| Failure::usage(format_args!("{place}: {e}")))?;
            let documents = Experiment::all_from_json(&text);
            ledger::lines_of(&documents.map_err(|error| Failure::refused(format_args!("{place}: {error}")))?)
        }
    };
    if let Some(source) = &given.source {
        lines.retain(|line| line.source.key == *source);
    }
    if given.json {
        return output::print(&to_json(&lines));
    }
    let total = if given.source.is_none() { format!("{}\n", headline(&lines)) } else { String::new() };
    output::print(&format!("{}{total}", text(&lines, !given.counts, width())))
}

/// The sources of which one of these experiments decides something; nothing for experiments that are not built in.
fn touched(done: &[Experiment]) -> Vec<Line<'static>> {
    let lines = ledger::lines_of(done);
    let is_touched = |key: &str| {
        let is_run = |line: &Line<'_>| !line.statement.checks.is_empty() && line.verdict != Verdict::NotRun;
        lines.iter().any(|line| line.source.key == key && is_run(line))
    };
    lines.iter().filter(|line| is_touched(&line.source.key)).cloned().collect()
}

/// The counts of the papers that these experiments repeat; nothing where they repeat none.
pub fn counts(done: &[Experiment]) -> String {
    let lines = touched(done);
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{}{}\n", text(&lines, false, width()), headline(&lines))
}

/// The page of these experiments: of several that repeat papers, with every statement of these.
pub fn page_of(experiments: &[Experiment]) -> String {
    match touched(experiments) {
        lines if experiments.len() > 1 && !lines.is_empty() => page_with(experiments, &lines),
        _ => page(experiments),
    }
}
