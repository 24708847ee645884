//! A journal as ext4's JBD2 keeps it in ordered mode: descriptor blocks, metadata blocks, a commit block, 4 KiB each.
//!
//! A descriptor block has a header of 12 bytes, a tag of 16 for each block that follows it and a tail of 4: 255 tags.
//! How many blocks a transaction has follows from what it did; the mix is an assumption, that of a server whose
//! programs call fsync:
//!
//! | transaction | share | metadata blocks |
//! |---|---|---|
//! | fsync after an append | 70 % | inode table, block bitmap, group descriptor: 3 |
//! | fsync after a create or rename | 25 % | 2 inode table blocks, both bitmaps, group descriptor, directory: 6 |
//! | periodic commit of unrelated updates | 5 % | 20 to 100, uniform |

use super::write::Kind;
use tidewater_base::Rng;

pub(super) const KINDS: [Kind; 3] =
    [Kind { name: "append", share: 0.7 }, Kind { name: "create", share: 0.25 }, Kind { name: "periodic", share: 0.05 }];

/// Tags in a descriptor block: (4096 - 12 - 4) / 16.
const TAGS: u64 = 255;

/// An ext4-like journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Bytes of a journal block. Default 4,096.
    pub block_size: u32,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal { block_size: 4096 }
    }
}

impl Journal {
    /// Bytes of a transaction with some metadata blocks.
    pub fn transaction(&self, metadata: u64) -> u64 {
        (metadata.div_ceil(TAGS) + metadata + 1) * u64::from(self.block_size)
    }

    pub(super) fn draw(&self, kind: usize, rng: &mut Rng) -> u64 {
        self.transaction(match kind {
            0 => 3,
            1 => 6,
            _ => 20 + rng.below(81),
        })
    }
}
