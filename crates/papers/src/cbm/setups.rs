//! Effect of the set-up: dies, merges and write points one by one, and addresses that reads and writes share.

use super::super::{Findings, column, figure, series};
use super::{ExperimentError, How, Measured, Options, Setting, measure, measured_columns, profile, run_all, threshold};
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::workload::{Synth, SynthSpec};

/// CBM in two readings, and the paper's other policies: the name, the policy, and which clean pages CBM merges.
const POLICIES: [(&str, &str, &str); 5] = [
    ("cbm", "cbm", "always"),
    ("cbm without merge-on-flush", "cbm", "off"),
    ("fab", "fab", "always"),
    ("bplru", "bplru", "always"),
    ("bpac", "bpac", "always"),
];

/// Keys and values of a profile.
type Settings = &'static [(&'static str, &'static str)];

/// Changes to the profile, each alone and then all together.
const DRIVES: [(&str, Settings); 5] = [
    ("as the profile", &[]),
    ("one die", &[("nand.channels", "1"), ("nand.ways", "1"), ("nand.dies_per_way", "1")]),
    ("one merge at a time", &[("ftl.merges_max", "1")]),
    ("one write point", &[("ftl.log_write_points", "1")]),
    (
        "one of each",
        &[
            ("nand.channels", "1"),
            ("nand.ways", "1"),
            ("nand.dies_per_way", "1"),
            ("ftl.merges_max", "1"),
            ("ftl.log_write_points", "1"),
        ],
    ),
];

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let size = setting.number("size_mib")? as u64;
    let shares = setting.numbers("shared_percent")?;
    let (workloads, share) = if options.full {
        (SynthSpec::CBM.map(str::to_owned).to_vec(), 1.0)
    } else {
        (setting.words("workloads")?, setting.number("share_of_requests")?)
    };
    // In words, by settings of the drive, and the share of places in common.
    let mut setups: Vec<(String, Settings, f64)> =
        DRIVES.iter().map(|(name, settings)| ((*name).to_owned(), *settings, 0.0)).collect();
    setups.extend(shares.iter().map(|&share| (format!("{share} % of recent places shared"), &[][..], share)));
    let mut cases = Vec::new();
    for workload in &workloads {
        let (spec, warm_up) = threshold::workload(workload, share, options)?;
        for (setup, settings, shared_percent) in &setups {
            let spec = SynthSpec { shared_percent: *shared_percent, ..spec.clone() };
            for (name, policy, merges) in POLICIES {
                let mut settings: Vec<_> = settings.iter().map(|&(key, value)| (key, value.to_owned())).collect();
                settings.push(("buffer.cbm_merge", merges.to_owned()));
                let profile = profile(setting, policy, size, &settings)?;
                cases.push((workload, setup, name, spec.clone(), warm_up, profile));
            }
        }
    }
    // One request after the other, so that no queue grows: a response is the drive's.
    let seed = options.seed;
    let measured = run_all(&cases, options, |(.., spec, warm_up, profile)| {
        let source = Synth::new(spec).map_err(|error| ExperimentError::new(error.to_string()))?;
        measure(profile, source, How { pacing: Pacing::Depth(1), warm_up: *warm_up, seed })
    })?;
    let mut findings = Findings {
        columns: vec![
            column("workload", "the stand-in"),
            column("setup", "what differs from the profile and the stand-in"),
            column("policy", "of the write buffer"),
        ],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    for ((workload, setup, name, ..), measured) in cases.iter().zip(&measured) {
        let what = vec![Cell::from(&***workload), Cell::from(&***setup), Cell::from(*name)];
        findings.rows.push([what, measured.cells()].concat());
    }
    let by_workload = measured.chunks(setups.len() * POLICIES.len());
    for (workload, results) in workloads.iter().zip(by_workload) {
        for (title, label, value) in [
            ("Response time", "response time, µs", (|m| m.response_us) as fn(&Measured) -> f64),
            ("Erasures", "blocks erased", |m| m.erases),
        ] {
            let x = ("set-up, in the order of the rows", false);
            let mut one = figure(&format!("{title}, {workload}"), Form::Bars, x, (label, false));
            for (p, (name, ..)) in POLICIES.iter().enumerate() {
                let of_policy = results.iter().skip(p).step_by(POLICIES.len());
                one.series.push(series(*name, of_policy.enumerate().map(|(i, m)| ((i + 1) as f64, value(m)))));
            }
            findings.figures.push(one);
        }
        for ((setup, ..), results) in setups.iter().zip(results.chunks(POLICIES.len())) {
            findings.found.push(format!(
                "{workload}, {setup}: erasures {}; response time, us, {}.",
                order(results, |m| m.erases),
                order(results, |m| m.response_us)
            ));
        }
    }
    Ok(findings)
}

/// The policies with their figures, the least first.
fn order(results: &[Measured], value: fn(&Measured) -> f64) -> String {
    let mut order: Vec<(f64, &str)> = results.iter().map(value).zip(POLICIES.map(|policy| policy.0)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.iter().map(|(value, name)| format!("{name} {value:.0}")).collect::<Vec<_>>().join(", ")
}
