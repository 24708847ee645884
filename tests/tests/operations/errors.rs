//! File operations of which many fail, by each error in turn, by short writes, or on a disk that is full; then the
//! program and its supervisor are killed. What is recovered is, byte by byte and name by name, what the calls said.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use tidewater_tests::ring::Device;
use tidewater_tests::spy::lose_power;
use tidewater_tests::{compile, skipped, tidewater};

use super::{DEVICE, TIME, WAITS, text};

/// The disk that the operations of a round meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disk {
    /// Room for all.
    Roomy,
    /// And what was not synced is gone after the crash.
    Power,
    /// So few blocks that most writes find none.
    Full,
}

struct Trial {
    folder: TempDir,
    program: PathBuf,
    faults: PathBuf,
    spy: PathBuf,
    /// Whether the folder of the files is mounted.
    is_mounted: bool,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.files()).status();
        }
    }
}

/// All files at and below a folder, by their paths with `+` for `/`, but for markers.
fn files_below(folder: &Path, before: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("the entry can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if before.is_empty() { name } else { format!("{before}+{name}") };
        if entry.file_type().expect("the entry has a type").is_dir() {
            files_below(&entry.path(), &name, found);
        } else if !name.contains(".tidewater-log-") {
            found.insert(name, fs::read(entry.path()).expect("the file can be read"));
        }
    }
}

fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
        if entry.file_type().expect("the entry has a type").is_dir() {
            all.extend(folders_below(&entry.path()));
        }
    }
    all
}

impl Trial {
    fn new() -> Option<Trial> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = compile("errors.c", folder.path(), &["-ldl"]);
        let [faults, spy] =
            ["faults.c", "spy.c"].map(|name| compile(name, folder.path(), &["-shared", "-fPIC", "-ldl"]));
        let Some(((program, faults), spy)) = program.zip(faults).zip(spy) else {
            skipped(1, "there is no C compiler");
            return None;
        };
        Some(Trial { folder, program, faults, spy, is_mounted: false })
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    fn shadow(&self) -> PathBuf {
        self.folder.path().join("shadow")
    }

    fn expected(&self) -> PathBuf {
        self.folder.path().join("expected")
    }

