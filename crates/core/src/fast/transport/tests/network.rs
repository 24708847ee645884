//! The network, and the invariants.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidewater_base::Rng;
use tidewater_wire::replication::FRAME_BYTES_MAX;

/// What goes wrong on the way, in percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) drop: u64,
    pub(super) repeat: u64,
    /// Longest delay of a frame.
    pub(super) delay_us: u64,
}

pub(super) const FAIR: Weather = Weather { drop: 0, repeat: 0, delay_us: 2 };

pub(super) struct Node {
    pub(super) transport: Transport,
    pub(super) log: MemLog,
    /// Powered off until then.
    pub(super) down_until: Instant,
    /// Credit of each lane when last looked at, and whether it was primary then.
    credit: Vec<u64>,
    epoch: Epoch,
    /// Where each lane ended when the memory was lost last.
    had: Vec<u64>,
}

/// Frame bytes and log units on their way.
type Parcel = (Instant, u64, Vec<u8>, Vec<Unit>);

pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) weather: Weather,
    pub(super) config: Config,
    /// `blocked[from][to]`.
    pub(super) blocked: Vec<Vec<bool>>,
    parcels: BinaryHeap<Reverse<Parcel>>,
    count: u64,
    unit: Unit,
    /// For each lane what was acknowledged, in which epoch, and by which version of the group.
    pub(super) ledger: Vec<Vec<(Unit, Epoch, Epoch)>>,
    pub(super) frames: u64,
    pub(super) steps: u64,
    /// A deliberate flaw: a promise does not outlive a power cut.
    pub(super) forgets_promise: bool,
}

pub(super) type Check = Result<(), String>;

impl Network {
    pub(super) fn new(nodes: usize, lanes: usize, seed: u64) -> Network {
        let config = Config { lanes: lanes as u8, payload_max: 24, ..Config::default() };
        let node = |_| Node {
            transport: Transport::new(config),
            log: MemLog::new(lanes),
            down_until: Instant::ZERO,
            credit: vec![0; lanes],
            epoch: Epoch::ZERO,
            had: vec![0; lanes],
        };
        Network {
            nodes: (0..nodes).map(node).collect(),
            now: Instant::ZERO,
            rng: Rng::new(seed, b"transport network"),
            weather: FAIR,
            config,
            blocked: vec![vec![false; nodes]; nodes],
            parcels: BinaryHeap::new(),
            count: 0,
            unit: 0,
            ledger: vec![Vec::new(); lanes],
            frames: 0,
            steps: 0,
            forgets_promise: false,
        }
    }

    /// Puts all nodes into one group; node 0 becomes its primary.
    pub(super) fn set_up(&mut self, group: Group) {
        for node in (0..self.nodes.len()).rev() {
            let primary = node == 0;
            self.command(node, Command::Setup { node: node as u8, group, primary, epoch: Epoch::ZERO, force: false })
                .unwrap();
        }
    }

    pub(super) fn command(&mut self, node: usize, command: Command) -> Result<(), CommandError> {
        let Node { transport, log, .. } = &mut self.nodes[node];
        let result = transport.command(self.now, command, log);
        self.flush(node);
        result
    }

    pub(super) fn up(&self, node: usize) -> bool {
        self.nodes[node].down_until <= self.now
    }

    pub(super) fn event(&mut self, node: usize, event: Event) {
        let Node { transport, log, .. } = &mut self.nodes[node];
        transport.handle(self.now, event, log);
        self.flush(node);
    }

    /// Sends what a node has to send. It has to come to an end, and the next deadline is to come.
    fn flush(&mut self, node: usize) {
        for sent in 0.. {
            assert!(sent < 10_000, "node {node} never stops sending");
            let Node { transport, log, .. } = &mut self.nodes[node];
            let Some(Transmit { peer, frame, source, after }) = transport.poll(log) else { break };
            assert_eq!(after, transport.version(), "a frame waits for all that has changed before it");
            let units = match (&frame.body, source) {
                (Body::Data { lane, offset, len, .. }, Some(source)) => {
                    log.read(usize::from(*lane), *offset, *len, source)
                }
                (Body::Data { .. }, None) => panic!("a data frame without a source"),
                _ => Vec::new(),
            };
            let mut bytes = [0; FRAME_BYTES_MAX];
            let len = frame.encode(&mut bytes);
            self.frames += 1;
            let copies = 1 + u64::from(self.rng.below(100) < self.weather.repeat);
            for _ in 0..copies {
                let to = usize::from(peer);
                if to >= self.nodes.len() || self.blocked[node][to] || self.rng.below(100) < self.weather.drop {
                    continue;
                }
                let delay = Duration::from_ns(500 + self.rng.below(self.weather.delay_us * 1000));
                self.count += 1;
                self.parcels.push(Reverse((self.now + delay, self.count, bytes[..len].to_vec(), units.clone())));
            }
        }
        let deadline = self.nodes[node].transport.deadline();
        assert!(deadline.is_none_or(|at| at >= self.now), "node {node} is busy at {:?}", self.now);
    }

