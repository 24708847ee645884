//! The firmware: sans-IO, bounded, deterministic.
pub mod profile;
