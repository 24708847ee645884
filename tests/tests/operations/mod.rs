//! Operations on files by several processes under `tidewater run`, over crashes, held against a model: links, renames,
//! several descriptors of a file, forks, and writes that no call is seen of. Whatever dies, and whichever way it is
//! recovered, a file is what its operations made of it.

mod errors;
mod list;
mod model;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_tests::ring::Device;
use tidewater_tests::spy::lose_power;
use tidewater_tests::{compile, skipped, tidewater};

use list::{List, NAMES};
use model::{Call, Model, Name, Operation};

const DEVICE: &str = "vfio-user:../f0.sock";
const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
/// Time-out for an earlier program to end.
const TIME: Duration = tidewater_tests::PATIENCE;

/// The crash of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    /// None: the program ends, and the log is drained.
    None,
    /// The program and its supervisor are killed.
    Run,
    /// So is the device.
    All,
    /// And what was not synced is gone; the ring is not.
    Power,
    /// It is, too: what was waited for was destaged.
    PowerAndRing,
}

const CRASHES: [Crash; 8] =
    [Crash::Run, Crash::Power, Crash::Run, Crash::None, Crash::Run, Crash::All, Crash::PowerAndRing, Crash::Run];

/// The programs, and where they run.
struct Trial {
    folder: TempDir,
    program: PathBuf,
    spy: PathBuf,
    device: Option<Device>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Trial {
    fn new() -> Option<Trial> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = compile("operations.c", folder.path(), &[]);
        let spy = compile("spy.c", folder.path(), &["-shared", "-fPIC", "-ldl"]);
        let Some((program, spy)) = program.zip(spy) else {
            skipped(1, "there is no C compiler");
            return None;
        };
        Some(Trial { folder, program, spy, device: None })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn files(&self) -> PathBuf {
        self.path().join("files")
    }

    fn shadow(&self) -> PathBuf {
        self.path().join("shadow")
    }

    fn serve(&mut self) {
        if self.device.is_none() {
            self.device = Some(Device::start(self.path(), WAITS));
        }
    }

    fn run(&self, level: &str, program: &[&str]) -> Command {
        let mut command = tidewater(&self.files());
        command.args(["run", "--device", DEVICE, "--level", level, "--quiet", "--log", "set/*", "--"]).args(program);
        command
    }

    /// Starts a list of operations in new folders.
    fn start(&self, list: &List, level: &str, crash: Crash) -> Child {
        for folder in [self.files(), self.shadow()] {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).expect("a new folder");
        }
        for folder in ["set", "out"] {
            fs::create_dir(self.files().join(folder)).expect("a new folder");
        }
        let name = self.path().join("list");
        fs::write(&name, list.text()).expect("there is room");
        let mut command = self.run(level, &[&self.program.to_string_lossy(), &name.to_string_lossy()]);
        command.env("LD_PRELOAD", &self.spy).env("SPY_FOLDER", self.shadow());
        if crash != Crash::None {
            command.env("OPERATIONS_STAY", "1");
        }
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// Brings the files up to date, as a user does: by `recover`, or by what is run next.
    fn recover(&self, by_run: bool) -> Output {
        let start = Instant::now();
        loop {
            let mut command = if by_run {
                self.run("ring", &["true"])
            } else {
                let mut command = tidewater(&self.files());
                command.args(["recover", "--device", DEVICE]);
                command
            };
            let done = command.output().expect("it starts");
            // The last of its processes may just be ending.
            if !text(&done.stderr).contains("one program at a time") || start.elapsed() > TIME {
                return done;
            }
        }
    }

    /// Content of all names.
    fn found(&self) -> BTreeMap<Name, Vec<u8>> {
        let read = |name: &Name| fs::read(self.files().join(name)).ok().map(|bytes| (*name, bytes));
        NAMES.iter().filter_map(read).collect()
    }
}

/// Whether files are as a model says; what is not, in words.
fn compare(found: &BTreeMap<Name, Vec<u8>>, model: &Model, crash: Crash, but: Option<usize>) -> Result<(), String> {
    let names = |all: &mut dyn Iterator<Item = &Name>| all.copied().collect::<Vec<Name>>();
    let (there, expected) = (names(&mut found.keys()), names(&mut model.names.keys()));
    if there != expected {
        return Err(format!("there are {there:?} instead of {expected:?}"));
    }
    for (name, file) in &model.names {
        if Some(*file) == but {
            continue; // It was just being written unseen, and that not synced.
        }
        let (is, of) = (&found[name], &model.files[*file]);
        let fits = match crash {
            Crash::Power | Crash::PowerAndRing => of.may_be(is),
            Crash::None | Crash::Run | Crash::All => of.bytes() == is,
        };
        if !fits {
            let at = is.iter().zip(of.bytes()).position(|(one, other)| one != other);
            let (is, of) = (is.len(), of.bytes().len());
            return Err(format!("{name}: {is} bytes, which differ at {at:?} from the {of} that are expected"));
        }
    }
    Ok(())
}

/// The file that an operation writes.
fn written_by(operation: &Operation, model: &Model) -> Option<usize> {
    match operation.call {
        Call::Write { slot, .. } | Call::WriteAt { slot, .. } => Some(model.opened(operation.process, slot).file),
        _ => None,
    }
}

/// Whether all names of a file hold bytes from before or from behind a write.
fn is_partly(found: &BTreeMap<Name, Vec<u8>>, before: &Model, behind: &Model, file: usize) -> bool {
    let (old, new) = (before.files[file].bytes(), behind.files[file].bytes());
    let is_one = |(at, byte): (usize, &u8)| old.get(at) == Some(byte) || new.get(at) == Some(byte);
    let names = before.names.iter().filter(|(_, of)| **of == file);
    names
        .map(|(name, _)| &found[name])
        .all(|is| (old.len()..=new.len()).contains(&is.len()) && is.iter().enumerate().all(is_one))
}

/// One round. How many operations were done.
fn round(trial: &mut Trial, seed: u64, crash: Crash) -> Result<usize, String> {
    let count = 40 + seed as usize * 31 % 90;
    let list = List::new(seed, count);
    let level = if crash == Crash::PowerAndRing { "destaged" } else { "ring" };
    trial.serve();
    let mut child = trial.start(&list, level, crash);
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut errors = child.stderr.take().expect("it is piped");
    // Amid what comes behind this one.
    let last = if crash == Crash::None { count } else { seed as usize * 7 % count + 1 };
    let (mut done, mut line) = (0, String::new());
    while done < last && answers.read_line(&mut line).expect("UTF-8") > 0 {
        done += 1;
        line.clear();
    }
    if done < last {
        let mut said = String::new();
        let _ = errors.read_to_string(&mut said);
        let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        let _ = child.wait();
        return Err(format!("it ended after {done} operations: {said}"));
    }
    if crash == Crash::None {
        let output = child.wait_with_output().expect("the process can be waited for");
        if !output.status.success() {
            return Err(format!("the run ended with {}", output.status));
        }
    } else {
        if crash != Crash::Run {
            let device = trial.device.take().expect("the device was started");
            if crash == Crash::PowerAndRing {
                device.kill();
                fs::remove_file(trial.path().join("ring")).expect("the file can be removed");
            } else {
                device.kill();
            }
        }
        let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        child.wait().expect("the process can be waited for");
        while answers.read_line(&mut line).expect("UTF-8") > 0 {
            done += usize::from(line.ends_with('\n'));
            line.clear();
        }
        if matches!(crash, Crash::Power | Crash::PowerAndRing) {
            lose_power(&trial.files().join("set"), &trial.shadow());
            lose_power(&trial.files().join("out"), &trial.shadow());
        }
        trial.serve();
        let recovered = trial.recover(seed % 2 == 1);
        if !recovered.status.success() {
            return Err(format!("recovery: {}{}", text(&recovered.stdout), text(&recovered.stderr)));
        }
    }
    let found = trial.found();
    // The operation under way is done, or is not.
    let under_way = list.operations.get(done).map(|operation| &operation.call);
    let but = match under_way {
        Some(Call::Unseen { name, .. }) => list.models[done].names.get(name).copied(),
        _ => None,
    };
    let Some(next) = list.operations.get(done).filter(|_| crash != Crash::None) else {
        compare(&found, &list.models[done], crash, but)?;
        return Ok(done);
    };
    // A write that is killed may be done in part: what is there then has been one of both at each place.
    if let (Some(file), Crash::Run | Crash::All | Crash::Power) = (written_by(next, &list.models[done]), crash)
        && list.models[done].names == list.models[done + 1].names
        && compare(&found, &list.models[done], crash, Some(file)).is_ok()
        && is_partly(&found, &list.models[done], &list.models[done + 1], file)
    {
        return Ok(done);
    }
    compare(&found, &list.models[done], crash, but).or_else(|wrong| {
        let amid = format!("amid operation {done}, `{next}`, and before it");
        compare(&found, &list.models[done + 1], crash, but)
            .map_err(|other| format!("{amid} {wrong}; behind it {other}"))
    })?;
    Ok(done)
}

/// Rounds of these seeds, and what came of them.
fn rounds(seeds: impl Iterator<Item = u64>) {
    let Some(mut trial) = Trial::new() else { return };
    let (mut all, mut operations, mut crashes, mut wrong) = (0, 0, 0, Vec::new());
    for seed in seeds {
        let crash = CRASHES[seed as usize % CRASHES.len()];
        all += 1;
        crashes += usize::from(crash != Crash::None);
        match round(&mut trial, seed, crash) {
            Ok(done) => operations += done,
            Err(why) => {
                wrong.push(format!("seed {seed}, {crash:?}: {why}"));
                // What is left on the log is of no use to the next.
                drop(trial.device.take());
                for name in ["drive", "ring"] {
                    let _ = fs::remove_file(trial.path().join(name));
                }
            }
        }
    }
    println!("{all} rounds, {operations} operations, {crashes} crashes, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(operations > all * 10, "only {operations} operations in {all} rounds");
}

#[test]
fn files_are_what_their_operations_made_of_them_over_crashes() {
    rounds(0..120);
}

#[test]
#[ignore = "long: make torture"]
fn files_are_what_their_operations_made_of_them_over_many_crashes() {
    let count = std::env::var("TIDEWATER_TORTURE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let first = std::env::var("TIDEWATER_TORTURE_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    rounds(first..first + count);
}
