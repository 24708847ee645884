//! The firmware: sans-IO, bounded, deterministic.
pub mod host;
pub mod memory;
pub mod profile;
