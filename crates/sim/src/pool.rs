//! Work that does not depend on other work, on several cores: the runs of a study, the measurements of an experiment.
//!
//! One pool of threads for all that goes on within [`with_jobs`]: an experiment that is one of many shares its
//! measurements with whatever core is idle.

use rayon::iter::{ParallelBridge as _, ParallelIterator as _};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// As many jobs as the process may use processors.
pub fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does `work` with so many threads at hand for [`in_order`]; 0 counts as 1. Where the system gives no more threads,
/// the calling one does all.
pub fn with_jobs<R: Send>(jobs: usize, work: impl FnOnce() -> R + Send) -> R {
    match rayon::ThreadPoolBuilder::new().num_threads(jobs.max(1)).build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}

/// Does `work` on every item, begun in their order, on the threads of the surrounding [`with_jobs`]; the results come
/// in the order of the items.
pub fn in_order<T: Send, R: Send>(items: Vec<T>, work: impl Fn(usize, T) -> R + Sync + Send) -> Vec<R> {
    let mut results: Vec<(usize, R)> =
        items.into_iter().enumerate().par_bridge().map(|(i, item)| (i, work(i, item))).collect();
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Memory that runs share: none begins before what it needs is free, unless it would be the only one.
#[derive(Debug)]
pub struct Memory {
    total: u64,
    state: Mutex<Claims>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Claims {
    taken: u64,
    holders: usize,
    next: u64,
    /// Those that wait, in the order in which they came: a large run is not passed by small ones for ever.
    waiting: VecDeque<u64>,
}

impl Memory {
    /// So many bytes.
    pub fn new(total: u64) -> Memory {
        Memory { total, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The bytes that it began with.
    pub fn total(&self) -> u64 {
        self.total
    }

    fn lock(&self) -> MutexGuard<'_, Claims> {
        // Nothing that holds the lock can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many bytes are free, or nothing else is taken.
    pub fn take(&self, bytes: u64) -> Held<'_> {
        let mut claims = self.lock();
        let ticket = claims.next;
        claims.next += 1;
        claims.waiting.push_back(ticket);
        let fits = |claims: &Claims| {
            claims.waiting.front() == Some(&ticket)
                && (claims.holders == 0 || claims.taken.saturating_add(bytes) <= self.total)
        };
        while !fits(&claims) {
            claims = self.changed.wait(claims).unwrap_or_else(PoisonError::into_inner);
        }
        claims.waiting.pop_front();
        claims.taken = claims.taken.saturating_add(bytes);
        claims.holders += 1;
        drop(claims);
        self.changed.notify_all();
        Held { memory: self, bytes }
    }
}

/// Memory that was taken; dropped, it is free again.
#[derive(Debug)]
pub struct Held<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut claims = self.memory.lock();
        claims.taken = claims.taken.saturating_sub(self.bytes);
        claims.holders -= 1;
        drop(claims);
        self.memory.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_with_any_number_of_jobs() {
        let work = |jobs| with_jobs(jobs, || in_order((0..50u64).collect(), |i, x| (i, x * x)));
        assert_eq!(work(1), work(7));
        assert_eq!(work(0)[49], (49, 2401));
    }

    #[test]
    fn work_within_work_needs_no_further_thread() {
        let sums = with_jobs(1, || {
            in_order(vec![10u64, 20], |_, n| in_order((0..n).collect(), |_, x| x).into_iter().sum::<u64>())
        });
        assert_eq!(sums, [45, 190]);
    }

    #[test]
    fn no_more_is_taken_at_once_than_there_is() {
        let memory = Memory::new(100);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        with_jobs(8, || {
            in_order((0..64u64).collect(), |_, i| {
                let bytes = 10 + i % 7 * 10;
                let _held = memory.take(bytes);
                most.fetch_max(now.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(bytes, Ordering::SeqCst);
            })
        });
        assert!(most.load(Ordering::SeqCst) <= 100);
        assert!(most.load(Ordering::SeqCst) >= 70, "the largest ran");
    }

    #[test]
    fn what_is_larger_than_all_memory_runs_alone() {
        let memory = Memory::new(100);
        let alone = AtomicUsize::new(0);
        with_jobs(4, || {
            in_order(vec![10u64, 1_000, 10, 1_000, 10], |_, bytes| {
                let held = memory.take(bytes);
                let others = alone.fetch_add(1, Ordering::SeqCst);
                assert!(bytes <= 100 || others == 0, "beside {others}");
                alone.fetch_sub(1, Ordering::SeqCst);
                drop(held);
            })
        });
        assert_eq!(memory.lock().taken, 0);
    }
}
