//! NVMe/TCP: a target for remote hosts, and an initiator.
//!
//! The target has no thread of its own: the engine's thread polls it, and it never blocks. [`Border`] is what it wants of the engine.

mod association;
mod border;
mod commands;
mod connection;
#[cfg(test)]
mod connection_tests;
mod discovery;
mod fabrics;
pub mod initiator;
mod options;
mod reader;
mod sender;
mod target;

pub use border::{Border, CommandId};
pub use connection::{Ending, Limits};
pub use options::{HostRule, Hosts, Options};
pub use target::{BindError, Statistics, Target};
