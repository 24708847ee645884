//! Hybrid mapping as a placement. What follows is marked cold, which keeps the page-mapped path as short as it was.

use super::state::{Hybrid, LOG_BLOCKS_MIN, MOVE, Role, RowRole, WINDOW, superblocks_beside};
use crate::flash::{NONE, Source};
use crate::ftl::placement::{Placement, Programmed};
use crate::ftl::precondition::{Precondition, TOO_FEW_TO_FILL};
use crate::ftl::store::{Clock, Entry, Store, Stream};
use crate::owner::Owner;
use tidewater_nand::{Medium, Nand};

impl<M: Medium> Placement<M> for Hybrid {
    /// A no is remembered, because while merges don't keep up it is asked after every event.
    #[cold]
    fn can_write(&mut self, store: &mut Store<M>) -> bool {
        self.is_stuck = self.is_stuck || !self.takes_any(store);
        !self.is_stuck
    }

    fn may_write(&self) -> bool {
        true
    }

    #[cold]
    fn has_ready_die(&self, store: &Store<M>) -> bool {
        !self.is_stuck && self.takes_any(store)
    }

    /// Units that the row of random writes still takes; a new one is as good as open.
    #[cold]
    fn row_room(&self, store: &Store<M>) -> u32 {
        match self.random_row {
            NONE => store.layout.units_per_row,
            row => store.layout.units_per_row - store.rows.staged[row as usize].count,
        }
    }

    #[cold]
    fn write(&mut self, store: &mut Store<M>, clock: &mut Clock, lpn: u32, stamp: (u64, u64), owner: Owner) {
        let per_block = store.layout.units_per_superblock;
        let (block, page) = (lpn / per_block, lpn % per_block);
        let current = self.sequential;
        let has_failed = |superblock: u32| store.space.superblocks[superblock as usize].failed;
        let continues = current.is_some_and(|s| s.block == block && s.next == page && !has_failed(s.superblock));
        let retires = current.is_some_and(|s| page == 0 || s.block == block && !continues || has_failed(s.superblock));
        if retires {
            self.retire_sequential(store, clock);
        }
        let row = if page == 0 || continues { self.sequential_row(store, block) } else { self.random_row(store) };
        store.time_row(clock, row, owner);
        if store.put(row, lpn, stamp, owner) {
            self.submit(store, clock, row);
        }
        if retires {
            self.go_on_merging(store, clock);
        }
    }

    #[cold]
    fn pad(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        let rows = [self.random_row, self.isolation.row, self.sequential.map_or(NONE, |s| s.row)];
        for row in rows.into_iter().filter(|&row| row != NONE) {
            self.pad_log_row_of(store, clock, row);
        }
    }

    #[cold]
    fn on_fill_timeout(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32, generation: u32) {
        let is_filled = self.random_row == row || self.sequential.is_some_and(|s| s.row == row);
        if is_filled && store.rows.staged[row as usize].generation == generation {
            self.pad_log_row_of(store, clock, row);
        }
    }

    #[cold]
    fn submit(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32) {
        store.statistics.units_padding += u64::from(store.layout.units_per_row - store.rows.staged[row as usize].count);
        if self.random_row == row {
            self.random_row = NONE;
        }
        if self.isolation.row == row {
            self.isolation.row = NONE;
        }
        if let Some(s) = self.sequential.as_mut().filter(|s| s.row == row) {
            s.row = NONE;
            // What was padded is a hole: whatever continues the run can't go there.
        }
        store.queue_program(clock, Source::HostProgram, row);
        if !store.emergency {
            store.checkpoint_step(self, clock);
        }
    }

    fn row_again(&mut self, store: &mut Store<M>, _die: u32, _stream: Stream) -> Option<u32> {
        self.any_random_row(store)
    }

    fn forget_open(&mut self, _store: &mut Store<M>, superblock: u32) {
        if let Some(point) = self.points.iter().position(|&p| p == superblock) {
            self.set_point(point, NONE);
        }
        if self.isolation.open == superblock {
            self.isolation.open = NONE;
        }
    }

