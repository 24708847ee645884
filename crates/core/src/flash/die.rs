//! What the scheduler knows of a die: what waits for it, and what it does.

use super::operation::{CLASSES, NONE, Operation};
use super::{DieTime, Kind, Source};
use tidewater_base::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Idle,
    /// Kept free for a row that is on the bus: without cache commands it goes into the page register itself.
    Reserved,
    Busy {
        operation: u32,
        ends: Instant,
    },
    Suspending {
        operation: u32,
    },
    /// Read data that waits in the page register until the register before it has been emptied.
    Held {
        operation: u32,
    },
}

/// Operations that wait for a die, oldest first. Empty: its bit of [`Die::waiting`] is not set.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE };
}

#[derive(Clone, Debug)]
pub(super) struct Die {
    /// What waits, by priority class.
    pub(super) queues: [List; CLASSES],
    pub(super) waiting: u32,
    /// The classes whose oldest is a program.
    pub(super) rows_first: u32,
    pub(super) cell: Cell,
    pub(super) leaving: u32,
    pub(super) loading: u32,
    pub(super) loaded: u32,
    pub(super) suspended: u32,
    pub(super) suspended_left: Duration,
    pub(super) generation: u32,
    /// Programs queued or in flight, but those of the log; and those.
    pub(super) programs: u32,
    pub(super) log_programs: u32,
    pub(super) number: u32,
    pub(super) channel: u32,
    pub(super) time: DieTime,
}

impl Die {
    /// An idle die.
    pub(super) fn on(number: u32, channel: u32) -> Die {
        Die {
            queues: [List::EMPTY; CLASSES],
            waiting: 0,
            rows_first: 0,
            cell: Cell::Idle,
            leaving: NONE,
            loading: NONE,
            loaded: NONE,
            suspended: NONE,
            suspended_left: Duration::ZERO,
            generation: 0,
            programs: 0,
            log_programs: 0,
            number,
            channel,
            time: DieTime::default(),
        }
    }

    pub(super) fn programs_of(&mut self, source: Source) -> &mut u32 {
        if source == Source::Destage { &mut self.log_programs } else { &mut self.programs }
    }

    /// Whether nothing is in the array, wants it, or has a right to it.
    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        self.waiting == 0 && self.cell == Cell::Idle && self.loaded & self.suspended == NONE
    }

    /// Whether anything waits for the array: in a queue, in the register, or suspended.
    #[inline]
    pub(super) fn wants_array(&self) -> bool {
        self.waiting != 0 || self.loaded & self.suspended != NONE
    }

    /// Whether no row is on its way to the array: none in the register, none on the bus, none that was suspended.
    #[inline]
    pub(super) fn takes_row(&self) -> bool {
        // All bits are set in NONE alone.
        self.loading & self.loaded & self.suspended == NONE
    }

    /// Whether a program goes next.
    #[inline(always)]
    pub(super) fn is_row_next(&self) -> bool {
        self.waiting & self.waiting.wrapping_neg() & self.rows_first != 0
    }

    /// The class of what goes next, and its number. Something must wait.
    #[inline(always)]
    pub(super) fn first(&self) -> (usize, u32) {
        let class = self.waiting.trailing_zeros() as usize % CLASSES;
        (class, self.queues[class].head)
    }

    /// Puts an operation behind all others of its class.
    #[inline(always)]
    pub(super) fn put(&mut self, operations: &mut [Operation], class: usize, id: u32) {
        if self.waiting >> class & 1 == 0 {
            self.waiting |= 1 << class;
            self.set_head(operations, class, id);
        } else {
            operations[self.queues[class].tail as usize].next = id;
        }
        self.queues[class].tail = id;
    }

    #[inline(always)]
    fn set_head(&mut self, operations: &[Operation], class: usize, id: u32) {
        self.queues[class].head = id;
        let is_row = operations[id as usize].kind() == Kind::Program;
        self.rows_first = self.rows_first & !(1 << class) | u32::from(is_row) << class;
    }

    /// Takes the oldest of a class, which is this one.
    #[inline(always)]
    pub(super) fn take(&mut self, operations: &mut [Operation], class: usize, id: u32) {
        let next = std::mem::replace(&mut operations[id as usize].next, NONE);
        if next == NONE {
            self.waiting &= !(1 << class);
        } else {
            self.set_head(operations, class, next);
        }
    }

    /// Takes all that waits, in the order that it came.
    pub(super) fn take_all(&mut self, operations: &mut [Operation]) -> Vec<u32> {
        let mut all = Vec::new();
        while self.waiting != 0 {
            let (class, id) = self.first();
            self.take(operations, class, id);
            all.push(id);
        }
        all.sort_unstable_by_key(|&id| operations[id as usize].order);
        all
    }
}
