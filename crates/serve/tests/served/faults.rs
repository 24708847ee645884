//! Faults that the user injects through the control socket, and what the device tells of itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidewater_core::profile::Timing;
use tidewater_driver::vfio_user::{NvmeError, QueuePair};
use tidewater_ipc::SharedMemory;
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, MetricsSetup};
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe, Status, admin_opcode};
use tidewater_wire::vfio_user::region;

fn start(timing: Timing, functions: usize) -> (TempDir, Drive) {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(timing), folder.path(), Backing::Memory, functions));
    (folder, drive)
}

const BOTH: [Timing; 2] = [Timing::None, Timing::Model];

fn poll_for(pair: &mut QueuePair, time: Duration) -> Option<Cqe> {
    let begin = Instant::now();
    loop {
        match pair.poll() {
            Some(cqe) => return Some(cqe),
            None if begin.elapsed() > time => return None,
            None => std::hint::spin_loop(),
        }
    }
}

fn status<T: std::fmt::Debug>(result: Result<T, NvmeError>) -> Status {
    match result {
        Err(NvmeError::Status(status)) => status,
        other => panic!("no status: {other:?}"),
    }
}

#[test]
fn blocks_end_with_the_status_that_was_asked_for() {
    for timing in BOTH {
        let (_folder, drive) = start(timing, 1);
        let mut host = Host::attach(&drive, 0);
        let data = blocks_of(0, 32, 1);
        host.write(0, &data);
        let unrecovered = Status::UNRECOVERED_READ_ERROR.bits() & 0x7FF;
        drive.ask(&Request::FaultStatus { nsid: 1, first: 10, end: 12, status: unrecovered, count: 2 });
        assert!(host.read(0, 10 * BLOCK) == data[..10 * BLOCK]);
        assert!(host.read(12, 8 * BLOCK) == data[12 * BLOCK..20 * BLOCK]);
        for first in [3, 11] {
            assert!(status(host.try_read(first, 8 * BLOCK)).same_code(Status::UNRECOVERED_READ_ERROR));
        }
        assert!(host.read(0, data.len()) == data, "two commands were asked for");
        let fault = Status::WRITE_FAULT.bits() & 0x7FF;
        drive.ask(&Request::FaultStatus { nsid: 1, first: 0, end: 8, status: fault, count: 0 });
        for _ in 0..5 {
            assert!(status(host.try_write(7, &data[..BLOCK], false)).same_code(Status::WRITE_FAULT));
        }
        drive.ask(&Request::FaultClear);
        assert!(host.read(0, data.len()) == data, "a write that failed has written");
        assert_eq!(drive.count("errors"), 7);
    }
}

#[test]
fn a_completion_that_is_delayed_comes_when_it_was_asked_to() {
    for timing in BOTH {
        let (_folder, drive) = start(timing, 1);
        let mut host = Host::attach(&drive, 0);
        // Longer and shorter than the longest sleep of the device's thread.
        for delay in [Duration::from_millis(30), Duration::from_millis(350)] {
            drive.ask(&Request::FaultDelay { function: 0, by_ns: delay.as_nanos() as u64, count: 1 });
            let begin = Instant::now();
            host.read(0, BLOCK);
            let took = begin.elapsed();
            assert!(took >= delay && took < PATIENCE, "{timing:?}, {delay:?}: {took:?}");
        }
    }
}

