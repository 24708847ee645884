//! The memory of a device's process while strangers and hosts flood it by each way in.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tidewater_tests::ring::Device;
use tidewater_tests::{run_well, skipped, tidewater};
use tidewater_wire::fabrics::{
    CONTROLLER_ANY, Connect, ConnectData, DataPointer, Fabrics, Nqn, PropertySet, Response, property,
};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::nvme_tcp::{Framing, IcReq, Pdu};
use tidewater_wire::replication::{Hello, LANES_MAX, PEER_VERSION, Piece, Ping};

/// Memory that a device may take at most, in MiB.
const MEMORY_MIB_MAX: u64 = 100;
/// How long each flood goes on.
const FLOOD: Duration = Duration::from_secs(6);
/// Threads of each flood.
const THREADS: usize = 4;

/// A device with every way in, and its addresses.
struct Target {
    device: Device,
    folder: TempDir,
    host: String,
    subsystem: String,
}

const NVME: u16 = 4420;
const METRICS: u16 = 9464;
const PAGE: u16 = 8080;
const PEERS: u16 = 7420;

impl Target {
    fn new(number: u8, is_secured: bool) -> Target {
        let pid = std::process::id();
        // All of 127/8 is loopback: each device has an address of its own.
        let host = format!("127.{}.{}.{}", 128 + (pid >> 8 & 127), pid & 255, 1 + number);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = tidewater(folder.path());
        let at = |port: u16| format!("{host}:{port}");
        command.args(["serve", "--profile", "villars", "--size", "256MiB", "--image", "drive", "--ring", "ring"]);
        for set in ["serve.timing=none", "fast.memory=fast-dram", "fast.size=4MiB", "fast.on_wrap=wait-for-trim"] {
            command.args(["--set", set]);
        }
        command.args(["--control", "control.sock", "--vfio-user", "f0.sock", "--commands", "unix:seen.sock"]);
        command.args(["--nvme-tcp", &at(NVME), "--metrics", &at(METRICS), "--page", &at(PAGE)]);
        command.args(["--node", "1", "--peer-listen", &at(PEERS), "--peer", "0=127.0.0.1:1"]);
        if is_secured {
            run_well(folder.path(), &["cluster", "init", "certs", "--cluster", "tidewater", "--nodes", "2"]);
            command.args(["--peer-identity", "certs/node-1"]);
        }
        let errors = fs::File::create(folder.path().join("stderr")).expect("the folder is writable");
        let child = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the binary starts");
        let device = Device::served(child, folder.path());
        let word = device.said.split_whitespace().find(|word| word.contains("nqn."));
        let subsystem = word.expect("its subsystem").trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
        Target { device, folder, host, subsystem }
    }

    fn tcp(&self, port: u16) -> Option<TcpStream> {
        let stream = TcpStream::connect((self.host.as_str(), port)).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a time-out");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
        Some(stream)
    }

    fn unix(&self, name: &str) -> Option<UnixStream> {
        let stream = UnixStream::connect(self.folder.path().join(name)).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a time-out");
        Some(stream)
    }

    /// The most memory that the device had so far, in MiB.
    fn memory_mib(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.device.child.id())).expect("the process runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
        line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).expect("a number") >> 10
    }
}

/// One of the threads of a flood, until its time is over: what it holds stays open as long.
type Flood = fn(&Target, &AtomicBool);

/// Many connections that send these bytes, and read nothing.
fn silent(target: &Target, port: u16, count: usize, bytes: &[u8], over: &AtomicBool) {
    let mut held = Vec::new();
    while !over.load(Ordering::Relaxed) {
        if held.len() >= count {
            held.remove(0);
        }
        if let Some(mut stream) = target.tcp(port) {
            let _ = stream.write_all(bytes);
            held.push(stream);
        }
    }
}

