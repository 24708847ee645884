//! Hosts: PCI functions, the NVMe/TCP target and the NBD server, and the ways of commands' data between them, the
//! staging areas and the image.

mod dma_messages;
mod doorbell_page;
mod function;
mod functions;
mod host_memory;
mod open;
mod pmr;
mod regions;
mod shadow_doorbells;

pub(crate) use self::dma_messages::Done;
pub(crate) use self::doorbell_page::nap;
pub(crate) use self::function::PciFunction;
pub(crate) use self::functions::Functions;
pub(crate) use self::open::{Opened, Opening};
pub(crate) use self::regions::{Barrier, Stored};

use self::dma_messages::{Direction, Far, Purpose};
use self::doorbell_page::{DoorbellPage, Which};
use self::function::Reached;
use self::functions::Carried;
use self::host_memory::LentMemory;
use self::shadow_doorbells::Doorbells;
use super::{Context, Firmware, Pending, Record, Turn};
use crate::image::Payload;
use crate::nbd;
use crate::nvme_tcp::{Border, CommandId, Target};
use std::os::fd::BorrowedFd;
use tidewater_base::Instant;
use tidewater_core::content::Whereabouts;
use tidewater_core::host_memory::Access;
use tidewater_core::subsystem::namespaces::Namespaces;
use tidewater_core::subsystem::{Input, MoveError, Outstanding, Segments, Slot, Token, Unit};
use tidewater_wire::nvme::Cqe;

/// Data of a command that comes over a connection, for the firmware itself.
#[derive(Debug)]
struct Gathering {
    slot: Slot,
    bytes: Vec<u8>,
}

/// The hosts of a device.
pub(crate) struct Hosts {
    pub(crate) functions: Functions,
    /// The NVMe/TCP target, if hosts may come by it.
    pub(crate) target: Option<Target>,
    /// The NBD server, if clients may come by it.
    pub(crate) nbd: Option<nbd::Server>,
    gathering: Vec<Gathering>,
    lent: LentMemory,
    doorbells: Doorbells,
}

impl Hosts {
    pub(crate) fn new(functions: Functions, target: Option<Target>, nbd: Option<nbd::Server>) -> Hosts {
        Hosts { functions, target, nbd, gathering: Vec::new(), lent: LentMemory::new(), doorbells: Doorbells::new() }
    }

    /// The NBD server, where a controller is its.
    fn nbd_of(&mut self, function: u8) -> Option<&mut nbd::Server> {
        self.nbd.as_mut().filter(|nbd| nbd.function() == function)
    }

    /// The power has failed: what was under way is gone.
    pub(crate) fn power_lost(&mut self) {
        self.gathering.clear();
        self.doorbells.forget();
        self.functions.power_lost();
    }

    // --- doorbells ---

    /// Takes what hosts have stored into their doorbell pages and shadow doorbells. True: something has changed.
    #[inline(always)]
    pub(crate) fn look_at_doorbells(&mut self, t: &mut Turn) -> bool {
        let mut changed = false;
        for function in 0..self.functions.all().len() {
            changed |= self.look_at_page(t, function, Which::Polled, true);
        }
        changed | self.doorbells.look(t, &mut self.functions)
    }

    /// Takes what a function's client stored before it sent the message that is about to be handled.
    pub(crate) fn look_before_message(&mut self, t: &mut Turn, function: usize) {
        self.look_at_page(t, function, Which::Polled, false);
    }

    /// `waits`: what has rung behind messages that are not yet handled is left for the next look.
    #[inline]
    fn look_at_page(&mut self, t: &mut Turn, function: usize, which: Which, waits: bool) -> bool {
        let Hosts { functions, doorbells, .. } = self;
        let PciFunction { page: Some(page), mailbox, .. } = &mut functions.all_mut()[function] else { return false };
        let function = function as u8;
        page.take_new(
            t.firmware,
            function,
            which,
            || waits && !mailbox.is_empty(),
            |offset, value| {
                if t.firmware.is_shadowed(function, offset.into()) {
                    doorbells.ask(function);
                } else {
                    t.cx.push(Input::Register { function, offset, len: 4, value: value.into() });
                }
            },
        )
    }

