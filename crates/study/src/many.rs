//! Many runs, as many at once as there are jobs and memory for.

use crate::load::{LoadSpec, Origin};
use crate::one::{Listeners, One, RunFailure, device_options, memory_needed};
use crate::shared::{SharedDrives, SharedTraces};
use crate::vary::Plan;
use crate::{Drive, Failure};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidewater_core::buffer::Outside;
use tidewater_report::Record;
use tidewater_sim::pool::{self, Memory};
use tidewater_sim::workload::Source as _;

/// A run whose drive and load were found, with all that can be wrong before it begins.
pub struct Ready {
    /// The plan of the run.
    pub plan: Plan,
    /// Its drive.
    pub drive: Drive,
    /// Its load; runs of the same load have one.
    pub origin: Arc<Origin>,
}

/// Finds the drive and the load of every run.
///
/// # Errors
/// The first that can't be had, in their order.
pub fn ready(plans: Vec<Plan>) -> Result<Vec<Ready>, Failure> {
    let several = plans.len() > 1;
    let mut origins: HashMap<(Vec<std::path::PathBuf>, Option<String>), Arc<Origin>> = HashMap::new();
    plans
        .into_iter()
        .map(|plan| {
            let drive = plan.drive.prepare().map_err(|failure| plan.within(failure))?;
            let LoadSpec { traces, job, synth, .. } = &plan.load;
            let origin = match origins.get(&(traces.clone(), job.clone())) {
                // A speedup that a job has no use for is refused for each.
                Some(origin) if job.is_none() && synth.is_none() => Arc::clone(origin),
                _ => Arc::new(Origin::find(&plan.load)?),
            };
            if several && !origin.is_repeatable() {
                return Err(Failure::usage(
                    "a comparison reads its trace several times, but this one can be read only once",
                )
                .help("store the trace in a file first"));
            }
            origins.insert((traces.clone(), job.clone()), Arc::clone(&origin));
            Ok(Ready { plan, drive, origin })
        })
        .collect()
}

impl Ready {
    /// Bytes of this computer's memory that it will take, from above. Of a drive whose size follows from its load, the
    /// load is opened for that.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn memory(&self, shared: &SharedTraces) -> Result<u64, Failure> {
        let (profile, load) = (&self.drive.profile, &self.plan.load);
        let extent = if profile.drive.capacity > 0 {
            0
        } else {
            self.origin.open(load, profile, self.plan.drive.seed, Some(shared))?.source.extent().unwrap_or(0)
        };
        Ok(memory_needed(profile, extent, load.power_cut.is_some()))
    }
}

/// How many runs are made.
pub struct How {
    /// Runs at once, if memory allows.
    pub jobs: usize,
    /// The memory that they share.
    pub memory: Memory,
    /// Traces that were read, for the runs that share them.
    pub traces: Arc<SharedTraces>,
    /// Drives that were made, for the runs that begin with the same.
    pub drives: Arc<SharedDrives>,
    /// Set from outside, runs end early, their records marked as partial, and no further one begins.
    pub cancelled: Arc<AtomicBool>,
    /// Finds write policies from outside of the firmware by their names ([`Drive::outside`]), a new one for each run.
    pub policies: Option<Arc<FindPolicy>>,
}

/// Finds a write policy by its name.
pub type FindPolicy = dyn Fn(&str) -> Option<Outside> + Send + Sync;

impl How {
    /// So many jobs (`None`: as many as there are processors). Of the memory that is free now, runs get six tenths,
    /// traces two, and drives that are kept one.
    pub fn new(jobs: Option<usize>, cancelled: Arc<AtomicBool>) -> How {
        let jobs = jobs.unwrap_or_else(pool::default_jobs);
        let tenth = free_memory() / 10;
        let (traces, drives) = (Arc::new(SharedTraces::new(tenth * 2)), Arc::new(SharedDrives::new(tenth)));
        How { jobs, memory: Memory::new(tenth * 6), traces, drives, cancelled, policies: None }
    }
}

