//! The transport of one function: it ships the log to the peers of its replication group, and says how far credit may go.
//!
//! A [`Transport`] is a state machine without I/O, clock or log bytes. It is told of events ([`Transport::handle`]) and commands
//! ([`Transport::command`]), gives frames to send ([`Transport::poll`]), and looks at the function's log through [`LocalLog`]. A
//! data frame names log bytes, and whoever carries it copies them. The driver polls until nothing comes, and calls back no
//! later than [`Transport::deadline`]. What has to outlive a power cut is [`Transport::persistent`]: it is part of the control
//! block, and what changes there is on the safe side before the next frame leaves.
//!
//! # The protocol, as far as ADR 7 leaves it open
//!
//! **Promise and sync.** A node keeps two epochs. `promised` is the highest it has accepted: frames of lower ones get a refusal
//! that carries it. `synced` is the newest epoch in which it held, in every lane, all that the epoch began with. A replica that
//! still catches up has taken over the epoch's history, which says truly what its bytes are, but it is not synced: its counter
//! stands behind no credit, and in a promotion it speaks only for its log as it was in its own synced epoch. Without this
//! distinction a short log of a high epoch could win over a long one that holds acknowledged bytes.
//!
//! **Promotion** has three steps. The candidate proposes a new epoch; those that accept tell `synced`, history and ends. With
//! enough of them, it takes over the log with the highest `synced`, for each lane from whoever has most of it: it cuts what
//! is its own alone, and pulls what it lacks. Then it appends the epoch to the history, is primary, and attaches its
//! replicas. A source that dies meanwhile makes it propose anew, in a higher epoch.
//!
//! **Attach** carries the whole history (16 epochs at most; the oldest go first). A replica cuts its log where the newest
//! common epoch ends, here or there, and forgets what its queue holds out of order. One that shares no epoch and was
//! synced once is *stale*: nothing cuts its log by itself, because it may be one of few that hold acknowledged bytes. The
//! operator rebuilds it. So is one that lacks bytes that are nowhere anymore. A device that comes new into a group starts over.
//!
//! **Change of the group** is a promotion with a target: it needs what the old group's mode asks for, a majority of the old
//! group, and what the new group's mode asks for. Who accepts one notes it as pending, and until it is finished refuses promotions
//! of the old group and other changes: else a primary of the old group could cut what the new one acknowledged.
//! Anyone may finish it by proposing the same target. `force` overrides a pending change.
//!
//! **Chain.** The primary, then the other members in the order of the group. Counters travel back along the chain: each
//! member reports what it and all after it have, so that each knows its two neighbours only and the head has one shadow counter, as in the
//! paper's section 4.2. The price is up to a report period for each link.
//!
//! **Credit.** A secondary acknowledges nothing to its host: its limit stays where it was when it was last primary, so that
//! a client of a deposed primary never takes bytes of its successor for its own. After a power loss it starts at 0, and a
//! primary's shadow counters are void until they come in again in its epoch; only a lazy primary (or a quorum of 1) goes on at
//! once, as it would have behind a partition.
//!
//! **Only stable bytes travel**: below the host's floor and persistent, so that what a peer has can't change here any more.

mod flow;
mod follower;
mod promotion;
mod send;
mod status;
#[cfg(test)]
mod tests;

use flow::{Flow, Peer};
use follower::Follower;
use promotion::Candidate;
pub use status::{PeerStatus, Role, Status, flag};
use std::fmt;
use tidewater_base::{Duration, Instant};
use tidewater_wire::replication::{Body, Epoch, Frame, Group, History, LANES_MAX, MEMBERS_MAX, Mode, Reason};

/// Nodes that a transport talks to at once: members of an old and of a new group.
const PEERS_MAX: usize = 2 * MEMBERS_MAX;

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
}

