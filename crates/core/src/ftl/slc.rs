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

use super::{DieSpace, Ftl, NOT_A_CANDIDATE, State, Stream};
use crate::events::{Event, EventQueue, lane};
use crate::flash::NONE;
use crate::profile::{Profile, SlcProfile, WhenFull};
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_nand::{Config, Medium};

/// The `index` in the page headers of a row in single-level mode; other data has 0 where every page is mapped by
/// itself.
pub(super) const SLC_INDEX: u32 = 1;

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
pub(super) struct Slc {
    dies: Vec<SlcDie>,
    rows: u32,
    dynamic: f64,
    when_full: WhenFull,
    fold_after: tidewater_base::Duration,
    fixed: u32,
    /// The host has been quiet for long enough.
    folding: bool,
    timed: bool,
    last_host: Instant,
}

impl Slc {
    pub(super) fn new(profile: &Profile) -> Option<Box<Slc>> {
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
                folding: false,
                timed: false,
                last_host: Instant::ZERO,
            })
        })
    }

    /// Whether the cache is folded in the background, because the host is quiet.
    #[inline]
    pub(super) fn is_folding(&self) -> bool {
        self.folding
    }
}

impl<M: Medium> Ftl<M> {
    /// Whether the drive has an SLC cache.
    pub fn has_slc(&self) -> bool {
        self.slc.is_some()
    }

    /// How full the SLC cache is; nothing where there is none.
    pub fn slc_fill(&self) -> SlcFill {
        let Some(slc) = &self.slc else { return SlcFill::default() };
        let max = |(die, s): (usize, &SlcDie)| (s.fixed + self.dynamic_max(slc, die as u32)).max(s.count);
        let superblocks = self.superblocks.iter().zip(&self.valid).filter(|(s, _)| s.stream == Stream::Slc);
        let in_use = superblocks.filter(|(s, _)| !matches!(s.state, State::Free | State::Bad));
        SlcFill {
            superblocks: slc.dies.iter().map(|d| d.count).sum(),
            superblocks_max: slc.dies.iter().enumerate().map(max).sum(),
            units: in_use.map(|(_, valid)| u64::from(valid & !NOT_A_CANDIDATE)).sum(),
            units_per_superblock: slc.rows * self.layout.units_per_row,
        }
    }

    /// Rows that a superblock has in the mode it is used in.
    #[inline]
    pub(super) fn rows_of(&self, superblock: u32) -> u32 {
        match &self.slc {
            Some(slc) if self.is_slc(superblock) => slc.rows,
            _ => self.layout.rows,
        }
    }

    pub(super) fn is_slc(&self, superblock: u32) -> bool {
        self.superblocks[superblock as usize].stream == Stream::Slc
    }

    /// Superblocks that a die's dynamic part may have: of those that are erased and not needed, and those it has.
    fn dynamic_max(&self, slc: &Slc, die: u32) -> u32 {
        let spare = self.dies[die as usize].free_beyond().saturating_sub(self.profile.gc_start as usize + 1) as u32;
        let s = &slc.dies[die as usize];
        (slc.dynamic * f64::from(s.count.saturating_sub(s.fixed) + spare)) as u32
    }

    /// Whether a die may open another superblock in single-level mode.
    fn may_open_slc(&self, slc: &Slc, die: u32) -> bool {
        let (s, space) = (&slc.dies[die as usize], &self.dies[die as usize]);
        if s.count < s.fixed {
            return space.free.len() > self.profile.gc_reserve as usize;
        }
        slc.dynamic > 0.0
            && space.free_beyond() > self.profile.gc_start as usize + 1
            && s.count - s.fixed < self.dynamic_max(slc, die)
    }

    /// Whether the next host row of a die goes to the SLC cache. `None`: there is no cache.
    fn has_slc_room(&self, die: u32) -> Option<bool> {
        let slc = self.slc.as_ref()?;
        Some(slc.dies[die as usize].open != NONE || self.may_open_slc(slc, die))
    }

    /// Whether a host row of this die must wait until something of the cache has been folded.
    fn waits_for_folding(&self, die: u32) -> bool {
        let Some(slc) = &self.slc else { return false };
        slc.when_full == WhenFull::Fold && slc.dies[die as usize].count > 0 && self.has_slc_room(die) == Some(false)
    }

