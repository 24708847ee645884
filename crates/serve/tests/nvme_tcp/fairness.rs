//! A host that does one thing at a time, beside hosts that want all of the drive: it goes on. The rates of all attacks
//! are the long form's.

use crate::nvme_tcp::crowds::Bench;
use crate::nvme_tcp::mock::{BLOCK, Served, host, options};
use crate::nvme_tcp::raw::{PLAIN, Raw, connect_command, connect_data};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidewater_base::Duration as SimulatedDuration;
use tidewater_core::profile::builtin;
use tidewater_driver::nvme_tcp::{Controller, Host, Queue, Transfer, discover};
use tidewater_serve::engine::{Backing, NamespaceSetup, Setup, TcpSetup};
use tidewater_testkit::profile::with;
use tidewater_testkit::{PATIENCE, served};
use tidewater_wire::fabrics::{ConnectData, DataPointer, Nqn, property};
use tidewater_wire::nvme::{AdminCommand, Sqe, Status};
use tidewater_wire::nvme_tcp::Pdu;

/// Bytes of a long command.
const LONG: usize = 128 << 10;

/// Reads whose host takes nothing are worked on up to a bound. Once it takes their data, each of them ends.
#[test]
fn reads_of_a_host_that_takes_no_data_wait_and_end_when_it_does() {
    const BLOCKS: usize = 256; // 1 MiB
    let served = Served::start(options(), BLOCKS);
    let greedy = served.controller(&Host { id: [7; 16], ..host() });
    let mut queues: Vec<Queue> = (1..=8).map(|queue| greedy.queue(queue, 16).unwrap()).collect();
    let before = served.commands();
    for queue in &mut queues {
        for _ in 0..15 {
            queue.submit(Sqe::read(0, 0, BLOCKS as u16 - 1), Transfer::In((BLOCKS * BLOCK) as u32)).unwrap();
        }
        queue.flush().unwrap();
    }
    let start = Instant::now();
    while served.commands() < before + 120 {
        assert!(start.elapsed() < PATIENCE, "{} commands have come", served.commands());
        std::thread::yield_now();
    }
    // Another queue of that host, which it takes data of, goes on too.
    let mut other = greedy.queue(9, 8).unwrap();
    let good = served.controller(&host());
    let mut good = good.queue(1, 8).unwrap();
    for _ in 0..50 {
        for queue in [&mut good, &mut other] {
            queue.call(Sqe::read(0, 0, 0), Transfer::In(BLOCK as u32)).unwrap().good().unwrap();
        }
    }
    // Of its 120 reads, 8 and one for each queue at most, and what the sockets hold: up to 6 MiB each.
    let reads = served.reads() - 100;
    assert!((8..=70).contains(&reads), "{reads} of 120 reads were carried out");
    for queue in &mut queues {
        for _ in 0..15 {
            assert_eq!(queue.wait().unwrap().good().unwrap().data.len(), BLOCKS * BLOCK);
        }
    }
    // It is counted once the answer is on its way.
    while served.reads() < 220 {
        assert!(start.elapsed() < 2 * PATIENCE, "{} reads", served.reads());
        std::thread::yield_now();
    }
    let (statistics, _) = served.stop();
    assert_eq!((statistics.stalled, statistics.fatal), (0, 0));
}

/// A bench with two hosts, of which the first has sent 60 reads of 64 KiB at once: their identifiers.
fn with_many_reads() -> (Bench, Queue, [Controller; 2], Vec<u16>) {
    let mut bench = Bench::new(options());
    let (mut many, controllers) = bench.with(|address| {
        let connect = |id: u8| {
            let host = Host { id: [id; 16], ..host() };
            let mut controller = Controller::connect(address, &host, &crate::nvme_tcp::mock::subsystem()).unwrap();
            controller.enable().unwrap();
            controller
        };
        let controllers = [connect(7), connect(8)];
        (controllers[0].queue(1, 64).unwrap(), controllers)
    });
    // The other host has been silent for long.
    bench.now += SimulatedDuration::from_ms(1);
    let read = |_| many.submit(Sqe::read(0, 0, 15), Transfer::In(16 * BLOCK as u32)).unwrap();
    let identifiers = (0..60).map(read).collect();
    many.flush().unwrap();
    (bench, many, controllers, identifiers)
}

