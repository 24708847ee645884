//! A drive that has a past: filled, or in the steady state of random overwriting, constructed instead of written.

use super::{Entry, Ftl, NOT_A_CANDIDATE, State, Stream};
use crate::events::EventQueue;
use crate::flash::NONE;
use crate::owner::Owner;
use std::ops::Range;
use std::sync::Arc;
use tidewater_base::{Instant, Rng};
use tidewater_nand::{Medium, Nand, Page, PageHeader, PageKind};

/// What a drive has been through before a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precondition {
    /// Nothing: every page is erased.
    Fresh,
    /// This share of the logical pages was written once, in order.
    Filled(f64),
    /// All logical pages were written, then overwritten at random and evenly until collection was in its steady state.
    Steady,
}

impl Precondition {
    /// Whether all logical pages were written.
    fn is_full(self) -> bool {
        match self {
            Precondition::Fresh => false,
            Precondition::Filled(share) => share >= 1.0,
            Precondition::Steady => true,
        }
    }
}

impl<M: Medium> Ftl<M> {
    /// Constructs a past. Call it on a new drive only. `tag` is the version of the content.
    ///
    /// # Errors
    /// In words, when bad blocks leave too little room for the steady state.
    pub fn precondition(&mut self, past: Precondition, seed: u64, tag: u64) -> Result<(), String> {
        assert_eq!(self.map.mapped(), 0, "only a new drive can be given a past");
        if past.is_full() {
            self.map.expect_all();
            self.valid_bits.expect_all();
        }
        match past {
            Precondition::Fresh => {}
            _ if self.hybrid.is_some() => self.construct_blocks(past, seed, tag)?,
            Precondition::Filled(share) => {
                let units = (f64::from(self.data_units()) * share.clamp(0.0, 1.0)) as u32;
                let mut lpn = 0;
                while lpn < units {
                    let row: Vec<u32> = (lpn..units.min(lpn + self.layout.units_per_row)).collect();
                    let placed = self.place_row(&row, tag);
                    if !placed {
                        return Err("factory-bad blocks took more than filling the drive leaves over; give a larger \
                                    [ftl] spare_blocks"
                            .into());
                    }
                    lpn += row.len() as u32;
                }
            }
            Precondition::Steady => self.construct_steady(seed, tag)?,
        }
        if past != Precondition::Fresh {
            self.place_mapping_pages(false, tag);
            self.place_checkpoint();
        }
        for die in 0..self.layout.dies {
            // The host goes on where the past ended.
            let space = &mut self.dies[die as usize];
            space.host_superblock = std::mem::replace(&mut space.past_superblock, NONE);
            self.update_ready(die);
        }
        self.wake.clear(); // Nothing is collected before the host has begun.
        Ok(())
    }

    /// Maps a page that is read before it was written, with its unmapped neighbours of the same row, as if they had
    /// been written before the run. False: there is no room to do so without collecting first.
    pub fn premap(&mut self, lpn: u32, tag: u64) -> bool {
        let units = self.layout.units_per_row;
        if self.hybrid.is_some() {
            let placed = self.place_block(lpn / self.layout.units_per_superblock, self.data_units(), tag);
            self.statistics.premapped += u64::from(placed.unwrap_or(0));
            return placed.is_some();
        }
        self.hold_past();
        let first = lpn / units * units;
        let row: Vec<u32> = (first..self.data_units().min(first + units)).filter(|&l| self.map.is_virgin(l)).collect();
        let placed = self.place_row(&row, tag);
        self.statistics.premapped += if placed { row.len() as u64 } else { 0 };
        placed
    }

