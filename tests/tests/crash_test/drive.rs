//! A mount whose image lies on a served drive: its power cuts, its faults, its end of room, and the guide's commands.

use super::{Mounted, has_fuse, text};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tidewater_tests::{root, run_well, tidewater, wait};

/// A served drive. It is killed when this is dropped.
struct Drive {
    child: Child,
    /// The target, for `--image`.
    target: String,
}

impl Drive {
    /// Serves a drive from `home`, with its control socket there, and waits until hosts may come.
    fn start(home: &Path, options: &[&str]) -> Drive {
        let mut command = tidewater(home);
        command.args(["serve", "--control", "drive.sock", "--nvme-tcp", "127.0.0.1:0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines().map_while(Result::ok);
        let line = lines.by_ref().find(|line| line.contains("nvme connect -t tcp -a ")).expect("it says where it is");
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |flag: &str| words[words.iter().position(|word| *word == flag).expect("it is there") + 1];
        let target = format!("tcp:{}:{}", after("-a"), after("-s"));
        // The rest is read so that it can write.
        std::thread::spawn(move || lines.for_each(drop));
        Drive { child, target }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

fn fault(home: &Path, arguments: &[&str]) -> String {
    run_well(home, &[&["fault"], arguments, &["--device", "drive.sock"]].concat())
}

fn is_serving(home: &Path) -> bool {
    run_well(home, &["status", "--device", "drive.sock"]).contains("serving")
}

const TINY: [&str; 8] =
    ["--profile", "tiny", "--image", "drive.img", "--set", "serve.timing=none", "--namespaces", "rest:4k"];

/// Writes a file and makes it and its name durable.
fn keep(mounted: &Mounted, name: &str, text: &str) -> std::io::Result<()> {
    let file = File::create(mounted.path(name))?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_all()?;
    File::open(mounted.path("."))?.sync_all()
}

#[test]
fn what_was_synced_is_there_after_power_cuts_of_the_drive_below() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let drive = Drive::start(home.path(), &TINY);
    let options = ["--image", drive.target.as_str()];
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut failed = 0;
    for (round, at) in
        ["write:1", "event:60", "sync:1", "event:300", "write:4", "event:900", "sync:6", "event:2000", "sync:9"]
            .into_iter()
            .enumerate()
    {
        let mounted = Mounted::start(home.path(), &options);
        for (name, text) in &kept {
            let found = fs::read_to_string(mounted.path(name)).unwrap_or_else(|error| panic!("{at}, {name}: {error}"));
            assert!(found == *text, "before {at}: {name}");
        }
        fault(home.path(), &["power-cut", "--at", at]);
        for number in 0..400 {
            let (name, text) = (format!("{round}-{number}"), format!("{number} ").repeat(400 + 97 * number));
            match keep(&mounted, &name, &text) {
                Ok(()) => kept.push((name, text)),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(5), "{at}: {error}");
                    failed += 1;
                    break;
                }
            }
            // Room for the next.
            if number > 4 {
                let (name, _) = kept.swap_remove(0);
                fs::remove_file(mounted.path(&name)).expect("it is there");
            }
        }
        wait::until(|| "the power is not back".into(), || is_serving(home.path()));
        // The mount goes on with the drive that is back: what failed is written by the next sync.
        keep(&mounted, "again", at).unwrap_or_else(|error| panic!("{at}: {error}"));
        mounted.signal(Signal::SIGKILL);
        let mut mounted = mounted;
        wait::end(&mut mounted.child);
        std::mem::forget(mounted);
    }
    let mounted = Mounted::start(home.path(), &options);
    assert_eq!(fs::read_to_string(mounted.path("again")).expect("it was synced"), "sync:9");
    assert!(failed >= 5, "{failed} cuts struck a sync");
}

#[test]
fn faults_and_the_end_of_room_of_the_drive_below_reach_programs() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let small = [&TINY[..7], &["2MiB:4k"]].concat();
    let drive = Drive::start(home.path(), &small);
    let options = ["--image", drive.target.as_str()];
    let mounted = Mounted::start(home.path(), &options);
    let errno = |done: std::io::Result<()>| done.expect_err("it fails").raw_os_error();
    keep(&mounted, "a", "one").expect("there is room");
    for (on, code) in [("write", 5), ("sync", 5)] {
        fault(home.path(), &["eio", "--on", on]);
        assert_eq!(errno(keep(&mounted, "a", "two")), Some(code), "{on}");
        keep(&mounted, "a", "two").expect("the fault was for one command");
    }
    fault(home.path(), &["enospc", "--on", "write"]);
    assert_eq!(errno(keep(&mounted, "a", "two")), Some(28));

