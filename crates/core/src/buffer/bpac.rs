//! `bpac`: pages that are written again in a list of pages, the others in clusters by block, with a border between the two that
//! follows the workload (Wu, Eckart and He, *BPAC: an adaptive write buffer management scheme for flash-based solid state
//! drives*, MSST 2010).

use super::policy::{Policy, Run, Setting, Victim};
use super::structure::{Blocks, Heap, List, Pages};
use std::cmp::Reverse;

/// A page list for temporal locality and a block list of clusters for spatial locality. What is written first is in the page
/// list; its least recent page moves to the cluster of its block when the list is longer than its share. A page of a cluster
/// that is written again moves back. The cluster that has the most pages leaves; of equals, the one that has not changed for
/// longest.
///
/// The share of the page list grows by a page when a cluster's page is written again (it was moved too early), and shrinks by a
/// page when a write moves a page to a cluster that there is already (its block is one of spatial locality). O(log n) for a
/// page.
#[derive(Clone, Debug)]
pub struct Bpac {
    pages: Pages,
    list: List,
    /// Pages that the page list may have.
    share: usize,
    share_range: (usize, usize),
    clusters: Blocks,
    order: Heap,
    changed_at: Vec<u64>,
    clock: u64,
}

/// The most pages first, then the least recently changed.
fn key<'a>(clusters: &'a Blocks, changed_at: &'a [u64]) -> impl Fn(u32) -> (Reverse<u32>, u64) + 'a {
    |n| (Reverse(clusters.dirty(n)), changed_at[n as usize])
}

impl Bpac {
    pub(super) fn new(setting: &Setting) -> Bpac {
        let capacity = setting.capacity;
        Bpac {
            pages: Pages::new(capacity),
            list: List::new(capacity),
            share: capacity / 2,
            // Neither list may starve the other for good.
            share_range: (capacity / 10, capacity - capacity / 10),
            clusters: Blocks::new(capacity, setting.block),
            order: Heap::new(capacity),
            changed_at: Vec::with_capacity(capacity),
            clock: 0,
        }
    }

    fn set_share(&mut self, share: usize) {
        self.share = share.clamp(self.share_range.0, self.share_range.1);
    }

    /// The least recent page of the list moves to its cluster. True: there was one.
    fn demote(&mut self) -> bool {
        let Some(n) = self.list.oldest() else { return false };
        let lpn = self.pages.lpn(n);
        self.list.remove(n);
        self.pages.remove(n);
        let number = self.clusters.insert(lpn).1;
        self.clock += 1;
        match self.changed_at.get_mut(number as usize) {
            Some(at) => *at = self.clock,
            None => self.changed_at.push(self.clock),
        }
        let joins = self.order.contains(number);
        if joins {
            self.order.update(number, key(&self.clusters, &self.changed_at));
        } else {
            self.order.push(number, key(&self.clusters, &self.changed_at));
        }
        joins
    }

    fn leave_cluster(&mut self, n: u32) {
        let number = self.clusters.number_of(n);
        if self.clusters.dirty(number) == 1 {
            self.order.remove(number, key(&self.clusters, &self.changed_at));
            self.clusters.remove(n);
        } else {
            self.clusters.remove(n);
            self.order.update(number, key(&self.clusters, &self.changed_at));
        }
    }
}

impl Policy for Bpac {
    fn contains(&self, lpn: u32) -> bool {
        self.pages.find(lpn).is_some() || self.clusters.contains(lpn)
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        if let Some(n) = self.pages.find(lpn) {
            self.list.renew(n);
            return true;
        }
        let held = self.clusters.find(lpn);
        match held {
            Some(n) => {
                self.leave_cluster(n);
                self.set_share(self.share + 1);
            }
            None if room => {}
            None => return false,
        }
        let n = self.pages.insert(lpn);
        self.list.push_newest(n);
        let too_many = self.list.len().saturating_sub(self.share.max(1));
        if (0..too_many).fold(false, |joined, _| self.demote() | joined) {
            self.set_share(self.share.saturating_sub(1));
        }
        held.is_some()
    }

    fn remove(&mut self, lpn: u32) -> bool {
        if let Some(n) = self.pages.find(lpn) {
            self.list.remove(n);
            self.pages.remove(n);
            return true;
        }
        self.clusters.find(lpn).map(|n| self.leave_cluster(n)).is_some()
    }

    fn evict(&mut self, _most: usize, victim: &mut Victim) {
        if self.order.is_empty() {
            // The buffer is emptied: half of the list, so that what leaves are clusters still.
            for _ in 0..self.list.len().div_ceil(2) {
                self.demote();
            }
        }
        let Some(number) = self.order.first() else { return };
        self.order.remove(number, key(&self.clusters, &self.changed_at));
        self.clusters.evict(number, false, victim);
    }

    fn len(&self) -> usize {
        self.pages.len() + self.clusters.len()
    }

    fn pages(&self) -> Vec<u32> {
        let mut pages = self.clusters.pages();
        pages.extend(self.list.iter().map(|n| self.pages.lpn(n)));
        pages
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::conformance::{Model, same_order, setting, victims};

    /// The page list from its oldest, and the clusters from the least recently changed.
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
            let most = self.clusters.iter().map(|(_, pages)| pages.len()).max();
            let at = self.clusters.iter().position(|(_, pages)| Some(pages.len()) == most).expect("a cluster");
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
