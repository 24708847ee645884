//! Read-only queries for the driver of the loop.

use super::Subsystem;
use crate::device::Device;
use crate::subsystem::faults::{OnBlocks, OnCompletion};
use crate::subsystem::interface::{Fault, Outstanding, Segment, Segments, Slot, Transport};
use crate::subsystem::namespaces::Namespaces;
use crate::subsystem::options::{Bar2, OWN_SLOTS, Options, Queues, Region, ShadowDoorbells};
use crate::subsystem::slots::OWN;
use crate::subsystem::state::flash_of;
#[cfg(test)]
use crate::subsystem::{controllers::Controllers, slots::Slots, timers::Timers};
use tidewater_nand::Medium;

/// A bit for each that is true, from bit 0.
fn bits(all: impl Iterator<Item = bool>) -> u128 {
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
        self.controllers.has(function)
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
        let shift = self.namespaces().at(nsid).map_or(self.slots.block_shift, |namespace| namespace.block_shift.into());
        1 << shift
    }

    /// The controller identifier that Identify returns for a controller (CNTLID).
    pub fn controller_id(&self, function: u8) -> u16 {
        u16::from(function)
    }

    /// The value of a controller's doorbell, as last rung: the tail of a submission queue, or the
    /// head of a completion queue.
    #[inline]
    pub fn doorbell(&self, function: u8, queue: u16, completion: bool) -> u16 {
        let Some(controller) = self.controllers.get(function) else { return 0 };
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
        self.controllers.get(function).map_or(0, |controller| controller.generation)
    }

    /// Whether a controller is enabled and ready (CSTS.RDY), and has not failed: then its doorbells count.
    #[inline]
    pub fn is_ready(&self, function: u8) -> bool {
        self.controllers.get(function).is_some_and(|c| c.is_running())
    }

    /// Which queues a controller has.
    pub fn queues(&self, function: u8) -> Queues {
        let Some(c) = self.controllers.get(function) else { return Queues::default() };
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

    /// A read of a controller's BAR0 by the host (or by Property Get): `len` bytes, 1 to 8, little-endian, at any
    /// offset.
    pub fn register(&self, function: u8, offset: u32, len: u8) -> u64 {
        self.controllers.get(function).map_or(u64::MAX, |c| c.register(offset, len))
    }

    /// A read of a function's BAR2 by the host, outside of the slice for queues: `len` bytes, 1 to 8.
    pub fn load(&self, function: u8, address: u64, len: u8) -> u64 {
        match self.device.window_peek(function, address, len) {
            Some((value, _)) => value,
            None => self.device.load(function.into(), address, len.into()),
        }
    }

    /// Where a command's data is at the host, from `Output::Fetch`, `Output::Gather`, `Output::Data` or
    /// `Output::Send` until it is answered.
    #[inline]
    pub fn segments(&self, slot: Slot) -> Segments<'_> {
        let command = &self.slots[slot];
        match self.controllers[command.function].transport {
            Transport::Pcie => Segments::Host(&command.segments),
            Transport::Fabrics => Segments::Connection,
        }
    }

    /// The command of a slot, from its first output until its `Output::Complete`. `None`: the slot is free, or the
    /// subsystem's own.
    pub fn command(&self, slot: Slot) -> Option<Outstanding> {
        let command = self.slots.get(slot).filter(|command| command.function != OWN)?;
        Some(command.outstanding())
    }

    /// Slots, the subsystem's own included: `Output::Sync` may name any, all others only those of commands.
    pub fn slots(&self) -> u16 {
        self.options.slots + OWN_SLOTS
    }

    /// Where a function's shadow doorbells are, if the host has set them (Doorbell Buffer Config).
    pub fn shadow_doorbells(&self, function: u8) -> Option<ShadowDoorbells> {
        let c = self.controllers.get(function)?;
        let (address, _) = c.shadow.filter(|_| c.is_running())?;
        // The admin queue, number 0, has no shadow.
        let Queues { submission, completion, .. } = self.queues(function);
        Some(ShadowDoorbells { address, submission: submission & !1, completion: completion & !1 })
    }

    /// The memory that a function's host lends (host memory buffer), from Set Features until it is taken back.
    pub fn host_memory(&self, function: u8) -> &[Segment] {
        self.controllers.get(function).map_or(&[], |c| &c.host_memory)
    }

    /// The meaning of a function's bus addresses: its controller memory buffer and persistent memory region lie where
    /// the host has put them (CMBMSC, PMRMSC), and everything else is the host's memory.
    #[inline]
    pub fn region(&self, function: u8, address: u64, len: u32) -> Region {
        self.controllers.get(function).map_or(Region::Host, |c| c.region(address, len))
    }

    /// The layout of every function's BAR2.
    pub fn bar2(&self) -> Bar2 {
        Bar2::of(&self.device, &self.options)
    }

    /// How it was made.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The version that the next write gets.
    pub fn next_version(&self) -> u64 {
        self.slots.next_version
    }

    /// The drive.
    pub fn device(&self) -> &Device<M> {
        &self.device
    }

    /// The drive alone, for a power cut: what the controllers held is gone.
    pub fn into_device(self) -> Device<M> {
        self.device
    }

    /// The subsystem's own state that outlives a power cut: namespaces, saved features, health. After each
    /// `Output::SaveState`, and at a clean end, it is stored beside the drive's content, for [`Options::state`].
    pub fn state(&self) -> Vec<u8> {
        self.cx.state.to_bytes(self.cx.now)
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &Namespaces {
        &self.cx.state.namespaces
    }

    /// A sanitize operation runs: what is purged (`Output::Purge`) is all that hosts have stored, whatever holds it.
    pub fn is_sanitizing(&self) -> bool {
        self.cx.state.sanitize.is_running()
    }

    /// The health log of the subsystem, as Get Log Page tells it.
    pub fn health(&self) -> tidewater_wire::nvme::log::SmartLog {
        self.cx.state.smart.log(self.cx.now, &flash_of(&self.device, self.health.store_failed), false)
    }

    /// Faults that are armed; a count is what is left of it.
    pub fn armed_faults(&self) -> Vec<Fault> {
        let faults = &self.controllers.faults;
        let on_blocks = faults.on_blocks.iter().map(|&(OnBlocks { nsid, blocks, status }, count)| Fault::Status {
            nsid,
            blocks,
            status: status.bits(),
            count,
        });
        let on_completions = faults.on_completions.iter().map(|&((function, what), count)| match what {
            OnCompletion::Delay(by) => Fault::Delay { function, by, count },
            OnCompletion::Lose => Fault::Lose { function, count },
            OnCompletion::Duplicate => Fault::Duplicate { function, count },
        });
        let stuck = self.controllers.iter().zip(0u8..).filter(|(controller, _)| controller.stuck_shutdown);
        let stuck = stuck.map(|(_, function)| Fault::StuckShutdown { function });
        let on_memory = self.host_memory.faults.iter().map(|&(fault, count)| Fault::HostMemory { fault, count });
        on_blocks.chain(on_completions).chain(stuck).chain(on_memory).collect()
    }

    /// Rooms that tests look into.
    #[cfg(test)]
    pub(in crate::subsystem) fn parts(&self) -> (&Slots, &Controllers, &Timers) {
        (&self.slots, &self.controllers, &self.cx.timers)
    }
}
