//! Memory that a host lends is really used, and never believed.

use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::vfio_user::Buffer;
use tidewater_serve::control::{HostMemoryFault, Request};
use tidewater_serve::engine::Backing;
use tidewater_testkit::served::{BLOCK, Drive, Host, UNIT, blocks_of, setup, tiny};
use tidewater_wire::nvme::{Sqe, feature};

/// Units that are read again and again.
const UNITS: u64 = 16;
const PAGE: u64 = 4096;
/// The opcode.
const SET_FEATURES: u32 = 0x09;

/// The smallest drive, with its read cache in host memory.
fn cached_by_host() -> Profile {
    let mut profile = tiny(Timing::None);
    for (key, value) in [
        ("memory.hmb.kind", "host"),
        ("memory.hmb.size", "256KiB"),
        ("buffer.read_policy", "lru"),
        ("buffer.read_memory", "hmb"),
        ("buffer.read_size", "256KiB"),
    ] {
        profile.set(key, value).expect("a key and a value");
    }
    profile
}

/// Memory in two pieces, of which the first ends within a unit, and the list that tells of them.
struct Memory {
    pieces: [Buffer; 2],
    list: Buffer,
}

impl Memory {
    fn new(host: &mut Host) -> Memory {
        let pieces = [5 * PAGE, 59 * PAGE].map(|bytes| host.nvme.buffer(bytes).expect("memory"));
        let list = host.nvme.buffer(PAGE).expect("memory");
        for (i, piece) in (0..).zip(&pieces) {
            list.write(16 * i, &piece.address().to_le_bytes());
            list.write(16 * i + 8, &((piece.len() / PAGE) as u32).to_le_bytes());
        }
        Memory { pieces, list }
    }

    fn lend(&self, host: &mut Host, returned: bool) {
        let list = self.list.address();
        let sqe = Sqe::default().with_dword(0, SET_FEATURES).with_dword(10, feature::HOST_MEMORY_BUFFER.into());
        let sqe = sqe.with_dword(11, 1 | u32::from(returned) << 1).with_dword(12, 64);
        let sqe = sqe.with_dword(13, list as u32).with_dword(14, (list >> 32) as u32).with_dword(15, 2);
        host.nvme.admin(sqe).expect("it is lent");
    }

    fn take_back(&self, host: &mut Host) {
        let sqe = Sqe::default().with_dword(0, SET_FEATURES).with_dword(10, feature::HOST_MEMORY_BUFFER.into());
        host.nvme.admin(sqe).expect("it is given back");
    }

    /// Everything that is there.
    fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &self.pieces {
            let mut bytes = vec![0; piece.len() as usize];
            piece.read(0, &mut bytes);
            all.extend(bytes);
        }
        all
    }

    fn overwrite(&self, byte: u8) {
        self.pieces.iter().for_each(|piece| piece.write(0, &vec![byte; piece.len() as usize]));
    }
}

fn read_all(host: &mut Host, tag: u64) {
    for unit in 0..UNITS {
        let found = host.read(unit * UNIT, UNIT as usize * BLOCK);
        assert!(found == blocks_of(unit * UNIT, UNIT, tag), "unit {unit} does not hold write {tag}");
    }
}

