//! The metrics of served devices: a real Prometheus scrapes two of them under load, and each expression of the
//! dashboard and of the alert rules in `packaging/grafana` has a value there. Where there is no
//! Prometheus, this prints SKIPPED.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_driver::nvme_tcp::{Controller, Host, Queue, Transfer};
use tidewater_tests::grafana::{ALERTS, JOB, ROWS, dashboard, expression, rules};
use tidewater_tests::ring::Device;
use tidewater_tests::{PATIENCE, markdown, own_address, root, run_well, skipped, tidewater, wait};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::nvme::Sqe;

/// Bytes of a block.
const BLOCK: usize = 4_096;
/// Blocks of a command.
const BLOCKS: usize = 8;
const HOW: &str = "UPDATE_DOCS=1 cargo test -p tidewater-tests --test devices metrics";
const GUIDE: &str = "docs/guide/metrics.md";

/// Two devices of one group, with a keeper each that has no etcd.
struct Pair {
    keepers: Vec<Keeper>,
    devices: Vec<Device>,
    _folder: TempDir,
}

/// A keeper. It is killed when this is dropped.
struct Keeper {
    child: Child,
    address: SocketAddr,
}

impl Keeper {
    fn start(folder: &Path) -> Keeper {
        let mut command = tidewater(folder);
        command.args(["keeper", "--etcd", "https://127.0.0.1:1", "--etcd-ca", "../certs/ca.pem"]);
        command.args(["--etcd-cert", "../certs/node-0/node.pem", "--etcd-key", "../certs/node-0/node.key"]);
        command.args(["run", "--control", "control.sock", "--program"]);
        command.args(["--metrics", "127.0.0.1:0"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let at = |line: String| line.split("metrics: http://").nth(1)?.split("/metrics").next()?.parse().ok();
        let address = lines.find_map(at).expect("it says where");
        // What it says later is of no interest, but has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Keeper { child, address }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pair {
    fn start() -> Pair {
        static PORT: AtomicU16 = AtomicU16::new(28_000);
        let (host, port) = (own_address(), PORT.fetch_add(2, Ordering::Relaxed));
        let folder = tempfile::tempdir().expect("a temporary folder");
        run_well(folder.path(), &["cluster", "identity", "init", "certs", "--nodes", "2"]);
        let devices: Vec<Device> = (0..2u16)
            .map(|node| {
                let here = folder.path().join(node.to_string());
                std::fs::create_dir(&here).expect("a new folder");
                let own = format!("{host}:{}", port + node);
                let peer = format!("{}={host}:{}", 1 - node, port + 1 - node);
                let number = node.to_string();
                let identity = format!("../certs/node-{node}");
                let peers = ["--node", &number, "--peer-listen", &own, "--peer", &peer, "--peer-identity", &identity];
                let hosts = ["--nvme-tcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--namespaces", "rest:4k"];
                // Dies are busy by the model alone.
                Device::start(&here, &[hosts.as_slice(), &peers, &["--set", "serve.timing=model"]].concat())
            })
            .collect();
        for device in devices.iter().rev() {
            let primary: &[&str] = if device.folder.ends_with("0") { &["--primary"] } else { &[] };
            let form = ["group", "form", "--control", "control.sock", "--members", "0,1", "--mode", "eager"];
            run_well(&device.folder, &[form.as_slice(), primary].concat());
        }
        let keepers = devices.iter().map(|device| Keeper::start(&device.folder)).collect();
        let pair = Pair { keepers, devices, _folder: folder };
        wait::success("the replica takes over the log", || {
            let said = run_well(&pair.devices[1].folder, &["group", "status", "--json", "--control", "control.sock"]);
            let status: Value = serde_json::from_str(&said).expect("a document");
            match status["groups"][0]["synced"].as_str() {
                Some(epoch) if epoch != "0.0" => Ok(()),
                _ => Err(said),
            }
        });
        pair
    }
}

/// The text between two pieces of a device's output.
fn between<'a>(device: &'a Device, before: &str, after: &str) -> &'a str {
    let (_, rest) = device.said.split_once(before).unwrap_or_else(|| panic!("{before} in {}", device.said));
    rest.split(after).next().expect("a split has a first piece")
}

/// Where a device has its page of metrics.
fn address(device: &Device) -> SocketAddr {
    between(device, "Metrics: http://", "/metrics").parse().expect("it prints an address")
}

/// The body of what a server of HTTP answers.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("the program reads its input");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(" 200 ") || head.contains(" 400 "), "{path}: {head}");
    body.to_owned()
}

