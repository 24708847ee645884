//! Devices that prove to each other who they are: what a user sees where one is refused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::relay::Relay;
use crate::cluster::{Cluster, PATIENCE, append, numbers};
use tidewater_serve::peers::authority::{Authority, Validity};
use tidewater_tests::{run_refused, run_well};

#[test]
fn devices_with_certificates_replicate_and_promote() {
    let mut cluster = Cluster::secured(3);
    cluster.form("quorum");
    let log = cluster.log(0);
    (0..50).for_each(|number| append(&log, number, PATIENCE).expect("enough have it"));
    let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
    assert_eq!(said.matches(", encrypted, ").count(), 2, "{said}");
    cluster.kill(0);
    drop(log);
    cluster.promote(1);
    let log = cluster.log(1);
    assert_eq!(numbers(&log), (0..50).collect::<Vec<_>>());
    append(&log, 50, PATIENCE).expect("two of three nodes acknowledge");
}

/// The certificate of a device, by its status, once it is so.
fn certificate(cluster: &Cluster, node: u8, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    cluster.until(node, what, |status| is_so(&status["certificate"]));
}

/// Puts a file where another one is, as a copy of certificates should be made.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).expect("a folder");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("our file");
    std::fs::rename(new, path).expect("a folder");
}

/// Certificates were read when a device started: one that expired took the device out of its group until a restart.
/// Here two devices change over to another CA while they replicate, and the connection that is cut comes back only if
/// both show their new certificates.
#[test]
fn renewed_certificates_are_taken_up_while_devices_replicate() {
    let (mut cluster, certs) = pair();
    run_well(cluster.folder.path(), &["cluster", "init", "next", "--cluster", "shop", "--nodes", "2", "--days", "77"]);
    let next = cluster.folder.path().join("next");
    let (at, to) = (cluster.at(9), cluster.at(1));
    cluster.relay(1, at.clone());
    let mut relay = Some(Relay::clear(&at, to.clone()));
    (0..2).for_each(|node| cluster.start(node));
    cluster.form("eager");
    let log = cluster.log(0);
    (0..20).for_each(|number| append(&log, number, PATIENCE).expect("all are there"));
    let read = |path: PathBuf| std::fs::read(path).expect("it was made");
    let (old_ca, new_ca) = (read(certs.join("ca.pem")), read(next.join("ca.pem")));
    let mut number = 20u64;
    let mut cut_off = |relay: &mut Option<Relay>| {
        // What is appended while the connection is away is acknowledged once it is back.
        let end = log.append(&[&number.to_le_bytes()]).expect("the ring takes it").end;
        relay.take();
        *relay = Some(Relay::clear(&at, to.clone()));
        log.wait(end, tidewater_client::Level::RemoteRing, PATIENCE).expect("the connection comes back");
        number += 1;
        (0..20).for_each(|more| append(&log, number + more, PATIENCE).expect("all are there"));
        number += 20;
    };
    // Both CAs, then certificates of the new one, then the new CA alone: each is taken up by devices that run.
    for (step, what) in [(1, "ca"), (2, "node"), (3, "new ca")] {
        for node in 0..2u8 {
            let folder = certs.join(format!("node-{node}"));
            match what {
                "ca" => replace(&folder.join("ca.pem"), &[&old_ca[..], &new_ca].concat()),
                "new ca" => replace(&folder.join("ca.pem"), &new_ca),
                _ => {
                    let from = next.join(format!("node-{node}"));
                    for file in ["node.key", "node.pem"] {
                        replace(&folder.join(file), &read(from.join(file)));
                    }
                }
            }
        }
        for node in 0..2 {
            certificate(&cluster, node, what, |of| of["renewals"] == step && of.get("refused").is_none());
        }
        cut_off(&mut relay);
    }
    let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
    let expires = cluster.status(0)["certificate"]["expires"].as_str().expect("a date").to_owned();
    assert!(said.contains(&format!("this device's certificate expires on {expires}")), "{said}");
    let notes = std::fs::read_to_string(cluster.folder.path().join("stderr")).expect("what they said");
    assert!(notes.contains(&format!("the renewed certificate, which expires on {expires}")), "{notes}");
    cluster.kill(0);
    drop(log);
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.path(0)).expect("it was there");
    cluster.start(1);
    cluster.promote(1);
    assert_eq!(numbers(&cluster.log(1)), (0..number).collect::<Vec<_>>());
}

