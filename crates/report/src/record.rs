//! The run record: every figure of one run, and all that reproduces it.
//!
//! Its JSON form is described by `docs/reference/record.schema.json` and `docs/reference/record.md`; a test keeps the
//! three together. Every number has its unit in its name. Figures of something that did not happen (the latency of
//! reads in a run without reads) are zero with a count of zero, or absent from a map; a number is never NaN or
//! infinite.

mod json;

pub use json::RecordError;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the record's schema that this build writes. It rises when a field changes its meaning or goes away,
/// not when one is added.
pub const SCHEMA: u32 = 1;

/// `part / whole`, and 0 when there is no whole: the ratio of things that did not happen.
pub fn ratio(part: f64, whole: f64) -> f64 {
    let ratio = part / whole;
    if ratio.is_finite() { ratio } else { 0.0 }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Version of this schema: [`SCHEMA`].
    pub schema: u32,
    /// Version of the program that made the run.
    pub tool_version: String,
    /// The run was stopped before its end: every figure covers only what had been done by then.
    pub partial: bool,
    /// Why it was stopped (`interrupted by Ctrl-C`); only when `partial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_reason: Option<String>,
    /// The command line that made the record, when there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// The drive.
    pub profile: ProfileUsed,
    /// Usable bytes of the drive, after it was sized to its workload.
    pub capacity_bytes: u64,
    /// The drive's workload.
    pub workload: Workload,
    /// Seed of every random choice.
    pub seed: u64,

    /// Requests of the workload that were completed.
    pub requests: u64,
    /// The same by operation: `read`, `write`, `flush`, `write_zeroes`, `compare`, `deallocate`, `verify`.
    pub requests_by_operation: BTreeMap<String, u64>,
    /// NVMe commands completed: more than the requests when large requests were split at the drive's transfer limit.
    pub commands: u64,
    /// Commands that ended with another status than success.
    pub commands_failed: u64,
    /// Bytes of the reads that succeeded: of a request of which any command failed, none.
    pub bytes_read: u64,
    /// Bytes of the writes that succeeded, in the same way.
    pub bytes_written: u64,
    /// Virtual time from the first submission to the last completion, warm-up and preconditioning not included.
    pub simulated_seconds: f64,
    /// Real time of the run. Not the same on two runs.
    pub wall_seconds: f64,
    /// Processor time of the run in user mode. Not the same on two runs.
    pub user_cpu_seconds: f64,
    /// Requests per simulated second, those that failed too.
    pub iops: f64,
    /// Bytes moved per simulated second.
    pub bandwidth_mib_s: Bandwidth,
    /// Units programmed, whatever their reason, per unit of the host's that left the write buffer for flash
    /// (`flash.units_host`); 0 if none did. What the buffer absorbs is on neither side.
    pub write_amplification: f64,
    /// Bytes programmed into flash, whatever their reason, per byte that writes of the host brought
    /// (`bytes_written`): below 1 where the write buffer absorbs more than the drive adds. Write zeroes and
    /// deallocations bring no bytes; what they make the drive program counts. Absent if the host wrote nothing, and in
    /// records of older builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_written_per_host_byte: Option<f64>,
    /// Operations of the flash.
    pub flash: Flash,
    /// Blocks erased: the same as `flash.erases_total`.
    pub erases: u64,
    /// Superblocks collected; random log blocks reclaimed, where the mapping is hybrid.
    pub collections: u64,
    /// Latency by operation as in `requests_by_operation`, and `all`. Operations that did not happen are absent.
    pub latency_us: BTreeMap<String, Latency>,
    /// The run over virtual time.
    pub time_series: TimeSeries,
    /// The write buffer.
    pub write_buffer: Cache,
    /// The read cache.
    pub read_cache: Cache,
    /// The mapping cache, where not the whole map is at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_cache: Option<MapCache>,
    /// Memory that the host lends, where something is placed on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<HostMemory>,
    /// Pages that were chosen to leave the write buffer for flash together, those that only complete a block included:
    /// of these, some may not have to be written.
    pub destage_length_pages: Distribution,
    /// Erase counts of all blocks at the end.
    pub wear: Wear,
    /// How busy channels and dies were.
    pub utilization: Utilization,
    /// The SLC cache, when the drive has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slc: Option<Slc>,
    /// Programs and erases suspended for a read.
    pub suspends: u64,
    /// Reads repeated because the error correction failed.
    pub read_retries: u64,
    /// Pages that stayed unreadable after all retries.
    pub uncorrectable: u64,
    /// Recovery after a power cut, when the run had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Placement of data in the memories.
    pub memory: Vec<Placement>,
    /// Warnings about the figures' validity.
    pub warnings: Vec<String>,
    /// Events of the virtual clock.
    pub timing_events: u64,
    /// `timing_events / requests`.
    pub events_per_request: f64,
    /// Bytes of the simulator's memory per 4 KiB page that the run touched, when measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_touched_page: Option<f64>,
}

