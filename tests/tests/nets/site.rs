//! Devices on machines of their own, with an etcd and a keeper each where a test wants them, and an operator's machine
//! beside them.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_serve::control::{GroupMode, Request};
use tidewater_tests::databases::process::{User, as_user};
use tidewater_tests::ring::Device;
use tidewater_tests::{binary, compile, run_well, skipped, tidewater};
use tidewater_wire::vendor::Epoch;

use crate::nets::machines::Machines;
use crate::replication::cluster::PATIENCE;

/// A lease of these tests, and the times that go with it.
pub const TTL: Duration = Duration::from_secs(4);
const TIMES: [&str; 6] = ["--ttl", "4s", "--loop-wait", "400ms", "--retry-timeout", "1800ms"];
/// Where devices listen for peers.
const PORT: u16 = 7420;
/// How long a device may take for an answer that it has at hand.
const ANSWER: Duration = Duration::from_secs(2);

/// A process of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The device of a node.
    Device(u8),
    /// The keeper of a node.
    Keeper(u8),
    /// A member of etcd, by its place.
    Etcd(usize),
}

/// Devices 0 to n - 1 on machines 0 to n - 1; the operator's machine is n.
pub struct Site {
    // In this order: what asks ends before what it asks.
    keepers: Vec<Option<Child>>,
    etcds: Vec<(u8, Option<Child>)>,
    pub devices: Vec<Option<Device>>,
    /// Further options of each device's start.
    pub options: Vec<Vec<String>>,
    /// The library that makes disks fail.
    disk: Option<PathBuf>,
    /// Further arguments of each keeper.
    pub keeper_options: Vec<String>,
    /// Who runs devices and keepers, if it is not us, and the program that they are.
    pub user: Option<User>,
    pub program: PathBuf,
    pub machines: Machines,
    pub folder: TempDir,
}

impl Site {
    /// Devices that have not been started. `None`: no namespaces can be had here, which is counted.
    pub fn prepare(nodes: u8, seed: u64) -> Option<Site> {
        let machines = Machines::new(nodes + 1, seed).map_err(|why| skipped(1, &why)).ok()?;
        Some(Site {
            keepers: (0..nodes).map(|_| None).collect(),
            etcds: Vec::new(),
            devices: (0..nodes).map(|_| None).collect(),
            options: vec![vec!["--insecure-peers".into()]; usize::from(nodes)],
            disk: None,
            keeper_options: Vec::new(),
            user: None,
            program: binary().to_owned(),
            machines,
            folder: tempfile::tempdir().expect("a temporary folder"),
        })
    }

    /// Devices that run and are connected, in no group.
    pub fn new(nodes: u8, seed: u64) -> Option<Site> {
        let mut site = Site::prepare(nodes, seed)?;
        site.start_all();
        Some(site)
    }

    /// The same, in a group whose primary is node 0.
    pub fn formed(nodes: u8, seed: u64, mode: GroupMode) -> Option<Site> {
        let site = Site::new(nodes, seed)?;
        site.form(mode);
        Some(site)
    }

    pub fn start_all(&mut self) {
        self.nodes().for_each(|node| self.start(node));
        self.all_connected();
    }

    pub fn all_connected(&self) {
        for node in self.nodes() {
            self.until(node, "all are connected", |status| {
                status["links"].as_array().is_some_and(|links| links.iter().all(|link| link["up"] == true))
            });
        }
    }

    pub fn nodes(&self) -> std::ops::Range<u8> {
        0..self.devices.len() as u8
    }

    /// The machine of the operator, which has no device.
    pub fn operator(&self) -> u8 {
        self.devices.len() as u8
    }

    /// Connections between devices are encrypted, and each proves which node it is.
    pub fn secure(&mut self) {
        let nodes = self.devices.len().to_string();
        run_well(self.folder.path(), &["cluster", "init", "certs", "--cluster", "shop", "--nodes", &nodes]);
        for (node, options) in self.options.iter_mut().enumerate() {
            *options = ["--cluster", "shop", "--peer-identity", &format!("certs/node-{node}")].map(String::from).into();
        }
    }

