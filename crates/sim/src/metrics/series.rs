//! A run over virtual time, in a bounded number of intervals: when they are all used, two become one.

use tidewater_base::{Duration, Instant};

use crate::request::Op;

/// Requests that ended in one interval, and the flash work in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Requests of every kind.
    pub requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Latencies of the reads, added up, in picoseconds.
    pub read_latency_ps: u128,
    /// Latencies of the writes, added up, in picoseconds.
    pub write_latency_ps: u128,
    /// Latencies of the other requests, added up, in picoseconds.
    pub other_latency_ps: u128,
    /// Work of the flash.
    pub flash: FlashWork,
}

/// Flash work since the start of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashWork {
    /// Blocks erased.
    pub erases: u64,
    /// Units that the host wrote to flash.
    pub units_host: u64,
    /// Units programmed, whatever their reason.
    pub units: u64,
}

impl FlashWork {
    fn add(&mut self, other: FlashWork) {
        self.erases += other.erases;
        self.units_host += other.units_host;
        self.units += other.units;
    }

    /// The work done since `earlier`.
    pub fn since(self, earlier: FlashWork) -> FlashWork {
        FlashWork {
            erases: self.erases - earlier.erases,
            units_host: self.units_host - earlier.units_host,
            units: self.units - earlier.units,
        }
    }
}

impl Interval {
    fn add(&mut self, other: &Interval) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.requests += other.requests;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.read_latency_ps += other.read_latency_ps;
        self.write_latency_ps += other.write_latency_ps;
        self.other_latency_ps += other.other_latency_ps;
        self.flash.add(other.flash);
    }

    /// Mean latency of all requests; zero without requests.
    pub fn mean_latency(&self) -> Duration {
        let whole = self.read_latency_ps + self.write_latency_ps + self.other_latency_ps;
        mean(whole, self.requests).unwrap_or(Duration::ZERO)
    }

    /// Mean latency of the reads, if there were any.
    pub fn read_latency(&self) -> Option<Duration> {
        mean(self.read_latency_ps, self.reads)
    }

    /// Mean latency of the writes, if there were any.
    pub fn write_latency(&self) -> Option<Duration> {
        mean(self.write_latency_ps, self.writes)
    }
}

fn mean(whole_ps: u128, requests: u64) -> Option<Duration> {
    whole_ps.checked_div(u128::from(requests)).map(|ps| Duration::from_ps(ps as u64))
}

/// The shortest interval.
const SHORTEST: Duration = Duration::from_us(100);

/// Intervals of one length that follow each other from a start.
#[derive(Clone, Debug)]
pub struct Series {
    start: Instant,
    length: Duration,
    /// When the last interval in `intervals` ends.
    ends: Instant,
    intervals: Vec<Interval>,
    points: usize,
}

impl Series {
    /// A series of at most `points` intervals, at least 2, from the first instant.
    pub fn new(points: usize) -> Series {
        let points = points.max(2);
        Series {
            start: Instant::ZERO,
            length: SHORTEST,
            ends: Instant::ZERO + SHORTEST,
            intervals: vec![Interval::default()],
            points,
        }
    }

    /// Forgets everything and starts again at `start`.
    pub fn restart(&mut self, start: Instant) {
        let intervals = std::mem::take(&mut self.intervals);
        *self = Series { start, ends: start + SHORTEST, length: SHORTEST, intervals, points: self.points };
        self.intervals.clear();
        self.intervals.push(Interval::default());
    }

    /// The interval that `now` is in, which may not be before any that was asked for.
    #[inline]
    fn at(&mut self, now: Instant) -> &mut Interval {
        if now >= self.ends {
            self.advance(now);
        }
        self.intervals.last_mut().expect("there is always an interval")
    }

    #[cold]
    fn advance(&mut self, now: Instant) {
        let mut index = now.since(self.start).as_ps() / self.length.as_ps();
        while index >= self.points as u64 {
            self.length = self.length * 2;
            index /= 2;
            let pairs = self.intervals.len().div_ceil(2);
            for i in 0..pairs {
                let mut pair = self.intervals[2 * i];
                if let Some(second) = self.intervals.get(2 * i + 1) {
                    pair.add(second);
                }
                self.intervals[i] = pair;
            }
            self.intervals.truncate(pairs);
        }
        self.intervals.resize(index as usize + 1, Interval::default());
        self.ends = self.start + self.length * (index + 1);
    }

    /// A request ended.
    #[inline(always)]
    pub fn record(&mut self, now: Instant, op: Op, bytes: u64, latency: Duration) {
        let interval = self.at(now);
        let latency = u128::from(latency.as_ps());
        interval.requests += 1;
        match op {
            Op::Read => {
                interval.reads += 1;
                interval.bytes_read += bytes;
                interval.read_latency_ps += latency;
            }
            Op::Write => {
                interval.writes += 1;
                interval.bytes_written += bytes;
                interval.write_latency_ps += latency;
            }
            _ => interval.other_latency_ps += latency,
        }
    }

    /// The flash did this since the last call; it is `now`.
    pub fn record_flash(&mut self, now: Instant, work: FlashWork) {
        // It belongs to the time before, even if an interval has just ended.
        self.intervals.last_mut().expect("there is always an interval").flash.add(work);
        self.at(now);
    }

    /// When the current interval ends.
    #[inline]
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// The length of every interval.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// The intervals, in order, from the start without gaps.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_and_nothing_is_lost() {
        let mut series = Series::new(8);
        series.restart(Instant::from_ns(500));
        let step = Duration::from_us(30);
        let mut now = Instant::from_ns(500);
        for i in 0..10_000u64 {
            series.record(now, if i % 4 == 0 { Op::Read } else { Op::Write }, 4_096, step);
            series.record_flash(now, FlashWork { erases: 1, ..FlashWork::default() });
            now += step;
        }
        assert!(series.intervals().len() <= 8 && series.intervals().len() > 4);
        let sum = series.intervals().iter().fold(Interval::default(), |mut sum, i| {
            sum.add(i);
            sum
        });
        assert_eq!((sum.requests, sum.reads, sum.writes, sum.flash.erases), (10_000, 2_500, 7_500, 10_000));
        assert_eq!(sum.bytes_read + sum.bytes_written, 10_000 * 4_096);
        assert_eq!(sum.mean_latency(), step);
        assert_eq!(series.length(), Duration::from_us(100 << 9), "300 ms in at most 8 intervals of 100 us * 2^n");
        assert_eq!(series.intervals()[0].requests, 1_707, "51.2 ms at one request in 30 us");
    }

    #[test]
    fn reads_and_writes_have_their_own_latency() {
        let mut series = Series::new(4);
        for (op, us) in [(Op::Read, 10), (Op::Read, 30), (Op::Write, 100), (Op::Flush, 500)] {
            series.record(Instant::ZERO, op, 0, Duration::from_us(us));
        }
        let interval = series.intervals()[0];
        assert_eq!(
            (interval.read_latency(), interval.write_latency()),
            (Some(Duration::from_us(20)), Some(Duration::from_us(100)))
        );
        assert_eq!(interval.mean_latency(), Duration::from_us(160));
        assert_eq!(Interval::default().read_latency(), None);
    }

    #[test]
    fn a_long_silence_costs_no_more_than_the_points() {
        let mut series = Series::new(4);
        series.record(Instant::ZERO, Op::Flush, 0, Duration::ZERO);
        series.record(Instant::from_ns(86_400_000_000_000), Op::Flush, 0, Duration::ZERO);
        assert!(series.intervals().len() <= 4);
        assert_eq!(series.intervals().iter().map(|i| i.requests).sum::<u64>(), 2);
    }
}
