//! `tidewater serve` and the commands that talk to it, as a user meets them.

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use tempfile::TempDir;
use tidewater_driver::nvme_tcp::{Controller, Host, Queue, Transfer, discover};
use tidewater_driver::vfio_user::Socket;
use tidewater_tests::block::Loop;
use tidewater_tests::wait;
use tidewater_tests::{run, run_well, skipped, tidewater};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::nvme::{Sqe, register::offset as register};
use tidewater_wire::vfio_user::region;

#[path = "serve/commands.rs"]
mod commands;
#[path = "serve/full.rs"]
mod full;
#[path = "serve/nbd.rs"]
mod nbd;
#[path = "serve/said.rs"]
mod said;

/// Bytes of a block of the namespaces that are written here.
const BLOCK: usize = 4_096;
/// Arguments of every server here.
const PLAIN: [&str; 7] =
    ["serve", "--set", "serve.timing=none", "--control", "control.sock", "--namespaces", "rest:4k"];

/// A server. It is killed when this is dropped.
struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Its output until hosts may come.
    said: String,
    folder: PathBuf,
}

impl Served {
    /// Starts one of a tiny drive in `folder`, and waits until hosts may come.
    fn start(folder: &Path, arguments: &[&str]) -> Served {
        Served::start_plain(folder, &[&["--profile", "tiny"], arguments].concat())
    }

    /// The same, of a drive whose profile is as `arguments` say.
    fn start_plain(folder: &Path, arguments: &[&str]) -> Served {
        let errors = File::create(folder.join("stderr")).expect("the folder is writable");
        Served::start_to(folder, arguments, errors)
    }

    /// The same, with its standard error elsewhere.
    fn start_to(folder: &Path, arguments: &[&str], errors: impl Into<Stdio>) -> Served {
        Served::wait(tidewater(folder).args(PLAIN).args(arguments), folder, errors)
    }

    /// Starts it by this command, and waits until hosts may come.
    fn wait(command: &mut Command, folder: &Path, errors: impl Into<Stdio>) -> Served {
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut served = Served { child, stdout, said: String::new(), folder: folder.to_owned() };
        while !served.said.contains("SIGTERM") {
            let len = served.stdout.read_line(&mut served.said).expect("it prints UTF-8");
            assert!(len > 0, "{command:?} does not serve: {}", served.errors());
        }
        served
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }

    /// The text between two pieces of its output.
    fn between(&self, before: &str, after: &str) -> &str {
        let (_, rest) = self.said.split_once(before).unwrap_or_else(|| panic!("{before} in {}", self.said));
        rest.split(after).next().expect("a split has a first piece")
    }

    /// Where it serves NVMe/TCP.
    fn address(&self) -> SocketAddr {
        let command = self.between("nvme connect -t tcp -a ", "\n");
        let parts: Vec<&str> = command.split(' ').collect();
        format!("{}:{}", parts[0], parts[2]).parse().expect("it prints address and port")
    }

    /// As `tidewater nvme` wants it.
    fn target(&self) -> String {
        format!("tcp:{}", self.address())
    }

    /// A controller by NVMe/TCP, and an I/O queue.
    fn connect(&self) -> (Controller, Queue) {
        let name = Nqn::new(self.between(" -n ", "\n")).expect("it prints its name");
        let host = Host::new(Nqn::new("nqn.2026-01.io.example:host").expect("it is a name"), [7; 16]);
        let mut controller = Controller::connect(self.address(), &host, &name).expect("it takes hosts");
        controller.enable().expect("the controller gets ready");
        controller.set_queues(1).expect("it has queues");
        let queue = controller.queue(1, 16).expect("the queue connects");
        (controller, queue)
    }

