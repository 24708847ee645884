//! Who is first where: CBM's readings against the paper's other policies, over the size of the log and of the buffer.

use super::super::{Findings, column, figure, series};
use super::{
    EQUAL, ExperimentError, How, Measured, Options, PAPERS, Setting, measure, measured_columns, profile, run_all,
    threshold,
};
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::workload::{Synth, SynthSpec};

/// A contender: name, policy and settings.
type Contender = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Readings of CBM first, of which the last goes beyond the slides.
const CONTENDERS: [Contender; READINGS + 3] = [
    ("literal", "cbm", &[]),
    ("run", "cbm", &[("buffer.cbm_merge", "run")]),
    ("whole", "cbm", &[("buffer.cbm_merge", "whole")]),
    ("off", "cbm", &[("buffer.cbm_merge", "off")]),
    ("run, ageing", "cbm", &[("buffer.cbm_merge", "run"), ("buffer.cbm_age", "0.25")]),
    (PAPERS[1], PAPERS[1], &[]),
    (PAPERS[2], PAPERS[2], &[]),
    (PAPERS[3], PAPERS[3], &[]),
];
const READINGS: usize = 5;

/// Reads a figure off a run.
type Value = fn(&Measured) -> f64;
/// Figures of which less is better.
const FIGURES: [(&str, Value); 2] = [("erasures", |m| m.erases), ("response time", |m| m.response_us)];

/// Whether a reading is first at a place: no more than 2 % behind the best of the other policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// With every seed.
    Yes,
    /// With none.
    No,
    /// The seeds do not agree.
    Open,
}

impl First {
    /// `ratios`: what the reading has of the least of the others, by seed.
    fn of(ratios: &[f64]) -> First {
        match ratios.iter().filter(|&&ratio| ratio <= 1.0 + EQUAL).count() {
            0 => First::No,
            ahead if ahead == ratios.len() => First::Yes,
            _ => First::Open,
        }
    }

    fn word(self) -> &'static str {
        match self {
            First::Yes => "yes",
            First::No => "no",
            First::Open => "seeds differ",
        }
    }
}

/// Measurements of one point of the map, by contender and then by seed.
struct Place<'m> {
    workload: &'static str,
    log: f64,
    size: f64,
    measured: &'m [Measured],
    seeds: usize,
}

impl Place<'_> {
    /// Ratio of a reading's figure to the least of the other policies, by seed.
    fn ratios(&self, reading: usize, value: Value) -> Vec<f64> {
        let of = |contender: usize, seed: usize| value(&self.measured[contender * self.seeds + seed]);
        let least = |seed| (READINGS..CONTENDERS.len()).map(|rival| of(rival, seed)).fold(f64::INFINITY, f64::min);
        let ratio = |seed| match (of(reading, seed), least(seed)) {
            // Nothing was erased by either.
            (mine, rival) if mine == rival => 1.0,
            (mine, rival) => mine / rival,
        };
        (0..self.seeds).map(ratio).collect()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let (mut logs, mut sizes) = (setting.numbers("log_blocks")?, setting.numbers("sizes_mib")?);
    let (mut seeds, mut share) = (setting.number("seeds")? as usize, setting.number("share_of_requests")?);
    let mut workloads = SynthSpec::CBM.to_vec();
    if !options.full {
        // A part that takes seconds, from the middle.
        logs = logs[(logs.len() - 1) / 2..].iter().copied().take(2).collect();
        sizes = vec![sizes[(sizes.len() - 1) / 2]];
        (seeds, share) = (seeds.min(2), share / 2.0);
    }
    if options.quick {
        workloads.truncate(1);
    }
    let first_seed = setting.number("first_seed")? as u64;
    let mut cases = Vec::new();
    let mut places = Vec::new();
    for workload in workloads {
        let (spec, warm_up) = threshold::workload(workload, share, options)?;
        for &log in &logs {
            let points = (log / 4.0).floor().clamp(1.0, 16.0);
            for &size in &sizes {
                places.push((workload, log, size));
                for (name, policy, settings) in CONTENDERS {
                    let log = [("ftl.log_blocks", log.to_string()), ("ftl.log_write_points", points.to_string())];
                    let settings: Vec<_> = settings.iter().map(|&(key, value)| (key, value.to_owned())).collect();
                    let profile = profile(setting, policy, size as u64, &[&log[..], &settings].concat())?;
                    for seed in (0..seeds as u64).map(|i| options.seed.wrapping_sub(1).wrapping_add(first_seed + i)) {
                        let spec = SynthSpec { seed, ..spec.clone() };
                        cases.push((name, seed, spec, warm_up, profile.clone()));
                    }
                }
            }
        }
    }
    // In a closed loop nothing saturates: every response is the drive's.
    let measured = run_all(&cases, options, |(_, seed, spec, warm_up, profile)| {
        let source = Synth::new(spec).map_err(|error| ExperimentError::new(error.to_string()))?;
        measure(profile, source, How { pacing: Pacing::Depth(1), warm_up: *warm_up, seed: *seed })
    })?;
    let places: Vec<Place<'_>> = places
        .into_iter()
        .zip(measured.chunks(CONTENDERS.len() * seeds))
        .map(|((workload, log, size), measured)| Place { workload, log, size, measured, seeds })
        .collect();
    let mut findings = Findings { columns: columns(), ..Findings::default() };
    for (place, cases) in places.iter().zip(cases.chunks(CONTENDERS.len() * seeds)) {
        for ((name, seed, ..), measured) in cases.iter().zip(place.measured) {
            let at = [Cell::from(place.workload), Cell::from(place.log), Cell::from(place.size), Cell::from(*name)];
            findings.rows.push([&at[..], &[Cell::from(*seed as f64)], &measured.cells()].concat());
        }
    }
    for (what, value) in FIGURES {
        for (reading, (name, ..)) in CONTENDERS[..READINGS].iter().enumerate() {
            findings.found.push(share_of_first(&places, what, name, |place| First::of(&place.ratios(reading, value))));
        }
        map(&mut findings, &places, what, value);
    }
    Ok(findings)
}

