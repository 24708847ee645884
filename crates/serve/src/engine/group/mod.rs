//! Groups: the connections to peers, what this device has promised them, and orders of operators. Frames of the
//! firmware leave once what they promise is durable; frames that came go in with the time at which they did.

mod log_ends;
mod orders;

use self::log_ends::LogEnds;
use self::orders::command_of;
use super::{Context, Event, Firmware, Pending, Storage, Turn};
use crate::clock;
use crate::control::{Answer, Request};
use crate::peers::carrier::Carrier;
use crate::peers::{Incoming, Note};
use serde_json::Map;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use tidewater_base::{Duration, Instant};
use tidewater_core::border::LogInput;
use tidewater_core::content::Place;
use tidewater_core::fast::transport::{Command, CommandError};
use tidewater_core::fast::{Fast, Function, Lane};
use tidewater_core::subsystem::{Input, LogPiece};
use tidewater_wire::replication::{Body, Frame, LANES_MAX};
use tidewater_wire::vendor::{Role, TransportStatus};

/// Arrivals from peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing.
    Nothing,
    /// Frames without log bytes, or a change of a connection.
    Signs,
    /// Log bytes.
    Log,
}

/// The peers of a device, and what it owes them.
#[derive(Default)]
pub(crate) struct Group {
    /// The connections to peers.
    carrier: Option<Box<dyn Carrier>>,
    /// A primary's trims are not followed while there is room: a reader on this machine trims.
    holds_log: bool,
    /// For each function and lane the end of what is to be synced for its primary's host.
    flush_goals: Vec<[u64; LANES_MAX]>,
    /// For each function where its log ended, from time to time.
    ends: Vec<LogEnds>,
    /// For each function the version of what it promised to peers that is durable.
    promised: Vec<Option<u64>>,
    /// Who waits for each command of a group, if an operator does, in order.
    asked: VecDeque<Option<Sender<Answer>>>,
    /// Answers of the firmware, in order.
    answered: VecDeque<(u8, Result<(), CommandError>)>,
}

impl Group {
    /// `holds_log`: a primary's trims are not followed while there is room.
    pub(crate) fn new(holds_log: bool) -> Group {
        Group { holds_log, ..Group::default() }
    }

    /// Takes connections to peers, or drops those that there were.
    pub(crate) fn set_carrier(&mut self, carrier: Option<Box<dyn Carrier>>) {
        self.carrier = carrier;
    }

    /// The connections to peers, if the device has any.
    pub(crate) fn carrier(&self) -> Option<&dyn Carrier> {
        self.carrier.as_deref()
    }

    /// The connections to peers, to send by them.
    pub(crate) fn carrier_mut(&mut self) -> Option<&mut Box<dyn Carrier>> {
        self.carrier.as_mut()
    }

    /// The power has failed.
    pub(crate) fn power_lost(&mut self) {
        self.promised.clear();
        // Commands without an answer get none: later answers are of later commands.
        self.asked.clear();
        self.answered.clear();
    }

    // --- frames ---

    /// Takes in what peers have sent. `now`: the wall's time, by which peers are judged.
    pub(crate) fn poll(&mut self, t: &mut Turn, now: Instant) -> Came {
        let Some(peers) = &mut self.carrier else { return Came::Nothing };
        let (mut any, mut has_log) = (peers.poll(), false);
        while let Some(note) = peers.take_note() {
            t.cx.notes.push(match note {
                Note::Good(text) => Event::Note(text),
                Note::Bad(text) => Event::Warning(text),
            });
        }
        let functions = t.firmware.subsystem.device().fast().functions().len() as u8;
        let is_due = t.firmware.subsystem.device().fast().peers_deadline().is_some_and(|at| at <= now);
        let mut first = peers.take();
        if is_due || first.is_some() {
            t.cx.push(Input::PeersTime { now });
            any = true;
        }
        while let Some(incoming) = first.take().or_else(|| peers.take()) {
            match incoming {
                // Sent anew now and then: one comes when there is no room left.
                Incoming::Frame(frame, bytes) if self.holds_log && is_held(t.firmware, &frame) => t.cx.spare(bytes),
                Incoming::Frame(frame, bytes) => {
                    has_log |= !bytes.is_empty();
                    t.cx.put(Pending::Frame { frame, bytes });
                }
                Incoming::Link { node, up, restarted } => {
                    for function in 0..functions {
                        t.cx.push_log(function, LogInput::Link { peer: node, up, restarted });
                    }
                }
                Incoming::RoundTrip { node, time } => {
                    let time = Duration::from_ns(time.as_nanos() as u64);
                    for function in 0..functions {
                        t.cx.push_log(function, LogInput::RoundTrip { peer: node, time });
                    }
                }
            }
        }
        match any {
            _ if has_log => Came::Log,
            true => Came::Signs,
            false => Came::Nothing,
        }
    }