    /// Charges the flash read of a page that was written before the run but has no place of its own: a unit of its die
    /// is read in its stead. False: nothing on that die was ever programmed.
    pub fn read_past(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, owner: Owner) -> bool {
        let die = lpn / self.layout.units_per_row % self.layout.dies;
        let first = die * self.layout.superblocks_per_die;
        let on_die = first..first + self.layout.superblocks_per_die;
        // Not one that is being erased: its blocks may turn out bad, and be gone when the read gets there.
        let holds = |s: &u32| {
            let state = self.superblocks[*s as usize].state;
            self.programmed[*s as usize] > 0 && matches!(state, State::Open | State::Closed | State::Victim)
        };
        let Some(superblock) = on_die.into_iter().find(holds) else { return false };
        self.queue_read(now, events, superblock, 0, 1 << (lpn % self.layout.units_per_row), owner);
        true
    }

    /// Places up to a row of units on flash at once, on the next die in turn that has room.
    fn place_row(&mut self, lpns: &[u32], tag: u64) -> bool {
        let dies = self.layout.dies;
        let from = self.next_die;
        // A superblock of its own on each die: the host's may have rows under way, and these are programmed at once.
        let room = |d: &u32| {
            let space = &self.dies[*d as usize];
            space.past_superblock != NONE || space.free_beyond() > self.profile.gc_reserve as usize
        };
        let Some(die) = (0..dies).map(|i| (from + i) % dies).find(room) else { return false };
        self.next_die = (die + 1) % dies;
        let mut superblock = self.dies[die as usize].past_superblock;
        if superblock == NONE {
            superblock = self.open_superblock(die, Stream::Host).expect("it has room");
            self.wake.push(die);
        }
        let row = u32::from(self.superblocks[superblock as usize].rows);
        self.superblocks[superblock as usize].rows += 1;
        let full = self.is_full(superblock);
        self.dies[die as usize].past_superblock = if full { NONE } else { superblock };
        self.place(superblock, row, lpns, 0, tag);
        if full {
            self.settle(superblock);
        }
        self.update_ready(die);
        true
    }

    /// Programs a row with these units; all that are not [`Nand::NO_LPN`] and not mapped yet become valid.
    pub(super) fn place(&mut self, superblock: u32, row: u32, lpns: &[u32], index: u32, tag: u64) {
        self.place_with(superblock, row, lpns, index, tag, None);
    }

    /// As [`Ftl::place`], with what the firmware's own pages among them say.
    pub(super) fn place_with(
        &mut self,
        superblock: u32,
        row: u32,
        lpns: &[u32],
        index: u32,
        tag: u64,
        own_payload: Option<Arc<[u32]>>,
    ) {
        self.row_sequence += 1;
        let mut units = [Nand::NO_LPN; 64];
        units[..lpns.len()].copy_from_slice(lpns);
        let mut stamps = [(0u64, 0u64); 64];
        for (unit, &lpn) in lpns.iter().enumerate() {
            if lpn == Nand::NO_LPN {
                continue;
            }
            self.write_sequence += 1;
            stamps[unit] = (tag, self.write_sequence);
            let ppn = self.layout.ppn(superblock, row, unit as u32);
            if let Entry::At(old) = self.map.set(lpn, Entry::At(ppn)) {
                self.invalidate(old, 0);
            }
            self.valid_bits.set(ppn);
            self.valid[superblock as usize] += 1;
        }
        self.preset_row(superblock, row, (PageKind::Data, index), &units, &stamps, own_payload);
    }

    /// Programs a row with what the firmware itself keeps: no logical pages, and headers that say so.
    pub(super) fn place_own(
        &mut self,
        superblock: u32,
        row: u32,
        kind: (PageKind, u32),
        own_payload: Option<Arc<[u32]>>,
    ) {
        self.row_sequence += 1;
        self.preset_row(superblock, row, kind, &[Nand::NO_LPN; 64], &[(0, 0); 64], own_payload);
    }

    fn preset_row(
        &mut self,
        superblock: u32,
        row: u32,
        (kind, index): (PageKind, u32),
        units: &[u32; 64],
        stamps: &[(u64, u64); 64],
        own_payload: Option<Arc<[u32]>>,
    ) {
        let header = PageHeader { kind, program_sequence: self.row_sequence, superblock, index };
        let per_page = self.layout.units_per_page as usize;
        for plane in 0..self.layout.planes() {
            let part = plane as usize * per_page..(plane as usize + 1) * per_page;
            let content = Page {
                header,
                lpns: &units[part.clone()],
                stamps: if self.stamps { &stamps[part] } else { &[] },
                origins: &[],
                own_payload: own_payload.clone().filter(|_| plane == 0),
            };
            self.medium.preset(self.layout.block(superblock, plane), row, &content);
        }
        self.programmed[superblock as usize] += 1;
    }

