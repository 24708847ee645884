//! Faults of what a device sends to its peers, for tests.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// Faults of frames that a device sends, by seed. Tests set it; no option of the command line does.
#[derive(Debug, Default)]
pub struct Faults {
    /// Seed of every choice.
    pub(super) seed: u64,
    /// Frames that are lost, in percent.
    pub(super) drop: u8,
    /// Frames that are sent twice, in percent.
    pub(super) repeat: u8,
    /// Frames come later by up to this, each by another time: they overtake each other.
    pub(super) delay: Duration,
    /// A bit for each node that no frame leaves for.
    pub(super) cut: AtomicU16,
    pub(super) dropped: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) delayed: AtomicU64,
}

impl Faults {
    /// Faults by a seed, in percent of frames, and the longest delay.
    pub fn new(seed: u64, drop: u8, repeat: u8, delay: Duration) -> Faults {
        Faults { seed, drop, repeat, delay, ..Faults::default() }
    }

    /// Cuts one direction of a link, from this device to a node, or heals it.
    pub fn cut(&self, node: u8, is_cut: bool) {
        let bit = 1u16.checked_shl(node.into()).unwrap_or(0);
        if is_cut {
            self.cut.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.cut.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Frames that were lost, repeated and delayed.
    pub fn fired(&self) -> [u64; 3] {
        [&self.dropped, &self.repeated, &self.delayed].map(|count| count.load(Ordering::Relaxed))
    }
}
