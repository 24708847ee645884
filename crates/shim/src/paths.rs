//! Paths as the system sees them, without memory of the heap.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;

use nix::errno::Errno;
use nix::libc;

use crate::real;
use crate::text::Text;

/// As long as a path can be.
pub type PathText = Text<4096>;

/// Where a descriptor leads. `None`: the system does not tell.
pub fn of(fd: c_int) -> Option<PathText> {
    let mut name = Text::<64>::new();
    write!(name, "/proc/self/fd/{fd}\0").ok()?;
    let mut path = PathText::new();
    let to = path.buffer();
    // SAFETY: the name ends with a zero byte, and so many bytes are there to be filled.
    let len = unsafe { libc::readlink(name.as_bytes().as_ptr().cast(), to.as_mut_ptr().cast(), to.len()) };
    path.filled(usize::try_from(len).ok()?);
    (!path.is_cut() && path.as_bytes().first() == Some(&b'/')).then_some(path)
}

/// Where a folder is, of a process that may open nothing more: a name that is not known to the log is not found after a
/// crash.
fn without_descriptor(folder: c_int, path: &[u8]) -> Option<PathText> {
    let mut name = PathText::new();
    if folder != libc::AT_FDCWD && path.first() != Some(&b'/') {
        write!(name, "/proc/self/fd/{folder}/").ok()?;
    }
    name.push(path);
    name.push(b"\0");
    let mut found = PathText::new();
    let to = found.buffer();
    // SAFETY: the name ends with a zero byte, and as many bytes are there as a path has at most, with its end
    // (PATH_MAX).
    let is_there = unsafe { !libc::realpath(name.as_bytes().as_ptr().cast(), to.as_mut_ptr().cast()).is_null() };
    let len = to.iter().position(|byte| *byte == 0)?;
    found.filled(len);
    (is_there && !name.is_cut()).then_some(found)
}

/// The path of a name in a folder, whether there is anything or not: that of what the name is in, and its last part.
/// `None`: no such folder, or no last part.
///
/// # Safety
/// `path` is null, or ends with a zero byte.
pub unsafe fn of_name(folder: c_int, path: *const c_char) -> Option<PathText> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let path = &path[..path.len() - path.iter().rev().take_while(|byte| **byte == b'/').count()];
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (before, last) = match at {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    if matches!(last, b"" | b"." | b"..") {
        return None;
    }
    let mut name = PathText::new();
    name.push(before);
    name.push(b"\0");
    if name.is_cut() {
        return None;
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { real::openat(folder, name.as_bytes().as_ptr().cast(), flags, 0) };
    let mut found = if fd >= 0 {
        let found = of(fd);
        // SAFETY: it was opened just now.
        unsafe { real::close(fd) };
        found
    } else if matches!(Errno::last(), Errno::EMFILE | Errno::ENFILE) {
        without_descriptor(folder, before)
    } else {
        None
    };
    let path = found.as_mut()?;
    if path.as_bytes() != b"/" {
        path.push(b"/");
    }
    path.push(last);
    found.filter(|path| !path.is_cut())
}
