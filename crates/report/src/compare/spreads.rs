//! A figure over knobs: medians with whiskers, and a heat map for two of them.

use super::knobs::{Chosen, Knob};
use super::metrics::{Better, Metric};
use super::seeds::Spread;
use super::{Labelled, figure_name};
use crate::document::capital;
use crate::figure::{Figure, name_of};
use crate::page::{HALF, height};
use crate::plot::{Axis, Grid, Plot, SpreadChart, SpreadSeries, Whiskers};
use crate::table::{self, Table, Values};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::rc::Rc;

/// Spread of the runs at one value of each knob.
struct Cell {
    spread: Spread,
    runs: usize,
}

/// A figure of the comparison by the chosen knobs.
struct Cells {
    /// By value of the x knob, then by colour.
    cells: Vec<Vec<Option<Cell>>>,
    /// The knobs whose values were pooled.
    over: String,
}

impl Cells {
    fn of(records: &[Labelled], metric: &Metric, chosen: &Chosen) -> Cells {
        let colours = chosen.colour.as_ref().map_or(1, |colour| colour.levels.len());
        let mut values: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); colours]; chosen.x.levels.len()];
        for run in 0..records.len() {
            let colour = chosen.colour.as_ref().map_or(0, |colour| colour.of_run[run]);
            values[chosen.x.of_run[run]][colour].extend(metric.values[run].filter(|value| value.is_finite()));
        }
        let cell = |values: Vec<f64>| {
            let runs = values.len();
            Spread::of(values).map(|spread| Cell { spread, runs })
        };
        let cells: Vec<Vec<Option<Cell>>> = values.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
        let seeds = records.iter().map(|run| run.record.seed).collect::<BTreeSet<_>>().len();
        let seeds = (seeds > 1).then_some("seeds");
        let over: Vec<&str> = seeds.into_iter().chain(chosen.beside.iter().map(String::as_str)).collect();
        Cells { over: over.join(", "), cells }
    }

    fn all(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().flatten().flatten()
    }

    /// How values were taken together, as a sentence; nothing where each is one run's.
    fn how(&self, whiskers: bool) -> String {
        let (least, most) =
            self.all().fold((usize::MAX, 0), |(least, most), cell| (least.min(cell.runs), most.max(cell.runs)));
        if most < 2 {
            return String::new();
        }
        let runs = if least == most { format!("{most} runs") } else { format!("{least} to {most} runs") };
        let over = if self.over.is_empty() { String::new() } else { format!(" over {}", self.over) };
        let whiskers = if whiskers { "; whiskers from the lowest to the highest" } else { "" };
        format!("Median{over} ({runs} each){whiskers}.")
    }
}

/// Medians with whiskers over the x knob, a colour for each value of the other.
pub(super) fn over_knobs<'a>(records: &[Labelled], metric: &Metric, chosen: &Rc<Chosen>) -> Figure<'a> {
    let cells = Cells::of(records, metric, chosen);
    let mut how = cells.how(true);
    let better = match metric.better {
        Better::Higher => "Higher is better.",
        Better::Lower => "Lower is better.",
        Better::Neither => "",
    };
    if !better.is_empty() {
        let _ = write!(how, "{}{better}", if how.is_empty() { "" } else { " " });
    }
    if how.is_empty() {
        let _ = write!(how, "A value for each run, over {}.", chosen.x.name);
    }
    let data = data(metric, chosen, &cells);
    let (shown, chosen) = (metric.clone(), Rc::clone(chosen));
    let draw = move |width| chart(&shown, &chosen, &cells, width);
    let how = crate::html::escape(&how).to_string();
    Figure::new(name_of(&metric.name), capital(&metric.name), how, HALF, data, draw)
}

fn chart(metric: &Metric, chosen: &Chosen, cells: &Cells, width: f64) -> Plot {
    let words = |value: f64| metric.quantity.format(value);
    let whiskers = |x: usize, colour: usize| {
        let Cell { spread: Spread { lowest, median, highest }, runs } = cells.cells[x][colour].as_ref()?;
        let mut says = chosen.x.levels[x].word.clone();
        if let Some(knob) = &chosen.colour {
            let _ = write!(says, ", {}", knob.levels[colour].word);
        }
        let _ = write!(says, ": {}", words(*median));
        if *runs > 1 {
            let _ = write!(says, " ({} to {}, {runs} runs)", words(*lowest), words(*highest));
        }
        Some(Whiskers { low: *lowest, median: *median, high: *highest, says })
    };
    let colours = chosen.colour.as_ref().map_or(1, |colour| colour.levels.len());
    let series = (0..colours).map(|colour| SpreadSeries {
        name: chosen.colour.as_ref().map_or_else(String::new, |knob| knob.levels[colour].word.clone()),
        place: colour,
        points: (0..chosen.x.levels.len()).map(|x| whiskers(x, colour)).collect(),
    });
    SpreadChart {
        title: &capital(&metric.name),
        width,
        height: height(width, 300.0),
        label: chosen.x.name.clone(),
        places: chosen.x.levels.iter().map(|level| (level.word.clone(), level.number)).collect(),
        y: y_axis(metric, cells),
        // The values of several knobs say which is which.
        of: chosen
            .colour
            .as_ref()
            .map(|knob| knob.name.clone())
            .filter(|name| !name.contains(", "))
            .unwrap_or_default(),
        series: series.collect(),
    }
    .plot()
}

