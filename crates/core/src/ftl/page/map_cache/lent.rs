//! Places of the mapping cache in memory that the host lends ([ADR 21]): the drive's own places come first, then one
//! for each unit that is lent now.
//!
//! What is there is never the only copy. Changed entries of such a page stay in the journal of changes, in the drive's
//! own memory, until the page is programmed. To be programmed a page comes *home* first: it is read from the host and
//! checked, and read from flash when that fails. So host memory can go at any moment, and a page that is gone is one
//! that is not in the cache.
//!
//! This file does not reach for the host: it says what it wants ([`MapCache::lent_work`]), and the device tells it what
//! came of that.
//!
//! [ADR 21]: ../../../../../docs/adr/0021-map-in-host-memory.md

use super::parts::LentWork;
use super::{LookUp, MapCache, WANTED};
use crate::flash::{NONE, Source};
use crate::ftl::store::{Clock, Store};
use tidewater_nand::Medium;

/// In the owner of a read of a mapping page: it is for a page that comes home, and the rest is its place.
pub(super) const HOME: u32 = 1 << 31;

impl MapCache {
    /// Whether a place is in host memory.
    #[inline]
    fn is_lent(&self, slot: u32) -> bool {
        slot >= self.own
    }

    /// Whether a place is there: its unit may be gone.
    fn is_there(&self, slot: u32) -> bool {
        slot < self.own + self.lent.units
    }

    /// Mapping pages that the cache has room for now.
    pub fn capacity(&self) -> u32 {
        self.own + self.lent.units
    }

    /// A place that was found, for a command. One in host memory has to be read, unless the page is on its way home.
    #[inline]
    pub(super) fn found(&mut self, slot: u32, owner: u32) -> LookUp {
        if self.is_lent(slot) { self.found_lent(slot, owner) } else { LookUp::Hit }
    }

    fn found_lent(&mut self, slot: u32, owner: u32) -> LookUp {
        let host = &mut self.slots[slot as usize].host;
        if host.home {
            return LookUp::Hit;
        }
        if host.fetching {
            self.lent.waiting.push((slot, owner));
            return LookUp::Waits;
        }
        host.readers += 1;
        LookUp::Away { unit: slot - self.own }
    }

    /// Whether another page may come to a place: its unit is not being read.
    #[inline]
    pub(super) fn is_idle(&self, slot: u32) -> bool {
        self.slots[slot as usize].host.readers == 0
    }

    /// A page has come to a place.
    pub(super) fn inserted(&mut self, page: u32, slot: u32) {
        if self.is_lent(slot) {
            self.lent.work.push_back(LentWork::Write { unit: slot - self.own, page });
        } else {
            self.traffic.1 += self.page_bytes();
        }
    }

    /// Entries that waited for a page are changed on it. In host memory they stay in the journal.
    pub(super) fn settled(&mut self, slot: u32, updates: u32) {
        if self.is_lent(slot) {
            self.slots[slot as usize].host.updates += updates;
            self.lent.journal += u64::from(updates);
        } else {
            self.updates -= u64::from(updates);
        }
    }

    /// Entries of a page that is in the cache have changed.
    pub(super) fn noted(&mut self, slot: u32, updates: u32) {
        if self.is_lent(slot) {
            self.updates += u64::from(updates);
            self.settled(slot, updates);
        } else {
            self.traffic.1 += u64::from(updates * super::ENTRY_BYTES);
        }
    }

    /// A page is about to be programmed. What its unit says is written again, with all that has changed.
    pub(super) fn leaves(&mut self, slot: u32) {
        if !self.is_lent(slot) {
            self.traffic.0 += self.page_bytes();
            return;
        }
        let (there, unit) = (self.is_there(slot), slot - self.own);
        let s = &mut self.slots[slot as usize];
        s.host.leaving = std::mem::take(&mut s.host.updates);
        self.lent.journal -= u64::from(s.host.leaving);
        if there && !s.host.lost {
            self.lent.work.push_back(LentWork::Write { unit, page: s.page });
        }
    }

