//! Doorbells, and how entries come from submission queues into slots.
//!
//! Controllers whose I/O queues have entries stand in line, and so do those queues at their controller; each in turn
//! has a burst of them read, in one piece, as far as the controller may take slots (`share`). So hosts share the drive,
//! whatever the number of their queues. The admin queues have a line of their own, and a few slots for them alone.

use super::Controllers;
use crate::subsystem::context::Context;
use crate::subsystem::interface::{Output, Transport};
use crate::subsystem::slots::Slots;
use crate::subsystem::tokens::Read;
use tidewater_wire::nvme::register::{Doorbell, ShutdownStatus};
use tidewater_wire::nvme::{Event, Sqe};

/// Entries read at once, at most: a page of them.
pub(crate) const BURST: u32 = 64;

/// The outcome of a queue's turn.
pub(crate) enum Served {
    /// So many entries are being read.
    Entries(u32),
    /// Its capsules, which are here, may take so many slots. They are all of one class.
    Capsules(u16),
}

impl Controllers {
    /// A doorbell is written.
    #[inline]
    pub(crate) fn ring(&mut self, cx: &mut Context, function: u8, at: u32, value: u32) {
        let c = &self[function];
        if c.transport != Transport::Pcie || !c.is_running() {
            return; // Section 3.1.24 leaves it undefined.
        }
        let doorbell = Doorbell::at(at, 0).filter(|bell| usize::from(bell.queue) < c.submission.len());
        match doorbell {
            Some(Doorbell { queue, completion: true }) => self.move_head(cx, function, queue, value),
            Some(Doorbell { queue, completion: false }) => self.move_tail(cx, function, queue, value),
            None => self.wrong_bell(cx, function, u16::MAX, Event::InvalidDoorbellRegister),
        }
    }

    /// A doorbell was rung wrongly.
    #[cold]
    fn wrong_bell(&mut self, cx: &mut Context, function: u8, queue: u16, event: Event) {
        self.log_error(cx, function, queue);
        self.raise(cx, function, event);
    }

    /// A shadow doorbell has changed.
    pub(crate) fn on_shadow(&mut self, cx: &mut Context, function: u8, queue: u16, completion: bool, value: u16) {
        let known = self.get(function).is_some_and(|c| {
            c.is_running() && c.shadow.is_some() && queue > 0 && usize::from(queue) < c.submission.len()
        });
        // A page of shadows has places for queues that the host has not made.
        let Some(c) = self.get(function).filter(|_| known) else { return };
        let number = usize::from(queue);
        if completion && c.completion[number].live {
            self.move_head(cx, function, queue, value.into());
        } else if !completion && c.submission[number].live {
            self.move_tail(cx, function, queue, value.into());
        }
    }

    #[inline]
    fn move_tail(&mut self, cx: &mut Context, function: u8, queue: u16, value: u32) {
        let sq = &mut self[function].submission[usize::from(queue)];
        if !sq.live || sq.deletion.is_some() {
            return self.wrong_bell(cx, function, queue, Event::InvalidDoorbellRegister);
        }
        if value >= sq.entries {
            return self.wrong_bell(cx, function, queue, Event::InvalidDoorbellValue);
        }
        sq.tail = value;
        self.line_up(function, queue);
    }

    #[inline]
    fn move_head(&mut self, cx: &mut Context, function: u8, queue: u16, value: u32) {
        let cq = &mut self[function].completion[usize::from(queue)];
        if !cq.live {
            return self.wrong_bell(cx, function, queue, Event::InvalidDoorbellRegister);
        }
        // The head may only move towards the tail.
        let moves = if value >= cq.head { value - cq.head } else { (cq.entries + value).saturating_sub(cq.head) };
        if value >= cq.entries || moves > cq.unread() {
            return self.wrong_bell(cx, function, queue, Event::InvalidDoorbellValue);
        }
        cq.head = value;
        if !cq.waiting.is_empty() {
            self.post_waiting(cx, function, queue);
        }
    }

