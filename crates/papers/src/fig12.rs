//! Figure 12: who gets the flash.

use super::{Measured, at, device, figures, time};
use tidewater_base::Duration;
use tidewater_core::Device;
use tidewater_core::drive::{Clock, VirtualClock, drive};
use tidewater_core::profile::Profile;
use tidewater_sim::host::{Appender, Attached, BlockWrites, client_of, is_full};
use tidewater_sim::pcie::Mapping;
use tidewater_study::experiment::Point;

/// Write bandwidth of a drive's flash, in bytes of data a second: the lesser of its buses' and its cells'.
fn flash_bandwidth(profile: &Profile) -> f64 {
    let nand = &profile.nand;
    let row = f64::from(nand.page_size * nand.planes);
    let on_bus = f64::from((nand.page_size + nand.oob_size) * nand.planes) / nand.bus_rate as f64
        + nand.command_time.as_secs_f64();
    let kinds = nand.cell.page_kinds();
    let program = nand.program_time[..kinds].iter().map(|t| t.as_secs_f64()).sum::<f64>() / kinds as f64;
    let (buses, dies) = (f64::from(nand.channels), f64::from(nand.dies()));
    // Without cache commands a die's bus time and program follow each other.
    let per_die = if nand.cache { program } else { program + on_bus };
    (buses * row / on_bus).min(dies * row / per_die)
}

/// Bytes of the log that are on flash.
fn on_flash(device: &Device) -> u64 {
    device.fast().function(0).map_or(0, |function| function.lanes()[0].durable())
}

/// Block writes and a log that ask for `conventional` and `fast` percent of the flash's write bandwidth; what they get
/// of it, in percent.
pub(super) fn measure(point: &Point) -> Measured {
    let (bytes, depth) = (point.number("write_bytes")? as u64, point.number("depth")? as u16);
    let (profile, seed) = (point.drive()?.profile, point.seed()?);
    let [conventional, fast] = [point.number("conventional")? / 100.0, point.number("fast")? / 100.0];
    let flash = flash_bandwidth(&profile);
    let every = |share: f64| Duration::from_secs_f64(bytes as f64 / (flash * share));
    let time = time(point, "run_ms", 1e-3)?;
    // More than the flash takes fills the ring sooner or later: only then is it measured.
    let fill = super::time(point, "fill_ms", 1e-3)?;
    let warm = at(if fast + conventional > 1.0 { fill } else { Duration::from_ps(time.as_ps() / 4) });
    let mut device = device(&profile, seed)?;
    let client = client_of(&device, Mapping::WriteCombining, None, seed);
    let shift = profile.host.block_size.trailing_zeros();
    let mut host = Attached::new(Appender::new(bytes, false, every(fast), warm, warm), Some(client), shift);
    host.blocks = Some(BlockWrites::new((bytes, 4 << 30, shift), every(conventional), depth, warm, warm));
    host.stops_when_full = true;
    let mut clock = VirtualClock::default();
    drive(&mut device, &mut clock, &mut host);
    let (begin, ring_full) = (clock.now(), is_full(&device));
    let end = begin + time;
    host.app.measure(begin, end);
    host.blocks.iter_mut().for_each(|blocks| blocks.measure(begin, end));
    host.stops_when_full = false;
    let before = on_flash(&device);
    drive(&mut device, &mut clock, &mut host);
    let share = |bytes: f64| bytes / flash * 100.0;
    let logged = (on_flash(&device) - before) as f64 / clock.now().since(begin).as_secs_f64();
    Ok(figures([
        ("conventional_share", share(host.blocks.as_ref().map_or(0.0, BlockWrites::bandwidth))),
        ("fast_share", share(logged)),
        ("credited_share", share(host.app.bandwidth())),
        ("ring_full", f64::from(u8::from(ring_full))),
    ]))
}
