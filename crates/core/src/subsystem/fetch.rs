//! Doorbells, and how entries come from submission queues into slots.
//!
//! Controllers whose I/O queues have entries stand in line, and so do those queues at their controller; each in turn
//! has a burst of them read, in one piece, as far as the controller may take slots ([`super::share`]). So hosts share
//! the drive, whatever the number of their queues. The admin queues have a line of their own, and a few slots for them
//! alone.

use super::pointers::Read;
use super::share::is_transfer;
use super::{Output, Slot, Subsystem, Transport};
use crate::host::Turns;
use std::collections::VecDeque;
use tidewater_nand::Medium;
use tidewater_wire::nvme::register::{Doorbell, ShutdownStatus};
use tidewater_wire::nvme::{Event, Sqe};

/// Entries read at once, at most: a page of them.
const BURST: u32 = 64;

/// The I/O queues of a controller that have entries to read.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// By class: urgent, high, medium and low. All are urgent under plain round robin.
    queues: [VecDeque<u16>; 4],
    pub(super) turns: Turns,
    /// The first command of each waits until fewer commands wait for data from the host.
    stalled: VecDeque<u16>,
    /// The controller stands in line.
    is_listed: bool,
}

impl Line {
    pub(super) fn new(queues: u16) -> Line {
        let room = || VecDeque::with_capacity(queues.into());
        Line { queues: std::array::from_fn(|_| room()), turns: Turns::new([1; 3]), stalled: room(), is_listed: false }
    }

    /// Whether no queue stands in it.
    #[inline]
    fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// The next queue by arbitration, and how many commands it may have at most: the urgent ones first, `burst` of each
    /// in turn, then the other classes by their weights (section 4.13.2), and within a class `burst` of each queue.
    #[inline]
    fn pop(&mut self, burst: u32) -> Option<(u16, u32)> {
        if let Some(queue) = self.queues[0].pop_front() {
            return Some((queue, burst));
        }
        let [_, classes @ ..] = &mut self.queues;
        let (class, most) = self.turns.next(std::array::from_fn(|class| !classes[class].is_empty()))?;
        let queue = classes[class].pop_front()?;
        // What a queue that is alone in its class does not take now would be lost: its next entries take a while to
        // come.
        Some((queue, if classes[class].is_empty() { most } else { most.min(burst) }))
    }
}

impl<M: Medium> Subsystem<M> {
    /// A doorbell is written.
    #[inline]
    pub(super) fn ring(&mut self, function: u8, at: u32, value: u32) {
        let c = &self.controllers[usize::from(function)];
        if c.transport != Transport::Pcie || !c.is_running() {
            return; // Section 3.1.24 leaves it undefined.
        }
        let doorbell = Doorbell::at(at, 0).filter(|bell| usize::from(bell.queue) < c.submission.len());
        match doorbell {
            Some(Doorbell { queue, completion: true }) => self.move_head(function, queue, value),
            Some(Doorbell { queue, completion: false }) => self.move_tail(function, queue, value),
            None => self.wrong_bell(function, u16::MAX, Event::InvalidDoorbellRegister),
        }
    }

    /// A doorbell was rung wrongly.
    #[cold]
    fn wrong_bell(&mut self, function: u8, queue: u16, event: Event) {
        let count = self.state.smart.error();
        let c = &mut self.controllers[usize::from(function)];
        c.errors.of_queue(count, queue, c.transport);
        self.raise(function, event);
    }

    /// A shadow doorbell has changed.
    pub(super) fn on_shadow(&mut self, function: u8, queue: u16, completion: bool, value: u16) {
        let known = self.controllers.get(usize::from(function)).is_some_and(|c| {
            c.is_running() && c.shadow.is_some() && queue > 0 && usize::from(queue) < c.submission.len()
        });
        // A page of shadows has places for queues that the host has not made.
        let Some(c) = self.controllers.get(usize::from(function)).filter(|_| known) else { return };
        let number = usize::from(queue);
        if completion && c.completion[number].live {
            self.move_head(function, queue, value.into());
        } else if !completion && c.submission[number].live {
            self.move_tail(function, queue, value.into());
        }
    }

    #[inline]
    fn move_tail(&mut self, function: u8, queue: u16, value: u32) {
        let sq = &mut self.controllers[usize::from(function)].submission[usize::from(queue)];
        if !sq.live || sq.deletion.is_some() {
            return self.wrong_bell(function, queue, Event::InvalidDoorbellRegister);
        }
        if value >= sq.entries {
            return self.wrong_bell(function, queue, Event::InvalidDoorbellValue);
        }
        sq.tail = value;
        self.line_up(function, queue);
    }

