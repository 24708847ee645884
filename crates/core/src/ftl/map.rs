//! The map from logical pages to physical units: 4 bytes an entry, in chunks that exist once something in them is mapped.

use tidewater_base::table::Table;

/// Entries in a chunk: 8 MiB of table, so that a drive of terabytes has few chunks, and zeroed pages that the operating
/// system provides only when they are touched.
const CHUNK: usize = 2 << 20;

/// Up to so many logical pages (128 GiB in 4 KiB pages) the map is in huge pages: it is small enough then that a workload
/// which touches a little everywhere wastes nothing to speak of.
const HUGE_UNTIL: u32 = 32 << 20;

/// What a logical page maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Never written, or deallocated: reads as zeroes.
    Unmapped,
    /// Here.
    At(u32),
    /// It was here once, and could not be read when it was collected: reads fail.
    Lost,
}

const LOST: u32 = u32::MAX;
/// Unmapped, but once written: nobody may take it for a page that was there before the run.
const DEALLOCATED: u32 = u32::MAX - 1;

/// The map.
#[derive(Clone, Debug)]
pub struct Map {
    /// 0: never mapped; [`DEALLOCATED`]; [`LOST`]; else the physical unit number plus one.
    chunks: Vec<Table>,
    huge: bool,
    units: u32,
    mapped: u64,
}

impl Map {
    /// A map of `units` logical pages, all unmapped.
    pub fn new(units: u32) -> Map {
        let chunks = (units as usize).div_ceil(CHUNK);
        Map { chunks: vec![Table::default(); chunks], huge: units <= HUGE_UNTIL, units, mapped: 0 }
    }

    /// Logical pages.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Logical pages that are mapped.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Where a logical page is.
    #[inline]
    pub fn get(&self, lpn: u32) -> Entry {
        let chunk = self.chunks[lpn as usize / CHUNK].as_slice();
        match chunk.get(lpn as usize % CHUNK) {
            None | Some(&(0 | DEALLOCATED)) => Entry::Unmapped,
            Some(&LOST) => Entry::Lost,
            Some(&n) => Entry::At(n - 1),
        }
    }

    /// Whether a logical page was never mapped: an unmapped one may have been deallocated.
    #[inline]
    pub fn is_virgin(&self, lpn: u32) -> bool {
        matches!(self.chunks[lpn as usize / CHUNK].as_slice().get(lpn as usize % CHUNK), None | Some(0))
    }

    /// Asks the processor to fetch an entry that will be needed soon.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        if let Some(chunk) = self.chunks.get(lpn as usize / CHUNK)
            && let chunk = chunk.as_slice()
            && !chunk.is_empty()
        {
            prefetch_index::prefetch_index(chunk, lpn as usize % CHUNK);
        }
    }

    /// Changes an entry and returns the old one.
    #[inline]
    pub fn set(&mut self, lpn: u32, to: Entry) -> Entry {
        let chunk = &mut self.chunks[lpn as usize / CHUNK];
        if chunk.as_slice().is_empty() {
            if to == Entry::Unmapped {
                return Entry::Unmapped;
            }
            let first = lpn as usize / CHUNK * CHUNK;
            *chunk = Table::zeroed(CHUNK.min(self.units as usize - first), self.huge);
        }
        let entry = &mut chunk.as_mut_slice()[lpn as usize % CHUNK];
        let new = match to {
            Entry::Unmapped => DEALLOCATED,
            Entry::At(ppn) => ppn + 1,
            Entry::Lost => LOST,
        };
        let old = std::mem::replace(entry, new);
        let holds = |entry| u64::from(entry != 0 && entry != DEALLOCATED);
        self.mapped = self.mapped + holds(new) - holds(old);
        match old {
            0 | DEALLOCATED => Entry::Unmapped,
            LOST => Entry::Lost,
            n => Entry::At(n - 1),
        }
    }

    /// Whether nothing from `first` to `last` was ever mapped, as far as whole chunks tell.
    pub fn is_untouched(&self, first: u32, last: u32) -> bool {
        (first as usize / CHUNK..=last as usize / CHUNK).all(|c| self.chunks[c].as_slice().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_independent_and_counted() {
        let mut map = Map::new(3 << 20);
        assert_eq!(map.set(5, Entry::At(0)), Entry::Unmapped);
        assert_eq!(map.set((2 << 20) + 5, Entry::At(9)), Entry::Unmapped);
        assert_eq!((map.get(5), map.get(6), map.mapped()), (Entry::At(0), Entry::Unmapped, 2));
        assert_eq!(map.set(5, Entry::Lost), Entry::At(0));
        assert_eq!(map.set(5, Entry::Unmapped), Entry::Lost);
        assert_eq!(map.mapped(), 1);
        assert!(!map.is_untouched(0, 1));
    }
}
