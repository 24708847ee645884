//! A drive with a byte window, and its payload store.

use std::collections::HashMap;
use tidewater_base::{Duration, Instant};
use tidewater_core::content::Whereabouts;
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::fast::Content;
use tidewater_core::flaw::Injected;
use tidewater_core::host::Submission;
use tidewater_core::power::Remains;
use tidewater_core::profile::Profile;
use tidewater_core::window::Flaw;
use tidewater_nand::{FaultPlan, FaultyNand, Nand};
use tidewater_testkit::profile::{BYTE_WINDOW, tiny, with};
use tidewater_wire::nvme::{DsmRange, Sqe, Status};
use tidewater_wire::vendor::{ANYWHERE, WindowCommand};

/// The device: its medium can be made to fail.
pub type Victim = Device<FaultyNand<Nand>>;

pub const PAGE: u64 = 4096;
/// Blocks of a page.
pub const BLOCKS: u64 = 8;

pub fn profile(settings: &[(&str, &str)]) -> Profile {
    with(with(tiny(), BYTE_WINDOW), settings)
}

/// A drive, and its payload store.
pub struct Rig {
    pub device: Victim,
    pub profile: Profile,
    pub now: Instant,
    pub outputs: Vec<Output>,
    /// Content by page and version.
    pub content: HashMap<(u32, u64), Vec<u8>>,
    pub cid: u16,
    pub tag: u64,
    /// The window is broken on purpose from each power-on on.
    pub flaw: Injected<Flaw>,
}

pub fn pattern(lpn: u32, tag: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|word| (tag << 32 | u64::from(lpn) << 16 | word).to_le_bytes()).collect()
}

impl Rig {
    pub fn new(settings: &[(&str, &str)]) -> Rig {
        Rig::over(profile(settings), FaultPlan::default(), 1)
    }

    /// A drive on flash that fails by plan.
    pub fn over(profile: Profile, faults: FaultPlan, seed: u64) -> Rig {
        let options = Options { stamps: true, seed, ..Options::default() };
        let device = Device::over(&profile, options, |nand| FaultyNand::new(nand, faults)).unwrap();
        Rig {
            device,
            profile,
            now: Instant::ZERO,
            outputs: Vec::new(),
            content: HashMap::new(),
            cid: 0,
            tag: 0,
            flaw: Injected::NONE,
        }
    }

