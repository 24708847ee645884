//! Changes of a file's bytes and of its length.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, iovec, off_t, size_t, ssize_t};
use tidewater_client::mapped::Log;
use tidewater_files::{ASKS, Files, Locked};

use super::change::{change, set_length, size};
use super::{give, members};
use crate::descriptors::{self, APPEND, DSYNC, Kind, Of, SYNC, WRITES_ONLY};
use crate::process;
use crate::real;

/// Bytes that one call moves, at most (write(2)).
const MOST: usize = 0x7fff_f000;

/// Where a descriptor stands (`SEEK_CUR`), or where its file ends, to which it is moved (`SEEK_END`).
fn seek(fd: c_int, from: c_int) -> Result<u64, Errno> {
    // SAFETY: a descriptor that is open.
    Errno::result(unsafe { real::lseek(fd, 0, from) }).map(|at| at as u64)
}

/// Moves a descriptor back to where it stood, if it was moved.
fn back(fd: c_int, stood: Option<u64>) {
    if let Some(stood) = stood {
        // SAFETY: a descriptor that is open.
        unsafe { real::lseek(fd, stood as off_t, libc::SEEK_SET) };
    }
}

/// Where a write goes.
#[derive(Clone, Copy)]
enum Where {
    /// Where the descriptor stands, which moves it.
    Here,
    /// To this offset.
    At(off_t),
}

/// Bytes of parts, as a call moves them. `None`: the call will refuse them.
fn total(parts: &[iovec]) -> Option<usize> {
    parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.iov_len)).filter(|sum| isize::try_from(*sum).is_ok())
}

/// A write of a file in the set.
///
/// # Safety
/// The parts can be read.
unsafe fn write_parts(
    of: Of,
    fd: c_int,
    parts: &[iovec],
    to: Where,
    flags: c_int,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(bytes) = total(parts).filter(|bytes| *bytes > 0) else { return call() };
    let bytes = bytes.min(MOST);
    let piece = process::files().map_or(MOST, |files| files.table().piece().max(1));
    if bytes > piece {
        // SAFETY: the caller's.
        return unsafe { write_pieces(of, fd, parts, to, flags, piece) };
    }
    // Where the descriptor stands after the call, and where it stood, if it is moved before it.
    let (end, before) = (Cell::new(None), Cell::new(None));
    let record = |files: &Files<Log>, locked: &Locked<'_>, of: Of| {
        let appends = if files.table().flags(of.place) & ASKS != 0 {
            // SAFETY: a descriptor that is open.
            unsafe { real::fcntl(fd, libc::F_GETFL, ptr::null_mut()) & libc::O_APPEND != 0 }
        } else {
            of.flags & APPEND != 0
        };
        let appends = (appends || flags & RWF_APPEND != 0) && flags & RWF_NOAPPEND == 0;
        let mut at = match to {
            // That it stands at the end makes no difference to one that appends and can't be read, and is asked in a
            // third of the time.
            Where::Here if appends && of.flags & WRITES_ONLY != 0 => {
                before.set(Some(descriptors::left(fd).map_or_else(|| seek(fd, libc::SEEK_CUR), Ok)?));
                seek(fd, libc::SEEK_END)?
            }
            // A descriptor that appends does so whatever the offset (pwrite(2)).
            _ if appends => size(fd)?,
            Where::At(offset) => u64::try_from(offset).map_err(|_| Errno::EINVAL)?,
            Where::Here => match descriptors::stands(fd) {
                Some(at) => at,
                None => seek(fd, libc::SEEK_CUR)?,
            },
        };
        files.look_before(locked, process::borrow(fd), at).map_err(process::refuse)?;
        locked.begin(at, at.saturating_add(bytes as u64));
        let mut left = bytes;
        for part in parts {
            let len = part.iov_len.min(left);
            if len == 0 {
                continue;
            }
            // SAFETY: the caller's: so many bytes can be read.
            let part = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), len) };
            // Not compared with what the file has: PostgreSQL goes on storing into a page that is being written, so
            // that the file may have bytes that no record has yet, and a later comparison would leave them out for good
            // (`rewrite` has a copy of its own).
            files.write(locked, at, part).map_err(|error| {
                back(fd, before.get());
                process::refuse(error)
            })?;
            (at, left) = (at + len as u64, left - len);
        }
        end.set(Some(at));
        Ok(())
    };
    let whole = |locked: Option<&Locked<'_>>| {
        let done = call();
        let whole = usize::try_from(done) == Ok(bytes);
        if matches!(to, Where::Here) {
            // A signal handler may have moved it meanwhile.
            let is_known = whole && locked.is_none_or(|locked| !locked.was_interrupted());
            // What the system refuses leaves it where it stood. One that was closed meanwhile is another's.
            if locked.is_none_or(|locked| descriptors::is(fd, locked.place)) {
                let stood = before.get().filter(|_| done < 0);
                back(fd, stood);
                descriptors::moved(fd, stood.or(end.get().filter(|_| is_known)));
            }
        }
        (done, whole)
    };
    let syncs = of.flags & (SYNC | DSYNC) != 0 || flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    let done = match change(of, fd, record, whole) {
        Ok(done) => done,
        // It has left the set.
        Err(call) => Ok(call()),
    };
    match done {
        Ok(done) if syncs && done > 0 => match super::sync::sync_after(of.place, fd) {
            Ok(()) => done,
            Err(errno) => give(Err(errno)),
        },
        done => give(done),
    }
}

