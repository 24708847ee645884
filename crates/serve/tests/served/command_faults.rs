//! Faults on hosts' commands: each strikes, is counted, and is gone when it is cleared. A run with them is the same
//! again.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidewater_base::faults::{At, Fault, Faults, Kind, Listed, On};
use tidewater_base::{Duration as Time, Instant as Moment};
use tidewater_core::profile::Timing;
use tidewater_driver::vfio_user::NvmeError;
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, NamespaceSetup, rerun};
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::{Sqe, Status};

const BOTH: [Timing; 2] = [Timing::None, Timing::Model];
const BLOCKS: u64 = 2_048;

struct Served {
    drive: Drive,
    host: Host,
    log: PathBuf,
    _folder: TempDir,
}

impl Served {
    /// A drive of [`BLOCKS`] blocks, which keeps its input log, and its host.
    fn start(timing: Timing) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let mut setup = setup(tiny(timing), folder.path(), Backing::Memory, 1);
        setup.namespaces = vec![NamespaceSetup { bytes: Some(BLOCKS * BLOCK as u64), block_shift: 9 }];
        setup.input_log = Some(log.clone());
        let drive = Drive::start(&setup);
        let host = Host::attach(&drive, 0);
        Served { drive, host, log, _folder: folder }
    }

    fn arm(&self, fault: Fault) {
        self.drive.ask(&Request::Fault { fault });
    }

    /// How often the last of the faults that are remembered has struck, and whether it is over.
    fn last(&self) -> (u64, bool) {
        let answer = self.drive.ask(&Request::FaultList);
        let last = answer["faults"].as_array().and_then(|faults| faults.last()).expect("a fault is remembered");
        let listed: Listed = serde_json::from_value(last.clone()).expect("a fault in a list");
        (listed.struck, listed.over)
    }

    fn clear(&self) {
        self.drive.ask(&Request::FaultClear);
        let answer = self.drive.ask(&Request::FaultList);
        assert_eq!(answer["faults"].as_array().map(Vec::len), Some(0));
    }

    fn struck(&self, kind: Kind) -> u64 {
        let status = self.drive.ask(&Request::Status);
        status["faults_struck"][kind.name()].as_u64().unwrap_or(0)
    }

    /// Stops it, and runs its input log again.
    fn end(self) {
        let Served { drive, host, log, _folder } = self;
        drop(host);
        drive.stop();
        let log = std::fs::read(log).expect("a log");
        rerun(&log).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn status<T: std::fmt::Debug>(result: Result<T, NvmeError>) -> Status {
    match result {
        Err(NvmeError::Status(status)) => status,
        other => panic!("no status: {other:?}"),
    }
}

#[test]
fn a_lost_write_is_acknowledged_and_never_there() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        let (old, new) = (blocks_of(0, 64, 1), blocks_of(0, 64, 2));
        served.host.write(0, &old);
        served.arm(Fault { after: 1, ..Fault::new(Kind::LostWrite) });
        // The first is written, a part of a page and whole pages of the second are not, the third is.
        served.host.write(0, &new[..8 * BLOCK]);
        served.host.write(11, &new[11 * BLOCK..40 * BLOCK]);
        served.host.write(48, &new[48 * BLOCK..]);
        served.host.flush();
        let found = served.host.read(0, old.len());
        let expected = [&new[..8 * BLOCK], &old[8 * BLOCK..48 * BLOCK], &new[48 * BLOCK..]].concat();
        assert!(found == expected, "{timing:?}");
        assert_eq!((served.last(), served.struck(Kind::LostWrite)), ((1, true), 1));
        served.arm(Fault { count: 0, ..Fault::new(Kind::LostWrite) });
        served.clear();
        served.host.write(0, &new);
        assert!(served.host.read(0, new.len()) == new, "{timing:?}");
        served.end();
    }
}

