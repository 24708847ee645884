//! Files of the formats that are kept, as each version wrote them: what one version has written, later ones open.
//!
//! `tests/stored/README.md` says what each file holds and the command that makes it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Entry, Level, Records};
use tidewater_driver::nvme_tcp::{Controller, Host, Queue, Transfer};
use tidewater_report::{Record, record};
use tidewater_tests::ring::Device;
use tidewater_tests::{PATIENCE, root, run_well};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::log::RingHeader;
use tidewater_wire::nvme::Sqe;

/// Bytes of a block of the profile `tiny`.
const BLOCK: usize = 4096;
/// Blocks that are written, each of a byte of its own; the next one is not.
const BLOCKS: u64 = 24;
/// Records of the log that are on flash, and those that are only in the ring.
const DESTAGED: u64 = 20;
const IN_RING: u64 = 10;
/// How the drives are served: a record stays in the ring as long as the profile allows.
const SERVED: [&str; 6] =
    ["--nvme-tcp", "127.0.0.1:0", "--set", "fast.partial_after=1s", "--set", "host.block_size=4KiB"];

/// The kinds of files, and the version that this program writes of each.
fn kinds() -> [(&'static str, u32); 5] {
    // `TWINPUT2`: the version is its last character.
    let input_log = tidewater_core::subsystem::input_log::MAGIC[7];
    let ring = RingHeader { lanes: 1, ring_bytes: 4096, ..RingHeader::default() }.to_bytes();
    let ring = u32::from_le_bytes(ring[8..12].try_into().expect("4 bytes"));
    [
        ("image", tidewater_serve::image::format::VERSION),
        ("ring", ring),
        ("ring-drive", ring),
        ("input-log", u32::from(input_log - b'0')),
        ("record", record::SCHEMA),
    ]
}

fn stored() -> PathBuf {
    root().join("tests/stored")
}

/// Versions of a kind that have a stored file.
fn versions(kind: &str) -> BTreeSet<u32> {
    let names = std::fs::read_dir(stored()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let version = |name: &str| name.strip_prefix(kind)?.strip_prefix('-')?.strip_suffix(".zst")?.parse().ok();
    names.filter_map(|name| version(name.to_str()?)).collect()
}

/// Puts a copy of a stored file into a folder.
fn unpack(kind: &str, version: u32, to: &Path) {
    let packed = std::fs::File::open(stored().join(format!("{kind}-{version}.zst"))).expect("the stored file exists");
    std::fs::write(to, zstd::decode_all(packed).expect("it is compressed by zstd")).expect("a folder");
}

fn pack(from: &Path, kind: &str, version: u32) {
    let packed = zstd::encode_all(&std::fs::read(from).expect("the file was written")[..], 19).expect("memory");
    assert!(packed.len() < 16 << 10, "{kind}: {} bytes are much for a checkout", packed.len());
    std::fs::write(stored().join(format!("{kind}-{version}.zst")), packed).expect("the checkout can be written");
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The text between two pieces of the device's output.
fn between<'a>(device: &'a Device, before: &str, after: &str) -> &'a str {
    let (_, rest) = device.said.split_once(before).unwrap_or_else(|| panic!("{before} in {}", device.said));
    rest.split(after).next().expect("a split has a first piece")
}

fn connect(device: &Device) -> (Controller, Queue) {
    let command: Vec<&str> = between(device, "nvme connect -t tcp -a ", "\n").split(' ').collect();
    let address: SocketAddr = format!("{}:{}", command[0], command[2]).parse().expect("it prints address and port");
    let host = Host::new(Nqn::new("nqn.2026-01.io.example:host").expect("a name"), [7; 16]);
    let name = Nqn::new(between(device, " -n ", "\n")).expect("it prints its name");
    let mut controller = Controller::connect(address, &host, &name).expect("it takes hosts");
    controller.enable().expect("the controller gets ready");
    controller.set_queues(1).expect("it has queues");
    let queue = controller.queue(1, 16).expect("the queue connects");
    (controller, queue)
}

fn block(number: u64) -> Vec<u8> {
    vec![if number < BLOCKS { number as u8 + 1 } else { 0 }; BLOCK]
}

fn payload(number: u64) -> Vec<u8> {
    format!("record {number} of the log").into_bytes()
}

fn write_blocks(device: &Device) {
    let (mut controller, mut queue) = connect(device);
    for number in 0..BLOCKS {
        let done = queue.call(Sqe::write(0, number, 0), Transfer::Out(block(number)));
        done.expect("the queue is connected").good().expect("a write");
    }
    queue.call(Sqe::flush(0), Transfer::None).expect("the queue is connected").good().expect("a flush");
    drop(queue);
    controller.shutdown().expect("the controller can be shut down");
}

fn check_blocks(device: &Device) {
    let (mut controller, mut queue) = connect(device);
    for number in 0..=BLOCKS {
        let read = queue.call(Sqe::read(0, number, 0), Transfer::In(BLOCK as u32)).expect("the queue is connected");
        assert!(read.good().expect("a read").data == block(number), "block {number}");
    }
    drop(queue);
    controller.shutdown().expect("the controller can be shut down");
}

fn open(device: &Device) -> Log {
    Log::open(&device.target(), Options { level: Some(Level::Ring), ..Options::default() })
        .expect("the device maps its ring")
}

/// Appends records, the first of which are on flash when it returns.
fn append(device: &Device, count: u64) {
    let log = open(device);
    for number in 0..count {
        let end = log.append(&[&payload(number)]).expect("there is room").end;
        if number + 1 == DESTAGED {
            log.wait(end, Level::Destaged, PATIENCE).expect("the record is destaged");
        }
    }
}

/// The drive has the first `count` records, each whole, and no more.
fn check_records(device: &Device, count: u64) {
    let log = open(device);
    let mut bytes = vec![0; log.tail() as usize];
    log.x_pread(0, &mut bytes, PATIENCE).expect("the bytes are in the log");
    let found: Vec<Vec<u8>> = Records::new(&bytes, 0)
        .filter_map(|entry| if let Entry::Record { payload, .. } = entry { Some(payload.to_vec()) } else { None })
        .collect();
    assert_eq!(found, (0..count).map(payload).collect::<Vec<_>>());
}

fn header(ring: &Path) -> RingHeader {
    RingHeader::parse(&std::fs::read(ring).expect("there is a ring")[..RingHeader::SIZE]).expect("it has a header")
}

/// A ring counts for what is only in it until the machine is booted anew: makes it one that was used last since then,
/// as `ours` was.
fn as_of_this_boot(ring: &Path, ours: &RingHeader) {
    let stored = RingHeader { boot: ours.boot, ..header(ring) };
    let file = OpenOptions::new().write(true).open(ring).expect("the file can be written");
    file.write_all_at(&stored.to_bytes(), 0).expect("there is room");
}

/// Ends a device as an operator does.
fn end(mut device: Device) {
    let asked = Command::new("kill").args(["-TERM", &device.child.id().to_string()]).status().expect("kill starts");
    assert!(
        asked.success() && device.child.wait().expect("the process can be waited for").success(),
        "{}",
        device.errors()
    );
}

/// Makes the file of one kind and version.
fn make(kind: &str, version: u32) {
    let folder = folder();
    let here = folder.path();
    match kind {
        "image" => {
            let device = Device::start(here, &SERVED);
            write_blocks(&device);
            append(&device, DESTAGED);
            end(device);
            pack(&here.join("drive"), kind, version);
        }
        // The ring and the drive that it belongs to.
        "ring" | "ring-drive" => {
            let device = Device::start(here, &SERVED);
            write_blocks(&device);
            append(&device, DESTAGED + IN_RING);
            device.kill();
            pack(&here.join("ring"), "ring", version);
            pack(&here.join("drive"), "ring-drive", version);
        }
        "input-log" => {
            let device = Device::start_plain(here, &[&SERVED[..], &["--input-log", "log"]].concat());
            write_blocks(&device);
            check_blocks(&device);
            end(device);
            pack(&here.join("log"), kind, version);
        }
        "record" => {
            let job = "rw=randrw,bs=4k,iodepth=8,size=100%,number_ios=1000";
            run_well(here, &["replay", "--profile", "tiny", "--job", job, "--json", "record"]);
            pack(&here.join("record"), kind, version);
        }
        other => panic!("no such kind: {other}"),
    }
}

#[test]
fn every_format_of_this_version_has_a_stored_file() {
    let missing: Vec<_> = kinds().into_iter().filter(|(kind, version)| !versions(kind).contains(version)).collect();
    if std::env::var_os("UPDATE_STORED").is_some() {
        missing.iter().for_each(|(kind, version)| make(kind, *version));
        return;
    }
    assert!(
        missing.is_empty(),
        "no stored file: {missing:?}\nUPDATE_STORED=1 cargo test -p tidewater-tests --test devices stored makes it; \
         files of older versions stay"
    );
}

#[test]
fn images_of_every_version_hold_their_blocks_and_their_log() {
    for version in versions("image") {
        let folder = folder();
        unpack("image", version, &folder.path().join("drive"));
        let device = Device::start(folder.path(), &SERVED);
        check_blocks(&device);
        check_records(&device, DESTAGED);
    }
}

#[test]
fn rings_of_every_version_give_their_records_back() {
    for version in versions("ring") {
        let folder = folder();
        let here = folder.path();
        unpack("ring-drive", version, &here.join("drive"));
        let device = Device::start(here, &SERVED);
        check_records(&device, DESTAGED);
        end(device);
        // The rest was only in the ring.
        let ours = header(&here.join("ring"));
        unpack("ring-drive", version, &here.join("drive"));
        unpack("ring", version, &here.join("ring"));
        as_of_this_boot(&here.join("ring"), &ours);
        let device = Device::start(here, &SERVED);
        check_records(&device, DESTAGED + IN_RING);
        check_blocks(&device);
    }
}

/// A log holds what the device answered: to run it again compares each of its outputs.
#[test]
fn input_logs_of_every_version_are_answered_as_they_were() {
    for version in versions("input-log") {
        let folder = folder();
        unpack("input-log", version, &folder.path().join("log"));
        let said = run_well(folder.path(), &["rerun", "log"]);
        assert!(said.contains("all identical"), "{said}");
    }
}

#[test]
fn records_of_every_version_are_read() {
    for version in versions("record") {
        let folder = folder();
        let path = folder.path().join("record");
        unpack("record", version, &path);
        let record =
            Record::from_json(&std::fs::read_to_string(&path).expect("it is text")).expect("the text is a record");
        assert_eq!((record.schema, record.requests), (version, 1000));
        assert!(run_well(folder.path(), &["report", "record"]).contains("tiny"));
    }
}
