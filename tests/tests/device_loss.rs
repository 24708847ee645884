//! Programs under `tidewater run` whose device dies, or stands still: they find out at once, and where the user has
//! asked for that, their files leave the log, and nothing older comes back over what they sync from then on.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_tests::ring::Device;
use tidewater_tests::{compile, run_refused, run_well, skipped, tidewater};

const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
const COPY: &[&str] = &["--set", "fast.on_wrap=wait-for-trim", "--ring-copy", "copy"];
const DEVICE: &str = "vfio-user:f0.sock";
/// Carries out commands line by line, and prints what came of each.
const PROGRAM: &str = r#"
import os, sys
files = {}
for line in sys.stdin:
    word, name, *rest = line.split()
    try:
        if word == "append":
            if name not in files: files[name] = os.open(name, os.O_CREAT | os.O_RDWR)
            os.lseek(files[name], 0, os.SEEK_END)
            os.write(files[name], rest[0].encode())
        elif word == "over": os.pwrite(files[name], rest[0].encode(), 0)
        elif word == "sync":
            print("syncing", flush=True)
            os.fsync(files[name])
        elif word == "child": os.system("printf %s >> " .replace("%s", rest[0]) + name)
        elif word == "rename": os.rename(name, rest[0])
        elif word == "unlink": os.unlink(name)
        elif word == "cut": os.ftruncate(files[name], int(rest[0]))
        elif word == "cut_name": os.truncate(name, int(rest[0]))
        elif word == "open_cut": os.close(os.open(name, os.O_WRONLY | os.O_TRUNC))
        elif word == "allocate": os.posix_fallocate(files[name], 0, 4096)
        print("done", flush=True)
    except OSError as error: print(error.strerror, flush=True)
"#;

/// A program under a supervisor.
struct Program {
    run: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(folder: &Path, more: &[&str]) -> Program {
        Program::start_with(folder, more, &[])
    }

    fn start_with(folder: &Path, more: &[&str], variables: &[(&str, &Path)]) -> Program {
        let mut command = tidewater(folder);
        command.args(["run", "--device", DEVICE, "--log", "*.log"]).args(more).args(["--", "python3", "-c", PROGRAM]);
        command.envs(variables.iter().copied());
        let errors = fs::File::create(folder.join("said")).expect("the folder is writable");
        let mut run =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn().expect("the binary starts");
        let (input, output) = (run.stdin.take().expect("piped"), run.stdout.take().expect("piped"));
        Program { run, input, output: BufReader::new(output) }
    }

    fn tell(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("the program reads its input");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        line.trim_end().to_owned()
    }

    /// Has it do something, and returns what came of it.
    fn asked(&mut self, line: &str) -> String {
        self.tell(line);
        loop {
            let said = self.hear();
            if said != "syncing" {
                return said;
            }
        }
    }

    fn does(&mut self, line: &str) {
        assert_eq!(self.asked(line), "done", "{line}");
    }

    /// Ends it. Its status, and what the supervisor said.
    fn end(mut self, folder: &Path) -> (Option<i32>, String) {
        drop(self.input);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("UTF-8");
        let status = self.run.wait().expect("the process can be waited for").code();
        (status, fs::read_to_string(folder.join("said")).expect("the file can be read"))
    }
}

fn folder() -> Option<TempDir> {
    if Command::new("python3").arg("-V").output().is_err() {
        skipped(1, "there is no python3");
        return None;
    }
    Some(tempfile::tempdir().expect("a temporary folder"))
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("the file can be read")
}

/// Without a copy, a sync at DESTAGED waits for the device. It is killed while one does.
#[test]
fn a_sync_that_waits_when_the_device_dies_fails_by_its_death_and_not_by_its_time_out() {
    let Some(folder) = folder() else { return };
    let device = Device::start(folder.path(), WAITS);
    let mut program = Program::start(folder.path(), &["--level", "destaged"]);
    program.does("append x.log zero");
    // No checkpoint takes what follows from the log.
    let supervisor = Pid::from_raw(program.run.id() as i32);
    kill(supervisor, Signal::SIGSTOP).expect("the process can be signalled");
    program.does("append x.log one");
    program.does("sync x.log");
    program.does("append x.log two");
    kill(device.pid(), Signal::SIGSTOP).expect("the process can be signalled");
    program.tell("sync x.log");
    assert_eq!(program.hear(), "syncing");
    device.kill();
    assert_eq!(program.hear(), "Input/output error");
    kill(supervisor, Signal::SIGCONT).expect("the process can be signalled");
    let (status, said) = program.end(folder.path());
    assert!(status == Some(1) && said.contains("the device has disconnected"), "{status:?}: {said}");
    assert!(!said.contains("has not answered"), "its process has ended: {said}");
    // What was acknowledged is there after a recovery.
    fs::write(folder.path().join("x.log"), "").expect("the file can be written");
    let device = Device::start(folder.path(), WAITS);
    run_well(folder.path(), &["recover", "--device", DEVICE]);
    assert!(read(folder.path(), "x.log").contains("one"));
    drop(device);
}

