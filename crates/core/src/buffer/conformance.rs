//! What every policy must keep to, whatever its order: no dirty page is lost, capacity is kept, a flush empties, and a
//! read finds the newest write. And a frame in which a policy's order is held against a naive model of it.

use super::{Buffer, CbmMerge, CbmRuns, POLICIES, Part, Policy, Run, Setting, Victim};
use crate::profile::Profile;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tidewater_base::Rng;

/// A buffer of `capacity` pages over blocks of `block`.
pub(super) fn setting(capacity: usize, block: u32) -> Setting {
    let profile = Profile::generic();
    let sequential = (profile.buffer.cbm_sequential / u64::from(profile.ftl.unit_size)) as u32;
    Setting { capacity, block, units: 1 << 20, cached: 8, sequential, profile: profile.buffer }
}

/// The dirty pages that leave next.
pub(super) fn victims(policy: &mut dyn Policy, most: usize) -> Vec<u32> {
    let mut victim = Victim::default();
    policy.evict(most, &mut victim);
    victim.rest().iter().filter(|page| page.part == Part::Dirty).map(|page| page.lpn).collect()
}

/// A policy as its rules tell it, in the simplest way.
pub(super) trait Model {
    /// A page is written.
    fn write(&mut self, lpn: u32, run: Run);
    /// A page is taken away.
    fn remove(&mut self, lpn: u32);
    /// What leaves next.
    fn evict(&mut self) -> Vec<u32>;
}

/// Lets a policy and its model do the same at random: what leaves must be the same, in the same order.
pub(super) fn same_order(mut policy: impl Policy, mut model: impl Model, capacity: usize, pages: u64) {
    let mut rng = Rng::new(17, b"order");
    for step in 0..30_000 {
        if rng.below(40) == 0 {
            let lpn = rng.below(pages) as u32;
            if policy.remove(lpn) {
                model.remove(lpn);
            }
            continue;
        }
        // Skewed, so that blocks differ; a few long runs among many short ones.
        let first = (rng.below(pages) * rng.below(pages) / pages) as u32;
        let len = if rng.below(8) == 0 { 1 + rng.below(12) } else { 1 };
        let run = Run { first, end: (first + len as u32).min(pages as u32) };
        for lpn in run.first..run.end {
            while !policy.contains(lpn) && policy.len() >= capacity {
                assert_eq!(victims(&mut policy, 1), model.evict(), "in step {step}");
            }
            let held = policy.contains(lpn);
            assert_eq!(policy.write(lpn, run, true), held, "in step {step}");
            model.write(lpn, run);
        }
    }
    while !policy.is_empty() {
        assert_eq!(victims(&mut policy, 1), model.evict(), "at the end");
    }
}

/// What is done to a buffer.
#[derive(Clone, Debug)]
enum Operation {
    Write {
        first: u32,
        len: u32,
    },
    Read {
        lpn: u32,
    },
    Remove {
        lpn: u32,
    },
    /// So many pages go to flash, if any leave; else some are chosen.
    Destage {
        pages: usize,
    },
    Flush,
}

const PAGES: u32 = 100;

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..PAGES, 1..12u32).prop_map(|(first, len)| Operation::Write { first, len }),
        4 => (0..PAGES).prop_map(|lpn| Operation::Read { lpn }),
        1 => (0..PAGES).prop_map(|lpn| Operation::Remove { lpn }),
        3 => (1..12usize).prop_map(|pages| Operation::Destage { pages }),
        1 => Just(Operation::Flush),
    ]
}

/// A write buffer, a read cache and flash, as a drive has them.
struct Rig {
    name: &'static str,
    buffer: Buffer,
    cache: Buffer,
    in_cache: BTreeSet<u32>,
    /// What the host wrote last, and what flash has.
    newest: BTreeMap<u32, u64>,
    flash: BTreeMap<u32, u64>,
    version: u64,
}

impl Rig {
    fn new(name: &'static str, capacity: usize, block: u32) -> Rig {
        Rig::of(name, Setting { units: PAGES, ..setting(capacity, block) })
    }

