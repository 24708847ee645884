//! Lives of a group, by seed: an appender, and devices that are killed, stopped, started anew and promoted. After every
//! promotion the new primary has all that was acknowledged, and what a deposed one takes is not.

use crate::cluster::{Cluster, PATIENCE, append, numbers};
use nix::sys::signal::Signal;
use std::fmt;
use std::ops::AddAssign;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_client::Level;
use tidewater_client::mapped::Log;
use tidewater_tests::{run, wait};
use tidewater_wire::log::{RING_FILE_BAR2, RecordHeader};
use tidewater_wire::vendor::RINGS_OFFSET;

/// Totals of a campaign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    lives: u64,
    kills: u64,
    stops: u64,
    promotions: u64,
    acknowledged: u64,
    refused: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.lives += other.lives;
        self.kills += other.kills;
        self.stops += other.stops;
        self.promotions += other.promotions;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { lives, kills, stops, promotions, acknowledged, refused } = self;
        write!(
            f,
            "{lives} lives, {kills} kills, {stops} stops, {promotions} promotions, {acknowledged} records \
             acknowledged, {refused} appends refused or late"
        )
    }
}

/// A fault of the primary while a program appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is killed, and stays away until another is primary.
    Killed,
    /// It stands still until another is primary.
    Stopped,
    /// It is killed and started at once: it stays primary.
    StartedAnew,
    /// Nothing: a replica is killed and started, or stands still for a while.
    ReplicaKilled,
    ReplicaStopped,
}

struct Life {
    cluster: Cluster,
    rng: Rng,
    primary: u8,
    next: u64,
    acknowledged: Vec<u64>,
    counts: Counts,
}

