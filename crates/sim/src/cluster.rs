//! Several drives and the links between them, as one machine for the drive loop. It keeps the bytes of each drive's log
//! pages, carries frames with the bytes that they name, and can lose, repeat, delay and reorder them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use tidewater_base::rng::probability_threshold;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::border::LogInput;
use tidewater_core::cost::{Rate, Server};
use tidewater_core::device::{Device, Input, Output};
use tidewater_core::drive::Machine;
use tidewater_core::fast::{Content, Place};
use tidewater_core::host::Submission;
use tidewater_core::power::Remains;
use tidewater_nand::Medium;
use tidewater_wire::replication::{Body, FRAME_BYTES_MAX, Frame};

/// The bytes of log pages on flash, under the sequences of their stamps. A sequence is given again only when the page
/// that had it was lost with the power.
#[derive(Clone, Debug, Default)]
pub struct LogBytes(HashMap<u64, Rc<[u8]>>);

impl LogBytes {
    /// Keeps a page's bytes.
    pub fn keep(&mut self, sequence: u64, bytes: Rc<[u8]>) {
        self.0.insert(sequence, bytes);
    }

    /// Keeps the bytes of pages that went to flash on stored energy.
    pub fn keep_remains<M: Medium>(&mut self, remains: &Remains<M>) {
        for page in remains.destaged() {
            self.keep(page.page.sequence, page.bytes.clone().into());
        }
    }

    /// A page's bytes.
    pub fn get(&self, sequence: u64) -> Option<&[u8]> {
        self.0.get(&sequence).map(|bytes| &**bytes)
    }

    /// The bytes of a piece of log.
    fn copy<M: Medium>(&self, device: &Device<M>, piece: (u8, u8, u64, u32), from: Place) -> Rc<[u8]> {
        let (function, lane, offset, len) = piece;
        match from {
            Place::Ring => {
                let mut bytes = vec![0; len as usize];
                device.fast().read_ring(function.into(), lane.into(), offset, &mut bytes);
                bytes.into()
            }
            Place::Page { sequence, skip } => {
                let page = self.get(sequence).expect("a page's bytes are kept when it goes to flash");
                page[skip as usize..(skip + len) as usize].into()
            }
        }
    }
}

/// One direction of a link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Time from the last byte sent to its arrival.
    pub latency: Duration,
    /// Bytes per second.
    pub bandwidth: u64,
    /// Bytes that each frame has on the wire besides its own.
    pub overhead: u32,
    /// The largest piece that travels at once; each has the overhead.
    pub payload_max: u32,
    /// How frames travel.
    pub carrier: Carrier,
    /// Probability that a frame is lost.
    pub drop: f64,
    /// Probability that it comes twice.
    pub duplicate: f64,
    /// It comes later by up to this, which lets others overtake it.
    pub jitter: Duration,
    /// Bytes per second of a node's own link, which all that it sends shares, and so does all that comes to it; 0: no
    /// limit.
    pub port: u64,
    /// A node's transport sends a counter that it was given at the next multiple of this time, and of several the
    /// newest; zero: at once.
    pub sends_every: Duration,
}

impl Default for LinkModel {
    /// PCIe 3.0 x8 through a non-transparent bridge, as X-SSD's servers are linked: no loss, 256-byte TLPs with 24
    /// bytes of framing and header, and a latency of about a microsecond (Dolphin's PXH830 tells 0.54 us from memory to
    /// memory).
    fn default() -> LinkModel {
        LinkModel {
            latency: Duration::from_ns(540),
            bandwidth: 7_876_923_072,
            overhead: 24,
            payload_max: 256,
            carrier: Carrier::Ntb,
            drop: 0.0,
            duplicate: 0.0,
            jitter: Duration::ZERO,
            port: 0,
            sends_every: Duration::ZERO,
        }
    }
}

/// How frames travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// As stores through a non-transparent bridge, as in X-SSD: log bytes go to the peer's ring window, and a counter
    /// to its shadow copy, 8 bytes each. The address says what they are. Other frames go as they are.
    Ntb,
    /// As the frames that `wire::replication` lays out.
    Frames,
}

