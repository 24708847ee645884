//! Candlesticks: lowest, lower quartile, median, upper quartile and highest of many measurements.

use super::grouped::legend;
use super::{Axis, Frame, Plot};
use crate::html::escape;
use std::fmt::Write;

/// One candlestick.
#[derive(Clone, Debug)]
pub(crate) struct Candle {
    /// The median.
    pub median: f64,
    /// Lowest, lower quartile, upper quartile, highest; without them only the median is drawn.
    pub spread: Option<[f64; 4]>,
    /// All of it in words.
    pub says: String,
}

/// The candlesticks of one colour.
pub(crate) struct CandleSeries {
    /// Its name, foreign or not.
    pub name: String,
    /// Its colour, below [`super::COLOURS`].
    pub colour: usize,
    /// Dashed, without filling: what is compared with.
    pub outline: bool,
    /// For each group its candlestick, or nothing.
    pub candles: Vec<Option<Candle>>,
}

/// Groups of candlesticks.
pub(crate) struct CandleChart<'a> {
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
    pub series: Vec<CandleSeries>,
}

/// Width of a box at most.
const BOX_MAX: f64 = 34.0;

impl CandleChart<'_> {
    /// The chart with its legend.
    pub(crate) fn plot(&self) -> Plot {
        let mut out = String::new();
        let legend = legend(self.series.iter().map(|series| (&*series.name, series.colour, series.outline)));
        let frame = Frame { title: self.title, width: self.width, height: self.height, x: &self.x, y: &self.y };
        frame.axes(&mut out, false);
        let each = frame.pitch() * 0.8 / self.series.len().max(1) as f64;
        let half = (each * 0.38).min(BOX_MAX / 2.0);
        for (i, series) in self.series.iter().enumerate() {
            let _ = writeln!(out, "<g class=\"c{}\">", series.colour);
            for (group, candle) in series.candles.iter().enumerate() {
                let Some(candle) = candle else { continue };
                let aside = (i as f64 - (self.series.len() as f64 - 1.0) / 2.0) * each.min(BOX_MAX * 1.5);
                draw(&mut out, &frame, group as f64, aside, half, candle, series.outline);
            }
            out.push_str("</g>\n");
        }
        frame.plot(false, legend, out)
    }
}

fn draw(out: &mut String, frame: &Frame, group: f64, aside: f64, half: f64, candle: &Candle, outline: bool) {
    let at = |value: f64| frame.at((group, value)).1;
    let x = frame.at((group, 0.0)).0 + aside;
    let (left, wide) = (x - half, 2.0 * half);
    let _ = writeln!(out, "<g><title>{}</title>", escape(&candle.says));
    if let Some(spread) = candle.spread {
        let [lowest, lower, upper, highest] = spread.map(at);
        let dash = if outline { " d1" } else { "" };
        // The whiskers stop at the box, so that an empty one stays empty.
        let _ = writeln!(
            out,
            "<path class=\"whisker{dash}\" d=\"M{x:.1} {lowest:.1}V{lower:.1}M{x:.1} {upper:.1}V{highest:.1}\"/>\
             <path class=\"whisker\" d=\"M{0:.1} {lowest:.1}h{1:.1}M{0:.1} {highest:.1}h{1:.1}\"/>",
            x - half * 0.5,
            half
        );
        let _ = writeln!(
            out,
            "<path class=\"{}\" d=\"M{left:.1} {lower:.1}h{wide:.1}V{upper:.1}h-{wide:.1}z\"/>",
            if outline { "outline" } else { "box" }
        );
    }
    let median = at(candle.median);
    let _ = writeln!(out, "<path class=\"median\" d=\"M{left:.1} {median:.1}h{wide:.1}\"/></g>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    #[test]
    fn a_candlestick_is_drawn_from_lowest_to_highest() {
        let candle = Candle { median: 5.0, spread: Some([4.0, 4.5, 6.0, 8.0]), says: "4 to 8".into() };
        let alone = Candle { median: 5.0, spread: None, says: "5".into() };
        let chart = |candles| CandleChart {
            title: "a title",
            width: 504.0,
            height: 300.0,
            x: Axis::groups("x", vec!["one".into(), "two".into()]),
            y: Axis::span(Quantity::Ratio, "y", 4.0, 8.0),
            series: vec![CandleSeries { name: "ours".into(), colour: 0, outline: false, candles }],
        };
        let svg = chart(vec![Some(candle), Some(alone)]).plot().html(None);
        // The axis runs from 4 at 256 to 8 at 26.
        assert!(svg.contains(" 256.0V227.2M"), "{svg}");
        assert!(svg.contains(" 141.0V26.0\""), "{svg}");
        assert_eq!(svg.matches("class=\"box\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("class=\"median\"").count(), 2, "{svg}");
        assert!(!chart(vec![None, None]).plot().html(None).contains("median"));
    }
}
