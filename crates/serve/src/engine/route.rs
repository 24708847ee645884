//! What surrounds a subsystem: hosts' memory, the backing store, connections. It carries out what the subsystem says,
//! and hands in what comes of it.

use super::context::{Context, Pending};
use super::firmware::Firmware;
use super::group::Asked;
use super::group::replica_lag::Marks;
use super::hosts::dma::{Carried, bring, dma_read};
use super::hosts::dma_messages::{Done, Far, Then, Way};
use super::hosts::function::{Port, Reached};
use super::hosts::host_memory::Lent;
use super::hosts::shadow_doorbells::Doorbells;
use super::record::Record;
use super::storage::Storage;
use crate::image::Disk;
use crate::inbox::Inbox;
use crate::nvme_tcp::{CommandId, Target};
use crate::peers::carrier::Carrier;
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_core::content::Whereabouts;
use tidewater_core::drive::{Machine as _, World as Surroundings};
use tidewater_core::fast::transport::CommandError;
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::{Input, MoveError, Output, Outstanding, Slot, Unit};
use tidewater_wire::nvme::Cqe;
use tidewater_wire::replication::LANES_MAX;

/// Data of a command that comes over a connection, for the firmware itself.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub(crate) slot: Slot,
    pub(crate) bytes: Vec<u8>,
}

/// The surroundings of a subsystem.
pub struct World<M> {
    pub(crate) cx: Context,
    pub(crate) ports: Vec<Port>,
    pub(crate) target: Option<Target>,
    /// The connections to peers.
    pub(crate) peers: Option<Box<dyn Carrier>>,
    /// A primary's trims are not followed while there is room: a reader on this machine trims.
    pub(crate) holds_log: bool,
    /// For each function and lane the end of what is to be synced for its primary's host.
    pub(crate) flush_goals: Vec<[u64; LANES_MAX]>,
    /// For each function where its log ended, from time to time.
    pub(crate) marks: Vec<Marks>,
    /// For each function the version of what it promised to peers that is durable.
    pub(crate) promised: Vec<Option<u64>>,
    /// Who waits for each command of a group, if an operator does, and what the firmware has answered, each in order.
    pub(crate) asked: VecDeque<Option<Asked>>,
    pub(crate) grouped: VecDeque<(u8, Result<(), CommandError>)>,
    pub(crate) storage: Storage,
    pub(crate) mail: Inbox<M>,
    pub(crate) gathering: Vec<Gathering>,
    /// The memory that a host lends.
    pub(crate) lent: Lent,
    /// Transfers by messages that have ended.
    pub(crate) transfers: Inbox<Done>,
    /// Power cuts: what was under way before one is dropped.
    pub(crate) cuts: u64,
    pub(crate) doorbells: Doorbells,
    pub(crate) record: Record,
    /// How often it may go on with bytes that no client waits for before the engine polls its inputs.
    pub(crate) unpaced_turns: u32,
    /// When mapped rings are looked at.
    pub(crate) watch: crate::ring::Watch,
}

impl<M> World<M> {
    pub(crate) fn new(
        ports: Vec<Port>,
        target: Option<Target>,
        storage: Storage,
        mail: Inbox<M>,
        transfers: Inbox<Done>,
    ) -> World<M> {
        World {
            cx: Context::new(),
            ports,
            target,
            peers: None,
            holds_log: false,
            flush_goals: Vec::new(),
            marks: Vec::new(),
            promised: Vec::new(),
            asked: VecDeque::new(),
            grouped: VecDeque::new(),
            storage,
            mail,
            gathering: Vec::new(),
            lent: Lent::new(),
            transfers,
            cuts: 0,
            doorbells: Doorbells::new(),
            record: Record::default(),
            unpaced_turns: 0,
            watch: crate::ring::Watch::default(),
        }
    }

    /// Stores what the firmware has changed, before any client gets an answer that depends on it.
    pub(crate) fn store_logs(&mut self, firmware: &Firmware) {
        let (fast, ports) = (firmware.subsystem.device().fast(), &self.ports);
        let kept = |function: usize, lane: usize| {
            let ring = ports.get(function).and_then(|port| port.ring.as_ref());
            ring.zip(fast.function(function)).is_some_and(|(ring, of)| ring.keeps(lane, of))
        };
        self.storage.store_logs(&mut self.cx, firmware, kept);
        self.tell_of_disk();
    }

    /// As [`World::store_logs`], with the contents of clients' rings: they may be gone at the next start.
    pub(crate) fn store_logs_and_rings(&mut self, firmware: &Firmware) {
        self.store_logs(firmware);
        self.storage.store_rings(&mut self.cx, firmware);
        self.tell_of_disk();
    }

