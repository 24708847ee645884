//! Where log writes come from: what databases and a file system append to their logs, and logs that a user recorded.
//!
//! A [`LogWrite`] is what one transaction appends: so many bytes, by a worker, when it has used its time on the CPU or
//! at an instant. Sizes follow from the rows that a transaction touches and their sizes, not from a figure; each mix
//! says its source. What the log then does with the bytes (group commit, sinks) is in [`crate::host`].

mod file;
mod journal;
mod linkbench;
#[cfg(test)]
mod tests;
mod tpcc;
mod write;
mod ycsb;

pub use file::{LogFile, TimeUnit};
pub use journal::Journal;
pub use linkbench::LinkBench;
pub use tpcc::Tpcc;
pub use write::{Kind, LogWrite, Pace, RecordFormat};
pub use ycsb::{Image, YcsbA};

use super::SourceError;
use tidewater_base::{Duration, Rng};

/// The types of a log that has only one.
const WRITE: [Kind; 1] = [Kind { name: "write", share: 1.0 }];

/// A synthesized mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// TPC-C.
    Tpcc(Tpcc),
    /// LinkBench.
    LinkBench(LinkBench),
    /// YCSB workload A.
    YcsbA(YcsbA),
    /// A journal as ext4 keeps it.
    Journal(Journal),
    /// Writes of so many bytes each.
    Fixed(u64),
}

/// The mixes by name, each with its defaults.
pub fn mixes() -> [(&'static str, Mix); 5] {
    [
        ("tpcc", Mix::Tpcc(Tpcc::default())),
        ("linkbench", Mix::LinkBench(LinkBench::default())),
        ("ycsb-a", Mix::YcsbA(YcsbA::default())),
        ("ext4-journal", Mix::Journal(Journal::default())),
        ("fixed", Mix::Fixed(1024)),
    ]
}

impl Mix {
    /// Its types of transactions.
    pub fn kinds(&self) -> &'static [Kind] {
        match self {
            Mix::Tpcc(_) => &tpcc::KINDS,
            Mix::LinkBench(_) => &linkbench::KINDS,
            Mix::YcsbA(_) => &ycsb::KINDS,
            Mix::Journal(_) => &journal::KINDS,
            Mix::Fixed(_) => &WRITE,
        }
    }

    /// The bytes that a transaction of a type appends.
    fn draw(&self, kind: usize, rng: &mut Rng) -> u64 {
        match self {
            Mix::Tpcc(mix) => mix.draw(kind, rng),
            Mix::LinkBench(mix) => mix.draw(kind, rng),
            Mix::YcsbA(mix) => mix.draw(kind),
            Mix::Journal(mix) => mix.draw(kind, rng),
            Mix::Fixed(bytes) => *bytes,
        }
    }
}

/// A synthesized log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSpec {
    /// The mix of transactions.
    pub mix: Mix,
    /// Workers, at least 1.
    pub workers: u32,
    /// Mean time on the CPU for a transaction; above zero for a log without end.
    pub cpu_time: Duration,
    /// Times are uniform within this share around the mean, 0 to 1.
    pub cpu_spread: f64,
    /// Transactions before the end; `None`: without end.
    pub transactions: Option<u64>,
    /// Seed.
    pub seed: u64,
}

impl Default for LogSpec {
    /// TPC-C at what the X-SSD paper says of ERMIA: "upwards of 300 ktxn/s" without a log on 8 workers, so 26.7 us each
    /// (a fit). The spread of a half keeps workers from going in step; an assumption.
    fn default() -> LogSpec {
        LogSpec {
            mix: Mix::Tpcc(Tpcc::default()),
            workers: 8,
            cpu_time: Duration::from_ps(26_666_667),
            cpu_spread: 0.5,
            transactions: None,
            seed: 1,
        }
    }
}

/// A generator of log writes.
#[derive(Clone, Debug)]
pub struct Generator {
    spec: LogSpec,
    rng: Rng,
    given: u64,
}

