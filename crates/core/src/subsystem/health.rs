//! The end of the drive's life: it only reads, and hosts are notified.

use super::context::Context;
use super::controllers::Controllers;
use super::state::flash_of;
use crate::device::Device;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Event;
use tidewater_wire::nvme::log::critical_warning;

/// Failures, and whether hosts know of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// The backing store has failed.
    pub store_failed: bool,
    /// Hosts know that the drive is read-only.
    told_end_of_life: bool,
    /// Hosts know that spare blocks are short.
    told_spare: bool,
    /// Programs and erases that had failed when spare blocks were counted last.
    failures_seen: u64,
}

impl Health {
    /// Whether nothing can be written any more.
    pub(super) fn is_read_only<M: Medium>(&self, device: &Device<M>) -> bool {
        self.store_failed || device.ftl().is_read_only()
    }

    /// Whether the drive takes no writes any more; the first time, hosts are notified.
    #[cold]
    pub(super) fn look_for_end_of_life<M: Medium>(
        &mut self,
        cx: &mut Context,
        controllers: &mut Controllers,
        device: &Device<M>,
    ) {
        if !self.told_end_of_life && self.is_read_only(device) {
            self.told_end_of_life = true;
            controllers.raise_everywhere(cx, Event::Reliability);
            self.look_for_short_spares(cx, controllers, device);
        }
    }

    /// Whether blocks have failed since this was asked last; then spare ones have taken their places.
    #[inline]
    pub(super) fn has_news<M: Medium>(&mut self, device: &Device<M>) -> bool {
        let statistics = &device.ftl().statistics;
        let failures = statistics.program_failures + statistics.erase_failures;
        std::mem::replace(&mut self.failures_seen, failures) != failures
    }

    /// Whether spare blocks are short; the first time, hosts are notified.
    #[cold]
    pub(super) fn look_for_short_spares<M: Medium>(
        &mut self,
        cx: &mut Context,
        controllers: &mut Controllers,
        device: &Device<M>,
    ) {
        let flash = flash_of(device, self.store_failed);
        if !self.told_spare && cx.state.smart.warnings(&flash, false) & critical_warning::SPARE != 0 {
            self.told_spare = true;
            controllers.raise_everywhere(cx, Event::SpareBelowThreshold);
        }
    }
}
