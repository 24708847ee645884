//! The host around a simulated drive: it turns requests into NVMe commands, puts them into submission queues as their
//! time comes, and measures.
//!
//! Nothing here allocates for a request or looks it up in a table: a command identifier is the index of its slot.
//! Requests that wait in the host are not stored either, the source keeps them: they arrive in order, so the next one
//! stands for all.

mod report;

use std::collections::BTreeMap;
use std::hint::cold_path;
use std::sync::atomic::Ordering;
use std::time;

use tidewater_base::Instant;
use tidewater_core::device::Input;
use tidewater_core::drive::World;
use tidewater_core::ftl::FtlStatistics;
use tidewater_core::host::Submission;
use tidewater_core::profile::HostProfile;
use tidewater_core::{Device, Output};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{DsmRange, Sqe, Status};

use super::options::LAST_ARRIVAL;
use super::{Pacing, RunError, RunOptions};
use crate::metrics::{FlashWork, Metrics};
use crate::request::{Op, Request, Source};

/// Commands outstanding at once, at most: identifiers are unique over all queues, and FFFFh stays unused.
const COMMANDS_MAX: usize = 65_535;
/// Turns of the drive loop between two looks at what is going on outside.
const TURNS_BETWEEN_CHECKS: u32 = 1 << 13;
/// So many turns without the end of any request are a stall. A turn of a device that says nothing is a thousand events,
/// so that this is far more than collecting a whole drive takes.
const TURNS_TO_STALL: u64 = 1 << 20;
/// Real time between two moments for the live page, at least.
const WATCH_INTERVAL: time::Duration = time::Duration::from_millis(230);
/// Real time between two reports of progress, at least.
const PROGRESS_INTERVAL: time::Duration = time::Duration::from_millis(50);

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// From when its latency counts.
    start: Instant,
    index: u64,
    offset: u64,
    length: u64,
    op: Op,
    /// The last of its commands has been submitted.
    issued: bool,
    commands: u32,
    status: Status,
}

/// The request whose commands are being submitted.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    slot: u32,
    op: Op,
    fua: bool,
    next: u64,
    left: u64,
}

/// A submission queue, as its host knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    tail: u32,
    head: u32,
}

/// Why the loop was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// It was not.
    Running,
    /// The warm-up is over.
    Measure,
    /// Everything is done.
    Finished,
    /// It was cancelled from outside.
    Cancelled,
    /// The power has failed.
    PowerCut,
    /// A moment goes to the live page, and then it goes on.
    Watched,
    /// No progress was made.
    Stalled,
    /// See the error.
    Failed,
}

/// The host.
pub(super) struct Host<S> {
    pub(super) source: S,
    pub(super) options: RunOptions,
    pub(super) metrics: Metrics,
    pub(super) error: Option<RunError>,
    pub(super) halt: Halt,
    /// When measuring began.
    pub(super) began: Instant,
    pub(super) last_completion: Instant,
    /// When the last request came.
    pub(super) last_arrival: Instant,
    /// Commands that ended, and those of them that failed, by status; measured ones.
    pub(super) commands_done: u64,
    pub(super) failures: BTreeMap<u16, u64>,
    /// Requests read from the source.
    pub(super) pulled: u64,
    /// Requests that ended, warm-up included.
    pub(super) completed: u64,
    upcoming: Option<Request>,
    /// Whether threads of the source have depths of their own; then the thread of each request under way, by slot.
    parted: bool,
    threads: Vec<u16>,
    /// The page that the next request will look up: a hint to prefetch its mapping, not yet passed to the device.
    ahead: Option<u64>,
    ended: bool,
    /// When the next command can be submitted, [`Instant::NEVER`] while something else has to happen first.
    due: Instant,
    cursor: Option<Cursor>,
    /// The request of each command, by identifier.
    commands: Vec<u32>,
    free_commands: Vec<u16>,
    requests: Vec<InFlight>,
    free_requests: Vec<u32>,
    outstanding: u32,
    depth: u32,
    at_arrival: bool,
    from_arrival: bool,
    warmup: u64,
    /// Requests of the warm-up, for a live page.
    warm: Option<Box<Metrics>>,
    limit: u64,
    runs_until: Instant,
    /// When the power fails.
    cut_at: Instant,
    rings: Vec<Ring>,
    ring_entries: u32,
    /// One bit for each queue that is full, and for each that there is.
    full: u64,
    all: u64,
    turn: u32,
    block_shift: u32,
    capacity_blocks: u64,
    /// Blocks of one command, by operation.
    blocks_max: [u64; Op::ALL.len()],
    flash: FlashWork,
    sample_at: Instant,
    turns_to_check: u32,
    checks_without_end: u64,
    completed_at_check: u64,
    /// When the live page got a moment last.
    watched: time::Instant,
    watched_requests: u64,
    created: time::Instant,
    reported: time::Instant,
    reported_requests: u64,
}

