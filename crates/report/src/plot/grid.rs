//! A heat map over two knobs.

use super::heat::{ON_CELL_FROM, key};
use super::{Axis, Plot, text};
use crate::html::escape;
use crate::quantity::Quantity;
use std::fmt::Write;

/// A value for each pair of values of two knobs.
pub(crate) struct Grid<'a> {
    /// Text alternative.
    pub title: &'a str,
    /// In units of the view box, which are pixels at full size.
    pub width: f64,
    /// How values are written.
    pub quantity: Quantity,
    /// Name of the columns, and each of them.
    pub columns: (&'a str, Vec<String>),
    /// Name of the rows, and each of them; the first is the lowest.
    pub rows: (&'a str, Vec<String>),
    /// By row, then column: the value, and what it says.
    pub cells: Vec<Vec<Option<(f64, String)>>>,
}

/// Size of words along the edges.
const WORDS: f64 = 11.5;

impl Grid<'_> {
    /// The heat map with its scale.
    pub(crate) fn plot(&self) -> Plot {
        let values = || self.cells.iter().flatten().flatten().map(|(value, _)| *value);
        let (min, max) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let scale = if min >= 0.0 && min < 0.4 * max {
            Axis::rounded(self.quantity, "", max)
        } else {
            Axis::span(self.quantity, "", min, max)
        };
        let widest = self.rows.1.iter().map(|word| text::width(word, WORDS)).fold(0.0, f64::max);
        let (left, top) = ((widest + 12.0).clamp(40.0, self.width * 0.4), 22.0);
        let wide = (self.width - left - 2.0) / self.columns.1.len().max(1) as f64;
        let tall = (320.0 / self.rows.1.len().max(1) as f64).clamp(14.0, 36.0);
        let bottom = top + tall * self.rows.1.len() as f64;
        let height = bottom + 68.0;
        let mut out = String::new();
        let _ = writeln!(out, "<text class=\"label\" x=\"2\" y=\"12\">{}</text>", escape(self.rows.0));
        for (r, row) in self.cells.iter().enumerate() {
            let y = bottom - (r as f64 + 1.0) * tall;
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + tall / 2.0 + 4.0,
                escape(&text::shortened(&self.rows.1[r], WORDS, left - 10.0))
            );
            for (c, cell) in row.iter().enumerate() {
                let Some((value, says)) = cell else { continue };
                self.cell(&mut out, [left + c as f64 * wide, y, wide - 2.0, tall - 2.0], *value, says, &scale);
            }
        }
        self.names(&mut out, left, wide, bottom);
        key(&mut out, self.width, height, &scale, "");
        Plot { title: self.title.to_owned(), width: self.width, height, body: out, ..Plot::default() }
    }

    fn cell(&self, out: &mut String, [x, y, wide, tall]: [f64; 4], value: f64, says: &str, scale: &Axis) {
        let opacity = 0.05 + 0.95 * scale.place(value);
        let _ = writeln!(
            out,
            "<path class=\"heat\" fill-opacity=\"{opacity:.3}\" d=\"M{x:.1} \
             {y:.1}h{wide:.1}v{tall:.1}h-{wide:.1}z\"><title>{}</title></path>",
            escape(says)
        );
        let word = self.quantity.format(value);
        // The scale has the unit, too.
        let number = word.split(' ').next().unwrap_or_default();
        let fits = |word: &str| text::width(word, 11.0) + 6.0 < wide;
        let shown = if fits(&word) { &word } else { number };
        // A number without its unit would be wrong where the unit changes from cell to cell.
        let one_unit = self.cells.iter().flatten().flatten().all(|(other, _)| {
            self.quantity.format(*other).split_once(' ').map(|(_, unit)| unit.to_owned())
                == word.split_once(' ').map(|(_, unit)| unit.to_owned())
        });
        if fits(shown) && (shown == word || one_unit) {
            let class = if opacity > ON_CELL_FROM { "oncell" } else { "cell" };
            let _ = writeln!(
                out,
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x + wide / 2.0,
                y + tall / 2.0 + 4.0,
                escape(shown)
            );
        }
    }

    /// Draws the columns' labels.
    fn names(&self, out: &mut String, left: f64, wide: f64, bottom: f64) {
        let mut taken = f64::NEG_INFINITY;
        for (c, word) in self.columns.1.iter().enumerate() {
            let at = left + (c as f64 + 0.5) * wide - 1.0;
            let half = text::width(word, WORDS) / 2.0;
            if at - half < taken + 5.0 {
                continue;
            }
            taken = at + half;
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 15.0,
                escape(word)
            );
        }
        let _ = writeln!(
            out,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            self.width - 2.0,
            bottom + 32.0,
            escape(self.columns.0)
        );
    }
}