    /// Clients and peers learn what is wrong with the disk.
    #[inline]
    pub(crate) fn tell_of_disk(&mut self) {
        let Some(disk) = self.storage.take_news() else { return };
        if let Some(peers) = &mut self.peers {
            peers.set_disk(disk);
        }
        if let Some(number) = self.storage.error_number() {
            let rings = self.ports.iter_mut().filter_map(|port| port.ring.as_mut());
            rings.for_each(|ring| ring.publish_store_error(number, disk == Disk::Failed));
        }
    }

    /// A barrier of a function's persistent memory region: all that was stored into it is safe when this returns.
    /// False: it is not.
    pub(crate) fn pmr_barrier(&mut self, function: usize) -> bool {
        let Some(pmr) = self.ports.get(function).and_then(|port| port.pmr.as_ref()) else { return true };
        let image = self.storage.image_mut();
        let stored = pmr.store(image).and_then(|_| image.sync());
        self.storage.is_good(&mut self.cx, stored)
    }

    /// A load from the byte window: all that was stored into it before is safe when this returns. False: it is not.
    pub(crate) fn window_barrier(&mut self, firmware: &Firmware) -> bool {
        self.store_logs(firmware);
        self.storage.sync_window(&mut self.cx)
    }

    fn fetch(&mut self, firmware: &Firmware, slot: Slot, len: u32) {
        let command = command_of(firmware, slot);
        self.record.count_moved(command.queue, 1, len);
        let staging = &mut self.storage.payload.staging(slot)[..len as usize];
        let result = if usize::from(command.function) < self.ports.len() {
            match bring(&self.ports, firmware, slot, staging) {
                Carried::Done => Ok(()),
                Carried::Failed => Err(MoveError::Host),
                Carried::Far(far) => {
                    let bytes = staging.to_vec();
                    return self.begin(firmware, command.function, (Way::FromHost, far), Then::Fetched(slot), bytes);
                }
            }
        } else {
            match self.target.as_mut().map(|target| target.fetch(id_of(&command), slot, len)) {
                Some(Ok(Some(bytes))) => {
                    staging.copy_from_slice(bytes);
                    Ok(())
                }
                Some(Ok(None)) => return, // It answers when all has come.
                Some(Err(error)) => Err(error),
                None => Err(MoveError::Host),
            }
        };
        self.cx.push(Input::Moved { slot, result });
    }

    fn gather(&mut self, firmware: &Firmware, slot: Slot, len: u32) {
        let command = command_of(firmware, slot);
        let mut bytes = self.cx.buffer(len as usize);
        let good = if usize::from(command.function) < self.ports.len() {
            match bring(&self.ports, firmware, slot, &mut bytes) {
                Carried::Done => true,
                Carried::Failed => false,
                Carried::Far(far) => {
                    return self.begin(firmware, command.function, (Way::FromHost, far), Then::Gathered(slot), bytes);
                }
            }
        } else {
            match self.target.as_mut().map(|target| target.fetch(id_of(&command), slot, len)) {
                Some(Ok(Some(there))) => {
                    bytes.copy_from_slice(there);
                    true
                }
                Some(Ok(None)) => return self.gathering.push(Gathering { slot, bytes }),
                Some(Err(_)) | None => false,
            }
        };
        self.cx.put(Pending::Gathered(slot, good.then_some(bytes)));
    }

