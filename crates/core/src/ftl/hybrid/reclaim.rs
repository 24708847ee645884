//! Reclaiming RW log blocks, oldest first, and static wear levelling.
//!
//! FAST merges every logical block that has a unit in the victim. FASTer gives units that are in a victim for the first
//! time a second chance: they go to the log's end, where overwriting may spare their merge; those that were there
//! already are cold, and go to the isolation area (`isolation`). Of a victim at most half gets a second chance, so that
//! every victim gives space back: the paper leaves open what happens when nearly all of the log is valid. The rest
//! counts as cold.

use super::{Ftl, Hybrid};
use crate::events::EventQueue;
use crate::flash::{NONE, Operation, Source};
use crate::ftl::{NOT_A_CANDIDATE, State, ValidBits};
use crate::layout::Layout;
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Origin};

/// The owner of reads of what moves within the log: no merge has it.
pub(super) const MOVE: u32 = u32::MAX;
/// Rows of a victim read ahead, of what moves within the log.
const READS: u32 = 2;
/// Static wear levelling looks once in so many victims, at so many data blocks in turn.
const WEAR_LOOK: u64 = 8;
const WEAR_BLOCKS: usize = 2_048;

/// The RW log block that is being reclaimed.
#[derive(Clone, Debug)]
pub(super) struct Reclaim {
    /// It, or [`NONE`].
    victim: u32,
    /// The row to look at next.
    row: u32,
    /// All logical blocks in it are being merged: there is nothing to start before one of them is.
    exhausted: bool,
    /// Units are being moved, or wait for room where they go: until they are gone nothing is merged for the victim.
    moving: bool,
    /// Reads of them under way.
    reads: u32,
    /// Units that may still get a second chance.
    chances: u32,
    /// Rows before this one have been looked at for units to move.
    next_move: u32,
    /// One bit for each physical unit: it was put there for its second chance, or goes to the isolation area. `None`:
    /// nothing gets a second chance.
    had_chance: Option<ValidBits>,
    victims: u64,
    /// A victim has ended since static wear levelling looked.
    looks_for_wear: bool,
    /// The data block that static wear levelling looks at next.
    wear_next: usize,
}

impl Reclaim {
    /// Nothing is being reclaimed.
    pub(super) fn new(had_chance: Option<ValidBits>) -> Reclaim {
        Reclaim {
            victim: NONE,
            row: 0,
            exhausted: false,
            moving: false,
            reads: 0,
            chances: 0,
            next_move: 0,
            had_chance,
            victims: 0,
            looks_for_wear: false,
            wear_next: 0,
        }
    }

    /// A merge has ended.
    pub(super) fn on_merged(&mut self) {
        self.exhausted = false;
    }

    /// What is written to a superblock from now on has had no second chance.
    pub(super) fn forget_chances(&mut self, layout: &Layout, superblock: u32) {
        let Some(bits) = &mut self.had_chance else { return };
        for row in 0..layout.rows {
            (0..layout.units_per_row).for_each(|unit| bits.clear(layout.ppn(superblock, row, unit)));
        }
    }
}

impl<M: Medium> Ftl<M> {
    /// Takes reclaiming as far as it gets without a merge: chooses a victim, moves what of it stays in the log, ends
    /// it.
    pub(super) fn go_on_reclaiming(&mut self, now: Instant, events: &mut EventQueue) {
        loop {
            let Reclaim { victim, reads, .. } = self.hybrid().reclaim;
            if victim == NONE {
                if !self.choose_log_victim() {
                    return;
                }
            } else if self.valid[victim as usize] & !NOT_A_CANDIDATE == 0 && reads == 0 {
                self.end_reclaim(now, events, victim);
            } else {
                return self.move_units(now, events, victim);
            }
        }
    }

