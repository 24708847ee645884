//! Database logs on block drives, in the byte window, and without waiting for them; and what too few entries cost.

use super::super::setting::{ExperimentError, Setting, at};
use super::super::{Findings, Options, check, column, figure, series};
use super::{BLOCK, PAGE, Timed, client, device, pin, profile, run_timed};
use tidewater_base::{Duration, Rng};
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::host::{
    Attached, ConventionalSpec, Database, DeviceSink, LogRun, LogTo, Request, WindowLogSpec, WindowRequest, Workers,
    WorkersSpec,
};
use tidewater_sim::workload::log::{Image, LinkBench, LogSource, LogSpec, Mix, YcsbA};
use tidewater_wire::vendor::WindowCommand;

/// Where a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Blocks(&'static str),
    Window,
    /// No transaction waits for it.
    Nowhere,
}

const SINKS: [(&str, To); 4] = [
    ("DC-SSD", To::Blocks("dc-ssd")),
    ("ULL-SSD", To::Blocks("ull-ssd")),
    ("2B-SSD", To::Window),
    ("asynchronous", To::Nowhere),
];

/// A database: its name, the parameters for its workers and its processor time, its mix.
const DATABASES: [(&str, &str); 3] = [("PostgreSQL", "postgresql"), ("RocksDB", "rocksdb"), ("Redis", "redis")];

fn mix(database: usize) -> Mix {
    match database {
        0 => Mix::LinkBench(LinkBench::default()),
        _ => Mix::YcsbA(YcsbA { image: Image::Bytes(64), ..YcsbA::default() }),
    }
}

/// Transactions a second.
fn measure(setting: &Setting, database: usize, to: To, options: &Options<'_>) -> Result<f64, ExperimentError> {
    let key = DATABASES[database].1;
    let workers = setting.number(&format!("{key}_workers"))? as u32;
    let cpu_time = Duration::from_secs_f64(setting.number(&format!("{key}_us"))? * 1e-6);
    let warm = setting.time("warm_ms", 1e-3, options.quick)?;
    let time = setting.time("run_ms", 1e-3, options.quick)?;
    let source = LogSource::synthesize(&LogSpec {
        mix: mix(database),
        workers,
        cpu_time,
        seed: options.seed,
        ..LogSpec::default()
    });
    let spec = WorkersSpec {
        workers,
        commit_bytes: 1 << 20,
        cut: false,
        waits: true,
        when_idle: true,
        ..WorkersSpec::default()
    };
    let (sink, name) = match to {
        To::Nowhere => {
            let run = LogRun {
                to: LogTo::Nowhere,
                workers: spec,
                warm_until: at(warm),
                until: at(warm + time),
                seed: options.seed,
            };
            let outcome =
                run.run(&profile("2b-ssd"), source).map_err(|error| ExperimentError::new(error.to_string()))?;
            return Ok(outcome.transactions_per_second());
        }
        To::Blocks(name) => {
            let ring = ConventionalSpec { size: 1 << 28, ..ConventionalSpec::default() };
            (DeviceSink::conventional(ring), name)
        }
        To::Window => {
            let segment_bytes = (setting.number("segment_kib")? as u64) << 10;
            let ring = WindowLogSpec { entries: 2, segment_bytes, lba: 0, segments: 64, block_bytes: BLOCK };
            (DeviceSink::window(ring), "2b-ssd")
        }
    };
    let mut device = device(&profile(name), options.seed)?;
    let app = Database::new(Workers::new(spec, source), sink, at(warm), at(warm + time));
    let mut host = Attached::new(app, None, BLOCK.trailing_zeros());
    host.window = (to == To::Window).then(|| client(&device, options.seed));
    let mut host = host.with_transfer_max(device.profile().host.transfer_max);
    drive(&mut device, &mut VirtualClock::default(), &mut host);
    if let Some(failure) = host.failure() {
        return Err(ExperimentError::new(failure));
    }
    Ok(host.app.workers.measured().transactions_per_second(at(warm + time)))
}