/// A server of Prometheus, with our rules. It is killed when this is dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts one that scrapes these every second.
    fn start(folder: &Path, targets: &[SocketAddr]) -> Prometheus {
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\nscrape_configs:\n  \
             - {{job_name: {JOB}, static_configs: [{{targets: [{}]}}]}}\n",
            targets.join(", ")
        );
        std::fs::write(folder.join("prometheus.yml"), configuration).expect("the folder is writable");
        std::fs::write(folder.join("alerts.yml"), rules()).expect("the folder is writable");
        let errors = File::create(folder.join("prometheus.log")).expect("the folder is writable");
        let mut child = Command::new("prometheus")
            .current_dir(folder)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"])
            .args(["--log.format=json", "--web.enable-lifecycle"])
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("it starts");
        let address = wait::success("Prometheus listens", || {
            let log = std::fs::read_to_string(folder.join("prometheus.log")).expect("the log is there");
            assert!(child.try_wait().expect("the process can be polled").is_none(), "Prometheus ended: {log}");
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut listening = lines.filter(|line| line["msg"] == "Listening on");
            listening.find_map(|line| line["address"].as_str()?.parse().ok()).ok_or(log.clone())
        });
        Prometheus { child, address }
    }

    /// The values of an expression now.
    fn query(&self, expression: &str) -> Vec<f64> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get(self.address, &format!("/api/v1/query?query={escaped}"));
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let samples = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{expression}: {answer}"));
        let value = |sample: &Value| sample["value"][1].as_str()?.parse().ok();
        samples.iter().map(|sample| value(sample).unwrap_or_else(|| panic!("{expression}: {answer}"))).collect()
    }

    /// The health of each rule that it loaded, by name.
    fn rules(&self) -> BTreeMap<String, String> {
        let answer: Value = serde_json::from_str(&get(self.address, "/api/v1/rules")).expect("JSON");
        let text = |rule: &Value, field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        let groups = answer["data"]["groups"].as_array().expect("groups");
        let all = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        all.map(|rule| (text(rule, "name"), text(rule, "health"))).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs promtool on an input; whether it found nothing, and what it printed.
fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("the program reads its input");
    let output = child.wait_with_output().expect("the process can be waited for");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Writes, reads and flushes over the whole of a device until `stop`.
fn hosts(device: &Device, stop: &AtomicBool) {
    let command = between(device, "nvme connect -t tcp -a ", "\n");
    let parts: Vec<&str> = command.split(' ').collect();
    let at = format!("{}:{}", parts[0], parts[2]).parse().expect("it prints address and port");
    let name = Nqn::new(between(device, " -n ", "\n")).expect("it prints its name");
    let host = Host::new(Nqn::new("nqn.2026-01.io.example:host").expect("it is a name"), [7; 16]);
    let mut controller = Controller::connect(at, &host, &name).expect("it takes hosts");
    controller.enable().expect("the controller gets ready");
    controller.set_queues(1).expect("it has queues");
    let mut queue: Queue = controller.queue(1, 16).expect("the queue connects");
    let sqe = |make: fn(u16, u64, u16) -> Sqe, block| make(0, block, BLOCKS as u16 - 1);
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let block = number % 64 * BLOCKS as u64;
        let data = vec![number as u8; BLOCKS * BLOCK];
        let len = data.len() as u32;
        for (sqe, transfer) in [
            (sqe(Sqe::write, block), Transfer::Out(data)),
            (sqe(Sqe::read, block), Transfer::In(len)),
            (Sqe::flush(0), Transfer::None),
        ] {
            queue.call(sqe, transfer).expect("the queue is connected").good().expect("the command succeeds");
        }
    }
}

