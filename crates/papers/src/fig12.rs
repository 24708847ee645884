//! Figure 12: who gets the flash.

use super::setting::{ExperimentError, Setting, at, device};
use super::{Findings, Options, check, column, figure, list, series};
use tidewater_base::Duration;
use tidewater_core::Device;
use tidewater_core::drive::{Clock, VirtualClock, drive};
use tidewater_core::profile::Profile;
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::host::{Appender, Attached, BlockWrites, client_of, is_full};
use tidewater_sim::pcie::Mapping;

const PRIORITIES: [&str; 3] = ["neutral", "conventional", "destage"];

/// Write bandwidth of a drive's flash, in bytes of data a second: the lesser of its buses' and its cells'.
fn flash_bandwidth(profile: &Profile) -> f64 {
    let nand = &profile.nand;
    let row = f64::from(nand.page_size * nand.planes);
    let on_bus = f64::from((nand.page_size + nand.oob_size) * nand.planes) / nand.bus_rate as f64
        + nand.command_time.as_secs_f64();
    let kinds = nand.cell.page_kinds();
    let program = nand.program_time[..kinds].iter().map(|t| t.as_secs_f64()).sum::<f64>() / kinds as f64;
    let (buses, dies) = (f64::from(nand.channels), f64::from(nand.dies()));
    // Without cache commands a die's bus time and program follow each other.
    let per_die = if nand.cache { program } else { program + on_bus };
    (buses * row / on_bus).min(dies * row / per_die)
}

/// Bytes of the log that are on flash.
fn on_flash(device: &Device) -> u64 {
    device.fast().function(0).map_or(0, |function| function.lanes()[0].durable())
}

/// Both loads of one run, in shares of the flash's write bandwidth.
#[derive(Clone, Copy)]
struct Loads {
    conventional: f64,
    fast: f64,
}

/// Measured bandwidths of both loads, in percent of the flash's write bandwidth.
struct Point {
    blocks: f64,
    log_on_flash: f64,
    log_credited: f64,
    ring_full: bool,
}

