//! A log as one HTML page: what it costs on each side, and how it stands.

use super::{LogRecord, Side, State};
use crate::document::{Cell, Kind, Table};
use crate::figure::Figure;
use crate::html::{Page, Tile, escape};
use crate::page::{Curve, FULL, Words, height, pair};
use crate::plot::{Axis, COLOURS, Frame, LineChart, Plot, Segment, Series, stacked_bar};
use crate::quantity::Quantity;
use crate::table::{self, Values};
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, mib_per_second, micros, part, plural_exact, seconds, setting};

const MIB: f64 = 1_048_576.0;

/// One page with all sides. Needs nothing else: no network.
pub fn page(record: &LogRecord) -> String {
    let lead = format!(
        "Groups of {} are committed as one. On the drive <b>{}</b>{}{}",
        bytes(record.group_bytes),
        escape(&record.profile),
        if record.description.is_empty() { "" } else { ": " },
        escape(&record.description)
    );
    let mut page = Page::new("what a database's log costs on each side of a drive", &record.workload, &lead);
    page.notes(&record.notes);
    page.tiles(record.sides.iter().map(tile));
    page.section("latency", "Latency");
    page.muted(
        "A <b>transaction</b> runs from its first instruction until its log is durable; with few workers most of that \
         is the time in which a group fills. A <b>commit</b> is what a group takes once it is handed over: that is the \
         side alone.",
    );
    latencies(record).iter().for_each(|figures| page.pair(figures));
    page.table(&table(record));
    for side in &record.sides {
        if let Some(state) = &side.state {
            standing(&mut page, side, state);
        }
    }
    setup(&mut page, record);
    page.finish(&format!("{} – {} – tidewater", record.workload, record.profile))
}

/// Where the log went, in words.
fn name(side: &Side) -> &str {
    match side.to.as_str() {
        "none" => "no log",
        "memory" => "host memory",
        "fast" => "fast side",
        "conventional" => "conventional side",
        other => other,
    }
}

fn tile(side: &Side) -> Tile {
    let (mean, p99) = (micros(side.commit_us.mean), micros(side.commit_us.p99));
    let more = match &*side.to {
        "none" => "no transaction waits for its log".to_owned(),
        _ => format!("a commit takes {mean}, one in a hundred more than {p99}"),
    };
    [name(side).to_owned(), format!("{} txn/s", count(side.transactions_per_second)), more]
}

/// Every figure of the page, in its order.
pub fn figures(record: &LogRecord) -> Vec<Figure<'_>> {
    let mut all: Vec<Figure> = latencies(record).into_iter().flatten().collect();
    let with_state = record.sides.iter().filter_map(|side| Some((side, side.state.as_ref()?)));
    // Only one side has a ring; of several, each name says its side.
    for (i, (side, state)) in with_state.enumerate() {
        let of_side = [ring(state), backlog(side, state)].into_iter().flatten();
        all.extend(of_side.map(|figure| {
            let name = format!("{}-{}", figure.name(), side.to);
            if i > 0 { figure.named(name) } else { figure }
        }));
    }
    all
}

/// The figures of commits, and those of transactions.
fn latencies(record: &LogRecord) -> [Vec<Figure<'_>>; 2] {
    type Of = fn(&Side) -> &crate::record::Latency;
    let parts: [(&str, Of); 2] = [("Commit", |side| &side.commit_us), ("Transaction", |side| &side.latency_us)];
    parts.map(|(what, of)| {
        let sides = record.sides.iter().enumerate().filter(|(_, side)| of(side).count > 0);
        let curves: Vec<Curve> = sides.map(|(i, side)| (name(side).to_owned(), i % COLOURS, 0, of(side))).collect();
        let lower = what.to_lowercase();
        let words = Words {
            titles: [format!("{what}: distribution"), format!("{what}: tail")],
            how: [
                "How many were durable within a time. Further left is faster. Dots: 50, 90, 99, 99.9 and 99.99 %.",
                "The same curves with the slowest spread out: each line up is ten times rarer.",
            ],
            alt: [
                format!("Cumulative distribution of the latency of a {lower} by side"),
                format!("Tail of the latency of a {lower} by side"),
            ],
            column: "side",
            name: lower,
        };
        pair(curves, words)
    })
}

