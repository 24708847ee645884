//! The transport of one function: it ships the log to the peers of its replication group, and says how far credit may
//! go.
//!
//! A [`Transport`] is a state machine without I/O, clock or log bytes. It takes events ([`Transport::handle`]) and
//! commands ([`Transport::command`]), gives frames to send ([`Transport::poll`]), and looks at the function's log
//! through [`LocalLog`]. A data frame names log bytes, and its carrier copies them. The driver polls until
//! nothing comes, and calls back no later than [`Transport::deadline`].
//!
//! What has to outlive a power cut is [`Transport::persistent`], which is part of the control block, and where the log
//! was cut. [`Transport::version`] counts changes of both. **Durable before said:** as long as the current version is
//! not durable, the driver sends no frame ([`Transmit::after`]), tells the host nothing, and takes no stores. A promise
//! that was sent and then forgotten would let a deposed primary acknowledge; bytes of an epoch whose start was
//! forgotten would count as bytes of the epoch before.
//!
//! # The protocol, as far as ADR 7 leaves it open
//!
//! **Promise and sync.** A node keeps two epochs. `promised` is the highest it has accepted: frames of lower ones get a
//! refusal that carries it. `synced` is the newest epoch in which it held, in every lane, all that the epoch began
//! with. A replica that still catches up has taken over the epoch's history, which says truly what its bytes are, but
//! it is not synced: its counter stands behind no credit, and in a promotion it speaks only for its log as it was in
//! its own synced epoch. Without this distinction a short log of a high epoch could win over a long one that holds
//! acknowledged bytes.
//!
//! **Promotion** has three steps. The candidate proposes a new epoch; those that accept tell `synced` and the version
//! of the group that they were synced in, history and ends. Enough have accepted when they intersect every set that can
//! acknowledge, and when one of them was synced in the group as it is now (or all have accepted). The candidate then
//! takes over the log that was synced in the newest group, of those in the highest epoch, for each lane from the node
//! that has most of it: it cuts what is its own alone, and pulls what it lacks. Then it appends the epoch to the
//! history, is primary, and attaches its replicas. A source that dies meanwhile makes it propose anew, in a higher
//! epoch. A device that has lost memory since it acknowledged, or is new, counts for none of these sets until it holds
//! what its primary had when it asked, or what a newer epoch began with. No frame outlives its receiver's loss: what
//! was under way to a device that is gone must not reach the next one of its number.
//!
//! **Attach** carries the whole history (16 epochs at most; the oldest go first). A replica cuts its log where the
//! newest common epoch ends, here or there, and forgets what its queue holds out of order. One that shares no epoch and
//! was synced once is *stale*: nothing cuts its log by itself, because it may be one of few that hold acknowledged
//! bytes. The operator rebuilds it. So is one that lacks bytes that are nowhere anymore. A device that comes new into a
//! group starts over.
//!
//! **Change of the group** is a promotion with a target: it needs what the old group's mode asks for, a majority of the
//! old group, and what the new group's mode asks for. Who accepts one notes it as pending, and the version of the group
//! that it came from as its floor. Until it is finished it refuses promotions of older groups and other changes: else a
//! primary of the old group could cut what the new one acknowledged. Any member may finish it by proposing the same
//! target. `force` overrides a pending change.
//!
//! **Chain.** The primary, then the other members in the order of the group. Counters travel back along the chain: each
//! member reports what it and all after it have, so that each knows its two neighbours only and the head has one shadow
//! counter, as in the paper's section 4.2. The price is up to a report period for each link.
//!
//! **Credit.** A secondary acknowledges nothing to its host: its limit stays where it was when it was last primary, so
//! that a client of a deposed primary never takes bytes of its successor for its own. After a power loss it starts at
//! 0, and a primary's shadow counters are void until they come in again in its epoch; only a lazy primary (or a quorum
//! of 1) goes on at once, as it would have behind a partition.
//!
//! **Only stable bytes travel**: below the host's floor and persistent, so that what a peer has can't change here any
//! more.