    fn of(name: &'static str, setting: Setting) -> Rig {
        Rig {
            name,
            buffer: Buffer::new(name, &setting, true),
            cache: Buffer::new("lru", &Setting { capacity: 8, ..setting }, false),
            in_cache: BTreeSet::new(),
            newest: BTreeMap::new(),
            flash: BTreeMap::new(),
            version: 0,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Write { first, len } => {
                let run = Run { first, end: (first + len).min(PAGES) };
                (run.first..run.end).for_each(|lpn| self.write(lpn, run));
            }
            Operation::Read { lpn } => self.read(lpn),
            Operation::Remove { lpn } => {
                self.uncache(lpn);
                let held = self.buffer.contains(lpn);
                assert_eq!(self.buffer.remove(lpn), held, "{}", self.name);
                self.newest.remove(&lpn);
                self.flash.remove(&lpn);
            }
            Operation::Destage { pages } => self.destage(pages),
            Operation::Flush => {
                while self.buffer.dirty() > 0 {
                    self.destage(usize::MAX);
                }
                assert_eq!(self.buffer.contents(), [], "{}: a flush leaves dirty pages", self.name);
                assert_eq!(self.newest, self.flash, "{}: a flush is not all on flash", self.name);
            }
        }
    }

    fn uncache(&mut self, lpn: u32) {
        if self.cache.remove(lpn) {
            self.in_cache.remove(&lpn);
            self.buffer.uncached(lpn);
        }
    }

    fn write(&mut self, lpn: u32, run: Run) {
        self.uncache(lpn);
        self.version += 1;
        let (version, hits) = (self.version, self.buffer.statistics.hits);
        let (held, dirty) = (self.buffer.contains(lpn), self.buffer.is_dirty(lpn));
        let mut rounds = 0;
        while !self.buffer.write(lpn, version, run) {
            assert!(!held, "{}: a page that is held needs room", self.name);
            if !self.buffer.drop_clean() {
                self.destage(1);
            }
            rounds += 1;
            assert!(rounds < 1_000, "{}: there is never room", self.name);
        }
        assert_eq!(self.buffer.statistics.hits > hits, dirty, "{}", self.name);
        self.newest.insert(lpn, version);
        assert!(self.buffer.is_dirty(lpn) && self.buffer.version(lpn) == Some(version), "{}", self.name);
    }

    fn read(&mut self, lpn: u32) {
        let held = self.buffer.contains(lpn);
        assert_eq!(self.buffer.read(lpn), held, "{}", self.name);
        let found = self.buffer.version(lpn).or(self.flash.get(&lpn).copied());
        assert_eq!(found, self.newest.get(&lpn).copied(), "{}: page {lpn}", self.name);
        if held || self.cache.look_up(lpn) || !self.flash.contains_key(&lpn) {
            return;
        }
        if self.buffer.keeps_clean() {
            while !self.buffer.keep(lpn) {
                self.destage(1);
            }
            assert!(self.buffer.contains(lpn) && !self.buffer.is_dirty(lpn), "{}", self.name);
        }
        self.cache(lpn);
    }

    fn cache(&mut self, lpn: u32) {
        let (buffer, in_cache) = (&mut self.buffer, &mut self.in_cache);
        assert!(self.cache.fill(lpn, |gone| {
            buffer.uncached(gone);
            in_cache.remove(&gone);
        }));
        self.in_cache.insert(lpn);
        self.buffer.cached(lpn);
    }

    fn destage(&mut self, pages: usize) {
        if !self.buffer.is_leaving() {
            if self.buffer.dirty() == 0 {
                return;
            }
            self.buffer.choose(3);
            let flash = &self.flash;
            self.buffer.trim_leaving(|page| page.part == Part::Dirty || flash.contains_key(&page.lpn));
            self.buffer.count_leaving();
            assert!(self.buffer.leaving().iter().any(|page| page.part == Part::Dirty), "{}: none leave", self.name);
            for page in self.buffer.leaving().iter().filter(|page| page.part == Part::Cached) {
                assert!(self.in_cache.contains(&page.lpn), "{}: {page:?} is not in the read cache", self.name);
            }
        }
        for _ in 0..pages {
            let Some(&page) = self.buffer.leaving().first() else { return };
            let version = self.buffer.take_leaving(true);
            if page.part == Part::Dirty {
                self.flash.insert(page.lpn, version);
                if self.buffer.keeps_destaged() {
                    self.cache(page.lpn);
                }
            } else {
                assert_eq!(self.flash.get(&page.lpn), self.newest.get(&page.lpn), "{}: {page:?} is stale", self.name);
            }
        }
    }

