//! Devices with a keeper each, on an etcd.

use std::fs::File;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tidewater_client::LogError;
use tidewater_tests::{run, run_well, tidewater};

use crate::keeper::etcd::Etcd;
use crate::replication::cluster::{Cluster, PATIENCE};

/// A lease of these tests, and the times that go with it.
pub const TTL: Duration = Duration::from_secs(4);
const TIMES: [&str; 6] = ["--ttl", "4s", "--loop-wait", "400ms", "--retry-timeout", "1800ms"];

/// Devices whose keepers make one group of them.
pub struct Kept {
    // In this order: keepers end before what they talk to.
    keepers: Vec<Option<Child>>,
    pub devices: Cluster,
    /// Its members.
    pub etcd: Vec<Etcd>,
}

impl Kept {
    /// Devices that are in no group yet, and their keepers.
    pub fn new(nodes: u8) -> Kept {
        let devices = Cluster::new(nodes);
        let etcd = Etcd::new(devices.folder.path());
        Kept::by(devices, vec![etcd])
    }

    /// The same, by another etcd.
    pub fn by(devices: Cluster, etcd: Vec<Etcd>) -> Kept {
        Kept::by_keepers(devices, etcd, &[])
    }

    /// The same, by keepers that are started with more.
    pub fn by_keepers(devices: Cluster, etcd: Vec<Etcd>, more: &[&str]) -> Kept {
        let nodes = devices.devices.len() as u8;
        let mut kept = Kept { keepers: (0..nodes).map(|_| None).collect(), devices, etcd };
        (0..nodes).for_each(|node| kept.start_keeper(node, more));
        kept
    }

    /// The same, once they are a group of this mode. Returns its primary.
    pub fn formed(nodes: u8, mode: &str) -> (Kept, u8) {
        let kept = Kept::new(nodes);
        let primary = kept.form(mode);
        (kept, primary)
    }

    /// Makes a group of all. Returns its primary, once all are in step.
    pub fn form(&self, mode: &str) -> u8 {
        let members = (0..self.keepers.len()).map(|node| node.to_string()).collect::<Vec<_>>().join(",");
        self.ask(&["group", "--members", &members, "--mode", mode]);
        let primary = self.primary(|_| true);
        self.all_in_step(primary);
        primary
    }

    /// `tidewater cluster keeper`, which reaches etcd.
    fn line(&self, arguments: &[&str]) -> Vec<String> {
        let mut line = [vec!["keeper".to_owned()], Etcd::access(&self.etcd)].concat();
        line.extend(arguments.iter().map(|&one| one.to_owned()));
        line
    }

    pub fn start_keeper(&mut self, node: u8, more: &[&str]) {
        self.start_keeper_at(node, &Etcd::access(&self.etcd), more);
    }

    /// The same, which reaches etcd in its own way.
    pub fn start_keeper_at(&mut self, node: u8, etcd: &[String], more: &[&str]) {
        let folder = self.devices.folder.path();
        let said = File::options().create(true).append(true).open(folder.join(format!("keeper-{node}")));
        let mut command = tidewater(folder);
        command.arg("keeper").args(etcd).args(["run", "--control", &node.to_string()]);
        command.args(TIMES).args(more).stderr(said.expect("a folder"));
        self.keepers[usize::from(node)] = Some(command.spawn().expect("it starts"));
    }

    /// Output of a keeper.
    pub fn said(&self, node: u8) -> String {
        let path = self.devices.folder.path().join(format!("keeper-{node}"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// `tidewater cluster keeper`, which is to succeed.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let line = self.line(arguments);
        run_well(self.devices.folder.path(), &line.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn status(&self) -> Value {
        let line = self.line(&["status", "--json"]);
        let output = run(self.devices.folder.path(), &line.iter().map(String::as_str).collect::<Vec<_>>());
        // Without etcd there is none.
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    pub fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        while !is_so(&self.status()) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:#}\n{}", self.status(), self.all_said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn all_said(&self) -> String {
        (0..self.keepers.len() as u8).map(|node| format!("-- keeper {node}\n{}", self.said(node))).collect()
    }

    /// Waits for a primary that may acknowledge, and is one that is looked for.
    pub fn primary(&self, is_wanted: impl Fn(u8) -> bool) -> u8 {
        let found = |status: &Value| leads(status).filter(|node| is_wanted(*node));
        self.until("a primary", |status| found(status).is_some());
        found(&self.status()).unwrap_or_else(|| self.primary(is_wanted))
    }

    /// The primary that may acknowledge now, if there is one.
    pub fn primary_now(&self) -> Option<u8> {
        leads(&self.status())
    }

    /// Waits until all follow a primary without a gap.
    pub fn all_in_step(&self, primary: u8) {
        self.devices.until(primary, "all are in step", |status| {
            let group = &status["groups"][0];
            let replicas = group["replicas"].as_array().expect("a list");
            // The next one in a chain speaks for those behind it.
            let expected = if group["mode"] == "chain" { 1 } else { self.keepers.len() - 1 };
            replicas.len() == expected && replicas.iter().all(|replica| replica["in_step"] == true)
        });
    }

    pub fn signal_keeper(&self, node: u8, signal: Signal) {
        let child = self.keepers[usize::from(node)].as_ref().expect("the process runs");
        kill(Pid::from_raw(child.id() as i32), signal).expect("the process can be signalled");
    }

    /// Ends a keeper (SIGKILL).
    pub fn kill_keeper(&mut self, node: u8) {
        let mut child = self.keepers[usize::from(node)].take().expect("the process runs");
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for child in self.keepers.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.all_said());
        }
    }
}

/// The node that leads by a cluster's status, and may acknowledge.
fn leads(status: &Value) -> Option<u8> {
    let leader = &status["leader"];
    let node = leader["node"].as_u64()? as u8;
    let member = &status["members"].as_array()?.iter().find(|member| member["node"] == node)?;
    let leads = leader["epoch"] == member["epoch"] && member["role"] == "primary" && member["frozen"] == false;
    leads.then_some(node)
}

/// Whether an append failed since a primary may not acknowledge it.
pub fn is_stopped(outcome: &Result<(), LogError>) -> bool {
    matches!(outcome, Err(LogError::Frozen { .. } | LogError::Secondary | LogError::Stale))
}
