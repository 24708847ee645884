//! The figures of an experiment as plots.

use super::{Figure, Form, Point, Series};
use crate::page::height;
use crate::plot::{Axis, Bar, COLOURS, Frame, GroupSeries, Groups, LineChart, Plot, place_name};
use crate::quantity::Quantity;
use tidewater_base::units::significant;

/// Places of one axis that are drawn in groups; more would be thinner than their distance.
const GROUPS_MAX: usize = 120;

/// A figure, drawn.
pub(crate) struct Drawn {
    /// The plot; nothing when the figure has nothing that can be drawn.
    pub plot: Option<Plot>,
    /// Points that have no place in it: not finite, not positive on a logarithmic axis, or of groups beyond as many as
    /// can be distinguished.
    pub left_out: usize,
}

/// Draws `figure`, `width` pixels wide.
pub(crate) fn draw(figure: &Figure, palette: &Palette, width: f64) -> Drawn {
    let fits = |point: &&Point| {
        let finite = point.x.is_finite() && point.y.is_finite();
        let spread =
            point.spread.is_none_or(|spread| spread.iter().all(|v| v.is_finite() && (*v > 0.0 || !figure.y_log)));
        // Places of bars and candlesticks stand side by side, whatever they are.
        finite && spread && (point.y > 0.0 || !figure.y_log) && (point.x > 0.0 || !figure.x_log || grouped(figure))
    };
    let mut left_out = 0;
    let mut series: Vec<(&Series, Vec<Point>)> = Vec::new();
    for one in &figure.series {
        let points: Vec<Point> = one.points.iter().filter(fits).cloned().collect();
        left_out += one.points.len() - points.len();
        if !points.is_empty() {
            series.push((one, points));
        }
    }
    if series.is_empty() {
        return Drawn { plot: None, left_out };
    }
    if grouped(figure) {
        let places = groups(&series);
        let beyond = |point: &&Point| places.last().is_some_and(|last| point.x > *last);
        left_out += series.iter().flat_map(|(_, points)| points).filter(beyond).count();
    }
    let plot = match figure.form {
        Form::Lines => lines(figure, palette, width, &series),
        Form::Bars | Form::Candles => bars(figure, palette, width, &series),
    };
    Drawn { plot: Some(plot), left_out }
}

fn grouped(figure: &Figure) -> bool {
    matches!(figure.form, Form::Bars | Form::Candles)
}

/// The name of a series as the legend has it: the paper's values are marked as such.
fn legend_name(series: &Series) -> String {
    if series.from_paper && !series.name.to_lowercase().contains("paper") {
        format!("{} (paper)", series.name)
    } else {
        series.name.clone()
    }
}

/// Key shared by the paper's and our series of the same subject.
fn subject(figure: &Figure, series: &Series) -> String {
    let plain = |name: &str| -> String {
        name.to_lowercase().replace("paper", "").chars().filter(|c| c.is_alphanumeric()).collect()
    };
    let mut ours = figure.series.iter().filter(|one| !one.from_paper);
    match (ours.next(), ours.next()) {
        // Whatever the paper's series is called, there is only one of ours that it can belong to.
        (Some(only), None) => plain(&only.name),
        _ => plain(&series.name),
    }
}

/// Colours by subject in the figures of one experiment. The paper's values have the colour of ours.
pub(crate) struct Palette(Vec<String>);