    /// Ends it as an operator would. Tells how it ended, and what it printed meanwhile.
    fn end(mut self) -> (ExitStatus, String) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill starts");
        assert!(sent.success());
        let status = wait::end(&mut self.child);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("it prints UTF-8");
        (status, rest)
    }

    /// Ends it, and expects that it went well.
    fn end_well(self) -> String {
        let folder = self.folder.clone();
        let (status, said) = self.end();
        let errors = std::fs::read_to_string(folder.join("stderr")).unwrap_or_default();
        assert_eq!(status.code(), Some(0), "{said}{errors}");
        assert!(said.contains("clean shutdown after"), "{said}");
        assert!(!errors.contains("panicked"), "{errors}");
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // One that has ended can't be killed, and that is well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Runs `tidewater`, expects that it ends with `status`, a message with all of `words`, and nothing else; returns the
/// help.
fn refusal(folder: &Path, arguments: &[&str], status: i32, words: &[&str]) -> String {
    let output = run(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("messages are UTF-8");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default().to_owned();
    let message = line("error: ");
    assert!(words.iter().all(|word| message.contains(word)), "{arguments:?}: {said}");
    line("help: ")
}

/// [`refusal`] that says what to do.
fn refused_with_help(folder: &Path, arguments: &[&str], status: i32, words: &[&str]) {
    let help = refusal(folder, arguments, status, words);
    assert!(!help.is_empty(), "{arguments:?} is refused without help");
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let said = run_well(folder, arguments);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{said}"))
}

/// Blocks that differ from each other and from those of other seeds.
fn pattern(seed: u8, blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at / BLOCK * 7 + at % 251) as u8 ^ seed).collect()
}

fn write(queue: &mut Queue, block: u64, data: Vec<u8>) {
    let sqe = Sqe::write(0, block, (data.len() / BLOCK - 1) as u16);
    queue.call(sqe, Transfer::Out(data)).expect("the queue is connected").good().expect("a write");
}

fn read(queue: &mut Queue, block: u64, blocks: usize) -> Vec<u8> {
    let sqe = Sqe::read(0, block, (blocks - 1) as u16);
    let transfer = Transfer::In((blocks * BLOCK) as u32);
    queue.call(sqe, transfer).expect("the queue is connected").good().expect("a read").data
}

/// A device serves on when its messages have no reader.
#[test]
fn a_device_without_a_reader_of_its_messages_serves() {
    let folder = folder();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let served =
        Served::start_to(folder.path(), &["--profile", "tiny", "--image", "drive", "--vfio-user", "v"], writer);
    run_well(folder.path(), &["status", "--control", "control.sock"]);
    assert!(served.end().0.success());
}

