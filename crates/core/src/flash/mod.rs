//! The scheduler between all sources of flash work and the channels and dies.
//!
//! Every die has a queue per [`Source`]; sources have priority classes, and within a class the oldest goes first. A die's
//! array and its channel's bus are busy separately: a read occupies the array, then the bus; a program the bus, then the
//! array. With cache commands a second register lets the two overlap. Host reads may suspend programs and erases.
//!
//! Two idealisations: with cache commands a row may be loaded while data that was read is still leaving, as on dies with a
//! register for each direction; and reads go first for as long as they come, so an overload of reads stalls writes.

mod source;
mod statistics;

pub use source::{Kind, SOURCES, Source};
pub use statistics::{DieTime, FlashStatistics};

use crate::events::{Event, EventQueue, lane};
use crate::ftl::Layout;
use crate::profile::{DestagePriority, Profile};
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant};
use tidewater_nand::{Config, Medium};

use source::{PROGRAMS, READS, kind_of};

/// No operation.
pub const NONE: u32 = u32::MAX;

/// Priority classes, at most.
const CLASSES: usize = 4;
/// The kind of pages in single-level mode, behind those that a cell may have.
const SLC_KIND: usize = 3;

/// One flash operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Where it comes from, and so what it does.
    pub source: Source,
    /// The die.
    pub die: u32,
    /// The superblock (of the whole drive).
    pub superblock: u32,
    /// The row.
    pub row: u32,
    /// The units of the row that cross the bus.
    pub units: u64,
    unit_count: u8,
    /// Whose it is; the meaning belongs to the source.
    pub owner: u32,
    /// The units whose pages ECC gave up on.
    pub uncorrectable: u64,
    suspensions: u32,
    sensed: bool,
    order: u64,
    next: u32,
}

impl Operation {
    /// What it does.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.source.kind()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Idle,
    /// Kept free for a row that is on the bus: without cache commands it goes into the page register itself.
    Reserved,
    Busy {
        operation: u32,
        ends: Instant,
    },
    Suspending {
        operation: u32,
    },
    /// Read data that waits in the page register until the register before it has been emptied.
    Held {
        operation: u32,
    },
}

/// The operations of one source that wait for a die. Empty: its bit of [`Die::waiting`] is not set.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    /// When the head was queued, in operations: who is older is asked far more often than the head is taken.
    order: u64,
}

impl List {
    const EMPTY: List = List { head: NONE, tail: NONE, order: 0 };
}

#[derive(Clone, Debug)]
struct Die {
    queues: [List; SOURCES],
    waiting: u32,
    cell: Cell,
    leaving: u32,
    loading: u32,
    loaded: u32,
    suspended: u32,
    suspended_left: Duration,
    generation: u32,
    /// Programs queued or in flight, but those of the log; and those.
    programs: u32,
    log_programs: u32,
    channel: u32,
    time: DieTime,
}

impl Die {
    fn programs_of(&mut self, source: Source) -> &mut u32 {
        if source == Source::Destage { &mut self.log_programs } else { &mut self.programs }
    }

    /// Whether nothing is in the array, wants it, or has a right to it.
    #[inline]
    fn is_vacant(&self) -> bool {
        self.waiting == 0 && self.cell == Cell::Idle && self.loaded & self.suspended == NONE
    }

    /// Whether no row is on its way to the array: none in the register, none on the bus, none that was suspended.
    #[inline]
    fn takes_row(&self) -> bool {
        // All bits are set in NONE alone.
        self.loading & self.loaded & self.suspended == NONE
    }

    /// Takes the oldest of a queue that is not empty.
    #[inline]
    fn take(&mut self, operations: &[Operation], queue: usize) -> u32 {
        let list = &mut self.queues[queue];
        let id = list.head;
        list.head = operations[id as usize].next;
        if list.head == NONE {
            self.waiting &= !(1 << queue);
        } else {
            list.order = operations[list.head as usize].order;
        }
        id
    }
}

