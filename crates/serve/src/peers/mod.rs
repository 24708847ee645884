//! The carrier of frames between served devices: TCP, one connection for each pair of nodes, with all functions in it.
//!
//! It has no thread that answers: the engine's thread polls it, hands in what came and takes what the firmware says. A
//! thread only dials, since names are looked up there. Frames may be lost: the transport repeats what matters.

mod connection;
mod dial;

use crate::image::random_bytes;
use crate::inbox::Inbox;
use crate::vfio_user::Waker;
use connection::{Connection, Ended, Heard};
use dial::Dialled;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewater_wire::replication::{Frame, Hello, PEER_VERSION};

/// Bytes that are read from a connection at once.
const READ_BYTES: usize = 256 << 10;
/// Connections that have not said yet who they are, at most.
const STRANGERS_MAX: usize = 16;
/// Marks events of strangers; peers have their node's number, and the listener this alone.
const STRANGER: u64 = 1 << 32;
/// How long a connection may take to say who it is.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// A peer that has sent nothing for this time is not there: the connection is closed, and dialled anew.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often the round trip is measured, and a connection without frames kept alive.
const PING_EVERY: Duration = Duration::from_millis(500);
/// Waits between attempts to reach a peer: they double, up to the second.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Notes on one peer are at least this far apart, unless they say something else.
const NOTE_PAUSE: Duration = Duration::from_secs(10);
/// How often time is looked at while nothing is due.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// How a device and its peers reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersSetup {
    /// This device's number in its group.
    pub node: u8,
    /// Name of the cluster: at most 32 bytes.
    pub cluster: String,
    /// Where peers of lower numbers reach it.
    pub listen: Option<SocketAddr>,
    /// Peers and where they listen, as `host:port`: those of higher numbers are dialled.
    pub peers: Vec<(u8, String)>,
    /// Addresses beyond loopback are meant.
    pub insecure: bool,
}

/// Why peers can't be reached at all.
#[derive(Debug)]
pub enum PeersError {
    /// An address beyond loopback, which has to be allowed.
    NotLoopback(SocketAddr),
    /// The address can't be listened on.
    Listen(SocketAddr, io::Error),
    /// The name of the cluster.
    Cluster(String),
    /// A node number is out of range, or this device's own.
    Node(u8),
    /// The system gives no epoll instance.
    System(io::Error),
}

impl fmt::Display for PeersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeersError::NotLoopback(address) => write!(
                f,
                "{address} is not a loopback address, and the connection between peers is neither encrypted nor \
                 authenticated; allow it with --insecure-peers"
            ),
            PeersError::Listen(address, error) => {
                write!(f, "cannot listen for peers on {address}: {error}; choose another --peer-listen")
            }
            PeersError::Cluster(name) => {
                write!(f, "cluster name {name:?}: expected 1 to 32 bytes without zeros")
            }
            PeersError::Node(node) => {
                write!(f, "node {node}: each device has a number of its own, 0 to 15")
            }
            PeersError::System(error) => write!(f, "cannot wait for peers: {error}"),
        }
    }
}

impl std::error::Error for PeersError {}

/// What came from peers.
#[derive(Debug)]
pub enum Incoming {
    /// A frame and its log bytes.
    Frame(Box<Frame>, Vec<u8>),
    /// A peer can be reached, or not any more.
    Link {
        /// Its node.
        node: u8,
        /// Whether it can be reached.
        up: bool,
        /// Its process is another one than the last time: what it had only in memory may be gone.
        restarted: bool,
    },
    /// How long a ping takes to a peer and back.
    RoundTrip {
        /// Its node.
        node: u8,
        /// The time, smoothed as TCP does.
        time: Duration,
    },
}

