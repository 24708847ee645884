//! How the kernel schedules the device's thread: its slice, and when its timed sleeps end.
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

/// 100 us: on a busy machine a thread with a short slice waits less for its turn, and wake-ups are what a request costs
/// there.
const SLICE_NS: u64 = 100_000;

/// Asks for a short slice for this thread, whose nice value stays. False: it has the slice it had, because this kernel
/// knows no other or because the thread was given another policy (real time, idle).
pub(crate) fn shorten() -> bool {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the call writes at most `size` bytes into a structure that has as many.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0 };
    if !got || attributes.policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    (attributes.size, attributes.runtime_ns) = (size as u32, SLICE_NS);
    // SAFETY: the call reads `size` bytes of a structure that lives until it returns, and changes only how this thread
    // is scheduled.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// 1 us. The kernel's default lets a timed sleep take 50 us longer, which is more than a nap between two looks at
/// doorbells.
const TIMER_SLACK_NS: libc::c_ulong = 1_000;

/// Timed sleeps of this thread end on time. False: this kernel refuses that.
pub(crate) fn end_sleeps_on_time() -> bool {
    // SAFETY: the call takes a number, and changes only how this thread is woken.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_granted_or_not_and_the_nice_value_stays() {
        let nice = std::thread::spawn(|| {
            // SAFETY: these calls take and give numbers only, and are about this thread alone.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            // SAFETY: as above.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 7) };
            let _ = super::shorten();
            nice()
        });
        assert_eq!(nice.join().expect("it does not panic"), 7);
    }
}
