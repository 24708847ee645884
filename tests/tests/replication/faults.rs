//! Devices in this process whose frames are lost, repeated, delayed and cut one way by seed, over TLS: what was
//! acknowledged is on every later primary.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Cluster, PATIENCE, append, has_a_log, numbers};
use tidewater_base::Rng;
use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options};
use tidewater_core::profile;
use tidewater_serve::control::{GroupMode, Request};
use tidewater_serve::engine::{Backing, NamespaceSetup};
use tidewater_serve::peers::PeersSetup;
use tidewater_serve::peers::carrier::Faults;
use tidewater_serve::ring::RingSetup;
use tidewater_testkit::served::{Drive, setup};
use tidewater_tests::run_well;
use tidewater_tests::wait;

const NODES: u8 = 3;

struct Devices {
    /// Its folder and its addresses: no process of it runs.
    places: Cluster,
    faults: Vec<Arc<Faults>>,
    drives: Vec<Drive>,
}

impl Devices {
    fn new(seed: u64) -> Devices {
        let places = Cluster::prepare(NODES);
        run_well(places.folder.path(), &["cluster", "init", "certs", "--cluster", "faults", "--nodes", "3"]);
        let mut rng = Rng::new(seed, b"faults of devices");
        let mut faults = |_| {
            let (drop, repeat) = (rng.below(15) as u8, rng.below(15) as u8);
            Arc::new(Faults::new(seed, drop, repeat, Duration::from_micros(rng.below(4) * 700)))
        };
        let mut devices = Devices { places, faults: (0..NODES).map(&mut faults).collect(), drives: Vec::new() };
        for node in 0..NODES {
            let drive = devices.start(node);
            devices.drives.push(drive);
        }
        for node in (0..NODES).rev() {
            let primary = node == 0;
            let members = (0..NODES).collect();
            devices.drives[usize::from(node)].ask(&Request::GroupForm {
                function: 0,
                members,
                mode: GroupMode::Quorum,
                k: 2,
                primary,
            });
        }
        devices.until(0, "node 0 is primary", "primary");
        // A member that has never had the log does not count in a promotion, and links are cut from now on.
        let else_say = || format!("replicas take over the log: {}", devices.group(0));
        wait::until(else_say, || (1..NODES).all(|node| has_a_log(&devices.group(node))));
        devices
    }

    fn start(&self, node: u8) -> Drive {
        let (folder, profile) = (self.places.path(node), profile::builtin("log").expect("a profile"));
        std::fs::create_dir(&folder).expect("a folder");
        let block_shift = profile.host.block_size.ilog2() as u8;
        let mut setup = setup(profile, &folder, Backing::File(folder.join("image")), 1);
        setup.namespaces = vec![NamespaceSetup { bytes: None, block_shift }];
        setup.ring =
            Some(RingSetup { path: folder.join("ring"), persistent: false, copy: Some(folder.join("ring-copy")) });
        setup.peers = Some(PeersSetup {
            node,
            cluster: "faults".into(),
            listen: Some(self.places.at(node).parse().expect("an address")),
            peers: (0..NODES).filter(|peer| *peer != node).map(|peer| (peer, self.places.at(peer))).collect(),
            identity: Some(self.places.folder.path().join(format!("certs/node-{node}"))),
            insecure: false,
            catch_up_rate: None,
            holds_log: false,
            faults: Some(Arc::clone(&self.faults[usize::from(node)])),
        });
        Drive::start(&setup)
    }

    /// A function's group, as a device's status has it.
    fn group(&self, node: u8) -> serde_json::Value {
        self.drives[usize::from(node)].ask(&Request::Status)["peers"]["groups"][0].clone()
    }

    fn until(&self, node: u8, what: &str, role: &str) {
        wait::until(|| format!("{what}: {}", self.group(node)), || self.group(node)["role"] == role);
    }

    fn log(&self, node: u8) -> Log {
        let target = format!("vfio-user:{}", self.drives[usize::from(node)].ready.vfio_user[0].display());
        let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
        wait::success("the log opens", || Log::open(&target, options))
    }

    fn cut(&self, from: u8, to: u8, is_cut: bool) {
        self.faults[usize::from(from)].cut(to, is_cut);
    }
}

/// A life: appends while links are cut one way, then a primary that can be reached and does not reach others.
fn live(seed: u64) -> [u64; 3] {
    let devices = Devices::new(seed);
    let mut rng = Rng::new(seed, b"cuts of links");
    let (mut primary, mut next) = (0, 0);
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        let log = devices.log(primary);
        for _ in 0..4 {
            // One direction of one link, of which a quorum does not need both ends.
            let (from, to) = (rng.below(3) as u8, rng.below(3) as u8);
            devices.cut(from, to, true);
            for _ in 0..8 {
                append(&log, next, PATIENCE)
                    .unwrap_or_else(|error| panic!("{error} with {from} to {to} cut: {}", devices.group(primary)));
                acknowledged.push(next);
                next += 1;
            }
            devices.cut(from, to, false);
        }
        let others: Vec<u8> = (0..NODES).filter(|node| *node != primary).collect();
        others.iter().for_each(|&to| devices.cut(primary, to, true));
        let new = others[rng.below(2) as usize];
        wait::success("a promotion", || {
            let group = devices.group(new);
            if group["role"] == "secondary" {
                let promote = Request::GroupPromote {
                    function: 0,
                    members: Vec::new(),
                    mode: None,
                    k: 0,
                    force: false,
                    above: 0,
                    before_ms: None,
                };
                let _ = devices.drives[usize::from(new)].try_ask(&promote);
            }
            if group["role"] == "primary" { Ok(()) } else { Err(group) }
        });
        // The old one acknowledges nothing: it has no quorum.
        let before = next;
        next += 1;
        assert!(append(&log, before, Duration::from_millis(100)).is_err(), "a deposed primary acknowledged");
        drop(log);
        others.iter().for_each(|&to| devices.cut(primary, to, false));
        devices.until(primary, "it follows", "secondary");
        primary = new;
        let found = numbers(&devices.log(primary));
        assert!(found.is_sorted_by(|a, b| a < b));
        let missing: Vec<_> = acknowledged.iter().filter(|number| found.binary_search(number).is_err()).collect();
        assert!(missing.is_empty(), "{missing:?} of {} are gone: {}", acknowledged.len(), devices.group(primary));
    }
    let fired = devices.faults.iter().map(|faults| faults.fired());
    fired.reduce(|a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]).unwrap_or_default()
}

fn lives(seeds: std::ops::Range<u64>) {
    let mut all = [0; 3];
    for seed in seeds.clone() {
        println!("seed {seed}");
        let fired = live(seed);
        all = std::array::from_fn(|i| all[i] + fired[i]);
    }
    let [dropped, repeated, delayed] = all;
    println!("{} lives, {dropped} frames lost, {repeated} repeated, {delayed} delayed", seeds.count());
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
}

#[test]
fn lost_repeated_and_late_frames_lose_no_acknowledged_record() {
    lives(1..3);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_lost_repeated_and_late_frames_lose_no_acknowledged_record() {
    lives(100..140);
}
