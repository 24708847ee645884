//! Peers in the engine's loop: frames of the firmware leave once what they promise is durable, and frames that came go
//! in with the time at which they did.

pub(crate) mod replica_lag;

use self::replica_lag::behind;
use crate::clock;
use crate::control::{Answer, GroupMode, Request};
use crate::engine::context::Pending;
use crate::engine::events::Event;
use crate::engine::firmware::Firmware;
use crate::engine::hosts::function::Port;
use crate::engine::route::World;
use crate::engine::server::Server;
use crate::image::Disk;
use crate::peers::carrier::Carrier;
use crate::peers::{Incoming, Note};
use serde_json::{Map, Value};
use std::sync::mpsc::Sender;
use tidewater_base::{Duration, Instant};
use tidewater_core::content::Place;
use tidewater_core::drive::Clock as _;
use tidewater_core::fast::transport::{Command, Leadership, Status, flag};
use tidewater_core::fast::{Fast, Lane};
use tidewater_core::subsystem::{Input, LogPiece};
use tidewater_wire::replication::{Body, Epoch, Frame, Group, LANES_MAX, Mode};
use tidewater_wire::vendor::{Role, TransportStatus};

/// Whether a frame is a trim that a replica need not follow yet.
fn is_held(firmware: &Firmware, frame: &Frame) -> bool {
    let of = firmware.subsystem.device().fast().function(frame.function.into());
    matches!(frame.body, Body::Trim { .. }) && of.is_some_and(|of| !of.status().has(TransportStatus::WAITS_FOR_TRIM))
}

/// What has come from peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing.
    Nothing,
    /// Frames without log bytes, or a change of a connection.
    Signs,
    /// Log bytes.
    Log,
}

/// The furthest leader deadline, in milliseconds: a day.
const LEAD_MS_MAX: u64 = 86_400_000;

/// Counters of epochs, which have 56 bits.
const EPOCHS: u64 = 1 << 56;

/// What an operator asked a function's group for, until it is answered.
pub(crate) type Asked = Sender<Answer>;

impl<M> World<M> {
    /// Takes in what peers have sent. `now`: the wall's time, by which peers are judged.
    pub(crate) fn poll_peers(&mut self, now: Instant, firmware: &Firmware) -> Came {
        let Some(mut peers) = self.peers.take() else { return Came::Nothing };
        let (mut any, mut has_log) = (peers.poll(), false);
        while let Some(note) = peers.take_note() {
            self.cx.notes.push(match note {
                Note::Good(text) => Event::Note(text),
                Note::Bad(text) => Event::Warning(text),
            });
        }
        let functions = firmware.subsystem.device().fast().functions().len() as u8;
        let is_due = firmware.subsystem.device().fast().peers_deadline().is_some_and(|at| at <= now);
        let mut first = peers.take();
        if is_due || first.is_some() {
            self.cx.push(Input::PeersTime { now });
            any = true;
        }
        while let Some(incoming) = first.take().or_else(|| peers.take()) {
            match incoming {
                // Sent anew now and then: one comes when there is no room left.
                Incoming::Frame(frame, bytes) if self.holds_log && is_held(firmware, &frame) => self.cx.spare(bytes),
                Incoming::Frame(frame, bytes) => {
                    has_log |= !bytes.is_empty();
                    self.cx.put(Pending::Frame { frame, bytes });
                }
                Incoming::Link { node, up, restarted } => {
                    for function in 0..functions {
                        self.cx.push(Input::Link { function, peer: node, up, restarted });
                    }
                }
                Incoming::RoundTrip { node, time } => {
                    let time = Duration::from_ns(time.as_nanos() as u64);
                    for function in 0..functions {
                        self.cx.push(Input::RoundTrip { function, peer: node, time });
                    }
                }
            }
        }
        self.peers = Some(peers);
        // Reports raise the credit: what a ring holds beyond it is taken then, and not at the next look.
        let holds_more =
            |port: &Port| port.ring.as_ref().is_some_and(|ring| ring.lanes.iter().any(|it| it.tail > it.expected));
        if any && self.ports.iter().any(holds_more) {
            self.watch.at_once();
        }
        match any {
            _ if has_log => Came::Log,
            true => Came::Signs,
            false => Came::Nothing,
        }
    }

