//! Pages by logical block: the block association that every policy over blocks needs, as a tree keyed by logical block
//! number (the *global block B+tree* of CBM).

use super::{NONE, Pages};
use crate::buffer::policy::{Part, Victim};
use std::collections::BTreeMap;

/// Set in [`Links::previous`] of a page that is clean: the read cache has it.
const CLEAN: u32 = 1 << 31;
const NO_PAGE: u32 = !CLEAN;

/// A page among those of its block, in no particular order.
#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    previous: u32,
}

/// A block that has a page here.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    /// Dirty pages.
    dirty: u16,
    /// For the policy: what it counts of the block as long as it has dirty pages.
    mark: u16,
}

/// Dirty pages, and clean ones of the read cache if a policy wants them, by page and by block. A page is found in O(1), its
/// block in O(log n); blocks have small numbers of their own, over which other structures are arrays.
#[derive(Clone, Debug)]
pub(in crate::buffer) struct Blocks {
    /// Pages of a block.
    size: u32,
    tree: BTreeMap<u32, u32>,
    /// The block that was looked up last, and its number: most pages follow one of the same block.
    last: (u32, u32),
    pages: Pages,
    links: Vec<Links>,
    blocks: Vec<Block>,
    free: u32,
    dirty: usize,
}

impl Blocks {
    pub fn new(capacity: usize, size: u32) -> Blocks {
        assert!((1..=u32::from(u16::MAX)).contains(&size), "a block of {size} pages");
        Blocks {
            size,
            tree: BTreeMap::new(),
            last: (NONE, NONE),
            pages: Pages::new(capacity),
            links: Vec::with_capacity(capacity),
            blocks: Vec::with_capacity(capacity.min(1 << 20)),
            free: NONE,
            dirty: 0,
        }
    }

    /// Pages of a block.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Dirty pages.
    pub fn len(&self) -> usize {
        self.dirty
    }

    /// The logical block of a page, and which of its pages it is.
    #[inline]
    pub fn split(&self, lpn: u32) -> (u32, u32) {
        (lpn / self.size, lpn % self.size)
    }

    /// The node of a page that is here and dirty.
    #[inline]
    pub fn find(&self, lpn: u32) -> Option<u32> {
        self.pages.find(lpn).filter(|&n| !self.is_clean(n))
    }

    #[inline]
    pub fn contains(&self, lpn: u32) -> bool {
        self.find(lpn).is_some()
    }

    #[inline]
    fn is_clean(&self, n: u32) -> bool {
        self.links[n as usize].previous & CLEAN != 0
    }

    /// The number of a block that has a page here.
    #[inline]
    pub fn number(&mut self, block: u32) -> Option<u32> {
        if self.last.0 == block && self.last.1 != NONE {
            return Some(self.last.1);
        }
        let number = *self.tree.get(&block)?;
        self.last = (block, number);
        Some(number)
    }

    /// The logical block of a number.
    pub fn block(&self, number: u32) -> u32 {
        self.pages.lpn(self.blocks[number as usize].first) / self.size
    }

    /// The number of the block of a node.
    #[inline]
    pub fn number_of(&mut self, n: u32) -> u32 {
        let block = self.pages.lpn(n) / self.size;
        self.number(block).expect("the block of a page that is here")
    }

    /// Dirty pages of a block.
    #[inline]
    pub fn dirty(&self, number: u32) -> u32 {
        self.blocks[number as usize].dirty.into()
    }

    /// The policy's count of a block.
    #[inline]
    pub fn mark(&self, number: u32) -> u16 {
        self.blocks[number as usize].mark
    }

    #[inline]
    pub fn set_mark(&mut self, number: u32, mark: u16) {
        self.blocks[number as usize].mark = mark;
    }

    /// Counts in the mark how many pages of the block were written one after another from its first, whatever was written
    /// to other blocks in between. True: this page was the last of all.
    #[inline]
    pub fn count_sequence(&mut self, lpn: u32, number: u32) -> bool {
        let (offset, block) = ((lpn % self.size) as u16, &mut self.blocks[number as usize]);
        block.mark = if offset == 0 || offset == block.mark { offset + 1 } else { 0 };
        u32::from(block.mark) == self.size
    }

    /// Takes in a dirty page that is not here, or is clean. Returns its node and its block.
    pub fn insert(&mut self, lpn: u32) -> (u32, u32) {
        match self.pages.find(lpn) {
            Some(n) => {
                let number = self.number_of(n);
                self.links[n as usize].previous &= !CLEAN;
                self.count_dirty(number);
                (n, number)
            }
            None => {
                let (n, number) = self.link(lpn, false);
                self.count_dirty(number);
                (n, number)
            }
        }
    }

