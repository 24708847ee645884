//! Files on a log, for layers that see every write: `tidewater_files(3)` describes what is here; `tidewater.h`
//! has it too.
#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use ::tidewater_files::{Changed, EmbeddedFiles, Fate, FilesError, Globs, ReplayError, RunError, Setup};
use nix::libc::iovec;

use crate::convert::{bytes, options_of};
use crate::report::{Failure, run};
use crate::tidewater_options;

/// The files of this process on a log. Threads share it; a fork does not.
pub struct tidewater_files {
    files: EmbeddedFiles,
}

/// Does to the file itself what was put on the log. Returns whether all of it was done: any value but 0, or 0 where it
/// was not. It is called by the thread that changes the file, while no other can change it; it must not call functions
/// of this library.
pub type tidewater_real = Option<unsafe extern "C" fn(with: *mut c_void) -> c_int>;

/// As tidewater_real, of bytes that are to be written from where they lie.
pub type tidewater_real_write =
    Option<unsafe extern "C" fn(with: *mut c_void, bytes: *const c_void, len: usize) -> c_int>;

fn files_error(error: &FilesError) -> Failure {
    let errno = match error {
        FilesError::Log(error) => error.errno(),
        FilesError::Failed(number) => *number as c_int,
        FilesError::System(errno) => *errno as c_int,
        FilesError::TooMany => nix::libc::ENFILE,
        FilesError::Foreign(_) => nix::libc::EBUSY,
    };
    Failure::Known { errno, why: error.to_string() }
}

fn run_error(error: &RunError) -> Failure {
    let of = |error: &std::io::Error| error.raw_os_error().unwrap_or(nix::libc::EIO);
    let errno = match error {
        RunError::Log(error) | RunError::Replay(ReplayError::Log(error)) => error.errno(),
        RunError::Replay(ReplayError::File { error, .. } | ReplayError::Marker { error })
        | RunError::System { error, .. } => of(error),
        RunError::Replay(_) => nix::libc::EIO,
        RunError::File { error: FilesError::System(errno), .. } => *errno as c_int,
        RunError::File { .. } => nix::libc::EIO,
        RunError::Foreign(_) => nix::libc::EBUSY,
        RunError::Held => nix::libc::ENOSPC,
    };
    let mut why = error.to_string();
    if let RunError::Replay(ReplayError::Refused(report)) = error
        && let Some(file) = report.files.iter().find(|file| file.fate.is_bad())
    {
        // The report is not printed here.
        let of_file = if let Fate::Refused(of_file) = &file.fate { of_file } else { "it is missing" };
        why += &format!(": {}: {of_file} (tidewater recover)", file.path.display());
    }
    Failure::Known { errno, why }
}

/// SAFETY: a pointer to a handle of this library that lives, or NULL.
unsafe fn files<'f>(files: *const tidewater_files) -> Result<&'f EmbeddedFiles, Failure> {
    // SAFETY: the caller's.
    unsafe { files.as_ref() }.map(|files| &files.files).ok_or(Failure::Call("files is NULL"))
}

fn number_of(number: i64) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure::Call("number is none of tidewater_files_enter"))
}

/// SAFETY: a string, or NULL.
unsafe fn text<'t>(text: *const c_char, why: &'static str) -> Result<&'t CStr, Failure> {
    // SAFETY: the caller's; not NULL.
    if text.is_null() { Err(Failure::Call(why)) } else { Ok(unsafe { CStr::from_ptr(text) }) }
}

/// SAFETY: `real` may be called with `with`.
unsafe fn calls(real: tidewater_real, with: *mut c_void) -> Result<impl Fn() -> bool, Failure> {
    let real = real.ok_or(Failure::Call("the function to call is NULL"))?;
    // SAFETY: the caller's.
    Ok(move || unsafe { real(with) != 0 })
}

/// A call that the caller lets any thread make.
struct Shared<F>(F);

// SAFETY: the caller's, of tidewater_files_keep.
unsafe impl<F> Send for Shared<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for Shared<F> {}

impl<F: Fn() -> bool> Shared<F> {
    fn call(&self) -> bool {
        (self.0)()
    }
}

fn done(changed: Result<Changed, FilesError>) -> Result<c_int, Failure> {
    match changed {
        Ok(Changed::Done) => Ok(0),
        Ok(Changed::Failed) => Ok(1),
        Err(error) => Err(files_error(&error)),
    }
}

