//! Numbers as people read them: three significant digits, a prefix, and the unit.

/// Foreign text for a terminal: each control character becomes U+FFFD. Some move its cursor, and a line feed could
/// begin a line that looks like one of ours.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Three significant digits, two of what is smaller than a tenth, without trailing zeros.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if !m.is_finite() || m < 1e-9 => return "0".to_owned(),
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.09995 => 3,
        m => (1.0 - m.log10().floor()) as usize,
    };
    decimal(value, decimals)
}

/// `value` with at most `decimals` decimals, without trailing zeros.
pub fn decimal(value: f64, decimals: usize) -> String {
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

/// How many of a thing, exactly: `1 request`, `12,540 requests`.
pub fn plural_exact(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(value), if value == 1 { "" } else { "s" })
}

/// A share of a whole: 0.123 is `12.3 %`. What is not all is never written as 100 %; less than 0.0005 % is nothing.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value.abs() < 0.000_5 {
        return "0 %".to_owned();
    }
    let beyond = (0..=6).find(|&decimals| value < 100.0 && decimal(value, decimals) != "100");
    match beyond {
        Some(decimals) if value >= 99.95 => format!("{} %", decimal(value, decimals)),
        _ => format!("{} %", significant(value)),
    }
}

/// One of the parts that make up a whole, all with as many decimals: `99.2 %` beside `0.8 %`. What is there is never 0.
pub fn part(share: f64) -> String {
    match share * 100.0 {
        value if value > 0.0 && value < 0.05 => "<0.1 %".to_owned(),
        value if (99.95..100.0).contains(&value) => ">99.9 %".to_owned(),
        value => format!("{} %", if value.is_finite() { decimal(value, 1) } else { "0".to_owned() }),
    }
}

/// Changes to more than so many times the value are written as a factor: `×40` reads better than `+3908 %`.
const FACTOR_FROM: f64 = 10.0;
/// A factor beyond this tells of a first value that was almost nothing.
const FACTOR_MAX: f64 = 9_999.5;

/// A change by a share: `+12.3 %`, `−25 %`, `×40`; a dash where what it is a share of was almost nothing.
pub fn change(share: f64) -> String {
    let factor = 1.0 + share;
    if factor > FACTOR_MAX {
        return "–".to_owned();
    }
    if factor >= FACTOR_FROM {
        return format!("×{}", significant(factor));
    }
    // Twice as much is no whole: `+100 %` stands for `+99.998 %`. Of what is nearly gone, something is left.
    let text = if share > 0.99 { format!("{} %", significant(share * 100.0)) } else { percent(share) };
    if share > 0.0 && !text.starts_with("0 ") { format!("+{text}") } else { text.replace('-', "\u{2212}") }
}

/// A value of a setting as people read it: `16 MiB` for `16MiB`, `3 µs` for `3us`. Settings are also taken so.
pub fn setting(value: &str) -> String {
    let one = |value: &str| {
        let unit_at = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
        let (number, unit) = value.split_at(unit_at);
        let known =
            ["B", "KiB", "MiB", "GiB", "TiB", "ps", "ns", "us", "ms", "s", "%", "B/s", "kB/s", "KB/s", "MB/s", "GB/s"];
        if number.is_empty() || !known.contains(&unit) {
            return value.to_owned();
        }
        format!("{number} {}", if unit == "us" { "µs" } else { unit })
    };
    // A rate has a slash, too.
    let parts: Vec<&str> = value.split('/').collect();
    if parts.iter().all(|part| part.starts_with(|c: char| c.is_ascii_digit())) {
        return parts.into_iter().map(one).collect::<Vec<_>>().join("/");
    }
    one(value)
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
            (plural_exact(1, "request"), "1 request"),
            (plural_exact(12_540, "request"), "12,540 requests"),
            (count(10.0 / 25_200.0), "0.0004"),
            (count(0.0239), "0.024"),
            (significant(0.123_4), "0.123"),
            (setting("16MiB"), "16 MiB"),
            (setting("400us/600us"), "400 µs/600 µs"),
            (setting("1.2GB/s"), "1.2 GB/s"),
            (setting("0.5%"), "0.5 %"),
            (setting("lru"), "lru"),
            (setting("0.07"), "0.07"),
            (percent(0.123), "12.3 %"),
            (percent(0.9999), "99.99 %"),
            (percent(0.99227), "99.2 %"),
            (percent(0.999_999), "99.9999 %"),
            (percent(1.0), "100 %"),
            (percent(1.2), "120 %"),
            (percent(1.3e-11), "0 %"),
            (percent(1.3e-5), "0.0013 %"),
            (part(0.99227), "99.2 %"),
            (part(0.00773), "0.8 %"),
            (part(0.0), "0 %"),
            (part(0.000_1), "<0.1 %"),
            (part(0.999_9), ">99.9 %"),
            (part(1.0), "100 %"),
            (part(f64::NAN), "0 %"),
            (change(0.5), "+50 %"),
            (change(8.9), "+890 %"),
            (change(0.999_98), "+100 %"),
            (change(1.000_02), "+100 %"),
            (change(39.08), "×40.1"),
            (change(115_400.61), "–"),
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
