//! The fuzz targets (`fuzz/`) over seeds and mutations of them: a short run here, a long one in `make torture`.

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile;
use tidewater_tests::root;
use tidewater_wire::log::{FileChange, FileChangeKind, FileDelta, FilePatch};
use tidewater_wire::nbd;
use tidewater_wire::nvme::identify::{IdentifyController, IdentifyNamespace};
use tidewater_wire::nvme::{AdminCommand, Cns, GetLogPage, Identify, Sqe, log_page};
use tidewater_wire::nvme_tcp::{Framing, Pdu};
use tidewater_wire::vendor::{self, WindowCommand};
use tidewater_wire::vfio_user::{DmaMap, Header, RegionAccess, command};

/// How long a target runs in `cargo test`; all of them together take about a minute where nothing else runs.
const SHORT: Duration = Duration::from_secs(6);
/// How long a target runs in `make torture`.
const LONG: Duration = Duration::from_secs(1_200);
/// Inputs that every run tries, however slow the machine is.
const INPUTS_MIN: u32 = 30;
/// Bytes of an input, at most.
const INPUT_MAX: usize = 64 << 10;
/// Bytes of all seeds together, at most.
const SEEDS_MAX: usize = 720 << 10;
/// Bytes of a trace or profile that make a seed.
const FILE_MAX: usize = 2 << 10;

/// Operations on a mount, of every kind.
const OPERATIONS: &str = r#"{"do":"attributes","ino":1,"mode":16877,"uid":0,"gid":0}
{"do":"create","at":{"folder":1,"name":"a"},"ino":2,"mode":33188,"uid":0,"gid":0,"rdev":0}
{"do":"create","at":{"folder":1,"name":"b"},"ino":3,"mode":16877,"uid":0,"gid":0,"rdev":0}
{"do":"write","ino":2,"offset":600,"data":"cmVjb3JkIDAK"}
{"do":"link","ino":2,"at":{"folder":3,"name":"c"}}
{"do":"create","at":{"folder":3,"name":"d"},"ino":4,"mode":41471,"uid":0,"gid":0,"rdev":0,"target":"YQ=="}
{"do":"rename","from":{"folder":3,"name":"c"},"to":{"folder":1,"name":"a"},"exchange":false}
{"do":"rename","from":{"folder":3,"name":"d"},"to":{"folder":1,"name":"a"},"exchange":true}
{"do":"remove","at":{"folder":3,"name":"d"}}
{"do":"resize","ino":2,"size":9000}
{"do":"zero","ino":2,"offset":10,"length":1000000}
{"do":"sync","ino":1,"data_only":false}
{"do":"sync-failed","ino":2}
{"do":"written-through","write":3}
{"do":"sync-all"}
{"do":"acknowledge","id":"7"}"#;