    fn check(&self) {
        let dirty: BTreeMap<u32, u64> =
            self.newest.iter().filter(|&(l, v)| self.flash.get(l) != Some(v)).map(|(&l, &v)| (l, v)).collect();
        assert_eq!(self.buffer.contents().into_iter().collect::<BTreeMap<_, _>>(), dirty, "{}", self.name);
        assert_eq!(self.buffer.dirty(), dirty.len(), "{}", self.name);
        assert!(self.buffer.len() <= self.buffer.capacity(), "{}: more than fits", self.name);
        let leaving = self.buffer.leaving().iter().filter(|page| page.part == Part::Dirty).count();
        assert_eq!(self.buffer.policy.len() + leaving, self.buffer.len(), "{}", self.name);
        assert_eq!(self.cache.len(), self.in_cache.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn policies_conform(
        operations in prop::collection::vec(operation(), 1..300),
        capacity in 1..40usize,
        block in 1..20u32,
    ) {
        for &name in POLICIES.iter().filter(|&&name| name != "none") {
            let mut rig = Rig::new(name, capacity, block);
            for operation in &operations {
                rig.apply(operation);
                rig.check();
            }
            rig.apply(&Operation::Flush);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_reading_of_cbm_conforms(
        operations in prop::collection::vec(operation(), 1..300),
        capacity in 1..40usize,
        block in 1..20u32,
        threshold in 0..4u32,
        merge in prop::sample::select(&[CbmMerge::Always, CbmMerge::Run, CbmMerge::Whole, CbmMerge::Off][..]),
        runs in prop::sample::select(&[CbmRuns::All, CbmRuns::Block][..]),
        (keep, padding) in any::<(bool, bool)>(),
        age in prop::sample::select(&[0.0, 0.1, 0.25, 4.0][..]),
    ) {
        let mut setting = Setting { units: PAGES, ..setting(capacity, block) };
        let of = &mut setting.profile;
        (of.cbm_merge, of.cbm_runs, of.cbm_keep, of.cbm_padding, of.cbm_age) = (merge, runs, keep, padding, age);
        of.cbm_threshold = threshold;
        let mut rig = Rig::of("cbm", setting);
        for operation in &operations {
            rig.apply(operation);
            rig.check();
        }
        rig.apply(&Operation::Flush);
    }
}

/// Restored pages were held before, whatever the capacity is now.
#[test]
fn what_survived_a_power_loss_goes_back_even_into_a_smaller_buffer() {
    for &name in POLICIES.iter().filter(|&&name| name != "none") {
        let mut rig = Rig::new(name, 4, 8);
        for lpn in 0..20 {
            rig.buffer.restore(lpn * 3, u64::from(lpn));
            rig.newest.insert(lpn * 3, u64::from(lpn));
        }
        rig.buffer.restore(0, 99);
        rig.newest.insert(0, 99);
        assert_eq!(rig.buffer.len(), 20, "{name}");
        rig.write(7, Run::of_one(7));
        assert!(rig.buffer.len() <= 4, "{name}");
        rig.apply(&Operation::Flush);
    }
}

/// The same operations leave the same pages, and so does a copy of the buffer; also when it is read from in between,
/// unless it holds what was read.
#[test]
fn a_copy_goes_on_as_the_original() {
    for &name in POLICIES.iter().filter(|&&name| name != "none") {
        let mut rng = Rng::new(3, name.as_bytes());
        let mut rig = Rig::new(name, 24, 8);
        for _ in 0..2_000 {
            let first = rng.below(u64::from(PAGES)) as u32;
            rig.apply(&Operation::Write { first, len: 1 + rng.below(3) as u32 });
        }
        let mut copy = rig.buffer.clone();
        if !copy.keeps_clean() {
            (0..PAGES).rev().for_each(|lpn| assert_eq!(copy.read(lpn), rig.buffer.contains(lpn)));
        }
        while rig.buffer.dirty() > 0 {
            if !rig.buffer.is_leaving() {
                rig.buffer.choose(2);
                copy.choose(2);
            }
            assert_eq!(rig.buffer.leaving(), copy.leaving(), "{name}");
            rig.buffer.take_leaving(true);
            copy.take_leaving(true);
        }
    }
}

#[test]
fn no_buffer_holds_nothing() {
    let mut buffer = Buffer::new("none", &setting(32, 8), true);
    assert!(!buffer.is_enabled() && !buffer.write(1, 1, Run::of_one(1)));
    assert!(!buffer.read(1) && !buffer.look_up(1) && buffer.contents().is_empty());
}
