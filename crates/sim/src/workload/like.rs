//! A generated trace that `trace info` describes as it does another.
//!
//! Most figures of a trace are parameters of the generator. Popularity and locality are not: what is
//! drawn by the one adds to the other, and so does all that goes to untouched data. Therefore they are found by
//! generating.

use super::draws::{Sizes, pages_mean, pages_reached};
use super::synth::{Synth, SynthError, SynthSpec};
use crate::trace::info::{Info, info_with_places};

/// Which of the parameters that are found by generating may be chosen; the others are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// [`SynthSpec::skew`].
    pub skew: bool,
    /// [`SynthSpec::again_percent`].
    pub again: bool,
    /// [`SynthSpec::onward_percent`].
    pub onward: bool,
}

/// Attempts at most.
const ATTEMPTS_MAX: u64 = 24;
/// Requests that are generated at most to find the parameters (a minute or so), unless a second attempt takes more.
const REQUESTS_MAX: u64 = 20_000_000;
/// One step off: of the skew, of percentages, and of the footprint in percent of it. A footprint is promised, and the
/// others are as near as can be.
const SKEW_STEP: f64 = 0.02;
const PERCENT_STEP: f64 = 1.0;
const FOOTPRINT_STEP: f64 = 0.5;
/// Percent of requests that are missed near recent ones for which the exponent of untouched data grows by one.
const EXPONENT_PERCENT: f64 = 30.0;
/// Percent of the footprint that are missed for which it shrinks by one.
const EXPONENT_UNTOUCHED: f64 = 20.0;

/// The parameters with which a generated trace of `info`, described with its locality, looks like it.
pub fn spec_of(info: &Info) -> SynthSpec {
    SynthSpec {
        requests: info.requests,
        mean_kib: info.mean_kib,
        write_percent: info.write_percent,
        sequential_percent: info.sequential_percent,
        mean_interarrival_ms: info.mean_interarrival_ms,
        footprint_mib: info.footprint_mib,
        skew: info.skew,
        again_percent: near(info).0,
        onward_percent: near(info).1,
        shape: Some(Box::new(info.shape.clone())),
        ..SynthSpec::default()
    }
}

/// The footprint of `spec` in MiB, or what so many requests of its sizes can touch where that is less: it is where
/// hardly a page is touched twice, and ends amid a page decide.
pub fn footprint_mib(spec: &SynthSpec) -> f64 {
    let Some(shape) = spec.shape.as_ref().filter(|shape| shape.has_sizes()) else { return spec.footprint_mib };
    let Ok(sizes) = Sizes::of_shape(spec, shape, u64::MAX) else { return spec.footprint_mib };
    spec.footprint_mib.min((pages_reached(spec, pages_mean(spec, &sizes)) / 256.0).max(1.0 / 256.0))
}

/// Shares of requests that begin where a recent one began, and ended.
fn near(info: &Info) -> (f64, f64) {
    info.locality.as_ref().map_or((0.0, 0.0), |near| (near.again_percent, near.onward_percent))
}

/// Changes the parameters that are `free` until what is generated has the skew and the locality of `wanted`, as near as
/// that can be had, and describes what is generated then.
///
/// # Errors
/// When no trace can be generated with these parameters.
pub fn fit(spec: &mut SynthSpec, wanted: &Info, free: Free) -> Result<Info, SynthError> {
    let attempts = (REQUESTS_MAX / spec.requests.max(1)).clamp(2, ATTEMPTS_MAX);
    let mut best: Option<(f64, SynthSpec, Info)> = None;
    let mut next = spec.clone();
    let mut strides = [1.0f64; 3];
    let mut before = [0.0f64; 3];
    for _ in 0..attempts {
        let info = info_with_places(&mut Synth::new(&next)?).expect("generated requests are well formed");
        let missing = missing(wanted, &info, free);
        let untouched = 100.0 * (1.0 - info.footprint_mib / next.footprint_mib).max(0.0);
        let near = (missing[1] / PERCENT_STEP).hypot(missing[2] / PERCENT_STEP);
        let error = (missing[0] / SKEW_STEP).hypot(near).hypot(untouched / FOOTPRINT_STEP);
        let from = next.clone();
        if best.as_ref().is_none_or(|(least, ..)| error < *least) {
            best = Some((error, next, info));
        }
        if error < 0.25 {
            break;
        }
        // Each parameter goes its own way: faster while its figure stays too small or too large, and slower once it was
        // passed.
        for i in 0..3 {
            let passed = missing[i] * before[i] < 0.0;
            strides[i] = (strides[i] * if passed { 0.5 } else { 1.3 }).min(4.0);
        }
        before = missing;
        next = moved(from, missing, untouched, strides);
    }
    let (_, found, info) = best.expect("there is an attempt");
    *spec = found;
    Ok(info)
}

/// By how much skew, requests that begin again and those that go onward are too few in a generated trace.
fn missing(wanted: &Info, got: &Info, free: Free) -> [f64; 3] {
    let gap = |free: bool, wanted: f64, got: f64| if free { wanted - got } else { 0.0 };
    let ((again, onward), (got_again, got_onward)) = (near(wanted), near(got));
    [gap(free.skew, wanted.skew, got.skew), gap(free.again, again, got_again), gap(free.onward, onward, got_onward)]
}

