//! Fixed thresholds of migration beside the dynamic one.

use super::super::{Findings, check, column, figure, series};
use super::{ExperimentError, How, Measured, Options, Setting, measure, measured_columns, profile, run_all, stand_in};
use crate::ENTRIES;
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::workload::{Synth, SynthSpec};

/// The dynamic threshold may erase so much more than the best fixed one.
const NEAR: f64 = 0.05;

/// A workload as the experiment by size of that name has it.
pub(super) fn workload(name: &str, share: f64, options: &Options<'_>) -> Result<(SynthSpec, u64), ExperimentError> {
    let name = format!("cbm/{name}");
    let entry = ENTRIES.iter().find(|entry| entry.name == name);
    let file = entry.ok_or_else(|| ExperimentError::new(format!("there is no experiment {name}")))?;
    let setting = Setting::parse(file.name, file.file)?;
    let number = |what| setting.number(what).map(|number| (number * share) as u64);
    let workload = setting.word("workload")?;
    stand_in(&workload, number("requests")?, number("warm_up")?, options)
        .ok_or_else(|| ExperimentError::new(format!("there is no workload {workload}")))
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let size = setting.number("size_mib")? as u64;
    let thresholds = setting.numbers("thresholds")?;
    let share = setting.number("share_of_requests")?;
    let mut cases = Vec::new();
    for name in SynthSpec::CBM {
        let (spec, warm_up) = workload(name, share, options)?;
        // 0 stands for the dynamic threshold.
        for threshold in thresholds.iter().copied().chain([0.0]) {
            let profile = profile(setting, "cbm", size, &[("buffer.cbm_threshold", format!("{threshold}"))])?;
            cases.push((name, threshold, spec.clone(), warm_up, profile));
        }
    }
    let seed = options.seed;
    let measured = run_all(&cases, options, |(_, _, spec, warm_up, profile)| {
        let source = Synth::new(spec).map_err(|error| ExperimentError::new(error.to_string()))?;
        measure(profile, source, How { pacing: Pacing::Arrival, warm_up: *warm_up, seed })
    })?;
    let mut findings = Findings {
        columns: vec![
            column("workload", "the stand-in"),
            column("threshold", "dirty pages that make a block migrate; 0 is the dynamic threshold"),
        ],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    for ((name, threshold, ..), measured) in cases.iter().zip(&measured) {
        findings.rows.push([vec![Cell::from(*name), Cell::from(*threshold)], measured.cells()].concat());
    }
    let mut worst: Vec<String> = Vec::new();
    let mut tracks = true;
    for (name, results) in SynthSpec::CBM.into_iter().zip(measured.chunks(thresholds.len() + 1)) {
        let (fixed, dynamic) = results.split_at(thresholds.len());
        let dynamic = &dynamic[0];
        let best = fixed.iter().map(|m| m.erases).fold(f64::INFINITY, f64::min);
        let at = fixed.iter().position(|m| m.erases == best).map_or(0.0, |i| thresholds[i]);
        let more = if best > 0.0 { dynamic.erases / best - 1.0 } else { 0.0 };
        tracks &= more <= NEAR;
        let spread = fixed.iter().map(|m| m.erases).fold(0.0, f64::max);
        worst.push(format!(
            "{name} {:+.1} % (the best is {at}; the worst has {:+.0} %)",
            more * 100.0,
            (spread / best.max(1.0) - 1.0) * 100.0
        ));
        for (title, label, value) in [
            ("Erasures by threshold", "blocks erased", (|m| m.erases) as fn(&Measured) -> f64),
            ("Response time by threshold", "response time, µs", |m| m.response_us),
        ] {
            let (x, y) = (("threshold, dirty pages", true), (label, false));
            let mut one = figure(&format!("{title}: {name}"), Form::Lines, x, y);
            one.series.push(series("fixed", thresholds.iter().copied().zip(fixed.iter().map(value))));
            one.series.push(series("dynamic", thresholds.iter().map(|&place| (place, value(dynamic)))));
            findings.figures.push(one);
        }
    }
    findings.checks.push(check(
        "near-the-best",
        "on each workload erasures within 5 % of the best fixed threshold's (the number is ours)",
        worst.join("; "),
        tracks,
    ));
    Ok(findings)
}
