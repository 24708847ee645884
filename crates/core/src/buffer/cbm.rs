//! `cbm`: a page region and a block region, which write and read cache together fill and empty (Wei, Chen and Yang,
//! *CBM: a cooperative buffer management for SSD*, MSST 2014).

mod threshold;

use super::policy::{Leaving, Part, Policy, Run, Setting, Victim};
use super::structure::{Blocks, Heap, List, Place};
use super::{CbmMerge, CbmRuns};
use threshold::Threshold;

/// The page region holds blocks that were written at random, its pages in LRU order; the block region holds blocks that
/// were written sequentially, in the order of the *block popularity list*. A block is in one of them, with all its
/// dirty pages.
///
/// - A new block goes to the page region. It migrates to the block region when its dirty pages reach the threshold, or
///   when it is written sequentially: by a run of at least `cbm_sequential` bytes, in one command or in commands that
///   follow each other.
/// - A write makes its block more popular by one, but a page that follows the page before it, in the same block, does
///   not.
/// - The least popular block of the block region leaves; of equals, the one that has the most dirty pages,
///   then the one with the lowest number. When the block
///   region is empty, the least recently written page of the page region leaves with its block's other pages.
/// - With them go the block's pages in the read cache (merge-on-flush): all, or as `cbm_merge` reads the slides.
/// - Beyond the slides, and off by default: runs judged for each block (`cbm_runs`), destaged pages kept in the read
///   cache (`cbm_keep`), blocks completed from flash (`cbm_merge = "pad"` all, `cbm_padding` those that are half full),
///   ageing of popularity (`cbm_age`).
///
/// O(log n) for a page: one tree finds the block of pages in both regions and in the read cache.
#[derive(Clone, Debug)]
pub struct Cbm {
    regions: Regions,
    threshold: Threshold,
    /// Pages of a run that is sequential.
    sequential: u32,
    merge: CbmMerge,
    keep: bool,
    /// The run that goes on.
    going: Going,
    /// By block, if runs are looked for so.
    runs: Option<Vec<Going>>,
    /// Pages of a block that leave from which on it is completed from flash.
    pads: usize,
    units: u32,
    /// Room for the pages of the block that leaves.
    leaving: Vec<Leaving>,
    /// Writes after which popularity is halved, and those since that was done; 0: never.
    age: u64,
    written: u64,
}

/// The page that was written last, and the pages of the run that it ends.
#[derive(Clone, Copy, Debug)]
struct Going {
    last: u32,
    run: u32,
}

impl Going {
    const NONE: Going = Going { last: u32::MAX, run: 0 };

    /// A page is written: whether it continues the run.
    fn on(&mut self, lpn: u32) -> bool {
        let continues = lpn == self.last.wrapping_add(1);
        self.run = if continues { self.run.saturating_add(1) } else { 1 };
        self.last = lpn;
        continues
    }
}

/// The block popularity list: the least popular first, then the most dirty pages. The mark of a block is its
/// popularity.
fn key<'a>(blocks: &'a Blocks) -> impl Fn(u32) -> Place<'a, u32> {
    |number| {
        let key = u32::from(blocks.mark(number)) << 16 | (u32::from(u16::MAX) - blocks.count(number));
        blocks.place(number, key)
    }
}

/// The two regions, with the pages that the read cache has aside.
#[derive(Clone, Debug)]
struct Regions {
    blocks: Blocks,
    /// The page region.
    recency: List,
    /// The block region.
    popularity: Heap,
}

impl Regions {
    /// `aside`: pages beside those of the buffer.
    fn new(capacity: usize, aside: usize, block: u32) -> Regions {
        Regions {
            blocks: Blocks::new(capacity + aside, block),
            recency: List::new(capacity + aside),
            popularity: Heap::new(capacity),
        }
    }

    /// The node of a page, its block, and whether it was held; `None`: it is not, and there is no room.
    fn hold(&mut self, lpn: u32, room: bool) -> Option<(u32, u32, bool)> {
        match self.blocks.find(lpn) {
            Some(n) => Some((n, self.blocks.number_of(n), true)),
            None => room.then(|| {
                let (n, number) = self.blocks.insert(lpn);
                (n, number, false)
            }),
        }
    }

    /// A page that is held is written. `migrates`: so many dirty pages make its block one for the block region.
    fn write(&mut self, (n, number, held): (u32, u32, bool), access: Access, migrates: u32) {
        let offset = self.blocks.split(self.blocks.lpn(n)).1;
        if !access.continues || offset == 0 || self.blocks.mark(number) == 0 {
            self.blocks.set_mark(number, self.blocks.mark(number).saturating_add(1));
        }
        if self.popularity.contains(number) {
            self.popularity.update(number, key(&self.blocks));
            return;
        }
        if held {
            self.recency.renew(n);
        } else {
            self.recency.push_newest(n);
        }
        if access.sequential || self.blocks.count(number) >= migrates {
            // From the page region to the block region.
            for n in self.blocks.nodes(number) {
                self.recency.remove(n);
            }
            self.popularity.push(number, key(&self.blocks));
        }
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.blocks.find(lpn) else { return false };
        let number = self.blocks.number_of(n);
        if !self.popularity.contains(number) {
            self.recency.remove(n);
            self.blocks.remove(n);
        } else if self.blocks.count(number) == 1 {
            self.popularity.remove(number, key(&self.blocks));
            self.blocks.remove(n);
        } else {
            self.blocks.remove(n);
            self.popularity.update(number, key(&self.blocks));
        }
        true
    }

