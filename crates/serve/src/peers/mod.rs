//! The carrier of frames between served devices: TCP, one connection for each pair of nodes, with all functions in it.
//!
//! It has no thread that answers: the engine's thread polls it, hands in what came and takes what the firmware says. A
//! thread only dials, since names are looked up there. Frames may be lost: the transport repeats what matters.

pub mod authority;
pub mod carrier;
mod connection;
mod dial;
mod faults;
mod identity;
mod open;
mod renewal;
mod strangers;

pub use identity::{CA_FILE, CERTIFICATE_FILE, IdentityError, KEY_FILE, name};
pub use renewal::IdentityState;

use crate::image::{Disk, random_bytes};
use crate::inbox::Inbox;
use crate::vfio_user::Waker;
use connection::{Ended, Heard};
use dial::Dialled;
use faults::Faults;
use identity::Identity;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use open::{Came, Open};
use renewal::{Files, Found, Renewals};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strangers::{ACCEPT_MAX, Stranger};
use tidewater_wire::replication::{Frame, Hello, PEER_VERSION};

/// Bytes that are read from a connection at once.
const READ_BYTES: usize = 256 << 10;
/// Marks events of strangers; peers have their node's number, and the listener the one below.
const STRANGER: u64 = 1 << 32;
/// Marks events of the listener.
const LISTENER: u64 = STRANGER - 1;
/// A peer that has sent nothing for this time is not there: the connection is closed, and dialled anew.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often the round trip is measured, and a connection without frames kept alive.
const PING_EVERY: Duration = Duration::from_millis(500);
/// Waits between attempts to reach a peer: they double, up to the second.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// A note that says what the last one on a peer said comes no earlier than this after it.
const NOTE_AGAIN: Duration = Duration::from_secs(60);
/// Notes on one peer in that time, at most.
const NOTES_MAX: usize = 8;
/// How often time is looked at while nothing is due.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// How a device and its peers reach each other.
#[derive(Clone, Debug)]
pub struct PeersSetup {
    /// This device's number in its group.
    pub node: u8,
    /// Name of the cluster: at most 32 bytes.
    pub cluster: String,
    /// Where peers of lower numbers reach it.
    pub listen: Option<SocketAddr>,
    /// Peers and where they listen, as `host:port`: those of higher numbers are dialled.
    pub peers: Vec<(u8, String)>,
    /// Folder of this device's certificate, key and CA: connections are encrypted, and peers prove who they are.
    pub identity: Option<PathBuf>,
    /// Addresses beyond loopback are meant, though nothing is encrypted.
    pub insecure: bool,
    /// Bytes a second that a replica which is behind is fed with from flash; `None`: as fast as it takes them.
    pub catch_up_rate: Option<u64>,
    /// What goes wrong with frames on their way, in tests.
    pub faults: Option<Arc<Faults>>,
    /// The primary's trims are not followed while there is room: a reader on this machine trims.
    pub holds_log: bool,
}

/// Why peers can't be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// An address beyond loopback, which has to be allowed.
    #[error(
        "{0} is not a loopback address, and the connection between peers is neither encrypted nor authenticated; give \
         each device a --peer-identity (`tidewater cluster identity init` makes them), or allow it with \
         --insecure-peers"
    )]
    NotLoopback(SocketAddr),
    /// The address can't be listened on.
    #[error("cannot listen for peers on {0}: {1}; choose another --peer-listen")]
    Listen(SocketAddr, io::Error),
    /// The name of the cluster.
    #[error("cluster name {0:?}: expected 1 to 32 bytes without zeros")]
    Cluster(String),
    /// A node number is out of range, or this device's own.
    #[error("node {0}: each device has a number of its own, 0 to 15")]
    Node(u8),
    /// The folder of the device's identity.
    #[error("{0}")]
    Identity(IdentityError),
    /// The system gives no epoll instance.
    #[error("cannot wait for peers: {0}")]
    System(io::Error),
}

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

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// All is as it should be.
    Good(String),
    /// Something is not.
    Bad(String),
}

