//! What the subsystem does by itself: flushes of shutdowns, blocks that are forgotten, timers.

use super::lifecycle::SHUTDOWN_FLUSH;
use super::namespaces::Extent;
use super::slots::{Stage, Work};
use super::timers::Timer;
use super::{Output, Slot, Subsystem, Transport};
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::nvme::log::critical_warning;
use tidewater_wire::nvme::{DSM_RANGES_MAX, DsmRange, Event, Status};

/// Which of the subsystem's own slots forgets blocks.
const ERASE: u16 = 1;
/// Times that blocks are to be forgotten, at most, that wait for each other: whoever wants more comes again.
const ERASES_MAX: usize = 256;

/// What happens when blocks are forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A namespace is gone.
    Nothing,
    /// A namespace is there.
    Create,
    /// Namespaces get a block format.
    Format { nsids: Vec<u32>, lbaf: u8 },
    /// The sanitize operation ends.
    Sanitize,
}

/// Blocks that are to be forgotten.
#[derive(Clone, Debug)]
pub(super) struct Erase {
    pub extents: Vec<Extent>,
    pub then: Then,
    /// Not even the backing store may be able to bring them back.
    pub purge: bool,
    /// The command that waits for it.
    pub waiting: Option<Slot>,
}

impl<M: Medium> Subsystem<M> {
    /// Whether blocks of yet another namespace can be forgotten.
    ///
    /// # Errors
    /// Command Interrupted.
    pub(super) fn check_room_to_erase(&self) -> Result<(), Status> {
        if self.erases.len() < ERASES_MAX { Ok(()) } else { Err(Status::COMMAND_INTERRUPTED) }
    }

    /// Blocks are to be forgotten, once no command that was taken before can change them any more.
    pub(super) fn erase(&mut self, erase: Erase) {
        self.erases.push_back(erase);
        if self.erases.len() == 1 {
            self.await_writes();
        }
    }

    fn await_writes(&mut self) {
        let mut blockers = 0;
        for slot in (0..self.slots.hosts()).map(Slot) {
            let command = &mut self.slots[slot];
            let modifies = matches!(command.work, Work::Write | Work::WriteZeroes | Work::Ranges) && command.queue > 0;
            // What waits at the byte window's gate has changed nothing, and touches nothing that is forgotten.
            let is_held = command.stage == Stage::Device && self.device.is_held(slot.0);
            if command.stage != Stage::Free && modifies && !is_held {
                command.blocks_erase = true;
                blockers += 1;
            }
        }
        self.erase_blockers = blockers;
        if blockers == 0 {
            self.begin_erase();
        }
    }

    /// Nothing is under way that changes blocks.
    pub(super) fn begin_erase(&mut self) {
        let Some(erase) = self.erases.front() else { return };
        let mut ranges = Vec::new();
        for extent in &erase.extents {
            let (mut first, mut left) = (extent.first, extent.blocks);
            while left > 0 {
                // A multiple of every unit.
                let blocks = left.min(1 << 31);
                ranges.push(DsmRange::new(first, blocks as u32));
                (first, left) = (first + blocks, left - blocks);
            }
        }
        assert!(ranges.len() <= DSM_RANGES_MAX, "more than 2^48 bytes, or more namespaces than there can be");
        let slot = self.slots.take_own(ERASE).expect("one erase at a time");
        let command = &mut self.slots[slot];
        if ranges.is_empty() {
            return self.finish_own(slot, Status::SUCCESS);
        }
        command.work = Work::Ranges;
        command.len = (ranges.len() * DsmRange::SIZE) as u32;
        command.sqe = command.sqe.with_dword(11, 4); // Deallocate.
        command.ranges = ranges.into_boxed_slice();
        self.submit(slot);
    }

    /// A command of the subsystem's own has ended.
    #[cold]
    pub(super) fn finish_own(&mut self, slot: Slot, status: Status) {
        if slot.0 - self.slots.hosts() == SHUTDOWN_FLUSH {
            self.slots.release(slot);
            return self.on_shutdown_flushed(status);
        }
        if self.slots[slot].work != Work::Flush && status.is_success() {
            self.apply_erase();
            let purge = self.erases.front().is_some_and(|erase| erase.purge);
            let command = &mut self.slots[slot];
            command.work = Work::Flush;
            command.durable = true;
            command.purge = purge;
            return self.submit(slot);
        }
        self.slots.release(slot);
        self.end_erase(status);
    }

    /// The blocks are forgotten: what they were is no more.
    fn apply_erase(&mut self) {
        match self.erases.front().map(|erase| erase.then.clone()) {
            Some(Then::Format { nsids, lbaf }) => {
                for nsid in nsids {
                    if self.state.namespaces.format(nsid, lbaf).is_ok() {
                        self.tell_namespace_changed(nsid);
                    }
                }
            }
            Some(Then::Create) => {}
            Some(Then::Nothing | Then::Sanitize) | None => return,
        }
        self.outputs.push_back(Output::SaveState);
    }

    /// The blocks are forgotten for good, or can't be.
    fn end_erase(&mut self, status: Status) {
        let Some(erase) = self.erases.pop_front() else { return };
        if erase.then == Then::Sanitize {
            let event = self.state.sanitize.finish(status.is_success());
            self.outputs.push_back(Output::SaveState);
            self.raise_everywhere(event);
        }
        if let Some(slot) = erase.waiting {
            self.finish(slot, status);
        }
        if !self.erases.is_empty() {
            self.await_writes();
        }
    }

