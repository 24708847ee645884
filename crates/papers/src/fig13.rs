//! Figure 13: how late the shadow counter is, and what its updates cost.

use super::{Measured, device, figures, refused};
use tidewater_base::{Duration, Instant};
use tidewater_core::Output;
use tidewater_core::cost::lane_bytes_per_second;
use tidewater_core::device::Input;
use tidewater_core::drive::Machine;
use tidewater_core::fast::Content;
use tidewater_sim::cluster::{Cluster, LinkModel, Said};
use tidewater_study::experiment::Point;
use tidewater_wire::vendor::{AdminCommand, Epoch, Mode, NodeList, Role, TransportSetup};

const LINE: u32 = 64;
/// Bytes of a counter in an update.
const COUNTER: u32 = 8;
/// Writes before the first that is measured: the flow has found its pace by then.
const WARM_UP: u32 = 200;

/// How late the counter was for writes that come every `write_every` ns, with updates of `update_bytes` (0: the usual)
/// every `period` ns, microseconds, and the updates' share of bandwidth.
pub(super) fn measure(point: &Point) -> Measured {
    let (profile, seed) = (point.drive()?.profile, point.seed()?);
    let latency = Duration::from_secs_f64(point.number("bridge_latency_us")? * 1e-6);
    let every = Duration::from_secs_f64(point.number("write_every")? * 1e-9);
    let period = point.number("period")?;
    let writes = (point.number("writes")? * super::part(point)?) as usize;
    let usual = LinkModel::default();
    let overhead = match point.number("update")? as u32 {
        0 => usual.overhead,
        bytes => bytes - COUNTER,
    };
    let devices = vec![device(&profile, seed)?, device(&profile, seed.wrapping_add(1))?];
    let mut cluster = Cluster::new(devices, LinkModel { latency, overhead, ..usual }, false, seed);
    let mut now = Instant::ZERO;
    // The secondary first, so that the primary finds it.
    for node in [1u8, 0] {
        let setup = TransportSetup {
            role: if node == 0 { Role::Primary } else { Role::Secondary },
            node,
            mode: Mode::Eager,
            peers: NodeList::new(&[1 - node]).expect("one peer"),
            epoch: Epoch::ZERO,
            report_period_ns: period as u64,
            stall_timeout_ns: 1_000_000,
        };
        let sqe = AdminCommand::TransportSetup { function: 0 }.emit(1);
        let input = Input::Capsule { function: 0, sqe, data: &setup.to_bytes() };
        assert!(cluster.handle(now, (node.into(), input)).is_ok(), "capsules are never refused");
    }
    while let Some((_, said)) = cluster.poll() {
        if let Said::Output(Output::Reply { status, .. }) = said
            && !status.is_success()
        {
            return Err(refused(format_args!("the set-up of replication failed: {status}")));
        }
    }
    let place = cluster.device(0).expect("the node has power").fast().bar_layout(0).lane[0];
    let mut next = now + Duration::from_ms(1); // The epoch is accepted by then.
    let mut waiting: std::collections::VecDeque<(u64, Instant)> = Default::default();
    let (mut written, mut us) = (0u64, Vec::with_capacity(writes));
    let (mut before, mut from) = ((0, 0), now);
    let mut skipped = 0;
    while us.len() < writes {
        let due = cluster.deadline().unwrap_or(Instant::NEVER);
        if next < due {
            now = next;
            next = now + every;
            let address = place.address(written);
            let store = Input::Store { function: 0, address, content: Content::Absent(LINE) };
            assert!(cluster.handle(now, (0, store)).is_ok(), "stores are never refused");
            written += u64::from(LINE);
            waiting.push_back((written, now));
        } else {
            now = due;
            cluster.on_deadline(now);
        }
        let function = cluster.device(0).and_then(|d| d.fast().function(0)).expect("the node has a fast side");
        let shadow = function.transport().shadows().next().map_or(0, |(_, counters)| counters[0]);
        while let Some((end, at)) = waiting.front().copied()
            && end <= shadow
        {
            waiting.pop_front();
            if skipped < WARM_UP {
                skipped += 1;
                (before, from) = (cluster.traffic(1, 0), now);
            } else {
                us.push(now.since(at).as_secs_f64() * 1e6);
            }
        }
        if waiting.len() > 10_000 {
            return Err(refused("the shadow counter does not move"));
        }
    }
    let seconds = now.since(from).as_secs_f64();
    let bytes = (cluster.traffic(1, 0).1 - before.1) as f64;
    let link = (lane_bytes_per_second(profile.link.generation) * u64::from(profile.link.lanes)) as f64;
    us.sort_by(f64::total_cmp);
    let quantile = |q: f64| us[((us.len() - 1) as f64 * q).round() as usize];
    Ok(figures([
        ("update_bytes", f64::from(overhead + COUNTER)),
        ("lowest_us", quantile(0.0)),
        ("lower_quartile_us", quantile(0.25)),
        ("median_us", quantile(0.5)),
        ("mean_us", us.iter().sum::<f64>() / us.len() as f64),
        ("upper_quartile_us", quantile(0.75)),
        ("highest_us", quantile(1.0)),
        ("share", bytes / seconds / link),
    ]))
}