    pub fn handle(&mut self, input: Input<'_>) {
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

    pub fn step(&mut self) -> bool {
        let Some(at) = self.device.deadline() else { return false };
        self.now = at.max(self.now);
        self.handle(Input::Timer);
        true
    }

    pub fn settle(&mut self) {
        let end = self.now + Duration::from_ms(50);
        while self.device.deadline().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Gives a command of the window; its reply comes later.
    pub fn give(&mut self, command: WindowCommand, data: &[u8]) -> u16 {
        (self.cid, self.tag) = (self.cid + 1, self.tag + 1);
        let (sqe, tag) = (command.emit(self.cid), self.tag);
        self.handle(Input::Window { sqe, data, tag });
        self.cid
    }

    pub fn reply(&mut self, cid: u16) -> Option<(Status, u32, Vec<u8>)> {
        let place = self.outputs.iter().position(|o| matches!(o, Output::Reply { cid: of, .. } if *of == cid))?;
        match self.outputs.remove(place) {
            Output::Reply { status, result, data, .. } => Some((status, result, data)),
            _ => None,
        }
    }

    pub fn run(&mut self, command: WindowCommand, data: &[u8]) -> (Status, u32, Vec<u8>) {
        let cid = self.give(command, data);
        self.settle();
        self.reply(cid).expect("it has ended")
    }

    pub fn status(&mut self, command: WindowCommand) -> Status {
        self.run(command, &[]).0
    }

    /// Pins pages under a name; returns where.
    pub fn pin(&mut self, entry: u16, first: u64, pages: u32) -> u64 {
        let command =
            WindowCommand::Pin { entry, offset: ANYWHERE, lba: first * BLOCKS, blocks: pages * BLOCKS as u32 };
        let (status, offset, _) = self.run(command, &[]);
        assert_eq!(status, Status::SUCCESS);
        offset.into()
    }

    pub fn submit(&mut self, sqe: impl FnOnce(u16) -> Sqe, ranges: Option<Box<[DsmRange]>>) -> (u16, u64) {
        (self.cid, self.tag) = (self.cid + 1, self.tag + 1);
        let submission = Submission { ranges, ..Submission::new(sqe(self.cid), self.tag) };
        let (cid, tag) = (self.cid, self.tag);
        self.handle(Input::Submit { queue: 0, submission });
        (cid, tag)
    }

    /// How a block command has ended, if it has.
    pub fn completion(&mut self, cid: u16) -> Option<Status> {
        let of = |o: &Output| matches!(o, Output::Complete(completion) if completion.cqe.cid == cid);
        match self.outputs.remove(self.outputs.iter().position(of)?) {
            Output::Complete(completion) => Some(completion.cqe.status),
            _ => None,
        }
    }

    pub fn begin_write(&mut self, lpn: u32) -> u16 {
        let (cid, tag) = self.submit(|cid| Sqe::write(cid, u64::from(lpn) * BLOCKS, BLOCKS as u16 - 1), None);
        self.content.insert((lpn, tag), pattern(lpn, tag));
        cid
    }

    pub fn write(&mut self, lpn: u32) -> Status {
        let cid = self.begin_write(lpn);
        self.settle();
        self.completion(cid).expect("it has ended")
    }

    pub fn read(&mut self, lpn: u32) -> Result<Vec<u8>, Status> {
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

    pub fn address(&self, offset: u64) -> u64 {
        self.device.window().bar_offset() + offset
    }

    pub fn store(&mut self, offset: u64, bytes: &[u8]) {
        let address = self.address(offset);
        self.handle(Input::Store { function: 0, address, content: Content::Bytes(bytes) });
    }

    pub fn load(&mut self, offset: u64) -> u64 {
        let address = self.address(offset);
        self.handle(Input::Load { function: 0, address, len: 8, tag: 77 });
        self.settle();
        let place = self.outputs.iter().position(|o| matches!(o, Output::Loaded { tag: 77, .. }));
        match self.outputs.remove(place.expect("a load is answered")) {
            Output::Loaded { value, .. } => value,
            _ => unreachable!(),
        }
    }

    /// As another, but nothing is known of its content or its past.
    pub fn blank(other: &Rig) -> Rig {
        Rig {
            device: other.device.clone(),
            profile: other.profile.clone(),
            now: other.now,
            outputs: Vec::new(),
            content: HashMap::new(),
            cid: 0,
            tag: 0,
            flaw: other.flaw,
        }
    }

    /// The power is back, after something was done to what is there. Recovery is driven.
    pub fn resume_with(&mut self, remains: Remains<FaultyNand<Nand>>, change: impl FnOnce(&mut Rig)) {
        self.keep_dumped(&remains);
        change(self);
        self.begin(remains);
        while self.device.is_recovering() {
            assert!(self.step(), "recovery hangs: {}", self.device.describe_outstanding());
        }
    }

    fn keep_dumped(&mut self, remains: &Remains<FaultyNand<Nand>>) {
        for page in remains.dumped() {
            self.content.insert((page.lpn, page.version), page.bytes.to_vec());
        }
    }

    /// The power is back. Recovery is not driven.
    pub fn resume(&mut self, remains: Remains<FaultyNand<Nand>>) {
        self.keep_dumped(&remains);
        self.begin(remains);
    }

    fn begin(&mut self, remains: Remains<FaultyNand<Nand>>) {
        self.now = remains.at();
        self.device = Device::power_on(&self.profile, remains).unwrap();
        self.device.set_window_flaw(self.flaw);
        self.outputs.clear();
        self.handle_outputs();
    }

    pub fn power_on(&mut self, remains: Remains<FaultyNand<Nand>>) {
        self.resume_with(remains, |_| {});
    }

    /// Takes outputs of the device without an input.
    pub fn handle_outputs(&mut self) {
        let address = self.address(0);
        // A store that lies nowhere changes nothing but a counter.
        self.handle(Input::Store { function: 1, address, content: Content::Bytes(&[]) });
    }

    pub fn lose_power(&mut self) {
        let remains = self.device.clone().cut_power();
        self.power_on(remains);
    }

    pub fn names(&self) -> Vec<u16> {
        self.device.window().table().entries().map(|(_, entry)| entry.name).collect()
    }
}
