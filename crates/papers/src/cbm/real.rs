//! The same policies on heads of public traces, where the user has them.

use super::super::{Findings, column, figure, series};
use super::{
    ExperimentError, How, Measured, Options, POLICIES, Setting, measure, measured_columns, profile, run_all, unreadable,
};
use std::path::Path;
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::trace::{self, Input, Trace};

/// A trace that is there: its name without the ending, where it is, and its format.
pub(super) struct Found {
    pub name: String,
    pub input: Input,
    pub options: trace::Options,
}

/// The listed files that a folder has.
pub(super) struct Folder {
    pub found: Vec<Found>,
    /// The files that were left out, in words; `None`: none.
    pub skipped: Option<String>,
}

/// Looks for the files `NAME FORMAT` of a list.
pub(super) fn look(listed: &[String], folder: Option<&Path>) -> Result<Folder, ExperimentError> {
    let mut found = Vec::new();
    for line in listed {
        let (file, format) = line.split_once(' ').unwrap_or((line, ""));
        let format = format.parse().map_err(|error| ExperimentError::new(format!("{file}: {error}")))?;
        let Some(folder) = folder else { continue };
        let places = ["", ".zst", ".gz"].map(|ending| folder.join(format!("{file}{ending}")));
        let Some(path) = places.into_iter().find(|path| path.is_file()) else { continue };
        let options = trace::Options { format: Some(format), compact: true, ..trace::Options::default() };
        // Names are long: what tells them apart is in the first words.
        let name = file.split('.').next().unwrap_or(file).to_owned();
        found.push(Found { name, input: Input::Path(path), options });
    }
    let missing = listed.len() - found.len();
    let skipped = (missing > 0).then(|| {
        format!(
            "SKIPPED: {missing} of {} traces are not there; --traces FOLDER or TIDEWATER_TRACES names the folder that \
             has them",
            listed.len()
        )
    });
    Ok(Folder { found, skipped })
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let mut sizes = setting.numbers("sizes_mib")?;
    if options.quick {
        sizes.truncate(1);
    }
    let Folder { found, skipped } = look(&setting.words("traces")?, options.traces)?;
    let mut findings = Findings {
        columns: vec![
            column("trace", "its file, without endings"),
            column("policy", "of the write buffer"),
            column("buffer_mib", "its size"),
        ],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    findings.found.extend(skipped);
    let mut cases = Vec::new();
    for trace in &found {
        for &size in &sizes {
            for policy in POLICIES {
                cases.push((trace, size, policy, profile(setting, policy, size as u64, &[])?));
            }
        }
    }
    let how = How { pacing: Pacing::Arrival, warm_up: 0, seed: options.seed };
    let measured = run_all(&cases, options, |(trace, _, _, profile)| {
        measure(profile, Trace::open(&trace.input, &trace.options).map_err(unreadable)?, how)
    })?;
    for ((trace, size, policy, _), measured) in cases.iter().zip(&measured) {
        let what = vec![Cell::from(&*trace.name), Cell::from(*policy), Cell::from(*size)];
        findings.rows.push([what, measured.cells()].concat());
    }
    let of_trace = sizes.len() * POLICIES.len();
    for (trace, results) in found.iter().zip(measured.chunks(of_trace)) {
        findings.found.push(ranking(&trace.name, &sizes, results));
    }
    for (title, label, value) in [
        ("Average response time against LRU's", "share of LRU's", (|m| m.response_us) as fn(&Measured) -> f64),
        ("Erase count against LRU's", "share of LRU's", |m| m.erases),
    ] {
        let middle = sizes.len() / 2;
        let title = format!("{title}, {} MiB", sizes[middle]);
        let mut one = figure(&title, Form::Bars, ("trace, in the order of the list", false), (label, false));
        for (p, policy) in POLICIES.iter().enumerate() {
            let points = measured.chunks(of_trace).enumerate().filter_map(|(t, results)| {
                let at = &results[middle * POLICIES.len()..][..POLICIES.len()];
                let lru = value(&at[POLICIES.len() - 2]);
                (lru > 0.0).then(|| ((t + 1) as f64, value(&at[p]) / lru))
            });
            one.series.push(series(policy.to_uppercase(), points.collect::<Vec<_>>()));
        }
        if one.series.iter().any(|series| !series.points.is_empty()) {
            findings.figures.push(one);
        }
    }
    Ok(findings)
}

/// The policies of one trace, best first, by erasures and by response time.
fn ranking(name: &str, sizes: &[f64], results: &[Measured]) -> String {
    let mut text = format!("{name}:");
    for (&size, results) in sizes.iter().zip(results.chunks(POLICIES.len())) {
        let order = |value: fn(&Measured) -> f64, digits: usize| {
            let mut order: Vec<(f64, &str)> = results.iter().map(value).zip(POLICIES).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let words: Vec<String> = order.iter().map(|(v, policy)| format!("{policy} {v:.digits$}")).collect();
            words.join(", ")
        };
        let erases = if results.iter().all(|m| m.erases == 0.0) {
            "nothing was erased".to_owned()
        } else {
            format!("erasures {}", order(|m| m.erases, 0))
        };
        text += &format!(" at {size} MiB {erases}; response time, us, {}.", order(|m| m.response_us, 0));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_skipped_and_counted() {
        let listed = ["sample.msr.csv msr".to_owned(), "absent.spc spc".to_owned()];
        let samples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces"));
        let folder = look(&listed, Some(samples)).unwrap();
        assert_eq!(folder.found.len(), 1);
        assert!(folder.skipped.unwrap().starts_with("SKIPPED: 1 of 2 traces"));
        let none = look(&listed, None).unwrap();
        assert!(none.found.is_empty() && none.skipped.unwrap().starts_with("SKIPPED: 2 of 2"));
        assert!(look(&["x.csv nonsense".to_owned()], None).is_err());
    }
}
