//! The fast side through the front door: stores, loads, commands and frames, as a front end brings them.

use proptest::prelude::*;
use tidewater_base::{Duration, Instant};
use tidewater_core::border::LogInput;
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::fast::{Content, Place, bar};
use tidewater_core::profile::{Profile, Survives};
use tidewater_testkit::profile::{tiny, with};
use tidewater_wire::log::{RecordHeader, RecordKind};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::replication::Frame;
use tidewater_wire::vendor::{
    AdminCommand, BarLayout, ControlPage, DestagePriority, Epoch, FastSetup, FastStatus, IoCommand, LanePage,
    NO_TIMEOUT, OnWrap, ReadLogHeader, TransportStatus, TrimTo, status,
};

fn profile() -> Profile {
    let settings = [
        "memory.sram.size=64KiB",
        "memory.sram.survives=by-capacitors",
        "fast.size=32KiB",
        "fast.queue_size=4KiB",
        "fast.log_size=256KiB",
        "fast.lanes=2",
        "fast.partial_after=300us",
    ];
    let profile = with(tiny(), &settings);
    assert!(profile.memories.iter().any(|m| m.survives == Survives::ByCapacitors));
    profile
}

struct Rig {
    device: Device,
    now: Instant,
    outputs: Vec<Output>,
    cid: u16,
}

impl Rig {
    fn new() -> Rig {
        Rig::of(&profile())
    }

    fn of(profile: &Profile) -> Rig {
        let device = Device::new(profile, Options { stamps: true, ..Options::default() }).unwrap();
        Rig { device, now: Instant::ZERO, outputs: Vec::new(), cid: 0 }
    }

    fn handle(&mut self, input: Input<'_>) {
        assert!(self.device.handle(self.now, input).is_ok());
        while let Some(output) = self.device.poll() {
            self.outputs.push(output);
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.device.deadline().filter(|&at| at <= end) {
            self.now = at;
            self.handle(Input::Timer);
        }
        self.now = end;
    }

    fn settle(&mut self) {
        self.run_for(Duration::from_ms(20));
    }

    fn capsule(&mut self, sqe: Sqe, data: &[u8]) {
        self.handle(Input::Capsule { function: 0, sqe, data });
    }

    /// The reply to the command with this identifier, if it has ended.
    fn reply(&mut self, cid: u16) -> Option<(Status, u32, Vec<u8>)> {
        let place = self.outputs.iter().position(|o| matches!(o, Output::Reply { cid: of, .. } if *of == cid))?;
        match self.outputs.remove(place) {
            Output::Reply { status, result, data, .. } => Some((status, result, data)),
            _ => None,
        }
    }

    fn io(&mut self, command: IoCommand, data: &[u8]) -> u16 {
        self.cid += 1;
        self.capsule(command.emit(self.cid), data);
        self.cid
    }

    fn admin(&mut self, command: AdminCommand, data: &[u8]) -> Status {
        self.cid += 1;
        self.capsule(command.emit(self.cid), data);
        self.reply(self.cid).expect("set-up commands end at once").0
    }

    fn append(&mut self, lane: u8, offset: u64, bytes: &[u8]) -> Status {
        let command = IoCommand::Append { lane, epoch: Epoch::ZERO, offset, bytes: bytes.len() as u32 };
        let cid = self.io(command, bytes);
        self.reply(cid).expect("an append ends when it is in the queue").0
    }

    fn page(&self) -> ControlPage {
        self.device.control_page(0)
    }

    fn log_page<T>(&mut self, id: u8, parse: impl FnOnce(&[u8]) -> T) -> T {
        self.cid += 1;
        let sqe = Sqe::default().with_dword(0, 0x02 | u32::from(self.cid) << 16).with_dword(10, id.into());
        self.capsule(sqe, &[]);
        let (status, _, data) = self.reply(self.cid).unwrap();
        assert!(status.is_success());
        parse(&data)
    }
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|i| (i % 251) as u8).collect()
}

