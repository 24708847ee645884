//! Readers of a socket of commands: each gets a stream of its own, from when it connects on. None is waited for: one
//! that is too far behind is dropped.

use super::log::{Event, Form, Log};
use crate::runtime::{is_allowed, listen};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Readers at once; more are closed as they come.
const READERS_MAX: usize = 8;
/// Bytes that a reader may be behind, besides what the system holds for it.
const BEHIND_MAX: usize = 4 << 20;
/// How long the end waits for a reader that is behind.
const PATIENCE: Duration = Duration::from_millis(250);

/// A socket, and those that read from it.
pub(super) struct Readers {
    listener: UnixListener,
    path: PathBuf,
    form: Form,
    nqn: String,
    logs: Vec<(Log, UnixStream)>,
    /// How many there are: without any, the device's thread hands nothing over.
    count: Arc<AtomicUsize>,
}

impl Readers {
    /// Listens on a socket that only this user opens.
    pub(super) fn listen(path: &Path, form: Form, nqn: &str) -> io::Result<Readers> {
        let listener = listen(path).map_err(io::Error::other)?;
        listener.set_nonblocking(true)?;
        let (path, nqn) = (path.to_owned(), nqn.to_owned());
        Ok(Readers { listener, path, form, nqn, logs: Vec::new(), count: Arc::default() })
    }

    /// How many there are, for the device's thread.
    pub(super) fn count(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.count)
    }

    /// Takes in those that connect, and sends what waits.
    pub(super) fn look(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.logs.len() < READERS_MAX && is_allowed(&stream) {
                // One that is gone already is no reader.
                self.logs.extend(self.reader(stream).ok());
            }
        }
        // Before a reader sees the beginning of its stream: from then on it misses nothing.
        self.count.store(self.logs.len(), Ordering::Relaxed);
        self.keep(|log, stream| log.flush().is_ok() && !has_gone(stream));
    }

    fn reader(&self, stream: UnixStream) -> io::Result<(Log, UnixStream)> {
        stream.set_nonblocking(true)?;
        let watched = stream.try_clone()?;
        let patient = Patient { stream, waiting: VecDeque::new(), is_lost: false };
        Ok((Log::begin(Box::new(patient), self.form, &self.nqn)?, watched))
    }

    /// Hands an event to each; whether there is one.
    pub(super) fn event(&mut self, event: Event) -> bool {
        self.keep(|log, _| log.event(event).is_ok());
        !self.logs.is_empty()
    }

    fn keep(&mut self, mut keeps: impl FnMut(&mut Log, &mut UnixStream) -> bool) {
        self.logs.retain_mut(|(log, stream)| keeps(log, stream));
        self.count.store(self.logs.len(), Ordering::Relaxed);
    }

    /// The last of what each gets.
    pub(super) fn end(mut self) {
        for (log, _) in self.logs.drain(..) {
            // A reader that is gone misses nothing.
            let _ = log.end();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a reader has closed its socket. One that only has nothing to say (`nc` without input) has not.
fn has_gone(stream: &mut UnixStream) -> bool {
    // What it says means nothing here, and must not fill up.
    let _ = stream.read(&mut [0; 256]);
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let _ = poll(&mut fds, PollTimeout::ZERO);
    fds[0].revents().is_some_and(|found| found.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}

/// A socket whose writer does not wait: what the system does not take is kept, up to a bound.
struct Patient {
    stream: UnixStream,
    waiting: VecDeque<u8>,
    is_lost: bool,
}

impl Patient {
    fn push(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.stream.write(self.waiting.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn behind(&mut self) -> io::Result<()> {
        self.push()?;
        if self.waiting.len() > BEHIND_MAX { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend(bytes);
        self.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.behind().inspect_err(|_| self.is_lost = true)
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        // The end of the stream, for one that reads on; a reader that was dropped or is gone is not waited for.
        if !self.is_lost
            && self.stream.set_nonblocking(false).is_ok()
            && self.stream.set_write_timeout(Some(PATIENCE)).is_ok()
        {
            let _ = self.stream.write_all(self.waiting.make_contiguous());
        }
    }
}
