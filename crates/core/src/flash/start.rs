//! What a die does next, and what its channel's bus moves.

use super::die::{Cell, Die};
use super::operation::{CLASSES, FIRST, NONE, Operation, SLC_KIND};
use super::source::{READS, URGENT};
use super::{FlashStatistics, Kind, SOURCES, Source};
use crate::events::{Event, EventQueue, lane};
use crate::layout::Layout;
use std::collections::VecDeque;
use std::hint::cold_path;
use tidewater_base::{Duration, Instant};
use tidewater_nand::Medium;

/// What a channel's bus moves: a row to a die's register, or what was read from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    time: Duration,
    pub(super) die: u32,
    inward: bool,
    /// The lane of its event.
    lane: u8,
    /// Where the operation comes from.
    pub(super) source: Source,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Channel {
    moving: Option<Transfer>,
    urgent: VecDeque<Transfer>,
    normal: VecDeque<Transfer>,
    gaps: VecDeque<Transfer>,
    /// Transfers in these three. Most often none, and that is asked at the end of each.
    waiting: u32,
    pub(super) busy: Duration,
    /// How log rows cross, where that is followed.
    codewords: Codewords,
    /// Codewords of the log row that is under way which have crossed.
    crossed: u32,
}

/// The codewords of a row: none where it makes no difference when each of them crosses the bus.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codewords {
    /// Of a row.
    pub(super) count: u32,
    /// Bytes of data in each.
    pub(super) data: u32,
    /// Command and address cycles before the first.
    pub(super) before: Duration,
    /// Time of each on the bus.
    pub(super) time: Duration,
}

impl Channel {
    /// An idle bus, over which rows of the log go in these codewords.
    pub(super) fn new(codewords: Codewords) -> Channel {
        Channel { codewords, ..Channel::default() }
    }

    /// The bus is free, and moves this.
    #[inline(always)]
    fn grant(&mut self, now: Instant, events: &mut EventQueue, index: u32, transfer: Transfer) {
        let Transfer { time, inward, lane, .. } = transfer;
        self.moving = Some(transfer);
        self.busy += time;
        events.push(now + time, lane.into(), Event::Bus { channel: index, inward });
        if transfer.source == Source::Destage && self.codewords.count > 0 {
            self.follow(now, events, index);
        }
    }

    /// A row of the log begins to cross.
    #[cold]
    fn follow(&mut self, now: Instant, events: &mut EventQueue, index: u32) {
        let Codewords { before, time, .. } = self.codewords;
        self.crossed = 0;
        events.push(now + before + time, lane::OTHER, Event::Crossed { channel: index });
    }

    /// One more codeword of a log row has crossed. Returns the row's die and its bytes of data that have. The last
    /// codeword is not followed: it ends the transfer.
    pub(super) fn cross(&mut self, now: Instant, events: &mut EventQueue, index: u32) -> (u32, u32) {
        let Codewords { count, data, time, .. } = self.codewords;
        self.crossed += 1;
        if self.crossed + 1 < count {
            events.push(now + time, lane::OTHER, Event::Crossed { channel: index });
        }
        let transfer = self.moving.as_ref().expect("a row that crosses is on the bus");
        (transfer.die, self.crossed * data)
    }

    /// The transfer that has ended, after which the bus moves what goes next.
    #[inline(always)]
    pub(super) fn end(&mut self, now: Instant, events: &mut EventQueue, index: u32) -> Transfer {
        let ended = self.moving.take().expect("a transfer ended that was not under way");
        if self.waiting > 0 {
            let next = self.next();
            self.grant(now, events, index, next);
        }
        ended
    }

    /// The transfer that goes next, once the bus is free. One must wait.
    #[inline(always)]
    fn next(&mut self) -> Transfer {
        self.waiting -= 1;
        let next = self.urgent.pop_front().or_else(|| self.normal.pop_front()).or_else(|| self.gaps.pop_front());
        next.expect("a transfer waits")
    }
}

