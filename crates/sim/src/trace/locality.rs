//! How near in time and place the requests of a trace are: what a buffer of written pages lives on.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::footprint::PAGE_BYTES;

/// Requests of each kind that are recent, as for [`crate::workload::Synth`].
const RECENT: usize = 4096;
/// Sizes of the lists of written pages, in MiB.
const LISTS_MIB: [u32; 3] = [1, 4, 16];
/// Pages of a block: 256 KiB, a flash block of small pages.
const BLOCK_PAGES: u64 = 64;
const NONE: u32 = u32::MAX;

/// How near in time and place requests are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locality {
    /// Of the reads and writes that are not sequential, those that begin where one of the last 4,096 of their kind
    /// began, in percent.
    pub again_percent: f64,
    /// Of the same, those that begin where one of the last 4,096 of their kind ended (and none began), in percent.
    pub onward_percent: f64,
    /// Hits of LRU lists of written pages, by size.
    pub written: Vec<WrittenPages>,
}

/// Hits and contents of an LRU list of written pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenPages {
    /// Its size.
    pub mib: u32,
    /// Pages written that were in it, in percent.
    pub again_percent: f64,
    /// Mean of its pages that share an aligned block of 256 KiB, over the time in which it was full; 0 when it never
    /// was.
    pub pages_per_block: f64,
}

/// A place in an address space.
type Place = (u32, u64);

#[derive(Default)]
struct Recent {
    last: VecDeque<(Place, Place)>,
    begins: HashMap<Place, u32>,
    ends: HashMap<Place, u32>,
}

impl Recent {
    fn add(&mut self, begin: Place, end: Place) {
        if self.last.len() == RECENT
            && let Some((begin, end)) = self.last.pop_front()
        {
            release(&mut self.begins, begin);
            release(&mut self.ends, end);
        }
        self.last.push_back((begin, end));
        *self.begins.entry(begin).or_default() += 1;
        *self.ends.entry(end).or_default() += 1;
    }
}

fn release(counts: &mut HashMap<Place, u32>, key: Place) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

struct Node {
    page: Place,
    older: u32,
    newer: u32,
}

/// Pages in the order in which they were written last.
struct List {
    mib: u32,
    capacity: usize,
    nodes: Vec<Node>,
    oldest: u32,
    newest: u32,
    found: HashMap<Place, u32>,
    blocks: HashMap<Place, u32>,
    hits: u64,
    written: u64,
    density: f64,
    density_count: u64,
}

impl List {
    fn new(mib: u32) -> List {
        let capacity = (u64::from(mib) << 20) / PAGE_BYTES;
        List {
            mib,
            capacity: capacity as usize,
            nodes: Vec::new(),
            oldest: NONE,
            newest: NONE,
            found: HashMap::new(),
            blocks: HashMap::new(),
            hits: 0,
            written: 0,
            density: 0.0,
            density_count: 0,
        }
    }

    fn unlink(&mut self, n: u32) {
        let Node { older, newer, .. } = self.nodes[n as usize];
        match older {
            NONE => self.oldest = newer,
            o => self.nodes[o as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            o => self.nodes[o as usize].older = older,
        }
    }

    fn push_newest(&mut self, n: u32) {
        let older = std::mem::replace(&mut self.newest, n);
        (self.nodes[n as usize].older, self.nodes[n as usize].newer) = (older, NONE);
        match older {
            NONE => self.oldest = n,
            o => self.nodes[o as usize].newer = n,
        }
    }

    fn write(&mut self, page: Place) {
        self.written += 1;
        let n = match self.found.get(&page) {
            Some(&n) => {
                self.hits += 1;
                self.unlink(n);
                n
            }
            None => {
                let n = if self.nodes.len() < self.capacity {
                    self.nodes.push(Node { page, older: NONE, newer: NONE });
                    self.nodes.len() as u32 - 1
                } else {
                    let n = self.oldest;
                    let gone = std::mem::replace(&mut self.nodes[n as usize].page, page);
                    self.unlink(n);
                    self.found.remove(&gone);
                    release(&mut self.blocks, (gone.0, gone.1 / BLOCK_PAGES));
                    n
                };
                self.found.insert(page, n);
                *self.blocks.entry((page.0, page.1 / BLOCK_PAGES)).or_default() += 1;
                n
            }
        };
        self.push_newest(n);
        if self.nodes.len() == self.capacity {
            self.density += self.capacity as f64 / self.blocks.len() as f64;
            self.density_count += 1;
        }
    }
}

/// Counts it.
pub(super) struct Counter {
    recent: [Recent; 2],
    lists: Vec<List>,
    again: u64,
    onward: u64,
    all: u64,
}

impl Counter {
    pub fn new() -> Counter {
        Counter { recent: Default::default(), lists: LISTS_MIB.map(List::new).into(), again: 0, onward: 0, all: 0 }
    }

