//! Counts the distinct pages that requests touch, exactly and in little memory.

use std::collections::HashMap;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Pages in a chunk of the bitmap: 16 MiB of addresses in 512 bytes.
const CHUNK_PAGES: u64 = 4096;
const WORDS: usize = (CHUNK_PAGES / 64) as usize;

/// A sparse bitmap of pages: one bit for each page of every 16 MiB that is touched at all.
#[derive(Default)]
pub(super) struct Footprint {
    chunks: HashMap<(u32, u64), Box<[u64; WORDS]>>,
    pages: u64,
}

impl Footprint {
    /// Distinct pages of one address space.
    pub fn pages_of(&self, space: u32) -> u64 {
        let chunks = self.chunks.iter().filter(|((of, _), _)| *of == space);
        chunks.map(|(_, words)| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()).sum()
    }

    /// Marks the pages of `length` bytes at `offset` of address space `space`.
    pub fn add(&mut self, space: u32, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let (mut page, last) = (offset / PAGE_BYTES, (offset + length - 1) / PAGE_BYTES);
        while page <= last {
            let chunk = page / CHUNK_PAGES;
            let stop = last.min(chunk * CHUNK_PAGES + CHUNK_PAGES - 1);
            let words = self.chunks.entry((space, chunk)).or_insert_with(|| Box::new([0; WORDS]));
            while page <= stop {
                let bit = page % 64;
                let count = (64 - bit).min(stop - page + 1);
                let mask = (u64::MAX >> (64 - count)) << bit;
                let word = &mut words[(page % CHUNK_PAGES / 64) as usize];
                self.pages += u64::from((mask & !*word).count_ones());
                *word |= mask;
                page += count;
            }
        }
    }

    /// Distinct pages so far.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_counts_what_a_set_counts(
            ranges in proptest::collection::vec((0u32..2, 0u64..64 << 20, 1u64..40 << 20), 1..20)
        ) {
            let mut footprint = Footprint::default();
            let mut set = std::collections::HashSet::new();
            for (space, offset, length) in ranges {
                footprint.add(space, offset, length);
                set.extend((offset / 4096..=(offset + length - 1) / 4096).map(|page| (space, page)));
            }
            prop_assert_eq!(footprint.pages(), set.len() as u64);
        }
    }
}
