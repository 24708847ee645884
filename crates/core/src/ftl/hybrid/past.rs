//! A past that is constructed: data blocks in order, and a log in its steady state.

use super::state::{Hybrid, RESERVE, Role, RowRole};
use crate::flash::NONE;
use crate::ftl::precondition::TOO_FEW_TO_FILL;
use crate::ftl::store::{Entry, Store, Stream};
use std::collections::VecDeque;
use tidewater_base::Rng;
use tidewater_nand::{Medium, Nand};

impl Hybrid {
    /// The log after it was turned over twice by random writes, evenly over all pages, with a full merge of every
    /// logical block in each victim; up to where the next row makes another block the victim.
    pub fn construct_log<M: Medium>(&mut self, store: &mut Store<M>, seed: u64, tag: u64) -> Result<(), String> {
        let blocks = self.log_limit(store).saturating_sub(self.points.len() as u32);
        let (per_block, units) = (store.layout.units_per_superblock, store.data_units);
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
        let per_row = store.layout.units_per_row as usize;
        let mut row_of_log = [Nand::NO_LPN; 64];
        let mut pages = (turns - log.len() as u64..).zip(log);
        for _ in 0..blocks {
            let die = self.roomiest_die(store).ok_or(TOO_FEW_TO_FILL)?;
            let superblock = store.space.open(die, Stream::Host).ok_or(TOO_FEW_TO_FILL)?;
            self.roles[superblock as usize] = Role::Log;
            self.log.push_back(superblock);
            for _ in 0..store.layout.rows {
                for (unit, (age, lpn)) in row_of_log[..per_row].iter_mut().zip(&mut pages) {
                    *unit = if newest[lpn as usize] == age { lpn } else { Nand::NO_LPN };
                }
                store.place(superblock, &row_of_log[..per_row], RowRole::Log.index(), tag, None);
            }
            store.space.settle(superblock);
        }
        Ok(())
    }

    /// Programs the pages of a logical block below `end` that were never written, at once, as its data block. `None`:
    /// it has one, or there is no superblock to spare.
    pub fn place_block<M: Medium>(&mut self, store: &mut Store<M>, block: u32, end: u32, tag: u64) -> Option<u32> {
        let has_data = self.data[block as usize] != NONE || self.is_merging(block);
        if has_data || store.space.free_superblocks <= RESERVE {
            return None;
        }
        let (per_block, per_row) = (store.layout.units_per_superblock, store.layout.units_per_row);
        let first = block * per_block;
        let end = end.min(first + per_block);
        let die = self.roomiest_die(store)?;
        let superblock = store.space.open(die, Stream::Host)?;
        self.roles[superblock as usize] = Role::InPlace(block);
        self.data[block as usize] = superblock;
        let mut placed = 0;
        for row in 0..(end - first).div_ceil(per_row) {
            let mut lpns = [Nand::NO_LPN; 64];
            for unit in 0..per_row {
                let lpn = first + row * per_row + unit;
                if lpn < end && store.map.is_virgin(lpn) && store.map.get(lpn) == Entry::Unmapped {
                    lpns[unit as usize] = lpn;
                    placed += 1;
                }
            }
            store.place(superblock, &lpns[..per_row as usize], RowRole::LastCopy(block).index(), tag, None);
        }
        store.space.settle(superblock);
        Some(placed)
    }
}
