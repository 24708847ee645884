//! The recovery manager: on stored energy the pinned pages and then the mapping table go to a dump area of flash; after
//! power-on a dump that is whole brings the entries back.
//!
//! A dump has a *generation*, which no other has: it is the version in the stamps of its pages. The table is written
//! when all other pages are on flash, so a dump that was cut short has none. Whether a table is there, says for which
//! pages, and whether these have its generation, decides. When the entries are back in the buffer, the dump is let go
//! of for good, before anything else is done: later it would be of the past. There are two areas, so that a power loss
//! until then finds one of them untouched.

use super::jobs::RESTORE;
use super::state::{Job, Phase, Restoring};
use super::{EntryState, Flaw, Progress, Window};
use crate::border::Output;
use crate::context::Context;
use crate::events::{Event, lane};
use crate::flash::Source;
use crate::flaw::Injected;
use crate::ftl::{Entry as MapEntry, Ftl};
use crate::owner::Owner;
use crate::profile::Survives;
use std::hint::cold_path;
use tidewater_nand::Medium;
use tidewater_wire::vendor::{DumpEntry, DumpTable, WINDOW_ENTRIES_MAX};

/// A page for the payload store: its bytes were still in an output when the power failed, or a dump has written it
/// since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// The logical page.
    pub lpn: u32,
    /// Its version.
    pub version: u64,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// What a dump took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub pages: Vec<Dumped>,
    pub energy: f64,
    /// Events of flash.
    pub events: u64,
}

fn dump_page<M: Medium>(
    cx: &mut Context,
    ftl: &mut Ftl<M>,
    (lpn, generation): (u32, u64),
    bytes: Box<[u8]>,
    outcome: &mut Outcome,
) {
    ftl.write_log(cx.now, &mut cx.events, lpn, generation, Owner::Dump);
    outcome.pages.push(Dumped { lpn, version: generation, bytes });
}

/// One event of flash, with host, link and all else gone. False: there is none.
fn step_on_stored_energy<M: Medium>(cx: &mut Context, ftl: &mut Ftl<M>) -> bool {
    loop {
        let Some(at) = cx.events.next_at() else { return false };
        cx.now = cx.now.max(at);
        let done = match cx.events.pop_due(cx.now) {
            Some(Event::Bus { channel, inward: true }) => {
                ftl.flash.on_loaded(cx.now, &mut cx.events, channel);
                None
            }
            Some(Event::Bus { channel, inward: false }) => Some(ftl.flash.on_unloaded(cx.now, &mut cx.events, channel)),
            Some(Event::Cell { die, generation, kind }) => ftl.on_cell(cx.now, &mut cx.events, die, generation, kind),
            _ => continue,
        };
        if let Some(done) = done {
            let source = ftl.flash.operation(done).source;
            // Reads are dropped: their commands ended with the power.
            if !matches!(source, Source::HostRead | Source::CollectRead | Source::FoldRead | Source::Recovery) {
                ftl.on_done(cx.now, &mut cx.events, source.kind(), done);
            }
        }
        return true;
    }
}

impl Window {
    fn area_pages(&self) -> u32 {
        self.table.pages() + 1
    }

    /// The first logical page of an area: that of the table.
    fn area(&self, area: u32) -> u32 {
        self.dump_first + area * self.area_pages()
    }

    /// The table as a dump has it.
    fn dump_table(&self, generation: u64) -> DumpTable {
        let mut table = DumpTable {
            page_bytes: 1 << self.table.page_shift(),
            generation,
            buffer_bytes: u64::from(self.table.pages()) << self.table.page_shift(),
            entry: [DumpEntry::default(); WINDOW_ENTRIES_MAX],
        };
        for (place, entry) in self.table.entries().filter(|(_, entry)| entry.state != EntryState::Pinning) {
            table.entry[place] = DumpEntry {
                entry: entry.name,
                used: true,
                flush_begun: entry.flush_begun,
                pages: entry.pages,
                offset: u64::from(entry.page) << self.table.page_shift(),
                first_page: entry.first.into(),
            };
        }
        table
    }

