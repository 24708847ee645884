//! The run over time.

use super::{FULL, height};
use crate::figure::Figure;
use crate::html::Page;
use crate::plot::{Axis, Frame, LineChart, Plot, Series};
use crate::quantity::Quantity;
use crate::record::{Record, TimePoint, TimeSeries};
use crate::table;
use tidewater_base::units::seconds;

/// Points of one line that are drawn.
const POINTS_MAX: usize = 700;

/// A line: its value at a point, and how points are merged.
struct Line {
    name: &'static str,
    colour: usize,
    /// Its column in the table of the time series.
    column: &'static str,
    value: fn(&TimePoint) -> f64,
    /// Latencies: an interval without requests has none, and the worst of merged ones counts.
    latency: bool,
}

/// A panel to be: its name, its title, how it is read, its lines, what they measure, and what the axis is called.
type Panel = (&'static str, &'static str, String, Vec<Line>, Quantity, &'static str);

pub(super) fn section(page: &mut Page, record: &Record) {
    page.section("time", "Over time");
    if record.time_series.points.is_empty() {
        page.muted("The run was too short to be cut into intervals.");
        return;
    }
    page.html("<div class=\"dense\">\n");
    page.figures(&figures(record));
    page.html("</div>\n");
}

/// The figures over time.
pub(super) fn figures(record: &Record) -> Vec<Figure<'_>> {
    let series = &record.time_series;
    if series.points.is_empty() {
        return Vec::new();
    }
    let merged = series.points.len().div_ceil(POINTS_MAX);
    let interval = interval(series);
    let each = if merged == 1 {
        format!("Each point is {} of the drive's time", seconds(interval))
    } else {
        format!(
            "Each point is {} of the drive's time ({merged} intervals of the record)",
            seconds(interval * merged as f64)
        )
    };
    let rate = |name, colour, column, value| Line { name, colour, column, value, latency: false };
    let delay = |name, colour, column, value| Line { name, colour, column, value, latency: true };
    // Records of older builds have the mean of both together alone, and so have runs of neither.
    let mut delays = vec![
        delay("read", 0, "read_latency_us", |p| p.read_latency_us.unwrap_or(0.0)),
        delay("write", 1, "write_latency_us", |p| p.write_latency_us.unwrap_or(0.0)),
    ];
    let apart = series.points.iter().any(|p| p.read_latency_us.is_some() || p.write_latency_us.is_some());
    if !apart {
        delays = vec![delay("mean", 6, "mean_latency_us", |p| p.mean_latency_us)];
    }
    delays.push(delay("99 % within", 3, "p99_latency_us", |p| p.p99_latency_us.unwrap_or(0.0)));
    let latency = format!(
        "The mean of {} in each interval{}. A hump is queueing, often behind garbage collection. A gap is a time \
         without requests.",
        if apart {
            "the reads and of the writes that ended"
        } else {
            "all requests that ended, reads and writes together,"
        },
        if merged > 1 { ", the highest of the intervals in a point" } else { "" }
    );
    let panels: [Panel; 4] = [
        (
            "requests-over-time",
            "Requests per second",
            format!(
                "{each}. A level line is a steady drive; a drop is often the start of garbage collection, or a \
                     pause of the workload."
            ),
            vec![rate("read", 0, "read_iops", |p| p.read_iops), rate("write", 1, "write_iops", |p| p.write_iops)],
            Quantity::Count,
            "requests per second",
        ),
        (
            "bandwidth-over-time",
            "Bandwidth",
            "The same requests by their size.".to_owned(),
            vec![rate("read", 0, "read_mib_s", |p| p.read_mib_s), rate("write", 1, "write_mib_s", |p| p.write_mib_s)],
            Quantity::MibPerSecond,
            "MiB/s",
        ),
        ("latency-over-time", "Latency", latency, delays, Quantity::Micros, "latency, log scale"),
        (
            "erases-over-time",
            "Blocks erased",
            "Erases in each interval, of blocks that held data and of blocks that held the map. What was still valid \
             in a block was copied before; often nothing was. None means that no block had to be given back yet."
                .to_owned(),
            vec![rate("erases", 2, "erases", |p| p.erases as f64)],
            Quantity::Count,
            "erases",
        ),
    ];
    let mut figures = Vec::new();
    for (name, title, how, lines, quantity, label) in panels {
        let lines: Vec<Line> =
            lines.into_iter().filter(|line| series.points.iter().any(|point| (line.value)(point) > 0.0)).collect();
        if lines.is_empty() {
            continue;
        }
        let columns: Vec<&str> = ["time_s"].into_iter().chain(lines.iter().map(|line| line.column)).collect();
        let data = table::time_series(record).only(&columns);
        let draw = move |width| panel(series, &lines, title, quantity, label, merged, width);
        figures.push(Figure::new(name, title, how, FULL, data, draw));
    }
    figures
}

