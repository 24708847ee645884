//! Plots as inline SVG: they need no script, and print as they look.
//!
//! Colours are classes (`c0` to `c7`), resolved by the page's style sheet for light, dark and print. Coordinates are
//! clamped into the plot and always finite, whatever the record says.

mod bars;
mod drawing;
mod frame;
mod grid;
mod grouped;
mod heat;
mod lines;
mod scale;
mod spread;
pub(crate) mod text;

pub(crate) use bars::{NamedBar, Row, Segment, histogram, horizontal_bars, stacked_bar, stacked_rows};
pub use drawing::Margins;
pub(crate) use drawing::{Key, Mark, Plot, STYLE, units};
pub(crate) use frame::Frame;
pub(crate) use grid::Grid;
pub(crate) use grouped::{Bar, GroupSeries, Groups};
pub(crate) use heat::heat_map;
pub(crate) use lines::{LineChart, Series};
pub(crate) use scale::{Axis, place_name};
pub(crate) use spread::{SpreadChart, SpreadSeries, Whiskers};

/// Colours in the style sheet.
pub(crate) const COLOURS: usize = 8;

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
