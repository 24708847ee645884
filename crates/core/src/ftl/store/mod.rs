//! The map, the superblocks and the rows under way, with the flash below. A placement changes them by these steps: a
//! unit is put into a row, a row is programmed, a superblock is erased.

mod bad;
pub(super) mod copies;
mod find;
mod preset;
mod staged;

pub(super) use super::map::Entry;
pub(super) use super::space::{NOT_A_CANDIDATE, State, Stream};

use super::journal::{Checkpoint, map_superblocks_of};
use super::map::{Map, ValidBits};
use super::rows::{LOST, NOWHERE, Row, Rows};
use super::space::{Space, Superblock};
use crate::events::{Event, EventQueue, lane};
use crate::flash::{Flash, Operation, Source};
use crate::layout::Layout;
use crate::owner::Owner;
use crate::profile::{FtlProfile, Profile};
use tidewater_base::Instant;
use tidewater_base::statistics::FtlStatistics;
use tidewater_nand::{Medium, Nand, Origin, PageHeader, PageKind, Place, Stamp, Stamps};

/// The time, and what falls due later.
pub(crate) struct Clock<'a> {
    pub now: Instant,
    pub events: &'a mut EventQueue,
}

/// The state that all placements of data share, with the methods that change it.
#[derive(Clone, Debug)]
pub struct Store<M> {
    /// The scheduler.
    pub flash: Flash,
    /// The medium.
    pub medium: M,
    /// Counters.
    pub statistics: FtlStatistics,
    pub(in crate::ftl) layout: Layout,
    pub(in crate::ftl) map: Map,
    /// One bit for each physical unit.
    pub(in crate::ftl) valid_bits: ValidBits,
    pub(in crate::ftl) space: Space,
    pub(in crate::ftl) rows: Rows,
    pub(in crate::ftl) checkpoint: Checkpoint,
    /// Logical pages; mapping pages lie behind them.
    pub(in crate::ftl) units: u32,
    pub(in crate::ftl) data_units: u32,
    pub(in crate::ftl) write_sequence: u64,
    pub(in crate::ftl) profile: FtlProfile,
    pub(in crate::ftl) stamps: bool,
    /// The power has failed: what is destaged on stored energy may take every superblock, and nothing else is done.
    pub(in crate::ftl) emergency: bool,
    /// The map is not whole yet: nothing is written or collected.
    pub(in crate::ftl) recovering: bool,
    pub(in crate::ftl) programs_per_die: u32,
}

impl<M: Medium> Store<M> {
    /// An erased medium with `units` logical pages, of which the last `reserved` are no data, and `mapping_pages`
    /// behind them. `ftl`: the settings, with what a plan adds to them.
    pub(super) fn new(
        profile: &Profile,
        ftl: FtlProfile,
        medium: M,
        superblocks_per_die: u32,
        (units, reserved, mapping_pages): (u32, u32, u32),
        stamps: Stamps,
    ) -> Store<M> {
        let layout = Layout::new(&medium, profile.ftl.unit_size, superblocks_per_die);
        let flash = Flash::new(profile, medium.config(), &layout, 4 * layout.dies as usize + 4_096);
        let slc_rows = profile.nand.pages_per_block / profile.nand.cell.page_kinds() as u32;
        let mut store = Store {
            flash,
            statistics: FtlStatistics::default(),
            map: Map::new(units + mapping_pages),
            valid_bits: ValidBits::new(layout.address_space(), units),
            space: Space::new(&layout, slc_rows, ftl.wear_aware_allocation),
            rows: Rows::new(&layout, stamps == Stamps::Full),
            checkpoint: Checkpoint::new(profile, if mapping_pages > 0 { units } else { 0 }, units + mapping_pages),
            units,
            data_units: units - reserved,
            write_sequence: 0,
            profile: ftl,
            stamps: stamps == Stamps::Full,
            emergency: false,
            recovering: false,
            programs_per_die: profile.flash.programs_per_die,
            layout,
            medium,
        };
        for superblock in (0..store.layout.superblocks()).filter(|&s| store.layout.is_whole(s)).collect::<Vec<_>>() {
            store.space.superblocks[superblock as usize].erases = store.erases_of(superblock);
            store.space.good_superblocks += 1;
            store.space.put_free(superblock);
        }
        store
    }

    /// Erases of a superblock's most worn block.
    pub(super) fn erases_of(&self, superblock: u32) -> u32 {
        let planes = 0..self.layout.planes();
        planes.map(|p| self.medium.erase_count(self.layout.block(superblock, p))).max().unwrap_or(0)
    }

