//! What the scheduler counts.

use super::{Kind, SOURCES, Source};
use tidewater_base::Duration;

/// Where a die's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieTime {
    /// Array reads, retries included.
    pub read: Duration,
    /// Programs.
    pub program: Duration,
    /// Erases.
    pub erase: Duration,
    /// Suspending and resuming.
    pub suspend: Duration,
}

impl DieTime {
    pub(super) fn spend(&mut self, kind: Kind, time: Duration) {
        *self.of(kind) += time;
    }

    pub(super) fn give_back(&mut self, kind: Kind, time: Duration) {
        let spent = self.of(kind);
        *spent = spent.saturating_sub(time);
    }

    fn of(&mut self, kind: Kind) -> &mut Duration {
        match kind {
            Kind::Read => &mut self.read,
            Kind::Program => &mut self.program,
            Kind::Erase => &mut self.erase,
        }
    }

    /// All of it.
    pub fn busy(self) -> Duration {
        self.read + self.program + self.erase + self.suspend
    }
}

/// Operations by kind and source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashStatistics {
    /// Operations by [`Source`].
    pub operations: [u64; SOURCES],
    /// Units that crossed a bus, by [`Source`]; programs count the whole row.
    pub units: [u64; SOURCES],
    /// Suspensions of programs and erases.
    pub suspensions: u64,
    /// Read retries.
    pub read_retries: u64,
    /// Reads that ECC gave up on.
    pub uncorrectable: u64,
}

impl FlashStatistics {
    pub(super) fn count(&mut self, source: Source, units: u8) {
        self.operations[source as usize] += 1;
        self.units[source as usize] += u64::from(units);
    }

    /// Operations of one source.
    pub fn operations_of(&self, source: Source) -> u64 {
        self.operations[source as usize]
    }

    /// Units of one source.
    pub fn units_of(&self, source: Source) -> u64 {
        self.units[source as usize]
    }
}
