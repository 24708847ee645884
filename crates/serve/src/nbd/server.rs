//! The server: its listener and connections, time, the controller, and the way between connections and the engine.

use super::connection::{Connection, PLACES};
use crate::runtime;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::namespaces::{Namespace, Namespaces};
use tidewater_core::subsystem::{Input, MoveError};
use tidewater_wire::nvme::Cqe;
use tidewater_wire::nvme::register::offset;

/// Connections at the same time, at most; a controller of fewer queues has as many as these.
const CONNECTIONS_MAX: u16 = 16;
/// Bytes that are read from a connection at once, and before it has chosen an export.
const READ_BYTES: usize = 256 << 10;
const HANDSHAKE_READ_BYTES: usize = 4 << 10;
/// Events that are taken from the system at once.
const EVENTS: usize = 32;
/// Marks the listener's events.
const LISTENER: u64 = u64::MAX;
/// Time from the connection to the choice of an export, at most.
const HANDSHAKE_TIME: Duration = Duration::from_ms(10_000);
/// Time without a byte, at most, where the client is to send or to take some.
const STALL_TIME: Duration = Duration::from_ms(30_000);
/// How long no connection is accepted after the system could not give one, or while there may soon be a place for it.
const PAUSE: Duration = Duration::from_ms(100);
/// CC of the controller: enabled, entries of 64 and 16 bytes.
const ENABLED: u64 = 0x0046_0001;
/// Notes that wait to be taken, at most.
const NOTES_MAX: usize = 16;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On a socket that only its own user, and root, open.
    Unix(PathBuf),
    /// At a loopback address.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    /// `unix:PATH`, or an IP address with a port.
    fn from_str(text: &str) -> Result<Address, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err(format!("`{text}`: the socket's path is missing")),
            Some(path) => Ok(Address::Unix(path.into())),
            None => text.parse().map(Address::Tcp).map_err(|_| {
                format!("`{text}` is neither unix:PATH nor an IP address with a port, such as 127.0.0.1:10809")
            }),
        }
    }
}

impl fmt::Display for Address {
    /// As an NBD URI.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Address::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

/// A server could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// An address other than loopback.
    #[error(
        "{0} is not a loopback address, and NBD is neither encrypted nor authenticated here; listen on loopback or \
         unix:PATH, and let clients of other machines come by SSH"
    )]
    NotLoopback(SocketAddr),
    /// The address can't be had.
    #[error("cannot listen on {0}: {1}; choose another address")]
    Listen(SocketAddr, io::Error),
    /// The socket can't be had.
    #[error("{0}")]
    Socket(#[from] runtime::Refused),
    /// The system refuses what a server needs.
    #[error("cannot wait for connections: {0}")]
    System(io::Error),
}

