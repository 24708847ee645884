//! Drives: profiles, their keys and values.

use crate::errors;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use tidewater_core::profile::{Profile, names};
use tidewater_study::{self as study, Setting};

fn settings(given: Vec<(String, String)>) -> Vec<Setting> {
    given.into_iter().map(|(key, value)| Setting { key, value }).collect()
}

/// Checks a drive. Its line of description, every setting with its value, and what a reader of its results should know.
///
/// # Errors
/// When there is no such profile, a key or value is wrong, or the settings cannot stand together.
#[pyfunction]
pub fn drive(
    py: Python<'_>,
    profile: &str,
    set: Vec<(String, String)>,
) -> PyResult<(String, BTreeMap<String, String>, Vec<String>)> {
    let drive = study::prepare(Path::new(profile), &settings(set)).map_err(|failure| errors::of(py, &failure))?;
    Ok((drive.about, drive.profile.settings(), drive.notes))
}

/// The profile in a text, as the built-in one that it changes and its changes.
///
/// # Errors
/// When the text is no profile.
#[pyfunction]
pub fn changes(py: Python<'_>, text: &str) -> PyResult<(String, Vec<(String, String)>)> {
    let (base, set) = study::changes(text, "profile").map_err(|failure| errors::of(py, &failure))?;
    Ok((base, set.into_iter().map(|Setting { key, value }| (key, value)).collect()))
}

/// The names of the built-in profiles.
#[pyfunction]
pub fn profiles() -> Vec<&'static str> {
    names().collect()
}

/// A profile with these changes as TOML: every setting with its meaning, range and the reason for its default.
///
/// # Errors
/// As [`drive`].
#[pyfunction]
pub fn show(py: Python<'_>, profile: &str, set: Vec<(String, String)>) -> PyResult<String> {
    let drive = study::prepare(Path::new(profile), &settings(set)).map_err(|failure| errors::of(py, &failure))?;
    Ok(drive.profile.show())
}

/// Every key: its name, what it takes, what it is, and why its default is what it is.
#[pyfunction]
pub fn keys() -> Vec<(String, String, &'static str, &'static str)> {
    Profile::keys().map(|info| (info.key(), info.kind.expected(), info.doc, info.why)).collect()
}
