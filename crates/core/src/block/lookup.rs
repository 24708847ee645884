//! What a command does before it reads flash: it finds the map entries of its pages. Where the whole map is at hand
//! that takes no time and this file is not used; else each entry costs an access to the mapping cache's memory, or a
//! flash read.

use super::Block;
use super::work::{Action, Step};
use crate::context::Context;
use crate::events::{Event, lane};
use crate::ftl::{ENTRY_BYTES, Ftl, LookUp};
use crate::host::Host;
use tidewater_nand::Medium;

impl Block {
    /// Looks for the map entries of the pages that a command reads from flash, unless it has them: then, and where the
    /// whole map is at hand, it says false, as when it needs none; else the command goes on when they are at hand.
    #[inline]
    pub(crate) fn translate<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        host: &Host,
        slot: u16,
        lpns: impl Iterator<Item = u32>,
    ) -> bool {
        if !self.translates || self.work[slot as usize].step == Step::Translate {
            return false;
        }
        let (mut page, mut hits, mut away, mut waits) = (u32::MAX, 0u64, 0, 0);
        for lpn in lpns {
            if self.caches.write.contains(lpn) || self.caches.read.contains(lpn) {
                continue;
            }
            let of = ftl.map_cache().map_or(0, |cache| cache.page_of(lpn));
            if of == page {
                continue;
            }
            page = of;
            match ftl.look_up(cx.now, &mut cx.events, lpn, slot.into()) {
                LookUp::Hit => hits += 1,
                LookUp::Away { unit } => {
                    self.read_map_unit(cx, ftl, unit, of, slot);
                    away += 1;
                }
                LookUp::Waits => waits += 1,
                LookUp::Empty => {}
            }
        }
        // Beside host memory, what the controller keeps of the map in its own SRAM is at hand at once.
        let hits = if self.map_port == usize::MAX { 0 } else { hits };
        if hits + away + waits == 0 {
            return false;
        }
        let work = &mut self.work[slot as usize];
        work.step = Step::Translate;
        work.pending = (away + waits) as u32;
        if hits > 0 {
            work.pending += 1;
            let done = cx.memories[self.map_port].read(cx.now, hits * u64::from(ENTRY_BYTES));
            cx.events.push(done, lane::TRANSLATE, Event::Data { slot: slot.into() });
        }
        if waits > 0 {
            self.charge_map_cache(cx, ftl, host);
        }
        true
    }

    /// One of the things that a command waits for to know its map entries has come.
    pub(crate) fn on_translated<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host, slot: u16) {
        let work = &mut self.work[slot as usize];
        work.pending -= 1;
        if work.pending > 0 {
            return;
        }
        match work.action {
            Action::Write | Action::WriteZeroes => self.merge(cx, ftl, host, slot),
            _ => self.read_pages(cx, ftl, host, slot),
        }
    }

    /// The mapping cache has moved pages: its memory was busy with them, and their waiters continue.
    pub(crate) fn charge_map_cache<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, host: &Host) {
        let (read, written) = ftl.take_map_traffic();
        if let Some(memory) = cx.memories.get_mut(self.map_port) {
            if read > 0 {
                memory.read_behind(cx.now, read);
            }
            if written > 0 {
                memory.write_behind(cx.now, written);
            }
        }
        while let Some(owner) = ftl.take_translated() {
            self.on_translated(cx, ftl, host, owner as u16);
        }
    }
}
