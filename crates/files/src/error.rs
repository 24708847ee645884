//! Errors of changes of files, and of runs.

use std::fmt;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use tidewater_client::LogError;

use crate::PATIENCE;
use crate::interlock::Foreign;
use crate::report::ReplayError;
use crate::table::FILES_MAX;

/// Why a change of a file could not be recorded, or not be promised.
#[derive(Debug)]
pub enum FilesError {
    /// The log said so, just now: from now on nothing is promised.
    Log(LogError),
    /// It was said before, with this number of the system.
    Failed(u64),
    /// The system refused a call on the file.
    System(Errno),
    /// All places of the table are in use.
    TooMany,
    /// The file's last bytes may be on another log.
    Foreign(Box<Foreign>),
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilesError::Log(error) => show(error, f),
            FilesError::Failed(number) => match Errno::from_raw(*number as i32) {
                Errno::EPIPE => f.write_str("the device has disconnected"),
                _ if number & UNANSWERED != 0 => {
                    write!(f, "the device has not answered for {} s", PATIENCE.as_secs())
                }
                _ if number & UNREPLICATED != 0 => {
                    write!(f, "too few replicas have acknowledged within {} s", PATIENCE.as_secs())
                }
                _ if number & FROZEN != 0 => {
                    let secs = PATIENCE.as_secs();
                    write!(f, "the primary's leader deadline has passed, and it has acknowledged nothing for {secs} s")
                }
                errno if number & OF_STORE != 0 => LogError::Store { errno }.fmt(f),
                errno => write!(f, "the log has failed: {}", errno.desc()),
            },
            FilesError::System(errno) => f.write_str(errno.desc()),
            FilesError::Foreign(foreign) => foreign.fmt(f),
            FilesError::TooMany => write!(f, "more than {} files on the log", FILES_MAX),
        }
    }
}

/// An error of the log, in the words of one that was said before.
fn show(error: &LogError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        LogError::TimedOut { at, wanted } => {
            write!(f, "{} (the log is synced to {at} of {wanted})", FilesError::Failed(number_of(error)))
        }
        error => write!(f, "{error}"),
    }
}

impl From<Errno> for FilesError {
    fn from(errno: Errno) -> FilesError {
        FilesError::System(errno)
    }
}

/// In the number of what has failed: it is the device's backing store that has.
const OF_STORE: u64 = 1 << 32;

/// It is that the device does not answer.
const UNANSWERED: u64 = 1 << 33;
/// It is that replicas do not.
const UNREPLICATED: u64 = 1 << 34;
/// It is that the primary may not acknowledge.
const FROZEN: u64 = 1 << 35;

/// Encodes a failure for its word in the table.
pub(crate) fn number_of(error: &LogError) -> u64 {
    let kind = match error {
        LogError::Store { .. } => OF_STORE,
        LogError::NoReply { .. } | LogError::TimedOut { .. } => UNANSWERED,
        LogError::ReplicasLate { .. } => UNREPLICATED,
        LogError::Frozen { .. } => FROZEN,
        _ => 0,
    };
    kind | u64::from(error.errno().unsigned_abs())
}

impl FilesError {
    /// `errno` for the program's call.
    pub fn errno(&self) -> Errno {
        match self {
            FilesError::System(errno) | FilesError::Log(LogError::Store { errno }) => *errno,
            FilesError::Failed(number) if number & OF_STORE != 0 => Errno::from_raw(*number as i32),
            FilesError::TooMany => Errno::ENFILE,
            FilesError::Foreign(_) => Errno::EBUSY,
            FilesError::Log(_) | FilesError::Failed(_) => Errno::EIO,
        }
    }
}

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
            RunError::Log(error) => show(error, f),
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

impl RunError {
    /// Whether the log's group acknowledges nothing, and the device itself is well.
    pub fn is_of_group(&self) -> bool {
        let number = match self {
            RunError::Log(error) | RunError::File { error: FilesError::Log(error), .. } => number_of(error),
            RunError::File { error: FilesError::Failed(number), .. } => *number,
            _ => 0,
        };
        number & (UNREPLICATED | FROZEN) != 0
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_acknowledge_is_said_also_by_those_that_know_a_number_alone() {
        let (at, wanted) = (1, 2);
        for (error, words, is_of_group) in [
            (LogError::ReplicasLate { at, wanted, late: "1".into() }, "too few replicas have acknowledged", true),
            (LogError::Frozen { at, wanted }, "the primary's leader deadline has passed", true),
            (LogError::TimedOut { at, wanted }, "the device has not answered for 30 s", false),
            (LogError::Gone, "the device has disconnected", false),
        ] {
            let known = FilesError::Failed(number_of(&error));
            assert!(known.to_string().starts_with(words), "{known}");
            assert_eq!(known.errno(), Errno::EIO);
            assert_eq!(RunError::from(known).is_of_group(), is_of_group, "{words}");
            assert_eq!(RunError::Log(error).is_of_group(), is_of_group, "{words}");
        }
    }
}
