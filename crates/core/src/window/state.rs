//! Work under way in the window, and its state as a previous process left it.

use tidewater_base::Instant;
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::WindowCommand;

/// Work under way for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    #[default]
    None,
    /// A Pin waits for block commands.
    Drain,
    /// A Pin brings pages in.
    Pin,
    Flush,
    Sync,
    ReadDma,
    Write,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) cid: u16,
    /// Version of what a Flush writes.
    pub(super) tag: u64,
    /// Bytes from the start of the entry, and how many.
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) data: Box<[u8]>,
    /// Pages that are under way or done.
    pub(super) next: u32,
    /// Outstanding flash operations, plus pages the payload store must still supply.
    pub(super) pending: u32,
    pub(super) fills: u32,
    /// When the memory has done what was asked of it.
    pub(super) ready_at: Instant,
    pub(super) status: Status,
    /// All is done but for the completion.
    pub(super) ending: bool,
    /// Flash had no room for the next page.
    pub(super) waits: bool,
    pub(super) generation: u32,
}

/// A command before it is executed, or before its completion.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) cid: u16,
    pub(super) stage: Stage,
}

#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// In the command pipeline.
    Begin { command: WindowCommand, data: Box<[u8]>, tag: u64 },
    /// On its way to the host.
    Reply { status: Status, result: u32, data: Vec<u8> },
}

/// An entry that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEntry {
    /// The name that the host gave it.
    pub name: u16,
    /// A Flush of it had begun.
    pub flush_begun: bool,
    /// First page of the buffer.
    pub page: u32,
    /// First logical page.
    pub first: u32,
    /// Its pages of the buffer: whole ones.
    pub bytes: Box<[u8]>,
}

/// Table and buffer of a window, as the host program saved them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The drive's write sequence when the table was stored.
    pub sequence: u64,
    /// The entries.
    pub entries: Vec<KeptEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The table is read.
    Table,
    /// The pages are read.
    Pages,
    /// Both areas are deallocated, up to this mark.
    Clearing((u64, u64)),
}

/// A way back.
#[derive(Clone, Debug)]
pub(super) struct Restoring {
    pub(super) phase: Phase,
    pub(super) generation: u64,
    pub(super) table: Vec<u8>,
    /// Pages of the buffer that come back, and the next of them.
    pub(super) pages: Vec<u32>,
    pub(super) next: usize,
    pub(super) pending: u32,
    pub(super) fills: u32,
    pub(super) failed: bool,
    /// The kept state, should the dump not be whole.
    pub(super) kept: Option<Box<Kept>>,
}
