//! Names: files that come into the set, leave it, or have another name in it. The calls themselves stay real.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use tidewater_client::mapped::Log;
use tidewater_files::{Files, GONE, Moving, PathBytes, Place, RENAMED};

use super::{give, is_file, look, members, stat};
use crate::descriptors::{self, Kind};
use crate::paths::{self, PathText};
use crate::process::{self, refuse};
use crate::real::{self, NextLibrary};

const HERE: c_int = libc::AT_FDCWD;

/// A descriptor for a moment.
struct Opened(c_int);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it was opened for this.
        unsafe { real::close(self.0) };
    }
}

/// Opens a regular file, for reading. Where a process closes any such descriptor of a file, the system gives up all its
/// locks of it (fcntl(2)): so this is for files that have to be read or synced.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn open_file(folder: c_int, path: *const c_char) -> Result<Opened, Errno> {
    // SAFETY: the caller's.
    unsafe { open_as(folder, path, libc::O_RDONLY | libc::O_NONBLOCK) }
}

/// # Safety
/// `path` ends with a zero byte.
unsafe fn open_as(folder: c_int, path: *const c_char, how: c_int) -> Result<Opened, Errno> {
    let flags = how | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the caller's.
    Errno::result(unsafe { real::openat(folder, path, flags, 0) }).map(Opened)
}

/// The file of a name, if it is of the set.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn member(folder: c_int, path: *const c_char, about: &libc::stat) -> Result<Option<Place>, Errno> {
    let files = process::files()?;
    if !is_file(about) || files.table().find(about.st_dev, about.st_ino).is_none() {
        return Ok(None);
    }
    // Another file may have had the inode.
    // SAFETY: the caller's.
    match unsafe { open_as(folder, path, libc::O_PATH) } {
        Ok(file) => Ok(members::find(file.0)),
        // The process may open nothing more, most likely.
        Err(_) => Ok(files.table().find(about.st_dev, about.st_ino)),
    }
}

/// The file of a name, if it is of the set, symbolic links being followed. `Err`: there is none.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn find(path: *const c_char) -> Result<Option<Place>, Errno> {
    // SAFETY: the caller's.
    let file = Errno::result(unsafe { real::open(path, libc::O_PATH | libc::O_CLOEXEC, 0) }).map(Opened)?;
    Ok(members::find(file.0))
}

/// Whether what a name leads to is in memory alone: it waits for no log.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn leads_to_memory(path: *const c_char) -> bool {
    // SAFETY: the caller's.
    let file = Errno::result(unsafe { real::open(path, libc::O_PATH | libc::O_CLOEXEC, 0) }).map(Opened);
    file.is_ok_and(|file| process::is_in_memory(file.0))
}

/// Before a name of something that is not of the set goes: what is on the log comes first.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn order_before(folder: c_int, path: *const c_char) -> Result<(), Errno> {
    // SAFETY: the caller's.
    match unsafe { open_as(folder, path, libc::O_PATH) } {
        Ok(file) => process::order_before(file.0),
        Err(_) => process::order(),
    }
}

/// A file comes into the set by a new name.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn enter(folder: c_int, path: *const c_char, old: &PathText, new: &PathText) -> Result<Option<Place>, Errno> {
    let files = process::files()?;
    // SAFETY: the caller's.
    let file = unsafe { open_file(folder, path) }?;
    let about = stat(file.0)?;
    let place = files.enter_from(process::borrow(file.0), old.as_bytes(), &NextLibrary).map_err(refuse)?;
    let Some(place) = place else { return Ok(None) };
    files.record_path(place, new.as_bytes(), false).map_err(refuse)?;
    // This process may have it open.
    for fd in 0..highest() {
        if let Ok(other) = stat(fd)
            && (other.st_dev, other.st_ino) == (about.st_dev, about.st_ino)
            && fd != file.0
        {
            // SAFETY: a descriptor, open or not.
            let flags = unsafe { real::fcntl(fd, libc::F_GETFL, ptr::null_mut()) };
            if flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0 {
                descriptors::set(fd, Kind::File(members::of(place, flags)));
            }
        }
    }
    Ok(Some(place))
}

