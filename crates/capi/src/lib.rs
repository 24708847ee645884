//! The client library for C: `tidewater.h` is made from this file, and `tidewater(3)` describes it.
//!
//! Comments here are those of the header. Every function checks its pointers for NULL, says -1 or NULL and sets `errno`
//! when it fails, and lets no panic out.
#![allow(unsafe_code, non_camel_case_types)]

mod convert;
mod files;
mod report;
mod window;

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use convert::{
    bytes, handle, level_of, log, offset, options_of, parts, put, read, recovered_of, status_of, text, time,
};
use nix::libc::iovec;
use report::{Failure, run};
use tidewater_client::mapped::{Begun, Log, Shared};
use tidewater_client::{Entry, Level, Records};

/// The level that a log has unless another is asked for: RING where the ring's memory survives a loss of power,
/// DESTAGED elsewhere.
pub const TIDEWATER_DEFAULT: c_int = 0;
/// In the ring: survives a crash of this process and of the device's; a loss of power only where the ring's memory
/// does.
pub const TIDEWATER_RING: c_int = 1;
/// On the backing store, and synced: survives a loss of power, as far as the disk below keeps what it promises.
pub const TIDEWATER_DESTAGED: c_int = 2;
/// In the rings of as many replicas as the group's mode asks for. ENOTSUP: no group, or a lazy one.
pub const TIDEWATER_REMOTE_RING: c_int = 3;
/// On the backing stores of the device and of as many replicas, and synced. ENOTSUP as there.
pub const TIDEWATER_REMOTE_DESTAGED: c_int = 4;

/// As TIDEWATER_WRITE_BACK_LINES where the ring's memory survives a loss of power, and not elsewhere.
pub const TIDEWATER_WRITE_BACK_DEFAULT: c_int = 0;
/// Nothing is written back: stores outlive the process all the same.
pub const TIDEWATER_WRITE_BACK_NONE: c_int = 1;
/// Records are stored past the caches, lines of anything else are written back, and a fence waits for both.
pub const TIDEWATER_WRITE_BACK_LINES: c_int = 2;

/// A record, in struct tidewater_entry.
pub const TIDEWATER_RECORD: c_int = 1;
/// Bytes that a writer gave up, or died over.
pub const TIDEWATER_VOID: c_int = 2;
/// Bytes that are no record: raw ones, or damage.
pub const TIDEWATER_SKIPPED: c_int = 3;

/// A log. Threads share it, and, on one device, so do both sides of a fork.
pub struct tidewater_log {
    log: Arc<Log>,
}

/// A record that is being filled. One thread has it at a time.
pub struct tidewater_record {
    // Dropped before what it borrows.
    begun: Option<Begun<'static>>,
    _log: Arc<Log>,
}

/// How a log is opened. tidewater_options_init sets the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tidewater_options {
    /// Bytes of this structure, as the program knows it.
    pub size: usize,
    /// The lane, 0 to 15. Default 0.
    pub lane: u32,
    /// Level that tidewater_x_fsync waits for. RING on memory that survives no loss of power must be asked for here.
    pub level: c_int,
    /// How stores get to memory: TIDEWATER_WRITE_BACK_...
    pub write_back: c_int,
    /// 0.
    pub reserved: c_int,
    /// How long an append waits for a ring that is full, in milliseconds. Default 1000.
    pub full_ms: i64,
    /// How long tidewater_x_fsync waits, in milliseconds. Default 10000.
    pub timeout_ms: i64,
}

/// State of a log when it was opened, or attached to again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tidewater_recovered {
    /// Where the stream goes on: all below is in the ring, or where the device has taken it to.
    pub tail: i64,
    /// Bytes that are in the ring and that the device has not taken yet.
    pub in_ring: i64,
    /// Whole records of the writer before that it had not published, and that count now.
    pub records: i64,
    /// Holes between them, which were sealed as void.
    pub sealed: i64,
    /// The stream did not go on from what was published: a loss of power, or a function that was set up anew.
    pub is_new: bool,
}

