//! A served drive: 4 KiB reads per second through one vfio-user queue pair and over NVMe/TCP, and sequential bandwidth
//! beside memcpy's. Memory backing, `timing = "none"`, a client that polls on the other core. Measurements, not tests.
//! One of `random`, `sequential` and `tcp` as an argument measures that alone.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_bench::{Served, setup};
use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::nvme_tcp::{Controller, Host, Transfer};
use tidewater_driver::vfio_user::Socket;
use tidewater_driver::vfio_user::{Buffer, Nvme};
use tidewater_serve::engine::{Backing, Ready, Setup, TcpSetup};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::nvme::Sqe;

const SIZE: u64 = 1 << 30;
/// Bytes that are written first and then read.
const FOOTPRINT: u64 = 256 << 20;
const DEPTH: u16 = 32;
/// Bytes of a sequential read.
const PIECE: usize = 128 << 10;
/// How many of them there are at a time, at most.
const SEQUENTIAL_DEPTH: usize = 8;
/// Rounds whose median counts, where a rate is compared with memory's.
const ROUNDS: usize = 7;
const TIME: Duration = Duration::from_secs(2);

fn serve(folder: &Path) -> Served {
    let mut profile = Profile::generic();
    profile.serve.timing = Timing::None;
    let nvme_tcp = Some(TcpSetup {
        advertise: None,
        address: ([127, 0, 0, 1], 0).into(),
        insecure_bind: false,
        allowed_hosts: Vec::new(),
        allow_destructive: false,
    });
    Served::start(Setup { nvme_tcp, ..setup(profile, Backing::Memory, SIZE, 9, folder) })
}

/// A copy and what the drive reached behind it, at four depths: bytes per second.
type Round = (f64, [f64; 4]);

/// Throughput of one polled queue pair, with doorbells in memory.
struct Reached {
    /// Random 4 KiB reads per second, at depth 32 and 1.
    random: [f64; 2],
    /// Sequential 128 KiB reads by depth: bytes per second, and that beside a copy to where they go, which took place
    /// just before.
    sequential: Vec<(u16, f64, f64)>,
    /// That copy, in bytes per second.
    memcpy: f64,
}

fn vfio(nvme: &mut Nvme, only: Option<&str>) -> Reached {
    let mut pair = nvme.queue_pair(1_024, None).expect("a queue pair can be created");
    let buffers: Vec<_> = (0..DEPTH).map(|_| nvme.buffer(PIECE as u64).expect("a buffer can be allocated")).collect();
    let wait = Duration::from_secs(10);
    let blocks = |bytes: u64| (bytes / 512 - 1) as u16;
    for at in (0..FOOTPRINT).step_by(PIECE) {
        let sqe = buffers[0].attach(Sqe::write(0, at / 512, blocks(PIECE as u64)).with_nsid(1), PIECE as u64);
        pair.run(&sqe, wait).expect("the write succeeds");
    }
    pair.run(&Sqe::flush(0).with_nsid(1), wait).expect("the flush succeeds");
    let mut rng = Rng::new(1, b"serve bench");
    let mut measure = |bytes: u64, depth: u16, random: bool, time: Duration| {
        let (mut done, mut at) = (0u64, 0u64);
        let mut read = |slot: u16| {
            let offset = if random { rng.below(FOOTPRINT / bytes) * bytes } else { at % FOOTPRINT };
            at += bytes;
            buffers[usize::from(slot)].attach(Sqe::read(slot, offset / 512, blocks(bytes)).with_nsid(1), bytes)
        };
        for slot in 0..depth {
            assert!(pair.submit(&read(slot)), "there is room");
        }
        pair.ring().expect("the doorbell can be rung");
        let start = Instant::now();
        let mut busy = depth;
        while busy > 0 {
            let mut any = false;
            while let Some(cqe) = pair.poll() {
                assert!(cqe.status.is_success(), "{cqe:?}");
                any = true;
                done += 1;
                if start.elapsed() < time {
                    assert!(pair.submit(&read(cqe.cid)), "there is room");
                } else {
                    busy -= 1;
                }
            }
            if any {
                pair.ring().expect("the doorbell can be rung");
            } else {
                std::hint::spin_loop(); // The device's core may be the other half of this one.
            }
        }
        done as f64 / start.elapsed().as_secs_f64()
    };
    let random = if only.is_none_or(|only| only == "random") { [DEPTH, 1] } else { [0; 2] };
    let random = random.map(|depth| if depth > 0 { measure(4096, depth, true, TIME) } else { 0.0 });
    let (mut sequential, mut memcpy) = (Vec::new(), 0.0);
    if only.is_none_or(|only| only == "sequential") {
        let depths = [1, 2, 4, SEQUENTIAL_DEPTH as u16];
        // In turns: memory is shared with whatever else the machine does, and drifts.
        let mut rounds: Vec<Round> = Vec::new();
        for _ in 0..ROUNDS {
            let copy = copy_to(&buffers[..SEQUENTIAL_DEPTH]);
            let rates = depths.map(|depth| measure(PIECE as u64, depth, false, TIME / 4) * PIECE as f64);
            rounds.push((copy, rates));
        }
        let median = |of: &dyn Fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        memcpy = median(&|round| round.0);
        for (i, depth) in depths.into_iter().enumerate() {
            sequential.push((depth, median(&|round| round.1[i]), median(&|round| round.1[i] / round.0)));
        }
    }
    Reached { random, sequential, memcpy }
}