#[test]
fn a_drive_is_attached_asked_broken_and_ended() {
    let folder = folder();
    let here = folder.path();
    let hosts = ["--nvme-tcp", "127.0.0.1:0", "--vfio-user", "vfio.sock", "--metrics", "127.0.0.1:0"];
    let served = Served::start(here, &[&["--image", "memory"], hosts.as_slice()].concat());
    for words in ["vfio-user-pci", "vfio.sock", "nvme connect -t tcp", "Metrics: http://127.0.0.1:", "Durability: "] {
        assert!(served.said.contains(words), "{words} in {}", served.said);
    }
    // What it printed is what works.
    let control = served.between("Control: tidewater ", "\n");
    let asked: Vec<&str> = control.split(' ').collect();
    assert!(run_well(here, &asked).lines().count() > 3);
    assert!(json(here, &[asked.as_slice(), &["--json"]].concat()).is_object());

    run_well(here, &["fault", "status", "--control", "control.sock", "--lba", "0..1", "--count", "1"]);
    let (mut controller, mut queue) = served.connect();
    let failed = queue.call(Sqe::read(0, 0, 0), Transfer::In(BLOCK as u32)).unwrap();
    assert_eq!((failed.status.sct(), failed.status.sc()), (2, 0x81), "Unrecovered Read Error");
    assert!(!read(&mut queue, 0, 1).is_empty(), "it was one command");
    write(&mut queue, 3, pattern(1, 2));
    assert!(read(&mut queue, 3, 2) == pattern(1, 2));
    drop(queue);
    controller.shutdown().unwrap();
    let of_it = ["--control", "control.sock"];
    run_well(here, &[["fault", "status", "--lba", "8..16"].as_slice(), &of_it].concat());
    for fault in [["delay", "--by", "1ms"].as_slice(), &["lose"], &["duplicate"], &["stuck-shutdown"]] {
        let said = run_well(here, &[&["fault"], fault, &["--control", "control.sock"]].concat());
        assert!(said.starts_with("the drive in memory behind control.sock: "), "whose drive it was: {said}");
    }
    let list = [["fault", "list"].as_slice(), &of_it].concat();
    let armed = "status 0x281 on blocks 8..16 of namespace 1, until cleared\ndelay completions of function 0 by 1ms, \
         1 \
                 left\nlose completions of function 0, 1 left\nduplicate completions of function 0, 1 left\nstuck \
                 shutdown of function 0\n";
    assert_eq!(run_well(here, &list), armed);
    assert_eq!(json(here, &[list.as_slice(), &["--json"]].concat())[1]["do"], "fault-delay");
    assert!(run_well(here, &[["fault", "clear"].as_slice(), &of_it].concat()).ends_with(": all faults cleared\n"));
    assert_eq!(run_well(here, &list), "no faults are armed\n");
    // The power comes back, and the drive with it.
    run_well(here, &["fault", "power-cut", "--control", "control.sock"]);
    let said = run_well(here, &["status", "--control", "control.sock"]);
    assert!(said.contains("control.sock"), "{said}");
    assert!(said.starts_with("Device\n  state ") && said.contains("\nHosts\n  attached functions "), "{said}");
    assert!(!said.contains("Other\n"), "every key has its group: {said}");
    refused_with_help(here, &["status", "--control", "none.sock"], 1, &["none.sock"]);
    served.end_well();
}

/// Two devices of one user, neither with a control socket of its own.
#[test]
fn a_second_device_learns_which_one_has_the_default_control_socket() {
    let folder = folder();
    let here = folder.path();
    let served = Served::start(here, &["--image", "first.img", "--vfio-user", "first.sock"]);
    let run_time = here.join("run/tidewater");
    std::fs::create_dir_all(&run_time).unwrap();
    std::fs::set_permissions(&run_time, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::hard_link(here.join("control.sock"), run_time.join("control.sock")).unwrap();
    let mut second = tidewater(here);
    second.args(["serve", "--profile", "tiny", "--image", "memory", "--vfio-user", "second.sock"]);
    let done = second.env("XDG_RUNTIME_DIR", here.join("run")).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("first.img") && said.contains("help: give this device") && said.contains("--control PATH"));
    assert_eq!(done.status.code(), Some(2), "{said}");
    served.end_well();
}

