//! Bars in groups, upright: one group for each place, one bar of it for each series.

use super::{Axis, Frame, Key, Mark, Plot};
use crate::html::escape;
use std::fmt::Write;

/// The bars of one colour.
pub(crate) struct GroupSeries {
    /// Its name, foreign or not.
    pub name: String,
    /// Its colour, below [`super::COLOURS`].
    pub colour: usize,
    /// Only an outline, dashed: what is compared with.
    pub outline: bool,
    /// For each group its value and what it says, or nothing.
    pub bars: Vec<Option<(f64, String)>>,
}

/// Groups of bars.
pub(crate) struct GroupedBars<'a> {
    /// Text alternative.
    pub title: &'a str,
    /// In units of the view box, which are pixels at full size.
    pub width: f64,
    /// See `width`.
    pub height: f64,
    /// The groups: [`Axis::groups`].
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// In the order in which they stand in a group.
    pub series: Vec<GroupSeries>,
}

/// Width of a bar at most: a few bars must not be as wide as barns.
const BAR_MAX: f64 = 44.0;

impl GroupedBars<'_> {
    /// The chart with its legend.
    pub(crate) fn plot(&self) -> Plot {
        let mut out = String::new();
        let legend = legend(self.series.iter().map(|series| (&*series.name, series.colour, series.outline)));
        let frame = Frame { title: self.title, width: self.width, height: self.height, x: &self.x, y: &self.y };
        frame.axes(&mut out, false);
        // Bars stand on zero where the axis has one, else on its lower edge.
        let ground = frame.at((0.0, 0.0)).1;
        let wide = (frame.pitch() * 0.78 / self.series.len().max(1) as f64).min(BAR_MAX);
        for (i, series) in self.series.iter().enumerate() {
            let _ = writeln!(out, "<g class=\"c{}\">", series.colour);
            for (group, bar) in series.bars.iter().enumerate() {
                let Some((value, says)) = bar else { continue };
                let (centre, top) = frame.at((group as f64, *value));
                let left = centre + (i as f64 - self.series.len() as f64 / 2.0) * wide;
                // A bar of nothing is still a mark.
                let tall = if (ground - top).abs() < 1.0 { 1.0 } else { ground - top };
                let inset = if series.outline { 0.75 } else { (wide * 0.05).min(1.0) };
                let _ = writeln!(
                    out,
                    "<path class=\"{}\" d=\"M{:.1} {ground:.1}h{:.1}v{:.1}h-{:.1}z\"><title>{}</title></path>",
                    if series.outline { "outline" } else { "bar" },
                    left + inset,
                    (wide - 2.0 * inset).max(0.8),
                    -tall,
                    (wide - 2.0 * inset).max(0.8),
                    escape(says)
                );
            }
            out.push_str("</g>\n");
        }
        frame.plot(false, legend, out)
    }
}

/// The names of series that are drawn as areas; nothing where one name says no more than the title.
pub(super) fn legend<'a>(series: impl Iterator<Item = (&'a str, usize, bool)> + Clone) -> Vec<Key> {
    let needed = series.clone().count() > 1 || series.clone().any(|(.., outline)| outline);
    let mark = |outline: bool| if outline { Mark::Outline } else { Mark::Bar };
    series.filter(|_| needed).map(|(name, colour, outline)| Key::new(mark(outline), colour, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    fn chart(y: Axis, values: &[f64]) -> String {
        let bars = values.iter().map(|value| Some((*value, format!("it is {value}")))).collect();
        let names = (0..values.len()).map(|i| format!("g{i}")).collect();
        GroupedBars {
            title: "a title",
            width: 504.0,
            height: 300.0,
            x: Axis::groups("groups", names),
            y,
            series: vec![GroupSeries { name: "one".into(), colour: 1, outline: true, bars }],
        }
        .plot()
        .html(None)
    }

    /// The heights of the bars, upwards.
    fn heights(svg: &str) -> Vec<f64> {
        // What is before the frame is the legend.
        let chart = svg.split("class=\"plot\"").nth(1).unwrap();
        let paths = chart.split("class=\"outline\" d=\"M").skip(1);
        paths.map(|path| -path.split('v').nth(1).unwrap().split('h').next().unwrap().parse::<f64>().unwrap()).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let heights = heights(&chart(Axis::rounded(Quantity::Ratio, "y", 4.0), &[1.0, 2.0, 0.0, 4.0]));
        assert_eq!(heights.len(), 4);
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
        assert!((heights[3] / heights[0] - 4.0).abs() < 0.01, "{heights:?}");
        assert!((heights[2] - 1.0).abs() < 1e-9, "a bar of nothing is a mark: {heights:?}");
    }

    #[test]
    fn a_logarithmic_axis_has_no_zero_and_bars_stand_on_its_edge() {
        let heights = heights(&chart(Axis::log(Quantity::Ratio, "y", 1.0, 100.0), &[10.0, 100.0]));
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
    }

    #[test]
    fn bars_below_zero_hang() {
        let heights = heights(&chart(Axis::span(Quantity::Ratio, "y", -2.0, 2.0), &[1.0, -1.0]));
        assert!((heights[0] + heights[1]).abs() < 0.2, "{heights:?}");
    }
}