    /// Sends a frame, once what it promises is durable in the image: a node that forgot a promise in a crash could
    /// break it. `from`: where its log bytes are; `after`: the version of what it promises.
    pub(crate) fn send(
        &mut self,
        t: &mut Turn,
        storage: &mut Storage,
        frame: &Frame,
        (from, after): (Option<Place>, u64),
    ) {
        let function = usize::from(frame.function);
        if self.carrier.is_none() || !self.is_promise_durable(t, storage, function, after) {
            return;
        }
        let mut bytes = Vec::new();
        if let (&Body::Data { lane, offset, len, .. }, Some(from)) = (&frame.body, from) {
            bytes = t.cx.buffer(len as usize);
            let piece = LogPiece { function: frame.function, lane, offset, len, from };
            if storage.log_bytes(t.firmware, piece, &mut bytes).is_err() {
                return; // A replica asks for it again.
            }
        }
        if let Some(peers) = &mut self.carrier {
            peers.send(frame, &bytes);
        }
        t.cx.spare(bytes);
    }

    /// Whether what a function has promised, up to a version of it, is durable in the image; it is synced if it is not.
    pub(crate) fn is_promise_durable(
        &mut self,
        t: &mut Turn,
        storage: &mut Storage,
        function: usize,
        after: u64,
    ) -> bool {
        let Some(of) = t.firmware.subsystem.device().fast().function(function) else { return false };
        if self.promised.get(function).copied().flatten().is_some_and(|version| version >= after) {
            return !storage.has_failed();
        }
        // The control block of this version was stored before this output was taken.
        if !storage.sync_here(t.cx) {
            return false;
        }
        if self.promised.len() <= function {
            self.promised.resize(function + 1, None);
        }
        self.promised[function] = Some(of.transport().version());
        true
    }

    /// Passes on what clients want peers to sync, and syncs what the peers' clients want of this device: behind the
    /// drive's loop, so that all which came in one turn is synced at once. `wanted`: up to where the clients of a
    /// function's lane want its replicas to be synced. True: the image was synced.
    pub(crate) fn flush(
        &mut self,
        t: &mut Turn,
        storage: &mut Storage,
        wanted: impl Fn(usize, usize, &Function) -> u64,
    ) -> bool {
        if self.carrier.is_none() || storage.has_failed() || t.firmware.subsystem.device().is_recovering() {
            return false;
        }
        let fast = t.firmware.subsystem.device().fast();
        let mut is_due = false;
        self.flush_goals.resize(fast.functions().len(), [0; LANES_MAX]);
        for (function, of) in fast.functions().iter().enumerate() {
            let (transport, number) = (of.transport(), function as u8);
            for (lane, l) in of.lanes().iter().enumerate() {
                match transport.persistent().role {
                    // A candidate would not take the wish, and be asked in each turn.
                    Role::Primary if transport.writable() => {
                        let to = wanted(function, lane, of).min(l.released());
                        if to > transport.wanted(lane) {
                            t.cx.push_log(number, LogInput::Flush { lane: lane as u8, to });
                        }
                    }
                    Role::Secondary => {
                        // What is wanted meanwhile is the next sync's, or one that never rests would wait for ever.
                        let (goal, flushed) = (&mut self.flush_goals[function][lane], of.flushed(lane));
                        if *goal <= flushed || *goal > l.released() {
                            *goal = transport.wanted(lane);
                        }
                        is_due |= *goal > flushed && reached(fast, l) >= *goal;
                    }
                    Role::Primary | Role::StandAlone => {}
                }
            }
        }
        if !is_due {
            return false;
        }
        let image = storage.image_mut();
        let synced = image.store_logs(fast, |_, _| false).and_then(|()| image.sync_here());
        if !storage.is_good(t.cx, synced) {
            return false;
        }
        for (function, of) in fast.functions().iter().enumerate() {
            let version = of.transport().version();
            for (lane, l) in of.lanes().iter().enumerate() {
                let to = reached(fast, l);
                if of.transport().wanted(lane) > of.flushed(lane) && to > of.flushed(lane) {
                    t.cx.push_log(function as u8, LogInput::Flushed { lane: lane as u8, to, version });
                }
            }
        }
        true
    }

    // --- how far replicas are behind ---

