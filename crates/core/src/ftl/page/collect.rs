//! Garbage collection and static wear levelling: within a die, a row at a time.

use super::state::{PageDie, PageMapping};
use super::victim;
use crate::flash::{NONE, Operation, Source, count_units};
use crate::ftl::placement::Placement;
use crate::ftl::store::copies::{each_lpn, lowest};
use crate::ftl::store::{Clock, NOT_A_CANDIDATE, State, Store, Stream};
use tidewater_nand::Medium;

/// Fractions of a unit that credit is counted in.
const CREDIT: i64 = 256;
/// Reads of collection under way on one die: one on the array while the other is on the bus.
pub(super) const READS: u32 = 2;
/// Rows of collected data that may wait on a die beyond the host's.
const ROWS_AHEAD: u32 = 2;
/// Host rows that collection may be behind on a die.
const BEHIND: i64 = 2;
/// Units moved for each unit the host writes, at most: a victim chosen for its wear or its failure may be all valid.
const RATIO_MAX: i64 = 32;
/// Static wear levelling looks at the wear of a die once in so many victims: it walks all superblocks.
const WEAR_LOOK: u32 = 8;

impl PageMapping {
    /// The host has written a row to this die: collection may move as much as frees the same space again, and half as
    /// much more for each superblock that is missing, so that it ends up neither ahead nor behind.
    pub fn pace_collection<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32, units: u32) {
        let start = store.profile.gc_start as usize;
        let free = store.space.dies[die as usize].free_beyond();
        if free > start {
            return;
        }
        let d = &mut self.dies[die as usize];
        d.credit += i64::from(units) * d.ratio * (2 + (start - free) as i64) / 2;
        self.collect(store, clock, die);
        self.update_ready(store, die);
    }

    /// Whether collection on a die is behind what the host's writes were to pay for: then the host waits, a little each
    /// time, instead of long once the last superblock is gone.
    #[inline]
    pub fn is_behind<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        let d = &self.dies[die as usize];
        d.credit > d.behind && store.space.dies[die as usize].free_beyond() <= store.profile.gc_start as usize
    }

    #[inline]
    fn may_collect<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        let d = &self.dies[die as usize];
        if !d.failed.is_empty() {
            return true;
        }
        let free = store.space.dies[die as usize].free_beyond() as u32;
        free <= store.profile.gc_start
            && (d.credit > 0 || free <= store.profile.gc_reserve || d.ratio == 0 || store.flash.is_idle(die))
    }

    #[inline(never)]
    pub fn go_on_collecting<M: Medium, const SINGLE: bool>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        die: u32,
    ) {
        self.collect_rows::<M, SINGLE>(store, clock, die);
    }

    #[inline(always)]
    fn collect_rows<M: Medium, const SINGLE: bool>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) {
        if store.emergency || store.recovering {
            return;
        }
        while self.dies[die as usize].reads < READS && self.collect_row::<M, SINGLE>(store, clock, die) {}
    }

    /// Reads the next row of a die's victim, or does what stands before that. False: it can do nothing now.
    #[inline(always)]
    fn collect_row<M: Medium, const SINGLE: bool>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        die: u32,
    ) -> bool {
        if self.map_cache.as_ref().is_some_and(|cache| cache.holds_collection_back()) {
            return false; // It goes on when changed entries have found their pages.
        }
        if self.dies[die as usize].victim == NONE && !self.take_victim(store, clock, die) {
            return false;
        }
        let &PageDie { victim, reads, .. } = &self.dies[die as usize];
        if store.space.valid_units(victim) == 0 {
            if reads == 0 {
                self.end_collection(store, clock, die);
            }
            return reads == 0;
        }
        let programs = store.flash.programs(die);
        if programs >= store.programs_per_die + ROWS_AHEAD {
            return false;
        }
        let s = &store.space.superblocks[victim as usize];
        let may = s.failed || self.may_collect(store, die);
        // A die that must fold ends what it has begun, whatever that is: it has one victim at a time, and a host that
        // waits for folding writes nothing that would pay for another.
        if !(may || self.must_fold(store, die)) {
            return false;
        }
        // `None`: the rest of what is valid is being read.
        let Some((row, units)) = self.next_victim_row::<M, SINGLE>(store, die) else { return false };
        if !self.has_room_to_collect(store, die) {
            // What only folding wants moved stays where it is for now.
            if may {
                self.wait_for_room(store, clock, die);
            }
            return false;
        }
        self.read_victim_row::<M, SINGLE>(store, clock, die, programs, row, units);
        true
    }

    /// Begins to collect another superblock of a die. False: there is none, or collection may not go on.
    #[inline(never)]
    fn take_victim<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) -> bool {
        let may = self.may_collect(store, die);
        let victim = if may { self.choose_victim(store, die) } else { None };
        let victim = victim.or_else(|| self.slc.as_ref()?.choose_fold(&store.space, die));
        if let Some(victim) = victim {
            self.begin_collection(store, die, victim);
        } else if may {
            // Credit must not pile up while there is nothing to collect.
            self.dies[die as usize].credit = 0;
            store.space.starve(die);
            self.update_ready(store, die);
            self.pad_collected_row(store, clock, die);
        } else if self.must_fold(store, die) {
            self.pad_collected_row(store, clock, die);
        }
        victim.is_some()
    }

    /// The host may have been quiet for long enough to fold the SLC cache.
    pub fn on_fold_timer<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if self.slc.as_mut().is_some_and(|slc| slc.on_timer(clock)) {
            (0..store.layout.dies).for_each(|die| self.collect(store, clock, die));
        }
    }

    /// Whether a die is to fold now, in an SLC cache that there is.
    fn must_fold<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.must_fold(&store.space, die))
    }

    fn begin_collection<M: Medium>(&mut self, store: &mut Store<M>, die: u32, victim: u32) {
        if store.space.is_slc(victim) {
            if let Some(slc) = &mut self.slc {
                slc.take(die, victim);
            }
            store.statistics.slc.superblocks_folded += 1;
        } else {
            store.statistics.collections += 1;
        }
        let valid = store.space.valid_units(victim);
        self.go_on_with_victim(store, die, victim, 0, valid);
    }

    /// A die collects this superblock from a row on. So many of its units were valid when that began.
    pub fn go_on_with_victim<M: Medium>(&mut self, store: &mut Store<M>, die: u32, victim: u32, row: u32, valid: u32) {
        let (all, valid) = (i64::from(store.layout.units_per_superblock), i64::from(valid));
        store.space.superblocks[victim as usize].state = State::Victim;
        store.space.valid[victim as usize] |= NOT_A_CANDIDATE;
        let d = &mut self.dies[die as usize];
        d.victim = victim;
        d.victim_row = row;
        // At least something, or a drive of empty superblocks would look as if none had been chosen yet.
        d.ratio = (valid * CREDIT / (all - valid).max(1)).clamp(1, RATIO_MAX * CREDIT);
        d.behind = BEHIND * d.ratio * i64::from(store.layout.units_per_row);
        // What was owed to the last victim is not owed to this one beyond its own units: a die must not look behind for
        // a whole victim because the one before it was full.
        d.credit = d.credit.min(valid * CREDIT);
    }

    /// The next row of the victim that holds valid units.
    #[inline(always)]
    fn next_victim_row<M: Medium, const SINGLE: bool>(&self, store: &Store<M>, die: u32) -> Option<(u32, u64)> {
        let &PageDie { victim, victim_row, .. } = &self.dies[die as usize];
        let units_per_row = store.layout.row_units::<SINGLE>();
        (victim_row..store.layout.rows).find_map(|row| {
            let units = store.valid_bits.row(store.layout.ppn(victim, row, 0), units_per_row);
            (units != 0).then_some((row, units))
        })
    }

    #[inline(always)]
    fn read_victim_row<M: Medium, const SINGLE: bool>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        die: u32,
        programs: u32,
        row: u32,
        units: u64,
    ) {
        // In a row of one unit all that is valid is one.
        let units = if SINGLE { 1 } else { units };
        let d = &mut self.dies[die as usize];
        let victim = d.victim;
        d.victim_row = row + 1;
        d.reads += 1;
        let fold = self.slc.as_ref().is_some_and(|slc| slc.is_folding())
            && store.space.superblocks[victim as usize].stream == Stream::Slc;
        // What is folded while the host is quiet is not owed to what it wrote.
        d.credit -= if fold { 0 } else { i64::from(count_units(units)) * CREDIT };
        self.update_ready_by(store, die, programs);
        if units.is_power_of_two() {
            // One entry is kept until it is needed, and the transfer of one unit is too short to ask for it then.
            let prefetch = |_, lpn| store.map.prefetch(lpn);
            each_lpn::<M, SINGLE>(&store.layout, &store.medium, die, victim, row, units, prefetch);
        }
        let source = if fold { Source::FoldRead } else { Source::CollectRead };
        store.flash.enqueue(clock.now, clock.events, source, die, victim, row, units, die);
    }

    /// The array of a die has read what it was to read: if several units of a victim's row, their map entries are
    /// needed once these have been moved to the controller, some events from now; those asked for earlier would have
    /// left the cache by then. A hint that changes nothing but speed.
    #[inline(always)]
    pub fn expect_copies<M: Medium>(&self, store: &Store<M>, die: u32) {
        if self.dies[die as usize].reads > 0
            && let Some(operation) = store.flash.in_array(die)
            && operation.unit_count > 1
            && matches!(operation.source, Source::CollectRead | Source::FoldRead)
        {
            let &Operation { superblock, row, units, .. } = operation;
            let prefetch = |_, lpn| store.map.prefetch(lpn);
            each_lpn::<M, false>(&store.layout, &store.medium, die, superblock, row, units, prefetch);
        }
    }

    /// A row of a victim has been read: what is still valid goes to the die's row of collected data.
    #[inline(never)]
    pub fn on_collect_read<M: Medium, const SINGLE: bool>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        operation: u32,
    ) {
        // A copy: what is queued may take its place.
        let operation = *store.flash.operation(operation);
        let &Operation { die, superblock, .. } = &operation;
        // What was overwritten, lost or moved while it was read stays behind. Moving one makes no other invalid.
        let first = store.layout.ppn(superblock, operation.row, 0);
        let units_per_row = store.layout.row_units::<SINGLE>();
        let read = if SINGLE { 1 } else { operation.units };
        let valid = read & store.valid_bits.row(first, units_per_row);
        let (mut moved, mut left) = (0, valid);
        while left != 0 {
            // In their order: what goes to a row at once ends before a unit that is lost.
            let lost = left & operation.uncorrectable;
            let readable = left & (lost & lost.wrapping_neg()).wrapping_sub(1);
            if readable == 0 {
                let ppn = first + left.trailing_zeros();
                left &= left - 1;
                let place = store.place_of(ppn);
                let lpn = store.medium.lpn(place.at, place.page, place.unit);
                self.lose(store, lpn, ppn);
                continue;
            }
            let Some(row) = self.row_for_copies::<M, SINGLE>(store, die) else {
                // So many programs failed that no superblock is left: what is valid stays where it is for now.
                let d = &mut self.dies[die as usize];
                d.victim_row = d.victim_row.min(operation.row);
                break;
            };
            let (units, count) =
                if SINGLE { (1, 1) } else { lowest(readable, units_per_row - store.rows.staged[row as usize].count) };
            left &= !units;
            moved += u64::from(count);
            match store.put_copies::<SINGLE>(row, &operation, first, units, count) {
                Some((Stream::Collected, superblock, index)) if SINGLE => {
                    self.program_row(store, clock, row, Stream::Collected, die, superblock, index);
                }
                Some(_) => self.submit(store, clock, row),
                None => {}
            }
        }
        if store.space.is_slc(superblock) {
            store.statistics.slc.units_folded += moved;
        } else {
            store.statistics.collected += moved;
        }
        // Not before: until its units are elsewhere the victim must not be done with.
        self.dies[die as usize].reads -= 1;
        self.collect_rows::<M, SINGLE>(store, clock, die);
    }

    /// The row that collected data of a die goes to next, opened if need be.
    #[inline(always)]
    fn row_for_copies<M: Medium, const SINGLE: bool>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        let row = if store.profile.gc_stream { self.collected_row::<M, SINGLE>(store, die) } else { None };
        row.or_else(|| self.any_host_row(store, die))
    }

    /// All that was valid has left the victim: it is erased once that is programmed.
    fn end_collection<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) {
        let victim = std::mem::replace(&mut self.dies[die as usize].victim, NONE);
        store.space.superblocks[victim as usize].state = State::Draining;
        store.space.draining.push(victim);
        if !store.checkpoint.is_logged(store.space.superblocks[victim as usize].log_hazard) {
            store.log_deallocations(self, clock);
        }
        store.erase_drained(clock);
    }

    /// Nothing more can be collected: the units that wait for company are programmed without it, if a superblock waits
    /// for them.
    pub fn pad_collected_row<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) {
        let row = self.dies[die as usize].collect_row;
        if row != NONE
            && store.rows.staged[row as usize].count > 0
            && store.space.draining.iter().any(|&s| u32::from(store.space.superblocks[s as usize].die) == die)
        {
            self.submit(store, clock, row);
        }
    }

    /// The superblock to collect next on a die. `None`: none would give space back.
    fn choose_victim<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        if let Some(failed) = self.dies[die as usize].failed.pop() {
            return Some(failed);
        }
        let first = die * store.layout.superblocks_per_die;
        let range = first as usize..(first + store.layout.superblocks_per_die) as usize;
        let victims = &mut self.dies[die as usize].victims;
        *victims += 1;
        if store.profile.wear_gap > 0
            && victims.is_multiple_of(WEAR_LOOK)
            && let Some(cold) = victim::coldest(&store.space, die, range.clone(), store.profile.wear_gap)
        {
            store.statistics.wear_moves += 1;
            return Some(cold);
        }
        let all = store.layout.units_per_superblock;
        let victim = victim::choose_by_policy(&store.space, store.profile.gc_victim, range, all);
        let has_less = |slc: &u32| victim.is_none_or(|v| store.space.valid_units(*slc) <= store.space.valid_units(v));
        let slc = self.slc.as_ref().and_then(|slc| slc.in_the_way(die)).filter(has_less);
        slc.or(victim)
    }

    /// Whether there is a place for one more row of what collection moves on a die, besides those that are being read.
    #[inline]
    pub fn has_room_to_collect<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        // Nearly always there is.
        store.profile.gc_stream
            && !store.space.dies[die as usize].free.is_empty()
            && store.layout.rows > self.dies[die as usize].reads
            || self.finds_room(store, die)
    }

    #[inline(never)]
    fn finds_room<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        let (rows, units) = (store.layout.rows, store.layout.units_per_row);
        let d = &self.dies[die as usize];
        let rows_needed = d.reads + 1;
        if store.profile.gc_stream {
            let rows_left = match d.collect_superblock {
                NONE => 0,
                open => rows - u32::from(store.space.superblocks[open as usize].rows),
            };
            let units_left = match d.collect_row {
                NONE => 0,
                row => units - store.rows.staged[row as usize].count,
            };
            let free = store.space.dies[die as usize].free.len() as u32;
            if (rows_left + free * rows) * units + units_left >= rows_needed * units {
                return true;
            }
            if store.space.gives_back(die) {
                return false; // Rather wait for that than take from another die.
            }
        }
        self.host_row != NONE || (0..store.layout.dies).any(|die| self.may_take_host(store, die))
    }

    /// Collection on a die waits until an erase gives it a superblock. Where none will, because too many blocks turned
    /// bad, the drive has come to its end.
    pub fn wait_for_room<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) {
        store.space.starve(die);
        if self.dies[die as usize].reads == 0 {
            self.pad_collected_row(store, clock, die);
            store.space.read_only |= !(0..store.layout.dies).any(|die| store.space.gives_back(die));
        }
    }

    /// The row of collected data that a die is filling, opened if need be. `None`: its rows queue is full, or there is
    /// no superblock left.
    #[inline(always)]
    pub fn collected_row<M: Medium, const SINGLE: bool>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        let PageDie { collect_row, collect_superblock, .. } = self.dies[die as usize];
        if collect_row != NONE {
            return Some(collect_row);
        }
        let superblock = if collect_superblock == NONE { self.open_collected(store, die)? } else { collect_superblock };
        let number = store.rows.collected[die as usize].open();
        let (row, full) = store.open_row(superblock, Stream::Collected, number);
        if full {
            self.dies[die as usize].collect_superblock = NONE;
        }
        // One that is full as soon as it holds anything is never found open.
        if !SINGLE {
            self.dies[die as usize].collect_row = row;
        }
        Some(row)
    }

    /// Opens a superblock for collected data.
    #[inline(never)]
    fn open_collected<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        let superblock = store.space.open(die, Stream::Collected)?;
        self.update_ready(store, die);
        self.dies[die as usize].collect_superblock = superblock;
        Some(superblock)
    }
}
