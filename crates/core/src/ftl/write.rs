//! Rows: filled with units, programmed, and acknowledged.

use super::slc::SLC_INDEX;
use super::{DieSpace, Entry, Ftl, NOT_A_CANDIDATE, Row, State, Stream, Superblock};
use crate::events::{Event, EventQueue, lane};
use crate::flash::{NONE, Operation, Source};
use crate::owner::Owner;
use std::cmp::Reverse;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand, Origin, Page, PageHeader, PageKind};

/// Where a unit was before it was put into a row, when it was nowhere.
pub(super) const NOWHERE: u32 = u32::MAX;
/// As [`NOWHERE`], when it was lost: until the row is programmed, that is what a power loss leaves.
pub(super) const LOST: u32 = u32::MAX - 1;

impl<M: Medium> Ftl<M> {
    /// Whether a host unit can be taken now. When not, ask again after a program or an erase is done.
    #[inline(always)]
    pub fn can_write(&mut self) -> bool {
        match &self.hybrid {
            None => self.host_row != NONE || self.open_host_row(),
            Some(_) => self.takes_any_now(),
        }
    }

    /// Whether [`Ftl::can_write`] may say yes.
    #[inline(always)]
    pub fn may_write(&self) -> bool {
        self.host_row != NONE || !self.ready.is_empty() || self.hybrid.is_some()
    }

    /// Whether a host row is open, or a die is ready for one: as [`Ftl::can_write`], but without opening it.
    #[inline]
    pub fn has_ready_die(&self) -> bool {
        match &self.hybrid {
            None => self.host_row != NONE || !self.ready.is_empty(),
            Some(hybrid) => !hybrid.is_stuck() && self.takes_any(hybrid),
        }
    }

    /// Units that the open host row still takes, 0 when none is open.
    #[inline]
    pub fn row_room(&self) -> u32 {
        if let Some(hybrid) = &self.hybrid {
            return self.random_row_room(hybrid);
        }
        match self.host_row {
            NONE => 0,
            row => self.layout.units_per_row - self.rows[row as usize].count,
        }
    }

    /// Puts a host unit into the open row; [`Ftl::can_write`] must have said yes. `owner` is acknowledged once the unit
    /// is programmed.
    #[inline(always)]
    pub fn write(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, version: u64, owner: Owner) {
        self.write_sequence += 1;
        self.statistics.host += 1;
        self.host_clock += 1;
        let stamp = (version, self.write_sequence);
        if self.hybrid.is_some() {
            return self.write_to_log(now, events, lpn, stamp, owner);
        }
        let row = self.host_row;
        if owner != Owner::None && !self.rows[row as usize].timed {
            self.rows[row as usize].timed = true;
            let generation = self.rows[row as usize].generation;
            events.push(now + self.profile.fill_timeout, lane::SUSPEND, Event::Fill { row, generation });
        }
        if self.put(row, lpn, stamp, owner) {
            self.submit(now, events, row);
        }
        self.touch_slc(now, events);
    }

    /// Puts a unit into a row and moves its map entry. True: the row is full.
    #[inline(always)]
    pub(super) fn put(&mut self, row: u32, lpn: u32, stamp: (u64, u64), owner: Owner) -> bool {
        let r = &mut self.rows[row as usize];
        let (unit, number, stream) = (r.count, r.number, r.stream);
        let collected = stream == Stream::Collected;
        r.count += 1;
        let full = r.count == self.layout.units_per_row;
        let superblock = r.superblock;
        let ppn = self.layout.ppn(superblock, r.row, unit);
        let at = (row * self.layout.units_per_row + unit) as usize;
        self.row_lpns[at] = lpn;
        if owner != Owner::None {
            self.set_owner(row, at, owner);
        }
        if self.stamps {
            self.row_stamps[at] = stamp;
            if self.payload {
                self.row_origins[at] = Origin::Memory;
            }
        }
        let previous = match self.map.set(lpn, Entry::At(ppn)) {
            Entry::At(old) => {
                self.invalidate(old, if stream == Stream::Host { number } else { 0 });
                if matches!(stream, Stream::Log | Stream::Mapping) {
                    let s = &mut self.superblocks[self.layout.superblock_of(old) as usize];
                    s.log_row_hazard = s.log_row_hazard.max(number);
                }
                if collected {
                    let s = &mut self.superblocks[self.layout.superblock_of(old) as usize];
                    s.collect_hazard = s.collect_hazard.max(number);
                }
                old
            }
            Entry::Unmapped => NOWHERE,
            Entry::Lost => LOST,
        };
        self.row_previous[at] = previous;
        self.valid_bits.set(ppn);
        self.valid[superblock as usize] += 1;
        full
    }