#[test]
fn a_drive_says_what_it_is() {
    let folder = folder();
    let here = folder.path();
    let hosts = ["--nvme-tcp", "127.0.0.1:0", "--vfio-user", "vfio.sock"];
    let served = Served::start(here, &[&["--image", "memory"], hosts.as_slice()].concat());
    let by_tcp = served.target();
    for target in [by_tcp.as_str(), "vfio-user:vfio.sock"] {
        let controller = json(here, &["nvme", "id-ctrl", target, "--json"]);
        assert_eq!(controller["subnqn"], served.between(" -n ", "\n"), "{target}");
        let text = run_well(here, &["nvme", "id-ctrl", target]);
        assert!(text.lines().all(|line| line.split_once(" : ").is_some()), "{text}");
        assert!(text.contains(controller["sn"].as_str().unwrap()), "{text}");

        let list = json(here, &["nvme", "list", target, "--json"]);
        let namespace = json(here, &["nvme", "id-ns", target, "--json"]);
        assert_eq!(list["namespace"][0]["nsid"], 1);
        assert_eq!(list["namespace"][0]["sector_size"], BLOCK);
        let bytes = namespace["nsze"].as_u64().unwrap() * BLOCK as u64;
        assert_eq!(list["namespace"][0]["physical_size"], bytes);
        assert!(namespace["lbaf"].as_array().unwrap().iter().any(|format| format["in_use"] == true));

        let health = json(here, &["nvme", "smart-log", target, "--json"]);
        assert_eq!((&health["critical_warning"], &health["avail_spare"]), (&0.into(), &100.into()), "{target}");
        assert!(run_well(here, &["nvme", "smart-log", target]).contains("temperature"));
        assert_eq!(json(here, &["nvme", "id-ctrl", target, "-o", "json"]), controller, "as nvme-cli takes it");
        assert_eq!(json(here, &["nvme", "error-log", target, "--json"])["entry"], Value::Array(Vec::new()));
        refused_with_help(here, &["nvme", "id-ns", target, "--nsid", "9"], 1, &["namespace 9"]);
    }
    // Reading by vfio-user is no unsafe shutdown, and leaves nothing that the next one trips over.
    let health = json(here, &["nvme", "smart-log", &by_tcp, "--json"]);
    assert_eq!(health["unsafe_shutdowns"], 0);

    // A drive without a fast side has no such page, and no second client may disturb the one that is attached.
    refused_with_help(here, &["nvme", "fast-status", &by_tcp], 1, &["Fast Status", "Invalid Log Page"]);
    let mut client = Socket::connect(&here.join("vfio.sock")).unwrap();
    let version = u64::from(register::VS);
    let before = client.read_u32(region::BAR0, version).unwrap();
    refused_with_help(here, &["nvme", "id-ctrl", "vfio-user:vfio.sock"], 1, &["in use", "one at a time"]);
    assert_eq!(client.read_u32(region::BAR0, version).unwrap(), before, "the first client is still served");
    drop(client);

    refused_with_help(here, &["nvme", "id-ctrl", "vfio-user:none.sock"], 1, &["none.sock"]);
    refused_with_help(here, &["nvme", "id-ctrl", "tcp:127.0.0.1:1"], 1, &["127.0.0.1:1"]);
    refused_with_help(here, &["nvme", "id-ctrl", "tcp:127.0.0.1"], 2, &["not a host and port"]);
    refused_with_help(here, &["nvme", "id-ctrl", "nvme0"], 2, &["not a valid target"]);
    refused_with_help(here, &["nvme", "id-ctrl", &by_tcp, "--host-nqn", "me"], 2, &["not an NQN"]);
    served.end_well();
}

#[test]
fn the_fast_side_says_how_it_is() {
    let folder = folder();
    let here = folder.path();
    let fast = [
        "--image",
        "memory",
        "--set",
        "fast.size=32KiB",
        "--set",
        "fast.queue_size=16KiB",
        "--set",
        "fast.log_size=1MiB",
        "--allow-destructive",
    ];
    let hosts = ["--nvme-tcp", "127.0.0.1:0", "--vfio-user", "vfio.sock"];
    let served = Served::start(here, &[fast.as_slice(), &hosts].concat());
    for target in [served.target().as_str(), "vfio-user:vfio.sock"] {
        let status = json(here, &["nvme", "fast-status", target, "--json"]);
        assert_eq!((status["function"].as_u64(), status["status"].as_str()), (Some(0), Some("ok")), "{status}");
        let layout = json(here, &["nvme", "fast-layout", target, "--json"]);
        assert!(layout["bar_bytes"].as_u64() > Some(0), "{layout}");
        assert_eq!(layout["lanes"], status["lanes"]);
        assert_eq!(layout["lane"].as_array().map(Vec::len), Some(layout["lanes"].as_u64().unwrap() as usize));
    }
    served.end_well();
}

#[test]
fn only_hosts_that_are_named_are_let_in() {
    let folder = folder();
    let here = folder.path();
    let name = "nqn.2026-01.io.example:mine";
    let served = Served::start(here, &["--image", "memory", "--nvme-tcp", "127.0.0.1:0", "--allow-host", name]);
    let target = served.target();
    refused_with_help(here, &["nvme", "id-ctrl", &target], 1, &["Invalid Host"]);
    run_well(here, &["nvme", "id-ctrl", &target, "--host-nqn", name]);
    served.end_well();
}

