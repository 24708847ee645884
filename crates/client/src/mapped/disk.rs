//! System calls of writers that a library in front of a program's calls makes in its own way.

use std::fmt;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

/// The system calls on a copy, and on locks of the ring. A library that stands in front of a program's calls has its
/// own way to those behind it.
pub trait Disk: fmt::Debug + Sync {
    /// `pwrite`: how many bytes it took.
    ///
    /// # Errors
    /// Those of the system.
    fn pwrite(&self, file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<usize, Errno>;

    /// `fdatasync`.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_data(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;

    /// `fcntl` with `F_OFD_GETLK`: the lock becomes one that stands in its way, or `F_UNLCK`.
    ///
    /// # Errors
    /// Those of the system.
    fn get_lock(&self, file: BorrowedFd<'_>, lock: &mut nix::libc::flock) -> Result<(), Errno> {
        nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_OFD_GETLK(lock)).map(drop)
    }
}

/// The calls as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct System;

impl Disk for System {
    fn pwrite(&self, file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        nix::sys::uio::pwrite(file, bytes, at as i64)
    }

    fn sync_data(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        nix::unistd::fdatasync(file)
    }
}
