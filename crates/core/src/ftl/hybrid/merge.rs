//! Merges: from log blocks to data blocks, as flash operations on whichever dies hold the units.
//!
//! Up to `[ftl] merges_max` logical blocks are merged at once, each row by row: what a row of the data block consists
//! of is read, wherever it is, then the row is programmed. The map moves when the last row is programmed, all at once.

use super::{Ftl, Hybrid, Role, RowRole};
use crate::events::EventQueue;
use crate::flash::{NONE, Operation, Source};
use crate::ftl::{Entry, State, Stream};
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand, Origin, Place};

/// Rows of a merge that are read ahead: as many as keep the array, the bus and a program busy at once.
const WINDOW: u32 = 4;
/// Rows of a merge that wait for their program, at most.
const PROGRAMS: u32 = 2;

/// What a merge costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergeKind {
    Switch,
    Partial,
    Full,
}

/// One logical block that is being merged, or a place for one.
#[derive(Clone, Debug)]
pub(super) struct Merge {
    /// The logical block, or [`NONE`].
    pub(super) block: u32,
    kind: MergeKind,
    /// What becomes the data block.
    to: u32,
    /// Rows of it from `first` to `end` are copied; those before `read`, `submitted` and `programmed` have got that
    /// far.
    first: u32,
    end: u32,
    read: u32,
    submitted: u32,
    programmed: u32,
    /// Reads under way for each row of the window.
    reads: [u8; WINDOW as usize],
    /// Where each unit of the logical block is copied from, or [`NONE`].
    sources: Vec<u32>,
    /// SW log blocks whose units are copied too.
    absorbed: Vec<u32>,
    /// No row of it has a lower program sequence.
    pub(super) first_sequence: u64,
    /// A program failed.
    failed: bool,
}

impl Merge {
    /// A place for a merge of logical blocks of so many units.
    pub(super) fn idle(units: u32) -> Merge {
        Merge {
            block: NONE,
            kind: MergeKind::Full,
            to: NONE,
            first: 0,
            end: 0,
            read: 0,
            submitted: 0,
            programmed: 0,
            reads: [0; WINDOW as usize],
            sources: vec![NONE; units as usize],
            absorbed: Vec::new(),
            first_sequence: 0,
            failed: false,
        }
    }

    /// Does without the units at these places: what they hold does not count any more.
    pub(super) fn forget_sources(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.sources.iter_mut().filter(|s| **s != NONE && is_gone(**s)).for_each(|s| *s = NONE);
    }
}

impl<M: Medium> Ftl<M> {
    /// Starts whatever merges can be started now.
    #[cold]
    pub(in crate::ftl) fn go_on_merging(&mut self, now: Instant, events: &mut EventQueue) {
        if self.recovery.is_some() {
            return;
        }
        loop {
            self.go_on_reclaiming(now, events);
            let Some(slot) = self.hybrid().merges.iter().position(|m| m.block == NONE) else { break };
            let retired = self.next_retired();
            if !match retired {
                Some(i) => self.merge_retired(now, events, slot, i),
                None => self.reclaim_next(now, events, slot),
            } {
                break;
            }
        }
        self.give_way(now, events);
    }

    /// What waits for an open row must not wait for the host, if the host waits for that.
    fn give_way(&mut self, now: Instant, events: &mut EventQueue) {
        if self.free_superblocks <= super::RESERVE && !self.draining.is_empty() {
            self.pad_log_rows(now, events);
        }
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        let waits = !hybrid.retired.is_empty() || hybrid.log.len() as u32 >= self.log_limit(hybrid);
        // Nothing is free, and nothing is under way that could change that: too many blocks have turned bad.
        if self.free_superblocks == 0 && waits && self.draining.is_empty() && self.flash.outstanding() == 0 {
            self.read_only = true;
        }
    }

    /// The first SW log block in line whose logical block is not being merged and whose rows are on flash.
    fn next_retired(&self) -> Option<usize> {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        hybrid.retired.iter().position(|&(block, superblock)| {
            let settled = self.programmed[superblock as usize] == self.superblocks[superblock as usize].rows;
            settled && !hybrid.is_merging(block)
        })
    }

