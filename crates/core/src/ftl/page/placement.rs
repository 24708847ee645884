//! Page mapping as a placement.

use super::collect::READS;
use super::slc::Slc;
use super::state::PageMapping;
use crate::flash::{NONE, Source};
use crate::ftl::placement::{Placement, Programmed};
use crate::ftl::precondition::{Precondition, TOO_FEW_TO_FILL};
use crate::ftl::rows::Row;
use crate::ftl::space::Superblock;
use crate::ftl::store::{Clock, Store, Stream};
use crate::owner::Owner;
use crate::profile::FtlProfile;
use tidewater_nand::Medium;

impl PageMapping {
    /// A flash read for the host is queued.
    #[inline]
    pub(in crate::ftl) fn on_host_read<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, superblock: u32) {
        if let Some(slc) = &mut self.slc {
            store.statistics.slc.reads_host += u64::from(store.space.is_slc(superblock));
            slc.touch(clock);
        }
    }
}

impl<M: Medium> Placement<M> for PageMapping {
    #[inline(always)]
    fn can_write(&mut self, store: &mut Store<M>) -> bool {
        self.host_row != NONE || self.open_host_row(store)
    }

    #[inline(always)]
    fn may_write(&self) -> bool {
        self.host_row != NONE || !self.ready.is_empty()
    }

    #[inline]
    fn has_ready_die(&self, _store: &Store<M>) -> bool {
        self.host_row != NONE || !self.ready.is_empty()
    }

    #[inline]
    fn row_room(&self, store: &Store<M>) -> u32 {
        match self.host_row {
            NONE => 0,
            row => store.layout.units_per_row - store.rows.staged[row as usize].count,
        }
    }

    #[inline(always)]
    fn write(&mut self, store: &mut Store<M>, clock: &mut Clock, lpn: u32, stamp: (u64, u64), owner: Owner) {
        let row = self.host_row;
        store.time_row(clock, row, owner);
        if store.put(row, lpn, stamp, owner) {
            self.submit(store, clock, row);
        }
        if let Some(slc) = &mut self.slc {
            slc.touch(clock);
        }
    }

    fn pad(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if self.host_row != NONE && store.rows.staged[self.host_row as usize].count > 0 {
            self.submit(store, clock, self.host_row);
        }
    }

    fn on_fill_timeout(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32, generation: u32) {
        if self.host_row == row && store.rows.staged[row as usize].generation == generation {
            self.submit(store, clock, row);
        }
    }

    fn submit(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32) {
        match store.rows.staged[row as usize].stream {
            // Most are of this one, and what concerns the others is left out for it.
            Stream::Collected => self.submit_to(store, clock, row, Stream::Collected),
            Stream::Mapping => store.queue_program(clock, Source::Map, row),
            stream => self.submit_to(store, clock, row, stream),
        }
    }

    fn row_again(&mut self, store: &mut Store<M>, die: u32, stream: Stream) -> Option<u32> {
        let row = match stream {
            Stream::Collected => self.collected_row::<M, false>(store, die),
            Stream::Log => return self.any_log_row(store, die),
            Stream::Mapping => return self.map_cache.as_mut()?.any_mapping_row(store, die),
            _ => None,
        };
        row.or_else(|| self.any_host_row(store, die))
    }

    /// Collected units of a die that go to a host row: what they left must wait for that too.
    fn moved_again(&mut self, store: &mut Store<M>, die: u32, number: u64) {
        let victim = self.dies[die as usize].victim;
        for &superblock in store.space.draining.iter().chain((victim != NONE).then_some(&victim)) {
            let s = &mut store.space.superblocks[superblock as usize];
            if u32::from(s.die) == die {
                s.host_hazard = s.host_hazard.max(number);
            }
        }
    }

    fn put_again(&mut self, store: &mut Store<M>, failed: &Row, unit: u32, to: u32) {
        if let Some(cache) = &self.map_cache {
            cache.carry_image(store, &failed.images, unit, to);
        }
    }

    fn pad_log(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if self.log_row_fill(store) > 0 {
            self.submit(store, clock, self.log_row);
        }
    }

