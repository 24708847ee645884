//! The document of a log.

use tidewater_report::log::*;
use tidewater_report::record::Latency;

/// A log on two sides, with all that a document can have.
pub fn record() -> LogRecord {
    let latency = Latency {
        count: 1_000,
        mean: 24.0,
        min: 10.0,
        p50: 20.0,
        p90: 40.0,
        p99: 60.0,
        p999: 80.0,
        p9999: 100.0,
        max: 100.0,
        cdf: vec![(10.0, 0.1), (20.0, 0.5), (100.0, 1.0)],
    };
    let side = Side {
        to: "fast".into(),
        transactions: 1_000,
        transactions_per_second: 5_000.0,
        log_bytes: 1 << 20,
        log_bytes_per_second: 5_242_880.0,
        simulated_seconds: 0.2,
        latency_us: latency.clone(),
        commit_us: latency,
        stalls: 3,
        pages_destaged: 250,
        pages_partial: 2,
        credit_reads: 70,
        state: Some(State {
            arrived: 1_000_400,
            credited: 1_000_000,
            left_ring: 950_000,
            destaged: 900_000,
            in_ring_from: 868_928,
            readable_from: 0,
            ring_bytes: 131_072,
            queue_bytes: 32_768,
            queue_bytes_max: 20_000,
            log_bytes_max: 1 << 26,
            survives: true,
            energy_needed_joules: 0.002,
            energy_stored_joules: 1.0,
            backlog: vec![(0.02, 20_000, 40_000), (0.1, 30_000, 60_000)],
        }),
    };
    LogRecord {
        schema: SCHEMA.into(),
        version: "0.1.0".into(),
        command_line: Some("tidewater log".into()),
        profile: "villars".into(),
        description: "X-SSD's board".into(),
        set: vec!["fast.size=64KiB".into()],
        workload: "tpcc on 8 workers".into(),
        workers: 8,
        group_bytes: 16_384,
        seed: 1,
        notes: vec!["a note".into()],
        sides: vec![Side { to: "none".into(), state: None, ..side.clone() }, side],
    }
}
