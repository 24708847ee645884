//! Figure 9's curve of DRAM: what a slower memory behind the ring can do to it.

use super::fig9::{Point, measure};
use super::setting::{ExperimentError, Setting};
use super::{Findings, Options, check, column, figure, series};
use tidewater_base::units::format_rate;
use tidewater_report::experiment::Form;
use tidewater_sim::host::LogTo;

/// A setting of the ring's memory: key, value and label.
struct Variant {
    name: String,
    settings: Vec<(&'static str, String)>,
}

impl Variant {
    fn of(name: String, key: &'static str, value: String) -> Variant {
        let ring = [("fast.memory", "fast-dram"), ("fast.size", "128MiB")];
        let mut settings: Vec<_> = ring.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        settings.push((key, value));
        Variant { name, settings }
    }
}

/// The longest latency with up to four workers over the shortest, and the least of their throughputs over that without
/// a log.
fn judge(counts: &[f64], points: &[Point], without: &[Point]) -> (f64, f64) {
    let few = || (0..counts.len()).filter(|&i| counts[i] <= 4.0);
    let (longest, shortest) =
        few().map(|i| points[i].1).fold((0.0, f64::MAX), |(most, least): (f64, f64), x| (most.max(x), least.min(x)));
    (longest / shortest, few().map(|i| points[i].0 / without[i].0).fold(f64::MAX, f64::min))
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let counts = setting.numbers("workers")?;
    let bandwidths = setting.numbers("bandwidths")?;
    let latencies = setting.numbers("latencies_us")?;
    let by_bandwidth = bandwidths.iter().map(|bandwidth| {
        let name = format_rate(*bandwidth as u64);
        Variant::of(name, "memory.fast-dram.bandwidth", format!("{}B/s", *bandwidth as u64))
    });
    let by_latency = latencies
        .iter()
        .map(|latency| Variant::of(format!("{latency} us"), "memory.fast-dram.write_latency", format!("{latency}us")));
    let variants: Vec<Variant> = by_bandwidth.chain(by_latency).collect();
    let runs = (variants.len() + 1) * counts.len();
    let mut findings = Findings {
        columns: vec![
            column("memory", "the bandwidth of the ring's memory, or the latency of a write into it"),
            column("workers", "workers, each on a core"),
            column("transactions_per_second", "committed transactions a second"),
            column("latency_us", "mean time from a transaction's start until its log is durable"),
        ],
        ..Findings::default()
    };
    let mut done = 0;
    let mut line = |to, settings: &[(&str, String)], options: &mut Options<'_>| {
        let mut points = Vec::new();
        for &workers in &counts {
            points.push(measure(setting, to, settings, workers as u32, options)?);
            done += 1;
            options.done(f64::from(done) / runs as f64)?;
        }
        Ok::<_, ExperimentError>(points)
    };
    let without = line(LogTo::Nowhere, &[], options)?;
    let mut both = 0;
    let mut words = Vec::new();
    let mut plot = figure("Latency", Form::Lines, ("workers", true), ("mean transaction latency (us)", true));
    for variant in &variants {
        let points = line(LogTo::Fast, &variant.settings, options)?;
        let (spread, rate) = judge(&counts, &points, &without);
        both += usize::from(spread <= 1.25 && rate >= 0.9);
        words.push(format!("{} {spread:.2} and {:.0} %", variant.name, rate * 100.0));
        for (&workers, &(rate, latency)) in counts.iter().zip(&points) {
            findings.rows.push(vec![variant.name.as_str().into(), workers.into(), rate.into(), latency.into()]);
        }
        plot.series.push(series(&*variant.name, counts.iter().copied().zip(points.iter().map(|p| p.1))));
    }
    findings.checks.push(check(
        "flat-at-full-rate",
        "with one memory, latencies with up to 4 workers within 25 % of each other, and 90 % of the throughput without \
         a log",
        format!("{both} of {}: {}", variants.len(), words.join(", ")),
        both > 0,
    ));
    findings.figures = vec![plot];
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_judged_by_its_first_four_workers() {
        let points = [(10.0, 100.0), (19.0, 80.0), (30.0, 90.0), (31.0, 500.0)];
        let without = [(10.0, 1.0), (20.0, 1.0), (40.0, 1.0), (80.0, 1.0)];
        assert_eq!(judge(&[1.0, 2.0, 4.0, 8.0], &points, &without), (1.25, 0.75));
    }
}
