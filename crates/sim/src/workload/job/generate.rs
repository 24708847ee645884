//! The requests of a job. `next` is called millions of times per second of run time: it allocates nothing.

use tidewater_base::{Duration, Instant, Rng};

use super::{Access, BlockSizes, Distribution, JobError, ThreadSpec};
use crate::workload::permutation::Permutation;
use crate::workload::zipf::Zipf;
use crate::workload::{Op, Request, Source, SourceError};

/// The requests of all threads of a job.
///
/// As a [`Source`] it merges the threads: by arrival where all have a rate, else one of each in turn. Those of one section are
/// alike, and share their depths; sections that differ keep to depths and run times of their own where whoever serves them
/// says what ended ([`Source::part_threads`]).
pub struct JobSource {
    threads: Vec<ThreadSource>,
    /// The next request of each thread, kept only where all threads have a rate.
    pending: Vec<Option<Request>>,
    by_arrival: bool,
    turn: usize,
    /// Whether all threads do the same, each perhaps in a place of its own.
    alike: bool,
    /// Whether one depth is meant for all, whatever each asks for.
    one_depth: bool,
    /// What each thread is at, once they are parted.
    lanes: Vec<Lane>,
    /// The next request and its thread, once they are parted.
    ready: Option<(u16, Result<Request, SourceError>)>,
    last: u16,
}

/// What a thread is at.
#[derive(Clone, Copy, Default)]
struct Lane {
    outstanding: u32,
    done: bool,
}

impl JobSource {
    pub(super) fn new(threads: Vec<ThreadSource>, alike: bool) -> JobSource {
        let by_arrival = threads.len() > 1 && threads.iter().all(|thread| thread.pace.is_some());
        JobSource {
            pending: vec![None; threads.len()],
            threads,
            by_arrival,
            turn: 0,
            alike,
            one_depth: false,
            lanes: Vec::new(),
            ready: None,
            last: 0,
        }
    }

    /// The depths of the threads do not count: one that was given from outside is meant for all of them together.
    pub fn share_depth(&mut self) {
        self.one_depth = true;
    }

    /// The threads, each a source of its own.
    pub fn into_threads(self) -> Vec<ThreadSource> {
        self.threads
    }

    /// The section of the thread that reaches the highest address.
    pub fn largest(&self) -> Option<&str> {
        self.threads.iter().max_by_key(|thread| thread.extent()).map(ThreadSource::name)
    }

    /// Requests outstanding at once, over all threads.
    pub fn iodepth(&self) -> u32 {
        self.threads.iter().fold(0, |sum: u32, thread| sum.saturating_add(thread.iodepth))
    }

    /// The longest time that a thread runs; `None` when one has no limit.
    pub fn runtime(&self) -> Option<Duration> {
        self.threads.iter().map(|thread| thread.runtime).try_fold(Duration::ZERO, |most, time| Some(most.max(time?)))
    }

    #[inline(never)]
    fn next_of_many(&mut self) -> Option<Result<Request, SourceError>> {
        if !self.lanes.is_empty() {
            let (thread, request) = self.ready.take()?;
            self.last = thread;
            return Some(request);
        }
        if self.by_arrival {
            return self.earliest();
        }
        for _ in 0..self.threads.len() {
            let at = self.turn;
            self.turn = if at + 1 == self.threads.len() { 0 } else { at + 1 };
            if let Some(request) = self.threads[at].next() {
                return Some(request);
            }
        }
        None
    }

    fn earliest(&mut self) -> Option<Result<Request, SourceError>> {
        for (slot, thread) in self.pending.iter_mut().zip(&mut self.threads) {
            if slot.is_none() {
                match thread.next() {
                    Some(Ok(request)) => *slot = Some(request),
                    Some(Err(error)) => return Some(Err(error)),
                    None => {}
                }
            }
        }
        let slot = self.pending.iter_mut().filter(|slot| slot.is_some()).min_by_key(|slot| slot.map(|r| r.arrival))?;
        slot.take().map(Ok)
    }
}