    /// Merges the next logical block that wear levelling, the isolation area or the victim has. False: there is nothing
    /// to do now, or no room.
    pub(super) fn reclaim_next(&mut self, now: Instant, events: &mut EventQueue, slot: usize) -> bool {
        if std::mem::take(&mut self.hybrid().reclaim.looks_for_wear)
            && let Some(block) = self.coldest_block()
        {
            let merges = self.merge_fully(now, events, slot, block);
            self.statistics.wear_moves += u64::from(merges);
            return merges;
        }
        if self.merge_isolated(now, events, slot) {
            return true;
        }
        let Reclaim { victim, row, moving, exhausted, .. } = self.hybrid().reclaim;
        if victim == NONE || moving || exhausted {
            return false;
        }
        let Some((row, block)) = self.next_block_of(victim, row) else {
            self.hybrid().reclaim.exhausted = true;
            return false;
        };
        self.hybrid().reclaim.row = row;
        self.merge_fully(now, events, slot, block)
    }

    /// The oldest RW log block becomes the victim when only the ones that are being filled are left before the limit.
    fn choose_log_victim(&mut self) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        if (hybrid.log.len() + hybrid.points.len()) as u32 <= self.log_limit(hybrid) {
            return false;
        }
        let Some(&oldest) = hybrid.log.front().filter(|&&s| self.superblocks[s as usize].state == State::Closed) else {
            return false;
        };
        let half = self.layout.units_per_superblock / 2;
        self.superblocks[oldest as usize].state = State::Victim;
        self.valid[oldest as usize] |= NOT_A_CANDIDATE;
        self.statistics.collections += 1;
        let Hybrid { reclaim, .. } = self.hybrid();
        reclaim.victim = oldest;
        reclaim.row = 0;
        reclaim.exhausted = false;
        reclaim.chances = if reclaim.had_chance.is_some() { half } else { 0 };
        reclaim.next_move = 0;
        reclaim.moving = false;
        reclaim.victims += 1;
        true
    }

    fn end_reclaim(&mut self, now: Instant, events: &mut EventQueue, victim: u32) {
        let hybrid = self.hybrid();
        hybrid.reclaim.victim = NONE;
        hybrid.reclaim.looks_for_wear = true;
        let oldest = hybrid.log.pop_front();
        assert_eq!(oldest, Some(victim), "the oldest RW log block is the victim");
        self.unstick();
        self.drain(now, events, victim);
        self.erase_drained(now, events);
    }

    /// The next logical block that has a unit in a superblock of the log and is not being merged, with the unit's row;
    /// from a row on.
    pub(super) fn next_block_of(&self, superblock: u32, from: u32) -> Option<(u32, u32)> {
        let per_page = self.layout.units_per_page;
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        // From the top again, for merges that failed.
        for row in (from..self.layout.rows).chain(0..from) {
            let mut units = self.valid_bits.row(self.layout.ppn(superblock, row, 0), self.layout.units_per_row);
            while units != 0 {
                let unit = units.trailing_zeros();
                units &= units - 1;
                let lpn = self.medium.lpn(self.layout.block(superblock, unit / per_page), row, unit % per_page);
                let block = lpn / self.layout.units_per_superblock;
                if !hybrid.is_merging(block) {
                    return Some((row, block));
                }
            }
        }
        None
    }

    /// Reads what of the victim gets a second chance, and what is cold and goes to the isolation area.
    fn move_units(&mut self, now: Instant, events: &mut EventQueue, victim: u32) {
        let (rows, per_row) = (self.layout.rows, self.layout.units_per_row);
        loop {
            let reclaim = &self.hybrid().reclaim;
            let (row, reads) = (reclaim.next_move, reclaim.reads);
            if row == rows || reclaim.had_chance.is_none() {
                self.hybrid().reclaim.moving = reads > 0;
                return;
            }
            self.hybrid().reclaim.moving = true;
            if reads == READS {
                return;
            }
            let first = self.layout.ppn(victim, row, 0);
            let valid = self.valid_bits.row(first, per_row);
            let chances = if self.has_room_in_log() { self.hybrid().reclaim.chances } else { 0 };
            let reclaim = &self.hybrid().reclaim;
            let had_chance = reclaim.had_chance.as_ref().map_or(valid, |bits| bits.row(first, per_row));
            let warm = (0..per_row).filter(|unit| (valid & !had_chance) >> unit & 1 == 1);
            let warm = warm.take(chances as usize).fold(0u64, |all, unit| all | 1 << unit);
            let mut cold = valid & !warm;
            if cold != 0 && self.isolation_lags() {
                return; // Until merges have made room.
            }
            if cold != 0 && !self.has_room_in_isolation() {
                cold = 0; // Merged where they are.
            }
            let reclaim = &mut self.hybrid().reclaim;
            reclaim.next_move += 1;
            if warm | cold == 0 {
                continue;
            }
            reclaim.reads += 1;
            reclaim.chances -= warm.count_ones();
            if let Some(bits) = &mut reclaim.had_chance {
                (0..per_row).filter(|unit| cold >> unit & 1 == 1).for_each(|unit| bits.set(first + unit));
            }
            let die = self.layout.die_of(victim);
            self.flash.enqueue(now, events, Source::CollectRead, die, victim, row, warm | cold, MOVE);
        }
    }

    /// Whether the log takes another row without a superblock that merges need.
    fn has_room_in_log(&self) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        hybrid.random_row != NONE
            || hybrid.points.iter().any(|&point| point != NONE)
            || self.free_superblocks > super::RESERVE
    }

    /// Units of the victim have been read: what is still valid goes to the end of the log, or to the isolation area.
    pub(super) fn on_victim_read(&mut self, now: Instant, events: &mut EventQueue, operation: &Operation) {
        let mut left = operation.units;
        while left != 0 {
            let unit = left.trailing_zeros();
            left &= left - 1;
            let Some((ppn, _, lpn)) = self.still_valid(operation, unit) else { continue };
            let stamp = self.stamp(lpn).filter(|_| self.stamps).map_or((0, 0), |s| (s.version, s.sequence));
            let is_cold = self.hybrid().reclaim.had_chance.as_ref().is_some_and(|bits| bits.get(ppn));
            let row = if is_cold {
                self.has_room_in_isolation().then(|| self.isolated_row())
            } else {
                self.has_room_in_log().then(|| self.any_random_row()).flatten()
            };
            // Then it is merged.
            let Some(row) = row else { continue };
            self.statistics.collected += 1;
            if is_cold {
                self.statistics.isolated += 1;
            } else {
                self.statistics.second_chances += 1;
                let r = &self.rows[row as usize];
                let to = self.layout.ppn(r.superblock, r.row, r.count);
                if let Some(bits) = &mut self.hybrid().reclaim.had_chance {
                    bits.set(to);
                }
            }
            let full = self.put(row, lpn, stamp, Owner::None);
            self.set_origin(row, Origin::Copy(self.place_of(ppn)));
            if full {
                self.submit(now, events, row);
            }
        }
        self.hybrid().reclaim.reads -= 1;
        self.go_on_merging(now, events);
    }

    /// The logical block whose data block is left behind in wear by more than the allowed gap, now and then.
    fn coldest_block(&mut self) -> Option<u32> {
        let gap = self.profile.wear_gap;
        let most = self.dies.iter().map(|d| d.erases_max).max()?;
        let hybrid = self.hybrid.as_deref_mut().expect("only called under hybrid mapping");
        if gap == 0 || most <= gap || !hybrid.reclaim.victims.is_multiple_of(WEAR_LOOK) {
            return None;
        }
        let from = std::mem::take(&mut hybrid.reclaim.wear_next);
        let end = (from + WEAR_BLOCKS).min(hybrid.data.len());
        hybrid.reclaim.wear_next = if end == hybrid.data.len() { 0 } else { end };
        let erases = |superblock: u32| self.superblocks[superblock as usize].erases;
        let cold = (from..end).filter(|&block| {
            let superblock = hybrid.data[block];
            superblock != NONE && most.saturating_sub(erases(superblock)) > gap && !hybrid.is_merging(block as u32)
        });
        cold.min_by_key(|&block| erases(hybrid.data[block])).map(|block| block as u32)
    }
}
