//! What goes into a transport and comes out of it: the log it looks at, events, commands, frames, and what outlives a
//! power cut.

pub use crate::border::{GroupCommand as Command, GroupError as CommandError};
use tidewater_base::Duration;
use tidewater_wire::replication::{Epoch, Frame, Group, History, Mode};
use tidewater_wire::vendor::Role;

/// A destaged page that holds log bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRef {
    /// The unique number of its stamp, under which its bytes are stored.
    pub sequence: u64,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Its valid bytes.
    pub len: u32,
}

/// Where the carrier of a data frame finds its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// In the ring's memory, at the frame's offset.
    Ring,
    /// On flash.
    Page {
        /// The page.
        sequence: u64,
        /// Valid bytes of the page before the frame's first.
        skip: u32,
    },
}

/// A frame to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The node that it is for.
    pub peer: u8,
    /// The frame.
    pub frame: Frame,
    /// For a data frame, where its bytes are.
    pub source: Option<Source>,
    /// The frame may leave once this version ([`Transport::version`](super::Transport::version)) of what has to outlive
    /// a power cut is durable. Else a node could forget a promise that a peer counts on. Memory that is not volatile is
    /// durable at once.
    pub after: u64,
}

/// The log of a function, as the transport sees it. Lanes are numbered from 0; offsets are stream offsets.
pub trait LocalLog {
    /// End of the lane's stable bytes: contiguous, persistent, and below the floor that the host set. A power cut and
    /// the host change nothing below it.
    fn persisted(&self, lane: usize) -> u64;
    /// End of the lane's bytes on flash; no more than [`LocalLog::persisted`]. Where flash is a backing store that has
    /// to be synced: of what was synced because the transport wanted it
    /// ([`Transport::wanted`](super::Transport::wanted)).
    fn destaged(&self, lane: usize) -> u64;
    /// Whether bytes of the ring that are not on flash yet outlive a power cut.
    fn ring_survives(&self) -> bool;
    /// The oldest offset of the lane that can still be read, from ring or flash. The end of a lane that holds nothing.
    fn oldest(&self, lane: usize) -> u64;
    /// The oldest offset that is still in the ring's memory.
    fn in_ring_from(&self, lane: usize) -> u64;
    /// The destaged page that holds this offset.
    fn page_at(&self, lane: usize, offset: u64) -> Option<PageRef>;
    /// Bytes past the persisted counter that a lane's intake queue takes.
    fn window(&self) -> u32;
    /// Takes these bytes of the data frame at hand, as a store would be taken: what is below the persisted counter is
    /// skipped, and false says that the rest did not fit in the window. Called only within
    /// [`Transport::handle`](super::Transport::handle) for that frame.
    fn accept(&mut self, lane: usize, offset: u64, len: u32) -> bool;
    /// Forgets all at and past `to`, on flash too, also what is in the queue or on its way there. `to` is at most the
    /// persisted counter, which it becomes. Until [`Transport::version`](super::Transport::version) is durable a crash
    /// has to bring the bytes back: a deposed primary that forgot why it was cut would give their places to others.
    fn truncate(&mut self, lane: usize, to: u64);
    /// The offset below which the host of the log has no use for a lane's bytes.
    fn trimmed(&self, _lane: usize) -> u64 {
        0
    }
    /// The primary's host has no use for a lane's bytes below `to`, which is at most the persisted counter.
    fn trim(&mut self, _lane: usize, _to: u64) {}
    /// Forgets the whole lane, which then holds nothing and goes on at `at`.
    fn restart(&mut self, lane: usize, at: u64);
}

/// Times and sizes. The defaults suit peers some microseconds away; see [`Config::network`] for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The function: 0 is the physical one.
    pub function: u8,
    /// Lanes, `1..=16`.
    pub lanes: u8,
    /// A replica reports its counters at multiples of this time, when one has changed. Default 0.4 us, the shortest of
    /// the paper's figure 13.
    pub report_period: Duration,
    /// A counter that has not been reported for a period is reported as it changes. Default no: the paper's timer runs
    /// freely.
    pub report_at_once: bool,
    /// Without a change it reports after this time, and a primary without data speaks too. Default 100 us: 1/250 of the
    /// reports of a busy lane.
    pub keep_alive: Duration,
    /// First time-out after which bytes, proposals, attachments and pulls are sent again; it doubles each time. Default
    /// 50 us: ten times the paper's shadow latency. For bytes, and where round trips are measured, it is four of them
    /// if that is more.
    pub retry: Duration,
    /// Longest such time-out. Default 5 ms.
    pub retry_max: Duration,
    /// Reports that show no progress for this time mean that data does not arrive. Default 1 ms.
    pub data_timeout: Duration,
    /// No report for this time means that counter updates do not come back. Default 1 ms: ten keep-alives.
    pub counter_timeout: Duration,
    /// A forced promotion waits this long for the members that live; a promotion whose sources give nothing for it
    /// starts anew. Default 20 ms: four of the longest retries.
    pub promotion_timeout: Duration,
    /// Log bytes in a frame, at most; not 0. Default 4 KiB.
    pub payload_max: u32,
    /// Reports say too what is on flash, and are sent when that changes. Default no: on mapped memory a report is one
    /// write of 8 bytes, which has no room for it.
    pub report_destaged: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            function: 0,
            lanes: 1,
            report_period: Duration::from_ns(400),
            report_at_once: false,
            keep_alive: Duration::from_us(100),
            retry: Duration::from_us(50),
            retry_max: Duration::from_ms(5),
            data_timeout: Duration::from_ms(1),
            counter_timeout: Duration::from_ms(1),
            promotion_timeout: Duration::from_ms(20),
            payload_max: 4096,
            report_destaged: false,
        }
    }
}