    /// Merges an SW log block the cheapest way. False: there is no room.
    fn merge_retired(&mut self, now: Instant, events: &mut EventQueue, slot: usize, index: usize) -> bool {
        let (block, superblock) = self.hybrid().retired[index];
        let rows = u32::from(self.superblocks[superblock as usize].rows);
        if self.superblocks[superblock as usize].failed || !self.stands_alone(block, rows) {
            return self.merge_fully(now, events, slot, block);
        }
        self.hybrid().retired.remove(index);
        self.unstick();
        let kind = if rows == self.layout.rows { MergeKind::Switch } else { MergeKind::Partial };
        let end = self.last_row(block, rows, true).max(rows);
        self.begin_merge(now, events, slot, Merge { kind, to: superblock, first: rows, end, ..Merge::idle(0) }, block);
        true
    }

    /// Whether an SW log block of so many rows leaves nothing in the data block that belongs into its rows.
    fn stands_alone(&self, block: u32, rows: u32) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        let data = hybrid.data[block as usize];
        let first = block * self.layout.units_per_superblock;
        let end = (first + rows * self.layout.units_per_row).min(self.map.units());
        data == NONE
            || (first..end).all(|lpn| match self.map.get(lpn) {
                Entry::At(ppn) => self.layout.superblock_of(ppn) != data,
                Entry::Unmapped | Entry::Lost => true,
            })
    }

    /// One past the last row, from `first` on, that has a unit to copy.
    fn last_row(&self, block: u32, first: u32, is_partial: bool) -> u32 {
        let (per_block, per_row) = (self.layout.units_per_superblock, self.layout.units_per_row);
        let begin = block * per_block;
        let end = (begin + per_block).min(self.map.units());
        let last = (begin + first * per_row..end).rev().find(|&lpn| match self.map.get(lpn) {
            Entry::At(ppn) => self.is_copied(block, ppn, is_partial),
            Entry::Unmapped | Entry::Lost => false,
        });
        last.map_or(0, |lpn| (lpn - begin) / per_row + 1)
    }

    /// Whether a merge copies a unit from there: not from an SW log block that will be merged in its turn.
    fn is_copied(&self, block: u32, ppn: u32, is_partial: bool) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        let superblock = self.layout.superblock_of(ppn);
        match hybrid.roles[superblock as usize] {
            Role::Log => true,
            Role::InPlace(_) if is_partial => hybrid.data[block as usize] == superblock,
            Role::InPlace(_) => {
                hybrid.sequential.is_none_or(|s| s.superblock != superblock)
                    && hybrid.retired.iter().all(|&(_, retired)| retired != superblock)
            }
            Role::None => false,
        }
    }

    /// Gathers all of a logical block, SW log blocks of it included, into a free superblock. False: there is none.
    pub(super) fn merge_fully(&mut self, now: Instant, events: &mut EventQueue, slot: usize, block: u32) -> bool {
        if self.free_superblocks == 0 {
            return false;
        }
        if self.hybrid().sequential.is_some_and(|s| s.block == block) {
            self.retire_sequential(now, events);
        }
        let hybrid = self.hybrid();
        let mut absorbed = std::mem::take(&mut hybrid.merges[slot].absorbed);
        absorbed.clear();
        absorbed.extend(hybrid.retired.iter().filter(|r| r.0 == block).map(|r| r.1));
        hybrid.retired.retain(|r| r.0 != block);
        hybrid.is_stuck = false;
        let end = self.last_row(block, 0, false);
        let mut to = NONE;
        if end > 0 {
            let die = self.roomiest_die().expect("a superblock is free");
            to = self.open_superblock(die, Stream::Merge).expect("it has room");
            self.hybrid().roles[to as usize] = Role::InPlace(block);
        }
        let merge = Merge { kind: MergeKind::Full, to, first: 0, end, absorbed, ..Merge::idle(0) };
        self.begin_merge(now, events, slot, merge, block);
        true
    }

    fn begin_merge(&mut self, now: Instant, events: &mut EventQueue, slot: usize, merge: Merge, block: u32) {
        let first_sequence = self.row_sequence + 1;
        let place = &mut self.hybrid().merges[slot];
        let mut sources = std::mem::take(&mut place.sources);
        sources.fill(NONE);
        let (first, reads) = (merge.first, [0; WINDOW as usize]);
        *place =
            Merge { block, sources, first_sequence, read: first, submitted: first, programmed: first, reads, ..merge };
        self.advance_merge(now, events, slot);
    }

    /// Takes a merge as far as it can go now.
    fn advance_merge(&mut self, now: Instant, events: &mut EventQueue, slot: usize) {
        loop {
            let m = &self.hybrid().merges[slot];
            let next_is_here = m.submitted < m.read && m.reads[(m.submitted % WINDOW) as usize] == 0;
            if m.failed {
                if m.reads == [0; WINDOW as usize] && m.programmed == m.submitted {
                    self.abort_merge(now, events, slot);
                }
                return;
            } else if m.programmed == m.end {
                return self.commit_merge(now, events, slot);
            } else if next_is_here && m.submitted - m.programmed < PROGRAMS {
                self.program_merged_row(now, events, slot);
            } else if m.read < m.end && m.read - m.submitted < WINDOW {
                self.read_for_row(now, events, slot);
            } else {
                return;
            }
        }
    }

    /// Reads what the next row of a merge consists of, one operation for each row that holds some of it.
    fn read_for_row(&mut self, now: Instant, events: &mut EventQueue, slot: usize) {
        let m = &self.hybrid().merges[slot];
        let (block, row, is_partial) = (m.block, m.read, m.kind == MergeKind::Partial);
        let (per_block, per_row) = (self.layout.units_per_superblock, self.layout.units_per_row);
        if per_row == 1 {
            return self.read_unit(now, events, slot, row);
        }
        let mut operations = [(NONE, 0, 0u64); 64];
        let mut count = 0;
        for unit in 0..per_row {
            let place = row * per_row + unit;
            let lpn = block * per_block + place;
            if lpn >= self.map.units() {
                break;
            }
            let Entry::At(ppn) = self.map.get(lpn) else { continue };
            if !self.is_copied(block, ppn, is_partial) {
                continue;
            }
            self.hybrid().merges[slot].sources[place as usize] = ppn;
            let (s, r) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
            if r >= u32::from(self.programmed[s as usize]) {
                continue; // Still in the controller's memory.
            }
            let units = 1 << self.layout.unit_of(ppn);
            match operations[..count].iter_mut().find(|o| (o.0, o.1) == (s, r)) {
                Some(operation) => operation.2 |= units,
                None => {
                    operations[count] = (s, r, units);
                    count += 1;
                }
            }
        }
        let m = &mut self.hybrid().merges[slot];
        m.read += 1;
        m.reads[(row % WINDOW) as usize] = count as u8;
        let owner = slot as u32 * WINDOW + row % WINDOW;
        for &(superblock, row, units) in &operations[..count] {
            let die = self.layout.die_of(superblock);
            self.flash.enqueue(now, events, Source::CollectRead, die, superblock, row, units, owner);
        }
    }

    /// As [`Ftl::read_for_row`], where a row is one unit: merges of small blocks spend most of their time here.
    fn read_unit(&mut self, now: Instant, events: &mut EventQueue, slot: usize, row: u32) {
        let m = &mut self.hybrid.as_mut().expect("only called under hybrid mapping").merges[slot];
        m.read += 1;
        m.reads[(row % WINDOW) as usize] = 0;
        let (block, is_partial) = (m.block, m.kind == MergeKind::Partial);
        let lpn = block * self.layout.units_per_superblock + row;
        if lpn >= self.map.units() {
            return;
        }
        let Entry::At(ppn) = self.map.get(lpn) else { return };
        if !self.is_copied(block, ppn, is_partial) {
            return;
        }
        let (superblock, from) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
        let is_on_flash = from < u32::from(self.programmed[superblock as usize]);
        let m = &mut self.hybrid().merges[slot];
        m.sources[row as usize] = ppn;
        if is_on_flash {
            m.reads[(row % WINDOW) as usize] = 1;
            let (die, owner) = (self.layout.die_of(superblock), slot as u32 * WINDOW + row % WINDOW);
            self.flash.enqueue(now, events, Source::CollectRead, die, superblock, from, 1, owner);
        }
    }

    /// A read for a merge, or of what leaves a victim for elsewhere in the log, is done.
    #[cold]
    pub(in crate::ftl) fn on_merge_read(&mut self, now: Instant, events: &mut EventQueue, operation: &Operation) {
        let mut left = operation.uncorrectable;
        while left != 0 {
            let unit = left.trailing_zeros();
            left &= left - 1;
            let ppn = self.layout.ppn(operation.superblock, operation.row, unit);
            if self.valid_bits.get(ppn) {
                let per_page = self.layout.units_per_page;
                let at = self.layout.block(operation.superblock, unit / per_page);
                let lpn = self.medium.lpn(at, operation.row, unit % per_page);
                self.lose(lpn, ppn);
            }
        }
        if operation.tag == super::reclaim::MOVE {
            return self.on_victim_read(now, events, operation);
        }
        let (slot, row) = ((operation.tag / WINDOW) as usize, operation.tag % WINDOW);
        self.hybrid().merges[slot].reads[row as usize] -= 1;
        self.advance_merge(now, events, slot);
    }

    /// Programs the next row of a merge: what was overwritten or deallocated since it was read is left out.
    fn program_merged_row(&mut self, now: Instant, events: &mut EventQueue, slot: usize) {
        let m = &self.hybrid().merges[slot];
        let (block, index, end, to) = (m.block, m.submitted, m.end, m.to);
        let (per_block, per_row) = (self.layout.units_per_superblock, self.layout.units_per_row);
        let (row, _) = self.open_row(to, Stream::Merge, slot as u64);
        debug_assert_eq!(self.rows[row as usize].row, index);
        let role = if index + 1 == end { RowRole::LastCopy(block) } else { RowRole::Copy(block) };
        self.rows[row as usize].index = role.index();
        self.rows[row as usize].count = per_row;
        let first = (row * per_row) as usize;
        let mut copied = 0;
        for unit in 0..per_row {
            let (place, at) = (index * per_row + unit, first + unit as usize);
            let lpn = block * per_block + place;
            let source = self.hybrid().merges[slot].sources[place as usize];
            if source == NONE || self.map.get(lpn) != Entry::At(source) {
                self.hybrid().merges[slot].sources[place as usize] = NONE;
                self.row_lpns[at] = Nand::NO_LPN;
                continue;
            }
            copied += 1;
            self.row_lpns[at] = lpn;
            if self.stamps {
                let stamp = self.stamp(lpn).expect("it is mapped");
                self.row_stamps[at] = (stamp.version, stamp.sequence);
            }
        }
        self.statistics.collected += copied;
        self.statistics.padding += u64::from(per_row) - copied;
        self.hybrid().merges[slot].submitted += 1;
        let (die, all) = (self.layout.die_of(to), u64::MAX >> (64 - per_row));
        self.flash.enqueue(now, events, Source::CollectProgram, die, to, index, all, row);
        self.checkpoint_step(now, events);
    }

    /// Tells where the units of a merge's row come from, now that it is programmed: what was in the controller's memory
    /// when it was read may be on flash by now. What was overwritten since is left out: the place that it was read from
    /// may be erased, and a copy without bytes must not be found in place of what overwrote it.
    #[cold]
    pub(in crate::ftl) fn find_origins(&mut self, row: u32) {
        let r = &self.rows[row as usize];
        let (slot, index, per_row) = (r.number as usize, r.row, self.layout.units_per_row);
        let block = self.hybrid().merges[slot].block;
        for unit in 0..per_row {
            let at = (row * per_row + unit) as usize;
            let lpn = self.row_lpns[at];
            if lpn == Nand::NO_LPN {
                continue;
            }
            debug_assert_eq!(lpn / self.layout.units_per_superblock, block);
            let source = self.hybrid().merges[slot].sources[(index * per_row + unit) as usize];
            if source == NONE || self.map.get(lpn) != Entry::At(source) {
                self.row_lpns[at] = Nand::NO_LPN;
            } else {
                self.row_origins[at] = self.origin_of(source);
            }
        }
    }

    /// Where a unit's bytes are that is mapped.
    fn origin_of(&self, ppn: u32) -> Origin {
        let (superblock, row) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
        if row < u32::from(self.programmed[superblock as usize]) {
            return Origin::Copy(self.place_of(ppn));
        }
        let staged = self.row_at(superblock, row).expect("a row that is not programmed is staged");
        match self.row_origins[(staged * self.layout.units_per_row + self.layout.unit_of(ppn)) as usize] {
            Origin::Copy(place) => Origin::Copy(place),
            _ => Origin::Shared,
        }
    }

    /// Where on the medium a unit is.
    pub(in crate::ftl) fn place_of(&self, ppn: u32) -> Place {
        let (unit, per_page) = (self.layout.unit_of(ppn), self.layout.units_per_page);
        let at = self.layout.block(self.layout.superblock_of(ppn), unit / per_page);
        Place { at, page: self.layout.row_of(ppn), unit: unit % per_page }
    }

    /// A row of a merge is on flash, or its program failed.
    #[cold]
    pub(in crate::ftl) fn on_merged_row(&mut self, now: Instant, events: &mut EventQueue, slot: usize, failed: bool) {
        let m = &mut self.hybrid().merges[slot];
        m.programmed += 1;
        m.failed |= failed;
        self.advance_merge(now, events, slot);
    }

    /// All rows are programmed: the logical block has a new data block.
    fn commit_merge(&mut self, now: Instant, events: &mut EventQueue, slot: usize) {
        let idle = Merge { sources: Vec::new(), ..Merge::idle(0) };
        let mut m = std::mem::replace(&mut self.hybrid().merges[slot], idle);
        let first = m.block * self.layout.units_per_superblock;
        for place in m.first * self.layout.units_per_row..m.end * self.layout.units_per_row {
            let (lpn, source) = (first + place, m.sources[place as usize]);
            if source != NONE && self.map.get(lpn) == Entry::At(source) {
                let (row, unit) = (place / self.layout.units_per_row, place % self.layout.units_per_row);
                let ppn = self.layout.ppn(m.to, row, unit);
                self.map.set(lpn, Entry::At(ppn));
                self.invalidate(source, 0);
                self.valid_bits.set(ppn);
                self.valid[m.to as usize] += 1;
            }
        }
        match m.kind {
            MergeKind::Switch => self.statistics.merges_switch += 1,
            MergeKind::Partial => self.statistics.merges_partial += 1,
            MergeKind::Full => self.statistics.merges_full += 1,
        }
        if m.to != NONE && self.superblocks[m.to as usize].state == State::Open {
            self.close(m.to);
        }
        let old = std::mem::replace(&mut self.hybrid().data[m.block as usize], m.to);
        for superblock in m.absorbed.drain(..).chain((old != NONE).then_some(old)) {
            self.drain(now, events, superblock);
        }
        let Hybrid { merges, reclaim, isolation, .. } = self.hybrid();
        reclaim.on_merged();
        isolation.on_merged();
        merges[slot].sources = m.sources;
        merges[slot].absorbed = m.absorbed;
        self.erase_drained(now, events);
        self.go_on_merging(now, events);
    }

    /// A program failed: nothing has moved yet, so what was copied is thrown away, and the logical block merged again.
    fn abort_merge(&mut self, now: Instant, events: &mut EventQueue, slot: usize) {
        let idle = Merge { sources: Vec::new(), ..Merge::idle(0) };
        let mut m = std::mem::replace(&mut self.hybrid().merges[slot], idle);
        if m.kind == MergeKind::Full {
            self.drain(now, events, m.to);
        } else {
            // The rows that the host wrote are still good: a full merge fetches them.
            self.hybrid().retired.push_front((m.block, m.to));
        }
        let Hybrid { merges, reclaim, isolation, retired, .. } = self.hybrid();
        reclaim.on_merged();
        isolation.on_merged();
        retired.extend(m.absorbed.drain(..).map(|superblock| (m.block, superblock)));
        merges[slot].sources = m.sources;
        merges[slot].absorbed = m.absorbed;
        self.erase_drained(now, events);
        self.go_on_merging(now, events);
    }
}
