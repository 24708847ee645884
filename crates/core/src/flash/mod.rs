//! The scheduler between all sources of flash work and the channels and dies.
//!
//! Every die has a queue for each class of priority; every [`Source`] is in one class, where the oldest goes first. A die's
//! array and its channel's bus are busy separately: a read occupies the array, then the bus; a program the bus, then the
//! array. With cache commands a second register lets the two overlap. Host reads may suspend programs and erases.
//!
//! Two idealisations: with cache commands a row may be loaded while data that was read is still leaving, as on dies with a
//! register for each direction; and reads go first for as long as they come, so an overload of reads stalls writes.

mod die;
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

use die::{Cell, Die};
use source::{READS, URGENT};

/// No operation.
pub const NONE: u32 = u32::MAX;

/// Priority classes, at most.
const CLASSES: usize = 4;
/// The class of reads that somebody waits for, where they go first (`read_priority`, without which nothing is suspended).
const FIRST: u32 = 1;
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

/// What a channel's bus moves: a row to a die's register, or what was read from it.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    time: Duration,
    die: u32,
    inward: bool,
    /// The lane of its event.
    lane: u8,
    /// Where the operation comes from.
    source: Source,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    moving: Option<Transfer>,
    urgent: VecDeque<Transfer>,
    normal: VecDeque<Transfer>,
    gaps: VecDeque<Transfer>,
    busy: Duration,
}

impl Channel {
    /// The bus is free, and moves this.
    #[inline(always)]
    fn grant(&mut self, now: Instant, events: &mut EventQueue, index: u32, transfer: Transfer) {
        self.moving = Some(transfer);
        self.busy += transfer.time;
        events.push(now + transfer.time, transfer.lane.into(), Event::Bus { channel: index });
    }

