//! What each NVMe command does, step by step, from the command pipeline to its completion.

use super::Block;
use super::work::{Action, Step, Work};
use crate::border::Output;
use crate::buffer::Run;
use crate::caches::Caches;
use crate::content::{PAST, Whereabouts};
use crate::context::Context;
use crate::events::{Event, lane};
use crate::ftl::{Entry, Ftl};
use crate::host::{Host, Permit, Slot};
use crate::owner::Owner;
use std::hint::cold_path;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Command, DsmRange, Kind, Status};

/// Bytes of a range of Dataset Management.
const RANGE: u32 = DsmRange::SIZE as u32;

impl Block {
    #[inline(always)]
    fn tag(&self, host: &Host, slot: u16) -> u64 {
        host.slot(Permit::from_index(slot)).tag
    }

    /// A command that was taken: what it touches, for all its steps.
    #[inline(always)]
    pub(crate) fn admit<M: Medium>(&mut self, cx: &Context, ftl: &Ftl<M>, host: &Host, permit: Permit) {
        let work = match host.slot(permit).command {
            Ok(Command { ref kind, first_block, blocks, fua, .. }) => {
                let last = first_block + u64::from(blocks) + (1 << cx.shift.page) - 1;
                let (next, end) = ((first_block >> cx.shift.page) as u32, (last >> cx.shift.page) as u32);
                let data = blocks << cx.shift.block;
                let (action, bytes_in) = match *kind {
                    Kind::Read => (Action::Read, 0),
                    Kind::Write => (Action::Write, data),
                    Kind::Flush => (Action::Flush, 0),
                    Kind::WriteZeroes { .. } => (Action::WriteZeroes, 0),
                    Kind::Compare => (Action::Compare, data),
                    Kind::Verify => (Action::Verify, 0),
                    Kind::DatasetManagement { ranges, deallocate: true, .. } => {
                        (Action::Deallocate, RANGE * u32::from(ranges))
                    }
                    Kind::DatasetManagement { ranges, .. } => (Action::Hint, RANGE * u32::from(ranges)),
                };
                // A write to the buffer needs its map entry only much later, when it leaves the buffer.
                if action != Action::Write || !self.caches.write.is_enabled() {
                    ftl.prefetch(next);
                }
                Work { action, fua, first_block, blocks, bytes_in, next, end, ..Work::default() }
            }
            Err(status) => Work { status, ..Work::default() },
        };
        self.work[usize::from(permit.index())] = work;
    }

