//! Latency: the distribution, its tail, and the percentiles.

use super::{HALF, height, measured, operation, operation_colour};
use crate::document::{Cell, Table};
use crate::figure::Figure;
use crate::html::Page;
use crate::plot::{Axis, Frame, LineChart, Plot, Series, thin};
use crate::quantity::Quantity;
use crate::record::{Distribution, Latency, Record};
use std::fmt::Write;
use tidewater_base::units::{count, micros, part};

/// Points of one curve that are drawn: more than the pixels of a plot add nothing.
const POINTS_MAX: usize = 500;

/// A curve to draw: its name, colour, stroke, and latency.
pub(crate) type Curve<'a> = (String, usize, usize, &'a Latency);

const PERCENTILES: [(f64, &str); 5] =
    [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

fn at_percentiles(latency: &Latency) -> [f64; 5] {
    [latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999]
}

/// The percentiles that as many samples can tell from the greatest.
fn dots(name: &str, latency: &Latency) -> Vec<(f64, f64, String)> {
    PERCENTILES
        .iter()
        .zip(at_percentiles(latency))
        .filter(|((share, _), _)| (1.0 - share) * latency.count as f64 >= 0.999)
        .map(|((share, words), value)| (value, *share, format!("{words} of {name} within {}", micros(value))))
        .collect()
}

/// A staircase through the points of a cumulative curve: the share holds until the next value.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]).chain(points.last().copied()).collect()
}

/// The points of a cumulative curve as the record has them: its percentiles where it has no others.
fn shown(latency: &Latency) -> Vec<(f64, f64)> {
    if latency.cdf.is_empty() {
        at_percentiles(latency).into_iter().zip(PERCENTILES).map(|(value, (share, _))| (value, share)).collect()
    } else {
        latency.cdf.clone()
    }
}

/// The points that are drawn, from 0 to 1, whatever the record left out.
fn cumulative(latency: &Latency) -> Vec<(f64, f64)> {
    let mut points = thin(&shown(latency), POINTS_MAX);
    let first = points.first().map_or(latency.max, |point| point.0);
    points.insert(0, (if latency.min > 0.0 { latency.min.min(first) } else { first }, 0.0));
    let last = points.last().map_or(latency.max, |point| point.0);
    points.push((latency.max.max(last), 1.0));
    points
}

fn range(curves: &[Curve]) -> (f64, f64) {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let all =
        || curves.iter().flat_map(|(.., latency)| cumulative(latency)).map(|point| point.0).filter(|v| positive(*v));
    (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max))
}

fn chart(curves: &[Curve], title: &str, width: f64, y: Axis) -> Plot {
    let (min, max) = range(curves);
    let series = curves
        .iter()
        .map(|(name, colour, dash, latency)| Series {
            dash: *dash,
            dots: dots(name, latency),
            ..Series::new(name, *colour, vec![steps(&cumulative(latency))])
        })
        .collect();
    let x = Axis::log(Quantity::Micros, "latency, log scale", min, max);
    LineChart { frame: Frame { title, width, height: height(width, 320.0), x, y }, series }.plot()
}

/// The share of requests within each latency.
fn cdf_chart(curves: &[Curve], title: &str, width: f64) -> Plot {
    chart(curves, title, width, Axis::rounded(Quantity::Share, "share of requests", 1.0))
}

/// The same, with the slowest requests spread out.
fn tail_chart(curves: &[Curve], title: &str, width: f64) -> Plot {
    let samples = curves.iter().map(|(.., latency)| latency.count).max().unwrap_or(1);
    chart(curves, title, width, Axis::nines("share of requests, the slowest spread out", samples))
}

/// Words of the figures of a latency.
pub(crate) struct Words {
    /// Prefix of both names: `commit`.
    pub name: String,
    /// The title of the distribution, and of the tail.
    pub titles: [String; 2],
    /// How they are read.
    pub how: [&'static str; 2],
    /// Text alternatives.
    pub alt: [String; 2],
    /// Name of the column that distinguishes the curves.
    pub column: &'static str,
}

/// The two figures of a latency: its distribution, and its tail.
pub(crate) fn pair<'a>(curves: Vec<Curve<'a>>, words: Words) -> Vec<Figure<'a>> {
    if curves.is_empty() {
        return Vec::new();
    }
    let rows: Vec<(&str, (f64, f64))> = curves
        .iter()
        .flat_map(|(name, .., latency)| shown(latency).into_iter().map(move |point| (name.as_str(), point)))
        .collect();
    let data = crate::table::curves(words.column, ["latency_us", "share"], &rows);
    let [distribution, tail] = words.titles;
    let [how, how_tail] = words.how;
    let [alt, alt_tail] = words.alt;
    let names = ["distribution", "tail"].map(|part| format!("{}-{part}", words.name));
    let same = curves.clone();
    vec![
        Figure::new(&*names[0], distribution, how, HALF, data.clone(), move |width| cdf_chart(&same, &alt, width)),
        Figure::new(&*names[1], tail, how_tail, HALF, data, move |width| tail_chart(&curves, &alt_tail, width))
            .with_data_of(&names[0]),
    ]
}

