//! Published results of other work with the same flash timing.

use super::super::{Findings, check, column};
use super::real::{self, Found};
use super::{
    ExperimentError, How, Measured, Options, Setting, gain, measure, measured_columns, profile, run_all, threshold,
    unreadable,
};
use tidewater_report::experiment::Cell;
use tidewater_sim::run::Pacing;
use tidewater_sim::trace::Trace;
use tidewater_sim::workload::{Synth, SynthSpec};

const POLICIES: [&str; 4] = ["lru", "cflru", "bplru", "bpac"];

enum Load<'t> {
    StandIn(&'static str, SynthSpec, u64),
    Real(&'t Found),
}

impl Load<'_> {
    fn name(&self) -> &str {
        match self {
            Load::StandIn(name, ..) => name,
            Load::Real(found) => &found.name,
        }
    }
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let size = setting.number("size_mib")? as u64;
    let share = setting.number("share_of_requests")?;
    let real::Folder { found, skipped } = real::look(&setting.words("traces")?, options.traces)?;
    let mut loads = Vec::new();
    for name in SynthSpec::CBM {
        let (spec, warm_up) = threshold::workload(name, share, options)?;
        loads.push(Load::StandIn(name, spec, warm_up));
    }
    loads.extend(found.iter().map(Load::Real));
    let mut cases = Vec::new();
    for load in &loads {
        for policy in POLICIES {
            cases.push((load, policy, profile(setting, policy, size, &[])?));
        }
    }
    let seed = options.seed;
    let measured = run_all(&cases, options, |(load, _, profile)| match load {
        Load::StandIn(_, spec, warm_up) => {
            let source = Synth::new(spec).map_err(|error| ExperimentError::new(error.to_string()))?;
            measure(profile, source, How { pacing: Pacing::Arrival, warm_up: *warm_up, seed })
        }
        Load::Real(trace) => {
            let source = Trace::open(&trace.input, &trace.options).map_err(unreadable)?;
            measure(profile, source, How { pacing: Pacing::Arrival, warm_up: 0, seed })
        }
    })?;
    let mut findings = Findings {
        columns: vec![column("workload", "stand-in or trace"), column("policy", "of the write buffer")],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    findings.found.extend(skipped);
    for ((load, policy, _), measured) in cases.iter().zip(&measured) {
        findings.rows.push([vec![Cell::from(load.name()), Cell::from(*policy)], measured.cells()].concat());
    }
    let by_load: Vec<&[Measured]> = measured.chunks(POLICIES.len()).collect();
    let [lru, cflru, bplru, bpac] = [0, 1, 2, 3];
    let gains = |ours: usize, theirs: usize, value: fn(&Measured) -> f64| -> Vec<(String, f64)> {
        let pairs = loads.iter().zip(&by_load).filter(|(_, results)| value(&results[theirs]) > 0.0);
        pairs.map(|(load, r)| (load.name().to_owned(), gain(value(&r[ours]), value(&r[theirs])))).collect()
    };
    let words = |gains: &[(String, f64)], mean: f64| {
        let each: Vec<String> = gains.iter().map(|(name, gain)| format!("{name} {gain:.0} %")).collect();
        format!("{mean:.0} % on average: {}", each.join(", "))
    };
    let of_each = |value: &dyn Fn(&[Measured]) -> String| {
        let each = loads.iter().zip(&by_load).map(|(load, results)| format!("{} {}", load.name(), value(results)));
        each.collect::<Vec<_>>().join(", ")
    };
    findings.found.push(format!(
        "Erasures for each destage, BPLRU and LRU: {}.",
        of_each(&|r| {
            let [ours, theirs] = [bplru, lru].map(|policy| r[policy].erases / r[policy].evictions.max(1.0));
            format!("{ours:.2} and {theirs:.2}")
        })
    ));
    findings.found.push(format!(
        "Hit ratio of BPLRU and BPAC against LRU's, percentage points: {}.",
        of_each(&|r| {
            let [one, other] = [bplru, bpac].map(|policy| (r[policy].hit_ratio - r[lru].hit_ratio) * 100.0);
            format!("{one:+.1} and {other:+.1}")
        })
    ));
    let mean = |gains: &[(String, f64)]| gains.iter().map(|(_, gain)| gain).sum::<f64>() / gains.len().max(1) as f64;
    let is_about = |found: f64, wanted: f64| (found / wanted - 1.0).abs() <= 0.1;
    for (name, ours, wanted) in [("bplru-collections", bplru, 9.0), ("cflru-collections", cflru, 8.0)] {
        let gains = gains(ours, lru, |m| m.erases);
        let mean = mean(&gains);
        let expected = format!("{wanted} % fewer erasures on average, within 10 % of that");
        findings.checks.push(check(name, expected, words(&gains, mean), is_about(mean, wanted)));
    }
    let behind: Vec<f64> = by_load
        .iter()
        .map(|results| {
            let best = results.iter().map(|m| m.hit_ratio).fold(0.0, f64::max);
            (best - results[lru].hit_ratio) * 100.0
        })
        .collect();
    let ahead: Vec<f64> = by_load
        .iter()
        .map(|results| {
            let second = results[1..].iter().map(|m| m.hit_ratio).fold(0.0, f64::max);
            (results[lru].hit_ratio - second) * 100.0
        })
        .collect();
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    findings.checks.push(check(
        "lru-hits",
        "no other policy is ahead of LRU, nor all behind by 5 percentage points or more",
        format!("at most {:.1} points behind the best, at most {:.1} ahead of the second", most(&behind), most(&ahead)),
        most(&behind) == 0.0 && most(&ahead) < 5.0,
    ));
    let evictions = gains(bpac, bplru, |m| m.evictions);
    let average = mean(&evictions);
    findings.checks.push(check(
        "bpac-evictions",
        "34 % fewer evictions on average, within 10 % of that",
        words(&evictions, average),
        is_about(average, 34.0),
    ));
    Ok(findings)
}
