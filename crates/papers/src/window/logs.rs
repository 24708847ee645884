//! Logs on block drives, on a fast side, in the byte window, and without waiting for them; and the cost of too few
//! entries.

use super::super::{at, time};
use super::*;
use tidewater_base::Rng;
use tidewater_sim::host::{
    ConventionalSpec, Database, DeviceSink, LogClient, LogRun, LogTo, WindowLogSpec, Workers, WorkersSpec,
};
use tidewater_sim::pcie::Mapping;
use tidewater_sim::workload::log::{Image, LogSource, LogSpec, Mix, YcsbA, mixes};

/// Transactions a second of a database whose log goes `to` a place, microseconds from a full group to its durability,
/// and for each MiB that has been destaged from a byte side the time and the commands of the host.
pub(crate) fn measure(point: &Point) -> Measured {
    if point.number("count")? > 0.0 {
        return thrash(point);
    }
    let (seed, workers, to) = (point.seed()?, point.number("workers")? as u32, point.text("to")?);
    let (warm, run) = (time(point, "warm_ms", 1e-3)?, time(point, "run_ms", 1e-3)?);
    let cpu_time = Duration::from_secs_f64(point.number("cpu_us")? * 1e-6);
    let named = point.text("mix")?;
    let mix = match mixes().into_iter().find(|(name, _)| *name == named) {
        Some((_, mix)) => mix,
        None => Mix::YcsbA(YcsbA { image: Image::Bytes(64), ..YcsbA::default() }),
    };
    let source = LogSource::synthesize(&LogSpec { mix, workers, cpu_time, seed, ..LogSpec::default() });
    let commit_bytes = point.number("group_bytes")? as u64;
    let spec = WorkersSpec { workers, commit_bytes, ..WorkersSpec::default() };
    // Of a database each worker waits for its commit, and an idle log does not wait for more.
    let alone = point.value("alone")?.is_true();
    let spec = if alone { WorkersSpec { cut: false, waits: true, when_idle: true, ..spec } } else { spec };
    if to == "none" {
        let run = LogRun { to: LogTo::Nowhere, workers: spec, warm_until: at(warm), until: at(warm + run), seed };
        let outcome = run.run(&point.drive()?.profile, source).map_err(refused)?;
        return Ok(figures([("rate", outcome.transactions_per_second()), ("misses", 0.0)]));
    }
    let mut device = device(point, Precondition::Fresh)?;
    let sink = match &*to {
        "fast side" => DeviceSink::fast(),
        "window" => {
            let segment_bytes = (point.number("segment_kib")? as u64) << 10;
            DeviceSink::window(WindowLogSpec { entries: 2, segment_bytes, lba: 0, segments: 64, block_bytes: BLOCK })
        }
        _ => DeviceSink::conventional(ConventionalSpec { size: 1 << 28, ..ConventionalSpec::default() }),
    };
    let fast = (to == "fast side").then(|| {
        let layout = device.fast().bar_layout(0);
        let (spec, page) = (pcie(&device, seed), device.control_page(0));
        LogClient::attach(&spec, &page, &layout, 0, Mapping::WriteCombining, None)
    });
    let app = Database::new(Workers::new(spec, source), sink, at(warm), at(warm + run));
    let mut host = Attached::new(app, fast, BLOCK.trailing_zeros());
    host.window = (to == "window").then(|| client(&device, seed));
    let mut host = host.with_transfer_max(device.profile().host.transfer_max);
    drive(&mut device, &mut VirtualClock::default(), &mut host);
    if let Some(failure) = host.failure() {
        return Err(refused(failure));
    }
    let measured = host.app.workers.measured();
    let on_flash = match device.fast().function(0).filter(|_| to == "fast side") {
        Some(function) => function.lanes()[0].durable(),
        None => device.window().statistics.pages_flushed * PAGE,
    };
    let mib = on_flash as f64 / f64::from(1 << 20);
    Ok(figures([
        ("ms_per_mib", (warm + run).as_secs_f64() * 1e3 / mib),
        ("commands_per_mib", host.commands as f64 / mib),
        ("rate", measured.transactions_per_second(at(warm + run))),
        ("commit_us", measured.commit.mean().as_secs_f64() * 1e6),
        ("misses", 0.0),
    ]))
}

/// Appending to one of `count` logs at random and syncing it, each in an entry of its own: appends a second, their mean
/// time, and the share of them that had to bring their log in first.
fn thrash(point: &Point) -> Measured {
    let (logs, seed) = (point.number("count")? as u64, point.seed()?);
    let mut device = device(point, Precondition::Fresh)?;
    let entry_bytes = (point.number("entry_kib")? as u64) << 10;
    let cycles = if point.value("quick")?.is_true() { 50 } else { point.number("appends")? as u64 };
    let entries = u64::from(device.profile().window.entries);
    let mut rng = Rng::new(seed, b"logs");
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
    let latency = run_timed(&mut device, Timed::new(prologue, cycles, Box::new(cycle)), seed)?;
    let latency = latency.mean().as_secs_f64() * 1e6;
    let misses = misses.get() as f64 / cycles as f64;
    Ok(figures([("rate", 1e6 / latency), ("latency_us", latency), ("misses", misses)]))
}
