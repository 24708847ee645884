//! Figure 11: the size of the intake queue against that of the group commit.

use super::setting::{ExperimentError, Setting, at, device};
use super::{Findings, Options, check, column, figure, list, paper, series};
use tidewater_base::Duration;
use tidewater_base::units::format_bytes;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_report::experiment::Form;
use tidewater_sim::host::{Appender, Attached, LogClient, client_of};
use tidewater_sim::pcie::Mapping;

/// Figures of groups of one size through a queue of one size.
struct Groups {
    latency_us: f64,
    bytes_per_second: f64,
    /// Loads of the credit counter, and groups that were credited, from the start on.
    loads: u64,
    groups: u64,
}

/// Groups, one after the other or as far apart on average as `every` says.
fn measure(
    setting: &Setting,
    (queue, size): (f64, f64),
    every: Duration,
    options: &Options<'_>,
) -> Result<Groups, ExperimentError> {
    let time = setting.time("run_us", 1e-6, options.quick)?;
    let warm = Duration::from_us(300);
    let profile = setting.profile(&[("fast.queue_size", format!("{}", queue as u64))])?;
    let mut device = device(&profile, options.seed)?;
    let client = client_of(&device, Mapping::WriteCombining, None, options.seed);
    let app = Appender::new(size as u64, true, every, at(warm), at(warm + time));
    let mut host = Attached::new(app, Some(client), profile.host.block_size.trailing_zeros());
    drive(&mut device, &mut VirtualClock::default(), &mut host);
    let credited = device.fast().function(0).map_or(0, |function| function.lanes()[0].credit());
    Ok(Groups {
        latency_us: host.app.latency.mean().as_secs_f64() * 1e6,
        bytes_per_second: host.app.bandwidth(),
        loads: host.client.as_ref().map_or(0, LogClient::loads),
        groups: credited / size as u64,
    })
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let (sizes, queues) = (setting.numbers("sizes")?, setting.numbers("queues")?);
    let record = setting.number("record_bytes")?;
    let mut findings = Findings {
        columns: vec![
            column("queue_bytes", "bytes of the intake queue"),
            column("commit_bytes", "bytes of a group commit"),
            column("latency_us", "mean time from the first store until all is credited"),
            column("bytes_per_second", "log bytes credited a second"),
        ],
        ..Findings::default()
    };
    let mut measured: Vec<Vec<(f64, f64)>> = Vec::new();
    for (i, &queue) in queues.iter().enumerate() {
        let mut points = Vec::new();
        for (j, &size) in sizes.iter().enumerate() {
            let groups = measure(setting, (queue, size), Duration::ZERO, options)?;
            let point = (groups.latency_us, groups.bytes_per_second);
            findings.rows.push(vec![queue.into(), size.into(), point.0.into(), point.1.into()]);
            points.push(point);
            options.done((i * sizes.len() + j + 1) as f64 / (queues.len() * sizes.len()) as f64)?;
        }
        measured.push(points);
    }
    // With queues at least as large as the write, only the write counts.
    let mut worst: f64 = 0.0;
    for (j, &size) in sizes.iter().enumerate() {
        let enough =
            || queues.iter().zip(&measured).filter(|(queue, _)| **queue >= size).map(|(_, points)| points[j].0);
        worst = worst.max(enough().fold(0.0, f64::max) / enough().fold(f64::MAX, f64::min) - 1.0);
    }
    findings.checks.push(check(
        "latency-by-write",
        "queues that are large enough give latencies within 5 %",
        format!("at most {:.1} % apart", worst * 100.0),
        worst <= 0.05,
    ));
    let of_largest = measured.last().expect("a list of queues is not empty");
    let per_byte = of_largest.iter().map(|point| point.0).is_sorted_by(|a, b| a < b);
    findings.checks.push(check(
        "latency-grows",
        "with the largest queue each above the one before",
        list(of_largest.iter().map(|point| point.0), "us"),
        per_byte,
    ));
    // The largest queue over each other one: where that holds the group, and where it does not.
    let (mut holds, mut lacks) = (f64::MAX, f64::MAX);
    for (&queue, points) in queues.iter().zip(&measured).take(queues.len() - 1) {
        for (j, &size) in sizes.iter().enumerate() {
            let over = (of_largest[j].1 / points[j].1 - 1.0) * 100.0;
            let least = if queue >= size { &mut holds } else { &mut lacks };
            *least = least.min(over);
        }
    }
    findings.checks.push(check(
        "largest-queue-best",
        "for each size not below any other queue, and above each that does not hold a group",
        format!("{lacks:+.1} % over those that do not hold a group, {holds:+.1} % over those that do, at the least"),
        lacks > 0.0 && holds >= 0.0,
    ));
    // One load is the wait for the record; what is more was between its stores. The last record may be under way.
    let apart = Duration::from_secs_f64(setting.number("record_every_us")? * 1e-6);
    let of_queue =
        |queue: f64| measure(setting, (queue, record), apart, options).map(|groups| (groups.loads, groups.groups));
    let [(more, of_smallest), (loads, records)] = [of_queue(queues[0])?, of_queue(queues[queues.len() - 1])?];
    findings.checks.push(check(
        "no-check-during-writes",
        format!(
            "records of {} through the largest queue: one load of the counter each, when all is written",
            format_bytes(record as u64)
        ),
        format!(
            "{:.2} loads for each record, {:.2} through the smallest queue",
            loads as f64 / records as f64,
            more as f64 / of_smallest as f64
        ),
        records > 0 && loads <= records + 1,
    ));
    let mut latency = figure("Latency", Form::Lines, ("group commit (bytes)", true), ("latency (us)", true));
    let mut rate = figure("Throughput", Form::Lines, ("group commit (bytes)", true), ("throughput (GB/s)", false));
    for (&queue, points) in queues.iter().zip(&measured) {
        let name = format!("queue {}", format_bytes(queue as u64));
        latency.series.push(series(&*name, sizes.iter().copied().zip(points.iter().map(|p| p.0))));
        rate.series.push(series(&*name, sizes.iter().copied().zip(points.iter().map(|p| p.1 / 1e9))));
    }
    rate.series.push(paper("what the platform carries", sizes.iter().map(|&size| (size, 2.0))));
    findings.figures = vec![latency, rate];
    Ok(findings)
}