/// As [`write_parts`], so many bytes at a time: the log has to take them, and may have to be trimmed in between.
///
/// # Safety
/// As there.
#[cold]
unsafe fn write_pieces(of: Of, fd: c_int, parts: &[iovec], to: Where, flags: c_int, piece: usize) -> ssize_t {
    let mut done: usize = 0;
    for part in parts {
        let mut at = 0;
        while at < part.iov_len && done < MOST {
            let len = piece.min(part.iov_len - at).min(MOST - done);
            // SAFETY: within the part.
            let base = unsafe { part.iov_base.byte_add(at) };
            let one = [iovec { iov_base: base, iov_len: len }];
            let below = flags & !(libc::RWF_DSYNC | libc::RWF_SYNC);
            let (to, offset) = match to {
                Where::Here => (Where::Here, -1),
                Where::At(offset) => (Where::At(offset + done as off_t), offset + done as off_t),
            };
            let call = || match (to, below) {
                // SAFETY: the caller's.
                (Where::Here, 0) => unsafe { real::write(fd, base, len) },
                // SAFETY: the caller's.
                (Where::At(offset), 0) => unsafe { real::pwrite(fd, base, len, offset) },
                // SAFETY: the caller's.
                _ => unsafe { real::pwritev2(fd, one.as_ptr(), 1, offset, below) },
            };
            // SAFETY: the caller's.
            let wrote = unsafe { write_parts(of, fd, &one, to, flags, call) };
            if wrote < 0 {
                return if done > 0 { done as ssize_t } else { wrote };
            }
            done += wrote as usize;
            at += wrote as usize;
            if (wrote as usize) < len {
                return done as ssize_t;
            }
        }
    }
    done as ssize_t
}

/// `RWF_APPEND`, and `RWF_NOAPPEND` of Linux 6.9 (linux/fs.h).
const RWF_APPEND: c_int = 0x10;
const RWF_NOAPPEND: c_int = 0x20;

/// A write of something outside of the set. One that is a sync, too, comes behind the log.
fn other(fd: c_int, flags: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let syncs = descriptors::kind(fd) == Kind::Synced || flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    super::sync::in_order(syncs, call)
}

/// Sets the length of a file in the set. `false`: it is none, and the real call may do it. Only a file of the set is
/// opened: where a process closes a descriptor of a file, the system gives up its locks of it.
///
/// # Safety
/// The caller's of `truncate`.
unsafe fn set_length_by_name(path: *const c_char, len: u64) -> Result<bool, Errno> {
    // SAFETY: the caller's.
    match unsafe { super::names::find(path) } {
        Ok(Some(_)) => {}
        Ok(None) => {
            // SAFETY: the caller's.
            let ordered = if unsafe { super::names::leads_to_memory(path) } { Ok(()) } else { process::order() };
            return ordered.map(|()| false);
        }
        Err(errno @ (Errno::EMFILE | Errno::ENFILE)) => return Err(errno),
        // The real call says why.
        Err(_) => return Ok(false),
    }
    let flags = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the caller's.
    let fd = Errno::result(unsafe { super::open::open(path, flags, 0) })?;
    let done = set_length(fd, len);
    // SAFETY: it was opened just now.
    unsafe { super::descriptors::close(fd) };
    done.map(|()| true)
}