impl Life {
    /// Appends until one append fails, or `time` is over.
    fn append(&mut self, log: &Log, time: Duration, patience: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            let number = self.next;
            self.next += 1;
            match append(log, number, patience) {
                Ok(()) => self.acknowledged.push(number),
                Err(_) => {
                    self.counts.refused += 1;
                    return;
                }
            }
        }
    }

    /// All that was acknowledged is in the log of a node, in order.
    fn check(&self, log: &Log) {
        let found = numbers(log);
        assert!(found.is_sorted_by(|a, b| a < b), "numbers are out of order");
        let missing: Vec<u64> =
            self.acknowledged.iter().copied().filter(|number| found.binary_search(number).is_err()).collect();
        let ends = |numbers: &[u64]| numbers.first().copied().zip(numbers.last().copied());
        let is = || std::fs::read_to_string(self.cluster.folder.path().join("stderr")).unwrap_or_default();
        assert!(
            missing.is_empty(),
            "{} acknowledged records {:?} are gone; found {} {:?} on node {}: {}{}{}",
            missing.len(),
            ends(&missing),
            found.len(),
            ends(&found),
            self.primary,
            self.cluster.status(self.primary),
            self.explain(log, missing.len() as u64),
            is(),
        );
    }

    /// Of each node, the log and the ring's file where the last records are: for each the epoch and offset
    /// that its header names.
    fn explain(&self, log: &Log, count: u64) -> String {
        let one = RecordHeader::span(8);
        let (from, to) = (log.tail().saturating_sub((count + 8) * one), log.tail());
        let mut text = format!("\nfrom {from} to {to}");
        for node in self.cluster.nodes() {
            let line = ["tail", "--raw", "--from", &from.to_string(), "--device", &node.to_string()];
            let said = run(self.cluster.folder.path(), &line);
            let mut ring = vec![0; (to - from) as usize];
            let in_ring = std::fs::File::open(self.cluster.path(node).join("ring"))
                .and_then(|file| file.read_exact_at(&mut ring, RING_FILE_BAR2 + RINGS_OFFSET + from));
            let failed = (String::from_utf8_lossy(&said.stderr), in_ring.err());
            for (of, bytes) in [("log", &said.stdout), ("ring", &ring)] {
                let holds = bytes.chunks(one as usize).map(|line| match RecordHeader::parse(line) {
                    Ok(RecordHeader { epoch, lsn, .. }) => format!(" {epoch}@{lsn}"),
                    Err(error) => format!(" ({error})"),
                });
                text += &format!("\nnode {node}, {of}:{}", holds.collect::<String>());
            }
            text += &format!("\n{failed:?}");
        }
        text + "\n"
    }

    fn log(&self) -> Log {
        wait::success("the log opens", || self.cluster.open(self.primary, Level::RemoteRing))
    }

    /// Another member becomes primary: one of those that have all that counts, whichever is asked.
    fn promote(&mut self, not: u8) {
        let first = self.rng.below(2) as u8;
        let others: Vec<u8> = (0..3).filter(|node| *node != not).collect();
        let node = others[usize::from(first)];
        self.cluster.promoted(node);
        self.primary = node;
        self.counts.promotions += 1;
    }

    fn round(&mut self) {
        let fates = [Fate::Killed, Fate::Stopped, Fate::StartedAnew, Fate::ReplicaKilled, Fate::ReplicaStopped];
        let fate = fates[self.rng.below(fates.len() as u64) as usize];
        println!("  {fate:?} of node {}, {} acknowledged", self.primary, self.acknowledged.len());
        let log = self.log();
        let (time, before) = (Duration::from_millis(20 + self.rng.below(150)), self.counts.refused);
        self.append(&log, time, PATIENCE);
        assert_eq!(
            self.counts.refused,
            before,
            "all are there, and an append fails: {}",
            self.cluster.status(self.primary)
        );
        let (old, replica) = (self.primary, (self.primary + 1 + self.rng.below(2) as u8) % 3);
        let wait = Duration::from_millis(self.rng.below(1_500));
        match fate {
            Fate::Killed => {
                self.cluster.kill(old);
                self.append(&log, Duration::from_millis(200), Duration::from_millis(200));
                drop(log);
                self.promote(old);
                self.check(&self.log());
                self.cluster.start(old);
                self.counts.kills += 1;
            }
            Fate::Stopped => {
                self.cluster.signal(old, Signal::SIGSTOP);
                self.promote(old);
                let new = self.log();
                self.check(&new);
                drop(new);
                self.cluster.signal(old, Signal::SIGCONT);
                // What its program appends from now on is acknowledged by no replica.
                let before = self.acknowledged.len();
                self.append(&log, Duration::from_millis(500), Duration::from_millis(500));
                assert_eq!(self.acknowledged.len(), before, "a deposed primary acknowledged");
                self.counts.stops += 1;
            }
            Fate::StartedAnew => {
                drop(log);
                self.cluster.kill(old);
                self.cluster.start(old);
                self.counts.kills += 1;
            }
            Fate::ReplicaKilled => {
                self.cluster.kill(replica);
                self.append(&log, wait, Duration::from_millis(300));
                self.cluster.start(replica);
                self.counts.kills += 1;
            }
            Fate::ReplicaStopped => {
                self.cluster.signal(replica, Signal::SIGSTOP);
                self.append(&log, wait, Duration::from_millis(300));
                self.cluster.signal(replica, Signal::SIGCONT);
                self.counts.stops += 1;
            }
        }
    }
}

/// A life of a group.
fn live(seed: u64, rounds: u32) -> Counts {
    let mut rng = Rng::new(seed, b"replication");
    let mode = ["quorum", "eager", "chain"][rng.below(3) as usize];
    let cluster = Cluster::new(3);
    cluster.form(mode);
    let (acknowledged, counts) = (Vec::new(), Counts { lives: 1, ..Counts::default() });
    let mut life = Life { cluster, rng, primary: 0, next: 0, acknowledged, counts };
    for _ in 0..rounds {
        life.round();
    }
    // All are there again, and the same.
    life.cluster.until(life.primary, "all are in step", |status| {
        let replicas = status["groups"][0]["replicas"].as_array().expect("a list");
        !replicas.is_empty() && replicas.iter().all(|it| it["state"] == "in step" && it["behind_bytes"] == 0)
    });
    let log = life.log();
    life.append(&log, Duration::from_millis(50), PATIENCE);
    life.check(&log);
    life.counts.acknowledged = life.acknowledged.len() as u64;
    life.counts
}

fn campaign(seeds: std::ops::Range<u64>, rounds: u32) {
    let mut all = Counts::default();
    for seed in seeds {
        println!("seed {seed}");
        all += live(seed, rounds);
    }
    println!("replication: {all}");
    assert!(all.acknowledged > 0 && all.promotions > 0, "{all}");
}

#[test]
fn what_was_acknowledged_is_on_every_later_primary() {
    campaign(1..4, 4);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_what_was_acknowledged_is_on_every_later_primary() {
    campaign(100..160, 12);
}
