//! Where logical pages are.

use super::Store;
use crate::content::Whereabouts;
use crate::ftl::map::Entry;
use tidewater_nand::{Block, Medium, Origin, Place, Stamp};

/// Where a logical page was found.
enum Found {
    Unmapped,
    Lost,
    Flash { at: Block, page: u32, unit: u32, stamp: Stamp },
    Staged(Stamp),
}

impl<M: Medium> Store<M> {
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
        if row < u32::from(self.space.programmed[superblock as usize]) {
            let (plane, unit) = (unit / self.layout.units_per_page, unit % self.layout.units_per_page);
            let at = self.layout.block(superblock, plane);
            let Some(stamp) = self.medium.stamp(at, row, unit) else { return Found::Unmapped };
            assert!(stamp.lpn == lpn, "the map says that {lpn} is where {stamp:?} is");
            return Found::Flash { at, page: row, unit, stamp };
        }
        let staged = self.rows.at(superblock, row).expect("a row that is not programmed is staged");
        let at = staged as usize * self.layout.units_per_row as usize + unit as usize;
        if let Some(&Origin::Copy(Place { at, page, unit })) = self.rows.origins.get(at) {
            // Payload is moved when the copy is programmed; until then the original stays where it is.
            let Some(stamp) = self.medium.stamp(at, page, unit) else { return Found::Unmapped };
            return Found::Flash { at, page, unit, stamp };
        }
        match self.rows.stamps.get(at) {
            Some(&(version, sequence)) => Found::Staged(Stamp { lpn, version, sequence }),
            None => Found::Unmapped,
        }
    }
}
