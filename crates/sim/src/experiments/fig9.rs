//! Figure 9: workers against sinks.

use super::setting::{ExperimentError, Setting, at, device};
use super::{Findings, Options, check, column, figure, list, series};
use crate::host::{
    Attached, ConventionalSpec, Database, DeviceSink, LogClient, Memory, MemorySpec, NoLog, Sink, Workers, WorkersSpec,
};
use crate::pcie::{CpuSpec, CreditSpec, Drain, Mapping, PcieSpec};
use crate::workload::log::{LogSource, LogSpec};
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_report::experiment::{Cell, Form};

/// Where the log goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Nowhere,
    Memory,
    Sram,
    Dram,
    Conventional,
}

const SINKS: [(To, &str); 5] = [
    (To::Nowhere, "no log"),
    (To::Memory, "memory"),
    (To::Sram, "Villars-SRAM"),
    (To::Dram, "Villars-DRAM"),
    (To::Conventional, "NVMe"),
];

/// Transactions a second, and mean latency in microseconds.
type Point = (f64, f64);

struct Case<'s> {
    setting: &'s Setting,
    workers: u32,
    seed: u64,
    warm: Instant,
    until: Instant,
}

impl Case<'_> {
    fn workers(&self, to: To) -> Result<Workers, ExperimentError> {
        let transaction = Duration::from_secs_f64(self.setting.number("transaction_us")? * 1e-6);
        let log = LogSpec { workers: self.workers, cpu_time: transaction, seed: self.seed, ..LogSpec::default() };
        let group = self.setting.number("group_bytes")? as u64;
        let commit_bytes = if to == To::Nowhere { 1 } else { group };
        let spec = WorkersSpec { workers: self.workers, commit_bytes, ..WorkersSpec::default() };
        Ok(Workers::new(spec, LogSource::synthesize(&log)))
    }

    fn on_host(&self, to: To, sink: &mut impl Sink) -> Result<Point, ExperimentError> {
        let mut workers = self.workers(to)?;
        crate::host::drive(&mut workers, sink, self.warm);
        workers.measure_from(self.warm);
        let mut now = self.warm;
        while let Some(next) = crate::host::next(&workers, sink).filter(|&next| next <= self.until) {
            now = now.max(next);
            crate::host::step(&mut workers, sink, now);
        }
        Ok(self.point(&workers))
    }

    fn point(&self, workers: &Workers) -> Point {
        let measured = workers.measured();
        (measured.transactions_per_second(self.until), measured.mean_latency().as_secs_f64() * 1e6)
    }

    fn on_device(&self, to: To) -> Result<Point, ExperimentError> {
        let settings: &[(&str, String)] = match to {
            To::Dram => &[("fast.memory", "fast-dram".into()), ("fast.size", "128MiB".into())],
            _ => &[],
        };
        let profile = self.setting.profile(settings)?;
        let mut device = device(&profile, self.seed)?;
        let (sink, client) = match to {
            To::Conventional => (DeviceSink::conventional(ConventionalSpec::default()), None),
            _ => (DeviceSink::fast(), Some(client(&device, Mapping::WriteCombining, None, self.seed))),
        };
        let app = Database::new(self.workers(to)?, sink, self.warm, self.until);
        let mut host = Attached::new(app, client, profile.host.block_size.trailing_zeros());
        drive(&mut device, &mut VirtualClock::default(), &mut host);
        Ok(self.point(&host.app.workers))
    }
}

