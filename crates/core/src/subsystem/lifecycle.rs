//! Enable, disable, shutdown and reset, in every order (NVM Express 1.4, sections 3.1.5, 7.3 and 7.6).
//!
//! A reset leaves orphans: commands without a waiting host that are still in progress. Their controller says that it
//! is not ready any more (CSTS.RDY) when the last of them has ended: until then they may touch the host's memory, and a
//! write may still change blocks.

use super::controller::Power;
use super::events::AsyncEvents;
use super::queues::{CompletionQueue, SubmissionQueue};
use super::self_test::Abort;
use super::slots::Stage;
use super::{Output, Slot, Subsystem, Transport};
use tidewater_nand::Medium;
use tidewater_wire::nvme::register::{
    Aqa, Cap, Cc, MemorySpaceControl, PMRCTL_EN, ShutdownNotification, ShutdownStatus, offset,
};
use tidewater_wire::nvme::{Cqe, Sqe, Status};

/// Which of the subsystem's own slots flushes for a shutdown.
pub(super) const SHUTDOWN_FLUSH: u16 = 0;

/// Weighted round robin with urgent priority class, in CC.AMS.
const WEIGHTED: u8 = 1;

impl<M: Medium> Subsystem<M> {
    /// The host writes registers. What is not an aligned access of 4 or 8 bytes is dropped (section 3.1 leaves it
    /// undefined).
    #[inline]
    pub(super) fn write_register(&mut self, function: u8, at: u32, len: u8, value: u64) {
        let known = self.controllers.get(usize::from(function)).is_some_and(|c| c.live);
        if !known || !at.is_multiple_of(4) {
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
        if at >= offset::DOORBELLS { self.ring(function, at, value) } else { self.write_control(function, at, value) }
    }

    fn write_control(&mut self, function: u8, at: u32, value: u32) {
        const HIGH: u32 = 4;
        let c = &mut self.controllers[usize::from(function)];
        let low = |old: u64| old & !0xFFFF_FFFF | u64::from(value);
        let high = |old: u64| old & 0xFFFF_FFFF | u64::from(value) << 32;
        let pcie = c.transport == Transport::Pcie;
        match at {
            offset::CC => self.configure(function, Cc(value & Cc::WRITABLE)),
            _ if !pcie => {} // The other properties are read only, or not there.
            offset::INTMS => c.mask |= value,
            offset::INTMC => self.unmask(function, value),
            // Queues of an enabled controller stay where they are.
            offset::AQA if !c.cc.enable() => c.aqa = Aqa(value & Aqa::WRITABLE),
            offset::ASQ if !c.cc.enable() => c.asq = low(c.asq) & !0xFFF,
            at if at == offset::ASQ + HIGH && !c.cc.enable() => c.asq = high(c.asq),
            offset::ACQ if !c.cc.enable() => c.acq = low(c.acq) & !0xFFF,
            at if at == offset::ACQ + HIGH && !c.cc.enable() => c.acq = high(c.acq),
            offset::CMBMSC if c.fixed.bar2.cmb_len > 0 => {
                c.cmbmsc = MemorySpaceControl(low(c.cmbmsc.0) & MemorySpaceControl::CMB_WRITABLE);
            }
            at if at == offset::CMBMSC + HIGH && c.fixed.bar2.cmb_len > 0 => {
                c.cmbmsc = MemorySpaceControl(high(c.cmbmsc.0));
            }
            offset::PMRCTL if c.fixed.pmr > 0 => c.pmrctl = value & PMRCTL_EN,
            offset::PMRMSCL if c.fixed.pmr > 0 => {
                c.pmrmsc = MemorySpaceControl(low(c.pmrmsc.0) & MemorySpaceControl::PMR_WRITABLE);
            }
            offset::PMRMSCU if c.fixed.pmr > 0 => c.pmrmsc = MemorySpaceControl(high(c.pmrmsc.0)),
            _ => {}
        }
    }

    fn configure(&mut self, function: u8, cc: Cc) {
        let c = &mut self.controllers[usize::from(function)];
        let was = std::mem::replace(&mut c.cc, cc);
        match (was.enable(), cc.enable()) {
            (true, false) => return self.reset(function),
            (false, true) if c.power == Power::Disabled => self.enable(function),
            _ => {}
        }
        let asks = matches!(cc.shutdown(), ShutdownNotification::Normal | ShutdownNotification::Abrupt);
        let c = &mut self.controllers[usize::from(function)];
        if asks && c.csts.shutdown == ShutdownStatus::None {
            c.csts.shutdown = ShutdownStatus::Occurring;
            c.shutdown_flushed = false;
            self.flush_for_shutdown();
        }
    }

    /// CC.EN was set, and nothing is left of the time before.
    fn enable(&mut self, function: u8) {
        let c = &mut self.controllers[usize::from(function)];
        c.csts.shutdown = ShutdownStatus::None;
        c.power = Power::Enabling;
        let (sq, cq) = (c.aqa.submission_entries(), c.aqa.completion_entries());
        let fits = |base: u64, entries: u32, size: usize| base.checked_add(u64::from(entries) * size as u64).is_some();
        let queues_are_good = c.transport == Transport::Fabrics
            || sq >= 2 && cq >= 2 && fits(c.asq, sq, Sqe::SIZE) && fits(c.acq, cq, Cqe::SIZE);
        // Only the NVM command set and pages of 4 KiB are offered (CAP), and not all offer weighted round robin.
        let is_weighted = c.cc.arbitration() == WEIGHTED && Cap::from_bits(c.fixed.cap).weighted_round_robin;
        let arbitrates = c.cc.arbitration() == 0 || is_weighted;
        if !queues_are_good || c.cc.command_set() != 0 || c.cc.page_shift() != 12 || !arbitrates {
            c.csts.fatal = true;
            return;
        }
        if !self.recovering {
            self.make_ready(function);
        }
    }

    fn make_ready(&mut self, function: u8) {
        let c = &mut self.controllers[usize::from(function)];
        if c.transport == Transport::Pcie {
            let (sq, cq) = (c.aqa.submission_entries(), c.aqa.completion_entries());
            c.submission[0] = SubmissionQueue { live: true, base: c.asq, entries: sq, ..SubmissionQueue::default() };
            c.completion[0] = CompletionQueue {
                live: true,
                base: c.acq,
                entries: cq,
                phase: true,
                interrupts: true,
                users: 1,
                ..CompletionQueue::default()
            };
        }
        c.power = Power::Ready;
        c.csts.ready = true;
        // From now on a power cut counts as unsafe.
        if self.state.smart.is_clean() {
            self.state.smart.enabled();
            self.outputs.push_back(Output::SaveState);
        }
    }

    /// The drive has recovered: controllers that were enabled meanwhile are ready.
    #[cold]
    pub(super) fn on_recovered(&mut self) {
        self.recovering = false;
        for function in 0..self.controllers.len() as u8 {
            let c = &self.controllers[usize::from(function)];
            if c.power == Power::Enabling && !c.csts.fatal {
                self.make_ready(function);
            }
        }
    }

    /// A controller reset (section 7.3.2): queues are gone, and commands are orphans.
    pub(super) fn reset(&mut self, function: u8) {
        let c = &mut self.controllers[usize::from(function)];
        c.generation = c.generation.wrapping_add(1);
        c.power = Power::Resetting;
        c.csts.fatal = false;
        // The fault is one shutdown's: a host that gives up waiting resets the controller, and its next one ends.
        if c.csts.shutdown == ShutdownStatus::Occurring {
            c.stuck_shutdown = false;
        }
        c.csts.shutdown = ShutdownStatus::None;
        let fabrics = c.transport == Transport::Fabrics;
        for (i, sq) in c.submission.iter_mut().enumerate() {
            let SubmissionQueue { fetching, entries, ready, live, .. } = *sq;
            // Who connected over fabrics keeps the admin queue.
            let stays = fabrics && i == 0 && live;
            *sq = SubmissionQueue { live: stays, entries, fetching, ready, ..SubmissionQueue::default() };
        }
        c.completion.iter_mut().for_each(|cq| *cq = CompletionQueue::default());
        c.events = AsyncEvents::default();
        c.shadow = None;
        (c.mask, c.masked) = (0, 0);
        c.queues_granted = c.fixed.queues;
        self.interrupts.retain(|&(of, _)| of != function);
        self.controllers[usize::from(function)].interrupting.fill(false);
        self.orphan(function);
        self.end_host_memory(function, None);
        self.state.features.reset(function, self.now);
        self.look_up_features(function);
        if !fabrics {
            self.set_keep_alive(function, 0); // As the feature is after a reset.
        }
        let hours = self.state.smart.power_on_hours(self.now);
        self.state.self_test.abort(hours, Abort::Reset(function));
        self.try_quiesce(function);
    }

    /// No host waits for a controller's commands any more. Those that wait for nothing outside of the subsystem end
    /// now.
    fn orphan(&mut self, function: u8) {
        for slot in (0..self.slots.hosts()).map(Slot) {
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
                self.controllers[usize::from(function)].outstanding -= 1;
            }
            if ends {
                self.forget_waiting(slot);
                self.release(slot);
            }
        }
    }

