//! Programs that are given all devices of a group: they find the primary, and the next one, and every acknowledged
//! record is there once, in order.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cluster::{Cluster, PATIENCE, numbers};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use tidewater_base::Rng;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Entry, Level, LogError, Records};
use tidewater_tests::capi::{Installed, said};
use tidewater_tests::{root, run, run_refused, run_well, wait};

/// All devices of a group.
fn target(cluster: &Cluster) -> String {
    let nodes = 0..cluster.devices.len() as u8;
    let socket = |node| format!("vfio-user:{}", cluster.path(node).join("vfio.sock").display());
    nodes.map(socket).collect::<Vec<_>>().join(",")
}

fn open(cluster: &Cluster) -> Log {
    let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
    Log::open(&target(cluster), options).expect("one is primary")
}

/// A program with some threads, each of which appends numbers and waits for replicas.
pub struct Program<'c> {
    log: &'c Log,
    next: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
    ends: AtomicBool,
}

impl<'c> Program<'c> {
    fn new(log: &'c Log) -> Program<'c> {
        Program { log, next: AtomicU64::new(0), acknowledged: Mutex::default(), ends: AtomicBool::new(false) }
    }

    /// One thread, until the program ends. No call fails.
    fn append(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let written = self.log.append(&[&number.to_le_bytes()]).expect("the log accepts the record");
            self.log.wait(written.end, Level::RemoteRing, PATIENCE).expect("the log reaches the level");
            self.acknowledged.lock().expect("no panic").push(number);
        }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("no panic").len()
    }

    /// Waits until more is acknowledged.
    pub fn until_more(&self, cluster: &Cluster) {
        let before = self.count();
        let else_say = || {
            let is =
                (0..3).filter(|&node| cluster.devices[usize::from(node)].is_some()).map(|node| cluster.status(node));
            format!("it stands still after {before}: {:?}", is.collect::<Vec<_>>())
        };
        wait::until(else_say, || self.count() >= before + 20);
    }

    /// Each number once, and all that were acknowledged.
    fn check(&self, found: &[u64]) {
        let mut sorted = found.to_vec();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|two| two[0] < two[1]), "a record is there twice");
        let acknowledged = self.acknowledged.lock().expect("no panic");
        let missing: Vec<&u64> = acknowledged.iter().filter(|it| sorted.binary_search(it).is_err()).collect();
        assert!(missing.is_empty(), "{missing:?} of {} are gone", acknowledged.len());
    }
}

/// Does something while a program appends by some threads, and checks the log on whichever node is primary then.
pub fn while_appending(
    cluster: &mut Cluster,
    threads: usize,
    then: impl FnOnce(&mut Cluster, &Program<'_>) -> u8,
) -> u64 {
    let log = open(cluster);
    let program = Program::new(&log);
    let mut primary = 0;
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(|| program.append())));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            program.until_more(cluster);
            let node = then(cluster, &program);
            program.until_more(cluster);
            node
        }));
        program.ends.store(true, Ordering::Relaxed);
        match done {
            Ok(node) => primary = node,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let (found, moves) = (Mutex::new(Vec::new()), log.moves());
    let acknowledged = program.acknowledged;
    drop(log);
    let reader = cluster.open(primary, Level::Ring).expect("it is primary");
    *found.lock().expect("no panic") = numbers(&reader);
    let found = found.into_inner().expect("no panic");
    if threads == 1 {
        assert!(found.is_sorted(), "numbers are out of order");
    }
    Program { log: &reader, next: AtomicU64::new(0), acknowledged, ends: AtomicBool::new(true) }.check(&found);
    moves
}

#[test]
fn a_program_goes_on_when_its_primary_is_killed_and_each_record_is_there_once() {
    for threads in [1, 4] {
        let mut cluster = Cluster::new(3);
        cluster.form("quorum");
        let moves = while_appending(&mut cluster, threads, |cluster, _| {
            cluster.kill(0);
            std::fs::remove_dir_all(cluster.path(0)).expect("the folder can be removed");
            cluster.promote(1);
            1
        });
        assert!(moves > 0, "{moves}");
    }
}

/// The device lives, and what its ring says of it is as it was before.
#[test]
fn a_program_goes_on_when_the_disk_of_its_primary_is_dead_and_the_next_one_finds_the_primary() {
    for fault in ["sync", "write"] {
        let Some(mut cluster) = Cluster::with_disks(3) else { return };
        cluster.form("quorum");
        let moves = while_appending(&mut cluster, 2, |cluster, _| {
            cluster.disk(0, fault);
            let is_dead = |status: &serde_json::Value| status["groups"][0]["flags"].to_string().contains("its disk");
            cluster.until(0, "its disk fails", is_dead);
            cluster.promote(1);
            1
        });
        assert!(moves > 0, "{fault}");
        // The list begins with the one whose disk is dead. Without another, the disk is what is said.
        drop(open(&cluster));
        cluster.kill(1);
        let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
        let why = Log::open(&target(&cluster), options).expect_err("none leads").to_string();
        assert!(why.contains("0/vfio.sock: ") && why.contains("cannot write its image"), "{why}");
    }
}

