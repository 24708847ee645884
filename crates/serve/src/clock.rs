//! The clock that deadlines of other processes are counted by.

use nix::time::{ClockId, clock_gettime};

/// Milliseconds of the machine's monotonic clock, the same for each process of it; it goes on while this one is
/// stopped. 0 where there is none.
pub fn milliseconds() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    (now.tv_sec() as u64).saturating_mul(1_000).saturating_add(now.tv_nsec() as u64 / 1_000_000)
}
