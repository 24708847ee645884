//! Commands as they are read from queues and as they end, written to a file or to the readers of a socket (`tidewater
//! serve --commands`).
//!
//! The device's thread copies queue entries into a bounded channel and never waits for it: a thread of its own writes
//! them. Where the channel is full, entries are dropped; how many is in the file, at the place where they are
//! missing, and in the device's status.
//!
//! Text is in the form of the kernel's trace events of its NVMe driver (`text`). A pcapng file holds the same entries
//! as NVMe/TCP capsules (`capsules`), the only form of bare queue entries that Wireshark decodes: there is no link
//! type for them.

mod capsules;
mod describe;
mod log;
mod pcapng;
mod readers;
mod segment;
mod sink;
mod text;

pub use log::{Form, socket};

use crate::runtime;
use log::{Event, Log};
use readers::Readers;
use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidewater_wire::nvme::{Cqe, Sqe};

/// Entries that wait for the writer, at most. About 3 MiB.
const WAITING_MAX: usize = 32_768;
/// Entries that are written to the file at once, at most; less than the buffer before it holds.
const BATCH: u64 = 128;
/// How long the writer rests when nothing waits. The channel takes three million entries a second meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// Counters that the writer's and the device's thread share.
#[derive(Debug, Default)]
struct Shared {
    written: AtomicU64,
    dropped: AtomicU64,
}

