//! Measurements of a run: latency by operation, and figures over virtual time.

mod cpu;
mod histogram;
mod series;

pub use cpu::user_cpu_seconds;
pub use histogram::Histogram;
pub use series::{FlashWork, Interval, Series};

use tidewater_base::{Duration, Instant};

use crate::request::Op;

/// The figures of one run, by request.
#[derive(Clone, Debug)]
pub struct Metrics {
    latencies: [Histogram; Op::ALL.len()],
    bytes: [u64; Op::ALL.len()],
    /// The run over time.
    pub series: Series,
}

impl Metrics {
    /// Nothing measured yet; `points` is the most intervals of the time series, at least 2.
    pub fn new(points: usize) -> Metrics {
        Metrics {
            latencies: std::array::from_fn(|_| Histogram::default()),
            bytes: [0; Op::ALL.len()],
            series: Series::new(points),
        }
    }

    /// A request that moved `bytes`, none where it failed, ended at `now`. Its time must not run backwards.
    #[inline(always)]
    pub fn record(&mut self, now: Instant, op: Op, bytes: u64, latency: Duration) {
        self.latencies[op.index()].record(latency);
        self.bytes[op.index()] += bytes;
        self.series.record(now, op, bytes, latency);
    }

    /// The latencies of one operation.
    pub fn latencies(&self, op: Op) -> &Histogram {
        &self.latencies[op.index()]
    }

    /// Bytes of the requests of one operation that succeeded.
    pub fn bytes(&self, op: Op) -> u64 {
        self.bytes[op.index()]
    }

    /// The latencies of all operations.
    pub fn all(&self) -> Histogram {
        self.latencies.iter().fold(Histogram::default(), |mut all, one| {
            all.add(one);
            all
        })
    }

    /// Requests that ended.
    pub fn requests(&self) -> u64 {
        self.latencies.iter().map(Histogram::count).sum()
    }
}
