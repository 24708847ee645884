//! The way from the write buffer to flash: what leaves is chosen by the policy, completed by what goes along, and
//! written as flash takes it.

use crate::buffer::Part;
use crate::content::PAST;
use crate::device::Device;
use crate::ftl::Entry;
use crate::owner::Owner;
use tidewater_nand::Medium;

impl<M: Medium> Device<M> {
    /// Moves pages from the write buffer towards flash. False: nothing has moved, because flash can't take any now or
    /// has not yet given what goes along.
    #[inline(always)]
    pub(crate) fn destage(&mut self) -> bool {
        // Flash is asked after each of its operations, and most of the time it can't.
        self.ftl.can_write() && self.destage_row()
    }

    /// As [`Device::destage`], when a row is open.
    fn destage_row(&mut self) -> bool {
        if !self.write_buffer.is_leaving() {
            self.choose_leaving();
        }
        if self.padding_reads > 0 {
            return false;
        }
        // All entries are asked for before the first is needed: their latencies overlap. Under a policy with an outlook
        // most were asked for when the row before this one left.
        self.write_buffer.leaving().iter().for_each(|page| self.ftl.prefetch(page.lpn));
        self.write_buffer.leaving().iter().for_each(|page| self.ftl.prefetch_overwritten(page.lpn));
        self.write_buffer.outlook(self.write_buffer.leaving().len(), &mut |lpn| self.ftl.prefetch(lpn));
        let mut moved = false;
        while let Some(&page) = self.write_buffer.leaving().first() {
            if !self.ftl.can_write() {
                break;
            }
            moved = true;
            let copy = if page.part == Part::Dirty { None } else { Some(self.flash_version(page.lpn)) };
            let version = self.write_buffer.take_leaving(copy != Some(None));
            if let Some(version) = copy.unwrap_or(Some(version)) {
                self.ftl.write(self.now, &mut self.events, page.lpn, version, Owner::None);
            }
        }
        moved
    }

    /// What flash has of a page; `None` when it has nothing that could be written again.
    fn flash_version(&self, lpn: u32) -> Option<u64> {
        match self.ftl.map().get(lpn) {
            Entry::Unmapped | Entry::Lost => None,
            Entry::At(_) if self.options.stamps => Some(self.ftl.stamp(lpn)?.version),
            Entry::At(_) => Some(0),
        }
    }

    /// Lets the policy choose, and asks flash for what it wants beside.
    fn choose_leaving(&mut self) {
        self.write_buffer.choose(self.ftl.row_room() as usize);
        if self.write_buffer.leaving().iter().any(|page| page.part != Part::Dirty) {
            self.complete_leaving();
        }
        self.write_buffer.count_leaving();
        let mut of_part = [0u64; 3];
        self.write_buffer.leaving().iter().for_each(|page| of_part[page.part as usize] += 1);
        let [dirty, cached, padding] = of_part;
        // Nobody waits for the pages to leave the memory, but they take its bandwidth.
        self.memories[self.write_port].read(self.now, (dirty + padding) << self.unit_shift);
        if cached > 0 {
            self.memories[self.read_port].read(self.now, cached << self.unit_shift);
        }
    }

    /// Finds the clean pages that leave beside dirty ones: those that flash does not have are left out, and padding is
    /// read.
    #[inline(never)]
    fn complete_leaving(&mut self) {
        if self.options.premap {
            self.premap_leaving();
        }
        let map = self.ftl.map();
        self.write_buffer.trim_leaving(|page| page.part == Part::Dirty || matches!(map.get(page.lpn), Entry::At(_)));
        let padding = self.write_buffer.leaving().iter().filter(|page| page.part == Part::Padding);
        let wanted = padding.clone().count() as u64;
        let read = self.ftl.read(self.now, &mut self.events, padding.map(|page| page.lpn), Owner::Padding);
        self.padding_reads += read.expect("lost pages are left out");
        self.write_buffer.statistics.padding_reads += wanted;
        if wanted > 0 {
            self.memories[self.write_port].write(self.now, wanted << self.unit_shift);
        }
    }

    /// To read padding that nobody has written is to say that it was written before the run.
    fn premap_leaving(&mut self) {
        for i in 0..self.write_buffer.leaving().len() {
            let page = self.write_buffer.leaving()[i];
            if page.part == Part::Padding && self.ftl.map().is_virgin(page.lpn) && !self.ftl.premap(page.lpn, PAST) {
                let queued = self.ftl.read_past(self.now, &mut self.events, page.lpn, Owner::Padding);
                self.padding_reads += u32::from(queued);
                self.write_buffer.statistics.padding_reads += u64::from(queued);
            }
        }
        self.ftl.wake_collection(self.now, &mut self.events);
    }

    /// Flash has given padding.
    pub(crate) fn on_padding_read(&mut self, failed: bool) {
        self.padding_reads -= 1;
        self.padding_failed |= failed;
        if self.padding_reads > 0 {
            return;
        }
        if std::mem::take(&mut self.padding_failed) {
            // The block leaves without: what could not be read stays where it is, and a read of it fails as before.
            self.write_buffer.drop_padding();
        }
        self.is_stuck = false;
        self.after_flash();
    }

    /// Destages what nobody waits for: what has begun to leave, and what is more than the profile lets stay.
    #[inline(always)]
    pub(crate) fn background_destage(&mut self) {
        // What most often says no is asked first.
        if self.ftl.may_write() && self.wants_to_destage() && self.ftl.can_write() {
            self.go_on_with_rows();
        }
    }

    #[inline(always)]
    fn wants_to_destage(&self) -> bool {
        self.write_buffer.is_leaving() || self.write_buffer.dirty() > self.destage_above
    }

    #[inline(never)]
    fn go_on_with_rows(&mut self) {
        while self.wants_to_destage() && self.destage() {}
    }

    /// Pages that were read from flash or found in the read cache, and now go to the host, are kept in case they are
    /// read again.
    pub(crate) fn keep_pages(&mut self, first: u32, end: u32) {
        if self.read_cache.is_enabled() {
            let mut filled = 0u64;
            for lpn in first..end {
                if self.write_buffer.contains(lpn) {
                    continue;
                }
                if self.host_uses.cache {
                    self.cache_on_host(lpn);
                } else {
                    self.cache_page(lpn);
                    filled += 1;
                }
            }
            if filled > 0 {
                self.memories[self.read_port].write(self.now, filled << self.unit_shift);
            }
        }
        if self.write_buffer.keeps_clean() {
            let mut filled = 0u64;
            for lpn in first..end {
                let held = self.write_buffer.contains(lpn);
                if !held && (self.write_buffer.keep(lpn) || self.destage() && self.write_buffer.keep(lpn)) {
                    filled += 1;
                }
            }
            if filled > 0 {
                self.memories[self.write_port].write(self.now, filled << self.unit_shift);
            }
        }
    }

    fn cache_page(&mut self, lpn: u32) {
        if self.write_buffer.cooperates() {
            let (cache, buffer) = (&mut self.read_cache, &mut self.write_buffer);
            if cache.fill(lpn, |gone| buffer.uncached(gone)) {
                buffer.cached(lpn);
            }
        } else {
            self.read_cache.fill(lpn, |_| ());
        }
    }

    /// The read cache lets go of a page, because it is written or deallocated.
    #[inline(always)]
    pub(crate) fn uncache(&mut self, lpn: u32) {
        if !self.read_cache.is_empty() && self.read_cache.remove(lpn) {
            if self.host_uses.cache {
                self.host_uses.uncached(lpn);
            } else if self.write_buffer.cooperates() {
                self.write_buffer.uncached(lpn);
            }
        }
    }
}
