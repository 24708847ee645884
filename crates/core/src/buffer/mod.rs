//! The controller's page buffers: a write buffer in front of the translation layer, and a read cache.
//!
//! A policy says which pages leave together; it is one file here and one line in `registry`. What becomes of pages that
//! leave, and what survives a power loss, is the same for all. `docs/internals/buffers.md` states the rules of each. A
//! policy can also come from outside of this crate ([`Outside`]); [`conformance`] holds any policy to the contract.

mod bpac;
mod bplru;
mod cbm;
mod cflru;
pub mod conformance;
mod fab;
mod guard;
mod lb_clock;
mod lru;
mod none;
mod outside;
mod policy;
mod section;
mod structure;
#[cfg(test)]
mod tests;

pub use outside::Outside;
pub use policy::{Fault, Leaving, Part, Policy, Run, Setting, Victim};
pub use section::{BufferProfile, CbmMerge, CbmRuns};
use std::collections::BTreeMap;
use tidewater_base::Instant;
use tidewater_base::statistics::BufferStatistics;

/// Lists every policy: its name, and how it is made.
macro_rules! registry {
    ($($name:literal => $policy:ty),* $(,)?) => {
        /// The names of all policies of the write buffer.
        pub const POLICIES: &[&str] = &[$($name),*];

        /// Makes a policy by name.
        fn make(name: &str, setting: &Setting) -> Option<Box<dyn Policy>> {
            match name {
                $($name => Some(Box::new(<$policy>::new(setting))),)*
                _ => None,
            }
        }
    };
}

registry! {
    "none" => none::NoBuffer,
    "lru" => lru::Lru,
    "cflru" => cflru::Cflru,
    "fab" => fab::Fab,
    "bplru" => bplru::Bplru,
    "lb-clock" => lb_clock::LbClock,
    "bpac" => bpac::Bpac,
    "cbm" => cbm::Cbm,
}

/// The names of the policies that a read cache can have.
pub const READ_POLICIES: &[&str] = &["none", "lru"];

/// Commands that wait for room.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    commands: u32,
    /// When waits ended less when they began, added up, in picoseconds: those that go on are in it by their begin
    /// alone.
    sum_ps: i128,
}

impl Waiting {
    /// Picoseconds that those who wait have waited since the run began.
    fn going_on(&self, now: Instant) -> i128 {
        i128::from(self.commands) * i128::from(now.as_ps())
    }
}

/// A buffer of pages: a policy, a capacity, and the versions of what it holds when the run is checked.
#[derive(Clone, Debug)]
pub struct Buffer {
    policy: Box<dyn Policy>,
    capacity: usize,
    /// Pages held, those that leave included.
    held: usize,
    /// Of these, clean ones.
    clean: usize,
    keeps_clean: bool,
    cooperates: bool,
    keeps_destaged: bool,
    /// Pages that leave, and are on their way to flash only as it takes them.
    victim: Victim,
    versions: Option<BTreeMap<u32, u64>>,
    waiting: Waiting,
    /// Counters, in pages.
    pub statistics: BufferStatistics,
    /// How many pages went to flash together, whatever their part, by number: the last index counts longer ones too.
    pub lengths: Box<[u64]>,
}

impl Buffer {
    /// An empty buffer. `versions`: keep what was written, not only where.
    ///
    /// # Panics
    /// When there is no policy of that name; the profile's check lets none through.
    pub fn new(name: &str, setting: &Setting, versions: bool) -> Buffer {
        let setting = Setting { capacity: if name == "none" { 0 } else { setting.capacity }, ..setting.clone() };
        let policy = make(name, &setting).unwrap_or_else(|| panic!("no buffer policy is named {name}"));
        Buffer::of(policy, &setting, versions)
    }