#[test]
fn a_delayed_completion_comes_while_others_go_on() {
    for timing in BOTH {
        let (_folder, drive) = start(timing, 1);
        let mut host = Host::attach(&drive, 0);
        let mut slow = host.nvme.queue_pair(8, None).expect("a queue pair");
        let delay = Duration::from_secs(1);
        // A thread that is late may see no other command end before the delayed one: then once more.
        let (first, mut others) = (Instant::now(), 0);
        while others == 0 {
            assert!(first.elapsed() < PATIENCE, "{timing:?}: no other command goes on");
            drive.ask(&Request::FaultDelay { function: 0, by_ns: delay.as_nanos() as u64, count: 1 });
            let begin = Instant::now();
            assert!(slow.submit(&Sqe::flush(77).with_nsid(1)) && slow.submit(&Sqe::flush(78).with_nsid(1)));
            slow.ring().expect("a doorbell");
            // The second of them comes at once: the first has completed, and its entry is delayed.
            let second = poll_for(&mut slow, PATIENCE).expect("it is not delayed");
            assert_eq!(second.cid, 78, "{timing:?}");
            let cqe = loop {
                if let Some(cqe) = slow.poll() {
                    break cqe;
                }
                assert!(begin.elapsed() < PATIENCE, "{timing:?}: {others} others, and never the delayed one");
                host.run(Sqe::flush(1)).expect("a flush");
                others += 1;
            };
            assert_eq!(cqe.cid, 77, "{cqe:?}");
            // Without pacing, the time that the model takes for the others passes at once.
            assert!(timing == Timing::None || begin.elapsed() >= delay, "{:?}", begin.elapsed());
        }
    }
}

#[test]
fn completions_are_lost_and_come_twice() {
    for timing in BOTH {
        let (_folder, drive) = start(timing, 2);
        let (mut host, mut other) = (Host::attach(&drive, 0), Host::attach(&drive, 1));
        drive.ask(&Request::FaultLose { function: 0, count: 2 });
        other.flush();
        for cid in [50, 51, 52] {
            assert!(host.pair.submit(&Sqe::flush(cid).with_nsid(1)));
        }
        host.pair.ring().expect("a doorbell");
        let come = poll_for(&mut host.pair, PATIENCE).expect("the third");
        assert_eq!(come.cid, 52);
        assert!(poll_for(&mut host.pair, Duration::from_millis(50)).is_none());
        drive.ask(&Request::FaultDuplicate { function: 0, count: 1 });
        assert!(host.pair.submit(&Sqe::flush(53).with_nsid(1)));
        host.pair.ring().expect("a doorbell");
        let twice =
            [poll_for(&mut host.pair, PATIENCE), poll_for(&mut host.pair, PATIENCE)].map(|cqe| cqe.expect("twice").cid);
        assert_eq!(twice, [53, 53]);
        assert!(poll_for(&mut host.pair, Duration::from_millis(50)).is_none());
        host.pair.ring().expect("a doorbell");
        host.flush();
        other.flush();
        // What a driver does that has waited for too long.
        host.restart().expect("a reset");
        host.flush();
    }
}

#[test]
fn after_a_fatal_status_nothing_completes_until_a_reset() {
    for timing in BOTH {
        let (_folder, drive) = start(timing, 2);
        let (mut host, mut other) = (Host::attach(&drive, 0), Host::attach(&drive, 1));
        host.write(0, &blocks_of(0, 8, 3));
        drive.ask(&Request::FaultFatal { function: 0 });
        let until = Instant::now() + PATIENCE;
        while host.register(offset::CSTS).expect("CSTS") & 2 == 0 {
            assert!(Instant::now() < until, "CSTS.CFS is not set");
        }
        assert!(host.pair.submit(&Sqe::flush(1).with_nsid(1)));
        host.pair.ring().expect("a doorbell");
        assert!(poll_for(&mut host.pair, Duration::from_millis(50)).is_none());
        assert!(other.read(0, 8 * BLOCK) == blocks_of(0, 8, 3), "the other function goes on");
        host.restart().expect("a reset");
        assert_eq!(host.register(offset::CSTS).expect("CSTS") & 3, 1);
        assert!(host.read(0, 8 * BLOCK) == blocks_of(0, 8, 3));
    }
}

