//! Figure 10: the mapping cache, found by reading the beginnings of ever more sections.

use super::*;

/// Bytes that are written at once.
const PIECE: u64 = 1 << 20;

/// Numbers of sections: all that the paper measures, or a few everywhere, more around each of `knees`.
fn sections(knees: &[f64], most: f64, quick: bool, every: Option<f64>) -> Vec<f64> {
    if let Some(step) = every {
        return (1..=(most / step) as u32).map(|i| f64::from(i) * step).collect();
    }
    let around = if quick { &[0.9, 1.0, 1.1][..] } else { &[0.8, 0.9, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.1, 1.2] };
    let mut all: Vec<f64> = knees.iter().flat_map(|knee| around.iter().map(move |x| knee * x)).collect();
    all.extend([100.0, 200.0, 500.0, 1_000.0, 12_000.0, most]);
    all.retain(|&d| d <= most);
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The mean time of a read of 512 bytes at the beginning of each of `d` sections, in microseconds.
fn pass(host: &mut Host, capacity: u64, d: u64) -> f64 {
    let mut sum = 0.0;
    for i in 0..d {
        let at = (u128::from(capacity) * u128::from(i) / u128::from(d)) as u64 / BLOCK * BLOCK;
        sum += host.request(false, at, BLOCK).as_us_f64();
    }
    sum / d as f64
}

/// Deallocates the whole drive, writes it once from end to end, and waits until it has nothing to do.
fn rewrite(host: &mut Host, capacity: u64) {
    host.deallocate(capacity);
    host.pieces(true, 0, capacity, PIECE);
    host.flush();
    host.rest(Duration::from_ms(10_000));
}

/// The times of reads by the number of sections; and whether the drive took host memory.
pub(crate) fn measure(point: &Point) -> Measured {
    let knees = point.value("knees")?.try_iter().map_err(refused)?.map(f64::try_from).collect::<Result<Vec<_>, _>>();
    let full = point.value("full")?.is_true();
    let every = if full { Some(point.number("d_inc")?) } else { None };
    let ds = sections(&knees.map_err(refused)?, point.number("d_max")?, point.value("quick")?.is_true(), every);
    let capacity = capacity(point)?;
    let mut host = Host::new(point, Precondition::Filled(1.0))?;
    if full {
        rewrite(&mut host, capacity);
    }
    let lent = host.device.host_memory().bytes() > 0;
    let mut passes = |d: f64| [(); 2].map(|()| pass(&mut host, capacity, d as u64));
    let curve: Vec<(f64, [f64; 2])> = ds.iter().map(|&d| (d, passes(d))).collect();
    let again: Vec<(f64, f64)> = curve.iter().map(|(d, [_, again])| (*d, *again)).collect();
    let knee = knee(&again, point.number("step_share")?);
    let row = |(sections, [once, again]): (f64, [f64; 2])| {
        let numbers = [("sections", sections), ("once_us", once), ("read_us", again)];
        let numbers = numbers.map(|(name, number)| (name, number.into()));
        named(numbers.into_iter().chain([("knee", knee.into()), ("lent", lent.into())]))
    };
    Ok(curve.into_iter().map(row).collect())
}
