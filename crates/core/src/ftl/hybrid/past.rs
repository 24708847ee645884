//! A past that is constructed: data blocks in order, and a log in its steady state.

use super::{Ftl, Role};
use crate::flash::NONE;
use crate::ftl::{Entry, Precondition, Stream};
use std::collections::VecDeque;
use tidewater_base::Rng;
use tidewater_nand::{Medium, Nand};

const TOO_FEW: &str =
    "factory-bad blocks took more than filling the drive leaves over; give a larger [ftl] spare_blocks";

impl<M: Medium> Ftl<M> {
    /// Data blocks in order, each on the die that has most room; in the steady state, a log on top of them.
    pub(in crate::ftl) fn construct_blocks(&mut self, past: Precondition, seed: u64, tag: u64) -> Result<(), String> {
        let share = match past {
            Precondition::Fresh => 0.0,
            Precondition::Filled(share) => share.clamp(0.0, 1.0),
            Precondition::Steady => 1.0,
        };
        let units = (f64::from(self.data_units()) * share) as u32;
        for block in 0..units.div_ceil(self.layout.units_per_superblock) {
            self.place_block(block, units, tag).ok_or(TOO_FEW)?;
        }
        if past == Precondition::Steady { self.construct_log(seed, tag) } else { Ok(()) }
    }

    /// The log after it was turned over twice by random writes, evenly over all pages, with a full merge of every
    /// logical block in each victim; up to where the next row makes another block the victim.
    fn construct_log(&mut self, seed: u64, tag: u64) -> Result<(), String> {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        let blocks = self.log_limit(hybrid).saturating_sub(hybrid.points.len() as u32);
        let (per_block, units) = (self.layout.units_per_superblock, self.data_units());
        let mut rng = Rng::new(seed, b"steady log");
        // The newest copy of each page in the log, by its number in the order of writing, and what is in the log.
        let mut newest = vec![u64::MAX; units as usize];
        let mut log: VecDeque<u32> = VecDeque::with_capacity((blocks * per_block) as usize);
        let turns = 2 * u64::from(blocks) * u64::from(per_block);
        for number in 0..turns {
            if log.len() == (blocks * per_block) as usize {
                let first = number - log.len() as u64;
                for (age, lpn) in (first..).zip(log.drain(..per_block as usize)) {
                    if newest[lpn as usize] == age {
                        let block = lpn / per_block * per_block;
                        newest[block as usize..units.min(block + per_block) as usize].fill(u64::MAX);
                    }
                }
            }
            let lpn = rng.below(units.into()) as u32;
            newest[lpn as usize] = number;
            log.push_back(lpn);
        }
        let per_row = self.layout.units_per_row as usize;
        let mut row_of_log = [Nand::NO_LPN; 64];
        let mut pages = (turns - log.len() as u64..).zip(log);
        for _ in 0..blocks {
            let die = self.roomiest_die().ok_or(TOO_FEW)?;
            let superblock = self.open_superblock(die, Stream::Host).ok_or(TOO_FEW)?;
            let hybrid = self.hybrid();
            hybrid.roles[superblock as usize] = Role::Log;
            hybrid.log.push_back(superblock);
            for row in 0..self.layout.rows {
                for (unit, (age, lpn)) in row_of_log[..per_row].iter_mut().zip(&mut pages) {
                    *unit = if newest[lpn as usize] == age { lpn } else { Nand::NO_LPN };
                }
                self.superblocks[superblock as usize].rows += 1;
                self.place(superblock, row, &row_of_log[..per_row], super::RowRole::Log.index(), tag);
            }
            self.settle(superblock);
        }
        Ok(())
    }

    /// Programs the pages of a logical block below `end` that were never written, at once, as its data block. `None`:
    /// it has one, or there is no superblock to spare.
    pub(in crate::ftl) fn place_block(&mut self, block: u32, end: u32, tag: u64) -> Option<u32> {
        let hybrid = self.hybrid();
        let has_data = hybrid.data[block as usize] != NONE || hybrid.is_merging(block);
        if has_data || self.free_superblocks <= super::RESERVE {
            return None;
        }
        let (per_block, per_row) = (self.layout.units_per_superblock, self.layout.units_per_row);
        let first = block * per_block;
        let end = end.min(first + per_block);
        let die = self.roomiest_die()?;
        let superblock = self.open_superblock(die, Stream::Host)?;
        let hybrid = self.hybrid();
        hybrid.roles[superblock as usize] = Role::InPlace(block);
        hybrid.data[block as usize] = superblock;
        let mut placed = 0;
        for row in 0..(end - first).div_ceil(per_row) {
            let mut lpns = [Nand::NO_LPN; 64];
            for unit in 0..per_row {
                let lpn = first + row * per_row + unit;
                if lpn < end && self.map.is_virgin(lpn) && self.map.get(lpn) == Entry::Unmapped {
                    lpns[unit as usize] = lpn;
                    placed += 1;
                }
            }
            self.superblocks[superblock as usize].rows += 1;
            self.place(superblock, row, &lpns[..per_row as usize], super::RowRole::LastCopy(block).index(), tag);
        }
        self.settle(superblock);
        Some(placed)
    }
}
