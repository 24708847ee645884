//! A record as one HTML page that needs nothing else: no script, no network, no other file.

mod flash;
mod latency;
mod setup;
mod time;

use crate::document::{Cell, Table};
use crate::figure::Figure;
use crate::html::{Page, Tile, escape};
use crate::record::{Latency, Record, ratio};
use crate::table;
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, mib_per_second, micros, percent, plural, seconds, significant};

pub(crate) use flash::{programmed, programmed_bytes};
pub(crate) use latency::{Curve, Words, pair};
pub(crate) use setup::{SAME, command, words_of};

/// The height of a plot that is `most` high on the page, where it is `width` wide: narrower ones are lower, too, as far
/// as axes leave room.
pub(crate) fn height(width: f64, most: f64) -> f64 {
    most.min((width * 0.62).round().max(170.0))
}

/// Width of a plot over the whole page, in pixels.
pub(crate) const FULL: f64 = 1044.0;
/// Width of one of two plots side by side, in pixels.
pub(crate) const HALF: f64 = 504.0;

/// The page of `record`.
pub fn page(record: &Record) -> String {
    let mut page = header(record);
    page.tiles(tiles(record));
    latency::section(&mut page, record);
    time::section(&mut page, record);
    flash::section(&mut page, record);
    buffers(&mut page, record);
    setup::section(&mut page, record);
    page.finish(&format!("{} – {} – tidewater", headline(record), record.profile.name))
}

/// The run's source, in a few words.
fn headline(record: &Record) -> String {
    let source = &record.workload.source;
    // A path is long, and its end says most.
    let name = match record.workload.kind {
        crate::record::WorkloadKind::Job => source.as_str(),
        _ => source.rsplit(['/', '\\']).next().unwrap_or(source),
    };
    if name.is_empty() { "a run".to_owned() } else { name.to_owned() }
}

/// An operation in words: `write_zeroes` is `write zeroes`.
pub(crate) fn operation(name: &str) -> String {
    name.replace('_', " ")
}

/// The operations of a record with their latency, those that most ask for first; `all` is none of them.
pub(crate) fn measured(record: &Record) -> Vec<(&str, &Latency)> {
    let mut measured: Vec<(&str, &Latency)> = record
        .latency_us
        .iter()
        .map(|(name, latency)| (name.as_str(), latency))
        .filter(|(name, latency)| latency.count > 0 && *name != "all")
        .collect();
    measured.sort_by_key(|(name, _)| operation_rank(name));
    measured
}

/// The place of an operation in lists: reads, writes, flushes, and the others by name.
pub(crate) fn operation_rank(name: &str) -> usize {
    ["read", "write", "flush"].iter().position(|known| *known == name).unwrap_or(3)
}

/// The colour of an operation, the same in every plot.
pub(crate) fn operation_colour(name: &str) -> usize {
    match name {
        "read" => 0,
        "write" => 1,
        "flush" => 2,
        "deallocate" => 3,
        "write_zeroes" => 4,
        "compare" => 5,
        "verify" => 7,
        _ => 6,
    }
}

/// Every figure of the page, in its order.
pub fn figures(record: &Record) -> Vec<Figure<'_>> {
    let mut all = latency::figures(record);
    all.extend(time::figures(record));
    all.extend(flash::figures(record));
    all.extend(destage(record));
    all
}

fn header(record: &Record) -> Page {
    let workload = &record.workload;
    let mut lead = String::new();
    if !workload.description.is_empty() {
        let _ = write!(lead, "{}<br>", escape(&workload.description));
    }
    let name = if record.profile.name.is_empty() { "without a name" } else { &record.profile.name };
    let _ = write!(lead, "On the drive <b>{}</b>", escape(name));
    if record.capacity_bytes > 0 {
        let _ = write!(lead, ", {} usable", bytes(record.capacity_bytes));
    }
    if !record.profile.description.is_empty() {
        let _ = write!(lead, ": {}", escape(&record.profile.description));
    }
    let mut page = Page::new("a workload on a simulated drive", &headline(record), &lead);
    if record.partial {
        let why = record.partial_reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        page.banner(
            "PARTIAL",
            &format!(
                "The run was stopped before its end{why}. Every figure covers only the requests completed by then: {}.",
                plural(record.requests, "request")
            ),
        );
    }
    if record.requests == 0 {
        page.html("<div class=\"notes\">The workload had no requests: there is nothing to plot.</div>\n");
    }
    page.notes(&record.warnings);
    page
}

/// A rate below 10,000, in full once it has four digits: 4,000 and not 4 k.
fn significant_count(value: f64) -> String {
    if value >= 1_000.0 { grouped(value.round() as u64) } else { count(value) }
}

