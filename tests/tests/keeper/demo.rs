//! `make demo-cluster`, of the build that the tests have.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidewater_tests::{binary, root};

use crate::cluster::etcd::is_installed;

/// The script, whose temporary files go to a folder of the test's.
fn demo(folder: &std::path::Path) -> Command {
    let mut command = Command::new(root().join("scripts/demo-cluster.sh"));
    command.arg(binary().parent().expect("a folder")).env("TMPDIR", folder);
    command.stdin(Stdio::null());
    command
}

#[test]
#[ignore = "it takes ten seconds, for `make torture`"]
fn the_demo_loses_nothing_and_leaves_nothing_behind() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = demo(folder.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(" 0 are missing"), "{said}");
    println!("{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "files are left");

    // Ended by hand while all run.
    let mut child = demo(folder.path()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    while !lines.next().expect("the program prints a line").expect("UTF-8").contains("acknowledged") {}
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("the process can be signalled");
    assert_eq!(child.wait().expect("the process can be waited for").code(), Some(130));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "files are left");
    let here = folder.path().to_str().expect("UTF-8").to_owned();
    let left = std::fs::read_dir("/proc").expect("the folder can be read").filter_map(|entry| {
        let line = std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok()?;
        line.contains(&here).then_some(line)
    });
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new(), "processes are left");
}
