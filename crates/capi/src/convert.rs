//! Values of C as those of the library, and back.

use super::{
    TIDEWATER_DEFAULT, TIDEWATER_DESTAGED, TIDEWATER_REMOTE_DESTAGED, TIDEWATER_REMOTE_RING, TIDEWATER_RING,
    TIDEWATER_WRITE_BACK_DEFAULT, TIDEWATER_WRITE_BACK_LINES, TIDEWATER_WRITE_BACK_NONE, tidewater_log,
    tidewater_options, tidewater_recovered, tidewater_status,
};
use crate::report::Failure;
use nix::libc::iovec;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;
use tidewater_client::mapped::{Log, Options, Recovered, Status, WriteBack};
use tidewater_client::{Level, LogError};

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
    Ok(Options { lane, level: level_of(options.level)?, write_back, full, timeout, ..Options::default() })
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

/// SAFETY: a string, or NULL.
pub(crate) unsafe fn text<'t>(target: *const c_char) -> Result<&'t str, Failure> {
    if target.is_null() {
        return Err(Failure::Call("target is NULL"));
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(target) }.to_str().map_err(|_| Failure::Call("target is no UTF-8"))
}

/// Parts of a record that need no memory of the heap.
const PARTS: usize = 16;

/// Gives parts of a record to an append.
///
/// SAFETY: `parts` has `count` entries, each with bytes that can be read.
pub(crate) unsafe fn parts<T>(
    parts: *const iovec,
    count: c_int,
    append: impl FnOnce(&[&[u8]]) -> Result<T, LogError>,
) -> Result<T, Failure> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 1024 && !(*count > 0 && parts.is_null()));
    let count = count.ok_or(Failure::Call("parts is NULL, or count is none of 0 to 1024"))?;
    // SAFETY: the caller's.
    let part = |at: usize| unsafe {
        let part = &*parts.add(at);
        bytes(part.iov_base, part.iov_len)
    };
    let mut few = [&[][..]; PARTS];
    let mut many = Vec::new();
    let all = match few.get_mut(..count) {
        Some(few) => few,
        None => {
            many.resize(count, &[][..]);
            &mut many[..]
        }
    };
    for (at, place) in all.iter_mut().enumerate() {
        *place = part(at)?;
    }
    Ok(append(all)?)
}

/// Reads into memory of a program; how many bytes came.
///
/// SAFETY: `buf` has room for `len` bytes.
pub(crate) unsafe fn read(
    buf: *mut c_void,
    len: usize,
    at: i64,
    from: impl FnOnce(u64, &mut [u8]) -> Result<(), LogError>,
) -> Result<isize, Failure> {
    if (buf.is_null() && len > 0) || isize::try_from(len).is_err() {
        return Err(Failure::Call("buf is NULL, or len is more than memory has"));
    }
    let at = offset(at)?;
    if len == 0 {
        return Ok(0);
    }
    // SAFETY: the caller's: `len` bytes that can be written.
    let to = unsafe {
        std::ptr::write_bytes(buf.cast::<u8>(), 0, len);
        std::slice::from_raw_parts_mut(buf.cast::<u8>(), len)
    };
    match from(at, to) {
        Ok(()) => Ok(len as isize),
        Err(LogError::NoMoreLog { filled }) if filled > 0 => Ok(filled as isize),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn status_of(is: &Status, lane: u8, persistent: bool) -> tidewater_status {
    let lane = is.device.as_ref().and_then(|device| device.lane.get(usize::from(lane)));
    tidewater_status {
        ring_bytes: is.ring_bytes as i64,
        oldest: lane.map_or(-1, |lane| lane.readable as i64),
        reserved: is.reserved as i64,
        ring: is.ring as i64,
        taken: is.taken as i64,
        destaged: is.destaged as i64,
        level: match is.level {
            Level::Ring => TIDEWATER_RING,
            Level::Destaged => TIDEWATER_DESTAGED,
            Level::RemoteRing => TIDEWATER_REMOTE_RING,
            Level::RemoteDestaged => TIDEWATER_REMOTE_DESTAGED,
        },
        open: is.open,
        broken: is.broken,
        connected: is.device.is_some(),
        persistent,
    }
}