impl<S: Source> Host<S> {
    pub(super) fn new(source: S, options: RunOptions, profile: &HostProfile, capacity: u64) -> Host<S> {
        let block_shift = profile.block_size.trailing_zeros();
        // The number of blocks has 16 bits and counts from 0; only some operations transfer (MDTS).
        let transfer = (u64::from(profile.transfer_max) >> block_shift).clamp(1, 1 << 16);
        let mut blocks_max = [transfer; Op::ALL.len()];
        blocks_max[Op::WriteZeroes.index()] = 1 << 16;
        blocks_max[Op::Verify.index()] = 1 << 16;
        blocks_max[Op::Deallocate.index()] = u64::from(u32::MAX);
        let (depth, at_arrival, from_arrival) = match options.pacing {
            Pacing::Arrival => (u32::MAX, true, true),
            Pacing::Depth(depth) => (depth, false, false),
            Pacing::ArrivalAndDepth(depth) => (depth, true, false),
        };
        let mut host = Host {
            metrics: Metrics::new(options.time_series_points),
            error: None,
            halt: Halt::Running,
            began: Instant::ZERO,
            last_completion: Instant::ZERO,
            last_arrival: Instant::ZERO,
            commands_done: 0,
            failures: BTreeMap::new(),
            pulled: 0,
            completed: 0,
            upcoming: None,
            parted: false,
            threads: Vec::new(),
            ahead: None,
            ended: false,
            due: Instant::NEVER,
            cursor: None,
            commands: Vec::with_capacity(1_024),
            free_commands: Vec::with_capacity(1_024),
            requests: Vec::with_capacity(1_024),
            free_requests: Vec::with_capacity(1_024),
            outstanding: 0,
            depth,
            at_arrival,
            from_arrival,
            warmup: options.warmup_requests,
            warm: (options.watch.is_some() && options.warmup_requests > 0).then(|| Box::new(Metrics::new(2))),
            limit: options.limit.unwrap_or(u64::MAX),
            cut_at: options.power_cut.map_or(Instant::NEVER, |time| Instant::ZERO + time),
            runs_until: options.runtime.map_or(Instant::NEVER, |time| Instant::ZERO + time),
            rings: vec![Ring::default(); profile.queues as usize],
            ring_entries: profile.queue_entries,
            full: 0,
            all: u64::MAX >> (64 - profile.queues),
            turn: 0,
            block_shift,
            capacity_blocks: capacity >> block_shift,
            blocks_max,
            flash: FlashWork::default(),
            sample_at: Instant::ZERO,
            turns_to_check: 1,
            checks_without_end: 0,
            completed_at_check: 0,
            watched: time::Instant::now(),
            watched_requests: 0,
            created: time::Instant::now(),
            reported: time::Instant::now(),
            reported_requests: 0,
            source,
            options,
        };
        // From arrival there is no depth to keep to.
        host.parted = !from_arrival && host.source.part_threads();
        host.pull(Instant::ZERO);
        if let Some(first) = host.upcoming.filter(|_| host.at_arrival) {
            host.began = first.arrival;
            host.metrics.series.restart(first.arrival);
        }
        host.refresh();
        host
    }

    /// Figures count from now on.
    pub(super) fn begin_measuring(&mut self, now: Instant) {
        self.began = now;
        self.last_completion = now;
        self.metrics.series.restart(now);
        self.flash = FlashWork::default();
        self.sample_at = now;
        self.halt = Halt::Running;
    }

    /// Adds the flash work since the last sample to the time series.
    pub(super) fn sample(&mut self, now: Instant, done: &FtlStatistics) {
        let work = FlashWork {
            erases: done.erases_total,
            units_host: done.host,
            units: done.host + done.collected + done.units_padding + done.units_meta,
        };
        self.metrics.series.record_flash(now, work.since(self.flash));
        self.flash = work;
        self.sample_at = self.metrics.series.ends().min(self.cut_at);
    }

    /// Requests that are submitted and have not ended.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The most requests that were outstanding at once since the host began, its warm-up included.
    pub(super) fn outstanding_max(&self) -> usize {
        // A slot is made only when none is free.
        self.requests.len()
    }