#[test]
fn a_misdirected_write_is_acknowledged_and_lies_elsewhere() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        let old: Vec<u8> = (0..BLOCKS).step_by(64).flat_map(|first| blocks_of(first, 64, 1)).collect();
        (0..BLOCKS).step_by(64).zip(old.chunks(64 * BLOCK)).for_each(|(first, data)| served.host.write(first, data));
        served.arm(Fault { seed: 3, ..Fault::new(Kind::MisdirectedWrite) });
        let new = blocks_of(16, 8, 2);
        served.host.write(16, &new);
        served.host.flush();
        let found: Vec<u8> = (0..BLOCKS).step_by(64).flat_map(|first| served.host.read(first, 64 * BLOCK)).collect();
        let place = found.chunks(BLOCK).position(|block| *block == new[..BLOCK]).expect("it lies somewhere");
        assert!(place != 16 && place % 8 == 0, "{place}");
        let mut expected = old.clone();
        expected[place * BLOCK..(place + 8) * BLOCK].copy_from_slice(&new);
        assert!(found == expected, "{timing:?}: nothing else has changed");
        assert_eq!((served.last(), served.struck(Kind::MisdirectedWrite)), ((1, true), 1));
        served.arm(Fault { count: 0, ..Fault::new(Kind::MisdirectedWrite) });
        served.clear();
        served.host.write(16, &new);
        assert!(served.host.read(16, new.len()) == new, "{timing:?}");
        served.end();
    }
}

#[test]
fn a_flipped_bit_is_in_what_is_read_and_not_in_what_is_kept() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        let data = blocks_of(0, 128, 1);
        served.host.write(0, &data);
        served.arm(Fault { count: 2, seed: 5, ..Fault::new(Kind::BitFlip) });
        for _ in 0..2 {
            let found = served.host.read(0, data.len());
            let wrong: u32 = found.iter().zip(&data).map(|(found, right)| (found ^ right).count_ones()).sum();
            assert_eq!(wrong, 1, "{timing:?}");
        }
        assert!(served.host.read(0, data.len()) == data, "{timing:?}");
        assert_eq!((served.last(), served.struck(Kind::BitFlip)), ((2, true), 2));
        served.arm(Fault { count: 0, ..Fault::new(Kind::BitFlip) });
        served.clear();
        assert!(served.host.read(0, data.len()) == data, "{timing:?}");
        served.end();
    }
}

#[test]
fn errors_end_the_commands_that_they_are_about() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        let (old, new) = (blocks_of(0, 8, 1), blocks_of(0, 8, 2));
        served.host.write(0, &old);
        for (kind, expected) in [(Kind::Eio, Status::INTERNAL_ERROR), (Kind::Enospc, Status::CAPACITY_EXCEEDED)] {
            for on in [On::Read, On::Write, On::Sync] {
                served.arm(Fault { on: Some(on), after: 1, count: 0, ..Fault::new(kind) });
                for is_first in [true, false] {
                    let host = &mut served.host;
                    let done = [
                        (On::Read, host.try_read(0, old.len()).map(drop)),
                        (On::Write, host.try_write(0, if is_first { &old } else { &new }, false).map(drop)),
                        (On::Sync, host.run(Sqe::flush(1)).map(drop)),
                    ];
                    for (which, done) in done {
                        if which == on && !is_first {
                            let status = status(done);
                            assert!(status.same_code(expected) && status.dnr(), "{kind:?} {on:?}: {status:?}");
                        } else {
                            done.unwrap_or_else(|error| panic!("{kind:?} {on:?}, {which:?}: {error}"));
                        }
                    }
                }
                assert_eq!(served.last(), (1, false));
                served.clear();
                // A write that failed has written nothing.
                let is_old = served.host.read(0, old.len()) == old;
                assert_eq!(is_old, on == On::Write, "{kind:?} {on:?}");
                served.host.write(0, &old);
                served.host.flush();
            }
            assert_eq!(served.struck(kind), 3);
        }
        // FUA makes a write one that syncs.
        served.arm(Fault { on: Some(On::Sync), ..Fault::new(Kind::Eio) });
        assert!(status(served.host.try_write(0, &new, true)).same_code(Status::INTERNAL_ERROR));
        served.end();
    }
}

#[test]
fn commands_wait_for_the_end_of_a_stall() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        let begin = Instant::now();
        served.arm(Fault { for_ns: 200_000_000, count: 0, ..Fault::new(Kind::Stall) });
        served.host.write(0, &blocks_of(0, 8, 1));
        assert!(begin.elapsed() >= Duration::from_millis(200), "{timing:?}: {:?}", begin.elapsed());
        assert!(served.struck(Kind::Stall) >= 1);
        // The word that ends a stall ends it for commands that wait.
        served.arm(Fault { for_ns: 3_600_000_000_000, count: 0, ..Fault::new(Kind::Stall) });
        assert!(served.host.pair.submit(&Sqe::flush(7).with_nsid(1)));
        served.host.pair.ring().expect("a doorbell");
        let until = Instant::now() + PATIENCE;
        while served.struck(Kind::Stall) < 2 {
            assert!(Instant::now() < until, "the flush is not held back");
        }
        assert!(served.host.pair.poll().is_none());
        served.clear();
        assert_eq!(served.host.pair.wait(PATIENCE).expect("it ends").cid, 7);
        served.host.flush();
        served.end();
    }
}

