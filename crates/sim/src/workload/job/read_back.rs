//! Reads of `verify`: all data written, once the writes are done.

use super::generate::ThreadSource;

/// How what was written is known again.
#[derive(Clone)]
pub(super) enum ReadBack {
    /// Nothing was written twice: the same requests are made again, in their order, and the writes are read.
    Again(Box<ThreadSource>),
    /// Blocks may have been written several times: one bit for each, which are read once in ascending order.
    Written { bits: Vec<u64>, next: u64 },
}

impl ReadBack {
    /// One bit for each of so many blocks.
    pub fn written(blocks: u64) -> ReadBack {
        ReadBack::Written { bits: vec![0; blocks.div_ceil(64) as usize], next: 0 }
    }

    /// A block was written.
    pub fn note(&mut self, block: u64) {
        if let ReadBack::Written { bits, .. } = self
            && let Some(word) = bits.get_mut((block / 64) as usize)
        {
            *word |= 1 << (block % 64);
        }
    }

    /// The next block that was written, of those that are known by a bit.
    pub fn next_block(bits: &[u64], next: &mut u64) -> Option<u64> {
        let mut at = (*next / 64) as usize;
        let mut word = bits.get(at)? & (u64::MAX << (*next % 64));
        while word == 0 {
            at += 1;
            word = *bits.get(at)?;
        }
        let block = at as u64 * 64 + u64::from(word.trailing_zeros());
        *next = block + 1;
        Some(block)
    }
}
