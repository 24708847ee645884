//! Hybrid mapping: data blocks mapped as wholes, log blocks mapped by page (FAST, and FASTer on top of it).
//!
//! FAST: Lee, Park, Chung, Lee, Park and Song, "A log buffer-based flash translation layer using fully-associative
//! sector translation", ACM TECS 6(3), 2007. FASTer: Lim, Lee and Moon, "FASTer FTL for enterprise-class flash memory
//! SSDs", SNAPI 2010.
//!
//! A *logical block* is as many logical pages as a superblock has units, and lies in one superblock, its data block,
//! each unit at its place. What the host writes goes to log blocks: a run that starts at a logical block's first page
//! to the one sequential (SW) log block, everything else to the random (RW) log blocks. Merges make data blocks of log
//! blocks:
//! - *switch*: a full SW log block becomes the data block as it is;
//! - *partial*: the rest of the logical block is copied behind what the SW log block has;
//! - *full*: all units of a logical block are gathered into a free superblock. RW log blocks are reclaimed in the order
//!   in which they were opened, by a full merge of every logical block that has a unit in them. FASTer first moves what
//!   is still valid to the log's end, and what has been there before to its isolation area.
//!
//! What is below is that of the page-mapped layer: rows, stamps, hazards, bad blocks, the log of deallocations,
//! recovery, and an index from logical pages to units. What differs is where a unit goes, and how space comes back. ADR
//! 9 says why.
//!
//! What the shared layer calls is marked cold, which keeps the page-mapped path as short as it was.
//!
//! A merge moves no map entry before all its rows are programmed: until then all that it copies from is in place, so an
//! interrupted or failed merge leaves nothing behind but a superblock to erase.

mod adopt;
mod isolation;
mod merge;
mod past;
mod reclaim;
#[cfg(test)]
mod tests;

use super::{Entry, Ftl, NOT_A_CANDIDATE, State, Stream, ValidBits};
use crate::events::{Event, EventQueue, lane};
use crate::flash::NONE;
use crate::layout::Layout;
use crate::owner::Owner;
use crate::profile::{FtlProfile, Mapping, Profile};
use isolation::Isolation;
use merge::Merge;
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_nand::{Medium, PageHeader};

/// RW log blocks, at least: one is reclaimed while the other takes what the host writes.
pub const LOG_BLOCKS_MIN: u32 = 2;

/// Free superblocks that only merges, failures and the firmware's own rows may open.
const RESERVE: u32 = 2;

/// What a superblock is to the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing: free, or on its way there, or the map's.
    None,
    /// An RW log block.
    Log,
    /// Units of this logical block, each in its place: a data block, an SW log block, or what a merge makes.
    InPlace(u32),
}

/// What a row is to recovery: the `index` of its [`PageHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowRole {
    /// In an RW log block.
    Log,
    /// In an RW log block of the isolation area.
    Isolated,
    /// Written in sequence by the host.
    Sequential(u32),
    /// Copied by a merge that goes on.
    Copy(u32),
    /// The last that a merge copied: it was committed if this can be read.
    LastCopy(u32),
}

impl RowRole {
    fn index(self) -> u32 {
        match self {
            RowRole::Log => 0,
            RowRole::Isolated => 4,
            RowRole::Sequential(block) => block * 4 + 1,
            RowRole::Copy(block) => block * 4 + 2,
            RowRole::LastCopy(block) => block * 4 + 3,
        }
    }

    fn of(header: PageHeader) -> RowRole {
        let block = header.index / 4;
        match header.index % 4 {
            0 if block == 0 => RowRole::Log,
            0 => RowRole::Isolated,
            1 => RowRole::Sequential(block),
            2 => RowRole::Copy(block),
            _ => RowRole::LastCopy(block),
        }
    }
}

/// The SW log block.
#[derive(Clone, Copy, Debug)]
struct Sequential {
    superblock: u32,
    block: u32,
    /// The page of the logical block that continues it.
    next: u32,
    /// The row that is being filled, or [`NONE`].
    row: u32,
}

/// The state of a hybrid mapping.
#[derive(Clone, Debug)]
pub(super) struct Hybrid {
    /// By superblock.
    roles: Vec<Role>,
    /// Data block by logical block, or [`NONE`].
    data: Vec<u32>,
    sequential: Option<Sequential>,
    /// SW log blocks that wait for their merge, with their logical blocks.
    retired: VecDeque<(u32, u32)>,
    /// RW log blocks in the order in which they were opened.
    log: VecDeque<u32>,
    /// RW log blocks that are being filled, row by row in turn.
    points: Vec<u32>,
    /// How many of them are open.
    open_points: u32,
    next_point: usize,
    /// The row of an RW log block that is being filled, or [`NONE`].
    random_row: u32,
    /// RW log blocks that the log may have while no block is missing, the isolation area included.
    log_blocks: u32,
    isolation: Isolation,
    merges: Vec<Merge>,
    reclaim: reclaim::Reclaim,
    next_die: u32,
    /// No write could be taken when that was asked last, and nothing has changed since that could change it.
    is_stuck: bool,
}

