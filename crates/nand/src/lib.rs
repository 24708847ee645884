//! The flash medium. Payload is held by whoever drives the loop; this crate holds stamps, wear and errors.
pub mod config;

pub use config::{Cell, Config};