    /// Whether a write that has not ended covers a page of the drive, `page_bytes` long.
    pub(super) fn is_writing(&self, page: u64, page_bytes: u64) -> bool {
        let capacity = self.capacity_blocks << self.block_shift;
        let (first, end) = (page * page_bytes, (page + 1) * page_bytes);
        let under_way = self
            .requests
            .iter()
            .filter(|request| request.op == Op::Write && !(request.issued && request.commands == 0));
        under_way.map(|request| (request.offset % capacity, request.length)).any(|(from, length)| {
            // A write that goes on at the drive's beginning covers that, too.
            let to = from + length;
            from < end && first < to || first + capacity < to
        })
    }

    fn fail(&mut self, error: RunError) {
        self.error = Some(error);
        self.halt = Halt::Failed;
        self.ended = true;
        self.upcoming = None;
    }

    /// Reads the next request. There may be none now though there will be: then every thread has as much outstanding as
    /// it may.
    #[inline(always)]
    fn pull(&mut self, now: Instant) {
        self.upcoming = None;
        if self.pulled == self.limit || self.ended {
            cold_path();
            self.ended = true;
            return;
        }
        if self.parted && !self.source.can_give(now) {
            cold_path();
            return;
        }
        match self.source.next() {
            Some(Ok(mut request)) => {
                let index = self.pulled;
                self.pulled += 1;
                let given = request.arrival;
                if self.options.speedup != 1.0 {
                    request.arrival = sped_up(given, self.options.speedup);
                }
                if request.arrival > LAST_ARRIVAL && self.at_arrival {
                    let days = given.as_secs_f64() / 86_400.0 / self.options.speedup;
                    return self.fail(RunError::TooLate { place: self.source.place(), index, days });
                }
                if request.end() > self.capacity_blocks << self.block_shift && !self.options.wrap {
                    let Request { op, offset, length, .. } = request;
                    let capacity = self.capacity_blocks << self.block_shift;
                    let place = self.source.place();
                    return self.fail(RunError::OutOfRange { place, index, op, offset, length, capacity });
                }
                self.last_arrival = request.arrival;
                if request.op != Op::Write {
                    self.ahead = Some(request.offset);
                }
                self.upcoming = Some(request);
            }
            None => self.ended = true,
            Some(Err(error)) => self.fail(RunError::Source(error)),
        }
    }

    /// Decides anew when the next command can be submitted.
    #[inline(always)]
    fn refresh(&mut self) {
        let op = match (&self.cursor, &self.upcoming) {
            (Some(cursor), _) => cursor.op,
            (None, Some(request)) if self.outstanding < self.depth => request.op,
            _ => {
                self.due = Instant::NEVER;
                return;
            }
        };
        let room = match self.options.queue_of.queue(op, self.rings.len() as u32) {
            None => self.full != self.all,
            Some(queue) => self.full >> queue & 1 == 0,
        };
        let identifiers = !self.free_commands.is_empty() || self.commands.len() < COMMANDS_MAX;
        self.due = match (&self.cursor, &self.upcoming) {
            _ if !room || !identifiers => Instant::NEVER,
            (None, Some(request)) if self.at_arrival => request.arrival,
            _ => Instant::ZERO,
        };
    }

    /// Begins with the next request.
    #[inline(always)]
    fn begin(&mut self, now: Instant) -> Option<Cursor> {
        let request = self.upcoming?;
        if now >= self.runs_until {
            cold_path();
            // Too late to start: this request and all after it stay where they are.
            self.upcoming = None;
            self.ended = true;
            self.pulled -= 1;
            self.due = Instant::NEVER;
            self.finish_if_done();
            return None;
        }
        let (offset, mut end) = (request.offset, request.end());
        let mask = (1u64 << self.block_shift) - 1;
        let (mut first, last) = if request.op == Op::Deallocate {
            // What lies in a block that is not asked for wholly must stay.
            let first = offset.div_ceil(mask + 1);
            (first, (end >> self.block_shift).max(first))
        } else {
            end = end.saturating_add(mask);
            (offset >> self.block_shift, end >> self.block_shift)
        };
        let left = last - first;
        if self.options.wrap {
            first %= self.capacity_blocks;
        }
        let in_flight = InFlight {
            start: if self.from_arrival { request.arrival } else { now },
            index: self.pulled - 1,
            offset,
            length: request.length,
            op: request.op,
            issued: false,
            commands: 0,
            status: Status::SUCCESS,
        };
        let slot = match self.free_requests.pop() {
            Some(slot) => {
                self.requests[slot as usize] = in_flight;
                slot
            }
            None => {
                cold_path();
                self.requests.push(in_flight);
                self.requests.len() as u32 - 1
            }
        };
        self.outstanding += 1;
        if self.parted {
            cold_path();
            self.threads.resize(self.requests.len(), 0);
            self.threads[slot as usize] = self.source.thread();
        }
        // Force Unit Access belongs to commands that address blocks.
        let fua = request.fua && !matches!(request.op, Op::Flush | Op::Deallocate);
        Some(Cursor { slot, op: request.op, fua, next: first, left })
    }