    /// The transfer that goes next, once the bus is free.
    #[inline(always)]
    fn next(&mut self) -> Option<Transfer> {
        self.urgent.pop_front().or_else(|| self.normal.pop_front()).or_else(|| self.gaps.pop_front())
    }
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Flash {
    dies: Vec<Die>,
    channels: Vec<Channel>,
    operations: Vec<Operation>,
    free: Vec<u32>,
    order: u64,
    /// The priority class of each source, the best first.
    classes: [u8; SOURCES],
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
        let mut flash = Flash {
            dies: (0..nand.dies()).map(|d| Die::on(d % nand.channels)).collect(),
            channels: vec![Channel::default(); nand.channels as usize],
            operations: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            order: 0,
            classes: [0; SOURCES],
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
        let kind = source.kind();
        if kind == Kind::Program {
            *self.dies[die as usize].programs_of(source) += 1;
        }
        let d = &self.dies[die as usize];
        // What can start at once would only be put into a list to be taken out again.
        let register_free = self.cache || d.leaving == NONE;
        match kind {
            Kind::Read if d.is_vacant() && register_free => return self.start_read(now, events, die, id),
            Kind::Program if d.waiting == 0 && d.takes_row() && self.may_load(d, source) => {
                return self.load(now, events, die, id, source);
            }
            _ => {}
        }
        let class = usize::from(self.classes[source as usize]);
        self.dies[die as usize].put(&mut self.operations, class, id);
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
        // Nobody waits for what is folded in the background: it comes after all others.
        let fold = Source::FoldRead.bit();
        let classes = [first, !first & !last & !fold, last, fold];
        let class_of = |source: usize| classes.iter().position(|class| class >> source & 1 == 1).unwrap_or(CLASSES - 1);
        self.classes = std::array::from_fn(|source| class_of(source) as u8);
        self.opportunistic = opportunistic | fold;
        self.sort_waiting(|_| true);
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
        self.sort_waiting(|operation| operation.source == Source::Destage);
    }

    /// Puts what waits into the classes anew, as far as it is kept.
    fn sort_waiting(&mut self, keep: impl Fn(&Operation) -> bool) {
        for die in &mut self.dies {
            for id in die.take_all(&mut self.operations) {
                let operation = &self.operations[id as usize];
                if keep(operation) {
                    let class = usize::from(self.classes[operation.source as usize]);
                    die.put(&mut self.operations, class, id);
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

    /// Whether a die may be able to start something. By far the most common case is that it is not.
    #[inline(always)]
    fn may_start(&self, d: &Die) -> bool {
        let row = d.is_row_next() && self.cache && d.takes_row();
        match d.cell {
            Cell::Idle => d.waiting != 0 || d.loaded & d.suspended != NONE,
            Cell::Busy { .. } => row || d.waiting & FIRST != 0 && self.suspend,
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

    /// Whether a row of this source may go to the register of a die that takes one: at any time with cache commands, else only for an
    /// idle array.
    #[inline(always)]
    fn may_load(&self, d: &Die, source: Source) -> bool {
        if d.cell == Cell::Idle {
            self.cache || d.leaving == NONE
        } else {
            self.cache && self.opportunistic & source.bit() == 0
        }
    }

    fn start_next(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        loop {
            let d = &mut self.dies[die as usize];
            if d.waiting & FIRST != 0
                && self.suspend
                && let Cell::Busy { operation, ends } = d.cell
            {
                return self.try_suspend(now, events, die, operation, ends);
            }
            if d.is_row_next() && d.takes_row() {
                let (class, id) = d.first();
                let source = self.operations[id as usize].source;
                if self.may_load(&self.dies[die as usize], source) {
                    self.dies[die as usize].take(&mut self.operations, class, id);
                    self.load(now, events, die, id, source);
                }
            }
            if !self.start_array(now, events, die) || !self.may_start(&self.dies[die as usize]) {
                return;
            }
        }
    }

    /// Gives an idle array what goes next. False: there is nothing for it, or it is not idle.
    #[inline(always)]
    fn start_array(&mut self, now: Instant, events: &mut EventQueue, die: u32) -> bool {
        let d = &mut self.dies[die as usize];
        if d.cell != Cell::Idle {
            return false;
        }
        // While something is suspended only the reads it was suspended for may pass.
        if d.waiting & FIRST != 0 || d.waiting != 0 && d.suspended == NONE {
            let (class, id) = d.first();
            let source = self.operations[id as usize].source;
            let urgent = self.read_priority && self.cache && READS & source.bit() != 0;
            if source.kind() == Kind::Read && (urgent || d.loaded == NONE) {
                if !self.cache && d.leaving != NONE {
                    return false; // The register is not free.
                }
                d.take(&mut self.operations, class, id);
                self.start_read(now, events, die, id);
                return true;
            }
            if source.kind() == Kind::Erase && d.loaded & d.suspended == NONE {
                let time = self.command_time + self.erase_time;
                d.take(&mut self.operations, class, id);
                d.time.erase += time;
                self.start(now, events, die, id, time, lane::ERASE);
                return true;
            }
        }
        if d.suspended != NONE {
            self.resume(now, events, die);
        } else if d.loaded != NONE {
            self.start_program(now, events, die);
        } else {
            return false;
        }
        true
    }

    #[inline(always)]
    fn start(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32, time: Duration, lane: usize) {
        let d = &mut self.dies[die as usize];
        let ends = now + time;
        d.cell = Cell::Busy { operation: id, ends };
        events.push(ends, lane, Event::Cell { die, generation: d.generation });
    }

    /// A row of this source is moved to the register of a die, whose array is kept free for it where it has no other.
    #[inline(always)]
    fn load(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32, source: Source) {
        let d = &mut self.dies[die as usize];
        d.loading = id;
        if !self.cache {
            d.cell = Cell::Reserved;
        }
        let (channel, time) = (d.channel, self.bus_in_time);
        let transfer = Transfer { time, die, inward: true, lane: lane::BUS_IN as u8, source };
        self.request_bus(now, events, channel, transfer);
    }

    /// What was read moves from a die's register to the controller.
    #[inline(always)]
    fn unload(&mut self, now: Instant, events: &mut EventQueue, die: u32, id: u32) {
        let d = &mut self.dies[die as usize];
        d.leaving = id;
        d.cell = Cell::Idle;
        let channel = d.channel;
        let &Operation { source, unit_count, .. } = &self.operations[id as usize];
        let time = self.bus_out_time[usize::from(unit_count)];
        let lane = lane::BUS_OUT + usize::from(unit_count > 1);
        let transfer = Transfer { time, die, inward: false, lane: lane as u8, source };
        self.request_bus(now, events, channel, transfer);
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
    fn request_bus(&mut self, now: Instant, events: &mut EventQueue, index: u32, transfer: Transfer) {
        let channel = &mut self.channels[index as usize];
        if channel.moving.is_none() {
            return channel.grant(now, events, index, transfer);
        }
        let queue = if URGENT & transfer.source.bit() != 0 && self.read_priority {
            &mut channel.urgent
        } else if self.opportunistic & transfer.source.bit() == 0 {
            &mut channel.normal
        } else {
            &mut channel.gaps
        };
        queue.push_back(transfer);
    }

    /// A bus transfer ended. Returns the number of the read whose data has reached the controller, or the row of the log that is in its
    /// die's register now and will be programmed.
    #[inline(always)]
    pub fn on_bus(&mut self, now: Instant, events: &mut EventQueue, index: u32) -> Option<u32> {
        let channel = &mut self.channels[index as usize];
        let Transfer { die, inward, source, .. } =
            channel.moving.take().expect("a transfer ended that was not under way");
        if let Some(next) = channel.next() {
            channel.grant(now, events, index, next);
        }
        let d = &mut self.dies[die as usize];
        if inward {
            let row = std::mem::replace(&mut d.loading, NONE);
            d.loaded = row;
            if d.cell == Cell::Reserved {
                d.cell = Cell::Idle;
            }
            if d.cell == Cell::Idle && d.waiting == 0 && d.suspended == NONE {
                self.start_program(now, events, die); // Nothing else can want the array.
            } else {
                self.kick(now, events, die);
            }
            return (source == Source::Destage).then_some(row);
        }
        let id = std::mem::replace(&mut d.leaving, NONE);
        if let Cell::Held { operation } = d.cell {
            self.unload(now, events, die, operation);
        }
        self.release(id);
        self.kick(now, events, die);
        Some(id)
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
                            self.unload(now, events, die, id);
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
