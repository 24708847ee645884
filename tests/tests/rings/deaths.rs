//! Devices and clients that are killed, or leave a record open: what was promised stays, and the log goes on.

use super::{folder, numbers, opened_after_another, payload, reopened, ring_level};
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidewater_client::mapped::Log;
use tidewater_client::{Entry, Level, LogError, Records};
use tidewater_tests::PATIENCE;
use tidewater_tests::ring::Device;
use tidewater_tests::wait;

#[test]
fn a_device_that_is_killed_loses_nothing_and_its_client_goes_on_meanwhile() {
    let folder = folder();
    let mut device = Device::start(folder.path(), &[]);
    let mut log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let (mut number, mut from, mut credited) = (0, 0, 0);
    for round in 0..4 {
        let killer = std::thread::spawn({
            let child = device.child.id() as i32;
            move || {
                wait::pass(Duration::from_millis(5 + 7 * round));
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::SIGKILL)
                    .expect("the process can be signalled");
            }
        });
        // Until the ring is full: the device takes nothing any more.
        let mut writer = log.writer().expect("a slot");
        let error = loop {
            match writer.append(&payload(number)) {
                Ok(written) => {
                    log.wait(written.end, Level::Ring, PATIENCE).expect("one writer waits for no other");
                    (number, credited) = (number + 1, written.end);
                }
                Err(error) => break error,
            }
        };
        drop(writer);
        assert!(matches!(error, LogError::Gone), "{error}");
        assert_eq!(error.errno(), nix::errno::Errno::EPIPE as i32);
        killer.join().expect("it does not panic");
        let _ = device.child.wait();
        device = Device::start(folder.path(), &[]);
        let found = log.reattach().expect("the next device takes the ring up");
        assert_eq!((found.tail, found.is_new), (credited, false));
        log.wait(credited, Level::Destaged, PATIENCE).expect("it takes what the ring holds");
        let readable = log.status().device.expect("the device answers").lane[0].readable;
        let (found, voids) = {
            let start = from.max(readable);
            let mut bytes = vec![0; (credited - start) as usize];
            log.x_pread(start, &mut bytes, PATIENCE).expect("the bytes are in the log");
            let mut found = Vec::new();
            let mut voids = 0;
            for entry in Records::new(&bytes, start) {
                match entry {
                    Entry::Record { payload: of, .. } => {
                        let number = u64::from_le_bytes(of[..8].try_into().expect("8 bytes"));
                        assert_eq!(of, payload(number));
                        found.push(number);
                    }
                    Entry::Void { .. } => voids += 1,
                    Entry::Skipped { from, .. } => assert_eq!(from, start, "only the page's begin is within a record"),
                }
            }
            (found, voids)
        };
        let expected: Vec<u64> = (number - found.len() as u64..number).collect();
        assert!(voids == 0 && found == expected && !found.is_empty(), "{voids} {found:?} {number}");
        from = credited;
    }
}

/// Appends by four threads until it is killed. Tells each record that is at RING.
#[test]
#[ignore = "not a test: the process that another test kills"]
fn child_that_appends() {
    let Ok(target) = std::env::var("TIDEWATER_RING_TARGET") else { return };
    let log = opened_after_another(&target);
    let out = std::sync::Mutex::new(File::create("appended").expect("the folder is writable"));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (log, out) = (&log, &out);
            scope.spawn(move || {
                let mut writer = log.writer().expect("a slot");
                for i in 0.. {
                    let number = i * 4 + thread;
                    let written = writer.append(&payload(number)).expect("the device makes room");
                    log.wait(written.end, Level::Ring, PATIENCE).expect("others finish too");
                    let mut line = [0; 24];
                    line[..8].copy_from_slice(&number.to_le_bytes());
                    line[8..16].copy_from_slice(&written.lsn.to_le_bytes());
                    line[16..].copy_from_slice(&written.end.to_le_bytes());
                    out.lock().expect("no thread panicked").write_all(&line).expect("there is room");
                }
            });
        }
    });
}

#[test]
fn a_client_that_is_killed_amid_its_records_leaves_those_that_it_was_told_of() {
    let folder = folder();
    let device = Device::start(folder.path(), &["--set", "fast.log_size=8MiB"]);
    for round in 0..4 {
        let me = std::env::current_exe().expect("a test is a program");
        let mut child = Command::new(me)
            .args(["rings::deaths::child_that_appends", "--exact", "--ignored", "--nocapture"])
            .current_dir(folder.path())
            .env("TIDEWATER_RING_TARGET", device.target())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let appended = || std::fs::metadata(folder.path().join("appended")).map_or(0, |about| about.len());
        wait::until(|| "it appends".into(), || appended() >= 24 * 50);
        wait::pass(Duration::from_millis(3 * round));
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
        let told = std::fs::read(folder.path().join("appended")).expect("the file can be read");
        std::fs::remove_file(folder.path().join("appended")).expect("the file can be removed");
        let word = |at: usize| u64::from_le_bytes(told[at..at + 8].try_into().expect("8 bytes"));
        let log = reopened(&device);
        let readable = log.status().device.expect("the device answers").lane[0].readable;
        let mut checked = 0;
        for line in (0..told.len() / 24 * 24).step_by(24) {
            let (number, lsn, end) = (word(line), word(line + 8), word(line + 16));
            if lsn >= readable {
                assert_eq!(numbers(&log, lsn, end), (vec![number], 0));
                checked += 1;
            }
        }
        assert!(checked > 0);
        // The stream is whole up to where the next writer goes on, and goes on.
        let (tail, first) = (log.status().ring, word(8).max(readable).next_multiple_of(64));
        let first = (0..told.len() / 24 * 24).step_by(24).map(|line| word(line + 8)).filter(|&lsn| lsn >= first).min();
        numbers(&log, first.expect("records are in the log"), tail);
        let next = log.writer().expect("a slot").append(&payload(1)).expect("there is room");
        assert_eq!(next.lsn, tail);
        log.wait(next.end, Level::Destaged, PATIENCE).expect("nothing is in the way");
    }
}

/// A hole that a dead writer has left is sealed by the next client that attaches, and whole records behind it count.
#[test]
fn a_hole_of_a_dead_writer_is_sealed() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let mut other = log.writer().expect("a slot");
    let begun = log.begin(40).expect("there is room");
    let begins = begun.lsn();
    let behind = other.append(&payload(9)).expect("there is room");
    // As if the process ended here.
    std::mem::forget(begun);
    drop(other);
    drop(log);
    let (log, found) = wait::success("the log opens", || Log::open_reporting(&device.target(), ring_level()));
    assert_eq!((found.tail, found.records, found.sealed), (behind.end, 1, 1));
    log.wait(behind.end, Level::Destaged, PATIENCE).expect("the record is destaged");
    assert_eq!(numbers(&log, begins, behind.end), (vec![9], 1));
}
