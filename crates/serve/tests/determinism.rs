//! A served run once more, under the virtual clock: all that the device said follows from what came in and when.

use std::path::Path;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_base::checksum::crc32c_append;
use tidewater_core::profile::{Profile, Timing};
use tidewater_core::subsystem::Input;
use tidewater_core::subsystem::input_log::{Entries, Entry, MAGIC, MAGIC_1};
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, rerun};
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::Sqe;

/// Two hosts, with faults, resets, lost clients and commands that no host waits for. Returns the log.
fn record(folder: &Path, profile: Profile, seed: u64, rounds: u64) -> Vec<u8> {
    let path = folder.join(format!("log{seed}"));
    let mut setup = setup(profile, folder, Backing::Memory, 2);
    setup.input_log = Some(path.clone());
    let drive = Drive::start(&setup);
    let mut rng = Rng::new(seed, b"recorded");
    let mut hosts = [Host::attach(&drive, 0), Host::attach_with_shadow_doorbells(&drive, 1)];
    for round in 0..rounds {
        let host = &mut hosts[rng.below(2) as usize];
        let count = 1 + rng.below(40);
        let first = rng.below(2_000);
        match rng.below(20) {
            0..8 => host.write(first, &blocks_of(first, count, round + 1)),
            8..13 => drop(host.read(first, count as usize * BLOCK)),
            13 => host.flush(),
            14 => host.trim(first, count as u32),
            15 => host.zero(first, count),
            16 => drop(host.compare(first, &blocks_of(first, 1, round))),
            17 => {
                drive.ask(&Request::FaultStatus { nsid: 1, first, end: first + 4, status: 0x281, count: 1 });
                let _ = host.try_read(first, BLOCK).expect_err("a fault");
            }
            18 => {
                drive.ask(&Request::FaultDelay { function: 0, by_ns: rng.below(3_000_000), count: 1 });
                hosts[0].flush();
                drive.ask(&Request::FaultDuplicate { function: 0, count: 1 });
                drive.ask(&Request::FaultClear);
            }
            _ => match rng.below(5) {
                0 => {
                    let [one, other] = hosts;
                    drop(other);
                    hosts = [one, Host::attach_with_shadow_doorbells(&drive, 1)];
                }
                4 => {
                    drive.ask(&Request::PowerCut { off_ms: rng.below(3) });
                    drive.wait_for("serving");
                    hosts.iter_mut().for_each(|host| host.restart().expect("the controller is there again"));
                }
                1 => {
                    drive.ask(&Request::FaultFatal { function: 0 });
                    hosts[0].restart().expect("a reset");
                }
                _ => {
                    let sqe = host.buffer.attach(Sqe::write(9, first, 0).with_nsid(1), BLOCK as u64);
                    assert!(host.pair.submit(&sqe));
                    host.pair.ring().expect("a doorbell");
                    host.restart().expect("a reset");
                }
            },
        }
    }
    drop(hosts);
    drive.stop();
    std::fs::read(path).expect("a log")
}

fn is_the_same_again(timing: Timing, seed: u64, rounds: u64) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let log = record(folder.path(), tiny(timing), seed, rounds);
    let first = rerun(&log).unwrap_or_else(|error| panic!("{timing:?}, seed {seed}: {error}"));
    println!("{timing:?}: {} bytes of log, {first:?}", log.len());
    assert!(first.inputs > rounds && first.outputs > rounds);
    assert_eq!(rerun(&log), Ok(first));
    log
}

#[test]
fn an_unpaced_run_is_the_same_again() {
    (1..4).for_each(|seed| drop(is_the_same_again(Timing::None, seed, 300)));
}

#[test]
fn a_run_at_the_models_pace_is_the_same_again() {
    (1..4).for_each(|seed| drop(is_the_same_again(Timing::Model, seed, 200)));
}

#[test]
#[ignore = "long: make torture"]
fn torture_runs_are_the_same_again() {
    for timing in [Timing::None, Timing::Model] {
        (100..140).for_each(|seed| drop(is_the_same_again(timing, seed, 3_000)));
    }
}

/// Where the entries of a log begin.
fn header(log: &[u8]) -> usize {
    let len = u32::from_le_bytes(log[MAGIC.len()..MAGIC.len() + 4].try_into().expect("4 bytes"));
    MAGIC.len() + 4 + len as usize
}

/// The same log as version 1 has it, without sums: what notices a change there are the checks over outputs.
fn without_sums(log: &[u8]) -> Vec<u8> {
    let (mut plain, mut sum, mut at) = (Vec::new(), 0, 0);
    while at < log.len() {
        sum = crc32c_append(sum, &log[at..=at]);
        plain.push(log[at]);
        at += 1;
        // Behind the header, or an entry.
        if log[at..].starts_with(&sum.to_le_bytes()) {
            at += 4;
        }
    }
    plain[..MAGIC_1.len()].copy_from_slice(&MAGIC_1);
    plain
}

/// How many of 300 logs with another byte are noticed, at least.
const FLOOR: u32 = 60;