    /// What is left of the window in memory that keeps its content by itself.
    pub(crate) fn remains(&self) -> Option<Box<Window>> {
        if !self.is_enabled() || self.survives != Survives::ByItself {
            return None;
        }
        let mut left = self.clone();
        left.jobs.fill(Job::default());
        left.commands.clear();
        left.loads.clear();
        left.held.clear();
        left.flaw = Injected::NONE;
        for place in 0..left.table.places() {
            match left.table.get(place).map(|entry| entry.state) {
                Some(EntryState::Pinning) => left.table.remove(place),
                Some(_) => left.table.get_mut(place).expect("it is there").state = EntryState::Pinned,
                None => {}
            }
        }
        Some(Box::new(left))
    }

    /// Goes on with what memory has kept. False: it is of another size.
    pub(crate) fn resume(&mut self, left: Window) -> bool {
        let fits = left.table.pages() == self.table.pages() && left.table.places() == self.table.places();
        if fits {
            (self.table, self.bytes) = (left.table, left.bytes);
        }
        fits
    }

    /// On stored energy: the window's pages and table go to flash. Nothing else happens. `events_max`: the energy is
    /// gone after so many events of flash.
    pub(crate) fn dump_on_stored_energy<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        events_max: u64,
    ) -> Outcome {
        let mut outcome = Outcome { pages: self.untaken_pages(cx), ..Outcome::default() };
        let window = &*self;
        // Until a way back is at its end, what is on flash says all there is to say.
        let on_flash = window.restoring.as_ref().is_some_and(|r| !matches!(r.phase, Phase::Clearing(_)));
        let pinned = || window.table.entries().map(|(_, entry)| entry).filter(|e| e.state != EntryState::Pinning);
        if !window.is_enabled() || window.survives != Survives::ByCapacitors || on_flash || pinned().next().is_none() {
            return outcome;
        }
        let mut pages: Vec<u32> = pinned().flat_map(|entry| entry.page..entry.page + entry.pages).collect();
        if window.flaw.is(Flaw::ForgetLastPage) {
            pages.pop();
        }
        let area = window.area(1 - window.dump_area);
        let generation = ftl.write_sequence() + 1;
        let (began, programs) = (cx.now, ftl.programs_done());
        let unit = 1usize << cx.shift.unit;
        let mut table = self.dump_table(generation).to_bytes().to_vec();
        table.resize(unit, 0);
        ftl.begin_emergency();
        let (mut next, mut pending, mut has_table) = (0, 0u32, false);
        loop {
            while next < pages.len() && ftl.can_write_log() {
                let mut bytes = vec![0; unit].into_boxed_slice();
                self.read(u64::from(pages[next]) << cx.shift.unit, &mut bytes);
                dump_page(cx, ftl, (area + 1 + pages[next], generation), bytes, &mut outcome);
                (next, pending) = (next + 1, pending + 1);
            }
            if next == pages.len() && pending == 0 {
                if has_table || !ftl.can_write_log() {
                    break;
                }
                dump_page(cx, ftl, (area, generation), std::mem::take(&mut table).into_boxed_slice(), &mut outcome);
                (pending, has_table) = (1, true);
            }
            ftl.pad_log_row(cx.now, &mut cx.events);
            // No room for a page, and no erase ends on stored energy: it can't be whole.
            if pending == 0 || outcome.events >= events_max || !step_on_stored_energy(cx, ftl) {
                break;
            }
            outcome.events += 1;
            let mut failed = false;
            while let Some(owner) = ftl.take_acknowledged() {
                pending -= u32::from(owner == Owner::Dump);
            }
            while let Some(owner) = ftl.take_rejected() {
                failed |= owner == Owner::Dump;
            }
            if failed {
                break;
            }
        }
        let programs = (ftl.programs_done() - programs) * self.energy.planes;
        outcome.energy = programs as f64 * self.energy.program + (cx.now - began).as_secs_f64() * self.energy.power;
        outcome
    }

    /// Pages of flushes that are still among the outputs, with their bytes.
    fn untaken_pages(&self, cx: &Context) -> Vec<Dumped> {
        let pages = cx.outputs.iter().filter_map(|output| match *output {
            Output::WindowStore { lpn, version, offset } => {
                let mut bytes = vec![0; 1 << cx.shift.unit].into_boxed_slice();
                self.read(offset, &mut bytes);
                Some(Dumped { lpn, version, bytes })
            }
            _ => None,
        });
        pages.collect()
    }

    /// The map is back: if flash has a dump, its entries come back before anything else happens.
    pub(crate) fn begin_restoring<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> Progress {
        let kept = self.kept.take();
        let window = &*self;
        let (first, pages) = (window.dump_first, 2 * window.area_pages());
        let mapped = |lpn: u32| ftl.map().get(lpn) != MapEntry::Unmapped;
        if !window.is_enabled() || window.survives != Survives::ByCapacitors || !(first..first + pages).any(mapped) {
            kept.iter().for_each(|kept| self.take_kept(kept));
            return Progress::None;
        }
        let table = |area: u32| Some((ftl.stamp(window.area(area))?.version, area));
        let newest = (0..2).filter_map(table).max();
        // What was kept may be older than a dump, or newer.
        let kept_counts = kept.as_ref().is_some_and(|kept| newest.is_none_or(|(dump, _)| dump <= kept.sequence));
        let mut restoring = Restoring {
            phase: Phase::Table,
            generation: 0,
            table: Vec::new(),
            pages: Vec::new(),
            next: 0,
            pending: 0,
            fills: 0,
            failed: false,
            kept: None,
        };
        if let Some(kept) = kept.as_ref().filter(|_| kept_counts) {
            self.dump_area = newest.map_or(0, |(_, area)| area);
            self.take_kept(kept);
            self.restoring = Some(Box::new(restoring));
            return self.clear_dumps(cx, ftl);
        }
        restoring.kept = kept;
        let Some((generation, area)) = newest else {
            // Pages without a table: the dump was cut short.
            self.statistics.dumps_lost += 1;
            self.restoring = Some(Box::new(restoring));
            return self.clear_dumps(cx, ftl);
        };
        restoring.generation = generation;
        self.dump_area = area;
        self.restoring = Some(Box::new(restoring));
        let table = self.area(area);
        self.ask_for_dumped(cx, ftl, table);
        self.go_on_restoring(cx, ftl)
    }

    fn restoring(&mut self) -> &mut Restoring {
        self.restoring.as_mut().expect("a way back is under way")
    }

    /// Reads a page of the dump.
    fn ask_for_dumped<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, lpn: u32) {
        let read = ftl.read(cx.now, &mut cx.events, std::iter::once(lpn), Owner::WindowRestore);
        let place = ftl.locate(lpn);
        let restoring = self.restoring();
        match read {
            Ok(queued) => restoring.pending += queued,
            Err(queued) => {
                restoring.pending += queued;
                restoring.failed = true;
            }
        }
        if place.version().is_some() {
            restoring.fills += 1;
            cx.outputs.push_back(Output::WindowLoad { lpn, place });
        } else {
            restoring.failed = true;
        }
    }

    pub(super) fn on_restore_read<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, failed: bool) -> Progress {
        let Some(restoring) = &mut self.restoring else { return Progress::None };
        restoring.pending -= 1;
        restoring.failed |= failed;
        self.go_on_restoring(cx, ftl)
    }

    pub(super) fn restore_fill<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        lpn: u32,
        bytes: Option<&[u8]>,
    ) -> Progress {
        let table = self.area(self.dump_area);
        let offset = u64::from(lpn.saturating_sub(table + 1)) << cx.shift.unit;
        let restoring = self.restoring();
        if restoring.fills == 0 {
            return Progress::None;
        }
        restoring.fills -= 1;
        match bytes {
            None => restoring.failed = true,
            Some(bytes) if lpn == table => restoring.table = bytes.to_vec(),
            Some(bytes) => self.put(offset, bytes.len(), Some(bytes)),
        }
        self.go_on_restoring(cx, ftl)
    }

    /// The firmware turns to the next page of the dump.
    pub(super) fn restore_page<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> Progress {
        let area = self.area(self.dump_area);
        let restoring = self.restoring();
        let page = restoring.pages[restoring.next];
        restoring.next += 1;
        let more = restoring.next < restoring.pages.len();
        self.ask_for_dumped(cx, ftl, area + 1 + page);
        if more {
            self.wake_restore(cx);
        }
        self.go_on_restoring(cx, ftl)
    }

    fn wake_restore(&mut self, cx: &mut Context) {
        let at = self.engine.serve(cx.now, self.page_time);
        cx.events.push(at, lane::OTHER, Event::Window { place: RESTORE, generation: 0 });
    }

    /// Something that the way back waits for may have happened.
    #[inline]
    pub(crate) fn go_on_restoring<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> Progress {
        if self.restoring.is_some() {
            cold_path();
            return self.restore_next(cx, ftl);
        }
        Progress::None
    }

    fn restore_next<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> Progress {
        let Some(restoring) = &self.restoring else { return Progress::None };
        match restoring.phase {
            Phase::Table | Phase::Pages if restoring.pending > 0 || restoring.fills > 0 => {}
            Phase::Table => {
                if !restoring.failed && self.take_table(cx, ftl) {
                    self.wake_restore(cx);
                    return Progress::None;
                }
                return self.lose_dump(cx, ftl);
            }
            Phase::Pages if restoring.failed => return self.lose_dump(cx, ftl),
            Phase::Pages if restoring.next == restoring.pages.len() => return self.clear_dumps(cx, ftl),
            Phase::Pages => {}
            Phase::Clearing(mark) => {
                if ftl.is_durable(mark) || ftl.is_worn_out() {
                    self.restoring = None;
                    return Progress::Restored;
                } else if ftl.flash.outstanding() == 0 {
                    ftl.log_deallocations(cx.now, &mut cx.events);
                }
            }
        }
        Progress::None
    }

    /// Takes the table of a dump, if the dump is whole. False: it is not.
    fn take_table<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> bool {
        let unit_shift = cx.shift.unit;
        let restoring = self.restoring();
        let (generation, bytes) = (restoring.generation, std::mem::take(&mut restoring.table));
        let Ok(table) = DumpTable::parse(&bytes) else { return false };
        let size = u64::from(self.table.pages()) << unit_shift;
        if table.generation != generation || table.page_bytes != 1 << unit_shift || table.buffer_bytes != size {
            return false;
        }
        let mut pages = Vec::new();
        for (place, entry) in table.entry.iter().enumerate().filter(|(_, entry)| entry.used) {
            let first = entry.first_page;
            let end = first.checked_add(entry.pages.into());
            let inside = end.is_some_and(|end| end <= ftl.data_units().into());
            let page = entry.offset >> unit_shift;
            if !inside || place >= self.table.places() || page > self.table.pages().into() {
                return false;
            }
            let Ok(taken) = self.table.insert(entry.entry, Some(page as u32), first as u32, entry.pages) else {
                return false;
            };
            let restored = self.table.get_mut(taken).expect("it was inserted");
            (restored.state, restored.flush_begun) = (EntryState::Pinned, entry.flush_begun);
            pages.extend(page as u32..page as u32 + entry.pages);
        }
        let area = self.area(self.dump_area);
        let whole = |&page: &u32| ftl.stamp(area + 1 + page).is_some_and(|stamp| stamp.version == generation);
        if pages.is_empty() || !pages.iter().all(whole) {
            return false;
        }
        let restoring = self.restoring();
        (restoring.pages, restoring.phase) = (pages, Phase::Pages);
        true
    }

    /// The dump can't be used: its entries are gone, and blocks are what flash has of them; unless memory was kept,
    /// too.
    fn lose_dump<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> Progress {
        for place in 0..self.table.places() {
            if self.table.get(place).is_some() {
                self.table.remove(place);
            }
        }
        match self.restoring().kept.take() {
            Some(kept) => self.take_kept(&kept),
            None => self.statistics.dumps_lost += 1,
        }
        self.clear_dumps(cx, ftl)
    }

    /// Deallocates all dumps, durably.
    fn clear_dumps<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> Progress {
        if !self.flaw.is(Flaw::KeepDump) {
            ftl.deallocate(self.dump_first, 2 * self.area_pages());
        }
        let mark = ftl.begin_flush(cx.now, &mut cx.events);
        self.restoring().phase = Phase::Clearing(mark);
        ftl.wake_collection(cx.now, &mut cx.events);
        self.go_on_restoring(cx, ftl)
    }
}
