//! Figure 10: the mapping cache, found by reading the beginnings of ever more sections.

use super::*;

/// Numbers of sections: a few everywhere, more around each of `knees`.
fn sections(knees: &[f64], most: f64, quick: bool) -> Vec<f64> {
    let around = if quick { &[0.9, 1.0, 1.1][..] } else { &[0.8, 0.9, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.1, 1.2] };
    let mut all: Vec<f64> = knees.iter().flat_map(|knee| around.iter().map(move |x| knee * x)).collect();
    all.extend([200.0, 500.0, 1_000.0, 12_000.0, most]);
    all.retain(|&d| d <= most);
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The mean time of a read of 512 bytes at the beginning of each of `d` sections, in the second of two passes, in
/// microseconds.
fn pass(host: &mut Host, capacity: u64, d: u64) -> f64 {
    let mut sum = 0.0;
    for second in [false, true] {
        for i in 0..d {
            let at = (u128::from(capacity) * u128::from(i) / u128::from(d)) as u64 / BLOCK * BLOCK;
            let time = host.request(false, at, BLOCK);
            sum += if second { time.as_us_f64() } else { 0.0 };
        }
    }
    sum / d as f64
}

/// The times of reads by the number of sections; and whether the drive took host memory.
pub(crate) fn measure(point: &Point) -> Measured {
    let knees = point.value("knees")?.try_iter().map_err(refused)?.map(f64::try_from).collect::<Result<Vec<_>, _>>();
    let ds = sections(&knees.map_err(refused)?, point.number("d_max")?, point.value("quick")?.is_true());
    let capacity = capacity(point)?;
    let mut host = Host::new(point, Precondition::Filled(1.0))?;
    let lent = host.device.host_memory().bytes() > 0;
    let curve: Vec<(f64, f64)> = ds.iter().map(|&d| (d, pass(&mut host, capacity, d as u64))).collect();
    let knee = knee(&curve, point.number("step_share")?);
    let row = |(sections, time): (f64, f64)| {
        named([("sections", sections.into()), ("read_us", time.into()), ("knee", knee.into()), ("lent", lent.into())])
    };
    Ok(curve.into_iter().map(row).collect())
}
