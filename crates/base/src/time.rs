//! Time in whole picoseconds: a byte at 2 GB/s takes half a nanosecond, and sums of such costs must stay exact.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in time, in picoseconds since the device was first powered on. 64 bits last 213 days; arithmetic that
/// would pass the end asserts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The first instant.
    pub const ZERO: Instant = Instant(0);
    /// Later than every instant that a run can reach; used as "never".
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `ps` picoseconds after the first.
    pub const fn from_ps(ps: u64) -> Instant {
        Instant(ps)
    }

    /// The instant `ns` nanoseconds after the first. Asserts that it fits.
    pub const fn from_ns(ns: u64) -> Instant {
        Instant(Duration::from_ns(ns).0)
    }

    /// Picoseconds since the first instant.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Seconds since the first instant.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The time from `earlier` to `self`, or zero when `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);

    /// A duration of `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Duration {
        Duration(ps)
    }

    /// A duration of `ns` nanoseconds. Asserts that it fits.
    pub const fn from_ns(ns: u64) -> Duration {
        Duration(ns.checked_mul(1_000).expect("time passes the 213 days that 64 bits of picoseconds hold"))
    }

    /// A duration of `us` microseconds. Asserts that it fits.
    pub const fn from_us(us: u64) -> Duration {
        Duration(us.checked_mul(1_000_000).expect("time passes the 213 days that 64 bits of picoseconds hold"))
    }

    /// A duration of `ms` milliseconds. Asserts that it fits.
    pub const fn from_ms(ms: u64) -> Duration {
        Duration(ms.checked_mul(1_000_000_000).expect("time passes the 213 days that 64 bits of picoseconds hold"))
    }

    /// A duration of `secs` seconds, rounded to picoseconds; negative and not-a-number become zero.
    pub fn from_secs_f64(secs: f64) -> Duration {
        Duration((secs * 1e12).round() as u64)
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }

    /// Microseconds.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, or zero when `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.checked_add(rhs.0).expect("time passes the 213 days that 64 bits of picoseconds hold"))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    /// Asserts that `rhs` is not later than `self`.
    fn sub(self, rhs: Instant) -> Duration {
        Duration(self.0.checked_sub(rhs.0).expect("an instant was subtracted from an earlier one"))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, rhs: Duration) -> Duration {
        Duration(self.0.checked_add(rhs.0).expect("a duration passes 213 days"))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub for Duration {
    type Output = Duration;
    /// Asserts that `rhs` is not longer than `self`.
    fn sub(self, rhs: Duration) -> Duration {
        Duration(self.0.checked_sub(rhs.0).expect("a duration was made negative"))
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, rhs: u64) -> Duration {
        Duration(self.0.checked_mul(rhs).expect("a duration passes 213 days"))
    }
}

impl Duration {
    /// The largest unit that is not above it, in picoseconds, and its name; of no time, seconds.
    pub(crate) fn unit(self) -> (u64, &'static str) {
        match self.0 {
            1..1_000 => (1, "ps"),
            1_000..1_000_000 => (1_000, "ns"),
            1_000_000..1_000_000_000 => (1_000_000, "us"),
            1_000_000_000..1_000_000_000_000 => (1_000_000_000, "ms"),
            _ => (1_000_000_000_000, "s"),
        }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ps, (unit, name)) = (self.0, self.unit());
        if ps.is_multiple_of(unit) {
            write!(f, "{}{name}", ps / unit)
        } else {
            write!(f, "{:.3}{name}", ps as f64 / unit as f64)
        }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{}", Duration(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_exact_in_picoseconds() {
        let t = Instant::ZERO + Duration::from_ps(500) * 3;
        assert_eq!(t.as_ps(), 1_500);
        assert_eq!(t - Instant::from_ns(1), Duration::from_ps(500));
        assert_eq!(Instant::ZERO.since(t), Duration::ZERO);
    }

    #[test]
    #[should_panic(expected = "213 days")]
    fn the_end_of_time_asserts() {
        let _ = Instant::NEVER + Duration::from_ps(1);
    }

    #[test]
    fn durations_print_in_the_largest_whole_unit() {
        assert_eq!(Duration::from_us(25).to_string(), "25us");
        assert_eq!(Duration::from_ns(1_500).to_string(), "1.500us");
    }
}
