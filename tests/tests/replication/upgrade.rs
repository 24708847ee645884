//! Devices of two releases in one group: the last release, as it is stored, and this one beside it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::clients::{Program, while_appending};
use crate::cluster::{Cluster, PATIENCE, append, numbers};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tidewater_client::Level;
use tidewater_tests::{binary, install_bytes, own_address, root, run_well, skipped, tidewater, wait};

/// The last release.
const LAST: &str = "0.1.0";

/// The stored program, or library, of the last release, in a folder. `None`, and counted: it is for another processor.
fn stored(name: &str, folder: &Path) -> Option<PathBuf> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        skipped(1, "the stored release is for Linux on x86-64");
        return None;
    }
    let packed = std::fs::File::open(root().join(format!("tests/stored/{name}-{LAST}-x86_64.zst")));
    let bytes = zstd::decode_all(packed.expect("it is stored")).expect("it is compressed by zstd");
    std::fs::create_dir_all(folder).expect("a folder");
    let path = folder.join(name);
    install_bytes(&bytes, &path);
    Some(path)
}

/// A group of three devices of the last release, whose primary is node 0, and the program that they are of.
fn group_of_the_last_release() -> Option<(Cluster, PathBuf)> {
    let mut cluster = Cluster::prepare(3);
    let old = stored("tidewater", &cluster.folder.path().join("old"))?;
    (0..3).for_each(|node| cluster.program(node, Some(old.clone())));
    cluster.connect();
    cluster.form("quorum");
    Some((cluster, old))
}

/// Ends a device, and starts it as another program.
fn restart(cluster: &mut Cluster, node: u8, signal: Signal, program: Option<&PathBuf>) {
    cluster.signal(node, signal);
    let mut device = cluster.devices[usize::from(node)].take().expect("it runs");
    let ended = device.child.wait().expect("it is our child");
    assert_eq!(ended.success(), signal == Signal::SIGTERM, "{ended}");
    cluster.program(node, program.cloned());
    cluster.start(node);
}

/// Waits until all replicas are in step with this primary.
fn all_in_step(cluster: &Cluster, primary: u8) {
    cluster.until(primary, "all are in step", |status| {
        let replicas = status["groups"][0]["replicas"].as_array().expect("a list");
        replicas.len() == 2 && replicas.iter().all(|replica| replica["state"] == "in step")
    });
}

/// Each of three devices is promoted in turn, this one last, while a program appends.
fn promote_all(cluster: &Cluster, program: &Program<'_>, from: u8) {
    for step in 1..=3 {
        let node = (from + step) % 3;
        cluster.promote(node);
        program.until_more(cluster);
        all_in_step(cluster, node);
    }
}

/// Devices are changed to this release in this order, one at a time, and back to the last one. In every mixture each
/// device is primary once. The first of the order is primary when it is ended. `signal`: how they are ended for this
/// release; for the other one it is SIGTERM.
fn upgraded_and_back(order: [u8; 3], signal: Signal) {
    let Some((mut cluster, old)) = group_of_the_last_release() else { return };
    let moves = while_appending(&mut cluster, 2, |cluster, program| {
        let mut primary = 0;
        for (program_of, signal) in [(None, signal), (Some(&old), Signal::SIGTERM)] {
            for node in order {
                if node == order[0] {
                    cluster.promote(node);
                    primary = node;
                } else if node == primary {
                    primary = order[0];
                    cluster.promote(primary);
                }
                program.until_more(cluster);
                restart(cluster, node, signal, program_of);
                program.until_more(cluster);
                all_in_step(cluster, primary);
                if program_of.is_none() {
                    promote_all(cluster, program, primary);
                }
            }
        }
        primary
    });
    assert!(moves >= 9, "{moves}");
}

#[test]
fn a_group_is_upgraded_and_goes_back_whatever_the_order_is() {
    upgraded_and_back([0, 1, 2], Signal::SIGKILL);
}

#[test]
fn a_group_is_upgraded_and_goes_back_with_the_primary_last() {
    upgraded_and_back([1, 2, 0], Signal::SIGTERM);
}

/// The commands of a section of a guide.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("it has this section");
    let section = section.split("\n## ").next().expect("a split has a first piece");
    section.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// Three devices of a new image each, a group and a program, as a reader pastes them.
#[test]
fn the_first_commands_of_the_guide_make_a_group_that_outlives_its_primary() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |port: u16| format!("{}:{}", own_address(), port + 11_000);
    let mut script = String::from("set -eux\n");
    for line in commands("docs/guide/replication.md", "In five minutes, on one machine") {
        let line = (7420..7423).fold(line, |line, port| line.replace(&format!("127.0.0.1:{port}"), &at(port)));
        // Before the promotion, the machine of `a` is gone.
        script += if line.starts_with("tidewater cluster group promote") { "kill -9 $a\n" } else { "" };
        script += &line;
        script += if line.starts_with("tidewater log-device a ") { "\na=$!\n" } else { "\n" };
    }
    script += "grep commit app.log\necho to its end\n";
    let path = format!("{}:{}", binary().parent().expect("a folder").display(), std::env::var("PATH").expect("a path"));
    let said = std::fs::File::create(folder.path().join("said")).expect("a folder");
    let mut command = Command::new("timeout");
    command.args([&PATIENCE.as_secs().to_string(), "sh", "-c", &script]).env("PATH", &path).process_group(0);
    command.current_dir(&folder).stdin(Stdio::null()).stdout(said.try_clone().expect("a descriptor")).stderr(said);
    let mut shell = command.spawn().expect("it starts");
    let status = shell.wait().expect("it is our child");
    killpg(Pid::from_raw(shell.id() as i32), Signal::SIGKILL).expect("they are ours");
    let said = std::fs::read_to_string(folder.path().join("said")).expect("a file");
    assert!(status.success() && said.contains("\nto its end\n"), "{status}: {said}");
    for words in ["waits for its primary", "peer 2 at", "this device is primary of epoch 2.1 (quorum of 2"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // A connection is good news.
    let connected: Vec<&str> = said.lines().filter(|line| line.contains(": connected (")).collect();
    assert!(connected.len() >= 6 && connected.iter().all(|line| line.starts_with("note: peer ")), "{said}");
}

