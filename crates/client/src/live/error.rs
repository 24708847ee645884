//! Why a live log did not do as it was told.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;

use tidewater_driver::vfio_user::{NvmeError, SocketError};

use super::Level;

/// Why an operation on a live log failed. [`LiveError::errno`] says it in one number.
#[derive(Debug)]
pub enum LiveError {
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

impl LiveError {
    /// What it means to be left before anything was said.
    pub(crate) fn turned_away(self) -> LiveError {
        if let LiveError::Gone = self { LiveError::Taken } else { self }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> LiveError {
        move |errno| LiveError::System { what, errno }
    }

    /// The error as a number of the system: EAGAIN ring full, ENOSPC untrimmed log, ENXIO bytes that are gone,
    /// ETIMEDOUT outcome unknown, EPIPE device gone, EBUSY another client's, ESTALE the stream goes on elsewhere, EIO
    /// broken for good, ENOTSUP a level that nothing offers, or what only the process that opened the log can do.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            LiveError::Full { .. } => Errno::EAGAIN,
            LiveError::Untrimmed => Errno::ENOSPC,
            LiveError::Released { .. } => Errno::ENXIO,
            LiveError::TimedOut { .. } | LiveError::NoMoreLog { .. } => Errno::ETIMEDOUT,
            LiveError::Gone | LiveError::NoReply => Errno::EPIPE,
            LiveError::Stale => Errno::ESTALE,
            LiveError::NotAvailable(_) | LiveError::NotMapped | LiveError::Joined => Errno::EOPNOTSUPP,
            LiveError::Target(_) | LiveError::TooLarge { .. } => Errno::EINVAL,
            LiveError::NoLane { .. } => Errno::ENODEV,
            LiveError::Busy { .. } | LiveError::Taken | LiveError::Writers => Errno::EBUSY,
            LiveError::Unreachable { error, .. } | LiveError::Refused { error, .. } => {
                error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
            }
            LiveError::System { errno, .. } | LiveError::Window { errno, .. } | LiveError::Store { errno } => *errno,
            LiveError::Broken | LiveError::Ring(_) | LiveError::Status { .. } | LiveError::Malformed { .. } => {
                Errno::EIO
            }
        };
        errno as i32
    }
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::Target(target) => write!(f, "`{target}` is no target: give vfio-user:SOCKET"),
            LiveError::Unreachable { path, error } => write!(f, "{}: {error}", path.display()),
            LiveError::Gone => f.write_str("the device has gone; what is in the ring stays: reattach"),
            LiveError::Taken => {
                f.write_str("the device serves another client, or was just ending: a function has one client at a time")
            }
            LiveError::NoReply => f.write_str("the device does not answer; what is in the ring stays: reattach"),
            LiveError::NotMapped => {
                f.write_str("the device lets no rings be mapped: start `tidewater serve` with --ring")
            }
            LiveError::NoLane { lane, lanes } => write!(f, "lane {lane} is not in use: there are {lanes}"),
            LiveError::Busy { lane } => write!(f, "lane {lane} is another writer's"),
            LiveError::Ring(why) => write!(f, "the ring's file: {why}"),
            LiveError::Refused { command, error } => write!(f, "vfio-user command {command} was refused: {error}"),
            LiveError::Status { what, status } => write!(f, "{what} ended with {status}"),
            LiveError::Malformed { what } => write!(f, "the device is not in order: {what}"),
            LiveError::System { what, errno } => write!(f, "can't {what}: {errno}"),
            LiveError::Full { waited } => write!(f, "the ring is full, and stayed so for {waited:?}"),
            LiveError::Store { errno } => write!(
                f,
                "the device's image can't be written: {}; see to its disk, and start the device again: \
                 what is in the ring stays",
                errno.desc()
            ),
            LiveError::Untrimmed => f.write_str("the ring of logical pages is full: trim the log"),
            LiveError::TooLarge { bytes, most } => write!(f, "{bytes} bytes never fit into a ring of {most}"),
            LiveError::Writers => f.write_str("the lane has no slot for another writer"),
            LiveError::Released { offset } => write!(f, "offset {offset} is no longer readable"),
            LiveError::NoMoreLog { filled } => write!(f, "the log ends after {filled} bytes"),
            LiveError::TimedOut { at, wanted } => {
                write!(f, "the log stood at {at} of {wanted}; it may still come: wait again")
            }
            LiveError::Stale => f.write_str("the stream goes on elsewhere: reattach"),
            LiveError::Broken => f.write_str("the device marked the stream broken: set the lane up anew"),
            LiveError::Joined => f.write_str("this process shares the lane; the one that opened it can do that"),
            LiveError::NotAvailable(level) => write!(f, "{level} is not available: the device has no replicas"),
            LiveError::Window { why, .. } => write!(f, "a log in the byte window: {why}"),
        }
    }
}

impl std::error::Error for LiveError {}

impl From<SocketError> for LiveError {
    fn from(error: SocketError) -> LiveError {
        match error {
            SocketError::Unreachable { path, error } => LiveError::Unreachable { path, error },
            SocketError::Io(_) => LiveError::Gone,
            SocketError::Timeout { .. } => LiveError::NoReply,
            SocketError::Refused { command, errno } => LiveError::Refused { command, error: errno.into() },
            SocketError::Malformed { command } => {
                LiveError::Malformed { what: format!("the reply to vfio-user command {command}") }
            }
        }
    }
}

impl From<NvmeError> for LiveError {
    fn from(error: NvmeError) -> LiveError {
        match error {
            NvmeError::Socket(error) => error.into(),
            NvmeError::System(errno) => LiveError::System { what: "make memory for queues", errno },
            NvmeError::Status(status) => {
                LiveError::Status { what: "a command that sets the controller up", status: status.to_string() }
            }
            error => LiveError::Malformed { what: error.to_string() },
        }
    }
}
