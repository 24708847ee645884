//! Experiments as one HTML page: the paper beside ours.

use super::chart::{Palette, draw};
use super::summary::{remarks, tally};
use super::{Check, Column, Experiment, Figure as Shown, Form};
use crate::document::{self, Cell, Kind, capital};
use crate::figure::{Figure, name_of};
use crate::html::{Page, escape, with_code};
use crate::ledger::{self, Line};
use crate::page::{FULL, HALF};
use crate::table::{self, Table, Values};
use std::fmt::Write;
use std::rc::Rc;
use tidewater_base::units::{count, decimal, plural};

/// Raw rows that a page shows; the document has all of them.
const ROWS_MAX: usize = 2_000;

/// Words of a page, by the source of its statements.
struct Words {
    kind: &'static str,
    missed: &'static str,
    heading: &'static str,
    column: &'static str,
}

const OF_PAPERS: Words = Words {
    kind: "published results beside our measurements",
    missed: "SOME CHECKS DO NOT HOLD",
    heading: "The paper's statements",
    column: "the paper says",
};

const OF_OURS: Words = Words {
    kind: "targets beside our measurements",
    missed: "SOME CHECKS DO NOT HOLD",
    heading: "Aims",
    column: "aim",
};

const OF_SEVERAL: &str = "Experiments of published papers, repeated";

/// One page of `experiments`, with all their figures. Needs nothing else: no script, no network.
pub fn page(experiments: &[Experiment]) -> String {
    page_in(experiments, &[], &OF_PAPERS)
}

