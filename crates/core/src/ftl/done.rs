//! What the end of a flash operation means, by its kind and by what it was for.

use super::Ftl;
use crate::events::EventQueue;
use crate::flash::{Kind, Operation, Source};
use tidewater_base::Instant;
use tidewater_nand::Medium;

impl<M: Medium> Ftl<M> {
    /// A die's array has finished an operation of this kind; returns the number of the one that is done with.
    #[inline(always)]
    pub fn on_cell(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        die: u32,
        generation: u32,
        kind: Kind,
    ) -> Option<u32> {
        if kind == Kind::Read && !self.layout.has_single_rows() {
            self.expect_copies(die);
        }
        self.flash.on_cell(now, events, die, generation, kind, &mut self.medium, &self.layout)
    }

    /// The flash operation with this number, which is of this kind, is done; and is no host read: those concern their
    /// owners only.
    // Programs and reads of collection, which are nearly all, look up what they need of their operation; the others get
    // a copy of it, since they may queue what takes its place.
    #[inline(always)]
    pub fn on_done(&mut self, now: Instant, events: &mut EventQueue, kind: Kind, done: u32) {
        match kind {
            Kind::Program if self.layout.has_single_rows() => self.on_programmed::<true>(now, events, done),
            Kind::Program => self.on_programmed::<false>(now, events, done),
            Kind::Erase => self.on_erased(now, events, done),
            Kind::Read => self.on_read(now, events, done),
        }
    }

    #[inline(always)]
    fn on_read(&mut self, now: Instant, events: &mut EventQueue, done: u32) {
        let &Operation { source, superblock, .. } = self.flash.operation(done);
        match source {
            Source::CollectRead if self.hybrid.is_some() || self.is_mapping(superblock) => {
                self.on_other_read(now, events, done);
            }
            Source::CollectRead | Source::FoldRead if self.layout.has_single_rows() => {
                self.on_collect_read::<true>(now, events, done);
            }
            Source::CollectRead | Source::FoldRead => self.on_collect_read::<false>(now, events, done),
            _ => self.on_other_read(now, events, done),
        }
    }

    #[inline(never)]
    fn on_other_read(&mut self, now: Instant, events: &mut EventQueue, done: u32) {
        let operation = *self.flash.operation(done);
        match operation.source {
            Source::CollectRead if self.hybrid.is_some() => self.on_merge_read(now, events, &operation),
            Source::CollectRead => self.on_mapping_collect_read(now, events, &operation),
            Source::MapRead => self.on_map_read(now, events, &operation),
            Source::Recovery => self.on_recovery_read(now, events, &operation),
            _ => {}
        }
    }
}
