//! Paths as the system sees them, without memory of the heap.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;

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

/// The path of a name in a folder, whether there is anything or not: that of what the name is in, and its last part. `None`: no such folder, or no last
/// part.
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
    if fd < 0 {
        return None;
    }
    let mut found = of(fd);
    // SAFETY: it was opened just now.
    unsafe { real::close(fd) };
    let path = found.as_mut()?;
    if path.as_bytes() != b"/" {
        path.push(b"/");
    }
    path.push(last);
    found.filter(|path| !path.is_cut())
}