/// Mean microseconds of appending to one of so many logs at random and syncing it, each in an entry of its own; and the
/// share of appends that had to bring their log in first.
fn thrash(setting: &Setting, logs: u64, options: &Options<'_>) -> Result<(f64, f64), ExperimentError> {
    let mut device = device(&profile("2b-ssd"), options.seed)?;
    let entry_bytes = (setting.number("entry_kib")? as u64) << 10;
    let cycles = if options.quick { 50 } else { setting.number("appends")? as u64 };
    let entries = u64::from(device.profile().window.entries);
    let mut rng = Rng::new(options.seed, b"logs");
    let pages = entry_bytes / PAGE;
    // Which log each entry holds, the one used last at the end.
    let mut held: Vec<(u16, u64)> = (0..logs.min(entries)).map(|log| (log as u16, log)).collect();
    let prologue = held.iter().map(|&(entry, log)| pin(entry, log * pages, entry_bytes)).collect();
    let misses = std::cell::Cell::new(0u64);
    let cycle = |_| {
        let log = rng.below(logs);
        let mut requests = Vec::new();
        let place = held.iter().position(|&(_, of)| of == log).unwrap_or_else(|| {
            misses.set(misses.get() + 1);
            let (entry, _) = held[0];
            requests.push((Request::Window(WindowRequest::Run(WindowCommand::Flush { entry })), true));
            requests.push((pin(entry, log * pages, entry_bytes), true));
            0
        });
        let (entry, _) = held.remove(place);
        held.push((entry, log));
        let (at, length) = (rng.below(entry_bytes / 256) * 256, 256);
        requests.push((Request::Window(WindowRequest::Store { entry, at, length }), true));
        requests.push((Request::Window(WindowRequest::Sync { entry, at, length }), true));
        requests
    };
    let latency = run_timed(&mut device, Timed::new(prologue, cycles, Box::new(cycle)), options.seed)?;
    Ok((latency.mean().as_secs_f64() * 1e6, misses.get() as f64 / cycles as f64))
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let counts = setting.numbers("logs")?;
    let steps = (DATABASES.len() * SINKS.len() + counts.len()) as f64;
    let mut done = 0.0;
    let mut findings = Findings {
        columns: vec![
            column("database", "the database whose log it is shaped as"),
            column("log_to", "where the log goes"),
            column("transactions_per_second", "committed transactions a second; appends a second of the last rows"),
            column("normalized", "against DC-SSD; against as many logs as there are entries"),
        ],
        ..Findings::default()
    };
    let mut plot = figure("Throughput by database", Form::Bars, ("database", false), ("normalized to DC-SSD", false));
    let mut table = Vec::new();
    for (database, (name, _)) in DATABASES.iter().enumerate() {
        let mut rates = Vec::new();
        for (sink, to) in SINKS {
            let rate = measure(setting, database, to, options)?;
            let against = rate / rates.first().copied().unwrap_or(rate);
            findings.rows.push(vec![(*name).into(), sink.into(), rate.into(), against.into()]);
            rates.push(rate);
            done += 1.0;
            options.done(done / steps)?;
        }
        table.push(rates);
    }
    for (i, (sink, _)) in SINKS.iter().enumerate() {
        let points = table.iter().zip(1..).map(|(rates, x)| (f64::from(x), rates[i] / rates[0]));
        plot.series.push(series(*sink, points));
    }
    findings.figures.push(plot);
    let gains: Vec<f64> = table.iter().map(|rates| rates[2] / rates[0]).collect();
    let most = gains.iter().copied().fold(0.0, f64::max);
    let over = |drive: usize| {
        table.iter().map(|rates| format!("{:.2}", rates[2] / rates[drive])).collect::<Vec<_>>().join(", ")
    };
    findings.checks.push(check(
        "gain",
        "the greatest over DC-SSD within 10 % of 2.8 (the slides name no baseline)",
        format!("{} over DC-SSD; {} over ULL-SSD", over(0), over(1)),
        (most / 2.8 - 1.0).abs() <= 0.1,
    ));
    let close: Vec<f64> = table.iter().map(|rates| rates[2] / rates[3]).collect();
    findings.checks.push(check(
        "near-asynchronous",
        "at least 85 % of its throughput",
        close.iter().map(|share| format!("{:.0} %", share * 100.0)).collect::<Vec<_>>().join(", "),
        close.iter().all(|&share| share >= 0.85),
    ));
    let ordered = table.iter().all(|rates| rates.is_sorted_by(|a, b| a < b));
    findings.checks.push(check(
        "order",
        "DC-SSD < ULL-SSD < 2B-SSD < asynchronous, for every database",
        if ordered { "for every database" } else { "not for every one" },
        ordered,
    ));
    let mut cost = figure("More logs than entries", Form::Lines, ("logs", true), ("append and sync (us)", true));
    let mut points = Vec::new();
    for &logs in &counts {
        let (latency, misses) = thrash(setting, logs as u64, options)?;
        points.push((logs, latency, misses));
        let first = points[0].1;
        let name = format!("{logs:.0} logs, {:.0} % brought in", misses * 100.0);
        findings.rows.push(vec![Cell::Text(name), "2B-SSD".into(), (1e6 / latency).into(), (first / latency).into()]);
        done += 1.0;
        options.done(done / steps)?;
    }
    cost.series.push(series("2B-SSD", points.iter().map(|&(logs, latency, _)| (logs, latency))));
    findings.figures.push(cost);
    let fits = points.iter().filter(|point| point.2 == 0.0).map(|point| point.1).fold(0.0, f64::max);
    let worst = points.last().map_or(0.0, |point| point.1);
    findings.checks.push(check(
        "more-logs-than-entries",
        "appends to the most logs take more than 20 times as long as where all logs are pinned",
        format!("{worst:.0} us against {fits:.1} us"),
        worst > 20.0 * fits,
    ));
    Ok(findings)
}
