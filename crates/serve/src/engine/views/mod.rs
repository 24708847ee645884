//! Read-only views of a served device: its status, its metrics, and its moment for the live page.

mod group;
pub(super) mod live;
pub(super) mod metrics;
pub(super) mod status;

use super::{Engine, Firmware};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tidewater_base::Instant;
use tidewater_core::device::Device;
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::{Slot, Subsystem};
use tidewater_gauges::{Drive, Lane};
use tidewater_nand::Medium;

/// What neither the drive nor its surroundings know.
pub(crate) struct About {
    pub name: String,
    pub timing: Timing,
    pub wall: Duration,
    pub power_cuts: u64,
    pub ending: bool,
    /// By the drive's clock.
    pub now: Instant,
}

/// Its state, in a word or two.
fn state_of(firmware: Option<&Firmware>, engine: &Engine, about: &About) -> &'static str {
    match firmware {
        _ if about.ending => "shutting down",
        None => "without power",
        Some(firmware) if engine.storage.has_failed() || firmware.subsystem.device().ftl().is_read_only() => {
            "read-only"
        }
        Some(_) => "serving",
    }
}

/// The device's lanes as programs have filled them: it may not have taken all of a mapped ring yet.
fn as_appended<M: Medium>(engine: &Engine, device: &Device<M>, mut lanes: Vec<Lane>) -> Vec<Lane> {
    for lane in &mut lanes {
        let function = lane.function as usize;
        let Some(of) = device.fast().function(function) else { continue };
        let more = engine.rings.appended(function, of)[lane.lane as usize].saturating_sub(lane.tail);
        lane.tail += more;
        lane.ring_used += more;
    }
    lanes
}

/// The drive at this moment.
fn drive_of<M: Medium>(engine: &Engine, device: &Device<M>, now: Instant) -> Drive {
    let mut drive = Drive::of(device, now);
    drive.lanes = as_appended(engine, device, drive.lanes);
    drive
}

/// Commands in progress of each submission queue, by controller and queue.
fn queues<M: Medium>(subsystem: &Subsystem<M>) -> BTreeMap<(u8, u16), u32> {
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

/// An object's fields that have a value.
pub(super) fn known(mut fields: Value) -> Value {
    if let Value::Object(fields) = &mut fields {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}
