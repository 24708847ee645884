//! What policies are made of: tables, lists and heaps in arrays. None allocates for a page once the buffer has been
//! full; the tree of blocks does when blocks come and go.

mod blocks;
mod heap;
mod list;
mod pages;

pub(super) use blocks::{Blocks, Place};
pub(super) use heap::Heap;
pub(super) use list::List;
pub(super) use pages::Pages;

/// No node, no block.
pub(super) const NONE: u32 = u32::MAX;