    /// Notes where the logs that this device sends to peers end. `appended`: where the lanes of a function end by what
    /// programs have appended.
    pub(crate) fn note_ends(&mut self, firmware: &Firmware, appended: impl Fn(usize, &Function) -> Vec<u64>) {
        if self.carrier.is_none() {
            return;
        }
        let (now, functions) = (std::time::Instant::now(), firmware.subsystem.device().fast().functions());
        self.ends.resize_with(functions.len(), LogEnds::default);
        for (number, of) in functions.iter().enumerate() {
            let ends = &mut self.ends[number];
            if of.transport().persistent().role == Role::Primary {
                ends.note(now, || appended(number, of));
            } else if !ends.is_empty() {
                *ends = LogEnds::default();
            }
        }
    }

    /// How long a replica with these counters is behind.
    pub(crate) fn lag(&self, function: usize, shadow: &[u64]) -> std::time::Duration {
        self.ends.get(function).map_or_else(Default::default, |ends| ends.lag(std::time::Instant::now(), shadow))
    }

    // --- orders ---

    /// Passes on what an operator wants of a function's group; `now`: the wall's time. `None`: the answer comes with
    /// the firmware's.
    pub(crate) fn order(
        &mut self,
        t: &mut Turn,
        storage: &Storage,
        (request, answer): (&Request, &Sender<Answer>),
        now: Instant,
    ) -> Option<Answer> {
        let Some(peers) = &self.carrier else {
            return Some(Err("the device has no peers: serve it with --node and --peer".into()));
        };
        let function = match *request {
            Request::GroupForm { function, .. }
            | Request::GroupPromote { function, .. }
            | Request::GroupDemote { function }
            | Request::GroupLeave { function }
            | Request::GroupRebuild { function }
            | Request::GroupLead { function, .. } => function,
            _ => return Some(Err("internal error: not a request about a group".into())),
        };
        if t.firmware.subsystem.device().fast().function(function.into()).is_none() {
            return Some(Err(format!(
                "function {function} has no log: the profile's fast.functions says how many have"
            )));
        }
        // What it promises would be durable nowhere: it could only wait for acceptances that do not come.
        if let (Some(wrong), Request::GroupPromote { .. } | Request::GroupForm { .. }) =
            (storage.disk().wrong(), request)
        {
            let why = storage.image().fault().unwrap_or_default();
            return Some(Err(format!("{wrong} (the image {why}): this device can't become primary, nor join a group")));
        }
        let command = match command_of(request, peers.as_ref()) {
            Ok(command) => command,
            Err(why) => return Some(Err(why)),
        };
        t.cx.push(Input::PeersTime { now });
        t.cx.push_log(function, LogInput::Group(command));
        self.asked.push_back(Some(answer.clone()));
        None
    }

    /// A function may lack bytes that it had: the memory of this machine is gone.
    pub(crate) fn lost_memory(&mut self, cx: &mut Context, function: u8) {
        cx.push_log(function, LogInput::Group(Command::LostMemory));
        self.asked.push_back(None);
    }

    /// The firmware has carried out the oldest order for a group.
    pub(crate) fn carried_out(&mut self, function: u8, result: Result<(), CommandError>) {
        self.answered.push_back((function, result));
    }

    /// Answers what operators have asked, as far as the firmware has, once what the orders have changed is durable.
    pub(crate) fn answer_orders(&mut self, t: &mut Turn, storage: &mut Storage) {
        while let Some((function, result)) = self.answered.pop_front() {
            let Some(answer) = self.asked.pop_front().flatten() else { continue };
            let of = t.firmware.subsystem.device().fast().function(function.into());
            let version = of.map_or(0, |of| of.transport().version());
            let said = match result {
                Err(error) => Err(error.to_string()),
                Ok(()) if !self.is_promise_durable(t, storage, function.into(), version) => {
                    Err("it was carried out, and can't be stored in the image: see the device's messages".into())
                }
                Ok(()) => Ok(Map::from_iter([("clock_ms".to_owned(), clock::milliseconds().into())])),
            };
            let _ = answer.send(said);
        }
    }
}

/// Whether a frame is a trim that a replica need not follow yet.
fn is_held(firmware: &Firmware, frame: &Frame) -> bool {
    let of = firmware.subsystem.device().fast().function(frame.function.into());
    matches!(frame.body, Body::Trim { .. }) && of.is_some_and(|of| !of.status().has(TransportStatus::WAITS_FOR_TRIM))
}

/// End of what the image has of a lane once its logs are stored.
fn reached(fast: &Fast, lane: &Lane) -> u64 {
    if fast.survives() { lane.released() } else { lane.durable() }
}
