//! Warnings about the validity of a run's figures.

use tidewater_base::Duration;
use tidewater_base::units::{bytes, grouped, plural_exact, seconds};
use tidewater_core::ftl::Precondition;
use tidewater_core::memory::Use;
use tidewater_core::profile::{Mapping, MemoryKind};
use tidewater_core::{Device, device};
use tidewater_report::record::ratio;
use tidewater_wire::nvme::Status;

use super::world::Host;
use super::{Pacing, precondition_text};
use crate::host_memory::LentMemory;
use crate::metrics::{FlashWork, Metrics};
use crate::request::Source;

/// Write amplification counts as steady when two quarters of a run differ by no more: SNIA's Performance Test
/// Specification allows a slope of 10 % over its window.
const STEADY_WITHIN: f64 = 0.1;
/// Units that the host must have written in a quarter for that to mean anything.
const STEADY_UNITS: u64 = 10_000;
/// A drive that keeps up has requests wait for each other now and then; a mean latency of more times what flash works
/// for a request is the length of a queue. At 90 % load the mean of the simplest queue (M/M/1) is ten times its service
/// time.
const QUEUED: f64 = 10.0;
/// Fewer requests at once than this are no queue worth a word, however few dies there are.
const QUEUE_MIN: usize = 32;
/// More than this share of requests out of order are more than what several queues or processors mix up.
const REORDERED: f64 = 0.05;
/// A request in a hundred that took longer than so many of the longest that flash does in one go stood in a queue:
/// garbage collection alone keeps a tail within a few erases.
const TAIL_OPERATIONS: u64 = 8;

/// All of them, in the order in which they matter.
pub(super) fn warnings<S: Source>(device: &Device, host: &Host<S>) -> Vec<String> {
    // What a usual volatile write cache promises stands beside its memory; a weaker promise is said aloud.
    let lent = |used: Use| {
        let name = match used {
            Use::WriteBuffer => &device.profile().buffer.write_memory,
            Use::MapCache => &device.profile().ftl.map_memory,
            _ => &device.profile().buffer.read_memory,
        };
        device.profile().memory(name).is_some_and(|m| m.kind == MemoryKind::Host)
    };
    let weaker = device.notes().iter().filter(|n| n.downgrade && lent(n.placed));
    let mut warnings: Vec<String> = match not_lent(device) {
        // What lies there makes no promise weaker when there is none.
        Some(why) => vec![why],
        None => weaker.map(ToString::to_string).collect(),
    };
    for (&bits, &count) in &host.failures {
        let status = Status::from_bits(bits);
        let name = status.name().map_or_else(|| format!("{status:?}"), str::to_owned);
        warnings.push(format!("{} failed: {name}", plural_exact(count, "command")));
    }
    let skipped = host.source.skipped();
    if skipped > 0 {
        let were = if skipped == 1 { "was" } else { "were" };
        warnings.push(format!("{} of the trace {were} skipped", plural_exact(skipped, "malformed line")));
    }
    warnings.extend(host.source.cut_short().map(|why| format!("the trace is not whole: {why}")));
    warnings.extend(out_of_order(host));
    if device.ftl().is_read_only() {
        warnings.push("the drive has reached the end of its life and is read-only".into());
    }
    let lost = device.ftl().statistics.lost;
    if lost > 0 {
        warnings.push(format!(
            "{} could not be read during garbage collection; the data in {} is lost",
            plural_exact(lost, "unit"),
            if lost == 1 { "it" } else { "them" }
        ));
    }
    warnings.extend(uncollected(device, host.options.device.precondition));
    warnings.extend(too_small(device, host.options.device));
    if device.ftl().statistics.host == 0 && device.write_buffer().statistics.misses > 0 {
        warnings.push("all writes stayed in the write buffer: no flash was programmed".into());
    }
    warnings.extend(backlog(device, host));
    let past = host.options.device.precondition;
    warnings.extend(little_written(device, past).or_else(|| unsteady(&host.metrics, past)));
    warnings
}

