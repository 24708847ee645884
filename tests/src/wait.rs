//! Waiting for an event: the one place of the black-box tests that sleeps between two looks at something.

use std::fmt::Display;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// The longest sleep between two looks. The first are shorter.
const LOOK_MAX: Duration = Duration::from_millis(20);

/// Looks until there is something, at most for `time`.
pub fn within<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (start, mut pause) = (Instant::now(), Duration::from_micros(500));
    loop {
        // A thread that has stood still for longer than `time` looks once more, too.
        let is_last = start.elapsed() >= time;
        match look() {
            None if !is_last => sleep(pause),
            found => return found,
        }
        pause = LOOK_MAX.min(pause * 2);
    }
}

/// Looks until there is something, and panics with `missing` when [`PATIENCE`] is over.
pub fn some<T>(missing: impl FnOnce() -> String, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, look).unwrap_or_else(|| panic!("it takes too long: {}", missing()))
}

/// Looks until something succeeds, and panics with the last error when [`PATIENCE`] is over.
pub fn success<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let mut last = None;
    let found = within(PATIENCE, || look().map_err(|error| last = Some(error)).ok());
    found.unwrap_or_else(|| panic!("{what}: {}", last.map(|error| error.to_string()).unwrap_or_default()))
}

/// Looks until it is so, and panics with `else_say` when [`PATIENCE`] is over.
pub fn until(else_say: impl FnOnce() -> String, mut is_so: impl FnMut() -> bool) {
    some(else_say, || is_so().then_some(()));
}

/// Waits for the end of a process, which is killed when [`PATIENCE`] is over.
pub fn end(child: &mut Child) -> ExitStatus {
    let ended = within(PATIENCE, || child.try_wait().expect("the process can be polled"));
    ended.unwrap_or_else(|| {
        let _ = child.kill();
        panic!("process {} does not end", child.id())
    })
}

/// Lets time pass, where the time is what a test is about: a lease, a cut that lasts.
pub fn pass(time: Duration) {
    sleep(time);
}
