//! The SLC cache: superblocks in single-level mode take what the host writes first, and are *folded* later: their valid
//! units move to blocks in their own mode.
//!
//! A superblock in single-level mode has as many rows as its blocks have word lines; the other pages stay erased. Its
//! rows say so in their headers ([`SLC_INDEX`]), so that recovery knows the mode of every block. Folding is collection
//! of such a superblock: the same steps, the same hazards, the same two rules that keep data safe.
//!
//! The cache has a *fixed* part on each die, for which the plan has superblocks beside those of the capacity, and a
//! *dynamic* part, which may use what is erased and not needed. Superblocks of the fixed part that hold nothing are
//! free like any other, so that wear is shared by all; `DieSpace::kept` says how many of the free ones they are, and
//! other uses that open a superblock leave them.
//!
//! It folds when the host has been quiet for a while (at the lowest priority, [`Source::FoldRead`]), when the dynamic
//! part is in the way of collection, and, where the profile says so, when a host write waits for it.
//!
//! [`Source::FoldRead`]: crate::flash::Source::FoldRead

use crate::events::{Event, lane};
use crate::flash::{Flash, NONE};
use crate::ftl::space::Space;
use crate::ftl::store::{Clock, NOT_A_CANDIDATE, State, Store, Stream};
use crate::profile::{Profile, SlcProfile, WhenFull};
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_nand::{Config, Medium};

/// The `index` in the page headers of a row in single-level mode; other data has 0 where every page is mapped by
/// itself.
pub(in crate::ftl) const SLC_INDEX: u32 = 1;

/// Rows of a superblock in single-level mode: one for each word line.
pub fn slc_rows(nand: &Config) -> u32 {
    nand.pages_per_block / nand.cell.page_kinds() as u32
}

/// Superblocks of each die that the fixed part of the SLC cache has.
pub fn slc_reserve(profile: &Profile) -> u32 {
    let nand = &profile.nand;
    let bytes = u64::from(slc_rows(nand)) * u64::from(nand.planes) * u64::from(nand.page_size);
    profile.slc.size.div_ceil(bytes.max(1) * u64::from(nand.dies())).min(u32::MAX.into()) as u32
}

/// How full the SLC cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlcFill {
    /// Superblocks in single-level mode.
    pub superblocks: u32,
    /// Superblocks that it could have now, those included.
    pub superblocks_max: u32,
    /// Units in them that are valid.
    pub units: u64,
    /// Units of a superblock in single-level mode.
    pub units_per_superblock: u32,
}

#[derive(Clone, Debug)]
struct SlcDie {
    /// Superblocks of the fixed part.
    fixed: u32,
    /// Superblocks in single-level mode, from being opened to being erased.
    count: u32,
    /// The one that host rows are added to.
    open: u32,
    /// Full ones, the oldest first.
    closed: VecDeque<u32>,
}

/// The state of the SLC cache.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct Slc {
    dies: Vec<SlcDie>,
    rows: u32,
    dynamic: f64,
    when_full: WhenFull,
    fold_after: tidewater_base::Duration,
    fixed: u32,
    gc_start: usize,
    gc_reserve: usize,
    /// The host has been quiet for long enough.
    folding: bool,
    timed: bool,
    last_host: Instant,
}

impl Slc {
    /// The cache of a drive; `None`: it has none. `gc_start` and `gc_reserve`: what collection keeps free on a die.
    pub fn new(profile: &Profile, gc_start: u32, gc_reserve: u32) -> Option<Box<Slc>> {
        let SlcProfile { dynamic, when_full, fold_after, .. } = profile.slc;
        let die = SlcDie { fixed: 0, count: 0, open: NONE, closed: VecDeque::new() };
        profile.slc.is_enabled().then(|| {
            Box::new(Slc {
                dies: vec![die; profile.nand.dies() as usize],
                rows: slc_rows(&profile.nand),
                dynamic,
                when_full,
                fold_after,
                fixed: slc_reserve(profile),
                gc_start: gc_start as usize,
                gc_reserve: gc_reserve as usize,
                folding: false,
                timed: false,
                last_host: Instant::ZERO,
            })
        })
    }

