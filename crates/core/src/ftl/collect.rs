//! Garbage collection and static wear levelling: within a die, a row at a time.

use super::{DieSpace, Entry, Ftl, NOT_A_CANDIDATE, State, Stream};
use crate::events::EventQueue;
use crate::flash::{NONE, Operation, Source, count_units};
use crate::layout::Layout;
use crate::profile::GcVictim;
use std::cmp::Reverse;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Origin, Place};

/// Fractions of a unit that credit is counted in.
pub(super) const CREDIT: i64 = 256;
/// Reads of collection under way on one die: one on the array while the other is on the bus.
const READS: u32 = 2;
/// Rows of collected data that may wait on a die beyond the host's.
const ROWS_AHEAD: u32 = 2;
/// Host rows that collection may be behind on a die.
const BEHIND: i64 = 2;
/// Units moved for each unit the host writes, at most: a victim chosen for its wear or its failure may be all valid.
const RATIO_MAX: i64 = 32;
/// Superblocks among which the one with the least to move is looked for at a time.
const CHUNK: usize = 64;
/// Static wear levelling looks at the wear of a die once in so many victims: it walks all superblocks.
const WEAR_LOOK: u32 = 8;

/// The lowest of the bits that are set, `n` at most; and how many these are.
#[inline]
fn lowest(of: u64, n: u32) -> (u64, u32) {
    let count = count_units(of);
    if count <= n {
        return (of, count);
    }
    let rest = (0..n).fold(of, |rest, _| rest & (rest - 1));
    (of & !rest, n)
}

/// The numbers of the bits that are set, from the lowest.
#[inline]
fn bits(mut of: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (of != 0).then(|| of.trailing_zeros());
        of &= of.wrapping_sub(1);
        bit
    })
}

/// Tells these units of a row, of which there is at least one, with the logical page of each.
#[inline(always)]
fn each_lpn<M: Medium, const SINGLE: bool>(
    layout: &Layout,
    medium: &M,
    die: u32,
    superblock: u32,
    row: u32,
    units: u64,
    mut tell: impl FnMut(u32, u32),
) {
    if SINGLE {
        // There is nothing to look through.
        return tell(0, medium.lpn(layout.block_on(die, superblock, 0), row, 0));
    }
    let per_page = layout.units_per_page;
    let page = u64::MAX >> (u64::BITS - per_page);
    let mut first = 0;
    for plane in 0..layout.planes() {
        let of_page = units >> first & page;
        if of_page != 0 {
            let lpns = medium.lpns(layout.block_on(die, superblock, plane), row);
            bits(of_page).for_each(|unit| tell(first + unit, lpns[unit as usize]));
        }
        first += per_page;
    }
}

impl<M: Medium> Ftl<M> {
    /// The host has written a row to this die: collection may move as much as frees the same space again, and half as
    /// much more for each superblock that is missing, so that it ends up neither ahead nor behind.
    pub(super) fn pace_collection(&mut self, now: Instant, events: &mut EventQueue, die: u32, units: u32) {
        let start = self.profile.gc_start as usize;
        let space = &mut self.dies[die as usize];
        if space.free_beyond() > start {
            return;
        }
        let missing = (start - space.free_beyond()) as i64;
        space.credit += i64::from(units) * space.ratio * (2 + missing) / 2;
        self.collect(now, events, die);
        self.update_ready(die);
    }

    /// Whether collection on a die is behind what the host's writes were to pay for: then the host waits, a little each
    /// time, instead of long once the last superblock is gone.
    #[inline]
    pub(super) fn is_behind(&self, space: &DieSpace) -> bool {
        space.credit > space.behind && space.free_beyond() <= self.profile.gc_start as usize
    }

    #[inline]
    fn may_collect(&self, die: u32, space: &DieSpace) -> bool {
        if !space.failed.is_empty() {
            return true;
        }
        let free = space.free_beyond() as u32;
        free <= self.profile.gc_start
            && (space.credit > 0 || free <= self.profile.gc_reserve || space.ratio == 0 || self.flash.is_idle(die))
    }

