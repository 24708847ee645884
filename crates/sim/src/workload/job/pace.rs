//! When requests of a limited job are issued.

use tidewater_base::Instant;

/// Rate limits of reads, writes and trims; unless they are `apart`, the first limits all of them together.
#[derive(Clone)]
pub(super) struct Pace {
    /// Bytes per second.
    pub rate: [Option<u64>; 3],
    /// Requests per second.
    pub rate_iops: [Option<u64>; 3],
    /// Bytes so far.
    pub bytes: [u64; 3],
    /// Requests so far.
    pub count: [u64; 3],
    /// Each kind keeps to its own rate.
    pub apart: bool,
    /// When the last request was issued.
    pub last: Instant,
}

impl Pace {
    /// Where the rates of this kind stand.
    pub fn lane(&self, kind: usize) -> usize {
        if self.apart { kind } else { 0 }
    }

    /// When the next request of this kind may be issued; `None`: beyond 106 days.
    pub fn due(&self, kind: usize) -> Option<Instant> {
        let at = self.lane(kind);
        let scale = |amount: u64, rate: u64| u128::from(amount) * 1_000_000_000_000 / u128::from(rate);
        let by_bytes = self.rate[at].map_or(0, |rate| scale(self.bytes[at], rate));
        let by_count = self.rate_iops[at].map_or(0, |rate| scale(self.count[at], rate));
        u64::try_from(by_bytes.max(by_count)).ok().filter(|&ps| ps < u64::MAX / 2).map(Instant::from_ps)
    }
}
