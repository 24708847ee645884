//! Where a primary's logs ended, from time to time: how long replicas are behind follows from it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How often the end of a log is noted: a lag is as exact as this.
const EVERY: Duration = Duration::from_millis(100);
/// Notes that are kept: a longer lag is as long as these.
const NOTES_MAX: usize = 600;

/// Where the lanes of a function ended, from time to time.
#[derive(Debug, Default)]
pub(super) struct LogEnds {
    notes: VecDeque<(Instant, Vec<u64>)>,
}

impl LogEnds {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Notes where the lanes end now, if it is time.
    pub(super) fn note(&mut self, now: Instant, ends: impl FnOnce() -> Vec<u64>) {
        if self.notes.back().is_some_and(|(at, _)| now - *at < EVERY) {
            return;
        }
        if self.notes.len() == NOTES_MAX {
            self.notes.pop_front();
        }
        self.notes.push_back((now, ends()));
    }

    /// How old the oldest byte is that a replica with these counters lacks, as far as the notes reach.
    pub(super) fn lag(&self, now: Instant, shadow: &[u64]) -> Duration {
        let lacks = |(_, ends): &&(Instant, Vec<u64>)| ends.iter().zip(shadow).any(|(end, at)| end > at);
        // Logs only grow: one that a replica lacks is followed by such.
        let first = self.notes.partition_point(|note| !lacks(&note));
        self.notes.get(first).map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_the_age_of_the_oldest_byte_that_is_lacking() {
        let (start, mut log) = (Instant::now(), LogEnds::default());
        assert_eq!(log.lag(start, &[0, 0]), Duration::ZERO, "nothing is known");
        for (step, ends) in [[0, 0], [10, 0], [10, 5], [10, 5], [20, 5]].into_iter().enumerate() {
            log.note(start + EVERY * step as u32, || ends.to_vec());
        }
        let now = start + EVERY * 4;
        for (shadow, steps) in [([20, 5], 0), ([10, 5], 0), ([9, 5], 3), ([10, 4], 2), ([0, 0], 3)] {
            assert_eq!(log.lag(now, &shadow), EVERY * steps, "{shadow:?}");
        }
    }

    #[test]
    fn notes_are_seldom_and_bounded() {
        let (start, mut log) = (Instant::now(), LogEnds::default());
        for step in 0..20_000 {
            log.note(start + EVERY / 10 * step, || vec![u64::from(step)]);
        }
        assert_eq!(log.notes.len(), NOTES_MAX);
        assert!(log.notes.iter().zip(log.notes.iter().skip(1)).all(|(a, b)| b.0 - a.0 >= EVERY));
    }
}
