//! A whole drive, firmware and image, as network block devices: what a client of NBD sees of it.

use std::path::Path;
use tidewater_core::profile::{Profile, Timing};
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, NamespaceSetup, Setup, rerun};
use tidewater_serve::nbd::Address;
use tidewater_testkit::profile::with;
use tidewater_testkit::served::{self, Drive, NbdClient};
use tidewater_testkit::{PATIENCE, pattern};
use tidewater_wire::nbd::{command, error, export_flag, option, reply};

const BLOCK: usize = 4_096;
const FUA: u16 = command::FUA;

fn tiny() -> Profile {
    with(served::tiny(Timing::None), &["host.block_size=4096"])
}

/// A drive with these namespaces, on a socket in `folder`.
fn setup(profile: Profile, backing: Backing, folder: &Path, namespaces: &[(Option<u64>, u8)]) -> Setup {
    Setup {
        nbd: Some(Address::Unix(folder.join("nbd.sock"))),
        namespaces: namespaces.iter().map(|&(bytes, block_shift)| NamespaceSetup { bytes, block_shift }).collect(),
        ..served::setup(profile, folder, backing, 0)
    }
}

fn start(backing: Backing, folder: &Path) -> Drive {
    Drive::start(&setup(tiny(), backing, folder, &[(None, 12)]))
}

fn client(drive: &Drive, name: &str) -> NbdClient {
    NbdClient::of(drive.ready.nbd.as_ref().expect("NBD is served"), name)
}

/// A client, as soon as the device takes one: after a power cut it listens again.
fn client_again(drive: &Drive) -> NbdClient {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match NbdClient::connect(drive.ready.nbd.as_ref().expect("NBD is served")) {
            Ok(mut client) => {
                client.go("");
                return client;
            }
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn each_namespace_is_an_export_and_says_its_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let all = Setup {
        nbd: Some("127.0.0.1:0".parse().unwrap()),
        ..setup(served::tiny(Timing::None), Backing::Memory, folder.path(), &[(Some(1 << 20), 12), (Some(1 << 19), 9)])
    };
    let drive = Drive::start(&all);
    let address = drive.ready.nbd.clone().unwrap();
    let mut looking = NbdClient::connect(&address).unwrap();
    let names: Vec<_> = looking.option(option::LIST, b"").into_iter().map(|(kind, data)| (kind, data.len())).collect();
    assert_eq!(names, [(reply::SERVER, 5), (reply::SERVER, 5), (reply::ACK, 0)]);
    use export_flag::{CAN_MULTI_CONN, HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES};
    let flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN;
    for (name, size, block) in [("", 1 << 20, 4_096), ("1", 1 << 20, 4_096), ("2", 1 << 19, 512)] {
        let info = NbdClient::connect(&address).unwrap().go(name);
        assert_eq!((info.size, info.flags, info.block_min, info.block_preferred), (size, flags, block, 4_096));
    }
    // There are two queues.
    drop(looking);
    let mut small = NbdClient::of(&address, "2");
    small.write(512, &[7; 512]).unwrap();
    assert_eq!(small.read(0, 1_536).unwrap(), [[0; 512], [7; 512], [0; 512]].concat());
    assert_eq!(NbdClient::of(&address, "1").read(512, 512), Err(error::EINVAL), "no whole block of that namespace");
    drive.stop();
}

#[test]
fn data_comes_back_whatever_its_size_and_over_any_connection() {
    let folder = tempfile::tempdir().unwrap();
    let drive = start(Backing::Memory, folder.path());
    let (mut one, mut other) = (NbdClient::connect(drive.ready.nbd.as_ref().unwrap()).unwrap(), client(&drive, "1"));
    let blocks = one.go("").size as usize / BLOCK;
    for (seed, (at, len)) in [(0, 1), (1, 3), (7, 32), (5, 33), (0, 200), (3, blocks - 3)].into_iter().enumerate() {
        let data = pattern(seed as u64, len * BLOCK);
        let offset = (at * BLOCK) as u64;
        if seed % 2 == 0 {
            one.write(offset, &data).unwrap();
        } else {
            one.call((command::WRITE, FUA), offset, data.len() as u32, &data).unwrap();
        }
        assert!(other.read(offset, data.len()).unwrap() == data, "{len} blocks at {at}");
        other.flush().unwrap();
    }
    // Many at once, answered in any order.
    let mut expected = Vec::new();
    for at in 0..300_u64 {
        let data = pattern(at, BLOCK);
        one.request((command::WRITE, 0), at % 100 * BLOCK as u64, BLOCK as u32, &data).unwrap();
        expected.push(data);
    }
    let mut cookies: Vec<u64> =
        (0..300).map(|_| one.reply().unwrap()).map(|(cookie, end)| end.map(|()| cookie).unwrap()).collect();
    cookies.sort_unstable();
    assert!(cookies.windows(2).all(|pair| pair[0] + 1 == pair[1]), "each is answered once");
    let found = other.read(0, 100 * BLOCK).unwrap();
    // The last write of a block is not always the last that was carried out: they were under way together.
    for (at, block) in found.chunks(BLOCK).enumerate() {
        assert!((0..3).any(|round| block == expected[at + round * 100]), "block {at}");
    }
    // What is trimmed or zeroed reads as zeroes.
    for kind in [(command::TRIM, FUA), (command::WRITE_ZEROES, 0), (command::WRITE_ZEROES, FUA | command::NO_HOLE)] {
        one.write(0, &pattern(1, 64 * BLOCK)).unwrap();
        one.call(kind, BLOCK as u64, 62 * BLOCK as u32, &[]).unwrap();
        let mut left = pattern(1, 64 * BLOCK);
        left[BLOCK..63 * BLOCK].fill(0);
        assert!(other.read(0, 64 * BLOCK).unwrap() == left, "{kind:?}");
    }
    assert_eq!(drive.count("nbd_connections"), 2);
    assert!(drive.count("writes") > 300 && drive.count("flushes") >= 6);
    drive.stop();
}

/// Flushed data is there after a cut, and clients come back by themselves.
#[test]
fn a_power_cut_ends_connections_and_keeps_what_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("drive");
    let drive = start(Backing::File(image.clone()), folder.path());
    let mut one = client(&drive, "");
    let (kept, durable) = (pattern(1, 8 * BLOCK), pattern(2, 8 * BLOCK));
    one.write(0, &kept).unwrap();
    one.flush().unwrap();
    one.call((command::WRITE, FUA), 8 * BLOCK as u64, durable.len() as u32, &durable).unwrap();
    one.write(16 * BLOCK as u64, &pattern(3, 8 * BLOCK)).unwrap();
    drive.ask(&Request::PowerCut { off_ms: 0 });
    assert!(one.is_closed());
    let mut one = client_again(&drive);
    assert!(one.read(0, 16 * BLOCK).unwrap() == [kept, durable].concat());
    let left = one.read(16 * BLOCK as u64, 8 * BLOCK).unwrap();
    assert!(left.chunks(BLOCK).zip(pattern(3, 8 * BLOCK).chunks(BLOCK)).all(|(is, new)| is == new || is == [0; BLOCK]));
    drop(one);
    drive.stop();
    let drive = start(Backing::File(image), folder.path());
    assert!(client(&drive, "").read(8 * BLOCK as u64, 8 * BLOCK).unwrap() == pattern(2, 8 * BLOCK));
    drive.stop();
    assert!(!folder.path().join("nbd.sock").exists());
}

