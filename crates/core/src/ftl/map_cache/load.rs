//! Mapping pages between the cache and flash: look-ups, loads, changes, and the way back of what has changed.

use super::{LookUp, MapCache, MapStatistics, lent};
use crate::events::EventQueue;
use crate::flash::{Operation, Source};
use crate::ftl::{Entry, Ftl, NONE};
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::Medium;

impl<M: Medium> Ftl<M> {
    /// The mapping cache. `None`: the whole map is at hand.
    pub fn map_cache(&self) -> Option<&MapCache> {
        self.map_cache.as_deref()
    }

    /// What the mapping cache counted; zeroes where there is none.
    pub fn map_statistics(&self) -> MapStatistics {
        self.map_cache.as_ref().map_or_else(MapStatistics::default, |cache| cache.statistics)
    }

    pub(crate) fn reset_map_statistics(&mut self) {
        if let Some(cache) = &mut self.map_cache {
            cache.statistics = MapStatistics::default();
        }
    }

    /// Looks for the mapping page of a logical page, for a command that needs its entry. The whole map is at hand: a
    /// hit.
    pub fn look_up(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, owner: u32) -> LookUp {
        let Some(cache) = &mut self.map_cache else { return LookUp::Hit };
        let page = cache.page_of(lpn);
        cache.statistics.lookups += 1;
        if let Some(slot) = cache.find(page) {
            cache.statistics.hits += 1;
            return cache.found(slot, owner);
        }
        self.want(now, events, page, owner)
    }

    /// A page that a command needs is not in the cache.
    #[inline(never)]
    fn want(&mut self, now: Instant, events: &mut EventQueue, page: u32, owner: u32) -> LookUp {
        let is_on_flash = self.mapping_place(page).is_some();
        let Some(cache) = &mut self.map_cache else { return LookUp::Hit };
        if !is_on_flash
            && cache.places[page as usize] == NONE
            && let Some(slot) = cache.take_slot()
        {
            cache.insert(page, slot);
            return LookUp::Empty;
        }
        let (request, is_new) = cache.request(page);
        cache.wait(request, owner);
        if is_new {
            let last = page.saturating_add(cache.prefetch).min(cache.pages - 1);
            for ahead in page + 1..=last {
                if self.mapping_place(ahead).is_some()
                    && let Some(cache) = self.map_cache.as_mut().filter(|c| c.places[ahead as usize] == NONE)
                {
                    cache.request(ahead);
                }
            }
            self.move_map_pages(now, events);
        }
        LookUp::Waits
    }

    /// Takes an owner whose mapping page has come since the last call.
    #[inline]
    pub fn take_translated(&mut self) -> Option<u32> {
        self.map_cache.as_mut()?.translated.pop()
    }

    /// Bytes read from and written to the cache's memory since the last call.
    pub(crate) fn take_map_traffic(&mut self) -> (u64, u64) {
        self.map_cache.as_mut().map_or((0, 0), |cache| std::mem::take(&mut cache.traffic))
    }

    /// Where a mapping page is on flash: superblock, row and unit. `None`: it was never programmed, or not yet, and is
    /// at hand.
    pub(super) fn mapping_place(&self, page: u32) -> Option<(u32, u32, u32)> {
        let Entry::At(ppn) = self.map.get(self.map_cache.as_ref()?.lpn_of(page)) else { return None };
        let (superblock, row) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
        let is_programmed = row < u32::from(self.programmed[superblock as usize]);
        is_programmed.then(|| (superblock, row, self.layout.unit_of(ppn)))
    }

