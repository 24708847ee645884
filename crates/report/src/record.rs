//! The run record: every figure of one run, and all that reproduces it.
//!
//! `docs/reference/record.schema.json`, `docs/reference/record.md` and Python's classes are made of its rows. Every
//! number has its unit in its name. Figures of something that did not happen (the latency of reads in a run without
//! reads) are zero with a count of zero, or absent from a map; a number is never NaN or infinite.

mod json;

pub use json::RecordError;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidewater_base::numbers;
use tidewater_base::numbers::{Shape, Shaped};
pub use tidewater_base::statistics::{Cache, Flash, HostMemory, MapCache, Slc};

/// The version of the record's schema that this build writes. It rises when a field changes its meaning or goes away,
/// not when one is added.
pub const SCHEMA: u32 = 1;

/// `part / whole`, and 0 when there is no whole: the ratio of things that did not happen.
pub fn ratio(part: f64, whole: f64) -> f64 {
    let ratio = part / whole;
    if ratio.is_finite() { ratio } else { 0.0 }
}

numbers! {
    /// Every figure of one run, and all that reproduces it.
    Record {
        /// Version of this schema. It rises when a field changes its meaning or goes away, not when one is added.
        schema: u32 = SCHEMA,
        /// Version of the program that made the run.
        tool_version: String = env!("CARGO_PKG_VERSION").to_owned(),
        /// The run was stopped before its end: every figure covers only what had been done by then.
        partial: bool,
        /// Why it was stopped (`interrupted by Ctrl-C`); only when `partial`.
        #[serde(skip_serializing_if = "Option::is_none")]
        partial_reason: Option<String>,
        /// The command line that made the record, when there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        command_line: Option<String>,
        /// The drive.
        profile: Profile,
        /// Usable bytes of the drive, after it was sized to its workload.
        capacity_bytes: u64,
        /// The drive's workload.
        workload: Workload,
        /// Seed of every random choice.
        seed: u64,
        /// Requests of the workload that were completed.
        requests: u64,
        /// The same by operation: `read`, `write`, `flush`, `write_zeroes`, `compare`, `deallocate`, `verify`.
        requests_by_operation: BTreeMap<String, u64>,
        /// NVMe commands completed: more than the requests when large requests were split at the drive's transfer
        /// limit.
        commands: u64,
        /// Commands that ended with another status than success.
        commands_failed: u64,
        /// Bytes of the reads that succeeded: of a request of which any command failed, none.
        bytes_read: u64,
        /// Bytes of the writes that succeeded, in the same way.
        bytes_written: u64,
        /// Virtual time from the first submission to the last completion, warm-up and preconditioning not included.
        simulated_seconds: f64,
        /// Real time of the run. Not the same on two runs.
        wall_seconds: f64,
        /// Processor time of the run in user mode. Not the same on two runs.
        user_cpu_seconds: f64,
        /// Requests per simulated second, those that failed too.
        iops: f64,
        /// Bytes moved per simulated second.
        bandwidth_mib_s: Bandwidth,
        /// Units programmed, whatever their reason, per unit of the host's that left the write buffer for flash
        /// (`flash.units_host`); 0 if none did. What the buffer absorbs is on neither side.
        write_amplification: f64,
        /// Bytes programmed into flash, whatever their reason, per byte that write commands of the host brought
        /// (`bytes_written`): below 1 where the write buffer absorbs more than the drive adds. Write zeroes and
        /// deallocations bring no bytes; what they make the drive program counts. Absent if the host wrote nothing, and
        /// in records of older builds.
        #[serde(skip_serializing_if = "Option::is_none")]
        flash_written_per_host_byte: Option<f64>,
        /// Operations of the flash.
        flash: Flash,
        /// Blocks erased: the same as `flash.erases_total`.
        erases: u64,
        /// Superblocks collected; random log blocks reclaimed, where the mapping is hybrid.
        collections: u64,
        /// Latency by operation as in `requests_by_operation`, and `all`. Operations that did not happen are absent.
        latency_us: BTreeMap<String, Latency>,
        /// The run over virtual time.
        time_series: TimeSeries,
        /// The write buffer.
        write_buffer: Cache,
        /// The read cache.
        read_cache: Cache,
        /// The mapping cache, where not the whole map is at hand.
        #[serde(skip_serializing_if = "Option::is_none")]
        map_cache: Option<MapCache>,
        /// Memory that the host lends, where something is placed on it.
        #[serde(skip_serializing_if = "Option::is_none")]
        host_memory: Option<HostMemory>,
        /// Pages that were chosen to leave the write buffer for flash together, those that only complete a block
        /// included: of these, some may not have to be written.
        destage_length_pages: Distribution,
        /// Erase counts of all good blocks at the end.
        wear: Wear,
        /// How busy channels and dies were.
        utilization: Utilization,
        /// The SLC cache, when the drive has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        slc: Option<Slc>,
        /// Programs and erases suspended for a read.
        suspends: u64,
        /// Reads repeated because the error correction failed.
        read_retries: u64,
        /// Pages that stayed unreadable after all retries.
        uncorrectable: u64,
        /// Recovery after a power cut, when the run had one.
        #[serde(skip_serializing_if = "Option::is_none")]
        recovery: Option<Recovery>,
        /// Placement of data in the memories.
        memory: Vec<Placement>,
        /// Warnings about the figures' validity.
        warnings: Vec<String>,
        /// Events of the virtual clock.
        timing_events: u64,
        /// `timing_events / requests`.
        events_per_request: f64,
        /// Bytes of the simulator's memory per 4 KiB page that the run touched, when measured. Not the same on two
        /// runs.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes_per_touched_page: Option<f64>,
    }

    /// The drive of a run.
    Profile {
        /// Its name.
        name: String,
        /// One line on what it models.
        description: String,
        /// Every setting with its value, spelled as `--set KEY=VALUE` takes them.
        settings: BTreeMap<String, String>,
        /// The settings that were changed from the named profile, in the order they were given, as `KEY=VALUE`.
        changed: Vec<String>,
    }

    /// The drive's workload.
    Workload {
        /// Where the requests came from: a recorded trace, a fio-like job, or a trace generated from statistics.
        kind: WorkloadKind,
        /// The trace's file name, or the job as it was given.
        source: String,
        /// One line on it: format, number of requests, footprint.
        description: String,
        /// Options of the replay, named as on the command line without the dashes (`queue-depth`, `speedup`); an option
        /// without a value is `true`.
        options: BTreeMap<String, String>,
    }

    /// Bytes moved per simulated second, in MiB/s (2^20 bytes).
    #[derive(Copy)]
    Bandwidth {
        /// By reads, MiB/s.
        read: f64,
        /// By writes, MiB/s.
        write: f64,
    }

    /// The latency of one operation in microseconds, from submission to completion at the host. Count, mean, shortest
    /// and longest are exact. Percentiles and the points of `cdf` are within 0.1 %: latencies are counted in buckets of
    /// at most 1/512 of their value, and the middle of a bucket stands for all in it.
    Latency {
        /// Requests measured.
        count: u64,
        /// Mean, µs.
        mean: f64,
        /// Shortest, µs.
        min: f64,
        /// Half of the requests took no longer, µs.
        p50: f64,
        /// 90 % took no longer, µs.
        p90: f64,
        /// 99 % took no longer, µs.
        p99: f64,
        /// 99.9 % took no longer, µs.
        p999: f64,
        /// 99.99 % took no longer, µs.
        p9999: f64,
        /// Longest, µs.
        max: f64,
        /// `[µs, share]`: the share of requests, 0 to 1, that took no longer. Both rise; a few hundred points.
        cdf: Vec<(f64, f64)>,
    }

    /// The run over virtual time, in intervals of one length; the run may end within the last, whose rates are then of
    /// what there is of it: from its start to `simulated_seconds`.
    TimeSeries {
        /// Length of an interval.
        interval_seconds: f64,
        /// The intervals, in order. One in which nothing happened may be left out.
        points: Vec<TimePoint>,
    }

    /// One interval. Completions count.
    #[derive(Copy)]
    TimePoint {
        /// Its start.
        t_seconds: f64,
        /// Reads per second.
        read_iops: f64,
        /// Writes per second.
        write_iops: f64,
        /// MiB/s read.
        read_mib_s: f64,
        /// MiB/s written.
        write_mib_s: f64,
        /// Mean latency of all requests that ended in it, whatever their operation; 0 if none did.
        mean_latency_us: f64,
        /// Mean latency of the reads among them; absent if there were none.
        #[serde(skip_serializing_if = "Option::is_none")]
        read_latency_us: Option<f64>,
        /// Mean latency of the writes among them; absent if there were none.
        #[serde(skip_serializing_if = "Option::is_none")]
        write_latency_us: Option<f64>,
        /// Their 99th percentile, when known.
        #[serde(skip_serializing_if = "Option::is_none")]
        p99_latency_us: Option<f64>,
        /// Blocks erased.
        erases: u64,
    }

    /// A distribution of lengths.
    Distribution {
        /// Samples.
        count: u64,
        /// Mean.
        mean: f64,
        /// Longest.
        max: f64,
        /// `[length, share]`: the share of samples, 0 to 1, that were no longer.
        cdf: Vec<(f64, f64)>,
    }

    /// Erase counts of all good blocks at the end of a run.
    Wear {
        /// Erases of the least worn block.
        min: u64,
        /// Erases of the most worn block.
        max: u64,
        /// Mean of erases.
        mean: f64,
        /// Standard deviation of erases.
        stddev: f64,
        /// Erases that a block is specified for; 0 if not stated.
        endurance: u64,
        /// `[erases, blocks]`, in order of erases. Counts may be grouped: the first number is the group's least.
        histogram: Vec<(u64, u64)>,
    }

    /// How busy the flash was, as shares (0 to 1) of the simulated time.
    Utilization {
        /// By channel number.
        channels: Vec<ChannelUse>,
        /// Every die, by channel, then by its number on the channel.
        dies: Vec<DieUse>,
    }

    /// One channel.
    #[derive(Copy)]
    ChannelUse {
        /// Share of time in which commands or data were on its bus.
        busy_share: f64,
    }

    /// One die. The shares add up to 1.
    #[derive(Copy)]
    DieUse {
        /// Its channel.
        channel: u32,
        /// Its number on the channel.
        die: u32,
        /// Share of time in which it sensed pages.
        read_share: f64,
        /// Share of time in which it programmed.
        program_share: f64,
        /// Share of time in which it erased.
        erase_share: f64,
        /// The rest.
        idle_share: f64,
    }

    /// How a drive came back after its power was cut.
    #[derive(Copy)]
    Recovery {
        /// Virtual time until it served again.
        seconds: f64,
        /// Flash pages read for it, out-of-band scan included.
        pages_read: u64,
        /// Pages (as large as a unit) that write commands had stored and completed, and that are lost: no flush had
        /// covered them, and the write buffer did not survive. Pages of writes that were under way do not count; pages
        /// that flash has and that `bplru` or `cbm` writes again to complete a block do, while they are on their way.
        /// Absent when not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pages_lost: Option<u64>,
    }

    /// One use of one memory.
    Placement {
        /// The memory's name.
        memory: String,
        /// Its use: `write buffer`, `read cache`, `map`.
        r#use: String,
        /// Bytes used.
        size_bytes: u64,
        /// The effect of this placement, downgraded promises included.
        note: String,
    }
}

