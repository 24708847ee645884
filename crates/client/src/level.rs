//! Durability levels of bytes appended to a log on a drive.

use std::fmt;

/// How long bytes last that an operation has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Level {
    /// In the ring: they survive the end of this process and of the device's; a loss of power only where the ring's
    /// memory does.
    Ring = 0,
    /// On the backing store, and synced: they survive a loss of power too, as far as the disk below keeps what it
    /// promises.
    Destaged = 1,
    /// In the rings of as many replicas as the group's mode asks for: they survive the loss of the primary's machine.
    RemoteRing = 2,
    /// On the backing stores of the primary and of as many replicas as the group's mode asks for, and synced: they
    /// survive a loss of power of all machines, and the loss of the primary's.
    RemoteDestaged = 3,
}

impl Level {
    /// Whether replicas stand behind it.
    pub fn is_remote(self) -> bool {
        matches!(self, Level::RemoteRing | Level::RemoteDestaged)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Ring => "RING",
            Level::Destaged => "DESTAGED",
            Level::RemoteRing => "REMOTE_RING",
            Level::RemoteDestaged => "REMOTE_DESTAGED",
        })
    }
}

/// Where something was written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Written {
    /// Stream offset of the first byte: a record's log sequence number.
    pub lsn: u64,
    /// Stream offset after the last: what to wait for.
    pub end: u64,
}
