//! The map on flash: pieces of it are written in turn while rows of data are, so that recovery need not scan
//! everything.
//!
//! A *segment* is as much of the map as a row holds. Every `checkpoint_interval` rows of data the next segment is
//! written, round and round. Map superblocks are a ring: when every segment in the oldest has a newer image, it is
//! erased.

use super::journal::{MapSuperblock, Own, OwnRow};
use super::placement::Placement;
use super::store::{Clock, State, Store, Stream};
use crate::flash::{NONE, Source};
use std::sync::Arc;
use tidewater_nand::{Medium, Nand};

impl<M: Medium> Store<M> {
    /// A row of data was queued: perhaps it is time for a piece of the map.
    pub(super) fn checkpoint_step(&mut self, by: &mut impl Placement<M>, clock: &mut Clock) {
        let c = &mut self.checkpoint;
        c.rows += 1;
        // One that is due waits for those before it: then it is written with the next row of data, and the interval is
        // as long as that die needs.
        if c.interval > 0 && c.rows >= c.interval && c.queued < self.programs_per_die {
            c.rows = 0;
            by.save_map(self, clock);
            self.write_segment(by, clock, self.profile.gc_reserve as usize);
        }
    }

    /// Writes the next segment, if a die has more than `leave` free superblocks.
    fn write_segment(&mut self, by: &mut impl Placement<M>, clock: &mut Clock, leave: usize) {
        let complete = self.complete_through(by.first_uncommitted());
        for _ in 0..self.checkpoint.segments {
            let c = &mut self.checkpoint;
            let segment = c.next;
            c.next = (c.next + 1) % c.segments;
            let (first, last) = c.pages_of(segment, self.map.units());
            if self.map.is_untouched(first, last) {
                // Nothing is mapped there: that is as good as an image.
                self.checkpoint.complete.set(segment, complete);
                continue;
            }
            // Once this image is on flash, every row up to the floor is in some image.
            let floor = self.checkpoint.complete.least_of_others(segment).min(complete);
            let floor = floor.min(by.saved_through(self));
            let payload = self.stamps.then(|| self.image(floor, first, last));
            let own = OwnRow { what: Own::Segment(segment), payload, mark: complete, floor };
            if !self.write_own(by, clock, own, leave) {
                self.checkpoint.next = segment;
            }
            return;
        }
    }

    /// Puts an image of every segment on flash at once, as if each had been written in its turn: that of a drive that
    /// has a past. Where there is no room for all of them none is put there: each says through which row all are
    /// complete.
    pub(super) fn place_checkpoint(&mut self, by: &mut impl Placement<M>) {
        let needed = self.checkpoint.segments.div_ceil(self.layout.rows);
        if self.checkpoint.interval == 0 || needed > self.space.free_superblocks {
            return;
        }
        let complete = self.complete_through(by.first_uncommitted());
        let floor = complete.min(by.saved_through(self));
        for segment in 0..self.checkpoint.segments {
            let (first, last) = self.checkpoint.pages_of(segment, self.map.units());
            if !self.map.is_untouched(first, last) {
                let superblock = self.open_for_map(by, 0).expect("there is room for all");
                let payload = self.stamps.then(|| self.image(floor, first, last));
                let full = self.place_own(superblock, Own::Segment(segment), payload);
                self.checkpoint.locations[segment as usize] = superblock;
                self.checkpoint.ring.back_mut().expect("it was opened for this").live += 1;
                if full {
                    self.checkpoint.open = NONE;
                    self.space.close(superblock);
                }
            }
            self.checkpoint.complete.set(segment, complete);
        }
        self.checkpoint.floor = floor;
    }

    /// A segment as it is on flash now: units that are still in the controller's memory are named where they were.
    fn image(&self, floor: u64, first: u32, last: u32) -> Arc<[u32]> {
        let words =
            [floor as u32, (floor >> 32) as u32, self.write_sequence as u32, (self.write_sequence >> 32) as u32];
        words.into_iter().chain((first..=last).map(|lpn| self.durable_entry(lpn))).collect()
    }

    /// The map superblock that takes the next row, opened if need be. `None`: no die has more than `leave` free
    /// superblocks.
    fn open_for_map(&mut self, by: &mut impl Placement<M>, leave: usize) -> Option<u32> {
        if self.checkpoint.open == NONE {
            // What must be written may take what the SLC cache keeps.
            let kept = |d: u32| if leave == 0 { 0 } else { self.space.dies[d as usize].kept as usize };
            let free = |d: &u32| self.space.dies[*d as usize].free.len().saturating_sub(kept(*d));
            let die = (0..self.layout.dies).max_by_key(free).filter(|d| free(d) > leave)?;
            let superblock = self.space.open(die, Stream::Map).expect("it has more than none");
            by.update_ready(self, die);
            self.checkpoint.open = superblock;
            self.checkpoint.ring.push_back(MapSuperblock { superblock, live: 0, log: 0 });
        }
        Some(self.checkpoint.open)
    }

