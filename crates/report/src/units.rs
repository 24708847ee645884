//! Numbers as people read them: three significant digits, a prefix, and the unit.

/// What a number measures: decides how it is written.
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

/// Three significant digits, without trailing zeros.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if !m.is_finite() || m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.09995 => 3,
        m if m >= 0.000_5 => 4,
        _ => return "0".to_owned(),
    };
    if !value.is_finite() {
        return "0".to_owned();
    }
    decimal(value, decimals)
}

/// `value` with at most `decimals` decimals, without trailing zeros.
pub(crate) fn decimal(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The first step whose numbers stay below its limit.
fn step(value: f64, steps: &[(f64, f64, &str)]) -> String {
    let magnitude = value.abs();
    let (_, divisor, unit) =
        steps.iter().find(|(limit, ..)| magnitude < *limit).or(steps.last()).expect("every table of steps has a last");
    let number = significant(value / divisor);
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// A time in microseconds: `85 ns`, `12.5 µs`, `3.2 ms`, `1.5 s`, `12 min`.
pub fn micros(value: f64) -> String {
    if value <= 0.0 {
        return "0 µs".to_owned();
    }
    step(
        value,
        &[
            (0.999_5, 1e-3, "ns"),
            (999.5, 1.0, "µs"),
            (999.5e3, 1e3, "ms"),
            (120e6, 1e6, "s"),
            (7200e6, 60e6, "min"),
            (172_800e6, 3600e6, "h"),
            (f64::INFINITY, 86_400e6, "d"),
        ],
    )
}

/// A time in seconds.
pub fn seconds(value: f64) -> String {
    if value <= 0.0 { "0 s".to_owned() } else { micros(value * 1e6) }
}

/// A count or rate: `950`, `12.5 k`, `3.2 M`.
pub fn count(value: f64) -> String {
    step(
        value,
        &[(999.5, 1.0, ""), (999.5e3, 1e3, "k"), (999.5e6, 1e6, "M"), (999.5e9, 1e9, "G"), (f64::INFINITY, 1e12, "T")],
    )
}

/// An exact count: `1,234,567`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many of a thing: `1 request`, `12.5 k requests`.
pub fn plural(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value as f64), if value == 1 { "" } else { "s" })
}

/// A share of a whole: 0.123 is `12.3 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let text = if value.abs() >= 99.0 && value.abs() < 100.0 { decimal(value, 3) } else { significant(value) };
    format!("{text} %")
}

/// A change: `+12.3 %`.
pub fn change(share: f64) -> String {
    let text = percent(share);
    if share > 0.0 && !text.starts_with("0 ") { format!("+{text}") } else { text.replace('-', "\u{2212}") }
}

/// A rate in MiB/s: `350 KiB/s`, `1.25 GiB/s`.
pub fn mib_per_second(value: f64) -> String {
    step(value, &[(0.999_5, 1.0 / 1024.0, "KiB/s"), (999.5, 1.0, "MiB/s"), (f64::INFINITY, 1024.0, "GiB/s")])
}

/// A size: `4 KiB`, `1.5 TiB`.
pub fn bytes(value: u64) -> String {
    const KIB: f64 = 1024.0;
    step(
        value as f64,
        &[
            (KIB, 1.0, "B"),
            (999.5 * KIB, KIB, "KiB"),
            (999.5 * KIB * KIB, KIB * KIB, "MiB"),
            (999.5 * KIB * KIB * KIB, KIB * KIB * KIB, "GiB"),
            (f64::INFINITY, KIB * KIB * KIB * KIB, "TiB"),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_the_unit_that_fits() {
        let all = [
            (micros(0.085), "85 ns"),
            (micros(12.5), "12.5 µs"),
            (micros(999.7), "1 ms"),
            (micros(3_210.0), "3.21 ms"),
            (micros(1.5e6), "1.5 s"),
            (micros(7.2e8), "12 min"),
            (seconds(0.0), "0 s"),
            (count(950.0), "950"),
            (count(12_540.0), "12.5 k"),
            (count(999_700.0), "1 M"),
            (grouped(0), "0"),
            (grouped(999), "999"),
            (grouped(1_234_567), "1,234,567"),
            (plural(1, "request"), "1 request"),
            (plural(2_000, "request"), "2 k requests"),
            (percent(0.123), "12.3 %"),
            (percent(0.9999), "99.99 %"),
            (percent(1.0), "100 %"),
            (change(0.5), "+50 %"),
            (change(-0.25), "\u{2212}25 %"),
            (change(0.0), "0 %"),
            (mib_per_second(1536.0), "1.5 GiB/s"),
            (mib_per_second(0.0), "0 KiB/s"),
            (bytes(4096), "4 KiB"),
            (bytes(0), "0 B"),
            (significant(1.004), "1"),
            (significant(f64::NAN), "0"),
            (significant(-0.0), "0"),
        ];
        for (got, want) in all {
            assert_eq!(got, want);
        }
    }
}
