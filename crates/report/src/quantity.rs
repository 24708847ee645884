//! Quantities, and the format of their values.

use tidewater_base::units::{count, mib_per_second, micros, percent, seconds, significant};

/// A quantity, which decides how its values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Microseconds.
    Micros,
    /// Seconds.
    Seconds,
    /// A plain count or rate, in thousands, millions and so on.
    Count,
    /// A share of a whole, 0 to 1.
    Share,
    /// MiB/s.
    MibPerSecond,
    /// A ratio such as the write amplification.
    Ratio,
}

impl Quantity {
    /// `value` with its unit.
    pub fn format(self, value: f64) -> String {
        match self {
            Quantity::Micros => micros(value),
            Quantity::Seconds => seconds(value),
            Quantity::Count => count(value),
            Quantity::Share => percent(value),
            Quantity::MibPerSecond => mib_per_second(value),
            Quantity::Ratio => significant(value),
        }
    }

    /// Suffix of a column's name that gives the unit.
    pub(crate) fn column_suffix(self) -> &'static str {
        match self {
            Quantity::Micros => "_us",
            Quantity::Seconds => "_seconds",
            Quantity::Share => "_share",
            Quantity::MibPerSecond => "_mib_s",
            Quantity::Count | Quantity::Ratio => "",
        }
    }

    /// The word by which the page's script knows this quantity.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Quantity::Micros => "us",
            Quantity::Seconds => "s",
            Quantity::Count => "n",
            Quantity::Share => "share",
            Quantity::MibPerSecond => "mib",
            Quantity::Ratio => "ratio",
        }
    }
}
