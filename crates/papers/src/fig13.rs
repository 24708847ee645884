//! Figure 13: how late the shadow counters of one secondary or several are, and what their updates cost.

use super::{Measured, device, figures, refused};
use std::collections::VecDeque;
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
const WARM_UP: usize = 200;

/// How late the counters of all `secondaries` were for writes that come every `write_every` ns, with updates of
/// `update` bytes (0: the usual), microseconds, and the updates' share of the primary's link. A secondary copies its
/// counter every `period` ns, and with 2 `timers` its transport sends the copy by a timer of its own, which takes
/// `apart_percent` longer. With a `write_every` of 0 writes come as fast as the primary's link and the credit of
/// `mode` let them.
pub(super) fn measure(point: &Point) -> Measured {
    let (profile, seed) = (point.drive()?.profile, point.seed()?);
    let latency = Duration::from_secs_f64(point.number("bridge_latency_us")? * 1e-6);
    let every = Duration::from_secs_f64(point.number("write_every")? * 1e-9);
    let period = point.number("period")?;
    let writes = (point.number("writes")? * super::part(point)?) as usize;
    let sends_every = match point.number("timers")? as u32 {
        1 => Duration::ZERO,
        _ => Duration::from_secs_f64(period * (1.0 + point.number("apart_percent")? / 100.0) * 1e-9),
    };
    let usual = LinkModel::default();
    let overhead = match point.number("update")? as u32 {
        0 => usual.overhead,
        bytes => bytes - COUNTER,
    };
    let port = lane_bytes_per_second(profile.link.generation) * u64::from(profile.link.lanes);
    let nodes = point.number("secondaries")? as u8 + 1;
    let mode = if point.text("mode")? == "lazy" { Mode::Lazy } else { Mode::Eager };
    let devices: Result<Vec<_>, _> = (0..nodes).map(|node| device(&profile, seed.wrapping_add(node.into()))).collect();
    let model = LinkModel { latency, overhead, port, sends_every, ..usual };
    let mut cluster = Cluster::new(devices?, model, false, seed);
    let mut now = Instant::ZERO;
    // The secondaries first, so that the primary finds them.
    for node in (0..nodes).rev() {
        let others: Vec<u8> = (0..nodes).filter(|&other| other != node).collect();
        let setup = TransportSetup {
            role: if node == 0 { Role::Primary } else { Role::Secondary },
            node,
            mode,
            peers: NodeList::new(&others).ok_or_else(|| refused("so many secondaries are no group"))?,
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
    let updates = |cluster: &Cluster<_>| (1..nodes.into()).map(|node| cluster.traffic(node, 0).1).sum::<u64>();
    let mut next = Some(now + Duration::from_ms(1)); // The epoch is accepted by then.
    let mut waiting: VecDeque<(u64, Instant)> = VecDeque::new();
    let (mut written, mut us) = (0u64, Vec::with_capacity(writes));
    let (mut before, mut from, mut credited) = (0, now, 0);
    let (mut count, mut room) = (0, true);
    while count < WARM_UP + writes {
        let due = cluster.deadline().unwrap_or(Instant::NEVER);
        // A store without credit waits for it.
        if let Some(at) = next.filter(|&at| room && at < due) {
            now = now.max(at);
            next = (!every.is_zero()).then_some(now + every);
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
        let lane = &function.lanes()[0];
        let credit = lane.credit();
        room = written + u64::from(LINE) <= credit + lane.queue_size();
        let shadow = function.transport().shadows().map(|(_, counters)| counters[0]).min().unwrap_or(0);
        // Without a pace of its own the log is as fast as what is credited.
        let counted = if every.is_zero() { credit } else { shadow };
        while let Some((end, at)) = waiting.front().copied()
            && end <= counted
        {
            waiting.pop_front();
            count += 1;
            if count == WARM_UP {
                (before, from, credited) = (updates(&cluster), now, end);
            } else if count > WARM_UP {
                us.push(now.since(at).as_secs_f64() * 1e6);
            }
        }
        if next.is_none() && room {
            next = Some(cluster.through_port(now, 0, (LINE + usual.overhead).into()));
        }
        if waiting.len() > 10_000 {
            return Err(refused("the shadow counter does not move"));
        }
    }
    let seconds = now.since(from).as_secs_f64();
    let last = waiting.front().map_or(written, |&(end, _)| end - u64::from(LINE));
    us.sort_by(f64::total_cmp);
    let quantile = |q: f64| us[((us.len() - 1) as f64 * q).round() as usize];
    let ends = point.number("ends_percent")? / 100.0;
    Ok(figures([
        ("update_bytes", f64::from(overhead + COUNTER)),
        ("least_us", us[0]),
        ("lowest_us", quantile(ends)),
        ("lower_quartile_us", quantile(0.25)),
        ("median_us", quantile(0.5)),
        ("mean_us", us.iter().sum::<f64>() / us.len() as f64),
        ("upper_quartile_us", quantile(0.75)),
        ("highest_us", quantile(1.0 - ends)),
        ("most_us", us[us.len() - 1]),
        ("share", (updates(&cluster) - before) as f64 / seconds / port as f64),
        ("bytes_per_second", (last - credited) as f64 / seconds),
    ]))
}
