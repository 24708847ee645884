//! Figures 5 and 8: read cache and write buffer, found by reading and writing twice.

use super::*;
use tidewater_report::experiment::Form;

/// Request sizes in KiB: as the paper's below 64 KiB, every eighth of its steps above.
fn sizes(min: f64, max: f64, step: f64, quick: bool) -> Vec<f64> {
    let fine = (64.0f64.min(max) - min) / step;
    let mut sizes: Vec<f64> = (0..fine.max(0.0) as u32).map(|i| min + f64::from(i) * step).collect();
    let coarse = step * if quick { 32.0 } else { 8.0 };
    let mut size = min.max(64.0);
    while size <= max {
        sizes.push(size);
        size += coarse;
    }
    sizes
}

/// Result of one sweep of a drive: KiB, and the mean times of the first and of the second pass in microseconds.
struct Sweep {
    first: Vec<(f64, f64)>,
    second: Vec<(f64, f64)>,
}

impl Sweep {
    /// How long the second pass takes where it is nearest to the cache's size, against the first.
    fn gain_up_to(&self, at: f64) -> f64 {
        let sum = |curve: &[(f64, f64)]| curve.iter().filter(|p| p.0 <= at).map(|p| p.1).sum::<f64>();
        sum(&self.second) / sum(&self.first)
    }

    /// By which share second passes take another time than those of `other`, on average over sizes.
    fn apart(&self, other: &Sweep) -> f64 {
        let pairs = self.second.iter().zip(&other.second);
        pairs.map(|(a, b)| (a.1 / b.1 - 1.0).abs()).sum::<f64>() / self.second.len() as f64
    }
}

struct Probe<'a> {
    sizes: &'a [f64],
    useless: u64,
    piece: u64,
    capacity: u64,
    repeats: u32,
}

/// The paper's figure 4 (reads) or 7 (writes), at each size: useless data, a pass, (a flush,) the pass again.
fn sweep(profile: &Profile, probe: &Probe<'_>, write: bool, seed: u64) -> Result<Sweep, ExperimentError> {
    // What is written is to wait for programs, not for collection.
    let past = Precondition::Filled(if write { 0.0 } else { 1.0 });
    let mut host = Host::new(profile, probe.capacity, past, seed)?;
    let mut rng = Rng::new(seed, b"hmb caches");
    let mut sweep = Sweep { first: Vec::new(), second: Vec::new() };
    for &size in probe.sizes {
        let bytes = (size * 1024.0) as u64;
        let (mut first, mut second) = (0.0, 0.0);
        for _ in 0..probe.repeats {
            // Useless data is at one end of the drive, what is measured at the other.
            let half = probe.capacity / 2;
            let useless = place(&mut rng, half, probe.useless);
            host.request(write, useless, probe.useless);
            let at = half + place(&mut rng, half, bytes.next_multiple_of(1 << 16));
            first += host.pieces(write, at, bytes, probe.piece).as_us_f64();
            if write {
                host.flush();
            }
            second += host.pieces(write, at, bytes, probe.piece).as_us_f64();
        }
        let mean = |sum: f64| sum / f64::from(probe.repeats);
        sweep.first.push((size, mean(first)));
        sweep.second.push((size, mean(second)));
    }
    Ok(sweep)
}

