//! What the flash did for the host, and what it did for itself.

use super::{FULL, HALF, figure};
use crate::html::escape;
use crate::plot::{Segment, heat_map, histogram, stacked_bar};
use crate::record::{Flash, Record, Utilization, ratio};
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, percent, significant};

pub(super) fn section(out: &mut String, record: &Record) {
    out.push_str("<h2 id=\"flash\">Inside the drive</h2>\n");
    traffic(out, record);
    utilization(out, &record.utilization);
    out.push_str("<div class=\"pair\">\n");
    wear(out, record);
    counters(out, record);
    out.push_str("</div>\n");
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

fn traffic(out: &mut String, record: &Record) {
    let flash = &record.flash;
    let segments: Vec<Segment> = programmed(flash)
        .into_iter()
        .map(|(name, colour, units)| Segment {
            name,
            colour,
            value: units as f64,
            says: bytes(units.saturating_mul(flash.unit_bytes)),
        })
        .collect();
    let svg = stacked_bar("What was programmed into the flash", FULL, &segments, flash.units_total() as f64);
    if svg.is_empty() {
        out.push_str("<p class=\"muted\">Nothing was programmed into the flash.</p>\n");
        return;
    }
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
    figure(out, "What was written to the flash", &how, &svg);
}

fn utilization(out: &mut String, usage: &Utilization) {
    let svg = heat_map("How busy each die and each channel was", FULL, usage);
    if svg.is_empty() {
        return;
    }
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
    figure(out, "How busy channels and dies were", &how, &svg);
}

fn wear(out: &mut String, record: &Record) {
    let wear = &record.wear;
    let svg =
        histogram("Blocks by how often they were erased", HALF, 280.0, &wear.histogram, "erases of a block", "blocks");
    if svg.is_empty() {
        return;
    }
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
    figure(out, "Wear", &how, &svg);
}

fn counters(out: &mut String, record: &Record) {
    let flash = &record.flash;
    let mut rows = vec![
        ("pages read for the host", count(flash.reads_host as f64)),
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