/// A peer, as its status tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLink {
    /// Node.
    pub node: u8,
    /// Where it is dialled, or from where it came.
    pub address: String,
    /// The release that it is of, if it said so.
    pub release: Option<String>,
    /// Whether there is a connection.
    pub up: bool,
    /// Whether it is encrypted, and the peer has proven who it is.
    pub encrypted: bool,
    /// For how long that has been so.
    pub since: Duration,
    /// Smoothed round trip, once measured.
    pub round_trip: Option<Duration>,
    /// Bytes that wait to be sent.
    pub waiting: usize,
    /// Data frames left out because too much waited.
    pub dropped: u64,
    /// What it says of its disk.
    pub disk: Disk,
    /// Why there is no connection.
    pub why: Option<String>,
}

struct Peer {
    node: u8,
    address: Option<String>,
    open: Option<Open>,
    /// Connections of this process to it, counted.
    session: u64,
    /// The release that it said last that it is of.
    release: Option<String>,
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
    /// What the last note on it said.
    said: String,
    /// When the last notes were made.
    noted: VecDeque<Instant>,
    dropped: u64,
}

impl Peer {
    fn new(node: u8, address: Option<String>, dials: bool, now: Instant) -> Peer {
        Peer {
            node,
            address,
            open: None,
            session: 0,
            release: None,
            known: None,
            since: now,
            heard_at: now,
            ping_at: now,
            round_trip: None,
            dial_at: dials.then_some(now),
            dialling: false,
            retry: RETRY[0],
            why: None,
            said: String::new(),
            noted: VecDeque::new(),
            dropped: 0,
        }
    }
}

