//! Foundation of all other crates: time, units, seeded random numbers, checksums, bounded queues, the
//! numbers that a drive counts, and the faults that a user arms. A closed list: a new module here needs an ADR.
pub mod checksum;
pub mod faults;
pub mod numbers;
pub mod queue;
pub mod rng;
pub mod statistics;
pub mod table;
pub mod time;
pub mod units;

pub use rng::Rng;
pub use time::{Duration, Instant};
