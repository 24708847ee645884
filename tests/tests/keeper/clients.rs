//! Programs that ask etcd which device is primary.

use std::time::{Duration, Instant};

use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_tests::{run_refused, run_well};

use crate::cluster::etcd::is_installed;
use crate::cluster::{Cluster, PATIENCE, numbers};
use crate::keeper::failures::holds_all;

fn open(kept: &Cluster, cluster: &str) -> Result<Log, LogError> {
    let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
    Log::open(&kept.etcd[0].target(cluster), options)
}

#[test]
fn a_program_that_asks_etcd_goes_on_when_its_primary_dies() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    let log = open(&kept, "tidewater").expect("etcd names the primary");
    let mut number = 0;
    let mut append = |until: &dyn Fn(u64) -> bool| {
        let start = Instant::now();
        while !until(number) {
            assert!(start.elapsed() < PATIENCE, "it stands still at {number}");
            let written = log.append(&[&u64::to_le_bytes(number)]).expect("the log accepts the record");
            log.wait(written.end, Level::RemoteRing, PATIENCE).expect("the log reaches the level");
            number += 1;
        }
    };
    append(&|number| number == 100);
    kept.kill_keeper(first);
    kept.kill(first);
    append(&|number| number == 200);
    assert_eq!(log.moves(), 1);
    drop(log);
    let second = kept.leader(|node| node != first);
    let log = kept.log(second);
    holds_all(&numbers(&log), 0..200);
    drop(log);
    // The commands take the same target.
    let folder = kept.folder.path();
    let target = kept.etcd[0].target("tidewater");
    let line = ["--level", "remote-ring", "--log", "app.log", "--", "sh", "-c", "echo one > app.log; sync -d app.log"];
    run_well(folder, &[&["drain", "--device", &target][..]].concat());
    run_well(folder, &[&["run", "--device", &target][..], &line].concat());
    assert_eq!(std::fs::read_to_string(folder.join("app.log")).expect("a file"), "one\n");
}

#[test]
fn a_program_without_a_primary_learns_which_was_the_last_and_what_to_do() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    let said = open(&kept, "other").expect_err("there is none").to_string();
    assert!(said.contains("/tidewater/other/") && said.contains("correct the name"), "{said}");

    // Its device is said to be where this machine has none.
    kept.kill_keeper(first);
    kept.start_keeper_with(first, &["--address", "/elsewhere/log"]);
    kept.until_known("the address is known", |status| {
        status["members"].as_array().is_some_and(|all| all.iter().any(|one| one["address"] == "/elsewhere/log"))
            && status["leader"]["node"] == first
    });
    let said = open(&kept, "tidewater").expect_err("it is elsewhere").to_string();
    assert!(said.contains("/elsewhere/log/vfio.sock: ") && said.contains("switchover"), "{said}");

    kept.ask(&["pause"]);
    kept.kill_keeper(first);
    kept.kill(first);
    kept.until_known("the lease is over", |status| status["leader"].is_null());
    let gone = Instant::now();
    let folder = kept.folder.path();
    let target = kept.etcd[0].target("tidewater");
    let said = run_refused(folder, &["run", "--device", &target, "--log", "x", "--", "true"]);
    assert!(said.contains(&format!("it has no primary now: the last was node {first}, of epoch ")), "{said}");
    assert!(said.contains("no keeper has led for ") && said.contains("tidewater cluster keeper resume"), "{said}");
    let since = said.split("no keeper has led for ").nth(1).and_then(|rest| rest.split(' ').next());
    let since = since.and_then(|number| number.parse().ok()).expect("a number of seconds");
    assert!(Duration::from_secs(since) < gone.elapsed() + Duration::from_secs(10), "{said}");
    let shown = kept.ask(&["status"]);
    assert!(shown.contains("no leader for "), "{shown}");
}
