//! The byte window of a served drive: its commands and stores, and what is left of it over stops, kills and losses of
//! power.

mod model;

use self::model::Model;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::vfio_user::Socket;
use tidewater_driver::vfio_user::{Nvme, NvmeError};
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, Setup, rerun};
use tidewater_testkit::PATIENCE;
use tidewater_testkit::profile::{BYTE_WINDOW, with};
use tidewater_testkit::served::{BLOCK, Drive, Host, kill_after, serve_in_child, setup, spawn_server, tiny};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{
    ANYWHERE, BarLayout, ControlPage, EntryInfo, IoCommand, ReadLogHeader, WindowCommand, WindowStatus, log_page,
    status as vendor_status,
};
use tidewater_wire::vfio_user::region;

const PAGE: usize = 4096;
/// Blocks of a logical page.
const BLOCKS: u64 = (PAGE / BLOCK) as u64;
/// First byte of the window in BAR2, without a fast side.
const WINDOW: u64 = 1 << 20;

/// The tiny drive with a window of eight pages.
fn windowed(timing: Timing, settings: &[(&str, &str)]) -> Profile {
    with(with(tiny(timing), BYTE_WINDOW), settings)
}

/// A folder in memory, if there is such: syncs are many here, and what outlives a process does so there as well.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

fn served(profile: Profile, folder: &Path) -> Setup {
    setup(profile, folder, Backing::File(folder.join("drive")), 1)
}

fn host_of(client: Socket) -> Host {
    Host::over(Nvme::start(client, 8 << 20).expect("a controller"), false)
}

/// The status that a command was refused with.
fn refused<T: std::fmt::Debug>(result: Result<T, NvmeError>) -> Status {
    match result {
        Err(NvmeError::Status(status)) => status.with_more(false),
        other => panic!("{other:?}"),
    }
}

trait Window {
    fn order(&mut self, command: WindowCommand) -> Result<u32, NvmeError>;
    fn pin(&mut self, entry: u16, lpn: u64, pages: u32) -> Result<u64, NvmeError>;
    fn info(&mut self, entry: u16) -> Result<EntryInfo, NvmeError>;
    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<(), NvmeError>;
    fn load(&mut self, at: u64, len: usize) -> Result<Vec<u8>, NvmeError>;
    fn dma(&mut self, entry: u16, offset: u64, len: usize) -> Result<Vec<u8>, NvmeError>;
    fn log(&mut self, id: u8, len: usize) -> Vec<u8>;
}

impl Window for Host {
    fn order(&mut self, command: WindowCommand) -> Result<u32, NvmeError> {
        Ok(self.run(command.emit(9))?.dw0)
    }

    fn pin(&mut self, entry: u16, lpn: u64, pages: u32) -> Result<u64, NvmeError> {
        let command = WindowCommand::Pin { entry, offset: ANYWHERE, lba: lpn * BLOCKS, blocks: pages * BLOCKS as u32 };
        self.order(command).map(u64::from)
    }

