//! The state of the map's checkpoints and of the log of deallocations: which rows of the firmware's own hold them, and
//! how far they are complete.

use crate::flash::NONE;
use crate::profile::Profile;
use std::collections::VecDeque;
use std::sync::Arc;
use tidewater_nand::PageKind;

/// Map entries in a row: 4 bytes each.
pub fn entries_per_segment(profile: &Profile) -> u32 {
    profile.nand.page_size * profile.nand.planes / 4
}

/// Superblocks of so many rows that checkpoints of so many segments take: the newest image of each, one that is written
/// and two whose images are being overtaken.
pub fn map_superblocks_of(segments: u64, rows: u32) -> u64 {
    segments.div_ceil(u64::from(rows)) + 3
}

/// Words before the entries in a map row: the floor and the write sequence, 64 bits each.
pub(super) const HEADER_WORDS: usize = 4;

/// Content of a row of the firmware's own.
#[derive(Clone, Debug)]
pub(super) struct OwnRow {
    pub(super) what: Own,
    pub(super) payload: Option<Arc<[u32]>>,
    /// Segment: the program sequence through which it is complete. Deallocations: the lowest write sequence.
    pub(super) mark: u64,
    /// The program sequence from which recovery need not scan once this is on flash.
    pub(super) floor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Segment(u32),
    Deallocations,
}

impl Own {
    /// Content of its page headers.
    pub fn page_kind(self) -> (PageKind, u32) {
        match self {
            Own::Segment(index) => (PageKind::Map, index),
            Own::Deallocations => (PageKind::Trim, 0),
        }
    }
}

impl OwnRow {
    /// The deallocations that it logs, if it does: first page, pages, write sequence.
    pub fn deallocations(&self) -> impl Iterator<Item = (u32, u32, u64)> {
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
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoint {
    pub(super) interval: u32,
    pub(super) rows: u32,
    /// The first logical page of segment 0: of all, or of the directory of mapping pages.
    pub(super) first: u32,
    pub(super) entries: u32,
    pub(super) segments: u32,
    pub(super) next: u32,
    pub(super) open: u32,
    pub(super) ring: VecDeque<MapSuperblock>,
    /// Superblock of each segment's newest image.
    pub(super) locations: Vec<u32>,
    /// Program sequence through which each segment's newest image is complete.
    pub(super) complete: Complete,
    /// First page, pages, write sequence.
    pub(super) pending: Vec<(u32, u32, u64)>,
    /// The lowest write sequence in each row of the log that is under way.
    pub(super) logging: Vec<u64>,
    /// Rows of the firmware's own that are queued or in flight. They are all on the die of the open map superblock, so
    /// no more than `Store::programs_per_die` of them may be, as of the host's rows: what comes to that die later waits
    /// for all of them.
    pub(super) queued: u32,
    /// Deallocations wait for one of these rows to be programmed, and are to be logged then.
    pub(super) log_waits: bool,
    /// The floor that recovery would take now.
    pub(super) floor: u64,
    /// Superblocks that the ring needs when each segment is written in its turn.
    pub(super) ring_planned: usize,
}

/// Through which program sequence the newest image of each segment is complete. A large drive has a hundred thousand
/// segments, and each image asks for the least of the others: so the least of every group of segments is kept, and of
/// every group of groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Complete {
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

    pub fn set(&mut self, segment: u32, sequence: u64) {
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
    pub fn least_of_others(&self, segment: u32) -> u64 {
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
    pub fn begin_at(&mut self, floor: u64) {
        self.complete.fill(floor);
    }

    /// Of the logical pages from `first` to before `units`.
    pub fn new(profile: &Profile, first: u32, units: u32) -> Checkpoint {
        let entries = entries_per_segment(profile);
        let segments = (units - first).div_ceil(entries);
        Checkpoint {
            interval: profile.ftl.checkpoint_interval,
            first,
            entries,
            segments,
            open: NONE,
            locations: vec![NONE; segments as usize],
            complete: Complete::new(segments),
            ring_planned: segments.div_ceil(profile.nand.pages_per_block) as usize + 2,
            ..Checkpoint::default()
        }
    }

    /// Remembers a deallocation until it is logged. Without checkpoints there is no log: then a deallocation is lost at
    /// a power loss, and old data may come back.
    pub fn log_deallocation(&mut self, first: u32, count: u32, sequence: u64) {
        if self.interval > 0 {
            self.pending.push((first, count, sequence));
        }
    }

    /// Whether all deallocations through this write sequence are on flash.
    pub fn is_logged(&self, sequence: u64) -> bool {
        let pending = self.pending.iter().map(|p| p.2);
        sequence == 0 || pending.chain(self.logging.iter().copied()).all(|s| s > sequence)
    }

    /// The first and the last page of a segment, of `units` that have entries.
    pub fn pages_of(&self, segment: u32, units: u32) -> (u32, u32) {
        let first = self.first + segment * self.entries;
        (first, (first + (self.entries - 1)).min(units - 1))
    }

    pub fn forget_open(&mut self, superblock: u32) {
        if self.open == superblock {
            self.open = NONE;
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
