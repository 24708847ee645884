//! The simulated side of Tidewater: the virtual clock, workloads, replay and metrics.
pub mod cluster;
pub mod host;
pub mod host_memory;
pub mod metrics;
pub mod oracle;
pub mod pcie;
pub mod pool;
pub mod probe;
mod request;
pub mod run;
pub mod trace;
pub mod workload;

pub use run::{Outcome, Pacing, RunError, RunOptions, run};