#[test]
fn a_program_goes_on_when_its_primary_stands_still_and_a_deposed_one_acknowledges_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    while_appending(&mut cluster, 2, |cluster, program| {
        cluster.signal(0, Signal::SIGSTOP);
        cluster.promote(2);
        // It goes on while the old primary still stands.
        program.until_more(cluster);
        cluster.signal(0, Signal::SIGCONT);
        program.until_more(cluster);
        cluster.until(0, "it follows", |status| status["groups"][0]["role"] == "secondary");
        2
    });
}

#[test]
fn a_log_that_another_program_has_gone_on_with_is_not_appended_to() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = open(&cluster);
    let written = log.append(&[&0u64.to_le_bytes()]).expect("there is room");
    log.wait(written.end, Level::RemoteRing, PATIENCE).expect("replicas acknowledge");
    cluster.kill(0);
    // Not on any replica, and another program's are there instead.
    let late = log.append(&[&1u64.to_le_bytes()]).expect("the ring accepts the record");
    cluster.promote(1);
    let other = cluster.log(1);
    crate::cluster::append(&other, 2, PATIENCE).expect("two are there");
    drop(other);
    let error = log.wait(late.end, Level::RemoteRing, PATIENCE).expect_err("it was overtaken");
    assert!(matches!(error, LogError::Overtaken { at } if (late.lsn..late.end).contains(&at)), "{error}");
    drop(log);
    assert_eq!(numbers(&cluster.log(1)), [0, 2]);
}

#[test]
fn all_devices_that_are_no_primary_are_named_and_a_command_finds_the_one_that_is() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let folder = cluster.folder.path().to_owned();
    cluster.kill(0);
    let line = ["run", "--device", "0,1,2", "--level", "remote-ring", "--log", "app.log", "--", "sh", "-c"];
    let program = [&line[..], &["echo x >> app.log; sync -d app.log"]].concat();
    let said = run_refused(&folder, &program);
    for part in
        ["none of the devices is primary", "0/vfio.sock: ", "1/vfio.sock: the device is a secondary", "2/vfio.sock"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    cluster.promote(2);
    let output = run(&folder, &program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(run_well(&folder, &["recover", "--device", "0,1,2"]).contains("no changes"));
}

/// The example of `tidewater(3)`.
#[test]
fn a_program_in_c_goes_on_when_its_primary_is_killed() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let folder = cluster.folder.path().to_owned();
    let capi = Installed::at(&folder);
    let program = folder.join("commit");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    cc.arg(root().join("crates/capi/examples/commit.c")).args(capi.flags(&["--cflags", "--libs"]));
    said(cc.arg(format!("-Wl,-rpath,{}", capi.prefix.join("lib").display())));
    let mut command = Command::new(&program);
    command.arg(target(&cluster)).arg("remote-ring").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = child.stdin.take().expect("it is piped");
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped")).lines().map(|line| line.expect("text"));
    assert!(answers.next().expect("a line").starts_with("the log goes on at "));
    let mut moved = Vec::new();
    for number in 0..20 {
        if number == 10 {
            cluster.kill(0);
            std::fs::remove_dir_all(cluster.path(0)).expect("the folder can be removed");
            cluster.promote(1);
        }
        writeln!(lines, "line {number}").expect("the program reads its input");
        let mut answer = answers.next().expect("the program prints a line");
        if answer.starts_with("on another primary") {
            moved.push(answer);
            answer = answers.next().expect("the program prints a line");
        }
        assert!(answer.ends_with(": committed"), "{answer}");
    }
    drop(lines);
    moved.extend(answers);
    assert_eq!(moved, ["on another primary, 1. time"]);
    assert!(child.wait().expect("the process can be waited for").success());
    let log = cluster.open(1, Level::Ring).expect("it is primary");
    let (from, to) = (log.status().device.expect("the device answers").lane[0].readable, log.tail());
    let mut bytes = vec![0; (to - from) as usize];
    log.x_pread(from, &mut bytes, PATIENCE).expect("the bytes are in the log");
    let records = Records::new(&bytes, from).filter_map(|entry| match entry {
        Entry::Record { payload, .. } => Some(String::from_utf8_lossy(payload).into_owned()),
        _ => None,
    });
    assert!(records.eq((0..20).map(|number| format!("line {number}\n"))));
}

