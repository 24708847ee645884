//! The board: random mixed I/O on FASTer.

use super::super::{Findings, check, column, figure, list, series};
use super::{
    ExperimentError, How, Measured, Options, PAPERS, Setting, gain, measure, measured_columns, profile, run_all,
};
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::workload::JobSpec;

/// The paper's four, and LRU to compare them with.
const POLICIES: [&str; 5] = ["cbm", "fab", "bplru", "bpac", "lru"];

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let mut files = setting.numbers(if options.full { "file_mib_full" } else { "file_mib" })?;
    if options.quick {
        files.truncate(2);
    }
    let share = if options.quick { 10.0 } else { 1.0 };
    let (requests, warm_up) = (setting.number("requests")? / share, setting.number("warm_up")? / share);
    let (bytes, reads) = (setting.number("block_bytes")?, setting.number("read_percent")?);
    let depth = setting.number("depth")? as u32;
    let settings = [
        ("ftl.mapping", "faster".to_owned()),
        ("nand.channels", format!("{}", setting.number("channels")?)),
        ("nand.ways", format!("{}", setting.number("ways")?)),
    ];
    let mut cases = Vec::new();
    for policy in POLICIES {
        for &file in &files {
            let job = format!(
                "rw=randrw,rwmixread={reads},bs={bytes},size={file}m,number_ios={requests},iodepth={depth},\
                 norandommap=1"
            );
            let job = JobSpec::from_inline(&job).map_err(|error| ExperimentError::new(error.to_string()))?;
            cases.push((policy, file, job, profile(setting, policy, 32, &settings)?));
        }
    }
    let how = How { pacing: Pacing::Depth(depth), warm_up: warm_up as u64, seed: options.seed };
    let measured = run_all(&cases, options, |(_, _, job, profile)| {
        let source = job.source(None, how.seed).map_err(|error| ExperimentError::new(error.to_string()))?;
        measure(profile, source, how)
    })?;
    let mut findings = Findings {
        columns: vec![column("policy", "of the write buffer"), column("file_mib", "size of the test file")],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    for ((policy, file, ..), measured) in cases.iter().zip(&measured) {
        findings.rows.push([vec![Cell::from(*policy), Cell::from(*file)], measured.cells()].concat());
    }
    let by_policy: Vec<&[Measured]> = measured.chunks(files.len()).collect();
    // Time of a request: performance that is 84 % better takes 84 % less.
    for (names, value, paper) in [
        (["up-to-84", "fastest"], (|m| m.response_us) as fn(&Measured) -> f64, 84.0),
        (["up-to-85", "fewest-erasures"], |m| m.erases, 85.0),
    ] {
        let gains: Vec<(&str, Vec<f64>)> = PAPERS[1..]
            .iter()
            .zip(&by_policy[1..])
            .map(|(policy, theirs)| {
                let pairs = by_policy[0].iter().zip(*theirs);
                (*policy, pairs.map(|(a, b)| gain(value(a), value(b))).collect())
            })
            .collect();
        let most = gains.iter().flat_map(|(_, gains)| gains.iter().copied()).fold(f64::NEG_INFINITY, f64::max);
        let words: Vec<String> = gains
            .iter()
            .map(|(policy, gains)| format!("against {} {}", policy.to_uppercase(), list(gains.iter().copied(), "%")))
            .collect();
        // Where one scheme is far behind, a large gain against it says nothing of the others.
        let ahead = (0..files.len()).filter(|&i| gains.iter().all(|(_, gains)| gains[i] > 0.0));
        let of_leader = ahead.flat_map(|i| gains.iter().map(move |(_, gains)| gains[i])).fold(0.0, f64::max);
        findings.checks.push(check(
            names[0],
            format!(
                "at a size of the file at which CBM is ahead of all others, the greatest gain is {paper} %, within 10 %"
            ),
            format!(
                "{of_leader:.0} % where it is ahead of all, {most:.0} % at most anywhere; by size of the file: {}",
                words.join("; ")
            ),
            (of_leader / paper - 1.0).abs() <= 0.1,
        ));
        let leads = (0..files.len()).all(|i| {
            by_policy[1..PAPERS.len()]
                .iter()
                .all(|theirs| value(&by_policy[0][i]) <= value(&theirs[i]) * (1.0 + super::EQUAL))
        });
        findings.checks.push(check(
            names[1],
            "the best of CBM, FAB, BPLRU and BPAC at every size of the file, or within 2 % of it",
            words.join("; "),
            leads,
        ));
    }
    for (title, label, value) in [
        ("Average response time", "response time, µs", (|m| m.response_us) as fn(&Measured) -> f64),
        ("Erase count", "blocks erased", |m| m.erases),
        ("Write-buffer hit ratio", "hits, % of pages written", |m| m.hit_ratio * 100.0),
        ("Destage length", "pages, mean", |m| m.length),
    ] {
        let mut one = figure(title, Form::Bars, ("test file, MiB", true), (label, false));
        for (policy, results) in POLICIES.iter().zip(&by_policy) {
            one.series.push(series(policy.to_uppercase(), files.iter().copied().zip(results.iter().map(value))));
        }
        findings.figures.push(one);
    }
    Ok(findings)
}