    /// Collects on a die as far as it may now.
    #[inline]
    pub(super) fn collect(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        if self.hybrid.is_some() {
            return self.go_on_merging(now, events);
        }
        // Most often as many reads are under way as may be.
        if self.dies[die as usize].reads < READS {
            if self.layout.has_single_rows() {
                self.go_on_collecting::<true>(now, events, die);
            } else {
                self.go_on_collecting::<false>(now, events, die);
            }
        }
    }

    #[inline(never)]
    fn go_on_collecting<const SINGLE: bool>(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        self.collect_rows::<SINGLE>(now, events, die);
    }

    #[inline(always)]
    fn collect_rows<const SINGLE: bool>(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        if self.emergency || self.recovery.is_some() {
            return;
        }
        while self.dies[die as usize].reads < READS && self.collect_row::<SINGLE>(now, events, die) {}
    }

    /// Reads the next row of a die's victim, or does what stands before that. False: it can do nothing now.
    #[inline(always)]
    fn collect_row<const SINGLE: bool>(&mut self, now: Instant, events: &mut EventQueue, die: u32) -> bool {
        if self.map_cache.as_ref().is_some_and(|cache| cache.holds_collection_back()) {
            return false; // It goes on when changed entries have found their pages.
        }
        if self.dies[die as usize].victim == NONE && !self.take_victim(now, events, die) {
            return false;
        }
        let space = &self.dies[die as usize];
        let &DieSpace { victim, reads, .. } = space;
        if self.valid[victim as usize] & !NOT_A_CANDIDATE == 0 {
            if reads == 0 {
                self.end_collection(now, events, die);
            }
            return reads == 0;
        }
        let programs = self.flash.programs(die);
        if programs >= self.programs_per_die + ROWS_AHEAD {
            return false;
        }
        let s = &self.superblocks[victim as usize];
        let may = s.failed || self.may_collect(die, space);
        // A die that must fold ends what it has begun, whatever that is: it has one victim at a time, and a host that
        // waits for folding writes nothing that would pay for another.
        if !(may || self.slc.is_some() && self.must_fold(die)) {
            return false;
        }
        // `None`: the rest of what is valid is being read.
        let Some((row, units)) = self.next_victim_row::<SINGLE>(space) else { return false };
        if !self.has_room_to_collect(die, space) {
            // What only folding wants moved stays where it is for now.
            if may {
                self.wait_for_room(now, events, die);
            }
            return false;
        }
        self.read_victim_row::<SINGLE>(now, events, die, programs, row, units);
        true
    }

    /// Begins to collect another superblock of a die. False: there is none, or collection may not go on.
    #[inline(never)]
    fn take_victim(&mut self, now: Instant, events: &mut EventQueue, die: u32) -> bool {
        let may = self.may_collect(die, &self.dies[die as usize]);
        let victim = if may { self.choose_victim(die) } else { None };
        let victim = victim.or_else(|| self.choose_fold(die));
        if let Some(victim) = victim {
            self.begin_collection(die, victim);
        } else if may {
            // Credit must not pile up while there is nothing to collect.
            self.dies[die as usize].credit = 0;
            self.starve(die);
            self.update_ready(die);
            self.pad_collected_row(now, events, die);
        } else if self.must_fold(die) {
            self.pad_collected_row(now, events, die);
        }
        victim.is_some()
    }

    /// Collection on a die can do nothing.
    pub(super) fn starve(&mut self, die: u32) {
        self.starved += u32::from(!std::mem::replace(&mut self.dies[die as usize].starved, true));
    }

    /// A unit of a die has become invalid: if it was starved, it is no more. Nothing else may ever happen on it, so
    /// [`Ftl::wake_collection`] must be called before long.
    #[cold]
    pub(super) fn wake_if_starved(&mut self, die: u32) {
        if std::mem::replace(&mut self.dies[die as usize].starved, false) {
            self.starved -= 1;
            self.wake.push(die);
        }
    }

    /// Goes on with collection where something other than an operation of the die has given it a reason.
    pub fn wake_collection(&mut self, now: Instant, events: &mut EventQueue) {
        if !self.wake.is_empty() {
            for die in std::mem::take(&mut self.wake) {
                self.collect(now, events, die);
            }
        }
        if self.map_cache.is_some() {
            self.move_map_pages(now, events);
        }
    }

