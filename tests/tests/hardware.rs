//! The fast side and the byte window as a program reaches them on hardware (`tidewater_client::hardware`): here on a
//! served function, with the verbs of the command line over both of its carriers.

use std::path::Path;

use tempfile::TempDir;
use tidewater_base::{Duration, Rng};
use tidewater_client::hardware::{Device, HardwareError, Queue};
use tidewater_client::{End, Entry, Error, LogError, Patience, Records};
use tidewater_tests::{PATIENCE, ring, run, run_well, wait};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vendor::status;

/// A device that serves NVMe/TCP too.
struct Served {
    device: ring::Device,
    address: String,
}

impl Served {
    fn start(folder: &Path) -> Served {
        let mut more = vec!["--nvme-tcp", "127.0.0.1:0", "--allow-destructive"];
        for set in [
            "memory.ba.kind=dram",
            "memory.ba.size=256KiB",
            "memory.ba.survives=by-capacitors",
            "window.size=256KiB",
            "window.memory=ba",
        ] {
            more.extend(["--set", set]);
        }
        let device = ring::Device::start_plain(folder, &more);
        let (_, rest) = device.said.split_once("nvme connect -t tcp -a ").expect("it says how to connect");
        let words: Vec<&str> = rest.split_whitespace().collect();
        let address = format!("{}:{}", words[0], words[2]);
        Served { device, address }
    }

    /// Attaches. The device may not have heard yet that the one before has gone.
    fn open(&self) -> Device {
        let open = || match Device::open(&self.device.target()) {
            Err(HardwareError::Served(LogError::Taken)) => None,
            device => Some(device.expect("no other client is attached")),
        };
        wait::some(|| "another client is attached".into(), open)
    }

    /// As the command line names it.
    fn targets(&self) -> [String; 2] {
        [self.device.target(), format!("tcp:{}", self.address)]
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn patience() -> Patience {
    Patience { timeout: Duration::from_ms(PATIENCE.as_millis() as u64), ..Patience::default() }
}

fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..1 + rng.below(most)).map(|_| rng.next_u64() as u8).collect()
}

#[test]
fn a_log_written_by_credit_through_bars_outlives_the_device() {
    let folder = folder();
    let (mut rng, mut all, mut durable) = (Rng::new(1, b"log"), Vec::new(), 0);
    for life in 0..4 {
        let served = Served::start(folder.path());
        let mut device = served.open();
        let mut log = device.fast(1, patience()).expect("lane 1 is there");
        // Writes that no sync followed may be there or not; what was covered by one is.
        assert!(log.written() >= durable && log.written() <= all.len() as u64, "life {life}");
        all.truncate(log.written() as usize);
        for _ in 0..25 {
            // Up to three queues of bytes, and often across the end of the ring.
            let piece = bytes(&mut rng, 12_000);
            let written = log.x_pwrite(&piece).expect("credit comes");
            assert_eq!(written, all.len() as u64..(all.len() + piece.len()) as u64);
            all.extend(piece);
            if rng.below(3) == 0 {
                log.x_fsync().expect("it becomes durable");
            }
        }
        log.x_fsync().expect("it becomes durable");
        durable = log.credit();
        assert_eq!(durable, all.len() as u64);
        // The ring of logical pages holds the newest of it.
        let from = all.len() - 100_000;
        let mut read = vec![0; 100_000];
        log.x_pread(from as u64, &mut read).expect("it comes to flash");
        assert!(read == all[from..], "life {life}: other bytes");
    }
}

