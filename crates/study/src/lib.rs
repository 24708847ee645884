//! Parts of studies: loads and drives as a user names them, single runs, and many runs on all cores.

mod drive;
pub mod experiment;
mod failure;
mod load;
mod many;
mod one;
mod shared;
pub mod sweep;
pub mod trace;
mod values;
mod vary;

pub use drive::{Drive, DriveSpec, change, changes, find, meant, prepare, read, settings};
pub use failure::{Failure, Subject, reason, without_number};
pub use load::{Load, LoadSpec, Origin, SynthLoad};
pub use many::{FindPolicy, Follow, How, Ready, ready, run_all};
pub use one::{Listeners, One, RunFailure, memory_needed};
pub use shared::{Opened, SharedDrives, SharedTraces};
pub use trace::Reading;
pub use values::{Range, Setting, Variation, factor};
pub use vary::{OPTIONS, Plan};
