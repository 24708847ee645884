//! The virtual clock and all that runs under it: one module for each subject.

mod accuracy;
mod determinism;
mod fast_side;
mod host_memory;
mod knobs;
mod log_failures;
mod log_power_cut;
mod mapping_cache;
mod power_cut;
mod probe;
mod relations;
mod replay;
