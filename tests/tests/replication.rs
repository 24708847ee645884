//! Logs on several served devices: what replicas acknowledged is there when the primary's machine is gone, and nothing
//! that a deposed primary takes is acknowledged.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Entry, Level, LogError, Records};
use tidewater_tests::ring::Device;
use tidewater_tests::{Build, run_refused, run_well, shim, tidewater};

const PATIENCE: Duration = Duration::from_secs(60);

/// Devices of one group on loopback, each in a folder of its own.
struct Cluster {
    folder: TempDir,
    address: String,
    devices: Vec<Option<Device>>,
}

impl Cluster {
    /// Devices that are in no group yet.
    fn new(nodes: u8) -> Cluster {
        // All of 127/8 is loopback: each process of tests has an address of its own, and each of its clusters ports.
        static PORT: AtomicU16 = AtomicU16::new(20_000);
        let pid = std::process::id();
        let port = PORT.fetch_add(16, Ordering::Relaxed);
        let address = format!("127.{}.{}.{}:{port}", 1 + (pid >> 16 & 127), pid >> 8 & 255, 1 + (pid & 127) * 2);
        shim();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut cluster = Cluster { folder, address, devices: (0..nodes).map(|_| None).collect() };
        (0..nodes).for_each(|node| cluster.start(node));
        cluster
    }

    fn at(&self, node: u8) -> String {
        let (host, port) = self.address.split_once(':').expect("host and port");
        format!("{host}:{}", port.parse::<u16>().expect("a port") + u16::from(node))
    }

    fn path(&self, node: u8) -> PathBuf {
        self.folder.path().join(node.to_string())
    }

    fn start(&mut self, node: u8) {
        let errors = OpenOptions::new().create(true).append(true).open(self.folder.path().join("stderr"));
        let mut command = tidewater(Build::Same, self.folder.path());
        command.args(["log-device", &node.to_string()]);
        command.args(["--node", &node.to_string(), "--peer-listen", &self.at(node)]);
        for peer in (0..self.devices.len() as u8).filter(|peer| *peer != node) {
            command.args(["--peer", &format!("{peer}={}", self.at(peer))]);
        }
        let child = command.stdout(Stdio::piped()).stderr(errors.expect("a folder")).spawn().expect("it starts");
        self.devices[usize::from(node)] = Some(Device::served(child, self.folder.path()));
    }

    /// Puts all into one group, whose primary is node 0.
    fn form(&self, mode: &[&str]) {
        let nodes: Vec<String> = (0..self.devices.len()).map(|node| node.to_string()).collect();
        let members = nodes.join(",");
        for node in nodes.iter().rev() {
            let primary: &[&str] = if node == "0" { &["--primary"] } else { &[] };
            let line = [&["group", "form", "--control", node, "--members", &members], mode, primary].concat();
            run_well(self.folder.path(), &line);
        }
    }

    fn status(&self, node: u8) -> serde_json::Value {
        let line = ["group", "status", "--json", "--control", &node.to_string()];
        serde_json::from_str(&run_well(self.folder.path(), &line)).expect("a document")
    }

    fn promote(&self, node: u8) {
        let said = run_well(self.folder.path(), &["group", "promote", "--control", &node.to_string()]);
        assert!(said.contains("is primary of epoch"), "{said}");
    }

    /// Ends a device (SIGKILL).
    fn kill(&mut self, node: u8) {
        self.devices[usize::from(node)].take().expect("it runs").kill();
    }

    fn signal(&self, node: u8, signal: Signal) {
        let device = self.devices[usize::from(node)].as_ref().expect("it runs");
        kill(device.pid(), signal).expect("it is our child");
    }

    fn open(&self, node: u8, level: Level) -> Result<Log, LogError> {
        let target = format!("vfio-user:{}", self.path(node).join("vfio.sock").display());
        Log::open(&target, Options { level: Some(level), ..Options::default() })
    }

    fn log(&self, node: u8) -> Log {
        self.open(node, Level::RemoteRing).expect("a log")
    }