    /// Takes the block that leaves out of its region. `None`: there is none.
    fn choose(&mut self) -> Option<u32> {
        if let Some(number) = self.popularity.first() {
            self.popularity.remove(number, key(&self.blocks));
            return Some(number);
        }
        let number = self.blocks.number_of(self.recency.oldest()?);
        for n in self.blocks.nodes(number) {
            self.recency.remove(n);
        }
        Some(number)
    }

    /// The popularity of every block is halved.
    fn halve(&mut self) {
        self.blocks.halve_marks();
        self.popularity.update_all(key(&self.blocks));
    }
}

/// How a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    /// It continues the run before it.
    continues: bool,
    /// Its run is sequential, as far as its command tells.
    sequential: bool,
}

impl Cbm {
    pub(super) fn new(setting: &Setting) -> Cbm {
        let capacity = setting.capacity;
        let by_block = setting.profile.cbm_runs == CbmRuns::Block;
        let pads = match (setting.profile.cbm_merge, setting.profile.cbm_padding) {
            (CbmMerge::Pad, _) => 1,
            (_, true) => setting.block.div_ceil(2) as usize,
            (_, false) => usize::MAX,
        };
        Cbm {
            regions: Regions::new(capacity, setting.cached, setting.block),
            threshold: Threshold::new(setting),
            sequential: setting.sequential,
            merge: setting.profile.cbm_merge,
            keep: setting.profile.cbm_keep,
            going: Going::NONE,
            runs: by_block.then(|| vec![Going::NONE; capacity + setting.cached]),
            pads,
            units: setting.units,
            leaving: Vec::with_capacity(if pads == usize::MAX { 0 } else { setting.block as usize }),
            age: (setting.profile.cbm_age * capacity as f64).ceil() as u64,
            written: 0,
        }
    }

    fn classify(&mut self, lpn: u32, run: Run, number: u32) -> Access {
        let going = match &mut self.runs {
            None => &mut self.going,
            Some(runs) => {
                let going = &mut runs[number as usize];
                if self.regions.blocks.mark(number) == 0 {
                    // The number may have been another block's.
                    *going = Going::NONE;
                }
                going
            }
        };
        let continues = going.on(lpn);
        let to_come = run.end.saturating_sub(lpn + 1);
        Access { continues, sequential: going.run.saturating_add(to_come) >= self.sequential }
    }

    /// A page was written: popularity ages.
    fn grow_older(&mut self) {
        if self.age == 0 {
            return;
        }
        self.written += 1;
        if self.written >= self.age {
            self.written = 0;
            self.regions.halve();
            self.threshold.halve();
        }
    }

    /// Of the clean pages of the block that leaves, keeps those that are merged, and asks for those that are missing.
    fn complete(&self, first: u32, victim: &mut Victim, leaving: &mut Vec<Leaving>) {
        let size = self.regions.blocks.size();
        match self.merge {
            CbmMerge::Always | CbmMerge::Pad | CbmMerge::Off => {}
            CbmMerge::Whole if victim.rest().len() as u32 == size => {}
            CbmMerge::Whole => victim.retain(|page| page.part == Part::Dirty),
            CbmMerge::Run => {
                let run = victim.rest().iter().zip(first..).take_while(|(page, lpn)| page.lpn == *lpn);
                let (pages, dirty) =
                    run.fold((0, false), |(pages, dirty), (page, _)| (pages + 1, dirty || page.part == Part::Dirty));
                let end = if dirty { first + pages } else { first };
                victim.retain(|page| page.part == Part::Dirty || page.lpn < end);
            }
        }
        if victim.rest().len() >= self.pads {
            victim.pad(first, first.saturating_add(size).min(self.units), leaving);
        }
    }
}

impl Policy for Cbm {
    fn contains(&self, lpn: u32) -> bool {
        self.regions.blocks.contains(lpn)
    }

    fn write(&mut self, lpn: u32, run: Run, room: bool) -> bool {
        let Some(place) = self.regions.hold(lpn, room) else { return false };
        let (_, number, held) = place;
        self.grow_older();
        let access = self.classify(lpn, run, number);
        self.threshold.count_write(lpn, access);
        self.regions.write(place, access, self.threshold.now());
        held
    }

    fn remove(&mut self, lpn: u32) -> bool {
        self.threshold.forget(lpn);
        self.regions.remove(lpn)
    }

    fn evict(&mut self, _most: usize, victim: &mut Victim) {
        let Some(number) = self.regions.choose() else { return };
        let blocks = &mut self.regions.blocks;
        let first = blocks.block(number) * blocks.size();
        blocks.evict(number, self.merge != CbmMerge::Off, victim);
        let mut leaving = std::mem::take(&mut self.leaving);
        self.complete(first, victim, &mut leaving);
        self.leaving = leaving;
    }

    fn len(&self) -> usize {
        self.regions.blocks.len()
    }

    fn pages(&self) -> Vec<u32> {
        self.regions.blocks.pages()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn cooperates(&self) -> bool {
        self.merge != CbmMerge::Off
    }

    fn keeps_destaged(&self) -> bool {
        self.keep
    }

    fn cached(&mut self, lpn: u32) {
        self.regions.blocks.insert_aside(lpn);
    }

    fn uncached(&mut self, lpn: u32) {
        self.regions.blocks.remove_aside(lpn);
    }
}

#[cfg(test)]
mod tests;
