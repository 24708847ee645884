//! Appends to the fast side: figures 10 and 11 of X-SSD.

use super::{Measured, at, device, figures, time};
use tidewater_base::Duration;
use tidewater_core::Device;
use tidewater_core::cost::lane_bytes_per_second;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::profile::Profile;
use tidewater_sim::host::{Appender, Application, Attached, Bursts, Checks, LogClient, client_of};
use tidewater_sim::pcie::Mapping;
use tidewater_study::Failure;
use tidewater_study::experiment::Point;

/// Bytes of a line, which is what a TLP of the log carries.
const LINE: f64 = 64.0;

/// Link bandwidth left for lines of log after TLP framing, bytes a second.
fn framing_limit(profile: &Profile) -> f64 {
    let link = &profile.link;
    let rate = (lane_bytes_per_second(link.generation) * u64::from(link.lanes)) as f64;
    rate * LINE / (LINE + f64::from(link.tlp_overhead))
}

/// Runs an application on the fast side.
fn run<A: Application>(point: &Point, app: A) -> Result<(Device, Attached<A>), Failure> {
    let seed = point.seed()?;
    let mut device = device(&point.drive()?.profile, seed)?;
    let mapping = if point.text("mapping")? == "UC" { Mapping::Uncached } else { Mapping::WriteCombining };
    let write_bytes = Some(point.number("write_bytes")? as u64).filter(|bytes| *bytes > 0);
    let mut client = client_of(&device, mapping, write_bytes, seed);
    let checked = || Ok::<_, Failure>(point.number("check_bytes")? as u64);
    client.checks = match &*point.text("checks").unwrap_or_default() {
        "each" => Checks::Each(checked()?),
        "drained" => Checks::Drained(checked()?),
        _ => Checks::UsedUp,
    };
    let shift = device.profile().host.block_size.trailing_zeros();
    let mut host = Attached::new(app, Some(client), shift);
    drive(&mut device, &mut VirtualClock::default(), &mut host);
    Ok((device, host))
}

/// Appends of `append_bytes`, each waited for if it `syncs`, `every_us` on average or one after the other; or in bursts
/// of `burst`. The counter is read when the credit is used up, and with `checks` after each `check_bytes`, too. From
/// `from_us` on they are measured. `loads` of the credit counter and groups that were credited are
/// counted from the start.
pub(super) fn measure(point: &Point) -> Measured {
    let (bytes, syncs) = (point.number("append_bytes")? as u64, point.value("syncs")?.is_true());
    let us = |name| Ok::<_, Failure>(Duration::from_secs_f64(point.number(name)? * 1e-6));
    let (warm, every, time) = (us("from_us")?, us("every_us")?, time(point, "run_us", 1e-6)?);
    let burst = point.number("burst")? as u64;
    let limit = framing_limit(&point.drive()?.profile);
    if burst > 0 {
        // Flash programs a page in 0.6 ms.
        let app = Bursts::new((bytes, burst), syncs, Duration::from_ms(1), at(time));
        return Ok(figures([("bytes_per_second", run(point, app)?.1.app.bandwidth()), ("limit", limit)]));
    }
    let (device, host) = run(point, Appender::new(bytes, syncs, every, at(warm), at(warm + time)))?;
    let credited = device.fast().function(0).map_or(0, |function| function.lanes()[0].credit());
    Ok(figures([
        ("bytes_per_second", host.app.bandwidth()),
        ("latency_us", host.app.latency.mean().as_secs_f64() * 1e6),
        ("loads", host.client.as_ref().map_or(0, LogClient::loads) as f64),
        ("groups", (credited / bytes) as f64),
        ("limit", limit),
    ]))
}
