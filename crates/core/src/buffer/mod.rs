//! The controller's page buffers: a write buffer in front of the translation layer, and a read cache.
//!
//! A policy says which page leaves; it is one file here and one line in `registry`. What the buffer does with pages
//! that leave, and what survives a power loss, is the same for all.

mod lru;
mod none;

use std::collections::BTreeMap;
use std::fmt;

/// A replacement policy over logical pages. The buffer keeps to its capacity; the policy keeps the order.
pub trait Policy: fmt::Debug + Send {
    /// Whether the page is held.
    fn contains(&self, lpn: u32) -> bool;
    /// The page was read or written again: false when it is not held.
    fn touch(&mut self, lpn: u32) -> bool;
    /// Takes in a page that is not held.
    fn insert(&mut self, lpn: u32);
    /// As [`Policy::touch`], and if the page is not held and there is `room`, [`Policy::insert`]. False: it was not held.
    /// A policy that can do both with one look-up should: every write needs it.
    fn touch_or_insert(&mut self, lpn: u32, room: bool) -> bool {
        let held = self.touch(lpn);
        if !held && room {
            self.insert(lpn);
        }
        held
    }
    /// Lets go of a page: false when it is not held.
    fn remove(&mut self, lpn: u32) -> bool;
    /// Takes out the pages that leave together next, at least one if any is held, and about `most`.
    fn evict(&mut self, most: usize, leaving: &mut Vec<u32>);
    /// Pages held.
    fn len(&self) -> usize;
    /// Whether no page is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Every page held, in no particular order.
    fn pages(&self) -> Vec<u32>;
    /// A copy.
    fn boxed_clone(&self) -> Box<dyn Policy>;
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// Lists every policy: its name, and how it is made for a capacity in pages.
macro_rules! registry {
    ($($name:literal => $policy:ty),* $(,)?) => {
        /// The names of all policies.
        pub const POLICIES: &[&str] = &[$($name),*];

        /// Makes a policy by name.
        fn make(name: &str, capacity: usize) -> Option<Box<dyn Policy>> {
            match name {
                $($name => Some(Box::new(<$policy>::new(capacity))),)*
                _ => None,
            }
        }
    };
}

registry! {
    "none" => none::NoBuffer,
    "lru" => lru::Lru,
}

/// Counters of a buffer, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferStatistics {
    /// Accesses that found their page.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
    /// Pages that left.
    pub evicted: u64,
    /// Times pages left together.
    pub evictions: u64,
    /// The most pages held at once.
    pub pages_max: u64,
    /// How many pages left together, by number: index 63 counts 63 and more.
    pub lengths: [u64; 64],
}

impl Default for BufferStatistics {
    fn default() -> BufferStatistics {
        BufferStatistics { hits: 0, misses: 0, evicted: 0, evictions: 0, pages_max: 0, lengths: [0; 64] }
    }
}

