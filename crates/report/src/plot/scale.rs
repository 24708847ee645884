//! Axes: where a value goes, and which values are named.

use crate::units::{Quantity, decimal};

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
    /// Shares by their distance from 1: 90 %, 99 %, 99.9 % are equally far apart.
    Nines,
}

/// One axis of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    scale: Scale,
    pub(super) quantity: Quantity,
    min: f64,
    max: f64,
    /// Distance of ticks on a linear axis.
    step: f64,
    pub(super) label: &'static str,
}

impl Axis {
    /// From 0 to `max`, exactly; for an axis of time.
    pub(crate) fn from_zero(quantity: Quantity, label: &'static str, max: f64) -> Axis {
        let max = if max.is_finite() && max > 1e-12 { max.min(1e300) } else { 1.0 };
        let step = nice_step(max / unit_of(quantity, max).0, 12) * unit_of(quantity, max).0;
        Axis { scale: Scale::Linear, quantity, min: 0.0, max, step, label }
    }

    /// From 0 to `max`, rounded up to the next tick.
    pub(crate) fn rounded(quantity: Quantity, label: &'static str, max: f64) -> Axis {
        let mut axis = Axis::from_zero(quantity, label, max);
        axis.step = nice_step(axis.max / unit_of(quantity, axis.max).0, 5) * unit_of(quantity, axis.max).0;
        axis.max = (axis.max / axis.step - 1e-9).ceil() * axis.step;
        axis
    }

    /// Logarithmic, rounded outwards to 1, 2 or 5 times a power of ten, at least one decade long.
    pub(crate) fn log(quantity: Quantity, label: &'static str, min: f64, max: f64) -> Axis {
        let positive = |value: f64| if value.is_finite() && value > 0.0 { value.clamp(1e-6, 1e15) } else { 1.0 };
        let max = positive(max);
        let min = positive(min).min(max);
        let (mut low, mut high) = (round_125(min, false), round_125(max, true));
        if high / low < 10.0 {
            let middle = (low * high).sqrt();
            (low, high) = (round_125(middle / 3.5, false), round_125(middle * 3.5, true));
        }
        Axis { scale: Scale::Log, quantity, min: low, max: high, step: 0.0, label }
    }

    /// Shares from 0 to the last that `samples` can tell from 1, by their distance from 1.
    pub(crate) fn nines(label: &'static str, samples: u64) -> Axis {
        let max = (samples.max(1) as f64).log10().ceil().clamp(2.0, 6.0);
        Axis { scale: Scale::Nines, quantity: Quantity::Share, min: 0.0, max, step: 1.0, label }
    }

    /// Where `value` goes: 0 at the start of the axis, 1 at its end, never outside.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => (value.max(self.min) / self.min).ln() / (self.max / self.min).ln(),
            Scale::Nines => -(1.0 - value).max(1e-9).log10() / self.max,
        };
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// The values that are named, with their names; an empty name is a mark without one.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let (unit, name) = unit_of(self.quantity, self.max);
                let decimals = (-(self.step / unit).log10().floor()).clamp(0.0, 9.0) as usize;
                (0..=(self.max / self.step + 1e-9) as u32)
                    .map(|i| f64::from(i) * self.step)
                    .map(|value| (value, with_unit(&decimal(value / unit, decimals), name)))
                    .collect()
            }
            Scale::Log => {
                let decades = (self.max / self.min).log10();
                let first = self.min.log10().floor() as i32;
                let last = self.max.log10().ceil() as i32;
                let every = (decades / 7.0).ceil().max(1.0) as i32;
                let within = |value: &f64| *value >= self.min * 0.999 && *value <= self.max * 1.001;
                (first..=last)
                    .flat_map(|exponent| [1, 2, 5].map(|digit| (exponent, digit)))
                    .map(|(exponent, digit)| (exponent, digit, power_of_ten(exponent) * f64::from(digit)))
                    .filter(|(_, _, value)| within(value))
                    .map(|(exponent, digit, value)| {
                        let named = (digit == 1 && exponent.rem_euclid(every) == 0) || decades < 2.0;
                        (value, if named { self.quantity.format(value) } else { String::new() })
                    })
                    .filter(|(_, name)| !name.is_empty() || decades < 5.0)
                    .collect()
            }
            Scale::Nines => (0..=self.max as i32)
                .map(|nines| 1.0 - power_of_ten(-nines))
                .enumerate()
                .map(|(nines, share)| (share, format!("{} %", decimal(share * 100.0, nines.saturating_sub(2)))))
                .collect(),
        }
    }

    /// The axis in words for the page's script: scale, least, greatest, quantity.
    pub(super) fn data(&self) -> String {
        let scale = match self.scale {
            Scale::Linear => "linear",
            Scale::Log => "log",
            Scale::Nines => "nines",
        };
        format!("{scale} {:e} {:e} {}", self.min, self.max, self.quantity.word())
    }
}

