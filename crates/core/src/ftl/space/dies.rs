//! Sets of dies.

/// A set of dies, with a way to find the next one after another.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct DieSet {
    words: Vec<u64>,
    /// How many there are: most often none, and that is asked after each operation of flash.
    count: u32,
}

impl DieSet {
    pub fn new(dies: u32) -> DieSet {
        DieSet { words: vec![0; dies.div_ceil(64) as usize], count: 0 }
    }

    #[inline]
    pub fn set(&mut self, die: u32, member: bool) {
        if !member && self.is_empty() {
            return;
        }
        let (word, bit) = ((die / 64) as usize, 1u64 << (die % 64));
        if member != (self.words[word] & bit != 0) {
            self.words[word] ^= bit;
            self.count = if member { self.count + 1 } else { self.count - 1 };
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first member at or after `from`, going round.
    #[inline]
    pub fn next(&self, from: u32) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let start = (from / 64) as usize;
        let ahead = self.words[start] & u64::MAX << (from % 64);
        if ahead != 0 {
            return Some(start as u32 * 64 + ahead.trailing_zeros());
        }
        let (before, after) = (0..=start, start + 1..self.words.len());
        let i = after.chain(before).find(|&i| self.words[i] != 0)?;
        Some(i as u32 * 64 + self.words[i].trailing_zeros())
    }
}
