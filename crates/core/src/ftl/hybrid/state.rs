//! The state of a hybrid mapping.

use crate::flash::NONE;
use crate::ftl::map::ValidBits;
use crate::layout::Layout;
use crate::profile::{FtlProfile, Mapping, Profile};
use std::collections::VecDeque;
use tidewater_nand::PageHeader;

/// RW log blocks, at least: one is reclaimed while the other takes what the host writes.
pub const LOG_BLOCKS_MIN: u32 = 2;

/// Free superblocks that only merges, failures and the firmware's own rows may open.
pub(super) const RESERVE: u32 = 2;

/// The use of a superblock by the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing: free, or on its way there, or the map's.
    None,
    /// An RW log block.
    Log,
    /// Units of this logical block, each in its place: a data block, an SW log block, or what a merge makes.
    InPlace(u32),
}

/// The use of a row by recovery: the `index` of its [`PageHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowRole {
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
    pub fn index(self) -> u32 {
        match self {
            RowRole::Log => 0,
            RowRole::Isolated => 4,
            RowRole::Sequential(block) => block * 4 + 1,
            RowRole::Copy(block) => block * 4 + 2,
            RowRole::LastCopy(block) => block * 4 + 3,
        }
    }

    pub fn of(header: PageHeader) -> RowRole {
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
pub(super) struct Sequential {
    pub(super) superblock: u32,
    pub(super) block: u32,
    /// The page of the logical block that continues it.
    pub(super) next: u32,
    /// The row that is being filled, or [`NONE`].
    pub(super) row: u32,
}

/// The state of a hybrid mapping.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct Hybrid {
    /// By superblock.
    pub(super) roles: Vec<Role>,
    /// Data block by logical block, or [`NONE`].
    pub(super) data: Vec<u32>,
    pub(super) sequential: Option<Sequential>,
    /// SW log blocks that wait for their merge, with their logical blocks.
    pub(super) retired: VecDeque<(u32, u32)>,
    /// RW log blocks in the order in which they were opened.
    pub(super) log: VecDeque<u32>,
    /// RW log blocks that are being filled, row by row in turn.
    pub(super) points: Vec<u32>,
    /// How many of them are open.
    pub(super) open_points: u32,
    pub(super) next_point: usize,
    /// The row of an RW log block that is being filled, or [`NONE`].
    pub(super) random_row: u32,
    /// RW log blocks that the log may have while no block is missing, the isolation area included.
    pub(super) log_blocks: u32,
    pub(super) isolation: Isolation,
    pub(super) merges: Vec<Merge>,
    pub(super) reclaim: Reclaim,
    pub(super) next_die: u32,
    /// No write could be taken when that was asked last, and nothing has changed since that could change it.
    pub(super) is_stuck: bool,
}

/// RW log blocks of a drive with so many logical blocks.
pub fn log_blocks(ftl: &FtlProfile, blocks: u64) -> u64 {
    match ftl.log_blocks {
        0 => ((blocks as f64 * ftl.over_provisioning).ceil() as u64).max(LOG_BLOCKS_MIN.into()),
        given => given.into(),
    }
}

/// RW log blocks without which that many write points can't go on.
pub fn least_log(points: u32) -> u32 {
    LOG_BLOCKS_MIN.max(2 * points)
}

/// Superblocks besides data blocks, RW log blocks and the map's that a hybrid mapping must have so as never to run out:
/// the SW log block, as many that wait for their merge as there are merges, one to merge into for each, the reserve,
/// and one more so that the reserve is not all there is.
pub fn superblocks_beside(ftl: &FtlProfile) -> u32 {
    1 + 2 * ftl.merges_max + RESERVE + 1
}

impl Hybrid {
    /// For a drive of so many logical pages.
    pub fn new(profile: &Profile, layout: &Layout, units: u32) -> Hybrid {
        let ftl = &profile.ftl;
        let (superblocks, dies, per_block) = (layout.superblocks(), layout.dies, layout.units_per_superblock);
        let blocks = units.div_ceil(per_block);
        let had_chance = (ftl.mapping == Mapping::Faster).then(|| ValidBits::new(layout.address_space(), units));
        let log_blocks = log_blocks(ftl, blocks.into()) as u32;
        let isolated = match ftl.mapping {
            Mapping::Faster if ftl.isolation_share > 0.0 => {
                ((f64::from(log_blocks) * ftl.isolation_share).ceil() as u32).max(BLOCKS_MIN)
            }
            _ => 0,
        };
        let points = match ftl.log_write_points {
            0 => dies.min(log_blocks.saturating_sub(isolated) / 2).max(1),
            given => given.min(log_blocks / 2),
        };
        let isolated = isolated.min(log_blocks.saturating_sub(least_log(points)));
        Hybrid {
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
            reclaim: Reclaim::new(had_chance),
            next_die: 0,
            is_stuck: false,
        }
    }

    pub fn is_merging(&self, block: u32) -> bool {
        self.merges.iter().any(|m| m.block == block)
    }

