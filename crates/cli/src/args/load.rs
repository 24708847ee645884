//! Options of a run: its load and its drive.

use super::values::{self, formats};
use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use tidewater_base::Duration;
use tidewater_core::ftl::Precondition;
use tidewater_sim::trace::{Columns, Format};
use tidewater_study::{DriveSpec, LoadSpec, Range, Setting, factor};

/// Options that a job has no use for.
pub(super) const OF_TRACES: [&str; 7] = ["trace", "format", "columns", "skip_bad", "volume", "compact", "repeat"];
/// The most passes over a trace.
const PASSES_MAX: u64 = 1_000_000_000;

/// Traces or a job; a command that needs one of them says so.
#[derive(Clone, Debug, Args)]
#[group(multiple = true)]
pub struct Origin {
    /// A trace: a file (plain, gzip or zstd), - for standard input, or the name of a bundled sample such as `sample`.
    /// Several run at once, each in a region of its own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Load")]
    pub trace: Vec<PathBuf>,
    /// A job: a fio job file; or inline, such as rw=randwrite,bs=4k,iodepth=32,size=1g; or fio's own command line in
    /// quotes, such as "fio --name=a --rw=read --size=1g"
    #[arg(
        long,
        value_name = "JOB",
        conflicts_with_all = OF_TRACES,
        value_hint = ValueHint::FilePath,
        help_heading = "Load"
    )]
    pub job: Option<String>,
}

/// Load of the drive.
#[derive(Clone, Debug, Args)]
pub struct Load {
    /// Trace or job.
    #[command(flatten)]
    pub origin: Origin,
    /// How to read the trace.
    #[command(flatten)]
    pub reading: Reading,
    /// Run the trace N times, one pass after the other, for example to wear the drive
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=PASSES_MAX), help_heading = "Load")]
    pub repeat: Option<u64>,
    /// Keep N requests outstanding, regardless of the trace's times or the job's iodepth
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65_535),
        conflicts_with = "speedup",
        help_heading = "Load"
    )]
    pub queue_depth: Option<u32>,
    /// Divide the times between requests by this: 2 replays twice as fast
    #[arg(long, value_name = "X", value_parser = factor, allow_negative_numbers = true, help_heading = "Load")]
    pub speedup: Option<f64>,
    /// Wrap addresses beyond the drive's end around instead of refusing them
    #[arg(long, help_heading = "Load")]
    pub wrap: bool,
    /// Cut the power at this time of the drive's clock, power the drive up, and report how long recovery took
    #[arg(long, value_name = "TIME", value_parser = values::time, help_heading = "Load")]
    pub power_cut: Option<Duration>,
    /// Requests served before measurement starts
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "Load")]
    pub warm_up: u64,
}

impl Load {
    /// The same in the words of studies.
    pub fn spec(&self) -> LoadSpec {
        LoadSpec {
            traces: self.origin.trace.clone(),
            job: self.origin.job.clone(),
            synth: None,
            reading: self.reading.spec(),
            repeat: self.repeat,
            queue_depth: self.queue_depth,
            speedup: self.speedup,
            wrap: self.wrap,
            power_cut: self.power_cut,
            warm_up: self.warm_up,
        }
    }
}

/// How to read a trace, and which part of it.
#[derive(Clone, Debug, Args)]
pub struct Reading {
    /// The format of the trace [default: detected from its content, if unambiguous]
    #[arg(long, value_name = "FORMAT", value_parser = formats(), ignore_case = true, help_heading = "Load")]
    pub format: Option<Format>,
    /// The columns of a text in no known format, from the left, as in time_us,op,offset,bytes,device: a time (time_s,
    /// time_ms, time_us, time_ns, time_100ns), op (words; its own ones as in op:get*=read/put=write) or op_1w or op_1r
    /// (digits: 1 writes, 1 reads), a place (offset in bytes, sector, lba, lba_4k), a size (bytes, sectors, blocks,
    /// blocks_4k, kib), device, and _ for one that is not read
    #[arg(long, value_name = "NAMES", conflicts_with = "format", help_heading = "Load")]
    pub columns: Option<Columns>,
    /// Only requests A up to but not including B, counted from 0: 100..200, 100.., ..200
    #[arg(long, value_name = "A..B", help_heading = "Load")]
    pub slice: Option<Range>,
    /// Count and skip malformed lines instead of stopping at the first; use the readable part of a truncated archive
    #[arg(long, help_heading = "Load")]
    pub skip_bad: bool,
    /// Only the requests of this device or volume of the trace
    #[arg(long, alias = "device", value_name = "NAME", help_heading = "Load")]
    pub volume: Option<String>,
    /// Leave out address ranges of 1 MiB that the trace never touches, so that sparse volumes fit on a small drive
    #[arg(long, help_heading = "Load")]
    pub compact: bool,
}

impl Reading {
    /// The same in the words of studies.
    pub fn spec(&self) -> tidewater_study::Reading {
        tidewater_study::Reading {
            format: self.format,
            columns: self.columns.clone(),
            slice: self.slice.clone(),
            skip_bad: self.skip_bad,
            device: self.volume.clone(),
            compact: self.compact,
        }
    }
}

/// The drive.
#[derive(Clone, Debug, Args)]
pub struct Drive {
    /// The drive: a name from `tidewater profile list`, or a TOML file
    #[arg(
        long,
        value_name = "PROFILE",
        default_value = "generic",
        value_hint = ValueHint::FilePath,
        help_heading = "Drive"
    )]
    pub profile: PathBuf,
    /// Change one setting of the profile, such as nand.channels=16; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other, help_heading = "Drive")]
    pub set: Vec<Setting>,
    /// Usable size, such as 64GiB; without it the drive follows the load [same as --set drive.capacity=SIZE]
    #[arg(long, value_name = "SIZE", help_heading = "Drive")]
    pub capacity: Option<String>,
    /// The state the drive starts in: fresh, filled (written once in order; filled:50% the first half of it), or steady
    /// (as after long random overwriting)
    #[arg(
        long,
        value_name = "STATE",
        default_value = "fresh",
        value_parser = values::PreconditionParser,
        hide_possible_values = true,
        help_heading = "Drive"
    )]
    pub precondition: Precondition,
    /// Seed of every random choice: the same seed and inputs give the same record
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Drive")]
    pub seed: u64,
}

impl Drive {
    /// The same in the words of studies.
    pub fn spec(&self) -> DriveSpec {
        DriveSpec {
            profile: self.profile.clone(),
            set: self.set.clone(),
            capacity: self.capacity.clone(),
            precondition: self.precondition,
            seed: self.seed,
        }
    }
}

/// The live page of what goes on.
#[derive(Debug, Args)]
pub struct Watch {
    /// Watch it in a browser while it goes on, at this loopback address [default: a free port, which is printed]
    #[arg(
        long,
        alias = "live",
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:0",
        help_heading = "Results"
    )]
    pub page: Option<SocketAddr>,
}
