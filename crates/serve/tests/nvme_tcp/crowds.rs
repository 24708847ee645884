//! Hosts that come in numbers and say nothing, or leave much waiting: each kind has its bound, and a host beside them
//! gets in and goes on.

use crate::nvme_tcp::hostile::{roomy, still_works};
use crate::nvme_tcp::mock::{BLOCK, Mock, Served, VENDOR_SILENT, host, options};
use crate::nvme_tcp::raw::{PLAIN, Raw, Reply, connect_command, connect_data};
use std::time::Instant;
use tidewater_base::{Duration, Instant as Time};
use tidewater_driver::nvme_tcp::{Controller, Host, Transfer, discover};
use tidewater_serve::nvme_tcp::{Options, Target};
use tidewater_testkit::PATIENCE;
use tidewater_wire::fabrics::{self, CONTROLLER_ANY, Connect, ConnectData, DISCOVERY_NQN, DataPointer, Fabrics};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::Pdu;

fn name(text: &str) -> fabrics::Nqn {
    crate::nvme_tcp::mock::nqn(&format!("nqn.2026-01.io.example:{text}"))
}

/// A host of its own.
fn other(number: u8) -> ConnectData {
    ConnectData {
        host_id: [number + 1; 16],
        host: Some(name(&format!("other-{number}"))),
        ..connect_data(CONTROLLER_ANY)
    }
}

/// Connect of an admin queue.
fn admin(keep_alive_ms: u32) -> Sqe {
    let connect =
        Connect { queue: 0, entries_zero_based: 15, no_flow_control: true, deletes_queues: false, keep_alive_ms };
    DataPointer::Capsule { offset: 0, len: ConnectData::SIZE as u32 }.put(Fabrics::Connect(connect).emit(0x77))
}

/// A target whose time passes as a test wants, and its mock.
pub struct Bench {
    pub target: Target,
    pub mock: Mock,
    pub now: Time,
}

impl Bench {
    pub fn new(options: Options) -> Bench {
        Bench { target: Target::bind(options).unwrap(), mock: Mock::new(1_024), now: Time::ZERO }
    }

    pub fn turn(&mut self) {
        self.target.poll(self.now, &mut self.mock);
        self.mock.work(&mut self.target);
        self.target.flush();
    }

    /// Time passes, and what is due happens.
    fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_ms(1_000 * seconds);
        while let Some(at) = self.target.deadline().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.turn();
        }
        self.now = until;
        self.turn();
    }

    /// What a host does, while the target works.
    pub fn with<T: Send + 'static>(&mut self, host: impl FnOnce(std::net::SocketAddr) -> T + Send + 'static) -> T {
        let address = self.target.addresses()[0];
        let host = std::thread::spawn(move || host(address));
        let begin = Instant::now();
        while !host.is_finished() {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.target.statistics());
            self.turn();
        }
        host.join().unwrap()
    }

    /// What Connect of an admin queue ends with; the connection stays.
    fn connect(&mut self, data: &ConnectData, keep_alive_ms: u32) -> (Raw, Status) {
        let data = data.clone();
        self.with(move |address| {
            let mut raw = Raw::initialized(address, PLAIN);
            raw.send(&Pdu::CapsuleCmd(admin(keep_alive_ms)), &data.to_bytes());
            let status = raw.response().status;
            (raw, status)
        })
    }
}

/// Bare connections: 300 at once, each opened again when it is closed. Without places of their own and the oldest
/// giving way, of 50 tries of another host none gets in.
#[test]
fn connections_that_say_nothing_keep_no_host_out() {
    let served = Served::start(Options::new(crate::nvme_tcp::mock::subsystem(), 4..20), 8);
    let (_admin, mut standing) = Raw::queue(served.address, PLAIN);
    let mut crowd: Vec<_> = (0..300).map(|_| Raw::open(served.address)).collect();
    let (mut got_in, begin) = (0, Instant::now());
    for i in 0..50 {
        // As many come again as can have been closed.
        for bare in crowd.iter_mut().skip(i * 6).take(6) {
            *bare = Raw::open(served.address);
        }
        let mut raw = Raw::open(served.address);
        raw.send(&Pdu::IcReq(PLAIN), &[]);
        if matches!(raw.receive(), Reply::Pdu(Pdu::IcResp(_), _)) {
            raw.send(&Pdu::CapsuleCmd(connect_command(0)), &other(i as u8).to_bytes());
            got_in += u32::from(matches!(raw.receive(), Reply::Pdu(Pdu::CapsuleResp(_), _)));
        }
        still_works(&mut standing);
    }
    println!("{got_in} of 50 hosts got in beside 300 bare connections, in {:?}", begin.elapsed());
    assert_eq!(got_in, 50);
    let (statistics, _) = served.stop();
    assert!(statistics.displaced >= 236 && statistics.refused == 0, "{statistics:?}");
    assert!(statistics.open <= 256, "{statistics:?}");
}

