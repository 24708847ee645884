//! A connection of a target: one queue, as bytes that come and bytes that go. It does no I/O.

use super::commands::{Command, Commands, Fetch};
use super::reader::{Piece, Reader};
use super::sender::Sender;
use tidewater_core::subsystem::{MoveError, Slot};
use tidewater_wire::fabrics::{DataPointer, Response};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{
    ADMIN_CAPSULE_DATA_BYTES, DataPdu, Fatal, FatalStatus, Framing, IcReq, IcResp, Pdu, R2t, Receiver, Rules, TermReq,
    offset,
};

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
    /// The host did what the transport does not allow: it was told so.
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

/// A connection of a target.
pub(super) struct Connection {
    limits: Limits,
    reader: Reader,
    pub(super) sender: Sender,
    pub(super) commands: Commands,
    incoming: Incoming,
    /// ICReq has come.
    initialized: bool,
    ended: bool,
    /// Entries of the queue; 0 before Connect.
    entries: u16,
    /// Entries that have been taken, modulo the queue's size.
    sq_head: u16,
    flow_control: bool,
}

impl Connection {
    pub(super) fn new(limits: Limits) -> Connection {
        let rules = Rules {
            receiver: Receiver::Controller,
            framing: Framing::default(),
            capsule_data_max: limits.capsule_data_max.max(ADMIN_CAPSULE_DATA_BYTES),
            data_max: limits.data_max,
        };
        Connection {
            limits,
            reader: Reader::new(rules),
            sender: Sender::default(),
            commands: Commands::new(COMMANDS_UNCONNECTED),
            incoming: Incoming::Nothing,
            initialized: false,
            ended: false,
            entries: 0,
            sq_head: 0,
            flow_control: true,
        }
    }

    /// The connection is a queue from now on.
    pub(super) fn connect(&mut self, entries: u16, flow_control: bool) {
        self.commands.grow(entries);
        self.entries = entries;
        self.flow_control = flow_control;
        // Connect itself was an entry of the queue.
        self.sq_head = 1 % entries;
    }

    /// Whether the host is in the middle of something: half a PDU has come, or data that it was asked for has not.
    pub(super) fn awaits(&self) -> bool {
        !self.ended && (self.reader.mid_pdu() || self.commands.awaits_data())
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

    /// Ends the connection: the host is told why.
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
        self.commands.at(place).data.reserve(data as usize);
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
                self.commands.at(place).data.extend_from_slice(bytes);
                None
            }
            Incoming::Transfer(place) => {
                let command = self.commands.at(place);
                let fetch = command.fetch.as_mut().expect("data comes when it was asked for");
                let at = fetch.received;
                fetch.received += bytes.len() as u32;
                match fetch.slot {
                    Some(slot) => Some(Event::Stage { slot, at, bytes }),
                    None => {
                        command.data.extend_from_slice(bytes);
                        None
                    }
                }
            }
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
                Ok(()) => Some(Event::Command(place)),
                Err(status) => {
                    self.respond(place, Response { status, ..Response::default() });
                    None
                }
            },
            Incoming::Transfer(place) => {
                let command = self.commands.at(place);
                command.damaged |= !intact;
                let fetch = command.fetch.filter(|fetch| fetch.received == fetch.len)?;
                command.fetch = None;
                let result = if command.damaged { Err(MoveError::Host) } else { Ok(()) };
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

    /// What the transport asks of a command.
    fn check(&mut self, place: u16, intact: bool) -> Result<(), Status> {
        let transfer_max = self.limits.transfer_max;
        let command = self.commands.at(place);
        if !intact {
            return Err(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        command.pointer = DataPointer::parse(&command.sqe)?;
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
        if command.listed { Ok(()) } else { Err(Status::COMMAND_ID_CONFLICT) }
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
        if let DataPointer::Transport { .. } = command.pointer {
            command.fetch = Some(Fetch { slot, len, received: 0 });
            let cid = command.sqe.cid();
            self.sender.send(&Pdu::R2t(R2t { cid, tag: place, offset: 0, len }), &[]);
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
                let index = command.held.partition_point(|(other, _)| *other < at);
                command.held.insert(index, (at, bytes));
            }
            return Ok(filled);
        }
        let filled = self.sender.data(place, command.sqe.cid(), at, len, expected, fill);
        if filled.is_ok() {
            command.sent += len;
            send_held(&mut self.sender, command, place, expected);
        }
        Ok(filled)
    }

    /// Answers a command, which ends. What the transport knows goes in: identifier, head, damage of its data. A slot that waits for
    /// data of the command comes back: what it waits for does not come any more.
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

/// Sends data that came too early, as far as it goes on now.
fn send_held(sender: &mut Sender, command: &mut Command, place: u16, expected: u32) {
    while command.held.first().is_some_and(|(at, _)| *at == command.sent) {
        let (at, bytes) = command.held.remove(0);
        let filled: Result<(), ()> = sender.data(place, command.sqe.cid(), at, bytes.len() as u32, expected, |out| {
            out.copy_from_slice(&bytes);
            Ok(())
        });
        filled.expect("copying does not fail");
        command.sent += bytes.len() as u32;
    }
}