/// The log of a function, as the transport sees it. Lanes are numbered from 0; offsets are stream offsets.
pub trait LocalLog {
    /// End of the lane's stable bytes: contiguous, persistent, and below the floor that the host set. A power cut and the
    /// host change nothing below it.
    fn persisted(&self, lane: usize) -> u64;
    /// The oldest offset of the lane that can still be read, from ring or flash. The end of a lane that holds nothing.
    fn oldest(&self, lane: usize) -> u64;
    /// The oldest offset that is still in the ring's memory.
    fn in_ring_from(&self, lane: usize) -> u64;
    /// The destaged page that holds this offset.
    fn page_at(&self, lane: usize, offset: u64) -> Option<PageRef>;
    /// Bytes past the persisted counter that a lane's intake queue takes.
    fn window(&self) -> u32;
    /// Takes these bytes of the data frame at hand, as a store would be taken: what is below the persisted counter is skipped, and
    /// false says that the rest did not fit in the window. Called only within [`Transport::handle`] for that frame.
    fn accept(&mut self, lane: usize, offset: u64, len: u32) -> bool;
    /// Forgets all at and past `to`, on flash too, also what is in the queue or on its way there. `to` is at most the
    /// persisted counter, which it becomes.
    fn truncate(&mut self, lane: usize, to: u64);
    /// Forgets the whole lane, which then holds nothing and goes on at `at`.
    fn restart(&mut self, lane: usize, at: u64);
}

/// Times and sizes. The defaults suit peers some microseconds away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The function: 0 is the physical one.
    pub function: u8,
    /// Lanes, `1..=16`.
    pub lanes: u8,
    /// A replica reports its counters at multiples of this time, when one has changed. Default 0.4 us, the shortest of the
    /// paper's figure 13.
    pub report_period: Duration,
    /// Without a change it reports after this time, and a primary without data speaks too. Default 100 us: 1/250 of the
    /// reports of a busy lane.
    pub keep_alive: Duration,
    /// First time-out after which bytes, proposals, attachments and pulls are sent again; it doubles each time. Default 50 us:
    /// ten times the paper's shadow latency.
    pub retry: Duration,
    /// Longest such time-out. Default 5 ms.
    pub retry_max: Duration,
    /// Reports that show no progress for this time mean that data does not arrive. Default 1 ms.
    pub data_timeout: Duration,
    /// No report for this time means that counter updates do not come back. Default 1 ms: ten keep-alives.
    pub counter_timeout: Duration,
    /// A forced promotion waits this long for whoever lives; a promotion whose sources give nothing for it starts anew. Default 20 ms:
    /// four of the longest retries.
    pub promotion_timeout: Duration,
    /// Log bytes in a frame, at most; not 0. Default 4 KiB.
    pub payload_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            function: 0,
            lanes: 1,
            report_period: Duration::from_ns(400),
            keep_alive: Duration::from_us(100),
            retry: Duration::from_us(50),
            retry_max: Duration::from_ms(5),
            data_timeout: Duration::from_ms(1),
            counter_timeout: Duration::from_ms(1),
            promotion_timeout: Duration::from_ms(20),
            payload_max: 4096,
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
}

impl Persistent {
    /// A stand-alone device.
    pub fn new() -> Persistent {
        Persistent {
            node: 0,
            role: Role::StandAlone,
            group: Group::new(Epoch::NONE, Mode::Eager, &[0]).expect("one member is a group"),
            pending: None,
            promised: Epoch::NONE,
            synced: Epoch::NONE,
            synced_in: Epoch::NONE,
            history: History::default(),
            rebuild: false,
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
    },
    /// A destage has failed for good, or works again.
    Destage {
        /// It failed.
        failed: bool,
    },
}

/// What an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Puts a stand-alone device into a group. As primary it starts a promotion and keeps its log; as secondary it waits, and gives
    /// its log up for the primary's.
    Setup {
        /// Its number.
        node: u8,
        /// The group: the same on every member, with version [`Epoch::NONE`].
        group: Group,
        /// Whether it is to be primary.
        primary: bool,
        /// As in [`Command::Promote`].
        force: bool,
    },
    /// Makes a member primary.
    Promote {
        /// The group that it is to be primary of, when that changes; its version does not matter.
        target: Option<Group>,
        /// The operator says that whoever does not answer is dead: whoever answers is enough. Bytes that only others held are lost.
        force: bool,
    },
    /// Makes a primary, or a candidate, a secondary that waits for the next primary.
    Demote,
    /// Takes the device out of its group; it keeps its log. For the group it is dead.
    StandAlone,
    /// Allows a secondary to throw its log away, as far as that is needed to follow the primary.
    Rebuild,
}

