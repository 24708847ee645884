//! Devices with a mapped ring whose disk is full, and has room again.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_tests::ring::Device;
use tidewater_tests::wait;
use tidewater_tests::{PATIENCE, compile, run, skipped, tidewater};

/// A device whose disk can be full.
struct Full {
    device: Device,
    library: PathBuf,
    folder: TempDir,
}

fn served(folder: &Path, library: &Path) -> Device {
    let errors = OpenOptions::new().create(true).append(true).open(folder.join("stderr"));
    let mut command = tidewater(folder);
    command.args(["log-device", "log"]).env("LD_PRELOAD", library).env("DISK_FAULT", folder.join("fault"));
    let child = command.stdout(Stdio::piped()).stderr(errors.expect("a folder")).spawn();
    Device::served(child.expect("it starts"), folder)
}

/// The library that makes disks fail. `None`, and counted: there is no C compiler.
fn library(folder: &Path) -> Option<PathBuf> {
    let library = compile("disk.c", folder, &["-shared", "-fPIC", "-ldl"]);
    if library.is_none() {
        skipped(1, "no C compiler");
    }
    library
}

impl Full {
    /// A log device.
    fn start() -> Option<Full> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = library(folder.path())?;
        Some(Full { device: served(folder.path(), &library), library, folder })
    }

    /// The same once more.
    fn served(&self) -> Device {
        served(self.folder.path(), &self.library)
    }

    /// The fault of its disk from now on; empty: none.
    fn disk(&self, fault: &str) {
        let at = self.folder.path().join("fault");
        std::fs::write(at.with_extension("new"), fault).expect("a folder");
        std::fs::rename(at.with_extension("new"), &at).expect("a folder");
    }

    /// How often that has struck.
    fn strikes(&self) -> u64 {
        std::fs::metadata(self.folder.path().join("fault.fired")).map_or(0, |about| about.len())
    }

    /// Its disk is full, and it has noticed.
    fn fill(&self) {
        self.disk("full");
        let target = format!("vfio-user:{}", self.folder.path().join("log/vfio.sock").display());
        let log = Log::open(&target, Options { level: Some(Level::Ring), ..Options::default() }).expect("a log");
        let start = Instant::now();
        loop {
            let end = log.append(&[&[7; 60_000]]).map(|written| written.end);
            match end.and_then(|end| log.wait(end, Level::Ring, PATIENCE)) {
                Ok(()) => assert!(start.elapsed() < PATIENCE, "a device whose disk is full acknowledges"),
                Err(LogError::Store { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        drop(log);
    }

    /// It has found room, and is about to become another process.
    fn leaves(&self) {
        let before = self.strikes();
        self.disk("leave");
        until("it leaves", || self.strikes() > before);
    }
}

fn until(what: &str, is_so: impl FnMut() -> bool) {
    wait::until(|| what.into(), is_so);
}

/// Whether the thread of a process that takes signals has none to take: it sleeps, and none is pending.
fn has_taken_signals(pid: nix::unistd::Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs").flatten();
    let of = |task: &std::fs::DirEntry, name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
    tasks.into_iter().filter(|task| of(task, "comm").trim() == "ctrl-c").any(|task| {
        let status = of(&task, "status");
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line("State:").contains('S') && line("ShdPnd:").trim_end().ends_with("0000000000000000")
    })
}

#[test]
fn a_signal_to_a_device_that_starts_itself_anew_ends_it() {
    let Some(mut full) = Full::start() else { return };
    full.fill();
    full.leaves();
    kill(full.device.pid(), Signal::SIGTERM).expect("the process can be signalled");
    until("the signal is taken", || has_taken_signals(full.device.pid()));
    full.disk("");
    // One that the signal was lost of serves again.
    let serves = || run(full.folder.path(), &["status", "--control", "log/control.sock"]).status.success();
    let mut status = None;
    let child = &mut full.device.child;
    until("it ends", || {
        status = child.try_wait().expect("the process can be polled");
        assert!(status.is_some() || !serves(), "it serves on");
        status.is_some()
    });
    assert!(status.expect("it ended").success(), "{}", full.device.errors());
}

/// The unit of systemd starts it again then, and does not give up.
#[test]
fn a_device_that_finds_its_disk_full_once_more_ends_in_words_and_starts_when_there_is_room() {
    let Some(mut full) = Full::start() else { return };
    full.fill();
    full.leaves();
    full.disk("full");
    full.device.child.wait().expect("the process can be waited for");
    let said = full.device.errors();
    let last = said.lines().last().expect("it says why");
    assert!(last.starts_with("error: log/image: ") && last.contains("No space left on device"), "{said}");
    assert!(last.ends_with("make room, and start the device again"), "{said}");
    full.disk("");
    full.device = full.served();
    let target = format!("vfio-user:{}", full.folder.path().join("log/vfio.sock").display());
    let log = Log::open(&target, Options::default()).expect("a log");
    let end = log.append(&[&[7; 100]]).expect("the ring accepts the record").end;
    log.wait(end, Level::Destaged, PATIENCE).expect("the disk has room");
}

#[test]
fn a_device_is_said_to_start_itself_anew_where_it_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(library) = library(folder.path()) else { return };
    let fault = folder.path().join("fault");
    let device = Device::start_as(folder.path(), &["--ring", "ring", "--input-log", "inputs"], |command| {
        command.env("LD_PRELOAD", library).env("DISK_FAULT", &fault);
    });
    std::fs::write(&fault, "full").expect("a folder");
    let log = Log::open(&device.target(), Options::default()).expect("a log");
    let end = log.append(&[&[7; 1_000]]).expect("the ring accepts the record").end;
    let refused = log.wait(end, Level::Destaged, PATIENCE).expect_err("the disk is full").to_string();
    assert!(refused.contains("a device that does not start itself anew then is to be started again"), "{refused}");
    let said = || device.errors();
    until("it says so", || said().contains("the drive is read-only"));
    assert!(said().contains("make room, and start the device again"), "{}", said());
}
