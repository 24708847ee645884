//! Blocks that are erased for a namespace that goes or comes, for a format or a sanitize operation: a command of the
//! subsystem's own, behind all that was taken before.

use super::context::Context;
use super::controllers::Controllers;
use super::interface::{Output, Slot};
use super::namespaces::Extent;
use super::slots::{Slots, Stage, Work};
use crate::device::Device;
use std::collections::VecDeque;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{DSM_RANGES_MAX, DsmRange, Status};

/// Times that blocks are to be forgotten, at most, that wait for each other: a caller with more tries again.
const ERASES_MAX: usize = 256;

/// What happens when blocks are forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A namespace is gone.
    Nothing,
    /// A namespace is there.
    Create,
    /// Namespaces get a block format.
    Format { nsids: Vec<u32>, lbaf: u8 },
    /// The sanitize operation ends.
    Sanitize,
}

/// Blocks that are to be forgotten.
#[derive(Clone, Debug)]
pub(super) struct Erase {
    pub extents: Vec<Extent>,
    pub then: Then,
    /// Not even the backing store may be able to bring them back.
    pub purge: bool,
    /// The command that waits for it.
    pub waiting: Option<Slot>,
}

/// All that are to be forgotten, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Erases {
    list: VecDeque<Erase>,
    /// Commands that are waited for before the first of them are.
    blockers: u32,
}

impl Erases {
    /// Whether blocks of yet another namespace can be forgotten.
    ///
    /// # Errors
    /// Command Interrupted.
    pub(super) fn check_room(&self) -> Result<(), Status> {
        if self.list.len() < ERASES_MAX { Ok(()) } else { Err(Status::COMMAND_INTERRUPTED) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The one that is next, or under way.
    pub(super) fn first(&self) -> Option<&Erase> {
        self.list.front()
    }

    /// Takes another. True: it is the first.
    pub(super) fn push(&mut self, erase: Erase) -> bool {
        self.list.push_back(erase);
        self.list.len() == 1
    }

    /// The first has ended.
    pub(super) fn pop(&mut self) -> Option<Erase> {
        self.list.pop_front()
    }

    /// Marks the commands that were taken before and may still change blocks. True: there is none.
    pub(super) fn await_writes<M: Medium>(&mut self, slots: &mut Slots, device: &Device<M>) -> bool {
        self.blockers = 0;
        for slot in slots.of_hosts() {
            let command = &mut slots[slot];
            let modifies = matches!(command.work, Work::Write | Work::WriteZeroes | Work::Ranges) && command.queue > 0;
            // What waits at the byte window's gate has changed nothing, and touches nothing that is forgotten.
            let is_held = command.stage == Stage::Device && device.is_held(slot.0);
            if command.stage != Stage::Free && modifies && !is_held {
                command.blocks_erase = true;
                self.blockers += 1;
            }
        }
        self.blockers == 0
    }

    /// A command that was waited for has ended. True: it was the last.
    pub(super) fn unblock(&mut self) -> bool {
        self.blockers -= 1;
        self.blockers == 0
    }

    /// The ranges of the first.
    pub(super) fn ranges(&self) -> Option<Box<[DsmRange]>> {
        let mut ranges = Vec::new();
        for extent in &self.first()?.extents {
            let (mut first, mut left) = (extent.first, extent.blocks);
            while left > 0 {
                // A multiple of every unit.
                let blocks = left.min(1 << 31);
                ranges.push(DsmRange::new(first, blocks as u32));
                (first, left) = (first + blocks, left - blocks);
            }
        }
        assert!(ranges.len() <= DSM_RANGES_MAX, "more than 2^48 bytes, or more namespaces than there can be");
        Some(ranges.into_boxed_slice())
    }

    /// The blocks of the first are forgotten: what they were is no more.
    pub(super) fn apply(&self, cx: &mut Context, controllers: &mut Controllers) {
        match self.first().map(|erase| &erase.then) {
            Some(Then::Format { nsids, lbaf }) => {
                for &nsid in nsids {
                    if cx.state.namespaces.format(nsid, *lbaf).is_ok() {
                        controllers.tell_namespace_changed(cx, nsid);
                    }
                }
            }
            Some(Then::Create) => {}
            Some(Then::Nothing | Then::Sanitize) | None => return,
        }
        cx.say(Output::SaveState);
    }

    /// A command that waits for blocks to be forgotten is an orphan: they are forgotten all the same.
    pub(super) fn forget_waiting(&mut self, slot: Slot) {
        for erase in self.list.iter_mut().filter(|erase| erase.waiting == Some(slot)) {
            erase.waiting = None;
        }
    }

    /// Whether any namespace is being formatted.
    pub(super) fn has_format(&self) -> bool {
        self.list.iter().any(|erase| matches!(erase.then, Then::Format { .. }))
    }

    /// Whether a namespace is being formatted.
    #[cold]
    pub(super) fn is_formatting(&self, nsid: u32) -> bool {
        let formats = |erase: &Erase| matches!(&erase.then, Then::Format { nsids, .. } if nsids.contains(&nsid));
        self.list.iter().any(formats)
    }

    /// Whether blocks are about to be forgotten.
    pub(super) fn is_forgetting(&self, place: &Extent) -> bool {
        self.list.iter().flat_map(|erase| &erase.extents).any(|extent| extent.overlaps(place))
    }
}