/// Of many commands that have come at once, others' connections are looked at between a few and the next.
#[test]
fn a_host_that_sends_many_commands_does_not_have_all_of_them_done_at_once() {
    let (mut bench, mut many, _controllers, _) = with_many_reads();
    let start = Instant::now();
    while bench.mock.reads < 60 {
        assert!(start.elapsed() < PATIENCE, "{} reads", bench.mock.reads);
        let before = bench.mock.reads;
        bench.turn();
        assert!(bench.mock.reads <= before + 2, "{} reads of 64 KiB in a turn", bench.mock.reads - before);
    }
    bench.with(move |_| (0..60).for_each(|_| drop(many.wait().unwrap().good().unwrap())));
}

/// Behind a long command a host waits until others have had as many turns, or until they are silent.
#[test]
fn a_long_command_is_made_up_for_by_turns_of_others() {
    let mut bench = Bench::new(options());
    let (mut long, mut short, _controllers) = bench.with(|address| {
        let connect = |id: u8| {
            let host = Host { id: [id; 16], ..host() };
            let mut controller = Controller::connect(address, &host, &crate::nvme_tcp::mock::subsystem()).unwrap();
            controller.enable().unwrap();
            controller
        };
        let (long, short) = (connect(7), connect(8));
        (long.queue(1, 8).unwrap(), short.queue(1, 64).unwrap(), (long, short))
    });
    let start = Instant::now();
    let until_reads = |bench: &mut Bench, count: u64| {
        while bench.mock.reads < count {
            assert!(start.elapsed() < PATIENCE, "{} reads", bench.mock.reads);
            bench.turn();
        }
    };
    // Three of 1 MiB, which is 16 turns. The first begins at once.
    for _ in 0..3 {
        long.submit(Sqe::read(0, 0, 255), Transfer::In((256 * BLOCK) as u32)).unwrap();
    }
    long.flush().unwrap();
    until_reads(&mut bench, 1);
    let mut others = 0;
    while bench.mock.long_reads < 2 {
        short.submit(Sqe::read(0, 0, 0), Transfer::In(BLOCK as u32)).unwrap();
        short.flush().unwrap();
        others += 1;
        let reads = others + bench.mock.long_reads;
        until_reads(&mut bench, reads);
    }
    assert!((14..=17).contains(&others), "{others} reads of another host between two long ones");
    until_reads(&mut bench, others + 2);
    bench.turn();
    bench.now += SimulatedDuration::from_us(150);
    (0..100).for_each(|_| bench.turn());
    assert_eq!(bench.mock.long_reads, 2, "another host may come yet");
    bench.now += SimulatedDuration::from_us(50);
    (0..2).for_each(|_| bench.turn());
    assert_eq!(bench.mock.long_reads, 3, "none comes");
    bench.with(move |_| (0..3).for_each(|_| drop(long.wait().unwrap().good().unwrap())));
}

