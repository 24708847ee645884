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

use super::checkpoint::{HEADER_WORDS, MapSuperblock};
use super::{Entry, Ftl, Plan, State, Stream};
use crate::events::EventQueue;
use crate::flash::{Operation, Source};
use crate::flaw::Injected;
use crate::profile::Profile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tidewater_base::{Duration, Instant};
use tidewater_nand::{Medium, Nand, PageKind, Stamp, Stamps};

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
pub(super) type Best = BTreeMap<u32, (u64, u64)>;

#[derive(Clone, Debug)]
pub(super) struct Recovery {
    began: Instant,
    phase: Phase,
    outstanding: u64,
    report: RecoveryReport,
    pub(super) flaw: Injected<Flaw>,
    images: BTreeMap<u32, (u64, Arc<[u32]>, u32)>,
    deallocations: Vec<(u32, u32, u64)>,
    /// Program sequence of the last deallocations in each map superblock that logs some.
    logs: BTreeMap<u32, u64>,
    floor: u64,
    scanned: Vec<u32>,
}

impl<M: Medium> Ftl<M> {
    /// Flash reads that a recovery under way has done; 0 when there is none.
    pub fn recovery_reads(&self) -> u64 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.report.reads)
    }

    /// A translation layer over a medium that has lived. It serves nothing until [`Ftl::is_recovering`] is false; drive
    /// it with events as always. `deallocations` have survived in memory and are not on flash.
    pub fn power_on(
        profile: &Profile,
        medium: M,
        plan: &Plan,
        now: Instant,
        events: &mut EventQueue,
        flaw: Injected<Flaw>,
        deallocations: Vec<(u32, u32, u64)>,
    ) -> Ftl<M> {
        let mut ftl = Ftl::new(profile, medium, plan, Stamps::Full);
        ftl.layout.recover(&ftl.medium);
        for die in &mut ftl.dies {
            die.free.clear();
            die.erases_max = 0;
        }
        ftl.empty_mapping_pools();
        ftl.good_superblocks = 0;
        ftl.free_superblocks = 0;
        ftl.checkpoint.pending = deallocations;
        ftl.recovery = Some(Box::new(Recovery {
            began: now,
            phase: Phase::Headers,
            outstanding: 0,
            report: RecoveryReport::default(),
            flaw,
            images: BTreeMap::new(),
            deallocations: Vec::new(),
            logs: BTreeMap::new(),
            floor: 0,
            scanned: Vec::new(),
        }));
        let one_per_page = ftl.one_unit_per_page();
        for superblock in 0..ftl.layout.superblocks() {
            if ftl.layout.is_whole(superblock) {
                ftl.recovery_read(now, events, superblock, 0, one_per_page);
                let last = ftl.rows_programmed(superblock);
                if last > 1 {
                    ftl.recovery_read(now, events, superblock, last - 1, one_per_page);
                }
            }
        }
        ftl.next_phase(now, events);
        ftl
    }

    /// Whether recovery is still under way.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    fn one_unit_per_page(&self) -> u64 {
        (0..self.layout.planes()).fold(0, |units, plane| units | 1 << (plane * self.layout.units_per_page))
    }

    /// Rows of a superblock that a program reached, torn ones included.
    pub(super) fn rows_programmed(&self, superblock: u32) -> u32 {
        (0..self.layout.planes()).map(|p| self.medium.programmed(self.layout.block(superblock, p))).max().unwrap_or(0)
    }

    pub(super) fn recovery_read(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        superblock: u32,
        row: u32,
        units: u64,
    ) {
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        recovery.outstanding += 1;
        recovery.report.reads += 1;
        let die = u32::from(self.superblocks[superblock as usize].die);
        self.flash.enqueue(now, events, Source::Recovery, die, superblock, row, units, 0);
    }

    pub(super) fn on_recovery_read(&mut self, now: Instant, events: &mut EventQueue, _operation: &Operation) {
        self.recovery.as_mut().expect("recovery is under way").outstanding -= 1;
        self.next_phase(now, events);
    }

    /// The newest header of a row; planes of one program agree.
    pub(super) fn row_header(&self, superblock: u32, row: u32) -> Option<tidewater_nand::PageHeader> {
        let planes = 0..self.layout.planes();
        planes
            .filter_map(|p| self.medium.header(self.layout.block(superblock, p), row))
            .max_by_key(|h| h.program_sequence)
    }

    /// What a superblock is for, from its first readable row.
    fn content(&self, superblock: u32) -> Option<PageKind> {
        (0..self.rows_programmed(superblock)).find_map(|row| self.row_header(superblock, row)).map(|h| h.kind)
    }

    fn next_phase(&mut self, now: Instant, events: &mut EventQueue) {
        while let Some(recovery) = &mut self.recovery
            && recovery.outstanding == 0
        {
            match recovery.phase {
                Phase::Headers => {
                    recovery.phase = Phase::Map;
                    self.learn_modes();
                    self.read_map_rows(now, events);
                }
                Phase::Map => {
                    recovery.phase = Phase::Scan;
                    self.load_images();
                    self.scan_data_rows(now, events);
                }
                Phase::Scan if self.map_cache.is_some() => {
                    recovery.phase = Phase::Pages;
                    self.read_mapping_pages(now, events);
                }
                Phase::Scan | Phase::Pages => self.rebuild(now, events),
            }
        }
    }

    fn is_map(kind: Option<PageKind>) -> bool {
        matches!(kind, Some(PageKind::Map | PageKind::Trim))
    }

    fn read_map_rows(&mut self, now: Instant, events: &mut EventQueue) {
        let all = u64::MAX >> (64 - self.layout.units_per_row);
        for superblock in 0..self.layout.superblocks() {
            if self.layout.is_whole(superblock) && Self::is_map(self.content(superblock)) {
                for row in 0..self.rows_programmed(superblock) {
                    self.recovery_read(now, events, superblock, row, all);
                }
            }
        }
    }

    fn load_images(&mut self) {
        let mut recovery = self.recovery.take().expect("recovery is under way");
        for superblock in 0..self.layout.superblocks() {
            if !self.layout.is_whole(superblock) || !Self::is_map(self.content(superblock)) {
                continue;
            }
            for row in 0..self.rows_programmed(superblock) {
                let Some(header) = self.row_header(superblock, row) else { continue };
                let Some(payload) = self.medium.own_payload(self.layout.block(superblock, 0), row) else { continue };
                let word = |i: usize| u64::from(payload[i]) | u64::from(payload[i + 1]) << 32;
                match header.kind {
                    PageKind::Map => {
                        recovery.floor = recovery.floor.max(word(0));
                        self.write_sequence = self.write_sequence.max(word(2));
                        let newer = recovery.images.get(&header.index).is_none_or(|i| i.0 < header.program_sequence);
                        if newer {
                            recovery.images.insert(header.index, (header.program_sequence, payload, superblock));
                        }
                    }
                    PageKind::Trim => {
                        let last = recovery.logs.entry(superblock).or_default();
                        *last = header.program_sequence.max(*last);
                        for r in payload.chunks_exact(4) {
                            recovery.deallocations.push((r[0], r[1], u64::from(r[2]) | u64::from(r[3]) << 32));
                        }
                    }
                    PageKind::Data => {}
                }
            }
        }
        self.recovery = Some(recovery);
    }

    fn scan_data_rows(&mut self, now: Instant, events: &mut EventQueue) {
        let (floor, flaw) = self.recovery.as_ref().map(|r| (r.floor, r.flaw)).expect("recovery is under way");
        if flaw.is(Flaw::NoScan) && floor > 0 {
            return;
        }
        let one_per_page = self.one_unit_per_page();
        for superblock in 0..self.layout.superblocks() {
            if !self.layout.is_whole(superblock) || Self::is_map(self.content(superblock)) {
                continue;
            }
            let mut any = false;
            for row in (0..self.rows_programmed(superblock)).rev() {
                // A torn row has no header; it says nothing of the rows before it.
                if self.row_header(superblock, row).is_some_and(|h| h.program_sequence <= floor) {
                    break;
                }
                any = true;
                self.recovery_read(now, events, superblock, row, one_per_page);
            }
            if any {
                self.recovery.as_mut().expect("recovery is under way").scanned.push(superblock);
            }
        }
    }

    /// The stamp of a unit on flash.
    pub(super) fn stamp_at(&self, ppn: u32) -> Option<Stamp> {
        let (superblock, row, unit) =
            (self.layout.superblock_of(ppn), self.layout.row_of(ppn), self.layout.unit_of(ppn));
        let at = self.layout.block(superblock, unit / self.layout.units_per_page);
        self.medium.stamp(at, row, unit % self.layout.units_per_page)
    }

    fn rebuild(&mut self, now: Instant, events: &mut EventQueue) {
        let mut recovery = self.recovery.take().expect("recovery is under way");
        let mut best = Best::new();
        let mut unsaved = Vec::new();
        match self.map_cache {
            None => {
                self.adopt_images(&recovery, &mut best);
                self.adopt_rows(&recovery, 0..self.map.units(), &mut best, &mut unsaved);
            }
            Some(_) => {
                self.adopt_mapping_pages(&mut best);
                self.adopt_rows(&recovery, 0..self.units, &mut best, &mut unsaved);
            }
        }
        recovery.deallocations.extend_from_slice(&self.checkpoint.pending);
        // What was logged later holds, wherever its superblock is: a page may have been lost since it was deallocated,
        // or before.
        recovery.deallocations.sort_by_key(|&(.., sequence)| sequence);
        for &(first, count, sequence) in &recovery.deallocations {
            self.write_sequence = self.write_sequence.max(sequence);
            if recovery.flaw.is(Flaw::NoDeallocations) {
                continue;
            }
            // No pages: this one was lost.
            let (count, entry) = if count == 0 { (1, Entry::Lost) } else { (count, Entry::Unmapped) };
            for lpn in first..first.saturating_add(count).min(self.map.units()) {
                if best.get(&lpn).is_none_or(|b| b.0 < sequence) && self.map.set(lpn, entry) != entry {
                    unsaved.push(lpn);
                }
            }
        }
        if recovery.flaw.is(Flaw::CutMerges) {
            self.give_up_sources_of_cut_merges();
        }
        self.adopt_all(now, events, &recovery);
        self.change_recovered(recovery.floor, unsaved);
        recovery.report.time = now - recovery.began;
        recovery.report.scanned_superblocks = recovery.scanned.len() as u64;
        let directory = (self.units..self.map.units()).filter(|&lpn| self.map.get(lpn) != Entry::Unmapped).count();
        recovery.report.mapped = self.map.mapped() - directory as u64;
        self.recovered = Some(recovery.report);
        for die in 0..self.layout.dies {
            self.update_ready(die);
        }
        self.check_end_of_life();
        self.recycle_map(now, events);
        for die in 0..self.layout.dies {
            self.collect(now, events, die);
            self.collect_mapping(now, events, die);
        }
        self.move_map_pages(now, events);
    }

    /// Takes the entries that the checkpoints hold.
    pub(super) fn adopt_images(&mut self, recovery: &Recovery, best: &mut Best) {
        for (&segment, (_, image, _)) in &recovery.images {
            let first = self.checkpoint.first + segment * self.checkpoint.entries;
            for (i, &entry) in image[HEADER_WORDS..].iter().enumerate() {
                self.adopt_entry(first + i as u32, entry, best);
            }
        }
    }

    /// Takes one entry as it was on flash.
    pub(super) fn adopt_entry(&mut self, lpn: u32, entry: u32, best: &mut Best) {
        if entry == u32::MAX {
            self.map.set(lpn, Entry::Lost);
        } else if entry != 0
            && self.layout.is_whole(self.layout.superblock_of(entry - 1))
            // If the unit was moved since, its old place has the stamp of another page, or none; the scan finds the
            // copy.
            && let Some(stamp) = self.stamp_at(entry - 1).filter(|s| s.lpn == lpn)
        {
            self.map.set(lpn, Entry::At(entry - 1));
            let row = self.row_header(self.layout.superblock_of(entry - 1), self.layout.row_of(entry - 1));
            best.insert(lpn, (stamp.sequence, row.map_or(0, |h| h.program_sequence)));
        }
    }

    /// Takes what the scanned rows hold of these logical pages, where it is newer; `newer`: what was.
    pub(super) fn adopt_rows(&mut self, recovery: &Recovery, lpns: Range<u32>, best: &mut Best, newer: &mut Vec<u32>) {
        for &superblock in &recovery.scanned {
            let rows = self.rows_programmed(superblock);
            for row in 0..rows {
                let Some(header) = self.row_header(superblock, row) else { continue };
                let is_cut = !recovery.flaw.is(Flaw::CutMerges) && self.is_uncommitted_copy(superblock, row, rows);
                if header.program_sequence <= recovery.floor || is_cut {
                    continue;
                }
                // What mapping pages say lies in the first plane: where that failed they are written again.
                let says =
                    lpns.end > self.units && self.medium.own_payload(self.layout.block(superblock, 0), row).is_some();
                for unit in 0..self.layout.units_per_row {
                    let ppn = self.layout.ppn(superblock, row, unit);
                    let counts = |s: &Stamp| lpns.contains(&s.lpn) && (s.lpn < self.units || says);
                    let Some(stamp) = self.stamp_at(ppn).filter(counts) else { continue };
                    let key = (stamp.sequence, header.program_sequence);
                    let any = recovery.flaw.is(Flaw::AnyCopy);
                    let wins = best.get(&stamp.lpn).is_none_or(|&b| b < key && !any);
                    if wins {
                        best.insert(stamp.lpn, key);
                        self.map.set(stamp.lpn, Entry::At(ppn));
                        newer.push(stamp.lpn);
                    }
                    self.write_sequence = self.write_sequence.max(stamp.sequence);
                }
            }
        }
    }

    /// Gives every superblock its state, and counts what is valid.
    fn adopt_all(&mut self, now: Instant, events: &mut EventQueue, recovery: &Recovery) {
        for lpn in 0..self.map.units() {
            if let Entry::At(ppn) = self.map.get(lpn) {
                self.valid_bits.set(ppn);
                self.valid[self.layout.superblock_of(ppn) as usize] += 1;
            }
        }
        let mut map_superblocks: Vec<(u64, u32)> = Vec::new();
        let mut partial: Vec<(u32, u32)> = Vec::new();
        for superblock in 0..self.layout.superblocks() {
            if !self.layout.is_whole(superblock) {
                self.superblocks[superblock as usize].state = State::Bad;
                continue;
            }
            let blocks = (0..self.layout.planes()).map(|p| self.layout.block(superblock, p));
            let (mut torn, mut bad, mut erases) = (false, false, 0);
            for at in blocks {
                torn |= self.medium.is_torn(at);
                bad |= self.medium.is_bad(at);
                erases = erases.max(self.medium.erase_count(at));
            }
            let rows = self.rows_programmed(superblock);
            let newest = (0..rows).rev().find_map(|row| self.row_header(superblock, row));
            self.row_sequence = self.row_sequence.max(newest.map_or(0, |h| h.program_sequence));
            let content = self.content(superblock);
            self.good_superblocks += 1;
            let all_rows = self.layout.rows as u16;
            if self.was_slc(superblock) {
                self.adopt_slc(superblock);
            }
            let rows_of = self.rows_of(superblock);
            let s = &mut self.superblocks[superblock as usize];
            s.erases = erases;
            let die = s.die as usize;
            self.dies[die].erases_max = self.dies[die].erases_max.max(erases);
            if rows == 0 && !torn && !bad {
                self.put_free(superblock);
                continue;
            }
            let planes = 0..self.layout.planes();
            let even = planes.into_iter().all(|p| self.medium.programmed(self.layout.block(superblock, p)) == rows);
            let is_mapping = content == Some(PageKind::Data) && self.holds_mapping_pages(superblock);
            let goes_on = rows < rows_of && even && !torn && !bad;
            let s = &mut self.superblocks[superblock as usize];
            s.rows = all_rows;
            self.programmed[superblock as usize] = all_rows;
            s.state = State::Closed;
            if content.is_none() && self.valid[superblock as usize] & !super::NOT_A_CANDIDATE == 0 {
                self.queue_erase(now, events, superblock);
            } else if is_mapping {
                self.adopt_mapping(superblock, goes_on.then_some(rows), bad);
            } else if content == Some(PageKind::Data) && goes_on {
                partial.push((rows, superblock));
            } else if Self::is_map(content) {
                s.stream = Stream::Map;
                map_superblocks.push((newest.map_or(0, |h| h.program_sequence), superblock));
            } else {
                s.failed = bad;
                if bad || s.stream != Stream::Slc {
                    self.valid[superblock as usize] &= !super::NOT_A_CANDIDATE;
                }
                if bad {
                    self.dies[die].failed.push(superblock);
                }
            }
        }
        self.fill_mapping_pools();
        if self.hybrid.is_some() {
            self.reopen_log(&partial);
            self.adopt_roles(now, events);
        } else {
            self.reopen(&mut partial);
        }
        self.settle_slc(now, events);
        map_superblocks.sort_unstable();
        for (_, superblock) in map_superblocks {
            let images = recovery.images.iter().filter(|(_, image)| image.2 == superblock);
            let live = images.clone().count() as u32;
            for (&segment, _) in images {
                self.checkpoint.locations[segment as usize] = superblock;
            }
            let log = recovery.logs.get(&superblock).copied().unwrap_or(0);
            self.checkpoint.ring.push_back(MapSuperblock { superblock, live, log });
        }
        self.checkpoint.floor = recovery.floor;
        self.checkpoint.begin_at(recovery.floor);
    }

    /// Superblocks that were not full go on where they were, behind the torn row: if each power loss closed one for the
    /// host and one for collection, losses in quick succession would leave no superblock to collect with.
    fn reopen(&mut self, partial: &mut [(u32, u32)]) {
        partial.sort_unstable();
        for &mut (rows, superblock) in partial {
            if self.is_slc(superblock) {
                if self.reopen_slc(superblock) {
                    self.superblocks[superblock as usize].state = State::Open;
                    self.superblocks[superblock as usize].rows = rows as u16;
                    self.programmed[superblock as usize] = rows as u16;
                }
                continue;
            }
            let die = &mut self.dies[self.superblocks[superblock as usize].die as usize];
            let (open, stream) = if self.profile.gc_stream && die.collect_superblock == super::NONE {
                (&mut die.collect_superblock, Stream::Collected)
            } else if die.host_superblock == super::NONE || self.log_reserve == 0 {
                (&mut die.host_superblock, Stream::Host)
            } else {
                (&mut die.log_superblock, Stream::Log)
            };
            if *open != super::NONE {
                self.valid[superblock as usize] &= !super::NOT_A_CANDIDATE;
                continue;
            }
            *open = superblock;
            let s = &mut self.superblocks[superblock as usize];
            s.state = State::Open;
            s.stream = stream;
            s.rows = rows as u16;
            self.programmed[superblock as usize] = rows as u16;
        }
    }

    /// What the last recovery did, once it has ended.
    pub fn recovery_report(&self) -> Option<RecoveryReport> {
        self.recovered
    }
}

impl super::Layout {
    /// Finds out which block stands in for which, from the headers of programmed pages; erased blocks fill what is
    /// left.
    pub(super) fn recover<M: Medium>(&mut self, medium: &M) {
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
    use super::*;
    use crate::device::plan;
    use crate::events::Event;
    use crate::owner::Owner;
    use tidewater_nand::Cell;

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
