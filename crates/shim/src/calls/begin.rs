//! Where a program begins to have the shim.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use nix::libc;

use super::members;
use crate::{process, real};

extern "C" fn begin() {
    process::begin();
    if process::is_armed() {
        take_up_inherited();
    }
}

/// Descriptors of files in the set that another program left to this one.
fn take_up_inherited() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<c_int> = list.filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in numbers {
        // SAFETY: it may be closed by now, and then says so.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFL, ptr::null_mut()) };
        if flags >= 0 && flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
            members::take_up(fd, flags);
        }
    }
}

// SAFETY: the loader calls what this section holds, once, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