    /// Goes on to the next frame or deadline, or by a microsecond.
    pub(super) fn advance(&mut self) {
        let deadlines = (0..self.nodes.len()).filter_map(|node| {
            let at = self.nodes[node].transport.deadline().unwrap_or(Instant::NEVER);
            (at < Instant::NEVER).then_some((at.max(self.nodes[node].down_until), node))
        });
        let timer = deadlines.min();
        let parcel = self.parcels.peek().map(|Reverse(parcel)| parcel.0);
        match (timer, parcel) {
            (Some((at, node)), parcel) if parcel.is_none_or(|parcel| at < parcel) => {
                self.now = self.now.max(at);
                self.event(node, Event::Timer);
                let next = self.nodes[node].transport.deadline();
                assert!(next.is_none_or(|next| next > self.now), "a timer of node {node} does not go away");
            }
            (_, Some(_)) => {
                let Some(Reverse((at, _, bytes, units))) = self.parcels.pop() else { return };
                self.now = self.now.max(at);
                let frame = Frame::parse(&bytes).expect("what was encoded can be parsed");
                let (from, to) = (usize::from(frame.from), usize::from(frame.to));
                if self.up(to) && !self.blocked[from][to] {
                    if let Body::Data { offset, .. } = frame.body {
                        self.nodes[to].log.incoming = (offset, units);
                    }
                    self.event(to, Event::Frame(frame));
                }
            }
            _ => self.now += Duration::from_us(1),
        }
    }

    /// A client writes, if the node lets it.
    pub(super) fn write(&mut self, node: usize, lane: usize, units: u32) -> bool {
        if !self.nodes[node].transport.writable() || !self.up(node) {
            return false;
        }
        let first = self.unit;
        self.unit += units;
        self.nodes[node].log.write(lane, first..first + units);
        self.event(node, Event::Persisted { lane });
        true
    }

    pub(super) fn drain(&mut self, node: usize, most: usize) {
        for lane in 0..self.ledger.len() {
            if self.up(node) && self.nodes[node].log.drain(lane, most) {
                self.event(node, Event::Persisted { lane });
            }
        }
    }

    pub(super) fn restart(&mut self, node: usize, down: Duration) {
        let (now, config, forgets) = (self.now, self.config, self.forgets_promise);
        let it = &mut self.nodes[node];
        let mut persistent = it.transport.persistent().clone();
        if forgets {
            persistent.promised = persistent.history.last();
        }
        let flaw = it.transport.flaw;
        it.transport = Transport::resume(config, persistent, now + down);
        it.transport.flaw = flaw;
        it.down_until = now + down;
        for lane in &mut it.log.lanes {
            lane.queue.clear();
        }
    }

    /// A node's machine crashes, and comes back with the first units of each lane: the rest was in its memory. Nothing
    /// that was under way outlives its links, and its peers learn that they are new ones.
    pub(super) fn lose_memory(&mut self, node: usize, keeps: u64) {
        self.restart(node, Duration::ZERO);
        for lane in 0..self.ledger.len() {
            let Node { log, had, .. } = &mut self.nodes[node];
            had[lane] = had[lane].max(log.persisted(lane));
            log.truncate(lane, keeps.clamp(log.oldest(lane), log.persisted(lane)));
        }
        self.lose_links(node);
        self.command(node, Command::LostMemory).unwrap();
        self.tell_of_restart(node);
    }

    /// A node has a new disk, and is set up as a member anew.
    pub(super) fn replace(&mut self, node: usize) {
        let (group, flaw) = (self.persistent(node).group, self.nodes[node].transport.flaw);
        self.nodes[node].transport = Transport::resume(self.config, Persistent::new(), self.now);
        self.nodes[node].transport.flaw = flaw;
        self.nodes[node].log = MemLog::new(self.ledger.len());
        self.lose_links(node);
        let setup = Command::Setup { node: node as u8, group, primary: false, epoch: Epoch::ZERO, force: false };
        self.command(node, setup).unwrap();
        self.tell_of_restart(node);
    }

    fn lose_links(&mut self, node: usize) {
        self.parcels.retain(|Reverse((_, _, bytes, _))| {
            let frame = Frame::parse(bytes).expect("what was encoded can be parsed");
            usize::from(frame.from) != node && usize::from(frame.to) != node
        });
    }

    fn tell_of_restart(&mut self, node: usize) {
        for peer in (0..self.nodes.len()).filter(|&peer| peer != node) {
            self.event(peer, Event::Link { peer: node as u8, up: true, restarted: true });
        }
    }

    /// Runs for this time, with all queues drained at once.
    pub(super) fn run(&mut self, time: Duration) -> Check {
        let end = self.now + time;
        while self.now < end {
            self.advance();
            for node in 0..self.nodes.len() {
                self.drain(node, usize::MAX);
            }
            self.step()?;
        }
        Ok(())
    }

    pub(super) fn persistent(&self, node: usize) -> &Persistent {
        self.nodes[node].transport.persistent()
    }

