//! I/O queues come and go (NVM Express 1.4, sections 5.3 to 5.6).

use super::Controllers;
use crate::subsystem::context::Context;
use crate::subsystem::interface::{Output, Slot, Transport};
use crate::subsystem::options::Region;
use crate::subsystem::queues::{CompletionQueue, SubmissionQueue};
use crate::subsystem::timers::Timer;
use tidewater_wire::nvme::{Cqe, CreateCq, CreateSq, Sqe, Status};

impl Controllers {
    /// Whether a queue of this size may lie there.
    fn check_queue_memory(&self, function: u8, address: u64, entries: u32, entry: usize) -> Result<(), Status> {
        let c = &self[function];
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
        let inside = matches!(c.region(address, bytes as u32), Region::Cmb { .. });
        if c.touches_cmb(address, bytes) && !inside {
            return Err(Status::INVALID_USE_OF_CMB);
        }
        Ok(())
    }

    pub(crate) fn create_completion_queue(&mut self, function: u8, create: &CreateCq) -> Result<(), Status> {
        let c = &self[function];
        let number = usize::from(create.queue);
        if create.queue > c.queues_granted || c.completion[number].live {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if c.cc.completion_entry_shift() != Cqe::SIZE.trailing_zeros() as u8 {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        self.check_queue_memory(function, create.address, create.entries, Cqe::SIZE)?;
        let c = &mut self[function];
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
        Ok(())
    }

    pub(crate) fn create_submission_queue(&mut self, function: u8, create: &CreateSq) -> Result<(), Status> {
        let c = &self[function];
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
        let c = &mut self[function];
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
        Ok(())
    }

    pub(crate) fn delete_completion_queue(&mut self, function: u8, queue: u16) -> Result<(), Status> {
        let c = &mut self[function];
        let Some(cq) = c.completion.get_mut(usize::from(queue)).filter(|cq| cq.live) else {
            return Err(Status::INVALID_QUEUE_ID);
        };
        if cq.users > 0 {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        *cq = CompletionQueue::default();
        Ok(())
    }

    /// A queue is to be deleted. Unread entries are dropped, and commands that are worked on end first (section 5.6).
    pub(crate) fn begin_deletion(&mut self, function: u8, queue: u16, slot: Slot) -> Result<(), Status> {
        let submission = self[function].submission.get_mut(usize::from(queue));
        let sq = submission.filter(|sq| sq.live && sq.deletion.is_none()).ok_or(Status::INVALID_QUEUE_ID)?;
        sq.deletion = Some(slot);
        Ok(())
    }

    /// A queue that is being deleted goes when nothing of it is under way. Returns the command that waited for that.
    pub(crate) fn try_delete(&mut self, function: u8, queue: u16) -> Option<Slot> {
        let c = &mut self[function];
        let sq = &mut c.submission[usize::from(queue)];
        let slot = sq.deletion.filter(|_| sq.outstanding == 0 && sq.fetching == 0)?;
        let (completion, ready) = (usize::from(sq.completion_queue), sq.ready);
        *sq = SubmissionQueue { ready, ..SubmissionQueue::default() };
        c.completion[completion].users -= 1;
        Some(slot)
    }

    /// A queue of a fabrics controller connects.
    pub(crate) fn connect_queue(&mut self, function: u8, queue: u16, entries: u16) {
        let Some(c) = self.get_mut(function) else { return };
        let known = c.live && c.transport == Transport::Fabrics && queue > 0;
        if let Some(sq) = c.submission.get_mut(usize::from(queue)).filter(|sq| known && !sq.live) {
            let ready = sq.ready;
            let entries = u32::from(entries.max(2));
            *sq = SubmissionQueue { live: true, entries, ready, ..SubmissionQueue::default() };
        }
    }

    /// The connection of a fabrics controller's I/O queue has gone. False: there was none.
    pub(crate) fn disconnect_queue(&mut self, cx: &mut Context, function: u8, queue: u16) -> bool {
        let Some(c) = self.get_mut(function) else { return false };
        let known = c.live && c.transport == Transport::Fabrics && !c.leaving && queue > 0;
        let sq = c.submission.get_mut(usize::from(queue)).filter(|sq| known && sq.live && !sq.leaving);
        let Some(sq) = sq else { return false };
        sq.leaving = true;
        sq.capsules.clear();
        self.leave_line(function, queue);
        // A completion that is held back belongs to the queue as it was.
        cx.timers.cancel(|timer| Timer::is_late(timer, function, queue));
        true
    }

    /// A queue whose connection has gone may be connected again when nothing of it is under way.
    pub(crate) fn try_leave(&mut self, cx: &mut Context, function: u8, queue: u16) {
        let sq = &mut self[function].submission[usize::from(queue)];
        if sq.leaving && sq.outstanding == 0 {
            *sq = SubmissionQueue { ready: sq.ready, ..SubmissionQueue::default() };
            cx.say(Output::QueueGone { function, queue });
        }
    }
}
