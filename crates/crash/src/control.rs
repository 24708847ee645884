//! Faults of a mounted volume: a request is written to the file [`crate::CONTROL`] of the mount, and the answer read
//! from it.

use crate::state::{Lose, Tear};
use serde::{Deserialize, Serialize};

/// A request, as one JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The power fails and comes back: what was not durable is lost.
    PowerCut {
        /// Which of it.
        lose: Lose,
        /// Where writes are torn.
        tear: Tear,
        /// Seed of what is drawn.
        seed: u64,
    },
    /// Syncs, and writes that are synchronous, wait.
    Stall {
        /// So many milliseconds from now on.
        ms: u64,
    },
    /// Calls fail.
    Error {
        /// With which error.
        error: ErrorKind,
        /// Which calls.
        on: On,
        /// How many; 0: until cleared.
        count: u32,
        /// A file whose sync failed stays dirty, and the next sync writes it.
        keep_dirty: bool,
    },
    /// The faults that are armed.
    List,
    /// Ends a stall and all errors.
    Clear,
}

/// The error that a call ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// `EIO`.
    Eio,
    /// `ENOSPC`.
    Enospc,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum On {
    /// fsync, fdatasync, msync, and writes with O_SYNC
    Sync,
    /// Writes, new names and sizes
    Write,
    /// Reads that the page cache does not answer
    Read,
}

/// An answer: what was done, or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it was done.
    pub done: bool,
    /// Words for the user.
    pub text: String,
}