    fn begin_collection(&mut self, die: u32, victim: u32) {
        if self.is_slc(victim) {
            self.take_from_slc(victim);
            self.statistics.folds += 1;
        } else {
            self.statistics.collections += 1;
        }
        let valid = self.valid[victim as usize] & !NOT_A_CANDIDATE;
        self.go_on_with_victim(die, victim, 0, valid);
    }

    /// A die collects this superblock from a row on. So many of its units were valid when that began.
    pub(super) fn go_on_with_victim(&mut self, die: u32, victim: u32, row: u32, valid: u32) {
        let (all, valid) = (i64::from(self.layout.units_per_superblock), i64::from(valid));
        self.superblocks[victim as usize].state = State::Victim;
        self.valid[victim as usize] |= NOT_A_CANDIDATE;
        let space = &mut self.dies[die as usize];
        space.victim = victim;
        space.victim_row = row;
        // At least something, or a drive of empty superblocks would look as if none had been chosen yet.
        space.ratio = (valid * CREDIT / (all - valid).max(1)).clamp(1, RATIO_MAX * CREDIT);
        space.behind = BEHIND * space.ratio * i64::from(self.layout.units_per_row);
        // What was owed to the last victim is not owed to this one beyond its own units: a die must not look behind for
        // a whole victim because the one before it was full.
        space.credit = space.credit.min(valid * CREDIT);
    }

    /// The next row of the victim that holds valid units.
    #[inline(always)]
    fn next_victim_row<const SINGLE: bool>(&self, space: &DieSpace) -> Option<(u32, u64)> {
        let &DieSpace { victim, victim_row, .. } = space;
        let units_per_row = self.layout.row_units::<SINGLE>();
        (victim_row..self.layout.rows).find_map(|row| {
            let units = self.valid_bits.row(self.layout.ppn(victim, row, 0), units_per_row);
            (units != 0).then_some((row, units))
        })
    }

    #[inline(always)]
    fn read_victim_row<const SINGLE: bool>(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        die: u32,
        programs: u32,
        row: u32,
        units: u64,
    ) {
        // In a row of one unit all that is valid is one.
        let units = if SINGLE { 1 } else { units };
        let space = &mut self.dies[die as usize];
        let victim = space.victim;
        space.victim_row = row + 1;
        space.reads += 1;
        let fold = self.slc.as_ref().is_some_and(|slc| slc.is_folding())
            && self.superblocks[victim as usize].stream == Stream::Slc;
        // What is folded while the host is quiet is not owed to what it wrote.
        space.credit -= if fold { 0 } else { i64::from(count_units(units)) * CREDIT };
        self.update_ready_by(die, programs);
        if units.is_power_of_two() {
            // One entry is kept until it is needed, and the transfer of one unit is too short to ask for it then.
            let prefetch = |_, lpn| self.map.prefetch(lpn);
            each_lpn::<M, SINGLE>(&self.layout, &self.medium, die, victim, row, units, prefetch);
        }
        let source = if fold { Source::FoldRead } else { Source::CollectRead };
        self.flash.enqueue(now, events, source, die, victim, row, units, die);
    }

    /// The array of a die has read what it was to read: if several units of a victim's row, their map entries are
    /// needed once these have been moved to the controller, some events from now; those asked for earlier would have
    /// left the cache by then. A hint that changes nothing but speed.
    #[inline(always)]
    pub(super) fn expect_copies(&self, die: u32) {
        if self.dies[die as usize].reads > 0
            && let Some(operation) = self.flash.in_array(die)
            && operation.unit_count > 1
            && matches!(operation.source, Source::CollectRead | Source::FoldRead)
        {
            let &Operation { superblock, row, units, .. } = operation;
            let prefetch = |_, lpn| self.map.prefetch(lpn);
            each_lpn::<M, false>(&self.layout, &self.medium, die, superblock, row, units, prefetch);
        }
    }

