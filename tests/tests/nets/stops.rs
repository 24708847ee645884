//! Processes that are killed, stand still, or run out of descriptors, under keepers and a real etcd.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidewater_tests::skipped;

use crate::cluster::relay::Weather;
use crate::cluster::{Cluster, PATIENCE, Process, TTL};
use crate::nets::tally::{Tally, kept_trial, trial};
use crate::nets::workload::Workload;
use tidewater_tests::wait;

/// The machine of the operator, which an etcd of one member shares.
const OPERATOR: &[u8] = &[3];

/// Waits, while a process stands still. Whether it did all the while.
fn stands(site: &Cluster, process: Process, time: Duration) -> bool {
    wait::within(time, || (!site.is_standing(process)).then_some(())).is_none()
}

/// A process stands still for 1 s, 15 s and 60 s, and goes on. Others go on meanwhile, after a lease at most.
fn stopped(seed: u64, which: fn(primary: u8) -> Process) -> Option<Tally> {
    kept_trial(seed, OPERATOR, |site, load, tally| {
        for seconds in [1, 15, 60] {
            let primary = site.primary(|_| true);
            let (process, start) = (which(primary), Instant::now());
            site.signal_to(process, Signal::SIGSTOP);
            if seconds > 1 {
                tally.holds(load.goes_on(), || format!("programs stand still with {process:?}"));
                tally.holds(start.elapsed() < 4 * TTL, || format!("they went on {:?} later", start.elapsed()));
            }
            let time = Duration::from_secs(seconds).saturating_sub(start.elapsed());
            tally.fault(stands(site, process, time));
            site.signal_to(process, Signal::SIGCONT);
            tally.holds(load.goes_on(), || format!("programs stand still after {process:?} did"));
            let primary = site.primary(|_| true);
            site.all_in_step(primary);
        }
    })
}

pub fn primary_stopped() -> Option<Tally> {
    stopped(20, Process::Device)
}

pub fn secondary_stopped() -> Option<Tally> {
    stopped(21, |primary| Process::Device((primary + 1) % 3))
}

pub fn keeper_stopped() -> Option<Tally> {
    stopped(22, Process::Keeper)
}

pub fn etcd_stopped() -> Option<Tally> {
    stopped(23, |_| Process::Etcd(0))
}

/// SIGKILL, some rounds of it, and what is killed starts anew.
fn killed(
    seed: u64,
    etcd_on: &[u8],
    kill: impl Fn(&mut Cluster, u8),
    start: impl Fn(&mut Cluster, u8),
) -> Option<Tally> {
    kept_trial(seed, etcd_on, |site, load: &Workload, tally| {
        for _ in 0..3 {
            let primary = site.primary(|_| true);
            kill(site, primary);
            tally.fault(true);
            tally.holds(load.goes_on(), || "programs stand still".into());
            start(site, primary);
            let primary = site.primary(|_| true);
            site.all_in_step(primary);
        }
    })
}

/// The machine of the primary: its device and its keeper.
pub fn primary_killed() -> Option<Tally> {
    let kill = |site: &mut Cluster, primary| {
        site.kill_keeper(primary);
        site.kill(primary);
    };
    killed(24, OPERATOR, kill, |site, primary| {
        site.start(primary);
        site.start_keeper(primary);
    })
}

pub fn secondary_killed() -> Option<Tally> {
    let other = |primary: u8| (primary + 1) % 3;
    killed(
        25,
        OPERATOR,
        move |site, primary| site.kill(other(primary)),
        move |site, primary| {
            // A primary that is killed meanwhile is another test's.
            site.start(other(primary));
        },
    )
}

pub fn keeper_killed() -> Option<Tally> {
    killed(26, OPERATOR, |site, primary| site.kill_keeper(primary), |site, primary| site.start_keeper(primary))
}

/// One of three members of etcd, and each of them once. The other two go on beyond a lease.
pub fn a_member_of_etcd_killed() -> Option<Tally> {
    kept_trial(27, &[0, 1, 2], |site, load, tally| {
        for member in 0..3 {
            site.etcd[member].kill();
            wait::pass(TTL + TTL / 2);
            tally.fault(true);
            tally.holds(load.goes_on(), || format!("programs stand still without member {member} of etcd"));
            site.etcd[member].start();
        }
    })
}

