//! The way from the write buffer to flash: what leaves is chosen by the policy, completed by what goes along, and
//! written as flash takes it.

use super::Block;
use crate::buffer::Part;
use crate::content::PAST;
use crate::context::Context;
use crate::ftl::{Entry, Ftl};
use crate::owner::Owner;
use tidewater_nand::Medium;

impl Block {
    /// Moves pages from the write buffer towards flash. False: nothing has moved, because flash can't take any now or
    /// has not yet given what goes along.
    #[inline(always)]
    pub(crate) fn destage<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> bool {
        // Flash is asked after each of its operations, and most of the time it can't.
        ftl.can_write() && self.destage_row(cx, ftl)
    }

    /// As [`Block::destage`], when a row is open.
    fn destage_row<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> bool {
        if !self.caches.write.is_leaving() {
            self.choose_leaving(cx, ftl);
        }
        if self.padding_reads > 0 {
            return false;
        }
        // All entries are asked for before the first is needed: their latencies overlap. Under a policy with an outlook
        // most were asked for when the row before this one left.
        self.caches.write.leaving().iter().for_each(|page| ftl.prefetch(page.lpn));
        self.caches.write.leaving().iter().for_each(|page| ftl.prefetch_overwritten(page.lpn));
        self.caches.write.outlook(self.caches.write.leaving().len(), &mut |lpn| ftl.prefetch(lpn));
        let keeps = self.caches.write.keeps_destaged() && !self.caches.lent && self.caches.read.is_enabled();
        let (mut moved, mut kept) = (false, 0u64);
        while let Some(&page) = self.caches.write.leaving().first() {
            if !ftl.can_write() {
                break;
            }
            moved = true;
            let copy = if page.part == Part::Dirty { None } else { Some(self.flash_version(cx, ftl, page.lpn)) };
            let version = self.caches.write.take_leaving(copy != Some(None));
            if let Some(version) = copy.unwrap_or(Some(version)) {
                ftl.write(cx.now, &mut cx.events, page.lpn, version, Owner::None);
            }
            if keeps && page.part == Part::Dirty {
                self.caches.cache(page.lpn);
                kept += 1;
            }
        }
        if kept > 0 {
            cx.memories[self.caches.read_port].write(cx.now, kept << cx.shift.unit);
        }
        moved
    }

    /// What flash has of a page; `None` when it has nothing that could be written again.
    fn flash_version<M: Medium>(&self, cx: &Context, ftl: &Ftl<M>, lpn: u32) -> Option<u64> {
        match ftl.map().get(lpn) {
            Entry::Unmapped | Entry::Lost => None,
            Entry::At(_) if cx.options.stamps => Some(ftl.stamp(lpn)?.version),
            Entry::At(_) => Some(0),
        }
    }

    /// Lets the policy choose, and asks flash for what it wants beside.
    fn choose_leaving<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        self.caches.write.choose(ftl.row_room() as usize);
        if self.caches.write.leaving().iter().any(|page| page.part != Part::Dirty) {
            self.complete_leaving(cx, ftl);
        }
        self.caches.write.count_leaving();
        let mut of_part = [0u64; 3];
        self.caches.write.leaving().iter().for_each(|page| of_part[page.part as usize] += 1);
        let [dirty, cached, padding] = of_part;
        // No command waits for the pages to leave the memory, but they take its bandwidth.
        cx.memories[self.caches.write_port].read(cx.now, (dirty + padding) << cx.shift.unit);
        if cached > 0 {
            cx.memories[self.caches.read_port].read(cx.now, cached << cx.shift.unit);
        }
    }

    /// Finds the clean pages that leave beside dirty ones: those that flash does not have are left out, and padding is
    /// read.
    #[inline(never)]
    fn complete_leaving<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        if cx.options.premap {
            self.premap_leaving(cx, ftl);
        }
        let map = ftl.map();
        self.caches.write.trim_leaving(|page| page.part == Part::Dirty || matches!(map.get(page.lpn), Entry::At(_)));
        let padding = self.caches.write.leaving().iter().filter(|page| page.part == Part::Padding);
        let wanted = padding.clone().count() as u64;
        let read = ftl.read(cx.now, &mut cx.events, padding.map(|page| page.lpn), Owner::Padding);
        self.padding_reads += read.expect("lost pages are left out");
        self.caches.write.statistics.padding_reads += wanted;
        if wanted > 0 {
            cx.memories[self.caches.write_port].write(cx.now, wanted << cx.shift.unit);
        }
    }

    /// Padding that is read and was never written counts as written before the run.
    fn premap_leaving<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        for i in 0..self.caches.write.leaving().len() {
            let page = self.caches.write.leaving()[i];
            if page.part == Part::Padding && ftl.map().is_virgin(page.lpn) && !ftl.premap(page.lpn, PAST) {
                let queued = ftl.read_past(cx.now, &mut cx.events, page.lpn, Owner::Padding);
                self.padding_reads += u32::from(queued);
                self.caches.write.statistics.padding_reads += u64::from(queued);
            }
        }
        ftl.wake_collection(cx.now, &mut cx.events);
    }

    /// Flash has given padding. True: all of it is there, and what waited may go on.
    pub(crate) fn on_padding_read(&mut self, failed: bool) -> bool {
        self.padding_reads -= 1;
        self.padding_failed |= failed;
        if self.padding_reads > 0 {
            return false;
        }
        if std::mem::take(&mut self.padding_failed) {
            // The block leaves without: what could not be read stays where it is, and a read of it fails as before.
            self.caches.write.drop_padding();
        }
        self.caches.is_stuck = false;
        true
    }

    /// Destages what no command waits for: what has begun to leave, and what is more than the profile lets stay.
    #[inline(always)]
    pub(crate) fn background_destage<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        // The cheapest test that most often fails comes first.
        if ftl.may_write() && self.wants_to_destage() && ftl.can_write() {
            self.go_on_with_rows(cx, ftl);
        }
    }

    #[inline(always)]
    fn wants_to_destage(&self) -> bool {
        self.caches.write.is_leaving() || self.caches.write.dirty() > self.destage_above
    }

    #[inline(never)]
    fn go_on_with_rows<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        while self.wants_to_destage() && self.destage(cx, ftl) {}
    }

    /// Pages that were read from flash are in the read cache from now on.
    #[inline(always)]
    pub(super) fn cache_pages<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, first: u32, end: u32) {
        let mut filled = 0u64;
        for lpn in first..end {
            if self.caches.write.contains(lpn) {
                continue;
            }
            if self.caches.lent {
                self.cache_on_host(cx, ftl, lpn);
            } else {
                self.caches.cache(lpn);
                filled += 1;
            }
        }
        if filled > 0 {
            cx.memories[self.caches.read_port].write(cx.now, filled << cx.shift.unit);
        }
    }

    /// Pages that were read from flash or found in the read cache, and now go to the host, are kept in case they are
    /// read again.
    pub(crate) fn keep_pages<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, first: u32, end: u32) {
        if self.caches.read.is_enabled() {
            self.cache_pages(cx, ftl, first, end);
        }
        if self.caches.write.keeps_clean() {
            let mut filled = 0u64;
            for lpn in first..end {
                let held = self.caches.write.contains(lpn);
                if !held && (self.caches.write.keep(lpn) || self.destage(cx, ftl) && self.caches.write.keep(lpn)) {
                    filled += 1;
                }
            }
            if filled > 0 {
                cx.memories[self.caches.write_port].write(cx.now, filled << cx.shift.unit);
            }
        }
    }
}