/// The latencies of a run by operation.
pub(super) fn figures(record: &Record) -> Vec<Figure<'_>> {
    let measured = measured(record);
    let curves =
        measured.iter().map(|(name, latency)| (operation(name), operation_colour(name), 0, *latency)).collect();
    let words = Words {
        name: "latency".into(),
        titles: ["Distribution".into(), "Tail".into()],
        how: [
            "How many requests were done within a time: follow a curve up to 50 % for the typical request. Further \
             left is faster. Dots: 50, 90, 99, 99.9 and 99.99 %.",
            "The same curves with the slowest requests spread out: each line up is ten times rarer. A curve that \
             bends right has a few requests that waited very long.",
        ],
        alt: ["Cumulative distribution of latency by operation".into(), "Tail of the latency by operation".into()],
        column: "operation",
    };
    pair(curves, words)
}

pub(super) fn section(page: &mut Page, record: &Record) {
    page.section("latency", "Latency");
    let measured = measured(record);
    if measured.is_empty() {
        page.muted("No request was completed.");
        return;
    }
    let mut words = "From the submission of a request to its completion at the host".to_owned();
    for (name, latency) in measured.iter().filter(|(name, _)| matches!(*name, "read" | "write")) {
        let _ = write!(words, ". Half of the {name}s took at most {}", micros(latency.p50));
        if latency.count >= 100 {
            let _ = write!(words, "; one in a hundred took more than {}", micros(latency.p99));
        }
    }
    page.muted(&(words + "."));
    page.pair(&figures(record));
    page.table(&table(record));
}

fn table(record: &Record) -> Table {
    let percentiles = PERCENTILES.map(|(_, words)| words);
    let titles = ["requests", "share", "mean", "min"].into_iter().chain(percentiles).chain(["max"]);
    let mut table = Table::new("", titles);
    table.caption = "Percent columns: the time within which that share of the requests was done".into();
    let rows = measured(record);
    let all = record.latency("all").filter(|_| rows.len() > 1);
    let whole: f64 = rows.iter().map(|(_, latency)| latency.count as f64).sum();
    for (name, latency) in rows.into_iter().chain(all.map(|latency| ("all", latency))) {
        let share = part(crate::record::ratio(latency.count as f64, whole));
        let times = [latency.mean, latency.min].into_iter().chain(at_percentiles(latency)).chain([latency.max]);
        let row = [operation(name), count(latency.count as f64), share].into_iter().chain(times.map(micros));
        table.row(row.map(Cell::from));
    }
    table
}

/// The cumulative distribution of destage lengths, as the record has it.
pub(super) fn destage_points(destage: &Distribution) -> Vec<(f64, f64)> {
    if destage.cdf.is_empty() {
        vec![(destage.mean, 0.0), (destage.max.max(destage.mean), 1.0)]
    } else {
        destage.cdf.clone()
    }
}

/// Whether all destages had as many pages.
pub(super) fn is_of_one_length(destage: &Distribution) -> bool {
    let points = destage_points(destage);
    points.iter().all(|point| point.0 == destage.max) && destage.mean == destage.max
}

/// The cumulative distribution of destage lengths.
pub(super) fn destage_chart(destage: &Distribution, width: f64) -> Plot {
    let mut points = thin(&destage_points(destage), POINTS_MAX);
    if let Some(&(first, _)) = points.first().filter(|_| !destage.cdf.is_empty()) {
        points.insert(0, (first, 0.0));
    }
    let longest = points.last().map_or(1.0, |point| point.0).max(destage.max);
    let x = Axis::log(Quantity::Count, "pages in a destage, log scale", 1.0, longest);
    let y = Axis::rounded(Quantity::Share, "share of destages", 1.0);
    let series = vec![Series::new("destages", 1, vec![steps(&points)])];
    let title = "Cumulative distribution of the destage length";
    LineChart { frame: Frame { title, width, height: height(width, 260.0), x, y }, series }.plot()
}
