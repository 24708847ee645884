//! Numbers as fio reads them.

use tidewater_base::Duration;
use tidewater_base::units::number_and_unit;

use super::spec::Amount;

/// Bytes: a number with an optional `k`, `m`, `g`, `t` or `p`, powers of 1024, as fio has them by default; a `b` or
/// `ib` may follow.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let expected = || format!("\"{text}\" is not a size such as 4096, 4k or 16g");
    let lower = text.to_ascii_lowercase();
    let (digits, suffix) = number_and_unit(&lower);
    if digits == "0" && suffix.starts_with('x') {
        return u64::from_str_radix(&suffix[1..], 16).map_err(|_| expected());
    }
    let power = match suffix {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return Err(expected()),
    };
    let unit = 1u64 << (10 * power);
    let value = if digits.contains('.') {
        let value: f64 = digits.parse().map_err(|_| expected())?;
        let scaled = value * unit as f64;
        if scaled >= 9e18 { None } else { Some(scaled as u64) }
    } else {
        digits.parse::<u64>().map_err(|_| expected())?.checked_mul(unit)
    };
    value.filter(|&bytes| bytes <= 1 << 62).ok_or_else(|| format!("\"{text}\" passes 4 EiB"))
}

/// Bytes, or a percentage.
pub(super) fn amount(text: &str) -> Result<Amount, String> {
    match text.strip_suffix('%') {
        None => bytes(text).map(Amount::Bytes),
        Some(number) => match number.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Amount::Percent(percent)),
            _ => Err(format!("\"{text}\" is not a percentage of 0 to 100")),
        },
    }
}

/// A plain number, or one with a size suffix (`number_ios=10m` is 10 Mi in fio, too), within `low..=high`.
pub(super) fn number(text: &str, low: u64, high: u64) -> Result<u64, String> {
    match bytes(text) {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("\"{text}\" is not a number of {low} to {high}")),
    }
}

/// A switch: nothing, 1, true, yes or 0, false, no.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "" | "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(format!("\"{text}\" is not 0 or 1")),
    }
}

/// A time: seconds, or with `us`, `ms`, `s`, `m`, `h` or `d`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, suffix) = number_and_unit(&lower);
    let unit = match suffix {
        "us" | "usec" => 1e-6,
        "ms" | "msec" => 1e-3,
        "" | "s" | "sec" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(format!("\"{text}\" is not a time such as 30, 500ms or 2m")),
    };
    match digits.parse::<f64>() {
        // 64 bits of picoseconds last 213 days.
        Ok(value) if value * unit <= 200.0 * 86_400.0 => Ok(Duration::from_secs_f64(value * unit)),
        Ok(_) => Err(format!("\"{text}\" passes 200 days")),
        Err(_) => Err(format!("\"{text}\" is not a time such as 30, 500ms or 2m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("1.5M"), Ok(1_572_864));
        assert_eq!(bytes("16GiB"), Ok(16 << 30));
        assert_eq!(bytes("0x1000"), Ok(4096));
        for bad in ["", "k", "4x", "-1", "99999999999p", "1..5", "4 k", "nan", "0xg"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(amount("25%"), Ok(Amount::Percent(25.0)));
        assert!(amount("125%").is_err() && amount("%").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("30"), Ok(Duration::from_ms(30_000)));
        assert_eq!(time("250us"), Ok(Duration::from_us(250)));
        assert_eq!(time("2m"), Ok(Duration::from_ms(120_000)));
        assert!(time("300d").is_err() && time("x").is_err() && time("").is_err());
    }
}