    /// Puts a unit into a row and moves its map entry. True: the row is full.
    #[inline(always)]
    pub(super) fn put(&mut self, row: u32, lpn: u32, stamp: (u64, u64), owner: Owner) -> bool {
        let r = &mut self.rows.staged[row as usize];
        let (unit, number, stream) = (r.count, r.number, r.stream);
        let collected = stream == Stream::Collected;
        r.count += 1;
        let full = r.count == self.layout.units_per_row;
        let superblock = r.superblock;
        let ppn = self.layout.ppn(superblock, r.row, unit);
        let at = (row * self.layout.units_per_row + unit) as usize;
        self.rows.lpns[at] = lpn;
        if owner != Owner::None {
            self.rows.set_owner(row, at, owner);
        }
        if self.stamps {
            self.rows.stamps[at] = stamp;
            if self.rows.payload {
                self.rows.origins[at] = Origin::Memory;
            }
        }
        let previous = match self.map.set(lpn, Entry::At(ppn)) {
            Entry::At(old) => {
                self.invalidate(old, if stream == Stream::Host { number } else { 0 });
                if matches!(stream, Stream::Log | Stream::Mapping) {
                    let s = &mut self.space.superblocks[self.layout.superblock_of(old) as usize];
                    s.log_row_hazard = s.log_row_hazard.max(number);
                }
                if collected {
                    let s = &mut self.space.superblocks[self.layout.superblock_of(old) as usize];
                    s.collect_hazard = s.collect_hazard.max(number);
                }
                old
            }
            Entry::Unmapped => NOWHERE,
            Entry::Lost => LOST,
        };
        self.rows.previous[at] = previous;
        self.valid_bits.set(ppn);
        self.space.valid[superblock as usize] += 1;
        full
    }

    /// Opens the next row of a superblock. Returns whether it was the last of them, too.
    #[inline(always)]
    pub(super) fn open_row(&mut self, superblock: u32, stream: Stream, number: u64) -> (u32, bool) {
        let (row, full) = self.space.next_row(superblock);
        (self.rows.begin(superblock, row, stream, number), full)
    }

    /// Marks a unit as overtaken by the row with this number.
    #[inline(always)]
    pub(super) fn invalidate(&mut self, ppn: u32, host_row: u64) {
        let superblock = self.layout.superblock_of(ppn) as usize;
        debug_assert!(self.valid_bits.get(ppn));
        self.valid_bits.clear(ppn);
        self.space.valid[superblock] -= 1;
        let s = &mut self.space.superblocks[superblock];
        s.host_hazard = s.host_hazard.max(host_row);
        if self.space.starved > 0 {
            let die = u32::from(s.die);
            self.space.wake_if_starved(die);
        }
    }

    /// A unit of a row that was read: where it is, and whose. `None`: it was overwritten, lost or moved while it was
    /// read.
    #[inline]
    pub(super) fn still_valid(&self, operation: &Operation, unit: u32) -> Option<(u32, Place, u32)> {
        let ppn = self.layout.ppn(operation.superblock, operation.row, unit);
        if !self.valid_bits.get(ppn) {
            return None;
        }
        let place = self.place_of(ppn);
        Some((ppn, place, self.medium.lpn(place.at, place.page, place.unit)))
    }

    /// What a copy of a unit on flash is stamped with: version and sequence; zeroes where stamps are not kept.
    #[inline]
    pub(super) fn stamp_of_copy(&self, ppn: u32) -> (u64, u64) {
        let stamp = if self.stamps { self.stamp_at(ppn) } else { None };
        stamp.map_or((0, 0), |s| (s.version, s.sequence))
    }

    /// A host waits for a row to be filled: a timer runs that pads it.
    #[inline(always)]
    pub(super) fn time_row(&mut self, clock: &mut Clock, row: u32, owner: Owner) {
        let r = &mut self.rows.staged[row as usize];
        if owner != Owner::None && !r.timed {
            r.timed = true;
            let fill = Event::Fill { row, generation: r.generation };
            clock.events.push(clock.now + self.profile.fill_timeout, lane::SUSPEND, fill);
        }
    }

