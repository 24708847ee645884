//! The leader deadline of served devices, without a keeper.

use std::time::Duration;

use crate::cluster::{Cluster, PATIENCE, append, numbers};
use nix::sys::signal::Signal;
use serde_json::Value;
use tidewater_client::{Level, LogError};
use tidewater_tests::{run_refused, run_well};

fn deadline(cluster: &Cluster, node: u8, more: &[&str]) -> String {
    let node = node.to_string();
    let line = [&["group", "deadline", "--control", &node], more].concat();
    run_well(cluster.folder.path(), &line)
}

fn is_frozen(status: &Value) -> bool {
    status["groups"][0]["frozen_ms"].is_number()
}

#[test]
fn a_device_whose_deadline_passed_acknowledges_nothing_until_it_is_extended_and_says_so() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("it has no deadline");
    deadline(&cluster, 0, &["--lasts", "3600s"]);
    append(&log, 1, PATIENCE).expect("the deadline is ahead");
    let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
    assert!(said.contains("leader for 3"), "{said}");
    deadline(&cluster, 0, &["--lasts", "100ms"]);
    cluster.until(0, "it is frozen", is_frozen);
    let late = log.append(&[&2u64.to_le_bytes()]).expect("the ring accepts the record").end;
    for level in [Level::RemoteRing, Level::RemoteDestaged] {
        match log.wait(late, level, Duration::from_millis(500)) {
            Err(error @ LogError::Frozen { .. }) => assert!(error.to_string().contains("leader deadline"), "{error}"),
            other => panic!("{level}: {other:?}"),
        }
    }
    log.wait(late, Level::Destaged, PATIENCE).expect("that is a matter of this device alone");
    let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
    assert!(said.contains("frozen for") && said.contains("deadline --none"), "{said}");
    // A process that is started anew is frozen, too.
    drop(log);
    cluster.kill(0);
    cluster.start(0);
    let mut log = cluster.log(0);
    cluster.until(0, "it starts frozen", is_frozen);
    let outcome = log.wait(late, Level::RemoteRing, Duration::from_millis(500));
    assert!(matches!(outcome, Err(LogError::Frozen { .. })), "{outcome:?}");
    deadline(&cluster, 0, &["--lasts", "3600s"]);
    for level in [Level::RemoteRing, Level::RemoteDestaged] {
        log.wait(late, level, PATIENCE).expect("the deadline was extended");
    }
    log.reattach().expect("the device is back");
    assert_eq!(numbers(&log), [0, 1, 2]);
    // An operator's word that it needs none, which it remembers.
    drop(log);
    deadline(&cluster, 0, &["--none"]);
    cluster.kill(0);
    cluster.start(0);
    append(&cluster.log(0), 3, PATIENCE).expect("it has no deadline");
    let refused = run_refused(cluster.folder.path(), &["group", "deadline", "--control", "1", "--lasts", "1s"]);
    assert!(refused.contains("promote the device first"), "{refused}");
}

/// The device was stopped while its deadline passed: what it finds when it goes on comes too late.
#[test]
fn a_device_that_stood_still_while_its_deadline_passed_acknowledges_nothing_more() {
    let cluster = Cluster::new(3);
    cluster.form("quorum");
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("it has no deadline");
    let before = cluster.status(0)["clock_ms"].as_u64().expect("a number");
    deadline(&cluster, 0, &["--lasts", "300ms"]);
    cluster.signal(0, Signal::SIGSTOP);
    let late = log.append(&[&1u64.to_le_bytes()]).expect("the ring accepts the record").end;
    // Another device's clock, which is the same.
    cluster.until(1, "the deadline has passed", |status| {
        status["clock_ms"].as_u64().is_some_and(|now| now > before + 2_000)
    });
    cluster.signal(0, Signal::SIGCONT);
    cluster.until(0, "it is frozen", is_frozen);
    let outcome = log.wait(late, Level::RemoteRing, Duration::from_secs(1));
    assert!(matches!(outcome, Err(LogError::Frozen { .. })), "{outcome:?}");
    // An extension that was on its way for too long does not extend anything.
    let socket = cluster.path(0).join("control.sock");
    let epoch = cluster.status(0)["groups"][0]["epoch"].as_str().expect("text").to_owned();
    let request =
        tidewater_serve::control::Request::GroupLead { function: 0, epoch, for_ms: Some(1_000), from_ms: Some(before) };
    let refused = tidewater_serve::control::ask(&socket, &request).expect_err("it is over");
    assert!(refused.contains("has passed already"), "{refused}");
    deadline(&cluster, 0, &["--lasts", "3600s"]);
    log.wait(late, Level::RemoteRing, PATIENCE).expect("the deadline was extended");
}