/// Behind address translation no host reaches the address that the device sees.
#[test]
fn discovery_tells_the_address_that_was_given() {
    let folder = folder();
    let here = folder.path();
    let hosts = ["--image", "memory", "--nvme-tcp", "127.0.0.1:0"];
    let found = |served: &Served| {
        let host = Host::new(Nqn::new("nqn.2026-01.io.example:host").expect("it is a name"), [7; 16]);
        let entries = discover(served.address(), &host).expect("the controller answers");
        entries.iter().map(|entry| format!("{} {}", entry.address, entry.port)).collect::<Vec<_>>()
    };
    let served = Served::start(here, &hosts);
    assert_eq!(found(&served), [format!("127.0.0.1 {}", served.address().port())]);
    served.end_well();
    for (given, expected) in [("192.0.2.7:4421", "192.0.2.7 4421"), ("[2001:db8::7]:4420", "2001:db8::7 4420")] {
        let served = Served::start(here, &[&hosts[..], &["--discovery-address", given]].concat());
        assert_eq!(found(&served), [expected]);
        served.end_well();
    }
    let serve = ["serve", "--profile", "tiny", "--image", "memory"];
    for nowhere in ["0.0.0.0:4420", "192.0.2.7:0", "[::]:4420"] {
        let given = ["--nvme-tcp", "127.0.0.1:0", "--discovery-address", nowhere];
        refused_with_help(here, &[&serve[..], &given].concat(), 2, &[nowhere, "no host can connect"]);
    }
    let alone = ["--vfio-user", "v.sock", "--discovery-address", "192.0.2.7:4420"];
    refusal(here, &[&serve[..], &alone].concat(), 2, &["--nvme-tcp"]);
}

#[test]
fn an_image_keeps_what_was_written() {
    let folder = folder();
    let here = folder.path();
    let image = ["--image", "drive.img", "--nvme-tcp", "127.0.0.1:0"];
    let served = Served::start(here, &image);
    let serial = json(here, &["nvme", "id-ctrl", &served.target(), "--json"])["sn"].clone();
    let (_controller, mut queue) = served.connect();
    write(&mut queue, 0, pattern(1, 16));
    write(&mut queue, 100, pattern(2, 8));
    // The host has said nothing of an end: a clean end writes it all the same.
    served.end_well();

    let served = Served::start(here, &image);
    assert_eq!(json(here, &["nvme", "id-ctrl", &served.target(), "--json"])["sn"], serial, "it is the same drive");
    let (_controller, mut queue) = served.connect();
    assert!(read(&mut queue, 0, 16) == pattern(1, 16));
    assert!(read(&mut queue, 100, 8) == pattern(2, 8));
    write(&mut queue, 4, pattern(3, 4));
    queue.call(Sqe::flush(0), Transfer::None).unwrap().good().unwrap();
    // Killed: what was flushed is there.
    drop(served);

    let served = Served::start(here, &image);
    assert!(served.errors().contains("recovered"), "{}", served.errors());
    let (_controller, mut queue) = served.connect();
    assert!(read(&mut queue, 4, 4) == pattern(3, 4));
    assert!(read(&mut queue, 0, 4) == pattern(1, 4));
    served.end_well();
}

