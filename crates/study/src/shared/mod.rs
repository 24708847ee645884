//! What runs share: traces that were read, and drives that were brought into their state.

mod drives;
mod traces;

pub use drives::SharedDrives;
pub(crate) use traces::alone;
pub use traces::{Opened, SharedTraces};
