//! What the drive's own uses keep in host memory: which page is in which unit, and what reads have found there.

use super::Block;
use super::work::Found;
use crate::border::{Answer, Lending, Output, Ticket};
use crate::content::Whereabouts;
use crate::context::Context;
use crate::ftl::{Entry, Ftl, LentWork, LookUp};
use crate::host::Host;
use crate::host_memory::{Done, Outcome, State};
use crate::memory::Use;
use crate::owner::Owner;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

/// In the tag of a read of a mapping page: it is to be programmed. Else the tag is the command that needs it.
const HOME: u32 = 1 << 31;

impl Block {
    /// The world answers an [`Access`](crate::border::Access).
    pub(crate) fn on_host_answer<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        host: &Host,
        ticket: Ticket,
        answer: Answer,
    ) {
        if let Some(done) = self.memory.answer(cx, ticket, answer) {
            self.on_host_done(cx, ftl, host, done);
        }
    }

    /// A stage of an access is due.
    pub(crate) fn on_host_event<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, place: u32) {
        if let Some(done) = self.memory.on_event(cx, place) {
            self.on_host_done(cx, ftl, host, done);
        }
    }

    /// An access has ended: it goes to the use that began it.
    fn on_host_done<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, done: Done) {
        if done.outcome == Outcome::Gone {
            self.host_memory_gone(cx, ftl, host);
        }
        match done.used {
            Use::ReadCache => self.on_cache_done(cx, ftl, host, done),
            Use::MapCache => self.on_map_done(cx, ftl, host, done),
            used => unreachable!("the {used} asked nothing of host memory"),
        }
        self.go_on_withdrawing(cx);
    }

    /// The host lends memory, or wants it back, or has taken it.
    pub(crate) fn on_lending<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, lending: Lending) {
        match lending {
            Lending::Lend { bytes, returned } => {
                if self.memory.state() != State::Absent {
                    self.host_memory_gone(cx, ftl, host);
                }
                let kept = self.memory.lend(bytes, returned);
                self.host_memory_lent(cx, ftl, kept);
            }
            Lending::Withdraw if self.memory.state() == State::Absent => {
                cx.outputs.push_back(Output::HostMemoryFree);
            }
            Lending::Withdraw => {
                self.memory.withdraw();
                self.host_memory_leaves(cx, ftl);
                self.go_on_withdrawing(cx);
            }
            Lending::Gone => self.host_memory_gone(cx, ftl, host),
        }
    }

    /// There is host memory: each use takes its part. `kept`: units of before may still be good.
    fn host_memory_lent<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, kept: bool) {
        if self.caches.lent {
            let units = self.memory.units(Use::ReadCache);
            if !kept {
                self.forget_cache();
                self.caches.places.reset(units);
            }
            self.caches.read.set_capacity(units as usize);
        }
        if self.lends_map {
            let units = self.memory.units(Use::MapCache);
            ftl.lend_to_map(cx.now, &mut cx.events, units);
            self.map_moved = true;
        }
    }

    /// The host wants its memory back: each use takes out what exists nowhere else, and puts nothing in.
    fn host_memory_leaves<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        if self.caches.lent {
            // What is there is a copy. It stays known, in case the host gives the same memory back.
            self.caches.read.set_capacity(0);
        }
        if self.lends_map {
            ftl.lend_to_map(cx.now, &mut cx.events, 0);
            self.map_moved = true;
        }
    }

    /// Whether each use has taken out what exists nowhere else.
    fn has_left_host_memory(&self) -> bool {
        self.memory.outstanding() == 0
    }

    /// Goes on with giving the memory back.
    pub(crate) fn go_on_withdrawing(&mut self, cx: &mut Context) {
        if self.memory.state() == State::Withdrawing && self.has_left_host_memory() {
            self.memory.leave(false);
            cx.outputs.push_back(Output::HostMemoryFree);
        }
    }

    /// The memory is gone, without a word: nothing that was there counts any more.
    fn host_memory_gone<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host) {
        let asked = self.memory.state() == State::Withdrawing;
        if self.memory.state() == State::Absent {
            return;
        }
        self.memory.leave(true);
        self.host_memory_leaves(cx, ftl);
        if self.caches.lent {
            self.forget_cache();
        }
        while let Some(done) = self.memory.abandon() {
            self.on_host_done(cx, ftl, host, done);
        }
        if asked {
            cx.outputs.push_back(Output::HostMemoryFree);
        }
    }

    /// The read cache is empty.
    fn forget_cache(&mut self) {
        for lpn in self.caches.read.pages() {
            self.caches.uncache(lpn);
        }
        self.caches.places.reset(0);
    }

    /// Asks for the pages that a read has found in the read cache. Returns how many.
    pub(crate) fn read_host_hits(&mut self, cx: &mut Context, slot: u16) -> u32 {
        let hits = std::mem::take(&mut self.caches.hits);
        for &lpn in &hits {
            let unit = self.caches.places.get(lpn).expect("a cached page has a unit");
            self.memory.read(cx, Use::ReadCache, unit, lpn.into(), slot.into());
        }
        let asked = hits.len() as u32;
        self.caches.hits = hits;
        self.caches.hits.clear();
        asked
    }

    /// The read cache takes in a page that goes to the host, as far as there is room for another access.
    pub(crate) fn cache_on_host<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, lpn: u32) {
        let is_there = matches!(ftl.map().get(lpn), Entry::At(_));
        if !is_there || !self.memory.has_room() {
            return;
        }
        // A write buffer that merges cached pages does not hear of these: each would have to be read and checked first.
        let cached = &mut self.caches.places;
        if self.caches.read.fill(lpn, |gone| cached.release(gone)) {
            let content =
                if cx.options.stamps { self.caches.locate(ftl, lpn).version().unwrap_or_default() } else { 0 };
            let unit = self.caches.places.take(lpn).expect("the cache holds no more pages than it has units");
            self.memory.write(cx, Use::ReadCache, unit, lpn.into(), content, 0);
        }
    }

    fn on_cache_done<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, done: Done) {
        let lpn = done.key as u32;
        if done.write {
            return; // Gone, and then nothing is there any more; or written.
        }
        let slot = done.tag as u16;
        match done.outcome {
            Outcome::Good { content } => {
                if cx.options.stamps {
                    self.found.push(Found { slot, lpn, version: content, serial: done.serial });
                }
            }
            Outcome::Failed | Outcome::Gone => {
                if self.caches.places.get(lpn) == Some(done.unit) {
                    self.caches.uncache(lpn);
                }
                self.refetch(cx, ftl, slot, lpn);
            }
        }
        self.on_read_done(cx, ftl, host, slot, false);
    }

    /// A page that was not good in host memory is read from flash.
    fn refetch<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, slot: u16, lpn: u32) {
        self.memory.statistics.refetches += 1;
        let read = ftl.read(cx.now, &mut cx.events, std::iter::once(lpn), Owner::Command(slot));
        let work = &mut self.work[usize::from(slot)];
        work.pending += *read.as_ref().unwrap_or_else(|queued| queued);
        if read.is_err() {
            work.status = Status::UNRECOVERED_READ_ERROR;
        }
    }

    /// A command reads a page of the map.
    pub(crate) fn read_map_unit<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        unit: u32,
        page: u32,
        slot: u16,
    ) {
        self.begin_map_work(cx, ftl); // What is to be read there may still have to be written.
        self.memory.read(cx, Use::MapCache, unit, page.into(), slot.into());
    }

    /// Begins what the mapping cache wants of host memory.
    fn begin_map_work<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        while let Some(work) = ftl.map_cache_mut().and_then(|cache| cache.lent_work()) {
            let units = self.memory.units(Use::MapCache);
            match work {
                LentWork::Write { unit, page } if unit < units => {
                    self.memory.write(cx, Use::MapCache, unit, page.into(), 0, 0);
                }
                LentWork::Write { .. } => {}
                LentWork::Fetch { unit, page } if unit < units => {
                    self.memory.read(cx, Use::MapCache, unit, page.into(), HOME);
                }
                LentWork::Fetch { unit, page } => {
                    ftl.on_lent_home(cx.now, &mut cx.events, unit, page, false);
                }
            }
        }
    }

    /// Whether an access for the map has ended, or its memory has changed, since this was asked last.
    #[inline]
    pub(crate) fn take_map_moved(&mut self) -> bool {
        std::mem::take(&mut self.map_moved)
    }

    /// Goes on with pages of the map in host memory. False: they want nothing there.
    pub(crate) fn go_on_mapping<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host) -> bool {
        let wants = ftl.map_cache().is_some_and(|cache| cache.has_lent_work());
        if wants {
            self.begin_map_work(cx, ftl);
            self.charge_map_cache(cx, ftl, host);
        }
        wants
    }

    fn on_map_done<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, done: Done) {
        self.map_moved = true;
        if done.write {
            return; // Gone, and then nothing is there any more; or written.
        }
        let (unit, page) = (done.unit, done.key as u32);
        let good = matches!(done.outcome, Outcome::Good { .. });
        if !good {
            self.memory.statistics.refetches += 1;
        }
        if done.tag == HOME {
            return ftl.on_lent_home(cx.now, &mut cx.events, unit, page, good);
        }
        let slot = done.tag as u16;
        ftl.on_lent_read(cx.now, &mut cx.events, unit, page, good);
        if good {
            return self.on_translated(cx, ftl, host, slot);
        }
        // It is looked for again, as if for the first time.
        let lpn = ftl.map_cache().map_or(0, |cache| cache.first_of(page));
        match ftl.look_up(cx.now, &mut cx.events, lpn, slot.into()) {
            // It has another place since this one was asked: it was in the drive meanwhile. Were it read again, a host
            // whose memory is never good could keep a command for ever.
            LookUp::Away { unit } => {
                ftl.on_lent_read(cx.now, &mut cx.events, unit, page, true);
                self.on_translated(cx, ftl, host, slot);
            }
            LookUp::Waits => {}
            LookUp::Hit | LookUp::Empty => self.on_translated(cx, ftl, host, slot),
        }
    }

    /// Where a page of a read was found: what host memory had of it, else where it is.
    pub(crate) fn found_by<M: Medium>(&self, ftl: &Ftl<M>, slot: u16, lpn: u32) -> Whereabouts {
        let found = self.found.iter().find(|found| found.slot == slot && found.lpn == lpn);
        match found {
            Some(found) => Whereabouts::Host { version: found.version, serial: found.serial },
            None => self.caches.locate(ftl, lpn),
        }
    }

    /// A read has returned its result.
    #[inline]
    pub(crate) fn forget_found(&mut self, slot: u16) {
        if !self.found.is_empty() {
            self.found.retain(|found| found.slot != slot);
        }
    }
}
