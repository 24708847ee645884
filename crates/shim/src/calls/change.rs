//! A change of a file of the set: its record and the real call, under the file's lock.
#![allow(unsafe_code)]

use std::ffi::c_int;

use nix::errno::Errno;
use nix::libc::off_t;
use tidewater_client::mapped::Log;
use tidewater_files::{Files, Locked};

use super::members;
use crate::descriptors::{self, Of};
use crate::{process, real};

/// Does a change under the file's lock: notes what will change, makes the records, does the real call, and rereads when
/// that did something else. `call` gets the lock if it is held, and returns whether all was done. `Err`: the file
/// has left the set, and the call is the caller's to do.
pub fn change<T>(
    of: Of,
    fd: c_int,
    record: impl FnOnce(&Files<Log>, &Locked<'_>, Of) -> Result<(), Errno>,
    call: impl FnOnce(Option<&Locked<'_>>) -> (T, bool),
) -> Result<Result<T, Errno>, impl FnOnce() -> T> {
    let _whole = process::whole();
    let files = match process::files() {
        Ok(files) => files,
        Err(errno) => return Ok(Err(errno)),
    };
    let mut parts = Some((record, call));
    let mut under_lock = |of: Of| {
        process::under_lock(files, of.place, fd, |locked| {
            let (record, call) = parts.take().ok_or(Errno::EIO)?;
            record(files, locked, of)?;
            let (result, complete) = call(Some(locked));
            let errno = Errno::last();
            if complete && !locked.was_interrupted() && descriptors::is(fd, locked.place) {
                files.look_behind(locked, process::borrow(fd)).map_err(process::refuse)?;
                locked.end();
            } else {
                files.reread(locked, process::borrow(fd)).map_err(process::refuse)?;
            }
            errno.set();
            Ok(result)
        })
    };
    let mut done = under_lock(of);
    if let Ok(None) = done {
        match members::again(fd, of) {
            Ok(None) => {}
            Ok(Some(now)) => done = under_lock(now),
            Err(errno) => done = Err(errno),
        }
    }
    match (done, parts) {
        (Ok(Some(result)), _) => Ok(Ok(result)),
        (Ok(None), Some((_, call))) => Err(move || {
            let done = call(None).0;
            let errno = Errno::last();
            members::was_passed_by(fd);
            errno.set();
            done
        }),
        (Ok(None), None) => Ok(Err(Errno::EIO)),
        (Err(errno), _) => Ok(Err(errno)),
    }
}

/// Bytes of a descriptor's file.
pub fn size(fd: c_int) -> Result<u64, Errno> {
    tidewater_files::size(process::borrow(fd))
}

/// Sets the length of a file in the set, by any descriptor of it.
pub fn set_length(fd: c_int, len: u64) -> Result<(), Errno> {
    let call = |_: Option<&Locked<'_>>| {
        // SAFETY: a descriptor that is open.
        let done = unsafe { real::ftruncate(fd, len as off_t) };
        (done, done == 0)
    };
    let Some(of) = descriptors::of(fd) else {
        process::order_before(fd)?;
        return Errno::result(call(None).0).map(drop);
    };
    let record = |files: &Files<Log>, locked: &Locked<'_>, _: Of| {
        let size = size(fd)?;
        files.look_before(locked, process::borrow(fd), size).map_err(process::refuse)?;
        locked.begin(len.min(size), len.max(size));
        files.truncate(locked, len).map_err(process::refuse)
    };
    let done = match change(of, fd, record, call) {
        Ok(done) => done?,
        Err(call) => {
            process::order()?;
            call()
        }
    };
    Errno::result(done).map(drop)
}
