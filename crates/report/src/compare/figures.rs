//! The figures of a comparison.

use super::knobs::{self, Axes};
use super::metrics::{Better, Metric, metrics, operations};
use super::spreads::{map, over_knobs};
use super::{Labelled, figure_name, seeds};
use crate::document::capital;
use crate::figure::{Figure, name_of};
use crate::page::{FULL, HALF, Words, operation, pair, programmed};
use crate::plot::{COLOURS, NamedBar, Plot, Row, Segment, horizontal_bars, stacked_rows};
use crate::record::Record;
use crate::table::{self, Values};
use std::collections::BTreeSet;
use std::rc::Rc;
use tidewater_base::units::{bytes, change, significant};

/// More runs than this are no bars, but medians over what was varied.
const BARS_MAX: usize = 8;

/// Every figure of the page, in its order, over the knobs that `axes` names.
///
/// # Errors
/// Names of knobs or figures that are none of these runs: with those there are.
pub fn figures<'a>(records: &'a [Labelled], axes: &Axes) -> Result<Vec<Figure<'a>>, String> {
    let metrics = metrics(records);
    let mut all = key(records, &metrics, axes)?;
    all.extend(latencies(records).into_iter().flatten());
    all.extend(traffic(records));
    // Those that the page leaves out have a name, too.
    let known: BTreeSet<String> = all.iter().map(|figure| figure.name().to_owned()).collect();
    let every = Axes { y: metrics.iter().map(|metric| metric.name.clone()).collect(), ..axes.clone() };
    let others = key(records, &metrics, &every)?;
    all.extend(others.into_iter().filter(|figure| !known.contains(figure.name())));
    Ok(all)
}

/// The key figures, or those that were asked for.
pub(super) fn key<'a>(records: &'a [Labelled], metrics: &[Metric], axes: &Axes) -> Result<Vec<Figure<'a>>, String> {
    let asked = asked(metrics, &axes.y)?;
    let shown = |metric: &&Metric| metric.bars && metric.values.iter().flatten().any(|value| *value > 0.0);
    let metrics = if axes.y.is_empty() { metrics.iter().filter(shown).collect() } else { asked };
    let few = records.len() <= BARS_MAX && seeds::groups(records).is_empty();
    if few && axes.x.is_none() && axes.colour.is_none() {
        return Ok(metrics.into_iter().map(|metric| bars(records, metric)).collect());
    }
    let chosen = Rc::new(knobs::choose(records, axes)?);
    let of = |metric: &Metric| [Some(over_knobs(records, metric, &chosen)), map(records, metric, &chosen)];
    Ok(metrics.into_iter().flat_map(of).flatten().collect())
}