#[derive(Clone, Debug)]
struct Link {
    model: LinkModel,
    up: bool,
    wire: Server,
    bytes: u64,
    frames: u64,
}

/// Where something is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A counter, until the sender's transport sends it.
    Register,
    /// Between the nodes.
    Bridges,
    /// On the receiver's own link.
    Port,
}

/// Something on its way.
#[derive(Clone, Debug)]
struct InFlight {
    stage: Stage,
    from: usize,
    to: usize,
    /// Bytes with framing.
    wire: u64,
    frame: Frame,
    bytes: Rc<[u8]>,
}

/// Output of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Output of a drive that the cluster does not handle itself.
    Output(Output),
    /// Bytes of log for a command, before its reply.
    Log {
        /// The command.
        cid: u16,
        /// The bytes.
        bytes: Rc<[u8]>,
    },
}

#[derive(Clone, Debug)]
struct Node<M: Medium> {
    /// `None`: it has no power.
    device: Option<Device<M>>,
    bytes: LogBytes,
    /// Its own link: what it sends, and what comes to it.
    port: [Server; 2],
}

/// Drives, and links between all of them. Node `i` of the cluster is node `i` of its replication group.
#[derive(Clone, Debug)]
pub struct Cluster<M: Medium> {
    nodes: Vec<Node<M>>,
    links: BTreeMap<(usize, usize), Link>,
    in_flight: BTreeMap<u64, InFlight>,
    arrivals: BinaryHeap<Reverse<(Instant, u64)>>,
    sent: u64,
    said: VecDeque<(usize, Said)>,
    rng: Rng,
    keep_bytes: bool,
}

