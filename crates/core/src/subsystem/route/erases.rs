//! Blocks are forgotten by a command of the subsystem's own, behind all that was taken before.

use super::Subsystem;
use crate::subsystem::erase::{Erase, Then};
use crate::subsystem::interface::{Output, Slot};
use crate::subsystem::slots::{ERASE, SHUTDOWN_FLUSH, Work};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{DsmRange, Status};

impl<M: Medium> Subsystem<M> {
    /// Blocks are to be forgotten, once no command that was taken before can change them any more.
    pub(super) fn erase(&mut self, erase: Erase) {
        if self.erases.push(erase) {
            self.await_writes();
        }
    }

    fn await_writes(&mut self) {
        if self.erases.await_writes(&mut self.slots, &self.device) {
            self.begin_erase();
        }
    }

    /// Nothing is under way that changes blocks.
    pub(super) fn begin_erase(&mut self) {
        let Some(ranges) = self.erases.ranges() else { return };
        let slot = self.slots.take_own(ERASE).expect("one erase at a time");
        let command = &mut self.slots[slot];
        if ranges.is_empty() {
            return self.finish_own(slot, Status::SUCCESS);
        }
        command.work = Work::Ranges;
        command.len = (ranges.len() * DsmRange::SIZE) as u32;
        command.sqe = command.sqe.with_dword(11, 4); // Deallocate.
        command.ranges = ranges;
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
            self.erases.apply(&mut self.cx, &mut self.controllers);
            let command = &mut self.slots[slot];
            command.work = Work::Flush;
            command.durable = true;
            command.purge = self.erases.first().is_some_and(|erase| erase.purge);
            return self.submit(slot);
        }
        self.slots.release(slot);
        self.end_erase(status);
    }

    /// The blocks are forgotten for good, or can't be.
    fn end_erase(&mut self, status: Status) {
        let Some(erase) = self.erases.pop() else { return };
        if erase.then == Then::Sanitize {
            let event = self.cx.state.sanitize.finish(status.is_success());
            self.cx.say(Output::SaveState);
            self.controllers.raise_everywhere(&mut self.cx, event);
        }
        if let Some(slot) = erase.waiting {
            self.finish(slot, status);
        }
        if !self.erases.is_empty() {
            self.await_writes();
        }
    }
}
