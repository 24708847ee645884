//! Figure 2: six drives under a light and a heavy load, with host memory and without.

use super::*;
use tidewater_report::experiment::Form;
use tidewater_sim::workload::JobSpec;
use tidewater_sim::{Pacing, RunOptions};

/// Patterns of the paper's panels: the `rw` of a job, and its label.
const PATTERNS: [(&str, &str); 4] = [
    ("read", "sequential read"),
    ("write", "sequential write"),
    ("randread", "random read"),
    ("randwrite", "random write"),
];
const SEQUENTIAL_READ: usize = 0;
const SEQUENTIAL_WRITE: usize = 1;
const RANDOM_READ: usize = 2;
const RANDOM_WRITE: usize = 3;

/// Possible bottlenecks of random writes without host memory, each removed by one setting.
const TAKEN_AWAY: [(&str, &str, &str); 4] = [
    ("if reads of flash take no time", "nand.read_time", "1us"),
    ("if programs take no time", "nand.program_time", "1us"),
    ("if the drive's own memory has the mapping pages of two rows", "ftl.map_floor", "64KiB"),
    ("if no change waits for its mapping page", "ftl.map_updates", "1048576"),
];

/// One load of both: the threads of fio's job file, and how many requests each has under way.
struct Load {
    name: &'static str,
    threads: u64,
    depth: u64,
    block: String,
    /// The most requests of each thread in a second; 0: as many as it gets through.
    rate: u64,
    requests: u64,
}

/// MiB/s of a drive under one pattern.
fn bandwidth(
    (drive, settings): (&str, &[(&str, String)]),
    load: &Load,
    rw: &str,
    (span, stagger): (u64, u64),
    seed: u64,
) -> Result<f64, ExperimentError> {
    let profile = profile_with(drive, settings)?;
    let Load { threads, depth, block, rate, requests, .. } = load;
    let each = span / threads;
    // Sequential threads begin apart, each in a part of its own, and not all on the same die.
    let place = if rw.starts_with("rand") {
        format!("size={span}")
    } else {
        format!("size={},offset_increment={}", each - threads * stagger, each + stagger)
    };
    let pace = if *rate > 0 { format!("rate_iops={rate},") } else { String::new() };
    let job = format!(
        "rw={rw},bs={block},iodepth={depth},numjobs={threads},{place},{pace}number_ios={requests},norandommap=1"
    );
    let wrong = |error: &dyn std::fmt::Display| ExperimentError::new(format!("{drive}, {job}: {error}"));
    let source = JobSpec::from_inline(&job).and_then(|spec| spec.source(None, seed)).map_err(|e| wrong(&e))?;
    let depth = source.iodepth();
    let pacing = if *rate > 0 { Pacing::ArrivalAndDepth(depth) } else { Pacing::Depth(depth) };
    let mut options = RunOptions { pacing, ..RunOptions::default() };
    options.device.seed = seed;
    options.device.capacity = span;
    options.device.precondition = Precondition::Filled(1.0);
    // What the caches and the buffer take at the start is not what they do.
    options.warmup_requests = requests * threads / 4;
    let outcome = tidewater_sim::run(&profile, source, options).map_err(|e| wrong(&e))?;
    let bandwidth = outcome.record.bandwidth_mib_s;
    Ok(bandwidth.read + bandwidth.write)
}

