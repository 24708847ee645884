//! The mapping cache: which pages of the map are at hand, where most of it lies on flash ([ADR 14]).
//!
//! The map is cut into *mapping pages*, each of which takes a unit of flash and is a logical page itself, behind all
//! others: where it lies is an entry of the *directory*, which is always at hand. This file is the book-keeping: which
//! mapping page is in which place of the cache, which is wanted and by whom, which has changed. `load` moves pages
//! between it and flash, `room` keeps their superblocks, and `lent` those of its places that are in memory of the host.
//!
//! What a mapping page says is in the simulator's own table; the cache decides what an access costs.
//!
//! [ADR 14]: ../../../../../../docs/adr/0014-mapping-cache.md

mod lent;
mod load;
mod parts;
mod recover;
mod room;
#[cfg(test)]
mod tests;

use crate::flash::NONE;
use crate::profile::{MemoryKind, Profile};
pub(crate) use parts::LentWork;
use parts::{Lent, MapDie, OnHost};
use std::collections::VecDeque;
pub use tidewater_base::statistics::MapStatistics;

/// Bytes of a map entry.
pub const ENTRY_BYTES: u32 = 4;

/// In the table of places: the rest is the number of a request.
const WANTED: u32 = 1 << 31;

/// Places that are looked through, from the one used longest ago, for a page that can leave at once.
const WINDOW: usize = 64;

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// The mapping page is in the cache: an access to its memory.
    Hit,
    /// The mapping page is in this unit of host memory, which the caller reads.
    Away {
        /// The unit.
        unit: u32,
    },
    /// It was never written, or is on its way to flash: it is at hand from now on, without a read.
    Empty,
    /// It is read from flash; the owner learns it from [`crate::ftl::Ftl::take_translated`].
    Waits,
}

/// One place of the cache.
#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u32,
    use_links: Links,
    change_links: Links,
    /// The program sequence from which rows of data may not be in the page's copy on flash; 0: it has everything.
    changed: u64,
    /// As `changed`, until the copies that are being programmed are on flash.
    leaving: u64,
    /// Copies that are being programmed.
    writing: u32,
    /// For a place in host memory.
    host: OnHost,
}

impl Slot {
    /// A place with an unchanged page, or with none.
    const fn of(page: u32) -> Slot {
        let links = Links::NONE;
        Slot { page, use_links: links, change_links: links, changed: 0, leaving: 0, writing: 0, host: OnHost::NONE }
    }
}

/// A mapping page that is wanted.
#[derive(Clone, Copy, Debug)]
struct Request {
    page: u32,
    /// The place it will have, once its read is under way.
    slot: u32,
    first_waiter: u32,
    /// Changed entries that wait for it.
    updates: u32,
    /// As [`Slot::changed`].
    changed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    owner: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

impl Links {
    const NONE: Links = Links { newer: NONE, older: NONE };
}

/// A list through the places, newest first.
#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
}

impl List {
    const EMPTY: List = List { newest: NONE, oldest: NONE };

    #[inline]
    fn push(&mut self, slots: &mut [Slot], slot: u32, links: fn(&mut Slot) -> &mut Links) {
        *links(&mut slots[slot as usize]) = Links { newer: NONE, older: self.newest };
        match self.newest {
            NONE => self.oldest = slot,
            newest => links(&mut slots[newest as usize]).newer = slot,
        }
        self.newest = slot;
    }

    /// Puts a place behind `older`, towards the newest; [`NONE`]: it is the oldest.
    fn insert(&mut self, slots: &mut [Slot], slot: u32, older: u32, links: fn(&mut Slot) -> &mut Links) {
        let newer = match older {
            NONE => std::mem::replace(&mut self.oldest, slot),
            older => std::mem::replace(&mut links(&mut slots[older as usize]).newer, slot),
        };
        match newer {
            NONE => self.newest = slot,
            newer => links(&mut slots[newer as usize]).older = slot,
        }
        *links(&mut slots[slot as usize]) = Links { newer, older };
    }

    #[inline]
    fn remove(&mut self, slots: &mut [Slot], slot: u32, links: fn(&mut Slot) -> &mut Links) {
        let Links { newer, older } = std::mem::replace(links(&mut slots[slot as usize]), Links::NONE);
        match newer {
            NONE => self.newest = older,
            newer => links(&mut slots[newer as usize]).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => links(&mut slots[older as usize]).newer = newer,
        }
    }
}

fn by_use(slot: &mut Slot) -> &mut Links {
    &mut slot.use_links
}

