//! How many dirty pages make a block one for the block region.

/// The threshold of migration: fixed, or found by trying.
#[derive(Clone, Debug)]
pub(super) enum Threshold {
    /// As many pages as the profile says.
    Fixed(u32),
    /// Adapts to the workload.
    Dynamic(Search),
}

impl Threshold {
    /// `fixed`: pages, 0 for a dynamic threshold.
    pub fn new(fixed: u32, block: u32, capacity: usize) -> Threshold {
        match fixed {
            0 => Threshold::Dynamic(Search::new(block, capacity)),
            pages => Threshold::Fixed(pages.min(block)),
        }
    }

    /// The threshold, in pages.
    #[inline]
    pub fn now(&self) -> u32 {
        match self {
            Threshold::Fixed(pages) => *pages,
            Threshold::Dynamic(search) => search.threshold,
        }
    }

    /// A page was written.
    #[inline]
    pub fn count_write(&mut self) {
        if let Threshold::Dynamic(search) = self {
            search.written += 1;
            if search.written >= search.period && search.victims >= VICTIMS_MIN {
                search.end_period();
            }
        }
    }

    /// A victim was chosen, of so many dirty pages.
    #[inline]
    pub fn count_victim(&mut self, pages: u32) {
        if let Threshold::Dynamic(search) = self {
            search.victims += 1;
            search.cost += u64::from(search.block + pages);
        }
    }
}

/// A period tells something when it has so many victims at least.
const VICTIMS_MIN: u64 = 32;
/// A threshold is better than another when the same cost stands for so many more written pages, in percent.
const BETTER_PERCENT: u64 = 2;
/// Periods that are measured at the best threshold known before a neighbour is tried.
const STAY: u32 = 4;

/// What a period is for. A period is as many written pages as the buffer has; one after each change lets the buffer's
/// content turn over, and tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The content turns over.
    Settle {
        /// Whether a neighbour is tried, or the best is back.
        trying: bool,
    },
    /// The best threshold known is measured, so many periods long still.
    Stay(u32),
    /// A neighbour is measured.
    Try,
}

/// Hill climbing over powers of two, from 2 to a whole block. The score of a threshold is how many pages the host wrote
/// for what its victims cost: each its own pages, and as many as a block has for the merge that it causes sooner or
/// later.
///
/// Every few periods a neighbour is tried, above and below in turn. If it is better it becomes the best, and the next
/// in that direction is tried at once.
#[derive(Clone, Debug)]
pub(super) struct Search {
    threshold: u32,
    best: u32,
    block: u32,
    upwards: bool,
    phase: Phase,
    /// Pages of a period, and those of this one.
    period: u64,
    written: u64,
    victims: u64,
    cost: u64,
    /// Pages written and the cost of the last period at the best threshold.
    score: (u64, u64),
}

impl Search {
    fn new(block: u32, capacity: usize) -> Search {
        // A quarter of a block: in the middle, from where both ends are near.
        let threshold = (block / 4).max(2).min(block);
        Search {
            threshold,
            best: threshold,
            block,
            upwards: true,
            phase: Phase::Settle { trying: false },
            period: capacity.max(1) as u64,
            written: 0,
            victims: 0,
            cost: 0,
            score: (0, 1),
        }
    }

    fn neighbour(&self) -> u32 {
        if self.upwards { (2 * self.best).min(self.block) } else { (self.best / 2).max(2).min(self.block) }
    }

    fn end_period(&mut self) {
        let score = (self.written, self.cost);
        (self.written, self.victims, self.cost) = (0, 0, 0);
        match self.phase {
            Phase::Settle { trying: true } => self.phase = Phase::Try,
            Phase::Settle { trying: false } => self.phase = Phase::Stay(STAY),
            Phase::Stay(periods) => {
                self.score = score;
                self.phase = Phase::Stay(periods.saturating_sub(1));
                if periods <= 1 {
                    self.try_neighbour();
                }
            }
            Phase::Try if is_better(score, self.score) => {
                self.best = self.threshold;
                self.score = score;
                self.try_neighbour();
            }
            Phase::Try => {
                self.threshold = self.best;
                self.upwards = !self.upwards;
                self.phase = Phase::Settle { trying: false };
            }
        }
    }

    fn try_neighbour(&mut self) {
        if self.neighbour() == self.best {
            self.upwards = !self.upwards;
        }
        self.threshold = self.neighbour();
        self.phase = if self.threshold == self.best { Phase::Stay(STAY) } else { Phase::Settle { trying: true } };
    }
}

/// Whether a score of pages written and cost is better than another.
fn is_better(new: (u64, u64), old: (u64, u64)) -> bool {
    100 * new.0 as u128 * old.1 as u128 > (100 + BETTER_PERCENT) as u128 * old.0 as u128 * new.1 as u128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_threshold_is_no_more_than_a_block() {
        assert_eq!([3, 64, 100].map(|fixed| Threshold::new(fixed, 64, 600).now()), [3, 64, 64]);
    }

    /// Lets a threshold work for some periods where every page written makes `victims` (of a thousand), by threshold.
    /// Returns the share of pages written at each threshold.
    fn work(threshold: &mut Threshold, victims: impl Fn(u32) -> u32) -> Vec<(u32, f64)> {
        let mut used = std::collections::BTreeMap::new();
        let mut debt = 0;
        for _ in 0..200_000u32 {
            *used.entry(threshold.now()).or_insert(0u32) += 1;
            debt += victims(threshold.now());
            while debt >= 1_000 {
                threshold.count_victim(0);
                debt -= 1_000;
            }
            threshold.count_write();
        }
        used.into_iter().map(|(t, n)| (t, f64::from(n) / 2e5)).collect()
    }

    #[test]
    fn it_finds_the_best_threshold_and_follows_it() {
        let mut threshold = Threshold::new(0, 64, 1_000);
        let mostly = |used: &[(u32, f64)], best: u32| used.iter().any(|&(t, share)| t == best && share > 0.6);
        // Where the fewest victims are: at a whole block, at 2, and in between.
        for best in [64u32, 2, 8, 32] {
            let used = work(&mut threshold, |t| 100 + 60 * t.ilog2().abs_diff(best.ilog2()));
            assert!(mostly(&used, best), "{best}: {used:?}");
        }
    }

    #[test]
    fn it_stays_between_two_and_a_block() {
        for block in [1, 2, 3, 6, 100, 65_535] {
            for slope in [0, 1, 2] {
                let mut threshold = Threshold::new(0, block, 500);
                let used = work(&mut threshold, |t| [200, 900 - t.ilog2() * 50, 50 + t.ilog2() * 50][slope]);
                assert!(used.iter().all(|&(t, _)| t <= block && (t >= 2 || block == 1)), "{block}: {used:?}");
            }
        }
    }
}
