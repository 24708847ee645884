//! Contents of blocks: the actual, and the possible.

use super::{BLOCK, Host, TRANSFER};
use std::collections::HashMap;

/// Content of a block after the write `tag`, which is never 0: both can be read from any part of it.
pub fn block_of(block: u64, tag: u64) -> Vec<u8> {
    let words = (0..BLOCK as u64 / 16).flat_map(|i| [block ^ i << 48, tag]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Blocks from `first` after the write `tag`.
pub fn blocks_of(first: u64, count: u64, tag: u64) -> Vec<u8> {
    (first..first + count).flat_map(|block| block_of(block, tag)).collect()
}

/// Which write a block holds; 0: none.
///
/// # Errors
/// It holds neither one whole write nor zeroes.
pub fn tag_of(block: u64, bytes: &[u8]) -> Result<u64, String> {
    let tag = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
    let whole = if tag == 0 { vec![0; BLOCK] } else { block_of(block, tag) };
    if bytes == whole {
        Ok(tag)
    } else {
        Err(format!("block {block} is no whole write, perhaps of {tag}: {:x?}", &bytes[..32]))
    }
}

/// Possible contents of blocks: per block all writes since the last that is durable, that one first.
#[derive(Clone, Debug, Default)]
pub struct Model {
    may_hold: HashMap<u64, Vec<u64>>,
    /// The tag of the newest write.
    pub last_tag: u64,
}

impl Model {
    /// A new write of these blocks begins: its tag.
    pub fn begin(&mut self, first: u64, count: u64) -> u64 {
        self.last_tag += 1;
        for block in first..first + count {
            self.may_hold.entry(block).or_insert_with(|| vec![0]).push(self.last_tag);
        }
        self.last_tag
    }

    /// All writes have ended, and are durable.
    pub fn all_durable(&mut self) {
        for tags in self.may_hold.values_mut() {
            tags.drain(..tags.len() - 1);
        }
    }

    /// This write has ended, and is durable. No other write of these blocks is under way.
    pub fn durable(&mut self, first: u64, count: u64) {
        for block in first..first + count {
            let tags = self.may_hold.get_mut(&block).expect("the write was begun");
            tags.drain(..tags.len() - 1);
        }
    }

    /// Checks all blocks below `blocks`, and takes what is found as what is there. Returns how many blocks were found
    /// that do not hold the last write.
    pub fn check_all(&mut self, host: &mut Host, blocks: u64) -> u64 {
        let (step, mut lost) = ((TRANSFER / BLOCK) as u64, 0);
        for first in (0..blocks).step_by(step as usize) {
            let count = step.min(blocks - first);
            let data = host.read(first, count as usize * BLOCK);
            for (block, bytes) in (first..).zip(data.chunks(BLOCK)) {
                let tag = tag_of(block, bytes).unwrap_or_else(|error| panic!("{error}"));
                let may = self.may_hold.entry(block).or_insert_with(|| vec![0]);
                assert!(may.contains(&tag), "block {block} holds write {tag}, and may hold {may:?}");
                lost += u64::from(may.last() != Some(&tag));
                *may = vec![tag];
            }
        }
        lost
    }
}
