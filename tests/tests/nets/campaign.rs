//! Lives of a cluster by seed: devices with a keeper each on machines of their own, a real etcd, programs that append
//! and read, and faults of all kinds, one after the other. At the end of each life its history is judged twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidewater_base::Rng;

use crate::cluster::etcd::is_installed;
use crate::cluster::relay::Weather;
use crate::cluster::{Cluster, PATIENCE, Process, TTL, epoch};
use crate::nets::history::judge;
use crate::nets::tally::Tally;
use crate::nets::workload::Workload;
use tidewater_tests::wait;

/// A fault of the cluster while programs append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The primary's device, its keeper, and its member of etcd if there is one, are killed until another is primary.
    MachineDies,
    DeviceStartsAnew,
    DeviceStops,
    SecondaryDies,
    SecondaryStops,
    /// A secondary is killed, and its folder with it.
    SecondaryLosesItsDisk,
    KeeperStops,
    KeeperStartsAnew,
    EtcdDies,
    EtcdStops,
    Switchover,
    CutOneWay,
    CutBothWays,
    PrimaryCutOff,
    SecondaryCutOff,
    /// All links lose, repeat, delay and reorder.
    BadLinks,
    SlowLinks,
    Flapping,
    /// The disk of a secondary fails or stands still, and works again.
    SecondaryDiskFails,
    DiskStalls,
}

const FAULTS: [Fault; 20] = [
    Fault::MachineDies,
    Fault::DeviceStartsAnew,
    Fault::DeviceStops,
    Fault::SecondaryDies,
    Fault::SecondaryStops,
    Fault::SecondaryLosesItsDisk,
    Fault::KeeperStops,
    Fault::KeeperStartsAnew,
    Fault::EtcdDies,
    Fault::EtcdStops,
    Fault::Switchover,
    Fault::CutOneWay,
    Fault::CutBothWays,
    Fault::PrimaryCutOff,
    Fault::SecondaryCutOff,
    Fault::BadLinks,
    Fault::SlowLinks,
    Fault::Flapping,
    Fault::SecondaryDiskFails,
    Fault::DiskStalls,
];

/// Calls of a life, beyond which programs are slower: judges have to hold them all.
const CALLS_MAX: usize = 12_000;

/// Totals of a campaign.
#[derive(Default)]
struct Counts {
    lives: u64,
    rounds: u64,
    /// Rounds of these in which packets were lost, repeated and late besides.
    rough: u64,
    acknowledged: u64,
    destaged: u64,
    unknown: u64,
    reads: u64,
    promotions: u64,
    lost: u64,
    deposed: u64,
    judged_twice: u64,
    /// For each fault how often it was tried, and was seen at work.
    faults: BTreeMap<Fault, [u64; 2]>,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts {
            lives,
            rounds,
            rough,
            acknowledged,
            destaged,
            unknown,
            reads,
            promotions,
            lost,
            deposed,
            judged_twice,
            faults,
        } = self;
        writeln!(
            f,
            "nets: {lives} lives, {rounds} rounds ({rough} with bad links besides), {acknowledged} appends \
             acknowledged ({destaged} at REMOTE_DESTAGED, the others at REMOTE_RING), {unknown} refused or late, \
             {reads} reads, {promotions} promotions, {judged_twice} histories judged by Porcupine too"
        )?;
        writeln!(f, "nets: {lost} acknowledged records lost, {deposed} acknowledged by a deposed primary")?;
        for (fault, [tried, fired]) in faults {
            writeln!(f, "  {:<24} tried {tried:>4}, fired {fired:>4}", format!("{fault:?}"))?;
        }
        Ok(())
    }
}

struct Life {
    site: Cluster,
    rng: Rng,
    mode: &'static str,
    has_disks: bool,
}

impl Life {
    /// A time up to two leases.
    fn pause(&mut self) -> Duration {
        Duration::from_millis(100 + self.rng.below(2 * TTL.as_millis() as u64))
    }

    /// Lets up to two leases pass.
    fn rests(&mut self) {
        wait::pass(self.pause());
    }

    /// A process stands still for a while. Whether it did.
    fn stands(&mut self, process: Process) -> bool {
        let pause = self.pause();
        self.site.signal_to(process, Signal::SIGSTOP);
        wait::pass(pause);
        let is_so = self.site.is_standing(process);
        self.site.signal_to(process, Signal::SIGCONT);
        is_so
    }

    /// Links are in some weather for a while, and all is well then. Whether any packet was hit.
    fn weather(&mut self, ways: &[(u8, u8)], weather: Weather) -> bool {
        let before = self.site.machines().fired_in_all();
        ways.iter().for_each(|&(from, to)| self.site.machines().weather(from, to, weather));
        self.rests();
        ways.iter().for_each(|&(from, to)| self.site.machines().weather(from, to, Weather::default()));
        let after = self.site.machines().fired_in_all();
        after.cut > before.cut || after.lost > before.lost || after.late > before.late
    }

