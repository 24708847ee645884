//! Parts of the mapping cache: its places in host memory, and its superblocks on each die.

use crate::flash::NONE;
use std::collections::VecDeque;

/// What host memory has to do with a place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnHost {
    /// Changed entries that no chosen copy has: they are in the journal.
    pub(super) updates: u32,
    /// Changed entries of the copy that is being programmed: they are in the journal until it is on flash.
    pub(super) leaving: u32,
    /// Commands that read its unit: another page must not come to its place meanwhile.
    pub(super) readers: u32,
    /// The page is in the drive, to be programmed.
    pub(super) home: bool,
    /// It is on its way there.
    pub(super) fetching: bool,
    /// Its unit is gone.
    pub(super) lost: bool,
}

impl OnHost {
    /// Nothing.
    pub const NONE: OnHost = OnHost { updates: 0, leaving: 0, readers: 0, home: false, fetching: false, lost: false };
}

/// A request to host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LentWork {
    /// A page is written to its unit.
    Write {
        /// The unit.
        unit: u32,
        /// The mapping page.
        page: u32,
    },
    /// A page is read from its unit, to be programmed.
    Fetch {
        /// The unit.
        unit: u32,
        /// The mapping page.
        page: u32,
    },
}

/// The part of the cache that is in host memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Lent {
    /// Units that are lent now.
    pub(super) units: u32,
    /// Changed entries in the journal whose page is in host memory, and that no chosen copy has.
    pub(super) journal: u64,
    /// The pages of the next row, when some of them must come home first.
    pub(super) gathering: Vec<u32>,
    /// How many of those are on their way.
    pub(super) fetching: u32,
    /// Commands that need them, with their places.
    pub(super) waiting: Vec<(u32, u32)>,
    pub(super) work: VecDeque<LentWork>,
}

/// A die's rows for mapping pages.
#[derive(Clone, Debug)]
pub(super) struct MapDie {
    /// All superblocks of its pool.
    pub(super) members: Vec<u32>,
    /// Those of them that are erased and not open.
    pub(super) spare: Vec<u32>,
    pub(super) open: u32,
    pub(super) victim: u32,
    pub(super) victim_row: u32,
    pub(super) reads: u32,
    /// The row that takes what is moved.
    pub(super) row: u32,
    /// Nothing can be moved until a superblock is erased.
    pub(super) is_stuck: bool,
}

impl Default for MapDie {
    fn default() -> MapDie {
        MapDie {
            members: Vec::new(),
            spare: Vec::new(),
            open: NONE,
            victim: NONE,
            victim_row: 0,
            reads: 0,
            row: NONE,
            is_stuck: false,
        }
    }
}
