//! Logs on several served devices: what replicas acknowledged is there when the primary's machine is gone, and nothing
//! that a deposed primary takes is acknowledged.

mod campaign;
mod clients;
mod copies;
mod databases;
mod destaged;
mod faults;
mod identity;
mod relay;
mod upgrade;

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::cluster::{Cluster, PATIENCE, append, grows, numbers};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidewater_client::{Level, LogError};
use tidewater_serve::control::Request;
use tidewater_tests::{run_refused, run_well, tidewater, wait};
use tidewater_wire::log::{RING_FILE_BAR2, RecordHeader, RingHeader, RingLanePage};
use tidewater_wire::vendor::LANE_PAGES_OFFSET;

#[test]
fn acknowledged_records_outlive_the_primarys_machine() {
    for (mode, goes_on) in [("eager", false), ("chain", false), ("quorum", true)] {
        let mut cluster = Cluster::new(3);
        cluster.form(mode);
        let log = cluster.log(0);
        let mut acknowledged = 0;
        std::thread::scope(|scope| {
            let appender = scope.spawn(|| {
                let mut number = 0;
                while append(&log, number, Duration::from_secs(20)).is_ok() {
                    number += 1;
                }
                number
            });
            grows(&log, 40_000);
            cluster.kill(0);
            acknowledged = appender.join().expect("no thread panics");
        });
        drop(log);
        // Nothing of the machine is left.
        std::fs::remove_dir_all(cluster.path(0)).expect("the folder can be removed");
        cluster.promote(1);
        let log = cluster.open(1, Level::Ring).expect("a log");
        let found = numbers(&log);
        assert!(acknowledged > 100 && found.len() as u64 >= acknowledged, "{} of {acknowledged}", found.len());
        assert!(found.iter().copied().eq(0..found.len() as u64), "numbers are missing");
        // The stream went on here without the ring: a client that opens it once more still reads all of it.
        let more = log.append(&[&(found.len() as u64).to_le_bytes()]).expect("the ring accepts the record").end;
        log.wait(more, Level::Destaged, PATIENCE).expect("it goes to flash");
        drop(log);
        let log = cluster.open(1, Level::Ring).expect("a log");
        let found = numbers(&log);
        assert!(found.iter().copied().eq(0..found.len() as u64), "a log opened twice lacks numbers");
        // With one of three gone, a quorum of two acknowledges, and all three can't.
        let outcome = append(&log, found.len() as u64, if goes_on { PATIENCE } else { Duration::from_secs(2) });
        match outcome {
            Ok(()) => assert!(goes_on, "{mode:?}"),
            Err(LogError::ReplicasLate { late, .. }) => assert!(!goes_on && late.contains('0'), "{mode:?}: {late}"),
            Err(error) => panic!("{mode:?}: {error}"),
        }
    }
}

#[test]
fn a_deposed_primary_acknowledges_nothing() {
    let cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    cluster.signal(0, Signal::SIGSTOP);
    cluster.promote(1);
    // The program appends while its device stands still, and the device goes on afterwards.
    let late = log.append(&[&1u64.to_le_bytes()]).expect("the ring accepts the record").end;
    cluster.signal(0, Signal::SIGCONT);
    let outcome = log.wait(late, Level::RemoteRing, PATIENCE);
    assert!(matches!(outcome, Err(LogError::Secondary | LogError::Stale)), "{outcome:?}");
    drop(log);
    cluster.until(0, "it follows the new primary", |status| status["groups"][0]["role"] == "secondary");
    cluster.until(1, "node 0 is in step", |status| {
        let replicas = status["groups"][0]["replicas"].as_array().expect("a list");
        replicas.iter().all(|replica| replica["state"] == "in step" && replica["behind_bytes"] == 0)
    });
    let log = cluster.log(1);
    append(&log, 2, PATIENCE).expect("replicas acknowledge");
    assert_eq!(numbers(&log), [0, 2]);
}