/// Opens the lane at "vfio-user:SOCKET" for files of this process, and applies to its files what an earlier process
/// left in it. While it is open, the files are synced in the background and the log is trimmed behind them. Of the
/// options `lane` and `level` count. Returns NULL and sets errno when that fails; EBUSY: another process has the
/// device, or writes the lane.
///
/// "window:LBA+BLOCKS:TARGET", TARGET being "vfio-user:SOCKET" or "pci:ADDRESS": the log lies in these blocks of
/// namespace 1 of a drive with a byte window, and syncs are BA_SYNCs. ENOTSUP: the window's memory survives nothing, or
/// the level is not TIDEWATER_DESTAGED; EEXIST: the blocks hold something else.
///
/// # Safety
/// `target` is a string; `options` points to a structure, or is NULL: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_open(
    target: *const c_char,
    options: *const tidewater_options,
) -> *mut tidewater_files {
    run(ptr::null_mut(), || {
        // SAFETY: the caller's.
        let (target, options) = unsafe { (text(target, "target is NULL")?, options.as_ref()) };
        let target = target.to_str().map_err(|_| Failure::Call("target is no UTF-8"))?.to_owned();
        let options = options_of(options)?;
        // The program says which files: any of its own may come back.
        let (globs, owners) = (Globs::from_text("/**"), Vec::new());
        let (lane, level) = (options.lane, options.level);
        let adopt = std::env::var_os("TIDEWATER_ADOPT").is_some_and(|value| value == "1");
        let setup = Setup { target, lane, level, globs, owners, forget: false, adopt };
        let (files, _) = EmbeddedFiles::open(&setup).map_err(|error| run_error(&error))?;
        Ok(Box::into_raw(Box::new(tidewater_files { files })))
    })
}

/// Syncs all files, empties the log and closes it. 0, or -1 and errno: the log keeps what it has, and the process that
/// opens it next applies it. In both cases the handle is gone. NULL is allowed. A child of a fork closes its copy of
/// the handle, and no more: files and log are its parent's.
///
/// # Safety
/// `files` is of tidewater_files_open, no other call is using it, and it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_close(files: *mut tidewater_files) -> c_int {
    run(-1, || {
        if files.is_null() {
            return Ok(0);
        }
        // SAFETY: the caller's; it was made by tidewater_files_open.
        let files = unsafe { Box::from_raw(files) };
        files.files.finish().map(|_| 0).map_err(|error| run_error(&error))
    })
}

/// A file of this name, which exists, is about to be written to: what it is now is made durable, and its changes are
/// logged from here on. Returns the number of the file, or -1 and errno.
///
/// # Safety
/// `files` is open; `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_enter(files: *const tidewater_files, path: *const c_char) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, path) = unsafe { (self::files(files)?, text(path, "path is NULL")?) };
        let number = files.enter(Path::new(OsStr::from_bytes(path.to_bytes())));
        number.map(|number| number as i64).map_err(|error| files_error(&error))
    })
}

/// As tidewater_files_enter, of a file that the process may have locked by fcntl(2), such as a database: the library
/// opens it once, and closes it with the log. For where a process closes any descriptor of a file, the system gives up
/// all its locks of it.
///
/// # Safety
/// `files` is open; `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_enter_locked(files: *const tidewater_files, path: *const c_char) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, path) = unsafe { (self::files(files)?, text(path, "path is NULL")?) };
        let number = files.enter_locked(Path::new(OsStr::from_bytes(path.to_bytes())));
        number.map(|number| number as i64).map_err(|error| files_error(&error))
    })
}

/// This number names no file any more, which another file may get; what is kept of the file goes to it first. The
/// log keeps what it has of the file until that is synced. 0, or -1 and errno.
///
/// # Safety
/// `files` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_leave(files: *const tidewater_files, number: i64) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let files = unsafe { self::files(files)? };
        files.close(number_of(number)?).map(|()| 0).map_err(|error| files_error(&error))
    })
}

/// Writes bytes to a file: puts them on the log, then calls `real`. `buf` must not change until this returns.
/// Returns 0; 1 when `real` returned 0: then the log has what the file has now; -1 and errno when the log could not
/// take them: then `real` was not called, or what the file has is not known to the log, and nothing is promised any
/// more.
///
/// # Safety
/// `files` is open; `buf` has `len` bytes; `real` may be called with `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_write(
    files: *const tidewater_files,
    number: i64,
    buf: *const c_void,
    len: usize,
    offset: i64,
    real: tidewater_real,
    with: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, bytes, real) = unsafe { (self::files(files)?, bytes(buf, len)?, calls(real, with)?) };
        let offset = u64::try_from(offset).map_err(|_| Failure::Call("offset is less than 0"))?;
        done(files.write(number_of(number)?, offset, bytes, real))
    })
}

