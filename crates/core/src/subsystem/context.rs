//! Shared by all rooms of the subsystem: the time, what there is to say, deadlines, and the state that outlives a power
//! cut.

use super::interface::Output;
use super::state::State;
use super::timers::{Timer, Timers};
use std::collections::VecDeque;
use tidewater_base::Instant;

/// Handed to the methods of all rooms.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub now: Instant,
    pub outputs: VecDeque<Output>,
    pub timers: Timers,
    pub state: State,
}

impl Context {
    #[inline]
    pub(super) fn say(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Power-on hours.
    pub(super) fn hours(&self) -> u64 {
        self.state.smart.power_on_hours(self.now)
    }

    /// Sets the timer of a self-test that runs. One that was aborted before has none.
    pub(super) fn await_self_test(&mut self) {
        self.timers.cancel(|timer| *timer == Timer::SelfTest);
        if let Some(at) = self.state.self_test.deadline() {
            self.timers.push(at.max(self.now), Timer::SelfTest);
        }
    }
}
