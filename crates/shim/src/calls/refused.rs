//! What can't be recorded: bytes that reach a file without a call, or by a call that no library stands before. Files become real, rings are refused.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint, c_void};

use nix::errno::Errno;
use nix::libc::{self, off_t, size_t, ssize_t};

use super::{give, open};
use crate::process::{self, Tell, tell};
use crate::{descriptors, real};

/// Before a call that changes a file of the set in a way that can't be recorded.
fn before(fd: c_int, why: &str) -> Result<(), Errno> {
    match descriptors::of(fd) {
        Some(of) => {
            // It may move the descriptor.
            descriptors::share(fd);
            open::make_real(of.place, fd, why)
        }
        None => Ok(()),
    }
}

macro_rules! mmap {
    ($($name:ident)*) => {$(
        /// `mmap(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
        ) -> *mut c_void {
            let is_shared = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
            if fd >= 0 && is_shared && protection & libc::PROT_WRITE != 0 && let Err(errno) = before(fd, "it is mapped for writing") {
                errno.set();
                return libc::MAP_FAILED;
            }
            // SAFETY: the caller's.
            unsafe { real::mmap(at, len, protection, flags, fd, offset) }
        }
    )*};
}
mmap!(mmap mmap64);

macro_rules! sendfile {
    ($($name:ident)*) => {$(
        /// `sendfile(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t {
            match before(to, "sendfile writes it") {
                // SAFETY: the caller's.
                Ok(()) => unsafe { real::sendfile(to, from, offset, len) },
                Err(errno) => give(Err(errno)),
            }
        }
    )*};
}
sendfile!(sendfile sendfile64);

/// `copy_file_range(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    match before(to, "copy_file_range writes it") {
        // SAFETY: the caller's.
        Ok(()) => unsafe { real::copy_file_range(from, at, to, to_at, len, flags) },
        Err(errno) => give(Err(errno)),
    }
}

/// `splice(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    match before(to, "splice writes it") {
        // SAFETY: the caller's.
        Ok(()) => unsafe { real::splice(from, at, to, to_at, len, flags) },
        Err(errno) => give(Err(errno)),
    }
}

fn no_uring() {
    tell(Tell::Uring, format_args!("io_uring writes past the log: it is refused (ENOSYS)"));
}

/// `syscall(2)`: the ring of io_uring is refused, everything else passed on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_uring_setup && process::is_armed() {
        no_uring();
        return give(Err(Errno::ENOSYS));
    }
    // SAFETY: the caller's; a system call has six arguments at most.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

macro_rules! io_uring {
    ($($name:ident($($argument:ident: $type:ty),*))*) => {$(
        /// As liburing has it: its result is the error.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            if process::is_armed() {
                no_uring();
                return -libc::ENOSYS;
            }
            // SAFETY: the caller's.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}
io_uring! {
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint)
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void)
    io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: size_t)
    io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, parameters: *mut c_void)
}
