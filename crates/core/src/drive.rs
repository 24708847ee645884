//! The one drive loop, generic over the clock: under a virtual clock it simulates, under the wall clock it serves. What
//! it runs is a [`Machine`]: one device, or several that are linked.

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

/// What the loop runs: a device, or several that are linked.
pub trait Machine {
    /// What happens outside.
    type Input<'a>;
    /// What it has to say.
    type Output;
    /// An input that could not be taken.
    type Refused;
    /// Tells it what happened. `now` must not run backwards.
    ///
    /// # Errors
    /// What could not be taken now.
    fn handle(&mut self, now: Instant, input: Self::Input<'_>) -> Result<(), Self::Refused>;
    /// The time that [`Machine::deadline`] named has come: one event is handled.
    fn on_deadline(&mut self, now: Instant);
    /// The next thing that it has to say.
    fn poll(&mut self) -> Option<Self::Output>;
    /// Whether [`Machine::poll`] has something.
    fn has_output(&self) -> bool;
    /// When it wants to be woken.
    fn deadline(&self) -> Option<Instant>;
}

// What most commands go through, from here to their completion and back to the world, is always inlined, and what few
// do is not (and said to be cold): left to itself the compiler stops half-way, and a sixth of the instructions save and
// restore registers.
impl<M: Medium> Machine for Device<M> {
    type Input<'a> = Input<'a>;
    type Output = Output;
    type Refused = Submission;

    #[inline(always)]
    fn handle(&mut self, now: Instant, input: Input<'_>) -> Result<(), Submission> {
        Device::handle(self, now, input)
    }

    #[inline(always)]
    fn on_deadline(&mut self, now: Instant) {
        Device::on_deadline(self, now);
    }

    #[inline]
    fn poll(&mut self) -> Option<Output> {
        Device::poll(self)
    }

    #[inline]
    fn has_output(&self) -> bool {
        Device::has_output(self)
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        Device::deadline(self)
    }
}

/// The world around a machine: who sends commands, stores bytes and takes completions.
pub trait World<D: Machine> {
    /// When it wants to do something next; [`Instant::NEVER`] if it only waits for the machine.
    fn next_at(&self) -> Instant;
    /// Something that is due by `now`.
    fn submit(&mut self, now: Instant) -> Option<D::Input<'_>>;
    /// A queue was full: the command comes back, to be sent again after a completion.
    fn refused(&mut self, refused: D::Refused);
    /// The machine says something.
    fn take(&mut self, now: Instant, output: D::Output, machine: &D);
    /// Called whenever the world has had its turn; true ends the loop.
    fn stop(&mut self, now: Instant, machine: &D) -> bool;
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

/// Runs a machine in its world.
pub fn drive<D: Machine>(machine: &mut D, clock: &mut impl Clock, world: &mut impl World<D>) -> End {
    loop {
        while let Some(output) = machine.poll() {
            world.take(clock.now(), output, machine);
        }
        if world.stop(clock.now(), machine) {
            return End::Stopped;
        }
        let world_at = world.next_at();
        // What is due inside goes before what arrives at the same instant. Until the machine has something to say the
        // world need not be asked again, but now and then: it may want to stop a machine that never says anything.
        for _ in 0..EVENTS_AT_ONCE {
            let machine_at = machine.deadline().unwrap_or(Instant::NEVER);
            let next = machine_at.min(world_at);
            if next == Instant::NEVER {
                return End::Quiet;
            }
            let now = clock.wait(next);
            if machine_at <= now {
                machine.on_deadline(now);
                if machine.has_output() {
                    break;
                }
            } else if world_at <= now {
                let refused = world.submit(now).and_then(|input| machine.handle(now, input).err());
                if let Some(refused) = refused {
                    world.refused(refused);
                }
                break;
            } else {
                break; // Something happened outside, earlier than expected.
            }
        }
    }
}
