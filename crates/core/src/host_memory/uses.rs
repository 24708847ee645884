//! What the drive's own uses keep in host memory: which page is in which unit, and what reads have found there.

use super::{Answer, Done, HostMemory, Lending, Outcome, State, Ticket, Wires};
use crate::content::Whereabouts;
use crate::device::{Device, Output};
use crate::ftl::{Entry, LentWork, LookUp};
use crate::memory::Use;
use crate::owner::Owner;
use std::collections::BTreeMap;
use tidewater_base::Instant;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

/// In the tag of a read of a mapping page: it is to be programmed. Else the tag is the command that needs it.
const HOME: u32 = 1 << 31;

/// Which page a use keeps in which unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    of: BTreeMap<u32, u32>,
    free: Vec<u32>,
}

impl Places {
    /// All units are free.
    fn reset(&mut self, units: u32) {
        self.of.clear();
        self.free.clear();
        self.free.extend((0..units).rev());
    }

    fn get(&self, lpn: u32) -> Option<u32> {
        self.of.get(&lpn).copied()
    }

    /// A unit for a page that has none.
    fn take(&mut self, lpn: u32) -> Option<u32> {
        let unit = self.free.pop()?;
        let before = self.of.insert(lpn, unit);
        assert!(before.is_none(), "page {lpn} is in host memory twice");
        Some(unit)
    }

    fn release(&mut self, lpn: u32) {
        if let Some(unit) = self.of.remove(&lpn) {
            self.free.push(unit);
        }
    }
}

/// What a read command has found in host memory of one of its pages.
#[derive(Clone, Copy, Debug)]
struct Found {
    slot: u16,
    lpn: u32,
    version: u64,
    serial: u64,
}

/// The drive's own uses of host memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostUses {
    /// The read cache lives there.
    pub(crate) cache: bool,
    /// Pages of the map live there.
    pub(crate) map: bool,
    /// An access for the map has ended, or its memory has changed: what waited for either may go on.
    map_moved: bool,
    cached: Places,
    /// Pages of one read that the read cache has, until they are asked for.
    hits: Vec<u32>,
    found: Vec<Found>,
}

impl HostUses {
    pub(crate) fn new(memory: &HostMemory) -> HostUses {
        HostUses { cache: memory.has(Use::ReadCache), map: memory.has(Use::MapCache), ..HostUses::default() }
    }

    /// A read has found a page in the read cache: it is asked for when all are looked up.
    #[inline]
    pub(crate) fn hit(&mut self, lpn: u32) {
        self.hits.push(lpn);
    }

    /// The read cache has let go of a page.
    #[inline]
    pub(crate) fn uncached(&mut self, lpn: u32) {
        self.cached.release(lpn);
    }
}

impl<M: Medium> Device<M> {
    /// Host memory.
    pub fn host_memory(&self) -> &HostMemory {
        &self.host_memory
    }

    fn host_wires(&mut self) -> (Instant, &mut HostMemory, Wires<'_>) {
        let wires = Wires {
            events: &mut self.events,
            link_in: &mut self.link_in,
            link_out: &mut self.link_out,
            outputs: &mut self.outputs,
        };
        (self.now, &mut self.host_memory, wires)
    }

    /// Asks for a unit of host memory that the use has written: [`Device::on_host_done`] tells what came of it.
    pub(crate) fn host_read(&mut self, used: Use, unit: u32, key: u64, tag: u32) {
        let (now, memory, mut wires) = self.host_wires();
        memory.read(now, &mut wires, used, unit, key, tag);
    }

    /// Writes a unit of host memory: [`Device::on_host_done`] tells what came of it.
    pub(crate) fn host_write(&mut self, used: Use, unit: u32, key: u64, content: u64, tag: u32) {
        let (now, memory, mut wires) = self.host_wires();
        memory.write(now, &mut wires, used, unit, key, content, tag);
    }

    /// The world answers an [`Access`](super::Access).
    pub(crate) fn on_host_answer(&mut self, ticket: Ticket, answer: Answer) {
        let (now, memory, mut wires) = self.host_wires();
        if let Some(done) = memory.answer(now, &mut wires, ticket, answer) {
            self.on_host_done(done);
        }
    }

    /// A stage of an access is due.
    pub(crate) fn on_host_event(&mut self, place: u32) {
        let (now, memory, mut wires) = self.host_wires();
        if let Some(done) = memory.on_event(now, &mut wires, place) {
            self.on_host_done(done);
        }
    }

