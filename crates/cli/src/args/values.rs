//! Values of flags that are more than a number or a name.

use clap::builder::{PossibleValue, TypedValueParser};
use std::fmt;
use std::str::FromStr;
use tidewater_base::Duration;
use tidewater_base::units::parse_duration;
use tidewater_core::ftl::Precondition;
use tidewater_sim::run::parse_precondition;

/// `KEY=VALUE` of `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, such as `nand.channels`.
    pub key: String,
    /// The value, as written.
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (key, value) = split(text, "VALUE")?;
        Ok(Setting { key, value })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// `KEY=V1,V2,...` of `--vary`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variation {
    /// The key, such as `buffer.write_policy`, or the name of an option.
    pub key: String,
    /// The values, as written; at least one, none twice.
    pub values: Vec<String>,
}

impl FromStr for Variation {
    type Err = String;

    fn from_str(text: &str) -> Result<Variation, String> {
        let (key, list) = split(text, "V1,V2,...")?;
        let mut values: Vec<String> = Vec::new();
        for value in list.split(',').map(str::trim) {
            match value.split_once("..") {
                Some((first, last)) if RANGED.contains(&key.as_str()) => values.extend(every(first, last)?),
                _ => values.push(value.to_owned()),
            }
        }
        if values.iter().any(String::is_empty) {
            return Err("an empty value; expected values separated by commas".into());
        }
        if let Some(twice) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
            return Err(format!("the value `{}` is there twice", twice.1));
        }
        Ok(Variation { key, values })
    }
}

/// What is varied by whole numbers that may be given as a range.
const RANGED: [&str; 2] = ["seed", "queue-depth"];
/// Values of a range: more runs than can be compared are refused anyway.
const RANGE_MAX: u64 = 1_000;

/// `1..5` is 1, 2, 3, 4, 5: nobody leaves the last seed out.
fn every(first: &str, last: &str) -> Result<Vec<String>, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("`{text}` is not a whole number"));
    let (first, last) = (number(first)?, number(last)?);
    match last.checked_sub(first) {
        None => Err(format!("the range {first}..{last} ends before it begins")),
        Some(more) if more >= RANGE_MAX => Err(format!("the range {first}..{last} is too long")),
        Some(_) => Ok((first..=last).map(|number| number.to_string()).collect()),
    }
}

/// Reads the state that a drive begins in. Completions offer the words; a share of `filled` is taken as well.
#[derive(Clone)]
pub(super) struct PreconditionParser;

impl TypedValueParser for PreconditionParser {
    type Value = Precondition;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Precondition, clap::Error> {
        parse_precondition.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["fresh", "filled", "steady"].into_iter().map(PossibleValue::new)))
    }
}

fn split(text: &str, what: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("expected KEY={what}")),
    }
}

/// `A..B` of `--slice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first request, counted from 0.
    pub start: u64,
    /// The request after the last; `u64::MAX`: up to the end.
    pub end: u64,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let (start, end) = text.split_once("..").ok_or("expected A..B, A.. or ..B")?;
        let number = |text: &str, open: u64| match text.trim().replace('_', "").as_str() {
            "" => Ok(open),
            digits => digits.parse().map_err(|_| format!("`{text}` is not a number of a request")),
        };
        let range = Range { start: number(start, 0)?, end: number(end, u64::MAX)? };
        if range.start >= range.end {
            return Err(format!("{} to {} holds no request", range.start, range.end));
        }
        Ok(range)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            u64::MAX => write!(f, "{}..", self.start),
            end => write!(f, "{}..{end}", self.start),
        }
    }
}

/// A size above zero, such as `16KiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    match tidewater_base::units::parse_bytes(text) {
        Ok(0) => Err("expected a size above zero".into()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// A time above zero, with its unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("it must be above 0".into()) } else { Ok(time) }
}

/// A factor above 0.
pub fn factor(text: &str) -> Result<f64, String> {
    match text.trim_end_matches(['x', 'X']).parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("expected a number above 0".into()),
    }
}