mod bounds;
mod follower;
mod interface;
mod kept;
mod leader;
mod mirror;
mod promotion;
mod send;
mod state;
mod status;

use crate::flaw::Injected;
use bounds::newest_in;
#[cfg(test)]
use bounds::{COUNTER_MAX_OF_NEW, EPOCHS_AHEAD_MAX};
pub use interface::{Command, CommandError, Config, Event, LocalLog, PageRef, Persistent, Source, Transmit};
use kept::Kept;
pub use state::Leadership;
use state::{Candidate, Flow, Follower, Leader, Peer};
pub use status::{PeerStatus, Role, Status, flag};
use tidewater_base::Instant;
use tidewater_wire::replication::{Body, Epoch, Frame, Group, History, LANES_MAX, MEMBERS_MAX, Mode, Reason, Start};

/// Nodes that a transport talks to at once: members of an old and of a new group.
const PEERS_MAX: usize = 2 * MEMBERS_MAX;

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
    /// In a promotion a member that holds nothing counts for one that has all that it acknowledged.
    EmptyVotes,
    /// In a promotion a member whose memory is gone counts for one that has all that it acknowledged.
    LostVotes,
    /// A replica whose memory is gone counts again as soon as it has what its epoch began with.
    RegainEarly,
    /// Logs are ranked by epoch, whatever the group that it was an epoch of.
    RankByEpoch,
}

/// The transport of one function.
#[derive(Clone, Debug)]
pub struct Transport {
    config: Config,
    persistent: Kept,
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
    /// For each lane up to where the host of the primary waits for bytes on flash.
    wanted: [u64; LANES_MAX],
    /// Bytes a second of log that is no longer in the ring, to each peer; 0: no limit.
    catch_up_rate: u64,
    leader: Leader,
    flaw: Injected<Flaw>,
}

impl Transport {
    /// The transport of a new, stand-alone device. Asserts that `config` holds what its fields say.
    pub fn new(config: Config) -> Transport {
        Transport::resume(config, Persistent::new(), Instant::ZERO)
    }