    /// A command that waits for blocks to be forgotten is an orphan: they are forgotten all the same.
    pub(super) fn forget_waiting(&mut self, slot: Slot) {
        self.host_memory.forget_waiting(slot);
        for erase in self.erases.iter_mut().filter(|erase| erase.waiting == Some(slot)) {
            erase.waiting = None;
        }
    }

    /// Whether a namespace is being formatted.
    #[cold]
    pub(super) fn is_formatting(&self, nsid: u32) -> bool {
        let formats = |erase: &Erase| matches!(&erase.then, Then::Format { nsids, .. } if nsids.contains(&nsid));
        self.erases.iter().any(formats)
    }

    /// Something has happened that every host is to know.
    pub(super) fn raise_everywhere(&mut self, event: Event) {
        for function in 0..self.controllers.len() {
            if self.controllers[function].live {
                self.raise(function as u8, event);
            }
        }
    }

    /// What Identify tells of a namespace has changed, for all that it is attached to.
    pub(super) fn tell_namespace_changed(&mut self, nsid: u32) {
        let Ok(attached) = self.state.namespaces.at(nsid).map(|ns| ns.attached) else { return };
        for function in attached.iter() {
            self.tell_controller_of_namespace(function, nsid);
        }
    }

    /// A namespace has come, gone or changed, as far as a controller is concerned.
    pub(super) fn tell_controller_of_namespace(&mut self, function: u8, nsid: u32) {
        if let Some(c) = self.controllers.get_mut(usize::from(function)).filter(|c| c.live) {
            c.changed.add(nsid);
            self.raise(function, Event::NamespaceAttributeChanged);
        }
    }

    /// Whether the drive takes no writes any more; the first time, hosts are told.
    #[cold]
    pub(super) fn look_for_end_of_life(&mut self) {
        if !self.told_end_of_life && (self.read_only || self.device.ftl().is_read_only()) {
            self.told_end_of_life = true;
            self.raise_everywhere(Event::Reliability);
            self.look_for_short_spares();
        }
    }

    /// Blocks have failed, and spare ones have taken their places.
    #[cold]
    pub(super) fn on_flash_failed(&mut self) {
        let statistics = &self.device.ftl().statistics;
        self.failures_seen = statistics.program_failures + statistics.erase_failures;
        self.look_for_short_spares();
    }

    /// Whether spare blocks are short; the first time, hosts are told.
    fn look_for_short_spares(&mut self) {
        let flash = super::state::flash_of(&self.device, self.read_only);
        if !self.told_spare && self.state.smart.warnings(&flash, false) & critical_warning::SPARE != 0 {
            self.told_spare = true;
            self.raise_everywhere(Event::SpareBelowThreshold);
        }
    }

    /// A self-test may have ended.
    pub(super) fn on_self_test(&mut self) {
        let hours = self.state.smart.power_on_hours(self.now);
        let warnings = self.state.smart.warnings(&super::state::flash_of(&self.device, self.read_only), false);
        let before = self.state.self_test.deadline();
        if self.state.self_test.expire(self.now, hours, warnings) {
            self.raise_everywhere(Event::DiagnosticFailure);
        }
        if before.is_some() && self.state.self_test.deadline().is_none() {
            self.outputs.push_back(Output::SaveState);
        }
    }

    /// A self-test runs, that ends some day. One that was aborted before does not.
    pub(super) fn await_self_test(&mut self) {
        self.timers.cancel(|timer| *timer == Timer::SelfTest);
        if let Some(at) = self.state.self_test.deadline() {
            self.timers.push(at.max(self.now), Timer::SelfTest);
        }
    }

    /// The host has to send a command at least so often; 0: it need not.
    pub(super) fn set_keep_alive(&mut self, function: u8, timeout_ms: u32) {
        let now = self.now;
        let c = &mut self.controllers[usize::from(function)];
        c.keep_alive = Duration::from_ms(timeout_ms.into());
        c.heard_at = now;
        c.keep_alive_timer = c.keep_alive_timer.wrapping_add(1);
        let (at, generation) = (now + c.keep_alive, c.keep_alive_timer);
        self.timers.cancel(|timer| matches!(timer, Timer::KeepAlive { function: of, .. } if *of == function));
        if timeout_ms > 0 {
            self.timers.push(at, Timer::KeepAlive { function, generation });
        }
    }

    /// The Keep Alive Timer expires. Over fabrics every command restarts it (Traffic Based Keep Alive), and the front
    /// end ends the association; over PCIe Keep Alive does, and the controller fails until it is reset (section 7.12).
    pub(super) fn on_keep_alive(&mut self, function: u8, generation: u32) {
        let now = self.now;
        let c = &mut self.controllers[usize::from(function)];
        if c.keep_alive_timer != generation || !c.live || c.leaving {
            return;
        }
        let due = c.heard_at + c.keep_alive;
        if due > now {
            return self.timers.push(due, Timer::KeepAlive { function, generation });
        }
        match c.transport {
            Transport::Fabrics => self.outputs.push_back(Output::KeepAliveExpired { function }),
            Transport::Pcie => {
                let count = self.state.smart.error();
                c.errors.of_queue(count, u16::MAX, Transport::Pcie);
                self.fail(function);
            }
        }
    }
}
