//! Controllers, in front of a tiny host: registers, queues in its memory, admin and I/O commands, faults, resets.
//! Whatever it does, everything ends, and after a reset the controller gets ready.

use std::collections::HashMap;

use super::memories;
use super::reader::Reader;
use tidewater_base::{Duration, Instant};
use tidewater_core::fast::Content;
use tidewater_core::host_memory::{Access, Answer, HostFault, Operation, Stamp};
use tidewater_core::profile::{Profile, builtin};
use tidewater_core::subsystem::{
    Fault, Input, MoveError, Options, Output, Region, Segment, Segments, Slot, StoreFault, Subsystem,
};
use tidewater_core::{Device, Options as DeviceOptions};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe, feature};

/// Bytes of the host's memory.
const MEMORY: usize = 1 << 20;
/// Entries of its queues.
const ENTRIES: u16 = 16;
/// Where its queues lie: two pages for each, then pages for data.
const QUEUES_AT: u64 = 0x1000;
/// Queues that it makes, the admin queue included.
const QUEUES: u16 = 3;
/// Where the list of the memory that it lends is, and which pages these are: those for data too, so that anything
/// happens to them.
const LENT_LIST: u64 = 0xA000;
const LENT_PAGES: u64 = 64;
/// What it does in one input, at most.
const STEPS_MAX: usize = 200;
/// Events of the drive between two steps, at most: some commands take their time, and background work may go on for
/// ever.
const EVENTS_MAX: u32 = 2_000;

struct Host {
    subsystem: Subsystem,
    now: Instant,
    memory: Vec<u8>,
    queues: Vec<Vec<u8>>,
    tails: [u16; QUEUES as usize],
    /// What the drive has written to its memory, and where.
    lent: HashMap<u64, (Stamp, u64)>,
    /// Moves fail in this way.
    fails: Option<MoveError>,
    syncs_fail: bool,
}

/// A drive of a few MiB: plain, with a fast side and a byte window, or one whose read cache and mapping cache are in
/// memory that the host lends.
fn profile(kind: u8) -> Profile {
    match kind % 3 {
        0 => builtin("tiny").expect("there is a profile of this name"),
        1 => memories::profile(),
        _ => memories::on_lent_memory(),
    }
}

/// The kind of drive, and a list of operations.
pub fn controller(data: &[u8]) {
    let mut reader = Reader(data);
    let profile = profile(reader.byte());
    let device = DeviceOptions { stamps: true, payload: true, ..DeviceOptions::default() };
    let device = Device::new(&profile, device).expect("a good profile");
    let lent = LENT_PAGES as u32;
    let options = Options {
        functions: 2,
        cmb: 16 << 10,
        pmr: 64 << 10,
        hmb_preferred: lent,
        hmb_minimum: 1,
        ..Options::of(&profile)
    };
    let subsystem = Subsystem::new(device, options).expect("good options");
    let len = subsystem.bar2().cmb_len as usize;
    let mut host = Host {
        now: subsystem.device().now(),
        subsystem,
        memory: vec![0; MEMORY],
        queues: vec![vec![0; len]; 2],
        tails: [0; QUEUES as usize],
        lent: HashMap::new(),
        fails: None,
        syncs_fail: false,
    };
    for _ in 0..STEPS_MAX {
        if reader.is_empty() {
            break;
        }
        host.step(&mut reader);
        host.settle();
    }
    (host.fails, host.syncs_fail) = (None, false);
    host.input(Input::Inject(Fault::Clear));
    host.input(Input::FunctionReset { function: 0 });
    host.run(EVENTS_MAX);
    assert_eq!(host.subsystem.register(0, offset::CSTS, 4) & 0xF, 0, "a reset controller is not ready");
    host.bring_up();
    for _ in 0..1_000 {
        if host.subsystem.register(0, offset::CSTS, 4) & 1 != 0 {
            return;
        }
        host.run(EVENTS_MAX);
    }
    panic!("the controller does not get ready: {}", host.subsystem.device().describe_outstanding());
}

impl Host {
    fn input(&mut self, input: Input<'_>) {
        self.subsystem.handle(self.now, input);
    }

    fn write(&mut self, offset: u32, len: u8, value: u64) {
        self.input(Input::Register { function: 0, offset, len, value });
    }

