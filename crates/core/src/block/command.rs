//! What each NVMe command does, step by step, from the command pipeline to its completion.

use crate::buffer::Run;
use crate::content::{PAST, Whereabouts};
use crate::device::{Device, Output};
use crate::events::{Event, lane};
use crate::ftl::Entry;
use crate::host::{Permit, Slot};
use crate::owner::Owner;
use std::hint::cold_path;
use tidewater_base::Instant;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Command, DsmRange, Kind, Status};

/// Where a command stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Data comes from the host, or from memory.
    #[default]
    Data,
    /// Map entries are looked up, or read from flash.
    Translate,
    /// Partly written pages are read, to be merged.
    Merge,
    /// Pages go to the buffer or to flash.
    Write,
    /// Pages written through are being programmed.
    Program,
    /// Pages are read from flash.
    Read,
    /// Data that was read goes to the host.
    Send,
    /// The buffer is emptied for a flush.
    Drain,
    /// All that came before is being programmed.
    Durable,
}

/// What a command does, as far as its steps differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing: it was refused.
    #[default]
    Refuse,
    Read,
    Verify,
    Compare,
    Write,
    WriteZeroes,
    Flush,
    /// Dataset Management that deallocates, and that gives hints only.
    Deallocate,
    Hint,
}

/// A command under way: what it asks for, worked out once, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) action: Action,
    fua: bool,
    /// It has passed the LBA gate.
    pub(crate) begun: bool,
    pub(crate) step: Step,
    pub(crate) status: Status,
    first_block: u64,
    blocks: u32,
    /// Bytes that come from the host.
    bytes_in: u32,
    /// The next logical page to handle, and the first after the last.
    pub(crate) next: u32,
    pub(crate) end: u32,
    /// Flash operations, programs or accesses to host memory that it waits for.
    pub(crate) pending: u32,
    /// What [`crate::ftl::Ftl::is_durable`] is asked.
    mark: (u64, u64),
}

/// Bytes of a range of Dataset Management.
const RANGE: u32 = DsmRange::SIZE as u32;

impl<M: Medium> Device<M> {
    #[inline(always)]
    fn tag(&self, slot: u16) -> u64 {
        self.host.slot(Permit::from_index(slot)).tag
    }

    /// A command that was taken: what it touches, for all its steps.
    #[inline(always)]
    pub(crate) fn admit(&mut self, permit: Permit) {
        let work = match self.host.slot(permit).command {
            Ok(Command { ref kind, first_block, blocks, fua, .. }) => {
                let last = first_block + u64::from(blocks) + (1 << self.page_shift) - 1;
                let (next, end) = ((first_block >> self.page_shift) as u32, (last >> self.page_shift) as u32);
                let data = blocks << self.block_shift;
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
                if action != Action::Write || !self.write_buffer.is_enabled() {
                    self.ftl.prefetch(next);
                }
                Work { action, fua, first_block, blocks, bytes_in, next, end, ..Work::default() }
            }
            Err(status) => Work { status, ..Work::default() },
        };
        self.work[usize::from(permit.index())] = work;
    }

    /// A command has left the pipeline.
    #[inline(always)]
    pub(crate) fn begin(&mut self, slot: u16) {
        if self.window.table().used() > 0 && !self.passes_gate(slot) {
            cold_path();
            return;
        }
        let work = &mut self.work[slot as usize];
        work.begun = true;
        let &mut Work { action, bytes_in, next, end, .. } = work;
        match action {
            Action::Read | Action::Verify => self.read_pages(slot, next, end),
            Action::Write | Action::Compare | Action::Deallocate | Action::Hint => self.receive(slot, bytes_in.into()),
            Action::WriteZeroes => self.go_on(slot),
            Action::Flush => self.wait_turn(slot, Step::Drain),
            Action::Refuse => self.finish(slot, self.now),
        }
    }

    #[inline(always)]
    fn receive(&mut self, slot: u16, bytes: u64) {
        let arrives = self.link_in.transfer(self.now, bytes);
        self.events.push(arrives, lane::DATA_IN, Event::Data { slot: slot.into() });
    }