/// RW log blocks of a drive with so many logical blocks.
pub(super) fn log_blocks(ftl: &FtlProfile, blocks: u64) -> u64 {
    match ftl.log_blocks {
        0 => ((blocks as f64 * ftl.over_provisioning).ceil() as u64).max(LOG_BLOCKS_MIN.into()),
        given => given.into(),
    }
}

/// RW log blocks without which that many write points can't go on.
fn least_log(points: u32) -> u32 {
    LOG_BLOCKS_MIN.max(2 * points)
}

/// Superblocks besides data blocks, RW log blocks and the map's that a hybrid mapping must have so as never to run out:
/// the SW log block, as many that wait for their merge as there are merges, one to merge into for each, the reserve,
/// and one more so that the reserve is not all there is.
pub(super) fn superblocks_beside(ftl: &FtlProfile) -> u32 {
    1 + 2 * ftl.merges_max + RESERVE + 1
}

impl Hybrid {
    /// For a drive of so many logical pages. `None`: the profile asks for page mapping.
    pub(super) fn new(profile: &Profile, layout: &Layout, units: u32) -> Option<Box<Hybrid>> {
        let ftl = &profile.ftl;
        if ftl.mapping == Mapping::Page {
            return None;
        }
        let (superblocks, dies, per_block) = (layout.superblocks(), layout.dies, layout.units_per_superblock);
        let blocks = units.div_ceil(per_block);
        let had_chance = (ftl.mapping == Mapping::Faster).then(|| ValidBits::new(layout.address_space(), units));
        let log_blocks = log_blocks(ftl, blocks.into()) as u32;
        let isolated = match ftl.mapping {
            Mapping::Faster if ftl.isolation_share > 0.0 => {
                ((f64::from(log_blocks) * ftl.isolation_share).ceil() as u32).max(isolation::BLOCKS_MIN)
            }
            _ => 0,
        };
        let points = match ftl.log_write_points {
            0 => dies.min(log_blocks.saturating_sub(isolated) / 2).max(1),
            given => given.min(log_blocks / 2),
        };
        let isolated = isolated.min(log_blocks.saturating_sub(least_log(points)));
        Some(Box::new(Hybrid {
            roles: vec![Role::None; superblocks as usize],
            data: vec![NONE; blocks as usize],
            sequential: None,
            retired: VecDeque::new(),
            log: VecDeque::with_capacity(log_blocks as usize + 1),
            points: vec![NONE; points.max(1) as usize],
            open_points: 0,
            next_point: 0,
            random_row: NONE,
            log_blocks,
            isolation: Isolation::new(isolated),
            merges: vec![Merge::idle(per_block); ftl.merges_max as usize],
            reclaim: reclaim::Reclaim::new(had_chance),
            next_die: 0,
            is_stuck: false,
        }))
    }

    /// No write could be taken when that was asked last, and nothing has changed since.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    fn is_merging(&self, block: u32) -> bool {
        self.merges.iter().any(|m| m.block == block)
    }

    /// The lowest program sequence of a row that belongs to a merge which is not committed.
    pub(super) fn first_uncommitted(&self) -> Option<u64> {
        self.merges.iter().filter(|m| m.block != NONE).map(|m| m.first_sequence).min()
    }

    /// Another superblock, or none, is open at a write point.
    fn set_point(&mut self, point: usize, superblock: u32) {
        let old = std::mem::replace(&mut self.points[point], superblock);
        self.open_points = self.open_points + u32::from(superblock != NONE) - u32::from(old != NONE);
    }

    /// A superblock takes no more rows of the log, because a program failed in it.
    pub(super) fn forget_open(&mut self, superblock: u32) {
        if let Some(point) = self.points.iter().position(|&p| p == superblock) {
            self.set_point(point, NONE);
        }
        if self.isolation.open == superblock {
            self.isolation.open = NONE;
        }
    }
}

impl<M: Medium> Ftl<M> {
    fn hybrid(&mut self) -> &mut Hybrid {
        self.hybrid.as_mut().expect("only called under hybrid mapping")
    }

