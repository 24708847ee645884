//! Host rows: where they are opened, and when a die can take another.

use super::map_cache::MapCache;
use super::slc::SLC_INDEX;
use super::state::PageMapping;
use crate::flash::{NONE, Source};
use crate::ftl::placement::Placement;
use crate::ftl::store::{Clock, Store, Stream};
use tidewater_nand::{Medium, Nand};

impl PageMapping {
    /// Opens a row for host data on the next die that can take one.
    #[inline(always)]
    pub fn open_host_row<M: Medium>(&mut self, store: &mut Store<M>) -> bool {
        let Some(die) = self.ready.next(self.next_die) else { return false };
        self.next_die = if die + 1 == store.layout.dies { 0 } else { die + 1 };
        self.open_host_row_on(store, die);
        true
    }

    /// Opens a row for host data on this die, which has room.
    pub fn open_host_row_on<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> u32 {
        let Store { space, flash, .. } = store;
        if let Some(superblock) = self.slc.as_mut().and_then(|slc| slc.superblock(space, flash, die)) {
            let number = store.rows.host.open();
            let (row, full) = store.open_row(superblock, Stream::Host, number);
            self.host_row = row;
            store.rows.staged[row as usize].index = SLC_INDEX;
            if let Some(slc) = self.slc.as_mut().filter(|_| full) {
                slc.forget_open(die, superblock);
            }
            return row;
        }
        let mut superblock = self.dies[die as usize].host_superblock;
        if superblock == NONE {
            superblock = store.space.open(die, Stream::Host).expect("the die has a free superblock");
        }
        let number = store.rows.host.open();
        let (row, full) = store.open_row(superblock, Stream::Host, number);
        self.host_row = row;
        self.dies[die as usize].host_superblock = if full { NONE } else { superblock };
        row
    }

    /// As [`Placement::submit`], for a row of this stream.
    #[inline(always)]
    pub fn submit_to<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32, stream: Stream) {
        let r = &store.rows.staged[row as usize];
        let (superblock, index, count) = (r.superblock, r.row, r.count);
        let units = store.layout.units_per_row;
        if count < units {
            let first = (row * units) as usize;
            store.rows.lpns[first + count as usize..first + units as usize].fill(Nand::NO_LPN);
        }
        store.statistics.units_padding += u64::from(units - count);
        let die = u32::from(store.space.superblocks[superblock as usize].die);
        match stream {
            Stream::Collected => self.dies[die as usize].collect_row = NONE,
            Stream::Log => self.log_row = NONE,
            _ => {
                self.host_row = NONE;
                store.statistics.slc.units_written += u64::from(if store.space.is_slc(superblock) { count } else { 0 });
            }
        }
        self.program_row(store, clock, row, stream, die, superblock, index);
    }

    /// Queues the program of a row that is complete, and that no caller finds open any more: of this stream, and at
    /// this place.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "what the filler of a row knows of it")]
    pub fn program_row<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        row: u32,
        stream: Stream,
        die: u32,
        superblock: u32,
        index: u32,
    ) {
        let units = store.layout.units_per_row;
        let source = match stream {
            Stream::Collected => Source::CollectProgram,
            Stream::Log => Source::Destage,
            _ => Source::HostProgram,
        };
        let all = u64::MAX >> (64 - units);
        store.flash.enqueue(clock.now, clock.events, source, die, superblock, index, all, row);
        if store.emergency {
            return;
        }
        if stream != Stream::Collected {
            self.update_ready(store, die);
            self.pace_collection(store, clock, die, units);
            self.wake(store, clock);
        }
        store.checkpoint_step(self, clock);
    }

    /// The open host row, or one opened wherever there is a superblock, the reserve included; `die` first.
    pub fn any_host_row<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        if self.host_row != NONE {
            return Some(self.host_row);
        }
        let dies = store.layout.dies;
        let die = (0..dies).map(|i| (die + i) % dies).find(|&die| self.may_take_host(store, die))?;
        Some(self.open_host_row_on(store, die))
    }

    /// Whether a host row may be opened on a die at all, the reserve included.
    pub fn may_take_host<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        self.dies[die as usize].host_superblock != NONE || !store.space.dies[die as usize].free.is_empty()
    }

    /// Whether a superblock is one of the mapping pages'.
    #[inline]
    pub fn is_mapping<M: Medium>(&self, store: &Store<M>, superblock: u32) -> bool {
        self.map_cache.is_some() && store.space.superblocks[superblock as usize].stream == Stream::Mapping
    }

    /// As [`Placement::update_ready`], where the die has so many programs queued or in flight.
    #[inline(always)]
    pub fn update_ready_by<M: Medium>(&mut self, store: &mut Store<M>, die: u32, programs: u32) {
        // What most often says no is asked first.
        let queues_row = programs < store.programs_per_die;
        let ready = queues_row && self.has_host_room(store, die) && self.is_paced(store, die);
        self.ready.set(die, ready);
        if self.log_reserve > 0 {
            self.update_log_ready(store, die);
        }
    }

    /// Whether nothing that the firmware moves holds back what comes to a die.
    #[inline]
    pub fn is_paced<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        !self.is_behind(store, die) && !self.map_cache.as_ref().is_some_and(|cache| cache.holds_host_back())
    }

    /// Whether a die has a place for a host row.
    #[inline]
    pub fn has_host_room<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        if self.slc.is_some() { self.has_host_or_slc_room(store, die) } else { self.has_own_room(store, die) }
    }

    #[inline(never)]
    pub fn has_host_or_slc_room<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        let slc = self.slc.as_ref();
        slc.is_some_and(|slc| slc.has_room(&store.space, die))
            || !slc.is_some_and(|slc| slc.waits_for_folding(&store.space, die)) && self.has_own_room(store, die)
    }

    /// As [`PageMapping::has_host_room`], in blocks in their own mode.
    #[inline]
    pub fn has_own_room<M: Medium>(&self, store: &Store<M>, die: u32) -> bool {
        self.dies[die as usize].host_superblock != NONE
            || store.space.dies[die as usize].free_beyond() > store.profile.gc_reserve as usize
    }

    /// Whether a host row is open.
    pub fn has_host_row(&self) -> bool {
        self.host_row != NONE
    }

    /// Superblocks of each die that are for mapping pages.
    pub fn mapping_pool(&self) -> u32 {
        self.map_cache.as_ref().map_or(0, |cache| cache.pool())
    }

    /// Lets the mapping cache do something, if there is one, and the host and collection go on or wait as it says then.
    pub fn by_map<M: Medium, R>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        does: impl FnOnce(&mut MapCache, &mut Store<M>, &mut Clock) -> R,
    ) -> Option<R> {
        let cache = self.map_cache.as_deref_mut()?;
        let result = does(cache, store, clock);
        let (changed, goes_on) = cache.weigh_updates();
        if changed {
            (0..store.layout.dies).for_each(|die| self.update_ready(store, die));
        }
        if goes_on {
            (0..store.layout.dies).for_each(|die| self.collect(store, clock, die));
        }
        Some(result)
    }

    /// A mapping page has been read, or what of them leaves a superblock that is collected.
    #[inline(never)]
    pub fn on_map_page_read<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, done: u32) {
        let operation = *store.flash.operation(done);
        self.by_map(store, clock, |cache, store, clock| match operation.source {
            Source::MapRead => cache.on_map_read(store, clock, &operation),
            _ => cache.on_mapping_collect_read(store, clock, &operation),
        });
    }
}