/// Why a command is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// The device is in a group already: take it out first.
    InGroup,
    /// The device is in no group: set it up first.
    StandAlone,
    /// This node is no member of the group: list it.
    NotMember(u8),
    /// The command is for a secondary: demote the device first.
    NotSecondary,
    /// The epochs are used up.
    EpochsUsedUp,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::InGroup => f.write_str("the device is in a group: make it stand-alone first"),
            CommandError::StandAlone => f.write_str("the device is stand-alone: set up its group first"),
            CommandError::NotMember(node) => write!(f, "node {node} is no member of the group: list it"),
            CommandError::NotSecondary => f.write_str("only a secondary can be rebuilt: demote the device first"),
            CommandError::EpochsUsedUp => f.write_str("all epochs are used up: set the group up anew"),
        }
    }
}

impl std::error::Error for CommandError {}

/// A deliberate flaw, so that a test can show that it would notice one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// A promotion is content with one acceptor too few.
    AcceptTooFew,
    /// A replica that rejoins keeps its log.
    NoTruncation,
    /// A counter counts before its replica is synced, and in a promotion a replica speaks for all its bytes.
    CountUnsynced,
    /// A promotion does without a log that was synced in the group as it is now.
    NoHeir,
    /// Logs are ranked by epoch, whatever the group that it was an epoch of.
    RankByEpoch,
}

/// The transport of one function.
#[derive(Clone, Debug)]
pub struct Transport {
    config: Config,
    persistent: Persistent,
    now: Instant,
    /// No timer ends before this.
    wake: Instant,
    peers: Vec<Peer>,
    /// The peer that polls first.
    cursor: usize,
    candidate: Option<Box<Candidate>>,
    follower: Follower,
    /// The limit of each lane's credit.
    limit: [u64; LANES_MAX],
    flags: u32,
    /// Bytes of each lane that the last attachment cut.
    cut: [u64; LANES_MAX],
    #[cfg(test)]
    flaw: Option<Flaw>,
}

impl Transport {
    /// The transport of a new, stand-alone device. Asserts that `config` holds what its fields say.
    pub fn new(config: Config) -> Transport {
        Transport::resume(config, Persistent::new(), Instant::ZERO)
    }

    /// The transport of a device that was powered off. A secondary goes on where it was. A primary is primary in its epoch, but
    /// its shadow counters are void: it acknowledges what its peers report anew, and learns from their refusal that it is
    /// deposed.
    pub fn resume(config: Config, persistent: Persistent, now: Instant) -> Transport {
        assert!((1..=LANES_MAX).contains(&usize::from(config.lanes)), "a function has 1 to {LANES_MAX} lanes");
        assert!(config.payload_max > 0, "a frame carries at least one byte");
        assert!(
            [config.report_period, config.keep_alive, config.retry].iter().all(|time| !time.is_zero()),
            "a period of no time would keep the device busy for ever"
        );
        let limit = if persistent.role == Role::StandAlone { u64::MAX } else { 0 };
        let mut transport = Transport {
            config,
            persistent,
            now,
            wake: Instant::NEVER,
            peers: Vec::with_capacity(PEERS_MAX),
            cursor: 0,
            candidate: None,
            follower: Follower::new(),
            limit: [limit; LANES_MAX],
            flags: 0,
            cut: [0; LANES_MAX],
            #[cfg(test)]
            flaw: None,
        };
        transport.reflow();
        transport
    }

    /// Takes an event.
    pub fn handle(&mut self, now: Instant, event: Event, log: &mut impl LocalLog) {
        self.now = self.now.max(now);
        match event {
            Event::Persisted { lane } => {
                if lane < self.lanes() {
                    self.persisted_moved(lane, log);
                }
            }
            Event::Frame(frame) => self.receive(frame, log),
            Event::Timer => {}
            Event::Link { peer, up } => self.link(peer, up, log),
            Event::Destage { failed } => self.set_flag(flag::DESTAGE_FAILED, failed),
        }
        self.expire(log);
    }