    /// The copy of a page that was being programmed is on flash.
    pub(super) fn left(&mut self, slot: u32) {
        if !self.is_lent(slot) {
            return;
        }
        let (there, unit) = (self.is_there(slot), slot - self.own);
        let s = &mut self.slots[slot as usize];
        self.updates -= u64::from(std::mem::take(&mut s.host.leaving));
        s.host.home = false;
        if std::mem::take(&mut s.host.lost) {
            if there {
                self.lent.work.push_back(LentWork::Write { unit, page: s.page });
            } else {
                self.move_out(slot);
            }
        }
    }

    /// Forgets what host memory has to do with a place whose page goes; what has changed on it goes too.
    pub(super) fn unhost(&mut self, slot: u32) {
        let host = std::mem::take(&mut self.slots[slot as usize].host);
        self.updates -= u64::from(host.updates) + u64::from(host.leaving);
        self.lent.journal -= u64::from(host.updates);
        if host.fetching {
            self.lent.fetching -= 1;
            self.tell_waiting(slot);
        }
    }

    /// Waiters for a page that comes home continue.
    fn tell_waiting(&mut self, slot: u32) {
        let translated = &mut self.translated;
        self.lent.waiting.retain(|&(of, owner)| {
            if of == slot {
                translated.push(owner);
            }
            of != slot
        });
    }

    /// A place has no page any more.
    pub(super) fn release(&mut self, slot: u32) {
        if self.is_there(slot) {
            self.free.push(slot);
        }
    }

    /// A page in host memory is not there any more. Its changes wait for it, as for any that is not in the cache.
    fn move_out(&mut self, slot: u32) {
        let s = &mut self.slots[slot as usize];
        let (page, changed) = (s.page, s.changed);
        let updates = std::mem::take(&mut s.host.updates);
        self.lent.journal -= u64::from(updates);
        self.unchange(slot);
        self.forget(slot);
        self.release(slot);
        if changed != 0 {
            let (request, _) = self.request(page);
            let r = &mut self.requests[request as usize];
            (r.updates, r.changed) = (updates, changed);
        }
    }

    /// So many units are lent from now on, and nothing is in them.
    fn lend(&mut self, units: u32) {
        self.lent.units = units.min(self.slots.len() as u32 - self.own);
        for slot in self.own..self.slots.len() as u32 {
            let s = &mut self.slots[slot as usize];
            if s.page == NONE {
                continue;
            }
            if s.host.home || s.host.fetching {
                s.host.lost = true; // It stays until it is programmed.
            } else {
                self.move_out(slot);
            }
        }
        // Places that a page is on its way to are taken.
        let taken: Vec<u32> = (0..)
            .zip(&self.requests)
            .filter(|(id, r)| r.slot != NONE && self.places[r.page as usize] == WANTED | id)
            .map(|(_, r)| r.slot)
            .collect();
        let own = self.own;
        self.free.retain(|&slot| slot < own);
        let is_free = |&slot: &u32| self.slots[slot as usize].page == NONE && !taken.contains(&slot);
        self.free.extend((own..own + self.lent.units).rev().filter(is_free));
    }

    /// A place for a page that has come, when the one that was meant for it is gone.
    pub(super) fn place_for(&mut self, slot: u32) -> Option<u32> {
        if self.is_there(slot) { Some(slot) } else { self.take_slot() }
    }

    /// Whether pages must be programmed because their changes fill the journal.
    pub(super) fn is_journal_full(&self) -> bool {
        self.lent.journal > self.updates_max / 2
    }

    /// Whether the pages of a row that were gathered are all home.
    pub(super) fn is_gathered(&self) -> bool {
        !self.lent.gathering.is_empty() && self.lent.fetching == 0
    }

    /// Whether some are on their way home.
    pub(super) fn is_gathering(&self) -> bool {
        self.lent.fetching > 0
    }

