//! The ledger: every statement of the papers, from the files in `experiments/ledger/`, and what the experiments came to
//! when they were last run whole.

use super::{ENTRIES, Folders};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tidewater_report::experiment::{Check, Experiment};
use tidewater_report::ledger::{Line, Outcome, Results, Source, decide, setting};
use tidewater_study::Failure;
use tidewater_study::experiment::Asked;

/// The sources, in the order of the page: the papers, and what is stated without one.
const FILES: &[(&str, &str)] = &[
    ("x-ssd", include_str!("../experiments/ledger/x-ssd.toml")),
    ("cbm", include_str!("../experiments/ledger/cbm.toml")),
    ("2b-ssd", include_str!("../experiments/ledger/2b-ssd.toml")),
    ("hmb", include_str!("../experiments/ledger/hmb.toml")),
    ("others", include_str!("../experiments/ledger/others.toml")),
];

/// The checks of a whole run of all experiments with seed 1 and without traces, by `experiment/check`. A test runs them
/// again and compares.
const RECORDED: &str = include_str!("../experiments/ledger/recorded.json");

/// The seed of the recorded results.
pub const SEED: u64 = 1;

fn parse(key: &str, text: &str) -> Result<Source, String> {
    let source: Source = toml::from_str(text).map_err(|error| format!("experiments/ledger/{key}.toml: {error}"))?;
    source.check().map_err(|error| format!("experiments/ledger/{key}.toml: {error}"))?;
    Ok(Source { key: key.into(), ..source })
}

/// Every source with its statements.
pub fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let parsed = FILES.iter().map(|(key, text)| parse(key, text));
        parsed.collect::<Result<_, _>>().expect("built-in files are tested")
    })
}

/// The values of all settings that statements name.
fn settings() -> BTreeMap<String, String> {
    let named = sources().iter().flat_map(|source| &source.statements).flat_map(|statement| &statement.settings);
    let values = named.filter_map(|text| {
        let (name, key, _) = setting(text).ok()?;
        let profile = tidewater_core::profile::builtin(name)?;
        Some((format!("{name} {key}"), profile.get(key).ok()?))
    });
    values.collect()
}

/// Outcomes of the last complete run of the experiments, as pages show them. The reason why a check does not hold is in
/// its experiment's file, not in the record.
pub fn recorded() -> BTreeMap<String, Outcome> {
    let mut outcomes: BTreeMap<String, Outcome> = serde_json::from_str(RECORDED).expect("the record is tested");
    for (name, outcome) in outcomes.iter_mut().filter(|(_, outcome)| !outcome.ok) {
        outcome.because = name.rsplit_once('/').and_then(|(experiment, check)| {
            let entry = ENTRIES.iter().find(|entry| entry.name == experiment)?;
            let asked = Asked { seed: SEED, quick: false, full: false };
            entry.planned(asked, Folders::default()).ok()?.loss(check)
        });
    }
    outcomes
}

/// Every statement, decided by these checks.
pub fn lines(checks: BTreeMap<String, Outcome>) -> Vec<Line<'static>> {
    decide(sources(), &Results { checks, settings: settings() })
}

/// Every statement, decided by the checks of these experiments; those that other experiments decide are not run.
pub fn lines_of(experiments: &[Experiment]) -> Vec<Line<'static>> {
    lines(Results::of(experiments))
}

/// Gives the checks of an experiment their statements, and what was fitted to each. With other values than its own an
/// experiment may have other checks.
///
/// # Errors
/// When a check is not in the ledger, or one of this experiment that the ledger names is missing.
pub(super) fn spell(experiment: &str, checks: &mut [Check], is_changed: bool) -> Result<(), Failure> {
    let of_ledger = || sources().iter().flat_map(|source| &source.statements);
    for check in checks.iter_mut() {
        let name = format!("{experiment}/{}", check.name);
        let statement = of_ledger().find(|statement| statement.checks.contains(&name));
        let Some(statement) = statement else {
            if is_changed {
                continue;
            }
            return Err(Failure::usage(format_args!("experiments/ledger: no statement has {name}")));
        };
        check.statement = statement.says.trim().to_owned();
        check.fitted.clone_from(&statement.fitted);
    }
    let named = of_ledger().flat_map(|statement| &statement.checks);
    let mut of_this = named.filter_map(|name| name.rsplit_once('/').filter(|(of, _)| *of == experiment));
    match of_this.find(|(_, name)| !checks.iter().any(|check| check.name == *name)) {
        Some((_, name)) if !is_changed => {
            Err(Failure::usage(format_args!("experiments/ledger: {experiment} has no check named {name}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;
    use tidewater_report::ledger::Verdict;

    #[test]
    fn every_file_of_the_ledger_is_well_formed() {
        for (key, text) in FILES {
            let source = parse(key, text).unwrap();
            assert!(!source.statements.is_empty(), "{key}");
        }
        assert!(parse("x", "name = 1").unwrap_err().contains("experiments/ledger/x.toml"));
    }

    #[test]
    fn each_check_decides_one_statement() {
        let mut named: Vec<&String> =
            sources().iter().flat_map(|source| &source.statements).flat_map(|one| &one.checks).collect();
        let count = named.len();
        named.sort();
        named.dedup();
        assert_eq!(named.len(), count, "a check is named twice");
        let recorded = recorded();
        let missing: Vec<_> = named.iter().filter(|name| !recorded.contains_key(**name)).collect();
        assert!(missing.is_empty(), "not in the record: {missing:?}");
        let unknown: Vec<_> = recorded.keys().filter(|name| !named.contains(name)).collect();
        assert!(unknown.is_empty(), "in no statement: {unknown:?}");
        for name in named {
            let (experiment, _) = name.rsplit_once('/').unwrap();
            assert!(all().iter().any(|info| info.name == experiment), "{name}");
        }
    }

    #[test]
    fn every_setting_that_a_statement_names_is_one() {
        let values = settings();
        for text in sources().iter().flat_map(|source| &source.statements).flat_map(|one| &one.settings) {
            let (profile, key, _) = setting(text).unwrap();
            assert!(values.contains_key(&format!("{profile} {key}")), "{text}");
        }
    }

    #[test]
    fn what_differs_and_what_is_missing_has_a_reason() {
        for line in lines(recorded()) {
            let says = &line.statement.says;
            assert_ne!(line.verdict, Verdict::NotRun, "{says}");
            if line.verdict >= Verdict::Differs && line.statement.repeats.is_none() {
                assert!(line.because.is_some(), "{}: {says}: {}", line.source.key, line.ours);
            }
        }
    }
}
