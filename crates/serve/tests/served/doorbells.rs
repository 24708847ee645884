//! Doorbells in memory, queues in the controller's memory, and many queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile::{Access, Doorbells, Timing};
use tidewater_driver::vfio_user::{Nvme, Options, QueuePair};
use tidewater_serve::engine::Backing;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe};
use tidewater_wire::vfio_user::region;

/// Counts how often this machine lets a thread wait that has nothing to do but wake up.
struct Stalls {
    over: Arc<AtomicBool>,
    counts: JoinHandle<u32>,
}

impl Stalls {
    fn watch() -> Stalls {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let counts = std::thread::spawn(move || {
            let mut stalls = 0;
            while !seen.load(Ordering::Relaxed) {
                let begin = Instant::now();
                std::thread::sleep(Duration::from_millis(5));
                stalls += u32::from(begin.elapsed() > Duration::from_millis(50));
            }
            stalls
        });
        Stalls { over, counts }
    }

    fn end(self) -> u32 {
        self.over.store(true, Ordering::Relaxed);
        self.counts.join().expect("no panic")
    }
}

/// A device that sleeps is woken by each doorbell that is rung in memory, whenever that is: no command waits for the
/// time at which the device would look by itself.
fn rounds(number: u64, seed: u64, doorbells: Doorbells) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = tiny(Timing::None);
    profile.serve.doorbells = doorbells;
    let drive = Drive::start(&setup(profile, folder.path(), Backing::Memory, 1));
    let stalls = Stalls::watch();
    let mut host = Host::attach_with_shadow_doorbells(&drive, 0);
    host.write(0, &blocks_of(0, 1, 1));
    let mut rng = Rng::new(seed, b"doorbells");
    let sqe = host.buffer.attach(Sqe::read(1, 0, 0).with_nsid(1), BLOCK as u64);
    let before = host.pair.messages();
    let (mut slow, mut late) = (0u32, 0u32);
    for round in 0..number {
        // Around the time after which the device goes to sleep.
        let pause = Duration::from_nanos(match rng.below(8) {
            0 => 0,
            1 => rng.below(1_000_000),
            2 => rng.below(10_000),
            _ => 30_000 + rng.below(80_000),
        });
        let begin = Instant::now();
        while begin.elapsed() < pause {
            std::hint::spin_loop();
        }
        let begin = Instant::now();
        host.pair.run(&sqe, PATIENCE).unwrap_or_else(|error| panic!("round {round}: {error}"));
        match begin.elapsed().as_millis() {
            50..185 => slow += 1,
            185.. => late += 1,
            _ => {}
        }
    }
    // A wake-up that is lost shows as the device's longest sleep, 200 ms. A machine that is busy shows shorter times as
    // well, or keeps a thread that only sleeps waiting.
    let stalls = stalls.end();
    assert!(
        late <= 2 + slow + stalls,
        "{late} commands of {number} waited until the device looked by itself; {slow} were slow, {stalls} stalls"
    );
    let messages = host.pair.messages() - before;
    println!("{number} commands took {messages} messages");
    let is_trapped = doorbells == Doorbells::Trapped;
    assert_eq!(
        messages > 0,
        is_trapped,
        "trapped: the device never slept, and this has shown nothing; mapped: no message"
    );
}

#[test]
fn no_doorbell_is_lost_while_the_device_goes_to_sleep() {
    rounds(6_000, 1, Doorbells::Trapped);
    rounds(6_000, 1, Doorbells::Mapped);
}

#[test]
#[ignore = "long: make torture"]
fn torture_no_doorbell_is_lost_while_the_device_goes_to_sleep() {
    rounds(1_000_000, 2, Doorbells::Trapped);
    rounds(1_000_000, 2, Doorbells::Mapped);
}

