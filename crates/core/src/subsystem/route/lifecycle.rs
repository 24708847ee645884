//! Registers, resets and shutdowns, as far as they concern commands, the device and the memory that hosts lend; timers
//! and faults that do.

use super::Subsystem;
use crate::host_memory::HostFault;
use crate::subsystem::controllers::Configured;
use crate::subsystem::faults::{Armed, DELAY_MAX, Faults, OnBlocks, OnCompletion};
use crate::subsystem::interface::{Fault, Output};
use crate::subsystem::slots::{SHUTDOWN_FLUSH, Stage, Work};
use crate::subsystem::state::flash_of;
use tidewater_nand::Medium;
use tidewater_wire::nvme::register::{ShutdownStatus, offset};
use tidewater_wire::nvme::{Event, Status};

impl<M: Medium> Subsystem<M> {
    /// The host writes registers. What is not an aligned access of 4 or 8 bytes is dropped (section 3.1 leaves it
    /// undefined).
    #[inline]
    pub(super) fn write_register(&mut self, function: u8, at: u32, len: u8, value: u64) {
        if !self.controllers.has(function) || !at.is_multiple_of(4) {
            return;
        }
        match len {
            4 => self.write_dword(function, at, value as u32),
            8 => {
                self.write_dword(function, at, value as u32);
                self.write_dword(function, at.saturating_add(4), (value >> 32) as u32);
            }
            _ => {}
        }
    }

    #[inline]
    fn write_dword(&mut self, function: u8, at: u32, value: u32) {
        if at >= offset::DOORBELLS {
            return self.controllers.ring(&mut self.cx, function, at, value);
        }
        let Some(cc) = self.controllers.write_control(function, at, value) else { return };
        match self.controllers.configure(&mut self.cx, function, cc, self.recovering) {
            Configured::Nothing => {}
            Configured::Reset => self.reset(function),
            Configured::Shutdown => self.flush_for_shutdown(),
        }
    }

    /// A controller reset (section 7.3.2): queues are gone, and commands are orphans.
    fn reset(&mut self, function: u8) {
        self.controllers.begin_reset(function);
        self.orphan(function);
        self.end_host_memory(function, None);
        self.controllers.reset_features(&mut self.cx, function);
        self.try_quiesce(function);
    }

    /// All registers are as after power-on (section 7.3.2), and the controller is reset.
    pub(super) fn reset_function(&mut self, function: u8) {
        self.controllers.clear_registers(function);
        self.reset(function);
    }

    /// No host waits for a controller's commands any more. Those that wait for nothing outside of the subsystem end
    /// now.
    fn orphan(&mut self, function: u8) {
        for slot in self.slots.of_hosts() {
            let command = &mut self.slots[slot];
            if command.stage == Stage::Free || command.function != function || command.orphan {
                continue;
            }
            command.orphan = true;
            let ends = match command.stage {
                Stage::Parked => true,
                Stage::Vendor => self.device.cancel(slot.0),
                Stage::Device => {
                    // Its entry may stay pinned for any time.
                    self.device.cancel_held(slot.0);
                    false
                }
                _ => false,
            };
            if !ends && self.slots[slot].stage == Stage::Vendor {
                // Its reply may take as long as peers like, and has no receiver.
                self.slots[slot].detached = true;
                self.controllers[function].outstanding -= 1;
            }
            if ends {
                self.host_memory.forget_waiting(slot);
                self.erases.forget_waiting(slot);
                self.release(slot);
            }
        }
    }

    /// Nothing may be left of the time before a reset: then what waited for that goes on.
    pub(super) fn try_quiesce(&mut self, function: u8) {
        let lends = self.host_memory.is_of(function);
        self.controllers.try_quiesce(&mut self.cx, function, lends, self.recovering);
    }

    /// The connection of a fabrics controller's I/O queue has gone.
    pub(super) fn disconnect_queue(&mut self, function: u8, queue: u16) {
        if self.controllers.disconnect_queue(&mut self.cx, function, queue) {
            self.abort_waiting(function, queue);
            self.controllers.try_leave(&mut self.cx, function, queue);
        }
    }

