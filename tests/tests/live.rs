//! The live page in a real browser, driven by playwright-core. Without Chromium, node or the modules: SKIPPED.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidewater_driver::nvme_tcp::{Controller, Host, Queue, Transfer};
use tidewater_report::Record;
use tidewater_report::compare::{GLANCE, glance};
use tidewater_tests::{root, run_well, skipped, tidewater};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::nvme::Sqe;

/// Bytes of a block of the namespace.
const BLOCK: usize = 4_096;
/// A drive's file whose name is markup: the page shows names.
const IMAGE: &str = "<img src=x onerror=alert(1)>";

/// Chromium, node, and the folder of the modules; else what is missing.
fn tools() -> Result<(PathBuf, PathBuf), &'static str> {
    let found = |names: &[&str]| {
        let path = std::env::var_os("PATH")?;
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).find(|file| file.is_file())
    };
    let browser = found(&["chromium", "google-chrome", "google-chrome-stable"]).ok_or("no Chromium")?;
    found(&["node"]).ok_or("no node")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let modules = target.join("browser");
    if modules.join("node_modules/playwright-core").is_dir() {
        Ok((browser, modules))
    } else {
        Err("no playwright-core: scripts/setup.sh --browser fetches it")
    }
}

/// A browser that looks at a page.
struct Viewer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Viewer {
    fn start(scenario: &str, page: &str) -> Option<Viewer> {
        let (browser, modules) = tools().inspect_err(|why| skipped(1, why)).ok()?;
        let mut child = Command::new("node")
            .arg(root().join("tests/browser/live.mjs"))
            .args([scenario, &browser.to_string_lossy(), page, &modules.to_string_lossy()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Some(Viewer { child, lines })
    }

    /// Its next message.
    fn said(&mut self) -> Value {
        let line = self.lines.next().expect("the device prints a line").expect("it is UTF-8");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn go_on(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("it is piped")).expect("the server listens");
    }

    /// It ends, and the page has complained of nothing.
    fn end(mut self) {
        let said = self.said();
        assert_eq!(said["complaints"], Value::Array(Vec::new()), "{said}");
        assert!(self.child.wait().expect("the process can be waited for").success());
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A served device with a page, which is killed in the end.
struct Served {
    child: Child,
    said: String,
}

/// A port that is free now.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

impl Served {
    fn start(folder: &Path, page: u16) -> Served {
        let page = format!("127.0.0.1:{page}");
        let mut child = tidewater(folder)
            .args(["serve", "--profile", "tiny", "--set", "serve.timing=none", "--set", "fast.lanes=1"])
            .args(["--control", "control.sock", "--namespaces", "rest:4k", "--image", IMAGE])
            .args(["--nvme-tcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--page", &page])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("SIGTERM") {
            assert!(stdout.read_line(&mut said).expect("it prints UTF-8") > 0, "it does not serve: {said}");
        }
        Served { child, said }
    }

    fn between(&self, before: &str, after: &str) -> &str {
        let (_, rest) = self.said.split_once(before).unwrap_or_else(|| panic!("{before} in {}", self.said));
        rest.split(after).next().expect("a split has a first piece")
    }

    fn queue(&self) -> (Controller, Queue) {
        let command = self.between("nvme connect -t tcp -a ", "\n");
        let parts: Vec<&str> = command.split(' ').collect();
        let address = format!("{}:{}", parts[0], parts[2]).parse().expect("it prints address and port");
        let name = Nqn::new(self.between(" -n ", "\n")).expect("it prints its name");
        let host = Host::new(Nqn::new("nqn.2026-01.io.example:host").expect("it is a name"), [7; 16]);
        let mut controller = Controller::connect(address, &host, &name).expect("it takes hosts");
        controller.enable().expect("the controller gets ready");
        controller.set_queues(1).expect("it has queues");
        let queue = controller.queue(1, 16).expect("the queue connects");
        (controller, queue)
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> f64 {
        let address = self.between("Metrics: http://", "/");
        let mut stream =
            TcpStream::connect(address.parse::<SocketAddr>().expect("an address")).expect("the server listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it takes a request");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("the server answers");
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {page}")).trim().parse().expect("a number")
    }

    fn kill(&mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process can be waited for");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program with a live page; killed in the end, if it has not come to its own.
struct Watched {
    child: Child,
    page: String,
    stderr: BufReader<ChildStderr>,
}

impl Watched {
    fn start(folder: &Path, arguments: &[&str]) -> Watched {
        let mut command = tidewater(folder);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut said = String::new();
        let page = loop {
            assert!(stderr.read_line(&mut said).expect("it prints UTF-8") > 0, "it shows no page: {said}");
            if let Some((_, page)) = said.split_once("watch it: ") {
                break page.trim().to_owned();
            }
        };
        Watched { child, page, stderr }
    }

    fn end(mut self) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("it prints UTF-8");
        let status = self.child.wait().expect("the process can be waited for");
        assert!(status.success(), "{status}: {rest}");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sets a flag when it is dropped, so that a test that fails ends its load.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn some_work(served: &Served) -> (Controller, Queue) {
    let (controller, mut queue) = served.queue();
    for block in 0..300 {
        let data = Transfer::Out(vec![block as u8; BLOCK]);
        queue.call(Sqe::write(0, block % 64, 0), data).expect("the queue is connected").good().expect("a write");
        let data = Transfer::In(BLOCK as u32);
        queue.call(Sqe::read(0, block % 64, 0), data).expect("the queue is connected").good().expect("a read");
    }
    (controller, queue)
}

#[test]
fn at_rest_it_says_what_metrics_say_and_has_no_fault_that_axe_finds() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = port();
    let served = Served::start(folder.path(), port);
    let _host = some_work(&served);
    let Some(mut viewer) = Viewer::start("rest", &format!("http://127.0.0.1:{port}/")) else { return };
    let said = viewer.said();
    assert_eq!(said["faults"], Value::Array(Vec::new()));
    assert_eq!((&said["images"], said["title"].as_str().is_some_and(|title| title.contains(IMAGE))), (&0.into(), true));
    let last = &said["last"];
    for (metric, is) in [
        ("tidewater_commands_total{kind=\"read\"}", &last["commands"][0]),
        ("tidewater_commands_total{kind=\"write\"}", &last["commands"][1]),
        ("tidewater_bytes_total{to=\"host\"}", &last["bytes"][0]),
        ("tidewater_bytes_total{to=\"device\"}", &last["bytes"][1]),
        ("tidewater_errors_total", &last["errors"]),
        ("tidewater_flash_units_total{by=\"host\"}", &last["drive"]["units"]["host"]),
        ("tidewater_free_superblocks", &last["drive"]["free_superblocks"][0]),
        ("tidewater_capacity_bytes", &last["drive"]["capacity"]),
        ("tidewater_command_duration_seconds_count{kind=\"read\"}", &300.into()),
    ] {
        assert_eq!(Some(served.metric(metric)), is.as_f64(), "{metric}");
    }
    let paint = said["paint"].as_f64().expect("a time");
    println!("first paint after {paint} ms; {} tiles", said["tiles"].as_array().map_or(0, Vec::len));
    assert!(paint > 0.0, "{paint} ms");
    viewer.end();
}

#[test]
fn a_device_that_goes_and_comes_back_leaves_a_gap_and_no_zero() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = port();
    let mut served = Served::start(folder.path(), port);
    let Some(mut viewer) = Viewer::start("killed", &format!("http://127.0.0.1:{port}/")) else { return };
    assert_eq!(viewer.said()["ready"], true);
    served.kill();
    viewer.go_on();
    assert!(viewer.said()["state"].as_str().is_some_and(|state| state.starts_with("no answer since ")));
    let _again = Served::start(folder.path(), port);
    viewer.go_on();
    let said = viewer.said();
    assert_eq!(said["state"], "serving");
    let rows = said["rows"].as_array().expect("rows");
    let gap = rows.iter().position(Value::is_null).expect("a gap");
    assert!(gap > 0 && rows[gap + 1..].iter().any(|row| !row.is_null()), "{rows:?}");
    viewer.end();
}

#[test]
fn eight_hours_and_a_thousand_dies_take_no_more_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = port();
    let _served = Served::start(folder.path(), port);
    let Some(mut viewer) = Viewer::start("long", &format!("http://127.0.0.1:{port}/")) else { return };
    let said = viewer.said();
    let number = |key: &str| said[key].as_f64().unwrap_or_else(|| panic!("{key} in {said}"));
    println!("{said}");
    assert_eq!(number("samples"), 2_400.0);
    assert!(number("late") < number("early") * 1.5, "{said}");
    assert!(number("events") <= 1_000.0);
    assert!(number("frame") < 20_000.0, "a picture of a thousand dies is drawn in time: {said}");
    viewer.end();
}

#[test]
fn it_is_used_by_keyboard_and_a_link_brings_the_view_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = port();
    let served = Served::start(folder.path(), port);
    let _host = some_work(&served);
    let Some(mut viewer) = Viewer::start("hands", &format!("http://127.0.0.1:{port}/")) else { return };
    let said = viewer.said();
    assert_eq!((&said["first"], &said["pressed"]), (&"pause".into(), &"true".into()));
    assert!(said["legend"].as_str().is_some_and(|legend| legend.contains("writes")), "{said}");
    assert!(said["view"]["paused"] == true && said["view"]["from"].is_number(), "{said}");
    assert_eq!(said["view"]["paused"], said["again"]["paused"]);
    for end in ["from", "to"] {
        let (here, there) = (said["view"][end].as_f64().unwrap(), said["again"][end].as_f64().unwrap());
        assert!((here - there).abs() < 0.01, "{said}");
    }
    let width = said["zoomed"]["to"].as_f64().unwrap() - said["zoomed"]["from"].as_f64().unwrap();
    assert!((1.0..120.0).contains(&width), "a tenth of ten minutes: {said}");
    assert_eq!(said["drawn"], 0, "nothing is drawn in a hidden tab");
    viewer.end();
}

#[test]
fn a_page_that_is_paused_stands_and_a_link_to_it_shows_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = port();
    let served = Served::start(folder.path(), port);
    let _host = some_work(&served);
    let Some(mut viewer) = Viewer::start("held", &format!("http://127.0.0.1:{port}/")) else { return };
    let said = viewer.said();
    assert_eq!(said["before"], said["after"], "tiles stand with the plots");
    assert_eq!(said["before"], said["restored"]["tiles"], "and so they do behind the link");
    assert_eq!(said["legends"], said["restored"]["legends"], "each legend tells the time of the tiles");
    assert!(said["legends"][0].as_str().is_some_and(|legend| legend.contains("at") && !legend.contains("at–")));
    let plots = said["restored"]["plots"].as_array().expect("plots");
    assert!(!plots.is_empty());
    for plot in plots {
        assert!(plot["points"].as_u64().is_some_and(|points| points >= 8), "{plot}");
        for end in ["from", "to"] {
            let (is, wanted) = (plot[end].as_f64().unwrap(), said["restored"]["view"][end].as_f64().unwrap());
            assert!((is - wanted).abs() < 1e-3, "{end}: {plot}, not {wanted}");
        }
    }
    let link = said["link"].as_str().expect("a link");
    assert!(["paused=1", "span=60", "from=", "to="].iter().all(|part| link.contains(part)), "{link}");
    assert!(said["meanwhile"].as_u64().is_some_and(|count| count <= 1), "a hidden tab has no stream: {said}");
    assert_eq!((&said["rises"], &said["calm"]), (&true.into(), &"state".into()));
    assert_eq!(said["widths"], serde_json::json!(["75%", "0%", "25%"]), "what is on flash is seen on a secondary");
    assert_eq!(said["cells"][3], "–", "a secondary acknowledges nothing");
    viewer.end();
}

/// The trace comes little by little until the page was looked at, however slow the browser is.
#[test]
fn a_run_ends_with_the_values_of_its_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = ["replay", "--trace", "-", "--format", "mqsim", "--profile", "generic", "--capacity", "64MiB"];
    let mut run = Watched::start(folder.path(), &[&line[..], &["--json", "record.json", "--live"]].concat());
    let mut trace = run.child.stdin.take().expect("it is piped");
    let enough = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&enough);
    let load = std::thread::spawn(move || {
        let mut written = 0u64;
        while !until.load(Ordering::Relaxed) {
            let line = |i: u64| format!("{} 0 {} 8 {}\n", i * 100_000, i * 8 % 64_000, i % 3 / 2);
            let lines: String = (written..written + 500).map(line).collect();
            // A program that has failed says why.
            if trace.write_all(lines.as_bytes()).is_err() {
                break;
            }
            written += 500;
            std::thread::sleep(Duration::from_millis(20));
        }
        written
    });
    let ends = Stop(&enough);
    let Some(mut viewer) = Viewer::start("run", &run.page) else { return };
    assert_eq!(viewer.said()["faults"], Value::Array(Vec::new()));
    viewer.go_on();
    drop(ends);
    let written = load.join().expect("no thread panics");
    let said = viewer.said();
    let last = &said["last"];
    run.end();
    let text = std::fs::read_to_string(folder.path().join("record.json")).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("a record");
    let count = |op: &str| record["latency_us"][op]["count"].clone();
    for (what, of_page, of_record) in [
        ("requests", &last["progress"]["requests"], record["requests"].clone()),
        ("reads", &last["commands"][0], count("read")),
        ("writes", &last["commands"][1], count("write")),
        ("bytes to the host", &last["bytes"][0], record["bytes_read"].clone()),
        ("bytes from the host", &last["bytes"][1], record["bytes_written"].clone()),
        ("units of hosts", &last["drive"]["units"]["host"], record["flash"]["units_host"].clone()),
        ("collections", &last["drive"]["collections"], record["collections"].clone()),
        ("blocks erased", &last["drive"]["erases"], record["erases"].clone()),
    ] {
        assert!(of_page.is_number() && *of_page == of_record, "{what}: {of_page} on the page, {of_record}");
    }
    assert_eq!(last["progress"]["requests"], written);
    assert!(said["reads"].is_number() && said["tiles"][0] != "–", "the last rates stay: {said}");
    assert!(said["far"].as_str().is_some_and(|far| far.ends_with("ended")), "{said}");
    assert_eq!(viewer.said(), serde_json::json!({ "state": "ended", "bad": false }));
    viewer.end();
}

/// The test holds the lock of the last run, as another process that makes it would.
#[test]
fn a_sweep_shows_its_runs_and_what_they_gave() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = "rw=randrw,bs=4k,iodepth=4,size=1m,number_ios=2k";
    let of = ["sweep", "--out", "s", "--job", job, "--profile", "tiny", "--vary", "nand.channels=0,2"];
    let line = [&of[..], &["--vary", "seed=1..3"]].concat();
    let listed = run_well(folder.path(), &[&line[..], &["--dry-run"]].concat());
    let last = listed.lines().rfind(|line| line.starts_with("missing")).expect("runs");
    let (name, label) = last.trim_start_matches("missing").trim().split_once("  ").expect("a name and a label");
    std::fs::create_dir_all(folder.path().join("s/runs")).expect("a folder");
    std::fs::create_dir_all(folder.path().join("s/claims")).expect("a folder");
    let lock = std::fs::File::create(folder.path().join("s/claims").join(name)).expect("a lock");
    lock.try_lock().expect("the lock is free");

