//! Where units lie: superblocks, rows and units, the bits of a physical unit number, and the replacement of bad blocks.
//!
//! A *superblock* is one block of every plane of one die: they are programmed and erased together. A *row* is one page
//! of each of its planes, the unit of programming. A *unit* is what one map entry covers.

use tidewater_nand::{Block, Medium};

/// The shape of the physical address space, and which blocks stand in for bad ones.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Units in a page.
    pub units_per_page: u32,
    /// Units in a row.
    pub units_per_row: u32,
    /// Rows in a superblock.
    pub rows: u32,
    /// Units in a superblock.
    pub units_per_superblock: u32,
    /// Superblocks on a die.
    pub superblocks_per_die: u32,
    /// Dies.
    pub dies: u32,
    planes: u32,
    /// Die by superblock: a look-up takes less than a division.
    dies_of: Vec<u16>,
    row_shift: u32,
    superblock_shift: u32,
    /// Physical block by superblock and plane; [`Layout::NO_BLOCK`] where a plane has none left.
    blocks: Vec<u32>,
    /// Good blocks in reserve, by die and plane.
    spares: Vec<Vec<u32>>,
}

impl Layout {
    /// No physical block stands behind this plane of the superblock.
    pub const NO_BLOCK: u32 = u32::MAX;

    /// Lays `superblocks_per_die` superblocks over the good blocks of `medium`; the rest are spares.
    pub fn new<M: Medium>(medium: &M, unit_size: u32, superblocks_per_die: u32) -> Layout {
        let config = medium.config();
        let units_per_page = config.page_size / unit_size;
        let units_per_row = units_per_page * config.planes;
        let rows = config.pages_per_block;
        let row_shift = units_per_row.next_power_of_two().trailing_zeros();
        let superblock_shift = row_shift + rows.next_power_of_two().trailing_zeros();
        let dies = config.dies();
        let mut blocks = vec![Layout::NO_BLOCK; (dies * superblocks_per_die * config.planes) as usize];
        let mut spares = Vec::with_capacity((dies * config.planes) as usize);
        for die in 0..dies {
            for plane in 0..config.planes {
                let mut good =
                    (0..config.blocks_per_plane).filter(|&block| !medium.is_bad(Block { die, plane, block }));
                for (i, block) in good.by_ref().take(superblocks_per_die as usize).enumerate() {
                    let superblock = die * superblocks_per_die + i as u32;
                    blocks[(superblock * config.planes + plane) as usize] = block;
                }
                // Taken from the end, so that the first spare is the lowest block.
                let mut rest: Vec<u32> = good.collect();
                rest.reverse();
                spares.push(rest);
            }
        }
        Layout {
            units_per_page,
            units_per_row,
            rows,
            units_per_superblock: rows * units_per_row,
            superblocks_per_die,
            dies,
            planes: config.planes,
            dies_of: (0..dies * superblocks_per_die).map(|s| (s / superblocks_per_die.max(1)) as u16).collect(),
            row_shift,
            superblock_shift,
            blocks,
            spares,
        }
    }

    /// Superblocks on the drive.
    pub fn superblocks(&self) -> u32 {
        self.dies * self.superblocks_per_die
    }

    /// Planes of a die.
    pub fn planes(&self) -> u32 {
        self.planes
    }

    /// Whether rows hold one unit each. What is done row by row is then done for each unit, and the ways that most rows
    /// take are compiled for it once more (`SINGLE`): nothing is counted or looked through there.
    #[inline]
    pub(crate) fn has_single_rows(&self) -> bool {
        self.units_per_row == 1
    }

    /// Units in a row, to code that was chosen by [`Layout::has_single_rows`].
    #[inline(always)]
    pub(crate) fn row_units<const SINGLE: bool>(&self) -> u32 {
        debug_assert_eq!(SINGLE, self.has_single_rows());
        if SINGLE { 1 } else { self.units_per_row }
    }

    /// The die of a superblock.
    #[inline]
    pub fn die_of(&self, superblock: u32) -> u32 {
        u32::from(self.dies_of[superblock as usize])
    }

    /// The number of a unit.
    #[inline]
    pub fn ppn(&self, superblock: u32, row: u32, unit: u32) -> u32 {
        superblock << self.superblock_shift | row << self.row_shift | unit
    }

    /// The superblock of a unit.
    #[inline]
    pub fn superblock_of(&self, ppn: u32) -> u32 {
        ppn >> self.superblock_shift
    }

    /// The row of a unit within its superblock.
    #[inline]
    pub fn row_of(&self, ppn: u32) -> u32 {
        ppn >> self.row_shift & ((1 << (self.superblock_shift - self.row_shift)) - 1)
    }

    /// A unit's place in its row.
    #[inline]
    pub fn unit_of(&self, ppn: u32) -> u32 {
        ppn & ((1 << self.row_shift) - 1)
    }

    /// The numbers that units can have: one past the largest.
    pub fn address_space(&self) -> u64 {
        u64::from(self.superblocks()) << self.superblock_shift
    }

    /// The physical block behind one plane of a superblock.
    #[inline]
    pub fn block(&self, superblock: u32, plane: u32) -> Block {
        self.block_on(self.die_of(superblock), superblock, plane)
    }

    /// As [`Layout::block`], for a superblock whose die is known.
    #[inline]
    pub fn block_on(&self, die: u32, superblock: u32, plane: u32) -> Block {
        Block { die, plane, block: self.blocks[(superblock * self.planes + plane) as usize] }
    }

    /// Whether every plane of a superblock has a block.
    pub fn is_whole(&self, superblock: u32) -> bool {
        (0..self.planes).all(|p| self.blocks[(superblock * self.planes + p) as usize] != Layout::NO_BLOCK)
    }

    /// Replaces a bad block by a spare of the same plane, without a word to anyone. False: no spare is left.
    pub fn replace(&mut self, superblock: u32, plane: u32) -> bool {
        let die = self.die_of(superblock);
        let spare = self.spares[(die * self.planes + plane) as usize].pop();
        self.blocks[(superblock * self.planes + plane) as usize] = spare.unwrap_or(Layout::NO_BLOCK);
        spare.is_some()
    }

    pub(crate) fn set_block(&mut self, superblock: u32, plane: u32, block: u32) {
        self.blocks[(superblock * self.planes + plane) as usize] = block;
    }

    pub(crate) fn set_spares(&mut self, die: u32, plane: u32, spares: Vec<u32>) {
        self.spares[(die * self.planes + plane) as usize] = spares;
    }

    /// Spare blocks left on the drive.
    pub fn spares(&self) -> usize {
        self.spares.iter().map(Vec::len).sum()
    }
}