/// A number above those of descriptors that are open, as a rule; the lowest that is free tells.
fn highest() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is there to be filled.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    (if known { limit.rlim_cur.min(4096) } else { 1024 }) as c_int
}

/// The last name of a file goes away by a rename over it. Said before: a program that is killed behind the call leaves
/// a file that may be missing. Should the call fail, that is taken back.
fn may_be_missing(place: Option<Place>) -> Result<(), Errno> {
    place.map_or(Ok(()), |place| process::files()?.going(place).map_err(refuse))
}

/// The last name of a file was to go away, and did not.
fn stays(place: Option<Place>) {
    if let Some(place) = place
        && let Ok(files) = process::files()
    {
        files.table().unflag(place, GONE);
    }
}

/// One of a file's names goes away, and it has others, which the log may not know: then it leaves the set. What it is
/// written by from then on brings it back by a name in the set.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn loses_name(place: Place, folder: c_int, path: *const c_char) -> Result<(), Errno> {
    let files = process::files()?;
    // SAFETY: the caller's.
    let Some(name) = (unsafe { paths::of_name(folder, path) }) else { return Ok(()) };
    if !files.is_at(place, name.as_bytes()).map_err(refuse)? {
        return Ok(());
    }
    // SAFETY: the caller's.
    let file = unsafe { open_file(folder, path) }?;
    files.leave(place, process::borrow(file.0), false, &NextLibrary).map_err(refuse)
}

