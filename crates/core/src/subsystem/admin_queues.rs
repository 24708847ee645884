//! I/O queues come and go (NVM Express 1.4, sections 5.3 to 5.6).

use super::admin::{Next, Outcome};
use super::queues::{CompletionQueue, SubmissionQueue};
use super::slots::Stage;
use super::{Output, Slot, Subsystem, Transport};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Cqe, CreateCq, CreateSq, Sqe, Status};

impl<M: Medium> Subsystem<M> {
    /// Whether a queue of this size may lie there.
    fn check_queue_memory(&self, function: u8, address: u64, entries: u32, entry: usize) -> Result<(), Status> {
        let c = &self.controllers[usize::from(function)];
        if entries > c.fixed.queue_entries {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        if address & 0xFFF != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let bytes = u64::from(entries) * entry as u64;
        if address.checked_add(bytes).is_none() {
            return Err(Status::INVALID_FIELD);
        }
        // All of it in the CMB, or nothing.
        let inside = matches!(c.region(address, bytes as u32), super::Region::Cmb { .. });
        if c.touches_cmb(address, bytes) && !inside {
            return Err(Status::INVALID_USE_OF_CMB);
        }
        Ok(())
    }

    pub(super) fn create_completion_queue(&mut self, function: u8, create: &CreateCq) -> Outcome {
        let c = &self.controllers[usize::from(function)];
        let number = usize::from(create.queue);
        if create.queue > c.queues_granted || c.completion[number].live {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if c.cc.completion_entry_shift() != Cqe::SIZE.trailing_zeros() as u8 {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        self.check_queue_memory(function, create.address, create.entries, Cqe::SIZE)?;
        let c = &mut self.controllers[usize::from(function)];
        if create.vector.is_some_and(|vector| vector >= c.fixed.vectors) {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        c.completion[number] = CompletionQueue {
            live: true,
            base: create.address,
            entries: create.entries,
            phase: true,
            vector: create.vector.unwrap_or(0),
            interrupts: create.vector.is_some(),
            ..CompletionQueue::default()
        };
        Ok(Next::Done(0))
    }

    pub(super) fn create_submission_queue(&mut self, function: u8, create: &CreateSq) -> Outcome {
        let c = &self.controllers[usize::from(function)];
        let (number, completion) = (usize::from(create.queue), usize::from(create.completion_queue));
        let is_in_range = (1..=c.queues_granted).contains(&create.completion_queue);
        if create.queue > c.queues_granted || c.submission[number].live || !is_in_range {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if !c.completion[completion].live {
            return Err(Status::COMPLETION_QUEUE_INVALID);
        }
        if c.cc.submission_entry_shift() != Sqe::SIZE.trailing_zeros() as u8 {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        self.check_queue_memory(function, create.address, create.entries, Sqe::SIZE)?;
        let c = &mut self.controllers[usize::from(function)];
        c.completion[completion].users += 1;
        // A place in line that an earlier queue of this number has left is still to come.
        let ready = c.submission[number].ready;
        c.submission[number] = SubmissionQueue {
            live: true,
            base: create.address,
            entries: create.entries,
            completion_queue: create.completion_queue,
            class: if c.cc.arbitration() == 0 { 0 } else { create.priority as u8 },
            ready,
            ..SubmissionQueue::default()
        };
        Ok(Next::Done(0))
    }

    pub(super) fn delete_completion_queue(&mut self, function: u8, queue: u16) -> Outcome {
        let c = &mut self.controllers[usize::from(function)];
        let Some(cq) = c.completion.get_mut(usize::from(queue)).filter(|cq| cq.live) else {
            return Err(Status::INVALID_QUEUE_ID);
        };
        if cq.users > 0 {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        *cq = CompletionQueue::default();
        Ok(Next::Done(0))
    }

    /// Unread entries are dropped; commands that are worked on end first (section 5.6), and those that
    /// may wait for long are aborted.
    pub(super) fn delete_submission_queue(&mut self, slot: Slot, queue: u16) -> Outcome {
        let function = self.slots[slot].function;
        let c = &mut self.controllers[usize::from(function)];
        let known = c.submission.get_mut(usize::from(queue)).filter(|sq| sq.live && sq.deletion.is_none());
        let Some(sq) = known else { return Err(Status::INVALID_QUEUE_ID) };
        sq.deletion = Some(slot);
        self.slots[slot].stage = Stage::Parked;
        self.abort_waiting(function, queue);
        // The last of them may have ended it.
        self.try_delete(function, queue);
        Ok(Next::Later)
    }

    /// A queue goes: commands of it that may wait for long are aborted; all others end soon by themselves.
    fn abort_waiting(&mut self, function: u8, queue: u16) {
        for waiting in (0..self.slots.hosts()).map(Slot) {
            let command = &self.slots[waiting];
            if command.orphan || command.function != function || command.queue != queue {
                continue;
            }
            match command.stage {
                Stage::Vendor if self.device.cancel(waiting.0) => self.finish(waiting, Status::ABORTED_SQ_DELETION),
                // The entry whose blocks it wants may stay pinned for ever. It ends by itself, with this status.
                Stage::Device if self.device.cancel_held(waiting.0) => {
                    self.slots[waiting].status = Status::ABORTED_SQ_DELETION;
                }
                _ => {}
            }
        }
    }

    /// The connection of a fabrics controller's I/O queue has gone.
    pub(super) fn disconnect_queue(&mut self, function: u8, queue: u16) {
        let Some(c) = self.controllers.get_mut(usize::from(function)) else { return };
        let known = c.live && c.transport == Transport::Fabrics && !c.leaving && queue > 0;
        let sq = c.submission.get_mut(usize::from(queue)).filter(|sq| known && sq.live && !sq.leaving);
        let Some(sq) = sq else { return };
        sq.leaving = true;
        sq.capsules.clear();
        self.leave_line(function, queue);
        // A completion that is held back belongs to the queue as it was.
        self.timers.cancel(|timer| timer.is_late(function, queue));
        self.abort_waiting(function, queue);
        self.try_leave(function, queue);
    }

    /// A queue whose connection has gone may be connected again when nothing of it is under way.
    pub(super) fn try_leave(&mut self, function: u8, queue: u16) {
        let sq = &mut self.controllers[usize::from(function)].submission[usize::from(queue)];
        if sq.leaving && sq.outstanding == 0 {
            *sq = SubmissionQueue { ready: sq.ready, ..SubmissionQueue::default() };
            self.outputs.push_back(Output::QueueGone { function, queue });
        }
    }

    /// A queue that is being deleted goes when nothing of it is under way.
    pub(super) fn try_delete(&mut self, function: u8, queue: u16) {
        let c = &mut self.controllers[usize::from(function)];
        let sq = &mut c.submission[usize::from(queue)];
        let Some(slot) = sq.deletion.filter(|_| sq.outstanding == 0 && sq.fetching == 0) else { return };
        let (completion, ready) = (usize::from(sq.completion_queue), sq.ready);
        *sq = SubmissionQueue { ready, ..SubmissionQueue::default() };
        c.completion[completion].users -= 1;
        self.finish(slot, Status::SUCCESS);
    }
}
