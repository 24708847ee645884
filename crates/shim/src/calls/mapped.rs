//! Mappings for reading of files in the set, which the program may make writable later (mprotect(2)): from then on
//! stores reach the file without a call.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc::{self, size_t};
use tidewater_files::Place;

use super::{give, members};
use crate::descriptors::{self, Kind};
use crate::{process, real};

/// Mappings that are known at a time. What is beyond is found out by the file's next sync.
const MAPPED: usize = 64;

/// One of them. It counts while it has a length.
struct Mapped {
    is_taken: AtomicBool,
    from: AtomicUsize,
    len: AtomicUsize,
    entry: AtomicU32,
    id: AtomicU64,
}

static ALL: [Mapped; MAPPED] = [const {
    Mapped {
        is_taken: AtomicBool::new(false),
        from: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        entry: AtomicU32::new(0),
        id: AtomicU64::new(0),
    }
}; MAPPED];
/// Whether there were any.
static SOME: AtomicBool = AtomicBool::new(false);

/// A file of the set was mapped for reading, shared, by a descriptor that can write it.
pub fn note(fd: c_int, from: usize, len: usize) {
    let Kind::File(of) = descriptors::kind(fd) else { return };
    let free =
        ALL.iter().find(|one| one.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    let Some(one) = free else { return };
    one.from.store(from, Ordering::Relaxed);
    one.entry.store(of.place.entry.into(), Ordering::Relaxed);
    one.id.store(of.place.id.into(), Ordering::Relaxed);
    one.len.store(len, Ordering::Release);
    SOME.store(true, Ordering::Release);
}

/// Before memory becomes writable. Places are only ever forgotten here: an address that is mapped anew has the file
/// made real once too often, at worst.
fn becomes_writable(at: usize, len: usize) -> Result<(), Errno> {
    for one in &ALL {
        let size = one.len.load(Ordering::Acquire);
        let from = one.from.load(Ordering::Relaxed);
        if size == 0 || from >= at.saturating_add(len) || at >= from.saturating_add(size) {
            continue;
        }
        let place =
            Place { entry: one.entry.load(Ordering::Relaxed) as u16, id: one.id.load(Ordering::Relaxed) as u32 };
        one.len.store(0, Ordering::Release);
        one.is_taken.store(false, Ordering::Release);
        let files = process::files()?;
        if files.table().is(place)
            && let Some(file) = files.by_name(place)
        {
            use std::os::fd::AsRawFd as _;
            members::make_real(place, file.as_raw_fd(), "a mapping of it is made writable (mprotect)")?;
        }
    }
    Ok(())
}

fn before(at: *mut c_void, len: size_t, protection: c_int) -> Result<(), Errno> {
    if protection & libc::PROT_WRITE == 0 || !SOME.load(Ordering::Acquire) {
        return Ok(());
    }
    let errno = Errno::last();
    becomes_writable(at.addr(), len)?;
    errno.set();
    Ok(())
}

/// `mprotect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(at: *mut c_void, len: size_t, protection: c_int) -> c_int {
    match before(at, len, protection) {
        // SAFETY: the caller's.
        Ok(()) => unsafe { real::mprotect(at, len, protection) },
        Err(errno) => give(Err(errno)),
    }
}

/// `pkey_mprotect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(at: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int {
    match before(at, len, protection) {
        // SAFETY: the caller's.
        Ok(()) => unsafe { real::pkey_mprotect(at, len, protection, key) },
        Err(errno) => give(Err(errno)),
    }
}
