//! Where block requests come from: traces, synthesizers and fio-like jobs, behind one trait. Log writes have a room of
//! their own, [`log`].

mod deck;
mod draws;
pub mod job;
pub mod like;
pub mod log;
pub mod permutation;
pub mod repeat;
pub mod slice;
pub mod synth;
pub mod together;
pub mod zipf;

use tidewater_base::Instant;

pub use job::{JobError, JobSource, JobSpec, ThreadSource, ThreadSpec};
pub use repeat::Repeat;
pub use slice::Slice;
pub use synth::{Synth, SynthSpec};
pub use together::Together;

pub use crate::request::{Op, Request, Source, SourceError};
use crate::trace::{Playback, Trace};

/// Any of the sources, dispatched by a match so that a hot loop can inline it.
pub enum Workload {
    /// A trace.
    Trace(Box<Trace>),
    /// A trace in memory, which runs share.
    Playback(Playback),
    /// A synthesized trace.
    Synth(Box<Synth>),
    /// A fio-like job.
    Job(Box<JobSource>),
    /// A part of one of these.
    Slice(Box<Slice<Workload>>),
    /// One of these several times, one pass behind the other.
    Repeat(Box<Repeat<Workload>>),
    /// Several of these at once.
    Together(Box<Together<Workload>>),
}

macro_rules! each {
    ($workload:expr, $source:ident => $call:expr) => {
        match $workload {
            Workload::Trace($source) => $call,
            Workload::Playback($source) => $call,
            Workload::Synth($source) => $call,
            Workload::Job($source) => $call,
            Workload::Slice($source) => $call,
            Workload::Repeat($source) => $call,
            Workload::Together($source) => $call,
        }
    };
}

impl Source for Workload {
    #[inline]
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        each!(self, source => source.next())
    }

    fn expected_requests(&self) -> Option<u64> {
        each!(self, source => source.expected_requests())
    }

    fn progress(&self) -> Option<f64> {
        each!(self, source => source.progress())
    }

    fn skipped(&self) -> u64 {
        each!(self, source => source.skipped())
    }

    fn cut_short(&self) -> Option<String> {
        each!(self, source => source.cut_short())
    }

    fn rewind(&mut self) -> Result<bool, SourceError> {
        each!(self, source => source.rewind())
    }

    fn reordered(&self) -> u64 {
        each!(self, source => source.reordered())
    }

    fn extent(&self) -> Option<u64> {
        each!(self, source => source.extent())
    }

    fn part_threads(&mut self) -> bool {
        each!(self, source => source.part_threads())
    }

    fn can_give(&mut self, now: Instant) -> bool {
        each!(self, source => source.can_give(now))
    }

    fn thread(&self) -> u16 {
        each!(self, source => source.thread())
    }

    fn ended(&mut self, thread: u16) {
        each!(self, source => source.ended(thread));
    }

    fn place(&self) -> Option<String> {
        each!(self, source => source.place())
    }
}
