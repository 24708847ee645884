//! The ring's copy on a disk (ADR 26): a waiter for DESTAGED writes and syncs it, and no other process is in the
//! path.
//!
//! One at a time does so, for all whose bytes are in the ring by then; others wait for it, and then go on or do the
//! same. The lock is a word of the lane's page: that of a process that died is taken over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tidewater_wire::log::{CopyBuffer, CopyPlace};

use super::disk::Disk;
use super::owner;
use super::ring::Ring;
use crate::LogError;

/// How long another process may hold the copy before it is checked for being alive: the dead do not give it back.
const LOOK: Duration = Duration::from_millis(10);
/// How long before the device is asked instead: its writer was stopped, or is this very thread, amid a
/// signal.
const PATIENCE: Duration = Duration::from_millis(200);
/// Sectors that are written at once, at most.
const AT_ONCE: usize = 512;

/// A lane's place in the copy.
#[derive(Debug)]
pub(super) struct Copy {
    file: OwnedFd,
    place: CopyPlace,
    disk: &'static dyn Disk,
    /// Buffer that writes are put together in, by the holder of the ring's own lock.
    buffer: Mutex<CopyBuffer>,
}

impl Copy {
    pub(super) fn new(file: OwnedFd, ring: &Ring, disk: &'static dyn Disk) -> Copy {
        let buffer = Mutex::new(CopyBuffer::new(AT_ONCE));
        Copy { file, place: CopyPlace::new(ring.lane(), ring.header().ring_bytes), disk, buffer }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether this is the same file.
    pub(super) fn is_of(&self, other: &OwnedFd) -> bool {
        let identity = |file: &OwnedFd| nix::sys::stat::fstat(file).map(|about| (about.st_dev, about.st_ino));
        matches!((identity(&self.file), identity(other)), (Ok(one), Ok(other)) if one == other)
    }

    /// Has everything before a stream offset in the copy, and synced: what is below is in the ring already. `false`:
    /// the device has to do it.
    ///
    /// # Errors
    /// `Ring`: this process can't tell who it is.
    pub(super) fn save(&self, ring: &Ring, end: u64) -> Result<bool, LogError> {
        let me = owner::me()?;
        let start = Instant::now();
        loop {
            if ring.saved().load(Ordering::Acquire) >= end {
                return Ok(true);
            }
            if ring.unsaved().load(Ordering::Acquire) != 0 {
                return Ok(false);
            }
            let saver = ring.saver().load(Ordering::Acquire);
            let waited = start.elapsed();
            let is_free = saver == 0 || (waited >= LOOK && owner::is_dead(saver));
            if is_free && ring.saver().compare_exchange(saver, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break;
            }
            if waited >= PATIENCE {
                return Ok(false);
            }
            if !is_free {
                ring.wait_for_saver(saver, LOOK);
            }
        }
        // The writer of a generation that has ended would write over another's.
        let result = if ring.is_current() { Some(self.write(ring)) } else { None };
        // What was written counts if it still was of use when it was synced.
        let counts = ring.is_current() && ring.has_name() && ring.unsaved().load(Ordering::Acquire) == 0;
        let saved = match result {
            Some(Ok(saved)) if counts => {
                ring.saved().store(saved, Ordering::Release);
                saved
            }
            // A sync that failed may have forgotten what it could not write: none counts any more.
            Some(Err(_)) if counts => {
                ring.unsaved().store(1, Ordering::Release);
                0
            }
            _ => 0,
        };
        ring.release_saver();
        Ok(saved >= end)
    }

    /// Writes what the ring holds and the copy does not, and returns where that ends.
    fn write(&self, ring: &Ring) -> Result<u64, Errno> {
        match self.buffer.try_lock() {
            Ok(mut buffer) => self.write_by(ring, &mut buffer),
            // It was held when this process was forked, by a thread that it does not have.
            Err(_) => self.write_by(ring, &mut CopyBuffer::new(16)),
        }
    }

    fn write_by(&self, ring: &Ring, buffer: &mut CopyBuffer) -> Result<u64, Errno> {
        let (saved, end) = (ring.saved().load(Ordering::Acquire), ring.tail());
        let read = |from: u64, to: &mut [u8]| {
            ring.read(from, to);
            std::sync::atomic::fence(Ordering::SeqCst);
            // Places are given away once the device has synced what was there.
            ring.synced().max(ring.begin)
        };
        let write = |at: u64, bytes: &[u8]| self.write_at(bytes, at);
        self.place.write(ring.generation, (saved.max(ring.synced()), end), buffer, read, write)?;
        self.disk.sync_data(self.file.as_fd())?;
        Ok(end)
    }

    fn write_at(&self, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match self.disk.pwrite(self.file.as_fd(), bytes, at) {
                Ok(0) => return Err(Errno::EIO),
                Ok(done) => (bytes, at) = (&bytes[done..], at + done as u64),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
