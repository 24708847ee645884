//! An experiment on a terminal: the paper's statements beside what was measured.

use super::{Check, Experiment};
use crate::document::{Remark, statement, wrapped};
use std::fmt::Write;
use tidewater_base::units::printable;

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
        let measured = [("expected", check.expected.clone()), ("measured", check.measured.clone())];
        let remarks: Vec<Remark> = measured.into_iter().chain(remarks(check)).collect();
        statement(&mut out, mark, &check.statement, &remarks, width);
    }
    for (mark, list) in [("found   ", &experiment.found), ("differs ", &experiment.differences)] {
        if !list.is_empty() {
            out.push('\n');
        }
        list.iter().for_each(|text| statement(&mut out, mark, text, &[], width));
    }
    let _ = writeln!(out, "\n{}", tally(std::slice::from_ref(experiment)));
    out
}

/// Values that a check was fitted to, and why it does not hold.
pub(super) fn remarks(check: &Check) -> impl Iterator<Item = Remark> {
    let because = check.because.iter().filter(|_| !check.ok).map(|why| ("because", why.clone()));
    check.fitted.iter().map(|fitted| ("fitted", fitted.clone())).chain(because)
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
