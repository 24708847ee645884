//! Processes that share a lane: they write at once by inherited descriptors, die at any moment, and nothing that was
//! appended is lost.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidewater_client::mapped::{Log, Options, Shared};
use tidewater_client::{End, Entry, Level, LogError, Records};
use tidewater_tests::PATIENCE;
use tidewater_tests::ring::{Device, RING};
use tidewater_tests::wait;

/// Room for all that a test appends.
const ROOM: [&str; 6] =
    ["--set", "fast.log_size=64MiB", "--set", "nand.blocks_per_plane=256", "--set", "memory.dram.size=4MiB"];

/// The record of the test itself.
const LAST: u64 = 1 << 48;

fn options() -> Options {
    Options { level: Some(Level::Ring), full: PATIENCE, timeout: PATIENCE, ..Options::default() }
}

/// A payload that tells which it is: up to a quarter of the ring.
fn payload(number: u64) -> Vec<u8> {
    let len = 16 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (RING as usize / 4);
    let filler = (0..len - 8).map(|at| (number as usize * 31 + at) as u8);
    number.to_le_bytes().into_iter().chain(filler).collect()
}

/// An append that a child has confirmed: number, first byte, end.
struct Confirmed(u64, u64, u64);

fn confirmed(folder: &Path, child: u64) -> Vec<Confirmed> {
    let bytes = std::fs::read(folder.join(format!("confirmed-{child}"))).unwrap_or_default();
    let word = |line: &[u8], at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("8 bytes"));
    bytes.chunks_exact(24).map(|line| Confirmed(word(line, 0), word(line, 8), word(line, 16))).collect()
}

/// Starts a process that has the lane by its standard input and error.
fn start_child(log: &Log, folder: &Path, number: u64, mode: &str) -> Child {
    let Shared { ring, doorbell, copy, lane, generation } = log.share().expect("there are descriptors");
    Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["lanes::child_that_shares", "--exact", "--ignored", "--nocapture"])
        .current_dir(folder)
        .env("TIDEWATER_TEST_CHILD", format!("{lane}:{generation}:{number}:{mode}:{}", copy.is_some()))
        .stdin(Stdio::from(ring))
        .stdout(Stdio::null())
        .stderr(Stdio::from(doorbell))
        .spawn()
        .expect("it starts")
}

#[test]
#[ignore = "not a test: the process that other tests kill"]
fn child_that_shares() {
    let Ok(job) = std::env::var("TIDEWATER_TEST_CHILD") else { return };
    let words: Vec<&str> = job.split(':').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let ring = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let doorbell = std::io::stderr().as_fd().try_clone_to_owned().expect("a descriptor");
    // What the test harness prints must not go into it.
    let copy = || File::options().read(true).write(true).open("copy").expect("the file can be opened").into();
    let copy = (words[4] == "true").then(copy);
    let shared = Shared { ring, doorbell, copy, lane: number(0) as u8, generation: number(1) };
    let log = Log::join(shared, options()).expect("the lane can be joined");
    let child = number(2);
    // Its standard error is a doorbell.
    std::panic::set_hook(Box::new(move |why| drop(std::fs::write(format!("failed-{child}"), why.to_string()))));
    let mut out = File::create(format!("confirmed-{child}")).expect("the folder is writable");
    if words[3] == "holds" {
        // Dies amid a record, for certain.
        let mut begun = log.begin(1000).expect("there is room");
        begun.fill(0, &[0xee; 500]);
        out.write_all(&[1; 24]).expect("there is room");
        loop {
            std::thread::park();
        }
    }
    let out = std::sync::Mutex::new(out);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (log, out) = (&log, &out);
            scope.spawn(move || {
                for i in 0.. {
                    let number = child << 32 | thread << 31 | i;
                    let payload = payload(number);
                    let (first, rest) = payload.split_at(11);
                    let written = log.append(&[first, &[], rest]).expect("the credit goes on");
                    let line = [number, written.lsn, written.end].map(u64::to_le_bytes).concat();
                    out.lock().expect("no thread panicked").write_all(&line).expect("there is room");
                    let level = match i % 16 {
                        3 => Level::Destaged,
                        _ if i % 2 == 0 => Level::Ring,
                        _ => continue,
                    };
                    log.wait(written.end, level, PATIENCE).expect("no other writer is in the way");
                }
            });
        }
    });
}