#[test]
fn lent_memory_holds_copies_that_are_read_and_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(cached_by_host(), folder.path(), Backing::Memory, 1));
    let mut host = Host::attach(&drive, 0);
    let page = host.nvme.buffer(4096).expect("memory");
    let data = host.nvme.identify(1, 0, &page).expect("a controller");
    assert_eq!(data[272..276], 64u32.to_le_bytes(), "HMPRE follows what is placed there");
    let memory = Memory::new(&mut host);
    for unit in 0..UNITS {
        host.write(unit * UNIT, &blocks_of(unit * UNIT, UNIT, 1));
    }
    host.flush();

    // Nothing goes there before it is lent.
    read_all(&mut host, 1);
    assert_eq!((drive.count("host_memory_writes"), memory.bytes().iter().any(|&byte| byte != 0)), (0, false));
    memory.lend(&mut host, false);
    read_all(&mut host, 1);
    assert_eq!(drive.count("host_memory_writes"), UNITS);
    let there = memory.bytes();
    let unit = blocks_of(3 * UNIT, UNIT, 1);
    assert!(there.windows(unit.len()).any(|bytes| bytes == unit), "the host's memory holds the bytes");
    read_all(&mut host, 1);
    assert_eq!((drive.count("host_memory_reads"), drive.count("host_memory_failed_checks")), (UNITS, 0));
    host.compare(3 * UNIT, &unit).expect("it is the same");
    let other = blocks_of(3 * UNIT, UNIT, 2);
    host.compare(3 * UNIT, &other).expect_err("it differs");

    // The host writes over all of it, or puts back what was there before a write: nothing of that is believed.
    memory.overwrite(0xA5);
    read_all(&mut host, 1);
    assert_eq!(drive.count("host_memory_failed_checks"), UNITS);
    assert_eq!(drive.count("host_memory_refetches"), UNITS);
    for unit in 0..UNITS {
        host.write(unit * UNIT, &blocks_of(unit * UNIT, UNIT, 2));
    }
    host.flush();
    read_all(&mut host, 2);
    let mut rest = &there[..];
    for piece in &memory.pieces {
        let (bytes, more) = rest.split_at(piece.len() as usize);
        piece.write(0, bytes);
        rest = more;
    }
    read_all(&mut host, 2);
    assert_eq!(drive.count("host_memory_failed_checks"), 2 * UNITS);

    // Given back, it is the host's; returned, it is what it was.
    memory.take_back(&mut host);
    let before = memory.bytes();
    let reads = drive.count("host_memory_reads");
    read_all(&mut host, 2);
    assert_eq!((memory.bytes() == before, drive.count("host_memory_reads")), (true, reads));
    memory.lend(&mut host, true);
    read_all(&mut host, 2);
    assert_eq!(drive.count("host_memory_reads"), reads + UNITS);
    assert_eq!(drive.count("host_memory_failed_checks"), 2 * UNITS, "it had not changed");

    // A reset and a shutdown take it back, too.
    host.restart().expect("a reset");
    memory.overwrite(0);
    read_all(&mut host, 2);
    assert!(memory.bytes().iter().all(|&byte| byte == 0), "nothing is written there any more");
    memory.lend(&mut host, false);
    read_all(&mut host, 2);
    host.nvme.shut_down().expect("it ends in order");
    let metrics = drive.ask(&Request::Metrics)["text"].as_str().expect("a text").to_owned();
    assert!(metrics.contains("tidewater_host_memory_units_total{by=\"read\"}"), "{metrics}");
    drop(host);
    drive.stop();
}

#[test]
fn faults_of_lent_memory_cost_time_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(cached_by_host(), folder.path(), Backing::Memory, 1));
    let mut host = Host::attach(&drive, 0);
    let memory = Memory::new(&mut host);
    for unit in 0..UNITS {
        host.write(unit * UNIT, &blocks_of(unit * UNIT, UNIT, 5));
    }
    host.flush();
    memory.lend(&mut host, false);
    for (what, by_ns, failed) in
        [(HostMemoryFault::Slow, 3_000_000, 0), (HostMemoryFault::Corrupted, 0, 4), (HostMemoryFault::Withdrawn, 0, 4)]
    {
        read_all(&mut host, 5);
        drive.ask(&Request::FaultHostMemory { what, by_ns, count: 4 });
        read_all(&mut host, 5);
        read_all(&mut host, 5);
        assert_eq!(drive.count("host_memory_failed_checks"), failed, "{what:?}");
    }
    assert_eq!(drive.ask(&Request::Status)["host_memory_lent"], "0B", "what was not there once is not asked again");
    // The host lends again.
    memory.take_back(&mut host);
    memory.lend(&mut host, false);
    drive.ask(&Request::FaultClear);
    let reads = drive.count("host_memory_reads");
    read_all(&mut host, 5);
    read_all(&mut host, 5);
    assert_eq!(drive.count("host_memory_reads"), reads + UNITS);
    drop(host);
    drive.stop();
}
