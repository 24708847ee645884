//! Memory that a host lends its controller, and the drive's use of it: lent by Set Features, and given back only when
//! nothing of the drive's is there any more (NVM Express Base 1.4, sections 5.21.1.13 and 8.9).

use super::context::Context;
use super::controllers::Controllers;
use super::faults::Armed;
use super::interface::{Segment, Slot};
use super::timers::Timer;
use crate::host_memory::{Answer, HostFault, Lending, Ticket};

/// Whose memory the drive uses, and who waits for it.
#[derive(Clone, Debug, Default)]
pub(super) struct HostMemoryUse {
    /// The controller whose host lends. The drive uses the memory of one host.
    pub lender: Option<u8>,
    /// It was asked for.
    asked: bool,
    /// The commands that asked.
    waiting: Vec<Slot>,
    /// What was lent last, if it has come back in order.
    before: Option<(u8, Vec<Segment>)>,
    /// Faults of accesses.
    pub faults: Armed<HostFault>,
}

impl HostMemoryUse {
    #[inline]
    pub(super) fn is_of(&self, function: u8) -> bool {
        self.lender == Some(function)
    }

    /// Whether a controller's host has asked for its memory and has not got it back yet.
    pub(super) fn is_leaving(&self, function: u8) -> bool {
        self.is_of(function) && self.asked
    }

    /// A command that waits for the memory is an orphan: the memory is given back all the same.
    pub(super) fn forget_waiting(&mut self, slot: Slot) {
        self.waiting.retain(|waiting| *waiting != slot);
    }

    /// A host has lent memory, which its controller knows the pieces of.
    pub(super) fn begin(&mut self, controllers: &Controllers, function: u8, returned: bool) -> Option<Lending> {
        if self.lender.is_some() {
            return None;
        }
        let pieces = &controllers[function].host_memory;
        let bytes = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let same = self.before.take().is_some_and(|(of, before)| of == function && before == *pieces);
        self.lender = Some(function);
        Some(Lending::Lend { bytes, returned: returned && same })
    }

    /// A host wants its memory back. `None`: the drive does not use it. Else it still does, and gets this input, if
    /// there is one.
    pub(super) fn end(
        &mut self,
        controllers: &mut Controllers,
        function: u8,
        waiting: Option<Slot>,
    ) -> Option<Option<Lending>> {
        if !self.is_of(function) {
            controllers[function].host_memory.clear();
            return None;
        }
        self.waiting.extend(waiting);
        Some((!std::mem::replace(&mut self.asked, true)).then_some(Lending::Withdraw))
    }

    /// Nothing of the drive's is in the host's memory any more. Returns whose it was, and the commands that waited.
    pub(super) fn free(&mut self, controllers: &mut Controllers) -> Option<(u8, Vec<Slot>)> {
        let function = self.lender.take()?;
        self.asked = false;
        self.before = Some((function, std::mem::take(&mut controllers[function].host_memory)));
        Some((function, std::mem::take(&mut self.waiting)))
    }

    /// An access was carried out. Faults that were injected happen to what it has found; one that makes it late keeps
    /// the answer.
    pub(super) fn answer(&mut self, cx: &mut Context, ticket: Ticket, answer: Answer) -> Option<Answer> {
        let is_read = matches!(answer, Answer::Found { .. });
        match self.faults.next(|fault| is_read || !matches!(fault, HostFault::Corrupted | HostFault::Stale)) {
            None => Some(answer),
            Some(HostFault::Withdrawn) => Some(Answer::Gone),
            Some(HostFault::Corrupted | HostFault::Stale) => Some(Answer::Damaged),
            Some(HostFault::Slow(by)) => {
                cx.timers.push(cx.now + by, Timer::HostMemory { ticket, answer });
                None
            }
        }
    }
}
