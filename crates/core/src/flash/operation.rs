//! Operations, and how they are ranked.

use super::{Kind, Source};

/// No operation.
pub const NONE: u32 = u32::MAX;

/// Priority classes, at most.
pub(super) const CLASSES: usize = 4;
/// The class of foreground reads, where they go first (`read_priority`, without which nothing is
/// suspended).
pub(super) const FIRST: u32 = 1;
/// The kind of pages in single-level mode, behind those that a cell may have.
pub(super) const SLC_KIND: usize = 3;

/// One flash operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Where it comes from, and so what it does.
    pub source: Source,
    /// The die.
    pub die: u32,
    /// The superblock (of the whole drive).
    pub superblock: u32,
    /// The row.
    pub row: u32,
    /// The units of the row that cross the bus.
    pub units: u64,
    /// How many these are.
    pub unit_count: u8,
    /// Of a host read: its [`Owner`](crate::owner::Owner), packed. Of other sources: what the translation layer calls
    /// it by.
    pub tag: u32,
    /// The units whose pages ECC gave up on.
    pub uncorrectable: u64,
    /// Of a host read: the first of those that its sense serves too, or [`NONE`].
    pub shared: u32,
    pub(super) suspensions: u32,
    pub(super) sensed: bool,
    pub(super) order: u64,
    pub(super) next: u32,
}

impl Operation {
    /// Its work.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.source.kind()
    }
}
