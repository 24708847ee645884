//! Workers and group commit, as ERMIA does it in the X-SSD paper (section 6): workers append to a shared log buffer;
//! when it has gathered enough it is committed as one, while they go on into the next.

use crate::metrics::Histogram;
use crate::request::SourceError;
use crate::workload::log::{LogSource, LogWrite, Pace};
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant};

/// How transactions are run and committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkersSpec {
    /// Workers, at least 1. The paper has 1 to 8, each pinned to a core.
    pub workers: u32,
    /// A group is committed as soon as it has this many bytes. Default 16 KiB (the paper, section 6.1).
    pub commit_bytes: u64,
    /// Whether a group has exactly so many bytes: the log is a stream of bytes that is cut there, and a transaction is
    /// durable with the group of its last byte. Otherwise a group is as large as its transactions make it, and the last
    /// may pass the mark. Default true: whole blocks are what direct I/O to a block device takes.
    pub cut: bool,
    /// A group is committed this long after its first transaction at the latest. Default 5 ms, ERMIA's
    /// `group_commit_timeout`; the paper does not say.
    pub commit_timeout: Duration,
    /// Log buffers: one fills while others are committed or wait for it. When none is free, workers stall. Default 4,
    /// an assumption: with 2, the bursts of TPC-C's large transactions stall workers when the sink is busy for 70 % of
    /// the time; more only queue for longer when it is too slow.
    pub buffers: u32,
    /// Commits under way at once. Default 1 (the paper, section 6.1).
    pub queue_depth: u32,
    /// Whether a worker waits until its transaction is durable before it begins the next. Default false: a latency that
    /// falls as workers are added (the paper's figure 9) means that a group fills without its members waiting for it.
    /// Clients of a database, one transaction each, wait.
    pub waits: bool,
    /// Whether what has gathered is committed as soon as the sink may have one more, however little that is. Default
    /// false. So do databases whose clients wait: PostgreSQL, RocksDB and Redis write what is there when the last write
    /// is done.
    pub when_idle: bool,
}

impl Default for WorkersSpec {
    fn default() -> WorkersSpec {
        WorkersSpec {
            workers: 8,
            commit_bytes: 16 << 10,
            cut: true,
            commit_timeout: Duration::from_ms(5),
            buffers: 4,
            queue_depth: 1,
            waits: false,
            when_idle: false,
        }
    }
}

/// A group to make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its number, from 0, without gaps.
    pub sequence: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Transactions that end in it.
    pub transactions: u64,
}

/// Figures of the workers.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From when.
    pub since: Instant,
    /// From a transaction's first instruction (or arrival) until it is durable, of those that write.
    pub latency: Histogram,
    /// Of those that only read: they are done when they are computed.
    pub read_only: Histogram,
    /// From handing a group to the sink until it is durable.
    pub commit: Histogram,
    /// Bytes made durable.
    pub bytes: u64,
    /// Times that workers stood still because no buffer was free, each from the stall until its end.
    pub stalled: Histogram,
}

impl Measured {
    /// Transactions that are done.
    pub fn transactions(&self) -> u64 {
        self.latency.count() + self.read_only.count()
    }

    /// Transactions a second up to `now`.
    pub fn transactions_per_second(&self, now: Instant) -> f64 {
        self.transactions() as f64 / now.since(self.since).as_secs_f64().max(1e-12)
    }