#[test]
fn reads_say_what_is_gone_and_what_has_not_come() {
    let folder = folder();
    let served = Served::start(folder.path());
    let mut device = served.open();
    let mut log = device.fast(0, patience()).expect("a lane");
    log.x_pwrite(&[7; 60_000]).expect("credit comes");
    log.x_fsync().expect("it becomes durable");
    let mut read = [0; 8];
    // One that does not wait long for what does not come.
    let mut log = device.fast(0, Patience { timeout: Duration::from_ms(50), ..Patience::default() }).expect("a lane");
    assert!(matches!(log.x_pread(60_000, &mut read), Err(HardwareError::Fast(Error::NoMoreLog { filled: 0, .. }))));
    let mut log = device.fast(0, patience()).expect("a lane");
    log.x_pread(59_000, &mut read).expect("it comes to flash");
    device.trim(0, 50_000).expect("the log can be trimmed");
    let mut log = device.fast(0, patience()).expect("a lane");
    match log.x_pread(0, &mut read) {
        Err(HardwareError::Fast(Error::Released { offset: 0, head })) => assert!(head > 0 && head <= 50_000, "{head}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(device.fast(2, patience()), Err(HardwareError::Fast(Error::NoLane { lane: 2 }))));
    assert!(matches!(Device::open("pci:"), Err(HardwareError::Target(_))));
    assert!(matches!(Device::open("pci:ffff:ff:1f.7"), Err(HardwareError::Lacking(_))));
}

/// A client that dies between two stores leaves a hole; the next seals it, and records behind it are found.
#[test]
fn what_a_dead_client_left_open_is_sealed() {
    let folder = folder();
    let served = Served::start(folder.path());
    let mut device = served.open();
    let mut log = device.fast(0, patience()).expect("a lane");
    let first = log.append(b"before").expect("credit comes");
    log.x_fsync().expect("it becomes durable");
    let place = device.layout().expect("a page").lane[0];
    // Behind a hole of 150 bytes, and within the queue.
    let hole = first.end + 150;
    let bar = device.transport().bar().expect("a function has one");
    bar.store(place.window_offset + hole, &[9; 40]).expect("the device takes it");
    drop(device);
    let mut device = served.open();
    let mut log = device.fast(0, patience()).expect("a lane");
    let settled = log.settled().expect("something was open");
    assert_eq!((settled.from, settled.to), (first.end, (hole + 40).next_multiple_of(64)));
    let second = log.append(b"behind").expect("credit comes");
    assert_eq!(second.start, settled.to);
    log.x_fsync().expect("it becomes durable");
    let mut read = vec![0; second.end as usize];
    log.x_pread(0, &mut read).expect("it comes to flash");
    let mut records = Records::new(&read, 0);
    let payloads: Vec<&[u8]> = records
        .by_ref()
        .filter_map(|entry| match entry {
            Entry::Record { payload, .. } => Some(payload),
            Entry::Void { .. } => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(payloads, [b"before", b"behind"]);
    assert_eq!(records.end(), Some(End::Complete));
}

#[test]
fn pinned_bytes_are_stored_synced_and_flushed_and_outlive_the_device() {
    let folder = folder();
    let mut rng = Rng::new(2, b"window");
    let page = 16_384;
    let (mut want, mut pinned) = (vec![0; 8 * page], None);
    for life in 0..4 {
        let served = Served::start(folder.path());
        let mut device = served.open();
        let mut window = device.window(1).expect("there is a window");
        let block = window.block_bytes();
        let entry = match pinned {
            Some(entry) => {
                assert_eq!(window.entry(5).expect("it is pinned"), entry, "life {life}");
                entry
            }
            None => window.pin(5, None, 0, want.len() as u32 / block).expect("it is pinned"),
        };
        for turn in 0..12 {
            let piece = bytes(&mut rng, 70_000);
            let at = rng.below((want.len() - piece.len()) as u64 + 1);
            window.write(&entry, at, &piece).expect("the window accepts the store");
            want[at as usize..][..piece.len()].copy_from_slice(&piece);
            if turn % 4 == 3 {
                window.sync(&entry, 0, entry.bytes).expect("the window can be synced");
            }
        }
        let mut found = vec![0; want.len()];
        window.load(&entry, 0, &mut found).expect("it is loaded");
        assert!(found == want, "life {life}: loads");
        window.read_dma(&entry, 0, &mut found).expect("it is read");
        assert!(found == want, "life {life}: DMA");
        let outside = window.write(&entry, entry.bytes - 1, &[1, 2]);
        assert!(matches!(outside, Err(HardwareError::Window(_))), "{outside:?}");
        pinned = Some(entry);
        if life == 2 {
            window.flush(&entry).expect("it is flushed");
            pinned = None;
            match window.info(5) {
                Err(HardwareError::Window(tidewater_client::WindowError::Refused(refused))) => {
                    assert!(refused.same_code(status::ENTRY_UNKNOWN));
                }
                other => panic!("{other:?}"),
            }
            // What a block command reads now.
            let mut blocks = vec![0; 2 * page];
            let last = (blocks.len() as u32 / block - 1) as u16;
            let sqe = Sqe::read(0, 0, last).with_nsid(1);
            device.run(Queue::Io, &sqe, &mut blocks, "Read").expect("blocks are read");
            assert!(blocks == want[..blocks.len()], "blocks hold something else");
        }
    }
}

#[test]
fn the_verbs_of_the_command_line_do_the_same_over_both_carriers() {
    let folder = folder();
    let here = folder.path();
    let served = Served::start(here);
    let mut rng = Rng::new(3, b"verbs");
    let (log, page): (Vec<u8>, Vec<u8>) = ((0..10_001).map(|at| at as u8).collect(), bytes(&mut rng, 5_000));
    std::fs::write(here.join("log.bin"), &log).expect("a folder");
    std::fs::write(here.join("page.bin"), &page).expect("a folder");
    let mut end = 0;
    for target in served.targets() {
        let target = target.as_str();
        let said = run_well(here, &["fast", "append", target, "log.bin", "--json"]);
        let said: serde_json::Value = serde_json::from_str(&said).expect("it prints JSON");
        assert_eq!(said["offset"], end, "{target}");
        end += log.len();
        assert_eq!((&said["end"], &said["credit"]), (&end.into(), &end.into()), "{target}");
        let from = (end - log.len()).to_string();
        let read = run(here, &["fast", "read", target, "--from", &from, "--bytes", "10001"]);
        assert!(read.stdout == log, "{target}: {}", String::from_utf8_lossy(&read.stderr));
        assert!(run_well(here, &["fast", "status", target]).contains(&format!("credit          : {end}")), "{target}");

        let entry = ["--entry", "7"];
        let with = |verb: &[&str], more: &[&str]| run_well(here, &[verb, &[target], &entry, more].concat());
        with(&["window", "pin"], &["--lba", "0", "--blocks", "64"]);
        with(&["window", "store"], &["--at", "333", "--sync", "page.bin"]);
        with(&["window", "sync"], &[]);
        for how in [&[][..], &["--dma"]] {
            let len = page.len().to_string();
            let more = [&["window", "load", target, "--entry", "7", "--at", "333", "--bytes", &len], how].concat();
            assert!(run(here, &more).stdout == page, "{target} {how:?}");
        }
        assert!(with(&["window", "info"], &[]).contains("bytes       : 32768 B"), "{target}");
        with(&["window", "flush"], &[]);
        let gone = run(here, &["window", "unpin", target, "--entry", "7"]);
        assert!(String::from_utf8_lossy(&gone.stderr).contains("Entry Unknown"), "{target}");
        assert!(run_well(here, &["window", "status", target]).contains("pinned         : 0"), "{target}");
        // What was flushed is what is pinned again.
        with(&["window", "pin"], &["--lba", "0", "--blocks", "64"]);
        assert!(run(here, &["window", "load", target, "--entry", "7"]).stdout[333..][..page.len()] == page, "{target}");
        with(&["window", "unpin"], &[]);
    }
    let refused = run(here, &["fast", "append", "pci:../../dev", "log.bin"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}