#[test]
fn a_program_goes_on_with_its_own_syncs_and_recovery_brings_nothing_older_back() {
    for stands_still in [false, true] {
        let Some(folder) = folder() else { return };
        let path = folder.path();
        let device = Device::start(path, COPY);
        let mut program = Program::start(path, &["--on-device-loss", "sync"]);
        program.does("append x.log acknowledged");
        program.does("sync x.log");
        program.does("append y.log first");
        if stands_still {
            kill(device.pid(), Signal::SIGSTOP).expect("the process can be signalled");
        }
        device.kill();
        // By the log, its copy, or by itself: each returns, and so do those behind them.
        program.does("append y.log second");
        program.does("sync y.log");
        program.does("over x.log NEWER");
        program.does("sync x.log");
        loop {
            // The supervisor has seen it by now, or will.
            program.does("sync x.log");
            if read(path, "said").contains("from now on fsync syncs each file by itself") {
                break;
            }
        }
        program.does("append x.log !");
        program.does("append z.log new");
        program.does("child z.log child");
        program.does("rename z.log w.log");
        for name in ["x", "y", "z"] {
            program.does(&format!("sync {name}.log"));
        }
        let expected = [("x.log", "NEWERwledged!"), ("y.log", "firstsecond"), ("w.log", "newchild")];
        let check = || expected.iter().for_each(|(name, is)| assert_eq!(read(path, name), *is, "{name}"));
        check();
        // A crash of the machine, as far as the log is concerned: its memory is gone, and the copy is there.
        fs::remove_file(path.join("ring")).expect("the file can be removed");
        let (status, said) = program.end(path);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("went on without the device") && said.contains("tidewater recover"), "{said}");
        assert!(!said.contains("drained") && !said.contains("fails from now on"), "{said}");
        let device = Device::start(path, COPY);
        run_well(path, &["recover", "--device", DEVICE]);
        check();
        // And the next run is as any.
        let mut program = Program::start(path, &["--on-device-loss", "sync"]);
        program.does("append x.log ?");
        program.does("sync x.log");
        let (status, said) = program.end(path);
        assert!(status == Some(0) && said.contains("drained: 1 file"), "{said}");
        assert_eq!(read(path, "x.log"), "NEWERwledged!?");
        drop(device);
    }
}

/// Records of files that were written behind the log's end must not come back; only a log that stays can say so.
#[test]
fn going_on_without_the_device_is_refused_where_a_loss_of_power_would_take_the_log() {
    let Some(folder) = folder() else { return };
    let device = Device::start(folder.path(), WAITS);
    let line = ["run", "--device", DEVICE, "--log", "*.log", "--on-device-loss", "sync", "--", "true"];
    let said = run_refused(folder.path(), &line);
    assert!(said.contains("--on-device-loss sync") && said.contains("--ring-copy"), "{said}");
    drop(device);
}

#[test]
fn a_run_that_wrote_nothing_says_so_in_one_line() {
    let Some(folder) = folder() else { return };
    let device = Device::start(folder.path(), WAITS);
    let program = Program::start(folder.path(), &[]);
    let (status, said) = program.end(folder.path());
    assert!(status == Some(0) && !said.contains("drained"), "{said}");
    assert_eq!(said.matches("opened no file for writing that --log matches").count(), 1, "{said}");
    drop(device);
}

/// A server that restores file after file, each by a process of its own, has it said once.
#[test]
fn what_many_processes_do_to_many_files_is_said_once() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let device = Device::start(path, WAITS);
    fs::write(path.join("from"), [7; 100]).expect("the folder is writable");
    let copy = "import os, sys; a = os.open('from', os.O_RDONLY); b = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); \
                os.copy_file_range(a, b, 100)";
    fs::write(path.join("copy.py"), copy).expect("the folder is writable");
    let each = r#"for i in 1 2 3 4; do python3 copy.py "$(printf '\033[2J')$i.log"; done"#;
    let line = ["--log", "*.log", "--", "sh", "-c", each];
    let run = tidewater(path).args(["run", "--device", DEVICE]).args(line).output().expect("it starts");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
    assert_eq!(said.matches("copy_file_range").count(), 1, "{said}");
    assert!(said.contains("[2J1.log") && !said.contains('\u{1b}'), "a file's name steers no terminal: {said:?}");
    drop(device);
}

