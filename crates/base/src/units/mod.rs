//! Sizes, times and rates as people write them: `4KiB`, `16g`, `25us`, `1.2GB/s`, `7%`.
//!
//! - **Sizes are binary, as fio takes them**: `k`, `K`, `kB`, `KB`, `Ki` and `KiB` all mean 1,024 bytes, and so on with
//!   `m`, `g` and `t`. No unit, or `B`, means bytes.
//! - **Rates are decimal, as buses and memories are sold**: `1.2GB/s` is 1,200,000,000 bytes per second; `GiB/s` is
//!   binary. No unit means bytes per second.
//! - **Times** need a unit: `ps`, `ns`, `us` (or `µs`), `ms` or `s`. Only `0` may stand alone.
//! - **Shares** are `7%` or `0.07`.
//!
//! Decimal fractions are exact or refused: `1.5KiB` is 1,536 bytes, `0.3B` is an error. A space may stand before the
//! unit, and `_` between digits. Every `format_*` writes what its `parse_*` reads back to the same value;
//! [`bytes`], [`micros`], [`count`] and their kin round, for a reader.

mod readable;

pub use readable::*;

use crate::Duration;
use std::fmt;

/// Why a quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// There is no text.
    Empty,
    /// It does not begin with a number.
    NotANumber,
    /// The number is followed by no unit of this quantity.
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The units that would do.
        known: &'static str,
    },
    /// A time without a unit.
    MissingUnit {
        /// The units that would do.
        known: &'static str,
    },
    /// The value falls between two whole numbers of the smallest unit.
    NotWhole {
        /// The smallest unit.
        smallest: &'static str,
    },
    /// The value does not fit in 64 bits.
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitError::Empty => f.write_str("nothing"),
            UnitError::NotANumber => f.write_str("no number"),
            UnitError::UnknownUnit { unit, known } => write!(f, "the unknown unit `{unit}` (known: {known})"),
            UnitError::MissingUnit { known } => write!(f, "a number without a unit (known: {known})"),
            UnitError::NotWhole { smallest } => write!(f, "a fraction of a {smallest}"),
            UnitError::TooLarge => f.write_str("a number that does not fit in 64 bits"),
        }
    }
}

impl std::error::Error for UnitError {}

const SIZE_UNITS: &str = "B, KiB, MiB, GiB, TiB; k, m, g and t mean the same";
const RATE_UNITS: &str = "B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s";
const TIME_UNITS: &str = "ps, ns, us, ms, s";

/// A decimal number, kept exact: `digits` divided by ten to the power of `scale`.
struct Decimal {
    digits: u128,
    scale: u32,
}

impl Decimal {
    /// The number times `unit`, when that is whole and fits.
    fn times(&self, unit: u64, smallest: &'static str) -> Result<u64, UnitError> {
        let product = self.digits.checked_mul(unit.into()).ok_or(UnitError::TooLarge)?;
        let divisor = 10u128.checked_pow(self.scale).ok_or(UnitError::NotWhole { smallest })?;
        if product % divisor != 0 {
            return Err(UnitError::NotWhole { smallest });
        }
        u64::try_from(product / divisor).map_err(|_| UnitError::TooLarge)
    }
}

/// Splits text behind the digits, points and underscores that it begins with.
pub fn number_and_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len()))
}

/// Splits text into its number and its unit, which may be empty.
fn split(text: &str) -> Result<(Decimal, &str), UnitError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    let (number, unit) = number_and_unit(text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !whole.starts_with(|c: char| c.is_ascii_digit()) || fraction.contains('.') || number.ends_with(['.', '_']) {
        return Err(UnitError::NotANumber);
    }
    let fraction = fraction.trim_end_matches('0');
    let (mut digits, mut scale) = (0u128, 0u32);
    for (text, step) in [(whole, 0), (fraction, 1)] {
        for digit in text.bytes().filter(u8::is_ascii_digit) {
            digits =
                digits.checked_mul(10).and_then(|d| d.checked_add((digit - b'0').into())).ok_or(UnitError::TooLarge)?;
            scale += step;
        }
    }
    Ok((Decimal { digits, scale }, unit.trim_start()))
}

