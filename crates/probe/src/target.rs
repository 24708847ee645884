//! Interface between a probe and a drive.

use std::fmt;
use tidewater_base::Duration;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Data comes to the host.
    Read,
    /// Data goes to the drive. What it is does not matter, as long as a drive cannot compress it.
    Write,
    /// Everything written before is durable.
    Flush,
    /// The data there is not needed.
    Deallocate,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// Where, in bytes, a multiple of [`About::block`].
    pub offset: u64,
    /// How much, in bytes, a multiple of [`About::block`]; of reads and writes at most [`About::largest`]. 0 of a
    /// flush.
    pub length: u64,
}

impl Request {
    /// A read.
    pub fn read(offset: u64, length: u64) -> Request {
        Request { op: Op::Read, offset, length }
    }

    /// A write.
    pub fn write(offset: u64, length: u64) -> Request {
        Request { op: Op::Write, offset, length }
    }

    /// A flush.
    pub fn flush() -> Request {
        Request { op: Op::Flush, offset: 0, length: 0 }
    }

    /// A deallocation.
    pub fn deallocate(offset: u64, length: u64) -> Request {
        Request { op: Op::Deallocate, offset, length }
    }
}

/// When a request was under way, since its batch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// When it was submitted.
    pub submitted: Duration,
    /// When it had ended.
    pub ended: Duration,
}

impl Timed {
    /// From submission to end.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_sub(self.submitted)
    }

    /// The same in seconds.
    pub fn seconds(&self) -> f64 {
        self.latency().as_secs_f64()
    }
}

/// The least that can be probed, in bytes: less has no room for two places far from each other.
pub const CAPACITY_MIN: u64 = 8 << 20;

/// Description of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Its kind, in words.
    pub kind: String,
    /// Bytes that can be addressed; at least [`CAPACITY_MIN`] are needed.
    pub capacity: u64,
    /// The least that a request may move, in bytes: a power of two.
    pub block: u64,
    /// The most that a request may move, in bytes: a multiple of the block.
    pub largest: u64,
    /// It takes deallocations.
    pub deallocates: bool,
}

/// Possible changes to the memory that a host lends a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// Nothing: why, in words. Whose memory a cache is stays unknown then.
    Cannot(String),
    /// The drive borrows none: what it has is its own.
    None,
    /// It can be switched off, and on as it was.
    Switch,
    /// It can be given any size up to `most`.
    Sizes {
        /// Bytes as it was found.
        size: u64,
        /// Bytes that the drive has a use for.
        most: u64,
    },
}

/// How much memory a host is to lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lend {
    /// None.
    Nothing,
    /// As much as at first.
    AsFound,
    /// So many bytes.
    Bytes(u64),
}

/// Why a target did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(pub String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TargetError {}

/// A drive that requests can be timed on.
pub trait Target {
    /// Its description.
    fn about(&self) -> About;

    /// Does all of `requests`, at most `depth` at once, each begun in order; `timed` gets one entry for each, in their
    /// order.
    ///
    /// # Errors
    /// When a request fails, or the target is of a kind that cannot do it.
    fn run(&mut self, requests: &[Request], depth: u32, timed: &mut Vec<Timed>) -> Result<(), TargetError>;

    /// Leaves the drive alone for so long.
    ///
    /// # Errors
    /// When the target cannot wait.
    fn idle(&mut self, time: Duration) -> Result<(), TargetError>;

    /// The target's clock: it starts anywhere.
    fn now(&self) -> Duration;

    /// Whether it may be written to: why not, in words.
    ///
    /// # Errors
    /// The data that would be lost.
    fn writable(&self) -> Result<(), String>;

    /// Possible changes to the host's memory.
    fn host_memory(&self) -> HostMemory;

    /// Gives the drive so much of the host's memory.
    ///
    /// # Errors
    /// When it cannot be done.
    fn set_host_memory(&mut self, lend: Lend) -> Result<(), TargetError>;
}
