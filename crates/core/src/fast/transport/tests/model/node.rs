//! One node of the model: the real transport over a log in memory, without absolute time.

use super::super::*;

/// The one instant at which all happens, and the one at which all timers that run would end.
const NOW: Instant = Instant::from_ps(1 << 40);
const LATER: Instant = Instant::from_ps(1 << 50);

/// A frame, and the units that a data frame carries.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Parcel {
    pub(super) frame: Frame,
    units: Vec<Unit>,
}

/// A timer of a transport. Any that runs may end at any time, which is more than real clocks do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Timer {
    /// Proposals, or pulls, are sent again.
    Candidate,
    /// A replica reports anew.
    KeepAlive,
    /// A peer is attached anew.
    Attach(u8),
    /// What a peer has not confirmed is sent again.
    Again(u8),
}

/// What happens to a node.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Happening {
    Frame(Parcel),
    Timer(Timer),
    Command(Command),
    Write(Unit),
    /// All that has changed is durable now.
    Sync,
    /// The power is cut, and comes back. What was not durable is forgotten.
    Crash {
        /// Bytes that have come in since are in the ring. Where it was cut meanwhile, bytes are there again.
        kept: bool,
    },
    /// The machine crashes: what was not durable is forgotten, and all bytes are lost. What comes of that is durable
    /// before anything else happens: where it is not, the next start finds the same.
    Lose,
    /// A peer was started anew.
    Restarted(u8),
    /// [`Defect::FenceAfterAppend`]: the log bytes under way are in the log, and confirmed.
    Append,
}

/// What the driver of a transport does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Defect {
    /// Frames leave before what they speak of is durable.
    SaidBeforeDurable,
    /// Stores are taken, and credit is shown, before the epoch that they belong to is durable.
    StoredBeforeDurable,
    /// Log bytes are checked against the promise, and put into the log by another thread some time later.
    FenceAfterAppend,
    /// A log that is cut loses its bytes before the reason for it is durable.
    CutBeforeDurable,
}

/// A node between two happenings. Its text is all that there is to say of it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) transport: Transport,
    pub(super) log: MemLog,
    /// What a crash goes back to, unless all is durable.
    durable: Option<Box<(Persistent, MemLog)>>,
    /// Frames that wait for it.
    held: Vec<Parcel>,
    /// Log bytes under way, and the frames that confirm them.
    appending: Option<(Parcel, Vec<Parcel>)>,
}

impl Node {
    pub(super) fn new(flaw: Injected<Flaw>) -> Node {
        let config = Config { payload_max: 8, ..Config::default() };
        let mut transport = Transport::new(config);
        transport.flaw = flaw;
        let mut node = Node { transport, log: MemLog::new(1), durable: None, held: Vec::new(), appending: None };
        node.forget_time();
        node
    }

    pub(super) fn is_durable(&self) -> bool {
        self.durable.is_none()
    }

    pub(super) fn is_appending(&self) -> bool {
        self.appending.is_some()
    }

    /// Credit, as far as the host may know of it.
    pub(super) fn credit(&self, defect: Option<Defect>) -> Option<u64> {
        let is_known = self.is_durable() || defect == Some(Defect::StoredBeforeDurable);
        let primary = self.transport.persistent().role == Role::Primary;
        (primary && is_known).then(|| self.transport.replicated(0).min(self.log.persisted(0)))
    }

    pub(super) fn takes_stores(&self, defect: Option<Defect>) -> bool {
        self.transport.writable() && (self.is_durable() || defect == Some(Defect::StoredBeforeDurable))
    }

    /// Timers that run.
    pub(super) fn timers(&self) -> Vec<Timer> {
        let mut timers = Vec::new();
        if self.transport.candidate.is_some() {
            timers.push(Timer::Candidate);
        }
        if self.transport.follower.upstream.is_some() {
            timers.push(Timer::KeepAlive);
        }
        for peer in &self.transport.peers {
            let Some(flow) = &peer.flow else { continue };
            if flow.attach_at != Instant::NEVER {
                timers.push(Timer::Attach(peer.node));
            }
            if flow.again_at != Instant::NEVER {
                timers.push(Timer::Again(peer.node));
            }
        }
        timers
    }