    pub(super) fn credit(&self, node: usize, lane: usize) -> u64 {
        let node = &self.nodes[node];
        node.transport.replicated(lane).min(node.log.persisted(lane))
    }

    /// Checks what must hold after every step.
    pub(super) fn step(&mut self) -> Check {
        self.steps += 1;
        for node in 0..self.nodes.len() {
            let (role, epoch) = (self.persistent(node).role, self.nodes[node].transport.epoch());
            for lane in 0..self.ledger.len() {
                let credit = self.credit(node, lane);
                if role == Role::Primary {
                    self.acknowledged(node, lane, credit)?;
                } else if role == Role::Secondary && credit > self.nodes[node].credit[lane] {
                    return Err(format!("node {node} is no primary, and its credit moved in lane {lane} to {credit}"));
                }
                self.nodes[node].credit[lane] = credit;
            }
            if epoch != self.nodes[node].epoch {
                self.nodes[node].epoch = epoch;
                self.logs_agree()?;
            }
        }
        if self.steps.is_multiple_of(97) { self.logs_agree() } else { Ok(()) }
    }

    /// A primary shows this credit.
    fn acknowledged(&mut self, node: usize, lane: usize, credit: u64) -> Check {
        let known = self.ledger[lane].len() as u64;
        let epoch = self.nodes[node].transport.epoch();
        for at in self.nodes[node].credit[lane]..known.min(credit) {
            let unit = self.ledger[lane][at as usize].0;
            if self.nodes[node].log.get(lane, at) != Some(unit) {
                return Err(format!("node {node} acknowledges in {epoch} another {at} of lane {lane}"));
            }
        }
        for at in known..credit {
            let unit = self.nodes[node].log.get(lane, at).ok_or("credit passes the log")?;
            let group = self.persistent(node).group;
            // One that has lost its memory had it when it said so, which may have been on its way along a chain.
            let holds = |&&member: &&u8| {
                let node = &self.nodes[usize::from(member)];
                node.log.get(lane, at) == Some(unit) || node.transport.persistent().lost && at < node.had[lane]
            };
            let holders = group.members().iter().filter(holds).count();
            let asked = match group.mode() {
                Mode::Lazy => 1,
                Mode::Eager | Mode::Chain => group.members().len(),
                Mode::Quorum(k) => usize::from(k),
            };
            if holders < asked {
                return Err(format!("{holders} hold {at} of lane {lane}, which {group:?} acknowledges in {epoch}"));
            }
            self.ledger[lane].push((unit, epoch, group.version()));
        }
        Ok(())
    }

    /// What was acknowledged is in the log of every later primary, and logs of one epoch are prefixes of each other.
    ///
    /// A primary of a group that a newer one has replaced, without its knowing, may lack bytes of the newer one. It
    /// can't acknowledge anything, which `acknowledged` checks.
    pub(super) fn logs_agree(&self) -> Check {
        for (number, node) in self.nodes.iter().enumerate() {
            let own = node.transport.persistent();
            if own.role == Role::Primary {
                for (lane, ledger) in self.ledger.iter().enumerate() {
                    let lost = ledger.iter().enumerate().find(|&(at, &(unit, epoch, version))| {
                        epoch <= own.history.last()
                            && version <= own.group.version()
                            && at as u64 >= node.log.oldest(lane)
                            && node.log.get(lane, at as u64) != Some(unit)
                    });
                    if let Some((at, (_, epoch, _))) = lost {
                        return Err(format!(
                            "{at} of lane {lane}, acknowledged in {epoch}, is not in the log of node {number}, \
                             primary in {}",
                            own.history.last()
                        ));
                    }
                }
            }
            for other in &self.nodes[..number] {
                let same = own.history.last() == other.transport.epoch() && own.history.last() != Epoch::ZERO;
                for lane in 0..self.ledger.len() {
                    let (a, b) = (&node.log.lanes[lane], &other.log.lanes[lane]);
                    let end = node.log.persisted(lane).min(other.log.persisted(lane));
                    let start = a.base.max(b.base);
                    if same
                        && start < end
                        && a.units[(start - a.base) as usize..(end - a.base) as usize]
                            != b.units[(start - b.base) as usize..(end - b.base) as usize]
                    {
                        return Err(format!("logs of epoch {} differ in lane {lane}", own.history.last()));
                    }
                }
            }
        }
        Ok(())
    }

    /// The serving primary that all other members of its group follow with equal logs.
    pub(super) fn converged(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|&node| {
            let own = self.persistent(node);
            let epoch = own.history.last();
            own.role == Role::Primary
                && own.promised == epoch
                && own.group.members().iter().all(|&member| {
                    let other = &self.nodes[usize::from(member)];
                    let theirs = other.transport.persistent();
                    theirs.history.last() == epoch
                        && theirs.synced == epoch
                        && (0..self.ledger.len())
                            .all(|lane| other.log.persisted(lane) == self.nodes[node].log.persisted(lane))
                })
        })
    }
}