/// A column for each side: there are few, and figures are compared along a row.
fn table(record: &LogRecord) -> Table {
    type Figure = fn(&Side) -> String;
    let rows: [(&str, Figure); 11] = [
        ("transactions", |side| grouped(side.transactions)),
        ("transactions per second", |side| count(side.transactions_per_second)),
        ("log", |side| bytes(side.log_bytes)),
        ("log per second", |side| mib_per_second(side.log_bytes_per_second / MIB)),
        ("transaction, mean", |side| micros(side.latency_us.mean)),
        ("transaction, 99 %", |side| micros(side.latency_us.p99)),
        ("transaction, 99.9 %", |side| micros(side.latency_us.p999)),
        ("commit, mean", |side| micros(side.commit_us.mean)),
        ("commit, 99 %", |side| micros(side.commit_us.p99)),
        ("commit, 99.9 %", |side| micros(side.commit_us.p999)),
        ("stalls", |side| grouped(side.stalls)),
    ];
    let row = |(what, figure): (&str, Figure)| [what.into()].into_iter().chain(record.sides.iter().map(figure));
    let rows = rows.map(|row_of| row(row_of).map(Cell::from).collect());
    Table::new("log to", record.sides.iter().map(name)).with(rows)
}

fn standing(page: &mut Page, side: &Side, state: &State) {
    page.section("state", "How the log stood at the end");
    page.muted(&format!(
        "On the {}, after {}: where the ends of the stream were, and what a loss of power at that instant would have \
         left.",
        escape(name(side)),
        seconds(side.simulated_seconds)
    ));
    page.html(&format!("<div class=\"notes\"><b>If the power failed here</b>, {}</div>\n", survival(state)));
    page.figures(&ring(state));
    page.figures(&backlog(side, state));
    page.table(&ends(state));
    page.facts([
        ("ring", bytes(state.ring_bytes)),
        ("intake queue", bytes(state.queue_bytes)),
        ("most in the queue", bytes(state.queue_bytes_max)),
        ("log on flash, at most", bytes(state.log_bytes_max)),
        ("pages destaged", grouped(side.pages_destaged)),
        ("completed by filler", grouped(side.pages_partial)),
        ("credit read", plural_exact(side.credit_reads, "time")),
    ]);
}

/// Contents of the ring's memory at the end.
fn ring(state: &State) -> Option<Figure<'_>> {
    let waiting = state.credited.saturating_sub(state.left_ring).min(state.ring_bytes);
    let kept = state.left_ring.saturating_sub(state.in_ring_from.min(state.left_ring)).min(state.ring_bytes - waiting);
    let parts = [
        ("waits for flash", 1, waiting),
        ("has left, and can still be read here", 0, kept),
        ("not used yet", 6, state.ring_bytes - waiting - kept),
    ];
    let bar = move |width| {
        let segment = |(name, colour, value)| Segment { name, colour, value: value as f64, says: bytes(value) };
        stacked_bar("What the ring's memory holds", width, &parts.map(segment))
    };
    bar(FULL)?;
    let how = format!("What its {} held. The host may store into what does not wait.", bytes(state.ring_bytes));
    let data = table::named(vec![
        ("state", Values::Text(parts.iter().map(|(name, ..)| Some((*name).to_owned())).collect())),
        ("bytes", Values::Count(parts.iter().map(|(.., bytes)| Some(*bytes)).collect())),
    ]);
    let draw = move |width| bar(width).unwrap_or_default();
    Some(Figure::new("ring-memory", "The ring's memory", how, FULL, data, draw))
}

/// In a sentence, what outlives a loss of power.
fn survival(state: &State) -> String {
    let lost = state.arrived.saturating_sub(state.survives_to());
    let (from, to) = (state.readable_from, state.survives_to());
    let lost = match (state.survives, lost) {
        (true, 0) => "All bytes that had arrived would survive.".to_owned(),
        (true, lost) => {
            format!("Lost: {} that had arrived but was not credited; no commit depends on it.", bytes(lost))
        }
        (false, lost) => format!(
            "Lost: {}, of which {} were credited: the ring is in memory that does not survive power loss.",
            bytes(lost),
            bytes(state.credited.saturating_sub(state.destaged))
        ),
    };
    let mut text = format!(
        "{} of log would come back: the stream from byte {} to byte {}. {lost}",
        bytes(to.saturating_sub(from)),
        grouped(from),
        grouped(to)
    );
    if state.survives && state.energy_stored_joules > 0.0 {
        let share = part(state.energy_needed_joules / state.energy_stored_joules);
        let _ = write!(text, " Destaging a full ring takes {share} of the energy that is stored for it.");
    }
    text
}

