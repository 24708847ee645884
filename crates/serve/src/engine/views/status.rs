//! The status of a served device: an object for `tidewater status`, a page for Prometheus.

use super::metrics as exposition;
use crate::engine::firmware::Firmware;
use crate::engine::route::World;
use crate::image::Disk;
use crate::metrics::Page;
use serde_json::{Map, Value, json};
use std::time::Duration as WallDuration;
use tidewater_base::units::format_bytes;
use tidewater_base::{Duration, Instant};
use tidewater_core::profile::Timing;
use tidewater_gauges::{Drive, LEVELS, Lane};

/// What neither the drive nor its surroundings know.
pub(crate) struct About {
    pub name: String,
    pub timing: Timing,
    pub wall: WallDuration,
    pub power_cuts: u64,
    pub ending: bool,
    /// By the drive's clock.
    pub now: Instant,
}

/// What it does, in a word or two.
pub(crate) fn state_of<M>(firmware: Option<&Firmware>, world: &World<M>, about: &About) -> &'static str {
    match firmware {
        _ if about.ending => "shutting down",
        None => "without power",
        Some(firmware) if world.storage.has_failed() || firmware.subsystem.device().ftl().is_read_only() => "read-only",
        Some(_) => "serving",
    }
}

/// How it is doing.
pub(crate) fn status<M>(firmware: Option<&Firmware>, world: &World<M>, about: About) -> Map<String, Value> {
    let counters = &world.record.counters;
    let mut status = Map::new();
    let mut put = |name: &str, value: Value| {
        status.insert(name.to_owned(), value);
    };
    let state = state_of(firmware, world, &about);
    put("state", state.into());
    put("profile", about.name.into());
    put("timing", if about.timing == Timing::Model { "model" } else { "none" }.into());
    put("uptime_s", about.wall.as_secs().into());
    put("power_cuts", about.power_cuts.into());
    let image = world.storage.image().name();
    // Who asks stands in another folder. A drive in memory has a name that is no file's.
    let path = std::path::absolute(image).ok().filter(|path| path.exists());
    if let Some(fault) = world.storage.image().fault().filter(|_| world.storage.has_failed()) {
        put("store_error", fault.into());
    }
    put("disk", world.storage.status());
    put("image", path.map_or_else(|| image.to_owned(), |path| path.display().to_string()).into());
    if let Some(firmware) = firmware {
        let device = firmware.subsystem.device();
        put("capacity", format_bytes(device.capacity()).into());
        put("outstanding_commands", firmware.subsystem.outstanding().into());
        put("pages_only_in_volatile_memory", world.storage.payload.held().into());
        put("units_written_by_hosts", device.ftl().statistics.host.into());
        put("units_collected", device.ftl().statistics.collected.into());
        let memory = device.host_memory();
        if memory.is_used() {
            put("host_memory_lent", format_bytes(memory.bytes()).into());
            put("host_memory_reads", memory.statistics.reads.into());
            put("host_memory_writes", memory.statistics.writes.into());
            put("host_memory_failed_checks", memory.statistics.failed_checks.into());
            put("host_memory_refetches", memory.statistics.refetches.into());
        }
    }
    for (name, count) in ["reads", "writes", "flushes", "other_commands"].iter().zip(counters.commands) {
        put(name, count.into());
    }
    put("errors", counters.errors.into());
    if let Some(tap) = &world.record.commands {
        put("command_events_written", tap.written().into());
        put("command_events_dropped", tap.dropped().into());
    }
    if let Some(error) = &world.record.commands_error {
        put("command_events_error", error.to_string().into());
    }
    put("bytes_to_hosts", counters.bytes[0].into());
    put("bytes_from_hosts", counters.bytes[1].into());
    put("syncs", counters.syncs.into());
    let attached = world.ports.iter().filter(|port| port.connection.is_some()).count();
    put("attached_functions", attached.into());
    for (function, port) in world.ports.iter().enumerate() {
        let Some(ring) = &port.ring else { continue };
        for lane in 0..usize::from(ring.file().header().lanes) {
            let name = if function == 0 { format!("lane_{lane}") } else { format!("function_{function}_lane_{lane}") };
            put(&name, if ring.file().has_writer(lane) { "has a program" } else { "free" }.into());
        }
    }
    let lanes = firmware.map(|firmware| Lane::all(firmware.subsystem.device())).unwrap_or_default();
    if !lanes.is_empty() {
        put("lanes", lanes.iter().map(|lane| json!(lane)).collect());
    }
    if world.ports.iter().any(|port| port.ring.is_some()) {
        let waits = crate::engine::views::live::waits(world);
        let of = |at: usize| json!({ "count": waits.count(at), "sum_us": (waits.sum_s(at) * 1e6) as u64 });
        let all = LEVELS.iter().enumerate().map(|(at, level)| ((*level).to_owned(), of(at)));
        put("log_waits", Value::Object(all.collect()));
    }
    let wall = Instant::ZERO + Duration::from_ns(about.wall.as_nanos() as u64);
    if let Some(peers) = firmware.and_then(|firmware| world.peers_status(firmware, wall)) {
        put("peers", peers);
    }
    if let Some(target) = &world.target {
        put("nvme_tcp_connections", target.statistics().open.into());
    }
    status
}

