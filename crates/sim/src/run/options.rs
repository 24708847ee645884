//! The options of a run, and why a run can fail.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidewater_base::units::plural_exact;
use tidewater_base::{Duration, Instant};
use tidewater_core::buffer::{Fault, Outside};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, SetupError};
use tidewater_gauges::Moment;
use tidewater_report::record::Workload;
use tidewater_report::requests::RequestSink;

use crate::request::{Op, SourceError};

/// When requests are submitted, and from when their latency counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Open loop: at their arrival, however many are outstanding. Those that find every submission queue full wait in
    /// the host, in order. Latency counts from arrival.
    Arrival,
    /// Closed loop: arrivals are ignored, so many requests (1 to 65,535) are kept outstanding. Latency counts from
    /// submission.
    Depth(u32),
    /// Not before their arrival, and never more outstanding than that (1 to 65,535): a job with a rate. Latency counts
    /// from submission, as fio counts it.
    ArrivalAndDepth(u32),
}

/// Which submission queue a command goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOf {
    /// The next with room, in turn, command by command.
    #[default]
    RoundRobin,
    /// Each operation has its own, in the order of [`Op::ALL`] (reads in queue 0, writes in queue 1, flushes in queue 2
    /// and so on), as far as there are queues, then from the start. With `[host] arbitration = "weighted"` and
    /// `queue_priorities` this gives operations priorities.
    Operation,
}

impl QueueOf {
    /// The queue of an operation, if it is bound to one.
    pub(crate) fn queue(self, op: Op, queues: u32) -> Option<u32> {
        match self {
            QueueOf::RoundRobin => None,
            QueueOf::Operation => Some(op.index() as u32 % queues),
        }
    }
}

/// How far a run has got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Requests completed, warm-up included.
    pub requests: u64,
    /// Requests there will be, where that is known.
    pub expected: Option<u64>,
    /// The share that is done, 0 to 1, where that is known.
    pub share: Option<f64>,
    /// Simulated time.
    pub simulated: Duration,
    /// Requests completed per second of real time since the last report.
    pub requests_per_second: f64,
}

/// Gets the progress of a run.
pub type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// Gets moments of a run, for the live page.
pub type OnMoment = Box<dyn FnMut(Moment) + Send>;

/// Called once, when the drive is ready and the first request comes.
pub type OnReady = Box<dyn FnOnce() + Send>;

/// Makes the drive of a run: one that has served nothing yet, as [`Device::new`] does of the same profile and options.
pub type MakeDevice = Box<dyn FnOnce(&Profile, tidewater_core::Options) -> Result<Device, SetupError> + Send>;

/// How a run is made, besides the profile and the workload.
pub struct RunOptions {
    /// Seed, capacity, past and checks of the device. A capacity of 0 follows the profile, or else the workload. Unlike
    /// the device's own default, `premap` is on: pages that a trace reads but never wrote cost a flash read.
    pub device: tidewater_core::Options,
    /// Makes the device in place of [`Device::new`], for runs that share one.
    pub make: Option<MakeDevice>,
    /// The policy of the write buffer, in place of the profile's: one from outside of the firmware.
    pub policy: Option<Outside>,
    /// When requests are submitted.
    pub pacing: Pacing,
    /// Arrivals come so many times faster; above 0. Without effect where arrivals are ignored.
    pub speedup: f64,
    /// Requests at the start that are served but not measured. All figures begin when the last of them was submitted.
    pub warmup_requests: u64,
    /// The run ends after so many requests of the source, warm-up included.
    pub limit: Option<u64>,
    /// No request is submitted at or after this simulated time. Needed for endless jobs.
    pub runtime: Option<Duration>,
    /// Requests past the end of the drive go to the address modulo its capacity; otherwise they end the run with an
    /// error.
    pub wrap: bool,
    /// Which submission queue a command goes to.
    pub queue_of: QueueOf,
    /// Takes each measured request as it completes.
    pub requests: Option<Box<dyn RequestSink + Send>>,
    /// The most points of the time series, at least 2.
    pub time_series_points: usize,
    /// Set from outside (Ctrl-C), it ends the run early: the record then is marked as partial.
    pub cancelled: Arc<AtomicBool>,
    /// Called at most every 50 ms of real time, and at the end.
    pub progress: Option<OnProgress>,
    /// Called about four times a second of real time, and at the end.
    pub watch: Option<OnMoment>,
    /// Called by [`super::run`] when the drive has been built and preconditioned, which takes long for a large one:
    /// before that, `cancelled` has no effect.
    pub ready: Option<OnReady>,
    /// Cut the power at this simulated time, bring the drive back, and end there. Needs a drive that keeps stamps:
    /// [`super::run`] sees to it.
    pub power_cut: Option<Duration>,
    /// Where the requests come from, for the record; the run adds its own options to it.
    pub workload: Workload,
    /// The settings that were changed from the named profile, as `KEY=VALUE`, for the record.
    pub changed: Vec<String>,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            device: tidewater_core::Options { premap: true, ..tidewater_core::Options::default() },
            make: None,
            policy: None,
            pacing: Pacing::Arrival,
            speedup: 1.0,
            warmup_requests: 0,
            limit: None,
            runtime: None,
            wrap: false,
            queue_of: QueueOf::RoundRobin,
            requests: None,
            time_series_points: 500,
            cancelled: Arc::default(),
            progress: None,
            watch: None,
            ready: None,
            power_cut: None,
            workload: Workload::default(),
            changed: Vec::new(),
        }
    }
}

