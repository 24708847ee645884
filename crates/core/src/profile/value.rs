//! What a key can hold: how it is written, what is in range, and how it is read back. One description serves the TOML
//! reader, `--set`, `profile show`, the run record and the reference page.

use tidewater_base::{Duration, units};
use toml::de::DeValue;

/// The kind of value that a key holds, and its range.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Integer {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A size: `16KiB`; binary units, in bytes when none is given.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Bytes per second: `1.2GB/s`; decimal units.
    Rate {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A time: `25us`; the unit is required.
    Time {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// A share: `7%` or `0.07`.
    Share {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A probability or a factor: `1e-6`.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// One of a few words; each with what it means.
    Choice(&'static [(&'static str, &'static str)]),
    /// One of the policies that are registered under a name.
    Policy(fn() -> Vec<&'static str>),
    /// A name: letters, digits, `-` and `_`, 1 to 64 of them.
    Name,
    /// A line of text, up to 200 characters.
    Text,
    /// Several values.
    List {
        /// What each one is.
        of: &'static Kind,
        /// Fewest.
        min: usize,
        /// Most. When it equals `min`, a single value stands for all of them.
        max: usize,
    },
}

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of [`Kind::Integer`], [`Kind::Bytes`] and [`Kind::Rate`].
    Integer(u64),
    /// Of [`Kind::Time`].
    Time(Duration),
    /// Of [`Kind::Share`] and [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Choice`], [`Kind::Policy`], [`Kind::Name`] and [`Kind::Text`].
    Text(String),
    /// Of [`Kind::List`].
    List(Vec<Value>),
}

/// A value that does not do: what was found in its place.
pub(super) type Found = String;

impl Kind {
    /// What is expected, in words: `an integer from 1 to 64`.
    pub fn expected(&self) -> String {
        match *self {
            Kind::Switch => "`true` or `false`".into(),
            Kind::Integer { min, max } => format!("an integer from {min} to {max}"),
            Kind::Bytes { min, max } => {
                format!("a size from {} to {}", units::format_bytes(min), units::format_bytes(max))
            }
            Kind::Rate { min, max } => {
                format!("a rate from {} to {}", units::format_rate(min), units::format_rate(max))
            }
            Kind::Time { min, max } => {
                format!("a time from {} to {}", units::format_duration(min), units::format_duration(max))
            }
            Kind::Share { min, max } => {
                format!("a share from {} to {}", units::format_share(min), units::format_share(max))
            }
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Choice(choices) => words(choices.iter().map(|(word, _)| *word)),
            Kind::Policy(names) => words(names().into_iter()),
            Kind::Name => "a name of letters, digits, `-` and `_`".into(),
            Kind::Text => "a line of text".into(),
            Kind::List { of, min, max } if min == max => {
                format!("{min} values (or one for all), each {}", of.expected())
            }
            Kind::List { of, min, max } => format!("{min} to {max} values, each {}", of.expected()),
        }
    }

    /// Reads a value as it stands after `--set KEY=`, in a run record, or in a TOML string. Lists are separated by `/`
    /// or `,`.
    pub(super) fn parse(&self, text: &str) -> Result<Value, Found> {
        let quoted = || quote(text);
        let unit = |error: units::UnitError| match error {
            units::UnitError::NotANumber | units::UnitError::Empty => quote(text),
            error => format!("{error}, in {}", quote(text)),
        };
        let text = text.trim();
        match *self {
            Kind::Switch => match text {
                "true" => Ok(Value::Switch(true)),
                "false" => Ok(Value::Switch(false)),
                _ => Err(quoted()),
            },
            Kind::Integer { min, max } => {
                let digits = text.replace('_', "");
                let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                let value = digits.parse().ok().filter(|n| plain && (min..=max).contains(n));
                value.map(Value::Integer).ok_or_else(quoted)
            }
            Kind::Bytes { min, max } => {
                let bytes = units::parse_bytes(text).map_err(unit)?;
                in_range(bytes, min, max, text).map_err(|found| {
                    // A small number written without its unit.
                    let alone = bytes < min && text.bytes().all(|b| b.is_ascii_digit());
                    if alone { format!("{found}, which counts bytes where it has no unit") } else { found }
                })
            }
            Kind::Rate { min, max } => in_range(units::parse_rate(text).map_err(unit)?, min, max, text),
            Kind::Time { min, max } => {
                let time = units::parse_duration(text).map_err(unit)?;
                if (min..=max).contains(&time) { Ok(Value::Time(time)) } else { Err(quoted()) }
            }
            Kind::Share { min, max } | Kind::Number { min, max } => {
                let number = units::parse_share(text).map_err(unit)?;
                if (min..=max).contains(&number) { Ok(Value::Number(number)) } else { Err(quoted()) }
            }
            Kind::Choice(choices) => {
                let known = choices.iter().any(|(word, _)| *word == text);
                if known { Ok(Value::Text(text.into())) } else { Err(quoted()) }
            }
            Kind::Policy(names) => {
                if names().contains(&text) {
                    Ok(Value::Text(text.into()))
                } else {
                    Err(quoted())
                }
            }
            Kind::Name => {
                if is_name(text) {
                    Ok(Value::Text(text.into()))
                } else {
                    Err(quoted())
                }
            }
            Kind::Text => {
                let fits = text.chars().count() <= 200 && !text.chars().any(char::is_control);
                if fits {
                    Ok(Value::Text(text.into()))
                } else {
                    Err("a text that is longer or has control characters".into())
                }
            }
            Kind::List { of, min, max } => {
                let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
                let values = inner.split([',', '/']).map(|item| of.parse(item)).collect::<Result<Vec<_>, _>>()?;
                list(values, min, max)
            }
        }
    }

    /// Takes a value from a TOML document. Every value may also be quoted.
    pub(super) fn take(&self, value: &DeValue<'_>) -> Result<Value, Found> {
        let texts = matches!(self, Kind::Choice(_) | Kind::Policy(_) | Kind::Name | Kind::Text);
        match value {
            DeValue::String(text) => self.parse(text),
            DeValue::Array(items) => match *self {
                Kind::List { of, min, max } => {
                    let values = items.iter().map(|item| of.take(item.get_ref())).collect::<Result<Vec<_>, _>>()?;
                    list(values, min, max)
                }
                _ => Err("a list".into()),
            },
            DeValue::Integer(integer) if !texts => match u64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(number) => self.parse(&number.to_string()),
                Err(_) => Err(format!("{integer}")),
            },
            DeValue::Float(float) if !texts => self.parse(float.as_str()),
            DeValue::Boolean(switch) if !texts => self.parse(if *switch { "true" } else { "false" }),
            // `cbm_merge` was a switch: images of then have it so.
            DeValue::Boolean(switch) if matches!(self, Kind::Choice(words) if *words == super::CbmMerge::WORDS) => {
                self.parse(if *switch { "always" } else { "off" })
            }
            DeValue::Table(_) => Err("a table".into()),
            DeValue::Datetime(_) => Err("a date".into()),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                Err(format!("{} without quotes", value.type_str()))
            }
        }
    }

    /// Writes a value so that [`Kind::parse`] reads the same value back.
    pub(super) fn text(&self, value: &Value) -> String {
        match (self, value) {
            (_, Value::Switch(switch)) => switch.to_string(),
            (Kind::Bytes { .. }, Value::Integer(n)) => units::format_bytes(*n),
            (Kind::Rate { .. }, Value::Integer(n)) => units::format_rate(*n),
            (_, Value::Integer(n)) => n.to_string(),
            (_, Value::Time(time)) => units::format_duration(*time),
            (Kind::Share { .. }, Value::Number(x)) => units::format_share(*x),
            (_, Value::Number(x)) if *x >= 1e-3 || *x == 0.0 => x.to_string(),
            (_, Value::Number(x)) => format!("{x:e}"),
            (_, Value::Text(text)) => text.clone(),
            (Kind::List { of, .. }, Value::List(values)) => {
                values.iter().map(|value| of.text(value)).collect::<Vec<_>>().join("/")
            }
            (kind, Value::List(_)) => unreachable!("a list was taken from a key of {kind:?}"),
        }
    }

    /// Writes a value as TOML.
    pub(super) fn toml(&self, value: &Value) -> String {
        match (self, value) {
            (Kind::List { of, .. }, Value::List(values)) => {
                format!("[{}]", values.iter().map(|value| of.toml(value)).collect::<Vec<_>>().join(", "))
            }
            (Kind::Switch | Kind::Integer { .. } | Kind::Number { .. }, _) => self.text(value),
            _ => toml_string(&self.text(value)),
        }
    }
}

/// A TOML basic string. Names and texts hold no control characters, so only two characters need escaping.
fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The text in quotes, cut when it is very long.
pub(super) fn quote(text: &str) -> String {
    if text.chars().count() <= 40 {
        format!("{text:?}")
    } else {
        format!("{:?}…", text.chars().take(40).collect::<String>())
    }
}

/// Whether it is a [`Kind::Name`].
pub(super) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "))
}