    fn both_ways(&self, node: u8, others: impl Iterator<Item = u8>) -> Vec<(u8, u8)> {
        others.filter(|&other| other != node).flat_map(|other| [(node, other), (other, node)]).collect()
    }

    /// Lets something happen to a healthy cluster. Whether it was seen at work.
    fn meets(&mut self, fault: Fault) -> bool {
        let primary = self.site.primary(|_| true);
        let secondary = (primary + 1 + self.rng.below(2) as u8) % 3;
        let members = self.site.etcd.len();
        let member = self.rng.below(members as u64) as usize;
        let all = || 0..=self.site.operator();
        match fault {
            Fault::MachineDies => {
                self.site.kill_keeper(primary);
                self.site.kill(primary);
                let on_it = (members == 3).then_some(usize::from(primary));
                on_it.into_iter().for_each(|member| self.site.etcd[member].kill());
                self.site.primary(|node| node != primary);
                on_it.into_iter().for_each(|member| self.site.etcd[member].start());
                self.site.start(primary);
                self.site.start_keeper(primary);
                true
            }
            Fault::DeviceStartsAnew => {
                self.site.kill(primary);
                self.site.start(primary);
                true
            }
            Fault::DeviceStops => self.stands(Process::Device(primary)),
            Fault::SecondaryStops => self.stands(Process::Device(secondary)),
            Fault::KeeperStops => self.stands(Process::Keeper(primary)),
            Fault::EtcdStops => self.stands(Process::Etcd(member)),
            Fault::SecondaryDies => {
                self.site.kill_keeper(secondary);
                self.site.kill(secondary);
                self.rests();
                self.site.start(secondary);
                self.site.start_keeper(secondary);
                true
            }
            Fault::SecondaryLosesItsDisk => {
                self.site.kill_keeper(secondary);
                self.site.kill(secondary);
                std::fs::remove_dir_all(self.site.path(secondary)).expect("the folder can be removed");
                self.site.start(secondary);
                self.site.start_keeper(secondary);
                true
            }
            Fault::KeeperStartsAnew => {
                self.site.kill_keeper(primary);
                self.site.start_keeper(primary);
                true
            }
            Fault::EtcdDies => {
                self.site.etcd[member].kill();
                self.rests();
                self.site.etcd[member].start();
                true
            }
            Fault::Switchover => {
                self.site.operate(&["switchover", "--wait", "10s"]);
                self.site.primary(|_| true) != primary
            }
            Fault::CutOneWay => {
                let (from, to) = (self.rng.below(3) as u8, self.rng.below(2) as u8);
                self.weather(&[(from, (from + 1 + to) % 3)], Weather::CUT)
            }
            Fault::CutBothWays => self.weather(&[(primary, secondary), (secondary, primary)], Weather::CUT),
            Fault::PrimaryCutOff => self.weather(&self.both_ways(primary, all()), Weather::CUT),
            Fault::SecondaryCutOff => self.weather(&self.both_ways(secondary, all()), Weather::CUT),
            Fault::BadLinks | Fault::SlowLinks => {
                let ways: Vec<(u8, u8)> = self.site.nodes().flat_map(|node| self.both_ways(node, 0..3)).collect();
                let late = Duration::from_millis(1 + self.rng.below(20));
                let weather = match fault {
                    Fault::SlowLinks => Weather { delay: late, ..Weather::default() },
                    _ => Weather { lost_permille: 10, twice_permille: 20, jitter: late, ..Weather::default() },
                };
                self.weather(&ways, weather)
            }
            Fault::Flapping => {
                let before = self.site.machines().fired_in_all().cut;
                for _ in 0..40 {
                    let time = Duration::from_millis(5 + self.rng.below(60));
                    self.site.machines().between(primary, secondary, Weather::CUT);
                    wait::pass(time);
                    self.site.machines().between(primary, secondary, Weather::default());
                    wait::pass(time);
                }
                self.site.machines().fired_in_all().cut > before
            }
            Fault::SecondaryDiskFails => {
                let before = self.site.disk_fired(secondary);
                self.site.disk(secondary, ["full", "sync"][self.rng.below(2) as usize]);
                self.rests();
                self.site.kill(secondary);
                self.site.disk(secondary, "");
                self.site.start(secondary);
                self.site.disk_fired(secondary) > before
            }
            Fault::DiskStalls => {
                let node = [primary, secondary][self.rng.below(2) as usize];
                let before = self.site.disk_fired(node);
                self.site.disk(node, "stall");
                self.rests();
                self.site.disk(node, "");
                self.site.disk_fired(node) > before
            }
        }
    }

    /// Waits until all follow the primary without a gap.
    fn is_whole(&self) {
        let primary = self.site.primary(|_| true);
        self.site.all_in_step(primary);
    }

    fn epoch(&self, primary: u8) -> u64 {
        epoch(&self.site.group(primary)["epoch"])
    }
}

