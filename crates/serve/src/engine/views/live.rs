//! A moment of a served device, for the live page.

use super::group;
use super::{About, drive_of, queues, state_of};
use crate::engine::{Engine, Firmware};
use tidewater_base::units::format_duration;
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::Fault;
use tidewater_gauges::{Drive, Moment};

/// What it is doing now.
pub(crate) fn moment(firmware: Option<&Firmware>, engine: &Engine, about: &About) -> Moment {
    let wall = Instant::ZERO + Duration::from_ns(about.wall.as_nanos() as u64);
    let subsystem = firmware.map(|firmware| &firmware.subsystem);
    let drive = subsystem.map(|of| {
        let drive = drive_of(engine, of.device(), about.now);
        Drive { is_read_only: drive.is_read_only || engine.storage.has_failed(), ..drive }
    });
    let resets = subsystem.map_or(0, |of| (0..of.functions()).map(|function| u64::from(of.resets(function))).sum());
    Moment {
        time_s: about.wall.as_secs_f64(),
        state: state_of(firmware, engine, about).into(),
        commands: engine.record.counters.commands,
        errors: engine.record.counters.errors,
        bytes: engine.record.counters.bytes,
        outstanding: subsystem.map_or(0, |of| of.outstanding().into()),
        outstanding_in_a_queue: subsystem.map_or(0, |of| queues(of).into_values().max().unwrap_or(0).into()),
        power_cuts: about.power_cuts,
        faults: {
            let of_firmware = subsystem.map(|of| of.armed_faults()).unwrap_or_default();
            let own = engine.faults.list().into_iter().filter(|listed| !listed.over);
            of_firmware.iter().map(words).chain(own.map(|listed| listed.fault.words())).collect()
        },
        faults_struck: engine.faults.struck_by_name().collect(),
        resets,
        drive,
        peers: firmware.and_then(|firmware| group::status(engine, firmware, wall)).unwrap_or_default(),
        progress: None,
        latencies: engine.record.latencies.clone(),
        waits: engine.rings.waits(),
    }
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
