//! Recovery: the map comes back from checkpoints and out-of-band areas, by reads that take their time.
//!
//! 1. The first and the last row of every superblock say what it is for and how new it is.
//! 2. All rows of map superblocks are read: the newest image of each segment, and the deallocations.
//! 3. Rows of data above the checkpoint's floor are scanned, newest first, until the floor is reached.
//! 4. Where the map is in mapping pages, the checkpoints are of their directory, and the mapping pages that it names
//!    are read.
//! 5. For each logical page the copy with the highest write sequence wins.
//!
//! Until the last step nothing is written, so a power loss during recovery changes nothing.

use super::journal::{HEADER_WORDS, MapSuperblock};
use super::placement::Placement;
use super::store::{Clock, Entry, State, Store, Stream};
use crate::flash::Source;
use crate::flaw::Injected;
use crate::layout::Layout;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tidewater_base::{Duration, Instant};
use tidewater_nand::{Medium, Nand, PageKind, Stamp};

/// A recovery that is broken on purpose, to show that the harness notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Rows above the floor are not scanned.
    NoScan,
    /// The first copy that is found wins, not the newest.
    AnyCopy,
    /// Deallocations are forgotten.
    NoDeallocations,
    /// A merge that was cut counts as done: what it had not copied yet is given up with the data block (hybrid
    /// mapping).
    CutMerges,
    /// Mapping pages that were programmed after the last image of their directory are not found (mapping cache).
    OldDirectory,
}

/// What a recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// From power-on until the drive took commands.
    pub time: Duration,
    /// Flash reads.
    pub reads: u64,
    /// Superblocks whose rows were scanned.
    pub scanned_superblocks: u64,
    /// Logical pages that are mapped.
    pub mapped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Headers,
    Map,
    Scan,
    /// The mapping pages that the directory names are read.
    Pages,
}

/// Write sequence and program sequence of the winner so far, by logical page.
type Best = BTreeMap<u32, (u64, u64)>;

#[derive(Clone, Debug)]
pub(super) struct Recovery {
    began: Instant,
    phase: Phase,
    outstanding: u64,
    report: RecoveryReport,
    flaw: Injected<Flaw>,
    images: BTreeMap<u32, (u64, Arc<[u32]>, u32)>,
    deallocations: Vec<(u32, u32, u64)>,
    /// Program sequence of the last deallocations in each map superblock that logs some.
    logs: BTreeMap<u32, u64>,
    floor: u64,
    scanned: Vec<u32>,
}

impl Recovery {
    /// Begins to recover a store whose medium has lived. `deallocations` have survived in memory and are not on flash.
    pub fn begin<M: Medium>(
        store: &mut Store<M>,
        by: &mut impl Placement<M>,
        clock: &mut Clock,
        flaw: Injected<Flaw>,
        deallocations: Vec<(u32, u32, u64)>,
    ) -> Recovery {
        store.layout.recover(&store.medium);
        store.space.forget_free();
        by.forget(store);
        store.checkpoint.pending = deallocations;
        store.recovering = true;
        let mut recovery = Recovery {
            began: clock.now,
            phase: Phase::Headers,
            outstanding: 0,
            report: RecoveryReport::default(),
            flaw,
            images: BTreeMap::new(),
            deallocations: Vec::new(),
            logs: BTreeMap::new(),
            floor: 0,
            scanned: Vec::new(),
        };
        let one_per_page = store.one_unit_per_page();
        for superblock in 0..store.layout.superblocks() {
            if store.layout.is_whole(superblock) {
                recovery.read(store, clock, superblock, 0, one_per_page);
                let last = store.rows_programmed(superblock);
                if last > 1 {
                    recovery.read(store, clock, superblock, last - 1, one_per_page);
                }
            }
        }
        recovery
    }

    /// Flash reads so far.
    pub fn reads(&self) -> u64 {
        self.report.reads
    }