/// Inputs to start from.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "wire" => wire_seeds(),
        "controller" => controller_seeds(),
        "vfio_user" => vfio_user_seeds(),
        "nvme_tcp" => nvme_tcp_seeds(),
        "nbd" => nbd_seeds(),
        "traces" => files("traces", ""),
        "profiles" => {
            let shown = profile::names().filter_map(profile::builtin).map(|profile| profile.show().into_bytes());
            files("profiles", "toml").into_iter().chain(shown).collect()
        }
        // As they are; changes of a good one, with a forged checksum; one that is cut; good ones. The same of one with
        // memories, and each part of these (the list, control blocks, rings, the window's table and sectors) changed
        // with the right checksum.
        "images" => {
            let change = |how: u8, at: u32| [&[how][..], &at.to_le_bytes()[..3], &[3, 1, 2, 3, 4]].concat();
            let kinds = [change(1, 8), change(2, 40), change(2, 4_096), change(1, 9_000), change(3, 0)];
            let plain = [[b"\0".as_slice(), &[0x54; 4_096]].concat()].into_iter().chain(kinds);
            let cut = [[&[7][..], &[0, 0, 32]].concat(), [&[5][..], &[0; 3]].concat()];
            let sealed = (0..10_u8).flat_map(|part| {
                [0_u32, 8, 28, 36, 61, 100, 513]
                    .map(|at| [&[13, part][..], &at.to_le_bytes()[..3], &[3, 2, 0, 0, 1]].concat())
            });
            let good = [1u8, 2, 5, 6].map(|how| vec![how]);
            plain.chain(cut).chain(sealed).chain(good).collect()
        }
        "input_logs" => {
            // An instant, a kind, and fields: of every kind, every fault and every answer of host memory.
            let fields = |kind: u8, fields: &[u8]| [&1_000_u64.to_le_bytes()[..], &[kind], fields, &[0; 24]].concat();
            let kinds = (0..36).map(|kind| fields(kind, &[]));
            let faults = (0..8).map(|fault| fields(15, &[fault, 0]));
            let answers = (0..4).map(|answer| fields(19, &[0, 0, 0, 0, answer]));
            let all: Vec<Vec<u8>> = kinds.chain(faults).chain(answers).collect();
            let together = [&[1][..], &all.concat()].concat();
            let run = |entry: &Vec<u8>| [&[3][..], entry].concat();
            all.iter().map(|entry| [&[1][..], entry].concat()).chain(all.iter().map(run)).chain([together]).collect()
        }
        // As it is, behind a good first line, and in good batches: one, two, and a second that is cut.
        "mount_images" => {
            let lines: String = OPERATIONS.lines().enumerate().map(|(at, line)| format!("[{at},{line}]\n")).collect();
            let whole = ["tidewater volume 1\n", "batch 4 00000000\nabcd"].concat();
            let batches = [2, 128 | 2, 252 | 2, 64 | 3, 16 | 3].map(|how: u8| [&[how], lines.as_bytes()].concat());
            let plain = [[&[0], whole.as_bytes()].concat(), [&[1], "batch 3 0\n".as_bytes()].concat()];
            plain.into_iter().chain(batches).collect()
        }
        "crash_failures" => {
            let operations: Vec<&str> = OPERATIONS.lines().collect();
            let (base, operations) = (operations[..3].join(","), operations[3..].join(","));
            let file = |rules: &str, tear: &str, lost: &str| {
                let begin = r#"{"kind":"tidewater crash-test failure","version":1,"check":"true","said":"","#;
                let how = format!(r#""rules":"{rules}","tear":"{tear}","state":{{"cut":9,"lost":{{{lost}}}}},"#);
                format!(r#"{begin}{how}"base":[{base}],"operations":[{operations}]}}"#).into_bytes()
            };
            let lost = ["", r#""0":[]"#, r#""1":[0],"4":[]"#, r#""6":[],"7":[],"900":[5]"#];
            let kinds = [("strict", "page"), ("ext4", "sector"), ("strict", "none")];
            kinds.iter().flat_map(|(rules, tear)| lost.map(|lost| file(rules, tear, lost))).collect()
        }
        other => panic!("unknown fuzz target {other}"),
    }
}

/// Files of a folder of the checkout, as far as they are short.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(root().join(folder))
        .expect("the folder is there")
        .map(|entry| entry.expect("it is read").path())
        .filter(|path| path.is_file() && path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    let cut = |path| {
        let mut bytes: Vec<u8> = std::fs::read(path).expect("the file is there");
        bytes.truncate(FILE_MAX);
        bytes
    };
    paths.iter().map(cut).collect()
}

/// Commands that a driver sends first.
fn commands() -> Vec<Sqe> {
    let identify = |cns, nsid| AdminCommand::Identify(Identify { cns, nsid, controller: 0, csi: 0 }).emit(1);
    let log = |lid| {
        let get = GetLogPage { nsid: 0, lid, specific: 0, retain: false, len: 512, offset: 0, identifier: 0, csi: 0 };
        AdminCommand::GetLogPage(get).emit(2)
    };
    vec![
        identify(Cns::Controller, 0),
        identify(Cns::Namespace, 1),
        log(log_page::SMART),
        log(0xC0),
        AdminCommand::KeepAlive.emit(3),
        AdminCommand::AsynchronousEventRequest.emit(4),
        Sqe::read(5, 0, 7),
        Sqe::write(6, 8, 7),
        Sqe::flush(7),
        Sqe::dataset_management(8, 1, true),
    ]
}

fn wire_seeds() -> Vec<Vec<u8>> {
    let entries = commands().iter().flat_map(|sqe| sqe.to_bytes()).collect();
    let framing = Framing::default();
    let mut pdus = vec![0];
    for sqe in commands() {
        Pdu::CapsuleCmd(sqe).append(&framing, &[], &mut pdus);
    }
    let mut seeds: Vec<Vec<u8>> = vec![
        entries,
        pdus,
        IdentifyController::default().to_bytes().to_vec(),
        IdentifyNamespace::default().to_bytes().to_vec(),
        delta_record(),
    ];
    seeds.extend(vfio_user_seeds());
    seeds
}

/// A page of a file that is like an earlier one but for two places.
fn delta_record() -> Vec<u8> {
    let kind = FileChangeKind::Delta;
    let mut record = FileChange { kind, id: 1, base: 2, offset: 8_192, len: 4_096 }.to_bytes().to_vec();
    record.extend(FileDelta { lsn: 640, patches: 2 }.to_bytes());
    for (at, bytes) in [(3, &b"ab"[..]), (4_000, b"cdef")] {
        record.extend(FilePatch { at, len: bytes.len() as u16 }.to_bytes());
        record.extend(bytes);
    }
    record
}

/// Each kind of drive (its first byte), and operations: bringing the controller up, queues, lending memory, then
/// commands and stores.
fn controller_seeds() -> Vec<Vec<u8>> {
    let up = vec![1, 2, 0, 2, 1];
    let command = |opcode: u8, nsid: u8, queue: u8, dwords: [u8; 6]| {
        [&[3, opcode, 0, 1, 0, nsid, 0, 0][..], &dwords, &[queue]].concat()
    };
    // Identify, Set Features, Get Log Page, Format, Sanitize, Namespace Management, Self-test; Read, Write, Flush, and
    // others.
    let admin: Vec<u8> = [0x06, 0x09, 0x0A, 0x02, 0x80, 0x84, 0x0D, 0x14, 0xC1, 0xC2]
        .into_iter()
        .flat_map(|opcode| [command(opcode, 1, 0, [1, 0, 0, 0, 0, 0]), vec![8, 200]].concat())
        .collect();
    let io: Vec<u8> = [0x02, 0x01, 0x00, 0x05, 0x08, 0x09, 0x0C, 0x80, 0x81]
        .into_iter()
        .flat_map(|opcode| [command(opcode, 1, 1, [8, 0, 7, 0, 0, 0]), vec![8, 50]].concat())
        .collect();
    let faults: Vec<u8> = (0..7).flat_map(|kind| [11, kind, 2, 9]).collect();
    // Into the control page, the first ring and the window, which is behind the rings.
    let stores: Vec<u8> = [0x00_1000u32, 0x10_0000, 0x10_0040, 0x20_0000, 0x11_0000, 0x12_0000]
        .into_iter()
        .flat_map(|at| [&[13][..], &at.to_le_bytes()[..3], &[63], &[0x5a; 64], &[8, 50]].concat())
        .collect();
    let lends = vec![15, 0xFD, 8, 200];
    // The data is of a page that is there.
    let raw = |sqe: Sqe, queue: u8| {
        [&[16][..], &sqe.with_dword(6, 0x2_0000).with_dword(8, 0x2_1000).to_bytes(), &[queue, 8, 50]].concat()
    };
    let window = |command: WindowCommand| raw(command.emit(3).with_nsid(1), 1);
    let log = |command: vendor::IoCommand| raw(command.emit(3).with_nsid(1), 1);
    let bytes: Vec<u8> = [
        window(WindowCommand::Pin { entry: 0, offset: vendor::ANYWHERE, lba: 0, blocks: 16 }),
        window(WindowCommand::Pin { entry: 1, offset: 8192, lba: 64, blocks: 8 }),
        window(WindowCommand::Write { entry: 1, offset: 16, bytes: 64 }),
        window(WindowCommand::EntryInfo { entry: 1 }),
        window(WindowCommand::ReadDma { entry: 0, offset: 0, bytes: 256 }),
        stores.clone(),
        window(WindowCommand::Sync { entry: 0 }),
        window(WindowCommand::Flush { entry: 1 }),
        window(WindowCommand::Unpin { entry: 0 }),
        log(vendor::IoCommand::ReadControlPage),
        log(vendor::IoCommand::ReadLog { lane: 0, offset: 0, bytes: 64, wait_ns: 1_000 }),
        log(vendor::IoCommand::WaitCredit { lane: 0, offset: 64, timeout_ns: 1_000 }),
        raw(vendor::AdminCommand::TrimLog { function: 0, to: vendor::TrimTo::Page(1) }.emit(3), 0),
        raw(vendor::AdminCommand::FastSetup { function: 0 }.emit(3), 0),
        raw(vendor::AdminCommand::Promote { function: 0 }.emit(3), 0),
    ]
    .concat();
    let operations = [
        [up.clone(), lends.clone(), io.clone(), io.clone(), vec![15, 0], io.clone(), lends, io.clone()].concat(),
        [up.clone(), stores.clone(), admin.clone(), stores].concat(),
        [up.clone(), bytes.clone(), io.clone(), bytes].concat(),
        up.clone(),
        [up.clone(), admin.clone()].concat(),
        [up.clone(), io.clone()].concat(),
        [up.clone(), faults, io.clone(), vec![10, 0], up.clone(), io.clone()].concat(),
        [up, vec![12, 1], io.clone(), vec![12, 0x82], io, vec![12, 0], admin].concat(),
    ];
    let of = |kind: u8| operations.iter().map(move |list| [&[kind][..], list].concat());
    (0..3).flat_map(of).collect()
}

fn vfio_user_seeds() -> Vec<Vec<u8>> {
    let message = |number: u16, payload: &[u8]| {
        [Header::command(7, number, payload.len()).to_bytes().as_slice(), payload].concat()
    };
    let map = DmaMap { argsz: DmaMap::SIZE as u32, flags: 3, offset: 0, address: 1 << 20, size: 1 << 16 };
    let access = RegionAccess { offset: 0x14, region: 0, count: 4 };
    let all: Vec<u8> = (1..19).flat_map(|number| message(number, &[32, 0, 0, 0, 0, 0, 0, 0])).collect();
    vec![
        [&[1][..], &message(command::DMA_MAP, &map.to_bytes())].concat(),
        [&[1][..], &message(command::REGION_READ, &access.to_bytes())].concat(),
        [&[1][..], &message(command::REGION_WRITE, &[access.to_bytes().as_slice(), &[1, 0, 0x46, 0]].concat())]
            .concat(),
        [&[1][..], &message(command::DEVICE_RESET, &[])].concat(),
        [&[0][..], &message(command::VERSION, b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":8}}\0")].concat(),
        [&[1][..], &all].concat(),
    ]
}

fn nvme_tcp_seeds() -> Vec<Vec<u8>> {
    let framing = Framing::default();
    let mut seeds = Vec::new();
    for how in 0..8 {
        let mut bytes = vec![how];
        for sqe in commands() {
            // A transport SGL, which has no address.
            let sqe = tidewater_wire::fabrics::DataPointer::Transport { len: 4_096 }.put(sqe);
            Pdu::CapsuleCmd(sqe).append(&framing, &[], &mut bytes);
        }
        seeds.push(bytes);
    }
    seeds
}

fn nbd_seeds() -> Vec<Vec<u8>> {
    let request = |kind: u16, flags: u16, offset: u64, len: u32| {
        let request = nbd::Request { flags, kind, cookie: 1, offset, len }.to_bytes().to_vec();
        if kind == nbd::command::WRITE { [request, vec![7; len as usize]].concat() } else { request }
    };
    let kinds = [
        (nbd::command::WRITE, 1, 0, 4_096),
        (nbd::command::READ, 0, 4_096, 1 << 20),
        (nbd::command::TRIM, 1, 0, 32 << 20),
        (nbd::command::WRITE_ZEROES, 2, 8_192, 4_096),
        (nbd::command::FLUSH, 0, 0, 0),
        (nbd::command::WRITE, 0, 1, 100),
        (nbd::command::DISCONNECT, 0, 0, 0),
    ];
    let requests = kinds.map(|(kind, flags, offset, len)| request(kind, flags, offset, len)).concat();
    let option = |option: u32, data: &[u8]| {
        [&nbd::OptionHeader { option, len: data.len() as u32 }.to_bytes()[..], data].concat()
    };
    let go = [&[0, 0, 0, 1, b'1', 0, 1, 0, 3][..]].concat();
    let options = [option(3, &[]), option(8, &[]), option(6, &[0; 6]), option(7, &go)].concat();
    let behind = (0..8_u8).map(|how| [&[how << 1 | 1][..], &requests].concat());
    let whole = (0..2_u8).map(|how| [&[how << 1, 0, 0, 0, 3][..], &options, &requests].concat());
    behind.chain(whole).collect()
}

/// Numbers that are often a limit.
const EDGES: [u64; 10] = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, i64::MAX as u64, u64::MAX];

