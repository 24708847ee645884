//! The application's side of a log: workers that run transactions, group commit, and the sink that makes groups
//! durable.
//!
//! [`Workers`] and every [`Sink`] are state machines without input or output, as the firmware is: they get the
//! time, say when they need it next, and are connected by [`drive`] or by a loop that drives a device besides.

mod attached;
mod backlog;
mod bursts;
mod client;
mod log_run;
mod sink;
#[cfg(test)]
mod tests;
mod window;
mod workers;

pub use attached::{Appender, Application, Attached, BlockWrites, Database, is_full};
pub use backlog::Backlog;
pub use bursts::Bursts;
pub use client::{Checks, LogClient};
pub use log_run::{LogOutcome, LogRun, LogRunError, LogTo, client_of};
pub use sink::{
    ConventionalSpec, DeviceSink, Durable, Memory, MemorySpec, NoLog, RdmaSpec, Request, Sink, WindowLogSpec,
};
pub use window::{CallSpec, WindowClient, WindowRequest};
pub use workers::{Commit, Measured, Workers, WorkersSpec};

use tidewater_base::Instant;

/// Runs workers against a sink that needs nothing else, from the workers' time to `until` or to the end of their
/// source. Returns the instant of the last event.
pub fn drive(workers: &mut Workers, sink: &mut impl Sink, until: Instant) -> Instant {
    let mut now = Instant::ZERO;
    while let Some(at) = next(workers, sink).filter(|&at| at <= until) {
        now = now.max(at);
        step(workers, sink, now);
    }
    now
}

/// When workers or sink next need the time.
pub fn next(workers: &Workers, sink: &impl Sink) -> Option<Instant> {
    workers.deadline().into_iter().chain(sink.deadline()).min()
}

/// Tells workers and sink the time, and each what the other did.
pub fn step(workers: &mut Workers, sink: &mut impl Sink, now: Instant) {
    workers.advance(now);
    sink.advance(now);
    // A sink may be done at once, which frees a buffer that a stalled worker fills at once.
    loop {
        while let Some(commit) = workers.poll_commit(now) {
            sink.commit(now, commit);
        }
        let Some(durable) = sink.poll_durable() else { break };
        workers.durable(now.max(durable.at), durable.sequence);
    }
}
