//! The one source of random numbers: seeded, the same on every machine and at every optimization level.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A seeded generator (xoshiro256++). Two generators with one seed and one stream give one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// A generator for `seed`, kept apart from the other users of the same seed by `stream` (any constant, by custom a
    /// byte string that names the user).
    pub fn new(seed: u64, stream: &[u8]) -> Rng {
        // FNV-1a: enough to tell streams apart; SplitMix inside seed_from_u64 does the mixing.
        let hash =
            stream.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed ^ hash))
    }

    /// 64 uniform random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in `0..bound`. Asserts that `bound` is not zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below zero was asked for");
        // Lemire's multiply-shift; its bias is below bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A uniform number in `0.0..1.0` with 53 random bits.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// An exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit_f64()).ln()
    }

    /// True with the probability that [`probability_threshold`] made `threshold` from. Draws nothing when it is zero.
    #[inline]
    pub fn chance(&mut self, threshold: u64) -> bool {
        threshold != 0 && self.next_u64() <= threshold
    }
}

/// The threshold for [`Rng::chance`]: `probability` of `2^64`, clamped to `0.0..=1.0`; zero means never.
pub fn probability_threshold(probability: f64) -> u64 {
    (probability.clamp(0.0, 1.0) * u64::MAX as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |stream: &[u8]| Rng::new(7, stream).next_u64();
        assert_eq!(draw(b"a"), draw(b"a"));
        assert_ne!(draw(b"a"), draw(b"b"));
    }

    #[test]
    fn chance_meets_its_probability() {
        let mut rng = Rng::new(1, b"chance");
        let threshold = probability_threshold(0.25);
        let hits = (0..100_000).filter(|_| rng.chance(threshold)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!(!rng.chance(0));
        assert!(rng.chance(probability_threshold(1.0)));
    }
}