/// Abort found what the drive works on alone: a read that waited for its turn was "not found", and was done later.
#[test]
fn abort_finds_a_read_that_waits_for_its_turn() {
    let (mut bench, mut many, [mut controller, _other], identifiers) = with_many_reads();
    let (start, before) = (Instant::now(), bench.target.statistics().commands);
    while bench.target.statistics().commands < before + 60 {
        assert!(start.elapsed() < PATIENCE, "{:?}", bench.target.statistics());
        bench.turn();
    }
    let (last, begun) = (identifiers[59], bench.mock.reads);
    assert!(begun < 50, "{begun} of 60 reads did not wait");
    // One that waits, and one that there is not: the drive is asked for it, and this one takes no Abort.
    for cid in [last, 0x7777] {
        let abort = AdminCommand::Abort { queue: 1, cid }.emit(0);
        controller.admin.submit(abort, Transfer::None).unwrap();
    }
    controller.admin.flush().unwrap();
    let (answers, ends) = bench.with(move |_| {
        let answers = [(); 2].map(|()| controller.admin.wait().unwrap());
        (answers, (0..60).map(|_| many.wait().unwrap()).collect::<Vec<_>>())
    });
    assert_eq!((answers[0].status, answers[0].value as u32 & 1), (Status::SUCCESS, 0));
    assert_eq!(answers[1].status, Status::INVALID_OPCODE);
    let aborted: Vec<u16> =
        ends.iter().filter(|end| end.status == Status::ABORT_REQUESTED).map(|end| end.cid).collect();
    assert_eq!(aborted, [last]);
    assert_eq!(ends.iter().filter(|end| end.status == Status::SUCCESS).count(), 59);
    assert_eq!(bench.mock.reads, 59, "the drive knows nothing of it");
}

/// A whole drive behind NVMe/TCP.
struct Drive {
    served: served::Drive,
    address: SocketAddr,
    subsystem: Nqn,
}

impl Drive {
    fn start(folder: &std::path::Path) -> Drive {
        let generic = builtin("generic").expect("it is built in");
        let profile = with(generic, &["host.block_size=4096", "host.queues=32", "serve.timing=none"]);
        let nvme_tcp = Some(TcpSetup {
            address: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            insecure_bind: false,
            allowed_hosts: Vec::new(),
            allow_destructive: false,
        });
        let namespaces = vec![NamespaceSetup { bytes: None, block_shift: 12 }];
        let size = Some(256 << 20);
        let setup = Setup { nvme_tcp, namespaces, size, ..served::setup(profile, folder, Backing::Memory, 0) };
        let served = served::Drive::start(&setup);
        let (address, name) = served.ready.nvme_tcp.clone().unwrap();
        Drive { served, address, subsystem: Nqn::new(&name).unwrap() }
    }

    fn victim(&self) -> Victim {
        Victim { address: self.address, subsystem: self.subsystem.clone() }
    }
}

/// The drive, as attackers know it.
#[derive(Clone)]
struct Victim {
    address: SocketAddr,
    subsystem: Nqn,
}

impl Victim {
    fn controller(&self, id: u8) -> Controller {
        let name = Nqn::new("nqn.2026-01.io.example:attacker").unwrap();
        let host = Host { time_out: PATIENCE, ..Host::new(name, [id; 16]) };
        let mut controller = Controller::connect(self.address, &host, &self.subsystem).unwrap();
        controller.enable().unwrap();
        controller
    }

    fn queues(&self, count: u16, entries: u16) -> (Controller, Vec<Queue>) {
        let controller = self.controller(7);
        let queues = (1..=count).map(|queue| controller.queue(queue, entries).unwrap()).collect();
        (controller, queues)
    }

    /// Blocks from 0 on that are read and written.
    fn blocks(&self) -> u64 {
        let namespace = self.controller(8).identify(0, 1).unwrap();
        u64::from_le_bytes(*namespace.first_chunk().unwrap())
    }

    /// Fills queues once, and takes nothing.
    fn fill(&self, stop: &AtomicBool, sqe: Sqe, transfer: fn() -> Transfer) {
        let (_controller, mut queues) = self.queues(30, 129);
        for queue in &mut queues {
            while queue.submit(sqe, transfer()).is_some() {}
            // A device that takes no more is what an attacker expects.
            let _ = queue.flush();
        }
        until(stop, || std::thread::sleep(Duration::from_millis(5)));
    }