    /// A row of a victim has been read: what is still valid goes to the die's row of collected data.
    #[inline(never)]
    pub(super) fn on_collect_read<const SINGLE: bool>(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        operation: u32,
    ) {
        // A copy: what is queued may take its place.
        let operation = *self.flash.operation(operation);
        let &Operation { die, superblock, .. } = &operation;
        // What was overwritten, lost or moved while it was read stays behind. Moving one makes no other invalid.
        let first = self.layout.ppn(superblock, operation.row, 0);
        let units_per_row = self.layout.row_units::<SINGLE>();
        let read = if SINGLE { 1 } else { operation.units };
        let valid = read & self.valid_bits.row(first, units_per_row);
        let (mut moved, mut left) = (0, valid);
        while left != 0 {
            // In their order: what goes to a row at once ends before a unit that is lost.
            let lost = left & operation.uncorrectable;
            let readable = left & (lost & lost.wrapping_neg()).wrapping_sub(1);
            if readable == 0 {
                let ppn = first + left.trailing_zeros();
                left &= left - 1;
                let place = self.place_of(ppn);
                self.lose(self.medium.lpn(place.at, place.page, place.unit), ppn);
                continue;
            }
            let Some(row) = self.row_for_copies::<SINGLE>(die) else {
                // So many programs failed that no superblock is left: what is valid stays where it is for now.
                let space = &mut self.dies[die as usize];
                space.victim_row = space.victim_row.min(operation.row);
                break;
            };
            let (units, count) =
                if SINGLE { (1, 1) } else { lowest(readable, units_per_row - self.rows[row as usize].count) };
            left &= !units;
            moved += u64::from(count);
            match self.put_copies::<SINGLE>(row, &operation, first, units, count) {
                Some((Stream::Collected, superblock, index)) if SINGLE => {
                    self.program_row(now, events, row, Stream::Collected, die, superblock, index);
                }
                Some(_) => self.submit(now, events, row),
                None => {}
            }
        }
        if self.slc.is_some() && self.is_slc(superblock) {
            self.statistics.folded += moved;
        } else {
            self.statistics.collected += moved;
        }
        // Not before: until its units are elsewhere the victim must not be done with.
        self.dies[die as usize].reads -= 1;
        self.collect_rows::<SINGLE>(now, events, die);
    }

    /// Puts so many valid units of a row that was read, the first unit of which is `first`, into another row that has
    /// room for all, and moves their map entries. As [`Ftl::put`] for each, but they leave one superblock for one
    /// other. If it is full now, its stream, superblock and number there.
    #[inline(always)]
    fn put_copies<const SINGLE: bool>(
        &mut self,
        row: u32,
        operation: &Operation,
        first: u32,
        units: u64,
        count: u32,
    ) -> Option<(Stream, u32, u32)> {
        let superblock = operation.superblock;
        let r = &mut self.rows[row as usize];
        let (number, stream, into, index) = (r.number, r.stream, r.superblock, r.row);
        let unit = if SINGLE { 0 } else { r.count };
        debug_assert_eq!(unit, r.count);
        r.count = unit + count;
        let units_per_row = self.layout.row_units::<SINGLE>();
        let full = unit + count == units_per_row;
        let to = self.layout.ppn(into, index, unit);
        let at = (row * units_per_row + unit) as usize;
        let mut moved = 0;
        each_lpn::<M, SINGLE>(
            &self.layout,
            &self.medium,
            operation.die,
            superblock,
            operation.row,
            units,
            |unit, lpn| {
                let place = at + moved as usize;
                (self.row_lpns[place], self.row_previous[place]) = (lpn, first + unit);
                debug_assert_eq!(self.map.get(lpn), Entry::At(first + unit), "a valid unit is what its page maps to");
                self.map.redirect(lpn, to + moved);
                moved += 1;
            },
        );
        if self.stamps {
            self.stamp_copies(at, first, units);
        }
        self.valid_bits.clear_row(first, units);
        self.valid_bits.set_row(to, if SINGLE { 1 } else { u64::MAX >> (u64::BITS - count) });
        self.valid[superblock as usize] -= count;
        self.valid[into as usize] += count;
        let s = &mut self.superblocks[superblock as usize];
        match stream {
            Stream::Collected => s.collect_hazard = s.collect_hazard.max(number),
            Stream::Host => s.host_hazard = s.host_hazard.max(number),
            _ => {}
        }
        if self.starved > 0 {
            let die = u32::from(s.die);
            self.wake_if_starved(die);
        }
        full.then_some((stream, into, index))
    }

