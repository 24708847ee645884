//! Figure 9: workers against sinks.

use super::setting::{ExperimentError, Setting, at};
use super::{Findings, Options, check, column, figure, list, paper, series};
use tidewater_base::Duration;
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::host::{LogRun, LogTo, WorkersSpec};
use tidewater_sim::workload::log::{LogSource, LogSpec};

/// Settings of a profile.
type Settings = &'static [(&'static str, &'static str)];

/// The paper's name of each sink, where the log goes, and what the profile needs for it.
const SINKS: [(&str, LogTo, Settings); 5] = [
    ("no log", LogTo::Nowhere, &[]),
    ("memory", LogTo::Memory, &[]),
    ("Villars-SRAM", LogTo::Fast, &[]),
    ("Villars-DRAM", LogTo::Fast, &[("fast.memory", "fast-dram"), ("fast.size", "128MiB")]),
    ("NVMe", LogTo::Conventional, &[]),
];
/// Places among the sinks.
const NO_LOG: usize = 0;
const MEMORY: usize = 1;
const SRAM: usize = 2;
const DRAM: usize = 3;
const CONVENTIONAL: usize = 4;

/// Transactions a second, and mean latency in microseconds.
pub(super) type Point = (f64, f64);

/// So many workers, whose log goes to one place of a drive with these settings.
pub(super) fn measure(
    setting: &Setting,
    to: LogTo,
    settings: &[(&str, String)],
    workers: u32,
    options: &Options<'_>,
) -> Result<Point, ExperimentError> {
    let warm = setting.time("warm_ms", 1e-3, options.quick)?;
    let time = setting.time("run_ms", 1e-3, options.quick)?;
    let cpu_time = Duration::from_secs_f64(setting.number("transaction_us")? * 1e-6);
    let commit_bytes = setting.number("group_bytes")? as u64;
    let log = LogSpec { workers, cpu_time, seed: options.seed, ..LogSpec::default() };
    let run = LogRun {
        to,
        workers: WorkersSpec { workers, commit_bytes, ..WorkersSpec::default() },
        warm_until: at(warm),
        until: at(warm + time),
        seed: options.seed,
    };
    let outcome = run.run(&setting.profile(settings)?, LogSource::synthesize(&log));
    let outcome = outcome.map_err(|error| ExperimentError::new(error.to_string()))?;
    Ok((outcome.transactions_per_second(), outcome.measured.mean_latency().as_secs_f64() * 1e6))
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let counts = setting.numbers("workers")?;
    let mut table: Vec<Vec<Point>> = Vec::new();
    for (sink, (_, to, settings)) in SINKS.into_iter().enumerate() {
        let mut points = Vec::new();
        let settings: Vec<(&str, String)> = settings.iter().map(|&(key, value)| (key, value.into())).collect();
        for (j, &workers) in counts.iter().enumerate() {
            points.push(measure(setting, to, &settings, workers as u32, options)?);
            options.done((sink * counts.len() + j + 1) as f64 / (SINKS.len() * counts.len()) as f64)?;
        }
        table.push(points);
    }
    let mut findings = Findings {
        columns: vec![
            column("sink", "where the log goes"),
            column("workers", "workers, each on a core"),
            column("transactions_per_second", "committed transactions a second"),
            column("latency_us", "mean time from a transaction's start until its log is durable"),
        ],
        ..Findings::default()
    };
    for (&(name, ..), points) in SINKS.iter().zip(&table) {
        for (&workers, &(rate, latency)) in counts.iter().zip(points) {
            findings.rows.push(vec![name.into(), workers.into(), rate.into(), Cell::Number(latency)]);
        }
    }
    let last = counts.len() - 1;
    let rate = table[NO_LOG][last].0;
    findings.checks.push(check(
        "no-log-rate",
        "at the most workers 300 ktxn/s, within 10 %",
        format!("{:.0} ktxn/s", rate / 1e3),
        (rate / 300e3 - 1.0).abs() <= 0.1,
    ));
    let latencies = |sink: usize| table[sink].iter().map(|point| point.1);
    for (sink, name_of) in [(MEMORY, "memory-falls"), (SRAM, "sram-falls")] {
        let falls = latencies(sink).is_sorted_by(|a, b| a > b);
        findings.checks.push(check(name_of, "each below the one before", list(latencies(sink), "us"), falls));
    }
    let apart = latencies(MEMORY).zip(latencies(SRAM)).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
    findings.checks.push(check(
        "memory-like-sram",
        "latencies within 10 % of each other",
        format!("at most {:.1} % apart", apart * 100.0),
        apart <= 0.1,
    ));
    let few = || counts.iter().zip(latencies(DRAM)).filter(|(workers, _)| **workers <= 4.0).map(|(_, latency)| latency);
    let flat = few().fold(0.0, f64::max) / few().fold(f64::MAX, f64::min);
    findings.checks.push(check(
        "dram-flat",
        "latencies with up to 4 workers within 25 % of each other",
        format!("{} with 1 to 4 workers: the longest is {flat:.2} times the shortest", list(few(), "us")),
        flat <= 1.25,
    ));
    let (sram, dram) = (&table[SRAM], &table[DRAM]);
    let extra: Vec<f64> = sram.iter().zip(dram).map(|(s, d)| d.1 - s.1).collect();
    findings.checks.push(check(
        "dram-back-pressure",
        "DRAM's latency is above SRAM's, and at the most workers more than twice as far above as at half of them",
        list(extra.iter().copied(), "us above SRAM's"),
        extra.iter().all(|&x| x > 0.0) && last > 0 && extra[last] > 2.0 * extra[last - 1],
    ));
    let spread = (0..last).map(|i| {
        let rates = || table.iter().map(|points| points[i].0);
        rates().fold(f64::MAX, f64::min) / rates().fold(0.0, f64::max)
    });
    let least = spread.fold(1.0, f64::min);
    findings.checks.push(check(
        "equal-throughput",
        "throughputs within 10 % of the best",
        format!("at least {:.1} % of the best", least * 100.0),
        least >= 0.9,
    ));
    let ceiling = table[CONVENTIONAL][last].0;
    findings.checks.push(check(
        "conventional-ceiling",
        "180 to 220 ktxn/s",
        format!("{:.0} ktxn/s", ceiling / 1e3),
        (180e3..=220e3).contains(&ceiling),
    ));
    findings.checks.push(check(
        "dram-below-conventional",
        "a lower latency with every number of workers",
        format!("{} against {}", list(latencies(DRAM), "us"), list(latencies(CONVENTIONAL), "us")),
        latencies(DRAM).zip(latencies(CONVENTIONAL)).all(|(dram, conventional)| dram < conventional),
    ));
    let mut latency = figure("Latency", Form::Lines, ("workers", true), ("mean transaction latency (us)", true));
    let mut rate = figure("Throughput", Form::Lines, ("workers", true), ("committed transactions (ktxn/s)", false));
    for (&(name, ..), points) in SINKS.iter().zip(&table) {
        latency.series.push(series(name, counts.iter().copied().zip(points.iter().map(|p| p.1))));
        rate.series.push(series(name, counts.iter().copied().zip(points.iter().map(|p| p.0 / 1e3))));
    }
    rate.series.push(paper(SINKS[CONVENTIONAL].0, [(counts[last], 200.0)]));
    findings.figures = vec![latency, rate];
    Ok(findings)
}