/// A peer, as its status tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLink {
    /// Node.
    pub node: u8,
    /// Where it is dialled, or from where it came.
    pub address: String,
    /// Whether there is a connection.
    pub up: bool,
    /// For how long that has been so.
    pub since: Duration,
    /// Smoothed round trip, once measured.
    pub round_trip: Option<Duration>,
    /// Bytes that wait to be sent.
    pub waiting: usize,
    /// Data frames left out because too much waited.
    pub dropped: u64,
    /// Why there is no connection.
    pub why: Option<String>,
}

struct Open {
    stream: TcpStream,
    connection: Connection,
    /// The system says when more can be sent.
    blocked: bool,
}

struct Peer {
    node: u8,
    address: Option<String>,
    open: Option<Open>,
    /// Connections of this process to it, counted.
    session: u64,
    /// Its process and the newest of that one's connections.
    known: Option<(u64, u64)>,
    since: Instant,
    heard_at: Instant,
    ping_at: Instant,
    round_trip: Option<Duration>,
    dial_at: Option<Instant>,
    dialling: bool,
    retry: Duration,
    why: Option<String>,
    noted: Option<(Instant, String)>,
    dropped: u64,
}

impl Peer {
    fn new(node: u8, address: Option<String>, dials: bool, now: Instant) -> Peer {
        Peer {
            node,
            address,
            open: None,
            session: 0,
            known: None,
            since: now,
            heard_at: now,
            ping_at: now,
            round_trip: None,
            dial_at: dials.then_some(now),
            dialling: false,
            retry: RETRY[0],
            why: None,
            noted: None,
            dropped: 0,
        }
    }
}

struct Stranger {
    open: Open,
    from: SocketAddr,
    since: Instant,
    /// It was dialled as this peer.
    dialled: Option<u8>,
    /// It was refused, and what is left is to send why.
    refused: bool,
}

/// The connections to peers.
pub struct Peers {
    ours: Hello,
    insecure: bool,
    epoll: Epoll,
    listener: Option<TcpListener>,
    peers: Vec<Peer>,
    strangers: Vec<Option<Stranger>>,
    dialled: Inbox<Dialled>,
    came: VecDeque<Incoming>,
    notes: VecDeque<String>,
    started: Instant,
    check_at: Instant,
    scratch: Vec<u8>,
}

