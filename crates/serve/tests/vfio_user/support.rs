//! A function that records its calls, and a client that sends any bytes at all.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;
use tidewater_ipc::SharedMemory;
use tidewater_serve::vfio_user::{
    Connection, DOORBELL_PAGE, Device, Function, GuestMemory, Interrupts, Region, Server,
};
use tidewater_wire::vfio_user::{Area, Header, Version, command, region};

use tidewater_testkit::PATIENCE;

/// Bytes of BAR0 of the plain function.
pub const BAR0_SIZE: u64 = 0x4000;
/// Bytes of BAR2, all of them shared.
pub const BAR2_SIZE: u64 = 0x10000;
/// Bytes of the configuration space.
pub const CONFIG_SIZE: u64 = 0x1000;
/// MSI-X vectors.
pub const VECTORS: u32 = 9;

/// A function whose registers are memory.
#[derive(Debug, Default)]
pub struct Plain {
    pub bar0: Mutex<Vec<u8>>,
    pub config: Mutex<Vec<u8>>,
    pub resets: AtomicU32,
    pub disconnects: AtomicU32,
    pub connection: Mutex<Option<Arc<Connection>>>,
}

impl Plain {
    fn bytes(&self, index: u32) -> Result<&Mutex<Vec<u8>>, Errno> {
        match index {
            region::BAR0 => Ok(&self.bar0),
            region::CONFIG => Ok(&self.config),
            _ => Err(Errno::EIO),
        }
    }
}

/// The function as the server has it.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<Plain>);

impl Function for Shared {
    fn region_read(&self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
        let bytes = self.0.bytes(region)?.lock().expect("no test panics with the lock");
        to.copy_from_slice(&bytes[offset as usize..][..to.len()]);
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let mut bytes = self.0.bytes(region)?.lock().expect("no test panics with the lock");
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        self.0.resets.fetch_add(1, Ordering::SeqCst);
        self.0.bar0.lock().expect("no test panics with the lock").fill(0);
        Ok(())
    }

    fn connected(&self, connection: &Arc<Connection>) {
        *self.0.connection.lock().expect("no test panics with the lock") = Some(Arc::clone(connection));
    }

    fn disconnected(&self) {
        *self.0.connection.lock().expect("no test panics with the lock") = None;
        self.0.disconnects.fetch_add(1, Ordering::SeqCst);
    }
}

/// A served plain function: BAR0 with the doorbell page mapped, BAR2 mapped as a whole, a configuration space.
pub struct Bench {
    pub server: Option<Server>,
    pub path: PathBuf,
    pub plain: Arc<Plain>,
    pub memory: Arc<GuestMemory>,
    pub interrupts: Arc<Interrupts>,
    pub doorbells: Arc<SharedMemory>,
    pub bar2: Arc<SharedMemory>,
    pub folder: TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with_memory(GuestMemory::default())
    }

    pub fn with_memory(memory: GuestMemory) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cntrl");
        let plain = Arc::new(Plain::default());
        *plain.bar0.lock().expect("fresh") = vec![0; BAR0_SIZE as usize];
        *plain.config.lock().expect("fresh") = (0..CONFIG_SIZE).map(|at| at as u8).collect();
        let memory = Arc::new(memory);
        let interrupts = Arc::new(Interrupts::new(1, VECTORS));
        let doorbells = Arc::new(SharedMemory::new("bar0", BAR0_SIZE).expect("a memfd"));
        let bar2 = Arc::new(SharedMemory::new("bar2", BAR2_SIZE).expect("a memfd"));
        let mut bench = Bench { server: None, path, plain, memory, interrupts, doorbells, bar2, folder };
        bench.start();
        bench
    }

    pub fn device(&self) -> Device {
        let mut regions = [Region::NONE; region::COUNT as usize];
        regions[region::BAR0 as usize] = Region::mapped(BAR0_SIZE, Arc::clone(&self.doorbells), vec![DOORBELL_PAGE]);
        let whole = Area { offset: 0, size: BAR2_SIZE };
        regions[region::BAR2 as usize] = Region::mapped(BAR2_SIZE, Arc::clone(&self.bar2), vec![whole]);
        regions[region::CONFIG as usize] = Region::trapped(CONFIG_SIZE);
        Device {
            regions,
            copy: Region::NONE,
            memory: Arc::clone(&self.memory),
            interrupts: Arc::clone(&self.interrupts),
        }
    }

    pub fn start(&mut self) {
        let server = Server::start(&self.path, self.device(), Shared(Arc::clone(&self.plain))).expect("a server");
        self.server = Some(server);
    }

    /// The connection, once the function knows of it.
    pub fn connection(&self) -> Arc<Connection> {
        let until = Instant::now() + PATIENCE;
        loop {
            let connection = self.plain.connection.lock().expect("no test panics with the lock").clone();
            if let Some(connection) = connection {
                return connection;
            }
            assert!(Instant::now() < until, "no client has connected");
            std::thread::yield_now();
        }
    }
}

/// Waits for something.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that says anything at all.
pub struct Raw(pub UnixStream);

impl Raw {
    /// Connected, without a version.
    pub fn connect(bench: &Bench) -> Raw {
        let stream = UnixStream::connect(&bench.path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Raw(stream)
    }

    /// Connected, with a version.
    pub fn agreed(bench: &Bench) -> Raw {
        let mut raw = Raw::connect(bench);
        let version = Version { major: 0, minor: 1, data: b"" }.to_bytes();
        let (header, _) = raw.ask(command::VERSION, &version, &[]);
        assert!(header.is_reply() && !header.is_failure(), "{header:?}");
        raw
    }

    /// Sends bytes as they are, in one piece.
    pub fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        assert_eq!(self.try_send(bytes, descriptors), Ok(bytes.len()), "the socket takes it in one piece");
    }

    /// Sends bytes to a server that may have closed the connection.
    pub fn try_send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, rustix::io::Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "253 descriptors fit");
        }
        sendmsg(self.0.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    }

    /// Sends a command and returns the reply to it.
    pub fn ask(&mut self, command: u16, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> (Header, Vec<u8>) {
        let header = Header::command(0x5A5A, command, payload.len());
        self.send(&[header.to_bytes().as_slice(), payload].concat(), descriptors);
        let (reply, payload) = self.reply().expect("a reply");
        assert_eq!((reply.id, reply.command), (0x5A5A, command));
        (reply, payload)
    }

    /// What a command is refused with; 0: it is not.
    pub fn errno(&mut self, command: u16, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> u32 {
        let (reply, payload) = self.ask(command, payload, descriptors);
        if !reply.is_failure() {
            return 0;
        }
        assert!(payload.is_empty() && reply.error > 0, "a failure is only a header: {reply:?}");
        reply.error
    }

    /// The next message; `None`: the server has closed the connection.
    pub fn reply(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut head = [0; Header::SIZE];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no reply in time"),
            Err(_) => return None,
        }
        let header = Header::from_bytes(&head);
        let mut payload = vec![0; header.size as usize - Header::SIZE];
        self.0.read_exact(&mut payload).expect("a message ends");
        Some((header, payload))
    }

    /// Sends bytes one by one.
    pub fn dribble(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0.write_all(std::slice::from_ref(byte)).expect("the server reads");
        }
    }
}
