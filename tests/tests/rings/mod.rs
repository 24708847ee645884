//! Rings that clients map: appends without anybody in their path, over deaths of device and client, and over what a
//! file may have become.

mod copies;
mod deaths;
mod losses;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options, WriteBack};
use tidewater_client::{End, Entry, Level, LogError, Records};
use tidewater_driver::vfio_user::Socket;
use tidewater_tests::ring::{Device, RING};
use tidewater_tests::{PATIENCE, run, run_well, wait};
use tidewater_wire::log::{RING_FILE_BAR2, RingLanePage};
use tidewater_wire::vendor::{ControlPage, LanePage};
use tidewater_wire::vfio_user::region;

/// Options for a ring with a copy on a disk.
const COPY: &[&str] = &["--ring-copy", "copy"];

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn ring_level() -> Options {
    Options { level: Some(Level::Ring), ..Options::default() }
}

fn signal(device: &Device, signal: Signal) {
    let process = nix::unistd::Pid::from_raw(device.child.id() as i32);
    kill(process, signal).expect("the process can be signalled");
    // A thread that runs on another processor goes on for a moment.
    let stands = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat"))).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('T'))
    };
    let tasks = || std::fs::read_dir(format!("/proc/{process}/task")).expect("the folder can be read");
    while signal == Signal::SIGSTOP && !tasks().all(stands) {
        std::thread::yield_now();
    }
}

/// A payload that tells which it is.
fn payload(number: u64) -> Vec<u8> {
    let len = 8 + (number * 37 % 150) as usize;
    number.to_le_bytes().into_iter().chain((0..len - 8).map(|at| (number as usize * 31 + at) as u8)).collect()
}

