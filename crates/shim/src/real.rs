//! The calls that the shim stands in front of, as the next library has them (`dlsym`), never as raw system calls:
//! the library below is asked too.
#![allow(unsafe_code)]
#![allow(clippy::unused_unit, reason = "the macro asks for a type, which `sync` has none of")]
#![allow(non_snake_case, reason = "`_Fork` is its name")]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::errno::Errno;
use nix::libc::{self, FILE, aiocb, iovec, mode_t, off_t, pid_t, sigevent, size_t, ssize_t};
use tidewater_client::mapped::Disk;
use tidewater_files::Real;

/// Where a function is; looked up once.
#[derive(Debug)]
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero byte; RTLD_NEXT may be asked from a library that was loaded as this one is.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

/// Where the next library has a function whose parameters are not known here. Null: it has none.
pub fn next(name: &'static CStr) -> *mut c_void {
    Next::new(name).find()
}

macro_rules! next {
    ($($(#[doc = $doc:literal])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $missing:expr;)+) => {$(
        $(#[doc = $doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[inline]
        pub unsafe fn $name($($argument: $type),*) -> $result {
            static NEXT: Next = Next::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            });
            let at = NEXT.get();
            if at.is_null() {
                Errno::ENOSYS.set();
                return $missing;
            }
            // SAFETY: the C library's function of this name has these parameters; those that it takes as variable ones
            // are passed alike on the architectures that Linux runs on.
            let next: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(at) };
            // SAFETY: the caller's.
            unsafe { next($($argument),*) }
        }
    )+};
}

next! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1;
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t, -1;
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> ssize_t, -1;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t, -1;
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t, -1;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, -1;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t, -1;
    fn fsync(fd: c_int) -> c_int, -1;
    fn fdatasync(fd: c_int) -> c_int, -1;
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int, -1;
    fn sync() -> (), ();
    fn syncfs(fd: c_int) -> c_int, -1;
    fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int, -1;
    fn ftruncate(fd: c_int, len: off_t) -> c_int, -1;
    fn truncate(path: *const c_char, len: off_t) -> c_int, -1;
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int, -1;
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int, libc::ENOSYS;
    fn rename(from: *const c_char, to: *const c_char) -> c_int, -1;
    fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int, -1;
    fn renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint) -> c_int, -1;
    fn link(old: *const c_char, new: *const c_char) -> c_int, -1;
    fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int, -1;
    fn unlink(path: *const c_char) -> c_int, -1;
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int, -1;
    fn remove(path: *const c_char) -> c_int, -1;
    fn rmdir(path: *const c_char) -> c_int, -1;
    fn dup(fd: c_int) -> c_int, -1;
    fn dup2(fd: c_int, to: c_int) -> c_int, -1;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int, -1;
    fn close(fd: c_int) -> c_int, -1;
    fn fclose(stream: *mut FILE) -> c_int, libc::EOF;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, ptr::null_mut();
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, ptr::null_mut();
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, ptr::null_mut();
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, ptr::null_mut();
    fn daemon(stays: c_int, keeps: c_int) -> c_int, -1;
    fn posix_spawn(
        pid: *mut pid_t,
        path: *const c_char,
        actions: *const c_void,
        how: *const c_void,
        line: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int, libc::ENOSYS;
    fn posix_spawnp(
        pid: *mut pid_t,
        name: *const c_char,
        actions: *const c_void,
        how: *const c_void,
        line: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int, libc::ENOSYS;
    fn pidfd_spawn(
        pid: *mut c_int,
        path: *const c_char,
        actions: *const c_void,
        how: *const c_void,
        line: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int, libc::ENOSYS;
    fn pidfd_spawnp(
        pid: *mut c_int,
        name: *const c_char,
        actions: *const c_void,
        how: *const c_void,
        line: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int, libc::ENOSYS;
    fn _Fork() -> pid_t, -1;
    fn aio_fsync(how: c_int, what: *mut aiocb) -> c_int, -1;
    fn aio_write(what: *mut aiocb) -> c_int, -1;
    fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int, -1;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, -1;
    fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int, -1;
    fn mmap(
        at: *mut c_void,
        len: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off_t
    ) -> *mut c_void, libc::MAP_FAILED;
    fn mprotect(at: *mut c_void, len: size_t, protection: c_int) -> c_int, -1;
    fn pkey_mprotect(at: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int, -1;
    fn io_submit(context: *mut c_void, count: c_long, list: *const *mut c_void) -> c_int, -libc::ENOSYS;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t, -1;
    fn copy_file_range(
        from: c_int,
        at: *mut off_t,
        to: c_int,
        to_at: *mut off_t,
        len: size_t,
        flags: c_uint
    ) -> ssize_t, -1;
    fn splice(from: c_int, at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t, -1;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long, -1;
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int, -libc::ENOSYS;
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int, -libc::ENOSYS;
    fn io_uring_queue_init_mem(
        entries: c_uint,
        ring: *mut c_void,
        parameters: *mut c_void,
        memory: *mut c_void,
        len: size_t
    ) -> c_int, -libc::ENOSYS;
    fn io_uring_queue_init_try_nosqarr(
        entries: c_uint,
        ring: *mut c_void,
        parameters: *mut c_void
    ) -> c_int, -libc::ENOSYS;
}

/// The real calls, for what is done to files beside their records.
#[derive(Clone, Copy, Debug)]
pub struct NextLibrary;

impl Real for NextLibrary {
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: a descriptor that is open.
        Errno::result(unsafe { fsync(file.as_raw_fd()) }).map(drop)
    }
}

impl Disk for NextLibrary {
    fn pwrite(&self, file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        // SAFETY: a descriptor that is open, and so many bytes.
        let done = unsafe { pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), at as off_t) };
        Errno::result(done).map(|done| done as usize)
    }

    fn sync_data(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: a descriptor that is open.
        Errno::result(unsafe { fdatasync(file.as_raw_fd()) }).map(drop)
    }

    fn get_lock(&self, file: BorrowedFd<'_>, lock: &mut libc::flock) -> Result<(), Errno> {
        // SAFETY: a descriptor that is open, and a lock that is there to be read and filled.
        Errno::result(unsafe { fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, (&raw mut *lock).cast()) }).map(drop)
    }
}
