//! From a drive and its host to the record of the run.

use std::collections::BTreeMap;

use tidewater_base::{Duration, Instant};
use tidewater_core::Device;
use tidewater_core::buffer::Buffer;
use tidewater_core::device::write_policy;
use tidewater_core::flash::Source as FlashSource;
use tidewater_core::memory::{Placement as Placements, Use, place};
use tidewater_report::Record;
use tidewater_report::record::{
    Bandwidth, Cache, ChannelUse, DieUse, Distribution, Flash, HostMemory, Latency, MapCache, Placement, Profile,
    Recovery, Slc, TimePoint, TimeSeries, Utilization, Wear, ratio,
};

use super::warnings::warnings;
use super::world::Host;
use super::{Pacing, QueueOf, RunOptions, precondition_text};
use crate::metrics::{Histogram, Metrics};
use crate::request::{Op, Source};

const MIB: f64 = (1u64 << 20) as f64;
/// Points of a latency distribution.
const CDF_POINTS: u32 = 200;
/// Groups of a wear histogram.
const WEAR_GROUPS: u64 = 128;

/// Everything but what is measured in real time.
pub(super) fn record<S: Source>(device: &Device, host: &Host<S>, end: Instant) -> Record {
    let metrics = &host.metrics;
    let seconds = secs(end.since(host.began));
    let flash = flash(device);
    let placements = place(device.profile()).expect("the device was made with it");
    let map_cache = map_cache(device, &placements, &flash);
    let profile = profile_used(device, &host.options);
    let mut record = Record {
        profile,
        capacity_bytes: device.capacity(),
        workload: host.options.workload.clone(),
        seed: host.options.device.seed,
        requests: metrics.requests(),
        commands: host.commands_done,
        commands_failed: host.failures.values().sum(),
        bytes_read: metrics.bytes(Op::Read),
        bytes_written: metrics.bytes(Op::Write),
        simulated_seconds: seconds,
        iops: ratio(metrics.requests() as f64, seconds),
        bandwidth_mib_s: Bandwidth {
            read: ratio(metrics.bytes(Op::Read) as f64 / MIB, seconds),
            write: ratio(metrics.bytes(Op::Write) as f64 / MIB, seconds),
        },
        write_amplification: ratio(flash.units_total() as f64, flash.units_host as f64),
        flash,
        erases: flash.erases_total,
        collections: device.ftl().statistics.collections,
        latency_us: latencies(metrics),
        requests_by_operation: used(metrics).map(|op| (op.name().into(), metrics.latencies(op).count())).collect(),
        time_series: time_series(metrics, seconds),
        write_buffer: cache(device.write_buffer(), write_policy(device), &placements, Use::WriteBuffer, device.now()),
        read_cache: cache(
            device.read_cache(),
            &device.profile().buffer.read_policy,
            &placements,
            Use::ReadCache,
            device.now(),
        ),
        map_cache,
        host_memory: host_memory(device),
        destage_length_pages: destage_lengths(device.write_buffer()),
        wear: wear(device),
        utilization: utilization(device, seconds),
        slc: slc(device),
        suspends: device.ftl().flash.statistics().suspensions,
        read_retries: device.ftl().flash.statistics().read_retries,
        uncorrectable: device.ftl().flash.statistics().uncorrectable,
        recovery: device.recovery_report().map(|report| Recovery {
            seconds: secs(report.time),
            pages_read: report.reads,
            pages_lost: None,
        }),
        memory: memory(device, &placements),
        warnings: warnings(device, host),
        ..Record::default()
    };
    record.flash_written_per_host_byte = record.written_per_host_byte();
    options(&host.options, &mut record.workload.options);
    record
}

/// The drive. A write policy from outside is a change of its profile, as any other setting is.
fn profile_used(device: &Device, options: &RunOptions) -> Profile {
    const POLICY: &str = "buffer.write_policy";
    let profile = device.profile();
    let (mut settings, mut changed) = (profile.settings(), options.changed.clone());
    let policy = write_policy(device);
    if settings.get(POLICY).is_some_and(|built_in| built_in != policy) {
        settings.insert(POLICY.into(), policy.into());
        changed.retain(|set| set.split('=').next() != Some(POLICY));
        changed.push(format!("{POLICY}={policy}"));
    }
    let description = match &changed[..] {
        [] => profile.description.clone(),
        changed => format!("{}; changed: {}", profile.description, changed.join(", ")),
    };
    Profile { name: profile.name.clone(), description, settings, changed }
}

/// Microseconds, rounded once: records are read by people too.
fn us(time: Duration) -> f64 {
    time.as_ps() as f64 / 1e6
}

/// Seconds, rounded once.
fn secs(time: Duration) -> f64 {
    time.as_ps() as f64 / 1e12
}

/// The operations that were measured.
fn used(metrics: &Metrics) -> impl Iterator<Item = Op> {
    Op::ALL.into_iter().filter(|&op| metrics.latencies(op).count() > 0)
}