/// Says so when many requests came with a later one that stands before them in the trace, and not at their time.
fn out_of_order<S: Source>(host: &Host<S>) -> Option<String> {
    let (late, all) = (host.source.reordered(), host.pulled);
    if host.options.pacing != Pacing::Arrival || late as f64 <= REORDERED * all as f64 {
        return None;
    }
    Some(format!(
        "{} of {} have a time stamp earlier than a request before them in the trace, and were submitted at once with \
         it: the trace may be several traces concatenated, each from its own time 0 (replay them one by one, or sort \
         the lines by time)",
        grouped(late),
        plural_exact(all, "request")
    ))
}

/// Says so when the host would lend memory, but less than the drive takes.
fn not_lent(device: &Device) -> Option<String> {
    let (profile, wanted) = (device.profile(), device.host_memory().wanted());
    let offered = LentMemory::offer(profile, wanted);
    (profile.hmb.enabled && wanted > 0 && offered < profile.serve.hmb_min).then(|| {
        format!(
            "no host memory was lent: {} ([hmb] size) is below the drive's minimum of {} ([serve] hmb_min), so the \
             drive ran without what the profile places there",
            bytes(offered),
            bytes(profile.serve.hmb_min)
        )
    })
}

/// Says so when a drive in its steady state was written too little for its write amplification to mean much: each die
/// begins amid a collection, and the copies of that one, which an idle die makes at once, are many beside few writes.
fn little_written(device: &Device, past: Precondition) -> Option<String> {
    let (ftl, profile) = (&device.ftl().statistics, device.profile());
    if past != Precondition::Steady || profile.ftl.mapping != Mapping::Page || ftl.host == 0 {
        return None;
    }
    let nand = &profile.nand;
    let superblock = u64::from(nand.planes) * u64::from(nand.pages_per_block) * u64::from(nand.page_size);
    let (written, round) = (ftl.host * u64::from(profile.ftl.unit_size), superblock * u64::from(nand.dies()));
    (written < round).then(|| {
        format!(
            "little was written to flash for a drive in its steady state: {}, where one superblock of each die is {}; \
             write amplification is that of the garbage collections under way when the run began, and can be far from \
             that of a longer run (the more idle time, the further)",
            bytes(written),
            bytes(round)
        )
    })
}

/// Says so when the run wrote to flash and never made the drive give a block back, whatever it had been through before.
fn uncollected(device: &Device, past: Precondition) -> Option<String> {
    let ftl = &device.ftl().statistics;
    if ftl.host == 0 || ftl.collections > 0 {
        return None;
    }
    let written = bytes(ftl.host * u64::from(device.profile().ftl.unit_size));
    match past {
        Precondition::Fresh => Some(
            "the drive started empty and never needed garbage collection; a used drive may be slower (try \
             --precondition steady)"
                .into(),
        ),
        // A hybrid mapping gives blocks back by merges as well.
        _ if ftl.erases_total > 0 => None,
        Precondition::Filled(_) => Some(format!(
            "the drive began {}, and its spare flash took all that was written to flash since ({written}): garbage \
             collection never ran, so write amplification and latencies are those of a drive before its first garbage \
             collection (write more, or try --precondition steady)",
            precondition_text(past)
        )),
        // It collects from its first writes on.
        Precondition::Steady => None,
    }
}

/// Says so when a drive that follows a small workload has much more spare flash than its profile asks for.
fn too_small(device: &Device, mut options: tidewater_core::Options) -> Option<String> {
    let profile = device.profile();
    let (asked, spare) = (profile.ftl.over_provisioning, device.ftl().spare_share());
    // A log of given length has no such share to keep.
    let is_given = profile.ftl.mapping != Mapping::Page && profile.ftl.log_blocks > 0;
    if device.ftl().statistics.host == 0 || is_given || spare <= 1.25 * asked + 0.02 {
        return None;
    }
    let mut smaller = profile.clone();
    (smaller.drive.capacity, smaller.nand.blocks_per_plane) = (0, 0);
    options.capacity = device.capacity();
    let nand = &mut smaller.nand;
    let mut settings = Vec::new();
    for (key, value, most) in [
        ("ways", &mut nand.ways, 1),
        ("dies_per_way", &mut nand.dies_per_way, 1),
        ("pages_per_block", &mut nand.pages_per_block, 64),
    ] {
        if *value > most {
            *value = most;
            settings.push(format!("--set nand.{key}={most}"));
        }
    }
    // A little more is not worth other flash, and neither is what the profile does not allow.
    let helps = spare > 2.0 * asked + 0.1 && !settings.is_empty() && device::resolve(&smaller, &options).is_ok();
    let remedy = if helps {
        format!("a larger --capacity brings it closer; so do fewer dies and smaller blocks: {}", settings.join(" "))
    } else {
        "a larger --capacity, fewer dies or smaller blocks bring it closer".into()
    };
    let lower =
        if spare > 1.0 { "far lower, as on a nearly empty drive" } else { "lower than a larger drive's would be" };
    Some(format!(
        "effective over-provisioning is {:.0} %, not the configured {:.0} %: on a drive this small, rounding up to \
         whole superblocks dominates; write amplification is {lower} ({remedy})",
        spare * 100.0,
        asked * 100.0
    ))
}