    /// A command has left the pipeline, and the gate of the byte window has let it through.
    #[inline(always)]
    pub(crate) fn begin<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let work = &mut self.work[slot as usize];
        work.begun = true;
        let &mut Work { action, bytes_in, .. } = work;
        match action {
            Action::Read | Action::Verify => self.read_pages(cx, ftl, host, slot),
            Action::Write | Action::Compare | Action::Deallocate | Action::Hint => {
                self.receive(cx, slot, bytes_in.into())
            }
            Action::WriteZeroes => self.go_on(cx, ftl, host, slot),
            Action::Flush => self.wait_turn(cx, ftl, host, slot, Step::Drain),
            Action::Refuse => cx.finish(slot, cx.now),
        }
    }

    #[inline(always)]
    fn receive(&mut self, cx: &mut Context, slot: u16, bytes: u64) {
        let arrives = cx.link_in.transfer(cx.now, bytes);
        cx.events.push(arrives, lane::DATA_IN, Event::Data { slot: slot.into() });
    }

    /// A step that took time is over.
    #[inline(always)]
    pub(crate) fn go_on<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let &Work { action, step, .. } = &self.work[slot as usize];
        if step == Step::Send {
            return self.send(cx, ftl, host, slot);
        }
        if step == Step::Translate {
            return self.on_translated(cx, ftl, host, slot);
        }
        match action {
            Action::Write | Action::WriteZeroes => self.merge(cx, ftl, host, slot),
            Action::Compare => self.read_pages(cx, ftl, host, slot),
            Action::Deallocate => {
                self.deallocate_ranges(cx, ftl, host, slot);
                cx.finish(slot, cx.now);
            }
            Action::Hint => cx.finish(slot, cx.now),
            Action::Read | Action::Verify | Action::Flush | Action::Refuse => {
                unreachable!("{action:?} has no data to wait for")
            }
        }
    }

    /// Looks a command's pages up: in the write buffer, in the read cache, on flash.
    pub(super) fn read_pages<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let &Work { next: first, end, .. } = &self.work[slot as usize];
        if self.translate(cx, ftl, host, slot, first..end) {
            return; // It comes back when all entries are at hand.
        }
        let (mut from_buffer, mut from_cache) = (0u32, 0u32);
        let past = if cx.options.premap { self.premap(cx, ftl, slot, first, end) } else { 0 };
        let Caches { write: buffer, read: cache, lent, hits, .. } = &mut self.caches;
        // The write buffer's hit ratio is that of writes; its read hits only spare the flash.
        let wanted = (first..end).filter(|&lpn| {
            let in_buffer = buffer.read(lpn);
            let in_cache = !in_buffer && cache.look_up(lpn);
            from_buffer += u32::from(in_buffer);
            if in_cache && *lent {
                hits.push(lpn); // Asked for when all are looked up.
            } else {
                from_cache += u32::from(in_cache);
            }
            !(in_buffer || in_cache)
        });
        let read = ftl.read(cx.now, &mut cx.events, wanted, Owner::Command(slot));
        let past = past + if self.caches.lent { self.read_host_hits(cx, slot) } else { 0 };
        if self.ahead.is_enabled() && self.caches.read.is_enabled() {
            self.read_ahead(cx, ftl, first, end);
        }
        let work = &mut self.work[slot as usize];
        work.step = Step::Read;
        work.pending = match read {
            Ok(queued) => queued + past,
            Err(queued) => {
                work.status = Status::UNRECOVERED_READ_ERROR;
                queued + past
            }
        };
        if work.pending == 0 {
            if from_buffer + from_cache > 0 {
                work.step = Step::Send;
                let mut done = cx.now;
                if from_buffer > 0 {
                    done = cx.memories[self.caches.write_port].read(cx.now, u64::from(from_buffer) << cx.shift.unit);
                }
                if from_cache > 0 {
                    done = done
                        .max(cx.memories[self.caches.read_port].read(cx.now, u64::from(from_cache) << cx.shift.unit));
                }
                cx.events.push(done, lane::OTHER, Event::Data { slot: slot.into() });
            } else {
                self.send(cx, ftl, host, slot);
            }
        }
    }

    /// Pages that are read before anyone wrote them were written before the run. Returns the reads that were queued for
    /// those that could not be given a place.
    #[inline]
    fn premap<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, slot: u16, first: u32, end: u32) -> u32 {
        let all = ftl.map().mapped() == u64::from(ftl.map().units());
        if all { 0 } else { self.premap_missing(cx, ftl, slot, first, end) }
    }

    #[inline(never)]
    fn premap_missing<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        slot: u16,
        first: u32,
        end: u32,
    ) -> u32 {
        let mut queued = 0;
        for lpn in first..end.min(ftl.data_units()) {
            if ftl.map().is_virgin(lpn) && !self.caches.write.contains(lpn) && !ftl.premap(lpn, PAST) {
                queued += u32::from(ftl.read_past(cx.now, &mut cx.events, lpn, Owner::Command(slot)));
            }
        }
        ftl.wake_collection(cx.now, &mut cx.events);
        queued
    }

    /// A flash read for a command is done.
    #[inline(always)]
    pub(crate) fn on_read_done<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        host: &Host,
        slot: u16,
        failed: bool,
    ) {
        let work = &mut self.work[slot as usize];
        work.pending -= 1;
        if failed {
            work.status = Status::UNRECOVERED_READ_ERROR;
        }
        if work.pending > 0 {
            return;
        }
        if work.step == Step::Read { self.send(cx, ftl, host, slot) } else { self.on_merged(cx, ftl, host, slot) }
    }

    /// Pages that a command writes in part are at hand.
    #[inline(never)]
    fn on_merged<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let Work { step, status, .. } = self.work[slot as usize];
        assert_eq!(step, Step::Merge, "a read came back to a command in this step");
        if status.is_success() {
            self.wait_turn(cx, ftl, host, slot, Step::Write);
        } else {
            cx.finish(slot, cx.now);
        }
    }

    /// All pages of a read are at hand: they go to the host.
    fn send<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        // A command that reads keeps its pages: only writes move on.
        let &Work { action, blocks, next: first, end, .. } = &self.work[slot as usize];
        let lost = |lpn| ftl.map().get(lpn) == Entry::Lost && !self.caches.write.is_dirty(lpn);
        if ftl.statistics.lost > 0 && (first..end).any(lost) {
            // Collection found out while it was read.
            self.work[slot as usize].status = Status::UNRECOVERED_READ_ERROR;
        }
        if self.work[slot as usize].status.is_success() {
            self.keep_pages(cx, ftl, first, end);
        }
        match action {
            Action::Read => {
                let bytes = u64::from(blocks) << cx.shift.block;
                if cx.options.stamps && self.work[slot as usize].status.is_success() {
                    let (queue, cid) = {
                        let s = host.slot(Permit::from_index(slot));
                        (s.queue, s.cid)
                    };
                    for lpn in first..end {
                        let place = self.found_by(ftl, slot, lpn);
                        cx.outputs.push_back(Output::Data { queue, cid, lpn, place });
                    }
                }
                let arrives = cx.link_out.transfer(cx.now, bytes) + cx.completion_time;
                cx.events.push(arrives, lane::COMPLETE_READ, Event::Complete { slot: slot.into() });
            }
            Action::Compare => {
                let expected = self.tag(host, slot);
                let differs = cx.options.stamps
                    && (first..end).any(|lpn| self.found_by(ftl, slot, lpn).version() != Some(expected));
                if differs && self.work[slot as usize].status.is_success() {
                    self.work[slot as usize].status = Status::COMPARE_FAILURE;
                }
                cx.finish(slot, cx.now);
            }
            _ => cx.finish(slot, cx.now),
        }
        self.forget_found(slot);
    }

    /// Pages that are written in part are read first.
    #[inline(always)]
    pub(crate) fn merge<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let &Work { first_block, blocks, .. } = &self.work[slot as usize];
        let mask = (1u64 << cx.shift.page) - 1;
        let head = first_block & mask != 0;
        let tail = (first_block + u64::from(blocks)) & mask != 0;
        if head || tail {
            cold_path();
            if !self.read_parts(cx, ftl, host, slot, head, tail) {
                return;
            }
        }
        self.wait_turn(cx, ftl, host, slot, Step::Write);
    }

    /// Reads the pages that a command writes in part: its first, its last. True: they are at hand. False: it comes back
    /// when they are, or has ended.
    #[inline(never)]
    fn read_parts<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        host: &Host,
        slot: u16,
        head: bool,
        tail: bool,
    ) -> bool {
        let &Work { next, end, .. } = &self.work[slot as usize];
        let buffer = &self.caches.write;
        let first = (head && !buffer.contains(next)).then_some(next);
        let last = (tail && (end - 1 != next || !head) && !buffer.contains(end - 1)).then_some(end - 1);
        if self.translate(cx, ftl, host, slot, first.into_iter().chain(last)) {
            return false;
        }
        let mut past = 0;
        if cx.options.premap {
            past = first.into_iter().chain(last).map(|lpn| self.premap(cx, ftl, slot, lpn, lpn + 1)).sum();
        }
        let read = ftl.read(cx.now, &mut cx.events, first.into_iter().chain(last), Owner::Command(slot));
        let work = &mut self.work[slot as usize];
        work.step = Step::Merge;
        work.pending = past + read.unwrap_or_else(|queued| queued);
        if read.is_err() {
            work.status = Status::UNRECOVERED_READ_ERROR;
            if work.pending == 0 {
                cx.finish(slot, cx.now);
                return false;
            }
        }
        work.pending == 0
    }

    /// Continues at once if it is first in line, else when its turn comes.
    #[inline(always)]
    fn wait_turn<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16, step: Step) {
        self.work[slot as usize].step = step;
        if !self.stalled.is_empty() || !self.advance(cx, ftl, host, slot) {
            self.stall(cx, ftl, host, slot);
        }
    }

    #[inline(never)]
    fn stall<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        if self.waits_for_room(slot) {
            self.caches.write.begin_wait(cx.now);
        }
        self.stalled.push_back(slot);
        self.go_on_stalled(cx, ftl, host);
    }

    /// Whether a command that is stalled waits for room in the write buffer, and not for flash.
    fn waits_for_room(&self, slot: u16) -> bool {
        let Work { action, fua, .. } = self.work[usize::from(slot)];
        action == Action::Write && self.caches.write.is_enabled() && (!fua || self.caches.survives)
    }

    /// Lets a command that writes or flushes go on. False: it must wait.
    #[inline(always)]
    fn advance<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) -> bool {
        match self.work[slot as usize].action {
            Action::Write => self.write_pages(cx, ftl, host, slot),
            Action::WriteZeroes => self.write_zeroes(cx, ftl, host, slot),
            Action::Flush => self.drain(cx, ftl, slot),
            action => unreachable!("{action:?} neither writes nor flushes"),
        }
    }

    #[inline(always)]
    fn write_pages<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) -> bool {
        let &Work { fua, first_block, blocks, next, end, .. } = &self.work[slot as usize];
        let through = fua && !self.caches.survives || !self.caches.write.is_enabled();
        let version = self.tag(host, slot);
        let run = Run { first: (first_block >> cx.shift.page) as u32, end };
        for lpn in next..end {
            let previous = cx.options.payload.then(|| self.caches.locate(ftl, lpn));
            let taken = if through {
                self.write_through(cx, ftl, slot, lpn, version)
            } else {
                self.write_back(cx, ftl, lpn, version, run)
            };
            if taken {
                self.tell_taken(cx, host, slot, lpn, previous);
            } else {
                self.work[slot as usize].next = lpn;
                return false;
            }
        }
        self.work[slot as usize].next = end;
        self.background_destage(cx, ftl);
        if through {
            self.work[slot as usize].step = Step::Program;
            return true; // Its completion comes with the last program.
        }
        let bytes = u64::from(blocks) << cx.shift.block;
        let written = cx.memories[self.caches.write_port].write(cx.now, bytes);
        cx.finish(slot, written);
        true
    }

    /// Reports to the payload store that a page counts from now on.
    #[inline]
    fn tell_taken(&mut self, cx: &mut Context, host: &Host, slot: u16, lpn: u32, previous: Option<Whereabouts>) {
        let Some(previous) = previous else { return };
        let &Slot { queue, cid, .. } = host.slot(Permit::from_index(slot));
        cx.outputs.push_back(Output::Taken { queue, cid, lpn, previous });
    }

    #[inline(always)]
    fn write_back<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, lpn: u32, version: u64, run: Run) -> bool {
        self.caches.uncache(lpn);
        while !self.caches.write.write(lpn, version, run) {
            if !(self.caches.write.drop_clean() || self.destage(cx, ftl)) {
                return false;
            }
        }
        true
    }

    fn write_through<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        slot: u16,
        lpn: u32,
        version: u64,
    ) -> bool {
        if !ftl.can_write() {
            return false;
        }
        self.caches.uncache(lpn);
        self.caches.write.remove(lpn);
        self.work[slot as usize].pending += 1;
        ftl.write(cx.now, &mut cx.events, lpn, version, Owner::Command(slot));
        true
    }

    /// A page that a command wrote through is on flash.
    pub(crate) fn on_unit_programmed(&mut self, cx: &mut Context, slot: u16) {
        let work = &mut self.work[slot as usize];
        work.pending -= 1;
        // A command that is stalled half-way still has pages to write.
        if work.pending == 0 && work.step == Step::Program {
            cx.finish(slot, cx.now);
        }
    }

    fn write_zeroes<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) -> bool {
        let &Work { fua, first_block, blocks, end, .. } = &self.work[slot as usize];
        let shift = cx.shift.page;
        let end_block = first_block + u64::from(blocks);
        // Pages that are zeroed in part are written; whole ones are unmapped, and read as zeroes.
        let (whole_first, whole_end) = (first_block.div_ceil(1 << shift) as u32, (end_block >> shift) as u32);
        let version = self.tag(host, slot);
        while self.work[slot as usize].next < end {
            let lpn = self.work[slot as usize].next;
            if (whole_first..whole_end).contains(&lpn) {
                self.deallocate(cx, ftl, whole_first, whole_end - whole_first);
                self.work[slot as usize].next = whole_end;
                continue;
            }
            let previous = cx.options.payload.then(|| self.caches.locate(ftl, lpn));
            if !self.write_through(cx, ftl, slot, lpn, version) {
                return false;
            }
            self.tell_taken(cx, host, slot, lpn, previous);
            self.work[slot as usize].next += 1;
        }
        // Without a volatile buffer in front, what has completed is durable, deallocations too; where one survives,
        // these do as well.
        if fua && !self.caches.survives || !self.caches.write.is_enabled() {
            self.work[slot as usize].mark = ftl.begin_flush(cx.now, &mut cx.events);
            self.work[slot as usize].step = Step::Durable;
            self.flushing.push(slot);
            self.end_flushes(cx, ftl);
        } else if self.work[slot as usize].pending > 0 {
            self.work[slot as usize].step = Step::Program;
        } else {
            cx.finish(slot, cx.now);
        }
        true
    }

    fn deallocate<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, first: u32, count: u32) {
        self.caches.is_stuck = false;
        if !(self.caches.write.is_empty() && self.caches.read.is_empty()) {
            let held = self.caches.write.len() + self.caches.read.len();
            if (count as usize) <= 4 * held {
                for lpn in first..first + count {
                    self.caches.write.remove(lpn);
                    self.caches.uncache(lpn);
                }
            } else {
                let range = first..first + count;
                let gone = |pages: Vec<u32>| pages.into_iter().filter(|l| range.contains(l)).collect::<Vec<_>>();
                for lpn in gone(self.caches.write.pages()) {
                    self.caches.write.remove(lpn);
                }
                gone(self.caches.read.pages()).into_iter().for_each(|lpn| self.caches.uncache(lpn));
            }
        }
        ftl.deallocate(first, count);
        ftl.wake_collection(cx.now, &mut cx.events);
    }

    /// Only whole pages are deallocated; NVM Express 1.4, 6.7.1.1 lets a controller leave the rest as it is.
    fn deallocate_ranges<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let shift = cx.shift.page;
        let mut i = 0;
        while let Some(range) = host.slot(Permit::from_index(slot)).ranges().get(i).copied() {
            i += 1;
            let first = range.first_block.div_ceil(1 << shift) as u32;
            let end = ((range.first_block + u64::from(range.blocks)) >> shift) as u32;
            if end > first {
                self.deallocate(cx, ftl, first, end - first);
            }
        }
    }

    /// A flush empties the write buffer, then waits for what is on its way to flash. Writes that come later wait behind
    /// it until the buffer is empty. Where the buffer survives a power loss, so do rows on their way and deallocations
    /// that are not logged.
    fn drain<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, slot: u16) -> bool {
        if self.caches.survives {
            ftl.log_deallocations(cx.now, &mut cx.events);
            cx.finish(slot, cx.now);
            return true;
        }
        while self.caches.write.dirty() > 0 {
            if !self.destage(cx, ftl) {
                return false;
            }
        }
        let work = &mut self.work[slot as usize];
        work.step = Step::Durable;
        work.mark = ftl.begin_flush(cx.now, &mut cx.events);
        self.flushing.push(slot);
        self.end_flushes(cx, ftl);
        true
    }

    pub(crate) fn end_flushes<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        let mut i = 0;
        while i < self.flushing.len() {
            let slot = self.flushing[i];
            if ftl.is_durable(self.work[slot as usize].mark) {
                self.flushing.remove(i);
                cx.finish(slot, cx.now);
            } else if ftl.is_worn_out() {
                self.flushing.remove(i);
                self.give_up(cx, slot);
            } else {
                i += 1;
            }
        }
    }

    /// Commands that wait for room go on, the oldest first.
    #[inline]
    pub(crate) fn go_on_stalled<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host) {
        // What the oldest needs is a row on flash, or that pages are taken out of the buffer: no use in trying before.
        if !self.stalled.is_empty() && (!self.caches.is_stuck || ftl.has_ready_die() || ftl.is_worn_out()) {
            self.retry_stalled(cx, ftl, host);
        }
    }

    #[inline(never)]
    fn retry_stalled<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host) {
        self.caches.is_stuck = false;
        while let Some(&slot) = self.stalled.front() {
            if !self.advance(cx, ftl, host, slot) {
                if !ftl.is_worn_out() {
                    self.caches.is_stuck = true;
                    break;
                }
                self.give_up(cx, slot);
            }
            self.stalled.pop_front();
            if self.waits_for_room(slot) {
                self.caches.write.end_wait(cx.now);
            }
        }
    }

    /// There will be no room for what a command still has to write.
    fn give_up(&mut self, cx: &mut Context, slot: u16) {
        let work = &mut self.work[slot as usize];
        work.status = Status::WRITE_FAULT;
        work.step = Step::Program;
        if work.pending == 0 {
            cx.finish(slot, cx.now);
        }
    }
}
