//! From the thread of a socket to the thread of the engine, and back.
//!
//! A client waits for the reply to each of its messages, so a write is acknowledged as soon as it is in the mailbox:
//! the engine finds it there before all that comes later. A read waits for the engine's answer, which therefore comes
//! behind all writes before it, as on PCI.
//!
//! An engine that gets no processor, or waits for its disk, answers late. Drivers in user space (SPDK's) give a
//! controller up at the first read that fails, so the registers that drivers poll have a copy here, which answers when
//! the time is over.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use tidewater_wire::nvme::register::offset as register;
use tidewater_wire::vfio_user::region;

use super::Function;
use super::connection::Connection;

/// Messages that wait in a mailbox, at most.
pub const DEPTH: usize = 1024;

/// Bytes of region writes that wait in a mailbox, at most: one message can carry a megabyte.
pub const BYTES_MAX: usize = 8 << 20;

/// How long a client's message may wait for the engine: below the five seconds after which QEMU gives a device up.
pub const PATIENCE: Duration = Duration::from_millis(4_500);

/// How often a wait looks whether this process was stopped meanwhile.
const SLICE: Duration = Duration::from_millis(50);

/// The time that a message may still wait. A process that was stopped, or got no processor, has not waited for an
/// engine that stood still with it: of each slice no more counts than its length.
#[derive(Clone, Copy, Debug)]
struct Patience(Duration);

impl Patience {
    /// Waits for a change, for a slice of the time at most.
    fn wait<'a, T>(&mut self, change: &Condvar, of: MutexGuard<'a, T>) -> Result<MutexGuard<'a, T>, Errno> {
        let most = self.0.min(SLICE);
        if most.is_zero() {
            return Err(Errno::ETIMEDOUT);
        }
        let begin = Instant::now();
        let of = change.wait_timeout(of, most).unwrap_or_else(PoisonError::into_inner).0;
        self.0 -= begin.elapsed().min(most);
        Ok(of)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the one thread that sleeps on it. While it doesn't sleep, waking it costs no system call.
///
/// The thread sleeps so: [`Waker::doze`], look for work once more, [`Waker::sleep`]. What came before the look is seen
/// by it; what came after it ends the sleep.
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
        self.dozing.store(false, Ordering::SeqCst);
        // Also without a wake-up this time: a sender that raced with the last call may have written after it, and an
        // event that stays readable would end every later sleep at once. A write that is still to come ends only one.
        let _ = self.event.read();
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
        // If a signal interrupts it, the caller polls its inputs and sleeps again.
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

/// Where the answer to a message goes. One that is dropped unused says ENODEV.
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
    fn wait(&self, mut patience: Patience) -> Result<Box<[u8]>, Errno> {
        let mut value = lock(&self.value);
        loop {
            if let Some(value) = value.take() {
                return value;
            }
            value = patience.wait(&self.there, value)?;
        }
    }
}

/// What a client wants of a function.
#[derive(Debug)]
pub enum PciMessage {
    /// Bytes of a region, up to a megabyte: answer with as many.
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
    /// Bytes for a region, up to a megabyte. The client has its reply already.
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

impl PciMessage {
    /// Whether registers may differ once it has been handled.
    fn changes_registers(&self) -> bool {
        !matches!(self, PciMessage::Read { .. })
    }

    /// Bytes that it carries.
    fn bytes(&self) -> usize {
        if let PciMessage::Write { bytes, .. } = self { bytes.len() } else { 0 }
    }
}

/// Registers of a controller, as the engine has last published them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Controller Capabilities (CAP).
    pub capabilities: u64,
    /// Version (VS).
    pub version: u32,
    /// Controller Configuration (CC).
    pub configuration: u32,
    /// Controller Status (CSTS).
    pub status: u32,
}

impl Registers {
    /// As a controller without power reads.
    pub const OFF: Registers =
        Registers { capabilities: u64::MAX, version: u32::MAX, configuration: u32::MAX, status: u32::MAX };
}