    fn read<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, superblock: u32, row: u32, units: u64) {
        self.outstanding += 1;
        self.report.reads += 1;
        let die = u32::from(store.space.superblocks[superblock as usize].die);
        store.flash.enqueue(clock.now, clock.events, Source::Recovery, die, superblock, row, units, 0);
    }

    /// One of its reads is done.
    pub fn on_read(&mut self) {
        self.outstanding -= 1;
    }

    /// Goes on where all reads are done. Returns what it did once it has ended.
    pub fn resume<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        by: &mut impl Placement<M>,
        clock: &mut Clock,
    ) -> Option<RecoveryReport> {
        while self.outstanding == 0 {
            match self.phase {
                Phase::Headers => {
                    self.phase = Phase::Map;
                    by.learn_modes(store);
                    self.read_map_rows(store, clock);
                }
                Phase::Map => {
                    self.phase = Phase::Scan;
                    self.load_images(store);
                    self.scan_data_rows(store, clock);
                }
                Phase::Scan if by.map_page_shift().is_some() => {
                    self.phase = Phase::Pages;
                    self.read_mapping_pages(store, by, clock);
                }
                Phase::Scan | Phase::Pages => {
                    store.recovering = false;
                    self.rebuild(store, by, clock);
                    return Some(self.report);
                }
            }
        }
        None
    }

    fn read_map_rows<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        let all = u64::MAX >> (64 - store.layout.units_per_row);
        for superblock in 0..store.layout.superblocks() {
            if store.layout.is_whole(superblock) && is_map(store.content(superblock)) {
                for row in 0..store.rows_programmed(superblock) {
                    self.read(store, clock, superblock, row, all);
                }
            }
        }
    }

    fn load_images<M: Medium>(&mut self, store: &mut Store<M>) {
        for superblock in 0..store.layout.superblocks() {
            if !store.layout.is_whole(superblock) || !is_map(store.content(superblock)) {
                continue;
            }
            for row in 0..store.rows_programmed(superblock) {
                let Some(header) = store.row_header(superblock, row) else { continue };
                let Some(payload) = store.medium.own_payload(store.layout.block(superblock, 0), row) else { continue };
                let word = |i: usize| u64::from(payload[i]) | u64::from(payload[i + 1]) << 32;
                match header.kind {
                    PageKind::Map => {
                        self.floor = self.floor.max(word(0));
                        store.write_sequence = store.write_sequence.max(word(2));
                        let newer = self.images.get(&header.index).is_none_or(|i| i.0 < header.program_sequence);
                        if newer {
                            self.images.insert(header.index, (header.program_sequence, payload, superblock));
                        }
                    }
                    PageKind::Trim => {
                        let last = self.logs.entry(superblock).or_default();
                        *last = header.program_sequence.max(*last);
                        for r in payload.chunks_exact(4) {
                            self.deallocations.push((r[0], r[1], u64::from(r[2]) | u64::from(r[3]) << 32));
                        }
                    }
                    PageKind::Data => {}
                }
            }
        }
    }

    fn scan_data_rows<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        let floor = self.floor;
        if self.flaw.is(Flaw::NoScan) && floor > 0 {
            return;
        }
        let one_per_page = store.one_unit_per_page();
        for superblock in 0..store.layout.superblocks() {
            if !store.layout.is_whole(superblock) || is_map(store.content(superblock)) {
                continue;
            }
            let mut any = false;
            for row in (0..store.rows_programmed(superblock)).rev() {
                // A torn row has no header; it says nothing of the rows before it.
                if store.row_header(superblock, row).is_some_and(|h| h.program_sequence <= floor) {
                    break;
                }
                any = true;
                self.read(store, clock, superblock, row, one_per_page);
            }
            if any {
                self.scanned.push(superblock);
            }
        }
    }

    fn rebuild<M: Medium>(&mut self, store: &mut Store<M>, by: &mut impl Placement<M>, clock: &mut Clock) {
        let mut best = Best::new();
        let mut unsaved = Vec::new();
        let lpns = match by.map_page_shift() {
            None => {
                self.adopt_images(store, &mut best);
                0..store.map.units()
            }
            Some(shift) => {
                adopt_mapping_pages(store, shift, &mut best);
                0..store.units
            }
        };
        self.adopt_rows(store, by, lpns, &mut best, &mut unsaved);
        self.deallocations.extend_from_slice(&store.checkpoint.pending);
        // What was logged later holds, wherever its superblock is: a page may have been lost since it was deallocated,
        // or before.
        self.deallocations.sort_by_key(|&(.., sequence)| sequence);
        for &(first, count, sequence) in &self.deallocations {
            store.write_sequence = store.write_sequence.max(sequence);
            if self.flaw.is(Flaw::NoDeallocations) {
                continue;
            }
            // No pages: this one was lost.
            let (count, entry) = if count == 0 { (1, Entry::Lost) } else { (count, Entry::Unmapped) };
            for lpn in first..first.saturating_add(count).min(store.map.units()) {
                if best.get(&lpn).is_none_or(|b| b.0 < sequence) && store.map.set(lpn, entry) != entry {
                    unsaved.push(lpn);
                }
            }
        }
        if self.flaw.is(Flaw::CutMerges) {
            by.break_merges(store);
        }
        self.adopt_all(store, by, clock);
        by.on_unsaved(self.floor, unsaved);
        self.report.time = clock.now - self.began;
        self.report.scanned_superblocks = self.scanned.len() as u64;
        let directory = (store.units..store.map.units()).filter(|&lpn| store.map.get(lpn) != Entry::Unmapped).count();
        self.report.mapped = store.map.mapped() - directory as u64;
        for die in 0..store.layout.dies {
            by.update_ready(store, die);
        }
        store.check_end_of_life(by);
        store.recycle_map(clock);
        by.on_recovered(store, clock);
    }

    /// Takes the entries that the checkpoints hold.
    fn adopt_images<M: Medium>(&self, store: &mut Store<M>, best: &mut Best) {
        for (&segment, (_, image, _)) in &self.images {
            let first = store.checkpoint.first + segment * store.checkpoint.entries;
            for (i, &entry) in image[HEADER_WORDS..].iter().enumerate() {
                adopt_entry(store, first + i as u32, entry, best);
            }
        }
    }

    /// Takes what the scanned rows hold of these logical pages, where it is newer; `newer`: what was.
    fn adopt_rows<M: Medium>(
        &self,
        store: &mut Store<M>,
        by: &impl Placement<M>,
        lpns: Range<u32>,
        best: &mut Best,
        newer: &mut Vec<u32>,
    ) {
        for &superblock in &self.scanned {
            let rows = store.rows_programmed(superblock);
            for row in 0..rows {
                let Some(header) = store.row_header(superblock, row) else { continue };
                let is_cut = !self.flaw.is(Flaw::CutMerges) && by.is_uncommitted(store, superblock, row, rows);
                if header.program_sequence <= self.floor || is_cut {
                    continue;
                }
                // What mapping pages say lies in the first plane: where that failed they are written again.
                let says = lpns.end > store.units
                    && store.medium.own_payload(store.layout.block(superblock, 0), row).is_some();
                for unit in 0..store.layout.units_per_row {
                    let ppn = store.layout.ppn(superblock, row, unit);
                    let counts = |s: &Stamp| lpns.contains(&s.lpn) && (s.lpn < store.units || says);
                    let Some(stamp) = store.stamp_at(ppn).filter(counts) else { continue };
                    let key = (stamp.sequence, header.program_sequence);
                    let any = self.flaw.is(Flaw::AnyCopy);
                    let wins = best.get(&stamp.lpn).is_none_or(|&b| b < key && !any);
                    if wins {
                        best.insert(stamp.lpn, key);
                        store.map.set(stamp.lpn, Entry::At(ppn));
                        newer.push(stamp.lpn);
                    }
                    store.write_sequence = store.write_sequence.max(stamp.sequence);
                }
            }
        }
    }

    /// Gives every superblock its state, and counts what is valid.
    fn adopt_all<M: Medium>(&self, store: &mut Store<M>, by: &mut impl Placement<M>, clock: &mut Clock) {
        for lpn in 0..store.map.units() {
            if let Entry::At(ppn) = store.map.get(lpn) {
                store.valid_bits.set(ppn);
                store.space.valid[store.layout.superblock_of(ppn) as usize] += 1;
            }
        }
        let mut map_superblocks: Vec<(u64, u32)> = Vec::new();
        let mut partial: Vec<(u32, u32)> = Vec::new();
        for superblock in 0..store.layout.superblocks() {
            if !store.layout.is_whole(superblock) {
                store.space.superblocks[superblock as usize].state = State::Bad;
                continue;
            }
            let blocks = (0..store.layout.planes()).map(|p| store.layout.block(superblock, p));
            let (mut torn, mut bad, mut erases) = (false, false, 0);
            for at in blocks {
                torn |= store.medium.is_torn(at);
                bad |= store.medium.is_bad(at);
                erases = erases.max(store.medium.erase_count(at));
            }
            let rows = store.rows_programmed(superblock);
            let newest = (0..rows).rev().find_map(|row| store.row_header(superblock, row));
            store.rows.sequence = store.rows.sequence.max(newest.map_or(0, |h| h.program_sequence));
            let content = store.content(superblock);
            store.space.good_superblocks += 1;
            let all_rows = store.layout.rows as u16;
            by.adopt_mode(store, superblock);
            let rows_of = store.space.rows_of(superblock);
            let s = &mut store.space.superblocks[superblock as usize];
            s.erases = erases;
            let die = s.die as usize;
            store.space.dies[die].erases_max = store.space.dies[die].erases_max.max(erases);
            if rows == 0 && !torn && !bad {
                store.space.put_free(superblock);
                continue;
            }
            let planes = 0..store.layout.planes();
            let even = planes.into_iter().all(|p| store.medium.programmed(store.layout.block(superblock, p)) == rows);
            let goes_on = rows < rows_of && even && !torn && !bad;
            let s = &mut store.space.superblocks[superblock as usize];
            s.rows = all_rows;
            store.space.programmed[superblock as usize] = all_rows;
            s.state = State::Closed;
            if content.is_none() && store.space.valid_units(superblock) == 0 {
                store.queue_erase(clock, superblock);
            } else if content == Some(PageKind::Data) && by.adopt_own(store, superblock, goes_on.then_some(rows), bad) {
                // It goes on, or waits to be collected, as the placement says.
            } else if content == Some(PageKind::Data) && goes_on {
                partial.push((rows, superblock));
            } else if is_map(content) {
                store.space.superblocks[superblock as usize].stream = Stream::Map;
                map_superblocks.push((newest.map_or(0, |h| h.program_sequence), superblock));
            } else {
                store.space.superblocks[superblock as usize].failed = bad;
                if bad || !store.space.is_slc(superblock) {
                    store.space.may_collect(superblock);
                }
                if bad {
                    by.adopt_bad(die as u32, superblock);
                }
            }
        }
        by.adopt(store, clock, &mut partial);
        map_superblocks.sort_unstable();
        for (_, superblock) in map_superblocks {
            let images = self.images.iter().filter(|(_, image)| image.2 == superblock);
            let live = images.clone().count() as u32;
            for (&segment, _) in images {
                store.checkpoint.locations[segment as usize] = superblock;
            }
            let log = self.logs.get(&superblock).copied().unwrap_or(0);
            store.checkpoint.ring.push_back(MapSuperblock { superblock, live, log });
        }
        store.checkpoint.floor = self.floor;
        store.checkpoint.begin_at(self.floor);
    }

    /// Finds the newest copy of each mapping page, and reads it.
    fn read_mapping_pages<M: Medium>(&mut self, store: &mut Store<M>, by: &impl Placement<M>, clock: &mut Clock) {
        let mut best = Best::new();
        self.adopt_images(store, &mut best);
        if !self.flaw.is(Flaw::OldDirectory) {
            self.adopt_rows(store, by, store.units..store.map.units(), &mut best, &mut Vec::new());
        }
        let mut rows: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for lpn in store.units..store.map.units() {
            if let Entry::At(ppn) = store.map.get(lpn) {
                let row = (store.layout.superblock_of(ppn), store.layout.row_of(ppn));
                *rows.entry(row).or_default() |= 1 << store.layout.unit_of(ppn);
            }
        }
        for ((superblock, row), units) in rows {
            self.read(store, clock, superblock, row, units);
        }
    }
}

