//! Where logical pages are, and reading them.

use super::{Entry, Ftl};
use crate::content::Whereabouts;
use crate::events::EventQueue;
use crate::flash::{NONE, Source};
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::{Block, Medium, Origin, Place, Stamp};

/// Where a logical page was found.
enum Found {
    Unmapped,
    Lost,
    Flash { at: Block, page: u32, unit: u32, stamp: Stamp },
    Staged(Stamp),
}

impl<M: Medium> Ftl<M> {
    /// Reads logical pages for the host: queues one operation for each row that holds some of them, and returns how
    /// many. Units that are unmapped, or still in the controller's memory, need none.
    ///
    /// # Errors
    /// The number of operations queued, when a page was lost.
    pub fn read(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        lpns: impl Iterator<Item = u32>,
        owner: Owner,
    ) -> Result<u32, u32> {
        let (mut queued, mut lost) = (0, false);
        // The operation that the next unit may join.
        let (mut superblock, mut row, mut units) = (NONE, 0, 0u64);
        for lpn in lpns {
            let ppn = match self.map.get(lpn) {
                Entry::At(ppn) => ppn,
                Entry::Unmapped => continue,
                Entry::Lost => {
                    lost = true;
                    continue;
                }
            };
            let (s, r) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
            if r >= u32::from(self.programmed[s as usize]) {
                continue;
            }
            if (s, r) != (superblock, row) {
                if units != 0 {
                    self.queue_read(now, events, superblock, row, units, owner);
                    queued += 1;
                }
                (superblock, row, units) = (s, r, 0);
            }
            units |= 1 << self.layout.unit_of(ppn);
        }
        if units != 0 {
            self.queue_read(now, events, superblock, row, units, owner);
            queued += 1;
        }
        if lost { Err(queued) } else { Ok(queued) }
    }

    pub(super) fn queue_read(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        superblock: u32,
        row: u32,
        units: u64,
        owner: Owner,
    ) {
        let die = self.layout.die_of(superblock);
        if self.slc.is_some() {
            self.statistics.slc_reads += u64::from(self.is_slc(superblock));
            self.touch_slc(now, events);
        }
        self.flash.enqueue(now, events, Source::HostRead, die, superblock, row, units, owner.pack());
    }

    /// Where a logical page is now; needs a medium that keeps stamps.
    pub fn locate(&self, lpn: u32) -> Whereabouts {
        match self.find(lpn) {
            Found::Unmapped => Whereabouts::Zeroes,
            Found::Lost => Whereabouts::Lost,
            Found::Flash { at, page, unit, stamp } => Whereabouts::Flash { version: stamp.version, at, page, unit },
            Found::Staged(stamp) => Whereabouts::Staged { version: stamp.version },
        }
    }

    /// What a logical page holds now, wherever it is; needs a medium that keeps stamps.
    pub fn stamp(&self, lpn: u32) -> Option<Stamp> {
        match self.find(lpn) {
            Found::Unmapped | Found::Lost => None,
            Found::Flash { stamp, .. } | Found::Staged(stamp) => Some(stamp),
        }
    }

    /// Whether flash has lost what a logical page held.
    pub(crate) fn is_lost(&self, lpn: u32) -> bool {
        self.map.get(lpn) == Entry::Lost
    }

    fn find(&self, lpn: u32) -> Found {
        let ppn = match self.map.get(lpn) {
            Entry::Unmapped => return Found::Unmapped,
            Entry::Lost => return Found::Lost,
            Entry::At(ppn) => ppn,
        };
        let (superblock, row, unit) =
            (self.layout.superblock_of(ppn), self.layout.row_of(ppn), self.layout.unit_of(ppn));
        if row < u32::from(self.programmed[superblock as usize]) {
            let (plane, unit) = (unit / self.layout.units_per_page, unit % self.layout.units_per_page);
            let at = self.layout.block(superblock, plane);
            let Some(stamp) = self.medium.stamp(at, row, unit) else { return Found::Unmapped };
            assert!(stamp.lpn == lpn, "the map says that {lpn} is where {stamp:?} is");
            return Found::Flash { at, page: row, unit, stamp };
        }
        let staged = self.row_at(superblock, row).expect("a row that is not programmed is staged");
        let at = staged as usize * self.layout.units_per_row as usize + unit as usize;
        if let Some(&Origin::Copy(Place { at, page, unit })) = self.row_origins.get(at) {
            // Payload is moved when the copy is programmed; until then the original stays where it is.
            let Some(stamp) = self.medium.stamp(at, page, unit) else { return Found::Unmapped };
            return Found::Flash { at, page, unit, stamp };
        }
        match self.row_stamps.get(at) {
            Some(&(version, sequence)) => Found::Staged(Stamp { lpn, version, sequence }),
            None => Found::Unmapped,
        }
    }

    /// The staged row at a place.
    pub(super) fn row_at(&self, superblock: u32, row: u32) -> Option<u32> {
        self.rows.iter().position(|r| r.in_use && r.superblock == superblock && r.row == row).map(|i| i as u32)
    }
}
