//! Children that the C library makes by itself, which no handler of a fork sees (pthread_atfork(3)): they have
//! copies of the parent's descriptors, and move them.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use nix::libc::pid_t;

use crate::{descriptors, real};

/// Before it and behind it, as a fork does: a descriptor may be opened amid the call.
fn makes_child<T>(call: impl FnOnce() -> T) -> T {
    descriptors::fork();
    let done = call();
    descriptors::fork();
    done
}

macro_rules! spawn {
    ($($name:ident: $pid:ty,)*) => {$(
        /// As posix_spawn(3): what it is asked to do with descriptors is done within the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut $pid,
            path: *const c_char,
            actions: *const c_void,
            how: *const c_void,
            line: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            // SAFETY: the caller's.
            makes_child(|| unsafe { real::$name(pid, path, actions, how, line, environment) })
        }
    )*};
}
spawn! {
    posix_spawn: pid_t,
    posix_spawnp: pid_t,
    pidfd_spawn: c_int,
    pidfd_spawnp: c_int,
}

/// `_Fork(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    // SAFETY: the caller's.
    makes_child(|| unsafe { real::_Fork() })
}
