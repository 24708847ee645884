//! What can happen to memory that a host lends, as a plan: the carrier of accesses asks it at each.

use tidewater_base::{Duration, Rng};

/// What happens at one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// The memory is gone, without a word: this access and all after it find none, until the host lends again.
    Withdrawn,
    /// A unit that is read has been changed; one that is written is changed afterwards.
    Corrupted,
    /// A unit that is written never arrives, and what was there stays, whole and with a good checksum; one that is read
    /// has been exchanged for zeroes.
    Stale,
    /// The answer takes so much longer.
    Slow(Duration),
}

/// The faults of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFaultPlan {
    /// At which access (`Access::serial`, from 1), and what; in any order.
    pub faults: Vec<(u64, HostFault)>,
}

impl HostFaultPlan {
    /// One fault.
    pub fn one(at: u64, fault: HostFault) -> HostFaultPlan {
        HostFaultPlan { faults: vec![(at, fault)] }
    }

    /// A plan of `count` faults of all kinds, spread at random over the first `accesses` accesses.
    pub fn seeded(seed: u64, count: usize, accesses: u64) -> HostFaultPlan {
        let mut rng = Rng::new(seed, b"host memory fault plan");
        let faults = (0..count).map(|_| {
            let fault = match rng.below(8) {
                0 => HostFault::Withdrawn,
                1 | 2 => HostFault::Stale,
                3 | 4 => HostFault::Slow(Duration::from_us(1 + rng.below(5_000))),
                _ => HostFault::Corrupted,
            };
            (1 + rng.below(accesses.max(1)), fault)
        });
        HostFaultPlan { faults: faults.collect() }
    }

    /// What happens at an access.
    pub fn at(&self, serial: u64) -> impl Iterator<Item = HostFault> + '_ {
        self.faults.iter().filter(move |(at, _)| *at == serial).map(|&(_, fault)| fault)
    }
}
