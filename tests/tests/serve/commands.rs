//! `serve --commands`: what hosts sent, as text and as Wireshark's dissectors see it.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

/// A session over vfio-user and one over NVMe/TCP, with a command that fails in each. Returns what the device said of
/// its file of commands.
fn session(here: &Path, file: &str) -> Value {
    session_with(here, file, || {})
}

/// The same, with what is done as soon as the device serves.
fn session_with(here: &Path, file: &str, served_now: impl FnOnce()) -> Value {
    let hosts = ["--nvme-tcp", "127.0.0.1:0", "--vfio-user", "vfio.sock"];
    let served = Served::start(here, &[&["--image", "memory", "--commands", file], hosts.as_slice()].concat());
    served_now();
    for what in ["id-ctrl", "list", "smart-log"] {
        run_well(here, &["nvme", what, "vfio-user:vfio.sock"]);
    }
    let (mut controller, mut queue) = served.connect();
    write(&mut queue, 3, pattern(1, 2));
    assert!(read(&mut queue, 3, 2) == pattern(1, 2));
    run_well(here, &["fault", "status", "--control", "control.sock", "--lba", "0..1", "--count", "1"]);
    let failed = queue.call(Sqe::read(0, 0, 0), Transfer::In(BLOCK as u32)).unwrap();
    assert_eq!((failed.status.sct(), failed.status.sc()), (2, 0x81), "Unrecovered Read Error");
    let far = queue.call(Sqe::read(0, 1 << 40, 0), Transfer::In(BLOCK as u32)).unwrap();
    assert_eq!((far.status.sct(), far.status.sc()), (0, 0x80), "LBA Out of Range");
    queue.call(Sqe::flush(0), Transfer::None).expect("the queue is connected").good().expect("a flush");
    let status = json(here, &["status", "--control", "control.sock", "--json"]);
    drop(queue);
    controller.shutdown().unwrap();
    served.end_well();
    status
}

#[test]
fn commands_are_written_as_lines_that_name_opcode_and_status() {
    let folder = folder();
    let status = session(folder.path(), "seen.txt");
    assert_eq!(status["command_events_dropped"], 0);
    let file = folder.path().join("seen.txt");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(file).unwrap();
    for words in [
        "cmd=(Identify cns=0x01",
        "cmd=(Get Log Page lid=0x02, bytes=512",
        "cmd=(Write slba=3, blocks=2",
        "cmd=(Read slba=1099511627776, blocks=1",
        "cmd=(Flush)",
        "(Unrecovered Read Error), took_us=",
        "(LBA Out of Range), took_us=",
        "gone: function=0, all queues",
        ", 0 events dropped\n",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let count = |word: &str| text.matches(word).count();
    // Asynchronous Event Requests have no end, and no other command has none.
    let parked = count("cmd=(Asynchronous Event Request") - count("cmd=(Asynchronous Event Request),");
    assert_eq!(count("nvme_setup_cmd: "), count("nvme_complete_rq: ") + parked, "{text}");

    let refused = |file: &str| {
        let line = ["serve", "--image", "memory", "--vfio-user", "v.sock", "--size", "64MiB", "--commands", file];
        refused_with_help(folder.path(), &line, 2, &["neither in .pcapng nor in .txt"]);
    };
    refused("seen.log");
    refused("seen");
}

/// A capture as dissected by `tshark`: a line for each packet, with these fields.
fn dissected(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(capture).args(["-Y", filter, "-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("fields are UTF-8");
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

#[test]
fn wireshark_decodes_the_capture_without_a_malformed_packet() {
    let folder = folder();
    session(folder.path(), "seen.pcapng");
    decodes_well(&folder.path().join("seen.pcapng"));
}

/// A reader has the whole session; one that reads nothing beside it keeps no command waiting.
#[test]
fn those_who_connect_to_a_socket_of_commands_get_a_capture() {
    let folder = folder();
    let socket = folder.path().join("seen.sock");
    let (mut reader, mut stalled) = (None, None);
    let status = session_with(folder.path(), "unix:seen.sock", || {
        let mode = std::os::unix::fs::PermissionsExt::mode(&socket.metadata().expect("a socket").permissions());
        assert_eq!(mode & 0o777, 0o600);
        stalled = Some(UnixStream::connect(&socket).expect("the server listens"));
        let mut stream = UnixStream::connect(&socket).expect("the server listens");
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("a section header comes at once");
        assert_eq!(head[..4], 0x0A0D_0D0A_u32.to_le_bytes());
        reader = Some(std::thread::spawn(move || {
            let mut bytes = head.to_vec();
            stream.read_to_end(&mut bytes).expect("it comes to its end");
            bytes
        }));
    });
    assert_eq!(status["command_events_dropped"], 0);
    assert!(status["command_events_written"].as_u64().is_some_and(|count| count > 50), "{status}");
    assert!(!socket.exists(), "the socket goes with the device");
    let capture = folder.path().join("read.pcapng");
    std::fs::write(&capture, reader.expect("it began").join().expect("it read")).expect("a folder");
    decodes_well(&capture);
}

/// Wireshark's dissectors find nothing wrong with it.
fn decodes_well(capture: &Path) {
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return skipped(1, "no tshark here, so no dissector read the capture (apt-get install tshark)");
    }
    let all = dissected(capture, "frame", &["frame.number"]).len();
    let capsules = dissected(capture, "nvme-tcp.type == 4 || nvme-tcp.type == 5", &["frame.number"]).len();
    let malformed = dissected(capture, "_ws.malformed", &["frame.number"]).len();
    println!("tshark: {all} packets, {capsules} capsules, malformed {malformed}");
    assert_eq!(malformed, 0);
    assert!(capsules > 40 && all > capsules, "{all} packets, {capsules} capsules");
    assert_eq!(dissected(capture, "tcp.analysis.flags", &["frame.number"]).len(), 0, "numbers of TCP go on");
    let queues = dissected(capture, "nvme.cqe.status.sc == 0x80", &["tcp.stream"]);
    assert_eq!(queues.len(), 1);
    let mut opcodes: BTreeMap<String, usize> = BTreeMap::new();
    for row in dissected(capture, "nvme.cmd.opc", &["nvme.cmd.opc"]) {
        *opcodes.entry(row[0].clone()).or_default() += 1;
    }
    println!("{opcodes:?}");
}

#[test]
fn a_place_for_commands_that_is_not_there_is_named_once_with_its_option() {
    let folder = folder();
    for (place, named) in [("unix:none/seen.sock", "none/seen.sock"), ("none/seen.txt", "none/seen.txt")] {
        let hosts = ["--image", "memory", "--size", "64MiB", "--nvme-tcp", "127.0.0.1:0"];
        let output = run(folder.path(), &[["serve", "--commands", place].as_slice(), &hosts].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.starts_with("error: --commands: "), "{said}");
        assert_eq!(line.matches(named).count(), 1, "{said}");
    }
}
