//! The types of a job, as its keys say it.

use std::fmt;

use tidewater_base::Duration;

use crate::workload::Op;

/// Several threads that run at once.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// The threads: every job section `numjobs` times. At least one.
    pub threads: Vec<ThreadSpec>,
}

/// One thread of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSpec {
    /// The section it comes from.
    pub name: String,
    /// `rw`: what it does.
    pub access: Access,
    /// `rw`: at random, or one after the other.
    pub order: Order,
    /// `rwmixread`: reads of a mixed thread, 0 to 100 %.
    pub read_percent: u32,
    /// `percentage_random`: how many reads, writes and trims of a random thread are at random, 0 to 100 %; the others
    /// continue the last.
    pub random_percent: [u32; 3],
    /// `random_distribution`.
    pub distribution: Distribution,
    /// Not `norandommap`, or the generator `lfsr`: every block is hit once before any is hit again.
    pub random_map: bool,
    /// `bs` and `bssplit`: sizes of reads, writes and trims.
    pub blocks: [BlockSizes; 3],
    /// `blockalign`: bytes that random requests begin at multiples of; `None`: the smallest size.
    pub align: Option<u64>,
    /// `iodepth`: requests outstanding at once, 1 to 65,535.
    pub iodepth: u32,
    /// `offset`: where its region starts.
    pub offset: Amount,
    /// `offset_align`: bytes that a percentage is rounded up to a multiple of; `None`: the smallest size.
    pub offset_align: Option<u64>,
    /// `offset_increment`: added to the offset once for each clone before this one.
    pub increment: Amount,
    /// Clones of the section before this one.
    pub clone: u64,
    /// `size`: how long its region is; `None`: up to the end of the drive.
    pub size: Option<Amount>,
    /// `io_size`: bytes after which it ends.
    pub io_size: Option<Amount>,
    /// `loops`: how many times `io_size` is moved.
    pub loops: u64,
    /// `number_ios`: reads, writes and trims after which it ends, however large its region is.
    pub number_ios: Option<u64>,
    /// `runtime`: simulated time after which it ends.
    pub runtime: Option<Duration>,
    /// `time_based`: only `runtime` ends it.
    pub time_based: bool,
    /// `rate`: bytes per second of reads, writes and trims.
    pub rate: [Option<u64>; 3],
    /// `rate_iops`: requests per second of reads, writes and trims.
    pub rate_iops: [Option<u64>; 3],
    /// Each kind keeps to its own rate; otherwise all together keep to one.
    pub rates_apart: bool,
    /// `fsync` and `fdatasync`: a flush after so many writes, each; 0: never.
    pub flush_intervals: [u64; 2],
    /// `end_fsync`, `fsync_on_close`: a flush at the end.
    pub flush_at_end: bool,
    /// Whether reads (`readfua`) and writes (`writefua`, `sync`) have Force Unit Access.
    pub fua: [bool; 2],
    /// `write_mode`: what its writes ask for.
    pub write_op: Op,
    /// `verify`: what was written is read at the end.
    pub verify: bool,
    /// `randseed`.
    pub seed: Option<u64>,
}

/// Access pattern of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Deallocates.
    Trim,
    /// Reads and writes.
    Mixed,
    /// Deallocates a place, and writes it.
    TrimWrite,
}

/// In which order a thread goes through its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Sequential {
        /// Bytes that are passed over between two requests.
        hole: u64,
    },
    /// At random.
    Random {
        /// Requests that are made in sequence from each place, at least 1.
        run: u64,
    },
}

/// A part of a region with its share of the requests, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zone {
    /// So many percent of the region.
    Percent {
        /// Requests, percent.
        share: f64,
        /// Of the region, percent.
        size: f64,
    },
    /// So many bytes; `None`: the rest of the region.
    Bytes {
        /// Requests, percent.
        share: f64,
        /// Bytes.
        size: Option<u64>,
    },
}

/// Where random requests go.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Everywhere alike.
    Uniform,
    /// By Zipf's law with this exponent, over blocks in a scattered order.
    Zipf(f64),
    /// By Pareto's law with this power, above 0 and below 1, over blocks in a scattered order.
    Pareto(f64),
    /// By a bell curve widened by this percentage of the region, over blocks in a scattered order, as in fio.
    Normal(f64),
    /// In zones, one list each for reads, writes and trims.
    Zoned([Vec<Zone>; 3]),
}

/// An amount of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many.
    Bytes(u64),
    /// A percentage, 0 to 100: of the drive for `size` and `offset`, of the region for `io_size`.
    Percent(f64),
}

impl Amount {
    pub(super) fn of(self, whole: Option<u64>) -> Option<u64> {
        match self {
            Amount::Bytes(bytes) => Some(bytes),
            Amount::Percent(percent) => whole.map(|whole| (whole as f64 * percent / 100.0) as u64),
        }
    }
}

/// Sizes of requests, with their shares. Never empty; shares add up to 100.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSizes(pub Vec<(u64, f64)>);

/// The fault of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// `file:line`, or `--job` for an inline job.
    pub place: String,
    /// The fault, and the fix.
    pub reason: String,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

impl std::error::Error for JobError {}