/// Connections that send these bytes again and again, and read nothing. One that is closed is opened again.
fn pour(target: &Target, port: u16, begin: &[u8], bytes: &[u8], over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let Some(mut stream) = target.tcp(port) else { continue };
        if stream.write_all(begin).is_err() {
            continue;
        }
        // A device that takes nothing more has its bound: the connection stays as it is.
        while !over.load(Ordering::Relaxed) && write_some(&mut stream, bytes) {}
    }
}

/// Sends some of it, as far as the other side takes any. Whether the connection still stands.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    match stream.write(bytes) {
        Ok(len) => len > 0,
        Err(error) => matches!(error.kind(), TimedOut | WouldBlock),
    }
}

fn hello() -> Vec<u8> {
    let mut lanes = [0; LANES_MAX];
    lanes[0] = 1;
    let cluster = Hello::cluster_bytes("tidewater").expect("the name fits");
    let hello = Hello {
        version: PEER_VERSION,
        version_min: 1,
        node: 0,
        to: 1,
        boot: 7,
        session: 1,
        drive: [3; 16],
        lanes,
        ring_bytes: 4 << 20,
        page_bytes: 16_320,
        cluster,
        ..Hello::default()
    };
    hello.to_bytes().to_vec()
}

fn pings() -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..4096 {
        Piece::append_ping(&Ping { sent_ns: 1, back: false, disk: 0 }, &mut bytes);
    }
    bytes
}

/// A host's connection, by hand.
struct Host(TcpStream);

impl Host {
    fn send(&mut self, pdu: &Pdu, data: &[u8]) -> Option<()> {
        let mut bytes = Vec::new();
        pdu.append(&Framing::default(), data, &mut bytes);
        self.0.write_all(&bytes).ok()
    }

    /// The value of the next response, which is all that comes.
    fn response(&mut self) -> Option<u64> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes).ok()?;
        Some(Response::from_bytes(bytes[8..].first_chunk()?).value)
    }

    fn new(target: &Target, controller: u16, queue: u16) -> Option<(Host, u16)> {
        let mut host = Host(target.tcp(NVME)?);
        let plain = IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 };
        host.send(&Pdu::IcReq(plain), &[])?;
        host.0.read_exact(&mut [0; 128]).ok()?;
        let connect =
            Connect { queue, entries_zero_based: 127, no_flow_control: true, deletes_queues: false, keep_alive_ms: 0 };
        let sqe = DataPointer::Capsule { offset: 0, len: ConnectData::SIZE as u32 };
        let sqe = sqe.put(Fabrics::Connect(connect).emit(0x77));
        let name = |text: &str| Nqn::new(text);
        let data = ConnectData {
            host_id: [9; 16],
            controller,
            subsystem: name(&target.subsystem)?,
            host: name("nqn.2026-01.io.example:flood"),
        };
        host.send(&Pdu::CapsuleCmd(sqe), &data.to_bytes())?;
        let id = host.response()? as u16;
        Some((host, id))
    }

    /// An admin queue, and an I/O queue of the same controller.
    fn queues(target: &Target) -> Option<[Host; 2]> {
        let (mut admin, id) = Host::new(target, CONTROLLER_ANY, 0)?;
        let enable = PropertySet { offset: property::CC, len: 4, value: 0x0046_0001 };
        let enable = DataPointer::Transport { len: 0 }.put(Fabrics::PropertySet(enable).emit(1));
        admin.send(&Pdu::CapsuleCmd(enable), &[])?;
        admin.response()?;
        let (host, _) = Host::new(target, id, 1)?;
        Some([admin, host])
    }
}

/// Hosts that fill their queues with commands, and read nothing.
fn hosts(target: &Target, sqe: impl Fn(u16) -> Sqe, data: &[u8], over: &AtomicBool) {
    let mut held = Vec::new();
    while !over.load(Ordering::Relaxed) {
        if held.len() >= 12 / THREADS {
            std::thread::sleep(Duration::from_millis(20));
            held.retain(|[_, host]: &[Host; 2]| {
                host.0.set_nonblocking(true).is_ok() && !matches!(host.0.peek(&mut [0]), Ok(0))
            });
            continue;
        }
        let Some([admin, mut host]) = Host::queues(target) else { continue };
        for cid in 0..127 {
            if host.send(&Pdu::CapsuleCmd(sqe(cid)), data).is_none() {
                break;
            }
        }
        held.push([admin, host]);
    }
}

