//! Operators' commands.

use std::time::Instant;

use tidewater_tests::{run_refused, run_well, wait};

use crate::cluster::etcd::{Etcd, is_installed};
use crate::cluster::{Cluster, PATIENCE, TTL, append, numbers};

#[test]
fn a_switchover_a_pause_and_another_group_lose_nothing() {
    if !is_installed() {
        return;
    }
    let mut kept = Cluster::new(3);
    let etcd = Etcd::new(kept.folder.path());
    kept.start_keepers(vec![etcd], &[]);
    let said = kept.ask(&["group"]);
    assert!(said.contains("no group yet"), "{said}");
    kept.ask(&["group", "--members", "0,1", "--mode", "eager"]);
    let first = kept.leader(|_| true);
    assert_eq!(first, 0, "all are new: the lowest number");
    append(&kept.log(0), 0, PATIENCE).expect("both nodes acknowledge");
    // The third's keeper learns of the group when it looks next.
    let is_known = |said: String| said.contains("eager, members 0, 1") && said.contains("node 2 is no member");
    wait::until(|| kept.ask(&["status"]), || is_known(kept.ask(&["status"])));

    let said = kept.ask(&["switchover"]);
    assert!(said.contains("node 1 is primary of epoch"), "{said}");
    append(&kept.log(1), 1, PATIENCE).expect("both nodes acknowledge");
    let url = kept.etcd[0].url();
    let refused =
        |arguments: &[&str]| run_refused(kept.folder.path(), &[&["keeper", "--etcd", &url], arguments].concat());
    assert!(refused(&["switchover", "--to", "1"]).contains("primary already"));
    assert!(refused(&["reinit", "--node", "1"]).contains("switch over first"));
    assert!(refused(&["group", "--members", "0,0", "--mode", "eager"]).contains("listed twice"));
    // Nodes 2 and 3 know nothing of what 0 and 1 have acknowledged.
    assert!(refused(&["group", "--members", "2,3", "--mode", "eager"]).contains("shares no member"));
    assert_eq!(kept.ask(&["group"]), "eager, members 0, 1\n");

    // A third joins; then one leaves that is primary.
    kept.ask(&["group", "--members", "0,1,2", "--mode", "quorum"]);
    kept.until(1, "three", |status| status["groups"][0]["members"] == serde_json::json!([0, 1, 2]));
    append(&kept.log(1), 2, PATIENCE).expect("replicas acknowledge");
    kept.ask(&["group", "--members", "0,2", "--mode", "eager"]);
    let next = kept.leader(|node| node != 1);
    kept.until(next, "two", |status| status["groups"][0]["members"] == serde_json::json!([0, 2]));
    append(&kept.log(next), 3, PATIENCE).expect("both nodes acknowledge");

    // Paused: the keepers may go, and the primary goes on.
    kept.ask(&["pause"]);
    kept.until(next, "it has no deadline", |status| status["groups"][0]["has_deadline"] == false);
    (0..3).for_each(|node| kept.kill_keeper(node));
    let log = kept.log(next);
    let alone = Instant::now();
    let mut number = 4;
    while alone.elapsed() < TTL + TTL / 4 {
        append(&log, number, PATIENCE).expect("it needs no keeper");
        number += 1;
    }
    drop(log);
    (0..3).for_each(|node| kept.start_keeper(node));
    kept.ask(&["resume"]);
    kept.until(next, "it has a deadline", |status| status["groups"][0]["has_deadline"] == true);
    assert_eq!(kept.leader(|_| true), next);
    let log = kept.log(next);
    append(&log, number, PATIENCE).expect("both nodes acknowledge");
    assert!(numbers(&log).into_iter().eq(0..=number), "numbers are missing");
}

/// A new disk with the same node number, and one with a log of its own.
#[test]
fn a_device_that_lost_its_log_joins_and_one_with_another_log_waits_for_reinit() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    append(&kept.log(first), 0, PATIENCE).expect("replicas acknowledge");
    let other = (0..3).find(|node| *node != first).expect("there are three");
    kept.kill(other);
    std::fs::remove_dir_all(kept.path(other)).expect("the folder can be removed");
    kept.start(other);
    kept.kill_keeper(other);
    kept.start_keeper(other);
    kept.all_in_step(first);
    append(&kept.log(first), 1, PATIENCE).expect("replicas acknowledge");

    // It is taken out of the group, and written to. It is no member then, so that no keeper puts it back.
    kept.ask(&["pause"]);
    let node = other.to_string();
    run_well(kept.folder.path(), &["group", "leave", "--control", &node]);
    let own = kept.open(other, tidewater_client::Level::Ring).expect("a log");
    own.append(&[b"its own"]).expect("the ring accepts the record");
    own.x_fsync().expect("the record reaches the ring");
    drop(own);
    kept.ask(&["resume"]);
    kept.until_known("it waits", |status| {
        let members = status["members"].as_array().cloned().unwrap_or_default();
        members.iter().any(|member| {
            member["node"] == other && member["note"].as_str().is_some_and(|note| note.contains("has a log of its own"))
        })
    });
    // Its log began an epoch of its own when it left, so the primary goes on in one above that.
    let epoch = kept.known()["leader"]["epoch"].clone();
    kept.ask(&["reinit", "--node", &node]);
    kept.until_known("another epoch", |status| status["leader"]["epoch"] != epoch);
    assert_eq!(kept.leader(|_| true), first);
    kept.all_in_step(first);
    let log = kept.log(first);
    append(&log, 2, PATIENCE).expect("replicas acknowledge");
    assert_eq!(numbers(&log), [0, 1, 2]);
}
