//! Disks that fail, are full or slow, below a group with keepers: another member leads, and nothing is lost.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidewater_client::{Level, LogError};

use crate::cluster::etcd::{Etcd, is_installed};
use crate::cluster::{Cluster, PATIENCE, TTL, append, is_stopped, numbers};
use crate::keeper::failures::holds_all;

/// Three devices whose disks can fail, in a group; and its primary. `None`, and counted: something is missing here.
fn formed(mode: &str, keepers: &[&str]) -> Option<(Cluster, u8)> {
    if !is_installed() {
        return None;
    }
    let mut kept = Cluster::with_disks(3)?;
    let etcd = Etcd::new(kept.folder.path());
    kept.start_keepers(vec![etcd], keepers);
    let primary = kept.keep(mode);
    Some((kept, primary))
}

/// The same on machines of their own, each with a member of etcd.
fn on_machines(mode: &str, keepers: &[&str]) -> Option<Cluster> {
    let mut kept = if is_installed() { Cluster::on_machines(3, 51)? } else { return None };
    kept.give_disks().then(|| kept.connect())?;
    kept.start_etcd(&[0, 1, 2]);
    kept.keeper_options = keepers.iter().map(|&one| one.to_owned()).collect();
    kept.keep(mode);
    Some(kept)
}

/// Numbers that a program appends, and those that were acknowledged.
#[derive(Default)]
struct Program {
    next: u64,
    acknowledged: Vec<u64>,
}

impl Program {
    /// Appends at a node until that refuses, or one more was acknowledged after `time`.
    fn append_at(&mut self, kept: &Cluster, node: u8, level: Level, time: Duration) -> Result<(), LogError> {
        let log = kept.open(node, level)?;
        let start = Instant::now();
        loop {
            let number = self.next;
            self.next += 1;
            let end = log.append(&[&number.to_le_bytes()])?.end;
            log.wait(end, level, Duration::from_millis(500))?;
            self.acknowledged.push(number);
            if start.elapsed() >= time {
                return Ok(());
            }
        }
    }

    /// Appends at a node until it refuses for good.
    fn append_until_refused(&mut self, kept: &Cluster, node: u8) -> LogError {
        let start = Instant::now();
        loop {
            // A level that asks for flash makes each replica sync, too.
            let outcome = self.append_at(kept, node, Level::RemoteDestaged, Duration::from_millis(100));
            if is_stopped(&outcome) || matches!(outcome, Err(LogError::Store { .. } | LogError::Deposed)) {
                return outcome.expect_err("it was refused");
            }
            assert!(start.elapsed() < PATIENCE, "a device whose disk has failed acknowledges: {}", kept.all_said());
        }
    }

    /// One more is acknowledged at a node.
    fn goes_on(&mut self, kept: &Cluster, node: u8) {
        let log = kept.log(node);
        append(&log, self.next, PATIENCE).expect("it acknowledges");
        self.acknowledged.push(self.next);
        self.next += 1;
    }

    /// Nothing that was acknowledged is missing.
    fn is_whole(&self, kept: &Cluster, node: u8) {
        let log = kept.open(node, Level::RemoteRing).expect("a log");
        holds_all(&numbers(&log), self.acknowledged.iter().copied());
    }
}

