//! Medians with whiskers: over an axis, or in rows where names are long.

use super::{Axis, COLOURS, Frame, Key, Mark, Plot, text};
use crate::html::escape;
use std::fmt::Write;

/// A median with its whiskers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whiskers {
    /// Where they end below.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// Where they end above.
    pub high: f64,
    /// All of it in words.
    pub says: String,
}

/// The medians of one colour.
pub(crate) struct SpreadSeries {
    /// Its name, foreign or not.
    pub name: String,
    /// Counted from 0; more than [`COLOURS`] are distinguished by their strokes.
    pub place: usize,
    /// For each place of the axis its value, or nothing.
    pub points: Vec<Option<Whiskers>>,
}

/// Medians over an axis.
pub(crate) struct SpreadChart<'a> {
    /// Text alternative.
    pub title: &'a str,
    /// In units of the view box, which are pixels at full size.
    pub width: f64,
    /// Of the chart over an axis; rows have as many as there are.
    pub height: f64,
    /// Label of the x axis.
    pub label: String,
    /// The places on it, in words, and as numbers where they have some.
    pub places: Vec<(String, Option<f64>)>,
    /// The axis of the values.
    pub y: Axis,
    /// Name of the quantity whose values distinguish the series; may be empty.
    pub of: String,
    /// In the order of the legend.
    pub series: Vec<SpreadSeries>,
}

/// Half the width of a whisker's end.
const CAP: f64 = 3.5;
/// Size of words along an axis.
const WORDS: f64 = 11.5;

impl SpreadChart<'_> {
    /// The chart with its legend: names that do not fit below an axis stand in rows.
    pub(crate) fn plot(&self) -> Plot {
        let numbers: Option<Vec<f64>> = self.places.iter().map(|(_, number)| *number).collect();
        let widest = self.places.iter().map(|(word, _)| text::width(word, WORDS)).fold(0.0, f64::max);
        let room = (self.width - 90.0) / self.places.len().max(1) as f64;
        match numbers {
            Some(numbers) if numbers.len() > 1 => self.over_numbers(&numbers),
            _ if widest + 8.0 > room => self.rows(),
            _ => self.over_groups(),
        }
    }

    fn legend(&self, lines: bool) -> Vec<Key> {
        let mark = |place: usize| if lines { Mark::Line(dash(place)) } else { Mark::Dot };
        let key = |one: &SpreadSeries| Key::new(mark(one.place), one.place % COLOURS, &one.name);
        self.series.iter().filter(|_| self.series.len() > 1).map(key).collect()
    }

    /// Over an axis of numbers: a line through the medians of a colour.
    fn over_numbers(&self, numbers: &[f64]) -> Plot {
        let (low, high) = (numbers[0], numbers[numbers.len() - 1]);
        // Sizes and depths grow by factors.
        let log = numbers.len() > 2 && low > 0.0 && high / low >= 8.0;
        let label = if log { format!("{}, log scale", self.label) } else { self.label.clone() };
        let named = numbers.iter().copied().zip(self.places.iter().map(|(word, _)| word.clone())).collect();
        let x = Axis::named_places(label, named, log);
        self.over(x, numbers, true)
    }

    fn over_groups(&self) -> Plot {
        let x = Axis::groups(self.label.clone(), self.places.iter().map(|(word, _)| word.clone()).collect());
        let at: Vec<f64> = (0..self.places.len()).map(|i| i as f64).collect();
        self.over(x, &at, false)
    }

    fn over(&self, x: Axis, at: &[f64], lines: bool) -> Plot {
        let frame = Frame { title: self.title, width: self.width, height: self.height, x, y: self.y.clone() };
        let mut out = String::new();
        frame.axes(&mut out, false);
        let several = self.series.len() as f64;
        // Side by side, so that whiskers do not hide each other.
        let each = if lines { 4.0f64.min(24.0 / several) } else { 14.0f64.min(frame.pitch() * 0.8 / several) };
        for (i, series) in self.series.iter().enumerate() {
            let aside = (i as f64 - (several - 1.0) / 2.0) * each;
            let _ = writeln!(out, "<g class=\"c{}\">", series.place % COLOURS);
            let points: Vec<(f64, &Whiskers)> =
                at.iter().zip(&series.points).filter_map(|(at, point)| Some((*at, point.as_ref()?))).collect();
            let to = |at: f64, value: f64| {
                let (x, y) = frame.at((at, value));
                (x + aside, y)
            };
            if lines && points.len() > 1 {
                let path: Vec<String> = points
                    .iter()
                    .map(|(at, point)| to(*at, point.median))
                    .map(|(x, y)| format!("{x:.1} {y:.1}"))
                    .collect();
                let _ = writeln!(out, "<path class=\"line d{}\" d=\"M{}\"/>", dash(series.place), path.join("L"));
            }
            for (at, point) in points {
                let (x, y) = to(at, point.median);
                let (low, high) = (to(at, point.low).1, to(at, point.high).1);
                let _ = writeln!(out, "<g><title>{}</title>", escape(&point.says));
                if (low - high).abs() > 0.5 {
                    let _ = writeln!(
                        out,
                        "<path class=\"whisker\" d=\"M{x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h{1:.1}M{0:.1} \
                         {high:.1}h{1:.1}\"/>",
                        x - CAP,
                        2.0 * CAP
                    );
                }
                let _ = writeln!(out, "{}</g>", dot(x, y, series.place));
            }
            out.push_str("</g>\n");
        }
        Plot { legend_title: self.of.clone(), ..frame.plot(false, self.legend(lines), out) }
    }

    /// A row for each place: its name on the left.
    fn rows(&self) -> Plot {
        const PITCH: f64 = 20.0;
        const TOP: f64 = 4.0;
        const BOTTOM: f64 = 44.0;
        let names = self.places.iter().map(|(word, _)| text::width(word, WORDS)).fold(0.0, f64::max);
        let left = (names + 12.0).min(self.width * 0.45);
        let right = self.width - 22.0;
        let each = if self.series.len() > 1 { 7.0 } else { 0.0 };
        let pitch = PITCH.max(each * self.series.len() as f64 + 8.0);
        let bottom = TOP + pitch * self.places.len() as f64;
        let height = bottom + BOTTOM;
        let x = |value: f64| left + self.y.place(value) * (right - left);
        let mut out = String::new();
        let mut taken = f64::NEG_INFINITY;
        for (value, name) in self.y.ticks() {
            let at = x(value);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom:.1}\"/>");
            let half = text::width(&name, WORDS) / 2.0;
            if !name.is_empty() && at - half > taken + 6.0 {
                taken = at + half;
                text::draw(&mut out, "tick", (at, bottom + 17.0), "middle", &name);
            }
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{left:.1} {TOP}V{bottom:.1}\"/>");
        text::draw(&mut out, "label", (right, height - 6.0), "end", &self.y.label);
        for (row, (name, _)) in self.places.iter().enumerate() {
            let middle = TOP + (row as f64 + 0.5) * pitch;
            let name = text::both_ends(name, WORDS, left - 10.0);
            text::draw(&mut out, "tick", (left - 8.0, middle + 4.0), "end", &name);
            for (i, series) in self.series.iter().enumerate() {
                let Some(point) = series.points.get(row).and_then(Option::as_ref) else { continue };
                let y = middle + (i as f64 - (self.series.len() as f64 - 1.0) / 2.0) * each;
                let (low, high) = (x(point.low), x(point.high));
                let _ =
                    writeln!(out, "<g class=\"c{}\"><title>{}</title>", series.place % COLOURS, escape(&point.says));
                if high - low > 0.5 {
                    let _ = writeln!(
                        out,
                        "<path class=\"whisker\" d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {0:.1}v{1:.1}M{high:.1} \
                         {0:.1}v{1:.1}\"/>",
                        y - CAP,
                        2.0 * CAP
                    );
                }
                let _ = writeln!(out, "{}</g>", dot(x(point.median), y, series.place));
            }
        }
        Plot {
            title: self.title.to_owned(),
            width: self.width,
            height,
            body: out,
            legend: self.legend(false),
            legend_title: self.of.clone(),
            ..Plot::default()
        }
    }
}

