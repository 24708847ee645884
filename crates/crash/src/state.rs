//! States that a power cut can leave: which cuts are tried, and which operations each of them loses.

use crate::operation::Operation;
use crate::tree::{Fate, Tree};
use crate::volume::{STEP, Volume};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use tidewater_base::Rng;

/// Where cuts are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum At {
    /// Before and after each sync and each acknowledged id
    Sync,
    /// After each change
    Write,
    /// After each operation
    Every,
}

/// Which of the changes that are not durable a cut loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Lose {
    /// All
    Unsynced,
    /// None, as a crash of the program alone
    Nothing,
    /// All but one, drawn by the seed
    AllBut,
    /// One, drawn by the seed
    One,
    /// Each, or pieces of it, by the seed
    Random,
}

/// Where a write that was under way is torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Tear {
    /// Nowhere
    None,
    /// At sectors of 512 bytes, the most that NVMe and SCSI drives promise to write as one
    Sector,
    /// At pages of 4 KiB, as the page cache writes back
    Page,
}

impl Tear {
    /// Bytes between two places where a write can be torn; `None`: none.
    pub fn grain(self) -> Option<u64> {
        match self {
            Tear::None => None,
            Tear::Sector => Some(512),
            Tear::Page => Some(4096),
        }
    }
}

/// State after a power cut: the operations before it, without those that are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Operations before the cut: those with a lower number.
    pub cut: u64,
    /// The lost ones by their numbers; of a torn write its lost pieces, of others nothing: they are lost as a whole.
    pub lost: BTreeMap<u64, Vec<u32>>,
}

/// The cuts to try, each with what it loses: all that there are of `kinds` at `at`, or `count` of them by `seed`. Where
/// there are fewer, those that draw are drawn again.
pub fn plan(volume: &Volume, at: At, kinds: &[Lose], count: usize, seed: u64) -> Vec<(u64, Lose)> {
    let is_boundary = |operation: &Operation| !operation.is_change();
    let mut cuts: Vec<u64> = Vec::new();
    for (number, operation) in volume.operations() {
        match at {
            At::Sync if is_boundary(operation) => cuts.extend([number, number + 1]),
            At::Write if operation.is_change() => cuts.push(number + 1),
            At::Every => cuts.push(number + 1),
            At::Sync | At::Write => {}
        }
    }
    cuts.push(volume.end());
    cuts.sort_unstable();
    cuts.dedup();
    let mut all: Vec<(u64, Lose)> = cuts.iter().flat_map(|cut| kinds.iter().map(|kind| (*cut, *kind))).collect();
    let draws: Vec<(u64, Lose)> =
        all.iter().copied().filter(|(_, kind)| !matches!(kind, Lose::Unsynced | Lose::Nothing)).collect();
    let mut rng = Rng::new(seed, b"cuts");
    while all.len() < count && !draws.is_empty() {
        all.push(draws[rng.below(draws.len() as u64) as usize]);
    }
    // The first `count` of a shuffled list.
    for index in 0..count.min(all.len()) {
        let other = index + rng.below((all.len() - index) as u64) as usize;
        all.swap(index, other);
    }
    all.truncate(count);
    all
}

impl Volume {
    /// Numbers of the changes before a cut that are not durable then.
    pub fn pending(&self, cut: u64) -> Vec<u64> {
        let log = (self.first..cut).zip(&self.log);
        let is_lost = |durable: Option<u64>| durable.is_none_or(|by| by >= cut);
        let pending = log.filter(|(_, logged)| logged.operation.is_change() && is_lost(logged.durable));
        pending.map(|(number, _)| number).collect()
    }