/// The device's end: takes entries in and never waits.
#[derive(Debug)]
pub struct Tap {
    /// `None`: the writer has ended early.
    events: Option<SyncSender<Event>>,
    shared: Arc<Shared>,
    /// Events dropped since the last that was taken.
    dropped: u64,
    /// Events that came for the writer.
    came: u64,
    /// Readers of a socket; `None`: there is a file.
    readers: Option<Arc<AtomicUsize>>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Tap {
    /// Begins to write to a new file, which only its owner may read, to standard output (`-`), or to those who connect
    /// to a socket (`unix:PATH`). `nqn`: the subsystem's name, which a capture names.
    ///
    /// # Errors
    /// When the ending chooses no form, the file can't be made or written, or is not ours alone.
    pub fn start(path: &Path, nqn: &str) -> io::Result<Tap> {
        let form = Form::of(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        if let Some(path) = socket(path) {
            let readers = Readers::listen(&path, form, nqn)?;
            let count = Some(readers.count());
            return Tap::spawn(WAITING_MAX, count, move |events, counters| serve(events, readers, counters));
        }
        let out: Box<dyn Write + Send> = match path == Path::new("-") {
            true => Box::new(io::stdout()),
            false => {
                let file = runtime::private_file(path)?;
                let other = file.try_clone()?;
                return Tap::to(Box::new(file), Some(other), form, nqn, WAITING_MAX);
            }
        };
        Tap::to(out, None, form, nqn, WAITING_MAX)
    }

    /// `file`: the file behind `out`, which is cut to whole entries where it cannot be written any more.
    fn to(
        out: Box<dyn Write + Send>,
        mut file: Option<File>,
        form: Form,
        nqn: &str,
        waiting_max: usize,
    ) -> io::Result<Tap> {
        let mut log = Log::begin(out, form, nqn)?;
        log.flush()?;
        Tap::spawn(waiting_max, None, move |events, counters| {
            let mut whole = 0;
            let written = write(events, log, counters, || {
                // Its position is that of `out`.
                whole = file.as_mut().and_then(|file| file.stream_position().ok()).unwrap_or(0);
            });
            if let (Err(_), Some(file)) = (&written, &file)
                && whole > 0
            {
                // The error is the one that counts.
                let _ = file.set_len(whole);
            }
            written
        })
    }

    fn spawn(
        waiting_max: usize,
        readers: Option<Arc<AtomicUsize>>,
        work: impl FnOnce(&Receiver<Event>, &Shared) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Tap> {
        let shared = Arc::new(Shared::default());
        let (events, receiver) = sync_channel(waiting_max);
        let counters = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name("commands".into()).spawn(move || work(&receiver, &counters))?;
        Ok(Tap { events: Some(events), shared, dropped: 0, came: 0, readers, writer: Some(writer) })
    }

    /// The controller has read these entries of a submission queue: 64 bytes each.
    pub fn entries(&mut self, function: u8, queue: u16, bytes: &[u8]) {
        let at = Instant::now();
        for entry in bytes.as_chunks::<{ Sqe::SIZE }>().0 {
            self.put(Event::Begun { at, function, queue, sqe: Sqe::from_bytes(entry) });
        }
    }

    /// A command came in a capsule.
    pub fn capsule(&mut self, function: u8, queue: u16, sqe: Sqe) {
        self.put(Event::Begun { at: Instant::now(), function, queue, sqe });
    }

    /// A command of this submission queue has ended.
    pub fn ended(&mut self, function: u8, queue: u16, cqe: Cqe) {
        self.put(Event::Ended { at: Instant::now(), function, queue, cqe });
    }

    /// A queue is gone, or with `None` all queues of a controller: its commands without an end get none.
    pub fn gone(&mut self, function: u8, queue: Option<u16>) {
        self.put(Event::Gone { at: Instant::now(), function, queue });
    }

    /// All queues of all controllers are gone: a reset of the subsystem, or no power.
    pub fn all_gone(&mut self) {
        self.put(Event::AllGone { at: Instant::now() });
    }

    /// Entries and resets written so far.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Entries and resets that the writer was too slow for, and all that are lost since it failed.
    pub fn dropped(&self) -> u64 {
        match self.has_failed() {
            true => self.came - self.written(),
            false => self.shared.dropped.load(Ordering::Relaxed),
        }
    }

    /// Whether the writer has ended early: [`Tap::end`] says why.
    pub fn has_failed(&self) -> bool {
        self.events.is_none()
    }

    fn put(&mut self, event: Event) {
        if self.readers.as_ref().is_some_and(|readers| readers.load(Ordering::Relaxed) == 0) {
            return;
        }
        self.came += 1;
        let Some(events) = &self.events else { return };
        let mut sent = Ok(());
        if self.dropped > 0 {
            sent = events.try_send(Event::Dropped(self.dropped));
            if sent.is_ok() {
                self.dropped = 0;
            }
        }
        match sent.and_then(|()| events.try_send(event)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped += 1;
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => self.events = None,
        }
    }

    /// Ends the file, after what waits for the writer.
    ///
    /// # Errors
    /// When not all could be written.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(events) = self.events.take()
            && self.dropped > 0
        {
            // No host waits any more. A writer that is gone says why below.
            let _ = events.send(Event::Dropped(self.dropped));
        }
        let ended = self.writer.take().map(JoinHandle::join);
        ended.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| Err(io::Error::other("the writer of commands has failed")))
    }
}

/// The writer's thread. `flushed` is called when all so far is in the file.
fn write(events: &Receiver<Event>, mut log: Log, shared: &Shared, mut flushed: impl FnMut()) -> io::Result<()> {
    let mut waiting = 0;
    flushed();
    loop {
        match events.try_recv() {
            Ok(event) => {
                log.event(event)?;
                waiting += u64::from(!matches!(event, Event::Dropped(_)));
                if waiting < BATCH {
                    continue;
                }
                log.flush()?;
            }
            Err(TryRecvError::Empty) => {
                log.flush()?;
                std::thread::sleep(PAUSE);
            }
            Err(TryRecvError::Disconnected) => {
                log.end()?;
                shared.written.fetch_add(waiting, Ordering::Relaxed);
                return Ok(());
            }
        }
        // Only what the system has taken counts.
        flushed();
        shared.written.fetch_add(std::mem::take(&mut waiting), Ordering::Relaxed);
    }
}

/// The thread of a socket.
fn serve(events: &Receiver<Event>, mut readers: Readers, shared: &Shared) -> io::Result<()> {
    loop {
        readers.look();
        // Under load readers are looked after in between, too.
        for _ in 0..WAITING_MAX {
            match events.try_recv() {
                Ok(event) => {
                    if readers.event(event) && !matches!(event, Event::Dropped(_)) {
                        shared.written.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(TryRecvError::Empty) => {
                    std::thread::sleep(PAUSE);
                    break;
                }
                Err(TryRecvError::Disconnected) => {
                    readers.end();
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
