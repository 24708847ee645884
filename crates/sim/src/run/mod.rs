//! One run: a workload on a drive, under the virtual clock.

mod fill;
mod options;
#[cfg(test)]
mod tests;
mod warnings;
mod world;

pub use fill::latency;
pub use options::{
    MakeDevice, OnMoment, OnProgress, OnReady, Pacing, Progress, QueueOf, RunError, RunOptions, parse_precondition,
    precondition_text,
};

use std::time;

use tidewater_base::Instant;
use tidewater_base::units::{plural_exact, seconds};
use tidewater_core::device::{with_policy, write_policy};
use tidewater_core::drive::{Clock, End, VirtualClock, drive};
use tidewater_core::memory::{Use, place};
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Input};
use tidewater_nand::Medium;
use tidewater_report::Record;
use tidewater_report::record::Recovery;

use crate::host_memory::{Lent, LentMemory};
use crate::metrics::user_cpu_seconds;
use crate::request::Source;
use world::{Halt, Host};

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Every figure.
    pub record: Record,
    /// The drive, as it was when the last request had completed.
    pub device: Device,
}

/// Serves the requests of `source` on a new drive, until none is outstanding.
///
/// The drive has the capacity of the options, or else of `[drive] capacity`, or else what `[nand] blocks_per_plane`
/// allows, or else what the workload needs ([`Source::extent`]).
///
/// Requests larger than `[host] transfer_max` become several commands, and end with the last of them. Addresses that
/// are not aligned to blocks are rounded outwards, except those of deallocations, which are rounded inwards.
///
/// # Errors
/// See [`RunError`]. Cancelling is not an error: the record then says that it is partial.
pub fn run(profile: &Profile, source: impl Source, mut options: RunOptions) -> Result<Outcome, RunError> {
    check(profile, &options)?;
    if given_capacity(profile, &options.device)?.is_none() {
        let unit = u64::from(profile.ftl.unit_size);
        let extent = source.extent().ok_or(RunError::NoCapacity)?;
        options.device.capacity = extent.max(1).div_ceil(unit).saturating_mul(unit);
    }
    options.device.stamps |= options.power_cut.is_some();
    let device = match options.make.take() {
        Some(make) => make(profile, options.device)?,
        None => Device::new(profile, options.device)?,
    };
    let device = match options.policy.take() {
        Some(policy) => with_policy(device, &policy)?,
        None => device,
    };
    if let Some(ready) = options.ready.take() {
        ready();
    }
    run_on(device, source, options)
}

/// The usable bytes that a drive will have, where options or profile say so. `None`: it follows the workload.
///
/// # Errors
/// When there can be no such drive.
pub fn given_capacity(profile: &Profile, options: &tidewater_core::Options) -> Result<Option<u64>, RunError> {
    if options.capacity == 0 && profile.drive.capacity == 0 && profile.nand.blocks_per_plane == 0 {
        return Ok(None);
    }
    let (profile, plan) = tidewater_core::device::resolve(profile, options)?;
    Ok(Some(plan.units * u64::from(profile.ftl.unit_size)))
}

/// As [`run`], on a drive that is there already but has served nothing yet. The options of the device are only noted in
/// the record.
///
/// # Errors
/// See [`RunError`].
pub fn run_on(device: Device, source: impl Source, options: RunOptions) -> Result<Outcome, RunError> {
    check(device.profile(), &options)?;
    if device.events_handled() > 0 {
        return Err(RunError::Options(
            "the drive has served before: its clock does not begin with the workload's".into(),
        ));
    }
    let (wall, cpu) = (time::Instant::now(), user_cpu_seconds());
    let profile = device.profile().host.clone();
    let capacity = device.capacity();
    let mut device = device;
    let mut host = Host::new(source, options, &profile, capacity);
    if let Some(error) = host.error.take() {
        return Err(error);
    }
    if host.pulled == 0 {
        return Err(RunError::NoRequests { warmup: 0 });
    }
    // What was done to the drive before counts for nothing.
    device.reset_statistics();
    let served = serve(&mut device, &mut host);
    check_policy(&device)?;
    let Served { now, events_before } = served?;
    let (cancelled, cut) = (host.halt == Halt::Cancelled, host.halt == Halt::PowerCut);
    if !cancelled && !cut {
        assert_nothing_outstanding(&device, &host)?;
        if host.metrics.requests() == 0 {
            return Err(RunError::NoRequests { warmup: host.pulled.min(host.options.warmup_requests) });
        }
    }
    host.sample(now, &device.ftl().statistics);
    host.report(now);
    host.show(&device, now, true);
    if let Some(out) = &mut host.options.requests {
        out.finish().map_err(RunError::Output)?;
    }
    let end = if cancelled || cut { now } else { host.last_completion };
    let mut record = fill::record(&device, &host, end);
    record.timing_events = device.events_handled() - events_before;
    record.events_per_request = tidewater_report::record::ratio(record.timing_events as f64, record.requests as f64);
    record.wall_seconds = wall.elapsed().as_secs_f64();
    record.user_cpu_seconds = user_cpu_seconds() - cpu;
    if cancelled {
        record.partial = true;
        record.partial_reason = Some("interrupted".into());
    }
    if host.options.power_cut.is_some() && !cut && !cancelled {
        record.warnings.push("the power was not cut: the workload ended before its time came".into());
    }
    if cut {
        if record.requests == 0 {
            record.warnings.push("the power was cut before anything was measured".into());
        }
        let under_way = match u64::from(host.outstanding()) {
            0 => String::new(),
            some => format!(", nor {} under way", plural_exact(some, "request")),
        };
        record.warnings.push(format!(
            "the power was cut after {}: what comes later in the workload is not counted{under_way}",
            seconds(now.since(Instant::ZERO).as_secs_f64())
        ));
        device = recover(device, &host, &mut record)?;
    }
    Ok(Outcome { record, device })
}