/// Bytes waiting for flash, over time.
fn backlog<'a>(side: &Side, state: &'a State) -> Option<Figure<'a>> {
    if state.backlog.len() < 2 {
        return None;
    }
    let most = |of: fn(&(f64, u64, u64)) -> u64| state.backlog.iter().map(of).max().unwrap_or(0);
    // Little's law: what waits is what comes in a second times how long it waits.
    let wait = if side.log_bytes_per_second > 0.0 {
        let us = state.backlog_mean() / side.log_bytes_per_second * 1e6;
        format!(" A byte was on flash {} after it was credited, on average.", micros(us))
    } else {
        String::new()
    };
    let how = format!(
        "What was credited and had not left the ring: {} at most, of {}. Near the ring's size the ring waits for \
         flash, and then so do commits. What was credited and not on flash: {} at most; where bytes leave the ring for \
         a die's register (<code>fast.release</code>), that is more than the ring holds.{wait}",
        bytes(most(|point| point.1)),
        bytes(state.ring_bytes),
        bytes(most(|point| point.2))
    );
    let points = &state.backlog;
    let data = table::named(vec![
        ("time_s", Values::Float(points.iter().map(|point| Some(point.0)).collect())),
        ("in_ring_bytes", Values::Count(points.iter().map(|point| Some(point.1)).collect())),
        ("not_on_flash_bytes", Values::Count(points.iter().map(|point| Some(point.2)).collect())),
    ]);
    let most = most(|point| point.2);
    let draw = move |width| backlog_chart(points, most, width);
    Some(Figure::new("waits-for-flash", "What waits for flash", how, FULL, data, draw))
}

fn backlog_chart(backlog: &[(f64, u64, u64)], most: u64, width: f64) -> Plot {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let in_ring = backlog.iter().map(|&(at, bytes, _)| (at, kib(bytes))).collect();
    let not_on_flash = backlog.iter().map(|&(at, _, bytes)| (at, kib(bytes))).collect();
    let first = backlog.first().map_or(0.0, |point| point.0);
    let last = backlog.last().map_or(1.0, |point| point.0);
    let frame = Frame {
        title: "Bytes that wait for flash, over time",
        width,
        height: height(width, 260.0),
        x: Axis::span(Quantity::Seconds, "time", first, last),
        y: Axis::from_zero(Quantity::Ratio, "KiB that wait for flash", kib(most).max(1.0)),
    };
    let line = |name: &str, colour: usize, points: Vec<(f64, f64)>| Series::new(name, colour, vec![points]);
    LineChart { frame, series: vec![line("not on flash", 0, not_on_flash), line("in the ring", 1, in_ring)] }.plot()
}

/// Where the ends of the stream are.
fn ends(state: &State) -> Table {
    let titles = ["end", "byte of the stream", "behind what arrived", "what it means"];
    let kinds = [Kind::Words, Kind::Value, Kind::Value, Kind::Words];
    let rows = [
        ("arrived", state.arrived, "the last byte that the drive has taken in"),
        ("credited", state.credited, "level RING: what the host's counter says; a commit is durable when it is there"),
        (
            "out of the ring",
            state.left_ring,
            "its room in memory is free again: on flash, or in a die's register on its way",
        ),
        ("destaged", state.destaged, "level DESTAGED: on flash, whatever the ring's memory is"),
        ("in the ring from", state.in_ring_from, "the oldest byte that can be read from memory"),
        ("readable from", state.readable_from, "the oldest byte on flash; what is below was trimmed or overwritten"),
    ];
    let row = |(end, at, means): (&str, u64, &str)| {
        let behind = bytes(state.arrived.saturating_sub(at));
        vec![end.into(), grouped(at).into(), behind.into(), means.into()]
    };
    Table::of("", kinds.into_iter().zip(titles)).with(rows.map(row))
}

fn setup(page: &mut Page, record: &LogRecord) {
    page.section("setup", "How to run it again");
    let pair = |set: &'_ String| {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        (key.to_owned(), setting(value))
    };
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let load = [
        fact("workload", record.workload.clone()),
        fact("workers", record.workers.to_string()),
        fact("group", bytes(record.group_bytes)),
        fact("seed", record.seed.to_string()),
        fact("version", record.version.clone()),
    ];
    page.facts([fact("drive", record.profile.clone())].into_iter().chain(record.set.iter().map(pair)).chain(load));
    if let Some(line) = &record.command_line {
        page.command(line);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn sides_and_the_state_of_the_log_are_on_the_page() {
        let mut record = record();
        record.workload = "<b>.csv".into();
        record.notes.push("a ring of 128 KiB".into());
        let page = page(&record);
        for part in [
            "&lt;b&gt;.csv",
            "fast side",
            "conventional side",
            "Commit: tail",
            "the stream from byte 0 to byte 1,000,000",
            "400 B that had arrived but was not credited",
            "level DESTAGED",
            "a ring of 128 KiB",
            "What waits for flash",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<b>.csv"));
        assert_eq!(page.matches("<svg class=\"plot\"").count(), 6);
    }

    #[test]
    fn a_ring_that_survives_nothing_says_what_is_lost() {
        let mut record = record();
        record.sides[0].state.as_mut().unwrap().survives = false;
        let page = page(&record);
        assert!(page.contains("does not survive power loss") && page.contains("to byte 900,000"), "{page}");
    }

    #[test]
    fn a_log_without_a_fast_side_has_no_state() {
        let mut record = record();
        record.sides.remove(0);
        let page = page(&record);
        assert!(!page.contains("id=\"state\"") && page.contains("id=\"latency\""));
    }
}
