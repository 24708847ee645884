//! Commands begin and end: from an entry to its slot, and from the slot to a completion.

use super::Subsystem;
use crate::subsystem::controllers::{BURST, Served};
use crate::subsystem::interface::{Slot, Transport};
use crate::subsystem::queues::Posting;
use crate::subsystem::share::is_transfer;
use crate::subsystem::slots::{OWN, Work};
use crate::subsystem::smart::Done;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Cqe, Sqe, Status, opcode};

impl<M: Medium> Subsystem<M> {
    /// Reads entries, as far as there are slots for them.
    #[inline]
    pub(super) fn fetch(&mut self) {
        if !self.controllers.has_waiting() {
            return;
        }
        while self.slots.available() > 0
            && let Some(function) = self.controllers.next_admin()
        {
            self.serve(function, 0, u32::MAX);
        }
        while let Some((function, queue, most)) = self.controllers.next_io(&self.slots) {
            let taken = self.serve(function, queue, most);
            self.controllers.end_turn(function, queue, taken);
        }
    }

    /// A queue has its turn, for `most` commands. Returns how many are taken.
    #[inline]
    fn serve(&mut self, function: u8, queue: u16, most: u32) -> u32 {
        match self.controllers.serve(&mut self.cx, &mut self.slots, function, queue, most) {
            Served::Entries(count) => count,
            Served::Capsules(slots) => {
                self.serve_capsules(function, queue, slots);
                0
            }
        }
    }

    /// A command has its data, or ends without: queues of its controller that wait for that have their turn again.
    #[inline]
    pub(super) fn end_transfer(&mut self, slot: Slot) {
        if self.slots.end_transfer(slot) {
            self.controllers.unstall(self.slots[slot].function);
        }
    }

    /// Entries have come. They are looked at once: what the host does to them from now on changes nothing.
    #[inline]
    pub(super) fn on_entries(&mut self, function: u8, queue: u16, bytes: Option<&[u8]>) {
        let c = &mut self.controllers[function];
        let sq = &mut c.submission[usize::from(queue)];
        let count = std::mem::take(&mut sq.fetching);
        assert!(count > 0, "queue {queue} of controller {function}: no entries were asked for");
        c.outstanding -= 1;
        self.slots.give_back(function, queue, count);
        let c = &mut self.controllers[function];
        let runs = c.is_running();
        let sq = &mut c.submission[usize::from(queue)];
        if !runs || !sq.live {
            return self.try_quiesce(function); // A reset came before them.
        }
        let Some(bytes) = bytes else { return self.controllers.fail(function) };
        assert_eq!(bytes.len(), usize::from(count) * Sqe::SIZE, "as many bytes as were asked for");
        sq.outstanding += u32::from(count);
        c.outstanding += u32::from(count);
        for entry in bytes.as_chunks::<{ Sqe::SIZE }>().0 {
            let sqe = Sqe::from_bytes(entry);
            let sq = &mut self.controllers[function].submission[usize::from(queue)];
            sq.advance(1);
            let slot = self.slots.take(function, queue, &sqe, self.cx.now);
            if queue == 0 { self.begin_admin(slot) } else { self.begin_io(slot) }
        }
        if self.controllers[function].submission[usize::from(queue)].deletion.is_some() {
            return self.try_delete(function, queue);
        }
        self.controllers.after_entries(&mut self.cx, function, queue);
    }

    /// A capsule has come.
    pub(super) fn on_capsule(&mut self, function: u8, queue: u16, sqe: Sqe) {
        let Some(c) = self.controllers.get_mut(function) else { return };
        c.heard_at = self.cx.now;
        let runs = c.is_running();
        let live = c.live && c.transport == Transport::Fabrics && !c.leaving;
        let Some(sq) = c.submission.get_mut(usize::from(queue)).filter(|sq| live && sq.live && !sq.leaving) else {
            return;
        };
        if !runs {
            let posting = Posting::new(queue, sqe.cid(), Status::COMMAND_SEQUENCE_ERROR, 0);
            return self.controllers.post(&mut self.cx, function, posting, None);
        }
        if sq.capsules.len() >= sq.entries as usize {
            return self.controllers.fail(function); // More commands than the queue has entries.
        }
        sq.capsules.push_back(sqe);
        self.controllers.line_up(function, queue);
    }

