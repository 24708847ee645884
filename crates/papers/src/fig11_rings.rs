//! Figure 11 beside its ring: bursts that fit into it, sizes of the ring, and when its bytes leave it.

use super::setting::{ExperimentError, Setting, at, device};
use super::{Findings, Options, check, column, figure, series};
use tidewater_base::Duration;
use tidewater_base::units::format_bytes;
use tidewater_core::cost::lane_bytes_per_second;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::profile::Profile;
use tidewater_report::experiment::Form;
use tidewater_sim::host::{Appender, Application, Attached, Bursts, client_of};
use tidewater_sim::pcie::Mapping;

/// Bytes of a line, which is what a TLP of the log carries.
const LINE: f64 = 64.0;

/// A load of appends: bursts or sustained, and whether each append is waited for.
#[derive(Clone, Copy, PartialEq)]
struct Load {
    name: &'static str,
    in_bursts: bool,
    syncs_each: bool,
}

const LOADS: [Load; 4] = [
    Load { name: "bursts", in_bursts: true, syncs_each: false },
    Load { name: "bursts of groups", in_bursts: true, syncs_each: true },
    Load { name: "sustained", in_bursts: false, syncs_each: false },
    Load { name: "sustained groups", in_bursts: false, syncs_each: true },
];
const BURSTS: usize = 0;
const SUSTAINED: usize = 2;

/// Link bandwidth left for lines of log after TLP framing, bytes a second.
fn framing_limit(profile: &Profile) -> f64 {
    let link = &profile.link;
    let rate = (lane_bytes_per_second(link.generation) * u64::from(link.lanes)) as f64;
    rate * LINE / (LINE + f64::from(link.tlp_overhead))
}

struct Bench<'a> {
    setting: &'a Setting,
    seed: u64,
    warm: Duration,
    time: Duration,
    burst: u64,
}

