//! A moment of a served device, for the live page.

use super::served::Served;
use super::status::{About, state_of};
use super::world::World;
use tidewater_base::units::format_duration;
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::Fault;
use tidewater_gauges::{Drive, Moment};

/// What it is doing now.
pub(super) fn moment<M>(machine: Option<&Served>, world: &World<M>, about: &About) -> Moment {
    let wall = Instant::ZERO + Duration::from_ns(about.wall.as_nanos() as u64);
    let subsystem = machine.map(|machine| &machine.subsystem);
    let resets = subsystem.map_or(0, |of| (0..of.functions()).map(|function| u64::from(of.resets(function))).sum());
    Moment {
        time_s: about.wall.as_secs_f64(),
        state: state_of(machine, world, about).into(),
        commands: world.counters.commands,
        errors: world.counters.errors,
        bytes: world.counters.bytes,
        outstanding: subsystem.map_or(0, |of| of.outstanding().into()),
        power_cuts: about.power_cuts,
        faults: subsystem.map(|of| of.armed_faults().iter().map(words).collect()).unwrap_or_default(),
        resets,
        drive: subsystem.map(|of| Drive::of(of.device(), about.now)),
        peers: machine.and_then(|machine| world.peers_status(machine, wall)).unwrap_or_default(),
        progress: None,
        latencies: world.latencies.clone(),
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
