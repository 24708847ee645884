//! Mapping pages over a power loss: what they say on flash, how far they say all, and how the map comes back from them.
//!
//! The cache is lost with the power, whatever its memory. So a checkpoint's floor must not pass a row whose entries are
//! on no mapping page on flash: recovery scans what is above it, and finds those entries in out-of-band areas.

use super::{MapCache, WANTED};
use crate::flash::NONE;
use crate::ftl::store::{Store, Stream};
use tidewater_nand::Medium;

impl MapCache {
    /// Adds what a mapping page says of what is on flash now.
    pub(crate) fn add_image<M: Medium>(&self, store: &Store<M>, lpn: u32, images: &mut Vec<u32>) {
        let first = (lpn - self.first) << self.shift;
        let entries =
            (first..first + (1 << self.shift)).map(|of| if of < self.first { store.durable_entry(of) } else { 0 });
        images.extend(entries);
    }

    /// Adds a unit's image, as it is, to a row that it was put into.
    pub(crate) fn carry_image<M: Medium>(&self, store: &mut Store<M>, images: &[u32], unit: u32, to: u32) {
        let to = &mut store.rows.staged[to as usize];
        if store.stamps && to.stream == Stream::Mapping {
            let entries = 1 << self.shift;
            match images.get(unit as usize * entries..(unit as usize + 1) * entries) {
                Some(image) => to.images.extend_from_slice(image),
                None => to.images.resize(to.images.len() + entries, 0),
            }
        }
    }

    /// Pages that are read before they were written get a place now: no mapping page says so, and none will.
    pub(crate) fn hold_past<M: Medium>(&mut self, store: &mut Store<M>) {
        let next = store.rows.sequence + 1;
        self.past = self.past.min(next);
    }

    /// The program sequence through which every row's entries are on mapping pages on flash, or in rows that are not
    /// done.
    pub(crate) fn saved_through<M: Medium>(&self, store: &Store<M>) -> u64 {
        let oldest = self.slots.get(self.changes.oldest as usize).map(|slot| slot.changed);
        let wanted =
            self.requests.iter().enumerate().filter(|&(id, request)| {
                request.changed != 0 && self.places[request.page as usize] == WANTED | id as u32
            });
        // Copies that are being programmed are not on flash yet.
        let units = store.layout.units_per_row as usize;
        let writing =
            store.rows.staged.iter().enumerate().filter(|(_, row)| row.in_use && row.stream == Stream::Mapping);
        let leaving = writing.flat_map(|(id, row)| {
            store.rows.lpns[id * units..id * units + row.count as usize].iter().filter_map(|&lpn| {
                let slot = *self.places.get(lpn.checked_sub(self.first)? as usize)?;
                self.slots.get(slot as usize).map(|slot| slot.leaving).filter(|&leaving| leaving != 0)
            })
        });
        let all = oldest.into_iter().chain(wanted.map(|(_, request)| request.changed)).chain(leaving);
        all.chain([self.past]).min().map_or(u64::MAX, |first| first.saturating_sub(1))
    }

    /// Recovery has found these entries elsewhere than on their mapping pages, which must get to know them.
    pub(crate) fn change_recovered(&mut self, floor: u64, mut lpns: Vec<u32>) {
        lpns.sort_unstable();
        lpns.dedup();
        let (mut page, mut entries) = (NONE, 0);
        for lpn in lpns {
            if lpn >= self.first {
                break;
            }
            if self.page_of(lpn) != page {
                self.change_entries(page, entries, floor + 1);
                (page, entries) = (self.page_of(lpn), 0);
            }
            entries += 1;
        }
        self.change_entries(page, entries, floor + 1);
    }
}
