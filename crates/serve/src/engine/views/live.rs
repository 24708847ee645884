//! A moment of a served device, for the live page.

use crate::engine::firmware::Firmware;
use crate::engine::route::World;
use crate::engine::views::status::{About, state_of};
use std::collections::BTreeMap;
use tidewater_base::units::format_duration;
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::{Fault, Slot, Subsystem};
use tidewater_gauges::{Drive, Latencies, Moment};
use tidewater_nand::Medium;

/// What it is doing now.
pub(crate) fn moment<M>(firmware: Option<&Firmware>, world: &World<M>, about: &About) -> Moment {
    let wall = Instant::ZERO + Duration::from_ns(about.wall.as_nanos() as u64);
    let subsystem = firmware.map(|firmware| &firmware.subsystem);
    let drive = subsystem.map(|of| {
        let drive = Drive::of(of.device(), about.now);
        Drive { is_read_only: drive.is_read_only || world.storage.has_failed(), ..drive }
    });
    let resets = subsystem.map_or(0, |of| (0..of.functions()).map(|function| u64::from(of.resets(function))).sum());
    Moment {
        time_s: about.wall.as_secs_f64(),
        state: state_of(firmware, world, about).into(),
        commands: world.record.counters.commands,
        errors: world.record.counters.errors,
        bytes: world.record.counters.bytes,
        outstanding: subsystem.map_or(0, |of| of.outstanding().into()),
        outstanding_in_a_queue: subsystem.map_or(0, |of| queues(of).into_values().max().unwrap_or(0).into()),
        power_cuts: about.power_cuts,
        faults: subsystem.map(|of| of.armed_faults().iter().map(words).collect()).unwrap_or_default(),
        resets,
        drive,
        peers: firmware.and_then(|firmware| world.peers_status(firmware, wall)).unwrap_or_default(),
        progress: None,
        latencies: world.record.latencies.clone(),
        waits: waits(world),
    }
}

/// Commands in progress of each submission queue, by controller and queue.
pub(crate) fn queues<M: Medium>(subsystem: &Subsystem<M>) -> BTreeMap<(u8, u16), u32> {
    let mut counts = BTreeMap::new();
    for function in (0..=u8::MAX).filter(|function| subsystem.has_controller(*function)) {
        let live = subsystem.queues(function).submission;
        counts.extend((0..128).filter(|queue| live >> queue & 1 == 1).map(|queue| ((function, queue), 0)));
    }
    for command in (0..subsystem.slots()).filter_map(|slot| subsystem.command(Slot(slot))) {
        *counts.entry((command.function, command.queue)).or_default() += 1;
    }
    counts
}

/// How long programs waited for the levels of all logs.
pub(crate) fn waits<M>(world: &World<M>) -> Latencies {
    let mut waits = Latencies::default();
    world.ports.iter().filter_map(|port| port.ring.as_ref()).for_each(|ring| waits.merge(&ring.waits));
    waits
}

/// An armed fault, without how often it will still happen: that is no news.
fn words(fault: &Fault) -> String {
    match *fault {
        Fault::Status { nsid, blocks: (first, end), status, .. } => {
            format!("status {status:#05x} for blocks {first} to {end} of namespace {nsid}")
        }
        Fault::Delay { function, by, .. } => format!("completions of function {function} {} late", format_duration(by)),
        Fault::Lose { function, .. } => format!("completions of function {function} never come"),
        Fault::Duplicate { function, .. } => format!("completions of function {function} come twice"),
        Fault::Fatal { function } => format!("function {function} has failed"),
        Fault::HostMemory { fault, .. } => format!("host memory: {fault:?}").to_lowercase(),
        Fault::StuckShutdown { function } => format!("the shutdown of function {function} does not end"),
        Fault::Clear => "none".into(),
    }
}