impl Default for Record {
    /// An empty run.
    fn default() -> Record {
        Record {
            schema: SCHEMA,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            partial: false,
            partial_reason: None,
            command_line: None,
            profile: ProfileUsed::default(),
            capacity_bytes: 0,
            workload: Workload::default(),
            seed: 0,
            requests: 0,
            requests_by_operation: BTreeMap::new(),
            commands: 0,
            commands_failed: 0,
            bytes_read: 0,
            bytes_written: 0,
            simulated_seconds: 0.0,
            wall_seconds: 0.0,
            user_cpu_seconds: 0.0,
            iops: 0.0,
            bandwidth_mib_s: Bandwidth::default(),
            write_amplification: 0.0,
            flash_written_per_host_byte: None,
            flash: Flash::default(),
            erases: 0,
            collections: 0,
            latency_us: BTreeMap::new(),
            time_series: TimeSeries::default(),
            write_buffer: Cache::default(),
            read_cache: Cache::default(),
            map_cache: None,
            host_memory: None,
            destage_length_pages: Distribution::default(),
            wear: Wear::default(),
            utilization: Utilization::default(),
            slc: None,
            suspends: 0,
            read_retries: 0,
            uncorrectable: 0,
            recovery: None,
            memory: Vec::new(),
            warnings: Vec::new(),
            timing_events: 0,
            events_per_request: 0.0,
            bytes_per_touched_page: None,
        }
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

/// The drive of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileUsed {
    /// Its name.
    pub name: String,
    /// One line on what it models.
    pub description: String,
    /// Every setting with its value, spelled as `--set KEY=VALUE` takes them.
    pub settings: BTreeMap<String, String>,
    /// The settings that were changed from the named profile, in the order they were given, as `KEY=VALUE`.
    pub changed: Vec<String>,
}

/// The drive's workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Workload {
    /// Where the requests came from.
    pub kind: WorkloadKind,
    /// The trace's file name, or the job as it was given.
    pub source: String,
    /// One line on it: format, number of requests, footprint.
    pub description: String,
    /// Options of the replay: speed-up, queue depth, slice, preconditioning.
    pub options: BTreeMap<String, String>,
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

/// Bytes moved per simulated second, in MiB/s (2^20 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// By reads.
    pub read: f64,
    /// By writes.
    pub write: f64,
}

/// Operations of the flash. A unit is the data that one map entry covers (`unit_bytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flash {
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Units programmed with data of the host.
    pub units_host: u64,
    /// Units programmed with data that collection, merges, folding of an SLC cache or wear levelling moved.
    pub units_collected: u64,
    /// Units programmed with the map and its checkpoints.
    pub units_meta: u64,
    /// Units programmed with nothing, because a page or row could not wait to fill.
    pub units_padding: u64,
    /// Units programmed with what flash or the read cache had, beside pages of the write buffer that share their block.
    pub units_rewritten: u64,
    /// Program operations; one may program several planes.
    pub programs: u64,
    /// Merges of a hybrid mapping in which a full sequential log block became the data block as it was.
    pub merges_switch: u64,
    /// Merges in which the rest of the logical block was copied behind a sequential log block.
    pub merges_partial: u64,
    /// Merges in which a logical block was gathered in a free superblock. What merges copied is in `units_collected`.
    pub merges_full: u64,
    /// Units of random log blocks that got a second chance (FASTer): part of `units_collected`.
    pub second_chances: u64,
    /// Units of random log blocks that were cold and went to the isolation area (FASTer): part of `units_collected`.
    pub units_isolated: u64,
    /// Full merges that made room in the isolation area (FASTer): part of `merges_full`.
    pub merges_isolation: u64,
    /// Pages read for reads of the host, and for padding of the write buffer (`write_buffer.padding_reads` counts units
    /// of the latter).
    pub reads_host: u64,
    /// Pages read by collection, merges, folding of an SLC cache and wear levelling.
    pub reads_collected: u64,
    /// Pages of the map read.
    pub reads_meta: u64,
    /// Blocks erased.
    pub erases_total: u64,
    /// Blocks erased by static wear levelling: part of `erases_total`.
    pub erases_wear_levelling: u64,
    /// Blocks that went bad during the run.
    pub grown_bad_blocks: u64,
    /// Bytes of all blocks, spares and reserve included.
    pub raw_bytes: u64,
    /// Flash beyond the capacity that may hold data, as a share of the capacity: what `ftl.over_provisioning` came to.
    pub over_provisioning: f64,
}

