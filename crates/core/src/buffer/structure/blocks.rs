//! Pages by logical block: the block association that every policy over blocks needs, as a tree keyed by logical block
//! number (the *global block B+tree* of CBM).

use super::{NONE, Pages};
use crate::buffer::policy::{Part, Victim};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Set in [`Links::previous`] of a page that is aside.
const ASIDE: u32 = 1 << 31;
const NO_PAGE: u32 = !ASIDE;

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
    /// Pages, those aside not counted.
    count: u16,
    /// For the policy: what it counts of the block as long as it has such pages.
    mark: u16,
}

/// Pages by number and by block. A page is found in O(1), its block in O(log n); blocks have small numbers of their
/// own, over which other structures are arrays. Some pages may be *aside*: known with their block, but not counted
/// among those that leave with it (the read cache's, for `cbm`; those of the page list, for `bpac`).
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
    len: usize,
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
            len: 0,
        }
    }

    /// Pages of a block.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Pages that are not aside.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All pages.
    pub fn len_with_aside(&self) -> usize {
        self.pages.len()
    }

    /// The logical block of a page, and which of its pages it is.
    #[inline]
    pub fn split(&self, lpn: u32) -> (u32, u32) {
        (lpn / self.size, lpn % self.size)
    }

    /// The node of a page, aside or not.
    #[inline]
    pub fn find_any(&self, lpn: u32) -> Option<u32> {
        self.pages.find(lpn)
    }

    /// The node of a page that is here and not aside.
    #[inline]
    pub fn find(&self, lpn: u32) -> Option<u32> {
        self.pages.find(lpn).filter(|&n| !self.is_aside(n))
    }

    #[inline]
    pub fn contains(&self, lpn: u32) -> bool {
        self.find(lpn).is_some()
    }

    #[inline]
    pub fn is_aside(&self, n: u32) -> bool {
        self.links[n as usize].previous & ASIDE != 0
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

    /// Pages of a block that are not aside.
    #[inline]
    pub fn count(&self, number: u32) -> u32 {
        self.blocks[number as usize].count.into()
    }

    /// A key by which blocks are ordered; of equals, the one with the lowest number comes first.
    #[inline]
    pub fn place<K: Ord>(&self, number: u32, key: K) -> Place<'_, K> {
        Place { blocks: self, number, key }
    }

    /// The page of a node.
    #[inline]
    pub fn lpn(&self, n: u32) -> u32 {
        self.pages.lpn(n)
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

    /// Halves the policy's count of every block, rounded up.
    pub fn halve_marks(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.mark = block.mark.div_ceil(2));
    }

    /// Counts in the mark how many pages of the block were written one after another from its first, whatever was
    /// written to other blocks in between. True: this page was the last of all.
    #[inline]
    pub fn count_sequence(&mut self, lpn: u32, number: u32) -> bool {
        let (offset, block) = ((lpn % self.size) as u16, &mut self.blocks[number as usize]);
        block.mark = if offset == 0 || offset == block.mark { offset + 1 } else { 0 };
        u32::from(block.mark) == self.size
    }

    /// Takes in a page that is not here, or is aside. Returns its node and its block.
    pub fn insert(&mut self, lpn: u32) -> (u32, u32) {
        match self.pages.find(lpn) {
            Some(n) => {
                let number = self.number_of(n);
                self.links[n as usize].previous &= !ASIDE;
                self.count_in(number);
                (n, number)
            }
            None => {
                let (n, number) = self.link(lpn, false);
                self.count_in(number);
                (n, number)
            }
        }
    }

    /// Takes in a page aside, unless the page is here. Returns its node.
    pub fn insert_aside(&mut self, lpn: u32) -> u32 {
        self.pages.find(lpn).unwrap_or_else(|| self.link(lpn, true).0)
    }

    /// Puts a page aside that is not.
    pub fn set_aside(&mut self, n: u32) {
        let number = self.number_of(n);
        self.links[n as usize].previous |= ASIDE;
        self.count_out(number);
    }

    /// Removes a page that is aside, if it is here.
    pub fn remove_aside(&mut self, lpn: u32) {
        if let Some(n) = self.pages.find(lpn).filter(|&n| self.is_aside(n)) {
            let number = self.number_of(n);
            self.unlink(n, number);
        }
    }

    /// Removes a page that is not aside. Returns its block, and whether that has no other page left but such.
    pub fn remove(&mut self, n: u32) -> (u32, bool) {
        let number = self.number_of(n);
        let empty = self.count_out(number);
        self.unlink(n, number);
        (number, empty)
    }

    /// Takes out every page of a block that is not aside, in the order of pages; `merged`: the others go along as pages
    /// of the read cache, and stay here too.
    pub fn evict(&mut self, number: u32, merged: bool, victim: &mut Victim) {
        self.len -= usize::from(self.blocks[number as usize].count);
        self.blocks[number as usize].count = 0;
        self.blocks[number as usize].mark = 0;
        let mut n = self.blocks[number as usize].first;
        while n != NO_PAGE {
            let (next, lpn) = (self.links[n as usize].next, self.pages.lpn(n));
            if !self.is_aside(n) {
                victim.push(lpn);
                self.unlink(n, number);
            } else if merged {
                victim.push_clean(lpn, Part::Cached);
            }
            n = next;
        }
        victim.sort();
    }

    /// Takes out every page of a block that has none aside.
    pub fn drop_block(&mut self, number: u32) {
        self.len -= usize::from(self.blocks[number as usize].count);
        let mut n = self.blocks[number as usize].first;
        while n != NO_PAGE {
            let next = self.links[n as usize].next;
            debug_assert!(!self.is_aside(n));
            self.unlink(n, number);
            n = next;
        }
    }

    /// The nodes of a block's pages that are not aside.
    pub fn nodes(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.blocks[number as usize].first).filter(|&n| n != NO_PAGE);
        let next = |&n: &u32| Some(self.links[n as usize].next).filter(|&n| n != NO_PAGE);
        std::iter::successors(first, next).filter(|&n| !self.is_aside(n))
    }

    /// All pages that are not aside, block by block.
    pub fn pages(&self) -> Vec<u32> {
        self.tree.values().flat_map(|&number| self.nodes(number)).map(|n| self.pages.lpn(n)).collect()
    }

    fn count_in(&mut self, number: u32) {
        self.blocks[number as usize].count += 1;
        self.len += 1;
    }

    /// True: it was the last of its block.
    fn count_out(&mut self, number: u32) -> bool {
        let block = &mut self.blocks[number as usize];
        block.count -= 1;
        self.len -= 1;
        if block.count == 0 {
            block.mark = 0;
        }
        block.count == 0
    }

    fn link(&mut self, lpn: u32, aside: bool) -> (u32, u32) {
        let block = lpn / self.size;
        let number = match self.number(block) {
            Some(number) => number,
            None => self.add_block(block),
        };
        let n = self.pages.insert(lpn);
        let first = self.blocks[number as usize].first;
        if first != NO_PAGE {
            let previous = &mut self.links[first as usize].previous;
            *previous = *previous & ASIDE | n;
        }
        let links = Links { next: first, previous: NO_PAGE | if aside { ASIDE } else { 0 } };
        match self.links.get_mut(n as usize) {
            Some(place) => *place = links,
            None => self.links.push(links),
        }
        self.blocks[number as usize].first = n;
        (n, number)
    }

    fn add_block(&mut self, block: u32) -> u32 {
        let new = Block { first: NO_PAGE, count: 0, mark: 0 };
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
        let previous = previous & !ASIDE;
        if previous == NO_PAGE {
            self.blocks[number as usize].first = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next != NO_PAGE {
            let back = &mut self.links[next as usize].previous;
            *back = *back & ASIDE | previous;
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

/// The place of a block in an order. Its number is looked at only between equals, which takes longer.
pub(in crate::buffer) struct Place<'a, K> {
    blocks: &'a Blocks,
    number: u32,
    key: K,
}

impl<K: Ord> Ord for Place<'_, K> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let block = |place: &Self| place.blocks.block(place.number);
        self.key.cmp(&other.key).then_with(|| block(self).cmp(&block(other)))
    }
}

impl<K: Ord> PartialOrd for Place<'_, K> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> PartialEq for Place<'_, K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<K: Ord> Eq for Place<'_, K> {}
