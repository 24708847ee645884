//! Lives of a cluster, by seed: an appender that looks for the primary, and devices, keepers and etcd that are killed,
//! stopped, and started anew. Whatever happens, what was acknowledged is there at the end.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidewater_base::Rng;
use tidewater_client::Level;

use crate::cluster::etcd::is_installed;
use crate::cluster::{Cluster, Process, TTL, append, numbers};
use crate::keeper::failures::holds_all;
use tidewater_tests::wait;

/// A fault of the cluster while a program appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The primary's device and keeper are killed, and start when another is primary.
    MachineDies,
    /// Its device is killed, and starts at once.
    DeviceStartsAnew,
    /// Its device stands still.
    DeviceStops,
    /// Its keeper stands still.
    KeeperStops,
    /// Its keeper is killed, and starts at once.
    KeeperStartsAnew,
    /// etcd is killed, and starts after a while.
    EtcdDies,
    /// etcd stands still.
    EtcdStops,
    /// The machine of a secondary dies, and is back at once.
    SecondaryDies,
    /// An operator switches over.
    Switchover,
}

const FATES: [Fate; 9] = [
    Fate::MachineDies,
    Fate::DeviceStartsAnew,
    Fate::DeviceStops,
    Fate::KeeperStops,
    Fate::KeeperStartsAnew,
    Fate::EtcdDies,
    Fate::EtcdStops,
    Fate::SecondaryDies,
    Fate::Switchover,
];

struct Life {
    kept: Cluster,
    next: u64,
    acknowledged: Vec<u64>,
    refused: u64,
}

impl Life {
    /// Appends at a node until it refuses, or the time is over.
    fn append_at(&mut self, node: u8, time: Duration) {
        let Ok(log) = self.kept.open(node, Level::RemoteRing) else { return };
        let start = Instant::now();
        while start.elapsed() < time {
            let number = self.next;
            self.next += 1;
            match append(&log, number, Duration::from_millis(300)) {
                Ok(()) => self.acknowledged.push(number),
                Err(_) => {
                    self.refused += 1;
                    return;
                }
            }
        }
    }

    fn meets(&mut self, fate: Fate, rng: &mut Rng) {
        let primary = self.kept.leader(|_| true);
        self.append_at(primary, Duration::from_millis(rng.below(400)));
        let pause = Duration::from_millis(rng.below(2 * TTL.as_millis() as u64));
        let kept = &mut self.kept;
        match fate {
            Fate::MachineDies => {
                kept.kill_keeper(primary);
                kept.kill(primary);
                let next = kept.leader(|node| node != primary);
                self.append_at(next, Duration::from_millis(200));
                self.kept.start(primary);
                self.kept.start_keeper(primary);
            }
            Fate::DeviceStartsAnew => {
                kept.kill(primary);
                kept.start(primary);
            }
            Fate::DeviceStops => {
                kept.signal(primary, Signal::SIGSTOP);
                wait::pass(pause);
                kept.signal(primary, Signal::SIGCONT);
                self.append_at(primary, Duration::from_millis(50));
            }
            Fate::KeeperStops => {
                kept.signal_to(Process::Keeper(primary), Signal::SIGSTOP);
                self.append_at(primary, pause);
                self.kept.signal_to(Process::Keeper(primary), Signal::SIGCONT);
                self.append_at(primary, Duration::from_millis(50));
            }
            Fate::KeeperStartsAnew => {
                kept.kill_keeper(primary);
                kept.start_keeper(primary);
            }
            Fate::EtcdDies => {
                kept.etcd[0].kill();
                self.append_at(primary, pause);
                self.kept.etcd[0].start();
            }
            Fate::EtcdStops => {
                kept.etcd[0].signal(Signal::SIGSTOP);
                self.append_at(primary, pause);
                self.kept.etcd[0].signal(Signal::SIGCONT);
            }
            Fate::SecondaryDies => {
                let node = (primary + 1 + rng.below(2) as u8) % 3;
                kept.kill_keeper(node);
                kept.kill(node);
                self.append_at(primary, Duration::from_millis(100));
                self.kept.start(node);
                self.kept.start_keeper(node);
            }
            Fate::Switchover => {
                // One that is not in step yet is a reason to refuse.
                let url = kept.etcd[0].url();
                let line = ["keeper", "--etcd", &url, "switchover", "--wait", "5s"];
                let _ = tidewater_tests::run(kept.folder.path(), &line);
            }
        }
        let primary = self.kept.leader(|_| true);
        self.append_at(primary, Duration::from_millis(100));
    }

    /// All that was acknowledged is there.
    fn is_whole(&self, seed: u64) {
        let primary = self.kept.leader(|_| true);
        self.kept.all_in_step(primary);
        let log = self.kept.open(primary, Level::RemoteRing).expect("a log");
        println!("seed {seed}: {} acknowledged, {} refused", self.acknowledged.len(), self.refused);
        holds_all(&numbers(&log), self.acknowledged.iter().copied());
    }
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_keepers_lose_nothing_that_was_acknowledged() {
    if !is_installed() {
        return;
    }
    let mut fired = [0; FATES.len()];
    for seed in 0..12 {
        let mut rng = Rng::new(seed, b"keepers");
        let (kept, _) = Cluster::kept(3, ["quorum", "eager", "chain"][seed as usize % 3]);
        let mut life = Life { kept, next: 0, acknowledged: Vec::new(), refused: 0 };
        for _ in 0..6 {
            let which = rng.below(FATES.len() as u64) as usize;
            fired[which] += 1;
            life.meets(FATES[which], &mut rng);
        }
        life.is_whole(seed);
    }
    println!("{:?}", FATES.iter().zip(fired).collect::<Vec<_>>());
    assert!(fired.iter().all(|&count| count > 0), "not tried: {fired:?}");
}
