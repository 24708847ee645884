//! Controllers that hosts have over fabrics: an admin queue and I/O queues of one host (section 1.5.4).

use super::discovery_controller::Discovery;
use super::options::{Options, after};
use std::net::IpAddr;
use std::ops::Range;
use tidewater_base::{Duration, Instant};
use tidewater_wire::fabrics::{ConnectData, Nqn, Parameter};

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
    /// Its connection has gone. It can be connected again when nothing of it is left in the subsystem.
    Leaving,
}

/// Whether there is room for one more controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Free,
    /// When one that is leaving has left.
    Soon,
    /// When this one has ended.
    Instead(usize),
    /// There is not.
    None,
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
    host: Option<Nqn>,
    host_id: [u8; 16],
    address: IpAddr,
    queues: Vec<Queue>,
    /// Keep Alive Timeout, milliseconds; 0 is none.
    pub(super) keep_alive_ms: u32,
    /// When the host sent its last command.
    active_at: Instant,
    /// Bytes that its I/O queues have begun in this turn, and those that turns before did not make up for.
    begun: u32,
    /// The host has sent something in this turn.
    is_heard: bool,
    /// The host has left, and the subsystem has not yet.
    leaving: bool,
}

impl Association {
    /// When the controller ends unless its host is heard. `silence_max`: how long a discovery controller without a Keep
    /// Alive Timeout stays.
    pub(super) fn expires_at(&self, silence_max: Duration) -> Instant {
        match (&self.kind, self.keep_alive_ms) {
            _ if self.leaving => Instant::NEVER,
            (Kind::Subsystem { .. }, 0) => Instant::NEVER,
            (Kind::Discovery(_), 0) => after(self.active_at, silence_max),
            (_, ms) => after(self.active_at, Duration::from_ms(u64::from(ms))),
        }
    }

    /// From when on the controller gives way to another host: `None` where its host says itself when it is to be given
    /// up.
    fn gives_way_at(&self, options: &Options) -> Option<Instant> {
        let keep_alive = Duration::from_ms(u64::from(self.keep_alive_ms));
        let is_kept_alive = keep_alive > Duration::ZERO && keep_alive <= options.silence_max;
        if self.leaving || is_kept_alive {
            return None;
        }
        let has_queues = self.queues.iter().skip(1).any(|queue| *queue != Queue::Free);
        Some(after(self.active_at, if has_queues { options.silence_max } else { options.idle_time_max }))
    }

    /// Its host has sent a command.
    pub(super) fn hear(&mut self, now: Instant) {
        (self.active_at, self.is_heard) = (now, true);
    }

    /// Its host begins a command of so many bytes.
    pub(super) fn begin(&mut self, bytes: u32) {
        self.begun = self.begun.saturating_add(bytes);
    }

    /// Whether its host may begin so many bytes, of as many as a turn has.
    pub(super) fn may_begin(&self, bytes: u32, turn: u32) -> bool {
        self.begun == 0 || self.begun.saturating_add(bytes) <= turn
    }

    /// Connections that are its queues.
    pub(super) fn connections(&self) -> usize {
        self.peers().count()
    }

    /// Whether it is this host's.
    pub(super) fn is_of(&self, data: &ConnectData) -> bool {
        self.host == data.host && self.host_id == data.host_id
    }

    /// The field of an I/O queue's Connect data that names another host than the admin queue's did.
    pub(super) fn wrong_host(&self, data: &ConnectData) -> Option<Parameter> {
        if self.host_id != data.host_id {
            return Some(Parameter::HostId);
        }
        (self.host != data.host).then_some(Parameter::Host)
    }

    /// A queue; `None`: beyond the last one.
    pub(super) fn queue_mut(&mut self, queue: u16) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(queue))
    }

    /// The connections that are its queues.
    pub(super) fn peers(&self) -> impl Iterator<Item = usize> {
        self.queues.iter().filter_map(|queue| if let Queue::Peer(index) = queue { Some(*index) } else { None })
    }

    /// Its number, if it is a controller of the subsystem.
    pub(super) fn function(&self) -> Option<u8> {
        match self.kind {
            Kind::Subsystem { function } => Some(function),
            Kind::Discovery(_) => None,
        }
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
    /// Places that are taken: each read asks for it.
    taken: usize,
    functions: Range<u8>,
    queues_max: u16,
}

