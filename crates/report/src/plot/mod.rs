//! Plots as inline SVG: they need no script, and print as they look.
//!
//! Colours are classes (`c0` to `c7`), resolved by the page's style sheet for light, dark and print. Coordinates are
//! clamped into the plot and always finite, whatever the record says.

mod bars;
mod candles;
mod frame;
mod grouped;
mod heat;
mod lines;
mod scale;

pub(crate) use bars::{Bar, Segment, histogram, horizontal_bars, stacked_bar};
pub(crate) use candles::{Candle, CandleChart, CandleSeries};
pub(crate) use grouped::{GroupSeries, GroupedBars};
pub(crate) use heat::heat_map;
pub(crate) use lines::{LineChart, Series};
pub(crate) use scale::{Axis, place_name};

use crate::html::escape;
use frame::Frame;
use std::fmt::Write;

/// Colours in the style sheet.
pub(crate) const COLOURS: usize = 8;

/// Opens a plot: `width` by `height` are its units, which are pixels at full size. On a narrow screen it keeps a size
/// at which it can be read, and moves within its frame. `data` is for the page's script: attributes, each behind a
/// blank.
fn open_plot(out: &mut String, title: &str, width: f64, height: f64, data: &str) {
    let size = if width > crate::page::HALF { "frame wide" } else { "frame" };
    let _ = writeln!(
        out,
        "<div class=\"{size}\"><svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{}\"{data}>",
        escape(title)
    );
}

/// Closes what [`open_plot`] opened.
fn close_plot(out: &mut String) {
    out.push_str("</svg></div>\n");
}

/// At most `limit` of the points, evenly spread, first and last included.
pub(crate) fn thin<T: Copy>(points: &[T], limit: usize) -> Vec<T> {
    if points.len() <= limit {
        return points.to_vec();
    }
    (0..limit).map(|i| points[i * (points.len() - 1) / (limit - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends() {
        let points: Vec<u32> = (0..1001).collect();
        let thinned = thin(&points, 100);
        assert_eq!((thinned.len(), thinned[0], thinned[99]), (100, 0, 1000));
        assert_eq!(thin(&points[..3], 100), [0, 1, 2]);
    }
}