/// What all dies share. Apart from them, so that a die is looked up once for all that an event makes it do.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) channels: Vec<Channel>,
    pub(super) operations: Vec<Operation>,
    /// The priority class of each source, the best first.
    pub(super) classes: [u8; SOURCES],
    /// Sources that only use the gaps: nothing of theirs is loaded ahead.
    pub(super) opportunistic: u32,
    pub(super) read_priority: bool,
    pub(super) suspend: bool,
    pub(super) suspend_time: Duration,
    pub(super) resume_time: Duration,
    pub(super) suspend_max: u32,
    /// Host reads of one page share a sense.
    pub(super) share_senses: bool,
    pub(super) cache: bool,
    pub(super) planes_in_turn: bool,
    pub(super) units_per_page: u32,
    /// Page kind by row.
    pub(super) kinds: Vec<u8>,
    /// Whether each superblock is in single-level mode; empty where there is no SLC cache.
    pub(super) slc: Vec<bool>,
    /// By page kind, and in single-level mode.
    pub(super) read_time: [Duration; 4],
    pub(super) program_time: [Duration; 4],
    pub(super) erase_time: Duration,
    pub(super) command_time: Duration,
    pub(super) bus_in_time: Duration,
    pub(super) bus_out_time: Vec<Duration>,
    pub(super) statistics: FlashStatistics,
}

impl Shared {
    /// The kind of page that an operation is on, as times are kept by.
    #[inline]
    pub(super) fn kind_of(&self, operation: &Operation) -> usize {
        if !self.slc.is_empty() && self.slc[operation.superblock as usize] {
            return SLC_KIND;
        }
        // It is less anyhow; said so, tables of as many kinds are looked up in without another comparison.
        usize::from(self.kinds[operation.row as usize]) % (SLC_KIND + 1)
    }

    /// Puts an operation behind all others of its class.
    #[inline(always)]
    pub(super) fn put(&mut self, d: &mut Die, source: Source, id: u32) {
        let class = usize::from(self.classes[source as usize]) % CLASSES;
        d.put(&mut self.operations, class, id);
    }

    /// The host read of a die that can serve another one of these units.
    pub(super) fn sense_of(&self, d: &Die, superblock: u32, row: u32, units: u64) -> Option<u32> {
        let is_of_row = |id: u32| {
            let Operation { source, superblock: s, row: r, .. } = self.operations[id as usize];
            (source, s, r) == (Source::HostRead, superblock, row)
        };
        if d.leaving != NONE && is_of_row(d.leaving) && units & !self.operations[d.leaving as usize].units == 0 {
            return Some(d.leaving);
        }
        // What ECC gave up on is found out once, of the units that were wanted then.
        let covers = |operation: &Operation| {
            operation.uncorrectable == 0 && units & !whole_pages(operation.units, self.units_per_page) == 0
        };
        let is_sense = |id: u32| is_of_row(id) && covers(&self.operations[id as usize]);
        if let Cell::Busy { operation, .. } | Cell::Held { operation } = d.cell
            && is_sense(operation)
        {
            return Some(operation);
        }
        let class = usize::from(self.classes[Source::HostRead as usize]) % CLASSES;
        let mut id = if d.waiting >> class & 1 == 1 { d.queues[class].head } else { NONE };
        while id != NONE && !is_sense(id) {
            id = self.operations[id as usize].next;
        }
        (id != NONE).then_some(id)
    }

    /// An operation is done.
    #[inline(always)]
    pub(super) fn count(&mut self, id: u32) {
        let operation = &self.operations[id as usize];
        self.statistics.count(operation.source, operation.unit_count);
    }

    /// Starts whatever a die can start now. By far the most common case is that it is nothing.
    #[inline(always)]
    pub(super) fn kick(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        if d.cell == Cell::Idle {
            self.kick_idle(now, events, d);
        } else {
            self.kick_busy(now, events, d);
        }
    }

    /// As [`Shared::kick`], with an idle array.
    #[inline(always)]
    pub(super) fn kick_idle(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        if d.wants_array() {
            self.start_idle(now, events, d);
        }
    }

    /// As [`Shared::kick_idle`], for an array that has just ended a read or a program: most often something waits, and
    /// is worth no call.
    #[inline(always)]
    pub(super) fn kick_ended(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        if d.wants_array() {
            self.start_next(now, events, d);
        }
    }

    /// As [`Shared::kick`], with an array that is not idle: it may be suspended, and a row may be loaded ahead.
    #[inline(always)]
    pub(super) fn kick_busy(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        if self.suspends_or_loads(now, events, d) {
            self.load_ahead(now, events, d);
        }
    }

