//! This process's part of the run: patterns from the environment, and, from the first call on that needs it, the ring
//! and the table of files.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tidewater_client::mapped::{Log, Options};
use tidewater_files::{Files, FilesError, Globs, Locked, PATIENCE, Place, Table, hand_over};

use crate::text::Text;
use crate::{descriptors, memory, paths, real};

/// Settings from the environment.
struct Armed {
    globs: Globs,
    socket: String,
}

static ARMED: AtomicPtr<Armed> = AtomicPtr::new(ptr::null_mut());
static FILES: AtomicPtr<Files<Log>> = AtomicPtr::new(ptr::null_mut());
/// The ring could not be had: what needs it fails.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// The process that is just asking for the ring.
static ASKING: AtomicU32 = AtomicU32::new(0);
/// Things that are said once.
static REPORTED: AtomicU8 = AtomicU8::new(0);

thread_local! {
    /// The entry whose lock this thread has, and one more; 0: none. A signal handler that interrupted it must not wait
    /// for itself.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Warnings that a process prints at most once each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Warning {
    /// The log has failed.
    Failed = 1,
    /// io_uring is not there.
    Uring = 2,
    /// A file's syncs are real from now on.
    Real = 4,
    /// Paths can't be found out.
    NoProc = 8,
}

/// At the start of the program, before there are threads.
pub fn begin() {
    // SAFETY: asks for a word that the kernel gave the program.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    let (Ok(socket), Ok(patterns)) =
        (std::env::var(hand_over::SOCKET_VARIABLE), std::env::var(hand_over::FILES_VARIABLE))
    else {
        return;
    };
    memory::prepare();
    // SAFETY: the functions store a word, and stay as long as this library, which is never taken out.
    unsafe {
        libc::pthread_atfork(Some(descriptors::fork), Some(descriptors::fork), Some(descriptors::fork));
        libc::pthread_atfork(None, None, Some(memory::claim));
    }
    let armed = Box::leak(Box::new(Armed { globs: Globs::from_text(&patterns), socket }));
    ARMED.store(armed, Ordering::Release);
}

/// Whether this process is part of a run.
#[inline]
pub fn is_armed() -> bool {
    !ARMED.load(Ordering::Acquire).is_null()
}

/// Whether a path is of the set.
pub fn matches(path: &[u8]) -> bool {
    // SAFETY: it is null, or was leaked for good.
    unsafe { ARMED.load(Ordering::Acquire).as_ref() }.is_some_and(|armed| armed.globs.matches(path))
}

/// The files of the run. The first time they are asked for.
///
/// # Errors
/// EIO: they can't be had, and that was said.
#[inline]
pub fn files() -> Result<&'static Files<Log>, Errno> {
    // SAFETY: it is null, or was leaked for good.
    match unsafe { FILES.load(Ordering::Acquire).as_ref() } {
        Some(files) => Ok(files),
        None => join(),
    }
}

#[cold]
fn join() -> Result<&'static Files<Log>, Errno> {
    let me = std::process::id();
    loop {
        // SAFETY: as above.
        if let Some(files) = unsafe { FILES.load(Ordering::Acquire).as_ref() } {
            return Ok(files);
        }
        if REFUSED.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        let asking = ASKING.load(Ordering::Acquire);
        // In a child, the thread that was asking at the fork is not there.
        if asking != me && ASKING.compare_exchange(asking, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let result = try_to_join();
    if let Err(text) = &result {
        REFUSED.store(true, Ordering::Release);
        warn(Warning::Failed, format_args!("this program can't have the log, and its files on it fail: {text}"));
    }
    ASKING.store(0, Ordering::Release);
    result.map_err(|_| Errno::EIO)
}

fn try_to_join() -> Result<&'static Files<Log>, String> {
    // SAFETY: as above.
    let armed = unsafe { ARMED.load(Ordering::Acquire).as_ref() }.ok_or("it is not part of a run")?;
    let (mut shared, table) = hand_over::ask(&armed.socket).map_err(|_| "`tidewater run` does not answer")?;
    let table = Table::join(table.as_fd()).map_err(|error| error.to_string())?;
    table.release_locks().map_err(|error| error.to_string())?;
    shared.ring = out_of_the_way(shared.ring)?;
    shared.doorbell = out_of_the_way(shared.doorbell)?;
    shared.copy = shared.copy.map(out_of_the_way).transpose()?;
    let own = [
        Some(shared.ring.as_raw_fd()),
        Some(shared.doorbell.as_raw_fd()),
        shared.copy.as_ref().map(AsRawFd::as_raw_fd),
    ];
    let options = Options { full: PATIENCE, timeout: PATIENCE, ..Options::default() };
    let log = Log::join_through(shared, options, &real::NextLibrary).map_err(|error| error.to_string())?;
    own.into_iter().flatten().for_each(descriptors::own);
    let files = Box::leak(Box::new(Files::new(table, log)));
    FILES.store(files, Ordering::Release);
    Ok(files)
}