impl Source for JobSource {
    #[inline(always)]
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        match &mut self.threads[..] {
            [thread] => thread.next(),
            _ => self.next_of_many(),
        }
    }

    fn part_threads(&mut self) -> bool {
        // By arrival, the rates say how much each thread does, and when it ends.
        let parted = !self.by_arrival && !self.alike;
        if parted {
            self.lanes = vec![Lane::default(); self.threads.len()];
        }
        parted
    }

    fn can_give(&mut self, now: Instant) -> bool {
        if self.lanes.is_empty() || self.ready.is_some() {
            return true;
        }
        let mut waits = false;
        for _ in 0..self.threads.len() {
            let at = self.turn;
            self.turn = if at + 1 == self.threads.len() { 0 } else { at + 1 };
            let (thread, lane) = (&mut self.threads[at], &mut self.lanes[at]);
            // One with a rate knows its time itself.
            let over = thread.pace.is_none() && thread.runtime.is_some_and(|runtime| now >= Instant::ZERO + runtime);
            if lane.done || over {
                lane.done = true;
                continue;
            }
            if lane.outstanding >= thread.iodepth && !self.one_depth {
                waits = true;
                continue;
            }
            match thread.next() {
                Some(request) => {
                    lane.outstanding += 1;
                    self.ready = Some((at as u16, request));
                    return true;
                }
                None => lane.done = true,
            }
        }
        !waits
    }

    fn thread(&self) -> u16 {
        self.last
    }

    fn ended(&mut self, thread: u16) {
        if let Some(lane) = self.lanes.get_mut(usize::from(thread)) {
            lane.outstanding -= 1;
        }
    }

    fn expected_requests(&self) -> Option<u64> {
        self.threads.iter().try_fold(0u64, |sum, thread| Some(sum.saturating_add(thread.expected_requests()?)))
    }

    fn progress(&self) -> Option<f64> {
        let expected = self.expected_requests()?;
        let issued: u64 = self.threads.iter().map(|thread| thread.issued).sum();
        Some(if expected == 0 { 1.0 } else { (issued as f64 / expected as f64).min(1.0) })
    }

    fn extent(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.base + thread.size).max()
    }
}

/// Where random requests go, prepared.
enum Scatter {
    /// Every block once in a pseudo-random order, then all again in another order.
    Map { order: Permutation, next: u64, passes: u64, key: u64 },
    /// Any block at any time.
    Uniform,
    /// Popular blocks more often; the permutation puts ranks anywhere.
    Zipf(Box<Zipf>, Permutation),
}

/// Sizes of requests, prepared: cumulative shares as thresholds of 64 random bits.
struct Sizes(Vec<(u64, u64)>);

impl Sizes {
    fn new(blocks: &BlockSizes) -> Sizes {
        let mut sum = 0.0;
        let mut thresholds: Vec<(u64, u64)> = blocks
            .0
            .iter()
            .map(|&(bytes, share)| {
                sum += share;
                (tidewater_base::rng::probability_threshold(sum / 100.0), bytes)
            })
            .collect();
        if let Some(last) = thresholds.last_mut() {
            last.0 = u64::MAX;
        }
        Sizes(thresholds)
    }

    #[inline]
    fn draw(&self, rng: &mut Rng) -> u64 {
        if let [(_, bytes)] = self.0[..] {
            return bytes;
        }
        let draw = rng.next_u64();
        self.0.iter().find(|(threshold, _)| draw <= *threshold).map_or(512, |(_, bytes)| *bytes)
    }

    fn mean(blocks: &BlockSizes) -> f64 {
        blocks.0.iter().map(|(bytes, share)| *bytes as f64 * share / 100.0).sum()
    }
}

/// What a rate allows.
struct Pace {
    rate: Option<u64>,
    rate_iops: Option<u64>,
    bytes: u64,
}