    /// An empty buffer with a policy that is made for it, as [`Buffer::new`].
    pub(crate) fn of(policy: Box<dyn Policy>, setting: &Setting, versions: bool) -> Buffer {
        let longest = (setting.block as usize).max(64);
        Buffer {
            keeps_clean: policy.keeps_clean(),
            cooperates: policy.cooperates(),
            keeps_destaged: policy.keeps_destaged(),
            policy,
            capacity: setting.capacity,
            held: 0,
            clean: 0,
            victim: Victim::with_capacity(longest),
            versions: versions.then(BTreeMap::new),
            waiting: Waiting::default(),
            statistics: BufferStatistics::default(),
            lengths: vec![0; longest + 1].into_boxed_slice(),
        }
    }

    /// Why the order of its pages counts for nothing: what its policy, one from outside, did wrong.
    pub fn fault(&self) -> Option<&Fault> {
        self.policy.fault()
    }

    /// A command begins to wait for room.
    pub(crate) fn begin_wait(&mut self, now: Instant) {
        self.waiting.sum_ps -= i128::from(now.as_ps());
        self.waiting.commands += 1;
    }

    /// A command that waited does no more.
    pub(crate) fn end_wait(&mut self, now: Instant) {
        self.waiting.sum_ps += i128::from(now.as_ps());
        self.waiting.commands -= 1;
    }

    /// Seconds that commands have waited for room by `now`, added up.
    pub fn wait_seconds(&self, now: Instant) -> f64 {
        (self.waiting.sum_ps + self.waiting.going_on(now)) as f64 / 1e12
    }

    /// Forgets all counters, at the end of a warm-up. What it holds by then counts among the most that it held.
    pub fn reset_statistics(&mut self, now: Instant) {
        self.waiting.sum_ps = -self.waiting.going_on(now);
        self.statistics = BufferStatistics { pages_max: self.held as u64, ..BufferStatistics::default() };
        self.lengths.fill(0);
    }

