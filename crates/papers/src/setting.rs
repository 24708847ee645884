//! Parameters of an experiment, from its file.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use tidewater_base::{Duration, Instant};
use tidewater_core::profile::Profile;
use tidewater_core::{Device, device};
use tidewater_report::experiment::Parameter;
use tidewater_study::Failure;

/// Why an experiment came to no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentError {
    /// It can't be run: why, in words.
    Refused(String),
    /// It was asked to end ([`super::Options::cancelled`]).
    Cancelled,
}

impl ExperimentError {
    pub(super) fn new(text: impl Into<String>) -> ExperimentError {
        ExperimentError::Refused(text.into())
    }

    pub(super) fn unknown<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> ExperimentError {
        let nearest = known.min_by_key(|other| strsim::damerau_levenshtein(name, other)).unwrap_or_default();
        ExperimentError::Refused(format!(
            "there is no experiment `{name}`; did you mean `{nearest}`? `tidewater experiment list` names all"
        ))
    }
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExperimentError::Refused(why) => f.write_str(why),
            ExperimentError::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for ExperimentError {}

impl From<Failure> for ExperimentError {
    fn from(failure: Failure) -> ExperimentError {
        ExperimentError::Refused(failure.to_string())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    value: toml::Value,
    doc: String,
}

/// A check that does not hold, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loss {
    check: String,
    because: String,
}

/// The file of an experiment.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Setting {
    #[serde(skip)]
    name: String,
    pub(super) title: String,
    pub(super) source: String,
    pub(super) description: String,
    pub(super) fitted: Vec<String>,
    pub(super) differences: Vec<String>,
    /// Checks that do not hold here, and the mechanism that was found: each names its check.
    #[serde(default)]
    losses: Vec<Loss>,
    parameters: BTreeMap<String, Given>,
}

impl Setting {
    pub(super) fn parse(name: &str, text: &str) -> Result<Setting, ExperimentError> {
        let setting: Setting = toml::from_str(text)
            .map_err(|error| ExperimentError::Refused(format!("experiments/{name}.toml: {error}")))?;
        Ok(Setting { name: name.into(), ..setting })
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let parameter = |(name, given): (&String, &Given)| Parameter {
            name: name.clone(),
            value: text(&given.value),
            doc: given.doc.clone(),
        };
        self.parameters.iter().map(parameter).collect()
    }

    /// Why a check does not hold, where that is known.
    pub(super) fn loss(&self, check: &str) -> Option<String> {
        self.losses.iter().find(|loss| loss.check == check).map(|loss| loss.because.trim().to_owned())
    }

    /// # Errors
    /// When a loss is explained of which the experiment has no check.
    pub(super) fn check_losses<'s>(
        &self,
        checks: impl Iterator<Item = &'s str> + Clone,
    ) -> Result<(), ExperimentError> {
        match self.losses.iter().find(|loss| !checks.clone().any(|check| check == loss.check)) {
            Some(loss) => Err(ExperimentError::Refused(format!(
                "experiments/{}.toml: losses: this experiment has no check `{}`",
                self.name, loss.check
            ))),
            None => Ok(()),
        }
    }

    fn wrong(&self, parameter: &str, expected: &str) -> ExperimentError {
        ExperimentError::Refused(format!("experiments/{}.toml: parameters.{parameter}: expected {expected}", self.name))
    }

    fn given(&self, parameter: &str, expected: &str) -> Result<&toml::Value, ExperimentError> {
        self.parameters.get(parameter).map(|given| &given.value).ok_or_else(|| self.wrong(parameter, expected))
    }

    pub(super) fn number(&self, parameter: &str) -> Result<f64, ExperimentError> {
        const EXPECTED: &str = "a number above zero";
        let number = as_number(self.given(parameter, EXPECTED)?);
        number.filter(|&x| x > 0.0).ok_or_else(|| self.wrong(parameter, EXPECTED))
    }

    pub(super) fn numbers(&self, parameter: &str) -> Result<Vec<f64>, ExperimentError> {
        const EXPECTED: &str = "a list of numbers above zero, in rising order";
        let wrong = || self.wrong(parameter, EXPECTED);
        let values = self.given(parameter, EXPECTED)?.as_array().ok_or_else(wrong)?;
        let numbers: Option<Vec<f64>> = values.iter().map(as_number).collect();
        let rising = |numbers: &Vec<f64>| {
            numbers.first().is_some_and(|&first| first > 0.0) && numbers.is_sorted_by(|a, b| a < b)
        };
        numbers.filter(rising).ok_or_else(wrong)
    }

    /// Words: one, or a list.
    pub(super) fn words(&self, parameter: &str) -> Result<Vec<String>, ExperimentError> {
        const EXPECTED: &str = "a text, or a list of texts";
        let text = |value: &toml::Value| value.as_str().map(str::to_owned);
        let given = self.given(parameter, EXPECTED)?;
        let words = match given.as_array() {
            Some(list) => list.iter().map(text).collect(),
            None => text(given).map(|word| vec![word]),
        };
        words.filter(|words| !words.is_empty()).ok_or_else(|| self.wrong(parameter, EXPECTED))
    }

    /// One word.
    pub(super) fn word(&self, parameter: &str) -> Result<String, ExperimentError> {
        self.words(parameter)?.into_iter().next().ok_or_else(|| self.wrong(parameter, "a text"))
    }

    /// The profile that it names, with settings of its own.
    pub(super) fn profile(&self, settings: &[(&str, String)]) -> Result<Profile, ExperimentError> {
        const EXPECTED: &str = "the name of a built-in profile";
        let name = self.given("profile", EXPECTED)?.as_str().ok_or_else(|| self.wrong("profile", EXPECTED))?;
        let mut profile = tidewater_core::profile::builtin(name).ok_or_else(|| self.wrong("profile", EXPECTED))?;
        for (key, value) in settings {
            profile.set(key, value).map_err(|error| ExperimentError::Refused(format!("{}: {error}", self.name)))?;
        }
        Ok(profile)
    }

    /// Simulated time of measurement, a tenth of it when it must be quick.
    pub(super) fn time(&self, parameter: &str, unit: f64, quick: bool) -> Result<Duration, ExperimentError> {
        let seconds = self.number(parameter)? * unit * if quick { 0.1 } else { 1.0 };
        Ok(Duration::from_secs_f64(seconds))
    }
}

fn as_number(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// A drive for an experiment: fresh, 8 GiB, without stamps.
pub(super) fn device(profile: &Profile, seed: u64) -> Result<Device, ExperimentError> {
    let options = device::Options { seed, capacity: 8 << 30, ..device::Options::default() };
    Device::new(profile, options).map_err(|error| ExperimentError::new(error.to_string()))
}

/// An instant after the start.
pub(super) fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}