fn is_map(kind: Option<PageKind>) -> bool {
    matches!(kind, Some(PageKind::Map | PageKind::Trim))
}

/// Takes one entry as it was on flash.
fn adopt_entry<M: Medium>(store: &mut Store<M>, lpn: u32, entry: u32, best: &mut Best) {
    if entry == u32::MAX {
        store.map.set(lpn, Entry::Lost);
    } else if entry != 0
        && store.layout.is_whole(store.layout.superblock_of(entry - 1))
        // If the unit was moved since, its old place has the stamp of another page, or none; the scan finds the
        // copy.
        && let Some(stamp) = store.stamp_at(entry - 1).filter(|s| s.lpn == lpn)
    {
        store.map.set(lpn, Entry::At(entry - 1));
        let row = store.row_header(store.layout.superblock_of(entry - 1), store.layout.row_of(entry - 1));
        best.insert(lpn, (stamp.sequence, row.map_or(0, |h| h.program_sequence)));
    }
}

/// Takes the entries of the mapping pages that were read.
fn adopt_mapping_pages<M: Medium>(store: &mut Store<M>, shift: u32, best: &mut Best) {
    for page in 0..store.map.units() - store.units {
        let Entry::At(ppn) = store.map.get(store.units + page) else { continue };
        let first = store.layout.block(store.layout.superblock_of(ppn), 0);
        let Some(images) = store.medium.own_payload(first, store.layout.row_of(ppn)) else { continue };
        let at = (store.layout.unit_of(ppn) as usize) << shift;
        for (i, &entry) in images.iter().skip(at).take(1 << shift).enumerate() {
            let lpn = (page << shift) + i as u32;
            if lpn < store.units {
                adopt_entry(store, lpn, entry, best);
            }
        }
    }
}

