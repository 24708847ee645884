//! The comparison as one HTML page.

use super::metrics::{Metric, metrics};
use super::table::{SEEDS, seeds_of};
use super::{Axes, Labelled, capital, caveats, figures, header, seeds, warnings};
use crate::figure;
use crate::html::{document, escape};
use std::fmt::Write;
use tidewater_base::units::change;

/// More runs than this have a row each with the key figures, not a column each with all of them.
const COLUMNS_MAX: usize = 16;
/// Rows of a table; more are in the table that `report --table runs` writes.
const ROWS_MAX: usize = 2_000;

/// One page that compares `records` with the first of them. Needs nothing else: no network.
pub fn page(records: &[Labelled], title: &str) -> String {
    // Axes that nothing was asked of are always there.
    page_over(records, title, &Axes::default(), &[]).unwrap_or_default()
}

/// The same with figures over the knobs that `axes` names, and a link from each run's row to its own page, where
/// `pages` has one.
///
/// # Errors
/// Names of knobs or figures that are none of these runs: with those there are.
pub fn page_over(records: &[Labelled], title: &str, axes: &Axes, pages: &[Option<String>]) -> Result<String, String> {
    let mut body = String::with_capacity(128 << 10);
    let _ = writeln!(
        body,
        "<header>\n<p class=\"kind\">Tidewater: {} runs compared</p>\n<h1>{}</h1>",
        records.len(),
        escape(title)
    );
    let Some(first) = records.first() else {
        body.push_str("</header>\n<p>Nothing to compare.</p>\n");
        return Ok(document(title, &body));
    };
    let many = records.len() > COLUMNS_MAX;
    let lead = if many {
        String::new()
    } else {
        format!(
            "<p class=\"lead\">Differences are relative to the first run, <b>{}</b>. A star marks the best value of \
             a row, if the values shown differ.</p>\n",
            escape(&first.label)
        )
    };
    let _ = writeln!(body, "{lead}</header>");
    notes(&mut body, records);
    let links = Links(pages);
    header::section(&mut body, records, !many, &links);
    let metrics = metrics(records);
    if many {
        key_figures(&mut body, records, &metrics, axes)?;
        variants(&mut body, records, &metrics);
        runs(&mut body, records, &metrics, &links);
    } else {
        over_seeds(&mut body, records, &metrics);
        key_figures(&mut body, records, &metrics, axes)?;
        latency(&mut body, records);
        traffic(&mut body, records);
        table(&mut body, records, &metrics, &links);
    }
    header::again(&mut body, records, !many);
    let _ = writeln!(body, "<footer>tidewater {}.</footer>", escape(&first.record.tool_version));
    Ok(document(&format!("{title} – tidewater"), &body))
}

/// Where each run has a page of its own.
pub(super) struct Links<'a>(&'a [Option<String>]);

impl Links<'_> {
    /// The label of run `i` as HTML, linked to its page where there is one.
    pub(super) fn label(&self, i: usize, label: &str) -> String {
        match self.0.get(i).and_then(Option::as_ref) {
            Some(page) => format!("<a href=\"{}\">{}</a>", escape(page), escape(label)),
            None => escape(label).to_string(),
        }
    }
}

fn notes(out: &mut String, records: &[Labelled]) {
    if records.iter().any(|run| run.record.partial) {
        out.push_str("<div class=\"banner\" role=\"alert\"><b>PARTIAL</b> Not every run reached its end.</div>\n");
    }
    let caveats = caveats(records);
    let warnings = warnings(records);
    if caveats.is_empty() && warnings.is_empty() {
        return;
    }
    out.push_str("<div class=\"notes\"><b>Before you believe the figures</b>\n<ul>");
    for caveat in caveats {
        let _ = write!(out, "<li>{}</li>", escape(&caveat));
    }
    for warning in warnings {
        let _ = write!(out, "<li>{}</li>", escape(&warning));
    }
    out.push_str("</ul></div>\n");
}

fn key_figures(out: &mut String, records: &[Labelled], metrics: &[Metric], axes: &Axes) -> Result<(), String> {
    out.push_str("<h2 id=\"figures\">Key figures</h2>\n");
    figure::pair(out, &figures::key(records, metrics, axes)?);
    Ok(())
}

/// The figures that tables of many runs have: those that are drawn.
fn columns(metrics: &[Metric]) -> Vec<&Metric> {
    metrics.iter().filter(|metric| metric.bars && metric.values.iter().any(Option::is_some)).collect()
}

