//! Experiments as one HTML page: the paper beside ours.

use super::chart::{Palette, draw};
use super::summary::tally;
use super::{Cell, Experiment, Figure as Shown, Form};
use crate::figure::{self, Figure, name_of};
use crate::html::{document, escape};
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
    let mut body = String::with_capacity(128 << 10);
    let ids = ids(experiments);
    let title = match experiments {
        [one] => one.title.clone(),
        _ => "Experiments of published papers, repeated".to_owned(),
    };
    let _ = writeln!(body, "<header>\n<p class=\"kind\">Tidewater: {}</p>\n<h1>{}</h1>", words.kind, escape(&title));
    match experiments {
        [] => body.push_str("</header>\n<p>No experiment was run.</p>\n"),
        [one] => {
            let _ = writeln!(body, "<p class=\"lead\">{}</p>\n</header>", origin(one));
            section(&mut body, one, words);
        }
        _ => {
            contents(&mut body, experiments, lines, &ids);
            for (one, id) in experiments.iter().zip(&ids) {
                let _ = writeln!(
                    body,
                    "<h2 id=\"{id}\">{}</h2>\n<p class=\"muted\">{}</p>",
                    escape(&one.title),
                    origin(one)
                );
                section(&mut body, one, words);
            }
            if !lines.is_empty() {
                ledger::lines_html(&mut body, lines);
            }
        }
    }
    if let Some(first) = experiments.first() {
        let seeds: Vec<u64> = experiments.iter().map(|one| one.seed).collect();
        let _ = writeln!(
            body,
            "<footer>tidewater {}, seed {}.</footer>",
            escape(&first.version),
            if seeds.iter().all(|seed| *seed == first.seed) { first.seed.to_string() } else { "by experiment".into() }
        );
    }
    document(&format!("{title} – tidewater"), &body)
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

fn contents(out: &mut String, experiments: &[Experiment], lines: &[Line<'_>], ids: &[String]) {
    if lines.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"lead\">{}: {}</p>\n</header>",
            plural(experiments.len() as u64, "experiment"),
            sentence_within(&tally(experiments))
        );
    } else {
        ledger::contents(out, lines);
    }
    out.push_str(
        "<div class=\"scroll\"><table class=\"top\"><thead><tr><th>experiment</th><th class=\"words\">what it \
         shows</th>\
         <th class=\"words\">source</th><th>checks that hold</th></tr></thead>\n<tbody>\n",
    );
    for (one, id) in experiments.iter().zip(ids) {
        let (class, holding) = match (one.checks.len(), one.holds()) {
            (0, _) => ("muted", "no checks".to_owned()),
            (of, true) => ("yes", format!("{of} of {of} ✓")),
            (of, false) if one.failures() == 0 => {
                ("muted", format!("{} of {of}, {} explained", one.holding(), of - one.holding()))
            }
            (of, false) => ("no", format!("{} of {of} ✗", one.holding())),
        };
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{id}\">{}</a></td><td class=\"words\">{}</td><td class=\"words\">{}</td>\
             <td class=\"{class}\">{holding}</td></tr>",
            escape(&one.name),
            escape(&one.title),
            escape(&one.source)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

/// A sentence that goes on after a colon.
fn sentence_within(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Text in which what stands between backticks is code. A backtick without another is one.
fn with_code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (code, after))) =
        rest.split_once('`').and_then(|(before, behind)| Some((before, behind.split_once('`')?)))
    {
        let _ = write!(out, "{}<code>{}</code>", escape(before), escape(code));
        rest = after;
    }
    let _ = write!(out, "{}", escape(rest));
    out
}

fn section(out: &mut String, one: &Experiment, words: &Words) {
    for paragraph in one.description.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let _ = writeln!(out, "<p>{}</p>", with_code(paragraph.trim()));
    }
    if !one.holds() {
        let _ = writeln!(
            out,
            "<div class=\"banner\" role=\"alert\"><b>{}</b> {}</div>",
            words.missed,
            escape(&tally(std::slice::from_ref(one)))
        );
    }
    let figures = figures_of(one);
    if figures.len() > 1 {
        figure::pair(out, &figures)
    } else {
        figure::all(out, &figures)
    }
    checks(out, one, words);
    list(out, "Further findings", &one.found);
    list(out, "Differences from the paper", &one.differences);
    list(out, "Fitted and assumed parameters", &one.fitted);
    parameters(out, one);
    rows(out, one);
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
        let mut letters = shown.y_label.chars();
        let y: String = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
        let _ = write!(how, "{} over {}. ", escape(&y), escape(&shown.x_label));
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

