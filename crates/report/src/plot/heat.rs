//! The channel by die heat map.

use super::{Axis, Plot, text};
use crate::html::escape;
use crate::quantity::Quantity;
use crate::record::{Utilization, ratio};
use std::collections::BTreeSet;
use std::fmt::Write;
use tidewater_base::units::percent;

/// The opacity of a cell above which its number is written in the colour for strong cells: below and above it, a number
/// has a contrast of at least 4.5 : 1 (WCAG 2.1, 1.4.3).
pub(super) const ON_CELL_FROM: f64 = 0.75;

/// A cell for each die and a row for the channels' buses, the busier the stronger its colour. Nothing if no dies are
/// known.
pub(crate) fn heat_map(title: &str, width: f64, usage: &Utilization) -> Option<Plot> {
    if usage.dies.is_empty() {
        return None;
    }
    // By rank, not by number: numbers are foreign and may be anything.
    let columns: Vec<u32> = usage.dies.iter().map(|die| die.channel).collect::<BTreeSet<_>>().into_iter().collect();
    let rows: Vec<u32> = usage.dies.iter().map(|die| die.die).collect::<BTreeSet<_>>().into_iter().collect();
    let busiest = usage
        .dies
        .iter()
        .map(|die| die.busy_share())
        .chain(usage.channels.iter().map(|channel| channel.busy_share))
        .fold(0.0, f64::max)
        .clamp(0.01, 1.0);
    let scale = Axis::rounded(Quantity::Share, "", busiest);
    let (left, top) = (96.0, 30.0);
    let wide = (width - left) / columns.len() as f64;
    let tall = (360.0 / (rows.len() + 1) as f64).clamp(3.0, 34.0);
    let gap = if wide > 6.0 && tall > 6.0 { 2.0 } else { 0.0 };
    let bus_top = top + tall * rows.len() as f64 + 10.0;
    let has_buses = !usage.channels.is_empty();
    let height = bus_top + if has_buses { tall } else { -10.0 } + 40.0;
    let mut out = String::new();
    let with_text = wide >= 44.0 && tall >= 16.0;
    let mut cell = |column: usize, y: f64, share: f64, says: String| {
        let place = [left + column as f64 * wide, y, wide - gap, tall - gap];
        let share = ratio(share, 1.0);
        // Whole percents where the busiest has two digits of them, else as many decimals as distinguish cells.
        let decimals = if busiest >= 0.095 { 0 } else { 1 + usize::from(busiest <= 0.0105) };
        let word = with_text.then(|| format!("{:.decimals$}", (share * 100.0).clamp(0.0, 999.0)));
        self::cell(&mut out, place, scale.place(share), &says, word.as_deref());
    };
    for die in &usage.dies {
        let column = columns.partition_point(|channel| *channel < die.channel);
        let row = rows.partition_point(|number| *number < die.die);
        let says = format!(
            "channel {}, die {}: busy {}; read {}, program {}, erase {}, idle {}",
            die.channel,
            die.die,
            percent(die.busy_share()),
            percent(die.read_share),
            percent(die.program_share),
            percent(die.erase_share),
            percent(die.idle_share)
        );
        cell(column, top + row as f64 * tall, die.busy_share(), says);
    }
    for (column, channel) in columns.iter().enumerate() {
        if let Some(bus) = usage.channels.get(*channel as usize) {
            let says = format!("bus of channel {channel}: busy {}", percent(bus.busy_share));
            cell(column, bus_top, bus.busy_share, says);
        }
    }
    let named = |i: usize, size: f64, room: f64| i.is_multiple_of((room / size).ceil().max(1.0) as usize);
    for (i, channel) in columns.iter().enumerate().filter(|(i, _)| named(*i, wide, 26.0)) {
        let x = left + (i as f64 + 0.5) * wide - gap / 2.0;
        text::draw(&mut out, "tick", (x, top - 8.0), "middle", &channel.to_string());
    }
    let mut name = |y: f64, name: &str| text::draw(&mut out, "tick", (left - 8.0, y), "end", name);
    for (i, die) in rows.iter().enumerate().filter(|(i, _)| named(*i, tall, 15.0)) {
        name(top + (i as f64 + 0.5) * tall + 3.0, &format!("die {die}"));
    }
    name(top - 8.0, "channel");
    if has_buses {
        name(bus_top + tall / 2.0 + 3.0, "bus");
    }
    key(&mut out, width, height, &scale, "busy");
    Some(Plot { title: title.to_owned(), width, height: height.round(), body: out, ..Plot::default() })
}

