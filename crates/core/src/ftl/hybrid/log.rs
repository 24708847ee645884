//! Where units go: the SW log block, and the RW log blocks that are filled in turn.

use super::state::{Hybrid, LOG_BLOCKS_MIN, RESERVE, Role, RowRole, Sequential, superblocks_beside};
use crate::flash::NONE;
use crate::ftl::placement::Placement;
use crate::ftl::store::{Clock, NOT_A_CANDIDATE, State, Store, Stream};
use tidewater_nand::Medium;

impl Hybrid {
    /// RW log blocks that the log may have now besides the isolation area.
    pub fn log_limit<M: Medium>(&self, store: &Store<M>) -> u32 {
        self.whole_log_limit(store) - self.isolation_limit(store)
    }

    /// RW log blocks that there may be now: blocks that turned bad make the log smaller.
    pub fn whole_log_limit<M: Medium>(&self, store: &Store<M>) -> u32 {
        let others = self.data.len() as u32 + superblocks_beside(&store.profile) + store.map_superblocks();
        self.log_blocks.min(store.space.good_superblocks.saturating_sub(others)).max(LOG_BLOCKS_MIN)
    }

    /// Whether any logical page can be written now, wherever it has to go.
    #[cold]
    pub fn takes_any<M: Medium>(&self, store: &Store<M>) -> bool {
        let is_sequential_ready = match &self.sequential {
            Some(s) => {
                s.row != NONE || store.flash.programs(store.layout.die_of(s.superblock)) < store.programs_per_die
            }
            None => true,
        };
        is_sequential_ready
            && self.retired.len() < self.merges.len()
            && store.space.free_superblocks > RESERVE
            && (self.random_row != NONE || self.ready_point(store).is_some())
    }

    /// The next of the log's write points that can take a row.
    #[inline]
    pub fn ready_point<M: Medium>(&self, store: &Store<M>) -> Option<usize> {
        let points = self.points.len();
        let may_open = store.space.free_superblocks > RESERVE && (self.log.len() as u32) < self.log_limit(store);
        if self.open_points == 0 && !may_open {
            return None; // As long as merges don't keep up.
        }
        (self.next_point..points).chain(0..self.next_point).find(|&point| match self.points[point] {
            NONE => may_open,
            superblock => store.flash.programs(store.layout.die_of(superblock)) < store.programs_per_die,
        })
    }