    /// How full it is.
    pub fn fill(&self, space: &Space, units_per_row: u32) -> SlcFill {
        let max = |(die, s): (usize, &SlcDie)| (s.fixed + self.dynamic_max(space, die as u32)).max(s.count);
        let superblocks = space.superblocks.iter().zip(&space.valid).filter(|(s, _)| s.stream == Stream::Slc);
        let in_use = superblocks.filter(|(s, _)| !matches!(s.state, State::Free | State::Bad));
        SlcFill {
            superblocks: self.dies.iter().map(|d| d.count).sum(),
            superblocks_max: self.dies.iter().enumerate().map(max).sum(),
            units: in_use.map(|(_, valid)| u64::from(valid & !NOT_A_CANDIDATE)).sum(),
            units_per_superblock: self.rows * units_per_row,
        }
    }

    /// Superblocks that a die's dynamic part may have: of those that are erased and not needed, and those it has.
    fn dynamic_max(&self, space: &Space, die: u32) -> u32 {
        let spare = space.dies[die as usize].free_beyond().saturating_sub(self.gc_start + 1) as u32;
        let s = &self.dies[die as usize];
        (self.dynamic * f64::from(s.count.saturating_sub(s.fixed) + spare)) as u32
    }

    /// Whether a die may open another superblock in single-level mode.
    fn may_open(&self, space: &Space, die: u32) -> bool {
        let (s, on_die) = (&self.dies[die as usize], &space.dies[die as usize]);
        if s.count < s.fixed {
            return on_die.free.len() > self.gc_reserve;
        }
        self.dynamic > 0.0
            && on_die.free_beyond() > self.gc_start + 1
            && s.count - s.fixed < self.dynamic_max(space, die)
    }

    /// Whether the next host row of a die goes to the cache.
    pub fn has_room(&self, space: &Space, die: u32) -> bool {
        self.dies[die as usize].open != NONE || self.may_open(space, die)
    }

    /// Whether a host row of this die must wait until something has been folded.
    pub fn waits_for_folding(&self, space: &Space, die: u32) -> bool {
        self.when_full == WhenFull::Fold && self.dies[die as usize].count > 0 && !self.has_room(space, die)
    }

    /// The superblock that takes the next host row of a die, if one does.
    pub fn superblock(&mut self, space: &mut Space, flash: &mut Flash, die: u32) -> Option<u32> {
        if !self.has_room(space, die) {
            return None;
        }
        let s = &mut self.dies[die as usize];
        if s.open == NONE {
            s.open = space.open(die, Stream::Slc)?;
            s.count += 1;
            flash.set_slc(s.open, true);
            self.keep(space, die);
        }
        Some(self.dies[die as usize].open)
    }

    /// A superblock of a die takes no more rows.
    pub fn forget_open(&mut self, die: u32, superblock: u32) {
        let open = &mut self.dies[die as usize].open;
        if *open == superblock {
            *open = NONE;
        }
    }

    /// Counts anew how many free superblocks of a die belong to the fixed part.
    fn keep(&self, space: &mut Space, die: u32) {
        let s = &self.dies[die as usize];
        space.dies[die as usize].kept = s.fixed.saturating_sub(s.count);
    }

    /// A superblock is full: if it is one of the cache that has not failed, it waits for folding. False: for
    /// collection.
    pub fn close(&mut self, space: &Space, superblock: u32) -> bool {
        let s = &space.superblocks[superblock as usize];
        let waits = s.stream == Stream::Slc && !s.failed;
        if waits {
            self.dies[usize::from(s.die)].closed.push_back(superblock);
        }
        waits
    }

    /// A superblock has been erased, or is out of use: it is none of the cache any more.
    pub fn leave(&mut self, space: &mut Space, flash: &mut Flash, superblock: u32) {
        if space.is_slc(superblock) {
            let s = &mut space.superblocks[superblock as usize];
            s.stream = Stream::Host;
            let die = s.die.into();
            flash.set_slc(superblock, false);
            self.dies[die as usize].count -= 1;
            self.keep(space, die);
        }
    }

    /// The fixed part of a die is what the superblocks that went bad leave of it: the cache gives up before the
    /// capacity does.
    pub fn size(&mut self, space: &mut Space, die: u32) {
        let bad = space.on_die(die).iter().filter(|s| s.state == State::Bad).count() as u32;
        self.dies[die as usize].fixed = self.fixed.saturating_sub(bad);
        self.keep(space, die);
    }

