//! Why a run could not begin, or go on.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::interlock::Foreign;
use crate::replay::ReplayError;
use crate::set::{FilesError, number_of};
use tidewater_client::LogError;

/// Why a run could not begin, or go on.
#[derive(Debug)]
pub enum RunError {
    /// The log.
    Log(LogError),
    /// Recovery.
    Replay(ReplayError),
    /// A file of the set.
    File {
        /// Which; empty: none in particular.
        path: PathBuf,
        /// Why.
        error: FilesError,
    },
    /// Last bytes of files may be on another log.
    Foreign(Vec<Foreign>),
    /// The log's pages are another lane's, too, and it keeps them.
    Held,
    /// The system refused something else.
    System {
        /// The failed operation.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Log(error @ LogError::TimedOut { at, wanted }) => {
                write!(f, "{} (the log is synced to {at} of {wanted})", FilesError::Failed(number_of(error)))
            }
            RunError::Log(error) => error.fmt(f),
            RunError::Replay(error) => error.fmt(f),
            RunError::File { path, error } if path.as_os_str().is_empty() => error.fmt(f),
            RunError::File { path, error } => write!(f, "{}: {error}", path.display()),
            RunError::Foreign(all) => {
                let Some(first) = all.first() else { return f.write_str("other logs") };
                match all.len() - 1 {
                    0 => first.fmt(f),
                    more => write!(f, "{first}; and {more} more such markers"),
                }
            }
            RunError::Held => f.write_str(
                "the log is full of another lane's bytes: `tidewater recover` or `tidewater drain` its lane, or give \
                 the device a larger log (fast.log_size)",
            ),
            RunError::System { what, error } => write!(f, "can't {what}: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<LogError> for RunError {
    fn from(error: LogError) -> RunError {
        RunError::Log(error)
    }
}

impl From<FilesError> for RunError {
    fn from(error: FilesError) -> RunError {
        RunError::File { path: PathBuf::new(), error }
    }
}
