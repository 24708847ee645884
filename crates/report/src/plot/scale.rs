//! Axes: where a value goes, and which values are named.

use crate::quantity::Quantity;
use std::borrow::Cow;
use tidewater_base::units::{decimal, grouped, significant};

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
    /// The values that are named, where they are not the round ones.
    named: Vec<(f64, String)>,
    pub(super) label: Cow<'static, str>,
}

/// Places that each get a name on the axis; more would run into each other.
const NAMED_MAX: usize = 16;

impl Axis {
    /// From the first of `ends` to the second, with ticks as far apart as the third says.
    fn new(scale: Scale, quantity: Quantity, label: impl Into<Cow<'static, str>>, ends: [f64; 3]) -> Axis {
        let [min, max, step] = ends;
        Axis { scale, quantity, min, max, step, named: Vec::new(), label: label.into() }
    }

    /// From 0 to `max`, exactly; for an axis of time.
    pub(crate) fn from_zero(quantity: Quantity, label: impl Into<Cow<'static, str>>, max: f64) -> Axis {
        let max = if max.is_finite() && max > 1e-12 { max.min(1e300) } else { 1.0 };
        let step = nice_step(max / unit_of(quantity, max).0, 12) * unit_of(quantity, max).0;
        Axis::new(Scale::Linear, quantity, label, [0.0, max, step])
    }

    /// From 0 to `max`, rounded up to the next tick.
    pub(crate) fn rounded(quantity: Quantity, label: impl Into<Cow<'static, str>>, max: f64) -> Axis {
        let mut axis = Axis::from_zero(quantity, label, max);
        axis.step = nice_step(axis.max / unit_of(quantity, axis.max).0, 5) * unit_of(quantity, axis.max).0;
        axis.max = (axis.max / axis.step - 1e-9).ceil() * axis.step;
        axis
    }

    /// Logarithmic, rounded outwards to 1, 2 or 5 times a power of ten, at least one decade long.
    pub(crate) fn log(quantity: Quantity, label: impl Into<Cow<'static, str>>, min: f64, max: f64) -> Axis {
        let positive = |value: f64| if value.is_finite() && value > 0.0 { value.clamp(1e-6, 1e15) } else { 1.0 };
        let max = positive(max);
        let min = positive(min).min(max);
        let (mut low, mut high) = (round_125(min, false), round_125(max, true));
        if high / low < 10.0 {
            let middle = (low * high).sqrt();
            (low, high) = (round_125(middle / 3.5, false), round_125(middle * 3.5, true));
        }
        Axis::new(Scale::Log, quantity, label, [low, high, 0.0])
    }

    /// Shares from 0 to the last that `samples` can tell from 1, by their distance from 1.
    pub(crate) fn nines(label: impl Into<Cow<'static, str>>, samples: u64) -> Axis {
        let max = (samples.max(1) as f64).log10().ceil().clamp(2.0, 6.0);
        Axis::new(Scale::Nines, Quantity::Share, label, [0.0, max, 1.0])
    }

    /// From `min` to `max`, both rounded outwards to ticks; for values whose distance matters and not their size.
    pub(crate) fn span(quantity: Quantity, label: impl Into<Cow<'static, str>>, min: f64, max: f64) -> Axis {
        let plain = |value: f64| if value.is_finite() { value.clamp(-1e15, 1e15) } else { 0.0 };
        let (min, max) = (plain(min).min(plain(max)), plain(max).max(plain(min)));
        let wide = (max - min).max(max.abs().max(min.abs()) * 1e-6).max(1e-9);
        let step = nice_step(wide, 5);
        let (low, high) = ((min / step + 1e-9).floor() * step, (max / step - 1e-9).ceil() * step);
        let high = if high > low { high } else { low + step };
        Axis::new(Scale::Linear, quantity, label, [low, high, step])
    }

    /// An axis on which measurements were made at `places`: with some room at both ends, and, if they are few, with
    /// each of them named. Places that are not positive have none on a logarithmic axis.
    pub(crate) fn places(label: impl Into<Cow<'static, str>>, places: &[f64], log: bool) -> Axis {
        let mut places: Vec<f64> =
            places.iter().copied().filter(|place| place.is_finite() && (!log || *place > 0.0)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let label = label.into();
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
            return Axis::rounded(Quantity::Ratio, label, 1.0);
        };
        let mut axis = if log {
            Axis::log(Quantity::Ratio, label, first, last)
        } else {
            Axis::span(Quantity::Ratio, label, first, last)
        };
        if places.len() > NAMED_MAX || first.abs().max(last.abs()) > 1e15 {
            return axis;
        }
        const ROOM: f64 = 0.06;
        if log {
            let beyond = if last > first { (last / first).powf(ROOM) } else { 2.0 };
            (axis.min, axis.max) = (first.clamp(1e-6, 1e15) / beyond, last.clamp(1e-6, 1e15) * beyond);
        } else {
            let beyond = if last > first { (last - first) * ROOM } else { first.abs().max(1.0) * 0.5 };
            (axis.min, axis.max) = (first - beyond, last + beyond);
        }
        axis.named = places.iter().map(|place| (*place, place_name(*place))).collect();
        axis
    }

    /// The same with a name for each place, which are in order.
    pub(crate) fn named_places(label: impl Into<Cow<'static, str>>, places: Vec<(f64, String)>, log: bool) -> Axis {
        let at: Vec<f64> = places.iter().map(|place| place.0).collect();
        let mut axis = Axis::places(label, &at, log);
        axis.named = places;
        axis
    }

