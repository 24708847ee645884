//! Memory that a host lends its controller, and the drive's use of it: lent by Set Features, and given back only when
//! nothing of the drive's is there any more (NVM Express Base 1.4, sections 5.21.1.13 and 8.9).

use super::interface::Segment;
use super::timers::Timer;
use super::{Output, Slot, Subsystem};
use crate::device::Input;
use crate::host_memory::{Access, Answer, HostFault, Lending, Ticket};
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

/// Faults that are remembered at once, at most; older ones are forgotten.
const REMEMBERED: usize = 64;

/// Whose memory the drive uses, and who waits for it.
#[derive(Clone, Debug, Default)]
pub(super) struct HostMemoryUse {
    /// The controller whose host lends. The drive uses the memory of one host.
    lender: Option<u8>,
    /// It was asked for.
    asked: bool,
    /// The commands that asked.
    waiting: Vec<Slot>,
    /// What was lent last, if it has come back in order.
    before: Option<(u8, Vec<Segment>)>,
    /// Faults to come, and at how many accesses.
    faults: Vec<(HostFault, u32)>,
}

impl HostMemoryUse {
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

    pub(super) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Faults that are armed, and at how many accesses.
    pub(super) fn armed(&self) -> impl Iterator<Item = (HostFault, u32)> + '_ {
        self.faults.iter().copied()
    }

    pub(super) fn remember(&mut self, fault: HostFault, count: u32) {
        if count > 0 {
            if self.faults.len() == REMEMBERED {
                self.faults.remove(0);
            }
            self.faults.push((fault, count));
        }
    }

    /// The fault that happens at an access that found this.
    fn next_fault(&mut self, answer: Answer) -> Option<HostFault> {
        let read = matches!(answer, Answer::Found { .. });
        let fits = |(fault, _): &(HostFault, u32)| read || !matches!(fault, HostFault::Corrupted | HostFault::Stale);
        let place = self.faults.iter().position(fits)?;
        let (fault, count) = &mut self.faults[place];
        let fault = *fault;
        *count -= 1;
        if *count == 0 {
            self.faults.remove(place);
        }
        Some(fault)
    }
}

impl<M: Medium> Subsystem<M> {
    /// A host has lent memory, which its controller knows the pieces of.
    pub(super) fn begin_host_memory(&mut self, function: u8, returned: bool) {
        if self.host_memory.lender.is_some() || !self.device.host_memory().is_used() {
            return;
        }
        let pieces = &self.controllers[usize::from(function)].host_memory;
        let bytes = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let same = self.host_memory.before.take().is_some_and(|(of, before)| of == function && before == *pieces);
        self.host_memory.lender = Some(function);
        self.tell_device(Input::Lending(Lending::Lend { bytes, returned: returned && same }));
    }

    /// A host wants its memory back. True: the drive still uses it, and [`Subsystem::on_host_memory_free`] comes.
    pub(super) fn end_host_memory(&mut self, function: u8, waiting: Option<Slot>) -> bool {
        if !self.host_memory.is_of(function) {
            self.controllers[usize::from(function)].host_memory.clear();
            return false;
        }
        self.host_memory.waiting.extend(waiting);
        if !std::mem::replace(&mut self.host_memory.asked, true) {
            self.tell_device(Input::Lending(Lending::Withdraw));
        }
        true
    }

    /// Nothing of the drive's is in the host's memory any more.
    pub(super) fn on_host_memory_free(&mut self) {
        let Some(function) = self.host_memory.lender.take() else { return };
        self.host_memory.asked = false;
        let pieces = std::mem::take(&mut self.controllers[usize::from(function)].host_memory);
        self.host_memory.before = Some((function, pieces));
        for slot in std::mem::take(&mut self.host_memory.waiting) {
            self.finish(slot, Status::SUCCESS);
        }
        self.try_quiesce(function);
        self.end_shutdowns();
    }

    /// The drive wants a unit of the host's memory.
    pub(super) fn on_host_access(&mut self, access: Access) {
        match self.host_memory.lender {
            Some(function) => self.outputs.push_back(Output::HostMemory { function, access }),
            None => self.tell_device(Input::HostMemory { ticket: access.ticket, answer: Answer::Gone }),
        }
    }

    /// An access was carried out. Faults that were injected happen to what it has found.
    pub(super) fn on_host_answer(&mut self, ticket: Ticket, answer: Answer) {
        let answer = match self.host_memory.next_fault(answer) {
            None => answer,
            Some(HostFault::Withdrawn) => Answer::Gone,
            Some(HostFault::Corrupted | HostFault::Stale) => Answer::Damaged,
            Some(HostFault::Slow(by)) => {
                return self.timers.push(self.now + by, Timer::HostMemory { ticket, answer });
            }
        };
        self.tell_device(Input::HostMemory { ticket, answer });
    }

    /// An answer that was held back comes.
    pub(super) fn on_late_host_answer(&mut self, ticket: Ticket, answer: Answer) {
        self.tell_device(Input::HostMemory { ticket, answer });
    }
}
