//! The LBA gate: block commands that touch pinned blocks wait or are refused, so that the two paths never show two
//! truths.
//!
//! - Reads, writes, compares, verifies, writes of zeroes and deallocations of pinned blocks stop here.
//! - A Pin waits in turn for those that were let through before it.
//! - Flush passes: what is pinned is not in the write buffer's care, and needs no flush to outlive a power loss.

use super::Window;
use crate::host::{Host, Permit};
use crate::profile::Gate;
use std::collections::VecDeque;
use tidewater_wire::nvme::{Command, Kind};

/// What the gate does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gated {
    /// It goes on.
    Passes,
    /// It waits until an entry is released.
    Waits,
    /// It is refused.
    Refused,
}

/// Whether a command has something to do with logical pages of which this holds. `page_shift`: blocks of a page.
fn touches(host: &Host, page_shift: u32, slot: u16, pinned: impl Fn(u32, u32) -> bool) -> bool {
    let slot = host.slot(Permit::from_index(slot));
    let Ok(Command { kind, first_block, blocks, .. }) = slot.command else { return false };
    let range = |first: u64, blocks: u32| {
        let end = (first + u64::from(blocks)).div_ceil(1 << page_shift);
        blocks > 0 && pinned((first >> page_shift) as u32, end as u32)
    };
    match kind {
        Kind::Flush => false,
        Kind::DatasetManagement { deallocate, .. } => {
            deallocate && slot.ranges().iter().any(|r| range(r.first_block, r.blocks))
        }
        _ => range(first_block, blocks),
    }
}

impl Window {
    /// What becomes of a command that is about to begin.
    pub(crate) fn gate(&mut self, host: &Host, page_shift: u32, slot: u16) -> Gated {
        let table = &self.table;
        if self.flaw.is(super::Flaw::OpenGate)
            || !touches(host, page_shift, slot, |first, end| table.touching(first, end).is_some())
        {
            return Gated::Passes;
        }
        self.statistics.gated += 1;
        match self.gate {
            // Commands that release entries need slots, too.
            Gate::Hold if self.held.len() < self.held_max => {
                self.held.push_back(slot);
                Gated::Waits
            }
            Gate::Hold | Gate::Refuse => Gated::Refused,
        }
    }

    /// Whether commands that were let through still work on these logical pages. `begun`: whether one has begun.
    pub(super) fn is_under_way(
        host: &Host,
        page_shift: u32,
        begun: impl Fn(u16) -> bool,
        (first, end): (u32, u32),
    ) -> bool {
        let mut slots = host.outstanding_commands().map(|(permit, _)| permit.index()).filter(|&slot| begun(slot));
        slots.any(|slot| touches(host, page_shift, slot, |from, to| first < to && from < end))
    }

    /// Whether the command with this identifier waits at the gate. Asserts nothing of identifiers that several queues
    /// use.
    pub(crate) fn is_held(&self, host: &Host, cid: u16) -> bool {
        self.held.iter().any(|&slot| host.slot(Permit::from_index(slot)).cid == cid)
    }

    /// Takes a command that waits at the gate out: its host has aborted it, or is gone. `None`: it does not wait there.
    pub(crate) fn take_aborted(&mut self, host: &Host, cid: u16) -> Option<u16> {
        let place = self.held.iter().position(|&slot| host.slot(Permit::from_index(slot)).cid == cid)?;
        self.held.remove(place)
    }

    /// Takes out all commands that wait at the gate, the oldest first.
    pub(crate) fn take_held(&mut self) -> VecDeque<u16> {
        std::mem::take(&mut self.held)
    }
}
