//! Files know their device: starts on others are refused, and no log puts older bytes over newer ones.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_tests::ring::Device;
use tidewater_tests::{compile, run_refused, run_well, skipped, tidewater};

const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
/// Acknowledged last, before the crash.
const LAST: &str = "acknowledged";
/// Writes that, in place, says so once it is synced, and waits.
const PROGRAM: &str =
    "printf acknowledged | dd of=data.log conv=notrunc,fsync status=none; echo synced; exec sleep 600";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A folder with a device in it.
fn device(folder: &Path, name: &str) -> Device {
    let own = folder.join(name);
    fs::create_dir_all(&own).expect("a new folder");
    Device::start(&own, WAITS)
}

fn target(name: &str) -> String {
    format!("vfio-user:{name}/f0.sock")
}

fn start(folder: &Path, name: &str, more: &[&str], program: &str) -> Command {
    let mut command = tidewater(folder);
    command.args(["run", "--device", &target(name), "--level", "ring", "--log", "data.log", "--log", "sub/*.log"]);
    command.args(more).args(["--", "sh", "-c", program]);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a program until it says that its bytes are synced, and ends all of it.
fn crash(folder: &Path, name: &str) {
    let mut command = start(folder, name, &["--quiet"], PROGRAM);
    command.stderr(Stdio::null());
    crash_of(command);
}

fn crash_of(mut command: Command) {
    let mut child: Child = command.process_group(0).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it prints");
    assert_eq!(line, "synced\n");
    killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL).expect("it is a group");
    child.wait().expect("the process can be waited for");
}

/// A loss of power: what the page cache had is gone.
fn lose_power(folder: &Path) {
    fs::write(folder.join("data.log"), "").expect("the file can be written");
}

fn data(folder: &Path) -> String {
    fs::read_to_string(folder.join("data.log")).expect("the file can be read")
}

#[test]
fn a_new_device_is_refused_and_after_its_adoption_the_old_log_is() {
    let temporary = folder();
    let folder = temporary.path();
    let whole = || run_well(folder, &["check", "."]);
    assert!(whole().contains("whole without a log"));
    let right = device(folder, "right");
    crash(folder, "right");
    // With its device, and without it.
    let asked = run_refused(folder, &["check", "."]);
    assert!(asked.contains("right/f0.sock") && asked.contains("tidewater recover --device vfio-user:/"), "{asked}");
    right.kill();
    lose_power(folder);
    assert_eq!(run_refused(folder, &["check", "."]), asked);
    // The device is not there, and the help knows which it is.
    let absent = said(&start(folder, "right", &[], "true").output().expect("it starts"));
    assert!(absent.contains("start the device as it was started before") && !absent.contains("log-device"), "{absent}");
    let absent = run_refused(folder, &["recover", "--device", "vfio-user:right/f0.sock"]);
    assert!(!absent.contains("tidewater log-device right"), "{absent}");
    let _new = device(folder, "new");
    let refused = start(folder, "new", &[], "echo started").output().expect("it starts");
    let words = said(&refused);
    assert!(!refused.status.success() && !words.contains("started\n"), "{words}");
    assert!(words.contains("right/f0.sock") && words.contains("--adopt"), "{words}");
    let adopted = start(folder, "new", &["--adopt"], "printf 'newer, synced' > data.log; sync data.log");
    let adopted = { adopted }.output().expect("it starts");
    assert!(adopted.status.success(), "{}", said(&adopted));
    assert!(whole().contains("whole"));
    let _right = device(folder, "right");
    let words = run_refused(folder, &["recover", "--device", &target("right")]);
    assert_eq!(data(folder), "newer, synced");
    assert!(words.contains("can't be brought up to date"), "{words}");
    let more = ["--adopt", "--dry-run"];
    run_well(folder, &[&["recover", "--device", &target("right")], &more[..]].concat());
    assert_eq!(data(folder), "newer, synced");
    // Who means it gets them.
    run_well(folder, &["recover", "--device", &target("right"), "--adopt"]);
    assert_eq!(data(folder), "acknowledgedd");
}

