//! NVMe/TCP: a target for remote hosts, and an initiator.
//!
//! The target has no thread of its own: the engine's thread polls it, and it never blocks. [`Border`] is what it wants of the engine.

mod border;

pub use border::{Border, CommandId};
