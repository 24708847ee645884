//! Superblocks: the use of each, which are free, which wait for their erase, and how many are left.

mod dies;

pub(in crate::ftl) use dies::DieSet;

use crate::layout::Layout;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The use of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Erased.
    Free,
    /// Rows are added to it.
    Open,
    /// Full; a candidate for collection.
    Closed,
    /// Being collected.
    Victim,
    /// Collected: erased as soon as what replaced its data is programmed.
    Draining,
    /// An erase is queued or under way.
    Erasing,
    /// A plane has no block left, or never had one.
    #[default]
    Bad,
}

/// Which data goes to a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Written by the host.
    #[default]
    Host,
    /// Written by the host too, in single-level mode. Of superblocks: their rows are the host's.
    Slc,
    /// Moved by collection.
    Collected,
    /// Destaged from the fast side.
    Log,
    /// Copied by a merge, where the mapping is hybrid.
    Merge,
    /// The map's checkpoints.
    Map,
    /// Pages of the map, where only some of them are at hand.
    Mapping,
}

/// One superblock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Superblock {
    pub(in crate::ftl) state: State,
    pub(in crate::ftl) stream: Stream,
    /// A program failed in it: no more rows, and it is collected first.
    pub(in crate::ftl) failed: bool,
    pub(in crate::ftl) die: u16,
    /// Rows given out.
    pub(in crate::ftl) rows: u16,
    /// Erases that the map needs to be even about: the highest of its planes.
    pub(in crate::ftl) erases: u32,
    /// The latest host row that took over a unit of this superblock.
    pub(in crate::ftl) host_hazard: u64,
    /// The latest row of destaged log that did.
    pub(in crate::ftl) log_row_hazard: u64,
    /// The latest collected row of this die that did.
    pub(in crate::ftl) collect_hazard: u64,
    /// The write sequence of the latest deallocation that did: it must be logged before, or an older copy elsewhere
    /// would come back.
    pub(in crate::ftl) log_hazard: u64,
    /// Host units written before it closed, as a clock for cost-benefit.
    pub(in crate::ftl) closed_at: u64,
}

/// Free superblocks of a die, and its wear.
#[derive(Clone, Debug, Default)]
pub(in crate::ftl) struct DieSpace {
    /// Free ones, by their wear and by how long they have been free.
    pub(in crate::ftl) free: BinaryHeap<Reverse<(u32, u64, u32)>>,
    /// Of these, how many only the SLC cache may open.
    pub(in crate::ftl) kept: u32,
    pub(in crate::ftl) erases_max: u32,
    /// When collection looked last, no superblock had anything to give back, or there was no place for it.
    pub(in crate::ftl) starved: bool,
}

impl DieSpace {
    /// Free superblocks, without those that the SLC cache keeps.
    #[inline]
    pub fn free_beyond(&self) -> usize {
        self.free.len().saturating_sub(self.kept as usize)
    }
}

/// All superblocks of the drive.
#[derive(Clone, Debug, Default)]
pub(in crate::ftl) struct Space {
    pub(in crate::ftl) superblocks: Vec<Superblock>,
    /// Rows of each superblock whose program is done; later ones are read from the controller's memory.
    pub(in crate::ftl) programmed: Vec<u16>,
    /// Valid units by superblock; [`NOT_A_CANDIDATE`] is set unless it may be collected.
    pub(in crate::ftl) valid: Vec<u32>,
    pub(in crate::ftl) dies: Vec<DieSpace>,
    /// Free superblocks of all dies.
    pub(in crate::ftl) free_superblocks: u32,
    pub(in crate::ftl) good_superblocks: u32,
    /// Collected superblocks that wait for what replaced their data.
    pub(in crate::ftl) draining: Vec<u32>,
    /// Dies that are starved.
    pub(in crate::ftl) starved: u32,
    /// Dies on which collection has more to do, or more reason to, than when it looked last.
    pub(in crate::ftl) wake: Vec<u32>,
    /// Host units ever written, as a clock for cost-benefit; unlike the counters it is never reset.
    pub(in crate::ftl) host_clock: u64,
    pub(in crate::ftl) read_only: bool,
    free_order: u64,
    /// Rows of a superblock, and of one in single-level mode.
    rows: u32,
    slc_rows: u32,
    /// The least worn of the free superblocks is opened first.
    by_wear: bool,
}

/// Set in [`Space::valid`] while a superblock is not a candidate for collection.
pub(in crate::ftl) const NOT_A_CANDIDATE: u32 = 1 << 31;

impl Space {
    /// Superblocks of which none is usable yet.
    pub fn new(layout: &Layout, slc_rows: u32, by_wear: bool) -> Space {
        let superblock = |i: u32| Superblock { die: layout.die_of(i) as u16, ..Superblock::default() };
        let count = layout.superblocks();
        Space {
            superblocks: (0..count).map(superblock).collect(),
            programmed: vec![0; count as usize],
            valid: vec![NOT_A_CANDIDATE; count as usize],
            dies: vec![DieSpace::default(); layout.dies as usize],
            rows: layout.rows,
            slc_rows,
            by_wear,
            ..Space::default()
        }
    }