    /// A host waits for this unit of a row.
    #[inline(never)]
    pub(super) fn set_owner(&mut self, row: u32, at: usize, owner: Owner) {
        if !std::mem::replace(&mut self.rows[row as usize].owned, true) {
            let first = (row * self.layout.units_per_row) as usize;
            self.row_owners[first..first + self.layout.units_per_row as usize].fill(Owner::None.pack());
        }
        self.row_owners[at] = owner.pack();
    }

    /// Opens a row for host data on the next die that can take one.
    #[inline(always)]
    fn open_host_row(&mut self) -> bool {
        let Some(die) = self.ready.next(self.next_die) else { return false };
        self.next_die = if die + 1 == self.layout.dies { 0 } else { die + 1 };
        self.open_host_row_on(die);
        true
    }

    /// Opens a row for host data on this die, which has room.
    pub(super) fn open_host_row_on(&mut self, die: u32) -> u32 {
        if let Some(superblock) = self.slc_superblock(die) {
            let number = self.host_rows.open();
            let (row, full) = self.open_row(superblock, Stream::Host, number);
            self.host_row = row;
            self.rows[row as usize].index = SLC_INDEX;
            if full {
                self.forget_open_slc(superblock);
            }
            return row;
        }
        let mut superblock = self.dies[die as usize].host_superblock;
        if superblock == NONE {
            superblock = self.open_superblock(die, Stream::Host).expect("the die has a free superblock");
        }
        let number = self.host_rows.open();
        let (row, full) = self.open_row(superblock, Stream::Host, number);
        self.host_row = row;
        self.dies[die as usize].host_superblock = if full { NONE } else { superblock };
        row
    }

    /// Takes a free superblock of a die; the caller has checked what it must leave.
    pub(super) fn open_superblock(&mut self, die: u32, stream: Stream) -> Option<u32> {
        let Reverse((_, _, superblock)) = self.dies[die as usize].free.pop()?;
        self.free_superblocks -= 1;
        let s = &mut self.superblocks[superblock as usize];
        debug_assert_eq!(s.state, State::Free);
        s.state = State::Open;
        s.stream = stream;
        Some(superblock)
    }

    pub(super) fn is_full(&self, superblock: u32) -> bool {
        u32::from(self.superblocks[superblock as usize].rows) == self.rows_of(superblock)
    }

    /// Opens the next row of a superblock. Returns whether it was the last of them, too.
    #[inline(always)]
    pub(super) fn open_row(&mut self, superblock: u32, stream: Stream, number: u64) -> (u32, bool) {
        self.row_sequence += 1;
        let s = &mut self.superblocks[superblock as usize];
        let row = u32::from(s.rows);
        s.rows += 1;
        let full = row + 1 == self.rows_of(superblock);
        let id = match self.free_rows.pop() {
            Some(id) => id,
            None => self.add_row(),
        };
        let r = &mut self.rows[id as usize];
        debug_assert!(r.own.is_none(), "what a row of the firmware's own held was taken when it was programmed");
        r.superblock = superblock;
        r.row = row;
        r.stream = stream;
        r.count = 0;
        r.number = number;
        r.program_sequence = self.row_sequence;
        r.index = 0;
        r.generation = r.generation.wrapping_add(1);
        r.in_use = true;
        r.timed = false;
        r.owned = false;
        r.images.clear();
        (id, full)
    }