/// The copy of [`Registers`], by words. The engine writes it and sockets read it, each word by itself.
#[derive(Debug, Default)]
struct Copy {
    capabilities: AtomicU64,
    version: AtomicU64,
    configuration: AtomicU64,
    status: AtomicU64,
    /// Messages that may change registers, put in and taken out; and the latter when the copy was written.
    put: AtomicU64,
    taken: AtomicU64,
    written: AtomicU64,
    is_there: AtomicBool,
}

impl Copy {
    fn write(&self, of: &Registers) {
        self.capabilities.store(of.capabilities, Ordering::Relaxed);
        self.version.store(of.version.into(), Ordering::Relaxed);
        self.configuration.store(of.configuration.into(), Ordering::Relaxed);
        self.status.store(of.status.into(), Ordering::Relaxed);
        self.written.store(self.taken.load(Ordering::Relaxed), Ordering::Release);
        self.is_there.store(true, Ordering::Release);
    }

    /// Reads a register, or a half of CAP. False: there is no copy of these bytes, or a write that the engine has not
    /// seen may have changed CC. CSTS may be older than such a write: hosts wait for its change.
    fn read(&self, at: u64, to: &mut [u8]) -> bool {
        const CAP: u64 = register::CAP as u64;
        let (value, skip, size) = match u32::try_from(at) {
            _ if !self.is_there.load(Ordering::Acquire) => return false,
            Ok(register::CAP | 0x04) => (&self.capabilities, at - CAP, 8),
            Ok(register::VS) => (&self.version, 0, 4),
            Ok(register::CC) if self.written.load(Ordering::Acquire) == self.put.load(Ordering::Acquire) => {
                (&self.configuration, 0, 4)
            }
            Ok(register::CSTS) => (&self.status, 0, 4),
            _ => return false,
        };
        let bytes = value.load(Ordering::Relaxed).to_le_bytes();
        let Some(found) = bytes[..size].get(skip as usize..).and_then(|from| from.get(..to.len())) else {
            return false;
        };
        to.copy_from_slice(found);
        true
    }
}

/// Messages, and the bytes that they carry.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<PciMessage>,
    bytes: usize,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Messages that wait, for a look without the lock.
    count: AtomicUsize,
    room: Condvar,
    waker: Arc<Waker>,
    patience: Duration,
    depth: usize,
    copy: Copy,
}

/// The engine's end: takes the messages of one function, in order.
#[derive(Debug)]
pub struct Mailbox(Arc<Shared>);

/// The socket's end: a [`Function`] that only puts messages in.
#[derive(Debug)]
pub struct Slot(Arc<Shared>);

/// A mailbox of `depth` messages, whose arrival `waker` tells; a client's message waits up to `patience` for room and
/// answers.
pub fn mailbox(waker: Arc<Waker>, depth: usize, patience: Duration) -> (Slot, Mailbox) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue { messages: VecDeque::with_capacity(depth), bytes: 0 }),
        count: AtomicUsize::new(0),
        room: Condvar::new(),
        waker,
        patience,
        depth,
        copy: Copy::default(),
    });
    (Slot(Arc::clone(&shared)), Mailbox(shared))
}

impl Mailbox {
    /// Whether nothing waits: one load.
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// The next message.
    pub fn take(&self) -> Option<PciMessage> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.0.queue);
        let message = queue.messages.pop_front();
        queue.bytes -= message.as_ref().map_or(0, PciMessage::bytes);
        if message.as_ref().is_some_and(PciMessage::changes_registers) {
            self.0.copy.taken.fetch_add(1, Ordering::Relaxed);
        }
        self.0.count.store(queue.messages.len(), Ordering::Release);
        drop(queue);
        self.0.room.notify_one();
        message
    }

    /// Publishes registers, as they are after all messages that were taken: they answer reads that the engine answers
    /// too late.
    pub fn publish(&self, registers: &Registers) {
        self.0.copy.write(registers);
    }
}