/// The same descriptor with a high number: programs count on low ones.
fn out_of_the_way(fd: OwnedFd) -> Result<OwnedFd, String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is there to be filled.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let most = if known { limit.rlim_cur.min(descriptors::DESCRIPTORS as u64) } else { 1024 };
    let from = most.saturating_sub(16) as usize;
    // SAFETY: a descriptor that is open; the argument is a number.
    let high = unsafe { real::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from as *mut c_void) };
    let high = Errno::result(high).map_err(|errno| errno.desc().to_owned())?;
    // SAFETY: it was made just now, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(high) })
}

/// Prints a warning on standard error, once.
#[cold]
pub fn warn(what: Warning, text: std::fmt::Arguments<'_>) {
    if REPORTED.fetch_or(what as u8, Ordering::AcqRel) & what as u8 != 0 {
        return;
    }
    let errno = Errno::last();
    let mut line = Text::<512>::new();
    let _ = writeln!(line, "tidewater: process {}: {text}", std::process::id());
    // A file's name does not steer the terminal.
    let len = line.as_bytes().len().saturating_sub(1);
    line.buffer()[..len].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b'?');
    let bytes = line.as_bytes();
    // SAFETY: so many bytes are there. Whether they can be written does not matter any more.
    without_signal(|| unsafe { real::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) });
    errno.set();
}

/// Writes something of the shim's own. Where it has no reader any more, the signal that says so (SIGPIPE, to the thread
/// that writes) is not for the program.
fn without_signal(write: impl FnOnce() -> isize) {
    let none = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sets of signals are plain bits, of which none is a value; the calls read and fill those that they are
    // given.
    unsafe {
        let (mut pipe, mut pending, mut before) = (none.assume_init(), none.assume_init(), none.assume_init());
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        let is_refused = write() < 0 && Errno::last() == Errno::EPIPE;
        // One that was there before is the program's.
        if is_refused && libc::sigismember(&raw const pending, libc::SIGPIPE) == 0 {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}

/// `errno` for a call whose change the log does not take. Reported once.
#[cold]
pub fn refuse(error: FilesError) -> Errno {
    match &error {
        FilesError::System(_) => {}
        FilesError::TooMany => warn(Warning::Failed, format_args!("{error}")),
        error => warn(Warning::Failed, format_args!("{error}; writes and syncs of files on the log fail")),
    }
    error.errno()
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While this lives, the thread is not cancelled (pthread_cancel(3)): it would leave a lock of the run taken, and its
/// process lives on.
#[must_use]
pub struct Whole(c_int);

/// From here on what this thread does is done as a whole.
#[inline]
pub fn whole() -> Whole {
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: `before` is there to be filled.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    Whole(before)
}

impl Drop for Whole {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: what it was before; its value until now is of no interest.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// Before something outside of the set: what is on the log comes first.
///
/// # Errors
/// The log's.
pub fn order() -> Result<(), Errno> {
    let _whole = whole();
    files()?.order().map_err(refuse)
}

/// As [`order`], before a change of what a descriptor is of: what is in memory alone is lost before the log is, and
/// waits for nothing.
///
/// # Errors
/// The log's.
pub fn order_before(fd: c_int) -> Result<(), Errno> {
    if is_in_memory(fd) { Ok(()) } else { order() }
}

/// Whether a descriptor is of a file system in memory (statfs(2)): tmpfs, ramfs, hugetlbfs.
pub fn is_in_memory(fd: c_int) -> bool {
    const KINDS: [i64; 3] = [0x0102_1994, 0x8584_58F6, 0x9584_58F6];
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `about` is there to be filled, and is when the call says so.
    unsafe { libc::fstatfs(fd, about.as_mut_ptr()) == 0 && KINDS.contains(&about.assume_init().f_type) }
}

/// Whether this thread has a file's lock: it is within a signal handler that interrupted it.
pub fn holds(place: Place) -> bool {
    HELD.get() == u32::from(place.entry) + 1
}

/// Does something under a file's lock. `None`: it has left the set, or its changes are not recorded.
///
/// # Errors
/// The log's.
#[inline]
pub fn under_lock<T>(
    files: &Files<Log>,
    place: Place,
    fd: c_int,
    then: impl FnOnce(&Locked<'_>) -> Result<T, Errno>,
) -> Result<Option<T>, Errno> {
    let (before, held) = (HELD.get(), holds(place));
    if !held {
        files.admit().map_err(refuse)?;
        HELD.set(u32::from(place.entry) + 1);
    }
    let result = match files.lock(place, borrow(fd), held) {
        Err(error) => Err(refuse(error)),
        Ok(None) => Ok(None),
        Ok(Some(_)) if files.table().flags(place) & tidewater_files::REAL != 0 => Ok(None),
        Ok(Some(locked)) => then(&locked).map(Some),
    };
    HELD.set(before);
    result
}

/// A descriptor of the program's, for as long as a call takes.
pub fn borrow<'a>(fd: c_int) -> BorrowedFd<'a> {
    assert!(fd >= 0, "descriptors that are open");
    // SAFETY: the program gave it to a call that is under way; if it closes it meanwhile, that is its own mistake, as
    // with the C library.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The path of a descriptor, without symbolic links. `None`: the system does not tell.
pub fn path_of(fd: c_int) -> Option<paths::PathText> {
    let path = paths::of(fd);
    if path.is_none() {
        warn(
            Warning::NoProc,
            format_args!("paths can't be found out (/proc): files are written and synced by themselves"),
        );
    }
    path
}