impl Layout {
    /// Finds out which block stands in for which, from the headers of programmed pages; erased blocks fill what is
    /// left.
    pub fn recover<M: Medium>(&mut self, medium: &M) {
        let mut claims: BTreeMap<(u32, u32), (u64, u32)> = BTreeMap::new();
        let mut claimed: BTreeMap<(u32, u32, u32), (u32, u32)> = BTreeMap::new();
        let config = medium.config();
        let (dies, planes, blocks) = (config.dies(), config.planes, config.blocks_per_plane);
        let at = |die, plane, block| tidewater_nand::Block { die, plane, block };
        for die in 0..dies {
            for plane in 0..planes {
                for block in 0..blocks {
                    let pages = medium.programmed(at(die, plane, block));
                    let header = (0..pages).rev().find_map(|page| medium.header(at(die, plane, block), page));
                    let Some(header) = header.filter(|h| h.superblock < self.superblocks()) else { continue };
                    let key = (header.superblock, plane);
                    if claims.get(&key).is_none_or(|c| c.0 < header.program_sequence) {
                        claims.insert(key, (header.program_sequence, block));
                    }
                }
            }
        }
        for (&(superblock, plane), &(_, block)) in &claims {
            claimed.insert((self.die_of(superblock), plane, block), (superblock, plane));
        }
        for die in 0..dies {
            for plane in 0..planes {
                let mut free: Vec<u32> = (0..blocks)
                    .filter(|&b| !medium.is_bad(at(die, plane, b)) && !claimed.contains_key(&(die, plane, b)))
                    .rev()
                    .collect();
                for i in 0..self.superblocks_per_die {
                    let superblock = die * self.superblocks_per_die + i;
                    let block = claims.get(&(superblock, plane)).map(|c| c.1).or_else(|| free.pop());
                    self.set_block(superblock, plane, block.unwrap_or(Self::NO_BLOCK));
                }
                self.set_spares(die, plane, free);
            }
        }
    }
}

