//! The byte window through the front door: commands, stores and loads, as a front end brings them, beside block commands.

use std::collections::HashMap;
use tidewater_base::{Duration, Instant};
use tidewater_core::device::{Device, Input, Options, Output, Whereabouts};
use tidewater_core::fast::Content;
use tidewater_core::host::Submission;
use tidewater_core::power::Remains;
use tidewater_core::profile::{Profile, builtin};
use tidewater_core::window::energy_needed;
use tidewater_wire::nvme::{DsmRange, Sqe, Status};
use tidewater_wire::vendor::{ANYWHERE, EntryInfo, WindowCommand, status as vendor_status};

const PAGE: u64 = 4096;
/// Blocks of a page.
const BLOCKS: u64 = 8;

fn profile(settings: &[(&str, &str)]) -> Profile {
    let mut profile = builtin("tiny").unwrap();
    for (key, value) in
        [("memory.ba.kind", "dram"), ("memory.ba.size", "64KiB"), ("memory.ba.survives", "by-capacitors")]
            .into_iter()
            .chain([("window.size", "32KiB"), ("window.memory", "ba"), ("window.entries", "3")])
            .chain(settings.iter().copied())
    {
        profile.set(key, value).unwrap();
    }
    profile
}

/// A drive, and whoever keeps its payload.
struct Rig {
    device: Device,
    profile: Profile,
    now: Instant,
    outputs: Vec<Output>,
    /// Content by page and version.
    content: HashMap<(u32, u64), Vec<u8>>,
    cid: u16,
    tag: u64,
}

fn pattern(lpn: u32, tag: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|word| (tag << 32 | u64::from(lpn) << 16 | word).to_le_bytes()).collect()
}

impl Rig {
    fn new(settings: &[(&str, &str)]) -> Rig {
        let profile = profile(settings);
        let device = Device::new(&profile, Options { stamps: true, ..Options::default() }).unwrap();
        Rig { device, profile, now: Instant::ZERO, outputs: Vec::new(), content: HashMap::new(), cid: 0, tag: 0 }
    }

    fn handle(&mut self, input: Input<'_>) {
        assert!(self.device.handle(self.now, input).is_ok());
        while let Some(output) = self.device.poll() {
            match output {
                Output::WindowLoad { lpn, place } => {
                    let bytes = place.version().and_then(|version| self.content.get(&(lpn, version)).cloned());
                    let content = bytes.as_deref().map_or(Content::Absent(0), Content::Bytes);
                    assert!(self.device.handle(self.now, Input::WindowFill { lpn, content }).is_ok());
                }
                Output::WindowStore { lpn, version, offset } => {
                    let mut bytes = vec![0; PAGE as usize];
                    self.device.window().read(offset, &mut bytes);
                    self.content.insert((lpn, version), bytes);
                }
                output => self.outputs.push(output),
            }
        }
    }

    fn step(&mut self) -> bool {
        let Some(at) = self.device.deadline() else { return false };
        self.now = at.max(self.now);
        self.handle(Input::Timer);
        true
    }