/// How a log is doing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tidewater_status {
    /// Bytes of the ring.
    pub ring_bytes: i64,
    /// The oldest byte that can be read; -1: not known, since there is no connection to the device.
    pub oldest: i64,
    /// End of what writers have reserved.
    pub reserved: i64,
    /// End of what is at RING.
    pub ring: i64,
    /// End of what the device has taken.
    pub taken: i64,
    /// End of what is at DESTAGED, as far as it was asked for.
    pub destaged: i64,
    /// The log's level.
    pub level: c_int,
    /// The device takes from the ring.
    pub open: bool,
    /// Its stream is broken.
    pub broken: bool,
    /// This process has a connection to the device.
    pub connected: bool,
    /// RING survives a loss of power.
    pub persistent: bool,
}

/// An entry that tidewater_next finds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tidewater_entry {
    /// TIDEWATER_RECORD, TIDEWATER_VOID or TIDEWATER_SKIPPED.
    pub kind: c_int,
    /// Where it begins in the stream.
    pub lsn: i64,
    /// Where it ends.
    pub end: i64,
    /// A record's payload, in the bytes that were given; else NULL.
    pub payload: *const c_void,
    /// Its bytes.
    pub payload_bytes: usize,
}

/// The lane for another process of the same PID namespace to write. The descriptors are close-on-exec.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tidewater_shared {
    /// The ring's file.
    pub ring_fd: c_int,
    /// An eventfd that wakes the device.
    pub doorbell_fd: c_int,
    /// The ring's copy on a disk; -1: it has none.
    pub copy_fd: c_int,
    /// The lane.
    pub lane: u32,
    /// The generation that it is written in.
    pub generation: u64,
}

/// Sets the defaults: lane 0, a level that survives a loss of power, a second for a full ring, ten for a sync.
///
/// # Safety
/// `options` points to a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_options_init(options: *mut tidewater_options) {
    let defaults = tidewater_options {
        size: size_of::<tidewater_options>(),
        lane: 0,
        level: TIDEWATER_DEFAULT,
        write_back: TIDEWATER_WRITE_BACK_DEFAULT,
        reserved: 0,
        full_ms: 1_000,
        timeout_ms: 10_000,
    };
    // SAFETY: the caller's.
    unsafe { put(options, defaults) };
}

/// Opens the log at "vfio-user:SOCKET", and takes up its stream. Of several such targets with commas between them it is
/// the one whose device is primary; of "cluster:etcd=HOST:PORT/NAME" the one that etcd names. One is waited for up to 5
/// seconds. Returns NULL and sets errno when that fails; EBUSY: another process has the device, or writes the lane.
/// EROFS, EPIPE: no device is primary. ENOENT: etcd has no such cluster.
///
/// On several devices the log moves: when the primary has gone or was deposed, calls find the next one for up to 30
/// seconds, append there what it has not got, and go on: log sequence numbers stay what they were. They fail with EPIPE
/// or EROFS when there is none, and with ESTALE when another program has appended there, or no replica had what this
/// one appended.
///
/// # Safety
/// `target` is a string; `options` and `recovered` point to structures, or are NULL: the defaults, and no
/// report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_open(
    target: *const c_char,
    options: *const tidewater_options,
    recovered: *mut tidewater_recovered,
) -> *mut tidewater_log {
    run(std::ptr::null_mut(), || {
        // SAFETY: the caller's.
        let (target, options) = unsafe { (text(target)?, options.as_ref()) };
        let (log, found) = Log::open_reporting(target, options_of(options)?)?;
        // SAFETY: the caller's.
        unsafe { put(recovered, recovered_of(found)) };
        Ok(handle(log))
    })
}

/// Closes a log. What was appended stays where it is. No other call may be using it; records that were begun and not
/// ended keep it until they are. NULL is allowed.
///
/// # Safety
/// `log` is of tidewater_open or tidewater_join, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_close(log: *mut tidewater_log) {
    run((), || {
        if !log.is_null() {
            // SAFETY: the caller's; it was made by `handle`.
            drop(unsafe { Box::from_raw(log) });
        }
        Ok(())
    });
}

/// Appends one record. Returns its log sequence number, and where it ends in *end (unless that is NULL): what to wait
/// for. -1 and errno: nothing was appended. EAGAIN: the ring is full, and stayed so. ENOSPC: trim the log.
///
/// # Safety
/// `log` is open; `buf` has `len` bytes; `end` is a place, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_append(
    log: *const tidewater_log,
    buf: *const c_void,
    len: usize,
    end: *mut i64,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let (log, bytes) = unsafe { (self::log(log)?, bytes(buf, len)?) };
        let written = log.append(&[bytes])?;
        // SAFETY: the caller's.
        unsafe { put(end, written.end as i64) };
        Ok(written.lsn as i64)
    })
}