fn many_queues(shadow: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = tiny(Timing::None);
    profile.host.queues = 16;
    let drive = Drive::start(&setup(profile, folder.path(), Backing::Memory, 1));
    let mut nvme = Nvme::start(drive.client(0), 16 << 20).expect("a controller");
    if shadow {
        nvme.use_shadow_doorbells().expect("shadow doorbells");
    }
    let pairs: Vec<_> = (0..16u16)
        .map(|i| {
            // Queues that are short, and not a power of two.
            let pair = nvme.queue_pair(3 + i, None).expect("a queue pair");
            (pair, nvme.buffer(8 * BLOCK as u64).expect("memory"))
        })
        .collect();
    std::thread::scope(|scope| {
        for (mut pair, buffer) in pairs {
            scope.spawn(move || {
                let id = u64::from(pair.id());
                let mut rng = Rng::new(id, b"queues");
                for round in 1..=60 {
                    let first = id * 64 + rng.below(56);
                    let data = blocks_of(first, 8, id << 32 | round);
                    buffer.write(0, &data);
                    let len = data.len() as u64;
                    pair.run(&buffer.attach(Sqe::write(1, first, 7).with_nsid(1), len), PATIENCE).expect("a write");
                    buffer.write(0, &vec![0; data.len()]);
                    pair.run(&buffer.attach(Sqe::read(2, first, 7).with_nsid(1), len), PATIENCE).expect("a read");
                    let mut found = vec![0; data.len()];
                    buffer.read(0, &mut found);
                    assert!(found == data, "queue {id}, round {round}");
                    std::thread::sleep(Duration::from_micros(rng.below(200)));
                }
            });
        }
    });
    assert_eq!((drive.count("writes"), drive.count("reads"), drive.count("errors")), (960, 960, 0));
}

#[test]
fn sixteen_queue_pairs_of_short_queues_serve_a_thread_each() {
    many_queues(false);
    many_queues(true);
}