const _: () = assert!(Nand::NO_LPN == u32::MAX);

#[cfg(test)]
mod tests {
    use super::super::{Ftl, Plan};
    use super::*;
    use crate::device::plan;
    use crate::events::{Event, EventQueue};
    use crate::owner::Owner;
    use crate::profile::Profile;
    use tidewater_nand::{Cell, Stamps};

    /// A translation layer of four dies with blocks of four pages, which writes no checkpoints to speak of.
    struct Drive {
        profile: Profile,
        plan: Plan,
        ftl: Ftl<Nand>,
        events: EventQueue,
        now: Instant,
    }

    impl Drive {
        fn new() -> Drive {
            let mut p = Profile::generic();
            p.buffer.write_policy = "none".into();
            (p.ftl.spare_blocks, p.ftl.checkpoint_interval) = (0.0, 10_000);
            (p.nand.channels, p.nand.ways, p.nand.planes) = (2, 2, 1);
            (p.nand.blocks_per_plane, p.nand.pages_per_block, p.nand.page_size) = (16, 4, 4 << 10);
            (p.nand.cell, p.nand.factory_bad_rate) = (Cell::Slc, 0.0);
            p.check().unwrap();
            let plan = plan(&p, 0).unwrap();
            let nand = Nand::new(&p.nand, p.ftl.unit_size, Stamps::Full, 1);
            let ftl = Ftl::new(&p, nand, &plan, Stamps::Full);
            Drive { profile: p, plan, ftl, events: EventQueue::new(64), now: Instant::ZERO }
        }