impl Slot {
    fn patience(&self) -> Patience {
        Patience(self.0.patience)
    }

    /// Puts a message in, if need be when there is room again.
    fn put(&self, message: PciMessage, patience: &mut Patience) -> Result<(), Errno> {
        let bytes = message.bytes();
        let mut queue = lock(&self.0.queue);
        while queue.messages.len() >= self.0.depth || (queue.bytes > 0 && queue.bytes + bytes > BYTES_MAX) {
            queue = patience.wait(&self.0.room, queue)?;
        }
        self.push(queue, message);
        Ok(())
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, message: PciMessage) {
        if message.changes_registers() {
            self.0.copy.put.fetch_add(1, Ordering::Release);
        }
        queue.bytes += message.bytes();
        queue.messages.push_back(message);
        self.0.count.store(queue.messages.len(), Ordering::Release);
        drop(queue);
        self.0.waker.wake();
    }
}

impl Function for Slot {
    fn region_read(&self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
        let mut patience = self.patience();
        let len = u32::try_from(to.len()).map_err(|_| Errno::E2BIG)?;
        let (reply, answer) = Reply::new();
        let put = self.put(PciMessage::Read { region, offset, len, reply }, &mut patience);
        let bytes = match put.and_then(|()| answer.wait(patience)) {
            Err(Errno::ETIMEDOUT) if region == region::BAR0 && self.0.copy.read(offset, to) => {
                tracing::warn!(
                    "the device did not answer a read of register {offset:02x}h within {:?}: it got the register's \
                     last known value",
                    self.0.patience
                );
                return Ok(());
            }
            result => result?,
        };
        assert_eq!(bytes.len(), to.len(), "the engine answers with as many bytes as were asked for");
        to.copy_from_slice(&bytes);
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.put(PciMessage::Write { region, offset, bytes: from.into() }, &mut self.patience())
    }

    /// A doorbell, in the page of them: the engine looks there.
    fn stored(&self, region: u32) {
        if region == region::BAR0 {
            self.0.waker.wake();
        }
    }

    fn reset(&self) -> Result<(), Errno> {
        let mut patience = self.patience();
        let (reply, answer) = Reply::new();
        self.put(PciMessage::Reset { reply }, &mut patience)?;
        answer.wait(patience).map(drop)
    }

    // Comings and goings are few, and must not be lost: they go in even if there is no room.

    fn connected(&self, connection: &Arc<Connection>) {
        self.push(lock(&self.0.queue), PciMessage::Connected(Arc::clone(connection)));
    }

