//! Hybrid mapping as a placement. What follows is marked cold, which keeps the page-mapped path as short as it was.

use super::state::{Hybrid, LOG_BLOCKS_MIN, superblocks_beside};
use crate::events::{Event, lane};
use crate::flash::{NONE, Source};
use crate::ftl::placement::{Placement, Programmed};
use crate::ftl::precondition::Precondition;
use crate::ftl::space::Stream;
use crate::ftl::store::{Clock, Store};
use crate::owner::Owner;
use tidewater_nand::Medium;

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
        if owner != Owner::None && !store.rows.staged[row as usize].timed {
            store.rows.staged[row as usize].timed = true;
            let generation = store.rows.staged[row as usize].generation;
            let due = clock.now + store.profile.fill_timeout;
            clock.events.push(due, lane::SUSPEND, Event::Fill { row, generation });
        }
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
        store.statistics.padding += u64::from(store.layout.units_per_row - store.rows.staged[row as usize].count);
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
        self.find_origins_of(store, row);
    }

    fn on_own_row(&mut self, store: &mut Store<M>, clock: &mut Clock, done: Programmed) {
        self.on_merged_row(store, clock, done.number as usize, done.failed);
    }

    fn on_read(&mut self, store: &mut Store<M>, clock: &mut Clock, operation: u32) {
        let operation = *store.flash.operation(operation);
        self.on_merge_read(store, clock, &operation);
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
        self.construct_blocks(store, past, seed, tag)
    }

    fn premap(&mut self, store: &mut Store<M>, lpn: u32, tag: u64) -> Option<u32> {
        self.place_block(store, lpn / store.layout.units_per_superblock, store.data_units, tag)
    }

    fn is_uncommitted(&self, store: &Store<M>, superblock: u32, row: u32, rows: u32) -> bool {
        self.is_uncommitted_copy(store, superblock, row, rows)
    }

    fn break_merges(&mut self, store: &mut Store<M>) {
        self.give_up_sources_of_cut_merges(store);
    }

    fn adopt(&mut self, store: &mut Store<M>, clock: &mut Clock, partial: &mut Vec<(u32, u32)>) {
        self.reopen_log(store, partial);
        self.adopt_roles(store, clock);
    }

    fn assert_consistent(&self, store: &Store<M>) {
        self.assert_hybrid_consistent(store);
    }
}
