//! Groups of bars or candlesticks, upright: one group for each place, one bar of it for each series.

use super::{Frame, Key, Mark, Plot};
use crate::html::escape;
use std::fmt::Write;

/// A bar or a candlestick.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// The value; of a candlestick, its median.
    pub value: f64,
    /// Of a candlestick: lowest, lower quartile, upper quartile, highest; without them only the median is drawn.
    pub spread: Option<[f64; 4]>,
    /// All of it in words.
    pub says: String,
}

/// The bars of one colour.
pub(crate) struct GroupSeries {
    /// Its name, foreign or not.
    pub name: String,
    /// Its colour, below [`super::COLOURS`].
    pub colour: usize,
    /// Only an outline, dashed: what is compared with.
    pub outline: bool,
    /// For each group its bar, or nothing.
    pub bars: Vec<Option<Bar>>,
}

/// Groups of bars.
pub(crate) struct Groups<'a> {
    /// Its axes, from left to right the groups: [`super::Axis::groups`].
    pub frame: Frame<'a>,
    /// They are candlesticks: lowest, lower quartile, median, upper quartile and highest of many measurements.
    pub are_candles: bool,
    /// In the order in which they stand in a group.
    pub series: Vec<GroupSeries>,
}

/// Width of a bar at most: a few bars must not be as wide as barns.
const BAR_MAX: f64 = 44.0;
/// Width of the box of a candlestick at most.
const BOX_MAX: f64 = 34.0;

impl Groups<'_> {
    /// The chart with its legend, where one name says more than the title.
    pub(crate) fn plot(&self) -> Plot {
        let mut out = String::new();
        let frame = &self.frame;
        frame.axes(&mut out, false);
        let several = self.series.len() as f64;
        for (i, series) in self.series.iter().enumerate() {
            let _ = writeln!(out, "<g class=\"c{}\">", series.colour);
            for (group, bar) in series.bars.iter().enumerate() {
                let Some(bar) = bar else { continue };
                let pitch = frame.pitch() / several.max(1.0);
                let aside = i as f64 - (several - 1.0) / 2.0;
                let group = group as f64;
                if self.are_candles {
                    let aside = aside * (pitch * 0.8).min(BOX_MAX * 1.5);
                    let half = (pitch * 0.8 * 0.38).min(BOX_MAX / 2.0);
                    candle(&mut out, frame, group, aside, half, bar, series.outline);
                } else {
                    let wide = (pitch * 0.78).min(BAR_MAX);
                    upright(&mut out, frame, group, aside * wide, wide, bar, series.outline);
                }
            }
            out.push_str("</g>\n");
        }
        let needed = self.series.len() > 1 || self.series.iter().any(|series| series.outline);
        let mark = |outline: bool| if outline { Mark::Outline } else { Mark::Bar };
        let key = |series: &GroupSeries| Key::new(mark(series.outline), series.colour, &series.name);
        frame.plot(false, self.series.iter().filter(|_| needed).map(key).collect(), out)
    }
}

fn upright(out: &mut String, frame: &Frame, group: f64, aside: f64, wide: f64, bar: &Bar, outline: bool) {
    // Bars stand on zero where the axis has one, else on its lower edge.
    let ground = frame.at((0.0, 0.0)).1;
    let (centre, top) = frame.at((group, bar.value));
    // A bar of nothing is still a mark.
    let tall = if (ground - top).abs() < 1.0 { 1.0 } else { ground - top };
    let inset = if outline { 0.75 } else { (wide * 0.05).min(1.0) };
    let (left, inner) = (centre + aside - wide / 2.0 + inset, (wide - 2.0 * inset).max(0.8));
    let class = if outline { "outline" } else { "bar" };
    let _ = writeln!(
        out,
        "<path class=\"{class}\" d=\"M{left:.1} {ground:.1}h{inner:.1}v{:.1}h-{inner:.1}z\">\
         <title>{}</title></path>",
        -tall,
        escape(&bar.says)
    );
}

fn candle(out: &mut String, frame: &Frame, group: f64, aside: f64, half: f64, bar: &Bar, outline: bool) {
    let at = |value: f64| frame.at((group, value)).1;
    let x = frame.at((group, 0.0)).0 + aside;
    let (left, wide) = (x - half, 2.0 * half);
    let _ = writeln!(out, "<g><title>{}</title>", escape(&bar.says));
    if let Some(spread) = bar.spread {
        let [lowest, lower, upper, highest] = spread.map(at);
        let (dash, class) = if outline { (" d1", "outline") } else { ("", "box") };
        // The whiskers stop at the box, so that an empty one stays empty.
        let _ = writeln!(
            out,
            "<path class=\"whisker{dash}\" d=\"M{x:.1} {lowest:.1}V{lower:.1}M{x:.1} {upper:.1}V{highest:.1}\"/>\
             <path class=\"whisker\" d=\"M{0:.1} {lowest:.1}h{half:.1}M{0:.1} {highest:.1}h{half:.1}\"/>\n\
             <path class=\"{class}\" d=\"M{left:.1} {lower:.1}h{wide:.1}V{upper:.1}h-{wide:.1}z\"/>",
            x - half * 0.5
        );
    }
    let median = at(bar.value);
    let _ = writeln!(out, "<path class=\"median\" d=\"M{left:.1} {median:.1}h{wide:.1}\"/></g>");
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;
    use crate::quantity::Quantity;

    fn drawn(y: Axis, names: Vec<String>, are_candles: bool, bars: Vec<Option<Bar>>) -> String {
        let frame = Frame { title: "a title", width: 504.0, height: 300.0, x: Axis::groups("groups", names), y };
        let series = vec![GroupSeries { name: "one".into(), colour: 1, outline: !are_candles, bars }];
        Groups { frame, are_candles, series }.plot().html(None)
    }

    fn chart(y: Axis, values: &[f64]) -> String {
        let bar = |value: &f64| Some(Bar { value: *value, spread: None, says: format!("it is {value}") });
        drawn(y, (0..values.len()).map(|i| format!("g{i}")).collect(), false, values.iter().map(bar).collect())
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

    #[test]
    fn a_candlestick_is_drawn_from_lowest_to_highest() {
        let candle = Bar { value: 5.0, spread: Some([4.0, 4.5, 6.0, 8.0]), says: "4 to 8".into() };
        let alone = Bar { value: 5.0, spread: None, says: "5".into() };
        let chart = |candles| {
            drawn(Axis::span(Quantity::Ratio, "y", 4.0, 8.0), vec!["one".into(), "two".into()], true, candles)
        };
        let svg = chart(vec![Some(candle), Some(alone)]);
        // The axis runs from 4 at 256 to 8 at 26.
        assert!(svg.contains(" 256.0V227.2M"), "{svg}");
        assert!(svg.contains(" 141.0V26.0\""), "{svg}");
        assert_eq!(svg.matches("class=\"box\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("class=\"median\"").count(), 2, "{svg}");
        assert!(!chart(vec![None, None]).contains("median"));
    }
}
