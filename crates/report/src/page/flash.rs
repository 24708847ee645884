//! Flash work for the host, and for the drive itself.

use super::{FULL, HALF, height};
use crate::figure::{self, Figure};
use crate::html::escape;
use crate::plot::{Segment, heat_map, histogram, stacked_bar};
use crate::record::{Flash, Record, Utilization, ratio};
use crate::table::{self, Values};
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, percent, significant};

pub(super) fn section(out: &mut String, record: &Record) {
    out.push_str("<h2 id=\"flash\">Inside the drive</h2>\n");
    match traffic(record) {
        Some(figure) => figure.html(out),
        None => out.push_str("<p class=\"muted\">Nothing was programmed into the flash.</p>\n"),
    }
    figure::all(out, utilization(record).as_slice());
    out.push_str("<div class=\"pair\">\n");
    figure::all(out, wear(record).as_slice());
    counters(out, record);
    out.push_str("</div>\n");
}

/// The figures of what the flash did.
pub(super) fn figures(record: &Record) -> Vec<Figure<'_>> {
    [traffic(record), utilization(record), wear(record)].into_iter().flatten().collect()
}

/// The parts of what was programmed, in the order of the page.
pub(crate) fn programmed(flash: &Flash) -> [(&'static str, usize, u64); 5] {
    [
        ("host", 0, flash.units_host),
        ("collected", 1, flash.units_collected),
        ("map", 2, flash.units_meta),
        ("padding", 6, flash.units_padding),
        ("rewritten", 3, flash.units_rewritten),
    ]
}

/// Bytes of all that was programmed.
pub(crate) fn programmed_bytes(flash: &Flash) -> u64 {
    flash.units_total().saturating_mul(flash.unit_bytes)
}

fn traffic(record: &Record) -> Option<Figure<'_>> {
    let flash = &record.flash;
    let bar = |width| {
        let segments: Vec<Segment> = programmed(flash)
            .into_iter()
            .map(|(name, colour, units)| Segment {
                name,
                colour,
                value: units as f64,
                says: bytes(units.saturating_mul(flash.unit_bytes)),
            })
            .collect();
        stacked_bar("What was programmed into the flash", width, &segments)
    };
    bar(FULL)?;
    let how = format!(
        "Everything programmed, by cause. Only the first part is new host data. Garbage collection copies valid data \
         out of blocks before they are erased, the mapping table records where data is, padding fills pages that could \
         not wait, and rewrites complete blocks evicted from the write buffer. Write amplification is everything \
         programmed divided by the host data that left the write buffer: {}.{}",
        significant(record.write_amplification),
        record.written_per_host_byte().map_or_else(String::new, |per_byte| {
            format!(
                " Per byte that the host wrote, {} bytes were programmed: pages overwritten in the write buffer, or \
                 still in it, cost nothing here. Write Zeroes and Deallocate count as zero host bytes.",
                significant(per_byte)
            )
        })
    );
    let parts = programmed(flash);
    let data = table::named(vec![
        ("cause", Values::Text(parts.iter().map(|(name, ..)| Some((*name).to_owned())).collect())),
        ("units", Values::Count(parts.iter().map(|(.., units)| Some(*units)).collect())),
        ("bytes", Values::Count(parts.iter().map(|(.., units)| units.checked_mul(flash.unit_bytes)).collect())),
    ]);
    let draw = move |width| bar(width).unwrap_or_default();
    Some(Figure::new("flash-writes", "What was written to the flash", how, FULL, data, draw))
}

fn utilization(record: &Record) -> Option<Figure<'_>> {
    const TITLE: &str = "How busy each die and each channel was";
    let usage = &record.utilization;
    heat_map(TITLE, FULL, usage)?;
    let dies = usage.dies.len() as f64;
    let mean = |part: fn(&crate::record::DieUse) -> f64| usage.dies.iter().map(part).sum::<f64>() / dies;
    let how = format!(
        "Percentage of time that each die was busy; the last row is each channel's bus. An even field means good \
         striping; one strongly coloured column is a hot channel. If the bus is more strongly coloured than its dies, \
         the channel is the bottleneck. On average a die read for {} of the time, programmed for {}, erased for {}.",
        percent(mean(|die| die.read_share)),
        percent(mean(|die| die.program_share)),
        percent(mean(|die| die.erase_share))
    );
    let draw = move |width| heat_map(TITLE, width, usage).unwrap_or_default();
    Some(Figure::new("utilization", "How busy channels and dies were", how, FULL, busy(usage), draw))
}