/// Bytes that a client stored into a deposed primary's ring, and the device had not taken, belong to no later epoch.
#[test]
fn a_primary_again_takes_and_acknowledges_nothing_that_was_stored_while_another_led() {
    let cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    cluster.signal(0, Signal::SIGSTOP);
    let store = |number: u64| log.append(&[&number.to_le_bytes()]).expect("the ring accepts the record").end;
    let ends: Vec<u64> = (1..=10).map(store).collect();
    cluster.promote(1);
    append(&cluster.log(1), 20, PATIENCE).expect("replicas acknowledge");
    cluster.signal(0, Signal::SIGCONT);
    cluster.all_in_step(1);
    cluster.promote(0);
    cluster.all_in_step(0);
    let one = RecordHeader::span(8);
    assert_eq!(cluster.group(1)["tail"][0].as_u64(), Some(2 * one), "the primary took what was stored before");
    for level in [Level::RemoteRing, Level::Destaged] {
        let outcome = log.wait(ends[0], level, PATIENCE);
        assert!(matches!(outcome, Err(LogError::Stale)), "another record is in its place: {outcome:?}");
    }
    drop(log);
    let log = cluster.log(0);
    append(&log, 21, PATIENCE).expect("replicas acknowledge");
    assert_eq!((numbers(&log), log.tail()), (vec![0, 20, 21], 3 * one));
}

#[test]
fn a_replica_that_was_away_catches_up_and_is_named_while_it_is() {
    let mut cluster = Cluster::new(2);
    cluster.form("eager");
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    cluster.kill(1);
    let end = log.append(&[&1u64.to_le_bytes()]).expect("the ring accepts the record").end;
    match log.wait(end, Level::RemoteRing, Duration::from_secs(2)) {
        Err(LogError::ReplicasLate { late, .. }) => assert_eq!(late, "1"),
        other => panic!("{other:?}"),
    }
    let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
    assert!(said.contains("peer 1") && said.contains("away for"), "{said}");
    cluster.until(0, "its lag is known", |status| {
        let replica = &status["groups"][0]["replicas"][0];
        replica["behind_bytes"].as_u64() > Some(0) && replica["behind_ms"].as_u64() > Some(200)
    });
    cluster.start(1);
    log.wait(end, Level::RemoteRing, PATIENCE).expect("it has come back");
    append(&log, 2, PATIENCE).expect("replicas acknowledge");
    assert_eq!(numbers(&log), [0, 1, 2]);
    cluster.kill(1);
    // Bytes that may be on their way to a replica are taken from the ring.
    let more = vec![0; 48 << 10];
    let end = (0..64).map(|_| log.append(&[&more]).expect("the ring accepts the record").end).last();
    cluster.until(0, "3 MiB are taken", |status| status["groups"][0]["tail"][0].as_u64() == end);
    // Bytes that the device has not taken yet count, too: a program has appended them.
    let end = (0..64).map(|_| log.append(&[&more]).expect("the ring accepts the record").end).last();
    cluster.until(0, "its lag is that of the program's log", |status| {
        let replica = &status["groups"][0]["replicas"][0];
        replica["behind_bytes"].as_u64().zip(replica["shadow"][0].as_u64()).is_some_and(|(by, at)| Some(at + by) == end)
    });
    let is = crate::cluster::ask(&cluster.path(0), &Request::Status, PATIENCE).expect("it answers");
    assert!(is["peers"]["groups"][0]["tail"][0].as_u64() < end, "the device has taken all of it: {is}");
    assert_eq!(is["lanes"][0]["tail"].as_u64(), end, "{is}");
    cluster.start(1);
    cluster.all_in_step(0);
}

#[test]
fn what_has_no_replicas_or_is_one_is_refused_by_name() {
    let cluster = Cluster::new(2);
    let refused = |node, level| cluster.open(node, level).map(drop).expect_err("it is refused").to_string();
    assert!(refused(0, Level::RemoteRing).contains("no peers"));
    cluster.form("lazy");
    assert!(refused(0, Level::RemoteRing).contains("lazy"));
    assert!(refused(1, Level::Ring).contains("secondary"));
    let run = ["run", "--device", "1", "--log", "x", "--", "true"];
    let said = run_refused(cluster.folder.path(), &run);
    assert!(said.contains("secondary") && said.contains("tidewater cluster group"), "{said}");
    let said =
        run_refused(cluster.folder.path(), &["group", "form", "--control", "0", "--members", "0,7", "--mode", "eager"]);
    assert!(said.contains("node 7") && said.contains("--peer 7="), "{said}");
}