/// Why a run did not come to a result.
#[derive(Debug)]
pub enum RunError {
    /// An option has no meaning.
    Options(String),
    /// There can be no such drive.
    Setup(SetupError),
    /// The write policy, one from outside, broke its contract or failed.
    Policy {
        /// Its name.
        name: String,
        /// The fault.
        fault: Fault,
    },
    /// Nothing says how large the drive must be.
    NoCapacity,
    /// The source broke off.
    Source(SourceError),
    /// The source holds no request, or the warm-up took them all.
    NoRequests {
        /// Requests that went to the warm-up.
        warmup: u64,
    },
    /// A request goes past the end of a drive of given size.
    OutOfRange {
        /// Where the request comes from, if the source knows: `file:line`.
        place: Option<String>,
        /// The request's number in the source, from 0.
        index: u64,
        /// The operation.
        op: Op,
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// The drive's bytes.
        capacity: u64,
    },
    /// A request arrives later than virtual time can tell.
    TooLate {
        /// Where the request comes from, if the source knows.
        place: Option<String>,
        /// The request's number in the source, from 0.
        index: u64,
        /// Its arrival after the speed-up, in days.
        days: f64,
    },
    /// A request could not be written.
    Output(io::Error),
    /// Requests are outstanding and will never complete: a bug of the firmware.
    Stalled(String),
}

/// Later arrivals are refused: 64 bits of picoseconds last 213 days, and what arrives last has to be served.
pub(crate) const LAST_ARRIVAL: Instant = Instant::from_ns(200 * 86_400 * 1_000_000_000);

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Options(text) => f.write_str(text),
            RunError::Setup(error) => error.fmt(f),
            RunError::NoCapacity => f.write_str(
                "nothing says how large the drive must be: the workload is read as it comes and does not tell its \
                 highest address; give [drive] capacity (with --set drive.capacity=SIZE)",
            ),
            RunError::Source(error) => error.fmt(f),
            RunError::NoRequests { warmup: 0 } => f.write_str("the workload holds no request"),
            RunError::NoRequests { warmup } => {
                let requests = plural_exact(*warmup, "request");
                write!(f, "the warm-up took all {requests} of the workload, and none is left to measure")
            }
            RunError::OutOfRange { place, index, op, offset, length, capacity } => {
                let place = place.as_ref().map(|p| format!("{p}: ")).unwrap_or_default();
                write!(
                    f,
                    "{place}request {index} ({} of {length} bytes at byte {offset}) goes past the end of the drive, \
                     which has {capacity} bytes; give a larger [drive] capacity, or wrap addresses with --wrap",
                    op.name()
                )
            }
            RunError::TooLate { place, index, days } => {
                let place = place.as_ref().map(|p| format!("{p}: ")).unwrap_or_default();
                write!(
                    f,
                    "{place}request {index} arrives after {days:.0} days, and virtual time ends after 200; give a \
                     higher --speedup, or a part of the trace with --slice"
                )
            }
            RunError::Policy { name, fault } => write!(f, "write policy {name}: {fault}"),
            RunError::Output(error) => write!(f, "cannot write a request: {error}"),
            RunError::Stalled(state) => {
                write!(
                    f,
                    "internal error: the drive has stopped with requests outstanding. Please report this, with the \
                     command line and these lines:\n{state}"
                )
            }
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Setup(error) => Some(error),
            RunError::Source(error) => Some(error),
            RunError::Output(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SetupError> for RunError {
    fn from(error: SetupError) -> RunError {
        RunError::Setup(error)
    }
}

/// Reads what a drive has been through: `fresh`, `filled` (wholly), `filled:80%`, `steady`.
///
/// # Errors
/// In words, with what is allowed.
pub fn parse_precondition(text: &str) -> Result<Precondition, String> {
    let share = |text: &str| text.strip_suffix('%')?.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
    match text.trim().split_once(':') {
        None if text.trim() == "fresh" => Ok(Precondition::Fresh),
        None if text.trim() == "filled" => Ok(Precondition::Filled(1.0)),
        None if text.trim() == "steady" => Ok(Precondition::Steady),
        Some(("filled", percent)) if share(percent).is_some() => {
            Ok(Precondition::Filled(share(percent).unwrap_or_default() / 100.0))
        }
        _ => Err(format!(
            "`{text}` is no state of a drive: expected fresh, filled, filled:PERCENT% (as in filled:80%) or steady"
        )),
    }
}

/// The text that [`parse_precondition`] reads.
pub fn precondition_text(past: Precondition) -> String {
    match past {
        Precondition::Fresh => "fresh".into(),
        Precondition::Filled(share) if share >= 1.0 => "filled".into(),
        Precondition::Filled(share) => {
            // A hundredth times a hundred is not always what it was: 57 % would be printed as 56.99999999999999 %.
            let percent = (share * 1e11).round() / 1e9;
            format!("filled:{}%", if percent / 100.0 == share { percent } else { share * 100.0 })
        }
        Precondition::Steady => "steady".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preconditions_are_read_as_they_are_written() {
        for percent in 0..1_000 {
            let text = format!("filled:{}%", f64::from(percent) / 10.0);
            assert_eq!(precondition_text(parse_precondition(&text).unwrap()), text);
        }
        for past in [Precondition::Fresh, Precondition::Filled(1.0), Precondition::Filled(0.8), Precondition::Steady] {
            assert_eq!(parse_precondition(&precondition_text(past)), Ok(past));
        }
        for wrong in ["", "full", "filled:", "filled:80", "filled:120%", "filled:x%", "steady:1%", "filled:nan%"] {
            let error = parse_precondition(wrong).unwrap_err();
            assert!(error.contains("filled:80%") && error.contains(wrong), "{error}");
        }
    }
}
