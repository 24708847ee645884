//! Devices of one group on loopback, and a log of numbers on them.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Entry, Level, LogError, Records};
use tidewater_tests::ring::Device;
use tidewater_tests::{compile, own_address, run, run_well, skipped, tidewater};

/// How long anything may take that comes about by itself.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Devices of one group on loopback, each in a folder of its own.
pub struct Cluster {
    pub folder: TempDir,
    address: String,
    /// Where others dial a device, if not where it listens.
    dialled: Vec<Option<String>>,
    /// Further options of each device's start.
    options: Vec<Vec<String>>,
    /// The program that a device is of, if not the built one.
    programs: Vec<Option<PathBuf>>,
    /// The library that makes disks fail.
    disk: Option<PathBuf>,
    pub devices: Vec<Option<Device>>,
}

impl Cluster {
    /// Devices that are in no group yet.
    pub fn new(nodes: u8) -> Cluster {
        let mut cluster = Cluster::prepare(nodes);
        cluster.connect();
        cluster
    }

    /// The same, of devices that are started with more.
    pub fn with(nodes: u8, more: &[&str]) -> Cluster {
        let mut cluster = Cluster::prepare(nodes);
        cluster.options = vec![more.iter().map(|&one| one.to_owned()).collect(); usize::from(nodes)];
        cluster.connect();
        cluster
    }

    /// The same, of devices whose disks can fail. `None`, and counted: there is no C compiler.
    pub fn with_disks(nodes: u8) -> Option<Cluster> {
        let mut cluster = Cluster::prepare(nodes);
        cluster.disk = compile("disk.c", cluster.folder.path(), &["-shared", "-fPIC", "-ldl"]);
        if cluster.disk.is_none() {
            skipped(1, "no C compiler");
            return None;
        }
        cluster.connect();
        Some(cluster)
    }

    /// Sets the fault of a node's disk from now on; empty: none.
    pub fn disk(&self, node: u8, fault: &str) {
        let at = self.path(node).join("fault");
        std::fs::write(at.with_extension("new"), fault).expect("a folder");
        std::fs::rename(at.with_extension("new"), &at).expect("a folder");
    }

    /// The same, and they prove to each other who they are.
    pub fn secured(nodes: u8) -> Cluster {
        let mut cluster = Cluster::prepare(nodes);
        let line = ["cluster", "init", "certs", "--cluster", "shop", "--nodes", &nodes.to_string()];
        run_well(cluster.folder.path(), &line);
        (0..nodes).for_each(|node| cluster.secure(node));
        cluster.connect();
        cluster
    }

    /// A device is started with its identity in `certs`.
    pub fn secure(&mut self, node: u8) {
        let identity = format!("certs/node-{node}");
        self.options[usize::from(node)] = ["--cluster", "shop", "--peer-identity", &identity].map(str::to_owned).into();
    }

    /// Devices that have not been started yet.
    pub fn prepare(nodes: u8) -> Cluster {
        static PORT: AtomicU16 = AtomicU16::new(20_000);
        let port = PORT.fetch_add(16, Ordering::Relaxed);
        let address = format!("{}:{port}", own_address());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = vec![Vec::new(); usize::from(nodes)];
        Cluster {
            folder,
            address,
            dialled: vec![None; usize::from(nodes)],
            options,
            programs: vec![None; usize::from(nodes)],
            disk: None,
            devices: (0..nodes).map(|_| None).collect(),
        }
    }

    /// Starts all, until each is connected with each.
    pub fn connect(&mut self) {
        let nodes = self.devices.len() as u8;
        (0..nodes).for_each(|node| self.start(node));
        for node in 0..nodes {
            self.until(node, "all are connected", |status| {
                status["links"].as_array().is_some_and(|links| links.iter().all(|link| link["up"] == true))
            });
        }
    }

    /// Where a device listens.
    pub fn at(&self, node: u8) -> String {
        let (host, port) = self.address.split_once(':').expect("host and port");
        format!("{host}:{}", port.parse::<u16>().expect("a port") + u16::from(node))
    }

    pub fn path(&self, node: u8) -> PathBuf {
        self.folder.path().join(node.to_string())
    }

    pub fn start(&mut self, node: u8) {
        let errors = OpenOptions::new().create(true).append(true).open(self.folder.path().join("stderr"));
        let child = self.command(node).stdout(Stdio::piped()).stderr(errors.expect("a folder")).spawn();
        self.devices[usize::from(node)] = Some(Device::served(child.expect("it starts"), self.folder.path()));
    }

