//! How many dirty pages make a block one for the block region.

/// The threshold of migration: fixed, or by how much of the buffer the block region has.
///
/// Dynamic, it doubles with every equal part of the buffer that the block region grows by, from 2 to a whole block: with 64
/// pages in a block and six parts, 2 below a sixth, 4 below a third, and so on to 64. What leaves comes from the block
/// region first, so a workload whose blocks get few pages keeps that region small and the threshold low, and one whose
/// blocks fill up keeps it large and lets only those in that are as full as what is there. Nothing is measured and nothing
/// decays: the state of the buffer is the memory of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Threshold {
    /// As many pages as the profile says.
    Fixed(u32),
    /// By the share of the block region.
    Dynamic {
        /// Steps from 2 to a whole block: the power of two that a block has pages.
        steps: u32,
        /// Pages of a block.
        block: u32,
        /// Pages of the buffer.
        capacity: usize,
    },
}

impl Threshold {
    /// `fixed`: pages, 0 for a dynamic threshold.
    pub fn new(fixed: u32, block: u32, capacity: usize) -> Threshold {
        match fixed {
            0 => Threshold::Dynamic { steps: block.ilog2().max(1), block, capacity: capacity.max(1) },
            pages => Threshold::Fixed(pages.min(block)),
        }
    }

    /// The threshold while the block region has so many dirty pages.
    #[inline]
    pub fn now(self, block_region: usize) -> u32 {
        match self {
            Threshold::Fixed(pages) => pages,
            Threshold::Dynamic { steps, block, capacity } => {
                let step = (steps as usize * block_region / capacity).min(steps as usize - 1);
                (2 << step).min(block)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_as_the_block_region_grows() {
        let threshold = Threshold::new(0, 64, 600);
        let at = [0, 99, 100, 200, 300, 400, 499, 500, 600, 900];
        assert_eq!(at.map(|pages| threshold.now(pages)), [2, 2, 4, 8, 16, 32, 32, 64, 64, 64]);
        assert_eq!([0, 300, 600].map(|pages| Threshold::new(5, 64, 600).now(pages)), [5; 3]);
    }

    #[test]
    fn it_is_no_more_than_a_block() {
        assert_eq!(Threshold::new(100, 64, 600).now(0), 64);
        for block in [1, 2, 3, 6, 100, 65_535] {
            let threshold = Threshold::new(0, block, 1_000);
            let (first, last) = (threshold.now(0), threshold.now(1_000));
            assert!(first == block.min(2) && last <= block && 2 * last >= block, "{block}: {first} to {last}");
        }
    }
}
