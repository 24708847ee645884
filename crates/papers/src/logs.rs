//! Workers that log: figure 9 of X-SSD, and a journal.

use super::{Measured, at, figures, refused, time};
use tidewater_base::Duration;
use tidewater_sim::host::{LogRun, LogTo, WorkersSpec};
use tidewater_sim::workload::log::{LogSource, LogSpec, mixes};
use tidewater_study::experiment::Point;

/// Transactions a second, and their mean latency, of `workers` whose log goes `to` a place; of TPC-C, or with a `mix`
/// of that, each of which waits for its commit.
pub(super) fn measure(point: &Point) -> Measured {
    let (workers, seed) = (point.number("workers")? as u32, point.seed()?);
    let (warm, run) = (time(point, "warm_ms", 1e-3)?, time(point, "run_ms", 1e-3)?);
    let to = point.text("to")?;
    let (_, to) = LogTo::ALL.into_iter().find(|(name, _)| *name == to).ok_or_else(|| refused(to))?;
    let cpu_time = Duration::from_secs_f64(point.number("transaction_us")? * 1e-6);
    let mut log = LogSpec { workers, cpu_time, seed, ..LogSpec::default() };
    let commit_bytes = point.number("group_bytes")? as u64;
    let mut workers = WorkersSpec { workers, commit_bytes, ..WorkersSpec::default() };
    if let Ok(named) = point.text("mix") {
        log.mix = mixes().into_iter().find(|(name, _)| *name == named).ok_or_else(|| refused(&named))?.1;
        workers = WorkersSpec { cut: false, waits: true, when_idle: true, ..workers };
    }
    let run = LogRun { to, workers, warm_until: at(warm), until: at(warm + run), seed };
    let outcome = run.run(&point.drive()?.profile, LogSource::synthesize(&log)).map_err(refused)?;
    Ok(figures([
        ("transactions_per_second", outcome.transactions_per_second()),
        ("latency_us", outcome.measured.mean_latency().as_secs_f64() * 1e6),
    ]))
}