/// Says so when latencies from arrival are those of a queue: at the end of the run, or in bursts within it.
fn backlog<S: Source>(device: &Device, host: &Host<S>) -> Option<String> {
    if host.options.pacing != Pacing::Arrival {
        return None;
    }
    const MEASURED: &str = "latencies measure the queue, not the drive (--queue-depth N measures what it can serve)";
    let lasted = host.last_completion.since(host.began);
    let behind = host.last_completion.since(host.last_arrival);
    if behind.as_ps() > 1_000_000_000 && behind.as_ps() > lasted.as_ps() / 8 {
        let behind = seconds(behind.as_secs_f64());
        return Some(format!(
            "requests came faster than the drive serves them: it finished {behind} after the last one came, so \
             {MEASURED}"
        ));
    }
    let (nand, flash) = (&device.profile().nand, &device.ftl().flash);
    let most = host.outstanding_max();
    if most <= QUEUE_MIN.max(nand.dies() as usize) {
        return None;
    }
    let all = host.metrics.all();
    let longest = |times: &[Duration]| times.iter().copied().max().unwrap_or(Duration::ZERO);
    // What dies did for all requests, and the least that one waits for flash alone.
    let times = flash.die_times(device.now());
    let worked: f64 = times.map(|die| die.read + die.program + die.erase).map(Duration::as_secs_f64).sum();
    let served = ratio(worked, all.count() as f64) + longest(&nand.read_time).as_secs_f64();
    let mean = all.mean().as_secs_f64();
    let at_once = longest(&nand.read_time) + longest(&nand.program_time) + nand.erase_time;
    let slowest = all.quantile(0.99).as_secs_f64();
    let load = if mean > QUEUED * served {
        let share = seconds(ratio(worked, all.count() as f64));
        format!("a request took {} on average, of which the flash worked {share}", seconds(mean))
    } else if slowest > (at_once * TAIL_OPERATIONS).as_secs_f64() {
        format!("one request in a hundred took more than {}", seconds(slowest))
    } else {
        return None;
    };
    Some(format!(
        "requests came in bursts that the drive did not keep up with: up to {} were outstanding at once, and {load}; \
         such {MEASURED}",
        grouped(most as u64)
    ))
}

/// Says so when write amplification was still changing when the run ended.
fn unsteady(metrics: &Metrics, past: Precondition) -> Option<String> {
    let intervals = metrics.series.intervals();
    let total: u64 = intervals.iter().map(|i| i.flash.units_host).sum();
    // The third and the fourth quarter of what the host wrote.
    let mut quarters = [FlashWork::default(); 4];
    let mut below = 0;
    for interval in intervals {
        let quarter = &mut quarters[(below * 4 / total.max(1)).min(3) as usize];
        quarter.units_host += interval.flash.units_host;
        quarter.units += interval.flash.units;
        below += interval.flash.units_host;
    }
    let [_, _, third, fourth] = quarters;
    if third.units_host.min(fourth.units_host) < STEADY_UNITS {
        return None;
    }
    let [third, fourth] = [third, fourth].map(|work| ratio(work.units as f64, work.units_host as f64));
    (ratio(fourth, third) - 1.0).abs().gt(&STEADY_WITHIN).then(|| {
        let remedy = if past == Precondition::Steady {
            "a longer run"
        } else {
            "a longer run, a warm-up or --precondition steady"
        };
        format!(
            "write amplification was still changing: {third:.2} in the third quarter of the data written, {fourth:.2} \
             in the fourth; {remedy} would show the drive as it settles"
        )
    })
}