    /// Carries out an operator's command. What it starts may fail later: the status tells.
    pub fn command(
        &mut self,
        now: Instant,
        command: Command,
        log: &mut impl LocalLog,
    ) -> Result<(), CommandError> {
        self.now = self.now.max(now);
        let alone = self.persistent.role == Role::StandAlone;
        match command {
            Command::Setup { node, group, primary, force } => {
                if !alone {
                    return Err(CommandError::InGroup);
                }
                if !group.contains(node) {
                    return Err(CommandError::NotMember(node));
                }
                self.step_down(log);
                self.persistent.node = node;
                self.persistent.group = group.at(Epoch::NONE);
                self.persistent.pending = None;
                self.persistent.synced = Epoch::NONE;
                self.persistent.synced_in = Epoch::NONE;
                self.reflow();
                if primary {
                    self.propose(group.at(Epoch::NONE), [force, true], log)?;
                }
            }
            _ if alone => return Err(CommandError::StandAlone),
            Command::Promote { target, force } => {
                let group = self.persistent.group;
                let target = target.unwrap_or(group);
                if !target.contains(self.persistent.node) {
                    return Err(CommandError::NotMember(self.persistent.node));
                }
                self.propose(target, [force, false], log)?;
            }
            Command::Demote => {
                self.set_flag(flag::DEPOSED | flag::REFUSED, false);
                self.step_down(log);
            }
            Command::StandAlone => self.leave(log)?,
            Command::Rebuild => {
                if self.persistent.role != Role::Secondary {
                    return Err(CommandError::NotSecondary);
                }
                self.persistent.rebuild = true;
            }
        }
        self.expire(log);
        Ok(())
    }

    /// The next instant at which [`Transport::handle`] has to be called with [`Event::Timer`].
    pub fn deadline(&self) -> Option<Instant> {
        (self.wake < Instant::NEVER).then_some(self.wake)
    }

    /// How far credit may go in a lane, as far as peers are concerned. It never goes back, but for bytes that are cut.
    pub fn replicated(&self, lane: usize) -> u64 {
        self.limit[lane]
    }

    /// Whether the host may write: in a stand-alone device and a primary. Stores to others are dropped.
    pub fn writable(&self) -> bool {
        match self.persistent.role {
            Role::StandAlone => true,
            Role::Primary => self.candidate.is_none(),
            Role::Secondary => false,
        }
    }

    /// The epoch that the function's log is in: new destaged pages carry it.
    pub fn epoch(&self) -> Epoch {
        self.persistent.history.last()
    }

    /// What has to outlive a power cut.
    pub fn persistent(&self) -> &Persistent {
        &self.persistent
    }

    /// The shadow counters: for each peer that this device sends to, its node and its counters as last reported. In a chain
    /// these are the counters of the rest of the chain.
    pub fn shadows(&self) -> impl Iterator<Item = (u8, &[u64])> {
        let lanes = self.lanes();
        self.peers.iter().filter_map(move |peer| Some((peer.node, &peer.flow.as_ref()?.covered[..lanes])))
    }

    fn lanes(&self) -> usize {
        usize::from(self.config.lanes)
    }

    /// One bit for each lane.
    fn all_lanes(&self) -> u16 {
        (u32::MAX >> (32 - u32::from(self.config.lanes))) as u16
    }

    #[cfg(test)]
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn has(&self, _: Flaw) -> bool {
        false
    }

    fn set_flag(&mut self, bit: u32, on: bool) {
        if on {
            self.flags |= bit;
        } else {
            self.flags &= !bit;
        }
    }

    /// Makes sure that the driver calls at `at`.
    fn arm(&mut self, at: Instant) {
        self.wake = self.wake.min(at);
    }

    /// Whether this is a secondary that follows the primary of the epoch it has promised itself to.
    fn attached(&self) -> bool {
        let own = &self.persistent;
        own.role == Role::Secondary
            && self.candidate.is_none()
            && own.promised == own.history.last()
            && own.promised != Epoch::NONE
            && own.promised.node() != own.node
    }

    /// The place of a peer in the table; it is made when there is none. Peers outside of the group make room for others.
    fn peer(&mut self, node: u8) -> Option<usize> {
        if let Some(place) = self.peers.iter().position(|peer| peer.node == node) {
            return Some(place);
        }
        if self.peers.len() == PEERS_MAX {
            let (group, pending) = (self.persistent.group, self.persistent.pending);
            let target = self.candidate.as_ref().map(|candidate| candidate.target);
            self.peers.retain(|peer| {
                group.contains(peer.node)
                    || pending.is_some_and(|group| group.contains(peer.node))
                    || target.is_some_and(|group| group.contains(peer.node))
            });
        }
        if self.peers.len() == PEERS_MAX {
            return None;
        }
        self.peers.push(Peer::new(node));
        Some(self.peers.len() - 1)
    }

