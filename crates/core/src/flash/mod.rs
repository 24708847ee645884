//! The scheduler between all sources of flash work and the channels and dies.
//!
//! Every die has a queue for each class of priority; every [`Source`] is in one class, where the oldest goes first. A
//! die's array and its channel's bus are busy separately: a read occupies the array, then the bus; a program the bus,
//! then the array. With cache commands a second register lets the two overlap. Host reads may suspend programs and
//! erases.
//!
//! Two idealisations: with cache commands a row may be loaded while data that was read is still leaving, as on dies
//! with a register for each direction; and reads go first for as long as they come, so an overload of reads stalls
//! writes.

mod die;
mod operation;
mod source;
mod start;
mod statistics;

pub use crate::events::Kind;
pub use operation::{NONE, Operation};
pub use source::{SOURCES, Source};
pub use statistics::{DieTime, FlashStatistics};

use crate::events::EventQueue;
use crate::layout::Layout;
use crate::profile::{DestagePriority, Profile, Release};
use tidewater_base::{Duration, Instant};
use tidewater_nand::{Config, Medium};

use die::{Cell, Die};
use operation::CLASSES;
use source::READS;
use start::{Channel, Codewords, Shared, Transfer};

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Flash {
    dies: Vec<Die>,
    shared: Shared,
    free: Vec<u32>,
    order: u64,
    /// Nothing but the log's programs is queued any more.
    log_only: bool,
}

impl Flash {
    /// The scheduler of an idle array, with room for `capacity` operations before it allocates again.
    pub fn new(profile: &Profile, nand: &Config, layout: &Layout, capacity: usize) -> Flash {
        // Without a fast side there is nothing to go before the host's programs, or behind them.
        let priority = if profile.fast.is_enabled() { profile.fast.priority } else { DestagePriority::Neutral };
        let follows = profile.fast.is_enabled() && profile.fast.release == Release::Crossing;
        let (profile, slc) = (&profile.flash, &profile.slc);
        let with_slc = |[lower, middle, upper]: [Duration; 3], slc: Duration| [lower, middle, upper, slc];
        let rate = crate::cost::Rate::per_second(nand.bus_rate);
        let planes_in_turn = !nand.multi_plane && nand.planes > 1;
        let turns = if planes_in_turn { u64::from(nand.planes) } else { 1 };
        let unit_bytes = u64::from(nand.page_size + nand.oob_size) / u64::from(layout.units_per_page);
        let row_bytes = unit_bytes * u64::from(layout.units_per_row);
        let codewords = if follows {
            let in_page = nand.page_size / nand.ecc_codeword;
            let time = rate.time(u64::from(nand.page_size + nand.oob_size) / u64::from(in_page));
            let count = in_page * layout.units_per_row / layout.units_per_page;
            Codewords { count, data: nand.ecc_codeword, before: nand.command_time, time }
        } else {
            Codewords::default()
        };
        let shared = Shared {
            channels: vec![Channel::new(codewords); nand.channels as usize],
            operations: Vec::with_capacity(capacity),
            classes: [0; SOURCES],
            opportunistic: 0,
            read_priority: profile.read_priority,
            suspend: profile.suspend && profile.read_priority,
            suspend_time: profile.suspend_time,
            resume_time: profile.resume_time,
            suspend_max: profile.suspend_max,
            share_senses: profile.share_senses,
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
        let mut flash = Flash {
            dies: (0..nand.dies()).map(|d| Die::on(d, d % nand.channels)).collect(),
            shared,
            free: Vec::with_capacity(capacity),
            order: 0,
            log_only: false,
        };
        flash.set_destage_priority(priority);
        flash
    }

    // Always inlined: what the source does is known at nearly every call.
    /// Queues an operation on its die.
    #[inline(always)]
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
        tag: u32,
    ) {
        if self.log_only && source != Source::Destage {
            return;
        }
        let id = self.add(source, die, superblock, row, units, tag);
        let (d, shared) = (&mut self.dies[die as usize], &mut self.shared);
        let kind = source.kind();
        if kind == Kind::Program {
            *d.programs_of(source) += 1;
        }
        // What can start at once would only be put into a list to be taken out again.
        match kind {
            Kind::Read if d.is_vacant() && shared.register_is_free(d) => {
                return shared.start_read(now, events, d, id);
            }
            Kind::Program if d.waiting == 0 && d.takes_row() && shared.may_load(d, source) => {
                return shared.load(now, events, d, id, source);
            }
            _ => {}
        }
        shared.put(d, source, id);
        shared.kick(now, events, d);
    }