    fn close(&mut self, store: &mut Store<M>, superblock: u32) {
        if store.space.close(superblock).stream != Stream::Map {
            store.space.may_collect(superblock);
        }
    }

    #[cold]
    fn find_origins(&mut self, store: &mut Store<M>, row: u32) {
        let r = &store.rows.staged[row as usize];
        let (slot, index, per_row) = (r.number as usize, r.row, store.layout.units_per_row);
        let block = self.merges[slot].block;
        for unit in 0..per_row {
            let at = (row * per_row + unit) as usize;
            let lpn = store.rows.lpns[at];
            if lpn == Nand::NO_LPN {
                continue;
            }
            debug_assert_eq!(lpn / store.layout.units_per_superblock, block);
            let source = self.merges[slot].sources[(index * per_row + unit) as usize];
            if source == NONE || store.map.get(lpn) != Entry::At(source) {
                store.rows.lpns[at] = Nand::NO_LPN;
            } else {
                store.rows.origins[at] = store.origin_of(source);
            }
        }
    }

    fn on_own_row(&mut self, store: &mut Store<M>, clock: &mut Clock, done: Programmed) {
        let slot = done.number as usize;
        let m = &mut self.merges[slot];
        m.programmed += 1;
        m.failed |= done.failed;
        self.advance_merge(store, clock, slot);
    }

    #[cold]
    fn on_read(&mut self, store: &mut Store<M>, clock: &mut Clock, operation: u32) {
        let operation = *store.flash.operation(operation);
        if operation.source != Source::CollectRead {
            return;
        }
        let mut left = operation.uncorrectable;
        while left != 0 {
            let unit = left.trailing_zeros();
            left &= left - 1;
            let ppn = store.layout.ppn(operation.superblock, operation.row, unit);
            if store.valid_bits.get(ppn) {
                let per_page = store.layout.units_per_page;
                let at = store.layout.block(operation.superblock, unit / per_page);
                let lpn = store.medium.lpn(at, operation.row, unit % per_page);
                self.lose(store, lpn, ppn);
            }
        }
        if operation.tag == MOVE {
            return self.on_victim_read(store, clock, &operation);
        }
        let (slot, row) = ((operation.tag / WINDOW) as usize, operation.tag % WINDOW);
        self.merges[slot].reads[row as usize] -= 1;
        self.advance_merge(store, clock, slot);
    }

    fn least_superblocks(&self, store: &Store<M>) -> u32 {
        self.data.len() as u32 + superblocks_beside(&store.profile) + store.map_superblocks() + LOG_BLOCKS_MIN
    }

    /// The RW log blocks, as a share of the capacity.
    fn spare_share(&self, store: &Store<M>) -> f64 {
        f64::from(self.whole_log_limit(store) * store.layout.units_per_superblock) / f64::from(store.units.max(1))
    }

    /// A program or an erase is done, or a superblock has left the log or its queue: writes may be taken again.
    #[inline]
    fn update_ready(&mut self, _store: &mut Store<M>, _die: u32) {
        self.is_stuck = false;
    }

    fn collect(&mut self, store: &mut Store<M>, clock: &mut Clock, _die: u32) {
        self.go_on_merging(store, clock);
    }

    fn first_uncommitted(&self) -> Option<u64> {
        self.merges.iter().filter(|m| m.block != NONE).map(|m| m.first_sequence).min()
    }

    fn precondition(&mut self, store: &mut Store<M>, past: Precondition, seed: u64, tag: u64) -> Result<(), String> {
        let share = match past {
            Precondition::Fresh => 0.0,
            Precondition::Filled(share) => share.clamp(0.0, 1.0),
            Precondition::Steady => 1.0,
        };
        let units = (f64::from(store.data_units) * share) as u32;
        for block in 0..units.div_ceil(store.layout.units_per_superblock) {
            self.place_block(store, block, units, tag).ok_or(TOO_FEW_TO_FILL)?;
        }
        if past == Precondition::Steady { self.construct_log(store, seed, tag) } else { Ok(()) }
    }