    /// Queues the program of a row; what is missing is filler.
    pub(super) fn queue_program(&mut self, clock: &mut Clock, source: Source, row: u32) {
        let r = &self.rows.staged[row as usize];
        let (superblock, index, count, units) = (r.superblock, r.row, r.count, self.layout.units_per_row);
        let first = row * units;
        self.rows.lpns[(first + count) as usize..(first + units) as usize].fill(Nand::NO_LPN);
        let die = self.layout.die_of(superblock);
        self.flash.enqueue(clock.now, clock.events, source, die, superblock, index, u64::MAX >> (64 - units), row);
    }

    /// Erases the superblocks whose data is safe elsewhere.
    pub(super) fn erase_drained(&mut self, clock: &mut Clock) {
        let mut i = 0;
        while i < self.space.draining.len() {
            let superblock = self.space.draining[i];
            let s = &self.space.superblocks[superblock as usize];
            let die = u32::from(s.die);
            // What is most often still under way is asked first.
            if self.rows.collected[die as usize].is_settled(s.collect_hazard)
                && self.rows.host.is_settled(s.host_hazard)
                && self.rows.log.is_settled(s.log_row_hazard)
                && self.space.programmed[superblock as usize] == s.rows
                && self.checkpoint.is_logged(s.log_hazard)
            {
                self.space.draining.swap_remove(i);
                self.queue_erase(clock, superblock);
            } else {
                i += 1;
            }
        }
    }

    pub(super) fn queue_erase(&mut self, clock: &mut Clock, superblock: u32) {
        let s = &mut self.space.superblocks[superblock as usize];
        s.state = State::Erasing;
        let die = u32::from(s.die);
        self.flash.enqueue(clock.now, clock.events, Source::Erase, die, superblock, 0, 0, superblock);
    }

    pub(super) fn one_unit_per_page(&self) -> u64 {
        (0..self.layout.planes()).fold(0, |units, plane| units | 1 << (plane * self.layout.units_per_page))
    }

    /// Rows of a superblock that a program reached, torn ones included.
    pub(super) fn rows_programmed(&self, superblock: u32) -> u32 {
        (0..self.layout.planes()).map(|p| self.medium.programmed(self.layout.block(superblock, p))).max().unwrap_or(0)
    }

    /// The newest header of a row; planes of one program agree.
    pub(super) fn row_header(&self, superblock: u32, row: u32) -> Option<PageHeader> {
        let planes = 0..self.layout.planes();
        planes
            .filter_map(|p| self.medium.header(self.layout.block(superblock, p), row))
            .max_by_key(|h| h.program_sequence)
    }

    /// What a superblock is for, from its first readable row.
    pub(super) fn content(&self, superblock: u32) -> Option<PageKind> {
        (0..self.rows_programmed(superblock)).find_map(|row| self.row_header(superblock, row)).map(|h| h.kind)
    }

    /// The stamp of a unit on flash.
    pub(super) fn stamp_at(&self, ppn: u32) -> Option<Stamp> {
        let (superblock, row, unit) =
            (self.layout.superblock_of(ppn), self.layout.row_of(ppn), self.layout.unit_of(ppn));
        let at = self.layout.block(superblock, unit / self.layout.units_per_page);
        self.medium.stamp(at, row, unit % self.layout.units_per_page)
    }

    /// Where on the medium a unit is.
    pub(super) fn place_of(&self, ppn: u32) -> Place {
        let (unit, per_page) = (self.layout.unit_of(ppn), self.layout.units_per_page);
        let at = self.layout.block(self.layout.superblock_of(ppn), unit / per_page);
        Place { at, page: self.layout.row_of(ppn), unit: unit % per_page }
    }

    /// Where a unit's bytes are that is mapped.
    pub(super) fn origin_of(&self, ppn: u32) -> Origin {
        let (superblock, row) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
        if row < u32::from(self.space.programmed[superblock as usize]) {
            return Origin::Copy(self.place_of(ppn));
        }
        let staged = self.rows.at(superblock, row).expect("a row that is not programmed is staged");
        match self.rows.origins[(staged * self.layout.units_per_row + self.layout.unit_of(ppn)) as usize] {
            Origin::Copy(place) => Origin::Copy(place),
            _ => Origin::Shared,
        }
    }

    /// What an entry says of what is on flash: 0 for nothing, all ones for what was lost, else the unit's number plus
    /// one.
    pub(super) fn durable_entry(&self, lpn: u32) -> u32 {
        match self.map.get(lpn) {
            Entry::Unmapped => 0,
            Entry::Lost => u32::MAX,
            Entry::At(ppn) => match self.durable_place(ppn) {
                NOWHERE => 0,
                LOST => u32::MAX,
                ppn => {
                    debug_assert!(
                        !self.stamps || self.stamp_at(ppn).is_some_and(|stamp| stamp.lpn == lpn),
                        "{lpn} is not on flash at {ppn}, which a map there would say"
                    );
                    ppn + 1
                }
            },
        }
    }

