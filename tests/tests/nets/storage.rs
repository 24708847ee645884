//! Disks that are full, do not sync or stand still, and images that are lost or of long ago.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::relay::Weather;
use crate::cluster::{Cluster, PATIENCE};
use crate::nets::tally::{Tally, kept_trial, trial};
use tidewater_tests::wait;

fn quorum(seed: u64, act: impl FnOnce(&mut Cluster, &crate::nets::workload::Workload, &mut Tally)) -> Option<Tally> {
    trial(seed, "quorum", Cluster::give_disks, act)
}

/// A device whose disk has failed starts anew when the disk works again.
fn repair(site: &mut Cluster, node: u8) {
    site.kill(node);
    site.disk(node, "");
    site.start(node);
}

/// Waits until the disk of a node has failed. Whether it has.
fn fails(site: &Cluster, node: u8) -> bool {
    wait::within(PATIENCE, || (site.disk_fired(node) > 0).then_some(())).is_some()
}

/// A candidate can't make its promise durable: it becomes no primary, and the others go on.
pub fn a_promise_that_does_not_sync() -> Option<Tally> {
    quorum(40, |site, load, tally| {
        site.disk(1, "sync");
        let promoted = site.tries_to_promote(1);
        tally.fault(site.disk_fired(1) > 0);
        tally.holds(!promoted, || "a device whose promise is not durable became primary".into());
        repair(site, 1);
        site.promoted(2);
        tally.holds(load.goes_on(), || "programs stand still".into());
        site.all_in_step(2);
    })
}

/// A member that is asked to accept a candidate can't make that durable: it does not count.
pub fn an_acceptance_that_does_not_sync() -> Option<Tally> {
    quorum(41, |site, load, tally| {
        site.disk(2, "sync");
        site.machines().between(0, 1, Weather::CUT);
        site.machines().between(0, 2, Weather::CUT);
        let promoted = site.tries_to_promote(1);
        tally.fault(site.disk_fired(2) > 0);
        tally.holds(!promoted, || "an acceptance that is not durable counted".into());
        repair(site, 2);
        site.promoted(1);
        site.machines().between(0, 1, Weather::default());
        site.machines().between(0, 2, Weather::default());
        tally.holds(load.goes_on(), || "programs stand still".into());
        site.all_in_step(1);
    })
}

/// A replica whose disk is full, or does not sync, while programs go on.
pub fn a_replica_with_a_full_disk() -> Option<Tally> {
    replica(42, "full")
}

fn replica(seed: u64, fault: &str) -> Option<Tally> {
    quorum(seed, |site, load, tally| {
        for node in [1, 2] {
            site.disk(node, fault);
            let goes_on = (0..5).all(|_| load.goes_on());
            tally.fault(fails(site, node));
            tally.holds(goes_on, || format!("programs stand still while the disk of {node} says {fault}"));
            repair(site, node);
            site.all_in_step(0);
        }
    })
}

/// The primary's disk is full, or does not sync: another takes over with all that was acknowledged.
pub fn a_primary_with_a_full_disk() -> Option<Tally> {
    primary(43, "full")
}

pub fn a_primary_that_does_not_sync() -> Option<Tally> {
    primary(44, "sync")
}

fn primary(seed: u64, fault: &str) -> Option<Tally> {
    quorum(seed, |site, load, tally| {
        site.disk(0, fault);
        // What a deadline and an epoch need is synced: so one is asked for, too.
        let _ = site.tries_to_promote(0);
        tally.fault(fails(site, 0));
        site.promoted(1);
        tally.holds(load.goes_on(), || format!("programs stand still after the disk of 0 said {fault}"));
        repair(site, 0);
        site.all_in_step(1);
    })
}

/// Disks that take 30 s for what they are given: of a replica, of the primary.
pub fn stalled_disks() -> Option<Tally> {
    quorum(45, |site, load, tally| {
        for node in [2, 0] {
            site.disk(node, "stall");
            let (start, goes_on) = (Instant::now(), node == 0 || load.goes_on());
            tally.holds(goes_on, || format!("programs stand still while the disk of {node} does"));
            wait::pass(Duration::from_secs(30).saturating_sub(start.elapsed()));
            tally.fault(site.disk_fired(node) > 0);
            site.disk(node, "");
            tally.holds(load.goes_on(), || format!("programs stand still after the disk of {node} did"));
            site.all_in_step(0);
        }
    })
}

