//! `tidewater log`: what a database's log costs on each side of a drive, and beside it.

use crate::args::Log;
use crate::failure::{Failure, printable};
use crate::output::{self, Delivery, Target, distinct};
use crate::progress::Bar;
use crate::text::command_line;
use tidewater_base::{Duration, Instant, units};
use tidewater_report::log::{self, LogRecord, Side};
use tidewater_sim::host::{LogOutcome, LogRun, LogTo, WorkersSpec};
use tidewater_sim::run::latency;
use tidewater_sim::trace::Input;
use tidewater_sim::workload::log::{LogFile, LogSource, LogSpec, Mix, mixes};
use tidewater_study as study;

/// 200 days: 64 bits of picoseconds last 213, and what begins last has to end.
const SECONDS_MAX: f64 = 200.0 * 86_400.0;
/// The mix whose transactions all append as much.
const FIXED: &str = "fixed";

/// `tidewater log`.
///
/// # Errors
/// A profile or log that is wrong, and results that cannot be written.
pub fn command(given: &Log) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let report = Target::page(given.report.as_ref())?;
    let targets = [json.as_ref(), report.as_ref()];
    distinct(&targets, given.log.as_deref())?;
    distinct(&targets, Some(&given.profile))?;
    if given.bytes.is_some() && given.mix != FIXED {
        return Err(Failure::usage(format_args!(
            "--bytes applies to the mix `{FIXED}` only: the mix {} has its own sizes",
            given.mix
        ))
        .help(format_args!("give --mix {FIXED}, or leave --bytes out")));
    }
    if given.seconds + given.warm_up > SECONDS_MAX {
        return Err(Failure::usage("simulated time is limited to 200 days")
            .help("give less to --seconds and --warm-up: together at most 17280000"));
    }
    let drive = study::prepare(&given.profile, &given.set)?;
    let mut rows = Vec::new();
    for (i, to) in given.to.iter().enumerate() {
        let (name, to) = LogTo::ALL.into_iter().find(|(name, _)| *name == to.as_str()).expect("clap knows the names");
        let bar = Bar::working(&format!("{}/{} {name}", i + 1, given.to.len()), "writing the log");
        let outcome = run(given, &drive, to)?;
        drop(bar);
        rows.push(side(name, outcome));
    }
    let record = record(given, &drive, rows);
    let mut files: Vec<Delivery<'_>> = Vec::new();
    if let Some(target) = &json {
        files.push(("\njson    ".into(), target, Box::new(|| target.write(&record.to_json()))));
    }
    if let Some(target) = &report {
        files.push(("\nreport  ".into(), target, Box::new(|| target.write(&log::page(&record)))));
    }
    output::deliver(&log::summary(&record), files)
}

fn record(given: &Log, drive: &study::Drive, sides: Vec<Side>) -> LogRecord {
    let fast = sides.iter().any(|side| side.to == "fast");
    LogRecord {
        schema: log::SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        command_line: Some(command_line(std::env::args_os().skip(1))),
        profile: drive.name.clone(),
        description: drive.about.clone(),
        set: drive.changed.clone(),
        workload: workload(given),
        workers: given.workers,
        group_bytes: given.group_bytes,
        seed: given.seed,
        notes: drive.notes.iter().filter(|note| fast && note.contains("fast-side ring")).cloned().collect(),
        sides,
    }
}

fn run(given: &Log, drive: &study::Drive, to: LogTo) -> Result<LogOutcome, Failure> {
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
        Mix::Fixed(bytes) => Mix::Fixed(given.bytes.unwrap_or(bytes)),
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

fn side(to: &str, outcome: LogOutcome) -> Side {
    let measured = &outcome.measured;
    let seconds = outcome.ended.since(measured.since).as_secs_f64();
    let mut transactions = measured.latency.clone();
    transactions.add(&measured.read_only);
    Side {
        to: to.into(),
        transactions: measured.transactions(),
        transactions_per_second: outcome.transactions_per_second(),
        log_bytes: measured.bytes,
        log_bytes_per_second: measured.bytes as f64 / seconds.max(1e-12),
        simulated_seconds: seconds,
        latency_us: latency(&transactions),
        commit_us: latency(&measured.commit),
        stalls: measured.stalled.count(),
        pages_destaged: outcome.lane.map_or(0, |lane| lane.pages),
        pages_partial: outcome.lane.map_or(0, |lane| lane.partial_pages),
        credit_reads: outcome.loads,
        state: outcome.state,
    }
}

/// The workload, in words.
fn workload(given: &Log) -> String {
    match &given.log {
        Some(path) => printable(&path.to_string_lossy()),
        None => {
            let size = given.bytes.map(|bytes| format!(" ({} each)", units::bytes(bytes))).unwrap_or_default();
            format!("{}{size} on {}", given.mix, units::plural_exact(given.workers.into(), "worker"))
        }
    }
}