impl How {
    /// These runs will come, so that what they share is kept for them.
    pub(crate) fn expect<'r>(&self, runs: impl Iterator<Item = &'r Ready>) {
        for Ready { plan, drive, .. } in runs {
            self.drives.expect(&drive.profile, &device_options(&plan.drive, &plan.load));
        }
    }
}

/// Free memory by the system's count, within the limit of a control group; 4 GiB if the system gives none.
fn free_memory() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    available.unwrap_or(UNKNOWN).min(group.unwrap_or(u64::MAX))
}

/// Progress of runs, on any thread.
pub trait Follow: Send + Sync {
    /// The first drive is there: from now on there will be something to keep.
    fn begun(&self) {}
    /// A run is being made from now on.
    fn started(&self, _index: usize) {}
    /// So much of a run is done, 0 to 1.
    fn share(&self, _index: usize, _share: f64) {}
    /// A run's record was there already.
    fn found(&self, _index: usize) {}
    /// A run came to its end; runs that were never begun come to none.
    fn ended(&self, _index: usize, _outcome: &Result<Record, Failure>) {}
}

/// Makes the runs, begun in their order. Their outcomes come in that order and depend neither on the number of jobs nor
/// on the memory; `None`: cancelled before it began.
pub fn run_all(runs: &[Ready], how: &How, follow: &Arc<dyn Follow>) -> Vec<Option<Result<Record, Failure>>> {
    how.expect(runs.iter());
    pool::with_jobs(how.jobs.min(runs.len()), || {
        pool::in_order(runs.iter().collect(), |index, run: &Ready| {
            if how.cancelled.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = one(run, how, index, follow);
            follow.ended(index, &outcome);
            Some(outcome)
        })
    })
}

pub(crate) fn one(run: &Ready, how: &How, index: usize, follow: &Arc<dyn Follow>) -> Result<Record, Failure> {
    let Ready { plan, drive, origin } = run;
    follow.started(index);
    let (begun, told) = (Arc::clone(follow), Arc::clone(follow));
    let listeners = Listeners {
        ready: Some(Box::new(move || begun.begun())),
        progress: Some(Box::new(move |progress| {
            if let Some(share) = progress.share {
                told.share(index, share);
            }
        })),
        cancelled: Arc::clone(&how.cancelled),
        memory: Some(&how.memory),
        traces: Some(&how.traces),
        drives: Some(Arc::clone(&how.drives)),
        policy: drive.outside.as_deref().and_then(|name| how.policies.as_ref()?(name)),
        ..Listeners::default()
    };
    let run = One { origin, load: &plan.load, drive, given: &plan.drive };
    run.run(listeners).map_err(|failure| match failure {
        RunFailure::Run(failure) => plan.within(failure),
        RunFailure::Output(error) => Failure::run(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Sweep;
    use crate::{DriveSpec, Reading};
    use tidewater_core::ftl::Precondition;

    struct Silent;

    impl Follow for Silent {}

    #[test]
    fn runs_that_share_a_trace_have_the_records_of_runs_that_do_not() {
        let drive = DriveSpec {
            profile: "generic".into(),
            set: Vec::new(),
            capacity: None,
            precondition: Precondition::Steady,
            seed: 1,
        };
        let load = LoadSpec {
            traces: vec!["sample".into()],
            repeat: Some(2),
            reading: Reading { slice: Some("100..3000".parse().unwrap()), ..Reading::default() },
            ..LoadSpec::default()
        };
        let vary = vec!["nand.channels=4,8".parse().unwrap(), "speedup=1,2".parse().unwrap()];
        let runs = ready(Sweep::of(load, drive, vary).plans().unwrap()).unwrap();
        let how = How::new(Some(2), Arc::default());
        let follow: Arc<dyn Follow> = Arc::new(Silent);
        let shared = run_all(&runs, &how, &follow);
        for (run, shared) in runs.iter().zip(shared) {
            let alone = One { origin: &run.origin, load: &run.plan.load, drive: &run.drive, given: &run.plan.drive };
            let alone = alone.run(Listeners::default()).unwrap().without_wall_time();
            assert_eq!(shared.unwrap().unwrap().without_wall_time(), alone, "{}", run.plan.label);
        }
    }
}