/// A new disk under an old number: the device joins anew, is brought up to date, and can be promoted then.
pub fn an_image_that_is_lost() -> Option<Tally> {
    quorum(46, |site, load, tally| {
        lose(site, 1);
        tally.fault(true);
        site.join(1, "quorum", false);
        site.all_in_step(0);
        site.kill(0);
        site.promoted(1);
        tally.holds(load.goes_on(), || "programs stand still".into());
        site.start(0);
        site.all_in_step(1);
    })
}

fn lose(site: &mut Cluster, node: u8) {
    site.kill(node);
    std::fs::remove_dir_all(site.path(node)).expect("the folder can be removed");
    site.start(node);
}

/// Two members have what was acknowledged, and one of them loses its disk: it does not help a third, which lacks some
/// of it, to become primary. When the other is back, nothing is missing.
pub fn a_lost_image_does_not_vote() -> Option<Tally> {
    quorum(47, |site, load, tally| {
        // Node 2 falls behind; 0 and 1 acknowledge.
        site.machines().isolate(2, Weather::CUT);
        (0..3).for_each(|_| _ = load.goes_on());
        site.kill(0);
        lose(site, 1);
        site.join(1, "quorum", false);
        site.machines().isolate(2, Weather::default());
        let voted = [2, 1].into_iter().filter(|&node| site.tries_to_promote(node)).collect::<Vec<_>>();
        tally.fault(true);
        tally.holds(voted.is_empty(), || format!("{voted:?} became primary by the vote of a member that lost its log"));
        site.start(0);
        site.promoted(0);
        tally.holds(load.goes_on(), || "programs stand still".into());
        site.all_in_step(0);
    })
}

/// A member that has accepted a new primary loses its disk, and meets the old one first, which knows of nothing: its
/// leader deadline has passed, so no more is acknowledged there.
pub fn a_lost_image_and_a_deposed_primary() -> Option<Tally> {
    kept_trial(49, &[3], |site, load, tally| {
        let old = site.primary(|_| true);
        site.machines().isolate(old, Weather::CUT);
        let new = site.primary(|node| node != old);
        tally.holds(load.goes_on(), || format!("programs do not find node {new}"));
        let third = 3 - old - new;
        site.machines().between(new, third, Weather::CUT);
        site.kill_keeper(third);
        lose(site, third);
        site.start_keeper(third);
        site.until(third, "it is in the group again", |status| status["groups"][0]["role"] == "secondary");
        site.machines().between(old, third, Weather::default());
        let before = load.acknowledged();
        wait::pass(Duration::from_secs(5));
        let more = load.acknowledged() - before;
        tally.fault(site.group(old)["role"] == "primary");
        tally.holds(more == 0, || format!("{more} appends are acknowledged while no majority is there"));
    })
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let mut command = Command::new("cp");
    command.args(["-a", "--sparse=always"]).arg(from).arg(to);
    assert!(command.status().expect("coreutils are there").success());
}

/// A device gets back its image and ring of some time ago: it is brought up to date, and if it is promoted first, takes
/// the group's log and not its own.
pub fn an_image_of_long_ago() -> Option<Tally> {
    quorum(48, |site, load, tally| {
        let old = site.folder.path().join("old");
        site.kill(1);
        copy(&site.path(1), &old);
        site.start(1);
        site.all_in_step(0);
        (0..3).for_each(|_| _ = load.goes_on());
        let back = |site: &mut Cluster| {
            site.kill(1);
            copy(&old, &site.path(1));
            site.start(1);
        };
        back(site);
        tally.fault(true);
        site.all_in_step(0);
        (0..3).for_each(|_| _ = load.goes_on());
        // Once more, and it is promoted before the primary has given it anything.
        site.all_in_step(0);
        site.machines().between(0, 1, Weather::CUT);
        back(site);
        tally.fault(true);
        site.promoted(1);
        tally.holds(load.goes_on(), || "programs stand still".into());
        site.machines().between(0, 1, Weather::default());
        site.all_in_step(1);
    })
}