    pub(super) fn settle(&mut self, superblock: u32) {
        let s = &mut self.superblocks[superblock as usize];
        s.state = State::Closed;
        s.closed_at = self.host_clock;
        self.valid[superblock as usize] &= !NOT_A_CANDIDATE;
    }

    /// The steady state of uniform random overwriting under oldest-first collection, which greedy collection tends to
    /// for superblocks of many units: of the units in a superblock, the share `exp(-x / U)` is still valid after the
    /// host has written `x` units to a die of `U` logical units (Desnoyers, "Analytic modeling of SSD write
    /// performance", SYSTOR 2012). A superblock holds `1 / A` host units, so superblock `k` by age has `x = k N / A`.
    ///
    /// The drive is in the midst of it: on each die as many superblocks are free as collection begins at, one is partly
    /// filled by the host and one by collection, and one is partly collected, each how far by chance. Dies are out of
    /// step therefore, as those of a drive that has been written for long.
    fn construct_steady(&mut self, seed: u64, tag: u64) -> Result<(), String> {
        let dies = self.layout.dies;
        let total = self.data_units();
        let keep = self.profile.gc_start as usize;
        // Each die gets its share by the superblocks it has: factory-bad blocks may have taken some. Two are open.
        let places = |die: u32| (self.dies[die as usize].free_beyond().saturating_sub(keep + 2)) as u64;
        let all: u64 = (0..dies).map(places).sum();
        if all * u64::from(self.layout.units_per_superblock) < u64::from(total) {
            return Err(
                "factory-bad blocks took more than the steady state leaves over; give a larger [ftl] spare_blocks"
                    .into(),
            );
        }
        let ends: Vec<u64> = (0..dies)
            .scan(0, |sum, die| {
                *sum += places(die);
                Some(*sum * u64::from(total) / all)
            })
            .collect();
        let mut phases = Rng::new(seed, b"phases of dies");
        let mut aged = Vec::new();
        for die in 0..dies {
            let begin = if die == 0 { 0 } else { ends[die as usize - 1] };
            self.age_die(die, (ends[die as usize] - begin) as u32, keep + 2, &mut phases, &mut aged);
        }
        // What is collected by cost and benefit is chosen by its age, too.
        self.host_clock = aged.iter().map(|a| a.age).max().unwrap_or(0);
        // Which logical pages: a permutation of all, dealt out in physical order.
        let mut pages = Dealer::new(Shuffle::new(total, seed), |lpn| self.map.prefetch(lpn));
        let mut rng = Rng::new(seed, b"steady state");
        let units = self.layout.units_per_row as usize;
        let mut row = [Nand::NO_LPN; 64];
        for Aged { superblock, rows, valid, age } in aged {
            let (mut left, mut slots) = (valid, rows.len() as u32 * self.layout.units_per_row);
            for index in 0..rows.end {
                for lpn in &mut row[..units] {
                    // Selection sampling (Knuth, volume 2, algorithm S): exactly so many, evenly spread.
                    let take = rows.contains(&index) && rng.below(u64::from(slots)) < u64::from(left);
                    slots -= u32::from(rows.contains(&index));
                    *lpn = if take { pages.deal(|lpn| self.map.prefetch(lpn)) } else { Nand::NO_LPN };
                    left -= u32::from(take);
                }
                self.superblocks[superblock as usize].rows += 1;
                self.place(superblock, index, &row[..units], 0, tag);
            }
            if self.is_full(superblock) && self.superblocks[superblock as usize].state == State::Open {
                self.settle(superblock);
                self.superblocks[superblock as usize].closed_at = self.host_clock - age;
            }
        }
        assert_eq!(pages.dealt, total, "every logical page has its place");
        Ok(())
    }

