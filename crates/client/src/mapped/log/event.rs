//! Waiting by a descriptor: for programs that wait for many things at once (poll, epoll, io_uring).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, TryLockError, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Log;
use crate::mapped::place::SLICE;
use crate::mapped::{owner, thread};
use crate::{Level, LogError};

/// How long the watcher looks at one before it looks at all.
const STEP: Duration = Duration::from_millis(1);

/// A stream offset and level, and the event that tells when they are reached.
#[derive(Debug)]
struct Waiting {
    end: u64,
    level: Level,
    event: EventFd,
}

/// The thread that waits for others, of one process.
#[derive(Debug)]
pub(super) struct Watcher {
    owner: u64,
    waits: Sender<Waiting>,
}

impl Log {
    /// An eventfd that becomes readable, and stays so, when everything before a stream offset is at a level, or never
    /// will be: then [`Log::wait`] tells at once which. A thread of this process looks for all of them, about once a
    /// millisecond; who can wait in place gets there sooner.
    ///
    /// # Errors
    /// `NotReplicated`, `Secondary`; `System`: no more descriptors or threads.
    pub fn event(self: &Arc<Log>, end: u64, level: Level) -> Result<OwnedFd, LogError> {
        match level {
            Level::Ring | Level::Destaged => {}
            Level::RemoteRing | Level::RemoteDestaged => self.acknowledges(level)?,
        }
        let failed = LogError::system("make an event");
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
        let theirs = event.as_fd().try_clone_to_owned().map_err(|error| LogError::System {
            what: "make an event",
            errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
        })?;
        self.watch(Waiting { end, level, event })?;
        Ok(theirs)
    }

    fn watch(self: &Arc<Log>, waiting: Waiting) -> Result<(), LogError> {
        let me = owner::me()?;
        let mut watcher = match self.watcher.try_lock() {
            Ok(watcher) => watcher,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is just here; in a child, it may be one that only the parent has. A thread more does no
            // harm.
            Err(TryLockError::WouldBlock) => return start(self, waiting).map(drop),
        };
        let waiting = match watcher.as_ref().filter(|watcher| watcher.owner == me) {
            Some(watcher) => match watcher.waits.send(waiting) {
                Ok(()) => return Ok(()),
                Err(unsent) => unsent.0,
            },
            None => waiting,
        };
        *watcher = Some(Watcher { owner: me, waits: start(self, waiting)? });
        Ok(())
    }
}

fn start(log: &Arc<Log>, first: Waiting) -> Result<Sender<Waiting>, LogError> {
    let (sender, receiver) = channel();
    let log = Arc::downgrade(log);
    thread::spawn("tidewater-log", move || watch(&log, first, &receiver)).map_err(|error| LogError::System {
        what: "start a thread",
        errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
    })?;
    Ok(sender)
}

/// Waits until the log is gone, or no handle is left.
fn watch(log: &Weak<Log>, first: Waiting, more: &Receiver<Waiting>) {
    let mut all = vec![first];
    let (mut asked, mut since) = (true, Instant::now());
    loop {
        while asked {
            match more.try_recv() {
                Ok(waiting) => all.push(waiting),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => asked = false,
            }
        }
        let Some(log) = log.upgrade() else { break };
        if let Some(next) = all.iter().min_by_key(|waiting| waiting.end) {
            if log.tail() < next.end {
                // A writer has to append it first, or to end what lies before, or is dead.
                let _ = log.seal();
                std::thread::sleep(STEP);
            } else if since.elapsed() < SLICE {
                let _ = log.place.with(|on| on.wait(next.end, next.level, STEP));
            } else {
                // Other devices are asked, where there are any.
                let _ = log.wait(next.end, next.level, STEP);
                since = Instant::now();
            }
        }
        all.retain(|waiting| {
            let outcome = log.place.with(|on| on.wait(waiting.end, waiting.level, Duration::ZERO));
            let still = matches!(outcome, Err(ref error) if error.errno() == Errno::ETIMEDOUT as i32);
            if !still {
                let _ = waiting.event.write(1);
            }
            still
        });
        drop(log);
        if all.is_empty() {
            match more.recv() {
                Ok(waiting) => {
                    all.push(waiting);
                    since = Instant::now();
                }
                Err(_) => return,
            }
        }
    }
    for waiting in all {
        let _ = waiting.event.write(1);
    }
}