    /// Bytes of a command's data that came over a connection.
    pub(crate) fn stage(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        let to = match self.gathering.iter_mut().find(|gathering| gathering.slot == slot) {
            Some(gathering) => &mut gathering.bytes[..],
            None => self.storage.payload.staging(slot),
        };
        to[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// An input of a connection; the end of data that the firmware gathers goes to it with the data.
    pub(crate) fn on_target_input(&mut self, input: Input<'_>) {
        let input = match input {
            Input::Moved { slot, result } => {
                let place = self.gathering.iter().position(|gathering| gathering.slot == slot);
                if let Some(place) = place {
                    let Gathering { bytes, .. } = self.gathering.swap_remove(place);
                    return self.cx.put(Pending::Gathered(slot, result.is_ok().then_some(bytes)));
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
        };
        self.cx.push(input);
    }

    fn data(&mut self, firmware: &Firmware, slot: Slot, unit: Unit, place: Whereabouts, compare: bool) {
        let (place, found) = match place {
            Whereabouts::Host { serial, .. } => match self.lent.take(serial) {
                Some(found) => (place, Some(found)),
                None => (firmware.subsystem.device().locate(unit.lpn), None),
            },
            _ => (place, None),
        };
        let result = if let Some(found) = found {
            let bytes = &found[unit.skip as usize..][..unit.len as usize];
            if !compare {
                match self.take_to_host(firmware, slot, unit.at, bytes) {
                    Some(result) => result,
                    None => return,
                }
            } else if self.storage.payload.staged(slot)[unit.at as usize..][..bytes.len()] == *bytes {
                Ok(())
            } else {
                Err(MoveError::Differs)
            }
        } else if compare {
            self.storage.payload.compare(slot, unit, place)
        } else {
            match self.read_to_host(firmware, slot, unit, place) {
                Some(result) => result,
                None => return,
            }
        };
        self.cx.push(Input::Moved { slot, result });
    }

    fn complete(&mut self, firmware: &Firmware, function: u8, queue: u16, cqe: &Cqe, address: Option<u64>) {
        if !cqe.status.is_success() {
            self.record.counters.errors += 1;
        }
        match address {
            Some(address) => {
                let region = firmware.subsystem.region(function, address, Cqe::SIZE as u32);
                let entry = cqe.to_bytes();
                let port = self.ports.get(usize::from(function));
                match port.map(|port| port.write_entry(region, address, &entry)) {
                    Some(Reached::Done) => {}
                    Some(Reached::Far) => {
                        let far = vec![Far { address, at: 0, len: entry.len() }];
                        self.begin(firmware, function, (Way::ToHost, far), Then::Posted, entry.to_vec());
                    }
                    Some(Reached::Nothing) | None => self.cx.push(Input::PostFailed { function }),
                }
            }
            None => {
                if let Some(slot) = self.target.as_mut().and_then(|target| target.complete(function, queue, cqe)) {
                    self.on_target_input(Input::Moved { slot, result: Err(MoveError::Host) });
                }
            }
        }
    }

    /// Nothing that no page of the drive stands for any more is left in the image.
    fn purge(&mut self, firmware: &Firmware) {
        if self.storage.purge(&mut self.cx, firmware) && firmware.subsystem.is_sanitizing() {
            // Persistent memory regions are part of what a sanitize is about (NVM Express 1.4, section 8.15). None was
            // enabled when it began.
            let image = self.storage.image_mut();
            let mut pmrs = self.ports.iter().filter_map(|port| port.pmr.as_ref());
            let cleared = pmrs.try_for_each(|pmr| pmr.clear(image));
            self.storage.is_good(&mut self.cx, cleared);
        }
    }

    /// The power has failed: what was under way is gone, and connections with it.
    pub(crate) fn power_lost(&mut self) {
        self.cuts += 1;
        self.record.power_lost();
        self.cx.pending.clear();
        self.gathering.clear();
        self.promised.clear();
        // Commands without an answer get none: later answers are of later commands.
        self.asked.clear();
        self.grouped.clear();
        self.doorbells.forget();
        self.ports.iter_mut().filter_map(|port| port.page.as_mut()).for_each(|page| page.forget());
    }

    /// Whether a message from outside waits.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.has_messages()
            || self.transfers.has_messages()
            || self.ports.iter().any(|port| !port.mailbox.is_empty())
    }
}

pub(crate) fn command_of(firmware: &Firmware, slot: Slot) -> Outstanding {
    firmware.subsystem.command(slot).expect("what the subsystem says of a slot is about the command in it")
}

pub(crate) fn id_of(command: &Outstanding) -> CommandId {
    CommandId { function: command.function, queue: command.queue, cid: command.sqe.cid() }
}

impl<M> Surroundings<Firmware> for World<M> {
    fn next_at(&self) -> Instant {
        self.cx.pending.front().map_or(Instant::NEVER, |(at, _)| *at)
    }

    fn submit(&mut self, _: Instant) -> Option<Input<'_>> {
        let (_, pending) = self.cx.pending.pop_front()?;
        if self.record.has_commands() {
            self.record.see_input(&mut self.cx, &pending);
        }
        Some(self.cx.hand_in(pending))
    }

    fn refused(&mut self, refused: std::convert::Infallible) {
        match refused {}
    }

    fn take(&mut self, now: Instant, output: Output, firmware: &Firmware) {
        self.cx.now = now;
        self.store_logs(firmware);
        match output {
            Output::DmaRead { token, function, address, len } => {
                let mut bytes = self.cx.buffer(len as usize);
                match dma_read(&self.ports, firmware, function, address, &mut bytes) {
                    Carried::Done => self.cx.put(Pending::DmaRead(token, Some(bytes))),
                    Carried::Failed => self.cx.put(Pending::DmaRead(token, None)),
                    Carried::Far(far) => {
                        self.begin(firmware, function, (Way::FromHost, far), Then::DmaRead(token), bytes)
                    }
                }
            }
            Output::Gather { slot, len } => {
                self.gather(firmware, slot, len);
                if self.record.has_trace()
                    && let Some((_, Pending::Gathered(of, Some(bytes)))) = self.cx.pending.back()
                    && *of == slot
                {
                    self.record.see_ranges(firmware, slot, bytes);
                }
            }
            Output::EventIndex { function, address, value } => self.index_changed(firmware, function, address, value),
            Output::Fetch { slot, len } => self.fetch(firmware, slot, len),
            Output::Taken { slot, unit, version, zeroes, previous } => {
                self.storage.payload.taken(slot, unit, version, zeroes, previous);
            }
            Output::Data { slot, unit, place, compare } => self.data(firmware, slot, unit, place, compare),
            Output::HostMemory { function, access } => {
                match self.lent.access(firmware, &self.ports, &mut self.storage.payload, function, &access) {
                    Ok(answer) => self.cx.push(Input::HostMemory { ticket: access.ticket, answer }),
                    Err((way, far, unit)) => self.begin(firmware, function, (way, far), Then::HostMemory(access), unit),
                }
            }
            Output::Sync { slot } => {
                self.record.counters.syncs += 1;
                self.storage.payload.request_sync(slot);
            }
            Output::Purge { slot } => {
                self.purge(firmware);
                self.storage.payload.request_sync(slot);
            }
            Output::Send { slot, at, bytes, log } => self.send(firmware, slot, at, &bytes, log),
            Output::SaveState => self.storage.save_state(&mut self.cx, firmware),
            Output::Complete { function, queue, cqe, address, slot } => {
                // Queues come and go by admin commands.
                if queue == 0 {
                    self.doorbells.may_change(true);
                    self.look_at_queues(firmware, function);
                }
                if let Some(slot) = slot.filter(|_| queue != 0) {
                    self.record.ended(&mut self.cx, firmware, slot, cqe.status.is_success());
                }
                let cqe = self.storage.within_credit_limit(&self.cx, firmware, slot, cqe);
                if self.record.has_commands() {
                    self.record.see_end(&mut self.cx, function, queue, &cqe);
                }
                self.complete(firmware, function, queue, &cqe, address);
            }
            Output::Interrupt { function, vector } => {
                self.record.counters.interrupts += 1;
                if let Some(port) = self.ports.get_mut(usize::from(function)) {
                    port.courier.interrupt(vector);
                }
            }
            Output::Gone { function } => {
                if let Some(target) = &mut self.target {
                    target.gone(function);
                }
            }
            Output::QueueGone { function, queue } => {
                if let Some(target) = &mut self.target {
                    target.queue_gone(function, queue);
                }
            }
            // The target itself watches its hosts, by the wall's clock.
            Output::KeepAliveExpired { .. } => {}
            Output::LoadWindow { lpn, place } => self.storage.load_window(&mut self.cx, firmware, lpn, place),
            Output::StoreWindow { lpn, version, offset } => {
                self.storage.keep_window(&mut self.cx, firmware, (lpn, version), offset);
            }
            Output::Frame { frame, from, after, .. } => self.send_to_peer(firmware, &frame, from, after),
            Output::Grouped { function, result } => self.grouped.push_back((function, result)),
            Output::StoreLog { function, lpn, number, page, epoch } => {
                self.storage.keep_log(&mut self.cx, firmware, (function, lpn, number, epoch), &page);
            }
        }
    }

    fn stop(&mut self, now: Instant, firmware: &Firmware) -> bool {
        self.cx.now = now;
        self.store_logs(firmware);
        self.look_at_doorbells(firmware);
        self.storage.resume_synced(&mut self.cx);
        if !self.cx.pending.is_empty() {
            return false;
        }
        if self.has_time(firmware) {
            return true;
        }
        // While no host waits for a command, the thread need not stay awake until the drive's own work is due. In an
        // unpaced drive nothing takes time: log bytes move on to flash at once. Inputs are polled between, all the
        // same.
        if self.unpaced_turns > 0 && firmware.timing == Timing::None && firmware.subsystem.device().fast().is_moving() {
            self.unpaced_turns -= 1;
            return self.has_mail();
        }
        let idle = firmware.subsystem.outstanding() == 0 && firmware.deadline().is_some_and(|due| due > now);
        idle && !self.rings_wait(firmware, false) || self.has_mail()
    }
}
