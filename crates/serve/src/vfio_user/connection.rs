//! A client that is connected: the messages that it sends, and accesses to memory that it lends without descriptors.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tidewater_wire::vfio_user::{DmaAccess, Header, TRANSFER_DEFAULT, command};

use super::guest::{DmaError, GuestMemory};
use tidewater_ipc::{Message, Received, Receiver, SEND_TIME, TRANSFER_MAX, readable, send};

/// Commands that wait for the socket's thread, at most; more stay on the socket.
const QUEUE_MAX: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Reader {
    receiver: Receiver,
    commands: VecDeque<Message>,
    over: bool,
}

/// The reply that a thread waits for.
#[derive(Debug, Default)]
enum Awaited {
    #[default]
    Nothing,
    Id(u16, u16),
    Here(Message),
}

/// What a thread found on the socket.
enum Found {
    /// Something that was not for it, or is put where it belongs.
    Something,
    /// Nothing.
    Nothing,
    /// No more will come.
    Over,
}

/// A connected client.
///
/// Commands of the client are handled by the thread of its socket. Any thread may ask the client for memory: while it
/// waits, it reads the socket itself and leaves commands to the socket's thread, so that neither waits for the other.
/// That holds also while the socket's thread waits for the answer to a region access.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    memory: Arc<GuestMemory>,
    reader: Mutex<Reader>,
    writer: Mutex<()>,
    /// One message to the client at a time.
    turn: Mutex<()>,
    awaited: Mutex<Awaited>,
    /// Commands have been left for the socket's thread.
    queued: EventFd,
    /// The reply has been left for the thread that waits for it.
    replied: EventFd,
    id: AtomicU16,
    transfer_max: AtomicU32,
    broken: AtomicBool,
}

