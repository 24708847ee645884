//! Making what was written safe, beside whatever else is done.

use super::storage::Syncing;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Who does the work of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// A thread of its own: reads go on meanwhile.
    Threaded,
    /// The caller, at once.
    Inline,
    /// The caller, after so many polls: a thread of its own, for tests that must repeat.
    Late(u32),
}

#[derive(Debug, Default)]
struct Shared {
    ended: Mutex<Option<io::Result<()>>>,
    any: Condvar,
}

impl Shared {
    fn ended(&self) -> MutexGuard<'_, Option<io::Result<()>>> {
        // A result is stored whole or not at all.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Worker {
    Inline,
    Late { polls: u32, left: u32, syncing: Option<Syncing> },
    Thread { shared: Arc<Shared>, jobs: Option<Sender<Syncing>>, thread: Option<JoinHandle<()>> },
}

/// Syncs, one at a time. They are numbered from 1 in the order in which they begin.
pub(super) struct Syncs {
    worker: Worker,
    began: u64,
    /// A result that was not taken yet.
    ended: Option<io::Result<()>>,
    running: bool,
    /// When the one that is under way began, and how long those took that have ended.
    since: Instant,
    spent: Duration,
    event: Option<Arc<EventFd>>,
}

impl Syncs {
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub(super) fn new(mode: SyncMode) -> io::Result<Syncs> {
        let (worker, event) = match mode {
            SyncMode::Inline => (Worker::Inline, None),
            SyncMode::Late(polls) => (Worker::Late { polls, left: 0, syncing: None }, None),
            SyncMode::Threaded => {
                let event = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
                let shared = Arc::new(Shared::default());
                let (jobs, waiting) = channel();
                let (theirs, bell) = (shared.clone(), event.clone());
                let name = "tidewater-sync".to_owned();
                let thread = std::thread::Builder::new().name(name).spawn(move || work(&waiting, &theirs, &bell))?;
                (Worker::Thread { shared, jobs: Some(jobs), thread: Some(thread) }, Some(event))
            }
        };
        Ok(Syncs { worker, began: 0, ended: None, running: false, since: Instant::now(), spent: Duration::ZERO, event })
    }

    /// Syncs that have begun.
    pub(super) fn began(&self) -> u64 {
        self.began
    }

    /// How many have ended, how long those took together, and how long the one under way has run; zero: none is.
    pub(super) fn pace(&self) -> (u64, Duration, Duration) {
        let running = if self.running { self.since.elapsed() } else { Duration::ZERO };
        (self.began - u64::from(self.running), self.spent, running)
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Clears [`Syncs::event`] when its waiter is awake: the signal of a sync whose result was already taken must not
    /// end every later sleep.
    pub(super) fn hush(&self) {
        if let Some(event) = self.event.as_ref().filter(|_| !self.running) {
            let _ = event.read();
        }
    }

    /// Becomes readable when a sync has ended.
    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }

    /// Begins the next; asserts that none is under way.
    pub(super) fn begin(&mut self, syncing: Syncing) {
        assert!(!self.running, "one sync at a time");
        self.began += 1;
        (self.running, self.since) = (true, Instant::now());
        match &mut self.worker {
            Worker::Inline => self.ended = Some(syncing()),
            Worker::Late { polls, left, syncing: waiting } => {
                *left = *polls;
                *waiting = Some(syncing);
            }
            Worker::Thread { jobs, .. } => {
                let sent = jobs.as_ref().map(|jobs| jobs.send(syncing));
                if !matches!(sent, Some(Ok(()))) {
                    self.ended = Some(Err(io::Error::other("the thread that syncs has ended")));
                }
            }
        }
    }

    /// Does the next at once; asserts that none is under way.
    pub(super) fn here(&mut self, syncing: Syncing) -> io::Result<()> {
        assert!(!self.running, "one sync at a time");
        self.began += 1;
        let since = Instant::now();
        let result = syncing();
        self.spent += since.elapsed();
        result
    }

    /// The result of the one that is under way, if it has ended.
    pub(super) fn poll(&mut self) -> Option<io::Result<()>> {
        if !self.running {
            return None;
        }
        let result = self.ended.take().or_else(|| match &mut self.worker {
            Worker::Inline => None,
            Worker::Late { left, syncing, .. } => {
                let is_due = *left == 0;
                *left = left.saturating_sub(1);
                if is_due { syncing.take().map(|syncing| syncing()) } else { None }
            }
            Worker::Thread { shared, .. } => shared.ended().take(),
        });
        self.finish(result)
    }

    /// Waits for the one that is under way; `None`: there is none.
    pub(super) fn wait(&mut self) -> Option<io::Result<()>> {
        if !self.running {
            return None;
        }
        let result = self.ended.take().or_else(|| match &mut self.worker {
            Worker::Inline => None,
            Worker::Late { syncing, .. } => syncing.take().map(|syncing| syncing()),
            Worker::Thread { shared, .. } => {
                let mut ended = shared.ended();
                while ended.is_none() {
                    ended = shared.any.wait(ended).unwrap_or_else(PoisonError::into_inner);
                }
                ended.take()
            }
        });
        self.finish(result)
    }

    fn finish(&mut self, result: Option<io::Result<()>>) -> Option<io::Result<()>> {
        if result.is_some() {
            self.running = false;
            self.spent += self.since.elapsed();
            if let Some(event) = &self.event {
                let _ = event.read(); // Nothing to read means only that no waiter was woken yet.
            }
        }
        result
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        if let Worker::Thread { jobs, thread, .. } = &mut self.worker {
            jobs.take();
            if let Some(thread) = thread.take() {
                let _ = thread.join(); // It does not panic, and what it synced last was polled or is of no interest.
            }
        }
    }
}

fn work(jobs: &Receiver<Syncing>, shared: &Shared, bell: &EventFd) {
    for syncing in jobs {
        let result = syncing();
        *shared.ended() = Some(result);
        shared.any.notify_all();
        let _ = bell.write(1); // A counter that is full is readable already.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_thread_syncs_while_others_go_on_and_rings() {
        let mut syncs = Syncs::new(SyncMode::Threaded).unwrap();
        let (release, held) = sync_channel::<()>(0);
        syncs.begin(Box::new(move || {
            held.recv().unwrap();
            Ok(())
        }));
        assert!(syncs.poll().is_none() && syncs.is_running() && syncs.event().is_some());
        release.send(()).unwrap();
        assert!(syncs.wait().unwrap().is_ok() && !syncs.is_running() && syncs.wait().is_none());
        syncs.begin(Box::new(|| Err(io::Error::other("no"))));
        assert_eq!((syncs.wait().unwrap().unwrap_err().to_string().as_str(), syncs.began()), ("no", 2));
    }

    #[test]
    fn a_late_sync_ends_when_it_was_asked_for_often_enough() {
        let mut syncs = Syncs::new(SyncMode::Late(2)).unwrap();
        syncs.begin(Box::new(|| Ok(())));
        assert!(syncs.poll().is_none() && syncs.poll().is_none());
        assert!(syncs.poll().unwrap().is_ok() && syncs.poll().is_none());
    }
}