#[test]
fn slow_commands_take_what_the_distribution_says() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        served.host.write(0, &blocks_of(0, 8, 1));
        let slow = Fault { on: Some(On::Read), count: 0, seed: 11, ..Fault::new(Kind::Slow) };
        let slow = Fault { quantiles_ns: [5_000_000, 20_000_000, 20_000_000, 20_000_000], ..slow };
        served.arm(slow);
        let mut same = Faults::default();
        same.arm(slow, Moment::ZERO).expect("it can come about");
        let drawn = (0..20).fold(Time::ZERO, |sum, _| sum + same.delay(On::Read, Moment::ZERO));
        let begin = Instant::now();
        (0..20).for_each(|_| drop(served.host.read(0, BLOCK)));
        assert!(begin.elapsed().as_nanos() as u64 >= drawn.as_ns() && !drawn.is_zero(), "{timing:?}: {drawn}");
        assert_eq!(served.struck(Kind::Slow), 20);
        served.host.flush();
        served.clear();
        served.host.read(0, BLOCK);
        assert_eq!(served.struck(Kind::Slow), 20, "of others none is late");
        served.end();
    }
}

#[test]
fn the_power_is_cut_when_it_was_asked_to() {
    for timing in BOTH {
        let mut served = Served::start(timing);
        let data = blocks_of(0, 8, 1);
        for (cuts, at) in ["write:3", "sync:2", "time:30ms", "event:40"].into_iter().enumerate() {
            served.host.write(0, &data);
            served.host.flush();
            let at: At = at.parse().expect("a moment");
            served.drive.ask(&Request::PowerCutAt { at, off_ms: 0 });
            let until = Instant::now() + PATIENCE;
            let (mut writes, mut syncs) = (0, 0);
            while served.drive.count("power_cuts") == cuts as u64 {
                assert!(Instant::now() < until, "{timing:?} {at}: no cut");
                // One command at a time, until none ends any more.
                let sqe = if (writes + syncs) % 2 == 0 {
                    writes += 1;
                    served.host.buffer.attach(Sqe::write(1, 64, 7).with_nsid(1), data.len() as u64)
                } else {
                    syncs += 1;
                    Sqe::flush(1).with_nsid(1)
                };
                assert!(served.host.pair.submit(&sqe));
                served.host.pair.ring().expect("a doorbell");
                while served.host.pair.take().expect("the socket is open").is_none() {
                    assert!(Instant::now() < until, "{timing:?} {at}: neither a completion nor a cut");
                    if served.drive.count("power_cuts") > cuts as u64 {
                        break;
                    }
                }
            }
            match at {
                At::Nth(On::Write, nth) => assert_eq!(writes, nth, "{timing:?} {at}"),
                At::Nth(On::Sync, nth) => assert_eq!(syncs, nth, "{timing:?} {at}"),
                _ => {}
            }
            served.drive.wait_for("serving");
            served.host.restart().expect("the controller is there again");
            assert!(served.host.read(0, data.len()) == data, "{timing:?} {at}: what was flushed is there");
            assert_eq!((served.last().1, served.struck(Kind::PowerCut)), (true, cuts as u64 + 1));
        }
        // One that was cleared never comes.
        for at in ["write:1", "event:1"] {
            served.drive.ask(&Request::PowerCutAt { at: at.parse().expect("a moment"), off_ms: 3_600_000 });
            served.clear();
            served.host.write(0, &data);
            served.host.flush();
        }
        assert_eq!(served.drive.count("power_cuts"), 4);
        served.end();
    }
}

#[test]
fn what_a_drive_can_not_do_is_refused_in_words() {
    let served = Served::start(Timing::None);
    let refused = |fault: Fault| served.drive.try_ask(&Request::Fault { fault }).expect_err("it can't come about");
    assert!(refused(Fault::new(Kind::Stall)).contains("a time above 0"));
    assert!(refused(Fault { on: Some(On::Sync), ..Fault::new(Kind::LostWrite) }).contains("not about syncs"));
    assert!(
        refused(Fault { on: Some(On::Sync), keep_dirty: true, ..Fault::new(Kind::Eio) }).contains("no dirty files")
    );
    let too_long = Request::PowerCutAt { at: "write:1".parse().expect("a moment"), off_ms: 86_400_001 };
    assert!(served.drive.try_ask(&too_long).expect_err("no cut is that long").contains("a day"));
    served.end();
}