/// Some fail-overs of a program that appends all the while.
fn life(seed: u64, rounds: u32) -> u64 {
    let mut rng = Rng::new(seed, b"clients");
    let mut cluster = Cluster::new(3);
    cluster.form(["quorum", "eager", "chain"][rng.below(3) as usize]);
    let threads = 1 + rng.below(4) as usize;
    while_appending(&mut cluster, threads, |cluster, program| {
        let mut primary = 0;
        for _ in 0..rounds {
            let (old, next) = (primary, (primary + 1 + rng.below(2) as u8) % 3);
            let stops = rng.below(3);
            match stops {
                0 => cluster.kill(old),
                1 => cluster.signal(old, Signal::SIGSTOP),
                _ => {} // A switch-over: both are there.
            }
            wait::pass(Duration::from_millis(rng.below(100)));
            cluster.promoted(next);
            wait::pass(Duration::from_millis(rng.below(100)));
            match stops {
                0 => cluster.start(old),
                1 => cluster.signal(old, Signal::SIGCONT),
                _ => {}
            }
            primary = next;
            program.until_more(cluster);
            cluster.until(primary, "all are in step", |status| {
                let replicas = status["groups"][0]["replicas"].as_array().expect("a list");
                !replicas.is_empty() && replicas.iter().all(|it| it["state"] == "in step")
            });
        }
        primary
    })
}

#[test]
fn programs_live_through_fail_overs() {
    println!("clients: {} moves", life(1, 3));
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_programs_live_through_fail_overs() {
    let mut moves = 0;
    for seed in 100..140 {
        println!("seed {seed}");
        moves += life(seed, 10);
    }
    println!("clients: 40 lives, {moves} moves");
    assert!(moves > 40, "{moves}");
}

#[test]
fn a_handle_that_is_reattached_moves_with_what_it_has_appended() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
    let mut log = Log::open(&target(&cluster), options).expect("one is primary");
    let mut ends = Vec::new();
    for number in 0..50u64 {
        ends.push(log.append(&[&number.to_le_bytes()]).expect("there is room").end);
    }
    log.wait(ends[20], Level::RemoteRing, PATIENCE).expect("replicas acknowledge");
    cluster.kill(0);
    for number in 50..60u64 {
        ends.push(log.append(&[&number.to_le_bytes()]).expect("the ring accepts the record").end);
    }
    cluster.promote(1);
    let recovered = log.reattach().expect("node 1 is primary");
    assert!(recovered.tail >= ends[20], "{recovered:?}");
    log.wait(ends[59], Level::RemoteRing, PATIENCE).expect("two are there");
    assert!(numbers(&log).into_iter().eq(0..60));
}

#[test]
fn a_record_that_is_being_filled_keeps_a_log_where_it_is_and_a_waiter_by_descriptor_moves_it() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = Arc::new(open(&cluster));
    let written = log.append(&[&0u64.to_le_bytes()]).expect("there is room");
    log.wait(written.end, Level::RemoteRing, PATIENCE).expect("replicas acknowledge");
    let mut begun = log.begin(8).expect("there is room");
    cluster.kill(0);
    let late = log.append(&[&2u64.to_le_bytes()]).expect("the ring accepts the record");
    cluster.promote(1);
    let why = log.is_there().expect_err("its device has gone");
    assert!(matches!(why, LogError::Gone) && log.moves() == 0, "{why}");
    begun.fill(0, &1u64.to_le_bytes());
    begun.commit().expect("this process began it");
    let event = log.event(late.end, Level::RemoteRing).expect("a descriptor");
    let patience = PollTimeout::try_from(PATIENCE).expect("milliseconds");
    let ready = poll(&mut [PollFd::new(event.as_fd(), PollFlags::POLLIN)], patience).expect("a descriptor");
    assert_eq!((ready, log.moves()), (1, 1));
    log.wait(late.end, Level::RemoteRing, Duration::ZERO).expect("replicas acknowledge");
    drop((event, log));
    assert_eq!(numbers(&cluster.log(1)), [0, 1, 2]);
}

#[test]
fn a_record_is_begun_on_the_next_primary_as_one_is_appended_there() {
    let cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = open(&cluster);
    let written = log.append(&[&0u64.to_le_bytes()]).expect("there is room");
    log.wait(written.end, Level::RemoteRing, PATIENCE).expect("replicas acknowledge");
    cluster.promote(1);
    // Until the old one is a secondary its ring takes records.
    wait::until(
        || "the log stays".into(),
        || {
            drop(log.begin(8).expect("a primary's"));
            log.moves() == 1
        },
    );
}

#[test]
fn a_log_that_is_shared_stays_on_its_device() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let mut log = open(&cluster);
    let other = Log::join(log.share().expect("descriptors"), Options::default()).expect("the lane is shared");
    cluster.kill(0);
    cluster.promote(1);
    for why in [log.is_there(), log.reconnect().map(drop), log.reattach().map(drop)] {
        let why = why.expect_err("the other process could not follow");
        assert!(matches!(why, LogError::Gone | LogError::Unreachable { .. } | LogError::Busy { .. }), "{why}");
    }
    assert_eq!((log.moves(), other.moves()), (0, 0));
}