    fn info(&mut self, entry: u16) -> Result<EntryInfo, NvmeError> {
        self.run_with_data(WindowCommand::EntryInfo { entry }.emit(9), EntryInfo::SIZE)?;
        let mut data = vec![0; EntryInfo::SIZE];
        self.buffer.read(0, &mut data);
        Ok(EntryInfo::parse(&data).expect("an entry"))
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<(), NvmeError> {
        Ok(self.nvme.socket().write(region::BAR2, WINDOW + at, bytes)?)
    }

    fn load(&mut self, at: u64, len: usize) -> Result<Vec<u8>, NvmeError> {
        let mut bytes = vec![0; len];
        self.nvme.socket().read(region::BAR2, WINDOW + at, &mut bytes)?;
        Ok(bytes)
    }

    fn dma(&mut self, entry: u16, offset: u64, len: usize) -> Result<Vec<u8>, NvmeError> {
        let command = WindowCommand::ReadDma { entry, offset, bytes: len as u32 };
        self.run_with_data(command.emit(9), len)?;
        let mut bytes = vec![0; len];
        self.buffer.read(0, &mut bytes);
        Ok(bytes)
    }

    fn log(&mut self, id: u8, len: usize) -> Vec<u8> {
        let page = self.nvme.buffer(4096).expect("memory");
        let sqe = Sqe::default().with_dword(0, 2).with_dword(10, u32::from(id) | (len as u32 / 4 - 1) << 16);
        self.nvme.admin(page.attach(sqe, len as u64)).expect("a log page");
        let mut bytes = vec![0; len];
        page.read(0, &mut bytes);
        bytes
    }
}

#[test]
fn what_is_stored_into_pinned_blocks_is_flushed_to_them() {
    for timing in [Timing::None, Timing::Model] {
        let folder = folder();
        let drive = Drive::start(&served(windowed(timing, &[("serve.cmb_size", "64KiB")]), folder.path()));
        let mut host = Host::attach(&drive, 0);
        let status = WindowStatus::parse(&host.log(log_page::WINDOW, WindowStatus::SIZE)).expect("a page");
        assert_eq!((status.bar_offset, status.bytes, status.entries, status.survives), (WINDOW, 32 << 10, 3, true));
        let layout = BarLayout::parse(&host.log(log_page::LAYOUT, BarLayout::SIZE)).expect("a page");
        assert_eq!((layout.window_offset, layout.window_bytes, layout.lanes), (WINDOW, 32 << 10, 0));
        assert_eq!((layout.queues_offset, layout.queues_bytes), (WINDOW + (32 << 10), 64 << 10));
        assert_eq!(layout.bar_bytes, 2 << 20);
        let before = vec![7; 2 * PAGE];
        host.write(5 * BLOCKS, &before);
        let at = host.pin(9, 5, 2).expect("a pin");
        assert_eq!(host.load(at, 2 * PAGE).expect("a load"), before, "the blocks are in the window");
        host.store(at + 100, b"stored by the host").expect("a store");
        assert_eq!(host.load(at + 100, 18).expect("a load"), b"stored by the host");
        host.buffer.write(0, b"by a command");
        let write = WindowCommand::Write { entry: 9, offset: PAGE as u64 + 3, bytes: 12 };
        host.run_with_data(write.emit(9), 12).expect("a write");
        host.order(WindowCommand::Sync { entry: 9 }).expect("a sync");
        let info = host.info(9).expect("an entry");
        assert_eq!((info.lba, info.bytes, info.nsid, info.bar_offset), (5 * BLOCKS, 2 * PAGE as u64, 1, WINDOW + at));
        let mut expected = before.clone();
        expected[100..118].copy_from_slice(b"stored by the host");
        expected[PAGE + 3..PAGE + 15].copy_from_slice(b"by a command");
        assert_eq!(host.dma(9, 0, 2 * PAGE).expect("a read"), expected);
        assert_eq!(refused(host.try_read(5 * BLOCKS, BLOCK)), vendor_status::LBA_PINNED);
        assert_eq!(refused(host.try_write(6 * BLOCKS, &[0; BLOCK], false)), vendor_status::LBA_PINNED);
        assert_eq!(host.read(4 * BLOCKS, PAGE), vec![0; PAGE]);
        host.order(WindowCommand::Flush { entry: 9 }).expect("a flush");
        assert_eq!(host.read(5 * BLOCKS, 2 * PAGE), expected);
        // Outside of entries: ones, and nothing is stored; at every border of the window.
        assert_eq!(host.load(at, 8).expect("a load"), [0xff; 8]);
        host.store(at, &[1; 16]).expect("a store");
        for edge in [0, (32 << 10) - 4, (32 << 10) - 1] {
            host.store(edge, &[2; 8]).expect("a store");
            let _ = host.load(edge, 8).expect("a load");
        }
        let status = WindowStatus::parse(&host.log(log_page::WINDOW, WindowStatus::SIZE)).expect("a page");
        assert_eq!((status.pinned, status.stores_dropped, status.loads_outside), (0, 4, 4));
        drop(host);
        drive.stop();
    }
}

/// Random commands over stops and power cuts, on a drive that keeps a log of it all.
fn lives(profile: Profile, seed: u64, rounds: u64, steps: u64) -> (Model, Vec<u8>) {
    let folder = folder();
    let log = folder.path().join("log");
    let mut served = served(profile, folder.path());
    served.input_log = Some(log.clone());
    let (mut model, mut rng) = (Model::default(), Rng::new(seed, b"window lives"));
    let mut drive = Drive::start(&served);
    let mut host = host_of(drive.client(0));
    let mut kept = Vec::new();
    for round in 0..rounds {
        for _ in 0..rng.below(steps) {
            model.step(&mut host, &mut rng).expect("it is served");
        }
        if round % 4 == 3 {
            drop(host);
            drive.stop();
            if let Ok(log) = std::fs::read(&log)
                && kept.is_empty()
            {
                kept = log;
            }
            // A log is of a new drive only.
            served.input_log = None;
            drive = Drive::start(&served);
            host = host_of(drive.client(0));
            // A shutdown makes all that was written durable.
            model.check(&mut host, true);
        } else {
            drive.ask(&Request::PowerCut { off_ms: 1 });
            drive.wait_for("serving");
            drop(host);
            host = host_of(drive.client(0));
            // What was stored has been looked at, or is behind messages that were answered.
            model.check(&mut host, false);
        }
    }
    drop(host);
    drive.stop();
    (model, kept)
}

#[test]
fn entries_and_blocks_are_as_they_should_be_over_stops_and_power_cuts_and_a_rerun_repeats_it() {
    let mut counts = BTreeMap::new();
    for (seed, timing, settings) in [
        (1, Timing::None, &[][..]),
        (2, Timing::Model, &[][..]),
        (3, Timing::None, &[("memory.ba.survives", "by-itself"), ("memory.ba.kind", "nvm")][..]),
    ] {
        let (model, log) = lives(windowed(timing, settings), seed, 8, 90);
        let done = rerun(&log).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(done.inputs > 300, "{done:?}");
        for (what, count) in model.counts {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    println!("{counts:?}");
    for what in ["pinned", "flushed", "unpinned", "stores", "syncs", "loads", "refused", "writes"] {
        assert!(counts.get(what).is_some_and(|&count| count > 10), "{what}: {counts:?}");
    }
}

/// Processes that are killed while a host works.
fn kills(test: &str, timing: Timing, seed: u64, lives: u64) {
    let folder = folder();
    let served = served(windowed(timing, &[]), folder.path());
    let (mut model, mut rng) = (Model::default(), Rng::new(seed, b"window kills"));
    let name = if timing == Timing::Model { "model" } else { "none" };
    for life in 0..lives {
        let mut process = spawn_server(test, &[(JOB, &format!("{name}:{}", folder.path().display()))]);
        let mut host = host_of(Socket::connect(&served.vfio_user[0]).expect("a client"));
        model.check(&mut host, false);
        kill_after(&mut process, Duration::from_micros(rng.below(30_000)), || {
            let begin = Instant::now();
            while model.step(&mut host, &mut rng).is_ok() {
                assert!(begin.elapsed() < PATIENCE, "it does not die");
            }
        });
        let status = process.wait().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "life {life} ended by itself");
    }
    let drive = Drive::start(&served);
    model.check(&mut host_of(drive.client(0)), false);
    drive.stop();
    println!("{timing:?}: {lives} processes killed, {:?}", model.counts);
    assert!(model.counts["stores"] > lives, "{:?}", model.counts);
}

/// The timing and the folder that a child serves from.
const JOB: &str = "TIDEWATER_TEST_WINDOW";

fn child(job: &str) {
    let (timing, folder) = job.split_once(':').expect("a timing and a folder");
    let timing = if timing == "model" { Timing::Model } else { Timing::None };
    serve_in_child(served(windowed(timing, &[]), Path::new(folder)));
}

#[test]
fn what_a_load_has_confirmed_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(job) => child(&job),
        Err(_) => {
            let test = "served::window::what_a_load_has_confirmed_outlives_the_process";
            kills(test, Timing::None, 6, 6);
            kills(test, Timing::Model, 7, 6);
        }
    }
}

