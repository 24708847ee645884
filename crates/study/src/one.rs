//! One run: a load on a drive.

use crate::drive::{Drive, DriveSpec};
use crate::load::{LoadSpec, Origin};
use crate::shared::{SharedDrives, SharedTraces};
use crate::{Failure, Subject, trace};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewater_core::buffer::Outside;
use tidewater_core::device::{self, Options};
use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_report::requests::RequestSink;
use tidewater_sim::pool::Memory;
use tidewater_sim::run::{self, OnMoment, OnProgress, OnReady, RunError, RunOptions};
use tidewater_sim::workload::Source as _;

/// One run.
pub struct One<'a> {
    /// Where its requests come from.
    pub origin: &'a Origin,
    /// The load as it was asked for.
    pub load: &'a LoadSpec,
    /// The drive.
    pub drive: &'a Drive,
    /// The drive as it was asked for.
    pub given: &'a DriveSpec,
}

/// Callbacks and shared state of a run.
#[derive(Default)]
pub struct Listeners<'a> {
    /// Called when the load is open, and its drive is to be made.
    pub opened: Option<Box<dyn FnOnce() + Send + 'a>>,
    /// Called when the drive is there.
    pub ready: Option<OnReady>,
    /// Gets the progress.
    pub progress: Option<OnProgress>,
    /// Gets moments, for the live page.
    pub watch: Option<OnMoment>,
    /// Set from outside, it ends the run early: the record then is marked as partial.
    pub cancelled: Arc<AtomicBool>,
    /// Takes each request.
    pub requests: Option<Box<dyn RequestSink + Send>>,
    /// Budget from which the memory of the drive's model is reserved before it is made; `None`: no limit.
    pub memory: Option<&'a Memory>,
    /// Traces that other runs have read, or will.
    pub traces: Option<&'a SharedTraces>,
    /// Drives that other runs begin with, too.
    pub drives: Option<Arc<SharedDrives>>,
    /// Makes the drive, where it is not one of `drives`.
    pub make: Option<run::MakeDevice>,
    /// The policy of the write buffer, in place of the drive's: one from outside of the firmware.
    pub policy: Option<Outside>,
}

/// Why a run came to no result.
#[derive(Debug)]
pub enum RunFailure {
    /// It can't be had, or went wrong.
    Run(Failure),
    /// The requests could not be written.
    Output(io::Error),
}

impl From<Failure> for RunFailure {
    fn from(failure: Failure) -> RunFailure {
        RunFailure::Run(failure)
    }
}

impl One<'_> {
    /// Runs it. The record's command line is the caller's to give.
    ///
    /// # Errors
    /// When the load cannot be opened or served.
    pub fn run(&self, listeners: Listeners<'_>) -> Result<Record, RunFailure> {
        if let (Some(name), None) = (&self.drive.outside, &listeners.policy) {
            return Err(Failure::usage(format_args!("`{name}` is a write policy in Python, whose code is not here"))
                .help("compare and sweep of the Python package take it as a value, replay as policy=")
                .into());
        }
        let seed = self.given.seed;
        let load = self.origin.open(self.load, &self.drive.profile, seed, listeners.traces)?;
        if let Some(opened) = listeners.opened {
            opened();
        }
        let extent = load.source.extent().unwrap_or(0);
        let cut = self.load.power_cut.is_some();
        let _held = listeners.memory.map(|memory| memory.take(memory_needed(&self.drive.profile, extent, cut)));
        let defaults = RunOptions::default();
        let changed_policy = listeners.policy.as_ref().map(|policy| format!("buffer.write_policy={}", policy.name()));
        let share = |drives: Arc<SharedDrives>| -> run::MakeDevice {
            Box::new(move |profile, options| drives.make(profile, options))
        };
        let options = RunOptions {
            device: device_options(self.given, self.load),
            pacing: load.pacing,
            speedup: self.load.speedup.unwrap_or(1.0),
            warmup_requests: self.load.warm_up,
            runtime: load.runtime,
            power_cut: self.load.power_cut,
            wrap: self.load.wrap,
            requests: listeners.requests,
            cancelled: listeners.cancelled,
            progress: listeners.progress,
            watch: listeners.watch,
            ready: listeners.ready,
            make: listeners.drives.map(share).or(listeners.make),
            policy: listeners.policy,
            workload: load.described,
            changed: self.drive.changed.clone(),
            ..defaults
        };
        let outcome = run::run(&self.drive.profile, load.source, options);
        let mut record = outcome.map_err(|error| self.refusal(error))?.record;
        // Of a drive from a file, the file is what makes the run again.
        record.profile.name.clone_from(&self.drive.name);
        record.profile.description.clone_from(&self.drive.about);
        if let Some(changed) = changed_policy {
            record.profile.description += &format!("; changed: {changed}");
        }
        record.warnings.extend(load.warnings);
        Ok(record)
    }

    fn refusal(&self, error: RunError) -> RunFailure {
        match error {
            RunError::Output(error) => RunFailure::Output(error),
            error => RunFailure::Run(refusal(&error, self.load)),
        }
    }
}