    /// Copies that are put into a row from the place `at` on are stamped as their originals.
    #[inline(never)]
    fn stamp_copies(&mut self, at: usize, first: u32, units: u64) {
        for (unit, at) in bits(units).zip(at..) {
            self.row_stamps[at] = self.stamp_of_copy(first + unit);
            if self.payload {
                self.row_origins[at] = Origin::Copy(self.place_of(first + unit));
            }
        }
    }

    /// The row that collected data of a die goes to next, opened if need be.
    #[inline(always)]
    fn row_for_copies<const SINGLE: bool>(&mut self, die: u32) -> Option<u32> {
        let row = if self.profile.gc_stream { self.collected_row::<SINGLE>(die) } else { None };
        row.or_else(|| self.any_host_row(die))
    }

    /// A unit of a row that was read: where it is, and whose. `None`: it was overwritten, lost or moved while it was
    /// read.
    #[inline]
    pub(super) fn still_valid(&self, operation: &Operation, unit: u32) -> Option<(u32, Place, u32)> {
        let ppn = self.layout.ppn(operation.superblock, operation.row, unit);
        if !self.valid_bits.get(ppn) {
            return None;
        }
        let place = self.place_of(ppn);
        Some((ppn, place, self.medium.lpn(place.at, place.page, place.unit)))
    }

    /// What a copy of a unit on flash is stamped with: version and sequence; zeroes where stamps are not kept.
    #[inline]
    pub(super) fn stamp_of_copy(&self, ppn: u32) -> (u64, u64) {
        let stamp = if self.stamps { self.stamp_at(ppn) } else { None };
        stamp.map_or((0, 0), |s| (s.version, s.sequence))
    }

    /// All that was valid has left the victim: it is erased once that is programmed.
    fn end_collection(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        let victim = std::mem::replace(&mut self.dies[die as usize].victim, NONE);
        self.superblocks[victim as usize].state = State::Draining;
        self.draining.push(victim);
        if !self.checkpoint.is_logged(self.superblocks[victim as usize].log_hazard) {
            self.log_deallocations(now, events);
        }
        self.erase_drained(now, events);
    }

    /// Nothing more can be collected: the units that wait for company are programmed without it, if a superblock waits
    /// for them.
    pub(super) fn pad_collected_row(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        let row = self.dies[die as usize].collect_row;
        if row != NONE
            && self.rows[row as usize].count > 0
            && self.draining.iter().any(|&s| u32::from(self.superblocks[s as usize].die) == die)
        {
            self.submit(now, events, row);
        }
    }

    /// Erases the superblocks whose data is safe elsewhere.
    pub(super) fn erase_drained(&mut self, now: Instant, events: &mut EventQueue) {
        let mut i = 0;
        while i < self.draining.len() {
            let superblock = self.draining[i];
            let s = &self.superblocks[superblock as usize];
            let die = u32::from(s.die);
            // What is most often still under way is asked first.
            if self.dies[die as usize].collected.is_settled(s.collect_hazard)
                && self.host_rows.is_settled(s.host_hazard)
                && self.log_rows.is_settled(s.log_row_hazard)
                && self.programmed[superblock as usize] == s.rows
                && self.checkpoint.is_logged(s.log_hazard)
            {
                self.draining.swap_remove(i);
                self.queue_erase(now, events, superblock);
            } else {
                i += 1;
            }
        }
    }

    pub(super) fn queue_erase(&mut self, now: Instant, events: &mut EventQueue, superblock: u32) {
        let s = &mut self.superblocks[superblock as usize];
        s.state = State::Erasing;
        let die = u32::from(s.die);
        self.flash.enqueue(now, events, Source::Erase, die, superblock, 0, 0, superblock);
    }

