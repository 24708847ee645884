//! Changes that can't be recorded: bytes that reach a file without a call, or by a call that no library stands before.
//! Files become real, rings are refused.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, FILE, aiocb, off_t, sigevent, size_t, ssize_t};

use super::{give, mapped, members};
use crate::descriptors::{self, Kind};
use crate::process::{self, Warning, warn};
use crate::real;

/// Before a call that changes a file of the set in a way that can't be recorded, or another file each of whose writes
/// is a sync.
pub fn before(fd: c_int, why: &str) -> Result<(), Errno> {
    match descriptors::kind(fd) {
        Kind::File(of) => {
            // It may move the descriptor.
            descriptors::share(fd);
            members::make_real(of.place, fd, why)
        }
        Kind::Synced => process::order(),
        Kind::Other | Kind::Own => Ok(()),
    }
}

macro_rules! mmap {
    ($($name:ident)*) => {$(
        /// `mmap(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
        ) -> *mut c_void {
            // SAFETY: the caller's.
            let mapped = unsafe { real::mmap(at, len, protection, flags, fd, offset) };
            let is_shared = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
            if mapped == libc::MAP_FAILED || fd < 0 || !is_shared {
                return mapped;
            }
            // Once it is there: one that the system refuses, as MAP_SYNC on most file systems, changes nothing.
            if protection & libc::PROT_WRITE == 0 {
                mapped::note(fd, mapped.addr(), len);
            } else if let Err(errno) = before(fd, "it is mapped for writing") {
                // SAFETY: what was mapped just now, and not handed out yet.
                unsafe { libc::munmap(mapped, len) };
                errno.set();
                return libc::MAP_FAILED;
            }
            mapped
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

/// Whether a stream of this mode (fopen(3)) writes.
///
/// # Safety
/// It is null, or ends with a zero byte.
pub unsafe fn writes(mode: *const c_char) -> bool {
    // SAFETY: the caller's.
    !mode.is_null() && unsafe { CStr::from_ptr(mode) }.to_bytes().iter().any(|one| b"wa+".contains(one))
}

/// A stream was opened, within the C library, which writes there. `false`: it is refused.
///
/// # Safety
/// The stream is open.
pub unsafe fn streams(stream: *mut FILE) -> Result<(), Errno> {
    let errno = Errno::last();
    // SAFETY: the caller's.
    let fd = unsafe { libc::fileno(stream) };
    if let Some(place) = members::find(fd) {
        members::make_real(place, fd, "a stream (fopen) writes it")?;
    }
    errno.set();
    Ok(())
}

macro_rules! fopen {
    ($($name:ident)*) => {$(
        /// `fopen(3)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the caller's.
            unsafe {
                let stream = real::$name(path, mode);
                if !stream.is_null() && process::is_armed() && writes(mode) && let Err(errno) = streams(stream) {
                    real::fclose(stream);
                    errno.set();
                    return ptr::null_mut();
                }
                stream
            }
        }
    )*};
}
fopen!(fopen fopen64);

/// `fdopen(3)`: a stream writes within the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's.
    if unsafe { writes(mode) }
        && let Err(errno) = before(fd, "a stream (fdopen) writes it")
    {
        errno.set();
        return ptr::null_mut();
    }
    // SAFETY: the caller's.
    unsafe { real::fdopen(fd, mode) }
}

macro_rules! aio_write {
    ($($name:ident)*) => {$(
        /// `aio_write(3)`, which writes within the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(what: *mut aiocb) -> c_int {
            // SAFETY: the caller's.
            match unsafe { what.as_ref() }.map_or(Ok(()), |what| before(what.aio_fildes, "aio_write writes it")) {
                // SAFETY: the caller's.
                Ok(()) => unsafe { real::aio_write(what) },
                Err(errno) => give(Err(errno)),
            }
        }
    )*};
}
aio_write!(aio_write aio_write64);

macro_rules! lio_listio {
    ($($name:ident)*) => {$(
        /// `lio_listio(3)`, as [`aio_write`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            mode: c_int,
            list: *const *mut aiocb,
            count: c_int,
            event: *mut sigevent,
        ) -> c_int {
            for at in 0..usize::try_from(count).unwrap_or(0) {
                // SAFETY: the caller's: so many pointers, some of them null.
                let what = unsafe { (*list.add(at)).as_ref() }.filter(|what| what.aio_lio_opcode == libc::LIO_WRITE);
                if let Some(what) = what && let Err(errno) = before(what.aio_fildes, "lio_listio writes it") {
                    return give(Err(errno));
                }
            }
            // SAFETY: the caller's.
            unsafe { real::lio_listio(mode, list, count, event) }
        }
    )*};
}
lio_listio!(lio_listio lio_listio64);

pub fn no_uring() {
    warn(Warning::Uring, format_args!("io_uring writes past the log: it is refused (ENOSYS)"));
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
    io_uring_queue_init_mem(
        entries: c_uint,
        ring: *mut c_void,
        parameters: *mut c_void,
        memory: *mut c_void,
        len: size_t
    )
    io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, parameters: *mut c_void)
}