impl Config {
    /// For peers that are reached by TCP, some 20 us to 10 ms away. A process of a busy host may not run for tens of
    /// milliseconds: time-outs that are meant for links in hardware would report failures that are none.
    pub fn network() -> Config {
        Config {
            report_period: Duration::from_us(50),
            report_at_once: true,
            keep_alive: Duration::from_ms(10),
            // Four round trips of 500 us. TCP itself sends again what a network loses: this is for what a carrier
            // drops, and for a connection that was made anew.
            retry: Duration::from_ms(2),
            // As Linux's least time-out of TCP (TCP_RTO_MIN).
            retry_max: Duration::from_ms(200),
            data_timeout: Duration::from_ms(1_000),
            counter_timeout: Duration::from_ms(1_000),
            promotion_timeout: Duration::from_ms(5_000),
            payload_max: 64 << 10,
            report_destaged: true,
            ..Config::default()
        }
    }
}

/// What outlives a power cut, as part of the control block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Persistent {
    /// This node's number in its group.
    pub node: u8,
    /// Its role. A candidate is a secondary here: a promotion does not outlive a power cut.
    pub role: Role,
    /// The group, which is one of node 0 alone before any was set up.
    pub group: Group,
    /// A change of the group that was accepted and is not known to be finished.
    pub pending: Option<Group>,
    /// The newest version of the group that is known to have been, though the group itself may not be known.
    pub floor: Epoch,
    /// The highest epoch that was accepted.
    pub promised: Epoch,
    /// The newest epoch in which the log was complete up to the epoch's start.
    pub synced: Epoch,
    /// The version of the group of which `synced` is an epoch.
    pub synced_in: Epoch,
    /// The epochs of the log.
    pub history: History,
    /// The operator allows that the log is thrown away to rejoin.
    pub rebuild: bool,
    /// It has lost memory that held log bytes, which may have been acknowledged, or is new: until it holds what its
    /// primary has, or what a newer epoch began with, what others have of its epoch counts, and not what it has.
    pub lost: bool,
    /// It acknowledges as primary until its leader deadline only.
    pub led: bool,
}

impl Persistent {
    /// A stand-alone device.
    pub fn new() -> Persistent {
        Persistent {
            node: 0,
            role: Role::StandAlone,
            group: Group::new(Epoch::ZERO, Mode::Eager, &[0]).expect("one member is a group"),
            pending: None,
            floor: Epoch::ZERO,
            promised: Epoch::ZERO,
            synced: Epoch::ZERO,
            synced_in: Epoch::ZERO,
            history: History::default(),
            rebuild: false,
            lost: false,
            led: false,
        }
    }
}

impl Default for Persistent {
    fn default() -> Persistent {
        Persistent::new()
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The persisted counter of a lane has moved.
    Persisted {
        /// Lane.
        lane: usize,
    },
    /// More of a lane is on flash.
    Destaged {
        /// Lane.
        lane: usize,
    },
    /// A frame came in.
    Frame(Frame),
    /// A deadline has passed.
    Timer,
    /// The carrier knows that a peer can, or can't, be reached. A hint: without it time-outs tell.
    Link {
        /// Node.
        peer: u8,
        /// Whether it can be reached.
        up: bool,
        /// It was started anew: its counters may have fallen, so what it has is asked for again.
        restarted: bool,
    },
    /// The host waits until replicas have a lane's bytes below `to` where a power cut does not reach them.
    Flush {
        /// Lane.
        lane: usize,
        /// The offset.
        to: u64,
    },
    /// What the transport wanted on flash is there.
    Flushed {
        /// Lane.
        lane: usize,
    },
    /// The carrier has measured how long a frame takes to a peer and back.
    RoundTrip {
        /// Node.
        peer: u8,
        /// The time, smoothed.
        time: Duration,
    },
    /// How fast a replica that is behind is fed from flash.
    CatchUpRate {
        /// Bytes a second for each replica; 0: as fast as it takes them.
        bytes_per_second: u64,
    },
    /// A destage has failed for good, or works again.
    Destage {
        /// It failed.
        failed: bool,
    },
}
