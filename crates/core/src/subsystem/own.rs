//! What the subsystem does by itself: flushes of shutdowns, and keep-alive timers.

use super::timers::Timer;
use super::{Output, Slot, Subsystem};
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

impl<M: Medium> Subsystem<M> {
    /// A command of the subsystem's own has ended.
    #[cold]
    pub(super) fn finish_own(&mut self, slot: Slot, _status: Status) {
        self.slots.release(slot);
        self.on_shutdown_flushed();
    }

    /// A fabrics host is to be heard of at least so often; 0: it need not.
    pub(super) fn set_keep_alive(&mut self, function: u8, timeout_ms: u32) {
        let now = self.now;
        let c = &mut self.controllers[usize::from(function)];
        c.keep_alive = Duration::from_ms(timeout_ms.into());
        c.heard_at = now;
        c.keep_alive_timer = c.keep_alive_timer.wrapping_add(1);
        if timeout_ms > 0 {
            let (at, generation) = (now + c.keep_alive, c.keep_alive_timer);
            self.timers.push(at, Timer::KeepAlive { function, generation });
        }
    }

    /// A host should have been heard of by now. Every command counts (Traffic Based Keep Alive).
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
        self.outputs.push_back(Output::KeepAliveExpired { function });
    }
}