    /// The SW log block takes no more: it waits for its merge.
    pub fn retire_sequential<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        let Some(s) = self.sequential.take() else { return };
        if s.row != NONE {
            self.submit(store, clock, s.row);
        }
        self.retired.push_back((s.block, s.superblock));
    }

    /// The row of the SW log block that takes the next page of `block`: of a new one, if there is none.
    pub fn sequential_row<M: Medium>(&mut self, store: &mut Store<M>, block: u32) -> u32 {
        let s = match self.sequential {
            Some(s) => s,
            None => {
                let die = self.roomiest_die(store).expect("the reserve is left");
                let superblock = store.space.open(die, Stream::Host).expect("it has room");
                self.roles[superblock as usize] = Role::InPlace(block);
                Sequential { superblock, block, next: 0, row: NONE }
            }
        };
        let row = match s.row {
            NONE => self.open_log_row(store, s.superblock, RowRole::Sequential(block)),
            row => row,
        };
        self.sequential = Some(Sequential { next: s.next + 1, row, ..s });
        row
    }

    /// The row that takes random writes.
    pub fn random_row<M: Medium>(&mut self, store: &mut Store<M>) -> u32 {
        if self.random_row != NONE {
            return self.random_row;
        }
        match self.ready_point(store) {
            Some(point) => self.open_random_row(store, point),
            // The rest of an SW log block, or a piece of the map, has just taken the last place.
            None => self.any_random_row(store).expect("the reserve is left"),
        }
    }

    /// Opens a row at a write point of the log, and a superblock for it if need be.
    pub fn open_random_row<M: Medium>(&mut self, store: &mut Store<M>, point: usize) -> u32 {
        let mut superblock = self.points[point];
        if superblock == NONE {
            let die = self.roomiest_die(store).expect("a superblock is free");
            superblock = store.space.open(die, Stream::Host).expect("it has room");
            self.roles[superblock as usize] = Role::Log;
            self.log.push_back(superblock);
            self.reclaim.forget_chances(&store.layout, superblock);
        }
        let row = self.open_log_row(store, superblock, RowRole::Log);
        let full = store.space.is_full(superblock);
        self.set_point(point, if full { NONE } else { superblock });
        self.next_point = if point + 1 == self.points.len() { 0 } else { point + 1 };
        self.random_row = row;
        // What moves within the log may have opened it where the host could not: now there is room for the host too.
        self.is_stuck = false;
        row
    }

    pub(super) fn open_log_row<M: Medium>(&mut self, store: &mut Store<M>, superblock: u32, role: RowRole) -> u32 {
        let number = store.rows.host.open();
        let (row, _) = store.open_row(superblock, Stream::Host, number);
        store.rows.staged[row as usize].index = role.index();
        row
    }

    /// The row of random writes, or one opened wherever there is a superblock, the reserve included.
    #[cold]
    pub fn any_random_row<M: Medium>(&mut self, store: &mut Store<M>) -> Option<u32> {
        let free = store.space.free_superblocks > 0;
        if self.random_row != NONE {
            return Some(self.random_row);
        }
        let (next, points) = (self.next_point, &self.points);
        let all = (next..points.len()).chain(0..next);
        let point = all.clone().find(|&p| points[p] != NONE).or_else(|| all.clone().find(|_| free))?;
        Some(self.open_random_row(store, point))
    }

    /// The die with the most free superblocks, of those that have the least to program; they take turns.
    pub fn roomiest_die<M: Medium>(&mut self, store: &mut Store<M>) -> Option<u32> {
        let dies = store.layout.dies;
        let from = self.next_die;
        let mut best: Option<(u32, (bool, usize))> = None;
        for die in (from..dies).chain(0..from) {
            let free = store.space.dies[die as usize].free.len();
            let key = (store.flash.programs(die) < store.programs_per_die, free);
            if free > 0 && best.is_none_or(|(_, b)| key > b) {
                best = Some((die, key));
            }
        }
        let (die, _) = best?;
        self.next_die = if die + 1 == dies { 0 } else { die + 1 };
        Some(die)
    }

    /// Programs a row as it is; an SW log block with a hole takes no more.
    pub fn pad_log_row_of<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32) {
        let units = store.layout.units_per_row;
        let hole = units - store.rows.staged[row as usize].count;
        if let Some(s) = self.sequential.as_mut().filter(|s| s.row == row) {
            // Never the page that the host writes next: it starts a merge.
            s.next += hole;
        }
        self.submit(store, clock, row);
    }

    /// A superblock holds nothing that counts any more: it is erased once what replaced its data is programmed.
    pub fn drain<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, superblock: u32) {
        assert_eq!(store.space.valid_units(superblock), 0, "superblock {superblock} still holds data");
        store.space.valid[superblock as usize] = NOT_A_CANDIDATE;
        store.space.superblocks[superblock as usize].state = State::Draining;
        let layout = &store.layout;
        self.roles[superblock as usize] = Role::None;
        // It may be written anew before a merge ends that has read from it: then the same place holds something else.
        for merge in self.merges.iter_mut().filter(|m| m.block != NONE) {
            merge.forget_sources(|ppn| layout.superblock_of(ppn) == superblock);
        }
        store.space.draining.push(superblock);
        if !store.checkpoint.is_logged(store.space.superblocks[superblock as usize].log_hazard) {
            store.log_deallocations(self, clock);
        }
    }
}
