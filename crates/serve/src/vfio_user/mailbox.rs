//! From the thread of a socket to the thread of the engine, and back.
//!
//! A client waits for the reply to each of its messages, so a write is acknowledged as soon as it is in the mailbox: the engine
//! finds it there before all that comes later. A read waits for the engine's answer, which therefore comes behind all writes before it,
//! as on PCI.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Function;
use super::connection::Connection;

/// Letters that wait in a mailbox, at most.
pub const DEPTH: usize = 1024;

/// How long a client's message may wait for the engine: below the five seconds after which QEMU gives a device up.
pub const PATIENCE: Duration = Duration::from_secs(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the one thread that sleeps on it. While it doesn't sleep, waking it costs no system call.
///
/// The thread sleeps so: [`Waker::doze`], look for work once more, [`Waker::sleep`]. What came before the look is seen by it; what
/// came after it ends the sleep.
#[derive(Debug)]
pub struct Waker {
    event: EventFd,
    dozing: AtomicBool,
}

impl Waker {
    /// A waker whose thread is awake.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> Result<Waker, Errno> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Waker { event, dozing: AtomicBool::new(false) })
    }

    /// There is work: call it behind having put it where the thread looks.
    pub fn wake(&self) {
        // Work first, then the look at `dozing`; the other side stores `dozing` first, then looks for work.
        fence(Ordering::SeqCst);
        if self.dozing.load(Ordering::Relaxed) && self.dozing.swap(false, Ordering::SeqCst) {
            let _ = self.event.write(1);
        }
    }

    /// From now on work wakes. The caller looks for work once more, and then sleeps or calls [`Waker::rouse`].
    pub fn doze(&self) {
        self.dozing.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread found work after all.
    pub fn rouse(&self) {
        if !self.dozing.swap(false, Ordering::SeqCst) {
            // Somebody was faster, and has written or will at once: a later sleep may end early, which does no harm.
            let _ = self.event.read();
        }
    }

    /// Sleeps until there is work, or until the time is over (rounded up to milliseconds); `None`: no end.
    pub fn sleep(&self, time: Option<Duration>) {
        let timeout = match time {
            None => PollTimeout::NONE,
            Some(time) => {
                let millis = time.as_nanos().div_ceil(1_000_000);
                PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
            }
        };
        // Interrupted by a signal: the caller looks around and sleeps again.
        let _ = poll(&mut [PollFd::new(self.event.as_fd(), PollFlags::POLLIN)], timeout);
        self.rouse();
    }
}

impl AsFd for Waker {
    /// For a thread that waits for other descriptors too: readable when there is work. Call [`Waker::rouse`] then.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Bytes of a region write: those of a register stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(Store);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Store {
    Few(u8, [u8; 8]),
    Many(Box<[u8]>),
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        let mut few = [0; 8];
        match few.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Bytes(Store::Few(bytes.len() as u8, few))
            }
            None => Bytes(Store::Many(bytes.into())),
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Store::Few(len, few) => &few[..usize::from(*len)],
            Store::Many(bytes) => bytes,
        }
    }
}

/// Where the answer to a letter goes. One that is dropped unused says ENODEV.
#[derive(Debug)]
pub struct Reply(Option<Arc<Answer>>);

#[derive(Debug, Default)]
struct Answer {
    value: Mutex<Option<Result<Box<[u8]>, Errno>>>,
    there: Condvar,
}

impl Reply {
    fn new() -> (Reply, Arc<Answer>) {
        let answer = Arc::new(Answer::default());
        (Reply(Some(Arc::clone(&answer))), answer)
    }

    /// Answers. A client that has given up waiting doesn't hear it.
    pub fn send(mut self, value: Result<&[u8], Errno>) {
        self.put(value.map(Box::from));
    }