/// A file that is half there, or of another certificate, is named, and the certificate before stays in use.
#[test]
fn renewed_files_that_can_not_be_used_are_named_and_the_ones_before_stay_in_use() {
    let (mut cluster, certs) = pair();
    let (at, to) = (cluster.at(9), cluster.at(1));
    cluster.relay(1, at.clone());
    let mut relay = Relay::clear(&at, to.clone());
    (0..2).for_each(|node| cluster.start(node));
    cluster.form("eager");
    let log = cluster.log(0);
    let node_0 = certs.join("node-0");
    let read = |file: &str| std::fs::read(node_0.join(file)).expect("it was made");
    let (pem, key) = (read("node.pem"), read("node.key"));
    let other_key = std::fs::read(certs.join("node-1/node.key")).expect("it was made");
    let faults = [
        ("node.pem", &pem[..pem.len() / 2], "node.pem: no certificate in PEM"),
        ("node.key", &other_key[..], "node.key: it does not go with node.pem"),
        ("node.key", b"", "node.key: no private key in PEM"),
    ];
    for (number, (file, content, words)) in faults.into_iter().enumerate() {
        std::fs::write(node_0.join(file), content).expect("our file");
        certificate(&cluster, 0, words, |of| of["refused"].as_str().is_some_and(|why| why.contains(words)));
        let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
        assert!(said.contains("its new files are not used: ") && said.contains(words), "{said}");
        drop(relay);
        relay = Relay::clear(&at, to.clone());
        append(&log, number as u64, PATIENCE).expect("the certificate before is in use");
        std::fs::write(node_0.join(file), if file == "node.pem" { &pem } else { &key }).expect("our file");
        certificate(&cluster, 0, "it is mended", |of| of.get("refused").is_none());
    }
    assert_eq!(cluster.status(0)["certificate"]["renewals"], 0);
    drop(relay);
    assert_eq!(numbers(&log), [0, 1, 2]);
}

/// Two devices that do not take each other, and what each says of the other.
fn refused(cluster: &mut Cluster, at_0: &str, at_1: &str) {
    (0..2).for_each(|node| cluster.start(node));
    for (node, wanted) in [(0, at_0), (1, at_1)] {
        let why = |status: &serde_json::Value| status["links"][0]["why"].as_str().unwrap_or_default().to_owned();
        cluster.until(node, wanted, |status| why(status).contains(wanted));
        assert_eq!(cluster.status(node)["links"][0]["up"], false);
        let line = ["group", "status", "--control", &node.to_string()];
        let said = run_well(cluster.folder.path(), &line);
        assert!(said.contains(&format!("peer {} at ", 1 - node)) && said.contains(wanted), "{said}");
        cluster.kill(node);
    }
    let notes = std::fs::read_to_string(cluster.folder.path().join("stderr")).expect("the file can be read");
    assert!(notes.contains(at_0) && notes.contains(at_1), "{notes}");
}

/// Two devices of which none has been started, and what `tidewater cluster identity init` made for them.
fn pair() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::prepare(2);
    run_well(cluster.folder.path(), &["cluster", "init", "certs", "--cluster", "shop", "--nodes", "2"]);
    (0..2).for_each(|node| cluster.secure(node));
    let certs = cluster.folder.path().join("certs");
    (cluster, certs)
}

#[test]
fn a_peer_without_an_identity_is_refused_in_words_on_both_sides() {
    for plain in 0..2 {
        let mut cluster = Cluster::prepare(2);
        run_well(cluster.folder.path(), &["cluster", "init", "certs", "--cluster", "shop", "--nodes", "2"]);
        cluster.secure(1 - plain);
        let words = format!("encrypts, and node {plain} does not: start both with --peer-identity, or neither");
        refused(&mut cluster, &words, &words);
    }
}

#[test]
fn a_peer_of_another_ca_is_refused_in_words_on_both_sides() {
    let (mut cluster, certs) = pair();
    std::fs::remove_dir_all(certs.join("node-0")).expect("the folder can be removed");
    run_well(cluster.folder.path(), &["cluster", "init", "foreign", "--cluster", "shop", "--nodes", "1"]);
    std::fs::rename(cluster.folder.path().join("foreign/node-0"), certs.join("node-0")).expect("one file system");
    refused(&mut cluster, "its certificate is of another CA", "it refuses this device's certificate");
}

#[test]
fn a_peer_whose_certificate_has_expired_is_refused_until_it_has_a_new_one() {
    let (mut cluster, certs) = pair();
    std::fs::remove_dir_all(certs.join("node-1")).expect("the folder can be removed");
    let to = SystemTime::now() - Duration::from_secs(60);
    let past = Validity { from: to - Duration::from_secs(3600), to };
    let authority = Authority::open(&certs).expect("a CA");
    authority.certify(&certs.join("node-1"), 1, past, false).expect("a certificate");
    let expired = format!("expired on {}", past.end());
    refused(&mut cluster, &expired, "refuses this device's certificate, which has expired");
    let said = run_well(cluster.folder.path(), &["cluster", "add-node", "certs", "--node", "1", "--renew"]);
    assert!(said.contains("cluster \"shop\", valid until"), "{said}");
    (0..2).for_each(|node| cluster.start(node));
    cluster.until(0, "they are connected", |status| status["links"][0]["encrypted"] == true);
}

