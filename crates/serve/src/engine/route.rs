//! The engine: owns the rooms, and routes what the firmware says, what comes from outside and what one room has come to
//! that concerns another. It is the world of the drive loop.

use super::{
    Barrier, Came, CommandFaults, Context, Firmware, Group, Hosts, Message, Pending, Record, Rings, Storage, Stored,
    Turn,
};
use crate::image::Disk;
use crate::inbox::Inbox;
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{Machine as _, World};
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::{Input, LogPiece, MoveError, Output, Slot};

/// How often the drive loop goes on with log bytes that no client waits for, before the engine polls its inputs.
const UNPACED_TURNS: u32 = 256;
/// How long before the end of a command the thread stays awake for it: a sleep ends late.
const SOON: Duration = Duration::from_ms(2);

/// What surrounds a firmware: its rooms.
pub(crate) struct Engine {
    pub(crate) cx: Context,
    pub(crate) hosts: Hosts,
    pub(crate) storage: Storage,
    pub(crate) group: Group,
    pub(crate) rings: Rings,
    pub(crate) record: Record,
    pub(crate) faults: CommandFaults,
    /// Messages of other threads.
    pub(crate) mail: Inbox<Message>,
    /// How often the loop may go on with bytes that no client waits for before inputs are polled.
    unpaced_turns: u32,
}

impl Engine {
    pub(crate) fn new(hosts: Hosts, storage: Storage, group: Group, rings: Rings, mail: Inbox<Message>) -> Engine {
        let (cx, record, faults) = (Context::new(), Record::default(), CommandFaults::new());
        Engine { cx, hosts, storage, group, rings, record, faults, mail, unpaced_turns: 0 }
    }

    // --- what comes from outside ---

    /// Takes in what has come beside messages of clients, at this time of the wall. True: something happened.
    pub(crate) fn poll(&mut self, firmware: &Firmware, wall: Instant) -> (bool, Came) {
        let Engine { cx, hosts, storage, group, rings, faults, .. } = self;
        let is_late = faults.release(cx, false);
        let t = &mut Turn { cx, firmware };
        let came = group.poll(t, wall);
        if came != Came::Nothing {
            rings.on_reports();
        }
        storage.resume_synced(t.cx);
        let rung = hosts.look_at_doorbells(t);
        let found = rings.look(t, storage, group);
        self.tell_of_disk();
        (rung | found | is_late, came)
    }

    /// Lets NVMe/TCP and NBD take in what came over their connections. True: something came.
    pub(crate) fn poll_connections(&mut self, firmware: &Firmware, wall: Instant) -> bool {
        let Engine { cx, hosts, storage, .. } = self;
        hosts.poll_connections(&mut Turn { cx, firmware }, &mut storage.payload, wall)
    }

    /// Takes the transfers by messages that have ended. True: there were some.
    pub(crate) fn take_transfers(&mut self, firmware: &Firmware) -> bool {
        let Engine { cx, hosts, storage, record, .. } = self;
        hosts.take_transfers(&mut Turn { cx, firmware }, &mut storage.payload, record)
    }

    /// Reads a region of a PCI function for its client.
    pub(crate) fn region_read(&mut self, firmware: &Firmware, function: usize, at: (u32, u64), to: &mut [u8]) {
        let is_safe = match Barrier::of(firmware, function, at, to.len()) {
            Barrier::None => true,
            Barrier::Pmr => self.pmr_barrier(function),
            Barrier::Window => self.window_barrier(firmware),
        };
        self.hosts.region_read(&mut Turn { cx: &mut self.cx, firmware }, function, at, is_safe, to);
    }