/// The oldest one of the address that has most of them goes: others' handshakes are not disturbed.
#[test]
fn a_crowd_at_one_address_displaces_its_own() {
    let mut bench = Bench::new(Options { unconnected_max: 8, ..options() });
    let here = bench.with(|address| {
        let socket = std::net::TcpStream::connect(address).unwrap();
        (socket, (0..40).map(|_| Raw::open_from([127, 0, 0, 2], address)).collect::<Vec<_>>())
    });
    bench.turn();
    assert_eq!((bench.target.statistics().open, bench.target.statistics().displaced), (8, 33));
    let (mut socket, crowd) = here;
    let begin = Instant::now();
    socket.set_nonblocking(true).unwrap();
    // The first of all is there still.
    let mut byte = [0];
    let read = std::io::Read::read(&mut socket, &mut byte);
    assert!(
        matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
        "{read:?}, {:?}",
        begin.elapsed()
    );
    drop(crowd);
}

/// Connects with Keep Alive Timeout 0, and silence: the places go to hosts that come.
#[test]
fn silent_controllers_give_way() {
    let mut bench = Bench::new(Options { controllers_per_address_max: 4, controllers_per_host_max: 4, ..options() });
    let held: Vec<_> = (0..4).map(|number| bench.connect(&other(number), 0)).collect();
    assert!(held.iter().all(|(_, status)| *status == Status::SUCCESS));
    assert_eq!(bench.connect(&other(10), 0).1, fabrics::status::CONTROLLER_BUSY, "they have just come");
    bench.pass(11);
    let (_new, status) = bench.connect(&other(11), 5_000);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!((bench.target.statistics().displaced, bench.target.statistics().controllers), (1, 4));
    // The new one says when it is to be given up: it is never the one. With I/O queues it takes two minutes of silence.
    let enabled = bench.with(|address| Raw::queue(address, PLAIN));
    let more: Vec<_> = (12..14).map(|number| bench.connect(&other(number), 0)).collect();
    assert!(more.iter().all(|(_, status)| *status == Status::SUCCESS));
    assert_eq!(bench.connect(&other(14), 0).1, fabrics::status::CONTROLLER_BUSY);
    bench.pass(121);
    assert_eq!(bench.target.statistics().keep_alive_expired, 1);
    let fresh: Vec<_> = (20..24).map(|number| bench.connect(&other(number), 0)).collect();
    assert!(fresh.iter().all(|(_, status)| *status == Status::SUCCESS));
    drop((held, enabled, more));
}

#[test]
fn controllers_are_bounded_by_host_and_by_address() {
    let mut bench = Bench::new(Options::new(crate::nvme_tcp::mock::subsystem(), 4..20));
    let (most_of_host, most_of_address) = (8, 12);
    let mut held = Vec::new();
    for number in 0..most_of_host {
        let (raw, status) = bench.connect(&other(0), 5_000);
        assert_eq!(status, Status::SUCCESS, "{number}");
        held.push(raw);
    }
    assert_eq!(bench.connect(&other(0), 5_000).1, fabrics::status::CONTROLLER_BUSY);
    for number in most_of_host..most_of_address {
        let (raw, status) = bench.connect(&other(number), 5_000);
        assert_eq!(status, Status::SUCCESS, "{number}");
        held.push(raw);
    }
    assert_eq!(bench.connect(&other(100), 5_000).1, fabrics::status::CONTROLLER_BUSY);
    // Another address has its quarter.
    let status = bench.with(|address| {
        let mut raw = Raw::initialize(Raw::open_from([127, 0, 0, 2], address), PLAIN);
        raw.send(&Pdu::CapsuleCmd(admin(5_000)), &other(101).to_bytes());
        raw.response().status
    });
    assert_eq!(status, Status::SUCCESS);
    drop(held);
}

