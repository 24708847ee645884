//! Commands that the target itself carries out: those of Fabrics, and those that keep a controller alive.

use super::association::{Kind, Queue, Room};
use super::border::Border;
use super::target::Target;
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::{Input, MoveError};
use tidewater_wire::fabrics::{
    Connect, ConnectData, DISCOVERY_NQN, DataPointer, Fabrics, OPCODE, Parameter, PropertyGet, PropertySet, Response,
    property, status,
};
use tidewater_wire::nvme::{Sqe, Status};

/// Admin opcodes (figure 140 of the base specification).
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0A;
const KEEP_ALIVE: u8 = 0x18;
/// Feature: Keep Alive Timer.
const KEEP_ALIVE_TIMER: u32 = 0x0F;
/// Set Features: the value is to be saved; Get Features: what of the feature is asked for.
const SAVE: u32 = 1 << 31;
const SELECT_SHIFT: u32 = 8;
/// Get Features: current value, default, saved value, capabilities.
const SELECT_CURRENT: u32 = 0;
const SELECT_CAPABILITIES: u32 = 3;
/// Capabilities of a feature: changeable.
const CHANGEABLE: u64 = 1 << 2;
/// Feature Identifier Not Saveable: command specific, 0Dh.
const FEATURE_NOT_SAVEABLE: Status = Status::new(1, 0x0D, true);
/// Controller Configuration: enable.
const CC_EN: u64 = 1;
/// Controller Status: ready.
const CSTS_RDY: u64 = 1;
/// Entries of a discovery controller's admin queue, at most.
const DISCOVERY_ENTRIES_MAX: u16 = 128;

/// What a command of the target's own ends with.
pub(super) type Answer = Result<u64, Status>;

impl Target {
    /// A command has come.
    pub(super) fn on_command(&mut self, index: usize, place: u16, border: &mut dyn Border) {
        let now = self.now;
        let Some(peer) = self.peers[index].as_mut() else { return };
        let sqe = peer.connection.commands.at(place).sqe;
        let Some((association, queue)) = peer.queue else {
            return self.before_connect(index, place, &sqe, border);
        };
        let association = self.associations.get_mut(association).expect("a queue belongs to a controller");
        association.hear(now);
        let answer = if sqe.opcode() == OPCODE {
            return self.on_fabrics(index, place, &sqe, border);
        } else if queue == 0 {
            keep_alive(&mut association.keep_alive_ms, &sqe)
        } else {
            None
        };
        match (&mut association.kind, answer) {
            (_, Some(answer)) => {
                let keep_alive_ms = association.keep_alive_ms;
                self.keep_alive_changed(keep_alive_ms);
                self.answer(index, place, answer);
            }
            (Kind::Subsystem { function }, None) => {
                let function = *function;
                self.pass_on(index, place, function, border);
            }
            (Kind::Discovery(_), None) => self.on_discovery(index, place, &sqe),
        }
    }

    fn keep_alive_changed(&mut self, keep_alive_ms: u32) {
        if keep_alive_ms > 0 {
            self.check_by(Duration::from_ms(u64::from(keep_alive_ms)));
        }
    }

    pub(super) fn answer(&mut self, index: usize, place: u16, answer: Answer) {
        let response = match answer {
            Ok(value) => Response { value, ..Response::default() },
            Err(status) => Response { status, ..Response::default() },
        };
        self.respond(index, place, response);
    }

    /// Until Connect nothing else is taken.
    pub(super) fn before_connect(&mut self, index: usize, place: u16, sqe: &Sqe, border: &mut dyn Border) {
        let response = match (sqe.opcode() == OPCODE).then(|| Fabrics::parse(sqe)) {
            Some(Ok(Fabrics::Connect(connect))) => match self.connect(index, place, &connect, border) {
                // Its data is on the way, or it waits.
                Ok(None) => return,
                Ok(Some(value)) => Response { value, ..Response::default() },
                Err((status, value)) => Response { status, value, ..Response::default() },
            },
            Some(Err(status)) => Response { status, ..Response::default() },
            Some(Ok(_)) | None => Response { status: Status::COMMAND_SEQUENCE_ERROR, ..Response::default() },
        };
        self.respond(index, place, response);
    }

    fn on_fabrics(&mut self, index: usize, place: u16, sqe: &Sqe, border: &mut dyn Border) {
        let queue = self.peers[index].as_ref().and_then(|peer| peer.queue);
        let (association, queue) = queue.expect("only queues get here");
        let answer = match Fabrics::parse(sqe) {
            Err(status) => Err(status),
            Ok(Fabrics::Connect(_)) => Err(Status::COMMAND_SEQUENCE_ERROR),
            Ok(Fabrics::PropertyGet(get)) if queue == 0 => self.property_get(association, &get, border),
            Ok(Fabrics::PropertySet(set)) if queue == 0 => self.property_set(association, place, &set, border),
            Ok(Fabrics::PropertyGet(_) | Fabrics::PropertySet(_)) => Err(Status::INVALID_FIELD),
            // Not offered: Connect says that none is required.
            Ok(Fabrics::Authentication) => Err(Status::INVALID_OPCODE),
            Ok(Fabrics::Disconnect) if queue == 0 => Err(status::INVALID_QUEUE_TYPE),
            Ok(Fabrics::Disconnect) => {
                self.answer(index, place, Ok(0));
                return self.end(index, border);
            }
        };
        self.answer(index, place, answer);
    }