impl Generator {
    /// A generator. Asserts the ranges of `spec`.
    pub fn new(spec: &LogSpec) -> Generator {
        assert!(
            spec.workers > 0 && (0.0..=1.0).contains(&spec.cpu_spread),
            "a log without workers, or a spread above 1"
        );
        assert!(
            spec.transactions.is_some() || !spec.cpu_time.is_zero(),
            "a log without end whose transactions take no time"
        );
        let total: f64 = spec.mix.kinds().iter().map(|kind| kind.share).sum();
        assert!((total - 1.0).abs() < 1e-6, "the shares of a mix add up to {total}");
        Generator { spec: spec.clone(), rng: Rng::new(spec.seed, b"log workload"), given: 0 }
    }

    /// The next write; `None` at the end.
    pub fn draw(&mut self) -> Option<LogWrite> {
        if self.spec.transactions.is_some_and(|count| self.given >= count) {
            return None;
        }
        let kinds = self.spec.mix.kinds();
        let mut left = self.rng.unit_f64();
        let kind = kinds.iter().position(|kind| {
            left -= kind.share;
            left < 0.0
        });
        let kind = kind.unwrap_or(kinds.len() - 1);
        let bytes = self.spec.mix.draw(kind, &mut self.rng);
        let factor = 1.0 + self.spec.cpu_spread * (2.0 * self.rng.unit_f64() - 1.0);
        let time = Duration::from_ps((self.spec.cpu_time.as_ps() as f64 * factor) as u64);
        let worker = (self.given % u64::from(self.spec.workers)) as u32;
        self.given += 1;
        Some(LogWrite { pace: Pace::After(time), worker, kind: kind as u8, bytes })
    }
}

/// Any source of log writes, as an iterator. After an error it is at its end.
pub enum LogSource {
    /// Synthesized.
    Generator(Box<Generator>),
    /// A file.
    File(Box<LogFile>),
}

impl LogSource {
    /// A synthesized log.
    pub fn synthesize(spec: &LogSpec) -> LogSource {
        LogSource::Generator(Box::new(Generator::new(spec)))
    }

    /// Its types of writes; a file has one.
    pub fn kinds(&self) -> &'static [Kind] {
        match self {
            LogSource::Generator(generator) => generator.spec.mix.kinds(),
            LogSource::File(_) => &WRITE,
        }
    }
}

impl Iterator for LogSource {
    type Item = Result<LogWrite, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            LogSource::Generator(generator) => generator.draw().map(Ok),
            LogSource::File(file) => file.next(),
        }
    }
}

/// Log writes by type of transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    kinds: Vec<KindSummary>,
}

/// Log writes of one type of transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSummary {
    /// Transactions.
    pub count: u64,
    /// Bytes of log.
    pub bytes: u64,
    /// The least bytes of one.
    pub min: u64,
    /// The most bytes of one.
    pub max: u64,
}

impl Summary {
    /// Counts a write.
    pub fn add(&mut self, write: &LogWrite) {
        let at = usize::from(write.kind);
        if self.kinds.len() <= at {
            self.kinds.resize(at + 1, KindSummary::default());
        }
        let kind = &mut self.kinds[at];
        kind.min = if kind.count == 0 { write.bytes } else { kind.min.min(write.bytes) };
        kind.max = kind.max.max(write.bytes);
        kind.count += 1;
        kind.bytes += write.bytes;
    }

    /// By type, as [`LogSource::kinds`] numbers them; a type that did not occur last may be missing.
    pub fn kinds(&self) -> &[KindSummary] {
        &self.kinds
    }

    /// Transactions in all.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.bytes).sum()
    }

    /// Bytes of a transaction on average; 0 without any.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes() as f64 / self.count().max(1) as f64
    }

    /// The share of a type, 0 to 1.
    pub fn share(&self, kind: usize) -> f64 {
        self.kinds.get(kind).map_or(0.0, |kind| kind.count as f64) / self.count().max(1) as f64
    }
}
