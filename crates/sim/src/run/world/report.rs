//! What a run says while it goes on: each request, its progress, and what the host waits for.

use super::{Host, InFlight};
use crate::run::{Progress, RunError};
use crate::workload::Source;
use std::time;
use tidewater_base::Instant;
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

    /// Tells how far the run has got.
    pub(in crate::run) fn report(&mut self, now: Instant) {
        let expected = self.source.expected_requests().or((self.limit < u64::MAX).then_some(self.limit));
        let expected = expected.map(|requests| requests.min(self.limit));
        let done = expected.filter(|&e| e > 0).map(|e| self.completed as f64 / e as f64);
        let timed = self.options.runtime.map(|time| now.as_secs_f64() / time.as_secs_f64());
        let share = match (done.or_else(|| self.source.progress()), timed) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let elapsed = self.reported.elapsed().as_secs_f64();
        let progress = Progress {
            requests: self.completed,
            expected,
            share: share.filter(|s| s.is_finite()).map(|s| s.clamp(0.0, 1.0)),
            simulated: now.since(Instant::ZERO),
            requests_per_second: if elapsed > 0.0 {
                (self.completed - self.reported_requests) as f64 / elapsed
            } else {
                0.0
            },
        };
        self.reported = time::Instant::now();
        self.reported_requests = self.completed;
        if let Some(on_progress) = &mut self.options.progress {
            on_progress(&progress);
        }
    }

    /// What it waits for, for messages.
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