/// Copies as much memory as is read, piece by piece, to these buffers in turn. Bytes per second.
fn copy_to(buffers: &[Buffer]) -> f64 {
    let from = vec![1u8; FOOTPRINT as usize];
    let (start, mut bytes) = (Instant::now(), 0u64);
    while start.elapsed() < TIME / 4 {
        for (piece, to) in from.chunks(PIECE).zip(buffers.iter().cycle()) {
            to.write(0, piece);
            bytes += piece.len() as u64;
        }
    }
    bytes as f64 / start.elapsed().as_secs_f64()
}

fn tcp(ready: &Ready) -> f64 {
    let (address, nqn) = ready.nvme_tcp.as_ref().expect("NVMe/TCP is served");
    let host = Host::new(Nqn::new("nqn.2014-08.org.nvmexpress:uuid:bench").expect("an NQN"), [7; 16]);
    let mut controller = Controller::connect(*address, &host, &Nqn::new(nqn).expect("an NQN")).expect("a connection");
    controller.enable().expect("the controller can be enabled");
    let _ = controller.set_queues(1).expect("a queue can be allocated");
    let mut queue = controller.queue(1, 128).expect("the queue can be connected");
    let mut rng = Rng::new(2, b"serve bench");
    let mut read = || {
        let block = rng.below(FOOTPRINT / 4096) * 8;
        (Sqe::read(0, block, 7).with_nsid(1), Transfer::In(4096))
    };
    for _ in 0..DEPTH {
        let (sqe, transfer) = read();
        queue.submit(sqe, transfer).expect("the queue has room");
    }
    queue.flush().expect("the commands can be sent");
    let (start, mut done) = (Instant::now(), 0u64);
    while start.elapsed() < TIME {
        let completion = queue.wait().expect("a completion arrives");
        let mut next = Some(completion);
        while let Some(completion) = next {
            done += 1;
            queue.recycle(completion.good().expect("the command succeeds").data);
            let (sqe, transfer) = read();
            queue.submit(sqe, transfer).expect("the queue has room");
            next = queue.ready();
        }
        queue.flush().expect("the commands can be sent");
    }
    done as f64 / start.elapsed().as_secs_f64()
}

/// A public peer: nbdkit keeps the same footprint in memory, and fio reads it over NBD and the loopback.
fn nbd() -> Option<f64> {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).ok()?.local_addr().ok()?.port();
    let fio = |rw: &str, more: &[&str]| {
        let uri = format!("--uri=nbd://127.0.0.1:{port}");
        let size = format!("--size={FOOTPRINT}");
        let common = ["--name=peer", "--ioengine=nbd", "--thread", "--output-format=json", &uri, &size];
        let run = Command::new("fio").args(common).arg(format!("--rw={rw}")).args(more).output().ok()?;
        // It greets before the report.
        let text = String::from_utf8_lossy(&run.stdout);
        serde_json::from_str::<serde_json::Value>(&text[text.find('{')?..]).ok()
    };
    let serve = ["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "memory", &FOOTPRINT.to_string()].map(String::from);
    let mut nbdkit = Command::new("nbdkit").args(serve).spawn().ok()?;
    // It says nothing when it listens; when it could not, it has ended.
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if !matches!(nbdkit.try_wait(), Ok(None)) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = fio("write", &["--bs=1m"]).and_then(|_| {
        let seconds = format!("--runtime={}", TIME.as_secs());
        fio("randread", &["--bs=4k", &format!("--iodepth={DEPTH}"), "--time_based", &seconds])
    });
    let _ = nbdkit.kill();
    let _ = nbdkit.wait();
    read?["jobs"][0]["read"]["iops"].as_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return;
    }
    let only = arguments.iter().map(String::as_str).find(|argument| ["random", "sequential", "tcp"].contains(argument));
    let folder = std::env::temp_dir().join(format!("tidewater-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder can be created");
    let served = serve(&folder);
    let client = Socket::connect(&served.ready.vfio_user[0]).expect("the client can connect");
    let mut nvme = Nvme::start(client, 64 << 20).expect("the controller starts");
    nvme.use_shadow_doorbells().expect("shadow doorbells are supported");
    let Reached { random, sequential, memcpy } = vfio(&mut nvme, only);
    for (depth, rate) in [DEPTH, 1].into_iter().zip(random).filter(|(_, rate)| *rate > 0.0) {
        println!("vfio-user, 4 KiB random reads, depth {depth:2}:       {rate:9.0} /s ({:.2} us each)", 1e6 / rate);
    }
    if memcpy > 0.0 {
        println!(
            "memcpy, 128 KiB to {SEQUENTIAL_DEPTH} buffers in turn:         {:9.2} GB/s (median of {ROUNDS})",
            memcpy / 1e9
        );
    }
    for (depth, rate, ratio) in sequential {
        let rate = rate / 1e9;
        println!("vfio-user, 128 KiB sequential reads, depth {depth}: {rate:9.2} GB/s (median; {ratio:.2} of memcpy)");
    }
    drop(nvme);
    if only.is_none_or(|only| only == "tcp") {
        println!("NVMe/TCP, 4 KiB random reads, depth {DEPTH}:        {:9.0} /s", tcp(&served.ready));
        match nbd() {
            Some(rate) => println!("nbdkit memory, fio over NBD, the same:         {rate:9.0} /s"),
            None => println!("nbdkit memory, fio over NBD: one of the two is not installed, or failed"),
        }
    }
    served.end();
    let _ = std::fs::remove_dir_all(&folder);
}
