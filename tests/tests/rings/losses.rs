//! Devices that die, or stand still, while a program waits for them: the program finds out at once, by the handle that
//! has the connection and by one that has none.

use super::{COPY, folder, ring_level, signal};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidewater_client::mapped::{Log, Options, survive_cut_rings};
use tidewater_client::{Level, LogError};
use tidewater_tests::PATIENCE;
use tidewater_tests::ring::Device;
use tidewater_tests::wait;

/// A log and another handle of its lane, as a process has it that joined.
fn opened(device: &Device) -> [Log; 2] {
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let shared = log.share().expect("descriptors are there");
    let joined = Log::join(shared, ring_level()).expect("the stream goes on");
    [log, joined]
}

/// Kills a device that stands still while a handle waits at a level, and has waited for so long. What the wait ends
/// with, and how long after the device's death.
fn killed(device: Device, log: &Log, level: Level, before: Duration) -> (Result<(), LogError>, Duration) {
    signal(&device, Signal::SIGSTOP);
    let end = log.append(&[b"waits"]).expect("the ring accepts the record").end;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let outcome = log.wait(end, level, PATIENCE);
            (outcome, Instant::now())
        });
        wait::pass(before);
        let at = Instant::now();
        device.kill();
        let (outcome, ended) = waiter.join().expect("it does not panic");
        (outcome, ended.saturating_duration_since(at))
    })
}

/// Waits at each level of one machine over a death of the device. The longest time until they ended.
fn deaths(before: Duration) -> Vec<(Level, bool, Duration)> {
    let mut found = Vec::new();
    for (more, level) in [(&[][..], Level::Ring), (&[], Level::Destaged), (COPY, Level::Ring), (COPY, Level::Destaged)]
    {
        let mut longest = Duration::ZERO;
        for which in 0..2 {
            let folder = folder();
            let device = Device::start(folder.path(), more);
            let logs = opened(&device);
            let (outcome, waited) = killed(device, &logs[which], level, before);
            longest = longest.max(waited);
            // Neither the ring nor its copy needs the device.
            let needs_device = level == Level::Destaged && more.is_empty();
            match outcome {
                Ok(()) => assert!(!needs_device),
                Err(LogError::Gone) => assert!(needs_device),
                Err(error) => panic!("{level} {more:?} {which}: {error}"),
            }
        }
        found.push((level, !more.is_empty(), longest));
    }
    found
}

#[test]
fn a_wait_for_a_device_that_dies_ends_by_its_death_and_not_by_its_time_out() {
    deaths(Duration::ZERO);
}

/// How long after a device's death its clients know, by level, without and with a copy: the medians of five.
#[test]
#[ignore = "measures"]
fn torture_how_soon_a_death_is_known() {
    let rounds: Vec<_> = (0..5).map(|_| deaths(Duration::from_millis(120))).collect();
    for case in 0..rounds[0].len() {
        let mut times: Vec<u128> = rounds.iter().map(|round| round[case].2.as_millis()).collect();
        times.sort_unstable();
        println!("{}, copy {}: {times:?} ms", rounds[0][case].0, rounds[0][case].1);
    }
}

#[test]
fn an_append_to_a_full_ring_of_a_device_that_died_ends_at_once_in_a_process_without_a_connection() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let patient = Options { full: PATIENCE, ..ring_level() };
    let joined = Log::join(log.share().expect("descriptors are there"), patient).expect("the stream goes on");
    device.kill();
    let error = loop {
        if let Err(error) = joined.append(&[&[7; 500]]) {
            break error;
        }
    };
    assert!(matches!(error, LogError::Gone), "{error}");
}

/// A device that was started anew serves the ring again: a handle without a connection waits for it as before.
#[test]
fn a_handle_without_a_connection_waits_for_the_next_device_once_it_is_there() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let [log, joined] = opened(&device);
    let end = joined.append(&[b"first"]).expect("the ring accepts the record").end;
    device.kill();
    let end = joined.append(&[b"second"]).map_or(end, |written| written.end);
    let device = Device::start(folder.path(), &[]);
    log.reconnect().expect("the stream is the same");
    joined.wait(end, Level::Destaged, PATIENCE).expect("the next device takes what the ring holds");
    drop(device);
}

/// Its process is there, and does not answer: that is another error than a connection that has ended, also of what is
/// asked afterwards.
#[test]
fn a_device_that_does_not_answer_has_not_gone() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let [log, joined] = opened(&device);
    let end = joined.append(&[b"waits"]).expect("the ring accepts the record").end;
    signal(&device, Signal::SIGSTOP);
    let error = joined.wait(end, Level::Destaged, Duration::from_millis(300)).expect_err("it stands still");
    assert!(matches!(error, LogError::TimedOut { .. }), "{error}");
    log.is_there().expect("its connection stands");
    signal(&device, Signal::SIGCONT);
    joined.wait(end, Level::Destaged, PATIENCE).expect("the log reaches the level");
    // As long as a command may take.
    let ended = |error: LogError| {
        assert!(matches!(error, LogError::NoReply { .. }), "{error}");
        assert_eq!(error.errno(), nix::errno::Errno::EHOSTDOWN as i32);
        assert!(error.to_string().contains("has not answered for 5 s"), "{error}");
    };
    drop((log, joined));
    signal(&device, Signal::SIGSTOP);
    ended(Log::open(&device.target(), ring_level()).expect_err("it stands still"));
    signal(&device, Signal::SIGCONT);
}

/// Waits for more log than there is, in a process that answers for rings that are cut.
#[test]
#[ignore = "not a test: the process under which another test cuts the ring"]
fn child_that_waits_for_more() {
    let Ok(target) = std::env::var("TIDEWATER_RING_TARGET") else { return };
    survive_cut_rings().expect("a handler");
    let log = Log::open(&target, ring_level()).expect("the device maps its ring");
    println!("waits");
    println!("{}", log.x_pread(log.tail(), &mut [0; 64], PATIENCE).expect_err("there is no more"));
}

/// A recovery whose ring is cut under it took as long as a command may take: 30 s.
#[test]
fn a_reader_whose_ring_is_cut_ends_at_once_and_not_by_its_time_out() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let mut child = Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["rings::losses::child_that_waits_for_more", "--exact", "--ignored", "--nocapture"])
        .env("TIDEWATER_RING_TARGET", device.target())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("waits") {
        assert!(said.read_line(&mut line).expect("UTF-8") > 0, "{line}");
    }
    let ring = File::options().write(true).open(folder.path().join("ring")).expect("the file can be written");
    ring.set_len(0).expect("the file can be resized");
    said.read_to_string(&mut line).expect("UTF-8");
    assert!(line.contains("it was cut while it was in use"), "{line}");
    assert!(child.wait().expect("the process can be waited for").success());
}