    /// Sends a frame, once what it promises is durable in the image: a node that forgot a promise in a crash could
    /// break it.
    pub(crate) fn send_to_peer(&mut self, firmware: &Firmware, frame: &Frame, from: Option<Place>, after: u64) {
        let function = usize::from(frame.function);
        if self.peers.is_none() || !self.is_promise_durable(firmware, function, after) {
            return;
        }
        let mut bytes = Vec::new();
        if let (&Body::Data { lane, offset, len, .. }, Some(from)) = (&frame.body, from) {
            bytes = self.cx.buffer(len as usize);
            let piece = LogPiece { function: frame.function, lane, offset, len, from };
            if self.storage.log_bytes(firmware, piece, &mut bytes).is_err() {
                return; // A replica asks for it again.
            }
        }
        if let Some(peers) = &mut self.peers {
            peers.send(frame, &bytes);
        }
        self.cx.spare(bytes);
    }

    /// Whether what a function has promised, up to a version of it, is durable in the image; it is synced if it is not.
    pub(crate) fn is_promise_durable(&mut self, firmware: &Firmware, function: usize, after: u64) -> bool {
        let Some(of) = firmware.subsystem.device().fast().function(function) else { return false };
        if self.promised.get(function).copied().flatten().is_some_and(|version| version >= after) {
            return !self.storage.has_failed();
        }
        // The control block of this version was stored before this output was taken.
        if !self.storage.sync_here(&mut self.cx) {
            return false;
        }
        if self.promised.len() <= function {
            self.promised.resize(function + 1, None);
        }
        self.promised[function] = Some(of.transport().version());
        true
    }

    /// Passes on what clients want peers to sync, and syncs what the peers' clients want of this device: behind the
    /// drive's loop, so that all which came in one turn is synced at once.
    pub(crate) fn flush_for_peers(&mut self, firmware: &Firmware) {
        if self.peers.is_none() || self.storage.has_failed() || firmware.subsystem.device().is_recovering() {
            return;
        }
        let fast = firmware.subsystem.device().fast();
        let mut is_due = false;
        self.flush_goals.resize(fast.functions().len(), [0; LANES_MAX]);
        for (function, of) in fast.functions().iter().enumerate() {
            let (transport, number) = (of.transport(), function as u8);
            for (lane, l) in of.lanes().iter().enumerate() {
                let wanted = transport.wanted(lane);
                match transport.persistent().role {
                    // A candidate would not take the wish, and be asked in each turn.
                    Role::Primary if transport.writable() => {
                        let ring = self.ports.get(function).and_then(|port| port.ring.as_ref());
                        let ring = ring.filter(|ring| ring.fits(of));
                        let to = ring.map_or(0, |ring| ring.lanes[lane].replicate_synced.min(l.released()));
                        if to > wanted {
                            self.cx.push(Input::Flush { function: number, lane: lane as u8, to });
                        }
                    }
                    Role::Secondary => {
                        // What is wanted meanwhile is the next sync's, or one that never rests would wait for ever.
                        let (goal, flushed) = (&mut self.flush_goals[function][lane], of.flushed(lane));
                        if *goal <= flushed || *goal > l.released() {
                            *goal = wanted;
                        }
                        is_due |= *goal > flushed && reached(fast, l) >= *goal;
                    }
                    Role::Primary | Role::StandAlone => {}
                }
            }
        }
        if !is_due {
            return;
        }
        let image = self.storage.image_mut();
        let synced = image.store_logs(fast, |_, _| false).and_then(|()| image.sync_here());
        if !self.storage.is_good(&mut self.cx, synced) {
            return;
        }
        self.record.counters.syncs += 1;
        for (function, of) in fast.functions().iter().enumerate() {
            let version = of.transport().version();
            for (lane, l) in of.lanes().iter().enumerate() {
                let to = reached(fast, l);
                if of.transport().wanted(lane) > of.flushed(lane) && to > of.flushed(lane) {
                    self.cx.push(Input::Flushed { function: function as u8, lane: lane as u8, to, version });
                }
            }
        }
    }