    /// Says how `share` logical units lie on a die's superblocks, all but `rest`, and which of these are open or
    /// collected. The oldest come first.
    fn age_die(&mut self, die: u32, share: u32, rest: usize, phases: &mut Rng, aged: &mut Vec<Aged>) {
        let (all_rows, per_row) = (self.layout.rows, self.layout.units_per_row);
        let per_superblock = self.layout.units_per_superblock;
        let mut phase = || phases.below(u64::from(all_rows)) as u32;
        let (by_host, by_collection, collected) = (phase(), phase(), phase());
        let mut superblocks = Vec::new();
        while self.dies[die as usize].free_beyond() > rest {
            superblocks.push(self.open_superblock(die, Stream::Host).expect("counted"));
        }
        let (n, u, s) = (superblocks.len() as f64, f64::from(share), f64::from(per_superblock));
        let amplification = write_amplification(n * s / u);
        let valid_share = |x: f64| (-x / u).exp();
        let first = aged.len();
        let mut expected = Vec::new();
        for (k, &superblock) in superblocks.iter().enumerate().rev() {
            let x = (k as f64 + 0.5) * s / amplification;
            aged.push(Aged { superblock, rows: 0..all_rows, valid: 0, age: (x * f64::from(self.layout.dies)) as u64 });
            expected.push(valid_share(x) * s);
        }
        // With an SLC cache, what the host writes does not come here first: nothing is half done.
        let in_midst = self.slc.is_none() && u > 0.0;
        let victim = (in_midst && n > 1.0 && (n - 1.0) * s >= u).then(|| {
            aged[first].rows.start = collected;
            let all = expected[0];
            expected[0] *= f64::from(all_rows - collected) / f64::from(all_rows);
            all
        });
        let mut open = |ftl: &mut Self, stream: Stream, rows: u32, x: f64| -> u32 {
            let superblock = ftl.open_superblock(die, stream).expect("two are left for it");
            aged.push(Aged { superblock, rows: 0..rows, valid: 0, age: 0 });
            expected.push(f64::from(rows * per_row) * valid_share(x / 2.0));
            superblock
        };
        if in_midst && by_host > 0 {
            self.dies[die as usize].past_superblock = open(self, Stream::Host, by_host, f64::from(by_host * per_row));
        }
        if in_midst && by_collection > 0 && self.profile.gc_stream {
            let x = f64::from(by_collection * per_row) / (amplification - 1.0);
            self.dies[die as usize].collect_superblock = open(self, Stream::Collected, by_collection, x);
        }
        // What is expected is more or less than there is: all get more or less.
        let scale = u / expected.iter().sum::<f64>();
        let (mut given, mut owed) = (0, 0.0);
        for (aged, expected) in aged[first..].iter_mut().zip(&expected) {
            owed += expected * scale;
            let slots = aged.rows.len() as u32 * per_row;
            aged.valid = ((owed - f64::from(given)).round().max(0.0) as u32).min(slots).min(share - given);
            given += aged.valid;
        }
        for aged in aged[first..].iter_mut().rev() {
            let more = (aged.rows.len() as u32 * per_row - aged.valid).min(share - given);
            aged.valid += more;
            given += more;
        }
        if let Some(all) = victim {
            self.go_on_with_victim(die, aged[first].superblock, collected, (all * scale) as u32);
        }
    }
}

/// A superblock of a drive that has a past.
struct Aged {
    superblock: u32,
    /// The rows that may hold valid units. All before the end are programmed.
    rows: Range<u32>,
    /// Valid units.
    valid: u32,
    /// Units that the host has written since it was closed, to all dies.
    age: u64,
}