impl Flash {
    /// Merges of log blocks with data blocks; 0 where every page is mapped by itself.
    pub fn merges_total(&self) -> u64 {
        [self.merges_partial, self.merges_full].into_iter().fold(self.merges_switch, u64::saturating_add)
    }

    /// Units programmed, whatever their reason.
    pub fn units_total(&self) -> u64 {
        [self.units_collected, self.units_meta, self.units_padding, self.units_rewritten]
            .into_iter()
            .fold(self.units_host, u64::saturating_add)
    }
}

/// The SLC cache: blocks that store one bit in a cell, where host writes go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slc {
    /// Units of the host that went there: part of `flash.units_host` and `flash.units_rewritten`. The others went past
    /// it.
    pub units_written: u64,
    /// Units that were moved from there to blocks in their own mode: part of `flash.units_collected`.
    pub units_folded: u64,
    /// Superblocks of it that were folded; not in `collections`.
    pub superblocks_folded: u64,
    /// Pages read for the host from there: part of `flash.reads_host`.
    pub reads_host: u64,
    /// Superblocks that are in single-level mode at the end.
    pub superblocks: u64,
    /// Superblocks that it could have at the end, those included: the dynamic part shrinks as the drive fills.
    pub superblocks_max: u64,
    /// Valid units in it at the end.
    pub units: u64,
    /// Bytes of valid data in it at the end, as a share of what it could hold then.
    pub fill: f64,
}

/// The latency of one operation, from submission to completion at the host. Count, mean, shortest and longest are
/// exact. Percentiles and the points of `cdf` are within 0.1 %: latencies are counted in buckets of at most 1/512 of
/// their value, and the middle of a bucket stands for all in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Requests measured.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Shortest.
    pub min: f64,
    /// Half of the requests took no longer.
    pub p50: f64,
    /// 90 % took no longer.
    pub p90: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// 99.9 % took no longer.
    pub p999: f64,
    /// 99.99 % took no longer.
    pub p9999: f64,
    /// Longest.
    pub max: f64,
    /// `[microseconds, share]`: the share of requests, 0 to 1, that took no longer. Both rise; a few hundred points.
    pub cdf: Vec<(f64, f64)>,
}

/// The run over virtual time, in intervals of one length; the run may end within the last, whose rates are then of what
/// there is of it: from its start to `simulated_seconds`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeSeries {
    /// Length of an interval.
    pub interval_seconds: f64,
    /// The intervals, in order. One in which nothing happened may be left out.
    pub points: Vec<TimePoint>,
}

/// One interval. Completions count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimePoint {
    /// Its start.
    pub t_seconds: f64,
    /// Reads per second.
    pub read_iops: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// MiB/s read.
    pub read_mib_s: f64,
    /// MiB/s written.
    pub write_mib_s: f64,
    /// Mean latency of all requests that ended in it, whatever their operation; 0 if none did.
    pub mean_latency_us: f64,
    /// Mean latency of the reads among them; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_latency_us: Option<f64>,
    /// Mean latency of the writes among them; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_latency_us: Option<f64>,
    /// Their 99th percentile, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_latency_us: Option<f64>,
    /// Blocks erased.
    pub erases: u64,
}

/// A write buffer or read cache. Hits and misses count pages of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// The replacement policy; `none` when there is no such cache. One from outside of the firmware has its origin
    /// before its name, as in `python:Lru`.
    pub policy: String,
    /// The memory it lives in.
    pub memory: String,
    /// Its size.
    pub size_bytes: u64,
    /// Pages found.
    pub hits: u64,
    /// Pages not found.
    pub misses: u64,
    /// `hits / (hits + misses)`, 0 to 1; 0 if it was never asked.
    pub hit_ratio: f64,
    /// Pages put in.
    pub insertions: u64,
    /// Pages that left to make room, or were destaged.
    pub evictions: u64,
    /// Pages of reads that a write buffer had; `hits` are of writes.
    pub read_hits: u64,
    /// Pages of the read cache that were written beside dirty ones of their block (merge-on-flush).
    pub pages_merged: u64,
    /// Pages asked of flash to be written beside dirty ones of their block (page padding). Those that the host
    /// overwrites or deallocates meanwhile, or that were never written, are not programmed: `flash.units_rewritten`
    /// counts what was.
    pub padding_reads: u64,
    /// The most pages it held at once.
    pub pages_max: u64,
    /// Time that commands waited for room in it, added up.
    pub wait_seconds: f64,
}

impl Cache {
    /// Whether there is such a cache.
    pub fn is_present(&self) -> bool {
        !self.policy.is_empty() && self.policy != "none"
    }

    /// Whether it was ever asked for a page.
    pub fn was_asked(&self) -> bool {
        self.hits > 0 || self.misses > 0
    }
}