    let run = Watched::start(folder.path(), &[&line[..], &["--live"]].concat());
    let Some(mut viewer) = Viewer::start("sweep", &run.page) else { return };
    let said = viewer.said();
    assert_eq!(said["faults"], Value::Array(Vec::new()));
    // Three can't be had, two are made, and one is another's.
    assert_eq!(said["tiles"], serde_json::json!(["5", "0", "3", "1"]), "{said:#}");
    assert!((said["board"]["share"].as_f64().expect("a share") - 5.0 / 6.0).abs() < 1e-9);
    let failures = said["board"]["tables"][1]["rows"].to_string();
    assert!(failures.contains("channels=0 seed=3") && failures.contains("nand.channels=0: "), "{failures}");
    drop(lock);
    viewer.go_on();
    let said = viewer.said();
    assert_eq!(said["held"], serde_json::json!(["5", "0", "3", "1"]), "a page that is paused stands still");
    assert_eq!((&said["tiles"], &said["images"]), (&serde_json::json!(["6", "0", "3", "0"]), &0.into()));
    let cells: Vec<&str> = said["cells"].as_array().expect("cells").iter().filter_map(Value::as_str).collect();
    let gave = &said["board"]["tables"][3];
    let rows = gave["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0][0]["text"]), (3, &label.trim().into()), "the newest is the first: {gave:#}");
    let kept: Value = {
        let path = folder.path().join("s/runs").join(format!("{name}.json"));
        serde_json::from_str(&std::fs::read_to_string(path).expect("a record")).expect("a record")
    };
    let record = serde_json::from_value::<Record>(kept["record"].clone()).expect("a record");
    let known: Vec<String> = GLANCE
        .iter()
        .zip(glance(&record))
        .filter_map(|((_, quantity), value)| value.map(|value| quantity.format(value)))
        .collect();
    assert_eq!(known.len(), GLANCE.len(), "reads and writes have each figure");
    let shown: Vec<&str> =
        rows[0].as_array().expect("cells")[3..].iter().filter_map(|cell| cell["text"].as_str()).collect();
    assert_eq!(shown, known);
    for text in &known {
        assert!(cells.contains(&text.as_str()), "{text} in {cells:?}");
    }
    // It ends with the status of a sweep with failures.
    viewer.end();
    let mut run = run;
    assert_eq!(run.child.wait().expect("the process can be waited for").code(), Some(1));
}

/// Reads a second, of so many reads one after the other.
fn rate(queue: &mut Queue, reads: u64) -> f64 {
    let begun = Instant::now();
    for block in 0..reads {
        let data = Transfer::In(BLOCK as u32);
        queue.call(Sqe::read(0, block % 64, 0), data).expect("the queue is connected").good().expect("a read");
    }
    reads as f64 / begun.elapsed().as_secs_f64()
}

/// A viewer that only reads, until it is dropped.
fn look(page: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", page)).expect("the server listens");
    write!(stream, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:{page}\r\n\r\n").expect("it takes a request");
    let mut reader = stream.try_clone().expect("a descriptor");
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    stream
}

#[test]
#[ignore = "a measurement: it needs a machine with nothing else to do"]
fn torture_reads_keep_their_rate_beside_a_viewer() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = port();
    let served = Served::start(folder.path(), page);
    let (_host, mut queue) = some_work(&served);
    let mut ratios = Vec::new();
    for _ in 0..9 {
        let alone = rate(&mut queue, 20_000);
        let viewer = look(page);
        let beside = rate(&mut queue, 20_000);
        let asked = served.metric("tidewater_commands_total{kind=\"read\"}");
        viewer.shutdown(std::net::Shutdown::Both).expect("the connection is open");
        ratios.push(beside / alone);
        println!("{alone:.0} reads/s alone, {beside:.0} beside a viewer; {asked} in all");
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.3}", ratios[4]);
    assert!(ratios[4] > 0.97, "{ratios:?}");
}