/// The figures of these names, as columns or on the page.
fn asked<'m>(metrics: &'m [Metric], names: &[String]) -> Result<Vec<&'m Metric>, String> {
    let find = |name: &String| {
        let plain = table::column_name(name);
        let found = |metric: &&Metric| table::column_name(&metric.name) == plain || figure_name(metric) == plain;
        metrics.iter().find(found).ok_or_else(|| {
            let names: Vec<String> = metrics.iter().map(figure_name).collect();
            format!("these runs have no figure {name}; there are: {}", names.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// A bar for each run.
fn bars<'a>(records: &[Labelled], metric: &Metric) -> Figure<'a> {
    let metric = metric.clone();
    let how = match metric.better {
        Better::Higher => "Longer is better.",
        Better::Lower => "Shorter is better.",
        Better::Neither => "A bar for each run.",
    };
    let column = figure_name(&metric);
    let data = table::named(vec![
        ("run", Values::Text(records.iter().map(|run| Some(run.label.clone())).collect())),
        (&*column, Values::Float(metric.values.clone())),
    ]);
    let (name, title) = (name_of(&metric.name), capital(&metric.name));
    let short = seeds::short(records.iter().map(|run| run.label.as_str()));
    let draw = move |width| {
        let bars: Vec<NamedBar> = short
            .iter()
            .enumerate()
            .filter_map(|(i, name)| metric.values[i].map(|value| (i, name, value)))
            .map(|(i, name, value)| NamedBar {
                name,
                colour: i % COLOURS,
                value,
                says: metric.quantity.format(value),
                change: metric.change(i).map(change).unwrap_or_default(),
                best: metric.is_best(i),
            })
            .collect();
        horizontal_bars(&metric.name, width, &bars)
    };
    Figure::new(name, title, how, HALF, data, draw)
}

/// The latencies by run, for each operation two figures.
pub(super) fn latencies(records: &[Labelled]) -> Vec<Vec<Figure<'_>>> {
    let short = seeds::short(records.iter().map(|run| run.label.as_str()));
    let of = |name: String| {
        let curves = records.iter().enumerate().filter_map(|(i, run)| {
            // Where colours repeat, strokes differ.
            run.record.latency(&name).map(|latency| (short[i].clone(), i % COLOURS, i / COLOURS % 4, latency))
        });
        let curves: Vec<_> = curves.collect();
        let (words, what) = (operation(&name), capital(&operation(&name)));
        let words = Words {
            name: format!("{}-latency", name_of(&words)),
            titles: [format!("{what}: distribution"), format!("{what}: tail")],
            how: [
                "Share of requests completed within a time. Further left is faster. Dots: 50, 90, 99, 99.9 and \
                 99.99 %.",
                "The same curves with the slowest requests spread out: each line up is ten times rarer.",
            ],
            alt: [format!("Cumulative distribution of {words} latency"), format!("Tail of the {words} latency")],
            column: "run",
        };
        pair(curves, words)
    };
    operations(records).into_iter().map(of).collect()
}

/// Rows of programmed data beyond which there is no such figure.
const ROWS_MAX: usize = 48;

/// Runs whose programmed data is one row: those that differ in their seed alone, else one.
struct Wrote<'a> {
    label: String,
    /// The row's name, without what all labels say.
    short: String,
    runs: Vec<&'a Record>,
}

impl<'a> Wrote<'a> {
    fn new(label: &str, runs: Vec<&'a Labelled>) -> Wrote<'a> {
        let runs = runs.into_iter().map(|run| &run.record).collect();
        Wrote { label: label.to_owned(), short: String::new(), runs }
    }

    /// Units by cause: of several runs their mean.
    fn units(&self) -> [(&'static str, usize, f64); 5] {
        let of = |i: usize| {
            let (name, colour, _) = programmed(&self.runs[0].flash)[i];
            let sum: f64 = self.runs.iter().map(|run| programmed(&run.flash)[i].2 as f64).sum();
            (name, colour, sum / self.runs.len() as f64)
        };
        [0, 1, 2, 3, 4].map(of)
    }

    /// The mean write amplification.
    fn amplification(&self) -> f64 {
        self.runs.iter().map(|run| run.write_amplification).sum::<f64>() / self.runs.len() as f64
    }
}

/// Flash programs of each run by cause; `None` where no run has any, or where there are too many rows.
pub(super) fn traffic(records: &[Labelled]) -> Option<Figure<'_>> {
    let groups = seeds::groups(records);
    let several = !groups.is_empty();
    let mut rows: Vec<Wrote> = if several {
        groups
            .iter()
            .map(|group| Wrote::new(&group.label, group.runs().iter().map(|&i| &records[i]).collect()))
            .collect()
    } else {
        records.iter().map(|run| Wrote::new(&run.label, vec![run])).collect()
    };
    rows.retain(|row| row.runs.iter().any(|run| run.flash.units_total() > 0));
    if rows.is_empty() || rows.len() > ROWS_MAX {
        return None;
    }
    let short = seeds::short(rows.iter().map(|row| row.label.as_str()));
    rows.iter_mut().zip(short).for_each(|(row, short)| row.short = short);
    let parts: Vec<(&str, &str, f64)> =
        rows.iter().flat_map(|row| row.units().map(|(cause, _, units)| (row.label.as_str(), cause, units))).collect();
    let data = table::named(vec![
        ("run", Values::Text(parts.iter().map(|(run, ..)| Some((*run).to_owned())).collect())),
        ("cause", Values::Text(parts.iter().map(|(_, cause, _)| Some((*cause).to_owned())).collect())),
        ("units", Values::Float(parts.iter().map(|(.., units)| Some(*units)).collect())),
    ]);
    let how = format!(
        "Only the first part is new host data; the rest is the drive's own work. A longer bar means more data \
         written. Right of each bar: write amplification.{}",
        if several { " Means over seeds." } else { "" }
    );
    let draw = move |width| traffic_plot(&rows, width);
    Some(Figure::new("flash-writes", "By cause", how, FULL, data, draw))
}

fn traffic_plot(rows: &[Wrote], width: f64) -> Plot {
    let row = |row: &Wrote| {
        let unit = row.runs[0].flash.unit_bytes;
        let segments = row.units().into_iter().map(|(name, colour, units)| Segment {
            name,
            colour,
            value: units,
            says: bytes((units as u64).saturating_mul(unit)),
        });
        Row { name: row.short.clone(), segments: segments.collect(), says: significant(row.amplification()) }
    };
    let rows: Vec<Row> = rows.iter().map(row).collect();
    stacked_rows("What each run programmed into the flash", width, &rows)
}
