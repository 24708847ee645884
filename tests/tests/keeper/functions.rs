//! Devices of several functions, each with a log and a group of its own.

use std::fs::File;
use std::process::{Child, Stdio};

use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options};
use tidewater_tests::ring::Device;
use tidewater_tests::{run_well, tidewater, wait};

use crate::cluster::etcd::{Etcd, is_installed};
use crate::cluster::{Cluster, PATIENCE, append};

/// Keepers, which end with the test.
struct Keepers(Vec<Child>);

impl Drop for Keepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn each_function_has_keepers_and_a_primary_of_its_own() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::prepare(2);
    let folder = cluster.folder.path().to_owned();
    for node in 0..2 {
        std::fs::create_dir(cluster.path(node)).expect("a folder");
        let mut command = tidewater(&folder);
        let of = |name: &str| format!("{node}/{name}");
        command.args([
            "serve",
            "--profile",
            "villars",
            "--size",
            "1GiB",
            "--image",
            &of("image"),
            "--ring",
            &of("ring"),
        ]);
        command.args(["--set", "serve.timing=none", "--set", "fast.memory=fast-dram", "--set", "fast.functions=2"]);
        command.args(["--set", "memory.intake.size=64KiB"]);
        command.args(["--vfio-user", &of("f0.sock"), "--vfio-user", &of("f1.sock"), "--control", &of("control.sock")]);
        command.args(["--node", &node.to_string(), "--peer-listen", &cluster.at(node)]);
        command.args(["--peer", &format!("{}={}", 1 - node, cluster.at(1 - node))]);
        let errors = File::options().create(true).append(true).open(folder.join("stderr")).expect("a folder");
        let child = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts");
        cluster.devices[usize::from(node)] = Some(Device::served(child, &folder));
    }
    let etcd = [Etcd::new(&folder)];
    let ask = |arguments: &[&str]| {
        let access = Etcd::access(&etcd);
        let line: Vec<&str> =
            ["keeper"].into_iter().chain(access.iter().map(String::as_str)).chain(arguments.iter().copied()).collect();
        run_well(&folder, &line)
    };
    let mut keepers = Keepers(Vec::new());
    for (node, function) in [("0", "0"), ("1", "0"), ("0", "1"), ("1", "1")] {
        let mut command = tidewater(&folder);
        let socket = format!("vfio-user:{}", folder.join(format!("{node}/f{function}.sock")).display());
        command.arg("keeper").args(Etcd::access(&etcd)).args(["run", "--function", function, "--control", node]);
        command.args(["--address", &socket, "--ttl", "4s", "--retry-timeout", "1500ms"]);
        let said = File::create(folder.join(format!("keeper-{node}-{function}"))).expect("a folder");
        keepers.0.push(command.stderr(said).spawn().expect("it starts"));
    }
    ask(&["group", "--members", "0,1", "--mode", "eager"]);
    ask(&["group", "--function", "1", "--members", "0,1", "--mode", "eager"]);
    let leader = |function: &str, wanted: Option<u64>| {
        wait::success("no primary", || {
            let said = ask(&["status", "--function", function, "--json"]);
            let status: serde_json::Value = serde_json::from_str(&said).expect("a document");
            let leader = &status["leader"];
            let is_wanted = wanted.is_none_or(|node| leader["node"] == node);
            if is_wanted && leader["epoch"].as_str().is_some_and(|epoch| !epoch.starts_with('0')) {
                return Ok(leader["node"].as_u64().expect("a number"));
            }
            let keepers = || std::fs::read_to_string(folder.join(format!("keeper-0-{function}"))).unwrap_or_default();
            Err(format!("function {function}: {said}{}", keepers()))
        })
    };
    let (first, second) = (leader("0", None), leader("1", None));
    // One hands over, and the other stays.
    ask(&["switchover", "--function", "1"]);
    assert_eq!((leader("0", None), leader("1", Some(1 - second))), (first, 1 - second));
    for name in ["tidewater", "tidewater:1"] {
        let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
        let log = Log::open(&etcd[0].target(name), options).expect("etcd names its primary");
        append(&log, 1, PATIENCE).expect("both nodes acknowledge");
    }
}
