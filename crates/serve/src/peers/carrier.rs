//! What carries frames between devices, as the engine sees it: TCP, or TCP that loses, delays and repeats them by seed.

pub use super::faults::Faults;

use super::{IdentityState, Incoming, Note, PeerLink, Peers, PeersError, PeersSetup};
use crate::image::Disk;
use crate::vfio_user::Waker;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_wire::replication::{Frame, Hello};

/// Frames that are late at once, at most: others are lost.
const LATE_MAX: usize = 1024;

/// Carries frames to peers and from them. It answers nothing by itself, and may lose, repeat and reorder frames: the
/// transport repeats what matters.
pub trait Carrier {
    /// Adds a frame, with the log bytes that it names, to what goes to its receiver with the next [`Carrier::flush`].
    fn send(&mut self, frame: &Frame, log: &[u8]);
    /// Sends what waits.
    fn flush(&mut self);
    /// Takes in what has come, and does what is due. True: something happened.
    fn poll(&mut self) -> bool;
    /// The next thing that came.
    fn take(&mut self) -> Option<Incoming>;
    /// When to poll again at the latest.
    fn deadline(&self) -> Instant;
    /// Readable when there is something to poll for.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// The next thing that the user should know.
    fn take_note(&mut self) -> Option<Note>;
    /// This device's number.
    fn node(&self) -> u8;
    /// Where peers reach it.
    fn address(&self) -> Option<SocketAddr>;
    /// What is known of each peer.
    fn links(&self) -> Vec<PeerLink>;
    /// The certificate that this device shows; `None`: it has none.
    fn identity(&self) -> Option<IdentityState>;
    /// Tells peers how the disk of this device is.
    fn set_disk(&mut self, disk: Disk);
}

impl Carrier for Peers {
    fn send(&mut self, frame: &Frame, log: &[u8]) {
        Peers::send(self, frame, log);
    }

    fn flush(&mut self) {
        Peers::flush(self);
    }

    fn poll(&mut self) -> bool {
        Peers::poll(self)
    }

    fn take(&mut self) -> Option<Incoming> {
        Peers::take(self)
    }

    fn deadline(&self) -> Instant {
        Peers::deadline(self)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        Peers::as_fd(self)
    }

    fn take_note(&mut self) -> Option<Note> {
        Peers::take_note(self)
    }

    fn node(&self) -> u8 {
        Peers::node(self)
    }

    fn address(&self) -> Option<SocketAddr> {
        Peers::address(self)
    }

    fn links(&self) -> Vec<PeerLink> {
        Peers::links(self).collect()
    }

    fn identity(&self) -> Option<IdentityState> {
        Peers::identity(self)
    }

    fn set_disk(&mut self, disk: Disk) {
        Peers::set_disk(self, disk);
    }
}

/// Connections to peers, as [`Peers::bind`] makes them, with the faults of the setup, if it has any.
///
/// # Errors
/// As [`PeersError`] says.
pub fn connect(setup: &PeersSetup, ours: Hello, waker: Arc<Waker>) -> Result<Box<dyn Carrier>, PeersError> {
    let peers = Peers::bind(setup, ours, waker)?;
    Ok(match &setup.faults {
        Some(faults) => Box::new(Faulty::new(peers, Arc::clone(faults))),
        None => Box::new(peers),
    })
}

/// A frame that is late; of two the one that is due first is the smaller.
struct Late {
    at: Instant,
    number: u64,
    frame: Frame,
    log: Vec<u8>,
}

impl Late {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Late {
    fn eq(&self, other: &Late) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Late {}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Late) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Late {
    fn cmp(&self, other: &Late) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A carrier with faults in what it sends.
pub struct Faulty<C> {
    inner: C,
    faults: Arc<Faults>,
    rng: Rng,
    late: BinaryHeap<Reverse<Late>>,
    sent: u64,
}

impl<C: Carrier> Faulty<C> {
    /// Puts faults before a carrier.
    pub fn new(inner: C, faults: Arc<Faults>) -> Faulty<C> {
        let rng = Rng::new(faults.seed ^ u64::from(inner.node()) << 56, b"faulty carrier");
        Faulty { inner, faults, rng, late: BinaryHeap::new(), sent: 0 }
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.below(100) < percent.into()
    }

    /// Hands on what is late no longer. True: there was something.
    fn hand_on(&mut self) -> bool {
        let (now, before) = (Instant::now(), self.late.len());
        while self.late.peek().is_some_and(|Reverse(late)| late.at <= now) {
            if let Some(Reverse(late)) = self.late.pop() {
                self.inner.send(&late.frame, &late.log);
            }
        }
        before > self.late.len()
    }
}

impl<C: Carrier> Carrier for Faulty<C> {
    fn send(&mut self, frame: &Frame, log: &[u8]) {
        let is_cut = self.faults.cut.load(Ordering::Relaxed) >> frame.to.min(15) & 1 == 1;
        if is_cut || self.chance(self.faults.drop) {
            self.faults.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copies = 1 + u8::from(self.chance(self.faults.repeat));
        self.faults.repeated.fetch_add(u64::from(copies) - 1, Ordering::Relaxed);
        let longest = self.faults.delay.as_micros() as u64;
        for _ in 0..copies {
            if longest == 0 {
                self.inner.send(frame, log);
            } else if self.late.len() < LATE_MAX {
                let at = Instant::now() + Duration::from_micros(self.rng.below(longest + 1));
                self.sent += 1;
                self.late.push(Reverse(Late { at, number: self.sent, frame: frame.clone(), log: log.to_vec() }));
                self.faults.delayed.fetch_add(1, Ordering::Relaxed);
            } else {
                self.faults.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn flush(&mut self) {
        self.hand_on();
        self.inner.flush();
    }

    fn poll(&mut self) -> bool {
        let any = self.hand_on();
        self.inner.poll() || any
    }

    fn take(&mut self) -> Option<Incoming> {
        self.inner.take()
    }

    fn deadline(&self) -> Instant {
        let due = self.inner.deadline();
        self.late.peek().map_or(due, |Reverse(late)| late.at.min(due))
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    fn take_note(&mut self) -> Option<Note> {
        self.inner.take_note()
    }

    fn node(&self) -> u8 {
        self.inner.node()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.inner.address()
    }

    fn links(&self) -> Vec<PeerLink> {
        self.inner.links()
    }

    fn identity(&self) -> Option<IdentityState> {
        self.inner.identity()
    }

    fn set_disk(&mut self, disk: Disk) {
        self.inner.set_disk(disk);
    }
}