/// A discovery controller of a silent host ends after two minutes; before that, it gives way to a host that comes.
#[test]
fn silent_discovery_controllers_end() {
    let mut bench = Bench::new(Options { controllers_per_address_max: 16, controllers_per_host_max: 16, ..options() });
    let discovery = |number: u8| ConnectData { subsystem: crate::nvme_tcp::mock::nqn(DISCOVERY_NQN), ..other(number) };
    let held: Vec<_> = (0..16).map(|number| bench.connect(&discovery(number), 0)).collect();
    assert!(held.iter().all(|(_, status)| *status == Status::SUCCESS));
    assert_eq!(bench.connect(&discovery(16), 0).1, fabrics::status::CONTROLLER_BUSY);
    bench.pass(11);
    assert_eq!(bench.with(|address| discover(address, &host()).unwrap().len()), 1);
    assert_eq!(bench.target.statistics().displaced, 1);
    let (kept, status) = bench.connect(&discovery(17), 300_000);
    assert_eq!(status, Status::SUCCESS);
    bench.pass(121);
    assert_eq!((bench.target.statistics().keep_alive_expired, bench.target.statistics().controllers), (15, 1));
    drop((held, kept));
}

/// Queues of one controller leave places to those of others.
#[test]
fn every_controller_can_have_a_few_queues() {
    let mut bench = Bench::new(Options { connections_max: 48, unconnected_max: 16, queues_kept: 3, ..options() });
    // 32 places, of which 9 are kept for three controllers more, and 16 for discovery.
    let held = bench.with(|address| {
        let (first, id) = Raw::admin(address, PLAIN);
        let mut held = vec![first];
        let connect = |id: u16, queue: u16, kept: &mut Vec<Raw>| {
            let mut raw = Raw::initialized(address, PLAIN);
            raw.send(&Pdu::CapsuleCmd(connect_command(queue)), &connect_data(id).to_bytes());
            let status = raw.response().status;
            kept.push(raw);
            status
        };
        let taken = (1..=30).take_while(|&queue| connect(id, queue, &mut held) == Status::SUCCESS).count();
        assert_eq!(taken, 32 - 9 - 16 - 1);
        let (second, id) = Raw::admin(address, PLAIN);
        held.push(second);
        assert_eq!(connect(id, 1, &mut held), Status::SUCCESS);
        assert_eq!(connect(id, 2, &mut held), Status::SUCCESS);
        assert_eq!(connect(id, 3, &mut held), fabrics::status::CONTROLLER_BUSY);
        held
    });
    drop(held);
}

/// Capsules with data that wait for the drive count with what waits for hosts.
#[test]
fn capsules_that_wait_share_one_bound() {
    let served = Served::start(Options { backlog_bytes_max: 24 << 20, entries_max: 1_024, ..roomy() }, 64);
    let (_admin, mut good) = Raw::queue(served.address, PLAIN);
    let mut hosts = Vec::new();
    let (mut sent, begin) = (0_u64, Instant::now());
    for number in 0..8 {
        let mut controller = Controller::connect(
            served.address,
            &Host { id: [100 + number; 16], ..host() },
            &crate::nvme_tcp::mock::subsystem(),
        )
        .unwrap();
        controller.enable().unwrap();
        // Capsules whose commands never end, 8 KiB each: 8 MiB of four queues.
        let silent = Sqe::default().with_dword(0, u32::from(VENDOR_SILENT | 1));
        let mut queues: Vec<_> = (1..=4).map(|queue| controller.queue(queue, 256).unwrap()).collect();
        for queue in &mut queues {
            for _ in 0..250 {
                queue.submit(silent, Transfer::Out(vec![1; 8_192])).unwrap();
                sent += 8_192;
            }
            // The target may have ended it by then.
            let _ = queue.flush();
        }
        hosts.push((controller, queues));
        still_works(&mut good);
    }
    println!("{} MiB were sent in {:?}", sent >> 20, begin.elapsed());
    let (statistics, _) = served.stop();
    assert!(sent > 60 << 20 && statistics.stalled >= 5, "{} MiB sent, {statistics:?}", sent >> 20);
    drop(hosts);
}

