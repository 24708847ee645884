//! Which pages are held: a number for each, found by hash.

use super::NONE;

#[derive(Clone, Copy, Debug)]
struct Node {
    lpn: u32,
    /// The next node of the chain; of a free node, the next free one.
    next: u32,
}

/// Pages and their numbers, which stay the same as long as a page is held and are small: other structures are arrays
/// over them. O(1).
#[derive(Clone, Debug)]
pub(in crate::buffer) struct Pages {
    /// The first node of each chain: as many chains as pages fit, so that a chain has one on average.
    buckets: Box<[u32]>,
    nodes: Vec<Node>,
    free: u32,
    len: usize,
}

impl Pages {
    pub fn new(capacity: usize) -> Pages {
        Pages {
            buckets: vec![NONE; capacity.max(1)].into_boxed_slice(),
            nodes: Vec::with_capacity(capacity),
            free: NONE,
            len: 0,
        }
    }

    /// One multiplication spreads page numbers well enough (Fibonacci hashing, Knuth volume 3, 6.4); another scales.
    #[inline]
    fn bucket(&self, lpn: u32) -> usize {
        let hash = u64::from(lpn).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    pub fn find(&self, lpn: u32) -> Option<u32> {
        let mut n = self.buckets[self.bucket(lpn)];
        while n != NONE {
            let node = &self.nodes[n as usize];
            if node.lpn == lpn {
                return Some(n);
            }
            n = node.next;
        }
        None
    }

    /// Takes in a page that is not held.
    #[inline]
    pub fn insert(&mut self, lpn: u32) -> u32 {
        let bucket = self.bucket(lpn);
        let node = Node { lpn, next: self.buckets[bucket] };
        let n = self.free;
        let n = if n == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            self.free = self.nodes[n as usize].next;
            self.nodes[n as usize] = node;
            n
        };
        self.buckets[bucket] = n;
        self.len += 1;
        n
    }

    /// Removes a page.
    #[inline]
    pub fn remove(&mut self, n: u32) {
        let Node { lpn, next } = self.nodes[n as usize];
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
        self.nodes[n as usize].next = self.free;
        self.free = n;
        self.len -= 1;
    }

    /// The page of a node.
    #[inline]
    pub fn lpn(&self, n: u32) -> u32 {
        self.nodes[n as usize].lpn
    }

    pub fn len(&self) -> usize {
        self.len
    }
}