    /// Nothing may be left of the time before a reset: then CSTS.RDY goes, and what waited for that goes on.
    pub(super) fn try_quiesce(&mut self, function: u8) {
        let c = &mut self.controllers[usize::from(function)];
        if c.power != Power::Resetting || c.outstanding > 0 || self.host_memory.is_of(function) {
            return;
        }
        c.power = Power::Disabled;
        c.csts.ready = false;
        if c.leaving {
            self.vacate(function);
        } else if c.cc.enable() {
            self.enable(function);
        }
    }

    /// All registers are as after power-on (section 7.3.2), and the controller is reset.
    pub(super) fn reset_function(&mut self, function: u8) {
        let c = &mut self.controllers[usize::from(function)];
        c.cc = Cc::default();
        c.mask = 0;
        c.aqa = Aqa::default();
        (c.asq, c.acq) = (0, 0);
        c.cmbmsc = MemorySpaceControl::default();
        c.pmrctl = 0;
        c.pmrmsc = MemorySpaceControl::default();
        self.reset(function);
    }

    /// Controller Fatal Status: it stops until it is reset.
    #[cold]
    pub(super) fn fail(&mut self, function: u8) {
        self.controllers[usize::from(function)].csts.fatal = true;
    }

    /// What hosts have been promised is made safe, for all controllers that shut down.
    pub(super) fn flush_for_shutdown(&mut self) {
        let waits = |c: &super::controller::Controller| c.csts.shutdown == ShutdownStatus::Occurring;
        if !self.controllers.iter().any(|c| waits(c) && !c.shutdown_flushed) {
            return;
        }
        let Some(slot) = self.slots.take_own(SHUTDOWN_FLUSH) else { return }; // One is under way: again behind it.
        for c in self.controllers.iter_mut().filter(|c| waits(c)) {
            c.shutdown_flushed = true;
        }
        let command = &mut self.slots[slot];
        command.work = super::slots::Work::Flush;
        command.durable = true;
        // With the flush, it becomes safe that this was a shutdown in order, if it is the last.
        let in_order = |c: &super::controller::Controller| {
            c.power == Power::Disabled || waits(c) || c.csts.shutdown == ShutdownStatus::Complete
        };
        if self.controllers.iter().all(in_order) {
            self.state.smart.shut_down();
        }
        self.outputs.push_back(Output::SaveState);
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
        for function in 0..self.controllers.len() as u8 {
            let c = &self.controllers[usize::from(function)];
            let flushed = c.shutdown_flushed && !self.slots.own_is_taken(SHUTDOWN_FLUSH);
            let ends = c.csts.shutdown == ShutdownStatus::Occurring && flushed && !c.stuck_shutdown;
            // What was lent is the host's alone from then on; that it is, comes back here.
            if ends && !(self.host_memory.is_of(function) && self.end_host_memory(function, None)) {
                self.controllers[usize::from(function)].csts.shutdown = ShutdownStatus::Complete;
            }
        }
    }