/// What a channel's bus moves: a row to a die's register, or what was read from it.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    die: u32,
    inward: bool,
    /// Units that leave.
    units: u8,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    moving: Option<Transfer>,
    urgent: VecDeque<Transfer>,
    normal: VecDeque<Transfer>,
    gaps: VecDeque<Transfer>,
    busy: Duration,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Flash {
    dies: Vec<Die>,
    channels: Vec<Channel>,
    operations: Vec<Operation>,
    free: Vec<u32>,
    order: u64,
    /// Sources of each priority class, best first; the last has all.
    classes: [u32; CLASSES],
    /// Sources that only use the gaps: nothing of theirs is loaded ahead.
    opportunistic: u32,
    /// Nothing but the log's programs is queued any more.
    log_only: bool,
    read_priority: bool,
    suspend: bool,
    suspend_time: Duration,
    resume_time: Duration,
    suspend_max: u32,
    cache: bool,
    planes_in_turn: bool,
    units_per_page: u32,
    /// Page kind by row.
    kinds: Vec<u8>,
    /// Whether each superblock is in single-level mode; empty where there is no SLC cache.
    slc: Vec<bool>,
    /// By page kind, and in single-level mode.
    read_time: [Duration; 4],
    program_time: [Duration; 4],
    erase_time: Duration,
    command_time: Duration,
    bus_in_time: Duration,
    bus_out_time: Vec<Duration>,
    /// Counters.
    pub statistics: FlashStatistics,
}

impl Flash {
    /// The scheduler of an idle array, with room for `capacity` operations before it allocates again.
    pub fn new(profile: &Profile, nand: &Config, layout: &Layout, capacity: usize) -> Flash {
        let (profile, slc) = (&profile.flash, &profile.slc);
        let with_slc = |[lower, middle, upper]: [Duration; 3], slc: Duration| [lower, middle, upper, slc];
        let rate = crate::cost::Rate::per_second(nand.bus_rate);
        let planes_in_turn = !nand.multi_plane && nand.planes > 1;
        let turns = if planes_in_turn { u64::from(nand.planes) } else { 1 };
        let unit_bytes = u64::from(nand.page_size + nand.oob_size) / u64::from(layout.units_per_page);
        let row_bytes = unit_bytes * u64::from(layout.units_per_row);
        let die = Die {
            queues: [List::EMPTY; SOURCES],
            waiting: 0,
            cell: Cell::Idle,
            leaving: NONE,
            loading: NONE,
            loaded: NONE,
            suspended: NONE,
            suspended_left: Duration::ZERO,
            generation: 0,
            programs: 0,
            log_programs: 0,
            channel: 0,
            time: DieTime::default(),
        };
        let mut flash = Flash {
            dies: (0..nand.dies()).map(|d| Die { channel: d % nand.channels, ..die.clone() }).collect(),
            channels: vec![Channel::default(); nand.channels as usize],
            operations: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            order: 0,
            classes: [u32::MAX; CLASSES],
            opportunistic: 0,
            log_only: false,
            read_priority: profile.read_priority,
            suspend: profile.suspend && profile.read_priority,
            suspend_time: profile.suspend_time,
            resume_time: profile.resume_time,
            suspend_max: profile.suspend_max,
            cache: nand.cache,
            planes_in_turn,
            units_per_page: layout.units_per_page,
            kinds: (0..nand.pages_per_block as usize).map(|row| (row % nand.cell.page_kinds()) as u8).collect(),
            slc: if slc.is_enabled() { vec![false; layout.superblocks() as usize] } else { Vec::new() },
            read_time: with_slc(nand.read_time, slc.read_time),
            program_time: with_slc(nand.program_time, slc.program_time).map(|t| t * turns),
            erase_time: nand.erase_time * turns,
            command_time: nand.command_time,
            bus_in_time: nand.command_time + rate.time(row_bytes),
            bus_out_time: (0..=layout.units_per_row).map(|n| rate.time(unit_bytes * u64::from(n))).collect(),
            statistics: FlashStatistics::default(),
        };
        flash.set_destage_priority(DestagePriority::Neutral);
        flash
    }