/// Appends to a replicated log until `stop`.
fn appender(device: &Device, stop: &AtomicBool) {
    let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
    let log = Log::open(&device.target(), options).expect("a log");
    while !stop.load(Ordering::Relaxed) {
        let end = log.append(&[&[7; 1_000]]).expect("the ring accepts the record").end;
        match log.wait(end, Level::RemoteRing, Duration::from_secs(1)) {
            Ok(()) | Err(LogError::ReplicasLate { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sets a flag when it is dropped, so that a test that fails ends its load.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn every_expression_has_a_value_in_a_real_prometheus() {
    if ["prometheus", "promtool"].iter().any(|name| Command::new(name).arg("--version").output().is_err()) {
        skipped(1, "there is no Prometheus: apt-get install prometheus");
        return;
    }
    let mut pair = Pair::start();
    let (folder, stop) = (tempfile::tempdir().expect("a temporary folder"), AtomicBool::new(false));
    let addresses = pair.devices.iter().map(address).chain(pair.keepers.iter().map(|keeper| keeper.address));
    let addresses: Vec<SocketAddr> = addresses.collect();
    let prometheus = Prometheus::start(folder.path(), &addresses);
    let checked = promtool(&["check", "rules", &folder.path().join("alerts.yml").to_string_lossy()], "");
    assert!(checked.0 && checked.1.contains(&format!("{} rules found", ALERTS.len())), "{}", checked.1);
    let replica = pair.devices.pop().expect("two devices");
    let primary = &pair.devices[0];
    std::thread::scope(|scope| {
        let ends = Stop(&stop);
        scope.spawn(|| hosts(primary, &stop));
        scope.spawn(|| appender(primary, &stop));
        let mut tried = 0;
        for panel in ROWS.iter().flat_map(|row| row.panels) {
            for (query, _) in panel.queries {
                let query = expression(query, ".*", "10s");
                // Of each expression one sample at least is a number: NaN is what a rate of nothing by nothing is.
                wait::success(panel.title, || match prometheus.query(&query) {
                    values if values.iter().any(|value| value.is_finite() && (!panel.moves || *value > 0.0)) => Ok(()),
                    values => Err(format!("{query} is {values:?}")),
                });
                tried += 1;
            }
        }
        for alert in ALERTS {
            wait::success(alert.name, || match prometheus.query(alert.expression) {
                values if values.iter().any(|value| value.is_finite()) => Ok(()),
                values => Err(format!("{} is {values:?}", alert.expression)),
            });
            tried += 1;
        }
        println!("{tried} expressions");
        let rules = wait::success("Prometheus evaluates the rules", || match prometheus.rules() {
            rules if rules.values().all(|health| health == "ok") => Ok(rules),
            rules => Err(format!("{rules:?}")),
        });
        assert_eq!(rules.keys().map(String::as_str).collect::<BTreeSet<_>>(), ALERTS.iter().map(|a| a.name).collect());
        for at in &addresses {
            let page = get(*at, "/metrics");
            let (clean, said) = promtool(&["check", "metrics"], &page);
            assert!(clean && said.is_empty(), "{said}\n{page}");
        }

        let fires = |name: &str| {
            let alert = ALERTS.iter().find(|alert| alert.name == name).expect("it is in the list");
            !prometheus.query(&alert.rule()).is_empty()
        };
        for name in ["TidewaterDown", "TidewaterNoPower", "TidewaterReadOnly", "TidewaterErrors", "TidewaterPeerAway"] {
            // An answer that comes late while the expressions are asked is like a device that is down.
            wait::success(
                name,
                || if fires(name) { Err("it fires of devices that are well".to_owned()) } else { Ok(()) },
            );
        }
        replica.kill();
        for name in ["TidewaterDown", "TidewaterPeerAway", "TidewaterReplicaNotInStep", "TidewaterReplicaBehind"] {
            wait::success(name, || if fires(name) { Ok(()) } else { Err("it does not fire".to_owned()) });
        }
        drop(ends);
    });
    run_well(&pair.devices[0].folder, &["fault", "power-cut", "--off", "3600s", "--control", "control.sock"]);
    let alert = ALERTS.iter().find(|alert| alert.name == "TidewaterNoPower").expect("it is in the list");
    wait::success(alert.name, || if prometheus.query(&alert.rule()).is_empty() { Err(String::new()) } else { Ok(()) });
}

/// Compares a file of the checkout with what it should be, after writing it where this was asked for.
fn compare(file: &str, text: &str) {
    let path = root().join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the checkout can be written");
        std::fs::write(&path, text).expect("the checkout can be written");
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == text, "{file} is not what the lists say: {HOW}");
}

#[test]
fn dashboard_and_rules_are_what_the_lists_say() {
    for (file, text) in [("packaging/grafana/tidewater.json", dashboard()), ("packaging/grafana/alerts.yml", rules())] {
        // A string of JSON is in one line: an expression may be wider.
        let is_wide = |line: &&str| line.chars().count() > 120 && !line.trim_start().starts_with("\"expr\": ");
        let wide: Vec<&str> = text.lines().filter(is_wide).collect();
        assert!(wide.is_empty(), "{file}: {wide:#?}");
        compare(file, &text);
    }
    let json: Value = serde_json::from_str(&dashboard()).expect("JSON");
    let panels = json["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has its own id");
    assert_eq!(panels.len(), ROWS.len() + ROWS.iter().map(|row| row.panels.len()).sum::<usize>());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let at = |field: &str| panel["gridPos"][field].as_u64().expect("a number");
        let overlaps = |other: &&Value| {
            let of = |field: &str| other["gridPos"][field].as_u64().expect("a number");
            at("x") < of("x") + of("w")
                && of("x") < at("x") + at("w")
                && at("y") < of("y") + of("h")
                && of("y") < at("y") + at("h")
        };
        assert_eq!(panels.iter().filter(overlaps).count(), 1, "{} overlaps", panel["title"]);
        assert!(!panel["description"].as_str().unwrap_or_default().is_empty(), "{}", panel["title"]);
    }
}

/// A metric of a page: its type, the names of its labels, and its help.
type Metric = (String, BTreeSet<String>, String);

/// The metrics of pages by name.
fn metrics(pages: &[String]) -> BTreeMap<String, Metric> {
    let mut found: BTreeMap<String, Metric> = BTreeMap::new();
    for line in pages.iter().flat_map(|page| page.lines()) {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            found.entry(name.to_owned()).or_default().2 = help.to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            found.entry(name.to_owned()).or_default().0 = kind.to_owned();
        } else if let Some((name, labels)) = line.split_once('{') {
            let name =
                ["_bucket", "_sum", "_count"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
            let labels = labels.split("\",").filter_map(|label| label.split('=').next());
            found.get_mut(name).expect("a sample has a type").1.extend(labels.map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_guide_lists_every_metric_and_every_alert() {
    let pair = Pair::start();
    let stop = AtomicBool::new(false);
    let metrics = std::thread::scope(|scope| {
        let _ends = Stop(&stop);
        // Only a host has queues.
        scope.spawn(|| hosts(&pair.devices[0], &stop));
        wait::success("each metric has a sample", || {
            let all = pair.devices.iter().map(address).chain(pair.keepers.iter().map(|keeper| keeper.address));
            let pages: Vec<String> = all.map(|at| get(at, "/metrics")).collect();
            let has_sample =
                |name: &String| pages.iter().flat_map(|page| page.lines()).any(|line| line.starts_with(name));
            let metrics = metrics(&pages);
            let without: Vec<String> = metrics.keys().filter(|name| !has_sample(name)).cloned().collect();
            if without.is_empty() { Ok(metrics) } else { Err(format!("{without:?}")) }
        })
    });
    let mut list = String::from("## Metrics\n\n");
    for (name, (kind, labels, help)) in &metrics {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(", by {}", labels.join(" and ")) };
        list += &format!("- `{name}` ({kind}{labels}): {help}\n");
    }
    list += "\n## Alerts\n\n";
    for alert in ALERTS {
        let lasts = if alert.lasts == "0m" { String::new() } else { format!(" for {}", alert.lasts) };
        list += &format!("- `{}` ({}): `{}`{lasts}\n", alert.name, alert.severity, alert.rule());
    }
    let start = format!("<!-- generated: {HOW} -->\n\n");
    let text = std::fs::read_to_string(root().join(GUIDE)).expect("the page is there");
    let (head, _) = text.split_once(&start).expect("the page marks where its lists start");
    compare(GUIDE, &format!("{head}{start}{}", markdown::wrap(&list)));

    // What expressions name is there.
    let words = |text: &str| -> Vec<String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = text.split(|c| !is_name(c)).filter(|word| word.starts_with("tidewater_"));
        names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
    };
    let queries = ROWS.iter().flat_map(|row| row.panels).flat_map(|panel| panel.queries).map(|(query, _)| *query);
    for name in queries.chain(ALERTS.iter().map(|alert| alert.expression)).flat_map(words) {
        assert!(metrics.contains_key(&name), "{name} is no metric");
    }
}

/// A log device, as the guides set it up, had neither metrics nor a page; its status said nothing of its log.
#[test]
fn a_log_device_has_metrics_a_page_and_a_status_of_its_log() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = tidewater(folder.path());
    command.args(["log-device", "log", "--metrics", "127.0.0.1:0", "--page", "127.0.0.1:0"]).stdout(Stdio::piped());
    let errors = File::create(folder.path().join("stderr")).expect("the folder is writable");
    let device = Device::served(command.stderr(errors).spawn().expect("it starts"), folder.path());
    let target = format!("vfio-user:{}", folder.path().join("log/vfio.sock").display());
    let log = Log::open(&target, Options { level: Some(Level::Ring), ..Options::default() }).expect("a log");
    let end = log.append(&[&[7; 10_000]]).expect("the ring accepts the record").end;
    wait::success("it is credited", || {
        let page = get(address(&device), "/metrics");
        let credited = page.lines().find_map(|line| line.strip_prefix("tidewater_log_credited_bytes_total{"));
        let value = credited.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        if value == Some(end as f64) { Ok(()) } else { Err(page) }
    });
    let page = between(&device, "Watch it: http://", "/").parse().expect("it prints an address");
    assert!(get(page, "/").contains("<html"));
    let status = |more: &[&str]| run_well(folder.path(), &[&["status", "--control", "log"], more].concat());
    let json: Value = serde_json::from_str(&status(&["--json"])).expect("a document");
    let lane = &json["lanes"][0];
    assert_eq!((&lane["tail"], &lane["credit"]), (&end.into(), &end.into()), "{json:#}");
    assert!(lane["ring"].as_u64() > Some(0) && json["log_waits"]["destaged"]["count"].is_u64(), "{json:#}");
    let text = status(&[]);
    for part in ["has a program; ", " appended, ", " acknowledged, ", " on flash; ", " in use\n", "log waits", "syncs"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}