/// Appends one record whose payload is the parts one after another, up to 1024. As tidewater_append.
///
/// # Safety
/// `log` is open; `parts` has `count` entries, each with its bytes; `end` is a place, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_appendv(
    log: *const tidewater_log,
    parts: *const iovec,
    count: c_int,
    end: *mut i64,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        // SAFETY: the caller's.
        let written = unsafe { self::parts(parts, count, |all| log.append(all)) }?;
        // SAFETY: the caller's.
        unsafe { put(end, written.end as i64) };
        Ok(written.lsn as i64)
    })
}

/// Writes bytes at the end of the stream, as they are, without a record around them. Returns where they begin, and
/// their end in *end; -1 and errno.
///
/// # Safety
/// As tidewater_append.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_pwrite(
    log: *const tidewater_log,
    buf: *const c_void,
    len: usize,
    end: *mut i64,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let (log, bytes) = unsafe { (self::log(log)?, bytes(buf, len)?) };
        let written = log.x_pwrite(bytes)?;
        // SAFETY: the caller's.
        unsafe { put(end, written.end as i64) };
        Ok(written.lsn as i64)
    })
}

/// Waits until all that was appended before, by anybody who has the lane, is at the log's level. Returns where that
/// ends; -1 and errno, as tidewater_wait.
///
/// # Safety
/// `log` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_fsync(log: *const tidewater_log) -> i64 {
    // SAFETY: the caller's.
    run(-1, || Ok(unsafe { self::log(log)? }.x_fsync()? as i64))
}

/// Waits until everything before `end` is at a level, at most so many milliseconds; negative: as long as it takes.
/// Returns 0; -1 and errno. ETIMEDOUT: it is not known how it ended; the same may be waited for again. EPIPE: the
/// device has gone. EHOSTDOWN: it does not answer. ESTALE: the stream goes on elsewhere. EIO: it is broken, and stays
/// so. ENOTSUP: nothing offers the level.
///
/// # Safety
/// `log` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_wait(log: *const tidewater_log, end: i64, level: c_int, timeout_ms: i64) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        let level = level_of(level)?.unwrap_or(log.level());
        log.wait(offset(end)?, level, time(timeout_ms))?;
        Ok(0)
    })
}

/// A descriptor that becomes readable, and stays so, when everything before `end` is at a level or never will be:
/// tidewater_wait with no time tells at once which. For poll, epoll and io_uring; close it when it is of no more use.
/// -1 and errno.
///
/// # Safety
/// `log` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_eventfd(log: *const tidewater_log, end: i64, level: c_int) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        let level = level_of(level)?.unwrap_or(log.level());
        Ok(log.event(offset(end)?, level)?.into_raw_fd())
    })
}

/// Reads the log from `at` on, until `len` bytes are there or the time is over. Returns how many came; -1 and errno.
/// ENXIO: they were trimmed or overwritten. ETIMEDOUT: none came. ENOTSUP: only flash has them, and the process that
/// opened the log has the connection.
///
/// # Safety
/// `log` is open; `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_pread(
    log: *const tidewater_log,
    buf: *mut c_void,
    len: usize,
    at: i64,
    timeout_ms: i64,
) -> isize {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        // SAFETY: the caller's.
        unsafe { read(buf, len, at, |at, to| log.x_pread(at, to, time(timeout_ms))) }
    })
}