    /// Acknowledged writes are made safe, for all controllers that shut down.
    fn flush_for_shutdown(&mut self) {
        if !self.controllers.awaits_flush() {
            return;
        }
        let Some(slot) = self.slots.take_own(SHUTDOWN_FLUSH) else { return }; // One is under way: again behind it.
        self.controllers.begin_flush(&mut self.cx);
        let command = &mut self.slots[slot];
        command.work = Work::Flush;
        command.durable = true;
        self.submit(slot);
    }

    /// The flush for a shutdown has ended.
    pub(super) fn on_shutdown_flushed(&mut self, status: Status) {
        if !status.is_success() {
            self.on_store_failed();
        }
        self.end_shutdowns();
        self.flush_for_shutdown();
    }

    /// Controllers whose shutdown waits for nothing but a fault that may be over.
    pub(super) fn end_shutdowns(&mut self) {
        for function in self.controllers.numbers() {
            let ends = self.controllers.may_end_shutdown(function, self.slots.own_is_taken(SHUTDOWN_FLUSH));
            // What was lent is the host's alone from then on; that it is, comes back here.
            if ends && !(self.host_memory.is_of(function) && self.end_host_memory(function, None)) {
                self.controllers[function].csts.shutdown = ShutdownStatus::Complete;
            }
        }
    }

    /// The backing store has failed: from now on the drive only reads.
    #[cold]
    pub(super) fn on_store_failed(&mut self) {
        self.health.store_failed = true;
        self.health.look_for_end_of_life(&mut self.cx, &mut self.controllers, &self.device);
    }

    /// A self-test may have ended.
    pub(super) fn on_self_test(&mut self) {
        let state = &mut self.cx.state;
        let hours = state.smart.power_on_hours(self.cx.now);
        let warnings = state.smart.warnings(&flash_of(&self.device, self.health.store_failed), false);
        let before = state.self_test.deadline();
        if state.self_test.expire(self.cx.now, hours, warnings) {
            self.controllers.raise_everywhere(&mut self.cx, Event::DiagnosticFailure);
        }
        if before.is_some() && self.cx.state.self_test.deadline().is_none() {
            self.cx.say(Output::SaveState);
        }
    }

    /// A fault is injected. One of a controller that is not there is dropped.
    #[cold]
    pub(super) fn inject(&mut self, fault: Fault) {
        let function = fault.function().unwrap_or(0);
        if !self.controllers.has(function) {
            return;
        }
        let faults = &mut self.controllers.faults;
        match fault {
            Fault::Status { nsid, blocks, status, count } => {
                faults.on_blocks.remember(OnBlocks { nsid, blocks, status: Status::from_bits(status) }, count);
            }
            Fault::Delay { by, count, .. } => {
                let delay = OnCompletion::Delay(by.min(DELAY_MAX));
                faults.on_completions.remember_some((function, delay), count);
            }
            Fault::Lose { count, .. } => faults.on_completions.remember_some((function, OnCompletion::Lose), count),
            Fault::Duplicate { count, .. } => {
                faults.on_completions.remember_some((function, OnCompletion::Duplicate), count);
            }
            Fault::Fatal { .. } => self.controllers.fail(function),
            Fault::StuckShutdown { .. } => self.controllers[function].stuck_shutdown = true,
            Fault::HostMemory { fault, count } => {
                let fault = match fault {
                    HostFault::Slow(by) => HostFault::Slow(by.min(DELAY_MAX)),
                    fault => fault,
                };
                self.host_memory.faults.remember_some(fault, count);
            }
            Fault::Clear => {
                self.host_memory.faults = Armed::default();
                self.controllers.faults = Faults::default();
                self.controllers.iter_mut().for_each(|c| c.stuck_shutdown = false);
                self.end_shutdowns();
            }
        }
    }
}