    /// Writes a region of a PCI function for its client.
    pub(crate) fn region_write(&mut self, firmware: &Firmware, function: usize, at: (u32, u64), from: &[u8]) {
        let Engine { cx, hosts, rings, .. } = self;
        match hosts.region_write(&mut Turn { cx, firmware }, function, at, from) {
            Stored::Done => {}
            Stored::Reset => hosts.reset(cx, function),
            Stored::Store if rings.message(firmware.subsystem.device().fast(), function, at.1, from) => {}
            Stored::Store => {
                let mut bytes = cx.buffer(from.len());
                bytes.copy_from_slice(from);
                cx.put(Pending::Store { function: function as u8, address: at.1, bytes });
            }
        }
    }

    /// Whether a message from outside waits.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.has_messages() || self.hosts.functions.has_messages()
    }

    // --- around the drive loop ---

    /// Before the drive loop runs.
    pub(crate) fn before_drive(&mut self) {
        self.unpaced_turns = UNPACED_TURNS;
    }

    /// Behind the drive loop: what it has led to goes to the image, to peers and to clients of mapped rings.
    pub(crate) fn after_drive(&mut self, firmware: &Firmware) {
        self.store_logs(firmware);
        let Engine { cx, storage, group, rings, record, .. } = self;
        let (fast, t) = (firmware.subsystem.device().fast(), &mut Turn { cx, firmware });
        rings.follow_epochs(t, storage, group);
        let wanted = |function: usize, lane: usize, of: &_| rings.wanted_of_replicas(function, lane, of);
        record.counters.syncs += u64::from(group.flush(t, storage, wanted));
        group.note_ends(firmware, |function, of| rings.appended(function, of));
        rings.publish(cx, storage, fast);
        self.tell_of_disk();
    }

    /// Housekeeping of a turn: versions of pages that are not needed any more, bytes for connections, answers.
    pub(crate) fn housekeeping(&mut self, firmware: &Firmware) {
        let Engine { cx, hosts, storage, group, .. } = self;
        if storage.payload.needs_sweep() {
            storage.payload.sweep(firmware.subsystem.device().unprogrammed());
        }
        hosts.flush_connections();
        if let Some(peers) = group.carrier_mut() {
            peers.flush();
        }
        group.answer_orders(&mut Turn { cx, firmware }, storage);
        self.tell_of_disk();
    }

    /// Whether the device does nothing until its next event, at the model's pace, so that the loop returns: remote
    /// hosts get what has ended, and send more. Without any it returns where that event is far away.
    fn has_time(&self, firmware: &Firmware) -> bool {
        let first = if self.hosts.has_connections() { self.cx.now } else { self.cx.now + SOON };
        firmware.timing == Timing::Model && firmware.deadline().is_some_and(|due| due > first)
    }

    /// Whether a command ends so soon that the thread stays awake for it.
    pub(crate) fn ends_soon(&self, firmware: &Firmware) -> bool {
        let soon = self.cx.now + SOON;
        self.hosts.has_connections()
            && self.has_time(firmware)
            && firmware.subsystem.outstanding() > 0
            && firmware.deadline().is_some_and(|due| due < soon)
    }

    /// The power has failed: what was under way is gone.
    pub(crate) fn power_lost(&mut self) {
        self.record.power_lost();
        self.faults.power_lost();
        self.cx.pending.clear();
        self.group.power_lost();
        self.hosts.power_lost();
    }

    // --- the image ---

    /// Stores what the firmware has changed, before any client gets an answer that depends on it.
    #[inline]
    fn store_logs(&mut self, firmware: &Firmware) {
        let Engine { cx, storage, rings, .. } = self;
        let fast = firmware.subsystem.device().fast();
        storage.store_logs(&mut Turn { cx, firmware }, |function, lane| rings.keeps(fast, function, lane));
        self.tell_of_disk();
    }

    /// As [`Engine::store_logs`], with the contents of clients' rings: they may be gone at the next start.
    pub(crate) fn store_logs_and_rings(&mut self, firmware: &Firmware) {
        self.store_logs(firmware);
        self.storage.store_rings(&mut Turn { cx: &mut self.cx, firmware });
        self.tell_of_disk();
    }

    /// Clients and peers learn what is wrong with the disk.
    #[inline]
    pub(crate) fn tell_of_disk(&mut self) {
        let Some(disk) = self.storage.take_news() else { return };
        if let Some(peers) = self.group.carrier_mut() {
            peers.set_disk(disk);
        }
        if let Some(number) = self.storage.error_number() {
            self.rings.publish_store_error(number, disk == Disk::Failed);
        }
    }

    /// A barrier of a function's persistent memory region: all that was stored into it is safe when this returns.
    /// False: it is not.
    fn pmr_barrier(&mut self, function: usize) -> bool {
        let Some(pmr) = &self.hosts.functions.all()[function].pmr else { return true };
        let image = self.storage.image_mut();
        let stored = pmr.store(image).and_then(|_| image.sync());
        let is_safe = self.storage.is_good(&mut self.cx, stored);
        self.tell_of_disk();
        is_safe
    }

    /// A load from the byte window: all that was stored into it before is safe when this returns. False: it is not.
    pub(crate) fn window_barrier(&mut self, firmware: &Firmware) -> bool {
        self.store_logs(firmware);
        let is_safe = self.storage.sync_window(&mut self.cx);
        self.tell_of_disk();
        is_safe
    }

    /// Nothing that no page of the drive stands for any more is left in the image.
    fn purge(&mut self, firmware: &Firmware) {
        let Engine { cx, hosts, storage, .. } = self;
        if storage.purge(&mut Turn { cx, firmware }) && firmware.subsystem.is_sanitizing() {
            // Persistent memory regions are part of what a sanitize is about (NVM Express 1.4, section 8.15). None was
            // enabled when it began.
            let cleared = hosts.functions.pmrs().try_for_each(|pmr| pmr.clear(storage.image_mut()));
            storage.is_good(cx, cleared);
        }
    }

    // --- outputs of the firmware ---

    /// Sends a command's data that the firmware has, with bytes of the log behind it.
    fn send(&mut self, firmware: &Firmware, slot: Slot, at: u32, bytes: &[u8], log: Option<LogPiece>) {
        let Engine { cx, hosts, storage, record, .. } = self;
        let (queue, t) = (firmware.command(slot).queue, &mut Turn { cx, firmware });
        let fail = |cx: &mut Context, error| cx.push(Input::Moved { slot, result: Err(error) });
        if storage.exceeds_credit_limit(t, Some(slot)) {
            return fail(t.cx, MoveError::Host);
        }
        let Some(piece) = log else {
            record.count_moved(queue, 0, bytes.len() as u32);
            return hosts.send(t, slot, at, bytes);
        };
        let mut all = t.cx.buffer(bytes.len() + piece.len as usize);
        let (head, log) = all.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        match storage.log_bytes(firmware, piece, log) {
            Ok(()) => {
                record.count_moved(queue, 0, all.len() as u32);
                hosts.send(t, slot, at, &all);
            }
            Err(error) => fail(t.cx, error),
        }
        t.cx.spare(all);
    }
}