/// Reads a size in bytes, binary as fio takes it: `4KiB`, `4k`, `16g`, `512`.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    let power = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 1,
        "m" | "mb" | "mi" | "mib" => 2,
        "g" | "gb" | "gi" | "gib" => 3,
        "t" | "tb" | "ti" | "tib" => 4,
        "p" | "pb" | "pi" | "pib" => 5,
        _ => return Err(UnitError::UnknownUnit { unit: unit.into(), known: SIZE_UNITS }),
    };
    number.times(1 << (10 * power), "byte")
}

/// Reads a rate in bytes per second, decimal: `1.2GB/s`, `800MB/s`; binary with an `i`: `1GiB/s`. A small `b` after the
/// prefix (`Gb/s`) could mean bits and is refused.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B/s" => 1,
        "k" | "K" | "kB/s" | "KB/s" => 1_000,
        "M" | "m" | "MB/s" => 1_000_000,
        "G" | "g" | "GB/s" => 1_000_000_000,
        "T" | "t" | "TB/s" => 1_000_000_000_000,
        "KiB/s" => 1 << 10,
        "MiB/s" => 1 << 20,
        "GiB/s" => 1 << 30,
        _ => return Err(UnitError::UnknownUnit { unit: unit.into(), known: RATE_UNITS }),
    };
    number.times(factor, "byte per second")
}

/// Reads a time: `25us`, `1.5 ms`. Picoseconds are the finest.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" if number.digits == 0 => 1,
        "" => return Err(UnitError::MissingUnit { known: TIME_UNITS }),
        "ps" => 1,
        "ns" => 1_000,
        "us" | "µs" | "μs" => 1_000_000,
        "ms" => 1_000_000_000,
        "s" => 1_000_000_000_000,
        _ => return Err(UnitError::UnknownUnit { unit: unit.into(), known: TIME_UNITS }),
    };
    Ok(Duration::from_ps(number.times(factor, "picosecond")?))
}

/// Reads a share: `7%` or `0.07`; also `1e-6`, as error rates are written. Negative, infinite and not-a-number are
/// refused; whether more than 100 % makes sense is for the caller to say.
pub fn parse_share(text: &str) -> Result<f64, UnitError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(UnitError::NotANumber);
    }
    let value: f64 = match text.strip_suffix('%').map(str::trim_end) {
        // The point is moved in the text, because 7.0 / 100.0 need not be the number nearest to 0.07.
        Some(percent) if !percent.contains(['e', 'E']) => format!("{percent}e-2").parse(),
        Some(percent) => percent.parse::<f64>().map(|p| p / 100.0),
        None => text.parse(),
    }
    .map_err(|_| UnitError::NotANumber)?;
    if value.is_finite() { Ok(value) } else { Err(UnitError::TooLarge) }
}

/// Writes a size in the largest binary unit that it is a whole number of: `16KiB`, `1872B`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = if bytes == 0 { 0 } else { (bytes.trailing_zeros() as usize / 10).min(UNITS.len() - 1) };
    format!("{}{}", bytes >> (10 * power), UNITS[power])
}

/// Writes a rate in the largest decimal unit that is not above it, exactly: `1.2GB/s`.
pub fn format_rate(rate: u64) -> String {
    let (unit, name) = match rate {
        0..1_000 => (1, "B/s"),
        1_000..1_000_000 => (1_000, "kB/s"),
        1_000_000..1_000_000_000 => (1_000_000, "MB/s"),
        _ => (1_000_000_000, "GB/s"),
    };
    format!("{}{name}", exact(rate, unit))
}

/// Writes a time in the largest unit that is not above it, exactly: `25us`, `1.5us`. (`Display` of [`Duration`] rounds
/// to three digits.)
pub fn format_duration(time: Duration) -> String {
    let (unit, name) = time.unit();
    format!("{}{name}", exact(time.as_ps(), unit))
}

/// Writes a share in percent where that reads back to the same value, else as a plain number.
pub fn format_share(share: f64) -> String {
    let scientific = format!("{share:e}");
    if let Some((mantissa, exponent)) = scientific.split_once('e')
        && let Ok(exponent) = exponent.parse::<i32>()
        && let Ok(percent) = format!("{mantissa}e{}", exponent + 2).parse::<f64>()
    {
        let text = format!("{percent}%");
        if parse_share(&text) == Ok(share) {
            return text;
        }
    }
    scientific
}