/// Reads 3,000 bytes at 100, which one page holds, and checks where they come from.
fn read_back(rig: &mut Rig, from_flash: bool) {
    let cid = rig.io(IoCommand::ReadLog { lane: 1, offset: 100, bytes: 3000, wait_ns: 0 }, &[]);
    rig.settle();
    let place = rig.outputs.iter().position(|o| matches!(o, Output::Log { .. })).expect("bytes of log");
    let Output::Log { offset, len, from, .. } = rig.outputs.remove(place) else { unreachable!() };
    assert_eq!((offset, len, matches!(from, Place::Page { skip: 100, .. })), (100, 3000, from_flash));
    let (status, _, data) = rig.reply(cid).expect("it has ended");
    assert!(status.is_success());
    let header = ReadLogHeader::parse(&data).unwrap();
    assert_eq!((header.offset, header.bytes), (100, 3000));
}

#[test]
fn appends_are_credited_waited_for_and_read_back_from_ring_and_flash() {
    let mut rig = Rig::new();
    let wait = rig.io(IoCommand::WaitCredit { lane: 1, offset: 3000, timeout_ns: NO_TIMEOUT }, &[]);
    assert!(rig.append(1, 0, &bytes(0, 2000)).is_success());
    rig.run_for(Duration::from_us(2));
    assert_eq!(rig.page().lane[1].credit, 2000);
    assert_eq!(rig.reply(wait), None);
    assert!(rig.append(1, 2000, &bytes(2000, 1500)).is_success());
    rig.run_for(Duration::from_us(2));
    assert_eq!(rig.reply(wait), Some((Status::SUCCESS, 500, vec![])));
    rig.settle();
    let page = rig.page();
    assert_eq!((page.lane[1].lba_tail, page.lane[0].lba_tail), (3500, 0), "a partial page after the threshold");
    read_back(&mut rig, false);
    // A whole turn of the ring later only flash has them.
    let mut at = 3500;
    while at < 3500 + (20 << 10) {
        assert!(rig.append(1, at, &bytes(at, 2048)).is_success());
        at += 2048;
        rig.settle();
    }
    read_back(&mut rig, true);
    let late = rig.io(IoCommand::WaitCredit { lane: 0, offset: 1, timeout_ns: 5_000 }, &[]);
    rig.run_for(Duration::from_us(10));
    assert_eq!(rig.reply(late).unwrap().0, status::TIMED_OUT);
}

#[test]
fn every_refusal_has_its_status_and_changes_nothing() {
    let mut rig = Rig::new();
    assert_eq!(rig.append(2, 0, &[1]), status::LANE_UNKNOWN);
    assert_eq!(rig.append(0, 0, &bytes(0, 5000)), status::REQUEST_TOO_LARGE);
    assert_eq!(rig.append(0, 4090, &bytes(0, 10)), status::BEYOND_CREDIT);
    let stale = IoCommand::Append { lane: 0, epoch: Epoch::new(3, 1), offset: 0, bytes: 4 };
    let cid = rig.io(stale, &[0; 4]);
    assert_eq!(rig.reply(cid).unwrap().0, status::STALE_EPOCH);
    let cid = rig.io(IoCommand::Append { lane: 0, epoch: Epoch::ZERO, offset: 0, bytes: 64 }, &[0; 3]);
    assert_eq!(rig.reply(cid).unwrap().0, Status::DATA_TRANSFER_ERROR);
    rig.settle();
    assert_eq!(rig.page().lane[0].persisted, 0);
    let lane = rig.log_page(0xC0, |bytes| FastStatus::parse(bytes).unwrap()).lane[0];
    assert_eq!((lane.drops, lane.first_drop), (1, 4090));
    // Blocks of the LBA ring can be read, but not written.
    let first = rig.device.capacity() / 512;
    for (sqe, expected) in [
        (Sqe::write(1, first, 7), status::RANGE_RESERVED),
        (Sqe::write_zeroes(2, first - 8, 15, false), status::RANGE_RESERVED),
        (Sqe::read(3, first, 7), Status::SUCCESS),
    ] {
        let submission = tidewater_core::host::Submission::new(sqe, 1);
        rig.handle(Input::Submit { queue: 0, submission });
        rig.settle();
        let done = rig.outputs.iter().rev().find_map(|o| match o {
            Output::Complete(completion) => Some(completion.cqe.status),
            _ => None,
        });
        assert!(done.is_some_and(|status| status.same_code(expected)), "{done:?} instead of {expected:?}");
    }
}