    /// Whether a die has a place for a host row.
    #[inline]
    pub(super) fn has_host_room(&self, die: u32, space: &DieSpace) -> bool {
        if self.slc.is_some() { self.has_host_or_slc_room(die) } else { self.has_own_room(space) }
    }

    #[inline(never)]
    fn has_host_or_slc_room(&self, die: u32) -> bool {
        self.has_slc_room(die) == Some(true)
            || !self.waits_for_folding(die) && self.has_own_room(&self.dies[die as usize])
    }

    /// As [`Ftl::has_host_room`], in blocks in their own mode.
    #[inline]
    fn has_own_room(&self, space: &DieSpace) -> bool {
        space.host_superblock != NONE || space.free_beyond() > self.profile.gc_reserve as usize
    }

    /// The superblock of the SLC cache that takes the next host row of a die, if one does.
    pub(super) fn slc_superblock(&mut self, die: u32) -> Option<u32> {
        if !self.has_slc_room(die)? {
            return None;
        }
        let open = self.slc.as_ref()?.dies[die as usize].open;
        if open != NONE {
            return Some(open);
        }
        let superblock = self.open_superblock(die, Stream::Slc)?;
        self.flash.set_slc(superblock, true);
        let s = &mut self.slc.as_mut()?.dies[die as usize];
        (s.open, s.count) = (superblock, s.count + 1);
        self.keep_for_slc(die);
        Some(superblock)
    }

    /// The open superblock of a die takes no more rows.
    pub(super) fn forget_open_slc(&mut self, superblock: u32) {
        let die = self.layout.die_of(superblock) as usize;
        if let Some(s) = self.slc.as_mut().map(|slc| &mut slc.dies[die])
            && s.open == superblock
        {
            s.open = NONE;
        }
    }

    /// Counts anew how many free superblocks of a die belong to the fixed part.
    fn keep_for_slc(&mut self, die: u32) {
        if let Some(slc) = &self.slc {
            let s = &slc.dies[die as usize];
            self.dies[die as usize].kept = s.fixed.saturating_sub(s.count);
        }
    }

    /// A superblock is full: if it is one of the cache that has not failed, it waits for folding. False: for
    /// collection.
    pub(super) fn close_slc(&mut self, superblock: u32) -> bool {
        let s = &self.superblocks[superblock as usize];
        match &mut self.slc {
            Some(slc) if s.stream == Stream::Slc && !s.failed => {
                slc.dies[usize::from(s.die)].closed.push_back(superblock);
                true
            }
            _ => false,
        }
    }

    /// A superblock has been erased, or is out of use: it is none of the cache any more.
    pub(super) fn leave_slc(&mut self, superblock: u32) {
        if self.is_slc(superblock) {
            let die = self.layout.die_of(superblock);
            self.superblocks[superblock as usize].stream = Stream::Host;
            self.flash.set_slc(superblock, false);
            if let Some(slc) = &mut self.slc {
                slc.dies[die as usize].count -= 1;
            }
            self.keep_for_slc(die);
        }
    }

    /// The fixed part of a die is what the superblocks that went bad leave of it: the cache gives up before the
    /// capacity does.
    pub(super) fn size_slc(&mut self, die: u32) {
        if let Some(slc) = &mut self.slc {
            let first = (die * self.layout.superblocks_per_die) as usize;
            let on_die = &self.superblocks[first..first + self.layout.superblocks_per_die as usize];
            let bad = on_die.iter().filter(|s| s.state == State::Bad).count() as u32;
            slc.dies[die as usize].fixed = slc.fixed.saturating_sub(bad);
            self.keep_for_slc(die);
        }
    }

    /// A superblock in single-level mode that collection may take in its need, because it belongs to the dynamic part.
    pub(super) fn slc_in_the_way(&self, die: u32) -> Option<u32> {
        let s = &self.slc.as_ref()?.dies[die as usize];
        if s.count > s.fixed { s.closed.front().copied() } else { None }
    }

    /// A superblock of the cache has become collection's victim.
    pub(super) fn take_from_slc(&mut self, superblock: u32) {
        let die = self.layout.die_of(superblock) as usize;
        if let Some(slc) = &mut self.slc {
            slc.dies[die].closed.retain(|&s| s != superblock);
        }
    }

