//! `bpac`: pages that are written again in a list of pages, the others in clusters by block, with a border between the
//! two that follows the workload (Wu, Eckart and He, *BPAC: an adaptive write buffer management scheme for flash-based
//! solid state drives*, MSST 2010).

use super::policy::{Policy, Run, Setting, Victim};
use super::structure::{Blocks, Heap, List, Place};
use std::cmp::Reverse;

/// A page list for temporal locality and a block list of clusters for spatial locality. What is written first is in the
/// page list; its least recent page moves to the cluster of its block when the list is longer than its share. A page of
/// a cluster that is written again moves back. The cluster that has the most pages leaves; of equals, the one with the
/// lowest number.
///
/// The share of the page list grows by a page when a cluster's page is written again (it was moved too early), and
/// shrinks by a page when a write moves a page to a cluster that there is already (its block is one of spatial
/// locality). O(log n) for a page.
#[derive(Clone, Debug)]
pub struct Bpac {
    /// All pages by block, those of the page list aside.
    blocks: Blocks,
    list: List,
    /// Pages that the page list may have.
    share: usize,
    share_range: (usize, usize),
    clusters: Heap,
}

/// The most pages first.
fn key<'a>(blocks: &'a Blocks) -> impl Fn(u32) -> Place<'a, Reverse<u32>> {
    |number| blocks.place(number, Reverse(blocks.count(number)))
}

impl Bpac {
    pub(super) fn new(setting: &Setting) -> Bpac {
        let capacity = setting.capacity;
        Bpac {
            blocks: Blocks::new(capacity, setting.block),
            list: List::new(capacity),
            share: capacity / 2,
            // Neither list may starve the other for good.
            share_range: (capacity / 10, capacity - capacity / 10),
            clusters: Heap::new(capacity),
        }
    }

    fn set_share(&mut self, share: usize) {
        self.share = share.clamp(self.share_range.0, self.share_range.1);
    }

    /// The least recent page of the list moves to its cluster. True: there was one.
    fn demote(&mut self) -> bool {
        let Some(n) = self.list.oldest() else { return false };
        self.list.remove(n);
        let number = self.blocks.insert(self.blocks.lpn(n)).1;
        let joins = self.clusters.contains(number);
        if joins {
            self.clusters.update(number, key(&self.blocks));
        } else {
            self.clusters.push(number, key(&self.blocks));
        }
        joins
    }

    /// A page is about to leave its cluster. Returns the cluster's number if it stays.
    fn before_leaving(&mut self, n: u32) -> Option<u32> {
        let number = self.blocks.number_of(n);
        if self.blocks.count(number) > 1 {
            return Some(number);
        }
        self.clusters.remove(number, key(&self.blocks));
        None
    }

    fn after_leaving(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.clusters.update(number, key(&self.blocks));
        }
    }
}

impl Policy for Bpac {
    fn contains(&self, lpn: u32) -> bool {
        self.blocks.find_any(lpn).is_some()
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        let held = self.blocks.find_any(lpn);
        let n = match held {
            Some(n) if self.blocks.is_aside(n) => {
                self.list.renew(n);
                return true;
            }
            Some(n) => {
                let number = self.before_leaving(n);
                self.blocks.set_aside(n);
                self.after_leaving(number);
                self.set_share(self.share + 1);
                n
            }
            None if room => self.blocks.insert_aside(lpn),
            None => return false,
        };
        self.list.push_newest(n);
        let too_many = self.list.len().saturating_sub(self.share.max(1));
        if (0..too_many).fold(false, |joined, _| self.demote() | joined) {
            self.set_share(self.share.saturating_sub(1));
        }
        held.is_some()
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.blocks.find_any(lpn) else { return false };
        if self.blocks.is_aside(n) {
            self.list.remove(n);
            self.blocks.remove_aside(lpn);
        } else {
            let number = self.before_leaving(n);
            self.blocks.remove(n);
            self.after_leaving(number);
        }
        true
    }

    fn evict(&mut self, _most: usize, victim: &mut Victim) {
        if self.clusters.is_empty() {
            // The buffer is emptied: half of the list, so that what leaves are clusters still.
            for _ in 0..self.list.len().div_ceil(2) {
                self.demote();
            }
        }
        let Some(number) = self.clusters.first() else { return };
        self.clusters.remove(number, key(&self.blocks));
        self.blocks.evict(number, false, victim);
    }

    fn len(&self) -> usize {
        self.blocks.len_with_aside()
    }

    fn pages(&self) -> Vec<u32> {
        let mut pages = self.blocks.pages();
        pages.extend(self.list.iter().map(|n| self.blocks.lpn(n)));
        pages
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::tests::{Model, same_order, setting, victims};

    /// The page list from its oldest, and the clusters.
    struct Naive {
        list: Vec<u32>,
        share: usize,
        clusters: Vec<(u32, Vec<u32>)>,
    }

    impl Naive {
        fn demote(&mut self) -> bool {
            let lpn = self.list.remove(0);
            let at = self.clusters.iter().position(|(block, _)| *block == lpn / 8);
            let (_, mut pages) = at.map_or_else(Default::default, |at| self.clusters.remove(at));
            pages.push(lpn);
            self.clusters.push((lpn / 8, pages));
            at.is_some()
        }
    }

    impl Model for Naive {
        fn write(&mut self, lpn: u32, _run: Run) {
            if let Some(at) = self.list.iter().position(|&l| l == lpn) {
                self.list.remove(at);
                return self.list.push(lpn);
            }
            if self.clusters.iter().any(|(_, pages)| pages.contains(&lpn)) {
                self.remove(lpn);
                self.share = (self.share + 1).min(36);
            }
            self.list.push(lpn);
            let mut joined = false;
            for _ in self.share..self.list.len() {
                joined |= self.demote();
            }
            self.share = (self.share - usize::from(joined)).max(4);
        }
        fn remove(&mut self, lpn: u32) {
            self.list.retain(|&l| l != lpn);
            self.clusters.iter_mut().for_each(|(_, pages)| pages.retain(|&l| l != lpn));
            self.clusters.retain(|(_, pages)| !pages.is_empty());
        }
        fn evict(&mut self) -> Vec<u32> {
            if self.clusters.is_empty() {
                for _ in 0..self.list.len().div_ceil(2) {
                    self.demote();
                }
            }
            let order = |&at: &usize| (usize::MAX - self.clusters[at].1.len(), self.clusters[at].0);
            let at = (0..self.clusters.len()).min_by_key(order).expect("there is one");
            let mut pages = self.clusters.remove(at).1;
            pages.sort_unstable();
            pages
        }
    }

    #[test]
    fn clusters_leave_in_the_order_of_their_pages() {
        let naive = Naive { list: Vec::new(), share: 20, clusters: Vec::new() };
        same_order(Bpac::new(&setting(40, 8)), naive, 40, 200);
    }

    #[test]
    fn the_border_follows_the_workload() {
        let mut bpac = Bpac::new(&setting(40, 8));
        let write = |bpac: &mut Bpac, lpn| {
            while !bpac.contains(lpn) && bpac.len() >= 40 {
                assert!(!victims(bpac, 1).is_empty());
            }
            bpac.write(lpn, Run::of_one(lpn), true);
        };
        // A set that is written again and again, and is larger than the page list.
        for lpn in (0..300u32).map(|i| i * 8 % 240) {
            write(&mut bpac, lpn);
        }
        assert_eq!(bpac.share, 30, "it grew until the set fits");
        (1_000..2_000).for_each(|lpn| write(&mut bpac, lpn));
        assert!(bpac.share <= 8, "{}: sequential writes are for clusters", bpac.share);
    }
}