    /// Connect (section 3.3): `None` while its data is on the way, or while it waits for a controller or a queue to be
    /// free. An error comes with what the response says of it.
    fn connect(
        &mut self,
        index: usize,
        place: u16,
        connect: &Connect,
        border: &mut dyn Border,
    ) -> Result<Option<u64>, (Status, u64)> {
        let invalid = |parameter| (status::INVALID_PARAMETERS, Response::of_parameter(parameter));
        let plain = |status| (status, 0);
        let peer = self.peers[index].as_mut().expect("a command comes by a connection");
        let command = peer.connection.commands.at(place);
        if command.pointer.len() as usize != ConnectData::SIZE {
            return Err(plain(Status::DATA_SGL_LENGTH_INVALID));
        }
        let address = peer.address.ip();
        if command.data.is_empty() && matches!(command.pointer, DataPointer::Transport { .. }) {
            let fetched = peer.connection.fetch(place, None, ConnectData::SIZE as u32);
            assert!(matches!(fetched, Ok(None)), "1,024 bytes by the transport are 1,024 bytes");
            self.list(index);
            return Ok(None);
        }
        let bytes = command.data.first_chunk().expect("all of the data has come");
        let data = ConnectData::from_bytes(bytes).map_err(invalid)?;
        let discovery = data.subsystem.as_str() == DISCOVERY_NQN;
        if !discovery && data.subsystem != self.options.subsystem {
            return Err(invalid(Parameter::Subsystem));
        }
        let admitted = if discovery { Some(false) } else { self.options.hosts.admits(data.host.as_ref()) };
        let Some(privileged) = admitted else {
            return Err((status::INVALID_HOST, Response::of_parameter(Parameter::Host)));
        };
        let entries_max = if discovery { DISCOVERY_ENTRIES_MAX } else { self.options.entries_max };
        let entries = connect.entries_zero_based.saturating_add(1);
        if connect.entries_zero_based == 0 || entries > entries_max {
            return Err(invalid(Parameter::Entries));
        }
        let id = if connect.queue == 0 {
            if !data.any_controller() {
                // Controllers are made for hosts as they come: there is none to ask for (section 1.5.5).
                return Err(invalid(Parameter::Controller));
            }
            let room = self.associations.room(&data, address, discovery, &self.options, self.now);
            if let Room::Instead(other) = room {
                self.statistics.displaced += 1;
                self.end_association(other, None, border);
            }
            let created = match room {
                Room::None | Room::Soon => None,
                Room::Free | Room::Instead(_) => {
                    self.associations.create((index, address), &data, connect.keep_alive_ms, self.now, discovery)
                }
            };
            let Some(association) = created else {
                if room == Room::None {
                    return Err(plain(status::CONTROLLER_BUSY));
                }
                // The controller that gives way has to end its commands first.
                self.peers[index].as_mut().expect("it is there").connecting = Some(place);
                return Ok(None);
            };
            self.peers[index].as_mut().expect("it is there").queue = Some((association, 0));
            let silence = self.associations.get(association).map(|it| it.expires_at(self.options.silence_max));
            self.check_at(silence.unwrap_or(Instant::NEVER));
            match &self.associations.get(association).expect("it was created").kind {
                Kind::Subsystem { function } => {
                    // The target itself watches its hosts.
                    tracing::debug!(function, "a host has connected by NVMe/TCP");
                    border.input(Input::Connect { function: *function, entries, privileged, keep_alive_ms: 0 });
                    border.controller_id(*function)
                }
                Kind::Discovery(controller) => controller.id(),
            }
        } else {
            if discovery {
                return Err(invalid(Parameter::Queue));
            }
            if !self.connect_queue(index, connect, &data, entries, border)? {
                self.peers[index].as_mut().expect("it is there").connecting = Some(place);
                return Ok(None);
            }
            data.controller
        };
        let peer = self.peers[index].as_mut().expect("it is there");
        peer.connection.connect(entries, !connect.no_flow_control, connect.queue == 0);
        Ok(Some(u64::from(id)))
    }

