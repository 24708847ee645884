//! `tidewater run`, `recover`, `drain`: files of unmodified programs on a log, over deaths of everybody, and over what a log may say.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_client::live::{Level, Log, Options};
use tidewater_tests::ring::Device;
use tidewater_tests::{Build, compile, shim, skipped, tidewater};
use tidewater_wire::vendor::{FileBind, FileChange, FileChangeKind, FileSession};

const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
const DEVICE: &str = "vfio-user:f0.sock";

fn folder() -> TempDir {
    shim();
    tempfile::tempdir().expect("a temporary folder")
}

fn device(folder: &Path) -> Device {
    Device::start(folder, WAITS)
}

/// `tidewater run` in a folder.
fn run_command(folder: &Path, more: &[&str], program: &[&str]) -> Command {
    let mut command = tidewater(Build::Same, folder);
    command.args(["run", "--device", DEVICE, "--level", "ring"]).args(more).arg("--").args(program);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program on the log, and everything has to go well.
fn run_on_log(folder: &Path, more: &[&str], program: &[&str]) -> Output {
    let output = run_command(folder, more, program).output().expect("it starts");
    assert!(output.status.success(), "{}{}{}", output.status, text(&output.stdout), text(&output.stderr));
    output
}

fn recover(folder: &Path, more: &[&str]) -> Output {
    tidewater(Build::Same, folder).args(["recover", "--device", DEVICE]).args(more).output().expect("it starts")
}

/// A program, a library below it, and what they leave.
struct Trial {
    folder: TempDir,
    files: PathBuf,
    spy: PathBuf,
    program: PathBuf,
}

const FILES: u32 = 4;
/// More than it comes to before something dies.
const STEPS: u32 = 1_000_000;

impl Trial {
    fn new() -> Option<Trial> {
        let folder = folder();
        let program = compile("files.c", folder.path(), &["-lpthread"]);
        let spy = compile("spy.c", folder.path(), &["-shared", "-fPIC", "-ldl"]);
        let Some((program, spy)) = program.zip(spy) else {
            skipped(1, "there is no C compiler");
            return None;
        };
        let files = folder.path().join("data");
        Some(Trial { folder, files, spy, program })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn shadow(&self) -> PathBuf {
        self.path().join("shadow")
    }

    fn start(&self, seed: u64, steps: u32) -> Child {
        let _ = fs::remove_dir_all(&self.files);
        let _ = fs::remove_dir_all(self.shadow());
        fs::create_dir(&self.files).expect("a new folder");
        fs::create_dir(self.shadow()).expect("a new folder");
        let (program, files) = (self.program.to_string_lossy(), self.files.to_string_lossy());
        let (seed, count, steps) = (seed.to_string(), FILES.to_string(), steps.to_string());
        let line = [&*program, "run", &*files, &seed, &count, &steps];
        let mut command = run_command(self.path(), &["--log", "data/*"], &line);
        // Below the shim, and beside the supervisor: what is really synced is known.
        command.env("LD_PRELOAD", &self.spy).env("SPY_FOLDER", self.shadow());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// The last sync of each file that the program told of.
    fn synced(&self, stdout: &str) -> BTreeMap<u32, u32> {
        let whole = stdout.rfind('\n').map_or("", |end| &stdout[..end]);
        let lines = whole.lines().filter_map(|line| line.split_once(' '));
        lines.filter_map(|(file, step)| Some((file.parse().ok()?, step.parse().ok()?))).collect()
    }

    /// All files get back what was really synced last, in place.
    fn lose_power(&self) {
        for entry in fs::read_dir(&self.files).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            let inode = path.metadata().expect("a file").ino();
            let kept = fs::read(self.shadow().join(inode.to_string())).unwrap_or_default();
            let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&path).expect("it is ours");
            file.write_all(&kept).expect("there is room");
        }
    }

    /// Whether every file is as it was promised; what is not, in words.
    fn check(&self, seed: u64, steps: u32, synced: &BTreeMap<u32, u32>) -> Result<(), String> {
        let mut wrong = String::new();
        for file in 0..FILES {
            let from = synced.get(&file).copied().unwrap_or_default();
            let mut check = Command::new(&self.program);
            check.arg("check").arg(&self.files);
            check.args([seed, file.into(), from.into(), steps.into()].map(|number: u64| number.to_string()));
            let output = check.output().expect("it starts");
            if !output.status.success() {
                wrong += &text(&output.stdout);
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// Ends `tidewater run` and all that it started, at once.
fn kill_all(run: &Child) {
    let mut all = vec![run.id()];
    let mut at = 0;
    while at < all.len() {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", all[at])).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    for pid in all {
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
}

/// What dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Program,
    Device,
    Both,
}

/// One round: a program is started, something dies at some moment, the power goes, and the files are recovered. How many syncs were promised.
fn round(trial: &Trial, seed: u64, death: Death, after: Duration, recovers: bool) -> usize {
    let mut device = Some(device(trial.path()));
    let mut child = trial.start(seed, STEPS);
    // Read beside: a pipe that is full would stop it.
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stdout.read_to_end(&mut said);
        text(&said)
    });
    let errors = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said);
        text(&said)
    });
    std::thread::sleep(after);
    if death != Death::Program {
        device.take().expect("it was started").kill();
        if death == Death::Device {
            // Nothing falls back: the program finds out, and ends by itself.
            let status = child.wait().expect("it is our child");
            assert!(!status.success(), "{death:?}: {status}");
        }
    }
    kill_all(&child);
    child.wait().expect("it is our child");
    let (said, errors) = (said.join().expect("it reads"), errors.join().expect("it reads"));
    let synced = trial.synced(&said);
    drop(device.take());
    let device = self::device(trial.path());
    trial.lose_power();
    if !recovers {
        assert!(trial.check(seed, STEPS, &synced).is_err(), "without recovery promises are broken: {synced:?}");
        let done = recover(trial.path(), &[]);
        assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    }
    let done = recover(trial.path(), &["--log", "data/*"]);
    let report = format!("seed {seed} {death:?} {synced:?}\n{}{}{errors}", text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{report}");
    trial.check(seed, STEPS, &synced).unwrap_or_else(|wrong| panic!("{wrong}{report}{}", device.errors()));
    // Once more does no harm, and nothing is left to do.
    let again = recover(trial.path(), &[]);
    assert_eq!(text(&again.stdout), "the log has nothing for any file\n", "{}", text(&again.stderr));
    device.kill();
    // The next round has a device of its own.
    for name in ["drive", "ring"] {
        let _ = fs::remove_file(trial.path().join(name));
    }
    said.lines().count()
}

fn rounds(count: u64, first: u64) {
    let Some(trial) = Trial::new() else { return };
    let mut promised = 0;
    for i in 0..count {
        let seed = first + i;
        let death = [Death::Program, Death::Both, Death::Device][i as usize % 3];
        let after = Duration::from_millis(150 + seed * 7_919 % 900);
        promised += round(&trial, seed, death, after, i % 4 != 0);
    }
    println!("{count} rounds, {promised} syncs promised and kept");
    assert!(promised > count as usize, "something was promised");
}

#[test]
fn what_was_synced_is_there_whoever_dies_and_without_recovery_it_is_not() {
    rounds(4, 1);
}

#[test]
#[ignore = "long: make torture"]
fn what_was_synced_is_there_in_many_rounds() {
    let seconds = std::env::var("TIDEWATER_TORTURE_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds(seconds.unwrap_or(60), 1_000);
}

#[test]
fn a_program_that_ends_well_leaves_its_files_and_an_empty_log() {
    let Some(trial) = Trial::new() else { return };
    let device = device(trial.path());
    let mut child = trial.start(77, 4_000);
    let mut said = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut said).expect("UTF-8");
    let output = child.wait_with_output().expect("it is our child");
    let errors = text(&output.stderr);
    assert!(output.status.success() && errors.contains("drained: "), "{errors}");
    // It wrote far more than the ring and the log can hold.
    assert!(said.lines().count() > 100 && !errors.contains(" 0 trims"), "{errors}");
    // All of it was really synced: the power may go.
    trial.lose_power();
    let synced: BTreeMap<u32, u32> = (0..FILES).map(|file| (file, 4_000)).collect();
    trial.check(77, 4_000, &synced).expect("every file is as after the last step");
    let done = recover(trial.path(), &[]);
    assert_eq!(text(&done.stdout), "the log has nothing for any file\n");
    drop(device);
}