/// Flushes behind so many writes, by either of two intervals: one where both are due.
fn flushes(intervals: [u64; 2], writes: u64) -> u64 {
    let of = |every: u64| writes.checked_div(every).unwrap_or(0);
    let [a, b] = intervals;
    let gcd = {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let both = if a == 0 || b == 0 { 0 } else { of((a / gcd).saturating_mul(b)) };
    of(a).saturating_add(of(b)) - both
}

/// The requests of one thread.
pub struct ThreadSource {
    name: String,
    iodepth: u32,
    runtime: Option<Duration>,
    access: Access,
    read_threshold: u64,
    /// Below this, a random thread continues where it was; zero: never.
    continue_threshold: u64,
    random: bool,
    scatter: Scatter,
    sizes: [Sizes; 3],
    /// The smallest block: what offsets are multiples of.
    unit: u64,
    units: u64,
    base: u64,
    size: u64,
    /// Where the last read, write and trim ended, relative to the base.
    positions: [u64; 3],
    requests_left: u64,
    bytes_left: u64,
    flush_intervals: [u64; 2],
    writes: u64,
    flush_due: bool,
    fua: bool,
    pace: Option<Pace>,
    rng: Rng,
    issued: u64,
    expected: Option<u64>,
}

impl ThreadSource {
    pub(super) fn new(
        spec: &ThreadSpec,
        number: usize,
        capacity: Option<u64>,
        seed: u64,
    ) -> Result<ThreadSource, JobError> {
        let wrong = |reason: String| JobError { place: format!("job \"{}\"", spec.name), reason };
        let unknown = || wrong("size is missing or a percentage, and the drive's size is not given".into());
        let base = spec.offset.of(capacity).ok_or_else(unknown)?;
        let used: &[usize] = match spec.access {
            Access::Read => &[0],
            Access::Write => &[1],
            Access::Trim => &[2],
            Access::Mixed => &[0, 1],
        };
        let all = || used.iter().flat_map(|&at| spec.blocks[at].0.iter().map(|(bytes, _)| *bytes));
        let (unit, largest) = (all().min().unwrap_or(4096), all().max().unwrap_or(4096));
        let base = base.checked_add(spec.offset_shift).map(|base| base - base % unit);
        let base = base.ok_or_else(|| wrong("offset passes 2^64 bytes".into()))?;
        let size = match spec.size {
            Some(size) => size.of(capacity).ok_or_else(unknown)?,
            None => capacity.ok_or_else(unknown)?.saturating_sub(base),
        };
        if base.checked_add(size).is_none_or(|end| end > 1 << 63) {
            return Err(wrong("offset and size pass 2^63 bytes".into()));
        }
        if size < largest {
            return Err(wrong(format!("its region of {size} bytes is smaller than a request of {largest} bytes")));
        }
        let units = size / unit;
        let seed = spec.seed.unwrap_or(seed).wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let scatter = match spec.distribution {
            _ if !spec.random => Scatter::Uniform,
            Distribution::Zipf(theta) => {
                // The popular blocks are the same for every thread and clone.
                Scatter::Zipf(Box::new(Zipf::new(units, theta)), Permutation::new(units, spec.seed.unwrap_or(0)))
            }
            Distribution::Uniform if spec.random_map => {
                Scatter::Map { order: Permutation::new(units, seed), next: 0, passes: 0, key: seed }
            }
            Distribution::Uniform => Scatter::Uniform,
        };
        // Without any limit a thread covers its region once, as fio does. A number of requests is a limit of its own.
        let io_size = match (spec.io_size, spec.number_ios) {
            _ if spec.time_based => u64::MAX,
            (Some(amount), _) => amount.of(Some(size)).unwrap_or(size),
            (None, Some(_)) => u64::MAX,
            (None, None) => size,
        };
        let requests_left = if spec.time_based { u64::MAX } else { spec.number_ios.unwrap_or(u64::MAX) };
        let read_share = if spec.access == Access::Mixed { f64::from(spec.read_percent) / 100.0 } else { 0.0 };
        let mean = match spec.access {
            Access::Mixed => {
                read_share * Sizes::mean(&spec.blocks[0]) + (1.0 - read_share) * Sizes::mean(&spec.blocks[1])
            }
            _ => Sizes::mean(&spec.blocks[used[0]]),
        };
        let expected = (!spec.time_based).then(|| {
            let data = requests_left.min((io_size as f64 / mean).ceil() as u64);
            let writes = match spec.access {
                Access::Write => data,
                Access::Mixed => (data as f64 * (1.0 - read_share)) as u64,
                Access::Read | Access::Trim => 0,
            };
            data.saturating_add(flushes(spec.flush_intervals, writes))
        });
        let paced = spec.rate.is_some() || spec.rate_iops.is_some();
        Ok(ThreadSource {
            name: spec.name.clone(),
            iodepth: spec.iodepth,
            runtime: spec.runtime,
            access: spec.access,
            read_threshold: tidewater_base::rng::probability_threshold(read_share),
            continue_threshold: if spec.random_percent >= 100 {
                0
            } else {
                tidewater_base::rng::probability_threshold(1.0 - f64::from(spec.random_percent) / 100.0)
            },
            random: spec.random,
            scatter,
            sizes: [0, 1, 2].map(|at| Sizes::new(&spec.blocks[at])),
            unit,
            units,
            base,
            size,
            positions: [0; 3],
            requests_left,
            bytes_left: io_size,
            flush_intervals: spec.flush_intervals,
            writes: 0,
            flush_due: false,
            fua: spec.fua,
            pace: paced.then_some(Pace { rate: spec.rate, rate_iops: spec.rate_iops, bytes: 0 }),
            rng: Rng::new(seed, b"job"),
            issued: 0,
            expected,
        })
    }

    /// The section it comes from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requests outstanding at once.
    pub fn iodepth(&self) -> u32 {
        self.iodepth
    }

    /// Simulated time after which it ends. A thread with a rate stops by itself; for one without, which does not know the
    /// time, whoever drives it has to.
    pub fn runtime(&self) -> Option<Duration> {
        self.runtime
    }

    /// Whether its arrivals follow a rate. If not, they are all zero: as fast as the queue depth allows.
    pub fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    #[inline(always)]
    fn scattered(&mut self, length: u64) -> u64 {
        let index = match &mut self.scatter {
            Scatter::Uniform => self.rng.below(self.units),
            Scatter::Zipf(zipf, order) => order.get(zipf.draw(&mut self.rng)),
            Scatter::Map { order, next, passes, key } => {
                if *next == self.units {
                    *next = 0;
                    *passes += 1;
                    *order = Permutation::new(self.units, key.wrapping_add(*passes));
                }
                *next += 1;
                order.get(*next - 1)
            }
        };
        let offset = index * self.unit;
        if length == self.unit { offset } else { offset.min((self.size - length) / self.unit * self.unit) }
    }

    /// When the next request may be issued at this rate.
    #[cold]
    fn paced(&mut self, length: u64) -> Option<Instant> {
        let Some(pace) = &mut self.pace else { return Some(Instant::ZERO) };
        let scale = |amount: u64, rate: u64| u128::from(amount) * 1_000_000_000_000 / u128::from(rate);
        let by_bytes = pace.rate.map_or(0, |rate| scale(pace.bytes, rate));
        let by_count = pace.rate_iops.map_or(0, |rate| scale(self.issued, rate));
        pace.bytes = pace.bytes.saturating_add(length);
        u64::try_from(by_bytes.max(by_count)).ok().filter(|&ps| ps < u64::MAX / 2).map(Instant::from_ps)
    }
}

impl Source for ThreadSource {
    // Always inlined: a request is 40 bytes, which would be written to memory and read back at once.
    #[inline(always)]
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        if self.flush_due {
            self.flush_due = false;
            let arrival = if self.pace.is_some() { self.paced(0)? } else { Instant::ZERO };
            self.issued += 1;
            return Some(Ok(Request { arrival, op: Op::Flush, offset: 0, length: 0, fua: false }));
        }
        if self.requests_left == 0 || self.bytes_left == 0 {
            return None;
        }
        let (op, at) = match self.access {
            Access::Read => (Op::Read, 0),
            Access::Write => (Op::Write, 1),
            Access::Trim => (Op::Deallocate, 2),
            Access::Mixed if self.rng.chance(self.read_threshold) => (Op::Read, 0),
            Access::Mixed => (Op::Write, 1),
        };
        let length = self.sizes[at].draw(&mut self.rng);
        let within = if self.random && !self.rng.chance(self.continue_threshold) {
            self.scattered(length)
        } else {
            let position = self.positions[at];
            if position + length <= self.size { position } else { 0 }
        };
        self.positions[at] = within + length;
        let arrival = if self.pace.is_some() {
            let arrival = self.paced(length);
            let late = |arrival: Instant| self.runtime.is_some_and(|runtime| arrival >= Instant::ZERO + runtime);
            match arrival {
                Some(arrival) if !late(arrival) => arrival,
                // Over, or 106 days later.
                _ => {
                    self.requests_left = 0;
                    return None;
                }
            }
        } else {
            Instant::ZERO
        };
        if self.requests_left != u64::MAX {
            self.requests_left -= 1;
        }
        if self.bytes_left != u64::MAX {
            self.bytes_left = self.bytes_left.saturating_sub(length);
        }
        if op == Op::Write && self.flush_intervals != [0; 2] {
            self.writes += 1;
            self.flush_due = self.flush_intervals.iter().any(|&every| every > 0 && self.writes.is_multiple_of(every));
        }
        self.issued += 1;
        Some(Ok(Request { arrival, op, offset: self.base + within, length, fua: self.fua && op == Op::Write }))
    }

    fn expected_requests(&self) -> Option<u64> {
        self.expected
    }

    fn progress(&self) -> Option<f64> {
        let expected = self.expected?;
        Some(if expected == 0 { 1.0 } else { (self.issued as f64 / expected as f64).min(1.0) })
    }

    fn extent(&self) -> Option<u64> {
        Some(self.base + self.size)
    }
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