/// The same for several experiments, with every statement of the papers that they repeat: counts by paper at the top, a
/// table of all at the end.
pub fn page_with(experiments: &[Experiment], lines: &[Line<'_>]) -> String {
    page_in(experiments, lines, &OF_PAPERS)
}

/// The same for a measurement that repeats no paper: its checks are aims of ours.
pub fn measurement_page(measurement: &Experiment) -> String {
    page_in(std::slice::from_ref(measurement), &[], &OF_OURS)
}

fn page_in(experiments: &[Experiment], lines: &[Line<'_>], words: &Words) -> String {
    let ids = ids(experiments);
    let (title, lead) = match experiments {
        [one] => (&*one.title, origin(one)),
        [] => (OF_SEVERAL, String::new()),
        _ if lines.is_empty() => {
            let count = plural(experiments.len() as u64, "experiment");
            (OF_SEVERAL, format!("{count}: {}", sentence_within(&tally(experiments))))
        }
        _ => (OF_SEVERAL, escape(&ledger::headline(lines)).to_string()),
    };
    let mut page = Page::new(words.kind, title, &lead);
    match experiments {
        [] => page.paragraph("No experiment was run."),
        [one] => section(&mut page, one, &ids[0], words),
        _ => {
            if !lines.is_empty() {
                page.table(&ledger::counted(lines));
            }
            page.table(&contents(experiments, &ids));
            for (one, id) in experiments.iter().zip(&ids) {
                page.section(id, &one.title);
                page.muted(&origin(one));
                section(&mut page, one, id, words);
            }
            if !lines.is_empty() {
                ledger::every(&mut page, lines);
            }
        }
    }
    if let Some(first) = experiments.first() {
        let is_one = experiments.iter().all(|one| one.seed == first.seed);
        let seed = if is_one { first.seed.to_string() } else { "by experiment".into() };
        page.footer(&format!("tidewater {}, seed {seed}", first.version));
    }
    page.finish(&format!("{title} – tidewater"))
}

/// Name and source of an experiment, as HTML.
fn origin(one: &Experiment) -> String {
    format!("<code>{}</code> · {}", escape(&one.name), escape(&one.source))
}

/// An anchor for each experiment, made from its name.
fn ids(experiments: &[Experiment]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for one in experiments {
        let plain: String =
            one.name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
        let plain = if plain.is_empty() { "experiment".to_owned() } else { plain };
        let id = if ids.contains(&plain) { format!("{plain}--{}", ids.len() + 1) } else { plain };
        ids.push(id);
    }
    ids
}

fn contents(experiments: &[Experiment], ids: &[String]) -> document::Table {
    let row = |(one, id): (&Experiment, &String)| {
        let (class, holding) = match (one.checks.len(), one.holds()) {
            (0, _) => ("muted", "no checks".to_owned()),
            (of, true) => ("yes", format!("{of} of {of} ✓")),
            (of, false) if one.failures() == 0 => {
                ("muted", format!("{} of {of}, {} explained", one.holding(), of - one.holding()))
            }
            (of, false) => ("no", format!("{} of {of} ✗", one.holding())),
        };
        let name = Cell { link: Some(format!("#{id}")), ..Cell::from(&*one.name) };
        vec![name, (&*one.title).into(), (&*one.source).into(), Cell::from(holding).class(class)]
    };
    let titles = ["experiment", "what it shows", "source", "checks that hold"];
    let kinds = [Kind::Value, Kind::Words, Kind::Words, Kind::Value];
    document::Table::of("top", kinds.into_iter().zip(titles)).with(experiments.iter().zip(ids).map(row))
}

/// A sentence that goes on after a colon.
fn sentence_within(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn section(page: &mut Page, one: &Experiment, id: &str, words: &Words) {
    for paragraph in one.description.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        page.paragraph(&with_code(paragraph.trim()));
    }
    let tally = tally(std::slice::from_ref(one));
    if one.failures() > 0 {
        page.banner(words.missed, &tally);
    }
    page.few(&figures_of(one));
    if !one.checks.is_empty() {
        page.heading(words.heading);
        let titles = [words.column, "expected", "measured", "holds"];
        let kinds = [Kind::Words, Kind::Words, Kind::Words, Kind::Value];
        let table = document::Table::of("top checks", kinds.into_iter().zip(titles));
        let rows = one.checks.iter().map(|of| check(of, id));
        page.table(&document::Table { caption: tally, ..table }.with(rows));
    }
    for (title, list) in [
        ("Further findings", &one.found),
        ("Differences from the paper", &one.differences),
        ("Fitted and assumed parameters", &one.fitted),
    ] {
        if !list.is_empty() {
            page.heading(title);
            page.list(list);
        }
    }
    if !one.parameters.is_empty() {
        page.details("Parameters", |page| page.table(&parameters(one)));
    }
    if !one.rows.is_empty() {
        let summary = format!("Raw measurements: {}", plural(one.rows.len() as u64, "row"));
        page.details(&summary, |page| rows(page, one));
    }
}

/// Every figure of the page of these experiments, in its order.
pub fn figures(experiments: &[Experiment]) -> Vec<Figure<'_>> {
    experiments.iter().flat_map(figures_of).collect()
}

/// The figures of one: called after it, and counted where there are several.
fn figures_of(one: &Experiment) -> Vec<Figure<'_>> {
    shown(&name_of(&one.name), &one.figures)
}

/// These figures as parts of a page, side by side where there are several.
pub(crate) fn shown<'a>(name: &str, figures: &'a [Shown]) -> Vec<Figure<'a>> {
    let palette = Rc::new(Palette::of(figures));
    let width = if figures.len() > 1 { HALF } else { FULL };
    let named = |i: usize| if figures.len() > 1 { format!("{name}-{}", i + 1) } else { name.to_owned() };
    let one = |(i, shown): (usize, &'a Shown)| {
        let drawn = draw(shown, &palette, width);
        let how = match drawn.plot {
            Some(_) => how(shown, drawn.left_out),
            None => "No data to plot.".to_owned(),
        };
        let palette = Rc::clone(&palette);
        let plot = move |width| draw(shown, &palette, width).plot.unwrap_or_default();
        Figure::new(named(i), &*shown.title, how, width, data(shown), plot)
    };
    figures.iter().enumerate().map(one).collect()
}

/// How a figure is read, as HTML.
fn how(shown: &Shown, left_out: usize) -> String {
    let mut how = String::new();
    // A title may be one word, such as the memory that is shown.
    if !shown.x_label.is_empty() && !shown.y_label.is_empty() {
        let _ = write!(how, "{} over {}. ", escape(&capital(&shown.y_label)), escape(&shown.x_label));
    }
    if shown.form == Form::Candles {
        how.push_str("Whiskers: minimum to maximum. Boxes: the middle half. Bars: the median. ");
    }
    if shown.series.iter().any(|series| series.from_paper) {
        how.push_str("Dashed: the paper's values. ");
    }
    if left_out > 0 {
        let _ = write!(
            how,
            "{} cannot be drawn, and {} left out. ",
            plural(left_out as u64, "point"),
            if left_out == 1 { "is" } else { "are" }
        );
    }
    how.truncate(how.trim_end().len());
    how
}