/// Commands of the guide, as printed there. A unit is restarted by the test, with the new program.
#[test]
fn the_commands_of_the_guide_upgrade_a_group() {
    let Some((mut cluster, _)) = group_of_the_last_release() else { return };
    let folder = cluster.folder.path().to_owned();
    for (node, name) in ["a", "b", "c"].into_iter().enumerate() {
        std::os::unix::fs::symlink(node.to_string(), folder.join(name)).expect("a folder");
    }
    let path = format!("{}:{}", binary().parent().expect("a folder").display(), std::env::var("PATH").expect("a path"));
    let lines = commands("docs/guide/replication.md", "Rolling upgrade");
    assert_eq!(lines.iter().filter(|line| line.starts_with("systemctl restart tidewater-log@")).count(), 3);
    while_appending(&mut cluster, 2, |cluster, program| {
        for line in &lines {
            match line.strip_prefix("systemctl restart tidewater-log@") {
                Some(name) => restart(cluster, name.as_bytes()[0] - b'a', Signal::SIGTERM, None),
                None => {
                    let mut command = Command::new("timeout");
                    command.args([&PATIENCE.as_secs().to_string(), "sh", "-c", line]).env("PATH", &path);
                    let done = command.current_dir(&folder).stdin(Stdio::null()).output().expect("it starts");
                    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
                }
            }
            program.until_more(cluster);
        }
        1
    });
    for node in 0..3 {
        let role = if node == 1 { "primary" } else { "secondary" };
        assert_eq!(cluster.status(node)["groups"][0]["role"], role, "node {node}");
    }
}

/// What a device and a program of the last release left when they were killed is there for this one.
#[test]
fn a_device_and_files_of_the_last_release_are_recovered() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(old) = stored("tidewater", &folder.path().join("old")) else { return };
    stored("libtidewater_shim.so", &folder.path().join("old")).expect("it is for this processor");
    let device = |command: &mut Command| {
        command.current_dir(&folder).args(["log-device", "a"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(folder.path().join("stderr")).expect("a folder"));
        tidewater_tests::ring::Device::served(command.spawn().expect("it starts"), folder.path())
    };
    let first = device(&mut Command::new(&old));
    // Its supervisor stands still while it writes: no checkpoint takes records from the log.
    let writes = "echo line 0 > app.log; sync -d app.log; : > begun; while ! test -e go; do :; done
        for i in 1 2 3 4 5 6 7 8 9; do echo line $i >> app.log; done; : > done; while :; do :; done";
    let mut command = Command::new(&old);
    command.args(["run", "--device", "a", "--log", "app.*", "--", "sh", "-c", writes]).process_group(0);
    let mut program = command.current_dir(&folder).stdin(Stdio::null()).spawn().expect("it starts");
    let until = |name: &str| {
        wait::until(|| format!("the program comes to this: {name}"), || folder.path().join(name).exists());
    };
    until("begun");
    let supervisor = Pid::from_raw(program.id() as i32);
    kill(supervisor, Signal::SIGSTOP).expect("it is our child");
    std::fs::write(folder.path().join("go"), "").expect("our folder");
    until("done");
    first.kill();
    killpg(supervisor, Signal::SIGKILL).expect("they are ours");
    program.wait().expect("it is our child");
    let log = folder.path().join("app.log");
    let kept = std::fs::read_to_string(&log).expect("a file");
    assert!(kept.ends_with("line 9\n"), "{kept}");
    // The machine crashed: of what was not synced to the file, nothing is there.
    std::fs::write(&log, &kept[..10]).expect("our file");
    let second = device(&mut tidewater(folder.path()));
    run_well(folder.path(), &["recover", "--device", "a"]);
    assert_eq!(std::fs::read_to_string(&log).expect("a file"), kept);
    second.kill();
}

/// The last release opens what this one has left: its formats are the same.
#[test]
fn a_device_goes_back_to_the_last_release_with_all_that_was_acknowledged() {
    let mut cluster = Cluster::new(2);
    let Some(old) = stored("tidewater", &cluster.folder.path().join("old")) else { return };
    cluster.form("eager");
    let log = cluster.log(0);
    (0..50).for_each(|number| append(&log, number, PATIENCE).expect("both are there"));
    drop(log);
    cluster.kill(1);
    cluster.kill(0);
    (0..2).for_each(|node| cluster.program(node, Some(old.clone())));
    (0..2).for_each(|node| cluster.start(node));
    let log = cluster.open(0, Level::Ring).expect("it is primary");
    assert_eq!(numbers(&log), (0..50).collect::<Vec<_>>());
}
