//! A connection of a target: one queue, as bytes that come and bytes that go. It does no I/O.

use super::commands::{Commands, Fetch};
use super::options::Patience;
use super::sender::Sender;
use tidewater_base::Instant;
use tidewater_core::subsystem::{MoveError, Slot};
use tidewater_wire::fabrics::{DataPointer, OPCODE, Response, kind};
use tidewater_wire::nvme::{AdminCommand, Data, Sqe, Status, admin_opcode};
use tidewater_wire::nvme_tcp::{
    ADMIN_CAPSULE_DATA_BYTES, DataPdu, Fatal, FatalStatus, Framing, IcReq, IcResp, Pdu, R2t, Receiver, Rules, TermReq,
    offset,
};
use tidewater_wire::nvme_tcp::{Piece, Reader};

/// Commands that may be under way before a connection is a queue: Connect, and one that is out of place.
const COMMANDS_UNCONNECTED: u16 = 2;

/// What a target tells and allows each connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of data in a command capsule, at most; Fabrics and admin commands may have 8,192 in any case.
    pub capsule_data_max: u32,
    /// Bytes of data in one H2CData PDU, at most (MAXH2CDATA): at least 4,096, a multiple of 4.
    pub data_max: u32,
    /// Bytes that one command moves, at most.
    pub transfer_max: u32,
    /// Alignment of data that comes (CPDA): (n + 1) double words; 0 to 31.
    pub alignment: u8,
    /// Header digests, for hosts that ask for them.
    pub header_digest: bool,
    /// Data digests, for hosts that ask for them.
    pub data_digest: bool,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The host broke the rules of the transport, which was reported to it.
    Fatal(Fatal),
    /// The host asked for it.
    Host(TermReq),
}

/// What came.
#[derive(Debug, PartialEq)]
pub(super) enum Event<'a> {
    /// A command is complete, and well-formed as far as the transport is concerned: its place.
    Command(u16),
    /// Data for a slot: `at` bytes behind its start.
    Stage { slot: Slot, at: u32, bytes: &'a [u8] },
    /// All data of a slot has come.
    Moved { slot: Slot, result: Result<(), MoveError> },
    /// The connection ends: nothing more comes, and what is to be sent ends with the reason.
    Ended(Ending),
}

/// What the data of the PDU that is being read is for.
#[derive(Clone, Copy, Debug)]
enum Incoming {
    Nothing,
    Capsule(u16),
    Transfer(u16),
    TermReq(TermReq),
}

/// What is known of the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    /// There is none, whatever the data pointer says (figure 92: it is reserved, or ignored, then).
    Nothing,
    /// Data moves; so many bytes come from the host before an admin command begins.
    Data(u32),
    /// The controller will refuse the command.
    Unknown,
}

/// A connection of a target.
pub(super) struct Connection {
    limits: Limits,
    patience: Patience,
    /// When the last bytes came, or the last data was asked for.
    pub(super) now: Instant,
    reader: Reader,
    pub(super) sender: Sender,
    pub(super) commands: Commands,
    incoming: Incoming,
    /// ICReq has come.
    initialized: bool,
    ended: bool,
    /// Entries of the queue; 0 before Connect.
    entries: u16,
    /// It is an admin queue.
    is_admin: bool,
    /// Entries that have been taken, modulo the queue's size.
    sq_head: u16,
    flow_control: bool,
}

impl Connection {
    pub(super) fn new(limits: Limits, patience: Patience) -> Connection {
        let rules = Rules {
            receiver: Receiver::Controller,
            framing: Framing::default(),
            capsule_data_max: limits.capsule_data_max.max(ADMIN_CAPSULE_DATA_BYTES),
            data_max: limits.data_max,
        };
        Connection {
            limits,
            patience,
            now: Instant::ZERO,
            reader: Reader::new(rules),
            sender: Sender::default(),
            commands: Commands::new(COMMANDS_UNCONNECTED),
            incoming: Incoming::Nothing,
            initialized: false,
            ended: false,
            entries: 0,
            is_admin: false,
            sq_head: 0,
            flow_control: true,
        }
    }

    /// The connection is a queue from now on.
    pub(super) fn connect(&mut self, entries: u16, flow_control: bool, is_admin: bool) {
        self.commands.grow(entries);
        self.entries = entries;
        self.is_admin = is_admin;
        self.flow_control = flow_control;
        // Connect itself was an entry of the queue.
        self.sq_head = 1 % entries;
    }

    /// PDUs that have come whole, and whether a part of another has.
    pub(super) fn pdus(&self) -> (u64, bool) {
        (self.reader.complete(), !self.ended && self.reader.mid_pdu())
    }