    /// Whom this node sends its log to, and whom it takes it from, after role, group or epoch have changed.
    fn reflow(&mut self) {
        let own = &self.persistent;
        let (node, group, epoch, now) = (own.node, own.group, own.history.last(), self.now);
        let serving = own.role == Role::Primary && self.candidate.is_none();
        let attached = self.attached();
        let chain = group.mode() == Mode::Chain;
        for peer in &mut self.peers {
            peer.flow = None;
        }
        if serving || (attached && chain) {
            for &member in group.members() {
                let downstream = member != node && (!chain || predecessor(&group, epoch.node(), member) == Some(node));
                if downstream && let Some(place) = self.peer(member) {
                    self.peers[place].flow = Some(Flow::new(now));
                }
            }
            self.wake = now;
        }
        let upstream = match attached {
            true if chain => predecessor(&group, epoch.node(), node),
            true => Some(epoch.node()),
            false => None,
        };
        self.follower.upstream = upstream;
        if let Some(upstream) = upstream {
            self.peer(upstream);
            self.follower.attached(now, self.all_lanes(), self.config.keep_alive);
            self.wake = now;
        }
        for lane in 0..self.lanes() {
            self.update_limit(lane);
        }
    }

    /// The limit of a lane's credit, from role, mode and shadow counters.
    fn update_limit(&mut self, lane: usize) {
        if self.persistent.role != Role::Primary || self.candidate.is_some() {
            return;
        }
        let bit = 1 << lane;
        let unsynced = self.has(Flaw::CountUnsynced);
        let counters = self.peers.iter().filter_map(|peer| peer.flow.as_ref()).map(|flow| {
            if flow.known & bit != 0 && (flow.synced || unsynced) { flow.covered[lane] } else { 0 }
        });
        let limit = match self.persistent.group.mode() {
            Mode::Lazy => u64::MAX,
            Mode::Eager | Mode::Chain => counters.min().unwrap_or(u64::MAX),
            Mode::Quorum(k) => {
                // The primary's own counter is never below a shadow: the k-th largest of all is the (k - 1)-th largest shadow.
                let mut sorted = [0; MEMBERS_MAX];
                let mut len = 0;
                for counter in counters.take(MEMBERS_MAX) {
                    sorted[len] = counter;
                    len += 1;
                }
                sorted[..len].sort_unstable_by(|a, b| b.cmp(a));
                match usize::from(k) {
                    0 | 1 => u64::MAX,
                    k => sorted[k - 2],
                }
            }
        };
        self.limit[lane] = self.limit[lane].max(limit);
    }

    /// Stops being primary or candidate. Credit stays where it is.
    fn step_down(&mut self, log: &impl LocalLog) {
        self.candidate = None;
        for lane in 0..self.lanes() {
            self.limit[lane] = self.limit[lane].min(log.persisted(lane));
        }
        self.persistent.role = Role::Secondary;
        self.reflow();
    }

    /// Takes note that there is a higher epoch, or a newer group: a primary is deposed.
    fn depose(&mut self, promised: Epoch, log: &impl LocalLog) {
        self.persistent.promised = self.persistent.promised.max(promised);
        let (primary, candidate) = (self.persistent.role == Role::Primary, self.candidate.is_some());
        self.step_down(log);
        self.flags |= if primary { flag::DEPOSED } else { 0 } | if candidate { flag::REFUSED } else { 0 };
    }

    /// Leaves the group. What is written from here on is an epoch of its own, so that it is cut should the device come back.
    fn leave(&mut self, log: &mut impl LocalLog) -> Result<(), CommandError> {
        let epoch = self.persistent.promised.next(self.persistent.node).ok_or(CommandError::EpochsUsedUp)?;
        self.step_down(log);
        // Beyond what it is synced with, the log may end before its newest epoch starts.
        if self.persistent.synced != self.persistent.history.last() {
            let (history, ends) = self.synced_log(log);
            for (lane, &end) in ends.iter().enumerate().take(self.lanes()) {
                log.truncate(lane, end.max(log.oldest(lane)));
            }
            self.persistent.history = history;
        }
        self.begin_epoch(epoch, log);
        self.persistent.role = Role::StandAlone;
        self.persistent.promised = epoch;
        self.persistent.pending = None;
        self.peers.clear();
        self.limit = [u64::MAX; LANES_MAX];
        self.flags &= flag::DESTAGE_FAILED;
        Ok(())
    }

