//! Values of C as those of the library, and back.

use super::{
    TIDEWATER_DEFAULT, TIDEWATER_DESTAGED, TIDEWATER_REMOTE_DESTAGED, TIDEWATER_REMOTE_RING, TIDEWATER_RING,
    TIDEWATER_WRITE_BACK_DEFAULT, TIDEWATER_WRITE_BACK_LINES, TIDEWATER_WRITE_BACK_NONE, tidewater_log,
    tidewater_options, tidewater_recovered,
};
use crate::report::Failure;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;
use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options, Recovered, WriteBack};

pub(crate) fn level_of(level: c_int) -> Result<Option<Level>, Failure> {
    match level {
        TIDEWATER_DEFAULT => Ok(None),
        TIDEWATER_RING => Ok(Some(Level::Ring)),
        TIDEWATER_DESTAGED => Ok(Some(Level::Destaged)),
        TIDEWATER_REMOTE_RING => Ok(Some(Level::RemoteRing)),
        TIDEWATER_REMOTE_DESTAGED => Ok(Some(Level::RemoteDestaged)),
        _ => Err(Failure::Call(
            "level is none of TIDEWATER_DEFAULT, ..._RING, ..._DESTAGED, ..._REMOTE_RING, ..._REMOTE_DESTAGED",
        )),
    }
}

pub(crate) fn offset(lsn: i64) -> Result<u64, Failure> {
    u64::try_from(lsn).map_err(|_| Failure::Call("a log sequence number is 0 or more"))
}

/// Negative: for ever, as far as a program runs.
pub(crate) fn time(ms: i64) -> Duration {
    u64::try_from(ms).map_or(Duration::from_secs(1 << 32), Duration::from_millis)
}

/// SAFETY: a pointer to a handle of this library that lives, or NULL.
pub(crate) unsafe fn log<'l>(log: *const tidewater_log) -> Result<&'l Arc<Log>, Failure> {
    // SAFETY: the caller's.
    unsafe { log.as_ref() }.map(|log| &log.log).ok_or(Failure::Call("log is NULL"))
}

/// SAFETY: `len` bytes that can be read, and that do not change meanwhile; NULL where `len` is 0.
pub(crate) unsafe fn bytes<'b>(buf: *const c_void, len: usize) -> Result<&'b [u8], Failure> {
    match (buf.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::Call("buf is NULL")),
        (false, _) if isize::try_from(len).is_err() => Err(Failure::Call("len is more than memory has")),
        // SAFETY: the caller's; not NULL, and `len` fits an isize.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(buf.cast(), len) }),
    }
}

/// SAFETY: a place for a `T`, or NULL.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's.
        unsafe { place.write(value) };
    }
}

pub(crate) fn options_of(options: Option<&tidewater_options>) -> Result<Options, Failure> {
    let Some(options) = options else { return Ok(Options::default()) };
    if options.size < size_of::<tidewater_options>() {
        return Err(Failure::Call("options: size is too small; call tidewater_options_init first"));
    }
    let lane = u8::try_from(options.lane).map_err(|_| Failure::Call("options: lane is 0 to 15"))?;
    let write_back = match options.write_back {
        TIDEWATER_WRITE_BACK_DEFAULT => None,
        TIDEWATER_WRITE_BACK_NONE => Some(WriteBack::None),
        TIDEWATER_WRITE_BACK_LINES => Some(WriteBack::Lines),
        _ => return Err(Failure::Call("options: write_back is none of TIDEWATER_WRITE_BACK_...")),
    };
    if options.reserved != 0 {
        return Err(Failure::Call("options: reserved is 0; call tidewater_options_init first"));
    }
    let (full, timeout) = (time(options.full_ms), time(options.timeout_ms));
    Ok(Options { lane, level: level_of(options.level)?, write_back, full, timeout })
}

pub(crate) fn recovered_of(found: Recovered) -> tidewater_recovered {
    tidewater_recovered {
        tail: found.tail as i64,
        in_ring: found.in_ring as i64,
        records: found.records as i64,
        sealed: found.sealed as i64,
        is_new: found.is_new,
    }
}

pub(crate) fn handle(log: Log) -> *mut tidewater_log {
    Box::into_raw(Box::new(tidewater_log { log: Arc::new(log) }))
}
