//! `tidewater run`, `recover`, `drain`: files of unmodified programs on a log, over deaths of everybody, and over what
//! a log may say.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_tests::forged::{bind, forge, session, write};
use tidewater_tests::ring::Device;
use tidewater_tests::wait;
use tidewater_tests::{binary, compile, root, skipped, tidewater};

const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
const DEVICE: &str = "vfio-user:f0.sock";
/// Part of the message when another program is there.
const BUSY: &str = "one program at a time";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn device(folder: &Path) -> Device {
    Device::start(folder, WAITS)
}

/// `tidewater run` in a folder.
fn run_command(folder: &Path, more: &[&str], program: &[&str]) -> Command {
    let mut command = tidewater(folder);
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
    tidewater(folder).args(["recover", "--device", DEVICE]).args(more).output().expect("it starts")
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
        let (seed, count, steps) = (seed.to_string(), FILES.to_string(), steps.to_string());
        self.start_to("run", &[&seed, &count, &steps], None)
    }

    /// Starts the program to do this in a new folder. `renames`: how long these take.
    fn start_to(&self, what: &str, how: &[&str], renames: Option<Duration>) -> Child {
        let _ = fs::remove_dir_all(&self.files);
        let _ = fs::remove_dir_all(self.shadow());
        fs::create_dir(&self.files).expect("a new folder");
        fs::create_dir(self.shadow()).expect("a new folder");
        let (program, files) = (self.program.to_string_lossy(), self.files.to_string_lossy());
        let line = [&[&*program, what, &*files], how].concat();
        let mut command = run_command(self.path(), &["--log", "data/*"], &line);
        if let Some(time) = renames {
            command.env("SPY_RENAMES", time.as_millis().to_string());
        }
        // Below the shim, and beside the supervisor: what is really synced is known.
        command.env("LD_PRELOAD", &self.spy).env("SPY_FOLDER", self.shadow());
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// The last sync of each file that the program reported.
    fn synced(&self, stdout: &str) -> BTreeMap<u32, u32> {
        let whole = stdout.rfind('\n').map_or("", |end| &stdout[..end]);
        let lines = whole.lines().filter_map(|line| line.split_once(' '));
        lines.filter_map(|(file, step)| Some((file.parse().ok()?, step.parse().ok()?))).collect()
    }

    /// All files get back what was really synced last, in place.
    fn lose_power(&self) {
        tidewater_tests::spy::lose_power(&self.files, &self.shadow());
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

/// Ends `tidewater run` and all that it started, at once: they are a group.
fn kill_all(run: &Child) {
    let _ = killpg(Pid::from_raw(run.id() as i32), Signal::SIGKILL);
}

/// The process that dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Program,
    Device,
    Both,
}

/// One round: a program is started, something dies at some moment, the power goes, and the files are recovered. How
/// many syncs were promised, and whether promises were broken before it.
fn round(trial: &Trial, seed: u64, death: Death, after: Duration) -> (usize, bool) {
    let mut device = Some(device(trial.path()));
    let mut child = trial.start(seed, STEPS);
    // Read beside: a pipe that is full would stop it.
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let (begins, begun) = std::sync::mpsc::channel();
    let said = std::thread::spawn(move || {
        let mut said = vec![0];
        let first = stdout.read(&mut said).unwrap_or_default();
        said.truncate(first);
        let _ = begins.send(());
        let _ = stdout.read_to_end(&mut said);
        text(&said)
    });
    let errors = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said);
        text(&said)
    });
    // It has synced something, or has ended.
    begun.recv().expect("the reader runs");
    wait::pass(after);
    if death != Death::Program {
        device.take().expect("the device was started").kill();
        if death == Death::Device {
            // Nothing falls back: the program finds out, and ends by itself.
            let status = child.wait().expect("the process can be waited for");
            assert!(!status.success(), "{death:?}: {status}");
        }
    }
    kill_all(&child);
    child.wait().expect("the process can be waited for");
    let (said, errors) = (said.join().expect("no thread panics"), errors.join().expect("no thread panics"));
    let synced = trial.synced(&said);
    drop(device.take());
    let device = self::device(trial.path());
    trial.lose_power();
    // The control: unless the files were synced in the background just before.
    let is_broken = trial.check(seed, STEPS, &synced).is_err();
    let done = recover(trial.path(), &["--log", "data/*"]);
    let report = format!("seed {seed} {death:?} {synced:?}\n{}{}{errors}", text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{report}");
    trial.check(seed, STEPS, &synced).unwrap_or_else(|wrong| panic!("{wrong}{report}{}", device.errors()));
    // Once more does no harm, and nothing is left to do.
    let again = recover(trial.path(), &[]);
    assert_eq!(text(&again.stdout), "the log has no changes for any file\n", "{}", text(&again.stderr));
    device.kill();
    // The next round has a device of its own.
    for name in ["drive", "ring"] {
        let _ = fs::remove_file(trial.path().join(name));
    }
    (said.lines().count(), is_broken)
}