/// Memory that a client lends by messages, and does not answer for: the device waits for it once, and not each time.
#[test]
fn a_client_that_does_not_answer_for_its_memory_is_given_up() {
    let (_folder, drive) = start(Timing::None, 2);
    let mut silent = Host::attach(&drive, 0);
    let (far, memory) = (1u64 << 40, Arc::new(SharedMemory::new("silent", 0x1000).expect("a memfd")));
    silent.nvme.socket().lend_by_message(far, &memory).expect("by message");
    // A completion queue lies there, and its submission queue where the device reaches it by itself.
    let queue = silent.nvme.buffer(4096).expect("memory");
    queue.write(0, &Sqe::flush(9).with_nsid(1).to_bytes());
    let order = |opcode: u8, with: u32| {
        Sqe::default().with_dword(0, opcode.into()).with_dword(10, 15 << 16 | 2).with_dword(11, with)
    };
    let completions = order(admin_opcode::CREATE_IO_CQ, 1).with_dword(6, far as u32).with_dword(7, (far >> 32) as u32);
    silent.nvme.admin(completions).expect("a completion queue");
    let submissions = queue.attach(order(admin_opcode::CREATE_IO_SQ, 2 << 16 | 1), 4096);
    silent.nvme.admin(submissions).expect("a submission queue");
    // When it completes, its host sends no request, and so gets no answer.
    drive.ask(&Request::FaultDelay { function: 0, by_ns: 100_000_000, count: 1 });
    let doorbell = u64::from(offset::DOORBELLS) + 2 * 2 * 4;
    silent.nvme.socket().write(region::BAR0, doorbell, &1u32.to_le_bytes()).expect("a doorbell");
    Host::attach(&drive, 1).flush();
    // A function has one client: it is another's once the device has given this one up.
    let mut next = Host::attach(&drive, 0);
    next.write(0, &blocks_of(0, 8, 1));
    assert!(next.read(0, 8 * BLOCK) == blocks_of(0, 8, 1));
    drop(silent);
}

#[test]
fn a_shutdown_that_is_stuck_stays_so_until_a_reset() {
    let (_folder, drive) = start(Timing::None, 2);
    let mut host = Host::attach(&drive, 0);
    let mut other = Host::attach(&drive, 1);
    host.write(0, &blocks_of(0, 8, 3));
    drive.ask(&Request::FaultStuckShutdown { function: 0 });
    let cc = host.register(offset::CC).expect("CC");
    host.set_register(offset::CC, cc | 1 << 14);
    // What another function writes and flushes from here on is safe later than what a shutdown waits for.
    other.write(8, &blocks_of(8, 8, 4));
    other.flush();
    assert_eq!(host.register(offset::CSTS).expect("CSTS") >> 2 & 3, 1, "shutdown processing occurs");
    host.restart().expect("a reset");
    assert!(host.read(0, 8 * BLOCK) == blocks_of(0, 8, 3));
    drive.ask(&Request::FaultClear);
    host.nvme.shut_down().expect("the next shutdown ends");
    drive.stop();
}

