//! Figures 5 and 8: read cache and write buffer, found by reading and writing twice.

use super::*;

/// Request sizes in KiB: as the paper's below 64 KiB, every `coarse`-th of its steps above.
fn sizes(min: f64, max: f64, step: f64, coarse: f64) -> Vec<f64> {
    let fine = (64.0f64.min(max) - min) / step;
    let mut sizes: Vec<f64> = (0..fine.max(0.0) as u32).map(|i| min + f64::from(i) * step).collect();
    let mut size = min.max(64.0);
    while size <= max {
        sizes.push(size);
        size += step * coarse;
    }
    sizes
}

/// The paper's figure 4 (reads) or 7 (writes), at each size: useless data, a pass, (a flush,) the pass again.
pub(crate) fn measure(point: &Point) -> Measured {
    let write = point.text("what")? == "written";
    let (min, max, step) = (point.number("s_min_kib")?, point.number("s_max_kib")?, point.number("s_inc_kib")?);
    let (quick, full) = (point.value("quick")?.is_true(), point.value("full")?.is_true());
    let useless_bytes = (point.number(if full { "useless_full_mib" } else { "useless_mib" })? * 1048576.0) as u64;
    let coarse = if full { 1.0 } else { 8.0 * if quick { 4.0 } else { 1.0 } };
    let (piece, repeats) = ((point.number("piece_kib")? * 1024.0) as u64, point.number("repeats")? as u32);
    // Useless data is at one end of the drive, what is measured at the other.
    let half = capacity(point)? / 2;
    // What is written is to wait for programs, not for collection.
    let mut host = Host::new(point, Precondition::Filled(if write { 0.0 } else { 1.0 }))?;
    let mut rng = Rng::new(point.seed()?, b"hmb caches");
    let mut passes = Vec::new();
    for size in sizes(min, max, step, coarse) {
        let bytes = (size * 1024.0) as u64;
        let (mut first, mut second) = (0.0, 0.0);
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for _ in 0..repeats {
            let useless = place(&mut rng, half, useless_bytes);
            host.request(write, useless, useless_bytes);
            let at = half + place(&mut rng, half, bytes.next_multiple_of(1 << 16));
            first += host.pieces(write, at, bytes, piece).as_us_f64();
            if write {
                host.flush();
            }
            let again = host.pieces(write, at, bytes, piece).as_us_f64();
            second += again;
            (least, most) = (least.min(again), most.max(again));
        }
        let mean = second / f64::from(repeats);
        passes.push([size, first / f64::from(repeats), mean, (most - least) / mean]);
    }
    // A buffer shows itself by the second pass being faster; without that a step is one of the flash.
    let per_kib: Vec<(f64, f64)> = passes.iter().map(|[size, _, again, _]| (*size, again / size)).collect();
    let up_to = |at: f64, pass: usize| passes.iter().filter(|one| one[0] <= at).map(|one| one[pass]).sum::<f64>();
    let knee = knee(&per_kib, point.number("step_share")?).filter(|&at| up_to(at, 2) / up_to(at, 1) < 0.8);
    let row = |[size, first, again, spread]: [f64; 4]| {
        let numbers = [("size_kib", size), ("first_us", first), ("again_us", again), ("spread", spread)];
        let numbers = numbers.map(|(name, number)| (name, number.into()));
        named(numbers.into_iter().chain([("knee", Value::from(knee))]))
    };
    Ok(passes.into_iter().map(row).collect())
}
