//! Rules for recovery, and its report.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Globs;
use tidewater_client::LogError;

/// Files that a log may name.
pub(crate) const BINDS_MAX: usize = 1 << 20;

/// Limits of recovery: files that it may touch, and conditions to stop at.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Only files of this set; `None`: of any, as far as they are the caller's.
    pub globs: Option<Globs>,
    /// Only files of these users, regardless of who wrote the log. Empty: of any, but only of [`Report::others`] where
    /// there are such.
    pub owners: Vec<u32>,
    /// Go on where a file is missing or refused: what the log has for it is lost.
    pub forget: bool,
    /// Do not ask the markers of the files' folders: the log has their newest bytes.
    pub adopt: bool,
    /// Change nothing, and tell what would be done.
    pub dry: bool,
}

/// Why nothing, or not all, was replayed. The log is as it was.
#[derive(Debug)]
pub enum ReplayError {
    /// The log could not be read or trimmed.
    Log(LogError),
    /// A file could not be written.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The marker of a folder could not be brought up to date, or removed.
    Marker {
        /// Why.
        error: std::io::Error,
    },
    /// Files are missing or were refused: the report tells which.
    Refused(Box<Report>),
    /// A copy of the files is older than the log.
    Older {
        /// The copy's directory.
        folder: PathBuf,
        /// Up to where it has the log.
        has: u64,
        /// Where the log begins.
        oldest: u64,
    },
    /// More files than a log can have meant.
    TooMany,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        match self {
            ReplayError::Log(error) => error.fmt(f),
            ReplayError::File { path, error } => write!(f, "{}: {error}", path.display()),
            ReplayError::Marker { error } => error.fmt(f),
            ReplayError::Refused(report) => {
                let files = report.files.iter().filter(|file| file.fate.is_bad()).count();
                match report.unbound {
                    0 => write!(
                        f,
                        "{} can't be brought up to date; the log is kept as it was",
                        plural(files as u64, "file")
                    ),
                    some => write!(
                        f,
                        "a part of the log is lost: {} without a file or without earlier bytes; the rest is kept as it \
                         was",
                        plural(some, "record")
                    ),
                }
            }
            ReplayError::Older { folder, has, oldest } => write!(
                f,
                "{}: the copy has the log up to offset {has}, and the log begins at {oldest}: {} bytes between are \
                 gone",
                folder.display(),
                oldest - has
            ),
            ReplayError::TooMany => write!(f, "the log names more than {BINDS_MAX} files"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<LogError> for ReplayError {
    fn from(error: LogError) -> ReplayError {
        ReplayError::Log(error)
    }
}

/// A fault of a file.
pub(crate) fn file_error(path: &Path) -> impl Fn(std::io::Error) -> ReplayError {
    move |error| ReplayError::File { path: path.to_owned(), error }
}

/// Fate of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is as the log says.
    UpToDate,
    /// It was made: the log has all of it.
    Created,
    /// It had been removed.
    Removed,
    /// It was synced by itself, and nothing was recorded since.
    Left,
    /// It is not there under any of its names.
    Missing,
    /// It was not touched, for this reason.
    Refused(String),
}

impl Fate {
    /// Whether bytes of the log did not get to where they belong.
    pub fn is_bad(&self) -> bool {
        matches!(self, Fate::Missing | Fate::Refused(_))
    }
}

/// Result of recovery for a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileReport {
    /// Its last path.
    pub path: PathBuf,
    /// Its fate.
    pub fate: Fate,
    /// Records that are about it.
    pub records: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

/// Result of recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Where reading began.
    pub from: u64,
    /// Where the log ended.
    pub to: u64,
    /// Users beside root and the caller who can have written the log: its ring is theirs, or its device runs as them.
    pub others: Vec<u32>,
    /// Records about files.
    pub records: u64,
    /// Of these, changes older than the last sync of all files: of no use.
    pub stale: u64,
    /// Of these, what came behind that sync. 0: there was nothing to do.
    pub new: u64,
    /// Records that fit no file, or go by bytes that the log does not have.
    pub unbound: u64,
    /// Other programs' records.
    pub foreign: u64,
    /// Holes and damaged places that were passed over, in bytes.
    pub skipped: u64,
    /// Syncs of the run returned at RING, and that ring is gone: the last of what they promised may be missing.
    pub ring_lost: bool,
    /// The files, by their last path.
    pub files: Vec<FileReport>,
}
