//! Values of flags that are more than a number or a name.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tidewater_base::Duration;
use tidewater_base::units::parse_duration;
use tidewater_core::ftl::Precondition;
use tidewater_sim::run::parse_precondition;
use tidewater_sim::trace::Format;
use tidewater_sim::trace::convert::OutputFormat;

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

/// Names of trace formats, as a list that help and completions can show.
pub(super) fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|name| name.parse().expect("each of the listed names is a format's"))
}

/// Names of the formats that traces are written in.
pub(super) fn output_formats() -> impl TypedValueParser<Value = OutputFormat> {
    PossibleValuesParser::new(OutputFormat::ALL.map(OutputFormat::name))
        .map(|name| name.parse().expect("each of the listed names is a format's"))
}
