//! Section 4.3: two movements of each logged byte inside the device, against four when the application destages.

use super::{Measured, at, device};
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::memory::Use;
use tidewater_sim::host::{Appender, Application, Attached, BlockWrites, Request, client_of};
use tidewater_sim::pcie::Mapping;
use tidewater_study::experiment::{Point, Value};

/// Bytes of an append, and of a block write.
const PIECE: u64 = 16 << 10;

/// Movements of each logged byte, step by step.
pub(super) fn measure(point: &Point) -> Measured {
    let bytes = point.number("log_bytes")? * super::part(point)?;
    // Slow enough for either side, and long enough for all of it to reach flash.
    let every = Duration::from_us(40);
    let time = every * (bytes as u64 / PIECE);
    let (profile, seed) = (point.drive()?.profile, point.seed()?);
    let shift = profile.host.block_size.trailing_zeros();

    let mut fast = device(&profile, seed)?;
    let app = Appender::new(PIECE, true, every, at(Duration::ZERO), at(time));
    let mut host = Attached::new(app, Some(client_of(&fast, Mapping::WriteCombining, None, seed)), shift);
    drive(&mut fast, &mut VirtualClock::default(), &mut host);
    let lane = &fast.fast().function(0).expect("the drive has a fast side").lanes()[0];
    let logged = lane.persisted() as f64;
    let ring = fast.traffic(Use::FastRing).unwrap_or_default();
    // What is still in the ring has yet to be read.
    let (ring_written, ring_read) = (ring.written as f64 / logged, ring.read as f64 / lane.placed() as f64);

    // The application has put the log into persistent memory, and now writes it to the drive.
    let mut conventional = device(&profile, seed)?;
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
    let step = |(who, step, movements): (&str, &str, f64)| {
        let words = [("destaged_by", Value::from(who)), ("step", step.into()), ("movements", movements.into())];
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    Ok(steps.into_iter().map(step).collect())
}

/// An application that asks for nothing until its time is over.
struct Idle(Appender);

impl Application for Idle {
    fn deadline(&self) -> Option<Instant> {
        None
    }
    fn advance(&mut self, _: Instant) {}
    fn poll_request(&mut self) -> Option<Request> {
        None
    }
    fn complete(&mut self, _: Instant) {}
    fn is_over(&self, now: Instant) -> bool {
        Application::is_over(&self.0, now)
    }
}
