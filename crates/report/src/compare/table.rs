//! The comparison as text.

use super::metrics::{Metric, metrics};
use super::{Labelled, caveats, seeds, warnings};
use std::fmt::Write;
use tidewater_base::units::change;

/// A row for each figure and a column for each record, at most `width` characters wide: what does not fit continues
/// below, with the first record repeated. The best value of a row has a star; the others say by how much they differ
/// from the first record.
pub fn table(records: &[Labelled], width: usize) -> String {
    let Some(first) = records.first() else {
        return "Nothing to compare.\n".to_owned();
    };
    let metrics = metrics(records);
    let rows: Vec<String> = metrics.iter().map(|metric| printable(&metric.name)).collect();
    let cells: Vec<Vec<String>> = (0..records.len()).map(|i| metrics.iter().map(|m| cell(m, i)).collect()).collect();
    let labels: Vec<String> = records.iter().map(|run| printable(&run.label)).collect();
    let mut out = over_seeds(records, &metrics, &rows, width);
    out += &glance(&metrics, &labels, width);
    out += &side_by_side(&rows, &labels, &cells, width);
    let mut out: String = out.lines().map(|line| format!("{}\n", line.trim_end())).collect();
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

/// The figures of runs that differ in their seed alone, taken together: what is looked for first. Nothing where there
/// are none.
fn over_seeds(records: &[Labelled], metrics: &[Metric], rows: &[String], width: usize) -> String {
    let groups = seeds::groups(records);
    if groups.is_empty() {
        return String::new();
    }
    let labels: Vec<String> =
        groups.iter().map(|group| printable(&format!("{} ({})", group.label, seeds_of(group)))).collect();
    let by_metric: Vec<_> = metrics.iter().map(|metric| seeds::cells(metric, &groups, " *")).collect();
    let cell = |text: &Option<String>| match text {
        Some(text) if text.ends_with(" *") => text.clone(),
        text => format!("{}  ", text.as_deref().unwrap_or("-")),
    };
    let cells: Vec<Vec<String>> =
        (0..groups.len()).map(|i| by_metric.iter().map(|cells| cell(&cells[i])).collect()).collect();
    format!("Over seeds: {SEEDS}\n{}\nEach run:\n", side_by_side(rows, &labels, &cells, width))
}

/// How the figures of groups are introduced.
pub(super) const SEEDS: &str = "the median, and the lowest to the highest where they differ";

/// How many seeds a group has.
pub(super) fn seeds_of(group: &seeds::Group) -> String {
    tidewater_base::units::plural(group.len() as u64, "seed")
}

/// A row for each name and a column for each label, at most `width` characters wide: what does not fit continues below,
/// with the first column repeated.
fn side_by_side(rows: &[String], labels: &[String], cells: &[Vec<String>], width: usize) -> String {
    let names = rows.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let wide = |i: usize| cells[i].iter().chain([&labels[i]]).map(|text| text.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    let mut next = 1;
    loop {
        let mut columns = vec![0];
        let mut used = names + 2 + wide(0);
        while next < labels.len() && (columns.len() == 1 || used + 2 + wide(next) <= width) {
            used += 2 + wide(next);
            columns.push(next);
            next += 1;
        }
        let _ = write!(out, "{:names$}", "");
        for &i in &columns {
            let _ = write!(out, "  {:>w$}", labels[i], w = wide(i));
        }
        out.push('\n');
        for (row, name) in rows.iter().enumerate() {
            let _ = write!(out, "{name:names$}");
            for &i in &columns {
                let _ = write!(out, "  {:>w$}", cells[i][row], w = wide(i));
            }
            out.push('\n');
        }
        if next >= labels.len() {
            return out;
        }
        out.push('\n');
    }
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
fn glance(metrics: &[Metric], labels: &[String], width: usize) -> String {
    if labels.len() < GLANCE_MIN {
        return String::new();
    }
    let names = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let mut columns: Vec<(&Metric, usize, Vec<String>)> = Vec::new();
    let mut used = names;
    for name in FIRST {
        let Some(metric) = metrics.iter().find(|metric| metric.name == name) else { continue };
        let value = |i: usize| match metric.values[i] {
            Some(value) => format!("{}{}", metric.quantity.format(value), if metric.is_best(i) { " *" } else { "  " }),
            None => "-  ".to_owned(),
        };
        let cells: Vec<String> = (0..labels.len()).map(value).collect();
        let wide = cells.iter().map(|cell| cell.chars().count()).chain([name.chars().count() + 2]).max().unwrap_or(0);
        used += 2 + wide;
        if used > width && !columns.is_empty() {
            break;
        }
        columns.push((metric, wide, cells));
    }
    let mut order: Vec<usize> = (0..labels.len()).collect();
    if let Some((metric, ..)) = columns.first() {
        let value = |i: &usize| metric.values[*i].unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| value(a).total_cmp(&value(b)));
    }
    let mut out = format!("{:names$}", "");
    for (metric, wide, _) in &columns {
        let _ = write!(out, "  {:>wide$}", format!("{}  ", metric.name));
    }
    out.push('\n');
    for i in order {
        let _ = write!(out, "{:names$}", labels[i]);
        for (_, wide, cells) in &columns {
            let _ = write!(out, "  {:>wide$}", cells[i]);
        }
        out.push('\n');
    }
    out.push('\n');
    out
}

fn cell(metric: &Metric, i: usize) -> String {
    let Some(value) = metric.values[i] else {
        return "-  ".to_owned();
    };
    let mut text = metric.quantity.format(value);
    if let Some(by) = metric.change(i) {
        let _ = write!(text, " ({})", change(by));
    }
    text.push_str(if metric.is_best(i) { " *" } else { "  " });
    text
}

/// Foreign text on a terminal: control characters could move its cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