/// An input that is a seed, with some changes.
fn mutate(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut below = |bound: usize| rng.below(bound.max(1) as u64) as usize;
    let mut input = seeds[below(seeds.len())].clone();
    for _ in 0..1 + below(8) {
        let at = below(input.len() + 1);
        let rest = input.len() - at;
        match below(8) {
            0 | 1 if rest > 0 => input[at] ^= 1 << below(8),
            2 if rest > 0 => input[at] = below(256) as u8,
            3 => {
                let len = [1, 2, 4, 8][below(4)].min(rest);
                let edge = EDGES[below(EDGES.len())].to_le_bytes();
                input[at..at + len].copy_from_slice(&edge[..len]);
            }
            4 => {
                let len = below(16).min(rest);
                input.drain(at..at + len);
            }
            5 => {
                let bytes: Vec<u8> = (0..1 + below(16)).map(|_| below(256) as u8).collect();
                input.splice(at..at, bytes);
            }
            6 => {
                // Something of it once more.
                let from = below(input.len() + 1);
                let piece = input[from..(from + below(64)).min(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                // The end of another seed.
                let other = &seeds[below(seeds.len())];
                input.truncate(at);
                input.extend_from_slice(&other[below(other.len() + 1)..]);
            }
        }
    }
    input.truncate(INPUT_MAX);
    input
}

/// Runs a target on an input, and keeps it if that fails.
fn try_input(name: &str, target: targets::Target, input: &[u8]) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) else { return };
    let path = std::env::temp_dir().join(format!("tidewater-fuzz-{name}-{}", std::process::id()));
    match std::fs::write(&path, input) {
        Ok(()) => eprintln!("{name}: the input that failed is in {}", path.display()),
        Err(error) => eprintln!("{name}: the input that failed could not be kept ({error}): {input:02x?}"),
    }
    resume_unwind(panic);
}

