//! A host attached to a drive: an application, its log client on the byte side, and its commands on the block side.

use super::backlog::Backlog;
use super::client::LogClient;
use super::sink::{DeviceSink, Request};
use super::window::{LOAD_TAG, WindowClient};
use super::workers::Workers;
use crate::metrics::Histogram;
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_client::Health;
use tidewater_core::device::{Device, Input, Output};
use tidewater_core::drive::World;
use tidewater_core::host::Submission;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Sqe, Status};

/// Who wants something of the drive, one request at a time.
pub trait Application {
    /// When it next needs the time.
    fn deadline(&self) -> Option<Instant>;
    /// Tells it the time.
    fn advance(&mut self, now: Instant);
    /// Its next request, while none is under way.
    fn poll_request(&mut self) -> Option<Request>;
    /// The request that it made last is done.
    fn complete(&mut self, now: Instant);
    /// Whether it has come to its end.
    fn is_over(&self, now: Instant) -> bool;
}

/// Workers whose groups are committed to the drive.
#[expect(missing_debug_implementations, reason = "a log source may be a file")]
pub struct Database {
    /// The workers.
    pub workers: Workers,
    /// The side of the drive that their log goes to.
    pub sink: DeviceSink,
    /// Measurement begins here.
    pub warm_until: Instant,
    /// And ends here.
    pub until: Instant,
    /// Whether it has begun.
    pub measuring: bool,
}

impl Database {
    /// Workers with their log on one side of a drive, measured between two instants.
    pub fn new(workers: Workers, sink: DeviceSink, warm_until: Instant, until: Instant) -> Database {
        Database { workers, sink, warm_until, until, measuring: false }
    }
}

impl Application for Database {
    fn deadline(&self) -> Option<Instant> {
        super::next(&self.workers, &self.sink)
    }

    fn advance(&mut self, now: Instant) {
        if !self.measuring && now >= self.warm_until {
            self.measuring = true;
            self.workers.measure_from(now);
        }
        super::step(&mut self.workers, &mut self.sink, now);
    }

    fn poll_request(&mut self) -> Option<Request> {
        self.sink.poll_request()
    }

    fn complete(&mut self, now: Instant) {
        self.sink.complete(now);
        super::step(&mut self.workers, &mut self.sink, now);
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.until || self.workers.is_done()
    }
}

/// Appends of one size, each followed by a sync or not, as fast as they go or at a rate.
#[derive(Debug)]
pub struct Appender {
    size: u64,
    syncs: bool,
    /// Mean time between two appends; zero: each follows the last.
    every: Duration,
    rng: Rng,
    begins_at: Instant,
    began: Option<Instant>,
    next: Option<Request>,
    under_way: Option<Request>,
    warm_until: Instant,
    until: Instant,
    /// From the start of an append to the end of its sync (or of itself), after the warm-up.
    pub latency: Histogram,
    /// Bytes appended after the warm-up.
    pub bytes: u64,
}

impl Appender {
    /// Appends `size` bytes again and again, and counts those that end after `warm_until`, up to `until`.
    pub fn new(size: u64, syncs: bool, every: Duration, warm_until: Instant, until: Instant) -> Appender {
        Appender {
            size,
            syncs,
            every,
            rng: Rng::new(size, b"appender"),
            begins_at: Instant::ZERO,
            began: None,
            next: None,
            under_way: None,
            warm_until,
            until,
            latency: Histogram::default(),
            bytes: 0,
        }
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.until.since(self.warm_until).as_secs_f64()
    }

    /// Measures anew, between two instants.
    pub fn measure(&mut self, warm_until: Instant, until: Instant) {
        (self.warm_until, self.until, self.bytes) = (warm_until, until, 0);
        self.latency = Histogram::default();
    }
}

impl Application for Appender {
    fn deadline(&self) -> Option<Instant> {
        (self.under_way.is_none() && self.next.is_none()).then_some(self.begins_at)
    }

    fn advance(&mut self, now: Instant) {
        if self.under_way.is_none() && self.next.is_none() && now >= self.begins_at {
            // It began when it was due, also if the one before it was late.
            self.began = Some(self.begins_at);
            self.next = Some(Request::Append { length: self.size });
        }
    }

    fn poll_request(&mut self) -> Option<Request> {
        let request = self.next.take()?;
        self.under_way = Some(request);
        Some(request)
    }