    /// The queue of the next command; there is one with room.
    #[inline(always)]
    fn pick(&mut self, op: Op) -> u16 {
        let queues = self.rings.len() as u32;
        let queue = self.options.queue_of.queue(op, queues).unwrap_or_else(|| {
            let room = !self.full & self.all;
            let ahead = room & u64::MAX << self.turn;
            let queue = if ahead != 0 { ahead } else { room }.trailing_zeros();
            self.turn = if queue + 1 == queues { 0 } else { queue + 1 };
            queue
        });
        let ring = &mut self.rings[queue as usize];
        ring.tail = if ring.tail + 1 == self.ring_entries { 0 } else { ring.tail + 1 };
        self.note_room(queue);
        queue as u16
    }

    /// A ring is full when it holds one command less than it has entries (NVM Express 1.4, 4.1.2).
    #[inline(always)]
    fn note_room(&mut self, queue: u32) {
        let Ring { tail, head } = self.rings[queue as usize];
        let after = if tail + 1 == self.ring_entries { 0 } else { tail + 1 };
        self.full = self.full & !(1 << queue) | u64::from(after == head) << queue;
    }

    /// A command is done, and with it perhaps its request.
    #[inline(always)]
    fn complete(&mut self, now: Instant, queue: u16, head: u16, cid: u16, status: Status) {
        self.rings[usize::from(queue)].head = u32::from(head);
        // A completion fills no ring.
        if self.full != 0 {
            self.note_room(u32::from(queue));
        }
        let slot = self.commands[usize::from(cid)];
        self.free_commands.push(cid);
        let request = &mut self.requests[slot as usize];
        request.commands -= 1;
        let measured = request.index >= self.warmup;
        self.commands_done += u64::from(measured);
        if !status.is_success() {
            cold_path();
            request.status = status;
            if measured {
                *self.failures.entry(status.bits()).or_default() += 1;
            }
        }
        if request.commands == 0 && request.issued {
            self.end(now, slot, measured);
        }
        if self.due == Instant::NEVER {
            self.refresh();
        }
    }

    #[inline(always)]
    fn end(&mut self, now: Instant, slot: u32, measured: bool) {
        let InFlight { op, length, start, status, .. } = self.requests[slot as usize];
        // What failed has moved no bytes that count.
        let bytes = if status.is_success() { length } else { 0 };
        self.free_requests.push(slot);
        self.outstanding -= 1;
        self.completed += 1;
        if measured {
            self.metrics.record(now, op, bytes, now.since(start));
            self.last_completion = now;
            if self.options.requests.is_some() {
                let request = self.requests[slot as usize];
                self.hand_out(now, &request);
            }
        } else if self.warm.is_some() {
            self.record_warm(now, op, bytes, start);
        }
        if self.parted {
            cold_path();
            self.source.ended(self.threads[slot as usize]);
            if self.upcoming.is_none() {
                self.pull(now);
            }
        }
        if self.outstanding == 0 {
            cold_path();
            self.finish_if_done();
        }
    }

    fn finish_if_done(&mut self) {
        if self.ended && self.outstanding == 0 && self.upcoming.is_none() && self.halt == Halt::Running {
            self.halt = Halt::Finished;
        }
    }

    /// Looks at what is going on outside.
    #[cold]
    fn check(&mut self, now: Instant) {
        self.turns_to_check = TURNS_BETWEEN_CHECKS;
        if self.options.cancelled.load(Ordering::Relaxed) {
            self.halt = Halt::Cancelled;
        }
        self.checks_without_end =
            if self.completed == self.completed_at_check { self.checks_without_end + 1 } else { 0 };
        self.completed_at_check = self.completed;
        if self.outstanding > 0 && self.checks_without_end * u64::from(TURNS_BETWEEN_CHECKS) >= TURNS_TO_STALL {
            self.halt = Halt::Stalled;
        }
        if self.options.progress.is_some() && self.reported.elapsed() >= PROGRESS_INTERVAL {
            self.report(now);
        }
        if self.options.watch.is_some() && self.watched.elapsed() >= WATCH_INTERVAL && self.halt == Halt::Running {
            self.halt = Halt::Watched;
        }
    }