    fn settle(&mut self) {
        let end = self.now + Duration::from_ms(50);
        while self.device.deadline().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Gives a command of the window; its reply comes later.
    fn give(&mut self, command: WindowCommand, data: &[u8]) -> u16 {
        (self.cid, self.tag) = (self.cid + 1, self.tag + 1);
        let (sqe, tag) = (command.emit(self.cid), self.tag);
        self.handle(Input::Window { sqe, data, tag });
        self.cid
    }

    fn reply(&mut self, cid: u16) -> Option<(Status, u32, Vec<u8>)> {
        let place = self.outputs.iter().position(|o| matches!(o, Output::Reply { cid: of, .. } if *of == cid))?;
        match self.outputs.remove(place) {
            Output::Reply { status, result, data, .. } => Some((status, result, data)),
            _ => None,
        }
    }

    fn run(&mut self, command: WindowCommand, data: &[u8]) -> (Status, u32, Vec<u8>) {
        let cid = self.give(command, data);
        self.settle();
        self.reply(cid).expect("it has ended")
    }

    fn status(&mut self, command: WindowCommand) -> Status {
        self.run(command, &[]).0
    }

    /// Pins pages under a name; returns where.
    fn pin(&mut self, entry: u16, first: u64, pages: u32) -> u64 {
        let command =
            WindowCommand::Pin { entry, offset: ANYWHERE, lba: first * BLOCKS, blocks: pages * BLOCKS as u32 };
        let (status, offset, _) = self.run(command, &[]);
        assert_eq!(status, Status::SUCCESS);
        offset.into()
    }

    fn submit(&mut self, sqe: impl FnOnce(u16) -> Sqe, ranges: Option<Box<[DsmRange]>>) -> (u16, u64) {
        (self.cid, self.tag) = (self.cid + 1, self.tag + 1);
        let submission = Submission { ranges, ..Submission::new(sqe(self.cid), self.tag) };
        let (cid, tag) = (self.cid, self.tag);
        self.handle(Input::Submit { queue: 0, submission });
        (cid, tag)
    }

    /// How a block command has ended, if it has.
    fn completion(&mut self, cid: u16) -> Option<Status> {
        let of = |o: &Output| matches!(o, Output::Complete(completion) if completion.cqe.cid == cid);
        match self.outputs.remove(self.outputs.iter().position(of)?) {
            Output::Complete(completion) => Some(completion.cqe.status),
            _ => None,
        }
    }

    fn begin_write(&mut self, lpn: u32) -> u16 {
        let (cid, tag) = self.submit(|cid| Sqe::write(cid, u64::from(lpn) * BLOCKS, BLOCKS as u16 - 1), None);
        self.content.insert((lpn, tag), pattern(lpn, tag));
        cid
    }

    fn write(&mut self, lpn: u32) -> Status {
        let cid = self.begin_write(lpn);
        self.settle();
        self.completion(cid).expect("it has ended")
    }

    fn read(&mut self, lpn: u32) -> Result<Vec<u8>, Status> {
        let (cid, _) = self.submit(|cid| Sqe::read(cid, u64::from(lpn) * BLOCKS, BLOCKS as u16 - 1), None);
        self.settle();
        let status = self.completion(cid).expect("it has ended");
        let place = self.outputs.iter().position(|o| matches!(o, Output::Data { cid: of, .. } if *of == cid));
        if !status.is_success() {
            return Err(status);
        }
        match self.outputs.remove(place.expect("a read that succeeds finds something")) {
            Output::Data { place: Whereabouts::Zeroes, .. } => Ok(vec![0; PAGE as usize]),
            Output::Data { place, .. } => Ok(self.content[&(lpn, place.version().expect("it is not lost"))].clone()),
            _ => unreachable!(),
        }
    }

    fn address(&self, offset: u64) -> u64 {
        self.device.window().bar_offset() + offset
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let address = self.address(offset);
        self.handle(Input::Store { function: 0, address, content: Content::Bytes(bytes) });
    }

    fn load(&mut self, offset: u64) -> u64 {
        let address = self.address(offset);
        self.handle(Input::Load { function: 0, address, len: 8, tag: 77 });
        self.settle();
        let place = self.outputs.iter().position(|o| matches!(o, Output::Loaded { tag: 77, .. }));
        match self.outputs.remove(place.expect("a load is answered")) {
            Output::Loaded { value, .. } => value,
            _ => unreachable!(),
        }
    }

    fn power_on(&mut self, remains: Remains) {
        for page in remains.dumped() {
            self.content.insert((page.lpn, page.version), page.bytes.to_vec());
        }
        self.now = remains.at();
        self.device = Device::power_on(&self.profile, remains).unwrap();
        self.outputs.clear();
        self.handle_outputs();
        while self.device.is_recovering() {
            assert!(self.step(), "recovery hangs: {}", self.device.describe_outstanding());
        }
    }

    /// Takes what the device says without being told something.
    fn handle_outputs(&mut self) {
        let address = self.address(0);
        // A store that lies nowhere changes nothing but a counter.
        self.handle(Input::Store { function: 1, address, content: Content::Bytes(&[]) });
    }

    fn lose_power(&mut self) {
        let remains = self.device.clone().cut_power();
        self.power_on(remains);
    }

    fn names(&self) -> Vec<u16> {
        self.device.window().table().entries().map(|(_, entry)| entry.name).collect()
    }
}

const WORD: [u8; 8] = *b"tideword";

#[test]
fn what_is_stored_is_loaded_and_after_a_flush_read_as_blocks() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(5).is_success());
    let before = rig.read(5).unwrap();
    let at = rig.pin(9, 4, 2);
    assert_eq!(rig.load(at + PAGE + 8).to_le_bytes(), before[8..16], "page 5 is the entry's second");
    assert_eq!(rig.load(at), 0, "page 4 was never written");
    rig.store(at + PAGE + 8, &WORD);
    assert_eq!(rig.load(at + PAGE + 8).to_le_bytes(), WORD);
    assert!(rig.status(WindowCommand::Sync { entry: 9 }).is_success());
    let (status, _, bytes) = rig.run(WindowCommand::ReadDma { entry: 9, offset: PAGE, bytes: 20 }, &[]);
    assert!(status.is_success());
    assert_eq!(bytes[..8], before[..8]);
    assert_eq!(bytes[8..16], WORD);
    assert_eq!(bytes.len(), 20);
    let (status, ..) = rig.run(WindowCommand::Write { entry: 9, offset: 3, bytes: 8 }, &WORD);
    assert!(status.is_success());
    assert!(rig.status(WindowCommand::Flush { entry: 9 }).is_success());
    assert_eq!(rig.names(), []);
    let after = rig.read(5).unwrap();
    assert_eq!((&after[..8], &after[8..16], &after[16..24]), (&before[..8], &WORD[..], &before[16..24]));
    assert_eq!(rig.read(4).unwrap()[3..11], WORD);
    assert_eq!(rig.load(at + PAGE + 8), u64::MAX, "nothing is there any more");
    rig.store(at, &WORD);
    let statistics = rig.device.window().statistics;
    assert_eq!((statistics.loads_outside, statistics.stores_dropped), (1, 1));
}

