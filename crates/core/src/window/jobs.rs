//! What happens when: stores and loads, and the jobs that move pages between buffer, flash and link.
//!
//! Pages between buffer and flash do not take the path of block commands: one core of the firmware handles them one
//! after the other, `[window] page_time` each, for all functions. Flash and memory work in parallel to it.

use super::state::{Job, Kind};
use super::{Ending, EntryState, Progress, Window};
use crate::border::Output;
use crate::buffer::Run;
use crate::caches::Caches;
use crate::content::{Content, PAST, Whereabouts};
use crate::context::Context;
use crate::events::{Event, lane};
use crate::ftl::Ftl;
use crate::host::Host;
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

/// As the place of an event: a command, by its place among them.
pub(super) const COMMAND: u32 = 1 << 16;
/// The oldest load.
const LOAD: u32 = 1 << 17;
/// The next page of a dump that is brought back.
pub(super) const RESTORE: u32 = 1 << 18;

impl Window {
    /// Whether an address of a function's BAR2 is one of the window.
    #[inline]
    pub(crate) fn is_at(&self, function: u8, address: u64) -> bool {
        let (at, size) = (self.bar_offset, u64::from(self.table.pages()) << self.table.page_shift());
        function == 0 && self.is_enabled() && address >= at && address - at < size
    }

