//! The page of metrics, for Prometheus.

use super::{About, drive_of, group, queues};
use crate::engine::{Engine, Firmware};
use crate::image::Disk;
use crate::metrics::Page;
use std::collections::BTreeMap;
use tidewater_core::host_memory::HostMemory;
use tidewater_gauges::{Drive, KINDS, LEVELS, Latencies};

/// The page of metrics.
pub(crate) fn page(firmware: Option<&Firmware>, engine: &Engine, about: About) -> String {
    let counters = &engine.record.counters;
    let mut page = Page::default();
    page.add("gauge", "tidewater_powered", "1 while the drive has power.", f64::from(firmware.is_some()));
    let uptime = about.wall.as_secs_f64();
    page.add("counter", "tidewater_uptime_seconds_total", "Seconds since the device was started.", uptime);
    page.add("counter", "tidewater_power_cuts_total", "Power cuts injected.", about.power_cuts as f64);
    let armed = engine.faults.list().iter().filter(|listed| !listed.over).count();
    page.add("gauge", "tidewater_faults_armed", "Faults on commands that can still strike.", armed as f64);
    page.family("counter", "tidewater_faults_struck_total", "Strikes of power cuts and faults on commands, by kind.");
    for (kind, count) in engine.faults.struck() {
        page.sample("tidewater_faults_struck_total", &[("kind", kind.name())], count as f64);
    }
    page.family("counter", "tidewater_commands_total", "I/O commands completed.");
    for (kind, count) in ["read", "write", "flush", "other"].iter().zip(counters.commands) {
        page.sample("tidewater_commands_total", &[("kind", kind)], count as f64);
    }
    page.add("counter", "tidewater_errors_total", "Commands completed with an error.", counters.errors as f64);
    page.family("counter", "tidewater_bytes_total", "Bytes moved by I/O commands.");
    for (to, bytes) in ["host", "device"].iter().zip(counters.bytes) {
        page.sample("tidewater_bytes_total", &[("to", to)], bytes as f64);
    }
    page.add("counter", "tidewater_syncs_total", "Syncs of the backing store.", counters.syncs as f64);
    latencies(&mut page, &engine.record.latencies);
    let image = engine.storage.image();
    let pace = image.pace();
    let syncs = image.statistics().syncs as f64;
    page.add("counter", "tidewater_image_syncs_total", "Syncs of the image that began.", syncs);
    let synced = pace.sync_time.as_secs_f64();
    page.add("counter", "tidewater_image_sync_seconds_total", "Seconds that syncs of the image took.", synced);
    page.add("counter", "tidewater_image_writes_total", "Writes to the image's file that ended.", pace.writes as f64);
    let wrote = pace.write_time.as_secs_f64();
    page.add("counter", "tidewater_image_write_seconds_total", "Seconds that writes to the image's file took.", wrote);
    page.family("gauge", "tidewater_disk_failed", "1 while the image can't be written: its disk is full or failed.");
    for disk in [Disk::Full, Disk::Failed] {
        let is_so = f64::from(engine.storage.disk() == disk);
        page.sample("tidewater_disk_failed", &[("why", disk.word().unwrap_or_default())], is_so);
    }
    page.add("gauge", "tidewater_image_bytes", "Bytes of the image's file, holes included.", image.file_len() as f64);
    page.add("counter", "tidewater_interrupts_total", "Interrupts raised.", counters.interrupts as f64);
    let held = engine.storage.payload.held() as f64;
    page.add("gauge", "tidewater_volatile_pages", "Pages held only in volatile memory.", held);
    if let Some(firmware) = firmware {
        let device = firmware.subsystem.device();
        let only_reads = engine.storage.has_failed() || device.ftl().is_read_only();
        page.add("gauge", "tidewater_read_only", "1 while the drive is read-only.", f64::from(only_reads));
        page.add("gauge", "tidewater_capacity_bytes", "Usable bytes.", device.capacity() as f64);
        let outstanding = f64::from(firmware.subsystem.outstanding());
        page.add("gauge", "tidewater_outstanding_commands", "I/O commands in progress.", outstanding);
        in_progress(&mut page, queues(&firmware.subsystem));
        waits(&mut page, engine.rings.all().map(|(function, ring)| (function, &ring.waits)));
        let endurance = device.profile().nand.endurance;
        drive(&mut page, &drive_of(engine, device, about.now), endurance);
        host_memory(&mut page, device.host_memory());
        group::metrics(engine, firmware, &mut page);
    }
    page.into_text()
}

