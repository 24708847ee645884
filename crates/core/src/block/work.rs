//! A command under way: where it stands, and what it asks for.

use tidewater_wire::nvme::Status;

/// Where a command stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Data comes from the host, or from memory.
    #[default]
    Data,
    /// Map entries are looked up, or read from flash.
    Translate,
    /// Partly written pages are read, to be merged.
    Merge,
    /// Pages go to the buffer or to flash.
    Write,
    /// Pages written through are being programmed.
    Program,
    /// Pages are read from flash.
    Read,
    /// Data that was read goes to the host.
    Send,
    /// The buffer is emptied for a flush.
    Drain,
    /// All that came before is being programmed.
    Durable,
}

/// The action of a command, as far as its steps differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing: it was refused.
    #[default]
    Refuse,
    Read,
    Verify,
    Compare,
    Write,
    WriteZeroes,
    Flush,
    /// Dataset Management that deallocates, and that gives hints only.
    Deallocate,
    Hint,
}

/// A command under way: what it asks for, worked out once, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) action: Action,
    pub(super) fua: bool,
    /// It has passed the LBA gate.
    pub(crate) begun: bool,
    pub(crate) step: Step,
    pub(crate) status: Status,
    pub(super) first_block: u64,
    pub(super) blocks: u32,
    /// Bytes that come from the host.
    pub(super) bytes_in: u32,
    /// The next logical page to handle, and the first after the last.
    pub(crate) next: u32,
    pub(crate) end: u32,
    /// Flash operations, programs or accesses to host memory that it waits for.
    pub(crate) pending: u32,
    /// Asked of [`crate::ftl::Ftl::is_durable`].
    pub(super) mark: (u64, u64),
}

/// A page of a read command that was found in host memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) slot: u16,
    pub(super) lpn: u32,
    pub(super) version: u64,
    pub(super) serial: u64,
}