#[test]
fn a_second_server_is_turned_away() {
    let folder = folder();
    let here = folder.path();
    let first = Served::start(here, &["--image", "drive.img", "--vfio-user", "vfio.sock", "--nvme-tcp", "127.0.0.1:0"]);
    let address = first.address().to_string();
    let second = |arguments: &[&str], words: &[&str]| {
        let own = ["serve", "--profile", "tiny", "--control", "other.sock"];
        refused_with_help(here, &[own.as_slice(), arguments].concat(), 2, words);
    };
    second(&["--image", "drive.img", "--vfio-user", "other-vfio.sock"], &["drive.img", "another process"]);
    second(&["--image", "memory", "--vfio-user", "vfio.sock"], &["vfio.sock", "another process"]);
    second(&["--image", "memory", "--nvme-tcp", &address], &[&address]);
    let control =
        ["serve", "--profile", "tiny", "--image", "memory", "--vfio-user", "v.sock", "--control", "control.sock"];
    refusal(here, &control, 2, &["control.sock"]);
    // The first has noticed nothing.
    run_well(here, &["status", "--control", "control.sock"]);
    run_well(here, &["nvme", "id-ctrl", "vfio-user:vfio.sock"]);
    first.end_well();
}

#[test]
fn what_cannot_be_served_is_said() {
    let folder = folder();
    let here = folder.path();
    let served = Served::start(here, &["--image", "drive.img", "--nvme-tcp", "127.0.0.1:0"]);
    served.end_well();
    std::fs::write(here.join("garbage.img"), b"#!/bin/sh\n".repeat(4_000)).unwrap();
    std::os::unix::fs::symlink("drive.img", here.join("link.img")).unwrap();
    std::fs::write(here.join("plain"), "no socket").unwrap();

    let wrong = |arguments: &[&str], words: &[&str]| {
        let own = ["serve", "--control", "other.sock"];
        refused_with_help(here, &[own.as_slice(), arguments].concat(), 2, words);
    };
    let tiny = |image| ["--profile", "tiny", "--vfio-user", "v.sock", "--image", image];
    let with = |image, more: &[&'static str]| [tiny(image).as_slice(), more].concat();
    wrong(&["--profile", "tiny", "--image", "memory"], &["no way to reach"]);
    wrong(&["--vfio-user", "v.sock"], &["--image"]);
    wrong(&["--profile", "none", "--vfio-user", "v.sock", "--image", "memory"], &["no profile `none`"]);
    let other = ["--profile", "generic", "--vfio-user", "v.sock", "--image", "drive.img"];
    wrong(&other, &["drive.img", "was created with"]);
    wrong(&tiny("garbage.img"), &["garbage.img", "not a drive image"]);
    wrong(&tiny("link.img"), &["link.img", "symbolic link"]);
    wrong(&tiny("."), &["folder"]);
    wrong(&with("memory", &["--nvme-tcp", "0.0.0.0:4420"]), &["0.0.0.0:4420"]);
    wrong(&with("memory", &["--nvme-tcp", "nowhere"]), &["nowhere"]);
    wrong(&with("memory", &["--metrics", "192.0.2.1:9464"]), &["loopback"]);
    wrong(&with("memory", &["--insecure-bind"]), &["--nvme-tcp"]);
    wrong(&with("memory", &["--nvme-tcp", "127.0.0.1:0", "--allow-host", "me"]), &["`me`"]);
    wrong(&with("memory", &["--size", "8MiB", "--namespaces", "1GiB"]), &["namespace"]);
    wrong(&with("memory", &["--size", "none"]), &["none"]);
    wrong(&with("memory", &["--namespaces", "1GiB:3k"]), &["512 or 4k"]);
    wrong(&with("memory", &["--set", "serve.timing=soon"]), &["[serve] timing", "soon"]);
    wrong(&with("drive.img", &["--input-log", "run.log"]), &["input log", "new drive"]);
    assert!(!here.join("run.log").exists(), "nothing half-written is left");
    wrong(&["--profile", "tiny", "--image", "memory", "--vfio-user", "plain"], &["plain", "not a socket"]);
    assert_eq!(std::fs::read_to_string(here.join("plain")).unwrap(), "no socket");
    // None of them has harmed the drive.
    Served::start(here, &["--image", "drive.img", "--nvme-tcp", "127.0.0.1:0"]).end_well();
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("plain"), "no socket").unwrap();
    let own = ["serve", "--profile", "tiny", "--image", "drive.img", "--control", "control.sock"];
    let refused = |more: &[&str], words: &[&str]| {
        refused_with_help(here, &[own.as_slice(), more].concat(), 2, words);
        let left: Vec<_> = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["plain"], "{more:?}");
    };
    // The image has been made when these are noticed, and of the last the control socket too.
    refused(&["--size", "8MiB", "--nvme-tcp", "192.0.2.1:4420"], &["192.0.2.1:4420"]);
    refused(&["--size", "8MiB", "--vfio-user", "v.sock", "--namespaces", "1GiB"], &["namespace"]);
    refused(
        &["--size", "8MiB", "--vfio-user", "v.sock", "--vfio-user", "plain", "--input-log", "run.log"],
        &["plain", "not a socket"],
    );
    // So the next one is of the size that it asks for.
    let served = Served::start(here, &["--image", "drive.img", "--size", "12MiB", "--nvme-tcp", "127.0.0.1:0"]);
    let bytes = json(here, &["nvme", "list", &served.target(), "--json"])["namespace"][0]["physical_size"].clone();
    assert!(bytes.as_u64() >= Some(12 << 20), "{bytes}");
    served.end_well();
    // What a refused start has found stays.
    let again = ["serve", "--image", "drive.img", "--control", "control.sock", "--nvme-tcp", "192.0.2.1:4420"];
    refused_with_help(here, &again, 2, &["192.0.2.1:4420"]);
    assert!(here.join("drive.img").exists() && !here.join("control.sock").exists());
}