fn by_change(slot: &mut Slot) -> &mut Links {
    &mut slot.change_links
}

/// The mapping cache of a drive.
#[derive(Clone, Debug)]
pub struct MapCache {
    /// The logical page that mapping page 0 is.
    first: u32,
    /// Mapping pages.
    pages: u32,
    /// Entries of a mapping page, as a power of two.
    shift: u32,
    /// Where each mapping page is: [`NONE`], its place, or [`WANTED`] and its request.
    places: Vec<u32>,
    slots: Vec<Slot>,
    /// So many places are in the drive's own memory, the others in host memory.
    own: u32,
    lent: Lent,
    free: Vec<u32>,
    uses: List,
    changes: List,
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    /// Requests that have no place yet.
    queue: VecDeque<u32>,
    waiters: Vec<Waiter>,
    free_waiters: Vec<u32>,
    /// Owners whose page is at hand now.
    translated: Vec<u32>,
    /// Changed entries whose page is not at hand.
    updates: u64,
    /// More than so many make the host wait, twice as many collection.
    updates_max: u64,
    /// Rows of mapping pages on their way to flash.
    rows_writing: u32,
    prefetch: u32,
    /// Changed pages that the last one to leave was preferred to.
    passed_over: u32,
    /// The host, or collection too, waits for changed entries to find their pages.
    holding: (bool, bool),
    /// Bytes read from and written to the cache's memory that no operation has been charged for.
    traffic: (u64, u64),
    /// The pages that are chosen to be programmed: kept for its memory.
    chosen: Vec<u32>,
    dies: Vec<MapDie>,
    next_die: u32,
    /// Superblocks in the pool of each die.
    pool: u32,
    /// Pages have moved since the wait for changed entries was weighed.
    has_moved: bool,
    /// The program sequence of the first row that was given a past after the mapping pages were: it is on none of them.
    past: u64,
    /// Counters.
    pub statistics: MapStatistics,
}

/// Whether a profile has a mapping cache.
pub(crate) fn is_enabled(profile: &Profile) -> bool {
    profile.ftl.map_memory != "all"
}

/// Entries of a mapping page, as a power of two.
fn entries_shift(profile: &Profile) -> u32 {
    (profile.ftl.map_page / ENTRY_BYTES).trailing_zeros()
}

/// Mapping pages that so many logical pages have.
pub(crate) fn mapping_pages(profile: &Profile, units: u64) -> u64 {
    if is_enabled(profile) { units.div_ceil(1 << entries_shift(profile)) } else { 0 }
}

/// Superblocks that a die has for the mapping pages of so many logical pages: room for them and a quarter more, so that
/// collection finds something to give back; one that is open, and one to move pages to.
pub(crate) fn pool_per_die(profile: &Profile, units: u64) -> u32 {
    let pages = mapping_pages(profile, units);
    if pages == 0 {
        return 0;
    }
    let nand = &profile.nand;
    let per_superblock =
        u64::from(nand.pages_per_block * nand.planes * (nand.page_size / profile.ftl.unit_size).max(1));
    let closed = (pages + pages / 4).div_ceil(u64::from(nand.dies()) * per_superblock.max(1));
    2 + closed as u32
}

impl MapCache {
    /// The cache of a drive of `units` logical pages; `None`: the whole map is at hand.
    pub(crate) fn new(profile: &Profile, units: u32, dies: u32) -> Option<Box<MapCache>> {
        if !is_enabled(profile) {
            return None;
        }
        let pages = mapping_pages(profile, units.into()) as u32;
        let placed = crate::memory::place(profile).ok()?;
        let placed = placed.of(crate::memory::Use::MapCache)?;
        let fit =
            |size: u64, least: u64| (size / u64::from(profile.ftl.map_page)).clamp(least, pages.max(2).into()) as u32;
        // Of host memory there is none until the host lends it.
        let (own, lent) = match placed.memory.kind {
            MemoryKind::Host => (fit(profile.ftl.map_floor, 2), fit(placed.size, 0)),
            _ => (fit(placed.size, 2), 0),
        };
        let lent = lent.min(pages.saturating_sub(own));
        Some(Box::new(MapCache {
            first: units,
            pages,
            shift: entries_shift(profile),
            places: vec![NONE; pages as usize],
            slots: vec![Slot::of(NONE); (own + lent) as usize],
            own,
            lent: Lent::default(),
            free: (0..own).rev().collect(),
            uses: List::EMPTY,
            changes: List::EMPTY,
            requests: Vec::with_capacity(256),
            free_requests: Vec::with_capacity(256),
            queue: VecDeque::with_capacity(256),
            waiters: Vec::with_capacity(256),
            free_waiters: Vec::with_capacity(256),
            translated: Vec::with_capacity(256),
            updates: 0,
            updates_max: profile.ftl.map_updates.into(),
            rows_writing: 0,
            prefetch: profile.ftl.map_prefetch,
            passed_over: 0,
            holding: (false, false),
            traffic: (0, 0),
            chosen: Vec::with_capacity(64),
            dies: vec![MapDie::default(); dies as usize],
            next_die: 0,
            pool: pool_per_die(profile, units.into()),
            has_moved: false,
            past: u64::MAX,
            statistics: MapStatistics::default(),
        }))
    }