/// Effect of a rename on the set.
enum Moves {
    /// Nothing.
    Nothing,
    /// A file of it has another name, and had this one.
    Within(Place, Moving<'static>, Box<PathText>),
    /// A file comes into it.
    In(Place),
    /// Files below a folder have another path.
    Folder(Box<Moved>),
}

/// The consequences of the move of a folder.
struct Moved {
    before: PathText,
    after: PathText,
    /// Folders, by their new paths, from which files have left the set.
    left: Vec<PathText>,
    /// Those that stay in it.
    _moving: Vec<Moving<'static>>,
}

/// Before a name is given to something else. Which names are which is settled here; what is outside of the set waits
/// for the log.
///
/// # Safety
/// Both paths end with a zero byte.
unsafe fn before_rename(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> Result<Moves, Errno> {
    // SAFETY: the caller's.
    let Some(about) = (unsafe { look(from, old) }) else { return Ok(Moves::Nothing) };
    // SAFETY: the caller's.
    let names = unsafe { paths::of_name(from, old).zip(paths::of_name(to, new)) };
    let Some((before, after)) = names else {
        return process::order().map(|()| Moves::Nothing);
    };
    let matches = process::matches(after.as_bytes());
    if about.st_mode & libc::S_IFMT == libc::S_IFDIR {
        return move_folder(before, after).map(|moved| Moves::Folder(Box::new(moved)));
    }
    // SAFETY: the caller's.
    match unsafe { member(from, old, &about) }? {
        Some(place) if matches => {
            let moving = process::files()?.record_move(place, after.as_bytes(), false).map_err(refuse)?;
            // It has come as far as names may before the name is there: else recovery would look for the file by one
            // that it has not any more.
            process::order().map(|()| Moves::Within(place, moving, Box::new(before)))
        }
        Some(place) => {
            process::order()?;
            // SAFETY: the caller's.
            let file = unsafe { open_file(from, old) }?;
            process::files()?.leave(place, process::borrow(file.0), false, &NextLibrary).map_err(refuse)?;
            Ok(Moves::Nothing)
        }
        None if matches && is_file(&about) => {
            process::order()?;
            // SAFETY: the caller's.
            Ok(unsafe { enter(from, old, &before, &after) }?.map_or(Moves::Nothing, Moves::In))
        }
        // SAFETY: the caller's.
        None => unsafe { order_before(from, old) }.map(|()| Moves::Nothing),
    }
}

/// A rename was done. The next sync of a file makes its new name durable, as a file system does; and one that came into
/// the set has it at once: recovery would find it by a name that is not of the set.
fn after_rename(moves: Moves) {
    let Ok(files) = process::files() else { return };
    match moves {
        Moves::Nothing => {}
        Moves::Within(place, _moving, _) => files.table().flag(place, RENAMED),
        Moves::In(place) => {
            files.table().flag(place, RENAMED);
            // Should it fail, the next sync of the file tries again, and says so.
            let _ = files.sync_folder(place, &NextLibrary);
        }
        Moves::Folder(moved) => {
            let Moved { after, left, _moving, .. } = *moved;
            for folder in left {
                // The log has their end: the marker that went along is of no use. Should it stay, starts say so.
                let _ = files.leave_folder(folder.as_bytes());
            }
            for (place, _) in below(files, &after) {
                files.table().flag(place, RENAMED);
            }
        }
    }
}

/// A rename was not done. What was said of it is taken back: the supervisor would look for the files where they are
/// not, and take the markers away where they are. Where the log does not take that, it has failed for good.
///
/// # Safety
/// The path ends with a zero byte.
unsafe fn not_renamed(moves: Moves, from: c_int, old: *const c_char) {
    let Ok(files) = process::files() else { return };
    match moves {
        Moves::Nothing => {}
        Moves::Within(place, _moving, before) => drop(files.record_path(place, before.as_bytes(), false)),
        Moves::In(place) => {
            // SAFETY: the caller's.
            if let Ok(file) = unsafe { open_file(from, old) } {
                let _ = files.leave(place, process::borrow(file.0), false, &NextLibrary);
            }
        }
        Moves::Folder(moved) => {
            let Moved { before, after, _moving, .. } = *moved;
            for (place, path) in below(files, &after) {
                let mut was = before;
                was.push(&path.as_bytes()[after.as_bytes().len()..]);
                let _ = files.record_path(place, was.as_bytes(), true);
            }
        }
    }
}

/// The files of the set that are below a folder, and where.
fn below<'f>(files: &'f Files<Log>, folder: &PathText) -> impl Iterator<Item = (Place, PathBytes)> + use<'f> {
    let folder = *folder;
    let paths = files.table().entries().map(|place| (place, files.table().path(place)));
    paths.filter(move |(_, path)| {
        path.as_bytes().strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
    })
}

/// A folder moves: files of the set that are below it have other paths, and may leave the set.
fn move_folder(before: PathText, after: PathText) -> Result<Moved, Errno> {
    process::order()?;
    let files = process::files()?;
    let (mut moving, mut left) = (Vec::new(), Vec::new());
    for (place, path) in below(files, &before) {
        let rest = &path.as_bytes()[before.as_bytes().len()..];
        let mut moved = PathText::new();
        moved.push(after.as_bytes());
        moved.push(rest);
        if !moved.is_cut() && process::matches(moved.as_bytes()) {
            moving.push(files.record_move(place, moved.as_bytes(), true).map_err(refuse)?);
            continue;
        }
        let folder = rest.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let mut from = PathText::new();
        from.push(after.as_bytes());
        from.push(&rest[..folder]);
        if !left.iter().any(|one: &PathText| one.as_bytes() == from.as_bytes()) {
            left.push(from);
        }
        let mut name = PathText::new();
        name.push(path.as_bytes());
        name.push(b"\0");
        // SAFETY: it ends with a zero byte.
        if let Ok(file) = unsafe { open_file(HERE, name.as_bytes().as_ptr().cast()) } {
            files.leave(place, process::borrow(file.0), false, &NextLibrary).map_err(refuse)?;
        }
    }
    // One whose last file was removed just now has a marker still.
    if !left.iter().any(|one| one.as_bytes() == after.as_bytes()) {
        left.push(after);
    }
    if !moving.is_empty() {
        process::order()?;
    }
    Ok(Moved { before, after, left, _moving: moving })
}