    /// RW log blocks that the log may have now besides the isolation area.
    fn log_limit(&self, hybrid: &Hybrid) -> u32 {
        self.whole_log_limit(hybrid) - self.isolation_limit(hybrid)
    }

    /// RW log blocks that there may be now: blocks that turned bad make the log smaller.
    fn whole_log_limit(&self, hybrid: &Hybrid) -> u32 {
        let others = hybrid.data.len() as u32 + superblocks_beside(&self.profile) + self.map_superblocks();
        hybrid.log_blocks.min(self.good_superblocks.saturating_sub(others)).max(LOG_BLOCKS_MIN)
    }

    /// Superblocks that are not bad, at least, for the drive to take writes.
    pub(super) fn least_superblocks(&self, hybrid: &Hybrid) -> u32 {
        hybrid.data.len() as u32 + superblocks_beside(&self.profile) + self.map_superblocks() + LOG_BLOCKS_MIN
    }

    /// Flash beyond the logical capacity that may hold data: the RW log blocks, as a share of the capacity.
    pub(super) fn log_share(&self, hybrid: &Hybrid) -> f64 {
        f64::from(self.whole_log_limit(hybrid) * self.layout.units_per_superblock) / f64::from(self.units().max(1))
    }

    /// As [`Ftl::takes_any`]; a no is remembered, because while merges don't keep up it is asked after every event.
    pub(super) fn takes_any_now(&mut self) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        if hybrid.is_stuck {
            return false;
        }
        let takes = self.takes_any(hybrid);
        self.hybrid().is_stuck = !takes;
        takes
    }

    /// A program or an erase is done, or a superblock has left the log or its queue: writes may be taken again.
    #[inline]
    pub(super) fn unstick(&mut self) {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.is_stuck = false;
        }
    }

    /// Whether any logical page can be written now, wherever it has to go.
    #[cold]
    pub(super) fn takes_any(&self, hybrid: &Hybrid) -> bool {
        let is_sequential_ready = match &hybrid.sequential {
            Some(s) => s.row != NONE || self.flash.programs(self.layout.die_of(s.superblock)) < self.programs_per_die,
            None => true,
        };
        is_sequential_ready
            && hybrid.retired.len() < hybrid.merges.len()
            && self.free_superblocks > RESERVE
            && (hybrid.random_row != NONE || self.ready_point(hybrid).is_some())
    }

    /// The next of the log's write points that can take a row.
    #[inline]
    fn ready_point(&self, hybrid: &Hybrid) -> Option<usize> {
        let points = hybrid.points.len();
        let may_open = self.free_superblocks > RESERVE && (hybrid.log.len() as u32) < self.log_limit(hybrid);
        if hybrid.open_points == 0 && !may_open {
            return None; // As long as merges don't keep up.
        }
        (hybrid.next_point..points).chain(0..hybrid.next_point).find(|&point| match hybrid.points[point] {
            NONE => may_open,
            superblock => self.flash.programs(self.layout.die_of(superblock)) < self.programs_per_die,
        })
    }

    /// Units that the row of random writes still takes; a new one is as good as open.
    #[cold]
    pub(super) fn random_row_room(&self, hybrid: &Hybrid) -> u32 {
        match hybrid.random_row {
            NONE => self.layout.units_per_row,
            row => self.layout.units_per_row - self.rows[row as usize].count,
        }
    }

    /// Takes a host unit; [`Ftl::can_write`] has said that it can.
    #[cold]
    pub(super) fn write_to_log(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        lpn: u32,
        stamp: (u64, u64),
        owner: Owner,
    ) {
        let per_block = self.layout.units_per_superblock;
        let (block, page) = (lpn / per_block, lpn % per_block);
        let current = self.hybrid().sequential;
        let continues = current
            .is_some_and(|s| s.block == block && s.next == page && !self.superblocks[s.superblock as usize].failed);
        let retires = current.is_some_and(|s| {
            page == 0 || s.block == block && !continues || self.superblocks[s.superblock as usize].failed
        });
        if retires {
            self.retire_sequential(now, events);
        }
        let row = if page == 0 || continues { self.sequential_row(block) } else { self.random_row() };
        if owner != Owner::None && !self.rows[row as usize].timed {
            self.rows[row as usize].timed = true;
            let generation = self.rows[row as usize].generation;
            events.push(now + self.profile.fill_timeout, lane::SUSPEND, Event::Fill { row, generation });
        }
        if self.put(row, lpn, stamp, owner) {
            self.submit(now, events, row);
        }
        if retires {
            self.go_on_merging(now, events);
        }
    }

    /// The SW log block takes no more: it waits for its merge.
    fn retire_sequential(&mut self, now: Instant, events: &mut EventQueue) {
        let Some(s) = self.hybrid().sequential.take() else { return };
        if s.row != NONE {
            self.submit(now, events, s.row);
        }
        self.hybrid().retired.push_back((s.block, s.superblock));
    }

    /// The row of the SW log block that takes the next page of `block`: of a new one, if there is none.
    fn sequential_row(&mut self, block: u32) -> u32 {
        let s = match self.hybrid().sequential {
            Some(s) => s,
            None => {
                let die = self.roomiest_die().expect("the reserve is left");
                let superblock = self.open_superblock(die, Stream::Host).expect("it has room");
                self.hybrid().roles[superblock as usize] = Role::InPlace(block);
                Sequential { superblock, block, next: 0, row: NONE }
            }
        };
        let row = match s.row {
            NONE => self.open_log_row(s.superblock, RowRole::Sequential(block)),
            row => row,
        };
        self.hybrid().sequential = Some(Sequential { next: s.next + 1, row, ..s });
        row
    }

    /// The row that takes random writes.
    fn random_row(&mut self) -> u32 {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        if hybrid.random_row != NONE {
            return hybrid.random_row;
        }
        match self.ready_point(hybrid) {
            Some(point) => self.open_random_row(point),
            // The rest of an SW log block, or a piece of the map, has just taken the last place.
            None => self.any_random_row().expect("the reserve is left"),
        }
    }

    /// Opens a row at a write point of the log, and a superblock for it if need be.
    fn open_random_row(&mut self, point: usize) -> u32 {
        let mut superblock = self.hybrid().points[point];
        if superblock == NONE {
            let die = self.roomiest_die().expect("a superblock is free");
            superblock = self.open_superblock(die, Stream::Host).expect("it has room");
            let hybrid = self.hybrid.as_mut().expect("only called under hybrid mapping");
            hybrid.roles[superblock as usize] = Role::Log;
            hybrid.log.push_back(superblock);
            hybrid.reclaim.forget_chances(&self.layout, superblock);
        }
        let row = self.open_log_row(superblock, RowRole::Log);
        let full = self.is_full(superblock);
        let hybrid = self.hybrid();
        hybrid.set_point(point, if full { NONE } else { superblock });
        hybrid.next_point = if point + 1 == hybrid.points.len() { 0 } else { point + 1 };
        hybrid.random_row = row;
        // What moves within the log may have opened it where the host could not: now there is room for the host too.
        hybrid.is_stuck = false;
        row
    }

    fn open_log_row(&mut self, superblock: u32, role: RowRole) -> u32 {
        let number = self.host_rows.open();
        let (row, _) = self.open_row(superblock, Stream::Host, number);
        self.rows[row as usize].index = role.index();
        row
    }

    /// The row of random writes, or one opened wherever there is a superblock, the reserve included.
    #[cold]
    pub(super) fn any_random_row(&mut self) -> Option<u32> {
        let free = self.free_superblocks > 0;
        let hybrid = self.hybrid();
        if hybrid.random_row != NONE {
            return Some(hybrid.random_row);
        }
        let (next, points) = (hybrid.next_point, &hybrid.points);
        let all = (next..points.len()).chain(0..next);
        let point = all.clone().find(|&p| points[p] != NONE).or_else(|| all.clone().find(|_| free))?;
        Some(self.open_random_row(point))
    }

    /// The die with the most free superblocks, of those that have the least to program; they take turns.
    fn roomiest_die(&mut self) -> Option<u32> {
        let dies = self.layout.dies;
        let from = self.hybrid().next_die;
        let mut best: Option<(u32, (bool, usize))> = None;
        for die in (from..dies).chain(0..from) {
            let free = self.dies[die as usize].free.len();
            let key = (self.flash.programs(die) < self.programs_per_die, free);
            if free > 0 && best.is_none_or(|(_, b)| key > b) {
                best = Some((die, key));
            }
        }
        let (die, _) = best?;
        self.hybrid().next_die = if die + 1 == dies { 0 } else { die + 1 };
        Some(die)
    }

    /// A row was submitted: it is no longer being filled.
    #[cold]
    pub(super) fn forget_row(&mut self, row: u32) {
        let hybrid = self.hybrid();
        if hybrid.random_row == row {
            hybrid.random_row = NONE;
        }
        if hybrid.isolation.row == row {
            hybrid.isolation.row = NONE;
        }
        if let Some(s) = hybrid.sequential.as_mut().filter(|s| s.row == row) {
            s.row = NONE;
            // What was padded is a hole: whatever continues the run can't go there.
        }
    }

    /// Programs the rows that are being filled as they are.
    #[cold]
    pub(super) fn pad_log_rows(&mut self, now: Instant, events: &mut EventQueue) {
        let hybrid = self.hybrid();
        let rows = [hybrid.random_row, hybrid.isolation.row, hybrid.sequential.map_or(NONE, |s| s.row)];
        for row in rows.into_iter().filter(|&row| row != NONE) {
            self.pad_log_row_of(now, events, row);
        }
    }

    /// Programs a row as it is; an SW log block with a hole takes no more.
    fn pad_log_row_of(&mut self, now: Instant, events: &mut EventQueue, row: u32) {
        let units = self.layout.units_per_row;
        let hole = units - self.rows[row as usize].count;
        if let Some(s) = self.hybrid().sequential.as_mut().filter(|s| s.row == row) {
            // Never the page that the host writes next: it starts a merge.
            s.next += hole;
        }
        self.submit(now, events, row);
    }

    /// The time of a row is over, if it is still the one that the timer was set for.
    #[cold]
    pub(super) fn pad_log_row_in_time(&mut self, now: Instant, events: &mut EventQueue, row: u32, generation: u32) {
        let hybrid = self.hybrid();
        let is_filled = hybrid.random_row == row || hybrid.sequential.is_some_and(|s| s.row == row);
        if is_filled && self.rows[row as usize].generation == generation {
            self.pad_log_row_of(now, events, row);
        }
    }

    /// A superblock holds nothing that counts any more: it is erased once what replaced its data is programmed.
    fn drain(&mut self, now: Instant, events: &mut EventQueue, superblock: u32) {
        assert_eq!(self.valid[superblock as usize] & !NOT_A_CANDIDATE, 0, "superblock {superblock} still holds data");
        self.valid[superblock as usize] = NOT_A_CANDIDATE;
        self.superblocks[superblock as usize].state = State::Draining;
        let layout = &self.layout;
        let hybrid = self.hybrid.as_mut().expect("only called under hybrid mapping");
        hybrid.roles[superblock as usize] = Role::None;
        // It may be written anew before a merge ends that has read from it: then the same place holds something else.
        for merge in hybrid.merges.iter_mut().filter(|m| m.block != NONE) {
            merge.forget_sources(|ppn| layout.superblock_of(ppn) == superblock);
        }
        self.draining.push(superblock);
        if !self.checkpoint.is_logged(self.superblocks[superblock as usize].log_hazard) {
            self.log_deallocations(now, events);
        }
    }

    /// Checks what must always hold of a hybrid mapping; for tests, since it walks everything.
    ///
    /// # Panics
    /// When something does not hold.
    pub(super) fn assert_hybrid_consistent(&self, hybrid: &Hybrid) {
        let per_block = self.layout.units_per_superblock;
        for lpn in 0..self.map.units() {
            let Entry::At(ppn) = self.map.get(lpn) else { continue };
            let superblock = self.layout.superblock_of(ppn);
            let place = self.layout.row_of(ppn) * self.layout.units_per_row + self.layout.unit_of(ppn);
            match hybrid.roles[superblock as usize] {
                Role::Log => {}
                Role::InPlace(block) => assert_eq!(
                    (block, place),
                    (lpn / per_block, lpn % per_block),
                    "{lpn} is out of its place in superblock {superblock}"
                ),
                Role::None => panic!("{lpn} is in superblock {superblock}, which has no role"),
            }
        }
        let free: usize = self.dies.iter().map(|d| d.free.len()).sum();
        assert_eq!(self.free_superblocks as usize, free, "free superblocks are counted wrong");
        let role = |superblock: u32| hybrid.roles[superblock as usize];
        let open = hybrid.points.iter().filter(|&&p| p != NONE).count();
        assert_eq!(hybrid.open_points as usize, open, "write points are counted wrong");
        let area = &hybrid.isolation.blocks;
        assert!(hybrid.log.iter().chain(area).all(|&s| role(s) == Role::Log), "{:?}, {area:?}", hybrid.log);
        for (block, &superblock) in (0..).zip(&hybrid.data) {
            assert!(superblock == NONE || role(superblock) == Role::InPlace(block), "block {block} in {superblock}");
        }
        assert!(!hybrid.is_stuck || !self.takes_any(hybrid), "a write could be taken without notice");
        assert!(hybrid.retired.iter().all(|&(block, s)| role(s) == Role::InPlace(block)), "{:?}", hybrid.retired);
    }
}