#[test]
fn a_function_is_set_up_anew_only_when_its_log_is_empty() {
    let mut rig = Rig::new();
    let own = rig.page();
    let setup = FastSetup {
        lanes: 1,
        priority: DestagePriority::Destage,
        on_wrap: OnWrap::OverwriteOldest,
        ring_bytes: 32 << 10,
        queue_bytes: 8 << 10,
        lba_first: own.lba_first,
        lba_count: own.lba_count,
        partial_page_ns: 100_000,
    };
    let command = AdminCommand::FastSetup { function: 0 };
    let too_large = FastSetup { ring_bytes: 64 << 10, ..setup };
    assert_eq!(rig.admin(command, &too_large.to_bytes()), status::ENERGY_TOO_LITTLE);
    let elsewhere = FastSetup { lba_first: 0, ..setup };
    assert_eq!(rig.admin(command, &elsewhere.to_bytes()), status::RANGE_INVALID);
    assert!(rig.append(0, 0, &bytes(0, 100)).is_success());
    assert_eq!(rig.admin(command, &setup.to_bytes()), status::BUSY);
    rig.settle();
    assert_eq!(rig.admin(command, &setup.to_bytes()), status::BUSY, "its page is on flash");
    let all = AdminCommand::TrimLog { function: 0, to: TrimTo::Stream { lane: 0, offset: 100 } };
    assert!(rig.admin(all, &[]).is_success());
    assert!(rig.admin(command, &setup.to_bytes()).is_success());
    let page = rig.page();
    assert_eq!((page.lanes, page.lane[0].ring_bytes, page.lane[0].queue_bytes), (1, 32 << 10, 8 << 10));
    let layout = rig.log_page(0xC1, |bytes| BarLayout::parse(bytes).unwrap());
    assert_eq!((layout.lanes, layout.lane[0].window_bytes, layout.lane[0].window_offset), (1, 32 << 10, bar::RINGS));
}

#[test]
fn a_dead_writers_region_is_sealed_void() {
    let mut rig = Rig::new();
    let floor = |rig: &mut Rig, floor: u64| {
        let cid = rig.io(IoCommand::WriteLanePage { lane: 0, floor }, &[]);
        assert!(rig.reply(cid).unwrap().0.is_success());
    };
    floor(&mut rig, 0);
    // One region of 128 bytes, half written by an owner who died; another behind it, complete.
    assert!(rig.append(0, 0, &bytes(0, 64)).is_success());
    assert!(rig.append(0, 128, &bytes(128, 64)).is_success());
    rig.settle();
    assert_eq!(rig.page().lane[0].credit, 0);
    let seal = |offset| IoCommand::SealRegion { lane: 0, epoch: Epoch::ZERO, offset, bytes: 128 };
    let cid = rig.io(seal(128), &[]);
    assert_eq!(rig.reply(cid).unwrap().0, status::REGION_INVALID, "it is not the oldest");
    let cid = rig.io(seal(0), &[]);
    assert!(rig.reply(cid).unwrap().0.is_success());
    rig.run_for(Duration::from_us(5));
    assert_eq!(rig.page().lane[0].credit, 128);
    let mut found = [0; 128];
    rig.device.fast().read_ring(0, 0, 0, &mut found);
    let header = RecordHeader::parse(&found).unwrap();
    assert_eq!((header.kind, header.length, header.lsn), (RecordKind::Void, 88, 0));
    floor(&mut rig, 192);
    rig.settle();
    assert_eq!(rig.page().lane[0].credit, 192);
}

