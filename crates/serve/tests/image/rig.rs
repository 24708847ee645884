//! A drive with its payload store and a host, under a virtual clock.

use crate::image::log::LANES;
use crate::image::model::{BLOCK, Model, ZEROES, fill, identify};
use std::collections::BTreeMap;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::device::{Input, Options, Output};
use tidewater_core::host::Submission;
use tidewater_core::profile::{Mapping, Profile};
use tidewater_core::subsystem::{MoveError, Slot, Unit};
use tidewater_core::{Device, SetupError};
use tidewater_nand::{Changes, FaultPlan, FaultyNand, Nand, Recorder};
use tidewater_serve::image::{Image, ImageError, ImageOptions, Made, OpenReport, Opened, Payload, Target};
use tidewater_testkit::profile::few_pages;
use tidewater_wire::nvme::{DsmRange, Sqe};

pub type Drive = Device<Recorder<FaultyNand<Nand>>>;

/// Commands under way at most.
const DEPTH: usize = 12;
const TRANSFER_MAX: u32 = 64 << 10;
const UNIT: u32 = 4_096;

/// A drive of some hundred pages that collects all the time.
pub fn tiny() -> Profile {
    let mut p = few_pages();
    p.host.transfer_max = TRANSFER_MAX;
    (p.nand.ways, p.nand.planes) = (1, 2);
    p
}

/// The same with two units in a page and three planes' worth of trouble: one factory-bad block in twenty, two spares.
pub fn wide() -> Profile {
    let mut p = tiny();
    p.name = "wide".into();
    p.nand.page_size = 8 << 10;
    p.nand.blocks_per_plane = 16;
    p.ftl.spare_blocks = 0.12;
    p.nand.factory_bad_rate = 0.05;
    p
}

/// One of the two with hybrid mapping: FAST or FASTer, logs of several sizes, rows of two units or four.
pub fn hybrid(i: u64) -> Profile {
    let mut p = if i % 4 < 2 { tiny() } else { wide() };
    p.ftl.mapping = if i.is_multiple_of(2) { Mapping::Fast } else { Mapping::Faster };
    p.name = format!("{}-{:?}", p.name, p.ftl.mapping);
    p.ftl.log_blocks = 6 + i as u32 % 3;
    p.ftl.log_write_points = 1 + i as u32 % 2;
    p.ftl.merges_max = 1 + i as u32 % 3;
    p.ftl.isolation_share = 0.3;
    p.nand.blocks_per_plane += 8;
    p
}

/// How often each command comes, as weights: writes, FUA writes, reads, flushes, deallocations, zeroes, FUA zeroes.
pub type Mix = [u64; 7];
pub const MIXED: Mix = [60, 8, 12, 6, 6, 5, 3];
pub const OVERWRITE: Mix = [90, 2, 4, 3, 1, 1, 1];
pub const DEALLOCATE: Mix = [45, 5, 5, 10, 22, 8, 5];

#[derive(Clone, Debug)]
enum What {
    Read,
    Write { fua: bool },
    Zeroes { fua: bool },
    Deallocate,
    Flush,
}

#[derive(Clone, Debug)]
struct Command {
    what: What,
    /// Blocks that it addresses.
    blocks: std::ops::Range<u64>,
    slot: Slot,
    id: u64,
    /// Its completion was said, and waits for a sync.
    syncing: bool,
}

/// What the host has done and seen, for an observer.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// A command that leaves `id` in these blocks begins.
    Begin {
        command: u64,
        blocks: std::ops::Range<u64>,
        id: u64,
    },
    /// It has completed.
    Complete {
        command: u64,
        blocks: std::ops::Range<u64>,
        durable: bool,
    },
    /// With where the log ends in the image.
    BeginFlush {
        command: u64,
        stored: [u64; LANES],
    },
    CompleteFlush {
        command: u64,
    },
    /// What it has stored into the log, will have, and knows of it.
    Log {
        stored: [u64; LANES],
        credit: [u64; LANES],
        trimmed: [u64; LANES],
    },
}

/// The observer.
type Teller = Box<dyn FnMut(&HostEvent)>;

/// The rig.
pub struct Rig {
    pub device: Drive,
    pub payload: Payload,
    pub model: Model,
    changes: Changes,
    rng: Rng,
    mix: Mix,
    now: Instant,
    paused_until: Instant,
    version: u64,
    commands: BTreeMap<(u16, u16), Command>,
    cid: u16,
    /// Called with all that the host does and sees, before it counts.
    pub tell: Option<Teller>,
    /// The host keeps what it has stored into the log until credit confirms that the image has it.
    pub keeps_rings: bool,
    /// The host has no use for some of what it has not stored.
    pub skips: bool,
    pub completed: u64,
    pub read_blocks: u64,
    /// The store has failed: what is refused or ends badly is not held against the drive.
    pub faulty: bool,
    pub refused: u64,
}

