//! Asynchronous events (NVM Express 1.4, section 5.2): what a controller tells its host unasked.

use super::Subsystem;
use super::identify::EVENT_REQUESTS;
use std::collections::VecDeque;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Event, EventType, Status};

/// Types of events: the code of the type has three bits.
const TYPES: usize = 8;

/// The requests and events of a controller.
#[derive(Clone, Debug, Default)]
pub(super) struct AsyncEvents {
    /// Identifiers of the commands that ask.
    requests: VecDeque<u16>,
    /// Each event at most once: what comes again while it waits, its log page tells.
    waiting: VecDeque<Event>,
    /// Types that were reported and whose log page was not read since.
    masked: [bool; TYPES],
}

impl AsyncEvents {
    /// A host asks. False: there are too many requests.
    pub(super) fn ask(&mut self, cid: u16) -> bool {
        let room = self.requests.len() < usize::from(EVENT_REQUESTS);
        if room {
            self.requests.push_back(cid);
        }
        room
    }

    /// Takes a request back. False: there is none of this identifier.
    pub(super) fn abort(&mut self, cid: u16) -> bool {
        let place = self.requests.iter().position(|&request| request == cid);
        place.map(|place| self.requests.remove(place)).is_some()
    }

    /// The host has read the log page of a type: events of it may come again.
    pub(super) fn clear(&mut self, kind: EventType) {
        self.masked[kind as usize] = false;
    }

    /// An event, and the request that it answers.
    fn next(&mut self) -> Option<(u16, Event)> {
        if self.requests.is_empty() || self.waiting.is_empty() {
            return None;
        }
        let place = self.waiting.iter().position(|event| !self.masked[event.kind() as usize])?;
        let event = self.waiting.remove(place)?;
        self.masked[event.kind() as usize] = true;
        Some((self.requests.pop_front()?, event))
    }
}

impl<M: Medium> Subsystem<M> {
    /// Something has happened that a controller's host is to know.
    #[cold]
    pub(super) fn raise(&mut self, function: u8, event: Event) {
        if !self.state.features.tells(function, event) {
            return;
        }
        let events = &mut self.controllers[usize::from(function)].events;
        if !events.waiting.contains(&event) {
            events.waiting.push_back(event);
        }
        self.tell_events(function);
    }

    /// Events go out as far as there are requests for them.
    pub(super) fn tell_events(&mut self, function: u8) {
        while let Some((cid, event)) = self.controllers[usize::from(function)].events.next() {
            self.post(function, 0, cid, Status::SUCCESS, event.dword(), None);
        }
    }
}