    /// An access has ended. This is where each use of host memory hears of its own.
    fn on_host_done(&mut self, done: Done) {
        if done.outcome == Outcome::Gone {
            self.host_memory_gone();
        }
        match done.used {
            Use::ReadCache => self.on_cache_done(done),
            Use::MapCache => self.on_map_done(done),
            used => unreachable!("the {used} asked nothing of host memory"),
        }
        self.go_on_withdrawing();
    }

    /// The host lends memory, or wants it back, or has taken it.
    pub(crate) fn on_lending(&mut self, lending: Lending) {
        match lending {
            Lending::Lend { bytes, returned } => {
                if self.host_memory.state() != State::Absent {
                    self.host_memory_gone();
                }
                let kept = self.host_memory.lend(bytes, returned);
                self.host_memory_lent(kept);
            }
            Lending::Withdraw if self.host_memory.state() == State::Absent => {
                self.outputs.push_back(Output::HostMemoryFree);
            }
            Lending::Withdraw => {
                self.host_memory.withdraw();
                self.host_memory_leaves();
                self.go_on_withdrawing();
            }
            Lending::Gone => self.host_memory_gone(),
        }
    }

    /// There is host memory: each use takes its part. `kept`: units of before may still be good.
    fn host_memory_lent(&mut self, kept: bool) {
        if self.host_uses.cache {
            let units = self.host_memory.units(Use::ReadCache);
            if !kept {
                self.forget_cache();
                self.host_uses.cached.reset(units);
            }
            self.read_cache.set_capacity(units as usize);
        }
        if self.host_uses.map {
            let units = self.host_memory.units(Use::MapCache);
            self.ftl.lend_to_map(self.now, &mut self.events, units);
            self.host_uses.map_moved = true;
        }
    }

    /// The host wants its memory back: each use takes out what exists nowhere else, and puts nothing in.
    fn host_memory_leaves(&mut self) {
        if self.host_uses.cache {
            // What is there is a copy. It stays known, in case the host gives the same memory back.
            self.read_cache.set_capacity(0);
        }
        if self.host_uses.map {
            self.ftl.lend_to_map(self.now, &mut self.events, 0);
            self.host_uses.map_moved = true;
        }
    }

    /// Whether each use has taken out what exists nowhere else.
    fn has_left_host_memory(&self) -> bool {
        self.host_memory.outstanding() == 0
    }

    /// Goes on with giving the memory back.
    pub(crate) fn go_on_withdrawing(&mut self) {
        if self.host_memory.state() == State::Withdrawing && self.has_left_host_memory() {
            self.host_memory.leave(false);
            self.outputs.push_back(Output::HostMemoryFree);
        }
    }

    /// The memory is gone, without a word: nothing that was there counts any more.
    fn host_memory_gone(&mut self) {
        let asked = self.host_memory.state() == State::Withdrawing;
        if self.host_memory.state() == State::Absent {
            return;
        }
        self.host_memory.leave(true);
        if self.host_uses.cache {
            self.read_cache.set_capacity(0);
            self.forget_cache();
        }
        if self.host_uses.map {
            self.ftl.lend_to_map(self.now, &mut self.events, 0);
            self.host_uses.map_moved = true;
        }
        while let Some(done) = self.host_memory.abandon() {
            self.on_host_done(done);
        }
        if asked {
            self.outputs.push_back(Output::HostMemoryFree);
        }
    }

    /// The read cache is empty.
    fn forget_cache(&mut self) {
        for lpn in self.read_cache.pages() {
            self.uncache(lpn);
        }
        self.host_uses.cached.reset(0);
    }

    /// Asks for the pages that a read has found in the read cache. Returns how many.
    pub(crate) fn read_host_hits(&mut self, slot: u16) -> u32 {
        let hits = std::mem::take(&mut self.host_uses.hits);
        for &lpn in &hits {
            let unit = self.host_uses.cached.get(lpn).expect("a cached page has a unit");
            self.host_read(Use::ReadCache, unit, lpn.into(), slot.into());
        }
        let asked = hits.len() as u32;
        self.host_uses.hits = hits;
        self.host_uses.hits.clear();
        asked
    }

    /// The read cache takes in a page that goes to the host, as far as there is room for another access.
    pub(crate) fn cache_on_host(&mut self, lpn: u32) {
        let is_there = matches!(self.ftl.map().get(lpn), Entry::At(_));
        if !is_there || !self.host_memory.has_room() {
            return;
        }
        // A write buffer that merges cached pages does not hear of these: each would have to be read and checked first.
        let cached = &mut self.host_uses.cached;
        if self.read_cache.fill(lpn, |gone| cached.release(gone)) {
            let content = if self.options.stamps { self.locate(lpn).version().unwrap_or_default() } else { 0 };
            let unit = self.host_uses.cached.take(lpn).expect("the cache holds no more pages than it has units");
            self.host_write(Use::ReadCache, unit, lpn.into(), content, 0);
        }
    }

