//! A whole drive, firmware and image, behind the NVMe/TCP target: what our own initiator sees of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::nvme_tcp::{Controller, Error, Host, Queue, Transfer, discover};
use tidewater_serve::engine::{Backing, NamespaceSetup, Setup, TcpSetup};
use tidewater_testkit::profile::{BYTE_WINDOW, with};
use tidewater_testkit::{PATIENCE, served};
use tidewater_wire::fabrics::{
    CONTROLLER_ANY, Connect, ConnectData, DataPointer, Fabrics, Nqn, PropertyGet, PropertySet, Response, property,
};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{CommonHeader, Framing, IcReq, Pdu, Receiver, Rules};
use tidewater_wire::vendor::{self, ANYWHERE, ControlPage, IoCommand, ReadLogHeader, WindowCommand};

const BLOCK: usize = 4_096;

fn host() -> Host {
    let name = Nqn::new("nqn.2026-01.io.example:host").unwrap();
    Host { time_out: PATIENCE, ..Host::new(name, [3; 16]) }
}

/// A drive that is served on a thread.
struct Drive {
    served: served::Drive,
    address: std::net::SocketAddr,
    subsystem: Nqn,
}

impl Drive {
    fn start(profile: Profile, backing: Backing, folder: &std::path::Path) -> Drive {
        Drive::start_with(profile, backing, folder, |_| {})
    }

    /// As [`Drive::start`], with some of it set otherwise. A drive without NVMe/TCP has no address.
    fn start_with(
        profile: Profile,
        backing: Backing,
        folder: &std::path::Path,
        change: impl FnOnce(&mut Setup),
    ) -> Drive {
        let nvme_tcp = Some(TcpSetup {
            address: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            insecure_bind: false,
            allowed_hosts: Vec::new(),
            allow_destructive: true,
        });
        let namespaces = vec![NamespaceSetup { bytes: None, block_shift: 12 }];
        let mut setup = Setup { nvme_tcp, namespaces, ..served::setup(profile, folder, backing, 0) };
        change(&mut setup);
        let served = served::Drive::start(&setup);
        let nowhere = || ("127.0.0.1:0".parse().unwrap(), "nqn.2026-01.io.example:nowhere".to_owned());
        let (address, name) = served.ready.nvme_tcp.clone().unwrap_or_else(nowhere);
        Drive { served, address, subsystem: Nqn::new(&name).unwrap() }
    }

    fn controller(&self, host: &Host) -> Controller {
        let mut controller = Controller::connect(self.address, host, &self.subsystem).unwrap();
        controller.enable().unwrap();
        controller
    }

    fn stop(self) {
        self.served.stop();
    }
}

fn tiny() -> Profile {
    with(served::tiny(Timing::None), &["host.block_size=4096"])
}

fn pattern(seed: u64, blocks: usize) -> Vec<u8> {
    tidewater_testkit::pattern(seed, blocks * BLOCK)
}

fn write(queue: &mut Queue, block: u64, data: Vec<u8>) {
    let blocks = (data.len() / BLOCK - 1) as u16;
    queue.call(Sqe::write(0, block, blocks), Transfer::Out(data)).unwrap().good().unwrap();
}

fn read(queue: &mut Queue, block: u64, blocks: usize) -> Vec<u8> {
    let sqe = Sqe::read(0, block, (blocks - 1) as u16);
    queue.call(sqe, Transfer::In((blocks * BLOCK) as u32)).unwrap().good().unwrap().data
}