#[test]
fn faults_of_the_drive_are_errors_of_requests_and_a_dead_controller_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let drive = start(Backing::Memory, folder.path());
    let mut one = client(&drive, "");
    one.write(0, &pattern(1, 16 * BLOCK)).unwrap();
    let fault = |first, end, status| Request::FaultStatus { nsid: 1, first, end, status, count: 1 };
    // Unrecovered Read Error, Write Fault, Namespace is Write Protected, Capacity Exceeded.
    for (status, expected) in [(0x281, error::EIO), (0x280, error::EIO), (0x020, error::EPERM), (0x081, error::ENOSPC)]
    {
        drive.ask(&fault(2, 3, status));
        assert_eq!(one.write(0, &pattern(2, 8 * BLOCK)), Err(expected), "{status:#x}");
        drive.ask(&fault(2, 3, status));
        assert_eq!(one.read(0, 8 * BLOCK), Err(expected), "{status:#x}");
    }
    assert!(one.read(8 * BLOCK as u64, 8 * BLOCK).unwrap() == pattern(1, 16 * BLOCK)[8 * BLOCK..]);
    // Completions that come twice answer once.
    drive.ask(&Request::FaultDuplicate { function: NBD, count: 3 });
    for at in 0..6 {
        one.write(at * BLOCK as u64, &pattern(at, BLOCK)).unwrap();
    }
    // One that never comes keeps no other from coming.
    drive.ask(&Request::FaultLose { function: NBD, count: 1 });
    let lost = one.request((command::READ, 0), 0, BLOCK as u32, &[]).unwrap();
    let next = one.request((command::FLUSH, 0), 0, 0, &[]).unwrap();
    assert_eq!(one.reply().unwrap(), (next, Ok(())), "{lost} has no reply");
    drive.ask(&Request::FaultFatal { function: NBD });
    assert!(one.is_closed());
    let mut one = client_again(&drive);
    assert!(one.read(5 * BLOCK as u64, BLOCK).unwrap() == pattern(5, BLOCK));
    drive.stop();
}

