//! Bars: histograms, one stacked bar, and rows of horizontal bars.

use super::{Axis, close_plot, open_plot};
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

/// One bar that shows how a whole is made up, as long as the whole is of `longest`. Empty if there is no whole.
pub(crate) fn stacked_bar(title: &str, width: f64, segments: &[Segment], longest: f64) -> String {
    let whole: f64 = segments.iter().map(|segment| segment.value.max(0.0)).sum();
    if !(whole > 0.0 && whole.is_finite()) {
        return String::new();
    }
    let mut out = String::new();
    open_plot(&mut out, title, width, 46.0, "");
    let bar_width = width * (whole / longest).clamp(0.0, 1.0);
    let mut x = 0.0;
    for segment in segments.iter().filter(|segment| segment.value > 0.0) {
        let share = segment.value / whole;
        let wide = share * bar_width;
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
    close_plot(&mut out);
    out.push_str("<ul class=\"legend\">");
    for segment in segments {
        let _ = write!(
            out,
            "<li><svg class=\"key c{}\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><path class=\"bar\" \
             d=\"M0 0h12v12h-12z\"/></svg>{} <b>{}</b> <span class=\"muted\">{}</span></li>",
            segment.colour,
            escape(segment.name),
            escape(&part(segment.value.max(0.0) / whole)),
            escape(&segment.says)
        );
    }
    out.push_str("</ul>\n");
    out
}

/// A histogram of `(value, how many)`, grouped into at most `bars_max` bars. `noun` names what is counted.
pub(crate) fn histogram(
    title: &str,
    width: f64,
    height: f64,
    values: &[(u64, u64)],
    label: &str,
    noun: &str,
) -> String {
    const BARS_MAX: u64 = 48;
    let (Some(low), Some(high)) = (values.iter().map(|v| v.0).min(), values.iter().map(|v| v.0).max()) else {
        return String::new();
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
    open_plot(&mut out, title, width, height, "");
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
    close_plot(&mut out);
    out
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
pub(crate) fn horizontal_bars(title: &str, width: f64, bars: &[Bar]) -> String {
    const PITCH: f64 = 30.0;
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let height = PITCH * bars.len() as f64 + 4.0;
    let mut out = String::new();
    open_plot(&mut out, title, width, height, "");
    // A third of the row is for the name, a quarter for the value.
    let (left, full) = (width * 0.34, width * 0.42);
    let letters = (left / 7.0) as usize;
    for (i, bar) in bars.iter().enumerate() {
        let y = 2.0 + i as f64 * PITCH;
        let wide = (full * (bar.value / most).clamp(0.0, 1.0)).max(1.0);
        let wide = if wide.is_finite() { wide } else { 1.0 };
        let short: String = if bar.name.chars().count() > letters {
            bar.name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
        } else {
            bar.name.to_owned()
        };
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
    close_plot(&mut out);
    out
}