#[test]
fn a_host_finds_the_drive_and_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(tiny(), Backing::Memory, folder.path());
    let found = discover(drive.address, &host()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].subsystem.clone(), found[0].port), (drive.subsystem.clone(), drive.address.port()));

    for (header_digest, data_digest, flow_control) in
        [(false, false, false), (true, true, false), (false, true, true), (true, false, true)]
    {
        let mut controller = drive.controller(&Host { header_digest, data_digest, flow_control, ..host() });
        let identify = controller.identify(1, 0).unwrap();
        assert_eq!(u16::from_le_bytes([identify[78], identify[79]]), controller.id());
        assert!(identify[768..].starts_with(drive.subsystem.as_str().as_bytes()));
        let namespace = controller.identify(0, 1).unwrap();
        let blocks = u64::from_le_bytes(*namespace.first_chunk().unwrap());
        assert!(blocks > 256, "{blocks} blocks");
        assert_eq!(controller.set_queues(2).unwrap(), 2);
        let mut queues: Vec<_> = (1..=2).map(|id| controller.queue(id, 32).unwrap()).collect();
        for round in 0..8_u64 {
            for (i, queue) in queues.iter_mut().enumerate() {
                for (at, len) in [(0, 1), (1, 2), (8, 3), (16, 32)] {
                    let block = i as u64 * 64 + at;
                    let data = pattern(round * 1_000 + block, len);
                    write(queue, block, data.clone());
                    assert!(read(queue, block, len) == data, "block {block}, {len} blocks");
                }
                queue.call(Sqe::flush(0), Transfer::None).unwrap().good().unwrap();
                // A comparison, with data that is and that is not there.
                let same = queue
                    .call(Sqe::compare(0, i as u64 * 64, 0), Transfer::Out(pattern(round * 1_000 + i as u64 * 64, 1)));
                assert_eq!(same.unwrap().status, Status::SUCCESS);
                let other = queue.call(Sqe::compare(0, i as u64 * 64, 0), Transfer::Out(vec![0; BLOCK]));
                assert!(other.unwrap().status.same_code(Status::COMPARE_FAILURE));
                // Dataset Management: its ranges are data that the firmware itself reads.
                let range = tidewater_wire::nvme::DsmRange::new(i as u64 * 64 + 16, 32).to_bytes().to_vec();
                let trim = queue.call(Sqe::dataset_management(0, 0, true), Transfer::Out(range)).unwrap();
                assert_eq!(trim.status, Status::SUCCESS);
                assert!(read(queue, i as u64 * 64 + 16, 32) == vec![0; 32 * BLOCK]);
                let beyond = queue.call(Sqe::read(0, blocks, 0), Transfer::In(BLOCK as u32)).unwrap();
                assert!(beyond.status.same_code(Status::LBA_OUT_OF_RANGE));
            }
        }
        controller.keep_alive().unwrap();
        controller.shutdown().unwrap();
    }
    drive.stop();
}

#[test]
fn deep_queues_of_several_hosts_keep_their_data_apart() {
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(tiny(), Backing::Memory, folder.path());
    let hosts: Vec<_> = (0..3_u64)
        .map(|n| {
            let name = Nqn::new(&format!("nqn.2026-01.io.example:host{n}")).unwrap();
            let controller = drive.controller(&Host { name, id: [n as u8 + 1; 16], data_digest: n == 1, ..host() });
            std::thread::spawn(move || {
                let mut queue = controller.queue(1, 32).unwrap();
                let mut version = [0_u64; 80];
                for round in 1..60_u64 {
                    let mut reads = Vec::new();
                    for i in 0..31_u64 {
                        let at = (round * 13 + i * 7) % 80;
                        if i % 2 == 0 && !reads.iter().any(|&(_, read)| read == at) && version[at as usize] != round {
                            version[at as usize] = round;
                            let data = pattern(n << 40 | round << 16 | at, 1);
                            queue.submit(Sqe::write(0, n * 80 + at, 0), Transfer::Out(data)).unwrap();
                        } else if version[at as usize] != round {
                            let sqe = Sqe::read(0, n * 80 + at, 0);
                            reads.push((queue.submit(sqe, Transfer::In(BLOCK as u32)).unwrap(), at));
                        }
                    }
                    while queue.outstanding() > 0 {
                        let done = queue.wait().unwrap().good().unwrap();
                        check(n, &reads, &version, done.cid, &done.data);
                    }
                    while let Some(done) = queue.ready() {
                        let done = done.good().unwrap();
                        check(n, &reads, &version, done.cid, &done.data);
                    }
                }
                drop(controller);
            })
        })
        .collect();
    for host in hosts {
        host.join().unwrap();
    }
    drive.stop();

    fn check(n: u64, reads: &[(u16, u64)], version: &[u64], cid: u16, data: &[u8]) {
        if let Some(&(_, at)) = reads.iter().find(|(read, _)| *read == cid) {
            let want = match version[at as usize] {
                0 => vec![0; BLOCK],
                round => pattern(n << 40 | round << 16 | at, 1),
            };
            assert!(data == want, "host {n}, block {at}");
        }
    }
}