    /// The superblock to fold next on a die, if one is to be folded now: the oldest; without a place for host rows, one
    /// that has nothing valid may go at any time.
    pub(super) fn choose_fold(&self, die: u32) -> Option<u32> {
        let slc = self.slc.as_ref()?;
        let closed = &slc.dies[die as usize].closed;
        let oldest = *closed.front()?;
        if self.must_fold(die) {
            return Some(oldest);
        }
        let is_empty = |s: &&u32| self.valid[**s as usize] & !NOT_A_CANDIDATE == 0;
        if self.has_slc_room(die) == Some(false) { closed.iter().find(is_empty).copied() } else { None }
    }

    /// Whether a die is to fold now: the host is quiet, or waits for it.
    pub(super) fn must_fold(&self, die: u32) -> bool {
        self.is_folding() || self.waits_for_folding(die)
    }

    /// Whether the cache is folded in the background, because the host is quiet.
    #[inline]
    pub(super) fn is_folding(&self) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.folding)
    }

    /// The host reads or writes flash: folding in the background stops, and starts again some time after the last of
    /// these.
    #[inline]
    pub(super) fn touch_slc(&mut self, now: Instant, events: &mut EventQueue) {
        if let Some(slc) = &mut self.slc {
            slc.folding = false;
            slc.last_host = now;
            if !slc.timed && slc.dies.iter().any(|d| d.count > 0) {
                slc.timed = true;
                events.push(now + slc.fold_after, lane::OTHER, Event::Fold);
            }
        }
    }

    /// The host may have been quiet for long enough.
    pub fn on_fold_timer(&mut self, now: Instant, events: &mut EventQueue) {
        let Some(slc) = &mut self.slc else { return };
        let due = slc.last_host + slc.fold_after;
        if due > now {
            return events.push(due, lane::OTHER, Event::Fold);
        }
        (slc.timed, slc.folding) = (false, true);
        for die in 0..self.layout.dies {
            self.collect(now, events, die);
        }
    }

    /// Whether a superblock that recovery looks at is in single-level mode, from its first readable row.
    pub(super) fn was_slc(&self, superblock: u32) -> bool {
        let mut rows = 0..self.rows_programmed(superblock);
        self.slc.is_some()
            && rows.find_map(|row| self.row_header(superblock, row)).is_some_and(|header| header.index == SLC_INDEX)
    }

    /// Recovery has read a row of each superblock, and knows in which mode to read the others.
    pub(super) fn learn_modes(&mut self) {
        if self.slc.is_some() {
            for superblock in (0..self.layout.superblocks()).filter(|&s| self.layout.is_whole(s)).collect::<Vec<_>>() {
                self.flash.set_slc(superblock, self.was_slc(superblock));
            }
        }
    }

    /// Recovery has found a superblock of the cache.
    pub(super) fn adopt_slc(&mut self, superblock: u32) {
        let die = self.layout.die_of(superblock);
        self.superblocks[superblock as usize].stream = Stream::Slc;
        if let Some(slc) = &mut self.slc {
            slc.dies[die as usize].count += 1;
        }
    }

    /// A superblock of the cache that was not full goes on, if none of its die does already. False: it does not.
    pub(super) fn reopen_slc(&mut self, superblock: u32) -> bool {
        let die = self.layout.die_of(superblock) as usize;
        match self.slc.as_mut().map(|slc| &mut slc.dies[die].open) {
            Some(open) if *open == NONE => {
                *open = superblock;
                true
            }
            _ => false,
        }
    }

    /// Recovery has found all superblocks of the cache: those that are full wait for folding, the oldest first.
    pub(super) fn settle_slc(&mut self, now: Instant, events: &mut EventQueue) {
        if self.slc.is_none() {
            return;
        }
        let newest = |s: u32| (0..self.rows_programmed(s)).rev().find_map(|row| self.row_header(s, row));
        let closed = |s: &u32| {
            let found = &self.superblocks[*s as usize];
            found.stream == Stream::Slc && found.state == State::Closed && !found.failed
        };
        let closed = (0..self.layout.superblocks()).filter(closed);
        let mut by_age: Vec<_> = closed.map(|s| (newest(s).map_or(0, |h| h.program_sequence), s)).collect();
        by_age.sort_unstable();
        for (_, superblock) in by_age {
            self.close_slc(superblock);
        }
        (0..self.layout.dies).for_each(|die| self.size_slc(die));
        self.touch_slc(now, events);
    }
}
