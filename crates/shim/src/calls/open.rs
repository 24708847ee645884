//! Opening: a file whose path is of the set comes into it.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::fmt::Write as _;

use nix::errno::Errno;
use nix::libc::{self, mode_t};
use tidewater_files::{ASKS, GONE, Place, SYNCS};

use super::{give, is_file, names, stat};
use crate::descriptors::{self, APPEND, DIRECT, DSYNC, Kind, Of, SYNC, WRITES_ONLY};
use crate::paths::PathText;
use crate::process::{self, Warning, warn};
use crate::real::{self, NextLibrary};
use crate::text::Text;

/// Flags that a file of the set does not pass on to the system.
const SYNCS_ALL: c_int = libc::O_SYNC | libc::O_DSYNC;

fn is_for_writing(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
}

/// A descriptor of a file in the set, which was opened with these flags.
pub fn of(place: Place, flags: c_int) -> Of {
    let mut is = 0;
    // O_SYNC has the bit of O_DSYNC in it (open(2)).
    if flags & libc::O_SYNC == libc::O_SYNC {
        is |= SYNC;
    } else if flags & libc::O_DSYNC != 0 {
        is |= DSYNC;
    }
    if flags & libc::O_APPEND != 0 {
        is |= APPEND;
    }
    if flags & libc::O_ACCMODE == libc::O_WRONLY {
        is |= WRITES_ONLY;
    }
    if flags & libc::O_DIRECT != 0 {
        is |= DIRECT;
    }
    Of { place, flags: is }
}

/// The place of a file that a descriptor is of, if it is of the set.
fn place(fd: c_int, about: &libc::stat) -> Result<Option<Place>, Errno> {
    if about.st_nlink == 0 {
        return Ok(None);
    }
    let Some(path) = process::path_of(fd) else { return Ok(None) };
    let was_removed = was_removed(&path, about);
    if was_removed || !process::matches(path.as_bytes()) {
        // By another of its names it may be of the set. A name that is gone is none of those that it has.
        let own = if was_removed { 0 } else { 1 };
        return Ok(if about.st_nlink > own { find(fd).filter(|place| !is_gone(*place)) } else { None });
    }
    if !descriptors::fits(fd) {
        return Err(Errno::EMFILE);
    }
    let files = process::files()?;
    files.enter(process::borrow(fd), path.as_bytes(), &NextLibrary).map_err(|error| process::refuse(&error))
}

fn is_gone(place: Place) -> bool {
    process::files().is_ok_and(|files| files.table().flags(place) & GONE != 0)
}

/// Whether the name by which a file was opened is not there any more, which the system adds to it (proc(5)), and which
/// a name may really end with.
fn was_removed(path: &PathText, about: &libc::stat) -> bool {
    if !path.as_bytes().ends_with(b" (deleted)") {
        return false;
    }
    let mut name = *path;
    name.push(b"\0");
    // SAFETY: it ends with a zero byte.
    unsafe { names::look(libc::AT_FDCWD, name.as_bytes().as_ptr().cast()) }
        .is_none_or(|found| (found.st_dev, found.st_ino) != (about.st_dev, about.st_ino))
}

/// The place of a descriptor's file, which had this one: the same while it is of the set; else the one that it has now,
/// which it comes into if it has a name there.
fn current(fd: c_int, had: Place) -> Result<Option<Place>, Errno> {
    if process::files()?.table().is(had) { Ok(Some(had)) } else { place(fd, &stat(fd)?) }
}

/// A descriptor that came from another program, for writing.
pub fn take_up(fd: c_int, flags: c_int) {
    let Ok(about) = stat(fd) else { return };
    if is_file(&about)
        && let Ok(Some(place)) = place(fd, &about)
    {
        let mut of = of(place, flags);
        if process::files().is_ok_and(|files| files.table().flags(place) & SYNCS != 0) {
            of.flags |= SYNC;
        }
        descriptors::set(fd, Kind::File(of));
    } else if flags & SYNCS_ALL != 0 {
        descriptors::set(fd, Kind::Synced);
    }
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
        super::write::set_length(fd, 0)?;
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

/// A file that has left the set comes into it again if it has a name there, and its descriptor with it: the supervisor
/// may have looked for it while it was being renamed, and another descriptor may have brought it back already. Else
/// what is written by one would be on the log and what is written by the other not, and a sync would promise both.
/// `None`: it stays out.
#[cold]
pub fn again(fd: c_int, of: Of) -> Result<Option<Of>, Errno> {
    let files = process::files()?;
    // It is the one it was where it is real.
    let Some(place) = current(fd, of.place)?.filter(|place| *place != of.place) else { return Ok(None) };
    // Whether it appends was noted beside the place that it had.
    files.table().flag(place, if of.flags & (SYNC | DSYNC) != 0 { ASKS | SYNCS } else { ASKS });
    let of = Of { place, ..of };
    descriptors::set(fd, Kind::File(of));
    Ok(Some(of))
}

/// Finds the file of a descriptor that is not known to be of the set: opened for reading, or before the file came into
/// it.
pub fn find(fd: c_int) -> Option<Place> {
    stat(fd).ok().filter(is_file)?;
    process::files().ok()?.find(process::borrow(fd)).ok()?
}

/// A file that had left the set was written beside the log. Should another descriptor have brought it back meanwhile,
/// it has bytes that no record has.
#[cold]
pub fn was_passed_by(fd: c_int) {
    if let Some(place) = find(fd)
        && let Ok(files) = process::files()
    {
        files.was_passed_by(place);
    }
}

/// From now on what happens to the file is not recorded, and its syncs are real.
pub fn make_real(place: Place, fd: c_int, why: &str) -> Result<(), Errno> {
    let _whole = process::whole();
    let files = process::files()?;
    let Some(place) = current(fd, place)? else { return Ok(()) };
    if files.table().flags(place) & tidewater_files::REAL == 0 {
        // A server that does it to file after file, each time in a process of its own, has it said once.
        if files.table().is_news(why) {
            let path = files.table().path(place);
            let path = String::from_utf8_lossy(path.as_bytes());
            warn(
                Warning::Real,
                format_args!(
                    "{path}: {why}, which can't be recorded: it is synced by itself from now on (said once a run)"
                ),
            );
        }
    }
    files.leave(place, process::borrow(fd), true, &NextLibrary).map_err(|error| process::refuse(&error))
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
