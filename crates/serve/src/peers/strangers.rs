//! Connections that have not said yet who they are: bounded in number, time and memory, since anything that reaches the
//! port can make one.

use super::connection::{Connection, Ended, Heard};
use super::identity::{self, Identity, wrong_name};
use super::open::{Came, Failed, Open};
use super::{LISTENER, NOTE_AGAIN, Note, Peers, STRANGER};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};
use tidewater_wire::replication::Hello;

/// Accepted connections that have not said yet who they are, at most.
const STRANGERS_MAX: usize = 16;
/// Connections that are accepted between two checks of the time, at most: a handshake costs the device's thread as much
/// as some appends do.
pub(super) const ACCEPT_MAX: u32 = 4;
/// How long a connection may take to say who it is, and a refusal to arrive.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Bytes that are read at once from one that has not said yet who it is.
const READ_BYTES: usize = 4 << 10;
/// Bytes that one that was refused may still send before its end.
const DISCARD_MAX: usize = 64 << 10;

/// A connection that has not said yet who it is.
pub(super) struct Stranger {
    open: Open,
    from: SocketAddr,
    since: Instant,
    /// It was dialled as this peer.
    dialled: Option<u8>,
    /// It was refused: what is left is to send why, and to wait for its end, so that this arrives.
    refused: bool,
    /// Bytes that came since.
    discarded: usize,
}

impl Stranger {
    /// Whether it is an attempt to reach this peer that has not ended yet.
    pub(super) fn is_of(&self, node: u8) -> bool {
        self.dialled == Some(node) && !self.refused
    }
}

