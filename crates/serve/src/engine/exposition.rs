//! Metrics of a moment: latencies, flash, memories, the log and the window.

use crate::metrics::Page;
use tidewater_gauges::{Drive, KINDS, Latencies};

/// How long commands took, from when the device read their entry.
pub(super) fn latencies(page: &mut Page, of: &Latencies) {
    let name = "tidewater_command_duration_seconds";
    page.family("histogram", name, "From reading a command to its completion.");
    for (kind, word) in KINDS.iter().enumerate() {
        for (bound, count) in of.cumulative(kind) {
            let labels = [("kind", *word), ("le", &bound.to_string())];
            page.sample(&format!("{name}_bucket"), &labels, count as f64);
        }
        page.sample(&format!("{name}_bucket"), &[("kind", word), ("le", "+Inf")], of.count(kind) as f64);
        page.sample(&format!("{name}_sum"), &[("kind", word)], of.sum_s(kind));
        page.sample(&format!("{name}_count"), &[("kind", word)], of.count(kind) as f64);
    }
}

/// Samples of one metric: the values of its label, and what each is.
fn family(page: &mut Page, kind: &str, name: &str, help: &str, label: &str, samples: &[(&str, f64)]) {
    page.family(kind, name, help);
    for (value, is) in samples {
        page.sample(name, &[(label, value)], *is);
    }
}

/// The drive.
pub(super) fn drive(page: &mut Page, drive: &Drive) {
    let Drive { units, wear, .. } = drive;
    let samples = [
        ("host", units.host),
        ("log", units.log),
        ("collection", units.collection),
        ("folding", units.folding),
        ("map", units.map),
        ("padding", units.padding),
    ];
    let help =
        "Units programmed into flash, by what for: write amplification is all of them for those of host and log.";
    let samples = samples.map(|(by, count)| (by, count as f64));
    family(page, "counter", "tidewater_flash_units_total", help, "by", &samples);
    let count = |page: &mut Page, name: &str, help: &str, value: u64| page.add("counter", name, help, value as f64);
    count(page, "tidewater_collections_total", "Superblocks collected.", drive.collections);
    count(page, "tidewater_erases_total", "Blocks erased.", drive.erases);
    count(page, "tidewater_suspensions_total", "Programs and erases suspended for reads.", drive.suspensions);
    count(page, "tidewater_program_failures_total", "Failed program operations.", drive.program_failures);
    let mut busy = [0; 4];
    for die in &drive.dies {
        busy.iter_mut().zip(die).for_each(|(sum, time)| *sum += time);
    }
    let works = ["read", "program", "erase", "suspend"];
    let seconds: Vec<(&str, f64)> = works.iter().zip(busy).map(|(work, ns)| (*work, ns as f64 / 1e9)).collect();
    let name = "tidewater_die_busy_seconds_total";
    family(page, "counter", name, "Seconds that dies were busy, all together.", "work", &seconds);
    page.add("gauge", "tidewater_dies", "Dies.", drive.dies.len() as f64);
    let [free, good] = drive.free_superblocks.map(|count| count as f64);
    page.add("gauge", "tidewater_free_superblocks", "Superblocks that can be written at once.", free);
    page.add("gauge", "tidewater_superblocks", "Superblocks that are good.", good);
    let samples = [("least", wear.least.into()), ("mean", wear.mean), ("most", wear.most.into())];
    family(page, "gauge", "tidewater_superblock_erases", "Erasures of a superblock.", "of", &samples);
    let fills = [("write_buffer", drive.write_buffer), ("read_cache", drive.read_cache)];
    let each = |of: fn(&tidewater_gauges::Fill) -> u64| fills.map(|(name, fill)| (name, of(&fill) as f64));
    family(page, "gauge", "tidewater_memory_pages", "Pages that a memory has room for.", "memory", &each(|of| of.size));
    family(page, "gauge", "tidewater_memory_used_pages", "Pages that it holds.", "memory", &each(|of| of.used));
    let help = "Pages that it holds and that are not yet on flash.";
    family(page, "gauge", "tidewater_memory_dirty_pages", help, "memory", &each(|of| of.dirty));
    log(page, drive);
    if !drive.window.is_empty() {
        let bytes: u64 = drive.window.iter().map(|entry| entry.bytes).sum();
        page.add("gauge", "tidewater_window_entries", "Ranges pinned into the byte window.", drive.window.len() as f64);
        page.add("gauge", "tidewater_window_pinned_bytes", "Bytes pinned into the byte window.", bytes as f64);
    }
}

fn log(page: &mut Page, drive: &Drive) {
    if drive.lanes.is_empty() {
        return;
    }
    let named: Vec<_> =
        drive.lanes.iter().map(|lane| (lane.function.to_string(), lane.lane.to_string(), lane)).collect();
    type Of = fn(&tidewater_gauges::Lane) -> u64;
    let all: [(&str, &str, &str, Of); 6] = [
        ("counter", "tidewater_log_appended_bytes_total", "End of the highest byte that has come.", |of| of.tail),
        ("counter", "tidewater_log_credited_bytes_total", "End of what is acknowledged.", |of| of.credit),
        ("counter", "tidewater_log_destaged_bytes_total", "End of what is on flash.", |of| of.destaged),
        ("counter", "tidewater_log_trimmed_bytes_total", "The oldest byte that can be read.", |of| of.trimmed),
        ("gauge", "tidewater_log_ring_bytes", "Size of the ring.", |of| of.ring),
        ("gauge", "tidewater_log_ring_used_bytes", "Bytes of the ring not yet on their way to flash.", |of| {
            of.ring_used
        }),
    ];
    for (kind, name, help, of) in all {
        page.family(kind, name, help);
        for (function, lane, is) in &named {
            page.sample(name, &[("function", function), ("lane", lane)], of(is) as f64);
        }
    }
}
