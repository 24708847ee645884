//! `bplru`: blocks leave in the order of their last write, padded to whole blocks (Kim and Ahn, *BPLRU: a buffer
//! management scheme for improving random writes in flash storage*, FAST 2008).

use super::policy::{Leaving, Policy, Run, Setting, Victim};
use super::structure::{Blocks, List};

/// Block-level LRU with page padding and LRU compensation. O(1) for a page and the tree's O(log n); padding costs as
/// many steps as a block has pages.
#[derive(Clone, Debug)]
pub struct Bplru {
    blocks: Blocks,
    order: List,
    padding: bool,
    units: u32,
    /// Room for the pages of the block that leaves.
    held: Vec<Leaving>,
}

impl Bplru {
    pub(super) fn new(setting: &Setting) -> Bplru {
        Bplru {
            blocks: Blocks::new(setting.capacity, setting.block),
            order: List::new(setting.capacity),
            padding: setting.profile.bplru_padding,
            units: setting.units,
            held: Vec::with_capacity(setting.block as usize),
        }
    }

    /// What is missing of a block goes along.
    fn pad(&mut self, block: u32, victim: &mut Victim) {
        let first = block * self.blocks.size();
        let end = first.saturating_add(self.blocks.size()).min(self.units);
        victim.pad(first, end, &mut self.held);
    }
}

impl Policy for Bplru {
    fn contains(&self, lpn: u32) -> bool {
        self.blocks.contains(lpn)
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        let held = self.blocks.find(lpn);
        let (number, new) = match held {
            Some(n) => (self.blocks.number_of(n), false),
            None if room => {
                let number = self.blocks.insert(lpn).1;
                (number, self.blocks.count(number) == 1)
            }
            None => return false,
        };
        if !new {
            self.order.remove(number);
        }
        if self.blocks.count_sequence(lpn, number) {
            // LRU compensation: what was written from its first page to its last is not written again soon.
            self.order.push_oldest(number);
        } else {
            self.order.push_newest(number);
        }
        held.is_some()
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.blocks.find(lpn) else { return false };
        if let (number, true) = self.blocks.remove(n) {
            self.order.remove(number);
        }
        true
    }

    fn evict(&mut self, _most: usize, victim: &mut Victim) {
        let Some(number) = self.order.oldest() else { return };
        self.order.remove(number);
        let block = self.blocks.block(number);
        self.blocks.evict(number, false, victim);
        if self.padding {
            self.pad(block, victim);
        }
    }

    fn len(&self) -> usize {
        self.blocks.len()
    }

    fn pages(&self) -> Vec<u32> {
        self.blocks.pages()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Part;
    use crate::buffer::tests::{Model, same_order, setting, victims};

    /// Blocks from the oldest to the newest, with the page that continues their sequence.
    #[derive(Default)]
    struct Naive(Vec<(u32, Vec<u32>, u32)>);

    impl Model for Naive {
        fn write(&mut self, lpn: u32, _run: Run) {
            let at = self.0.iter().position(|(block, ..)| *block == lpn / 8);
            let (_, mut pages, next) = at.map_or_else(Default::default, |at| self.0.remove(at));
            if !pages.contains(&lpn) {
                pages.push(lpn);
            }
            let next = if lpn.is_multiple_of(8) || lpn % 8 == next { lpn % 8 + 1 } else { 0 };
            let at = if next == 8 { 0 } else { self.0.len() };
            self.0.insert(at, (lpn / 8, pages, next));
        }
        fn remove(&mut self, lpn: u32) {
            self.0.iter_mut().for_each(|(_, pages, _)| pages.retain(|&l| l != lpn));
            self.0.retain(|(_, pages, _)| !pages.is_empty());
        }
        fn evict(&mut self) -> Vec<u32> {
            let mut pages = self.0.remove(0).1;
            pages.sort_unstable();
            pages
        }
    }

    #[test]
    fn blocks_leave_in_the_order_of_their_last_write() {
        same_order(Bplru::new(&setting(40, 8)), Naive::default(), 40, 200);
    }

    #[test]
    fn a_block_written_sequentially_leaves_first() {
        let mut bplru = Bplru::new(&setting(32, 4));
        let write = |bplru: &mut Bplru, lpn| bplru.write(lpn, Run::of_one(lpn), true);
        [20, 0, 21, 1, 2, 3].iter().for_each(|&l| assert!(!write(&mut bplru, l)));
        assert_eq!(victims(&mut bplru, 1), [0, 1, 2, 3], "in order, though others came between");
        [7, 6, 5, 4].iter().for_each(|&l| assert!(!write(&mut bplru, l)));
        assert_eq!(victims(&mut bplru, 1), [20, 21], "block 1 is full, but was written backwards");
    }

    #[test]
    fn what_is_missing_of_a_block_is_padding() {
        let mut bplru = Bplru::new(&Setting { units: 15, ..setting(32, 4) });
        [9, 10, 13].iter().for_each(|&l| assert!(!bplru.write(l, Run::of_one(l), true)));
        let mut victim = Victim::default();
        bplru.evict(1, &mut victim);
        let parts: Vec<_> = victim.rest().iter().map(|page| (page.lpn, page.part)).collect();
        assert_eq!(parts, [(8, Part::Padding), (9, Part::Dirty), (10, Part::Dirty), (11, Part::Padding)]);
        victim.clear();
        bplru.evict(1, &mut victim);
        let last: Vec<_> = victim.rest().iter().map(|page| page.lpn).collect();
        assert_eq!(last, [12, 13, 14], "the drive ends within the block");
        bplru.padding = false;
        victim.clear();
        assert!(!bplru.write(9, Run::of_one(9), true));
        bplru.evict(1, &mut victim);
        assert_eq!(victim.rest().len(), 1);
    }
}