    fn forget_open(&mut self, store: &mut Store<M>, superblock: u32) {
        let die = store.layout.die_of(superblock);
        let d = &mut self.dies[die as usize];
        for open in [&mut d.host_superblock, &mut d.log_superblock, &mut d.collect_superblock] {
            if *open == superblock {
                *open = NONE;
            }
        }
        if let Some(slc) = &mut self.slc {
            slc.forget_open(die, superblock);
        }
        if let Some(cache) = &mut self.map_cache {
            cache.forget_mapping_open(die, superblock);
        }
    }

    fn close(&mut self, store: &mut Store<M>, superblock: u32) {
        let &Superblock { stream, failed, die, .. } = store.space.close(superblock);
        let waits = |slc: &mut Box<Slc>| slc.close(&store.space, superblock);
        if !matches!(stream, Stream::Map | Stream::Mapping) && !self.slc.as_mut().is_some_and(waits) {
            store.space.may_collect(superblock);
            if failed {
                self.dies[die as usize].failed.push(superblock);
            }
        }
    }

    fn on_own_row(&mut self, store: &mut Store<M>, clock: &mut Clock, done: Programmed) {
        self.by_map(store, clock, |cache, store, clock| cache.on_mapping_row(store, clock, done.row, done.failed));
    }

    #[inline]
    fn on_data_row(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32) {
        if self.map_cache.is_some() {
            self.by_map(store, clock, |cache, store, clock| cache.change_entries_of_row(store, clock, row));
        }
    }

    #[inline(always)]
    fn on_read(&mut self, store: &mut Store<M>, clock: &mut Clock, done: u32) {
        let operation = store.flash.operation(done);
        match operation.source {
            Source::CollectRead if self.is_mapping(store, operation.superblock) => {
                self.on_map_page_read(store, clock, done);
            }
            Source::CollectRead | Source::FoldRead if store.layout.has_single_rows() => {
                self.on_collect_read::<M, true>(store, clock, done);
            }
            Source::CollectRead | Source::FoldRead => self.on_collect_read::<M, false>(store, clock, done),
            Source::MapRead => self.on_map_page_read(store, clock, done),
            _ => {}
        }
    }

    fn leave(&mut self, store: &mut Store<M>, superblock: u32) {
        if let Some(slc) = &mut self.slc {
            slc.leave(&mut store.space, &mut store.flash, superblock);
        }
    }

    fn on_erased(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32, superblock: u32) {
        if store.space.superblocks[superblock as usize].stream == Stream::Mapping {
            self.by_map(store, clock, |cache, store, clock| cache.on_mapping_erased(store, clock, die, superblock));
        }
    }

    fn size(&mut self, store: &mut Store<M>, die: u32) {
        if let Some(slc) = &mut self.slc {
            slc.size(&mut store.space, die);
        }
    }

    fn least_superblocks(&self, store: &Store<M>) -> u32 {
        store.units.div_ceil(store.layout.units_per_superblock)
            + store.layout.dies * (store.profile.gc_reserve + 2 + self.log_reserve + self.mapping_pool())
            + store.map_superblocks()
    }

    fn spare_share(&self, store: &Store<M>) -> f64 {
        let reserve = store.layout.dies * (reserve_per_die(&store.profile) + self.log_reserve + self.mapping_pool())
            + store.map_superblocks()
            + store.space.dies.iter().map(|d| d.kept).sum::<u32>();
        let data = store.space.good_superblocks.saturating_sub(reserve) * store.layout.units_per_superblock;
        f64::from(data) / f64::from(store.units.max(1)) - 1.0
    }

    #[inline(always)]
    fn update_ready(&mut self, store: &mut Store<M>, die: u32) {
        self.update_ready_by(store, die, store.flash.programs(die));
    }

    #[inline]
    fn collect(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) {
        // Most often as many reads are under way as may be.
        if self.dies[die as usize].reads < READS {
            if store.layout.has_single_rows() {
                self.go_on_collecting::<M, true>(store, clock, die);
            } else {
                self.go_on_collecting::<M, false>(store, clock, die);
            }
        }
    }

    fn wake(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if !store.space.wake.is_empty() {
            for die in std::mem::take(&mut store.space.wake) {
                self.collect(store, clock, die);
            }
        }
        if self.map_cache.is_some() {
            self.by_map(store, clock, |cache, store, clock| cache.move_map_pages(store, clock));
        }
    }

    fn on_deallocated(&mut self, store: &mut Store<M>, first: u32, end: u32) {
        if let Some(cache) = &mut self.map_cache {
            cache.change_deallocated(store, first, end);
        }
    }

