//! The byte window of a drive: `tidewater_window(3)` describes what is here; `tidewater.h` has it too.
#![allow(unsafe_code, non_camel_case_types)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::libc;
use tidewater_client::WindowEntry;
use tidewater_client::hardware::{Device, HardwareError, Window, WindowPlace};

use crate::convert::{bytes, put};
use crate::report::{Failure, run};

/// Wherever in the buffer there is room: the offset of tidewater_ba_pin.
pub const TIDEWATER_ANYWHERE: i64 = -1;

/// Bytes that a load is compared with, at most.
const COMPARED: usize = 64;

/// The byte window of a drive, for blocks of one namespace. Threads share it; a fork does not.
pub struct tidewater_window {
    state: Mutex<State>,
}

struct State {
    device: Device,
    place: WindowPlace,
    /// Where entries are, by their identifier.
    entries: BTreeMap<u16, WindowEntry>,
    /// The bytes that each was last given, from a byte on: not all of them ones.
    stored: BTreeMap<u16, (u64, Vec<u8>)>,
}

/// An entry of the window's mapping table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tidewater_entry_info {
    /// Its first byte in the window.
    pub offset: i64,
    /// Its bytes.
    pub bytes: i64,
    /// The first logical block that it pins.
    pub lba: u64,
    /// The namespace of that block.
    pub nsid: u32,
    /// Not 0: a flush of it was cut short, and it can only be flushed.
    pub flush_begun: c_int,
}

fn failure(error: HardwareError) -> Failure {
    Failure::Known { errno: error.errno(), why: error.to_string() }
}

fn unsigned(number: i64, why: &'static str) -> Result<u64, Failure> {
    u64::try_from(number).map_err(|_| Failure::Call(why))
}

impl State {
    fn window(&mut self) -> Window<'_> {
        self.device.window_at(self.place)
    }

    fn entry(&mut self, eid: u16) -> Result<WindowEntry, Failure> {
        if let Some(entry) = self.entries.get(&eid) {
            return Ok(*entry);
        }
        let entry = self.window().entry(eid).map_err(failure)?;
        self.entries.insert(eid, entry);
        Ok(entry)
    }

    fn forget(&mut self, eid: u16) {
        self.entries.remove(&eid);
        self.stored.remove(&eid);
    }

    /// An entry that is gone for the device is gone here.
    fn ended(&mut self, eid: u16, result: Result<(), HardwareError>) -> Result<(), Failure> {
        result.map_err(|error| {
            let failed = failure(error);
            if matches!(failed, Failure::Known { errno: libc::ENOENT, .. }) {
                self.forget(eid);
            }
            failed
        })
    }

    fn store(&mut self, eid: u16, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let entry = self.entry(eid)?;
        let result = self.window().write(&entry, at, bytes);
        self.ended(eid, result)?;
        match bytes.chunks(COMPARED).enumerate().find(|(_, piece)| piece.iter().any(|&byte| byte != 0xFF)) {
            Some((i, piece)) => drop(self.stored.insert(eid, (at + (i * COMPARED) as u64, piece.to_vec()))),
            // What was there may be among what has become ones.
            None => drop(self.stored.remove(&eid)),
        }
        Ok(())
    }

    fn sync(&mut self, eid: u16) -> Result<(), Failure> {
        let entry = self.entry(eid)?;
        let stored = self.stored.get(&eid).cloned();
        let result = match &stored {
            Some((at, bytes)) => {
                self.window().sync_and_verify(&[(entry, 0, entry.bytes)], (&entry, *at), bytes).and_then(|is_there| {
                    let what = "the device does not have what was stored: it could not make it safe, or dropped it";
                    if is_there { Ok(()) } else { Err(HardwareError::Malformed(what.into())) }
                })
            }
            None => self.window().sync(&entry, 0, entry.bytes),
        };
        self.ended(eid, result)
    }
}

/// SAFETY: a pointer to a handle of this library that lives, or NULL.
unsafe fn state<'w>(window: *const tidewater_window) -> Result<MutexGuard<'w, State>, Failure> {
    // SAFETY: the caller's.
    let window = unsafe { window.as_ref() }.ok_or(Failure::Call("window is NULL"))?;
    Ok(window.state.lock().unwrap_or_else(PoisonError::into_inner))
}

/// SAFETY: `len` bytes that can be written, and that no other thread uses meanwhile; NULL where `len` is 0.
unsafe fn bytes_mut<'b>(buf: *mut c_void, len: usize) -> Result<&'b mut [u8], Failure> {
    match (buf.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::Call("buf is NULL")),
        (false, _) if isize::try_from(len).is_err() => Err(Failure::Call("len is more than memory has")),
        // SAFETY: the caller's; not NULL, and `len` fits an isize.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(buf.cast(), len) }),
    }
}

/// Opens the byte window of the drive at "vfio-user:SOCKET" or "pci:ADDRESS", for blocks of a namespace. Returns NULL
/// and sets errno when that fails. ENOTSUP: the drive has no byte window; EBUSY: another process has the device.
///
/// # Safety
/// `target` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_window_open(target: *const c_char, nsid: u32) -> *mut tidewater_window {
    run(ptr::null_mut(), || {
        if target.is_null() {
            return Err(Failure::Call("target is NULL"));
        }
        // SAFETY: the caller's.
        let target = unsafe { CStr::from_ptr(target) }.to_str().map_err(|_| Failure::Call("target is no UTF-8"))?;
        let mut device = Device::open(target).map_err(failure)?;
        let place = device.window(nsid).map_err(failure)?.place();
        let state = State { device, place, entries: BTreeMap::new(), stored: BTreeMap::new() };
        Ok(Box::into_raw(Box::new(tidewater_window { state: Mutex::new(state) })))
    })
}