    /// A queue that has entries stands in line.
    #[inline]
    pub(crate) fn line_up(&mut self, function: u8, queue: u16) {
        let sq = &mut self[function].submission[usize::from(queue)];
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

    /// Fewer commands of a controller wait for data: its queues that wait for that have their turn again.
    pub(crate) fn unstall(&mut self, function: u8) {
        let line = &mut self.lines[usize::from(function)];
        let submission = &self.all[usize::from(function)].submission;
        for queue in line.stalled.drain(..) {
            line.queues[usize::from(submission[usize::from(queue)].class)].push_back(queue);
        }
        self.list(function);
    }

    /// A queue keeps its turn until fewer commands wait for data.
    pub(crate) fn stall(&mut self, function: u8, queue: u16) {
        self[function].submission[usize::from(queue)].ready = true;
        self.lines[usize::from(function)].stalled.push_back(queue);
    }

    /// A queue that goes has no place in line any more.
    pub(crate) fn leave_line(&mut self, function: u8, queue: u16) {
        let line = &mut self.lines[usize::from(function)];
        line.queues.iter_mut().for_each(|class| class.retain(|&other| other != queue));
        line.stalled.retain(|&other| other != queue);
        self[function].submission[usize::from(queue)].ready = false;
    }

    /// Whether any queue has entries to read.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !(self.admin_line.is_empty() && self.io_line.is_empty())
    }

    /// The next controller whose admin queue has its turn.
    #[inline]
    pub(crate) fn next_admin(&mut self) -> Option<u8> {
        self.admin_line.pop_front()
    }

    /// The next I/O queue that has its turn, and for how many commands at most. A controller that may take no slot
    /// keeps its place.
    #[inline]
    pub(crate) fn next_io(&mut self, slots: &Slots) -> Option<(u8, u16, u32)> {
        loop {
            let place = self.io_line.iter().position(|&function| slots.allowance(function) > 0)?;
            let function = self.io_line.remove(place)?;
            let line = &mut self.lines[usize::from(function)];
            line.is_listed = false;
            // A queue that has gone leaves a controller in line that has no other.
            if let Some((queue, most)) = line.pop(self.all[usize::from(function)].burst) {
                return Some((function, queue, most));
            }
        }
    }

    /// An I/O queue has had its turn, and `taken` commands were taken from it.
    #[inline]
    pub(crate) fn end_turn(&mut self, function: u8, queue: u16, taken: u32) {
        if self[function].submission[usize::from(queue)].class > 0 {
            self.lines[usize::from(function)].turns.took(taken);
        }
        self.list(function);
    }

    /// A queue has its turn, for `most` commands.
    #[inline]
    pub(crate) fn serve(&mut self, cx: &mut Context, slots: &mut Slots, function: u8, queue: u16, most: u32) -> Served {
        let free = if queue == 0 { slots.available() } else { slots.allowance(function) };
        let c = &mut self.all[usize::from(function)];
        let runs = c.is_running() && c.csts.shutdown == ShutdownStatus::None;
        let fabrics = c.transport == Transport::Fabrics;
        // A queue that stands alone in line has no other to give way to.
        let alone = self.io_line.is_empty() && self.lines[usize::from(function)].is_empty();
        let burst = if alone { BURST } else { BURST.min(most) };
        let sq = &mut c.submission[usize::from(queue)];
        sq.ready = false;
        if !runs || !sq.live || sq.leaving || sq.deletion.is_some() || sq.fetching > 0 {
            return Served::Entries(0);
        }
        if fabrics {
            return Served::Capsules(free);
        }
        // A host that takes no completions gets no more of them: the queue comes back when those that wait have room.
        if !c.completion[usize::from(sq.completion_queue)].waiting.is_empty() {
            return Served::Entries(0);
        }
        let until = if sq.tail < sq.head { sq.entries } else { sq.tail };
        let count = (until - sq.head).min(burst).min(free.into());
        if count == 0 {
            return Served::Entries(0);
        }
        sq.fetching = count as u16;
        let (address, len) = (sq.base + u64::from(sq.head) * Sqe::SIZE as u64, count * Sqe::SIZE as u32);
        c.outstanding += 1;
        slots.reserve(function, queue, count as u16);
        let token = Read::Queue { function, queue }.token();
        cx.say(Output::DmaRead { token, function, address, len });
        Served::Entries(count)
    }

    /// A queue stands in line again if it has more, else the host learns that it must ring (Doorbell Buffer Config).
    #[inline]
    pub(crate) fn after_entries(&mut self, cx: &mut Context, function: u8, queue: u16) {
        let c = &mut self[function];
        let sq = &mut c.submission[usize::from(queue)];
        if sq.waiting() > 0 {
            return self.line_up(function, queue);
        }
        if let Some((_, events)) = c.shadow.filter(|_| queue != 0 && sq.live) {
            let (address, value) = (events.wrapping_add(8 * u64::from(queue)), sq.tail);
            cx.say(Output::EventIndex { function, address, value });
        }
    }
}