    fn on_lost(&mut self, store: &mut Store<M>, lpn: u32) {
        if let Some(cache) = &mut self.map_cache {
            cache.change_entry(store, lpn);
        }
    }

    fn save_map(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if let Some(cache) = &mut self.map_cache {
            cache.write_changed(store, clock, true);
        }
    }

    fn saved_through(&self, store: &Store<M>) -> u64 {
        self.map_cache.as_ref().map_or(u64::MAX, |cache| cache.saved_through(store))
    }

    fn precondition(&mut self, store: &mut Store<M>, past: Precondition, seed: u64, tag: u64) -> Result<(), String> {
        match past {
            Precondition::Fresh => return Ok(()),
            Precondition::Filled(share) => {
                let units = (f64::from(store.data_units) * share.clamp(0.0, 1.0)) as u32;
                let per_row = store.layout.units_per_row as usize;
                for first in (0..units).step_by(per_row) {
                    let row: Vec<u32> = (first..units.min(first + per_row as u32)).collect();
                    if !self.place_row(store, &row, tag) {
                        return Err(TOO_FEW_TO_FILL.into());
                    }
                }
            }
            Precondition::Steady => self.construct_steady(store, seed, tag)?,
        }
        if let Some(cache) = &mut self.map_cache {
            cache.place_mapping_pages(store, false, tag);
        }
        // The host goes on where the past ended.
        self.dies.iter_mut().for_each(|d| d.host_superblock = std::mem::replace(&mut d.past_superblock, NONE));
        Ok(())
    }

    fn premap(&mut self, store: &mut Store<M>, lpn: u32, tag: u64) -> Option<u32> {
        let units = store.layout.units_per_row;
        if let Some(cache) = &mut self.map_cache {
            cache.hold_past(store);
        }
        let first = lpn / units * units;
        let row: Vec<u32> = (first..store.data_units.min(first + units)).filter(|&l| store.map.is_virgin(l)).collect();
        self.place_row(store, &row, tag).then_some(row.len() as u32)
    }

    fn forget(&mut self, store: &mut Store<M>) {
        if let Some(cache) = &mut self.map_cache {
            cache.empty_mapping_pools(store);
        }
    }

    fn map_page_shift(&self) -> Option<u32> {
        self.map_cache.as_ref().map(|cache| cache.shift())
    }

    fn learn_modes(&mut self, store: &mut Store<M>) {
        if self.slc.is_some() {
            Slc::learn_modes(store);
        }
    }

    fn adopt_mode(&mut self, store: &mut Store<M>, superblock: u32) {
        if let Some(slc) = &mut self.slc {
            slc.adopt(store, superblock);
        }
    }

    fn adopt_own(&mut self, store: &mut Store<M>, superblock: u32, rows: Option<u32>, bad: bool) -> bool {
        let cache = self.map_cache.as_mut().filter(|cache| cache.holds_mapping_pages(store, superblock));
        cache.map(|cache| cache.adopt_mapping(store, superblock, rows, bad)).is_some()
    }

    fn adopt_bad(&mut self, die: u32, superblock: u32) {
        self.dies[die as usize].failed.push(superblock);
    }

    fn adopt(&mut self, store: &mut Store<M>, clock: &mut Clock, partial: &mut Vec<(u32, u32)>) {
        if let Some(cache) = &mut self.map_cache {
            cache.fill_mapping_pools(store);
        }
        self.reopen(store, partial);
        if let Some(slc) = &mut self.slc {
            slc.settle(store, clock);
        }
    }

    fn on_recovered(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        for die in 0..store.layout.dies {
            self.collect(store, clock, die);
            if let Some(cache) = &mut self.map_cache {
                cache.collect_mapping(store, clock, die);
            }
        }
        self.by_map(store, clock, |cache, store, clock| cache.move_map_pages(store, clock));
    }

    fn on_unsaved(&mut self, floor: u64, lpns: Vec<u32>) {
        if let Some(cache) = &mut self.map_cache {
            cache.change_recovered(floor, lpns);
        }
    }
}

/// Superblocks of a die that hold no host data at rest, rounded up: collection keeps about as many free as it starts
/// at, one is being collected or erased, and the two that are open for host and collected data are half empty on
/// average.
pub fn reserve_per_die(profile: &FtlProfile) -> u32 {
    profile.gc_start + 2
}
