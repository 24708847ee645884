//! Mapping pages between the cache and flash: look-ups, loads, changes, and the way back of what has changed.

use super::{LookUp, MapCache, lent};
use crate::flash::{NONE, Operation, Source};
use crate::ftl::store::{Clock, Entry, Store};
use crate::owner::Owner;
use tidewater_nand::Medium;

impl MapCache {
    /// Looks for the mapping page of a logical page, for a command that needs its entry. The whole map is at hand: a
    /// hit.
    pub(crate) fn look_up<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        lpn: u32,
        owner: u32,
    ) -> LookUp {
        let page = self.page_of(lpn);
        self.statistics.lookups += 1;
        if let Some(slot) = self.find(page) {
            self.statistics.hits += 1;
            return self.found(slot, owner);
        }
        self.want(store, clock, page, owner)
    }

    /// A page that a command needs is not in the cache.
    #[inline(never)]
    fn want<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, page: u32, owner: u32) -> LookUp {
        let is_on_flash = self.mapping_place(store, page).is_some();
        if !is_on_flash
            && self.places[page as usize] == NONE
            && let Some(slot) = self.take_slot()
        {
            self.insert(page, slot);
            return LookUp::Empty;
        }
        let (request, is_new) = self.request(page);
        self.wait(request, owner);
        if is_new {
            let last = page.saturating_add(self.prefetch).min(self.pages - 1);
            for ahead in page + 1..=last {
                if self.mapping_place(store, ahead).is_some() && self.places[ahead as usize] == NONE {
                    self.request(ahead);
                }
            }
            self.move_map_pages(store, clock);
        }
        LookUp::Waits
    }

    /// Takes an owner whose mapping page has come since the last call.
    #[inline]
    pub(crate) fn take_translated(&mut self) -> Option<u32> {
        self.translated.pop()
    }

    /// Bytes read from and written to the cache's memory since the last call.
    pub(crate) fn take_traffic(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.traffic)
    }

    /// Where a mapping page is on flash: superblock, row and unit. `None`: it was never programmed, or not yet, and is
    /// at hand.
    pub(super) fn mapping_place<M: Medium>(&self, store: &Store<M>, page: u32) -> Option<(u32, u32, u32)> {
        let Entry::At(ppn) = store.map.get(self.lpn_of(page)) else { return None };
        let (superblock, row) = (store.layout.superblock_of(ppn), store.layout.row_of(ppn));
        let is_programmed = row < u32::from(store.space.programmed[superblock as usize]);
        is_programmed.then(|| (superblock, row, store.layout.unit_of(ppn)))
    }

    /// Starts the loads that have a place, and programs what has changed where there is none.
    pub(crate) fn move_map_pages<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if store.emergency || store.recovering {
            return;
        }
        while let Some(&request) = self.queue.front() {
            let Some(slot) = self.take_slot() else {
                let r = self.requests[request as usize];
                if r.first_waiter == NONE && r.updates == 0 {
                    // Ahead of need: not worth programming anything for.
                    self.queue.pop_front();
                    self.places[r.page as usize] = NONE;
                    self.free_requests.push(request);
                    continue;
                }
                break;
            };
            self.queue.pop_front();
            let r = &mut self.requests[request as usize];
            r.slot = slot;
            let (page, is_ahead) = (r.page, r.first_waiter == NONE && r.updates == 0);
            let place = self.mapping_place(store, page);
            let Some((superblock, row, unit)) = place else {
                self.arrive(request);
                continue;
            };
            self.statistics.loads += 1;
            self.statistics.prefetches += u64::from(is_ahead);
            let die = store.layout.die_of(superblock);
            store.flash.enqueue(clock.now, clock.events, Source::MapRead, die, superblock, row, 1 << unit, request);
        }
        let units = store.layout.units_per_row;
        while let full = self.is_journal_full()
            && (full || !self.queue.is_empty() || self.is_gathered() || std::mem::take(&mut self.passed_over) >= units)
            && self.write_changed(store, clock, full)
        {}
        self.has_moved = true;
    }

    /// A mapping page has been read.
    pub(crate) fn on_map_read<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, operation: &Operation) {
        let sequence = store.complete_through(None) + 1;
        let request = operation.tag;
        if request & lent::HOME != 0 {
            self.come_home(request & !lent::HOME);
            return self.move_map_pages(store, clock);
        }
        if operation.uncorrectable != 0 {
            // Its second copy was read in its stead; it gets a new place.
            let changed = &mut self.requests[request as usize].changed;
            *changed = if *changed == 0 { sequence } else { *changed };
        }
        self.arrive(request);
        self.move_map_pages(store, clock);
    }

    /// A row of data is programmed: its entries change on their mapping pages, or wait for them.
    #[inline(never)]
    pub(crate) fn change_entries_of_row<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32) {
        // Every row before is on flash, in what its entries say too; this one was the first that was not, if it was.
        let sequence = store.rows.staged[row as usize].program_sequence.min(store.complete_through(None) + 1);
        let first = (row * store.layout.units_per_row) as usize;
        let count = store.rows.staged[row as usize].count as usize;
        let (mut page, mut entries) = (NONE, 0);
        for &lpn in &store.rows.lpns[first..first + count] {
            if lpn >= self.first {
                continue;
            }
            if self.page_of(lpn) != page {
                self.change_entries(page, entries, sequence);
                (page, entries) = (self.page_of(lpn), 0);
            }
            entries += 1;
        }
        self.change_entries(page, entries, sequence);
        if !self.queue.is_empty() || self.is_journal_full() {
            self.move_map_pages(store, clock);
        }
    }

    /// An entry changes without a program. [`MapCache::move_map_pages`] must be called before long.
    pub(crate) fn change_entry<M: Medium>(&mut self, store: &mut Store<M>, lpn: u32) {
        let sequence = store.complete_through(None) + 1;
        if lpn < self.first {
            self.change_entries(self.page_of(lpn), 1, sequence);
        }
    }

    /// Logical pages were deallocated: mapping pages that lie within as a whole are gone, the others have changed.
    pub(crate) fn change_deallocated<M: Medium>(&mut self, store: &mut Store<M>, first: u32, end: u32) {
        let (shift, pages) = (self.shift, self.pages);
        // The last page may be cut short by the end of the drive.
        let whole_end = if end == self.first { pages } else { end >> shift };
        let whole = first.div_ceil(1 << shift)..whole_end;
        for page in whole.clone() {
            self.drop_page(page);
            let lpn = self.lpn_of(page);
            if let Entry::At(ppn) = store.map.set(lpn, Entry::Unmapped) {
                store.invalidate(ppn, 0);
                store.space.superblocks[store.layout.superblock_of(ppn) as usize].log_hazard = store.write_sequence;
            }
        }
        if !whole.contains(&(first >> shift)) {
            self.change_entry(store, first);
        }
        let last = end - 1;
        if !whole.contains(&(last >> shift)) && last >> shift != first >> shift {
            self.change_entry(store, last);
        }
    }

    /// Programs a row of mapping pages that have changed: for their places, or the oldest changes. False: none has
    /// changed, or none can be programmed now.
    pub(crate) fn write_changed<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, oldest: bool) -> bool {
        let units = store.layout.units_per_row as usize;
        let dies = store.layout.dies;
        if self.rows_writing >= dies || self.is_gathering() {
            return false;
        }
        let mut chosen = std::mem::take(&mut self.chosen);
        self.take_gathered(&mut chosen);
        if chosen.is_empty() {
            if oldest {
                self.choose_oldest(units, &mut chosen);
            } else {
                self.choose_changed(units, &mut chosen);
            }
            if self.gather(&chosen) {
                self.chosen = chosen;
                return false; // It goes on when they are home.
            }
        }
        let row = if chosen.is_empty() { None } else { self.mapping_row(store, clock) };
        if let Some(row) = row {
            self.write_chosen(store, clock, row, &chosen);
        }
        self.chosen = chosen;
        if row.is_some() {
            self.end_gathering();
        }
        row.is_some()
    }

    fn write_chosen<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32, chosen: &[u32]) {
        for &slot in chosen {
            let lpn = self.lpn_of(self.slots[slot as usize].page);
            let s = &mut self.slots[slot as usize];
            s.leaving = s.changed;
            s.writing += 1;
            self.unchange(slot);
            self.leaves(slot);
            self.statistics.written += 1;
            store.write_sequence += 1;
            store.put(row, lpn, (store.write_sequence, store.write_sequence), Owner::None);
            if store.stamps {
                let mut images = std::mem::take(&mut store.rows.staged[row as usize].images);
                self.add_image(store, lpn, &mut images);
                store.rows.staged[row as usize].images = images;
            }
        }
        // Entries of rows that are not programmed yet are not on these copies: the page changes again when they are.
        store.queue_program(clock, Source::Map, row);
    }

    /// A row of mapping pages is done.
    #[inline(never)]
    pub(crate) fn on_mapping_row<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        row: u32,
        failed: bool,
    ) {
        let first = (row * store.layout.units_per_row) as usize;
        let count = store.rows.staged[row as usize].count as usize;
        if !failed {
            let r = &store.rows.staged[row as usize];
            for (unit, &lpn) in store.rows.lpns[first..first + count].iter().enumerate() {
                // Not a copy that was moved, and that a changed one has overtaken.
                let is_current =
                    |lpn| store.map.get(lpn) == Entry::At(store.layout.ppn(r.superblock, r.row, unit as u32));
                if (self.first..self.first + self.pages).contains(&lpn) && is_current(lpn) {
                    self.written(lpn - self.first);
                }
            }
        }
        self.rows_writing = self.rows_writing.saturating_sub(1);
        self.move_map_pages(store, clock);
    }

    /// Decides, after pages have moved, whether the host and collection wait until changed entries have found their
    /// pages. Returns whether that has changed for the host, and whether collection may go on that could not.
    pub(crate) fn weigh_updates(&mut self) -> (bool, bool) {
        if !std::mem::take(&mut self.has_moved) {
            return (false, false);
        }
        let holds = (self.updates > self.updates_max, self.updates > 2 * self.updates_max);
        let held = std::mem::replace(&mut self.holding, holds);
        (held.0 != holds.0, held.1 && !holds.1)
    }

    /// So many entries of a page have changed.
    pub(super) fn change_entries(&mut self, page: u32, entries: u32, sequence: u64) {
        if entries == 0 {
            return;
        }
        self.statistics.updates += 1;
        if let Some(slot) = self.find(page) {
            self.statistics.update_hits += 1;
            self.noted(slot, entries);
            return self.change(slot, sequence);
        }
        let (request, _) = self.request(page);
        let r = &mut self.requests[request as usize];
        r.updates += entries;
        r.changed = if r.changed == 0 { sequence } else { r.changed };
        self.updates += u64::from(entries);
    }
}