#[test]
#[ignore = "long: make torture"]
fn torture_what_a_load_has_confirmed_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(job) => child(&job),
        Err(_) => {
            let test = "served::window::torture_what_a_load_has_confirmed_outlives_the_process";
            kills(test, Timing::None, 100, 400);
            kills(test, Timing::Model, 101, 400);
        }
    }
}

#[test]
fn a_window_whose_memory_does_not_survive_is_empty_after_a_stop_and_a_power_cut() {
    let folder = folder();
    let served = served(windowed(Timing::None, &[("memory.ba.survives", "nothing")]), folder.path());
    let mut drive = Drive::start(&served);
    let mut host = host_of(drive.client(0));
    host.write(0, &[5; PAGE]);
    for end in 0..2 {
        let at = host.pin(1, 0, 1).expect("a pin");
        host.store(at, b"gone").expect("a store");
        assert_eq!(host.load(at, 4).expect("a load"), b"gone");
        host.run(Sqe::flush(8)).expect("a flush");
        if end == 0 {
            drive.ask(&Request::PowerCut { off_ms: 1 });
            drive.wait_for("serving");
            drop(host);
        } else {
            drop(host);
            drive.stop();
            drive = Drive::start(&served);
        }
        host = host_of(drive.client(0));
        assert_eq!(refused(host.info(1)), vendor_status::ENTRY_UNKNOWN);
        assert_eq!(host.read(0, PAGE), [5; PAGE], "blocks are what they were");
    }
    drop(host);
    drive.stop();
}

