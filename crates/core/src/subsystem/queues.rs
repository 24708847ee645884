//! Submission and completion queues, where a host keeps them (NVM Express 1.4, section 4.1), or as a connection carries
//! them.

use super::interface::Slot;
use std::collections::VecDeque;
use tidewater_wire::nvme::{Cqe, Sqe, Status};

/// A submission queue.
#[derive(Clone, Debug, Default)]
pub(super) struct SubmissionQueue {
    /// It exists.
    pub live: bool,
    pub base: u64,
    /// Entries: 2 to 65,536.
    pub entries: u32,
    pub head: u32,
    pub tail: u32,
    pub completion_queue: u16,
    /// Its place among the classes of weighted round robin: 0 (urgent) to 3 (low).
    pub class: u8,
    /// Entries that are being read.
    pub fetching: u16,
    /// It stands in the list of queues with entries to read.
    pub ready: bool,
    /// Commands of it that are worked on.
    pub outstanding: u32,
    /// A command that deletes it waits until none is.
    pub deletion: Option<Slot>,
    /// Over fabrics: its connection has gone, and commands of it are still under way.
    pub leaving: bool,
    /// Over fabrics: capsules that have come and have no slot yet.
    pub capsules: VecDeque<Sqe>,
}

impl SubmissionQueue {
    /// Entries that the host has put there, still unread.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.entries - self.head + self.tail }
    }

    #[inline]
    pub(super) fn advance(&mut self, count: u32) {
        self.head += count;
        if self.head >= self.entries {
            self.head -= self.entries;
        }
    }
}

/// A completion that waits for room in its queue, or for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Posting {
    pub queue: u16,
    pub cid: u16,
    pub status: u16,
    pub dw0: u32,
}

/// A completion queue.
#[derive(Clone, Debug, Default)]
pub(super) struct CompletionQueue {
    /// It exists.
    pub live: bool,
    pub base: u64,
    pub entries: u32,
    pub head: u32,
    pub tail: u32,
    pub phase: bool,
    pub vector: u16,
    pub interrupts: bool,
    /// Submission queues that use it.
    pub users: u16,
    /// Completions for which there is no room.
    pub waiting: VecDeque<Posting>,
    /// Completions since the last interrupt, where interrupts are coalesced.
    pub coalesced: u32,
    /// A timer for them runs.
    pub timer: bool,
}

impl CompletionQueue {
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let next = self.tail + 1;
        (if next == self.entries { 0 } else { next }) == self.head
    }

    /// Entries that the host has not taken.
    #[inline]
    pub(super) fn unread(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.entries - self.head + self.tail }
    }

    /// The next entry's address and phase tag.
    #[inline]
    pub(super) fn push(&mut self) -> (u64, bool) {
        let place = (self.base + u64::from(self.tail) * Cqe::SIZE as u64, self.phase);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
        place
    }
}

impl Posting {
    #[inline]
    pub(super) fn new(queue: u16, cid: u16, status: Status, dw0: u32) -> Posting {
        Posting { queue, cid, status: status.bits(), dw0 }
    }

    pub(super) fn entry(&self, head: u32) -> Cqe {
        let status = Status::from_bits(self.status);
        Cqe { dw0: self.dw0, sq_head: head as u16, sq_id: self.queue, cid: self.cid, phase: false, status }
    }
}