    /// The pages that were gathered and can be programmed.
    pub(super) fn take_gathered(&mut self, chosen: &mut Vec<u32>) {
        chosen.clear();
        let own = self.own;
        let may = |&&slot: &&u32| {
            let s = &self.slots[slot as usize];
            s.page != NONE && s.changed != 0 && s.writing == 0 && (slot < own || s.host.home)
        };
        chosen.extend(self.lent.gathering.iter().filter(may));
        if chosen.is_empty() {
            self.lent.gathering.clear();
        }
    }

    /// The row of what was gathered is on its way.
    pub(super) fn end_gathering(&mut self) {
        self.lent.gathering.clear();
    }

    /// Lets the pages of a row come home. False: they are.
    pub(super) fn gather(&mut self, chosen: &[u32]) -> bool {
        let is_away = |cache: &MapCache, slot: u32| cache.is_lent(slot) && !cache.slots[slot as usize].host.home;
        if !chosen.iter().any(|&slot| is_away(self, slot)) {
            return false;
        }
        for &slot in chosen {
            self.lent.gathering.push(slot);
            if is_away(self, slot) {
                let s = &mut self.slots[slot as usize];
                s.host.fetching = true;
                self.lent.fetching += 1;
                self.lent.work.push_back(LentWork::Fetch { unit: slot - self.own, page: s.page });
            }
        }
        true
    }

    /// A page has come home.
    pub(super) fn come_home(&mut self, slot: u32) {
        let host = &mut self.slots[slot as usize].host;
        if std::mem::take(&mut host.fetching) {
            host.home = true;
            self.lent.fetching -= 1;
            self.tell_waiting(slot);
        }
    }

    /// The place of a unit, if it still holds this page.
    fn place_of(&self, unit: u32, page: u32) -> Option<u32> {
        let slot = self.own + unit;
        self.slots.get(slot as usize).filter(|s| s.page == page).map(|_| slot)
    }

    /// Takes the next thing that is wanted of host memory.
    pub(crate) fn lent_work(&mut self) -> Option<LentWork> {
        while let Some(work) = self.lent.work.pop_front() {
            let (LentWork::Write { unit, page } | LentWork::Fetch { unit, page }) = work;
            if self.place_of(unit, page).is_some() {
                return Some(work);
            }
        }
        None
    }

    /// Whether there is something for the device to do.
    pub(crate) fn has_lent_work(&self) -> bool {
        !self.lent.work.is_empty() || !self.translated.is_empty()
    }

    /// So many units of host memory are the mapping cache's from now on; what was there is gone.
    pub(crate) fn lend_to_map<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, units: u32) {
        self.lend(units);
        self.move_map_pages(store, clock);
    }

    /// A command has read a page in host memory. Not `good`: it is not there any more.
    pub(crate) fn on_lent_read<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        unit: u32,
        page: u32,
        good: bool,
    ) {
        if let Some(slot) = self.place_of(unit, page) {
            let host = &mut self.slots[slot as usize].host;
            host.readers = host.readers.saturating_sub(1);
            if !good && !host.home && !host.fetching {
                self.move_out(slot);
            }
        }
        if !good || !self.queue.is_empty() {
            self.move_map_pages(store, clock);
        }
    }

    /// A page that is to be programmed was read from host memory. Not `good`: it is read from flash.
    pub(crate) fn on_lent_home<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        unit: u32,
        page: u32,
        good: bool,
    ) {
        let place = self.mapping_place(store, page);
        let Some(slot) = self.place_of(unit, page).filter(|&slot| self.slots[slot as usize].host.fetching) else {
            return;
        };
        if let Some((superblock, row, unit)) = place.filter(|_| !good) {
            self.statistics.loads += 1;
            let die = store.layout.die_of(superblock);
            store.flash.enqueue(clock.now, clock.events, Source::MapRead, die, superblock, row, 1 << unit, HOME | slot);
            return;
        }
        self.come_home(slot);
        self.move_map_pages(store, clock);
    }
}
