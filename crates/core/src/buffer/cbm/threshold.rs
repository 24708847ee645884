//! How many dirty pages make a block one for the block region.

use super::{Access, Regions};
use crate::buffer::policy::Setting;

/// The threshold of migration: fixed, or the best of all that are tried on shadows.
#[derive(Clone, Debug)]
pub(super) enum Threshold {
    /// As many pages as the profile says.
    Fixed(u32),
    /// Adapts to the workload.
    Dynamic(Box<Shadows>),
}

impl Threshold {
    /// As the profile says; for 0 pages, a dynamic one.
    pub fn new(setting: &Setting) -> Threshold {
        match setting.profile.cbm_threshold {
            0 => Threshold::Dynamic(Box::new(Shadows::new(setting))),
            pages => Threshold::Fixed(pages.min(setting.block)),
        }
    }

    /// The threshold, in pages.
    #[inline]
    pub fn now(&self) -> u32 {
        match self {
            Threshold::Fixed(pages) => *pages,
            Threshold::Dynamic(shadows) => shadows.all[shadows.best].threshold,
        }
    }

    /// A page is written.
    #[inline]
    pub fn count_write(&mut self, lpn: u32, access: Access) {
        if let Threshold::Dynamic(shadows) = self {
            shadows.count_write(lpn, access);
        }
    }

    /// A page is dropped.
    pub fn forget(&mut self, lpn: u32) {
        if let Threshold::Dynamic(shadows) = self {
            for shadow in &mut shadows.all {
                shadow.regions.remove(lpn);
            }
        }
    }

    /// The popularity of every block is halved.
    pub fn halve(&mut self) {
        if let Threshold::Dynamic(shadows) = self {
            shadows.all.iter_mut().for_each(|shadow| shadow.regions.halve());
        }
    }
}

/// Another threshold is taken when it costs less than this many percent of the one in force.
const BETTER_PERCENT: u64 = 98;
/// Blocks that a shadow has room for at least, if the buffer has.
const BLOCKS_MIN: usize = 32;

/// The buffer as it would be with another threshold: for a sample of the blocks, and the order alone.
#[derive(Clone, Debug)]
struct Shadow {
    threshold: u32,
    regions: Regions,
    /// What its victims cost.
    cost: u64,
}

impl Shadow {
    fn write(&mut self, lpn: u32, access: Access, capacity: usize) {
        let place = loop {
            match self.regions.hold(lpn, self.regions.blocks.len() < capacity) {
                Some(place) => break place,
                None => self.evict(),
            }
        };
        self.regions.write(place, access, self.threshold);
    }

    fn evict(&mut self) {
        let number = self.regions.choose().expect("a buffer that is full has a block");
        let blocks = &mut self.regions.blocks;
        self.cost += u64::from(blocks.size() + blocks.count(number));
        blocks.drop_block(number);
    }
}

/// Shadows of the buffer, whose thresholds are all powers of two and a whole block. A victim costs its own pages, and
/// as many as a block has, for the merge that it causes sooner or later. All shadows get the same writes, so the one
/// whose victims cost least has the best threshold.
#[derive(Clone, Debug)]
pub(super) struct Shadows {
    all: Vec<Shadow>,
    /// The one whose threshold is in force.
    best: usize,
    /// Pages that a shadow has room for.
    capacity: usize,
    /// One block of so many is in the sample; a power of two.
    every: u32,
    /// Pages written between two comparisons, and those since the last.
    period: u64,
    written: u64,
}

impl Shadows {
    fn new(setting: &Setting) -> Shadows {
        let block = setting.block;
        // As full as the buffer gets.
        let full = (setting.capacity as f64 * setting.profile.write_watermark) as usize;
        let every = (full / (BLOCKS_MIN * block as usize)).max(1);
        let every = 1 << every.ilog2();
        let capacity = (full / every).max(1);
        let thresholds = (0..u32::BITS).map(|power| 1 << power).take_while(|&pages| pages < block).chain([block]);
        let shadow = |threshold| Shadow { threshold, regions: Regions::new(capacity, 0, block), cost: 0 };
        let all: Vec<Shadow> = thresholds.map(shadow).collect();
        // A quarter of a block, until something is known.
        let best = all.iter().position(|shadow| shadow.threshold >= block / 4).unwrap_or(0);
        Shadows { all, best, capacity, every: every as u32, period: setting.capacity.max(1) as u64, written: 0 }
    }

    fn count_write(&mut self, lpn: u32, access: Access) {
        self.written += 1;
        if self.written >= self.period {
            self.written = 0;
            self.compare();
        }
        let block = lpn / self.all[0].regions.blocks.size();
        // Fibonacci hashing: the high bits of the product are well mixed.
        if (block.wrapping_mul(0x9e37_79b9) >> 16) & (self.every - 1) == 0 {
            self.all.iter_mut().for_each(|shadow| shadow.write(lpn, access, self.capacity));
        }
    }

