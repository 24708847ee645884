//! Which bytes beyond the contiguous part of a stream are there: one bit for each.

/// A bit for each byte of a stream's next `capacity` bytes.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// A power of two bits.
    words: Box<[u64]>,
    held: u64,
}

impl Window {
    /// A window over at least `bytes`, with nothing in it.
    pub(super) fn new(bytes: u64) -> Window {
        let words = bytes.next_power_of_two().div_ceil(64).max(1);
        Window { words: vec![0; words as usize].into_boxed_slice(), held: 0 }
    }

    /// Whether nothing is in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.held = 0;
    }

    #[inline]
    fn word(&self, offset: u64) -> usize {
        (offset / 64) as usize & (self.words.len() - 1)
    }

    /// Bytes `offset..offset + len` are there.
    pub(super) fn mark(&mut self, offset: u64, len: u64) {
        self.change(offset, len, true);
    }

    fn change(&mut self, offset: u64, len: u64, there: bool) {
        debug_assert!(len <= self.words.len() as u64 * 64);
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let word = self.word(at);
            let bits = mask(at % 64, (end - at).min(64 - at % 64));
            if there {
                self.held += u64::from((bits & !self.words[word]).count_ones());
                self.words[word] |= bits;
            } else {
                self.held -= u64::from((bits & self.words[word]).count_ones());
                self.words[word] &= !bits;
            }
            at = (at / 64 + 1) * 64;
        }
    }

    /// Bytes `offset..offset + len` are not there any more.
    pub(super) fn unmark(&mut self, offset: u64, len: u64) {
        self.change(offset, len, false);
    }

    /// Takes out the bytes that are there from `offset` on, up to the first that is not. Returns how many.
    pub(super) fn take(&mut self, offset: u64) -> u64 {
        let mut at = offset;
        while self.held > 0 {
            let word = self.word(at);
            let run = u64::from((self.words[word] >> (at % 64)).trailing_ones());
            if run == 0 {
                break;
            }
            self.words[word] &= !mask(at % 64, run);
            self.held -= run;
            at += run;
            if !at.is_multiple_of(64) {
                break;
            }
        }
        at - offset
    }
}

/// `len` bits from bit `first` of a word.
fn mask(first: u64, len: u64) -> u64 {
    (u64::MAX >> (64 - len)) << first
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tidewater_base::Rng;

    #[test]
    fn bytes_come_in_any_order_and_leave_in_theirs() {
        let mut rng = Rng::new(5, b"window");
        for capacity in [64, 100, 4096] {
            let mut window = Window::new(capacity);
            let (mut next, mut there) = (rng.below(1000), BTreeSet::new());
            for _ in 0..5_000 {
                let len = 1 + rng.below(capacity.min(200));
                let offset = next + rng.below(capacity - len + 1);
                window.mark(offset, len);
                there.extend(offset..offset + len);
                let taken = window.take(next);
                for _ in 0..taken {
                    assert!(there.remove(&next));
                    next += 1;
                }
                assert!(!there.contains(&next));
                assert_eq!(window.is_empty(), there.is_empty());
            }
        }
    }
}