/// The numbers of the records of the log between two offsets, each of which must be whole; and how many void ones are
/// between them.
fn numbers(log: &Log, from: u64, to: u64) -> (Vec<u64>, usize) {
    let mut bytes = vec![0; (to - from) as usize];
    log.x_pread(from, &mut bytes, PATIENCE).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
    let (mut numbers, mut voids) = (Vec::new(), 0);
    let mut records = Records::new(&bytes, from);
    for entry in records.by_ref() {
        match entry {
            Entry::Record { payload: found, .. } => {
                let number = u64::from_le_bytes(found[..8].try_into().expect("8 bytes"));
                assert_eq!(found, payload(number), "record {number}");
                numbers.push(number);
            }
            Entry::Void { .. } => voids += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(records.end(), Some(End::Complete));
    (numbers, voids)
}

/// Appends the next records until the log ends at `until` or behind.
fn append_until(log: &Log, number: &mut u64, until: u64) -> u64 {
    let mut end = log.tail();
    while end < until {
        end = log.append(&[&payload(*number)]).expect("there is room").end;
        *number += 1;
    }
    end
}

#[test]
fn records_come_back_from_ring_and_flash_and_the_log_is_trimmed() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let (log, found) = Log::open_reporting(&device.target(), ring_level()).expect("the device maps its ring");
    assert_eq!((found.tail, found.is_new), (0, true));
    let other = Log::open(&device.target(), ring_level()).expect_err("a function has one client");
    assert!(matches!(other, LogError::Taken), "{other}");
    assert_eq!(other.errno(), nix::errno::Errno::EBUSY as i32);
    let mut writer = log.writer().expect("a slot");
    let first = writer.append(&payload(0)).expect("there is room");
    assert_eq!(log.x_fsync().expect("the record reaches the ring"), first.end);
    // Many times around the ring.
    let mut last = first;
    for number in 1..6_000 {
        last = writer.append(&payload(number)).expect("the device makes room");
    }
    log.wait(last.end, Level::Destaged, PATIENCE).expect("the record is destaged");
    let status = log.status();
    assert!(status.destaged >= last.end && status.ring == last.end && status.open && !status.broken, "{status:?}");
    let from = log.status().device.expect("the device answers").lane[0].readable;
    assert!(from > 0 && last.end - from > 4 * RING, "the log's ring of pages has wrapped: {from} {}", last.end);
    // Reading may begin inside of a record: the first whole one is found.
    let mut bytes = vec![0; (last.end - from) as usize];
    log.x_pread(from, &mut bytes, PATIENCE).expect("the bytes are in the log");
    let found: Vec<u64> = Records::new(&bytes, from)
        .filter_map(|entry| match entry {
            Entry::Record { payload, .. } => Some(u64::from_le_bytes(payload[..8].try_into().expect("8 bytes"))),
            _ => None,
        })
        .collect();
    let expected: Vec<u64> = (6_000 - found.len() as u64..6_000).collect();
    assert_eq!(found, expected);
    assert!(
        matches!(log.x_pread(0, &mut bytes[..64], PATIENCE), Err(LogError::Released { .. })),
        "the oldest is overwritten"
    );
    log.trim(last.end).expect("the log can be trimmed");
    assert!(log.status().device.expect("the device answers").lane[0].readable > from);
    let too_long = writer.append(&vec![0; RING as usize]).expect_err("more than a ring");
    assert_eq!(too_long.errno(), nix::errno::Errno::EINVAL as i32);
    let remote = log.wait(last.end, Level::RemoteRing, PATIENCE).expect_err("there are no replicas");
    assert!(remote.to_string().contains("not available"), "{remote}");
}

/// Appends records of sizes around lines in parts cut anywhere, with raw bytes between them now and then, twice around
/// the ring; the stream's bytes.
fn stream_of(write_back: WriteBack) -> Vec<u8> {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let options = Options { write_back: Some(write_back), ..ring_level() };
    let log = Log::open(&device.target(), options).expect("the device maps its ring");
    let (mut stream, mut round) = (Vec::new(), 0);
    while (stream.len() as u64) < 2 * RING {
        for size in (0..=200).chain([1_000, 1_024, 2_047, 2_048, 2_049, 5_000]) {
            let payload: Vec<u8> = (0..size).map(|at| (at * 7 + size + round) as u8).collect();
            let (one, rest) = payload.split_at(size * 3 / 7);
            let (two, three) = rest.split_at(rest.len() / 2);
            if size % 13 == 5 {
                log.x_pwrite(&payload[..5]).expect("there is room");
            }
            let written = log.append(&[one, two, three]).expect("there is room");
            let mut bytes = vec![0; written.end as usize - stream.len()];
            log.x_pread(stream.len() as u64, &mut bytes, PATIENCE).expect("the bytes are in the ring");
            let mut records = Records::new(&bytes, stream.len() as u64);
            let found = records.find_map(|entry| match entry {
                Entry::Record { lsn, payload, .. } => Some((lsn, payload.to_vec())),
                _ => None,
            });
            assert_eq!(found, Some((written.lsn, payload)), "{size} bytes");
            stream.extend(bytes);
        }
        round += 1;
    }
    stream
}

#[test]
fn records_are_the_same_bytes_whether_they_go_past_the_caches_or_not() {
    let (cached, streamed) = (stream_of(WriteBack::None), stream_of(WriteBack::Lines));
    assert_eq!(cached.len(), streamed.len());
    let differs = cached.iter().zip(&streamed).position(|(one, other)| one != other);
    assert_eq!(differs, None);
}

/// A log of a device whose client before has just gone.
fn reopened(device: &Device) -> Log {
    opened_after_another(&device.target())
}

fn opened_after_another(target: &str) -> Log {
    wait::success("the log opens", || Log::open(target, ring_level()))
}

#[test]
fn a_record_that_is_given_up_is_a_void_one_and_what_is_behind_it_stays() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let (mut one, mut other) = (log.writer().expect("a slot"), log.writer().expect("another"));
    let begun = log.begin(100).expect("there is room");
    let begins = begun.lsn();
    let behind = other.append(&payload(5)).expect("there is room");
    let waited = log.wait(behind.end, Level::Ring, Duration::from_millis(5)).expect_err("a record before it is open");
    assert_eq!(waited.errno(), nix::errno::Errno::ETIMEDOUT as i32);
    drop(begun);
    log.wait(behind.end, Level::Ring, PATIENCE).expect("nothing is before it any more");
    assert_eq!(numbers(&log, begins, behind.end), (vec![5], 1));
    let mut begun = log.begin(payload(6).len() as u32).expect("there is room");
    begun.fill(0, &payload(6)[..20]);
    begun.fill(20, &payload(6)[20..]);
    let written = begun.commit().expect("the record can be committed");
    assert_eq!(numbers(&log, begins, written.end), (vec![5, 6], 1));
    // Raw bytes, wherever they end; a record begins at the next line.
    let raw = one.x_pwrite(b"raw bytes").expect("there is room");
    let next = one.append(&payload(7)).expect("there is room");
    assert_eq!((raw.lsn, next.lsn), (written.end, written.end + 64));
    log.wait(next.end, Level::Destaged, PATIENCE).expect("the record is destaged");
    let mut bytes = [0; 9];
    log.x_pread(raw.lsn, &mut bytes, PATIENCE).expect("the bytes are in the log");
    assert_eq!(&bytes, b"raw bytes");
}

