//! Runs: a load on a drive, and several side by side.

use crate::frame::Data;
use crate::policy::by_name;
use crate::record::Run;
use crate::work::{Shared, wait, wait_or_part};
use crate::{errors, sweep};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewater_report::requests::RequestSink;
use tidewater_sim::trace::Input;
use tidewater_study::sweep::Sweep;
use tidewater_study::{self as study, Failure, How, Listeners, One, Origin, RunFailure, Setting};
use tidewater_tables::{Batches, Format, Requests};

/// Inputs of a run.
pub struct Given {
    /// The plan of one run.
    pub plan: String,
    /// The trace, where it is no file.
    pub input: Option<Input>,
    /// Whether requests are kept.
    pub keep: bool,
    /// Where they are written.
    pub file: Option<PathBuf>,
}

/// Makes the one run of a plan. `follow` gets the share that is done; `add` adds to what goes on around the run.
pub fn make(
    given: Given,
    cancelled: Arc<AtomicBool>,
    mut follow: Box<dyn FnMut(f64) + Send>,
    add: impl FnOnce(&mut Listeners<'_>),
) -> Result<Run, Failure> {
    let plan = Sweep::parse(&given.plan, Path::new(""))?.plans()?.remove(0);
    let drive = plan.drive.prepare()?;
    let origin = match given.input {
        Some(input) => Origin::Traces(vec![input]),
        None => Origin::find(&plan.load)?,
    };
    let kept = given.keep.then(Batches::default);
    let sink: Option<Box<dyn RequestSink + Send>> = match (&kept, &given.file) {
        (Some(kept), _) => Some(Box::new(kept.sink())),
        (None, Some(path)) => Some(requests(path)?),
        (None, None) => None,
    };
    let mut listeners = Listeners {
        progress: Some(Box::new(move |progress| follow(progress.share.unwrap_or(0.0)))),
        cancelled,
        requests: sink,
        ..Listeners::default()
    };
    add(&mut listeners);
    let run = One { origin: &origin, load: &plan.load, drive: &drive, given: &plan.drive };
    let record = run.run(listeners).map_err(|failure| match failure {
        RunFailure::Run(failure) => failure,
        RunFailure::Output(error) => Failure::run(format_args!("the requests can't be written: {error}")),
    })?;
    Ok(Run::new(record, kept.map(Batches::take)))
}

/// Signs that the traces of a plan are misread, before it is run: columns or units that look mistaken. Faults of the
/// plan itself are errors of its run.
#[pyfunction]
pub fn doubts(py: Python<'_>, plan: &str, data: Option<&Data>) -> Vec<String> {
    let input = data.map(|data| data.input("data frame"));
    py.detach(|| {
        let plans = Sweep::parse(plan, Path::new("")).and_then(|sweep| sweep.plans()).unwrap_or_default();
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for plan in plans.into_iter().filter(|plan| seen.insert(plan.load.traces.clone())) {
            let origin = match &input {
                Some(input) => Ok(Origin::Traces(vec![input.clone()])),
                None => Origin::find(&plan.load),
            };
            found.extend(origin.map(|origin| origin.doubts(&plan.load)).unwrap_or_default());
        }
        found
    })
}

/// An exception that ended a run; Ctrl-C has what was done until then as its attribute `run`.
pub fn with_part(py: Python<'_>, error: PyErr, part: Option<Result<Run, Failure>>) -> PyErr {
    if let Some(Ok(run)) = part
        && error.is_instance_of::<PyKeyboardInterrupt>(py)
        && let Err(failed) = Py::new(py, run).and_then(|run| error.value(py).setattr("run", run))
    {
        return failed;
    }
    error
}

/// Makes the one run of a plan. `data`: the trace, where it is no file. `keep`: whether requests are kept; `file`:
/// where they are written.
///
/// # Errors
/// Plans that can't be run, and signals.
#[pyfunction]
pub fn replay(
    py: Python<'_>,
    plan: String,
    data: Option<&Data>,
    keep: bool,
    file: Option<PathBuf>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Run> {
    let given = Given { plan, input: data.map(|data| data.input("data frame")), keep, file };
    let shared = Shared::default();
    let (cancelled, share) = (Arc::clone(&shared.cancelled), shared.clone());
    let work = move || make(given, cancelled, Box::new(move |done| share.set(done)), |_| ());
    match wait_or_part(py, &shared, progress, work) {
        Ok(made) => made.map_err(|failure: Failure| errors::of(py, &failure)),
        Err((error, part)) => Err(with_part(py, error, part)),
    }
}

/// Requests as a table in a file.
fn requests(path: &Path) -> Result<Box<dyn RequestSink + Send>, Failure> {
    let format = Format::of(path).map_err(Failure::refused)?;
    let wrong = |error| Failure::run(format_args!("cannot write {}: {error}", path.display()));
    let file = std::io::BufWriter::new(std::fs::File::create(path).map_err(wrong)?);
    Ok(Box::new(Requests::new(file, format).map_err(wrong)?))
}

/// A run of a comparison: its label, what is varied, and its record.
pub type Compared = (String, Vec<(String, String)>, Run);

/// Makes the runs of a plan, as many at once as there are jobs and memory for.
///
/// # Errors
/// The first run that can't be had, and signals.
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    plan: String,
    jobs: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
    policies: Option<HashMap<String, Py<PyAny>>>,
) -> PyResult<Vec<Compared>> {
    let policies = by_name(policies);
    let shared = Shared::default();
    let follow = shared.clone();
    let made = wait(py, &shared, progress, move || {
        let ready = study::ready(Sweep::parse(&plan, Path::new(""))?.plans()?)?;
        let how = How { policies, ..How::new(jobs, Arc::clone(&follow.cancelled)) };
        let outcomes = study::run_all(&ready, &how, &sweep::follow(follow, ready.len()));
        let mut runs = Vec::new();
        for (run, outcome) in ready.iter().zip(outcomes) {
            let Some(outcome) = outcome else { continue };
            let point = run.plan.point.iter().map(|Setting { key, value }| (key.clone(), value.clone())).collect();
            runs.push((run.plan.label.clone(), point, Run::new(outcome?, None)));
        }
        Ok(runs)
    })?;
    made.map_err(|failure: Failure| errors::of(py, &failure))
}