#[test]
fn the_right_device_brings_all_back_and_leaves_no_marker() {
    let temporary = folder();
    let folder = temporary.path();
    fs::create_dir(folder.join("sub")).expect("a new folder");
    let _right = device(folder, "right");
    for end in ["recover", "drain", "run"] {
        crash(folder, "right");
        lose_power(folder);
        run_refused(folder, &["check", "."]);
        match end {
            "run" => {
                let program = "cat data.log; mkdir -p sub; echo x > sub/a.log; ls -A . sub | grep -c tidewater-log";
                let output = start(folder, "right", &["--quiet"], program).output().expect("it starts");
                assert_eq!(
                    said(&output),
                    format!("{LAST}1\n"),
                    "the marker of a folder is there while it is written to"
                );
            }
            end => drop(run_well(folder, &[end, "--device", &target("right")])),
        }
        assert_eq!(data(folder), LAST);
        assert!(run_well(folder, &["check", "."]).contains("whole"), "{end}");
    }
}

#[test]
fn a_copy_of_a_folder_and_a_lost_marker_are_refused() {
    let temporary = folder();
    let folder = temporary.path().canonicalize().expect("the folder exists");
    let _right = device(&folder, "right");
    let inner = folder.join("inner");
    fs::create_dir(&inner).expect("a new folder");
    let device = format!("vfio-user:{}/right/f0.sock", folder.display());
    let run_in = |inner: &Path, program: &str| {
        let mut command = tidewater(inner);
        command.args(["run", "--device", &device, "--level", "ring", "--log", "*.log", "--", "sh", "-c", program]);
        command
    };
    crash_of(run_in(&inner, PROGRAM));
    fs::write(inner.join("data.log"), "").expect("the file can be written");
    let copied = Command::new("cp").args(["-a", "inner", "copy"]).current_dir(&folder).status().expect("cp starts");
    assert!(copied.success());
    // The original gets its bytes back; the copy never will.
    run_well(&folder, &["recover", "--device", &device]);
    assert_eq!(data(&inner), LAST);
    let output = run_in(&folder.join("copy"), "true").output().expect("it starts");
    assert!(!output.status.success() && said(&output).contains("is a copy of a folder"), "{}", said(&output));
    assert!(run_refused(&folder, &["check", "copy"]).contains("is a copy of a folder"));
    // A marker that was removed by hand.
    crash_of(run_in(&inner, PROGRAM));
    let markers = fs::read_dir(&inner).expect("the folder can be read").flatten();
    let markers = markers.filter(|entry| entry.file_name().to_string_lossy().starts_with(".tidewater-log-"));
    markers.for_each(|entry| fs::remove_file(entry.path()).expect("the file can be removed"));
    fs::write(inner.join("data.log"), "newer").expect("the file can be written");
    let output = run_in(&inner, "true").output().expect("it starts");
    assert!(
        !output.status.success() && said(&output).contains("REFUSED, its folder has no marker"),
        "{}",
        said(&output)
    );
    assert_eq!(data(&inner), "newer");
}

#[test]
fn a_log_device_takes_no_folder_with_files_of_another_device() {
    let temporary = folder();
    let folder = temporary.path();
    device(folder, "served").kill();
    let before = fs::read_dir(folder.join("served")).expect("the folder can be read").count();
    let words = run_refused(folder, &["log-device", "served"]);
    assert!(words.contains("drive (an image)") && words.contains("ring (a ring)"), "{words}");
    assert_eq!(fs::read_dir(folder.join("served")).expect("the folder can be read").count(), before);
    // A socket without a folder is named as it was given.
    let words = run_refused(folder, &["run", "--device", "vfio-user:vfio.sock", "--log", "x", "--", "true"]);
    assert!(!words.contains("--device  "), "{words}");
    let not_there = run_refused(folder, &["check", "nowhere"]);
    assert!(not_there.contains("does not exist"), "{not_there}");
    assert_eq!(tidewater_tests::run(folder, &["check", "nowhere"]).status.code(), Some(2));
}