    /// A new operation, which is in no queue yet.
    #[inline(always)]
    fn add(&mut self, source: Source, die: u32, superblock: u32, row: u32, units: u64, tag: u32) -> u32 {
        self.order += 1;
        let operation = Operation {
            source,
            die,
            superblock,
            row,
            units,
            unit_count: count_units(units) as u8,
            tag,
            uncorrectable: 0,
            shared: NONE,
            suspensions: 0,
            sensed: false,
            order: self.order,
            next: NONE,
        };
        let operations = &mut self.shared.operations;
        match self.free.pop() {
            Some(id) => {
                operations[id as usize] = operation;
                id
            }
            None => {
                operations.push(operation);
                (operations.len() - 1) as u32
            }
        }
    }

    /// Whether host reads of one page share a sense.
    #[inline]
    pub fn shares_senses(&self) -> bool {
        self.shared.share_senses
    }

    /// Lets a host read be served by another one of the same pages, instead of queueing it: one that waits, or whose
    /// pages are in the array or the register; or one whose data, with all that is wanted here, is on its way over the
    /// bus. False: there is none.
    #[inline(never)]
    pub fn share(&mut self, die: u32, superblock: u32, row: u32, units: u64, tag: u32) -> bool {
        let Some(first) = self.shared.sense_of(&self.dies[die as usize], superblock, row, units) else {
            return false;
        };
        let id = self.add(Source::HostRead, die, superblock, row, units, tag);
        let operations = &mut self.shared.operations;
        let sense = &mut operations[first as usize];
        sense.units |= units;
        sense.unit_count = count_units(sense.units) as u8;
        if sense.shared == NONE {
            sense.shared = id;
            return true;
        }
        let mut last = sense.shared;
        while operations[last as usize].next != NONE {
            last = operations[last as usize].next;
        }
        operations[last as usize].next = id;
        true
    }

    /// One of the reads that another's sense has served is done: its tag and its units. `next`: that read, from then on
    /// the one behind it, or [`NONE`].
    #[inline(always)]
    pub fn take_shared(&mut self, next: &mut u32) -> Option<(u32, u64)> {
        if *next == NONE {
            return None;
        }
        let Operation { tag, units, next: behind, .. } = self.shared.operations[*next as usize];
        self.free.push(std::mem::replace(next, behind));
        Some((tag, units))
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
        let first = if self.shared.read_priority { READS } else { 0 };
        let (last, opportunistic) = match priority {
            DestagePriority::Neutral => (0, 0),
            DestagePriority::Conventional => (destage, destage),
            DestagePriority::Destage => (host, host),
        };
        // No host waits for folding in the background: it comes after all others.
        let fold = Source::FoldRead.bit();
        let classes = [first, !first & !last & !fold, last, fold];
        let class_of = |source: usize| classes.iter().position(|class| class >> source & 1 == 1).unwrap_or(CLASSES - 1);
        self.shared.classes = std::array::from_fn(|source| class_of(source) as u8);
        self.shared.opportunistic = opportunistic | fold;
        self.sort_waiting(|_| true);
    }

