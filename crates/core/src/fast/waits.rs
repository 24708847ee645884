//! Commands of the fast side that wait.

use tidewater_wire::vendor::Epoch;

/// A command that waits.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) cid: u16,
    pub(super) function: usize,
    pub(super) lane: usize,
    /// The credit that it waits for, or the first byte that it reads.
    pub(super) offset: u64,
    /// The epoch that it began in.
    pub(super) epoch: Epoch,
    pub(super) what: What,
    pub(super) generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Nothing: the place is free.
    Free,
    Credit,
    /// So many bytes.
    Bytes(u32),
    /// Flash reads, so many of them, for that many bytes.
    Flash {
        reads: u32,
        bytes: u32,
        failed: bool,
    },
}
