//! Where CBM loses, and by what: merge-on-flush, the size of the log, and the FTL.

use super::super::{Findings, check, column, figure, list, series};
use super::{ExperimentError, How, Measured, Options, Setting, measure, measured_columns, profile, run_all, threshold};
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::workload::{Synth, SynthSpec};

/// Variants: name, policy, and which clean pages CBM merges on flush.
const WAYS: [(&str, &str, &str); 5] = [
    ("cbm", "cbm", "always"),
    ("cbm without merge-on-flush", "cbm", "off"),
    ("fab", "fab", "always"),
    ("bplru", "bplru", "always"),
    ("bpac", "bpac", "always"),
];

/// Places among the ways.
const MERGING: usize = 0;
const NOT_MERGING: usize = 1;

/// Flash translation layers: name and settings.
const LAYERS: [(&str, [(&str, &str); 3]); 3] = [
    ("FAST, log of 64 blocks", [("ftl.mapping", "fast"), ("ftl.log_blocks", "64"), ("ftl.log_write_points", "16")]),
    ("FAST, log of 8 blocks", [("ftl.mapping", "fast"), ("ftl.log_blocks", "8"), ("ftl.log_write_points", "2")]),
    ("page-mapped", [("ftl.mapping", "page"), ("ftl.log_blocks", "0"), ("ftl.log_write_points", "0")]),
];

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let size = setting.number("size_mib")? as u64;
    let share = setting.number("share_of_requests")?;
    let mut cases = Vec::new();
    for name in SynthSpec::CBM {
        let (spec, warm_up) = threshold::workload(name, share, options)?;
        for (layer, settings) in LAYERS {
            for (way, policy, merges) in WAYS {
                let mut settings: Vec<_> = settings.iter().map(|&(key, value)| (key, value.to_owned())).collect();
                settings.push(("buffer.cbm_merge", merges.to_string()));
                let profile = profile(setting, policy, size, &settings)?;
                cases.push((name, layer, way, spec.clone(), warm_up, profile));
            }
        }
    }
    let seed = options.seed;
    let measured = run_all(&cases, options, |(_, _, _, spec, warm_up, profile)| {
        let source = Synth::new(spec).map_err(|error| ExperimentError::new(error.to_string()))?;
        measure(profile, source, How { pacing: Pacing::Arrival, warm_up: *warm_up, seed })
    })?;
    let mut findings = Findings {
        columns: vec![
            column("workload", "the stand-in"),
            column("layer", "the translation layer"),
            column("policy", "of the write buffer"),
        ],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    for ((name, layer, way, ..), measured) in cases.iter().zip(&measured) {
        let what = vec![Cell::from(*name), Cell::from(*layer), Cell::from(*way)];
        findings.rows.push([what, measured.cells()].concat());
    }
    let of = |workload: usize, layer: usize| &measured[(workload * LAYERS.len() + layer) * WAYS.len()..][..WAYS.len()];
    let on_fast = || (0..SynthSpec::CBM.len()).flat_map(|w| (0..LAYERS.len() - 1).map(move |l| (w, l)));
    let lengths = |way: usize| on_fast().map(move |(w, l)| of(w, l)[way].length).collect::<Vec<_>>();
    let switches = |way: usize| {
        let share = |m: &Measured| 100.0 * m.merges[0] as f64 / m.merges.iter().sum::<u64>().max(1) as f64;
        on_fast().map(|(w, l)| share(&of(w, l)[way])).collect::<Vec<_>>()
    };
    let beside = |of_way: &dyn Fn(usize) -> Vec<f64>, unit: &str| {
        format!("{}, without {}", list(of_way(MERGING), unit), list(of_way(NOT_MERGING), unit))
    };
    let is_above = |of_way: &dyn Fn(usize) -> Vec<f64>| {
        of_way(MERGING).iter().zip(of_way(NOT_MERGING)).all(|(with, without)| *with > without)
    };
    findings.checks.push(check(
        "merge-on-flush-sequential",
        "longer destages with merge-on-flush than without, and more switch merges among the merges, on each workload \
         with both logs",
        format!(
            "{}; switch merges {} (by workload, logs of 64 and of 8 blocks)",
            beside(&lengths, "pages"),
            beside(&switches, "%")
        ),
        is_above(&lengths) && is_above(&switches),
    ));
    for (l, (layer, _)) in LAYERS.iter().enumerate() {
        let order = |w: usize, value: fn(&Measured) -> f64| {
            let mut order: Vec<(f64, &str)> = of(w, l).iter().map(value).zip(WAYS.map(|way| way.0)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            order.iter().map(|(value, way)| format!("{way} {value:.0}")).collect::<Vec<_>>().join(", ")
        };
        for (w, name) in SynthSpec::CBM.iter().enumerate() {
            findings.found.push(format!(
                "{layer}, {name}: erasures {}; response time, us, {}.",
                order(w, |m| m.erases),
                order(w, |m| m.response_us)
            ));
        }
        for (title, label, value) in [
            ("Erasures", "blocks erased", (|m| m.erases) as fn(&Measured) -> f64),
            ("Response time", "response time, µs", |m| m.response_us),
        ] {
            let values = || (0..SynthSpec::CBM.len()).flat_map(|w| of(w, l)).map(value).filter(|v| *v > 0.0);
            let is_wide = values().fold(0.0, f64::max) > 30.0 * values().fold(f64::INFINITY, f64::min);
            let x = ("1 Financial, 2 MSNFS, 3 Exchange, 4 CAMWEBDEV", false);
            let mut one = figure(&format!("{title}: {layer}"), Form::Bars, x, (label, is_wide));
            for (p, (way, ..)) in WAYS.iter().enumerate() {
                let points = (0..SynthSpec::CBM.len()).map(|w| ((w + 1) as f64, value(&of(w, l)[p])));
                one.series.push(series(*way, points));
            }
            findings.figures.push(one);
        }
    }
    Ok(findings)
}