impl<M: Medium> Cluster<M> {
    /// Links drives by links of one kind. `keep_bytes`: the drives keep stamps and log bytes.
    pub fn new(devices: Vec<Device<M>>, model: LinkModel, keep_bytes: bool, seed: u64) -> Cluster<M> {
        let n = devices.len();
        let link = Link { model, up: true, wire: Server::default(), bytes: 0, frames: 0 };
        let pairs = (0..n).flat_map(|a| (0..n).filter(move |&b| b != a).map(move |b| (a, b)));
        Cluster {
            links: pairs.map(|pair| (pair, link.clone())).collect(),
            nodes: devices
                .into_iter()
                .map(|device| Node { device: Some(device), bytes: LogBytes::default(), port: Default::default() })
                .collect(),
            in_flight: BTreeMap::new(),
            arrivals: BinaryHeap::new(),
            sent: 0,
            said: VecDeque::new(),
            rng: Rng::new(seed, b"links"),
            keep_bytes,
        }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node's drive, if it has power.
    pub fn device(&self, node: usize) -> Option<&Device<M>> {
        self.nodes[node].device.as_ref()
    }

    /// The bytes of a node's log pages.
    pub fn bytes(&self, node: usize) -> &LogBytes {
        &self.nodes[node].bytes
    }

    /// Lets a direction of a link work, or not. What is on its way arrives.
    pub fn set_up(&mut self, from: usize, to: usize, up: bool) {
        if let Some(link) = self.links.get_mut(&(from, to)) {
            link.up = up;
        }
    }

    /// Splits the nodes into those of `side` and the others; an empty side heals everything.
    pub fn partition(&mut self, side: &[usize]) {
        for (&(a, b), link) in &mut self.links {
            link.up = side.contains(&a) == side.contains(&b);
        }
    }

    /// Changes all links.
    pub fn set_links(&mut self, model: LinkModel) {
        self.links.values_mut().for_each(|link| link.model = model);
    }

    /// Frames and bytes, framing included, that went from one node to another.
    pub fn traffic(&self, from: usize, to: usize) -> (u64, u64) {
        self.links.get(&(from, to)).map_or((0, 0), |link| (link.frames, link.bytes))
    }

    /// A node loses its power. What is left of it, with the bytes of its flash kept here. `None`: it had none.
    pub fn cut_power(&mut self, node: usize) -> Option<Remains<M>> {
        let remains = self.nodes[node].device.take()?.cut_power();
        self.nodes[node].bytes.keep_remains(&remains);
        Some(remains)
    }

    /// A node has its power back.
    pub fn power_on(&mut self, node: usize, device: Device<M>) {
        self.nodes[node].device = Some(device);
        self.absorb(node, Instant::ZERO);
    }

    /// Does something with a drive, and takes what it says.
    pub fn with_device<R>(&mut self, node: usize, now: Instant, each: impl FnOnce(&mut Device<M>) -> R) -> Option<R> {
        let result = each(self.nodes[node].device.as_mut()?);
        self.absorb(node, now);
        Some(result)
    }

    /// Takes what a drive says: keeps pages, sends frames, passes the rest on.
    fn absorb(&mut self, node: usize, now: Instant) {
        loop {
            let Node { device, bytes, .. } = &mut self.nodes[node];
            let Some(device) = device else { return };
            let Some(output) = device.poll() else { return };
            match output {
                Output::Store { function, page, .. } => {
                    let piece = (function, page.lane, page.offset, page.len);
                    let content = bytes.copy(device, piece, Place::Ring);
                    bytes.keep(page.sequence, content);
                }
                Output::Log { cid, function, lane, offset, len, from } => {
                    let bytes = bytes.copy(device, (function, lane, offset, len), from);
                    self.said.push_back((node, Said::Log { cid, bytes }));
                }
                Output::Frame { peer, frame, from, after: _ } => {
                    let content = match (&frame.body, from) {
                        (&Body::Data { lane, offset, len, .. }, Some(from)) if self.keep_bytes => {
                            bytes.copy(device, (frame.function, lane, offset, len), from)
                        }
                        _ => Rc::default(),
                    };
                    let now = now.max(device.now());
                    self.send(now, node, peer.into(), *frame, content);
                }
                other => self.said.push_back((node, Said::Output(other))),
            }
        }
    }

    fn send(&mut self, now: Instant, from: usize, to: usize, frame: Frame, bytes: Rc<[u8]>) {
        let Some(Link { model, .. }) = self.links.get(&(from, to)) else { return };
        let size = match (model.carrier, &frame.body) {
            (Carrier::Ntb, &Body::Data { len, .. }) => len,
            (Carrier::Ntb, Body::Report { .. }) => 8,
            (Carrier::Frames, &Body::Data { len, .. }) => frame.encode(&mut [0; FRAME_BYTES_MAX]) as u32 + len + 4,
            _ => frame.encode(&mut [0; FRAME_BYTES_MAX]) as u32,
        };
        let wire = u64::from(size) + u64::from(size.div_ceil(model.payload_max) * model.overhead);
        let every = model.sends_every.as_ps();
        let sent = InFlight { stage: Stage::Register, from, to, wire, frame, bytes };
        match sent.frame.body {
            Body::Report { lane, window: 0, .. } if every > 0 => {
                let same = |waits: &&mut InFlight| {
                    let of = matches!(waits.frame.body, Body::Report { lane: of, .. } if of == lane);
                    of && (waits.stage, waits.from, waits.to) == (Stage::Register, from, to)
                };
                match self.in_flight.values_mut().find(same) {
                    Some(waits) => *waits = sent,
                    None => self.push(Instant::ZERO + model.sends_every * (now.as_ps() / every + 1), sent),
                }
            }
            _ => self.leave(now, sent),
        }
    }

    /// The sender's transport sends something.
    fn leave(&mut self, now: Instant, sent: InFlight) {
        let Some(link) = self.links.get_mut(&(sent.from, sent.to)) else { return };
        let model = link.model;
        let through = match model.port {
            0 => now,
            port => self.nodes[sent.from].port[0].serve(now, Rate::per_second(port).time(sent.wire)),
        };
        let left = link.wire.serve(through, Rate::per_second(model.bandwidth).time(sent.wire));
        link.frames += 1;
        link.bytes += sent.wire;
        if !link.up || self.rng.chance(probability_threshold(model.drop)) {
            return;
        }
        let copies = 1 + u32::from(self.rng.chance(probability_threshold(model.duplicate)));
        for _ in 0..copies {
            let late = match model.jitter.as_ps() {
                0 => Duration::ZERO,
                most => Duration::from_ps(self.rng.below(most + 1)),
            };
            self.push(left + model.latency + late, InFlight { stage: Stage::Bridges, ..sent.clone() });
        }
    }

    fn push(&mut self, at: Instant, sent: InFlight) {
        self.sent += 1;
        self.arrivals.push(Reverse((at, self.sent)));
        self.in_flight.insert(self.sent, sent);
    }

    /// When so many bytes, framing included, that a node's host sends it at `now` have come through the node's own link
    /// ([`LinkModel::port`]).
    pub fn through_port(&mut self, now: Instant, node: usize, wire: u64) -> Instant {
        let port = self.links.values().next().map_or(0, |link| link.model.port);
        if port == 0 { now } else { self.nodes[node].port[1].serve(now, Rate::per_second(port).time(wire)) }
    }

    fn arrive(&mut self, now: Instant) {
        let Some(Reverse((_, number))) = self.arrivals.pop() else { return };
        let sent = self.in_flight.remove(&number).expect("it is on its way");
        match sent.stage {
            Stage::Register => return self.leave(now, sent),
            Stage::Bridges => {
                let at = self.through_port(now, sent.to, sent.wire);
                if at > now {
                    return self.push(at, InFlight { stage: Stage::Port, ..sent });
                }
            }
            Stage::Port => {}
        }
        let InFlight { to, frame, bytes, .. } = sent;
        let Some(device) = &mut self.nodes[to].device else { return };
        let content = match frame.body {
            Body::Data { len, .. } if !self.keep_bytes => Content::Absent(len),
            _ => Content::Bytes(&bytes),
        };
        let input = Input::Log { function: frame.function, input: LogInput::Frame { frame: Box::new(frame), content } };
        let now = now.max(device.now());
        assert!(device.handle(now, input).is_ok(), "frames are never refused");
        self.absorb(to, now);
    }

    /// The node to which the next thing happens: its own timer, or a frame that comes in.
    pub fn due(&self) -> Option<usize> {
        match self.first_due()? {
            (_, Some(node)) => Some(node),
            (_, None) => {
                let Reverse((_, number)) = self.arrivals.peek()?;
                self.in_flight.get(number).map(|frame| frame.to)
            }
        }
    }

    /// Who is due first: a node, or, as `None`, something on its way.
    fn first_due(&self) -> Option<(Instant, Option<usize>)> {
        let nodes = self.nodes.iter().enumerate();
        let of_nodes = nodes.filter_map(|(i, node)| Some((node.device.as_ref()?.deadline()?, Some(i)))).min();
        let arrival = self.arrivals.peek().map(|&Reverse((at, _))| (at, None));
        match (of_nodes, arrival) {
            (Some(node), Some(arrival)) => Some(if arrival.0 < node.0 { arrival } else { node }),
            (node, arrival) => node.or(arrival),
        }
    }
}

impl<M: Medium> Machine for Cluster<M> {
    type Input<'a> = (usize, Input<'a>);
    type Output = (usize, Said);
    type Refused = (usize, Submission);

    fn handle(&mut self, now: Instant, (node, input): (usize, Input<'_>)) -> Result<(), (usize, Submission)> {
        // A node without power drops its input silently.
        let Some(device) = &mut self.nodes[node].device else { return Ok(()) };
        let taken = device.handle(now, input).map_err(|submission| (node, submission));
        self.absorb(node, now);
        taken
    }

    fn on_deadline(&mut self, now: Instant) {
        match self.first_due() {
            Some((_, Some(node))) => {
                let device = self.nodes[node].device.as_mut().expect("it has a deadline");
                assert!(device.handle(now, Input::Timer).is_ok(), "timers are never refused");
                self.absorb(node, now);
            }
            Some((_, None)) => self.arrive(now),
            None => {}
        }
    }

    fn poll(&mut self) -> Option<(usize, Said)> {
        self.said.pop_front()
    }

    fn has_output(&self) -> bool {
        !self.said.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        self.first_due().map(|(at, _)| at)
    }
}
