//! Waiting on one die: Poisson arrivals, one server, constant service.

use super::drives::{bus_us, command_us, link_us, one_die, request, serve, us};
use super::table::{Bound, Row, Section};
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::ftl::Precondition::Filled;
use tidewater_core::profile::Profile;
use tidewater_sim::Pacing;
use tidewater_sim::workload::{Op, Request};

const UNIT: u64 = 4_096;
const REQUESTS: usize = 400_000;

/// Without cache commands the die is held from the command to the last byte: one service time, one server.
fn profile() -> Profile {
    one_die(&["nand.cell=slc", "nand.cache=false", "host.command_interval=0ps", "host.queue_entries=65536"])
}

fn service_us(profile: &Profile) -> f64 {
    us(profile.nand.command_time) + us(profile.nand.read_time[0]) + bus_us(profile, UNIT)
}

fn mean_latency_us(profile: &Profile, load: f64) -> f64 {
    let mut rng = Rng::new(1, b"arrivals");
    let units = profile.drive.capacity / UNIT;
    let gap = service_us(profile) / load * 1e-6;
    let mut at = Instant::ZERO;
    let requests = (0..REQUESTS).map(|_| {
        at += Duration::from_secs_f64(rng.exponential(gap));
        Request { arrival: at, ..request(Op::Read, rng.below(units) * UNIT, UNIT) }
    });
    serve(profile, Filled(1.0), Pacing::Arrival, requests).record.latency("read").expect("the record has reads").mean
}

pub fn section() -> Section {
    let profile = profile();
    let service = service_us(&profile);
    let fixed = command_us(&profile) + link_us(&profile, UNIT) + service;
    let mut rows = Vec::new();
    for load in [0.3, 0.6, 0.8] {
        rows.push(Row {
            what: format!("mean wait of reads on one die, load {load}"),
            form: "M/D/1: load S / (2 (1 - load))".into(),
            expected: load * service / (2.0 * (1.0 - load)),
            measured: mean_latency_us(&profile, load) - fixed,
            unit: "us",
            bound: Bound::Within(0.05),
        });
    }
    let mut rng = Rng::new(2, b"closed loop");
    let units = profile.drive.capacity / UNIT;
    let requests = (0..20_000).map(|_| request(Op::Read, rng.below(units) * UNIT, UNIT));
    let record = serve(&profile, Filled(1.0), Pacing::Depth(16), requests).record;
    rows.push(Row {
        what: "mean latency of reads on one die at queue depth 16".into(),
        form: "Little: 16 S".into(),
        expected: 16.0 * service,
        measured: record.latency("read").expect("the record has reads").mean,
        unit: "us",
        bound: Bound::Within(0.02),
    });
    Section { id: "queueing", rows }
}