/// The page of metrics.
pub(crate) fn metrics<M>(firmware: Option<&Firmware>, world: &World<M>, about: About) -> String {
    let counters = &world.record.counters;
    let mut page = Page::default();
    page.add("gauge", "tidewater_powered", "1 while the drive has power.", f64::from(firmware.is_some()));
    page.add(
        "counter",
        "tidewater_uptime_seconds_total",
        "Seconds since the device was started.",
        about.wall.as_secs_f64(),
    );
    page.add("counter", "tidewater_power_cuts_total", "Power cuts injected.", about.power_cuts as f64);
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
    exposition::latencies(&mut page, &world.record.latencies);
    let image = world.storage.image();
    let pace = image.pace();
    page.add(
        "counter",
        "tidewater_image_syncs_total",
        "Syncs of the image that began.",
        image.statistics().syncs as f64,
    );
    let synced = pace.sync_time.as_secs_f64();
    page.add("counter", "tidewater_image_sync_seconds_total", "Seconds that syncs of the image took.", synced);
    page.add("counter", "tidewater_image_writes_total", "Writes to the image's file that ended.", pace.writes as f64);
    let wrote = pace.write_time.as_secs_f64();
    page.add("counter", "tidewater_image_write_seconds_total", "Seconds that writes to the image's file took.", wrote);
    page.family("gauge", "tidewater_disk_failed", "1 while the image can't be written: its disk is full or failed.");
    for disk in [Disk::Full, Disk::Failed] {
        let is_so = f64::from(world.storage.disk() == disk);
        page.sample("tidewater_disk_failed", &[("why", disk.word().unwrap_or_default())], is_so);
    }
    page.add("gauge", "tidewater_image_bytes", "Bytes of the image's file, holes included.", image.file_len() as f64);
    page.add("counter", "tidewater_interrupts_total", "Interrupts raised.", counters.interrupts as f64);
    let held = world.storage.payload.held() as f64;
    page.add("gauge", "tidewater_volatile_pages", "Pages held only in volatile memory.", held);
    if let Some(firmware) = firmware {
        let device = firmware.subsystem.device();
        let only_reads = world.storage.has_failed() || device.ftl().is_read_only();
        page.add("gauge", "tidewater_read_only", "1 while the drive is read-only.", f64::from(only_reads));
        page.add("gauge", "tidewater_capacity_bytes", "Usable bytes.", device.capacity() as f64);
        let outstanding = f64::from(firmware.subsystem.outstanding());
        page.add("gauge", "tidewater_outstanding_commands", "I/O commands in progress.", outstanding);
        exposition::queues(&mut page, crate::engine::views::live::queues(&firmware.subsystem));
        let rings = world.ports.iter().enumerate();
        exposition::waits(&mut page, rings.filter_map(|(at, port)| Some((at, &port.ring.as_ref()?.waits))));
        let endurance = device.profile().nand.endurance;
        exposition::drive(&mut page, &Drive::of(device, about.now), endurance);
        exposition::host_memory(&mut page, device.host_memory());
        world.peers_metrics(firmware, &mut page);
    }
    page.into_text()
}
