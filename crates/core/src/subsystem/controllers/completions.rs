//! How commands end: completion queue entries, interrupts (NVM Express 1.4, sections 4.6 and 7.5), and faults on their
//! way.

use super::Controllers;
use crate::subsystem::context::Context;
use crate::subsystem::faults::OnCompletion;
use crate::subsystem::interface::{Output, Slot, Transport};
use crate::subsystem::queues::Posting;
use crate::subsystem::timers::Timer;
use tidewater_base::Duration;

impl Controllers {
    /// An entry for a completion queue. Faults may hold it back.
    #[inline]
    pub(crate) fn post(&mut self, cx: &mut Context, function: u8, posting: Posting, slot: Option<Slot>) {
        if !self.faults.on_completions.is_empty() && posting.queue != 0 {
            return self.post_through_faults(cx, function, posting, slot);
        }
        self.post_now(cx, function, posting, slot);
    }

    #[inline]
    pub(crate) fn post_now(&mut self, cx: &mut Context, function: u8, posting: Posting, slot: Option<Slot>) {
        let c = &mut self[function];
        let sq = &c.submission[usize::from(posting.queue)];
        if c.transport == Transport::Fabrics {
            let (queue, cqe) = (posting.queue, posting.entry(sq.head));
            cx.say(Output::Complete { function, queue, cqe, address: None, slot });
            return;
        }
        let number = sq.completion_queue;
        let cq = &mut c.completion[usize::from(number)];
        if cq.is_full() || !cq.waiting.is_empty() {
            return self.hold_back(cx, function, number, posting);
        }
        self.enter(cx, function, number, posting, slot);
    }

    /// An entry goes to a completion queue, which has room.
    #[inline]
    fn enter(&mut self, cx: &mut Context, function: u8, number: u16, posting: Posting, slot: Option<Slot>) {
        let c = &mut self[function];
        let queue = posting.queue;
        let mut cqe = posting.entry(c.submission[usize::from(queue)].head);
        let cq = &mut c.completion[usize::from(number)];
        let (address, phase) = cq.push();
        cqe.phase = phase;
        cx.say(Output::Complete { function, queue, cqe, address: Some(address), slot });
        if cq.interrupts {
            self.signal(cx, function, number);
        }
    }

    /// A completion waits until the host makes room. The slot does not.
    #[cold]
    fn hold_back(&mut self, cx: &mut Context, function: u8, number: u16, posting: Posting) {
        let c = &mut self[function];
        let cq = &mut c.completion[usize::from(number)];
        cq.waiting.push_back(posting);
        let head = cq.head;
        if let Some((_, events)) = c.shadow.filter(|_| number != 0) {
            // From now on the host is to ring when it makes room.
            let address = events.wrapping_add(4 * (2 * u64::from(number) + 1));
            cx.say(Output::EventIndex { function, address, value: head });
        }
    }

    /// The host has made room.
    pub(crate) fn post_waiting(&mut self, cx: &mut Context, function: u8, number: u16) {
        loop {
            let cq = &mut self[function].completion[usize::from(number)];
            let Some(&posting) = cq.waiting.front() else { break };
            if cq.is_full() {
                return;
            }
            cq.waiting.pop_front();
            self.enter(cx, function, number, posting, None);
        }
        // Entries that were not read because of them are read now.
        for queue in 0..self[function].submission.len() as u16 {
            let sq = &self[function].submission[usize::from(queue)];
            if sq.live && sq.completion_queue == number && sq.deletion.is_none() && sq.waiting() > 0 {
                self.line_up(function, queue);
            }
        }
    }

    /// An entry is there: the host is interrupted now, or, of an I/O queue, after more of them or some time (section
    /// 5.21.1.8).
    #[inline]
    fn signal(&mut self, cx: &mut Context, function: u8, number: u16) {
        let c = &mut self[function];
        let cq = &mut c.completion[usize::from(number)];
        let vector = cq.vector;
        if number != 0
            && c.coalesce_time > Duration::ZERO
            && c.coalesce_count > 0
            && !cx.state.features.is_uncoalesced(function, vector)
        {
            cq.coalesced += 1;
            if cq.coalesced < c.coalesce_count {
                if !cq.timer {
                    cq.timer = true;
                    let (at, generation) = (cx.now + c.coalesce_time, c.generation);
                    cx.timers.push(at, Timer::Coalesced { function, queue: number, generation });
                }
                return;
            }
        }
        cq.coalesced = 0;
        self.interrupt(function, vector);
    }

    /// An interrupt, once everything that stands in `outputs` has been said.
    #[inline]
    pub(crate) fn interrupt(&mut self, function: u8, vector: u16) {
        let c = &mut self[function];
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

    /// Whether an interrupt is to be said.
    #[inline]
    pub(crate) fn has_interrupt(&self) -> bool {
        !self.interrupts.is_empty()
    }

    /// The next interrupt; all entries that it is about were said before.
    #[inline]
    pub(crate) fn next_interrupt(&mut self) -> Option<Output> {
        let (function, vector) = self.interrupts.pop_front()?;
        self[function].interrupting[usize::from(vector)] = false;
        Some(Output::Interrupt { function, vector })
    }

    /// The host clears bits of the interrupt mask (INTMC).
    pub(crate) fn unmask(&mut self, function: u8, bits: u32) {
        let c = &mut self[function];
        c.mask &= !bits;
        let now = c.masked & bits;
        c.masked &= !bits;
        for vector in (0..32).filter(|vector| now >> vector & 1 != 0) {
            self.interrupt(function, vector);
        }
    }

    /// Completions have waited for an interrupt long enough.
    pub(crate) fn on_coalesced(&mut self, function: u8, number: u16) {
        let cq = &mut self[function].completion[usize::from(number)];
        cq.timer = false;
        if cq.live && std::mem::take(&mut cq.coalesced) > 0 {
            let vector = cq.vector;
            self.interrupt(function, vector);
        }
    }

    #[cold]
    fn post_through_faults(&mut self, cx: &mut Context, function: u8, posting: Posting, slot: Option<Slot>) {
        match self.faults.next(function) {
            None => self.post_now(cx, function, posting, slot),
            Some(OnCompletion::Lose) => {}
            Some(OnCompletion::Duplicate) => {
                self.post_now(cx, function, posting, slot);
                self.post_now(cx, function, posting, None);
            }
            Some(OnCompletion::Delay(by)) => {
                let generation = self[function].generation;
                cx.timers.push(cx.now + by, Timer::Late { function, posting, generation });
            }
        }
    }

    /// A completion that was held back comes, if its queue is still there.
    pub(crate) fn on_late(&mut self, cx: &mut Context, function: u8, posting: Posting) {
        if self[function].submission[usize::from(posting.queue)].live {
            self.post_now(cx, function, posting, None);
        }
    }
}