fn head(out: &mut String, first: &str, more: &[&str], metrics: &[&Metric]) {
    let _ = write!(out, "<div class=\"scroll\"><table><thead><tr><th>{first}</th>");
    let names = more.iter().copied().chain(metrics.iter().map(|metric| metric.name.as_str()));
    names.for_each(|name| {
        let _ = write!(out, "<th>{}</th>", escape(name));
    });
    out.push_str("</tr></thead>\n<tbody>\n");
}

/// A row for each variant of many: its key figures over seeds.
fn variants(out: &mut String, records: &[Labelled], metrics: &[Metric]) {
    let groups = seeds::groups(records);
    if groups.is_empty() {
        return;
    }
    let metrics = columns(metrics);
    let _ = writeln!(out, "<h2 id=\"seeds\">Over seeds</h2>\n<p class=\"muted\">{}.</p>", capital(SEEDS));
    head(out, "variant", &["seeds"], &metrics);
    let cells: Vec<Vec<Option<String>>> = metrics.iter().map(|metric| seeds::cells(metric, &groups, " ★")).collect();
    for (i, group) in groups.iter().enumerate().take(ROWS_MAX) {
        let _ = write!(out, "<tr><th>{}</th><td>{}</td>", escape(&group.label), group.len());
        for cells in &cells {
            let _ = write!(out, "<td>{}</td>", cells[i].as_deref().unwrap_or("–"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// A row for each of many runs.
fn runs(out: &mut String, records: &[Labelled], metrics: &[Metric], links: &Links) {
    let metrics = columns(metrics);
    out.push_str("<h2 id=\"all\">Each run</h2>\n");
    if records.len() > ROWS_MAX {
        let _ = writeln!(
            out,
            "<p class=\"muted\">The first {ROWS_MAX} of {}; <code>tidewater report --table runs</code> writes all \
             of them, with every figure.</p>",
            records.len()
        );
    }
    let _ = writeln!(
        out,
        "<p class=\"muted\">Distributions of latency are drawn for up to {COLUMNS_MAX} runs: give <code>tidewater \
         report</code> the records of those to be compared.</p>"
    );
    head(out, "run", &[], &metrics);
    for (i, run) in records.iter().enumerate().take(ROWS_MAX) {
        let _ = write!(out, "<tr><th>{}</th>", links.label(i, &run.label));
        for metric in &metrics {
            let value = metric.values[i].map(|value| metric.quantity.format(value));
            let _ = write!(out, "<td>{}</td>", value.as_deref().unwrap_or("–"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn latency(out: &mut String, records: &[Labelled]) {
    out.push_str("<h2 id=\"latency\">Latency</h2>\n");
    for figures in figures::latencies(records) {
        figure::pair(out, &figures);
    }
}

fn traffic(out: &mut String, records: &[Labelled]) {
    if let Some(figure) = figures::traffic(records) {
        out.push_str("<h2 id=\"flash\">What was written to the flash</h2>\n");
        figure.html(out);
    }
}

fn table(out: &mut String, records: &[Labelled], metrics: &[Metric], links: &Links) {
    out.push_str("<h2 id=\"all\">All figures</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>");
    for (i, run) in records.iter().enumerate() {
        let _ = write!(out, "<th>{}</th>", links.label(i, &run.label));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for metric in metrics {
        let _ = write!(out, "<tr><th>{}</th>", escape(&metric.name));
        for i in 0..records.len() {
            let class = if metric.is_best(i) { " class=\"best\"" } else { "" };
            let _ = write!(out, "<td{class}>");
            match metric.values[i] {
                None => out.push('–'),
                Some(value) => {
                    let star = if metric.is_best(i) { " ★" } else { "" };
                    let _ = write!(out, "{}{star}", metric.quantity.format(value));
                }
            }
            if let Some(by) = metric.change(i) {
                let _ = write!(out, "<small>{}</small>", change(by));
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// The runs that differ in their seed alone, taken together.
fn over_seeds(out: &mut String, records: &[Labelled], metrics: &[Metric]) {
    let groups = seeds::groups(records);
    if groups.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<h2 id=\"seeds\">Over seeds</h2>\n<p class=\"muted\">{}. A star marks a value outside the range of all \
         other variants; differences within seed noise get none.</p>\n<div class=\"scroll\">\
         <table><thead><tr><th></th>",
        capital(SEEDS)
    );
    for group in &groups {
        let _ = write!(out, "<th>{} ({})</th>", escape(&group.label), seeds_of(group));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for metric in metrics {
        let _ = write!(out, "<tr><th>{}</th>", escape(&metric.name));
        for cell in seeds::cells(metric, &groups, " ★") {
            let cell = cell.unwrap_or_else(|| "–".to_owned());
            let class = if cell.ends_with('★') { " class=\"best\"" } else { "" };
            let _ = write!(out, "<td{class}>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
