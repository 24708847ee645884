//! What happens when: stores and loads, and the jobs that move pages between buffer, flash and link.
//!
//! The way of a page between buffer and flash is not that of block commands: the firmware's core handles each for
//! `[window] page_time`, one after the other, whoever they are for. Flash and memory work beside it.

use super::EntryState;
use crate::content::{Content, PAST, Whereabouts};
use crate::device::{Device, Output};
use crate::events::{Event, lane};
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::status as vendor_status;

/// As the place of an event: a command, by its place among them.
pub(super) const COMMAND: u32 = 1 << 16;
/// The oldest load.
const LOAD: u32 = 1 << 17;
/// The next page of a dump that is brought back.
pub(super) const RESTORE: u32 = 1 << 18;

/// What is under way for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    #[default]
    None,
    /// A Pin waits for block commands.
    Drain,
    /// A Pin brings pages in.
    Pin,
    Flush,
    Sync,
    ReadDma,
    Write,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) cid: u16,
    /// Version of what a Flush writes.
    pub(super) tag: u64,
    /// Bytes from the start of the entry, and how many.
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) data: Box<[u8]>,
    /// Pages that are under way or done.
    pub(super) next: u32,
    /// Flash operations that it waits for, and pages that whoever keeps payload is to bring.
    pub(super) pending: u32,
    pub(super) fills: u32,
    /// When the memory has done what was asked of it.
    pub(super) ready_at: Instant,
    pub(super) status: Status,
    /// All is done but for the completion.
    pub(super) ending: bool,
    /// Flash had no room for the next page.
    pub(super) waits: bool,
    pub(super) generation: u32,
}

impl<M: Medium> Device<M> {
    /// The byte window.
    pub fn window(&self) -> &super::Window {
        &self.window
    }

    /// Breaks the window on purpose, until the power fails: for tests of the tests.
    #[doc(hidden)]
    pub fn set_window_flaw(&mut self, flaw: Option<super::Flaw>) {
        self.window.flaw = flaw;
    }

    /// Whether an address of a function's BAR2 is one of the window.
    #[inline]
    pub(crate) fn is_window(&self, function: u8, address: u64) -> bool {
        let (at, size) = (self.window.bar_offset, self.profile.window.size);
        function == 0 && self.window.is_enabled() && address >= at && address - at < size
    }

    /// A store into the window has arrived. What has arrived is safe: on stored energy the controller empties its
    /// receive buffers into the buffer before it dumps that.
    pub(crate) fn window_store(&mut self, address: u64, content: Content<'_>) {
        let shift = self.window.table.page_shift();
        let (mut at, mut done, len) = (address - self.window.bar_offset, 0u64, u64::from(content.len()));
        let mut dropped = self.is_recovering();
        while done < len && !dropped {
            let part = (len - done).min((1 << shift) - (at & ((1 << shift) - 1)));
            let owner = self.window.table.owner((at >> shift) as u32).and_then(|place| self.window.table.get(place));
            if owner.is_some_and(|entry| entry.state == EntryState::Pinned) {
                if let Content::Bytes(bytes) = content {
                    self.window.put(at, part as usize, Some(&bytes[done as usize..(done + part) as usize]));
                }
                self.memories[self.window.port].write(self.now, part);
            } else {
                dropped = true;
            }
            (at, done) = (at + part, done + part);
        }
        self.window.statistics.stores += 1;
        self.window.statistics.stores_dropped += u64::from(dropped);
    }

    /// A load from the window: non-posted, so it is answered when all that was stored before is in the buffer.
    pub(crate) fn window_load(&mut self, address: u64, len: u8, tag: u64) {
        let at = self.memories[self.window.port].read(self.now, len.into());
        self.window.loads.push_back(super::Load { tag, address, len });
        self.events.push(at, lane::OTHER, Event::Window { place: LOAD, generation: 0 });
    }

    fn finish_load(&mut self) {
        let Some(super::Load { tag, address, len }) = self.window.loads.pop_front() else { return };
        let (value, outside) = self.window_bytes(address, len);
        self.window.statistics.loads_outside += u64::from(outside);
        self.outputs.push_back(Output::Loaded { tag, value });
    }

    /// What a load from a function's BAR2 finds at once, up to 8 bytes, and whether some of them lie outside of every
    /// entry; `None`: the address is not of the window.
    pub fn window_peek(&self, function: u8, address: u64, len: u8) -> Option<(u64, bool)> {
        self.is_window(function, address).then(|| self.window_bytes(address, len))
    }

