//! The requests of a job. `next` is called millions of times per second of run time: it allocates nothing.

use tidewater_base::{Duration, Instant, Rng};

use super::pace::Pace;
use super::read_back::ReadBack;
use super::scatter::Scatter;
use super::sizes::Sizes;
use super::spec::{Access, Amount, JobError, Order, ThreadSpec};
use crate::workload::{Op, Request, Source, SourceError};

/// The requests of all threads of a job.
///
/// As a [`Source`] it merges the threads: by arrival where all have a rate, else one of each in turn. Those of one
/// section are alike, and share their depths; sections that differ keep to depths and run times of their own where
/// their driver says what ended ([`Source::part_threads`]).
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
    /// State of each thread, once they are separated.
    lanes: Vec<Lane>,
    /// The next request and its thread, once they are parted.
    ready: Option<(u16, Result<Request, SourceError>)>,
    last: u16,
}

/// State of a thread.
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
#[derive(Clone)]
pub struct ThreadSource {
    name: String,
    iodepth: u32,
    runtime: Option<Duration>,
    access: Access,
    read_threshold: u64,
    /// Below these, a random read, write or trim continues where it was; zero: never.
    continue_thresholds: [u64; 3],
    order: Order,
    /// Of a random thread, requests that follow in sequence before the next place is drawn.
    run_left: u64,
    scatter: Scatter,
    sizes: [Sizes; 3],
    /// Alignment of random offsets: the smallest block, or the job's setting.
    unit: u64,
    units: u64,
    base: u64,
    size: u64,
    /// Where the last read, write and trim ended, relative to the base.
    positions: [u64; 3],
    /// The trimmed range still to be written: its place, relative to the base, and its size.
    trimmed: Option<(u64, u64)>,
    requests_left: u64,
    bytes_left: u64,
    /// Whether it begins again at the end of its region: not where one pass over it is all that was asked for.
    wraps: bool,
    flush_intervals: [u64; 2],
    writes: u64,
    flush_due: bool,
    flush_at_end: bool,
    fua: [bool; 2],
    write_op: Op,
    pace: Option<Pace>,
    rng: Rng,
    issued: u64,
    expected: Option<u64>,
    read_back: Option<ReadBack>,
}

/// A thread's part of a region.
struct Region {
    base: u64,
    size: u64,
    unit: u64,
}

impl Region {
    fn of(spec: &ThreadSpec, used: &[usize], capacity: Option<u64>) -> Result<Region, JobError> {
        let wrong = |reason: String| JobError { place: format!("job \"{}\"", spec.name), reason };
        let unknown = || wrong("size is missing or a percentage, and the drive's size is not given".into());
        let far = || wrong("offset passes 2^64 bytes".into());
        let all = || used.iter().flat_map(|&at| spec.blocks[at].0.iter().map(|(bytes, _)| *bytes));
        let (least, largest) = (all().min().unwrap_or(4096), all().max().unwrap_or(4096));
        let shift = spec.increment.of(capacity).ok_or_else(unknown)?.checked_mul(spec.clone);
        let mut base = spec.offset.of(capacity).ok_or_else(unknown)?;
        base = shift.and_then(|shift| base.checked_add(shift)).ok_or_else(far)?;
        let is_share = |amount: Amount| matches!(amount, Amount::Percent(percent) if percent > 0.0);
        if is_share(spec.offset) || is_share(spec.increment) {
            // Of a share of the drive, the next place that blocks begin at, as in fio.
            base = base.checked_next_multiple_of(spec.offset_align.unwrap_or(least)).ok_or_else(far)?;
        }
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
        let unit = spec.align.unwrap_or(least);
        if size < unit {
            return Err(wrong(format!("its region of {size} bytes is smaller than its blockalign of {unit} bytes")));
        }
        // What no block fits into at the end is left out, as in fio.
        Ok(Region { base, size: size - size % least, unit })
    }
}