/// The files are what the program synced, after the primary's machine is gone and the new primary's has them on a disk
/// that both can reach. What a program has synced to the files itself is trimmed on the replicas, too.
#[test]
fn a_programs_files_are_recovered_on_the_new_primary() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let folder = cluster.folder.path().to_owned();
    let program = "for i in 1 2 3 4 5 6 7 8; do echo line $i >> app.log; sync -d app.log; done";
    let run = |program: &str| {
        let mut command = tidewater(&folder);
        command.args(["run", "--device", "0", "--level", "remote-ring", "--log", "app.log", "--", "sh", "-c", program]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    // A run that ends well leaves an empty log, on the replicas as well.
    let output = run(program).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut program: Child = run(&format!("{program}; touch done; exec sleep 1000")).spawn().expect("it starts");
    wait::until(|| "the program's end".into(), || folder.join("done").exists());
    let synced = std::fs::read_to_string(folder.join("app.log")).expect("the file");
    cluster.kill(0);
    kill(Pid::from_raw(program.id() as i32), Signal::SIGTERM).expect("the process can be signalled");
    let _ = program.wait();
    std::fs::remove_dir_all(cluster.path(0)).expect("the folder can be removed");
    cluster.promote(1);
    // Its machine's memory is gone with it: the disk has the lines that the log has not, each of which is a record.
    // Those are the first run's, and those that a checkpoint of the second synced, where it took a second and more.
    let dry = run_well(&folder, &["recover", "--device", "1", "--dry-run"]);
    let of_file = dry.lines().find_map(|line| line.split_once("app.log: ")).map_or("0", |(_, said)| said);
    let records = of_file.split(' ').next().and_then(|count| count.parse().ok());
    let records: usize = records.unwrap_or_else(|| panic!("no records in: {dry}"));
    let lines: Vec<_> = synced.split_inclusive('\n').collect();
    assert!(lines.len() == 16 && records <= 8, "{dry}");
    std::fs::write(folder.join("app.log"), lines[..16 - records].concat()).expect("the file");
    let said = run_well(&folder, &["recover", "--device", "1"]);
    assert_eq!(std::fs::read_to_string(folder.join("app.log")).expect("the file"), synced, "{said}");
}

/// The machine of a member of an eager group crashes: of its log there is what was synced to its image long ago. Then
/// the primary is gone, too, if it is not the same. The member leads only with what another has.
fn one_whose_memory_is_gone_leads_with_what_another_has(member: u8) -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.form("eager");
    let (image, early) = (cluster.path(member).join("image"), cluster.path(member).join("early"));
    std::fs::copy(&image, &early).expect("there is room");
    let log = cluster.log(0);
    (0..50).for_each(|number| append(&log, number, PATIENCE).expect("replicas acknowledge"));
    drop(log);
    cluster.kill(member);
    if member != 0 {
        cluster.kill(0);
    }
    std::fs::rename(&early, &image).expect("it was copied");
    for memory in ["ring", "ring-copy"] {
        std::fs::remove_file(cluster.path(member).join(memory)).expect("the file can be removed");
    }
    cluster.start(member);
    cluster.promote(member);
    assert!(numbers(&cluster.log(member)).into_iter().eq(0..50), "acknowledged numbers are missing");
    cluster
}

#[test]
fn a_primary_whose_memory_is_gone_takes_over_what_a_replica_has() {
    let cluster = one_whose_memory_is_gone_leads_with_what_another_has(0);
    append(&cluster.log(0), 50, PATIENCE).expect("replicas acknowledge");
}

#[test]
fn a_replica_whose_memory_is_gone_takes_over_what_another_has() {
    let mut cluster = one_whose_memory_is_gone_leads_with_what_another_has(1);
    cluster.start(0);
    append(&cluster.log(1), 50, PATIENCE).expect("replicas acknowledge");
}