    #[inline]
    fn move_head(&mut self, function: u8, queue: u16, value: u32) {
        let cq = &mut self.controllers[usize::from(function)].completion[usize::from(queue)];
        if !cq.live {
            return self.wrong_bell(function, queue, Event::InvalidDoorbellRegister);
        }
        // The head may only move towards the tail.
        let moves = if value >= cq.head { value - cq.head } else { (cq.entries + value).saturating_sub(cq.head) };
        if value >= cq.entries || moves > cq.unread() {
            return self.wrong_bell(function, queue, Event::InvalidDoorbellValue);
        }
        cq.head = value;
        if !cq.waiting.is_empty() {
            self.post_waiting(function, queue);
        }
    }

    /// A queue that has entries stands in line.
    #[inline]
    pub(super) fn line_up(&mut self, function: u8, queue: u16) {
        let sq = &mut self.controllers[usize::from(function)].submission[usize::from(queue)];
        if !sq.ready && sq.fetching == 0 {
            sq.ready = true;
            if queue == 0 {
                return self.admin_line.push_back(function);
            }
            let class = usize::from(sq.class);
            self.lines[usize::from(function)].queues[class].push_back(queue);
            self.list(function);
        }
    }

    /// A controller whose queues have entries stands in line.
    #[inline]
    fn list(&mut self, function: u8) {
        let line = &mut self.lines[usize::from(function)];
        if !line.is_listed && !line.is_empty() {
            line.is_listed = true;
            self.io_line.push_back(function);
        }
    }

    /// A command has its data, or ends without: queues of its controller that wait for that have their turn again.
    #[inline]
    pub(super) fn end_transfer(&mut self, slot: Slot) {
        if self.slots.end_transfer(slot) {
            let function = self.slots[slot].function;
            let line = &mut self.lines[usize::from(function)];
            let submission = &self.controllers[usize::from(function)].submission;
            for queue in line.stalled.drain(..) {
                line.queues[usize::from(submission[usize::from(queue)].class)].push_back(queue);
            }
            self.list(function);
        }
    }

    /// A queue that goes has no place in line any more.
    pub(super) fn leave_line(&mut self, function: u8, queue: u16) {
        let line = &mut self.lines[usize::from(function)];
        line.queues.iter_mut().for_each(|class| class.retain(|&other| other != queue));
        line.stalled.retain(|&other| other != queue);
        self.controllers[usize::from(function)].submission[usize::from(queue)].ready = false;
    }

    /// Reads entries, as far as there are slots for them.
    #[inline]
    pub(super) fn fetch(&mut self) {
        if self.admin_line.is_empty() && self.io_line.is_empty() {
            return;
        }
        while self.slots.available() > 0
            && let Some(function) = self.admin_line.pop_front()
        {
            self.serve(function, 0, self.slots.available(), u32::MAX);
        }
        // A controller that may take no slot keeps its place.
        while let Some(place) = self.io_line.iter().position(|&function| self.slots.allowance(function) > 0)
            && let Some(function) = self.io_line.remove(place)
        {
            let line = &mut self.lines[usize::from(function)];
            line.is_listed = false;
            // A queue that has gone leaves a controller in line that has no other.
            let c = &self.controllers[usize::from(function)];
            let Some((queue, most)) = line.pop(c.burst) else { continue };
            let is_weighted = c.submission[usize::from(queue)].class > 0;
            let taken = self.serve(function, queue, self.slots.allowance(function), most);
            if is_weighted {
                self.lines[usize::from(function)].turns.took(taken);
            }
            self.list(function);
        }
    }

    /// A queue has its turn, for `most` commands. Returns how many are taken.
    #[inline]
    fn serve(&mut self, function: u8, queue: u16, slots: u16, most: u32) -> u32 {
        let c = &mut self.controllers[usize::from(function)];
        let runs = c.is_running() && c.csts.shutdown == ShutdownStatus::None;
        let fabrics = c.transport == Transport::Fabrics;
        // A queue that stands alone in line has no other to give way to.
        let alone = self.io_line.is_empty() && self.lines[usize::from(function)].is_empty();
        let burst = if alone { BURST } else { BURST.min(most) };
        let sq = &mut c.submission[usize::from(queue)];
        sq.ready = false;
        if !runs || !sq.live || sq.leaving || sq.deletion.is_some() || sq.fetching > 0 {
            return 0;
        }
        if fabrics {
            self.serve_capsules(function, queue, slots);
            return 0; // They are all of one class.
        }
        // A host that takes no completions gets no more of them: the queue comes back when those that wait have room.
        if !c.completion[usize::from(sq.completion_queue)].waiting.is_empty() {
            return 0;
        }
        let until = if sq.tail < sq.head { sq.entries } else { sq.tail };
        let count = (until - sq.head).min(burst).min(slots.into());
        if count == 0 {
            return 0;
        }
        sq.fetching = count as u16;
        let (address, len) = (sq.base + u64::from(sq.head) * Sqe::SIZE as u64, count * Sqe::SIZE as u32);
        c.outstanding += 1;
        self.slots.reserve(function, queue, count as u16);
        let token = Read::Queue { function, queue }.token();
        self.outputs.push_back(Output::DmaRead { token, function, address, len });
        count
    }

