//! Latencies in log-linear buckets.
//!
//! A value's octave is split into 512 buckets of one width, so a bucket is at most 1/512 of its values wide: quantiles,
//! which are given as the middle of their bucket, are within 0.1 %. Count, mean, least and greatest are exact. Values
//! are picoseconds, so that recording needs no division: a subtraction, two shifts and an increment.

use tidewater_base::Duration;

/// Buckets in an octave, as a power of two.
const SUB_BITS: u32 = 9;
const SUB: usize = 1 << SUB_BITS;
/// Octaves above the first two, which hold the values below 2 * SUB exactly.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// A distribution of latencies.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Counts by bucket; empty until the first value.
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// The bucket of a value.
#[inline]
fn bucket(value: u64) -> usize {
    let shift = (63 - (value | SUB as u64).leading_zeros()) - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// The least and the greatest value of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    let shift = (bucket >> SUB_BITS).saturating_sub(1) as u32;
    let least = ((bucket - ((shift as usize) << SUB_BITS)) as u64) << shift;
    (least, least + ((1u64 << shift) - 1))
}

impl Histogram {
    /// Counts one value.
    #[inline(always)]
    pub fn record(&mut self, latency: Duration) {
        let value = latency.as_ps();
        if self.count == 0 {
            self.first(value);
        }
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    #[cold]
    fn first(&mut self, value: u64) {
        self.counts = vec![0; BUCKETS];
        (self.min, self.max) = (value, value);
    }

    /// Adds the values of another.
    pub fn add(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 * 1e-12
    }

    /// Mean; zero without values.
    pub fn mean(&self) -> Duration {
        Duration::from_ps(self.sum.checked_div(u128::from(self.count)).unwrap_or(0) as u64)
    }

    /// The least value; zero without values.
    pub fn min(&self) -> Duration {
        Duration::from_ps(self.min)
    }

    /// The greatest value; zero without values.
    pub fn max(&self) -> Duration {
        Duration::from_ps(self.max)
    }

    /// The value that a share `q` (0 to 1) of all values does not pass, within 0.1 %; zero without values.
    pub fn quantile(&self, q: f64) -> Duration {
        let wanted = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        for (i, &count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted {
                return Duration::from_ps(self.middle(i));
            }
        }
        self.max()
    }

    /// The middle of a bucket, never outside of what was counted.
    fn middle(&self, bucket: usize) -> u64 {
        let (least, greatest) = bounds(bucket);
        (least + (greatest - least) / 2).clamp(self.min, self.max)
    }

    /// Values that were counted, each as the middle of its bucket, and how often.
    pub fn counted(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, &count)| (Duration::from_ps(self.middle(bucket)), count))
    }

    /// `(value, share of values that are not greater)`, rising, at most about `points` and the ends of the tail: a
    /// point wherever the share has grown by `1 / points`, and in the last hundredth wherever what is left has shrunk
    /// by a tenth.
    pub fn cdf(&self, points: u32) -> Vec<(Duration, f64)> {
        let mut cdf = Vec::new();
        let (mut below, mut at) = (0, 0.0);
        for (i, &count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            below += count;
            let share = below as f64 / self.count as f64;
            let tail = share > 0.99 && 1.0 - share < 0.9 * (1.0 - at);
            if cdf.is_empty() || share - at >= 1.0 / f64::from(points) || tail || below == self.count {
                cdf.push((Duration::from_ps(self.middle(i)), share));
                at = share;
            }
        }
        if let Some(last) = cdf.last_mut() {
            last.0 = self.max();
        }
        cdf
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Rng;

    #[test]
    fn buckets_cover_all_values_without_gaps() {
        let mut next = 0u64;
        for i in 0..BUCKETS {
            let (least, greatest) = bounds(i);
            assert_eq!(least, next, "bucket {i}");
            assert_eq!((bucket(least), bucket(greatest)), (i, i));
            assert!((greatest - least) as f64 <= least as f64 / SUB as f64, "bucket {i} is {least} to {greatest}");
            next = greatest.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends where 64 bits do");
    }

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut rng = Rng::new(3, b"histogram");
        let mut histogram = Histogram::default();
        let mut values: Vec<u64> = (0..20_000).map(|_| 1 << (20 + rng.below(20)) | rng.below(1 << 20)).collect();
        values.iter().for_each(|&v| histogram.record(Duration::from_ps(v)));
        values.sort_unstable();
        for q in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = values[((q * 20_000.0_f64).ceil() as usize).clamp(1, 20_000) - 1] as f64;
            let got = histogram.quantile(q).as_ps() as f64;
            assert!((got / exact - 1.0).abs() < 0.001, "{q}: {got} for {exact}");
        }
        let mean = values.iter().map(|&v| u128::from(v)).sum::<u128>() / 20_000;
        assert_eq!(u128::from(histogram.mean().as_ps()), mean);
        assert_eq!((histogram.min().as_ps(), histogram.max().as_ps()), (values[0], values[19_999]));
    }

    #[test]
    fn a_cdf_rises_from_the_least_to_the_greatest() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|v| histogram.record(Duration::from_ns(v)));
        let cdf = histogram.cdf(200);
        assert!(cdf.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
        assert_eq!(*cdf.last().unwrap(), (Duration::from_ns(100_000), 1.0));
        assert!((150..400).contains(&cdf.len()), "{}", cdf.len());
        assert!(Histogram::default().cdf(200).is_empty());
    }

    #[test]
    fn nothing_is_zero_and_adding_is_recording() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        assert_eq!((a.quantile(0.5), a.mean(), a.max()), (Duration::ZERO, Duration::ZERO, Duration::ZERO));
        for v in [7, 1_000, 123_456_789] {
            a.record(Duration::from_ps(v));
            b.record(Duration::from_ps(3 * v));
            both.record(Duration::from_ps(v));
            both.record(Duration::from_ps(3 * v));
        }
        a.add(&b);
        a.add(&Histogram::default());
        assert_eq!(format!("{a:?}"), format!("{both:?}"));
    }
}