    fn put(&mut self, value: Result<Box<[u8]>, Errno>) {
        if let Some(answer) = self.0.take() {
            *lock(&answer.value) = Some(value);
            answer.there.notify_one();
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.put(Err(Errno::ENODEV));
    }
}

impl Answer {
    fn wait(&self, until: Instant) -> Result<Box<[u8]>, Errno> {
        let mut value = lock(&self.value);
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(Errno::ETIMEDOUT)?;
            value = self.there.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What a client wants of a function.
#[derive(Debug)]
pub enum Letter {
    /// Bytes of a region: answer with as many.
    Read {
        /// The region: a BAR (0 to 5) or the configuration space (7).
        region: u32,
        /// First byte.
        offset: u64,
        /// How many.
        len: u32,
        /// Where the bytes go.
        reply: Reply,
    },
    /// Bytes for a region. The client has its reply already.
    Write {
        /// The region.
        region: u32,
        /// First byte.
        offset: u64,
        /// What.
        bytes: Bytes,
    },
    /// The function is reset: answer with nothing when it is.
    Reset {
        /// Where the answer goes.
        reply: Reply,
    },
    /// A client has come: memory and interrupts will follow.
    Connected(Arc<Connection>),
    /// The client has gone, and with it its memory and its interrupts.
    Disconnected,
}

#[derive(Debug)]
struct Shared {
    letters: Mutex<VecDeque<Letter>>,
    /// Letters that wait, for a look without the lock.
    count: AtomicUsize,
    room: Condvar,
    waker: Arc<Waker>,
    patience: Duration,
    depth: usize,
}

/// The engine's end: takes the letters of one function, in order.
#[derive(Debug)]
pub struct Mailbox(Arc<Shared>);

/// The socket's end: a [`Function`] that only puts letters in.
#[derive(Debug)]
pub struct Slot(Arc<Shared>);

/// A mailbox of `depth` letters, whose arrival `waker` tells; a client's message waits up to `patience` for room and answers.
pub fn mailbox(waker: Arc<Waker>, depth: usize, patience: Duration) -> (Slot, Mailbox) {
    let shared = Arc::new(Shared {
        letters: Mutex::new(VecDeque::with_capacity(depth)),
        count: AtomicUsize::new(0),
        room: Condvar::new(),
        waker,
        patience,
        depth,
    });
    (Slot(Arc::clone(&shared)), Mailbox(shared))
}

impl Mailbox {
    /// Whether nothing waits: one load.
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// The next letter.
    pub fn take(&self) -> Option<Letter> {
        if self.is_empty() {
            return None;
        }
        let mut letters = lock(&self.0.letters);
        let letter = letters.pop_front();
        self.0.count.store(letters.len(), Ordering::Release);
        drop(letters);
        self.0.room.notify_one();
        letter
    }
}

impl Slot {
    fn until(&self) -> Instant {
        Instant::now() + self.0.patience
    }

    /// Puts a letter in, if need be when there is room again.
    fn put(&self, letter: Letter, until: Instant) -> Result<(), Errno> {
        let mut letters = lock(&self.0.letters);
        while letters.len() >= self.0.depth {
            let left = until.checked_duration_since(Instant::now()).ok_or(Errno::ETIMEDOUT)?;
            letters = self.0.room.wait_timeout(letters, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.push(letters, letter);
        Ok(())
    }

    fn push(&self, mut letters: MutexGuard<'_, VecDeque<Letter>>, letter: Letter) {
        letters.push_back(letter);
        self.0.count.store(letters.len(), Ordering::Release);
        drop(letters);
        self.0.waker.wake();
    }
}

impl Function for Slot {
    fn region_read(&self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
        let until = self.until();
        let len = u32::try_from(to.len()).map_err(|_| Errno::E2BIG)?;
        let (reply, answer) = Reply::new();
        self.put(Letter::Read { region, offset, len, reply }, until)?;
        let bytes = answer.wait(until)?;
        assert_eq!(bytes.len(), to.len(), "the engine answers with as many bytes as were asked for");
        to.copy_from_slice(&bytes);
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.put(Letter::Write { region, offset, bytes: from.into() }, self.until())
    }

    fn reset(&self) -> Result<(), Errno> {
        let until = self.until();
        let (reply, answer) = Reply::new();
        self.put(Letter::Reset { reply }, until)?;
        answer.wait(until).map(drop)
    }

    // Comings and goings are few, and must not be lost: they go in even if there is no room.

    fn connected(&self, connection: &Arc<Connection>) {
        self.push(lock(&self.0.letters), Letter::Connected(Arc::clone(connection)));
    }

    fn disconnected(&self) {
        self.push(lock(&self.0.letters), Letter::Disconnected);
    }
}
