//! Events that hosts are notified of: changed namespaces, the end of the drive's life, short spare blocks.

use super::Subsystem;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Event;
use tidewater_wire::nvme::log::critical_warning;

impl<M: Medium> Subsystem<M> {
    /// Something has happened that every host is to know.
    pub(super) fn raise_everywhere(&mut self, event: Event) {
        for function in 0..self.controllers.len() {
            if self.controllers[function].live {
                self.raise(function as u8, event);
            }
        }
    }

    /// What Identify tells of a namespace has changed, for all that it is attached to.
    pub(super) fn tell_namespace_changed(&mut self, nsid: u32) {
        let Ok(attached) = self.state.namespaces.at(nsid).map(|ns| ns.attached) else { return };
        for function in attached.iter() {
            self.tell_controller_of_namespace(function, nsid);
        }
    }

    /// A namespace has come, gone or changed, as far as a controller is concerned.
    pub(super) fn tell_controller_of_namespace(&mut self, function: u8, nsid: u32) {
        if let Some(c) = self.controllers.get_mut(usize::from(function)).filter(|c| c.live) {
            c.changed.add(nsid);
            self.raise(function, Event::NamespaceAttributeChanged);
        }
    }

    /// Whether the drive takes no writes any more; the first time, hosts are notified.
    #[cold]
    pub(super) fn look_for_end_of_life(&mut self) {
        if !self.told_end_of_life && (self.read_only || self.device.ftl().is_read_only()) {
            self.told_end_of_life = true;
            self.raise_everywhere(Event::Reliability);
            self.look_for_short_spares();
        }
    }

    /// Blocks have failed, and spare ones have taken their places.
    #[cold]
    pub(super) fn on_flash_failed(&mut self) {
        let statistics = &self.device.ftl().statistics;
        self.failures_seen = statistics.program_failures + statistics.erase_failures;
        self.look_for_short_spares();
    }

    /// Whether spare blocks are short; the first time, hosts are notified.
    fn look_for_short_spares(&mut self) {
        let flash = super::state::flash_of(&self.device, self.read_only);
        if !self.told_spare && self.state.smart.warnings(&flash, false) & critical_warning::SPARE != 0 {
            self.told_spare = true;
            self.raise_everywhere(Event::SpareBelowThreshold);
        }
    }
}
