//! The map on flash: pieces of it are written in turn while rows of data are, so that recovery need not scan
//! everything.
//!
//! A *segment* is as much of the map as a row holds. Every `checkpoint_interval` rows of data the next segment is
//! written, round and round. Map superblocks are a ring: when every segment in the oldest has a newer image, it is
//! erased.

use super::sizing::map_superblocks_of;
use super::write::{LOST, NOWHERE};
use super::{Entry, Ftl, State, Stream};
use crate::events::EventQueue;
use crate::flash::NONE;
use crate::profile::Profile;
use std::collections::VecDeque;
use std::sync::Arc;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand, PageKind};

/// Map entries in a row: 4 bytes each.
pub fn entries_per_segment(profile: &Profile) -> u32 {
    profile.nand.page_size * profile.nand.planes / 4
}

/// Words before the entries in a map row: the floor and the write sequence, 64 bits each.
pub(super) const HEADER_WORDS: usize = 4;

/// What a row of the firmware's own holds.
#[derive(Clone, Debug)]
pub(super) struct OwnRow {
    pub(super) what: Own,
    pub(super) payload: Option<Arc<[u32]>>,
    /// Segment: the program sequence through which it is complete. Deallocations: the lowest write sequence.
    mark: u64,
    /// The program sequence from which recovery need not scan once this is on flash.
    floor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Segment(u32),
    Deallocations,
}

impl Own {
    /// What its page headers say.
    pub(super) fn page_kind(self) -> (PageKind, u32) {
        match self {
            Own::Segment(index) => (PageKind::Map, index),
            Own::Deallocations => (PageKind::Trim, 0),
        }
    }
}

impl OwnRow {
    /// The deallocations that it logs, if it does: first page, pages, write sequence.
    pub(super) fn deallocations(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let payload = self.payload.iter().filter(|_| self.what == Own::Deallocations);
        payload.flat_map(|p| p.chunks_exact(4).map(|r| (r[0], r[1], u64::from(r[2]) | u64::from(r[3]) << 32)))
    }
}

#[derive(Clone, Debug)]
pub(super) struct MapSuperblock {
    pub(super) superblock: u32,
    /// Segments whose newest image is here.
    pub(super) live: u32,
    /// Program sequence of the last deallocations that are logged here.
    pub(super) log: u64,
}

/// The state of checkpointing.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    interval: u32,
    rows: u32,
    /// The first logical page of segment 0: of all, or of the directory of mapping pages.
    pub(super) first: u32,
    pub(super) entries: u32,
    pub(super) segments: u32,
    next: u32,
    open: u32,
    pub(super) ring: VecDeque<MapSuperblock>,
    /// Superblock of each segment's newest image.
    pub(super) locations: Vec<u32>,
    /// Program sequence through which each segment's newest image is complete.
    complete: Complete,
    /// First page, pages, write sequence.
    pub(super) pending: Vec<(u32, u32, u64)>,
    /// The lowest write sequence in each row of the log that is under way.
    logging: Vec<u64>,
    /// Rows of the firmware's own that are queued or in flight. They are all on the die of the open map superblock, so
    /// no more than [`Ftl::programs_per_die`] of them may be, as of the host's rows: what comes to that die later waits
    /// for all of them.
    queued: u32,
    /// Deallocations wait for one of these rows to be programmed, and are to be logged then.
    log_waits: bool,
    /// What recovery would take for the floor now.
    pub(super) floor: u64,
    /// Superblocks that the ring needs when each segment is written in its turn.
    ring_planned: usize,
}

/// Through which program sequence the newest image of each segment is complete. A large drive has a hundred thousand
/// segments, and each image asks for the least of the others: so the least of every group of segments is kept, and of
/// every group of groups.
#[derive(Clone, Debug)]
struct Complete {
    /// By segment, then by group, up to a level of one group.
    levels: Vec<Vec<u64>>,
}

impl Complete {
    /// Members of a group.
    const GROUP: usize = 16;

    fn new(segments: u32) -> Complete {
        let mut levels = vec![vec![0; segments as usize]];
        let mut len = segments as usize;
        while len > Self::GROUP {
            len = len.div_ceil(Self::GROUP);
            levels.push(vec![0; len]);
        }
        Complete { levels }
    }

