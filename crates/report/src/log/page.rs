//! A log as one HTML page: what it costs on each side, and how it stands.

use super::{LogRecord, Side, State};
use crate::figure::{self, Figure};
use crate::html::{document, escape};
use crate::page::{Curve, FULL, Words, height, pair, tile};
use crate::plot::{Axis, COLOURS, LineChart, Plot, Segment, Series, stacked_bar};
use crate::quantity::Quantity;
use crate::table::{self, Values};
use std::fmt::Write;
use tidewater_base::units::{bytes, count, grouped, mib_per_second, micros, part, plural_exact, seconds, setting};

const MIB: f64 = 1_048_576.0;

/// One page with all sides. Needs nothing else: no network.
pub fn page(record: &LogRecord) -> String {
    let mut body = String::with_capacity(64 << 10);
    header(&mut body, record);
    tiles(&mut body, record);
    latency(&mut body, record);
    for side in &record.sides {
        if let Some(state) = &side.state {
            standing(&mut body, side, state);
        }
    }
    setup(&mut body, record);
    document(&format!("{} – {} – tidewater", record.workload, record.profile), &body)
}

fn header(out: &mut String, record: &LogRecord) {
    let _ = writeln!(
        out,
        "<header>\n<p class=\"kind\">Tidewater: what a database's log costs on each side of a drive</p>\n<h1>{}</h1>\n\
         <p class=\"lead\">Groups of {} are committed as one. On the drive <b>{}</b>{}{}</p>\n</header>",
        escape(&record.workload),
        bytes(record.group_bytes),
        escape(&record.profile),
        if record.description.is_empty() { "" } else { ": " },
        escape(&record.description)
    );
    if !record.notes.is_empty() {
        out.push_str("<div class=\"notes\"><b>Before you believe the figures</b>\n<ul>");
        for note in &record.notes {
            let _ = write!(out, "<li>{}</li>", escape(note));
        }
        out.push_str("</ul></div>\n");
    }
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

fn tiles(out: &mut String, record: &LogRecord) {
    out.push_str("<section class=\"tiles\" aria-label=\"Key figures\">\n");
    for side in &record.sides {
        let value = format!("{} txn/s", count(side.transactions_per_second));
        let commit = format!(
            "a commit takes {}, one in a hundred more than {}",
            micros(side.commit_us.mean),
            micros(side.commit_us.p99)
        );
        let more = if side.to == "none" { "no transaction waits for its log".to_owned() } else { commit };
        tile(out, name(side), &value, &more);
    }
    out.push_str("</section>\n");
}

fn latency(out: &mut String, record: &LogRecord) {
    out.push_str(
        "<h2 id=\"latency\">Latency</h2>\n<p class=\"muted\">A <b>transaction</b> runs from its first instruction \
         until its log is durable; with few workers most of that is the time in which a group fills. A <b>commit</b> \
         is what a group takes once it is handed over: that is the side alone.</p>\n",
    );
    for figures in latencies(record) {
        figure::pair(out, &figures);
    }
    table(out, record);
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
fn table(out: &mut String, record: &LogRecord) {
    type Figure = fn(&Side) -> String;
    out.push_str("<div class=\"scroll\"><table><thead><tr><th>log to</th>");
    for side in &record.sides {
        let _ = write!(out, "<th>{}</th>", escape(name(side)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
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
    for (what, figure) in rows {
        let _ = write!(out, "<tr><th>{what}</th>");
        for side in &record.sides {
            let _ = write!(out, "<td>{}</td>", figure(side));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn standing(out: &mut String, side: &Side, state: &State) {
    let _ = writeln!(
        out,
        "<h2 id=\"state\">How the log stood at the end</h2>\n<p class=\"muted\">On the {}, after {}: where the ends of \
         the stream were, and what a loss of power at that instant would have left.</p>",
        escape(name(side)),
        seconds(side.simulated_seconds)
    );
    survival(out, state);
    figure::all(out, ring(state).as_slice());
    figure::all(out, backlog(side, state).as_slice());
    ends(out, side, state);
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
fn survival(out: &mut String, state: &State) {
    let lost = state.arrived.saturating_sub(state.survives_to());
    let from = state.readable_from;
    let _ = write!(
        out,
        "<div class=\"notes\"><b>If the power failed here</b>, {} of log would come back: the stream from byte {} to \
         byte {}. ",
        bytes(state.survives_to().saturating_sub(from)),
        grouped(from),
        grouped(state.survives_to())
    );
    let _ = match (state.survives, lost) {
        (true, 0) => write!(out, "All bytes that had arrived would survive."),
        (true, lost) => {
            write!(out, "Lost: {} that had arrived but was not credited; no commit depends on it.", bytes(lost))
        }
        (false, lost) => write!(
            out,
            "Lost: {}, of which {} were credited: the ring is in memory that does not survive power loss.",
            bytes(lost),
            bytes(state.credited.saturating_sub(state.destaged))
        ),
    };
    if state.survives && state.energy_stored_joules > 0.0 {
        let share = part(state.energy_needed_joules / state.energy_stored_joules);
        let _ = write!(out, " Destaging a full ring takes {share} of the energy that is stored for it.");
    }
    out.push_str("</div>\n");
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
    let line = |name: &str, colour: usize, points: Vec<(f64, f64)>| Series {
        name: name.to_owned(),
        colour,
        dash: 0,
        hollow: false,
        pieces: vec![points],
        dots: Vec::new(),
    };
    let chart = LineChart {
        title: "Bytes that wait for flash, over time",
        width,
        height: height(width, 260.0),
        x: Axis::span(Quantity::Seconds, "time", first, last),
        y: Axis::from_zero(Quantity::Ratio, "KiB that wait for flash", kib(most).max(1.0)),
        series: vec![line("not on flash", 0, not_on_flash), line("in the ring", 1, in_ring)],
    };
    chart.plot()
}

fn ends(out: &mut String, side: &Side, state: &State) {
    out.push_str(
        "<div class=\"scroll\"><table><thead><tr><th class=\"words\">end</th><th>byte of the stream</th><th>behind \
         what arrived</th>\
         <th class=\"words\">what it means</th></tr></thead>\n<tbody>\n",
    );
    for (what, at, means) in [
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
    ] {
        let _ = writeln!(
            out,
            "<tr><td class=\"words\">{what}</td><td>{}</td><td>{}</td><td class=\"words\">{means}</td></tr>",
            grouped(at),
            bytes(state.arrived.saturating_sub(at))
        );
    }
    out.push_str("</tbody></table></div>\n");
    let _ = writeln!(
        out,
        "<dl class=\"settings\"><div><dt>ring</dt><dd>{}</dd></div><div><dt>intake queue</dt><dd>{}</dd></div>\
         <div><dt>most in the queue</dt><dd>{}</dd></div><div><dt>log on flash, at most</dt><dd>{}</dd></div>\
         <div><dt>pages destaged</dt><dd>{}</dd></div><div><dt>completed by filler</dt><dd>{}</dd></div>\
         <div><dt>credit read</dt><dd>{}</dd></div></dl>",
        bytes(state.ring_bytes),
        bytes(state.queue_bytes),
        bytes(state.queue_bytes_max),
        bytes(state.log_bytes_max),
        grouped(side.pages_destaged),
        grouped(side.pages_partial),
        plural_exact(side.credit_reads, "time")
    );
}

fn setup(out: &mut String, record: &LogRecord) {
    out.push_str("<h2 id=\"setup\">How to run it again</h2>\n<dl class=\"settings\">\n");
    let mut add = |name: &str, value: &str| {
        let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    };
    add("drive", &record.profile);
    for set in &record.set {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        add(key, &setting(value));
    }
    add("workload", &record.workload);
    add("workers", &record.workers.to_string());
    add("group", &bytes(record.group_bytes));
    add("seed", &record.seed.to_string());
    add("version", &record.version);
    out.push_str("</dl>\n");
    if let Some(line) = &record.command_line {
        let _ = writeln!(out, "<pre>{}</pre>", escape(line));
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
