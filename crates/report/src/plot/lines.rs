//! Line charts.

use super::{Frame, Key, Mark, Plot};
use crate::html::escape;
use std::fmt::Write;

/// One line of a chart.
pub(crate) struct Series {
    /// Its name, foreign or not.
    pub name: String,
    /// Its colour, below [`super::COLOURS`].
    pub colour: usize,
    /// The pattern of its stroke, 0 (solid) to 3.
    pub dash: usize,
    /// Its dots are rings: what is compared with.
    pub hollow: bool,
    /// Its pieces, each a run of points from left to right; a gap is between two pieces.
    pub pieces: Vec<Vec<(f64, f64)>>,
    /// Points that get a dot, with what it says.
    pub dots: Vec<(f64, f64, String)>,
}

impl Series {
    /// A solid line without dots.
    pub(crate) fn new(name: &str, colour: usize, pieces: Vec<Vec<(f64, f64)>>) -> Series {
        Series { name: name.to_owned(), colour, dash: 0, hollow: false, pieces, dots: Vec::new() }
    }
}

/// A chart of lines over two axes.
pub(crate) struct LineChart<'a> {
    /// Its axes.
    pub frame: Frame<'a>,
    /// The lines, later ones above.
    pub series: Vec<Series>,
}

impl LineChart<'_> {
    /// The chart, with a legend if it has several lines.
    pub(crate) fn plot(&self) -> Plot {
        let mut out = String::new();
        let several = self.series.len() > 1 || self.series.iter().any(|series| series.dash > 0);
        let key = |series: &Series| Key::new(Mark::Line(series.dash), series.colour, &series.name);
        let legend = self.series.iter().filter(|_| several).map(key).collect();
        let frame = &self.frame;
        frame.axes(&mut out, true);
        for series in &self.series {
            line(&mut out, frame, series);
        }
        frame.plot(true, legend, out)
    }
}

fn line(out: &mut String, frame: &Frame, series: &Series) {
    let _ = writeln!(out, "<g class=\"c{}\">", series.colour);
    let mut path = String::new();
    for piece in &series.pieces {
        for (i, &point) in piece.iter().enumerate() {
            let (x, y) = frame.at(point);
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        // One point is no line: without a dot it would not be seen.
        if let [point] = piece[..] {
            let (x, y) = frame.at(point);
            let _ = writeln!(out, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
    if !path.is_empty() {
        let _ = writeln!(
            out,
            "<path class=\"line d{}\" data-name=\"{}\" d=\"{path}\"/>",
            series.dash,
            escape(&series.name)
        );
    }
    for (x, y, says) in &series.dots {
        let (x, y) = frame.at((*x, *y));
        let _ = writeln!(
            out,
            "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            if series.hollow { "hollow" } else { "ring" },
            escape(says)
        );
    }
    out.push_str("</g>\n");
}