impl ThreadSource {
    pub(super) fn new(
        spec: &ThreadSpec,
        number: usize,
        capacity: Option<u64>,
        seed: u64,
    ) -> Result<ThreadSource, JobError> {
        let wrong = |reason: String| JobError { place: format!("job \"{}\"", spec.name), reason };
        let used: &[usize] = match spec.access {
            Access::Read => &[0],
            Access::Write => &[1],
            Access::Trim | Access::TrimWrite => &[2],
            Access::Mixed => &[0, 1],
        };
        let Region { base, size, unit } = Region::of(spec, used, capacity)?;
        let units = size / unit;
        let seed = spec.seed.unwrap_or(seed).wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let scatter = match spec.order {
            Order::Sequential { .. } => Scatter::Uniform,
            Order::Random { .. } => Scatter::new(spec, units, unit, seed).map_err(wrong)?,
        };
        // Without any limit a thread covers its region once, as fio does. A number of requests is a limit of its own.
        let io_size = match (spec.io_size, spec.number_ios) {
            _ if spec.time_based => u64::MAX,
            (Some(amount), _) => amount.of(Some(size)).unwrap_or(size).saturating_mul(spec.loops),
            (None, Some(_)) => u64::MAX,
            (None, None) => size.saturating_mul(spec.loops),
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
                Access::Write | Access::TrimWrite => data,
                Access::Mixed => (data as f64 * (1.0 - read_share)) as u64,
                Access::Read | Access::Trim => 0,
            };
            let again = u64::from(spec.access == Access::TrimWrite) + u64::from(spec.verify);
            data.saturating_add(flushes(spec.flush_intervals, writes))
                .saturating_add(writes.saturating_mul(again))
                .saturating_add(u64::from(spec.flush_at_end))
        });
        let lane = if spec.rates_apart { 0..3 } else { used[0]..used[0] + 1 };
        let paced = lane.clone().any(|kind| spec.rate[kind].is_some() || spec.rate_iops[kind].is_some());
        let mut pace = Pace {
            rate: spec.rate,
            rate_iops: spec.rate_iops,
            bytes: [0; 3],
            count: [0; 3],
            apart: spec.rates_apart,
            last: Instant::ZERO,
        };
        if !spec.rates_apart {
            (pace.rate[0], pace.rate_iops[0]) = (spec.rate[used[0]], spec.rate_iops[used[0]]);
        }
        let continues = |percent: u32| match percent {
            100.. => 0,
            percent => tidewater_base::rng::probability_threshold(1.0 - f64::from(percent) / 100.0),
        };
        let mut thread = ThreadSource {
            name: spec.name.clone(),
            iodepth: spec.iodepth,
            runtime: spec.runtime,
            access: spec.access,
            read_threshold: tidewater_base::rng::probability_threshold(read_share),
            continue_thresholds: spec.random_percent.map(continues),
            order: spec.order,
            run_left: 0,
            scatter,
            sizes: [0, 1, 2].map(|at| Sizes::new(&spec.blocks[at])),
            unit,
            units,
            base,
            size,
            positions: [0; 3],
            trimmed: None,
            requests_left,
            bytes_left: io_size,
            wraps: spec.time_based || spec.number_ios.is_some() || io_size > size,
            flush_intervals: spec.flush_intervals,
            writes: 0,
            flush_due: false,
            flush_at_end: spec.flush_at_end,
            fua: spec.fua,
            write_op: spec.write_op,
            pace: paced.then_some(pace),
            rng: Rng::new(seed, b"job"),
            issued: 0,
            expected,
            read_back: None,
        };
        if spec.verify {
            thread.read_back = Some(thread.what_to_read_back(spec).map_err(wrong)?);
        }
        Ok(thread)
    }

    /// How the writes of this thread, of which none was made, are known again.
    fn what_to_read_back(&self, spec: &ThreadSpec) -> Result<ReadBack, String> {
        let sizes = &spec.blocks[if self.access == Access::TrimWrite { 2 } else { 1 }].0;
        let largest = sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(self.unit);
        let moved = self.bytes_left.min(self.requests_left.saturating_mul(largest));
        let is_plain = matches!(self.order, Order::Sequential { hole: 0 });
        let is_map = matches!(self.order, Order::Random { run: 1 }) && self.scatter.is_map();
        let once = is_plain && moved <= self.size
            || is_map && moved <= self.size && largest == self.unit && spec.random_percent == [100; 3];
        if once {
            return Ok(ReadBack::Again(Box::new(ThreadSource { flush_at_end: false, ..self.clone() })));
        }
        // One bit for each block: 64 GiB of blocks of 4 KiB take 2 MiB.
        if sizes.len() > 1 || largest != self.unit {
            return Err(
                "verify of blocks that are written several times needs one size of write, the smallest and that of \
                        blockalign: give one size, or do_verify=0"
                    .into(),
            );
        }
        if self.units > 1 << 36 {
            return Err(
                "verify of blocks that are written several times needs a region of less than 2^36 blocks".into()
            );
        }
        Ok(ReadBack::written(self.units))
    }

    /// The section it comes from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requests outstanding at once.
    pub fn iodepth(&self) -> u32 {
        self.iodepth
    }

    /// Simulated time after which it ends. A thread with a rate stops by itself; for one without, which does not know
    /// the time, its driver has to.
    pub fn runtime(&self) -> Option<Duration> {
        self.runtime
    }

    /// Whether its arrivals follow a rate. If not, they are all zero: as fast as the queue depth allows.
    pub fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    #[inline(always)]
    fn scattered(&mut self, kind: usize, length: u64) -> u64 {
        let offset = self.scatter.draw(self.units, kind, &mut self.rng) * self.unit;
        if length == self.unit { offset } else { offset.min((self.size - length) / self.unit * self.unit) }
    }

    /// Where the next request of this kind begins when it goes on where the last one ended; `None`: at the end of the
    /// only pass.
    #[inline(always)]
    fn onward(&mut self, kind: usize, length: &mut u64) -> Option<u64> {
        let position = self.positions[kind];
        if let Order::Sequential { hole: 1.. } = self.order {
            return self.behind_hole(position, *length);
        }
        if position + *length <= self.size {
            return Some(position);
        }
        if position < self.size {
            *length = self.sizes[kind].fitting(*length, self.size - position, &mut self.rng);
            if position + *length <= self.size {
                return Some(position);
            }
        }
        Some(0)
    }

    /// The same with a hole before each request but the first of a pass. fio ends a pass where a request ended with the
    /// region, and begins anew where a hole would pass it.
    #[cold]
    fn behind_hole(&self, position: u64, length: u64) -> Option<u64> {
        let Order::Sequential { hole } = self.order else { return Some(position) };
        if position >= self.size {
            return self.wraps.then_some(0);
        }
        let next = if position == 0 { 0 } else { position.saturating_add(hole) };
        Some(if next.saturating_add(length) <= self.size { next } else { 0 })
    }

    /// Where the next request of this kind begins.
    #[inline(always)]
    fn place(&mut self, kind: usize, length: &mut u64) -> Option<u64> {
        let Order::Random { run } = self.order else { return self.onward(kind, length) };
        if run > 1 {
            if self.run_left > 0 {
                self.run_left -= 1;
                if self.positions[kind] + *length <= self.size {
                    return Some(self.positions[kind]);
                }
                return Some(self.scattered(kind, *length));
            }
            self.run_left = run - 1;
        }
        if self.rng.chance(self.continue_thresholds[kind]) {
            self.onward(kind, length)
        } else {
            Some(self.scattered(kind, *length))
        }
    }

    /// When the next request of this kind is issued; `None`: it is over, or 106 days later.
    #[cold]
    fn paced(&mut self, kind: usize, length: u64) -> Option<Instant> {
        let Some(pace) = &mut self.pace else { return Some(Instant::ZERO) };
        let arrival = pace.due(kind)?.max(pace.last);
        if self.runtime.is_some_and(|runtime| arrival >= Instant::ZERO + runtime) {
            return None;
        }
        let at = pace.lane(kind);
        pace.bytes[at] = pace.bytes[at].saturating_add(length);
        pace.count[at] += 1;
        pace.last = arrival;
        Some(arrival)
    }

    /// A flush, with the last request before it where there is a rate of requests of their own kinds.
    #[cold]
    fn flush(&mut self) -> Option<Result<Request, SourceError>> {
        let arrival = match &self.pace {
            Some(pace) if pace.apart => pace.last,
            _ => self.paced(0, 0)?,
        };
        self.issued += 1;
        Some(Ok(Request { arrival, op: Op::Flush, offset: 0, length: 0, fua: false }))
    }

    /// A read or a write.
    #[inline(always)]
    fn mixed(&mut self) -> (Op, usize) {
        if let Some(pace) = &self.pace
            && pace.apart
        {
            // Where both keep to rates of their own, these say which is next.
            let (read, write) = (pace.due(0), pace.due(1));
            if read != write {
                let reads = write.is_none_or(|write| read.is_some_and(|read| read < write));
                return if reads { (Op::Read, 0) } else { (Op::Write, 1) };
            }
        }
        if self.rng.chance(self.read_threshold) { (Op::Read, 0) } else { (Op::Write, 1) }
    }

    /// The requests after all data: a flush, and reads of the data written.
    #[cold]
    fn ending(&mut self) -> Option<Result<Request, SourceError>> {
        if std::mem::take(&mut self.flush_at_end) {
            return self.flush();
        }
        let (offset, length) = match self.read_back.as_mut()? {
            ReadBack::Again(same) => loop {
                match same.next()? {
                    Ok(request) if request.op == Op::Write => break (request.offset, request.length),
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                }
            },
            ReadBack::Written { bits, next } => (self.base + ReadBack::next_block(bits, next)? * self.unit, self.unit),
        };
        self.issued += 1;
        Some(Ok(Request { arrival: Instant::ZERO, op: Op::Read, offset, length, fua: false }))
    }
}

