//! The functions that stand here in place of the C library's. Each does for a file of the set what
//! [`tidewater_files`] says, and passes on everything else unchanged, with the error number that the next
//! library left.
//!
//! # Safety
//! Each has the parameters of the C library's function of its name, and asks of its caller what that does. Functions
//! with variable parameters are defined with fixed ones, which is the same for a caller on the architectures that Linux
//! runs on.

mod begin;
mod change;
mod children;
mod descriptors;
mod mapped;
mod members;
mod names;
mod open;
mod printed;
mod raw;
mod refused;
mod rewrite;
mod sync;
mod write;

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::libc;

/// The result of a call, as C has it.
fn give<T: From<i8>>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

/// fstat(2).
#[allow(unsafe_code)]
fn stat(fd: i32) -> Result<libc::stat, Errno> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `about` is there to be filled, and is when the call says so.
    Errno::result(unsafe { libc::fstat(fd, about.as_mut_ptr()) })?;
    // SAFETY: as above.
    Ok(unsafe { about.assume_init() })
}

/// The file of a name, by fstatat(2). Symbolic links are not followed.
///
/// # Safety
/// `path` ends with a zero byte.
#[allow(unsafe_code)]
unsafe fn look(folder: c_int, path: *const c_char) -> Option<libc::stat> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the caller's; `about` is there to be filled.
    let found = unsafe { libc::fstatat(folder, path, about.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) } == 0;
    // SAFETY: it was filled.
    found.then(|| unsafe { about.assume_init() })
}

fn is_file(about: &libc::stat) -> bool {
    about.st_mode & libc::S_IFMT == libc::S_IFREG
}
