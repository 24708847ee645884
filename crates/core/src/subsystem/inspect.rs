//! Read-only queries for the driver of the loop.

use super::{Outstanding, Queues, Slot, Subsystem};
use tidewater_nand::Medium;

/// A bit for each that is true, from bit 0.
pub(super) fn bits(all: impl Iterator<Item = bool>) -> u128 {
    all.enumerate().fold(0, |bits, (i, is_so)| bits | u128::from(is_so) << i)
}

impl<M: Medium> Subsystem<M> {
    /// Commands that are worked on, over all controllers.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.controllers.iter().map(|controller| controller.outstanding).sum()
    }

    /// Whether there is a controller of this number: that of a PCI function always, one over fabrics while its host is
    /// connected.
    pub fn has_controller(&self, function: u8) -> bool {
        self.controllers.get(usize::from(function)).is_some_and(|controller| controller.live)
    }

    /// PCI functions; fabrics controllers are numbered behind them.
    pub fn functions(&self) -> u8 {
        self.options.functions
    }

    /// Interrupt vectors of a PCI function.
    pub fn vectors(&self) -> u16 {
        self.options.vectors
    }

    /// Bytes of a block of a namespace, by its identifier; of one that is not there, of the device.
    pub fn block_size(&self, nsid: u32) -> u64 {
        let shift = self.namespaces().at(nsid).map_or(self.block_shift, |namespace| namespace.block_shift.into());
        1 << shift
    }

    /// The controller identifier that Identify returns for a controller (CNTLID).
    pub fn controller_id(&self, function: u8) -> u16 {
        u16::from(function)
    }

    /// What a doorbell of a controller says, as far as the controller has heard: the tail of a submission queue, or the
    /// head of a completion queue.
    #[inline]
    pub fn doorbell(&self, function: u8, queue: u16, completion: bool) -> u16 {
        let Some(controller) = self.controllers.get(usize::from(function)) else { return 0 };
        let (submission, completions) = (controller.submission.get(usize::from(queue)), &controller.completion);
        let value = match completion {
            true => completions.get(usize::from(queue)).map_or(0, |queue| queue.head),
            false => submission.map_or(0, |queue| queue.tail),
        };
        value as u16
    }

    /// How often a controller has been reset.
    #[inline]
    pub fn resets(&self, function: u8) -> u32 {
        self.controllers.get(usize::from(function)).map_or(0, |controller| controller.generation)
    }

    /// Whether a controller is enabled and ready (CSTS.RDY), and has not failed: then its doorbells count.
    #[inline]
    pub fn is_ready(&self, function: u8) -> bool {
        self.controllers.get(usize::from(function)).is_some_and(super::controller::Controller::is_running)
    }

    /// Which queues a controller has.
    pub fn queues(&self, function: u8) -> Queues {
        let Some(c) = self.controllers.get(usize::from(function)) else { return Queues::default() };
        Queues {
            submission: bits(c.submission.iter().map(|sq| sq.live)),
            completion: bits(c.completion.iter().map(|cq| cq.live)),
            shadowed: c.shadow.is_some() && c.is_running(),
        }
    }

    /// The command that a slot held last, also when it has just ended: until the next input.
    #[inline]
    pub fn last_command(&self, slot: Slot) -> Outstanding {
        let command = &self.slots[slot];
        command.outstanding()
    }
}
