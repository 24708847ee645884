//! The state of a transport: its peers, and its part as replica, candidate or leader.

use tidewater_base::{Duration, Instant};
use tidewater_wire::replication::{Epoch, Group, History, LANES_MAX, Reason};

/// A node that frames go to. What is due for it is a flag, not a queue: that is the bound.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) node: u8,
    /// The carrier's hint.
    pub(super) link_up: bool,
    /// Four round trips to it, as far as they are measured.
    pub(super) retry: Duration,
    pub(super) propose_due: bool,
    pub(super) accept_due: bool,
    /// A frame of this epoch is to be refused.
    pub(super) refuse: Option<(Epoch, Reason)>,
    /// Set when this node sends its log there.
    pub(super) flow: Option<Flow>,
}

impl Peer {
    pub(super) fn new(node: u8) -> Peer {
        Peer {
            node,
            link_up: true,
            retry: Duration::ZERO,
            propose_due: false,
            accept_due: false,
            refuse: None,
            flow: None,
        }
    }
}

/// A mirror flow.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Lanes that the peer has reported in this epoch.
    pub(super) known: u16,
    pub(super) synced: bool,
    pub(super) stale: bool,
    pub(super) data_failed: bool,
    pub(super) counter_failed: bool,
    pub(super) attach_due: bool,
    /// The attachment says where the log ends.
    pub(super) ends_due: bool,
    pub(super) keep_alive_due: bool,
    /// For each lane the trim that was sent last; and it is time to send others.
    pub(super) trim_sent: [u64; LANES_MAX],
    pub(super) trim_due: bool,
    /// Keep-alives since all trims were sent anew.
    pub(super) trim_turns: u32,
    /// Lanes of which it is to be said what the host waits for on flash; and up to where it was said last.
    pub(super) flush_due: u16,
    pub(super) flush_sent: [u64; LANES_MAX],
    /// Bytes past its counter that the peer takes in a lane.
    pub(super) window: u32,
    /// The peer's own counters.
    pub(super) shadow: [u64; LANES_MAX],
    /// Bytes that the peer, and in a chain all after it, have.
    pub(super) covered: [u64; LANES_MAX],
    /// The part of them that is on flash there.
    pub(super) destaged: [u64; LANES_MAX],
    /// Whether their rings outlive a power cut.
    pub(super) ring_survives: bool,
    /// The next offset to send.
    pub(super) sent: [u64; LANES_MAX],
    /// For each lane what is to be sent once more: from where, to where.
    pub(super) again: [(u64, u64); LANES_MAX],
    /// The lane that sends next.
    pub(super) lane: usize,
    /// Some lane has bytes that the peer has not confirmed.
    pub(super) outstanding: bool,
    pub(super) attach_at: Instant,
    pub(super) attach_wait: Duration,
    pub(super) keep_alive_at: Instant,
    /// When unconfirmed bytes are sent again.
    pub(super) again_at: Instant,
    pub(super) again_wait: Duration,
    /// Where the rate of catching up is limited, the next bytes from flash are sent from here on.
    pub(super) flash_at: Instant,
    /// The last report.
    pub(super) heard_at: Instant,
    /// The last time that a shadow counter moved, or that nothing was outstanding.
    pub(super) moved_at: Instant,
}

impl Flow {
    pub(super) fn new(now: Instant) -> Flow {
        Flow {
            known: 0,
            synced: false,
            stale: false,
            data_failed: false,
            counter_failed: false,
            attach_due: true,
            ends_due: false,
            keep_alive_due: false,
            trim_sent: [0; LANES_MAX],
            trim_due: false,
            trim_turns: 0,
            flush_due: 0,
            flush_sent: [0; LANES_MAX],
            window: 0,
            shadow: [0; LANES_MAX],
            covered: [0; LANES_MAX],
            destaged: [0; LANES_MAX],
            ring_survives: false,
            sent: [0; LANES_MAX],
            again: [(0, 0); LANES_MAX],
            lane: 0,
            outstanding: false,
            attach_at: Instant::NEVER,
            attach_wait: Duration::ZERO,
            keep_alive_at: Instant::NEVER,
            again_at: Instant::NEVER,
            again_wait: Duration::ZERO,
            flash_at: Instant::ZERO,
            heard_at: now,
            moved_at: now,
        }
    }

    /// Goes back to what the peer has confirmed.
    pub(super) fn go_back(&mut self) {
        self.sent = self.shadow;
        self.again = [(0, 0); LANES_MAX];
        self.trim_sent = [0; LANES_MAX];
    }

    /// Sends the first `bytes` that the peer has not confirmed once more: they may be late, and all behind them, too.
    pub(super) fn send_again(&mut self, bytes: u64) {
        for (again, (&from, &sent)) in self.again.iter_mut().zip(self.shadow.iter().zip(&self.sent)) {
            *again = (from, sent.min(from.saturating_add(bytes)));
        }
        self.trim_sent = [0; LANES_MAX];
    }

