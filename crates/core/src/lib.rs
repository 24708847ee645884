//! The firmware of a drive: sans-IO, bounded, deterministic. It does no I/O, reads no clock and starts no thread.
//!
//! The rooms, as data flows: [`host`] (queues and commands), [`buffer`] (write buffer, read cache), [`ftl`] (where
//! pages go), [`flash`] (when dies and channels work), over a `tidewater_nand::Medium`. [`device`] wires them together,
//! and [`drive`] is the one loop that runs a device, under any clock.
mod block;
pub mod border;
pub mod buffer;
mod caches;
pub mod content;
mod context;
pub mod cost;
pub mod device;
pub mod drive;
pub mod events;
pub mod fast;
pub mod flash;
pub mod flaw;
pub mod ftl;
pub mod host;
pub mod host_memory;
pub mod layout;
pub mod memory;
pub mod owner;
pub mod power;
pub mod profile;
pub mod saved;
pub mod subsystem;
pub mod window;

pub use border::{Input, Output};
pub use device::{Device, Options, SetupError};
pub use power::{Identity, Remains};