/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`, `FALLOC_FL_UNSHARE_RANGE` (linux/falloc.h).
const KEEP_SIZE: c_int = 1;
const PUNCH_HOLE: c_int = 2;
const ZERO_RANGE: c_int = 0x10;
const UNSHARE_RANGE: c_int = 0x40;

fn allocate(of: Of, fd: c_int, mode: c_int, offset: off_t, len: off_t, call: impl Fn() -> c_int) -> c_int {
    let (Ok(from), Ok(bytes)) = (u64::try_from(offset), u64::try_from(len)) else { return call() };
    let end = from.saturating_add(bytes);
    let zeroes = mode & (PUNCH_HOLE | ZERO_RANGE) != 0;
    if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE | UNSHARE_RANGE) != 0 {
        // Bytes move within the file.
        return match members::make_real(of.place, fd, "parts of it are moved") {
            Ok(()) => call(),
            Err(errno) => give(Err(errno)),
        };
    }
    let record = |files: &Files<Log>, locked: &Locked<'_>, _: Of| {
        let size = size(fd)?;
        let grows = mode & (KEEP_SIZE | PUNCH_HOLE) == 0 && end > size;
        files.look_before(locked, process::borrow(fd), size).map_err(process::refuse)?;
        // Also where it only takes room: that stamps the file.
        let to = if zeroes || grows { end.max(size) } else { size };
        locked.begin(if zeroes { from.min(size) } else { size }, to);
        if grows {
            files.truncate(locked, end).map_err(process::refuse)?;
        }
        let last = if grows { end } else { end.min(size) };
        if zeroes && last > from {
            files.zero(locked, from, last - from).map_err(process::refuse)?;
        }
        Ok(())
    };
    let whole = |_: Option<&Locked<'_>>| {
        let done = call();
        (done, done == 0)
    };
    match change(of, fd, record, whole) {
        Ok(done) => give(done),
        Err(call) => call(),
    }
}

/// Parts that a program handed over. `None`: none, or more than the system takes.
///
/// # Safety
/// The caller's of `writev`.
unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Option<&'a [iovec]> {
    let count = usize::try_from(count).ok().filter(|count| (1..=1024).contains(count))?;
    // SAFETY: the caller's: so many parts are there.
    (!parts.is_null()).then(|| unsafe { std::slice::from_raw_parts(parts, count) })
}

/// `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's.
    let call = || unsafe { real::write(fd, from, len) };
    match descriptors::of(fd) {
        None => other(fd, 0, call),
        Some(of) => {
            let part = iovec { iov_base: from.cast_mut(), iov_len: len };
            // SAFETY: the caller's.
            unsafe { write_parts(of, fd, &[part], Where::Here, 0, call) }
        }
    }
}

macro_rules! pwrite {
    ($($name:ident)*) => {$(
        /// `pwrite(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> ssize_t {
            // SAFETY: the caller's.
            let call = || unsafe { real::pwrite(fd, from, len, offset) };
            match descriptors::of(fd) {
                None => other(fd, 0, call),
                // SAFETY: the caller's.
                Some(of) => match unsafe { super::rewrite::pwrite(of, fd, from, len, offset) } {
                    Some(done) => done,
                    None => {
                        let part = iovec { iov_base: from.cast_mut(), iov_len: len };
                        // SAFETY: the caller's.
                        unsafe { write_parts(of, fd, &[part], Where::At(offset), 0, call) }
                    }
                },
            }
        }
    )*};
}
pwrite!(pwrite pwrite64);

