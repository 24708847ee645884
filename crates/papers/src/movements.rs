//! Section 4.3: two movements of each logged byte inside the device, against four when the application destages.

use super::setting::{ExperimentError, Setting, at, device};
use super::{Findings, Options, check, column, figure, paper, series};
use tidewater_base::Duration;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::memory::Use;
use tidewater_report::experiment::Form;
use tidewater_sim::host::{Appender, Attached, BlockWrites, client_of};
use tidewater_sim::pcie::Mapping;

/// Bytes of an append, and of a block write.
const PIECE: u64 = 16 << 10;

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let bytes = setting.number("log_bytes")? * if options.quick { 0.1 } else { 1.0 };
    // Slow enough for either side, and long enough for all of it to reach flash.
    let every = Duration::from_us(40);
    let time = every * (bytes as u64 / PIECE);
    let profile = setting.profile(&[])?;
    let shift = profile.host.block_size.trailing_zeros();

    let mut fast = device(&profile, options.seed)?;
    let app = Appender::new(PIECE, true, every, at(Duration::ZERO), at(time));
    let mut host = Attached::new(app, Some(client_of(&fast, Mapping::WriteCombining, None, options.seed)), shift);
    drive(&mut fast, &mut VirtualClock::default(), &mut host);
    let lane = &fast.fast().function(0).expect("the drive has a fast side").lanes()[0];
    let logged = lane.persisted() as f64;
    let ring = fast.traffic(Use::FastRing).unwrap_or_default();
    // What is still in the ring has yet to be read.
    let (ring_written, ring_read) = (ring.written as f64 / logged, ring.read as f64 / lane.placed() as f64);
    options.done(0.5)?;

    // The application has put the log into persistent memory, and now writes it to the drive.
    let mut conventional = device(&profile, options.seed)?;
    let idle = Appender::new(PIECE, false, Duration::ZERO, at(time), at(time));
    let mut host = Attached::new(Idle(idle), None, shift);
    host.blocks = Some(BlockWrites::new((PIECE, 1 << 30, shift), every, 1, at(Duration::ZERO), at(time)));
    drive(&mut conventional, &mut VirtualClock::default(), &mut host);
    let logged = host.blocks.as_ref().map_or(0, |blocks| blocks.bytes) as f64;
    let buffer = conventional.traffic(Use::WriteBuffer).unwrap_or_default();
    let dirty = conventional.write_buffer().len() as f64 * f64::from(profile.ftl.unit_size);
    let from_host = conventional.link_bytes_in() as f64;
    let steps = [
        ("application", "into persistent memory", 1.0),
        ("application", "from persistent memory by DMA", from_host / logged),
        ("application", "into the data buffer", buffer.written as f64 / logged),
        ("application", "from the data buffer to flash", buffer.read as f64 / (buffer.written as f64 - dirty).max(1.0)),
        ("device", "into the ring's memory", ring_written),
        ("device", "from the ring's memory to flash", ring_read),
    ];
    options.done(1.0)?;
    let sum = |who: &str| steps.iter().filter(|step| step.0 == who).map(|step| step.2).sum::<f64>();
    let (by_device, by_application) = (sum("device"), sum("application"));
    let axis = ("1: the device destages, 2: the application does", false);
    let mut plot = figure("Movements", Form::Bars, axis, ("movements of each logged byte", false));
    plot.series.push(series("by the device", [(1.0, by_device)]));
    plot.series.push(series("by the application", [(2.0, by_application)]));
    plot.series.push(paper("by the device", [(1.0, 2.0)]));
    plot.series.push(paper("by the application", [(2.0, 4.0)]));
    Ok(Findings {
        columns: vec![
            column("destaged_by", "who moves the log to flash"),
            column("step", "which memory is written or read"),
            column("movements", "bytes moved for each logged byte"),
        ],
        rows: steps.iter().map(|&(who, step, moved)| vec![who.into(), step.into(), moved.into()]).collect(),
        checks: vec![check(
            "two-against-four",
            "2 and 4, within 2 %",
            format!("{by_device:.2} and {by_application:.2}"),
            (by_device / 2.0 - 1.0).abs() < 0.02 && (by_application / 4.0 - 1.0).abs() < 0.02,
        )],
        figures: vec![plot],
        ..Findings::default()
    })
}

/// An application that asks for nothing until its time is over.
struct Idle(Appender);

impl tidewater_sim::host::Application for Idle {
    fn deadline(&self) -> Option<tidewater_base::Instant> {
        None
    }
    fn advance(&mut self, _: tidewater_base::Instant) {}
    fn poll_request(&mut self) -> Option<tidewater_sim::host::Request> {
        None
    }
    fn complete(&mut self, _: tidewater_base::Instant) {}
    fn is_over(&self, now: tidewater_base::Instant) -> bool {
        tidewater_sim::host::Application::is_over(&self.0, now)
    }
}