    /// Writes a row of the firmware's own. False: no die has more than `leave` free superblocks.
    fn write_own(&mut self, by: &mut impl Placement<M>, clock: &mut Clock, own: OwnRow, leave: usize) -> bool {
        let Some(superblock) = self.open_for_map(by, leave) else { return false };
        let (row, full) = self.open_row(superblock, Stream::Map, 0);
        if full {
            self.checkpoint.open = NONE;
        }
        self.checkpoint.queued += 1;
        self.rows.staged[row as usize].own = Some(own);
        let first = (row * self.layout.units_per_row) as usize;
        self.rows.lpns[first..first + self.layout.units_per_row as usize].fill(Nand::NO_LPN);
        self.queue_program(clock, Source::Map, row);
        true
    }

    /// Logs the deallocations that are not logged yet, as far as there is room; while as many rows of the firmware's
    /// own are under way as may be, with the end of one of them.
    pub(super) fn log_deallocations(&mut self, by: &mut impl Placement<M>, clock: &mut Clock) {
        self.checkpoint.log_waits = false;
        if self.checkpoint.pending.is_empty() {
            return;
        }
        // Only as many as a row holds: 16 bytes each.
        let most = (self.checkpoint.entries / 4).max(1) as usize;
        while !self.checkpoint.pending.is_empty() {
            if self.checkpoint.queued >= self.programs_per_die {
                self.checkpoint.log_waits = true;
                return;
            }
            let n = self.checkpoint.pending.len().min(most);
            let records = self.checkpoint.pending[..n].iter();
            let payload = records.flat_map(|&(first, count, s)| [first, count, s as u32, (s >> 32) as u32]).collect();
            let mark = self.checkpoint.pending[..n].iter().map(|p| p.2).min().unwrap_or(0);
            if !self.write_own(
                by,
                clock,
                OwnRow { what: Own::Deallocations, payload: Some(payload), mark, floor: 0 },
                0,
            ) {
                // No superblock is left, and nothing is under way that could give one back.
                self.space.read_only |= self.flash.outstanding() == 0;
                return;
            }
            self.checkpoint.logging.push(mark);
            self.checkpoint.pending.drain(..n);
            // A log without data beside it must not grow for ever: newer images let go of it.
            if self.checkpoint.ring.len() > self.checkpoint.ring_planned {
                by.save_map(self, clock);
                self.write_segment(by, clock, 0);
            }
        }
    }

    /// A row of the firmware's own is on flash, or failed.
    #[inline(never)]
    pub(super) fn on_own_row_programmed(
        &mut self,
        by: &mut impl Placement<M>,
        clock: &mut Clock,
        superblock: u32,
        program_sequence: u64,
        own: Option<OwnRow>,
        failed: bool,
    ) {
        let own = own.expect("a row in a map superblock has its own content");
        let c = &mut self.checkpoint;
        c.queued -= 1;
        if own.what == Own::Deallocations {
            let logged =
                c.logging.iter().position(|&mark| mark == own.mark).expect("it was counted when it was queued");
            c.logging.swap_remove(logged);
        }
        if failed {
            match own.what {
                // A later round brings it; until then the older image stands.
                Own::Segment(_) => {}
                Own::Deallocations => {
                    let mut pending: Vec<_> = own.deallocations().collect();
                    pending.append(&mut c.pending);
                    c.pending = pending;
                    self.log_deallocations(by, clock);
                }
            }
        } else {
            match own.what {
                Own::Segment(segment) => {
                    let old = std::mem::replace(&mut c.locations[segment as usize], superblock);
                    c.complete.set(segment, own.mark);
                    c.floor = c.floor.max(own.floor);
                    for s in &mut c.ring {
                        s.live -= u32::from(s.superblock == old);
                        s.live += u32::from(s.superblock == superblock);
                    }
                }
                Own::Deallocations => {
                    let here = c.ring.iter_mut().filter(|s| s.superblock == superblock);
                    here.for_each(|s| s.log = s.log.max(program_sequence));
                }
            }
        }
        if self.checkpoint.log_waits {
            self.log_deallocations(by, clock);
        }
        self.recycle_map(clock);
    }

    /// Erases the oldest map superblocks that are obsolete.
    pub(super) fn recycle_map(&mut self, clock: &mut Clock) {
        while let Some(oldest) = self.checkpoint.ring.front() {
            let s = &self.space.superblocks[oldest.superblock as usize];
            let over = s.state == State::Closed;
            // Once the floor has passed the log, all images are newer than it, and no older row is scanned any more.
            let needed = oldest.live > 0 || oldest.log > self.checkpoint.floor;
            if !over || needed || self.checkpoint.ring.len() == 1 {
                return;
            }
            let superblock = oldest.superblock;
            self.checkpoint.ring.pop_front();
            self.queue_erase(clock, superblock);
        }
    }
}
