//! The probe on a block device of this machine's kernel.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_tests::block::Loop;
use tidewater_tests::wait;
use tidewater_tests::{run_refused, run_well, skipped, tidewater};

const LEAVE: [&str; 2] = ["--destroy", "DATA-LOSS-CONFIRMED"];

/// A folder and a device of 64 MiB of data in it; `None`: there can be none here, which was said.
fn device() -> Option<(TempDir, Loop)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let medium = folder.path().join("medium");
    match Loop::new(&medium, 64 << 20) {
        Ok(device) => {
            std::fs::write(&medium, data()).expect("there is room");
            Some((folder, device))
        }
        Err(why) => {
            skipped(1, &format!("no loop device: {why}"));
            None
        }
    }
}

fn data() -> Vec<u8> {
    vec![0xa5; 64 << 20]
}

fn refused(here: &Path, device: &Loop, why: &str) {
    let said = run_refused(here, &[&["probe", device.0.as_str()], &LEAVE[..]].concat());
    assert!(said.contains(&device.0) && said.contains(why), "{said}");
}

#[test]
fn a_device_is_read_and_what_was_seen_is_explained() {
    let Some((folder, device)) = device() else { return };
    let here = folder.path();
    let said = run_well(here, &["probe", &device.0, "--stages", "read-cache,map-cache,stripe,write-buffer"]);
    for words in
        ["block device of 64 MiB", "read cache: ", "mapping cache reach: ", "page: ", "left out: it may hold data"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(std::fs::read(here.join("medium")).expect("the file can be read") == data(), "nothing was written");
}

#[test]
fn a_device_is_overwritten_only_with_leave_and_when_it_is_not_in_use() {
    let Some((folder, device)) = device() else { return };
    let here = folder.path();
    let medium = File::options().write(true).open(here.join("medium")).expect("the file can be opened");
    // A partition table that no kernel has read: one entry, then the signature.
    let mut table = [0u8; 512];
    (table[446 + 4], table[446 + 9], table[446 + 13]) = (0x83, 8, 64);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    medium.write_all_at(&table, 0).expect("it is written");
    refused(here, &device, "has a partition table");
    medium.write_all_at(&[0xa5; 512], 0).expect("it is written");
    // A descriptor holds it exclusively, which shows in no list of mounts.
    let held = File::options()
        .read(true)
        .custom_flags(nix::libc::O_EXCL)
        .open(&device.0)
        .expect("the device can be opened exclusively");
    refused(here, &device, "is in use");
    drop(held);
    assert!(std::fs::read(here.join("medium")).expect("the file can be read") == data(), "nothing was written");
    let said = run_well(here, &[&["probe", &device.0, "--stages", "write-buffer"], &LEAVE[..]].concat());
    assert!(said.contains("write buffer: ") && said.contains("overwrites up to half"), "{said}");
    assert!(std::fs::read(here.join("medium")).expect("the file can be read") != data(), "it was written");
}

#[test]
fn what_is_mounted_is_refused() {
    let Some((folder, device)) = device() else { return };
    let here = folder.path();
    let well = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|it| it.success())
    };
    std::fs::create_dir(here.join("on")).expect("a folder");
    let on = here.join("on").display().to_string();
    if !well("mkfs.ext4", &["-q", "-F", &device.0]) || !well("mount", &[&device.0, &on]) {
        return skipped(1, "no file system can be mounted here");
    }
    let said = run_refused(here, &[&["probe", device.0.as_str()], &LEAVE[..]].concat());
    assert!(well("umount", &[&on]));
    assert!(said.contains("is mounted") && said.contains("never writes to a drive in use"), "{said}");
}

#[test]
fn an_interrupted_probe_of_a_device_keeps_what_it_knows() {
    let Some((folder, device)) = device() else { return };
    let here = folder.path();
    let mut probe = tidewater(here);
    probe.args(["probe", &device.0, "--json", "known.json"]).args(LEAVE).stdout(Stdio::null()).stderr(Stdio::null());
    let mut probe = probe.spawn().expect("it starts");
    // The first stage only reads; those behind it write for a second and more.
    wait::until(|| "no stage ends".into(), || here.join("known.json").exists());
    kill(Pid::from_raw(probe.id() as i32), Signal::SIGINT).expect("the process can be signalled");
    assert_eq!(probe.wait().expect("the process can be waited for").code(), Some(130));
    let known: serde_json::Value =
        serde_json::from_slice(&std::fs::read(here.join("known.json")).expect("a record")).expect("a whole one");
    assert_eq!(known["ended_early"], "interrupted", "{known}");
    assert_eq!(known["stages"][0]["verdicts"][0]["what"], "read cache", "{known}");
}