fn in_range(value: u64, min: u64, max: u64, text: &str) -> Result<Value, Found> {
    if (min..=max).contains(&value) { Ok(Value::Integer(value)) } else { Err(quote(text)) }
}

fn list(mut values: Vec<Value>, min: usize, max: usize) -> Result<Value, Found> {
    if min == max
        && let [only] = values.as_slice()
    {
        values = vec![only.clone(); max];
    }
    let count = values.len();
    if (min..=max).contains(&count) { Ok(Value::List(values)) } else { Err(format!("{count} values")) }
}

/// A field of the profile, as the table of keys moves values in and out. A value of the wrong kind is a mistake in the
/// table and asserts; a test sets every key.
pub(super) trait Field {
    fn get(&self) -> Value;
    fn put(&mut self, value: Value);
}

/// The table gave a field a value that its key's kind does not describe.
#[track_caller]
pub(super) fn misfit(value: Value) -> ! {
    unreachable!("the kind of a key does not fit its field: {value:?}")
}

macro_rules! field {
    ($type:ty, $variant:ident, $get:expr, $put:expr) => {
        impl Field for $type {
            fn get(&self) -> Value {
                Value::$variant($get(self))
            }
            fn put(&mut self, value: Value) {
                match value {
                    Value::$variant(inner) => *self = $put(inner),
                    other => misfit(other),
                }
            }
        }
    };
}

