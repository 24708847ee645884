//! Bars: histograms, one stacked bar, and rows of horizontal bars.

use super::{Axis, Bar, Frame, GroupSeries, Groups, Key, Mark, Plot, text};
use crate::html::escape;
use crate::quantity::Quantity;
use std::fmt::Write;
use tidewater_base::units::{count, part};

/// A part of a stacked bar.
pub(crate) struct Segment<'a> {
    pub name: &'a str,
    pub colour: usize,
    pub value: f64,
    /// `value` in words.
    pub says: String,
}

/// One bar that shows how a whole is made up. Nothing if there is no whole.
pub(crate) fn stacked_bar(title: &str, width: f64, segments: &[Segment]) -> Option<Plot> {
    let whole: f64 = segments.iter().map(|segment| segment.value.max(0.0)).sum();
    if !(whole > 0.0 && whole.is_finite()) {
        return None;
    }
    let mut out = String::new();
    let mut x = 0.0;
    for segment in segments.iter().filter(|segment| segment.value > 0.0) {
        let share = segment.value / whole;
        let wide = share * width;
        let _ = writeln!(
            out,
            "<g class=\"c{}\"><path class=\"bar\" d=\"M{x:.2} 2h{wide:.2}v42h-{wide:.2}z\"><title>{}: {} \
             ({})</title></path>",
            segment.colour,
            escape(segment.name),
            escape(&segment.says),
            escape(&part(share))
        );
        let words = format!("{} {}", segment.name, part(share));
        if wide > 9.2 * words.chars().count() as f64 {
            text::draw(&mut out, "inbar", (x + wide / 2.0, 28.0), "middle", &words);
        }
        out.push_str("</g>\n");
        x += wide;
    }
    let key = |segment: &Segment| Key {
        mark: Mark::Bar,
        colour: segment.colour,
        name: segment.name.to_owned(),
        figure: part(segment.value.max(0.0) / whole),
        more: segment.says.clone(),
    };
    let legend = segments.iter().map(key).collect();
    let title = title.to_owned();
    Some(Plot { title, width, height: 46.0, body: out, legend, legend_below: true, ..Plot::default() })
}

/// A plot without a legend.
fn plain(title: &str, width: f64, height: f64, body: String) -> Plot {
    Plot { title: title.to_owned(), width, height, body, ..Plot::default() }
}

/// A histogram of `(value, how many)`, grouped into at most some fifty bars. `noun` names what is counted.
pub(crate) fn histogram(
    title: &str,
    width: f64,
    height: f64,
    values: &[(u64, u64)],
    label: &'static str,
    noun: &'static str,
) -> Option<Plot> {
    const BARS_MAX: u64 = 48;
    let (low, high) = (values.iter().map(|v| v.0).min()?, values.iter().map(|v| v.0).max()?);
    let group = (high.abs_diff(low) / BARS_MAX).saturating_add(1);
    let group = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000].into_iter().find(|g| *g >= group).unwrap_or(group);
    let first = low / group * group;
    let mut heights = vec![0u64; ((high - first) / group + 1) as usize];
    for &(value, many) in values {
        let bar = &mut heights[((value - first) / group) as usize];
        *bar = bar.saturating_add(many);
    }
    let most = heights.iter().copied().max().unwrap_or(0);
    let starts = || (0..heights.len() as u64).map(|i| first + i * group);
    let bar = |(from, &many): (u64, &u64)| {
        let range = if group == 1 { from.to_string() } else { format!("{from} to {}", from.saturating_add(group - 1)) };
        let says = format!("{range}: {} {noun}", count(many as f64));
        (many > 0).then_some(Bar { value: many as f64, spread: None, says })
    };
    let bars = starts().zip(&heights).map(bar).collect();
    // Equally far apart, and with room for four digits.
    let every = (52.0 * heights.len() as f64 / width).ceil() as usize;
    let name = |(i, from): (usize, u64)| if i.is_multiple_of(every) { from.to_string() } else { String::new() };
    let x = Axis::groups(label, starts().enumerate().map(name).collect());
    let frame = Frame { title, width, height, x, y: Axis::rounded(Quantity::Count, noun, most as f64) };
    let series = vec![GroupSeries { name: noun.to_owned(), colour: 0, outline: false, bars }];
    Some(Groups { frame, are_candles: false, series }.plot())
}

/// A row of stacked bars.
pub(crate) struct Row<'a> {
    /// Its name, foreign or not.
    pub name: String,
    /// Its parts; every row has the same.
    pub segments: Vec<Segment<'a>>,
    /// The text right of it.
    pub says: String,
}

