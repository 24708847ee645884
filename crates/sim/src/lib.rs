//! The simulated side of Tidewater: the virtual clock, workloads, replay and metrics.
pub mod trace;
pub mod workload;