fn local(target: &Target, name: &str, bytes: &[u8], over: &AtomicBool) {
    let mut held = Vec::new();
    while !over.load(Ordering::Relaxed) {
        if held.len() >= 100 {
            held.remove(0);
        }
        if let Some(mut stream) = target.unix(name) {
            let _ = stream.write_all(bytes);
            held.push(stream);
        }
    }
}

/// A peer of another CA, one without a certificate, and one with a right one, in Python.
const TLS: &str = r#"
import socket, ssl, sys, time
host, port, how, until = sys.argv[1], int(sys.argv[2]), sys.argv[3], time.time() + float(sys.argv[4])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
if how == "pings": context.load_cert_chain("certs/node-0/node.pem", "certs/node-0/node.key")
data, held = sys.stdin.buffer.read(), []
while time.time() < until:
    try:
        plain = socket.create_connection((host, port), timeout=0.3)
        stream = context.wrap_socket(plain)
        if how == "pings":
            stream.sendall(data[:128])
            while time.time() < until:
                try: stream.sendall(data[128:])
                except TimeoutError: pass
        held.append(stream); held = held[-100:]
    except OSError: pass
"#;

fn tls(target: &Target, how: &str) {
    let mut python = Command::new("python3");
    python.args(["-c", TLS, &target.host, &PEERS.to_string(), how, &FLOOD.as_secs().to_string()]);
    let mut child = python.current_dir(target.folder.path()).stdin(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(&[hello(), pings()].concat()).expect("the program reads its input");
    drop(input);
    assert!(child.wait().expect("the process can be waited for").success());
}

const EVENTS: &[u8] = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
const COUNTERS: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Each flood, by name.
fn floods() -> Vec<(&'static str, Flood)> {
    vec![
        ("peers: pings whose answers are not read", |to, over| pour(to, PEERS, &hello(), &pings(), over)),
        ("peers: envelopes of random bytes", |to, over| pour(to, PEERS, &hello(), &[0x5A; 65_536], over)),
        ("peers: long envelopes that do not end", |to, over| {
            // Their longest, and no checksum is reached.
            pour(to, PEERS, &[&hello()[..], &[0, 0, 4, 0, 0, 0, 0, 0]].concat(), &[0; 16], over);
        }),
        ("peers: silent connections", |to, over| silent(to, PEERS, 500 / THREADS, &[], over)),
        ("peers: half a hello", |to, over| silent(to, PEERS, 500 / THREADS, &hello()[..64], over)),
        ("page: streams that are not read", |to, over| silent(to, PAGE, 200 / THREADS, EVENTS, over)),
        ("page: heads without an end", |to, over| pour(to, PAGE, b"GET / HTTP/1.1\r\nX: ", &[b'a'; 65_536], over)),
        ("page: lines without an end", |to, over| {
            pour(to, PAGE, b"GET / HTTP/1.1\r\n", &b"X: y\r\n".repeat(999), over)
        }),
        ("page: connections", |to, over| silent(to, PAGE, 1, &[], over)),
        ("metrics: silent connections", |to, over| silent(to, METRICS, 500 / THREADS, &[], over)),
        ("metrics: answers that are not read", |to, over| pour(to, METRICS, COUNTERS, &COUNTERS.repeat(100), over)),
        ("NVMe/TCP: silent connections", |to, over| silent(to, NVME, 500 / THREADS, &[], over)),
        ("NVMe/TCP: half a PDU", |to, over| silent(to, NVME, 500 / THREADS, &[0, 0, 128, 0], over)),
        ("NVMe/TCP: Connect, again and again", |to, over| {
            let mut held = Vec::new();
            while !over.load(Ordering::Relaxed) {
                held.extend(Host::queues(to));
                held.drain(..held.len().saturating_sub(12));
            }
        }),
        ("NVMe/TCP: reads that are not taken", |to, over| {
            hosts(to, |cid| DataPointer::Transport { len: 512 << 10 }.put(Sqe::read(cid, 0, 127)), &[], over);
        }),
        ("NVMe/TCP: writes without their data", |to, over| {
            hosts(to, |cid| DataPointer::Transport { len: 512 << 10 }.put(Sqe::write(cid, 0, 127)), &[], over);
        }),
        ("NVMe/TCP: capsules with data", |to, over| {
            let write = |cid| DataPointer::Capsule { offset: 0, len: 8_192 }.put(Sqe::write(cid, 0, 1));
            hosts(to, write, &[7; 8_192], over);
        }),
        ("vfio-user: connections", |to, over| local(to, "f0.sock", &[], over)),
        ("vfio-user: half a message", |to, over| local(to, "f0.sock", &[1, 0, 1, 0, 255, 255, 0, 0, 0, 0], over)),
        ("control: connections", |to, over| local(to, "control.sock", &[], over)),
        ("control: lines without an end", |to, over| local(to, "control.sock", &[b'a'; 1 << 20], over)),
        ("commands: readers that do not read", |to, over| {
            let held: Vec<_> = (0..8).map(|_| to.unix("seen.sock")).collect();
            let read = |cid| DataPointer::Transport { len: 4_096 }.put(Sqe::read(cid, 0, 0));
            while !over.load(Ordering::Relaxed) {
                let Some([_admin, mut host]) = Host::queues(to) else { continue };
                let mut bytes = vec![0; 64 << 10];
                for cid in (0..100).cycle() {
                    let is_over = over.load(Ordering::Relaxed);
                    if is_over
                        || host.send(&Pdu::CapsuleCmd(read(cid)), &[]).is_none()
                        || host.0.read(&mut bytes).is_err()
                    {
                        break;
                    }
                }
            }
            drop(held);
        }),
    ]
}

/// That it still serves.
fn is_alive(target: &Target) {
    let status = run_well(target.folder.path(), &["status", "--control", "control.sock"]);
    assert!(status.contains("serving"), "{status}");
}

fn judge(name: &str, target: &Target, over: &mut Vec<String>) {
    let memory = target.memory_mib();
    println!("{memory:5} MiB  {name}");
    if memory >= MEMORY_MIB_MAX {
        over.push(format!("{name}: {memory} MiB"));
    }
    is_alive(target);
    if std::env::var_os("FLOOD").is_some() {
        println!("{}", fs::read_to_string(target.folder.path().join("stderr")).unwrap_or_default());
        println!("{}", run_well(target.folder.path(), &["status", "--control", "control.sock"]));
    }
}

#[test]
#[ignore = "two minutes and more"]
fn torture_no_flood_takes_a_device_more_than_100_mib() {
    let mut over = Vec::new();
    judge("nothing", &Target::new(0, false), &mut over);
    let wanted = std::env::var("FLOOD").unwrap_or_default();
    for (number, (name, flood)) in
        floods().into_iter().enumerate().filter(|(_, (name, _))| wanted.split(',').any(|part| name.contains(part)))
    {
        let target = Target::new(number as u8 + 1, false);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|_| drop(scope.spawn(|| flood(&target, &end))));
            std::thread::sleep(FLOOD);
            end.store(true, Ordering::Relaxed);
        });
        judge(name, &target, &mut over);
    }
    if !has_python() {
        skipped(2, "there is no python3");
    } else {
        for (number, how) in ["strangers", "pings"].into_iter().enumerate() {
            let target = Target::new(number as u8 + 100, true);
            tls(&target, how);
            judge(&format!("peers, TLS: {how}"), &target, &mut over);
        }
    }
    assert!(over.is_empty(), "{over:?}");
}

fn has_python() -> bool {
    Command::new("python3").arg("-V").output().is_ok()
}