fn tiles(record: &Record) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let mut tile = |title: &str, value: String, more: String| tiles.push([title.to_owned(), value, more]);
    tile(
        "Requests per second",
        if record.iops < 10_000.0 { significant_count(record.iops) } else { count(record.iops) },
        format!("{} in {} of the drive's time", plural(record.requests, "request"), seconds(record.simulated_seconds)),
    );
    let directions = [
        ("read", "Read", record.bandwidth_mib_s.read, record.bytes_read),
        ("write", "Write", record.bandwidth_mib_s.write, record.bytes_written),
    ];
    for (name, what, bandwidth, moved) in directions {
        if let Some(latency) = record.latency(name) {
            let more = format!("{} by {}", bytes(moved), plural(latency.count, "request"));
            tile(&format!("{what} bandwidth"), mib_per_second(bandwidth), more);
        }
    }
    if let Some(per_byte) = record.written_per_host_byte() {
        let (programmed, written) = (bytes(programmed_bytes(&record.flash)), bytes(record.bytes_written));
        let more = format!("{programmed} programmed, {written} written by the host");
        tile("Flash written per host byte", significant(per_byte), more);
    }
    if record.flash.units_host > 0 || record.bytes_written > 0 {
        let more = "programmed per unit that left the write buffer".to_owned();
        tile("Write amplification", significant(record.write_amplification), more);
    }
    let buffer = &record.write_buffer;
    if buffer.was_asked() {
        let more = format!("{} with policy {}", bytes(buffer.size_bytes), buffer.policy);
        tile("Write buffer hits", percent(buffer.hit_ratio), more);
    }
    for (name, what, ..) in directions {
        if let Some(latency) = record.latency(name) {
            let more = format!("half within {}, 99.9 % within {}", micros(latency.p50), micros(latency.p999));
            tile(&format!("{what} latency, 99 % within"), micros(latency.p99), more);
        }
    }
    let mut more = plural(record.collections, "garbage collection");
    if record.wear.endurance > 0 {
        let share = percent(ratio(record.wear.max as f64, record.wear.endurance as f64));
        let _ = write!(more, ", the most worn at {share} of {} cycles", grouped(record.wear.endurance));
    }
    tile("Blocks erased", count(record.erases as f64), more);
    tiles
}

fn buffers(page: &mut Page, record: &Record) {
    let caches = [("Write buffer", &record.write_buffer), ("Read cache", &record.read_cache)];
    page.section("buffers", "Write buffer and read cache");
    if !caches.iter().any(|(_, cache)| cache.is_present()) {
        page.muted("This drive has neither: every request goes to flash.");
        return;
    }
    page.muted(
        "Hits and misses count host pages. A write hit replaces a page that is not yet on flash, which saves a program \
         operation.",
    );
    let titles = ["policy", "memory", "size", "hits", "misses", "hit ratio", "evicted", "most pages held"];
    let mut table = Table::new("", titles.into_iter().chain(["waited for room, all requests together"]));
    for (name, cache) in caches.into_iter().filter(|(_, cache)| cache.is_present()) {
        let number = |value: u64| count(value as f64);
        let values = [
            name.to_owned(),
            cache.policy.clone(),
            cache.memory.clone(),
            bytes(cache.size_bytes),
            number(cache.hits),
            number(cache.misses),
            percent(cache.hit_ratio),
            number(cache.evictions),
            number(cache.pages_max),
            seconds(cache.wait_seconds),
        ];
        table.row(values.map(Cell::from));
    }
    page.table(&table);
    let lengths = &record.destage_length_pages;
    // One length has no distribution that could be drawn.
    if lengths.count > 0 && latency::is_of_one_length(lengths) {
        let pages = plural(lengths.max as u64, "page");
        page.paragraph(&format!("Each of {} had {pages}.", plural(lengths.count, "destage")));
    }
    page.figures(&destage(record));
}

/// How many pages leave the write buffer together.
fn destage(record: &Record) -> Option<Figure<'_>> {
    let destage = &record.destage_length_pages;
    let buffer = &record.write_buffer;
    let shown = [buffer, &record.read_cache].iter().any(|cache| cache.is_present());
    if destage.count == 0 || !shown || latency::is_of_one_length(destage) {
        return None;
    }
    let along = match (buffer.pages_merged, buffer.padding_reads) {
        (0, 0) => String::new(),
        (merged, padding) => format!(
            " {} of these pages came from the read cache and {} were read from flash to complete blocks.",
            count(merged as f64),
            count(padding as f64)
        ),
    };
    let how = format!(
        "Pages destaged from the write buffer to flash together: {} on average over {}. Long runs mean large \
         program operations and blocks replaced whole; clean pages written along make runs longer, too.{along}",
        significant(destage.mean),
        plural(destage.count, "destage")
    );
    let data = table::pairs(["pages", "share"], &latency::destage_points(destage));
    let draw = move |width| latency::destage_chart(destage, width);
    Some(Figure::new("destage-length", "Destage length", how, FULL, data, draw))
}