/// Seeds, and then mutations of them for a while. With TIDEWATER_FUZZ_INPUT: that file alone.
fn run(name: &str, time: Duration, seed: u64) {
    let (_, target) = *targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    if let Some(path) = std::env::var_os("TIDEWATER_FUZZ_INPUT") {
        return target(&std::fs::read(path).expect("the input is there"));
    }
    let seeds = seeds(name);
    for input in &seeds {
        try_input(name, target, input);
    }
    let (mut rng, start, mut inputs) = (Rng::new(seed, name.as_bytes()), Instant::now(), 0);
    while inputs < INPUTS_MIN || start.elapsed() < time {
        try_input(name, target, &mutate(&mut rng, &seeds));
        inputs += 1;
    }
    println!("{name}: {} seeds, {inputs} mutations in {:.1} s", seeds.len(), start.elapsed().as_secs_f64());
}

macro_rules! targets {
    ($($name:ident)+) => {
        /// Targets with tests here.
        const TESTED: &[&str] = &[$(stringify!($name)),+];

        mod short {
            $(#[test]
            fn $name() {
                super::run(stringify!($name), super::SHORT, 1);
            })+
        }

        mod long {
            $(#[test]
            #[ignore = "a long run, for `make torture`"]
            fn $name() {
                // Another run is another search.
                let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let seed = seed.map_or(2, |since| since.as_secs());
                println!("{}: seed {seed}", stringify!($name));
                super::run(stringify!($name), super::LONG, seed);
            })+
        }
    };
}

targets! { wire controller vfio_user nvme_tcp nbd traces profiles images input_logs mount_images crash_failures }

#[test]
fn every_target_has_seeds_a_test_and_a_binary() {
    let known: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(known, TESTED);
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("the manifest is there");
    let mut bytes = 0;
    for name in known {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        bytes += seeds.iter().map(Vec::len).sum::<usize>();
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is in fuzz/Cargo.toml");
        let binary = std::fs::read_to_string(root().join(format!("fuzz/fuzz_targets/{name}.rs")));
        assert!(binary.is_ok_and(|text| text.contains(&format!("tidewater_fuzz::{name}(data)"))), "{name}");
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            let folder = root().join("fuzz/seeds").join(name);
            std::fs::create_dir_all(&folder).expect("the checkout is writable");
            for (number, seed) in seeds.iter().enumerate() {
                std::fs::write(folder.join(format!("{number:02}")), seed).expect("the checkout is writable");
            }
        }
    }
    assert!(bytes <= SEEDS_MAX, "{bytes} bytes of seeds");
}
