//! `lb-clock`: blocks in a clock, of which the largest that was not used lately leaves (Debnath, Subramanya, Du and
//! Lilja, *Large block CLOCK (LB-CLOCK): a write caching algorithm for solid state disks*, MASCOTS 2009).

use super::policy::{Policy, Run, Setting, Victim};
use super::structure::{Blocks, Heap, List};
use std::cmp::Reverse;

/// Every block has a recency bit, set by each write. When there is no candidate, the hand goes round once: it clears
/// bits that are set, and makes candidates of blocks whose bit is clear. The candidate that has the most pages leaves;
/// of equals, the one that became a candidate first. A write to a candidate makes it a block like others again; a block
/// written from its first page to its last becomes a candidate at once.
///
/// O(log n) for a page. A round visits every block, but each write lets the hand change its block no more than twice,
/// so that a round is paid for by the writes before it.
#[derive(Clone, Debug)]
pub struct LbClock {
    blocks: Blocks,
    /// Blocks that are no candidates, in the order in which the hand meets them. Candidates keep here which they are,
    /// by `count`.
    clock: List,
    /// The recency bits.
    recent: Vec<bool>,
    candidates: Heap,
    /// Candidates so far.
    count: u32,
}

/// The most pages first, then the oldest candidate.
fn key<'a>(blocks: &'a Blocks, clock: &'a List) -> impl Fn(u32) -> (Reverse<u32>, u32) + 'a {
    |number| (Reverse(blocks.count(number)), clock.kept(number))
}

impl LbClock {
    pub(super) fn new(setting: &Setting) -> LbClock {
        LbClock {
            blocks: Blocks::new(setting.capacity, setting.block),
            clock: List::new(setting.capacity),
            recent: Vec::with_capacity(setting.capacity),
            candidates: Heap::new(setting.capacity),
            count: 0,
        }
    }

    fn make_candidate(&mut self, number: u32) {
        self.clock.remove(number);
        // After four thousand million candidates, equals leave in another order once.
        self.count = self.count.wrapping_add(1);
        self.clock.keep(number, self.count);
        self.candidates.push(number, key(&self.blocks, &self.clock));
    }

    /// The hand goes round once.
    fn go_round(&mut self) {
        for _ in 0..self.clock.len() {
            let number = self.clock.oldest().expect("as many as there were");
            if std::mem::take(&mut self.recent[number as usize]) {
                self.clock.renew(number);
            } else {
                self.make_candidate(number);
            }
        }
    }

    /// Takes a block out of the order that it is in.
    fn take_out(&mut self, number: u32) {
        if self.candidates.contains(number) {
            self.candidates.remove(number, key(&self.blocks, &self.clock));
        } else {
            self.clock.remove(number);
        }
    }
}

impl Policy for LbClock {
    fn contains(&self, lpn: u32) -> bool {
        self.blocks.contains(lpn)
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        let held = self.blocks.find(lpn);
        let number = match held {
            Some(n) => self.blocks.number_of(n),
            None if room => {
                let number = self.blocks.insert(lpn).1;
                if number as usize >= self.recent.len() {
                    self.recent.push(true);
                }
                if self.blocks.count(number) == 1 {
                    self.clock.push_newest(number);
                }
                number
            }
            None => return false,
        };
        if self.candidates.contains(number) {
            self.candidates.remove(number, key(&self.blocks, &self.clock));
            self.clock.push_newest(number);
        }
        self.recent[number as usize] = true;
        if self.blocks.count_sequence(lpn, number) {
            self.recent[number as usize] = false;
            self.make_candidate(number);
        }
        held.is_some()
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let Some(n) = self.blocks.find(lpn) else { return false };
        let number = self.blocks.number_of(n);
        if self.blocks.count(number) == 1 {
            self.take_out(number);
            self.blocks.remove(n);
        } else {
            self.blocks.remove(n);
            if self.candidates.contains(number) {
                self.candidates.update(number, key(&self.blocks, &self.clock));
            }
        }
        true
    }

    fn evict(&mut self, _most: usize, victim: &mut Victim) {
        // Two rounds at most: the first clears every bit.
        while self.candidates.is_empty() && self.clock.len() > 0 {
            self.go_round();
        }
        let Some(number) = self.candidates.first() else { return };
        self.take_out(number);
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

    #[derive(Default)]
    struct Entry {
        block: u32,
        pages: Vec<u32>,
        next: u32,
        recent: bool,
    }

    /// The clock from where the hand is, and the candidates from the oldest.
    #[derive(Default)]
    struct Naive {
        clock: Vec<Entry>,
        candidates: Vec<Entry>,
    }

    impl Naive {
        fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
            self.clock.iter_mut().chain(&mut self.candidates)
        }
    }

    impl Model for Naive {
        fn write(&mut self, lpn: u32, _run: Run) {
            let block = lpn / 8;
            if let Some(at) = self.candidates.iter().position(|entry| entry.block == block) {
                let entry = self.candidates.remove(at);
                self.clock.push(entry);
            }
            if self.clock.iter().all(|entry| entry.block != block) {
                self.clock.push(Entry { block, ..Entry::default() });
            }
            let at = self.clock.iter().position(|entry| entry.block == block).expect("it is in");
            let entry = &mut self.clock[at];
            if !entry.pages.contains(&lpn) {
                entry.pages.push(lpn);
            }
            entry.recent = true;
            entry.next = if lpn.is_multiple_of(8) || lpn % 8 == entry.next { lpn % 8 + 1 } else { 0 };
            if entry.next == 8 {
                entry.recent = false;
                let entry = self.clock.remove(at);
                self.candidates.push(entry);
            }
        }
        fn remove(&mut self, lpn: u32) {
            self.entries().for_each(|entry| entry.pages.retain(|&l| l != lpn));
            self.clock.retain(|entry| !entry.pages.is_empty());
            self.candidates.retain(|entry| !entry.pages.is_empty());
        }
        fn evict(&mut self) -> Vec<u32> {
            while self.candidates.is_empty() {
                for mut entry in std::mem::take(&mut self.clock) {
                    let to = if entry.recent { &mut self.clock } else { &mut self.candidates };
                    entry.recent = false;
                    to.push(entry);
                }
            }
            let most = self.candidates.iter().map(|entry| entry.pages.len()).max();
            let at = self.candidates.iter().position(|entry| Some(entry.pages.len()) == most).expect("not empty");
            let mut pages = self.candidates.remove(at).pages;
            pages.sort_unstable();
            pages
        }
    }

    #[test]
    fn candidates_leave_in_the_order_of_their_pages() {
        same_order(LbClock::new(&setting(40, 8)), Naive::default(), 40, 200);
    }

    #[test]
    fn recent_blocks_stay_and_sequential_ones_do_not() {
        let mut clock = LbClock::new(&setting(32, 4));
        let write = |clock: &mut LbClock, lpn| clock.write(lpn, Run::of_one(lpn), true);
        [0, 4, 5, 8].iter().for_each(|&l| assert!(!write(&mut clock, l)));
        assert_eq!(victims(&mut clock, 1), [4, 5], "all were recent; block 1 has the most pages");
        assert!(write(&mut clock, 0));
        assert_eq!(victims(&mut clock, 1), [8], "block 0 was written since");
        (12..16).for_each(|l| assert!(!write(&mut clock, l)));
        assert_eq!(victims(&mut clock, 1), [12, 13, 14, 15], "complete, and so a candidate");
        assert_eq!(victims(&mut clock, 1), [0]);
    }
}
