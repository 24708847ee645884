//! Faults outside of a run: its device stands still, the disk below the image is full, processes write unseen.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidewater_tests::ring::Device;
use tidewater_tests::wait;
use tidewater_tests::{compile, skipped, tidewater};

const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
const DEVICE: &str = "vfio-user:f0.sock";

fn run(folder: &Path, level: &str, program: &[&str]) -> Command {
    let mut command = tidewater(folder);
    command.args(["run", "--device", DEVICE, "--level", level, "--log", "*.log", "--"]).args(program);
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A device that may write files of so many bytes at most.
fn with_limit(folder: &Path, bytes: u64) -> Device {
    let served = Device::command(folder, &[&["--ring", "ring"], WAITS].concat());
    // POSIX: in units of 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", bytes / 512);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(served.get_program()).args(served.get_args()).current_dir(folder);
    let errors = fs::File::create(folder.join("stderr")).expect("a folder");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts");
    Device::served(child, folder)
}

#[test]
fn a_disk_that_takes_nothing_more_is_named_to_the_program_and_by_run_and_recover() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Device::start(folder.path(), WAITS).kill();
    let len = fs::metadata(folder.path().join("drive")).expect("an image").len();
    let device = with_limit(folder.path(), len / 2);
    let line = ["dd", "if=/dev/urandom", "of=x.log", "bs=4k", "count=20000", "oflag=dsync", "status=none"];
    let output = run(folder.path(), "destaged", &line).output().expect("it starts");
    let said = errors(&output);
    assert!(!output.status.success(), "{said}");
    // The limit stands for a full disk, whose error would be ENOSPC.
    const WHY: &str = "the device cannot write its image: File too large; repair its disk";
    // The mark of a run is durable before its program starts: what takes nothing at all starts none.
    let started = folder.path().join("x.log").exists();
    assert!(!started || said.contains("x.log': File too large"), "by the program: {said}");
    assert!(said.contains(&format!("error: {WHY}")), "by the run: {said}");
    let recover = || {
        let mut command = tidewater(folder.path());
        command.args(["recover", "--device", DEVICE]).output().expect("it starts")
    };
    let output = recover();
    assert!(!output.status.success() && errors(&output).contains(WHY), "{}", errors(&output));
    device.kill();
    let _device = Device::start(folder.path(), WAITS);
    let output = recover();
    assert!(output.status.success(), "{}", errors(&output));
}

/// Reads lines until one has all of these in it.
fn read_until(child: &mut Child, parts: &[&str]) -> String {
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut said = String::new();
    loop {
        let from = said.len();
        assert!(lines.read_line(&mut said).expect("UTF-8") > 0, "{parts:?} is not said: {said}");
        if parts.iter().all(|part| said[from..].contains(part)) {
            break;
        }
    }
    drop(child.stdin.take());
    let _ = lines.read_to_string(&mut said);
    said
}

#[test]
fn a_process_that_writes_a_file_of_the_set_unseen_is_named_while_it_has_it_open() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _device = Device::start(folder.path(), WAITS);
    let script = "env -i sh -c 'exec 3>> x.log; echo unseen >&3; read line'; true";
    let mut command = run(folder.path(), "ring", &["sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let said =
        read_until(&mut child, &["x.log without the preload library (LD_PRELOAD was cleared from its environment)"]);
    assert!(child.wait().expect("the process can be waited for").success(), "{said}");
    assert!(said.contains("the program opened no file for writing that --log matches"), "{said}");
    assert!(!said.contains("opened none"), "{said}");

    let Some(program) = compile("unseen.c", folder.path(), &["-static"]) else {
        return skipped(1, "there is no C compiler");
    };
    let script = format!("{} y.log; true", program.display());
    let mut command = run(folder.path(), "ring", &["sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let said =
        read_until(&mut child, &["y.log without the preload library (no library can be preloaded into its program)"]);
    assert!(child.wait().expect("the process can be waited for").success(), "{said}");
}

/// A write of another process of the machine to a file that is on the log is found at the next trim, without any sync
/// of the program's.
#[test]
fn a_file_that_is_written_unseen_is_real_before_recovery_could_undo_that() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), WAITS);
    // What is written behind it brings the next trim.
    let script = "exec 3>> x.log; echo seen >&3; env -i sh -c 'echo unseen >> x.log'; \
                  (while :; do echo more >&3; sleep 0.1; done) & read line; kill $!";
    let mut command = run(folder.path(), "ring", &["sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let said = read_until(&mut child, &["x.log: a process that is not seen has written it"]);
    assert!(child.wait().expect("the process can be waited for").success(), "{said}");
    assert!(said.contains("1 file left the log"), "{said}");
    device.kill();
    let bytes = fs::read(folder.path().join("x.log")).expect("the file can be read");
    assert!(bytes.starts_with(b"seen\nunseen\nmore\n"), "{}", String::from_utf8_lossy(&bytes));
}

/// A pause of the host: a snapshot, a machine that moves. It is waited for as long as the guide says, by a checkpoint
/// as well.
#[test]
#[ignore = "long: make torture"]
fn a_device_that_stands_still_for_less_than_its_time_ends_no_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), WAITS);
    let script = "import os, time\nf = os.open('x.log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n\
                  end = time.time() + 30\n\
                  while time.time() < end: os.write(f, os.urandom(100)); os.fsync(f)";
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped(1, "there is no python3");
    }
    let mut command = run(folder.path(), "ring", &["python3", "-c", script]);
    let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let process = Pid::from_raw(device.child.id() as i32);
    let written = || fs::metadata(folder.path().join("x.log")).map_or(0, |about| about.len());
    wait::until(|| "it writes".into(), || written() >= 10_000);
    kill(process, Signal::SIGSTOP).expect("the process can be signalled");
    // Less than the 30 s that an answer may take: the pause is what is tested.
    wait::pass(std::time::Duration::from_secs(22));
    kill(process, Signal::SIGCONT).expect("the process can be signalled");
    let output = child.wait_with_output().expect("the process can be waited for");
    assert!(output.status.success(), "{}", errors(&output));
}