fn measure(setting: &Setting, priority: &str, loads: Loads, options: &Options<'_>) -> Result<Point, ExperimentError> {
    let (bytes, depth) = (setting.number("write_bytes")? as u64, setting.number("depth")? as u16);
    let profile = setting.profile(&[
        ("memory.fast-dram.bandwidth", format!("{}B/s", setting.number("ring_memory_bytes_per_second")? as u64)),
        ("fast.memory", "fast-dram".into()),
        ("fast.size", format!("{}MiB", setting.number("ring_mib")? as u64)),
        ("fast.priority", priority.into()),
    ])?;
    let flash = flash_bandwidth(&profile);
    let every = |share: f64| Duration::from_secs_f64(bytes as f64 / (flash * share));
    let time = setting.time("run_ms", 1e-3, options.quick)?;
    // More than the flash takes fills the ring sooner or later: only then is it measured.
    let overloaded = loads.fast + loads.conventional > 1.0;
    let fill = setting.time("fill_ms", 1e-3, options.quick)?;
    let warm = at(if overloaded { fill } else { Duration::from_ps(time.as_ps() / 4) });
    let mut device = device(&profile, options.seed)?;
    let client = client_of(&device, Mapping::WriteCombining, None, options.seed);
    let shift = profile.host.block_size.trailing_zeros();
    let mut host = Attached::new(Appender::new(bytes, false, every(loads.fast), warm, warm), Some(client), shift);
    host.blocks = Some(BlockWrites::new((bytes, 4 << 30, shift), every(loads.conventional), depth, warm, warm));
    host.stops_when_full = true;
    let mut clock = VirtualClock::default();
    drive(&mut device, &mut clock, &mut host);
    let (begin, ring_full) = (clock.now(), is_full(&device));
    let end = begin + time;
    host.app.measure(begin, end);
    host.blocks.iter_mut().for_each(|blocks| blocks.measure(begin, end));
    host.stops_when_full = false;
    let before = on_flash(&device);
    drive(&mut device, &mut clock, &mut host);
    let share = |bytes: f64| bytes / flash * 100.0;
    Ok(Point {
        blocks: share(host.blocks.as_ref().map_or(0.0, BlockWrites::bandwidth)),
        log_on_flash: share((on_flash(&device) - before) as f64 / clock.now().since(begin).as_secs_f64()),
        log_credited: share(host.app.bandwidth()),
        ring_full,
    })
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let loads = setting.numbers("fast_percent")?;
    let conventional = setting.number("conventional_percent")? / 100.0;
    let half = setting.number("half_percent")?;
    let mut findings = Findings {
        columns: vec![
            column("priority", "who goes first on flash"),
            column("conventional_percent", "offered load of block writes, in percent of the flash's write bandwidth"),
            column("fast_percent", "offered load of the log, in percent of the flash's write bandwidth"),
            column("conventional_share", "block writes completed, in percent of the flash's write bandwidth"),
            column("fast_share", "log bytes that reached flash, in percent of the flash's write bandwidth"),
            column("credited_share", "log bytes credited, in percent of the flash's write bandwidth"),
            column("ring_full", "whether the ring was full when the measurement began: 0 or 1"),
        ],
        ..Findings::default()
    };
    let row = |priority: &str, loads: Loads, point: &Point| {
        let offered = [loads.conventional * 100.0, loads.fast * 100.0];
        let found = [point.blocks, point.log_on_flash, point.log_credited, f64::from(u8::from(point.ring_full))];
        let numbers = offered.into_iter().chain(found).map(Cell::Number);
        std::iter::once(priority.into()).chain(numbers).collect()
    };
    let mut measured: Vec<Vec<(f64, f64)>> = Vec::new();
    let runs = PRIORITIES.len() * loads.len() + 1;
    for (i, priority) in PRIORITIES.into_iter().enumerate() {
        let mut points = Vec::new();
        for (j, &load) in loads.iter().enumerate() {
            let both = Loads { conventional, fast: load / 100.0 };
            let point = measure(setting, priority, both, options)?;
            findings.rows.push(row(priority, both, &point));
            points.push((point.blocks, point.log_on_flash));
            options.done((i * loads.len() + j + 1) as f64 / runs as f64)?;
        }
        measured.push(points);
    }
    let most = *loads.last().expect("a list of loads is not empty");
    let both = Loads { conventional: half / 100.0, fast: most / 100.0 };
    let point = measure(setting, PRIORITIES[0], both, options)?;
    findings.rows.push(row(PRIORITIES[0], both, &point));
    findings.found.push(format!(
        "Neutral, block writes that ask for {half} % and a log that asks for {most} %: {:.1} and {:.1} %",
        point.blocks, point.log_on_flash
    ));
    let wanted = conventional * 100.0;
    let [neutral, for_blocks, for_log] = [&measured[0], &measured[1], &measured[2]];
    let by_load = || loads.iter().copied().zip(neutral.iter().copied());
    let served = || by_load().filter(|(load, _)| load + wanted <= 98.0);
    findings.checks.push(check(
        "neutral-serves",
        "both get 95 % of what they ask for while they ask for at most 98 % of the flash",
        list(served().map(|(_, point)| point.0 + point.1), "% of the flash"),
        served().all(|(load, point)| point.0 > wanted * 0.95 && point.1 > load * 0.95),
    ));
    let beyond = || by_load().filter(|(load, _)| load + wanted > 100.0);
    let words = beyond().map(|(load, (blocks, log))| format!("{blocks:.1} of {wanted:.0} and {log:.1} of {load:.0} %"));
    findings.checks.push(check(
        "neutral-both-suffer",
        "each gets less than 97 % of what it asks for, wherever they ask for more than the flash takes",
        format!("block writes and log {}", words.collect::<Vec<_>>().join(", ")),
        beyond().all(|(load, (blocks, log))| blocks < wanted * 0.97 && log < load * 0.97),
    ));
    let contested = || by_load().filter(|(load, _)| load.min(wanted) > 50.0).map(|(_, point)| point);
    findings.checks.push(check(
        "neutral-equal",
        "shares within 5 % of each other, wherever each asks for more than half of the flash",
        list(contested().flat_map(|(blocks, log)| [blocks, log]), "% (block writes, log, by load)"),
        contested().count() > 0 && contested().all(|(blocks, log)| (blocks / log - 1.0).abs() <= 0.05),
    ));
    findings.checks.push(check(
        "conventional-preserved",
        "95 % of what they ask for at every load",
        list(for_blocks.iter().map(|point| point.0), "% of the flash"),
        for_blocks.iter().all(|point| point.0 > wanted * 0.95),
    ));
    findings.checks.push(check(
        "destage-preserved",
        "the log gets 95 % of what it asks for at every load",
        list(for_log.iter().map(|point| point.1), "% of the flash"),
        loads.iter().zip(for_log).all(|(load, point)| point.1 > load * 0.95),
    ));
    for (priority, points) in PRIORITIES.into_iter().zip(&measured) {
        let y = ("throughput (% of the flash's write bandwidth)", false);
        let x = ("load of the log (% of the flash's write bandwidth)", false);
        let mut plot = figure(&format!("{priority} priority"), Form::Lines, x, y);
        plot.series.push(series("conventional", loads.iter().copied().zip(points.iter().map(|p| p.0))));
        plot.series.push(series("fast", loads.iter().copied().zip(points.iter().map(|p| p.1))));
        findings.figures.push(plot);
    }
    Ok(findings)
}