impl Peers {
    /// Listens, and dials peers from the next [`Peers::poll`] on. `ours` says what the drive is; node, cluster and
    /// session are filled in here. What happens elsewhere wakes `waker`.
    ///
    /// # Errors
    /// As [`PeersError`] says.
    pub fn bind(setup: &PeersSetup, ours: Hello, waker: Arc<Waker>) -> Result<Peers, PeersError> {
        let cluster = Hello::cluster_bytes(&setup.cluster).ok_or_else(|| PeersError::Cluster(setup.cluster.clone()))?;
        if let Some(&node) = [setup.node].iter().find(|&&node| node > 15) {
            return Err(PeersError::Node(node));
        }
        if let Some((node, _)) = setup.peers.iter().find(|(node, _)| *node > 15 || *node == setup.node) {
            return Err(PeersError::Node(*node));
        }
        let system = |error: nix::errno::Errno| PeersError::System(error.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system)?;
        let listener = match setup.listen {
            Some(address) if !address.ip().is_loopback() && !setup.insecure => {
                return Err(PeersError::NotLoopback(address));
            }
            Some(address) => {
                let listen = |error| PeersError::Listen(address, error);
                let listener = TcpListener::bind(address).map_err(listen)?;
                listener.set_nonblocking(true).map_err(listen)?;
                epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, STRANGER - 1)).map_err(system)?;
                Some(listener)
            }
            None => None,
        };
        let now = Instant::now();
        let boot = u64::from_le_bytes(random_bytes().map_err(PeersError::System)?);
        let ours = Hello { version: PEER_VERSION, version_min: 1, node: setup.node, boot, cluster, ..ours };
        let peer = |(node, address): &(u8, String)| Peer::new(*node, Some(address.clone()), setup.node < *node, now);
        Ok(Peers {
            ours,
            insecure: setup.insecure,
            epoll,
            listener,
            peers: setup.peers.iter().map(peer).collect(),
            strangers: Vec::new(),
            dialled: Inbox::new(waker),
            came: VecDeque::new(),
            notes: VecDeque::new(),
            started: now,
            check_at: now,
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Where peers reach this device.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Its number.
    pub fn node(&self) -> u8 {
        self.ours.node
    }

    /// Readable when a peer has sent something.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// When to poll again at the latest.
    pub fn deadline(&self) -> Instant {
        self.check_at
    }

    /// The next thing that the user should know.
    pub fn take_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// The next thing that came.
    pub fn take(&mut self) -> Option<Incoming> {
        self.came.pop_front()
    }

    /// Whether [`Peers::take`] has something.
    pub fn has_come(&self) -> bool {
        !self.came.is_empty()
    }

    /// Whether this node is one of the peers.
    pub fn knows(&self, node: u8) -> bool {
        self.peers.iter().any(|peer| peer.node == node)
    }

    /// What is known of each peer.
    pub fn links(&self) -> impl Iterator<Item = PeerLink> {
        self.peers.iter().map(|peer| PeerLink {
            node: peer.node,
            address: peer.address.clone().unwrap_or_else(|| "not known".to_owned()),
            up: peer.open.is_some(),
            since: peer.since.elapsed(),
            round_trip: peer.round_trip,
            waiting: peer.open.as_ref().map_or(0, |open| open.connection.waiting()),
            dropped: peer.dropped + peer.open.as_ref().map_or(0, |open| open.connection.dropped),
            why: peer.why.clone(),
        })
    }

    /// Adds a frame to what goes to its receiver with the next [`Peers::flush`]. Without a connection it is lost.
    pub fn send(&mut self, frame: &Frame, log: &[u8]) {
        let Some(place) = self.peers.iter().position(|peer| peer.node == frame.to) else { return };
        let Some(open) = &mut self.peers[place].open else { return };
        if !open.connection.frame(frame, log) {
            self.close(place, "it takes nothing of what is sent to it");
        }
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        for place in 0..self.peers.len() {
            let Peer { node, open, .. } = &mut self.peers[place];
            if let Some(open) = open.as_mut().filter(|open| !open.blocked && open.connection.waiting() > 0)
                && let Err(error) = push(open, &self.epoll, (*node).into())
            {
                self.close(place, &format!("the connection failed: {error}"));
            }
        }
    }

    /// Takes in what has come, and does what is due. True: something happened.
    pub fn poll(&mut self) -> bool {
        let mut any = false;
        while let Some(dialled) = self.dialled.take() {
            any = true;
            self.on_dialled(dialled);
        }
        let mut events = [EpollEvent::empty(); 32];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            any = true;
            match event.data() {
                at if at == STRANGER - 1 => self.accept(),
                at if at >= STRANGER => self.on_stranger((at - STRANGER) as usize),
                node => self.on_peer(node as u8, event.events()),
            }
        }
        let now = Instant::now();
        if now >= self.check_at {
            self.check(now);
        }
        any
    }

    // --- connections ---

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok((stream, from)) = listener.accept() {
            let now = Instant::now();
            // The oldest of those who have not said who they are gives way.
            if self.strangers.iter().flatten().count() >= STRANGERS_MAX {
                let oldest = (0..self.strangers.len())
                    .filter(|&at| self.strangers[at].is_some())
                    .min_by_key(|&at| self.strangers[at].as_ref().map(|stranger| stranger.since));
                if let Some(at) = oldest {
                    self.strangers[at] = None;
                }
            }
            let open = Open { stream, connection: Connection::new(), blocked: false };
            add_stranger(&mut self.strangers, &self.epoll, open, from, None, now);
            if self.strangers.len() > 4 * STRANGERS_MAX {
                return;
            }
        }
    }

    fn on_dialled(&mut self, dialled: Dialled) {
        let Some(place) = self.peers.iter().position(|peer| peer.node == dialled.node) else { return };
        let (now, peer) = (Instant::now(), &mut self.peers[place]);
        peer.dialling = false;
        match dialled.result {
            Ok((stream, from)) => {
                peer.session += 1;
                let mut open = Open { stream, connection: Connection::new(), blocked: false };
                open.connection.greet(&Hello { to: peer.node, session: peer.session, ..self.ours });
                add_stranger(&mut self.strangers, &self.epoll, open, from, Some(dialled.node), now);
            }
            Err(why) => self.away(place, why),
        }
    }

    /// There is no connection to a peer, for this reason: it is dialled again, if this device dials it.
    fn away(&mut self, place: usize, why: String) {
        let (now, node) = (Instant::now(), self.ours.node);
        let peer = &mut self.peers[place];
        let is_old = peer.noted.as_ref().is_none_or(|(at, text)| *text != why || now - *at > NOTE_PAUSE * 6);
        if is_old && peer.noted.as_ref().is_none_or(|(at, _)| now - *at > NOTE_PAUSE || peer.why.is_none()) {
            peer.noted = Some((now, why.clone()));
            self.notes.push_back(format!("peer {}: {why}", peer.node));
        }
        peer.why = Some(why);
        if peer.address.is_some() && node < peer.node {
            peer.dial_at = Some(now + peer.retry);
            peer.retry = (peer.retry * 2).min(RETRY[1]);
            self.check_at = self.check_at.min(now + peer.retry);
        }
    }

    fn close(&mut self, place: usize, why: &str) {
        let peer = &mut self.peers[place];
        if let Some(open) = peer.open.take() {
            let _ = self.epoll.delete(&open.stream);
            peer.dropped += open.connection.dropped;
            peer.since = Instant::now();
            self.came.push_back(Incoming::Link { node: peer.node, up: false, restarted: false });
        }
        self.away(place, why.to_owned());
    }

    fn on_stranger(&mut self, at: usize) {
        let Some(stranger) = self.strangers.get_mut(at).and_then(Option::as_mut) else { return };
        if !stranger.refused {
            let mut bytes = [0; 512];
            match stranger.open.stream.read(&mut bytes) {
                Ok(0) => return self.drop_stranger(at, "it closed the connection before it said who it is"),
                Ok(count) => stranger.open.connection.take(&bytes[..count]),
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(error) => return self.drop_stranger(at, &format!("the connection failed: {error}")),
            }
            match stranger.open.connection.next() {
                Ok(None) => {}
                Ok(Some(Heard::Hello(theirs))) => return self.on_hello(at, &theirs),
                // Nothing else comes before a hello.
                Ok(Some(_)) => return self.drop_stranger(at, "it sent a frame before its hello"),
                Err(Ended::Refused(why)) => return self.drop_stranger(at, &format!("it refuses this device: {why}")),
                Err(Ended::Foreign(why)) => return self.drop_stranger(at, &format!("not a peer: {why}")),
            }
        }
        if let Some(stranger) = &mut self.strangers[at] {
            let sent = push(&mut stranger.open, &self.epoll, STRANGER + at as u64);
            if sent.is_err() || stranger.refused && stranger.open.connection.waiting() == 0 {
                self.strangers[at] = None;
            }
        }
    }

    /// A connection that says nothing more of use. `why`: for the user, if it is known whose it was.
    fn drop_stranger(&mut self, at: usize, why: &str) {
        let Some(stranger) = self.strangers[at].take() else { return };
        if let Some(place) = stranger.dialled.and_then(|node| self.peers.iter().position(|peer| peer.node == node)) {
            self.away(place, format!("{}: {why}", stranger.from));
        }
    }

    fn on_hello(&mut self, at: usize, theirs: &Hello) {
        let Some(stranger) = self.strangers[at].as_mut() else { return };
        let (from, dialled) = (stranger.from, stranger.dialled);
        let place = self.peers.iter().position(|peer| peer.node == theirs.node);
        let why = Hello::mismatch(&self.ours, theirs).or_else(|| match (dialled, place) {
            (Some(node), _) if node != theirs.node => {
                Some(format!("node {} answers where node {node} is looked for: check --peer", theirs.node))
            }
            (None, _) if theirs.node > self.ours.node => {
                Some(format!("node {} dials node {}: the lower number dials", theirs.node, self.ours.node))
            }
            (_, None) => Some(format!("node {} is not listed with --peer on node {}", theirs.node, self.ours.node)),
            (None, Some(place)) => {
                let known = self.peers[place].known;
                let is_old = known.is_some_and(|(boot, session)| boot == theirs.boot && theirs.session <= session);
                is_old.then(|| "a newer connection has come".to_owned())
            }
            _ => None,
        });
        let now = Instant::now();
        if let Some(why) = why {
            stranger.open.connection.refuse(&why);
            stranger.refused = true;
            stranger.since = now;
            let dialled = dialled.and_then(|node| self.peers.iter().position(|peer| peer.node == node));
            match dialled.or(place) {
                Some(place) if self.peers[place].open.is_none() => self.away(place, format!("{from}: {why}")),
                _ => {}
            }
            return self.on_stranger(at);
        }
        let (Some(stranger), Some(place)) = (self.strangers[at].take(), place) else { return };
        if let Some(old) = self.peers[place].open.take() {
            let _ = self.epoll.delete(&old.stream);
            self.peers[place].dropped += old.connection.dropped;
            self.came.push_back(Incoming::Link { node: theirs.node, up: false, restarted: false });
        }
        let peer = &mut self.peers[place];
        let mut open = Open { blocked: false, ..stranger.open };
        if dialled.is_none() {
            peer.session += 1;
            open.connection.greet(&Hello { to: peer.node, session: peer.session, ..self.ours });
        }
        let restarted = peer.known.is_some_and(|(boot, _)| boot != theirs.boot);
        let was_away = peer.why.take();
        peer.known = Some((theirs.boot, theirs.session));
        (peer.since, peer.heard_at, peer.ping_at) = (now, now, now);
        (peer.retry, peer.round_trip) = (RETRY[0], None);
        open.connection.ping(self.started.elapsed().as_nanos() as u64);
        let watched = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, u64::from(peer.node));
        if self.epoll.modify(&open.stream, &mut { watched }).is_err() {
            return self.away(place, "the system does not watch its connection".to_owned());
        }
        peer.open = Some(open);
        if was_away.is_some() || peer.noted.is_none() {
            peer.noted = Some((now, String::new()));
            self.notes.push_back(format!("peer {}: connected ({from})", theirs.node));
        }
        self.came.push_back(Incoming::Link { node: theirs.node, up: true, restarted });
        // What came behind its hello.
        self.on_peer(theirs.node, EpollFlags::empty());
    }

    fn on_peer(&mut self, node: u8, events: EpollFlags) {
        let Some(place) = self.peers.iter().position(|peer| peer.node == node) else { return };
        let Some(open) = &mut self.peers[place].open else { return };
        if events.contains(EpollFlags::EPOLLOUT) {
            open.blocked = false;
            if let Err(error) = push(open, &self.epoll, node.into()) {
                return self.close(place, &format!("the connection failed: {error}"));
            }
        }
        let mut ended = None;
        match open.stream.read(&mut self.scratch) {
            Ok(0) => ended = Some("it closed the connection".to_owned()),
            Ok(count) => {
                open.connection.take(&self.scratch[..count]);
                self.peers[place].heard_at = Instant::now();
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => ended = Some(format!("the connection failed: {error}")),
        }
        let elapsed = self.started.elapsed();
        let peer = &mut self.peers[place];
        let Some(open) = &mut peer.open else { return };
        loop {
            match open.connection.next() {
                Ok(None) => break,
                Ok(Some(Heard::Frame(frame, log))) => {
                    if (frame.from, frame.to) != (node, self.ours.node) {
                        ended = Some(format!("it sent a frame of node {} for node {}", frame.from, frame.to));
                        break;
                    }
                    let log = log.to_vec();
                    self.came.push_back(Incoming::Frame(frame, log));
                }
                Ok(Some(Heard::Pong(sent_ns))) => {
                    let now = elapsed.saturating_sub(Duration::from_nanos(sent_ns));
                    // As TCP smooths it (RFC 6298).
                    let time = peer.round_trip.map_or(now, |before| before * 7 / 8 + now / 8);
                    peer.round_trip = Some(time);
                    self.came.push_back(Incoming::RoundTrip { node, time });
                }
                Ok(Some(Heard::Hello(_))) => {}
                Err(Ended::Refused(why)) => {
                    ended = Some(format!("it refuses this device: {why}"));
                    break;
                }
                Err(Ended::Foreign(why)) => {
                    ended = Some(format!("it sent what is no frame: {why}"));
                    break;
                }
            }
        }
        if let Some(why) = ended {
            self.close(place, &why);
        }
    }

    // --- time ---

    fn check(&mut self, now: Instant) {
        self.check_at = now + CHECK_EVERY;
        for at in 0..self.strangers.len() {
            if self.strangers[at].as_ref().is_some_and(|stranger| now - stranger.since > HELLO_TIME) {
                self.drop_stranger(at, "it did not say who it is within 2 s");
            }
        }
        while self.strangers.last().is_some_and(Option::is_none) {
            self.strangers.pop();
        }
        for place in 0..self.peers.len() {
            let peer = &mut self.peers[place];
            if let Some(open) = &mut peer.open {
                if now - peer.heard_at > SILENCE_MAX {
                    self.close(place, "it was silent for 5 s");
                } else if now >= peer.ping_at {
                    peer.ping_at = now + PING_EVERY;
                    open.connection.ping((now - self.started).as_nanos() as u64);
                }
            } else if !peer.dialling
                && let Some(address) = peer.address.as_ref().filter(|_| peer.dial_at.is_some_and(|at| now >= at))
                && !self.strangers.iter().flatten().any(|stranger| stranger.dialled == Some(peer.node))
            {
                peer.dial_at = None;
                peer.dialling = true;
                dial::start(peer.node, address, self.insecure, &self.dialled);
            }
        }
        self.flush();
    }
}