    // A sync waits for the drive; what needs no drive goes on.
    fault(home.path(), &["stall", "--for", "3600s"]);
    let path = mounted.path("a");
    let waiting = std::thread::spawn(move || File::open(path).and_then(|file| file.sync_all()));
    let file = File::options().write(true).open(mounted.path("a")).expect("it is there");
    let other = std::thread::spawn(move || file.write_all_at(b"three", 0).and_then(|()| file.sync_all()));
    fs::write(mounted.path("while"), "x").expect("writes go on");
    wait::until(|| "the stall has not struck".into(), || !fault(home.path(), &["list"]).contains("struck 0 times"));
    fault(home.path(), &["clear"]);
    waiting.join().expect("it does not panic").expect("the sync succeeds");
    other.join().expect("it does not panic").expect("the sync succeeds");

    // Half of the namespace holds the image, in which bytes take a third more.
    let big = "x".repeat(900 << 10);
    assert_eq!(errno(keep(&mounted, "big", &big)), Some(28));
    fs::remove_file(mounted.path("big")).expect("it is there");
    for round in 0..20 {
        // What is overwritten makes room again and again.
        keep(&mounted, "b", &format!("{round}").repeat(100 << 10)).expect("there is room");
    }
    mounted.signal(Signal::SIGKILL);
    let mut mounted = mounted;
    wait::end(&mut mounted.child);
    std::mem::forget(mounted);
    let mounted = Mounted::start(home.path(), &options);
    let read = |name: &str| fs::read_to_string(mounted.path(name)).expect("it was synced");
    assert_eq!((read("a"), read("b").len()), ("three".to_owned(), 200 << 10));
    let status = run_well(home.path(), &["status", "--device", "drive.sock", "--json"]);
    assert!(status.contains("\"faults_struck\""), "{status}");
}

/// The commands of the guide's section, as they stand there.
#[test]
fn the_guide_mounts_a_file_system_on_a_served_drive() {
    if !has_fuse(1) {
        return;
    }
    let page = fs::read_to_string(root().join("docs/guide/crash-testing.md")).expect("the guide is there");
    let section = page.split("## A drive beneath the mount").nth(1).expect("the section is there");
    let commands: Vec<&str> = section
        .lines()
        .skip_while(|line| !line.starts_with("    "))
        .take_while(|line| line.starts_with("    "))
        .map(str::trim)
        .collect();
    let home = TempDir::new().expect("a temporary folder");
    let (mut drive, mut mounted, mut said) = (None::<Drive>, None::<Mounted>, String::new());
    for command in commands {
        let words: Vec<&str> = command.trim_end_matches('&').split_whitespace().collect();
        match words.as_slice() {
            ["tidewater", "serve", "--control", "drive.sock", "--nvme-tcp", "127.0.0.1:4420", options @ ..] => {
                drive = Some(Drive::start(home.path(), options));
            }
            ["tidewater", "mount", "disk", "--image", "tcp:127.0.0.1:4420"] => {
                let target = drive.as_ref().expect("the drive is served before").target.clone();
                mounted = Some(Mounted::start(home.path(), &["--image", &target]));
            }
            ["tidewater", arguments @ ..] => said.push_str(&run_well(home.path(), arguments)),
            _ => {
                let path = Path::new(tidewater(home.path()).get_program()).with_file_name("");
                let path = format!("{}:{}", path.display(), std::env::var("PATH").expect("there is one"));
                let mut shell = Command::new("sh");
                let done = shell.args(["-c", command]).env("PATH", path).current_dir(home.path()).output();
                let done = done.expect("the shell starts");
                said.push_str(&text(&done.stdout));
            }
        }
    }
    assert!(said.contains("the power failed") && said.contains("struck 1 time"), "{said}");
    assert!(said.ends_with("second\n"), "{said}");
    drop(mounted);
    drop(drive);
}
