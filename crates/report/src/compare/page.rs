//! The comparison as one HTML page.

use super::metrics::{Metric, metrics};
use super::seeds::{self, Group};
use super::table::{SEEDS, every_figure, over_seeds};
use super::{Axes, Labelled, caveats, figures, header, warnings};
use crate::document::{Cell, Table, capital};
use crate::html::{Page, escape};

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
    let kind = format!("{} runs compared", records.len());
    let Some(first) = records.first() else {
        let mut page = Page::new(&kind, title, "");
        page.paragraph("Nothing to compare.");
        return Ok(page.finish(title));
    };
    let many = records.len() > COLUMNS_MAX;
    let lead = format!(
        "Differences are relative to the first run, <b>{}</b>. A star marks the best value of a row, if the values \
         shown differ.",
        escape(&first.label)
    );
    let mut page = Page::new(&kind, title, if many { "" } else { &lead });
    if records.iter().any(|run| run.record.partial) {
        page.banner("PARTIAL", "Not every run reached its end.");
    }
    page.notes(&[caveats(records), warnings(records)].concat());
    let links = Links(pages);
    header::section(&mut page, records, !many, &links);
    let metrics = metrics(records);
    let groups = seeds::groups(records);
    if !many && !groups.is_empty() {
        page.section("seeds", "Over seeds");
        page.muted(&format!(
            "{}. A star marks a value outside the range of all other variants; differences within seed noise get none.",
            capital(SEEDS)
        ));
        page.table(&over_seeds(&groups, &metrics));
    }
    page.section("figures", "Key figures");
    page.pair(&figures::key(records, &metrics, axes)?);
    if many {
        variants(&mut page, &groups, &metrics);
        runs(&mut page, records, &metrics, &links);
    } else {
        page.section("latency", "Latency");
        figures::latencies(records).iter().for_each(|figures| page.pair(figures));
        if let Some(figure) = figures::traffic(records) {
            page.section("flash", "What was written to the flash");
            page.figures([&figure]);
        }
        page.section("all", "All figures");
        page.table(&every_figure(records, &metrics, &links));
    }
    header::again(&mut page, records, !many);
    page.footer(&format!("tidewater {}", first.record.tool_version));
    Ok(page.finish(&format!("{title} – tidewater")))
}

/// Where each run has a page of its own.
pub(super) struct Links<'a>(pub(super) &'a [Option<String>]);

impl Links<'_> {
    /// The label of run `i`, linked to its page where there is one.
    pub(super) fn label(&self, i: usize, label: &str) -> Cell {
        Cell { link: self.0.get(i).cloned().flatten(), ..Cell::from(label) }
    }
}

/// The figures that tables of many runs have: those that are drawn.
fn columns(metrics: &[Metric]) -> impl Iterator<Item = &Metric> + Clone {
    metrics.iter().filter(|metric| metric.bars && metric.values.iter().any(Option::is_some))
}

/// A row for each variant of many: its key figures over seeds.
fn variants(page: &mut Page, groups: &[Group], metrics: &[Metric]) {
    if groups.is_empty() {
        return;
    }
    page.section("seeds", "Over seeds");
    page.muted(&format!("{}.", capital(SEEDS)));
    let names = columns(metrics).map(|metric| metric.name.as_str());
    let cells: Vec<Vec<Cell>> = columns(metrics).map(|metric| seeds::cells(metric, groups)).collect();
    let row = |(i, group): (usize, &Group)| {
        let first = [Cell::from(&*group.label), group.len().to_string().into()];
        first.into_iter().chain(cells.iter().map(|cells| cells[i].clone())).collect()
    };
    let rows = groups.iter().enumerate().take(ROWS_MAX).map(row);
    page.table(&Table::new("variant", ["seeds"].into_iter().chain(names)).with(rows));
}

/// A row for each of many runs.
fn runs(page: &mut Page, records: &[Labelled], metrics: &[Metric], links: &Links) {
    page.section("all", "Each run");
    if records.len() > ROWS_MAX {
        page.muted(&format!(
            "The first {ROWS_MAX} of {}; <code>tidewater report --table runs</code> writes all of them, with every \
             figure.",
            records.len()
        ));
    }
    page.muted(&format!(
        "Distributions of latency are drawn for up to {COLUMNS_MAX} runs: give <code>tidewater report</code> the \
         records of those to be compared."
    ));
    let row = |(i, run): (usize, &Labelled)| {
        let values = columns(metrics).map(|metric| metric.values[i].map(|value| metric.quantity.format(value)));
        [links.label(i, &run.label)].into_iter().chain(values.map(Cell::maybe)).collect()
    };
    let rows = records.iter().enumerate().take(ROWS_MAX).map(row);
    page.table(&Table::new("run", columns(metrics).map(|metric| metric.name.as_str())).with(rows));
}
