//! Controllers that hosts have over fabrics: an admin queue and I/O queues of one host (section 1.5.4).

use super::discovery::Discovery;
use super::options::Options;
use super::target::after;
use std::ops::Range;
use tidewater_base::{Duration, Instant};
use tidewater_wire::fabrics::{ConnectData, Nqn};

/// Discovery controllers at the same time, at most: hosts have them for moments only.
const DISCOVERY_CONTROLLERS_MAX: usize = 16;
/// The identifier of the first discovery controller: far from those of the subsystem, below the reserved ones (FFF0h).
const DISCOVERY_CONTROLLER_ID: u16 = 0xF000;

/// A queue of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// It was never connected.
    Free,
    /// A connection is this queue.
    Peer(usize),
    /// Its connection has gone. It can't be connected again: what it left in the subsystem goes with the controller.
    Lost,
}

/// What kind of controller it is.
#[derive(Debug)]
pub(super) enum Kind {
    /// A controller of the subsystem.
    Subsystem {
        /// Its number.
        function: u8,
    },
    /// A discovery controller, which the target itself is.
    Discovery(Box<Discovery>),
}

/// A controller and its host.
#[derive(Debug)]
pub(super) struct Association {
    pub(super) kind: Kind,
    host: Nqn,
    host_id: [u8; 16],
    queues: Vec<Queue>,
    /// Keep Alive Timeout, milliseconds; 0 is none.
    pub(super) keep_alive_ms: u32,
    /// When the host was heard last.
    pub(super) heard: Instant,
    /// The host has left, and the subsystem has not yet.
    leaving: bool,
}

impl Association {
    /// When the controller ends unless its host is heard.
    pub(super) fn expires_at(&self) -> Instant {
        if self.leaving || self.keep_alive_ms == 0 {
            return Instant::NEVER;
        }
        after(self.heard, Duration::from_ms(u64::from(self.keep_alive_ms)))
    }

    /// Whether it is this host's.
    pub(super) fn is_of(&self, data: &ConnectData) -> bool {
        self.host == data.host && self.host_id == data.host_id
    }

    /// A queue; `None`: beyond the last one.
    pub(super) fn queue_mut(&mut self, queue: u16) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(queue))
    }

    /// The connections of its I/O queues, which have none from now on.
    pub(super) fn take_io_queues(&mut self) -> Vec<usize> {
        let mut peers = Vec::new();
        for queue in &mut self.queues[1..] {
            // After a reset of the controller the host may connect all of them again.
            if let Queue::Peer(index) = std::mem::replace(queue, Queue::Free) {
                peers.push(index);
            }
        }
        peers
    }
}

/// All controllers: first a place for each function, then places for discovery controllers.
pub(super) struct Associations {
    places: Vec<Option<Association>>,
    functions: Range<u8>,
    queues_max: u16,
}

impl Associations {
    pub(super) fn new(options: &Options) -> Associations {
        let places = options.functions.len() + DISCOVERY_CONTROLLERS_MAX;
        Associations {
            places: (0..places).map(|_| None).collect(),
            functions: options.functions.clone(),
            queues_max: options.queues_max,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.places.len()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    pub(super) fn get(&self, place: usize) -> Option<&Association> {
        self.places.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Association> {
        self.places.get_mut(place)?.as_mut()
    }

    /// The connection that is a queue of a controller.
    pub(super) fn peer(&self, function: u8, queue: u16) -> Option<usize> {
        let place = self.place(function)?;
        match self.get(place)?.queues.get(usize::from(queue))? {
            Queue::Peer(index) => Some(*index),
            Queue::Free | Queue::Lost => None,
        }
    }

    fn place(&self, function: u8) -> Option<usize> {
        self.functions.contains(&function).then(|| usize::from(function - self.functions.start))
    }

    /// A controller of the subsystem that has not left.
    pub(super) fn of_function(&mut self, function: u8) -> Option<(usize, &mut Association)> {
        let place = self.place(function)?;
        self.get_mut(place).filter(|association| !association.leaving).map(|association| (place, association))
    }

    /// The functions that have controllers.
    pub(super) fn functions(&self) -> impl Iterator<Item = u8> {
        let taken = self.places[..self.functions.len()].iter().zip(self.functions.clone());
        taken.filter(|(place, _)| place.as_ref().is_some_and(|association| !association.leaving)).map(|(_, f)| f)
    }

    /// A controller for a host, whose admin queue is this connection; `None`: all are taken. Tells its place, and the function.
    pub(super) fn create(
        &mut self,
        peer: usize,
        data: &ConnectData,
        keep_alive_ms: u32,
        now: Instant,
        discovery: bool,
    ) -> Option<usize> {
        let functions = self.functions.len();
        let range = if discovery { functions..self.places.len() } else { 0..functions };
        let place = range.into_iter().find(|&place| self.places[place].is_none())?;
        let mut queues = vec![Queue::Free; if discovery { 1 } else { usize::from(self.queues_max) + 1 }];
        queues[0] = Queue::Peer(peer);
        let kind = if discovery {
            let id = DISCOVERY_CONTROLLER_ID + (place - functions) as u16;
            Kind::Discovery(Box::new(Discovery::new(id)))
        } else {
            Kind::Subsystem { function: self.functions.start + place as u8 }
        };
        self.places[place] = Some(Association {
            kind,
            host: data.host.clone(),
            host_id: data.host_id,
            queues,
            keep_alive_ms,
            heard: now,
            leaving: false,
        });
        Some(place)
    }

    /// An I/O queue has lost its connection.
    pub(super) fn lose_queue(&mut self, place: usize, queue: u16) {
        if let Some(slot) = self.get_mut(place).and_then(|association| association.queue_mut(queue)) {
            *slot = Queue::Lost;
        }
    }

    /// A host leaves its controller. Tells the function, which is free after [`Associations::release`], and the queues.
    pub(super) fn leave(&mut self, place: usize) -> (Option<u8>, Vec<Queue>) {
        let Some(association) = self.get_mut(place).filter(|association| !association.leaving) else {
            return (None, Vec::new());
        };
        association.leaving = true;
        let queues = std::mem::take(&mut association.queues);
        match association.kind {
            Kind::Subsystem { function } => (Some(function), queues),
            Kind::Discovery(_) => {
                self.places[place] = None;
                (None, queues)
            }
        }
    }

    /// A function is free again.
    pub(super) fn release(&mut self, function: u8) {
        if let Some(place) = self.place(function) {
            self.places[place].take_if(|association| association.leaving);
        }
    }
}
