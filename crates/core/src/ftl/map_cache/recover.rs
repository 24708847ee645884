//! Mapping pages over a power loss: what they say on flash, how far they say all, and how the map comes back from them.
//!
//! The cache is lost with the power, whatever its memory. So a checkpoint's floor must not pass a row whose entries are
//! on no mapping page on flash: recovery scans what is above it, and finds those entries in out-of-band areas.

use crate::events::EventQueue;
use crate::ftl::recover::{Best, Flaw};
use crate::ftl::{Entry, Ftl, NONE, Stream};
use std::collections::BTreeMap;
use tidewater_base::Instant;
use tidewater_nand::Medium;

use super::WANTED;

impl<M: Medium> Ftl<M> {
    /// Adds what a mapping page says of what is on flash now.
    pub(in crate::ftl) fn add_image(&self, lpn: u32, images: &mut Vec<u32>) {
        let Some(cache) = &self.map_cache else { return };
        let first = (lpn - cache.first) << cache.shift;
        let entries =
            (first..first + (1 << cache.shift)).map(|of| if of < cache.first { self.durable_entry(of) } else { 0 });
        images.extend(entries);
    }

    /// Adds a unit's image, as it is, to a row that it was put into.
    pub(in crate::ftl) fn carry_image(&mut self, images: &[u32], unit: u32, to: u32) {
        let Some(cache) = self.map_cache.as_ref().filter(|_| self.stamps) else { return };
        let to = &mut self.rows[to as usize];
        if to.stream == Stream::Mapping {
            let entries = 1 << cache.shift;
            match images.get(unit as usize * entries..(unit as usize + 1) * entries) {
                Some(image) => to.images.extend_from_slice(image),
                None => to.images.resize(to.images.len() + entries, 0),
            }
        }
    }

    /// Pages that are read before they were written get a place now: no mapping page says so, and none will.
    pub(in crate::ftl) fn hold_past(&mut self) {
        let next = self.row_sequence + 1;
        if let Some(cache) = &mut self.map_cache {
            cache.past = cache.past.min(next);
        }
    }

    /// The program sequence through which every row's entries are on mapping pages on flash, or in rows that are not
    /// done.
    pub(in crate::ftl) fn saved_through(&self) -> u64 {
        let Some(cache) = &self.map_cache else { return u64::MAX };
        let oldest = cache.slots.get(cache.changes.oldest as usize).map(|slot| slot.changed);
        let wanted =
            cache.requests.iter().enumerate().filter(|&(id, request)| {
                request.changed != 0 && cache.places[request.page as usize] == WANTED | id as u32
            });
        // Copies that are being programmed are not on flash yet.
        let units = self.layout.units_per_row as usize;
        let writing = self.rows.iter().enumerate().filter(|(_, row)| row.in_use && row.stream == Stream::Mapping);
        let leaving = writing.flat_map(|(id, row)| {
            self.row_lpns[id * units..id * units + row.count as usize].iter().filter_map(|&lpn| {
                let slot = *cache.places.get(lpn.checked_sub(cache.first)? as usize)?;
                cache.slots.get(slot as usize).map(|slot| slot.leaving).filter(|&leaving| leaving != 0)
            })
        });
        let all = oldest.into_iter().chain(wanted.map(|(_, request)| request.changed)).chain(leaving);
        all.chain([cache.past]).min().map_or(u64::MAX, |first| first.saturating_sub(1))
    }

    /// Finds the newest copy of each mapping page, and reads it.
    pub(in crate::ftl) fn read_mapping_pages(&mut self, now: Instant, events: &mut EventQueue) {
        let recovery = self.recovery.take().expect("recovery is under way");
        let mut best = Best::new();
        self.adopt_images(&recovery, &mut best);
        if !recovery.flaw.is(Flaw::OldDirectory) {
            self.adopt_rows(&recovery, self.units..self.map.units(), &mut best, &mut Vec::new());
        }
        self.recovery = Some(recovery);
        let mut rows: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for lpn in self.units..self.map.units() {
            if let Entry::At(ppn) = self.map.get(lpn) {
                let row = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
                *rows.entry(row).or_default() |= 1 << self.layout.unit_of(ppn);
            }
        }
        for ((superblock, row), units) in rows {
            self.recovery_read(now, events, superblock, row, units);
        }
    }

    /// Takes the entries of the mapping pages that were read.
    pub(in crate::ftl) fn adopt_mapping_pages(&mut self, best: &mut Best) {
        let Some((shift, pages)) = self.map_cache.as_ref().map(|cache| (cache.shift, cache.pages)) else { return };
        for page in 0..pages {
            let Entry::At(ppn) = self.map.get(self.units + page) else { continue };
            let first = self.layout.block(self.layout.superblock_of(ppn), 0);
            let Some(images) = self.medium.own_payload(first, self.layout.row_of(ppn)) else { continue };
            let at = (self.layout.unit_of(ppn) as usize) << shift;
            for (i, &entry) in images.iter().skip(at).take(1 << shift).enumerate() {
                let lpn = (page << shift) + i as u32;
                if lpn < self.units {
                    self.adopt_entry(lpn, entry, best);
                }
            }
        }
    }

    /// Recovery has found these entries elsewhere than on their mapping pages, which must get to know them.
    pub(in crate::ftl) fn change_recovered(&mut self, floor: u64, mut lpns: Vec<u32>) {
        let Some(cache) = &mut self.map_cache else { return };
        lpns.sort_unstable();
        lpns.dedup();
        let (mut page, mut entries) = (NONE, 0);
        for lpn in lpns {
            if lpn >= cache.first {
                break;
            }
            if cache.page_of(lpn) != page {
                cache.change_entries(page, entries, floor + 1);
                (page, entries) = (cache.page_of(lpn), 0);
            }
            entries += 1;
        }
        cache.change_entries(page, entries, floor + 1);
    }
}
