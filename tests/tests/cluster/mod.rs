//! Devices of one group, on loopback or on machines of their own (network namespaces), with an etcd and a keeper each
//! where a test wants them, and a log of numbers on them.

pub mod etcd;
mod keepers;
pub mod machines;
pub mod relay;
mod tun;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Entry, Level, LogError, Records};
use tidewater_serve::control::Request;
use tidewater_tests::databases::process::{User, as_user};
use tidewater_tests::ring::Device;
use tidewater_tests::{binary, compile, own_address, run, run_well, skipped, wait};
use tidewater_wire::vendor::Epoch;

use etcd::Etcd;
pub use keepers::{TTL, is_stopped};
use machines::Machines;
pub use tidewater_tests::PATIENCE;

/// Where devices on machines of their own listen for peers.
const PORT: u16 = 7420;
/// How long a device may take for an answer that it has at hand.
const ANSWER: Duration = Duration::from_secs(2);

/// A process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The device of a node.
    Device(u8),
    /// The keeper of a node.
    Keeper(u8),
    /// A member of etcd, by its place.
    Etcd(usize),
}

/// Devices 0 to n - 1 of one group, each in a folder of its own.
pub struct Cluster {
    // In this order: what asks ends before what it asks.
    keepers: Vec<Option<Child>>,
    pub etcd: Vec<Etcd>,
    pub devices: Vec<Option<Device>>,
    /// Where devices listen that share loopback: from this port on.
    loopback: SocketAddr,
    machines: Option<Arc<Machines>>,
    /// Where others dial a device, if not where it listens.
    dialled: Vec<Option<String>>,
    /// Further options of each device's start.
    pub options: Vec<Vec<String>>,
    /// Further arguments of each keeper.
    pub keeper_options: Vec<String>,
    /// The program that devices and keepers are, and who runs them, if it is not us.
    pub program: PathBuf,
    pub user: Option<User>,
    /// The program that a device is of, if it is another.
    programs: Vec<Option<PathBuf>>,
    /// The library that makes disks fail.
    disk: Option<PathBuf>,
    pub folder: TempDir,
}

