//! Simulations as a user meets them: replays, sweeps, experiments.

mod cli;
mod experiments;
mod figures;
mod guard;
mod operations;
mod own_experiments;
mod papers;
mod probe_device;
mod sweep;
mod traces;