    /// Looks at the words of queues that there are not, which are not polled. True: one has changed.
    pub(crate) fn look_at_other_words(&mut self, t: &mut Turn) -> bool {
        let mut changed = false;
        for function in 0..self.functions.all().len() {
            if t.firmware.subsystem.is_ready(function as u8) {
                changed |= self.look_at_page(t, function, Which::Others, true);
            }
        }
        changed
    }

    /// Whether a doorbell page has to be polled: a controller that is ready has one.
    pub(crate) fn polls_pages(&self, firmware: &Firmware) -> bool {
        let mut functions = (0..).zip(self.functions.all());
        functions.any(|(number, function)| function.page.is_some() && firmware.subsystem.is_ready(number))
    }

    /// Whether a doorbell in a page has rung.
    pub(crate) fn page_has_rung(&self) -> bool {
        self.functions.all().iter().filter_map(|function| function.page.as_ref()).any(DoorbellPage::has_rung)
    }

    /// An admin command of a function ends, and its host is about to learn of it: queues come and go by these.
    pub(crate) fn queues_may_change(&mut self, firmware: &Firmware, function: u8) {
        self.doorbells.may_change();
        let of = self.functions.all_mut().get_mut(usize::from(function));
        if let Some(page) = of.and_then(|function| function.page.as_mut()) {
            page.look_at_queues(firmware.subsystem.resets(function), firmware.subsystem.queues(function));
        }
    }

    /// An event index has changed: up to where a doorbell has been seen.
    pub(crate) fn index_changed(&mut self, firmware: &Firmware, index: (u8, u64, u32)) {
        self.doorbells.index_changed(firmware, &mut self.functions, index);
    }

    /// Before the thread sleeps: hosts that ring in memory are to ring by message from now on.
    pub(crate) fn write_event_indices(&mut self, firmware: &Firmware) {
        self.doorbells.write_indices(firmware, &mut self.functions);
    }

    // --- data of commands ---

    /// Reads from the memory of a function's host.
    pub(crate) fn dma_read(&mut self, t: &mut Turn, token: Token, (function, address, len): (u8, u64, u32)) {
        let mut bytes = t.cx.buffer(len as usize);
        match self.functions.read(t.firmware, function, address, &mut bytes) {
            Carried::Done => t.cx.put(Pending::DmaRead(token, Some(bytes))),
            Carried::Failed => t.cx.put(Pending::DmaRead(token, None)),
            Carried::Far(far) => {
                let far = (Direction::FromHost, far);
                self.functions.begin(t.firmware, function, far, Purpose::DmaRead(token), bytes);
            }
        }
    }

    /// Brings a command's data into its staging area.
    pub(crate) fn fetch(&mut self, t: &mut Turn, payload: &mut Payload, slot: Slot, len: u32) {
        let staging = &mut payload.staging(slot)[..len as usize];
        if let Some(result) = self.bring(t, slot, staging, Purpose::Fetched(slot)) {
            t.cx.push(Input::Moved { slot, result });
        }
    }

    /// Brings a command's data for the firmware itself.
    pub(crate) fn gather(&mut self, t: &mut Turn, record: &mut Record, slot: Slot, len: u32) {
        let mut bytes = t.cx.buffer(len as usize);
        let Some(result) = self.bring(t, slot, &mut bytes, Purpose::Gathered(slot)) else {
            if !self.functions.has(t.firmware.command(slot).function) {
                self.gathering.push(Gathering { slot, bytes });
            }
            return;
        };
        if result.is_ok() {
            record.see_ranges(t.firmware, slot, &bytes);
        }
        t.cx.put(Pending::Gathered(slot, result.is_ok().then_some(bytes)));
    }

    /// Brings a command's data. `None`: it comes later, by messages for a purpose, or over the connection.
    fn bring(&mut self, t: &mut Turn, slot: Slot, to: &mut [u8], purpose: Purpose) -> Option<Result<(), MoveError>> {
        let command = t.firmware.command(slot);
        if self.functions.has(command.function) {
            return match self.functions.read_data(t.firmware, slot, to) {
                Carried::Done => Some(Ok(())),
                Carried::Failed => Some(Err(MoveError::Host)),
                Carried::Far(far) => {
                    let (far, bytes) = ((Direction::FromHost, far), to.to_vec());
                    self.functions.begin(t.firmware, command.function, far, purpose, bytes);
                    None
                }
            };
        }
        if let Some(nbd) = self.nbd_of(command.function) {
            let there = nbd.fetch(command.queue, command.sqe.cid(), to.len());
            return Some(there.map(|bytes| to.copy_from_slice(bytes)));
        }
        match self.target.as_mut().map(|target| target.fetch(id_of(&command), slot, to.len() as u32)) {
            Some(Ok(there)) => {
                to.copy_from_slice(there?);
                Some(Ok(()))
            }
            Some(Err(error)) => Some(Err(error)),
            None => Some(Err(MoveError::Host)),
        }
    }

