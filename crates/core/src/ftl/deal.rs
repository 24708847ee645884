//! The numbers of a permutation, dealt out in turn.

use tidewater_base::Rng;

/// A pseudo-random permutation of `0..n`: a four-round Feistel network over the next even power of two, walked until it
/// lands inside.
pub(super) struct Shuffle {
    n: u32,
    half: u32,
    keys: [u64; 4],
}

impl Shuffle {
    pub fn new(n: u32, seed: u64) -> Shuffle {
        let bits = (32 - n.saturating_sub(1).leading_zeros()).max(2).next_multiple_of(2);
        let mut rng = Rng::new(seed, b"shuffle");
        Shuffle { n, half: bits / 2, keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    fn at(&self, i: u32) -> u32 {
        let mask = (1u64 << self.half) - 1;
        let mut x = u64::from(i);
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for key in self.keys {
                let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                (left, right) = (right, left ^ mixed & mask);
            }
            x = left << self.half | right;
            if x < u64::from(self.n) {
                return x as u32;
            }
        }
    }
}

/// Pages that are known before they are dealt, so that their map entries, which lie anywhere in a table larger than the
/// caches, are there by then.
const KNOWN: usize = 32;

/// Deals out the numbers of a permutation, each once.
pub(super) struct Dealer {
    shuffle: Shuffle,
    pub(super) dealt: u32,
    /// The next ones, by their number modulo how many these are.
    known: [u32; KNOWN],
}

impl Dealer {
    /// The first are about to be dealt: each is passed to `expect`.
    pub fn new(shuffle: Shuffle, expect: impl Fn(u32)) -> Dealer {
        let mut dealer = Dealer { shuffle, dealt: 0, known: [0; KNOWN] };
        (0..KNOWN as u32).for_each(|i| dealer.learn(i, &expect));
        dealer
    }

    fn learn(&mut self, i: u32, expect: impl Fn(u32)) {
        if i < self.shuffle.n {
            let number = self.shuffle.at(i);
            expect(number);
            self.known[i as usize % KNOWN] = number;
        }
    }

    /// The next, of which there must be one; another that will be dealt before long is passed to `expect`.
    pub fn deal(&mut self, expect: impl Fn(u32)) -> u32 {
        let number = self.known[self.dealt as usize % KNOWN];
        self.learn(self.dealt + KNOWN as u32, expect);
        self.dealt += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dealer_deals_what_it_said_in_the_order_of_the_permutation() {
        for n in [1, KNOWN as u32 - 1, KNOWN as u32, 1_000] {
            let said = std::cell::RefCell::new(Vec::new());
            let expect = |number| said.borrow_mut().push(number);
            let mut dealer = Dealer::new(Shuffle::new(n, 9), expect);
            let dealt: Vec<u32> = (0..n).map(|_| dealer.deal(expect)).collect();
            let shuffle = Shuffle::new(n, 9);
            assert_eq!(dealt, (0..n).map(|i| shuffle.at(i)).collect::<Vec<_>>());
            assert_eq!(dealt, *said.borrow());
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        for n in [1, 2, 5, 64, 1_000] {
            let mut seen: Vec<u32> = (0..n).map(|i| Shuffle::new(n, 9).at(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }
}