#[test]
fn a_block_device_holds_a_drive() {
    let folder = folder();
    let here = folder.path();
    let device = match Loop::new(&here.join("medium"), 64 << 20) {
        Ok(device) => device,
        Err(why) => return skipped(1, &format!("a drive on a block device: {why}")),
    };
    let own = ["serve", "--profile", "tiny", "--image", &device.0, "--control", "control.sock"];
    let begins = || std::fs::read(here.join("medium")).unwrap()[..4_096].iter().any(|&byte| byte != 0);
    // A start that is refused leaves it as empty as it was.
    refused_with_help(here, &[own.as_slice(), &["--nvme-tcp", "192.0.2.1:4420"]].concat(), 2, &["192.0.2.1:4420"]);
    Command::new("sync").status().expect("sync starts");
    assert!(!begins() && Path::new(&device.0).exists());
    let hosts = ["--image", &device.0, "--nvme-tcp", "127.0.0.1:0"];
    let served = Served::start(here, &hosts);
    let (_controller, mut queue) = served.connect();
    write(&mut queue, 0, pattern(1, 4));
    drop(queue);
    served.end_well();
    assert!(begins());
    let served = Served::start_plain(here, &hosts);
    let (_controller, mut queue) = served.connect();
    assert!(read(&mut queue, 0, 4) == pattern(1, 4));
    drop(queue);
    served.end_well();
    // What holds something else is left alone.
    std::fs::write(&device.0, b"some other file system here".repeat(200)).unwrap();
    let again = [own.as_slice(), &["--nvme-tcp", "127.0.0.1:0"]].concat();
    refused_with_help(here, &again, 2, &[&device.0, "not a drive image"]);
}

#[test]
fn an_image_brings_its_profile() {
    let folder = folder();
    let here = folder.path();
    let hosts = ["--image", "drive.img", "--nvme-tcp", "127.0.0.1:0"];
    Served::start(here, &hosts).end_well();
    // Without --profile, and with a setting of this time.
    let served = Served::start_plain(here, &[hosts.as_slice(), &["--set", "serve.timing=none"]].concat());
    let image = here.join("drive.img").display().to_string();
    let said = run_well(here, &["fault", "clear", "--control", "control.sock"]);
    assert!(said.contains(&image), "the answer names the image by its whole path: {said}");
    assert_eq!(json(here, &["status", "--control", "control.sock", "--json"])["image"], image);
    let (_controller, mut queue) = served.connect();
    write(&mut queue, 0, pattern(1, 4));
    assert!(read(&mut queue, 0, 4) == pattern(1, 4));
    drop(queue);
    served.end_well();
    // Another one's shape is refused, and a new drive is `generic`.
    let generic = ["serve", "--profile", "generic", "--control", "other.sock"];
    refused_with_help(here, &[generic.as_slice(), &hosts].concat(), 2, &["drive.img", "was created with"]);
    let memory = ["--image", "memory", "--size", "64MiB", "--nvme-tcp", "127.0.0.1:0"];
    let served = Served::start_plain(here, &memory);
    let said = served.said.clone() + &served.errors();
    assert_eq!(said.matches("write buffer").count(), 1, "said once: {said}");
    served.end_well();
}

