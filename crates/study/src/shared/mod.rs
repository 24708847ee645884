//! State shared by runs: traces that were read, and preconditioned drives.

mod drives;
mod traces;

pub use drives::SharedDrives;
pub(crate) use traces::alone;
pub use traces::{Opened, SharedTraces};