        fn rest(&mut self) {
            let (ftl, events) = (&mut self.ftl, &mut self.events);
            while let Some(at) = events.next_at() {
                self.now = at;
                let done = match events.pop_due(at).expect("it is due") {
                    Event::Bus { channel, inward: true } => ftl.flash.on_loaded(at, events, channel),
                    Event::Bus { channel, inward: false } => Some(ftl.flash.on_unloaded(at, events, channel)),
                    Event::Cell { die, generation, kind } => ftl.on_cell(at, events, die, generation, kind),
                    event => unreachable!("{event:?} is not of the flash side"),
                };
                if let Some(done) = done {
                    let kind = ftl.flash.operation(done).kind();
                    ftl.on_done(at, events, kind, done);
                }
            }
        }

        fn flush(&mut self) {
            let mark = self.ftl.begin_flush(self.now, &mut self.events);
            self.rest();
            assert!(self.ftl.is_durable(mark));
        }

        fn write(&mut self, lpn: u32) {
            assert!(self.ftl.can_write());
            self.ftl.write(self.now, &mut self.events, lpn, 1, Owner::None);
            self.flush();
        }

        fn deallocate(&mut self, lpn: u32) {
            self.ftl.deallocate(lpn, 1);
            self.flush();
        }

        fn lose(&mut self, lpn: u32) {
            let Entry::At(ppn) = self.ftl.map().get(lpn) else { panic!("{lpn} is nowhere") };
            self.ftl.lose(lpn, ppn);
            self.flush();
        }

        /// Deallocations of other pages fill the superblock that takes their log. The next goes to one of a lower
        /// number.
        fn fill_log(&mut self) {
            let first = self.ftl.checkpoint.ring.back().expect("something was logged").superblock;
            for lpn in 20.. {
                self.write(lpn);
                self.deallocate(lpn);
                let last = self.ftl.checkpoint.ring.back().expect("something was logged").superblock;
                if last != first {
                    return assert!(last < first, "{last} after {first}");
                }
            }
        }

        fn after_power_loss(mut self) -> Ftl<Nand> {
            let medium = self.ftl.cut_power();
            let (events, sound) = (&mut self.events, Injected::NONE);
            let ftl = Ftl::power_on(&self.profile, medium, &self.plan, self.now, events, sound, Vec::new());
            self.ftl = ftl;
            self.rest();
            assert!(!self.ftl.is_recovering());
            self.ftl
        }
    }

    /// The log was applied in the order in which its superblocks are numbered: a page that flash had lost read as
    /// zeroes, as if it had been deallocated, and one that had been deallocated since could not be read.
    #[test]
    fn of_what_the_log_says_of_a_page_the_last_holds() {
        let mut drive = Drive::new();
        drive.write(5);
        drive.deallocate(5);
        drive.fill_log();
        drive.write(5);
        drive.lose(5);
        assert_eq!(drive.after_power_loss().map().get(5), Entry::Lost);

        let mut drive = Drive::new();
        drive.write(5);
        drive.lose(5);
        drive.fill_log();
        drive.deallocate(5);
        assert_eq!(drive.after_power_loss().map().get(5), Entry::Unmapped);

        // Nothing was written between the two.
        let mut drive = Drive::new();
        drive.write(6);
        drive.deallocate(6);
        (0..2).for_each(|lpn| drive.write(lpn));
        drive.write(5);
        drive.lose(5);
        drive.deallocate(5);
        assert_eq!(drive.after_power_loss().map().get(5), Entry::Unmapped);
    }
}
