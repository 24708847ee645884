//! The map from logical pages to physical units: 4 bytes an entry, in chunks that exist once something in them is
//! mapped.

use tidewater_base::table::{Bytes, Table};

/// Entries in a chunk: 8 MiB of table, so that a drive of terabytes has few chunks, and zeroed pages that the operating
/// system provides only when they are touched.
const CHUNK: usize = 2 << 20;

/// Up to so many logical pages (128 GiB in 4 KiB pages) the map is in huge pages: it is small enough then that a
/// workload which touches a little everywhere wastes nothing to speak of. A larger one is when all of it is expected to
/// be used.
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

/// Asks the processor to fetch a byte of a table that will be needed soon.
#[inline]
fn prefetch(bytes: &[u8], at: usize) {
    if !bytes.is_empty() {
        prefetch_index::prefetch_index(bytes, at);
    }
}

const LOST: u32 = u32::MAX;
/// Unmapped, but once written: it must not count as a page from before the run.
const DEALLOCATED: u32 = u32::MAX - 1;

/// One bit for each physical unit: whether a map entry points there.
#[derive(Clone, Debug)]
pub(super) struct ValidBits(Bytes);

/// Bytes of the bits of 64 units.
const WORD: usize = size_of::<u64>();

impl ValidBits {
    /// Bits for so many physical units, all clear, under a map of `units` logical pages.
    pub(super) fn new(address_space: u64, units: u32) -> ValidBits {
        ValidBits(Bytes::zeroed(WORD * address_space.div_ceil(64) as usize, units <= HUGE_UNTIL))
    }

    /// Nearly all units will be used, so that huge pages are worth it whatever their number. Call it while no bit is
    /// set.
    pub(super) fn expect_all(&mut self) {
        self.0 = Bytes::zeroed(self.0.len(), true);
    }

    /// The bits of 64 units, this one among them; none beyond the end.
    #[inline]
    fn word(&self, ppn: u32) -> u64 {
        let bytes = self.0.get(WORD * (ppn as usize / 64)..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    #[inline]
    fn change(&mut self, ppn: u32, change: impl FnOnce(u64) -> u64) {
        let bytes = self.0[WORD * (ppn as usize / 64)..].first_chunk_mut().expect("words are whole");
        *bytes = change(u64::from_ne_bytes(*bytes)).to_ne_bytes();
    }

    #[inline]
    pub(super) fn get(&self, ppn: u32) -> bool {
        self.word(ppn) >> (ppn % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn set(&mut self, ppn: u32) {
        self.set_row(ppn, 1);
    }

    #[inline]
    pub(super) fn clear(&mut self, ppn: u32) {
        self.clear_row(ppn, 1);
    }

    /// Sets the bits of up to 64 units from `first`, which do not cross a multiple of 64.
    #[inline]
    pub(super) fn set_row(&mut self, first: u32, units: u64) {
        self.change(first, |word| word | units << (first % 64));
    }

    /// As [`ValidBits::set_row`], clears them.
    #[inline]
    pub(super) fn clear_row(&mut self, first: u32, units: u64) {
        self.change(first, |word| word & !(units << (first % 64)));
    }

    /// The bits of up to 64 units from `first`, which do not cross a multiple of 64.
    #[inline]
    pub(super) fn row(&self, first: u32, units: u32) -> u64 {
        self.word(first) >> (first % 64) & u64::MAX >> (64 - units)
    }

    /// Asks the processor to fetch a bit that will be needed soon.
    #[inline]
    pub(super) fn prefetch(&self, ppn: u32) {
        prefetch(&self.0, ppn as usize / 8);
    }
}

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

    /// Nearly all logical pages will be mapped, so that huge pages are worth it whatever their number. Call it while
    /// none is.
    pub(super) fn expect_all(&mut self) {
        self.huge = true;
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
        match self.chunks[lpn as usize / CHUNK].get(lpn as usize % CHUNK) {
            None | Some(0 | DEALLOCATED) => Entry::Unmapped,
            Some(LOST) => Entry::Lost,
            Some(n) => Entry::At(n - 1),
        }
    }

    /// Whether a logical page was never mapped: an unmapped one may have been deallocated.
    #[inline]
    pub fn is_virgin(&self, lpn: u32) -> bool {
        matches!(self.chunks[lpn as usize / CHUNK].get(lpn as usize % CHUNK), None | Some(0))
    }

    /// Asks the processor to fetch an entry that will be needed soon.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        if let Some(chunk) = self.chunks.get(lpn as usize / CHUNK) {
            prefetch(chunk.as_bytes(), lpn as usize % CHUNK * size_of::<u32>());
        }
    }

    // Always inlined: what the new entry is, is known at nearly every call.
    /// Changes an entry and returns the old one.
    #[inline(always)]
    pub fn set(&mut self, lpn: u32, to: Entry) -> Entry {
        let chunk = &mut self.chunks[lpn as usize / CHUNK];
        if chunk.is_empty() {
            if to == Entry::Unmapped {
                return Entry::Unmapped;
            }
            let first = lpn as usize / CHUNK * CHUNK;
            *chunk = Table::zeroed(CHUNK.min(self.units as usize - first), self.huge);
        }
        let new = match to {
            Entry::Unmapped => DEALLOCATED,
            Entry::At(ppn) => ppn + 1,
            Entry::Lost => LOST,
        };
        let mut old = 0;
        chunk.update(lpn as usize % CHUNK, |entry| {
            old = entry;
            new
        });
        let holds = |entry| u64::from(entry != 0 && entry != DEALLOCATED);
        self.mapped = self.mapped + holds(new) - holds(old);
        match old {
            0 | DEALLOCATED => Entry::Unmapped,
            LOST => Entry::Lost,
            n => Entry::At(n - 1),
        }
    }

    /// Changes the entry of a page that is somewhere on flash, to another place there. Cheaper than [`Map::set`]:
    /// nothing is read.
    #[inline(always)]
    pub(super) fn redirect(&mut self, lpn: u32, to: u32) {
        debug_assert!(matches!(self.get(lpn), Entry::At(_)));
        self.chunks[lpn as usize / CHUNK].update(lpn as usize % CHUNK, |_| to + 1);
    }

    /// Whether nothing from `first` to `last` was ever mapped, as far as whole chunks tell.
    pub fn is_untouched(&self, first: u32, last: u32) -> bool {
        (first as usize / CHUNK..=last as usize / CHUNK).all(|c| self.chunks[c].is_empty())
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

    #[test]
    fn bits_of_a_row_are_those_of_its_units() {
        let mut bits = ValidBits::new(256, 256);
        for ppn in [63, 64, 95, 96, 97, 127, 128] {
            bits.set(ppn);
        }
        bits.clear(97);
        bits.set_row(0, 1 << 31 | 1 << 32 | 1 << 63);
        bits.clear_row(32, 1 << 31 | 1);
        assert_eq!(bits.row(0, 64), 1 << 31);
        bits.set(63);
        assert_eq!(bits.row(64, 64), 1 | 1 << 31 | 1 << 32 | 1 << 63);
        assert_eq!((bits.row(96, 32), bits.row(56, 8), bits.row(128, 8)), (1 | 1 << 31, 1 << 7, 1));
        assert!(bits.get(96) && !bits.get(97) && !bits.get(256));
    }
}
