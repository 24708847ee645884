//! Robust statistics: medians instead of means, permutations instead of assumed distributions.

use tidewater_base::Rng;

/// Permutations of a test: the least chance that it can tell is one in so many.
const PERMUTATIONS: u32 = 1_999;

/// The quantile `q` of `values` (0.5: the median), which must not be empty. Of an even number, the upper middle.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q.clamp(0.0, 1.0)).round() as usize]
}

/// The median of `values`, which must not be empty.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The chance that `lower` is as far below `upper` as it is if both came from one distribution: a permutation test of
/// the sum of ranks. 1/2000 is the least that it can tell. 1 when one of them is empty.
pub fn chance_of_below(lower: &[f64], upper: &[f64], rng: &mut Rng) -> f64 {
    if lower.is_empty() || upper.is_empty() {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> = lower.iter().map(|v| (*v, true)).chain(upper.iter().map(|v| (*v, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Equal values share the middle of their ranks.
    let mut ranks = vec![0.0; all.len()];
    let mut first = 0;
    while first < all.len() {
        let end = first + all[first..].iter().take_while(|one| one.0 == all[first].0).count();
        ranks[first..end].fill((first + end - 1) as f64 / 2.0);
        first = end;
    }
    let found: f64 = all.iter().zip(&ranks).filter(|(one, _)| one.1).map(|(_, rank)| rank).sum();
    let as_low = (0..PERMUTATIONS).filter(|_| {
        // A partial Fisher-Yates shuffle deals out the ranks of the first sample.
        let mut sum = 0.0;
        for i in 0..lower.len() {
            let j = i + rng.below((ranks.len() - i) as u64) as usize;
            ranks.swap(i, j);
            sum += ranks[i];
        }
        sum <= found
    });
    f64::from(as_low.count() as u32 + 1) / f64::from(PERMUTATIONS + 1)
}

/// A step in a series: the values before and from a place on lie on different levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The first place of the second level.
    pub at: usize,
    /// The median before it.
    pub before: f64,
    /// The median from it on.
    pub after: f64,
    /// The chance that values without any order fit two levels as well.
    pub chance: f64,
}

/// The best fit of two levels to `values`, by the sum of absolute deviations from the medians, which outliers hardly
/// move. Each level has at least `least` values. `None` for fewer than two such levels.
pub fn step(values: &[f64], least: usize, rng: &mut Rng) -> Option<Step> {
    let least = least.max(1);
    if values.len() < 2 * least {
        return None;
    }
    let (at, cost) = best_split(values, least);
    let mut shuffled = values.to_vec();
    let tries = 199;
    let as_good = (0..tries).filter(|_| {
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, rng.below(i as u64 + 1) as usize);
        }
        best_split(&shuffled, least).1 <= cost
    });
    let chance = f64::from(as_good.count() as u32 + 1) / f64::from(tries + 1);
    Some(Step { at, before: median(&values[..at]), after: median(&values[at..]), chance })
}

/// Where two levels fit best, and the sum of absolute deviations there.
fn best_split(values: &[f64], least: usize) -> (usize, f64) {
    let prefix = deviations(values.iter().copied());
    let mut suffix = deviations(values.iter().rev().copied());
    suffix.reverse();
    // `prefix[k]` is of the first k + 1 values, `suffix[k]` of all from k on.
    (least..=values.len() - least)
        .map(|at| (at, prefix[at - 1] + suffix[at]))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there is room for two levels")
}

/// For each prefix, the sum of absolute deviations from its median.
fn deviations(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::new();
    let mut sums = Vec::new();
    for value in values {
        let at = sorted.partition_point(|other| *other < value);
        sorted.insert(at, value);
        let middle = sorted[(sorted.len() - 1) / 2];
        sums.push(sorted.iter().map(|one| (one - middle).abs()).sum());
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[5.0]), 5.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 1.0), 5.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
    }

    #[test]
    fn samples_of_one_distribution_are_seldom_told_apart() {
        let mut rng = Rng::new(1, b"test");
        let mut draw = |shift: f64, n: usize| (0..n).map(|_| shift + rng.exponential(1.0)).collect::<Vec<_>>();
        let pairs: Vec<_> = (0..200).map(|_| (draw(0.0, 16), draw(0.0, 16))).collect();
        let far = (draw(0.0, 16), draw(3.0, 16));
        let mut rng = Rng::new(2, b"test");
        let false_ones = pairs.iter().filter(|(a, b)| chance_of_below(a, b, &mut rng) < 0.05).count();
        assert!((1..=22).contains(&false_ones), "{false_ones} of 200 at 5 %");
        assert!(chance_of_below(&far.0, &far.1, &mut rng) < 0.001);
        assert!(chance_of_below(&far.1, &far.0, &mut rng) > 0.9);
        assert_eq!(chance_of_below(&[], &[1.0], &mut rng), 1.0);
    }

    #[test]
    fn equal_samples_are_not_told_apart() {
        let mut rng = Rng::new(3, b"test");
        assert!(chance_of_below(&[1.0; 20], &[1.0; 20], &mut rng) > 0.9);
    }

    #[test]
    fn a_step_is_found_where_it_is_in_spite_of_outliers() {
        let mut rng = Rng::new(4, b"test");
        for at in [5, 20, 35] {
            let mut values: Vec<f64> =
                (0..40).map(|i| if i < at { 10.0 } else { 60.0 } + rng.exponential(2.0)).collect();
            values[3] = 900.0;
            values[38] = 1.0;
            let found = step(&values, 3, &mut rng).unwrap();
            assert_eq!(found.at, at, "{found:?}");
            assert!(found.chance < 0.01 && found.before < 20.0 && found.after > 55.0, "{found:?}");
        }
    }

    #[test]
    fn noise_has_no_step() {
        let mut rng = Rng::new(5, b"test");
        let significant = (0..40).filter(|_| {
            let values: Vec<f64> = (0..30).map(|_| rng.exponential(1.0)).collect();
            step(&values, 3, &mut rng).unwrap().chance < 0.02
        });
        assert!(significant.count() <= 4);
        assert_eq!(step(&[1.0, 2.0], 2, &mut Rng::new(1, b"")), None);
    }
}
