//! Write and read latency by path and size.

use super::*;
use tidewater_base::Rng;

/// Bytes of the drives that block commands are spread over.
const SPAN: u64 = 1 << 30;

/// The mean time of requests of `bytes`, by stores or loads (`mmio`), stores and a sync, the read DMA engine, or block
/// commands of whole pages; and of that the host's share of a block command.
pub(crate) fn measure(point: &Point) -> Measured {
    let (way, size, seed) = (point.text("way")?, point.number("bytes")? as u64, point.seed()?);
    let write = point.text("op")? == "write";
    let cycles = if size > 65_536 || point.value("quick")?.is_true() { 2 } else { 32 };
    let mut rng = Rng::new(seed, b"window latency");
    let prologue = if way == "blocks" { Vec::new() } else { vec![pin(0, 0, size)] };
    let (entry, at, length) = (0, 0, size);
    let cycle = move |_| match &*way {
        "mmio" if write => vec![(Request::Window(WindowRequest::Store { entry, at, length }), true)],
        "mmio" => vec![(Request::Window(WindowRequest::Load { entry, at, length }), true)],
        "synced" => vec![
            (Request::Window(WindowRequest::Store { entry, at, length }), true),
            (Request::Window(WindowRequest::Sync { entry, at, length }), true),
        ],
        "dma" => {
            let command = WindowCommand::ReadDma { entry, offset: at, bytes: length as u32 };
            vec![(Request::Window(WindowRequest::Run(command)), true)]
        }
        _ => {
            let length = length.next_multiple_of(PAGE);
            let offset = rng.below(SPAN / length) * length;
            let request = if write { Request::Write { offset, length } } else { Request::Read { offset, length } };
            vec![(request, true)]
        }
    };
    let latency =
        run_timed(&mut device(point, Precondition::Fresh)?, Timed::new(prologue, cycles, Box::new(cycle)), seed)?;
    let calls = CallSpec::default();
    Ok(figures([
        ("latency_us", latency.mean().as_secs_f64() * 1e6),
        ("host_us", (calls.submit_time + calls.return_time).as_us_f64()),
    ]))
}