field!(bool, Switch, |x: &bool| *x, |x| x);
field!(u64, Integer, |x: &u64| *x, |x| x);
field!(u32, Integer, |x: &u32| u64::from(*x), |x| u32::try_from(x).expect("a key's range passes its field"));
field!(f64, Number, |x: &f64| *x, |x| x);
field!(Duration, Time, |x: &Duration| *x, |x| x);
field!(String, Text, |x: &String| x.clone(), |x| x);

impl<T: Field + Clone, const N: usize> Field for [T; N] {
    fn get(&self) -> Value {
        Value::List(self.iter().map(Field::get).collect())
    }
    fn put(&mut self, value: Value) {
        match value {
            Value::List(values) if values.len() == N => {
                self.iter_mut().zip(values).for_each(|(field, value)| field.put(value));
            }
            other => misfit(other),
        }
    }
}

/// Ties the variants of an enumeration to the words that stand for them in a profile.
macro_rules! choices {
    ($type:ident { $($variant:ident = $word:literal: $doc:literal),* $(,)? }) => {
        impl $type {
            /// The words that stand for it in a profile, each with what it means.
            pub const WORDS: &'static [(&'static str, &'static str)] = &[$(($word, $doc)),*];

            /// The word that stands for it in a profile.
            pub const fn word(self) -> &'static str {
                match self {
                    $($type::$variant => $word),*
                }
            }
        }
        choices!(field $type { $($variant = $word),* });
    };
    (field $type:ident { $($variant:ident = $word:literal),* }) => {
        impl $crate::profile::value::Field for $type {
            fn get(&self) -> $crate::profile::value::Value {
                $crate::profile::value::Value::Text(match self { $($type::$variant => $word),* }.into())
            }
            fn put(&mut self, value: $crate::profile::value::Value) {
                match &value {
                    $($crate::profile::value::Value::Text(word) if word == $word => *self = $type::$variant,)*
                    _ => $crate::profile::value::misfit(value),
                }
            }
        }
    };
}
pub(super) use choices;
