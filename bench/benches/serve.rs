//! A served drive: 4 KiB reads per second through one vfio-user queue pair and over NVMe/TCP, and sequential bandwidth beside
//! memcpy's. Memory backing, `timing = "none"`, a client that polls on the other core. Measurements, not tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile::{Profile, Timing};
use tidewater_serve::engine::{Backing, Event, NamespaceSetup, Ready, Server, Setup, TcpSetup};
use tidewater_serve::nvme_tcp::initiator::{Controller, Host, Transfer};
use tidewater_serve::vfio_user::client::{Client, nvme::Nvme};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::nvme::Sqe;

const SIZE: u64 = 1 << 30;
/// What is written first and then read.
const FOOTPRINT: u64 = 256 << 20;
const DEPTH: u16 = 32;
const TIME: Duration = Duration::from_secs(2);

fn serve(folder: PathBuf, stop: Arc<AtomicBool>) -> (std::thread::JoinHandle<()>, Ready) {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let mut profile = Profile::generic();
        profile.serve.timing = Timing::None;
        let setup = Setup {
            profile,
            backing: Backing::Memory,
            size: Some(SIZE),
            namespaces: vec![NamespaceSetup { bytes: None, block_shift: 9 }],
            seed: 1,
            vfio_user: vec![folder.join("vfio.sock")],
            nvme_tcp: Some(TcpSetup {
                address: ([127, 0, 0, 1], 0).into(),
                insecure_bind: false,
                allowed_hosts: Vec::new(),
                allow_destructive: false,
            }),
            runtime_directory: None,
            control: folder.join("control.sock"),
            metrics: None,
            trace: None,
            input_log: None,
            stop,
        };
        let mut tell = |event: Event| {
            if let Event::Ready(ready) = event {
                let _ = sender.send(ready);
            }
        };
        let server = Server::start(setup, &mut tell).expect("it is served");
        server.run(&mut tell).expect("it ends in good order");
    });
    (thread, receiver.recv().expect("it is ready"))
}

/// Random 4 KiB reads through one queue pair that is polled, with doorbells in memory.
fn vfio(nvme: &mut Nvme) -> (f64, f64, f64) {
    let mut pair = nvme.queue_pair(1_024, None).expect("a queue pair");
    let buffers: Vec<_> = (0..DEPTH).map(|_| nvme.buffer(128 << 10).expect("memory")).collect();
    let wait = Duration::from_secs(10);
    let blocks = |bytes: u64| (bytes / 512 - 1) as u16;
    for at in (0..FOOTPRINT).step_by(128 << 10) {
        let sqe = buffers[0].attach(Sqe::write(0, at / 512, blocks(128 << 10)).with_nsid(1), 128 << 10);
        pair.run(&sqe, wait).expect("a write");
    }
    pair.run(&Sqe::flush(0).with_nsid(1), wait).expect("a flush");
    let mut rng = Rng::new(1, b"serve bench");
    let mut measure = |bytes: u64, depth: u16, random: bool| {
        let (mut done, mut at) = (0u64, 0u64);
        let mut read = |slot: u16| {
            let offset = if random { rng.below(FOOTPRINT / bytes) * bytes } else { at % FOOTPRINT };
            at += bytes;
            buffers[usize::from(slot)].attach(Sqe::read(slot, offset / 512, blocks(bytes)).with_nsid(1), bytes)
        };
        for slot in 0..depth {
            assert!(pair.submit(&read(slot)), "there is room");
        }
        pair.ring().expect("a doorbell");
        let start = Instant::now();
        let mut busy = depth;
        while busy > 0 {
            let mut any = false;
            while let Some(cqe) = pair.poll() {
                assert!(cqe.status.is_success(), "{cqe:?}");
                any = true;
                done += 1;
                if start.elapsed() < TIME {
                    assert!(pair.submit(&read(cqe.cid)), "there is room");
                } else {
                    busy -= 1;
                }
            }
            if any {
                pair.ring().expect("a doorbell");
            }
        }
        done as f64 / start.elapsed().as_secs_f64()
    };
    let reads = measure(4096, DEPTH, true);
    let one = measure(4096, 1, true);
    let sequential = measure(128 << 10, 8, false) * (128 << 10) as f64;
    (reads, one, sequential)
}

fn memcpy() -> f64 {
    let from = vec![1u8; FOOTPRINT as usize];
    let mut to = vec![0u8; 1 << 20];
    let (start, mut bytes) = (Instant::now(), 0u64);
    while start.elapsed() < TIME / 2 {
        for piece in from.chunks(128 << 10) {
            to[..piece.len()].copy_from_slice(piece);
            std::hint::black_box(&mut to);
            bytes += piece.len() as u64;
        }
    }
    bytes as f64 / start.elapsed().as_secs_f64()
}

fn tcp(ready: &Ready) -> f64 {
    let (address, nqn) = ready.nvme_tcp.as_ref().expect("it is served");
    let host = Host::new(Nqn::new("nqn.2014-08.org.nvmexpress:uuid:bench").expect("a name"), [7; 16]);
    let mut controller = Controller::connect(*address, &host, &Nqn::new(nqn).expect("a name")).expect("a connection");
    controller.enable().expect("it is enabled");
    let _ = controller.set_queues(1).expect("queues");
    let mut queue = controller.queue(1, 128).expect("a queue");
    let mut rng = Rng::new(2, b"serve bench");
    let mut read = || {
        let block = rng.below(FOOTPRINT / 4096) * 8;
        (Sqe::read(0, block, 7).with_nsid(1), Transfer::In(4096))
    };
    for _ in 0..DEPTH {
        let (sqe, transfer) = read();
        queue.submit(sqe, transfer).expect("there is room");
    }
    queue.flush().expect("it is sent");
    let (start, mut done) = (Instant::now(), 0u64);
    while start.elapsed() < TIME {
        let completion = queue.wait().expect("a completion");
        let mut next = Some(completion);
        while let Some(completion) = next {
            done += 1;
            queue.recycle(completion.good().expect("success").data);
            let (sqe, transfer) = read();
            queue.submit(sqe, transfer).expect("there is room");
            next = queue.ready();
        }
        queue.flush().expect("it is sent");
    }
    done as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("tidewater-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let stop = Arc::new(AtomicBool::new(false));
    let (thread, ready) = serve(folder.clone(), Arc::clone(&stop));
    let client = Client::connect(&ready.vfio_user[0]).expect("a client");
    let mut nvme = Nvme::start(client, 64 << 20).expect("a controller");
    nvme.use_shadow_doorbells().expect("shadow doorbells");
    let (reads, one, sequential) = vfio(&mut nvme);
    let copy = memcpy();
    println!("vfio-user, 4 KiB random reads, depth {DEPTH}: {reads:9.0} /s ({:.2} us each)", 1e6 / reads);
    println!("vfio-user, 4 KiB random reads, depth 1:  {one:9.0} /s ({:.2} us each)", 1e6 / one);
    println!("vfio-user, 128 KiB sequential reads:     {:9.2} GB/s", sequential / 1e9);
    println!("memcpy:                                  {:9.2} GB/s (ratio {:.2})", copy / 1e9, sequential / copy);
    drop(nvme);
    let tcp = tcp(&ready);
    println!("NVMe/TCP, 4 KiB random reads, depth {DEPTH}:  {tcp:9.0} /s");
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("it ends");
    let _ = std::fs::remove_dir_all(&folder);
}