    /// Another superblock, or none, is open at a write point.
    pub fn set_point(&mut self, point: usize, superblock: u32) {
        let old = std::mem::replace(&mut self.points[point], superblock);
        self.open_points = self.open_points + u32::from(superblock != NONE) - u32::from(old != NONE);
    }
}

/// Blocks of the area, where the log is large enough: one fills up while another is emptied.
pub(super) const BLOCKS_MIN: u32 = 2;

/// The area.
#[derive(Clone, Debug, Default)]
pub(super) struct Isolation {
    /// RW log blocks that are set apart for it while no block is missing. 0: there is none.
    pub(super) blocks_max: u32,
    /// Its blocks in the order in which they were opened.
    pub(super) blocks: VecDeque<u32>,
    /// The one that is being filled, and the row of it that is: each, or [`NONE`].
    pub(super) open: u32,
    pub(super) row: u32,
    /// The row of the oldest to look at next.
    pub(super) next_row: u32,
    /// All logical blocks in the oldest are being merged.
    pub(super) exhausted: bool,
}

impl Isolation {
    pub fn new(blocks_max: u32) -> Isolation {
        let blocks = VecDeque::with_capacity(blocks_max as usize);
        Isolation { blocks_max, blocks, open: NONE, row: NONE, next_row: 0, exhausted: false }
    }

    /// A merge has ended.
    pub fn on_merged(&mut self) {
        self.exhausted = false;
    }
}

/// Rows of a merge that are read ahead: as many as keep the array, the bus and a program busy at once.
pub(super) const WINDOW: u32 = 4;

/// The cost of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MergeKind {
    Switch,
    Partial,
    #[default]
    Full,
}

/// One logical block that is being merged, or a place for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Merge {
    /// The logical block, or [`NONE`].
    pub(super) block: u32,
    pub(super) kind: MergeKind,
    /// The data block to be.
    pub(super) to: u32,
    /// Rows of it from `first` to `end` are copied; those before `read`, `submitted` and `programmed` have got that
    /// far.
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) read: u32,
    pub(super) submitted: u32,
    pub(super) programmed: u32,
    /// Reads under way for each row of the window.
    pub(super) reads: [u8; WINDOW as usize],
    /// Where each unit of the logical block is copied from, or [`NONE`].
    pub(super) sources: Vec<u32>,
    /// SW log blocks whose units are copied too.
    pub(super) absorbed: Vec<u32>,
    /// No row of it has a lower program sequence.
    pub(super) first_sequence: u64,
    /// A program failed.
    pub(super) failed: bool,
}

impl Merge {
    /// A place for a merge of logical blocks of so many units.
    pub fn idle(units: u32) -> Merge {
        Merge { block: NONE, to: NONE, sources: vec![NONE; units as usize], ..Merge::default() }
    }

    /// Does without the units at these places: what they hold does not count any more.
    pub fn forget_sources(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.sources.iter_mut().filter(|s| **s != NONE && is_gone(**s)).for_each(|s| *s = NONE);
    }
}

/// The RW log block that is being reclaimed.
#[derive(Clone, Debug, Default)]
pub(super) struct Reclaim {
    /// It, or [`NONE`].
    pub(super) victim: u32,
    /// The row to look at next.
    pub(super) row: u32,
    /// All logical blocks in it are being merged: there is nothing to start before one of them is.
    pub(super) exhausted: bool,
    /// Units are being moved, or wait for room where they go: until they are gone nothing is merged for the victim.
    pub(super) moving: bool,
    /// Reads of them under way.
    pub(super) reads: u32,
    /// Units that may still get a second chance.
    pub(super) chances: u32,
    /// Rows before this one have been looked at for units to move.
    pub(super) next_move: u32,
    /// One bit for each physical unit: it was put there for its second chance, or goes to the isolation area. `None`:
    /// nothing gets a second chance.
    pub(super) had_chance: Option<ValidBits>,
    pub(super) victims: u64,
    /// A victim has ended since static wear levelling looked.
    pub(super) looks_for_wear: bool,
    /// The data block that static wear levelling looks at next.
    pub(super) wear_next: usize,
}

impl Reclaim {
    /// Nothing is being reclaimed.
    pub fn new(had_chance: Option<ValidBits>) -> Reclaim {
        Reclaim { victim: NONE, had_chance, ..Reclaim::default() }
    }

    /// A merge has ended.
    pub fn on_merged(&mut self) {
        self.exhausted = false;
    }

    /// What is written to a superblock from now on has had no second chance.
    pub fn forget_chances(&mut self, layout: &Layout, superblock: u32) {
        let Some(bits) = &mut self.had_chance else { return };
        for row in 0..layout.rows {
            (0..layout.units_per_row).for_each(|unit| bits.clear(layout.ppn(superblock, row, unit)));
        }
    }
}

/// The owner of reads of what moves within the log: no merge has it.
pub(super) const MOVE: u32 = u32::MAX;
