//! `lru`: the page that was not used for longest leaves first.

use super::Policy;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

/// Logical page numbers are spread well enough by one multiplication (Fibonacci hashing, Knuth volume 3, 6.4).
#[derive(Clone, Copy, Debug, Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only page numbers are hashed")
    }
    fn write_u32(&mut self, n: u32) {
        let mixed = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    lpn: u32,
    newer: u32,
    older: u32,
}

/// A doubly linked list in an array, and an index by page: every access takes constant time.
#[derive(Clone, Debug)]
pub struct Lru {
    index: HashMap<u32, u32, BuildHasherDefault<PageHasher>>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl Lru {
    pub(super) fn new(capacity: usize) -> Lru {
        Lru {
            // Twice the room: removals leave marks that would otherwise force a clean-up every few operations.
            index: HashMap::with_capacity_and_hasher(2 * capacity, BuildHasherDefault::default()),
            nodes: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            newest: NONE,
            oldest: NONE,
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
        self.index.contains_key(&lpn)
    }

    fn touch(&mut self, lpn: u32) -> bool {
        let Some(&n) = self.index.get(&lpn) else { return false };
        if self.newest != n {
            self.unlink(n);
            self.link_newest(n);
        }
        true
    }

    fn insert(&mut self, lpn: u32) {
        let node = Node { lpn, newer: NONE, older: NONE };
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
        self.link_newest(n);
        self.index.insert(lpn, n);
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.index.remove(&lpn) else { return false };
        self.unlink(n);
        self.free.push(n);
        true
    }

    fn evict(&mut self, most: usize, leaving: &mut Vec<u32>) {
        for _ in 0..most {
            let n = self.oldest;
            if n == NONE {
                return;
            }
            let lpn = self.nodes[n as usize].lpn;
            self.index.remove(&lpn);
            self.unlink(n);
            self.free.push(n);
            leaving.push(lpn);
        }
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn pages(&self) -> Vec<u32> {
        self.index.keys().copied().collect()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_page_leaves_first() {
        let mut lru = Lru::new(4);
        (1..=4).for_each(|l| lru.insert(l));
        assert!(lru.touch(1) && !lru.touch(9));
        let mut leaving = Vec::new();
        lru.evict(3, &mut leaving);
        assert_eq!(leaving, [2, 3, 4]);
        assert!(lru.contains(1) && lru.len() == 1);
    }
}