    /// A superblock that has been erased is used in single-level mode from now on, or in that of its cells.
    pub fn set_slc(&mut self, superblock: u32, slc: bool) {
        self.shared.slc[superblock as usize] = slc;
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
            for id in die.take_all(&mut self.shared.operations) {
                let operation = &self.shared.operations[id as usize];
                if keep(operation) {
                    let source = operation.source;
                    self.shared.put(die, source, id);
                }
            }
        }
    }

    /// An operation that [`Flash::on_loaded`], [`Flash::on_unloaded`] or [`Flash::on_cell`] has named: until another is
    /// queued, which may take its place.
    #[inline]
    pub fn operation(&self, id: u32) -> &Operation {
        &self.shared.operations[id as usize]
    }

    /// What a die's array is doing.
    #[inline]
    pub fn in_array(&self, die: u32) -> Option<&Operation> {
        match self.dies[die as usize].cell {
            Cell::Busy { operation, .. } => Some(&self.shared.operations[operation as usize]),
            _ => None,
        }
    }

    /// Operations queued or in flight.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.shared.operations.len() - self.free.len()
    }

    /// Programs and erases whose cells are being changed (suspended ones too): a power loss tears them.
    pub fn in_progress(&self) -> impl Iterator<Item = &Operation> {
        self.dies.iter().flat_map(|d| {
            let busy = match d.cell {
                Cell::Busy { operation, .. } | Cell::Suspending { operation } => operation,
                _ => NONE,
            };
            [busy, d.suspended].into_iter().filter(|&id| id != NONE).map(|id| &self.shared.operations[id as usize])
        })
    }

    /// Time that each die has spent on what by `now`.
    pub fn die_times(&self, now: Instant) -> impl Iterator<Item = DieTime> {
        self.dies.iter().map(move |d| {
            let mut time = d.time;
            // Time is charged when an operation starts: what is left of it belongs to the time from now on.
            if let Cell::Busy { operation, ends } = d.cell {
                time.give_back(self.shared.operations[operation as usize].kind(), ends.since(now));
            }
            time
        })
    }

    /// Time that each channel's bus was busy.
    pub fn channel_times(&self) -> impl Iterator<Item = Duration> {
        self.shared.channels.iter().map(|c| c.busy)
    }

    /// Counters.
    #[inline]
    pub fn statistics(&self) -> &FlashStatistics {
        &self.shared.statistics
    }

    /// Forgets all counters, at the end of a warm-up.
    pub fn reset_statistics(&mut self, now: Instant) {
        self.shared.statistics = FlashStatistics::default();
        for d in &mut self.dies {
            d.time = DieTime::default();
            // Time is charged when an operation starts: what is left of it belongs to the time from now on.
            if let Cell::Busy { operation, ends } = d.cell {
                d.time.spend(self.shared.operations[operation as usize].kind(), ends.since(now));
            }
        }
        self.shared.channels.iter_mut().for_each(|c| c.busy = Duration::ZERO);
    }

    /// A bus transfer to a die has ended: a row is in its register now, and will be programmed. Returns its number if
    /// it is one of the log.
    #[inline(always)]
    pub fn on_loaded(&mut self, now: Instant, events: &mut EventQueue, channel: u32) -> Option<u32> {
        let shared = &mut self.shared;
        let Transfer { die, source, .. } = shared.channels[channel as usize].end(now, events, channel);
        let d = &mut self.dies[die as usize];
        let row = std::mem::replace(&mut d.loading, NONE);
        d.loaded = row;
        if d.cell == Cell::Reserved {
            d.cell = Cell::Idle;
        }
        if d.cell == Cell::Idle && d.waiting == 0 && d.suspended == NONE {
            shared.start_program(now, events, d); // Nothing else can want the array.
        } else {
            shared.kick(now, events, d);
        }
        (source == Source::Destage).then(|| self.shared.operations[row as usize].tag)
    }

    /// Another codeword of a log row has crossed a bus to its die's register. Returns the row's number, and how many of
    /// its bytes, from its first, are there.
    pub fn on_crossed(&mut self, now: Instant, events: &mut EventQueue, channel: u32) -> (u32, u32) {
        let (die, bytes) = self.shared.channels[channel as usize].cross(now, events, channel);
        let row = self.dies[die as usize].loading;
        (self.shared.operations[row as usize].tag, bytes)
    }

    /// A bus transfer from a die has ended. Returns the number of the read whose data has reached the controller.
    #[inline(always)]
    pub fn on_unloaded(&mut self, now: Instant, events: &mut EventQueue, channel: u32) -> u32 {
        let shared = &mut self.shared;
        let Transfer { die, .. } = shared.channels[channel as usize].end(now, events, channel);
        let d = &mut self.dies[die as usize];
        let id = std::mem::replace(&mut d.leaving, NONE);
        if let Cell::Held { operation } = d.cell {
            shared.unload(now, events, d, operation);
        }
        shared.count(id);
        self.free.push(id);
        shared.kick(now, events, d);
        id
    }

    /// A die's array finished an operation of this kind. Returns the number of the program or erase that took effect
    /// just now; the caller applies it.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "what an event tells, and what the medium has to do with it")]
    pub fn on_cell<M: Medium>(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        die: u32,
        generation: u32,
        kind: Kind,
        medium: &mut M,
        layout: &Layout,
    ) -> Option<u32> {
        let (d, shared) = (&mut self.dies[die as usize], &mut self.shared);
        if d.generation != generation {
            return None; // The operation was suspended since.
        }
        let id = match d.cell {
            Cell::Suspending { operation } => {
                d.suspended = operation;
                d.cell = Cell::Idle;
                shared.kick_idle(now, events, d);
                return None;
            }
            Cell::Busy { operation, .. } => operation,
            state => unreachable!("die {die} finished in state {state:?}"),
        };
        medium.set_time(now);
        match kind {
            Kind::Read => {
                if !medium.reads_cleanly() && shared.retries(now, events, d, id, medium, layout) {
                    return None;
                }
                if d.leaving == NONE {
                    shared.unload(now, events, d, id);
                    shared.kick_ended(now, events, d);
                } else {
                    d.cell = Cell::Held { operation: id };
                    shared.kick_busy(now, events, d);
                }
                return None;
            }
            Kind::Program => *d.programs_of(shared.operations[id as usize].source) -= 1,
            Kind::Erase => {}
        }
        d.cell = Cell::Idle;
        shared.count(id);
        self.free.push(id);
        if kind == Kind::Program {
            shared.kick_ended(now, events, d);
        } else {
            shared.kick_idle(now, events, d);
        }
        Some(id)
    }
}

/// How many units these are. Most often one, and counting bits is dear on processors without an instruction for it.
#[inline]
pub fn count_units(units: u64) -> u32 {
    if units.is_power_of_two() { 1 } else { count_many(units) }
}

// Not inlined: the compiler would see that both ways count bits, and do it before it asks whether there is one.
#[inline(never)]
fn count_many(units: u64) -> u32 {
    units.count_ones()
}

#[cfg(test)]
mod tests;