    /// What is known of peers, for the status.
    pub(crate) fn peers_status(&self, firmware: &Firmware, wall: Instant) -> Option<Value> {
        let peers = self.peers.as_ref()?;
        let links = peers.links();
        let functions = firmware.subsystem.device().fast().functions().iter().enumerate();
        let groups: Vec<Value> = functions
            .map(|(number, of)| {
                let (transport, status) = (of.transport(), of.transport().status());
                let flows: Vec<Value> = transport
                    .peers()
                    .zip(transport.shadows())
                    .map(|(peer, (_, shadow))| {
                        let mut flow = Map::new();
                        let disk = links.iter().find(|link| link.node == peer.node).map_or(Disk::Works, |it| it.disk);
                        flow.insert("node".into(), peer.node.into());
                        let up = links.iter().any(|link| link.node == peer.node && link.up);
                        flow.insert("state".into(), state_of(&peer, up, disk).into());
                        if let Some(word) = disk.word() {
                            flow.insert("disk".into(), word.into());
                        }
                        let hears = peer.attached && !peer.data_failed && !peer.counter_failed && !peer.stale;
                        let answers = hears && disk == Disk::Works;
                        flow.insert("answers".into(), answers.into());
                        flow.insert("in_step".into(), (answers && peer.synced).into());
                        flow.insert("behind_bytes".into(), behind(&self.appended(number, of), shadow).into());
                        let lag = self.lag(number, shadow);
                        flow.insert("behind_ms".into(), (lag.as_millis() as u64).into());
                        flow.insert("shadow".into(), shadow.into());
                        flow.into()
                    })
                    .collect();
                let mut group = Map::new();
                group.insert("function".into(), number.into());
                group.insert("role".into(), role_of(&status).into());
                group.insert("node".into(), transport.persistent().node.into());
                group.insert("mode".into(), mode_of(status.group.mode()).into());
                group.insert("members".into(), status.group.members().into());
                group.insert("epoch".into(), status.epoch.to_string().into());
                group.insert("promised".into(), status.promised.to_string().into());
                group.insert("synced".into(), transport.persistent().synced.to_string().into());
                match transport.leadership() {
                    Leadership::Free => {}
                    Leadership::Until(at) => {
                        _ = group.insert("leads_for_ms".into(), (at.since(wall).as_ns() / 1_000_000).into())
                    }
                    Leadership::Frozen(at) => {
                        _ = group.insert("frozen_ms".into(), (wall.since(at).as_ns() / 1_000_000).into())
                    }
                }
                group.insert("has_deadline".into(), transport.persistent().led.into());
                group.insert("stale".into(), (status.flags & flag::STALE != 0).into());
                group.insert("primary_silent".into(), (status.flags & flag::PRIMARY_SILENT != 0).into());
                group
                    .insert("flags".into(), flags_of(&status, transport.persistent().lost, self.storage.disk()).into());
                group.insert("tail".into(), of.lanes().iter().map(|lane| lane.released()).collect::<Vec<_>>().into());
                group.insert(
                    "oldest".into(),
                    (0..of.lanes().len()).map(|lane| of.oldest(lane)).collect::<Vec<_>>().into(),
                );
                group.insert("replicas".into(), flows.into());
                group.into()
            })
            .collect();
        let links: Vec<Value> = links
            .iter()
            .map(|link| {
                let mut one = Map::new();
                one.insert("node".into(), link.node.into());
                one.insert("address".into(), link.address.clone().into());
                one.insert("up".into(), link.up.into());
                if let Some(release) = &link.release {
                    one.insert("version".into(), release.clone().into());
                }
                one.insert("encrypted".into(), link.encrypted.into());
                one.insert("since_ms".into(), (link.since.as_millis() as u64).into());
                if let Some(time) = link.round_trip {
                    one.insert("round_trip_us".into(), (time.as_micros() as u64).into());
                }
                one.insert("waiting_bytes".into(), link.waiting.into());
                one.insert("dropped_frames".into(), link.dropped.into());
                if let Some(word) = link.disk.word() {
                    one.insert("disk".into(), word.into());
                }
                if let Some(why) = &link.why {
                    one.insert("why".into(), why.clone().into());
                }
                one.into()
            })
            .collect();
        let mut all = Map::new();
        all.insert("node".into(), peers.node().into());
        all.insert("clock_ms".into(), clock::milliseconds().into());
        all.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        all.insert("links".into(), links.into());
        all.insert("groups".into(), groups.into());
        Some(all.into())
    }
}

