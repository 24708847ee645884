//! `lru`: the page that was not used for longest leaves first.

use super::policy::{Policy, Run, Setting, Victim};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    lpn: u32,
    newer: u32,
    older: u32,
    /// The next node whose page has the same bucket.
    next: u32,
}

/// A doubly linked list in an array, and chains by page: every access takes constant time. The chains run through the
/// same nodes, so that a look-up touches what the list needs anyway; a general hash table takes twice the instructions.
#[derive(Clone, Debug)]
pub struct Lru {
    /// The first node of each chain.
    buckets: Box<[u32]>,
    /// What is left of a hash: the bucket.
    shift: u32,
    nodes: Vec<Node>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    len: usize,
}

impl Lru {
    pub(super) fn new(setting: &Setting) -> Lru {
        let capacity = setting.capacity;
        // Twice as many buckets as pages: most chains have one node at most.
        let bits = (2 * capacity).next_power_of_two().trailing_zeros().max(1);
        Lru {
            buckets: vec![NONE; 1 << bits].into_boxed_slice(),
            shift: 64 - bits,
            nodes: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            newest: NONE,
            oldest: NONE,
            len: 0,
        }
    }

    /// Logical page numbers are spread well enough by one multiplication (Fibonacci hashing, Knuth volume 3, 6.4).
    #[inline]
    fn bucket(&self, lpn: u32) -> usize {
        (u64::from(lpn).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    fn find(&self, lpn: u32) -> Option<u32> {
        if self.len == 0 { None } else { self.find_in(self.bucket(lpn), lpn) }
    }

    #[inline]
    fn find_in(&self, bucket: usize, lpn: u32) -> Option<u32> {
        let mut n = self.buckets[bucket];
        while n != NONE {
            let node = &self.nodes[n as usize];
            if node.lpn == lpn {
                return Some(n);
            }
            n = node.next;
        }
        None
    }

    /// Takes a node out of its chain and out of the list.
    fn take_out(&mut self, n: u32) {
        self.unchain(n);
        self.unlink(n);
        self.free.push(n);
        self.len -= 1;
    }

    /// Takes a node out of its chain. Returns its page.
    #[inline]
    fn unchain(&mut self, n: u32) -> u32 {
        let &Node { lpn, next, .. } = &self.nodes[n as usize];
        let bucket = self.bucket(lpn);
        let mut at = self.buckets[bucket];
        if at == n {
            self.buckets[bucket] = next;
        } else {
            while self.nodes[at as usize].next != n {
                at = self.nodes[at as usize].next;
            }
            self.nodes[at as usize].next = next;
        }
        lpn
    }

    /// Puts a new node into its chain and into the list.
    #[inline(always)]
    fn put_in(&mut self, bucket: usize, lpn: u32) {
        let node = Node { lpn, newer: NONE, older: self.newest, next: self.buckets[bucket] };
        let n = match self.free.pop() {
            Some(n) => {
                self.nodes[n as usize] = node;
                n
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.buckets[bucket] = n;
        match self.newest {
            NONE => self.oldest = n,
            newest => self.nodes[newest as usize].newer = n,
        }
        self.newest = n;
        self.len += 1;
    }

    #[inline]
    fn use_again(&mut self, n: u32) {
        if self.newest != n {
            self.unlink(n);
            self.link_newest(n);
        }
    }

    fn unlink(&mut self, n: u32) {
        let Node { newer, older, .. } = self.nodes[n as usize];
        match newer {
            NONE => self.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, n: u32) {
        let older = self.newest;
        self.nodes[n as usize].newer = NONE;
        self.nodes[n as usize].older = older;
        match older {
            NONE => self.oldest = n,
            _ => self.nodes[older as usize].newer = n,
        }
        self.newest = n;
    }
}

impl Policy for Lru {
    fn contains(&self, lpn: u32) -> bool {
        self.find(lpn).is_some()
    }

    fn read(&mut self, lpn: u32) -> bool {
        let Some(n) = self.find(lpn) else { return false };
        self.use_again(n);
        true
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        let bucket = self.bucket(lpn);
        match self.find_in(bucket, lpn) {
            Some(n) => {
                self.use_again(n);
                return true;
            }
            None if room => self.put_in(bucket, lpn),
            None => {}
        }
        false
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.find(lpn) else { return false };
        self.take_out(n);
        true
    }

    fn evict(&mut self, most: usize, victim: &mut Victim) {
        let leave = most.min(self.len);
        for _ in 0..leave {
            let n = self.oldest;
            victim.push(self.unchain(n));
            self.oldest = self.nodes[n as usize].newer;
            self.free.push(n);
        }
        self.len -= leave;
        match self.oldest {
            NONE => self.newest = NONE,
            oldest => self.nodes[oldest as usize].older = NONE,
        }
    }

    fn outlook(&self, most: usize, see: &mut dyn FnMut(u32)) {
        let mut n = self.oldest;
        for _ in 0..most.min(self.len) {
            let node = &self.nodes[n as usize];
            see(node.lpn);
            n = node.newer;
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn pages(&self) -> Vec<u32> {
        let newest = Some(self.newest).filter(|&n| n != NONE);
        let older = |&n: &u32| Some(self.nodes[n as usize].older).filter(|&n| n != NONE);
        std::iter::successors(newest, older).map(|n| self.nodes[n as usize].lpn).collect()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    // As a read cache, where all pages are clean.
    fn fill(&mut self, lpn: u32) {
        self.put_in(self.bucket(lpn), lpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::tests::{setting, victims};

    #[test]
    fn the_least_recently_used_page_leaves_first() {
        let mut lru = Lru::new(&setting(4, 4));
        (1..=4).for_each(|l| assert!(!lru.write(l, Run::of_one(l), true)));
        assert!(lru.read(1) && !lru.read(9));
        assert_eq!(victims(&mut lru, 3), [2, 3, 4]);
        assert!(lru.contains(1) && lru.len() == 1);
    }
}
