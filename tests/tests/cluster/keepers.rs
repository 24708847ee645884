//! Keepers of a cluster's devices, on an etcd.

use std::fs::File;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tidewater_client::LogError;
use tidewater_tests::{tidewater, wait};

use super::etcd::Etcd;
use super::{Cluster, end};

/// A lease of these tests, and the times that go with it.
pub const TTL: Duration = Duration::from_secs(4);
const TIMES: [&str; 6] = ["--ttl", "4s", "--loop-wait", "400ms", "--retry-timeout", "1800ms"];

impl Cluster {
    /// Devices on loopback that keepers and an etcd have made a group of this mode, and its primary.
    pub fn kept(nodes: u8, mode: &str) -> (Cluster, u8) {
        let mut cluster = Cluster::new(nodes);
        let etcd = Etcd::new(cluster.folder.path());
        cluster.start_keepers(vec![etcd], &[]);
        let primary = cluster.keep(mode);
        (cluster, primary)
    }

    /// Starts an etcd with a member on each of these machines.
    pub fn start_etcd(&mut self, on: &[u8]) {
        let machines = self.machines.as_ref().expect("the cluster is on machines of its own");
        self.etcd = Etcd::on(machines, self.folder.path(), on);
    }

    /// Starts a keeper of each device on an etcd, each with more arguments.
    pub fn start_keepers(&mut self, etcd: Vec<Etcd>, more: &[&str]) {
        self.etcd = etcd;
        self.keeper_options = more.iter().map(|&one| one.to_owned()).collect();
        self.nodes().for_each(|node| self.start_keeper(node));
    }

    /// Has keepers make a group of all, and starts those that do not run. Returns its primary, once all are in step.
    pub fn keep(&mut self, mode: &str) -> u8 {
        let idle: Vec<u8> = self.nodes().filter(|&node| self.keepers[usize::from(node)].is_none()).collect();
        idle.into_iter().for_each(|node| self.start_keeper(node));
        let members = self.nodes().map(|node| node.to_string()).collect::<Vec<_>>().join(",");
        let line = ["group", "--members", &members, "--mode", mode];
        wait::until(|| format!("no group: {}", self.all_said()), || !self.operate(&line).is_empty());
        let primary = self.leader(|_| true);
        self.all_in_step(primary);
        primary
    }

    pub fn start_keeper(&mut self, node: u8) {
        self.start_keeper_at(node, &Etcd::access(&self.etcd), &[]);
    }

    /// The same, with more arguments.
    pub fn start_keeper_with(&mut self, node: u8, more: &[&str]) {
        self.start_keeper_at(node, &Etcd::access(&self.etcd), more);
    }

    /// The same, which reaches etcd in its own way.
    pub fn start_keeper_at(&mut self, node: u8, etcd: &[String], more: &[&str]) {
        let said = File::options().create(true).append(true).open(self.folder.path().join(format!("keeper-{node}")));
        let mut command = self.tidewater(&self.program);
        command.arg("keeper").args(etcd).args(["run", "--control", &node.to_string()]).args(TIMES);
        command.args(&self.keeper_options).args(more).stdout(Stdio::null()).stderr(said.expect("a folder"));
        self.keepers[usize::from(node)] = Some(self.on(node, || command.spawn()).expect("it starts"));
    }

    /// Ends a keeper (SIGKILL).
    pub fn kill_keeper(&mut self, node: u8) {
        end(&mut self.keepers[usize::from(node)]);
    }

    /// Output of a keeper.
    pub fn said(&self, node: u8) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("keeper-{node}"))).unwrap_or_default()
    }

    pub fn all_said(&self) -> String {
        self.nodes().map(|node| format!("-- keeper {node}\n{}", self.said(node))).collect()
    }

    /// `tidewater cluster keeper`, by an operator.
    fn order(&self, arguments: &[&str]) -> Output {
        let mut command = tidewater(self.folder.path());
        command.arg("keeper").args(Etcd::access(&self.etcd)).args(arguments);
        self.on(self.operator(), || command.output()).expect("it starts")
    }

    /// `tidewater cluster keeper`, which is to succeed.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let output = self.order(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// `tidewater cluster keeper`. Empty: it was refused, or etcd does not answer.
    pub fn operate(&self, arguments: &[&str]) -> String {
        let output = self.order(arguments);
        if output.status.success() { String::from_utf8_lossy(&output.stdout).into_owned() } else { String::new() }
    }

    /// The cluster as etcd has it; null without etcd.
    pub fn known(&self) -> Value {
        serde_json::from_slice(&self.order(&["status", "--json"]).stdout).unwrap_or_default()
    }

    /// Waits until it is so of the cluster as etcd has it.
    pub fn until_known(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let else_say = || format!("{what}: {:#}\n{}", self.known(), self.all_said());
        wait::until(else_say, || is_so(&self.known()));
    }

    /// Waits for a primary that leads as etcd has it, may acknowledge, and is one that is looked for.
    pub fn leader(&self, is_wanted: impl Fn(u8) -> bool) -> u8 {
        let else_say = || format!("no primary: {:#}\n{}", self.known(), self.all_said());
        wait::some(else_say, || self.leader_now().filter(|node| is_wanted(*node)))
    }

    /// The primary that leads as etcd has it and may acknowledge now, if there is one.
    pub fn leader_now(&self) -> Option<u8> {
        let known = self.known();
        let leader = &known["leader"];
        let node = leader["node"].as_u64()? as u8;
        let member = known["members"].as_array()?.iter().find(|member| member["node"] == node)?;
        let leads = leader["epoch"] == member["epoch"] && member["role"] == "primary" && member["frozen"] == false;
        leads.then_some(node)
    }

    /// etcd forgets all that is older than its last revision. Whether there was anything.
    pub fn compact(&self) -> bool {
        let urls: Vec<String> = self.etcd.iter().map(Etcd::url).collect();
        let ask = |line: &[&str]| {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &urls.join(",")]).args(line);
            self.on(self.operator(), || command.output()).expect("it is installed")
        };
        let said = ask(&["endpoint", "status", "--write-out", "json"]).stdout;
        let said: Value = serde_json::from_slice(&said).unwrap_or_default();
        let revision = said[0]["Status"]["header"]["revision"].as_u64().unwrap_or_default();
        ask(&["compact", &revision.to_string()]).status.success()
    }
}

/// Whether an append failed since a primary may not acknowledge it.
pub fn is_stopped(outcome: &Result<(), LogError>) -> bool {
    matches!(outcome, Err(LogError::Frozen { .. } | LogError::Secondary | LogError::Stale))
}
