//! A log on three devices over loopback: what an append takes until replicas have it, beside a round trip of TCP in the
//! same run; appends and bytes per second; and what replicas cost an append that does not wait for them.
//!
//! Devices, replicas and clients share the cores of one machine here. These are measurements, not tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tempfile::TempDir;
use tidewater_bench::{Served, TIME, median, setup, until_open, villars};
use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options};
use tidewater_serve::control::{GroupMode, Request};
use tidewater_serve::engine::{Backing, Setup};
use tidewater_serve::peers::PeersSetup;
use tidewater_serve::ring::RingSetup;

const RING: u64 = 64 << 20;
const ROUNDS: usize = 7;
/// Bytes of a log whose throughput is measured.
const STREAM: u64 = 1 << 30;

/// Devices, and where their files are.
struct Group {
    nodes: Vec<Served>,
    _folder: TempDir,
}

impl Group {
    /// So many devices in one group, whose primary is node 0. One device is alone.
    fn new(nodes: u8, mode: GroupMode) -> Group {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let addresses: Vec<SocketAddr> = (0..nodes).map(|_| free_address()).collect();
        let start = |node: u8| {
            let folder = folder.path().join(node.to_string());
            std::fs::create_dir(&folder).expect("the folder can be created");
            let others = (0..nodes).filter(|other| *other != node);
            let peers = PeersSetup {
                node,
                cluster: "bench".to_owned(),
                listen: Some(addresses[usize::from(node)]),
                peers: others.map(|other| (other, addresses[usize::from(other)].to_string())).collect(),
                identity: None,
                insecure: false,
                faults: None,
                catch_up_rate: None,
                holds_log: false,
            };
            serve(&folder, (nodes > 1).then_some(peers))
        };
        let group = Group { nodes: (0..nodes).map(start).collect(), _folder: folder };
        for node in (0..nodes).rev().filter(|_| nodes > 1) {
            let members = (0..nodes).collect();
            let form = Request::GroupForm { function: 0, members, mode, k: nodes / 2 + 1, primary: node == 0 };
            group.nodes[usize::from(node)].ask(&form);
        }
        group
    }

    fn open(&self, level: Level) -> Log {
        let options = Options { level: Some(level), timeout: TIME, full: TIME, ..Options::default() };
        until_open(|| Log::open(&self.nodes[0].target, options))
    }

    fn end(self) {
        self.nodes.into_iter().for_each(Served::end);
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("a local address")
}

fn serve(folder: &Path, peers: Option<PeersSetup>) -> Served {
    let profile = villars(&[
        ("fast.memory", "fast-dram"),
        ("memory.fast-dram.survives", "by-capacitors"),
        ("fast.size", &RING.to_string()),
        ("fast.queue_memory", "fast-dram"),
        ("fast.queue_size", "1MiB"),
        ("fast.log_size", "512MiB"),
        ("fast.energy", "1000"),
        ("fast.on_wrap", "overwrite-oldest"),
    ]);
    let ring = Some(RingSetup { path: folder.join("ring"), persistent: false, copy: None });
    Served::start(Setup { ring, peers, ..setup(profile, Backing::Memory, 1 << 30, 12, folder) })
}

/// Microseconds of a round trip of 64 bytes on one connection.
fn round_trip() -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut near = TcpStream::connect(listener.local_addr().expect("a local address")).expect("a connection");
    let (mut far, _) = listener.accept().expect("a connection arrives");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("the option can be set");
    }
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while far.read_exact(&mut bytes).is_ok() {
            far.write_all(&bytes).expect("the peer reads");
        }
    });
    let mut times = Vec::new();
    for _ in 0..20_000 {
        let (start, mut bytes) = (Instant::now(), [1; 64]);
        near.write_all(&bytes).expect("the peer reads");
        near.read_exact(&mut bytes).expect("the echo arrives");
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    drop(near);
    echo.join().expect("the thread does not panic");
    median(times)
}

/// Bytes per second of one connection, by writes of 256 KiB.
fn throughput() -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut near = TcpStream::connect(listener.local_addr().expect("a local address")).expect("a connection");
    let (mut far, _) = listener.accept().expect("a connection arrives");
    let start = Instant::now();
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 256 << 10];
        let mut left = STREAM;
        while left > 0 {
            left -= far.read(&mut bytes).expect("the peer writes") as u64;
        }
    });
    let bytes = vec![7; 256 << 10];
    for _ in 0..STREAM / bytes.len() as u64 {
        near.write_all(&bytes).expect("the peer reads");
    }
    reader.join().expect("the thread does not panic");
    STREAM as f64 / start.elapsed().as_secs_f64()
}