fn markers_in(folder: &Path) -> usize {
    let names = fs::read_dir(folder).expect("the folder can be read").flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".tidewater-log-")).count()
}

/// A program's folders, which it takes for empty, are so, and none keeps a marker once it is out of the set.
#[test]
fn folders_are_renamed_and_removed_as_without_a_marker_in_them() {
    if Command::new("python3").arg("-V").output().is_err() {
        skipped(1, "there is no python3");
        return;
    }
    let temporary = folder();
    let folder = temporary.path();
    let _device = device(folder, "right");
    let program = r#"
import os
def write(name):
    file = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.write(file, b"bytes")
    os.fsync(file)
    os.close(file)
for name in ("sub", "sub/a", "sub/b", "sub/c", "sub/d", "sub/e", "sub/f", "sub/g"): os.mkdir(name)
write("sub/a/x.log")
os.rename("sub/a", "sub/b")             # Over one that is empty.
write("sub/b/y.log")
write("sub/c/x.log")
os.unlink("sub/c/x.log")
os.rename("sub/b", "sub/c")             # Over one that was not.
write("sub/d/x.log")
os.unlink("sub/d/x.log")
os.rmdir("sub/d")
write("sub/e/x.log")
os.unlink("sub/e/x.log")
here = os.open("sub", os.O_RDONLY)
os.rmdir("e", dir_fd=here)
write("sub/f/x.log")
os.rename("sub/f", "out")               # Out of the set.
write("sub/g/x.log")
os.unlink("sub/g/x.log")
os.rename("sub/g", "out2")
for full in ("sub/c", "out"):
    try: os.rmdir(full)
    except OSError: pass
    else: raise SystemExit(full + " was removed")
"#;
    let mut command = tidewater(folder);
    command.args(["run", "--device", &target("right"), "--level", "ring", "--quiet", "--log", "sub/*/*.log"]);
    let output = command.args(["--", "python3", "-c", program]).output().expect("it starts");
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    for (name, files) in [("sub", 1), ("sub/c", 2), ("out", 1), ("out2", 0)] {
        let path = folder.join(name);
        assert_eq!(fs::read_dir(&path).expect("the folder can be read").count(), files, "{name}");
        assert_eq!(markers_in(&path), 0, "{name}");
    }
    assert!(run_well(folder, &["check", "."]).contains("whole"));
}

/// A marker that stays behind the log would be taken for that of a folder that was restored from a backup, and the
/// right device be refused.
#[test]
fn a_marker_that_has_no_room_keeps_the_log_and_the_right_device_goes_on() {
    let temporary = folder();
    let folder = temporary.path();
    let Some(spy) = compile("spy.c", folder, &["-shared", "-fPIC", "-ldl"]) else {
        skipped(1, "there is no C compiler");
        return;
    };
    let device = device(folder, "right");
    let said_by_run = folder.join("said");
    // One write after another, so that there are checkpoints; the second half of them without room.
    let program = "i=0; while ! grep -q 'brought up to date' said; do i=$((i+1)); \
                   [ $i = 3 ] && : > no-room; \
                   printf $i | dd of=data.log conv=notrunc,fsync status=none; sleep 0.2; done; \
                   printf acknowledged | dd of=data.log conv=notrunc,fsync status=none; echo synced; exec sleep 600";
    let mut command = start(folder, "right", &[], program);
    command.env("LD_PRELOAD", spy).env("SPY_NO_ROOM", folder.join("no-room"));
    command.stderr(fs::File::create(&said_by_run).expect("the file can be opened"));
    crash_of(command);
    let said = fs::read_to_string(&said_by_run).expect("the file can be read");
    assert_eq!(said.matches("can't be brought up to date").count(), 1, "{said}");
    lose_power(folder);
    run_well(folder, &["recover", "--device", &target("right")]);
    assert_eq!(data(folder), LAST);
    assert_eq!(markers_in(folder), 0);
    drop(device);
}
