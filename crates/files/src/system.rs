//! Calls of the system that several rooms make: syncs, reads, the clock.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::uio::pread;
use rustix::time::{ClockId, clock_gettime};

/// A file that something real is to be done with.
pub trait Real {
    /// `fsync`.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;
}

/// Real calls of a process that no shim is in.
#[derive(Debug)]
pub(crate) struct Plain;

impl Real for Plain {
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        nix::unistd::fsync(file)
    }
}

/// Syncs past the C library, before which a library may stand that has called here.
pub(crate) struct Directly;

impl Real for Directly {
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        rustix::fs::fsync(file).map_err(|error| Errno::from_raw(error.raw_os_error()))
    }
}

pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}

/// Makes a name durable.
pub(crate) fn sync_folder(path: &[u8], real: &impl Real) -> Result<(), Errno> {
    let folder = Path::new(OsStr::from_bytes(path)).parent().ok_or(Errno::ENOENT)?;
    let folder = File::open(folder).map_err(errno)?;
    match real.sync(folder.as_fd()) {
        // Some file systems have no sync of folders, and need none.
        Err(Errno::EINVAL) => Ok(()),
        result => result,
    }
}

/// Reads until the bytes are there or the file ends.
pub(crate) fn read_at(file: BorrowedFd<'_>, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < to.len() {
        match pread(file, &mut to[filled..], (offset + filled as u64) as i64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

fn at(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// The system's clock, in nanoseconds.
#[inline]
pub(crate) fn now_ns() -> u64 {
    at(ClockId::Realtime)
}

/// The last tick of the system's clock, in nanoseconds: what files are stamped with.
#[inline]
pub(crate) fn tick_ns() -> u64 {
    at(ClockId::RealtimeCoarse)
}
