//! A pseudo-random order of `0..n` that needs no memory.

/// A bijection of `0..n` onto itself that looks random, computed in a few nanoseconds.
///
/// It is a bijection of `k` bits, the smallest `k` with `2^k >= n`: rounds of a xor with a key, a multiplication by an
/// odd number and a fold of the high half onto the low half, each of which can be undone. Values that fall outside
/// `0..n` are sent through it again ("cycle walking", Black and Rogaway, CT-RSA 2002), which keeps it a bijection of
/// `0..n`; since `2^k < 2 n`, that is less than one extra turn on average. A linear congruential generator alone would
/// be cheaper, but its low bits repeat with short periods, and low bits of an address choose the channel and the die.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 2],
    multipliers: [u64; 2],
}

impl Permutation {
    /// A permutation of `0..n`, chosen by `key`. Asserts that `n` is not zero and at most `2^63`.
    pub fn new(n: u64, key: u64) -> Permutation {
        assert!(n > 0 && n <= 1 << 63, "a permutation of nothing, or of more than 2^63 items, was asked for");
        let bits = (u64::BITS - (n - 1).leading_zeros()).max(1);
        let mut rng = tidewater_base::Rng::new(key, b"permutation");
        Permutation {
            n,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            keys: [rng.next_u64(), rng.next_u64()],
            multipliers: [rng.next_u64() | 1, rng.next_u64() | 1],
        }
    }

    /// The number of items.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Never: a permutation has at least one item.
    pub fn is_empty(&self) -> bool {
        false
    }

    #[inline]
    fn turn(&self, mut x: u64) -> u64 {
        for round in 0..2 {
            x = (x ^ self.keys[round]).wrapping_mul(self.multipliers[round]) & self.mask;
            x ^= x >> self.shift;
        }
        // The keys changed bits above the mask, which the last mask removed; once more for a well mixed low half.
        x = x.wrapping_mul(self.multipliers[0] ^ 2) & self.mask;
        x ^ (x >> self.shift)
    }

    /// Where `index` (below `n`) goes, below `n`.
    #[inline]
    pub fn get(&self, index: u64) -> u64 {
        debug_assert!(index < self.n);
        let mut x = self.turn(index);
        while x >= self.n {
            x = self.turn(x);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_comes_exactly_once() {
        for n in [1, 2, 3, 5, 16, 17, 1_000, 65_537, 100_000] {
            for key in 0..3 {
                let permutation = Permutation::new(n, key);
                let mut seen = vec![false; n as usize];
                for index in 0..n {
                    let at = permutation.get(index) as usize;
                    assert!(!std::mem::replace(&mut seen[at], true), "{at} of {n} came twice");
                }
            }
        }
    }

    #[test]
    fn low_and_high_bits_of_neighbours_are_independent() {
        let permutation = Permutation::new(1 << 20, 7);
        // A chi-squared test over pairs of (low 3 bits, high 3 bits) of consecutive values: 64 x 64 cells.
        let mut cells = vec![0f64; 4096];
        let class = |x: u64| ((x & 7) * 8 + (x >> 17)) as usize;
        let draws = 1 << 20;
        for i in 0..draws - 1 {
            cells[class(permutation.get(i)) * 64 + class(permutation.get(i + 1))] += 1.0;
        }
        let expected = draws as f64 / 4096.0;
        let chi: f64 = cells.iter().map(|c| (c - expected).powi(2) / expected).sum();
        // 4095 degrees of freedom: mean 4095, standard deviation 90. A counter or an LCG is beyond 100,000.
        assert!(chi < 8_000.0, "{chi}");
    }
}
