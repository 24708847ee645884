//! Relations between the figures of one run, and between a run and its repetition.

use crate::relations::cases::Case;
use crate::relations::ledger::Ledger;
use crate::relations::rig::{Row, Run, difference, serve};
use std::collections::BTreeMap;
use tidewater_report::Record;

/// Runs a case twice. The run, where it came to an end.
pub fn check(case: &Case, ledger: &mut Ledger) -> Option<Run> {
    let run = serve(case, ledger, |_| {})?;
    let again = serve(case, ledger, |_| {})?;
    let different = difference(&run, &again);
    ledger.check("same seed, same record and requests", case, different.is_none(), || different.unwrap_or_default());
    counts(case, &run, ledger);
    latencies(case, &run, ledger);
    little(case, &run, ledger);
    flash(case, &run, ledger);
    run.device.ftl().assert_consistent();
    Some(run)
}

/// Rows, operations and bytes are those of the record.
fn counts(case: &Case, run: &Run, ledger: &mut Ledger) {
    let (record, rows) = (&run.record, &run.rows);
    let mut by_operation: BTreeMap<String, u64> = BTreeMap::new();
    rows.iter().for_each(|row| *by_operation.entry(row.operation.clone()).or_default() += 1);
    let recorded: BTreeMap<_, _> = record.requests_by_operation.clone().into_iter().filter(|(_, n)| *n > 0).collect();
    ledger.check("rows are the requests of each operation", case, by_operation == recorded, || {
        format!("{by_operation:?} are not {recorded:?}")
    });
    let count = record.requests == rows.len() as u64;
    ledger.check("rows are the requests", case, count, || format!("{} of {}", rows.len(), record.requests));
    if record.commands_failed == 0 {
        let bytes = |of: &str| rows.iter().filter(|row| row.operation == of).map(|row| row.bytes).sum::<u64>();
        let (read, written) = (bytes("read"), bytes("write"));
        let same = (read, written) == (record.bytes_read, record.bytes_written);
        ledger.check("bytes of the rows are those of the record", case, same, || {
            format!("{read} read, {written} written for {} and {}", record.bytes_read, record.bytes_written)
        });
        let success = rows.iter().all(|row| row.success);
        ledger.check("no command failed, no row failed", case, success, || "a row has another status".into());
    }
}

/// Mean, extremes, percentiles and distribution are those of the rows.
fn latencies(case: &Case, run: &Run, ledger: &mut Ledger) {
    for (operation, latency) in run.record.latency_us.iter().filter(|(_, latency)| latency.count > 0) {
        let of = |row: &&Row| operation == "all" || row.operation == *operation;
        let mut ps: Vec<u64> = run.rows.iter().filter(of).map(|row| row.end_ps - row.begin_ps).collect();
        ps.sort_unstable();
        let us = |ps: u64| ps as f64 * 1e-6;
        if ps.len() as u64 != latency.count {
            ledger.violation("a latency counts its rows", case, &format!("{operation}: {} rows", ps.len()));
            continue;
        }
        let mean = us(ps.iter().sum::<u64>()) / ps.len() as f64;
        for (found, expected) in [(latency.min, us(ps[0])), (latency.max, us(ps[ps.len() - 1])), (latency.mean, mean)] {
            ledger.near("mean and extremes are those of the rows", case, found, expected, 1e-6);
        }
        let percentiles = [
            (0.5, latency.p50),
            (0.9, latency.p90),
            (0.99, latency.p99),
            (0.999, latency.p999),
            (0.9999, latency.p9999),
        ];
        for (share, found) in percentiles {
            let rank = ((share * ps.len() as f64).ceil() as usize).clamp(1, ps.len());
            ledger.near("percentiles are within 0.1 %", case, found, us(ps[rank - 1]), 1e-3);
        }
        let rises = percentiles.windows(2).all(|pair| pair[0].1 <= pair[1].1) && latency.min <= latency.p50;
        ledger.check("percentiles rise", case, rises, || format!("{operation}: {latency:?}"));
        for &(value, share) in &latency.cdf {
            let below = |limit: f64| ps.partition_point(|&ps| us(ps) <= limit) as f64 / ps.len() as f64;
            let (low, high) = (below(value * 0.999), below(value * 1.001));
            let holds = low - 1e-9 <= share && share <= high + 1e-9;
            ledger.check("the distribution is that of the rows", case, holds, || {
                format!("{operation}: {share} at {value} us, found {low} to {high}")
            });
        }
    }
}