/// The engine, as a server sees it.
pub trait Border {
    /// Something has happened: [`Input::Connect`], [`Input::Register`] (CC), [`Input::ConnectQueue`],
    /// [`Input::Capsule`], [`Input::DisconnectQueue`] or [`Input::Disconnect`].
    ///
    /// The subsystem's outputs for it are carried out later, not from within this call.
    fn input(&mut self, input: Input<'static>);

    /// Whether a controller is enabled and has not failed.
    fn is_ready(&self, function: u8) -> bool;

    /// The namespaces.
    fn namespaces(&self) -> &Namespaces;
}

/// A connected socket.
trait Stream: Read + Write + AsFd + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// The next connection; `None`: one that is not admitted.
    fn accept(&self) -> io::Result<Option<Box<dyn Stream>>> {
        Ok(match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let admitted = runtime::is_allowed(&stream) && stream.set_nonblocking(true).is_ok();
                admitted.then(|| Box::new(stream) as Box<dyn Stream>)
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                let admitted = stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok();
                admitted.then(|| Box::new(stream) as Box<dyn Stream>)
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

struct Peer {
    stream: Box<dyn Stream>,
    connection: Connection,
    /// It is a queue of the controller.
    is_queue: bool,
    opened: Instant,
    /// When the last byte went or came.
    active_at: Instant,
    /// The events that the system reports; `None`: the client has gone, which would be reported all the time, and what
    /// it sent before is read later.
    interest: Option<EpollFlags>,
}

impl Peer {
    /// By when its client has to have done something.
    fn late_at(&self) -> Instant {
        let handshake = if self.connection.export().is_none() { self.opened + HANDSHAKE_TIME } else { Instant::NEVER };
        let stall = if self.connection.is_owed() { self.active_at + STALL_TIME } else { Instant::NEVER };
        handshake.min(stall)
    }
}

/// A connection's place: its number makes that of its queue.
enum Place {
    Free,
    Peer(Box<Peer>),
    /// The connection has gone, and the controller still has commands of its queue.
    Leaving,
}

/// The controller that all connections share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    Absent,
    Enabling,
    Ready,
    Leaving,
}

/// A server. It has no thread and never blocks: its owner calls [`Server::poll`] when [`Server::as_fd`] is readable or
/// [`Server::deadline`] has come, carries out what the subsystem says, and then calls [`Server::flush`].
pub struct Server {
    function: u8,
    transfer_max: u32,
    epoll: Epoll,
    listener: Listener,
    address: Address,
    controller: Controller,
    places: Vec<Place>,
    scratch: Vec<u8>,
    now: Instant,
    check_at: Instant,
    /// No connection is accepted until then.
    paused_until: Option<Instant>,
    /// A connection without a place, and until when it waits for one.
    waiting: Option<(Box<dyn Stream>, Instant)>,
    notes: VecDeque<String>,
}

impl Server {
    /// A server that listens. `function`: its controller; `queues`: I/O queues of it; `transfer_max`: bytes that a
    /// command may move.
    ///
    /// # Errors
    /// An address that is not loopback or that can't be had; a socket of another process, a path that is something
    /// else.
    pub fn bind(address: &Address, function: u8, queues: u16, transfer_max: u32) -> Result<Server, BindError> {
        let system = |error: nix::errno::Errno| BindError::System(error.into());
        let (listener, address) = match address {
            Address::Unix(path) => {
                let listener = runtime::listen(path)?;
                listener.set_nonblocking(true).map_err(BindError::System)?;
                (Listener::Unix(listener), address.clone())
            }
            Address::Tcp(at) if !at.ip().is_loopback() => return Err(BindError::NotLoopback(*at)),
            Address::Tcp(at) => {
                let listen = |error| BindError::Listen(*at, error);
                let listener = TcpListener::bind(at).map_err(listen)?;
                listener.set_nonblocking(true).map_err(listen)?;
                let bound = listener.local_addr().map_err(listen)?;
                (Listener::Tcp(listener), Address::Tcp(bound))
            }
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).map_err(system)?;
        Ok(Server {
            function,
            transfer_max,
            epoll,
            listener,
            address,
            controller: Controller::Absent,
            places: (0..queues.min(CONNECTIONS_MAX)).map(|_| Place::Free).collect(),
            scratch: vec![0; READ_BYTES],
            now: Instant::ZERO,
            check_at: Instant::NEVER,
            paused_until: None,
            waiting: None,
            notes: VecDeque::new(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its controller.
    pub fn function(&self) -> u8 {
        self.function
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.peers().count()
    }

    /// Readable when [`Server::poll`] has something to do.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// When [`Server::poll`] is to be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        (self.check_at != Instant::NEVER).then_some(self.check_at)
    }

    /// Takes what the user should know of clients, in words.
    pub fn take_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().filter_map(|place| if let Place::Peer(peer) = place { Some(&**peer) } else { None })
    }

    fn peer(&mut self, queue: u16) -> Option<&mut Peer> {
        match self.places.get_mut(usize::from(queue).checked_sub(1)?) {
            Some(Place::Peer(peer)) => Some(peer),
            _ => None,
        }
    }

    /// Takes what has come, and makes commands of it; looks at the controller and at the time. Does not wait. Says
    /// whether anything came.
    pub fn poll(&mut self, now: Instant, border: &mut dyn Border) -> bool {
        self.now = self.now.max(now);
        self.look_at_controller(border);
        let mut events = [EpollEvent::empty(); EVENTS];
        // An interrupted call has no events; the next one has them.
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in events[..count].iter().filter(|event| event.data() != LISTENER) {
            self.on_event(event.data() as usize, event.events(), border);
        }
        // Last, so that a client which has gone leaves its place to one that comes.
        if events[..count].iter().any(|event| event.data() == LISTENER) {
            self.accept();
        }
        let mut any = count > 0;
        for index in 0..self.places.len() {
            any |= self.begin(index, border);
        }
        if self.waiting.is_some() {
            self.seat();
            if self.waiting.is_none() {
                self.resume();
            }
        }
        if self.check_at <= self.now {
            self.check(border);
        }
        any
    }

    /// Sends what waits, as far as clients take it.
    pub fn flush(&mut self) {
        for index in 0..self.places.len() {
            self.flush_peer(index);
        }
    }

    // --- the controller ---

    /// The controller is connected and enabled as long as it lives; if it fails, its connections end, and it is begun
    /// anew.
    fn look_at_controller(&mut self, border: &mut dyn Border) {
        let function = self.function;
        self.controller = match self.controller {
            Controller::Absent => {
                let (entries, keep_alive_ms) = (PLACES, 0);
                border.input(Input::Connect { function, entries, privileged: false, keep_alive_ms });
                border.input(Input::Register { function, offset: offset::CC, len: 4, value: ENABLED });
                Controller::Enabling
            }
            Controller::Enabling if border.is_ready(function) => Controller::Ready,
            Controller::Ready if !border.is_ready(function) => {
                self.note(|| "the controller of NBD has failed or was reset: its clients are disconnected".into());
                for place in &mut self.places {
                    if matches!(place, Place::Peer(peer) if peer.is_queue) {
                        *place = Place::Leaving;
                    }
                }
                border.input(Input::Disconnect { function });
                Controller::Leaving
            }
            same => same,
        };
    }

    /// Nothing of the controller is left in the subsystem.
    pub fn gone(&mut self) {
        self.controller = Controller::Absent;
        for place in &mut self.places {
            // One that has come since is no queue yet, and becomes one of the next controller.
            if !matches!(place, Place::Peer(peer) if !peer.is_queue) {
                *place = Place::Free;
            }
        }
    }

    /// Nothing of a queue is left in the subsystem.
    pub fn queue_gone(&mut self, queue: u16) {
        if let Some(place) = self.places.get_mut(usize::from(queue).wrapping_sub(1))
            && matches!(place, Place::Leaving)
        {
            *place = Place::Free;
        }
    }

    // --- commands ---

    /// Makes commands of what a client has asked for. True: there were some.
    fn begin(&mut self, index: usize, border: &mut dyn Border) -> bool {
        let (function, queue) = (self.function, index as u16 + 1);
        let Place::Peer(peer) = &mut self.places[index] else { return false };
        if peer.connection.is_over() {
            self.close(index, border);
            return true;
        }
        let Some(export) = peer.connection.export().filter(|_| self.controller == Controller::Ready) else {
            return false;
        };
        if !peer.is_queue {
            peer.is_queue = true;
            border.input(Input::ConnectQueue { function, queue, entries: PLACES });
        }
        if !peer.connection.is_waiting() {
            return false;
        }
        let now = border.namespaces().find(export.nsid, function);
        if !now.is_ok_and(|now| is_same(now, export)) {
            let nsid = export.nsid;
            self.note(|| format!("namespace {nsid} is not what it was: its NBD client is disconnected"));
            self.close(index, border);
            return true;
        }
        let mut any = false;
        while let Some(sqe) = peer.connection.begin() {
            border.input(Input::Capsule { function, queue, sqe });
            any = true;
        }
        any
    }

    /// Data of a command of a queue, which its client has sent.
    ///
    /// # Errors
    /// The connection has gone, or the command has no data of this length.
    pub fn fetch(&mut self, queue: u16, cid: u16, len: usize) -> Result<&[u8], MoveError> {
        self.peer(queue).ok_or(MoveError::Host)?.connection.fetch(cid, len)
    }

    /// Data for the client of a command, `at` bytes behind the start of the command's data, which `fill` writes.
    ///
    /// # Errors
    /// The connection has gone, or the command has not so much data; or as `fill` says.
    pub fn data(
        &mut self,
        (queue, cid): (u16, u16),
        span: (usize, usize),
        fill: impl FnOnce(&mut [u8]) -> Result<(), MoveError>,
    ) -> Result<(), MoveError> {
        self.peer(queue).ok_or(MoveError::Host)?.connection.data(cid, span, fill)
    }

    /// A command of a queue has ended.
    pub fn complete(&mut self, queue: u16, cqe: &Cqe) {
        if let Some(peer) = self.peer(queue) {
            peer.connection.complete(cqe.cid, cqe.status);
        }
    }

    // --- connections ---

    fn accept(&mut self) {
        while self.waiting.is_none() {
            match self.listener.accept() {
                Ok(Some(stream)) => {
                    self.waiting = Some((stream, self.now + PAUSE));
                    self.seat();
                }
                Ok(None) => {}
                // Whatever else is wrong with one connection is not wrong with the next.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A connection that waits is reported for as long as it does.
                Err(_) => return self.pause(),
            }
        }
        self.pause();
    }

    /// Gives the connection that waits a place. One that has just gone is noticed in time to be the next one's.
    fn seat(&mut self) {
        let Some((stream, until)) = self.waiting.take() else { return };
        let is_leaving = self.places.iter().any(|place| matches!(place, Place::Leaving));
        match self.places.iter().position(|place| matches!(place, Place::Free)) {
            Some(index) => self.admit(stream, index),
            None if is_leaving || self.now < until => self.waiting = Some((stream, until)),
            None => {
                let count = self.places.len();
                self.note(|| format!("an NBD client was turned away: {count} connections are open"));
            }
        }
    }

    fn pause(&mut self) {
        self.paused_until = Some(self.now + PAUSE);
        self.check_at = self.check_at.min(self.now + PAUSE);
        self.listen(EpollFlags::empty());
    }

    fn resume(&mut self) {
        self.paused_until = None;
        self.listen(EpollFlags::EPOLLIN);
    }

    fn listen(&self, interest: EpollFlags) {
        // Without it, no connection would be accepted any more: that of the listener is changed in no other place.
        let _ = self.epoll.modify(&self.listener, &mut EpollEvent::new(interest, LISTENER));
    }

    fn admit(&mut self, stream: Box<dyn Stream>, index: usize) {
        if self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64)).is_err() {
            return;
        }
        let interest = Some(EpollFlags::EPOLLIN);
        let connection = Connection::new(self.transfer_max);
        let (opened, active_at) = (self.now, self.now);
        self.places[index] =
            Place::Peer(Box::new(Peer { stream, connection, is_queue: false, opened, active_at, interest }));
        self.check_at = self.check_at.min(self.now + HANDSHAKE_TIME);
    }

    fn on_event(&mut self, index: usize, events: EpollFlags, border: &mut dyn Border) {
        if events.contains(EpollFlags::EPOLLOUT) {
            self.flush_peer(index);
        }
        let Place::Peer(peer) = &mut self.places[index] else { return };
        if peer.connection.is_paused() {
            // Both directions have ended, or the connection is broken.
            if events.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) && peer.interest.take().is_some() {
                let _ = self.epoll.delete(&peer.stream);
            }
            return;
        }
        let is_choosing = peer.connection.export().is_none();
        let room = if is_choosing { HANDSHAKE_READ_BYTES } else { READ_BYTES };
        match peer.stream.read(&mut self.scratch[..room]) {
            Ok(0) => self.close(index, border),
            Ok(len) => {
                peer.active_at = self.now;
                let all = border.namespaces();
                let of = |nsid| all.find(nsid, self.function).ok().copied();
                let exports: Vec<Namespace> =
                    if is_choosing { all.active(self.function).filter_map(of).collect() } else { Vec::new() };
                peer.connection.receive(&self.scratch[..len], &exports);
                self.check_at = self.check_at.min(self.now + STALL_TIME);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.close(index, border),
        }
    }

    fn flush_peer(&mut self, index: usize) {
        let Place::Peer(peer) = &mut self.places[index] else { return };
        let mut blocked = false;
        while peer.connection.unsent() > 0 && !blocked {
            match peer.stream.write_vectored(&peer.connection.pieces()) {
                Ok(sent) => {
                    peer.connection.advance(sent);
                    peer.active_at = self.now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    peer.connection.mute();
                    break;
                }
            }
        }
        if blocked {
            self.check_at = self.check_at.min(self.now + STALL_TIME);
        }
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, !peer.connection.is_paused());
        interest.set(EpollFlags::EPOLLOUT, blocked);
        let mut event = EpollEvent::new(interest, index as u64);
        let changed = match peer.interest {
            Some(before) if before == interest => return,
            Some(_) => self.epoll.modify(&peer.stream, &mut event),
            None if interest.is_empty() => return,
            None => self.epoll.add(&peer.stream, event),
        };
        peer.interest = changed.is_ok().then_some(interest);
    }

    /// Closes a connection. Commands of its queue end without a receiver.
    fn close(&mut self, index: usize, border: &mut dyn Border) {
        let place = &mut self.places[index];
        let Place::Peer(peer) = std::mem::replace(place, Place::Free) else { return };
        // Closing takes it out of the set as well, unless another process holds the socket. It may be out already.
        let _ = self.epoll.delete(&peer.stream);
        if peer.is_queue {
            *place = Place::Leaving;
            border.input(Input::DisconnectQueue { function: self.function, queue: index as u16 + 1 });
        }
    }

    /// Ends what has taken too long.
    fn check(&mut self, border: &mut dyn Border) {
        self.check_at = Instant::NEVER;
        match self.paused_until {
            Some(until) if until <= self.now && self.waiting.is_none() => self.resume(),
            Some(until) if until <= self.now => self.pause(),
            Some(until) => self.check_at = until,
            None => {}
        }
        for index in 0..self.places.len() {
            let Place::Peer(peer) = &self.places[index] else { continue };
            let late_at = peer.late_at();
            if late_at <= self.now {
                self.note(|| "an NBD client was disconnected: it sent or took nothing for too long".into());
                self.close(index, border);
            } else {
                self.check_at = self.check_at.min(late_at);
            }
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push_back(text());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // One that stays is replaced by the next that listens there.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a namespace is still as it was when its client chose it.
fn is_same(now: &Namespace, chosen: &Namespace) -> bool {
    (now.generation, now.blocks, now.block_shift) == (chosen.generation, chosen.blocks, chosen.block_shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_loopback() {
        let unix = "unix:a/b.sock".parse::<Address>().unwrap();
        assert_eq!(
            (&unix, unix.to_string().as_str()),
            (&Address::Unix("a/b.sock".into()), "nbd+unix:///?socket=a/b.sock")
        );
        let tcp = "127.0.0.1:10809".parse::<Address>().unwrap();
        assert_eq!(tcp.to_string(), "nbd://127.0.0.1:10809");
        for wrong in ["", "unix:", "127.0.0.1", "localhost:1", "/a/b.sock", "nbd://127.0.0.1:1"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
        for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
            let refused = Server::bind(&open.parse().unwrap(), 1, 4, 4_096);
            assert!(matches!(refused, Err(BindError::NotLoopback(_))), "{open}");
        }
    }

    #[test]
    fn a_socket_is_its_owners_and_goes_with_the_server() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let server = Server::bind(&Address::Unix(path.clone()), 1, 4, 4_096).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Server::bind(&Address::Unix(path.clone()), 1, 4, 4_096), Err(BindError::Socket(_))));
        drop(server);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Server::bind(&Address::Unix(path.clone()), 1, 4, 4_096).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }
}