/// Data that a host was asked for comes at a rate, or not at all: a byte now and then is not progress.
#[test]
fn a_transfer_that_drips_comes_to_an_end() {
    let mut bench = Bench::new(options());
    let (_admin, mut raw) = bench.with(|address| {
        let (admin, mut raw) = Raw::queue(address, PLAIN);
        raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 16 * BLOCK as u32 }.put(Sqe::write(1, 1, 15))), &[]);
        assert!(matches!(raw.receive(), Reply::Pdu(Pdu::R2t(_), _)));
        (admin, raw)
    });
    let mut offset = 0;
    for seconds in (0..25).step_by(4) {
        let data = tidewater_wire::nvme_tcp::DataPdu { cid: 1, tag: 0, offset, len: 4, last: false, success: false };
        raw.send(&Pdu::H2cData(data), &[0; 4]);
        offset += 4;
        bench.pass(4);
        assert_eq!(bench.target.statistics().stalled, 0, "{seconds} s");
    }
    // 64 KiB at 64 KiB a second, and 30 s.
    bench.pass(4);
    assert_eq!((bench.target.statistics().stalled, bench.mock.lost), (1, 1));
}

/// And so for what it is to take.
#[test]
fn a_host_that_takes_a_little_now_and_then_is_given_up() {
    let mut bench = Bench::new(roomy());
    let (_admin, mut raw) = bench.with(|address| {
        let (admin, mut raw) = Raw::queue(address, PLAIN);
        // 15 reads of 4 MiB: more than any socket buffers.
        for cid in 0..15 {
            raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 4 << 20 }.put(Sqe::read(cid, 0, 1_023))), &[]);
        }
        (admin, raw)
    });
    let begin = Instant::now();
    while bench.target.statistics().commands < 18 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", bench.target.statistics());
        bench.turn();
    }
    for _ in 0..10 {
        raw.take(4);
        bench.pass(4);
    }
    assert_eq!(bench.target.statistics().stalled, 1);
}

/// Whether a command waits for its host or for the drive, an admin queue goes on: its data is brought before a slot is
/// taken.
#[test]
fn admin_commands_hold_no_slot_while_their_data_is_awaited() {
    let mut bench = Bench::new(options());
    let (mut raw, _) = bench.with(|address| Raw::admin(address, PLAIN));
    let enabled = bench.target.statistics().commands;
    // Set Features of the Timestamp: 8 bytes, by the transport.
    let set = Sqe::default().with_dword(0, 0x0009_0009).with_dword(10, 0x0E);
    raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 8 }.put(set)), &[]);
    let (mut raw, tag) = bench.with(move |_| match raw.receive() {
        Reply::Pdu(Pdu::R2t(r2t), _) => (raw, r2t.tag),
        other => panic!("{other:?}"),
    });
    assert_eq!(bench.target.statistics().commands, enabled, "the command has not begun");
    let data = tidewater_wire::nvme_tcp::DataPdu { cid: 9, tag, offset: 0, len: 8, last: true, success: false };
    raw.send(&Pdu::H2cData(data), &[5; 8]);
    assert_eq!(bench.with(move |_| raw.response()).status, Status::SUCCESS);
    assert_eq!(bench.target.statistics().commands, enabled + 1);
}

/// The reference has the numbers that count.
#[test]
fn the_reference_names_the_limits() {
    let reference = include_str!("../../../../docs/reference/nvme.md");
    let options = Options::new(crate::nvme_tcp::mock::subsystem(), 0..16);
    let seconds = |time: Duration| time.as_ns() / 1_000_000_000;
    let (idle, silence) = (seconds(options.idle_time_max), seconds(options.silence_max));
    let rate = format!("{} KiB in a second", options.rate_min >> 10);
    let stall = seconds(options.stall_time_max);
    for row in [
        format!("| connections | {} |", options.connections_max),
        format!("| connections that are no queue yet | {} of these;", options.unconnected_max),
        format!("| connections that are kept for the queues of each controller | {} |", options.queues_kept),
        format!(
            "| controllers | {0}, and 16 discovery controllers; of one host (name and identifier) {1}, of one address \
             {2} of each |",
            options.functions.len(),
            options.controllers_per_host_max,
            options.controllers_per_address_max
        ),
        format!(
            "| controllers with a Keep Alive Timeout of 0, or above {silence} s | give way after {idle} s of silence"
        ),
        format!("| discovery controllers without a Keep Alive Timeout | end after {silence} s of silence |"),
        format!("| time from the connection to the end of Connect | {} s |", seconds(options.handshake_time_max)),
        format!("| time for a PDU from its first byte to its last | {stall} s |"),
        format!("| time for data that an R2T asks for | {stall} s, and what all that was asked for takes at {rate} |"),
        format!("| bytes for a host that it does not take | {rate}, looked at every {stall} s |"),
        format!(
            "| bytes that wait for hosts, or in capsules for the drive | {} MiB in all;",
            options.backlog_bytes_max >> 20
        ),
    ] {
        assert!(reference.contains(&row), "{row}");
    }
}