fn add_stranger(
    strangers: &mut Vec<Option<Stranger>>,
    epoll: &Epoll,
    mut open: Open,
    from: SocketAddr,
    dialled: Option<u8>,
    now: Instant,
) {
    let at = strangers.iter().position(Option::is_none).unwrap_or(strangers.len());
    let is_good = open.stream.set_nonblocking(true).is_ok() && open.stream.set_nodelay(true).is_ok();
    let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, STRANGER + at as u64);
    if !is_good || epoll.add(&open.stream, event).is_err() {
        return;
    }
    if push(&mut open, epoll, STRANGER + at as u64).is_err() {
        return;
    }
    let stranger = Some(Stranger { open, from, since: now, dialled, refused: false });
    if at == strangers.len() {
        strangers.push(stranger);
    } else {
        strangers[at] = stranger;
    }
}

/// Sends what waits, as far as the system takes it, and polls for writability if more is left.
fn push(open: &mut Open, epoll: &Epoll, key: u64) -> io::Result<()> {
    let before = open.blocked;
    open.blocked = false;
    while open.connection.waiting() > 0 {
        match open.stream.write(open.connection.ready()) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => open.connection.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                open.blocked = true;
                break;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if open.blocked != before {
        let out = if open.blocked { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        epoll.modify(&open.stream, &mut EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | out, key))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
