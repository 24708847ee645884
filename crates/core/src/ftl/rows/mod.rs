//! Rows on their way to flash: filled with units, programmed, and acknowledged.

mod outstanding;

use super::journal::OwnRow;
use super::space::Stream;
use crate::layout::Layout;
use crate::owner::Owner;
use outstanding::Outstanding;
use std::sync::Arc;
use tidewater_nand::{Nand, Origin};

/// Where a unit was before it was put into a row, when it was nowhere.
pub(in crate::ftl) const NOWHERE: u32 = u32::MAX;
/// As [`NOWHERE`], when it was lost: until the row is programmed, that is what a power loss leaves.
pub(in crate::ftl) const LOST: u32 = u32::MAX - 1;

/// A row that is being filled or programmed: its units live in the controller's memory.
#[derive(Clone, Debug, Default)]
pub(in crate::ftl) struct Row {
    pub(in crate::ftl) superblock: u32,
    pub(in crate::ftl) row: u32,
    pub(in crate::ftl) stream: Stream,
    pub(in crate::ftl) count: u32,
    /// Its number in the outstanding rows of its kind.
    pub(in crate::ftl) number: u64,
    /// The order of all rows on the drive; goes into the page header.
    pub(in crate::ftl) program_sequence: u64,
    /// The `index` of its page headers.
    pub(in crate::ftl) index: u32,
    pub(in crate::ftl) generation: u32,
    pub(in crate::ftl) in_use: bool,
    /// A timer runs that pads it.
    pub(in crate::ftl) timed: bool,
    /// A host waits for a unit of it: only then are the owners of its units kept apart.
    pub(in crate::ftl) owned: bool,
    /// The whole row is the firmware's own (map, deallocations).
    pub(in crate::ftl) own: Option<OwnRow>,
    /// What the mapping pages of the row say, one behind the other, when the medium keeps stamps.
    pub(in crate::ftl) images: Vec<u32>,
}

impl Row {
    /// What the firmware itself writes into it.
    #[inline(always)]
    pub fn own_payload(&self) -> Option<Arc<[u32]>> {
        if self.own.is_none() && self.images.is_empty() { None } else { self.some_payload() }
    }

    #[inline(never)]
    fn some_payload(&self) -> Option<Arc<[u32]>> {
        match &self.own {
            None => Some(self.images.as_slice().into()),
            Some(own) => own.payload.clone(),
        }
    }
}

/// All rows that are filled or programmed, and what their units are.
#[derive(Clone, Debug, Default)]
pub(in crate::ftl) struct Rows {
    pub(in crate::ftl) staged: Vec<Row>,
    /// Those of them that are not in use.
    pub(in crate::ftl) free: Vec<u32>,
    pub(in crate::ftl) lpns: Vec<u32>,
    pub(in crate::ftl) owners: Vec<u32>,
    /// Where each unit of a row was before: rows by units.
    pub(in crate::ftl) previous: Vec<u32>,
    /// Version and write sequence, when the medium keeps stamps.
    pub(in crate::ftl) stamps: Vec<(u64, u64)>,
    /// Where each unit of a row comes from, when there is a payload store; of rows of merges it is known when they are
    /// programmed.
    pub(in crate::ftl) origins: Vec<Origin>,
    /// Rows of the host, of the log and of mapping pages, and of what collection moves on each die, that are under way.
    pub(in crate::ftl) host: Outstanding,
    pub(in crate::ftl) log: Outstanding,
    pub(in crate::ftl) collected: Vec<Outstanding>,
    /// The program sequence of the newest.
    pub(in crate::ftl) sequence: u64,
    /// Owners whose units are programmed, for the device to take.
    pub(in crate::ftl) acknowledged: Vec<u32>,
    /// Owners whose units could not be programmed: no space is left.
    pub(in crate::ftl) rejected: Vec<u32>,
    /// Owners of log pages that are written again because a program failed.
    pub(in crate::ftl) rewritten: Vec<u32>,
    /// Units in a row.
    units: u32,
    has_stamps: bool,
    /// There is a payload store, which needs to know what is a copy of what.
    pub(in crate::ftl) payload: bool,
}