pub fn options() -> Options {
    Options { stamps: true, payload: true, volatile_buffer: true, ..Options::default() }
}

impl Rig {
    pub fn create(target: Target<'_>, profile: &Profile, seed: u64, how: ImageOptions) -> Result<Rig, ImageError> {
        let made = Image::create(target, profile, Options { seed, ..options() }, how, |nand| {
            FaultyNand::new(nand, FaultPlan::default())
        })?;
        Ok(Rig::new(made, seed))
    }

    pub fn new(made: Made<FaultyNand<Nand>>, seed: u64) -> Rig {
        let blocks = made.device.capacity() / BLOCK as u64;
        Rig::over(made.device, made.image, Model::new(blocks), 0, seed)
    }

    pub fn over(device: Drive, image: Image, model: Model, version: u64, seed: u64) -> Rig {
        let mut rng = Rng::new(seed, b"image rig");
        // Identities of different lives must not be mistaken for each other.
        let first = rng.next_u64() >> 20;
        Rig {
            payload: Payload::new(image, DEPTH as u16, TRANSFER_MAX, UNIT),
            now: device.now(),
            paused_until: device.now(),
            device,
            model,
            changes: Changes::default(),
            rng: Rng::new(first, b"host"),
            mix: MIXED,
            version,
            commands: BTreeMap::new(),
            cid: 0,
            tell: None,
            keeps_rings: false,
            skips: false,
            completed: 0,
            read_blocks: 0,
            faulty: false,
            refused: 0,
        }
    }

    /// Brings a drive back from its image, until it takes commands.
    pub fn reopen(
        target: Target<'_>,
        how: ImageOptions,
        plan: FaultPlan,
        seed: u64,
    ) -> Result<(Rig, OpenReport), ImageError> {
        let opened: Opened<_> = Image::open(target, None, how, |nand| FaultyNand::new(nand, plan))?;
        let device = Device::power_on(&opened.profile, opened.remains).map_err(|e: SetupError| ImageError::Setup(e))?;
        let blocks = device.capacity() / BLOCK as u64;
        let mut rig = Rig::over(device, opened.image, Model::new(blocks), opened.version_max, seed);
        while rig.device.is_recovering() {
            assert!(rig.tick(), "recovery hangs");
        }
        Ok((rig, opened.report))
    }

    pub fn mix(&mut self, mix: Mix) {
        self.mix = mix;
    }

    /// Reads all blocks, and says what is in each.
    pub fn contents(&mut self) -> Result<Vec<u64>, String> {
        let blocks = self.model.blocks();
        let mut found = Vec::with_capacity(blocks as usize);
        let mut bytes = [0; UNIT as usize];
        for lpn in 0..(blocks / 8) as u32 {
            let place = self.device.locate(lpn);
            let unit = Unit { lpn, skip: 0, len: UNIT, at: 0 };
            let read = self.payload.read(unit, place, &mut bytes);
            read.map_err(|error| format!("unit {lpn} can't be read: {error:?} at {place:?}"))?;
            for (i, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
                let block = u64::from(lpn) * 8 + i as u64;
                let id = identify(block, bytes);
                found.push(id.ok_or_else(|| format!("block {block} holds what was never written, at {place:?}"))?);
            }
        }
        Ok(found)
    }

    /// After the end of the process: every block holds what it may. The drive goes on with what was found.
    pub fn check_after_crash(&mut self, before: &Model) -> Result<(), String> {
        self.check_after_crash_between(before, before, true)
    }

