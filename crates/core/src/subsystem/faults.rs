//! Faults that are injected at run time, for people who write drivers.

use super::queues::Posting;
use super::timers::Timer;
use super::{Fault, Slot, Subsystem};
use crate::host_memory::HostFault;
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

/// Faults of one kind that are remembered at once, at most; older ones are forgotten.
const REMEMBERED: usize = 64;

/// The longest delay: no host waits for a day.
const DELAY_MAX: Duration = Duration::from_ms(86_400_000);

/// What happens to completions of a controller's I/O queues.
#[derive(Clone, Copy, Debug)]
enum OnCompletion {
    Delay(Duration),
    Lose,
    Duplicate,
}

/// Faults that are still to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Namespace, first block and the one behind the last, status, and how many commands: 0 is all.
    statuses: Vec<(u32, (u64, u64), Status, u32)>,
    /// Controller, what, and how many.
    completions: Vec<(u8, OnCompletion, u32)>,
}

impl Faults {
    #[inline]
    pub(super) fn any_on_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    #[inline]
    pub(super) fn any_on_blocks(&self) -> bool {
        !self.statuses.is_empty()
    }

    /// The status that a command on these blocks ends with, if it is one of those.
    #[cold]
    pub(super) fn status(&mut self, nsid: u32, first: u64, blocks: u64) -> Option<Status> {
        let hit = |&(of, (from, end), ..): &(u32, (u64, u64), Status, u32)| {
            of == nsid && first < end && from < first.saturating_add(blocks)
        };
        let place = self.statuses.iter().position(hit)?;
        let (_, _, status, count) = &mut self.statuses[place];
        let status = *status;
        if *count > 0 {
            *count -= 1;
            if *count == 0 {
                self.statuses.remove(place);
            }
        }
        Some(status)
    }

    /// What happens to a controller's next completion.
    fn next(&mut self, function: u8) -> Option<OnCompletion> {
        let place = self.completions.iter().position(|&(of, ..)| of == function)?;
        let (_, what, count) = &mut self.completions[place];
        let what = *what;
        *count -= 1;
        if *count == 0 {
            self.completions.remove(place);
        }
        Some(what)
    }

    fn remember(&mut self, function: u8, what: OnCompletion, count: u32) {
        if count > 0 {
            if self.completions.len() == REMEMBERED {
                self.completions.remove(0);
            }
            self.completions.push((function, what, count));
        }
    }
}

impl<M: Medium> Subsystem<M> {
    /// Faults that are armed; a count is what is left of it.
    pub fn armed_faults(&self) -> Vec<Fault> {
        let on_blocks = self.faults.statuses.iter();
        let on_blocks = on_blocks.map(|&(nsid, blocks, status, count)| Fault::Status {
            nsid,
            blocks,
            status: status.bits(),
            count,
        });
        let on_completions = self.faults.completions.iter().map(|&(function, what, count)| match what {
            OnCompletion::Delay(by) => Fault::Delay { function, by, count },
            OnCompletion::Lose => Fault::Lose { function, count },
            OnCompletion::Duplicate => Fault::Duplicate { function, count },
        });
        let stuck = self.controllers.iter().zip(0u8..).filter(|(controller, _)| controller.stuck_shutdown);
        let stuck = stuck.map(|(_, function)| Fault::StuckShutdown { function });
        let on_memory = self.host_memory.armed().map(|(fault, count)| Fault::HostMemory { fault, count });
        on_blocks.chain(on_completions).chain(stuck).chain(on_memory).collect()
    }

    /// A fault is injected. One of a controller that is not there is dropped.
    #[cold]
    pub(super) fn inject(&mut self, fault: Fault) {
        let function = fault.function().unwrap_or(0);
        if !self.has_controller(function) {
            return;
        }
        match fault {
            Fault::Status { nsid, blocks, status, count } => {
                if self.faults.statuses.len() == REMEMBERED {
                    self.faults.statuses.remove(0);
                }
                self.faults.statuses.push((nsid, blocks, Status::from_bits(status), count));
            }
            Fault::Delay { by, count, .. } => {
                self.faults.remember(function, OnCompletion::Delay(by.min(DELAY_MAX)), count);
            }
            Fault::Lose { count, .. } => self.faults.remember(function, OnCompletion::Lose, count),
            Fault::Duplicate { count, .. } => self.faults.remember(function, OnCompletion::Duplicate, count),
            Fault::Fatal { .. } => self.fail(function),
            Fault::StuckShutdown { .. } => self.controllers[usize::from(function)].stuck_shutdown = true,
            Fault::HostMemory { fault, count } => {
                let fault = match fault {
                    HostFault::Slow(by) => HostFault::Slow(by.min(DELAY_MAX)),
                    fault => fault,
                };
                self.host_memory.remember(fault, count);
            }
            Fault::Clear => {
                self.host_memory.clear_faults();
                self.faults = Faults::default();
                self.controllers.iter_mut().for_each(|c| c.stuck_shutdown = false);
                self.end_shutdowns();
            }
        }
    }

    #[cold]
    pub(super) fn post_through_faults(&mut self, function: u8, posting: Posting, slot: Option<Slot>) {
        match self.faults.next(function) {
            None => self.post_now(function, posting, slot),
            Some(OnCompletion::Lose) => {}
            Some(OnCompletion::Duplicate) => {
                self.post_now(function, posting, slot);
                self.post_now(function, posting, None);
            }
            Some(OnCompletion::Delay(by)) => {
                let generation = self.controllers[usize::from(function)].generation;
                self.timers.push(self.now + by, Timer::Late { function, posting, generation });
            }
        }
    }

    /// A completion that was held back comes, if its queue is still there.
    pub(super) fn on_late(&mut self, function: u8, posting: Posting) {
        if self.controllers[usize::from(function)].submission[usize::from(posting.queue)].live {
            self.post_now(function, posting, None);
        }
    }
}
