//! What the controller's memory holds on its way to flash, and what a power cut leaves of it.

use super::Store;
use crate::flash::Kind;
use crate::ftl::journal::OwnRow;
use crate::ftl::map::Entry;
use crate::ftl::rows::{LOST, NOWHERE};
use crate::ftl::space::Stream;
use tidewater_nand::Medium;

impl<M: Medium> Store<M> {
    /// Host units in rows that are not programmed yet, with their versions. Not those that were overtaken: what
    /// overtook them may be on flash already, and must not be overtaken by them in turn. Nor units that collection
    /// moves, which share the host's rows where `gc_stream` is off: what they are copied from is on flash until they
    /// are.
    pub fn staged(&self) -> Vec<(u32, u64)> {
        let mut staged = Vec::new();
        for (id, row) in self.rows.staged.iter().enumerate().filter(|(_, r)| r.in_use && r.stream == Stream::Host) {
            let first = id * self.layout.units_per_row as usize;
            for unit in 0..row.count {
                let at = first + unit as usize;
                let lpn = self.rows.lpns[at];
                let is_current = lpn < self.map.units()
                    && self.map.get(lpn) == Entry::At(self.layout.ppn(row.superblock, row.row, unit));
                if let Some(&(version, sequence)) = self.rows.stamps.get(at).filter(|_| is_current)
                    && !self.is_on_flash(lpn, sequence, self.rows.previous[at])
                {
                    staged.push((lpn, version));
                }
            }
        }
        staged
    }

    /// Whether the write of a logical page with this sequence is on flash: in the unit `previous`, or where that was
    /// before.
    fn is_on_flash(&self, lpn: u32, sequence: u64, previous: u32) -> bool {
        if matches!(previous, NOWHERE | LOST) {
            return false;
        }
        match self.durable_place(previous) {
            NOWHERE | LOST => false,
            at => self.stamp_at(at).is_some_and(|stamp| stamp.lpn == lpn && stamp.sequence == sequence),
        }
    }

    /// Deallocations that are not on flash yet: first page, pages, write sequence.
    pub fn staged_deallocations(&self) -> Vec<(u32, u32, u64)> {
        let rows = self.rows.staged.iter().filter(|r| r.in_use).filter_map(|r| r.own.as_ref());
        rows.flat_map(OwnRow::deallocations).chain(self.checkpoint.pending.iter().copied()).collect()
    }

    /// The power fails: programs and erases under way are torn. What is left is the medium.
    pub fn cut_power(mut self) -> M {
        for operation in self.flash.in_progress() {
            for plane in 0..self.layout.planes() {
                let at = self.layout.block(operation.superblock, plane);
                if self.medium.is_bad(at) {
                    continue;
                }
                match operation.kind() {
                    // The rows after a failed one never reach the medium.
                    Kind::Program if self.space.superblocks[operation.superblock as usize].failed => {}
                    Kind::Program => self.medium.tear_program(at, operation.row),
                    Kind::Erase => self.medium.tear_erase(at),
                    Kind::Read => {}
                }
            }
        }
        self.medium
    }
}