    /// Suspends an array that is not idle, if there is reason to. True: there is none, and a row may be loaded ahead.
    #[inline(always)]
    fn suspends_or_loads(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) -> bool {
        if d.waiting & FIRST != 0
            && self.suspend
            && let Cell::Busy { operation, ends } = d.cell
        {
            self.try_suspend(now, events, d, operation, ends);
            return false;
        }
        self.cache && d.is_row_next() && d.takes_row()
    }

    /// Whether a row of this source may go to the register of a die that takes one: at any time with cache commands,
    /// else only for an idle array.
    #[inline(always)]
    pub(super) fn may_load(&self, d: &Die, source: Source) -> bool {
        if d.cell == Cell::Idle { self.register_is_free(d) } else { self.cache && self.may_wait(source) }
    }

    /// Whether what comes to a die with an idle array finds a register for its data.
    #[inline(always)]
    pub(super) fn register_is_free(&self, d: &Die) -> bool {
        self.cache || d.leaving == NONE
    }

    /// Whether rows of a source may wait in a register or for the bus among the others.
    #[inline(always)]
    fn may_wait(&self, source: Source) -> bool {
        self.opportunistic & source.bit() == 0
    }

    /// The row that goes next is moved to the register while the array does something else.
    #[inline(never)]
    fn load_ahead(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        self.load_first(now, events, d, false);
    }

    /// What goes next, which is a row, is moved to the register; unless the array is busy and the row must not wait.
    #[inline(always)]
    fn load_first(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die, idle: bool) {
        let (class, id) = d.first();
        let source = self.operations[id as usize].source;
        if idle || self.may_wait(source) {
            d.take(&mut self.operations, class, id);
            self.load(now, events, d, id, source);
        }
    }

    /// Gives an idle array what goes next, and its register a row.
    #[inline(never)]
    fn start_idle(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        self.start_next(now, events, d);
    }

    #[inline(always)]
    fn start_next(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        if d.is_row_next() && d.takes_row() && self.register_is_free(d) {
            self.load_first(now, events, d, true);
        }
        // As in `kick_busy`, but here, where a row is loaded ahead most often, it is worth no call.
        if self.start_array(now, events, d) && self.suspends_or_loads(now, events, d) {
            self.load_first(now, events, d, false);
        }
    }

    /// Gives an idle array what goes next. False: there is nothing for it, or it is not idle.
    #[inline(always)]
    fn start_array(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) -> bool {
        if d.cell != Cell::Idle {
            return false; // Without cache commands it was reserved for the row that is on the bus.
        }
        // While something is suspended only the reads it was suspended for may pass, and only these go before a row in
        // the register.
        if d.waiting & FIRST != 0 || d.waiting != 0 && d.loaded & d.suspended == NONE {
            let (class, id) = d.first();
            let source = self.operations[id as usize].source;
            match source.kind() {
                Kind::Read if d.loaded == NONE || self.read_priority && self.cache && READS & source.bit() != 0 => {
                    if !self.register_is_free(d) {
                        return false;
                    }
                    d.take(&mut self.operations, class, id);
                    self.start_read(now, events, d, id);
                    return true;
                }
                Kind::Erase if d.loaded & d.suspended == NONE => {
                    let time = self.command_time + self.erase_time;
                    d.take(&mut self.operations, class, id);
                    d.time.erase += time;
                    start(now, events, d, id, time, lane::ERASE, Kind::Erase);
                    return true;
                }
                _ => {}
            }
        }
        if d.suspended != NONE {
            self.resume(now, events, d);
        } else if d.loaded != NONE {
            self.start_program(now, events, d);
        } else {
            return false;
        }
        true
    }

    /// A row of this source is moved to the register of a die, whose array is kept free for it where it has no other.
    #[inline(always)]
    pub(super) fn load(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die, id: u32, source: Source) {
        d.loading = id;
        if !self.cache {
            d.cell = Cell::Reserved;
        }
        let transfer =
            Transfer { time: self.bus_in_time, die: d.number, inward: true, lane: lane::BUS_IN as u8, source };
        self.request_bus(now, events, d.channel, transfer);
    }

    /// What was read moves from a die's register to the controller.
    #[inline(always)]
    pub(super) fn unload(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die, id: u32) {
        d.leaving = id;
        d.cell = Cell::Idle;
        let &Operation { source, unit_count, .. } = &self.operations[id as usize];
        let time = self.bus_out_time[usize::from(unit_count)];
        let lane = lane::BUS_OUT + usize::from(unit_count > 1);
        let transfer = Transfer { time, die: d.number, inward: false, lane: lane as u8, source };
        self.request_bus(now, events, d.channel, transfer);
    }