    /// Places side by side, equally far apart: 0, 1, 2 and so on, each with a name.
    pub(crate) fn groups(label: impl Into<Cow<'static, str>>, names: Vec<String>) -> Axis {
        let ends = [-0.5, names.len().max(1) as f64 - 0.5, 1.0];
        let named = names.into_iter().enumerate().map(|(i, name)| (i as f64, name)).collect();
        Axis { named, ..Axis::new(Scale::Linear, Quantity::Ratio, label, ends) }
    }

    /// Whether equal distances are equal factors.
    pub(super) fn is_log(&self) -> bool {
        self.scale == Scale::Log
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
        if !self.named.is_empty() {
            return self.named.clone();
        }
        match self.scale {
            Scale::Linear => {
                let (unit, name) = unit_of(self.quantity, self.max);
                let decimals = (-(self.step / unit).log10().floor()).clamp(0.0, 9.0) as usize;
                let first = (self.min / self.step - 1e-9).ceil();
                (0..=((self.max / self.step + 1e-9).floor() - first).clamp(0.0, 100.0) as u32)
                    .map(|i| (first + f64::from(i)) * self.step)
                    .map(|value| {
                        let plain = self.quantity == Quantity::Count && decimals == 0 && value >= 1e3 && unit == 1.0;
                        let number =
                            if plain { grouped(value.round() as u64) } else { decimal(value / unit, decimals) };
                        (value, with_unit(&number, name))
                    })
                    .collect()
            }
            Scale::Log => {
                let decades = (self.max / self.min).log10();
                let first = self.min.log10().floor() as i32;
                let last = self.max.log10().ceil() as i32;
                let every = (decades / 7.0).ceil().max(1.0) as i32;
                let within = |value: &f64| *value >= self.min * 0.999 && *value <= self.max * 1.001;
                // Of decades that are too many to be named all, the greatest is.
                let top = (first..=last).rev().find(|exponent| within(&power_of_ten(*exponent))).unwrap_or(last);
                (first..=last)
                    .flat_map(|exponent| [1, 2, 5].map(|digit| (exponent, digit)))
                    .map(|(exponent, digit)| (exponent, digit, power_of_ten(exponent) * f64::from(digit)))
                    .filter(|(_, _, value)| within(value))
                    .map(|(exponent, digit, value)| {
                        let named = (digit == 1 && (top - exponent).rem_euclid(every) == 0) || decades < 2.0;
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

/// A place in words. Sizes that are powers of two are rarely remembered by their digits.
pub(crate) fn place_name(place: f64) -> String {
    const KI: f64 = 1024.0;
    if (KI..KI * KI).contains(&place) && place % KI == 0.0 {
        return format!("{} Ki", decimal(place / KI, 0));
    }
    if (KI * KI..KI * KI * KI).contains(&place) && place % (KI * KI) == 0.0 {
        return format!("{} Mi", decimal(place / KI / KI, 0));
    }
    significant(place)
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
            pick(&[(10_001.0, 1.0, ""), (2e6, 1e3, "k"), (2e9, 1e6, "M"), (2e12, 1e9, "G"), (f64::INFINITY, 1e12, "T")])
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
        assert_eq!(names(&Axis::rounded(Quantity::Count, "", 3_900.0)), ["0", "1,000", "2,000", "3,000", "4,000"]);
        assert_eq!(names(&Axis::rounded(Quantity::Share, "", 1.0)), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(
            names(&Axis::from_zero(Quantity::Seconds, "", 0.3)),
            ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms"]
        );
        assert_eq!(names(&Axis::log(Quantity::Micros, "", 30.0, 9_000.0)), ["100 µs", "1 ms", "10 ms"]);
        let nine_decades = names(&Axis::log(Quantity::Micros, "", 1.0, 1e9));
        assert_eq!(nine_decades.last().map(String::as_str), Some("16.7 min"), "{nine_decades:?}");
        assert!(nine_decades.len() < 7, "{nine_decades:?}");
        assert_eq!(names(&Axis::nines("", 5_000)), ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn places_are_named_where_they_are() {
        assert_eq!(names(&Axis::places("", &[8.0, 1.0, 2.0, 4.0, 2.0], true)), ["1", "2", "4", "8"]);
        assert_eq!(names(&Axis::places("", &[1024.0, 32768.0, 1e9], true)), ["1 Ki", "32 Ki", "1000000000"]);
        let percent = Axis::places("", &[30.0, 40.0, 50.0, 60.0], false);
        assert_eq!(names(&percent), ["30", "40", "50", "60"]);
        assert!(percent.place(30.0) > 0.0 && percent.place(60.0) < 1.0);
        let powers = Axis::places("", &[1.0, 2.0, 4.0], true);
        assert!((powers.place(2.0) - 0.5).abs() < 1e-9);
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(names(&Axis::places("", &many, false)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(names(&Axis::groups("", vec!["a".into(), "b".into()])), ["a", "b"]);
    }

    #[test]
    fn a_span_need_not_begin_at_zero() {
        assert_eq!(names(&Axis::span(Quantity::Ratio, "", 4.5, 7.3)), ["4", "5", "6", "7", "8"]);
        assert_eq!(names(&Axis::span(Quantity::Ratio, "", -3.0, 1.0)), ["-3", "-2", "-1", "0", "1"]);
        assert_eq!(names(&Axis::span(Quantity::Ratio, "", 5.0, 5.0)).len(), 2);
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
                    Axis::span(Quantity::Ratio, "", a, b),
                    Axis::places("", &[a, b], false),
                    Axis::places("", &[b, a, 3.0], true),
                    Axis::groups("", Vec::new()),
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