    /// Where a unit is on flash, or was before the rows that are under way; or [`NOWHERE`], or [`LOST`].
    pub(super) fn durable_place(&self, mut ppn: u32) -> u32 {
        loop {
            let (superblock, row) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
            let is_programmed = row < u32::from(self.space.programmed[superblock as usize]);
            // The units of a row that failed are in memory while they are written again.
            if is_programmed && !self.space.superblocks[superblock as usize].failed {
                return ppn;
            }
            let Some(staged) = self.rows.at(superblock, row) else { return if is_programmed { ppn } else { NOWHERE } };
            ppn = self.rows.previous[(staged * self.layout.units_per_row + self.layout.unit_of(ppn)) as usize];
            if ppn == NOWHERE || ppn == LOST {
                return ppn;
            }
        }
    }

    /// The program sequence through which every row is programmed, and is known to the map: `uncommitted` is the first
    /// that is not.
    pub(super) fn complete_through(&self, uncommitted: Option<u64>) -> u64 {
        let open = self.rows.staged.iter().filter(|r| r.in_use && r.stream != Stream::Map).map(|r| r.program_sequence);
        open.chain(uncommitted).min().map_or(self.rows.sequence, |first| first - 1)
    }

    /// Superblocks that the map takes, at most.
    pub(super) fn map_superblocks(&self) -> u32 {
        let c = &self.checkpoint;
        if c.interval == 0 { 0 } else { map_superblocks_of(u64::from(c.segments), self.layout.rows) as u32 }
    }

    /// Logical pages.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Logical pages of the block side: the fast side's LBA rings and the byte window's dumps lie behind them.
    pub fn data_units(&self) -> u32 {
        self.data_units
    }

    /// The shape of the physical address space.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The map.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The end of life: it takes no writes, and nothing is under way that could make room.
    #[inline]
    pub fn is_worn_out(&self) -> bool {
        self.is_read_only() && self.flash.outstanding() == 0
    }

    /// Programs done, of all sources.
    pub fn programs_done(&self) -> u64 {
        let sources = [Source::HostProgram, Source::CollectProgram, Source::Destage, Source::Map];
        sources.iter().map(|&source| self.flash.statistics().operations_of(source)).sum()
    }

    /// Whether the end of life has made the drive read-only.
    pub fn is_read_only(&self) -> bool {
        self.space.read_only
    }