/// `value / unit` as a decimal without rounding; `unit` is a power of ten.
fn exact(value: u64, unit: u64) -> String {
    if value.is_multiple_of(unit) {
        return (value / unit).to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    format!("{}.{}", value / unit, fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_however_they_are_written() {
        for text in ["4k", "4K", "4kB", "4KB", "4Ki", "4KiB", "4 KiB", "4096", "4_096", "4096B", "4.0k", "0.00390625m"]
        {
            assert_eq!(parse_bytes(text), Ok(4096), "{text}");
        }
        assert_eq!(parse_bytes("16g"), Ok(16 << 30));
        assert_eq!(parse_bytes("1.5KiB"), Ok(1536));
        assert_eq!(parse_bytes("0"), Ok(0));
    }

    #[test]
    fn rates_are_decimal_unless_they_say_otherwise() {
        assert_eq!(parse_rate("1.2GB/s"), Ok(1_200_000_000));
        assert_eq!(parse_rate("1GiB/s"), Ok(1 << 30));
        assert_eq!(parse_rate("40960000"), Ok(40_960_000));
        assert!(matches!(parse_rate("10Gb/s"), Err(UnitError::UnknownUnit { .. })), "bits or bytes?");
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_duration("25us"), Ok(Duration::from_us(25)));
        assert_eq!(parse_duration("25 µs"), Ok(Duration::from_us(25)));
        assert_eq!(parse_duration("0.5ns"), Ok(Duration::from_ps(500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(matches!(parse_duration("25"), Err(UnitError::MissingUnit { .. })));
        assert_eq!(parse_duration("0.5ps"), Err(UnitError::NotWhole { smallest: "picosecond" }));
    }

    #[test]
    fn shares_in_percent_are_the_nearest_number() {
        assert_eq!(parse_share("7%"), Ok(0.07));
        assert_eq!(parse_share("0.07"), Ok(0.07));
        assert_eq!(parse_share("1e-6"), Ok(1e-6));
        assert_eq!(format_share(0.07), "7%");
        assert_eq!(format_share(1.0), "100%");
        assert_eq!(format_share(0.0), "0%");
    }

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        for text in [
            "",
            " ",
            ".",
            "_",
            "k",
            "-1",
            "1.",
            "1..2",
            "1_",
            "1.2.3k",
            "1x",
            "99999999999999999999999999999t",
            "99999999999999999999999999999999999999999999999",
            "1e999",
            "é",
            "1é",
            "nan",
            "inf",
            "-0",
            "1%%",
            "%",
        ] {
            assert!(parse_bytes(text).is_err() || text == "-0", "{text}");
            let _ = (parse_rate(text), parse_duration(text), parse_share(text));
        }
        assert!(parse_share("nan").is_err() && parse_share("inf").is_err() && parse_share("-0.1").is_err());
        let long = format!("0.{}1k", "0".repeat(500));
        assert_eq!(parse_bytes(&long), Err(UnitError::NotWhole { smallest: "byte" }));
    }

    #[test]
    fn what_is_written_reads_back_exactly() {
        let mut x = 1u64;
        for i in 0..20_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i | 1);
            let value = x >> (i % 64);
            assert_eq!(parse_bytes(&format_bytes(value)), Ok(value));
            assert_eq!(parse_rate(&format_rate(value)), Ok(value));
            assert_eq!(parse_duration(&format_duration(Duration::from_ps(value))), Ok(Duration::from_ps(value)));
            let share = f64::from_bits(value);
            if share.is_finite() && share >= 0.0 {
                assert_eq!(parse_share(&format_share(share)), Ok(share), "{share:e}");
            }
        }
        assert_eq!(format_duration(Duration::from_ns(1_500)), "1.5us");
        assert_eq!(format_rate(1_200_000_000), "1.2GB/s");
        assert_eq!(format_bytes(16 << 10), "16KiB");
        assert_eq!(format_bytes(1872), "1872B");
    }
}