#[test]
fn a_store_trace_leaves_the_same_bytes_and_tail_trapped_and_mapped() {
    let data = bytes(7, 3000);
    let mut trapped = Rig::new();
    let setup = *trapped.device.fast().function(0).unwrap().setup();
    // In any order within the credit, as lines leave write-combining buffers.
    let mut lines: Vec<usize> = (0..data.len()).step_by(64).collect();
    for i in 0..lines.len() {
        let j = (i * 7 + 3) % lines.len();
        lines.swap(i, j);
    }
    for start in lines {
        let line = &data[start..(start + 64).min(data.len())];
        let address = bar::ring_address(&setup, 0, start as u64);
        trapped.handle(Input::Store { function: 0, address, content: Content::Bytes(line) });
    }
    let mut mapped = Rig::new();
    for (start, end) in [(0, 1000), (1000, 1001), (1001, 3000)] {
        let content = Content::Bytes(&data[start..end]);
        mapped.handle(Input::Log { function: 0, input: LogInput::Announce { lane: 0, tail: end as u64, content } });
    }
    let found = [&mut trapped, &mut mapped].map(|rig| {
        rig.run_for(Duration::from_us(50));
        let mut found = vec![0; 3000];
        rig.device.fast().read_ring(0, 0, 0, &mut found);
        (found, rig.page().lane[0].credit)
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], (data, 3000));
    // Who does not keep to the credit has a broken stream, and only that.
    let far = vec![0; 4000];
    mapped.handle(Input::Log {
        function: 0,
        input: LogInput::Announce { lane: 0, tail: 3000 + 9000, content: Content::Bytes(&far) },
    });
    assert!(mapped.page().status.is_broken(0) && !mapped.page().status.is_broken(1));
    assert!(mapped.append(1, 0, &bytes(0, 10)).is_success());
}

#[test]
fn a_stream_goes_on_behind_unneeded_bytes_and_a_power_cut_finds_it_there() {
    let announce = |rig: &mut Rig, lane: u8, from: u64, end: u64| {
        let data = bytes(from, (end - from) as usize);
        rig.handle(Input::Log {
            function: 0,
            input: LogInput::Announce { lane, tail: end, content: Content::Bytes(&data) },
        });
        rig.run_for(Duration::from_us(20));
    };
    // Cut while a page of what is skipped is on its way to flash, and when all has come to rest.
    for at_once in [true, false] {
        let mut rig = Rig::new();
        announce(&mut rig, 0, 0, 4000);
        announce(&mut rig, 0, 4000, 4500);
        announce(&mut rig, 1, 0, 100);
        rig.handle(Input::Log { function: 0, input: LogInput::Skip { lane: 0, to: 30_000 } });
        let page = rig.page();
        assert_eq!((page.lane[0].credit, page.lane[0].lba_head, page.lane[0].lba_tail), (30_000, 30_000, 30_000));
        assert_eq!(page.lane[1].credit, 100, "the other lane's is needed");
        // Where it is, or before: nothing to skip.
        for to in [0, 29_999, 30_000] {
            rig.handle(Input::Log { function: 0, input: LogInput::Skip { lane: 0, to } });
        }
        assert_eq!(rig.page().lane[0].credit, 30_000);
        announce(&mut rig, 0, 30_000, 31_000);
        if !at_once {
            rig.settle();
        }
        let remains = rig.device.cut_power();
        rig.device = Device::power_on(&profile(), remains).unwrap();
        rig.now = rig.device.now();
        rig.settle();
        let page = rig.page();
        assert_eq!((page.lane[0].credit, page.lane[0].lba_head), (31_000, 30_000), "at once: {at_once}");
        assert_eq!((page.lane[1].credit, page.lane[1].lba_head), (100, 0));
        let read = |offset| IoCommand::ReadLog { lane: 0, offset, bytes: 1000, wait_ns: 0 };
        let (found, lost) = (rig.io(read(30_000), &[]), rig.io(read(4_400), &[]));
        rig.settle();
        assert!(rig.reply(found).unwrap().0.is_success());
        assert_eq!(rig.reply(lost).unwrap().0, status::OFFSET_RELEASED);
    }
}