/// How clusters begin.
impl Cluster {
    /// Devices on loopback that have not been started yet.
    pub fn prepare(nodes: u8) -> Cluster {
        static PORT: AtomicU16 = AtomicU16::new(20_000);
        let port = PORT.fetch_add(16, Ordering::Relaxed);
        Cluster {
            keepers: (0..nodes).map(|_| None).collect(),
            etcd: Vec::new(),
            devices: (0..nodes).map(|_| None).collect(),
            loopback: SocketAddr::from((own_address(), port)),
            machines: None,
            dialled: vec![None; usize::from(nodes)],
            options: vec![Vec::new(); usize::from(nodes)],
            keeper_options: Vec::new(),
            program: binary().to_owned(),
            user: None,
            programs: vec![None; usize::from(nodes)],
            disk: None,
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// The same on machines 0 to n - 1, joined by a relay; the operator's machine is n. `None`: no namespaces can be
    /// had here, which is counted.
    pub fn on_machines(nodes: u8, seed: u64) -> Option<Cluster> {
        let machines = Machines::new(nodes + 1, seed).map_err(|why| skipped(1, &why)).ok()?;
        let mut cluster = Cluster::prepare(nodes);
        cluster.machines = Some(Arc::new(machines));
        cluster.options = vec![vec!["--insecure-peers".into()]; usize::from(nodes)];
        Some(cluster)
    }

    /// The same, once they are a group whose primary is node 0.
    pub fn formed_on_machines(nodes: u8, seed: u64, mode: &str) -> Option<Cluster> {
        let mut cluster = Cluster::on_machines(nodes, seed)?;
        cluster.connect();
        cluster.form(mode);
        cluster.all_in_step(0);
        Some(cluster)
    }

    /// Devices on loopback that are in no group yet.
    pub fn new(nodes: u8) -> Cluster {
        Cluster::with(nodes, &[])
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
        cluster.give_disks().then(|| cluster.connect())?;
        Some(cluster)
    }

    /// The same, and they prove to each other who they are.
    pub fn secured(nodes: u8) -> Cluster {
        let mut cluster = Cluster::prepare(nodes);
        cluster.secure_all();
        cluster.connect();
        cluster
    }

    /// Devices that are started from now on have disks that can fail. False, and counted: there is no C compiler.
    pub fn give_disks(&mut self) -> bool {
        self.disk = compile("disk.c", self.folder.path(), &["-shared", "-fPIC", "-ldl"]);
        if self.disk.is_none() {
            skipped(1, "no C compiler");
        }
        self.disk.is_some()
    }

    /// Makes a CA: connections between devices are encrypted, and each proves which node it is.
    pub fn secure_all(&mut self) {
        let nodes = self.devices.len().to_string();
        run_well(self.folder.path(), &["cluster", "init", "certs", "--cluster", "shop", "--nodes", &nodes]);
        self.nodes().for_each(|node| self.secure(node));
    }

    /// A device is started with its identity in `certs`.
    pub fn secure(&mut self, node: u8) {
        let identity = format!("certs/node-{node}");
        self.options[usize::from(node)] = ["--cluster", "shop", "--peer-identity", &identity].map(str::to_owned).into();
    }

    /// Starts all, until each is connected with each.
    pub fn connect(&mut self) {
        self.nodes().for_each(|node| self.start(node));
        for node in self.nodes() {
            self.until(node, "all are connected", |status| {
                status["links"].as_array().is_some_and(|links| links.iter().all(|link| link["up"] == true))
            });
        }
    }

    /// A device is of this program from its next start on; `None`: of the built one.
    pub fn program(&mut self, node: u8, program: Option<PathBuf>) {
        self.programs[usize::from(node)] = program;
    }

    /// Others dial a device at this address.
    pub fn relay(&mut self, node: u8, at: String) {
        self.dialled[usize::from(node)] = Some(at);
    }
}

/// Places.
impl Cluster {
    pub fn nodes(&self) -> std::ops::Range<u8> {
        0..self.devices.len() as u8
    }

    /// The machine of the operator, which has no device.
    pub fn operator(&self) -> u8 {
        self.devices.len() as u8
    }

    /// The machines that devices are on.
    pub fn machines(&self) -> &Machines {
        self.machines.as_ref().expect("the cluster is on machines of its own")
    }

    /// Does something on a machine, as far as its network is concerned.
    pub fn on<T: Send>(&self, machine: u8, act: impl FnOnce() -> T + Send) -> T {
        match &self.machines {
            Some(machines) => machines.within(machine, act),
            None => act(),
        }
    }

    /// Where a device listens.
    pub fn at(&self, node: u8) -> String {
        match self.machines {
            Some(_) => format!("{}:{PORT}", Machines::address(node)),
            None => format!("{}:{}", self.loopback.ip(), self.loopback.port() + u16::from(node)),
        }
    }

    pub fn path(&self, node: u8) -> PathBuf {
        self.folder.path().join(node.to_string())
    }

    /// Standard error of all devices.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }
}

/// Processes.
impl Cluster {
    /// A `tidewater` command, by the user who runs devices.
    fn tidewater(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some(user) = self.user {
            as_user(&mut command, user);
        }
        command
    }

    /// How a device is started.
    pub fn command(&self, node: u8) -> Command {
        let mut command = self.tidewater(self.programs[usize::from(node)].as_ref().unwrap_or(&self.program));
        command.args(["log-device", &node.to_string(), "--node", &node.to_string(), "--peer-listen", &self.at(node)]);
        for peer in self.nodes().filter(|peer| *peer != node) {
            let at = self.dialled[usize::from(peer)].clone().unwrap_or_else(|| self.at(peer));
            command.args(["--peer", &format!("{peer}={at}")]);
        }
        command.args(&self.options[usize::from(node)]);
        if let Some(library) = &self.disk {
            command.env("LD_PRELOAD", library).env("DISK_FAULT", self.path(node).join("fault"));
        }
        command
    }

    pub fn start(&mut self, node: u8) {
        let errors = OpenOptions::new().create(true).append(true).open(self.folder.path().join("stderr"));
        let mut command = self.command(node);
        command.stdout(Stdio::piped()).stderr(errors.expect("a folder"));
        let child = self.on(node, || command.spawn()).expect("it starts");
        self.devices[usize::from(node)] = Some(Device::served(child, self.folder.path()));
    }

    /// Ends a device (SIGKILL).
    pub fn kill(&mut self, node: u8) {
        self.devices[usize::from(node)].take().expect("the process runs").kill();
    }

    pub fn pid(&self, process: Process) -> Pid {
        let child = match process {
            Process::Device(node) => return self.devices[usize::from(node)].as_ref().expect("the process runs").pid(),
            Process::Keeper(node) => self.keepers[usize::from(node)].as_ref(),
            Process::Etcd(member) => return self.etcd[member].pid(),
        };
        Pid::from_raw(child.expect("the process runs").id() as i32)
    }

    pub fn signal_to(&self, process: Process, signal: Signal) {
        kill(self.pid(process), signal).expect("the process can be signalled");
    }

    /// Signals a device.
    pub fn signal(&self, node: u8, signal: Signal) {
        self.signal_to(Process::Device(node), signal);
    }

    /// Whether a process stands still (SIGSTOP), as the kernel says.
    pub fn is_standing(&self, process: Process) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid(process))).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    /// Sets the fault of a node's disk from now on; empty: none.
    pub fn disk(&self, node: u8, fault: &str) {
        let at = self.path(node).join("fault");
        std::fs::write(at.with_extension("new"), fault).expect("a folder");
        std::fs::rename(at.with_extension("new"), &at).expect("a folder");
    }

