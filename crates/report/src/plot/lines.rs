//! Line charts.

use super::Axis;
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
    /// Its pieces, each a run of points from left to right; a gap is between two pieces.
    pub pieces: Vec<Vec<(f64, f64)>>,
    /// Points that get a dot, with what it says.
    pub dots: Vec<(f64, f64, String)>,
}

/// A chart of lines over two axes.
pub(crate) struct LineChart<'a> {
    /// What it shows, for those who do not see it.
    pub title: &'a str,
    /// In units of the view box, which are pixels at full size.
    pub width: f64,
    /// See `width`.
    pub height: f64,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// The lines, later ones above.
    pub series: Vec<Series>,
}

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;

impl LineChart<'_> {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (
            LEFT + self.x.place(x) * (self.width - LEFT - RIGHT),
            self.height - BOTTOM - self.y.place(y) * (self.height - TOP - BOTTOM),
        )
    }

    /// The chart, with a legend if it has several lines.
    pub(crate) fn svg(&self) -> String {
        let mut out = String::new();
        if self.series.len() > 1 || self.series.iter().any(|series| series.dash > 0) {
            out.push_str(&legend(&self.series));
        }
        let (width, height) = (self.width, self.height);
        let (right, bottom) = (width - RIGHT, height - BOTTOM);
        let _ = writeln!(
            out,
            "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\" \
             data-box=\"{LEFT} {right} {TOP} {bottom}\" data-x=\"{}\" data-y=\"{}\">",
            escape(self.title),
            self.x.data(),
            self.y.data()
        );
        let mut last_named = f64::NEG_INFINITY;
        for (value, name) in self.x.ticks() {
            let x = LEFT + self.x.place(value) * (right - LEFT);
            let class = if name.is_empty() { "grid faint" } else { "grid" };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>");
            // A name that would run into the one before it is left out, not its mark.
            if !name.is_empty() && x - last_named > 14.0 + 6.0 * name.chars().count() as f64 {
                last_named = x;
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                    bottom + 17.0
                );
            }
        }
        for (value, name) in self.y.ticks() {
            let y = bottom - self.y.place(value) * (bottom - TOP);
            let class = if name.is_empty() { "grid faint" } else { "grid" };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>");
            if !name.is_empty() {
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                    LEFT - 8.0,
                    y + 4.0
                );
            }
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{right:.1}\"/>");
        let _ = writeln!(out, "<text class=\"label\" x=\"2\" y=\"12\">{}</text>", self.y.label);
        let _ = writeln!(
            out,
            "<text class=\"label\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            height - 6.0,
            self.x.label
        );
        for series in &self.series {
            self.line(&mut out, series);
        }
        out.push_str("</svg>\n");
        out
    }

    fn line(&self, out: &mut String, series: &Series) {
        let _ = writeln!(out, "<g class=\"c{}\">", series.colour);
        let mut path = String::new();
        for piece in &series.pieces {
            for (i, &point) in piece.iter().enumerate() {
                let (x, y) = self.at(point);
                let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
            }
            // One point is no line: without a dot it would not be seen.
            if let [point] = piece[..] {
                let (x, y) = self.at(point);
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
            let (x, y) = self.at((*x, *y));
            let _ = writeln!(
                out,
                "<circle class=\"dot ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                escape(says)
            );
        }
        out.push_str("</g>\n");
    }
}

fn legend(series: &[Series]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for series in series {
        let _ = write!(
            out,
            "<li><svg class=\"key c{}\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"line d{}\" \
             d=\"M1 5H25\"/></svg>{}</li>",
            series.colour,
            series.dash,
            escape(&series.name)
        );
    }
    out.push_str("</ul>\n");
    out
}