#[test]
fn stores_that_are_not_flushed_go_with_an_unpin() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(5).is_success());
    let before = rig.read(5).unwrap();
    let at = rig.pin(9, 5, 1);
    rig.store(at, &WORD);
    assert!(rig.status(WindowCommand::Unpin { entry: 9 }).is_success());
    assert!(rig.read(5).unwrap() == before);
}

#[test]
fn a_store_over_the_end_of_an_entry_is_cut_there() {
    let mut rig = Rig::new(&[]);
    let at = rig.pin(1, 3, 1);
    rig.store(at + PAGE - 4, &WORD);
    assert_eq!(rig.load(at + PAGE - 8).to_le_bytes(), *b"\0\0\0\0tide");
    assert_eq!(rig.device.window().statistics.stores_dropped, 1);
}

#[test]
fn every_misuse_has_its_status() {
    let mut rig = Rig::new(&[]);
    rig.pin(1, 10, 2);
    let pages = (rig.device.capacity() / PAGE) as u32;
    let pin = |entry, offset, lba, blocks| WindowCommand::Pin { entry, offset, lba, blocks };
    for (command, status) in [
        (pin(1, ANYWHERE, 0, 8), vendor_status::ENTRY_EXISTS),
        (pin(2, ANYWHERE, 11 * BLOCKS, 8), vendor_status::LBA_OVERLAP),
        (pin(2, PAGE, 0, 8), vendor_status::BUFFER_OVERLAP),
        (pin(2, 8 * PAGE, 0, 8), vendor_status::WINDOW_RANGE),
        (pin(2, PAGE + 8, 0, 8), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, 1, 8), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, 0, 9), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, 20 * BLOCKS, 7 * 8), vendor_status::BUFFER_FULL),
        (pin(2, ANYWHERE, 20 * BLOCKS, 9 * 8), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, u64::from(pages) * BLOCKS, 8), Status::LBA_OUT_OF_RANGE),
        (pin(2, ANYWHERE, u64::MAX, 8), Status::LBA_OUT_OF_RANGE),
        (WindowCommand::Flush { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::Sync { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::Unpin { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::EntryInfo { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::ReadDma { entry: 1, offset: 2 * PAGE - 8, bytes: 9 }, vendor_status::WINDOW_RANGE),
        (WindowCommand::ReadDma { entry: 1, offset: u64::MAX, bytes: 9 }, vendor_status::WINDOW_RANGE),
    ] {
        assert_eq!(rig.status(command), status, "{command:?}");
    }
    let (status, _, data) = rig.run(WindowCommand::EntryInfo { entry: 1 }, &[]);
    assert!(status.is_success());
    let info = EntryInfo::parse(&data).unwrap();
    assert_eq!((info.entry, info.offset, info.lba, info.bytes), (1, 0, 80, 2 * PAGE));
    rig.pin(2, 0, 1);
    rig.pin(3, 2, 1);
    assert_eq!(rig.status(pin(4, ANYWHERE, 24, 8)), vendor_status::TABLE_FULL);
    // Busy: a second command while the first moves pages.
    let (flush, second) =
        (rig.give(WindowCommand::Flush { entry: 1 }, &[]), rig.give(WindowCommand::Sync { entry: 1 }, &[]));
    rig.settle();
    assert_eq!(rig.reply(second).unwrap().0, vendor_status::ENTRY_BUSY);
    assert!(rig.reply(flush).unwrap().0.is_success());
    let mut none = Rig::new(&[("window.size", "0")]);
    let cid = none.give(WindowCommand::Sync { entry: 1 }, &[]);
    assert_eq!(none.reply(cid).unwrap().0, vendor_status::WINDOW_ABSENT);
}

#[test]
fn block_commands_on_pinned_blocks_are_refused_and_others_are_not() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(6).is_success());
    rig.pin(1, 5, 2);
    assert_eq!(rig.write(5), vendor_status::LBA_PINNED);
    assert_eq!(rig.read(6), Err(vendor_status::LBA_PINNED));
    assert!(rig.write(4).is_success());
    assert!(rig.write(7).is_success());
    let deallocate = |rig: &mut Rig, first: u64| {
        let range = DsmRange { first_block: first * BLOCKS, blocks: BLOCKS as u32, ..DsmRange::default() };
        let (cid, _) = rig.submit(|cid| Sqe::dataset_management(cid, 0, true), Some(Box::new([range])));
        rig.settle();
        rig.completion(cid).expect("it has ended")
    };
    assert_eq!(deallocate(&mut rig, 6), vendor_status::LBA_PINNED);
    assert!(deallocate(&mut rig, 7).is_success());
    // Flush has nothing to do with pinned blocks.
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    assert_eq!(rig.names(), [1]);
    assert!(rig.status(WindowCommand::Unpin { entry: 1 }).is_success());
    assert!(rig.read(6).is_ok());
}

