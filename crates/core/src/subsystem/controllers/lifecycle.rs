//! Enable, disable, shutdown and reset, in every order (NVM Express 1.4, sections 3.1.5, 7.3 and 7.6).
//!
//! A reset leaves orphans: commands without a waiting host that are still in progress. Their controller says that it
//! is not ready any more (CSTS.RDY) when the last of them has ended: until then they may touch the host's memory, and a
//! write may still change blocks.

use super::controller::Power;
use super::events::AsyncEvents;
use super::{Controller, Controllers};
use crate::subsystem::context::Context;
use crate::subsystem::interface::{Output, Transport};
use crate::subsystem::queues::{CompletionQueue, SubmissionQueue};
use crate::subsystem::self_test::Abort;
use tidewater_wire::nvme::register::{
    Aqa, Cap, Cc, MemorySpaceControl, PMRCTL_EN, ShutdownNotification, ShutdownStatus, offset,
};
use tidewater_wire::nvme::{Cqe, Sqe};

/// Weighted round robin with urgent priority class, in CC.AMS.
const WEIGHTED: u8 = 1;

/// A wish in CC that needs more than the controller.
pub(crate) enum Configured {
    /// Nothing.
    Nothing,
    /// A reset.
    Reset,
    /// A flush, and then its shutdown ends.
    Shutdown,
}

impl Controllers {
    /// The host writes a double word of a register below the doorbells. Returns what it has configured, if it has.
    pub(crate) fn write_control(&mut self, function: u8, at: u32, value: u32) -> Option<Cc> {
        const HIGH: u32 = 4;
        let c = &mut self[function];
        let low = |old: u64| old & !0xFFFF_FFFF | u64::from(value);
        let high = |old: u64| old & 0xFFFF_FFFF | u64::from(value) << 32;
        let pcie = c.transport == Transport::Pcie;
        match at {
            offset::CC => return Some(Cc(value & Cc::WRITABLE)),
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
        None
    }

    /// CC is written.
    pub(crate) fn configure(&mut self, cx: &mut Context, function: u8, cc: Cc, recovering: bool) -> Configured {
        let c = &mut self[function];
        let was = std::mem::replace(&mut c.cc, cc);
        match (was.enable(), cc.enable()) {
            (true, false) => return Configured::Reset,
            (false, true) if c.power == Power::Disabled => self.enable(cx, function, recovering),
            _ => {}
        }
        let asks = matches!(cc.shutdown(), ShutdownNotification::Normal | ShutdownNotification::Abrupt);
        let c = &mut self[function];
        if asks && c.csts.shutdown == ShutdownStatus::None {
            c.csts.shutdown = ShutdownStatus::Occurring;
            c.shutdown_flushed = false;
            return Configured::Shutdown;
        }
        Configured::Nothing
    }

    /// CC.EN was set, and nothing is left of the time before.
    fn enable(&mut self, cx: &mut Context, function: u8, recovering: bool) {
        let c = &mut self[function];
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
        if !recovering {
            self.make_ready(cx, function);
        }
    }

    fn make_ready(&mut self, cx: &mut Context, function: u8) {
        let c = &mut self[function];
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
        if cx.state.smart.is_clean() {
            cx.state.smart.enabled();
            cx.say(Output::SaveState);
        }
    }

    /// The drive has recovered: controllers that were enabled meanwhile are ready.
    #[cold]
    pub(crate) fn on_recovered(&mut self, cx: &mut Context) {
        for function in self.numbers() {
            let c = &self[function];
            if c.power == Power::Enabling && !c.csts.fatal {
                self.make_ready(cx, function);
            }
        }
    }

    /// A controller reset begins (section 7.3.2): queues are gone.
    pub(crate) fn begin_reset(&mut self, function: u8) {
        let c = &mut self[function];
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
        self[function].interrupting.fill(false);
    }

    /// Features of a controller get their saved values again.
    pub(crate) fn reset_features(&mut self, cx: &mut Context, function: u8) {
        cx.state.features.reset(function, cx.now);
        self.look_up_features(cx, function);
        if self[function].transport == Transport::Pcie {
            self.set_keep_alive(cx, function, 0); // As the feature is after a reset.
        }
        let hours = cx.hours();
        cx.state.self_test.abort(hours, Abort::Reset(function));
    }

    /// Nothing may be left of the time before a reset: then CSTS.RDY goes, and what waited for that goes on. `lends`:
    /// the drive still uses memory of its host.
    pub(crate) fn try_quiesce(&mut self, cx: &mut Context, function: u8, lends: bool, recovering: bool) {
        let c = &mut self[function];
        if c.power != Power::Resetting || c.outstanding > 0 || lends {
            return;
        }
        c.power = Power::Disabled;
        c.csts.ready = false;
        if c.leaving {
            self.vacate(cx, function);
        } else if c.cc.enable() {
            self.enable(cx, function, recovering);
        }
    }

    /// All registers are as after power-on (section 7.3.2).
    pub(crate) fn clear_registers(&mut self, function: u8) {
        let c = &mut self[function];
        c.cc = Cc::default();
        c.mask = 0;
        c.aqa = Aqa::default();
        (c.asq, c.acq) = (0, 0);
        c.cmbmsc = MemorySpaceControl::default();
        c.pmrctl = 0;
        c.pmrmsc = MemorySpaceControl::default();
    }

    /// Whether a controller shuts down for which no flush is under way.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.all.iter().any(|c| shuts_down(c) && !c.shutdown_flushed)
    }

