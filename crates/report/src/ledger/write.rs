//! The ledger as text, as Markdown and on a page.

use super::{GROUPS, Line, Source, Statement, Tally, Verdict, by_source, tallies, totals};
use crate::document::{Cell, Kind, Remark, Table, capital, statement};
use crate::html::Page;
use std::fmt::Write;
use tidewater_base::units::plural;

/// Counts in words: `31 shown, 6 by a fit, 9 differ`; verdicts that none has are left out. Statements that repeat
/// others are counted at the end.
pub fn sentence(tally: &Tally) -> String {
    let words = |verdict| match (verdict, tally.count(verdict)) {
        (_, 0) => None,
        (Verdict::Shown, n) => Some(format!("{n} shown")),
        (Verdict::ByFit, n) => Some(format!("{n} by a fit")),
        (Verdict::Beyond, n) => Some(format!("{n} beyond the paper")),
        (Verdict::Differs, 1) => Some("1 differs".to_owned()),
        (Verdict::Differs, n) => Some(format!("{n} differ")),
        (Verdict::NotMeasured, n) => Some(format!("{n} not measured")),
        (Verdict::NotBuilt, n) => Some(format!("{n} not built")),
        (Verdict::InNeither, n) => Some(format!("{n} in neither")),
        (Verdict::NotRun, n) => Some(format!("{n} not run")),
    };
    let again = match tally.repeated() {
        0 => String::new(),
        1 => "; 1 more says one of them again".to_owned(),
        n => format!("; {n} more say one of them again"),
    };
    Verdict::ALL.into_iter().filter_map(words).collect::<Vec<_>>().join(", ") + &again
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

/// The counts by source, a line for each of its groups, and with `is_whole` each statement before them, at most `width`
/// characters wide where the words allow it.
pub fn text(lines: &[Line<'_>], is_whole: bool, width: usize) -> String {
    let mut out = String::new();
    for (source, of) in by_source(lines).filter(|_| is_whole) {
        let _ = writeln!(out, "{}; read: {}", source.title, source.read);
        for line in of {
            out.push('\n');
            let Statement { id, at, says, .. } = line.statement;
            let says = format!("{id}, {at}: {says}");
            statement(&mut out, &format!("{:<18}", line.verdict.name()), &says, &line.remarks(false), width);
        }
        out.push('\n');
    }
    let rows = tallies(lines);
    let name = |source: &Source, group: &str| format!("{}, {group}", source.name);
    let widest = rows.iter().map(|(source, group, _)| name(source, group).chars().count()).max().unwrap_or(0);
    for (source, group, tally) in &rows {
        let _ = writeln!(out, "{:widest$}  {:3}: {}", name(source, group), tally.sum(), sentence(tally));
    }
    out
}

/// An empty table of counts by the verdicts that any of these lines has, and what makes a row of it.
fn by_verdict(lines: &[Line<'_>]) -> (Table, impl Fn(String, &Tally) -> Vec<Cell>) {
    let all = Tally::of(lines);
    let columns: Vec<Verdict> = Verdict::ALL.into_iter().filter(|verdict| all.count(*verdict) > 0).collect();
    let verdicts = columns.iter().map(|verdict| verdict.name());
    let titles = ["source", "statements"].into_iter().chain(verdicts).chain(["again"]);
    let table = Table::of("top", titles.map(|title| (Kind::Value, title)));
    let row = move |name: String, tally: &Tally| {
        let counts = columns.iter().map(|verdict| tally.count(*verdict));
        let counts =
            [tally.sum()].into_iter().chain(counts).chain([tally.repeated()]).map(|count| count.to_string().into());
        [name.into()].into_iter().chain(counts).collect()
    };
    (table, row)
}

/// The counts by source.
pub(crate) fn counted(lines: &[Line<'_>]) -> Table {
    let (table, row) = by_verdict(lines);
    let rows = tallies(lines);
    table.with(rows.iter().map(|(source, group, tally)| row(format!("{}, {group}", source.name), tally)))
}

/// How many statements of each source have which verdict, and of all papers together: a table of Markdown.
pub fn tally_table(lines: &[Line<'_>]) -> String {
    let (table, row) = by_verdict(lines);
    let rows = tallies(lines);
    let of = |is_paper: bool| {
        let of = rows.iter().filter(move |(source, ..)| source.is_paper == is_paper);
        of.map(|(source, group, tally)| row(format!("{}, {group}", source.name), tally))
    };
    let all = GROUPS.iter().zip(totals(lines)).map(|((group, _), all)| row(format!("**all papers, {group}**"), &all));
    table.with(of(true).chain(all).chain(of(false))).markdown()
}

/// These lines as a list of Markdown, whose lines are not broken: the page does that.
pub fn markdown(lines: &[Line<'_>]) -> String {
    let plain = |text: &str| text.trim().replace('<', "\\<").replace('|', "\\|").replace('*', "\\*");
    let mut out = String::new();
    for line in lines {
        let says = plain(line.statement.says.trim().trim_end_matches('.'));
        let (anchor, verdict, Statement { id, at, .. }) = (line.anchor(), line.verdict.name(), line.statement);
        let _ = write!(out, "- <a id=\"{anchor}\"></a>**{verdict}** (`{id}`), {}: {says}.", plain(at));
        for (name, text) in line.remarks(true) {
            let text = plain(&text);
            let stop = if text.ends_with(['.', '?', '!']) { "" } else { "." };
            let _ = write!(out, " *{}:* {text}{stop}", capital(name));
        }
        out.push('\n');
    }
    out
}

/// Every statement, a table for each source.
pub(crate) fn every(page: &mut Page, lines: &[Line<'_>]) {
    page.section("ledger", "Every statement");
    let titles = ["where", "the source says", "ours", "verdict"];
    let kinds = [Kind::Words, Kind::Words, Kind::Words, Kind::Value];
    for (source, of) in by_source(lines) {
        page.heading(&source.name);
        let table = Table::of("top checks ledger", kinds.into_iter().zip(titles)).with(of.iter().map(row));
        page.table(&Table { caption: format!("{}; read: {}", source.title, source.read), ..table });
    }
}

fn row(line: &Line<'_>) -> Vec<Cell> {
    let class = match line.verdict {
        Verdict::Shown | Verdict::ByFit | Verdict::Beyond => "yes",
        Verdict::Differs => "no",
        _ => "muted",
    };
    let (value, others): (Vec<Remark>, Vec<Remark>) =
        line.remarks(true).into_iter().filter(|(name, _)| *name != "ours").partition(|(name, _)| *name == "value");
    vec![
        Cell::from(&*line.statement.at).anchor(line.anchor(), &line.statement.id),
        Cell::from(&*line.statement.says).remarks(value),
        Cell::from(&*line.ours).remarks(others),
        Cell::from(line.verdict.name()).class(class),
    ]
}