/// End of what the image has of a lane once its logs are stored.
fn reached(fast: &Fast, lane: &Lane) -> u64 {
    if fast.survives() { lane.released() } else { lane.durable() }
}

/// How a replica follows. `up`: there is a connection to it.
fn state_of(peer: &tidewater_core::fast::transport::PeerStatus, up: bool, disk: Disk) -> &'static str {
    match () {
        () if disk != Disk::Works => disk.wrong().unwrap_or_default(),
        () if peer.stale => "stale: it has to be rebuilt",
        () if peer.data_failed => "unreachable",
        // Its network is well. A device that can't store what it takes reports nothing of it.
        () if peer.counter_failed && up => {
            "connected and reports nothing: see tidewater cluster group status there, and its disk"
        }
        () if peer.counter_failed => "silent",
        () if !peer.attached => "attaching",
        () if !peer.synced => "catching up",
        () => "in step",
    }
}

pub(crate) fn role_of(status: &tidewater_core::fast::transport::Status) -> &'static str {
    match status.role {
        _ if status.flags & flag::PROMOTING != 0 => "candidate",
        Role::StandAlone => "alone",
        Role::Primary => "primary",
        Role::Secondary => "secondary",
    }
}

fn mode_of(mode: Mode) -> String {
    match mode {
        Mode::Lazy => "lazy".into(),
        Mode::Eager => "eager".into(),
        Mode::Chain => "chain".into(),
        Mode::Quorum(k) => format!("quorum of {k}"),
    }
}

/// Flags in words. `is_lacking`: it may lack bytes that it, or a device of its number, had.
fn flags_of(status: &Status, is_lacking: bool, disk: Disk) -> Vec<&'static str> {
    let words = [
        (flag::DESTAGE_FAILED, "a destage failed"),
        (flag::DATA_FAILED, "data does not reach a replica"),
        (flag::COUNTER_FAILED, "a replica is silent"),
        (flag::DEPOSED, "another node is primary"),
        (flag::STALE, "a log is stale: rebuild it"),
        (flag::CATCHING_UP, "a log is catching up"),
        (flag::PROMOTING, "a promotion is under way"),
        (flag::REFUSED, "the last promotion was refused"),
        (flag::MISMATCH, "a peer has another group or other lanes"),
        (flag::CUT, "bytes of the log were cut"),
        (flag::PRIMARY_SILENT, "the primary is silent"),
        (flag::PENDING, "a change of the group is not finished"),
        (
            flag::FAR_EPOCH,
            "a peer names an epoch far above all that is known here: it is ignored; if the group has it: keeper reinit",
        ),
    ];
    let said = words.iter().filter_map(|&(bit, words)| (status.flags & bit != 0).then_some(words));
    let said = said.chain(is_lacking.then_some("it may lack bytes that it had, and counts for no promotion"));
    said.chain(match disk {
        Disk::Works => None,
        Disk::Full => Some("its disk is full: it acknowledges nothing, and counts for no promotion"),
        Disk::Failed => Some("its disk can't be written: it acknowledges nothing, and counts for no promotion"),
    })
    .collect()
}