    fn on_cache_done(&mut self, done: Done) {
        let lpn = done.key as u32;
        if done.write {
            return; // Gone, and then nothing is there any more; or written.
        }
        let slot = done.tag as u16;
        match done.outcome {
            Outcome::Good { content } => {
                if self.options.stamps {
                    self.host_uses.found.push(Found { slot, lpn, version: content, serial: done.serial });
                }
            }
            Outcome::Failed | Outcome::Gone => {
                if self.host_uses.cached.get(lpn) == Some(done.unit) {
                    self.uncache(lpn);
                }
                self.refetch(slot, lpn);
            }
        }
        self.on_read_done(slot, false);
    }

    /// A page that was not good in host memory is read from flash.
    fn refetch(&mut self, slot: u16, lpn: u32) {
        self.host_memory.statistics.refetches += 1;
        let read = self.ftl.read(self.now, &mut self.events, std::iter::once(lpn), Owner::Command(slot));
        let work = &mut self.work[usize::from(slot)];
        work.pending += *read.as_ref().unwrap_or_else(|queued| queued);
        if read.is_err() {
            work.status = Status::UNRECOVERED_READ_ERROR;
        }
    }

    /// A command reads a page of the map.
    pub(crate) fn read_map_unit(&mut self, unit: u32, page: u32, slot: u16) {
        self.begin_map_work(); // What is to be read there may still have to be written.
        self.host_read(Use::MapCache, unit, page.into(), slot.into());
    }

    /// Begins what the mapping cache wants of host memory.
    fn begin_map_work(&mut self) {
        while let Some(work) = self.ftl.map_cache_mut().and_then(|cache| cache.lent_work()) {
            let units = self.host_memory.units(Use::MapCache);
            match work {
                LentWork::Write { unit, page } if unit < units => {
                    self.host_write(Use::MapCache, unit, page.into(), 0, 0);
                }
                LentWork::Write { .. } => {}
                LentWork::Fetch { unit, page } if unit < units => {
                    self.host_read(Use::MapCache, unit, page.into(), HOME);
                }
                LentWork::Fetch { unit, page } => {
                    self.ftl.on_lent_home(self.now, &mut self.events, unit, page, false);
                }
            }
        }
    }

    /// Goes on with pages of the map in host memory: what they want there, and who has waited for them.
    pub(crate) fn go_on_mapping(&mut self) {
        if std::mem::take(&mut self.host_uses.map_moved) {
            self.after_flash();
        }
        while self.ftl.map_cache().is_some_and(|cache| cache.has_lent_work()) {
            self.begin_map_work();
            self.charge_map_cache();
            self.after_flash();
        }
    }

    fn on_map_done(&mut self, done: Done) {
        self.host_uses.map_moved = true;
        if done.write {
            return; // Gone, and then nothing is there any more; or written.
        }
        let (unit, page) = (done.unit, done.key as u32);
        let good = matches!(done.outcome, Outcome::Good { .. });
        if !good {
            self.host_memory.statistics.refetches += 1;
        }
        if done.tag == HOME {
            return self.ftl.on_lent_home(self.now, &mut self.events, unit, page, good);
        }
        let slot = done.tag as u16;
        self.ftl.on_lent_read(self.now, &mut self.events, unit, page, good);
        if good {
            return self.on_translated(slot);
        }
        // It is looked for again, as if for the first time.
        let lpn = self.ftl.map_cache().map_or(0, |cache| cache.first_of(page));
        match self.ftl.look_up(self.now, &mut self.events, lpn, slot.into()) {
            // It has another place since this one was asked: it was in the drive meanwhile. Were it read again, a host
            // whose memory is never good could keep a command for ever.
            LookUp::Away { unit } => {
                self.ftl.on_lent_read(self.now, &mut self.events, unit, page, true);
                self.on_translated(slot);
            }
            LookUp::Waits => {}
            LookUp::Hit | LookUp::Empty => self.on_translated(slot),
        }
    }

    /// Where a page of a read was found: what host memory had of it, else where it is.
    pub(crate) fn found_by(&self, slot: u16, lpn: u32) -> Whereabouts {
        let found = self.host_uses.found.iter().find(|found| found.slot == slot && found.lpn == lpn);
        match found {
            Some(found) => Whereabouts::Host { version: found.version, serial: found.serial },
            None => self.locate(lpn),
        }
    }

    /// A read has told what it has found.
    #[inline]
    pub(crate) fn forget_found(&mut self, slot: u16) {
        if !self.host_uses.found.is_empty() {
            self.host_uses.found.retain(|found| found.slot != slot);
        }
    }
}
