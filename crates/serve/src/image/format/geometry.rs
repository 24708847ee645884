//! The shape of the flash, and where the parts of an image begin.

use super::{ALIGN, BLOCK_RECORD, HEADER, LIST_SLOT, PAGE_HEADER, STATE_SLOT, TEXT_MAX, UNIT_RECORD};
use tidewater_nand::{Block, Config};

/// The shape of the flash, and where its parts are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a unit.
    pub unit_size: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Blocks of a plane.
    pub blocks_per_plane: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Dies.
    pub dies: u32,
    /// Bytes of the profile's text.
    pub text_len: u32,
    /// The most bytes that a metadata blob has.
    pub metadata_max: u32,
}

impl Geometry {
    /// The shape of the flash of a profile.
    pub fn new(nand: &Config, unit_size: u32, text_len: u32, metadata_max: u32) -> Geometry {
        Geometry {
            unit_size,
            page_size: nand.page_size,
            pages_per_block: nand.pages_per_block,
            blocks_per_plane: nand.blocks_per_plane,
            planes: nand.planes,
            dies: nand.dies(),
            text_len,
            metadata_max,
        }
    }

    /// Whether the numbers are such that nothing below overflows or divides by zero.
    pub fn is_sound(&self) -> bool {
        let sizes = self.unit_size.is_power_of_two()
            && (512..=1 << 20).contains(&self.unit_size)
            && self.page_size <= 1 << 24
            && self.page_size > 0
            && self.page_size.is_multiple_of(self.unit_size);
        let counts = [self.pages_per_block, self.blocks_per_plane, self.planes, self.dies].iter().all(|&n| n > 0)
            && self.pages_per_block < u32::from(u16::MAX)
            && self.planes <= 64
            && self.dies <= 1 << 16;
        let blocks = u128::from(self.blocks_per_plane) * u128::from(self.planes) * u128::from(self.dies);
        sizes
            && counts
            && self.text_len <= TEXT_MAX
            && self.metadata_max <= 1 << 30
            && blocks <= u128::from(u32::MAX)
            && blocks * u128::from(self.pages_per_block) * u128::from(self.page_size) < 1 << 60
    }

    /// Units of a page.
    pub fn units_per_page(&self) -> u32 {
        self.page_size / self.unit_size
    }

    /// Blocks of the drive.
    pub fn blocks(&self) -> u32 {
        self.dies * self.planes * self.blocks_per_plane
    }

    /// The number of a block.
    #[inline]
    pub fn block(&self, at: Block) -> u32 {
        (at.die * self.planes + at.plane) * self.blocks_per_plane + at.block
    }

    /// The block of a number.
    pub fn block_at(&self, index: u32) -> Block {
        let plane = index / self.blocks_per_plane;
        Block { die: plane / self.planes, plane: plane % self.planes, block: index % self.blocks_per_plane }
    }

    /// The number of a page.
    #[inline]
    pub fn page(&self, block: u32, page: u32) -> u64 {
        u64::from(block) * u64::from(self.pages_per_block) + u64::from(page)
    }

    /// Bytes of a page's record: no record crosses a boundary of 512 bytes unless it is longer.
    pub fn page_record(&self) -> usize {
        let least = PAGE_HEADER + UNIT_RECORD * self.units_per_page() as usize;
        if least <= 512 { least.next_power_of_two() } else { least.next_multiple_of(512) }
    }

    /// Where the slots for the state begin.
    pub fn state_at(&self) -> u64 {
        HEADER as u64 + u64::from(self.text_len).next_multiple_of(ALIGN)
    }

    /// Bytes of a slot for metadata.
    pub fn metadata_slot(&self) -> u64 {
        (u64::from(self.metadata_max) + 32).next_multiple_of(ALIGN)
    }

    /// Where the slots for metadata begin.
    pub fn metadata_at(&self) -> u64 {
        self.state_at() + 2 * STATE_SLOT
    }

    /// Where the records of blocks begin.
    pub fn blocks_at(&self) -> u64 {
        self.metadata_at() + 2 * self.metadata_slot()
    }

    /// Where the records of pages begin.
    pub fn oob_at(&self) -> u64 {
        self.blocks_at() + (u64::from(self.blocks()) * 2 * BLOCK_RECORD as u64).next_multiple_of(ALIGN)
    }

    /// Where payload begins.
    pub fn data_at(&self) -> u64 {
        let pages = u64::from(self.blocks()) * u64::from(self.pages_per_block);
        self.oob_at() + (pages * self.page_record() as u64).next_multiple_of(ALIGN)
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        let pages = u64::from(self.blocks()) * u64::from(self.pages_per_block);
        self.data_at() + pages * u64::from(self.page_size)
    }

    /// Where the slots for the list of memories begin, from version 2 on.
    pub fn list_at(&self) -> u64 {
        self.file_len().next_multiple_of(ALIGN)
    }

    /// Where the first memory may be.
    pub fn memories_at(&self) -> u64 {
        self.list_at() + 2 * LIST_SLOT
    }

    /// Where a page's record is.
    #[inline]
    pub fn record_of(&self, page: u64) -> u64 {
        self.oob_at() + page * self.page_record() as u64
    }

    /// Where a page's payload is.
    #[inline]
    pub fn data_of(&self, page: u64) -> u64 {
        self.data_at() + page * u64::from(self.page_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With numbers that a forged superblock may have: refused, or all places follow each other.
    #[test]
    fn what_is_sound_overflows_nowhere() {
        let counts = [1, 2, 63, 1 << 12, 1 << 16, (1 << 16) + 1, 1 << 24, 1 << 31, u32::MAX];
        let (mut sound, mut refused) = (0, 0);
        for pages_per_block in counts {
            for blocks_per_plane in counts {
                for planes in counts {
                    for dies in counts {
                        for page_size in [512, 4096, 1 << 24] {
                            let shape = Geometry {
                                unit_size: 512,
                                page_size,
                                pages_per_block,
                                blocks_per_plane,
                                planes,
                                dies,
                                text_len: TEXT_MAX,
                                metadata_max: 1 << 30,
                            };
                            if !shape.is_sound() {
                                refused += 1;
                                continue;
                            }
                            sound += 1;
                            let last = shape.page(shape.blocks() - 1, pages_per_block - 1);
                            let places = [
                                shape.blocks_at(),
                                shape.oob_at(),
                                shape.record_of(last),
                                shape.data_at(),
                                shape.data_of(last),
                                shape.file_len(),
                                shape.list_at(),
                                shape.memories_at(),
                            ];
                            assert!(places.is_sorted(), "{shape:?}: {places:?}");
                        }
                    }
                }
            }
        }
        assert!(sound > 100 && refused > 100, "{sound} and {refused}");
    }
}
