//! Values that a study varies and sets, as text: `KEY=VALUE`, `KEY=V1,V2,...`, ranges.

use std::fmt;
use std::str::FromStr;

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

impl Variation {
    /// These values as they are, none of them a range.
    ///
    /// # Errors
    /// When one is empty, or there twice.
    pub fn of(key: &str, values: Vec<String>) -> Result<Variation, String> {
        if values.iter().any(String::is_empty) {
            return Err("an empty value; expected values separated by commas".into());
        }
        if let Some(twice) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
            return Err(format!("the value `{}` is there twice", twice.1));
        }
        Ok(Variation { key: key.to_owned(), values })
    }
}

impl FromStr for Variation {
    type Err = String;

    fn from_str(text: &str) -> Result<Variation, String> {
        let (key, list) = split(text, "V1,V2,...")?;
        let mut values: Vec<String> = Vec::new();
        for value in list.split(',').map(str::trim) {
            match range(value)? {
                Some(all) => values.extend(all),
                None if RANGED.contains(&key.as_str()) && value.contains("..") => {
                    return Err(format!("`{value}` is not a range of whole numbers, such as 1..5 or 1..64*2"));
                }
                None => values.push(value.to_owned()),
            }
        }
        Variation::of(&key, values)
    }
}

/// Options that take whole numbers alone; a key of the profile says by itself what it takes.
const RANGED: [&str; 2] = ["seed", "queue-depth"];
/// Values of a range.
const RANGE_MAX: usize = 100_000;

/// The values of a range of whole numbers: `1..5` is 1, 2, 3, 4, 5; `1..64*2` is 1, 2, 4 and so on up to 64;
/// `7%..28%+7%` is 7, 14, 21, 28 %. All its numbers may have a unit, the same one, which a factor has not. `None`: the
/// text is no range.
fn range(text: &str) -> Result<Option<Vec<String>>, String> {
    let Some((first, rest)) = text.split_once("..") else { return Ok(None) };
    let (last, step) = match rest.find(['*', '+']) {
        Some(at) => (&rest[..at], Some(rest[at..].split_at(1))),
        None => (rest, None),
    };
    let number = |text: &str| {
        let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        Some((text[..unit].parse::<u64>().ok()?, text[unit..].to_owned()))
    };
    let (Some((first, unit)), Some((last, unit_of_last))) = (number(first.trim()), number(last.trim())) else {
        return Ok(None);
    };
    if unit != unit_of_last || !unit.chars().all(|c| c.is_alphabetic() || c == '%') {
        return Ok(None);
    }
    if last < first {
        return Err(format!("the range `{text}` ends before it begins"));
    }
    let next: Box<dyn Fn(u64) -> Option<u64>> = match step.map(|(kind, step)| (kind, number(step.trim()))) {
        None => Box::new(|value| value.checked_add(1)),
        Some(("+", Some((step, of_step)))) if step > 0 && of_step == unit => {
            Box::new(move |value: u64| value.checked_add(step))
        }
        Some(("+", _)) => {
            return Err(format!("`{text}`: a step is a whole number above 0, with the unit of the range"));
        }
        Some((_, Some((factor, none)))) if factor > 1 && first > 0 && none.is_empty() => {
            Box::new(move |value: u64| value.checked_mul(factor))
        }
        Some(_) => return Err(format!("`{text}`: a factor is a whole number above 1, and the range starts above 0")),
    };
    let values = std::iter::successors(Some(first), |value| next(*value)).take_while(|value| *value <= last);
    let values: Vec<String> = values.take(RANGE_MAX + 1).map(|value| format!("{value}{unit}")).collect();
    if values.len() > RANGE_MAX {
        return Err(format!("the range `{text}` is too long"));
    }
    Ok(Some(values))
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

/// A factor above 0.
pub fn factor(text: &str) -> Result<f64, String> {
    match text.trim_end_matches(['x', 'X']).parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("expected a number above 0".into()),
    }
}