#[test]
fn held_commands_go_on_when_the_entry_is_let_go_of() {
    let mut rig = Rig::new(&[("window.gate", "hold")]);
    let at = rig.pin(1, 5, 1);
    rig.store(at, &WORD);
    let (read, _) = rig.submit(|cid| Sqe::read(cid, 5 * BLOCKS, 7), None);
    let write = rig.begin_write(5);
    rig.settle();
    assert_eq!((rig.completion(read), rig.completion(write), rig.device.window().held()), (None, None, 2));
    assert!(rig.status(WindowCommand::Flush { entry: 1 }).is_success());
    assert_eq!((rig.completion(read), rig.completion(write)), (Some(Status::SUCCESS), Some(Status::SUCCESS)));
    let newest = rig.read(5).unwrap();
    assert_ne!(newest[..8], WORD, "the write that was held came after the flush");
}

#[test]
fn a_pin_waits_for_writes_that_were_let_through() {
    let mut rig = Rig::new(&[("buffer.write_policy", "none")]);
    assert!(rig.write(5).is_success());
    let write = rig.begin_write(5);
    let command = WindowCommand::Pin { entry: 1, offset: ANYWHERE, lba: 5 * BLOCKS, blocks: 8 };
    let pin = rig.give(command, &[]);
    rig.settle();
    assert_eq!(rig.completion(write), Some(Status::SUCCESS));
    assert!(rig.reply(pin).unwrap().0.is_success());
    let tag = rig.tag - 1;
    assert_eq!(rig.load(0).to_le_bytes(), pattern(5, tag)[..8], "what the write brought");
}

#[test]
fn a_dirty_page_of_the_write_buffer_is_pinned_and_flushed_over() {
    let mut rig = Rig::new(&[]);
    let write = rig.begin_write(5);
    while rig.completion(write).is_none() {
        assert!(rig.step());
    }
    let at = rig.pin(1, 5, 1);
    rig.store(at, &WORD);
    assert!(rig.status(WindowCommand::Flush { entry: 1 }).is_success());
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    assert_eq!(rig.read(5).unwrap()[..8], WORD);
    rig.lose_power();
    assert_eq!(rig.read(5).unwrap()[..8], WORD);
}

#[test]
fn entries_come_back_with_what_was_stored_again_and_again() {
    for memory in [&[][..], &[("memory.ba.kind", "nvm"), ("memory.ba.size", "64KiB")]] {
        let mut rig = Rig::new(memory);
        assert!(rig.write(5).is_success());
        let before = rig.read(5).unwrap();
        let at = rig.pin(9, 5, 2);
        let other = rig.pin(4, 20, 1);
        for round in 0..4u64 {
            rig.store(at + 8 * round, &(round + 1).to_le_bytes());
            rig.store(other, &round.to_le_bytes());
            rig.lose_power();
            assert_eq!(rig.names(), [9, 4]);
            for word in 0..=round {
                assert_eq!(rig.load(at + 8 * word), word + 1);
            }
            assert_eq!(rig.load(at + 64).to_le_bytes(), before[64..72]);
            assert_eq!(rig.load(other), round);
            assert_eq!(rig.read(5), Err(vendor_status::LBA_PINNED));
        }
        assert!(rig.status(WindowCommand::Flush { entry: 9 }).is_success());
        assert_eq!(rig.read(5).unwrap()[8..16], 2u64.to_le_bytes());
        rig.lose_power();
        assert_eq!(rig.names(), [4], "what was flushed is not pinned again");
        assert_eq!(rig.read(5).unwrap()[8..16], 2u64.to_le_bytes());
        assert_eq!(rig.device.window().statistics.dumps_lost, 0);
    }
}

