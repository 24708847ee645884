//! Write and read bandwidth by path and size: between buffer and flash on one side, block commands on the other.

use super::*;

/// Bytes of the drives that are used.
const SPAN: u64 = 4 << 30;

/// Bytes a second, one request after the other.
pub(crate) fn measure(point: &Point) -> Measured {
    let size = point.number("bytes")? as u64;
    let total = (point.number("total_mib")? as u64) << if point.value("quick")?.is_true() { 16 } else { 20 };
    let write = point.text("op")? == "write";
    // A drive reads ahead what it has written.
    let mut device = device(point, if write { Precondition::Fresh } else { Precondition::Filled(1.0) })?;
    let window = device.window().is_enabled();
    let slots = SPAN / size.max(PAGE);
    let cycle = move |i: u64| {
        let place = (i % slots) * size.max(PAGE);
        let (flush, unpin) = (WindowCommand::Flush { entry: 0 }, WindowCommand::Unpin { entry: 0 });
        match (window, write) {
            (true, true) => {
                vec![(pin(0, place / PAGE, size), false), (Request::Window(WindowRequest::Run(flush)), true)]
            }
            (true, false) => {
                vec![(pin(0, place / PAGE, size), true), (Request::Window(WindowRequest::Run(unpin)), false)]
            }
            (false, true) => vec![(Request::Write { offset: place, length: size }, true)],
            (false, false) => vec![(Request::Read { offset: place, length: size }, true)],
        }
    };
    let timed = Timed::new(Vec::new(), (total / size).clamp(4, 2_000), Box::new(cycle));
    let latency = run_timed(&mut device, timed, point.seed()?)?;
    Ok(figures([("bytes_per_second", size as f64 * latency.count() as f64 / latency.sum_seconds())]))
}
