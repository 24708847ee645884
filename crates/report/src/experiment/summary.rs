//! An experiment on a terminal: the paper's statements beside what was measured.

use super::Experiment;
use crate::compare::printable;
use std::fmt::Write;

/// The checks of `experiment`, at most `width` characters wide where its words allow it.
pub fn summary(experiment: &Experiment, width: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}", printable(&experiment.name), printable(&experiment.title));
    if !experiment.source.is_empty() {
        wrapped(&mut out, "    ", "    ", &experiment.source, width);
    }
    for check in &experiment.checks {
        out.push('\n');
        let mark = match (check.ok, &check.because) {
            (true, _) if !check.fitted.is_empty() => "fit     ",
            (true, _) => "ok      ",
            (false, Some(_)) => "LOSS    ",
            (false, None) => "FAILED  ",
        };
        wrapped(&mut out, mark, "        ", &check.statement, width);
        wrapped(&mut out, "        expected  ", "                  ", &check.expected, width);
        wrapped(&mut out, "        measured  ", "                  ", &check.measured, width);
        for fitted in &check.fitted {
            wrapped(&mut out, "        fitted    ", "                  ", fitted, width);
        }
        if let Some(because) = check.because.as_ref().filter(|_| !check.ok) {
            wrapped(&mut out, "        because   ", "                  ", because, width);
        }
    }
    if !experiment.found.is_empty() {
        out.push('\n');
    }
    for found in &experiment.found {
        wrapped(&mut out, "found   ", "        ", found, width);
    }
    if !experiment.differences.is_empty() {
        out.push('\n');
    }
    for difference in &experiment.differences {
        wrapped(&mut out, "differs ", "        ", difference, width);
    }
    let _ = writeln!(out, "\n{}", verdict(experiment));
    out
}

/// How many of how many checks of an experiment hold, in words.
fn verdict(experiment: &Experiment) -> String {
    tally(std::slice::from_ref(experiment))
}

/// How many of how many checks hold, in words.
pub(super) fn tally(experiments: &[Experiment]) -> String {
    let sum = |count: fn(&Experiment) -> usize| experiments.iter().map(count).sum::<usize>();
    let (holding, failures, of) = (sum(Experiment::holding), sum(Experiment::failures), sum(|one| one.checks.len()));
    let by_fit = match sum(Experiment::by_fit) {
        0 => String::new(),
        some => format!(", {some} of them by a fit"),
    };
    let explained = match (of - holding, of - holding - failures) {
        (_, 0) => String::new(),
        (1, 1) => "; the other one has a documented explanation".to_owned(),
        (others, _) if failures == 0 => format!("; each of the other {others} has a documented explanation"),
        (others, some) => format!("; {some} of the other {others} have a documented explanation"),
    };
    match (holding, of) {
        (_, 0) => "Nothing was checked.".to_owned(),
        (1, 1) if by_fit.is_empty() => "The check holds.".to_owned(),
        (1, 1) => "The check holds, by a fit.".to_owned(),
        (0, 1) if failures == 0 => "The check does not hold; it has a documented explanation.".to_owned(),
        (0, 1) => "The check does not hold.".to_owned(),
        (holding, of) if holding == of => format!("All {of} checks hold{by_fit}."),
        (holding, of) => format!("{holding} of {of} checks hold{by_fit}{explained}."),
    }
}

/// Words in lines; the first begins with `first`, the others with `rest`.
pub(crate) fn wrapped(out: &mut String, first: &str, rest: &str, text: &str, width: usize) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in printable(&text.replace('\n', " ")).split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            let _ = writeln!(out, "{}", line.trim_end());
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}
