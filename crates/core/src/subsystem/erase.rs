//! Blocks that are erased for a namespace that goes or comes, for a format or a sanitize operation: a command of the
//! subsystem's own, behind all that was taken before.

use super::lifecycle::SHUTDOWN_FLUSH;
use super::namespaces::Extent;
use super::slots::{Stage, Work};
use super::{Output, Slot, Subsystem};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{DSM_RANGES_MAX, DsmRange, Status};

/// Which of the subsystem's own slots forgets blocks.
const ERASE: u16 = 1;
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

impl<M: Medium> Subsystem<M> {
    /// Whether blocks of yet another namespace can be forgotten.
    ///
    /// # Errors
    /// Command Interrupted.
    pub(super) fn check_room_to_erase(&self) -> Result<(), Status> {
        if self.erases.len() < ERASES_MAX { Ok(()) } else { Err(Status::COMMAND_INTERRUPTED) }
    }

    /// Blocks are to be forgotten, once no command that was taken before can change them any more.
    pub(super) fn erase(&mut self, erase: Erase) {
        self.erases.push_back(erase);
        if self.erases.len() == 1 {
            self.await_writes();
        }
    }

    fn await_writes(&mut self) {
        let mut blockers = 0;
        for slot in (0..self.slots.hosts()).map(Slot) {
            let command = &mut self.slots[slot];
            let modifies = matches!(command.work, Work::Write | Work::WriteZeroes | Work::Ranges) && command.queue > 0;
            // What waits at the byte window's gate has changed nothing, and touches nothing that is forgotten.
            let is_held = command.stage == Stage::Device && self.device.is_held(slot.0);
            if command.stage != Stage::Free && modifies && !is_held {
                command.blocks_erase = true;
                blockers += 1;
            }
        }
        self.erase_blockers = blockers;
        if blockers == 0 {
            self.begin_erase();
        }
    }

    /// Nothing is under way that changes blocks.
    pub(super) fn begin_erase(&mut self) {
        let Some(erase) = self.erases.front() else { return };
        let mut ranges = Vec::new();
        for extent in &erase.extents {
            let (mut first, mut left) = (extent.first, extent.blocks);
            while left > 0 {
                // A multiple of every unit.
                let blocks = left.min(1 << 31);
                ranges.push(DsmRange::new(first, blocks as u32));
                (first, left) = (first + blocks, left - blocks);
            }
        }
        assert!(ranges.len() <= DSM_RANGES_MAX, "more than 2^48 bytes, or more namespaces than there can be");
        let slot = self.slots.take_own(ERASE).expect("one erase at a time");
        let command = &mut self.slots[slot];
        if ranges.is_empty() {
            return self.finish_own(slot, Status::SUCCESS);
        }
        command.work = Work::Ranges;
        command.len = (ranges.len() * DsmRange::SIZE) as u32;
        command.sqe = command.sqe.with_dword(11, 4); // Deallocate.
        command.ranges = ranges.into_boxed_slice();
        self.submit(slot);
    }

    /// A command of the subsystem's own has ended.
    #[cold]
    pub(super) fn finish_own(&mut self, slot: Slot, status: Status) {
        if slot.0 - self.slots.hosts() == SHUTDOWN_FLUSH {
            self.slots.release(slot);
            return self.on_shutdown_flushed(status);
        }
        if self.slots[slot].work != Work::Flush && status.is_success() {
            self.apply_erase();
            let purge = self.erases.front().is_some_and(|erase| erase.purge);
            let command = &mut self.slots[slot];
            command.work = Work::Flush;
            command.durable = true;
            command.purge = purge;
            return self.submit(slot);
        }
        self.slots.release(slot);
        self.end_erase(status);
    }

    /// The blocks are forgotten: what they were is no more.
    fn apply_erase(&mut self) {
        match self.erases.front().map(|erase| erase.then.clone()) {
            Some(Then::Format { nsids, lbaf }) => {
                for nsid in nsids {
                    if self.state.namespaces.format(nsid, lbaf).is_ok() {
                        self.tell_namespace_changed(nsid);
                    }
                }
            }
            Some(Then::Create) => {}
            Some(Then::Nothing | Then::Sanitize) | None => return,
        }
        self.outputs.push_back(Output::SaveState);
    }

    /// The blocks are forgotten for good, or can't be.
    fn end_erase(&mut self, status: Status) {
        let Some(erase) = self.erases.pop_front() else { return };
        if erase.then == Then::Sanitize {
            let event = self.state.sanitize.finish(status.is_success());
            self.outputs.push_back(Output::SaveState);
            self.raise_everywhere(event);
        }
        if let Some(slot) = erase.waiting {
            self.finish(slot, status);
        }
        if !self.erases.is_empty() {
            self.await_writes();
        }
    }

    /// A command that waits for blocks to be forgotten is an orphan: they are forgotten all the same.
    pub(super) fn forget_waiting(&mut self, slot: Slot) {
        self.host_memory.forget_waiting(slot);
        for erase in self.erases.iter_mut().filter(|erase| erase.waiting == Some(slot)) {
            erase.waiting = None;
        }
    }

    /// Whether a namespace is being formatted.
    #[cold]
    pub(super) fn is_formatting(&self, nsid: u32) -> bool {
        let formats = |erase: &Erase| matches!(&erase.then, Then::Format { nsids, .. } if nsids.contains(&nsid));
        self.erases.iter().any(formats)
    }
}