    /// A device is of this program from its next start on; `None`: of the built one.
    pub fn program(&mut self, node: u8, program: Option<PathBuf>) {
        self.programs[usize::from(node)] = program;
    }

    /// Others dial a device at this address.
    pub fn relay(&mut self, node: u8, at: String) {
        self.dialled[usize::from(node)] = Some(at);
    }

    /// How a device is started.
    pub fn command(&self, node: u8) -> Command {
        let mut command = tidewater(self.folder.path());
        if let Some(program) = &self.programs[usize::from(node)] {
            command = Command::new(program);
            command.current_dir(self.folder.path()).stdin(Stdio::null());
        }
        command.args(["log-device", &node.to_string()]);
        command.args(["--node", &node.to_string(), "--peer-listen", &self.at(node)]);
        for peer in (0..self.devices.len() as u8).filter(|peer| *peer != node) {
            let at = self.dialled[usize::from(peer)].clone().unwrap_or_else(|| self.at(peer));
            command.args(["--peer", &format!("{peer}={at}")]);
        }
        command.args(&self.options[usize::from(node)]);
        if let Some(library) = &self.disk {
            command.env("LD_PRELOAD", library).env("DISK_FAULT", self.path(node).join("fault"));
        }
        command
    }

    /// Puts all into one group, whose primary is node 0.
    pub fn form(&self, mode: &[&str]) {
        let nodes: Vec<String> = (0..self.devices.len()).map(|node| node.to_string()).collect();
        let members = nodes.join(",");
        for node in nodes.iter().rev() {
            let primary: &[&str] = if node == "0" { &["--primary"] } else { &[] };
            let line = [&["group", "form", "--control", node, "--members", &members], mode, primary].concat();
            run_well(self.folder.path(), &line);
        }
        // A member that has never had the log does not count in a promotion.
        for node in 1..self.devices.len() as u8 {
            self.until(node, "it takes over the log", |status| has_a_log(&status["groups"][0]));
        }
    }

    pub fn status(&self, node: u8) -> serde_json::Value {
        let line = ["group", "status", "--json", "--control", &node.to_string()];
        serde_json::from_str(&run_well(self.folder.path(), &line)).expect("a document")
    }

    /// Whether a promotion came to its end.
    pub fn tries_to_promote(&self, node: u8) -> bool {
        run(self.folder.path(), &["group", "promote", "--control", &node.to_string()]).status.success()
    }

    pub fn promote(&self, node: u8) {
        let said = run_well(self.folder.path(), &["group", "promote", "--control", &node.to_string()]);
        assert!(said.contains("is primary of epoch"), "{said}");
    }

    /// Ends a device (SIGKILL).
    pub fn kill(&mut self, node: u8) {
        self.devices[usize::from(node)].take().expect("the process runs").kill();
    }

    pub fn signal(&self, node: u8, signal: Signal) {
        let device = self.devices[usize::from(node)].as_ref().expect("the process runs");
        kill(device.pid(), signal).expect("the process can be signalled");
    }

    pub fn open(&self, node: u8, level: Level) -> Result<Log, LogError> {
        let target = format!("vfio-user:{}", self.path(node).join("vfio.sock").display());
        Log::open(&target, Options { level: Some(level), ..Options::default() })
    }

    pub fn log(&self, node: u8) -> Log {
        self.open(node, Level::RemoteRing).expect("a log")
    }

    pub fn until(&self, node: u8, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        let start = Instant::now();
        while !is_so(&self.status(node)) {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.status(node));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a member, by its group in its status, has taken over the log of a primary.
pub fn has_a_log(group: &serde_json::Value) -> bool {
    group["synced"].as_str().is_some_and(|epoch| epoch != "0.0")
}

/// Appends a number, and waits until replicas have it.
pub fn append(log: &Log, number: u64, timeout: Duration) -> Result<(), LogError> {
    let end = log.append(&[&number.to_le_bytes()])?.end;
    log.wait(end, Level::RemoteRing, timeout)
}

/// The numbers in a log, from its begin.
pub fn numbers(log: &Log) -> Vec<u64> {
    let (from, to) = (log.status().device.expect("the device answers").lane[0].readable, log.tail());
    let mut bytes = vec![0; (to - from) as usize];
    log.x_pread(from, &mut bytes, PATIENCE).expect("the bytes are in the log");
    let number = |entry| match entry {
        Entry::Record { payload, .. } => Some(u64::from_le_bytes(payload.try_into().expect("eight bytes"))),
        _ => None,
    };
    Records::new(&bytes, from).filter_map(number).collect()
}
