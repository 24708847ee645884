//! Processor time.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Seconds that the calling thread has computed in user mode, to a microsecond; 0 where the system does not tell. The
/// thread's and not the process's: several runs may go on at once.
pub fn user_cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0.0, |usage| usage.user_time().num_microseconds() as f64 * 1e-6)
}