#[test]
fn entries_stay_when_their_host_goes_and_when_the_controller_is_reset() {
    let folder = folder();
    let drive = Drive::start(&served(windowed(Timing::None, &[]), folder.path()));
    let mut host = host_of(drive.client(0));
    let at = host.pin(7, 3, 1).expect("a pin");
    host.store(at, b"before").expect("a store");
    host.restart().expect("a reset");
    assert_eq!(host.load(at, 6).expect("a load"), b"before");
    let mut host = Host::attach_again(host, &drive);
    assert_eq!(host.load(at, 6).expect("a load"), b"before");
    host.store(at, b"after!").expect("a store");
    host.nvme.socket().reset().expect("a function level reset");
    host.restart().expect("it starts again");
    assert_eq!(host.dma(7, 0, 6).expect("a read"), b"after!");
    host.order(WindowCommand::Flush { entry: 7 }).expect("a flush");
    assert_eq!(host.read(3 * BLOCKS, BLOCK)[..6], *b"after!");
    drop(host);
    drive.stop();
}

#[test]
fn the_window_is_of_the_first_function_and_entries_belong_to_the_owner_of_their_blocks() {
    let folder = folder();
    let setup = setup(windowed(Timing::None, &[]), folder.path(), Backing::Memory, 2);
    let drive = Drive::start(&setup);
    let (mut first, mut second) = (Host::attach(&drive, 0), Host::attach(&drive, 1));
    let at = second.pin(4, 2, 1).expect("a pin");
    second.store(at, b"dropped").expect("a store");
    assert_eq!(second.load(at, 8).expect("a load"), [0xff; 8], "no window here");
    second.buffer.write(0, b"kept");
    second.run_with_data(WindowCommand::Write { entry: 4, offset: 0, bytes: 4 }.emit(9), 4).expect("a write");
    assert_eq!(first.load(at, 7).expect("a load"), b"kept\0\0\0");
    second.order(WindowCommand::Flush { entry: 4 }).expect("a flush");
    drop((first, second));
    drive.stop();
}