impl Associations {
    pub(super) fn new(options: &Options) -> Associations {
        let places = options.functions.len() + DISCOVERY_CONTROLLERS_MAX;
        Associations {
            places: (0..places).map(|_| None).collect(),
            taken: 0,
            functions: options.functions.clone(),
            queues_max: options.queues_max,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.places.len()
    }

    /// The connections are looked at anew. Of the hosts that have sent something within `quiet`, the one that has begun
    /// least owes nothing from now on, and others owe so much less; a turn in which another host has sent something
    /// makes up for `bytes` more. True: some host still owes.
    pub(super) fn begin_turn(&mut self, bytes: u32, quiet: Duration, now: Instant) -> bool {
        let subsystem = &mut self.places[..self.functions.len()];
        let active = subsystem.iter().flatten().filter(|association| after(association.active_at, quiet) > now);
        let least = active.map(|association| association.begun).min().unwrap_or(u32::MAX);
        let heard = subsystem.iter().flatten().filter(|association| association.is_heard).count();
        let mut any = false;
        for association in subsystem.iter_mut().flatten() {
            let is_heard = std::mem::take(&mut association.is_heard);
            let bonus = if heard > usize::from(is_heard) { bytes } else { 0 };
            association.begun = association.begun.saturating_sub(least.saturating_add(bonus));
            any |= association.begun > 0;
        }
        any
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.taken
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
            Queue::Free | Queue::Leaving => None,
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

    /// A controller for a host, whose admin queue is this connection; `None`: all are taken. Tells its place, and the
    /// function.
    pub(super) fn create(
        &mut self,
        (peer, address): (usize, IpAddr),
        data: &ConnectData,
        keep_alive_ms: u32,
        now: Instant,
        discovery: bool,
    ) -> Option<usize> {
        let functions = self.functions.len();
        let place = self.range(discovery).find(|&place| self.places[place].is_none())?;
        let mut queues = vec![Queue::Free; if discovery { 1 } else { usize::from(self.queues_max) + 1 }];
        queues[0] = Queue::Peer(peer);
        let kind = if discovery {
            let id = DISCOVERY_CONTROLLER_ID + (place - functions) as u16;
            Kind::Discovery(Box::new(Discovery::new(id)))
        } else {
            Kind::Subsystem { function: self.functions.start + place as u8 }
        };
        self.taken += 1;
        self.places[place] = Some(Association {
            kind,
            host: data.host.clone(),
            host_id: data.host_id,
            address,
            queues,
            keep_alive_ms,
            active_at: now,
            begun: 0,
            is_heard: false,
            leaving: false,
        });
        Some(place)
    }

    fn range(&self, discovery: bool) -> Range<usize> {
        let functions = self.functions.len();
        if discovery { functions..self.places.len() } else { 0..functions }
    }

    /// Whether a host may have one more controller; if not, the one that gives way to it, if any does.
    pub(super) fn room(
        &self,
        data: &ConnectData,
        address: IpAddr,
        discovery: bool,
        options: &Options,
        now: Instant,
    ) -> Room {
        let of = |is_counted: &dyn Fn(&Association) -> bool, max: usize| {
            let places = self.range(discovery).filter_map(|place| Some((place, self.get(place)?)));
            let (mut count, mut leaving, mut oldest) = (0, false, None::<(Instant, usize)>);
            for (place, association) in places.filter(|(_, association)| is_counted(association)) {
                count += 1;
                leaving |= association.leaving;
                let gives_way = association.gives_way_at(options).is_some_and(|at| at <= now);
                if gives_way && oldest.is_none_or(|(at, _)| association.active_at < at) {
                    oldest = Some((association.active_at, place));
                }
            }
            match oldest {
                _ if count < max => Room::Free,
                _ if leaving => Room::Soon,
                Some((_, place)) => Room::Instead(place),
                None => Room::None,
            }
        };
        let of_host = of(&|other| other.is_of(data), options.controllers_per_host_max);
        let of_address = of(&|other| other.address == address, options.controllers_per_address_max);
        let of_all = of(&|_| true, self.range(discovery).len());
        [of_host, of_address, of_all].into_iter().find(|room| *room != Room::Free).unwrap_or(Room::Free)
    }

    /// Whether a controller may have one more I/O queue of the `max` connections that there are for queues: each may
    /// have its own few, and more as long as enough is left for those of others.
    pub(super) fn admits_queue(&self, place: usize, max: usize, kept: usize) -> bool {
        let mut taken = 0;
        let mut left = 0;
        for (other, association) in self.places.iter().enumerate() {
            let has = association.as_ref().map_or(0, Association::connections);
            // A discovery controller has one queue.
            let kept = if other < self.functions.len() { kept } else { 1 };
            taken += has;
            if other == place && has < kept {
                return true;
            }
            left += if other == place { 0 } else { kept.saturating_sub(has) };
        }
        taken + left < max
    }

    /// An I/O queue has lost its connection. Tells the function.
    pub(super) fn lose_queue(&mut self, place: usize, queue: u16) -> Option<u8> {
        let association = self.get_mut(place)?;
        *association.queue_mut(queue)? = Queue::Leaving;
        match association.kind {
            Kind::Subsystem { function } => Some(function),
            Kind::Discovery(_) => None,
        }
    }

    /// Nothing of a queue is left in the subsystem.
    pub(super) fn free_queue(&mut self, function: u8, queue: u16) {
        if let Some((_, association)) = self.of_function(function)
            && let Some(slot) = association.queue_mut(queue)
            && *slot == Queue::Leaving
        {
            *slot = Queue::Free;
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
                self.taken -= 1;
                (None, queues)
            }
        }
    }

    /// A function is free again.
    pub(super) fn release(&mut self, function: u8) {
        if let Some(place) = self.place(function) {
            self.taken -= usize::from(self.places[place].take_if(|association| association.leaving).is_some());
        }
    }
}