    /// Queues an operation on its die.
    #[expect(clippy::too_many_arguments, reason = "an operation has that many parts")]
    pub fn enqueue(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        source: Source,
        die: u32,
        superblock: u32,
        row: u32,
        units: u64,
        owner: u32,
    ) {
        if self.log_only && source != Source::Destage {
            return;
        }
        self.order += 1;
        let operation = Operation {
            source,
            die,
            superblock,
            row,
            units,
            unit_count: count_units(units) as u8,
            owner,
            uncorrectable: 0,
            suspensions: 0,
            sensed: false,
            order: self.order,
            next: NONE,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.operations[id as usize] = operation;
                id
            }
            None => {
                self.operations.push(operation);
                (self.operations.len() - 1) as u32
            }
        };
        let d = &mut self.dies[die as usize];
        let kind = source.kind();
        if kind == Kind::Program {
            *d.programs_of(source) += 1;
        }
        if d.is_vacant() && (self.cache || d.leaving == NONE) {
            // It would only be put into a list to be taken out again.
            match kind {
                Kind::Read => return self.start_read(now, events, die, id),
                Kind::Program if d.loading == NONE => return self.load(now, events, die, id),
                _ => {}
            }
        }
        let list = &mut d.queues[source as usize];
        if d.waiting & source.bit() == 0 {
            d.waiting |= source.bit();
            *list = List { head: id, tail: id, order: self.order };
        } else {
            self.operations[list.tail as usize].next = id;
            list.tail = id;
        }
        self.kick(now, events, die);
    }

    /// Programs queued or in flight on a die, but those of the log.
    #[inline]
    pub fn programs(&self, die: u32) -> u32 {
        self.dies[die as usize].programs
    }

    /// Programs of the log that are queued or in flight on a die.
    #[inline]
    pub fn log_programs(&self, die: u32) -> u32 {
        self.dies[die as usize].log_programs
    }

    /// Who goes first when the log and the block side both have pages to program.
    pub fn set_destage_priority(&mut self, priority: DestagePriority) {
        let (destage, host) = (Source::Destage.bit(), Source::HostProgram.bit());
        let first = if self.read_priority { READS } else { 0 };
        let (last, opportunistic) = match priority {
            DestagePriority::Neutral => (0, 0),
            DestagePriority::Conventional => (destage, destage),
            DestagePriority::Destage => (host, host),
        };
        // Nobody waits for what is folded in the background: it comes after all classes that are named, and a die's queues hold
        // nothing else that is in none of them.
        let fold = Source::FoldRead.bit();
        self.classes = [first, !first & !last & !fold, last, u32::MAX];
        self.opportunistic = opportunistic | fold;
    }

    /// A superblock that has been erased is used in single-level mode from now on, or in that of its cells.
    pub fn set_slc(&mut self, superblock: u32, slc: bool) {
        self.slc[superblock as usize] = slc;
    }

    /// The kind of page that an operation is on, as times are kept by.
    #[inline]
    fn kind_of(&self, operation: &Operation) -> usize {
        if !self.slc.is_empty() && self.slc[operation.superblock as usize] {
            return SLC_KIND;
        }
        usize::from(self.kinds[operation.row as usize])
    }

    /// Whether a die has nothing to do.
    #[inline]
    pub fn is_idle(&self, die: u32) -> bool {
        let d = &self.dies[die as usize];
        d.is_vacant() && d.loading == NONE
    }

    /// The power has failed: of what waits for dies, now and from now on, only the log's programs go on. What a die is
    /// doing ends first.
    pub fn drop_all_but_log(&mut self) {
        self.log_only = true;
        for die in &mut self.dies {
            for (source, queue) in die.queues.iter_mut().enumerate() {
                if source != Source::Destage as usize {
                    *queue = List::EMPTY;
                    die.waiting &= !(1 << source);
                }
            }
        }
    }

    /// An operation that [`Flash::on_bus`] or [`Flash::on_cell`] has named: until another is queued, which may take its place.
    #[inline]
    pub fn operation(&self, id: u32) -> &Operation {
        &self.operations[id as usize]
    }

    /// Operations queued or in flight.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    /// Programs and erases whose cells are being changed (suspended ones too): a power loss tears them.
    pub fn in_progress(&self) -> impl Iterator<Item = &Operation> {
        self.dies.iter().flat_map(|d| {
            let busy = match d.cell {
                Cell::Busy { operation, .. } | Cell::Suspending { operation } => operation,
                _ => NONE,
            };
            [busy, d.suspended].into_iter().filter(|&id| id != NONE).map(|id| &self.operations[id as usize])
        })
    }

    /// Time that each die spent on what.
    pub fn die_times(&self) -> impl Iterator<Item = DieTime> {
        self.dies.iter().map(|d| d.time)
    }

    /// Time that each channel's bus was busy.
    pub fn channel_times(&self) -> impl Iterator<Item = Duration> {
        self.channels.iter().map(|c| c.busy)
    }

    /// Forgets all counters, at the end of a warm-up.
    pub fn reset_statistics(&mut self, now: Instant) {
        self.statistics = FlashStatistics::default();
        for d in &mut self.dies {
            d.time = DieTime::default();
            // Time is charged when an operation starts: what is left of it belongs to the time from now on.
            if let Cell::Busy { operation, ends } = d.cell {
                d.time.spend(self.operations[operation as usize].kind(), ends.since(now));
            }
        }
        self.channels.iter_mut().for_each(|c| c.busy = Duration::ZERO);
    }

    /// The queue whose head goes next, among `waiting`, of which there is one.
    #[inline]
    fn best(&self, die: &Die, waiting: u32) -> usize {
        let mut class = waiting;
        if class & (class - 1) != 0 {
            let members = self.classes.iter().find(|&members| waiting & members != 0);
            class = waiting & members.unwrap_or(&u32::MAX);
        }
        let mut best = class.trailing_zeros() as usize;
        class &= class - 1;
        while class != 0 {
            let other = class.trailing_zeros() as usize;
            class &= class - 1;
            if die.queues[other].order < die.queues[best].order {
                best = other;
            }
        }
        best
    }

    /// Whether a die may be able to start something. By far the most common case is that it is not.
    #[inline(always)]
    fn may_start(&self, d: &Die) -> bool {
        let row = d.waiting & PROGRAMS != 0 && self.cache && d.takes_row();
        match d.cell {
            Cell::Idle => d.waiting != 0 || d.loaded & d.suspended != NONE,
            Cell::Busy { .. } => row || d.waiting & READS != 0 && self.suspend,
            _ => row,
        }
    }

    /// Starts whatever a die can start now.
    #[inline]
    fn kick(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        if self.may_start(&self.dies[die as usize]) {
            self.start_next(now, events, die);
        }
    }

    fn start_next(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        loop {
            let d = &self.dies[die as usize];
            if d.waiting & READS != 0
                && self.suspend
                && let Cell::Busy { operation, ends } = d.cell
            {
                self.try_suspend(now, events, die, operation, ends);
                return;
            }
            let idle = d.cell == Cell::Idle;
            let register_free = self.cache || d.leaving == NONE;
            // A row for the register: whenever it is free with cache commands, else only for an idle array.
            if d.waiting & PROGRAMS != 0 && d.takes_row() && (self.cache || idle && register_free) {
                let queue = self.best(d, d.waiting);
                if kind_of(queue) == Kind::Program && (idle || self.opportunistic >> queue & 1 == 0) {
                    let id = self.dies[die as usize].take(&self.operations, queue);
                    self.load(now, events, die, id);
                    continue;
                }
            }
            if !idle {
                return;
            }
            // While something is suspended only the reads it was suspended for may pass.
            let passing = if d.suspended != NONE { d.waiting & READS } else { d.waiting };
            let best = (passing != 0).then(|| self.best(d, passing));
            let urgent = best.is_some_and(|q| self.read_priority && READS >> q & 1 == 1);
            match best.map(|queue| (queue, kind_of(queue))) {
                Some((queue, Kind::Read)) if urgent && self.cache || d.loaded == NONE => {
                    if !register_free {
                        return;
                    }
                    let id = self.dies[die as usize].take(&self.operations, queue);
                    self.start_read(now, events, die, id);
                }
                _ if d.suspended != NONE => self.resume(now, events, die),
                _ if d.loaded != NONE => self.start_program(now, events, die),
                Some((queue, Kind::Erase)) => {
                    let time = self.command_time + self.erase_time;
                    let d = &mut self.dies[die as usize];
                    let id = d.take(&self.operations, queue);
                    d.time.erase += time;
                    self.start(now, events, die, id, time, lane::ERASE);
                }
                _ => return,
            }
            if !self.may_start(&self.dies[die as usize]) {
                return;
            }
        }
    }

    #[inline(always)]
    fn start(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32, time: Duration, lane: usize) {
        let d = &mut self.dies[die as usize];
        let ends = now + time;
        d.cell = Cell::Busy { operation: id, ends };
        events.push(ends, lane, Event::Cell { die, generation: d.generation });
    }

    /// A row is moved to the register of a die, whose array is kept free for it where it has no other.
    #[inline(always)]
    fn load(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32) {
        let d = &mut self.dies[die as usize];
        d.loading = id;
        if !self.cache {
            d.cell = Cell::Reserved;
        }
        self.request_bus(now, events, die, true);
    }

    #[inline]
    fn start_read(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32) {
        let operation = &self.operations[id as usize];
        let kind = self.kind_of(operation);
        let planes = if self.planes_in_turn { u64::from(planes_of(operation.units, self.units_per_page)) } else { 1 };
        let time = self.command_time + self.read_time[kind] * planes;
        self.dies[die as usize].time.read += time;
        self.start(now, events, die, id, time, lane_of(lane::READ, kind));
    }

    #[inline(always)]
    fn start_program(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        let d = &mut self.dies[die as usize];
        let id = std::mem::replace(&mut d.loaded, NONE);
        let kind = self.kind_of(&self.operations[id as usize]);
        let time = self.program_time[kind];
        self.dies[die as usize].time.program += time;
        self.start(now, events, die, id, time, lane_of(lane::PROGRAM, kind));
    }

    fn try_suspend(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32, ends: Instant) {
        let operation = &mut self.operations[id as usize];
        let left = ends.since(now);
        // Not worth it when the operation would end before a read could start and the resumption be paid.
        // Without cache commands a program's data is in the only register, where a read would put its own.
        if operation.kind() == Kind::Read
            || operation.kind() == Kind::Program && !self.cache
            || operation.suspensions >= self.suspend_max
            || left <= self.suspend_time + self.resume_time
        {
            return;
        }
        operation.suspensions += 1;
        self.statistics.suspensions += 1;
        let kind = operation.kind();
        let d = &mut self.dies[die as usize];
        d.generation = d.generation.wrapping_add(1);
        d.cell = Cell::Suspending { operation: id };
        d.suspended_left = left;
        d.time.give_back(kind, left);
        d.time.suspend += self.suspend_time;
        events.push(now + self.suspend_time, lane::SUSPEND, Event::Cell { die, generation: d.generation });
    }

    fn resume(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        let d = &mut self.dies[die as usize];
        let id = std::mem::replace(&mut d.suspended, NONE);
        let time = self.resume_time + d.suspended_left;
        d.time.suspend += self.resume_time;
        d.time.spend(self.operations[id as usize].kind(), d.suspended_left);
        self.start(now, events, die, id, time, lane::OTHER);
    }

    #[inline(always)]
    fn request_bus(&mut self, now: Instant, events: &mut EventQueue, die: u32, inward: bool) {
        let d = &self.dies[die as usize];
        let index = d.channel;
        let operation = &self.operations[if inward { d.loading } else { d.leaving } as usize];
        let transfer = Transfer { die, inward, units: operation.unit_count };
        let channel = &mut self.channels[index as usize];
        if channel.moving.is_some() {
            let source = operation.source;
            let urgent = matches!(source, Source::HostRead | Source::MapRead) && self.read_priority;
            let gaps_only = self.opportunistic >> source as u32 & 1 == 1;
            let queue = match (urgent, gaps_only) {
                (true, _) => &mut channel.urgent,
                (_, false) => &mut channel.normal,
                (_, true) => &mut channel.gaps,
            };
            queue.push_back(transfer);
            return;
        }
        self.grant_bus(now, events, index, transfer);
    }

    #[inline(always)]
    fn grant_bus(&mut self, now: Instant, events: &mut EventQueue, index: u32, transfer: Transfer) {
        let (time, lane) = if transfer.inward {
            (self.bus_in_time, lane::BUS_IN)
        } else {
            (self.bus_out_time[usize::from(transfer.units)], lane::BUS_OUT + usize::from(transfer.units > 1))
        };
        let channel = &mut self.channels[index as usize];
        channel.moving = Some(transfer);
        channel.busy += time;
        events.push(now + time, lane, Event::Bus { channel: index });
    }

    /// A bus transfer ended. Returns the number of the read whose data has reached the controller, or the row of the log that is in its
    /// die's register now and will be programmed.
    #[inline(always)]
    pub fn on_bus(&mut self, now: Instant, events: &mut EventQueue, index: u32) -> Option<u32> {
        let channel = &mut self.channels[index as usize];
        let Transfer { die, inward, .. } = channel.moving.take().expect("a transfer ended that was not under way");
        let next =
            channel.urgent.pop_front().or_else(|| channel.normal.pop_front()).or_else(|| channel.gaps.pop_front());
        if let Some(next) = next {
            self.grant_bus(now, events, index, next);
        }
        let d = &mut self.dies[die as usize];
        let mut done = None;
        if inward {
            d.loaded = std::mem::replace(&mut d.loading, NONE);
            if d.cell == Cell::Reserved {
                d.cell = Cell::Idle;
            }
            if self.operations[d.loaded as usize].source == Source::Destage {
                done = Some(d.loaded);
            }
            if d.cell == Cell::Idle && d.waiting == 0 && d.suspended == NONE {
                // Nothing else can want the array.
                self.start_program(now, events, die);
                return done;
            }
        } else {
            let id = std::mem::replace(&mut d.leaving, NONE);
            done = Some(id);
            if let Cell::Held { operation } = d.cell {
                d.cell = Cell::Idle;
                d.leaving = operation;
                self.request_bus(now, events, die, false);
            }
            self.release(id);
        }
        self.kick(now, events, die);
        done
    }

    /// A die's array finished. Returns the number of the program or erase that took effect just now; the caller applies it.
    #[inline(always)]
    pub fn on_cell<M: Medium>(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        die: u32,
        generation: u32,
        medium: &mut M,
        layout: &Layout,
    ) -> Option<u32> {
        let d = &mut self.dies[die as usize];
        if d.generation != generation {
            return None; // The operation was suspended since.
        }
        let done = match d.cell {
            Cell::Suspending { operation } => {
                d.suspended = operation;
                d.cell = Cell::Idle;
                None
            }
            Cell::Busy { operation: id, .. } => {
                let operation = &mut self.operations[id as usize];
                match operation.kind() {
                    Kind::Read => {
                        if !operation.sensed && !medium.reads_cleanly() {
                            operation.sensed = true;
                            let (retries, uncorrectable) = sense(operation, medium, layout, self.units_per_page);
                            operation.uncorrectable = uncorrectable;
                            self.statistics.read_retries += u64::from(retries);
                            self.statistics.uncorrectable += u64::from(uncorrectable != 0);
                            if retries > 0 {
                                let operation = *operation;
                                let time = self.read_time[self.kind_of(&operation)] * u64::from(retries);
                                self.dies[die as usize].time.read += time;
                                self.start(now, events, die, id, time, lane::OTHER);
                                return None;
                            }
                        }
                        if d.leaving == NONE {
                            d.leaving = id;
                            d.cell = Cell::Idle;
                            self.request_bus(now, events, die, false);
                        } else {
                            d.cell = Cell::Held { operation: id };
                        }
                        None
                    }
                    Kind::Program => {
                        *d.programs_of(operation.source) -= 1;
                        d.cell = Cell::Idle;
                        self.release(id);
                        Some(id)
                    }
                    Kind::Erase => {
                        d.cell = Cell::Idle;
                        self.release(id);
                        Some(id)
                    }
                }
            }
            state => unreachable!("die {die} finished in state {state:?}"),
        };
        self.kick(now, events, die);
        done
    }

    #[inline]
    fn release(&mut self, id: u32) {
        let operation = &self.operations[id as usize];
        self.statistics.count(operation.source, operation.unit_count);
        self.free.push(id);
    }
}

