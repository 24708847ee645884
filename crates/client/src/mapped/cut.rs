//! Files of rings that are cut while they are mapped. Who may open such a file may truncate it, and an access then
//! raises SIGBUS, which ends a process by default. A program of ours that recovers another user's log answers with an
//! error instead. In programs of others nothing is done about their signals (ADR 32).
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;

use crate::LogError;

/// Mappings that are known at a time: a ring has a few.
const MAPPINGS: usize = 64;

static MAPPED: [[AtomicUsize; 2]; MAPPINGS] = [const { [const { AtomicUsize::new(0) }; 2] }; MAPPINGS];
static CUT: AtomicBool = AtomicBool::new(false);

/// From now on an access to a ring that was cut is an error of what made it, in this whole process: its memory is
/// zeroes then, and nothing of it counts.
///
/// # Errors
/// The system's.
pub fn survive_cut_rings() -> Result<(), LogError> {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler does what may be done in one (signal-safety(7)), and stays as long as the process.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    Errno::result(done).map(drop).map_err(LogError::system("answer for rings that are cut"))
}

/// Whether a ring was cut under this process.
#[inline]
pub(super) fn was_cut() -> bool {
    CUT.load(Ordering::Relaxed)
}

/// The error of what met a ring that was cut.
pub(super) fn check() -> Result<(), LogError> {
    if was_cut() { Err(LogError::Ring("it was cut while it was in use: see who may write it".into())) } else { Ok(()) }
}

/// A part of a ring is mapped from here on.
pub(super) fn mapped(at: usize, len: usize) {
    let free =
        MAPPED.iter().find(|[from, _]| from.compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if let Some([_, length]) = free {
        length.store(len, Ordering::Release);
    }
}

/// It is about to be unmapped.
pub(super) fn unmapped(at: usize) {
    if let Some([from, len]) = MAPPED.iter().find(|[from, _]| from.load(Ordering::Acquire) == at) {
        len.store(0, Ordering::Release);
        from.store(0, Ordering::Release);
    }
}

/// An access reached behind the end of a file. Of a ring's memory the page is zeroes from then on, and the access goes
/// on.
extern "C" fn on_fault(_: c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const PAGE: usize = 4096;
    // SAFETY: the kernel hands it over (SA_SIGINFO), and for this signal it has an address.
    let at = unsafe { (*about).si_addr() }.addr();
    let is_ours = MAPPED.iter().any(|[from, len]| {
        let from = from.load(Ordering::Acquire);
        from != 0 && (from..from.saturating_add(len.load(Ordering::Acquire))).contains(&at)
    });
    if is_ours {
        CUT.store(true, Ordering::Relaxed);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a page of a mapping of ours, of which no reference but to atomic words is held; it stays mapped, and
        // a store there is found by `check`.
        let page = unsafe {
            libc::mmap((at & !(PAGE - 1)) as *mut libc::c_void, PAGE, protection, flags | libc::MAP_FIXED, -1, 0)
        };
        if page != libc::MAP_FAILED {
            return;
        }
    }
    // Another's: as if there were no handler. The access is made again, and ends the process.
    // SAFETY: the default is always there to be had.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::super::memory::Mapping;
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// The whole process has the handler from then on, so this is the only test that cuts a file.
    #[test]
    fn a_ring_that_is_cut_is_zeroes_and_an_error_and_no_signal() {
        survive_cut_rings().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        std::fs::write(&path, [7; 3 * 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, 3 * 4096, true).unwrap();
        assert!(!was_cut() && check().is_ok());
        let mut bytes = [0; 8];
        mapping.read(8192, &mut bytes);
        assert_eq!(bytes, [7; 8]);
        file.set_len(4096).unwrap();
        mapping.read(8192, &mut bytes);
        assert_eq!(bytes, [0; 8]);
        mapping.write(4096, &[1; 8]);
        let error = check().unwrap_err();
        assert!(was_cut() && error.to_string().contains("it was cut while it was in use"), "{error}");
        CUT.store(false, Ordering::Relaxed);
    }
}