/// Finds the next entry in bytes that were read from `lsn` on. Returns 1, and the entry; 0: there is no whole one any
/// more. The next search goes on at entry->end.
///
/// # Safety
/// `buf` has `len` bytes; `entry` is a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_next(
    buf: *const c_void,
    len: usize,
    lsn: i64,
    entry: *mut tidewater_entry,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let all = unsafe { bytes(buf, len)? };
        let none = tidewater_entry { kind: 0, lsn, end: lsn, payload: std::ptr::null(), payload_bytes: 0 };
        let at = Some(offset(lsn)?).filter(|at| *at <= tidewater_client::OFFSET_END);
        let at = at.ok_or(Failure::Call("a log sequence number is 2^44 at most"))?;
        let found = match Records::new(all, at).next() {
            None => return Ok(0),
            Some(Entry::Record { lsn, payload, .. }) => tidewater_entry {
                kind: TIDEWATER_RECORD,
                lsn: lsn as i64,
                end: (lsn + tidewater_client::span(payload.len() as u64)) as i64,
                payload: payload.as_ptr().cast(),
                payload_bytes: payload.len(),
            },
            Some(Entry::Void { lsn, bytes }) => {
                tidewater_entry { kind: TIDEWATER_VOID, lsn: lsn as i64, end: (lsn + bytes) as i64, ..none }
            }
            Some(Entry::Skipped { from, to, .. }) => {
                tidewater_entry { kind: TIDEWATER_SKIPPED, lsn: from as i64, end: to as i64, ..none }
            }
        };
        // SAFETY: the caller's.
        unsafe { put(entry, found) };
        Ok(1)
    })
}

/// Reserves room for a record of so many bytes, which is filled piece by piece, by this process only. Returns
/// NULL and errno as tidewater_append. While it is open, nothing behind it comes to any level.
///
/// # Safety
/// `log` is open; `lsn` is a place for the record's log sequence number, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_alloc(
    log: *const tidewater_log,
    bytes: u32,
    lsn: *mut i64,
) -> *mut tidewater_record {
    run(std::ptr::null_mut(), || {
        // SAFETY: the caller's.
        let log = Arc::clone(unsafe { self::log(log)? });
        // SAFETY: the log lies in the heap, and stays until the handle below has dropped what borrows it.
        let begun = unsafe { &*Arc::as_ptr(&log) }.begin(bytes)?;
        // SAFETY: the caller's.
        unsafe { put(lsn, begun.lsn() as i64) };
        Ok(Box::into_raw(Box::new(tidewater_record { begun: Some(begun), _log: log })))
    })
}

/// Stores bytes at a place of a record's payload. Returns 0; -1 and EINVAL: they are not inside.
///
/// # Safety
/// `record` is of tidewater_x_alloc; `buf` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_fill(
    record: *mut tidewater_record,
    at: u32,
    buf: *const c_void,
    len: usize,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (record, bytes) = unsafe { (record.as_mut(), bytes(buf, len)?) };
        let begun = record.and_then(|record| record.begun.as_mut()).ok_or(Failure::Call("record is NULL"))?;
        if u64::from(at).saturating_add(len as u64) > u64::from(begun.bytes()) {
            return Err(Failure::Call("the bytes are not inside of the record"));
        }
        begun.fill(at, bytes);
        Ok(0)
    })
}

/// The record is whole. Returns where it ends: what to wait for; -1 and errno. Either way the handle is gone.
///
/// # Safety
/// `record` is of tidewater_x_alloc, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_free(record: *mut tidewater_record) -> i64 {
    run(-1, || {
        if record.is_null() {
            return Err(Failure::Call("record is NULL"));
        }
        // SAFETY: the caller's; it was made by tidewater_x_alloc.
        let mut record = unsafe { Box::from_raw(record) };
        let begun = record.begun.take().ok_or(Failure::Call("record is over"))?;
        Ok(begun.commit()?.end as i64)
    })
}

/// Gives the record up: it becomes a void one, and what others appended behind it is not lost. NULL is allowed.
///
/// # Safety
/// As tidewater_x_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_x_abort(record: *mut tidewater_record) {
    run((), || {
        if !record.is_null() {
            // SAFETY: the caller's; it was made by tidewater_x_alloc.
            drop(unsafe { Box::from_raw(record) });
        }
        Ok(())
    });
}

/// The log before `lsn` is not needed any more. Returns 0; -1 and errno.
///
/// # Safety
/// `log` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_trim(log: *const tidewater_log, lsn: i64) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        unsafe { self::log(log)? }.trim(offset(lsn)?)?;
        Ok(0)
    })
}

/// Tells how a log is doing. Returns 0; -1 and errno.
///
/// # Safety
/// `log` is open; `status` is a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_status(log: *const tidewater_log, status: *mut tidewater_status) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        // SAFETY: the caller's.
        unsafe { put(status, status_of(&log.status(), log.lane(), log.is_persistent())) };
        Ok(0)
    })
}