impl Bench<'_> {
    fn profile(&self, ring: f64, queue: f64, more: &[(&str, String)]) -> Result<Profile, ExperimentError> {
        let bytes = |bytes: f64| format!("{}", bytes as u64);
        let mut settings =
            vec![("memory.sram.size", bytes(ring)), ("fast.size", bytes(ring)), ("fast.queue_size", bytes(queue))];
        settings.extend(more.iter().cloned());
        self.setting.profile(&settings)
    }

    /// Bytes a second of a load in appends of a size.
    fn rate(&self, profile: &Profile, load: Load, size: f64) -> Result<f64, ExperimentError> {
        let (begin, end) = (at(self.warm), at(self.warm + self.time));
        if load.in_bursts {
            // Flash programs a page in 0.6 ms.
            let app = Bursts::new((size as u64, self.burst), load.syncs_each, Duration::from_ms(1), at(self.time));
            return Ok(self.run(profile, app)?.bandwidth());
        }
        let app = Appender::new(size as u64, load.syncs_each, Duration::ZERO, begin, end);
        Ok(self.run(profile, app)?.bandwidth())
    }

    fn run<A: Application>(&self, profile: &Profile, app: A) -> Result<A, ExperimentError> {
        let mut device = device(profile, self.seed)?;
        let client = client_of(&device, Mapping::WriteCombining, None, self.seed);
        let mut host = Attached::new(app, Some(client), profile.host.block_size.trailing_zeros());
        drive(&mut device, &mut VirtualClock::default(), &mut host);
        Ok(host.app)
    }
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let (sizes, queues) = (setting.numbers("sizes")?, setting.numbers("queues")?);
    let rings = setting.numbers("rings")?;
    let bench = Bench {
        setting,
        seed: options.seed,
        warm: setting.time("warm_us", 1e-6, options.quick)?,
        time: setting.time("run_us", 1e-6, options.quick)?,
        burst: setting.number("burst_bytes")? as u64,
    };
    let limit = framing_limit(&bench.profile(rings[0], queues[0], &[])?);
    let mut findings = Findings {
        columns: vec![
            column("load", "bursts with a pause behind each, or without an end; groups: each is waited for"),
            column("ring_bytes", "bytes of the ring"),
            column("queue_bytes", "bytes of the intake queue"),
            column("append_bytes", "bytes of an append, or of a group"),
            column("change", "what else was changed on the board"),
            column("bytes_per_second", "log bytes credited a second, in bursts while they last"),
        ],
        ..Findings::default()
    };
    // By load, ring, queue, and size.
    let mut rates = vec![vec![vec![Vec::new(); queues.len()]; rings.len()]; LOADS.len()];
    for (i, load) in LOADS.into_iter().enumerate() {
        for (j, &ring) in rings.iter().enumerate() {
            for (k, &queue) in queues.iter().enumerate() {
                let profile = bench.profile(ring, queue, &[])?;
                for &size in &sizes {
                    let rate = bench.rate(&profile, load, size)?;
                    rates[i][j][k].push(rate);
                    let row = [load.name.into(), ring.into(), queue.into(), size.into(), "nothing".into(), rate.into()];
                    findings.rows.push(row.into());
                }
            }
            options.done((i * rings.len() + j) as f64 / (LOADS.len() * rings.len()) as f64)?;
        }
    }
    let (largest, all) = (queues.len() - 1, sizes.len() - 1);
    let of_board = &rates[BURSTS][0];
    let reached = of_board[largest][all] / limit;
    findings.checks.push(check(
        "bursts-at-the-link",
        format!("at least 90 % of the {:.2} GB/s that framing leaves of the link", limit / 1e9),
        format!("{:.2} GB/s, {:.1} %", of_board[largest][all] / 1e9, reached * 100.0),
        reached >= 0.9,
    ));
    let above = |rates: &[Vec<f64>]| {
        let margins = (0..sizes.len()).flat_map(|j| (0..largest).map(move |k| (j, k)));
        margins.map(|(j, k)| rates[largest][j] / rates[k][j] - 1.0).fold(f64::MAX, f64::min)
    };
    findings.checks.push(check(
        "largest-queue-above-all",
        "appends without a wait between them: in bursts and without an end above each other queue, at every size",
        format!(
            "{:+.1} % in bursts, {:+.1} % without an end, at the least",
            above(of_board) * 100.0,
            above(&rates[SUSTAINED][0]) * 100.0
        ),
        above(of_board) > 0.0 && above(&rates[SUSTAINED][0]) > 0.0,
    ));
    // What the sustained rate depends on: one thing is taken away at a time.
    let changes: [(&str, &[(&str, &str)]); 7] = [
        ("ring bytes freed when a page is programmed", &[("fast.release", "programmed")]),
        ("ring bytes freed when a page is in its register", &[("fast.release", "transferred")]),
        ("a bus of 400 MB/s", &[("nand.bus_rate", "400MB/s")]),
        ("a second register in each die", &[("nand.cache", "true")]),
        ("the log's programs first", &[("fast.priority", "destage")]),
        ("no checkpoints", &[("ftl.checkpoint_interval", "0")]),
        (
            "no checkpoints, and bytes freed when a page is in its register",
            &[("ftl.checkpoint_interval", "0"), ("fast.release", "transferred")],
        ),
    ];
    let rate_of = |ring: f64, change: &[(&str, &str)]| {
        let change: Vec<(&str, String)> = change.iter().map(|&(key, value)| (key, value.to_owned())).collect();
        bench.rate(&bench.profile(ring, queues[largest], &change)?, LOADS[SUSTAINED], sizes[all])
    };
    for (j, &ring) in [rings[0], rings[rings.len() - 1]].iter().enumerate() {
        let whole = rates[SUSTAINED][[0, rings.len() - 1][j]][largest][all];
        let mut words = Vec::new();
        for (name, change) in changes {
            let rate = rate_of(ring, change)?;
            let row = [LOADS[SUSTAINED].name.into(), ring.into(), queues[largest].into(), sizes[all].into()];
            findings.rows.push(row.into_iter().chain([name.into(), rate.into()]).collect());
            words.push(format!("{:.2} with {name}", rate / 1e9));
        }
        findings.found.push(format!(
            "Without an end, a ring of {}: {:.2} GB/s of {:.2}; {}",
            format_bytes(ring as u64),
            whole / 1e9,
            limit / 1e9,
            words.join(", ")
        ));
    }
    for (i, load) in LOADS.into_iter().enumerate() {
        let title = format!("Throughput, {}", load.name);
        let mut plot = figure(&title, Form::Lines, ("ring (bytes)", true), ("throughput (GB/s)", false));
        for (k, &queue) in queues.iter().enumerate() {
            let points = rings.iter().enumerate().map(|(j, &ring)| (ring, rates[i][j][k][all] / 1e9));
            plot.series.push(series(format!("queue {}", format_bytes(queue as u64)), points));
        }
        findings.figures.push(plot);
    }
    Ok(findings)
}