    /// A state after a cut: `cut` is at least the number of the first operation in the log, and at most
    /// [`Volume::end`].
    pub fn state(&self, cut: u64, lose: Lose, tear: Tear, rng: &mut Rng) -> State {
        let pending = self.pending(cut);
        let mut state = State { cut, lost: BTreeMap::new() };
        if pending.is_empty() {
            return state;
        }
        let one = pending[rng.below(pending.len() as u64) as usize];
        let kept = if lose == Lose::AllBut { self.with_needs(one, &pending) } else { HashSet::new() };
        for number in &pending {
            let is_torn = self.pieces(*number, tear) > 1 && rng.below(2) == 0;
            let pieces = match lose {
                Lose::Nothing => continue,
                Lose::Unsynced => Vec::new(),
                Lose::AllBut if *number == one && is_torn => self.torn(*number, tear, rng),
                Lose::AllBut if kept.contains(number) => continue,
                Lose::One if *number == one && is_torn => self.torn(*number, tear, rng),
                Lose::One if *number != one => continue,
                Lose::AllBut | Lose::One => Vec::new(),
                Lose::Random if rng.below(2) == 0 => continue,
                Lose::Random if is_torn => self.torn(*number, tear, rng),
                Lose::Random => Vec::new(),
            };
            state.lost.insert(*number, pieces);
        }
        self.close(&mut state);
        state
    }

    fn pieces(&self, number: u64, tear: Tear) -> u32 {
        self.operation(number).map_or(1, |operation| operation.pieces(tear.grain()))
    }

    /// Some pieces of a write, and not all of them.
    fn torn(&self, number: u64, tear: Tear, rng: &mut Rng) -> Vec<u32> {
        let count = self.pieces(number, tear);
        let first = rng.below(u64::from(count)) as u32;
        let kept = (first + 1 + rng.below(u64::from(count) - 1) as u32) % count;
        (0..count).filter(|piece| *piece == first || *piece != kept && rng.below(2) == 0).collect()
    }

    /// An operation and all that has to survive with it.
    fn with_needs(&self, number: u64, pending: &[u64]) -> HashSet<u64> {
        let mut kept = HashSet::new();
        let mut next = vec![number];
        while let Some(number) = next.pop() {
            let Some(logged) = self.logged_at(number).filter(|_| kept.insert(number)) else { continue };
            next.extend(&logged.needs);
            if logged.is_journaled {
                let is_before =
                    |other: &&u64| **other < number && self.operation(**other).is_some_and(Operation::is_metadata);
                next.extend(pending.iter().filter(is_before));
            }
        }
        kept
    }

    /// Loses also what can't survive without what is lost.
    pub(crate) fn close(&self, state: &mut State) {
        let mut is_journal_over = false;
        for number in self.pending(state.cut) {
            let Some(logged) = self.logged_at(number) else { continue };
            let has_lost = logged.needs.iter().any(|need| state.lost.contains_key(need));
            if has_lost || logged.is_journaled && is_journal_over {
                state.lost.insert(number, Vec::new());
            }
            // What a write adds to a file may come later than metadata behind it: its blocks are allocated late.
            is_journal_over |=
                logged.is_journaled && logged.operation.is_metadata() && state.lost.contains_key(&number);
        }
    }

    /// The tree that a state leaves.
    pub fn build(&self, state: &State, tear: Tear) -> Tree {
        // Up to the first lost operation all of them are kept.
        let kept = state.lost.keys().next().map_or(state.cut, |first| state.cut.min(*first)).saturating_sub(self.first);
        let step = (kept as usize / STEP).min(self.steps.len().saturating_sub(1));
        let mut tree = self.steps.get(step).unwrap_or(&self.base).clone();
        let done = step * STEP;
        for (number, logged) in (self.first..state.cut).zip(&self.log).skip(done) {
            let fate = match (state.lost.get(&number), tear.grain()) {
                (None, _) => Fate::Kept,
                (Some(pieces), Some(grain)) if !pieces.is_empty() => Fate::Torn(grain, pieces),
                (Some(_), _) => Fate::Lost,
            };
            tree.apply(&logged.operation, fate);
        }
        tree.prune();
        tree
    }
}

#[cfg(test)]
mod tests;
