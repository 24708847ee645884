//! Where the end of a flash operation goes: the one place that matches an [`Owner`].

use super::Device;
use crate::events::Kind;
use crate::flash::{Operation, Source};
use crate::owner::Owner;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

impl<M: Medium> Device<M> {
    /// A read has brought what it was to bring.
    #[inline(always)]
    pub(super) fn on_flash_read(&mut self, done: u32) {
        let &Operation { source, tag, uncorrectable, .. } = self.ftl.flash.operation(done);
        match source {
            Source::HostRead => self.on_owner_read(Owner::unpack(tag), uncorrectable != 0),
            _ => self.on_own_done(Kind::Read, done),
        }
    }

    #[inline(always)]
    fn on_owner_read(&mut self, owner: Owner, failed: bool) {
        match owner {
            Owner::Command(slot) => {
                self.on_read_done(slot, failed);
                if self.ftl.flash.outstanding() == 0 {
                    self.after_flash(); // No program or erase will come to do it.
                }
            }
            Owner::Padding => self.on_padding_read(failed),
            Owner::LogRead(place) => self.on_log_read(place as usize, failed),
            Owner::Window(place) => self.on_window_read(Some(place.into()), failed),
            Owner::WindowRestore => self.on_window_read(None, failed),
            Owner::None | Owner::Log { .. } | Owner::Dump => unreachable!("{owner:?} waits for no read"),
        }
    }

    /// A unit is on flash, or could not be written.
    #[inline(always)]
    pub(crate) fn on_owner_programmed(&mut self, owner: Owner, failed: bool) {
        match owner {
            Owner::Command(slot) => {
                if failed {
                    self.work[usize::from(slot)].status = Status::WRITE_FAULT;
                }
                self.on_unit_programmed(slot);
            }
            Owner::Log { function, .. } if failed => self.on_page_rejected(function.into()),
            Owner::Log { function, number } => self.on_page_destaged(function.into(), number),
            Owner::Window(place) => self.on_window_programmed(place.into(), failed),
            Owner::None | Owner::Padding | Owner::LogRead(_) | Owner::WindowRestore | Owner::Dump => {
                unreachable!("{owner:?} waits for no program")
            }
        }
    }

    /// An operation of this kind that no host command waits for is done.
    #[inline(always)]
    pub(super) fn on_own_done(&mut self, kind: Kind, done: u32) {
        let recovering = self.ftl.is_recovering();
        self.ftl.on_done(self.now, &mut self.events, kind, done);
        while let Some(owner) = self.ftl.take_acknowledged() {
            self.on_owner_programmed(owner, false);
        }
        if recovering && !self.ftl.is_recovering() {
            self.take_back();
        }
        if self.translates {
            self.charge_map_cache();
        }
        self.after_flash();
    }
}
