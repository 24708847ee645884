//! Memory that the host lends (host memory buffer, NVM Express Base 1.4, section 8.9).
//!
//! Host memory is cut into **units**, each with a header ([`HEADER`]) that tells what it is: its [`Stamp`] and a
//! checksum over it and the bytes behind it. The drive keeps a directory of what it wrote where, in memory of its own,
//! and believes a unit only if the whole stamp is the one that it expects. So nothing that happens to the memory can do
//! more than cost a unit:
//!
//! - A use asks for a unit by `host_read` or `host_write` and gets a [`Done`] with its tag later: the unit was
//!   good, its check has failed, or the memory is gone. It fetches what it misses from flash.
//! - The world carries an [`Access`] out, and answers it by its [`Ticket`] with an [`Answer`]. It never says what is
//!   right, only what it found. In simulation it keeps stamps; a served device reads and writes real bytes at the
//!   host's descriptors.
//! - The link is shared with the data of commands. A read sends a request for each [`READ_REQUEST_MAX`] bytes, waits
//!   for the host's memory, and its data comes back framed in TLPs; a write is posted. No more than `[hmb] in_flight`
//!   accesses are under way, the others wait in the order in which they came.
//!
//! The memory is [`State::Absent`] until the host lends it, and between "give it back" and the moment when nothing of
//! the drive's is there any more it is [`State::Withdrawing`]. What is placed on it has then left, in order; a memory
//! that is gone without a word ([`Answer::Gone`]) is absent at once.
//!
//! The uses are in `block/lent.rs`: they ask for units (numbered from 0, as many as [`HostMemory::units`] says), take
//! in what came of it, and take out what exists nowhere else when the host wants its memory back.

mod faults;

pub use faults::{HostFault, HostFaultPlan};

pub use crate::border::{Access, Answer, Lending, Operation, Stamp, Ticket};

use crate::border::Output;
use crate::context::Context;
use crate::cost::{Rate, Server};
use crate::events::{Event, lane};
use crate::memory::{Placement, Use};
use crate::profile::{MemoryKind, Profile};
use std::collections::VecDeque;
pub use tidewater_base::statistics::HostMemoryStatistics;
use tidewater_base::{Duration, Instant};

/// Bytes of the header of a unit: what the stamp and the checksum take.
pub const HEADER: u32 = 40;
/// Bytes that one read request asks for at most: Max_Read_Request_Size as it is after a reset (PCI Express Base 3.0,
/// 7.8.4).
pub const READ_REQUEST_MAX: u64 = 512;

/// Whether there is host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Absent,
    /// There is.
    Lent,
    /// The host wants it back, and something of the drive's is still there: nothing new goes there.
    Withdrawing,
}

/// How an access ended, for the use that wanted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written; or read, and the unit is what it should be.
    Good {
        /// What it was written with.
        content: u64,
    },
    /// The unit that was read is not what it should be.
    Failed,
    /// The memory is gone.
    Gone,
}

/// An access that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Whose it was.
    pub used: Use,
    /// It was a write.
    pub write: bool,
    /// The use's unit.
    pub unit: u32,
    /// What the unit is a copy of.
    pub key: u64,
    /// As the use gave it.
    pub tag: u32,
    /// Of its [`Access`]; 0: there was none, because the memory was gone first.
    pub serial: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// Bytes of host memory that a profile has use for: what a drive of it asks for. 0 if nothing is placed there, or the
/// profile contradicts itself.
pub fn wanted(profile: &Profile) -> u64 {
    let Ok(placement) = crate::memory::place(profile) else { return 0 };
    let placed = Use::ALL.into_iter().filter(|&used| used.is_carried()).filter_map(|used| placement.of(used));
    placed.filter(|placed| placed.memory.kind == MemoryKind::Host).map(|placed| placed.size).sum()
}