#[test]
fn an_identity_of_another_node_or_cluster_and_an_open_key_are_refused_at_the_start() {
    let (cluster, certs) = pair();
    let start = |line: &[&str]| {
        let line = [&["log-device", "0", "--node", "0", "--peer", "1=127.0.0.1:9"], line].concat();
        run_refused(cluster.folder.path(), &line)
    };
    let said = start(&["--cluster", "shop", "--peer-identity", "certs/node-1"]);
    assert!(said.contains("certs/node-1/node.pem: this certificate is for node 1 and not node 0"), "{said}");
    let said = start(&["--cluster", "bank", "--peer-identity", "certs/node-0"]);
    assert!(said.contains("this certificate is for cluster \"shop\" and not \"bank\""), "{said}");
    let said = start(&["--cluster", "shop", "--peer-identity", "certs/node-7"]);
    assert!(said.contains("help: give --peer-identity a folder"), "{said}");
    let said = start(&["--cluster", "shop", "--peer-identity", "certs/node-0", "--insecure-peers"]);
    assert!(said.contains("cannot be used with"), "{said}");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(certs.join("node-0/node.key"), open).expect("the mode can be changed");
    let said = start(&["--cluster", "shop", "--peer-identity", "certs/node-0"]);
    assert!(said.contains("node.key: mode 0644 lets other users read this key"), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn a_cluster_is_made_once_and_keys_are_their_owners_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line = ["cluster", "init", "certs", "--nodes", "2", "--days", "90"];
    let said = run_well(folder.path(), &line);
    for part in ["a CA for cluster \"tidewater\"", "nodes 0 to 1, valid until 20", "Copy certs/node-N", "ca.key away"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    for key in ["ca.key", "node-0/node.key", "node-1/node.key"] {
        let mode = std::fs::metadata(folder.path().join("certs").join(key)).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let key = std::fs::read(folder.path().join("certs/ca.key")).expect("a key");
    assert!(run_refused(folder.path(), &line).contains("exists, and is not overwritten"));
    std::fs::remove_dir_all(folder.path().join("certs/node-0")).expect("the folder can be removed");
    std::fs::remove_dir_all(folder.path().join("certs/node-1")).expect("the folder can be removed");
    assert!(run_refused(folder.path(), &line).contains("ca.pem: exists"));
    assert_eq!(std::fs::read(folder.path().join("certs/ca.key")).expect("a key"), key);
    let add = ["cluster", "add-node", "certs", "--node", "1"];
    assert!(run_well(folder.path(), &add).contains("a certificate for node 1"));
    assert!(run_refused(folder.path(), &add).contains("--renew"));
    assert!(
        run_refused(folder.path(), &["cluster", "identity", "add-node", "none", "--node", "1"])
            .contains("tidewater cluster identity init")
    );
}

/// A CA was made in a folder that all may write, and a key of another user's was taken.
#[test]
fn a_ca_and_an_identity_lie_where_no_other_user_writes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = folder.path().join("open");
    let mode = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the mode can be changed");
    };
    std::fs::create_dir(&open).expect("a folder");
    for bits in [0o777, 0o775, 0o1777] {
        mode(&open, bits);
        let said = run_refused(folder.path(), &["cluster", "init", "open", "--nodes", "1"]);
        assert!(said.contains(&format!("open: mode {bits:04o} lets other users write it")), "{said}");
    }
    mode(&open, 0o777);
    let said = run_refused(folder.path(), &["cluster", "init", "open/certs", "--nodes", "1"]);
    assert!(said.contains("open: mode 0777") && !open.join("certs").exists(), "{said}");
    mode(&open, 0o755);
    run_well(folder.path(), &["cluster", "init", "open", "--nodes", "1"]);
    let start = || {
        let line = ["log-device", "0", "--node", "0", "--peer", "1=127.0.0.1:9", "--peer-identity", "open/node-0"];
        run_refused(folder.path(), &line)
    };
    mode(&open, 0o777);
    assert!(start().contains("open: mode 0777 lets other users write it"), "{}", start());
    let said = run_refused(folder.path(), &["cluster", "add-node", "open", "--node", "1"]);
    assert!(said.contains("open: mode 0777"), "{said}");
    mode(&open, 0o755);
    let owner = |path: &str, user: u32| std::os::unix::fs::chown(open.join(path), Some(user), None);
    if owner("node-0/node.key", 65_534).is_err() {
        return tidewater_tests::skipped(1, "only root can be other users");
    }
    let said = start();
    assert!(said.contains("node.key: belongs to user 65534"), "{said}");
    owner("node-0/node.key", 0).expect("root can change the owner");
    for folder_of_another in ["node-0", ""] {
        owner(folder_of_another, 65_534).expect("root can change the owner");
        assert!(start().contains("belongs to user 65534"), "{}", start());
        owner(folder_of_another, 0).expect("root can change the owner");
    }
}