    /// Takes the threshold that costs least, if that is worth a change. What is past counts half as much from now on.
    fn compare(&mut self) {
        let least = (0..self.all.len()).min_by_key(|&i| self.all[i].cost).unwrap_or(self.best);
        if self.all[least].cost * 100 < self.all[self.best].cost * BETTER_PERCENT {
            self.best = least;
        }
        self.all.iter_mut().for_each(|shadow| shadow.cost /= 2);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cbm;
    use super::*;
    use crate::buffer::policy::{Policy, Run, Victim};
    use crate::buffer::tests::setting;
    use tidewater_base::Rng;

    const BLOCK: u32 = 16;
    const CAPACITY: usize = 512;

    fn cbm(threshold: u32) -> Cbm {
        let mut setting = setting(CAPACITY, BLOCK);
        (setting.profile.cbm_threshold, setting.profile.write_watermark) = (threshold, 1.0);
        Cbm::new(&Setting { sequential: BLOCK, ..setting })
    }

    /// What the victims of a policy cost over so many writes.
    fn cost(cbm: &mut Cbm, writes: u32, mut next: impl FnMut() -> u32) -> u64 {
        let (mut cost, mut victim) = (0, Victim::default());
        for _ in 0..writes {
            let lpn = next();
            while !cbm.contains(lpn) && cbm.len() >= CAPACITY {
                victim.clear();
                cbm.evict(1, &mut victim);
                cost += u64::from(BLOCK) + victim.rest().len() as u64;
            }
            cbm.write(lpn, Run::of_one(lpn), true);
        }
        cost
    }

    /// Loads whose best thresholds differ: pages all over, of which some come again; and blocks that fill bit by bit
    /// among pages that come again and again.
    fn load(kind: u32, seed: u64) -> impl FnMut() -> u32 {
        let mut rng = Rng::new(seed, b"load");
        let mut filling = 0;
        move || match (kind, rng.below(8)) {
            (0, _) => rng.below(20_000) as u32,
            (1, _) => (rng.below(6_000) * rng.below(6_000) / 6_000) as u32,
            (2, 0..3) => {
                filling += 1;
                30_000 + (filling / 64 * 64 + filling * 17 % 64) % 20_000
            }
            (2, _) => rng.below(600) as u32 * BLOCK,
            _ => rng.below(40) as u32 * BLOCK * 3 + rng.below(4) as u32,
        }
    }

    #[test]
    fn a_fixed_threshold_is_no_more_than_a_block() {
        let now = |fixed| {
            let mut setting = setting(600, 64);
            setting.profile.cbm_threshold = fixed;
            Threshold::new(&setting).now()
        };
        assert_eq!([3, 64, 100].map(now), [3, 64, 64]);
    }

    #[test]
    fn it_costs_hardly_more_than_the_best_fixed_one_and_follows_the_load() {
        let mut dynamic = cbm(0);
        let mut chosen = Vec::new();
        for kind in [0, 1, 2, 3, 0] {
            // Some buffers full of writes in which it may find out.
            cost(&mut dynamic, 20_000, load(kind, 1));
            let mine = cost(&mut dynamic, 60_000, load(kind, 2));
            let fixed = [1, 2, 4, 8, 16].map(|threshold| {
                let mut fixed = cbm(threshold);
                cost(&mut fixed, 20_000, load(kind, 1));
                cost(&mut fixed, 60_000, load(kind, 2))
            });
            let best = *fixed.iter().min().unwrap();
            assert!(mine * 100 <= best * 103, "load {kind}: {mine}, of fixed ones {fixed:?}");
            chosen.push(dynamic.threshold.now());
        }
        assert!(chosen.iter().any(|one| *one != chosen[0]), "{chosen:?}");
    }

    #[test]
    fn every_size_of_a_block_and_of_a_buffer_has_its_thresholds() {
        for block in [1, 2, 3, 6, 100, 65_535] {
            for capacity in [1, 7, 500, 100_000] {
                let mut setting = setting(capacity, block);
                setting.profile.cbm_threshold = 0;
                let shadows = Shadows::new(&setting);
                let thresholds: Vec<u32> = shadows.all.iter().map(|shadow| shadow.threshold).collect();
                assert!(thresholds.is_sorted_by(|a, b| a < b), "{thresholds:?}");
                assert_eq!((thresholds[0], thresholds.last()), (1, Some(&block)));
                assert!(shadows.capacity >= 1 && shadows.every.is_power_of_two());
                assert!(shadows.capacity * shadows.every as usize <= capacity.max(1));
            }
        }
    }
}