/// The interval, also of a record that forgot to say it.
fn interval(series: &TimeSeries) -> f64 {
    let stated = series.interval_seconds;
    if stated.is_finite() && stated > 0.0 {
        return stated;
    }
    series.points.windows(2).map(|pair| pair[1].t_seconds - pair[0].t_seconds).find(|d| *d > 0.0).unwrap_or(1.0)
}

/// One panel.
fn panel(
    series: &TimeSeries,
    lines: &[Line],
    title: &str,
    quantity: Quantity,
    label: &'static str,
    merged: usize,
    width: f64,
) -> Plot {
    let interval = interval(series);
    let drawn: Vec<Series> = lines
        .iter()
        .map(|line| Series::new(line.name, line.colour, pieces(&series.points, line, interval, merged)))
        .collect();
    let values = || drawn.iter().flat_map(|series| &series.pieces).flatten().map(|point| point.1);
    let max = values().fold(0.0, f64::max);
    let y = if quantity == Quantity::Micros {
        Axis::log(quantity, label, values().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min), max)
    } else {
        Axis::rounded(quantity, label, max)
    };
    let end = series.points.iter().map(|point| point.t_seconds).fold(0.0, f64::max) + interval;
    let x = Axis::from_zero(Quantity::Seconds, "time on the drive's clock", end);
    let title = &format!("{title} over time");
    LineChart { frame: Frame { title, width, height: height(width, 230.0), x, y }, series: drawn }.plot()
}

/// The pieces of a line. Where intervals were left out, a rate falls to zero and a latency has a gap.
fn pieces(points: &[TimePoint], line: &Line, interval: f64, merged: usize) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    let mut before: Option<f64> = None;
    for group in points.chunks(merged) {
        let t = group[0].t_seconds + interval * 0.5;
        let last = group[group.len() - 1].t_seconds + interval * 0.5;
        let values = group.iter().map(|point| (line.value)(point));
        let value = if line.latency { values.fold(0.0, f64::max) } else { values.sum::<f64>() / group.len() as f64 };
        let gap = before.is_some_and(|before| t - before > interval * 1.5);
        if line.latency && (gap || value <= 0.0) {
            pieces.push(Vec::new());
        } else if let (true, Some(before), Some(piece)) = (gap, before, pieces.last_mut()) {
            piece.extend([(before + interval, 0.0), (t - interval, 0.0)]);
        }
        if (value > 0.0 || !line.latency)
            && let Some(piece) = pieces.last_mut()
        {
            piece.push((t, value));
        }
        before = Some(last);
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(t_seconds: f64, value: f64) -> TimePoint {
        TimePoint { t_seconds, read_iops: value, mean_latency_us: value, ..TimePoint::default() }
    }

    #[test]
    fn a_rate_falls_to_zero_where_nothing_happened_and_a_latency_has_a_gap() {
        let points = [at(0.0, 5.0), at(1.0, 6.0), at(9.0, 7.0)];
        let rate = Line { name: "", colour: 0, column: "", value: |p| p.read_iops, latency: false };
        assert_eq!(pieces(&points, &rate, 1.0, 1), [vec![(0.5, 5.0), (1.5, 6.0), (2.5, 0.0), (8.5, 0.0), (9.5, 7.0)]]);
        let latency = Line { name: "", colour: 0, column: "", value: |p| p.mean_latency_us, latency: true };
        assert_eq!(pieces(&points, &latency, 1.0, 1), [vec![(0.5, 5.0), (1.5, 6.0)], vec![(9.5, 7.0)]]);
    }
}
