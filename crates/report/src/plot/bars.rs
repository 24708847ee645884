//! Bars: histograms, one stacked bar, and rows of horizontal bars.

use super::{Axis, Key, Mark, Plot, text};
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
            let _ = writeln!(
                out,
                "<text class=\"inbar\" x=\"{:.1}\" y=\"28\" text-anchor=\"middle\">{}</text>",
                x + wide / 2.0,
                escape(&words)
            );
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

/// A histogram of `(value, how many)`, grouped into at most `bars_max` bars. `noun` names what is counted.
pub(crate) fn histogram(
    title: &str,
    width: f64,
    height: f64,
    values: &[(u64, u64)],
    label: &str,
    noun: &str,
) -> Option<Plot> {
    const BARS_MAX: u64 = 48;
    let (Some(low), Some(high)) = (values.iter().map(|v| v.0).min(), values.iter().map(|v| v.0).max()) else {
        return None;
    };
    let span = high.abs_diff(low);
    let group = (span / BARS_MAX).saturating_add(1);
    let group = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000].into_iter().find(|g| *g >= group).unwrap_or(group);
    let first = low / group * group;
    let bars = ((high - first) / group + 1) as usize;
    let mut heights = vec![0u64; bars];
    for &(value, many) in values {
        let bar = &mut heights[((value - first) / group) as usize];
        *bar = bar.saturating_add(many);
    }
    let most = heights.iter().copied().max().unwrap_or(0);
    let (left, right, top, bottom) = (62.0, width - 18.0, 26.0, height - 44.0);
    let y = Axis::rounded(Quantity::Count, "", most as f64);
    // A few bars must not be as wide as barns.
    let pitch = ((right - left) / bars as f64).min(64.0);
    let start = left + ((right - left) - pitch * bars as f64) / 2.0;
    let mut out = String::new();
    for (value, name) in y.ticks() {
        let at = bottom - y.place(value) * (bottom - top);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{left} {at:.1}H{right:.1}\"/>");
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            left - 8.0,
            at + 4.0
        );
    }
    let named_every = (52.0 / pitch).ceil().max(1.0) as usize;
    for (i, &many) in heights.iter().enumerate() {
        let (from, x) = (first + i as u64 * group, start + i as f64 * pitch);
        if many > 0 {
            let (wide, tall) = ((pitch * 0.86).max(0.8), (y.place(many as f64) * (bottom - top)).max(1.0));
            let range =
                if group == 1 { from.to_string() } else { format!("{from} to {}", from.saturating_add(group - 1)) };
            let _ = writeln!(
                out,
                "<g class=\"c0\"><path class=\"bar\" d=\"M{:.1} {bottom:.1}h{wide:.1}v-{tall:.1}h-{wide:.1}z\">\
                 <title>{range}: {} {}</title></path></g>",
                x + (pitch - wide) / 2.0,
                count(many as f64),
                escape(noun)
            );
        }
        if i % named_every == 0 {
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{from}</text>",
                x + pitch / 2.0,
                bottom + 17.0
            );
        }
    }
    let _ = writeln!(out, "<path class=\"axis\" d=\"M{left} {bottom:.1}H{right:.1}\"/>");
    let _ = writeln!(out, "<text class=\"label\" x=\"2\" y=\"12\">{}</text>", escape(noun));
    let _ = writeln!(
        out,
        "<text class=\"label\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        height - 6.0,
        escape(label)
    );
    Some(plain(title, width, height, out))
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
        let _ = writeln!(
            out,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + tall / 2.0 + 4.5,
            escape(&text::both_ends(&row.name, WORDS, left - 10.0))
        );
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
        let _ = writeln!(
            out,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 8.0,
            y + tall / 2.0 + 4.5,
            escape(&row.says)
        );
    }
    let segments = rows.first().map(|row| &row.segments[..]).unwrap_or_default();
    let shown = |i: &usize| rows.iter().any(|row| row.segments.get(*i).is_some_and(|segment| segment.value > 0.0));
    let key = |i: usize| Key::new(Mark::Bar, segments[i].colour, segments[i].name);
    let legend = (0..segments.len()).filter(shown).map(key).collect();
    Plot { legend, ..plain(title, width, pitch * rows.len() as f64 + 4.0, out) }
}

/// A row of a bar chart.
pub(crate) struct Bar<'a> {
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
pub(crate) fn horizontal_bars(title: &str, width: f64, bars: &[Bar]) -> Plot {
    const PITCH: f64 = 30.0;
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let height = PITCH * bars.len() as f64 + 4.0;
    let mut out = String::new();
    let names = bars.iter().map(|bar| text::width(bar.name, WORDS)).fold(0.0, f64::max);
    let left = (names + 12.0).min(width * NAMES);
    // The best is in bold, which is wider.
    let says = |bar: &Bar| text::width(&format!("{} ★ {}", bar.says, bar.change), WORDS) * 1.1 + 18.0;
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