/// At RING, what a sync promised last is in the ring alone: where that is gone, recovery says so.
#[test]
fn a_ring_that_is_lost_is_said_where_syncs_returned_at_ring_and_nowhere_else() {
    for (level, is_lost) in [("ring", true), ("ring", false), ("destaged", true)] {
        let Some(folder) = folder() else { return };
        let path = folder.path();
        let device = Device::start(path, WAITS);
        let mut program = Program::start(path, &["--level", level]);
        program.does("append x.log first");
        program.does("sync x.log");
        kill(Pid::from_raw(program.run.id() as i32), Signal::SIGKILL).expect("the process can be signalled");
        let Program { mut run, input, mut output } = program;
        run.wait().expect("the process can be waited for");
        drop(input);
        output.read_to_string(&mut String::new()).expect("it ends with its input");
        // What no client waits for is in the ring alone, or the device has taken it by now.
        let mut device = device;
        kill(device.pid(), Signal::SIGTERM).expect("the process can be signalled");
        device.child.wait().expect("the process can be waited for");
        if is_lost {
            fs::remove_file(path.join("ring")).expect("the file can be removed");
        }
        let device = Device::start(path, WAITS);
        let said = run_well(path, &["recover", "--device", DEVICE]);
        assert_eq!(said.contains("the ring that its run wrote to was lost"), level == "ring" && is_lost, "{said}");
        assert_eq!(read(path, "x.log"), "first");
        drop(device);
    }
}

/// The system says once that a sync failed, and takes the bytes for clean: a later sync returns without them. So the
/// first one is the last, and what the log has of the file is not trimmed.
#[test]
fn a_sync_that_failed_is_not_made_good_by_the_next() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let Some(spy) = compile("spy.c", path, &["-shared", "-fPIC", "-ldl"]) else {
        skipped(1, "there is no C compiler");
        return;
    };
    let device = Device::start(path, COPY);
    let fails = path.join("fails");
    for on_loss in ["fail", "sync"] {
        let with = [("LD_PRELOAD", spy.as_path()), ("SPY_FAILS", fails.as_path())];
        let mut program = Program::start_with(path, &["--on-device-loss", on_loss], &with);
        program.does("append x.log acknowledged");
        program.does("sync x.log");
        // A new name makes the next sync a real one, unless a checkpoint comes between them: then the next name does.
        let mut names = ["x.log", "y.log"];
        while program.asked("sync x.log") == "done" {
            if program.asked(&format!("rename {} {}", names[0], names[1])) == "done" {
                names.swap(0, 1);
            }
            fs::write(&fails, "").expect("the file can be written");
        }
        assert!(!fails.exists(), "it was a real one");
        for _ in 0..3 {
            assert_eq!(program.asked("sync x.log"), "Input/output error", "{on_loss}");
        }
        let (status, said) = program.end(path);
        assert!(status == Some(1) && said.contains("tidewater recover"), "{said}");
        // The bytes that the disk has not got.
        fs::write(path.join(names[0]), "").expect("the file can be written");
        run_well(path, &["recover", "--device", DEVICE]);
        assert_eq!(read(path, names[0]), "acknowledged");
        fs::remove_file(path.join(names[0])).expect("the file can be removed");
    }
    drop(device);
}

/// A file in memory alone can't be ahead of its log.
#[test]
fn files_in_memory_wait_for_no_log() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        skipped(1, "there is no /dev/shm");
        return;
    };
    let device = Device::start(path, COPY);
    let mut program = Program::start(path, &[]);
    program.does("append x.log acknowledged");
    program.does("sync x.log");
    let name = memory.path().join("shared").display().to_string();
    program.does(&format!("append {name} bytes"));
    device.kill();
    loop {
        if program.asked("sync x.log") == "Input/output error" {
            break;
        }
    }
    for line in ["cut N 3", "cut_name N 2", "open_cut N", "allocate N", "rename N N2", "unlink N2"] {
        program.does(&line.replace('N', &name));
    }
    // Of others what is on the log comes first.
    fs::write(path.join("other"), "bytes").expect("the file can be written");
    assert_eq!(program.asked("cut_name other 3"), "Input/output error");
    drop(program.end(path));
}

#[test]
fn a_run_waits_for_a_device_that_is_being_started_as_long_as_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let line = |wait: &str| {
        let mut command = tidewater(path);
        command.args(["run", "--device", DEVICE, "--wait", wait, "--log", "*.log", "--", "sh", "-c", "echo x > x.log"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    };
    let output = line("50ms").wait_with_output().expect("the process can be waited for");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("waited 0.05 s for the device (--wait)"), "{said}");
    assert!(said.contains("help: start the device"), "{said}");
    let mut waits = line("600s");
    let mut errors = BufReader::new(waits.stderr.take().expect("it is piped"));
    let mut said = String::new();
    errors.read_line(&mut said).expect("UTF-8");
    assert!(said.contains("waiting up to 600 s for the device (--wait)"), "{said}");
    let device = Device::start(path, WAITS);
    errors.read_to_string(&mut said).expect("UTF-8");
    assert!(
        waits.wait().expect("the process can be waited for").success() && said.contains("drained: 1 file"),
        "{said}"
    );
    device.kill();
    // Ctrl-C is for the wait.
    let mut waits = line("600s");
    let mut errors = BufReader::new(waits.stderr.take().expect("it is piped"));
    errors.read_line(&mut said).expect("UTF-8");
    kill(Pid::from_raw(waits.id() as i32), Signal::SIGINT).expect("the process can be signalled");
    errors.read_to_string(&mut said).expect("UTF-8");
    assert!(
        !waits.wait().expect("the process can be waited for").success() && said.contains("SIGINT ended the wait"),
        "{said}"
    );
}
