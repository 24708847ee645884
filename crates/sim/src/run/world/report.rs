//! Reports during a run: each request, its progress, and the host's state.

use super::{Host, InFlight};
use crate::request::{Op, Source};
use crate::run::world::Halt;
use crate::run::{Progress, RunError};
use std::time;
use tidewater_base::Instant;
use tidewater_core::Device;
use tidewater_gauges::{Drive, Moment, WARMING_UP};
use tidewater_nand::Medium;
use tidewater_report::requests::RequestDone;

impl<S: Source> Host<S> {
    #[cold]
    pub(super) fn hand_out(&mut self, now: Instant, request: &InFlight) {
        let Some(out) = &mut self.options.requests else { return };
        let done = RequestDone {
            index: request.index,
            start_ps: request.start.as_ps(),
            operation: request.op.name(),
            offset: request.offset,
            length: request.length,
            latency_ps: now.since(request.start).as_ps(),
            status: match request.status {
                status if status.is_success() => "success",
                status => status.name().unwrap_or("unknown status"),
            },
        };
        if let Err(error) = out.take(&done) {
            self.fail(RunError::Output(error));
        }
    }

    /// A request of the warm-up ended, which only a live page counts.
    #[cold]
    pub(super) fn record_warm(&mut self, now: Instant, op: Op, bytes: u64, start: Instant) {
        if let Some(warm) = &mut self.warm {
            warm.record(now, op, bytes, now.since(start));
        }
    }

    /// Tells how far the run has got.
    pub(in crate::run) fn report(&mut self, now: Instant) {
        let progress = self.progress(now);
        self.reported = time::Instant::now();
        self.reported_requests = self.completed;
        if let Some(on_progress) = &mut self.options.progress {
            on_progress(&progress);
        }
    }

    fn progress(&self, now: Instant) -> Progress {
        let expected = self.source.expected_requests().or((self.limit < u64::MAX).then_some(self.limit));
        let expected = expected.map(|requests| requests.min(self.limit));
        let done = expected.filter(|&e| e > 0).map(|e| self.completed as f64 / e as f64);
        let timed = self.options.runtime.map(|time| now.as_secs_f64() / time.as_secs_f64());
        let share = match (done.or_else(|| self.source.progress()), timed) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let elapsed = self.reported.elapsed().as_secs_f64();
        Progress {
            requests: self.completed,
            expected,
            share: share.filter(|s| s.is_finite()).map(|s| s.clamp(0.0, 1.0)),
            simulated: now.since(Instant::ZERO),
            requests_per_second: if elapsed > 0.0 {
                (self.completed - self.reported_requests) as f64 / elapsed
            } else {
                0.0
            },
        }
    }

    /// Shows what is going on, if it goes to a live page.
    pub(in crate::run) fn show<M: Medium>(&mut self, device: &Device<M>, now: Instant, ended: bool) {
        if self.options.watch.is_none() {
            return;
        }
        let wall = time::Instant::now();
        let seconds = wall.duration_since(self.watched).as_secs_f64();
        let progress = self.progress(now);
        let spent = wall.duration_since(self.created).as_secs_f64();
        let left_s = progress.share.filter(|&share| share > 0.0).map(|share| spent * (1.0 - share) / share);
        let mut moment = Moment {
            time_s: now.as_secs_f64(),
            state: match ended {
                true => "ended",
                false if self.completed < self.warmup => WARMING_UP,
                false => "running",
            }
            .into(),
            errors: self.failures.values().sum(),
            outstanding: self.outstanding().into(),
            power_cuts: u64::from(self.halt == Halt::PowerCut),
            drive: Some(Drive::of(device, now)),
            progress: Some(tidewater_gauges::Progress {
                share: if ended && self.halt == Halt::Finished { Some(1.0) } else { progress.share },
                requests: self.completed,
                requests_per_s: (self.completed - self.watched_requests) as f64 / seconds.max(1e-9),
                left_s,
                ended,
            }),
            ..Moment::default()
        };
        for op in Op::ALL {
            let kind = match op {
                Op::Read => 0,
                Op::Write => 1,
                Op::Flush => 2,
                _ => 3,
            };
            for figures in [Some(&self.metrics), self.warm.as_deref()].into_iter().flatten() {
                let latencies = figures.latencies(op);
                latencies.counted().for_each(|(latency, count)| moment.latencies.add(kind, latency, count));
                moment.commands[kind] += latencies.count();
            }
        }
        let warm = |op| self.warm.as_ref().map_or(0, |warm| warm.bytes(op));
        moment.bytes = [Op::Read, Op::Write].map(|op| self.metrics.bytes(op) + warm(op));
        (self.watched, self.watched_requests) = (wall, self.completed);
        if let Some(watch) = &mut self.options.watch {
            watch(moment);
        }
    }

    /// The host's state, for error messages.
    pub(in crate::run) fn describe(&self) -> String {
        format!(
            "  host: {} requests outstanding, {} completed, {} read from the source; next command due {}; queues full \
             {:b}\n",
            self.outstanding,
            self.completed,
            self.pulled,
            if self.due == Instant::NEVER { "never".into() } else { format!("{:?}", self.due) },
            self.full
        )
    }
}
