//! A heat map over two knobs.

use super::heat::{self, key};
use super::{Axis, Plot, text};
use crate::quantity::Quantity;

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
        text::draw(&mut out, "label", (2.0, 12.0), "", self.rows.0);
        for (r, row) in self.cells.iter().enumerate() {
            let y = bottom - (r as f64 + 1.0) * tall;
            let name = text::shortened(&self.rows.1[r], WORDS, left - 10.0);
            text::draw(&mut out, "tick", (left - 8.0, y + tall / 2.0 + 4.0), "end", &name);
            for (c, cell) in row.iter().enumerate() {
                let Some((value, says)) = cell else { continue };
                let place = [left + c as f64 * wide, y, wide - 2.0, tall - 2.0];
                heat::cell(&mut out, place, scale.place(*value), says, self.word(*value, wide - 2.0).as_deref());
            }
        }
        self.names(&mut out, left, wide, bottom);
        key(&mut out, self.width, height, &scale, "");
        Plot { title: self.title.to_owned(), width: self.width, height, body: out, ..Plot::default() }
    }

    /// A value as it is written into a cell so wide: without its unit, which the scale has, too, or not at all.
    fn word(&self, value: f64, wide: f64) -> Option<String> {
        let word = self.quantity.format(value);
        let fits = |word: &str| text::width(word, 11.0) + 6.0 < wide;
        if fits(&word) {
            return Some(word);
        }
        let unit = |word: &str| word.split_once(' ').map(|(_, unit)| unit.to_owned());
        // A number without its unit would be wrong where the unit changes from cell to cell.
        let same = |(other, _): &(f64, String)| unit(&self.quantity.format(*other)) == unit(&word);
        let number = word.split(' ').next().unwrap_or_default();
        (fits(number) && self.cells.iter().flatten().flatten().all(same)).then(|| number.to_owned())
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
            text::draw(out, "tick", (at, bottom + 15.0), "middle", word);
        }
        text::draw(out, "label", (self.width - 2.0, bottom + 32.0), "end", self.columns.0);
    }
}
