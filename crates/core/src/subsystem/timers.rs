//! The subsystem's own deadlines: few, so a heap does.

use super::queues::Posting;
use crate::host_memory::{Answer, Ticket};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidewater_base::Instant;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Completions have waited for an interrupt long enough.
    Coalesced { function: u8, queue: u16, generation: u32 },
    /// A completion that was held back comes.
    Late { function: u8, posting: Posting, generation: u32 },
    /// A host should have been heard.
    KeepAlive { function: u8, generation: u32 },
    /// An access to host memory is answered late.
    HostMemory { ticket: Ticket, answer: Answer },
    /// A device self-test may have ended.
    SelfTest,
}

impl Timer {
    /// It is for a completion of this queue that is held back.
    pub(super) fn is_late(&self, of: u8, queue: u16) -> bool {
        matches!(self, Timer::Late { function, posting, .. } if *function == of && posting.queue == queue)
    }
}

/// Deadlines, in the order of their time and, of one instant, of their making.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64, Timer)>>,
    made: u64,
}

impl Timers {
    pub(super) fn push(&mut self, at: Instant, timer: Timer) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, timer)));
    }

    #[inline]
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes back those that are for nothing any more.
    pub(super) fn cancel(&mut self, is_moot: impl Fn(&Timer) -> bool) {
        self.heap.retain(|Reverse((.., timer))| !is_moot(timer));
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((.., timer))| timer)
    }
}
