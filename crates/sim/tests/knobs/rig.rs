//! A small drive, a load, and what a record says about them.

use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_sim::run::QueueOf;
use tidewater_sim::workload::JobSpec;
use tidewater_sim::{Outcome, Pacing, RunError, RunOptions, run};
use tidewater_testkit::profile::with;

/// Four dies with superblocks of 256 KiB, without anything that turns bad by chance: an entry of the table adds to it.
pub const SMALL: &[&str] = &[
    "drive.capacity=16MiB",
    "nand.channels=2",
    "nand.ways=2",
    "nand.planes=1",
    "nand.pages_per_block=16",
    "nand.factory_bad_rate=0",
    "nand.program_fail_rate=0",
    "nand.erase_fail_rate=0",
    "buffer.write_size=256KiB",
    "buffer.read_size=256KiB",
    "ftl.gc_start=3",
    "ftl.gc_reserve=1",
];

/// Load of the host on the drive.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    job: &'static str,
    past: Precondition,
    queue_of: QueueOf,
    open_loop: bool,
    stamps: bool,
}

/// A job on a drive that is full, in a closed loop at the job's depth.
pub const fn load(job: &'static str) -> Load {
    Load { job, past: Precondition::Filled(1.0), queue_of: QueueOf::RoundRobin, open_loop: false, stamps: false }
}

impl Load {
    /// On a drive that was never written.
    pub const fn fresh(self) -> Load {
        Load { past: Precondition::Fresh, ..self }
    }

    /// On a drive whose collection is in its steady state.
    pub const fn steady(self) -> Load {
        Load { past: Precondition::Steady, ..self }
    }

    /// Whether the drive begins in its steady state.
    pub fn is_steady(&self) -> bool {
        self.past == Precondition::Steady
    }

    /// Reads in queue 0, writes in queue 1.
    pub const fn queue_by_operation(self) -> Load {
        Load { queue_of: QueueOf::Operation, ..self }
    }

    /// Requests come at their rate, however many are outstanding.
    pub const fn open_loop(self) -> Load {
        Load { open_loop: true, ..self }
    }

    /// With the versions of all pages, so that the power can be cut.
    pub const fn with_stamps(self) -> Load {
        Load { stamps: true, ..self }
    }
}

/// The small drive with these settings, `KEY=VALUE`.
pub fn small(settings: &[&str]) -> Profile {
    with(with(Profile::generic(), SMALL), settings)
}

/// Runs a load to its end.
pub fn outcome(profile: &Profile, load: &Load) -> Result<Outcome, RunError> {
    let spec = JobSpec::from_inline(load.job).unwrap_or_else(|e| panic!("{}: {e}", load.job));
    let source = spec.source(None, 1).unwrap_or_else(|e| panic!("{}: {e}", load.job));
    let mut options = RunOptions {
        pacing: if load.open_loop { Pacing::Arrival } else { Pacing::Depth(source.iodepth()) },
        queue_of: load.queue_of,
        ..RunOptions::default()
    };
    options.device.precondition = load.past;
    options.device.stamps = load.stamps;
    run(profile, source, options)
}

/// Runs a load to its end, and checks the drive that it leaves behind.
pub fn try_serve(profile: &Profile, load: &Load) -> Result<Outcome, RunError> {
    let outcome = outcome(profile, load)?;
    assert_eq!(outcome.device.outstanding(), 0, "{}", outcome.device.describe_outstanding());
    outcome.device.ftl().assert_consistent();
    Ok(outcome)
}

/// As [`try_serve`], for a load that must come to its end.
pub fn serve(profile: &Profile, load: &Load) -> Outcome {
    try_serve(profile, load).unwrap_or_else(|e| panic!("{load:?}: {e}"))
}

/// The record without what names the run instead of telling its result: two runs of the same drive agree on it.
pub fn result(record: &Record) -> Record {
    let mut record = record.without_wall_time();
    record.profile = Default::default();
    record
}