/// How much of a row of bars is for names.
const NAMES: f64 = 0.34;
/// Size of the words in a row, with room for fonts of the page's list that are wider than Inter.
const WORDS: f64 = 14.5;

/// Stacked bars, one a row, on one scale.
pub(crate) fn stacked_rows(title: &str, width: f64, rows: &[Row]) -> Plot {
    let whole = |row: &Row| row.segments.iter().map(|segment| segment.value.max(0.0)).sum::<f64>();
    let longest = rows.iter().map(whole).fold(0.0, f64::max);
    // Many rows are lower, down to what can still be read.
    let pitch = (720.0 / rows.len().max(1) as f64).clamp(16.0, 28.0);
    let room = rows.iter().map(|row| text::width(&row.says, WORDS)).fold(0.0, f64::max);
    let names = rows.iter().map(|row| text::width(&row.name, WORDS)).fold(0.0, f64::max);
    let left = (names + 12.0).min(width * NAMES);
    let full = (width - left - room - 16.0).max(20.0);
    let mut out = String::new();
    for (i, row) in rows.iter().enumerate() {
        let (y, tall) = (2.0 + i as f64 * pitch, pitch - 5.0);
        let (middle, name) = (y + tall / 2.0 + 4.5, text::both_ends(&row.name, WORDS, left - 10.0));
        text::draw(&mut out, "name", (left - 8.0, middle), "end", &name);
        let mut x = left;
        for segment in row.segments.iter().filter(|segment| segment.value > 0.0) {
            let wide = full * (segment.value / longest).clamp(0.0, 1.0);
            let _ = writeln!(
                out,
                "<g class=\"c{}\"><path class=\"bar\" d=\"M{x:.2} {y:.1}h{wide:.2}v{tall:.1}h-{wide:.2}z\">\
                 <title>{}: {} {}</title></path></g>",
                segment.colour,
                escape(&row.name),
                escape(segment.name),
                escape(&segment.says)
            );
            x += wide;
        }
        text::draw(&mut out, "value", (x + 8.0, middle), "", &row.says);
    }
    let segments = rows.first().map(|row| &row.segments[..]).unwrap_or_default();
    let shown = |i: &usize| rows.iter().any(|row| row.segments.get(*i).is_some_and(|segment| segment.value > 0.0));
    let key = |i: usize| Key::new(Mark::Bar, segments[i].colour, segments[i].name);
    let legend = (0..segments.len()).filter(shown).map(key).collect();
    Plot { legend, ..plain(title, width, pitch * rows.len() as f64 + 4.0, out) }
}

/// A row of a bar chart.
pub(crate) struct NamedBar<'a> {
    pub name: &'a str,
    pub colour: usize,
    pub value: f64,
    /// `value` in words.
    pub says: String,
    /// How it differs from the first bar; may be empty.
    pub change: String,
    /// The best of all.
    pub best: bool,
}

/// Horizontal bars from 0, one a row, each with its name and value.
pub(crate) fn horizontal_bars(title: &str, width: f64, bars: &[NamedBar]) -> Plot {
    const PITCH: f64 = 30.0;
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let height = PITCH * bars.len() as f64 + 4.0;
    let mut out = String::new();
    let names = bars.iter().map(|bar| text::width(bar.name, WORDS)).fold(0.0, f64::max);
    let left = (names + 12.0).min(width * NAMES);
    // The best is in bold, which is wider.
    let says = |bar: &NamedBar| text::width(&format!("{} ★ {}", bar.says, bar.change), WORDS) * 1.1 + 18.0;
    let full = (width - left - bars.iter().map(says).fold(0.0, f64::max)).max(20.0);
    for (i, bar) in bars.iter().enumerate() {
        let y = 2.0 + i as f64 * PITCH;
        let wide = (full * (bar.value / most).clamp(0.0, 1.0)).max(1.0);
        let wide = if wide.is_finite() { wide } else { 1.0 };
        let short = text::both_ends(bar.name, WORDS, left - 10.0);
        let (class, mark) = if bar.best { ("value best", " ★") } else { ("value", "") };
        let _ = writeln!(
            out,
            "<g class=\"c{}\"><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <path class=\"bar\" d=\"M{left:.1} {:.1}h{wide:.1}v20h-{wide:.1}z\"><title>{}: {}</title></path>\
             <text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}{mark}<tspan class=\"change\" \
             dx=\"6\">{}</tspan></text></g>",
            bar.colour,
            left - 8.0,
            y + 19.0,
            escape(&short),
            y + 4.0,
            escape(bar.name),
            escape(&bar.says),
            left + wide + 8.0,
            y + 19.0,
            escape(&bar.says),
            escape(&bar.change)
        );
    }
    plain(title, width, height, out)
}
