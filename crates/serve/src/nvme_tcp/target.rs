//! The target: listeners, connections, time, and the way between commands and the engine.

use super::association::{Associations, Queue};
use super::backlog::QUIET;
use super::border::{Border, CommandId};
use super::connection::{Connection, Event};
use super::options::{Options, Patience, after};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::{Input, MoveError, Slot};
use tidewater_wire::fabrics::Response;
use tidewater_wire::nvme::Cqe;

/// Bytes that are read from a connection at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes that wait before some are sent while more are being made, so that the host can begin.
const SEND_EARLY_BYTES: usize = 256 << 10;
/// Bytes that wait for one host from which on it is looked at how much waits for all.
const BACKLOG_LOOKED_AT: usize = 1 << 20;
/// Events that are taken from the system at once.
const EVENTS: usize = 64;
/// How long a connection that has ended is kept for the host to read why.
const LINGER: Duration = Duration::from_ms(2_000);
/// Marks a listener's events.
pub(super) const LISTENER: u64 = 1 << 32;
/// Notes that wait to be taken, at most.
const NOTES_MAX: usize = 16;
/// How long notes of what hosts do are left out after one.
const NOTE_PAUSE: Duration = Duration::from_ms(10_000);
/// The first bytes of a TLS record that begins a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// A target could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// An address other than loopback, which has to be allowed.
    #[error(
        "{0} is not a loopback address, and NVMe/TCP is neither encrypted nor authenticated here; allow it with \
         --insecure-bind"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {0}: {1}; choose another address")]
    Listen(SocketAddr, io::Error),
    /// The system gives no epoll instance.
    #[error("cannot wait for connections: {0}")]
    System(io::Error),
}

/// What a target has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were closed at once, because there were too many.
    pub refused: u64,
    /// Connections that were no queue yet and were closed because newer ones came, and controllers that gave way to
    /// another host.
    pub displaced: u64,
    /// Connections that are open.
    pub open: u64,
    /// Controllers that hosts have now, discovery controllers included.
    pub controllers: u64,
    /// Connections that ended because the host broke the transport's rules.
    pub fatal: u64,
    /// Connections that ended because the host was in the middle of something for too long, or left too much waiting.
    pub stalled: u64,
    /// Controllers that ended because their hosts did not keep them alive.
    pub keep_alive_expired: u64,
    /// Commands that came, those of Fabrics included.
    pub commands: u64,
}

/// How fast bytes go to a host that has some to take.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Since when some are waiting, or the bytes are counted.
    since: Option<Instant>,
    /// Bytes that have gone since.
    bytes: u64,
}

impl Pace {
    /// Bytes wait, or none do.
    fn wait(&mut self, waits: bool, now: Instant) {
        if !waits {
            *self = Pace::default();
        } else if self.since.is_none() {
            *self = Pace { since: Some(now), bytes: 0 };
        }
    }

    /// When the host is too slow, as far as is known at `now`.
    fn late_at(&mut self, now: Instant, patience: &Patience) -> Instant {
        let Some(since) = self.since else { return Instant::NEVER };
        let late_at = after(since, patience.time);
        if late_at > now || self.bytes < patience.bytes() {
            return late_at;
        }
        *self = Pace { since: Some(now), bytes: 0 };
        after(now, patience.time)
    }
}

pub(super) struct Peer {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) connection: Connection,
    /// The controller and the queue that it is.
    pub(super) queue: Option<(usize, u16)>,
    /// Commands that wait until the host has taken more of its data.
    pub(super) held: VecDeque<u16>,
    /// Where the Connect command is that waits for a queue, or a controller, to be free.
    pub(super) connecting: Option<u16>,
    pub(super) opened: Instant,
    /// PDUs that have come, and since when the next one has begun.
    pdus: u64,
    pdu_since: Option<Instant>,
    pace: Pace,
    /// The connection has ended, and is closed by then.
    pub(super) close_at: Option<Instant>,
    /// It is in the list of those that have something to send.
    listed: bool,
    /// The system was asked to say when more can be sent.
    blocked: bool,
    /// Its end is on the way.
    is_given_up: bool,
}

impl Peer {
    pub(super) fn new(stream: TcpStream, address: SocketAddr, options: &Options, now: Instant) -> Peer {
        Peer {
            stream,
            address,
            connection: Connection::new(options.limits, options.patience()),
            queue: None,
            held: VecDeque::new(),
            connecting: None,
            opened: now,
            pdus: 0,
            pdu_since: None,
            pace: Pace::default(),
            close_at: None,
            listed: false,
            blocked: false,
            is_given_up: false,
        }
    }