/// A figure of a record, and how a message calls it.
pub type Metric = (&'static str, fn(&Record) -> f64);

macro_rules! metrics {
    ($($name:ident: $title:literal, $value:expr;)*) => {
        $(#[doc = $title] pub const $name: Metric = ($title, $value);)*
    };
}

fn latency(record: &Record, op: &str, at: fn(&tidewater_report::record::Latency) -> f64) -> f64 {
    at(record.latency(op).unwrap_or_else(|| panic!("there was no {op}")))
}

/// The mean over all dies.
fn dies(record: &Record, share: fn(&tidewater_report::record::DieUse) -> f64) -> f64 {
    record.utilization.dies.iter().map(share).sum::<f64>() / record.utilization.dies.len() as f64
}

metrics! {
    CAPACITY: "capacity", |r| r.capacity_bytes as f64;
    COMMANDS: "NVMe commands", |r| r.commands as f64;
    COMMANDS_FAILED: "failed commands", |r| r.commands_failed as f64;
    IOPS: "requests per second", |r| r.iops;
    WRITE_BANDWIDTH: "write bandwidth", |r| r.bandwidth_mib_s.write;
    WRITE_AMPLIFICATION: "write amplification", |r| r.write_amplification;
    COLLECTIONS: "collections", |r| r.collections as f64;
    ERASES: "erases", |r| r.erases as f64;
    READ_MEAN: "mean read latency", |r| latency(r, "read", |l| l.mean);
    READ_MAX: "longest read", |r| latency(r, "read", |l| l.max);
    WRITE_MEAN: "mean write latency", |r| latency(r, "write", |l| l.mean);
    WRITE_P999: "p99.9 write latency", |r| latency(r, "write", |l| l.p999);
    FLUSH_MEAN: "mean flush latency", |r| latency(r, "flush", |l| l.mean);
    WRITE_HITS: "hit ratio of the write buffer", |r| r.write_buffer.hit_ratio;
    READ_HITS: "hit ratio of the read cache", |r| r.read_cache.hit_ratio;
    HOST_MEMORY_READS: "units read from host memory", |r| r.host_memory.map_or(0.0, |memory| memory.reads as f64);
    DESTAGE_LENGTH: "mean destage length", |r| r.destage_length_pages.mean;
    PAGES_MERGED: "pages merged on flush", |r| r.write_buffer.pages_merged as f64;
    PADDING_READS: "padding reads", |r| r.write_buffer.padding_reads as f64;
    FLASH_READS: "flash reads for the host", |r| r.flash.reads_host as f64;
    MAP_UNITS: "units of the map programmed", |r| r.flash.units_meta as f64;
    MAP_LOOKUPS: "look-ups in the mapping cache", |r| r.map_cache.as_ref().map_or(0.0, |m| m.lookups as f64);
    MAP_HITS: "hit ratio of the mapping cache", |r| r.map_cache.as_ref().map_or(0.0, |m| m.hit_ratio);
    MAP_LOADS: "mapping pages read", |r| r.map_cache.as_ref().map_or(0.0, |m| m.loads as f64);
    GROWN_BAD: "grown bad blocks", |r| r.flash.grown_bad_blocks as f64;
    WEAR_MOVES: "erases by wear levelling", |r| r.flash.erases_wear_levelling as f64;
    WEAR_SPREAD: "standard deviation of wear", |r| r.wear.stddev;
    MERGES: "merges", |r| r.flash.merges_total() as f64;
    UNITS_ISOLATED: "units that went to the isolation area", |r| r.flash.units_isolated as f64;
    SLC_WRITTEN: "units written to the SLC cache", |r| r.slc.map_or(0.0, |slc| slc.units_written as f64);
    SLC_FOLDED: "units folded", |r| r.slc.map_or(0.0, |slc| slc.units_folded as f64);
    SUSPENSIONS: "suspensions", |r| r.suspends as f64;
    RETRIES: "read retries", |r| r.read_retries as f64;
    UNCORRECTABLE: "uncorrectable pages", |r| r.uncorrectable as f64;
    READ_SHARE: "time of dies in reads", |r| dies(r, |d| d.read_share);
    ERASE_SHARE: "time of dies in erases", |r| dies(r, |d| d.erase_share);
}
