//! The scheduler's slice of the device's thread.
#![allow(unsafe_code)]

/// `struct sched_attr` of Linux 6.12, whose scheduler takes the runtime of an ordinary thread as its slice.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// 100 us: on a busy machine a thread with a short slice waits less for its turn, and wake-ups are what a request costs there.
const SLICE_NS: u64 = 100_000;

/// Asks for a short slice for this thread. False: this kernel does not know it, and the thread has the usual one.
pub(super) fn shorten() -> bool {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, runtime_ns: SLICE_NS, ..Attributes::default() };
    // SAFETY: the call reads `size` bytes of a structure that lives until it returns, and changes only how this thread is scheduled.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_granted_or_not_and_the_thread_goes_on() {
        let _ = super::shorten();
        assert!(std::thread::spawn(|| 7).join().is_ok_and(|seven| seven == 7));
    }
}
