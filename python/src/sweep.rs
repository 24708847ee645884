//! Sweeps: runs that are kept in a folder, which `tidewater sweep` and other processes share.

use crate::errors;
use crate::policy::by_name;
use crate::record::Run;
use crate::table::Table;
use crate::work::{Shared, wait};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use tidewater_report::Record;
use tidewater_study::sweep::{self as study, Folder, Named, STATISTICS, TABLE};
use tidewater_study::{Failure, Follow, How, Setting, SharedTraces};
use tidewater_tables::{Format, encode};

/// Identity of this build of the module: the digest of its file.
///
/// # Errors
/// When it can't be read.
#[pyfunction]
pub fn build(py: Python<'_>, module: PathBuf) -> PyResult<String> {
    study::digest_of_file(&module).map_err(|failure| errors::of(py, &failure))
}

/// How far runs are, for a caller who wants to see it.
struct Shares {
    shared: Shared,
    of_runs: Mutex<Vec<f64>>,
}

impl Shares {
    fn reach(&self, index: usize, share: f64) {
        let mut of_runs = self.of_runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = of_runs.get_mut(index)
            && share > *before
        {
            self.shared.add(share - *before);
            *before = share;
        }
    }
}

impl Follow for Shares {
    fn share(&self, index: usize, share: f64) {
        self.reach(index, share);
    }

    fn found(&self, index: usize) {
        self.reach(index, 1.0);
    }

    fn ended(&self, index: usize, _outcome: &Result<Record, Failure>) {
        self.reach(index, 1.0);
    }
}

/// Follows so many runs.
pub fn follow(shared: Shared, runs: usize) -> Arc<dyn Follow> {
    Arc::new(Shares { shared, of_runs: Mutex::new(vec![0.0; runs]) })
}

/// Name, label and what is varied of a run.
type Outline = (String, String, Vec<(String, String)>);

/// A run that the folder has or will have.
struct Row {
    name: String,
    label: String,
    point: Vec<Setting>,
    decided_by: Vec<String>,
}

/// The runs of a plan and the folder that keeps them.
#[pyclass(frozen, module = "tidewater_ssd._native")]
pub struct Sweep {
    folder: Folder,
    runs: Vec<Row>,
    /// The runs themselves, until they are made.
    named: Mutex<Option<Vec<Named>>>,
}

#[pymethods]
impl Sweep {
    /// Opens the folder, and finds what the plan asks for.
    #[new]
    fn new(py: Python<'_>, plan: &str, out: PathBuf, build: &str) -> PyResult<Sweep> {
        let made = py.detach(|| {
            let named = study::named(study::Sweep::parse(plan, Path::new(""))?.plans()?, build)?;
            let folder = Folder::open(&out)?;
            study::begin(&named, &folder)?;
            let of = |run: &Named| Row {
                name: run.name.clone(),
                label: run.plan.label.clone(),
                point: run.plan.point.clone(),
                decided_by: run.decided_by.clone(),
            };
            Ok(Sweep { folder, runs: named.iter().map(of).collect(), named: Mutex::new(Some(named)) })
        });
        made.map_err(|failure: Failure| errors::of(py, &failure))
    }

    /// Makes the folder a sweep's, so that a trace can be put there before the plan is read.
    #[staticmethod]
    fn open(py: Python<'_>, out: PathBuf) -> PyResult<()> {
        Folder::open(&out).map(drop).map_err(|failure| errors::of(py, &failure))
    }

    /// Forgets the runs that failed, so that they are tried again.
    fn forget_failed(&self, py: Python<'_>) -> PyResult<()> {
        self.folder.forget_failed().map_err(|failure| errors::of(py, &failure))
    }

    /// Of each run its name, its label and what is varied.
    fn runs(&self) -> Vec<Outline> {
        let pair = |setting: &Setting| (setting.key.clone(), setting.value.clone());
        let one = |row: &Row| (row.name.clone(), row.label.clone(), row.point.iter().map(pair).collect());
        self.runs.iter().map(one).collect()
    }

    /// The places of the runs that the folder does not have.
    fn missing(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let mut missing = Vec::new();
        for (at, row) in self.runs.iter().enumerate() {
            if self.folder.state(&row.name).map_err(|failure| errors::of(py, &failure))?.is_none() {
                missing.push(at);
            }
        }
        Ok(missing)
    }

    /// Of the run at this place the name, and all that decides it.
    fn named(&self, py: Python<'_>, at: usize) -> PyResult<(String, Vec<String>)> {
        let row = self.runs.get(at).ok_or_else(|| errors::usage(py, &"there is no such run"))?;
        Ok((row.name.clone(), row.decided_by.clone()))
    }

