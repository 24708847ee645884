//! The ring's copy on a disk, which clients write: over crashes of the machine, and over what may have become of it.

use std::time::Duration;

use nix::sys::signal::Signal;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_tests::ring::{Device, RING};

use tidewater_tests::PATIENCE;

use super::{COPY, folder, numbers, payload, ring_level, signal};

#[test]
fn what_a_copy_has_is_destaged_without_the_device_and_goes_into_the_next_ring() {
    let folder = folder();
    let mut device = Device::start(folder.path(), COPY);
    let (mut number, mut begin) = (0, 0);
    for round in 0..4 {
        let (log, found) = Log::open_reporting(&device.target(), ring_level()).expect("the device maps its ring");
        assert_eq!(found.tail, begin, "{round}: all that was destaged, and whole records alone");
        // The device takes nothing meanwhile; a client that waits for DESTAGED does not need it.
        signal(&device, Signal::SIGSTOP);
        let first = number;
        let mut end = begin;
        // No more than the ring has room for, since nothing is taken.
        while end - begin < RING / 2 {
            let written = log.append(&[&payload(number)]).expect("there is room");
            if number % 3 != 0 {
                log.wait(written.end, Level::Destaged, PATIENCE).expect("no device is needed");
            }
            (number, end) = (number + 1, written.end);
        }
        log.wait(end, Level::Destaged, PATIENCE).expect("no device is needed");
        drop(log);
        device = device.restart_without_ring(COPY);
        let errors = device.errors();
        assert!(errors.contains("were copied to the new ring"), "{errors}");
        let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
        assert_eq!(log.tail(), end, "{round}");
        assert_eq!(numbers(&log, begin, end), ((first..number).collect(), 0), "{round}");
        // The next round goes on behind what the device has taken, too.
        let written = log.append(&[&payload(number)]).expect("there is room");
        log.wait(written.end, Level::Destaged, PATIENCE).expect("the record is destaged");
        log.trim(begin).expect("the device has it");
        (number, begin) = (number + 1, written.end);
    }
}

#[test]
fn threads_that_wait_for_destaged_share_the_copy_and_all_of_it_comes_back() {
    const THREADS: u64 = 4;
    let folder = folder();
    let device = Device::start(folder.path(), COPY);
    let log =
        Log::open(&device.target(), Options { full: PATIENCE, ..ring_level() }).expect("the device maps its ring");
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    (0..250)
                        .map(|i| {
                            let written = log.append(&[&payload(thread * 250 + i)]).expect("there is room");
                            log.wait(written.end, Level::Destaged, PATIENCE).expect("the record is destaged");
                            written.end
                        })
                        .max()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).max().flatten()
    });
    let end = ends.expect("records were written");
    assert!(end > 2 * RING, "the ring was used several times over: {end}");
    assert!(log.status().destaged >= end);
    drop(log);
    let device = device.restart_without_ring(COPY);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    assert!(log.tail() >= end);
    let mut found = numbers(&log, 0, end).0;
    found.sort_unstable();
    assert_eq!(found, (0..THREADS * 250).collect::<Vec<_>>());
}

#[test]
fn a_copy_that_is_another_one_is_not_relied_on() {
    let folder = folder();
    let device = Device::start(folder.path(), COPY);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let append = |number: u64| log.append(&[&payload(number)]).expect("there is room").end;
    log.wait(append(0), Level::Destaged, PATIENCE).expect("the record is destaged");
    device.kill();
    // What only the old copy has is not lost: the ring is there, and the device syncs it.
    let last = append(1);
    log.wait(last, Level::Destaged, PATIENCE).expect("no device is needed");
    std::fs::remove_file(folder.path().join("copy")).expect("the file can be removed");
    let device = Device::start(folder.path(), COPY);
    log.reconnect().expect("the ring is the same");
    signal(&device, Signal::SIGSTOP);
    let wait = log.wait(append(2), Level::Destaged, Duration::from_millis(30));
    assert!(matches!(wait, Err(LogError::TimedOut { .. })), "the device has to do it: {wait:?}");
    signal(&device, Signal::SIGCONT);
    log.wait(append(3), Level::Destaged, PATIENCE).expect("the record is destaged");
    drop(log);
    // A device without a copy is no worse than it was.
    device.kill();
    let device = Device::start(folder.path(), &[]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    assert_eq!(numbers(&log, 0, last), (vec![0, 1], 0));
    log.wait(log.append(&[&payload(4)]).expect("there is room").end, Level::Destaged, PATIENCE)
        .expect("the record is destaged");
    drop(log);
    device.kill();
    // Another drive's is refused, in words.
    let other = tempfile::tempdir().expect("a temporary folder");
    std::fs::copy(folder.path().join("copy"), other.path().join("copy")).expect("there is room");
    let refused =
        Device::command(other.path(), &["--ring", "ring", "--ring-copy", "copy"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is a copy of another drive's ring"), "{said}");
}