#[test]
fn hosts_that_leave_in_the_middle_free_their_controllers() {
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(tiny(), Backing::Memory, folder.path());
    // More than there are controllers for.
    for round in 0..40_u64 {
        let begin = Instant::now();
        let mut controller = loop {
            match Controller::connect(drive.address, &host(), &drive.subsystem) {
                Ok(controller) => break controller,
                Err(Error::Status(..)) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => panic!("{error}"),
            }
        };
        controller.enable().unwrap();
        let mut queue = controller.queue(1, 32).unwrap();
        for i in 0..10 {
            queue.submit(Sqe::write(0, i * 16, 15), Transfer::Out(pattern(i, 16))).unwrap();
            queue.submit(Sqe::read(0, i * 16, 15), Transfer::In(16 * BLOCK as u32)).unwrap();
        }
        queue.flush().unwrap();
        for _ in 0..round % 7 {
            queue.wait().unwrap().good().unwrap();
        }
        if round % 3 == 0 {
            controller.set_property(tidewater_wire::fabrics::property::CC, 0).unwrap();
            controller.enable().unwrap();
            let mut queue = controller.queue(1, 32).unwrap();
            write(&mut queue, 200, pattern(9, 4));
        }
    }
    let controller = drive.controller(&host());
    let mut queue = controller.queue(1, 32).unwrap();
    write(&mut queue, 0, pattern(1, 32));
    assert!(read(&mut queue, 0, 32) == pattern(1, 32));
    drive.stop();
}

/// A host that names its commands as it likes.
struct Raw(TcpStream);

impl Raw {
    /// Sends these all at once, so that the target finds all of them before it passes the first to the drive.
    fn send(&mut self, pdus: &[(Pdu, &[u8])]) {
        let mut bytes = Vec::new();
        pdus.iter().for_each(|(pdu, data)| pdu.append(&Framing::default(), data, &mut bytes));
        self.0.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> (Pdu, Vec<u8>) {
        let rules =
            Rules { receiver: Receiver::Host, framing: Framing::default(), capsule_data_max: 0, data_max: 1 << 24 };
        let mut bytes = vec![0; 8];
        self.0.read_exact(&mut bytes).expect("the target answers");
        let layout = CommonHeader::from_bytes(bytes.first_chunk().unwrap()).layout(&rules).unwrap();
        bytes.resize(layout.total() as usize, 0);
        self.0.read_exact(&mut bytes[8..]).expect("the target answers");
        let data = bytes.split_off(layout.head() + layout.padding);
        (Pdu::parse(&bytes[..layout.head()], &layout).unwrap(), data)
    }

    /// The response to a command; what else comes is not looked at.
    fn response(&mut self, cid: u16) -> Response {
        loop {
            if let (Pdu::CapsuleResp(entry), _) = self.receive()
                && let response = Response::from_bytes(&entry)
                && response.cid == cid
            {
                return response;
            }
        }
    }

    fn property(&mut self, cid: u16, offset: u32) -> u64 {
        let get = Fabrics::PropertyGet(PropertyGet { offset, len: 4 }).emit(cid);
        self.send(&[(Pdu::CapsuleCmd(DataPointer::Transport { len: 0 }.put(get)), &[])]);
        self.response(cid).value
    }

    /// Waits for CSTS.RDY.
    fn is_ready(&mut self, ready: bool) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.property(0x7777, property::CSTS) & 1 == u64::from(ready) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

fn configure(cid: u16, value: u64) -> Pdu {
    let set = Fabrics::PropertySet(PropertySet { offset: property::CC, len: 4, value }).emit(cid);
    Pdu::CapsuleCmd(DataPointer::Transport { len: 0 }.put(set))
}

#[test]
fn an_identifier_that_is_used_again_behind_a_reset_keeps_nothing_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(tiny(), Backing::Memory, folder.path());
    let stream = TcpStream::connect(drive.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut raw = Raw(stream);
    let ask = IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 };
    raw.send(&[(Pdu::IcReq(ask), &[])]);
    assert!(matches!(raw.receive().0, Pdu::IcResp(_)));
    let connect =
        Connect { queue: 0, entries_zero_based: 15, no_flow_control: false, deletes_queues: false, keep_alive_ms: 0 };
    let connect = DataPointer::Capsule { offset: 0, len: 1_024 }.put(Fabrics::Connect(connect).emit(1));
    let data = ConnectData {
        host_id: [9; 16],
        controller: CONTROLLER_ANY,
        subsystem: drive.subsystem.clone(),
        host: Nqn::new("nqn.2026-01.io.example:raw"),
    };
    raw.send(&[(Pdu::CapsuleCmd(connect), &data.to_bytes())]);
    assert_eq!(raw.response(1).status, Status::SUCCESS);
    const SET_FEATURES: u32 = 0x09;
    const TIMESTAMP: u32 = 0x0E;
    const IDENTIFY: u32 = 0x06;
    let with = |cid: u16, opcode: u32, cdw10: u32, len: u32| {
        let sqe = Sqe::default().with_dword(0, opcode | u32::from(cid) << 16).with_dword(10, cdw10);
        Pdu::CapsuleCmd(DataPointer::Transport { len }.put(sqe))
    };
    for _ in 0..3 {
        raw.send(&[(configure(2, 0x0046_0001), &[])]);
        assert_eq!(raw.response(2).status, Status::SUCCESS);
        assert!(raw.is_ready(true), "it is enabled");
        // A command that wants data of its host, a reset, and another command of the first one's identifier.
        raw.send(&[
            (with(5, SET_FEATURES, TIMESTAMP, 8), &[]),
            (configure(6, 0x0046_0000), &[]),
            (with(5, IDENTIFY, 1, 4_096), &[]),
        ]);
        assert!(raw.is_ready(false), "the reset ends");
    }
    drop(raw);
    drive.stop();
}

#[test]
fn what_was_flushed_is_there_when_the_drive_is_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("drive.img");
    for round in 0..3_u64 {
        let drive = Drive::start(tiny(), Backing::File(image.clone()), folder.path());
        let mut controller = drive.controller(&host());
        let mut queue = controller.queue(1, 16).unwrap();
        if round > 0 {
            assert!(read(&mut queue, 10, 32) == pattern(round - 1, 32));
        }
        write(&mut queue, 10, pattern(round, 32));
        queue.call(Sqe::flush(0), Transfer::None).unwrap().good().unwrap();
        if round == 0 {
            controller.shutdown().unwrap();
        }
        drive.stop();
        assert!(queue.call(Sqe::flush(0), Transfer::None).is_err());
    }
}

