//! The record of a run.

use crate::errors;
use crate::table::Table;
use arrow_array::RecordBatch;
use pyo3::prelude::*;
use tidewater_report::compare::{self, Labelled};
use tidewater_report::{Record, page, summary, table};
use tidewater_tables::request_schema;

/// A run: its record, and its requests where they were asked for.
#[pyclass(frozen, module = "tidewater_ssd._native")]
pub struct Run {
    record: Record,
    requests: Option<Vec<RecordBatch>>,
}

impl Run {
    /// A run that was made.
    pub fn new(record: Record, requests: Option<Vec<RecordBatch>>) -> Run {
        Run { record, requests }
    }
}

#[pymethods]
impl Run {
    /// The run of a record as JSON.
    #[staticmethod]
    fn read(py: Python<'_>, json: &str) -> PyResult<Run> {
        let record = Record::from_json(json).map_err(|error| errors::usage(py, &error))?;
        Ok(Run { record, requests: None })
    }

    /// The record as JSON.
    fn json(&self) -> String {
        self.record.to_json()
    }

    /// The page.
    fn page(&self) -> String {
        page(&self.record)
    }

    /// Summary of the run, for a terminal.
    fn summary(&self) -> String {
        summary(&self.record)
    }

    /// A table of the record: `time-series`, `latencies`, `dies` or `wear`.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let make = match name {
            "time-series" => table::time_series,
            "latencies" => table::latencies,
            "dies" => table::dies,
            "wear" => table::wear,
            _ => return Err(errors::usage(py, &format_args!("a record has no table {name}"))),
        };
        Table::of(py, &make(&self.record))
    }

    /// The requests, where they were kept.
    fn requests(&self) -> Option<Table> {
        self.requests.as_ref().map(|pieces| Table::new(request_schema(), pieces.clone()))
    }
}

/// Runs and what they are called.
type Named<'py> = Vec<(String, PyRef<'py, Run>)>;

fn labelled(runs: &Named<'_>) -> Vec<Labelled> {
    runs.iter().map(|(label, run)| Labelled { label: label.clone(), record: run.record.clone() }).collect()
}

/// The table of runs, and their figures over seeds.
///
/// # Errors
/// When Python has no memory for them.
#[pyfunction]
pub fn tables(py: Python<'_>, runs: Named<'_>) -> PyResult<(Table, Table)> {
    let runs = labelled(&runs);
    Ok((Table::of(py, &table::runs(&runs))?, Table::of(py, &table::statistics(&runs))?))
}

/// The page of a comparison.
#[pyfunction]
pub fn comparison(runs: Named<'_>, title: &str) -> String {
    compare::page(&labelled(&runs), title)
}