    /// Room for another row.
    #[cold]
    fn add_row(&mut self) -> u32 {
        let units = self.layout.units_per_row as usize;
        self.row_lpns.resize(self.row_lpns.len() + units, Nand::NO_LPN);
        self.row_owners.resize(self.row_owners.len() + units, Owner::None.pack());
        self.row_previous.resize(self.row_previous.len() + units, NOWHERE);
        if self.stamps {
            self.row_stamps.resize(self.row_stamps.len() + units, (0, 0));
        }
        if self.payload {
            self.row_origins.resize(self.row_lpns.len(), Origin::Memory);
        }
        self.rows.push(Row {
            superblock: NONE,
            row: 0,
            stream: Stream::Host,
            count: 0,
            number: 0,
            program_sequence: 0,
            index: 0,
            generation: 0,
            in_use: false,
            timed: false,
            owned: false,
            own: None,
            images: Vec::new(),
        });
        (self.rows.len() - 1) as u32
    }

    /// Queues the program of a row; what is missing is filler.
    pub(super) fn submit(&mut self, now: Instant, events: &mut EventQueue, row: u32) {
        match self.rows[row as usize].stream {
            // Most are of this one, and what concerns the others is left out for it.
            Stream::Collected => self.submit_to(now, events, row, Stream::Collected),
            stream => self.submit_to(now, events, row, stream),
        }
    }

    /// As [`Ftl::submit`], for a row of this stream.
    #[inline(always)]
    fn submit_to(&mut self, now: Instant, events: &mut EventQueue, row: u32, stream: Stream) {
        let r = &self.rows[row as usize];
        let (superblock, index, count) = (r.superblock, r.row, r.count);
        let units = self.layout.units_per_row;
        if count < units {
            let first = (row * units) as usize;
            self.row_lpns[first + count as usize..first + units as usize].fill(Nand::NO_LPN);
        }
        if !matches!(stream, Stream::Map | Stream::Mapping) {
            self.statistics.padding += u64::from(units - count);
        }
        let die = u32::from(self.superblocks[superblock as usize].die);
        if matches!(stream, Stream::Host | Stream::Slc) && self.is_slc(superblock) {
            self.statistics.slc += u64::from(count);
        }
        match stream {
            Stream::Host if self.hybrid.is_some() => self.forget_row(row),
            Stream::Host | Stream::Slc => self.host_row = NONE,
            Stream::Collected => self.dies[die as usize].collect_row = NONE,
            Stream::Log => self.log_row = NONE,
            Stream::Merge | Stream::Map | Stream::Mapping => {}
        }
        self.program_row(now, events, row, stream, die, superblock, index);
    }

    /// Queues the program of a row that is complete, and that no caller finds open any more: of this stream, and at
    /// this place.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "what the filler of a row knows of it")]
    pub(super) fn program_row(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        row: u32,
        stream: Stream,
        die: u32,
        superblock: u32,
        index: u32,
    ) {
        let units = self.layout.units_per_row;
        let source = match stream {
            Stream::Host | Stream::Slc => Source::HostProgram,
            Stream::Collected | Stream::Merge => Source::CollectProgram,
            Stream::Log => Source::Destage,
            Stream::Map | Stream::Mapping => Source::Map,
        };
        let all = u64::MAX >> (64 - units);
        self.flash.enqueue(now, events, source, die, superblock, index, all, row);
        if matches!(stream, Stream::Host | Stream::Log) && !self.emergency && self.hybrid.is_none() {
            self.update_ready(die);
            self.pace_collection(now, events, die, units);
            self.wake_collection(now, events);
        }
        if !matches!(stream, Stream::Map | Stream::Mapping) && !self.emergency {
            self.checkpoint_step(now, events);
        }
    }

    /// The open host row is programmed as it is, if it holds anything.
    pub fn pad_host_row(&mut self, now: Instant, events: &mut EventQueue) {
        if self.hybrid.is_some() {
            return self.pad_log_rows(now, events);
        }
        if self.host_row != NONE && self.rows[self.host_row as usize].count > 0 {
            self.submit(now, events, self.host_row);
        }
    }

