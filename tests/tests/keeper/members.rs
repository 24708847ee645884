//! An etcd of three members, and one that has certificates.

use std::time::{Duration, Instant};

use tidewater_tests::{run_refused, tidewater, wait};

use crate::cluster::etcd::{Etcd, is_installed};
use crate::cluster::{Cluster, PATIENCE, TTL, append, is_stopped, numbers};
use crate::keeper::failures::holds_all;
use crate::keeper::page::asked;

#[test]
fn keepers_and_programs_reach_an_etcd_that_asks_for_certificates_and_no_other_does() {
    if !is_installed() {
        return;
    }
    let mut kept = Cluster::new(2);
    let etcd = Etcd::secured(kept.folder.path());
    kept.start_keepers(vec![etcd], &[]);
    let first = kept.keep("eager");
    append(&kept.log(first), 0, PATIENCE).expect("both nodes acknowledge");

    let folder = kept.folder.path();
    let target = kept.etcd[0].target("tidewater");
    let run = |with: bool| {
        let mut command = tidewater(folder);
        command.args(["run", "--device", &target, "--level", "remote-ring", "--log", "app.log", "--"]);
        command.args(["sh", "-c", "echo one > app.log; sync -d app.log"]);
        if with {
            command.envs(kept.etcd[0].variables());
        }
        let output = command.output().expect("it starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (_, said) = run(false);
    assert!(said.contains("TIDEWATER_ETCD_CA"), "{said}");
    // What the test appended is no file's.
    tidewater_tests::run_well(folder, &["drain", "--device", &first.to_string()]);
    let (is_well, said) = run(true);
    assert!(is_well, "{said}");
    assert_eq!(std::fs::read_to_string(folder.join("app.log")).expect("a file"), "one\n");

    let url = kept.etcd[0].url();
    let certs = folder.join("etcd-certs");
    let file = |name: &str| certs.join(name).display().to_string();
    let refused = |more: &[&str]| run_refused(folder, &[&["keeper", "status", "--etcd", &url], more].concat());
    assert!(refused(&[]).contains("--etcd-ca"));
    // Not of the CA that etcd's certificate is of: a certificate of its own.
    let said = refused(&["--etcd-ca", &file("cert.pem")]);
    assert!(said.contains(&url), "{said}");
    let said = refused(&["--etcd-ca", &file("missing.pem")]);
    assert!(said.contains("missing.pem: No such file"), "{said}");
    let said = refused(&["--etcd-ca", &file("ca.pem")]);
    assert!(said.contains(&url), "etcd takes a client without a certificate: {said}");
}

/// Renewed files were read only once a connection to etcd had failed, and half a file was an etcd that does not answer.
#[test]
fn a_keeper_takes_up_renewed_certificates_and_goes_on_by_those_before_while_new_ones_are_broken() {
    if !is_installed() {
        return;
    }
    let mut kept = Cluster::new(2);
    let etcd = Etcd::secured(kept.folder.path());
    kept.start_keepers(vec![etcd], &["--metrics", "127.0.0.1:0"]);
    let first = kept.keep("eager");
    let log = kept.log(first);
    let number = |name: &str| {
        let (_, page) = asked(&kept, first, "/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("tidewater_keeper_{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("a number")
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        wait::until(|| format!("{what}: {}", kept.all_said()), is_so);
    };
    let before = number("certificate_expires_timestamp_seconds");
    let cert = kept.folder.path().join("etcd-certs/cert.pem");
    let whole = std::fs::read(&cert).expect("it was made");
    for broken in [&whole[..whole.len() / 2], b"", b"no certificate"] {
        std::fs::write(&cert, broken).expect("our file");
        // The connection that is made by now is one by the files before.
        until("it is named", &|| number("certificate_refused") == 1.0);
        append(&log, 0, PATIENCE).expect("both are there");
        until("etcd answers", &|| number("etcd_silent_seconds") < 1.0);
        assert!(kept.said(first).contains("the new files of its certificate are not used: "), "{}", kept.all_said());
        std::fs::write(&cert, &whole).expect("our file");
        until("it is mended", &|| number("certificate_refused") == 0.0);
    }
    assert_eq!(number("certificate_expires_timestamp_seconds"), before);
    kept.etcd[0].renew();
    until("it is taken up", &|| {
        number("certificate_expires_timestamp_seconds") > before && number("certificate_refused") == 0.0
    });
    append(&log, 0, PATIENCE).expect("both are there");
    assert_eq!(kept.leader_now(), Some(first), "{}", kept.all_said());
}

#[test]
#[ignore = "it waits for several leases, for `make torture`"]
fn two_of_three_members_of_etcd_are_enough_and_one_alone_promotes_none() {
    if !is_installed() {
        return;
    }
    let mut kept = Cluster::new(3);
    let etcd = Etcd::three(kept.folder.path());
    kept.start_keepers(etcd, &[]);
    let first = kept.keep("quorum");
    let mut number = 0;
    let mut appends = |kept: &Cluster, node: u8, time: Duration| {
        let (log, start) = (kept.log(node), Instant::now());
        while start.elapsed() < time {
            append(&log, number, PATIENCE).expect("the log accepts the record");
            number += 1;
        }
    };
    // One is gone: all goes on, and hands over.
    kept.etcd[0].kill();
    appends(&kept, first, TTL + TTL / 4);
    let said = kept.ask(&["switchover"]);
    assert!(said.contains("is primary of epoch"), "{said}");
    let second = kept.leader(|node| node != first);
    kept.all_in_step(second);
    appends(&kept, second, Duration::from_millis(100));

    // Two are gone: no lease is renewed. The primary goes on while all members report to it, and no other is promoted.
    kept.etcd[1].kill();
    appends(&kept, second, 3 * TTL);
    assert!(kept.said(second).contains("fail-safe"), "{}", kept.said(second));

    // A member is gone, too: the primary acknowledges nothing more.
    let third = (0..3).find(|node| *node != first && *node != second).expect("three are there");
    kept.kill(third);
    let log = kept.log(second);
    let start = Instant::now();
    loop {
        let outcome = append(&log, 1 << 32, TTL / 4);
        if is_stopped(&outcome) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it acknowledges without etcd and a member: {outcome:?}");
    }

    // One member of etcd is back, and so is the majority.
    kept.etcd[1].start();
    drop(log);
    let primary = kept.leader(|_| true);
    let log = kept.log(primary);
    append(&log, 1 << 33, PATIENCE).expect("two of three nodes acknowledge");
    let found = numbers(&log);
    let found: Vec<u64> = found.into_iter().filter(|found| *found < 1 << 32).collect();
    holds_all(&found, 0..number);
}