/// Traffic on the link to memory that the host lends (host memory buffer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemory {
    /// Bytes that were lent at the end.
    pub lent_bytes: u64,
    /// Units read.
    pub reads: u64,
    /// Units written.
    pub writes: u64,
    /// Bytes read, with the units' headers.
    pub bytes_read: u64,
    /// Bytes written, with the units' headers.
    pub bytes_written: u64,
    /// Units that were read and were not what they should be.
    pub failed_checks: u64,
    /// Accesses that found no memory.
    pub gone: u64,
    /// Units that were fetched from flash because their copy was not good or gone.
    pub refetches: u64,
    /// The most accesses under way at once.
    pub in_flight_max: u64,
    /// Accesses that waited for others to end.
    pub waited: u64,
}

/// A distribution of lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Longest.
    pub max: f64,
    /// `[length, share]`: the share of samples, 0 to 1, that were no longer.
    pub cdf: Vec<(f64, f64)>,
}

/// Erase counts of all good blocks at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wear {
    /// Erases of the least worn block.
    pub min: u64,
    /// Erases of the most worn block.
    pub max: u64,
    /// Mean of erases.
    pub mean: f64,
    /// Standard deviation of erases.
    pub stddev: f64,
    /// Erases that a block is specified for; 0 if not stated.
    pub endurance: u64,
    /// `[erases, blocks]`, in order of erases. Counts may be grouped: the first number is the group's least.
    pub histogram: Vec<(u64, u64)>,
}

/// How busy the flash was, as shares (0 to 1) of the simulated time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Utilization {
    /// By channel number.
    pub channels: Vec<ChannelUse>,
    /// Every die, by channel, then by its number on the channel.
    pub dies: Vec<DieUse>,
}

/// One channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelUse {
    /// Share of time in which commands or data were on its bus.
    pub busy_share: f64,
}

/// One die. The shares add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DieUse {
    /// Its channel.
    pub channel: u32,
    /// Its number on the channel.
    pub die: u32,
    /// Share of time in which it sensed pages.
    pub read_share: f64,
    /// Share of time in which it programmed.
    pub program_share: f64,
    /// Share of time in which it erased.
    pub erase_share: f64,
    /// The rest.
    pub idle_share: f64,
}

impl DieUse {
    /// Share of time in which the die did anything, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        ratio(self.read_share + self.program_share + self.erase_share, 1.0).clamp(0.0, 1.0)
    }
}

/// The cache of the map, of which most lies on flash, and the flash work that it added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapCache {
    /// The memory that it is placed on.
    pub memory: String,
    /// Bytes of map that are read and programmed at once.
    pub page_bytes: u64,
    /// Mapping pages of the whole map.
    pub pages: u64,
    /// Mapping pages that the cache holds at most.
    pub pages_held: u64,
    /// Look-ups by commands: one for each mapping page that a command needs.
    pub lookups: u64,
    /// Of these, found in the cache.
    pub hits: u64,
    /// `hits / lookups`.
    pub hit_ratio: f64,
    /// Changes of mapping pages: one for each page and row of data that was programmed.
    pub updates: u64,
    /// Of these, made in the cache at once; the others waited for their page.
    pub update_hits: u64,
    /// Mapping pages read from flash into the cache.
    pub loads: u64,
    /// Of these, ahead of need.
    pub prefetches: u64,
    /// Mapping pages that left the cache.
    pub evictions: u64,
    /// Mapping pages programmed because they had changed.
    pub written: u64,
    /// Mapping pages read and programmed elsewhere to give their superblock back.
    pub moved: u64,
    /// Superblocks of mapping pages that were collected.
    pub collections: u64,
    /// Flash reads added for each read of the host's: `loads / flash.reads_host`.
    pub added_reads_ratio: f64,
    /// Units programmed for mapping pages for each unit of the host's: `(written + moved) / flash.units_host`.
    pub added_writes_ratio: f64,
}

/// How a drive came back after its power was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovery {
    /// Virtual time until it served again.
    pub seconds: f64,
    /// Flash pages read for it, out-of-band scan included.
    pub pages_read: u64,
    /// Pages (as large as a unit) that write commands had stored and completed, and that are lost: no flush had covered
    /// them, and the write buffer did not survive. Pages of writes that were under way do not count; pages that flash
    /// has and that `bplru` or `cbm` writes again to complete a block do, while they are on their way. Absent when not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_lost: Option<u64>,
}

/// One use of one memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// The memory's name.
    pub memory: String,
    /// Its use: `write buffer`, `read cache`, `map`.
    #[serde(rename = "use")]
    pub usage: String,
    /// Bytes used.
    pub size_bytes: u64,
    /// The effect of this placement, downgraded promises included.
    pub note: String,
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