/// How the drive of a run is made; a size of 0 follows from its load.
pub(crate) fn device_options(drive: &DriveSpec, load: &LoadSpec) -> Options {
    let of_runs = RunOptions::default().device;
    let stamps = of_runs.stamps || load.power_cut.is_some();
    Options { seed: drive.seed, precondition: drive.precondition, stamps, ..of_runs }
}

/// Memory of a run besides its drive, in bytes: readers, histograms, queues.
const MEMORY_OF_A_RUN: u64 = 16 << 20;
/// Memory of each written unit of a drive: 11 bytes measured (16 GiB, steady), and some to spare.
const MEMORY_PER_UNIT: u64 = 16;
/// Additional memory of its stamps, which a power cut needs: 74 bytes measured (the same drive).
const MEMORY_PER_STAMP: u64 = 80;

/// Bytes of this computer's memory that a run will take, by the units of its drive: map, versions and wear, and stamps
/// where power is cut. An estimate from above: units that a run never touches cost nothing.
pub fn memory_needed(profile: &Profile, extent: u64, power_cut: bool) -> u64 {
    let capacity = if profile.drive.capacity > 0 { profile.drive.capacity } else { extent };
    let units = device::plan(profile, capacity).map_or(0, |plan| plan.units);
    let each = if power_cut { MEMORY_PER_UNIT + MEMORY_PER_STAMP } else { MEMORY_PER_UNIT };
    MEMORY_OF_A_RUN.saturating_add(units.saturating_mul(each))
}

/// Why there was no run, and what to do about it.
fn refusal(error: &RunError, load: &LoadSpec) -> Failure {
    match error {
        RunError::Source(error) => trace::refusal(error),
        RunError::Stalled(state) => Failure::run(
            "internal error in Tidewater: the drive stopped with requests outstanding",
        )
        .help(format_args!("please report it with the command line and this: {}", state.trim().replace('\n', "; "))),
        RunError::OutOfRange { .. } if load.traces.iter().any(|trace| trace.as_os_str() == "-") => {
            let message = Failure::refused(error).message;
            Failure::usage(message).help(
                "store the trace in a file first: a pipe is read once, which does not tell how large each of its units \
                 is; or use --wrap",
            )
        }
        RunError::OutOfRange { .. } if load.job.is_some() => {
            let message = Failure::refused(error).message;
            Failure::usage(message)
                .help("give the job a smaller size=, or the drive a larger one; --wrap brings addresses back into it")
        }
        RunError::Policy { .. } => Failure::run(error).of(Subject::Policy { rule: None }),
        RunError::NoCapacity => Failure::usage(
            "the size of the drive is unknown: the load is read once, as a stream, so its highest address is not known \
             in advance",
        )
        .help("give the drive a size, as in --capacity 64GiB, or store the trace in a file first"),
        RunError::NoRequests { warmup: 0 } if load.reading.slice.is_some() => {
            trace::empty_slice(if load.job.is_some() { "the job's number_ios" } else { trace::COUNTS })
        }
        RunError::NoRequests { warmup: 1.. } => Failure::usage(error).help("give a smaller --warm-up"),
        _ => Failure::refused(error),
    }
}
