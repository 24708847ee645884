//! A client of a lane: stores pieces of its stream in any order within its credit, and polls the credit counter.

use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::fast::{Setup, bar};

/// The byte at an offset of a lane's stream, as written in an epoch.
pub(super) fn byte(lane: usize, epoch: u64, offset: u64) -> u8 {
    let mixed = (offset ^ (lane as u64) << 50 ^ epoch.wrapping_mul(0x9e37_79b9)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 56) as u8
}

/// What a writer does next.
pub(super) enum Action {
    /// A store at an address of BAR2.
    Store { address: u64, offset: u64, len: u32 },
    /// A read of the credit counter.
    ReadCredit,
    /// The host needs nothing before this offset any more.
    Trim { offset: u64 },
}

/// One writer.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    rng: Rng,
    pub(super) lane: usize,
    /// The end of what it has decided to write.
    written: u64,
    /// Pieces that it has not stored yet.
    pending: Vec<(u64, u32)>,
    /// The credit counter as it last read it.
    pub(super) credit: u64,
    pub(super) next_at: Instant,
    trimmed: u64,
}

impl Writer {
    pub(super) fn new(lane: usize, start: u64, now: Instant, seed: u64) -> Writer {
        let rng = Rng::new(seed, b"log writer");
        Writer { rng, lane, written: start, pending: Vec::new(), credit: start, next_at: now, trimmed: start }
    }

    /// Its next action, and when the one after that comes.
    pub(super) fn act(&mut self, now: Instant, setup: &Setup) -> Action {
        let pause = if self.rng.below(50) == 0 { 400_000 } else { 300 };
        self.next_at = now + Duration::from_ns(1 + self.rng.below(pause));
        if self.pending.is_empty() && self.rng.below(3) > 0 {
            let room = self.credit + setup.queue_size - self.written;
            if room > 0 {
                self.cut_up(1 + self.rng.clone().below(room));
            }
        }
        if !self.pending.is_empty() {
            let chosen = self.rng.below(self.pending.len() as u64) as usize;
            let (offset, len) = self.pending.swap_remove(chosen);
            return Action::Store { address: bar::ring_address(setup, self.lane, offset), offset, len };
        }
        if self.rng.below(40) == 0 && self.credit > self.trimmed {
            self.trimmed += self.rng.below(self.credit - self.trimmed + 1);
            return Action::Trim { offset: self.trimmed };
        }
        Action::ReadCredit
    }

    /// Cuts the next bytes into pieces of at most a line, none across the end of the window.
    fn cut_up(&mut self, mut len: u64) {
        while len > 0 {
            let line = 64 - self.written % 64;
            let piece = (1 + self.rng.below(64)).min(line).min(len);
            self.pending.push((self.written, piece as u32));
            self.written += piece;
            len -= piece;
        }
    }
}