    /// The mapping page that a logical page's entry is on.
    #[inline]
    pub fn page_of(&self, lpn: u32) -> u32 {
        lpn >> self.shift
    }

    /// The first logical page whose entry is on a mapping page.
    #[inline]
    pub fn first_of(&self, page: u32) -> u32 {
        page << self.shift
    }

    /// The logical page that a mapping page is.
    #[inline]
    fn lpn_of(&self, page: u32) -> u32 {
        self.first + page
    }

    /// Mapping pages of the drive.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Changed entries in the journal: their mapping page is not at hand yet, or in host memory and not programmed yet.
    pub fn updates_waiting(&self) -> u64 {
        self.updates
    }

    /// A line for messages about a device that does not end.
    pub(crate) fn describe(&self) -> String {
        let (changed, writing) = (|s: &&Slot| s.changed != 0, |s: &&Slot| s.writing > 0);
        format!(
            "\n  mapping cache: {} changes wait (host and collection held back: {:?}), {} requests queued, {} of {} \
             pages changed, {} being programmed, {} places free, {} rows under way, dies: {:?}",
            self.updates,
            self.holding,
            self.queue.len(),
            self.slots.iter().filter(changed).count(),
            self.capacity(),
            self.slots.iter().filter(writing).count(),
            self.free.len(),
            self.rows_writing,
            &self.dies[..self.dies.len().min(4)]
        )
    }

    /// Superblocks in the pool of each die.
    pub(crate) fn pool(&self) -> u32 {
        self.pool
    }

    /// Entries of a mapping page, as a power of two.
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// Whether the host must wait until changed entries have found their pages.
    pub(crate) fn holds_host_back(&self) -> bool {
        self.holding.0
    }

    /// Whether collection must.
    pub(crate) fn holds_collection_back(&self) -> bool {
        self.holding.1
    }

    /// Bytes of a mapping page.
    fn page_bytes(&self) -> u64 {
        u64::from(ENTRY_BYTES) << self.shift
    }

    /// Looks for a page; one that is there has been used now.
    #[inline]
    fn find(&mut self, page: u32) -> Option<u32> {
        let slot = self.places[page as usize];
        if slot & WANTED != 0 {
            return None; // Wanted, or nowhere.
        }
        if self.uses.newest != slot {
            self.uses.remove(&mut self.slots, slot, by_use);
            self.uses.push(&mut self.slots, slot, by_use);
        }
        Some(slot)
    }