fn checks(out: &mut String, one: &Experiment, words: &Words) {
    if one.checks.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"top checks\"><caption>{}</caption><thead><tr>\
         <th class=\"words\">{}</th><th class=\"words\">expected</th><th class=\"words\">measured</th>\
         <th>holds</th></tr></thead>\n<tbody>\n",
        words.heading,
        escape(&tally(std::slice::from_ref(one))),
        words.column
    );
    for check in &one.checks {
        let (row, class, mark) = match (check.ok, &check.because) {
            (true, _) if !check.fitted.is_empty() => ("", "yes", "✓ yes, by a fit"),
            (true, _) => ("", "yes", "✓ yes"),
            (false, Some(_)) => (" class=\"broken\"", "no", "✗ no, explained"),
            (false, None) => (" class=\"broken\"", "no", "✗ no"),
        };
        let because = check.because.as_ref().filter(|_| !check.ok);
        let mut because = because.map(|why| format!("<br><b>because</b> {}", escape(why))).unwrap_or_default();
        for fitted in &check.fitted {
            let _ = write!(because, "<br><b>fitted</b> {}", escape(fitted));
        }
        let _ = writeln!(
            out,
            "<tr{row}><td class=\"words\">{}</td><td class=\"words\">{}</td><td class=\"words\">{}{because}</td>\
             <td class=\"{class}\">{mark}</td></tr>",
            escape(&check.statement),
            escape(&check.expected),
            escape(&check.measured)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>{}</h3>\n<ul class=\"prose\">", escape(title));
    for item in items {
        let _ = write!(out, "<li>{}</li>", escape(item));
    }
    out.push_str("</ul>\n");
}

fn parameters(out: &mut String, one: &Experiment) {
    if one.parameters.is_empty() {
        return;
    }
    out.push_str(
        "<details><summary>Parameters</summary>\n<div class=\"scroll\"><table class=\"top\"><thead><tr>\
         <th>parameter</th><th class=\"words\">value</th><th class=\"words\">meaning</th></tr></thead>\n<tbody>\n",
    );
    for parameter in &one.parameters {
        let _ = writeln!(
            out,
            "<tr><td><code>{}</code></td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            escape(&parameter.name),
            escape(&parameter.value),
            escape(&parameter.doc)
        );
    }
    let _ = writeln!(
        out,
        "<tr><td>seed</td><td class=\"words\">{}</td><td class=\"words\">of every random choice</td></tr>",
        one.seed
    );
    out.push_str("</tbody></table></div></details>\n");
}

fn rows(out: &mut String, one: &Experiment) {
    if one.rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<details><summary>Raw measurements: {}</summary>\n<ul class=\"prose\">",
        plural(one.rows.len() as u64, "row")
    );
    for column in &one.columns {
        let _ = writeln!(out, "<li><code>{}</code>: {}</li>", escape(&column.name), escape(&column.doc));
    }
    out.push_str("</ul>\n<div class=\"scroll\"><table>");
    if one.rows.len() > ROWS_MAX {
        let _ = write!(
            out,
            "<caption>The first {} rows; <code>--json</code> writes all of them.</caption>",
            count(ROWS_MAX as f64)
        );
    }
    out.push_str("<thead><tr>");
    for column in &one.columns {
        let _ = write!(out, "<th>{}</th>", escape(&column.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in one.rows.iter().take(ROWS_MAX) {
        out.push_str("<tr>");
        for cell in row {
            let _ = match cell {
                Cell::Number(number) => write!(out, "<td>{}</td>", raw(*number)),
                Cell::Text(text) => write!(out, "<td>{}</td>", escape(text)),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
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
    fn what_stands_between_backticks_is_code() {
        assert_eq!(with_code("then `s` < `d`, once"), "then <code>s</code> &lt; <code>d</code>, once");
        assert_eq!(with_code("a ` alone"), "a ` alone");
    }

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
