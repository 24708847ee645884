//! The one drive loop, generic over the clock: under a virtual clock it simulates, under the wall clock it serves.

use crate::device::{Device, Input, Output};
use crate::host::Submission;
use tidewater_base::Instant;
use tidewater_nand::Medium;

/// What time it is, and how to let it pass.
pub trait Clock {
    /// The time now.
    fn now(&self) -> Instant;
    /// Waits until `until`, or until something happens outside. Returns the time it is then, at most `until`.
    fn wait(&mut self, until: Instant) -> Instant;
}

/// Time that passes only by being waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualClock(Instant);

impl VirtualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Instant) -> VirtualClock {
        VirtualClock(now)
    }
}

impl Clock for VirtualClock {
    #[inline]
    fn now(&self) -> Instant {
        self.0
    }

    #[inline]
    fn wait(&mut self, until: Instant) -> Instant {
        self.0 = self.0.max(until);
        self.0
    }
}

/// The world around a device: who sends commands and takes completions.
pub trait World<M: Medium> {
    /// When it wants to do something next; [`Instant::NEVER`] if it only waits for the device.
    fn next_at(&self) -> Instant;
    /// A command that is due by `now`, and its queue.
    fn submit(&mut self, now: Instant) -> Option<(u16, Submission)>;
    /// A queue was full: the command comes back, to be sent again after a completion.
    fn refused(&mut self, queue: u16, submission: Submission);
    /// The device says something.
    fn take(&mut self, now: Instant, output: Output);
    /// Called whenever the world has had its turn; true ends the loop.
    fn stop(&mut self, now: Instant, device: &Device<M>) -> bool;
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Neither the device nor the world has anything left to do.
    Quiet,
    /// The world asked for it.
    Stopped,
}

/// Events of the device after which the world is asked again, whatever happens.
const EVENTS_AT_ONCE: u32 = 1_024;

/// Runs a device in its world.
pub fn drive<M: Medium>(device: &mut Device<M>, clock: &mut impl Clock, world: &mut impl World<M>) -> End {
    loop {
        while let Some(output) = device.poll() {
            world.take(clock.now(), output);
        }
        if world.stop(clock.now(), device) {
            return End::Stopped;
        }
        let world_at = world.next_at();
        // What is due inside the device goes before what arrives at the same instant. Until the device has something to
        // say the world need not be asked again, but now and then: it may want to stop a device that never says anything.
        for _ in 0..EVENTS_AT_ONCE {
            let device_at = device.deadline().unwrap_or(Instant::NEVER);
            let next = device_at.min(world_at);
            if next == Instant::NEVER {
                return End::Quiet;
            }
            let now = clock.wait(next);
            if device_at <= now {
                let taken = device.handle(now, Input::Timer);
                debug_assert!(taken.is_ok());
                if device.has_output() {
                    break;
                }
            } else if world_at <= now {
                if let Some((queue, submission)) = world.submit(now)
                    && let Err(submission) = device.handle(now, Input::Submit { queue, submission })
                {
                    world.refused(queue, submission);
                }
                break;
            } else {
                break; // Something happened outside, earlier than expected.
            }
        }
    }
}
