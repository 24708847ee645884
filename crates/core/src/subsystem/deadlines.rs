//! What ends at a time: self-tests, and a host's silence (Keep Alive).

use super::timers::Timer;
use super::{Output, Subsystem, Transport};
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Event;

impl<M: Medium> Subsystem<M> {
    /// A self-test may have ended.
    pub(super) fn on_self_test(&mut self) {
        let hours = self.state.smart.power_on_hours(self.now);
        let warnings = self.state.smart.warnings(&super::state::flash_of(&self.device, self.read_only), false);
        let before = self.state.self_test.deadline();
        if self.state.self_test.expire(self.now, hours, warnings) {
            self.raise_everywhere(Event::DiagnosticFailure);
        }
        if before.is_some() && self.state.self_test.deadline().is_none() {
            self.outputs.push_back(Output::SaveState);
        }
    }

    /// A self-test runs, that ends some day. One that was aborted before does not.
    pub(super) fn await_self_test(&mut self) {
        self.timers.cancel(|timer| *timer == Timer::SelfTest);
        if let Some(at) = self.state.self_test.deadline() {
            self.timers.push(at.max(self.now), Timer::SelfTest);
        }
    }

    /// The host has to send a command at least so often; 0: it need not.
    pub(super) fn set_keep_alive(&mut self, function: u8, timeout_ms: u32) {
        let now = self.now;
        let c = &mut self.controllers[usize::from(function)];
        c.keep_alive = Duration::from_ms(timeout_ms.into());
        c.heard_at = now;
        c.keep_alive_timer = c.keep_alive_timer.wrapping_add(1);
        let (at, generation) = (now + c.keep_alive, c.keep_alive_timer);
        self.timers.cancel(|timer| matches!(timer, Timer::KeepAlive { function: of, .. } if *of == function));
        if timeout_ms > 0 {
            self.timers.push(at, Timer::KeepAlive { function, generation });
        }
    }

    /// The Keep Alive Timer expires. Over fabrics every command restarts it (Traffic Based Keep Alive), and the front
    /// end ends the association; over PCIe Keep Alive does, and the controller fails until it is reset (section 7.12).
    pub(super) fn on_keep_alive(&mut self, function: u8, generation: u32) {
        let now = self.now;
        let c = &mut self.controllers[usize::from(function)];
        if c.keep_alive_timer != generation || !c.live || c.leaving {
            return;
        }
        let due = c.heard_at + c.keep_alive;
        if due > now {
            return self.timers.push(due, Timer::KeepAlive { function, generation });
        }
        match c.transport {
            Transport::Fabrics => self.outputs.push_back(Output::KeepAliveExpired { function }),
            Transport::Pcie => {
                let count = self.state.smart.error();
                c.errors.of_queue(count, u16::MAX, Transport::Pcie);
                self.fail(function);
            }
        }
    }
}