impl Server {
    /// Carries out what an operator wants of a function's group. `None`: the answer comes with the firmware's.
    pub(crate) fn group(&mut self, request: &Request, answer: &Asked) -> Option<Answer> {
        let Some(firmware) = &self.firmware else { return Some(Err("the power is off".into())) };
        let Some(peers) = &self.world.peers else {
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
        if firmware.subsystem.device().fast().function(function.into()).is_none() {
            return Some(Err(format!(
                "function {function} has no log: the profile's fast.functions says how many have"
            )));
        }
        // What it promises would be durable nowhere: it could only wait for acceptances that do not come.
        if let (Some(wrong), Request::GroupPromote { .. } | Request::GroupForm { .. }) =
            (self.world.storage.disk().wrong(), request)
        {
            let why = self.world.storage.image().fault().unwrap_or_default();
            return Some(Err(format!("{wrong} (the image {why}): this device can't become primary, nor join a group")));
        }
        let command = match command_of(request, peers.as_ref()) {
            Ok(command) => command,
            Err(why) => return Some(Err(why)),
        };
        self.world.cx.now = self.clock.now();
        let now = self.wall();
        self.world.cx.push(Input::PeersTime { now });
        self.world.cx.push(Input::Group { function, command });
        self.world.asked.push_back(Some(answer.clone()));
        None
    }

    /// Answers what operators have asked, as far as the firmware has.
    pub(crate) fn answer_groups(&mut self) {
        while let Some((function, result)) = self.world.grouped.pop_front() {
            let Some(answer) = self.world.asked.pop_front().flatten() else { continue };
            let _ = answer.send(self.carried_out(function.into(), result.map_err(|error| error.to_string())));
        }
    }

    /// The answer to an operator, once what the command has changed is durable.
    fn carried_out(&mut self, function: usize, result: Result<(), String>) -> Answer {
        result?;
        if let Some(firmware) = &self.firmware
            && let Some(of) = firmware.subsystem.device().fast().function(function)
            && !self.world.is_promise_durable(firmware, function, of.transport().version())
        {
            return Err("it was carried out, and can't be stored in the image: see the device's messages".into());
        }
        Ok(Map::from_iter([("clock_ms".to_owned(), clock::milliseconds().into())]))
    }
}

/// The command that a request stands for.
///
/// # Errors
/// A group that can't be, in words.
fn command_of(request: &Request, peers: &dyn Carrier) -> Result<Command, String> {
    let links = peers.links();
    let group = |members: &[u8], mode: GroupMode, k: u8| {
        let mode = match mode {
            GroupMode::Lazy => Mode::Lazy,
            GroupMode::Eager => Mode::Eager,
            GroupMode::Chain => Mode::Chain,
            GroupMode::Quorum => Mode::Quorum(k),
        };
        if let Some(node) =
            members.iter().find(|&&node| node != peers.node() && !links.iter().any(|link| link.node == node))
        {
            return Err(format!("node {node} is not a peer of this device: serve it with --peer {node}=ADDRESS"));
        }
        Group::new(Epoch::ZERO, mode, members).map_err(|error| error.to_string())
    };
    Ok(match request {
        Request::GroupForm { members, mode, k, primary, .. } => Command::Setup {
            node: peers.node(),
            group: group(members, *mode, *k)?,
            primary: *primary,
            epoch: Epoch::ZERO,
            force: false,
        },
        Request::GroupPromote { before_ms: Some(before), .. } if clock::milliseconds() >= *before => {
            return Err("this order has come too late".into());
        }
        Request::GroupPromote { members, mode, k, force, above, .. } => Command::Promote {
            target: match mode {
                Some(mode) => Some(group(members, *mode, *k)?),
                None => None,
            },
            epoch: match *above {
                0 => Epoch::ZERO,
                above if above >= EPOCHS => return Err(format!("there is no epoch above {above}")),
                above => Epoch::new(above, 0).next(peers.node()).ok_or("all epochs are used up")?,
            },
            force: *force,
        },
        Request::GroupLead { epoch, for_ms, from_ms, .. } => lead(epoch, *for_ms, *from_ms)?,
        Request::GroupDemote { .. } => Command::Demote,
        Request::GroupLeave { .. } => Command::StandAlone,
        _ => Command::Rebuild,
    })
}

/// The command that sets a leader deadline.
///
/// # Errors
/// An epoch that is none, or a deadline that is over.
fn lead(epoch: &str, for_ms: Option<u64>, from_ms: Option<u64>) -> Result<Command, String> {
    let Some(for_ms) = for_ms.filter(|&time| time > 0) else {
        return Ok(Command::Lead { epoch: Epoch::ZERO, lasts: for_ms.map(|_| Duration::ZERO) });
    };
    let parts = epoch.split_once('.').and_then(|(counter, node)| Some((counter.parse().ok()?, node.parse().ok()?)));
    let parts = parts.filter(|(counter, _)| *counter < EPOCHS);
    let (counter, node) = parts.ok_or_else(|| format!("`{epoch}` is no epoch: give one as 3.0"))?;
    let now = clock::milliseconds();
    let until = from_ms.unwrap_or(now).saturating_add(for_ms);
    // What was on its way for too long must not last any longer for that.
    let lasts = until.checked_sub(now).filter(|&lasts| lasts > 0).ok_or("this deadline has passed already")?;
    Ok(Command::Lead { epoch: Epoch::new(counter, node), lasts: Some(Duration::from_ms(lasts.min(LEAD_MS_MAX))) })
}
