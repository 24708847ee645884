//! Sets of dies.

/// A set of dies, with a way to find the next one after another.
#[derive(Clone, Debug)]
pub(super) struct DieSet {
    words: Vec<u64>,
}

impl DieSet {
    pub(super) fn new(dies: u32) -> DieSet {
        DieSet { words: vec![0; dies.div_ceil(64) as usize] }
    }

    #[inline]
    pub(super) fn set(&mut self, die: u32, member: bool) {
        let (word, bit) = ((die / 64) as usize, 1u64 << (die % 64));
        if member { self.words[word] |= bit } else { self.words[word] &= !bit }
    }

    /// The first member at or after `from`, going round.
    #[inline]
    pub(super) fn next(&self, from: u32) -> Option<u32> {
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
