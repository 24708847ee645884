//! Values of flags that are more than a number or a name.

use clap::builder::{PossibleValue, TypedValueParser};
use tidewater_base::Duration;
use tidewater_base::units::parse_duration;
use tidewater_core::ftl::Precondition;
use tidewater_sim::run::parse_precondition;

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
