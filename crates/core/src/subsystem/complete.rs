//! How commands end: completion queue entries, interrupts (NVM Express 1.4, sections 4.6 and 7.5), and faults on their
//! way.

use super::queues::Posting;
use super::slots::{OWN, Work};
use super::smart::Done;
use super::timers::Timer;
use super::{Output, Slot, Subsystem, Transport};
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Cqe, Status, opcode};

impl<M: Medium> Subsystem<M> {
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
            self.post(function, queue, cid, status, dw0, Some(slot));
        }
        self.release(slot);
    }

    /// A command has failed: the Error Information log tells more (section 5.14.1.1).
    #[cold]
    fn log_error(&mut self, slot: Slot, status: Status) -> Status {
        let status = status.with_more(true);
        let command = &self.slots[slot];
        let c = &mut self.controllers[usize::from(command.function)];
        let cqe = Cqe { status, ..Cqe::default() };
        let addresses_blocks = command.queue > 0
            && matches!(
                command.sqe.opcode(),
                opcode::READ | opcode::WRITE | opcode::COMPARE | opcode::WRITE_ZEROES | opcode::VERIFY
            );
        let lba = if addresses_blocks { command.sqe.slba() } else { 0 };
        let count = self.state.smart.error();
        c.errors.of_command(count, command.queue, &command.sqe, &cqe, lba, c.transport);
        if status.same_code(Status::WRITE_FAULT) || status.same_code(Status::NAMESPACE_WRITE_PROTECTED) {
            self.look_for_end_of_life();
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
            self.state.smart.ended(self.now, done, command.status);
        }
        let blocks_erase = command.blocks_erase;
        self.end_transfer(slot);
        self.slots.release(slot);
        if blocks_erase {
            self.erase_blockers -= 1;
            if self.erase_blockers == 0 {
                self.begin_erase();
            }
        }
        self.vendor_outstanding -= u16::from(vendor);
        let c = &mut self.controllers[usize::from(function)];
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
            self.try_leave(function, queue);
        }
    }

    /// An entry for a completion queue. Faults may hold it back.
    #[inline]
    pub(super) fn post(&mut self, function: u8, queue: u16, cid: u16, status: Status, dw0: u32, slot: Option<Slot>) {
        let posting = Posting { queue, cid, status: status.bits(), dw0 };
        if self.faults.any_on_completions() && queue != 0 {
            return self.post_through_faults(function, posting, slot);
        }
        self.post_now(function, posting, slot);
    }

    #[inline]
    pub(super) fn post_now(&mut self, function: u8, posting: Posting, slot: Option<Slot>) {
        let c = &mut self.controllers[usize::from(function)];
        let sq = &c.submission[usize::from(posting.queue)];
        if c.transport == Transport::Fabrics {
            let (queue, cqe) = (posting.queue, posting.entry(sq.head));
            self.outputs.push_back(Output::Complete { function, queue, cqe, address: None, slot });
            return;
        }
        let number = sq.completion_queue;
        let cq = &mut c.completion[usize::from(number)];
        if cq.is_full() || !cq.waiting.is_empty() {
            return self.hold_back(function, number, posting);
        }
        self.enter(function, number, posting, slot);
    }

    /// An entry goes to a completion queue, which has room.
    #[inline]
    fn enter(&mut self, function: u8, number: u16, posting: Posting, slot: Option<Slot>) {
        let c = &mut self.controllers[usize::from(function)];
        let queue = posting.queue;
        let mut cqe = posting.entry(c.submission[usize::from(queue)].head);
        let cq = &mut c.completion[usize::from(number)];
        let (address, phase) = cq.push();
        cqe.phase = phase;
        self.outputs.push_back(Output::Complete { function, queue, cqe, address: Some(address), slot });
        if cq.interrupts {
            self.signal(function, number);
        }
    }

    /// A completion waits until the host makes room. The slot does not.
    #[cold]
    fn hold_back(&mut self, function: u8, number: u16, posting: Posting) {
        let c = &mut self.controllers[usize::from(function)];
        let cq = &mut c.completion[usize::from(number)];
        cq.waiting.push_back(posting);
        let head = cq.head;
        if let Some((_, events)) = c.shadow.filter(|_| number != 0) {
            // From now on the host is to ring when it makes room.
            let address = events.wrapping_add(4 * (2 * u64::from(number) + 1));
            self.outputs.push_back(Output::EventIndex { function, address, value: head });
        }
    }

    /// The host has made room.
    pub(super) fn post_waiting(&mut self, function: u8, number: u16) {
        loop {
            let cq = &mut self.controllers[usize::from(function)].completion[usize::from(number)];
            let Some(&posting) = cq.waiting.front() else { break };
            if cq.is_full() {
                return;
            }
            cq.waiting.pop_front();
            self.enter(function, number, posting, None);
        }
        // Entries that were not read because of them are read now.
        for queue in 0..self.controllers[usize::from(function)].submission.len() as u16 {
            let sq = &self.controllers[usize::from(function)].submission[usize::from(queue)];
            if sq.live && sq.completion_queue == number && sq.deletion.is_none() && sq.waiting() > 0 {
                self.line_up(function, queue);
            }
        }
    }

    /// An entry is there: the host is interrupted now, or, of an I/O queue, after more of them or some time (section
    /// 5.21.1.8).
    #[inline]
    fn signal(&mut self, function: u8, number: u16) {
        let c = &mut self.controllers[usize::from(function)];
        let cq = &mut c.completion[usize::from(number)];
        let vector = cq.vector;
        if number != 0
            && c.coalesce_time > Duration::ZERO
            && c.coalesce_count > 0
            && !self.state.features.is_uncoalesced(function, vector)
        {
            cq.coalesced += 1;
            if cq.coalesced < c.coalesce_count {
                if !cq.timer {
                    cq.timer = true;
                    let (at, generation) = (self.now + c.coalesce_time, c.generation);
                    self.timers.push(at, Timer::Coalesced { function, queue: number, generation });
                }
                return;
            }
        }
        cq.coalesced = 0;
        self.interrupt(function, vector);
    }

    /// An interrupt, once everything that stands in `outputs` has been said.
    #[inline]
    pub(super) fn interrupt(&mut self, function: u8, vector: u16) {
        let c = &mut self.controllers[usize::from(function)];
        if vector < 32 && c.mask >> vector & 1 != 0 {
            c.masked |= 1 << vector;
            return;
        }
        let pending = &mut c.interrupting[usize::from(vector)];
        if !*pending {
            *pending = true;
            self.interrupts.push_back((function, vector));
        }
    }

    /// The next interrupt; all entries that it is about were said before.
    #[inline]
    pub(super) fn next_interrupt(&mut self) -> Option<Output> {
        let (function, vector) = self.interrupts.pop_front()?;
        self.controllers[usize::from(function)].interrupting[usize::from(vector)] = false;
        Some(Output::Interrupt { function, vector })
    }

    /// The host clears bits of the interrupt mask (INTMC).
    pub(super) fn unmask(&mut self, function: u8, bits: u32) {
        let c = &mut self.controllers[usize::from(function)];
        c.mask &= !bits;
        let now = c.masked & bits;
        c.masked &= !bits;
        for vector in (0..32).filter(|vector| now >> vector & 1 != 0) {
            self.interrupt(function, vector);
        }
    }

    /// Completions have waited for an interrupt long enough.
    pub(super) fn on_coalesced(&mut self, function: u8, number: u16) {
        let cq = &mut self.controllers[usize::from(function)].completion[usize::from(number)];
        cq.timer = false;
        if cq.live && std::mem::take(&mut cq.coalesced) > 0 {
            let vector = cq.vector;
            self.interrupt(function, vector);
        }
    }
}