impl Record {
    /// The record less what differs between two runs of the same inputs: real time, processor time and memory.
    pub fn without_wall_time(&self) -> Record {
        Record { wall_seconds: 0.0, user_cpu_seconds: 0.0, bytes_per_touched_page: None, ..self.clone() }
    }

    /// [`Record::flash_written_per_host_byte`], also of a record from before there was that field.
    pub fn written_per_host_byte(&self) -> Option<f64> {
        let programmed = self.flash.units_total() as f64 * self.flash.unit_bytes as f64;
        let whole = (self.bytes_written > 0).then(|| ratio(programmed, self.bytes_written as f64));
        self.flash_written_per_host_byte.or(whole)
    }

    /// The latency of `operation`, if it happened.
    pub fn latency(&self, operation: &str) -> Option<&Latency> {
        self.latency_us.get(operation).filter(|latency| latency.count > 0)
    }
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// A recorded trace.
    #[default]
    Trace,
    /// A fio-like job.
    Job,
    /// A trace generated from statistics.
    Synth,
}

impl Shaped for WorkloadKind {
    const SHAPE: Shape = Shape::Word(&["trace", "job", "synth"]);
}

impl DieUse {
    /// Share of time in which the die did anything, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        ratio(self.read_share + self.program_share + self.erase_share, 1.0).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_nothing_are_zero() {
        assert_eq!(ratio(1.0, 2.0), 0.5);
        assert_eq!(ratio(0.0, 0.0), 0.0);
        assert_eq!(ratio(5.0, 0.0), 0.0);
    }

    #[test]
    fn a_record_without_wall_time_is_the_same_for_two_runs() {
        let a = Record { wall_seconds: 1.0, user_cpu_seconds: 0.9, requests: 5, ..Record::default() };
        let b = Record { wall_seconds: 2.0, user_cpu_seconds: 1.9, bytes_per_touched_page: Some(8.5), ..a.clone() };
        assert_ne!(a, b);
        assert_eq!(a.without_wall_time(), b.without_wall_time());
    }
}
