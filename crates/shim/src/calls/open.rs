//! Opening: a file whose path is of the set comes into it.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::fmt::Write as _;

use nix::errno::Errno;
use nix::libc::{self, mode_t};
use tidewater_files::SYNCS;

use super::members::{SYNCS_ALL, of, place};
use super::{change, give, is_file, stat};
use crate::descriptors::{self, Kind, WRITES_ONLY};
use crate::text::Text;
use crate::{process, real};

fn is_for_writing(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
}

/// Does the call, and finds out what came of it.
pub fn opened(flags: c_int, call: impl Fn(c_int) -> c_int) -> c_int {
    if !process::is_armed() {
        return call(flags);
    }
    // It cuts a file even where it opens it for reading.
    let cuts = flags & libc::O_TRUNC != 0 && flags & libc::O_PATH == 0;
    if !is_for_writing(flags) && !cuts {
        let fd = call(flags);
        descriptors::set(fd, Kind::Other);
        return fd;
    }
    // To cut a file is a change of it: done once it is known what it is.
    let fd = call(flags & !libc::O_TRUNC);
    if fd < 0 {
        return fd;
    }
    let _whole = process::whole();
    descriptors::set(fd, Kind::Other);
    let errno = Errno::last();
    match if is_for_writing(flags) { take(fd, flags) } else { cut_unwritten(fd) } {
        Ok(()) => {
            errno.set();
            fd
        }
        Err(errno) => {
            // SAFETY: it was opened just now.
            unsafe { real::close(fd) };
            descriptors::set(fd, Kind::Other);
            errno.set();
            -1
        }
    }
}

/// Cuts a file that was opened for reading.
fn cut_unwritten(fd: c_int) -> Result<(), Errno> {
    let about = stat(fd)?;
    if about.st_mode & libc::S_IFMT == libc::S_IFDIR {
        return Err(Errno::EISDIR);
    }
    if !is_file(&about) || about.st_size == 0 {
        return Ok(());
    }
    let name = own_name(fd)?;
    // SAFETY: the name ends with a zero byte.
    let writes = |flags| unsafe { real::open(name.as_bytes().as_ptr().cast(), flags, 0) };
    let other = Errno::result(opened(libc::O_WRONLY | libc::O_TRUNC | libc::O_CLOEXEC, writes))?;
    // SAFETY: it was opened just now.
    unsafe { super::descriptors::close(other) };
    Ok(())
}

fn take(fd: c_int, flags: c_int) -> Result<(), Errno> {
    let about = stat(fd)?;
    if flags & SYNCS_ALL != 0 {
        descriptors::set(fd, Kind::Synced);
    }
    if !is_file(&about) {
        return Ok(());
    }
    let cut = flags & libc::O_TRUNC != 0 && about.st_size > 0;
    let Some(place) = place(fd, &about)? else {
        if cut {
            process::order_before(fd)?;
            // SAFETY: a descriptor that was opened just now.
            Errno::result(unsafe { real::ftruncate(fd, 0) })?;
        }
        return Ok(());
    };
    if flags & SYNCS_ALL != 0 {
        match open_without_sync(fd, flags) {
            // Only who has made it may write it, by this descriptor: the system syncs each write as well.
            Ok(()) | Err(Errno::EACCES | Errno::EPERM) => {}
            Err(errno) => return Err(errno),
        }
        process::files()?.table().flag(place, SYNCS);
    }
    let of = of(place, flags);
    descriptors::set(fd, Kind::File(of));
    if of.flags & WRITES_ONLY != 0 && flags & libc::O_CLOEXEC != 0 {
        descriptors::alone(fd);
    }
    if cut {
        change::set_length(fd, 0)?;
    }
    Ok(())
}

/// By which this process can open again what a descriptor is of; with a zero byte at its end.
fn own_name(fd: c_int) -> Result<Text<64>, Errno> {
    let mut name = Text::<64>::new();
    write!(name, "/proc/self/fd/{fd}\0").map_err(|_| Errno::ENAMETOOLONG)?;
    Ok(name)
}

/// The system would sync each write by itself: the same file is opened again without that.
fn open_without_sync(fd: c_int, flags: c_int) -> Result<(), Errno> {
    let name = own_name(fd)?;
    let flags =
        flags & !(SYNCS_ALL | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_TMPFILE);
    // SAFETY: the name ends with a zero byte.
    let again = Errno::result(unsafe { real::open(name.as_bytes().as_ptr().cast(), flags, 0) })?;
    // SAFETY: both are open.
    let moved = Errno::result(unsafe { real::dup3(again, fd, flags & libc::O_CLOEXEC) });
    // SAFETY: it was opened just now.
    unsafe { real::close(again) };
    moved.map(drop)
}

macro_rules! open {
    ($($name:ident)*) => {$(
        /// `open(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the caller's.
            opened(flags, |flags| unsafe { real::open(path, flags, mode) })
        }
    )*};
}
open!(open open64);

macro_rules! openat {
    ($($name:ident)*) => {$(
        /// `openat(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the caller's.
            opened(flags, |flags| unsafe { real::openat(folder, path, flags, mode) })
        }
    )*};
}
openat!(openat openat64);

macro_rules! creat {
    ($($name:ident)*) => {$(
        /// `creat(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: mode_t) -> c_int {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            // SAFETY: the caller's.
            opened(flags, |flags| unsafe { real::open(path, flags, mode) })
        }
    )*};
}
creat!(creat creat64);

macro_rules! open_checked {
    ($($name:ident)*) => {$(
        /// `open(2)` as `_FORTIFY_SOURCE` has it: no mode, since it makes no file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
                return give(Err(Errno::EINVAL));
            }
            // SAFETY: the caller's.
            opened(flags, |flags| unsafe { real::open(path, flags, 0) })
        }
    )*};
}
open_checked!(__open_2 __open64_2);

macro_rules! openat_checked {
    ($($name:ident)*) => {$(
        /// `openat(2)` as `_FORTIFY_SOURCE` has it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
            if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
                return give(Err(Errno::EINVAL));
            }
            // SAFETY: the caller's.
            opened(flags, |flags| unsafe { real::openat(folder, path, flags, 0) })
        }
    )*};
}
openat_checked!(__openat_2 __openat64_2);
