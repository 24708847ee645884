//! Files on a log (ADR 19): what an unmodified program writes to some of its files goes into a lane as records, beside
//! the page cache, and its syncs become waits for the log. After a crash the records are replayed onto the files.
//!
//! - [`Globs`]: which files;
//! - [`Table`]: what the processes of a run share;
//! - [`Files`]: each change of a file, ring first and then the file;
//! - [`Backing`]: the logs that they can be on;
//! - [`recover`]: from the log back to the files;
//! - [`replay_onto`]: from the log to a copy of the files, on another machine;
//! - [`EmbeddedFiles`]: the same for a program that tells what it writes, without a preload;
//! - [`Run`]: what `tidewater run` does beside the program; it hands the ring over to its processes ([`hand_over`]).

mod access;
mod backing;
mod compare;
mod content;
mod deferred;
mod delta;
mod embedded;
mod entries;
mod error;
mod fcntl_locks;
mod glob;
pub mod hand_over;
mod handle;
mod interlock;
mod loss;
mod marker;
mod marks;
mod members;
mod onto;
mod paths;
mod position;
mod redo;
mod replay;
mod report;
mod reread;
mod run;
mod set;
mod system;
mod table;
mod unrecorded;
mod unwritten;
mod write;

pub use backing::{AnyLog, Backing, Journal, Room};
pub use deferred::Flush;
pub use delta::COPY;
pub use embedded::{Changed, EmbeddedFiles};
pub use error::{FilesError, RunError};
pub use glob::{GlobError, Globs};
pub use handle::{identify, is_same};
pub use interlock::{Foreign, markers, markers_of};
pub use marker::Marker;
pub use onto::{CopyPosition, Onto, OntoRules, Replayed, Source, copy_position, recover_onto, replay_onto};
pub use paths::Moving;
pub use position::{POSITION_FILE, Position};
pub use replay::recover;
pub use report::{Fate, FileReport, ReplayError, Report, Rules};
pub use run::{Checkpoint, Ended, Run, Setup, TICK};
pub use set::{Files, Sync};
pub use system::Real;
pub use table::{ASKS, Counter, FILES_MAX, Failed, GONE, Locked, PathBytes, Place, REAL, RENAMED, SYNCS, Table};
pub use tidewater_client::mapped::inode::size;
pub use unrecorded::Seen;
pub use write::COPY_SMALL;

use std::time::Duration;

/// How long a sync, a full ring and a checkpoint wait before they fail for good.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a record's data, at most; a small ring has smaller ones.
pub const CHUNK_MAX: u64 = 64 << 10;