/// From zero, unless all values are far above it, or of several magnitudes.
fn y_axis(metric: &Metric, cells: &Cells) -> Axis {
    let min = cells.all().map(|cell| cell.spread.lowest).fold(f64::INFINITY, f64::min);
    let max = cells.all().map(|cell| cell.spread.highest).fold(f64::NEG_INFINITY, f64::max);
    let label = metric.name.clone();
    if min > 0.0 && max / min > 30.0 {
        Axis::log(metric.quantity, format!("{label}, log scale"), min, max)
    } else if min < 0.0 || min > 0.4 * max {
        Axis::span(metric.quantity, label, min, max)
    } else {
        Axis::rounded(metric.quantity, label, max)
    }
}

/// A row for each median.
fn data(metric: &Metric, chosen: &Chosen, cells: &Cells) -> Table {
    let rows: Vec<(usize, usize, &Cell)> = cells
        .cells
        .iter()
        .enumerate()
        .flat_map(|(x, row)| row.iter().enumerate().filter_map(move |(colour, cell)| Some((x, colour, cell.as_ref()?))))
        .collect();
    let level = |knob: &Knob, of: &dyn Fn(&(usize, usize, &Cell)) -> usize| {
        Values::Text(rows.iter().map(|row| Some(knob.levels[of(row)].word.clone())).collect())
    };
    let number = |of: fn(&Spread) -> f64| Values::Float(rows.iter().map(|(.., cell)| Some(of(&cell.spread))).collect());
    let mut columns = vec![(chosen.x.name.as_str(), level(&chosen.x, &|row| row.0))];
    if let Some(colour) = &chosen.colour {
        columns.push((colour.name.as_str(), level(colour, &|row| row.1)));
    }
    let column = figure_name(metric);
    columns.push(("n", Values::Count(rows.iter().map(|(.., cell)| Some(cell.runs as u64)).collect())));
    let names = [format!("{column}_median"), format!("{column}_lowest"), format!("{column}_highest")];
    columns.push((&names[0], number(|spread| spread.median)));
    columns.push((&names[1], number(|spread| spread.lowest)));
    columns.push((&names[2], number(|spread| spread.highest)));
    table::named(columns)
}

/// Fewer cells than this are read faster from the other figure.
const MAP_MIN: usize = 6;

/// A heat map over two knobs; nothing where there is one, or few values.
pub(super) fn map<'a>(records: &[Labelled], metric: &Metric, chosen: &Rc<Chosen>) -> Option<Figure<'a>> {
    let colour = chosen.colour.as_ref()?;
    if chosen.x.levels.len() < 2 || colour.levels.len() < 2 || chosen.x.levels.len() * colour.levels.len() < MAP_MIN {
        return None;
    }
    let cells = Cells::of(records, metric, chosen);
    let how = format!("{} A stronger colour is a higher value.", cells.how(false));
    let how = crate::html::escape(how.trim_start()).to_string();
    let data = data(metric, chosen, &cells);
    let (title, name) = (format!("{}, as a map", capital(&metric.name)), name_of(&metric.name));
    let (metric, chosen) = (metric.clone(), Rc::clone(chosen));
    let draw = move |width| grid(&metric, &chosen, &cells, width);
    Some(Figure::new(format!("{name}-map"), title, how, HALF, data, draw).with_data_of(&name))
}

fn grid(metric: &Metric, chosen: &Chosen, cells: &Cells, width: f64) -> Plot {
    let Some(colour) = &chosen.colour else { return Plot::default() };
    let cell = |x: usize, y: usize| {
        let median = cells.cells[x][y].as_ref()?.spread.median;
        let (column, row) = (&chosen.x.levels[x].word, &colour.levels[y].word);
        Some((median, format!("{column}, {row}: {}", metric.quantity.format(median))))
    };
    let words = |knob: &Knob| knob.levels.iter().map(|level| level.word.clone()).collect();
    Grid {
        title: &capital(&metric.name),
        width,
        quantity: metric.quantity,
        columns: (&chosen.x.name, words(&chosen.x)),
        rows: (&colour.name, words(colour)),
        cells: (0..colour.levels.len()).map(|y| (0..chosen.x.levels.len()).map(|x| cell(x, y)).collect()).collect(),
    }
    .plot()
}

#[cfg(test)]
mod tests {
    use super::super::knobs::{Axes, choose, tests::grid};
    use super::super::metrics::metrics;
    use super::*;

    #[test]
    fn a_figure_over_knobs_has_the_median_and_the_range_of_its_seeds() {
        let runs = grid(3);
        let metrics = metrics(&runs);
        let metric = metrics.iter().find(|metric| metric.name == "IOPS").unwrap();
        let chosen = Rc::new(choose(&runs, &Axes::default()).unwrap());
        let figure = over_knobs(&runs, metric, &chosen);
        let csv = figure.data().csv();
        let rows: Vec<&str> = csv.lines().collect();
        assert_eq!(rows[0], "buffer.write_size,buffer.write_policy,n,iops_median,iops_lowest,iops_highest");
        assert_eq!((rows[1], rows.len()), ("512 KiB,cbm,3,1102,1101,1103", 7));
        assert!(figure.caption().contains("Median over seeds (3 runs each); whiskers from the lowest to the highest"));
        let map = map(&runs, metric, &chosen).unwrap();
        assert_eq!((map.name(), map.data()), ("iops-map", figure.data()));
        // What is neither axis is taken together, and said.
        let axes = Axes { x: Some("buffer.write_policy".into()), ..Axes::default() };
        let mut alone = choose(&runs, &axes).unwrap();
        (alone.beside, alone.colour) = (vec!["buffer.write_size".into()], None);
        let caption = over_knobs(&runs, metric, &Rc::new(alone)).caption();
        assert!(caption.contains("Median over seeds, buffer.write_size (9 runs each)"), "{caption}");
    }
}