    /// New folders. `false`: a small disk can't be mounted here.
    fn prepare(&mut self, disk: Disk) -> bool {
        if std::mem::take(&mut self.is_mounted) {
            let done = Command::new("umount").arg(self.files()).status().expect("umount starts");
            assert!(done.success(), "nothing uses it any more");
        }
        for folder in [self.files(), self.shadow(), self.expected()] {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).expect("a new folder");
        }
        if disk == Disk::Full {
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(self.files()).stderr(Stdio::null());
            self.is_mounted = mount.status().is_ok_and(|status| status.success());
            if !self.is_mounted {
                return false;
            }
        }
        for folder in ["set", "out"] {
            fs::create_dir(self.files().join(folder)).expect("a new folder");
        }
        true
    }

    /// Runs the operations of a seed until they end the run. How many were done, and how many failed.
    fn run(&self, seed: u64, count: usize, disk: Disk) -> Result<[usize; 2], String> {
        let mut command = tidewater(&self.files());
        command.args(["run", "--device", DEVICE, "--level", "ring", "--quiet", "--log", "set/**", "--"]);
        let kind = format!("{disk:?}").to_lowercase();
        command.arg(&self.program).args([seed.to_string(), count.to_string()]).arg(self.expected()).arg(kind);
        let preload = format!("{}:{}", self.faults.display(), self.spy.display());
        command.env("LD_PRELOAD", preload);
        if disk == Disk::Power {
            command.env("SPY_FOLDER", self.shadow());
        }
        let output = command.output().expect("it starts");
        let said = text(&output.stdout);
        let mut numbers = said.split_whitespace().map_while(|word| word.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(done), Some(failed)) => Ok([done, failed]),
            _ => Err(format!("it ended with {}: {said}{}", output.status, text(&output.stderr))),
        }
    }

    fn recover(&self) -> Output {
        let start = Instant::now();
        loop {
            let done = tidewater(&self.files()).args(["recover", "--device", DEVICE]).output().expect("it starts");
            // The last of its processes may just be ending.
            if !text(&done.stderr).contains("one program at a time") || start.elapsed() > TIME {
                return done;
            }
        }
    }

    fn round(&self, seed: u64, count: usize, disk: Disk) -> Result<[usize; 2], String> {
        let done = self.run(seed, count, disk)?;
        if disk == Disk::Power {
            for folder in folders_below(&self.files().join("set")) {
                lose_power(&folder, &self.shadow());
            }
        }
        let recovered = self.recover();
        if !recovered.status.success() {
            return Err(format!("recovery: {}{}", text(&recovered.stdout), text(&recovered.stderr)));
        }
        let (mut found, mut expected) = (BTreeMap::new(), BTreeMap::new());
        files_below(&self.files(), "", &mut found);
        files_below(&self.expected(), "", &mut expected);
        let names = |all: &BTreeMap<String, Vec<u8>>| -> Vec<String> {
            all.keys().map(|name| name.trim_end_matches('?').to_owned()).collect()
        };
        if names(&found) != names(&expected) {
            return Err(format!("there are {:?} instead of {:?}", names(&found), names(&expected)));
        }
        for (name, bytes) in expected.iter().filter(|(name, _)| !name.ends_with('?')) {
            let is = &found[name];
            if is != bytes {
                let at = is.iter().zip(bytes).position(|(one, other)| one != other);
                let (is, of) = (is.len(), bytes.len());
                return Err(format!("{name}: {is} bytes, which differ at {at:?} from the {of} that are expected"));
            }
        }
        Ok(done)
    }
}

/// So many operations in rounds of some, on each kind of disk.
fn rounds(disk: Disk, operations: usize, each: usize, first: u64) {
    let Some(mut trial) = Trial::new() else { return };
    let (mut device, mut sum, mut wrong) = (None, [0; 2], Vec::new());
    for round in 0..operations / each {
        let seed = first + round as u64;
        if !trial.prepare(disk) {
            skipped(1, "no disk can be mounted");
            return;
        }
        device.get_or_insert_with(|| Device::start(trial.folder.path(), WAITS));
        match trial.round(seed, each, disk) {
            Ok([done, failed]) => sum = [sum[0] + done, sum[1] + failed],
            Err(why) => {
                wrong.push(format!("seed {seed}: {why}"));
                // What is left on the log is of no use to the next.
                drop(device.take());
                for name in ["drive", "ring"] {
                    let _ = fs::remove_file(trial.folder.path().join(name));
                }
            }
        }
    }
    println!("{disk:?}: {} operations, of which {} failed; {} violations", sum[0], sum[1], wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(sum[1] > sum[0] / 10, "few failed");
}

#[test]
fn of_operations_that_fail_recovery_brings_back_what_the_calls_said() {
    rounds(Disk::Roomy, 1_000, 250, 1);
}

#[test]
fn of_operations_that_fail_recovery_brings_back_what_the_calls_said_over_a_loss_of_power() {
    rounds(Disk::Power, 1_000, 250, 1);
}

#[test]
fn of_operations_on_a_full_disk_recovery_brings_back_what_the_calls_said_without_room() {
    rounds(Disk::Full, 1_000, 250, 1);
}

#[test]
#[ignore = "long: make torture"]
fn torture_operations_that_fail_by_each_error_on_each_disk() {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = given("TIDEWATER_TORTURE_OPERATIONS").unwrap_or(10_000);
    let first = given("TIDEWATER_TORTURE_FIRST").unwrap_or(1_000);
    for disk in [Disk::Roomy, Disk::Power, Disk::Full] {
        rounds(disk, count, 250, first as u64);
    }
}