/// Bandwidths by pattern: without host memory, and with it.
type Pair = [f64; 2];

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let drives = setting.words("drives")?;
    let twins = setting.words("twins")?;
    let span = (setting.number("span_gib")? * (1u64 << 30) as f64) as u64;
    let places = (span, (setting.number("stagger_kib")? * 1024.0) as u64);
    let load = |name: &'static str, key: &str| -> Result<Load, ExperimentError> {
        let requests = setting.number(&format!("{key}_requests"))? / if options.quick { 8.0 } else { 1.0 };
        Ok(Load {
            name,
            threads: setting.number(&format!("{key}_threads"))? as u64,
            depth: setting.number(&format!("{key}_depth"))? as u64,
            block: setting.word(&format!("{key}_block"))?,
            rate: if key == "light" { setting.number("light_rate")? as u64 } else { 0 },
            requests: requests as u64,
        })
    };
    let loads = [load("LIGHT", "light")?, load("HEAVY", "heavy")?];
    let about = setting.number("about_equal")?;
    let helps = setting.number("helps")?;
    let far = setting.number("far_below")?;
    let mut findings = Findings {
        columns: vec![
            column("drive", "the profile"),
            column("load", "LIGHT or HEAVY"),
            column("pattern", "what the host does"),
            column("off_mib_s", "MiB/s without host memory"),
            column("on_mib_s", "MiB/s with it; the same where the drive has no use for it"),
        ],
        ..Findings::default()
    };
    // By load, drive and pattern.
    let mut all: Vec<Vec<Vec<Pair>>> = Vec::new();
    let (mut done, count) = (0.0, (loads.len() * drives.len() * PATTERNS.len()) as f64);
    for load in &loads {
        let mut by_drive = Vec::new();
        for drive in &drives {
            let lends = tidewater_core::host_memory::wanted(&profile_with(drive, &[])?) > 0;
            let mut pairs = Vec::new();
            for (rw, pattern) in PATTERNS {
                let off = bandwidth((drive, &lending(None)), load, rw, places, options.seed)?;
                let on = if lends { bandwidth((drive, &[]), load, rw, places, options.seed)? } else { off };
                findings.rows.push(vec![
                    drive.as_str().into(),
                    load.name.into(),
                    pattern.into(),
                    off.into(),
                    on.into(),
                ]);
                pairs.push([off, on]);
                done += 1.0;
                options.done(done / count)?;
            }
            by_drive.push(pairs);
        }
        all.push(by_drive);
    }
    for (l, load) in loads.iter().enumerate() {
        for (p, (_, pattern)) in PATTERNS.iter().enumerate() {
            let title = format!("{}, {pattern}", load.name);
            let mut plot = figure(&title, Form::Bars, ("drive (A to F are 1 to 6)", false), ("MiB/s", false));
            for (hmb, name) in ["HMB off", "HMB on"].into_iter().enumerate() {
                let points = all[l].iter().enumerate().map(|(d, pairs)| ((d + 1) as f64, pairs[p][hmb]));
                plot.series.push(series(name, points));
            }
            findings.figures.push(plot);
        }
    }
    let d = |name: &str| {
        drives
            .iter()
            .position(|drive| drive == name)
            .ok_or_else(|| ExperimentError::new(format!("`drives` must name {name}")))
    };
    let (a, b, c, e, f) = (d("ssd-a")?, d("ssd-b")?, d("ssd-c")?, d("ssd-e")?, d("ssd-f")?);
    // The twin of each drive without DRAM.
    let mut twin_of = Vec::new();
    for (drive, twin) in drives.iter().zip(&twins) {
        if twin != "none" {
            twin_of.push((d(drive)?, d(twin)?));
        }
    }
    let light = &all[0];
    let heavy = &all[1];
    let patterns = || 0..PATTERNS.len();
    let gain = |pair: Pair| pair[1] / pair[0];

    let off = |drive: usize, p: usize| light[drive][p][0];
    let worse: Vec<f64> = patterns()
        .flat_map(|p| twin_of.iter().filter(|(x, _)| *x != b).map(move |&(x, y)| off(x, p) / off(y, p)))
        .collect();
    findings.checks.push(check(
        "light-worse",
        format!("at most {far} of it, in every pattern"),
        list(worse.iter().map(|share| 100.0 * share), "% (A, C of D; sequential read, write, random read, write)"),
        worse.iter().all(|&share| share <= far),
    ));
    let degraded: Vec<f64> =
        patterns().flat_map(|p| twin_of.iter().map(move |&(x, y)| off(x, p) / off(y, p))).collect();
    findings.checks.push(check(
        "light-degraded",
        format!("each of A, B and C at most {:.0} % of its twin, in every pattern", 100.0 / helps),
        list(degraded.iter().map(|share| 100.0 * share), "% (A, B, C; sequential read, write, random read, write)"),
        degraded.iter().all(|&share| share <= 1.0 / helps),
    ));
    let equal: Vec<f64> = patterns().map(|p| off(b, p) / off(e, p)).collect();
    findings.checks.push(check(
        "light-b-like-e",
        format!("within {:.0} % in every pattern", 100.0 * about),
        list(equal.iter().map(|share| 100.0 * share), "% (sequential read, write, random read, write)"),
        equal.iter().all(|share| (share - 1.0).abs() <= about),
    ));
    let reads = [SEQUENTIAL_READ, RANDOM_READ];
    let gains: Vec<f64> = [a, c].iter().flat_map(|&x| reads.map(|p| gain(light[x][p]))).collect();
    findings.checks.push(check(
        "light-reads-improved",
        format!("by at least {:.0} %", 100.0 * (helps - 1.0)),
        list(gains.iter().map(|g| 100.0 * (g - 1.0)), "% (A, A, C, C)"),
        gains.iter().all(|&g| g >= helps),
    ));
    let writes = [SEQUENTIAL_WRITE, RANDOM_WRITE];
    let of_writes = |of: &[Vec<Pair>], among: &[usize]| -> Vec<f64> {
        among.iter().flat_map(|&x| writes.map(|p| gain(of[x][p]))).collect()
    };
    let changed = of_writes(light, &[a, c]);
    findings.checks.push(check(
        "light-writes-unchanged",
        format!("writes by less than {:.0} %", 100.0 * (helps - 1.0)),
        list(changed.iter().map(|g| 100.0 * (g - 1.0)), "% (A sequential, random, C sequential, random)"),
        changed.iter().all(|&g| g < helps),
    ));
    // Both ways: as far below as above.
    let alike = |of: &[Vec<Pair>], among: &[usize], hmb: usize| -> Vec<f64> {
        among.iter().map(|&x| of[x][RANDOM_READ][hmb] / of[x][SEQUENTIAL_READ][hmb]).collect()
    };
    let similar = |name: &str, of: &[Vec<Pair>], among: &[usize], drives: &str| {
        let [off, on] = [0, 1].map(|hmb| alike(of, among, hmb));
        let percent = |shares: &[f64]| list(shares.iter().map(|share| 100.0 * share), "%");
        check(
            name,
            format!("random reads within {:.0} % of sequential ones", 100.0 * about),
            format!("{} of sequential ones, {} without the HMB ({drives})", percent(&on), percent(&off)),
            on.iter().all(|&share| (share - 1.0).abs() <= about),
        )
    };
    findings.checks.push(similar("light-reads-similar", light, &[a, c], "A, C"));
    let of_b: Vec<f64> = patterns().map(|p| gain(light[b][p])).collect();
    findings.checks.push(check(
        "light-b-random-reads",
        format!("random reads by at least {:.0} %, the others by less", 100.0 * (helps - 1.0)),
        list(of_b.iter().map(|g| 100.0 * (g - 1.0)), "% (sequential read, write, random read, write)"),
        patterns().all(|p| (of_b[p] >= helps) == (p == RANDOM_READ)),
    ));
    let below: Vec<f64> = twin_of.iter().flat_map(|&(x, y)| reads.map(|p| heavy[x][p][0] / heavy[y][p][0])).collect();
    findings.checks.push(check(
        "heavy-reads-worse",
        format!("at most {far} of the twin, sequential and random"),
        list(below.iter().map(|share| 100.0 * share), "% (A, A, B, B, C, C)"),
        below.iter().all(|&share| share <= far),
    ));
    let below: Vec<f64> = twin_of.iter().flat_map(|&(x, y)| writes.map(|p| heavy[x][p][0] / heavy[y][p][0])).collect();
    findings.checks.push(check(
        "heavy-writes-worse",
        format!("at most {far} of the twin, sequential and random"),
        list(below.iter().map(|share| 100.0 * share), "% (A, A, B, B, C, C)"),
        below.iter().all(|&share| share <= far),
    ));
    let random: Vec<f64> = [a, b, c].iter().map(|&x| gain(heavy[x][RANDOM_READ])).collect();
    findings.checks.push(check(
        "heavy-random-reads-improved",
        format!("by at least {:.0} %", 100.0 * (helps - 1.0)),
        list(random.iter().map(|g| 100.0 * (g - 1.0)), "% (A, B, C)"),
        random.iter().all(|&g| g >= helps),
    ));
    let changed = of_writes(heavy, &[a, b, c]);
    findings.checks.push(check(
        "heavy-writes-unchanged",
        format!("writes by less than {:.0} %", 100.0 * (helps - 1.0)),
        list(changed.iter().map(|g| 100.0 * (g - 1.0)), "% (A sequential, random, B, B, C, C)"),
        changed.iter().all(|&g| g < helps),
    ));
    findings.checks.push(similar("heavy-reads-similar", heavy, &[a, b, c], "A, B, C"));
    let panels = || [light, heavy].into_iter().flat_map(|of| patterns().map(move |p| (of, p)));
    let worse =
        |of: &[Vec<Pair>], p: usize| twin_of.iter().filter(|&&(x, y)| of[x][p][0] <= of[y][p][0] / helps).count();
    let better = |of: &[Vec<Pair>], p: usize| twin_of.iter().filter(|&&(x, _)| gain(of[x][p]) >= helps).count();
    let [worse, better] = [&worse as &dyn Fn(&[Vec<Pair>], usize) -> usize, &better]
        .map(|count| panels().map(|(of, p)| count(of, p)).sum::<usize>());
    let bars = twin_of.len() * panels().count();
    let percent = 100.0 * (helps - 1.0);
    findings.checks.push(check(
        "worse-in-many",
        format!("twins are ahead by at least {percent:.0} % in more than half of the panels' bars"),
        format!("in {worse} of {bars}"),
        2 * worse > bars,
    ));
    let is_each = twin_of.iter().all(|&(x, _)| panels().any(|(of, p)| gain(of[x][p]) >= helps));
    findings.checks.push(check(
        "improved-by-hmb",
        format!("by at least {percent:.0} % in some panel, for each of A, B and C"),
        format!("in {better} of {bars}"),
        is_each,
    ));
    // How far F is ahead of the best other one.
    let lead = |(of, p): (&[Vec<Pair>], usize)| {
        let others = (0..drives.len()).filter(|&x| x != f).map(|x| of[x][p][1]);
        of[f][p][1] / others.fold(0.0, f64::max)
    };
    let leads: Vec<f64> = panels().map(|(of, p)| lead((of, p))).collect();
    let ahead = leads.iter().filter(|&&lead| lead > 1.01).count();
    findings.checks.push(check(
        "f-best",
        "more than 1 % ahead of all others in more than half of the panels, and nowhere more than 1 % behind",
        format!("ahead in {ahead} of {}, at least {:.1} % of the best other one", leads.len(), {
            100.0 * leads.iter().copied().fold(f64::MAX, f64::min)
        }),
        2 * ahead > leads.len() && leads.iter().all(|&lead| lead >= 0.99),
    ));
    for (load, drive, of) in [(0, a, light), (1, a, heavy), (1, b, heavy), (1, c, heavy)] {
        let [off, on] = of[drive][RANDOM_WRITE];
        let (name, load) = (&drives[drive], &loads[load]);
        let mut words = vec![format!("{off:.0} MiB/s, and {on:.0} with it")];
        // B's own memory has more mapping pages than that.
        for (what, key, value) in TAKEN_AWAY.into_iter().filter(|(_, key, _)| drive != b || *key != "ftl.map_floor") {
            let settings = [lending(None), vec![(key, value.to_owned())]].concat();
            let rate = bandwidth((name, &settings), load, PATTERNS[RANDOM_WRITE].0, places, options.seed)?;
            words.push(format!("{rate:.0} {what}"));
        }
        let words = words.join("; ");
        findings.found.push(format!("{}, random writes of {name} without host memory: {words}.", load.name));
    }
    Ok(findings)
}