    /// Enables the controller, with its admin queues.
    fn bring_up(&mut self) {
        let entries = u64::from(ENTRIES - 1);
        self.memory[QUEUES_AT as usize..][..0x2000].fill(0);
        self.write(offset::AQA, 4, entries << 16 | entries);
        self.write(offset::ASQ, 8, QUEUES_AT);
        self.write(offset::ACQ, 8, QUEUES_AT + 0x1000);
        self.write(offset::CC, 4, 0x0046_0001);
        self.tails = [0; QUEUES as usize];
    }

    /// One operation.
    fn step(&mut self, reader: &mut Reader<'_>) {
        match reader.byte() % 18 {
            0 => {
                let (offset, len) = (reader.number(2) as u32, reader.byte() % 8 + 1);
                let value = reader.number(8);
                self.write(offset, len, value);
            }
            1 => {
                self.bring_up();
                self.run(EVENTS_MAX);
            }
            2 => self.make_queue(1 + u16::from(reader.byte()) % (QUEUES - 1)),
            3..=7 => {
                let sqe = self.command(reader);
                self.submit(usize::from(reader.byte() % QUEUES as u8), &sqe);
            }
            8 => self.run(u32::from(reader.byte()) * 4 + 1),
            9 => {
                let (at, len) = (reader.number(3) as usize % MEMORY, usize::from(reader.byte()));
                let bytes = reader.bytes(len.min(MEMORY - at));
                self.memory[at..at + bytes.len()].copy_from_slice(bytes);
            }
            10 => self.input(Input::FunctionReset { function: reader.byte() % 2 }),
            11 => self.fault(reader),
            12 => {
                let fails = [None, Some(MoveError::Host), Some(MoveError::Medium), Some(MoveError::Differs)];
                let how = reader.byte();
                (self.fails, self.syncs_fail) = (fails[usize::from(how % 4)], how & 0x80 != 0);
            }
            13 => {
                let (address, len) = (reader.number(3), usize::from(reader.byte() % 64) + 1);
                let bytes = reader.bytes(len);
                if !bytes.is_empty() {
                    self.input(Input::Store { function: 0, address, content: Content::Bytes(bytes) });
                }
            }
            14 => {
                let (queue, completion) = (u16::from(reader.byte() % 4), reader.byte() & 1 != 0);
                let at = offset::DOORBELLS + 8 * u32::from(queue) + 4 * u32::from(completion);
                let value = reader.number(2);
                self.write(at, 4, value);
            }
            15 => self.lend(reader.byte()),
            16 => {
                // A command with all its bits, as the seeds have vendor's commands.
                let mut bytes = [0; Sqe::SIZE];
                let given = reader.bytes(Sqe::SIZE);
                bytes[..given.len()].copy_from_slice(given);
                self.submit(usize::from(reader.byte() % QUEUES as u8), &Sqe::from_bytes(&bytes));
            }
            _ => {
                let _ = self.subsystem.register(0, reader.number(2) as u32, reader.byte());
                let _ = self.subsystem.load(0, reader.number(3), reader.byte() % 8 + 1);
            }
        }
    }

    /// Lends memory, or wants it back. `how`: bit 0 lends, bit 1 says that it is the memory of before, bits 2 to 7 say
    /// how much.
    fn lend(&mut self, how: u8) {
        let pages = u32::from(how >> 2).min(LENT_PAGES as u32) + 1;
        let at = LENT_LIST as usize;
        self.memory[at..at + 8].copy_from_slice(&0x2_0000_u64.to_le_bytes());
        self.memory[at + 8..at + 16].copy_from_slice(&u64::from(pages).to_le_bytes());
        let sqe = Sqe::default().with_dword(0, 0x09).with_dword(10, feature::HOST_MEMORY_BUFFER.into());
        let sqe = sqe.with_dword(11, u32::from(how & 3)).with_dword(12, pages).with_dword(13, LENT_LIST as u32);
        self.submit(0, &sqe.with_dword(15, 1));
        self.run(EVENTS_MAX);
    }