#[test]
fn loads_show_the_control_page_and_stores_into_a_lane_page_set_the_floor() {
    let mut rig = Rig::new();
    let address = bar::lane_page_address(0) + LanePage::FLOOR_OFFSET as u64;
    rig.handle(Input::Store { function: 0, address, content: Content::Bytes(&64u64.to_le_bytes()) });
    assert!(rig.append(0, 0, &bytes(0, 100)).is_success());
    rig.run_for(Duration::from_us(5));
    let credit_at = bar::CONTROL + ControlPage::lane_offset(0) as u64;
    let page = rig.page().to_bytes();
    for (address, len) in [(credit_at, 8), (bar::CONTROL, 8), (bar::CONTROL + 32, 4), (address, 8)] {
        rig.handle(Input::Load { function: 0, address, len, tag: address });
    }
    let loaded = |o| match o {
        Output::Loaded { tag, value } => Some((tag, value)),
        _ => None,
    };
    let found: Vec<(u64, u64)> = rig.outputs.drain(..).filter_map(loaded).collect();
    assert_eq!(found[0], (credit_at, 64));
    assert_eq!(found[1].1.to_le_bytes(), page[..8]);
    assert_eq!(found[2].1, u64::from(TransportStatus::OK.0));
    assert_eq!(found[3].1, 64);
    assert_eq!(rig.device.load(9, 0, 8), u64::MAX);
}

#[test]
fn loads_find_the_newest_bytes_that_have_reached_the_ring() {
    let mut rig = Rig::new();
    let (ring, place) = (u64::from(rig.page().lane[0].ring_bytes), rig.device.fast().bar_layout(0).lane[0]);
    let load = |rig: &Rig, offset: u64, len: usize| rig.device.load(0, place.address(offset), len).to_le_bytes();
    assert_eq!(load(&rig, 0, 8), [0xff; 8], "nothing has been stored");
    rig.append(0, 0, &bytes(0, 12));
    assert_eq!(load(&rig, 0, 8), [0xff; 8], "it is in the queue, and not in the ring's memory yet");
    rig.run_for(Duration::from_us(5));
    assert_eq!(load(&rig, 0, 8), bytes(0, 8)[..]);
    assert_eq!((load(&rig, 8, 4), load(&rig, 8, 8)[4..].to_vec()), (load(&rig, 8, 8), vec![0xff; 4]));
    assert_eq!(load(&rig, 8, 4)[..4], bytes(8, 4)[..]);
    for at in (12..ring + 100).step_by(1024) {
        rig.append(0, at, &bytes(at, 1024));
        rig.settle();
    }
    assert_eq!(load(&rig, ring + 40, 8), bytes(ring + 40, 8)[..], "the second round has overwritten the first");
    let last = rig.device.load(0, place.address(ring - 4), 8).to_le_bytes();
    assert_eq!((&last[..4], &last[4..]), (&bytes(ring - 4, 4)[..], &[0xff; 4][..]), "no load passes the window's end");
}

#[test]
fn the_sequence_of_the_control_page_changes_with_what_is_on_it() {
    let mut rig = Rig::new();
    let sequence = |rig: &Rig| rig.device.load(0, bar::CONTROL + ControlPage::SEQUENCE_OFFSET as u64, 8);
    let mut seen = vec![sequence(&rig)];
    for at in [0, 100] {
        assert!(rig.append(0, at, &bytes(at, 100)).is_success());
        rig.run_for(Duration::from_us(5));
        seen.push(sequence(&rig));
        rig.settle();
        seen.push(sequence(&rig));
        assert_eq!(seen.last(), Some(&sequence(&rig)), "nothing has changed");
    }
    assert!(seen.iter().all(|sequence| sequence.is_multiple_of(2)), "{seen:?}");
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "each was another page: {seen:?}");
    let cid = rig.io(IoCommand::ReadControlPage, &[]);
    let (_, _, data) = rig.reply(cid).unwrap();
    assert_eq!(ControlPage::parse(&data).unwrap().sequence, sequence(&rig));
}

