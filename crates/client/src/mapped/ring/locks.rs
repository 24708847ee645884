//! Locks of single bytes behind the end of a ring's file: who writes a lane, and whether a process serves the ring.

use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use tidewater_wire::log::{RING_DEVICE_LOCK, RING_LOCKS};

use crate::LogError;
use crate::mapped::disk::Disk;

pub(super) fn lock(file: &File, lane: u8) -> Result<(), LogError> {
    lock_as(file, lane, libc::F_WRLCK)
}

/// A lock of one byte of the file.
fn byte(at: i64, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}

/// Whether a process serves the ring, as far as its lock tells.
pub(super) fn is_served(file: &File, calls: &dyn Disk) -> bool {
    let mut lock = byte(RING_DEVICE_LOCK, libc::F_WRLCK);
    // What can't be asked is not known to have ended.
    calls.get_lock(file.as_fd(), &mut lock).is_err() || lock.l_type != libc::F_UNLCK as libc::c_short
}

pub(super) fn lock_as(file: &File, lane: u8, kind: libc::c_int) -> Result<(), LogError> {
    let lock = byte(RING_LOCKS + i64::from(lane), kind);
    match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(LogError::Busy { lane }),
        Err(errno) => Err(LogError::System { what: "lock the lane", errno }),
    }
}
