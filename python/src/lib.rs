//! The Rust half of the Python package `tidewater_ssd`. The package is `python/tidewater_ssd`: it has the classes that
//! users see, and hands over plans as text (the TOML of `tidewater sweep`).

mod capsules;
mod drive;
mod errors;
mod frame;
mod log;
mod policy;
mod record;
mod run;
mod sweep;
mod table;
mod work;

/// The module `tidewater_ssd._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::drive::{changes, drive, keys, profiles, show};
    #[pymodule_export]
    use super::frame::{Data, trace_columns};
    #[pymodule_export]
    use super::log::Log;
    #[pymodule_export]
    use super::policy::{check_policy, replay_with};
    #[pymodule_export]
    use super::record::{Run, comparison, tables};
    #[pymodule_export]
    use super::run::{compare, doubts, replay};
    #[pymodule_export]
    use super::sweep::{Sweep, build, make_one};
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::work::{fail, interpreter_ends, version};
}