    fn until(&self, node: u8, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        let start = Instant::now();
        while !is_so(&self.status(node)) {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.status(node));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Appends a number, and waits until replicas have it.
fn append(log: &Log, number: u64, timeout: Duration) -> Result<(), LogError> {
    let end = log.append(&[&number.to_le_bytes()])?.end;
    log.wait(end, Level::RemoteRing, timeout)
}

/// The numbers in a log, from its begin.
fn numbers(log: &Log) -> Vec<u64> {
    let (from, to) = (log.status().device.expect("it answers").lane[0].readable, log.tail());
    let mut bytes = vec![0; (to - from) as usize];
    log.x_pread(from, &mut bytes, PATIENCE).expect("it is all there");
    let number = |entry| match entry {
        Entry::Record { payload, .. } => Some(u64::from_le_bytes(payload.try_into().expect("eight bytes"))),
        _ => None,
    };
    Records::new(&bytes, from).filter_map(number).collect()
}

#[test]
fn acknowledged_records_outlive_the_primarys_machine() {
    for (mode, goes_on) in
        [(&["--mode", "eager"][..], false), (&["--mode", "chain"], false), (&["--mode", "quorum"], true)]
    {
        let mut cluster = Cluster::new(3);
        cluster.form(mode);
        let log = cluster.log(0);
        let mut acknowledged = 0;
        std::thread::scope(|scope| {
            let appender = scope.spawn(|| {
                let mut number = 0;
                while append(&log, number, Duration::from_millis(500)).is_ok() {
                    number += 1;
                }
                number
            });
            let start = Instant::now();
            while log.end() < 40_000 {
                assert!(start.elapsed() < PATIENCE, "it stands still at {}: {}", log.end(), cluster.status(0));
                std::thread::sleep(Duration::from_millis(1));
            }
            cluster.kill(0);
            acknowledged = appender.join().expect("it ends");
        });
        drop(log);
        // Nothing of the machine is left.
        std::fs::remove_dir_all(cluster.path(0)).expect("it was there");
        cluster.promote(1);
        let log = cluster.open(1, Level::Ring).expect("a log");
        let found = numbers(&log);
        assert!(acknowledged > 100 && found.len() as u64 >= acknowledged, "{} of {acknowledged}", found.len());
        assert!(found.iter().copied().eq(0..found.len() as u64), "{found:?}");
        // With one of three gone, a quorum of two acknowledges, and all three can't.
        let outcome = append(&log, found.len() as u64, Duration::from_secs(if goes_on { 30 } else { 2 }));
        match outcome {
            Ok(()) => assert!(goes_on, "{mode:?}"),
            Err(LogError::ReplicasLate { late, .. }) => assert!(!goes_on && late.contains('0'), "{mode:?}: {late}"),
            Err(error) => panic!("{mode:?}: {error}"),
        }
    }
}

#[test]
fn a_deposed_primary_acknowledges_nothing() {
    let cluster = Cluster::new(3);
    cluster.form(&["--mode", "quorum"]);
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("all are there");
    cluster.signal(0, Signal::SIGSTOP);
    cluster.promote(1);
    // The program appends while its device stands still, and the device goes on afterwards.
    let late = log.append(&[&1u64.to_le_bytes()]).expect("the ring takes it").end;
    cluster.signal(0, Signal::SIGCONT);
    let outcome = log.wait(late, Level::RemoteRing, Duration::from_secs(20));
    assert!(matches!(outcome, Err(LogError::Secondary | LogError::Stale)), "{outcome:?}");
    drop(log);
    cluster.until(0, "it follows the new primary", |status| status["groups"][0]["role"] == "secondary");
    cluster.until(1, "node 0 is in step", |status| {
        let replicas = status["groups"][0]["replicas"].as_array().expect("a list");
        replicas.iter().all(|replica| replica["state"] == "in step" && replica["behind_bytes"] == 0)
    });
    let log = cluster.log(1);
    append(&log, 2, PATIENCE).expect("all are there");
    assert_eq!(numbers(&log), [0, 2]);
}

#[test]
fn a_replica_that_was_away_catches_up_and_is_named_while_it_is() {
    let mut cluster = Cluster::new(2);
    cluster.form(&["--mode", "eager"]);
    let log = cluster.log(0);
    append(&log, 0, PATIENCE).expect("all are there");
    cluster.kill(1);
    let end = log.append(&[&1u64.to_le_bytes()]).expect("the ring takes it").end;
    match log.wait(end, Level::RemoteRing, Duration::from_secs(2)) {
        Err(LogError::ReplicasLate { late, .. }) => assert_eq!(late, "1"),
        other => panic!("{other:?}"),
    }
    let said = run_well(cluster.folder.path(), &["group", "status", "--control", "0"]);
    assert!(said.contains("peer 1") && said.contains("away for"), "{said}");
    cluster.start(1);
    log.wait(end, Level::RemoteRing, PATIENCE).expect("it has come back");
    append(&log, 2, PATIENCE).expect("all are there");
    assert_eq!(numbers(&log), [0, 1, 2]);
}

#[test]
fn what_has_no_replicas_or_is_one_is_refused_by_name() {
    let cluster = Cluster::new(2);
    let refused = |node, level| cluster.open(node, level).map(drop).expect_err("it is refused").to_string();
    assert!(refused(0, Level::RemoteRing).contains("no peers"));
    cluster.form(&["--mode", "lazy"]);
    assert!(refused(0, Level::RemoteRing).contains("lazy"));
    assert!(refused(1, Level::Ring).contains("secondary"));
    let run = ["run", "--device", "1", "--log", "x", "--", "true"];
    let said = run_refused(cluster.folder.path(), &run);
    assert!(said.contains("secondary") && said.contains("tidewater group"), "{said}");
    let said =
        run_refused(cluster.folder.path(), &["group", "form", "--control", "0", "--members", "0,7", "--mode", "eager"]);
    assert!(said.contains("node 7") && said.contains("--peer 7="), "{said}");
}

/// The files are what the program synced, after the primary's machine is gone and the new primary's has them on a disk
/// that both can reach. What a program has synced to the files itself is trimmed on the replicas, too.
#[test]
fn a_programs_files_are_recovered_on_the_new_primary() {
    let mut cluster = Cluster::new(3);
    cluster.form(&["--mode", "quorum"]);
    let folder = cluster.folder.path().to_owned();
    let program = "for i in 1 2 3 4 5 6 7 8; do echo line $i >> app.log; sync -d app.log; done";
    let run = |program: &str| {
        let mut command = tidewater(Build::Same, &folder);
        command.args(["run", "--device", "0", "--level", "remote-ring", "--log", "app.log", "--", "sh", "-c", program]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    // A run that ends well leaves an empty log, on the replicas as well.
    let output = run(program).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut program: Child = run(&format!("{program}; touch done; exec sleep 1000")).spawn().expect("it starts");
    let start = Instant::now();
    while !folder.join("done").exists() {
        assert!(start.elapsed() < PATIENCE, "the program does not come to its end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let synced = std::fs::read_to_string(folder.join("app.log")).expect("the file");
    cluster.kill(0);
    kill(Pid::from_raw(program.id() as i32), Signal::SIGTERM).expect("it is our child");
    let _ = program.wait();
    std::fs::remove_dir_all(cluster.path(0)).expect("it was there");
    // Its machine's memory is gone with it: the disk has what the first run left.
    std::fs::write(folder.join("app.log"), &synced[..synced.len() / 2]).expect("the file");
    cluster.promote(1);
    let said = run_well(&folder, &["recover", "--device", "1"]);
    assert_eq!(std::fs::read_to_string(folder.join("app.log")).expect("the file"), synced, "{said}");
    // Each line is a record: those of the first run are trimmed.
    assert!(said.contains(" 8 records"), "{said}");
}