    /// Asks the processor to fetch the map entry of a logical page that will be needed soon.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        self.map.prefetch(lpn);
    }

    /// Asks the processor to fetch what overwriting a logical page will change, once its map entry is near.
    #[inline]
    pub fn prefetch_overwritten(&self, lpn: u32) {
        if let Entry::At(ppn) = self.map.get(lpn) {
            self.valid_bits.prefetch(ppn);
            prefetch_index::prefetch_index(&self.space.superblocks, self.layout.superblock_of(ppn) as usize);
        }
    }

    /// The write sequence of the newest unit.
    pub fn write_sequence(&self) -> u64 {
        self.write_sequence
    }

    /// Superblocks that are not bad.
    pub fn good_superblocks(&self) -> u32 {
        self.space.good_superblocks
    }

    /// Erase counts of all superblocks that are not bad.
    pub fn erase_counts(&self) -> impl Iterator<Item = u32> {
        self.space.superblocks.iter().filter(|s| s.state != State::Bad).map(|s| s.erases)
    }

    /// Free superblocks of the die that has fewest, and of the one that has most.
    pub fn free_superblocks(&self) -> (usize, usize) {
        let free = || self.space.dies.iter().map(|d| d.free.len());
        (free().min().unwrap_or(0), free().max().unwrap_or(0))
    }

    /// Superblocks of all dies that hold nothing: erased, being erased, or collected and waiting for that.
    pub fn vacant_superblocks(&self) -> usize {
        let is_vacant = |s: &&Superblock| matches!(s.state, State::Free | State::Draining | State::Erasing);
        self.space.superblocks.iter().filter(is_vacant).count()
    }

    /// Deallocates logical pages. Returns whether any of them was mapped.
    pub(super) fn deallocate(&mut self, first: u32, count: u32) -> bool {
        self.write_sequence += 1;
        let end = first + count;
        let mut any = false;
        let mut lpn = first;
        while lpn < end {
            if self.map.is_untouched(lpn, lpn) {
                // Nothing in this chunk: on to the next.
                lpn = (lpn / (2 << 20) + 1).saturating_mul(2 << 20).min(end);
                continue;
            }
            if let old @ (Entry::At(_) | Entry::Lost) = self.map.set(lpn, Entry::Unmapped) {
                any = true;
                self.statistics.deallocated += 1;
                if let Entry::At(ppn) = old {
                    self.invalidate(ppn, 0);
                    self.space.superblocks[self.layout.superblock_of(ppn) as usize].log_hazard = self.write_sequence;
                }
            }
            lpn += 1;
        }
        if any {
            self.checkpoint.log_deallocation(first, count, self.write_sequence);
        }
        any
    }

    /// A unit can't be read any more: reads of it fail, until it is written again.
    pub(super) fn lose(&mut self, lpn: u32, ppn: u32) {
        self.statistics.lost += 1;
        self.map.set(lpn, Entry::Lost);
        self.invalidate(ppn, 0);
        // Logged like a deallocation, of no pages: an older copy must not come back in its place.
        if self.stamp_at(ppn).is_some_and(|stamp| stamp.lpn == lpn) {
            // One of its own, as a deallocation that follows has: else the order of both would be unknown.
            self.write_sequence += 1;
            let sequence = self.write_sequence;
            self.checkpoint.log_deallocation(lpn, 0, sequence);
            let hazard = &mut self.space.superblocks[self.layout.superblock_of(ppn) as usize].log_hazard;
            *hazard = sequence.max(*hazard);
        }
    }

    /// Pages say from now on where their units come from, for the payload store; needs stamps.
    pub fn keep_sources(&mut self) {
        assert!(self.stamps, "payload is kept by version, which only stamps tell");
        self.rows.keep_sources();
    }

    /// Every unit in a row that is not programmed yet, overtaken ones included, with its version; needs stamps.
    pub fn unprogrammed(&self) -> impl Iterator<Item = (u32, u64)> {
        let units = self.layout.units_per_row as usize;
        let is_data = |row: &Row| row.in_use && !matches!(row.stream, Stream::Map | Stream::Mapping);
        let rows = self.rows.staged.iter().enumerate().filter(move |(_, row)| is_data(row));
        rows.flat_map(move |(id, row)| {
            let places = id * units..id * units + row.count as usize;
            places.map(|at| (self.rows.lpns[at], self.rows.stamps[at].0))
        })
    }

    /// Takes the owners whose units were programmed since the last call.
    #[inline]
    pub fn take_acknowledged(&mut self) -> Option<Owner> {
        self.rows.acknowledged.pop().map(Owner::unpack)
    }

    /// Takes the owners of log pages that were written again since the last call.
    pub fn take_rewritten(&mut self) -> Option<Owner> {
        self.rows.rewritten.pop().map(Owner::unpack)
    }

    /// Whether [`Store::take_rejected`] has one.
    #[inline]
    pub fn has_rejected(&self) -> bool {
        !self.rows.rejected.is_empty()
    }

    /// Takes the owners whose units could not be programmed since the last call.
    pub fn take_rejected(&mut self) -> Option<Owner> {
        self.rows.rejected.pop().map(Owner::unpack)
    }

    /// The owners of the units in a row that is under way.
    pub fn owners_of_row(&self, row: u32) -> impl Iterator<Item = Owner> {
        self.rows.owners_of(row)
    }

    /// Checks what must always hold; for tests, since it walks everything.
    pub(super) fn assert_consistent(&self) {
        let mut valid = vec![0u32; self.space.superblocks.len()];
        for lpn in 0..self.map.units() {
            if let Entry::At(ppn) = self.map.get(lpn) {
                assert!(self.valid_bits.get(ppn), "{lpn} maps to invalid unit {ppn}");
                valid[self.layout.superblock_of(ppn) as usize] += 1;
            }
        }
        for (i, s) in self.space.superblocks.iter().enumerate() {
            assert_eq!(
                self.space.valid[i] & !NOT_A_CANDIDATE,
                valid[i],
                "superblock {i} ({s:?}) counts its valid units wrong"
            );
            assert_eq!(
                self.space.valid[i] & NOT_A_CANDIDATE == 0,
                s.state == State::Closed
                    && !matches!(s.stream, Stream::Map | Stream::Mapping)
                    && (s.stream != Stream::Slc || s.failed),
                "superblock {i} {s:?}"
            );
        }
    }
}