/// Waits until the device has looked at the rings of every function since: a record of another function has come out
/// of its ring twice, and the device looks at all rings one after another.
fn device_looks(other: &Log) {
    for _ in 0..2 {
        let end = other.append(&[&payload(0)]).expect("there is room").end;
        other.wait(end, Level::Destaged, PATIENCE).expect("the other function goes on");
    }
}

fn set_word(folder: &Path, lane: u64, word: usize, value: u64) {
    let file = OpenOptions::new().write(true).open(folder.join("ring")).expect("the ring is there");
    file.write_all_at(&value.to_le_bytes(), RING_FILE_BAR2 + 4096 * (1 + lane) + word as u64)
        .expect("the file can be accessed");
}

#[test]
fn a_lane_that_breaks_its_credit_is_marked_and_no_other() {
    let folder = folder();
    let device = Device::start(folder.path(), &["--vfio-user", "f1.sock", "--set", "fast.functions=2"]);
    let one = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let target = format!("vfio-user:{}", folder.path().join("f1.sock").display());
    let two = Log::open(&target, ring_level()).expect("this device maps its ring, too");
    let mut writer = one.writer().expect("a slot");
    let written = writer.append(&payload(1)).expect("there is room");
    one.wait(written.end, Level::Destaged, PATIENCE).expect("the record is destaged");
    // A tail that falls is no change; one beyond the ring breaks the stream.
    set_word(folder.path(), 0, LanePage::TAIL_OFFSET, 1);
    device_looks(&two);
    assert!(!one.status().broken);
    set_word(folder.path(), 0, LanePage::TAIL_OFFSET, written.end + RING + 1);
    wait::until(|| "a look of the device".into(), || one.status().broken);
    let status = one.status().device.expect("the device answers").status;
    assert!(status.is_broken(0) && !status.is_broken(1), "{status}");
    let error = one.wait(u64::MAX, Level::Destaged, PATIENCE).expect_err("the stream is broken");
    assert_eq!(error.errno(), nix::errno::Errno::EIO as i32);
    // The other function goes on, and so does the other lane of this one.
    let written = two.writer().expect("a slot").append(&payload(2)).expect("there is room");
    two.wait(written.end, Level::Destaged, PATIENCE).expect("the other function goes on");
    assert!(!two.status().broken);
    drop(writer);
    drop(one);
    let start = Instant::now();
    let lane1 = loop {
        match Log::open(&device.target(), Options { lane: 1, ..ring_level() }) {
            Ok(log) => break log,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    };
    let written = lane1.writer().expect("a slot").append(&payload(3)).expect("there is room");
    lane1.wait(written.end, Level::Destaged, PATIENCE).expect("the other lane goes on");
}

#[test]
fn what_is_no_ring_of_this_drive_is_refused_and_a_ring_that_is_truncated_ends_in_a_status() {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let written = log.writer().expect("a slot").append(&payload(1)).expect("there is room");
    log.wait(written.end, Level::Destaged, PATIENCE).expect("the record is destaged");
    let whole = std::fs::read(folder.path().join("ring")).expect("the file can be accessed");
    // Truncated under the device: it goes on, without the ring. (The client's process would end when it touches the
    // ring: it does not.)
    let file = OpenOptions::new().write(true).open(folder.path().join("ring")).expect("the file can be accessed");
    file.set_len(8192).expect("the file can be resized");
    wait::until(|| format!("a look of the device: {}", device.errors()), || device.errors().contains("was truncated"));
    std::mem::forget(log);
    let status = run_well(folder.path(), &["status", "--control", "control.sock"]);
    assert!(status.contains("serving"), "{status}");
    device.kill();

    let refused = |words: &[&str]| {
        let mut command = Device::command(folder.path(), &["--ring", "ring"]);
        let output = command.output().expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.iter().all(|word| said.contains(word)), "{said}");
    };
    refused(&["ring", "truncated to 8192"]);
    let mut damaged = whole.clone();
    damaged[140] ^= 1;
    std::fs::write(folder.path().join("ring"), &damaged).expect("it is writable");
    refused(&["its header is damaged", "checksum"]);
    std::fs::write(folder.path().join("ring"), &whole).expect("it is writable");
    set_word(folder.path(), 0, LanePage::TAIL_OFFSET, 1 << 40);
    refused(&["lane 0 was filled up to 1099511627776", "move the ring away"]);
    // Nothing was lost by all that: as it was, it is taken up. (Another file, whose lane the handle above does not
    // hold.)
    std::fs::remove_file(folder.path().join("ring")).expect("the file can be removed");
    let mut options = OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(0o600).open(folder.path().join("ring")).expect("a folder");
    file.write_all(&whole).expect("there is room");
    drop(file);
    let device = Device::start(folder.path(), &[]);
    let (log, found) = Log::open_reporting(&device.target(), ring_level()).expect("the device maps its ring");
    assert_eq!((found.tail, found.is_new), (written.end, false));
    assert_eq!(numbers(&log, written.lsn, written.end), (vec![1], 0));
    // A client that finds forged words in its lane's page says so.
    drop(log);
    drop(device);
    set_word(folder.path(), 0, RingLanePage::GENERATION_OFFSET, 77);
    let device = Device::start(folder.path(), &[]);
    let (_log, found) = Log::open_reporting(&device.target(), ring_level()).expect("the device maps its ring");
    assert_eq!((found.tail, found.is_new), (written.end, true));
    assert!(
        run(folder.path(), &["serve", "--image", "memory", "--vfio-user", "x.sock", "--ring", "other"]).status.code()
            != Some(0)
    );
}

