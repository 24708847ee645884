//! A plot that is drawn: on a page, where the style sheet colours it, and as an SVG document that stands alone.

use super::text::{shortened, width};
use crate::html::escape;
use std::fmt::Write;

/// A plot with its legend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plot {
    /// Text alternative.
    pub title: String,
    /// Its units, which are pixels at full size.
    pub width: f64,
    /// See `width`.
    pub height: f64,
    /// Attributes for the page's script, each behind a blank.
    pub attributes: String,
    /// SVG.
    pub body: String,
    /// Meaning of its colours and strokes.
    pub legend: Vec<Key>,
    /// Title of the legend: the quantity whose values its entries are; may be empty.
    pub legend_title: String,
    /// The legend stands below the plot, not above.
    pub legend_below: bool,
}

/// An entry of a legend.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// How it is drawn.
    pub mark: Mark,
    /// Its colour, below [`super::COLOURS`].
    pub colour: usize,
    /// Its name; foreign or not.
    pub name: String,
    /// A figure of it, in bold; may be empty.
    pub figure: String,
    /// More on it; may be empty.
    pub more: String,
}

/// How an entry of a legend is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A line of this stroke, 0 to 3.
    Line(usize),
    /// An area.
    Bar,
    /// A dashed outline.
    Outline,
    /// A dot.
    Dot,
}

impl Mark {
    /// The mark as SVG: its width, its height, and what is drawn.
    fn svg(self) -> (f64, f64, String) {
        match self {
            Mark::Line(dash) => (26.0, 10.0, format!("<path class=\"line d{dash}\" d=\"M1 5H25\"/>")),
            Mark::Bar => (14.0, 12.0, "<path class=\"bar\" d=\"M1 1h12v10h-12z\"/>".to_owned()),
            Mark::Outline => (14.0, 12.0, "<path class=\"outline\" d=\"M1 1h12v10h-12z\"/>".to_owned()),
            Mark::Dot => (12.0, 12.0, "<circle class=\"dot\" cx=\"6\" cy=\"6\" r=\"4\"/>".to_owned()),
        }
    }
}

impl Key {
    /// An entry that has a name alone.
    pub(crate) fn new(mark: Mark, colour: usize, name: &str) -> Key {
        Key { mark, colour, name: name.to_owned(), figure: String::new(), more: String::new() }
    }
}

/// The style of a document that stands alone: light ground, the page's colours, strokes for paper. Each selector is one
/// or two classes: what every reader of SVG understands.
pub(crate) const STYLE: &str = include_str!("paper.css");

/// Points (1/72 inch) of a unit on paper: words of 11.5 units are 7.6 points high.
const POINTS: f64 = 0.66;
/// Height of a row of the legend.
const ROW: f64 = 17.0;
/// Size of its words.
const WORDS: f64 = 12.0;
/// Room between two entries.
const BETWEEN: f64 = 16.0;

/// How many units a plot of `millimetres` on paper is wide.
pub(crate) fn units(millimetres: f64) -> f64 {
    (millimetres / 25.4 * 72.0 / POINTS * 10.0).round() / 10.0
}

/// Room beyond the edges of a document, in millimetres: left, top, right, bottom.
pub type Margins = [f64; 4];

impl Plot {
    /// The legend and the plot for a page; on a narrow screen `narrow` takes its place, the same drawn for that width.
    pub(crate) fn html(&self, narrow: Option<&Plot>) -> String {
        let mut out = String::new();
        if !self.legend_below {
            self.html_legend(&mut out);
        }
        for (class, plot) in [("plot", Some(self)), ("plot narrow", narrow)] {
            let Some(plot) = plot else { continue };
            let _ = writeln!(
                out,
                "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"{}>\n{}</svg>",
                plot.width,
                plot.height,
                escape(&plot.title),
                plot.attributes,
                plot.body
            );
        }
        if self.legend_below {
            self.html_legend(&mut out);
        }
        out
    }

