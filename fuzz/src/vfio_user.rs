//! A vfio-user session: whatever a client sends, the next one is served.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use nix::errno::Errno;
use tidewater_driver::vfio_user::Socket;
use tidewater_ipc::SharedMemory;
use tidewater_serve::vfio_user::{
    Connection, DOORBELL_PAGE, Device, Function, GuestMemory, Interrupts, Region, Server,
};
use tidewater_wire::vfio_user::{Header, Version, command, region};

/// Bytes of BAR0, of which the doorbells are shared.
const BAR0: u64 = 0x4000;
/// Bytes of the configuration space.
const CONFIG: u64 = 0x1000;

/// A function whose registers are memory.
struct Plain(Mutex<Vec<u8>>);

impl Function for Plain {
    fn region_read(&self, _: u32, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.copy_from_slice(&bytes[offset as usize..][..to.len()]);
        Ok(())
    }

    fn region_write(&self, _: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(0);
        Ok(())
    }

    fn connected(&self, _: &Arc<Connection>) {}

    fn disconnected(&self) {}
}

/// One server for all inputs: what one leaves behind, the next one meets.
struct Bench {
    path: PathBuf,
    memory: Arc<GuestMemory>,
    _server: Server,
}

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("tidewater-fuzz-vfio-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let path = folder.join("cntrl");
    let mut regions: [Region; region::COUNT as usize] = std::array::from_fn(|_| Region::NONE);
    let doorbells = Arc::new(SharedMemory::new("bar0", BAR0).expect("a memfd"));
    regions[region::BAR0 as usize] = Region::mapped(BAR0, doorbells, vec![DOORBELL_PAGE]);
    regions[region::CONFIG as usize] = Region::trapped(CONFIG);
    let memory = Arc::new(GuestMemory::default());
    let device = Device {
        regions,
        copy: Region::NONE,
        memory: Arc::clone(&memory),
        interrupts: Arc::new(Interrupts::new(1, 9)),
    };
    let function = Plain(Mutex::new(vec![0; BAR0 as usize]));
    let server = Server::start(&path, device, function).expect("a server");
    Mutex::new(Bench { path, memory, _server: server })
});

/// Bytes of a client, behind an agreed version or not.
pub fn vfio_user(data: &[u8]) {
    let bench = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((&how, rest)) = data.split_first() else { return };
    let mut stream = UnixStream::connect(&bench.path).expect("the server listens");
    if how & 1 != 0 {
        let offer = Version { major: 0, minor: 1, data: b"" }.to_bytes();
        let header = Header::command(1, command::VERSION, offer.len()).to_bytes();
        let _ = stream.write_all(&[header.as_slice(), &offer].concat());
    }
    // The server may close the connection before it has read all; and it is not waited for.
    let _ = stream.set_write_timeout(Some(std::time::Duration::from_millis(200)));
    let _ = stream.write_all(rest);
    drop(stream);
    let mut client = Socket::connect(&bench.path).expect("the next client is served");
    assert!(bench.memory.is_empty(), "memory of a client that has gone is kept");
    client.reset().expect("it is reset");
    assert_eq!(client.read_u64(region::BAR0, 0).expect("it reads"), 0);
}
