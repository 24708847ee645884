//! Threads of the library's own, in a program that is not ours.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread that takes no signals. They are the program's: it may wait for one that it has blocked in all
/// threads that it knows of (sigwait(3), signalfd(2)), and this one would end it.
///
/// # Errors
/// Those of the system.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask()?;
    started
}