    fn html_legend(&self, out: &mut String) {
        if self.legend.is_empty() {
            return;
        }
        out.push_str("<ul class=\"legend\">");
        if !self.legend_title.is_empty() {
            let _ = write!(out, "<li class=\"muted\">{}</li>", escape(&self.legend_title));
        }
        for key in &self.legend {
            let (wide, high, mark) = key.mark.svg();
            let _ = write!(
                out,
                "<li><svg class=\"key c{}\" viewBox=\"0 0 {wide} {high}\" aria-hidden=\"true\">{mark}</svg>{}",
                key.colour,
                escape(&key.name)
            );
            if !key.figure.is_empty() {
                let _ = write!(out, " <b>{}</b>", escape(&key.figure));
            }
            if !key.more.is_empty() {
                let _ = write!(out, " <span class=\"muted\">{}</span>", escape(&key.more));
            }
            out.push_str("</li>");
        }
        out.push_str("</ul>\n");
    }

    /// The plot as an SVG document with its legend, `caption` as its description, and room beyond its edges.
    pub(crate) fn document(&self, caption: &str, margins: Margins) -> String {
        let (legend, rows) = self.drawn_legend();
        let legend_height = if rows == 0.0 { 0.0 } else { rows + 6.0 };
        let mm = POINTS / 72.0 * 25.4;
        let [left, top, right, bottom] = margins.map(|room| room / mm);
        let (wide, high) = (self.width + left + right, self.height + legend_height + top + bottom);
        // What is beyond the edges makes it no wider on paper, but smaller.
        let scale = self.width / wide * mm;
        let (plot_y, legend_y) = if self.legend_below { (0.0, self.height + 6.0) } else { (legend_height, 0.0) };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.2}mm\" height=\"{:.2}mm\" \
             viewBox=\"{:.1} {:.1} {wide:.1} \
             {high:.1}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<style>\n{STYLE}</style>\n\
             <path fill=\"#fff\" d=\"M{:.1} {:.1}h{wide:.1}v{high:.1}h-{wide:.1}z\"/>\n\
             <g transform=\"translate(0 {legend_y:.1})\">\n{legend}</g>\n<g transform=\"translate(0 {plot_y:.1})\">\n\
             {}</g>\n</svg>\n",
            wide * scale,
            high * scale,
            -left,
            -top,
            escape(&self.title),
            escape(caption),
            -left,
            -top,
            self.body
        )
    }

    /// The legend as SVG in rows as wide as the plot, and how high it is.
    fn drawn_legend(&self) -> (String, f64) {
        let mut out = String::new();
        let (mut x, mut y) = (2.0, 0.0);
        if !self.legend.is_empty() && !self.legend_title.is_empty() {
            let words = shortened(&self.legend_title, WORDS, self.width - 4.0);
            let _ = writeln!(out, "<text class=\"label\" x=\"{x:.1}\" y=\"12.5\">{}</text>", escape(&words));
            x += width(&words, WORDS) + BETWEEN;
        }
        for key in &self.legend {
            let (mark_wide, mark_high, mark) = key.mark.svg();
            let words = [&key.name, &key.figure, &key.more].map(|word| word.trim()).join(" ");
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            let words = shortened(&words, WORDS, self.width - mark_wide - 10.0);
            let wide = mark_wide + 6.0 + width(&words, WORDS);
            if x > 2.0 && x + wide > self.width {
                (x, y) = (2.0, y + ROW);
            }
            let _ = writeln!(
                out,
                "<g class=\"c{}\" transform=\"translate({x:.1} {:.1})\">{mark}</g><text x=\"{:.1}\" \
                 y=\"{:.1}\">{}</text>",
                key.colour,
                y + (ROW - mark_high) / 2.0,
                x + mark_wide + 6.0,
                y + 12.5,
                escape(&words)
            );
            x += wide + BETWEEN;
        }
        (out, if self.legend.is_empty() { 0.0 } else { y + ROW })
    }
}
