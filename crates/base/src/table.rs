//! Large tables of numbers, zeroed, in huge pages where the system has them.
//!
//! A random access to a table of tens of megabytes misses not only the caches but the translation look-aside buffer too,
//! and then waits for a walk through four levels of page tables. With huge pages it does not.

use memmap2::MmapMut;
use std::fmt;

/// Smallest table, in bytes, that is worth a mapping of its own: one huge page.
const HUGE_PAGE: usize = 2 << 20;

enum Memory {
    Heap(Box<[u32]>),
    Mapped(MmapMut),
}

/// A table of `u32`, all zero at first. Memory is taken as it is touched: a page, or with `huge` a huge page, at a time.
pub struct Table {
    memory: Memory,
    len: usize,
    huge: bool,
}

impl Table {
    /// A table of `len` zeroes. `huge` asks for huge pages; where they can't be had it is only slower.
    pub fn zeroed(len: usize, huge: bool) -> Table {
        let bytes = len * 4;
        let mapped = (huge && bytes >= HUGE_PAGE).then(|| MmapMut::map_anon(bytes).ok()).flatten();
        let memory = match mapped {
            Some(map) => {
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                Memory::Mapped(map)
            }
            None => Memory::Heap(vec![0; len].into_boxed_slice()),
        };
        Table { memory, len, huge }
    }

    /// The numbers.
    #[inline]
    pub fn as_slice(&self) -> &[u32] {
        match &self.memory {
            Memory::Heap(numbers) => numbers,
            Memory::Mapped(map) => &bytemuck::cast_slice(map)[..self.len],
        }
    }

    /// The numbers, to be changed.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u32] {
        match &mut self.memory {
            Memory::Heap(numbers) => numbers,
            Memory::Mapped(map) => &mut bytemuck::cast_slice_mut(map)[..self.len],
        }
    }
}

impl Default for Table {
    fn default() -> Table {
        Table { memory: Memory::Heap(Box::default()), len: 0, huge: false }
    }
}

impl Clone for Table {
    fn clone(&self) -> Table {
        let mut copy = Table::zeroed(self.len, self.huge);
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table of {}", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn tables_hold_what_is_put_in_whatever_their_memory() {
        for (len, huge) in [(0, false), (5, true), (1 << 20, true), ((1 << 20) + 3, false)] {
            let mut table = Table::zeroed(len, huge);
            assert!(table.as_slice().len() == len && table.as_slice().iter().all(|&n| n == 0));
            if let Some(last) = table.as_mut_slice().last_mut() {
                *last = 7;
            }
            assert_eq!(table.clone().as_slice(), table.as_slice());
        }
    }
}
