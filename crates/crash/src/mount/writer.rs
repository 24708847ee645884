//! The image of a mount, written on a thread of its own: a sync that waits for a drive keeps no other call waiting, and
//! syncs that come meanwhile are written together.

use crate::image::{Image, ImageError};
use crate::tree::Tree;
use fuser::Errno;
use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Changes that a sync makes durable, and the answer of its call.
pub(super) struct Job {
    pub lines: Vec<u8>,
    pub done: Box<dyn FnOnce(Result<(), Errno>) + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.lines.len())
    }
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    is_closed: bool,
}

/// An image and the jobs that wait for it. Locks are taken in this order: the mount's, the image's, the queue's.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Mutex<Queue>,
    come: Condvar,
    image: Mutex<Image>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a call that an image's error ends.
fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Errno::ENOSPC,
        _ => Errno::EIO,
    }
}

impl Writer {
    pub fn new(image: Image) -> Writer {
        Writer { queue: Mutex::default(), come: Condvar::new(), image: Mutex::new(image) }
    }

    pub fn add(&self, job: Job) {
        lock(&self.queue).jobs.push(job);
        self.come.notify_one();
    }

    /// No more jobs come: the thread ends behind the last.
    pub fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.come.notify_one();
    }

    /// Makes the image that of a tree which has all that was given to it, and answers what waits. The mount is locked.
    ///
    /// # Errors
    /// When it can't be written: then the old one stays, and jobs wait on.
    pub fn replace(&self, tree: &Tree) -> Result<(), ImageError> {
        let mut image = lock(&self.image);
        image.replace(tree)?;
        let jobs = std::mem::take(&mut lock(&self.queue).jobs);
        drop(image);
        jobs.into_iter().for_each(|job| (job.done)(Ok(())));
        Ok(())
    }

    /// Writes jobs until it is closed. `make_room`: replaces an image that is full, by [`Writer::replace`].
    pub fn run(&self, make_room: impl Fn() -> io::Result<()>) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.jobs.is_empty() && !queue.is_closed {
                queue = self.come.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let jobs = std::mem::take(&mut queue.jobs);
            drop(queue);
            if jobs.is_empty() {
                return;
            }
            let lines: Vec<u8> = jobs.iter().flat_map(|job| job.lines.iter().copied()).collect();
            let written = lock(&self.image).append(&lines);
            let written = match written {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => make_room(),
                written => written,
            };
            let result = written.map_err(|error| errno(&error));
            jobs.into_iter().for_each(|job| (job.done)(result));
        }
    }
}