impl Peers {
    pub(super) fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            if self.accepts == 0 {
                // The rest waits in the system until the next check.
                let _ = self.epoll.modify(listener, &mut EpollEvent::new(EpollFlags::empty(), LISTENER));
                return;
            }
            let Ok((stream, from)) = listener.accept() else { return };
            self.accepts -= 1;
            self.make_room();
            let session = match self.identity.as_ref().map(Identity::accept).transpose() {
                Ok(session) => session,
                Err(error) => return self.notes.push_back(Note::Bad(format!("no TLS: {error}"))),
            };
            self.add_stranger(Open::new(stream, session), from, None, Instant::now());
        }
    }

    /// Closes the oldest of those who have not said who they are, if there are too many. It is one of the address that
    /// has most of them, so that one host can't keep out another.
    fn make_room(&mut self) {
        let accepted = || self.strangers.iter().flatten().filter(|stranger| stranger.dialled.is_none());
        if accepted().count() < STRANGERS_MAX {
            return;
        }
        let mut of: BTreeMap<IpAddr, usize> = BTreeMap::new();
        accepted().for_each(|stranger| *of.entry(stranger.from.ip()).or_default() += 1);
        let most = of.values().copied().max().unwrap_or(0);
        let oldest = (0..self.strangers.len())
            .filter_map(|at| Some((at, self.strangers[at].as_ref()?)))
            .filter(|(_, stranger)| stranger.dialled.is_none() && of.get(&stranger.from.ip()) == Some(&most))
            .min_by_key(|(_, stranger)| stranger.since);
        if let Some((at, _)) = oldest {
            self.strangers[at] = None;
        }
    }

    pub(super) fn add_stranger(&mut self, open: Open, from: SocketAddr, dialled: Option<u8>, now: Instant) {
        let at = self.strangers.iter().position(Option::is_none).unwrap_or(self.strangers.len());
        let is_good = open.stream.set_nonblocking(true).is_ok() && open.stream.set_nodelay(true).is_ok();
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, STRANGER + at as u64);
        let is_watched = is_good && self.epoll.add(&open.stream, event).is_ok();
        let stranger = Some(Stranger { open, from, since: now, dialled, refused: false, discarded: 0 });
        if at == self.strangers.len() {
            self.strangers.push(stranger);
        } else {
            self.strangers[at] = stranger;
        }
        if is_watched {
            self.push_stranger(at);
        } else {
            self.drop_stranger(at, "the system does not watch its connection");
        }
    }

    /// Sends what waits for a stranger.
    fn push_stranger(&mut self, at: usize) {
        let Some(stranger) = self.strangers.get_mut(at).and_then(Option::as_mut) else { return };
        if let Err(error) = stranger.open.push(&self.epoll, STRANGER + at as u64) {
            return self.drop_stranger(at, &Failed::System(error).words());
        }
        if stranger.refused && !stranger.open.has_output() {
            // A close now could overtake the reason: it comes with the other side's end.
            let _ = stranger.open.stream.shutdown(Shutdown::Write);
        }
    }

    pub(super) fn on_stranger(&mut self, at: usize) {
        let Some(stranger) = self.strangers.get_mut(at).and_then(Option::as_mut) else { return };
        if stranger.refused {
            let came = stranger.open.discard(&mut self.scratch[..READ_BYTES]);
            stranger.discarded += came.unwrap_or(0);
            return match came {
                Some(_) if stranger.discarded <= DISCARD_MAX => self.push_stranger(at),
                _ => self.strangers[at] = None,
            };
        }
        match stranger.open.read(&mut self.scratch[..READ_BYTES]) {
            Ok(Came::End) => return self.drop_stranger(at, "it closed the connection before it said who it is"),
            Ok(_) => {}
            Err(Failed::Tls(error)) => return self.on_tls_failure(at, &error),
            Err(failed) => return self.drop_stranger(at, &failed.words()),
        }
        match stranger.open.connection.next() {
            Ok(None) => {}
            Ok(Some(Heard::Hello(theirs))) => return self.on_hello(at, &theirs),
            // Nothing else comes before a hello.
            Ok(Some(_)) => return self.drop_stranger(at, "it sent a frame before its hello"),
            Err(Ended::Refused(why)) => return self.drop_stranger(at, &format!("it refuses this device: {why}")),
            Err(Ended::Encrypted) => {
                let why = format!(
                    "it encrypts, and node {} does not: start both with --peer-identity, or neither",
                    self.ours.node
                );
                return self.refuse(at, &why, None);
            }
            Err(Ended::Foreign(why)) => return self.drop_stranger(at, &format!("not a peer: {why}")),
        }
        self.push_stranger(at);
    }

    /// A handshake has failed: TLS has still to say so.
    fn on_tls_failure(&mut self, at: usize, error: &rustls::Error) {
        let Some(stranger) = self.strangers[at].as_mut() else { return };
        (stranger.refused, stranger.since) = (true, Instant::now());
        stranger.open.connection = Connection::new();
        if let Some(why) = identity::failure(error) {
            self.blame(at, &why, None);
        } else if stranger.dialled.is_some() {
            self.blame(at, &format!("not a peer: {error}"), None);
        }
        self.push_stranger(at);
    }

    /// Says to a stranger why it is refused, and keeps that for the user. `node`: who it says it is.
    fn refuse(&mut self, at: usize, why: &str, node: Option<u8>) {
        let Some(stranger) = self.strangers[at].as_mut() else { return };
        stranger.open.connection.refuse(why);
        (stranger.refused, stranger.since) = (true, Instant::now());
        self.blame(at, why, node);
        self.push_stranger(at);
    }

    /// Keeps why a stranger is no connection with the peers that it can be: the one that was dialled, the one that it
    /// says it is, or those that dial this device and are away.
    fn blame(&mut self, at: usize, why: &str, node: Option<u8>) {
        let Some(stranger) = self.strangers[at].as_ref() else { return };
        let (from, dialled, now) = (stranger.from, stranger.dialled, Instant::now());
        let place_of = |node: u8| self.peers.iter().position(|peer| peer.node == node);
        if let Some(place) = dialled.and_then(place_of) {
            if self.peers[place].open.is_none() {
                self.away(place, Some(from), why);
            }
            return;
        }
        // What a stranger says of itself changes no more than words: nothing of it is proven.
        if let Some(place) = node.or_else(|| stranger.open.hinted()).and_then(place_of) {
            if self.peers[place].open.is_none() {
                self.note_why(place, Some(from), why);
            }
            return;
        }
        for peer in &mut self.peers {
            if peer.open.is_none() && peer.node < self.ours.node {
                peer.why = Some(format!("{from}, which may be it: {why}"));
            }
        }
        if self.stranger_noted.is_none_or(|at| now - at > NOTE_AGAIN) {
            self.stranger_noted = Some(now);
            self.notes.push_back(Note::Bad(format!("a peer from {from} is refused: {why}")));
        }
    }

    /// A connection that says nothing more of use. `why`: for the user, if it is known whose it was.
    fn drop_stranger(&mut self, at: usize, why: &str) {
        let Some(stranger) = self.strangers[at].take() else { return };
        if stranger.refused {
            return;
        }
        if let Some(place) = stranger.dialled.and_then(|node| self.peers.iter().position(|peer| peer.node == node)) {
            self.away(place, Some(stranger.from), why);
        }
    }

    /// Why a device that says this is refused. `dialled`: as whom it was dialled.
    fn mismatch(&self, open: &Open, dialled: Option<u8>, theirs: &Hello) -> Option<String> {
        let (node, ours) = (theirs.node, self.ours.node);
        if self.identity.is_some() {
            if !open.is_encrypted() {
                return Some(format!(
                    "node {ours} encrypts, and node {node} does not: start both with --peer-identity, or neither"
                ));
            }
            let wanted = identity::name(&self.cluster, node);
            let whose = format!("the certificate of node {node}");
            let why = wrong_name(&whose, open.name().as_deref(), &wanted);
            if why.is_some() {
                return why;
            }
        }
        Hello::mismatch(&self.ours, theirs).or_else(|| {
            let place = self.peers.iter().find(|peer| peer.node == node);
            match (dialled, place) {
                (Some(wanted), _) if node != wanted => {
                    Some(format!("node {node} answers where node {wanted} is looked for: check --peer"))
                }
                (None, _) if node > ours => Some(format!("node {node} dials node {ours}: the lower number dials")),
                (_, None) => Some(format!("node {node} is not listed with --peer on node {ours}")),
                (None, Some(peer)) => {
                    let is_old =
                        peer.known.is_some_and(|(boot, session)| boot == theirs.boot && theirs.session <= session);
                    is_old.then(|| "a newer connection has come".to_owned())
                }
                _ => None,
            }
        })
    }

    fn on_hello(&mut self, at: usize, theirs: &Hello) {
        let Some(stranger) = self.strangers[at].as_ref() else { return };
        if let Some(why) = self.mismatch(&stranger.open, stranger.dialled, theirs) {
            return self.refuse(at, &why, Some(theirs.node));
        }
        let Some(place) = self.peers.iter().position(|peer| peer.node == theirs.node) else { return };
        if let Some(Stranger { open, from, dialled, .. }) = self.strangers[at].take() {
            self.connect(place, open, from, dialled.is_none(), theirs);
        }
    }

    /// Closes those that took too long, and accepts again.
    pub(super) fn check_strangers(&mut self, now: Instant) {
        for at in 0..self.strangers.len() {
            if self.strangers[at].as_ref().is_some_and(|stranger| now - stranger.since > HELLO_TIME) {
                self.drop_stranger(at, "it did not say who it is within 2 s");
            }
        }
        while self.strangers.last().is_some_and(Option::is_none) {
            self.strangers.pop();
        }
        if self.accepts == 0
            && let Some(listener) = &self.listener
        {
            let _ = self.epoll.modify(listener, &mut EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
        }
        self.accepts = ACCEPT_MAX;
    }
}