/// The parameters, each changed by its stride of what is missing; `untouched`: percent of the footprint that were not
/// reached.
fn moved(from: SynthSpec, missing: [f64; 3], untouched: f64, strides: [f64; 3]) -> SynthSpec {
    let again_percent = (from.again_percent + strides[1] * missing[1]).clamp(0.0, 100.0);
    SynthSpec {
        skew: (from.skew + strides[0] * missing[0]).clamp(0.0, 3.0),
        again_percent,
        onward_percent: (from.onward_percent + strides[2] * missing[2]).clamp(0.0, 100.0 - again_percent),
        // Both are shares of what does not go to untouched data. Where that leaves too little for them, fewer and
        // larger requests go there, as long as those reach the footprint.
        untouched_exponent: (from.untouched_exponent + (missing[1] + missing[2]) / EXPONENT_PERCENT
            - untouched / EXPONENT_UNTOUCHED)
            .clamp(0.0, 6.0),
        ..from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::info::info_of;
    use crate::trace::{Input, Options, Trace, info, samples};
    use crate::workload::zipf::Zipf;
    use crate::workload::{Op, Request, Source, SourceError};
    use tidewater_base::{Instant, Rng};

    const ALL: Free = Free { skew: true, again: true, onward: true };

    struct List(std::vec::IntoIter<Request>);

    impl Source for List {
        fn next(&mut self) -> Option<Result<Request, SourceError>> {
            self.0.next().map(Ok)
        }
    }

    /// Reads of 64 KiB from popular places, and small writes anywhere on a partition that begins at sector 63, in
    /// bursts.
    fn mixed() -> Info {
        let (mut rng, popular, mut now_ps) = (Rng::new(1, b"mixed"), Zipf::new(1_000, 1.0), 0);
        let request = |_| {
            now_ps += if rng.below(10) == 0 { 2_000_000_000 } else { 10_000_000 };
            let arrival = Instant::from_ps(now_ps);
            if rng.below(10) < 7 {
                let offset = popular.draw(&mut rng) * 65_536;
                return Request { arrival, op: Op::Read, offset, length: 65_536, fua: false };
            }
            let offset = 63 * 512 + rng.below(30_000) * 4096;
            let length = if rng.below(5) == 0 { 12_288 } else { 4096 };
            Request { arrival, op: Op::Write, offset, length, fua: false }
        };
        let requests: Vec<Request> = (0..30_000).map(request).collect();
        info_of("mixed", &mut List(requests.into_iter()), true).unwrap()
    }

    fn near(what: &str, wanted: f64, got: f64, tolerance: f64) {
        assert!((got - wanted).abs() <= tolerance, "{what}: wanted {wanted}, got {got}");
    }

    fn check(wanted: &Info) -> SynthSpec {
        let mut spec = spec_of(wanted);
        spec.footprint_mib = footprint_mib(&spec);
        let got = fit(&mut spec, wanted, ALL).unwrap();
        let made = info_with_places(&mut Synth::new(&spec).unwrap()).unwrap();
        assert_eq!(got, made, "it is what the parameters make");
        assert_eq!(got.requests, wanted.requests);
        near("reads", wanted.mean_read_kib, got.mean_read_kib, wanted.mean_read_kib * 0.01);
        near("writes", wanted.mean_write_kib, got.mean_write_kib, wanted.mean_write_kib * 0.01);
        near("write share", wanted.write_percent, got.write_percent, 0.2);
        near("sequential", wanted.sequential_percent, got.sequential_percent, 0.2);
        near("aligned", wanted.aligned_percent, got.aligned_percent, 3.0);
        near("interval", wanted.mean_interarrival_ms, got.mean_interarrival_ms, wanted.mean_interarrival_ms * 0.01);
        near("footprint", wanted.footprint_mib, got.footprint_mib, wanted.footprint_mib * 0.02);
        near("skew", wanted.skew, got.skew, 0.1);
        near("again", super::near(wanted).0, super::near(&got).0, 4.0);
        near("onward", super::near(wanted).1, super::near(&got).1, 4.0);
        spec
    }

    #[test]
    fn the_sample_has_a_stand_in_that_is_described_alike() {
        let bytes = samples::find(samples::DEMO).unwrap();
        let mut trace = Trace::open(&Input::from_bytes(samples::DEMO, bytes), &Options::default()).unwrap();
        check(&info(&mut trace, true).unwrap());
    }

    #[test]
    fn reads_and_writes_keep_sizes_of_their_own_and_bursts_stay() {
        let wanted = mixed();
        assert!(wanted.mean_read_kib > 10.0 * wanted.mean_write_kib, "{wanted:?}");
        let mut spec = check(&wanted);
        spec.seed = 2;
        let got = info_of("", &mut Synth::new(&spec).unwrap(), false).unwrap();
        let share = |info: &Info, bytes: u64| {
            let of = info.shape.write_sizes.iter().filter(|bucket| bucket.value == bytes).map(|bucket| bucket.count);
            of.sum::<u64>() as f64 / info.shape.write_sizes.iter().map(|bucket| bucket.count).sum::<u64>() as f64
        };
        near("writes of 12 KiB", share(&wanted, 12_288), share(&got, 12_288), 0.002);
        assert!(got.shape.read_sizes.iter().all(|bucket| bucket.value == 65_536));
        let shortest = |info: &Info| info.shape.intervals_ps[0];
        near("short intervals", shortest(&wanted).count as f64, shortest(&got).count as f64, 10.0);
    }

    #[test]
    fn what_is_given_is_not_changed() {
        let wanted = mixed();
        let mut spec = SynthSpec { skew: 0.1, ..spec_of(&wanted) };
        fit(&mut spec, &wanted, Free { skew: false, ..ALL }).unwrap();
        assert_eq!(spec.skew, 0.1);
    }
}