    /// The transport of a device that was powered off. A secondary goes on where it was. A primary is primary in its
    /// epoch, but its shadow counters are void: it acknowledges what its peers report anew, and learns from their
    /// refusal that it is deposed.
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
            persistent: Kept::new(persistent, 0),
            now,
            wake: Instant::NEVER,
            peers: Vec::with_capacity(PEERS_MAX),
            cursor: 0,
            candidate: None,
            follower: Follower::new(),
            limit: [limit; LANES_MAX],
            flags: 0,
            cut: [0; LANES_MAX],
            wanted: [0; LANES_MAX],
            catch_up_rate: 0,
            leader: Leader::new(),
            flaw: Injected::NONE,
        };
        transport.reflow();
        transport
    }

    /// Takes an event.
    pub fn handle(&mut self, now: Instant, event: Event, log: &mut impl LocalLog) {
        self.now = self.now.max(now);
        self.freeze_if_due(log);
        match event {
            Event::Persisted { lane } => {
                if lane < self.lanes() {
                    self.persisted_moved(lane, log);
                }
            }
            Event::Destaged { lane } => {
                if lane < self.lanes() && self.config.report_destaged {
                    self.report_soon(1 << lane);
                }
            }
            Event::Frame(frame) => self.receive(frame, log),
            Event::Timer => {}
            Event::Link { peer, up, restarted } => self.link(peer, up, restarted),
            Event::Flush { lane, to } => {
                if lane < self.lanes() && self.persistent.role == Role::Primary && self.candidate.is_none() {
                    self.want(lane, to.min(log.persisted(lane)));
                }
            }
            Event::Flushed { lane } => {
                if lane < self.lanes() && self.follower.upstream.is_some() {
                    self.follower.due |= 1 << lane;
                }
            }
            Event::RoundTrip { peer, time } => {
                if let Some(peer) = self.peers.iter_mut().find(|known| known.node == peer) {
                    peer.retry = (time * 4).min(self.config.retry_max);
                }
            }
            Event::CatchUpRate { bytes_per_second } => self.catch_up_rate = bytes_per_second,
            Event::Destage { failed } => self.set_flag(flag::DESTAGE_FAILED, failed),
        }
        self.expire(log);
        self.freeze_if_due(log);
        self.persistent.settle();
    }

    /// Carries out an operator's command. What it starts may fail later: the status tells.
    pub fn command(&mut self, now: Instant, command: Command, log: &mut impl LocalLog) -> Result<(), CommandError> {
        self.now = self.now.max(now);
        self.freeze_if_due(log);
        let done = self.carry_out(command, log);
        if done.is_ok() {
            self.expire(log);
        }
        self.freeze_if_due(log);
        self.persistent.settle();
        done
    }

    fn carry_out(&mut self, command: Command, log: &mut impl LocalLog) -> Result<(), CommandError> {
        let alone = self.persistent.role == Role::StandAlone;
        match command {
            Command::Setup { node, group, primary, epoch, force } => {
                if !alone {
                    return Err(CommandError::InGroup);
                }
                if !group.contains(node) {
                    return Err(CommandError::NotMember(node));
                }
                self.step_down(log);
                // What was acknowledged alone is not acknowledged by the group yet.
                self.limit = [0; LANES_MAX];
                let own = self.persistent.change();
                own.node = node;
                own.group = group.at(Epoch::ZERO);
                own.pending = None;
                own.floor = Epoch::ZERO;
                own.synced = Epoch::ZERO;
                own.synced_in = Epoch::ZERO;
                // A device of its number may have been in the group before.
                own.lost = true;
                self.reflow();
                if primary {
                    self.propose(group.at(Epoch::ZERO), epoch, [force, true], log)?;
                }
            }
            _ if alone => return Err(CommandError::StandAlone),
            Command::Promote { target, epoch, force } => {
                let group = self.persistent.group;
                let target = target.unwrap_or(group);
                if !target.contains(self.persistent.node) {
                    return Err(CommandError::NotMember(self.persistent.node));
                }
                self.propose(target, epoch, [force, false], log)?;
            }
            Command::Demote => {
                self.set_flag(flag::DEPOSED | flag::REFUSED, false);
                self.step_down(log);
            }
            Command::LostMemory => {
                self.step_down(log);
                let place = self.first_beyond(log).unwrap_or(usize::MAX);
                let own = self.persistent.change();
                own.lost = true;
                // Of an epoch that began beyond its end it holds nothing that it could speak for.
                if own.history.position(own.synced).is_some_and(|synced| synced >= place) {
                    let before = place.checked_sub(1).map(|before| own.history.starts()[before].epoch);
                    (own.synced, own.synced_in) = (before.unwrap_or(Epoch::ZERO), Epoch::ZERO);
                }
            }
            Command::StandAlone => self.leave(log)?,
            Command::Rebuild => {
                if self.persistent.role != Role::Secondary {
                    return Err(CommandError::NotSecondary);
                }
                self.persistent.change().rebuild = true;
            }
            Command::Lead { epoch, lasts } => self.lead(epoch, lasts)?,
        }
        Ok(())
    }

    /// The next instant at which [`Transport::handle`] has to be called with [`Event::Timer`].
    pub fn deadline(&self) -> Option<Instant> {
        (self.wake < Instant::NEVER).then_some(self.wake)
    }

    /// How far credit may go in a lane, as far as peers are concerned. It goes back only for bytes that are cut, and
    /// when a stand-alone device is put into a group.
    pub fn replicated(&self, lane: usize) -> u64 {
        self.limit[lane]
    }

    /// As [`Transport::replicated`], of what peers have on flash, as far as their reports say that
    /// ([`Config::report_destaged`]). 0 in a secondary, and it goes back with each change of epoch or group: until
    /// peers have reported anew.
    pub fn replicated_durable(&self, lane: usize) -> u64 {
        match self.persistent.role {
            Role::StandAlone => u64::MAX,
            Role::Primary => self.acknowledged_durable(lane).min(self.leader.durable_most(lane)),
            Role::Secondary => 0,
        }
    }

    /// Up to where the primary's host waits for a lane's bytes on flash.
    pub fn wanted(&self, lane: usize) -> u64 {
        self.wanted[lane]
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

    /// Counts the changes of what has to outlive a power cut: it is raised when [`Transport::persistent`] is another,
    /// and when the log is cut or started over. Roles, epochs and groups change seldom; bytes that come and go do not
    /// raise it. It is not kept itself: with each power-on it begins at 0, which is durable.
    pub fn version(&self) -> u64 {
        self.persistent.version()
    }

    /// Takes the place of a transport that had counted so far: a version never comes twice between power-ons.
    pub fn count_from(&mut self, version: u64) {
        self.persistent = Kept::new(self.persistent().clone(), version);
    }

    /// The shadow counters: for each peer that this device sends to, its node and its counters as last reported. In a
    /// chain these are the counters of the rest of the chain.
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
            && own.promised != Epoch::ZERO
            && own.promised.node() != own.node
    }

    /// The place of a peer in the table; it is made when there is none. Peers outside of the group make room for
    /// others.
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
        self.wanted = [0; LANES_MAX];
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
        if self.persistent.role != Role::Primary || self.candidate.is_some() || self.is_frozen() {
            return;
        }
        let limit = self.acknowledged_by_mode(lane, |flow| flow.covered[lane]);
        self.limit[lane] = self.limit[lane].max(limit);
    }

    fn acknowledged_durable(&self, lane: usize) -> u64 {
        self.acknowledged_by_mode(lane, |flow| flow.destaged[lane])
    }

    /// What the mode makes of a counter of each peer that stands behind credit.
    fn acknowledged_by_mode(&self, lane: usize, counter: impl Fn(&Flow) -> u64) -> u64 {
        let bit = 1 << lane;
        let unsynced = self.flaw.is(Flaw::CountUnsynced);
        let counters = self
            .peers
            .iter()
            .filter_map(|peer| peer.flow.as_ref())
            .map(|flow| if flow.known & bit != 0 && (flow.synced || unsynced) { counter(flow) } else { 0 });
        match self.persistent.group.mode() {
            Mode::Lazy => u64::MAX,
            Mode::Eager | Mode::Chain => counters.min().unwrap_or(u64::MAX),
            Mode::Quorum(k) => {
                // The primary's own counter is never below a shadow: the k-th largest of all is the (k - 1)-th largest
                // shadow.
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
        }
    }

    /// Stops being primary or candidate. Credit stays where it is.
    fn step_down(&mut self, log: &impl LocalLog) {
        self.candidate = None;
        for lane in 0..self.lanes() {
            self.limit[lane] = self.limit[lane].min(log.persisted(lane));
        }
        self.persistent.change().role = Role::Secondary;
        self.follower.regain = None;
        // What a candidate asked for is of its epoch, and of the log as it was.
        self.follower.pulls = [(0, 0); LANES_MAX];
        self.reflow();
    }

    /// Takes note that there is a higher epoch, or a newer group: a primary is deposed.
    fn depose(&mut self, promised: Epoch, log: &impl LocalLog) {
        let own = self.persistent.change();
        own.promised = own.promised.max(promised);
        let (primary, candidate) = (self.persistent.role == Role::Primary, self.candidate.is_some());
        self.step_down(log);
        self.flags |= if primary { flag::DEPOSED } else { 0 } | if candidate { flag::REFUSED } else { 0 };
    }

    /// Leaves the group. What is written from here on is an epoch of its own, so that it is cut should the device come
    /// back.
    fn leave(&mut self, log: &mut impl LocalLog) -> Result<(), CommandError> {
        let epoch = self.persistent.promised.next(self.persistent.node).ok_or(CommandError::EpochsUsedUp)?;
        self.step_down(log);
        // Beyond what it is synced with, the log may end before its newest epoch starts. One that does not is whole: it
        // was never another node's: the device may have waited for a primary that did not come.
        let starts = self.persistent.history.last_offsets();
        if (0..self.lanes()).any(|lane| log.persisted(lane) < starts[lane]) {
            let (history, ends) = self.synced_log(log);
            for (lane, &end) in ends.iter().enumerate().take(self.lanes()) {
                log.truncate(lane, end.max(log.oldest(lane)));
            }
            self.persistent.log_cut();
            self.persistent.change().history = history;
        }
        self.begin_epoch(epoch, log);
        let own = self.persistent.change();
        own.role = Role::StandAlone;
        own.promised = epoch;
        own.pending = None;
        own.led = false;
        own.lost = false;
        self.peers.clear();
        self.limit = [u64::MAX; LANES_MAX];
        self.flags &= flag::DESTAGE_FAILED;
        Ok(())
    }

    /// The place of the first epoch that began beyond the log's end: a log may have lost bytes.
    fn first_beyond(&self, log: &impl LocalLog) -> Option<usize> {
        let beyond = |start: &Start| (0..self.lanes()).any(|lane| log.persisted(lane) < start.offsets[lane]);
        self.persistent.history.starts().iter().position(beyond)
    }

    /// Adds an epoch that starts here to the history. Epochs that began beyond the log's end are forgotten, and with
    /// them their bytes in other lanes.
    fn begin_epoch(&mut self, epoch: Epoch, log: &mut impl LocalLog) {
        if let Some(place) = self.first_beyond(log) {
            let ends = self.persistent.history.starts()[place].offsets;
            for (lane, &end) in ends.iter().enumerate().take(self.lanes()) {
                let end = end.max(log.oldest(lane));
                if end < log.persisted(lane) {
                    log.truncate(lane, end);
                }
            }
            self.persistent.log_cut();
            let history = &mut self.persistent.change().history;
            match place.checked_sub(1) {
                Some(before) => history.cut_after(before),
                None => *history = History::default(),
            }
        }
        let offsets = self.ends(log);
        let own = self.persistent.change();
        let pushed = own.history.push(Start { epoch, offsets });
        assert!(pushed, "epoch {epoch} does not follow {:?}", own.history);
        own.synced = epoch;
        own.synced_in = own.group.version();
    }

    fn receive(&mut self, frame: Frame, log: &mut impl LocalLog) {
        let node = self.persistent.node;
        let ours = frame.function == self.config.function && frame.to == node && frame.from != node;
        if !ours || self.persistent.role == Role::StandAlone {
            return;
        }
        if self.persistent.is_far(newest_in(&frame)) {
            return self.set_flag(flag::FAR_EPOCH, true);
        }
        let Frame { from, epoch, body, .. } = frame;
        let fenced = epoch < self.persistent.promised;
        match body {
            Body::Accepted(accepted) => self.accepted(from, epoch, *accepted, log),
            Body::Refuse { promised, reason, group } => self.refused(from, epoch, promised, reason, group, log),
            Body::Report { lane, synced, window, persisted, covered, durable, lost } => {
                if usize::from(lane) < self.lanes() {
                    let lane = usize::from(lane);
                    self.report(from, epoch, lane, [synced, lost], window, ([persisted, covered], durable), log);
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
            Body::Trim { lane, to } => {
                if self.follows(from, epoch) && usize::from(lane) < self.lanes() {
                    self.follower.heard(self.now);
                    let lane = usize::from(lane);
                    log.trim(lane, to.min(log.persisted(lane)));
                }
            }
            Body::Flush { lane, to } => {
                if self.follows(from, epoch) && usize::from(lane) < self.lanes() {
                    self.follower.heard(self.now);
                    let lane = usize::from(lane);
                    self.want(lane, to.min(log.persisted(lane)));
                    // It may be there already, and the report that said so may have been lost.
                    self.report_soon(1 << lane);
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
        let own = &self.persistent;
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
                    let own = self.persistent.change();
                    match reason {
                        Reason::Group => {
                            own.floor = own.floor.max(group.version());
                            if group.contains(own.node) {
                                own.group = group;
                                own.pending = None;
                            }
                        }
                        _ => own.pending = Some(group),
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

#[cfg(test)]
mod tests;