    /// Devices that are started from now on have disks that can fail. False, and counted: there is no C compiler.
    pub fn with_disks(&mut self) -> bool {
        let more = ["-shared", "-fPIC", "-ldl"];
        let made = compile("disk.c", self.folder.path(), &more);
        if made.is_none() {
            skipped(1, "no C compiler");
        }
        self.disk = made;
        self.disk.is_some()
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

    pub fn path(&self, node: u8) -> PathBuf {
        self.folder.path().join(node.to_string())
    }

    /// A `tidewater` command, by the user who runs devices.
    fn tidewater(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some(user) = self.user {
            as_user(&mut command, user);
        }
        command
    }

    pub fn command(&self, node: u8) -> Command {
        let address = |node| format!("{}:{PORT}", Machines::address(node));
        let mut command = self.tidewater();
        command.args(["log-device", &node.to_string(), "--node", &node.to_string(), "--peer-listen", &address(node)]);
        for peer in self.nodes().filter(|peer| *peer != node) {
            command.args(["--peer", &format!("{peer}={}", address(peer))]);
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
        let child = self.machines.within(node, || command.spawn()).expect("it starts");
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
            Process::Etcd(member) => self.etcds[member].1.as_ref(),
        };
        Pid::from_raw(child.expect("the process runs").id() as i32)
    }

    pub fn signal(&self, process: Process, signal: Signal) {
        kill(self.pid(process), signal).expect("the process can be signalled");
    }

    /// Whether a process stands still (SIGSTOP), as the kernel says.
    pub fn is_stopped(&self, process: Process) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid(process))).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    /// Standard error of all devices.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// A device's answer, if it has one in time.
    pub fn ask(&self, node: u8, request: &Request, time: Duration) -> Result<Value, String> {
        ask(&self.path(node), request, time)
    }

    /// A device's status of its peers and groups; null: it does not answer.
    pub fn status(&self, node: u8) -> Value {
        self.ask(node, &Request::Status, ANSWER).map_or(Value::Null, |status| status["peers"].clone())
    }

    /// A device's status of its log's group.
    pub fn group(&self, node: u8) -> Value {
        self.status(node)["groups"][0].clone()
    }

    pub fn until(&self, node: u8, what: &str, is_so: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let status = self.status(node);
            if is_so(&status) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {status:#}\n{}{}", self.errors(), self.keepers_said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Puts all into one group, whose primary is node 0.
    pub fn form(&self, mode: GroupMode) {
        self.nodes().rev().for_each(|node| self.join(node, mode, node == 0));
        self.all_in_step(0);
    }

    /// Puts a device that is in no group into the one of all.
    pub fn join(&self, node: u8, mode: GroupMode, primary: bool) {
        let members: Vec<u8> = self.nodes().collect();
        let k = if mode == GroupMode::Quorum { members.len() as u8 / 2 + 1 } else { 0 };
        let form = Request::GroupForm { function: 0, members, mode, k, primary };
        self.ask(node, &form, PATIENCE).expect("the node can form a group");
    }

    /// Whether a node is primary now, of an epoch above the one before. It may be asked again.
    pub fn promote(&self, node: u8) -> bool {
        let promote = Request::GroupPromote {
            function: 0,
            members: Vec::new(),
            mode: None,
            k: 0,
            force: false,
            above: 0,
            before_ms: None,
        };
        let start = Instant::now();
        let _ = self.ask(node, &promote, PATIENCE);
        while start.elapsed() < Duration::from_secs(8) {
            match self.group(node)["role"].as_str() {
                Some("primary") => return true,
                Some("candidate") => std::thread::sleep(Duration::from_millis(5)),
                _ => return false,
            }
        }
        false
    }

    /// A node becomes primary, however often it has to be asked.
    pub fn promoted(&self, node: u8) {
        let start = Instant::now();
        while !self.promote(node) {
            assert!(start.elapsed() < PATIENCE, "node {node} does not become primary: {:#}", self.status(node));
            std::thread::sleep(Duration::from_millis(20));
        }
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

    pub fn open(&self, node: u8, level: Level) -> Result<Log, LogError> {
        let target = format!("vfio-user:{}", self.path(node).join("vfio.sock").display());
        Log::open(&target, Options { level: Some(level), ..Options::default() })
    }

    pub fn log(&self, node: u8) -> Log {
        self.open(node, Level::RemoteRing).expect("a log")
    }
}

/// etcd and keepers.
impl Site {
    /// Whether there is an etcd to start; if not, that is counted.
    pub fn has_etcd() -> bool {
        let is = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !is {
            skipped(1, "no etcd here: install etcd-server");
        }
        is
    }

    /// Starts an etcd with a member on each of these machines.
    pub fn start_etcd(&mut self, on: &[u8]) {
        self.etcds = on.iter().map(|&machine| (machine, None)).collect();
        (0..on.len()).for_each(|member| self.start_member(member));
        let start = Instant::now();
        while !(0..on.len()).all(|member| self.is_healthy(member)) {
            assert!(start.elapsed() < PATIENCE, "etcd does not begin: see {}", self.folder.path().display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn start_member(&mut self, member: usize) {
        let peer = |machine| format!("http://{}:2380", Machines::address(machine));
        let machine = self.etcds[member].0;
        let all: Vec<String> = self.etcds.iter().map(|&(on, _)| format!("on{on}={}", peer(on))).collect();
        let client = format!("http://{}:2379", Machines::address(machine));
        let folder = self.folder.path().join(format!("etcd-{machine}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let said = File::options().create(true).append(true).open(folder.join("said")).expect("a folder");
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("on{machine}"), "--data-dir"]).arg(folder.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer(machine), "--initial-advertise-peer-urls", &peer(machine)]);
        command.args(["--initial-cluster", &all.join(",")]);
        command.stdin(Stdio::null()).stdout(said.try_clone().expect("a descriptor")).stderr(said);
        self.etcds[member].1 = Some(self.machines.within(machine, || command.spawn()).expect("it starts"));
    }

    fn is_healthy(&self, member: usize) -> bool {
        let at = SocketAddr::from((Machines::address(self.etcds[member].0), 2379));
        self.machines.within(self.operator(), || {
            let Ok(mut stream) = TcpStream::connect_timeout(&at, Duration::from_secs(1)) else { return false };
            let mut answer = String::new();
            let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
            asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("\"true\"")
        })
    }

    pub fn etcd_members(&self) -> usize {
        self.etcds.len()
    }

    /// Ends a member of etcd (SIGKILL).
    pub fn kill_member(&mut self, member: usize) {
        end(&mut self.etcds[member].1);
    }

    /// etcd forgets all that is older than its last revision. Whether there was anything.
    pub fn compact(&self) -> bool {
        let ask = |line: &[&str]| {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &self.urls()]).args(line);
            self.machines.within(self.operator(), || command.output()).expect("it is installed")
        };
        let said = ask(&["endpoint", "status", "--write-out", "json"]).stdout;
        let said: Value = serde_json::from_slice(&said).unwrap_or_default();
        let revision = said[0]["Status"]["header"]["revision"].as_u64().unwrap_or_default();
        ask(&["compact", &revision.to_string()]).status.success()
    }

    pub fn urls(&self) -> String {
        let urls: Vec<String> =
            self.etcds.iter().map(|&(on, _)| format!("http://{}:2379", Machines::address(on))).collect();
        urls.join(",")
    }

    /// `tidewater cluster keeper`, by the operator. Empty: it was refused, or etcd does not answer.
    pub fn operate(&self, arguments: &[&str]) -> String {
        let mut command = tidewater(self.folder.path());
        command.args(["keeper", "--etcd", &self.urls()]).args(arguments);
        let output = self.machines.within(self.operator(), || command.output()).expect("it starts");
        if output.status.success() { String::from_utf8_lossy(&output.stdout).into_owned() } else { String::new() }
    }

    /// Starts keepers, which make one group of all devices. Returns its primary.
    pub fn keep(&mut self, mode: &str) -> u8 {
        self.nodes().for_each(|node| self.start_keeper(node));
        let members = self.nodes().map(|node| node.to_string()).collect::<Vec<_>>().join(",");
        let start = Instant::now();
        while self.operate(&["group", "--members", &members, "--mode", mode]).is_empty() {
            assert!(start.elapsed() < PATIENCE, "no group: {}", self.keepers_said());
        }
        let primary = self.primary(|_| true);
        self.all_in_step(primary);
        primary
    }

    pub fn start_keeper(&mut self, node: u8) {
        let said = File::options().create(true).append(true).open(self.folder.path().join(format!("keeper-{node}")));
        let mut command = self.tidewater();
        command.args(["keeper", "run", "--etcd", &self.urls(), "--control", &node.to_string()]);
        command.args(TIMES).args(&self.keeper_options).stdout(Stdio::null()).stderr(said.expect("a folder"));
        self.keepers[usize::from(node)] = Some(self.machines.within(node, || command.spawn()).expect("it starts"));
    }

    /// Ends a keeper (SIGKILL).
    pub fn kill_keeper(&mut self, node: u8) {
        end(&mut self.keepers[usize::from(node)]);
    }

    pub fn keepers_said(&self) -> String {
        let said =
            |node| std::fs::read_to_string(self.folder.path().join(format!("keeper-{node}"))).unwrap_or_default();
        self.nodes().map(|node| format!("-- keeper {node}\n{}", said(node))).collect()
    }

    /// Waits for a primary that may acknowledge, and is one that is looked for. Of two, the one of the later epoch.
    pub fn primary(&self, is_wanted: impl Fn(u8) -> bool) -> u8 {
        let start = Instant::now();
        loop {
            let running = self.nodes().filter(|&node| self.devices[usize::from(node)].is_some());
            let primary = running
                .map(|node| (node, self.group(node)))
                .filter(|(_, group)| group["role"] == "primary" && !group["frozen_ms"].is_number())
                .max_by_key(|(_, group)| epoch(&group["epoch"]));
            if let Some((node, _)) = primary.filter(|(node, _)| is_wanted(*node)) {
                return node;
            }
            assert!(start.elapsed() < PATIENCE, "no primary: {}{}", self.errors(), self.keepers_said());
            std::thread::sleep(Duration::from_millis(20));
        }
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

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.keepers.iter_mut().for_each(end);
        self.etcds.iter_mut().for_each(|(_, child)| end(child));
        if std::thread::panicking() {
            eprintln!("{}{}", self.errors(), self.keepers_said());
        }
    }
}