impl World<Firmware> for Engine {
    fn next_at(&self) -> Instant {
        self.cx.pending.front().map_or(Instant::NEVER, |(at, _)| *at)
    }

    fn submit(&mut self, _: Instant) -> Option<Input<'_>> {
        let (_, pending) = self.cx.pending.pop_front()?;
        self.faults.handed_in();
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
        let Engine { cx, hosts, storage, group, record, faults, .. } = self;
        let t = &mut Turn { cx, firmware };
        match output {
            Output::DmaRead { token, function, address, len } => {
                hosts.dma_read(t, token, (function, address, len));
            }
            Output::Gather { slot, len } => hosts.gather(t, record, slot, len),
            Output::EventIndex { function, address, value } => {
                hosts.index_changed(firmware, (function, address, value));
            }
            Output::Fetch { slot, len } => {
                record.count_moved(firmware.command(slot).queue, 1, len);
                faults.fetching(firmware, slot);
                hosts.fetch(t, &mut storage.payload, slot, len);
            }
            Output::Taken { slot, unit, version, zeroes, previous } => {
                if faults.drops(slot) {
                    storage.payload.lost(unit, version, previous);
                } else {
                    storage.payload.taken(slot, unit, version, zeroes, previous);
                }
            }
            Output::Data { slot, unit, place, compare } => {
                if !compare {
                    record.count_moved(firmware.command(slot).queue, 0, unit.len);
                    storage.payload.flip(faults.flips(firmware, slot, unit));
                }
                hosts.data(t, &mut storage.payload, (slot, unit, compare), place);
            }
            Output::HostMemory { function, access } => {
                hosts.access_lent(t, &mut storage.payload, function, access);
            }
            Output::Sync { slot } => {
                record.counters.syncs += 1;
                storage.payload.request_sync(slot);
            }
            Output::Purge { slot } => {
                self.purge(firmware);
                self.storage.payload.request_sync(slot);
            }
            Output::Send { slot, at, bytes, log } => self.send(firmware, slot, at, &bytes, log),
            Output::SaveState => storage.save_state(t),
            Output::Complete { function, queue, cqe, address, slot } => {
                let cqe = faults.ended(firmware, slot, queue, cqe);
                if queue == 0 {
                    hosts.queues_may_change(firmware, function);
                }
                if let Some(slot) = slot.filter(|_| queue != 0) {
                    record.ended(t, slot, cqe.status.is_success());
                }
                let cqe = storage.within_credit_limit(t, slot, cqe);
                record.counters.errors += u64::from(!cqe.status.is_success());
                if record.has_commands() {
                    record.see_end(t.cx, function, queue, &cqe);
                }
                hosts.complete(t, (function, queue), &cqe, address);
            }
            Output::Interrupt { function, vector } => {
                record.counters.interrupts += 1;
                hosts.interrupt(function, vector);
            }
            Output::Gone { function } => hosts.gone(function),
            Output::QueueGone { function, queue } => hosts.queue_gone(function, queue),
            // The target itself watches its hosts, by the wall's clock.
            Output::KeepAliveExpired { .. } => {}
            Output::LoadWindow { lpn, place } => storage.load_window(t, lpn, place),
            Output::StoreWindow { lpn, version, offset } => storage.keep_window(t, (lpn, version), offset),
            Output::Frame { frame, from, after, .. } => group.send(t, storage, &frame, (from, after)),
            Output::Grouped { function, result } => group.carried_out(function, result),
            Output::StoreLog { function, lpn, number, page, epoch } => {
                storage.keep_log(t, (function, lpn, number, epoch), &page);
            }
        }
    }

    fn stop(&mut self, now: Instant, firmware: &Firmware) -> bool {
        self.cx.now = now;
        self.store_logs(firmware);
        self.hosts.look_at_doorbells(&mut Turn { cx: &mut self.cx, firmware });
        self.storage.resume_synced(&mut self.cx);
        let was_due = self.faults.cut_is_due();
        self.faults.look(&mut Turn { cx: &mut self.cx, firmware });
        if was_due || !self.cx.pending.is_empty() {
            return was_due;
        }
        if self.has_time(firmware) {
            return true;
        }
        // While no host waits for a command, the thread need not stay awake until the drive's own work is due. In an
        // unpaced drive nothing takes time: log bytes move on to flash at once. Inputs are polled between, all the
        // same.
        let fast = firmware.subsystem.device().fast();
        if self.unpaced_turns > 0 && firmware.timing == Timing::None && fast.is_moving() {
            self.unpaced_turns -= 1;
            return self.has_mail();
        }
        let idle = firmware.subsystem.outstanding() == 0 && firmware.deadline().is_some_and(|due| due > now);
        idle && !self.rings.wait(fast, false) || self.has_mail()
    }
}
