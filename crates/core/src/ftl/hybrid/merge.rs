//! Merges: from log blocks to data blocks, as flash operations on whichever dies hold the units.
//!
//! Up to `[ftl] merges_max` logical blocks are merged at once, each row by row: what a row of the data block consists
//! of is read, wherever it is, then the row is programmed. The map moves when the last row is programmed, all at once.

use super::state::{Hybrid, Merge, MergeKind, RESERVE, Role, RowRole, WINDOW};
use crate::flash::{NONE, Source};
use crate::ftl::placement::Placement;
use crate::ftl::store::{Clock, Entry, State, Store, Stream};
use tidewater_nand::{Medium, Nand};

/// Rows of a merge that wait for their program, at most.
const PROGRAMS: u32 = 2;

impl Hybrid {
    /// Starts whatever merges can be started now.
    #[cold]
    pub fn go_on_merging<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if store.recovering {
            return;
        }
        loop {
            self.go_on_reclaiming(store, clock);
            let Some(slot) = self.merges.iter().position(|m| m.block == NONE) else { break };
            let retired = self.next_retired(store);
            if !match retired {
                Some(i) => self.merge_retired(store, clock, slot, i),
                None => self.reclaim_next(store, clock, slot),
            } {
                break;
            }
        }
        self.give_way(store, clock);
    }

    /// What waits for an open row must not wait for the host, if the host waits for that.
    fn give_way<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if store.space.free_superblocks <= RESERVE && !store.space.draining.is_empty() {
            self.pad(store, clock);
        }
        let waits = !self.retired.is_empty() || self.log.len() as u32 >= self.log_limit(store);
        // Nothing is free, and nothing is under way that could change that: too many blocks have turned bad.
        if store.space.free_superblocks == 0
            && waits
            && store.space.draining.is_empty()
            && store.flash.outstanding() == 0
        {
            store.space.read_only = true;
        }
    }

    /// The first SW log block in line whose logical block is not being merged and whose rows are on flash.
    fn next_retired<M: Medium>(&self, store: &Store<M>) -> Option<usize> {
        self.retired.iter().position(|&(block, superblock)| {
            let settled =
                store.space.programmed[superblock as usize] == store.space.superblocks[superblock as usize].rows;
            settled && !self.is_merging(block)
        })
    }

    /// Merges an SW log block the cheapest way. False: there is no room.
    fn merge_retired<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize, index: usize) -> bool {
        let (block, superblock) = self.retired[index];
        let rows = u32::from(store.space.superblocks[superblock as usize].rows);
        if store.space.superblocks[superblock as usize].failed || !self.stands_alone(store, block, rows) {
            return self.merge_fully(store, clock, slot, block);
        }
        self.retired.remove(index);
        self.is_stuck = false;
        let kind = if rows == store.layout.rows { MergeKind::Switch } else { MergeKind::Partial };
        let end = self.last_row(store, block, rows, true).max(rows);
        self.begin_merge(store, clock, slot, Merge { kind, to: superblock, first: rows, end, ..Merge::idle(0) }, block);
        true
    }

    /// Whether an SW log block of so many rows leaves nothing in the data block that belongs into its rows.
    fn stands_alone<M: Medium>(&self, store: &Store<M>, block: u32, rows: u32) -> bool {
        let data = self.data[block as usize];
        let first = block * store.layout.units_per_superblock;
        let end = (first + rows * store.layout.units_per_row).min(store.map.units());
        data == NONE
            || (first..end).all(|lpn| match store.map.get(lpn) {
                Entry::At(ppn) => store.layout.superblock_of(ppn) != data,
                Entry::Unmapped | Entry::Lost => true,
            })
    }

    /// One past the last row, from `first` on, that has a unit to copy.
    fn last_row<M: Medium>(&self, store: &Store<M>, block: u32, first: u32, is_partial: bool) -> u32 {
        let (per_block, per_row) = (store.layout.units_per_superblock, store.layout.units_per_row);
        let begin = block * per_block;
        let end = (begin + per_block).min(store.map.units());
        let last = (begin + first * per_row..end).rev().find(|&lpn| match store.map.get(lpn) {
            Entry::At(ppn) => self.is_copied(store, block, ppn, is_partial),
            Entry::Unmapped | Entry::Lost => false,
        });
        last.map_or(0, |lpn| (lpn - begin) / per_row + 1)
    }

    /// Whether a merge copies a unit from there: not from an SW log block that will be merged in its turn.
    fn is_copied<M: Medium>(&self, store: &Store<M>, block: u32, ppn: u32, is_partial: bool) -> bool {
        let superblock = store.layout.superblock_of(ppn);
        match self.roles[superblock as usize] {
            Role::Log => true,
            Role::InPlace(_) if is_partial => self.data[block as usize] == superblock,
            Role::InPlace(_) => {
                self.sequential.is_none_or(|s| s.superblock != superblock)
                    && self.retired.iter().all(|&(_, retired)| retired != superblock)
            }
            Role::None => false,
        }
    }

    /// Gathers all of a logical block, SW log blocks of it included, into a free superblock. False: there is none.
    pub fn merge_fully<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize, block: u32) -> bool {
        if store.space.free_superblocks == 0 {
            return false;
        }
        if self.sequential.is_some_and(|s| s.block == block) {
            self.retire_sequential(store, clock);
        }
        let mut absorbed = std::mem::take(&mut self.merges[slot].absorbed);
        absorbed.clear();
        absorbed.extend(self.retired.iter().filter(|r| r.0 == block).map(|r| r.1));
        self.retired.retain(|r| r.0 != block);
        self.is_stuck = false;
        let end = self.last_row(store, block, 0, false);
        let mut to = NONE;
        if end > 0 {
            let die = self.roomiest_die(store).expect("a superblock is free");
            to = store.space.open(die, Stream::Merge).expect("it has room");
            self.roles[to as usize] = Role::InPlace(block);
        }
        let merge = Merge { kind: MergeKind::Full, to, first: 0, end, absorbed, ..Merge::idle(0) };
        self.begin_merge(store, clock, slot, merge, block);
        true
    }

    fn begin_merge<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        slot: usize,
        merge: Merge,
        block: u32,
    ) {
        let first_sequence = store.rows.sequence + 1;
        let place = &mut self.merges[slot];
        let mut sources = std::mem::take(&mut place.sources);
        sources.fill(NONE);
        let (first, reads) = (merge.first, [0; WINDOW as usize]);
        *place =
            Merge { block, sources, first_sequence, read: first, submitted: first, programmed: first, reads, ..merge };
        self.advance_merge(store, clock, slot);
    }

    /// Takes a merge as far as it can go now.
    pub fn advance_merge<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) {
        loop {
            let m = &self.merges[slot];
            let next_is_here = m.submitted < m.read && m.reads[(m.submitted % WINDOW) as usize] == 0;
            if m.failed {
                if m.reads == [0; WINDOW as usize] && m.programmed == m.submitted {
                    self.abort_merge(store, clock, slot);
                }
                return;
            } else if m.programmed == m.end {
                return self.commit_merge(store, clock, slot);
            } else if next_is_here && m.submitted - m.programmed < PROGRAMS {
                self.program_merged_row(store, clock, slot);
            } else if m.read < m.end && m.read - m.submitted < WINDOW {
                self.read_for_row(store, clock, slot);
            } else {
                return;
            }
        }
    }

    /// Reads what the next row of a merge consists of, one operation for each row that holds some of it.
    fn read_for_row<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) {
        let m = &self.merges[slot];
        let (block, row, is_partial) = (m.block, m.read, m.kind == MergeKind::Partial);
        let (per_block, per_row) = (store.layout.units_per_superblock, store.layout.units_per_row);
        if per_row == 1 {
            return self.read_unit(store, clock, slot, row);
        }
        let mut operations = [(NONE, 0, 0u64); 64];
        let mut count = 0;
        for unit in 0..per_row {
            let place = row * per_row + unit;
            let lpn = block * per_block + place;
            if lpn >= store.map.units() {
                break;
            }
            let Entry::At(ppn) = store.map.get(lpn) else { continue };
            if !self.is_copied(store, block, ppn, is_partial) {
                continue;
            }
            self.merges[slot].sources[place as usize] = ppn;
            let (s, r) = (store.layout.superblock_of(ppn), store.layout.row_of(ppn));
            if r >= u32::from(store.space.programmed[s as usize]) {
                continue; // Still in the controller's memory.
            }
            let units = 1 << store.layout.unit_of(ppn);
            match operations[..count].iter_mut().find(|o| (o.0, o.1) == (s, r)) {
                Some(operation) => operation.2 |= units,
                None => {
                    operations[count] = (s, r, units);
                    count += 1;
                }
            }
        }
        let m = &mut self.merges[slot];
        m.read += 1;
        m.reads[(row % WINDOW) as usize] = count as u8;
        let owner = slot as u32 * WINDOW + row % WINDOW;
        for &(superblock, row, units) in &operations[..count] {
            let die = store.layout.die_of(superblock);
            store.flash.enqueue(clock.now, clock.events, Source::CollectRead, die, superblock, row, units, owner);
        }
    }

    /// As [`Hybrid::read_for_row`], where a row is one unit: merges of small blocks spend most of their time here.
    fn read_unit<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize, row: u32) {
        let m = &mut self.merges[slot];
        m.read += 1;
        m.reads[(row % WINDOW) as usize] = 0;
        let (block, is_partial) = (m.block, m.kind == MergeKind::Partial);
        let lpn = block * store.layout.units_per_superblock + row;
        if lpn >= store.map.units() {
            return;
        }
        let Entry::At(ppn) = store.map.get(lpn) else { return };
        if !self.is_copied(store, block, ppn, is_partial) {
            return;
        }
        let (superblock, from) = (store.layout.superblock_of(ppn), store.layout.row_of(ppn));
        let is_on_flash = from < u32::from(store.space.programmed[superblock as usize]);
        let m = &mut self.merges[slot];
        m.sources[row as usize] = ppn;
        if is_on_flash {
            m.reads[(row % WINDOW) as usize] = 1;
            let (die, owner) = (store.layout.die_of(superblock), slot as u32 * WINDOW + row % WINDOW);
            store.flash.enqueue(clock.now, clock.events, Source::CollectRead, die, superblock, from, 1, owner);
        }
    }

    /// Programs the next row of a merge: what was overwritten or deallocated since it was read is left out.
    fn program_merged_row<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) {
        let m = &self.merges[slot];
        let (block, index, end, to) = (m.block, m.submitted, m.end, m.to);
        let (per_block, per_row) = (store.layout.units_per_superblock, store.layout.units_per_row);
        let (row, _) = store.open_row(to, Stream::Merge, slot as u64);
        debug_assert_eq!(store.rows.staged[row as usize].row, index);
        let role = if index + 1 == end { RowRole::LastCopy(block) } else { RowRole::Copy(block) };
        store.rows.staged[row as usize].index = role.index();
        store.rows.staged[row as usize].count = per_row;
        let first = (row * per_row) as usize;
        let mut copied = 0;
        for unit in 0..per_row {
            let (place, at) = (index * per_row + unit, first + unit as usize);
            let lpn = block * per_block + place;
            let source = self.merges[slot].sources[place as usize];
            if source == NONE || store.map.get(lpn) != Entry::At(source) {
                self.merges[slot].sources[place as usize] = NONE;
                store.rows.lpns[at] = Nand::NO_LPN;
                continue;
            }
            copied += 1;
            store.rows.lpns[at] = lpn;
            if store.stamps {
                let stamp = store.stamp(lpn).expect("it is mapped");
                store.rows.stamps[at] = (stamp.version, stamp.sequence);
            }
        }
        store.statistics.collected += copied;
        store.statistics.units_padding += u64::from(per_row) - copied;
        self.merges[slot].submitted += 1;
        let (die, all) = (store.layout.die_of(to), u64::MAX >> (64 - per_row));
        store.flash.enqueue(clock.now, clock.events, Source::CollectProgram, die, to, index, all, row);
        store.checkpoint_step(self, clock);
    }

    /// All rows are programmed: the logical block has a new data block.
    fn commit_merge<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) {
        let idle = Merge { sources: Vec::new(), ..Merge::idle(0) };
        let mut m = std::mem::replace(&mut self.merges[slot], idle);
        let first = m.block * store.layout.units_per_superblock;
        for place in m.first * store.layout.units_per_row..m.end * store.layout.units_per_row {
            let (lpn, source) = (first + place, m.sources[place as usize]);
            if source != NONE && store.map.get(lpn) == Entry::At(source) {
                let (row, unit) = (place / store.layout.units_per_row, place % store.layout.units_per_row);
                let ppn = store.layout.ppn(m.to, row, unit);
                store.map.set(lpn, Entry::At(ppn));
                store.invalidate(source, 0);
                store.valid_bits.set(ppn);
                store.space.valid[m.to as usize] += 1;
            }
        }
        match m.kind {
            MergeKind::Switch => store.statistics.merges_switch += 1,
            MergeKind::Partial => store.statistics.merges_partial += 1,
            MergeKind::Full => store.statistics.merges_full += 1,
        }
        if m.to != NONE && store.space.superblocks[m.to as usize].state == State::Open {
            self.close(store, m.to);
        }
        let old = std::mem::replace(&mut self.data[m.block as usize], m.to);
        for superblock in m.absorbed.drain(..).chain((old != NONE).then_some(old)) {
            self.drain(store, clock, superblock);
        }
        let Hybrid { merges, reclaim, isolation, .. } = self;
        reclaim.on_merged();
        isolation.on_merged();
        merges[slot].sources = m.sources;
        merges[slot].absorbed = m.absorbed;
        store.erase_drained(clock);
        self.go_on_merging(store, clock);
    }

    /// A program failed: nothing has moved yet, so what was copied is thrown away, and the logical block merged again.
    fn abort_merge<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) {
        let idle = Merge { sources: Vec::new(), ..Merge::idle(0) };
        let mut m = std::mem::replace(&mut self.merges[slot], idle);
        if m.kind == MergeKind::Full {
            self.drain(store, clock, m.to);
        } else {
            // The rows that the host wrote are still good: a full merge fetches them.
            self.retired.push_front((m.block, m.to));
        }
        let Hybrid { merges, reclaim, isolation, retired, .. } = self;
        reclaim.on_merged();
        isolation.on_merged();
        retired.extend(m.absorbed.drain(..).map(|superblock| (m.block, superblock)));
        merges[slot].sources = m.sources;
        merges[slot].absorbed = m.absorbed;
        store.erase_drained(clock);
        self.go_on_merging(store, clock);
    }
}