/// One lane beside the window, and partial pages and deallocations between: each keeps what it has promised.
#[test]
fn a_drive_with_both_byte_sides_keeps_both_over_stops_and_power_cuts() {
    const RING: u64 = 16 << 10;
    const BOTH: u64 = 2 << 20;
    let settings = [
        ("memory.sram.size", "96KiB"),
        ("memory.sram.survives", "by-capacitors"),
        ("fast.size", "16KiB"),
        ("fast.queue_size", "4KiB"),
        ("fast.log_size", "512KiB"),
        ("fast.lanes", "1"),
        ("fast.partial_after", "1ms"),
    ];
    let folder = folder();
    let served = served(windowed(Timing::Model, &settings), folder.path());
    let mut drive = Drive::start(&served);
    let mut host = host_of(drive.client(0));
    let layout = BarLayout::parse(&host.log(log_page::LAYOUT, BarLayout::SIZE)).expect("a page");
    assert_eq!((layout.window_offset, layout.lane[0].window_offset, layout.lanes), (BOTH, 1 << 20, 1));
    let mut rng = Rng::new(11, b"both byte sides");
    let byte = |offset: u64| (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let (mut stored, mut window, mut blocks) = (0u64, vec![0u8; 2 * PAGE], vec![[0u8; BLOCK]; 64]);
    host.pin(1, 100, 2).expect("a pin");
    for round in 0..6u64 {
        for step in 0..40u64 {
            // No further than the intake queue goes, nor over the end of the ring.
            let len = (1 + rng.below(300)).min(RING - stored % RING);
            let bytes: Vec<u8> = (stored..stored + len).map(byte).collect();
            host.nvme.socket().write(region::BAR2, (1 << 20) + stored % RING, &bytes).expect("a store");
            stored += len;
            let at = rng.below(2 * PAGE as u64 - 8) as usize;
            window[at..at + 8].copy_from_slice(&(round << 32 | step).to_le_bytes());
            host.nvme.socket().write(region::BAR2, BOTH + at as u64, &window[at..at + 8]).expect("a store");
            let credit = ControlPage::lane_offset(0) as u64;
            let until = Instant::now() + PATIENCE;
            while host.nvme.socket().read_u64(region::BAR2, credit).expect("credit") < stored {
                assert!(Instant::now() < until, "{stored} bytes are not credited");
            }
            // A part of a page, or a block that is deallocated.
            let block = rng.below(64);
            blocks[block as usize] = if step % 3 == 0 { [0; BLOCK] } else { [step as u8 + 1; BLOCK] };
            match step % 3 {
                0 => host.zero(block, 1),
                _ => host.write(block, &blocks[block as usize].clone()),
            }
        }
        host.flush();
        let mut found = vec![0; 8];
        host.nvme.socket().read(region::BAR2, BOTH, &mut found).expect("a load");
        if round % 3 == 2 {
            drop(host);
            drive.stop();
            drive = Drive::start(&served);
        } else {
            drive.ask(&Request::PowerCut { off_ms: 1 });
            drive.wait_for("serving");
            drop(host);
        }
        host = host_of(drive.client(0));
        assert!(host.dma(1, 0, 2 * PAGE).expect("a read") == window, "the window after round {round}");
        let (want, from) = (512.min(stored), stored - 512.min(stored));
        let command = IoCommand::ReadLog { lane: 0, offset: from, bytes: want as u32, wait_ns: 1_000_000_000 };
        let len = ReadLogHeader::SIZE + want as usize;
        host.run_with_data(command.emit(9), len).expect("the log");
        let mut data = vec![0; len];
        host.buffer.read(0, &mut data);
        let header = ReadLogHeader::parse(&data[..ReadLogHeader::SIZE]).expect("a header");
        assert_eq!((header.offset, u64::from(header.bytes)), (from, want));
        assert!(
            data[ReadLogHeader::SIZE..].iter().copied().eq((from..stored).map(byte)),
            "the log after round {round}"
        );
        assert!(host.read(0, 64 * BLOCK) == blocks.concat(), "blocks after round {round}");
    }
    assert!(stored > 4 * 4096);
    drop(host);
    drive.stop();
}