/// All records from the begin of the log to `end`, which is at RING: numbers by their places; and how many void ones
/// there are.
fn records(log: &Log, end: u64) -> (Vec<(u64, u64)>, usize) {
    let mut bytes = vec![0; end as usize];
    log.x_pread(0, &mut bytes, PATIENCE).expect("the bytes are in the log");
    let (mut found, mut voids) = (Vec::new(), 0);
    let mut records = Records::new(&bytes, 0);
    for entry in records.by_ref() {
        match entry {
            Entry::Record { lsn, payload: found_payload, .. } => {
                let number = u64::from_le_bytes(found_payload[..8].try_into().expect("8 bytes"));
                assert_eq!(found_payload, payload(number), "record {number:x} at {lsn}");
                found.push((lsn, number));
            }
            Entry::Void { .. } => voids += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(records.end(), Some(End::Complete));
    (found, voids)
}

fn wait_until_confirmed(folder: &Path, child: u64, lines: usize) {
    let failed = || std::fs::read_to_string(folder.join(format!("failed-{child}"))).unwrap_or_default();
    let else_say = || format!("child {child} appends nothing: the credit is stuck, or it failed: {}", failed());
    wait::until(else_say, || confirmed(folder, child).len() >= lines);
}

/// `rounds` times a process is killed at a moment that the seed tells, while others write.
fn torture(rounds: u64, seed: u64, more: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &[&ROOM[..], more].concat());
    let log = Log::open(&device.target(), options()).expect("the device maps its ring");
    let mut random = seed;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let mut children: Vec<(u64, Child)> = Vec::new();
    let mut holders = 0;
    for round in 0..rounds {
        while children.len() < 3 {
            let number = round * 8 + children.len() as u64 + 1;
            children.push((number, start_child(&log, folder.path(), number, "appends")));
        }
        let holder = round * 8;
        let mut held = (round % 4 == 3).then(|| start_child(&log, folder.path(), holder, "holds"));
        if held.is_some() {
            wait_until_confirmed(folder.path(), holder, 1);
            holders += 1;
        }
        wait::pass(Duration::from_micros(next() % 12_000));
        let (_, mut victim) = children.swap_remove(next() as usize % children.len());
        victim.kill().expect("the process can be killed");
        if let Some(held) = &mut held {
            held.kill().expect("the process can be killed");
        }
        // Some stay zombies for a while: they are as dead.
        let before: Vec<usize> = children.iter().map(|(number, _)| confirmed(folder.path(), *number).len()).collect();
        if round % 8 == 0 {
            // The others go on, whatever was left.
            for ((number, _), before) in children.iter().zip(before) {
                wait_until_confirmed(folder.path(), *number, before + 4);
            }
        }
        victim.wait().expect("the process can be waited for");
        if let Some(held) = &mut held {
            held.wait().expect("the process can be waited for");
        }
    }
    for (_, child) in &mut children {
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
    }
    // The handle here does not wait for dead writers.
    let written = log.append(&[&payload(LAST)]).expect("there is room");
    log.wait(written.end, Level::Destaged, PATIENCE).expect("the credit is not stuck");
    assert_eq!((log.tail(), log.end()), (written.end, written.end));
    let (mut found, mut voids) = records(&log, written.end);
    let mut _next = None;
    if more.contains(&"--ring-copy") {
        // The machine has crashed: what only the ring held comes from the copy, which dead writers have written, too.
        drop(log);
        let device = device.restart_without_ring(&[&ROOM[..], more].concat());
        let log = Log::open(&device.target(), options()).expect("the device maps its ring");
        assert_eq!(log.tail(), written.end);
        (found, voids) = records(&log, written.end);
        _next = Some(device);
    }
    assert!(voids >= holders, "{voids} of {holders}");
    let mut checked = 0;
    for child in 0..rounds * 8 {
        let mut last = [0; 2];
        for Confirmed(number, lsn, end) in confirmed(folder.path(), child) {
            if number == u64::from_le_bytes([1; 8]) {
                continue;
            }
            let at = found.binary_search_by_key(&lsn, |(lsn, _)| *lsn);
            let at = at.unwrap_or_else(|_| panic!("record {number:x} at {lsn} to {end} is lost"));
            assert_eq!(found[at], (lsn, number));
            // In the order in which each thread confirmed them.
            let thread = (number >> 31 & 1) as usize;
            assert!(lsn >= last[thread]);
            last[thread] = end;
            checked += 1;
        }
    }
    assert!(checked >= rounds as usize, "{checked}");
    println!("{rounds} killed: {checked} confirmed records, all there; {voids} holes sealed");
}

#[test]
fn what_processes_that_are_killed_had_appended_stays_and_others_go_on() {
    torture(40, 1, &[]);
}

#[test]
fn what_processes_that_are_killed_had_appended_comes_back_from_the_copy() {
    torture(16, 2, &["--ring-copy", "copy"]);
}

#[test]
#[ignore = "takes minutes; run by `make torture`"]
fn what_processes_that_are_killed_had_appended_stays_in_many_rounds() {
    (0..20).for_each(|seed| torture(60, seed, if seed % 2 == 0 { &[] } else { &["--ring-copy", "copy"] }));
}

#[test]
fn a_lane_is_busy_as_long_as_anybody_has_it_and_goes_on_with_what_they_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &ROOM);
    let log = Log::open(&device.target(), options()).expect("the device maps its ring");
    let shared = log.share().expect("there are descriptors");
    let mut child = start_child(&log, folder.path(), 1, "appends");
    wait_until_confirmed(folder.path(), 1, 3);
    // The handle that opened it is closed; its child and another handle of this process go on.
    drop(log);
    let joined = Log::join(shared, options()).expect("the lane can be joined");
    let before = confirmed(folder.path(), 1).len();
    wait_until_confirmed(folder.path(), 1, before + 3);
    let open = || {
        wait::some(
            || "the device takes no other client".into(),
            || match Log::open(&device.target(), options()) {
                Err(LogError::Taken | LogError::Unreachable { .. }) => None,
                other => Some(other),
            },
        )
    };
    assert!(matches!(open(), Err(LogError::Busy { lane: 0 })));
    // By the doorbell, without a connection: sooner than the device looks by itself.
    let written = joined.append(&[&payload(LAST)]).expect("there is room");
    joined.wait(written.end, Level::Destaged, PATIENCE).expect("the record is destaged");
    for error in [
        joined.trim(0).expect_err("it has no connection"),
        joined.x_pread(0, &mut [0; 9], PATIENCE).expect_err("nor flash"),
    ] {
        assert!(matches!(error, LogError::Joined | LogError::Released { .. }), "{error}");
    }
    assert!(joined.status().device.is_none() && joined.status().destaged >= written.end);
    child.kill().expect("the process can be killed");
    child.wait().expect("the process can be waited for");
    assert!(matches!(open(), Err(LogError::Busy { lane: 0 })));
    drop(joined);
    // What another test starts has a copy of each descriptor until it runs its program.
    let log = wait::success("no process has it any more", open);
    let (found, _) = records(&log, log.tail());
    for Confirmed(number, lsn, _) in confirmed(folder.path(), 1) {
        assert!(found.contains(&(lsn, number)), "{number:x} at {lsn}");
    }
    assert!(found.contains(&(written.lsn, LAST)));
}