    /// A flush for all controllers that shut down begins: with it, it becomes safe that this was a shutdown in order,
    /// if it is the last.
    pub(crate) fn begin_flush(&mut self, cx: &mut Context) {
        self.all.iter_mut().filter(|c| shuts_down(c)).for_each(|c| c.shutdown_flushed = true);
        let in_order =
            |c: &Controller| c.power == Power::Disabled || shuts_down(c) || c.csts.shutdown == ShutdownStatus::Complete;
        if self.all.iter().all(in_order) {
            cx.state.smart.shut_down();
        }
        cx.say(Output::SaveState);
    }

    /// Whether the shutdown of a controller waits for nothing, but for the memory that its host lends. `is_flushing`: a
    /// flush for shutdowns is under way.
    pub(crate) fn may_end_shutdown(&self, function: u8, is_flushing: bool) -> bool {
        let c = &self[function];
        shuts_down(c) && c.shutdown_flushed && !is_flushing && !c.stuck_shutdown
    }

    /// A host connects over fabrics.
    pub(crate) fn connect(
        &mut self,
        cx: &mut Context,
        function: u8,
        entries: u16,
        privileged: bool,
        keep_alive_ms: u32,
    ) {
        let Some(c) = self.get_mut(function) else { return };
        if c.transport != Transport::Fabrics || c.live {
            return; // The front end's word counts for nothing that is not there.
        }
        c.live = true;
        c.privileged = privileged;
        c.submission[0] =
            SubmissionQueue { live: true, entries: u32::from(entries.max(2)), ..SubmissionQueue::default() };
        cx.state.namespaces.admit(function);
        cx.state.features.connected(function, keep_alive_ms);
        self.look_up_features(cx, function);
        self.set_keep_alive(cx, function, keep_alive_ms);
    }

    /// A fabrics host, or its connection, is gone. True: the controller is to be reset.
    pub(crate) fn disconnect(&mut self, function: u8) -> bool {
        let c = self.get_mut(function).filter(|c| c.transport == Transport::Fabrics && c.live && !c.leaving);
        c.map(|c| (c.leaving, c.submission[0].live) = (true, false)).is_some()
    }

    /// The last command of a host that has left has ended.
    fn vacate(&mut self, cx: &mut Context, function: u8) {
        let c = &mut self[function];
        let (generation, keep_alive_timer) = (c.generation.wrapping_add(1), c.keep_alive_timer);
        let ready: Vec<bool> = c.submission.iter().map(|sq| sq.ready).collect();
        *c = Controller::new(c.fixed, Transport::Fabrics, false);
        (c.generation, c.keep_alive_timer) = (generation, keep_alive_timer);
        // Their places in the list of queues with entries are still to come.
        c.submission.iter_mut().zip(ready).for_each(|(sq, ready)| sq.ready = ready);
        cx.say(Output::Gone { function });
    }
}

fn shuts_down(c: &Controller) -> bool {
    c.csts.shutdown == ShutdownStatus::Occurring
}