/// A client of the first lane of a drive.
pub(super) fn client(device: &tidewater_core::Device, mapping: Mapping, piece: Option<u64>, seed: u64) -> LogClient {
    let spec = PcieSpec {
        cores: 1,
        cpu: CpuSpec::default(),
        link: device.profile().link.clone(),
        credits: CreditSpec::default(),
        drain: Drain::Any,
        seed,
    };
    let setup = *device.fast().function(0).expect("the profile has a fast side").setup();
    LogClient::attach(&spec, &device.control_page(0), 0, setup, mapping, piece)
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let counts = setting.numbers("workers")?;
    let warm = setting.time("warm_ms", 1e-3, options.quick)?;
    let time = setting.time("run_ms", 1e-3, options.quick)?;
    let mut table: Vec<Vec<Point>> = Vec::new();
    for (i, &(to, _)) in SINKS.iter().enumerate() {
        let mut points = Vec::new();
        for (j, &workers) in counts.iter().enumerate() {
            let case =
                Case { setting, workers: workers as u32, seed: options.seed, warm: at(warm), until: at(warm + time) };
            points.push(match to {
                To::Nowhere => case.on_host(to, &mut NoLog::default())?,
                To::Memory => case.on_host(to, &mut Memory::new(MemorySpec::default()))?,
                _ => case.on_device(to)?,
            });
            (options.progress)((i * counts.len() + j + 1) as f64 / (SINKS.len() * counts.len()) as f64);
        }
        table.push(points);
    }
    let of = |to: To| &table[SINKS.iter().position(|sink| sink.0 == to).expect("it is one of them")];
    let mut findings = Findings {
        columns: vec![
            column("sink", "where the log goes"),
            column("workers", "workers, each on a core"),
            column("transactions_per_second", "committed transactions a second"),
            column("latency_us", "mean time from a transaction's start until its log is durable"),
        ],
        ..Findings::default()
    };
    for (&(_, name), points) in SINKS.iter().zip(&table) {
        for (&workers, &(rate, latency)) in counts.iter().zip(points) {
            findings.rows.push(vec![name.into(), workers.into(), rate.into(), Cell::Number(latency)]);
        }
    }
    let last = counts.len() - 1;
    let latencies = |to: To| of(to).iter().map(|point| point.1);
    for (to, name) in [(To::Memory, "memory"), (To::Sram, "Villars-SRAM")] {
        let falls = latencies(to).is_sorted_by(|a, b| a > b);
        findings.checks.push(check(
            &format!(
                "The latency of logging to {name} falls as workers are added, because 16 KiB are gathered earlier"
            ),
            "each below the one before",
            list(latencies(to), "us"),
            falls,
        ));
    }
    let apart = latencies(To::Memory).zip(latencies(To::Sram)).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
    findings.checks.push(check(
        "Logging against NVDIMM or against SRAM yields similar results",
        "latencies within 10 % of each other",
        format!("at most {:.1} % apart", apart * 100.0),
        apart <= 0.1,
    ));
    let (sram, dram) = (of(To::Sram), of(To::Dram));
    let extra: Vec<f64> = sram.iter().zip(dram).map(|(s, d)| d.1 - s.1).collect();
    findings.checks.push(check(
        "With 8 threads, back-pressure builds up with DRAM",
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
        "The methods perform almost equally up to 4 workers",
        "throughputs within 10 % of the best",
        format!("at least {:.1} % of the best", least * 100.0),
        least >= 0.9,
    ));
    let ceiling = of(To::Conventional)[last].0;
    findings.checks.push(check(
        "With 8 threads the conventional side cannot achieve anything better than approximately 200k transactions per second",
        "180 to 220 ktxn/s (fitted by the command's time)",
        format!("{:.0} ktxn/s", ceiling / 1e3),
        (180e3..=220e3).contains(&ceiling),
    ));
    let crossover = latencies(To::Conventional).zip(latencies(To::Dram)).next_back();
    findings.checks.push(check(
        "Logging against DRAM is advantageous if compared with logging to the conventional side",
        "a lower latency at the most workers",
        crossover.map_or(String::new(), |(c, d)| format!("{d:.0} against {c:.0} us")),
        crossover.is_some_and(|(c, d)| d < c),
    ));
    let mut latency = figure("Latency", Form::Lines, ("workers", true), ("mean transaction latency (us)", true));
    let mut rate = figure("Throughput", Form::Lines, ("workers", true), ("committed transactions (ktxn/s)", false));
    for (&(_, name), points) in SINKS.iter().zip(&table) {
        latency.series.push(series(name, counts.iter().copied().zip(points.iter().map(|p| p.1))));
        rate.series.push(series(name, counts.iter().copied().zip(points.iter().map(|p| p.0 / 1e3))));
    }
    findings.figures = vec![latency, rate];
    Ok(findings)
}
