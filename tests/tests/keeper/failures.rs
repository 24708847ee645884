//! Something dies or stands still.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidewater_client::Level;

use crate::cluster::etcd::is_installed;
use crate::cluster::{Cluster, PATIENCE, Process, TTL, append, grows, is_stopped, numbers};
use tidewater_tests::wait;

/// Numbers that were acknowledged, and all that a log holds.
pub fn holds_all(found: &[u64], acknowledged: impl Iterator<Item = u64>) {
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "out of order, or twice: {found:?}");
    let missing: Vec<u64> = acknowledged.filter(|number| found.binary_search(number).is_err()).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
}

#[test]
fn a_primary_whose_machine_dies_is_replaced_and_nothing_acknowledged_is_lost() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    let log = kept.log(first);
    let acknowledged = std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let mut number = 0;
            while append(&log, number, Duration::from_millis(500)).is_ok() {
                number += 1;
            }
            number
        });
        grows(&log, 40_000);
        kept.kill_keeper(first);
        kept.kill(first);
        appender.join().expect("no thread panics")
    });
    drop(log);
    let dead = Instant::now();
    kept.until_known("the lease is over", |status| status["leader"]["node"] != first);
    let over = Instant::now();
    let second = kept.leader(|node| node != first);
    println!(
        "a primary {} ms after its lease was over, {} ms after the death of the last one (lease of {} s)",
        over.elapsed().as_millis(),
        dead.elapsed().as_millis(),
        TTL.as_secs()
    );
    let log = kept.log(second);
    append(&log, acknowledged + 1, PATIENCE).expect("two of three nodes acknowledge");
    holds_all(&numbers(&log), (0..acknowledged).chain([acknowledged + 1]));
    assert!(acknowledged > 100, "{acknowledged}");
    // The machine is back: it follows.
    drop(log);
    kept.start(first);
    kept.start_keeper(first);
    kept.all_in_step(second);
}

#[test]
fn a_keeper_that_stands_still_makes_its_device_acknowledge_nothing_more() {
    if !is_installed() {
        return;
    }
    let (kept, first) = Cluster::kept(3, "quorum");
    let log = kept.log(first);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    kept.signal_to(Process::Keeper(first), Signal::SIGSTOP);
    let stopped = Instant::now();
    let (mut number, mut acknowledged, mut last) = (1, vec![0], Duration::ZERO);
    loop {
        let outcome = append(&log, number, TTL / 4);
        if is_stopped(&outcome) {
            break;
        }
        // What is late only may be acknowledged yet.
        if outcome.is_ok() {
            acknowledged.push(number);
            last = stopped.elapsed();
        }
        assert!(stopped.elapsed() < PATIENCE, "it acknowledges without its keeper: {outcome:?}");
        number += 1;
    }
    println!("acknowledged until {} ms after its keeper stopped (lease of {} s)", last.as_millis(), TTL.as_secs());
    let second = kept.leader(|node| node != first);
    // It has slept through two leases, and finds a cluster that goes on without it.
    while stopped.elapsed() < 2 * TTL {
        let outcome = append(&log, 1 << 32, Duration::from_millis(200));
        assert!(outcome.is_err(), "a primary without a keeper acknowledges");
    }
    kept.signal_to(Process::Keeper(first), Signal::SIGCONT);
    let more = kept.log(second);
    for later in (1 << 33..).take(20) {
        assert!(append(&log, 1 << 32, Duration::from_millis(20)).is_err(), "a deposed primary acknowledges");
        append(&more, later, PATIENCE).expect("replicas acknowledge");
    }
    drop(log);
    kept.all_in_step(second);
    assert_eq!(kept.leader(|_| true), second, "who came late takes nothing back");
    holds_all(&numbers(&more), acknowledged.into_iter());
}

#[test]
#[ignore = "it waits for several leases, for `make torture`"]
fn without_etcd_the_primary_goes_on_while_all_members_answer() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    let log = kept.log(first);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    kept.etcd[0].kill();
    let gone = Instant::now();
    let mut number = 1;
    while gone.elapsed() < TTL + TTL / 2 {
        append(&log, number, PATIENCE).expect("all members answer");
        number += 1;
    }
    assert!(kept.said(first).contains("fail-safe"), "{}", kept.all_said());
    // One is away, too: the others may have made another primary, as far as this one can know.
    let away = (0..3).find(|node| *node != first).expect("there are three");
    kept.kill(away);
    let begin = Instant::now();
    let outcome = loop {
        let outcome = append(&log, number, Duration::from_secs(1));
        if outcome.is_err() {
            break outcome;
        }
        assert!(begin.elapsed() < PATIENCE, "it goes on without etcd and node {away}");
        number += 1;
    };
    assert!(is_stopped(&outcome), "{outcome:?}");
    assert!(kept.said(first).contains(&format!("nor from node {away}")), "{}", kept.all_said());
    kept.etcd[0].start();
    drop(log);
    let next = kept.leader(|_| true);
    let log = kept.open(next, Level::RemoteRing).expect("a log");
    append(&log, number + 1, PATIENCE).expect("two of three nodes acknowledge");
    holds_all(&numbers(&log), (0..number).chain([number + 1]));
}

#[test]
#[ignore = "it waits for several leases, for `make torture`"]
fn an_etcd_that_lost_its_data_is_refused_by_name_until_an_operator_takes_it() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    let log = kept.log(first);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    kept.etcd[0].wipe();
    wait::until(|| kept.all_said(), || (0..3).all(|node| kept.said(node).contains("went back from")));
    let since = Instant::now();
    let mut number = 1;
    while since.elapsed() < TTL {
        append(&log, number, PATIENCE).expect("all members answer");
        number += 1;
    }
    assert_eq!(kept.known()["leader"], serde_json::Value::Null, "nothing is written to it");
    for node in 0..3 {
        kept.kill_keeper(node);
        kept.start_keeper_with(node, &["--new-etcd"]);
    }
    assert_eq!(kept.leader(|_| true), first, "the group is as it was");
    append(&log, number, PATIENCE).expect("replicas acknowledge");
    holds_all(&numbers(&log), 0..=number);
}