    /// As [`Rig::check_after_crash`], when the crash came somewhere between two moments; `ended`: only the process has.
    pub fn check_after_crash_between(&mut self, before: &Model, after: &Model, ended: bool) -> Result<(), String> {
        let found = self.contents()?;
        for (block, &id) in (0..).zip(&found) {
            if !before.may_hold(block, id) && !after.may_hold(block, id) {
                let place = self.device.locate((block / 8) as u32);
                return Err(format!("block {block} holds {id}, may hold {} ({place:?})", after.describe(block)));
            }
        }
        self.model = Model::after_crash(&found);
        self.check_log(&before.log, &after.log, ended)
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn say(&mut self, event: &HostEvent) {
        if let Some(tell) = &mut self.tell {
            tell(event);
        }
        match event.clone() {
            HostEvent::Begin { command, blocks, id } => self.model.begin(command, blocks, id),
            HostEvent::Complete { command, blocks, durable } => self.model.complete(command, blocks, durable),
            HostEvent::BeginFlush { command, stored } => {
                self.model.begin_flush(command);
                self.model.log.begin_flush(command, stored);
            }
            HostEvent::CompleteFlush { command } => self.model.complete_flush(command),
            HostEvent::Log { stored, credit, trimmed } => self.model.log.learn(stored, credit, trimmed),
        }
    }

    /// One event of the host or of the drive. False: nothing is left to happen.
    pub fn step(&mut self) -> bool {
        let deadline = self.device.deadline().unwrap_or(Instant::NEVER);
        let submits = if self.commands.len() < DEPTH { self.paused_until.max(self.now) } else { Instant::NEVER };
        if submits < deadline || submits == deadline && submits != Instant::NEVER && self.rng.below(2) == 0 {
            self.now = submits;
            let log = self.has_log() && self.rng.below(3) > 0;
            if log {
                let mut rng = Rng::new(self.rng.next_u64(), b"log");
                self.use_log(&mut rng);
                self.paused_until = self.now + Duration::from_us(self.rng.below(20));
            } else {
                self.submit();
            }
            self.after();
            true
        } else {
            self.tick()
        }
    }

    /// One event of the drive.
    pub fn tick(&mut self) -> bool {
        if let Some(deadline) = self.device.deadline() {
            self.now = self.now.max(deadline);
            let _ = self.device.handle(self.now, Input::Timer);
            self.after();
            return true;
        }
        let waits = self.payload.image().is_waiting();
        std::thread::yield_now();
        self.after();
        waits
    }

    /// Events of the drive, until it is so.
    pub fn tick_until(&mut self, is_so: impl Fn(&Rig) -> bool) {
        while !is_so(self) {
            assert!(self.tick(), "it never is");
        }
    }

    /// Nothing more is submitted, and all that is under way ends.
    pub fn come_to_rest(&mut self) {
        while self.tick() {}
        assert!(self.commands.is_empty(), "commands never end: {}", self.device.describe_outstanding());
    }

    /// A write, until it has ended. False: it ended badly.
    pub fn write(&mut self, blocks: std::ops::Range<u64>, fua: bool) -> bool {
        let (cid, refused) = (self.free_cid(0), self.refused);
        self.submit_command((0, cid), What::Write { fua }, blocks);
        while self.commands.contains_key(&(0, cid)) {
            assert!(self.tick(), "the write hangs");
        }
        self.refused == refused
    }

    /// Reads a unit.
    pub fn read_unit(&mut self, lpn: u32) -> Result<Vec<u8>, MoveError> {
        let mut bytes = vec![0; UNIT as usize];
        let place = self.device.locate(lpn);
        self.payload.read(Unit { lpn, skip: 0, len: UNIT, at: 0 }, place, &mut bytes).map(|()| bytes)
    }

    /// A flush, until it has ended.
    pub fn flush(&mut self) {
        let cid = self.free_cid(0);
        self.submit_command((0, cid), What::Flush, 0..0);
        while self.commands.contains_key(&(0, cid)) {
            assert!(self.tick(), "the flush hangs");
        }
    }

    /// What the drive has done and said.
    fn after(&mut self) {
        self.device.medium().take_changes(&mut self.changes);
        let applied = self.payload.apply(&self.changes);
        let stored = match self.device.is_recovering() {
            true => Ok(()),
            false => self.payload.image_mut().store_logs(self.device.fast(), |_, _| self.keeps_rings),
        };
        assert!(applied.and(stored).is_ok() || self.faulty, "the image fails without an injected fault");
        self.see_credit();
        while let Some(output) = self.device.poll() {
            self.take(output);
        }
        while let Some((slot, result)) = self.payload.take_synced() {
            let key = *self.commands.iter().find(|(_, c)| c.slot == slot && c.syncing).expect("it waits").0;
            self.end(key, result.is_ok());
        }
        if self.payload.needs_sweep() {
            self.payload.sweep(self.device.unprogrammed());
        }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Taken { queue, cid, lpn, previous } => {
                let command = &self.commands[&(queue, cid)];
                let unit = overlap(&command.blocks, lpn);
                let zeroes = matches!(command.what, What::Zeroes { .. });
                self.payload.taken(command.slot, unit, command.id, zeroes, previous);
            }
            Output::Data { queue, cid, lpn, place } => {
                let unit = overlap(&self.commands[&(queue, cid)].blocks, lpn);
                let mut bytes = vec![0; unit.len as usize];
                let read = self.payload.read(unit, place, &mut bytes);
                assert!(read.is_ok(), "unit {lpn} can't be read: {read:?} at {place:?}");
                let first = (u64::from(lpn) * u64::from(UNIT) + u64::from(unit.skip)) / BLOCK as u64;
                for (block, bytes) in (first..).zip(bytes.chunks_exact(BLOCK)) {
                    let (id, expected) = (identify(block, bytes), self.model.now(block));
                    assert_eq!(id, Some(expected), "block {block} at {place:?}: {}", self.model.describe(block));
                    self.read_blocks += 1;
                }
            }
            Output::Complete(completion) => {
                let key = (completion.queue, completion.cqe.cid);
                let good = completion.cqe.status.is_success();
                assert!(good || self.faulty, "{:?} ended with {:?}", self.commands[&key], completion.cqe.status);
                let command = self.commands.get_mut(&key).expect("it is under way");
                let durable =
                    matches!(command.what, What::Flush | What::Write { fua: true } | What::Zeroes { fua: true });
                if good && durable {
                    command.syncing = true;
                    let slot = command.slot;
                    self.payload.request_sync(slot);
                } else {
                    self.end(key, good);
                }
            }
            Output::Store { function, lpn, number, page, epoch } => {
                let mut bytes = vec![0; page.len as usize];
                self.device.fast().read_ring(function.into(), page.lane.into(), page.offset, &mut bytes);
                self.payload.keep_log(lpn, &page.header(function, number, epoch, &bytes), &bytes);
            }
            other => panic!("{other:?} was not asked for"),
        }
    }

