//! Actions that an operation asks of its driver, and their answers.

use std::ops::Range;

use tidewater_base::Instant;
use tidewater_wire::vendor::{ControlPage, Epoch, Role, TransportStatus};

use crate::Error;

/// A part of the stream that one writer fills in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Stream offset of the first byte: a multiple of 64.
    pub offset: u64,
    /// Bytes: a multiple of 64.
    pub bytes: u64,
    /// Whose it is: a number of the caller's choice.
    pub owner: u64,
}

impl Region {
    /// Stream offset after the last byte.
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Next action of an operation: `Store`, `Fence`, `AnnounceTail`, `StoreFloor` and `Seal` without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Store these bytes of the caller's buffer at a stream offset. They never cross the end of the ring.
    Store {
        /// Lane.
        lane: u8,
        /// Stream offset; byte `offset % ring_bytes` of the lane's window.
        offset: u64,
        /// Which bytes of the buffer.
        bytes: Range<usize>,
    },
    /// Fill a part of the stream as [`crate::fill_void`] does: with a void record (or Seal Region, where there are no
    /// BARs). It may cross the end of the ring.
    Seal {
        /// Lane.
        lane: u8,
        /// Stream offset.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Epoch of the record.
        epoch: Epoch,
    },
    /// Let all stores before leave the host before anything after (`sfence`; nothing where stores are commands).
    Fence,
    /// Tell the device how far the window is filled (mapped windows only).
    AnnounceTail {
        /// Lane.
        lane: u8,
        /// End of the bytes stored.
        tail: u64,
    },
    /// Store the floor into the lane page.
    StoreFloor {
        /// Lane.
        lane: u8,
        /// End of the regions released.
        floor: u64,
    },
    /// Read the lane's credit counter: [`Answer::Credit`].
    ReadCredit {
        /// Lane.
        lane: u8,
    },
    /// Read status register, epoch and role: [`Answer::Health`].
    ReadStatus,
    /// Read destaged bytes of the stream into the caller's buffer: [`Answer::Data`] or [`Answer::Released`].
    ReadLog {
        /// Lane.
        lane: u8,
        /// Stream offset, or [`tidewater_wire::vendor::TAIL`].
        offset: u64,
        /// Where in the buffer.
        into: Range<usize>,
    },
    /// Come back at this time, or later: [`Answer::Time`].
    Wait {
        /// When.
        until: Instant,
    },
    /// The operation is over.
    Done(Result<Outcome, Error>),
}

/// Result of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All bytes are stored. They are durable when the credit covers `end`.
    Written {
        /// Stream offset of the first byte.
        offset: u64,
        /// Stream offset after the last.
        end: u64,
    },
    /// All bytes below are durable, as the replication mode means it.
    Durable {
        /// Stream offset.
        end: u64,
    },
    /// A region to be filled.
    Allocated(Region),
    /// The region is released.
    Released {
        /// End of the oldest prefix of released regions.
        floor: u64,
    },
    /// The buffer is filled.
    Read {
        /// Stream offset of its first byte.
        offset: u64,
    },
}

/// Device state from the control page, read when a counter is suspected to be stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// The status register.
    pub status: TransportStatus,
    /// The device's epoch.
    pub epoch: Epoch,
    /// The device's role.
    pub role: Role,
}

impl From<&ControlPage> for Health {
    fn from(page: &ControlPage) -> Health {
        Health { status: page.status, epoch: page.epoch, role: page.role }
    }
}

/// How an action went. An unexpected answer is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The credit counter.
    Credit(u64),
    /// State from the control page.
    Health(Health),
    /// Bytes were read: perhaps none, perhaps fewer than asked for.
    Data {
        /// Stream offset of the first of them; when none, where the log ends.
        offset: u64,
        /// How many. Filler is not counted, and not in the buffer.
        bytes: usize,
    },
    /// The offset is no longer readable.
    Released {
        /// The oldest offset that is.
        head: u64,
    },
    /// It is this late now.
    Time,
    /// The device did not answer.
    Gone,
}

/// A call that may take a while. Bounded, and without allocation.
pub trait Operation {
    /// Target of the operation: a [`crate::Lane`] or a [`crate::Reader`].
    type On;

    /// The next action. `None`: the answer to the last action is due first, or the operation is over.
    fn poll(&mut self, on: &mut Self::On) -> Option<Action>;

    /// Tells how the last action went.
    fn on(&mut self, on: &mut Self::On, now: Instant, answer: Answer);
}
