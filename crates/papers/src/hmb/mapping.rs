//! Figure 10: the mapping cache, found by reading the beginnings of ever more sections.

use super::*;
use tidewater_report::experiment::Form;

/// Sections that the paper calls few.
const FEW: f64 = 200.0;

/// Numbers of sections: a few everywhere, more around each of `knees`.
fn sections(knees: &[f64], most: f64, quick: bool) -> Vec<f64> {
    let around = if quick { &[0.9, 1.0, 1.1][..] } else { &[0.8, 0.9, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.1, 1.2] };
    let mut all: Vec<f64> = knees.iter().flat_map(|knee| around.iter().map(move |x| knee * x)).collect();
    all.extend([200.0, 500.0, 1_000.0, 12_000.0, most]);
    all.retain(|&d| d <= most);
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The mean time of a read of 512 bytes at the beginning of each of `d` sections, in the second of two passes, in
/// microseconds.
fn pass(host: &mut Host, capacity: u64, d: u64) -> f64 {
    let mut sum = 0.0;
    for second in [false, true] {
        for i in 0..d {
            let at = (u128::from(capacity) * u128::from(i) / u128::from(d)) as u64 / BLOCK * BLOCK;
            let time = host.request(false, at, BLOCK);
            sum += if second { time.as_us_f64() } else { 0.0 };
        }
    }
    sum / d as f64
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let drives = setting.words("drives")?;
    let (sizes, knees) = (setting.numbers("hmb_mib")?, setting.numbers("knees")?);
    let capacity = (setting.number("capacity_gib")? * (1u64 << 30) as f64) as u64;
    let most = setting.number("d_max")?;
    let one_size = setting.word("one_size")?;
    let step = setting.number("step_share")?;
    let ds = sections(&knees, most, options.quick);
    let mut findings = Findings {
        columns: vec![
            column("drive", "the profile"),
            column("hmb_mib", "host memory, MiB; 0: off"),
            column("sections", "d: sections whose beginnings are read"),
            column("read_us", "mean time of a read in the second pass"),
        ],
        ..Findings::default()
    };
    let cases: Vec<Option<f64>> = std::iter::once(None).chain(sizes.iter().copied().map(Some)).collect();
    for (i, drive) in drives.iter().enumerate() {
        let mut plot = figure(drive, Form::Lines, ("sections", false), ("time of a read (us)", false));
        let (mut found, mut off, mut fast) = (Vec::new(), 0.0, f64::INFINITY);
        for (j, &mib) in cases.iter().enumerate() {
            let profile = profile_with(drive, &lending(mib))?;
            let mut host = Host::new(&profile, capacity, Precondition::Filled(1.0), options.seed)?;
            let curve: Vec<(f64, f64)> = ds.iter().map(|&d| (d, pass(&mut host, capacity, d as u64))).collect();
            for &(d, time) in &curve {
                findings.rows.push(vec![drive.as_str().into(), mib.unwrap_or(0.0).into(), d.into(), time.into()]);
            }
            match mib {
                None => off = curve.iter().map(|p| p.1).fold(f64::INFINITY, f64::min),
                Some(_) => {
                    fast = curve.iter().map(|p| p.1).fold(fast, f64::min);
                    found.push(knee(&curve, step));
                }
            }
            plot.series.push(series(mib.map_or("HMB off".into(), |mib| format!("{mib} MiB")), curve));
            options.done((i * cases.len() + j + 1) as f64 / ((drives.len() + 1) * cases.len()) as f64)?;
        }
        for (mib, knee) in sizes.iter().zip(&knees) {
            plot.series.push(paper_place(format!("{mib} MiB"), *knee, &plot));
        }
        findings.figures.push(plot);
        let within = |(found, wanted): (&Option<f64>, &f64)| found.is_some_and(|at| (at / wanted - 1.0).abs() <= 0.05);
        let spell_all = |found: &[Option<f64>]| found.iter().map(|k| spell(*k, "")).collect::<Vec<_>>().join(", ");
        findings.checks.push(check(
            &format!("knees-{drive}"),
            "each within 5 %",
            spell_all(&found),
            found.iter().zip(&knees).all(within),
        ));
        let per_mib: Vec<f64> = found.iter().zip(&sizes).filter_map(|(k, mib)| k.map(|k| k / mib)).collect();
        let (least, largest) =
            (per_mib.iter().copied().fold(f64::INFINITY, f64::min), per_mib.iter().copied().fold(0.0, f64::max));
        findings.checks.push(check(
            &format!("proportional-{drive}"),
            "sections for each MiB differ by at most 5 %",
            list(per_mib.iter().copied(), "sections for each MiB"),
            per_mib.len() == sizes.len() && largest <= least * 1.05,
        ));
        let unit = per_mib.iter().map(|sections| 1048576.0 / sections).fold(0.0, f64::max);
        findings.checks.push(check(
            &format!("unit-{drive}"),
            "4 KB, within 10 %",
            format!("{unit:.0} bytes of host memory for each section"),
            (unit / 4096.0 - 1.0).abs() <= 0.1,
        ));
        findings.checks.push(check(
            &format!("high-without-{drive}"),
            "at every d more than 1.25 times what it is with the HMB below the knee",
            format!("at least {off:.0} us, with the HMB {fast:.0} us"),
            off > 1.25 * fast,
        ));
    }
    // The same for a drive that takes one size.
    let mut plot = figure(&one_size, Form::Lines, ("sections", false), ("time of a read (us)", false));
    let mut curves = Vec::new();
    for (j, &mib) in cases.iter().enumerate() {
        let profile = profile_with(&one_size, &lending(mib))?;
        let mut host = Host::new(&profile, capacity, Precondition::Filled(1.0), options.seed)?;
        let lent = host.device.host_memory().bytes() > 0;
        let curve: Vec<(f64, f64)> = ds.iter().map(|&d| (d, pass(&mut host, capacity, d as u64))).collect();
        for &(d, time) in &curve {
            findings.rows.push(vec![one_size.as_str().into(), mib.unwrap_or(0.0).into(), d.into(), time.into()]);
        }
        plot.series.push(series(mib.map_or("HMB off".into(), |mib| format!("{mib} MiB")), curve.clone()));
        curves.push((mib, lent, curve));
        options.done((drives.len() * cases.len() + j + 1) as f64 / ((drives.len() + 1) * cases.len()) as f64)?;
    }
    findings.figures.push(plot);
    let few = |curve: &[(f64, f64)]| {
        let few: Vec<f64> = curve.iter().filter(|p| p.0 <= FEW).map(|p| p.1).collect();
        few.iter().sum::<f64>() / few.len() as f64
    };
    let lent: Vec<_> = curves.iter().filter(|(_, lent, _)| *lent).collect();
    let off = few(&curves[0].2);
    let on = lent.first().map_or(off, |(_, _, curve)| few(curve));
    findings.checks.push(check(
        &format!("few-{one_size}"),
        "a difference of less than 10 %, with the HMB and without",
        format!("{on:.1} us with it, {off:.1} us without"),
        on != off && (on / off - 1.0).abs() < 0.1,
    ));
    // A size decides only against another: one that lends nothing is as good as off.
    let same_as_off = curves.iter().filter(|(_, lent, curve)| !lent && *curve == curves[0].2).count();
    let verdict = if lent.len() > 1 { "sizes can be compared" } else { "cannot conclude" };
    findings.checks.push(check(
        &format!("cannot-conclude-{one_size}"),
        "cannot conclude",
        format!("{verdict}: of {} sizes {} is taken, the others are as the HMB off", sizes.len(), lent.len()),
        lent.len() == 1 && same_as_off == sizes.len(),
    ));
    Ok(findings)
}