    #[inline(always)]
    pub(super) fn start_read(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die, id: u32) {
        let operation = &self.operations[id as usize];
        let kind = self.kind_of(operation);
        let mut time = self.read_time[kind];
        if self.planes_in_turn {
            time = time * u64::from(planes_of(operation.units, self.units_per_page));
        }
        time += self.command_time;
        d.time.read += time;
        start(now, events, d, id, time, lane_of(lane::READ, kind), Kind::Read);
    }

    /// A read has ended that may have found errors. True: it is tried again, and ends later.
    #[inline(never)]
    pub(super) fn retries<M: Medium>(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        d: &mut Die,
        id: u32,
        medium: &mut M,
        layout: &Layout,
    ) -> bool {
        let operation = &mut self.operations[id as usize];
        if std::mem::replace(&mut operation.sensed, true) {
            return false;
        }
        let (retries, uncorrectable) = sense(operation, medium, layout, self.units_per_page);
        operation.uncorrectable = uncorrectable;
        self.statistics.read_retries += u64::from(retries);
        self.statistics.uncorrectable += u64::from(uncorrectable != 0);
        if retries > 0 {
            let kind = self.kind_of(&self.operations[id as usize]);
            let time = self.read_time[kind] * u64::from(retries);
            d.time.read += time;
            start(now, events, d, id, time, lane::OTHER, Kind::Read);
        }
        retries > 0
    }

    #[inline(always)]
    pub(super) fn start_program(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        let id = std::mem::replace(&mut d.loaded, NONE);
        let kind = self.kind_of(&self.operations[id as usize]);
        let time = self.program_time[kind];
        d.time.program += time;
        start(now, events, d, id, time, lane_of(lane::PROGRAM, kind), Kind::Program);
    }

    #[inline(never)]
    fn try_suspend(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die, id: u32, ends: Instant) {
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
        let kind = operation.kind();
        operation.suspensions += 1;
        self.statistics.suspensions += 1;
        d.generation = d.generation.wrapping_add(1);
        d.cell = Cell::Suspending { operation: id };
        d.suspended_left = left;
        d.time.give_back(kind, left);
        d.time.suspend += self.suspend_time;
        let event = Event::Cell { die: d.number, generation: d.generation, kind };
        events.push(now + self.suspend_time, lane::SUSPEND, event);
    }

    fn resume(&mut self, now: Instant, events: &mut EventQueue, d: &mut Die) {
        let id = std::mem::replace(&mut d.suspended, NONE);
        let time = self.resume_time + d.suspended_left;
        let kind = self.operations[id as usize].kind();
        d.time.suspend += self.resume_time;
        d.time.spend(kind, d.suspended_left);
        start(now, events, d, id, time, lane::OTHER, kind);
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
        channel.waiting += 1;
    }
}

/// A die's array does this from now on, which is an operation of this kind.
#[inline(always)]
fn start(now: Instant, events: &mut EventQueue, d: &mut Die, id: u32, time: Duration, lane: usize, kind: Kind) {
    let ends = now + time;
    d.cell = Cell::Busy { operation: id, ends };
    events.push(ends, lane, Event::Cell { die: d.number, generation: d.generation, kind });
}

/// The lane of what takes as long as a page kind does: single-level mode has none of its own.
#[inline(always)]
fn lane_of(first: usize, kind: usize) -> usize {
    if kind == SLC_KIND {
        cold_path();
        lane::OTHER
    } else {
        first + kind
    }
}

/// All units of the pages that a set of units lies on.
fn whole_pages(units: u64, units_per_page: u32) -> u64 {
    let page = if units_per_page >= 64 { u64::MAX } else { (1u64 << units_per_page) - 1 };
    let (mut left, mut whole) = (units, 0);
    while left != 0 {
        let pages = page << (left.trailing_zeros() / units_per_page * units_per_page);
        whole |= pages;
        left &= !pages;
    }
    whole
}

/// The planes that a set of units lies on.
fn planes_of(units: u64, units_per_page: u32) -> u32 {
    super::count_units(whole_pages(units, units_per_page)) / units_per_page
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
