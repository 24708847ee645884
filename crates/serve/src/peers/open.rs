//! An open connection: its socket, TLS where the device has an identity, and the pieces on it.

use super::connection::Connection;
use super::identity::{failure, name_in};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::io::{self, BufRead as _, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

/// Bytes that are encrypted before the system has taken them, at most.
const ENCRYPTED_MAX: usize = 256 << 10;
/// The first byte of what a device without an identity sends: of a hello and of a refusal.
const PLAIN: u8 = b'T';

/// TLS on a connection.
struct Tls {
    session: rustls::Connection,
    /// The first byte has come, and is not that of a device without an identity.
    begun: bool,
}

/// An open connection.
pub(super) struct Open {
    pub(super) stream: TcpStream,
    pub(super) connection: Connection,
    tls: Option<Box<Tls>>,
    /// The system takes no more for now.
    pub(super) blocked: bool,
    /// It is asked to say when it takes more. Without something to send, it would say so in every turn.
    asked: bool,
}

/// What reading has come to.
pub(super) enum Came {
    /// Nothing yet.
    Nothing,
    /// Bytes.
    Bytes,
    /// The peer has closed it.
    End,
}

/// Why a connection has failed.
pub(super) enum Failed {
    /// The system says so.
    System(io::Error),
    /// TLS says so.
    Tls(rustls::Error),
}

impl Failed {
    /// In words about the peer.
    pub(super) fn words(&self) -> String {
        match self {
            Failed::System(error) => format!("the connection failed: {error}"),
            Failed::Tls(error) => failure(error).unwrap_or_else(|| format!("TLS failed: {error}")),
        }
    }
}

impl Open {
    pub(super) fn new(stream: TcpStream, session: Option<rustls::Connection>) -> Open {
        let tls = session.map(|mut session| {
            session.set_buffer_limit(Some(ENCRYPTED_MAX));
            Box::new(Tls { session, begun: false })
        });
        Open { stream, connection: Connection::new(), tls, blocked: false, asked: false }
    }

    /// Whether what travels is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The name in the certificate that the peer has proven to have.
    pub(super) fn name(&self) -> Option<String> {
        let session = &self.tls.as_ref()?.session;
        name_in(session.peer_certificates()?.first()?).filter(|_| !session.is_handshaking())
    }

    /// The certificate that the peer has shown.
    #[cfg(test)]
    pub(super) fn certificate(&self) -> Option<Vec<u8>> {
        Some(self.tls.as_ref()?.session.peer_certificates()?.first()?.to_vec())
    }

    /// The node that the peer says it is before it proves it.
    pub(super) fn hinted(&self) -> Option<u8> {
        super::identity::hinted(&self.tls.as_ref()?.session)
    }

    /// Whether something can be sent.
    pub(super) fn has_output(&self) -> bool {
        self.connection.waiting() > 0 || self.tls.as_ref().is_some_and(|tls| tls.session.wants_write())
    }

    /// Reads once, at most `scratch`.
    ///
    /// # Errors
    /// The connection is of no use any more. What TLS says about it to the peer is yet to be sent.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> Result<Came, Failed> {
        let count = match self.stream.read(scratch) {
            Ok(0) => return Ok(Came::End),
            Ok(count) => count,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
                return Ok(Came::Nothing);
            }
            Err(error) => return Err(Failed::System(error)),
        };
        let bytes = &scratch[..count];
        if self.tls.as_ref().is_some_and(|tls| !tls.begun) && bytes[0] == PLAIN {
            // What this device would say behind a handshake stays with it.
            self.tls = None;
            self.connection = Connection::new();
        }
        let Some(tls) = &mut self.tls else {
            self.connection.take(bytes);
            return Ok(Came::Bytes);
        };
        tls.begun = true;
        tls.take(bytes, &mut self.connection)
    }

    /// Reads once and forgets what came: so many bytes. `None`: nothing will come any more.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> Option<usize> {
        match self.stream.read(scratch) {
            Ok(count) => Some(count).filter(|count| *count > 0),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => Some(0),
            Err(_) => None,
        }
    }

    /// Sends what waits, as far as the system takes it, and polls for writability if more is left.
    pub(super) fn push(&mut self, epoll: &Epoll, key: u64) -> io::Result<()> {
        self.blocked = self.send()?;
        if self.blocked != self.asked { self.watch(epoll, key, self.blocked) } else { Ok(()) }
    }

    /// From now on the system says under this key when something has come, and, if `room`, when it takes more.
    pub(super) fn watch(&mut self, epoll: &Epoll, key: u64, room: bool) -> io::Result<()> {
        let out = if room { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        epoll.modify(&self.stream, &mut EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | out, key))?;
        (self.blocked, self.asked) = (room, room);
        Ok(())
    }

    /// Sends what waits; true: the system takes no more.
    fn send(&mut self) -> io::Result<bool> {
        loop {
            let sent = match &mut self.tls {
                Some(tls) if tls.session.wants_write() => tls.session.write_tls(&mut self.stream),
                // Nothing is said before the peer has proven who it is.
                Some(tls) if tls.session.is_handshaking() => return Ok(false),
                _ if self.connection.waiting() == 0 => return Ok(false),
                Some(tls) => {
                    let ready = self.connection.ready();
                    let taken = tls.session.writer().write(&ready[..ready.len().min(ENCRYPTED_MAX)])?;
                    self.connection.advance(taken);
                    if taken == 0 { Err(ErrorKind::WriteZero.into()) } else { Ok(taken) }
                }
                None => {
                    let sent = self.stream.write(self.connection.ready());
                    self.connection.advance(*sent.as_ref().unwrap_or(&0));
                    sent
                }
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Tls {
    /// Decrypts bytes that have come.
    fn take(&mut self, mut bytes: &[u8], to: &mut Connection) -> Result<Came, Failed> {
        while !bytes.is_empty() {
            if self.session.read_tls(&mut bytes).map_err(Failed::System)? == 0 {
                return Ok(Came::End);
            }
            let state = self.session.process_new_packets().map_err(Failed::Tls)?;
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = self.session.reader();
            while left > 0 {
                let chunk = reader.fill_buf().map_err(Failed::System)?;
                let count = chunk.len();
                to.take(chunk);
                reader.consume(count);
                left -= count.clamp(1, left);
            }
            if state.peer_has_closed() {
                return Ok(Came::End);
            }
        }
        Ok(Came::Bytes)
    }
}
