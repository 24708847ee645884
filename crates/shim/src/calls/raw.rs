//! System calls by their numbers (syscall(2)), and those of asynchronous I/O that libraries make by themselves
//! (libaio): as the functions of their names.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use nix::errno::Errno;
use nix::libc::{self, iovec, mode_t, off_t, size_t};

use super::refused::{before, no_uring};
use super::{descriptors as fds, give, mapped, names, open, refused, sync, write};
use crate::{process, real};

/// Operations of `struct iocb` (linux/aio_abi.h).
mod operation {
    pub(super) const WRITE: u16 = 1;
    pub(super) const SYNC: u16 = 2;
    pub(super) const SYNC_DATA: u16 = 3;
    pub(super) const WRITE_PARTS: u16 = 8;
}

/// The begin of `struct iocb`, as far as it says what is done to which file.
#[repr(C)]
struct Asked {
    data: u64,
    key: u64,
    operation: u16,
    priority: i16,
    fd: u32,
}

/// Before operations of asynchronous I/O are handed to the system, which does them by itself.
///
/// # Safety
/// So many pointers are there, to operations or null.
unsafe fn before_submit(count: c_long, list: *const *mut c_void) -> Result<(), Errno> {
    if !process::is_armed() || list.is_null() {
        return Ok(());
    }
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's.
        let Some(asked) = (unsafe { (*list.add(at)).cast::<Asked>().as_ref() }) else { continue };
        match asked.operation {
            operation::WRITE | operation::WRITE_PARTS => before(asked.fd as c_int, "io_submit writes it")?,
            operation::SYNC | operation::SYNC_DATA => process::order()?,
            _ => {}
        }
    }
    Ok(())
}

/// As libaio has it: its result is the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_submit(context: *mut c_void, count: c_long, list: *const *mut c_void) -> c_int {
    // SAFETY: the caller's.
    match unsafe { before_submit(count, list) } {
        // SAFETY: the caller's.
        Ok(()) => unsafe { real::io_submit(context, count, list) },
        Err(errno) => -(errno as c_int),
    }
}

/// `open_how` (linux/openat2.h) in its first version.
#[repr(C)]
#[derive(Clone, Copy)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `openat2(2)`. `None`: a later version of what says how, which is passed on as it is.
///
/// # Safety
/// The caller's of the system call.
unsafe fn openat2(folder: c_long, path: c_long, how: c_long, size: c_long) -> Option<c_long> {
    if how == 0 || usize::try_from(size) != Ok(size_of::<How>()) {
        return None;
    }
    // SAFETY: the caller's.
    let asked = unsafe { *(how as *const How) };
    let call = |flags: c_int| {
        let how = How { flags: flags as u32 as u64 | asked.flags & !u64::from(u32::MAX), ..asked };
        // SAFETY: the caller's.
        unsafe {
            real::syscall(libc::SYS_openat2, folder, path, (&raw const how).addr() as c_long, size, 0, 0) as c_int
        }
    };
    Some(open::opened(asked.flags as c_int, call).into())
}