fn columns() -> Vec<tidewater_report::experiment::Column> {
    let mut columns = vec![
        column("workload", "the stand-in"),
        column("log_blocks", "blocks of FAST's log"),
        column("buffer_mib", "size of the write buffer"),
        column("policy", "of the write buffer; of CBM the reading"),
        column("seed", "of workload and drive"),
    ];
    columns.extend(measured_columns());
    columns
}

/// At how many places a reading is first, and where the seeds do not decide.
fn share_of_first(places: &[Place<'_>], what: &str, reading: &str, first: impl Fn(&Place<'_>) -> First) -> String {
    let count = |of: First| places.iter().filter(|place| first(place) == of).count();
    let [yes, no, open] = [First::Yes, First::No, First::Open].map(count);
    let share = 100.0 * yes as f64 / places.len() as f64;
    let at: Vec<String> = places
        .iter()
        .filter(|place| first(place) != First::No)
        .map(|place| {
            let doubt = if first(place) == First::Open { format!(" ({})", First::Open.word()) } else { String::new() };
            format!("{}, log {}, {} MiB{doubt}", place.workload, place.log, place.size)
        })
        .collect();
    let at = if at.is_empty() { String::new() } else { format!(": {}", at.join("; ")) };
    let all = places.len();
    format!(
        "{what}, CBM read as `{reading}`: first at {yes} of {all} places ({share:.0} %), behind at {no}, {open} \
         undecided{at}"
    )
}

/// Lines by size of the buffer for each size of the log: below 1, CBM is first.
fn map(findings: &mut Findings, places: &[Place<'_>], what: &str, value: Value) {
    for (reading, (name, ..)) in CONTENDERS[..READINGS].iter().enumerate() {
        let mut workloads: Vec<&str> = places.iter().map(|place| place.workload).collect();
        workloads.dedup();
        for workload in workloads {
            let title = format!("{what} against the best of the others, {workload}, read as `{name}`");
            let y = ("CBM's share of the best of the others", false);
            let mut one = figure(&title, Form::Lines, ("buffer, MiB", true), y);
            let here: Vec<&Place<'_>> = places.iter().filter(|place| place.workload == workload).collect();
            let mut logs: Vec<f64> = here.iter().map(|place| place.log).collect();
            logs.dedup();
            for log in logs {
                let points = here
                    .iter()
                    .filter(|place| place.log == log)
                    .map(|place| (place.size, median(&place.ratios(reading, value))));
                one.series.push(series(format!("log of {log} blocks"), points));
            }
            findings.figures.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_do_not_agree_decide_nothing() {
        assert_eq!(First::of(&[0.7, 1.01, 1.0]), First::Yes);
        assert_eq!(First::of(&[1.03, 2.0]), First::No);
        assert_eq!(First::of(&[0.9, 1.03]), First::Open);
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (2.0, 2.5));
    }
}
