//! Descriptors that are copied and closed.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use nix::errno::Errno;
use nix::libc::{self, FILE, off_t};
use tidewater_files::ASKS;

use super::{give, refused};
use crate::descriptors::{self, DSYNC, Kind, SYNC};
use crate::{process, real};

/// A copy of a descriptor.
fn copied(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let kind = descriptors::kind(fd);
    if kind == Kind::Own {
        return give(Err(Errno::EBADF));
    }
    let is_file = matches!(kind, Kind::File(_));
    if is_file {
        descriptors::share(fd);
    }
    let copy = call();
    if copy >= 0 && copy != fd {
        if is_file && !descriptors::fits(copy) {
            // SAFETY: it was made just now.
            unsafe { real::close(copy) };
            return give(Err(Errno::EMFILE));
        }
        descriptors::set(copy, kind);
    }
    copy
}

/// `dup(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    copied(fd, || unsafe { real::dup(fd) })
}

/// `dup2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if descriptors::kind(to) == Kind::Own {
        return give(Err(Errno::EBUSY));
    }
    // SAFETY: the caller's.
    copied(fd, || unsafe { real::dup2(fd, to) })
}

/// `dup3(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if descriptors::kind(to) == Kind::Own {
        return give(Err(Errno::EBUSY));
    }
    // SAFETY: the caller's.
    copied(fd, || unsafe { real::dup3(fd, to, flags) })
}

/// `close(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    match descriptors::kind(fd) {
        Kind::Own => return give(Err(Errno::EBADF)),
        // Before the number may be another's.
        Kind::File(_) | Kind::Synced => descriptors::set(fd, Kind::Other),
        Kind::Other => {}
    }
    // SAFETY: the caller's.
    unsafe { real::close(fd) }
}

/// A stream is about to close its descriptor, within the C library.
///
/// # Safety
/// The stream is open, or null.
unsafe fn closes(stream: *mut FILE) {
    if process::is_armed() && !stream.is_null() {
        // SAFETY: the caller's.
        descriptors::set(unsafe { libc::fileno(stream) }, Kind::Other);
    }
}

/// `fclose(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        closes(stream);
        real::fclose(stream)
    }
}

macro_rules! freopen {
    ($($name:ident)*) => {$(
        /// `freopen(3)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            // SAFETY: the caller's.
            unsafe {
                closes(stream);
                let stream = real::freopen(path, mode, stream);
                if !stream.is_null()
                    && process::is_armed()
                    && refused::writes(mode)
                    && let Err(errno) = refused::streams(stream)
                {
                    real::fclose(stream);
                    errno.set();
                    return std::ptr::null_mut();
                }
                stream
            }
        }
    )*};
}
freopen!(freopen freopen64);

/// `daemon(3)`, which gives the standard descriptors to something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(stays: c_int, keeps: c_int) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::daemon(stays, keeps) };
    if done == 0 && keeps == 0 {
        (libc::STDIN_FILENO..=libc::STDERR_FILENO).for_each(|fd| descriptors::set(fd, Kind::Other));
    }
    done
}

/// `close_range(2)`, around the shim's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if !process::is_armed() || flags & CLOEXEC != 0 || first > last {
        // SAFETY: the caller's. The shim's own are close-on-exec anyway.
        return unsafe { real::close_range(first, last, flags) };
    }
    for fd in first..=last.min(descriptors::DESCRIPTORS as u32 - 1) {
        descriptors::set(fd as c_int, Kind::Other);
    }
    let mut from = Some(first);
    for own in descriptors::owned(first, last) {
        if let Some(from) = from.filter(|from| *from < own) {
            // SAFETY: the caller's.
            let done = unsafe { real::close_range(from, own - 1, flags) };
            if done < 0 {
                return done;
            }
        }
        from = own.checked_add(1);
    }
    match from.filter(|from| *from <= last) {
        // SAFETY: the caller's.
        Some(from) => unsafe { real::close_range(from, last, flags) },
        None => 0,
    }
}

/// `closefrom(3)`, around the shim's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as that.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

macro_rules! fcntl {
    ($($name:ident)*) => {$(
        /// `fcntl(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
            // SAFETY: the caller's.
            let call = || unsafe { real::fcntl(fd, command, argument) };
            match (command, descriptors::kind(fd)) {
                (_, Kind::Own) => give(Err(Errno::EBADF)),
                (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, _) => copied(fd, call),
                (libc::F_SETFD, Kind::File(_)) => {
                    if argument.addr() as c_int & libc::FD_CLOEXEC == 0 {
                        descriptors::share(fd);
                    }
                    call()
                }
                (libc::F_GETFL, Kind::File(of)) => match call() {
                    flags if flags >= 0 && of.flags & SYNC != 0 => flags | libc::O_SYNC,
                    flags if flags >= 0 && of.flags & DSYNC != 0 => flags | libc::O_DSYNC,
                    flags => flags,
                },
                (libc::F_SETFL, Kind::File(of)) => {
                    // Other descriptors of the same opening change with it.
                    match process::files() {
                        Ok(files) => files.table().flag(of.place, ASKS),
                        Err(errno) => return give(Err(errno)),
                    }
                    call()
                }
                _ => call(),
            }
        }
    )*};
}
fcntl!(fcntl fcntl64);

macro_rules! lseek {
    ($($name:ident)*) => {$(
        /// `lseek(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off_t, whence: c_int) -> off_t {
            // Databases don't, so what follows need not be quick.
            if descriptors::of(fd).is_some() {
                descriptors::share(fd);
            }
            // SAFETY: the caller's.
            unsafe { real::lseek(fd, offset, whence) }
        }
    )*};
}
lseek!(lseek lseek64);