    /// The host sees a command's completion.
    fn end(&mut self, key: (u16, u16), good: bool) {
        let command = self.commands.remove(&key).expect("it is under way");
        self.completed += 1;
        if !good {
            assert!(self.faulty);
            self.refused += 1;
            return;
        }
        let id = command.id;
        let blocks = changed(&command.what, &command.blocks);
        match command.what {
            What::Read => {}
            What::Flush => self.say(&HostEvent::CompleteFlush { command: id }),
            What::Write { fua } | What::Zeroes { fua } => {
                self.say(&HostEvent::Complete { command: id, blocks, durable: fua });
            }
            What::Deallocate => self.say(&HostEvent::Complete { command: id, blocks, durable: false }),
        }
    }

    fn free_cid(&mut self, queue: u16) -> u16 {
        while self.commands.contains_key(&(queue, self.cid)) {
            self.cid = (self.cid + 1) % 64;
        }
        self.cid
    }

    fn submit(&mut self) {
        if self.rng.below(40) == 0 {
            self.paused_until = self.now + Duration::from_us(1 + self.rng.below(3_000));
        }
        let queue = self.rng.below(2) as u16;
        let cid = self.free_cid(queue);
        let mut dice = self.rng.below(self.mix.iter().sum());
        let kind = self.mix.iter().position(|&weight| {
            let hit = dice < weight;
            dice = dice.wrapping_sub(weight);
            hit
        });
        let what = match kind {
            Some(0) => What::Write { fua: false },
            Some(1) => What::Write { fua: true },
            Some(2) => What::Read,
            Some(3) => What::Flush,
            Some(4) => What::Deallocate,
            Some(5) => What::Zeroes { fua: false },
            _ => What::Zeroes { fua: true },
        };
        let blocks = if matches!(what, What::Flush) { 0..0 } else { self.pick() };
        let overlaps = |c: &Command| c.blocks.start < blocks.end && blocks.start < c.blocks.end;
        if self.commands.values().any(overlaps) {
            self.paused_until = self.now + Duration::from_us(20);
            return;
        }
        self.submit_command((queue, cid), what, blocks);
    }

    /// Blocks for a command: mostly in a small hot part, mostly whole units.
    fn pick(&mut self) -> std::ops::Range<u64> {
        let units = self.model.blocks() / 8;
        let hot = (units / 5).max(1);
        let first = if self.rng.below(4) > 0 { self.rng.below(hot) } else { self.rng.below(units) };
        let count = if self.rng.below(2) == 0 { 1 } else { 1 + self.rng.below(6) };
        let (mut first, mut end) = (first * 8, (first + count).min(units) * 8);
        if self.rng.below(4) == 0 {
            first += self.rng.below(8);
            end -= self.rng.below(8);
            end = end.max(first + 1);
        }
        first..end
    }