    /// Makes it believe that no queue has room, as a bug would.
    #[cfg(test)]
    pub(super) fn jam(&mut self) {
        self.full = self.all;
        self.refresh();
    }
}

/// An arrival at another speed. Not inlined: the compiler would divide first and ask then whether it had to.
#[cold]
#[inline(never)]
fn sped_up(arrival: Instant, speedup: f64) -> Instant {
    Instant::from_ps((arrival.as_ps() as f64 / speedup) as u64)
}

impl<M: Medium, S: Source> World<Device<M>> for Host<S> {
    #[inline]
    fn next_at(&self) -> Instant {
        // In a pause, too, the flash is looked at when an interval of the time series ends. While nothing is due here
        // something ends before long, and then it is.
        if self.due == Instant::NEVER { self.cut_at } else { self.due.min(self.sample_at) }
    }

    #[inline(always)]
    fn submit(&mut self, now: Instant) -> Option<Input<'_>> {
        if now < self.due || now >= self.cut_at {
            return None;
        }
        let mut cursor = match self.cursor {
            Some(cursor) => cursor,
            None => self.begin(now)?,
        };
        let Cursor { slot, op, fua, next, left } = cursor;
        let blocks = left.min(self.blocks_max[op.index()]).min(self.capacity_blocks - next);
        let queue = self.pick(op);
        let cid = match self.free_commands.pop() {
            Some(cid) => {
                self.commands[usize::from(cid)] = slot;
                cid
            }
            None => {
                cold_path();
                self.commands.push(slot);
                (self.commands.len() - 1) as u16
            }
        };
        // The number of blocks counts from 0. Flush and Dataset Management do not use it.
        let count = blocks.wrapping_sub(1) as u16;
        let mut ranges = None;
        let sqe = match op {
            Op::Read => Sqe::read(cid, next, count),
            Op::Write => Sqe::write(cid, next, count),
            Op::Flush => Sqe::flush(cid),
            Op::Deallocate => {
                ranges = Some(Box::from([DsmRange::new(next, blocks as u32)]));
                Sqe::dataset_management(cid, 0, true)
            }
            Op::WriteZeroes => Sqe::write_zeroes(cid, next, count, true),
            Op::Compare => Sqe::compare(cid, next, count),
            Op::Verify => Sqe::verify(cid, next, count),
        };
        let sqe = if fua { sqe.with_fua() } else { sqe };
        let request = &mut self.requests[slot as usize];
        request.commands += 1;
        cursor.left -= blocks;
        cursor.next += blocks;
        if cursor.next == self.capacity_blocks {
            cursor.next = 0;
        }
        if cursor.left == 0 {
            request.issued = true;
            self.cursor = None;
            if self.pulled == self.warmup {
                self.halt = Halt::Measure;
            }
            self.pull(now);
        } else {
            self.cursor = Some(cursor);
        }
        self.refresh();
        // A replay knows no content: all writes store the same, so a compare finds what it expects.
        Some(Input::Submit { queue, submission: Submission { sqe, tag: tidewater_core::content::PAST, ranges } })
    }

    fn refused(&mut self, submission: Submission) {
        // The host keeps to the head pointers that completions tell, so this is a bug.
        unreachable!("a submission queue refused {submission:?}: {}", self.describe());
    }

    #[inline(always)]
    fn take(&mut self, now: Instant, output: Output, device: &Device<M>) {
        if let Output::Complete(completion) = output {
            // Before the completion begins another interval: what the flash did until now belongs to the one that ends.
            if now >= self.sample_at {
                cold_path();
                self.sample(now, &device.ftl().statistics);
            }
            let cqe = &completion.cqe;
            self.complete(now, completion.queue, cqe.sq_head, cqe.cid, cqe.status);
        }
    }

    #[inline(always)]
    fn stop(&mut self, now: Instant, device: &Device<M>) -> bool {
        if now >= self.sample_at {
            cold_path();
            self.sample(now, &device.ftl().statistics);
            if now >= self.cut_at && self.halt == Halt::Running {
                self.halt = Halt::PowerCut;
            }
        }
        // The time that the command takes through the pipeline is too short to hide a miss of all caches.
        if let Some(offset) = self.ahead.take() {
            device.expect(offset);
        }
        self.turns_to_check -= 1;
        if self.turns_to_check == 0 {
            self.check(now);
            if device.write_buffer().fault().is_some() {
                // The run has no result, and its end says why.
                self.halt = Halt::Cancelled;
            }
        }
        self.halt != Halt::Running
    }
}