    /// Mean latency of all transactions.
    pub fn mean_latency(&self) -> Duration {
        let sum = self.latency.sum_seconds() + self.read_only.sum_seconds();
        Duration::from_secs_f64(sum / self.transactions().max(1) as f64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Computing {
        due: Instant,
    },
    /// Computed, without a buffer to append to.
    Stalled {
        since: Instant,
    },
    /// Until its transaction is durable.
    Waiting,
    /// Nothing left to do.
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    state: State,
    /// When its transaction began.
    start: Instant,
    /// Bytes of the transaction that are still to be appended.
    bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Group {
    sequence: u64,
    bytes: u64,
    /// When its first transaction came.
    opened: Instant,
    committed: Instant,
    /// Worker and beginning of each transaction.
    transactions: Vec<(u32, Instant)>,
}

/// Workers, their log buffers and what was measured of them.
pub struct Workers {
    spec: WorkersSpec,
    source: LogSource,
    workers: Vec<Worker>,
    stalled: VecDeque<u32>,
    filling: Option<Group>,
    closed: VecDeque<Group>,
    committing: VecDeque<Group>,
    free: Vec<Group>,
    sequence: u64,
    error: Option<SourceError>,
    measured: Measured,
}

impl Workers {
    /// Workers that begin at the first instant. Asserts the ranges of `spec`.
    pub fn new(spec: WorkersSpec, source: LogSource) -> Workers {
        assert!(spec.workers > 0 && spec.queue_depth > 0, "no workers, or nothing may be committed");
        assert!(spec.buffers > 0 && spec.commit_bytes > 0, "no log buffer");
        let worker = Worker { state: State::Ended, start: Instant::ZERO, bytes: 0 };
        let mut workers = Workers {
            spec,
            source,
            workers: vec![worker; spec.workers as usize],
            stalled: VecDeque::with_capacity(spec.workers as usize),
            filling: None,
            closed: VecDeque::with_capacity(spec.buffers as usize),
            committing: VecDeque::with_capacity(spec.buffers as usize),
            free: vec![Group::default(); spec.buffers as usize],
            sequence: 0,
            error: None,
            measured: Measured::default(),
        };
        (0..spec.workers).for_each(|worker| workers.begin(worker, Instant::ZERO));
        workers
    }

    /// The error that ended the source, if it did not end normally.
    pub fn error(&self) -> Option<&SourceError> {
        self.error.as_ref()
    }

    /// The error that ended the source, if it did not end normally.
    pub fn into_error(self) -> Option<SourceError> {
        self.error
    }

    /// Figures since the start or since [`Workers::measure_from`].
    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// Forgets what was measured before `now`: the end of a warm-up.
    pub fn measure_from(&mut self, now: Instant) {
        self.measured = Measured { since: now, ..Measured::default() };
    }

    /// Whether everything is done and durable.
    pub fn is_done(&self) -> bool {
        self.workers.iter().all(|worker| worker.state == State::Ended)
            && self.filling.is_none()
            && self.closed.is_empty()
            && self.committing.is_empty()
    }

    /// When the next transaction is computed, or a group has waited long enough.
    pub fn deadline(&self) -> Option<Instant> {
        let due = self.next_due().map(|(due, _)| due);
        due.into_iter().chain(self.timeout()).min()
    }

    fn next_due(&self) -> Option<(Instant, usize)> {
        let due = |(i, worker): (usize, &Worker)| match worker.state {
            State::Computing { due } => Some((due, i)),
            _ => None,
        };
        self.workers.iter().enumerate().filter_map(due).min()
    }

    fn timeout(&self) -> Option<Instant> {
        self.filling.as_ref().map(|group| group.opened + self.spec.commit_timeout)
    }

    /// Does what is due by `now`. Then come [`Workers::poll_commit`] and [`Workers::durable`].
    pub fn advance(&mut self, now: Instant) {
        while let Some(at) = self.deadline().filter(|&at| at <= now) {
            match self.next_due() {
                Some((due, worker)) if due == at => self.computed(worker as u32, at),
                _ => self.close(),
            }
        }
    }

    /// The next group for the sink, when it may have one more.
    pub fn poll_commit(&mut self, now: Instant) -> Option<Commit> {
        if self.committing.len() >= self.spec.queue_depth as usize {
            return None;
        }
        if self.spec.when_idle && self.closed.is_empty() {
            self.close();
        }
        let mut group = self.closed.pop_front()?;
        (group.sequence, group.committed) = (self.sequence, now);
        self.sequence += 1;
        let Group { sequence, bytes, .. } = group;
        let transactions = group.transactions.len() as u64;
        self.committing.push_back(group);
        Some(Commit { sequence, bytes, transactions })
    }

    /// A group is durable, in any order. Asserts that it was committed and not durable before.
    pub fn durable(&mut self, now: Instant, sequence: u64) {
        let at = self.committing.iter().position(|group| group.sequence == sequence);
        let at = at.expect("a group that is durable was committed");
        let mut group = self.committing.remove(at).expect("a position within");
        self.measured.commit.record(now.since(group.committed));
        self.measured.bytes += group.bytes;
        let waits = self.spec.waits;
        for (worker, start) in group.transactions.drain(..) {
            self.measured.latency.record(now.since(start));
            if waits {
                self.begin(worker, now);
            }
        }
        group.bytes = 0;
        self.free.push(group);
        while let Some(&worker) = self.stalled.front() {
            if !self.append(worker, now) {
                break;
            }
            self.stalled.pop_front();
        }
    }

    /// A worker takes its next transaction.
    fn begin(&mut self, worker: u32, now: Instant) {
        let next = self.source.next().and_then(|next| next.map_err(|error| self.error = Some(error)).ok());
        let worker = &mut self.workers[worker as usize];
        let Some(LogWrite { pace, bytes, .. }) = next else {
            worker.state = State::Ended;
            return;
        };
        let (start, due) = match pace {
            Pace::After(time) => (now, now + time),
            Pace::At(arrival) => (arrival, arrival.max(now)),
        };
        *worker = Worker { state: State::Computing { due }, start, bytes };
    }

    /// A worker's transaction is computed: it is appended, or the worker stalls behind others that did.
    fn computed(&mut self, worker: u32, now: Instant) {
        let Worker { start, bytes, .. } = self.workers[worker as usize];
        if bytes == 0 {
            self.measured.read_only.record(now.since(start));
            self.begin(worker, now);
        } else if !self.stalled.is_empty() || !self.append(worker, now) {
            self.workers[worker as usize].state = State::Stalled { since: now };
            self.stalled.push_back(worker);
        }
    }

    /// Appends what is left of a worker's transaction, as far as there are buffers, and goes on with the worker when
    /// all of it is; returns whether it is.
    fn append(&mut self, worker: u32, now: Instant) -> bool {
        let Worker { start, mut bytes, state } = self.workers[worker as usize];
        loop {
            if self.filling.is_none() {
                self.filling = self.free.pop().map(|group| Group { opened: now, ..group });
            }
            let Some(group) = &mut self.filling else {
                self.workers[worker as usize].bytes = bytes;
                return false;
            };
            let room = if self.spec.cut { self.spec.commit_bytes - group.bytes } else { u64::MAX };
            let taken = bytes.min(room);
            group.bytes += taken;
            bytes -= taken;
            if bytes == 0 {
                group.transactions.push((worker, start));
            }
            if group.bytes >= self.spec.commit_bytes {
                self.close();
            }
            if bytes == 0 {
                break;
            }
        }
        if let State::Stalled { since } = state {
            self.measured.stalled.record(now.since(since));
        }
        if self.spec.waits {
            self.workers[worker as usize].state = State::Waiting;
        } else {
            self.begin(worker, now);
        }
        true
    }

    fn close(&mut self) {
        self.closed.extend(self.filling.take());
    }
}