    /// A store into the window has arrived. What has arrived is safe: on stored energy the controller empties its
    /// receive buffers into the buffer before it dumps that.
    pub(crate) fn store<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, address: u64, content: Content<'_>) {
        let shift = self.table.page_shift();
        let (mut at, mut done, len) = (address - self.bar_offset, 0u64, u64::from(content.len()));
        let mut dropped = ftl.is_recovering() || self.is_restoring();
        while done < len && !dropped {
            let part = (len - done).min((1 << shift) - (at & ((1 << shift) - 1)));
            let owner = self.table.owner((at >> shift) as u32).and_then(|place| self.table.get(place));
            if owner.is_some_and(|entry| entry.state == EntryState::Pinned) {
                if let Content::Bytes(bytes) = content {
                    self.put(at, part as usize, Some(&bytes[done as usize..(done + part) as usize]));
                }
                cx.memories[self.port].write(cx.now, part);
            } else {
                dropped = true;
            }
            (at, done) = (at + part, done + part);
        }
        self.statistics.stores += 1;
        self.statistics.stores_dropped += u64::from(dropped);
    }

    /// A load from the window: non-posted, so it is answered when all that was stored before is in the buffer.
    pub(crate) fn load(&mut self, cx: &mut Context, address: u64, len: u8, tag: u64) {
        let at = cx.memories[self.port].read(cx.now, len.into());
        self.loads.push_back(super::Load { tag, address, len });
        cx.events.push(at, lane::OTHER, Event::Window { place: LOAD, generation: 0 });
    }

    fn finish_load(&mut self, cx: &mut Context) {
        let Some(super::Load { tag, address, len }) = self.loads.pop_front() else { return };
        let (value, outside) = self.load_bytes(address, len);
        self.statistics.loads_outside += u64::from(outside);
        cx.outputs.push_back(Output::Loaded { tag, value });
    }

    /// What a load from a function's BAR2 finds at once, up to 8 bytes, and whether some of them lie outside of every
    /// entry; `None`: the address is not of the window.
    pub fn peek(&self, function: u8, address: u64, len: u8) -> Option<(u64, bool)> {
        self.is_at(function, address).then(|| self.load_bytes(address, len))
    }

    /// Counts a load that [`Device::window_peek`] answered and of which some byte lay outside of every entry.
    pub(crate) fn loaded_outside(&mut self) {
        self.statistics.loads_outside += 1;
    }

    fn load_bytes(&self, address: u64, len: u8) -> (u64, bool) {
        let (at, len) = (address - self.bar_offset, u64::from(len.min(8)));
        let shift = self.table.page_shift();
        let mut value = [0xff; 8];
        let mut outside = false;
        for i in 0..len {
            let owner = self.table.owner(((at + i) >> shift) as u32);
            let there = owner.and_then(|place| self.table.get(place));
            if there.is_some_and(|entry| entry.state != EntryState::Pinning) && !self.is_restoring() {
                value[i as usize] = self.bytes.get((at + i) as usize).copied().unwrap_or(0);
            } else {
                outside = true;
            }
        }
        (u64::from_le_bytes(value), outside)
    }

    /// Something of the window is due.
    #[inline(never)]
    pub(crate) fn on_event<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        caches: &mut Caches,
        host: &Host,
        (place, generation): (u32, u32),
    ) -> Progress {
        match place {
            LOAD => self.finish_load(cx),
            RESTORE => return self.restore_page(cx, ftl),
            place if place & COMMAND != 0 => return self.on_command(cx, host, (place & !COMMAND) as usize),
            place if self.jobs[place as usize].generation == generation => {
                return self.step_job(cx, ftl, caches, place as usize);
            }
            _ => {}
        }
        Progress::None
    }

    /// An entry has a job from now on.
    pub(super) fn begin_job(&mut self, place: usize, job: Job) {
        let generation = self.jobs[place].generation.wrapping_add(1);
        self.jobs[place] = Job { generation, ..job };
    }

    /// As [`Window::begin_job`], and its first step begins.
    pub(super) fn start_job(&mut self, cx: &mut Context, place: usize, job: Job) {
        let Job { kind, bytes, .. } = job;
        self.begin_job(place, job);
        match kind {
            Kind::Sync => self.end_job_at(cx, place, cx.now),
            Kind::ReadDma => {
                let at = self.engine.serve(cx.now, self.dma_time);
                self.wake_job(cx, place, at);
            }
            Kind::Write => {
                let at = cx.link_in.transfer(cx.now, bytes.into());
                self.wake_job(cx, place, at);
            }
            _ => self.next_page(cx, place),
        }
    }

    fn wake_job(&mut self, cx: &mut Context, place: usize, at: Instant) {
        let generation = self.jobs[place].generation;
        cx.events.push(at, lane::OTHER, Event::Window { place: place as u32, generation });
    }

    /// The firmware turns to the next page of a job.
    fn next_page(&mut self, cx: &mut Context, place: usize) {
        let at = self.engine.serve(cx.now, self.page_time);
        self.wake_job(cx, place, at);
    }

    /// Block commands have ended: a Pin that waited for them goes on. `begun`: whether the command in a slot has begun.
    pub(crate) fn go_on_draining(&mut self, cx: &mut Context, host: &Host, begun: impl Fn(u16) -> bool) {
        for place in 0..self.jobs.len() {
            if self.jobs[place].kind == Kind::Drain {
                let entry = *self.table.get(place).expect("a job has its entry");
                if !Window::is_under_way(host, cx.shift.page, &begun, (entry.first, entry.end())) {
                    self.jobs[place].kind = Kind::Pin;
                    self.next_page(cx, place);
                }
            }
        }
    }

    /// Whether a Pin waits for block commands.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.table.used() > 0 && self.jobs.iter().any(|job| job.kind == Kind::Drain)
    }

    fn step_job<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        caches: &mut Caches,
        place: usize,
    ) -> Progress {
        if self.jobs[place].ending {
            return self.end_job(cx, place);
        }
        match self.jobs[place].kind {
            Kind::Pin => self.pin_page(cx, ftl, caches, place),
            Kind::Flush => {
                if self.flush_buffered && caches.survives && self.buffer_page(cx, ftl, caches, place) {
                    return Progress::Buffered;
                }
                self.flush_page(cx, ftl, caches, place);
            }
            Kind::ReadDma => {
                let bytes = u64::from(self.jobs[place].bytes);
                let read = cx.memories[self.port].read(cx.now, bytes);
                let sent = cx.link_out.transfer(cx.now, bytes);
                self.end_job_at(cx, place, read.max(sent));
            }
            Kind::Write => {
                let Job { offset, .. } = self.jobs[place];
                let data = std::mem::take(&mut self.jobs[place].data);
                let entry = *self.table.get(place).expect("a job has its entry");
                let at = (u64::from(entry.page) << self.table.page_shift()) + offset;
                self.put(at, data.len(), Some(&data));
                let written = cx.memories[self.port].write(cx.now, data.len() as u64);
                self.statistics.stores += 1;
                self.end_job_at(cx, place, written);
            }
            Kind::None | Kind::Drain | Kind::Sync => {}
        }
        Progress::None
    }

    /// Brings the next page of an entry into the buffer.
    fn pin_page<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, caches: &mut Caches, place: usize) {
        let entry = *self.table.get(place).expect("a job has its entry");
        let next = self.jobs[place].next;
        let lpn = entry.first + next;
        let unit = 1u64 << cx.shift.unit;
        self.jobs[place].next += 1;
        self.statistics.pages_pinned += 1;
        let mut read = 0;
        let buffered = caches.write.contains(lpn);
        if cx.options.premap && !buffered && ftl.map().is_virgin(lpn) && !ftl.premap(lpn, PAST) {
            read += u32::from(ftl.read_past(cx.now, &mut cx.events, lpn, Owner::Window(place as u8)));
            ftl.wake_collection(cx.now, &mut cx.events);
        }
        if !buffered {
            let lpns = std::iter::once(lpn);
            read += match ftl.read(cx.now, &mut cx.events, lpns, Owner::Window(place as u8)) {
                Ok(queued) => queued,
                Err(queued) => {
                    self.jobs[place].status = Status::UNRECOVERED_READ_ERROR;
                    queued
                }
            };
        }
        if read == 0 {
            let from = if buffered { cx.memories[caches.write_port].read(cx.now, unit) } else { cx.now };
            let there = cx.memories[self.port].write(cx.now, unit).max(from);
            self.jobs[place].ready_at = self.jobs[place].ready_at.max(there);
        }
        self.jobs[place].pending += read;
        if cx.options.stamps {
            let offset = u64::from(entry.page + next) << cx.shift.unit;
            match caches.locate(ftl, lpn) {
                Whereabouts::Zeroes => self.put(offset, unit as usize, None),
                Whereabouts::Lost => self.jobs[place].status = Status::UNRECOVERED_READ_ERROR,
                at => {
                    self.jobs[place].fills += 1;
                    cx.outputs.push_back(Output::WindowLoad { lpn, place: at });
                }
            }
        }
        if next + 1 < entry.pages {
            self.next_page(cx, place);
        }
        self.maybe_end_job(cx, place);
    }

    /// Puts the next page of an entry into the write buffer. False: it has no room.
    fn buffer_page<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        caches: &mut Caches,
        place: usize,
    ) -> bool {
        let entry = *self.table.get(place).expect("a job has its entry");
        let Job { next, tag, .. } = self.jobs[place];
        let lpn = entry.first + next;
        caches.uncache(lpn);
        while !caches.write.write(lpn, tag, Run { first: entry.first, end: entry.end() }) {
            if !caches.write.drop_clean() {
                return false;
            }
        }
        let unit = 1u64 << cx.shift.unit;
        let read = cx.memories[self.port].read(cx.now, unit);
        let there = cx.memories[caches.write_port].write(cx.now, unit).max(read);
        self.flushed(cx, place, lpn, there);
        if next + 1 < entry.pages {
            self.next_page(cx, place);
        } else if self.jobs[place].pending > 0 {
            ftl.pad_host_row(cx.now, &mut cx.events);
        }
        self.maybe_end_job(cx, place);
        true
    }

    /// A flush has taken a page out of the buffer, by `at`.
    fn flushed(&mut self, cx: &mut Context, place: usize, lpn: u32, at: Instant) {
        let job = &mut self.jobs[place];
        let (next, version) = (job.next, job.tag);
        job.next += 1;
        job.ready_at = job.ready_at.max(at);
        self.statistics.pages_flushed += 1;
        if cx.options.stamps {
            let offset = u64::from(self.table.get(place).expect("a job has its entry").page + next) << cx.shift.unit;
            cx.outputs.push_back(Output::WindowStore { lpn, version, offset });
        }
    }

    /// Writes the next page of an entry.
    fn flush_page<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, caches: &mut Caches, place: usize) {
        let entry = *self.table.get(place).expect("a job has its entry");
        let Job { next, tag, .. } = self.jobs[place];
        if !ftl.can_write() {
            if ftl.is_worn_out() {
                // No room will come: what was written stays, the rest is still in the buffer.
                self.jobs[place].status = Status::WRITE_FAULT;
                self.jobs[place].next = entry.pages;
                return self.maybe_end_job(cx, place);
            }
            self.jobs[place].waits = true;
            return;
        }
        let lpn = entry.first + next;
        self.jobs[place].pending += 1;
        let read = cx.memories[self.port].read(cx.now, 1 << cx.shift.unit);
        caches.uncache(lpn);
        caches.is_stuck &= !caches.write.remove(lpn);
        ftl.write(cx.now, &mut cx.events, lpn, tag, Owner::Window(place as u8));
        self.flushed(cx, place, lpn, read);
        if next + 1 < entry.pages {
            self.next_page(cx, place);
        } else {
            ftl.pad_host_row(cx.now, &mut cx.events);
            if self.flaw.is(super::Flaw::FlushEarly) {
                self.end_job_at(cx, place, cx.now);
            }
        }
    }

    /// Flash has made progress.
    #[inline(always)]
    pub(crate) fn go_on_flushing<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        if self.table.used() != 0 {
            self.wake_flushing(cx, ftl);
        }
    }

    fn wake_flushing<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        for place in 0..self.jobs.len() {
            if self.jobs[place].waits && (ftl.has_ready_die() || ftl.is_worn_out()) {
                self.jobs[place].waits = false;
                self.wake_job(cx, place, cx.now);
            }
        }
    }

    /// A flash read is done: for the entry at this place, or (`None`) for the restore of a dump.
    pub(crate) fn on_read<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        place: Option<usize>,
        failed: bool,
    ) -> Progress {
        let unit = 1u64 << cx.shift.unit;
        let there = cx.memories[self.port].write(cx.now, unit);
        let Some(place) = place else { return self.on_restore_read(cx, ftl, failed) };
        let job = &mut self.jobs[place];
        job.pending -= 1;
        job.ready_at = job.ready_at.max(there);
        if failed {
            job.status = Status::UNRECOVERED_READ_ERROR;
        }
        self.maybe_end_job(cx, place);
        Progress::None
    }

    /// A page of the entry at this place is on flash, or could not be written.
    pub(crate) fn on_programmed(&mut self, cx: &mut Context, place: usize, failed: bool) {
        let job = &mut self.jobs[place];
        if job.kind != Kind::Flush {
            return; // Only one that was broken on purpose has ended before.
        }
        job.pending -= 1;
        if failed {
            job.status = Status::WRITE_FAULT;
        }
        self.maybe_end_job(cx, place);
    }

    /// The payload store supplies a page.
    pub(crate) fn fill<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        lpn: u32,
        content: Content<'_>,
    ) -> Progress {
        let unit = 1usize << cx.shift.unit;
        let bytes = match content {
            Content::Bytes(bytes) if bytes.len() == unit => Some(bytes),
            _ => None,
        };
        if self.is_restoring() {
            return self.restore_fill(cx, ftl, lpn, bytes);
        }
        let Some(place) = self.table.touching(lpn, lpn.saturating_add(1)) else { return Progress::None };
        let entry = *self.table.get(place).expect("it was found");
        if self.jobs[place].kind != Kind::Pin || self.jobs[place].fills == 0 {
            return Progress::None;
        }
        match bytes {
            Some(bytes) => self.put(u64::from(entry.page + lpn - entry.first) << cx.shift.unit, unit, Some(bytes)),
            None => self.jobs[place].status = Status::UNRECOVERED_READ_ERROR,
        }
        self.jobs[place].fills -= 1;
        self.maybe_end_job(cx, place);
        Progress::None
    }

    fn maybe_end_job(&mut self, cx: &mut Context, place: usize) {
        let Some(entry) = self.table.get(place) else { return };
        let Job { next, pending, fills, ready_at, ending, .. } = self.jobs[place];
        if next >= entry.pages && pending == 0 && fills == 0 && !ending {
            self.end_job_at(cx, place, ready_at);
        }
    }

    /// A job's completion goes to the host when it is done at `at`.
    fn end_job_at(&mut self, cx: &mut Context, place: usize, at: Instant) {
        // What is stored into the memory before is there before.
        let at = if self.jobs[place].kind == Kind::Sync { cx.memories[self.port].read(at, 0) } else { at };
        self.jobs[place].ending = true;
        self.wake_job(cx, place, at.max(cx.now) + cx.completion_time);
    }

    fn end_job(&mut self, cx: &mut Context, place: usize) -> Progress {
        let generation = self.jobs[place].generation.wrapping_add(1);
        let job = std::mem::replace(&mut self.jobs[place], Job { generation, ..Job::default() });
        let shift = self.table.page_shift();
        let entry = *self.table.get(place).expect("a job has its entry");
        let good = job.status.is_success();
        let (mut result, mut data) = (0, Vec::new());
        let mut released = false;
        match job.kind {
            Kind::Pin if good => {
                self.table.get_mut(place).expect("it is there").state = EntryState::Pinned;
                result = entry.page << shift;
            }
            Kind::Flush if !good => self.table.get_mut(place).expect("it is there").state = EntryState::Pinned,
            Kind::Pin | Kind::Flush => {
                self.table.remove(place);
                released = true;
            }
            Kind::ReadDma => {
                data = vec![0; job.bytes as usize];
                let at = (u64::from(entry.page) << shift) + job.offset;
                if let Some(bytes) = self.bytes.get(at as usize..at as usize + data.len()) {
                    data.copy_from_slice(bytes);
                }
            }
            Kind::Sync | Kind::Write | Kind::Drain | Kind::None => {}
        }
        if released {
            return Progress::Released(Ending { cid: job.cid, status: job.status, result, data, travels: false });
        }
        cx.reply(job.cid, job.status, result, data);
        Progress::None
    }
}