fn run(setting: &Setting, options: &mut Options<'_>, write: bool) -> Result<Findings, ExperimentError> {
    let drives = setting.words("drives")?;
    let expected = setting.words("knees_kib")?;
    let (min, max, step) = (setting.number("s_min_kib")?, setting.number("s_max_kib")?, setting.number("s_inc_kib")?);
    let sizes = sizes(min, max, step, options.quick);
    let probe = Probe {
        sizes: &sizes,
        useless: (setting.number("useless_mib")? * 1048576.0) as u64,
        piece: (setting.number("piece_kib")? * 1024.0) as u64,
        capacity: (setting.number("capacity_gib")? * (1u64 << 30) as f64) as u64,
        repeats: setting.number("repeats")? as u32,
    };
    let large = setting.number("step_share")?;
    let what = if write { "written" } else { "read" };
    let mut findings = Findings {
        columns: vec![
            column("drive", "the profile"),
            column("hmb", "host memory, on or off"),
            column("size_kib", &format!("KiB that are {what}")),
            column("first_us", "time of the first pass, useless data before it"),
            column("again_us", "time of the second pass"),
        ],
        ..Findings::default()
    };
    let (mut knees, mut sweeps) = (Vec::new(), Vec::new());
    for (i, drive) in drives.iter().enumerate() {
        for (j, hmb) in ["on", "off"].into_iter().enumerate() {
            let lent = if hmb == "on" { Vec::new() } else { lending(None) };
            let profile = profile_with(drive, &lent)?;
            let sweep = sweep(&profile, &probe, write, options.seed)?;
            // A buffer shows itself by the second pass being faster; without that a step is one of the flash.
            let per_kib: Vec<(f64, f64)> = sweep.second.iter().map(|&(size, time)| (size, time / size)).collect();
            let found = knee(&per_kib, large).filter(|&at| sweep.gain_up_to(at) < 0.8);
            knees.push(found);
            for (first, second) in sweep.first.iter().zip(&sweep.second) {
                let cells = [drive.as_str().into(), hmb.into(), first.0.into(), first.1.into(), second.1.into()];
                findings.rows.push(cells.to_vec());
            }
            let title = format!("{drive}, host memory {hmb}");
            let mut plot = figure(&title, Form::Lines, (&format!("KiB {what}"), false), ("time (us)", false));
            plot.series.push(series(format!("{what} first"), sweep.first.iter().copied()));
            plot.series.push(series(format!("{what} again"), sweep.second.iter().copied()));
            sweeps.push(sweep);
            if let Some(at) = expected.get(i).and_then(|expected| expected.parse().ok()) {
                plot.series.push(paper_place("the paper's knee", at, &plot));
            }
            findings.figures.push(plot);
            options.done((2 * i + j + 1) as f64 / (2 * drives.len()) as f64)?;
        }
    }
    for (i, (drive, expected)) in drives.iter().zip(&expected).enumerate() {
        let (found, off) = (knees[2 * i], knees[2 * i + 1]);
        let (sweep, without) = (&sweeps[2 * i], &sweeps[2 * i + 1]);
        let wanted = expected.parse::<f64>().ok();
        let (words, ok) = match wanted {
            Some(at) => (format!("{at} KiB, within 5 %"), found.is_some_and(|found| (found / at - 1.0).abs() <= 0.05)),
            None => (format!("none from {min} to {max} KiB"), found.is_none()),
        };
        findings.checks.push(check(&format!("knee-{drive}"), words, spell(found, "KiB"), ok));
        // By the paper's step 5 a second pass that takes less time shows a cache, one that takes as long shows none.
        let share = 100.0 * sweep.gain_up_to(wanted.unwrap_or(max));
        let measured = format!("the second pass takes {share:.0} % of the first");
        findings.checks.push(match wanted {
            Some(_) => {
                check(&format!("again-faster-{drive}"), "up to there less than the first", measured, share < 100.0)
            }
            None => check(&format!("again-like-first-{drive}"), "80 % and more", measured, share >= 80.0),
        });
        let apart = sweep.apart(without);
        findings.checks.push(check(
            &format!("without-hmb-{drive}"),
            "the same knee, and second passes that take the same time within 10 % on average",
            format!("{} and {}, {:.1} % apart", spell(found, "KiB"), spell(off, "KiB"), apart * 100.0),
            found == off && apart <= 0.1,
        ));
    }
    Ok(findings)
}

pub(crate) fn read(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    run(setting, options, false)
}

pub(crate) fn write(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    run(setting, options, true)
}
