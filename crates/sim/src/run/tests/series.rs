//! What the time series tells of the flash.

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