impl BufferStatistics {
    /// Hits of all accesses, 0 when there were none.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// A buffer of pages: a policy, a capacity, and the versions of what it holds when the run is checked.
#[derive(Clone, Debug)]
pub struct Buffer {
    policy: Box<dyn Policy>,
    capacity: usize,
    /// Pages held: what the policy would say, without asking it.
    held: usize,
    versions: Option<BTreeMap<u32, u64>>,
    /// Counters.
    pub statistics: BufferStatistics,
}

impl Buffer {
    /// An empty buffer of `capacity` pages. `versions`: keep what was written, not only where.
    ///
    /// # Panics
    /// When there is no policy of that name; the profile's check lets none through.
    pub fn new(policy: &str, capacity: usize, versions: bool) -> Buffer {
        let capacity = if policy == "none" { 0 } else { capacity };
        Buffer {
            policy: make(policy, capacity).unwrap_or_else(|| panic!("no buffer policy is named {policy}")),
            capacity,
            held: 0,
            versions: versions.then(BTreeMap::new),
            statistics: BufferStatistics::default(),
        }
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

    /// Whether a page is held; not counted as an access.
    #[inline]
    pub fn contains(&self, lpn: u32) -> bool {
        self.held > 0 && self.policy.contains(lpn)
    }

    /// What a page holds, when versions are kept.
    pub fn version(&self, lpn: u32) -> Option<u64> {
        self.versions.as_ref()?.get(&lpn).copied()
    }

    /// A page is read: true and counted as a hit when it is held.
    #[inline]
    pub fn read(&mut self, lpn: u32) -> bool {
        if self.capacity == 0 {
            return false;
        }
        let hit = self.policy.touch(lpn);
        self.statistics.hits += u64::from(hit);
        self.statistics.misses += u64::from(!hit);
        hit
    }

    /// A page is written. False: it is not held and there is no room; nothing has changed.
    #[inline]
    pub fn write(&mut self, lpn: u32, version: u64) -> bool {
        let room = self.held < self.capacity;
        if self.policy.touch_or_insert(lpn, room) {
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

    /// Puts a page back that survived a power loss, whatever the capacity: it was held before.
    pub fn restore(&mut self, lpn: u32, version: u64) {
        if !self.policy.touch(lpn) {
            self.policy.insert(lpn);
            self.count_taken_in();
        }
        if let Some(versions) = &mut self.versions {
            versions.insert(lpn, version);
        }
    }

    /// Takes in a clean page, letting others go to make room.
    #[inline]
    pub fn fill(&mut self, lpn: u32, leaving: &mut Vec<u32>) {
        if self.capacity == 0 || self.policy.touch(lpn) {
            return;
        }
        if self.held >= self.capacity {
            leaving.clear();
            self.policy.evict(1, leaving);
            self.held -= leaving.len();
        }
        self.policy.insert(lpn);
        self.count_taken_in();
    }

    #[inline]
    fn count_taken_in(&mut self) {
        self.held += 1;
        self.statistics.pages_max = self.statistics.pages_max.max(self.held as u64);
    }

    /// Lets go of a page without writing it anywhere.
    #[inline]
    pub fn remove(&mut self, lpn: u32) {
        if self.held > 0 && self.policy.remove(lpn) {
            self.held -= 1;
            if let Some(versions) = &mut self.versions {
                versions.remove(&lpn);
            }
        }
    }

    /// Takes out the pages that leave together next, with their versions.
    #[inline]
    pub fn evict(&mut self, most: usize, leaving: &mut Vec<u32>) {
        leaving.clear();
        self.policy.evict(most, leaving);
        let n = leaving.len();
        self.held -= n;
        if n > 0 {
            self.statistics.evicted += n as u64;
            self.statistics.evictions += 1;
            self.statistics.lengths[n.min(63)] += 1;
        }
    }

    /// The version of a page that has just left.
    #[inline]
    pub fn take_version(&mut self, lpn: u32) -> u64 {
        self.versions.as_mut().and_then(|v| v.remove(&lpn)).unwrap_or(0)
    }

    /// Every page held, in no particular order.
    pub fn pages(&self) -> Vec<u32> {
        self.policy.pages()
    }

    /// Every page held and its version, by page.
    pub fn contents(&self) -> Vec<(u32, u64)> {
        let mut pages: Vec<_> = self.policy.pages().into_iter().map(|l| (l, self.version(l).unwrap_or(0))).collect();
        pages.sort_unstable();
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Rng;

    /// Every policy, under random operations, against a set: no page is lost, none appears, capacity is kept.
    #[test]
    fn policies_conform() {
        for name in POLICIES.iter().filter(|&&n| n != "none") {
            let mut rng = Rng::new(11, name.as_bytes());
            let mut buffer = Buffer::new(name, 32, true);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut leaving = Vec::new();
            for version in 0..20_000u64 {
                let lpn = rng.below(100) as u32;
                match rng.below(10) {
                    0..5 => {
                        if buffer.write(lpn, version) {
                            model.insert(lpn, version);
                        } else {
                            assert_eq!(buffer.len(), 32);
                            buffer.evict(1 + rng.below(8) as usize, &mut leaving);
                            assert!(!leaving.is_empty());
                            for &l in &leaving {
                                assert_eq!(model.remove(&l), Some(buffer.take_version(l)), "{name}");
                            }
                        }
                    }
                    5..8 => assert_eq!(buffer.read(lpn), model.contains_key(&lpn), "{name}"),
                    8 => {
                        buffer.remove(lpn);
                        model.remove(&lpn);
                    }
                    _ => assert_eq!(buffer.version(lpn), model.get(&lpn).copied(), "{name}"),
                }
                assert_eq!((buffer.len(), buffer.policy.len()), (model.len(), model.len()), "{name}");
            }
            let mut expected: Vec<_> = model.into_iter().collect();
            expected.sort_unstable();
            assert_eq!(buffer.contents(), expected, "{name}");
        }
    }

    #[test]
    fn no_buffer_holds_nothing() {
        let mut buffer = Buffer::new("none", 32, true);
        assert!(!buffer.is_enabled() && !buffer.write(1, 1) && !buffer.read(1) && buffer.contents().is_empty());
    }
}