impl Palette {
    /// The colours of these figures: the same thing has the same colour in all of them.
    pub(crate) fn of(figures: &[Figure]) -> Palette {
        let series = || figures.iter().flat_map(|figure| figure.series.iter().map(move |one| (figure, one)));
        let mut subjects: Vec<String> = Vec::new();
        // Ours come first, so that their colours do not depend on what the paper gives.
        for (figure, one) in series().filter(|(_, one)| !one.from_paper).chain(series()) {
            let subject = subject(figure, one);
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        Palette(subjects)
    }

    fn place(&self, figure: &Figure, series: &Series) -> usize {
        let subject = subject(figure, series);
        self.0.iter().position(|known| *known == subject).unwrap_or(0)
    }

    /// The colour of a series.
    fn colour(&self, figure: &Figure, series: &Series) -> usize {
        self.place(figure, series) % COLOURS
    }

    /// The stroke of a line: dashes are the paper's alone, and where colours repeat, dots tell lines apart.
    fn stroke(&self, figure: &Figure, series: &Series) -> usize {
        if series.from_paper { 1 } else { [0, 2, 3][self.place(figure, series) / COLOURS % 3] }
    }
}

/// How numbers along an axis are written: large ones with a prefix.
fn quantity(max: f64) -> Quantity {
    if max >= 1e4 { Quantity::Count } else { Quantity::Ratio }
}

/// The y axis: from zero, unless it is logarithmic, goes below zero, or is of candlesticks far above it.
fn y_axis(figure: &Figure, series: &[(&Series, Vec<Point>)]) -> Axis {
    let values = || {
        series
            .iter()
            .flat_map(|(_, points)| points)
            .flat_map(|point| [point.y].into_iter().chain(point.spread.into_iter().flatten()))
    };
    let (min, max) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    // Each tick of a time has its unit: 0.5 ms, 100 s.
    let of_time = [", µs", ", us", " (µs)", " (us)"].iter().find_map(|unit| figure.y_label.strip_suffix(unit));
    let begins = figure.y_label.strip_prefix("µs").filter(|rest| rest.is_empty() || rest.starts_with(' '));
    let (label, quantity) = match (of_time, begins) {
        (Some(label), _) => (label.to_owned(), Quantity::Micros),
        (None, Some(rest)) => (format!("time{rest}"), Quantity::Micros),
        (None, None) => (figure.y_label.clone(), quantity(max)),
    };
    let label = if figure.y_log { format!("{label}, log scale") } else { label };
    if figure.y_log {
        // A bar has to rise above the lower edge to be seen.
        let min = if figure.form == Form::Bars { min / 1.5 } else { min };
        Axis::log(quantity, label, min, max)
    } else if min < 0.0 {
        Axis::span(quantity, label, min, max.max(0.0))
    } else if figure.form == Form::Candles && min > 0.4 * max {
        Axis::span(quantity, label, min, max)
    } else {
        Axis::rounded(quantity, label, max)
    }
}

fn says(series: &Series, point: &Point) -> String {
    format!("{} at {}: {}", legend_name(series), place_name(point.x), significant(point.y))
}

fn lines(figure: &Figure, palette: &Palette, width: f64, series: &[(&Series, Vec<Point>)]) -> Plot {
    let places: Vec<f64> = series.iter().flat_map(|(_, points)| points).map(|point| point.x).collect();
    let label = if figure.x_log { format!("{}, log scale", figure.x_label) } else { figure.x_label.clone() };
    let drawn = series.iter().map(|(one, points)| {
        let mut points: Vec<&Point> = points.iter().collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        crate::plot::Series {
            name: legend_name(one),
            colour: palette.colour(figure, one),
            dash: palette.stroke(figure, one),
            hollow: one.from_paper,
            dots: points.iter().map(|point| (point.x, point.y, says(one, point))).collect(),
            pieces: vec![points.iter().map(|point| (point.x, point.y)).collect()],
        }
    });
    let frame = frame(figure, width, Axis::places(label, &places, figure.x_log), series);
    LineChart { frame, series: drawn.collect() }.plot()
}

fn frame<'a>(figure: &'a Figure, width: f64, x: Axis, series: &[(&Series, Vec<Point>)]) -> Frame<'a> {
    Frame { title: &figure.title, width, height: height(width, 320.0), x, y: y_axis(figure, series) }
}

/// The places of all series, in order.
fn groups(series: &[(&Series, Vec<Point>)]) -> Vec<f64> {
    let mut places: Vec<f64> = series.iter().flat_map(|(_, points)| points).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places.truncate(GROUPS_MAX);
    places
}

fn bars(figure: &Figure, palette: &Palette, width: f64, series: &[(&Series, Vec<Point>)]) -> Plot {
    let places = groups(series);
    let bar = |one: &Series, point: &Point| Bar {
        value: point.y,
        spread: point.spread,
        says: match point.spread.map(|spread| spread.map(significant)) {
            Some([lowest, lower, upper, highest]) if figure.form == Form::Candles => {
                format!("{}; half from {lower} to {upper}, all from {lowest} to {highest}", says(one, point))
            }
            _ => says(one, point),
        },
    };
    let drawn = series.iter().map(|(one, points)| {
        let at = |place: &f64| points.iter().find(|point| point.x == *place).map(|point| bar(one, point));
        let bars = places.iter().map(at).collect();
        GroupSeries { name: legend_name(one), colour: palette.colour(figure, one), outline: one.from_paper, bars }
    });
    let names = places.iter().map(|place| place_name(*place)).collect();
    let frame = frame(figure, width, Axis::groups(figure.x_label.clone(), names), series);
    Groups { frame, are_candles: figure.form == Form::Candles, series: drawn.collect() }.plot()
}