    /// How often the disk of a node has failed.
    pub fn disk_fired(&self, node: u8) -> u64 {
        std::fs::metadata(self.path(node).join("fault.fired")).map_or(0, |about| about.len())
    }
}

/// The group.
impl Cluster {
    /// Puts all into one group, whose primary is node 0.
    pub fn form(&self, mode: &str) {
        self.nodes().rev().for_each(|node| self.join(node, mode, node == 0));
        // A member that has never had the log does not count in a promotion.
        for node in self.nodes().skip(1) {
            self.until(node, "it takes over the log", |status| has_a_log(&status["groups"][0]));
        }
    }

    /// Puts a device that is in no group into the one of all.
    pub fn join(&self, node: u8, mode: &str, primary: bool) {
        let members = self.nodes().map(|node| node.to_string()).collect::<Vec<_>>().join(",");
        let primary: &[&str] = if primary { &["--primary"] } else { &[] };
        let (node, line) = (node.to_string(), ["group", "form", "--members", &members, "--mode", mode]);
        run_well(self.folder.path(), &[&line, &["--control", &node][..], primary].concat());
    }

    /// A device's status of its peers and groups; null: it is not there.
    pub fn status(&self, node: u8) -> Value {
        ask(&self.path(node), &Request::Status, PATIENCE).map_or(Value::Null, |status| status["peers"].clone())
    }

    /// The same, of a device that may stand still: null as well if it does not answer at once.
    pub fn glance(&self, node: u8) -> Value {
        ask(&self.path(node), &Request::Status, ANSWER).map_or(Value::Null, |status| status["peers"].clone())
    }

    /// A device's status of its log's group.
    pub fn group(&self, node: u8) -> Value {
        self.status(node)["groups"][0].clone()
    }