impl Rows {
    /// No rows are under way.
    pub fn new(layout: &Layout, has_stamps: bool) -> Rows {
        Rows {
            collected: vec![Outstanding::default(); layout.dies as usize],
            acknowledged: Vec::with_capacity(64),
            units: layout.units_per_row,
            has_stamps,
            ..Rows::default()
        }
    }

    /// The staged row at a place.
    pub fn at(&self, superblock: u32, row: u32) -> Option<u32> {
        self.staged.iter().position(|r| r.in_use && r.superblock == superblock && r.row == row).map(|i| i as u32)
    }

    /// A host waits for this unit of a row.
    #[inline(never)]
    pub fn set_owner(&mut self, row: u32, at: usize, owner: Owner) {
        if !std::mem::replace(&mut self.staged[row as usize].owned, true) {
            let first = (row * self.units) as usize;
            self.owners[first..first + self.units as usize].fill(Owner::None.pack());
        }
        self.owners[at] = owner.pack();
    }

    /// Puts a unit that was overtaken into a row: it is on flash for recovery to find, but not current.
    pub fn put_overtaken(&mut self, row: u32, lpn: u32, stamp: (u64, u64), owner: Owner, previous: u32) -> bool {
        let r = &mut self.staged[row as usize];
        let at = (row * self.units + r.count) as usize;
        r.count += 1;
        let full = r.count == self.units;
        self.lpns[at] = lpn;
        if owner != Owner::None {
            self.set_owner(row, at, owner);
        }
        self.previous[at] = previous;
        if self.has_stamps {
            self.stamps[at] = stamp;
        }
        full
    }

    /// The unit that was put into a row last comes from there.
    pub fn set_origin(&mut self, row: u32, origin: Origin) {
        if self.payload {
            let last = row * self.units + self.staged[row as usize].count - 1;
            self.origins[last as usize] = origin;
        }
    }

    /// Rows say from now on where their units come from.
    pub fn keep_sources(&mut self) {
        self.payload = true;
        self.origins.resize(self.lpns.len(), Origin::Memory);
    }

    /// Begins a row: the next of its superblock, of this stream.
    #[inline(always)]
    pub fn begin(&mut self, superblock: u32, row: u32, stream: Stream, number: u64) -> u32 {
        self.sequence += 1;
        let id = match self.free.pop() {
            Some(id) => id,
            None => self.add(),
        };
        let r = &mut self.staged[id as usize];
        debug_assert!(r.own.is_none(), "what a row of the firmware's own held was taken when it was programmed");
        r.superblock = superblock;
        r.row = row;
        r.stream = stream;
        r.count = 0;
        r.number = number;
        r.program_sequence = self.sequence;
        r.index = 0;
        r.generation = r.generation.wrapping_add(1);
        r.in_use = true;
        r.timed = false;
        r.owned = false;
        r.images.clear();
        id
    }

    /// Room for another row.
    #[cold]
    fn add(&mut self) -> u32 {
        let units = self.units as usize;
        self.lpns.resize(self.lpns.len() + units, Nand::NO_LPN);
        self.owners.resize(self.owners.len() + units, Owner::None.pack());
        self.previous.resize(self.previous.len() + units, NOWHERE);
        if self.has_stamps {
            self.stamps.resize(self.stamps.len() + units, (0, 0));
        }
        if self.payload {
            self.origins.resize(self.lpns.len(), Origin::Memory);
        }
        self.staged.push(Row::default());
        (self.staged.len() - 1) as u32
    }

    /// The owners of the units in a row that is under way.
    pub fn owners_of(&self, row: u32) -> impl Iterator<Item = Owner> {
        let first = (row * self.units) as usize;
        let r = &self.staged[row as usize];
        let owners = if r.owned { &self.owners[first..first + r.count as usize] } else { &[] };
        owners.iter().map(|&bits| Owner::unpack(bits))
    }
}