/// State of a replica, as a primary reports it.
fn state_of(status: &Value, node: u8) -> String {
    let replicas = status["groups"][0]["replicas"].as_array().cloned().unwrap_or_default();
    let of = replicas.iter().find(|replica| replica["node"] == node);
    of.map_or_else(String::new, |of| of["state"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_primary_whose_disk_dies_gives_its_lead_away_and_nothing_is_lost() {
    let Some((mut kept, mut primary)) = formed("quorum", &[]) else { return };
    let mut program = Program::default();
    program.goes_on(&kept, primary);
    for fault in ["sync", "write"] {
        let old = primary;
        kept.disk(old, fault);
        let refused = program.append_until_refused(&kept, old);
        let failed = Instant::now();
        primary = kept.leader(|node| node != old);
        program.goes_on(&kept, primary);
        assert!(program.append_at(&kept, old, Level::RemoteRing, Duration::ZERO).is_err(), "two acknowledge");
        println!("{fault}: the next one acknowledges {} ms after {refused}", failed.elapsed().as_millis());
        // It says so itself, and so do its keeper and the next primary.
        let said = tidewater_tests::run_well(kept.folder.path(), &["group", "status", "--control", &old.to_string()]);
        assert!(said.contains("its disk can't be written: it acknowledges nothing"), "{said}");
        let told = "its disk can't be written";
        kept.until(primary, "it names the disk", |status| state_of(status, old) == told);
        let member = |status: &Value| {
            let members = status["members"].as_array().cloned().unwrap_or_default();
            members.into_iter().find(|member| member["node"] == old).unwrap_or_default()
        };
        kept.until_known("its keeper names the disk", |status| {
            let member = member(status);
            member["disk"] == "failed" && member["note"].as_str().is_some_and(|note| note.contains(told))
        });
        // A device that can't store its promise makes none.
        let line = ["group", "promote", "--control", &old.to_string()];
        let refused = tidewater_tests::run_refused(kept.folder.path(), &line);
        assert!(refused.contains(told), "{refused}");
        // Repaired and started by hand, it follows.
        kept.kill(old);
        kept.disk(old, "");
        kept.start(old);
        kept.all_in_step(primary);
    }
    program.is_whole(&kept, primary);
}

/// The disk dies unnoticed, and the switchover is the first that has to be stored.
#[test]
fn a_switchover_needs_nothing_of_a_primary_whose_disk_is_dead() {
    let Some((kept, primary)) = formed("quorum", &[]) else { return };
    let mut program = Program::default();
    program.goes_on(&kept, primary);
    let next = (primary + 1) % 3;
    kept.disk(primary, "sync");
    let said = kept.ask(&["switchover", "--to", &next.to_string(), "--wait", "60s"]);
    assert!(said.contains(&format!("node {next} is primary")), "{said}");
    program.goes_on(&kept, next);
    program.is_whole(&kept, next);
}

#[test]
fn a_device_whose_disk_was_full_comes_back_by_itself_when_there_is_room() {
    let Some((kept, old)) = formed("quorum", &[]) else { return };
    let mut program = Program::default();
    program.goes_on(&kept, old);
    kept.disk(old, "full");
    program.append_until_refused(&kept, old);
    let primary = kept.leader(|node| node != old);
    program.goes_on(&kept, primary);
    kept.until(primary, "it names the disk", |status| state_of(status, old) == "its disk is full");
    kept.disk(old, "");
    kept.all_in_step(primary);
    // A replica, too: what it had acknowledged is there.
    let replica = 3 - old - primary;
    kept.disk(replica, "full");
    let start = Instant::now();
    while state_of(&kept.status(primary), replica) != "its disk is full" {
        program.goes_on(&kept, primary);
        let _ = program.append_at(&kept, primary, Level::RemoteDestaged, Duration::ZERO);
        assert!(start.elapsed() < PATIENCE, "{}", kept.status(primary));
    }
    kept.disk(replica, "");
    kept.all_in_step(primary);
    assert_eq!(kept.leader(|_| true), primary, "a replica's disk moves nothing");
    program.goes_on(&kept, primary);
    program.is_whole(&kept, primary);
}

/// Its keeper can't store what it knows of etcd, and renewed its lease for good: no other could lead.
#[test]
fn a_full_disk_that_takes_no_word_of_its_keeper_either_holds_no_lead() {
    let Some((kept, old)) = formed("quorum", &[]) else { return };
    let mut program = Program::default();
    program.goes_on(&kept, old);
    // Where the new file would be.
    std::fs::create_dir(kept.path(old).join("keeper.new")).expect("a folder");
    let start = Instant::now();
    while !kept.said(old).contains("keeper.json: ") {
        assert!(start.elapsed() < PATIENCE, "it has stored all: {}", kept.all_said());
        // Revisions that it has not seen yet.
        kept.ask(&["pause"]);
        kept.ask(&["resume"]);
    }
    program.goes_on(&kept, old);
    kept.disk(old, "full");
    program.append_until_refused(&kept, old);
    let primary = kept.leader(|node| node != old);
    program.goes_on(&kept, primary);
    program.is_whole(&kept, primary);
}

#[test]
fn a_disk_that_is_slow_for_long_gives_the_lead_away_where_that_was_asked_for() {
    let Some((kept, old)) = formed("quorum", &["--slow-disk", "50ms"]) else { return };
    let mut program = Program::default();
    program.goes_on(&kept, old);
    kept.disk(old, "late");
    program.append_until_refused(&kept, old);
    let primary = kept.leader(|node| node != old);
    program.goes_on(&kept, primary);
    program.is_whole(&kept, primary);
    assert!(kept.said(old).contains("its disk is slow"), "{}", kept.all_said());
}

/// The times of a [`round`].
struct Took {
    /// Until a primary acknowledged; where all members have to have it, until there was one that would.
    next: Option<Duration>,
    /// From the repair until one acknowledged and all were in step.
    whole: Duration,
}

/// One round: the disk of a primary or of a replica fails in a way, and is repaired.
fn round(kept: &mut Cluster, program: &mut Program, fault: &str, of_primary: bool) -> Took {
    let primary = kept.leader(|_| true);
    let mode = kept.status(primary)["groups"][0]["mode"].as_str().unwrap_or_default().to_owned();
    let _ = program.append_at(kept, primary, Level::RemoteDestaged, Duration::from_millis(200));
    program.goes_on(kept, primary);
    let node = if of_primary { primary } else { (primary + 1) % 3 };
    if fault == "slow" && of_primary {
        // A keeper gives leadership up for a slow disk once in ten leases: this one has not yet.
        kept.kill_keeper(node);
        kept.start_keeper(node);
        kept.leader(|leads| leads == node);
    }
    kept.disk(node, fault);
    let start = Instant::now();
    let is_quorum = mode.starts_with("quorum");
    let mut next = None;
    while start.elapsed() < 8 * TTL {
        let Some(now) = kept.leader_now() else { continue };
        let begin = program.acknowledged.len();
        let _ = program.append_at(kept, now, Level::RemoteDestaged, Duration::ZERO);
        let is_elsewhere = !of_primary || now != primary;
        if is_elsewhere && program.acknowledged.len() > begin {
            next = Some(start.elapsed());
            break;
        }
        // Where all members have to have it, none is acknowledged before the disk works again: a primary is all that
        // can be waited for.
        if is_elsewhere && !is_quorum && kept.status(now)["groups"][0]["role"] == "primary" {
            next = Some(start.elapsed());
            break;
        }
    }
    let repaired = Instant::now();
    kept.disk(node, "");
    if matches!(fault, "sync" | "write") {
        kept.kill(node);
        kept.start(node);
    }
    let primary = kept.leader(|_| true);
    program.goes_on(kept, primary);
    kept.all_in_step(primary);
    Took { next, whole: repaired.elapsed() }
}

/// Median and worst of some times, in seconds.
fn in_words(times: impl Iterator<Item = Duration>) -> String {
    let mut seconds: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    match (seconds.get(seconds.len() / 2), seconds.last()) {
        (Some(median), Some(worst)) => format!("median {median:.1} s, worst {worst:.1} s"),
        _ => "never".into(),
    }
}

/// `DISK_ROUNDS`: how many of each kind, 20 without it. `DISK_MODE`, `DISK_KIND`: of this mode, this fault alone.
#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_disks_that_die_cost_seconds_and_no_byte() {
    let rounds = std::env::var("DISK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let is_wanted = |name: &str, what: &str| std::env::var(name).map_or(true, |wanted| wanted == what);
    for mode in ["quorum", "eager", "chain"].into_iter().filter(|mode| is_wanted("DISK_MODE", mode)) {
        for fault in ["write", "sync", "full", "slow"].into_iter().filter(|fault| is_wanted("DISK_KIND", fault)) {
            for of_primary in [true, false] {
                let Some(mut kept) = on_machines(mode, &["--slow-disk", "100ms"]) else { return };
                let mut program = Program::default();
                let took: Vec<Took> = (0..rounds).map(|_| round(&mut kept, &mut program, fault, of_primary)).collect();
                let primary = kept.leader(|_| true);
                program.is_whole(&kept, primary);
                let moved = took.iter().filter(|took| took.next.is_some()).count();
                println!(
                    "{mode}, {fault} of the {}: {moved} of {rounds} moved or went on: {}; whole again after the \
                     repair: {}; {} acknowledged, 0 lost",
                    if of_primary { "primary" } else { "replica" },
                    in_words(took.iter().filter_map(|took| took.next)),
                    in_words(took.iter().map(|took| took.whole)),
                    program.acknowledged.len()
                );
            }
        }
    }
}