    /// Makes the runs that are missing. How many are missing after it.
    fn make(
        &self,
        py: Python<'_>,
        jobs: Option<usize>,
        progress: Option<&Bound<'_, PyAny>>,
        policies: Option<HashMap<String, Py<PyAny>>>,
    ) -> PyResult<usize> {
        let policies = by_name(policies);
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner).take();
        let named = named.ok_or_else(|| errors::usage(py, &"the runs of this sweep have been made"))?;
        let shared = Shared::default();
        let (followed, folder) = (shared.clone(), self.folder.clone());
        let made = wait(py, &shared, progress, move || {
            let how = How { policies, ..How::new(jobs, Arc::clone(&followed.cancelled)) };
            let follow = follow(followed, named.len());
            study::run(named, &folder, &how, &follow)
        })?;
        made.map(|done| done.missing).map_err(|failure| errors::of(py, &failure))
    }

    /// The run at this place; with the reason, where it failed. `None`: it is not there.
    fn run(&self, py: Python<'_>, at: usize) -> PyResult<Option<(Option<Run>, Option<String>)>> {
        let Some(row) = self.runs.get(at) else { return Ok(None) };
        let kept = self.folder.read(&row.name).map_err(|failure| errors::of(py, &failure))?;
        Ok(kept.map(|kept| (kept.record.map(|record| Run::new(record, None)), kept.failure)))
    }

    /// The table of the runs, and the figures over seeds; both are written into the folder if no run is missing.
    fn tables(&self, py: Python<'_>) -> PyResult<(Table, Table)> {
        let made = py.detach(|| {
            let names: Vec<(String, String)> =
                self.runs.iter().map(|row| (row.name.clone(), row.label.clone())).collect();
            let kept = study::kept(&names, &self.folder)?;
            let whole = kept.len() == names.len();
            let (table, statistics) = study::tables(kept);
            if whole {
                self.folder.write(TABLE, &encode(&table, Format::Parquet).map_err(Failure::run)?)?;
                if statistics.rows() > 0 {
                    self.folder.write(STATISTICS, &encode(&statistics, Format::Parquet).map_err(Failure::run)?)?;
                }
                self.folder.tidy();
            }
            Ok((table, statistics))
        });
        let (table, statistics) = made.map_err(|failure: Failure| errors::of(py, &failure))?;
        Ok((Table::of(py, &table)?, Table::of(py, &statistics)?))
    }
}

/// Traces that an earlier call of [`make_one`] read, and the digests that they had.
static TRACES: Mutex<Option<(Vec<String>, Arc<SharedTraces>)>> = Mutex::new(None);

/// How one run of a sweep is made here: with the traces of the call before, if its own have the same content.
fn one_of_many(decided_by: &[String], cancelled: Arc<AtomicBool>) -> How {
    let digests: Vec<String> = decided_by.iter().filter(|line| line.starts_with("trace ")).cloned().collect();
    let mut how = How::new(Some(1), cancelled);
    let mut kept = TRACES.lock().unwrap_or_else(PoisonError::into_inner);
    match &*kept {
        Some((of, traces)) if *of == digests => how.traces = Arc::clone(traces),
        _ => *kept = Some((digests, Arc::clone(&how.traces))),
    }
    how
}

/// Makes the run at this place of a plan, under the name that the caller found for it. `build`: of this module.
///
/// # Errors
/// Another build than the caller's, a folder that can't be written, and signals.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of a function in Python")]
pub fn make_one(
    py: Python<'_>,
    plan: String,
    out: PathBuf,
    at: usize,
    name: String,
    decided_by: Vec<String>,
    build: &str,
    policies: Option<HashMap<String, Py<PyAny>>>,
) -> PyResult<()> {
    let policies = by_name(policies);
    if !decided_by.contains(&format!("build {build}")) {
        let help = "install the same wheel on every machine";
        let failure = Failure::usage("this worker has another build of tidewater than the sweep").help(help);
        return Err(errors::of(py, &failure));
    }
    let shared = Shared::default();
    let cancelled = Arc::clone(&shared.cancelled);
    let made = wait(py, &shared, None, move || {
        let plans = study::Sweep::parse(&plan, Path::new(""))?.plans()?;
        let plan = plans.into_iter().nth(at).ok_or_else(|| Failure::usage("the plan has no such run"))?;
        let run = tidewater_study::ready(vec![plan.clone()]).map(|mut ready| ready.remove(0));
        let folder = Folder::open(&out)?;
        let how = How { policies, ..one_of_many(&decided_by, cancelled) };
        let named = Named { name, decided_by, run, plan };
        let follow = follow(Shared::default(), 1);
        study::run(vec![named], &folder, &how, &follow).map(drop)
    })?;
    made.map_err(|failure: Failure| errors::of(py, &failure))
}
