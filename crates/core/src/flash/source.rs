//! Where flash work comes from, and so what it does.

use crate::events::Kind;

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
    /// Reads of the SLC cache that is folded while the host is quiet. What they bring is programmed as collected data
    /// is: the rows of a superblock have one order.
    FoldRead,
}

/// How many sources there are.
pub const SOURCES: usize = 10;

/// The sources of foreground reads, which a host waits for.
pub(super) const READS: u32 = Source::HostRead.bit() | Source::Recovery.bit() | Source::MapRead.bit();
/// The sources of reads that go first on the bus, too.
pub(super) const URGENT: u32 = Source::HostRead.bit() | Source::MapRead.bit();
impl Source {
    /// A set of this one.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// What all operations of a source do.
    #[inline]
    pub const fn kind(self) -> Kind {
        match self {
            Source::Map | Source::HostProgram | Source::CollectProgram | Source::Destage => Kind::Program,
            Source::Erase => Kind::Erase,
            Source::HostRead | Source::CollectRead | Source::Recovery | Source::MapRead | Source::FoldRead => {
                Kind::Read
            }
        }
    }
}