    fn submit_command(&mut self, key: (u16, u16), what: What, blocks: std::ops::Range<u64>) {
        let (queue, cid) = key;
        let slot = (0..DEPTH as u16 + 1).find(|&slot| self.commands.values().all(|c| c.slot.0 != slot));
        let slot = Slot(slot.expect("there are more slots than commands"));
        assert!(usize::from(slot.0) < DEPTH, "too many commands");
        self.version += 1;
        let id = self.version;
        let (first, last) = (blocks.start, (blocks.end.max(1) - blocks.start.min(blocks.end.max(1) - 1) - 1) as u16);
        let mut submission = Submission::new(Sqe::flush(cid), id);
        let with_fua = |sqe: Sqe, fua: bool| if fua { sqe.with_fua() } else { sqe };
        let changes = changed(&what, &blocks);
        match what {
            What::Read => submission.sqe = Sqe::read(cid, first, last),
            What::Write { fua } => {
                submission.sqe = with_fua(Sqe::write(cid, first, last), fua);
                for (block, bytes) in blocks.clone().zip(self.payload.staging(slot).chunks_exact_mut(BLOCK)) {
                    fill(id, block, bytes);
                }
                self.say(&HostEvent::Begin { command: id, blocks: changes, id });
            }
            What::Zeroes { fua } => {
                let may_unmap = self.rng.below(2) == 0;
                submission.sqe = with_fua(Sqe::write_zeroes(cid, first, last, may_unmap), fua);
                self.say(&HostEvent::Begin { command: id, blocks: changes, id: ZEROES });
            }
            What::Deallocate => {
                submission.sqe = Sqe::dataset_management(cid, 0, true);
                submission.ranges = Some([DsmRange::new(first, u32::from(last) + 1)].into());
                self.say(&HostEvent::Begin { command: id, blocks: changes, id: ZEROES });
            }
            What::Flush => {
                // Some want what the host keeps to be safe as well.
                let stored = self.stored(id.is_multiple_of(2));
                self.say(&HostEvent::BeginFlush { command: id, stored });
            }
        }
        self.commands.insert(key, Command { what, blocks, slot, id, syncing: false });
        let handled = self.device.handle(self.now, Input::Submit { queue, submission });
        assert!(handled.is_ok(), "a queue was full that should have had room");
    }

    /// The power fails inside: what is left goes on.
    pub fn cut_power(self) -> (Rig, Model) {
        let Rig { device, mut payload, model, mut changes, version, .. } = self;
        let profile = device.profile().clone();
        let remains = device.cut_power();
        remains.medium().take_changes(&mut changes);
        for page in remains.destaged() {
            let header = page.page.header(page.function, page.number, page.epoch, &page.bytes);
            payload.keep_log(page.lpn, &header, &page.bytes);
        }
        payload.apply(&changes).expect("the image takes it");
        payload.image_mut().store_log_remains(remains.log()).expect("the image takes it");
        payload.power_lost().expect("the image takes it");
        let device = Device::power_on(&profile, remains).expect("it comes back");
        let blocks = model.blocks();
        let mut rng = Rng::new(version, b"next life");
        let now = device.now();
        let mut rig = Rig {
            device,
            payload,
            model: Model::new(blocks),
            changes,
            rng: Rng::new(rng.next_u64(), b"host"),
            mix: MIXED,
            now,
            paused_until: now,
            version,
            commands: BTreeMap::new(),
            cid: 0,
            keeps_rings: self.keeps_rings,
            skips: self.skips,
            tell: None,
            completed: 0,
            read_blocks: 0,
            faulty: false,
            refused: 0,
        };
        while rig.device.is_recovering() {
            assert!(rig.tick(), "recovery hangs");
        }
        (rig, model)
    }
}

/// What a command addresses of a unit.
fn overlap(blocks: &std::ops::Range<u64>, lpn: u32) -> Unit {
    let first = u64::from(lpn) * u64::from(UNIT);
    let (begin, end) = (blocks.start * BLOCK as u64, blocks.end * BLOCK as u64);
    let (from, to) = (begin.max(first), end.min(first + u64::from(UNIT)));
    Unit { lpn, skip: (from - first) as u32, len: (to - from) as u32, at: (from - begin) as u32 }
}

/// The blocks that a command changes: only whole units are deallocated.
fn changed(what: &What, blocks: &std::ops::Range<u64>) -> std::ops::Range<u64> {
    match what {
        What::Read | What::Flush => 0..0,
        What::Write { .. } | What::Zeroes { .. } => blocks.clone(),
        What::Deallocate => {
            let (first, end) = (blocks.start.next_multiple_of(8), blocks.end / 8 * 8);
            first..end.max(first)
        }
    }
}
