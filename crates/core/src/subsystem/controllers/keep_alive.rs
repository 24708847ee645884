//! A host's silence (Keep Alive), and what of its features is looked at often.

use super::Controllers;
use crate::subsystem::context::Context;
use crate::subsystem::interface::{Output, Transport};
use crate::subsystem::timers::Timer;
use tidewater_base::Duration;

/// Time units of interrupt coalescing (figure 283).
const COALESCING_UNIT_US: u64 = 100;

impl Controllers {
    /// Keeps the values of features that are looked at often.
    pub(crate) fn look_up_features(&mut self, cx: &Context, function: u8) {
        let features = &cx.state.features;
        let (burst, weights) = features.arbitration(function);
        self.lines[usize::from(function)].turns.set_weights(weights);
        let (entries, time) = features.coalescing(function).unwrap_or((0, 0));
        let c = &mut self[function];
        c.coalesce_count = entries;
        c.coalesce_time = Duration::from_us(COALESCING_UNIT_US * u64::from(time));
        c.burst = burst.unwrap_or(u32::MAX);
    }

    /// The host has to send a command at least so often; 0: it need not.
    pub(crate) fn set_keep_alive(&mut self, cx: &mut Context, function: u8, timeout_ms: u32) {
        let c = &mut self[function];
        c.keep_alive = Duration::from_ms(timeout_ms.into());
        c.heard_at = cx.now;
        c.keep_alive_timer = c.keep_alive_timer.wrapping_add(1);
        let (at, generation) = (cx.now + c.keep_alive, c.keep_alive_timer);
        cx.timers.cancel(|timer| matches!(timer, Timer::KeepAlive { function: of, .. } if *of == function));
        if timeout_ms > 0 {
            cx.timers.push(at, Timer::KeepAlive { function, generation });
        }
    }

    /// The Keep Alive Timer expires. Over fabrics every command restarts it (Traffic Based Keep Alive), and the front
    /// end ends the association; over PCIe Keep Alive does, and the controller fails until it is reset (section 7.12).
    pub(crate) fn on_keep_alive(&mut self, cx: &mut Context, function: u8, generation: u32) {
        let c = &self[function];
        if c.keep_alive_timer != generation || !c.live || c.leaving {
            return;
        }
        let due = c.heard_at + c.keep_alive;
        if due > cx.now {
            return cx.timers.push(due, Timer::KeepAlive { function, generation });
        }
        match c.transport {
            Transport::Fabrics => cx.say(Output::KeepAliveExpired { function }),
            Transport::Pcie => {
                self.log_error(cx, function, u16::MAX);
                self.fail(function);
            }
        }
    }
}
