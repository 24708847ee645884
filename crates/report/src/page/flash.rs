//! Flash work for the host, and for the drive itself.

use super::{FULL, HALF, height};
use crate::document::{Cell, Table};
use crate::figure::Figure;
use crate::html::Page;
use crate::plot::{Segment, heat_map, histogram, stacked_bar};
use crate::record::{Flash, Record, Utilization, ratio};
use crate::table::{self, Values};
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, percent, seconds, significant};

pub(super) fn section(page: &mut Page, record: &Record) {
    page.section("flash", "Inside the drive");
    match traffic(record) {
        Some(figure) => page.figures([&figure]),
        None => page.muted("Nothing was programmed into the flash."),
    }
    page.figures(&utilization(record));
    page.html("<div class=\"pair\">\n");
    page.figures(&wear(record));
    page.html("<figure>\n<figcaption><h3>Counters</h3></figcaption>\n");
    page.table(&Table::default().with(counters(record)));
    page.html("</figure>\n</div>\n");
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

/// Counters with their values, a row each.
fn counters(record: &Record) -> Vec<Vec<Cell>> {
    let flash = &record.flash;
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut words = |title: &str, value: String| rows.push(vec![title.into(), value.into()]);
    let all = [
        ("pages read for the host, padding included", flash.reads_host),
        ("pages read by garbage collection", flash.reads_collected),
        ("pages of the map read", flash.reads_meta),
        ("program operations", flash.programs),
        ("blocks erased", flash.erases_total),
        ("of these by wear levelling", flash.erases_wear_levelling),
        ("superblocks garbage collected", record.collections),
        ("programs and erases suspended for a read", record.suspends),
        ("reads retried after failed correction", record.read_retries),
        ("uncorrectable pages", record.uncorrectable),
        ("blocks gone bad", flash.grown_bad_blocks),
        ("commands that failed", record.commands_failed),
    ];
    let merges = [
        ("switch merges", flash.merges_switch),
        ("partial merges", flash.merges_partial),
        ("full merges", flash.merges_full),
        ("units copied by merges", flash.units_collected),
        ("of these for a second chance", flash.second_chances),
        ("of these to the isolation area", flash.units_isolated),
        ("full merges for the isolation area", flash.merges_isolation),
    ];
    let merges = merges.into_iter().filter(|_| flash.merges_total() > 0);
    all.into_iter().chain(merges).for_each(|(title, value)| words(title, count(value as f64)));
    if let Some(cache) = &record.map_cache {
        let with = |number: u64, share: f64, of: &str| format!("{} ({}{of})", count(number as f64), percent(share));
        let programmed = cache.written.saturating_add(cache.moved);
        words("mapping page look-ups", count(cache.lookups as f64));
        words("found in the mapping cache", with(cache.hits, cache.hit_ratio, ""));
        words("mapping pages read from flash", with(cache.loads, cache.added_reads_ratio, " of the host's"));
        words("mapping pages programmed", with(programmed, cache.added_writes_ratio, " of the host's"));
        words("of these moved by garbage collection", count(cache.moved as f64));
    }
    if let Some(slc) = &record.slc {
        for (title, value) in [
            ("units written to the SLC cache", slc.units_written),
            ("units folded out of it", slc.units_folded),
            ("superblocks folded", slc.superblocks_folded),
            ("pages read from it for the host", slc.reads_host),
            ("superblocks in it at the end", slc.superblocks),
            ("superblocks it could have at the end", slc.superblocks_max),
        ] {
            words(title, count(value as f64));
        }
    }
    if let Some(recovery) = &record.recovery {
        words("recovery after the power cut", seconds(recovery.seconds));
        words("pages read for it", count(recovery.pages_read as f64));
        if let Some(lost) = recovery.pages_lost {
            words("pages of completed writes lost, not flushed", count(lost as f64));
        }
    }
    rows
}