    fn serve_capsules(&mut self, function: u8, queue: u16, slots: u16) {
        for _ in 0..BURST.min(slots.into()) {
            let c = &mut self.controllers[function];
            let sq = &mut c.submission[usize::from(queue)];
            let Some(sqe) = sq.capsules.front().copied() else { return };
            let is_transfer = queue > 0 && is_transfer(&sqe);
            if is_transfer && !self.slots.admits_transfer(function) {
                return self.controllers.stall(function, queue);
            }
            sq.capsules.pop_front();
            sq.advance(1);
            sq.outstanding += 1;
            c.outstanding += 1;
            let slot = self.slots.take(function, queue, &sqe, self.cx.now);
            if is_transfer {
                self.slots.begin_transfer(slot);
            }
            if queue == 0 { self.begin_admin(slot) } else { self.begin_io(slot) }
        }
        if !self.controllers[function].submission[usize::from(queue)].capsules.is_empty() {
            self.controllers.line_up(function, queue);
        }
    }

    /// A command ends with a status. Nothing of it is under way any more.
    #[inline]
    pub(super) fn finish(&mut self, slot: Slot, status: Status) {
        let command = &mut self.slots[slot];
        let (function, queue, cid, dw0) = (command.function, command.queue, command.sqe.cid(), command.dw0);
        if function == OWN {
            return self.finish_own(slot, status);
        }
        command.status = status;
        let mut status = status;
        if !command.orphan {
            if !status.is_success() {
                status = self.log_error(slot, status);
            }
            let posting = Posting::new(queue, cid, status, dw0);
            self.controllers.post(&mut self.cx, function, posting, Some(slot));
        }
        self.release(slot);
    }

    /// A command has failed: the Error Information log tells more (section 5.14.1.1).
    #[cold]
    fn log_error(&mut self, slot: Slot, status: Status) -> Status {
        let status = status.with_more(true);
        let command = &self.slots[slot];
        let c = &mut self.controllers[command.function];
        let cqe = Cqe { status, ..Cqe::default() };
        let addresses_blocks = command.queue > 0
            && matches!(
                command.sqe.opcode(),
                opcode::READ | opcode::WRITE | opcode::COMPARE | opcode::WRITE_ZEROES | opcode::VERIFY
            );
        let lba = if addresses_blocks { command.sqe.slba() } else { 0 };
        let count = self.cx.state.smart.error();
        c.errors.of_command(count, command.queue, &command.sqe, &cqe, lba, c.transport);
        if status.same_code(Status::WRITE_FAULT) || status.same_code(Status::NAMESPACE_WRITE_PROTECTED) {
            self.health.look_for_end_of_life(&mut self.cx, &mut self.controllers, &self.device);
        }
        status
    }

    /// A slot is free again.
    #[inline]
    pub(super) fn release(&mut self, slot: Slot) {
        let command = &self.slots[slot];
        let (function, queue, orphan, vendor) = (command.function, command.queue, command.orphan, command.is_vendor);
        let detached = command.detached;
        if queue > 0 {
            let done = match command.work {
                Work::Read | Work::Compare | Work::Verify => Done::Read(command.bytes),
                Work::Write => Done::Written(command.bytes),
                _ => Done::Other,
            };
            self.cx.state.smart.ended(self.cx.now, done, command.status);
        }
        let blocks_erase = command.blocks_erase;
        self.end_transfer(slot);
        self.slots.release(slot);
        if blocks_erase && self.erases.unblock() {
            self.begin_erase();
        }
        self.slots.vendor_outstanding -= u16::from(vendor);
        let c = &mut self.controllers[function];
        if !detached {
            c.outstanding -= 1;
        }
        if orphan {
            return self.try_quiesce(function);
        }
        let sq = &mut c.submission[usize::from(queue)];
        sq.outstanding -= 1;
        if sq.deletion.is_some() {
            self.try_delete(function, queue);
        } else if sq.leaving {
            self.controllers.try_leave(&mut self.cx, function, queue);
        }
    }
}