    /// Its host is not waited for any more. Reading finds the end, and tells the engine.
    fn give_up(&mut self) {
        self.is_given_up = true;
        self.connection.sender.discard();
        self.connection.finish();
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Bytes that wait here.
    fn waiting(&self) -> usize {
        if self.is_given_up { 0 } else { self.connection.waiting() }
    }

    /// By when its host has to have done something.
    fn late_at(&mut self, now: Instant, options: &Options) -> Instant {
        if let Some(close_at) = self.close_at {
            return close_at;
        }
        let patience = options.patience();
        let handshake =
            if self.queue.is_none() { after(self.opened, options.handshake_time_max) } else { Instant::NEVER };
        let pdu = self.pdu_since.map_or(Instant::NEVER, |since| after(since, patience.time));
        let transfer = self.connection.due().unwrap_or(Instant::NEVER);
        handshake.min(pdu).min(transfer).min(self.pace.late_at(now, &patience))
    }

    /// The address at which its host found the target.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }
}

/// A target. It has no thread and never blocks: its owner calls [`Target::poll`] when [`Target::as_fd`] is
/// readable or [`Target::deadline`] has come, carries out what the subsystem says, and then calls [`Target::flush`].
pub struct Target {
    pub(super) options: Options,
    pub(super) epoll: Epoll,
    pub(super) listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    pub(super) peers: Vec<Option<Peer>>,
    pub(super) associations: Associations,
    /// Peers that hold commands back.
    pub(super) holding: VecDeque<usize>,
    /// Peers that have something to send.
    unsent: Vec<usize>,
    scratch: Vec<u8>,
    check_at: Instant,
    /// Listeners are not listened to until then.
    pub(super) paused_until: Option<Instant>,
    pub(super) now: Instant,
    pub(super) statistics: Statistics,
    /// A queue, or a controller, has become free: Connect commands that wait are looked at again.
    has_room: bool,
    notes: VecDeque<String>,
    note_after: Instant,
}

impl Target {
    /// A target that listens.
    ///
    /// # Errors
    /// An address that is not loopback, and not allowed, or that cannot be had.
    pub fn bind(options: Options) -> Result<Target, BindError> {
        let system = |error: nix::errno::Errno| BindError::System(error.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system)?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for &address in &options.listen {
            if !address.ip().is_loopback() && !options.insecure_bind {
                return Err(BindError::NotLoopback(address));
            }
            let listen = |error| BindError::Listen(address, error);
            let listener = TcpListener::bind(address).map_err(listen)?;
            listener.set_nonblocking(true).map_err(listen)?;
            addresses.push(listener.local_addr().map_err(listen)?);
            let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER | listeners.len() as u64);
            epoll.add(&listener, event).map_err(system)?;
            listeners.push(listener);
        }
        Ok(Target {
            associations: Associations::new(&options),
            options,
            epoll,
            listeners,
            addresses,
            peers: Vec::new(),
            holding: VecDeque::new(),
            unsent: Vec::new(),
            scratch: vec![0; READ_BYTES],
            check_at: Instant::NEVER,
            paused_until: None,
            now: Instant::ZERO,
            statistics: Statistics::default(),
            has_room: false,
            notes: VecDeque::new(),
            note_after: Instant::ZERO,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Readable when [`Target::poll`] has something to do.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// When [`Target::poll`] is to be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        (self.check_at != Instant::NEVER).then_some(self.check_at)
    }

    /// What it has seen.
    pub fn statistics(&self) -> Statistics {
        let open = self.peers.iter().flatten().count() as u64;
        Statistics { open, controllers: self.associations.len() as u64, ..self.statistics }
    }

    /// Takes what the user should know of hosts, in words.
    pub fn take_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// Takes what has come: connections, commands, data; and looks at the time. Does not wait. Says whether anything
    /// came.
    pub fn poll(&mut self, now: Instant, border: &mut dyn Border) -> bool {
        self.now = self.now.max(now);
        let resumes = std::mem::take(&mut self.has_room);
        if resumes {
            self.resume_connects(border);
        }
        let (resumed, is_owed) = self.resume_held(border);
        let mut events = [EpollEvent::empty(); EVENTS];
        // An interrupted call has no events; the next one has them.
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                listener if listener & LISTENER != 0 => self.accept((listener & !LISTENER) as usize, border),
                peer => {
                    let peer = peer as usize;
                    if event.events().contains(EpollFlags::EPOLLOUT) {
                        self.flush_peer(peer);
                    }
                    self.read(peer, border);
                }
            }
        }
        if count > 0 {
            self.check_by(self.options.stall_time_max);
        }
        if self.check_at <= self.now {
            self.check(border);
        }
        if is_owed {
            self.check_by(QUIET);
        }
        count > 0 || resumes || resumed
    }