    /// What comes of a happening, and the frames that leave.
    pub(super) fn after(&self, happening: &Happening, defect: Option<Defect>) -> (Node, Vec<Parcel>) {
        let mut next = self.clone();
        let mut sent = Vec::new();
        match happening {
            Happening::Frame(parcel) => {
                let splits = defect == Some(Defect::FenceAfterAppend) && self.appending.is_none();
                if splits && matches!(parcel.frame.body, Body::Data { pulled: false, .. }) {
                    let mut other = self.clone();
                    other.take(parcel);
                    let confirms = other.settle();
                    if other.log.persisted(0) > self.log.persisted(0) {
                        next.appending = Some((parcel.clone(), confirms));
                        return (next, sent);
                    }
                }
                next.take(parcel);
            }
            Happening::Append => {
                let (parcel, confirms) = next.appending.take().expect("bytes are under way");
                if let Body::Data { lane, offset, len, .. } = parcel.frame.body {
                    next.log.incoming = (offset, parcel.units);
                    next.log.accept(lane.into(), offset, len);
                }
                sent = confirms;
            }
            Happening::Timer(timer) => next.fire(*timer),
            Happening::Command(command) => {
                // A refused command changes nothing: the model does not count the state as another.
                let _ = next.transport.command(NOW, *command, &mut next.log);
            }
            Happening::Write(unit) => {
                next.log.write(0, std::iter::once(*unit));
                next.transport.handle(NOW, Event::Persisted { lane: 0 }, &mut next.log);
            }
            Happening::Sync => {
                next.durable = None;
                next.transport.count_from(0);
                sent.append(&mut next.held);
            }
            Happening::Crash { kept } => next.crash(*kept, defect),
            Happening::Lose => {
                next.crash(false, defect);
                next.log.truncate(0, next.log.oldest(0));
                let lost = next.transport.command(NOW, Command::LostMemory, &mut next.log);
                assert_eq!(lost, Ok(()), "all are in the group");
                next.transport.count_from(0);
            }
            Happening::Restarted(peer) => {
                let event = Event::Link { peer: *peer, up: true, restarted: true };
                next.transport.handle(NOW, event, &mut next.log);
            }
        }
        let frames = next.settle();
        if next.transport.version() > 0 && next.durable.is_none() {
            next.durable = Some(Box::new((self.transport.persistent().clone(), self.log.clone())));
        }
        next.transport.count_from(u64::from(next.durable.is_some()));
        for parcel in frames {
            if next.is_durable() || defect == Some(Defect::SaidBeforeDurable) {
                sent.push(parcel);
            } else if !next.held.contains(&parcel) {
                next.held.push(parcel);
            }
        }
        next.forget_time();
        (next, sent)
    }

    fn take(&mut self, parcel: &Parcel) {
        if let Body::Data { offset, .. } = parcel.frame.body {
            self.log.incoming = (offset, parcel.units.clone());
        }
        self.transport.handle(NOW, Event::Frame(parcel.frame.clone()), &mut self.log);
    }

    fn crash(&mut self, kept: bool, defect: Option<Defect>) {
        let mut persistent = self.transport.persistent().clone();
        if let Some(durable) = self.durable.take() {
            let log;
            (persistent, log) = *durable;
            let was_cut = (log.oldest(0)..log.persisted(0)).any(|at| self.log.get(0, at) != log.get(0, at));
            if !kept || (was_cut && defect != Some(Defect::CutBeforeDurable)) {
                self.log = log;
            }
        }
        self.log.lanes[0].queue.clear();
        let flaw = self.transport.flaw;
        self.transport = Transport::resume(self.transport.config, persistent, NOW);
        self.transport.flaw = flaw;
        (self.held, self.appending) = (Vec::new(), None);
    }

    /// Log bytes reach the ring at once, reports are due at once, and all frames leave.
    fn settle(&mut self) -> Vec<Parcel> {
        if self.log.drain(0, usize::MAX) {
            self.transport.handle(NOW, Event::Persisted { lane: 0 }, &mut self.log);
        }
        self.log.lanes[0].queue.clear();
        self.log.incoming = (0, Vec::new());
        if self.transport.follower.tick_at != Instant::NEVER {
            self.transport.follower.tick_at = NOW;
            self.expire();
        }
        let mut frames = Vec::new();
        while let Some(Transmit { frame, source, .. }) = self.transport.poll(&mut self.log) {
            let units = match (&frame.body, source) {
                (Body::Data { offset, len, .. }, Some(source)) => self.log.read(0, *offset, *len, source),
                _ => Vec::new(),
            };
            frames.push(Parcel { frame, units });
        }
        frames
    }

    fn expire(&mut self) {
        self.transport.wake = NOW;
        self.transport.handle(NOW, Event::Timer, &mut self.log);
    }

    fn fire(&mut self, timer: Timer) {
        let it = &mut self.transport;
        match timer {
            Timer::Candidate => {
                if let Some(candidate) = &mut it.candidate {
                    candidate.retry_at = NOW;
                }
            }
            Timer::KeepAlive => it.follower.keep_alive_at = NOW,
            Timer::Attach(node) => {
                if let Some(flow) = it.flow(node) {
                    flow.attach_at = NOW;
                }
            }
            Timer::Again(node) => {
                if let Some(flow) = it.flow(node) {
                    flow.again_at = NOW;
                }
            }
        }
        self.expire();
    }

    /// Of each timer stays whether it runs: two nodes that differ in nothing else are one.
    fn forget_time(&mut self) {
        let it = &mut self.transport;
        let config = it.config;
        let later = |at: &mut Instant| {
            if *at != Instant::NEVER {
                *at = LATER;
            }
        };
        (it.now, it.wake, it.cursor) = (NOW, Instant::NEVER, 0);
        if let Some(candidate) = &mut it.candidate {
            (candidate.retry_at, candidate.over_at, candidate.retry_wait) = (LATER, LATER, config.retry);
        }
        let follower = &mut it.follower;
        later(&mut follower.tick_at);
        later(&mut follower.keep_alive_at);
        follower.heard_at = NOW;
        for flow in it.peers.iter_mut().filter_map(|peer| peer.flow.as_mut()) {
            later(&mut flow.attach_at);
            later(&mut flow.again_at);
            later(&mut flow.keep_alive_at);
            (flow.attach_wait, flow.again_wait) = (config.retry, config.retry);
            (flow.heard_at, flow.moved_at) = (NOW, NOW);
        }
        it.peers.sort_by_key(|peer| peer.node);
    }
}
