//! Flash work in the time series.

use super::*;

/// In the steady state as many blocks are erased for a write in the first interval as in the last.
#[test]
fn erases_are_told_of_the_interval_in_which_they_were() {
    let source = job("rw=randwrite,norandommap,bs=4k,size=64m,number_ios=20000", 1);
    let mut options = RunOptions { time_series_points: 12, ..at_depth(1) };
    options.device.precondition = Precondition::Steady;
    options.warmup_requests = 3_000;
    let record = run(&tiny(), source, options).unwrap().record;
    let series = &record.time_series;
    assert!(series.points.len() >= 6, "{}", series.points.len());
    assert_eq!(series.points.iter().map(|point| point.erases).sum::<u64>(), record.erases);
    for point in &series.points {
        let lasts = series.interval_seconds.min(record.simulated_seconds - point.t_seconds);
        let expected = point.write_iops * lasts * record.erases as f64 / record.requests as f64;
        assert!((point.erases as f64 - expected).abs() <= 5.0 + expected / 10.0, "{expected} at {point:?}");
    }
}

/// A burst fills the SLC cache, which is folded while the host is quiet: the blocks that gave back were reported in the
/// burst.
#[test]
fn erases_of_a_pause_are_told_of_the_pause() {
    let burst = |at_us: u64| (0..64u64).map(move |i| request(at_us, Op::Write, i << 16, 1 << 16));
    let profile = super::slc::cached(&["slc.fold_after=100ms"]);
    let record = run(&profile, list(burst(0).chain(burst(1_000_000))), RunOptions::default()).unwrap().record;
    let points = record.time_series.points.iter().filter(|point| point.erases > 0);
    let erases: Vec<(f64, u64)> = points.map(|point| (point.t_seconds, point.erases)).collect();
    let told = |within: &dyn Fn(f64) -> bool| erases.iter().filter(|(at, _)| within(*at)).map(|one| one.1).sum::<u64>();
    assert!(record.erases > 0 && told(&|_| true) == record.erases, "{} erases", record.erases);
    assert_eq!(told(&|at| at < 0.09), 0, "of the burst, {erases:?}");
    // Folding moves a row in little more than a program, on each of four dies.
    let lasts = 256.0 * us(profile.nand.program_time[0]) * 1e-6;
    assert_eq!(told(&|at| at > 0.15 + 2.0 * lasts), 0, "long after it, {erases:?}");
}