#[test]
fn a_place_of_a_persistent_ring_is_used_again_once_its_copy_is_synced() {
    let folder = folder();
    let device = Device::start(folder.path(), &["--ring-persistent"]);
    let options = Options { level: Some(Level::Ring), full: PATIENCE, ..Options::default() };
    let mut log = Log::open(&device.target(), options).unwrap();
    let mut writer = log.writer().unwrap();
    let mut end = 0;
    for number in 0..1500 {
        end = writer.append(&payload(number)).unwrap().end;
        log.wait(end, Level::Ring, PATIENCE).unwrap();
        // A loss of power now leaves the ring, and of the image what was synced: no client asked for a sync, and none
        // of these bytes is missing.
        let synced = log.status().destaged;
        assert!(
            synced + RING >= end,
            "{number}: up to {synced} is synced, and the ring holds {RING} bytes before {end}"
        );
    }
    assert!(end > 5 * RING, "{end}: the ring was used several times over");
    // The same after the death of the device: what it finds is synced before it is reported as free.
    drop(writer);
    device.kill();
    let device = Device::start(folder.path(), &["--ring-persistent"]);
    log.reattach().unwrap();
    let mut writer = log.writer().unwrap();
    for number in 1500..1600 {
        end = writer.append(&payload(number)).unwrap().end;
        log.wait(end, Level::Ring, PATIENCE).unwrap();
        assert!(log.status().destaged + RING >= end);
    }
    drop(device);
}