/// Any damage gives an error, a shorter run, or a run in which all is the same; never a panic. A change of what the
/// device says is always noticed: the checks are over all outputs.
#[test]
fn a_log_with_another_byte_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = without_sums(&record(folder.path(), tiny(Timing::None), 9, 40));
    let whole = rerun(&log).expect("the same again");
    let from = header(&log);
    let mut rng = Rng::new(9, b"another byte");
    let (begin, mut noticed, mut same, mut tried) = (Instant::now(), 0, 0, 0);
    while tried < 300 && (noticed <= FLOOR || begin.elapsed() < Duration::from_secs(6)) {
        let mut other = log.clone();
        let at = from + rng.below((log.len() - from) as u64) as usize;
        other[at] ^= 1 << rng.below(8);
        tried += 1;
        match rerun(&other) {
            Err(error) => {
                assert!(!error.0.is_empty());
                noticed += 1;
            }
            // What the device does not look at: reserved fields, time that does not matter, data of the last command.
            Ok(run) => {
                assert!(run.inputs <= whole.inputs, "byte {at}");
                same += 1;
            }
        }
    }
    println!("{tried} logs with another byte: {noticed} noticed, {same} in which the device said the same");
    // More than half are, as a rule; how many, the times decide that stand in the log.
    assert!(noticed > FLOOR);
    // What matters is noticed each time: the commands themselves, and the checks.
    let mut checked = 0;
    let places = places(&log);
    for (at, kind) in places {
        let mut other = log.clone();
        match kind {
            // The number of outputs.
            Kind::Check => other[at + 9] ^= 1,
            // The identifier of an I/O command, behind token, flag and length: it comes back in its completion.
            Kind::Command => other[at + 9 + 9 + 2] ^= 0x40,
        }
        checked += 1;
        assert!(rerun(&other).is_err(), "{kind:?} at byte {at}");
        if checked == 150 {
            break;
        }
    }
    assert!(checked > 50, "{checked}");
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Check,
    Command,
}

/// Where entries begin that matter, a part of all, the last of them left out: nothing that is said behind it is
/// compared.
fn places(log: &[u8]) -> Vec<(usize, Kind)> {
    let from = header(log);
    let mut kinds = Vec::new();
    let mut at = from;
    while at < log.len() {
        let kind = log[at + 8];
        let len = match kind {
            0 => 8 + 1 + 12,
            1 => 9 + 14,
            2 => 9 + 6,
            3 => 9 + 9 + u32::from_le_bytes(log[at + 14..at + 18].try_into().expect("4 bytes")) as usize,
            4 => 9 + 7 + u32::from_le_bytes(log[at + 12..at + 16].try_into().expect("4 bytes")) as usize,
            5 | 6 => 9 + 3,
            12 => 9 + 1,
            18 => 9 + 8,
            15 => 9 + [27, 14, 6, 6, 2, 2, 1][usize::from(log[at + 9])],
            _ => break,
        };
        match kind {
            0 => kinds.push((at, Kind::Check)),
            3 if len >= 9 + 9 + 64 && matches!(log[at + 18], 0x01 | 0x02) => kinds.push((at, Kind::Command)),
            _ => {}
        }
        at += len;
    }
    let last = kinds.len().saturating_sub(4);
    kinds.truncate(last);
    kinds
}

#[test]
fn a_log_that_is_cut_is_an_error_or_a_shorter_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = record(folder.path(), tiny(Timing::Model), 11, 20);
    let whole = rerun(&log).expect("the same again");
    let mut rng = Rng::new(11, b"cuts");
    // The header's sum stands behind it.
    let from = header(&log) + 4;
    let ends = (0..from).step_by(97).chain((0..120).map(|_| from + rng.below((log.len() - from) as u64) as usize));
    let (mut errors, mut shorter) = (0, 0);
    for end in ends.chain([0, 1, 8, 11, 12, from - 1, log.len() - 1]) {
        match rerun(&log[..end]) {
            Err(error) => {
                errors += 1;
                assert!(!error.0.is_empty());
            }
            Ok(run) => {
                shorter += 1;
                assert!(end >= from && run.inputs <= whole.inputs && run.time <= whole.time);
            }
        }
    }
    println!("{errors} errors, {shorter} shorter runs");
    assert!(errors > 50);
    assert_eq!(rerun(&log[..from]).expect("a run without inputs").inputs, 0);
    assert!(rerun(b"TWINPUT0 is another version").is_err());
}

/// Faults are inputs as all others.
#[test]
fn faults_are_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = record(folder.path(), tiny(Timing::None), 12, 150);
    let entries = Entries::new(&log, header(&log));
    let faults = entries.filter(|entry| matches!(entry, Ok(Entry::Input(_, Input::Inject(_))))).count();
    let entries = Entries::new(&log, header(&log));
    let cuts = entries.filter(|entry| matches!(entry, Ok(Entry::Cut { .. }))).count();
    assert!(faults > 5 && cuts > 0, "{faults} {cuts}");
}

/// A log begins with a new drive: one of a drive with a past could not be run again.
#[test]
fn a_drive_with_a_past_takes_no_input_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = setup(tiny(Timing::None), folder.path(), Backing::File(folder.path().join("drive")), 1);
    Drive::start(&setup).stop();
    setup.input_log = Some(folder.path().join("log"));
    let refused = tidewater_serve::engine::Server::start(setup, &mut drop).map(drop).expect_err("it holds a drive");
    assert!(refused.0.contains("needs a new drive"), "{refused}");
}