    /// Keeps queues full.
    fn flood(&self, stop: &AtomicBool, (count, depth): (u16, u16), sqe: Sqe, transfer: fn() -> Transfer) {
        let (_controller, mut queues) = self.queues(count, depth + 1);
        for queue in &mut queues {
            while queue.submit(sqe, transfer()).is_some() {}
            queue.flush().unwrap();
        }
        until(stop, || {
            for queue in &mut queues {
                let ended = queue.wait().unwrap();
                queue.recycle(ended.data);
                while let Some(ended) = queue.ready() {
                    queue.recycle(ended.data);
                }
                while queue.submit(sqe, transfer()).is_some() {}
                queue.flush().unwrap();
            }
        });
    }

    /// A bare I/O queue, and the admin queue that keeps its controller.
    fn raw(&self) -> Option<(Controller, Raw)> {
        let controller = self.controller(9);
        let mut raw = Raw::initialized(self.address, PLAIN);
        let data = ConnectData {
            host_id: [9; 16],
            subsystem: self.subsystem.clone(),
            host: Nqn::new("nqn.2026-01.io.example:attacker"),
            ..connect_data(controller.id())
        };
        raw.send(&Pdu::CapsuleCmd(connect_command(1)), &data.to_bytes());
        raw.response().status.is_success().then_some((controller, raw))
    }
}

fn until(stop: &AtomicBool, mut turn: impl FnMut()) {
    while !stop.load(Ordering::Relaxed) {
        turn();
    }
}

fn long_read() -> Sqe {
    Sqe::read(0, 0, (LONG / BLOCK - 1) as u16)
}

type Attack = fn(&Victim, &AtomicBool);

const ATTACKS: [(&str, Attack); 14] = [
    ("3,840 writes of 128 KiB, data withheld", |victim, stop| {
        victim.fill(stop, Sqe::write(0, 0, (LONG / BLOCK - 1) as u16), || Transfer::Out(vec![1; LONG]));
    }),
    ("3,840 reads of 128 KiB, not taken", |victim, stop| {
        victim.fill(stop, long_read(), || Transfer::In(LONG as u32));
    }),
    ("flushes, depth 480", |victim, stop| victim.flood(stop, (15, 32), Sqe::flush(0), || Transfer::None)),
    ("reads of 128 KiB, depth 256", |victim, stop| {
        victim.flood(stop, (8, 32), long_read(), || Transfer::In(LONG as u32));
    }),
    ("writes of 8 KiB, depth 256", |victim, stop| {
        victim.flood(stop, (8, 32), Sqe::write(0, 0, 1), || Transfer::Out(vec![2; 2 * BLOCK]));
    }),
    ("write zeroes, depth 32", |victim, stop| {
        let blocks = victim.blocks().min(8192) as u16;
        victim.flood(stop, (2, 16), Sqe::write_zeroes(0, 0, blocks - 1, false), || Transfer::None);
    }),
    ("verify, depth 32", |victim, stop| {
        let blocks = victim.blocks().min(8192) as u16;
        victim.flood(stop, (2, 16), Sqe::verify(0, 0, blocks - 1), || Transfer::None);
    }),
    ("bare connections, without end", |victim, stop| {
        let mut open = Vec::new();
        until(stop, || {
            open.extend(TcpStream::connect(victim.address));
            if open.len() > 400 {
                open.drain(..200);
            }
        });
    }),
    ("controllers, made and left", |victim, stop| until(stop, || drop(victim.controller(7)))),
    ("controller resets", |victim, stop| {
        let mut controller = victim.controller(7);
        until(stop, || {
            controller.set_property(property::CC, 0).unwrap();
            controller.enable().unwrap();
        });
    }),
    ("Identify, without end", |victim, stop| {
        let mut controller = victim.controller(7);
        until(stop, || drop(controller.identify(1, 0).unwrap()));
    }),
    ("discovery, without end", |victim, stop| {
        let host = Host { time_out: PATIENCE, ..Host::new(Nqn::new("nqn.2026-01.io.example:x").unwrap(), [5; 16]) };
        until(stop, || drop(discover(victim.address, &host)));
    }),
    ("commands byte by byte", |victim, stop| {
        let Some((_admin, mut raw)) = victim.raw() else { return };
        let sqe = DataPointer::Transport { len: BLOCK as u32 }.put(Sqe::read(1, 0, 0));
        let bytes = raw.bytes(&Pdu::CapsuleCmd(sqe), &[]);
        until(stop, || {
            bytes.iter().for_each(|&byte| raw.send_bytes(&[byte]));
            let _ = raw.receive();
        });
    }),
    ("garbage", |victim, stop| {
        until(stop, || {
            let Some((_admin, mut raw)) = victim.raw() else { return };
            raw.send_bytes(&tidewater_testkit::pattern(4, 64 << 10));
        });
    }),
];

