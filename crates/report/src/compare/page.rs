//! The comparison as one HTML page.

use super::metrics::{Metric, metrics, operations};
use super::table::{SEEDS, seeds_of};
use super::{Labelled, caveats, header, seeds, warnings};
use crate::html::{document, escape};
use crate::page::{FULL, HALF, cdf_chart, figure, operation, programmed, tail_chart};
use crate::plot::{Bar, COLOURS, Segment, horizontal_bars, stacked_bar};
use std::fmt::Write;
use tidewater_base::units::{bytes, change, significant};

/// One page that compares `records` with the first of them. Needs nothing else: no script, no network.
pub fn page(records: &[Labelled], title: &str) -> String {
    let mut body = String::with_capacity(128 << 10);
    let _ = writeln!(
        body,
        "<header>\n<p class=\"kind\">Tidewater: {} runs compared</p>\n<h1>{}</h1>",
        records.len(),
        escape(title)
    );
    let Some(first) = records.first() else {
        body.push_str("</header>\n<p>Nothing to compare.</p>\n");
        return document(title, &body);
    };
    let _ = writeln!(
        body,
        "<p class=\"lead\">Differences are relative to the first run, <b>{}</b>. A star marks the best value of a \
         row, if the values shown differ.</p>\n</header>",
        escape(&first.label)
    );
    notes(&mut body, records);
    header::section(&mut body, records);
    let metrics = metrics(records);
    over_seeds(&mut body, records, &metrics);
    bars(&mut body, records, &metrics);
    latency(&mut body, records);
    traffic(&mut body, records);
    table(&mut body, records, &metrics);
    header::again(&mut body, records);
    let _ = writeln!(body, "<footer>tidewater {}.</footer>", escape(&first.record.tool_version));
    document(&format!("{title} – tidewater"), &body)
}

fn notes(out: &mut String, records: &[Labelled]) {
    if records.iter().any(|run| run.record.partial) {
        out.push_str("<div class=\"banner\" role=\"alert\"><b>PARTIAL</b> Not every run reached its end.</div>\n");
    }
    let caveats = caveats(records);
    let warnings = warnings(records);
    if caveats.is_empty() && warnings.is_empty() {
        return;
    }
    out.push_str("<div class=\"notes\"><b>Before you believe the figures</b>\n<ul>");
    for caveat in caveats {
        let _ = write!(out, "<li>{}</li>", escape(&caveat));
    }
    for warning in warnings {
        let _ = write!(out, "<li>{}</li>", escape(&warning));
    }
    out.push_str("</ul></div>\n");
}

fn bars(out: &mut String, records: &[Labelled], metrics: &[Metric]) {
    out.push_str("<h2 id=\"figures\">Key figures</h2>\n<div class=\"pair\">\n");
    for metric in metrics.iter().filter(|metric| metric.bars && metric.values.iter().flatten().any(|v| *v > 0.0)) {
        let bars: Vec<Bar> = records
            .iter()
            .enumerate()
            .filter_map(|(i, run)| metric.values[i].map(|value| (i, run, value)))
            .map(|(i, run, value)| Bar {
                name: &run.label,
                colour: i % COLOURS,
                value,
                says: metric.quantity.format(value),
                change: metric.change(i).map(change).unwrap_or_default(),
                best: metric.is_best(i),
            })
            .collect();
        let how = match metric.better {
            super::metrics::Better::Higher => "Longer is better.",
            super::metrics::Better::Lower => "Shorter is better.",
            super::metrics::Better::Neither => "",
        };
        figure(out, &capital(&metric.name), how, &horizontal_bars(&metric.name, HALF, &bars));
    }
    out.push_str("</div>\n");
}

