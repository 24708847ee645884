//! Appends to a ring that is mapped from a served device: what `append` and `x_fsync` at RING take, beside PMDK's
//! `pmemlog_append` in the same run.
//!
//! Bursts that fit into half of the ring, after which the device catches up: a log's commits. Bandwidth is a figure of
//! its own.

use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tidewater_bench::{Served, TIME, median, setup, until_open, villars};
use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options, WriteBack};
use tidewater_serve::engine::{Backing, Setup};
use tidewater_serve::ring::RingSetup;

const RING: u64 = 16 << 20;
const BURST: u64 = RING / 4;
const SIZES: [usize; 4] = [64, 256, 1024, 4096];
const ROUNDS: usize = 9;

fn serve(folder: &Path) -> Served {
    let profile = villars(&[
        ("fast.memory", "fast-dram"),
        ("fast.size", &RING.to_string()),
        ("fast.queue_memory", "fast-dram"),
        ("fast.queue_size", "1MiB"),
        ("fast.log_size", "128MiB"),
        ("fast.energy", "1000"),
        ("fast.on_wrap", "overwrite-oldest"),
    ]);
    let ring = Some(RingSetup { path: folder.join("ring"), persistent: false, copy: None });
    Served::start(Setup { ring, ..setup(profile, Backing::Memory, 1 << 30, 12, folder) })
}

fn open(served: &Served, how: WriteBack) -> Log {
    let options =
        Options { level: Some(Level::Ring), write_back: Some(how), timeout: TIME, full: TIME, ..Options::default() };
    until_open(|| Log::open(&served.target, options))
}

/// Nanoseconds of one append and its `x_fsync`, in one burst.
fn burst(log: &Log, size: usize) -> f64 {
    let payload = vec![0x5a; size];
    let mut writer = log.writer().expect("a writer slot is free");
    let count = (BURST / (size as u64 + 64)).min(BURST / 128);
    let start = Instant::now();
    for _ in 0..count {
        writer.append(&payload).expect("the ring has room");
        log.x_fsync().expect("the append reaches the ring");
    }
    let spent = start.elapsed();
    drop(writer);
    catch_up(log);
    spent.as_secs_f64() * 1e9 / count as f64
}

/// The same with a slot claimed for each append, as processes that share a lane do it.
fn burst_of_claims(log: &Log, size: usize) -> f64 {
    let payload = vec![0x5a; size];
    let count = (BURST / (size as u64 + 64)).min(BURST / 128);
    let start = Instant::now();
    for _ in 0..count {
        log.append(&[&payload]).expect("the ring has room");
        log.x_fsync().expect("the append reaches the ring");
    }
    let spent = start.elapsed();
    catch_up(log);
    spent.as_secs_f64() * 1e9 / count as f64
}

/// The same of bytes as they are, without header and checksum (`x_pwrite`): what `pmemlog_append` stores, too.
fn burst_of_raw_bytes(log: &Log, size: usize) -> f64 {
    let payload = vec![0x5a; size];
    let mut writer = log.writer().expect("a writer slot is free");
    let count = (BURST / size as u64).min(BURST / 128);
    let start = Instant::now();
    for _ in 0..count {
        writer.x_pwrite(&payload).expect("the ring has room");
        log.x_fsync().expect("the append reaches the ring");
    }
    let spent = start.elapsed();
    drop(writer);
    catch_up(log);
    spent.as_secs_f64() * 1e9 / count as f64
}

fn catch_up(log: &Log) {
    let end = log.status().reserved;
    log.wait(end, Level::Destaged, TIME).expect("the append is destaged");
}

/// Appends per second of so many threads, each with an `x_fsync`: in a burst, or until the ring has been filled several
/// times.
fn together(log: &Log, threads: u64, bytes: u64) -> f64 {
    let each = bytes / threads / 128;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || {
                let mut writer = log.writer().expect("a writer slot is free");
                for _ in 0..each {
                    let written = writer.append(&[0x5a; 64]).expect("the ring has room");
                    log.wait(written.end, Level::Ring, TIME).expect("all earlier appends finish");
                }
            });
        }
    });
    let rate = (each * threads) as f64 / start.elapsed().as_secs_f64();
    catch_up(log);
    rate
}

/// The peer's program, if its library is there.
fn peer(folder: &Path) -> Result<std::path::PathBuf, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/append/pmemlog.c");
    let program = folder.join("pmemlog");
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&program).args([source, "-lpmemlog", "-lpmem"]).output();
    match built {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn peer_round(program: &Path, file: &Path, flush: bool) -> Vec<f64> {
    let _ = std::fs::remove_file(file);
    let mut command = Command::new(program);
    command.arg(file).args(SIZES.map(|size| size.to_string())).env("PMEM_IS_PMEM_FORCE", "1");
    if !flush {
        command.env("PMEM_NO_FLUSH", "1");
    }
    let output = command.output().expect("the program can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect()
}

/// Measures, and prints.
pub fn measure() {
    // Memory that is no disk's, where there is any.
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
    let folder = base.join(format!("tidewater-append-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("the folder can be created");
    let served = serve(&folder);
    let peer = peer(&folder);
    if let Err(why) = &peer {
        println!("pmemlog_append is not measured: libpmemlog does not build here ({why})");
    }
    for (name, how) in [("no write-back", WriteBack::None), ("past the caches", WriteBack::Lines)] {
        let log = open(&served, how);
        let mut ours = vec![Vec::new(); SIZES.len()];
        let mut claimed = vec![Vec::new(); SIZES.len()];
        let mut raw = vec![Vec::new(); SIZES.len()];
        let mut theirs = vec![Vec::new(); SIZES.len()];
        for size in SIZES {
            burst(&log, size); // Pages come in.
        }
        for _ in 0..ROUNDS {
            for (i, &size) in SIZES.iter().enumerate() {
                ours[i].push(burst(&log, size));
                claimed[i].push(burst_of_claims(&log, size));
                raw[i].push(burst_of_raw_bytes(&log, size));
            }
            if let Ok(program) = &peer {
                let round = peer_round(program, &folder.join("pool"), how != WriteBack::None);
                round.into_iter().zip(&mut theirs).for_each(|(value, all)| all.push(value));
            }
        }
        for (i, size) in SIZES.into_iter().enumerate() {
            print!("append {size:>5} B and x_fsync at RING, {name:<15} {:>8.1} ns", median(ours[i].clone()));
            print!("   a slot for each {:>8.1} ns", median(claimed[i].clone()));
            print!("   x_pwrite, no record {:>8.1} ns", median(raw[i].clone()));
            if peer.is_ok() {
                print!("   pmemlog_append {:>8.1} ns", median(theirs[i].clone()));
            }
            println!();
        }
        let bursts = (0..ROUNDS).map(|_| together(&log, 4, BURST)).collect();
        let long = together(&log, 4, 16 * RING);
        println!(
            "4 writers, 64 B each, {name:<15} {:>6.2} M appends/s in bursts   {:>6.2} M/s as the device takes them",
            median(bursts) / 1e6,
            long / 1e6
        );
    }
    served.end();
    let _ = std::fs::remove_dir_all(&folder);
}