    /// A step that took time is over.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, slot: u16) {
        let &Work { action, step, next, end, .. } = &self.work[slot as usize];
        if step == Step::Send {
            return self.send(slot);
        }
        if step == Step::Translate {
            return self.on_translated(slot);
        }
        match action {
            Action::Write | Action::WriteZeroes => self.merge(slot),
            Action::Compare => self.read_pages(slot, next, end),
            Action::Deallocate => {
                self.deallocate_ranges(slot);
                self.finish(slot, self.now);
            }
            Action::Hint => self.finish(slot, self.now),
            Action::Read | Action::Verify | Action::Flush | Action::Refuse => {
                unreachable!("{action:?} has no data to wait for")
            }
        }
    }

    /// Looks a command's pages up: in the write buffer, in the read cache, on flash.
    pub(crate) fn read_pages(&mut self, slot: u16, first: u32, end: u32) {
        if self.translate(slot, first..end) {
            return; // It comes back when all entries are at hand.
        }
        let (mut from_buffer, mut from_cache) = (0u32, 0u32);
        let past = if self.options.premap { self.premap(slot, first, end) } else { 0 };
        let (buffer, cache, on_host) = (&mut self.write_buffer, &mut self.read_cache, &mut self.host_uses);
        // The write buffer's hit ratio is that of writes; its read hits only spare the flash.
        let wanted = (first..end).filter(|&lpn| {
            let in_buffer = buffer.read(lpn);
            let in_cache = !in_buffer && cache.look_up(lpn);
            from_buffer += u32::from(in_buffer);
            if in_cache && on_host.cache {
                on_host.hit(lpn);
            } else {
                from_cache += u32::from(in_cache);
            }
            !(in_buffer || in_cache)
        });
        let read = self.ftl.read(self.now, &mut self.events, wanted, Owner::Command(slot));
        let past = past + if self.host_uses.cache { self.read_host_hits(slot) } else { 0 };
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
                let mut done = self.now;
                if from_buffer > 0 {
                    done = self.memories[self.write_port].read(self.now, u64::from(from_buffer) << self.unit_shift);
                }
                if from_cache > 0 {
                    done = done
                        .max(self.memories[self.read_port].read(self.now, u64::from(from_cache) << self.unit_shift));
                }
                self.events.push(done, lane::OTHER, Event::Data { slot: slot.into() });
            } else {
                self.send(slot);
            }
        }
    }

    /// Pages that are read before anyone wrote them were written before the run. Returns the reads that were queued for
    /// those that could not be given a place.
    #[inline]
    fn premap(&mut self, slot: u16, first: u32, end: u32) -> u32 {
        let all = self.ftl.map().mapped() == u64::from(self.ftl.map().units());
        if all { 0 } else { self.premap_missing(slot, first, end) }
    }

    #[inline(never)]
    fn premap_missing(&mut self, slot: u16, first: u32, end: u32) -> u32 {
        let mut queued = 0;
        for lpn in first..end.min(self.ftl.data_units()) {
            if self.ftl.map().is_virgin(lpn) && !self.write_buffer.contains(lpn) && !self.ftl.premap(lpn, PAST) {
                queued += u32::from(self.ftl.read_past(self.now, &mut self.events, lpn, Owner::Command(slot)));
            }
        }
        self.ftl.wake_collection(self.now, &mut self.events);
        queued
    }

    /// A flash read for a command is done.
    pub(crate) fn on_read_done(&mut self, slot: u16, failed: bool) {
        let work = &mut self.work[slot as usize];
        work.pending -= 1;
        if failed {
            work.status = Status::UNRECOVERED_READ_ERROR;
        }
        if work.pending > 0 {
            return;
        }
        match work.step {
            Step::Read => self.send(slot),
            Step::Merge if work.status.is_success() => self.wait_turn(slot, Step::Write),
            Step::Merge => self.finish(slot, self.now),
            step => unreachable!("a read came back to a command in step {step:?}"),
        }
    }

    /// All pages of a read are at hand: they go to the host.
    fn send(&mut self, slot: u16) {
        // A command that reads keeps its pages: only writes move on.
        let &Work { action, blocks, next: first, end, .. } = &self.work[slot as usize];
        let lost = |lpn| self.ftl.map().get(lpn) == Entry::Lost && !self.write_buffer.is_dirty(lpn);
        if self.ftl.statistics.lost > 0 && (first..end).any(lost) {
            // Collection found out while it was read.
            self.work[slot as usize].status = Status::UNRECOVERED_READ_ERROR;
        }
        if self.work[slot as usize].status.is_success() {
            self.keep_pages(first, end);
        }
        match action {
            Action::Read => {
                let bytes = u64::from(blocks) << self.block_shift;
                if self.options.stamps && self.work[slot as usize].status.is_success() {
                    let (queue, cid) = {
                        let s = self.host.slot(Permit::from_index(slot));
                        (s.queue, s.cid)
                    };
                    for lpn in first..end {
                        let place = self.found_by(slot, lpn);
                        self.outputs.push_back(Output::Data { queue, cid, lpn, place });
                    }
                }
                let arrives = self.link_out.transfer(self.now, bytes) + self.profile.host.completion_time;
                self.events.push(arrives, lane::COMPLETE_READ, Event::Complete { slot: slot.into() });
            }
            Action::Compare => {
                let expected = self.tag(slot);
                let differs =
                    self.options.stamps && (first..end).any(|lpn| self.found_by(slot, lpn).version() != Some(expected));
                if differs && self.work[slot as usize].status.is_success() {
                    self.work[slot as usize].status = Status::COMPARE_FAILURE;
                }
                self.finish(slot, self.now);
            }
            _ => self.finish(slot, self.now),
        }
        self.forget_found(slot);
    }

    /// Pages that are written in part are read first.
    #[inline(always)]
    pub(crate) fn merge(&mut self, slot: u16) {
        let &Work { first_block, blocks, .. } = &self.work[slot as usize];
        let mask = (1u64 << self.page_shift) - 1;
        let head = first_block & mask != 0;
        let tail = (first_block + u64::from(blocks)) & mask != 0;
        if head || tail {
            cold_path();
            if !self.read_parts(slot, head, tail) {
                return;
            }
        }
        self.wait_turn(slot, Step::Write);
    }

    /// Reads the pages that a command writes in part: its first, its last. True: they are at hand. False: it comes back
    /// when they are, or has ended.
    #[inline(never)]
    fn read_parts(&mut self, slot: u16, head: bool, tail: bool) -> bool {
        let &Work { next, end, .. } = &self.work[slot as usize];
        let buffer = &self.write_buffer;
        let first = (head && !buffer.contains(next)).then_some(next);
        let last = (tail && (end - 1 != next || !head) && !buffer.contains(end - 1)).then_some(end - 1);
        if self.translate(slot, first.into_iter().chain(last)) {
            return false;
        }
        let mut past = 0;
        if self.options.premap {
            past = first.into_iter().chain(last).map(|lpn| self.premap(slot, lpn, lpn + 1)).sum();
        }
        let read = self.ftl.read(self.now, &mut self.events, first.into_iter().chain(last), Owner::Command(slot));
        let work = &mut self.work[slot as usize];
        work.step = Step::Merge;
        work.pending = past + read.unwrap_or_else(|queued| queued);
        if read.is_err() {
            work.status = Status::UNRECOVERED_READ_ERROR;
            if work.pending == 0 {
                self.finish(slot, self.now);
                return false;
            }
        }
        work.pending == 0
    }

    /// Goes on at once if nobody stands before it, else when its turn comes.
    #[inline(always)]
    fn wait_turn(&mut self, slot: u16, step: Step) {
        self.work[slot as usize].step = step;
        if !self.stalled.is_empty() || !self.advance(slot) {
            self.stall(slot);
        }
    }

    #[inline(never)]
    fn stall(&mut self, slot: u16) {
        if self.waits_for_room(slot) {
            self.write_buffer.begin_wait(self.now);
        }
        self.stalled.push_back(slot);
        self.go_on_stalled();
    }

    /// Whether a command that is stalled waits for room in the write buffer, and not for flash.
    fn waits_for_room(&self, slot: u16) -> bool {
        let Work { action, fua, .. } = self.work[usize::from(slot)];
        action == Action::Write && self.write_buffer.is_enabled() && (!fua || self.buffer_survives)
    }

    /// Lets a command that writes or flushes go on. False: it must wait.
    #[inline(always)]
    fn advance(&mut self, slot: u16) -> bool {
        match self.work[slot as usize].action {
            Action::Write => self.write_pages(slot),
            Action::WriteZeroes => self.write_zeroes(slot),
            Action::Flush => self.drain(slot),
            action => unreachable!("{action:?} neither writes nor flushes"),
        }
    }

    #[inline(always)]
    fn write_pages(&mut self, slot: u16) -> bool {
        let &Work { fua, first_block, blocks, next, end, .. } = &self.work[slot as usize];
        let through = fua && !self.buffer_survives || !self.write_buffer.is_enabled();
        let version = self.tag(slot);
        let run = Run { first: (first_block >> self.page_shift) as u32, end };
        for lpn in next..end {
            let previous = self.options.payload.then(|| self.locate(lpn));
            let taken =
                if through { self.write_through(slot, lpn, version) } else { self.write_back(lpn, version, run) };
            if taken {
                self.tell_taken(slot, lpn, previous);
            } else {
                self.work[slot as usize].next = lpn;
                return false;
            }
        }
        self.work[slot as usize].next = end;
        self.background_destage();
        if through {
            self.work[slot as usize].step = Step::Program;
            return true; // Its completion comes with the last program.
        }
        let bytes = u64::from(blocks) << self.block_shift;
        let written = self.memories[self.write_port].write(self.now, bytes);
        self.finish(slot, written);
        true
    }

    /// Tells whoever keeps payload that a page counts from now on.
    #[inline]
    fn tell_taken(&mut self, slot: u16, lpn: u32, previous: Option<Whereabouts>) {
        let Some(previous) = previous else { return };
        let &Slot { queue, cid, .. } = self.host.slot(Permit::from_index(slot));
        self.outputs.push_back(Output::Taken { queue, cid, lpn, previous });
    }

    #[inline(always)]
    fn write_back(&mut self, lpn: u32, version: u64, run: Run) -> bool {
        self.uncache(lpn);
        while !self.write_buffer.write(lpn, version, run) {
            if !(self.write_buffer.drop_clean() || self.destage()) {
                return false;
            }
        }
        true
    }

    fn write_through(&mut self, slot: u16, lpn: u32, version: u64) -> bool {
        if !self.ftl.can_write() {
            return false;
        }
        self.uncache(lpn);
        self.write_buffer.remove(lpn);
        self.work[slot as usize].pending += 1;
        self.ftl.write(self.now, &mut self.events, lpn, version, Owner::Command(slot));
        true
    }

    /// A page that a command wrote through is on flash.
    pub(crate) fn on_unit_programmed(&mut self, slot: u16) {
        let work = &mut self.work[slot as usize];
        work.pending -= 1;
        // A command that is stalled half-way still has pages to write.
        if work.pending == 0 && work.step == Step::Program {
            self.finish(slot, self.now);
        }
    }

    fn write_zeroes(&mut self, slot: u16) -> bool {
        let &Work { fua, first_block, blocks, end, .. } = &self.work[slot as usize];
        let shift = self.page_shift;
        let end_block = first_block + u64::from(blocks);
        // Pages that are zeroed in part are written; whole ones are unmapped, and read as zeroes.
        let (whole_first, whole_end) = (first_block.div_ceil(1 << shift) as u32, (end_block >> shift) as u32);
        let version = self.tag(slot);
        while self.work[slot as usize].next < end {
            let lpn = self.work[slot as usize].next;
            if (whole_first..whole_end).contains(&lpn) {
                self.deallocate(whole_first, whole_end - whole_first);
                self.work[slot as usize].next = whole_end;
                continue;
            }
            let previous = self.options.payload.then(|| self.locate(lpn));
            if !self.write_through(slot, lpn, version) {
                return false;
            }
            self.tell_taken(slot, lpn, previous);
            self.work[slot as usize].next += 1;
        }
        // Without a volatile buffer in front, what has completed is durable, deallocations too; where one survives,
        // these do as well.
        if fua && !self.buffer_survives || !self.write_buffer.is_enabled() {
            self.work[slot as usize].mark = self.ftl.begin_flush(self.now, &mut self.events);
            self.work[slot as usize].step = Step::Durable;
            self.flushing.push(slot);
            self.end_flushes();
        } else if self.work[slot as usize].pending > 0 {
            self.work[slot as usize].step = Step::Program;
        } else {
            self.finish(slot, self.now);
        }
        true
    }

    fn deallocate(&mut self, first: u32, count: u32) {
        self.is_stuck = false;
        if !(self.write_buffer.is_empty() && self.read_cache.is_empty()) {
            let held = self.write_buffer.len() + self.read_cache.len();
            if (count as usize) <= 4 * held {
                for lpn in first..first + count {
                    self.write_buffer.remove(lpn);
                    self.uncache(lpn);
                }
            } else {
                let range = first..first + count;
                let gone = |pages: Vec<u32>| pages.into_iter().filter(|l| range.contains(l)).collect::<Vec<_>>();
                for lpn in gone(self.write_buffer.pages()) {
                    self.write_buffer.remove(lpn);
                }
                gone(self.read_cache.pages()).into_iter().for_each(|lpn| self.uncache(lpn));
            }
        }
        self.ftl.deallocate(first, count);
        self.ftl.wake_collection(self.now, &mut self.events);
    }

    /// Only whole pages are deallocated; NVM Express 1.4, 6.7.1.1 lets a controller leave the rest as it is.
    fn deallocate_ranges(&mut self, slot: u16) {
        let shift = self.page_shift;
        let mut i = 0;
        while let Some(range) = self.host.slot(Permit::from_index(slot)).ranges().get(i).copied() {
            i += 1;
            let first = range.first_block.div_ceil(1 << shift) as u32;
            let end = ((range.first_block + u64::from(range.blocks)) >> shift) as u32;
            if end > first {
                self.deallocate(first, end - first);
            }
        }
    }

    /// A flush empties the write buffer, then waits for what is on its way to flash. Writes that come later wait behind
    /// it until the buffer is empty. Where the buffer survives a power loss, so do rows on their way and deallocations
    /// that are not logged.
    fn drain(&mut self, slot: u16) -> bool {
        if self.buffer_survives {
            self.ftl.log_deallocations(self.now, &mut self.events);
            self.finish(slot, self.now);
            return true;
        }
        while self.write_buffer.dirty() > 0 {
            if !self.destage() {
                return false;
            }
        }
        let work = &mut self.work[slot as usize];
        work.step = Step::Durable;
        work.mark = self.ftl.begin_flush(self.now, &mut self.events);
        self.flushing.push(slot);
        self.end_flushes();
        true
    }

    fn end_flushes(&mut self) {
        let mut i = 0;
        while i < self.flushing.len() {
            let slot = self.flushing[i];
            if self.ftl.is_durable(self.work[slot as usize].mark) {
                self.flushing.remove(i);
                self.finish(slot, self.now);
            } else if self.is_worn_out() {
                self.flushing.remove(i);
                self.give_up(slot);
            } else {
                i += 1;
            }
        }
    }

    /// Flash has made progress: whoever waited for that may go on.
    #[inline(always)]
    pub(crate) fn after_flash(&mut self) {
        if self.ftl.has_rejected() || !self.flushing.is_empty() {
            self.answer_waiting();
        }
        self.go_on_stalled();
        self.go_on_flushing();
        self.go_on_restoring();
        self.background_destage();
        if self.fast.is_enabled() {
            self.go_on_logging();
        }
        if self.ftl.is_read_only() && !self.host.namespace().read_only {
            cold_path();
            self.host.set_read_only(true);
        }
    }

    /// The fast side goes on, too.
    #[inline(never)]
    fn go_on_logging(&mut self) {
        while let Some(owner) = self.ftl.take_rewritten() {
            if let Owner::Log { function, number } = owner {
                self.on_page_rewritten(function.into(), number);
            }
        }
        self.go_on_destaging();
    }

    /// Tells those whose units can't be written, and those whose flush has ended.
    #[inline(never)]
    fn answer_waiting(&mut self) {
        while let Some(owner) = self.ftl.take_rejected() {
            self.on_owner_programmed(owner, true);
        }
        if !self.flushing.is_empty() {
            if self.ftl.flash.outstanding() == 0 {
                // What they still wait for is the log of deallocations.
                self.ftl.log_deallocations(self.now, &mut self.events);
            }
            self.end_flushes();
        }
    }

    /// Whoever waits for room goes on, oldest first.
    #[inline]
    fn go_on_stalled(&mut self) {
        // What the oldest needs is a row on flash, or that pages are taken out of the buffer: no use in trying before.
        if !self.stalled.is_empty() && (!self.is_stuck || self.ftl.has_ready_die() || self.is_worn_out()) {
            self.retry_stalled();
        }
    }

    #[inline(never)]
    fn retry_stalled(&mut self) {
        self.is_stuck = false;
        while let Some(&slot) = self.stalled.front() {
            if !self.advance(slot) {
                if !self.is_worn_out() {
                    self.is_stuck = true;
                    break;
                }
                self.give_up(slot);
            }
            self.stalled.pop_front();
            if self.waits_for_room(slot) {
                self.write_buffer.end_wait(self.now);
            }
        }
    }

    /// The end of life: nothing is under way that could make room.
    #[inline]
    pub(crate) fn is_worn_out(&self) -> bool {
        self.ftl.is_read_only() && self.ftl.flash.outstanding() == 0
    }

    /// There will be no room for what a command still has to write.
    fn give_up(&mut self, slot: u16) {
        let work = &mut self.work[slot as usize];
        work.status = Status::WRITE_FAULT;
        work.step = Step::Program;
        if work.pending == 0 {
            self.finish(slot, self.now);
        }
    }

    /// A command ends at `at`: its completion entry is written.
    #[inline(always)]
    pub(crate) fn finish(&mut self, slot: u16, at: Instant) {
        let arrives = at + self.profile.host.completion_time;
        self.events.push(arrives, lane::COMPLETE, Event::Complete { slot: slot.into() });
    }
}