#[test]
fn a_device_that_starts_anew_serves_those_who_share_and_one_of_another_generation_does_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &ROOM);
    let mut log = Log::open(&device.target(), options()).expect("the device maps its ring");
    let shared = log.share().expect("there are descriptors");
    let late = Shared { generation: shared.generation + 1, ..log.share().expect("there are descriptors") };
    assert!(matches!(Log::join(late, options()), Err(LogError::Stale)));
    let joined = Log::join(shared, options()).expect("the lane can be joined");
    let first = joined.append(&[b"first"]).expect("there is room");
    device.kill();
    let second = joined.append(&[b"second"]).expect("the ring is there");
    joined.wait(second.end, Level::Ring, PATIENCE).expect("no other process is needed");
    let _device = Device::start(folder.path(), &ROOM);
    // Its doorbell is another one; it looks at what is wanted by itself.
    joined.wait(second.end, Level::Destaged, PATIENCE).expect("it takes what the ring holds");
    let found = log.reattach().expect("it serves");
    assert_eq!((found.tail, found.is_new), (second.end, false));
    let mut bytes = vec![0; (second.end - first.lsn) as usize];
    log.x_pread(first.lsn, &mut bytes, PATIENCE).expect("the bytes are in the log");
    let payloads: Vec<&[u8]> = Records::new(&bytes, first.lsn)
        .filter_map(|entry| if let Entry::Record { payload, .. } = entry { Some(payload) } else { None })
        .collect();
    assert_eq!(payloads, [&b"first"[..], b"second"]);
    // A file that is no ring is none, and no handle of one.
    let mut other = File::create(folder.path().join("other")).expect("a folder");
    other.write_all(&[0; 9000]).expect("there is room");
    let mut opened =
        File::options().read(true).write(true).open(folder.path().join("other")).expect("the file can be opened");
    opened.read_exact(&mut [0; 8]).expect("the file can be read");
    let foreign = Shared { ring: opened.into(), ..log.share().expect("there are descriptors") };
    assert!(matches!(Log::join(foreign, options()), Err(LogError::Ring(_))));
}