/// The part of the memory that a use has.
#[derive(Clone, Copy, Debug)]
struct Region {
    used: Use,
    /// Bytes that the profile gives it.
    size: u64,
    /// Bytes of a unit, header included.
    stride: u32,
    /// Where it begins now, and how many units fit.
    offset: u64,
    units: u32,
    /// Its first unit in the directory.
    first: usize,
}

/// How far an access has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request is on its way, or the posted write on the wire.
    Out,
    /// That is over: the host's answer is all that is needed.
    Answer,
    /// The data is on its way back.
    Back,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    region: usize,
    unit: u32,
    stamp: Stamp,
    operation: Operation,
    tag: u32,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    stage: Stage,
    request: Request,
    serial: u64,
    answer: Option<Answer>,
}

/// Host memory, as the drive knows it.
#[derive(Clone, Debug)]
pub struct HostMemory {
    state: State,
    /// Bytes that are lent.
    bytes: u64,
    generation: u64,
    /// The version of the last write to each unit that is good as far as the drive knows; 0: nothing is there.
    directory: Box<[u64]>,
    version: u64,
    serial: u64,
    regions: Vec<Region>,
    in_flight: Box<[Option<InFlight>]>,
    free: Vec<u32>,
    waiting: VecDeque<Request>,
    rate: Rate,
    read_latency: Duration,
    write_latency: Duration,
    memory: Server,
    /// Counters.
    pub statistics: HostMemoryStatistics,
}

impl HostMemory {
    /// What the profile places on memory of the host; there is none yet.
    pub(crate) fn new(profile: &Profile, placement: &Placement, now: Instant) -> HostMemory {
        let mut regions = Vec::new();
        let (mut first, mut memory) = (0, None);
        for used in Use::ALL.into_iter().filter(|&used| used.is_carried()) {
            let Some(placed) = placement.of(used).filter(|placed| placed.memory.kind == MemoryKind::Host) else {
                continue;
            };
            let payload = if used == Use::MapCache { profile.ftl.map_page } else { profile.ftl.unit_size };
            let stride = payload + HEADER;
            regions.push(Region { used, size: placed.size, stride, offset: 0, units: 0, first });
            first += (placed.size / u64::from(stride)) as usize;
            memory = Some(&placed.memory);
        }
        let in_flight = if regions.is_empty() { 0 } else { profile.hmb.in_flight };
        HostMemory {
            state: State::Absent,
            bytes: 0,
            // No two lives of a drive have generations in common.
            generation: now.as_ps(),
            directory: vec![0; first].into_boxed_slice(),
            version: 0,
            serial: 0,
            regions,
            in_flight: vec![None; in_flight as usize].into_boxed_slice(),
            free: (0..in_flight).rev().collect(),
            waiting: VecDeque::with_capacity(2 * in_flight as usize),
            rate: Rate::per_second(memory.map_or(0, |memory| memory.usable())),
            read_latency: memory.map_or(Duration::ZERO, |memory| memory.read_latency),
            write_latency: memory.map_or(Duration::ZERO, |memory| memory.write_latency),
            memory: Server::default(),
            statistics: HostMemoryStatistics::default(),
        }
    }

    /// Whether anything is placed on it.
    #[inline]
    pub fn is_used(&self) -> bool {
        !self.regions.is_empty()
    }

    /// Bytes that its uses want in all: what a host is asked for.
    pub fn wanted(&self) -> u64 {
        self.regions.iter().map(|region| region.size).sum()
    }

    /// Whether there is any.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Bytes that are lent now.
    pub fn bytes(&self) -> u64 {
        if self.state == State::Absent { 0 } else { self.bytes }
    }

    /// The count of lendings.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Units that a use has now: 0 to what the profile gives it. They are numbered from 0; a use decides what is where.
    pub fn units(&self, used: Use) -> u32 {
        if self.state != State::Lent { 0 } else { self.region(used).map_or(0, |region| self.regions[region].units) }
    }

    /// Whether a use is placed on it.
    pub fn has(&self, used: Use) -> bool {
        self.region(used).is_some()
    }

