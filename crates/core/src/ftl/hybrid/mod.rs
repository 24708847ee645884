//! Hybrid mapping: data blocks mapped as wholes, log blocks mapped by page (FAST, and FASTer on top of it).
//!
//! FAST: Lee, Park, Chung, Lee, Park and Song, "A log buffer-based flash translation layer using fully-associative
//! sector translation", ACM TECS 6(3), 2007. FASTer: Lim, Lee and Moon, "FASTer FTL for enterprise-class flash memory
//! SSDs", SNAPI 2010.
//!
//! A *logical block* is as many logical pages as a superblock has units, and lies in one superblock, its data block,
//! each unit at its place. What the host writes goes to log blocks: a run that starts at a logical block's first page
//! to the one sequential (SW) log block, everything else to the random (RW) log blocks. Merges make data blocks of log
//! blocks:
//! - *switch*: a full SW log block becomes the data block as it is;
//! - *partial*: the rest of the logical block is copied behind what the SW log block has;
//! - *full*: all units of a logical block are gathered into a free superblock. RW log blocks are reclaimed in the order
//!   in which they were opened, by a full merge of every logical block that has a unit in them. FASTer first moves what
//!   is still valid to the log's end, and what has been there before to its isolation area.
//!
//! Rows, stamps, hazards, bad blocks, the log of deallocations, recovery and an index from logical pages to units are
//! the store's, as for page mapping. The differences: where a unit goes, and how space comes back. ADR 9 says why.
//!
//! A merge moves no map entry before all its rows are programmed: until then all that it copies from is in place, so an
//! interrupted or failed merge leaves nothing behind but a superblock to erase.

mod adopt;
mod isolation;
mod log;
mod merge;
mod past;
mod placement;
mod reclaim;
mod state;
#[cfg(test)]
mod tests;

pub use state::LOG_BLOCKS_MIN;
pub(super) use state::{Hybrid, log_blocks, superblocks_beside};