    fn disconnected(&self) {
        let mut queue = lock(&self.0.queue);
        // A client that came and went without a word, right after another: the engine need not hear of it, and clients
        // that do so all day fill no mailbox.
        if matches!(queue.messages.make_contiguous(), [.., PciMessage::Disconnected, PciMessage::Connected(_)]) {
            queue.messages.pop_back();
            self.0.copy.taken.fetch_add(1, Ordering::Relaxed);
            self.0.count.store(queue.messages.len(), Ordering::Release);
            return;
        }
        self.push(queue, PciMessage::Disconnected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    use super::super::guest::GuestMemory;

    const TIME: Duration = Duration::from_secs(600);

    fn pair(depth: usize, patience: Duration) -> (Slot, Mailbox, Arc<Waker>) {
        let waker = Arc::new(Waker::new().expect("a waker"));
        let (slot, mailbox) = mailbox(Arc::clone(&waker), depth, patience);
        (slot, mailbox, waker)
    }

    #[test]
    fn messages_come_in_order_and_reads_behind_writes() {
        let (slot, mailbox, waker) = pair(16, TIME);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                slot.region_write(0, 0x14, &[1, 2, 3, 4]).expect("a write");
                slot.region_write(2, 0x1000, &[9; 64]).expect("a long write");
                let mut bytes = [0; 8];
                slot.region_read(0, 0x1C, &mut bytes).expect("a read");
                assert_eq!(bytes, [7; 8]);
                assert_eq!(slot.region_read(0, 0, &mut bytes), Err(Errno::EIO), "as the engine says");
                assert_eq!(slot.region_read(0, 0, &mut bytes), Err(Errno::ENODEV), "unanswered");
                slot.reset().expect("a reset");
            });
            let mut seen = Vec::new();
            while seen.len() < 6 {
                waker.doze();
                let Some(message) = mailbox.take() else {
                    waker.sleep(Some(TIME));
                    continue;
                };
                waker.rouse();
                match message {
                    PciMessage::Write { region, offset, bytes } => {
                        seen.push(format!("write {region} {offset:#x} {}", bytes.len()))
                    }
                    PciMessage::Read { offset, len, reply, .. } => {
                        seen.push(format!("read {offset:#x} {len}"));
                        match seen.len() {
                            3 => reply.send(Ok(&[7; 8])),
                            4 => reply.send(Err(Errno::EIO)),
                            _ => drop(reply),
                        }
                    }
                    PciMessage::Reset { reply } => {
                        seen.push("reset".to_owned());
                        reply.send(Ok(&[]));
                    }
                    other => panic!("{other:?}"),
                }
            }
            let expected = ["write 0 0x14 4", "write 2 0x1000 64", "read 0x1c 8", "read 0x0 8", "read 0x0 8", "reset"];
            assert_eq!(seen, expected);
        });
        assert!(mailbox.is_empty() && mailbox.take().is_none());
    }

    #[test]
    fn an_engine_that_is_stuck_keeps_no_client_for_longer_than_said() {
        let (slot, mailbox, _) = pair(2, Duration::from_millis(30));
        let start = Instant::now();
        assert_eq!(slot.region_read(0, 0, &mut [0; 4]), Err(Errno::ETIMEDOUT));
        slot.region_write(0, 0, &[1]).expect("there is room for one more");
        assert_eq!(slot.region_write(0, 0, &[2]), Err(Errno::ETIMEDOUT), "there is no room");
        assert_eq!(slot.reset(), Err(Errno::ETIMEDOUT));
        assert!((90..4000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        slot.disconnected();
        // The answer to a read that was given up goes nowhere.
        let Some(PciMessage::Read { reply, .. }) = mailbox.take() else { panic!("the read comes first") };
        reply.send(Ok(&[0; 4]));
        assert!(matches!(mailbox.take(), Some(PciMessage::Write { .. })));
        assert!(matches!(mailbox.take(), Some(PciMessage::Disconnected)), "it went in without room");
    }

    /// SPDK's driver gives a controller up when one read of CSTS fails.
    #[test]
    fn registers_that_drivers_poll_are_answered_without_the_engine() {
        let (slot, mailbox, _) = pair(16, Duration::from_millis(1));
        let read = |offset: u64, len: usize| {
            let mut bytes = vec![0; len];
            slot.region_read(region::BAR0, offset, &mut bytes).map(|()| bytes)
        };
        assert_eq!(read(0x1C, 4), Err(Errno::ETIMEDOUT), "the engine has never said what it is");
        let registers = Registers {
            capabilities: 0x0807_0605_0403_0201,
            version: 0x0001_0400,
            configuration: 0x0046_0001,
            status: 1,
        };
        while mailbox.take().is_some() {}
        mailbox.publish(&registers);
        assert_eq!(read(0, 8), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!((read(0, 4), read(4, 4)), (Ok(vec![1, 2, 3, 4]), Ok(vec![5, 6, 7, 8])));
        assert_eq!((read(8, 4), read(0x14, 4)), (Ok(vec![0, 4, 1, 0]), Ok(vec![1, 0, 0x46, 0])));
        assert_eq!(read(0x1C, 4), Ok(vec![1, 0, 0, 0]));
        // What has no copy, or not as asked for.
        for (offset, len) in [(0x0C, 4), (0x20, 4), (0x24, 4), (4, 8), (8, 8), (0x1C, 8), (0x1D, 1), (0x1000, 4)] {
            assert_eq!(read(offset, len), Err(Errno::ETIMEDOUT), "{len} bytes at {offset:#x}");
        }
        let mut bytes = [0; 4];
        assert_eq!(slot.region_read(region::CONFIG, 0x1C, &mut bytes), Err(Errno::ETIMEDOUT), "another region");
        // A write on its way may change CC. CSTS changes in its time.
        while mailbox.take().is_some() {}
        slot.region_write(region::BAR0, 0x14, &[0; 4]).expect("a write");
        assert_eq!((read(0x14, 4), read(0x1C, 4)), (Err(Errno::ETIMEDOUT), Ok(vec![1, 0, 0, 0])));
        while mailbox.take().is_some() {}
        assert_eq!(read(0x14, 4), Err(Errno::ETIMEDOUT), "it is taken, and what follows is not known");
        mailbox.publish(&Registers { configuration: 0, status: 0, ..registers });
        assert_eq!((read(0x14, 4), read(0x1C, 4)), (Ok(vec![0; 4]), Ok(vec![0; 4])));
        mailbox.publish(&Registers::OFF);
        assert_eq!((read(0, 8), read(0x1C, 4)), (Ok(vec![0xFF; 8]), Ok(vec![0xFF; 4])));
    }

    #[test]
    fn clients_that_come_and_go_fill_no_mailbox() {
        let (slot, mailbox, _) = pair(2, TIME);
        let (stream, _peer) = UnixStream::pair().expect("sockets");
        let connection = Arc::new(Connection::new(stream, Arc::new(GuestMemory::default())).expect("a connection"));
        for _ in 0..100 {
            slot.connected(&connection);
            slot.disconnected();
        }
        slot.connected(&connection);
        let kinds: Vec<bool> =
            std::iter::from_fn(|| mailbox.take()).map(|message| matches!(message, PciMessage::Connected(_))).collect();
        assert_eq!(kinds, [true, false, true]);
    }

    #[test]
    fn bytes_that_wait_are_bounded() {
        let (slot, mailbox, _) = pair(1000, Duration::from_millis(10));
        let megabyte = vec![0; 1 << 20];
        for _ in 0..8 {
            slot.region_write(2, 0, &megabyte).expect("there is room");
        }
        assert_eq!(slot.region_write(2, 0, &megabyte), Err(Errno::ETIMEDOUT));
        assert_eq!(slot.region_write(2, 0, &[0]), Err(Errno::ETIMEDOUT));
        mailbox.take().expect("the first");
        slot.region_write(2, 0, &megabyte).expect("there is room again");
        while mailbox.take().is_some() {}
        slot.region_write(2, 0, &vec![0; 9 << 20]).expect("alone, anything has room");
    }

    #[test]
    fn bytes_are_kept_whatever_their_number() {
        for len in 0..20 {
            let bytes: Vec<u8> = (0..len).collect();
            assert_eq!(&*Bytes::from(bytes.as_slice()), bytes.as_slice());
        }
    }

    #[test]
    fn no_call_to_wake_is_lost() {
        let waker = Waker::new().expect("a waker");
        let work = AtomicUsize::new(0);
        const ROUNDS: usize = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    work.fetch_add(1, Ordering::Release);
                    waker.wake();
                }
            });
            let mut done = 0;
            while done < ROUNDS {
                waker.doze();
                let more = work.swap(0, Ordering::Acquire);
                done += more;
                if more > 0 {
                    waker.rouse();
                } else {
                    let start = Instant::now();
                    waker.sleep(Some(TIME));
                    assert!(start.elapsed() < TIME, "slept through {done}");
                }
            }
        });
        let start = Instant::now();
        waker.doze();
        waker.sleep(Some(Duration::from_millis(20)));
        // The last calls may have left one event behind.
        waker.doze();
        waker.sleep(Some(Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
