//! Large tables of numbers and bytes, zeroed, in huge pages where the system has them.
//!
//! A random access to a table of tens of megabytes misses not only the caches but the translation look-aside buffer
//! too, and then waits for a walk through four levels of page tables. With huge pages it does not.

use memmap2::MmapMut;
use std::fmt;

/// Smallest table, in bytes, that is worth a mapping of its own: one huge page.
const HUGE_PAGE: usize = 2 << 20;

enum Memory {
    Heap(Box<[u8]>),
    Mapped(MmapMut),
}

/// Bytes, all zero at first. Memory is taken as it is touched: a page, or with `huge` a huge page, at a time.
pub struct Bytes {
    memory: Memory,
    huge: bool,
}

impl Bytes {
    /// `len` zeroes. `huge` asks for huge pages; where they can't be had it is only slower.
    pub fn zeroed(len: usize, huge: bool) -> Bytes {
        let mapped = (huge && len >= HUGE_PAGE).then(|| MmapMut::map_anon(len).ok()).flatten();
        let memory = match mapped {
            Some(map) => {
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                Memory::Mapped(map)
            }
            None => Memory::Heap(vec![0; len].into_boxed_slice()),
        };
        Bytes { memory, huge }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Mapped(map) => map,
        }
    }
}

impl std::ops::DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Mapped(map) => map,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes { memory: Memory::Heap(bytes.into_boxed_slice()), huge: false }
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::zeroed(0, false)
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        let mut copy = Bytes::zeroed(self.len(), self.huge);
        copy.copy_from_slice(self);
        copy
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Bytes of a number.
const SIZE: usize = size_of::<u32>();

/// A table of `u32`, all zero at first. Memory is taken as it is touched: a page, or with `huge` a huge page, at a
/// time.
#[derive(Clone, Default)]
pub struct Table(Bytes);

impl Table {
    /// A table of `len` zeroes. `huge` asks for huge pages; where they can't be had it is only slower.
    pub fn zeroed(len: usize, huge: bool) -> Table {
        Table(Bytes::zeroed(len * SIZE, huge))
    }

    /// Its memory, four bytes for each number in the order of the machine.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many numbers it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_bytes().len() / SIZE
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    // Numbers are read and written as four bytes, which is one instruction: to see the memory as a slice of numbers
    // would take a check of alignment and length at each access.
    /// The number at `index`; `None` beyond the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u32> {
        let bytes = self.as_bytes().get(index * SIZE..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    /// The number at `index`, to be changed. Asserts that there is one.
    #[inline]
    pub fn update(&mut self, index: usize, change: impl FnOnce(u32) -> u32) {
        let bytes = self.0[index * SIZE..].first_chunk_mut().expect("numbers are whole");
        *bytes = change(u32::from_ne_bytes(*bytes)).to_ne_bytes();
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table of {}", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn tables_hold_what_is_put_in_whatever_their_memory() {
        for (len, huge) in [(0, false), (5, true), (1 << 20, true), ((1 << 20) + 3, false)] {
            let mut table = Table::zeroed(len, huge);
            assert!(table.len() == len && (0..len).all(|i| table.get(i) == Some(0)) && table.get(len).is_none());
            if let Some(last) = len.checked_sub(1) {
                table.update(last, |n| n + 7);
                assert_eq!((table.get(last), table.clone().get(last)), (Some(7), Some(7)));
            }
            assert_eq!(table.clone().as_bytes(), table.as_bytes());
        }
    }
}
