//! A past that is constructed: rows in order, or the steady state of random overwriting.

use super::state::PageMapping;
use crate::flash::NONE;
use crate::ftl::deal::{Dealer, Shuffle};
use crate::ftl::placement::Placement;
use crate::ftl::precondition::write_amplification;
use crate::ftl::store::{State, Store, Stream};
use std::ops::Range;
use tidewater_base::Rng;
use tidewater_nand::{Medium, Nand};

const TOO_FEW_TO_AGE: &str =
    "factory-bad blocks took more than the steady state leaves over; give a larger [ftl] spare_blocks";

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

impl PageMapping {
    /// Places up to a row of units on flash at once, on the next die in turn that has room.
    pub fn place_row<M: Medium>(&mut self, store: &mut Store<M>, lpns: &[u32], tag: u64) -> bool {
        let dies = store.layout.dies;
        let from = self.next_die;
        // A superblock of its own on each die: the host's may have rows under way, and these are programmed at once.
        let room = |&d: &u32| {
            self.dies[d as usize].past_superblock != NONE
                || store.space.dies[d as usize].free_beyond() > store.profile.gc_reserve as usize
        };
        let Some(die) = (0..dies).map(|i| (from + i) % dies).find(room) else { return false };
        self.next_die = (die + 1) % dies;
        let mut superblock = self.dies[die as usize].past_superblock;
        if superblock == NONE {
            superblock = store.space.open(die, Stream::Host).expect("it has room");
            store.space.wake.push(die);
        }
        let full = store.place(superblock, lpns, 0, tag, None);
        self.dies[die as usize].past_superblock = if full { NONE } else { superblock };
        if full {
            store.space.settle(superblock);
        }
        self.update_ready(store, die);
        true
    }

    /// The steady state of uniform random overwriting under oldest-first collection, which greedy collection tends to
    /// for superblocks of many units: of the units in a superblock, the share `exp(-x / U)` is still valid after the
    /// host has written `x` units to a die of `U` logical units (Desnoyers, "Analytic modeling of SSD write
    /// performance", SYSTOR 2012). A superblock holds `1 / A` host units, so superblock `k` by age has `x = k N / A`.
    ///
    /// The drive is in the midst of it: on each die as many superblocks are free as collection begins at, one is partly
    /// filled by the host and one by collection, and one is partly collected, each how far by chance. Dies are out of
    /// step therefore, as those of a drive that has been written for long.
    pub fn construct_steady<M: Medium>(&mut self, store: &mut Store<M>, seed: u64, tag: u64) -> Result<(), String> {
        let dies = store.layout.dies;
        let total = store.data_units;
        let keep = store.profile.gc_start as usize;
        // Each die gets its share by the superblocks it has: factory-bad blocks may have taken some. Two are open.
        let places = |die: u32| (store.space.dies[die as usize].free_beyond().saturating_sub(keep + 2)) as u64;
        let all: u64 = (0..dies).map(places).sum();
        if all * u64::from(store.layout.units_per_superblock) < u64::from(total) {
            return Err(TOO_FEW_TO_AGE.into());
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
            self.age_die(store, die, (ends[die as usize] - begin) as u32, keep + 2, &mut phases, &mut aged);
        }
        // What is collected by cost and benefit is chosen by its age, too.
        store.space.host_clock = aged.iter().map(|a| a.age).max().unwrap_or(0);
        // Which logical pages: a permutation of all, dealt out in physical order.
        let mut pages = Dealer::new(Shuffle::new(total, seed), |lpn| store.map.prefetch(lpn));
        let mut rng = Rng::new(seed, b"steady state");
        let units = store.layout.units_per_row as usize;
        let mut row = [Nand::NO_LPN; 64];
        for Aged { superblock, rows, valid, age } in aged {
            let (mut left, mut slots) = (valid, rows.len() as u32 * store.layout.units_per_row);
            for index in 0..rows.end {
                for lpn in &mut row[..units] {
                    // Selection sampling (Knuth, volume 2, algorithm S): exactly so many, evenly spread.
                    let take = rows.contains(&index) && rng.below(u64::from(slots)) < u64::from(left);
                    slots -= u32::from(rows.contains(&index));
                    *lpn = if take { pages.deal(|lpn| store.map.prefetch(lpn)) } else { Nand::NO_LPN };
                    left -= u32::from(take);
                }
                store.place(superblock, &row[..units], 0, tag, None);
            }
            if store.space.is_full(superblock) && store.space.superblocks[superblock as usize].state == State::Open {
                store.space.settle(superblock);
                store.space.superblocks[superblock as usize].closed_at = store.space.host_clock - age;
            }
        }
        assert_eq!(pages.dealt, total, "every logical page has its place");
        Ok(())
    }