/// Closes a window. Entries stay pinned. No other call may be using it. NULL is allowed.
///
/// # Safety
/// `window` is of tidewater_window_open, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_window_close(window: *mut tidewater_window) {
    run((), || {
        if !window.is_null() {
            // SAFETY: the caller's; it was made by `tidewater_window_open`.
            drop(unsafe { Box::from_raw(window) });
        }
        Ok(())
    });
}

/// Bytes of a logical block. -1 and errno: it is not known.
///
/// # Safety
/// `window` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_window_block_bytes(window: *const tidewater_window) -> i64 {
    // SAFETY: the caller's.
    run(-1, || Ok(unsafe { state(window)? }.window().block_bytes().into()))
}

/// BA_PIN: pins logical blocks as entry `eid`, at a byte of the buffer or TIDEWATER_ANYWHERE. Both are whole logical
/// pages (4 KiB). Returns the bytes that are pinned. -1 and errno: none are. EEXIST: the entry, the place or one of the
/// blocks is pinned already; ENOSPC: the buffer or the table is full; ERANGE: the range is none.
///
/// # Safety
/// `window` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_pin(
    window: *const tidewater_window,
    eid: u16,
    offset: i64,
    lba: u64,
    blocks: u32,
) -> i64 {
    run(-1, || {
        // SAFETY: the caller's.
        let mut state = unsafe { state(window)? };
        let at = match offset {
            TIDEWATER_ANYWHERE => None,
            offset => Some(unsigned(offset, "offset is 0 or more, or TIDEWATER_ANYWHERE")?),
        };
        let entry = state.window().pin(eid, at, lba, blocks).map_err(failure)?;
        state.forget(eid);
        state.entries.insert(eid, entry);
        Ok(entry.bytes as i64)
    })
}

/// Stores bytes into an entry from its byte `at` on. They are safe after tidewater_ba_sync. 0; -1 and errno. ERANGE:
/// they end past it.
///
/// # Safety
/// `window` is open; `buf` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_store(
    window: *const tidewater_window,
    eid: u16,
    at: i64,
    buf: *const c_void,
    len: usize,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (mut state, bytes) = unsafe { (state(window)?, bytes(buf, len)?) };
        state.store(eid, unsigned(at, "at is 0 or more")?, bytes).map(|()| 0)
    })
}

/// Loads bytes of an entry from its byte `at` on, one register after the other. 0; -1 and errno.
///
/// # Safety
/// `window` is open; `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_load(
    window: *const tidewater_window,
    eid: u16,
    at: i64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (mut state, to) = unsafe { (state(window)?, bytes_mut(buf, len)?) };
        let (entry, at) = (state.entry(eid)?, unsigned(at, "at is 0 or more")?);
        let result = state.window().load(&entry, at, to);
        state.ended(eid, result).map(|()| 0)
    })
}

/// BA_SYNC: all that was stored into an entry survives what the window's memory survives. 0; -1 and errno. EIO: the
/// device could not make it safe.
///
/// # Safety
/// `window` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_sync(window: *const tidewater_window, eid: u16) -> c_int {
    // SAFETY: the caller's.
    run(-1, || unsafe { state(window)? }.sync(eid).map(|()| 0))
}

/// BA_FLUSH: writes an entry to its blocks, and ends it. 0; -1 and errno: it is still pinned.
///
/// # Safety
/// `window` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_flush(window: *const tidewater_window, eid: u16) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let mut state = unsafe { state(window)? };
        let entry = state.entry(eid)?;
        let result = state.window().flush(&entry);
        state.ended(eid, result)?;
        state.forget(eid);
        Ok(0)
    })
}

/// Ends an entry without writing it: its blocks are what they were. 0; -1 and errno: it is still pinned.
///
/// # Safety
/// `window` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_unpin(window: *const tidewater_window, eid: u16) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let mut state = unsafe { state(window)? };
        let entry = state.entry(eid)?;
        let result = state.window().unpin(&entry);
        state.ended(eid, result)?;
        state.forget(eid);
        Ok(0)
    })
}

/// BA_READ_DMA: brings bytes of an entry from its byte `at` on by DMA. 0; -1 and errno.
///
/// # Safety
/// `window` is open; `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_read_dma(
    window: *const tidewater_window,
    eid: u16,
    at: i64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let (mut state, to) = unsafe { (state(window)?, bytes_mut(buf, len)?) };
        let (entry, at) = (state.entry(eid)?, unsigned(at, "at is 0 or more")?);
        let result = state.window().read_dma(&entry, at, to);
        state.ended(eid, result).map(|()| 0)
    })
}

/// BA_GET_ENTRY_INFO: asks the device for an entry. 0; -1 and errno. ENOENT: there is none of that identifier.
///
/// # Safety
/// `window` is open; `info` is a place, or NULL: only whether there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidewater_ba_get_entry_info(
    window: *const tidewater_window,
    eid: u16,
    info: *mut tidewater_entry_info,
) -> c_int {
    run(-1, || {
        // SAFETY: the caller's.
        let mut state = unsafe { state(window)? };
        let result = state.window().info(eid);
        let found = result.map_err(|error| {
            state.forget(eid);
            failure(error)
        })?;
        let entry = WindowEntry { name: eid, offset: found.offset, bytes: found.bytes };
        if state.entries.insert(eid, entry).is_some_and(|before| before != entry) {
            state.stored.remove(&eid); // Another one has the identifier now.
        }
        let found = tidewater_entry_info {
            offset: found.offset as i64,
            bytes: found.bytes as i64,
            lba: found.lba,
            nsid: found.nsid,
            flush_begun: found.flush_begun.into(),
        };
        // SAFETY: the caller's.
        unsafe { put(info, found) };
        Ok(0)
    })
}