    /// Counts a load that [`Device::window_peek`] answered and of which some byte lay outside of every entry.
    pub(crate) fn window_loaded_outside(&mut self) {
        self.window.statistics.loads_outside += 1;
    }

    fn window_bytes(&self, address: u64, len: u8) -> (u64, bool) {
        let (at, len) = (address - self.window.bar_offset, u64::from(len.min(8)));
        let shift = self.window.table.page_shift();
        let mut value = [0xff; 8];
        let mut outside = false;
        for i in 0..len {
            let owner = self.window.table.owner(((at + i) >> shift) as u32);
            let there = owner.and_then(|place| self.window.table.get(place));
            if there.is_some_and(|entry| entry.state != EntryState::Pinning) && !self.window.is_restoring() {
                value[i as usize] = self.window.bytes.get((at + i) as usize).copied().unwrap_or(0);
            } else {
                outside = true;
            }
        }
        (u64::from_le_bytes(value), outside)
    }

    /// Something of the window is due.
    #[inline(never)]
    pub(crate) fn on_window(&mut self, place: u32, generation: u32) {
        match place {
            LOAD => self.finish_load(),
            RESTORE => self.restore_page(),
            place if place & COMMAND != 0 => self.on_window_command((place & !COMMAND) as usize),
            place if self.window.jobs[place as usize].generation == generation => self.step_job(place as usize),
            _ => {}
        }
    }

    pub(super) fn start_job(&mut self, place: usize, job: Job) {
        let generation = self.window.jobs[place].generation.wrapping_add(1);
        let Job { kind, bytes, .. } = job;
        self.window.jobs[place] = Job { generation, ..job };
        match kind {
            Kind::Drain => self.go_on_draining(),
            Kind::Sync => self.end_job_at(place, self.now),
            Kind::ReadDma => {
                let at = self.window.engine.serve(self.now, self.window.dma_time);
                self.wake_job(place, at);
            }
            Kind::Write => {
                let at = self.link_in.transfer(self.now, bytes.into());
                self.wake_job(place, at);
            }
            _ => self.next_page(place),
        }
    }

    fn wake_job(&mut self, place: usize, at: Instant) {
        let generation = self.window.jobs[place].generation;
        self.events.push(at, lane::OTHER, Event::Window { place: place as u32, generation });
    }

    /// The firmware turns to the next page of a job.
    fn next_page(&mut self, place: usize) {
        let at = self.window.engine.serve(self.now, self.window.page_time);
        self.wake_job(place, at);
    }

    /// Block commands have ended: a Pin that waited for them goes on.
    pub(crate) fn go_on_draining(&mut self) {
        for place in 0..self.window.jobs.len() {
            if self.window.jobs[place].kind == Kind::Drain {
                let entry = *self.window.table.get(place).expect("a job has its entry");
                if !self.is_under_way(entry.first, entry.end()) {
                    self.window.jobs[place].kind = Kind::Pin;
                    self.next_page(place);
                }
            }
        }
    }