/// The power fails and comes back; the drive recovers.
fn recover<S: Source>(device: Device, host: &Host<S>, record: &mut Record) -> Result<Device, RunError> {
    let profile = device.profile().clone();
    let unflushed = unflushed(&device, host);
    // A policy from outside is asked once more what it holds: that is what the power cut leaves.
    device.write_buffer().pages();
    check_policy(&device)?;
    let mut device = Device::power_on(&profile, device.cut_power())?;
    while let Some(at) = device.deadline().filter(|_| device.is_recovering()) {
        let taken = device.handle(at, Input::Timer);
        debug_assert!(taken.is_ok());
    }
    let report = device.recovery_report().ok_or_else(|| RunError::Stalled(device.describe_outstanding()))?;
    check_policy(&device)?;
    device.ftl().assert_consistent();
    record.recovery = Some(Recovery {
        seconds: report.time.as_secs_f64(),
        pages_read: report.reads,
        pages_lost: Some(unflushed + device.dump_lost()),
    });
    Ok(device)
}

/// Pages of writes that have completed and that are in volatile memory alone: in the write buffer, or on their way from
/// it to flash.
fn unflushed<S: Source>(device: &Device, host: &Host<S>) -> u64 {
    let buffer = device.write_buffer();
    let survives = place(device.profile()).is_ok_and(|placed| placed.survives(Use::WriteBuffer));
    // Without a buffer, a write completes when it is on flash.
    if !buffer.is_enabled() || survives && !host.options.device.volatile_buffer {
        return 0;
    }
    let page_bytes = u64::from(device.profile().ftl.unit_size);
    let mut pages: Vec<u32> =
        buffer.contents().into_iter().chain(device.ftl().staged()).map(|(page, _)| page).collect();
    pages.sort_unstable();
    pages.dedup();
    pages.into_iter().filter(|&page| !host.is_writing(page.into(), page_bytes)).count() as u64
}

/// How serving ended.
struct Served {
    now: Instant,
    /// Events that the device had handled when measuring began.
    events_before: u64,
}

/// Serves until the host has all it wants, or is cancelled.
fn serve<S: Source>(device: &mut Device, host: &mut Host<S>) -> Result<Served, RunError> {
    let mut clock = VirtualClock::default();
    let mut events_before = device.events_handled();
    let profile = device.profile().clone();
    let mut memory = LentMemory::of_profile(&profile, device, clock.now());
    loop {
        let end = if device.host_memory().is_used() {
            drive(device, &mut clock, &mut Lent { world: host, memory: &mut memory })
        } else {
            drive(device, &mut clock, host)
        };
        match (end, host.halt) {
            (End::Stopped, Halt::Measure) => {
                device.reset_statistics();
                events_before = device.events_handled();
                host.begin_measuring(clock.now());
            }
            (End::Stopped, Halt::Watched) => {
                host.show(device, clock.now(), false);
                host.halt = Halt::Running;
            }
            (End::Stopped, Halt::Finished | Halt::Cancelled | Halt::PowerCut) => {
                return Ok(Served { now: clock.now(), events_before });
            }
            (End::Stopped, Halt::Failed) => return Err(host.error.take().expect("a failed host says why")),
            // Neither has anything to wait for, yet the host is not done: that is never a quiet end.
            (End::Quiet, _) | (End::Stopped, Halt::Stalled | Halt::Running) => {
                return Err(RunError::Stalled(host.describe() + &device.describe_outstanding()));
            }
        }
    }
}

/// Nothing of a run counts whose write policy, one from outside, has a fault.
fn check_policy(device: &Device) -> Result<(), RunError> {
    match device.write_buffer().fault() {
        Some(fault) => Err(RunError::Policy { name: write_policy(device).to_owned(), fault: fault.clone() }),
        None => Ok(()),
    }
}

/// No run ends with a request outstanding.
fn assert_nothing_outstanding<M: Medium, S: Source>(device: &Device<M>, host: &Host<S>) -> Result<(), RunError> {
    if device.outstanding() > 0 || host.outstanding() > 0 {
        return Err(RunError::Stalled(host.describe() + &device.describe_outstanding()));
    }
    Ok(())
}

/// Refuses options that have no meaning.
fn check(profile: &Profile, options: &RunOptions) -> Result<(), RunError> {
    let refuse = |text: String| Err(RunError::Options(text));
    if !(options.speedup.is_finite() && options.speedup > 0.0) {
        return refuse(format!("a speed-up of {} has no meaning; it must be above 0", options.speedup));
    }
    if let Pacing::Depth(depth) | Pacing::ArrivalAndDepth(depth) = options.pacing {
        if !(1..=65_535).contains(&depth) {
            return refuse(format!("a queue depth of {depth} is not in 1 to 65535"));
        }
        let queues = profile.host.queues;
        let room = u64::from(queues) * u64::from(profile.host.queue_entries - 1);
        if u64::from(depth) > room {
            return refuse(format!(
                "a queue depth of {depth} does not fit the drive's {queues} submission queues, which hold {room} \
                 commands; give a larger [host] queue_entries"
            ));
        }
    }
    if options.limit == Some(0) {
        return refuse("a limit of 0 requests leaves nothing to do".into());
    }
    if options.runtime.is_some_and(|time| Instant::ZERO + time > options::LAST_ARRIVAL) {
        return refuse("virtual time ends after 200 days; give a shorter run time".into());
    }
    Ok(())
}
