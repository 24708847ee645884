//! The frame of a chart: two axes with their names, marks and grid.

use super::text::{self, shortened, width};
use super::{Axis, Key, Plot};
use crate::html::escape;
use std::fmt::Write;

/// Size of what names an axis.
const WORDS: f64 = 12.0;
/// Room for the names of the y axis.
const LEFT: f64 = 72.0;
/// Room for half a name of the x axis.
const RIGHT: f64 = 18.0;
/// Room for what the y axis shows.
const TOP: f64 = 26.0;
/// Room for the names of the x axis and what it shows.
const BOTTOM: f64 = 44.0;

/// Frame of a chart.
pub(crate) struct Frame<'a> {
    /// Text alternative.
    pub title: &'a str,
    /// In units of the view box, which are pixels at full size.
    pub width: f64,
    /// See `width`.
    pub height: f64,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
}

impl Frame<'_> {
    /// Where a point is drawn; always within the frame.
    pub(super) fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (
            LEFT + self.x.place(x) * (self.width - LEFT - RIGHT),
            self.height - BOTTOM - self.y.place(y) * (self.height - TOP - BOTTOM),
        )
    }

    /// The lower edge.
    pub(super) fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    /// Pixels from one place to the next on an axis of groups.
    pub(super) fn pitch(&self) -> f64 {
        (self.x.place(1.0) - self.x.place(0.0)) * (self.width - LEFT - RIGHT)
    }

    /// The plot whose drawing is `body`, axes included.
    pub(super) fn plot(&self, continuous: bool, legend: Vec<Key>, body: String) -> Plot {
        let attributes = if continuous { self.data() } else { String::new() };
        let (title, width, height) = (self.title.to_owned(), self.width, self.height);
        Plot { title, width, height, attributes, body, legend, ..Plot::default() }
    }

    /// Scale data for the page's script, which shows the values under the pointer.
    fn data(&self) -> String {
        let (right, bottom) = (self.width - RIGHT, self.bottom());
        let (x, y) = (self.x.data(), self.y.data());
        format!(" data-box=\"{LEFT} {right} {TOP} {bottom}\" data-x=\"{x}\" data-y=\"{y}\"")
    }

    /// Draws the axes. Lines that run up from the x axis belong to axes on which every place means something:
    /// `continuous`.
    pub(super) fn axes(&self, out: &mut String, continuous: bool) {
        let (right, bottom) = (self.width - RIGHT, self.bottom());
        self.marks_of_x(out, continuous);
        for (value, name) in self.y.ticks() {
            let y = bottom - self.y.place(value) * (bottom - TOP);
            let class = if name.is_empty() { "grid faint" } else { "grid" };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>");
            if !name.is_empty() {
                // A name of many digits is set closer: the room is as wide for every chart.
                let fitted = match width(&name, WORDS) > LEFT - 10.0 {
                    true => format!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", LEFT - 12.0),
                    false => String::new(),
                };
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\"{fitted}>{}</text>",
                    LEFT - 8.0,
                    y + 4.0,
                    escape(&name)
                );
            }
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{right:.1}\"/>");
        text::draw(out, "label", (2.0, 12.0), "", &shortened(&self.y.label, WORDS, self.width - 4.0));
        text::draw(out, "label", (right, self.height - 6.0), "end", &shortened(&self.x.label, WORDS, right - 4.0));
    }

    fn marks_of_x(&self, out: &mut String, continuous: bool) {
        let (right, bottom) = (self.width - RIGHT, self.bottom());
        // The greatest decade is where the tail is: on a logarithmic axis names give way to those on their right.
        let mut ticks = self.x.ticks();
        if self.x.is_log() {
            ticks.reverse();
        }
        let mut taken: Vec<(f64, f64)> = Vec::new();
        for (value, name) in ticks {
            let x = LEFT + self.x.place(value) * (right - LEFT);
            if continuous {
                let class = if name.is_empty() { "grid faint" } else { "grid" };
                let _ = writeln!(out, "<path class=\"{class}\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>");
            }
            // A name that would run into another is left out, not its mark.
            let half = 3.3 * name.chars().count() as f64;
            let (from, to) = (x - half - 4.0, x + half + 4.0);
            if !name.is_empty() && taken.iter().all(|(other_from, other_to)| from > *other_to || to < *other_from) {
                taken.push((from, to));
                text::draw(out, "tick", (x, bottom + 17.0), "middle", &name);
            }
        }
    }
}
