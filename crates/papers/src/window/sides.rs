//! The two byte sides beside each other: the log workloads on the fast side of X-SSD and in the window of 2B-SSD, on
//! drives of the same flash that have one of them, or both.

use super::super::setting::{ExperimentError, Setting, at};
use super::super::{Findings, Options, check, column, figure, series};
use super::{BLOCK, client, device, pcie};
use tidewater_base::Duration;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_report::experiment::Form;
use tidewater_sim::host::{
    Attached, ConventionalSpec, Database, DeviceSink, LogClient, WindowLogSpec, Workers, WorkersSpec,
};
use tidewater_sim::pcie::Mapping;
use tidewater_sim::workload::log::{LogSource, LogSpec, mixes};

/// Settings that take a side away from a drive with both, or none.
const DRIVES: [(&str, &[(&str, &str)]); 3] =
    [("fast side", &[("window.size", "0")]), ("window", &[("fast.size", "0")]), ("both", &[])];
/// Settings that give this drive a fast side of X-SSD's size.
const FAST: &[(&str, &str)] = &[
    ("memory.sram.survives", "by-capacitors"),
    ("fast.size", "128KiB"),
    ("fast.log_size", "1GiB"),
    ("fast.on_wrap", "overwrite-oldest"),
    ("fast.release", "transferred"),
];
const MIXES: [&str; 3] = ["tpcc", "linkbench", "ycsb-a"];
/// Drive by its place, and the side that the log goes to.
const RUNS: [(usize, Side); 5] =
    [(0, Side::Fast), (2, Side::Fast), (1, Side::Window), (2, Side::Window), (2, Side::Blocks)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Fast,
    Window,
    Blocks,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Fast => "fast side",
            Side::Window => "window",
            Side::Blocks => "blocks",
        }
    }
}

/// Transactions a second, and microseconds from a full group to its durability.
fn measure(
    setting: &Setting,
    (drive_place, side): (usize, Side),
    mix: &str,
    options: &Options<'_>,
) -> Result<(f64, f64), ExperimentError> {
    let settings: Vec<(&str, String)> =
        FAST.iter().chain(DRIVES[drive_place].1).map(|&(key, value)| (key, value.into())).collect();
    let profile = setting.profile(&settings)?;
    let warm = setting.time("warm_ms", 1e-3, options.quick)?;
    let time = setting.time("run_ms", 1e-3, options.quick)?;
    let cpu_time = Duration::from_secs_f64(setting.number("transaction_us")? * 1e-6);
    let commit_bytes = setting.number("group_bytes")? as u64;
    let (_, mix) = mixes().into_iter().find(|(name, _)| *name == mix).expect("a mix has its name");
    let source = LogSource::synthesize(&LogSpec { mix, cpu_time, seed: options.seed, ..LogSpec::default() });
    let spec = WorkersSpec { commit_bytes, ..WorkersSpec::default() };
    let mut device = device(&profile, options.seed)?;
    let sink = match side {
        Side::Fast => DeviceSink::fast(),
        Side::Window => {
            let segment_bytes = (setting.number("segment_kib")? as u64) << 10;
            DeviceSink::window(WindowLogSpec { entries: 2, segment_bytes, lba: 0, segments: 64, block_bytes: BLOCK })
        }
        Side::Blocks => DeviceSink::conventional(ConventionalSpec { size: 1 << 28, ..ConventionalSpec::default() }),
    };
    let fast = (side == Side::Fast).then(|| {
        let spec = pcie(&device, options.seed);
        let layout = device.fast().bar_layout(0);
        LogClient::attach(&spec, &device.control_page(0), &layout, 0, Mapping::WriteCombining, None)
    });
    let app = Database::new(Workers::new(spec, source), sink, at(warm), at(warm + time));
    let mut host = Attached::new(app, fast, BLOCK.trailing_zeros());
    host.window = (side == Side::Window).then(|| client(&device, options.seed));
    let mut host = host.with_transfer_max(profile.host.transfer_max);
    drive(&mut device, &mut VirtualClock::default(), &mut host);
    if let Some(failure) = host.failure() {
        return Err(ExperimentError::new(failure));
    }
    let measured = host.app.workers.measured();
    let commit = measured.commit.mean().as_secs_f64() * 1e6;
    Ok((measured.transactions_per_second(at(warm + time)), commit))
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let mut findings = Findings {
        columns: vec![
            column("log", "the mix of transactions"),
            column("drive", "what byte sides the drive has"),
            column("log_to", "where the log goes"),
            column("transactions_per_second", "committed transactions a second"),
            column("commit_us", "mean microseconds from a full group to its durability"),
        ],
        ..Findings::default()
    };
    let mut plot =
        figure("Commit of a group", Form::Bars, ("log: 1 TPC-C, 2 LinkBench, 3 YCSB-A", false), ("us", true));
    let mut table = vec![Vec::new(); RUNS.len()];
    for (i, mix) in MIXES.iter().enumerate() {
        for (j, &(place, side)) in RUNS.iter().enumerate() {
            let (rate, commit) = measure(setting, (place, side), mix, options)?;
            let row = vec![(*mix).into(), DRIVES[place].0.into(), side.name().into(), rate.into(), commit.into()];
            findings.rows.push(row);
            table[j].push((rate, commit));
            options.done((i * RUNS.len() + j + 1) as f64 / (MIXES.len() * RUNS.len()) as f64)?;
        }
    }
    for (&(place, side), of_run) in RUNS.iter().zip(&table) {
        let points = of_run.iter().zip(1..).map(|(&(_, commit), x)| (f64::from(x), commit));
        plot.series.push(series(format!("{} of a drive with {}", side.name(), DRIVES[place].0), points));
    }
    findings.figures.push(plot);
    let apart = |a: usize, b: usize| {
        let pairs = table[a].iter().zip(&table[b]);
        pairs.map(|(a, b)| (a.1 / b.1 - 1.0).abs()).fold(0.0, f64::max)
    };
    let most = apart(0, 1).max(apart(2, 3));
    findings.checks.push(check(
        "unused-side-is-free",
        "commits on a drive with both within 1 % of those on a drive with one",
        format!("at most {:.2} % apart", most * 100.0),
        most <= 0.01,
    ));
    let list = |of: usize| table[of].iter().map(|run| format!("{:.1}", run.1)).collect::<Vec<_>>().join(", ");
    let ahead = table[1].iter().zip(&table[3]).all(|(fast, window)| fast.1 < window.1);
    findings.checks.push(check(
        "fast-side-sooner",
        "a lower commit time for every log",
        format!("fast side {} us, window {} us", list(1), list(3)),
        ahead,
    ));
    let sooner = table[1].iter().chain(&table[3]).zip(table[4].iter().cycle()).all(|(byte, block)| byte.1 < block.1);
    findings.checks.push(check("both-above-blocks", "for every log", format!("blocks {} us", list(4)), sooner));
    Ok(findings)
}
