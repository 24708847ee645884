//! Inputs for the log of a function, and from its peers.

use super::GroupCommand;
use crate::content::Content;
use tidewater_base::Duration;
use tidewater_wire::replication::Frame;

/// An input for the log of one function.
#[derive(Clone, Debug)]
pub enum LogInput<'a> {
    /// A mapped client says how far it has stored; with the bytes that are new, as one snapshot.
    Announce {
        /// The lane.
        lane: u8,
        /// The end of what is stored.
        tail: u64,
        /// The bytes since it last said so.
        content: Content<'a>,
    },
    /// A mapped client has no use for what it stored before an offset, and has not said what that is.
    Skip {
        /// The lane.
        lane: u8,
        /// Where its stream goes on.
        to: u64,
    },
    /// The backing store has failed, and has this much of a lane: what lies behind it outlives nothing, and is not
    /// credited.
    Withhold {
        /// The lane.
        lane: u8,
        /// End of what is stored.
        from: u64,
    },
    /// A frame from a peer, with the bytes that it names.
    Frame {
        /// The frame.
        frame: Box<Frame>,
        /// The bytes of a data frame; else empty.
        content: Content<'a>,
    },
    /// The carrier of frames knows that a peer can be reached, or can't: a hint, without which time-outs tell. What
    /// comes while the drive recovers is dropped.
    Link {
        /// The node.
        peer: u8,
        /// Whether it can be reached.
        up: bool,
        /// It was started anew: what it had only in memory may be gone, and its counters may have fallen.
        restarted: bool,
    },
    /// The carrier of frames has measured how long one takes to a peer and back.
    RoundTrip {
        /// The node.
        peer: u8,
        /// The time, smoothed.
        time: Duration,
    },
    /// How fast a replica that is behind is fed from flash, so that the log of the present keeps its bandwidth.
    CatchUpRate {
        /// Bytes a second for each replica; 0: as fast as it takes them.
        bytes_per_second: u64,
    },
    /// The host of a primary waits until replicas have a lane's bytes where a power cut does not reach them.
    Flush {
        /// The lane.
        lane: u8,
        /// End of the bytes.
        to: u64,
    },
    /// The backing store has synced a lane's bytes, of the log as it was at a version of it
    /// ([`Transport::version`](crate::fast::transport::Transport::version)): what was cut since does not count.
    Flushed {
        /// The lane.
        lane: u8,
        /// End of the bytes.
        to: u64,
        /// The version.
        version: u64,
    },
    /// An operator's wish for the function's replication group. Answered by
    /// [`Output::Grouped`](super::Output::Grouped).
    Group(GroupCommand),
}