/// How busy each die was, and, without a number of a die, each channel's bus.
fn busy(usage: &Utilization) -> table::Table {
    let buses = || {
        let channels: std::collections::BTreeSet<u32> = usage.dies.iter().map(|die| die.channel).collect();
        channels.into_iter().filter_map(|channel| Some((channel, usage.channels.get(channel as usize)?)))
    };
    let dies = || usage.dies.iter();
    let number = |value: u32| Some(u64::from(value));
    let share = |of: fn(&crate::record::DieUse) -> f64| {
        Values::Float(dies().map(|die| Some(of(die))).chain(buses().map(|_| None)).collect())
    };
    let busy = dies().map(|die| Some(die.busy_share())).chain(buses().map(|(_, bus)| Some(bus.busy_share)));
    let channels = dies().map(|die| die.channel).chain(buses().map(|(channel, _)| channel));
    table::named(vec![
        ("channel", Values::Count(channels.map(number).collect())),
        ("die", Values::Count(dies().map(|die| number(die.die)).chain(buses().map(|_| None)).collect())),
        ("busy_share", Values::Float(busy.collect())),
        ("read_share", share(|die| die.read_share)),
        ("program_share", share(|die| die.program_share)),
        ("erase_share", share(|die| die.erase_share)),
    ])
}

fn wear(record: &Record) -> Option<Figure<'_>> {
    let wear = &record.wear;
    let draw = move |width| {
        let title = "Blocks by how often they were erased";
        histogram(title, width, height(width, 280.0), &wear.histogram, "erases of a block", "blocks")
    };
    draw(HALF)?;
    let mut how = format!(
        "Erase counts of blocks: from {} to {}, {} on average. A narrow distribution means even wear",
        grouped(wear.min),
        grouped(wear.max),
        significant(wear.mean)
    );
    if wear.endurance > 0 {
        let _ = write!(
            how,
            "; a block is specified for {}, so the most worn has used {}",
            grouped(wear.endurance),
            percent(ratio(wear.max as f64, wear.endurance as f64))
        );
    }
    how.push('.');
    let draw = move |width| draw(width).unwrap_or_default();
    Some(Figure::new("wear", "Wear", how, HALF, table::wear(record), draw))
}

fn counters(out: &mut String, record: &Record) {
    let flash = &record.flash;
    let mut rows = vec![
        ("pages read for the host, padding included", count(flash.reads_host as f64)),
        ("pages read by garbage collection", count(flash.reads_collected as f64)),
        ("pages of the map read", count(flash.reads_meta as f64)),
        ("program operations", count(flash.programs as f64)),
        ("blocks erased", count(flash.erases_total as f64)),
        ("of these by wear levelling", count(flash.erases_wear_levelling as f64)),
        ("superblocks garbage collected", count(record.collections as f64)),
        ("programs and erases suspended for a read", count(record.suspends as f64)),
        ("reads retried after failed correction", count(record.read_retries as f64)),
        ("uncorrectable pages", count(record.uncorrectable as f64)),
        ("blocks gone bad", count(flash.grown_bad_blocks as f64)),
        ("commands that failed", count(record.commands_failed as f64)),
    ];
    if flash.merges_total() > 0 {
        rows.push(("switch merges", count(flash.merges_switch as f64)));
        rows.push(("partial merges", count(flash.merges_partial as f64)));
        rows.push(("full merges", count(flash.merges_full as f64)));
        rows.push(("units copied by merges", count(flash.units_collected as f64)));
        rows.push(("of these for a second chance", count(flash.second_chances as f64)));
        rows.push(("of these to the isolation area", count(flash.units_isolated as f64)));
        rows.push(("full merges for the isolation area", count(flash.merges_isolation as f64)));
    }
    if let Some(cache) = &record.map_cache {
        let added = |part: u64, of: f64| format!("{} ({} of the host's)", count(part as f64), percent(of));
        rows.push(("mapping page look-ups", count(cache.lookups as f64)));
        rows.push((
            "found in the mapping cache",
            format!("{} ({})", count(cache.hits as f64), percent(cache.hit_ratio)),
        ));
        rows.push(("mapping pages read from flash", added(cache.loads, cache.added_reads_ratio)));
        rows.push((
            "mapping pages programmed",
            added(cache.written.saturating_add(cache.moved), cache.added_writes_ratio),
        ));
        rows.push(("of these moved by garbage collection", count(cache.moved as f64)));
    }
    if let Some(slc) = &record.slc {
        rows.push(("units written to the SLC cache", count(slc.units_written as f64)));
        rows.push(("units folded out of it", count(slc.units_folded as f64)));
        rows.push(("superblocks folded", count(slc.superblocks_folded as f64)));
        rows.push(("pages read from it for the host", count(slc.reads_host as f64)));
        rows.push(("superblocks in it at the end", count(slc.superblocks as f64)));
        rows.push(("superblocks it could have at the end", count(slc.superblocks_max as f64)));
    }
    if let Some(recovery) = &record.recovery {
        rows.push(("recovery after the power cut", tidewater_base::units::seconds(recovery.seconds)));
        rows.push(("pages read for it", count(recovery.pages_read as f64)));
        if let Some(lost) = recovery.pages_lost {
            rows.push(("pages of completed writes lost, not flushed", count(lost as f64)));
        }
    }
    out.push_str("<figure>\n<figcaption><h3>Counters</h3></figcaption>\n<table><tbody>\n");
    for (what, value) in rows {
        let _ = writeln!(out, "<tr><td>{}</td><td>{value}</td></tr>", escape(what));
    }
    out.push_str("</tbody></table></figure>\n");
}