/// A life of some rounds. False: it can't be lived here, which is counted.
fn live(seed: u64, rounds: u64, first: &[Fault], counts: &mut Counts) -> bool {
    if !is_installed() {
        return false;
    }
    let mut rng = Rng::new(seed, b"nets");
    let Some(mut site) = Cluster::on_machines(3, seed) else { return false };
    let mode = ["quorum", "eager", "quorum", "chain"][seed as usize % 4];
    let (is_secured, has_disks) = (rng.below(2) == 1, site.give_disks());
    if is_secured {
        site.secure_all();
    }
    site.connect();
    let etcd_on: &[u8] = if rng.below(2) == 1 { &[0, 1, 2] } else { &[3] };
    site.start_etcd(etcd_on);
    site.keep(mode);
    println!("seed {seed}: {mode}, TLS {is_secured}, etcd on machines {etcd_on:?}");
    let load = Workload::new(&site, CALLS_MAX);
    let mut life = Life { site, rng, mode, has_disks };
    load.around(3, seed, || {
        let mut epoch = life.epoch(life.site.primary(|_| true));
        for round in 0..rounds {
            let fault = match first.get(round as usize) {
                Some(&fault) => fault,
                None => FAULTS[life.rng.below(FAULTS.len() as u64) as usize],
            };
            if !life.has_disks && [Fault::SecondaryDiskFails, Fault::DiskStalls].contains(&fault) {
                continue;
            }
            // A member that loses what it has acknowledged is one failure: all others have it before.
            if fault == Fault::SecondaryLosesItsDisk {
                life.is_whole();
            }
            let (start, is_rough) = (Instant::now(), life.rng.below(3) == 0);
            if is_rough {
                let jitter = Duration::from_millis(10);
                let rough = Weather { lost_permille: 5, twice_permille: 5, jitter, ..Weather::default() };
                life.site.machines().among(0..3, rough);
            }
            let has_fired = life.meets(fault);
            life.site.machines().among(0..3, Weather::default());
            let [tried, fired] = counts.faults.entry(fault).or_default();
            (*tried, *fired) = (*tried + 1, *fired + u64::from(has_fired));
            // The next fault may come while members still catch up.
            if fault == Fault::SecondaryLosesItsDisk || life.rng.below(2) == 0 {
                life.is_whole();
            }
            assert!(load.goes_on(), "seed {seed}, {}: programs stand still after {fault:?}", life.mode);
            let now = life.epoch(life.site.primary(|_| true));
            counts.promotions += u64::from(now != epoch);
            epoch = now;
            counts.rounds += 1;
            counts.rough += u64::from(is_rough);
            println!("  {fault:?}: {:.1} s, {} acknowledged", start.elapsed().as_secs_f64(), load.acknowledged());
        }
    });
    let primary = life.site.primary(|_| true);
    life.site.all_in_step(primary);
    load.read_at_last(primary).expect("replicas acknowledge");
    let calls = load.history.calls();
    let verdict = judge(&calls);
    counts.lives += 1;
    counts.acknowledged += load.acknowledged();
    counts.destaged += load.destaged();
    counts.unknown += load.refused();
    counts.reads +=
        calls.iter().filter(|call| matches!(call.asked, crate::nets::history::Asked::Read(_))).count() as u64;
    counts.lost += verdict.lost.len() as u64;
    counts.deposed += verdict.deposed.len() as u64;
    let mut tally = Tally::default();
    counts.judged_twice += u64::from(tally.judge(&load));
    assert!(tally.violations.is_empty(), "seed {seed}, {mode}: {:#?}\n{counts}", tally.violations);
    assert!(load.acknowledged() > 0, "seed {seed}: nothing was acknowledged in {PATIENCE:?}");
    true
}

#[test]
fn a_cluster_on_machines_of_its_own_loses_nothing_that_was_acknowledged() {
    let mut counts = Counts::default();
    if live(2, 1, &[Fault::MachineDies], &mut counts) {
        println!("{counts}");
        assert!(counts.promotions > 0, "{counts}");
    }
}

/// `TIDEWATER_TORTURE_MINUTES`: how long, 45 without it. `TIDEWATER_TORTURE_FIRST`: the first seed.
#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_clusters_on_machines_of_their_own_lose_nothing_that_was_acknowledged() {
    let number = |name, without| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(without);
    let minutes = Duration::from_secs(60 * number("TIDEWATER_TORTURE_MINUTES", 45));
    let first = number("TIDEWATER_TORTURE_FIRST", 1_000);
    let (start, mut counts) = (Instant::now(), Counts::default());
    for seed in first.. {
        if start.elapsed() >= minutes {
            break;
        }
        // Each fault comes in turn, and five by chance behind them.
        let turn = (seed - first) as usize * 5;
        let next: Vec<Fault> = (0..5).map(|place| FAULTS[(turn + place) % FAULTS.len()]).collect();
        if !live(seed, 10, &next, &mut counts) {
            return;
        }
        println!("{} min: {counts}", start.elapsed().as_secs() / 60);
    }
    println!("{counts}");
    let idle: Vec<_> = counts.faults.iter().filter(|(_, [_, fired])| *fired == 0).collect();
    assert!(idle.is_empty(), "never seen at work: {idle:?}");
}
