//! The simulated side of Tidewater: the virtual clock, workloads, replay and metrics.
pub mod metrics;
pub mod run;
pub mod trace;
pub mod workload;

pub use run::{Outcome, Pacing, RunError, RunOptions, run};