    /// An erase is done: the superblock is free again, or out of use.
    pub(super) fn on_erased(&mut self, now: Instant, events: &mut EventQueue, operation: u32) {
        let &Operation { die, superblock, .. } = self.flash.operation(operation);
        debug_assert_eq!(self.valid[superblock as usize] & !NOT_A_CANDIDATE, 0);
        if self.erase_planes(superblock) {
            let planes = 0..self.layout.planes();
            let erases = planes.map(|p| self.medium.erase_count(self.layout.block(superblock, p))).max();
            self.superblocks[superblock as usize].erases = erases.unwrap_or(0);
            self.leave_slc(superblock);
            self.put_free(superblock);
        } else {
            self.leave_slc(superblock);
            self.retire(superblock);
        }
        if self.superblocks[superblock as usize].stream == Stream::Mapping {
            self.on_mapping_erased(now, events, die, superblock);
        }
        self.update_ready(die);
        self.log_deallocations(now, events);
        self.collect(now, events, die);
        if self.starved > 0 {
            // What they collect may go to any die.
            (0..self.layout.dies).for_each(|die| self.wake_if_starved(die));
            self.wake_collection(now, events);
        }
    }

    /// The superblock to collect next on a die. `None`: none would give space back.
    fn choose_victim(&mut self, die: u32) -> Option<u32> {
        if let Some(failed) = self.dies[die as usize].failed.pop() {
            return Some(failed);
        }
        let first = die * self.layout.superblocks_per_die;
        let range = first as usize..(first + self.layout.superblocks_per_die) as usize;
        let space = &mut self.dies[die as usize];
        space.victims += 1;
        if self.profile.wear_gap > 0
            && space.victims.is_multiple_of(WEAR_LOOK)
            && let Some(cold) = self.coldest(die, range.clone())
        {
            self.statistics.wear_moves += 1;
            return Some(cold);
        }
        let victim = self.choose_by_policy(die, range);
        match self.slc_in_the_way(die) {
            Some(slc)
                if victim.is_none_or(|v| self.valid[slc as usize] & !NOT_A_CANDIDATE <= self.valid[v as usize]) =>
            {
                Some(slc)
            }
            _ => victim,
        }
    }

    fn choose_by_policy(&self, die: u32, range: std::ops::Range<usize>) -> Option<u32> {
        let first = die * self.layout.superblocks_per_die;
        let victim = match self.profile.gc_victim {
            GcVictim::Greedy => {
                // The least is looked for many at a time, its place is not: first which of the chunks it is in.
                let chunks = self.valid[range].chunks(CHUNK).map(|valid| valid.iter().copied().min());
                let (i, least) = chunks.enumerate().min_by_key(|&(_, least)| least)?;
                let chunk = first + (i * CHUNK) as u32;
                chunk + self.valid[chunk as usize..].iter().position(|&valid| Some(valid) == least)? as u32
            }
            GcVictim::CostBenefit => {
                let now = self.host_clock;
                let all = f64::from(self.layout.units_per_superblock);
                range
                    .filter(|&i| self.valid[i] & NOT_A_CANDIDATE == 0)
                    .map(|i| {
                        let used = f64::from(self.valid[i]) / all;
                        let age = (now - self.superblocks[i].closed_at) as f64 + 1.0;
                        ((1.0 - used) * age / (2.0 * used).max(1.0 / all), Reverse(i))
                    })
                    .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
                    .map(|(_, Reverse(i))| i as u32)?
            }
        };
        (self.valid[victim as usize] < self.layout.units_per_superblock).then_some(victim)
    }

    /// The least worn full superblock, if it is left behind by more than the allowed gap.
    fn coldest(&self, die: u32, range: std::ops::Range<usize>) -> Option<u32> {
        let space = &self.dies[die as usize];
        if space.free.len() < 2 {
            return None;
        }
        let cold =
            range.filter(|&i| self.valid[i] & NOT_A_CANDIDATE == 0).min_by_key(|&i| self.superblocks[i].erases)?;
        let gap = space.erases_max.saturating_sub(self.superblocks[cold].erases);
        (gap > self.profile.wear_gap).then_some(cold as u32)
    }
}