#[test]
fn what_is_left_in_a_ring_and_not_needed_is_never_taken_and_the_stream_goes_on() {
    for arguments in [[].as_slice(), &["--ring-persistent"], COPY] {
        let folder = folder();
        let arguments = &[arguments, &["--vfio-user", "f1.sock", "--set", "fast.functions=2"]].concat()[..];
        let mut device = Device::start(folder.path(), arguments);
        let second = format!("vfio-user:{}", folder.path().join("f1.sock").display());
        let mut log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
        log.leave(u64::MAX);
        let (mut number, mut skipped) = (0, 0);
        let lane = |log: &Log| log.status().device.expect("the device answers").lane[0];
        for round in 0..6 {
            let before = lane(&log);
            let from = append_until(&log, &mut number, skipped + RING / 3);
            device_looks(&opened_after_another(&second));
            assert_eq!(lane(&log), before, "{round}: no client waited for it");
            log.skip(from).expect("the device accepts it, durably");
            let is = lane(&log);
            assert_eq!((is.persisted, is.destaged, is.readable, is.pages_destaged), (from, from, from, 0), "{round}");
            skipped = from;
            let first = number;
            let end = append_until(&log, &mut number, from + 500);
            match round % 3 {
                0 => {}
                1 => {
                    device.kill();
                    device = Device::start(folder.path(), arguments);
                    log.reattach().expect("its ring has all of it");
                    log.leave(u64::MAX);
                }
                _ => log.skip(from).expect("again"),
            }
            assert_eq!((log.tail(), numbers(&log, from, end).0), (end, (first..number).collect()), "{round}");
        }
        // What a client waits for is taken all the same.
        let tail = log.tail();
        log.wait(tail, Level::Destaged, PATIENCE).expect("the record is destaged");
        let left = numbers(&log, skipped, tail).0;
        drop(log);
        let device = if arguments.starts_with(COPY) {
            // A crash of the machine leaves the copy.
            device.restart_without_ring(arguments)
        } else {
            device.kill();
            Device::start(folder.path(), arguments)
        };
        let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
        assert_eq!((log.tail(), numbers(&log, skipped, tail).0), (tail, left), "{arguments:?}");
    }
}

#[test]
fn a_device_that_stops_for_a_while_has_not_gone_and_no_client_waits_longer_than_it_said() {
    a_device_stops(Duration::ZERO);
}

/// The client's time-outs are constants: 5 s until a connection has begun, 30 s until an answer.
#[test]
#[ignore = "long: make torture"]
fn torture_a_device_that_stops_for_longer_than_a_connection_takes_to_begin_has_not_gone() {
    a_device_stops(Duration::from_secs(6));
}

