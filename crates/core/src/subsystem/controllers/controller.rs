//! A controller: its registers (NVM Express 1.4, section 3.1), its queues, and what its host has asked for.

use super::events::AsyncEvents;
use crate::subsystem::interface::{Segment, Transport};
use crate::subsystem::logs::{ChangedNamespaces, ErrorLog};
use crate::subsystem::options::{Bar2, Options, Region};
use crate::subsystem::queues::{CompletionQueue, SubmissionQueue};
use tidewater_base::{Duration, Instant};
use tidewater_wire::nvme::register::{
    Aqa, CMBSTS_CBAI, Cap, Cc, CmbLoc, CmbSz, Csts, MemorySpaceControl, PMRCTL_EN, PmrCap, PmrSts, VERSION_1_4, offset,
};

/// The longest wait for CSTS.RDY, in units of 500 ms (CAP.TO): the drive recovers first after a power cut.
const READY_TIMEOUT: u8 = u8::MAX;

/// Where a controller stands between CC.EN and CSTS.RDY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Power {
    /// CC.EN is 0, and nothing of the time before is under way.
    #[default]
    Disabled,
    /// CC.EN was set, and the drive is not ready yet.
    Enabling,
    /// CSTS.RDY.
    Ready,
    /// CC.EN was cleared, and commands are still under way.
    Resetting,
}

/// What of a controller never changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    pub cap: u64,
    pub bar2: Bar2,
    pub pmr: u64,
    /// Pairs of I/O queues.
    pub queues: u16,
    pub queue_entries: u32,
    pub vectors: u16,
}

impl Fixed {
    pub(crate) fn of(options: &Options, bar2: Bar2, transport: Transport) -> Fixed {
        let pcie = transport == Transport::Pcie;
        let cap = Cap {
            mqes: (options.queue_entries - 1) as u16,
            cqr: true,
            weighted_round_robin: pcie && options.weighted,
            timeout: READY_TIMEOUT,
            // A host learns of such a reset by the link, which an emulated function does not lose: its next command
            // would wait for the driver's time-out, and one guest would take the drive from all others.
            subsystem_reset: false,
            nvm_command_set: true,
            pmr: pcie && options.pmr > 0,
            cmb: pcie && options.cmb > 0,
            ..Cap::default()
        };
        Fixed {
            cap: cap.bits(),
            bar2,
            pmr: options.pmr,
            queues: options.queues,
            queue_entries: options.queue_entries,
            vectors: options.vectors,
        }
    }
}

/// A controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controller {
    pub fixed: Fixed,
    pub transport: Transport,
    /// A host may talk to it: always over PCIe, while connected over fabrics.
    pub live: bool,
    /// It may use commands that destroy.
    pub privileged: bool,
    pub power: Power,
    pub cc: Cc,
    pub csts: Csts,
    pub mask: u32,
    /// Vectors whose interrupt waits until it is unmasked.
    pub masked: u32,
    pub aqa: Aqa,
    pub asq: u64,
    pub acq: u64,
    pub cmbmsc: MemorySpaceControl,
    pub pmrctl: u32,
    pub pmrmsc: MemorySpaceControl,
    /// Queue 0 is the admin queue.
    pub submission: Box<[SubmissionQueue]>,
    pub completion: Box<[CompletionQueue]>,
    /// Commands that are worked on, and reads of submission queues.
    pub outstanding: u32,
    pub events: AsyncEvents,
    /// Shadow doorbells and event indices (Doorbell Buffer Config).
    pub shadow: Option<(u64, u64)>,
    /// Number of Queues has been set since the last reset: submission and completion queues that may be made.
    pub queues_granted: u16,
    /// Interrupt coalescing: completions until there is an interrupt, and how long they wait at most. Zero time: none.
    pub coalesce_count: u32,
    pub coalesce_time: Duration,
    /// Entries that are read of one queue in a turn.
    pub burst: u32,
    pub errors: ErrorLog,
    pub changed: ChangedNamespaces,
    /// The host memory buffer, as long as it is lent.
    pub host_memory: Vec<Segment>,
    pub keep_alive: Duration,
    pub heard_at: Instant,
    /// Tells its keep-alive timer from those that were set before.
    pub keep_alive_timer: u32,
    /// Counts resets: what was meant for the time before one is dropped.
    pub generation: u32,
    /// Over fabrics: the host has left, and commands are still under way.
    pub leaving: bool,
    pub stuck_shutdown: bool,
    /// The flush that is under way is for its shutdown too.
    pub shutdown_flushed: bool,
    /// Vectors whose interrupt is about to be said.
    pub interrupting: Box<[bool]>,
}

impl Controller {
    pub(crate) fn new(fixed: Fixed, transport: Transport, privileged: bool) -> Controller {
        let queues = usize::from(fixed.queues) + 1;
        Controller {
            transport,
            live: transport == Transport::Pcie,
            privileged,
            submission: vec![SubmissionQueue::default(); queues].into_boxed_slice(),
            completion: vec![CompletionQueue::default(); queues].into_boxed_slice(),
            queues_granted: fixed.queues,
            burst: u32::MAX,
            interrupting: vec![false; usize::from(fixed.vectors)].into_boxed_slice(),
            fixed,
            ..Controller::default()
        }
    }