/// The controller of NBD, on a drive that serves nothing else.
const NBD: u8 = 1;

#[test]
fn more_clients_than_there_are_places_are_turned_away_and_places_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let drive = start(Backing::Memory, folder.path());
    let address = drive.ready.nbd.clone().unwrap();
    let places = tiny().host.queues;
    for round in 0..4_u64 {
        let mut clients: Vec<_> = (0..places).map(|_| client_again(&drive)).collect();
        for (at, one) in (0_u64..).zip(&mut clients) {
            one.write(at * BLOCK as u64, &pattern(round + at, BLOCK)).unwrap();
        }
        assert!(NbdClient::connect(&address).is_err(), "it is closed at once");
        // They go with requests under way.
        for one in &mut clients {
            one.request((command::READ, 0), 0, 16 * BLOCK as u32, &[]).unwrap();
        }
    }
    assert!(client_again(&drive).read(0, BLOCK).unwrap() == pattern(3, BLOCK));
    drive.stop();
}

#[test]
fn a_run_by_nbd_is_repeated_from_its_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("inputs");
    let setup = Setup { input_log: Some(log.clone()), ..setup(tiny(), Backing::Memory, folder.path(), &[(None, 12)]) };
    let drive = Drive::start(&setup);
    let mut one = client(&drive, "");
    for at in 0..40_u64 {
        one.write(at % 7 * BLOCK as u64, &pattern(at, 3 * BLOCK)).unwrap();
        one.call((command::TRIM, FUA), 0, BLOCK as u32, &[]).unwrap();
        one.read(0, 8 * BLOCK).unwrap();
    }
    drive.ask(&Request::PowerCut { off_ms: 0 });
    let mut one = client_again(&drive);
    one.write(0, &pattern(1, BLOCK)).unwrap();
    one.flush().unwrap();
    drop(one);
    drive.stop();
    let done = rerun(&std::fs::read(&log).unwrap()).unwrap_or_else(|error| panic!("{error}"));
    assert!(done.inputs > 300, "{done:?}");
}

#[test]
fn other_hosts_use_the_drive_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        vfio_user: vec![folder.path().join("vfio0")],
        nvme_tcp: Some(tidewater_serve::engine::TcpSetup {
            address: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            insecure_bind: false,
            allowed_hosts: Vec::new(),
            allow_destructive: true,
        }),
        ..setup(served::tiny(Timing::None), Backing::Memory, folder.path(), &[(None, 12)])
    };
    let drive = Drive::start(&setup);
    let mut one = client(&drive, "");
    one.write(0, &pattern(1, BLOCK)).unwrap();
    let (address, name) = drive.ready.nvme_tcp.clone().unwrap();
    use tidewater_driver::nvme_tcp::{Controller, Host, Transfer};
    use tidewater_wire::{fabrics::Nqn, nvme::Sqe, nvme::admin_opcode};
    let host = Host { time_out: PATIENCE, ..Host::new(Nqn::new("nqn.2026-01.io.example:host").unwrap(), [3; 16]) };
    let mut controller = Controller::connect(address, &host, &Nqn::new(&name).unwrap()).unwrap();
    controller.enable().unwrap();
    controller.set_queues(1).unwrap();
    let mut queue = controller.queue(1, 16).unwrap();
    let found = queue.call(Sqe::read(0, 0, 0), Transfer::In(BLOCK as u32)).unwrap().good().unwrap();
    assert!(found.data == pattern(1, BLOCK));
    // A namespace that is formatted otherwise is not what its client knows: its connection ends with its next
    // request, which would be of other blocks.
    let mut admin = served::Host::attach(&drive, 0);
    let format = Sqe::from_dwords([0; 16]).with_dword(0, admin_opcode::FORMAT_NVM.into()).with_nsid(1);
    assert!(admin.nvme.admin(format).unwrap().status.is_success());
    one.request((command::READ, 0), 0, BLOCK as u32, &[]).unwrap();
    assert!(one.is_closed());
    let mut one = client_again(&drive);
    assert_eq!(one.read(0, 512), Ok(vec![0; 512]));
    drive.stop();
}