/// Whether a call on a folder failed since that, or the one at its new name, is not empty (POSIX has either).
fn is_not_empty(done: c_int) -> bool {
    done != 0 && matches!(Errno::last(), Errno::ENOTEMPTY | Errno::EEXIST)
}

/// Does a call again that failed since a folder is not empty, once the run's marker is not in it.
///
/// # Safety
/// The path is null, or ends with a zero byte.
unsafe fn without_marker(folder: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    let errno = Errno::last();
    let failed = || {
        errno.set();
        -1
    };
    let _whole = process::whole();
    // SAFETY: the caller's.
    let Some(name) = (unsafe { paths::of_name(folder, path) }) else { return failed() };
    let Ok(files) = process::files() else { return failed() };
    files.without_marker(name.as_bytes(), call).unwrap_or_else(|_| failed())
}

/// # Safety
/// Both paths end with a zero byte.
unsafe fn renamed(
    (from, old): (c_int, *const c_char),
    (to, new): (c_int, *const c_char),
    flags: c_uint,
    call: impl Fn() -> c_int,
) -> c_int {
    if !process::is_armed() || old.is_null() || new.is_null() {
        return call();
    }
    let _whole = process::whole();
    // SAFETY: the caller's.
    let is_same = unsafe { look(from, old).zip(look(to, new)) }
        .is_some_and(|(one, other)| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino));
    if is_same {
        // Two names of one file: both stay (rename(2)).
        return match process::order() {
            Ok(()) => call(),
            Err(errno) => give(Err(errno)),
        };
    }
    // SAFETY: the caller's.
    let ready = unsafe { before_rename(from, old, to, new) };
    let ready = match ready {
        Ok(moves) if flags & libc::RENAME_EXCHANGE != 0 => {
            // SAFETY: the caller's.
            unsafe { before_rename(to, new, from, old) }.map(|back| (moves, back))
        }
        ready => ready.map(|moves| (moves, Moves::Nothing)),
    };
    let (moves, back) = match ready {
        Ok(ready) => ready,
        Err(errno) => return give(Err(errno)),
    };
    // SAFETY: the caller's.
    match unsafe { before_loss(to, new, flags) } {
        Ok(goes) => {
            let mut done = call();
            if matches!(moves, Moves::Folder(_)) && flags == 0 && is_not_empty(done) {
                // SAFETY: the caller's.
                done = unsafe { without_marker(to, new, call) };
            }
            let errno = Errno::last();
            // SAFETY: the caller's.
            unsafe {
                if done == 0 {
                    after_rename(moves);
                    after_rename(back);
                } else {
                    stays(goes);
                    not_renamed(moves, from, old);
                    not_renamed(back, to, new);
                }
            }
            errno.set();
            done
        }
        Err(errno) => {
            // SAFETY: the caller's.
            unsafe {
                not_renamed(moves, from, old);
                not_renamed(back, to, new);
            }
            give(Err(errno))
        }
    }
}

/// Before something else gets a name: what has it loses it. Returns the file whose last one it is.
///
/// # Safety
/// The path ends with a zero byte.
unsafe fn before_loss(to: c_int, new: *const c_char, flags: c_uint) -> Result<Option<Place>, Errno> {
    // SAFETY: the caller's.
    let Some(about) = (unsafe { look(to, new) }) else { return Ok(None) };
    if flags & (libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) != 0 {
        return Ok(None);
    }
    // SAFETY: the caller's.
    match unsafe { member(to, new, &about) }? {
        // SAFETY: the caller's.
        Some(place) if about.st_nlink > 1 => unsafe { loses_name(place, to, new) }.map(|()| None),
        place => may_be_missing(place).map(|()| place),
    }
}