    fn set(&mut self, segment: u32, sequence: u64) {
        let (mut at, mut least) = (segment as usize, sequence);
        for level in &mut self.levels {
            if std::mem::replace(&mut level[at], least) == least {
                return; // Nothing above has changed, either.
            }
            let first = at - at % Self::GROUP;
            let end = level.len().min(first + Self::GROUP);
            least = level[first..end].iter().copied().min().unwrap_or(u64::MAX);
            at /= Self::GROUP;
        }
    }

    fn fill(&mut self, sequence: u64) {
        self.levels.iter_mut().for_each(|level| level.fill(sequence));
    }

    /// `u64::MAX`: there are no others.
    fn least_of_others(&self, segment: u32) -> u64 {
        let (mut at, mut least) = (segment as usize, u64::MAX);
        for level in &self.levels {
            let first = at - at % Self::GROUP;
            let end = level.len().min(first + Self::GROUP);
            let (before, after) = (&level[first..at], &level[at + 1..end]);
            least = before.iter().chain(after).fold(least, |least, &sequence| least.min(sequence));
            at /= Self::GROUP;
        }
        least
    }
}

impl Checkpoint {
    /// All images that were found count through the floor.
    pub(super) fn begin_at(&mut self, floor: u64) {
        self.complete.fill(floor);
    }

    /// Of the logical pages from `first` to before `units`.
    pub(super) fn new(profile: &Profile, first: u32, units: u32) -> Checkpoint {
        let entries = entries_per_segment(profile);
        let segments = (units - first).div_ceil(entries);
        Checkpoint {
            interval: profile.ftl.checkpoint_interval,
            rows: 0,
            first,
            entries,
            segments,
            next: 0,
            open: NONE,
            ring: VecDeque::new(),
            locations: vec![NONE; segments as usize],
            complete: Complete::new(segments),
            pending: Vec::new(),
            logging: Vec::new(),
            queued: 0,
            log_waits: false,
            floor: 0,
            ring_planned: segments.div_ceil(profile.nand.pages_per_block) as usize + 2,
        }
    }

    /// Remembers a deallocation until it is logged. Without checkpoints there is no log: then a deallocation is lost at
    /// a power loss, and old data may come back.
    pub(super) fn log_deallocation(&mut self, first: u32, count: u32, sequence: u64) {
        if self.interval > 0 {
            self.pending.push((first, count, sequence));
        }
    }

    /// Whether all deallocations through this write sequence are on flash.
    pub(super) fn is_logged(&self, sequence: u64) -> bool {
        let pending = self.pending.iter().map(|p| p.2);
        sequence == 0 || pending.chain(self.logging.iter().copied()).all(|s| s > sequence)
    }

    /// The first and the last page of a segment, of `units` that have entries.
    fn pages_of(&self, segment: u32, units: u32) -> (u32, u32) {
        let first = self.first + segment * self.entries;
        (first, (first + (self.entries - 1)).min(units - 1))
    }

    pub(super) fn forget_open(&mut self, superblock: u32) {
        if self.open == superblock {
            self.open = NONE;
        }
    }
}

impl<M: Medium> Ftl<M> {
    /// Superblocks that the map takes, at most.
    pub(super) fn map_superblocks(&self) -> u32 {
        let c = &self.checkpoint;
        if c.interval == 0 { 0 } else { map_superblocks_of(u64::from(c.segments), self.layout.rows) as u32 }
    }

    /// A row of data was queued: perhaps it is time for a piece of the map.
    pub(super) fn checkpoint_step(&mut self, now: Instant, events: &mut EventQueue) {
        let c = &mut self.checkpoint;
        c.rows += 1;
        // One that is due waits for those before it: then it is written with the next row of data, and the interval is
        // as long as that die needs.
        if c.interval > 0 && c.rows >= c.interval && c.queued < self.programs_per_die {
            c.rows = 0;
            if self.map_cache.is_some() {
                self.write_changed(now, events, true);
            }
            self.write_segment(now, events, self.profile.gc_reserve as usize);
        }
    }