    /// Starts the loads that have a place, and programs what has changed where there is none.
    pub(in crate::ftl) fn move_map_pages(&mut self, now: Instant, events: &mut EventQueue) {
        if self.emergency || self.recovery.is_some() {
            return;
        }
        while let Some(cache) = &mut self.map_cache
            && let Some(&request) = cache.queue.front()
        {
            let Some(slot) = cache.take_slot() else {
                let r = cache.requests[request as usize];
                if r.first_waiter == NONE && r.updates == 0 {
                    // Ahead of need: not worth programming anything for.
                    cache.queue.pop_front();
                    cache.places[r.page as usize] = NONE;
                    cache.free_requests.push(request);
                    continue;
                }
                break;
            };
            cache.queue.pop_front();
            let r = &mut cache.requests[request as usize];
            r.slot = slot;
            let (page, is_ahead) = (r.page, r.first_waiter == NONE && r.updates == 0);
            let place = self.mapping_place(page);
            let Some(cache) = &mut self.map_cache else { return };
            let Some((superblock, row, unit)) = place else {
                cache.arrive(request);
                continue;
            };
            cache.statistics.loads += 1;
            cache.statistics.prefetches += u64::from(is_ahead);
            let die = self.layout.die_of(superblock);
            self.flash.enqueue(now, events, Source::MapRead, die, superblock, row, 1 << unit, request);
        }
        let units = self.layout.units_per_row;
        while let Some(cache) = &mut self.map_cache
            && let full = cache.is_journal_full()
            && (full
                || !cache.queue.is_empty()
                || cache.is_gathered()
                || std::mem::take(&mut cache.passed_over) >= units)
            && self.write_changed(now, events, full)
        {}
        self.weigh_updates(now, events);
    }

    /// A mapping page has been read.
    pub(in crate::ftl) fn on_map_read(&mut self, now: Instant, events: &mut EventQueue, operation: &Operation) {
        let sequence = self.complete_through() + 1;
        let Some(cache) = &mut self.map_cache else { return };
        let request = operation.tag;
        if request & lent::HOME != 0 {
            cache.come_home(request & !lent::HOME);
            return self.move_map_pages(now, events);
        }
        if operation.uncorrectable != 0 {
            // Its second copy was read in its stead; it gets a new place.
            let changed = &mut cache.requests[request as usize].changed;
            *changed = if *changed == 0 { sequence } else { *changed };
        }
        cache.arrive(request);
        self.move_map_pages(now, events);
    }

    /// A row of data is programmed: its entries change on their mapping pages, or wait for them.
    #[inline(never)]
    pub(in crate::ftl) fn change_entries_of_row(&mut self, now: Instant, events: &mut EventQueue, row: u32) {
        // Every row before is on flash, in what its entries say too; this one was the first that was not, if it was.
        let sequence = self.rows[row as usize].program_sequence.min(self.complete_through() + 1);
        let Some(cache) = &mut self.map_cache else { return };
        let first = (row * self.layout.units_per_row) as usize;
        let count = self.rows[row as usize].count as usize;
        let (mut page, mut entries) = (NONE, 0);
        for &lpn in &self.row_lpns[first..first + count] {
            if lpn >= cache.first {
                continue;
            }
            if cache.page_of(lpn) != page {
                cache.change_entries(page, entries, sequence);
                (page, entries) = (cache.page_of(lpn), 0);
            }
            entries += 1;
        }
        cache.change_entries(page, entries, sequence);
        if !cache.queue.is_empty() || cache.is_journal_full() {
            self.move_map_pages(now, events);
        }
    }

    /// An entry changes without a program. [`Ftl::move_map_pages`] must be called before long.
    pub(in crate::ftl) fn change_entry(&mut self, lpn: u32) {
        let sequence = self.complete_through() + 1;
        if let Some(cache) = self.map_cache.as_mut().filter(|cache| lpn < cache.first) {
            cache.change_entries(cache.page_of(lpn), 1, sequence);
        }
    }

    /// Logical pages were deallocated: mapping pages that lie within as a whole are gone, the others have changed.
    pub(in crate::ftl) fn change_deallocated(&mut self, first: u32, end: u32) {
        let Some(cache) = &self.map_cache else { return };
        let (shift, pages) = (cache.shift, cache.pages);
        // The last page may be cut short by the end of the drive.
        let whole_end = if end == cache.first { pages } else { end >> shift };
        let whole = first.div_ceil(1 << shift)..whole_end;
        for page in whole.clone() {
            let Some(cache) = &mut self.map_cache else { return };
            cache.drop_page(page);
            let lpn = cache.lpn_of(page);
            if let Entry::At(ppn) = self.map.set(lpn, Entry::Unmapped) {
                self.invalidate(ppn, 0);
                self.superblocks[self.layout.superblock_of(ppn) as usize].log_hazard = self.write_sequence;
            }
        }
        if !whole.contains(&(first >> shift)) {
            self.change_entry(first);
        }
        let last = end - 1;
        if !whole.contains(&(last >> shift)) && last >> shift != first >> shift {
            self.change_entry(last);
        }
    }