    /// What the drive finds in the memory that is lent. It may have changed since, be what was there before, or have
    /// gone.
    fn host_memory(&mut self, access: &Access) -> Answer {
        match access.operation {
            Operation::Write { content } => {
                // Some never arrive.
                if self.fails.is_none() {
                    self.lent.insert(access.offset, (access.stamp, content));
                }
                Answer::Written
            }
            Operation::Read => match (self.lent.get(&access.offset), self.fails) {
                (_, Some(MoveError::Medium)) => Answer::Gone,
                (None, _) | (_, Some(MoveError::Host)) => Answer::Damaged,
                (Some(&(stamp, content)), _) => Answer::Found { stamp, content },
            },
        }
    }

    fn fault(&mut self, reader: &mut Reader<'_>) {
        let (kind, count) = (reader.byte(), u32::from(reader.byte() % 4));
        let function = 0;
        self.input(Input::Inject(match kind % 7 {
            0 => Fault::Status { nsid: 1, blocks: (0, 1 << 20), status: 0x281, count },
            1 => Fault::Delay { function, by: Duration::from_us(u64::from(reader.byte())), count },
            2 => Fault::Lose { function, count },
            3 => Fault::Duplicate { function, count },
            4 => Fault::Fatal { function },
            5 => {
                let how = reader.byte();
                let slow = HostFault::Slow(Duration::from_us(u64::from(how)));
                let faults = [HostFault::Withdrawn, HostFault::Corrupted, HostFault::Stale, slow];
                Fault::HostMemory { fault: faults[usize::from(how % 4)], count }
            }
            _ => Fault::StuckShutdown { function },
        }));
    }

    /// A command: mostly one that could be, with data in the host's memory.
    fn command(&mut self, reader: &mut Reader<'_>) -> Sqe {
        let (opcode, flags) = (u32::from(reader.byte()), u32::from(reader.byte()));
        let flags = if flags & 0xF0 == 0xF0 { flags } else { 0 };
        let cid = reader.number(2) as u32;
        let nsid = match reader.byte() {
            0xFF => u32::MAX,
            small => u32::from(small % 4),
        };
        let page = 0x20 + reader.number(1) % 0x80;
        let mut sqe = Sqe::default()
            .with_dword(0, opcode | flags << 8 | cid << 16)
            .with_nsid(nsid)
            .with_dword(6, (page << 12) as u32 | u32::from(reader.byte() & 0xC) << 4)
            .with_dword(8, ((page + 1) << 12) as u32);
        for dword in 10..16 {
            // Small numbers are what most fields want.
            let value = match reader.byte() {
                0xFF => reader.number(4) as u32,
                0xFE => reader.number(2) as u32 | (reader.number(1) as u32) << 16,
                small => u32::from(small % 64),
            };
            sqe = sqe.with_dword(dword, value);
        }
        sqe
    }

    fn make_queue(&mut self, queue: u16) {
        let at = QUEUES_AT + 0x2000 * u64::from(queue);
        self.memory[at as usize..][..0x2000].fill(0);
        let size = u32::from(queue) | u32::from(ENTRIES - 1) << 16;
        let of = |opcode, address: u64, cdw11| {
            let sqe = Sqe::default().with_dword(0, opcode).with_dword(6, address as u32);
            sqe.with_dword(10, size).with_dword(11, cdw11)
        };
        self.submit(0, &of(0x05, at + 0x1000, 1));
        self.run(EVENTS_MAX);
        self.submit(0, &of(0x01, at, u32::from(queue) << 16 | 1));
        self.run(EVENTS_MAX);
        self.tails[usize::from(queue)] = 0;
    }

    /// Puts a command into a queue, and frees all completions.
    fn submit(&mut self, queue: usize, sqe: &Sqe) {
        let tail = self.tails[queue];
        let at = QUEUES_AT as usize + 0x2000 * queue + usize::from(tail) * Sqe::SIZE;
        self.memory[at..at + Sqe::SIZE].copy_from_slice(&sqe.to_bytes());
        self.tails[queue] = (tail + 1) % ENTRIES;
        let doorbell = offset::DOORBELLS + 8 * queue as u32;
        self.write(doorbell, 4, self.tails[queue].into());
        self.settle();
        // The completion queue is emptied as far as it is filled: its phase tags tell.
        let head = u64::from(tail);
        self.write(doorbell + 4, 4, head);
    }