fn latency(out: &mut String, records: &[Labelled]) {
    out.push_str("<h2 id=\"latency\">Latency</h2>\n");
    for name in operations(records) {
        let curves: Vec<_> = records
            .iter()
            .enumerate()
            .filter_map(|(i, run)| {
                // Where colours repeat, strokes differ.
                run.record.latency(&name).map(|latency| (run.label.clone(), i % COLOURS, i / COLOURS % 4, latency))
            })
            .collect();
        let what = capital(&operation(&name));
        out.push_str("<div class=\"pair\">\n");
        figure(
            out,
            &format!("{what}: distribution"),
            "Share of requests completed within a time. Further left is faster. Dots: 50, 90, 99, 99.9 and 99.99 %.",
            &cdf_chart(&curves, &format!("Cumulative distribution of {} latency", operation(&name)), HALF),
        );
        figure(
            out,
            &format!("{what}: tail"),
            "The same curves with the slowest requests spread out: each line up is ten times rarer.",
            &tail_chart(&curves, &format!("Tail of the {} latency", operation(&name)), HALF),
        );
        out.push_str("</div>\n");
    }
}

fn traffic(out: &mut String, records: &[Labelled]) {
    let mut svg = String::new();
    let longest = records.iter().map(|run| run.record.flash.units_total()).max().unwrap_or(0) as f64;
    for run in records {
        let flash = &run.record.flash;
        let segments: Vec<Segment> = programmed(flash)
            .into_iter()
            .map(|(name, colour, units)| Segment {
                name,
                colour,
                value: units as f64,
                says: bytes(units.saturating_mul(flash.unit_bytes)),
            })
            .collect();
        let bar = stacked_bar(&format!("What {} programmed", run.label), FULL, &segments, longest);
        if !bar.is_empty() {
            let _ = writeln!(
                svg,
                "<p><b>{}</b> <span class=\"muted\">{} programmed, write amplification {}{}</span></p>\n{bar}",
                escape(&run.label),
                bytes(flash.units_total().saturating_mul(flash.unit_bytes)),
                significant(run.record.write_amplification),
                run.record
                    .written_per_host_byte()
                    .map(|per_byte| format!(", {} per byte of the host", significant(per_byte)))
                    .unwrap_or_default()
            );
        }
    }
    if !svg.is_empty() {
        out.push_str("<h2 id=\"flash\">What was written to the flash</h2>\n");
        figure(
            out,
            "By cause",
            "Only the first part is new host data; the rest is the drive's own work. A longer bar means more data \
             written.",
            &svg,
        );
    }
}

fn table(out: &mut String, records: &[Labelled], metrics: &[Metric]) {
    out.push_str("<h2 id=\"all\">All figures</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>");
    for run in records {
        let _ = write!(out, "<th>{}</th>", escape(&run.label));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for metric in metrics {
        let _ = write!(out, "<tr><th>{}</th>", escape(&metric.name));
        for i in 0..records.len() {
            let class = if metric.is_best(i) { " class=\"best\"" } else { "" };
            let _ = write!(out, "<td{class}>");
            match metric.values[i] {
                None => out.push('–'),
                Some(value) => {
                    let star = if metric.is_best(i) { " ★" } else { "" };
                    let _ = write!(out, "{}{star}", metric.quantity.format(value));
                }
            }
            if let Some(by) = metric.change(i) {
                let _ = write!(out, "<small>{}</small>", change(by));
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// The runs that differ in their seed alone, taken together.
fn over_seeds(out: &mut String, records: &[Labelled], metrics: &[Metric]) {
    let groups = seeds::groups(records);
    if groups.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<h2 id=\"seeds\">Over seeds</h2>\n<p class=\"muted\">{}. A star marks a value outside the range of all \
         other variants; differences within seed noise get none.</p>\n<div class=\"scroll\">\
         <table><thead><tr><th></th>",
        capital(SEEDS)
    );
    for group in &groups {
        let _ = write!(out, "<th>{} ({})</th>", escape(&group.label), seeds_of(group));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for metric in metrics {
        let _ = write!(out, "<tr><th>{}</th>", escape(&metric.name));
        for cell in seeds::cells(metric, &groups, " ★") {
            let cell = cell.unwrap_or_else(|| "–".to_owned());
            let class = if cell.ends_with('★') { " class=\"best\"" } else { "" };
            let _ = write!(out, "<td{class}>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
