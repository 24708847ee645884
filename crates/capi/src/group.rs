//! A log that moves to the next primary of its group: `tidewater_group(3)` describes what is here; `tidewater.h` has it
//! too.
#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use nix::libc::iovec;
use tidewater_client::mapped::GroupLog;

use crate::convert::{bytes, level_of, offset, options_of, parts, put, read, recovered_of, status_of, text, time};
use crate::report::{Failure, run};
use crate::{tidewater_options, tidewater_recovered, tidewater_status};

/// A log on the devices of a group, which moves to the next primary by itself. Threads share it; a fork does not.
pub struct tidewater_group {
    log: GroupLog,
}

/// SAFETY: a pointer to a handle of this library that lives, or NULL.
unsafe fn group<'l>(group: *const tidewater_group) -> Result<&'l GroupLog, Failure> {
    // SAFETY: the caller's.
    unsafe { group.as_ref() }.map(|group| &group.log).ok_or(Failure::Call("group is NULL"))
}

/// Opens the log of a group of devices, on its primary: "vfio-user:SOCKET,vfio-user:SOCKET", or
/// "cluster:etcd=HOST:PORT/NAME", where etcd names the primary. One is waited for up to 5 seconds. Returns NULL and
/// sets errno when that fails. EROFS, EPIPE: no device is primary. EBUSY: another process has it, or writes the lane.
/// ENOENT: etcd has no such cluster.
///
/// When the primary has gone or was deposed, the calls below find the next one for up to 30 seconds, append there what
/// it has not got, and go on: log sequence numbers stay what they were. They fail with EPIPE or EROFS when there is
/// none, and with ESTALE when another program has appended there, or the new primary lacks what was waited for by no
/// replica.
///
/// # Safety
/// `target` is a string; `options` and `recovered` point to structures, or are NULL: the defaults, and no report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_open(
    target: *const c_char,
    options: *const tidewater_options,
    recovered: *mut tidewater_recovered,
) -> *mut tidewater_group {
    run(ptr::null_mut(), || {
        // SAFETY: the caller's.
        let (target, options) = unsafe { (text(target)?, options.as_ref()) };
        let (log, found) = GroupLog::open(target, options_of(options)?)?;
        // SAFETY: the caller's.
        unsafe { put(recovered, recovered_of(found)) };
        Ok(Box::into_raw(Box::new(tidewater_group { log })))
    })
}

/// Closes it, as tidewater_close. NULL is allowed.
///
/// # Safety
/// `group` is of tidewater_group_open, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_close(group: *mut tidewater_group) {
    run((), || {
        if !group.is_null() {
            // SAFETY: the caller's; it was made by tidewater_group_open.
            drop(unsafe { Box::from_raw(group) });
        }
        Ok(())
    });
}

/// How often the log has moved to another primary; -1 and errno.
///
/// # Safety
/// `group` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_moves(group: *const tidewater_group) -> i64 {
    // SAFETY: the caller's.
    run(-1, || Ok(unsafe { self::group(group)? }.moves() as i64))
}

/// As tidewater_append.
///
/// # Safety
/// `group` is open; `buf` has `len` bytes; `end` is a place, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_append(
    group: *const tidewater_group,
    buf: *const c_void,
    len: usize,
    end: *mut i64,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let (log, bytes) = unsafe { (self::group(group)?, bytes(buf, len)?) };
        let written = log.append(&[bytes])?;
        // SAFETY: the caller's.
        unsafe { put(end, written.end as i64) };
        Ok(written.lsn as i64)
    })
}

/// As tidewater_appendv; it allocates nothing for up to 16 parts.
///
/// # Safety
/// `group` is open; `parts` has `count` entries, each with its bytes; `end` is a place, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_appendv(
    group: *const tidewater_group,
    parts: *const iovec,
    count: c_int,
    end: *mut i64,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::group(group)? };
        // SAFETY: the caller's.
        let written = unsafe { self::parts(parts, count, |all| log.append(all)) }?;
        // SAFETY: the caller's.
        unsafe { put(end, written.end as i64) };
        Ok(written.lsn as i64)
    })
}

/// As tidewater_x_pwrite.
///
/// # Safety
/// As tidewater_group_append.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_x_pwrite(
    group: *const tidewater_group,
    buf: *const c_void,
    len: usize,
    end: *mut i64,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let (log, bytes) = unsafe { (self::group(group)?, bytes(buf, len)?) };
        let written = log.x_pwrite(bytes)?;
        // SAFETY: the caller's.
        unsafe { put(end, written.end as i64) };
        Ok(written.lsn as i64)
    })
}

/// As tidewater_x_fsync.
///
/// # Safety
/// `group` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_x_fsync(group: *const tidewater_group) -> i64 {
    // SAFETY: the caller's.
    run(-1, || Ok(unsafe { self::group(group)? }.x_fsync()? as i64))
}

/// As tidewater_wait.
///
/// # Safety
/// `group` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_wait(
    group: *const tidewater_group,
    end: i64,
    level: c_int,
    timeout_ms: i64,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::group(group)? };
        let level = level_of(level)?.unwrap_or(log.level());
        log.wait(offset(end)?, level, time(timeout_ms))?;
        Ok(0)
    })
}

/// As tidewater_x_pread.
///
/// # Safety
/// `group` is open; `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_x_pread(
    group: *const tidewater_group,
    buf: *mut c_void,
    len: usize,
    at: i64,
    timeout_ms: i64,
) -> isize {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::group(group)? };
        // SAFETY: the caller's.
        unsafe { read(buf, len, at, |at, to| log.x_pread(at, to, time(timeout_ms))) }
    })
}

/// As tidewater_trim.
///
/// # Safety
/// `group` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_trim(group: *const tidewater_group, lsn: i64) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        unsafe { self::group(group)? }.trim(offset(lsn)?)?;
        Ok(0)
    })
}

/// As tidewater_status, of the primary that the log is on.
///
/// # Safety
/// `group` is open; `status` is a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_group_status(group: *const tidewater_group, status: *mut tidewater_status) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let log = unsafe { self::group(group)? };
        // SAFETY: the caller's.
        unsafe { put(status, status_of(&log.status(), log.lane(), log.is_persistent())) };
        Ok(0)
    })
}