/// The numbers of a figure: a row for each point.
fn data(shown: &Shown) -> Table {
    let points = || shown.series.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)));
    let number =
        |value: &dyn Fn(&super::Point) -> Option<f64>| Values::Float(points().map(|(_, point)| value(point)).collect());
    let mut columns = vec![
        ("series", Values::Text(points().map(|(series, _)| Some(series.name.clone())).collect())),
        ("from_paper", Values::Flag(points().map(|(series, _)| Some(series.from_paper)).collect())),
        ("x", number(&|point| Some(point.x))),
        ("y", number(&|point| Some(point.y))),
    ];
    if shown.form == Form::Candles {
        let names = ["lowest", "lower_quartile", "upper_quartile", "highest"];
        columns.extend((0..4).map(|i| (names[i], number(&move |point| point.spread.map(|spread| spread[i])))));
    }
    table::named(columns)
}

/// A check as a row, in the experiment of this anchor.
fn check(check: &Check, of: &str) -> Vec<Cell> {
    let (class, mark) = match (check.ok, &check.because) {
        (true, _) if !check.fitted.is_empty() => ("yes", "✓ yes, by a fit"),
        (true, _) => ("yes", "✓ yes"),
        (false, Some(_)) => ("no", "✗ no, explained"),
        (false, None) => ("no", "✗ no"),
    };
    let measured = Cell::from(&*check.measured).remarks(remarks(check));
    let statement = match &*check.name {
        "" => Cell::from(&*check.statement),
        name => Cell::from(&*check.statement).anchor(format!("{of}-{name}"), name),
    };
    vec![statement, (&*check.expected).into(), measured, Cell::from(mark).class(class)]
}

fn parameters(one: &Experiment) -> document::Table {
    let row = |name: Cell, value: &str, doc: &str| vec![name, value.into(), doc.into()];
    let rows = one.parameters.iter().map(|one| row(Cell::code(&one.name), &one.value, &one.doc));
    let columns = [(Kind::Value, "parameter"), (Kind::Words, "value"), (Kind::Words, "meaning")];
    let seed = row("seed".into(), &one.seed.to_string(), "of every random choice");
    document::Table::of("top", columns).with(rows.chain([seed]))
}

fn rows(page: &mut Page, one: &Experiment) {
    let meaning = |column: &Column| format!("`{}`: {}", column.name, column.doc);
    page.list(&one.columns.iter().map(meaning).collect::<Vec<_>>());
    let columns = one.columns.iter().map(|column| (Kind::Value, &*column.name));
    let cell = |cell: &super::Cell| match cell {
        super::Cell::Number(number) => raw(*number).into(),
        super::Cell::Text(text) => (&**text).into(),
    };
    let rows = one.rows.iter().take(ROWS_MAX).map(|row| row.iter().map(cell).collect());
    let mut table = document::Table::of("", columns).with(rows);
    if one.rows.len() > ROWS_MAX {
        table.caption = format!("The first {} rows; `--json` writes all of them.", count(ROWS_MAX as f64));
    }
    page.table(&table);
}

/// A measurement with six digits, and whole numbers in full.
fn raw(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value != 0.0 && !(1e-6..1e15).contains(&value.abs()) {
        return format!("{value:.5e}");
    }
    let digits = value.abs().max(1e-9).log10().floor();
    decimal(value, (5.0 - digits).clamp(0.0, 12.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_numbers_keep_what_they_say() {
        for (value, text) in [
            (0.0, "0"),
            (16384.0, "16384"),
            (123_456_789.0, "123456789"),
            (0.1 + 0.2, "0.3"),
            (27.712_345_6, "27.7123"),
            (0.000_123_456_7, "0.000123457"),
            (1e-9, "1.00000e-9"),
            (f64::NAN, "–"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(raw(value), text);
        }
    }
}