    /// Writes the next segment, if a die has more than `leave` free superblocks.
    fn write_segment(&mut self, now: Instant, events: &mut EventQueue, leave: usize) {
        let complete = self.complete_through();
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
            let floor = floor.min(self.saved_through());
            let payload = self.stamps.then(|| self.image(floor, first, last));
            let own = OwnRow { what: Own::Segment(segment), payload, mark: complete, floor };
            if !self.write_own(now, events, own, leave) {
                self.checkpoint.next = segment;
            }
            return;
        }
    }

    /// Puts an image of every segment on flash at once, as if each had been written in its turn: that of a drive that
    /// has a past. Where there is no room for all of them none is put there: each says through which row all are
    /// complete.
    pub(super) fn place_checkpoint(&mut self) {
        let needed = self.checkpoint.segments.div_ceil(self.layout.rows);
        if self.checkpoint.interval == 0 || needed > self.free_superblocks {
            return;
        }
        let complete = self.complete_through();
        let floor = complete.min(self.saved_through());
        for segment in 0..self.checkpoint.segments {
            let (first, last) = self.checkpoint.pages_of(segment, self.map.units());
            if !self.map.is_untouched(first, last) {
                let superblock = self.open_for_map(0).expect("there is room for all");
                let row = u32::from(self.superblocks[superblock as usize].rows);
                let payload = self.stamps.then(|| self.image(floor, first, last));
                self.superblocks[superblock as usize].rows += 1;
                self.place_own(superblock, row, Own::Segment(segment).page_kind(), payload);
                self.checkpoint.locations[segment as usize] = superblock;
                self.checkpoint.ring.back_mut().expect("it was opened for this").live += 1;
                if self.is_full(superblock) {
                    self.checkpoint.open = NONE;
                    self.close(superblock);
                }
            }
            self.checkpoint.complete.set(segment, complete);
        }
        self.checkpoint.floor = floor;
    }

    /// The program sequence through which every row is programmed.
    pub(super) fn complete_through(&self) -> u64 {
        let open = self.rows.iter().filter(|r| r.in_use && r.stream != Stream::Map).map(|r| r.program_sequence);
        // The map knows nothing yet of rows whose merge is not committed.
        let uncommitted = self.hybrid.as_ref().and_then(|hybrid| hybrid.first_uncommitted());
        open.chain(uncommitted).min().map_or(self.row_sequence, |first| first - 1)
    }

    /// A segment as it is on flash now: units that are still in the controller's memory are named where they were.
    fn image(&self, floor: u64, first: u32, last: u32) -> Arc<[u32]> {
        let words =
            [floor as u32, (floor >> 32) as u32, self.write_sequence as u32, (self.write_sequence >> 32) as u32];
        words.into_iter().chain((first..=last).map(|lpn| self.durable_entry(lpn))).collect()
    }

    /// What an entry says of what is on flash: 0 for nothing, all ones for what was lost, else the unit's number plus
    /// one.
    pub(super) fn durable_entry(&self, lpn: u32) -> u32 {
        match self.map.get(lpn) {
            Entry::Unmapped => 0,
            Entry::Lost => u32::MAX,
            Entry::At(ppn) => match self.durable_place(ppn) {
                NOWHERE => 0,
                LOST => u32::MAX,
                ppn => {
                    debug_assert!(
                        !self.stamps || self.stamp_at(ppn).is_some_and(|stamp| stamp.lpn == lpn),
                        "{lpn} is not on flash at {ppn}, which a map there would say"
                    );
                    ppn + 1
                }
            },
        }
    }

    /// Where a unit is on flash, or was before the rows that are under way; or [`NOWHERE`], or [`LOST`].
    pub(super) fn durable_place(&self, mut ppn: u32) -> u32 {
        loop {
            let (superblock, row) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
            let is_programmed = row < u32::from(self.programmed[superblock as usize]);
            // The units of a row that failed are in memory while they are written again.
            if is_programmed && !self.superblocks[superblock as usize].failed {
                return ppn;
            }
            let Some(staged) = self.row_at(superblock, row) else { return if is_programmed { ppn } else { NOWHERE } };
            ppn = self.row_previous[(staged * self.layout.units_per_row + self.layout.unit_of(ppn)) as usize];
            if ppn == NOWHERE || ppn == LOST {
                return ppn;
            }
        }
    }

    /// The map superblock that takes the next row, opened if need be. `None`: no die has more than `leave` free
    /// superblocks.
    fn open_for_map(&mut self, leave: usize) -> Option<u32> {
        if self.checkpoint.open == NONE {
            // What must be written may take what the SLC cache keeps.
            let kept = |d: u32| if leave == 0 { 0 } else { self.dies[d as usize].kept as usize };
            let free = |d: &u32| self.dies[*d as usize].free.len().saturating_sub(kept(*d));
            let die = (0..self.layout.dies).max_by_key(free).filter(|d| free(d) > leave)?;
            let superblock = self.open_superblock(die, Stream::Map).expect("it has more than none");
            self.update_ready(die);
            self.checkpoint.open = superblock;
            self.checkpoint.ring.push_back(MapSuperblock { superblock, live: 0, log: 0 });
        }
        Some(self.checkpoint.open)
    }

    /// Writes a row of the firmware's own. False: no die has more than `leave` free superblocks.
    fn write_own(&mut self, now: Instant, events: &mut EventQueue, own: OwnRow, leave: usize) -> bool {
        let Some(superblock) = self.open_for_map(leave) else { return false };
        let (row, full) = self.open_row(superblock, Stream::Map, 0);
        if full {
            self.checkpoint.open = NONE;
        }
        self.checkpoint.queued += 1;
        self.rows[row as usize].own = Some(own);
        let first = (row * self.layout.units_per_row) as usize;
        self.row_lpns[first..first + self.layout.units_per_row as usize].fill(Nand::NO_LPN);
        self.submit(now, events, row);
        true
    }

    /// Logs the deallocations that are not logged yet, as far as there is room; while as many rows of the firmware's
    /// own are under way as may be, with the end of one of them.
    pub fn log_deallocations(&mut self, now: Instant, events: &mut EventQueue) {
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
                now,
                events,
                OwnRow { what: Own::Deallocations, payload: Some(payload), mark, floor: 0 },
                0,
            ) {
                // No superblock is left, and nothing is under way that could give one back.
                self.read_only |= self.flash.outstanding() == 0;
                return;
            }
            self.checkpoint.logging.push(mark);
            self.checkpoint.pending.drain(..n);
            // A log without data beside it must not grow for ever: newer images let go of it.
            if self.checkpoint.ring.len() > self.checkpoint.ring_planned {
                self.write_changed(now, events, true);
                self.write_segment(now, events, 0);
            }
        }
    }

    /// A row of the firmware's own is on flash, or failed.
    #[inline(never)]
    pub(super) fn on_own_row_programmed(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
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
                    self.log_deallocations(now, events);
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
            self.log_deallocations(now, events);
        }
        self.recycle_map(now, events);
    }

    /// Erases the oldest map superblocks that are obsolete.
    pub(super) fn recycle_map(&mut self, now: Instant, events: &mut EventQueue) {
        while let Some(oldest) = self.checkpoint.ring.front() {
            let s = &self.superblocks[oldest.superblock as usize];
            let over = s.state == State::Closed;
            // Once the floor has passed the log, all images are newer than it, and no older row is scanned any more.
            let needed = oldest.live > 0 || oldest.log > self.checkpoint.floor;
            if !over || needed || self.checkpoint.ring.len() == 1 {
                return;
            }
            let superblock = oldest.superblock;
            self.checkpoint.ring.pop_front();
            self.queue_erase(now, events, superblock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Complete;
    use tidewater_base::Rng;

    #[test]
    fn the_least_of_the_others_is_that_of_all_segments_but_one() {
        let mut rng = Rng::new(4, b"complete");
        for segments in [1, 2, 15, 16, 17, 255, 256, 257, 700, 4_097] {
            let mut complete = Complete::new(segments);
            complete.fill(5);
            let mut model = vec![5; segments as usize];
            for _ in 0..2_000 {
                let (segment, sequence) = (rng.below(segments.into()) as u32, rng.below(1_000));
                complete.set(segment, sequence);
                model[segment as usize] = sequence;
                let asked = rng.below(segments.into()) as u32;
                let others = (0..segments).filter(|&i| i != asked).map(|i| model[i as usize]);
                assert_eq!(complete.least_of_others(asked), others.min().unwrap_or(u64::MAX));
            }
        }
    }
}