fn options(options: &RunOptions, text: &mut BTreeMap<String, String>) {
    let mut put = |key: &str, value: String| text.insert(key.to_owned(), value);
    match options.pacing {
        Pacing::Arrival => put("pacing", "at arrival".into()),
        Pacing::Depth(_) => put("pacing", "closed loop".into()),
        Pacing::ArrivalAndDepth(_) => put("pacing", "at arrival, within the queue depth".into()),
    };
    if let Pacing::Depth(depth) | Pacing::ArrivalAndDepth(depth) = options.pacing {
        put("queue_depth", depth.to_string());
    }
    if !matches!(options.pacing, Pacing::Depth(_)) {
        put("speedup", options.speedup.to_string());
    }
    put("precondition", precondition_text(options.device.precondition));
    put("premap", options.device.premap.to_string());
    if options.warmup_requests > 0 {
        put("warmup_requests", options.warmup_requests.to_string());
    }
    if let Some(time) = options.power_cut {
        put("power-cut", time.to_string());
    }
    if let Some(limit) = options.limit {
        put("limit", limit.to_string());
    }
    if let Some(runtime) = options.runtime {
        put("runtime", runtime.to_string());
    }
    if options.wrap {
        put("wrap", "true".into());
    }
    if options.queue_of == QueueOf::Operation {
        put("queue_of", "operation".into());
    }
}

fn flash(device: &Device) -> Flash {
    let ftl = device.ftl().statistics;
    let flash = device.ftl().flash.statistics();
    let buffer = &device.write_buffer().statistics;
    let rewritten = (buffer.pages_merged + buffer.pages_padded).min(ftl.host);
    let planes = u64::from(device.ftl().layout().planes());
    let programs = [FlashSource::HostProgram, FlashSource::CollectProgram, FlashSource::Map];
    Flash {
        unit_bytes: u64::from(device.profile().ftl.unit_size),
        units_host: ftl.host - rewritten,
        units_collected: ftl.collected + ftl.slc.units_folded,
        units_rewritten: rewritten,
        programs: programs.map(|source| flash.operations_of(source)).iter().sum(),
        reads_host: flash.operations_of(FlashSource::HostRead),
        reads_collected: flash.operations_of(FlashSource::CollectRead) + flash.operations_of(FlashSource::FoldRead),
        reads_meta: flash.operations_of(FlashSource::MapRead) + flash.operations_of(FlashSource::Recovery),
        erases_wear_levelling: (ftl.wear_moves * planes).min(ftl.erases_total),
        grown_bad_blocks: ftl.program_failures + ftl.erase_failures,
        raw_bytes: {
            let nand = &device.profile().nand;
            let blocks = u64::from(nand.dies() * nand.planes) * u64::from(nand.blocks_per_plane);
            blocks * u64::from(nand.pages_per_block) * u64::from(nand.page_size)
        },
        over_provisioning: device.ftl().spare_share().max(0.0),
        ..ftl.into()
    }
}

fn slc(device: &Device) -> Option<Slc> {
    let (ftl, fill) = (device.ftl(), device.ftl().slc_fill());
    let room = f64::from(fill.superblocks_max) * f64::from(fill.units_per_superblock);
    ftl.has_slc().then(|| Slc {
        superblocks: fill.superblocks.into(),
        superblocks_max: fill.superblocks_max.into(),
        units: fill.units,
        fill: ratio(fill.units as f64, room),
        ..ftl.statistics.slc.into()
    })
}

fn latencies(metrics: &Metrics) -> BTreeMap<String, Latency> {
    let mut latencies: BTreeMap<String, Latency> =
        used(metrics).map(|op| (op.name().to_owned(), latency(metrics.latencies(op)))).collect();
    if metrics.requests() > 0 {
        latencies.insert("all".into(), latency(&metrics.all()));
    }
    latencies
}

