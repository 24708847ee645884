//! Which superblock is collected next: the policies of garbage collection, and static wear levelling.

use crate::ftl::space::{NOT_A_CANDIDATE, Space};
use crate::profile::GcVictim;
use std::cmp::Reverse;
use std::ops::Range;

/// Superblocks among which the one with the least to move is looked for at a time.
const CHUNK: usize = 64;

/// The superblock of a range that a policy takes. `None`: none of them would give space back, of `all` units each.
pub fn choose_by_policy(space: &Space, policy: GcVictim, range: Range<usize>, all: u32) -> Option<u32> {
    let victim = match policy {
        GcVictim::Greedy => {
            let first = range.start;
            // The least is looked for many at a time, its place is not: first which of the chunks it is in.
            let chunks = space.valid[range].chunks(CHUNK).map(|valid| valid.iter().copied().min());
            let (i, least) = chunks.enumerate().min_by_key(|&(_, least)| least)?;
            let chunk = first + i * CHUNK;
            (chunk + space.valid[chunk..].iter().position(|&valid| Some(valid) == least)?) as u32
        }
        GcVictim::CostBenefit => {
            let (now, all) = (space.host_clock, f64::from(all));
            range
                .filter(|&i| space.valid[i] & NOT_A_CANDIDATE == 0)
                .map(|i| {
                    let used = f64::from(space.valid[i]) / all;
                    let age = (now - space.superblocks[i].closed_at) as f64 + 1.0;
                    ((1.0 - used) * age / (2.0 * used).max(1.0 / all), Reverse(i))
                })
                .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
                .map(|(_, Reverse(i))| i as u32)?
        }
    };
    (space.valid[victim as usize] < all).then_some(victim)
}

/// The least worn full superblock of a die, if it is left behind by more than this gap.
pub fn coldest(space: &Space, die: u32, range: Range<usize>, gap_max: u32) -> Option<u32> {
    let on_die = &space.dies[die as usize];
    if on_die.free.len() < 2 {
        return None;
    }
    let candidates = range.filter(|&i| space.valid[i] & NOT_A_CANDIDATE == 0);
    let cold = candidates.min_by_key(|&i| space.superblocks[i].erases)?;
    let gap = on_die.erases_max.saturating_sub(space.superblocks[cold].erases);
    (gap > gap_max).then_some(cold as u32)
}