    /// Whether it can hold anything at all.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.capacity > 0
    }

    /// Pages that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// There is room for another number of pages, at most as many as it was made with, because its memory was lent or
    /// taken back. A read cache of no room keeps what it knows, and finds nothing; in a smaller one what is too much
    /// leaves with the next fill.
    pub(crate) fn set_capacity(&mut self, pages: usize) {
        self.capacity = pages;
    }

    /// Pages held.
    #[inline]
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether no page is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Pages held that flash does not have.
    #[inline]
    pub fn dirty(&self) -> usize {
        self.held - self.clean
    }

    /// Whether it takes in clean pages that were read from flash.
    #[inline]
    pub fn keeps_clean(&self) -> bool {
        self.keeps_clean && self.capacity > 0
    }

    /// Whether it wants to know what the read cache holds.
    #[inline]
    pub fn cooperates(&self) -> bool {
        self.cooperates
    }

    /// Whether a page that was destaged stays as a clean page of the read cache.
    #[inline]
    pub fn keeps_destaged(&self) -> bool {
        self.keeps_destaged
    }

    /// Whether a page is held; not counted as an access.
    #[inline]
    pub fn contains(&self, lpn: u32) -> bool {
        self.held > 0 && (self.policy.contains(lpn) || self.is_leaving_dirty(lpn))
    }

    /// Whether a page is held that flash does not have.
    #[inline]
    pub fn is_dirty(&self, lpn: u32) -> bool {
        self.contains(lpn) && !(self.clean > 0 && self.policy.is_clean(lpn))
    }

    #[inline]
    fn is_leaving_dirty(&self, lpn: u32) -> bool {
        !self.victim.is_empty() && self.victim.find(lpn).is_some_and(|at| self.victim.part(at) == Part::Dirty)
    }

    /// What a dirty page holds, when versions are kept.
    pub fn version(&self, lpn: u32) -> Option<u64> {
        self.versions.as_ref()?.get(&lpn).copied()
    }

    /// A page of a read cache is looked for: true and counted as a hit when it is held.
    #[inline]
    pub fn look_up(&mut self, lpn: u32) -> bool {
        if self.capacity == 0 {
            return false;
        }
        let hit = self.policy.read(lpn);
        self.statistics.hits += u64::from(hit);
        self.statistics.misses += u64::from(!hit);
        hit
    }

    /// A page is read that a write buffer may hold. Unless the policy keeps clean pages too, that is no use of the page
    /// that it gets: it orders writes.
    #[inline]
    pub fn read(&mut self, lpn: u32) -> bool {
        let found =
            if self.keeps_clean { self.policy.read(lpn) || self.is_leaving_dirty(lpn) } else { self.contains(lpn) };
        self.statistics.read_hits += u64::from(found);
        found
    }

    /// A page is written by a command that writes `run`. False: it is not held and there is no room; nothing has
    /// changed but, maybe, what the policy thinks of it.
    #[inline(always)]
    pub fn write(&mut self, lpn: u32, version: u64, run: Run) -> bool {
        let room = self.held < self.capacity;
        if !self.victim.is_empty()
            && let Some(at) = self.victim.find(lpn)
        {
            if !self.write_leaving(at, room) {
                return false;
            }
        } else if self.clean > 0 && self.policy.is_clean(lpn) {
            // No hit: a hit of a write saves a program.
            self.policy.write(lpn, run, room);
            self.clean -= 1;
            self.statistics.misses += 1;
        } else if self.policy.write(lpn, run, room) {
            self.statistics.hits += 1;
        } else if room {
            self.statistics.misses += 1;
            self.count_taken_in();
        } else {
            return false;
        }
        if let Some(versions) = &mut self.versions {
            versions.insert(lpn, version);
        }
        true
    }

    /// A page that leaves is written once more: the newer version leaves in its place.
    fn write_leaving(&mut self, at: usize, room: bool) -> bool {
        if self.victim.part(at) == Part::Dirty {
            self.statistics.hits += 1;
        } else if room {
            self.victim.set_dirty(at);
            self.statistics.misses += 1;
            self.count_taken_in();
        } else {
            return false;
        }
        true
    }

    /// Puts a page back that survived a power loss, whatever the capacity: it was held before.
    pub fn restore(&mut self, lpn: u32, version: u64) {
        if !self.policy.write(lpn, Run::of_one(lpn), true) {
            self.count_taken_in();
        }
        if let Some(versions) = &mut self.versions {
            versions.insert(lpn, version);
        }
    }

    /// A read cache takes in a page, evicting others to make room; `gone` gets those.
    #[inline]
    pub fn fill(&mut self, lpn: u32, mut gone: impl FnMut(u32)) -> bool {
        if self.capacity == 0 || self.policy.read(lpn) {
            return false;
        }
        if self.held >= self.capacity {
            self.policy.evict(self.held + 1 - self.capacity, &mut self.victim);
            self.held -= self.victim.rest().len();
            self.statistics.evictions += self.victim.rest().len() as u64;
            self.victim.rest().iter().for_each(|page| gone(page.lpn));
            self.victim.clear();
        }
        self.policy.fill(lpn);
        self.count_taken_in();
        true
    }

    /// A write buffer that keeps clean pages takes one in, which was read from flash. False: there is no room.
    pub fn keep(&mut self, lpn: u32) -> bool {
        if self.held >= self.capacity && !self.drop_clean() {
            return false;
        }
        // What is about to be written to flash may be read meanwhile.
        if !self.contains(lpn) {
            self.policy.fill(lpn);
            self.clean += 1;
            self.count_taken_in();
        }
        true
    }

    /// Evicts a clean page that leaves before any dirty one. False: there is none.
    #[inline]
    pub fn drop_clean(&mut self) -> bool {
        if self.clean == 0 || self.policy.drop_clean().is_none() {
            return false;
        }
        self.clean -= 1;
        self.held -= 1;
        true
    }

    /// The read cache has taken in a page.
    #[inline]
    pub fn cached(&mut self, lpn: u32) {
        self.policy.cached(lpn);
    }

    /// The read cache has let go of a page.
    #[inline]
    pub fn uncached(&mut self, lpn: u32) {
        self.policy.uncached(lpn);
    }

    #[inline]
    fn count_taken_in(&mut self) {
        self.held += 1;
        self.statistics.insertions += 1;
        self.statistics.pages_max = self.statistics.pages_max.max(self.held as u64);
    }

    /// Drops a page without writing it anywhere. True: it was held.
    #[inline]
    pub fn remove(&mut self, lpn: u32) -> bool {
        if !self.victim.is_empty()
            && let Some(at) = self.victim.find(lpn)
        {
            let dirty = self.victim.part(at) == Part::Dirty;
            self.victim.remove(at);
            if !dirty {
                return false;
            }
        } else if self.held > 0 && self.clean > 0 && self.policy.is_clean(lpn) {
            self.policy.remove(lpn);
            self.clean -= 1;
        } else if self.held == 0 || !self.policy.remove(lpn) {
            return false;
        }
        self.held -= 1;
        if let Some(versions) = &mut self.versions {
            versions.remove(&lpn);
        }
        true
    }

    /// Chooses the dirty pages that leave together next, with those that go along. They are held until
    /// [`Buffer::take_leaving`] takes them one by one; until the last, nothing else is chosen.
    #[inline]
    pub fn choose(&mut self, most: usize) {
        assert!(self.victim.is_empty(), "pages are leaving already");
        self.policy.evict(most, &mut self.victim);
    }

    /// Names up to `most` pages that would leave after those that are leaving now.
    #[inline]
    pub fn outlook(&self, most: usize, see: &mut dyn FnMut(u32)) {
        self.policy.outlook(most, see);
    }

    /// Of the pages that leave, keeps some: clean ones may stay behind.
    #[inline]
    pub fn trim_leaving(&mut self, keep: impl FnMut(&Leaving) -> bool) {
        self.victim.retain(keep);
    }

    /// What was to be read from flash to go along stays behind.
    pub fn drop_padding(&mut self) {
        self.victim.retain(|page| page.part != Part::Padding);
    }

    /// Counts what leaves together.
    #[inline]
    pub fn count_leaving(&mut self) {
        let pages = self.victim.rest().len();
        if pages > 0 {
            self.statistics.departures += 1;
            self.lengths[pages.min(self.lengths.len() - 1)] += 1;
        }
    }

    /// Pages that leave, in the order in which they go.
    #[inline]
    pub fn leaving(&self) -> &[Leaving] {
        self.victim.rest()
    }

    /// Whether pages are on their way.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        !self.victim.is_empty()
    }

    /// The first page that leaves goes to flash now; of a dirty page, returns the version. `written`: it was needed.
    #[inline]
    pub fn take_leaving(&mut self, written: bool) -> u64 {
        let Leaving { lpn, part } = self.victim.rest()[0];
        self.victim.take();
        let statistics = &mut self.statistics;
        match part {
            Part::Dirty => {
                self.held -= 1;
                statistics.evictions += 1;
                return self.versions.as_mut().and_then(|v| v.remove(&lpn)).unwrap_or(0);
            }
            Part::Cached => statistics.pages_merged += u64::from(written),
            Part::Padding => statistics.pages_padded += u64::from(written),
        }
        0
    }

    /// Every page held, in no particular order, those that only go along included.
    pub fn pages(&self) -> Vec<u32> {
        let mut pages = self.policy.pages();
        pages.extend(self.victim.rest().iter().map(|page| page.lpn));
        pages
    }

    /// Every dirty page and its version, by page.
    pub fn contents(&self) -> Vec<(u32, u64)> {
        let mut pages = self.policy.pages();
        pages.retain(|&lpn| self.clean == 0 || !self.policy.is_clean(lpn));
        pages.extend(self.victim.rest().iter().filter(|page| page.part == Part::Dirty).map(|page| page.lpn));
        let mut pages: Vec<_> = pages.into_iter().map(|l| (l, self.version(l).unwrap_or(0))).collect();
        pages.sort_unstable();
        pages
    }
}