    /// A superblock in single-level mode that collection may take in its need, because it belongs to the dynamic part.
    pub fn in_the_way(&self, die: u32) -> Option<u32> {
        let s = &self.dies[die as usize];
        if s.count > s.fixed { s.closed.front().copied() } else { None }
    }

    /// A superblock of a die has become collection's victim.
    pub fn take(&mut self, die: u32, superblock: u32) {
        self.dies[die as usize].closed.retain(|&s| s != superblock);
    }

    /// The superblock to fold next on a die, if one is to be folded now: the oldest; without a place for host rows, one
    /// that has nothing valid may go at any time.
    pub fn choose_fold(&self, space: &Space, die: u32) -> Option<u32> {
        let closed = &self.dies[die as usize].closed;
        let oldest = *closed.front()?;
        if self.must_fold(space, die) {
            return Some(oldest);
        }
        let is_empty = |s: &&u32| space.valid_units(**s) == 0;
        if self.has_room(space, die) { None } else { closed.iter().find(is_empty).copied() }
    }

    /// Whether a die is to fold now: the host is quiet, or waits for it.
    pub fn must_fold(&self, space: &Space, die: u32) -> bool {
        self.folding || self.waits_for_folding(space, die)
    }

    /// Whether the cache is folded in the background, because the host is quiet.
    #[inline]
    pub fn is_folding(&self) -> bool {
        self.folding
    }

    /// The host reads or writes flash: folding in the background stops, and starts again some time after the last of
    /// these.
    #[inline]
    pub fn touch(&mut self, clock: &mut Clock) {
        self.folding = false;
        self.last_host = clock.now;
        if !self.timed && self.dies.iter().any(|d| d.count > 0) {
            self.timed = true;
            clock.events.push(clock.now + self.fold_after, lane::OTHER, Event::Fold);
        }
    }

    /// Whether the host has been quiet for long enough.
    pub fn on_timer(&mut self, clock: &mut Clock) -> bool {
        let due = self.last_host + self.fold_after;
        if due > clock.now {
            clock.events.push(due, lane::OTHER, Event::Fold);
            return false;
        }
        (self.timed, self.folding) = (false, true);
        true
    }

    /// Recovery has read a row of each superblock, and knows in which mode to read the others.
    pub fn learn_modes<M: Medium>(store: &mut Store<M>) {
        for superblock in 0..store.layout.superblocks() {
            if store.layout.is_whole(superblock) {
                store.flash.set_slc(superblock, was_slc(store, superblock));
            }
        }
    }

    /// Recovery has found a superblock: is it one of the cache?
    pub fn adopt<M: Medium>(&mut self, store: &mut Store<M>, superblock: u32) {
        if was_slc(store, superblock) {
            let s = &mut store.space.superblocks[superblock as usize];
            s.stream = Stream::Slc;
            self.dies[usize::from(s.die)].count += 1;
        }
    }

    /// A superblock of the cache that was not full goes on behind so many rows, if none of its die does already.
    pub fn reopen(&mut self, space: &mut Space, superblock: u32, rows: u32) {
        let open = &mut self.dies[usize::from(space.superblocks[superblock as usize].die)].open;
        if *open == NONE {
            *open = superblock;
            space.reopen(superblock, Stream::Slc, rows);
        }
    }

    /// Recovery has found all superblocks of the cache: those that are full wait for folding, the oldest first.
    pub fn settle<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        let newest = |s: u32| (0..store.rows_programmed(s)).rev().find_map(|row| store.row_header(s, row));
        let closed = |s: &u32| {
            let found = &store.space.superblocks[*s as usize];
            found.stream == Stream::Slc && found.state == State::Closed && !found.failed
        };
        let closed = (0..store.layout.superblocks()).filter(closed);
        let mut by_age: Vec<_> = closed.map(|s| (newest(s).map_or(0, |h| h.program_sequence), s)).collect();
        by_age.sort_unstable();
        for (_, superblock) in by_age {
            self.close(&store.space, superblock);
        }
        (0..store.layout.dies).for_each(|die| self.size(&mut store.space, die));
        self.touch(clock);
    }
}

/// Whether a superblock that recovery looks at is in single-level mode, from its first readable row.
fn was_slc<M: Medium>(store: &Store<M>, superblock: u32) -> bool {
    let mut rows = 0..store.rows_programmed(superblock);
    rows.find_map(|row| store.row_header(superblock, row)).is_some_and(|header| header.index == SLC_INDEX)
}