    fn region(&self, used: Use) -> Option<usize> {
        self.regions.iter().position(|region| region.used == used)
    }

    /// Accesses under way or waiting.
    pub fn outstanding(&self) -> usize {
        self.in_flight.len() - self.free.len() + self.waiting.len()
    }

    /// Whether another access would begin at once: what is only useful had better not wait.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && !self.free.is_empty()
    }

    /// The host lends memory. True: units of before may still be good.
    pub(crate) fn lend(&mut self, bytes: u64, returned: bool) -> bool {
        let same = returned && self.bytes > 0 && bytes == self.bytes;
        self.state = State::Lent;
        if same {
            return true;
        }
        self.generation += 1;
        self.bytes = bytes;
        self.directory.fill(0);
        let wanted = self.wanted().max(1);
        let mut offset = 0;
        for region in &mut self.regions {
            // Each use gets its part of what there is, and never more than the profile gives it.
            let part = (u128::from(bytes) * u128::from(region.size) / u128::from(wanted)) as u64;
            let part = part.min(region.size);
            region.offset = offset;
            region.units = (part / u64::from(region.stride)) as u32;
            offset += part;
        }
        false
    }

    /// The host wants its memory back.
    pub(crate) fn withdraw(&mut self) {
        if self.state == State::Lent {
            self.state = State::Withdrawing;
        }
    }

    /// Nothing of the drive's is there any more; `forget`: what was there is not believed any more, even if it comes
    /// back.
    pub(crate) fn leave(&mut self, forget: bool) {
        self.state = State::Absent;
        if forget {
            self.bytes = 0;
            self.directory.fill(0);
        }
    }

    /// Reads a unit that was written before; `tag` comes back in the [`Done`]. Asserts that the use is placed here.
    pub(crate) fn read(&mut self, cx: &mut Context, used: Use, unit: u32, key: u64, tag: u32) {
        let region = self.region(used).expect("the use is placed on host memory");
        let version = self.directory[self.regions[region].first + unit as usize];
        let stamp = Stamp { used, key, version, generation: self.generation };
        self.begin(cx, Request { region, unit, stamp, operation: Operation::Read, tag });
    }

    /// Writes a unit, as the copy of `key`; `content` comes back with every good read. Asserts that the use is placed
    /// here.
    pub(crate) fn write(&mut self, cx: &mut Context, used: Use, unit: u32, key: u64, content: u64, tag: u32) {
        let region = self.region(used).expect("the use is placed on host memory");
        self.version += 1;
        self.directory[self.regions[region].first + unit as usize] = self.version;
        let stamp = Stamp { used, key, version: self.version, generation: self.generation };
        self.begin(cx, Request { region, unit, stamp, operation: Operation::Write { content }, tag });
    }

    fn begin(&mut self, cx: &mut Context, request: Request) {
        if self.waiting.is_empty()
            && let Some(place) = self.free.pop()
        {
            self.start(cx, place, request);
        } else {
            self.statistics.waited += 1;
            self.waiting.push_back(request);
        }
    }

    fn start(&mut self, cx: &mut Context, place: u32, request: Request) {
        self.serial += 1;
        let serial = self.serial;
        let region = &self.regions[request.region];
        let (len, bytes) = (region.stride, u64::from(region.stride));
        let offset = region.offset + u64::from(request.unit) * bytes;
        // What arrives at the host comes in the order in which it was sent: its memory can be reserved ahead.
        let done = match request.operation {
            Operation::Read => {
                self.statistics.reads += 1;
                self.statistics.bytes_read += bytes;
                let arrives = cx.link_out.request(cx.now, bytes.div_ceil(READ_REQUEST_MAX));
                self.memory.serve(arrives, self.rate.time(bytes)) + self.read_latency
            }
            Operation::Write { .. } => {
                self.statistics.writes += 1;
                self.statistics.bytes_written += bytes;
                let arrives = cx.link_out.transfer(cx.now, bytes);
                self.memory.serve(arrives, self.rate.time(bytes)) + self.write_latency
            }
        };
        self.in_flight[place as usize] = Some(InFlight { stage: Stage::Out, request, serial, answer: None });
        let under_way = (self.in_flight.len() - self.free.len()) as u64;
        self.statistics.in_flight_max = self.statistics.in_flight_max.max(under_way);
        cx.events.push(done, lane::OTHER, Event::HostMemory { place });
        let Request { stamp, operation, .. } = request;
        cx.outputs.push_back(Output::HostMemory(Access {
            ticket: Ticket(place),
            serial,
            offset,
            len,
            stamp,
            operation,
        }));
    }

    /// The world answers an access.
    ///
    /// # Panics
    /// When it was not asked: a fault of the driver of the loop.
    pub(crate) fn answer(&mut self, cx: &mut Context, ticket: Ticket, answer: Answer) -> Option<Done> {
        let slot = self.in_flight.get_mut(ticket.0 as usize).and_then(Option::as_mut);
        let slot = slot.filter(|slot| slot.answer.is_none()).expect("an answer to what was not asked");
        slot.answer = Some(answer);
        if slot.stage == Stage::Answer { self.go_on(cx, ticket.0) } else { None }
    }

    /// The next stage of an access is due.
    pub(crate) fn on_event(&mut self, cx: &mut Context, place: u32) -> Option<Done> {
        let slot = self.in_flight[place as usize].as_mut().expect("its event is due");
        match slot.stage {
            Stage::Back => Some(self.end(cx, place)),
            _ => {
                slot.stage = Stage::Answer;
                if slot.answer.is_some() { self.go_on(cx, place) } else { None }
            }
        }
    }

    /// The request has reached the host, and the host has answered.
    fn go_on(&mut self, cx: &mut Context, place: u32) -> Option<Done> {
        let slot = self.in_flight[place as usize].as_mut().expect("it is under way");
        let data = matches!(slot.answer, Some(Answer::Found { .. } | Answer::Damaged));
        if !data {
            return Some(self.end(cx, place));
        }
        slot.stage = Stage::Back;
        let bytes = u64::from(self.regions[slot.request.region].stride);
        let arrives = cx.link_in.transfer(cx.now, bytes);
        cx.events.push(arrives, lane::DATA_IN, Event::HostMemory { place });
        None
    }

    /// An access has ended: another may begin in its place.
    fn end(&mut self, cx: &mut Context, place: u32) -> Done {
        let InFlight { request, serial, answer, .. } = self.in_flight[place as usize].take().expect("it was under way");
        match self.waiting.pop_front() {
            Some(next) => self.start(cx, place, next),
            None => self.free.push(place),
        }
        let Request { region, unit, stamp, operation, tag } = request;
        let outcome = match (operation, answer) {
            (Operation::Write { content }, Some(Answer::Written)) => Outcome::Good { content },
            // A directory entry of 0 is a unit that the drive itself does not believe in.
            (Operation::Read, Some(Answer::Found { stamp: found, content })) if found == stamp && stamp.version > 0 => {
                Outcome::Good { content }
            }
            (_, Some(Answer::Gone)) => {
                self.statistics.gone += 1;
                Outcome::Gone
            }
            _ => {
                self.statistics.failed_checks += 1;
                Outcome::Failed
            }
        };
        let write = operation != Operation::Read;
        Done { used: self.regions[region].used, write, unit, key: stamp.key, tag, serial, outcome }
    }

    /// After the memory has gone: an access that has waited and will never begin.
    pub(crate) fn abandon(&mut self) -> Option<Done> {
        let Request { region, unit, stamp, operation, tag } = self.waiting.pop_front()?;
        self.statistics.gone += 1;
        let (used, write) = (self.regions[region].used, operation != Operation::Read);
        Some(Done { used, write, unit, key: stamp.key, tag, serial: 0, outcome: Outcome::Gone })
    }
}