/// Failures that a level of this log survives, in words. NULL and EINVAL: there is no such level.
///
/// # Safety
/// `log` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_survives(log: *const tidewater_log, level: c_int) -> *const c_char {
    run(std::ptr::null(), || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        let words = match (level_of(level)?.unwrap_or(log.level()), log.is_persistent()) {
            (Level::Ring, true) => {
                c"a crash of this process or the device's, and power loss once lines are written back"
            }
            (Level::Ring, false) => {
                c"a crash of this process or the device's, but neither power loss nor a crash of the machine"
            }
            (Level::Destaged, _) => c"crashes and power loss, provided the disk honours fdatasync",
            (Level::RemoteRing, _) if log.acknowledges(Level::RemoteRing).is_ok() => {
                c"the loss of this machine, but not that of all machines of the group at once"
            }
            (Level::RemoteDestaged, _) if log.acknowledges(Level::RemoteDestaged).is_ok() => {
                c"the loss of this machine, and power loss of all, provided disks honour fdatasync"
            }
            (Level::RemoteRing | Level::RemoteDestaged, _) => c"not available: no replica acknowledges at this level",
        };
        Ok(words.as_ptr())
    })
}

/// Connects anew, after EPIPE, while other threads and processes use the log. All below recovered->tail is in the ring,
/// or where the device took it to. Returns 0; -1 and errno. ESTALE: the stream goes on elsewhere; close the log and
/// open it again, which tells where. A log on several devices moves by itself; this has it look for the primary at
/// once.
///
/// # Safety
/// `log` is open; `recovered` is a place, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_reattach(log: *const tidewater_log, recovered: *mut tidewater_recovered) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let found = unsafe { self::log(log)? }.reconnect()?;
        // SAFETY: the caller's.
        unsafe { put(recovered, recovered_of(found)) };
        Ok(0)
    })
}

/// How often a log on several devices has moved to another primary; -1 and errno.
///
/// # Safety
/// `log` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_moves(log: *const tidewater_log) -> i64 {
    // SAFETY: the caller's.
    run(-1, || Ok(unsafe { self::log(log)? }.moves() as i64))
}

/// Descriptors by which another process joins the lane: they are the caller's to hand on, and to close. From then on
/// the log stays on its device. Returns 0; -1 and errno.
///
/// # Safety
/// `log` is open; `shared` is a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_share(log: *const tidewater_log, shared: *mut tidewater_shared) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::log(log)? };
        if shared.is_null() {
            return Err(Failure::Call("shared is NULL"));
        }
        let Shared { ring, doorbell, copy, lane, generation } = log.share()?;
        let (ring_fd, doorbell_fd) = (ring.into_raw_fd(), doorbell.into_raw_fd());
        let copy_fd = copy.map_or(-1, IntoRawFd::into_raw_fd);
        // SAFETY: the caller's.
        unsafe { put(shared, tidewater_shared { ring_fd, doorbell_fd, copy_fd, lane: lane.into(), generation }) };
        Ok(0)
    })
}

/// Joins a lane that another process shares. The descriptors are the log's from now on, and are closed when this fails.
/// NULL and errno.
///
/// # Safety
/// `shared` points to a structure whose descriptors are the caller's; `options` does too, or is NULL. Its lane does not
/// count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_join(
    shared: *const tidewater_shared,
    options: *const tidewater_options,
) -> *mut tidewater_log {
    run(std::ptr::null_mut(), || {
        // SAFETY: the caller's.
        let (shared, options) = unsafe { (shared.as_ref(), options.as_ref()) };
        let shared = shared.ok_or(Failure::Call("shared is NULL"))?;
        // SAFETY: the caller's descriptors, which are given away, whatever becomes of them; -1 is none.
        let own = |fd: c_int| (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        let (ring, doorbell, copy) = (own(shared.ring_fd), own(shared.doorbell_fd), own(shared.copy_fd));
        let (Some(ring), Some(doorbell), lane @ 0..=15) = (ring, doorbell, shared.lane) else {
            return Err(Failure::Call("shared is none of tidewater_share"));
        };
        let shared = Shared { ring, doorbell, copy, lane: lane as u8, generation: shared.generation };
        Ok(handle(Log::join(shared, options_of(options)?)?))
    })
}

/// Message of this thread's last call that failed, in words. It stays until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn tidewater_message() -> *const c_char {
    report::message()
}

/// The library's version, "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn tidewater_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
