//! Writes to a place, from a copy: the record, the comparison with what the file has, and the system all see the same
//! bytes, whatever the program stores meanwhile.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

use nix::errno::Errno;
use nix::libc::{off_t, size_t, ssize_t};
use tidewater_files::{ASKS, COPY, COPY_SMALL};

use super::give;
use crate::descriptors::{self, APPEND, DIRECT, DSYNC, Of, SYNC};
use crate::process;
use crate::real;

/// Bytes that a copy is made of, at most: PostgreSQL writes several pages of its log at once when many commit together.
/// Each size has a function of its own, since all pages of a frame are touched, whatever is used of it.
const COPY_LARGE: usize = 64 << 10;

/// `pwrite(2)` to a file in the set, in pieces that a copy is made of. `None`: it is one for [`super::write`].
///
/// # Safety
/// The caller's of `pwrite`.
pub unsafe fn pwrite(of: Of, fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> Option<ssize_t> {
    if of.flags & (APPEND | DIRECT) != 0 || len == 0 || offset < 0 || offset.checked_add(len as off_t).is_none() {
        return None;
    }
    let _whole = process::whole();
    let files = process::files().ok()?;
    if files.table().flags(of.place) & ASKS != 0 || len > COPY_LARGE.min(files.table().piece()) {
        return None;
    }
    let (from, begin) = (from.cast::<u8>(), offset as u64);
    let done = process::under_lock(files, of.place, fd, |locked| {
        // SAFETY: so many bytes are there.
        let real = |stable: &[u8]| unsafe { real::pwrite(fd, stable.as_ptr().cast(), len, offset) };
        // SAFETY: the caller's: so many bytes can be read. What is stored there meanwhile is in the copy that is made
        // of them, or not.
        let bytes = unsafe { slice::from_raw_parts(from, len) };
        let file = process::borrow(fd);
        files.look_before(locked, file, begin).map_err(process::refuse)?;
        let done = match files.write_kept(locked, begin, bytes, real).map_err(process::refuse)? {
            Some(done) => done,
            // SAFETY: the caller's.
            None => unsafe {
                let write = |stable: &[u8]| files.write_stable(locked, file, begin, stable).map(|()| real(stable));
                if len <= COPY_SMALL {
                    copied::<COPY_SMALL, _>(from, len, write)
                } else if len <= COPY {
                    copied::<COPY, _>(from, len, write)
                } else {
                    copied::<COPY_LARGE, _>(from, len, write)
                }
            }
            .map_err(process::refuse)?,
        };
        let errno = Errno::last();
        if usize::try_from(done) == Ok(len) && !locked.was_interrupted() && descriptors::is(fd, locked.place) {
            files.look_behind(locked, file).map_err(process::refuse)?;
            locked.end_known(begin, begin + len as u64);
        } else {
            files.reread(locked, file).map_err(process::refuse)?;
        }
        errno.set();
        Ok(done)
    });
    // It has left the set, or has to come into it again: that is seen to there.
    let done = done.transpose()?;
    Some(match done {
        Ok(done) if done > 0 && of.flags & (SYNC | DSYNC) != 0 => match super::sync::sync_after(of.place, fd) {
            Ok(()) => done,
            Err(errno) => give(Err(errno)),
        },
        done => give(done),
    })
}

/// Does something with a copy of bytes.
///
/// # Safety
/// `len` bytes, at most `PLACE`, can be read.
#[inline(never)]
unsafe fn copied<const PLACE: usize, T>(from: *const u8, len: usize, then: impl FnOnce(&[u8]) -> T) -> T {
    let mut place = MaybeUninit::<[u8; PLACE]>::uninit();
    // SAFETY: the caller's; the copy is this function's own, and so many bytes are there then.
    let stable = unsafe {
        ptr::copy_nonoverlapping(from, place.as_mut_ptr().cast(), len);
        slice::from_raw_parts(place.as_ptr().cast::<u8>(), len)
    };
    then(stable)
}
