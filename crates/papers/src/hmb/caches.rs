//! Figures 5 and 8: read cache and write buffer, found by reading and writing twice.

use super::*;

/// Request sizes in KiB: as the paper's below 64 KiB, every eighth of its steps above.
fn sizes(min: f64, max: f64, step: f64, quick: bool) -> Vec<f64> {
    let fine = (64.0f64.min(max) - min) / step;
    let mut sizes: Vec<f64> = (0..fine.max(0.0) as u32).map(|i| min + f64::from(i) * step).collect();
    let coarse = step * if quick { 32.0 } else { 8.0 };
    let mut size = min.max(64.0);
    while size <= max {
        sizes.push(size);
        size += coarse;
    }
    sizes
}

/// The paper's figure 4 (reads) or 7 (writes), at each size: useless data, a pass, (a flush,) the pass again.
pub(crate) fn measure(point: &Point) -> Measured {
    let write = point.text("what")? == "written";
    let (min, max, step) = (point.number("s_min_kib")?, point.number("s_max_kib")?, point.number("s_inc_kib")?);
    let useless_bytes = (point.number("useless_mib")? * 1048576.0) as u64;
    let (piece, repeats) = ((point.number("piece_kib")? * 1024.0) as u64, point.number("repeats")? as u32);
    // Useless data is at one end of the drive, what is measured at the other.
    let half = capacity(point)? / 2;
    // What is written is to wait for programs, not for collection.
    let mut host = Host::new(point, Precondition::Filled(if write { 0.0 } else { 1.0 }))?;
    let mut rng = Rng::new(point.seed()?, b"hmb caches");
    let mut passes = Vec::new();
    for size in sizes(min, max, step, point.value("quick")?.is_true()) {
        let bytes = (size * 1024.0) as u64;
        let (mut first, mut second) = (0.0, 0.0);
        for _ in 0..repeats {
            let useless = place(&mut rng, half, useless_bytes);
            host.request(write, useless, useless_bytes);
            let at = half + place(&mut rng, half, bytes.next_multiple_of(1 << 16));
            first += host.pieces(write, at, bytes, piece).as_us_f64();
            if write {
                host.flush();
            }
            second += host.pieces(write, at, bytes, piece).as_us_f64();
        }
        passes.push([size, first / f64::from(repeats), second / f64::from(repeats)]);
    }
    // A buffer shows itself by the second pass being faster; without that a step is one of the flash.
    let per_kib: Vec<(f64, f64)> = passes.iter().map(|[size, _, again]| (*size, again / size)).collect();
    let up_to = |at: f64, pass: usize| passes.iter().filter(|one| one[0] <= at).map(|one| one[pass]).sum::<f64>();
    let knee = knee(&per_kib, point.number("step_share")?).filter(|&at| up_to(at, 2) / up_to(at, 1) < 0.8);
    let row = |[size, first, again]: [f64; 3]| {
        let numbers = [("size_kib", size.into()), ("first_us", first.into()), ("again_us", again.into())];
        named(numbers.into_iter().chain([("knee", Value::from(knee))]))
    };
    Ok(passes.into_iter().map(row).collect())
}