    /// A host connects over fabrics.
    pub(super) fn connect(&mut self, function: u8, entries: u16, privileged: bool, keep_alive_ms: u32) {
        let Some(c) = self.controllers.get_mut(usize::from(function)) else { return };
        if c.transport != Transport::Fabrics || c.live {
            return; // The front end's word counts for nothing that is not there.
        }
        c.live = true;
        c.privileged = privileged;
        c.submission[0] =
            SubmissionQueue { live: true, entries: u32::from(entries.max(2)), ..SubmissionQueue::default() };
        self.state.namespaces.admit(function);
        self.state.features.connected(function, keep_alive_ms);
        self.look_up_features(function);
        self.set_keep_alive(function, keep_alive_ms);
    }

    /// A queue of a fabrics controller connects.
    pub(super) fn connect_queue(&mut self, function: u8, queue: u16, entries: u16) {
        let Some(c) = self.controllers.get_mut(usize::from(function)) else { return };
        let known = c.live && c.transport == Transport::Fabrics && queue > 0;
        if let Some(sq) = c.submission.get_mut(usize::from(queue)).filter(|sq| known && !sq.live) {
            let ready = sq.ready;
            let entries = u32::from(entries.max(2));
            *sq = SubmissionQueue { live: true, entries, ready, ..SubmissionQueue::default() };
        }
    }

    /// A fabrics host, or its connection, is gone.
    pub(super) fn disconnect(&mut self, function: u8) {
        let Some(c) = self.controllers.get_mut(usize::from(function)) else { return };
        if c.transport == Transport::Fabrics && c.live && !c.leaving {
            c.leaving = true;
            c.submission[0].live = false;
            self.reset_function(function);
        }
    }

    /// The last command of a host that has left has ended.
    fn vacate(&mut self, function: u8) {
        let c = &mut self.controllers[usize::from(function)];
        let fixed = c.fixed;
        let (generation, keep_alive_timer) = (c.generation.wrapping_add(1), c.keep_alive_timer);
        let ready: Vec<bool> = c.submission.iter().map(|sq| sq.ready).collect();
        *c = super::controller::Controller::new(fixed, Transport::Fabrics, false);
        (c.generation, c.keep_alive_timer) = (generation, keep_alive_timer);
        // Their places in the list of queues with entries are still to come.
        c.submission.iter_mut().zip(ready).for_each(|(sq, ready)| sq.ready = ready);
        self.outputs.push_back(Output::Gone { function });
    }

    /// A command of a controller that can't take one.
    pub(super) fn refuse(&mut self, function: u8, queue: u16, cid: u16) {
        self.post(function, queue, cid, Status::COMMAND_SEQUENCE_ERROR, 0, None);
    }
}