    /// Takes in a clean page, unless the page is here.
    pub fn insert_clean(&mut self, lpn: u32) {
        if self.pages.find(lpn).is_none() {
            self.link(lpn, true);
        }
    }

    /// Lets go of a clean page, if it is here.
    pub fn remove_clean(&mut self, lpn: u32) {
        if let Some(n) = self.pages.find(lpn).filter(|&n| self.is_clean(n)) {
            let number = self.number_of(n);
            self.unlink(n, number);
        }
    }

    /// Lets go of a dirty page. Returns its block, and whether that has no dirty page any more.
    pub fn remove(&mut self, n: u32) -> (u32, bool) {
        let number = self.number_of(n);
        self.blocks[number as usize].dirty -= 1;
        self.dirty -= 1;
        let empty = self.blocks[number as usize].dirty == 0;
        if empty {
            self.blocks[number as usize].mark = 0;
        }
        self.unlink(n, number);
        (number, empty)
    }

    /// Takes out every dirty page of a block, in the order of pages; `merged`: its clean pages go along, and stay here too.
    pub fn evict(&mut self, number: u32, merged: bool, victim: &mut Victim) {
        self.dirty -= usize::from(self.blocks[number as usize].dirty);
        self.blocks[number as usize].dirty = 0;
        self.blocks[number as usize].mark = 0;
        let mut n = self.blocks[number as usize].first;
        while n != NO_PAGE {
            let (next, lpn) = (self.links[n as usize].next, self.pages.lpn(n));
            if !self.is_clean(n) {
                victim.push(lpn);
                self.unlink(n, number);
            } else if merged {
                victim.push_clean(lpn, Part::Cached);
            }
            n = next;
        }
        victim.sort();
    }

    /// The nodes of a block's dirty pages.
    pub fn nodes(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.blocks[number as usize].first).filter(|&n| n != NO_PAGE);
        let next = |&n: &u32| Some(self.links[n as usize].next).filter(|&n| n != NO_PAGE);
        std::iter::successors(first, next).filter(|&n| !self.is_clean(n))
    }

    /// All dirty pages, block by block.
    pub fn pages(&self) -> Vec<u32> {
        self.tree.values().flat_map(|&number| self.nodes(number)).map(|n| self.pages.lpn(n)).collect()
    }

    fn count_dirty(&mut self, number: u32) {
        self.blocks[number as usize].dirty += 1;
        self.dirty += 1;
    }

    fn link(&mut self, lpn: u32, clean: bool) -> (u32, u32) {
        let block = lpn / self.size;
        let number = match self.number(block) {
            Some(number) => number,
            None => self.add_block(block),
        };
        let n = self.pages.insert(lpn);
        let first = self.blocks[number as usize].first;
        if first != NO_PAGE {
            let previous = &mut self.links[first as usize].previous;
            *previous = *previous & CLEAN | n;
        }
        let links = Links { next: first, previous: NO_PAGE | if clean { CLEAN } else { 0 } };
        match self.links.get_mut(n as usize) {
            Some(place) => *place = links,
            None => self.links.push(links),
        }
        self.blocks[number as usize].first = n;
        (n, number)
    }

    fn add_block(&mut self, block: u32) -> u32 {
        let new = Block { first: NO_PAGE, dirty: 0, mark: 0 };
        let number = self.free;
        let number = if number == NONE {
            self.blocks.push(new);
            (self.blocks.len() - 1) as u32
        } else {
            // A free block says in `first` which is the next.
            self.free = self.blocks[number as usize].first;
            self.blocks[number as usize] = new;
            number
        };
        self.tree.insert(block, number);
        self.last = (block, number);
        number
    }

    fn unlink(&mut self, n: u32, number: u32) {
        let Links { next, previous } = self.links[n as usize];
        let previous = previous & !CLEAN;
        if previous == NO_PAGE {
            self.blocks[number as usize].first = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next != NO_PAGE {
            let back = &mut self.links[next as usize].previous;
            *back = *back & CLEAN | previous;
        }
        if self.blocks[number as usize].first == NO_PAGE {
            self.tree.remove(&(self.pages.lpn(n) / self.size));
            self.last = (NONE, NONE);
            self.blocks[number as usize].first = self.free;
            self.free = number;
        }
        self.pages.remove(n);
    }
}