/// A host that reads a block again and again: how often, and the longest wait.
struct Good {
    _controller: Controller,
    queue: Queue,
}

impl Good {
    fn connect(drive: &Drive) -> Good {
        let mut controller = Controller::connect(drive.address, &host(), &drive.subsystem).unwrap();
        controller.enable().unwrap();
        let queue = controller.queue(1, 8).unwrap();
        Good { _controller: controller, queue }
    }

    fn read(&mut self) -> Duration {
        let start = Instant::now();
        let ended = self.queue.call(Sqe::read(0, 3, 0), Transfer::In(BLOCK as u32)).unwrap().good().unwrap();
        self.queue.recycle(ended.data);
        start.elapsed()
    }

    /// Reads in a time, and the longest.
    fn read_for(&mut self, time: Duration) -> (u64, Duration) {
        let (start, mut count, mut worst) = (Instant::now(), 0, Duration::ZERO);
        while start.elapsed() < time {
            worst = worst.max(self.read());
            count += 1;
        }
        (count, worst)
    }
}

/// Runs an attack beside what a good host does.
fn beside<T>(attack: Attack, drive: &Drive, good: impl FnOnce() -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let (victim, stopped) = (drive.victim(), Arc::clone(&stop));
    let attacker = std::thread::spawn(move || attack(&victim, &stopped));
    let done = good();
    stop.store(true, Ordering::Relaxed);
    attacker.join().expect("the attacker ends");
    done
}

/// No command of the good host fails or is kept out, beside the three that cost it most.
#[test]
fn a_good_host_goes_on_beside_the_worst_attacks() {
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(folder.path());
    let mut good = Good::connect(&drive);
    for (name, attack) in &ATTACKS[..3] {
        let worst = beside(*attack, &drive, || (0..300).map(|_| good.read()).max());
        println!("{name}: the longest of 300 reads took {:?}", worst.unwrap_or_default());
    }
    drive.served.stop();
}

#[test]
#[ignore = "three minutes"]
fn torture_rates_of_a_good_host_beside_each_attack() {
    const TIME: Duration = Duration::from_secs(6);
    let folder = tempfile::tempdir().unwrap();
    let drive = Drive::start(folder.path());
    let mut good = Good::connect(&drive);
    good.read_for(TIME / 4);
    let mut worst_share = f64::MAX;
    println!("| attack | commands/s | of alone | worst gap, ms | alone, ms |");
    for (name, attack) in ATTACKS {
        // Alone before and after, so that a machine that becomes slower is no attack's fault.
        let before = good.read_for(TIME / 2);
        let (count, worst) = beside(attack, &drive, || good.read_for(TIME));
        let after = good.read_for(TIME / 2);
        let alone = before.0 + after.0;
        let share = count as f64 / alone as f64;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let rate = count as f64 / TIME.as_secs_f64();
        println!("| {name} | {rate:.0} | {share:.2} | {:.1} | {:.1} |", ms(worst), ms(before.1.max(after.1)));
        worst_share = worst_share.min(share);
    }
    assert!(worst_share >= 1.0 / 3.0, "{worst_share:.2} of its rate alone: is the machine idle?");
    drive.served.stop();
}
