//! Failures as the exceptions of `tidewater_ssd.errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use std::fmt::Display;
use tidewater_client::LogError;
use tidewater_study::{Failure, Subject};

/// The exception of that name, with these attributes.
fn exception(py: Python<'_>, class: &str, message: &str, attributes: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || PyResult::Ok(py.import("tidewater_ssd.errors")?.unbind()))?;
    Ok(PyErr::from_value(module.bind(py).getattr(class)?.call((message,), Some(attributes))?))
}

/// A failure as its exception.
pub fn of(py: Python<'_>, failure: &Failure) -> PyErr {
    let make = || {
        let attributes = PyDict::new(py);
        attributes.set_item("help", &failure.help)?;
        let class = match &failure.subject {
            Subject::Profile { key, suggestion } => {
                attributes.set_item("key", key)?;
                attributes.set_item("suggestion", suggestion)?;
                "ProfileError"
            }
            Subject::Policy { rule } => {
                attributes.set_item("rule", rule)?;
                "PolicyError"
            }
            Subject::Trace { line } => {
                attributes.set_item("line", line)?;
                "TraceError"
            }
            Subject::Other if failure.usage => "PlanError",
            Subject::Other => "RunError",
        };
        exception(py, class, &failure.message, &attributes)
    };
    make().unwrap_or_else(|error| error)
}

/// The exception for an invalid request.
pub fn usage(py: Python<'_>, why: &dyn Display) -> PyErr {
    of(py, &Failure::usage(why))
}

/// The exception for work that was begun, and failed.
pub fn run(py: Python<'_>, why: &dyn Display) -> PyErr {
    of(py, &Failure::run(why))
}

/// Why an operation on a log failed.
pub fn log(py: Python<'_>, error: &LogError) -> PyErr {
    let make = || {
        let attributes = PyDict::new(py);
        attributes.set_item("errno", error.errno())?;
        exception(py, "LogError", &error.to_string(), &attributes)
    };
    make().unwrap_or_else(|error| error)
}

/// A bug of ours, in the words of its panic.
pub fn internal(py: Python<'_>, why: &str) -> PyErr {
    let message = format!("internal error in Tidewater: {why}");
    exception(py, "InternalError", &message, &PyDict::new(py)).unwrap_or_else(|error| error)
}