/// A host has no answer to what the log does not have.
#[test]
fn the_input_log_of_a_device_that_was_killed_can_be_run_again() {
    let folder = folder();
    let here = folder.path();
    let files = ["--image", "memory", "--nvme-tcp", "127.0.0.1:0", "--input-log", "run.log"];
    let mut served = Served::start(here, &files);
    let (_controller, mut queue) = served.connect();
    let mut before = std::fs::metadata(here.join("run.log")).unwrap().len();
    for round in 0..8 {
        write(&mut queue, round * 16, pattern(round as u8, 16));
        let after = std::fs::metadata(here.join("run.log")).unwrap().len();
        assert!(after > before, "write {round} has an answer, and {before} bytes are in the file");
        before = after;
    }
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let said = run_well(here, &["rerun", "run.log"]);
    assert!(said.contains("all identical"), "{said}");
    // The last entry was cut short: what came before it can be run.
    let log = std::fs::read(here.join("run.log")).unwrap();
    std::fs::write(here.join("run.log"), &log[..log.len() - 1]).unwrap();
    refusal(here, &["rerun", "run.log"], 1, &["ends within an entry", "inputs before it gave the same outputs"]);
}

#[test]
fn what_was_served_can_be_replayed_and_run_again() {
    let folder = folder();
    let here = folder.path();
    let files = ["--trace", "run.trace", "--input-log", "run.log"];
    let served = Served::start(here, &[&["--image", "memory", "--nvme-tcp", "127.0.0.1:0"], files.as_slice()].concat());
    let (mut controller, mut queue) = served.connect();
    for round in 0..8 {
        write(&mut queue, round * 16, pattern(round as u8, 16));
        assert!(read(&mut queue, round * 8, 4).len() == 4 * BLOCK);
    }
    queue.call(Sqe::flush(0), Transfer::None).unwrap().good().unwrap();
    drop(queue);
    controller.shutdown().unwrap();
    let ended = served.end_well();
    assert!(ended.contains("8 reads, 8 writes"), "{ended}");

    let record = json(here, &["replay", "--profile", "tiny", "--trace", "run.trace", "--json", "-"]);
    assert_eq!(record["requests"], 17, "reads, writes and the flush");

    let said = run_well(here, &["rerun", "run.log"]);
    assert!(said.contains("all identical"), "{said}");
    let log = std::fs::read(here.join("run.log")).unwrap();
    // A log that was cut is none, and what is no log is none.
    let text = String::from_utf8_lossy(&log).into_owned();
    assert!(text.contains("\"seed\":1"), "the header says what drive it was");
    std::fs::write(here.join("cut.log"), &log[..20]).unwrap();
    std::fs::write(here.join("noise.log"), b"no log at all").unwrap();
    refusal(here, &["rerun", "cut.log"], 1, &["cut.log", "ends"]);
    refusal(here, &["rerun", "noise.log"], 1, &["noise.log", "not an input log"]);
    refusal(here, &["rerun", "none.log"], 2, &["none.log"]);
    let mut changed = log.clone();
    changed.remove(log.len() / 2);
    std::fs::write(here.join("changed.log"), &changed).unwrap();
    refusal(here, &["rerun", "changed.log"], 1, &["changed.log"]);
}