/// A drive that was made for a virtual machine alone.
#[test]
fn a_drive_that_was_made_without_nvme_tcp_is_there_for_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("drive.img");
    let alone = |setup: &mut Setup| {
        setup.nvme_tcp = None;
        setup.vfio_user = vec![folder.path().join("vfio")];
    };
    let drive = Drive::start_with(tiny(), Backing::File(image.clone()), folder.path(), alone);
    drive.stop();
    let drive = Drive::start(tiny(), Backing::File(image), folder.path());
    let controller = drive.controller(&host());
    let mut queue = controller.queue(1, 16).unwrap();
    write(&mut queue, 10, pattern(1, 32));
    assert!(read(&mut queue, 10, 32) == pattern(1, 32));
    drop(controller);
    drive.stop();
}

/// The tiny drive, with a fast side.
fn tiny_fast() -> Profile {
    let settings = [
        "memory.sram.size=96KiB",
        "memory.sram.survives=by-capacitors",
        "fast.size=32KiB",
        "fast.memory=sram",
        "fast.queue_size=16KiB",
        "fast.queue_memory=sram",
        "fast.log_size=1MiB",
    ];
    with(tiny(), &settings)
}

#[test]
fn a_log_is_appended_to_and_read_over_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(tiny_fast(), Backing::Memory, folder.path());
    let controller = drive.controller(&Host { data_digest: true, ..host() });
    let mut queue = controller.queue(1, 16).unwrap();
    let control = |queue: &mut Queue| {
        let page = queue
            .call(IoCommand::ReadControlPage.emit(0), Transfer::In(ControlPage::SIZE as u32))
            .unwrap()
            .good()
            .unwrap();
        ControlPage::parse(&page.data).unwrap()
    };
    let epoch = control(&mut queue).epoch;
    let log = pattern(5, 8);
    let mut offset = 0;
    // In the capsule and by R2T, in pieces that are no multiple of anything.
    for bytes in [1_usize, 1_003, 4_096, 9_001, 12_289, 3] {
        let append = IoCommand::Append { lane: 0, epoch, offset: offset as u64, bytes: bytes as u32 };
        let data = log[offset..offset + bytes].to_vec();
        queue.call(append.emit(0), Transfer::Out(data)).unwrap().good().unwrap();
        offset += bytes;
        let wait = IoCommand::WaitCredit { lane: 0, offset: offset as u64, timeout_ns: PATIENCE.as_nanos() as u64 };
        queue.call(wait.emit(0), Transfer::None).unwrap().good().unwrap();
    }
    let stale = IoCommand::Append { lane: 0, epoch: tidewater_wire::vendor::Epoch(epoch.0 + 256), offset: 0, bytes: 4 };
    let refused = queue.call(stale.emit(0), Transfer::Out(vec![0; 4])).unwrap();
    assert!(!refused.status.is_success());
    // What is on flash comes back: less than there is room for, after which the queue goes on.
    let mut read = 0;
    while read < 16 << 10 {
        let want = 32 << 10;
        let command = IoCommand::ReadLog { lane: 0, offset: read as u64, bytes: want, wait_ns: 100_000_000 };
        let len = ReadLogHeader::SIZE as u32 + want;
        let done = queue.call(command.emit(0), Transfer::In(len)).unwrap().good().unwrap();
        let bytes = &done.data[ReadLogHeader::SIZE..];
        assert!(!bytes.is_empty() && bytes == &log[read..read + bytes.len()], "{} bytes from {read}", bytes.len());
        read += bytes.len();
    }
    write(&mut queue, 0, pattern(8, 2));
    let back = queue.call(Sqe::read(0, 0, 1), Transfer::In(2 * BLOCK as u32)).unwrap().good().unwrap();
    assert!(back.data == pattern(8, 2));
    drive.stop();
}