    fn complete(&mut self, now: Instant) {
        if let Some(Request::Append { .. }) = self.under_way.take()
            && self.syncs
        {
            self.next = Some(Request::Sync);
            return;
        }
        let began = self.began.take().expect("an append began");
        if began >= self.warm_until && now <= self.until {
            self.latency.record(now.since(began));
            self.bytes += self.size;
        }
        self.begins_at = match self.every.as_ps() {
            0 => now,
            mean => began + Duration::from_ps(self.rng.exponential(mean as f64) as u64),
        };
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

/// Block writes beside the log: random, of one size, at a rate, with a bound on how many are outstanding.
#[derive(Clone, Debug)]
pub struct BlockWrites {
    size: u64,
    /// Mean time between two writes.
    every: Duration,
    depth: u32,
    next_at: Instant,
    outstanding: u32,
    rng: Rng,
    blocks: u64,
    block_shift: u32,
    cids: Vec<u16>,
    warm_until: Instant,
    until: Instant,
    /// Bytes written after the warm-up.
    pub bytes: u64,
}

impl BlockWrites {
    /// Random writes of `size` bytes over `span` bytes of a drive with blocks of `1 << block_shift`.
    pub fn new(
        (size, span, block_shift): (u64, u64, u32),
        every: Duration,
        depth: u16,
        warm_until: Instant,
        until: Instant,
    ) -> BlockWrites {
        BlockWrites {
            size,
            every,
            depth: depth.into(),
            next_at: Instant::ZERO,
            outstanding: 0,
            rng: Rng::new(size, b"block writes"),
            blocks: span >> block_shift,
            block_shift,
            cids: (1..=depth).collect(),
            warm_until,
            until,
            bytes: 0,
        }
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.until.since(self.warm_until).as_secs_f64()
    }

    /// Measures anew, between two instants.
    pub fn measure(&mut self, warm_until: Instant, until: Instant) {
        (self.warm_until, self.until, self.bytes) = (warm_until, until, 0);
    }

    fn due(&self) -> Option<Instant> {
        (self.outstanding < self.depth).then_some(self.next_at)
    }

    fn submit(&mut self) -> Submission {
        let count = self.size >> self.block_shift;
        let first = self.rng.below(self.blocks / count) * count;
        let cid = self.cids.pop().expect("as many as may be outstanding");
        self.outstanding += 1;
        self.next_at += Duration::from_ps(self.rng.exponential(self.every.as_ps() as f64) as u64);
        Submission::new(Sqe::write(cid, first, (count - 1) as u16), 0)
    }

    fn complete(&mut self, now: Instant, cid: u16) {
        self.cids.push(cid);
        self.outstanding -= 1;
        if now >= self.warm_until && now <= self.until {
            self.bytes += self.size;
        }
        // Who could not submit in time does not catch up: the load is what the device takes of what is offered.
        if self.outstanding + 1 == self.depth {
            self.next_at = self.next_at.max(now);
        }
    }
}

/// Whether the ring of the first lane has no room for another intake queue.
pub fn is_full<M: Medium>(device: &Device<M>) -> bool {
    let lane = device.fast().function(0).map(|function| &function.lanes()[0]);
    lane.is_some_and(|lane| lane.reached() + lane.queue_size() > lane.freed() + lane.ring_size())
}

/// An application and its host, as the world of a drive.
#[derive(Debug)]
pub struct Attached<A> {
    /// The application.
    pub app: A,
    /// Its client of the fast side, if it uses that.
    pub client: Option<LogClient>,
    /// Its client of the byte window, if it uses that.
    pub window: Option<WindowClient>,
    /// Block writes beside it.
    pub blocks: Option<BlockWrites>,
    /// Who looks at what waits in the ring, if anybody does.
    pub backlog: Option<Backlog>,
    /// Whether to stop once the ring of the first lane has no room for another intake queue.
    pub stops_when_full: bool,
    /// Commands that the application's requests have become, of the block side and of the window.
    pub commands: u64,
    /// The commands of the application's block request that are to be submitted, and how many of it are under way.
    submissions: VecDeque<Submission>,
    /// Those that found the queue full.
    waiting: VecDeque<Submission>,
    outstanding: u32,
    block_shift: u32,
    blocks_max: u64,
    refusal: Option<Status>,
}

impl<A: Application> Attached<A> {
    /// Attaches an application to a drive with blocks of `1 << block_shift` bytes.
    pub fn new(app: A, client: Option<LogClient>, block_shift: u32) -> Attached<A> {
        Attached {
            app,
            client,
            window: None,
            blocks: None,
            backlog: None,
            stops_when_full: false,
            commands: 0,
            submissions: VecDeque::new(),
            waiting: VecDeque::new(),
            outstanding: 0,
            block_shift,
            blocks_max: 1 << 16,
            refusal: None,
        }
    }

    /// Requests are split into commands of at most so many bytes, as a driver does.
    pub fn with_transfer_max(self, bytes: u32) -> Attached<A> {
        Attached { blocks_max: (u64::from(bytes) >> self.block_shift).clamp(1, 1 << 16), ..self }
    }

    /// Why the drive does not take what it is given, if it does not.
    pub fn failure(&self) -> Option<String> {
        let client =
            self.client.as_ref().and_then(LogClient::failure).map(|error| format!("the fast side failed: {error}"));
        let window = self
            .window
            .as_ref()
            .and_then(WindowClient::failure)
            .map(|error| format!("the byte window failed: {error}"));
        client
            .or(window)
            .or_else(|| self.refusal.map(|status| format!("the drive refused a block write of the log: {status}")))
    }

    /// Splits a block write or read into commands.
    fn move_blocks(&mut self, offset: u64, length: u64, sqe: impl Fn(u16, u64, u16) -> Sqe) {
        let (mut first, end) = (offset >> self.block_shift, (offset + length) >> self.block_shift);
        while first < end {
            let count = self.blocks_max.min(end - first);
            let cid = self.submissions.len() as u16;
            self.submissions.push_back(Submission::new(sqe(cid, first, (count - 1) as u16), 0));
            first += count;
        }
        self.outstanding = self.submissions.len() as u32;
    }

    /// Lets application and client do what is due.
    fn advance(&mut self, now: Instant) {
        if let Some(client) = &mut self.client {
            client.advance(now);
            if let Some(at) = client.poll_finished() {
                self.app.complete(at);
            }
        }
        if let Some(window) = &mut self.window {
            window.advance(now);
            if let Some(at) = window.poll_finished() {
                self.app.complete(at);
            }
        }
        self.app.advance(now);
        while let Some(request) = self.app.poll_request() {
            match (request, &mut self.client) {
                (Request::Append { length }, Some(client)) => client.write(now, length),
                (Request::Sync, Some(client)) => client.sync(now),
                (Request::Write { offset, length }, _) => {
                    self.move_blocks(offset, length, Sqe::write);
                }
                (Request::Read { offset, length }, _) => self.move_blocks(offset, length, Sqe::read),
                (Request::Window(request), _) => {
                    self.window.as_mut().expect("the application has a window").begin(now, request);
                }
                (Request::Flush, _) => {
                    self.submissions.push_back(Submission::new(Sqe::flush(0), 0));
                    self.outstanding = 1;
                }
                (request, None) => unreachable!("{request:?} needs a client of the fast side"),
            }
            // A call that ends at once lets the next begin.
            if let Some(client) = &mut self.client
                && let Some(at) = client.poll_finished()
            {
                self.app.complete(at);
            }
            if let Some(window) = &mut self.window
                && let Some(at) = window.poll_finished()
            {
                self.app.complete(at);
            }
        }
    }
}

impl<A: Application, M: Medium> World<Device<M>> for Attached<A> {
    fn next_at(&self) -> Instant {
        if !self.submissions.is_empty() {
            return Instant::ZERO;
        }
        let client = self.client.as_ref().and_then(LogClient::deadline);
        let window = self.window.as_ref().and_then(WindowClient::deadline);
        let blocks = self.blocks.as_ref().and_then(BlockWrites::due);
        self.app.deadline().into_iter().chain(client).chain(window).chain(blocks).min().unwrap_or(Instant::NEVER)
    }

    fn submit(&mut self, now: Instant) -> Option<Input<'_>> {
        self.advance(now);
        if let Some(submission) = self.submissions.pop_front() {
            self.commands += 1;
            return Some(Input::Submit { queue: 0, submission });
        }
        if let Some(input) = self.client.as_mut().and_then(|client| client.poll_arrival(now)) {
            return Some(input);
        }
        if let Some(input) = self.window.as_mut().and_then(|window| window.poll_arrival(now)) {
            self.commands += u64::from(matches!(input, Input::Window { .. }));
            return Some(input);
        }
        let blocks = self.blocks.as_mut().filter(|blocks| blocks.due().is_some_and(|at| at <= now))?;
        Some(Input::Submit { queue: 1, submission: blocks.submit() })
    }

    fn refused(&mut self, submission: Submission) {
        // The queue is full: it goes again when a command of it has ended.
        self.waiting.push_front(submission);
    }

    fn take(&mut self, now: Instant, output: Output, device: &Device<M>) {
        match output {
            Output::Complete(completion) if completion.queue == 0 => {
                let status = completion.cqe.status;
                if !status.is_success() {
                    self.refusal = Some(status);
                }
                self.submissions.append(&mut self.waiting);
                self.outstanding -= 1;
                if self.outstanding == 0 {
                    self.app.complete(now);
                    self.advance(now);
                }
            }
            Output::Complete(completion) => {
                if let Some(blocks) = &mut self.blocks {
                    blocks.complete(now, completion.cqe.cid);
                }
            }
            Output::Loaded { tag: LOAD_TAG, .. } => {
                if let Some(window) = &mut self.window {
                    window.loaded(now);
                }
            }
            Output::Reply { cid, status, result, .. } => {
                if let Some(window) = &mut self.window {
                    window.replied(now, cid, status, result);
                }
            }
            Output::Loaded { value, .. } => {
                if let Some(client) = &mut self.client {
                    client.loaded(now, value, || Health::from(&device.control_page(0)));
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, now: Instant, device: &Device<M>) -> bool {
        if let Some(backlog) = &mut self.backlog {
            backlog.look(now, device, self.client.as_ref().map_or(0, LogClient::loads));
        }
        self.app.is_over(now) || self.failure().is_some() || self.stops_when_full && is_full(device)
    }
}
