//! A queue over a socket.

use super::session::{Refused, Session, Transfer};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tidewater_wire::fabrics::{CONTROLLER_ANY, Connect, ConnectData, Fabrics, Nqn};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::IcReq;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Who connects, and how.
#[derive(Clone, Debug)]
pub struct Host {
    /// The host's name.
    pub name: Nqn,
    /// The host's identifier.
    pub id: [u8; 16],
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Alignment of data that comes (HPDA): (n + 1) double words; 0 to 31.
    pub alignment: u8,
    /// Leave the count of entries to the controller, which then answers each command with a response.
    pub flow_control: bool,
    /// Keep Alive Timeout, milliseconds; 0 is none.
    pub keep_alive_ms: u32,
    /// How long to wait for a connection, or for any byte of it.
    pub time_out: Duration,
}

impl Host {
    /// A host without digests, flow control and keep alive, that waits for 30 seconds.
    pub fn new(name: Nqn, id: [u8; 16]) -> Host {
        Host {
            name,
            id,
            header_digest: false,
            data_digest: false,
            alignment: 0,
            flow_control: false,
            keep_alive_ms: 0,
            time_out: Duration::from_secs(30),
        }
    }
}

/// Failure of a connection, or of a command that it depends on.
#[derive(Debug)]
pub enum Error {
    /// The socket: it cannot be connected, was closed, or nothing came in time.
    Io(io::Error),
    /// One side broke the transport's rules, or the controller ended the connection.
    Refused(Refused),
    /// A command failed. Of Connect, the value tells the wrong parameter.
    Status(Status, u64),
    /// A command of a set-up sequence brought something that makes no sense.
    Unexpected(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::Refused(Refused::Fatal(fatal)) => write!(f, "transport protocol error of the controller: {fatal}"),
            Error::Refused(Refused::Controller(term)) => write!(
                f,
                "the controller ended the connection: fatal error status {:02X}h, information {:X}h",
                term.status, term.information
            ),
            Error::Status(status, value) => write!(
                f,
                "{} (type {}, code {:02X}h), {value:X}h",
                tidewater_wire::fabrics::status::name(*status).unwrap_or("a status without name"),
                status.sct(),
                status.sc()
            ),
            Error::Unexpected(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its identifier, as [`Queue::submit`] returned it.
    pub cid: u16,
    /// Double words 0 and 1 of the entry.
    pub value: u64,
    /// Its status; Transient Transport Error too if data came with a wrong digest.
    pub status: Status,
    /// Data for the host.
    pub data: Vec<u8>,
}

impl Completion {
    /// The completion, if it is a success.
    ///
    /// # Errors
    /// Its status.
    pub fn good(self) -> Result<Completion, Error> {
        if self.status.is_success() { Ok(self) } else { Err(Error::Status(self.status, self.value)) }
    }
}

/// A queue of a controller.
pub struct Queue {
    stream: TcpStream,
    session: Session,
    scratch: Vec<u8>,
}

impl Queue {
    /// Connects an admin queue (`queue` 0, `controller` [`CONTROLLER_ANY`]), or an I/O queue of a controller. Tells the
    /// controller's identifier too. `entries`: 2 to 32,768.
    ///
    /// # Errors
    /// The connection, or Connect, failed.
    pub fn connect(
        address: SocketAddr,
        host: &Host,
        subsystem: &Nqn,
        controller: u16,
        queue: u16,
        entries: u16,
        capsule_data_max: u32,
    ) -> Result<(Queue, u16), Error> {
        let stream = TcpStream::connect_timeout(&address, host.time_out)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(host.time_out))?;
        stream.set_write_timeout(Some(host.time_out))?;
        let asked = IcReq {
            alignment: host.alignment,
            header_digest: host.header_digest,
            data_digest: host.data_digest,
            r2t_max_zero_based: 0,
        };
        // A ring of N entries holds N - 1 commands.
        let session = Session::new(asked, entries - 1, capsule_data_max);
        let mut queue_ = Queue { stream, session, scratch: vec![0; READ_BYTES] };
        queue_.flush()?;
        while !queue_.session.is_initialized() {
            queue_.receive()?;
        }
        let connect = Connect {
            queue,
            entries_zero_based: entries - 1,
            no_flow_control: !host.flow_control,
            deletes_queues: false,
            keep_alive_ms: if queue == 0 { host.keep_alive_ms } else { 0 },
        };
        let data =
            ConnectData { host_id: host.id, controller, subsystem: subsystem.clone(), host: Some(host.name.clone()) };
        debug_assert_eq!(queue == 0, controller == CONTROLLER_ANY);
        let sqe = Fabrics::Connect(connect).emit(0);
        let answer = queue_.call(sqe, Transfer::Out(data.to_bytes().to_vec()))?.good()?;
        Ok((queue_, answer.value as u16))
    }

    /// Header and data digests, as agreed.
    pub fn digests(&self) -> (bool, bool) {
        self.session.digests()
    }

    /// Commands that are under way.
    pub fn outstanding(&self) -> usize {
        self.session.outstanding()
    }

    /// Takes a command, which [`Queue::flush`] sends. Identifier and data pointer are set here. Tells the identifier;
    /// `None`: the queue is full.
    pub fn submit(&mut self, sqe: Sqe, transfer: Transfer) -> Option<u16> {
        self.session.submit(sqe, transfer)
    }

    /// Sends what was submitted.
    ///
    /// # Errors
    /// The socket.
    pub fn flush(&mut self) -> Result<(), Error> {
        let out = self.session.output();
        if !out.is_empty() {
            self.stream.write_all(out)?;
            out.clear();
        }
        Ok(())
    }

    /// The next completion; waits for it.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn wait(&mut self) -> Result<Completion, Error> {
        loop {
            if let Some(completion) = self.session.completion() {
                return Ok(completion);
            }
            self.flush()?;
            self.receive()?;
        }
    }

    /// A completion that has already come.
    pub fn ready(&mut self) -> Option<Completion> {
        self.session.completion()
    }

    /// Gives the buffer of a completion back, for the next commands.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.session.recycle(buffer);
    }

    /// One command, and its completion. Asserts that no other is under way.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn call(&mut self, sqe: Sqe, transfer: Transfer) -> Result<Completion, Error> {
        assert_eq!(self.outstanding(), 0, "one command at a time");
        self.submit(sqe, transfer).expect("the queue is empty");
        self.wait()
    }

    fn receive(&mut self) -> Result<(), Error> {
        let len = match self.stream.read(&mut self.scratch) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match self.session.receive(&self.scratch[..len]) {
            Ok(()) => {
                // R2Ts are answered at once.
                self.flush()
            }
            Err(refused) => {
                // The reason goes to the controller as far as it is still there.
                let _ = self.flush();
                Err(Error::Refused(refused))
            }
        }
    }
}
