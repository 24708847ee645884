//! Asynchronous events (NVM Express 1.4, section 5.2): what a controller tells its host unasked.

use crate::subsystem::identify::EVENT_REQUESTS;
use std::collections::VecDeque;
use tidewater_wire::nvme::{Event, EventType};

/// Types of events: the code of the type has three bits.
const TYPES: usize = 8;

/// The requests and events of a controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct AsyncEvents {
    /// Identifiers of the commands that ask.
    requests: VecDeque<u16>,
    /// Each event at most once: what comes again while it waits, its log page tells.
    waiting: VecDeque<Event>,
    /// Types that were reported and whose log page was not read since.
    masked: [bool; TYPES],
}

impl AsyncEvents {
    /// A host asks. False: there are too many requests.
    pub(crate) fn ask(&mut self, cid: u16) -> bool {
        let room = self.requests.len() < usize::from(EVENT_REQUESTS);
        if room {
            self.requests.push_back(cid);
        }
        room
    }

    /// Takes a request back. False: there is none of this identifier.
    pub(crate) fn abort(&mut self, cid: u16) -> bool {
        let place = self.requests.iter().position(|&request| request == cid);
        place.map(|place| self.requests.remove(place)).is_some()
    }

    /// The host has read the log page of a type: events of it may come again.
    pub(crate) fn clear(&mut self, kind: EventType) {
        self.masked[kind as usize] = false;
    }

    /// An event waits until its host is notified.
    pub(crate) fn add(&mut self, event: Event) {
        if !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
    }

    /// An event, and the request that it answers.
    pub(crate) fn next(&mut self) -> Option<(u16, Event)> {
        if self.requests.is_empty() || self.waiting.is_empty() {
            return None;
        }
        let place = self.waiting.iter().position(|event| !self.masked[event.kind() as usize])?;
        let event = self.waiting.remove(place)?;
        self.masked[event.kind() as usize] = true;
        Some((self.requests.pop_front()?, event))
    }
}
