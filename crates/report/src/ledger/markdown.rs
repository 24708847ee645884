//! The ledger as parts of a page of Markdown. Lines are not broken: the page does that.

use super::{GROUPS, Line, Tally, Verdict, tallies, totals};
use std::fmt::Write;

/// How many statements of each source have which verdict, and of all papers together: a table.
pub fn tally_table(lines: &[Line<'_>]) -> String {
    let columns = Verdict::ALL.into_iter().filter(|verdict| *verdict != Verdict::NotRun);
    let columns: Vec<Verdict> = columns.collect();
    let mut out = String::from("| source | statements |");
    columns.iter().for_each(|verdict| {
        let _ = write!(out, " {} |", verdict.name());
    });
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(columns.len() + 1));
    let mut row = |name: &str, tally: &Tally| {
        let _ = write!(out, "| {name} | {} |", tally.sum());
        for verdict in &columns {
            let _ = write!(out, " {} |", tally.count(*verdict));
        }
        out.push('\n');
    };
    let rows = tallies(lines);
    for (source, group, tally) in rows.iter().filter(|(source, ..)| source.is_paper) {
        row(&format!("{}, {group}", source.name), tally);
    }
    for ((group, _), tally) in GROUPS.iter().zip(totals(lines)) {
        row(&format!("**all papers, {group}**"), &tally);
    }
    for (source, group, tally) in rows.iter().filter(|(source, ..)| !source.is_paper) {
        row(&format!("{}, {group}", source.name), tally);
    }
    out
}

/// A word of a sentence, with the mark that Markdown would take for its own.
fn plain(text: &str) -> String {
    text.trim().replace('<', "\\<").replace('|', "\\|").replace('*', "\\*")
}

/// A text as a sentence: with a full stop.
fn stopped(text: &str) -> String {
    let text = plain(text);
    if text.ends_with(['.', '?', '!']) { text } else { format!("{text}.") }
}

/// These lines as a list.
pub fn markdown(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for line in lines {
        let statement = line.statement;
        let says = statement.says.trim().trim_end_matches('.');
        let _ = write!(out, "- **{}**, {}: {}.", line.verdict.name(), plain(&statement.at), plain(says));
        let mut part = |name: &str, text: &str| {
            let _ = write!(out, " *{name}* {}", stopped(text));
        };
        if let Some(value) = &statement.value {
            part("Value:", value);
        }
        if let Some(follows) = &statement.follows {
            part("Follows:", follows);
        }
        if !statement.fitted.is_empty() {
            part("Fitted:", &statement.fitted.join("; "));
        }
        if !line.ours.is_empty() {
            part("Ours:", &line.ours);
        }
        if let Some(because) = &line.because {
            part("Because:", because);
        }
        if let Some(note) = &statement.note {
            part("Note:", note);
        }
        out.push('\n');
    }
    out
}