    /// The request for a page that is not in the cache; true: it is a new one.
    fn request(&mut self, page: u32) -> (u32, bool) {
        let place = self.places[page as usize];
        if place != NONE {
            return (place & !WANTED, false);
        }
        let request = Request { page, slot: NONE, first_waiter: NONE, updates: 0, changed: 0 };
        let id = match self.free_requests.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        };
        self.places[page as usize] = WANTED | id;
        self.queue.push_back(id);
        (id, true)
    }

    fn wait(&mut self, request: u32, owner: u32) {
        let waiter = Waiter { owner, next: self.requests[request as usize].first_waiter };
        let id = match self.free_waiters.pop() {
            Some(id) => {
                self.waiters[id as usize] = waiter;
                id
            }
            None => {
                self.waiters.push(waiter);
                (self.waiters.len() - 1) as u32
            }
        };
        self.requests[request as usize].first_waiter = id;
    }

    /// Says that entries of a page have changed: rows from `sequence` on may not be in its copy on flash.
    fn change(&mut self, slot: u32, sequence: u64) {
        if self.slots[slot as usize].changed != 0 {
            return;
        }
        self.slots[slot as usize].changed = sequence;
        // The oldest of the list holds the floor of recovery: a page that had to wait for its place was changed before
        // others.
        let mut older = self.changes.newest;
        while let Some(s) = self.slots.get(older as usize).filter(|s| s.changed > sequence) {
            older = s.change_links.older;
        }
        self.changes.insert(&mut self.slots, slot, older, by_change);
    }

    fn unchange(&mut self, slot: u32) {
        if std::mem::take(&mut self.slots[slot as usize].changed) != 0 {
            self.changes.remove(&mut self.slots, slot, by_change);
        }
    }

    /// A place for another page: a free one, or that of a page which need not be programmed first, of those that were
    /// used longest ago.
    fn take_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let mut slot = self.uses.oldest;
        for passed_over in 0..WINDOW as u32 {
            let s = self.slots.get(slot as usize)?;
            if s.changed == 0 && s.writing == 0 && self.is_idle(slot) {
                self.statistics.evictions += 1;
                self.passed_over = passed_over;
                self.forget(slot);
                return Some(slot);
            }
            slot = s.use_links.newer;
        }
        None
    }

    /// Takes a page out of the cache.
    fn forget(&mut self, slot: u32) {
        self.unhost(slot);
        self.uses.remove(&mut self.slots, slot, by_use);
        let page = std::mem::replace(&mut self.slots[slot as usize].page, NONE);
        self.places[page as usize] = NONE;
    }

    /// Puts a page without waiters into a place.
    fn insert(&mut self, page: u32, slot: u32) {
        self.places[page as usize] = slot;
        self.slots[slot as usize] = Slot::of(page);
        self.uses.push(&mut self.slots, slot, by_use);
        self.inserted(page, slot);
    }

    /// A page has no entry any more: its place is free.
    fn drop_page(&mut self, page: u32) {
        let slot = self.places[page as usize];
        if slot & WANTED == 0 {
            self.unchange(slot);
            self.forget(slot);
            self.release(slot);
        }
    }

    /// A wanted page is in memory: it goes to its place, and its waiters are notified.
    fn arrive(&mut self, request: u32) {
        let Request { page, slot, first_waiter, updates, changed } = self.requests[request as usize];
        match self.place_for(slot) {
            Some(slot) => {
                self.free_requests.push(request);
                self.insert(page, slot);
                self.settled(slot, updates);
                if changed != 0 {
                    self.change(slot, changed);
                }
            }
            // Its place went with host memory: its waiters have it, and what has changed on it waits for a place.
            None if changed != 0 => {
                let r = &mut self.requests[request as usize];
                (r.slot, r.first_waiter) = (NONE, NONE);
                self.queue.push_back(request);
            }
            None => {
                self.free_requests.push(request);
                self.places[page as usize] = NONE;
            }
        }
        // They were put in front: the first of them comes last, and is taken first.
        let mut waiter = first_waiter;
        while waiter != NONE {
            let Waiter { owner, next } = self.waiters[waiter as usize];
            self.translated.push(owner);
            self.free_waiters.push(waiter);
            waiter = next;
        }
    }

    /// A copy of a page that was being programmed is on flash.
    fn written(&mut self, page: u32) {
        let slot = self.places[page as usize];
        if let Some(s) = self.slots.get_mut(slot as usize).filter(|_| slot & WANTED == 0) {
            s.writing = s.writing.saturating_sub(1);
            if s.writing == 0 {
                s.leaving = 0;
                self.left(slot);
            }
        }
    }

    /// The changed pages to program next, at most `count` of them: of those used longest ago, then those that have been
    /// changed for longest.
    fn choose_changed(&self, count: usize, chosen: &mut Vec<u32>) {
        chosen.clear();
        let may = |slot: u32, chosen: &[u32]| {
            let s = &self.slots[slot as usize];
            s.changed != 0 && s.writing == 0 && !chosen.contains(&slot)
        };
        let mut slot = self.uses.oldest;
        for _ in 0..WINDOW {
            if slot == NONE || chosen.len() == count {
                break;
            }
            if may(slot, chosen) {
                chosen.push(slot);
            }
            slot = self.slots[slot as usize].use_links.newer;
        }
        self.choose_oldest(count, chosen);
    }

    /// As [`MapCache::choose_changed`], by age alone, beside those that are chosen.
    fn choose_oldest(&self, count: usize, chosen: &mut Vec<u32>) {
        let mut slot = self.changes.oldest;
        for _ in 0..2 * WINDOW {
            if slot == NONE || chosen.len() == count {
                return;
            }
            let s = &self.slots[slot as usize];
            if s.writing == 0 && !chosen.contains(&slot) {
                chosen.push(slot);
            }
            slot = s.change_links.newer;
        }
    }
}