/// The function of a system call's name. `None`: none that stands here.
///
/// # Safety
/// The caller's of the system call.
#[cfg(target_pointer_width = "64")]
unsafe fn by_name(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    let (fd, path, to) = (a as c_int, a as *const c_char, b as *const c_char);
    let (bytes, parts) = (b as *const c_void, b as *const iovec);
    // SAFETY: the caller's.
    let done: c_long = unsafe {
        match number {
            libc::SYS_close => fds::close(fd).into(),
            libc::SYS_dup => fds::dup(fd).into(),
            libc::SYS_dup3 => fds::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_close_range => fds::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_fcntl => fds::fcntl(fd, b as c_int, c as *mut c_void).into(),
            libc::SYS_lseek => fds::lseek(fd, b as off_t, c as c_int),
            libc::SYS_openat => open::openat(fd, to, c as c_int, d as mode_t).into(),
            libc::SYS_openat2 => return openat2(a, b, c, d),
            libc::SYS_write => write::write(fd, bytes, c as size_t) as c_long,
            libc::SYS_pwrite64 => write::pwrite(fd, bytes, c as size_t, d as off_t) as c_long,
            libc::SYS_writev => write::writev(fd, parts, c as c_int) as c_long,
            // Of the offset's two words the second has nothing, where one is enough.
            libc::SYS_pwritev => write::pwritev(fd, parts, c as c_int, d as off_t) as c_long,
            libc::SYS_pwritev2 => write::pwritev2(fd, parts, c as c_int, d as off_t, f as c_int) as c_long,
            libc::SYS_ftruncate => write::ftruncate(fd, b as off_t).into(),
            libc::SYS_truncate => write::truncate(path, b as off_t).into(),
            libc::SYS_fallocate => write::fallocate(fd, b as c_int, c as off_t, d as off_t).into(),
            libc::SYS_fsync => sync::fsync(fd).into(),
            libc::SYS_fdatasync => sync::fdatasync(fd).into(),
            libc::SYS_sync_file_range => sync::sync_file_range(fd, b as off_t, c as off_t, d as c_uint).into(),
            libc::SYS_syncfs => sync::syncfs(fd).into(),
            libc::SYS_sync => {
                sync::sync();
                0
            }
            libc::SYS_msync => sync::msync(a as *mut c_void, b as size_t, c as c_int).into(),
            libc::SYS_renameat => names::renameat(fd, to, c as c_int, d as *const c_char).into(),
            libc::SYS_renameat2 => names::renameat2(fd, to, c as c_int, d as *const c_char, e as c_uint).into(),
            libc::SYS_linkat => names::linkat(fd, to, c as c_int, d as *const c_char, e as c_int).into(),
            libc::SYS_unlinkat => names::unlinkat(fd, to, c as c_int).into(),
            libc::SYS_sendfile => refused::sendfile(fd, b as c_int, c as *mut off_t, d as size_t) as c_long,
            libc::SYS_copy_file_range => {
                let (at, to_at) = (b as *mut off_t, d as *mut off_t);
                refused::copy_file_range(fd, at, c as c_int, to_at, e as size_t, f as c_uint) as c_long
            }
            libc::SYS_splice => {
                let (at, to_at) = (b as *mut off_t, d as *mut off_t);
                refused::splice(fd, at, c as c_int, to_at, e as size_t, f as c_uint) as c_long
            }
            libc::SYS_mmap => {
                let at = refused::mmap(a as *mut c_void, b as size_t, c as c_int, d as c_int, e as c_int, f as off_t);
                at.addr() as c_long
            }
            libc::SYS_mprotect => mapped::mprotect(a as *mut c_void, b as size_t, c as c_int).into(),
            libc::SYS_io_submit => match before_submit(b, c as *const *mut c_void) {
                Ok(()) => return None,
                Err(errno) => give(Err(errno)),
            },
            _ => return old(number, [a, b, c, d]),
        }
    };
    Some(done)
}

/// System calls that newer architectures do without.
///
/// # Safety
/// The caller's of the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn old(number: c_long, [a, b, c, _]: [c_long; 4]) -> Option<c_long> {
    let (path, to) = (a as *const c_char, b as *const c_char);
    // SAFETY: the caller's.
    let done = unsafe {
        match number {
            libc::SYS_open => open::open(path, b as c_int, c as mode_t),
            libc::SYS_creat => open::creat(path, b as mode_t),
            libc::SYS_dup2 => fds::dup2(a as c_int, b as c_int),
            libc::SYS_rename => names::rename(path, to),
            libc::SYS_link => names::link(path, to),
            libc::SYS_unlink => names::unlink(path),
            _ => return None,
        }
    };
    Some(done.into())
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(all(target_pointer_width = "64", not(target_arch = "x86_64")))]
unsafe fn old(_: c_long, _: [c_long; 4]) -> Option<c_long> {
    None
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(not(target_pointer_width = "64"))]
unsafe fn by_name(_: c_long, _: [c_long; 6]) -> Option<c_long> {
    None
}

/// `syscall(2)`: the ring of io_uring is refused, calls on files are done as by their names, and everything else is
/// passed on.
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
    if process::is_armed() {
        if number == libc::SYS_io_uring_setup {
            no_uring();
            return give(Err(Errno::ENOSYS));
        }
        // SAFETY: the caller's.
        if let Some(done) = unsafe { by_name(number, [a, b, c, d, e, f]) } {
            return done;
        }
    }
    // SAFETY: the caller's; a system call has six arguments at most.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}
