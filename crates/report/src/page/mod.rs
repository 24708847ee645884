//! A record as one HTML page that needs nothing else: no script, no network, no other file.

mod finish;
mod flash;
mod latency;
mod setup;
mod time;

use crate::figure::{self, Figure};
use crate::html::{document, escape};
use crate::record::{Latency, Record, ratio};
use crate::table;
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, mib_per_second, micros, percent, plural, seconds, significant};

pub(crate) use finish::finish;
pub(crate) use flash::{programmed, programmed_bytes};
pub(crate) use latency::{Curve, Words, pair};
pub(crate) use setup::command;

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
    let mut body = String::with_capacity(128 << 10);
    header(&mut body, record);
    tiles(&mut body, record);
    latency::section(&mut body, record);
    time::section(&mut body, record);
    flash::section(&mut body, record);
    buffers(&mut body, record);
    setup::section(&mut body, record);
    document(&format!("{} – {} – tidewater", headline(record), record.profile.name), &body)
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

fn header(out: &mut String, record: &Record) {
    let workload = &record.workload;
    let _ = writeln!(
        out,
        "<header>\n<p class=\"kind\">Tidewater: a workload on a simulated drive</p>\n<h1>{}</h1>",
        escape(&headline(record))
    );
    let _ = write!(out, "<p class=\"lead\">");
    if !workload.description.is_empty() {
        let _ = write!(out, "{}<br>", escape(&workload.description));
    }
    let name = if record.profile.name.is_empty() { "without a name" } else { &record.profile.name };
    let _ = write!(out, "On the drive <b>{}</b>", escape(name));
    if record.capacity_bytes > 0 {
        let _ = write!(out, ", {} usable", bytes(record.capacity_bytes));
    }
    if !record.profile.description.is_empty() {
        let _ = write!(out, ": {}", escape(&record.profile.description));
    }
    let _ = writeln!(out, "</p>\n</header>");
    if record.partial {
        let _ = writeln!(
            out,
            "<div class=\"banner\" role=\"alert\"><b>PARTIAL</b> The run was stopped before its end{}. Every figure \
             covers only the requests completed by then: {}.</div>",
            record.partial_reason.as_deref().map(|why| format!(" ({})", escape(why))).unwrap_or_default(),
            plural(record.requests, "request")
        );
    }
    if record.requests == 0 {
        let _ = writeln!(out, "<div class=\"notes\">The workload had no requests: there is nothing to plot.</div>");
    }
    if !record.warnings.is_empty() {
        let _ = write!(out, "<div class=\"notes\"><b>Before you believe the figures</b>\n<ul>");
        for warning in &record.warnings {
            let _ = write!(out, "<li>{}</li>", escape(warning));
        }
        let _ = writeln!(out, "</ul></div>");
    }
}

/// A rate below 10,000, in full once it has four digits: 4,000 and not 4 k.
fn significant_count(value: f64) -> String {
    if value >= 1_000.0 { grouped(value.round() as u64) } else { count(value) }
}

/// One key figure. `value` is split at its space into number and unit.
pub(crate) fn tile(out: &mut String, what: &str, value: &str, more: &str) {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let _ = writeln!(
        out,
        "<div class=\"tile\"><div class=\"what\">{}</div><div class=\"figure\">{} <small>{}</small></div>\
         <div class=\"more\">{}</div></div>",
        escape(what),
        escape(number),
        escape(unit),
        // A number and its per cent sign stay on one line.
        escape(&more.replace(" %", "\u{a0}%"))
    );
}