impl Source for ThreadSource {
    // Always inlined: a request is 40 bytes, which would be written to memory and read back at once.
    #[inline(always)]
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        if self.flush_due {
            self.flush_due = false;
            return self.flush();
        }
        let written_now = self.trimmed.take();
        if written_now.is_none() && (self.requests_left == 0 || self.bytes_left == 0) {
            return self.ending();
        }
        let (op, at) = match self.access {
            Access::Read => (Op::Read, 0),
            Access::Write => (Op::Write, 1),
            Access::Trim => (Op::Deallocate, 2),
            Access::Mixed => self.mixed(),
            Access::TrimWrite if written_now.is_some() => (Op::Write, 1),
            Access::TrimWrite => (Op::Deallocate, 2),
        };
        let (within, length) = match written_now {
            Some(place) => place,
            None => {
                let mut length = self.sizes[at].draw(&mut self.rng);
                let Some(within) = self.place(at, &mut length) else {
                    self.requests_left = 0;
                    return self.ending();
                };
                (within, length)
            }
        };
        self.positions[at] = within + length;
        let arrival = if self.pace.is_some() {
            match self.paced(at, length) {
                Some(arrival) => arrival,
                None => {
                    self.requests_left = 0;
                    self.flush_at_end = false;
                    return None;
                }
            }
        } else {
            Instant::ZERO
        };
        // A write of what was trimmed is the second half of one request.
        if written_now.is_none() {
            if self.requests_left != u64::MAX {
                self.requests_left -= 1;
            }
            if self.bytes_left != u64::MAX {
                self.bytes_left = self.bytes_left.saturating_sub(length);
            }
            if self.access == Access::TrimWrite {
                self.trimmed = Some((within, length));
            }
        }
        if op == Op::Write {
            if self.flush_intervals != [0; 2] {
                self.writes += 1;
                let due = |&every: &u64| every > 0 && self.writes.is_multiple_of(every);
                self.flush_due = self.flush_intervals.iter().any(due);
            }
            if let Some(read_back) = &mut self.read_back {
                read_back.note(within / self.unit);
            }
        }
        self.issued += 1;
        let (op, fua) = match op {
            Op::Read => (op, self.fua[0]),
            Op::Write => (self.write_op, self.fua[1]),
            _ => (op, false),
        };
        Some(Ok(Request { arrival, op, offset: self.base + within, length, fua }))
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
