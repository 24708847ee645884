//! Sweeps: any number of runs, kept in a folder. A record is written as its run ends, under a name that follows from
//! all that decides it, so a second start does what is missing, and several processes or machines share one folder.

mod folder;
mod identity;
mod outcome;
pub(crate) mod plan;
mod study;

pub use folder::{Folder, State};
pub use identity::digest_of_file;
pub use outcome::{Index, STATISTICS, TABLE, tables};
pub use plan::Sweep;
pub use study::begin;

use crate::many::{Follow, How, Ready};
use crate::vary::Plan;
use crate::{Failure, Setting};
use identity::Digests;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewater_report::Record;
use tidewater_sim::pool;

/// Stored outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The varied values, as `KEY=VALUE`, separated by blanks.
    pub label: String,
    /// The varied keys and their values.
    pub point: BTreeMap<String, String>,
    /// All that decides the run, a line each; the name of the record is its digest.
    pub decided_by: Vec<String>,
    /// The record; none where the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// Why there is no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One run of a sweep, and the name that its record has.
pub struct Named {
    /// Its name: 32 hexadecimal digits.
    pub name: String,
    /// Inputs of its name's digest.
    pub decided_by: Vec<String>,
    /// The run, or why it can't be had.
    pub run: Result<Ready, Failure>,
    /// The plan.
    pub plan: Plan,
}

/// The runs of a sweep with their names. `build` tells one build of the program from another.
///
/// # Errors
/// A load that can't be read, a profile that there is not, and what makes every run impossible: a misspelt key.
pub fn named(plans: Vec<Plan>, build: &str) -> Result<Vec<Named>, Failure> {
    let mut digests = Digests::default();
    // Values that can't be had are rows with their reasons. A name that is none is a slip of the pen.
    for plan in &plans {
        crate::find(&plan.drive.profile)?;
    }
    let named: Vec<Named> = plans
        .into_iter()
        .map(|plan| {
            // What can't be had is a row with its reason, and the others are made all the same.
            let run = crate::ready(vec![plan.clone()]).map(|mut ready| ready.remove(0));
            let profile = run.as_ref().ok().map(|run| &run.drive.profile);
            let decided_by = digests.decided_by(&plan, profile, build)?;
            let name = identity::digest(decided_by.join("\n").as_bytes());
            Ok(Named { name, decided_by, run, plan })
        })
        .collect::<Result<_, Failure>>()?;
    match named.iter().find_map(|run| run.run.as_ref().err()) {
        Some(failure) if named.iter().all(|run| run.run.is_err()) => Err(failure.clone()),
        _ => Ok(named),
    }
}

/// Counts of one call of [`run`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Runs that were made.
    pub made: usize,
    /// Runs that were there already, or that another process made meanwhile.
    pub found: usize,
    /// Of all runs, those without a record because they failed.
    pub failed: usize,
    /// Runs that are still missing: this one was asked to end.
    pub missing: usize,
}

/// Makes the runs that the folder does not have. Runs that another process is making are waited for, and taken over if
/// that process goes away.
///
/// # Errors
/// When the folder can't be read or written.
pub fn run(runs: Vec<Named>, folder: &Folder, how: &How, follow: &Arc<dyn Follow>) -> Result<Done, Failure> {
    let count = runs.len();
    how.expect(runs.iter().filter_map(|run| run.run.as_ref().ok()));
    let states = pool::with_jobs(how.jobs.min(count), || {
        pool::in_order(runs, |index, run| {
            let state = one(index, &run, folder, how, follow);
            // Those that another process makes are looked at again when there is nothing else to do.
            (run, state)
        })
    });
    let mut done = Done::default();
    let mut later = Vec::new();
    for (index, (run, state)) in states.into_iter().enumerate() {
        match state? {
            State::Busy => later.push((index, run)),
            state => done.count(state),
        }
    }
    let last = pool::with_jobs(how.jobs.min(later.len()), || {
        pool::in_order(later, |_, (index, run)| {
            loop {
                match one(index, &run, folder, how, follow) {
                    Ok(State::Busy) => std::thread::sleep(std::time::Duration::from_millis(50)),
                    state => return state,
                }
            }
        })
    });
    for state in last {
        done.count(state?);
    }
    Ok(done)
}

impl Done {
    fn count(&mut self, state: State) {
        match state {
            State::Made { failed } => {
                self.made += 1;
                self.failed += usize::from(failed);
            }
            State::There { failed } => {
                self.found += 1;
                self.failed += usize::from(failed);
            }
            State::Missing | State::Busy => self.missing += 1,
        }
    }
}

fn one(index: usize, run: &Named, folder: &Folder, how: &How, follow: &Arc<dyn Follow>) -> Result<State, Failure> {
    if let Some(state) = folder.state(&run.name)? {
        follow.found(index);
        return Ok(state);
    }
    if how.cancelled.load(Ordering::Relaxed) {
        return Ok(State::Missing);
    }
    let Some(claim) = folder.claim(&run.name)? else { return Ok(State::Busy) };
    // Another process may have ended it between the two looks.
    if let Some(state) = folder.state(&run.name)? {
        follow.found(index);
        return Ok(state);
    }
    let outcome = match &run.run {
        Ok(ready) => crate::many::one(ready, how, index, follow),
        Err(failure) => Err(failure.clone()),
    };
    follow.ended(index, &outcome);
    // A part of a run is no result of it.
    if outcome.as_ref().is_ok_and(|record| record.partial) {
        return Ok(State::Missing);
    }
    let failed = outcome.is_err();
    let Plan { label, point, .. } = &run.plan;
    let kept = Kept {
        label: label.clone(),
        point: point.iter().map(|Setting { key, value }| (key.clone(), value.clone())).collect(),
        decided_by: run.decided_by.clone(),
        failure: outcome.as_ref().err().map(ToString::to_string),
        record: outcome.ok().map(|record| record.without_wall_time()),
    };
    folder.keep(&run.name, &kept)?;
    drop(claim);
    Ok(State::Made { failed })
}

/// The runs that are there, in the order of the sweep: `runs` are their names and what this sweep calls them, which may
/// be another label than that of the sweep which made them.
///
/// # Errors
/// A file that can't be read or is no such record.
pub fn kept(runs: &[(String, String)], folder: &Folder) -> Result<Vec<Kept>, Failure> {
    let labelled = |label: &String, kept: Kept| Kept { label: label.clone(), ..kept };
    let read = |(name, label): &(String, String)| Ok(folder.read(name)?.map(|kept| labelled(label, kept)));
    runs.iter().filter_map(|run| read(run).transpose()).collect()
}
