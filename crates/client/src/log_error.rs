//! Why an operation on a live log failed.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use nix::errno::Errno;

use tidewater_driver::vfio_user::{NvmeError, SocketError};

use crate::Level;

/// A device of a list that is not the one, and why.
#[derive(Debug)]
pub struct Tried {
    /// Its socket.
    pub path: PathBuf,
    /// Why it was not taken.
    pub why: LogError,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            // It has the path already.
            why @ LogError::Unreachable { .. } => why.fmt(f),
            why => write!(f, "{}: {why}", self.path.display()),
        }
    }
}

/// Why an operation on a log failed. [`LogError::errno`] says it in one number.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The target is of no kind that is known.
    #[error(
        "`{0}` is not a valid target: give vfio-user:SOCKET, several with commas between them, or \
         cluster:etcd=HOST:PORT/NAME"
    )]
    Target(String),
    /// The device could not be reached.
    #[error("{}: {error}", .path.display())]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The device has gone, or the connection to it. What is in the ring stays: reattach.
    #[error("the device has disconnected; the ring keeps its content: reconnect when the device runs again")]
    Gone,
    /// The device turned this client away: a function has one at a time, and another is connected.
    #[error("the device is busy with another client, or is shutting down: a function has one client at a time")]
    Taken,
    /// The device runs, and did not answer in time: it was stopped, its machine was, or its disk takes long. What it
    /// answers later is of no use to this connection: reattach.
    #[error(
        "the device has not answered for {} s; the ring keeps its content: reconnect when the device answers again",
        .waited.as_secs()
    )]
    NoReply {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The device does not let rings be mapped.
    #[error("the device does not map its rings: start `tidewater serve` with --ring")]
    NotMapped,
    /// The lane is not there.
    #[error("lane {lane} is not in use: there are {lanes}")]
    NoLane {
        /// The lane.
        lane: u8,
        /// How many there are.
        lanes: u16,
    },
    /// Another process, or another handle, writes the lane.
    #[error("lane {lane} is in use by another writer")]
    Busy {
        /// The lane.
        lane: u8,
    },
    /// The ring's file is not what it should be.
    #[error("the ring's file: {0}")]
    Ring(String),
    /// The device refused a message.
    #[error("vfio-user command {command} was refused: {error}")]
    Refused {
        /// The vfio-user command.
        command: u16,
        /// Why.
        error: io::Error,
    },
    /// A command ended with a status.
    #[error("{what} ended with {status}")]
    Status {
        /// The command.
        what: &'static str,
        /// The status.
        status: String,
    },
    /// The device said what makes no sense.
    #[error("invalid state of the device: {what}")]
    Malformed {
        /// The fault.
        what: String,
    },
    /// The system refused something.
    #[error("can't {what}: {errno}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// The ring is full, and the device has not taken enough of it in time.
    #[error("the ring stayed full for {waited:?}")]
    Full {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The device's backing store takes nothing more: see to its disk, and start the device again. A log device whose
    /// image is a file and whose disk was full does that by itself. What is in the ring stays.
    #[error("the device cannot write its image: {}; {}: the ring keeps its content", .errno.desc(), next_step(*.errno))]
    Store {
        /// The error of the device's system call.
        errno: Errno,
    },
    /// The ring of logical pages is full: trim the log.
    #[error("the ring of logical pages is full: trim the log")]
    Untrimmed,
    /// More than the ring has.
    #[error("{bytes} bytes exceed the ring of {most}")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that fit at most.
        most: u64,
    },
    /// More writers than the lane has slots.
    #[error("the lane has no slot for another writer")]
    Writers,
    /// These bytes are not there any more.
    #[error("offset {offset} is no longer readable")]
    Released {
        /// The first of them.
        offset: u64,
    },
    /// A promotion has cut bytes that were read.
    #[error(
        "the bytes from {at} to {read} were read and are no part of the log any more: a promotion has cut them; what \
         REMOTE_RING has acknowledged is cut by `tidewater cluster group promote --force` alone"
    )]
    Cut {
        /// Stream offset of the first of them.
        at: u64,
        /// Up to where the log was read.
        read: u64,
    },
    /// There are no such bytes yet.
    #[error("the log ends after {filled} bytes")]
    NoMoreLog {
        /// Bytes that were read.
        filled: usize,
    },
    /// It did not come to this in time. It may still: wait again for the same offset.
    #[error("timed out with the log at {at} of {wanted}; it may still complete: wait again")]
    TimedOut {
        /// Where it stands.
        at: u64,
        /// Where it was to come to.
        wanted: u64,
    },
    /// The stream goes on elsewhere (a loss of power, a function that was set up anew): reattach, and see from which
    /// offset on.
    #[error("the stream continues at another offset: reconnect")]
    Stale,
    /// The device marked the stream broken.
    #[error("the device marked the stream broken: set the lane up anew")]
    Broken,
    /// The connection to the device is another process's, and so is a record that it began.
    #[error("this process joined the lane; only the process that opened it can do that")]
    Joined,
    /// The device is a secondary: its primary takes what is appended.
    #[error("the device is a secondary: append on its primary, or promote it with `tidewater cluster group`")]
    Secondary,
    /// The device is primary of an epoch that has ended.
    #[error("the device is primary of an earlier epoch: it was deposed")]
    Deposed,
    /// None of the devices is primary.
    #[error("none of the devices is primary: {}", all_of(.tried))]
    NoPrimary {
        /// All that were asked.
        tried: Vec<Tried>,
    },
    /// etcd names no primary of a cluster, or one that this program does not reach.
    #[error("cluster {name}: {why}")]
    Cluster {
        /// Its name.
        name: String,
        /// Why, since when, and what to do.
        why: String,
    },
    /// There is no such cluster in etcd, or this program can't ask.
    #[error("cluster {name}: {why}")]
    NoCluster {
        /// Its name.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// The new primary's log has other bytes, or more: another program has appended to it.
    #[error(
        "the log of the new primary goes on otherwise from {at}: another program has appended to it; open the log anew"
    )]
    Overtaken {
        /// Stream offset of the first byte that is another.
        at: u64,
    },
    /// The new primary's log ends before what this program still has: its mode waited for no replica.
    #[error("the bytes from {from} to {to} are on no device any more: the old primary alone had them (a lazy group?)")]
    Lost {
        /// Stream offset of the first.
        from: u64,
        /// And after the last.
        to: u64,
    },
    /// The device has replicas, or none, that do not acknowledge at this level.
    #[error("{level} is not available: {why}")]
    NotReplicated {
        /// The level.
        level: Level,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Not enough replicas have it in time. They still may: wait again for the same offset.
    #[error(
        "timed out with the replicas at {at} of {wanted} ({}); it may still complete: wait again",
        late_words(late)
    )]
    ReplicasLate {
        /// Up to where enough have it.
        at: u64,
        /// Where they were to come to.
        wanted: u64,
        /// Nodes that can't be reached or are behind, as `1, 2`.
        late: String,
    },
    /// The primary's leader deadline has passed: it acknowledges nothing until its keeper extends that, or another
    /// member is promoted. Wait again for the same offset.
    #[error(
        "timed out with the replicas at {at} of {wanted}: the primary's leader deadline has passed, so it acknowledges \
         nothing (see `tidewater cluster group status`); it may still complete: wait again"
    )]
    Frozen {
        /// Up to where it was acknowledged.
        at: u64,
        /// Where it was to come to.
        wanted: u64,
    },
    /// A log in the byte window: in words.
    #[error("a log in the byte window: {why}")]
    Window {
        /// As a number of the system.
        errno: Errno,
        /// Why.
        why: String,
    },
}

