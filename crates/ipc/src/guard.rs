//! Mappings whose file another process can make shorter.
//!
//! An access behind the end of a mapped file ends a process by SIGBUS. Here it does not: in place of the whole
//! mapping, the handler of that signal maps zeroes, and notes that the memory is lost. The access goes on, and its
//! caller finds the note. A SIGBUS anywhere else is handled as it was before.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Guarded mappings of the process, at most.
const PLACES: usize = 1024;

/// Where a guarded mapping is.
#[derive(Debug)]
struct Place {
    /// Its first byte; null: it is free.
    base: AtomicPtr<libc::c_void>,
    len: AtomicUsize,
    lost: AtomicBool,
}

static MAPPINGS: [Place; PLACES] = [const {
    Place { base: AtomicPtr::new(std::ptr::null_mut()), len: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; PLACES];
/// The signal's earlier handler.
static BEFORE: OnceLock<SigAction> = OnceLock::new();
/// Stands in `base` while a place is taken and not yet filled in: no address of a mapping.
const TAKEN: *mut libc::c_void = std::ptr::without_provenance_mut(1);

/// Guards a mapping from its making to its end.
#[derive(Debug)]
pub(super) struct Guard(&'static Place);

impl Guard {
    /// Guards the `len` bytes of a mapping from `base` on. The caller accesses them only while this lives.
    ///
    /// # Errors
    /// ENOSPC: as many as there can be are guarded already; what sigaction says.
    pub(super) fn new(base: *mut libc::c_void, len: usize) -> Result<Guard, Errno> {
        install()?;
        let is_free = |place: &&Place| {
            let free = std::ptr::null_mut();
            place.base.compare_exchange(free, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = MAPPINGS.iter().find(is_free).ok_or(Errno::ENOSPC)?;
        place.lost.store(false, Ordering::Relaxed);
        place.len.store(len, Ordering::Relaxed);
        place.base.store(base, Ordering::Release);
        Ok(Guard(place))
    }

    /// Whether an access has found that the file had become shorter: from then on the bytes are not the file's.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.base.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Installs the handler, once.
fn install() -> Result<(), Errno> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::SigAction(on_bus_error), flags, SigSet::empty());
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    let mut result = Ok(());
    BEFORE.get_or_init(|| {
        // SAFETY: the handler calls nothing but mmap and sigaction, and touches atomics and its own arguments only.
        unsafe { sigaction(Signal::SIGBUS, &action) }.unwrap_or_else(|errno| {
            result = Err(errno);
            default
        })
    });
    result
}

/// The handler. It runs on the thread that made the access.
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over the signal's information, which for SIGBUS has an address.
    let at = unsafe { (*info).si_addr() }.addr();
    for place in &MAPPINGS {
        let base = place.base.load(Ordering::Acquire);
        let len = place.len.load(Ordering::Relaxed);
        if base.is_null() || base == TAKEN || at.wrapping_sub(base.addr()) >= len {
            continue;
        }
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let before = Errno::last_raw();
        // SAFETY: the bytes are those of a mapping whose guard lives, since an access to it is under way: nothing
        // else is there. Those who access it copy bytes and hold no reference into it.
        let zeroes = unsafe { libc::mmap(base, len, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0) };
        Errno::set_raw(before);
        if zeroes == base {
            place.lost.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not of a guarded mapping: the access is made again, and meets what handled the signal before.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: that action was in force before, or is the default.
    let _ = unsafe { sigaction(Signal::SIGBUS, BEFORE.get().unwrap_or(&default)) };
}