/// `rename(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { renamed((HERE, old), (HERE, new), 0, || real::rename(old, new)) }
}

/// `renameat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { renamed((from, old), (to, new), 0, || real::renameat(from, old, to, new)) }
}

/// `renameat2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { renamed((from, old), (to, new), flags, || real::renameat2(from, old, to, new, flags)) }
}

/// # Safety
/// The new path ends with a zero byte.
unsafe fn linked((to, new): (c_int, *const c_char), call: impl FnOnce() -> c_int) -> c_int {
    let done = call();
    if done != 0 || !process::is_armed() {
        return done;
    }
    let _whole = process::whole();
    let result = (|| {
        // SAFETY: the caller's.
        let Some(after) = (unsafe { paths::of_name(to, new) }) else { return Ok(()) };
        // SAFETY: the caller's; a link was just made.
        let Some(about) = (unsafe { look(to, new) }).filter(is_file) else { return Ok(()) };
        if !process::matches(after.as_bytes()) {
            return Ok(());
        }
        // SAFETY: the caller's.
        match unsafe { member(to, new, &about) }? {
            // The newest name is the one that most likely stays: `link` and `unlink` are how some rename.
            Some(place) => process::files()?.record_path(place, after.as_bytes(), false).map_err(refuse),
            // By its new name, which is made durable: it may have no other (O_TMPFILE).
            // SAFETY: the caller's.
            None => unsafe { enter(to, new, &after, &after) }.map(drop),
        }
    })();
    match result {
        Ok(()) => done,
        Err(errno) => give(Err(errno)),
    }
}

/// `link(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { linked((HERE, new), || real::link(old, new)) }
}

/// `linkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { linked((to, new), || real::linkat(from, old, to, new, flags)) }
}

/// # Safety
/// The path ends with a zero byte.
unsafe fn unlinked(folder: c_int, path: *const c_char, call: impl Fn() -> c_int) -> c_int {
    if !process::is_armed() || path.is_null() {
        return call();
    }
    let _whole = process::whole();
    // SAFETY: the caller's.
    let Some(about) = (unsafe { look(folder, path) }) else { return call() };
    // SAFETY: the caller's.
    let ready = match unsafe { member(folder, path, &about) } {
        // SAFETY: the caller's.
        Ok(None) => unsafe { order_before(folder, path) }.map(|()| None),
        found => found,
    };
    match ready {
        Ok(None) => {
            let done = call();
            // SAFETY: the caller's.
            if is_not_empty(done) { unsafe { without_marker(folder, path, call) } } else { done }
        }
        Ok(Some(place)) if about.st_nlink > 1 => {
            // SAFETY: the caller's.
            let lost = unsafe { loses_name(place, folder, path) };
            // Before it is lost, the log has those that stay.
            match lost.and_then(|()| process::order()) {
                Ok(()) => call(),
                Err(errno) => give(Err(errno)),
            }
        }
        Ok(Some(place)) => {
            let files = match process::files() {
                Ok(files) => files,
                Err(errno) => return give(Err(errno)),
            };
            if let Err(error) = files.going(place) {
                return give(Err(refuse(error)));
            }
            let done = call();
            if done != 0 {
                let errno = Errno::last();
                stays(Some(place));
                errno.set();
            }
            done
        }
        Err(errno) => give(Err(errno)),
    }
}

/// `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { unlinked(HERE, path, || real::unlink(path)) }
}

/// `unlinkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { unlinked(folder, path, || real::unlinkat(folder, path, flags)) }
}

/// `remove(3)`, which does not come by here in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { unlinked(HERE, path, || real::remove(path)) }
}

/// `rmdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's.
    let call = || unsafe { real::rmdir(path) };
    let done = call();
    // SAFETY: the caller's.
    if process::is_armed() && is_not_empty(done) { unsafe { without_marker(HERE, path, call) } } else { done }
}
