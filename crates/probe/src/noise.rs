//! Measurements as a busy host makes them: jitter, outliers and drift over any target.

use crate::target::{About, HostMemory, Lend, Request, Target, TargetError, Timed};
use tidewater_base::{Duration, Rng, rng::probability_threshold};

/// How a host's measurements differ from what the drive did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Every latency gets longer by a share of itself, exponentially distributed with this mean: 0.03 is 3 %.
    pub jitter: f64,
    /// A share of all requests is held up by something else on the host.
    pub outliers: f64,
    /// By how long, at the mean; exponentially distributed.
    pub outlier_time: Duration,
    /// Latencies wander by this share up and down: heat, other tenants. One wave over [`Noise::drift_requests`].
    pub drift: f64,
    /// Requests of one wave.
    pub drift_requests: f64,
}

impl Noise {
    /// A quiet machine: every figure is the drive's.
    pub const NONE: Noise =
        Noise { jitter: 0.0, outliers: 0.0, outlier_time: Duration::ZERO, drift: 0.0, drift_requests: 1.0 };
}

/// A target whose measurements are noisy. What it does is the same; only the measured times change.
#[derive(Clone, Debug)]
pub struct Noisy<T> {
    target: T,
    noise: Noise,
    rng: Rng,
    requests: u64,
}

impl<T> Noisy<T> {
    /// `target`, seen through `noise` of this seed.
    pub fn new(target: T, noise: Noise, seed: u64) -> Noisy<T> {
        Noisy { target, noise, rng: Rng::new(seed, b"noise of measurements"), requests: 0 }
    }
}

impl<T: Target> Target for Noisy<T> {
    fn about(&self) -> About {
        self.target.about()
    }

    fn run(&mut self, requests: &[Request], depth: u32, timed: &mut Vec<Timed>) -> Result<(), TargetError> {
        let first = timed.len();
        self.target.run(requests, depth, timed)?;
        let Noise { jitter, outliers, outlier_time, drift, drift_requests } = self.noise;
        let threshold = probability_threshold(outliers);
        for time in &mut timed[first..] {
            let phase = self.requests as f64 / drift_requests * std::f64::consts::TAU;
            self.requests += 1;
            let longer = (1.0 + drift * phase.sin()) * (1.0 + self.rng.exponential(jitter));
            let held = if self.rng.chance(threshold) { self.rng.exponential(outlier_time.as_secs_f64()) } else { 0.0 };
            time.ended = time.submitted + Duration::from_secs_f64(time.seconds() * longer + held);
        }
        Ok(())
    }

    fn idle(&mut self, time: Duration) -> Result<(), TargetError> {
        self.target.idle(time)
    }

    fn now(&self) -> Duration {
        self.target.now()
    }

    fn writable(&self) -> Result<(), String> {
        self.target.writable()
    }

    fn host_memory(&self) -> HostMemory {
        self.target.host_memory()
    }

    fn set_host_memory(&mut self, lend: Lend) -> Result<(), TargetError> {
        self.target.set_host_memory(lend)
    }
}