/// Latency figures of a histogram, for the record.
pub fn latency(histogram: &Histogram) -> Latency {
    let at = |q: f64| us(histogram.quantile(q));
    Latency {
        count: histogram.count(),
        mean: us(histogram.mean()),
        min: us(histogram.min()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: us(histogram.max()),
        cdf: histogram.cdf(CDF_POINTS).into_iter().map(|(value, share)| (us(value), share)).collect(),
    }
}

fn time_series(metrics: &Metrics, seconds: f64) -> TimeSeries {
    let length = secs(metrics.series.length());
    let point = |(i, interval): (usize, &crate::metrics::Interval)| {
        let start = secs(metrics.series.length() * i as u64);
        // The run may end within the last interval.
        let lasts = if seconds > start { length.min(seconds - start) } else { length };
        TimePoint {
            t_seconds: start,
            read_iops: ratio(interval.reads as f64, lasts),
            write_iops: ratio(interval.writes as f64, lasts),
            read_mib_s: ratio(interval.bytes_read as f64 / MIB, lasts),
            write_mib_s: ratio(interval.bytes_written as f64 / MIB, lasts),
            mean_latency_us: us(interval.mean_latency()),
            read_latency_us: interval.read_latency().map(us),
            write_latency_us: interval.write_latency().map(us),
            p99_latency_us: None,
            erases: interval.flash.erases,
        }
    };
    TimeSeries { interval_seconds: length, points: metrics.series.intervals().iter().enumerate().map(point).collect() }
}

fn host_memory(device: &Device) -> Option<HostMemory> {
    let memory = device.host_memory();
    memory.is_used().then(|| HostMemory { lent_bytes: memory.bytes(), ..memory.statistics.into() })
}

fn cache(buffer: &Buffer, policy: &str, placements: &Placements, used: Use, now: Instant) -> Cache {
    if !buffer.is_enabled() {
        return Cache { policy: "none".into(), ..Cache::default() };
    }
    let placed = placements.of(used);
    let counts = buffer.statistics;
    Cache {
        policy: policy.to_owned(),
        memory: placed.map(|p| p.memory.name.clone()).unwrap_or_default(),
        size_bytes: placed.map_or(0, |p| p.size),
        hit_ratio: ratio(counts.hits as f64, (counts.hits + counts.misses) as f64),
        wait_seconds: buffer.wait_seconds(now),
        ..counts.into()
    }
}

fn map_cache(device: &Device, placements: &Placements, flash: &Flash) -> Option<MapCache> {
    let cache = device.ftl().map_cache()?;
    let counts = device.ftl().map_statistics();
    let placed = placements.of(Use::MapCache);
    Some(MapCache {
        memory: placed.map(|p| p.memory.name.clone()).unwrap_or_default(),
        page_bytes: u64::from(device.profile().ftl.map_page),
        pages: cache.pages().into(),
        pages_held: cache.capacity().into(),
        hit_ratio: ratio(counts.hits as f64, counts.lookups as f64),
        added_reads_ratio: ratio(counts.loads as f64, flash.reads_host as f64),
        added_writes_ratio: ratio((counts.written + counts.moved) as f64, flash.units_host as f64),
        ..counts.into()
    })
}

fn destage_lengths(buffer: &Buffer) -> Distribution {
    let departures = buffer.statistics.departures;
    let lengths: Vec<(usize, u64)> =
        buffer.lengths.iter().copied().enumerate().filter(|&(_, count)| count > 0).collect();
    let mut below = 0;
    Distribution {
        count: departures,
        mean: ratio(lengths.iter().map(|&(length, count)| length as f64 * count as f64).sum(), departures as f64),
        max: lengths.last().map_or(0.0, |&(length, _)| length as f64),
        cdf: lengths
            .iter()
            .map(|&(length, count)| {
                below += count;
                (length as f64, ratio(below as f64, departures as f64))
            })
            .collect(),
    }
}

fn wear(device: &Device) -> Wear {
    let planes = u64::from(device.ftl().layout().planes());
    let counts = || device.ftl().erase_counts().map(u64::from);
    let superblocks = counts().count() as f64;
    let (min, max) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let mean = ratio(counts().sum::<u64>() as f64, superblocks);
    let squares: f64 = counts().map(|c| (c as f64 - mean).powi(2)).sum();
    let group = ((max - min) / WEAR_GROUPS + 1).max(1);
    let mut histogram: BTreeMap<u64, u64> = BTreeMap::new();
    for count in counts() {
        *histogram.entry(min + (count - min) / group * group).or_default() += planes;
    }
    Wear {
        min,
        max,
        mean,
        stddev: ratio(squares, superblocks).sqrt(),
        endurance: u64::from(device.profile().nand.endurance),
        histogram: histogram.into_iter().collect(),
    }
}

fn utilization(device: &Device, seconds: f64) -> Utilization {
    let channels = device.profile().nand.channels;
    let flash = &device.ftl().flash;
    let die = |(i, time): (usize, tidewater_core::flash::DieTime)| {
        // Suspending and resuming happens for reads; a suspension that has begun is counted to its end.
        let shares = [time.read + time.suspend, time.program, time.erase].map(|t| ratio(secs(t), seconds));
        let scale = shares.iter().sum::<f64>().max(1.0);
        let [read_share, program_share, erase_share] = shares.map(|share| share / scale);
        DieUse {
            channel: i as u32 % channels,
            die: i as u32 / channels,
            read_share,
            program_share,
            erase_share,
            idle_share: (1.0 - read_share - program_share - erase_share).max(0.0),
        }
    };
    let mut dies: Vec<DieUse> = flash.die_times(device.now()).enumerate().map(die).collect();
    dies.sort_by_key(|die| (die.channel, die.die));
    Utilization {
        channels: flash
            .channel_times()
            .map(|busy| ChannelUse { busy_share: ratio(secs(busy), seconds).min(1.0) })
            .collect(),
        dies,
    }
}

fn memory(device: &Device, placements: &Placements) -> Vec<Placement> {
    let note = |used: Use| {
        device.notes().iter().filter(|n| n.placed == used).map(|n| n.text.as_str()).collect::<Vec<_>>().join("; ")
    };
    Use::ALL
        .into_iter()
        .filter_map(|used| {
            let placed = placements.of(used)?;
            Some(Placement {
                memory: placed.memory.name.clone(),
                r#use: used.to_string(),
                size_bytes: placed.size,
                note: note(used),
            })
        })
        .collect()
}