impl Connection {
    /// A connection whose client has not agreed to anything yet.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new(stream: UnixStream, memory: Arc<GuestMemory>) -> Result<Connection, Errno> {
        let event = || EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        Ok(Connection {
            stream,
            memory,
            reader: Mutex::default(),
            writer: Mutex::new(()),
            turn: Mutex::new(()),
            awaited: Mutex::default(),
            queued: event()?,
            replied: event()?,
            id: AtomicU16::new(0),
            transfer_max: AtomicU32::new(TRANSFER_DEFAULT.min(TRANSFER_MAX)),
            broken: AtomicBool::new(false),
        })
    }

    /// The client's memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Whether the connection still stands, as far as is known.
    pub fn is_open(&self) -> bool {
        !self.broken.load(Ordering::Acquire)
    }

    /// What the client takes in one message of data.
    pub(super) fn set_transfer_max(&self, bytes: u32) {
        self.transfer_max.store(bytes.clamp(1, TRANSFER_MAX), Ordering::Relaxed);
    }

    /// No more messages, in either direction.
    pub fn close(&self) {
        self.broken.store(true, Ordering::Release);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.replied.write(1);
    }

    /// Sends one message. After an error the connection is of no use.
    pub(super) fn send(&self, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let _turn = lock(&self.writer);
        if !self.is_open() {
            return Err(Errno::EPIPE);
        }
        send(self.stream.as_fd(), parts, descriptors, SEND_TIME).inspect_err(|_| self.close())
    }

    /// Takes one message from the socket and puts it where it belongs.
    fn receive(&self, reader: &mut Reader) -> Found {
        if reader.over || !self.is_open() {
            return Found::Over;
        }
        match reader.receiver.receive(self.stream.as_fd()) {
            Ok(Received::Message(message)) if message.header.is_command() => {
                reader.commands.push_back(message);
                Found::Something
            }
            Ok(Received::Message(message)) if message.header.is_reply() => {
                let mut awaited = lock(&self.awaited);
                // One without a waiter is dropped.
                if matches!(*awaited, Awaited::Id(id, command)
                    if (id, command) == (message.header.id, message.header.command))
                {
                    *awaited = Awaited::Here(message);
                }
                Found::Something
            }
            Ok(Received::Nothing) => Found::Nothing,
            Ok(Received::Message(_) | Received::Closed) | Err(_) => {
                reader.over = true;
                Found::Over
            }
        }
    }

    /// The next command, for the socket's thread. It waits for `others` too, and returns `None` when one of them is
    /// readable. A client that begins a message and doesn't end it within `patience` has failed.
    ///
    /// # Errors
    /// ECONNRESET: the client has gone or has sent what is no message; EIO: the system can't wait.
    pub(super) fn next(&self, others: &[BorrowedFd<'_>], patience: Duration) -> Result<Option<Message>, Errno> {
        let mut since: Option<Instant> = None;
        loop {
            let amid = {
                let mut reader = lock(&self.reader);
                if let Some(message) = reader.commands.pop_front() {
                    return Ok(Some(message));
                }
                match self.receive(&mut reader) {
                    Found::Something => {
                        since = None;
                        // A reply: its waiter sleeps on the socket or on this.
                        if reader.commands.is_empty() {
                            let _ = self.replied.write(1);
                        }
                        continue;
                    }
                    Found::Over => return Err(Errno::ECONNRESET),
                    Found::Nothing => reader.receiver.is_amid(),
                }
            };
            let wait = if amid {
                let since = *since.get_or_insert_with(Instant::now);
                Some(patience.checked_sub(since.elapsed()).ok_or(Errno::ECONNRESET)?)
            } else {
                since = None;
                None
            };
            // The socket, commands that another thread has left, and the caller's.
            let all = [&[self.stream.as_fd(), self.queued.as_fd()], others].concat();
            let ready = readable(&all, wait).map_err(|_| Errno::EIO)?;
            if ready & 2 != 0 {
                let _ = self.queued.read();
            }
            // What is on the socket comes first: it may say that the client has gone and the next one may come. Asked
            // once more, since both may have come about while the system looked at one after the other.
            let is_quiet = || readable(&[self.stream.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| ready == 0);
            if ready >> 2 != 0 && ready & 1 == 0 && is_quiet() {
                return Ok(None);
            }
        }
    }

    /// Sends a command to the client and waits for its reply.
    fn ask(&self, command: u16, parts: &[&[u8]], until: Instant) -> Result<Message, Errno> {
        let _turn = lock(&self.turn);
        let id = self.id.fetch_add(1, Ordering::Relaxed);
        let payload = parts.iter().map(|part| part.len()).sum();
        let header = Header::command(id, command, payload).to_bytes();
        *lock(&self.awaited) = Awaited::Id(id, command);
        let message = [&[header.as_slice()], parts].concat();
        let result = self.send(&message, &[]).and_then(|()| self.reply(until));
        *lock(&self.awaited) = Awaited::Nothing;
        result
    }

    /// Waits for the reply that is awaited.
    fn reply(&self, until: Instant) -> Result<Message, Errno> {
        loop {
            let _ = self.replied.read();
            let (over, full) = {
                let mut reader = lock(&self.reader);
                let mut over = false;
                while reader.commands.len() < QUEUE_MAX {
                    match self.receive(&mut reader) {
                        Found::Something => {}
                        Found::Nothing => break,
                        Found::Over => {
                            over = true;
                            break;
                        }
                    }
                }
                if over || !reader.commands.is_empty() {
                    let _ = self.queued.write(1);
                }
                (over, reader.commands.len() >= QUEUE_MAX)
            };
            {
                let mut awaited = lock(&self.awaited);
                if matches!(*awaited, Awaited::Here(_))
                    && let Awaited::Here(message) = std::mem::take(&mut *awaited)
                {
                    return Ok(message);
                }
            }
            if over || !self.is_open() {
                return Err(Errno::ECONNRESET);
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(Errno::ETIMEDOUT)?;
            let both = [self.replied.as_fd(), self.stream.as_fd()];
            readable(if full { &both[..1] } else { &both }, Some(left))?;
        }
    }

    /// Reads the client's memory by messages, in pieces that it takes, all within `time`.
    ///
    /// # Errors
    /// [`DmaError::Client`].
    pub fn dma_read(&self, address: u64, to: &mut [u8], time: Duration) -> Result<(), DmaError> {
        let until = Instant::now() + time;
        let mut at = address;
        for piece in to.chunks_mut(self.transfer_max.load(Ordering::Relaxed) as usize) {
            let access = DmaAccess { address: at, count: piece.len() as u64 };
            let reply = self.ask(command::DMA_READ, &[&access.to_bytes()], until);
            let good = reply.is_ok_and(|reply| match DmaAccess::split(&reply.payload, true) {
                Some((_, data)) if !reply.header.is_failure() && data.len() == piece.len() => {
                    piece.copy_from_slice(data);
                    true
                }
                _ => false,
            });
            if !good {
                return Err(DmaError::Client { address: at });
            }
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Writes the client's memory by messages, in pieces that it takes, all within `time`.
    ///
    /// # Errors
    /// [`DmaError::Client`].
    pub fn dma_write(&self, address: u64, from: &[u8], time: Duration) -> Result<(), DmaError> {
        let until = Instant::now() + time;
        let mut at = address;
        for piece in from.chunks(self.transfer_max.load(Ordering::Relaxed) as usize) {
            let access = DmaAccess { address: at, count: piece.len() as u64 };
            let reply = self.ask(command::DMA_WRITE, &[&access.to_bytes(), piece], until);
            if !reply.is_ok_and(|reply| !reply.header.is_failure()) {
                return Err(DmaError::Client { address: at });
            }
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Reads the client's memory, however it is lent; `time` is for what takes messages.
    ///
    /// # Errors
    /// As [`DmaError`] says, but never [`DmaError::ByMessage`].
    pub fn read(&self, address: u64, to: &mut [u8], time: Duration) -> Result<(), DmaError> {
        let until = Instant::now() + time;
        let mut done = 0;
        loop {
            let from = address.wrapping_add(done as u64);
            match self.memory.read(from, &mut to[done..]) {
                Err(DmaError::ByMessage { address: at }) => {
                    done += at.wrapping_sub(from) as usize;
                    let len = self.memory.by_message(at, to.len() - done, false);
                    let left = until.saturating_duration_since(Instant::now());
                    self.dma_read(at, &mut to[done..done + len], left)?;
                    done += len;
                }
                other => return other,
            }
        }
    }

    /// Writes the client's memory, however it is lent; `time` is for what takes messages.
    ///
    /// # Errors
    /// As [`DmaError`] says, but never [`DmaError::ByMessage`].
    pub fn write(&self, address: u64, from: &[u8], time: Duration) -> Result<(), DmaError> {
        let until = Instant::now() + time;
        let mut done = 0;
        loop {
            let to = address.wrapping_add(done as u64);
            match self.memory.write(to, &from[done..]) {
                Err(DmaError::ByMessage { address: at }) => {
                    done += at.wrapping_sub(to) as usize;
                    let len = self.memory.by_message(at, from.len() - done, true);
                    let left = until.saturating_duration_since(Instant::now());
                    self.dma_write(at, &from[done..done + len], left)?;
                    done += len;
                }
                other => return other,
            }
        }
    }
}
