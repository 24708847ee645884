//! A doubly linked list over numbers, in an array.

use super::NONE;

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

/// Numbers in an order of time: the newest is put in last. O(1) for each operation. A number is in the list once at
/// most; who uses the list knows which are in.
#[derive(Clone, Debug)]
pub(in crate::buffer) struct List {
    links: Vec<Links>,
    newest: u32,
    oldest: u32,
    len: usize,
}

impl List {
    pub fn new(capacity: usize) -> List {
        List { links: Vec::with_capacity(capacity), newest: NONE, oldest: NONE, len: 0 }
    }

    fn make_place(&mut self, n: u32) {
        if n as usize >= self.links.len() {
            self.links.resize(n as usize + 1, Links { newer: NONE, older: NONE });
        }
    }

    #[inline]
    pub fn push_newest(&mut self, n: u32) {
        self.make_place(n);
        self.links[n as usize] = Links { newer: NONE, older: self.newest };
        match self.newest {
            NONE => self.oldest = n,
            newest => self.links[newest as usize].newer = n,
        }
        self.newest = n;
        self.len += 1;
    }

    #[inline]
    pub fn push_oldest(&mut self, n: u32) {
        self.make_place(n);
        self.links[n as usize] = Links { newer: self.oldest, older: NONE };
        match self.oldest {
            NONE => self.newest = n,
            oldest => self.links[oldest as usize].older = n,
        }
        self.oldest = n;
        self.len += 1;
    }

    /// Takes a number out that is in.
    #[inline]
    pub fn remove(&mut self, n: u32) {
        let Links { newer, older } = self.links[n as usize];
        match newer {
            NONE => self.newest = older,
            _ => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            _ => self.links[older as usize].newer = newer,
        }
        self.len -= 1;
    }

    /// Makes a number that is in the newest.
    #[inline]
    pub fn renew(&mut self, n: u32) {
        if self.newest != n {
            self.remove(n);
            self.push_newest(n);
        }
    }

    /// A number that is not in the list may keep a value in its place.
    pub fn keep(&mut self, n: u32, value: u32) {
        self.make_place(n);
        self.links[n as usize].newer = value;
    }

    /// The value that a number keeps.
    #[inline]
    pub fn kept(&self, n: u32) -> u32 {
        self.links[n as usize].newer
    }

    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// From the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.oldest(), |&n| Some(self.links[n as usize].newer).filter(|&n| n != NONE))
    }
}