/// Run with `cargo test --release -p tidewater-serve --test all -- --ignored --nocapture nvme_tcp_served`.
#[test]
#[ignore = "measures, and is worth nothing on a busy machine"]
fn speed() {
    let folder = tempfile::tempdir().unwrap();
    let mut profile = tiny();
    profile.host.queue_entries = 256;
    let drive = Drive::start(profile, Backing::Memory, folder.path());
    let controller = drive.controller(&host());
    let mut queue = controller.queue(1, 129).unwrap();
    for block in (0..512).step_by(8) {
        write(&mut queue, block, pattern(block, 8));
    }
    for (depth, writes) in [(1, false), (32, false), (128, false), (32, true)] {
        let (start, mut done, mut state) = (std::time::Instant::now(), 0_u64, 1_u64);
        while start.elapsed() < Duration::from_secs(2) {
            while queue.outstanding() < depth {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let block = (state >> 33) % 512;
                let submitted = if writes {
                    queue.submit(Sqe::write(0, block, 0), Transfer::Out(vec![7; BLOCK]))
                } else {
                    queue.submit(Sqe::read(0, block, 0), Transfer::In(BLOCK as u32))
                };
                submitted.unwrap();
            }
            let mut next = Some(queue.wait().unwrap());
            while let Some(completion) = next {
                queue.recycle(completion.good().unwrap().data);
                done += 1;
                next = queue.ready();
            }
        }
        let rate = done as f64 / start.elapsed().as_secs_f64();
        println!("4 KiB random {} at depth {depth}: {rate:.0}/s", if writes { "writes" } else { "reads" });
        while queue.outstanding() > 0 {
            queue.wait().unwrap();
        }
    }
    drive.stop();
}

#[test]
fn a_host_without_bars_uses_the_byte_window_by_commands() {
    let folder = tempfile::tempdir().unwrap();
    let profile = with(tiny(), BYTE_WINDOW);
    let drive = Drive::start(profile, Backing::File(folder.path().join("drive")), folder.path());
    let mut controller = drive.controller(&host());
    controller.set_queues(1).unwrap();
    let mut queue = controller.queue(1, 16).unwrap();
    let mut expected = pattern(5, 2);
    write(&mut queue, 3, expected.clone());
    let order = |queue: &mut Queue, command: WindowCommand, transfer| {
        queue.call(command.emit(0).with_nsid(1), transfer).unwrap()
    };
    let pin = WindowCommand::Pin { entry: 7, offset: ANYWHERE, lba: 3, blocks: 2 };
    order(&mut queue, pin, Transfer::None).good().unwrap();
    let refused = queue.call(Sqe::read(0, 4, 0), Transfer::In(BLOCK as u32)).unwrap();
    assert_eq!(refused.status.with_more(false), vendor::status::LBA_PINNED);
    expected[5_000..5_012].copy_from_slice(b"by a command");
    let store = WindowCommand::Write { entry: 7, offset: 5_000, bytes: 12 };
    order(&mut queue, store, Transfer::Out(b"by a command".to_vec())).good().unwrap();
    order(&mut queue, WindowCommand::Sync { entry: 7 }, Transfer::None).good().unwrap();
    let read_dma = WindowCommand::ReadDma { entry: 7, offset: 0, bytes: 2 * BLOCK as u32 };
    let found = order(&mut queue, read_dma, Transfer::In(2 * BLOCK as u32)).good().unwrap();
    assert!(found.data == expected);
    order(&mut queue, WindowCommand::Flush { entry: 7 }, Transfer::None).good().unwrap();
    assert!(read(&mut queue, 3, 2) == expected);
    drop((queue, controller));
    drive.stop();
}
