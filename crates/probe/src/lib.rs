//! Finds what a drive hides by timing requests: its read cache, its write buffer, the reach of its mapping cache, whose
//! memory each of them is, and how its flash is striped.
//!
//! The algorithms are those of "HMB in DRAM-less NVMe SSDs" (PLOS ONE 15(3), 2020), made to decide by themselves: where
//! the paper sweeps a size and a reader looks at the plot, the probe brackets the knee, bisects, repeats in random
//! order, and tests what it sees against chance. It says that it cannot tell rather than guess.
//!
//! This crate does no I/O and reads no clock: it asks a [`Target`] for timed requests. A simulated drive and a real one
//! implement it outside.

mod map_cache;
mod noise;
mod read_cache;
mod run;
mod search;
mod session;
mod stages;
pub mod stat;
mod stripe;
mod sustained;
mod target;
mod write_buffer;

pub use noise::{Noise, Noisy};
pub use run::{Options, STAGES, StageInfo, Unwatched, Watch, run};
pub use session::Stop;
pub use target::{About, CAPACITY_MIN, HostMemory, Lend, Op, Request, Target, TargetError, Timed};