fn a_device_stops(stops: Duration) {
    let folder = folder();
    let device = Device::start(folder.path(), &[]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let last = log.append(&[&payload(0)]).expect("there is room").end;
    signal(&device, Signal::SIGSTOP);
    let start = Instant::now();
    std::thread::scope(|scope| {
        // A question that is answered when it goes on.
        let asks = scope.spawn(|| log.status().device.is_some());
        let wait = log.wait(last, Level::Destaged, Duration::from_millis(200));
        assert!(matches!(wait, Err(LogError::TimedOut { .. })), "{wait:?}");
        let full = loop {
            if let Err(error) = log.append(&[&payload(1)]) {
                break error;
            }
        };
        assert!(matches!(full, LogError::Full { .. }), "{full}");
        assert!(!asks.is_finished(), "an answer may take 30 s, and none of them waited for it: {:?}", start.elapsed());
        while start.elapsed() < stops {
            let wait = log.wait(last, Level::Destaged, Duration::from_millis(200));
            assert!(matches!(wait, Err(LogError::TimedOut { .. })), "{wait:?}");
        }
        signal(&device, Signal::SIGCONT);
        assert!(asks.join().expect("it asks"), "it answers late");
    });
    let end = log.append(&[&payload(2)]).expect("there is room again").end;
    log.wait(end, Level::Destaged, PATIENCE).expect("the record is destaged");
}

#[test]
fn every_process_hears_that_a_log_is_to_be_trimmed() {
    let folder = folder();
    let device = Device::start(folder.path(), &["--set", "fast.on_wrap=wait-for-trim"]);
    let options = Options { full: Duration::from_millis(300), ..ring_level() };
    let log = Log::open(&device.target(), options).expect("the device maps its ring");
    let joined = Log::join(log.share().expect("it has a doorbell"), options).expect("it is a ring");
    let start = Instant::now();
    let full = loop {
        match joined.append(&[&[7; 2000]]) {
            // It may take the device a moment to see that nothing more fits.
            Err(LogError::Full { .. }) if start.elapsed() < PATIENCE => {}
            Err(error) => break error,
            Ok(_) => {}
        }
    };
    assert!(matches!(full, LogError::Untrimmed), "{full}");
    let again = log.append(&[&[7; 2000]]).expect_err("it is full for all");
    assert!(matches!(again, LogError::Untrimmed), "{again}");
    log.trim(log.tail() / 2).expect("the device has it");
    let end = joined.append(&[&[7; 2000]]).expect("there is room again").end;
    log.wait(end, Level::Destaged, PATIENCE).expect("the record is destaged");
}

#[test]
fn a_loss_of_power_inside_leaves_the_ring_as_its_memory_is() {
    for survives in [true, false] {
        let folder = folder();
        let memory = format!("memory.sram.survives={}", if survives { "by-capacitors" } else { "nothing" });
        let device = Device::start(folder.path(), &["--set", &memory]);
        let mut log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
        let synced = log.writer().expect("a slot").append(&payload(1)).expect("there is room");
        log.wait(synced.end, Level::Destaged, PATIENCE).expect("the record is destaged");
        run_well(folder.path(), &["fault", "power-cut", "--off", "20ms", "--control", "control.sock"]);
        let start = Instant::now();
        while !run_well(folder.path(), &["status", "--control", "control.sock"]).contains("serving") {
            assert!(start.elapsed() < PATIENCE, "the power does not come back");
        }
        let next = || log.writer().expect("a slot").append(&payload(2));
        if survives {
            next().expect("its stream goes on");
        } else {
            let error = loop {
                match next() {
                    Ok(_) => assert!(start.elapsed() < PATIENCE, "its stream goes on"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, LogError::Stale), "{error}");
        }
        let found = log.reattach().expect("there is power again");
        assert_eq!(found.is_new, !survives);
        assert!(found.tail >= synced.end, "{found:?}");
        let next = log.writer().expect("a slot").append(&payload(3)).expect("there is room");
        log.wait(next.end, Level::Destaged, PATIENCE).expect("the record is destaged");
        assert_eq!(numbers(&log, synced.lsn, synced.end), (vec![1], 0));
    }
}

#[test]
fn no_client_of_a_drive_that_is_not_paced_waits_for_its_flash() {
    let folder = folder();
    // Paced, the model takes a second for each few pages, of which there are hundreds: more than 100 s.
    let device = Device::start(folder.path(), &["--set", "nand.program_time=1s", "--set", "fast.energy=100"]);
    let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
    let mut writer = log.writer().expect("a slot");
    let start = Instant::now();
    for number in 0..20_000 {
        writer.append(&payload(number)).expect("the device makes room");
    }
    assert!(log.status().ring > 100 * RING && start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
}

/// The one seam (rule 3 of the design): the same stores, each a message or none, leave the same log.
#[test]
fn a_store_trace_leaves_the_same_bytes_and_tail_trapped_and_mapped() {
    let stores: Vec<Vec<u8>> =
        (0..400u64).map(|i| (0..1 + i * 53 % 300).map(|at| (at * 7 + i) as u8).collect()).collect();
    let whole = stores.concat();
    // A client that waits for credit between stores leaves pages that are partly filler: the log has room for many.
    let room = ["--set", "fast.log_size=8MiB"];
    let left = |mapped: bool| {
        let folder = folder();
        if mapped {
            let device = Device::start(folder.path(), &room);
            let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
            let mut writer = log.writer().expect("a slot");
            for store in &stores {
                writer.x_pwrite(store).expect("the device makes room");
            }
        } else {
            let device = Device::start_plain(folder.path(), &room);
            let socket = folder.path().join("f0.sock");
            assert!(matches!(Log::open(&device.target(), ring_level()), Err(LogError::NotMapped)));
            let start = Instant::now();
            let mut client = loop {
                match Socket::connect(&socket) {
                    Ok(client) => break client,
                    // The one before has just gone.
                    Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
                }
            };
            let credit_at = ControlPage::lane_offset(0) as u64;
            let (mut credit, mut at) = (0, 0);
            for store in &stores {
                let mut rest = store.as_slice();
                while !rest.is_empty() {
                    while at + rest.len() as u64 > credit + (2 << 10) {
                        credit = client.read_u64(region::BAR2, credit_at).expect("BAR2 can be accessed");
                    }
                    let (piece, more) = rest.split_at(rest.len().min((RING - at % RING) as usize));
                    client.write(region::BAR2, (1 << 20) + at % RING, piece).expect("BAR2 can be accessed");
                    at += piece.len() as u64;
                    rest = more;
                }
            }
            let start = Instant::now();
            while credit < at {
                credit = client.read_u64(region::BAR2, credit_at).expect("BAR2 can be accessed");
                assert!(start.elapsed() < PATIENCE, "{credit} of {at}");
            }
        }
        // Killed, both of them.
        let device = Device::start(folder.path(), &room);
        let log = Log::open(&device.target(), ring_level()).expect("the device maps its ring");
        let tail = log.status().ring;
        log.wait(tail, Level::Destaged, PATIENCE).expect("the record is destaged");
        let mut bytes = vec![0; tail as usize];
        log.x_pread(0, &mut bytes, PATIENCE).expect("the bytes are in the log");
        bytes
    };
    let (trapped, mapped) = (left(false), left(true));
    assert!(trapped == whole && mapped == whole, "{} {} {}", trapped.len(), mapped.len(), whole.len());
}

#[test]
fn a_run_with_a_mapped_ring_is_the_same_run_again() {
    let folder = folder();
    let device = Device::start(folder.path(), &["--input-log", "log"]);
    let log = Log::open(&device.target(), Options { write_back: Some(WriteBack::Lines), ..ring_level() });
    let log = log.expect("the device maps its ring");
    let mut writer = log.writer().expect("a slot");
    let mut end = 0;
    for number in 0..600 {
        end = writer.append(&payload(number)).expect("the device makes room").end;
    }
    log.wait(end, Level::Destaged, PATIENCE).expect("the record is destaged");
    drop(writer);
    drop(log);
    run_well(folder.path(), &["status", "--control", "control.sock"]);
    let mut device = device;
    let sent = Command::new("kill").args(["-TERM", &device.child.id().to_string()]).status().expect("kill starts");
    assert!(
        sent.success() && device.child.wait().expect("the process can be waited for").success(),
        "{}",
        device.errors()
    );
    let said = run_well(folder.path(), &["rerun", "log"]);
    assert!(said.contains("all identical in virtual time"), "{said}");
}
