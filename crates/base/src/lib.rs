//! Foundation of all other crates: time, units, seeded random numbers, checksums and bounded queues. A closed list: a
//! new module here needs an ADR.
pub mod checksum;
pub mod queue;
pub mod rng;
pub mod table;
pub mod time;
pub mod units;

pub use rng::Rng;
pub use time::{Duration, Instant};