#[test]
fn a_full_lba_ring_pushes_back_until_it_is_trimmed() {
    let mut rig = Rig::new();
    let mut at = 0;
    loop {
        let credit = rig.page().lane[0].credit;
        if at - credit > 2048 || at > 4 << 20 {
            break;
        }
        rig.append(0, at, &bytes(at, 2048));
        at += 2048;
        rig.settle();
    }
    let page = rig.page();
    assert!(at < 1 << 20 && page.status.has(TransportStatus::WAITS_FOR_TRIM), "{at} {}", page.status);
    let trim = AdminCommand::TrimLog { function: 0, to: TrimTo::Page(page.lba_head + 8) };
    assert!(rig.admin(trim, &[]).is_success());
    rig.settle();
    let after = rig.page();
    assert!(after.lane[0].credit > page.lane[0].credit && after.lane[0].lba_head > page.lane[0].lba_head);
}

/// Anything that a front end may bring.
#[derive(Clone, Debug)]
enum Foreign {
    Store { function: u8, address: u64, len: u32 },
    Load { address: u64, len: u8 },
    Announce { lane: u8, tail: u64, len: u32 },
    Skip { lane: u8, to: u64 },
    Capsule { function: u8, dwords: [u32; 16], data: Vec<u8> },
    Known { command: u8, a: u64, b: u64, data: Vec<u8> },
    Frame(Vec<u8>),
    Time(u64),
}

fn foreign() -> impl Strategy<Value = Foreign> {
    let near = prop_oneof![Just(0u64), 0u64..6000, bar::RINGS..bar::RINGS + 40_000, any::<u64>()];
    let small = prop_oneof![0u64..9000, any::<u64>()];
    let data = proptest::collection::vec(any::<u8>(), 0..600);
    prop_oneof![
        (0u8..3, near.clone(), 0u32..5000).prop_map(|(function, address, len)| Foreign::Store {
            function,
            address,
            len
        }),
        (near, 0u8..9).prop_map(|(address, len)| Foreign::Load { address, len }),
        (0u8..3, small.clone(), 0u32..5000).prop_map(|(lane, tail, len)| Foreign::Announce { lane, tail, len }),
        (0u8..3, small.clone()).prop_map(|(lane, to)| Foreign::Skip { lane, to }),
        (0u8..2, any::<[u32; 16]>(), data.clone()).prop_map(|(function, dwords, data)| Foreign::Capsule {
            function,
            dwords,
            data
        }),
        (any::<u8>(), small.clone(), small, data.clone()).prop_map(|(command, a, b, data)| Foreign::Known {
            command,
            a,
            b,
            data
        }),
        data.prop_map(Foreign::Frame),
        (0u64..3_000).prop_map(Foreign::Time),
    ]
}