/// Memory that has no descriptor is reached by messages, doorbells in it too: also while another function keeps the
/// device awake.
#[test]
fn doorbells_that_only_messages_reach_are_heard() {
    for (shadow, busy) in [(false, false), (true, false), (true, true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 2));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if busy {
                scope.spawn(|| {
                    let mut other = Host::attach(&drive, 1);
                    while !done.load(Ordering::Relaxed) {
                        drop(other.read(0, BLOCK));
                    }
                });
            }
            let by_message = Options { memory: 8 << 20, memory_by_message: true, ..Options::default() };
            let nvme = Nvme::start_with(drive.client(0), by_message).expect("a controller");
            let mut host = Host::over(nvme, shadow);
            // More than the queues hold.
            for round in 1..100 {
                let data = blocks_of(8 * (round % 9), 8, round);
                host.write(8 * (round % 9), &data);
                assert!(host.read(8 * (round % 9), data.len()) == data, "round {round}");
            }
            // Many at once.
            let read = host.buffer.attach(Sqe::read(1, 0, 0).with_nsid(1), BLOCK as u64);
            for _ in 0..4 {
                for cid in 0..50u32 {
                    assert!(host.pair.submit(&read.with_dword(0, read.dwords()[0] & 0xFFFF | cid << 16)));
                }
                host.pair.ring().expect("doorbells");
                let until = Instant::now() + PATIENCE;
                let mut taken = 0;
                while taken < 50 {
                    assert!(Instant::now() < until, "{taken} of 50 commands");
                    taken += u32::from(host.pair.poll().is_some());
                    host.nvme.socket().serve_memory(Duration::from_micros(20)).expect("memory");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// A queue full of commands at once, round after round.
#[test]
fn full_queues_are_worked_off() {
    let folder = tempfile::tempdir().expect("a folder");
    for timing in [Timing::None, Timing::Model] {
        let drive = Drive::start(&setup(tiny(timing), folder.path(), Backing::Memory, 1));
        let mut host = Host::attach_with_shadow_doorbells(&drive, 0);
        let sqe = host.buffer.attach(Sqe::read(1, 0, 7).with_nsid(1), 8 * BLOCK as u64);
        for round in 0..50u16 {
            let mut under_way = Vec::new();
            let mut cid = 0;
            while host.pair.submit(&sqe.with_cid(cid)) {
                under_way.push(cid);
                cid += 1;
            }
            assert_eq!(under_way.len(), 63, "round {round}");
            host.pair.ring().expect("a doorbell");
            let begin = Instant::now();
            while !under_way.is_empty() {
                assert!(begin.elapsed() < PATIENCE, "{} commands are missing", under_way.len());
                while let Some(cqe) = host.pair.poll() {
                    assert!(cqe.status.is_success(), "{cqe:?}");
                    let place = under_way.iter().position(|cid| *cid == cqe.cid).expect("completed once");
                    under_way.swap_remove(place);
                }
                host.pair.ring().expect("a doorbell");
            }
        }
    }
}

/// Both queues in the controller's memory buffer, behind messages.
#[test]
fn queues_in_the_controllers_memory_work() {
    let folder = tempfile::tempdir().expect("a folder");
    for access in [Access::Mapped, Access::Trapped] {
        let mut profile = tiny(Timing::None);
        profile.serve.cmb_size = 1 << 20;
        profile.serve.access = access;
        let drive = Drive::start(&setup(profile, folder.path(), Backing::Memory, 1));
        let mut host = Host::attach(&drive, 0);
        // BAR2 at an address of its own, and its buffer enabled for the controller (CMBMSC: CRE and CMSE).
        let bus = 0x7_0000_0000u64;
        host.nvme.socket().write(region::BAR0, offset::CMBMSC.into(), &(bus | 3).to_le_bytes()).expect("CMBMSC");
        assert_eq!(host.register(offset::CMBSTS).expect("CMBSTS"), 0);
        let (size, location) =
            (host.register(offset::CMBSZ).expect("CMBSZ"), host.register(offset::CMBLOC).expect("CMBLOC"));
        assert_eq!(size & 3, 3, "submission and completion queues");
        let unit = 4096u64 << (4 * (size >> 8 & 0xF));
        assert_eq!(u64::from(size >> 12) * unit, 1 << 20);
        let in_bar = u64::from(location >> 12) * unit;
        let entries = 8u32;
        let (sq, cq) = (in_bar, in_bar + 4096);
        let queue = |opcode: u32, address: u64, cdw11: u32| {
            Sqe::from_dwords([0; 16])
                .with_dword(0, opcode)
                .with_dword(6, address as u32)
                .with_dword(7, (address >> 32) as u32)
                .with_dword(10, (entries - 1) << 16 | 2)
                .with_dword(11, cdw11)
        };
        host.nvme.admin(queue(5, bus + 4096, 1)).expect("a completion queue");
        host.nvme.admin(queue(1, bus, 2 << 16 | 1)).expect("a submission queue");
        for round in 0..50u64 {
            let data = blocks_of(round, 8, round + 1);
            let slot = round % u64::from(entries);
            let phase = (round / u64::from(entries)).is_multiple_of(2);
            host.buffer.write(0, &data);
            let sqe = host.buffer.attach(Sqe::write(round as u16, round, 7).with_nsid(1), data.len() as u64);
            let mut client = host.nvme.socket();
            client.write(region::BAR2, sq + slot * 64, &sqe.to_bytes()).expect("an entry");
            let doorbell = |queue: u64, completion: u64| 0x1000 + (2 * queue + completion) * 4;
            let next = ((slot + 1) % u64::from(entries)) as u32;
            client.write(region::BAR0, doorbell(2, 0), &next.to_le_bytes()).expect("a doorbell");
            let begin = Instant::now();
            loop {
                let mut bytes = [0; Cqe::SIZE];
                client.read(region::BAR2, cq + slot * 16, &mut bytes).expect("an entry");
                let cqe = Cqe::from_bytes(&bytes);
                if cqe.phase == phase {
                    assert!(cqe.status.is_success() && u64::from(cqe.cid) == round, "{cqe:?}");
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "no completion in round {round}");
            }
            client.write(region::BAR0, doorbell(2, 1), &next.to_le_bytes()).expect("a doorbell");
            drop(client);
            assert!(host.read(round, data.len()) == data, "round {round}");
        }
    }
}

/// Queue pairs belong to threads: more of them than processors, each in a hurry.
#[test]
fn a_queue_pair_can_go_to_another_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 1));
    let Host { nvme, pair, .. } = Host::attach(&drive, 0);
    let mut pair: QueuePair = pair;
    for _ in 0..20 {
        pair = std::thread::spawn(move || {
            pair.run(&Sqe::flush(1).with_nsid(1), PATIENCE).expect("a flush");
            pair
        })
        .join()
        .expect("no panic");
    }
    assert_eq!(drive.count("flushes"), 20);
    drop(nvme);
}