    /// A row's time to be filled is over.
    pub fn on_fill_timeout(&mut self, now: Instant, events: &mut EventQueue, row: u32, generation: u32) {
        if self.hybrid.is_some() {
            self.pad_log_row_in_time(now, events, row, generation);
        } else if self.host_row == row && self.rows[row as usize].generation == generation {
            self.submit(now, events, row);
        }
    }

    /// What a flush must wait for: pass it to [`Ftl::is_durable`]. Pads the open row and logs deallocations.
    pub fn begin_flush(&mut self, now: Instant, events: &mut EventQueue) -> (u64, u64) {
        self.pad_host_row(now, events);
        self.log_deallocations(now, events);
        // A row opened but still empty holds nothing to wait for.
        let last = self.host_rows.last() - u64::from(self.host_row != NONE);
        (last, self.write_sequence)
    }

    /// Whether everything up to this mark is on flash.
    pub fn is_durable(&self, mark: (u64, u64)) -> bool {
        self.host_rows.is_settled(mark.0) && self.checkpoint.is_logged(mark.1)
    }

    /// A row's program is done: applies it to the medium, acknowledges its owners, and frees what it replaced.
    #[inline(never)]
    pub(super) fn on_programmed<const SINGLE: bool>(&mut self, now: Instant, events: &mut EventQueue, operation: u32) {
        let &Operation { die, superblock, tag: row, .. } = self.flash.operation(operation);
        let &Superblock { state, rows, failed, .. } = &self.superblocks[superblock as usize];
        let failed = failed || !self.program_planes::<SINGLE>(die, superblock, row);
        let programmed = &mut self.programmed[superblock as usize];
        debug_assert_eq!(u32::from(*programmed), self.flash.operation(operation).row);
        *programmed += 1;
        let done = *programmed;
        if done == rows && state == State::Open && (failed || u32::from(rows) == self.rows_of(superblock)) {
            self.close(superblock);
        }
        if failed {
            self.rewrite(now, events, row);
        }
        let r = &mut self.rows[row as usize];
        r.in_use = false;
        if matches!(r.stream, Stream::Map | Stream::Mapping) {
            self.statistics.map += u64::from(self.layout.row_units::<SINGLE>());
        }
        let (number, stream, count, owned) = (r.number, r.stream, r.count, r.owned);
        self.free_rows.push(row);
        if owned && !failed {
            let first = (row * self.layout.row_units::<SINGLE>()) as usize;
            let owners = self.row_owners[first..first + count as usize].iter();
            self.acknowledged.extend(owners.filter(|&&owner| owner != Owner::None.pack()));
        }
        match stream {
            Stream::Collected => self.dies[die as usize].collected.finish(number),
            Stream::Host | Stream::Slc => self.host_rows.finish(number),
            Stream::Log => self.log_rows.finish(number),
            Stream::Mapping => {
                self.log_rows.finish(number);
                self.on_mapping_row(now, events, row, failed);
            }
            Stream::Merge => self.on_merged_row(now, events, number as usize, failed),
            Stream::Map => {
                let r = &mut self.rows[row as usize];
                let (program_sequence, own) = (r.program_sequence, r.own.take());
                self.on_own_row_programmed(now, events, superblock, program_sequence, own, failed);
            }
        }
        self.update_ready(die);
        if !self.emergency {
            if self.map_cache.is_some() && !failed && !matches!(stream, Stream::Map | Stream::Mapping) {
                self.change_entries_of_row(now, events, row);
            }
            if !self.draining.is_empty() {
                self.erase_drained(now, events);
            }
            self.collect(now, events, die);
        }
    }

    /// A superblock takes no more rows: it may be collected.
    pub(super) fn close(&mut self, superblock: u32) {
        let s = &mut self.superblocks[superblock as usize];
        s.state = State::Closed;
        s.closed_at = self.host_clock;
        if !matches!(s.stream, Stream::Map | Stream::Mapping) && !self.close_slc(superblock) {
            let s = &self.superblocks[superblock as usize];
            self.valid[superblock as usize] &= !NOT_A_CANDIDATE;
            if s.failed && self.hybrid.is_none() {
                self.dies[s.die as usize].failed.push(superblock);
            }
        }
    }