    /// Whether a Pin waits for block commands.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.window.table.used() > 0 && self.window.jobs.iter().any(|job| job.kind == Kind::Drain)
    }

    fn step_job(&mut self, place: usize) {
        if self.window.jobs[place].ending {
            return self.end_job(place);
        }
        match self.window.jobs[place].kind {
            Kind::Pin => self.pin_page(place),
            Kind::Flush => self.flush_page(place),
            Kind::ReadDma => {
                let bytes = u64::from(self.window.jobs[place].bytes);
                let read = self.memories[self.window.port].read(self.now, bytes);
                let sent = self.link_out.transfer(self.now, bytes);
                self.end_job_at(place, read.max(sent));
            }
            Kind::Write => {
                let Job { offset, .. } = self.window.jobs[place];
                let data = std::mem::take(&mut self.window.jobs[place].data);
                let entry = *self.window.table.get(place).expect("a job has its entry");
                let at = (u64::from(entry.page) << self.window.table.page_shift()) + offset;
                self.window.put(at, data.len(), Some(&data));
                let written = self.memories[self.window.port].write(self.now, data.len() as u64);
                self.window.statistics.stores += 1;
                self.end_job_at(place, written);
            }
            Kind::None | Kind::Drain | Kind::Sync => {}
        }
    }

    /// Brings the next page of an entry into the buffer.
    fn pin_page(&mut self, place: usize) {
        let entry = *self.window.table.get(place).expect("a job has its entry");
        let next = self.window.jobs[place].next;
        let lpn = entry.first + next;
        let unit = 1u64 << self.unit_shift;
        self.window.jobs[place].next += 1;
        self.window.statistics.pages_pinned += 1;
        let mut read = 0;
        let buffered = self.write_buffer.contains(lpn);
        if self.options.premap && !buffered && self.ftl.map().is_virgin(lpn) && !self.ftl.premap(lpn, PAST) {
            read += u32::from(self.ftl.read_past(self.now, &mut self.events, lpn, Owner::Window(place as u8)));
            self.ftl.wake_collection(self.now, &mut self.events);
        }
        if !buffered {
            let lpns = std::iter::once(lpn);
            read += match self.ftl.read(self.now, &mut self.events, lpns, Owner::Window(place as u8)) {
                Ok(queued) => queued,
                Err(queued) => {
                    self.window.jobs[place].status = Status::UNRECOVERED_READ_ERROR;
                    queued
                }
            };
        }
        if read == 0 {
            let from = if buffered { self.memories[self.write_port].read(self.now, unit) } else { self.now };
            let there = self.memories[self.window.port].write(self.now, unit).max(from);
            self.window.jobs[place].ready_at = self.window.jobs[place].ready_at.max(there);
        }
        self.window.jobs[place].pending += read;
        if self.options.stamps {
            let offset = u64::from(entry.page + next) << self.unit_shift;
            match self.locate(lpn) {
                Whereabouts::Zeroes => self.window.put(offset, unit as usize, None),
                Whereabouts::Lost => self.window.jobs[place].status = Status::UNRECOVERED_READ_ERROR,
                at => {
                    self.window.jobs[place].fills += 1;
                    self.outputs.push_back(Output::WindowLoad { lpn, place: at });
                }
            }
        }
        if next + 1 < entry.pages {
            self.next_page(place);
        }
        self.maybe_end_job(place);
    }

    /// Writes the next page of an entry.
    fn flush_page(&mut self, place: usize) {
        let entry = *self.window.table.get(place).expect("a job has its entry");
        let Job { next, tag, .. } = self.window.jobs[place];
        if !self.ftl.can_write() {
            if self.is_worn_out() {
                // No room will come: what was written stays, the rest is still in the buffer.
                self.window.jobs[place].status = Status::WRITE_FAULT;
                self.window.jobs[place].next = entry.pages;
                return self.maybe_end_job(place);
            }
            self.window.jobs[place].waits = true;
            return;
        }
        let lpn = entry.first + next;
        self.window.jobs[place].next += 1;
        self.window.jobs[place].pending += 1;
        self.window.statistics.pages_flushed += 1;
        let read = self.memories[self.window.port].read(self.now, 1 << self.unit_shift);
        self.window.jobs[place].ready_at = self.window.jobs[place].ready_at.max(read);
        self.uncache(lpn);
        self.is_stuck &= !self.write_buffer.remove(lpn);
        self.ftl.write(self.now, &mut self.events, lpn, tag, Owner::Window(place as u8));
        if self.options.stamps {
            let offset = u64::from(entry.page + next) << self.unit_shift;
            self.outputs.push_back(Output::WindowStore { lpn, version: tag, offset });
        }
        if next + 1 < entry.pages {
            self.next_page(place);
        } else {
            self.ftl.pad_host_row(self.now, &mut self.events);
            if self.window.flaw == Some(super::Flaw::FlushEarly) {
                self.end_job_at(place, self.now);
            }
        }
    }

    /// Flash has made progress.
    #[inline(always)]
    pub(crate) fn go_on_flushing(&mut self) {
        if self.window.table.used() != 0 {
            self.wake_flushing();
        }
    }

    fn wake_flushing(&mut self) {
        for place in 0..self.window.jobs.len() {
            if self.window.jobs[place].waits && (self.ftl.has_ready_die() || self.is_worn_out()) {
                self.window.jobs[place].waits = false;
                self.wake_job(place, self.now);
            }
        }
    }

    /// A flash read is done: for the entry at this place, or (`None`) for the restore of a dump.
    pub(crate) fn on_window_read(&mut self, place: Option<usize>, failed: bool) {
        let unit = 1u64 << self.unit_shift;
        let there = self.memories[self.window.port].write(self.now, unit);
        let Some(place) = place else { return self.on_restore_read(failed) };
        let job = &mut self.window.jobs[place];
        job.pending -= 1;
        job.ready_at = job.ready_at.max(there);
        if failed {
            job.status = Status::UNRECOVERED_READ_ERROR;
        }
        self.maybe_end_job(place);
    }

    /// A page of the entry at this place is on flash, or could not be written.
    pub(crate) fn on_window_programmed(&mut self, place: usize, failed: bool) {
        let job = &mut self.window.jobs[place];
        if job.kind != Kind::Flush {
            return; // Only one that was broken on purpose has ended before.
        }
        job.pending -= 1;
        if failed {
            job.status = Status::WRITE_FAULT;
        }
        self.maybe_end_job(place);
    }

    /// Whoever keeps payload brings a page.
    pub(crate) fn window_fill(&mut self, lpn: u32, content: Content<'_>) {
        let unit = 1usize << self.unit_shift;
        let bytes = match content {
            Content::Bytes(bytes) if bytes.len() == unit => Some(bytes),
            _ => None,
        };
        if self.window.is_restoring() {
            return self.restore_fill(lpn, bytes);
        }
        let Some(place) = self.window.table.touching(lpn, lpn.saturating_add(1)) else { return };
        let entry = *self.window.table.get(place).expect("it was found");
        if self.window.jobs[place].kind != Kind::Pin || self.window.jobs[place].fills == 0 {
            return;
        }
        match bytes {
            Some(bytes) => {
                self.window.put(u64::from(entry.page + lpn - entry.first) << self.unit_shift, unit, Some(bytes))
            }
            None => self.window.jobs[place].status = Status::UNRECOVERED_READ_ERROR,
        }
        self.window.jobs[place].fills -= 1;
        self.maybe_end_job(place);
    }

    fn maybe_end_job(&mut self, place: usize) {
        let Some(entry) = self.window.table.get(place) else { return };
        let Job { next, pending, fills, ready_at, ending, .. } = self.window.jobs[place];
        if next >= entry.pages && pending == 0 && fills == 0 && !ending {
            self.end_job_at(place, ready_at);
        }
    }

    /// A job's completion goes to the host when it is done at `at`.
    fn end_job_at(&mut self, place: usize, at: Instant) {
        // What is stored into the memory before is there before.
        let at =
            if self.window.jobs[place].kind == Kind::Sync { self.memories[self.window.port].read(at, 0) } else { at };
        self.window.jobs[place].ending = true;
        self.wake_job(place, at.max(self.now) + self.profile.host.completion_time);
    }

    fn end_job(&mut self, place: usize) {
        let generation = self.window.jobs[place].generation.wrapping_add(1);
        let job = std::mem::replace(&mut self.window.jobs[place], Job { generation, ..Job::default() });
        let shift = self.window.table.page_shift();
        let entry = *self.window.table.get(place).expect("a job has its entry");
        let good = job.status.is_success();
        let (mut result, mut data) = (0, Vec::new());
        match job.kind {
            Kind::Pin if good => {
                self.window.table.get_mut(place).expect("it is there").state = EntryState::Pinned;
                result = entry.page << shift;
            }
            Kind::Pin => self.let_go(place),
            Kind::Flush if good => self.let_go(place),
            Kind::Flush => self.window.table.get_mut(place).expect("it is there").state = EntryState::Pinned,
            Kind::ReadDma => {
                data = vec![0; job.bytes as usize];
                let at = (u64::from(entry.page) << shift) + job.offset;
                if let Some(bytes) = self.window.bytes.get(at as usize..at as usize + data.len()) {
                    data.copy_from_slice(bytes);
                }
            }
            Kind::Sync | Kind::Write | Kind::Drain | Kind::None => {}
        }
        self.reply(job.cid, job.status, result, data);
    }

    fn let_go(&mut self, place: usize) {
        self.window.table.remove(place);
        self.release_held();
    }

    /// A block command is refused at the gate.
    pub(super) fn refuse(&mut self, slot: u16, status: Status) {
        debug_assert!([vendor_status::LBA_PINNED, Status::ABORT_REQUESTED].contains(&status));
        self.work[usize::from(slot)].status = status;
        self.finish(slot, self.now);
    }
}
