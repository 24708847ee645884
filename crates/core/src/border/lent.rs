//! Accesses to memory that the host lends, as they cross the border of a device.

use crate::memory::Use;

/// Names an access under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u32);

/// What a unit claims to be. A unit counts only if all of it is as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Whose it is.
    pub used: Use,
    /// What it is a copy of: a logical page, a page of the map.
    pub key: u64,
    /// The drive's count of writes to host memory: no two writes have the same.
    pub version: u64,
    /// The count of lendings: what was written in one is nothing in another.
    pub generation: u64,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the unit. `Access::stamp` is what the drive expects there.
    Read,
    /// Writes the unit, stamped with `Access::stamp`.
    Write {
        /// What the bytes stand for: the version of a logical page, as commands tag it. 0 for what has none.
        content: u64,
    },
}

/// An access to host memory, for the world to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Comes back with the answer.
    pub ticket: Ticket,
    /// Counts accesses from 1: no two have the same.
    pub serial: u64,
    /// Where the unit begins, in bytes of the memory that was lent.
    pub offset: u64,
    /// Bytes of the unit, [`HEADER`](crate::host_memory::HEADER) included.
    pub len: u32,
    /// What is written, or expected.
    pub stamp: Stamp,
    /// What to do.
    pub operation: Operation,
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It is written.
    Written,
    /// A unit was found whose checksum holds, whatever it is.
    Found {
        /// What it claims to be.
        stamp: Stamp,
        /// As it was written with.
        content: u64,
    },
    /// There is no unit there whose checksum holds.
    Damaged,
    /// There is no such memory (any more).
    Gone,
}

/// What the host does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// It lends so many bytes (Set Features 0Dh with EHM). Memory that is lent already is taken as gone first.
    Lend {
        /// Bytes.
        bytes: u64,
        /// It is the memory of before, and the host says that it has not changed (MR): units of before count, as far as
        /// their checks hold.
        returned: bool,
    },
    /// It wants it back (EHM cleared, a reset, a shutdown): answered by
    /// [`Output::HostMemoryFree`](crate::Output::HostMemoryFree).
    Withdraw,
    /// It has taken it back without a word.
    Gone,
}
