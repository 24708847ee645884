//! The status of a served device, as an object for `tidewater status`.

use super::{About, as_appended, group, known, state_of};
use crate::engine::{Engine, Firmware, Storage};
use serde_json::{Map, Value, json};
use tidewater_base::units::format_bytes;
use tidewater_base::{Duration, Instant};
use tidewater_core::profile::Timing;
use tidewater_gauges::{LEVELS, Lane};

/// How it is doing.
pub(crate) fn status(firmware: Option<&Firmware>, engine: &Engine, about: About) -> Map<String, Value> {
    let counters = &engine.record.counters;
    let mut status = Map::new();
    let mut put = |name: &str, value: Value| {
        status.insert(name.to_owned(), value);
    };
    let state = state_of(firmware, engine, &about);
    put("state", state.into());
    put("profile", about.name.into());
    put("timing", if about.timing == Timing::Model { "model" } else { "none" }.into());
    put("uptime_s", about.wall.as_secs().into());
    put("power_cuts", about.power_cuts.into());
    let image = engine.storage.image().name();
    // Who asks stands in another folder. A drive in memory has a name that is no file's.
    let path = std::path::absolute(image).ok().filter(|path| path.exists());
    if let Some(fault) = engine.storage.image().fault().filter(|_| engine.storage.has_failed()) {
        put("store_error", fault.into());
    }
    put("disk", disk(&engine.storage));
    put("image", path.map_or_else(|| image.to_owned(), |path| path.display().to_string()).into());
    if let Some(firmware) = firmware {
        let device = firmware.subsystem.device();
        put("capacity", format_bytes(device.capacity()).into());
        put("outstanding_commands", firmware.subsystem.outstanding().into());
        put("pages_only_in_volatile_memory", engine.storage.payload.held().into());
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
    let struck: Map<String, Value> = engine.faults.struck_by_name().map(|(name, count)| (name, count.into())).collect();
    if !struck.is_empty() {
        put("faults_struck", struck.into());
    }
    if let Some(tap) = &engine.record.commands {
        put("command_events_written", tap.written().into());
        put("command_events_dropped", tap.dropped().into());
    }
    if let Some(error) = &engine.record.commands_error {
        put("command_events_error", error.to_string().into());
    }
    put("bytes_to_hosts", counters.bytes[0].into());
    put("bytes_from_hosts", counters.bytes[1].into());
    put("syncs", counters.syncs.into());
    let attached = engine.hosts.functions.all().iter().filter(|port| port.connection.is_some()).count();
    put("attached_functions", attached.into());
    for (function, ring) in engine.rings.all() {
        for lane in 0..usize::from(ring.file().header().lanes) {
            let name = if function == 0 { format!("lane_{lane}") } else { format!("function_{function}_lane_{lane}") };
            put(&name, if ring.file().has_writer(lane) { "has a program" } else { "free" }.into());
        }
    }
    let device = firmware.map(|firmware| firmware.subsystem.device());
    let lanes = device.map(|device| as_appended(engine, device, Lane::all(device))).unwrap_or_default();
    if !lanes.is_empty() {
        put("lanes", lanes.iter().map(|lane| json!(lane)).collect());
    }
    if engine.rings.is_used() {
        let waits = engine.rings.waits();
        let of = |at: usize| json!({ "count": waits.count(at), "sum_us": (waits.sum_s(at) * 1e6) as u64 });
        let all = LEVELS.iter().enumerate().map(|(at, level)| ((*level).to_owned(), of(at)));
        put("log_waits", Value::Object(all.collect()));
    }
    let wall = Instant::ZERO + Duration::from_ns(about.wall.as_nanos() as u64);
    if let Some(peers) = firmware.and_then(|firmware| group::status(engine, firmware, wall)) {
        put("peers", peers);
    }
    if let Some(target) = &engine.hosts.target {
        put("nvme_tcp_connections", target.statistics().open.into());
    }
    if let Some(nbd) = &engine.hosts.nbd {
        put("nbd_connections", nbd.connections().into());
    }
    status
}

/// How fast the disk of the image is, and what is wrong with it.
fn disk(storage: &Storage) -> Value {
    let pace = storage.image().pace();
    known(json!({
        "state": storage.disk().word(),
        "writes": pace.writes,
        "write_us": pace.write_time.as_micros() as u64,
        "syncs": pace.syncs,
        "sync_us": pace.sync_time.as_micros() as u64,
        "syncing_us": pace.syncing.as_micros() as u64,
    }))
}