    /// Forgets what is free: recovery finds it anew.
    pub fn forget_free(&mut self) {
        for die in &mut self.dies {
            die.free.clear();
            die.erases_max = 0;
        }
        (self.good_superblocks, self.free_superblocks) = (0, 0);
    }

    /// An erased superblock of so many erases is free.
    pub fn put_free(&mut self, superblock: u32) {
        self.free_order += 1;
        let s = &mut self.superblocks[superblock as usize];
        let &mut Superblock { stream, die, erases, closed_at, .. } = s;
        *s = Superblock { state: State::Free, stream, die, erases, closed_at, ..Superblock::default() };
        self.programmed[superblock as usize] = 0;
        let wear = if self.by_wear { s.erases } else { 0 };
        self.free_superblocks += 1;
        let die = &mut self.dies[s.die as usize];
        die.erases_max = die.erases_max.max(s.erases);
        die.free.push(Reverse((wear, self.free_order, superblock)));
        self.valid[superblock as usize] = NOT_A_CANDIDATE;
    }

    /// Takes a free superblock of a die; the caller has checked what it must leave.
    pub fn open(&mut self, die: u32, stream: Stream) -> Option<u32> {
        let Reverse((_, _, superblock)) = self.dies[die as usize].free.pop()?;
        self.free_superblocks -= 1;
        let s = &mut self.superblocks[superblock as usize];
        debug_assert_eq!(s.state, State::Free);
        s.state = State::Open;
        s.stream = stream;
        Some(superblock)
    }

    /// Rows that a superblock has in the mode it is used in.
    #[inline]
    pub fn rows_of(&self, superblock: u32) -> u32 {
        if self.is_slc(superblock) { self.slc_rows } else { self.rows }
    }

    /// Whether all rows of a superblock are given out.
    pub fn is_full(&self, superblock: u32) -> bool {
        u32::from(self.superblocks[superblock as usize].rows) == self.rows_of(superblock)
    }

    /// Gives out the next row of a superblock. Returns whether it was the last of them, too.
    #[inline(always)]
    pub fn next_row(&mut self, superblock: u32) -> (u32, bool) {
        let s = &mut self.superblocks[superblock as usize];
        let row = u32::from(s.rows);
        s.rows += 1;
        (row, row + 1 == self.rows_of(superblock))
    }

    /// A superblock takes no more rows.
    #[inline]
    pub fn close(&mut self, superblock: u32) -> &Superblock {
        let s = &mut self.superblocks[superblock as usize];
        s.state = State::Closed;
        s.closed_at = self.host_clock;
        s
    }

    /// A superblock goes on behind so many rows, which a power loss has left of it.
    pub fn reopen(&mut self, superblock: u32, stream: Stream, rows: u32) {
        let s = &mut self.superblocks[superblock as usize];
        (s.state, s.stream, s.rows) = (State::Open, stream, rows as u16);
        self.programmed[superblock as usize] = rows as u16;
    }

    /// What is valid in a superblock may be collected.
    pub fn may_collect(&mut self, superblock: u32) {
        self.valid[superblock as usize] &= !NOT_A_CANDIDATE;
    }

    /// All rows of a superblock that has a past are programmed: it may be collected.
    pub fn settle(&mut self, superblock: u32) {
        self.close(superblock);
        self.may_collect(superblock);
    }

    /// Units of a superblock that are valid.
    #[inline(always)]
    pub fn valid_units(&self, superblock: u32) -> u32 {
        self.valid[superblock as usize] & !NOT_A_CANDIDATE
    }

    /// Whether a superblock is of the SLC cache.
    #[inline(always)]
    pub fn is_slc(&self, superblock: u32) -> bool {
        self.superblocks[superblock as usize].stream == Stream::Slc
    }

    /// Collection on a die can do nothing.
    pub fn starve(&mut self, die: u32) {
        self.starved += u32::from(!std::mem::replace(&mut self.dies[die as usize].starved, true));
    }

    /// A unit of a die has become invalid: if it was starved, it is no more. Nothing else may ever happen on it, so
    /// what is collected there must be looked at before long.
    #[cold]
    pub fn wake_if_starved(&mut self, die: u32) {
        if std::mem::replace(&mut self.dies[die as usize].starved, false) {
            self.starved -= 1;
            self.wake.push(die);
        }
    }

    /// Whether an erase will give a die a superblock.
    pub fn gives_back(&self, die: u32) -> bool {
        let is_coming = |s: &Superblock| matches!(s.state, State::Draining | State::Erasing);
        self.on_die(die).iter().any(is_coming)
    }

    /// The superblocks of a die.
    pub fn on_die(&self, die: u32) -> &[Superblock] {
        let per_die = self.superblocks.len() / self.dies.len();
        &self.superblocks[die as usize * per_die..][..per_die]
    }
}