    /// Sends what waits, as far as hosts take it.
    pub fn flush(&mut self) {
        while let Some(peer) = self.unsent.pop() {
            if let Some(peer) = self.peers[peer].as_mut() {
                peer.listed = false;
            }
            self.flush_peer(peer);
        }
    }

    /// The data of a command, for the staging area of its slot: what came with the command, or `None` when it comes by
    /// [`Border::stage`] and ends with [`Input::Moved`].
    ///
    /// # Errors
    /// The connection has gone, or the host does not offer so much data.
    pub fn fetch(&mut self, command: CommandId, slot: Slot, len: u32) -> Result<Option<&[u8]>, MoveError> {
        let (peer, place) = self.find(command).ok_or(MoveError::Host)?;
        self.list(peer);
        // A command may have waited for so long that no other time is looked at any more.
        self.check_by(self.options.stall_time_max);
        let now = self.now;
        let peer = self.peers[peer].as_mut().expect("it was found");
        peer.connection.now = now;
        peer.connection.fetch(place, Some(slot), len)
    }

    /// Data of a command for its host: `len` bytes, `at` bytes behind the start of the command's data, which `fill`
    /// writes into the place from which they are sent. Each byte once, in any order. `fill` is not called if there is
    /// no receiver.
    ///
    /// # Errors
    /// The connection has gone, the host does not ask for so much data, or what `fill` says.
    pub fn data(
        &mut self,
        command: CommandId,
        at: u32,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), MoveError>,
    ) -> Result<(), MoveError> {
        let (index, place) = self.find(command).ok_or(MoveError::Host)?;
        let peer = self.peers[index].as_mut().expect("it was found");
        let filled = peer.connection.data(place, at, len, fill)?;
        let early = peer.connection.sender.len() > SEND_EARLY_BYTES && !peer.blocked;
        self.list(index);
        if early {
            self.flush_peer(index);
        }
        filled
    }

    /// A command has ended. Nothing happens if no host waits for it any more. `Some`: this slot waits for data that
    /// [`Target::fetch`] was to bring and that does not come: it has failed.
    ///
    /// That is a slot of another command. A host may use an identifier again as soon as it has reset its controller,
    /// and what the subsystem said before it heard of the reset finds the new command under it.
    pub fn complete(&mut self, function: u8, queue: u16, cqe: &Cqe) -> Option<Slot> {
        let command = CommandId { function, queue, cid: cqe.cid };
        let (peer, place) = self.find(command)?;
        self.respond(peer, place, Response { value: u64::from(cqe.dw0), status: cqe.status, ..Response::default() })
    }

    /// An I/O queue is free again: its last command has ended after its connection went.
    pub fn queue_gone(&mut self, function: u8, queue: u16) {
        self.associations.free_queue(function, queue);
        self.has_room = true;
    }

    /// A controller is free again: its last command has ended after its host left, or after the subsystem was reset.
    /// Who is connected to it then is not any more.
    pub fn gone(&mut self, function: u8) {
        if let Some((association, _)) = self.associations.of_function(function) {
            let (_, queues) = self.associations.leave(association);
            for queue in queues {
                if let Queue::Peer(index) = queue {
                    self.forget(index);
                }
            }
        }
        self.associations.release(function);
        self.has_room = true;
    }

    fn find(&self, command: CommandId) -> Option<(usize, u16)> {
        let peer = self.associations.peer(command.function, command.queue)?;
        let place = self.peers[peer].as_ref()?.connection.commands.find(command.cid)?;
        Some((peer, place))
    }

    /// The peer has, or may have, something to send.
    pub(super) fn list(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].as_mut()
            && !peer.listed
        {
            peer.listed = true;
            self.unsent.push(index);
        }
    }

    pub(super) fn respond(&mut self, index: usize, place: u16, response: Response) -> Option<Slot> {
        let peer = self.peers[index].as_mut()?;
        // A completion that comes twice may meet a new command of its identifier.
        peer.held.retain(|&held| held != place);
        let waiting = peer.connection.respond(place, response);
        self.list(index);
        waiting
    }

    fn read(&mut self, index: usize, border: &mut dyn Border) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let read = self.peers[index].as_mut().map(|peer| peer.stream.read(&mut scratch));
        match read {
            // It went before its event was looked at.
            None => {}
            Some(Ok(0)) => self.close(index, border),
            Some(Ok(len)) => self.receive(index, &scratch[..len], border),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Some(Err(_)) => self.close(index, border),
        }
        self.scratch = scratch;
    }

    fn receive(&mut self, index: usize, mut input: &[u8], border: &mut dyn Border) {
        if let Some(peer) = self.peers[index].as_mut() {
            peer.connection.now = self.now;
            if peer.connection.is_untouched() && input.starts_with(&TLS_HANDSHAKE) {
                let address = peer.address;
                self.note(|| {
                    format!(
                        "{address} started a TLS handshake on the NVMe/TCP port: TLS is not supported; connect without \
                         it (nvme connect without --tls)"
                    )
                });
            }
        }
        while let Some(peer) = self.peers[index].as_mut() {
            let Some(event) = peer.connection.next(&mut input) else { break };
            match event {
                Event::Command(place) => {
                    self.statistics.commands += 1;
                    self.on_command(index, place, border);
                }
                Event::Stage { slot, at, bytes } => border.stage(slot, at, bytes),
                Event::Moved { slot, result } => border.input(Input::Moved { slot, result }),
                Event::Ended(ending) => {
                    if matches!(ending, super::Ending::Fatal(_)) {
                        self.statistics.fatal += 1;
                    }
                    self.end(index, border);
                }
            }
        }
        // Responses of the transport itself, and the answer to ICReq.
        self.list(index);
        let now = self.now;
        let Some(peer) = self.peers[index].as_mut() else { return };
        let (pdus, is_in_one) = peer.connection.pdus();
        if !is_in_one {
            peer.pdu_since = None;
        } else if peer.pdu_since.is_none() || pdus != peer.pdus {
            peer.pdu_since = Some(now);
        }
        peer.pdus = pdus;
        if peer.connection.waiting() > BACKLOG_LOOKED_AT {
            self.bound_backlog();
        }
    }

    /// Something that the user should know. Hosts can't fill a log with it.
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.now >= self.note_after && self.notes.len() < NOTES_MAX {
            self.note_after = after(self.now, NOTE_PAUSE);
            self.notes.push_back(text());
        }
    }

    /// Connect commands that wait for a queue, or for a controller, have their turn again.
    fn resume_connects(&mut self, border: &mut dyn Border) {
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else { continue };
            if let Some(place) = peer.connecting.take() {
                let sqe = peer.connection.commands.at(place).sqe;
                self.before_connect(index, place, &sqe, border);
            }
        }
    }

    /// The connection is no queue any more. It is closed once its last bytes are read, or soon.
    pub(super) fn end(&mut self, index: usize, border: &mut dyn Border) {
        self.detach(index, border);
        let close_at = after(self.now, LINGER);
        if let Some(peer) = self.peers[index].as_mut() {
            peer.connection.finish();
            peer.close_at = Some(close_at);
            self.list(index);
        }
        self.check_at = self.check_at.min(close_at);
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, index: usize, border: &mut dyn Border) {
        self.detach(index, border);
        self.forget(index);
    }

    /// Closes a connection that leaves nothing behind.
    pub(super) fn forget(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].take() {
            // Closing would take it out of the set as well, unless another process holds the socket.
            let _ = self.epoll.delete(&peer.stream);
        }
    }

    /// What a connection leaves behind: slots that wait for data; and of an admin queue, the whole controller.
    fn detach(&mut self, index: usize, border: &mut dyn Border) {
        let Some(peer) = self.peers[index].as_mut() else { return };
        let slots = peer.connection.commands.clear(None);
        peer.connecting = None;
        peer.held.clear();
        let queue = peer.queue.take();
        for slot in slots {
            border.input(Input::Moved { slot, result: Err(MoveError::Host) });
        }
        match queue {
            None => {}
            Some((association, 0)) => self.end_association(association, Some(index), border),
            Some((association, queue)) => {
                if let Some(function) = self.associations.lose_queue(association, queue) {
                    border.input(Input::DisconnectQueue { function, queue });
                }
            }
        }
    }

    /// Ends a controller with all its connections, but the one that its host may still hear something by.
    pub(super) fn end_association(&mut self, association: usize, except: Option<usize>, border: &mut dyn Border) {
        let (function, queues) = self.associations.leave(association);
        for queue in queues {
            if let Queue::Peer(index) = queue
                && Some(index) != except
            {
                if let Some(peer) = self.peers[index].as_mut() {
                    // The controller is being ended already.
                    peer.queue = None;
                }
                self.close(index, border);
            }
        }
        if let Some(function) = function {
            tracing::debug!(function, "the host is gone");
            border.input(Input::Disconnect { function });
        }
    }

    /// Where more waits than is kept for all, the host with most of it loses the connection with most of it.
    fn bound_backlog(&mut self) {
        let mut total: usize = self.peers.iter().flatten().map(Peer::waiting).sum();
        while total > self.options.backlog_bytes_max {
            let mut by_host = vec![0; self.associations.capacity()];
            for peer in self.peers.iter().flatten() {
                if let Some((association, _)) = peer.queue {
                    by_host[association] += peer.waiting();
                }
            }
            // A connection that is no queue is a host of its own.
            let of_host = |peer: &Peer| peer.queue.map_or(peer.waiting(), |(association, _)| by_host[association]);
            let peers = self.peers.iter_mut().flatten();
            let Some(most) = peers.max_by_key(|peer| (of_host(peer), peer.waiting())) else { return };
            total -= most.waiting();
            most.give_up();
            self.statistics.stalled += 1;
        }
    }

    fn flush_peer(&mut self, index: usize) {
        let now = self.now;
        if self.peers[index].as_ref().is_some_and(|peer| peer.connection.waiting() > BACKLOG_LOOKED_AT) {
            self.bound_backlog();
        }
        let Some(peer) = self.peers[index].as_mut() else { return };
        let mut blocked = false;
        loop {
            let ready = peer.connection.sender.ready();
            if ready.is_empty() {
                break;
            }
            match peer.stream.write(ready) {
                Ok(sent) => {
                    peer.connection.sender.advance(sent);
                    peer.pace.bytes += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    blocked = true;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    peer.give_up();
                    break;
                }
            }
        }
        if peer.connection.sender.len() > self.options.backlog_bytes_max {
            peer.give_up();
            self.statistics.stalled += 1;
            blocked = false;
        } else if peer.close_at.is_some() && peer.connection.sender.len() == 0 {
            // The host reads the end of the stream; what it still sends is read and forgotten until it closes.
            let _ = peer.stream.shutdown(Shutdown::Write);
        }
        peer.pace.wait(peer.connection.sender.len() > 0, now);
        if blocked != peer.blocked {
            peer.blocked = blocked;
            self.check_at = self.check_at.min(after(now, self.options.stall_time_max));
            let out = if blocked { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            let mut event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | out, index as u64);
            if self.epoll.modify(&peer.stream, &mut event).is_err() {
                let _ = peer.stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Time is to be looked at by then.
    pub(super) fn check_at(&mut self, at: Instant) {
        self.check_at = self.check_at.min(at);
    }

    /// Time is to be looked at no later than this.
    pub(super) fn check_by(&mut self, from_now: Duration) {
        self.check_at = self.check_at.min(after(self.now, from_now));
    }

    /// Ends what has taken too long.
    fn check(&mut self, border: &mut dyn Border) {
        self.check_at = Instant::NEVER;
        match self.paused_until {
            Some(until) if until <= self.now => {
                self.paused_until = None;
                self.listen(EpollFlags::EPOLLIN);
            }
            Some(until) => self.check_at = until,
            None => {}
        }
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else { continue };
            let late_at = peer.late_at(self.now, &self.options);
            if late_at <= self.now {
                self.statistics.stalled += u64::from(peer.close_at.is_none());
                self.close(index, border);
            } else {
                self.check_at = self.check_at.min(late_at);
            }
        }
        for association in 0..self.associations.capacity() {
            let Some(standing) = self.associations.get(association) else { continue };
            let expires = standing.expires_at(self.options.silence_max);
            if expires <= self.now {
                self.statistics.keep_alive_expired += 1;
                self.end_association(association, None, border);
            } else {
                self.check_at = self.check_at.min(expires);
            }
        }
    }
}
