//! Latencies in buckets: an octave of nanoseconds in eight equal parts, so that a quantile is within 7 %.

use tidewater_base::Duration;

/// Kinds of commands, as metrics name them.
pub const KINDS: [&str; 4] = ["read", "write", "flush", "other"];

/// Parts of an octave, as a power of two.
const PARTS_BITS: u32 = 3;
const PARTS: usize = 1 << PARTS_BITS;
/// The last octave begins at 2^36 ns, 69 s; what takes longer than 137 s counts as that.
const OCTAVES: usize = 37;
const BUCKETS: usize = (OCTAVES - PARTS_BITS as usize + 1) * PARTS;

/// How many commands of each kind took how long, and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: Box<[[u64; BUCKETS]; KINDS.len()]>,
    sums: [u128; KINDS.len()],
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: Box::new([[0; BUCKETS]; KINDS.len()]), sums: [0; KINDS.len()] }
    }
}

/// Quantiles, in seconds; none where no command of the kind ended.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Half took at most this.
    pub p50: f64,
    /// 99 % took at most this.
    pub p99: f64,
    /// 99.9 % took at most this.
    pub p999: f64,
}

#[inline]
fn bucket(ns: u64) -> usize {
    let shift = (63 - (ns | PARTS as u64).leading_zeros()) - PARTS_BITS;
    (((shift as usize) << PARTS_BITS) + (ns >> shift) as usize).min(BUCKETS - 1)
}

/// The nanoseconds that a bucket ends before.
fn end(bucket: usize) -> u64 {
    let shift = (bucket >> PARTS_BITS).saturating_sub(1) as u32;
    ((bucket + 1 - ((shift as usize) << PARTS_BITS)) as u64) << shift
}

impl Latencies {
    /// Counts a command; `kind` is its place in [`KINDS`].
    #[inline]
    pub fn record(&mut self, kind: usize, latency: Duration) {
        self.add(kind, latency, 1);
    }

    /// Counts so many commands that took as long.
    #[inline]
    pub fn add(&mut self, kind: usize, latency: Duration, count: u64) {
        let ns = latency.as_ns();
        self.counts[kind][bucket(ns)] += count;
        self.sums[kind] += u128::from(ns) * u128::from(count);
    }

    /// Counts all that another one has counted.
    pub fn merge(&mut self, other: &Latencies) {
        for kind in 0..KINDS.len() {
            self.counts[kind].iter_mut().zip(&other.counts[kind]).for_each(|(own, more)| *own += more);
            self.sums[kind] += other.sums[kind];
        }
    }

    /// Commands of a kind.
    pub fn count(&self, kind: usize) -> u64 {
        self.counts[kind].iter().sum()
    }

    /// Seconds that the commands of a kind took together.
    pub fn sum_s(&self, kind: usize) -> f64 {
        self.sums[kind] as f64 / 1e9
    }

    /// How many commands of a kind took at most so long: at bounds that are ends of buckets, each in seconds. They are
    /// 1 us and what is 1.5, 2, 3, 4, 6 times as long and so on, up to 103 s.
    pub fn cumulative(&self, kind: usize) -> Vec<(f64, u64)> {
        let counts = &self.counts[kind];
        let ends = (0..BUCKETS).filter(|&at| end(at).is_power_of_two() || (end(at) / 3).is_power_of_two());
        let bounds = ends.map(|at| (end(at), at)).filter(|&(ns, at)| ns >= 1024 && at + 1 < BUCKETS);
        bounds.map(|(ns, at)| (ns as f64 / 1e9, counts[..=at].iter().sum())).collect()
    }

    /// The quantiles of the commands of a kind that ended since `earlier`; `None`: there were none.
    pub fn since(&self, earlier: &Latencies, kind: usize) -> Option<Spread> {
        let counts: Vec<u64> =
            self.counts[kind].iter().zip(&earlier.counts[kind]).map(|(now, then)| now.saturating_sub(*then)).collect();
        let total: u64 = counts.iter().sum();
        let quantile = |share: f64| {
            let rank = ((total as f64 * share).ceil() as u64).max(1);
            let mut below = 0;
            let at = counts.iter().position(|count| {
                below += count;
                below >= rank
            });
            // The middle of the bucket.
            let at = at.unwrap_or(BUCKETS - 1);
            let begin = if at == 0 { 0 } else { end(at - 1) };
            (begin + end(at)) as f64 / 2e9
        };
        (total > 0).then(|| Spread { p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_their_values() {
        for at in 0..BUCKETS - 1 {
            let begin = if at == 0 { 0 } else { end(at - 1) };
            assert!(begin < end(at));
            assert_eq!((bucket(begin), bucket(end(at) - 1)), (at, at), "bucket {at}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_of_what_came_since() {
        let mut all = Latencies::default();
        all.record(0, Duration::from_ms(500));
        let earlier = all.clone();
        assert_eq!(all.since(&earlier, 0), None);
        (1..=1000).for_each(|us| all.record(0, Duration::from_us(us)));
        let spread = all.since(&earlier, 0).expect("there are 1,000 new latencies");
        for (found, is) in [(spread.p50, 500e-6), (spread.p99, 990e-6), (spread.p999, 999e-6)] {
            assert!((found / is - 1.0).abs() < 0.07, "{found} for {is}");
        }
        assert_eq!((all.count(0), all.count(1)), (1001, 0));
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!((twice.count(0), twice.since(&earlier, 0).map(|of| of.p50)), (2002, Some(spread.p50)));
        assert!((all.sum_s(0) - 1.0005).abs() < 1e-6);
    }

    #[test]
    fn bounds_grow_by_half_and_a_third_and_count_all_below() {
        let mut all = Latencies::default();
        for ns in [1, 1_100, 3_000, 10_000_000, 80_000_000_000] {
            all.record(1, Duration::from_ns(ns));
        }
        let bounds = all.cumulative(1);
        assert!(bounds.windows(2).all(|pair| (1.3..1.6).contains(&(pair[1].0 / pair[0].0)) && pair[0].1 <= pair[1].1));
        let below = |limit: f64| bounds.iter().rev().find(|(bound, _)| *bound <= limit).map(|(_, count)| *count);
        assert_eq!((below(1.1e-6), below(1.6e-6), below(0.1)), (Some(1), Some(2), Some(4)));
        assert!((1e-6..1.1e-6).contains(&bounds[0].0) && (100.0..105.0).contains(&bounds.last().unwrap().0));
    }
}