    /// Adds an epoch that starts here to the history.
    fn begin_epoch(&mut self, epoch: Epoch, log: &impl LocalLog) {
        let mut offsets = [0; LANES_MAX];
        for (lane, offset) in offsets.iter_mut().enumerate().take(self.lanes()) {
            *offset = log.persisted(lane);
        }
        let pushed = self.persistent.history.push(tidewater_wire::replication::Start { epoch, offsets });
        assert!(pushed, "epoch {epoch} does not follow {:?}", self.persistent.history);
        self.persistent.synced = epoch;
        self.persistent.synced_in = self.persistent.group.version();
    }

    fn receive(&mut self, frame: Frame, log: &mut impl LocalLog) {
        let node = self.persistent.node;
        let ours = frame.function == self.config.function && frame.to == node && frame.from != node;
        if !ours || self.persistent.role == Role::StandAlone {
            return;
        }
        let Frame { from, epoch, body, .. } = frame;
        let fenced = epoch < self.persistent.promised;
        match body {
            Body::Accepted(accepted) => self.accepted(from, epoch, *accepted, log),
            Body::Refuse { promised, reason, group } => self.refused(from, epoch, promised, reason, group, log),
            Body::Report { lane, synced, window, persisted, covered } => {
                if usize::from(lane) < self.lanes() {
                    self.report(from, epoch, usize::from(lane), synced, window, [persisted, covered], log);
                }
            }
            // The rest comes from those that would be followed.
            _ if fenced => self.refuse(from, epoch, Reason::Epoch),
            Body::Propose { force, base, target } => self.proposed(from, epoch, force, base, target, log),
            Body::Attach(attach) => self.attach(from, epoch, *attach, log),
            Body::Data { pulled, lane, offset, len } => {
                if usize::from(lane) < self.lanes() {
                    self.data(from, epoch, pulled, usize::from(lane), offset, len, log);
                }
            }
            Body::KeepAlive => {
                if self.follows(from, epoch) {
                    self.follower.heard(self.now);
                }
            }
            Body::Pull { lane, start, end } => {
                if usize::from(lane) < self.lanes() {
                    self.pull(from, epoch, usize::from(lane), start, end, log);
                }
            }
        }
    }

    /// Notes that a frame has to be refused.
    fn refuse(&mut self, node: u8, epoch: Epoch, reason: Reason) {
        if let Some(place) = self.peer(node) {
            self.peers[place].refuse = Some((epoch, reason));
        }
    }

    /// A peer refuses a frame that this node sent in `epoch`.
    fn refused(
        &mut self,
        from: u8,
        epoch: Epoch,
        promised: Epoch,
        reason: Reason,
        group: Group,
        log: &mut impl LocalLog,
    ) {
        let own = &mut self.persistent;
        let candidate = self.candidate.as_ref().is_some_and(|candidate| candidate.epoch == epoch);
        let current = epoch == own.promised && epoch == own.history.last();
        if !(candidate || current) || !self.peers.iter().any(|peer| peer.node == from) {
            return;
        }
        match reason {
            Reason::Epoch if promised > own.promised => self.depose(promised, log),
            Reason::Epoch => {}
            Reason::Group | Reason::Pending => {
                let serving = candidate || own.role == Role::Primary;
                if group.version() > own.group.version() && serving {
                    if reason == Reason::Group && group.contains(own.node) {
                        own.group = group;
                        own.pending = None;
                    } else {
                        own.pending = Some(group);
                    }
                    self.depose(promised, log);
                } else if candidate {
                    self.depose(promised, log);
                }
            }
            Reason::Stale => {
                if let Some(flow) = self.flow(from) {
                    flow.stale = true;
                }
            }
            Reason::Mismatch => {
                self.set_flag(flag::MISMATCH, true);
                if candidate {
                    self.depose(promised, log);
                }
            }
        }
    }
}

/// The member before `node` in a chain that `head` leads: the head, then the others in the order of the group.
fn predecessor(group: &Group, head: u8, node: u8) -> Option<u8> {
    let mut before = None;
    for member in std::iter::once(head).chain(group.members().iter().copied().filter(|&member| member != head)) {
        if member == node {
            return before;
        }
        before = Some(member);
    }
    None
}
