//! Sizes of requests.

use tidewater_base::Rng;

use super::spec::BlockSizes;

/// Sizes of requests, prepared: cumulative shares as thresholds of 64 random bits.
#[derive(Clone)]
pub(super) struct Sizes(Vec<(u64, u64)>);

impl Sizes {
    /// Of sizes with their shares.
    pub fn new(blocks: &BlockSizes) -> Sizes {
        let mut sum = 0.0;
        let mut thresholds: Vec<(u64, u64)> = blocks
            .0
            .iter()
            .map(|&(bytes, share)| {
                sum += share;
                (tidewater_base::rng::probability_threshold(sum / 100.0), bytes)
            })
            .collect();
        if let Some(last) = thresholds.last_mut() {
            last.0 = u64::MAX;
        }
        Sizes(thresholds)
    }

    /// A size.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        if let [(_, bytes)] = self.0[..] {
            return bytes;
        }
        let draw = rng.next_u64();
        self.0.iter().find(|(threshold, _)| draw <= *threshold).map_or(512, |(_, bytes)| *bytes)
    }

    /// A size that fits into so many bytes, as fio draws until one does; the one that was drawn first where none does.
    #[cold]
    pub fn fitting(&self, drawn: u64, room: u64, rng: &mut Rng) -> u64 {
        let least = self.0.iter().map(|(_, bytes)| *bytes).min().unwrap_or(drawn);
        if least > room {
            return drawn;
        }
        // A size of a small share may be the only one.
        (0..100).map(|_| self.draw(rng)).find(|&bytes| bytes <= room).unwrap_or(least)
    }

    /// The mean of sizes with their shares.
    pub fn mean(blocks: &BlockSizes) -> f64 {
        blocks.0.iter().map(|(bytes, share)| *bytes as f64 * share / 100.0).sum()
    }
}