/// Microseconds of an append of 64 bytes until replicas have it, one at a time.
fn append_time(log: &Log) -> f64 {
    let mut times = Vec::new();
    for _ in 0..10_000 {
        let start = Instant::now();
        let end = log.append(&[&[1; 64]]).expect("the ring has room").end;
        log.wait(end, Level::RemoteRing, TIME).expect("all replicas have the bytes");
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    median(times)
}

/// Appends per second of four writers, each of which waits for replicas after so many.
fn together(log: &Log, batch: u64) -> f64 {
    let each = 10_000 * batch.min(8) / batch;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let mut writer = log.writer().expect("a writer slot is free");
                for _ in 0..each {
                    let mut end = 0;
                    for _ in 0..batch {
                        end = writer.append(&[1; 64]).expect("the ring has room").end;
                    }
                    log.wait(end, Level::RemoteRing, TIME).expect("all replicas have the bytes");
                }
            });
        }
    });
    (4 * each * batch) as f64 / start.elapsed().as_secs_f64()
}

/// Bytes per second of a log that is appended in records of 64 KiB, until all of it is at a level.
fn stream(log: &Log, level: Level) -> f64 {
    let payload = vec![7; 64 << 10];
    let start = Instant::now();
    let mut end = 0;
    for _ in 0..STREAM / payload.len() as u64 {
        end = log.append(&[&payload]).expect("the ring has room in time").end;
    }
    log.wait(end, level, TIME * 4).expect("all replicas have the bytes");
    STREAM as f64 / start.elapsed().as_secs_f64()
}

/// Nanoseconds of an append of 64 bytes and its `x_fsync` at RING, in bursts of a quarter of the ring.
fn local(log: &Log) -> f64 {
    let mut writer = log.writer().expect("a writer slot is free");
    let count = RING / 4 / 128;
    let start = Instant::now();
    for _ in 0..count {
        writer.append(&[1; 64]).expect("the ring has room");
        log.x_fsync().expect("the append reaches the ring");
    }
    let spent = start.elapsed().as_secs_f64() * 1e9 / count as f64;
    drop(writer);
    log.wait(log.status().reserved, Level::Destaged, TIME).expect("the append is destaged");
    spent
}

/// The share of a core that each of these devices takes while nothing happens.
fn idle(group: &Group) -> f64 {
    let start = Instant::now();
    while !group.nodes[0].in_step() {
        assert!(start.elapsed() < TIME, "replicas do not catch up");
        std::thread::sleep(Duration::from_millis(10));
    }
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process can be read");
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 * 1e-6
    };
    let (before, start) = (used(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    (used() - before) / start.elapsed().as_secs_f64() / group.nodes.len() as f64
}

fn main() {
    let trip = median((0..ROUNDS).map(|_| round_trip()).collect());
    println!("a round trip of TCP, 64 bytes          {trip:>8.1} us");
    for (nodes, mode, name) in [(2, GroupMode::Eager, "2 devices, eager"), (3, GroupMode::Quorum, "3 devices, quorum")]
    {
        let group = Group::new(nodes, mode);
        let log = group.open(Level::RemoteRing);
        append_time(&log);
        let pairs: Vec<_> = (0..ROUNDS).map(|_| (round_trip(), append_time(&log))).collect();
        let ratio = median(pairs.iter().map(|(trip, append)| append / trip).collect());
        let time = median(pairs.iter().map(|(_, append)| *append).collect());
        println!("{name}: an append at REMOTE_RING  {time:>8.1} us, {ratio:.2} round trips");
        for batch in [1, 8, 64] {
            let rate = median((0..ROUNDS).map(|_| together(&log, batch)).collect());
            println!("{name}: 4 writers, waits after {batch:>2}  {rate:>10.0} appends/s");
        }
        let pairs: Vec<_> = (0..3).map(|_| (throughput(), stream(&log, Level::RemoteRing))).collect();
        let ratio = median(pairs.iter().map(|(tcp, log)| log / tcp).collect());
        let rate = median(pairs.iter().map(|(_, log)| *log).collect());
        println!("{name}: a log of 1 GiB  {:>8.0} MB/s, {ratio:.2} of TCP", rate / 1e6);
        drop(log);
        println!("{name}: idle, of a core for each device  {:>6.2} %", 100.0 * idle(&group));
        group.end();
    }
    let (alone, lazy) = (Group::new(1, GroupMode::Lazy), Group::new(3, GroupMode::Lazy));
    let logs = [alone.open(Level::Ring), lazy.open(Level::Ring)];
    for log in &logs {
        local(log);
    }
    let pairs: Vec<_> = (0..ROUNDS).map(|_| logs.each_ref().map(local)).collect();
    let ratio = median(pairs.iter().map(|[alone, lazy]| lazy / alone).collect());
    let rate = median((0..3).map(|_| stream(&logs[0], Level::Ring)).collect());
    println!("alone: a log of 1 GiB  {:>8.0} MB/s", rate / 1e6);
    let [one, three] = [0, 1].map(|at| median(pairs.iter().map(|pair| pair[at]).collect()));
    println!("an append at RING, alone {one:.0} ns, with two replicas in lazy mode {three:.0} ns: {ratio:.2}");
    drop(logs);
    alone.end();
    lazy.end();
}
