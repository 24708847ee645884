//! A connection to a peer as bytes that come and bytes that go. It does no I/O.

use crate::image::Disk;
use tidewater_wire::replication::{Frame, Hello, Piece, PieceError, Ping, Refusal};

/// Bytes that wait beyond which no more log bytes are added: the transport sends them again.
pub(super) const DATA_WAITING_MAX: usize = 8 << 20;
/// Bytes that wait beyond which the peer is given up: it takes nothing.
const WAITING_MAX: usize = 16 << 20;
/// Buffers beyond this are given back once they are empty.
const BUFFER_KEPT: usize = 1 << 20;

/// How a TLS handshake begins: a record of this type and major version (RFC 8446, section 5.1).
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// What came.
#[derive(Debug, PartialEq)]
pub(super) enum Heard<'a> {
    /// The peer has said who it is.
    Hello(Hello),
    /// A frame with its log bytes.
    Frame(Box<Frame>, &'a [u8]),
    /// A ping came back, which was sent at this time.
    Pong(u64),
}

/// Why a connection ends, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The peer refuses this device, for this reason.
    Refused(String),
    /// It begins with TLS, which this device does not speak here.
    Encrypted,
    /// It sends something that is not of this protocol.
    Foreign(String),
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    theirs: Option<Hello>,
    input: Vec<u8>,
    /// Bytes of `input` that were handled.
    used: usize,
    output: Vec<u8>,
    gone: usize,
    /// Data frames that were left out.
    pub(super) dropped: u64,
    /// What is said of this device's disk.
    pub(super) disk: Disk,
    /// What the peer said last of its own.
    pub(super) their_disk: Disk,
}

impl Connection {
    /// A connection on which this device has yet to say who it is.
    pub(super) fn new() -> Connection {
        Connection::default()
    }

    /// Says who this device is.
    pub(super) fn greet(&mut self, ours: &Hello) {
        self.output.extend_from_slice(&ours.to_bytes());
    }

    /// Says why this device does not talk to the peer.
    pub(super) fn refuse(&mut self, why: &str) {
        self.output.extend_from_slice(&Refusal::new(why).to_bytes());
    }

    /// Bytes have come.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.input.drain(..self.used);
            self.used = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// The next piece of what has come.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn next(&mut self) -> Result<Option<Heard<'_>>, Ended> {
        loop {
            let rest = &self.input[self.used..];
            // A refusal may come instead of a hello and behind it.
            if rest.starts_with(b"TIDEDENY") {
                let Some(bytes) = rest.first_chunk::<{ Refusal::SIZE }>() else { return Ok(None) };
                let why = Refusal::parse(bytes).map_or_else(|| "for a damaged reason".to_owned(), |it| it.why());
                return Err(Ended::Refused(why));
            }
            if self.theirs.is_none() {
                if rest.starts_with(&TLS_HANDSHAKE) {
                    return Err(Ended::Encrypted);
                }
                let Some(bytes) = rest.get(..Hello::SIZE) else { return Ok(None) };
                let hello = Hello::parse(bytes).map_err(|error| Ended::Foreign(error.to_string()))?;
                self.used += Hello::SIZE;
                self.theirs = Some(hello);
                return Ok(Some(Heard::Hello(hello)));
            }
            let wrong = |error: PieceError| Ended::Foreign(error.to_string());
            let Some((piece, used)) = Piece::parse(rest).map_err(wrong)? else { return Ok(None) };
            let end = self.used + used;
            self.used = end;
            match piece {
                // The bytes are named anew: what was parsed borrows all of the buffer.
                Piece::Frame(frame, log) => {
                    let first = end - log.len();
                    return Ok(Some(Heard::Frame(frame, &self.input[first..end])));
                }
                Piece::Ping(ping) => {
                    self.their_disk = Disk::from_code(ping.disk);
                    if ping.back {
                        return Ok(Some(Heard::Pong(ping.sent_ns)));
                    }
                    // One that waits behind so much measures nothing, and a peer that reads none could ask for ever.
                    if self.waiting() <= DATA_WAITING_MAX {
                        Piece::append_ping(&Ping { back: true, disk: self.disk.code(), ..ping }, &mut self.output);
                    }
                }
            }
        }
    }

    /// Adds a frame with its log bytes to what is to be sent. A data frame is left out when too much waits. False: the
    /// peer takes nothing.
    pub(super) fn frame(&mut self, frame: &Frame, log: &[u8]) -> bool {
        if !log.is_empty() && self.waiting() > DATA_WAITING_MAX {
            self.dropped += 1;
        } else {
            Piece::append_frame(frame, log, &mut self.output);
        }
        self.waiting() <= WAITING_MAX
    }

    /// Adds a ping that was sent at this time.
    pub(super) fn ping(&mut self, sent_ns: u64) {
        Piece::append_ping(&Ping { sent_ns, back: false, disk: self.disk.code() }, &mut self.output);
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.output.len() - self.gone
    }

    /// What is to be sent.
    pub(super) fn ready(&self) -> &[u8] {
        &self.output[self.gone..]
    }

    /// So many bytes of it were sent.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.gone == self.output.len() {
            self.output.clear();
            self.gone = 0;
            self.output.shrink_to(BUFFER_KEPT);
        } else if self.gone > BUFFER_KEPT {
            self.output.drain(..self.gone);
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_whose_answers_are_not_read_take_a_bounded_memory() {
        let mut connection = Connection::new();
        connection.take(&Hello { version: 1, version_min: 1, cluster: [b'c'; 32], ..Hello::default() }.to_bytes());
        assert!(matches!(connection.next(), Ok(Some(Heard::Hello(_)))));
        let mut pings = Vec::new();
        for sent_ns in 0..10_000 {
            Piece::append_ping(&Ping { sent_ns, back: false, disk: 0 }, &mut pings);
        }
        for _ in 0..100 {
            connection.take(&pings);
            assert_eq!(connection.next(), Ok(None));
            assert!(connection.waiting() <= DATA_WAITING_MAX + pings.len(), "{} bytes wait", connection.waiting());
        }
        assert!(connection.output.capacity() + connection.input.capacity() <= 4 * DATA_WAITING_MAX);
        connection.advance(connection.waiting());
        connection.take(&pings[..pings.len() / 10_000]);
        assert_eq!(connection.next(), Ok(None));
        assert_eq!(connection.waiting(), pings.len() / 10_000, "they are answered again");
    }
}