/// How many units these are. Most often one, and counting bits is dear on processors without an instruction for it.
#[inline]
pub fn count_units(units: u64) -> u32 {
    if units.is_power_of_two() { 1 } else { units.count_ones() }
}

/// The lane of what takes as long as a page kind does: single-level mode has none of its own.
#[inline]
fn lane_of(first: usize, kind: usize) -> usize {
    if kind == SLC_KIND { lane::OTHER } else { first + kind }
}

/// The planes that a set of units lies on.
fn planes_of(units: u64, units_per_page: u32) -> u32 {
    let page = if units_per_page >= 64 { u64::MAX } else { (1u64 << units_per_page) - 1 };
    let (mut left, mut planes) = (units, 0);
    while left != 0 {
        planes += u32::from(left & page != 0);
        left = left.checked_shr(units_per_page).unwrap_or(0);
    }
    planes
}

/// Reads every page that the operation touches: the slowest decides the retries. Returns the units that can't be read.
fn sense<M: Medium>(operation: &Operation, medium: &mut M, layout: &Layout, units_per_page: u32) -> (u32, u64) {
    let (mut retries, mut uncorrectable) = (0, 0);
    let mut left = operation.units;
    while left != 0 {
        let plane = left.trailing_zeros() / units_per_page;
        let read = medium.read(layout.block_on(operation.die, operation.superblock, plane), operation.row);
        retries = retries.max(read.retries);
        let beyond = match (plane + 1) * units_per_page {
            64.. => 0,
            shift => left >> shift << shift,
        };
        if read.uncorrectable {
            uncorrectable |= left & !beyond;
        }
        left = beyond;
    }
    (retries, uncorrectable)
}