/// The remedy for this error of a device's disk.
fn next_step(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => {
            "make room on its disk; a device that does not start itself anew then is to be started again"
        }
        _ => "repair its disk and start the device again",
    }
}

fn all_of(tried: &[Tried]) -> String {
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Which replicas are late, in words. All may report in time and yet have less than is waited for.
fn late_words(late: &str) -> String {
    match late {
        "" => "all report, and have not come so far".into(),
        late => format!("late or unreachable: node {late}"),
    }
}

impl LogError {
    /// As an error of a connection that ended before the first reply.
    pub(crate) fn turned_away(self) -> LogError {
        if let LogError::Gone = self { LogError::Taken } else { self }
    }

    /// Why a system call failed; `what` names what it was for, as a verb: "map the ring".
    pub fn system(what: &'static str) -> impl Fn(Errno) -> LogError {
        move |errno| LogError::System { what, errno }
    }

    /// The error as a number of the system: EAGAIN ring full, ENOSPC untrimmed log, ENXIO bytes that are gone,
    /// ETIMEDOUT outcome unknown, EPIPE device gone, EHOSTDOWN device that does not answer, EBUSY another client's,
    /// ESTALE the stream goes on elsewhere, EIO broken for good, EROFS a secondary, ENOTSUP a level that nothing
    /// offers, or what only the process that opened the log can do.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            LogError::Full { .. } => Errno::EAGAIN,
            LogError::Untrimmed => Errno::ENOSPC,
            LogError::Released { .. } => Errno::ENXIO,
            LogError::TimedOut { .. }
            | LogError::NoMoreLog { .. }
            | LogError::ReplicasLate { .. }
            | LogError::Frozen { .. } => Errno::ETIMEDOUT,
            LogError::Secondary | LogError::Deposed => Errno::EROFS,
            LogError::NoPrimary { tried } => match tried.iter().any(|it| matches!(it.why, LogError::Secondary)) {
                true => Errno::EROFS,
                false => Errno::EPIPE,
            },
            LogError::Gone | LogError::Cluster { .. } => Errno::EPIPE,
            LogError::NoReply { .. } => Errno::EHOSTDOWN,
            LogError::Stale | LogError::Cut { .. } | LogError::Overtaken { .. } | LogError::Lost { .. } => {
                Errno::ESTALE
            }
            LogError::NotReplicated { .. } | LogError::NotMapped | LogError::Joined => Errno::EOPNOTSUPP,
            LogError::Target(_) | LogError::TooLarge { .. } => Errno::EINVAL,
            LogError::NoLane { .. } => Errno::ENODEV,
            LogError::NoCluster { .. } => Errno::ENOENT,
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

impl From<SocketError> for LogError {
    fn from(error: SocketError) -> LogError {
        match error {
            SocketError::Unreachable { path, error } => LogError::Unreachable { path, error },
            SocketError::Io(_) => LogError::Gone,
            SocketError::Timeout { waited, .. } => LogError::NoReply { waited },
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
            NvmeError::Timeout { waited, .. } => LogError::NoReply { waited },
            NvmeError::System(errno) => LogError::System { what: "make memory for queues", errno },
            NvmeError::Status(status) => {
                LogError::Status { what: "a command that sets the controller up", status: status.to_string() }
            }
            error => LogError::Malformed { what: error.to_string() },
        }
    }
}