    /// Entries have come. They are looked at once: what the host does to them from now on changes nothing.
    #[inline]
    pub(super) fn on_entries(&mut self, function: u8, queue: u16, bytes: Option<&[u8]>) {
        let c = &mut self.controllers[usize::from(function)];
        let sq = &mut c.submission[usize::from(queue)];
        let count = std::mem::take(&mut sq.fetching);
        assert!(count > 0, "queue {queue} of controller {function}: no entries were asked for");
        c.outstanding -= 1;
        self.slots.give_back(function, queue, count);
        let c = &mut self.controllers[usize::from(function)];
        let runs = c.is_running();
        let sq = &mut c.submission[usize::from(queue)];
        if !runs || !sq.live {
            return self.try_quiesce(function); // A reset came before them.
        }
        let Some(bytes) = bytes else { return self.fail(function) };
        assert_eq!(bytes.len(), usize::from(count) * Sqe::SIZE, "as many bytes as were asked for");
        sq.outstanding += u32::from(count);
        c.outstanding += u32::from(count);
        for entry in bytes.as_chunks::<{ Sqe::SIZE }>().0 {
            let sqe = Sqe::from_bytes(entry);
            let sq = &mut self.controllers[usize::from(function)].submission[usize::from(queue)];
            sq.advance(1);
            let slot = self.slots.take(function, queue, &sqe, self.now);
            if queue == 0 { self.begin_admin(slot) } else { self.begin_io(slot) }
        }
        self.after_entries(function, queue);
    }

    /// A queue stands in line again if it has more, else the host learns that it must ring (Doorbell Buffer Config).
    #[inline]
    fn after_entries(&mut self, function: u8, queue: u16) {
        let c = &mut self.controllers[usize::from(function)];
        let sq = &mut c.submission[usize::from(queue)];
        if sq.deletion.is_some() {
            return self.try_delete(function, queue);
        }
        if sq.waiting() > 0 {
            return self.line_up(function, queue);
        }
        if let Some((_, events)) = c.shadow.filter(|_| queue != 0 && sq.live) {
            let (address, value) = (events.wrapping_add(8 * u64::from(queue)), sq.tail);
            self.outputs.push_back(Output::EventIndex { function, address, value });
        }
    }

    /// A capsule has come.
    pub(super) fn on_capsule(&mut self, function: u8, queue: u16, sqe: Sqe) {
        let Some(c) = self.controllers.get_mut(usize::from(function)) else { return };
        c.heard_at = self.now;
        let runs = c.is_running();
        let live = c.live && c.transport == Transport::Fabrics && !c.leaving;
        let Some(sq) = c.submission.get_mut(usize::from(queue)).filter(|sq| live && sq.live && !sq.leaving) else {
            return;
        };
        if !runs {
            return self.refuse(function, queue, sqe.cid());
        }
        if sq.capsules.len() >= sq.entries as usize {
            return self.fail(function); // More commands than the queue has entries.
        }
        sq.capsules.push_back(sqe);
        self.line_up(function, queue);
    }

    fn serve_capsules(&mut self, function: u8, queue: u16, slots: u16) {
        for _ in 0..BURST.min(slots.into()) {
            let c = &mut self.controllers[usize::from(function)];
            let sq = &mut c.submission[usize::from(queue)];
            let Some(sqe) = sq.capsules.front().copied() else { return };
            let is_transfer = queue > 0 && is_transfer(&sqe);
            if is_transfer && !self.slots.admits_transfer(function) {
                sq.ready = true;
                return self.lines[usize::from(function)].stalled.push_back(queue);
            }
            sq.capsules.pop_front();
            sq.advance(1);
            sq.outstanding += 1;
            c.outstanding += 1;
            let slot = self.slots.take(function, queue, &sqe, self.now);
            if is_transfer {
                self.slots.begin_transfer(slot);
            }
            if queue == 0 { self.begin_admin(slot) } else { self.begin_io(slot) }
        }
        if !self.controllers[usize::from(function)].submission[usize::from(queue)].capsules.is_empty() {
            self.line_up(function, queue);
        }
    }
}
