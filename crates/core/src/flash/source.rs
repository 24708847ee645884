//! Where flash work comes from, and so what it does.

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Units of one row to the controller.
    Read,
    /// A whole row from the controller.
    Program,
    /// A superblock.
    Erase,
}

/// Where flash work comes from. Each source has a queue on every die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A host command waits for it.
    HostRead,
    /// Pieces of the map and of the deallocation log.
    Map,
    /// Rows of host data.
    HostProgram,
    /// Reads of data that is collected.
    CollectRead,
    /// Rows of collected data.
    CollectProgram,
    /// Rows that the fast side destages.
    Destage,
    /// Erases.
    Erase,
    /// Reads of recovery.
    Recovery,
    /// Loads of mapping pages: host commands wait for most of them.
    MapRead,
    /// Reads of the SLC cache that is folded while the host is quiet. What they bring is programmed as collected data is: the
    /// rows of a superblock have one order.
    FoldRead,
}

/// How many sources there are.
pub const SOURCES: usize = 10;

/// The sources of reads that somebody waits for.
pub(super) const READS: u32 = Source::HostRead.bit() | Source::Recovery.bit() | Source::MapRead.bit();
/// The sources of programs.
pub(super) const PROGRAMS: u32 =
    Source::Map.bit() | Source::HostProgram.bit() | Source::CollectProgram.bit() | Source::Destage.bit();

impl Source {
    /// A set of this one.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// What all operations of a source do.
    #[inline]
    pub const fn kind(self) -> Kind {
        kind_of(self as usize)
    }
}

/// What the operations in a queue do.
#[inline]
pub(super) const fn kind_of(queue: usize) -> Kind {
    if PROGRAMS >> queue & 1 == 1 {
        Kind::Program
    } else if queue == Source::Erase as usize {
        Kind::Erase
    } else {
        Kind::Read
    }
}