#[test]
fn a_dump_that_was_cut_short_is_never_taken_for_whole() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(5).is_success());
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    let before = rig.read(5).unwrap();
    // An older dump has been there.
    let at = rig.pin(9, 4, 6);
    rig.store(at + PAGE, &WORD);
    rig.lose_power();
    rig.store(at + PAGE, &[0xAB; 8]);
    let events = rig.device.clone().cut_power().dump_events();
    assert!(events > 4, "{events}");
    let device = rig.device.clone();
    for cut in 0..=events {
        rig.device = device.clone();
        let remains = rig.device.clone().cut_power_in_dump(cut);
        rig.power_on(remains);
        if cut == events {
            assert_eq!(rig.load(at + PAGE), 0xABAB_ABAB_ABAB_ABAB);
            assert_eq!(rig.names(), [9]);
        } else {
            assert_eq!(rig.names(), [], "cut after event {cut} of {events}");
            assert!(rig.read(5).unwrap() == before, "the block is what it was when it was pinned");
        }
    }
}

#[test]
fn a_second_loss_at_any_event_of_the_way_back_changes_nothing() {
    let mut rig = Rig::new(&[]);
    let at = rig.pin(9, 4, 3);
    rig.store(at + PAGE, &WORD);
    let remains = rig.device.clone().cut_power();
    rig.power_on(remains.clone());
    // Again, event by event, with the power gone after each.
    let mut events = 0;
    for page in remains.dumped() {
        rig.content.insert((page.lpn, page.version), page.bytes.to_vec());
    }
    let mut way = Rig { content: rig.content.clone(), ..Rig::new(&[]) };
    way.now = remains.at();
    way.device = Device::power_on(&way.profile, remains).unwrap();
    way.handle_outputs();
    loop {
        let mut again = Rig { content: way.content.clone(), ..Rig::new(&[]) };
        again.power_on(way.device.clone().cut_power());
        assert_eq!((again.names(), again.load(at + PAGE)), (vec![9], u64::from_le_bytes(WORD)), "event {events}");
        if !way.device.is_recovering() {
            break;
        }
        assert!(way.step());
        events += 1;
    }
    assert!(events > 10, "{events}");
}

#[test]
fn a_flush_that_was_cut_short_can_only_be_flushed_again() {
    let mut rig = Rig::new(&[]);
    let at = rig.pin(9, 4, 4);
    rig.store(at, &WORD);
    let flush = rig.give(WindowCommand::Flush { entry: 9 }, &[]);
    for _ in 0..6 {
        assert!(rig.step());
    }
    assert!(rig.reply(flush).is_none());
    rig.lose_power();
    assert_eq!(rig.load(at).to_le_bytes(), WORD);
    assert_eq!(rig.status(WindowCommand::Unpin { entry: 9 }), vendor_status::FLUSH_BEGUN);
    assert!(rig.status(WindowCommand::Flush { entry: 9 }).is_success());
    assert_eq!(rig.read(4).unwrap()[..8], WORD);
}

#[test]
fn a_buffer_that_survives_nothing_says_so_and_leaves_blocks_as_they_were() {
    let mut rig = Rig::new(&[("memory.ba.survives", "nothing")]);
    assert!(rig.device.notes().iter().any(|note| note.downgrade && note.text.contains("not flushed is lost")));
    assert!(rig.write(5).is_success());
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    let before = rig.read(5).unwrap();
    let at = rig.pin(9, 5, 1);
    rig.store(at, &WORD);
    rig.lose_power();
    assert_eq!(rig.names(), []);
    assert!(rig.read(5).unwrap() == before);
}

#[test]
fn capacitors_that_hold_too_little_are_refused_with_what_is_needed() {
    let good = profile(&[]);
    let needed = energy_needed(&good);
    let too_little = profile(&[("window.energy", &format!("{}", needed * 0.99))]);
    let error = too_little.check().unwrap_err().to_string();
    assert!(error.contains("[window] energy") && error.contains(&format!("{needed:.4} J are needed")), "{error}");
    profile(&[("window.energy", &format!("{}", needed * 1.01))]).check().unwrap();
    // What a cut takes is within what is reckoned with.
    let mut rig = Rig::new(&[]);
    rig.pin(1, 8, 8);
    let used = rig.device.clone().cut_power().energy();
    assert!(used > 0.0 && used < needed, "{used} of {needed}");
}