    /// Applies a row to every plane. False: a plane failed, and the superblock is marked.
    #[inline(always)]
    fn program_planes<const SINGLE: bool>(&mut self, die: u32, superblock: u32, row: u32) -> bool {
        if self.payload && self.rows[row as usize].stream == Stream::Merge {
            self.find_origins(row);
        }
        let r = &self.rows[row as usize];
        let (kind, index) = match &r.own {
            None => (PageKind::Data, r.index),
            Some(own) => own.what.page_kind(),
        };
        let header = PageHeader { kind, program_sequence: r.program_sequence, superblock, index };
        let first = (row * self.layout.row_units::<SINGLE>()) as usize;
        let (planes, per_page) =
            if SINGLE { (1, 1) } else { (self.layout.planes(), self.layout.units_per_page as usize) };
        let mut good = true;
        for plane in 0..planes {
            let units = first + plane as usize * per_page..first + (plane as usize + 1) * per_page;
            let content = Page {
                header,
                lpns: &self.row_lpns[units.clone()],
                stamps: if self.stamps { &self.row_stamps[units.clone()] } else { &[] },
                origins: if self.payload { &self.row_origins[units] } else { &[] },
                own_payload: if plane == 0 { r.own_payload() } else { None },
            };
            let at = self.layout.block_on(die, superblock, plane);
            if self.medium.program(at, r.row, &content).is_err() {
                self.statistics.program_failures += 1;
                good = false;
            }
        }
        if !good {
            self.fail_superblock(superblock);
        }
        good
    }

    /// Pages say from now on where their units come from, for the payload store; needs stamps.
    pub fn keep_sources(&mut self) {
        assert!(self.stamps, "payload is kept by version, which only stamps tell");
        self.payload = true;
        self.row_origins.resize(self.row_lpns.len(), Origin::Memory);
    }

    /// Every unit in a row that is not programmed yet, overtaken ones included, with its version; needs stamps.
    pub fn unprogrammed(&self) -> impl Iterator<Item = (u32, u64)> {
        let units = self.layout.units_per_row as usize;
        let rows = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.in_use && !matches!(row.stream, Stream::Map | Stream::Mapping));
        rows.flat_map(move |(id, row)| {
            let places = id * units..id * units + row.count as usize;
            places.map(|at| (self.row_lpns[at], self.row_stamps[at].0))
        })
    }

    /// The unit that was put into a row last comes from there.
    pub(super) fn set_origin(&mut self, row: u32, origin: Origin) {
        if self.payload {
            let last = row * self.layout.units_per_row + self.rows[row as usize].count - 1;
            self.row_origins[last as usize] = origin;
        }
    }

    /// The row of collected data that a die is filling, opened if need be. `None`: its rows queue is full, or there is
    /// no superblock left.
    #[inline(always)]
    pub(super) fn collected_row<const SINGLE: bool>(&mut self, die: u32) -> Option<u32> {
        let DieSpace { collect_row, collect_superblock, .. } = self.dies[die as usize];
        if collect_row != NONE {
            return Some(collect_row);
        }
        let superblock = if collect_superblock == NONE { self.open_collected(die)? } else { collect_superblock };
        let number = self.dies[die as usize].collected.open();
        let (row, full) = self.open_row(superblock, Stream::Collected, number);
        if full {
            self.dies[die as usize].collect_superblock = NONE;
        }
        // One that is full as soon as it holds anything is never found open.
        if !SINGLE {
            self.dies[die as usize].collect_row = row;
        }
        Some(row)
    }

    /// Opens a superblock for collected data.
    #[inline(never)]
    fn open_collected(&mut self, die: u32) -> Option<u32> {
        let superblock = self.open_superblock(die, Stream::Collected)?;
        self.update_ready(die);
        self.dies[die as usize].collect_superblock = superblock;
        Some(superblock)
    }
}