/// The stroke of a line whose colour comes again.
fn dash(place: usize) -> usize {
    [0, 1, 2, 3][place / COLOURS % 4]
}

fn dot(x: f64, y: f64, place: usize) -> String {
    let class = if (place / COLOURS).is_multiple_of(2) { "ring" } else { "hollow" };
    format!("<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    fn chart(places: Vec<(String, Option<f64>)>) -> String {
        let point = |low: f64, median: f64, high: f64| Some(Whiskers { low, median, high, says: format!("{median}") });
        SpreadChart {
            title: "a title",
            width: 360.0,
            height: 230.0,
            label: "knob".into(),
            places,
            y: Axis::rounded(Quantity::Ratio, "value", 10.0),
            of: String::new(),
            series: vec![SpreadSeries {
                name: "one".into(),
                place: 0,
                points: vec![point(2.0, 4.0, 6.0), point(5.0, 5.0, 5.0)],
            }],
        }
        .plot()
        .body
    }

    #[test]
    fn whiskers_reach_from_the_lowest_to_the_highest_and_are_absent_where_both_are_one() {
        // The axis runs from 0 at 186 to 10 at 26: 2 is at 154, 6 at 90.
        let over = chart(vec![("1".into(), Some(1.0)), ("2".into(), Some(2.0))]);
        assert!(over.contains(" 154.0V90.0M"), "{over}");
        assert_eq!((over.matches("whisker").count(), over.matches("<circle").count()), (1, 2));
        assert!(over.contains("class=\"line"), "numbers are joined");
        let groups = chart(vec![("a".into(), None), ("b".into(), None)]);
        assert!(!groups.contains("class=\"line") && groups.contains(" 154.0V90.0M"), "{groups}");
        let long = "a.setting=with_a_long_value another=setting";
        let rows = chart(vec![(long.into(), None), ("b".into(), None)]);
        assert!(rows.contains("…") && rows.matches("whisker").count() == 1, "{rows}");
    }
}