    /// One that looks only where requests begin, and keeps no lists of pages: those take most of the time.
    pub fn of_places() -> Counter {
        Counter { lists: Vec::new(), ..Counter::new() }
    }

    /// A read or write of `length` bytes at `offset` of address space `space`; `is_sequential`: it begins where the one
    /// before it ended.
    pub fn add(&mut self, space: u32, is_write: bool, offset: u64, length: u64, is_sequential: bool) {
        let (begin, end) = ((space, offset), (space, offset + length));
        let recent = &mut self.recent[usize::from(is_write)];
        if !is_sequential {
            self.all += 1;
            if recent.begins.contains_key(&begin) {
                self.again += 1;
            } else if recent.ends.contains_key(&begin) {
                self.onward += 1;
            }
        }
        recent.add(begin, end);
        if is_write && length > 0 {
            for page in offset / PAGE_BYTES..=(offset + length - 1) / PAGE_BYTES {
                self.lists.iter_mut().for_each(|list| list.write((space, page)));
            }
        }
    }

    pub fn finish(&self) -> Locality {
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 };
        let written = |list: &List| WrittenPages {
            mib: list.mib,
            again_percent: share(list.hits, list.written),
            pages_per_block: if list.density_count == 0 { 0.0 } else { list.density / list.density_count as f64 },
        };
        Locality {
            again_percent: share(self.again, self.all),
            onward_percent: share(self.onward, self.all),
            written: self.lists.iter().map(written).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_where_they_begin() {
        let mut counter = Counter::new();
        counter.add(0, true, 0, 4096, false);
        counter.add(0, true, 65_536, 4096, false);
        counter.add(0, true, 0, 8192, false); // Again.
        counter.add(0, true, 69_632, 4096, false); // Onward.
        counter.add(0, true, 73_728, 4096, true); // Sequential: counts as neither.
        counter.add(0, false, 0, 4096, false); // The first read.
        counter.add(1, true, 0, 4096, false); // Another device.
        let found = counter.finish();
        assert_eq!((found.again_percent, found.onward_percent), (100.0 / 6.0, 100.0 / 6.0));
    }

    #[test]
    fn a_place_is_forgotten_after_many_others() {
        let mut counter = Counter::new();
        for i in 0..=RECENT as u64 {
            counter.add(0, true, i * 1_000_000, 4096, false);
        }
        counter.add(0, true, 0, 4096, false);
        counter.add(0, true, 3_000_000, 4096, false);
        assert_eq!(counter.again, 1);
        assert!(counter.recent[1].begins.len() <= RECENT);
    }

    #[test]
    fn a_list_holds_what_was_written_last() {
        // Two pages of each block, written twice in a row: every second write hits, and blocks are half empty.
        let mut counter = Counter::new();
        for block in 0..1_000u64 {
            for page in [0, 1, 0, 1] {
                counter.add(0, true, block * 262_144 + page * 4096, 4096, false);
            }
        }
        let found = counter.finish();
        assert_eq!(found.written[0].again_percent, 50.0);
        assert!((found.written[0].pages_per_block - 2.0).abs() < 0.02, "{found:?}");
        assert_eq!(found.written[2].pages_per_block, 0.0, "2,000 pages do not fill 16 MiB");
        // A page that comes back later than others have filled the list is not found.
        let mut counter = Counter::new();
        for page in (0..512).chain(0..512) {
            counter.add(0, true, page * 4096, 4096, false);
        }
        let found = counter.finish();
        assert_eq!((found.written[0].again_percent, found.written[1].again_percent), (0.0, 50.0));
    }
}
