//! Zipf-distributed ranks in constant time.

use tidewater_base::Rng;

/// Ranks that are drawn alone, before ranks share a piece.
const SINGLES: u64 = 256;
/// Width of a piece relative to the rank it starts at: the majorant is too high by at most `theta / 64`.
const PIECE_SHARE: u64 = 64;

/// Draws ranks `0..n` with a probability proportional to `1 / (rank + 1)^theta`, exactly, in constant time.
///
/// The ranks are cut into pieces: the first ones alone, then pieces whose width is 1/64 of the rank where they start. A
/// piece is drawn by an alias table (Walker, 1977) with the weight of its first rank times its width, a rank within it
/// uniformly, and the rank is accepted with the ratio of its own weight to that of the first. The ratio at a piece's
/// last rank accepts nearly always without computing a power.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    /// The first rank, counted from 1.
    first: u64,
    width: u64,
    /// The weight of the last rank relative to the first.
    least: f64,
    /// Alias table: keep this piece when a 64-bit draw is at most this, else take the other.
    keep: u64,
    other: u32,
}

impl Zipf {
    /// A distribution over `n` ranks with exponent `theta`. Asserts that `n` is not zero, and that `theta` is finite
    /// and not negative; 0 is uniform.
    pub fn new(n: u64, theta: f64) -> Zipf {
        assert!(n > 0 && theta.is_finite() && theta >= 0.0, "zipf over {n} ranks with exponent {theta}");
        let mut pieces = Vec::new();
        let mut weights = Vec::new();
        let mut first = 1u64;
        loop {
            let wanted = if first <= SINGLES { 1 } else { first / PIECE_SHARE };
            let width = wanted.min(n - first + 1);
            let least = ((first + width - 1) as f64 / first as f64).powf(-theta);
            pieces.push(Piece { first, width, least, keep: u64::MAX, other: 0 });
            weights.push((first as f64).powf(-theta) * width as f64);
            if n - first < width {
                break;
            }
            first += width;
        }
        alias(&mut pieces, &weights);
        Zipf { theta, pieces }
    }

    /// A rank, `0..n`; 0 is the most frequent.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            // One draw serves twice: its high part chooses the piece, what is left of the product the alias.
            let product = u128::from(rng.next_u64()) * self.pieces.len() as u128;
            let mut piece = &self.pieces[(product >> 64) as usize];
            if product as u64 > piece.keep {
                piece = &self.pieces[piece.other as usize];
            }
            if piece.width == 1 {
                return piece.first - 1;
            }
            let rank = piece.first + rng.below(piece.width);
            let accept = rng.unit_f64();
            if accept <= piece.least || accept <= (rank as f64 / piece.first as f64).powf(-self.theta) {
                return rank - 1;
            }
        }
    }
}

/// Vose's construction of Walker's alias table.
fn alias(pieces: &mut [Piece], weights: &[f64]) {
    let scale = weights.len() as f64 / weights.iter().sum::<f64>();
    let mut scaled: Vec<f64> = weights.iter().map(|w| w * scale).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..scaled.len()).partition(|&i| scaled[i] < 1.0);
    while let (Some(&s), Some(&l)) = (small.last(), large.last()) {
        small.pop();
        pieces[s].keep = (scaled[s] * u64::MAX as f64) as u64;
        pieces[s].other = l as u32;
        scaled[l] -= 1.0 - scaled[s];
        if scaled[l] < 1.0 {
            large.pop();
            small.push(l);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_follow_the_law() {
        for (n, theta) in [(1u64, 1.0), (10, 0.0), (1_000, 0.5), (1_000, 1.0), (100_000, 0.9), (100_000, 1.2)] {
            let zipf = Zipf::new(n, theta);
            let mut rng = Rng::new(3, b"zipf test");
            let draws = 400_000u32;
            let mut counts = vec![0u32; n as usize];
            for _ in 0..draws {
                counts[zipf.draw(&mut rng) as usize] += 1;
            }
            let total: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            // Cumulative shares at ranks 1, 2, 4, ...: a Kolmogorov-Smirnov bound of 0.004 is far above 1.63/sqrt(n).
            let (mut seen, mut law) = (0.0, 0.0);
            for k in 1..=n {
                seen += f64::from(counts[k as usize - 1]) / f64::from(draws);
                law += (k as f64).powf(-theta) / total;
                assert!((seen - law).abs() < 0.004, "n {n} theta {theta} rank {k}: {seen} against {law}");
            }
        }
    }

    #[test]
    fn a_huge_space_needs_a_small_table() {
        let zipf = Zipf::new(1 << 40, 1.1);
        assert!(zipf.pieces.len() < 3_000, "{}", zipf.pieces.len());
        let mut rng = Rng::new(3, b"zipf test");
        assert!((0..10_000).all(|_| zipf.draw(&mut rng) < 1 << 40));
    }
}
