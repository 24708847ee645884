//! The LBA gate: block commands that touch pinned blocks wait or are refused, so that the two paths never show two
//! truths.
//!
//! - Reads, writes, compares, verifies, writes of zeroes and deallocations of pinned blocks stop here.
//! - A Pin waits in turn for those that were let through before it.
//! - Flush passes: what is pinned is not in the write buffer's care, and needs no flush to outlive a power loss.

use crate::device::Device;
use crate::host::Permit;
use crate::profile::Gate;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Command, Kind, Status};
use tidewater_wire::vendor::status as vendor_status;

impl<M: Medium> Device<M> {
    /// Whether a command has something to do with logical pages of which this holds.
    fn touches(&self, slot: u16, pinned: impl Fn(u32, u32) -> bool) -> bool {
        let slot = self.host.slot(Permit::from_index(slot));
        let Ok(Command { kind, first_block, blocks, .. }) = slot.command else { return false };
        let range = |first: u64, blocks: u32| {
            let end = (first + u64::from(blocks)).div_ceil(1 << self.page_shift);
            blocks > 0 && pinned((first >> self.page_shift) as u32, end as u32)
        };
        match kind {
            Kind::Flush => false,
            Kind::DatasetManagement { deallocate, .. } => {
                deallocate && slot.ranges().iter().any(|r| range(r.first_block, r.blocks))
            }
            _ => range(first_block, blocks),
        }
    }

    /// Whether a command may go on. If not, it waits or has been refused.
    pub(crate) fn passes_gate(&mut self, slot: u16) -> bool {
        let table = &self.window.table;
        if self.window.flaw == Some(super::Flaw::OpenGate)
            || !self.touches(slot, |first, end| table.touching(first, end).is_some())
        {
            return true;
        }
        self.window.statistics.gated += 1;
        match self.window.gate {
            // Those that let go of entries need places, too.
            Gate::Hold if self.window.held.len() < self.window.held_max => self.window.held.push_back(slot),
            Gate::Hold | Gate::Refuse => self.refuse(slot, vendor_status::LBA_PINNED),
        }
        false
    }

    /// Whether commands that were let through still work on these logical pages.
    pub(super) fn is_under_way(&self, first: u32, end: u32) -> bool {
        let begun = self.host.outstanding_commands().map(|(permit, _)| permit.index());
        let mut begun = begun.filter(|&slot| self.work[usize::from(slot)].begun);
        begun.any(|slot| self.touches(slot, |from, to| first < to && from < end))
    }

    /// Whether the command with this identifier waits at the gate. Asserts nothing of identifiers that several queues
    /// use.
    pub fn is_held(&self, cid: u16) -> bool {
        self.window.held.iter().any(|&slot| self.host.slot(Permit::from_index(slot)).cid == cid)
    }

    /// Ends a command that waits at the gate: its host has aborted it, or is gone. False: it does not wait there.
    pub fn cancel_held(&mut self, cid: u16) -> bool {
        let place = self.window.held.iter().position(|&slot| self.host.slot(Permit::from_index(slot)).cid == cid);
        let Some(slot) = place.and_then(|place| self.window.held.remove(place)) else { return false };
        self.refuse(slot, Status::ABORT_REQUESTED);
        true
    }

    /// An entry was let go of: commands that waited for that go on, oldest first.
    pub(super) fn release_held(&mut self) {
        let mut held = std::mem::take(&mut self.window.held);
        while let Some(slot) = held.pop_front() {
            self.begin(slot); // Through the gate again.
        }
    }
}
