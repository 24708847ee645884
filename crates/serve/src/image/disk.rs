//! The disk below an image: whether it takes what it is given, and how long that takes.

use super::store::Image;
use nix::libc::{EDQUOT, ENOSPC};
use std::io;
use std::time::Duration;

/// Whether an image can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// All that was written was taken.
    #[default]
    Works,
    /// A write was refused for want of room, and no sync has failed: all that was written before is whole.
    Full,
    /// A write or a sync has failed.
    Failed,
}

impl Disk {
    /// As status and metrics have it; `None`: it works.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Disk::Works => None,
            Disk::Full => Some("full"),
            Disk::Failed => Some("failed"),
        }
    }

    /// As a ping has it.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// From a ping. What is not known is of a later version, and nothing good.
    pub fn from_code(code: u8) -> Disk {
        match code {
            0 => Disk::Works,
            1 => Disk::Full,
            _ => Disk::Failed,
        }
    }

    /// What is wrong with it, of a device; `None`: nothing.
    pub fn wrong(self) -> Option<&'static str> {
        match self {
            Disk::Works => None,
            Disk::Full => Some("its disk is full"),
            Disk::Failed => Some("its disk can't be written"),
        }
    }
}

/// How often a disk was asked for something, and how long that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Writes that have ended.
    pub writes: u64,
    /// How long they took, together.
    pub write_time: Duration,
    /// Syncs that have ended.
    pub syncs: u64,
    /// How long they took, together.
    pub sync_time: Duration,
    /// For how long the sync has run that is under way; zero: none is.
    pub syncing: Duration,
}

impl Image {
    /// Whether its disk takes what is written.
    pub fn disk(&self) -> Disk {
        let is_full = matches!(self.fault_number(), Some(ENOSPC | EDQUOT)) && !self.sync_failed;
        match self.is_faulted() {
            false => Disk::Works,
            true if is_full => Disk::Full,
            true => Disk::Failed,
        }
    }

    /// Why the system refused a write, and what to do where that is known.
    pub(super) fn refusal(&self) -> io::Error {
        let error = self.fault_number().map(io::Error::from_raw_os_error);
        match (self.disk(), error) {
            (Disk::Full, Some(error)) => io::Error::other(format!("{error}; make room, and start the device again")),
            (_, Some(error)) => error,
            (_, None) => io::Error::other("the storage refused a write"),
        }
    }

    /// How fast its disk is.
    pub fn pace(&self) -> Pace {
        let (writes, write_time) = self.storage.pace();
        let (syncs, sync_time, syncing) = self.syncs.pace();
        Pace { writes, write_time, syncs, sync_time, syncing }
    }

    /// Whether it can be known when a disk that was full has room again.
    pub fn knows_room(&self) -> bool {
        self.storage.knows_room()
    }

    /// Of an image whose disk was full: whether there is room again, and all that was written is safe. Then it can be
    /// opened anew, and is as after a crash.
    pub fn has_room(&mut self) -> bool {
        if self.disk() != Disk::Full || !self.storage.has_room() {
            return false;
        }
        // What the write was refused for says nothing of writes that were taken before. They are in the system's
        // memory, whose next sync says whether they have reached the disk.
        let running = self.syncs.wait().unwrap_or(Ok(()));
        let synced = running.and_then(|()| self.syncs.here(self.storage.begin_sync()));
        self.note_sync(&synced);
        synced.is_ok()
    }
}