    fn slice(&mut self, function: u8, address: u64, len: usize) -> Option<&mut [u8]> {
        match self.subsystem.region(function, address, len as u32) {
            Region::Cmb { offset } => Some(&mut self.queues[usize::from(function)][offset as usize..][..len]),
            Region::Pmr { .. } => None,
            Region::Host => self.memory.get_mut(usize::try_from(address).ok()?..)?.get_mut(..len),
        }
    }

    /// The command's data, as far as the host's memory is there. Asserts that its segments are as long as it.
    fn gather(&mut self, slot: Slot, len: usize) -> Option<Vec<u8>> {
        let function = self.subsystem.command(slot).expect("a command that is under way").function;
        let Segments::Host(segments) = self.subsystem.segments(slot) else {
            panic!("no fabrics controller has a host here");
        };
        let segments: Vec<Segment> = segments.to_vec();
        let total: usize = segments.iter().map(|segment| segment.len as usize).sum();
        assert!(total >= len, "{len} bytes of {total}");
        let mut bytes = Vec::new();
        for segment in segments {
            let part = (segment.len as usize).min(len - bytes.len());
            match segment.bit_bucket {
                true => bytes.resize(bytes.len() + part, 0),
                false => bytes.extend_from_slice(self.slice(function, segment.address, part)?),
            }
        }
        Some(bytes)
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::DmaRead { token, function, address, len } => {
                assert!((1..=4_096).contains(&len));
                let bytes = self.slice(function, address, len as usize).map(|bytes| bytes.to_vec());
                self.input(Input::DmaRead { token, bytes: bytes.as_deref() });
            }
            Output::Gather { slot, len } => {
                let bytes = self.gather(slot, len as usize);
                self.input(Input::Gathered { slot, bytes: bytes.as_deref() });
            }
            Output::Fetch { slot, len } => {
                let there = self.gather(slot, len as usize).is_some();
                let result = if there { self.moved(false) } else { Err(MoveError::Host) };
                self.input(Input::Moved { slot, result });
            }
            Output::Data { slot, compare, .. } => {
                let result = self.moved(compare);
                self.input(Input::Moved { slot, result });
            }
            Output::Send { slot, .. } => {
                let result = self.moved(false);
                self.input(Input::Moved { slot, result });
            }
            Output::Sync { slot } | Output::Purge { slot } => {
                let result = if self.syncs_fail { Err(StoreFault) } else { Ok(()) };
                self.input(Input::Synced { slot, result });
            }
            Output::Complete { function, cqe, address: Some(address), .. } => {
                match self.slice(function, address, Cqe::SIZE) {
                    Some(bytes) => bytes.copy_from_slice(&cqe.to_bytes()),
                    None => self.input(Input::PostFailed { function }),
                }
            }
            Output::EventIndex { function, address, value } => {
                if let Some(bytes) = self.slice(function, address, 4) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
            }
            Output::HostMemory { access, .. } => {
                let answer = self.host_memory(&access);
                self.input(Input::HostMemory { ticket: access.ticket, answer });
            }
            Output::LoadWindow { lpn, .. } => {
                let content = Content::Bytes(&[0x5A; 4096]);
                let content = if self.fails.is_some() { Content::Absent(0) } else { content };
                self.input(Input::WindowFill { lpn, content });
            }
            // What was saved is what it starts from after a power loss.
            Output::SaveState => assert!(!self.subsystem.state().is_empty()),
            Output::Taken { .. }
            | Output::Complete { .. }
            | Output::Interrupt { .. }
            | Output::Gone { .. }
            | Output::QueueGone { .. }
            | Output::KeepAliveExpired { .. }
            | Output::StoreLog { .. }
            | Output::StoreWindow { .. }
            | Output::Frame { .. }
            | Output::Grouped { .. } => {}
        }
    }

    /// How a move ends. Only a compare differs.
    fn moved(&self, compare: bool) -> Result<(), MoveError> {
        match self.fails {
            None => Ok(()),
            Some(MoveError::Differs) if !compare => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn settle(&mut self) {
        while let Some(output) = self.subsystem.poll() {
            self.act(output);
        }
    }

    /// Lets so many events pass, or all there are.
    fn run(&mut self, events: u32) {
        self.settle();
        for _ in 0..events {
            let Some(at) = self.subsystem.deadline() else { return };
            self.now = self.now.max(at);
            self.input(Input::Timer);
            self.settle();
        }
    }
}
