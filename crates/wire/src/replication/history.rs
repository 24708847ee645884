//! The epoch history: which epoch wrote which bytes of each lane.

use super::{Epoch, HISTORY_MAX, LANES_MAX};

/// The offset of each lane at which an epoch began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The epoch.
    pub epoch: Epoch,
    /// For each lane the stream offset of its first byte. Lanes that a function does not have stand at 0.
    pub offsets: [u64; LANES_MAX],
}

/// The newest epochs of a log, oldest first: epochs ascend, and so do the offsets of each lane.
///
/// An epoch stands in one chain of predecessors, because one node makes it, of one log. So two histories that share an
/// epoch share all before it, and the logs are the same up to where the first of the two ends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    starts: [Start; HISTORY_MAX],
    len: usize,
}

impl History {
    /// The epochs, oldest first.
    pub fn starts(&self) -> &[Start] {
        &self.starts[..self.len]
    }

    /// The newest epoch, or [`Epoch::ZERO`].
    pub fn last(&self) -> Epoch {
        self.starts().last().map_or(Epoch::ZERO, |start| start.epoch)
    }

    /// Where the newest epoch began; 0 in every lane when there is none.
    pub fn last_offsets(&self) -> [u64; LANES_MAX] {
        self.starts().last().map_or([0; LANES_MAX], |start| start.offsets)
    }

    /// Adds an epoch, and forgets the oldest when [`HISTORY_MAX`] are there. False, and nothing added, when the epoch
    /// or an offset does not ascend.
    pub fn push(&mut self, start: Start) -> bool {
        let low = self.last_offsets();
        if start.epoch <= self.last() || start.offsets.iter().zip(low).any(|(&offset, low)| offset < low) {
            return false;
        }
        if self.len == HISTORY_MAX {
            self.starts.copy_within(1.., 0);
            self.len -= 1;
        }
        self.starts[self.len] = start;
        self.len += 1;
        true
    }

    /// The place of an epoch.
    pub fn position(&self, epoch: Epoch) -> Option<usize> {
        self.starts().iter().position(|start| start.epoch == epoch)
    }

    /// Where the epoch at `place` ends in a lane: at the start of the next, or `None` when it is the newest.
    pub fn end(&self, place: usize, lane: usize) -> Option<u64> {
        self.starts().get(place + 1).map(|next| next.offsets[lane])
    }

    /// Forgets all epochs after the one at `place`.
    pub fn cut_after(&mut self, place: usize) {
        let len = self.len.min(place + 1);
        self.starts[len..].fill(Start::default());
        self.len = len;
    }

    /// The newest epoch that both have, as its place here and there. `None` when they share none, or when they disagree
    /// where it began, which can only be if one of them is not from this group.
    pub fn common(&self, other: &History) -> Option<(usize, usize)> {
        let (here, start) =
            self.starts().iter().enumerate().rev().find(|(_, start)| other.position(start.epoch).is_some())?;
        let there = other.position(start.epoch)?;
        (other.starts[there] == *start).then_some((here, there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(epoch: u64, offset: u64) -> Start {
        Start { epoch: Epoch(epoch), offsets: [offset; LANES_MAX] }
    }

    fn history(starts: &[(u64, u64)]) -> History {
        let mut history = History::default();
        for &(epoch, offset) in starts {
            assert!(history.push(start(epoch, offset)));
        }
        history
    }

    #[test]
    fn the_newest_common_epoch_is_found_and_foreign_histories_share_none() {
        let (a, b) = (history(&[(1, 0), (2, 10), (4, 30)]), history(&[(1, 0), (2, 10), (3, 20), (5, 40)]));
        assert_eq!(a.common(&b), Some((1, 1)));
        assert_eq!((a.end(1, 0), b.end(1, 0), b.end(3, 0)), (Some(30), Some(20), None));
        assert_eq!(a.common(&history(&[(9, 0)])), None);
        assert_eq!(a.common(&history(&[(2, 11)])), None, "one epoch can't begin at two offsets");
    }

    #[test]
    fn a_full_history_forgets_its_oldest_and_takes_nothing_that_descends() {
        let mut full = history(&(1..=HISTORY_MAX as u64 + 3).map(|n| (n, n * 2)).collect::<Vec<_>>());
        assert_eq!((full.starts().len(), full.starts()[0].epoch.0), (HISTORY_MAX, 4));
        assert!(!full.push(start(5, 1000)) && !full.push(start(1000, 5)));
        full.cut_after(1);
        assert_eq!((full.last().0, full.starts().len()), (5, 2));
    }
}
