//! Syncs: of a file in the set a wait for the log, of everything else the real call once the log is in order.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use nix::errno::Errno;
use nix::libc::{self, aiocb, off_t, size_t};
use tidewater_files::{Place, Seen, Sync};

use super::{give, members};
use crate::descriptors::{self, Kind};
use crate::process::{self, refuse};
use crate::real::{self, NextLibrary};

/// Why a file is synced by itself that a call has passed by.
const PASSED_BY: &str = "it has bytes that no call wrote which is seen (a static program, or a system call of its own)";

/// Has a sync of a file in the set answered from the log, if that has all of it. `None`: the descriptor is another
/// file's by now.
fn answered(place: Place, fd: c_int) -> Result<Option<Sync>, Errno> {
    let (files, file) = (process::files()?, process::borrow(fd));
    match files.look_at(place, file, process::holds(place)).map_err(refuse)? {
        Seen::Recorded => {}
        Seen::Another => return Ok(None),
        Seen::Unrecorded => members::make_real(place, fd, PASSED_BY)?,
        // What it is written next brings it back.
        Seen::Unknown => files.leave(place, file, false, &NextLibrary).map_err(refuse)?,
    }
    files.sync_name(place, file, &NextLibrary).map_err(refuse)?;
    files.sync(place).map_err(refuse).map(Some)
}

/// Answers a sync from the log where possible, and says which sync is left to do.
fn prepare(fd: c_int) -> Result<Sync, Errno> {
    if fd < 0 {
        return Ok(Sync::Real);
    }
    let _whole = process::whole();
    match descriptors::kind(fd) {
        Kind::Own => return Err(Errno::EBADF),
        Kind::File(of) => {
            // One that has left the set may have come back by another descriptor, as another.
            let is_there = process::files()?.table().is(of.place);
            if let Some(place) = if is_there { Some(of.place) } else { members::find(fd) }
                && let Some(sync) = answered(place, fd)?
            {
                return Ok(sync);
            }
            if !is_there {
                process::order()?;
                return Ok(Sync::Real);
            }
        }
        Kind::Other | Kind::Synced => {}
    }
    let Some(place) = members::find(fd) else {
        process::order()?;
        return Ok(Sync::Real);
    };
    // SAFETY: a descriptor, open or not.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, std::ptr::null_mut()) };
    if flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
        // Written to without a record, since it was opened before the file came into the set.
        members::make_real(place, fd, "it is written by a descriptor from before it was on the log")?;
    }
    Ok(answered(place, fd)?.unwrap_or(Sync::Real))
}

fn sync_by(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !process::is_armed() {
        return call();
    }
    match prepare(fd) {
        Ok(Sync::Waited) => 0,
        Ok(Sync::Real) => call(),
        Err(errno) => give(Err(errno)),
    }
}

/// The sync of a write whose descriptor, or whose flags, ask for one.
pub fn sync_after(place: Place, fd: c_int) -> Result<(), Errno> {
    let _whole = process::whole();
    match process::files()?.sync(place).map_err(refuse)? {
        Sync::Waited => Ok(()),
        // SAFETY: a descriptor that is open.
        Sync::Real => Errno::result(unsafe { real::fdatasync(fd) }).map(drop),
    }
}

/// A real sync of something outside of the set: what is on the log comes first, if `is_sync`.
pub fn in_order<T: From<i8>>(is_sync: bool, call: impl FnOnce() -> T) -> T {
    match if is_sync && process::is_armed() { process::order() } else { Ok(()) } {
        Ok(()) => call(),
        Err(errno) => give(Err(errno)),
    }
}

/// `fsync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    sync_by(fd, || unsafe { real::fsync(fd) })
}

/// `fdatasync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    sync_by(fd, || unsafe { real::fdatasync(fd) })
}

/// `sync_file_range(2)`: no promise of anything, and on the log nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int {
    // SAFETY: the caller's.
    let call = || unsafe { real::sync_file_range(fd, offset, len, flags) };
    match descriptors::kind(fd) {
        Kind::Own => give(Err(Errno::EBADF)),
        Kind::File(of) => match process::files().map(|files| files.table().is(of.place)) {
            Ok(true) => 0,
            Ok(false) => call(),
            Err(errno) => give(Err(errno)),
        },
        Kind::Other | Kind::Synced => in_order(true, call),
    }
}

/// `sync(2)`. It can't fail, so it is left out when the log does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync() {
    if !process::is_armed() || process::order().is_ok() {
        // SAFETY: takes nothing.
        unsafe { real::sync() }
    }
}

macro_rules! aio_fsync {
    ($($name:ident)*) => {$(
        /// `aio_fsync(3)`: the real one, within the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(how: c_int, what: *mut aiocb) -> c_int {
            // SAFETY: the caller's.
            in_order(true, || unsafe { real::aio_fsync(how, what) })
        }
    )*};
}
aio_fsync!(aio_fsync aio_fsync64);

/// `msync(2)`: of files outside of the set, as a mapped file is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    in_order(flags & libc::MS_SYNC != 0, || unsafe { real::msync(at, len, flags) })
}

/// `syncfs(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    in_order(true, || unsafe { real::syncfs(fd) })
}
