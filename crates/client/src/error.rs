//! Why an operation ended without its result.

use std::fmt;

use tidewater_base::Duration;
use tidewater_wire::vendor::{Epoch, Role};

/// Why a credit counter does not move, as far as the status register tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// The register shows nothing wrong.
    Unexplained,
    /// Data did not reach a peer.
    PeerUnreached,
    /// A peer's counter update did not come back.
    CounterOverdue,
    /// The ring of logical pages is full: trim the log.
    WaitsForTrim,
    /// The device recovers.
    Recovering,
    /// A region before the bytes is still open. If its owner is dead, anybody may abort it.
    OpenRegion {
        /// Whose region.
        owner: u64,
        /// Where it begins.
        offset: u64,
    },
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The counter did not move for the time-out. The bytes may still become durable: the operation may be begun anew.
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
    Deposed {
        /// The epoch that this lane writes in.
        ours: Epoch,
        /// The epoch of the device.
        theirs: Epoch,
    },
    /// The device is not one to write at.
    NotPrimary {
        /// What it is.
        role: Role,
    },
    /// The request could never fit.
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that fit at most. A larger queue (and ring) takes more.
        most: u64,
    },
    /// The device does not answer, or answers with all ones.
    Gone,
    /// The device marked the stream broken: something wrote outside of the credit. Set the lane up anew.
    StreamBroken {
        /// The lane.
        lane: u8,
    },
    /// The device could not destage, and finds no other page for it.
    DestageFailed,
    /// The counter fell, or passed what was written: the lane is not in step with the device. Attach anew.
    OutOfStep {
        /// The counter that was read.
        credit: u64,
        /// The counter before that.
        before: u64,
        /// End of what this lane wrote.
        written: u64,
    },
    /// The bytes at the position are trimmed or overwritten.
    Released {
        /// The position.
        offset: u64,
        /// The oldest offset that can be read.
        head: u64,
    },
    /// Not enough bytes came to the tail within the time-out.
    NoMoreLog {
        /// The position that the read began at, and that the reader still has.
        offset: u64,
        /// Bytes at the start of the buffer that are filled.
        filled: usize,
    },
    /// The region is not open: freed before, sealed by another, or of another lane.
    NoSuchRegion {
        /// Where it begins.
        offset: u64,
    },
    /// The bytes are not a part of the region, or its used part is not a multiple of 64.
    OutsideRegion {
        /// Bytes of the region.
        bytes: u64,
        /// End of the bytes that were meant.
        end: u64,
    },
    /// The lane gives out regions: its bytes are written through them; or it gives out none.
    WrongUse,
    /// Another operation wrote to the lane while this one did. A lane has one writer.
    Interleaved,
    /// An earlier client left bytes that are not released, or that lie behind a gap.
    Unsettled {
        /// Stream offset of the first of them.
        from: u64,
        /// Stream offset after the last.
        to: u64,
    },
    /// The lane is not in use.
    NoLane {
        /// The lane.
        lane: u8,
    },
    /// Stream offsets are used up: they have 44 bits. Set the lane up anew.
    StreamFull {
        /// Bytes that are left.
        left: u64,
    },
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stall::Unexplained => f.write_str("the status register shows nothing wrong"),
            Stall::PeerUnreached => {
                f.write_str("data did not reach a peer: set replication up without it, or bring it back")
            }
            Stall::CounterOverdue => f.write_str(
                "a peer's counter update did not come back: set replication up without it, or bring it back",
            ),
            Stall::WaitsForTrim => f.write_str("the ring of logical pages is full: trim the log"),
            Stall::Recovering => f.write_str("the device recovers"),
            Stall::OpenRegion { owner, offset } => {
                write!(
                    f,
                    "the region of writer {owner} at offset {offset} is open: free it, or abort it if the writer is \
                     dead"
                )
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Stalled { cause, waited, credit, wanted } => {
                write!(f, "the credit counter stood at {credit} of {wanted} for {waited}: {cause}")
            }
            Error::Deposed { ours, theirs } => {
                write!(f, "deposed: the device is in epoch {theirs}, this writer in {ours}")
            }
            Error::NotPrimary { role } => write!(f, "the device is {role}: write at the primary, or promote this one"),
            Error::TooLarge { bytes, most } => {
                write!(f, "{bytes} bytes never fit into a queue of {most}: set up a larger one")
            }
            Error::Gone => f.write_str("the device is gone"),
            Error::StreamBroken { lane } => {
                write!(f, "the stream of lane {lane} is broken (a store outside of its credit): set the lane up anew")
            }
            Error::DestageFailed => f.write_str("the device cannot destage: its conventional side takes no more pages"),
            Error::OutOfStep { credit, before, written } => {
                write!(f, "the credit counter went from {before} to {credit}, but {written} is written: attach anew")
            }
            Error::Released { offset, head } => {
                write!(f, "offset {offset} is no longer readable: the log begins at {head}")
            }
            Error::NoMoreLog { offset, filled } => write!(f, "the log ends {filled} bytes after offset {offset}"),
            Error::NoSuchRegion { offset } => write!(f, "no region is open at offset {offset}"),
            Error::OutsideRegion { bytes, end } => {
                write!(f, "byte {end} is outside of a region of {bytes} bytes, or its used part is no multiple of 64")
            }
            Error::WrongUse => f.write_str("a lane gives out regions, or takes a stream of writes, not both"),
            Error::Unsettled { from, to } => {
                write!(f, "bytes {from} to {to} were left open by an earlier writer: abort them first")
            }
            Error::NoLane { lane } => write!(f, "lane {lane} is not in use: set more lanes up"),
            Error::StreamFull { left } => {
                write!(f, "only {left} of the 2^44 stream offsets are left: set the lane up anew")
            }
            Error::Interleaved => f.write_str("two operations write to one lane at once"),
        }
    }
}

impl std::error::Error for Error {}
