//! The comparison as text.

use super::metrics::{Metric, metrics};
use super::page::Links;
use super::seeds::{self, Group};
use super::{Labelled, caveats, warnings};
use crate::document::{Cell, Table};
use std::fmt::Write;
use tidewater_base::units::{change, plural, printable};

/// A row for each figure and a column for each record, at most `width` characters wide: what does not fit continues
/// below, with the first record repeated. The best value of a row has a star; the others say by how much they differ
/// from the first record.
pub fn table(records: &[Labelled], width: usize) -> String {
    let Some(first) = records.first() else {
        return "Nothing to compare.\n".to_owned();
    };
    let metrics = metrics(records);
    let mut out = String::new();
    let groups = seeds::groups(records);
    if !groups.is_empty() {
        let _ = write!(out, "Over seeds: {SEEDS}\n{}\nEach run:\n", over_seeds(&groups, &metrics).text(width));
    }
    if records.len() >= GLANCE_MIN {
        let _ = writeln!(out, "{}", glance(records, &metrics, width).text(width));
    }
    out += &every_figure(records, &metrics, &Links(&[])).text(width);
    if records.len() > 1 {
        let _ = writeln!(out, "\n* best of its row; percentages and factors compare with {}", printable(&first.label));
    }
    for caveat in caveats(records) {
        let _ = writeln!(out, "note: {}", printable(&caveat));
    }
    for warning in warnings(records) {
        let _ = writeln!(out, "warning: {}", printable(&warning));
    }
    out
}

/// How the figures of groups are introduced.
pub(super) const SEEDS: &str = "the median, and the lowest to the highest where they differ";

/// The figures of runs that differ in their seed alone, taken together: what is looked for first.
pub(super) fn over_seeds(groups: &[Group], metrics: &[Metric]) -> Table {
    let title = |group: &Group| format!("{} ({})", group.label, plural(group.len() as u64, "seed"));
    let row = |metric: &Metric| [Cell::from(&*metric.name)].into_iter().chain(seeds::cells(metric, groups)).collect();
    let table = Table::new("", groups.iter().map(title)).with(metrics.iter().map(row));
    Table { is_ranked: true, ..table }
}

/// A row for each figure: the value of each run, and how it differs from the first.
pub(super) fn every_figure(records: &[Labelled], metrics: &[Metric], links: &Links) -> Table {
    let labels = records.iter().enumerate().map(|(i, run)| links.label(i, &run.label));
    let row = |metric: &Metric| {
        let cell = |i| Cell { beside: metric.change(i).map(change), ..metric.cell(i) };
        [Cell::from(&*metric.name)].into_iter().chain((0..records.len()).map(cell)).collect()
    };
    Table { is_ranked: true, ..Table::new("", labels).with(metrics.iter().map(row)) }
}

/// Figures at the head of the comparison, where there are many records.
const FIRST: [&str; 8] = [
    "mean response",
    "recovery time",
    "blocks erased",
    "flash written per host byte",
    "write amplification",
    "write buffer hits",
    "destage length",
    "padding reads",
];
/// More records than this have a row each, with a few figures, above the table.
const GLANCE_MIN: usize = 4;

/// A row for each of many records, the best mean response first; as many of [`FIRST`] as fit into `width`.
fn glance(records: &[Labelled], metrics: &[Metric], width: usize) -> Table {
    let find = |name: &&str| metrics.iter().find(|metric| metric.name == **name);
    let columns: Vec<&Metric> = FIRST.iter().filter_map(find).collect();
    let mut order: Vec<usize> = (0..records.len()).collect();
    if let Some(metric) = columns.first() {
        let value = |i: &usize| metric.values[*i].unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| value(a).total_cmp(&value(b)));
    }
    let row = |i: usize| {
        let cells = columns.iter().map(|metric| metric.cell(i));
        [Cell::from(&*records[i].label)].into_iter().chain(cells).collect()
    };
    // Titles stand over the numbers, not over their stars.
    let table = Table::new("", columns.iter().map(|metric| format!("{}  ", metric.name)));
    let mut table = Table { is_ranked: true, ..table.with(order.into_iter().map(row)) };
    table.cut(width);
    table
}
