//! Faults as middleware: a wrapper over any medium that makes chosen operations fail.

use crate::{Block, Config, Failed, Medium, Page, PageHeader, Read, Stamp};
use std::sync::Arc;
use tidewater_base::Instant;

/// A fault of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The nth program since power-on fails (counting from 0).
    ProgramFails {
        /// Which one.
        nth: u64,
    },
    /// The nth erase fails.
    EraseFails {
        /// Which one.
        nth: u64,
    },
    /// The nth page read can't be corrected.
    ReadUncorrectable {
        /// Which one.
        nth: u64,
    },
    /// The nth page read needs this many retries.
    ReadRetries {
        /// Which one.
        nth: u64,
        /// Retries.
        retries: u32,
    },
}

/// The faults to inject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// In any order.
    pub faults: Vec<Fault>,
}

impl FaultPlan {
    /// A plan of `count` faults of all kinds, spread at random over the first `operations` operations of each kind.
    pub fn seeded(seed: u64, count: usize, operations: u64) -> FaultPlan {
        let mut rng = tidewater_base::Rng::new(seed, b"fault plan");
        let faults = (0..count)
            .map(|_| {
                let nth = rng.below(operations.max(1));
                match rng.below(4) {
                    0 => Fault::ProgramFails { nth },
                    1 => Fault::EraseFails { nth: nth / 64 },
                    2 => Fault::ReadUncorrectable { nth },
                    _ => Fault::ReadRetries { nth, retries: 1 + rng.below(3) as u32 },
                }
            })
            .collect();
        FaultPlan { faults }
    }

    /// The same plan without reads that can't be corrected, for runs in which no data may be lost.
    pub fn recoverable(mut self) -> FaultPlan {
        self.faults.retain(|f| !matches!(f, Fault::ReadUncorrectable { .. }));
        self
    }
}

/// A medium with faults.
#[derive(Clone, Debug)]
pub struct FaultyNand<M> {
    inner: M,
    plan: FaultPlan,
    programs: u64,
    erases: u64,
    reads: u64,
    grown_bad: Vec<Block>,
}

impl<M: Medium> FaultyNand<M> {
    /// Wraps `inner`.
    pub fn new(inner: M, plan: FaultPlan) -> FaultyNand<M> {
        FaultyNand { inner, plan, programs: 0, erases: 0, reads: 0, grown_bad: Vec::new() }
    }
}

impl<M: Medium> Medium for FaultyNand<M> {
    fn config(&self) -> &Config {
        self.inner.config()
    }

    fn program(&mut self, at: Block, page: u32, content: &Page<'_>) -> Result<(), Failed> {
        let nth = self.programs;
        self.programs += 1;
        if self.plan.faults.contains(&Fault::ProgramFails { nth }) {
            self.inner.tear_program(at, page);
            self.grown_bad.push(at);
            return Err(Failed);
        }
        self.inner.program(at, page, content)
    }

    fn preset(&mut self, at: Block, page: u32, content: &Page<'_>) {
        self.inner.preset(at, page, content);
    }

    fn read(&mut self, at: Block, page: u32) -> Read {
        let nth = self.reads;
        self.reads += 1;
        let mut read = self.inner.read(at, page);
        for fault in &self.plan.faults {
            match *fault {
                Fault::ReadUncorrectable { nth: n } if n == nth => read.uncorrectable = true,
                Fault::ReadRetries { nth: n, retries } if n == nth => read.retries += retries,
                _ => {}
            }
        }
        read
    }

    #[inline]
    fn set_time(&mut self, now: Instant) {
        self.inner.set_time(now);
    }

    fn erase(&mut self, at: Block) -> Result<(), Failed> {
        if self.grown_bad.contains(&at) {
            return Err(Failed);
        }
        let nth = self.erases;
        self.erases += 1;
        self.inner.erase(at)?;
        if self.plan.faults.contains(&Fault::EraseFails { nth }) {
            self.grown_bad.push(at);
            return Err(Failed);
        }
        Ok(())
    }

    fn tear_program(&mut self, at: Block, page: u32) {
        self.inner.tear_program(at, page);
    }

    fn tear_erase(&mut self, at: Block) {
        self.inner.tear_erase(at);
    }

    fn lpn(&self, at: Block, page: u32, unit: u32) -> u32 {
        self.inner.lpn(at, page, unit)
    }

    fn lpns(&self, at: Block, page: u32) -> &[u32] {
        self.inner.lpns(at, page)
    }

    fn stamp(&self, at: Block, page: u32, unit: u32) -> Option<Stamp> {
        self.inner.stamp(at, page, unit)
    }

    fn header(&self, at: Block, page: u32) -> Option<PageHeader> {
        self.inner.header(at, page)
    }

    fn own_payload(&self, at: Block, page: u32) -> Option<Arc<[u32]>> {
        self.inner.own_payload(at, page)
    }

    fn programmed(&self, at: Block) -> u32 {
        self.inner.programmed(at)
    }

    fn erase_count(&self, at: Block) -> u32 {
        self.inner.erase_count(at)
    }

    fn is_bad(&self, at: Block) -> bool {
        self.grown_bad.contains(&at) || self.inner.is_bad(at)
    }

    fn is_factory_bad(&self, at: Block) -> bool {
        self.inner.is_factory_bad(at)
    }

    fn is_torn(&self, at: Block) -> bool {
        self.inner.is_torn(at)
    }

    fn set_erase_count(&mut self, at: Block, erases: u32) {
        self.inner.set_erase_count(at, erases);
    }
}
