//! `tidewater log`: what a database's log costs on each side of a drive, and beside it.

use crate::args::Log;
use crate::drive;
use crate::failure::{Failure, printable};
use crate::output::{self, Delivery, Target};
use crate::progress::Bar;
use serde::Serialize;
use tidewater_base::{Duration, Instant};
use tidewater_report::units;
use tidewater_sim::host::{LogOutcome, LogRun, LogTo, WorkersSpec};
use tidewater_sim::metrics::Histogram;
use tidewater_sim::trace::Input;
use tidewater_sim::workload::log::{LogFile, LogSource, LogSpec, Mix, mixes};

/// What was run, and what came of it, as JSON.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    profile: &'a str,
    set: &'a [String],
    workload: String,
    workers: u32,
    group_bytes: u64,
    seed: u64,
    sides: &'a [Row],
}

/// One place where the log went, as JSON.
#[derive(Serialize)]
struct Row {
    to: &'static str,
    transactions: u64,
    transactions_per_second: f64,
    log_bytes: u64,
    log_bytes_per_second: f64,
    simulated_seconds: f64,
    latency_us: Latency,
    commit_us: Latency,
    stalls: u64,
    pages_destaged: u64,
    pages_partial: u64,
    credit_reads: u64,
}

#[derive(Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Latency {
    fn of(histogram: &Histogram) -> Latency {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Latency {
            mean: us(histogram.mean()),
            p50: us(histogram.quantile(0.5)),
            p99: us(histogram.quantile(0.99)),
            p999: us(histogram.quantile(0.999)),
            max: us(histogram.max()),
        }
    }
}

/// `tidewater log`.
///
/// # Errors
/// A profile or log that is wrong, and results that cannot be written.
pub fn command(given: &Log) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let drive = drive::prepare(&given.profile, &given.set)?;
    let mut rows = Vec::new();
    for (i, to) in given.to.iter().enumerate() {
        let (name, to) = LogTo::ALL.into_iter().find(|(name, _)| *name == to.as_str()).expect("clap knows the names");
        let bar = Bar::new(&format!("{}/{} {name}", i + 1, given.to.len()));
        let outcome = run(given, &drive, to)?;
        drop(bar);
        rows.push(row(name, &outcome));
    }
    let mut files: Vec<Delivery<'_>> = Vec::new();
    if let Some(target) = &json {
        let document = Document {
            version: env!("CARGO_PKG_VERSION"),
            profile: &drive.name,
            set: &drive.changed,
            workload: workload(given),
            workers: given.workers,
            group_bytes: given.group_bytes,
            seed: given.seed,
            sides: &rows,
        };
        let text = serde_json::to_string_pretty(&document).expect("numbers and words") + "\n";
        files.push(("\njson    ".into(), target, Box::new(move || target.write(&text))));
    }
    output::deliver(&table(given, &drive, &rows), files)
}

fn run(given: &Log, drive: &drive::Drive, to: LogTo) -> Result<LogOutcome, Failure> {
    let warm = Instant::ZERO + Duration::from_secs_f64(given.warm_up);
    let run = LogRun {
        to,
        workers: WorkersSpec {
            workers: given.workers,
            commit_bytes: given.group_bytes,
            waits: given.wait,
            ..WorkersSpec::default()
        },
        // A recorded log is measured from its first line to its last.
        warm_until: if given.log.is_some() { Instant::ZERO } else { warm },
        until: if given.log.is_some() { Instant::NEVER } else { warm + Duration::from_secs_f64(given.seconds) },
        seed: given.seed,
    };
    run.run(&drive.profile, source(given)?).map_err(Failure::refused)
}

fn source(given: &Log) -> Result<LogSource, Failure> {
    if let Some(path) = &given.log {
        let input = Input::from_argument(&path.to_string_lossy());
        let unit = given.time_unit.as_deref().and_then(tidewater_sim::workload::log::TimeUnit::from_name);
        return LogFile::open(&input, unit).map(|file| LogSource::File(Box::new(file))).map_err(Failure::refused);
    }
    let mix = mixes().into_iter().find(|(name, _)| *name == given.mix).map(|(_, mix)| mix);
    let mix = match mix.expect("clap knows the names") {
        Mix::Fixed(_) => Mix::Fixed(given.bytes),
        mix => mix,
    };
    let spec = LogSpec {
        mix,
        workers: given.workers,
        cpu_time: given.transaction_time,
        seed: given.seed,
        ..LogSpec::default()
    };
    Ok(LogSource::synthesize(&spec))
}

fn row(to: &'static str, outcome: &LogOutcome) -> Row {
    let measured = &outcome.measured;
    let seconds = outcome.ended.since(measured.since).as_secs_f64();
    let mut latency = measured.latency.clone();
    latency.add(&measured.read_only);
    Row {
        to,
        transactions: measured.transactions(),
        transactions_per_second: outcome.transactions_per_second(),
        log_bytes: measured.bytes,
        log_bytes_per_second: measured.bytes as f64 / seconds.max(1e-12),
        simulated_seconds: seconds,
        latency_us: Latency::of(&latency),
        commit_us: Latency::of(&measured.commit),
        stalls: measured.stalled.count(),
        pages_destaged: outcome.lane.map_or(0, |lane| lane.pages),
        pages_partial: outcome.lane.map_or(0, |lane| lane.partial_pages),
        credit_reads: outcome.loads,
    }
}

/// What is logged, in words.
fn workload(given: &Log) -> String {
    match &given.log {
        Some(path) => printable(&path.to_string_lossy()),
        None => format!("{} on {}", given.mix, units::plural(given.workers.into(), "worker")),
    }
}

fn table(given: &Log, drive: &drive::Drive, rows: &[Row]) -> String {
    let what = workload(given);
    let mut text = format!(
        "{what}, groups of {}\ndrive {}: {}\n\n{:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n",
        tidewater_base::units::format_bytes(given.group_bytes),
        printable(&drive.name),
        printable(&drive.about),
        "log to",
        "txn/s",
        "log/s",
        "mean",
        "p99",
        "p99.9",
        "commit",
        "stalls"
    );
    for row in rows {
        let us = |us: f64| units::micros(us);
        text += &format!(
            "{:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n",
            row.to,
            units::count(row.transactions_per_second),
            units::mib_per_second(row.log_bytes_per_second / 1_048_576.0),
            us(row.latency_us.mean),
            us(row.latency_us.p99),
            us(row.latency_us.p999),
            us(row.commit_us.mean),
            row.stalls,
        );
    }
    if rows.iter().any(|row| row.to == "fast") {
        for note in drive.notes.iter().filter(|note| note.contains("fast-side ring")) {
            text += &format!("\nnote: {note}\n");
        }
    }
    text += "\nmean, p99 and p99.9: from a transaction's start until its log is durable; commit: of a group, on average; \
             stalls:\ntimes that a worker found all log buffers full. `none` keeps no log.\n";
    text
}