    /// Brings data of a page to its command's host, or compares it with what the host has sent.
    pub(crate) fn data(
        &mut self,
        t: &mut Turn,
        payload: &mut Payload,
        (slot, unit, compare): (Slot, Unit, bool),
        place: Whereabouts,
    ) {
        let (place, found) = match place {
            Whereabouts::Host { serial, .. } => match self.lent.take(serial) {
                Some(found) => (place, Some(found)),
                None => (t.firmware.subsystem.device().locate(unit.lpn), None),
            },
            _ => (place, None),
        };
        let result = if let Some(found) = found {
            let bytes = &found[unit.skip as usize..][..unit.len as usize];
            if !compare {
                return self.send(t, slot, unit.at, bytes);
            }
            let is_same = payload.staged(slot)[unit.at as usize..][..bytes.len()] == *bytes;
            if is_same { Ok(()) } else { Err(MoveError::Differs) }
        } else if compare {
            payload.compare(slot, unit, place)
        } else if let Segments::Host(segments) = t.firmware.subsystem.segments(slot) {
            match payload.bytes(unit, place) {
                Ok(bytes) => {
                    let carried = self.functions.write_data(t.firmware, slot, segments, unit.at, bytes);
                    return self.sent(t, slot, carried, bytes);
                }
                Err(error) => Err(error),
            }
        } else {
            let read = |to: &mut [u8]| payload.read(unit, place, to);
            self.connected(&t.firmware.command(slot), (unit.at, unit.len), read)
        };
        t.cx.push(Input::Moved { slot, result });
    }

    /// Takes data of a command to its host: `bytes` go to `at` of its data.
    pub(crate) fn send(&mut self, t: &mut Turn, slot: Slot, at: u32, bytes: &[u8]) {
        if let Segments::Host(segments) = t.firmware.subsystem.segments(slot) {
            let carried = self.functions.write_data(t.firmware, slot, segments, at, bytes);
            return self.sent(t, slot, carried, bytes);
        }
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        let id = id_of(&t.firmware.command(slot));
        let sent = self.target.as_mut().map(|target| target.data(id, at, bytes.len() as u32, fill));
        let result = sent.unwrap_or(Err(MoveError::Host)).map_err(|_| MoveError::Host);
        t.cx.push(Input::Moved { slot, result });
    }

    /// Data of a command has gone to its host, but for what only messages carry: their end is said later.
    #[inline]
    fn sent(&mut self, t: &mut Turn, slot: Slot, carried: Carried, bytes: &[u8]) {
        let result = match carried {
            Carried::Done => Ok(()),
            Carried::Failed => Err(MoveError::Host),
            Carried::Far(far) => {
                let (function, far) = (t.firmware.command(slot).function, (Direction::ToHost, far));
                return self.functions.begin(t.firmware, function, far, Purpose::Moved(slot), bytes.to_vec());
            }
        };
        t.cx.push(Input::Moved { slot, result });
    }

    /// Carries out an access to memory that a host lends.
    pub(crate) fn access_lent(&mut self, t: &mut Turn, payload: &mut Payload, function: u8, access: Access) {
        match self.lent.access(t.firmware, &self.functions, payload, function, &access) {
            Ok(answer) => t.cx.push(Input::HostMemory { ticket: access.ticket, answer }),
            Err((direction, far, unit)) => {
                self.functions.begin(t.firmware, function, (direction, far), Purpose::HostMemory(access), unit);
            }
        }
    }

