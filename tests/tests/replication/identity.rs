//! Devices that prove to each other who they are: what a user sees where one is refused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::cluster::{Cluster, PATIENCE, append, numbers};
use tidewater_serve::peers::authority::{Authority, Validity};
use tidewater_tests::{run_refused, run_well};

#[test]
fn devices_with_certificates_replicate_and_promote() {
    let mut cluster = Cluster::secured(3);
    cluster.form(&["--mode", "quorum"]);
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
