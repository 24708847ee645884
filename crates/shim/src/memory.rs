//! Memory that tells processes apart: a page that a fork empties, and that a child which borrows its parent's memory
//! (vfork) finds full.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use nix::libc;

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Makes the page. Once, before there are threads.
pub fn prepare() {
    const LEN: usize = 4096;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses an address where nothing is mapped; the page stays for good.
    let page = unsafe { libc::mmap(ptr::null_mut(), LEN, protection, flags, -1, 0) };
    // SAFETY: the page above.
    if page != libc::MAP_FAILED && unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } == 0 {
        PAGE.store(page.cast(), Ordering::Release);
    }
    claim();
}

/// This process has its memory from now on, and no child that borrows it: at its start, and behind a fork.
pub extern "C" fn claim() {
    is_borrowed();
}

/// Whether this process borrows the memory of its parent, whose descriptors are noted in it.
pub fn is_borrowed() -> bool {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return false;
    }
    // SAFETY: a page that stays mapped, and that is only accessed as this word.
    let word = unsafe { &*page };
    let me = u64::from(std::process::id());
    match word.load(Ordering::Relaxed) {
        0 => {
            word.store(me, Ordering::Relaxed);
            false
        }
        owner => owner != me,
    }
}