    /// Programs a row of mapping pages that have changed: for their places, or the oldest changes. False: none has
    /// changed, or none can be programmed now.
    pub(in crate::ftl) fn write_changed(&mut self, now: Instant, events: &mut EventQueue, oldest: bool) -> bool {
        let units = self.layout.units_per_row as usize;
        let dies = self.layout.dies;
        let Some(cache) = &mut self.map_cache else { return false };
        if cache.rows_writing >= dies || cache.is_gathering() {
            return false;
        }
        let mut chosen = std::mem::take(&mut cache.chosen);
        cache.take_gathered(&mut chosen);
        if chosen.is_empty() {
            if oldest {
                cache.choose_oldest(units, &mut chosen);
            } else {
                cache.choose_changed(units, &mut chosen);
            }
            if cache.gather(&chosen) {
                cache.chosen = chosen;
                return false; // It goes on when they are home.
            }
        }
        let row = if chosen.is_empty() { None } else { self.mapping_row(now, events) };
        if let Some(row) = row {
            self.write_chosen(now, events, row, &chosen);
        }
        if let Some(cache) = &mut self.map_cache {
            cache.chosen = chosen;
            if row.is_some() {
                cache.end_gathering();
            }
        }
        row.is_some()
    }

    fn write_chosen(&mut self, now: Instant, events: &mut EventQueue, row: u32, chosen: &[u32]) {
        for &slot in chosen {
            let Some(cache) = &mut self.map_cache else { return };
            let lpn = cache.lpn_of(cache.slots[slot as usize].page);
            let s = &mut cache.slots[slot as usize];
            s.leaving = s.changed;
            s.writing += 1;
            cache.unchange(slot);
            cache.leaves(slot);
            cache.statistics.written += 1;
            self.write_sequence += 1;
            self.put(row, lpn, (self.write_sequence, self.write_sequence), Owner::None);
            if self.stamps {
                let mut images = std::mem::take(&mut self.rows[row as usize].images);
                self.add_image(lpn, &mut images);
                self.rows[row as usize].images = images;
            }
        }
        // Entries of rows that are not programmed yet are not on these copies: the page changes again when they are.
        self.submit(now, events, row);
    }

    /// A row of mapping pages is done.
    #[inline(never)]
    pub(in crate::ftl) fn on_mapping_row(&mut self, now: Instant, events: &mut EventQueue, row: u32, failed: bool) {
        let first = (row * self.layout.units_per_row) as usize;
        let count = self.rows[row as usize].count as usize;
        let Some(cache) = &mut self.map_cache else { return };
        if !failed {
            let r = &self.rows[row as usize];
            for (unit, &lpn) in self.row_lpns[first..first + count].iter().enumerate() {
                // Not a copy that was moved, and that a changed one has overtaken.
                let is_current =
                    |lpn| self.map.get(lpn) == Entry::At(self.layout.ppn(r.superblock, r.row, unit as u32));
                if (cache.first..cache.first + cache.pages).contains(&lpn) && is_current(lpn) {
                    cache.written(lpn - cache.first);
                }
            }
        }
        cache.rows_writing = cache.rows_writing.saturating_sub(1);
        self.move_map_pages(now, events);
    }

    /// Lets the host and collection wait, or go on, as changed entries wait for their pages.
    pub(in crate::ftl) fn weigh_updates(&mut self, now: Instant, events: &mut EventQueue) {
        let Some(cache) = &mut self.map_cache else { return };
        let holds = (cache.updates > cache.updates_max, cache.updates > 2 * cache.updates_max);
        let held = std::mem::replace(&mut cache.holding, holds);
        if held.0 != holds.0 {
            (0..self.layout.dies).for_each(|die| self.update_ready(die));
        }
        if held.1 && !holds.1 {
            (0..self.layout.dies).for_each(|die| self.collect(now, events, die));
        }
    }
}

impl MapCache {
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
