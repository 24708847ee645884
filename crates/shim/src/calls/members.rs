//! Files of the set, by the descriptors that a program has of them.
#![allow(unsafe_code)]

use std::ffi::c_int;

use nix::errno::Errno;
use nix::libc;
use tidewater_files::{ASKS, GONE, Place, SYNCS};

use super::{is_file, look, stat};
use crate::descriptors::{self, APPEND, DIRECT, DSYNC, Kind, Of, SYNC, WRITES_ONLY};
use crate::paths::PathText;
use crate::process::{self, Warning, warn};
use crate::real::NextLibrary;

/// Flags that a file of the set does not pass on to the system.
pub const SYNCS_ALL: c_int = libc::O_SYNC | libc::O_DSYNC;

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
pub fn place(fd: c_int, about: &libc::stat) -> Result<Option<Place>, Errno> {
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
    files.enter(process::borrow(fd), path.as_bytes(), &NextLibrary).map_err(process::refuse)
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
    unsafe { look(libc::AT_FDCWD, name.as_bytes().as_ptr().cast()) }
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
    files.leave(place, process::borrow(fd), true, &NextLibrary).map_err(process::refuse)
}
