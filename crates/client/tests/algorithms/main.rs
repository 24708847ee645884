//! The host's algorithms on a model device, and records in what it leaves.

mod model;
mod records;
mod regions;
mod stream;