    /// The part of a lane that is to be sent once more.
    pub(super) fn again_of(&self, lane: usize) -> Option<(u64, u64)> {
        let (from, to) = self.again[lane];
        Some((from.max(self.shadow[lane]), to)).filter(|(from, to)| from < to)
    }
}

/// Twice this wait, or `first`, at most `max`.
pub(super) fn back_off(wait: Duration, first: Duration, max: Duration) -> Duration {
    if wait.is_zero() { first } else { (wait * 2).min(max).max(first) }
}

/// Reports that a replica owes, and messages that an acceptor owes to its candidate.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    /// Whom it takes the log from and reports to.
    pub(super) upstream: Option<u8>,
    /// Lanes whose report is to be sent now.
    pub(super) due: u16,
    /// Lanes whose report says the window too.
    pub(super) full: u16,
    /// Lanes whose report is to be sent at the next tick.
    pub(super) changed: u16,
    /// For each lane the end of what its primary has sent, where reports may leave at once.
    pub(super) received: [u64; LANES_MAX],
    pub(super) tick_at: Instant,
    /// When a counter that had changed was reported last.
    pub(super) reported_at: Instant,
    pub(super) keep_alive_at: Instant,
    pub(super) heard_at: Instant,
    /// For each lane what the candidate has asked for and was not sent yet: from where, to where.
    pub(super) pulls: [(u64, u64); LANES_MAX],
    /// Where its log has to end in each lane so that what it lost is there again; `None`: no answer has come.
    pub(super) regain: Option<[u64; LANES_MAX]>,
}

impl Follower {
    pub(super) fn new() -> Follower {
        Follower {
            upstream: None,
            due: 0,
            full: 0,
            changed: 0,
            received: [0; LANES_MAX],
            tick_at: Instant::NEVER,
            reported_at: Instant::ZERO,
            keep_alive_at: Instant::NEVER,
            heard_at: Instant::ZERO,
            pulls: [(0, 0); LANES_MAX],
            regain: None,
        }
    }

    /// It follows a primary from now on: all counters are reported at once.
    pub(super) fn attached(&mut self, now: Instant, lanes: u16, keep_alive: Duration) {
        (self.due, self.full) = (lanes, lanes);
        self.changed = 0;
        self.received = [0; LANES_MAX];
        self.tick_at = Instant::NEVER;
        self.keep_alive_at = now + keep_alive;
        self.heard_at = now;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }
}

/// A promotion that is under way.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) epoch: Epoch,
    pub(super) target: Group,
    pub(super) force: bool,
    /// The operator sets the group up with this device's log: there is no other that could have more.
    pub(super) first: bool,
    pub(super) phase: Phase,
    pub(super) retry_at: Instant,
    pub(super) retry_wait: Duration,
    /// When a forced promotion goes on with the members that have answered, or a pull without progress gives up.
    pub(super) over_at: Instant,
}

/// How far a promotion is.
#[expect(clippy::large_enum_variant, reason = "there is one at most, and it is boxed")]
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Nodes are asked to accept.
    Collect {
        /// Those that did, this one first.
        acceptors: Vec<Acceptor>,
        /// The highest rank among them, and the history of one that has it.
        best: ((Epoch, Epoch), History),
    },
    /// The missing part of the log is fetched.
    Pull {
        /// For each lane where the log has to end, and who has it.
        targets: [(u64, u8); LANES_MAX],
        /// Lanes that have to ask.
        due: u16,
        /// For each lane the end of what was asked for.
        asked: [u64; LANES_MAX],
    },
}

/// The log of a node that has accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acceptor {
    pub(super) node: u8,
    /// The worth of its log: the version of the group that it was last synced in, and the epoch. A primary of a group
    /// that was replaced without its knowing may make epochs above those of the new group.
    pub(super) rank: (Epoch, Epoch),
    /// It may have acknowledged more of its epoch than it has.
    pub(super) lost: bool,
    pub(super) oldest: [u64; LANES_MAX],
    pub(super) ends: [u64; LANES_MAX],
}

/// The deadline, and what was acknowledged when it passed.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub(super) epoch: Epoch,
    pub(super) until: Instant,
    pub(super) frozen: Option<Frozen>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frozen {
    pub(super) since: Instant,
    /// Acknowledged as durable.
    pub(super) durable: [u64; LANES_MAX],
}

/// Whether a primary may acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leadership {
    /// The device has no deadline, or is no primary.
    Free,
    /// Until then, by the clock that goes into the transport.
    Until(Instant),
    /// Nothing since then.
    Frozen(Instant),
}

impl Leader {
    pub(super) fn new() -> Leader {
        Leader { epoch: Epoch::ZERO, until: Instant::ZERO, frozen: None }
    }

    /// The most that may be acknowledged as durable.
    pub(super) fn durable_most(&self, lane: usize) -> u64 {
        self.frozen.map_or(u64::MAX, |frozen| frozen.durable[lane])
    }
}