    /// By when the host has to send what it was asked for first; `None`: it owes nothing.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.ended { None } else { self.commands.due() }
    }

    /// Bytes that wait here: for the host, or for the controller.
    pub(super) fn waiting(&self) -> usize {
        self.sender.len() + self.commands.stored()
    }

    /// Bytes for the host: those that controllers work on, and those that wait until the host takes them.
    pub(super) fn promised(&self) -> u64 {
        self.commands.promised() + self.sender.len() as u64
    }

    /// Nothing has come yet.
    pub(super) fn is_untouched(&self) -> bool {
        !self.initialized && !self.ended && !self.reader.mid_pdu()
    }

    /// What came next; `None` when `input` is used up.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        loop {
            if self.ended {
                *input = &[];
                return None;
            }
            let event = match self.reader.next(input) {
                Ok(None) => return None,
                Ok(Some(Piece::Pdu(pdu, data))) => self.on_pdu(pdu, data).map(|()| None),
                Ok(Some(Piece::Data(bytes))) => Ok(self.on_data(bytes)),
                Ok(Some(Piece::End { intact })) => Ok(self.on_end(intact)),
                Err(fatal) => Err(fatal),
            };
            match event {
                Ok(None) => {}
                Ok(event) => return event,
                Err(fatal) => return Some(self.end(fatal)),
            }
        }
    }

    /// Nothing more is read; what waits is still sent.
    pub(super) fn finish(&mut self) {
        self.ended = true;
    }

    /// Ends the connection, with the reason for the host.
    pub(super) fn end(&mut self, fatal: Fatal) -> Event<'static> {
        self.ended = true;
        self.sender.send(&Pdu::C2hTermReq(fatal.into()), self.reader.header());
        Event::Ended(Ending::Fatal(fatal))
    }

    fn on_pdu(&mut self, pdu: Pdu, data: u32) -> Result<(), Fatal> {
        if self.initialized == matches!(pdu, Pdu::IcReq(_)) && !matches!(pdu, Pdu::H2cTermReq(_)) {
            return Err(Fatal::of(FatalStatus::Sequence));
        }
        self.incoming = match pdu {
            Pdu::IcReq(ask) => {
                self.initialize(&ask);
                Incoming::Nothing
            }
            Pdu::H2cTermReq(term) => Incoming::TermReq(term),
            Pdu::CapsuleCmd(sqe) => self.on_capsule(sqe, data)?,
            Pdu::H2cData(pdu) => self.on_transfer(&pdu)?,
            // The reader takes nothing else of a host.
            _ => return Err(Fatal::field(offset::KIND)),
        };
        Ok(())
    }

    fn initialize(&mut self, ask: &IcReq) {
        let header_digest = ask.header_digest && self.limits.header_digest;
        let data_digest = ask.data_digest && self.limits.data_digest;
        let answer =
            IcResp { alignment: self.limits.alignment, header_digest, data_digest, data_max: self.limits.data_max };
        self.sender.send(&Pdu::IcResp(answer), &[]);
        self.initialized = true;
        self.reader.rules_mut().framing = Framing { header_digest, data_digest, alignment: self.limits.alignment };
        self.sender.framing = Framing { header_digest, data_digest, alignment: ask.alignment };
    }

    fn on_capsule(&mut self, sqe: Sqe, data: u32) -> Result<Incoming, Fatal> {
        // A host keeps to the queue's size: responses have as many entries (section 2.4).
        let place = self.commands.insert(sqe).ok_or(Fatal::of(FatalStatus::Sequence))?;
        if let Some(head) = self.sq_head.checked_add(1).filter(|&head| head < self.entries) {
            self.sq_head = head;
        } else {
            self.sq_head = 0;
        }
        self.commands.make_room(place, data as usize);
        Ok(Incoming::Capsule(place))
    }

    fn on_transfer(&mut self, pdu: &DataPdu) -> Result<Incoming, Fatal> {
        let command = self.commands.get_mut(pdu.tag).ok_or(Fatal::field(offset::TTAG))?;
        let fetch = command.fetch.ok_or(Fatal::field(offset::TTAG))?;
        if command.sqe.cid() != pdu.cid {
            return Err(Fatal::field(offset::CCCID));
        }
        // The host sends what one R2T asks for from its first byte to its last.
        if pdu.offset != fetch.received || pdu.len > fetch.len - fetch.received {
            return Err(Fatal::of(FatalStatus::OutOfRange));
        }
        if pdu.last != (pdu.offset + pdu.len == fetch.len) {
            return Err(Fatal::field(offset::FLAGS));
        }
        Ok(Incoming::Transfer(pdu.tag))
    }

    fn on_data<'a>(&mut self, bytes: &'a [u8]) -> Option<Event<'a>> {
        match self.incoming {
            Incoming::Capsule(place) => {
                self.commands.store(place, bytes);
                None
            }
            Incoming::Transfer(place) => match self.commands.received(place, bytes.len() as u32) {
                (Some(slot), at) => Some(Event::Stage { slot, at, bytes }),
                (None, _) => {
                    self.commands.store(place, bytes);
                    None
                }
            },
            Incoming::Nothing | Incoming::TermReq(_) => None,
        }
    }

    fn on_end(&mut self, intact: bool) -> Option<Event<'static>> {
        match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Nothing => None,
            Incoming::TermReq(term) => {
                self.ended = true;
                Some(Event::Ended(Ending::Host(term)))
            }
            Incoming::Capsule(place) => match self.check(place, intact) {
                // An admin command gets its data here: none holds a slot of the drive while its host has to send
                // something.
                Ok(len) if len > 0 => {
                    self.ask(place, None, len);
                    None
                }
                Ok(_) => Some(Event::Command(place)),
                Err(status) => {
                    self.respond(place, Response { status, ..Response::default() });
                    None
                }
            },
            Incoming::Transfer(place) => {
                let command = self.commands.at(place);
                command.damaged |= !intact;
                let result = if command.damaged { Err(MoveError::Host) } else { Ok(()) };
                command.fetch.filter(|fetch| fetch.received == fetch.len)?;
                let fetch = self.commands.end_fetch(place)?;
                match fetch.slot {
                    Some(slot) => Some(Event::Moved { slot, result }),
                    None if result.is_err() => {
                        self.respond(place, Response::default());
                        None
                    }
                    None => Some(Event::Command(place)),
                }
            }
        }
    }

    /// What is known of the data of a command before its controller has seen it.
    fn moves(&self, sqe: &Sqe) -> Moves {
        // Bits 1:0 of opcodes, and of the types of Fabrics commands, say which way data goes (figures 104 and 15).
        let by_code = |code: u8| if code & 3 == 0 { Moves::Nothing } else { Moves::Data(0) };
        if sqe.opcode() == OPCODE {
            return by_code(sqe.dwords()[1] as u8);
        }
        if !self.is_admin {
            return by_code(sqe.opcode());
        }
        match AdminCommand::parse_capsule(sqe).map(|command| command.data()) {
            Ok(Data::None) => Moves::Nothing,
            Ok(Data::ToHost(_)) => Moves::Data(0),
            Ok(Data::FromHost(len)) => Moves::Data(if len <= ADMIN_CAPSULE_DATA_BYTES { len } else { 0 }),
            Err(_) => Moves::Unknown,
        }
    }

    /// A host may have forgotten an Asynchronous Event Request, which waits for as long as the controller likes: a
    /// Property command, which ends at once, is let through with its identifier. Hosts shut controllers down by such
    /// commands.
    fn may_share_identifier(&self, sqe: &Sqe) -> bool {
        let is_property = matches!(sqe.dwords()[1] as u8, kind::PROPERTY_GET | kind::PROPERTY_SET);
        let other = self.commands.find(sqe.cid()).and_then(|place| self.commands.get(place));
        let waits = other.is_some_and(|other| other.sqe.opcode() == admin_opcode::ASYNCHRONOUS_EVENT_REQUEST);
        self.is_admin && sqe.opcode() == OPCODE && is_property && waits
    }

    /// What the transport asks of a command. Tells how many bytes the host is to be asked for before the command
    /// begins.
    fn check(&mut self, place: u16, intact: bool) -> Result<u32, Status> {
        if !intact {
            return Err(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let sqe = self.commands.at(place).sqe;
        let moves = self.moves(&sqe);
        if moves != Moves::Nothing {
            self.check_pointer(place, moves)?;
        }
        if !self.commands.at(place).listed && !self.may_share_identifier(&sqe) {
            return Err(Status::COMMAND_ID_CONFLICT);
        }
        let command = self.commands.at(place);
        let is_asked_for = matches!(command.pointer, DataPointer::Transport { .. });
        Ok(match moves {
            Moves::Data(len) if is_asked_for && len <= command.pointer.len() => len,
            _ => 0,
        })
    }

    /// The data pointer of a command that moves data, or may.
    fn check_pointer(&mut self, place: u16, moves: Moves) -> Result<(), Status> {
        let transfer_max = self.limits.transfer_max;
        let command = self.commands.at(place);
        command.pointer = match DataPointer::parse(&command.sqe) {
            Ok(pointer) => pointer,
            Err(_) if moves == Moves::Unknown => return Ok(()),
            Err(status) => return Err(status),
        };
        let came = command.data.len() as u64;
        match command.pointer {
            DataPointer::Capsule { offset, len } => {
                if offset.checked_add(u64::from(len)).is_none_or(|end| end > came) {
                    return Err(Status::SGL_OFFSET_INVALID);
                }
                // Data that no descriptor names is a contradiction.
                if offset != 0 || u64::from(len) != came {
                    return Err(Status::DATA_SGL_LENGTH_INVALID);
                }
            }
            DataPointer::Transport { .. } if came != 0 => return Err(Status::SGL_TYPE_INVALID),
            DataPointer::Transport { len } if len > transfer_max => return Err(Status::DATA_SGL_LENGTH_INVALID),
            DataPointer::Transport { .. } => {}
        }
        Ok(())
    }

    /// Asks the host for data of a command.
    fn ask(&mut self, place: u16, slot: Option<Slot>, len: u32) {
        // What was asked for before comes first.
        let due = self.patience.due(self.now, self.commands.owed() + u64::from(len));
        self.commands.begin_fetch(place, Fetch { slot, len, received: 0, due });
        let cid = self.commands.at(place).sqe.cid();
        self.sender.send(&Pdu::R2t(R2t { cid, tag: place, offset: 0, len }), &[]);
    }

    /// Data of a command for a slot: what came with the capsule, or `None` when it comes by [`Event::Stage`].
    ///
    /// # Errors
    /// The host has not so much data.
    pub(super) fn fetch(&mut self, place: u16, slot: Option<Slot>, len: u32) -> Result<Option<&[u8]>, MoveError> {
        let command = self.commands.at(place);
        assert!(command.fetch.is_none(), "data of a command is fetched once at a time");
        if len == 0 || len > command.pointer.len() {
            return if len == 0 { Ok(Some(&[])) } else { Err(MoveError::Host) };
        }
        if let DataPointer::Transport { .. } = command.pointer
            && command.data.len() < len as usize
        {
            self.ask(place, slot, len);
            return Ok(None);
        }
        Ok(Some(&self.commands.at(place).data[..len as usize]))
    }

    /// Sends data of a command, which `fill` writes, and says what `fill` said. Nothing is sent if that is an error.
    ///
    /// # Errors
    /// The host did not ask for so much data.
    pub(super) fn data<E>(
        &mut self,
        place: u16,
        at: u32,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, MoveError> {
        let command = self.commands.at(place);
        let DataPointer::Transport { len: expected } = command.pointer else { return Err(MoveError::Host) };
        if at.checked_add(len).is_none_or(|end| end > expected) {
            return Err(MoveError::Host);
        }
        assert!(at >= command.sent, "each byte of a command's data goes to the host once");
        if len == 0 {
            return Ok(Ok(()));
        }
        if at > command.sent {
            let mut bytes = vec![0; len as usize];
            let filled = fill(&mut bytes);
            if filled.is_ok() {
                self.commands.hold(place, at, bytes);
            }
            return Ok(filled);
        }
        let filled = self.sender.data(place, command.sqe.cid(), at, len, expected, fill);
        if filled.is_ok() {
            command.sent += len;
            self.commands.delivered(place, len);
            self.send_held(place, expected);
        }
        Ok(filled)
    }

    /// Sends data that came too early, as far as it goes on now.
    fn send_held(&mut self, place: u16, expected: u32) {
        while let Some((at, bytes)) = self.commands.take_held(place) {
            let command = self.commands.at(place);
            let filled: Result<(), ()> =
                self.sender.data(place, command.sqe.cid(), at, bytes.len() as u32, expected, |out| {
                    out.copy_from_slice(&bytes);
                    Ok(())
                });
            filled.expect("copying does not fail");
            command.sent += bytes.len() as u32;
            self.commands.delivered(place, bytes.len() as u32);
        }
    }

    /// Answers a command, which ends. What the transport knows goes in: identifier, head, damage of its data. A slot
    /// that waits for data of the command comes back: what it waits for does not come any more.
    pub(super) fn respond(&mut self, place: u16, mut response: Response) -> Option<Slot> {
        let command = self.commands.at(place);
        let waiting = command.fetch.and_then(|fetch| fetch.slot);
        if command.damaged {
            response.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        response.cid = command.sqe.cid();
        response.sq_head = if self.flow_control { self.sq_head } else { u16::MAX };
        let all = command.sent > 0 && command.sent == command.pointer.len();
        self.commands.remove(place);
        // Without a count of entries to tell, success needs no response of its own (section 7.4.5.2).
        let silent = !self.flow_control && all && response.status == Status::SUCCESS && response.value == 0;
        if !self.sender.finish(place, silent) {
            self.sender.send(&Pdu::CapsuleResp(response.to_bytes()), &[]);
        }
        waiting
    }
}
