//! Reclaiming RW log blocks, oldest first, and static wear levelling.
//!
//! FAST merges every logical block that has a unit in the victim. FASTer gives units that are in a victim for the first
//! time a second chance: they go to the log's end, where overwriting may spare their merge; those that were there
//! already are cold, and go to the isolation area (`isolation`). Of a victim at most half gets a second chance, so that
//! every victim gives space back: the paper leaves open what happens when nearly all of the log is valid. The rest
//! counts as cold.

use super::state::{Hybrid, MOVE, RESERVE, Reclaim};
use crate::flash::{NONE, Operation, Source};
use crate::ftl::placement::Placement;
use crate::ftl::store::{Clock, NOT_A_CANDIDATE, State, Store};
use crate::owner::Owner;
use tidewater_nand::{Medium, Origin};

/// Rows of a victim read ahead, of what moves within the log.
const READS: u32 = 2;
/// Static wear levelling looks once in so many victims, at so many data blocks in turn.
const WEAR_LOOK: u64 = 8;
const WEAR_BLOCKS: usize = 2_048;

impl Hybrid {
    /// Takes reclaiming as far as it gets without a merge: chooses a victim, moves what of it stays in the log, ends
    /// it.
    pub fn go_on_reclaiming<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        loop {
            let Reclaim { victim, reads, .. } = self.reclaim;
            if victim == NONE {
                if !self.choose_log_victim(store) {
                    return;
                }
            } else if store.space.valid_units(victim) == 0 && reads == 0 {
                self.end_reclaim(store, clock, victim);
            } else {
                return self.move_units(store, clock, victim);
            }
        }
    }

    /// Merges the next logical block that wear levelling, the isolation area or the victim has. False: there is nothing
    /// to do now, or no room.
    pub fn reclaim_next<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) -> bool {
        if std::mem::take(&mut self.reclaim.looks_for_wear)
            && let Some(block) = self.coldest_block(store)
        {
            let merges = self.merge_fully(store, clock, slot, block);
            store.statistics.wear_moves += u64::from(merges);
            return merges;
        }
        if self.merge_isolated(store, clock, slot) {
            return true;
        }
        let Reclaim { victim, row, moving, exhausted, .. } = self.reclaim;
        if victim == NONE || moving || exhausted {
            return false;
        }
        let Some((row, block)) = self.next_block_of(store, victim, row) else {
            self.reclaim.exhausted = true;
            return false;
        };
        self.reclaim.row = row;
        self.merge_fully(store, clock, slot, block)
    }

    /// The oldest RW log block becomes the victim when only the ones that are being filled are left before the limit.
    fn choose_log_victim<M: Medium>(&mut self, store: &mut Store<M>) -> bool {
        if (self.log.len() + self.points.len()) as u32 <= self.log_limit(store) {
            return false;
        }
        let Some(&oldest) = self.log.front().filter(|&&s| store.space.superblocks[s as usize].state == State::Closed)
        else {
            return false;
        };
        let half = store.layout.units_per_superblock / 2;
        store.space.superblocks[oldest as usize].state = State::Victim;
        store.space.valid[oldest as usize] |= NOT_A_CANDIDATE;
        store.statistics.collections += 1;
        let Hybrid { reclaim, .. } = self;
        reclaim.victim = oldest;
        reclaim.row = 0;
        reclaim.exhausted = false;
        reclaim.chances = if reclaim.had_chance.is_some() { half } else { 0 };
        reclaim.next_move = 0;
        reclaim.moving = false;
        reclaim.victims += 1;
        true
    }

    fn end_reclaim<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, victim: u32) {
        self.reclaim.victim = NONE;
        self.reclaim.looks_for_wear = true;
        let oldest = self.log.pop_front();
        assert_eq!(oldest, Some(victim), "the oldest RW log block is the victim");
        self.is_stuck = false;
        self.drain(store, clock, victim);
        store.erase_drained(clock);
    }

    /// The next logical block that has a unit in a superblock of the log and is not being merged, with the unit's row;
    /// from a row on.
    pub fn next_block_of<M: Medium>(&self, store: &Store<M>, superblock: u32, from: u32) -> Option<(u32, u32)> {
        let per_page = store.layout.units_per_page;
        // From the top again, for merges that failed.
        for row in (from..store.layout.rows).chain(0..from) {
            let mut units = store.valid_bits.row(store.layout.ppn(superblock, row, 0), store.layout.units_per_row);
            while units != 0 {
                let unit = units.trailing_zeros();
                units &= units - 1;
                let lpn = store.medium.lpn(store.layout.block(superblock, unit / per_page), row, unit % per_page);
                let block = lpn / store.layout.units_per_superblock;
                if !self.is_merging(block) {
                    return Some((row, block));
                }
            }
        }
        None
    }

    /// Reads what of the victim gets a second chance, and what is cold and goes to the isolation area.
    fn move_units<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, victim: u32) {
        let (rows, per_row) = (store.layout.rows, store.layout.units_per_row);
        loop {
            let reclaim = &self.reclaim;
            let (row, reads) = (reclaim.next_move, reclaim.reads);
            if row == rows || reclaim.had_chance.is_none() {
                self.reclaim.moving = reads > 0;
                return;
            }
            self.reclaim.moving = true;
            if reads == READS {
                return;
            }
            let first = store.layout.ppn(victim, row, 0);
            let valid = store.valid_bits.row(first, per_row);
            let chances = if self.has_room_in_log(store) { self.reclaim.chances } else { 0 };
            let reclaim = &self.reclaim;
            let had_chance = reclaim.had_chance.as_ref().map_or(valid, |bits| bits.row(first, per_row));
            let warm = (0..per_row).filter(|unit| (valid & !had_chance) >> unit & 1 == 1);
            let warm = warm.take(chances as usize).fold(0u64, |all, unit| all | 1 << unit);
            let mut cold = valid & !warm;
            if cold != 0 && self.isolation_lags(store) {
                return; // Until merges have made room.
            }
            if cold != 0 && !self.has_room_in_isolation(store) {
                cold = 0; // Merged where they are.
            }
            let reclaim = &mut self.reclaim;
            reclaim.next_move += 1;
            if warm | cold == 0 {
                continue;
            }
            reclaim.reads += 1;
            reclaim.chances -= warm.count_ones();
            if let Some(bits) = &mut reclaim.had_chance {
                (0..per_row).filter(|unit| cold >> unit & 1 == 1).for_each(|unit| bits.set(first + unit));
            }
            let die = store.layout.die_of(victim);
            store.flash.enqueue(clock.now, clock.events, Source::CollectRead, die, victim, row, warm | cold, MOVE);
        }
    }

    /// Whether the log takes another row without a superblock that merges need.
    fn has_room_in_log<M: Medium>(&self, store: &Store<M>) -> bool {
        self.random_row != NONE
            || self.points.iter().any(|&point| point != NONE)
            || store.space.free_superblocks > RESERVE
    }

    /// Units of the victim have been read: what is still valid goes to the end of the log, or to the isolation area.
    pub fn on_victim_read<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, operation: &Operation) {
        let mut left = operation.units;
        while left != 0 {
            let unit = left.trailing_zeros();
            left &= left - 1;
            let Some((ppn, _, lpn)) = store.still_valid(operation, unit) else { continue };
            let stamp = store.stamp(lpn).filter(|_| store.stamps).map_or((0, 0), |s| (s.version, s.sequence));
            let is_cold = self.reclaim.had_chance.as_ref().is_some_and(|bits| bits.get(ppn));
            let row = if is_cold {
                self.has_room_in_isolation(store).then(|| self.isolated_row(store))
            } else {
                self.has_room_in_log(store).then(|| self.any_random_row(store)).flatten()
            };
            // Then it is merged.
            let Some(row) = row else { continue };
            store.statistics.collected += 1;
            if is_cold {
                store.statistics.units_isolated += 1;
            } else {
                store.statistics.second_chances += 1;
                let r = &store.rows.staged[row as usize];
                let to = store.layout.ppn(r.superblock, r.row, r.count);
                if let Some(bits) = &mut self.reclaim.had_chance {
                    bits.set(to);
                }
            }
            let full = store.put(row, lpn, stamp, Owner::None);
            store.rows.set_origin(row, Origin::Copy(store.place_of(ppn)));
            if full {
                self.submit(store, clock, row);
            }
        }
        self.reclaim.reads -= 1;
        self.go_on_merging(store, clock);
    }

    /// The logical block whose data block is left behind in wear by more than the allowed gap, now and then.
    fn coldest_block<M: Medium>(&mut self, store: &mut Store<M>) -> Option<u32> {
        let gap = store.profile.wear_gap;
        let most = store.space.dies.iter().map(|d| d.erases_max).max()?;
        if gap == 0 || most <= gap || !self.reclaim.victims.is_multiple_of(WEAR_LOOK) {
            return None;
        }
        let from = std::mem::take(&mut self.reclaim.wear_next);
        let end = (from + WEAR_BLOCKS).min(self.data.len());
        self.reclaim.wear_next = if end == self.data.len() { 0 } else { end };
        let erases = |superblock: u32| store.space.superblocks[superblock as usize].erases;
        let cold = (from..end).filter(|&block| {
            let superblock = self.data[block];
            superblock != NONE && most.saturating_sub(erases(superblock)) > gap && !self.is_merging(block as u32)
        });
        cold.min_by_key(|&block| erases(self.data[block])).map(|block| block as u32)
    }
}
