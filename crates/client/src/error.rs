//! Why an operation ended without its result.

use tidewater_base::Duration;
use tidewater_wire::vendor::{Epoch, Role};

/// Why a credit counter does not move, as far as the status register tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stall {
    /// The register shows nothing wrong.
    #[error("the status register shows nothing wrong")]
    Unexplained,
    /// Data did not reach a peer.
    #[error("data did not reach a peer: set replication up without it, or bring it back")]
    PeerUnreached,
    /// A peer's counter update did not come back.
    #[error("a peer's counter update did not come back: set replication up without it, or bring it back")]
    CounterOverdue,
    /// The ring of logical pages is full: trim the log.
    #[error("the ring of logical pages is full: trim the log")]
    WaitsForTrim,
    /// The device recovers.
    #[error("the device recovers")]
    Recovering,
    /// A region before the bytes is still open. If its owner is dead, anybody may abort it.
    #[error("the region of writer {owner} at offset {offset} is open: free it, or abort it if the writer is dead")]
    OpenRegion {
        /// Whose region.
        owner: u64,
        /// Where it begins.
        offset: u64,
    },
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The counter did not move for the time-out. The bytes may still become durable: the operation may be begun anew.
    #[error("the credit counter stood at {credit} of {wanted} for {waited}: {cause}")]
    Stalled {
        /// Why, as far as the device tells.
        cause: Stall,
        /// How long the counter stood still.
        waited: Duration,
        /// Where it stands.
        credit: u64,
        /// Where it had to come to.
        wanted: u64,
    },
    /// Another node became primary. Bytes past the credit may be cut.
    #[error("deposed: the device is in epoch {theirs}, this writer in {ours}")]
    Deposed {
        /// The epoch that this lane writes in.
        ours: Epoch,
        /// The epoch of the device.
        theirs: Epoch,
    },
    /// The device is not one to write at.
    #[error("the device is {role}: write at the primary, or promote this one")]
    NotPrimary {
        /// Its role.
        role: Role,
    },
    /// The request could never fit.
    #[error("{bytes} bytes never fit into a queue of {most}: set up a larger one")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that fit at most. A larger queue (and ring) takes more.
        most: u64,
    },
    /// The device does not answer, or answers with all ones.
    #[error("the device is gone")]
    Gone,
    /// The device marked the stream broken: something wrote outside of the credit. Set the lane up anew.
    #[error("the stream of lane {lane} is broken (a store outside of its credit): set the lane up anew")]
    StreamBroken {
        /// The lane.
        lane: u8,
    },
    /// The device could not destage, and finds no other page for it.
    #[error("the device cannot destage: its conventional side takes no more pages")]
    DestageFailed,
    /// The counter fell, or passed what was written: the lane is not in step with the device. Attach anew.
    #[error("the credit counter went from {before} to {credit}, but {written} is written: attach anew")]
    OutOfStep {
        /// The counter that was read.
        credit: u64,
        /// The counter before that.
        before: u64,
        /// End of what this lane wrote.
        written: u64,
    },
    /// The bytes at the position are trimmed or overwritten.
    #[error("offset {offset} is no longer readable: the log begins at {head}")]
    Released {
        /// The position.
        offset: u64,
        /// The oldest offset that can be read.
        head: u64,
    },
    /// Not enough bytes came to the tail within the time-out.
    #[error("the log ends {filled} bytes after offset {offset}")]
    NoMoreLog {
        /// The position that the read began at, and that the reader still has.
        offset: u64,
        /// Bytes at the start of the buffer that are filled.
        filled: usize,
    },
    /// The region is not open: freed before, sealed by another, or of another lane.
    #[error("no region is open at offset {offset}")]
    NoSuchRegion {
        /// Where it begins.
        offset: u64,
    },
    /// The bytes are not a part of the region, or its used part is not a multiple of 64.
    #[error("byte {end} is outside of a region of {bytes} bytes, or its used part is no multiple of 64")]
    OutsideRegion {
        /// Bytes of the region.
        bytes: u64,
        /// End of the bytes that were meant.
        end: u64,
    },
    /// The lane gives out regions: its bytes are written through them; or it gives out none.
    #[error("a lane gives out regions, or takes a stream of writes, not both")]
    WrongUse,
    /// Another operation wrote to the lane while this one did. A lane has one writer.
    #[error("two operations write to one lane at once")]
    Interleaved,
    /// An earlier client left bytes that are not released, or that lie behind a gap.
    #[error("bytes {from} to {to} were left open by an earlier writer: abort them first")]
    Unsettled {
        /// Stream offset of the first of them.
        from: u64,
        /// Stream offset after the last.
        to: u64,
    },
    /// The lane is not in use.
    #[error("lane {lane} is not in use: set more lanes up")]
    NoLane {
        /// The lane.
        lane: u8,
    },
    /// Stream offsets are used up: they have 44 bits. Set the lane up anew.
    #[error("only {left} of the 2^44 stream offsets are left: set the lane up anew")]
    StreamFull {
        /// Bytes that are left.
        left: u64,
    },
}