/// Write amplification of uniform random writes under oldest-first collection, for flash `alpha` times the logical
/// capacity: `A = alpha / (alpha + W(-alpha exp(-alpha)))` with Lambert's W (Desnoyers, SYSTOR 2012, equation 6).
pub fn write_amplification(alpha: f64) -> f64 {
    // The valid share `u` of a victim solves u = exp(-alpha (1 - u)); iterated from below it rises to the root.
    let mut u = 0.0f64;
    for _ in 0..100_000 {
        let next = (-alpha * (1.0 - u)).exp();
        if (next - u).abs() < 1e-14 {
            break;
        }
        u = next;
    }
    1.0 / (1.0 - u)
}

/// A pseudo-random permutation of `0..n`: a four-round Feistel network over the next even power of two, walked until it
/// lands inside.
struct Shuffle {
    n: u32,
    half: u32,
    keys: [u64; 4],
}

impl Shuffle {
    fn new(n: u32, seed: u64) -> Shuffle {
        let bits = (32 - n.saturating_sub(1).leading_zeros()).max(2).next_multiple_of(2);
        let mut rng = Rng::new(seed, b"shuffle");
        Shuffle { n, half: bits / 2, keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    fn at(&self, i: u32) -> u32 {
        let mask = (1u64 << self.half) - 1;
        let mut x = u64::from(i);
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for key in self.keys {
                let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                (left, right) = (right, left ^ mixed & mask);
            }
            x = left << self.half | right;
            if x < u64::from(self.n) {
                return x as u32;
            }
        }
    }
}

/// Pages that are known before they are dealt, so that their map entries, which lie anywhere in a table larger than the
/// caches, are there by then.
const KNOWN: usize = 32;

/// Deals out the numbers of a permutation, each once.
struct Dealer {
    shuffle: Shuffle,
    dealt: u32,
    /// The next ones, by their number modulo how many these are.
    known: [u32; KNOWN],
}

impl Dealer {
    /// The first are about to be dealt: each is passed to `expect`.
    fn new(shuffle: Shuffle, expect: impl Fn(u32)) -> Dealer {
        let mut dealer = Dealer { shuffle, dealt: 0, known: [0; KNOWN] };
        (0..KNOWN as u32).for_each(|i| dealer.learn(i, &expect));
        dealer
    }

    fn learn(&mut self, i: u32, expect: impl Fn(u32)) {
        if i < self.shuffle.n {
            let number = self.shuffle.at(i);
            expect(number);
            self.known[i as usize % KNOWN] = number;
        }
    }

    /// The next, of which there must be one; another that will be dealt before long is passed to `expect`.
    fn deal(&mut self, expect: impl Fn(u32)) -> u32 {
        let number = self.known[self.dealt as usize % KNOWN];
        self.learn(self.dealt + KNOWN as u32, expect);
        self.dealt += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dealer_deals_what_it_said_in_the_order_of_the_permutation() {
        for n in [1, KNOWN as u32 - 1, KNOWN as u32, 1_000] {
            let said = std::cell::RefCell::new(Vec::new());
            let expect = |number| said.borrow_mut().push(number);
            let mut dealer = Dealer::new(Shuffle::new(n, 9), expect);
            let dealt: Vec<u32> = (0..n).map(|_| dealer.deal(expect)).collect();
            let shuffle = Shuffle::new(n, 9);
            assert_eq!(dealt, (0..n).map(|i| shuffle.at(i)).collect::<Vec<_>>());
            assert_eq!(dealt, *said.borrow());
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        for n in [1, 2, 5, 64, 1_000] {
            let mut seen: Vec<u32> = (0..n).map(|i| Shuffle::new(n, 9).at(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_analytic_curve_solves_its_equation() {
        // With W the branch of Lambert's function above -1: W exp(W) = -alpha exp(-alpha), by Newton's method.
        for alpha in [1.05f64, 1.07, 1.15, 1.28, 2.0] {
            let target = -alpha * (-alpha).exp();
            let mut w = -0.5f64;
            for _ in 0..200 {
                w -= (w * w.exp() - target) / (w.exp() * (w + 1.0));
            }
            let expected = alpha / (alpha + w);
            assert!((write_amplification(alpha) / expected - 1.0).abs() < 1e-6, "{alpha}: {expected}");
        }
    }
}