fn with_unit(number: &str, unit: &str) -> String {
    if unit.is_empty() || number == "0" && unit.len() == 1 && unit != "s" {
        number.to_owned()
    } else {
        format!("{number} {unit}")
    }
}

fn power_of_ten(exponent: i32) -> f64 {
    10f64.powi(exponent)
}

/// The unit in which an axis up to `max` is written.
fn unit_of(quantity: Quantity, max: f64) -> (f64, &'static str) {
    let pick = |steps: &[(f64, f64, &'static str)]| {
        let (_, unit, name) =
            steps.iter().find(|(limit, ..)| max < *limit).or(steps.last()).copied().expect("not empty");
        (unit, name)
    };
    match quantity {
        Quantity::Micros => pick(&[(1.0, 1e-3, "ns"), (1e3, 1.0, "µs"), (1e6, 1e3, "ms"), (f64::INFINITY, 1e6, "s")]),
        Quantity::Seconds => pick(&[
            (1e-3, 1e-6, "µs"),
            (1.0, 1e-3, "ms"),
            (180.0, 1.0, "s"),
            (10_800.0, 60.0, "min"),
            (259_200.0, 3600.0, "h"),
            (f64::INFINITY, 86_400.0, "d"),
        ]),
        Quantity::Count => {
            pick(&[(2e3, 1.0, ""), (2e6, 1e3, "k"), (2e9, 1e6, "M"), (2e12, 1e9, "G"), (f64::INFINITY, 1e12, "T")])
        }
        Quantity::Share => (0.01, "%"),
        Quantity::MibPerSecond | Quantity::Ratio => (1.0, ""),
    }
}

/// The smallest of 1, 2 or 5 times a power of ten that divides `max` into at most `parts` parts.
fn nice_step(max: f64, parts: u32) -> f64 {
    round_125(max / f64::from(parts), true)
}

/// `value` rounded to 1, 2 or 5 times a power of ten.
fn round_125(value: f64, up: bool) -> f64 {
    let power = power_of_ten(value.log10().floor() as i32);
    let digit = value / power;
    let rounded = if up {
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| *step >= digit - 1e-9)
    } else {
        [5.0, 2.0, 1.0].into_iter().find(|step| *step <= digit + 1e-9)
    };
    rounded.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, name)| name).filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn ticks_are_round_numbers_with_units() {
        assert_eq!(names(&Axis::rounded(Quantity::Count, "", 77_000.0)), ["0", "20 k", "40 k", "60 k", "80 k"]);
        assert_eq!(names(&Axis::rounded(Quantity::Share, "", 1.0)), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(
            names(&Axis::from_zero(Quantity::Seconds, "", 0.3)),
            ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms"]
        );
        assert_eq!(names(&Axis::log(Quantity::Micros, "", 30.0, 9_000.0)), ["100 µs", "1 ms", "10 ms"]);
        assert_eq!(names(&Axis::nines("", 5_000)), ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn no_value_leaves_the_plot() {
        let strange = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e308, 1e-308];
        for &a in &strange {
            for &b in &strange {
                for axis in [
                    Axis::log(Quantity::Micros, "", a, b),
                    Axis::rounded(Quantity::Count, "", b),
                    Axis::from_zero(Quantity::Seconds, "", b),
                    Axis::nines("", 0),
                ] {
                    assert!(axis.ticks().len() < 60, "{axis:?}");
                    for &value in &strange {
                        let place = axis.place(value);
                        assert!((0.0..=1.0).contains(&place), "{axis:?} {value}");
                    }
                }
            }
        }
    }
}