/// A cell, the stronger the larger `part` of the scale is, with what it says and a word in it.
pub(super) fn cell(out: &mut String, [x, y, wide, tall]: [f64; 4], part: f64, says: &str, word: Option<&str>) {
    let opacity = 0.05 + 0.95 * part;
    let _ = writeln!(
        out,
        "<path class=\"heat\" fill-opacity=\"{opacity:.3}\" d=\"M{x:.1} {y:.1}h{wide:.1}v{tall:.1}h-{wide:.1}z\">\
         <title>{}</title></path>",
        escape(says)
    );
    if let Some(word) = word {
        let class = if opacity > ON_CELL_FROM { "oncell" } else { "cell" };
        text::draw(out, class, (x + wide / 2.0, y + tall / 2.0 + 4.0), "middle", word);
    }
}

/// The scale, bottom right, and what it is of.
pub(super) fn key(out: &mut String, width: f64, height: f64, scale: &Axis, what: &str) {
    const STEPS: u32 = 20;
    let ticks = scale.ticks();
    let end = |tick: Option<&(f64, String)>| tick.map_or_else(String::new, |(_, name)| name.clone());
    let (low, high) = (end(ticks.first()), end(ticks.last()));
    // On its right is room for the name of its end.
    let (wide, y) = (200.0f64.min(width * 0.45), height - 22.0);
    let x = width - wide - text::width(&high, 11.5).max(22.0) - 12.0;
    let step = wide / f64::from(STEPS);
    for i in 0..STEPS {
        let part = f64::from(i) / f64::from(STEPS);
        let (opacity, x) = (0.05 + 0.95 * part, x + part * wide);
        let _ = writeln!(
            out,
            "<path class=\"heat\" fill-opacity=\"{opacity:.3}\" d=\"M{x:.1} {y:.1}h{step:.1}v9h-{step:.1}z\"/>"
        );
    }
    text::draw(out, "tick", (x - 6.0, y + 8.5), "end", &low);
    text::draw(out, "tick", (x + wide + 6.0, y + 8.5), "start", &high);
    text::draw(out, "tick", (x - text::width(&low, 11.5) - 14.0, y + 8.5), "end", what);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of a colour (WCAG 2.1), each channel from 0 to 255.
    fn luminance(colour: [f64; 3]) -> f64 {
        let linear = |value: f64| {
            let value = value / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
    }

    #[test]
    fn numbers_in_cells_have_enough_contrast_in_both_modes() {
        let css = include_str!("../page/style.css");
        let modes: Vec<&str> = css.split(":root {").skip(1).take(2).collect();
        assert!(modes[1].contains("--heat"), "light, then dark");
        for mode in modes {
            let colour = |name: &str| {
                let (_, rest) = mode.split_once(&format!("{name}: #")).unwrap();
                [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&rest[at..at + 2], 16).unwrap()))
            };
            let (paper, heat) = (colour("--paper"), colour("--heat"));
            for step in 0..=95 {
                let opacity = 0.05 + f64::from(step) / 100.0;
                let text = colour(if opacity > ON_CELL_FROM { "--on-heat" } else { "--cell" });
                let cell = [0, 1, 2].map(|i| heat[i] * opacity + paper[i] * (1.0 - opacity));
                let (a, b) = (luminance(text), luminance(cell));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 4.5, "{contrast:.2} at an opacity of {opacity:.2}");
            }
        }
    }
}
