//! Blocks that turn bad: they are replaced by spares, and what was to be in them is known to be elsewhere.

use super::Store;
use crate::ftl::map::Entry;
use crate::ftl::rows::{LOST, NOWHERE};
use crate::ftl::space::Stream;
use tidewater_nand::Medium;

impl<M: Medium> Store<M> {
    /// A unit that was overtaken could not be programmed where it was to be. Until what overtook it is on flash, the
    /// page is at `place` instead, and what lies there must not be erased.
    pub(in crate::ftl) fn stand_in(&mut self, lpn: u32, failed: u32, place: u32) {
        let units = self.layout.units_per_row as usize;
        for (id, row) in self.rows.staged.iter().enumerate().filter(|(_, r)| r.in_use && r.stream != Stream::Merge) {
            let overtaker = |&at: &usize| self.rows.lpns[at] == lpn && self.rows.previous[at] == failed;
            let Some(at) = (id * units..id * units + row.count as usize).find(overtaker) else { continue };
            self.rows.previous[at] = place;
            if matches!(place, NOWHERE | LOST) {
                continue;
            }
            let s = &mut self.space.superblocks[self.layout.superblock_of(place) as usize];
            match row.stream {
                Stream::Host => s.host_hazard = s.host_hazard.max(row.number),
                Stream::Log | Stream::Mapping => s.log_row_hazard = s.log_row_hazard.max(row.number),
                _ => {}
            }
        }
    }

    /// A page that is gone was put into this superblock once more. The log that says that it is gone may be forgotten
    /// before that copy, which is younger than the log: log it again.
    pub(in crate::ftl) fn log_gone_again(&mut self, superblock: u32, lpn: u32, sequence: u64) {
        let pages = match self.map.get(lpn) {
            Entry::Unmapped => 1,
            Entry::Lost => 0,
            Entry::At(_) => return,
        };
        self.checkpoint.log_deallocation(lpn, pages, sequence);
        let s = &mut self.space.superblocks[superblock as usize];
        s.log_hazard = s.log_hazard.max(sequence);
    }

    /// Erases every plane; blocks that fail, or are bad already, are replaced by spares. False: a plane has none left.
    pub(in crate::ftl) fn erase_planes(&mut self, superblock: u32) -> bool {
        let mut whole = true;
        for plane in 0..self.layout.planes() {
            let at = self.layout.block(superblock, plane);
            // A block in which a program failed is erased with the others, which takes its time, and then replaced.
            self.statistics.erases_total += 1;
            if !self.medium.is_bad(at) {
                if self.medium.erase(at).is_ok() {
                    continue;
                }
                self.statistics.erase_failures += 1;
            }
            whole &= self.replace_block(superblock, plane);
        }
        whole
    }

    fn replace_block(&mut self, superblock: u32, plane: u32) -> bool {
        while self.layout.replace(superblock, plane) {
            let spare = self.layout.block(superblock, plane);
            // A spare may hold remains of a life before the last power loss.
            if self.medium.programmed(spare) == 0 && !self.medium.is_torn(spare) || self.medium.erase(spare).is_ok() {
                return true;
            }
        }
        false
    }
}
