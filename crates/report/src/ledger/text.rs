//! The ledger on a terminal.

use super::{Line, Source, Tally, Verdict, by_source, tallies, totals};
use crate::compare::printable;
use crate::experiment::wrapped;
use std::fmt::Write;
use tidewater_base::units::plural;

/// Counts in words: `31 shown, 6 by a fit, 9 differ`; verdicts that none has are left out.
pub fn sentence(tally: &Tally) -> String {
    let words = |verdict| match (verdict, tally.count(verdict)) {
        (_, 0) => None,
        (Verdict::Shown, n) => Some(format!("{n} shown")),
        (Verdict::ByFit, n) => Some(format!("{n} by a fit")),
        (Verdict::Differs, 1) => Some("1 differs".to_owned()),
        (Verdict::Differs, n) => Some(format!("{n} differ")),
        (Verdict::NotMeasured, n) => Some(format!("{n} not measured")),
        (Verdict::NotBuilt, n) => Some(format!("{n} not built")),
        (Verdict::NotRun, n) => Some(format!("{n} not run")),
    };
    Verdict::ALL.into_iter().filter_map(words).collect::<Vec<_>>().join(", ")
}

/// Totals of all papers, results apart from mechanisms and set-ups.
pub fn headline(lines: &[Line<'_>]) -> String {
    let papers = by_source(lines).filter(|(source, _)| source.is_paper).count();
    let [results, others] = totals(lines);
    format!(
        "Of {} of {}: {}. Of {} on mechanisms and set-ups: {}.",
        plural(results.sum() as u64, "result"),
        plural(papers as u64, "paper"),
        sentence(&results),
        plural(others.sum() as u64, "statement"),
        sentence(&others)
    )
}

/// How many statements of each source have which verdict, a line for each group of them.
fn counts(lines: &[Line<'_>]) -> String {
    let rows = tallies(lines);
    let name = |source: &Source, group: &str| format!("{}, {group}", source.name);
    let widest = rows.iter().map(|(source, group, _)| name(source, group).chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (source, group, tally) in &rows {
        let _ = writeln!(out, "{:widest$}  {:3}: {}", name(source, group), tally.sum(), sentence(tally));
    }
    out
}

/// The counts by source, and with `is_whole` each statement before them, at most `width` characters wide where the
/// words allow it.
pub fn text(lines: &[Line<'_>], is_whole: bool, width: usize) -> String {
    let mut out = String::new();
    for (source, of) in by_source(lines).filter(|_| is_whole) {
        let _ = writeln!(out, "{}; read: {}", source.title, source.read);
        for line in of {
            out.push('\n');
            let says = format!("{}: {}", line.statement.at, line.statement.says);
            wrapped(&mut out, &format!("{:<16}", line.verdict.name()), "                ", &says, width);
            let mut part = |name: &str, text: &str| {
                let first = format!("{:16}{name:<10}", "");
                wrapped(&mut out, &first, &" ".repeat(26), &printable(text), width);
            };
            if let Some(value) = &line.statement.value {
                part("value", value);
            }
            if let Some(follows) = &line.statement.follows {
                part("follows", follows);
            }
            for fitted in &line.statement.fitted {
                part("fitted", fitted);
            }
            if !line.ours.is_empty() {
                part("ours", &line.ours);
            }
            if let Some(because) = &line.because {
                part("because", because);
            }
            if let Some(note) = &line.statement.note {
                part("note", note);
            }
        }
        out.push('\n');
    }
    out.push_str(&counts(lines));
    out
}
