//! `REMOTE_DESTAGED`: a sync returns once the primary and as many replicas as the mode asks for have synced their
//! images.

use crate::cluster::{Cluster, PATIENCE, append, numbers};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_tests::run_well;

/// Syncs of a device's backing store so far.
fn syncs(cluster: &Cluster, node: u8) -> u64 {
    let line = ["status", "--json", "--control", &node.to_string()];
    let status: serde_json::Value = serde_json::from_str(&run_well(cluster.folder.path(), &line)).expect("a document");
    status["syncs"].as_u64().expect("a count")
}

#[test]
fn what_is_destaged_on_replicas_outlives_the_memory_of_all_machines() {
    for mode in ["eager", "chain", "quorum"] {
        let mut cluster = Cluster::new(3);
        cluster.form(mode);
        let log = cluster.open(0, Level::RemoteDestaged).expect("a log");
        let before = [1, 2].map(|node| syncs(&cluster, node));
        for number in 0..20u64 {
            log.append(&[&number.to_le_bytes()]).expect("the ring accepts the record");
            log.x_fsync().expect("replicas acknowledge");
        }
        let after = [1, 2].map(|node| syncs(&cluster, node));
        let synced: u64 = before.iter().zip(after).map(|(before, after)| after - before).sum();
        assert!(synced >= 20, "{mode:?}: {synced} syncs of replicas stand behind 20 syncs of the program");
        drop(log);
        for node in 0..3 {
            cluster.kill(node);
            std::fs::remove_file(cluster.path(node).join("ring")).expect("the file can be removed");
        }
        (0..3).for_each(|node| cluster.start(node));
        cluster.promote(2);
        let log = cluster.open(2, Level::Ring).expect("a log");
        assert!(numbers(&log).into_iter().eq(0..20), "{mode:?}: {:?}", numbers(&log));
    }
}

#[test]
fn a_replica_that_does_not_sync_is_named_or_not_needed() {
    for (mode, goes_on) in [("eager", false), ("quorum", true)] {
        let cluster = Cluster::new(3);
        cluster.form(mode);
        let log = cluster.open(0, Level::RemoteDestaged).expect("a log");
        log.append(&[&0u64.to_le_bytes()]).expect("the ring accepts the record");
        log.x_fsync().expect("replicas acknowledge");
        cluster.signal(2, Signal::SIGSTOP);
        let end = log.append(&[&1u64.to_le_bytes()]).expect("the ring accepts the record").end;
        let time = if goes_on { PATIENCE } else { Duration::from_secs(3) };
        let start = Instant::now();
        // Another's disk may be slow for a moment.
        let outcome = loop {
            match log.wait(end, Level::RemoteDestaged, time) {
                Err(LogError::ReplicasLate { late, .. }) if late != "2" && start.elapsed() < PATIENCE => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(()) => assert!(goes_on, "{mode:?}"),
            Err(LogError::ReplicasLate { late, .. }) => assert!(!goes_on && late == "2", "{mode:?}: {late}"),
            Err(error) => panic!("{mode:?}: {error}"),
        }
        cluster.signal(2, Signal::SIGCONT);
        log.wait(end, Level::RemoteDestaged, PATIENCE).expect("it has come back");
    }
}

/// A wait for replicas ends when the primary's process does, for a handle with a connection and for one without.
#[test]
fn a_wait_for_replicas_ends_by_the_death_of_the_primary_and_not_by_its_time_out() {
    for level in [Level::RemoteRing, Level::RemoteDestaged] {
        for joins in [false, true] {
            let mut cluster = Cluster::new(2);
            cluster.form("eager");
            let log = cluster.log(0);
            let joined = joins.then(|| Log::join(log.share().expect("descriptors"), Options::default()));
            let joined = joined.transpose().expect("the stream goes on");
            append(&log, 0, PATIENCE).expect("replicas acknowledge");
            // Nothing is acknowledged any more.
            cluster.signal(1, Signal::SIGSTOP);
            let end = log.append(&[&1u64.to_le_bytes()]).expect("the ring accepts the record").end;
            let log = joined.as_ref().unwrap_or(&log);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let outcome = log.wait(end, level, PATIENCE);
                    (outcome, Instant::now())
                });
                let at = Instant::now();
                cluster.kill(0);
                let (outcome, ended) = waiter.join().expect("it does not panic");
                println!("{level}, joined {joins}: {} ms", ended.saturating_duration_since(at).as_millis());
                assert!(matches!(outcome, Err(LogError::Gone)), "{outcome:?}");
            });
        }
    }
}