/// How long commands took, from when the device read their entry.
fn latencies(page: &mut Page, of: &Latencies) {
    let name = "tidewater_command_duration_seconds";
    page.family("histogram", name, "From reading a command to its completion.");
    for (kind, word) in KINDS.iter().enumerate() {
        histogram(page, name, &[("kind", word)], of, kind);
    }
}

/// How long programs waited for levels of their logs, by function.
fn waits<'a>(page: &mut Page, rings: impl Iterator<Item = (usize, &'a Latencies)>) {
    let name = "tidewater_log_wait_seconds";
    let mut rings = rings.peekable();
    if rings.peek().is_none() {
        return;
    }
    page.family("histogram", name, "From when the device saw that a program waits for a level until it was reached.");
    for (function, of) in rings {
        for (at, level) in LEVELS.iter().enumerate() {
            histogram(page, name, &[("function", &function.to_string()), ("level", level)], of, at);
        }
    }
}

fn histogram(page: &mut Page, name: &str, labels: &[(&str, &str)], of: &Latencies, kind: usize) {
    let mut bucket = |le: &str, count: u64| {
        page.sample(&format!("{name}_bucket"), &[labels, &[("le", le)]].concat(), count as f64);
    };
    of.cumulative(kind).into_iter().for_each(|(bound, count)| bucket(&bound.to_string(), count));
    bucket("+Inf", of.count(kind));
    page.sample(&format!("{name}_sum"), labels, of.sum_s(kind));
    page.sample(&format!("{name}_count"), labels, of.count(kind) as f64);
}

/// Commands in progress by queue.
fn in_progress(page: &mut Page, queues: BTreeMap<(u8, u16), u32>) {
    let name = "tidewater_queue_outstanding_commands";
    page.family("gauge", name, "Commands in progress of a submission queue, the admin queue included.");
    for ((function, queue), count) in queues {
        let labels = [("function", function.to_string()), ("queue", queue.to_string())];
        page.sample(name, &labels.each_ref().map(|(name, value)| (*name, value.as_str())), f64::from(count));
    }
}

/// Samples of one metric: the values of its label, and what each is.
fn family(page: &mut Page, kind: &str, name: &str, help: &str, label: &str, samples: &[(&str, f64)]) {
    page.family(kind, name, help);
    for (value, is) in samples {
        page.sample(name, &[(label, value)], *is);
    }
}

/// The drive; `endurance`: erasures of a block that its flash is made for.
fn drive(page: &mut Page, drive: &Drive, endurance: u32) {
    let Drive { units, wear, .. } = drive;
    let samples = [
        ("host", units.host),
        ("log", units.log),
        ("collection", units.collection),
        ("folding", units.folding),
        ("map", units.map),
        ("padding", units.padding),
    ];
    let help = "Units programmed into flash, by purpose; write amplification is all of them per unit of host and log.";
    let samples = samples.map(|(by, count)| (by, count as f64));
    family(page, "counter", "tidewater_flash_units_total", help, "by", &samples);
    let count = |page: &mut Page, name: &str, help: &str, value: u64| page.add("counter", name, help, value as f64);
    count(page, "tidewater_collections_total", "Superblocks that garbage collection emptied.", drive.collections);
    count(page, "tidewater_erases_total", "Blocks erased.", drive.erases);
    count(page, "tidewater_suspensions_total", "Programs and erases suspended for reads.", drive.suspensions);
    count(page, "tidewater_program_failures_total", "Failed program operations.", drive.program_failures);
    let mut busy = [0; 4];
    for die in &drive.dies {
        busy.iter_mut().zip(die).for_each(|(sum, time)| *sum += time);
    }
    let works = ["read", "program", "erase", "suspend"];
    let seconds: Vec<(&str, f64)> = works.iter().zip(busy).map(|(work, ns)| (*work, ns as f64 / 1e9)).collect();
    let name = "tidewater_die_busy_seconds_total";
    family(page, "counter", name, "Busy time of all dies, by work.", "work", &seconds);
    page.add("gauge", "tidewater_dies", "Dies of the flash.", drive.dies.len() as f64);
    let [free, good] = drive.free_superblocks.map(|count| count as f64);
    page.add("gauge", "tidewater_free_superblocks", "Superblocks that hold no data.", free);
    page.add("gauge", "tidewater_superblocks", "Superblocks that are not bad.", good);
    let samples = [("least", wear.least.into()), ("mean", wear.mean), ("most", wear.most.into())];
    let help = "Erasures of a superblock: the least, the mean, the most.";
    family(page, "gauge", "tidewater_superblock_erases", help, "of", &samples);
    let worn = wear.mean / f64::from(endurance.max(1));
    let help = "Mean erasures of a superblock, as a share of endurance.";
    page.add("gauge", "tidewater_endurance_used_ratio", help, worn);
    let fills = [("write_buffer", drive.write_buffer), ("read_cache", drive.read_cache)];
    let each = |of: fn(&tidewater_gauges::Fill) -> u64| fills.map(|(name, fill)| (name, of(&fill) as f64));
    let help = "Size of a memory, in pages; 0 if the drive has none.";
    family(page, "gauge", "tidewater_memory_pages", help, "memory", &each(|of| of.size));
    family(page, "gauge", "tidewater_memory_used_pages", "Pages that a memory holds.", "memory", &each(|of| of.used));
    let help = "Pages that a memory holds and that are not yet on flash.";
    family(page, "gauge", "tidewater_memory_dirty_pages", help, "memory", &each(|of| of.dirty));
    log(page, drive);
    let bytes: u64 = drive.window.iter().map(|entry| entry.bytes).sum();
    page.add("gauge", "tidewater_window_entries", "Ranges pinned into the byte window.", drive.window.len() as f64);
    page.add("gauge", "tidewater_window_pinned_bytes", "Bytes pinned into the byte window.", bytes as f64);
}

