//! `fab`: the block that has the most pages leaves first, whole (Jo et al., *FAB: flash-aware buffer management policy
//! for portable media players*, 2006).

use super::policy::{Policy, Run, Setting, Victim};
use super::structure::{Blocks, Heap};
use std::cmp::Reverse;

/// Blocks by how many pages they have; of equals, the one that was written least recently leaves. The block that is
/// being written stays as long as there is another. O(log n) for a page.
#[derive(Clone, Debug)]
pub struct Fab {
    blocks: Blocks,
    order: Heap,
    /// When each block was written last, by a clock of writes.
    written_at: Vec<u64>,
    clock: u64,
    /// The block that is being written.
    current: u32,
}

/// The most pages first, then the least recent.
fn key<'a>(blocks: &'a Blocks, written_at: &'a [u64]) -> impl Fn(u32) -> (Reverse<u32>, u64) + 'a {
    |n| (Reverse(blocks.count(n)), written_at[n as usize])
}

impl Fab {
    pub(super) fn new(setting: &Setting) -> Fab {
        Fab {
            blocks: Blocks::new(setting.capacity, setting.block),
            order: Heap::new(setting.capacity),
            written_at: Vec::with_capacity(setting.capacity),
            clock: 0,
            current: u32::MAX,
        }
    }

    fn drop_empty(&mut self, number: u32) {
        self.order.remove(number, key(&self.blocks, &self.written_at));
    }
}

impl Policy for Fab {
    fn contains(&self, lpn: u32) -> bool {
        self.blocks.contains(lpn)
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        let held = self.blocks.find(lpn);
        let number = match held {
            Some(n) => self.blocks.number_of(n),
            None if room => self.blocks.insert(lpn).1,
            None => return false,
        };
        self.clock += 1;
        self.current = self.blocks.split(lpn).0;
        match self.written_at.get_mut(number as usize) {
            Some(at) => *at = self.clock,
            None => self.written_at.push(self.clock),
        }
        if self.order.contains(number) {
            self.order.update(number, key(&self.blocks, &self.written_at));
        } else {
            self.order.push(number, key(&self.blocks, &self.written_at));
        }
        held.is_some()
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.blocks.find(lpn) else { return false };
        let number = self.blocks.number_of(n);
        if self.blocks.count(number) == 1 {
            self.drop_empty(number);
            self.blocks.remove(n);
        } else {
            self.blocks.remove(n);
            self.order.update(number, key(&self.blocks, &self.written_at));
        }
        true
    }

    fn evict(&mut self, _most: usize, victim: &mut Victim) {
        let Some(first) = self.order.first() else { return };
        let number = if self.blocks.block(first) == self.current {
            self.order.second(key(&self.blocks, &self.written_at)).unwrap_or(first)
        } else {
            first
        };
        self.drop_empty(number);
        self.blocks.evict(number, false, victim);
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
    use crate::buffer::tests::{Model, same_order, setting, victims};

    /// Blocks from the least recent to the most recent.
    #[derive(Default)]
    struct Naive {
        blocks: Vec<(u32, Vec<u32>)>,
        current: u32,
    }

    impl Model for Naive {
        fn write(&mut self, lpn: u32, _run: Run) {
            let at = self.blocks.iter().position(|(block, _)| *block == lpn / 8);
            let (_, mut pages) = at.map_or_else(Default::default, |at| self.blocks.remove(at));
            if !pages.contains(&lpn) {
                pages.push(lpn);
            }
            self.blocks.push((lpn / 8, pages));
            self.current = lpn / 8;
        }
        fn remove(&mut self, lpn: u32) {
            self.blocks.iter_mut().for_each(|(_, pages)| pages.retain(|&l| l != lpn));
            self.blocks.retain(|(_, pages)| !pages.is_empty());
        }
        fn evict(&mut self) -> Vec<u32> {
            let others = self.blocks.iter().filter(|(block, _)| *block != self.current || self.blocks.len() == 1);
            let most = others.clone().map(|(_, pages)| pages.len()).max();
            let victim = others.clone().find(|(_, pages)| Some(pages.len()) == most).expect("a block").0;
            let at = self.blocks.iter().position(|(block, _)| *block == victim).expect("it was found");
            let mut pages = self.blocks.remove(at).1;
            pages.sort_unstable();
            pages
        }
    }

    #[test]
    fn blocks_leave_in_the_order_of_their_pages() {
        same_order(Fab::new(&setting(40, 8)), Naive::default(), 40, 200);
    }

    #[test]
    fn the_largest_block_leaves_whole_unless_it_is_being_written() {
        let mut fab = Fab::new(&setting(16, 8));
        [0, 17, 1, 18, 30, 19].iter().for_each(|&l| assert!(!fab.write(l, Run::of_one(l), true)));
        assert_eq!(victims(&mut fab, 1), [0, 1], "block 2 has three pages, but is being written");
        fab.write(30, Run::of_one(30), true);
        assert_eq!(victims(&mut fab, 1), [17, 18, 19]);
        assert_eq!(victims(&mut fab, 1), [30], "there is no other");
    }
}