/// The connections to peers.
pub struct Peers {
    ours: Hello,
    cluster: String,
    identity: Option<Identity>,
    renewals: Option<Renewals>,
    insecure: bool,
    epoll: Epoll,
    listener: Option<TcpListener>,
    /// Connections that may be accepted until the next check.
    accepts: u32,
    peers: Vec<Peer>,
    strangers: Vec<Option<Stranger>>,
    dialled: Inbox<Dialled>,
    came: VecDeque<Incoming>,
    notes: VecDeque<Note>,
    /// When a note was made about a connection of which it is not known whose it is.
    stranger_noted: Option<Instant>,
    started: Instant,
    check_at: Instant,
    /// What pings say of this device's disk.
    disk: Disk,
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
        let identity = setup.identity.as_deref().map(|folder| Identity::load(folder, &setup.cluster, setup.node));
        let identity = identity.transpose().map_err(PeersError::Identity)?;
        let files = setup.identity.clone().zip(identity.as_ref());
        let files = files.map(|(folder, identity)| Files::new(folder, &setup.cluster, setup.node, identity));
        let renewals = files.map(|files| Renewals::start(files, Inbox::new(Arc::clone(&waker)))).transpose();
        let renewals = renewals.map_err(PeersError::System)?;
        let system = |error: nix::errno::Errno| PeersError::System(error.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system)?;
        let listener = match setup.listen {
            Some(address) if !address.ip().is_loopback() && !setup.insecure && identity.is_none() => {
                return Err(PeersError::NotLoopback(address));
            }
            Some(address) => {
                let listen = |error| PeersError::Listen(address, error);
                let listener = TcpListener::bind(address).map_err(listen)?;
                listener.set_nonblocking(true).map_err(listen)?;
                epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).map_err(system)?;
                Some(listener)
            }
            None => None,
        };
        let now = Instant::now();
        let boot = u64::from_le_bytes(random_bytes().map_err(PeersError::System)?);
        let release = Hello::release_bytes(env!("CARGO_PKG_VERSION"));
        let ours = Hello { version: PEER_VERSION, version_min: 1, node: setup.node, boot, cluster, release, ..ours };
        let peer = |(node, address): &(u8, String)| Peer::new(*node, Some(address.clone()), setup.node < *node, now);
        let notes = identity.as_ref().and_then(|identity| identity.note.clone()).map(Note::Bad).into_iter().collect();
        Ok(Peers {
            ours,
            cluster: setup.cluster.clone(),
            identity,
            renewals,
            insecure: setup.insecure,
            epoll,
            listener,
            accepts: ACCEPT_MAX,
            peers: setup.peers.iter().map(peer).collect(),
            strangers: Vec::new(),
            dialled: Inbox::new(waker),
            came: VecDeque::new(),
            notes,
            stranger_noted: None,
            started: now,
            check_at: now,
            disk: Disk::Works,
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

    /// The certificate that it shows from now on; `None`: it has none.
    pub fn identity(&self) -> Option<IdentityState> {
        let (identity, renewals) = (self.identity.as_ref()?, self.renewals.as_ref());
        Some(IdentityState {
            expires: identity.expires,
            renewals: renewals.map_or(0, |it| it.taken),
            refused: renewals.and_then(|it| it.refused.clone()),
        })
    }

    /// The next thing that the user should know.
    pub fn take_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// The next thing that came.
    pub fn take(&mut self) -> Option<Incoming> {
        self.came.pop_front()
    }

    /// What is known of each peer.
    pub fn links(&self) -> impl Iterator<Item = PeerLink> {
        self.peers.iter().map(|peer| PeerLink {
            node: peer.node,
            address: peer.address.clone().unwrap_or_else(|| "not known".to_owned()),
            release: peer.release.clone(),
            up: peer.open.is_some(),
            encrypted: peer.open.as_ref().is_some_and(Open::is_encrypted),
            since: peer.since.elapsed(),
            round_trip: peer.round_trip,
            waiting: peer.open.as_ref().map_or(0, |open| open.connection.waiting()),
            dropped: peer.dropped + peer.open.as_ref().map_or(0, |open| open.connection.dropped),
            disk: peer.open.as_ref().map_or(Disk::Works, |open| open.connection.their_disk),
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

    /// Tells peers how the disk of this device is.
    pub fn set_disk(&mut self, disk: Disk) {
        if std::mem::replace(&mut self.disk, disk) != disk {
            let sent_ns = self.started.elapsed().as_nanos() as u64;
            for open in self.peers.iter_mut().filter_map(|peer| peer.open.as_mut()) {
                open.connection.disk = disk;
                open.connection.ping(sent_ns);
            }
        }
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        for place in 0..self.peers.len() {
            let Peer { node, open, .. } = &mut self.peers[place];
            if let Some(open) = open.as_mut().filter(|open| !open.blocked && open.has_output())
                && let Err(error) = open.push(&self.epoll, (*node).into())
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
        self.renew();
        let mut events = [EpollEvent::empty(); 32];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            any = true;
            match event.data() {
                LISTENER => self.accept(),
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

    /// Takes up files of the identity that were renewed: connections that are there stay as they are.
    fn renew(&mut self) {
        let (Some(identity), Some(renewals)) = (&mut self.identity, &mut self.renewals) else { return };
        while let Some(found) = renewals.take() {
            let note = match found {
                Found::Renewed(new) => {
                    *identity = *new;
                    (renewals.taken, renewals.refused) = (renewals.taken + 1, None);
                    let expires = identity::date(identity.expires);
                    let text = format!("new connections show the renewed certificate, which expires on {expires}");
                    identity.note.clone().map_or(Note::Good(text), Note::Bad)
                }
                Found::Mended => {
                    renewals.refused = None;
                    Note::Good("the files of this device's identity are those in use again".into())
                }
                Found::Unusable(why) => {
                    let expires = identity::date(identity.expires);
                    renewals.refused = Some(why.clone());
                    Note::Bad(format!(
                        "the new files of this device's identity are not used: {why}; the certificate in use expires \
                         on {expires}"
                    ))
                }
            };
            self.notes.push_back(note);
        }
    }

    fn on_dialled(&mut self, dialled: Dialled) {
        let Some(place) = self.peers.iter().position(|peer| peer.node == dialled.node) else { return };
        let (now, peer) = (Instant::now(), &mut self.peers[place]);
        peer.dialling = false;
        match dialled.result {
            Ok((stream, from)) => {
                peer.session += 1;
                let session = match self.identity.as_ref().map(Identity::dial).transpose() {
                    Ok(session) => session,
                    Err(error) => return self.away(place, None, &format!("no TLS: {error}")),
                };
                let mut open = Open::new(stream, session);
                open.connection.greet(&Hello { to: peer.node, session: peer.session, ..self.ours });
                self.add_stranger(open, from, Some(dialled.node), now);
            }
            Err(why) => self.away(place, None, &why),
        }
    }

    /// There is no connection to a peer, for this reason: it is dialled again, if this device dials it.
    fn away(&mut self, place: usize, from: Option<SocketAddr>, why: &str) {
        self.note_why(place, from, why);
        let (now, node) = (Instant::now(), self.ours.node);
        let peer = &mut self.peers[place];
        if peer.address.is_some() && node < peer.node {
            peer.dial_at = Some(now + peer.retry);
            peer.retry = (peer.retry * 2).min(RETRY[1]);
            self.check_at = self.check_at.min(now + peer.retry);
        }
    }

    /// Keeps the reason for which there is no connection to a peer, and notes it if that is new.
    fn note_why(&mut self, place: usize, from: Option<SocketAddr>, why: &str) {
        let text = from.map_or_else(|| why.to_owned(), |from| format!("{from}: {why}"));
        self.note(place, why, &text, Note::Bad);
        self.peers[place].why = Some(text);
    }

    /// Notes something about a peer, unless the last note said the same, or there were many.
    fn note(&mut self, place: usize, what: &str, text: &str, of: fn(String) -> Note) {
        let (now, peer) = (Instant::now(), &mut self.peers[place]);
        let is_again = peer.said == what && peer.noted.back().is_some_and(|at| now - *at < NOTE_AGAIN);
        while peer.noted.front().is_some_and(|at| now - *at >= NOTE_AGAIN) {
            peer.noted.pop_front();
        }
        if !is_again && peer.noted.len() < NOTES_MAX {
            peer.noted.push_back(now);
            peer.said = what.to_owned();
            self.notes.push_back(of(format!("peer {}: {text}", peer.node)));
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
        self.away(place, None, why);
    }

    /// A peer has said who it is, and is the one. `greet`: this device has yet to say who it is.
    fn connect(&mut self, place: usize, mut open: Open, from: SocketAddr, greet: bool, theirs: &Hello) {
        let now = Instant::now();
        if let Some(old) = self.peers[place].open.take() {
            let _ = self.epoll.delete(&old.stream);
            self.peers[place].dropped += old.connection.dropped;
            self.came.push_back(Incoming::Link { node: theirs.node, up: false, restarted: false });
        }
        let peer = &mut self.peers[place];
        if greet {
            peer.session += 1;
            open.connection.greet(&Hello { to: peer.node, session: peer.session, ..self.ours });
        }
        let restarted = peer.known.is_some_and(|(boot, _)| boot != theirs.boot);
        peer.why = None;
        peer.release = theirs.release_name();
        peer.known = Some((theirs.boot, theirs.session));
        (peer.since, peer.heard_at, peer.ping_at) = (now, now, now);
        (peer.retry, peer.round_trip) = (RETRY[0], None);
        open.connection.disk = self.disk;
        open.connection.ping(self.started.elapsed().as_nanos() as u64);
        if open.watch(&self.epoll, peer.node.into(), false).is_err() {
            return self.away(place, None, "the system does not watch its connection");
        }
        peer.open = Some(open);
        self.note(place, "connected", &format!("connected ({from})"), Note::Good);
        self.came.push_back(Incoming::Link { node: theirs.node, up: true, restarted });
        // What came behind its hello.
        self.on_peer(theirs.node, EpollFlags::empty());
    }

    fn on_peer(&mut self, node: u8, events: EpollFlags) {
        let Some(place) = self.peers.iter().position(|peer| peer.node == node) else { return };
        let Some(open) = &mut self.peers[place].open else { return };
        if events.contains(EpollFlags::EPOLLOUT)
            && let Err(error) = open.push(&self.epoll, node.into())
        {
            return self.close(place, &format!("the connection failed: {error}"));
        }
        let mut ended = None;
        match open.read(&mut self.scratch) {
            Ok(Came::End) => ended = Some("it closed the connection".to_owned()),
            Ok(Came::Nothing) => {}
            Ok(Came::Bytes) => self.peers[place].heard_at = Instant::now(),
            Err(failed) => ended = Some(failed.words()),
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
                Err(Ended::Encrypted) => break,
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
        self.check_strangers(now);
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
                && !self.strangers.iter().flatten().any(|stranger| stranger.is_of(peer.node))
            {
                peer.dial_at = None;
                peer.dialling = true;
                dial::start(peer.node, address, self.insecure || self.identity.is_some(), &self.dialled);
            }
        }
        self.flush();
    }
}

#[cfg(test)]
mod tests;