/// The fault is meant for a host's shutdown: the device itself still ends when it is asked to.
#[test]
fn a_stuck_shutdown_does_not_keep_the_device_from_ending() {
    for shutting_down in [false, true] {
        let (_folder, drive) = start(Timing::None, 1);
        let host = Host::attach(&drive, 0);
        drive.ask(&Request::FaultStuckShutdown { function: 0 });
        if shutting_down {
            let cc = host.register(offset::CC).expect("CC");
            host.set_register(offset::CC, cc | 1 << 14);
            assert_eq!(host.register(offset::CSTS).expect("CSTS") >> 2 & 3, 1);
        }
        let begin = Instant::now();
        drive.stop();
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn a_link_that_is_lost_takes_the_client_away_and_no_data() {
    let (_folder, drive) = start(Timing::None, 2);
    let mut host = Host::attach(&drive, 0);
    let mut other = Host::attach(&drive, 1);
    for round in 0..10 {
        host.write(round * 8, &blocks_of(round * 8, 8, round + 1));
        drive.ask(&Request::LinkLoss { function: 0 });
        let until = Instant::now() + PATIENCE;
        while host.register(offset::CSTS).is_ok() {
            assert!(Instant::now() < until, "the client is still there");
        }
        other.flush();
        host = Host::attach_again(host, &drive);
        for before in 0..=round {
            assert!(host.read(before * 8, 8 * BLOCK) == blocks_of(before * 8, 8, before + 1));
        }
    }
    assert!(drive.try_ask(&Request::LinkLoss { function: 2 }).expect_err("no function").contains("no function 2"));
    drop(other);
    let until = Instant::now() + PATIENCE;
    while drive.count("attached_functions") != 1 {
        assert!(Instant::now() < until);
    }
    assert!(
        drive.try_ask(&Request::LinkLoss { function: 1 }).expect_err("no client").contains("no client is attached")
    );
}

fn metrics(drive: &Drive) -> String {
    let mut stream = TcpStream::connect(drive.ready.metrics.expect("metrics")).expect("a connection");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
}

#[test]
fn status_and_metrics_tell_what_was_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = setup(tiny(Timing::None), folder.path(), Backing::File(folder.path().join("drive")), 1);
    setup.metrics = Some(MetricsSetup { address: ([127, 0, 0, 1], 0).into(), names: Vec::new() });
    setup.trace = Some(folder.path().join("trace"));
    let drive = Drive::start(&setup);
    let mut host = Host::attach(&drive, 0);
    let (mut from_host, mut to_host) = (0, 0);
    assert_eq!(drive.count("bytes_to_hosts"), 0, "a host that looks for its drive moves no data");
    for i in 0..20u64 {
        host.write(i * 8, &blocks_of(i * 8, 8, 1));
        from_host += 8 * BLOCK as u64;
    }
    for i in 0..30u64 {
        host.read(i, BLOCK);
        to_host += BLOCK as u64;
    }
    (0..5).for_each(|_| host.flush());
    host.zero(0, 8);
    let _ = host.compare(8, &blocks_of(8, 1, 1)).expect("equal");
    from_host += BLOCK as u64;
    let blocks = host.blocks();
    let _ = host.try_read(blocks, BLOCK).expect_err("beyond the end");
    // Identify, in `blocks`, is no I/O command.
    let expected = [
        ("writes", 20),
        ("reads", 31),
        ("flushes", 5),
        ("other_commands", 2),
        ("errors", 1),
        ("bytes_from_hosts", from_host),
        ("bytes_to_hosts", to_host),
        ("syncs", 5),
        ("attached_functions", 1),
        ("power_cuts", 0),
        ("outstanding_commands", 0),
    ];
    let status = drive.ask(&Request::Status);
    for (name, count) in expected {
        assert_eq!(status[name].as_u64(), Some(count), "{name} of {status:?}");
    }
    assert_eq!(
        (&status["state"], &status["timing"], &status["profile"]),
        (&"serving".into(), &"none".into(), &"tiny".into())
    );
    let page = metrics(&drive);
    for (name, value) in [
        ("tidewater_powered", 1),
        ("tidewater_commands_total{kind=\"read\"}", 31),
        ("tidewater_commands_total{kind=\"write\"}", 20),
        ("tidewater_commands_total{kind=\"flush\"}", 5),
        ("tidewater_commands_total{kind=\"other\"}", 2),
        ("tidewater_errors_total", 1),
        ("tidewater_bytes_total{to=\"device\"}", from_host),
        ("tidewater_capacity_bytes", blocks * BLOCK as u64),
        ("tidewater_syncs_total", 5),
    ] {
        assert_eq!(metric(&page, name), value as f64, "{name}");
    }
    let answer = drive.ask(&Request::Metrics);
    assert_eq!(metric(answer["text"].as_str().expect("text"), "tidewater_syncs_total"), 5.0);
    drop(host);
    let ended = drive.stop();
    assert_eq!(ended.counters.commands, [31, 20, 5, 2]);
    let trace = std::fs::read_to_string(folder.path().join("trace")).expect("a trace");
    let words = |word: &str| trace.lines().filter(|line| line.split(' ').nth(2) == Some(word)).count();
    // The read that failed is not in the trace.
    assert_eq!((words("read"), words("write"), words("sync"), words("trim")), (30, 20, 5, 1));
}

/// A fault that can't happen is refused: otherwise a test would wait for it in vain.
#[test]
fn a_fault_of_no_controller_or_of_no_blocks_is_refused_in_words() {
    let (_folder, drive) = start(Timing::None, 2);
    let refused = |request: &Request| drive.try_ask(request).expect_err("it can't happen");
    for function in [2, 255] {
        let faults = [
            Request::FaultDelay { function, by_ns: 1, count: 1 },
            Request::FaultLose { function, count: 1 },
            Request::FaultDuplicate { function, count: 1 },
            Request::FaultFatal { function },
            Request::FaultStuckShutdown { function },
        ];
        for fault in faults {
            let why = refused(&fault);
            assert!(why.contains(&format!("no controller {function}")), "{fault:?}: {why}");
        }
    }
    for (first, end) in [(8, 8), (9, 8)] {
        let why = refused(&Request::FaultStatus { nsid: 1, first, end, status: 0x281, count: 1 });
        assert!(why.contains("of blocks is empty"), "{why}");
    }
    for (nsid, first, word) in [(9, 0, "no namespace 9"), (1, 1 << 40, "is beyond them")] {
        let why = refused(&Request::FaultStatus { nsid, first, end: first + 1, status: 0x281, count: 1 });
        assert!(why.contains(word), "{why}");
    }
    drive.ask(&Request::FaultLose { function: 1, count: 1 });
    drive.ask(&Request::FaultClear);
}

/// A time that no clock tells ends nothing but the request.
#[test]
fn a_power_cut_for_ever_is_refused() {
    let (_folder, drive) = start(Timing::None, 1);
    let mut host = Host::attach(&drive, 0);
    host.write(0, &blocks_of(0, 8, 1));
    host.flush();
    for off_ms in [u64::MAX, 86_400_001] {
        let why = drive.try_ask(&Request::PowerCut { off_ms }).expect_err("no power cut is that long");
        assert!(why.contains("a day"), "{why}");
    }
    assert_eq!(drive.count("power_cuts"), 0);
    assert!(host.read(0, 8 * BLOCK) == blocks_of(0, 8, 1), "the power is there");
}

/// The MSI-X table is no doorbell. A monitor keeps a table of its own, and may write through.
#[test]
fn what_is_written_into_the_table_of_interrupts_rings_no_doorbell() {
    let (_folder, drive) = start(Timing::None, 1);
    let mut host = Host::attach(&drive, 0);
    for at in (0x2000..0x2040).step_by(4) {
        host.set_register(at, 0xFEE0_0000);
    }
    host.flush();
    let page = host.nvme.buffer(4096).expect("memory");
    let errors = Sqe::default().with_dword(0, admin_opcode::GET_LOG_PAGE.into()).with_dword(10, 63 << 16 | 1);
    host.nvme.admin(page.attach(errors, 256)).expect("Error Information");
    let mut entries = [0xFF; 256];
    page.read(0, &mut entries);
    assert_eq!(entries, [0; 256], "nothing went wrong");
}

/// A trace that the disk has no room for ends, and the device says so.
#[test]
fn a_trace_that_can_not_be_written_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = setup(tiny(Timing::None), folder.path(), Backing::Memory, 1);
    setup.trace = Some("/dev/full".into());
    let drive = Drive::start(&setup);
    let mut host = Host::attach(&drive, 0);
    (0..1_000).for_each(|_| drop(host.read(0, BLOCK)));
    drop(host);
    let error = drive.try_ask(&Request::Stop).expect_err("the trace is not whole");
    assert!(error.contains("trace") && error.contains("No space left"), "{error}");
    assert_eq!(drive.join().expect_err("the trace is not whole").to_string(), error);
}