fn bring(rig: &mut Rig, input: Foreign) {
    let zeroes = [0u8; 5000];
    match input {
        Foreign::Store { function, address, len } => {
            rig.handle(Input::Store { function, address, content: Content::Bytes(&zeroes[..len as usize]) });
        }
        Foreign::Load { address, len } => rig.handle(Input::Load { function: 0, address, len, tag: 0 }),
        Foreign::Announce { lane, tail, len } => {
            rig.handle(Input::Log {
                function: 0,
                input: LogInput::Announce { lane, tail, content: Content::Bytes(&zeroes[..len as usize]) },
            });
        }
        Foreign::Skip { lane, to } => rig.handle(Input::Log { function: 0, input: LogInput::Skip { lane, to } }),
        Foreign::Capsule { function, dwords, data } => {
            let sqe = dwords.into_iter().enumerate().fold(Sqe::default(), |sqe, (i, dword)| sqe.with_dword(i, dword));
            rig.handle(Input::Capsule { function, sqe, data: &data });
        }
        Foreign::Known { command, a, b, data } => {
            let lane = (a % 3) as u8;
            let sqe = match command % 9 {
                0 => IoCommand::Append { lane, epoch: Epoch::ZERO, offset: a, bytes: data.len() as u32 }.emit(1),
                1 => IoCommand::ReadLog { lane, offset: a, bytes: b as u32 % 100_000, wait_ns: b % 1000 }.emit(1),
                2 => IoCommand::WaitCredit { lane, offset: a, timeout_ns: b }.emit(1),
                3 => IoCommand::WriteLanePage { lane, floor: a }.emit(1),
                4 => IoCommand::SealRegion { lane, epoch: Epoch::ZERO, offset: a / 64 * 64, bytes: 64 }.emit(1),
                5 => AdminCommand::TrimLog { function: 0, to: TrimTo::Page(a) }.emit(1),
                6 => AdminCommand::TransportSetup { function: 0 }.emit(1),
                7 => AdminCommand::Promote { function: 0 }.emit(1),
                _ => AdminCommand::FastSetup { function: 0 }.emit(1),
            };
            rig.handle(Input::Capsule { function: 0, sqe, data: &data });
        }
        Foreign::Frame(bytes) => {
            if let Ok(frame) = Frame::parse(&bytes) {
                let content = Content::Bytes(&zeroes[..64]);
                rig.handle(Input::Log { function: 0, input: LogInput::Frame { frame: Box::new(frame), content } });
            }
        }
        Foreign::Time(us) => rig.run_for(Duration::from_us(us)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_foreign_makes_it_panic_or_break_its_counters(inputs in proptest::collection::vec(foreign(), 1..200)) {
        let mut rig = Rig::new();
        let mut credits = [0; 2];
        for input in inputs {
            bring(&mut rig, input);
            rig.outputs.clear();
            let function = rig.device.fast().function(0).unwrap();
            for (lane, credit) in function.lanes().iter().zip(&mut credits) {
                prop_assert!(lane.durable() <= lane.placed() && lane.placed() <= lane.released());
                prop_assert!(lane.credit() <= lane.released() && lane.released() <= lane.persisted());
                prop_assert!(lane.credit() >= *credit, "credit fell");
                *credit = lane.credit();
            }
        }
        rig.settle();
        let _ = rig.device.cut_power();
    }
}

#[test]
fn a_ring_of_pages_that_was_moved_is_found_again_after_a_power_loss() {
    let mut rig = Rig::new();
    let own = rig.page();
    let setup = FastSetup {
        lanes: 2,
        priority: DestagePriority::Neutral,
        on_wrap: OnWrap::WaitForTrim,
        ring_bytes: 8 << 10,
        queue_bytes: 2 << 10,
        lba_first: own.lba_first + 7,
        lba_count: own.lba_count - 20,
        partial_page_ns: 100_000,
    };
    let command = AdminCommand::FastSetup { function: 0 };
    assert!(rig.admin(command, &setup.to_bytes()).is_success());
    for i in 0..30 {
        assert!(rig.append(1, i * 1000, &bytes(i * 1000, 1000)).is_success());
        rig.run_for(Duration::from_ms(1));
    }
    let before = rig.page();
    let remains = rig.device.cut_power();
    // A profile with another fast side is refused, whatever it lacks.
    let mut other = profile();
    other.set("fast.log_size", "128KiB").unwrap();
    let error = Device::power_on(&other, remains.clone()).unwrap_err().to_string();
    assert!(error.contains("log_size"), "{error}");
    other.set("fast.size", "0").unwrap();
    assert!(Device::power_on(&other, remains.clone()).is_err());
    rig.device = Device::power_on(&profile(), remains).unwrap();
    assert!(rig.device.is_recovering());
    rig.now = rig.device.now();
    assert_eq!(rig.admin(command, &setup.to_bytes()), status::BUSY, "not while it recovers");
    rig.settle();
    let after = rig.page();
    assert_eq!((after.lba_first, after.lba_count), (own.lba_first + 7, own.lba_count - 20));
    assert_eq!((after.lane[1].lba_head, after.lane[1].lba_tail), (before.lane[1].lba_head, 30_000));
    let cid = rig.io(IoCommand::ReadLog { lane: 1, offset: 0, bytes: 30_000, wait_ns: 0 }, &[]);
    rig.settle();
    assert!(rig.reply(cid).unwrap().0.is_success());
}

#[test]
fn what_is_not_there_yet_is_not_trimmed_and_no_stream_has_room_for_the_same_bytes_for_ever() {
    let mut rig = Rig::new();
    assert!(rig.append(0, 0, &bytes(0, 100)).is_success());
    rig.settle();
    let all = AdminCommand::TrimLog { function: 0, to: TrimTo::Stream { lane: 0, offset: u64::MAX } };
    assert!(rig.admin(all, &[]).is_success());
    assert!(rig.append(0, 100, &bytes(100, 100)).is_success());
    assert!(rig.append(1, 0, &bytes(0, 100)).is_success());
    rig.settle();
    let other = AdminCommand::TrimLog { function: 0, to: TrimTo::Stream { lane: 1, offset: u64::MAX } };
    assert!(rig.admin(other, &[]).is_success());
    let page = rig.page();
    assert_eq!((page.lane[0].lba_head, page.lane[0].lba_tail), (100, 200), "lane 0 still has what it wrote since");
    // The same store again and again, before any of it leaves the queue.
    let mut taken = 0;
    while rig.append(0, 200, &bytes(0, 64)).is_success() {
        taken += 1;
        assert!(taken < 1_000);
    }
    rig.settle();
    assert_eq!(rig.page().lane[0].credit, 264);
}

/// When bytes leave the ring, for one page: instants after the first, and how many have left.
fn left_ring(release: &str) -> Vec<(Duration, u64)> {
    let settings = [
        "nand.channels=1",
        "nand.ways=1",
        "nand.planes=1",
        "nand.page_size=4KiB",
        "nand.oob_size=128",
        "nand.ecc_codeword=512",
        "nand.bus_rate=4MB/s",
        "nand.command_time=100us",
        "nand.cache=false",
        "ftl.unit_size=4KiB",
        "nand.blocks_per_plane=64",
        "fast.lanes=1",
    ];
    let mut profile = with(profile(), &settings);
    profile.set("fast.release", release).unwrap();
    let mut rig = Rig::of(&profile);
    let page = 4096 - 64;
    assert_eq!(rig.append(0, 0, &bytes(0, page)), Status::SUCCESS);
    let freed = |rig: &Rig| rig.device.fast().function(0).unwrap().lanes()[0].freed();
    let (mut found, mut began) = (Vec::new(), None);
    while let Some(at) = rig.device.deadline().filter(|_| freed(&rig) < page as u64) {
        rig.now = at;
        rig.handle(Input::Timer);
        // The page is full and on its way as soon as its last byte has reached the ring.
        if rig.device.fast().function(0).unwrap().lanes()[0].credit() == page as u64 {
            began.get_or_insert(at);
        }
        if found.last().is_none_or(|&(_, last)| last < freed(&rig)) && freed(&rig) > 0 {
            found.push((at.since(began.expect("nothing leaves before it came")), freed(&rig)));
        }
    }
    found
}

#[test]
fn ring_bytes_are_free_codeword_by_codeword_as_they_cross_the_bus() {
    let us = Duration::from_us;
    // 100 us for the command, and then 528 bytes, of which 512 are data, each 132 us; the header has 64 of the first.
    let each: Vec<(Duration, u64)> = (1..=8).map(|i| (us(100 + 132 * i), 512 * i - 64)).collect();
    assert_eq!(left_ring("crossing"), each);
    assert_eq!(left_ring("transferred"), each[7..]);
    let [(at, all)] = left_ring("programmed")[..] else { panic!("a page at once") };
    assert!(at > us(1_156) && all == 4032, "{at:?}");
}