fn tiles(out: &mut String, record: &Record) {
    out.push_str("<section class=\"tiles\" aria-label=\"Key figures\">\n");
    tile(
        out,
        "Requests per second",
        &if record.iops < 10_000.0 { significant_count(record.iops) } else { count(record.iops) },
        &format!("{} in {} of the drive's time", plural(record.requests, "request"), seconds(record.simulated_seconds)),
    );
    let directions = [
        ("read", "Read", record.bandwidth_mib_s.read, record.bytes_read),
        ("write", "Write", record.bandwidth_mib_s.write, record.bytes_written),
    ];
    for (name, what, bandwidth, moved) in directions {
        if let Some(latency) = record.latency(name) {
            let more = format!("{} by {}", bytes(moved), plural(latency.count, "request"));
            tile(out, &format!("{what} bandwidth"), &mib_per_second(bandwidth), &more);
        }
    }
    if let Some(per_byte) = record.written_per_host_byte() {
        tile(
            out,
            "Flash written per host byte",
            &significant(per_byte),
            &format!(
                "{} programmed, {} written by the host",
                bytes(programmed_bytes(&record.flash)),
                bytes(record.bytes_written)
            ),
        );
    }
    if record.flash.units_host > 0 || record.bytes_written > 0 {
        tile(
            out,
            "Write amplification",
            &significant(record.write_amplification),
            "programmed per unit that left the write buffer",
        );
    }
    if record.write_buffer.was_asked() {
        tile(
            out,
            "Write buffer hits",
            &percent(record.write_buffer.hit_ratio),
            &format!("{} with policy {}", bytes(record.write_buffer.size_bytes), record.write_buffer.policy),
        );
    }
    for (name, what, ..) in directions {
        if let Some(latency) = record.latency(name) {
            let more = format!("half within {}, 99.9 % within {}", micros(latency.p50), micros(latency.p999));
            tile(out, &format!("{what} latency, 99 % within"), &micros(latency.p99), &more);
        }
    }
    let worn = if record.wear.endurance > 0 {
        format!(
            ", the most worn at {} of {} cycles",
            percent(ratio(record.wear.max as f64, record.wear.endurance as f64)),
            grouped(record.wear.endurance)
        )
    } else {
        String::new()
    };
    tile(
        out,
        "Blocks erased",
        &count(record.erases as f64),
        &format!("{}{worn}", plural(record.collections, "garbage collection")),
    );
    out.push_str("</section>\n");
}

fn buffers(out: &mut String, record: &Record) {
    let caches = [("Write buffer", &record.write_buffer), ("Read cache", &record.read_cache)];
    out.push_str("<h2 id=\"buffers\">Write buffer and read cache</h2>\n");
    if !caches.iter().any(|(_, cache)| cache.is_present()) {
        out.push_str("<p class=\"muted\">This drive has neither: every request goes to flash.</p>\n");
        return;
    }
    out.push_str(
        "<p class=\"muted\">Hits and misses count host pages. A write hit replaces a page that is not yet on \
         flash, which saves a program operation.</p>\n<div \
         class=\"scroll\"><table><thead><tr><th></th><th>policy</th>\
         <th>memory</th><th>size</th><th>hits</th><th>misses</th><th>hit ratio</th><th>evicted</th><th>most pages \
         held</th>\
         <th>waited for room, all requests together</th></tr></thead>\n<tbody>\n",
    );
    for (name, cache) in caches.into_iter().filter(|(_, cache)| cache.is_present()) {
        let _ = writeln!(
            out,
            "<tr><th>{name}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escape(&cache.policy),
            escape(&cache.memory),
            bytes(cache.size_bytes),
            count(cache.hits as f64),
            count(cache.misses as f64),
            percent(cache.hit_ratio),
            count(cache.evictions as f64),
            count(cache.pages_max as f64),
            seconds(cache.wait_seconds)
        );
    }
    out.push_str("</tbody></table></div>\n");
    let lengths = &record.destage_length_pages;
    // One length has no distribution that could be drawn.
    if lengths.count > 0 && latency::is_of_one_length(lengths) {
        let pages = plural(lengths.max as u64, "page");
        let _ = writeln!(out, "<p>Each of {} had {pages}.</p>", plural(lengths.count, "destage"));
    }
    figure::all(out, destage(record).as_slice());
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