    /// Says how `share` logical units lie on a die's superblocks, all but `rest`, and which of these are open or
    /// collected. The oldest come first.
    fn age_die<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        die: u32,
        share: u32,
        rest: usize,
        phases: &mut Rng,
        aged: &mut Vec<Aged>,
    ) {
        let (all_rows, per_row) = (store.layout.rows, store.layout.units_per_row);
        let per_superblock = store.layout.units_per_superblock;
        let mut phase = || phases.below(u64::from(all_rows)) as u32;
        let (by_host, by_collection, collected) = (phase(), phase(), phase());
        let mut superblocks = Vec::new();
        while store.space.dies[die as usize].free_beyond() > rest {
            superblocks.push(store.space.open(die, Stream::Host).expect("counted"));
        }
        let (n, u, s) = (superblocks.len() as f64, f64::from(share), f64::from(per_superblock));
        let amplification = write_amplification(n * s / u);
        let valid_share = |x: f64| (-x / u).exp();
        let first = aged.len();
        let mut expected = Vec::new();
        for (k, &superblock) in superblocks.iter().enumerate().rev() {
            let x = (k as f64 + 0.5) * s / amplification;
            aged.push(Aged { superblock, rows: 0..all_rows, valid: 0, age: (x * f64::from(store.layout.dies)) as u64 });
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
        let mut open = |stream: Stream, rows: u32, x: f64| -> u32 {
            let superblock = store.space.open(die, stream).expect("two are left for it");
            aged.push(Aged { superblock, rows: 0..rows, valid: 0, age: 0 });
            expected.push(f64::from(rows * per_row) * valid_share(x / 2.0));
            superblock
        };
        if in_midst && by_host > 0 {
            self.dies[die as usize].past_superblock = open(Stream::Host, by_host, f64::from(by_host * per_row));
        }
        if in_midst && by_collection > 0 && store.profile.gc_stream {
            let x = f64::from(by_collection * per_row) / (amplification - 1.0);
            self.dies[die as usize].collect_superblock = open(Stream::Collected, by_collection, x);
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
            self.go_on_with_victim(store, die, aged[first].superblock, collected, (all * scale) as u32);
        }
    }

    /// Superblocks that were not full go on where they were, behind the torn row: if each power loss closed one for the
    /// host and one for collection, losses in quick succession would leave no superblock to collect with.
    pub fn reopen<M: Medium>(&mut self, store: &mut Store<M>, partial: &mut [(u32, u32)]) {
        partial.sort_unstable();
        for &mut (rows, superblock) in partial {
            if let Some(slc) = self.slc.as_mut().filter(|_| store.space.is_slc(superblock)) {
                slc.reopen(&mut store.space, superblock, rows);
                continue;
            }
            let d = &mut self.dies[store.layout.die_of(superblock) as usize];
            let (open, stream) = if store.profile.gc_stream && d.collect_superblock == NONE {
                (&mut d.collect_superblock, Stream::Collected)
            } else if d.host_superblock == NONE || self.log_reserve == 0 {
                (&mut d.host_superblock, Stream::Host)
            } else {
                (&mut d.log_superblock, Stream::Log)
            };
            if *open == NONE {
                *open = superblock;
                store.space.reopen(superblock, stream, rows);
            } else {
                store.space.may_collect(superblock);
            }
        }
    }
}
