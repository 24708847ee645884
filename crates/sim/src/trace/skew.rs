//! How unevenly requests fall on the places that they touch.

use std::collections::HashMap;

/// Bytes of a place: 64 KiB, as in [`crate::workload::Synth`].
const GRANULE_BYTES: u64 = 65_536;
/// The largest exponent that is looked for, which is the largest that the generator takes.
const SKEW_MAX: f64 = 3.0;
/// Ranks that are taken one by one; behind them, ranks within 1/64 of each other are taken together, which no digit
/// that is shown tells from taking each.
const RANKS_ALONE: usize = 1024;

/// How often requests begin in each place.
#[derive(Default)]
pub(super) struct Places {
    counts: HashMap<(u32, u64), u32>,
}

impl Places {
    /// A request begins at `offset` of address space `space`.
    pub fn add(&mut self, space: u32, offset: u64) {
        let count = self.counts.entry((space, offset / GRANULE_BYTES)).or_default();
        *count = count.saturating_add(1);
    }

    /// The exponent of the Zipf distribution over the places that were touched under which these counts are most likely
    /// (maximum likelihood, the places ranked by their counts), 0 to 3. Few requests for each place look unequal by
    /// chance alone: evenly spread ones then have more than 0.
    pub fn skew(&self) -> f64 {
        let mut counts: Vec<u32> = self.counts.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all: f64 = counts.iter().map(|&count| f64::from(count)).sum();
        if counts.len() < 2 {
            return 0.0;
        }
        let logs: f64 = counts.iter().zip(1u64..).map(|(&count, rank)| f64::from(count) * (rank as f64).ln()).sum();
        exponent(&ranks(counts.len()), logs / all)
    }
}

/// Logarithms of ranks 1 to `n`, each with the number of ranks that it stands for.
fn ranks(n: usize) -> Vec<(f64, f64)> {
    let mut ranks = Vec::new();
    let mut first = 1;
    while first <= n {
        let width = if first <= RANKS_ALONE { 1 } else { first / 64 }.min(n - first + 1);
        ranks.push(((first as f64 + (width - 1) as f64 / 2.0).ln(), width as f64));
        first += width;
    }
    ranks
}

/// The exponent under which the mean logarithm of a rank is `wanted`: the condition of maximum likelihood.
fn exponent(ranks: &[(f64, f64)], wanted: f64) -> f64 {
    let mean_log = |theta: f64| {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (log, width) in ranks {
            let weight = width * (-theta * log).exp();
            sum += weight * log;
            weights += weight;
        }
        sum / weights
    };
    let (mut low, mut high) = (0.0, SKEW_MAX);
    if mean_log(low) <= wanted {
        return low;
    }
    if mean_log(high) >= wanted {
        return high;
    }
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if mean_log(middle) > wanted { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::zipf::Zipf;
    use tidewater_base::Rng;

    fn measured(theta: f64, places: u64, requests: u64) -> f64 {
        let (zipf, mut rng, mut counts) = (Zipf::new(places, theta), Rng::new(1, b"skew"), Places::default());
        (0..requests).for_each(|_| counts.add(0, zipf.draw(&mut rng) * GRANULE_BYTES + 4096));
        counts.skew()
    }

    #[test]
    fn the_exponent_that_was_drawn_from_is_found() {
        for theta in [0.5, 0.9, 1.3, 2.0] {
            let got = measured(theta, 1_000, 1_000_000);
            assert!((got - theta).abs() < 0.03, "{theta}: {got}");
        }
        // Ranks are taken together behind the first thousand.
        let got = measured(0.9, 50_000, 5_000_000);
        assert!((got - 0.9).abs() < 0.03, "{got}");
    }

    #[test]
    fn even_counts_have_none_and_one_place_tells_nothing() {
        let mut places = Places::default();
        assert_eq!(places.skew(), 0.0);
        (0..10).for_each(|_| places.add(0, 0));
        assert_eq!(places.skew(), 0.0);
        for place in 0..100 {
            (0..7).for_each(|_| places.add(1, place * GRANULE_BYTES));
        }
        assert!(places.skew() < 0.05, "{}", places.skew());
    }
}
