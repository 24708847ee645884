//! A record as a screenful of text.

use crate::document::{Cell, Table};
use crate::page::{measured, operation, programmed, programmed_bytes};
use crate::record::{Cache, Latency, Record, ratio};
use std::fmt::Write;
use tidewater_base::units::{
    bytes, count, grouped, mib_per_second, micros, part, percent, plural_exact, printable, seconds, significant,
};

/// About twenty aligned lines that say how the run went.
pub fn summary(record: &Record) -> String {
    let mut out = String::new();
    if record.partial {
        let why = record.partial_reason.as_deref().unwrap_or("stopped before its end");
        let _ = writeln!(out, "PARTIAL: {}. The figures cover only the requests completed by then.\n", printable(why));
    }
    let mut line = |what: &str, text: String| {
        let _ = writeln!(out, "{what:<20} {}", printable(&text));
    };
    let (workload, profile) = (&record.workload, &record.profile);
    line(
        "workload",
        if workload.description.is_empty() { workload.source.clone() } else { workload.description.clone() },
    );
    let flash = if record.flash.raw_bytes == 0 {
        String::new()
    } else {
        format!(" of {} flash", bytes(record.flash.raw_bytes))
    };
    line("drive", format!("{}, {}{flash}: {}", profile.name, bytes(record.capacity_bytes), profile.description));
    line(
        "requests",
        format!("{} in {} of the drive's time", grouped(record.requests), seconds(record.simulated_seconds)),
    );
    line("IOPS", count(record.iops));
    let bandwidth = &record.bandwidth_mib_s;
    line(
        "bandwidth",
        format!(
            "read {} ({}), write {} ({})",
            mib_per_second(bandwidth.read),
            bytes(record.bytes_read),
            mib_per_second(bandwidth.write),
            bytes(record.bytes_written)
        ),
    );
    latencies(&mut out, record);
    let mut line = |what: &str, text: String| {
        let _ = writeln!(out, "{what:<20} {}", printable(&text));
    };
    if record.flash.units_total() > 0 {
        let whole = record.flash.units_total() as f64;
        let parts: Vec<String> = programmed(&record.flash)
            .into_iter()
            .filter(|(.., units)| *units > 0)
            .map(|(name, _, units)| format!("{name} {}", part(ratio(units as f64, whole))))
            .collect();
        line("flash written", format!("{}: {}", bytes(programmed_bytes(&record.flash)), parts.join(", ")));
        let per_byte = record.written_per_host_byte();
        let per_byte = per_byte
            .map_or_else(String::new, |ratio| format!("; {} bytes of flash per byte of the host", significant(ratio)));
        line(
            "write amplification",
            format!("{} per unit that left the write buffer{per_byte}", significant(record.write_amplification)),
        );
    }
    let wear = &record.wear;
    line(
        "erases",
        format!(
            "{} in {}; wear {} to {}, mean {}",
            plural_exact(record.erases, "block"),
            plural_exact(record.collections, "collection"),
            grouped(wear.min),
            grouped(wear.max),
            significant(wear.mean)
        ),
    );
    let flash = &record.flash;
    if flash.merges_total() > 0 {
        line(
            "merges",
            format!(
                "{} switch, {} partial, {} full; {} copied",
                grouped(flash.merges_switch),
                grouped(flash.merges_partial),
                grouped(flash.merges_full),
                plural_exact(flash.units_collected, "unit")
            ),
        );
    }
    if let Some(slc) = &record.slc {
        line(
            "SLC cache",
            format!(
                "{} of the host's units, {} folded, {} read, {} full in the end",
                percent(ratio(slc.units_written as f64, flash.units_host as f64)),
                grouped(slc.units_folded),
                plural_exact(slc.reads_host, "page"),
                percent(slc.fill)
            ),
        );
    }
    let destage = &record.destage_length_pages;
    for (name, cache) in [("write buffer", &record.write_buffer), ("read cache", &record.read_cache)] {
        if let Some(mut text) = cached(cache) {
            if name == "write buffer" && destage.count > 0 {
                let mean = significant(destage.mean);
                let _ = write!(text, ", destages of {mean} page{}", if mean == "1" { "" } else { "s" });
                for (pages, what) in [(cache.pages_merged, "merged"), (cache.padding_reads, "read for padding")] {
                    if pages > 0 {
                        let _ = write!(text, ", {} {what}", grouped(pages));
                    }
                }
            }
            line(name, text);
        }
    }
    if let Some(cache) = &record.map_cache {
        line(
            "mapping cache",
            format!(
                "{} hits ({} of {} at hand), {} read, {} programmed",
                percent(cache.hit_ratio),
                grouped(cache.pages_held),
                plural_exact(cache.pages, "page"),
                plural_exact(cache.loads, "page"),
                grouped(cache.written.saturating_add(cache.moved))
            ),
        );
    }
    let usage = &record.utilization;
    if !usage.dies.is_empty() {
        let busiest = usage.channels.iter().map(|channel| channel.busy_share).fold(0.0, f64::max);
        let dies = ratio(usage.dies.iter().map(|die| die.busy_share()).sum(), usage.dies.len() as f64);
        line("busy", format!("dies {} on average, the busiest channel {}", percent(dies), percent(busiest)));
    }
    let errors = [
        (record.read_retries, "read", "repeated"),
        (record.uncorrectable, "page", "unreadable"),
        (record.flash.grown_bad_blocks, "block", "gone bad"),
        (record.commands_failed, "command", "failed"),
    ];
    if errors.iter().any(|(times, ..)| *times > 0) {
        let words: Vec<String> = errors
            .iter()
            .filter(|(times, ..)| *times > 0)
            .map(|(times, noun, what)| format!("{} {what}", plural_exact(*times, noun)))
            .collect();
        line("errors", words.join(", "));
    }
    if let Some(recovery) = &record.recovery {
        let mut text = format!("{}, {} read", seconds(recovery.seconds), plural_exact(recovery.pages_read, "page"));
        if let Some(lost) = recovery.pages_lost {
            let _ = write!(text, ", {} of completed writes lost that no flush had covered", plural_exact(lost, "page"));
        }
        line("recovery", text);
    }
    line(
        "simulation",
        format!(
            "{} ({} of processor time), {} events per request",
            seconds(record.wall_seconds),
            seconds(record.user_cpu_seconds),
            significant(record.events_per_request)
        ),
    );
    for warning in &record.warnings {
        line("warning", warning.clone());
    }
    out
}

fn latencies(out: &mut String, record: &Record) {
    let titles = ["requests", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let row = |(name, latency): (&str, &Latency)| {
        let times = [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(micros);
        let first = [format!("  {}", operation(name)), count(latency.count as f64)];
        first.into_iter().chain(times).map(Cell::from).collect()
    };
    let table = Table { least: (20, 8), ..Table::new("latency", titles) }.with(measured(record).into_iter().map(row));
    if !table.rows.is_empty() {
        let _ = writeln!(out, "\n{}", table.text(usize::MAX));
    }
}

fn cached(cache: &Cache) -> Option<String> {
    (!cache.policy.is_empty() && cache.policy != "none")
        .then(|| format!("{} hits ({}, {})", percent(cache.hit_ratio), cache.policy, bytes(cache.size_bytes)))
}
