//! The channel by die heat map.

use super::{Axis, Plot};
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
        let x = left + column as f64 * wide;
        let share = ratio(share, 1.0);
        let opacity = 0.05 + 0.95 * scale.place(share);
        let _ = writeln!(
            out,
            "<path class=\"heat\" fill-opacity=\"{:.3}\" d=\"M{x:.1} \
             {y:.1}h{w:.1}v{h:.1}h-{w:.1}z\"><title>{says}</title></path>",
            opacity,
            w = wide - gap,
            h = tall - gap,
        );
        if with_text {
            // Whole percents where the busiest has two digits of them, else as many decimals as distinguish cells.
            let decimals = if busiest >= 0.095 { 0 } else { 1 + usize::from(busiest <= 0.0105) };
            let class = if opacity > ON_CELL_FROM { "oncell" } else { "cell" };
            let _ = writeln!(
                out,
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.decimals$}</text>",
                x + (wide - gap) / 2.0,
                y + (tall - gap) / 2.0 + 4.0,
                (share * 100.0).clamp(0.0, 999.0)
            );
        }
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
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{channel}</text>",
            top - 8.0
        );
    }
    for (i, die) in rows.iter().enumerate().filter(|(i, _)| named(*i, tall, 15.0)) {
        let y = top + (i as f64 + 0.5) * tall + 3.0;
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">die {die}</text>",
            left - 8.0
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">channel</text>",
        left - 8.0,
        top - 8.0
    );
    if has_buses {
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">bus</text>",
            left - 8.0,
            bus_top + tall / 2.0 + 3.0
        );
    }
    key(&mut out, width, height, &scale, "busy");
    Some(Plot { title: title.to_owned(), width, height: height.round(), body: out, ..Plot::default() })
}

/// The scale, bottom right, and what it is of.
pub(super) fn key(out: &mut String, width: f64, height: f64, scale: &Axis, what: &str) {
    const STEPS: u32 = 20;
    // On its right is room for the name of its end.
    let end = scale.ticks().last().map_or(0.0, |(_, name)| super::text::width(name, 11.5));
    let (wide, y) = (200.0f64.min(width * 0.45), height - 22.0);
    let x = width - wide - end.max(22.0) - 12.0;
    for step in 0..STEPS {
        let part = f64::from(step) / f64::from(STEPS);
        let _ = writeln!(
            out,
            "<path class=\"heat\" fill-opacity=\"{:.3}\" d=\"M{:.1} {y:.1}h{:.1}v9h-{:.1}z\"/>",
            0.05 + 0.95 * part,
            x + part * wide,
            wide / f64::from(STEPS),
            wide / f64::from(STEPS)
        );
    }
    let ticks = scale.ticks();
    let ends = [ticks.first(), ticks.last()];
    let low = ticks.first().map_or(0.0, |(_, name)| super::text::width(name, 11.5));
    for ((_, name), (at, anchor)) in ends.into_iter().flatten().zip([(x - 6.0, "end"), (x + wide + 6.0, "start")]) {
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name}</text>",
            y + 8.5
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{what}</text>",
        x - low - 14.0,
        y + 8.5
    );
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