/// As tidewater_files_write, of the bytes of two parts that lie in the file one after the other, such as a head and its
/// page. `real` is called with all of them, where they lie one after the other: so the layer need not put them
/// together.
///
/// # Safety
/// `files` is open; `frame` are two parts, each with its bytes; `real` may be called with `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_write_frame(
    files: *const tidewater_files,
    number: i64,
    frame: *const iovec,
    offset: i64,
    real: tidewater_real_write,
    with: *mut c_void,
) -> c_int {
    run(-1, || {
        if frame.is_null() {
            return Err(Failure::Call("frame is NULL"));
        }
        // SAFETY: the caller's.
        let (files, [head, body]) = unsafe { (self::files(files)?, &*frame.cast::<[iovec; 2]>()) };
        // SAFETY: the caller's.
        let parts = unsafe { [bytes(head.iov_base, head.iov_len)?, bytes(body.iov_base, body.iov_len)?] };
        let real = real.ok_or(Failure::Call("the function to call is NULL"))?;
        let offset = u64::try_from(offset).map_err(|_| Failure::Call("offset is less than 0"))?;
        // SAFETY: the caller's.
        let real = |bytes: &[u8]| unsafe { real(with, bytes.as_ptr().cast(), bytes.len()) != 0 };
        done(files.write_frame(number_of(number)?, offset, parts, real))
    })
}

/// From now on the layer may keep for a while what it is asked to write, instead of writing it: `bring` writes what it
/// has kept, and returns any value but 0 where all of it was written. It is called as `real` is, by any thread, before
/// the file is synced, gets another length or is left, and by tidewater_files_catch_up. A process that dies leaves what
/// it kept on the log, for the process that opens that next. 0, or -1 and errno.
///
/// # Safety
/// `files` is open; `bring` may be called with `with`, by any thread, until the number is given back and until `files`
/// is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_keep(
    files: *const tidewater_files,
    number: i64,
    bring: tidewater_real,
    with: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, bring) = unsafe { (self::files(files)?, calls(bring, with)?) };
        let bring = Shared(bring);
        files.defer(number_of(number)?, Arc::new(move || bring.call())).map(|()| 0).map_err(|error| files_error(&error))
    })
}

/// Writes the kept changes of a file to it, -1: of all files: to be called before it is read. 0, or -1 and errno: it
/// could not, and the log alone has it.
///
/// # Safety
/// `files` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_catch_up(files: *const tidewater_files, number: i64) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let files = unsafe { self::files(files)? };
        let number = if number == -1 { None } else { Some(number_of(number)?) };
        files.catch_up(number).map(|()| 0).map_err(|error| files_error(&error))
    })
}

/// Gives a file a length: tells the log, then calls `real`. Returns as tidewater_files_write.
///
/// # Safety
/// `files` is open; `real` may be called with `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_truncate(
    files: *const tidewater_files,
    number: i64,
    len: i64,
    real: tidewater_real,
    with: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, real) = unsafe { (self::files(files)?, calls(real, with)?) };
        let len = u64::try_from(len).map_err(|_| Failure::Call("len is less than 0"))?;
        done(files.truncate(number_of(number)?, len, real))
    })
}

/// Removes a file by its name, of the log or not, or an empty directory: says so on the log, which must come first,
/// then calls `real`. Returns as tidewater_files_write.
///
/// # Safety
/// `files` is open; `path` is a string; `real` may be called with `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_remove(
    files: *const tidewater_files,
    path: *const c_char,
    real: tidewater_real,
    with: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, path, real) = unsafe { (self::files(files)?, text(path, "path is NULL")?, calls(real, with)?) };
        done(files.remove(Path::new(OsStr::from_bytes(path.to_bytes())), real))
    })
}

/// Gives a file or a folder another name, be it of the log or not: says so on the log, which must come first, then
/// calls `real`. What is kept of the file goes to it before. Returns as tidewater_files_write.
///
/// # Safety
/// `files` is open; `from` and `to` are strings; `real` may be called with `with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_rename(
    files: *const tidewater_files,
    from: *const c_char,
    to: *const c_char,
    real: tidewater_real,
    with: *mut c_void,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (files, from, to, real) =
            unsafe { (self::files(files)?, text(from, "from is NULL")?, text(to, "to is NULL")?, calls(real, with)?) };
        let path = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
        done(files.rename(&path(from), &path(to), real))
    })
}

/// Waits until all that was written so far, to any file of the log, is at the log's level: instead of a sync of the
/// file. 0, or -1 and errno, for good.
///
/// # Safety
/// `files` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_sync(files: *const tidewater_files, number: i64) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let files = unsafe { self::files(files)? };
        files.sync(number_of(number)?).map(|()| 0).map_err(|error| files_error(&error))
    })
}

/// To be called before any other file is synced, renamed or truncated: waits until the log survives whatever that
/// survives. 0, or -1 and errno, for good.
///
/// # Safety
/// `files` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_files_order(files: *const tidewater_files) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let files = unsafe { self::files(files)? };
        files.order().map(|()| 0).map_err(|error| files_error(&error))
    })
}