/// The host memory buffer: 0 where the host lends none.
fn host_memory(page: &mut Page, memory: &HostMemory) {
    let (counts, bytes) = (memory.statistics, if memory.is_used() { memory.bytes() } else { 0 });
    page.add("gauge", "tidewater_host_memory_bytes", "Bytes of the host memory buffer.", bytes as f64);
    let name = "tidewater_host_memory_units_total";
    let samples = [("read", counts.reads as f64), ("write", counts.writes as f64)];
    family(page, "counter", name, "Units of the host memory buffer accessed.", "by", &samples);
    let name = "tidewater_host_memory_moved_bytes_total";
    let samples = [("read", counts.bytes_read as f64), ("write", counts.bytes_written as f64)];
    family(page, "counter", name, "Bytes moved to and from the host memory buffer.", "by", &samples);
    let (name, help) =
        ("tidewater_host_memory_failed_checks_total", "Units of the host memory buffer that failed their check.");
    page.add("counter", name, help, counts.failed_checks as f64);
    let help = "Units read from flash instead of the host memory buffer.";
    page.add("counter", "tidewater_host_memory_refetches_total", help, counts.refetches as f64);
}

fn log(page: &mut Page, drive: &Drive) {
    if drive.lanes.is_empty() {
        return;
    }
    let named: Vec<_> =
        drive.lanes.iter().map(|lane| (lane.function.to_string(), lane.lane.to_string(), lane)).collect();
    type Of = fn(&tidewater_gauges::Lane) -> u64;
    let all: [(&str, &str, &str, Of); 6] = [
        ("counter", "tidewater_log_appended_bytes_total", "Offset behind the highest byte that was appended.", |of| {
            of.tail
        }),
        (
            "counter",
            "tidewater_log_credited_bytes_total",
            "Offset up to which the log is acknowledged; 0 on a secondary.",
            |of| of.credit,
        ),
        ("counter", "tidewater_log_destaged_bytes_total", "Offset up to which the log is on flash.", |of| of.destaged),
        ("counter", "tidewater_log_trimmed_bytes_total", "Offset of the oldest byte that can be read.", |of| {
            of.trimmed
        }),
        ("gauge", "tidewater_log_ring_bytes", "Size of a lane's ring.", |of| of.ring),
        ("gauge", "tidewater_log_ring_used_bytes", "Bytes of the ring not yet on their way to flash.", |of| {
            of.ring_used
        }),
    ];
    for (kind, name, help, of) in all {
        page.family(kind, name, help);
        for (function, lane, is) in &named {
            page.sample(name, &[("function", function), ("lane", lane)], of(is) as f64);
        }
    }
}
