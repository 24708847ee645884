//! Why an operation on a live log failed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;

use tidewater_driver::vfio_user::{NvmeError, SocketError};

use crate::Level;

/// Why an operation on a log failed. [`LogError::errno`] says it in one number.
#[derive(Debug)]
pub enum LogError {
    /// The target is of no kind that is known.
    Target(String),
    /// The device could not be reached.
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The device has gone, or the connection to it. What is in the ring stays: reattach.
    Gone,
    /// The device turned this client away: a function has one at a time, and another is connected.
    Taken,
    /// The device did not answer in time: what it answers later is of no use. As if it had gone: reattach.
    NoReply,
    /// The device does not let rings be mapped.
    NotMapped,
    /// The lane is not there.
    NoLane {
        /// The lane.
        lane: u8,
        /// How many there are.
        lanes: u16,
    },
    /// Another process, or another handle, writes the lane.
    Busy {
        /// The lane.
        lane: u8,
    },
    /// The ring's file is not what it should be.
    Ring(String),
    /// The device refused a message.
    Refused {
        /// The vfio-user command.
        command: u16,
        /// Why.
        error: io::Error,
    },
    /// A command ended with a status.
    Status {
        /// The command.
        what: &'static str,
        /// The status.
        status: String,
    },
    /// The device said what makes no sense.
    Malformed {
        /// What.
        what: String,
    },
    /// The system refused something.
    System {
        /// What.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// The ring is full, and the device has not taken enough of it in time.
    Full {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The device's backing store takes nothing more: see to its disk, and start the device again. What is in the ring
    /// stays.
    Store {
        /// The error of the device's system call.
        errno: Errno,
    },
    /// The ring of logical pages is full: trim the log.
    Untrimmed,
    /// More than the ring has.
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that fit at most.
        most: u64,
    },
    /// More writers than the lane has slots.
    Writers,
    /// These bytes are not there any more.
    Released {
        /// The first of them.
        offset: u64,
    },
    /// There are no such bytes yet.
    NoMoreLog {
        /// Bytes that were read.
        filled: usize,
    },
    /// It did not come to this in time. It may still: wait again for the same offset.
    TimedOut {
        /// Where it stands.
        at: u64,
        /// Where it was to come to.
        wanted: u64,
    },
    /// The stream goes on elsewhere (a loss of power, a function that was set up anew): reattach, and see from which
    /// offset on.
    Stale,
    /// The device marked the stream broken.
    Broken,
    /// The connection to the device is another process's, and so is a record that it began.
    Joined,
    /// The device is a secondary: its primary takes what is appended.
    Secondary,
    /// The device has replicas, or none, that do not acknowledge at this level.
    NotReplicated {
        /// The level.
        level: Level,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Not enough replicas have it in time. They still may: wait again for the same offset.
    ReplicasLate {
        /// Up to where enough have it.
        at: u64,
        /// Where they were to come to.
        wanted: u64,
        /// Nodes that can't be reached or are behind, as `1, 2`.
        late: String,
    },
    /// Nothing offers this level of durability.
    NotAvailable(Level),
    /// A log in the byte window: in words.
    Window {
        /// As a number of the system.
        errno: Errno,
        /// Why.
        why: String,
    },
}

impl LogError {
    /// What it means to be left before anything was said.
    pub(crate) fn turned_away(self) -> LogError {
        if let LogError::Gone = self { LogError::Taken } else { self }
    }

    /// Why a system call failed; `what` names what it was for, as a verb: "map the ring".
    pub fn system(what: &'static str) -> impl Fn(Errno) -> LogError {
        move |errno| LogError::System { what, errno }
    }

    /// The error as a number of the system: EAGAIN ring full, ENOSPC untrimmed log, ENXIO bytes that are gone,
    /// ETIMEDOUT outcome unknown, EPIPE device gone, EBUSY another client's, ESTALE the stream goes on elsewhere, EIO
    /// broken for good, EROFS a secondary, ENOTSUP a level that nothing offers, or what only the process that opened the log can do.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            LogError::Full { .. } => Errno::EAGAIN,
            LogError::Untrimmed => Errno::ENOSPC,
            LogError::Released { .. } => Errno::ENXIO,
            LogError::TimedOut { .. } | LogError::NoMoreLog { .. } | LogError::ReplicasLate { .. } => Errno::ETIMEDOUT,
            LogError::Secondary => Errno::EROFS,
            LogError::Gone | LogError::NoReply => Errno::EPIPE,
            LogError::Stale => Errno::ESTALE,
            LogError::NotAvailable(_) | LogError::NotReplicated { .. } | LogError::NotMapped | LogError::Joined => {
                Errno::EOPNOTSUPP
            }
            LogError::Target(_) | LogError::TooLarge { .. } => Errno::EINVAL,
            LogError::NoLane { .. } => Errno::ENODEV,
            LogError::Busy { .. } | LogError::Taken | LogError::Writers => Errno::EBUSY,
            LogError::Unreachable { error, .. } | LogError::Refused { error, .. } => {
                error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
            }
            LogError::System { errno, .. } | LogError::Window { errno, .. } | LogError::Store { errno } => *errno,
            LogError::Broken | LogError::Ring(_) | LogError::Status { .. } | LogError::Malformed { .. } => Errno::EIO,
        };
        errno as i32
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Target(target) => write!(f, "`{target}` is not a valid target: give vfio-user:SOCKET"),
            LogError::Unreachable { path, error } => write!(f, "{}: {error}", path.display()),
            LogError::Gone => f.write_str(
                "the device has disconnected; the ring keeps its content: reconnect when \
                 the device runs again",
            ),
            LogError::Taken => f.write_str(
                "the device is busy with another client, or is shutting down: a function has one client at \
                     a time",
            ),
            LogError::NoReply => f.write_str(
                "the device does not respond; the ring keeps its content: reconnect when \
                 it responds again",
            ),
            LogError::NotMapped => {
                f.write_str("the device does not map its rings: start `tidewater serve` with --ring")
            }
            LogError::NoLane { lane, lanes } => write!(f, "lane {lane} is not in use: there are {lanes}"),
            LogError::Busy { lane } => write!(f, "lane {lane} is in use by another writer"),
            LogError::Ring(why) => write!(f, "the ring's file: {why}"),
            LogError::Refused { command, error } => write!(f, "vfio-user command {command} was refused: {error}"),
            LogError::Status { what, status } => write!(f, "{what} ended with {status}"),
            LogError::Malformed { what } => write!(f, "invalid state of the device: {what}"),
            LogError::System { what, errno } => write!(f, "can't {what}: {errno}"),
            LogError::Full { waited } => write!(f, "the ring stayed full for {waited:?}"),
            LogError::Store { errno } => write!(
                f,
                "the device cannot write its image: {}; repair its disk and start the device again: the ring keeps its \
                 content",
                errno.desc()
            ),
            LogError::Untrimmed => f.write_str("the ring of logical pages is full: trim the log"),
            LogError::TooLarge { bytes, most } => write!(f, "{bytes} bytes exceed the ring of {most}"),
            LogError::Writers => f.write_str("the lane has no slot for another writer"),
            LogError::Released { offset } => write!(f, "offset {offset} is no longer readable"),
            LogError::NoMoreLog { filled } => write!(f, "the log ends after {filled} bytes"),
            LogError::TimedOut { at, wanted } => {
                write!(f, "timed out with the log at {at} of {wanted}; it may still complete: wait again")
            }
            LogError::Stale => f.write_str("the stream continues at another offset: reconnect"),
            LogError::Broken => f.write_str("the device marked the stream broken: set the lane up anew"),
            LogError::Joined => f.write_str(
                "this process joined the lane; only the process that opened it can do \
                 that",
            ),
            LogError::NotAvailable(level) => write!(f, "{level} is not available"),
            LogError::Secondary => {
                f.write_str("the device is a secondary: append on its primary, or promote it with `tidewater group`")
            }
            LogError::NotReplicated { level, why } => write!(f, "{level} is not available: {why}"),
            LogError::ReplicasLate { at, wanted, late } => write!(
                f,
                "timed out with the replicas at {at} of {wanted} (late or unreachable: node {late}); it may still \
                 complete: wait again"
            ),
            LogError::Window { why, .. } => write!(f, "a log in the byte window: {why}"),
        }
    }
}

impl std::error::Error for LogError {}

impl From<SocketError> for LogError {
    fn from(error: SocketError) -> LogError {
        match error {
            SocketError::Unreachable { path, error } => LogError::Unreachable { path, error },
            SocketError::Io(_) => LogError::Gone,
            SocketError::Timeout { .. } => LogError::NoReply,
            SocketError::Refused { command, errno } => LogError::Refused { command, error: errno.into() },
            SocketError::Malformed { command } => {
                LogError::Malformed { what: format!("the reply to vfio-user command {command}") }
            }
        }
    }
}

impl From<NvmeError> for LogError {
    fn from(error: NvmeError) -> LogError {
        match error {
            NvmeError::Socket(error) => error.into(),
            NvmeError::System(errno) => LogError::System { what: "make memory for queues", errno },
            NvmeError::Status(status) => {
                LogError::Status { what: "a command that sets the controller up", status: status.to_string() }
            }
            error => LogError::Malformed { what: error.to_string() },
        }
    }
}