/// The system has dropped what a sync could not write, and the device is started again in the same boot.
#[test]
fn a_replica_whose_disk_lost_what_it_had_takes_over_what_another_has() {
    let Some(mut cluster) = Cluster::with_disks(3) else { return };
    cluster.form("eager");
    let log = cluster.log(0);
    (0..50).for_each(|number| append(&log, number, PATIENCE).expect("replicas acknowledge"));
    cluster.disk(1, "lost");
    let end = log.append(&[&50u64.to_le_bytes()]).expect("there is room").end;
    log.wait(end, Level::RemoteDestaged, Duration::from_millis(100)).expect_err("a replica can't sync");
    cluster.until(1, "its disk fails", |status| status["groups"][0]["flags"].to_string().contains("its disk"));
    drop(log);
    [0, 1].into_iter().for_each(|node| cluster.kill(node));
    cluster.disk(1, "");
    cluster.start(1);
    cluster.promote(1);
    let found = numbers(&cluster.log(1));
    assert!(found.iter().copied().eq(0..found.len() as u64) && found.len() >= 50, "{found:?}");
    let said = std::fs::read_to_string(cluster.folder.path().join("stderr")).expect("the file can be read");
    assert!(said.contains("the disk of this machine has failed, and function 0 may lack bytes"), "{said}");
}

/// The machine has been booted anew, and the device's first start fails, since its address is not up yet: the second
/// knows of the loss as well.
#[test]
fn a_start_that_fails_after_a_reboot_hides_no_loss() {
    let mut cluster = Cluster::new(2);
    cluster.form("eager");
    append(&cluster.log(0), 0, PATIENCE).expect("replicas acknowledge");
    cluster.kill(0);
    let ring = cluster.path(0).join("ring");
    let mut bytes = std::fs::read(&ring).expect("the file can be read");
    let mut header = RingHeader::parse(&bytes[..RingHeader::SIZE]).expect("a ring's header");
    header.boot[0] ^= 1;
    bytes[..RingHeader::SIZE].copy_from_slice(&header.to_bytes());
    std::fs::write(&ring, bytes).expect("the file can be written");
    let done = cluster.command(0).args(["--metrics", "192.0.2.1:9000"]).output().expect("it starts");
    assert!(!done.status.success(), "that address is not there");
    cluster.start(0);
    cluster.until(0, "it has found that its memory is gone", |status| status["groups"][0]["role"] == "secondary");
    // It is the ring of this boot now.
    cluster.promote(0);
    assert_eq!(numbers(&cluster.log(0)), [0]);
    cluster.kill(0);
    cluster.start(0);
    assert_eq!(cluster.status(0)["groups"][0]["role"], "primary");
}

/// A device that ends before its ring has begun a generation for another node's epoch.
#[test]
fn a_ring_that_a_deposed_primary_left_is_not_continued() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    append(&cluster.log(0), 0, PATIENCE).expect("replicas acknowledge");
    let ring = cluster.path(0).join("ring");
    let header = |bytes: &[u8]| RingHeader::parse(&bytes[..RingHeader::SIZE]).expect("a ring's header");
    let before = header(&std::fs::read(&ring).expect("the file can be read")).epoch;
    cluster.promote(1);
    cluster.all_in_step(1);
    let read = || std::fs::read(&ring).expect("the file can be read");
    wait::until(|| "its ring follows the epoch".into(), || header(&read()).epoch > before);
    cluster.kill(0);
    let (mut bytes, one) = (read(), RecordHeader::span(8));
    let was = header(&bytes);
    let page = RingLanePage { tail: 10 * one, generation: was.generation[0], ..RingLanePage::default() };
    bytes[..RingHeader::SIZE].copy_from_slice(&RingHeader { epoch: before, ..was }.to_bytes());
    let at = (RING_FILE_BAR2 + LANE_PAGES_OFFSET) as usize;
    bytes[at..at + RingLanePage::SIZE].copy_from_slice(&page.to_bytes());
    std::fs::write(&ring, bytes).expect("the file can be written");
    cluster.start(0);
    cluster.all_in_step(1);
    cluster.promote(0);
    let log = cluster.log(0);
    append(&log, 1, PATIENCE).expect("replicas acknowledge");
    assert_eq!((numbers(&log), log.tail()), (vec![0, 1], 2 * one));
}