    /// It takes commands.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.csts.ready && !self.csts.fatal && self.power == Power::Ready
    }

    /// The CMB's bus addresses, if it is enabled.
    pub(crate) fn cmb_base(&self) -> Option<u64> {
        let bar = self.fixed.bar2;
        let enabled = bar.cmb_len > 0 && self.cmbmsc.registers_enabled() && self.cmbmsc.enabled();
        let base = self.cmbmsc.base();
        (enabled && base.checked_add(bar.cmb_len).is_some()).then_some(base)
    }

    fn pmr_base(&self) -> Option<u64> {
        let enabled = self.fixed.pmr > 0 && self.pmrctl & PMRCTL_EN != 0 && self.pmrmsc.enabled();
        let base = self.pmrmsc.base();
        (enabled && base.checked_add(self.fixed.pmr).is_some()).then_some(base)
    }

    /// What bus addresses mean; those that lie partly inside of a region, are outside.
    pub(crate) fn region(&self, address: u64, len: u32) -> Region {
        let within = |base: Option<u64>, size: u64| {
            let offset = address.checked_sub(base?)?;
            (offset.checked_add(len.into())? <= size).then_some(offset)
        };
        if let Some(offset) = within(self.cmb_base(), self.fixed.bar2.cmb_len) {
            return Region::Cmb { offset };
        }
        within(self.pmr_base(), self.fixed.pmr).map_or(Region::Host, |offset| Region::Pmr { offset })
    }

    /// Whether any of these bytes lie in the CMB.
    #[inline]
    pub(crate) fn touches_cmb(&self, address: u64, len: u64) -> bool {
        self.cmbmsc.enabled()
            && self
                .cmb_base()
                .is_some_and(|base| address < base + self.fixed.bar2.cmb_len && base < address.saturating_add(len))
    }

    fn cmb_size(&self) -> CmbSz {
        let bytes = self.fixed.bar2.cmb_len;
        if bytes == 0 || !self.cmbmsc.registers_enabled() {
            return CmbSz::default();
        }
        // Units of 4 KiB tell sizes and offsets of up to 4 GiB.
        let size = (bytes >> 12) as u32;
        CmbSz { submission_queues: true, completion_queues: true, size, ..CmbSz::default() }
    }

    fn cmb_location(&self) -> u32 {
        if self.cmb_size() == CmbSz::default() {
            return 0;
        }
        // CQMMS: one queue may lie there, and another in the host's memory.
        CmbLoc { bir: 2, rules: 1, offset: (self.fixed.bar2.cmb_offset >> 12) as u32 }.bits()
    }

    fn cmb_status(&self) -> u32 {
        let invalid = self.cmbmsc.registers_enabled() && self.cmbmsc.enabled() && self.cmb_base().is_none();
        if invalid { CMBSTS_CBAI } else { 0 }
    }

    fn pmr_capabilities(&self) -> u32 {
        if self.fixed.pmr == 0 {
            return 0;
        }
        let cap = PmrCap {
            read_data: true,
            write_data: true,
            bir: 4,
            barrier_by_status: true,
            timeout: 1,
            memory_space: true,
            ..PmrCap::default()
        };
        cap.bits()
    }

    fn pmr_status(&self) -> u32 {
        if self.fixed.pmr == 0 {
            return 0;
        }
        let enabled = self.pmrctl & PMRCTL_EN != 0;
        let base_invalid = enabled && self.pmrmsc.enabled() && self.pmr_base().is_none();
        PmrSts { not_ready: !enabled, base_invalid, ..PmrSts::default() }.bits()
    }

    /// The double word at `at`, a multiple of 4. What is reserved reads as zero, and so do doorbells.
    fn dword(&self, at: u32) -> u32 {
        const HIGH: u32 = 4;
        let high = |value: u64| (value >> 32) as u32;
        match at {
            offset::CAP => self.fixed.cap as u32,
            at if at == offset::CAP + HIGH => high(self.fixed.cap),
            offset::VS => VERSION_1_4,
            offset::INTMS | offset::INTMC => self.mask,
            offset::CC => self.cc.0,
            offset::CSTS => self.csts.bits(),
            offset::AQA => self.aqa.0,
            offset::ASQ => self.asq as u32,
            at if at == offset::ASQ + HIGH => high(self.asq),
            offset::ACQ => self.acq as u32,
            at if at == offset::ACQ + HIGH => high(self.acq),
            offset::CMBLOC => self.cmb_location(),
            offset::CMBSZ => self.cmb_size().bits(),
            offset::CMBMSC => self.cmbmsc.0 as u32,
            at if at == offset::CMBMSC + HIGH => high(self.cmbmsc.0),
            offset::CMBSTS => self.cmb_status(),
            offset::PMRCAP => self.pmr_capabilities(),
            offset::PMRCTL => self.pmrctl,
            offset::PMRSTS => self.pmr_status(),
            offset::PMRMSCL => self.pmrmsc.0 as u32,
            offset::PMRMSCU => high(self.pmrmsc.0),
            _ => 0,
        }
    }

    /// `len` bytes, 1 to 8, at any offset.
    pub(crate) fn register(&self, at: u32, len: u8) -> u64 {
        let len = u32::from(len.min(8));
        let mut value = 0;
        for i in 0..len {
            let Some(at) = at.checked_add(i) else { break };
            let byte = self.dword(at & !3) >> (8 * (at & 3)) & 0xFF;
            value |= u64::from(byte) << (8 * i);
        }
        value
    }
}