    /// Takes the transfers by messages that have ended. True: there were some.
    pub(crate) fn take_transfers(&mut self, t: &mut Turn, payload: &mut Payload, record: &mut Record) -> bool {
        let mut any = false;
        while let Some(Done { function, age, purpose, bytes, is_good }) = self.functions.take_ended() {
            any = true;
            let result = if is_good { Ok(()) } else { Err(MoveError::Host) };
            match purpose {
                Purpose::DmaRead(token) => t.cx.put(Pending::DmaRead(token, is_good.then_some(bytes))),
                Purpose::Gathered(slot) => {
                    if is_good {
                        record.see_ranges(t.firmware, slot, &bytes);
                    }
                    t.cx.put(Pending::Gathered(slot, is_good.then_some(bytes)));
                }
                Purpose::Fetched(slot) => {
                    payload.staging(slot)[..bytes.len()].copy_from_slice(&bytes);
                    t.cx.push(Input::Moved { slot, result });
                }
                Purpose::Moved(slot) => t.cx.push(Input::Moved { slot, result }),
                // After a reset of the controller, nothing is missed.
                Purpose::Posted if is_good || age.resets != t.firmware.subsystem.resets(function) => {}
                Purpose::Posted => t.cx.push(Input::PostFailed { function }),
                Purpose::HostMemory(access) => {
                    let answer = self.lent.carried(&access, is_good.then_some(&bytes));
                    t.cx.push(Input::HostMemory { ticket: access.ticket, answer });
                }
                Purpose::Shadows(address) => {
                    self.doorbells.came(t, function, address, is_good.then_some(&bytes));
                }
                Purpose::Nothing => {}
            }
        }
        any
    }

    /// Without power, no transfer is for anything.
    pub(crate) fn drop_transfers(&mut self) {
        while self.functions.take_ended().is_some() {}
    }

    // --- completions ---

    /// Posts a completion: to `address` in the memory of a PCI function's host, or over a connection.
    pub(crate) fn complete(&mut self, t: &mut Turn, (function, queue): (u8, u16), cqe: &Cqe, address: Option<u64>) {
        let Some(address) = address else {
            if let Some(nbd) = self.nbd_of(function) {
                return nbd.complete(queue, cqe);
            }
            if let Some(slot) = self.target.as_mut().and_then(|target| target.complete(function, queue, cqe)) {
                self.on_target_input(t.cx, Input::Moved { slot, result: Err(MoveError::Host) });
            }
            return;
        };
        let region = t.firmware.subsystem.region(function, address, Cqe::SIZE as u32);
        let entry = cqe.to_bytes();
        match self.functions.get(function).map(|function| function.write_entry(region, address, &entry)) {
            Some(Reached::Done) => {}
            Some(Reached::Far) => {
                let far = (Direction::ToHost, vec![Far { address, at: 0, len: entry.len() }]);
                self.functions.begin(t.firmware, function, far, Purpose::Posted, entry.to_vec());
            }
            Some(Reached::Nothing) | None => t.cx.push(Input::PostFailed { function }),
        }
    }

    /// Raises an interrupt, behind all entries that were written before.
    #[inline]
    pub(crate) fn interrupt(&mut self, function: u8, vector: u16) {
        if let Some(function) = self.functions.all_mut().get_mut(usize::from(function)) {
            function.messages.interrupt(vector);
        }
    }

    // --- connections ---

    /// Whether hosts may come over connections.
    pub(crate) fn has_connections(&self) -> bool {
        self.target.is_some() || self.nbd.is_some()
    }

    /// Lets target and server take in what came over their connections; `now`: the wall's time. True: something came.
    pub(crate) fn poll_connections(&mut self, t: &mut Turn, payload: &mut Payload, now: Instant) -> bool {
        let mut active = false;
        if let Some(mut target) = self.target.take() {
            active |= target.poll(now, &mut TargetBorder { t, payload, hosts: self });
            while let Some(note) = target.take_note() {
                t.cx.note(note);
            }
            self.target = Some(target);
        }
        if let Some(nbd) = &mut self.nbd {
            active |= nbd.poll(now, t);
            while let Some(note) = nbd.take_note() {
                t.cx.note(note);
            }
        }
        active
    }

    /// When they are to be polled at the latest, by the wall's time.
    pub(crate) fn connections_due(&self) -> Option<Instant> {
        let of_target = self.target.as_ref().and_then(Target::deadline);
        of_target.into_iter().chain(self.nbd.as_ref().and_then(nbd::Server::deadline)).min()
    }