    /// Waits until a device answers, and it is so of its status.
    pub fn until(&self, node: u8, what: &str, is_so: impl Fn(&Value) -> bool) {
        let else_say = || format!("{what}: {:#}\n{}{}", self.glance(node), self.errors(), self.all_said());
        wait::until(else_say, || {
            let status = self.glance(node);
            !status.is_null() && is_so(&status)
        });
    }

    /// Waits until all follow a primary without a gap.
    pub fn all_in_step(&self, primary: u8) {
        let others = self.devices.len() - 1;
        self.until(primary, "all are in step", |status| {
            let group = &status["groups"][0];
            let replicas = group["replicas"].as_array().map_or(&[][..], Vec::as_slice);
            // The next one in a chain speaks for those behind it.
            let expected = if group["mode"] == "chain" { 1 } else { others };
            let is_level = |it: &Value| it["in_step"] == true && it["behind_bytes"] == 0;
            replicas.len() == expected && replicas.iter().all(is_level)
        });
    }

    /// Whether a promotion came to its end.
    pub fn tries_to_promote(&self, node: u8) -> bool {
        run(self.folder.path(), &["group", "promote", "--control", &node.to_string()]).status.success()
    }

    pub fn promote(&self, node: u8) {
        let said = run_well(self.folder.path(), &["group", "promote", "--control", &node.to_string()]);
        assert!(said.contains("is primary of epoch"), "{said}");
    }

    /// A node becomes primary, however often it has to be asked.
    pub fn promoted(&self, node: u8) {
        let else_say = || format!("node {node} does not become primary: {:#}{}", self.glance(node), self.errors());
        wait::until(else_say, || self.tries_to_promote(node));
    }

    /// Waits for a primary that may acknowledge, and is one that is looked for. Of two, the one of the later epoch.
    pub fn primary(&self, is_wanted: impl Fn(u8) -> bool) -> u8 {
        let else_say = || format!("no primary: {}{}", self.errors(), self.all_said());
        wait::some(else_say, || {
            let running = self.nodes().filter(|&node| self.devices[usize::from(node)].is_some());
            let primary = running
                .map(|node| (node, self.glance(node)["groups"][0].clone()))
                .filter(|(_, group)| group["role"] == "primary" && !group["frozen_ms"].is_number())
                .max_by_key(|(_, group)| epoch(&group["epoch"]));
            primary.map(|(node, _)| node).filter(|node| is_wanted(*node))
        })
    }

    pub fn open(&self, node: u8, level: Level) -> Result<Log, LogError> {
        let target = format!("vfio-user:{}", self.path(node).join("vfio.sock").display());
        Log::open(&target, Options { level: Some(level), ..Options::default() })
    }

    pub fn log(&self, node: u8) -> Log {
        self.open(node, Level::RemoteRing).expect("a log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.keepers.iter_mut().for_each(end);
        if std::thread::panicking() {
            eprintln!("{}{}", self.errors(), self.all_said());
        }
    }
}

/// Ends a process (SIGKILL), if it runs.
fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
    }
}

/// The answer of the device in a folder, if it has one in time.
pub fn ask(folder: &Path, request: &Request, time: Duration) -> Result<Value, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(folder.join("control.sock"))?;
        stream.set_read_timeout(Some(time))?;
        let line = serde_json::to_string(request).expect("a request is an object");
        stream.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
    match answer["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}

/// An epoch that is given as `3.0`, its counter and its node, in one number: a later one is higher.
pub fn epoch(text: &Value) -> u64 {
    let parts = text.as_str().and_then(|text| text.split_once('.'));
    let number = parts.and_then(|(counter, node)| Some(Epoch::new(counter.parse().ok()?, node.parse().ok()?).0));
    number.unwrap_or_default()
}

/// Whether a member, by its group in its status, has taken over the log of a primary.
pub fn has_a_log(group: &Value) -> bool {
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

/// Waits until a program has appended for a while: so far its log reaches.
pub fn grows(log: &Log, end: u64) {
    wait::until(|| format!("it stands still at {}", log.end()), || log.end() >= end);
}