    fn premap(&mut self, store: &mut Store<M>, lpn: u32, tag: u64) -> Option<u32> {
        self.place_block(store, lpn / store.layout.units_per_superblock, store.data_units, tag)
    }

    fn is_uncommitted(&self, store: &Store<M>, superblock: u32, row: u32, rows: u32) -> bool {
        let is_copy = |role| matches!(role, Some(RowRole::Copy(_) | RowRole::LastCopy(_)));
        let is_last = |role| matches!(role, Some(RowRole::LastCopy(_)));
        let header = store.row_header(superblock, row).map(RowRole::of);
        is_copy(header) && !is_last(self.row_role(store, superblock, rows - 1))
    }

    fn break_merges(&mut self, store: &mut Store<M>) {
        let per_block = store.layout.units_per_superblock;
        for superblock in 0..store.layout.superblocks() {
            let rows = if store.layout.is_whole(superblock) { store.rows_programmed(superblock) } else { 0 };
            if rows == 0 || !self.is_uncommitted(store, superblock, rows - 1, rows) {
                continue;
            }
            let Some(RowRole::Copy(block) | RowRole::LastCopy(block)) =
                store.row_header(superblock, rows - 1).map(RowRole::of)
            else {
                continue;
            };
            for lpn in block * per_block..((block + 1) * per_block).min(store.map.units()) {
                let Entry::At(ppn) = store.map.get(lpn) else { continue };
                let at = store.layout.superblock_of(ppn);
                let role = store.row_header(at, store.layout.row_of(ppn)).map(RowRole::of);
                if at != superblock && !matches!(role, Some(RowRole::Log | RowRole::Isolated)) {
                    store.map.set(lpn, Entry::Unmapped);
                }
            }
        }
    }

    fn adopt(&mut self, store: &mut Store<M>, clock: &mut Clock, partial: &mut Vec<(u32, u32)>) {
        self.reopen_log(store, partial);
        self.adopt_roles(store, clock);
    }

    fn assert_consistent(&self, store: &Store<M>) {
        let per_block = store.layout.units_per_superblock;
        for lpn in 0..store.map.units() {
            let Entry::At(ppn) = store.map.get(lpn) else { continue };
            let superblock = store.layout.superblock_of(ppn);
            let place = store.layout.row_of(ppn) * store.layout.units_per_row + store.layout.unit_of(ppn);
            match self.roles[superblock as usize] {
                Role::Log => {}
                Role::InPlace(block) => assert_eq!(
                    (block, place),
                    (lpn / per_block, lpn % per_block),
                    "{lpn} is out of its place in superblock {superblock}"
                ),
                Role::None => panic!("{lpn} is in superblock {superblock}, which has no role"),
            }
        }
        let free: usize = store.space.dies.iter().map(|d| d.free.len()).sum();
        assert_eq!(store.space.free_superblocks as usize, free, "free superblocks are counted wrong");
        let role = |superblock: u32| self.roles[superblock as usize];
        let open = self.points.iter().filter(|&&p| p != NONE).count();
        assert_eq!(self.open_points as usize, open, "write points are counted wrong");
        let area = &self.isolation.blocks;
        assert!(self.log.iter().chain(area).all(|&s| role(s) == Role::Log), "{:?}, {area:?}", self.log);
        for (block, &superblock) in (0..).zip(&self.data) {
            assert!(superblock == NONE || role(superblock) == Role::InPlace(block), "block {block} in {superblock}");
        }
        assert!(!self.is_stuck || !self.takes_any(store), "a write could be taken without notice");
        assert!(self.retired.iter().all(|&(block, s)| role(s) == Role::InPlace(block)), "{:?}", self.retired);
    }
}