fn rounds(count: u64, first: u64) {
    let Some(trial) = Trial::new() else { return };
    let (mut promised, mut broken, mut done) = (0, 0, 0);
    // A few more, until one has shown what happens without recovery.
    while done < count || broken == 0 && done < count + 20 {
        let i = done;
        let seed = first + i;
        let death = [Death::Program, Death::Both, Death::Device][i as usize % 3];
        let after = Duration::from_millis(seed * 7_919 % 900);
        let (synced, is_broken) = round(&trial, seed, death, after);
        promised += synced;
        broken += u64::from(is_broken);
        done += 1;
    }
    println!("{done} rounds, {promised} syncs promised and kept; without recovery {broken} rounds had broken them");
    assert!(promised > done as usize && broken > 0, "something was promised, and recovery is needed");
}

#[test]
fn what_was_synced_survives_the_death_of_program_or_device_and_not_without_recovery() {
    rounds(4, 1);
}

#[test]
#[ignore = "long: make torture"]
fn what_was_synced_is_there_in_many_rounds() {
    let seconds = std::env::var("TIDEWATER_TORTURE_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds(seconds.unwrap_or(60), 1_000);
}

/// A line of ours, as a shell takes it, with `more` behind it.
fn as_written(folder: &Path, line: &str, more: &str) -> Command {
    let line = line.trim().split(" # ").next().unwrap_or_default().trim_end();
    let script = format!("exec \"$0\" {} {more}", line.strip_prefix("tidewater ").expect("a command of ours"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(binary()).current_dir(folder).stdin(Stdio::null());
    shell
}

#[test]
fn a_device_and_a_program_start_as_help_and_the_readme_say() {
    let help = tidewater(Path::new("/")).args(["run", "--help"]).output().expect("it starts");
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    for page in [text(&help.stdout), readme] {
        let page = page.replace("\\\n", " ");
        let folder = folder();
        let line = |has: [&str; 2]| {
            page.lines().find(|line| line.trim().starts_with(has[0]) && line.contains(has[1])).expect("an example")
        };
        let serve = line(["tidewater log-device ", " log"]).trim_end().trim_end_matches('&');
        let errors = File::create(folder.path().join("stderr")).expect("the folder is writable");
        let mut device = as_written(folder.path(), serve, "");
        let child = device.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts");
        let device = Device::served(child, folder.path());
        // A shell in the place of SQLite, which not every machine has.
        let run = line(["tidewater run ", " -- sqlite3 "]);
        let (run, _) = run.split_once(" -- ").expect("a program");
        let output =
            as_written(folder.path(), run, "-- sh -c 'echo commit >> app.db-wal'").output().expect("it starts");
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains("drained: 1 file on the log, 7 B written"), "{run}: {said}");
        assert_eq!(fs::read_to_string(folder.path().join("app.db-wal")).expect("the file"), "commit\n");
        drop(device);
    }
}

#[test]
fn a_program_that_ends_well_leaves_its_files_and_an_empty_log() {
    let Some(trial) = Trial::new() else { return };
    let device = device(trial.path());
    let mut child = trial.start(77, 4_000);
    let mut said = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut said).expect("UTF-8");
    let output = child.wait_with_output().expect("the process can be waited for");
    let errors = text(&output.stderr);
    assert!(output.status.success() && errors.contains("drained: "), "{errors}");
    // It wrote far more than the ring and the log can hold.
    assert!(said.lines().count() > 100 && !errors.contains(" 0 trims"), "{errors}");
    // All of it was really synced: the power may go.
    trial.lose_power();
    let synced: BTreeMap<u32, u32> = (0..FILES).map(|file| (file, 4_000)).collect();
    trial.check(77, 4_000, &synced).expect("every file is as after the last step");
    let done = recover(trial.path(), &[]);
    assert_eq!(text(&done.stdout), "the log has no changes for any file\n");
    drop(device);
}

/// The supervisor looks for a file where it will be, and does not find it yet. All of its descriptors come back to the
/// log: a sync by one of them promises what another has written.
#[test]
fn a_file_that_is_looked_for_while_it_is_renamed_comes_back_with_all_of_its_descriptors() {
    let Some(trial) = Trial::new() else { return };
    let device = device(trial.path());
    let mut child = trial.start_to("slowly", &[], Some(Duration::from_millis(2_500)));
    let mut said = [0; 4];
    child.stdout.take().expect("it is piped").read_exact(&mut said).expect("it comes so far");
    kill_all(&child);
    child.wait().expect("the process can be waited for");
    device.kill();
    let device = self::device(trial.path());
    trial.lose_power();
    let done = recover(trial.path(), &[]);
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    let found = fs::read(trial.files.join("g0")).expect("it has its new name");
    assert_eq!(text(&found), ["a", "b", "c"].map(|one| one.repeat(100)).concat());
    drop(device);
}

#[test]
fn a_run_names_the_files_that_match_and_those_that_come_near_where_none_does() {
    let folder = folder();
    let device = device(folder.path());
    fs::create_dir_all(folder.path().join("data/pg_wal")).expect("the folder is writable");
    fs::write(folder.path().join("here.log"), "").expect("the folder is writable");
    let output = run_on_log(folder.path(), &["--log", "here.log", "--log", "*.wal"], &["true"]);
    assert!(text(&output.stderr).contains("\nmatches now: here.log\n"), "{}", text(&output.stderr));
    // The pattern lacks a folder.
    let line = "exec 3>>data/pg_wal/0001; until test -e over; do \
                dd if=/dev/zero of=other bs=1 count=1 conv=fsync status=none; sleep 0.1; done";
    let mut run = run_command(folder.path(), &["--log", "pg_wal/0*"], &["sh", "-c", line]);
    let mut run = run.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut errors = BufReader::new(run.stderr.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("no file is on the log after ") {
        assert!(errors.read_line(&mut said).expect("UTF-8") > 0, "{said}");
    }
    assert!(said.contains("\nno file matches yet: --log names "), "{said}");
    let near = ": data/pg_wal/0001 is open for writing; did you mean --log 'data/pg_wal/0*'?\n";
    assert!(said.contains(" of other files went to their disk: ") && said.ends_with(near), "{said}");
    fs::write(folder.path().join("over"), "").expect("the folder is writable");
    assert!(run.wait().expect("the process can be waited for").success());
    drop(device);
}

#[test]
fn status_shows_which_lane_a_program_has() {
    let folder = folder();
    let device = device(folder.path());
    let status = |during: &[u8]| {
        let said = text(during);
        let lines = said.lines().filter_map(|line| line.trim_start().strip_prefix("lane ")).map(str::to_owned);
        let who =
            |line: String| line.split(';').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        lines.map(who).collect::<Vec<_>>()
    };
    let ask = ["status", "--device", "control.sock"];
    let alone = tidewater(folder.path()).args(ask).output().expect("it starts");
    assert_eq!(status(&alone.stdout), ["0 free", "1 free"], "{}", text(&alone.stderr));
    let program = [&[binary().to_str().expect("UTF-8")], &ask[..]].concat();
    let during = run_on_log(folder.path(), &["--log", "wal", "--lane", "1"], &program);
    assert_eq!(status(&during.stdout), ["0 free", "1 has a program"]);
    drop(device);
}

/// The reader of its messages has ended: the program runs all the same, and its log is emptied.
#[test]
fn a_run_without_a_reader_of_its_messages_leaves_its_files_and_an_empty_log() {
    let folder = folder();
    let device = device(folder.path());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    // A process that it leaves behind is reported, too.
    let line = "echo commit >> wal; (exec >/dev/null 2>&1; while [ ! -e over ]; do sleep 0.01; done; echo late >> wal) \
                & echo ready";
    let mut run = run_command(folder.path(), &["--log", "wal"], &["sh", "-c", line]);
    let mut run = run.stdout(Stdio::piped()).stderr(writer).spawn().expect("it starts");
    let mut said = [0; 6];
    run.stdout.take().expect("it is piped").read_exact(&mut said).expect("it starts");
    fs::write(folder.path().join("over"), "").expect("the folder is writable");
    assert_eq!((text(&said).as_str(), run.wait().expect("the process can be waited for").code()), ("ready\n", Some(0)));
    assert_eq!(fs::read_to_string(folder.path().join("wal")).expect("the file"), "commit\nlate\n");
    let done = recover(folder.path(), &[]);
    assert_eq!(text(&done.stdout), "the log has no changes for any file\n", "{}", text(&done.stderr));
    drop(device);
}

/// A program that ends well has the same output and the same end with the shim as without.
#[test]
fn programs_that_it_must_not_touch_run_unchanged_under_it() {
    let folder = folder();
    let _device = device(folder.path());
    fs::create_dir(folder.path().join("out")).expect("a new folder");
    let lines = [
        "ls -l /etc/passwd | wc -l",
        "cd out && for i in 1 2 3; do echo line $i; done | sort -r | tee a b > c; cat a b c; rm a; mv b d; cp c e; ls",
        "cd out && head -c 300000 /dev/zero > z && tar cf t.tar z && tar tf t.tar && gzip -f t.tar && sync && ls",
        "cd out && git init -q g && cd g && git -c user.name=a -c user.email=b commit -q --allow-empty -m m && git log \
         --format=%s",
        "exec 3>out/fd; echo three >&3; exec 3>&-; cat out/fd; (exit 7); echo $?",
        "true & wait; exit 3",
        "kill -9 $$",
    ];
    for line in lines {
        let plain = Command::new("sh").args(["-c", line]).current_dir(folder.path()).output().expect("a shell");
        let _ = fs::remove_dir_all(folder.path().join("out"));
        fs::create_dir(folder.path().join("out")).expect("a new folder");
        let under = run_command(folder.path(), &["--quiet", "--log", "set/*"], &["sh", "-c", line]);
        let under = { under }.output().expect("it starts");
        assert_eq!(text(&under.stdout), text(&plain.stdout), "{line}: {}", text(&under.stderr));
        assert_eq!(text(&under.stderr), text(&plain.stderr), "{line}");
        let code = plain.status.code().unwrap_or(128 + 9);
        assert_eq!(under.status.code(), Some(code), "{line}");
        let _ = fs::remove_dir_all(folder.path().join("out"));
        fs::create_dir(folder.path().join("out")).expect("a new folder");
    }
}

#[test]
fn what_cannot_be_run_is_refused_in_words_before_anything_happens() {
    let folder = folder();
    let refused = |more: &[&str], program: &[&str]| {
        let output = run_command(folder.path(), more, program).output().expect("it starts");
        assert!(!output.status.success());
        text(&output.stderr)
    };
    if let Some(fixed) = compile("files.c", folder.path(), &["-static", "-lpthread"]) {
        let said = refused(&["--log", "x"], &[&fixed.to_string_lossy()]);
        assert!(said.contains("statically linked"), "{said}");
    }
    assert!(refused(&["--log", "x"], &["no-such-program"]).contains("no such program"));
    assert!(refused(&["--log", "x"], &["true"]).contains("start the device"));
    assert!(refused(&["--log", "a[b"], &["true"]).contains("bracket"));
    let _device = device(folder.path());
    let mut child = run_command(folder.path(), &["--log", "x"], &["sleep", "100"]);
    let mut child = child.stderr(Stdio::null()).spawn().expect("it starts");
    // Once it has the lane, no other program gets it.
    let start = Instant::now();
    let said = loop {
        let said = refused(&["--log", "x", "--quiet"], &["false"]);
        if said.contains(BUSY) || start.elapsed() > tidewater_tests::PATIENCE {
            break said;
        }
    };
    assert!(said.contains(BUSY), "{said}");
    let drained = tidewater(folder.path()).args(["drain", "--device", DEVICE]).output().expect("it starts");
    assert!(!drained.status.success() && text(&drained.stderr).contains(BUSY), "{}", text(&drained.stderr));
    // Signals are the program's.
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("the process can be signalled");
    assert_eq!(child.wait().expect("the process can be waited for").code(), Some(128 + 15));
}

#[test]
fn a_log_that_lies_touches_nothing_and_is_refused_in_words() {
    let folder = folder();
    let device = device(folder.path());
    let place = folder.path().canonicalize().expect("the folder exists");
    let [victim, link, other] = ["victim", "link", "other"].map(|name| place.join(name));
    fs::write(&victim, "precious").expect("a new file");
    fs::write(&other, "other").expect("a new file");
    std::os::unix::fs::symlink(&victim, &link).expect("a new link");
    let forget = || recover(folder.path(), &["--forget"]);
    let mut cases = vec![
        // The right file by a symbolic link; another file by its name; a name that is not there; a folder.
        (vec![session(), bind(&victim, &link), write(b"forged")], "symbolic link"),
        (vec![session(), bind(&other, &victim), write(b"forged")], "MISSING"),
        (vec![session(), bind(&victim, &place.join("gone")), write(b"forged")], "MISSING"),
        (vec![session(), bind(&place, &place), write(b"forged")], "no regular file"),
        // No such file at all.
        (vec![session(), write(b"forged")], "without a file"),
    ];
    if nix::unistd::geteuid().is_root() {
        let foreign = place.join("foreign");
        fs::write(&foreign, "precious").expect("a new file");
        std::os::unix::fs::chown(&foreign, Some(12_345), None).expect("root can change the owner");
        cases.push((vec![session(), bind(&foreign, &foreign), write(b"forged")], "belongs to user 12345"));
    }
    for (records, why) in cases {
        forge(&device.target(), &records);
        let done = recover(folder.path(), &[]);
        let said = text(&done.stdout) + &text(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "{why}: {said}");
        assert!(forget().status.success(), "{why}");
        assert_eq!(fs::read_to_string(&victim).expect("the file can be read"), "precious", "{why}");
        assert_eq!(fs::read_to_string(&other).expect("the file can be read"), "other", "{why}");
    }
    // Noise, and records that are cut: skipped.
    let mut noise = vec![session(), bind(&victim, &victim), b"noise".to_vec(), write(b"forged")];
    noise[3].truncate(35);
    forge(&device.target(), &noise);
    assert!(recover(folder.path(), &[]).status.success());
    assert_eq!(fs::read_to_string(&victim).expect("the file can be read"), "precious");
    // Outside of what the caller names.
    forge(&device.target(), &[session(), bind(&victim, &victim), write(b"forged")]);
    let done = recover(folder.path(), &["--log", "elsewhere/*"]);
    assert!(text(&done.stdout).contains("not of the log set"), "{}", text(&done.stdout));
    // A dry run tells, and the real one does it: this one is in order.
    let dry = recover(folder.path(), &["--dry-run"]);
    assert!(text(&dry.stdout).contains("1 record to replay"), "{}", text(&dry.stdout));
    assert_eq!(fs::read_to_string(&victim).expect("the file can be read"), "precious");
    assert!(recover(folder.path(), &[]).status.success());
    assert_eq!(fs::read_to_string(&victim).expect("the file can be read"), "forgedus");
    // A ring that was cut is refused by the device.
    drop(device);
    File::options()
        .write(true)
        .open(folder.path().join("ring"))
        .expect("the file can be opened")
        .set_len(4096)
        .expect("the file can be resized");
    let refused = Device::command(folder.path(), &[WAITS, &["--ring", "ring"]].concat()).output().expect("it starts");
    assert!(!refused.status.success() && text(&refused.stderr).contains("ring"), "{}", text(&refused.stderr));
    assert_eq!(fs::read_to_string(&victim).expect("the file can be read"), "forgedus");
}

const PYTHON: &str = "
import os, mmap, sys, ctypes
f = os.open('set/m', os.O_CREAT | os.O_RDWR)
os.write(f, b'x' * 4096); os.fsync(f)
m = mmap.mmap(f, 4096)          # from here on its syncs are real
m[0:4] = b'seen'; m.flush(); os.fsync(f)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(425, 8, 0), ctypes.get_errno())
for fd in range(3, 1024):
    try: os.close(fd)           # not the shim's
    except OSError: pass
g = os.open('set/n', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(g, b'line'); os.fsync(g)
sys.stdout.flush()
os._exit(0)
";

#[test]
fn what_cannot_be_recorded_is_said_and_real_and_a_lost_name_stops_recovery() {
    let folder = folder();
    if Command::new("python3").arg("-V").output().is_err() {
        return skipped(1, "there is no python3");
    }
    fs::create_dir(folder.path().join("set")).expect("a new folder");
    let device = device(folder.path());
    let output = run_on_log(folder.path(), &["--log", "set/*"], &["python3", "-c", PYTHON]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said.trim(), "-1 38", "{errors}");
    assert_eq!(errors.matches("is mapped for writing").count(), 1, "{errors}");
    assert_eq!(errors.matches("io_uring").count(), 1, "{errors}");
    assert_eq!(&fs::read(folder.path().join("set/m")).expect("the file can be read")[..6], b"seenxx");
    // The program is killed behind a sync; its file is away when it is recovered.
    let code = "import os, signal; g = os.open('set/n', os.O_WRONLY | os.O_APPEND); os.write(g, b'more'); os.fsync(g); \
                os.kill(os.getppid(), signal.SIGKILL)";
    let died = run_command(folder.path(), &["--log", "set/*"], &["python3", "-c", code]).output().expect("it starts");
    assert!(!died.status.success());
    let (name, away) = (folder.path().join("set/n"), folder.path().join("away"));
    fs::rename(&name, &away).expect("the rename succeeds");
    // The last of its processes may just be ending.
    let patient = |more: &[&str]| {
        let start = Instant::now();
        loop {
            let done = recover(folder.path(), more);
            if !text(&done.stderr).contains(BUSY) || start.elapsed() > tidewater_tests::PATIENCE {
                return done;
            }
        }
    };
    let missing = patient(&[]);
    assert!(!missing.status.success() && text(&missing.stdout).contains("MISSING"), "{}", text(&missing.stderr));
    fs::rename(&away, &name).expect("the rename succeeds");
    fs::OpenOptions::new().write(true).truncate(true).open(&name).expect("the file can be written");
    let done = patient(&[]);
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    let bytes = fs::read(&name).expect("the file can be read");
    assert_eq!(&bytes[bytes.len() - 4..], b"more");
    drop(device);
}

#[test]
fn a_device_that_dies_is_an_error_and_one_line_and_no_silent_flush() {
    let folder = folder();
    let device = device(folder.path());
    let line = "exec 3>>wal; echo ready; read go; dd if=/dev/zero bs=10 count=1 conv=fsync,notrunc oflag=append of=wal \
                2>err; echo status $?; grep -c 'Input/output' err";
    let mut child = run_command(folder.path(), &["--log", "wal"], &["sh", "-c", line]);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut byte = [0; 6];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut byte).expect("it says that it is ready");
    device.kill();
    // The program asks for its sync when the loss was seen.
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut errors = String::new();
    while !errors.contains("fails from now on") {
        assert!(lines.read_line(&mut errors).expect("UTF-8") > 0, "the loss is not seen: {errors}");
    }
    child.stdin.take().expect("it is piped").write_all(b"go\n").expect("the program reads its input");
    lines.read_to_string(&mut errors).expect("UTF-8");
    let output = child.wait_with_output().expect("the process can be waited for");
    let said = text(&output.stdout);
    assert_eq!(said, "status 1\n1\n", "{errors}");
    assert_eq!(errors.matches("fsync of the program's files fails from now on").count(), 1, "{errors}");
    assert!(!output.status.success() && errors.contains("tidewater recover"), "{errors}");
}

/// Files that a program has written and closed, or leaves alone, make room for others: PostgreSQL may keep any number
/// of segments of its log.
#[test]
fn more_files_than_a_run_has_places_for_come_onto_the_log_one_after_another() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder");
    if Command::new("python3").arg("-V").output().is_err() {
        return skipped(1, "there is no python3");
    }
    fs::create_dir(folder.path().join("set")).expect("a new folder");
    let device = Device::start(folder.path(), &[WAITS, &["--set", "fast.log_size=8MiB"]].concat());
    let code = "
import os
first = os.open('set/first', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(first, b'one'); os.fsync(first)
for number in range(1500):
    f = os.open('set/%d' % number, os.O_CREAT | os.O_WRONLY)
    os.write(f, b'bytes'); os.fsync(f); os.close(f)
os.write(first, b'two'); os.fsync(first)
os.kill(os.getppid(), 9)";
    let died = run_command(folder.path(), &["--log", "set/*"], &["python3", "-c", code]).output().expect("it starts");
    // The level and what matches, and no note.
    assert!(text(&died.stderr).lines().count() == 2 && died.status.code().is_none(), "{}", text(&died.stderr));
    // What the log alone is to bring back.
    let first = folder.path().join("set/first");
    File::options()
        .write(true)
        .open(&first)
        .expect("the file can be opened")
        .set_len(3)
        .expect("the file can be resized");
    let start = Instant::now();
    let done = loop {
        let done = recover(folder.path(), &[]);
        if !text(&done.stderr).contains(BUSY) || start.elapsed() > tidewater_tests::PATIENCE {
            break done;
        }
    };
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    assert_eq!(fs::read_to_string(&first).expect("the file can be read"), "onetwo");
    drop(device);
}

/// With a pattern that matches no file, all flushes are as before: the user must learn why nothing is faster.
#[test]
fn a_pattern_that_no_file_matched_is_reported() {
    let folder = folder();
    let device = device(folder.path());
    let line = ["sh", "-c", "echo line >> a.log"];
    let run = |pattern: &str| text(&run_on_log(folder.path(), &["--log", pattern], &line).stderr);
    let said = run("a.lok");
    let whole = folder.path().canonicalize().expect("the folder exists").join("a.lok");
    assert!(said.contains("the program opened no file for writing that --log matches"), "{said}");
    assert!(said.contains(&whole.display().to_string()), "{said}");
    assert!(!run("*.log").contains("that --log matches"));
    drop(device);
}