    /// Descriptors that are readable when they are to be polled.
    pub(crate) fn connections_watched(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.target.as_ref().map(Target::as_fd), self.nbd.as_ref().map(nbd::Server::as_fd)]
    }

    /// Ends all connections, and takes no more.
    pub(crate) fn close_connections(&mut self) {
        (self.target, self.nbd) = (None, None);
    }

    /// Sends what waits for connections.
    pub(crate) fn flush_connections(&mut self) {
        if let Some(target) = &mut self.target {
            target.flush();
        }
        if let Some(nbd) = &mut self.nbd {
            nbd.flush();
        }
    }

    /// Nothing of a controller of connections is left in the subsystem.
    pub(crate) fn gone(&mut self, function: u8) {
        if let Some(nbd) = self.nbd_of(function) {
            nbd.gone();
        } else if let Some(target) = &mut self.target {
            target.gone(function);
        }
    }

    /// Nothing of a queue of such a controller is left in the subsystem.
    pub(crate) fn queue_gone(&mut self, function: u8, queue: u16) {
        if let Some(nbd) = self.nbd_of(function) {
            nbd.queue_gone(queue);
        } else if let Some(target) = &mut self.target {
            target.queue_gone(function, queue);
        }
    }

    /// Writes data of a command into the place from which it is sent over its connection: `len` bytes from byte `at`.
    fn connected(
        &mut self,
        command: &Outstanding,
        (at, len): (u32, u32),
        fill: impl FnOnce(&mut [u8]) -> Result<(), MoveError>,
    ) -> Result<(), MoveError> {
        if let Some(nbd) = self.nbd_of(command.function) {
            return nbd.data((command.queue, command.sqe.cid()), (at as usize, len as usize), fill);
        }
        self.target.as_mut().map_or(Err(MoveError::Host), |target| target.data(id_of(command), at, len, fill))
    }

    /// An input of a connection; the end of data that the firmware gathers goes to it with the data.
    fn on_target_input(&mut self, cx: &mut Context, input: Input<'_>) {
        cx.push(match input {
            Input::Moved { slot, result } => {
                let place = self.gathering.iter().position(|gathering| gathering.slot == slot);
                if let Some(place) = place {
                    let Gathering { bytes, .. } = self.gathering.swap_remove(place);
                    return cx.put(Pending::Gathered(slot, result.is_ok().then_some(bytes)));
                }
                Input::Moved { slot, result }
            }
            Input::Connect { function, entries, privileged, .. } => {
                // The target itself watches its hosts, by the wall's clock.
                Input::Connect { function, entries, privileged, keep_alive_ms: 0 }
            }
            Input::ConnectQueue { function, queue, entries } => Input::ConnectQueue { function, queue, entries },
            Input::Disconnect { function } => Input::Disconnect { function },
            Input::DisconnectQueue { function, queue } => Input::DisconnectQueue { function, queue },
            Input::Register { function, offset, len, value } => Input::Register { function, offset, len, value },
            Input::Capsule { function, queue, sqe } => Input::Capsule { function, queue, sqe },
            other => unreachable!("a target does not say {other:?}"),
        });
    }
}

fn id_of(command: &Outstanding) -> CommandId {
    CommandId { function: command.function, queue: command.queue, cid: command.sqe.cid() }
}

/// The engine, as the NVMe/TCP target sees it.
struct TargetBorder<'a, 'b> {
    t: &'a mut Turn<'b>,
    payload: &'a mut Payload,
    hosts: &'a mut Hosts,
}

impl Border for TargetBorder<'_, '_> {
    fn input(&mut self, input: Input<'_>) {
        self.hosts.on_target_input(self.t.cx, input);
    }

    fn register(&mut self, function: u8, offset: u32, len: u8) -> u64 {
        self.t.firmware.subsystem.register(function, offset, len)
    }

    fn controller_id(&self, function: u8) -> u16 {
        self.t.firmware.subsystem.controller_id(function)
    }

    fn stage(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        let to = match self.hosts.gathering.iter_mut().find(|gathering| gathering.slot == slot) {
            Some(gathering) => &mut gathering.bytes[..],
            None => self.payload.staging(slot),
        };
        to[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// The engine, as the NBD server sees it.
impl nbd::Border for Turn<'_> {
    fn input(&mut self, input: Input<'static>) {
        self.cx.push(input);
    }

    fn is_ready(&self, function: u8) -> bool {
        self.firmware.subsystem.is_ready(function)
    }

    fn namespaces(&self) -> &Namespaces {
        self.firmware.subsystem.namespaces()
    }
}