/// `writev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's.
    let call = || unsafe { real::writev(fd, list, count) };
    // SAFETY: the caller's.
    match descriptors::of(fd).zip(unsafe { parts(list, count) }) {
        None => other(fd, 0, call),
        // SAFETY: the caller's.
        Some((of, parts)) => unsafe { write_parts(of, fd, parts, Where::Here, 0, call) },
    }
}

macro_rules! pwritev {
    ($($name:ident)*) => {$(
        /// `pwritev(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
            // SAFETY: the caller's.
            let call = || unsafe { real::pwritev(fd, list, count, offset) };
            // SAFETY: the caller's.
            match descriptors::of(fd).zip(unsafe { parts(list, count) }) {
                None => other(fd, 0, call),
                // SAFETY: the caller's.
                Some((of, parts)) => unsafe { write_parts(of, fd, parts, Where::At(offset), 0, call) },
            }
        }
    )*};
}
pwritev!(pwritev pwritev64);

macro_rules! pwritev2 {
    ($($name:ident)*) => {$(
        /// `pwritev2(2)`. An offset of -1 is where the descriptor stands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            list: *const iovec,
            count: c_int,
            offset: off_t,
            flags: c_int,
        ) -> ssize_t {
            // SAFETY: the caller's.
            let Some((of, parts)) = descriptors::of(fd).zip(unsafe { parts(list, count) }) else {
                // SAFETY: the caller's.
                return other(fd, flags, || unsafe { real::pwritev2(fd, list, count, offset, flags) });
            };
            // The sync becomes a wait.
            let below = flags & !(libc::RWF_DSYNC | libc::RWF_SYNC);
            // SAFETY: the caller's.
            let call = || unsafe { real::pwritev2(fd, list, count, offset, below) };
            let to = if offset == -1 { Where::Here } else { Where::At(offset) };
            // SAFETY: the caller's.
            unsafe { write_parts(of, fd, parts, to, flags, call) }
        }
    )*};
}
pwritev2!(pwritev2 pwritev64v2);

macro_rules! ftruncate {
    ($($name:ident)*) => {$(
        /// `ftruncate(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, len: off_t) -> c_int {
            match u64::try_from(len) {
                Ok(len) if process::is_armed() => give(set_length(fd, len).map(|()| 0)),
                // SAFETY: the caller's.
                _ => unsafe { real::ftruncate(fd, len) },
            }
        }
    )*};
}
ftruncate!(ftruncate ftruncate64);

macro_rules! truncate {
    ($($name:ident)*) => {$(
        /// `truncate(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, len: off_t) -> c_int {
            if process::is_armed() && let Ok(len) = u64::try_from(len) {
                // SAFETY: the caller's.
                match unsafe { set_length_by_name(path, len) } {
                    Ok(true) => return 0,
                    Ok(false) => {}
                    Err(errno) => return give(Err(errno)),
                }
            }
            // SAFETY: the caller's.
            unsafe { real::truncate(path, len) }
        }
    )*};
}
truncate!(truncate truncate64);

macro_rules! fallocate {
    ($($name:ident)*) => {$(
        /// `fallocate(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
            // SAFETY: the caller's.
            let call = || unsafe { real::fallocate(fd, mode, offset, len) };
            match descriptors::of(fd) {
                // Bytes go away, as they do where a file is cut.
                None if process::is_armed() && mode & !(KEEP_SIZE | UNSHARE_RANGE) != 0 => {
                    match process::order_before(fd) {
                        Ok(()) => call(),
                        Err(errno) => give(Err(errno)),
                    }
                }
                None => call(),
                Some(of) => allocate(of, fd, mode, offset, len, call),
            }
        }
    )*};
}
fallocate!(fallocate fallocate64);

macro_rules! posix_fallocate {
    ($($name:ident)*) => {$(
        /// `posix_fallocate(3)`: its result is the error.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off_t, len: off_t) -> c_int {
            // SAFETY: the caller's.
            let call = || unsafe { real::posix_fallocate(fd, offset, len) };
            match descriptors::of(fd) {
                None => call(),
                Some(of) => match allocate(of, fd, 0, offset, len, call) {
                    -1 => Errno::last_raw(),
                    done => done,
                },
            }
        }
    )*};
}
posix_fallocate!(posix_fallocate posix_fallocate64);