/// Little's law, the depth, and the end of the run.
fn little(case: &Case, run: &Run, ledger: &mut Ledger) {
    let rows = &run.rows;
    let depth = case.load.source(case.profile.drive.capacity).iodepth();
    let mut events: Vec<(u64, i32)> = rows.iter().flat_map(|row| [(row.begin_ps, 1), (row.end_ps, -1)]).collect();
    // What ends leaves its place to what begins in the same instant.
    events.sort_unstable();
    let (mut outstanding, mut most, mut integral, mut last) = (0i64, 0i64, 0f64, 0);
    for (at, change) in events {
        integral += outstanding as f64 * (at - last) as f64;
        (last, outstanding) = (at, outstanding + i64::from(change));
        most = most.max(outstanding);
    }
    let within = most <= i64::from(depth);
    ledger.check("the depth is never exceeded", case, within, || format!("{most} of {depth} outstanding"));
    let latencies: f64 = rows.iter().map(|row| (row.end_ps - row.begin_ps) as f64).sum();
    ledger.near("Little's law", case, latencies, integral, 1e-9);
    let time = run.record.simulated_seconds * 1e12;
    let begin = rows.iter().map(|row| row.begin_ps).min().unwrap_or(0);
    ledger.near("the run ends with its last request", case, time, (last - begin) as f64, 1e-9);
    // Until its last request was submitted a closed loop had as many outstanding as it may, or as many as fill the
    // queues: each command that a request is split into has an entry there until it has ended. Flushes wait for writes,
    // and of two jobs one may end first.
    if case.load.jobs.len() == 1 && !case.load.flushed {
        let longest = rows.iter().map(|row| row.end_ps - row.begin_ps).max().unwrap_or(0) as f64;
        let host = &case.profile.host;
        let commands = rows.iter().map(|row| row.bytes.div_ceil(host.transfer_max.into())).max().unwrap_or(0).max(1);
        let fill = f64::from(host.queues * (host.queue_entries - 1)) / commands as f64;
        let most = f64::from(depth).min(fill);
        let least = most * (time - longest) * (1.0 - 1e-9);
        ledger.check("a closed loop is never short of requests", case, latencies >= least, || {
            format!("{latencies} ps of latencies in {time} ps at depth {depth}, of which {most} fit the queues")
        });
    }
}

/// Write amplification, shares of time, and what the firmware writes for itself.
fn flash(case: &Case, run: &Run, ledger: &mut Ledger) {
    let Record { flash, utilization, .. } = &run.record;
    if flash.units_host > 0 {
        let amplification = flash.units_total() as f64 / flash.units_host as f64;
        ledger.near("write amplification is its parts", case, run.record.write_amplification, amplification, 1e-9);
    }
    if let Some(found) = run.record.flash_written_per_host_byte {
        let bytes = flash.units_total() as f64 * flash.unit_bytes as f64;
        ledger.near("flash per host byte is its parts", case, found, bytes / run.record.bytes_written as f64, 1e-9);
    }
    for die in &utilization.dies {
        let busy = die.read_share + die.program_share + die.erase_share;
        let holds = busy <= 1.0 + 1e-9 && (busy + die.idle_share - 1.0).abs() < 1e-6;
        ledger.check("the time of a die is its shares", case, holds, || format!("{die:?}"));
    }
    let row = u64::from(case.profile.nand.planes * case.profile.nand.page_size / case.profile.ftl.unit_size);
    let own = flash.units_meta <= flash.programs * row;
    ledger.check("what the firmware writes for itself was programmed", case, own, || format!("{flash:?}"));
    let series: u64 = run.record.time_series.points.iter().map(|point| point.erases).sum();
    let same = series == run.record.erases && run.record.erases == flash.erases_total;
    ledger.check("erases are those of the series", case, same, || format!("{series} of {}", run.record.erases));
    if let Some(slc) = run.record.slc {
        let written = flash.units_host + flash.units_rewritten;
        let parts = slc.units_written <= written && slc.units_folded <= flash.units_collected;
        ledger.check("what goes through the SLC cache is part of the whole", case, parts, || {
            format!("{slc:?} of {flash:?}")
        });
    }
}