    /// Connect of an I/O queue. False: commands of the connection that was this queue before have to end first.
    fn connect_queue(
        &mut self,
        index: usize,
        connect: &Connect,
        data: &ConnectData,
        entries: u16,
        border: &mut dyn Border,
    ) -> Result<bool, (Status, u64)> {
        let invalid = |parameter| (status::INVALID_PARAMETERS, Response::of_parameter(parameter));
        let found = self.associations.functions().find(|&function| border.controller_id(function) == data.controller);
        let function = found.ok_or(invalid(Parameter::Controller))?;
        let (place, association) = self.associations.of_function(function).expect("it was found");
        if let Some(parameter) = association.wrong_host(data) {
            return Err(invalid(parameter));
        }
        let mut queue = *association.queue_mut(connect.queue).ok_or(invalid(Parameter::Queue))?;
        if let Queue::Peer(before) = queue
            && self.has_been_closed(before)
        {
            // The host has closed that connection, and its end has not been read yet.
            self.close(before, border);
            queue = Queue::Leaving;
        }
        // I/O queues are connected when the controller is ready, and once.
        if matches!(queue, Queue::Peer(_)) || border.register(function, property::CSTS, 4) & CSTS_RDY == 0 {
            return Err((Status::COMMAND_SEQUENCE_ERROR, 0));
        }
        if queue == Queue::Leaving {
            return Ok(false);
        }
        let connections = self.options.connections_max.saturating_sub(self.options.unconnected_max);
        if !self.associations.admits_queue(place, connections, self.options.queues_kept) {
            return Err((status::CONTROLLER_BUSY, 0));
        }
        let entries_max = (border.register(function, property::CAP, 8) & 0xFFFF) + 1;
        if u64::from(entries) > entries_max {
            return Err(invalid(Parameter::Entries));
        }
        let association = self.associations.get_mut(place).expect("it was found");
        *association.queue_mut(connect.queue).expect("it was found") = Queue::Peer(index);
        self.peers[index].as_mut().expect("it is there").queue = Some((place, connect.queue));
        border.input(Input::ConnectQueue { function, queue: connect.queue, entries });
        Ok(true)
    }

    /// Whether the other side of a connection has closed it.
    fn has_been_closed(&self, index: usize) -> bool {
        let peer = self.peers[index].as_ref();
        peer.is_some_and(|peer| match peer.stream.peek(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        })
    }

    fn property_get(&mut self, association: usize, get: &PropertyGet, border: &mut dyn Border) -> Answer {
        if !property::ALL.contains(&(get.offset, get.len)) {
            return Err(Status::INVALID_FIELD);
        }
        let association = self.associations.get(association).expect("a queue belongs to a controller");
        Ok(match &association.kind {
            Kind::Subsystem { function } => border.register(*function, get.offset, get.len),
            Kind::Discovery(controller) => controller.register(get.offset),
        })
    }

    fn property_set(&mut self, index: usize, place: u16, set: &PropertySet, border: &mut dyn Border) -> Answer {
        if !matches!(set.offset, property::CC | property::NSSR) || set.len != 4 {
            return Err(Status::INVALID_FIELD);
        }
        let association = self.associations.get_mut(index).expect("a queue belongs to a controller");
        let function = match &mut association.kind {
            Kind::Subsystem { function } => *function,
            Kind::Discovery(controller) => {
                let enabled = controller.register(property::CC) & CC_EN != 0;
                controller.set_register(set.offset, set.value as u32);
                if set.offset == property::CC && enabled && set.value & CC_EN == 0 {
                    self.reset(index, place, border);
                }
                return Ok(0);
            }
        };
        let enabled = border.register(function, property::CC, 4) & CC_EN != 0;
        let input = Input::Register { function, offset: set.offset, len: set.len, value: set.value & 0xFFFF_FFFF };
        border.input(input);
        if set.offset == property::CC && enabled && set.value & CC_EN == 0 {
            self.reset(index, place, border);
        }
        Ok(0)
    }

    /// A controller was reset: its I/O queues are gone, and with them their connections; so are commands of its admin
    /// queue, but the one that did it.
    fn reset(&mut self, association: usize, except: u16, border: &mut dyn Border) {
        let association = self.associations.get_mut(association).expect("a queue belongs to a controller");
        let admin = association.queue_mut(0).copied();
        for index in association.take_io_queues() {
            if let Some(peer) = self.peers[index].as_mut() {
                // It may be connected again: it is not lost.
                peer.queue = None;
            }
            self.close(index, border);
        }
        let Some(Queue::Peer(admin)) = admin else { return };
        let peer = self.peers[admin].as_mut().expect("the admin queue is a connection");
        for slot in peer.connection.commands.clear(Some(except)) {
            border.input(Input::Moved { slot, result: Err(MoveError::Host) });
        }
    }
}

/// Keep Alive, and its timer as a feature (sections 5.12 and 5.21.1.15 of the base specification): the transport's
/// business.
fn keep_alive(keep_alive_ms: &mut u32, sqe: &Sqe) -> Option<Answer> {
    let feature = sqe.cdw10() & 0xFF == KEEP_ALIVE_TIMER;
    match sqe.opcode() {
        KEEP_ALIVE => Some(Ok(0)),
        SET_FEATURES if feature => Some(if sqe.cdw10() & SAVE != 0 {
            Err(FEATURE_NOT_SAVEABLE)
        } else {
            *keep_alive_ms = sqe.cdw11();
            Ok(0)
        }),
        GET_FEATURES if feature => Some(match sqe.cdw10() >> SELECT_SHIFT & 7 {
            SELECT_CURRENT => Ok(u64::from(*keep_alive_ms)),
            SELECT_CAPABILITIES => Ok(CHANGEABLE),
            // Default and saved value: none.
            1 | 2 => Ok(0),
            _ => Err(Status::INVALID_FIELD),
        }),
        _ => None,
    }
}
