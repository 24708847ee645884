//! A host in memory: an array of bytes that is its memory, drivers for its controllers, and a store for payload.

mod admin;
mod bring_up;
mod data;
mod fabrics;
mod hostile;
mod queues;
mod resets;
mod window;

use super::*;
use crate::content::Whereabouts;
use crate::device::{self, Device};
use crate::host_memory::{Answer, Operation, Stamp};
use crate::profile::{Profile, builtin};
use std::collections::HashMap;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe, Status, admin_opcode};

/// Bytes of the host's memory.
const MEMORY: usize = 16 << 20;
const UNIT: usize = 4096;

pub(super) fn tiny() -> Profile {
    builtin("tiny").expect("a built-in profile")
}

pub(super) fn device(profile: &Profile) -> Device {
    let options = device::Options { stamps: true, payload: true, ..device::Options::default() };
    Device::new(profile, options).expect("a good profile")
}

/// Queues of one controller, as a driver keeps them.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub sq: u64,
    pub cq: u64,
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub tail: u32,
    pub head: u32,
    pub phase: bool,
    pub next_cid: u16,
}

#[derive(Clone)]
pub(super) struct Rig {
    pub s: Subsystem,
    pub now: Instant,
    pub memory: Vec<u8>,
    staging: Vec<Vec<u8>>,
    /// What was written, by logical page and version.
    store: HashMap<(u32, u64), Box<[u8]>>,
    /// Queues by controller and number.
    pub queues: HashMap<(u8, u16), Queue>,
    /// Units in lent memory, by where they begin.
    lent: HashMap<u64, (Stamp, u64)>,
    free: u64,
    /// Everything that was said, for comparisons.
    pub said: Vec<Output>,
    pub interrupts: Vec<(u8, u16)>,
    /// Entries of fabrics controllers.
    pub capsules: Vec<(u8, u16, Cqe)>,
    /// Data of capsules, by controller, queue and command.
    pub capsule_data: HashMap<(u8, u16, u16), Vec<u8>>,
    /// Bytes of each function's slice for queues.
    cmb: Vec<Vec<u8>>,
    /// Outputs of these kinds are not answered, but kept.
    /// Controllers are enabled with weighted round robin, and queues are made in this class.
    pub weighted: bool,
    pub class: u32,
    pub hold: fn(&Output) -> bool,
    pub held: Vec<Output>,
    pub sync_fails: bool,
    pub reads_fail: bool,
    pub syncs: u32,
    pub saves: u32,
    pub state: Vec<u8>,
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::with(&tiny(), |_| {})
    }

    pub(super) fn with(profile: &Profile, change: impl FnOnce(&mut Options)) -> Rig {
        let mut options = Options::of(profile);
        change(&mut options);
        Rig::over(device(profile), options)
    }

    pub(super) fn over(device: Device, options: Options) -> Rig {
        let s = Subsystem::new(device, options).expect("good options");
        let cmb = vec![vec![0; s.bar2().cmb_len as usize]; usize::from(s.options().functions)];
        Rig {
            now: s.device().now(),
            staging: vec![Vec::new(); usize::from(s.slots())],
            s,
            memory: vec![0; MEMORY],
            store: HashMap::new(),
            queues: HashMap::new(),
            lent: HashMap::new(),
            free: 0x1000,
            said: Vec::new(),
            interrupts: Vec::new(),
            capsules: Vec::new(),
            capsule_data: HashMap::new(),
            cmb,
            weighted: false,
            class: 0,
            hold: |_| false,
            held: Vec::new(),
            sync_fails: false,
            reads_fail: false,
            syncs: 0,
            saves: 0,
            state: Vec::new(),
        }
    }

    /// Unused pages of the host's memory.
    pub(super) fn alloc(&mut self, bytes: usize) -> u64 {
        let at = self.free;
        self.free += bytes.next_multiple_of(4096) as u64;
        assert!(self.free as usize <= MEMORY, "the host's memory is used up");
        at
    }

    pub(super) fn input(&mut self, input: Input<'_>) {
        self.s.handle(self.now, input);
    }

    pub(super) fn write(&mut self, function: u8, offset: u32, value: u32) {
        self.input(Input::Register { function, offset, len: 4, value: value.into() });
    }

    pub(super) fn write64(&mut self, function: u8, offset: u32, value: u64) {
        self.input(Input::Register { function, offset, len: 8, value });
    }

    pub(super) fn read(&self, function: u8, offset: u32) -> u32 {
        self.s.register(function, offset, 4) as u32
    }

    pub(super) fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.memory.get(usize::try_from(address).ok()?..)?.get(..len)
    }

    fn slice(&mut self, function: u8, address: u64, len: usize) -> Option<&mut [u8]> {
        match self.s.region(function, address, len as u32) {
            Region::Cmb { offset } => Some(&mut self.cmb[usize::from(function)][offset as usize..][..len]),
            Region::Pmr { .. } => None,
            Region::Host => self.memory.get_mut(usize::try_from(address).ok()?..)?.get_mut(..len),
        }
    }

    /// Copies between a command's segments and bytes. False: the memory is not there.
    fn scatter(&mut self, slot: Slot, at: usize, bytes: &mut [u8], to_host: bool) -> bool {
        let command = self.s.command(slot).expect("a command");
        let segments = match self.s.segments(slot) {
            Segments::Host(segments) => segments.to_vec(),
            Segments::Connection => {
                let key = (command.function, command.queue, command.sqe.cid());
                let data = self.capsule_data.entry(key).or_default();
                data.resize(data.len().max(at + bytes.len()), 0);
                let part = &mut data[at..at + bytes.len()];
                if to_host {
                    part.copy_from_slice(bytes)
                } else {
                    bytes.copy_from_slice(part)
                }
                return true;
            }
        };
        let (mut skip, mut done) = (at, 0);
        for segment in segments {
            let len = segment.len as usize;
            if skip >= len {
                skip -= len;
                continue;
            }
            let take = (len - skip).min(bytes.len() - done);
            if !segment.bit_bucket {
                let Some(memory) = self.slice(command.function, segment.address + skip as u64, take) else {
                    return false;
                };
                let part = &mut bytes[done..done + take];
                if to_host { memory.copy_from_slice(part) } else { part.copy_from_slice(memory) }
            }
            (skip, done) = (0, done + take);
            if done == bytes.len() {
                return true;
            }
        }
        panic!("the segments of slot {} are shorter than its data", slot.0);
    }

    fn content(&self, lpn: u32, place: Whereabouts) -> Vec<u8> {
        match place.version() {
            None | Some(0) => vec![0; UNIT],
            Some(version) => self.store.get(&(lpn, version)).expect("a version that was taken").to_vec(),
        }
    }

    /// Does what an output asks for.
    pub(super) fn act(&mut self, output: Output) {
        match output {
            Output::DmaRead { token, function, address, len } => {
                assert!(len <= 4096 && len > 0);
                let bytes = self.slice(function, address, len as usize).map(|bytes| bytes.to_vec());
                self.input(Input::DmaRead { token, bytes: bytes.as_deref() });
            }
            Output::EventIndex { function, address, value } => {
                if let Some(bytes) = self.slice(function, address, 4) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
            }
            Output::Fetch { slot, len } => {
                let mut bytes = vec![0; len as usize];
                let good = self.scatter(slot, 0, &mut bytes, false);
                self.staging[usize::from(slot.0)] = bytes;
                self.input(Input::Moved { slot, result: if good { Ok(()) } else { Err(MoveError::Host) } });
            }
            Output::Gather { slot, len } => {
                let mut bytes = vec![0; len as usize];
                let good = self.scatter(slot, 0, &mut bytes, false);
                self.input(Input::Gathered { slot, bytes: good.then_some(&bytes) });
            }
            Output::Taken { slot, unit, version, zeroes, previous } => {
                let mut page = self.content(unit.lpn, previous);
                let part = &mut page[unit.skip as usize..][..unit.len as usize];
                if zeroes {
                    part.fill(0);
                } else {
                    let staged = &self.staging[usize::from(slot.0)];
                    part.copy_from_slice(&staged[unit.at as usize..][..unit.len as usize]);
                }
                let before = self.store.insert((unit.lpn, version), page.into_boxed_slice());
                assert!(before.is_none(), "version {version} of page {} came twice", unit.lpn);
            }
            Output::Data { slot, unit, place, compare } => {
                let mut page = self.content(unit.lpn, place);
                let size = page.len() as u32;
                for more in 1..(unit.skip + unit.len).div_ceil(size) {
                    page.extend(self.content(unit.lpn + more, self.s.device().locate(unit.lpn + more)));
                }
                let mut part = page[unit.skip as usize..][..unit.len as usize].to_vec();
                let result = if self.reads_fail {
                    Err(MoveError::Medium)
                } else if compare {
                    let staged = &self.staging[usize::from(slot.0)][unit.at as usize..][..part.len()];
                    if staged == part { Ok(()) } else { Err(MoveError::Differs) }
                } else if self.scatter(slot, unit.at as usize, &mut part, true) {
                    Ok(())
                } else {
                    Err(MoveError::Host)
                };
                self.input(Input::Moved { slot, result });
            }
            Output::Send { slot, at, bytes, log } => {
                let mut bytes = bytes.to_vec();
                if let Some(piece) = log {
                    let mut log = vec![0; piece.len as usize];
                    if piece.from == crate::fast::Place::Ring {
                        let fast = self.s.device().fast();
                        fast.read_ring(piece.function.into(), piece.lane.into(), piece.offset, &mut log);
                    }
                    bytes.extend(log);
                }
                let good = self.scatter(slot, at as usize, &mut bytes, true);
                self.input(Input::Moved { slot, result: if good { Ok(()) } else { Err(MoveError::Host) } });
            }
            Output::Sync { slot } | Output::Purge { slot } => {
                self.syncs += 1;
                let result = if self.sync_fails { Err(StoreFault) } else { Ok(()) };
                self.input(Input::Synced { slot, result });
            }
            Output::SaveState => {
                self.saves += 1;
                self.state = self.s.state();
            }
            Output::Complete { function, queue, cqe, address: Some(address), .. } => {
                let _ = queue;
                match self.slice(function, address, Cqe::SIZE) {
                    Some(bytes) => bytes.copy_from_slice(&cqe.to_bytes()),
                    None => self.input(Input::PostFailed { function }),
                }
            }
            Output::Complete { function, queue, cqe, address: None, .. } => self.capsules.push((function, queue, cqe)),
            Output::Interrupt { function, vector } => self.interrupts.push((function, vector)),
            Output::HostMemory { access, .. } => {
                let answer = match access.operation {
                    Operation::Write { content } => {
                        self.lent.insert(access.offset, (access.stamp, content));
                        Answer::Written
                    }
                    Operation::Read => match self.lent.get(&access.offset) {
                        Some(&(stamp, content)) => Answer::Found { stamp, content },
                        None => Answer::Damaged,
                    },
                };
                self.input(Input::HostMemory { ticket: access.ticket, answer });
            }
            Output::LoadWindow { lpn, place } => {
                let page = self.content(lpn, place);
                self.input(Input::WindowFill { lpn, content: crate::fast::Content::Bytes(&page) });
            }
            Output::StoreWindow { lpn, version, offset } => {
                let mut page = vec![0; UNIT];
                self.s.device().window().read(offset, &mut page);
                self.store.insert((lpn, version), page.into_boxed_slice());
            }
            Output::Gone { .. }
            | Output::QueueGone { .. }
            | Output::KeepAliveExpired { .. }
            | Output::StoreLog { .. }
            | Output::Frame { .. }
            | Output::Grouped { .. } => {}
        }
    }

    /// Answers what was held.
    pub(super) fn let_go(&mut self) {
        self.hold = |_| false;
        for output in std::mem::take(&mut self.held) {
            self.act(output);
        }
    }

    /// Does all that can be done now.
    pub(super) fn settle(&mut self) {
        while let Some(output) = self.s.poll() {
            self.said.push(output.clone());
            if (self.hold)(&output) {
                self.held.push(output);
            } else {
                self.act(output);
            }
        }
    }

    /// Lets time pass until nothing is left to do, or `until` holds. False: it never did.
    pub(super) fn run_until(&mut self, mut until: impl FnMut(&mut Rig) -> bool) -> bool {
        for _ in 0..2_000_000 {
            self.settle();
            if until(self) {
                return true;
            }
            let Some(at) = self.s.deadline() else { return false };
            self.now = self.now.max(at);
            self.input(Input::Timer);
        }
        panic!("it does not end: {}", self.s.device().describe_outstanding());
    }

    pub(super) fn run(&mut self) {
        self.run_until(|_| false);
    }

    /// Enables a controller, with admin queues of 32 entries.
    pub(super) fn enable(&mut self, function: u8) {
        let (sq, cq) = (self.alloc(4096), self.alloc(4096));
        self.enable_at(function, sq, cq);
        assert!(self.run_until(|rig| rig.read(function, offset::CSTS) & 1 != 0), "it does not get ready");
    }

    pub(super) fn enable_at(&mut self, function: u8, sq: u64, cq: u64) {
        self.write(function, offset::AQA, 31 << 16 | 31);
        self.write64(function, offset::ASQ, sq);
        self.write64(function, offset::ACQ, cq);
        for (base, bytes) in [(sq, 32 * 64), (cq, 32 * 16)] {
            if let Some(memory) = self.slice(function, base, bytes) {
                memory.fill(0);
            }
        }
        self.write(function, offset::CC, 0x0046_0001 | u32::from(self.weighted) << 11);
        self.queues
            .insert((function, 0), Queue { sq, cq, sq_entries: 32, cq_entries: 32, phase: true, ..Queue::default() });
    }

    /// Puts an entry into a queue, without ringing. Returns its identifier.
    pub(super) fn put(&mut self, function: u8, queue: u16, sqe: &Sqe) -> u16 {
        let q = self.queues.get_mut(&(function, queue)).expect("a queue");
        let cid = q.next_cid;
        q.next_cid = q.next_cid.wrapping_add(1);
        let at = q.sq + u64::from(q.tail) * 64;
        q.tail = (q.tail + 1) % q.sq_entries;
        let sqe = sqe.with_dword(0, sqe.dwords()[0] & 0xFFFF | u32::from(cid) << 16);
        self.slice(function, at, 64).expect("a queue in memory").copy_from_slice(&sqe.to_bytes());
        cid
    }

    pub(super) fn ring(&mut self, function: u8, queue: u16) {
        let tail = self.queues[&(function, queue)].tail;
        self.write(function, offset::DOORBELLS + 8 * u32::from(queue), tail);
    }

    /// Takes the next entry of a completion queue, if there is one; the doorbell is not rung.
    pub(super) fn take(&mut self, function: u8, queue: u16) -> Option<Cqe> {
        let q = self.queues[&(function, queue)].clone();
        let at = q.cq + u64::from(q.head) * 16;
        let bytes: [u8; 16] = self.slice(function, at, 16)?.try_into().ok()?;
        let cqe = Cqe::from_bytes(&bytes);
        if cqe.phase != q.phase {
            return None;
        }
        let q = self.queues.get_mut(&(function, queue)).expect("a queue");
        q.head += 1;
        if q.head == q.cq_entries {
            q.head = 0;
            q.phase = !q.phase;
        }
        // What has more in the Error Information log says so.
        assert!(!cqe.status.more() || !cqe.status.is_success());
        Some(Cqe { status: cqe.status.with_more(false), ..cqe })
    }

    pub(super) fn ring_head(&mut self, function: u8, queue: u16) {
        let head = self.queues[&(function, queue)].head;
        self.write(function, offset::DOORBELLS + 8 * u32::from(queue) + 4, head);
    }

    /// Lets a command run to its end.
    pub(super) fn submit(&mut self, function: u8, queue: u16, sqe: &Sqe) -> Cqe {
        let cid = self.put(function, queue, sqe);
        self.ring(function, queue);
        self.await_completion(function, queue, cid)
    }

    pub(super) fn await_completion(&mut self, function: u8, queue: u16, cid: u16) -> Cqe {
        let mut found = None;
        self.run_until(|rig| {
            found = rig.take(function, queue);
            found.is_some()
        });
        let cqe = found.unwrap_or_else(|| panic!("command {cid} of queue {queue} does not end"));
        self.ring_head(function, queue);
        assert_eq!((cqe.cid, cqe.sq_id), (cid, queue));
        cqe
    }

    pub(super) fn admin(&mut self, function: u8, sqe: &Sqe) -> Cqe {
        self.submit(function, 0, sqe)
    }

    /// Makes a pair of I/O queues.
    pub(super) fn make_queue(&mut self, function: u8, queue: u16, entries: u32) {
        let (sq, cq) = (self.alloc(entries as usize * 64), self.alloc(entries as usize * 16));
        self.make_queue_at(function, queue, (sq, entries), (cq, entries));
    }

    pub(super) fn make_queue_at(&mut self, function: u8, queue: u16, sq: (u64, u32), cq: (u64, u32)) {
        let bytes = cq.1 as usize * 16;
        self.slice(function, cq.0, bytes).expect("memory").fill(0);
        let vector = u32::from(queue).min(u32::from(self.s.options().vectors) - 1);
        let create = create_cq(queue, cq.0, cq.1, vector);
        assert_eq!(self.admin(function, &create).status, Status::SUCCESS);
        let create = create_sq(queue, sq.0, sq.1, queue);
        let create = create.with_dword(11, create.cdw11() | self.class << 1);
        assert_eq!(self.admin(function, &create).status, Status::SUCCESS);
        let (sq_entries, cq_entries) = (sq.1, cq.1);
        let q = Queue { sq: sq.0, cq: cq.0, sq_entries, cq_entries, phase: true, ..Queue::default() };
        self.queues.insert((function, queue), q);
    }

    /// A PRP pair, with a list if need be, for `len` bytes from `address` on.
    pub(super) fn prps(&mut self, address: u64, len: usize) -> (u64, u64) {
        let first = (4096 - (address as usize & 4095)).min(len);
        let rest = len - first;
        let second = address + first as u64;
        if rest <= 4096 {
            return (address, if rest > 0 { second } else { 0 });
        }
        let list = self.alloc(4096);
        for i in 0..rest.div_ceil(4096) {
            let entry = (second + 4096 * i as u64).to_le_bytes();
            self.memory[list as usize + 8 * i..][..8].copy_from_slice(&entry);
        }
        (address, list)
    }

    /// A command with its data at `address`.
    pub(super) fn with_data(&mut self, sqe: &Sqe, address: u64, len: usize) -> Sqe {
        let (first, second) = self.prps(address, len);
        with_prps(sqe, first, second)
    }
}

pub(super) fn with_prps(sqe: &Sqe, first: u64, second: u64) -> Sqe {
    sqe.with_dword(6, first as u32)
        .with_dword(7, (first >> 32) as u32)
        .with_dword(8, second as u32)
        .with_dword(9, (second >> 32) as u32)
}

pub(super) fn admin_sqe(opcode: u8) -> Sqe {
    Sqe::default().with_dword(0, opcode.into())
}

pub(super) fn create_cq(queue: u16, address: u64, entries: u32, vector: u32) -> Sqe {
    let sqe = admin_sqe(admin_opcode::CREATE_IO_CQ).with_dword(10, u32::from(queue) | (entries - 1) << 16);
    with_prps(&sqe.with_dword(11, vector << 16 | 3), address, 0)
}

pub(super) fn create_sq(queue: u16, address: u64, entries: u32, completion: u16) -> Sqe {
    let sqe = admin_sqe(admin_opcode::CREATE_IO_SQ).with_dword(10, u32::from(queue) | (entries - 1) << 16);
    with_prps(&sqe.with_dword(11, u32::from(completion) << 16 | 1), address, 0)
}

/// Bytes that tell where they come from.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed, b"payload");
    (0..len).map(|_| rng.below(256) as u8).collect()
}