/// etcd is killed and starts anew with what it had, after a while beyond a lease.
pub fn etcd_killed() -> Option<Tally> {
    kept_trial(28, OPERATOR, |site, load, tally| {
        for _ in 0..2 {
            site.etcd[0].kill();
            wait::pass(2 * TTL);
            tally.fault(true);
            tally.holds(load.goes_on(), || "programs stand still without etcd".into());
            site.etcd[0].start();
        }
    })
}

/// The machine of the primary is cut off, with its keeper and its member of etcd.
pub fn the_primarys_machine_cut_off() -> Option<Tally> {
    kept_trial(29, &[0, 1, 2], |site, load, tally| {
        for _ in 0..2 {
            let primary = site.primary(|_| true);
            site.machines().isolate(primary, Weather::CUT);
            let next = site.primary(|node| node != primary);
            tally.fault(site.machines().fired(primary, next).cut > 0);
            tally.holds(load.goes_on(), || format!("programs do not find node {next}"));
            site.machines().isolate(primary, Weather::default());
            site.until(primary, "it follows", |status| status["groups"][0]["role"] == "secondary");
            site.all_in_step(next);
        }
    })
}

/// A primary that has etcd and no replica, and replicas that have each other.
pub fn the_primary_with_etcd_alone() -> Option<Tally> {
    kept_trial(30, OPERATOR, |site, load, tally| {
        let primary = site.primary(|_| true);
        for other in site.nodes().filter(|&node| node != primary) {
            site.machines().between(primary, other, Weather::CUT);
        }
        let before = load.acknowledged();
        // It keeps its lease, so no other is promoted: nothing is acknowledged, and nothing is lost.
        wait::pass(2 * TTL);
        let during = load.acknowledged();
        tally.fault(site.machines().fired_in_all().cut > 0);
        tally.holds(during < before + 20 || site.primary(|_| true) != primary, || {
            format!("{} appends are acknowledged by a primary that no replica reaches", during - before)
        });
    })
}

/// A replica may open no more descriptors: links that were cut do not come back, and do once it may.
pub fn out_of_descriptors() -> Option<Tally> {
    trial(
        31,
        "quorum",
        |_| true,
        |site, load, tally| {
            let limit = |site: &Cluster, node: u8, most: &str| {
                let mut command = Command::new("prlimit");
                command.args(["--pid", &site.pid(Process::Device(node)).to_string(), &format!("--nofile={most}:")]);
                assert!(command.status().expect("util-linux is there").success());
            };
            for node in [1, 2] {
                limit(site, node, "4");
                site.machines().isolate(node, Weather::CUT);
                site.until(0, "the link is down", |status| {
                    let links = status["links"].as_array().map_or(&[][..], Vec::as_slice);
                    links.iter().any(|link| link["node"] == node && link["up"] == false)
                });
                site.machines().isolate(node, Weather::default());
                tally.holds(load.goes_on(), || format!("programs stand still without node {node}"));
                // The thread that takes requests may have a descriptor at hand; the next request finds none.
                tally.fault((0..3).any(|_| site.glance(node).is_null()));
                limit(site, node, "1024");
                site.all_in_step(0);
            }
        },
    )
}

/// etcd forgets its old revisions while keepers watch it, and the primary's machine dies behind that.
pub fn compactions() -> Option<Tally> {
    let is_there = Command::new("etcdctl").arg("version").output().is_ok();
    if !is_there {
        skipped(1, "no etcdctl here: install etcd-client");
        return None;
    }
    kept_trial(32, OPERATOR, |site, load, tally| {
        for _ in 0..5 {
            // Keepers write each second. What is compacted already can't be again.
            tally.fault(wait::within(PATIENCE, || site.compact().then_some(())).is_some());
            tally.holds(load.goes_on(), || "programs stand still after a compaction".into());
        }
        let primary = site.primary(|_| true);
        site.kill_keeper(primary);
        site.kill(primary);
        let next = site.primary(|node| node != primary);
        tally.holds(load.goes_on(), || format!("programs do not find node {next}"));
        site.start(primary);
        site.start_keeper(primary);
        site.all_in_step(next);
    })
}
