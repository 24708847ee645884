//! Transports over logs in memory and a network that loses, repeats, reorders and delays frames, and what must hold
//! after every step.

mod durable;
mod flush;
mod late;
mod leader;
mod memory;
mod model;
mod network;
mod rate;
mod scenarios;
mod torture;

use super::*;
use std::collections::BTreeMap;
use tidewater_base::Duration;
use tidewater_wire::replication::History;

/// A unit of log: a number that is written once, so that equal means the same write.
type Unit = u32;

/// Units that a lane's queue takes past its counter.
const WINDOW: u64 = 64;
/// Units that stay in the ring.
const RING: u64 = 96;
/// Units of a page.
const PAGE: u64 = 16;

#[derive(Clone, Debug, Default)]
struct MemLane {
    base: u64,
    units: Vec<Unit>,
    queue: BTreeMap<u64, Unit>,
}

/// A log in memory. What is accepted waits in a queue until it is drained.
#[derive(Clone, Debug)]
struct MemLog {
    lanes: Vec<MemLane>,
    /// The units of the data frame at hand, and the offset of the first.
    incoming: (u64, Vec<Unit>),
    /// A deliberate flaw: the queue survives a truncation.
    keeps_queue: bool,
    /// For each lane what the backing store has synced, where that is what counts as flash.
    flushed: Option<Vec<u64>>,
}

impl MemLog {
    fn new(lanes: usize) -> MemLog {
        MemLog { lanes: vec![MemLane::default(); lanes], incoming: (0, Vec::new()), keeps_queue: false, flushed: None }
    }

    fn get(&self, lane: usize, offset: u64) -> Option<Unit> {
        let lane = &self.lanes[lane];
        lane.units.get(usize::try_from(offset.checked_sub(lane.base)?).ok()?).copied()
    }

    fn write(&mut self, lane: usize, units: impl Iterator<Item = Unit>) {
        self.lanes[lane].units.extend(units);
    }

    /// Moves up to `most` contiguous units out of the queue; whether any moved.
    fn drain(&mut self, lane: usize, most: usize) -> bool {
        let mut moved = false;
        for _ in 0..most {
            let end = self.persisted(lane);
            let lane = &mut self.lanes[lane];
            lane.queue = lane.queue.split_off(&end);
            let Some(unit) = lane.queue.remove(&end) else { break };
            lane.units.push(unit);
            moved = true;
        }
        moved
    }

    /// The host frees what is below `to`.
    fn trim(&mut self, lane: usize, to: u64) {
        let lane = &mut self.lanes[lane];
        lane.units.drain(..(to - lane.base) as usize);
        lane.base = to;
    }

    fn read(&self, lane: usize, offset: u64, len: u32, source: Source) -> Vec<Unit> {
        match source {
            Source::Ring => assert!(offset >= self.in_ring_from(lane), "{offset} has left the ring"),
            Source::Page { sequence, skip } => {
                let page = self.page_at(lane, offset).expect("the page is there");
                assert!(page.sequence == sequence && page.offset + u64::from(skip) == offset);
                assert!(skip + len <= page.len);
            }
        }
        (offset..offset + u64::from(len)).map(|at| self.get(lane, at).expect("only stable bytes travel")).collect()
    }
}

impl LocalLog for MemLog {
    fn persisted(&self, lane: usize) -> u64 {
        self.lanes[lane].base + self.lanes[lane].units.len() as u64
    }

    /// Whole pages are on flash.
    fn destaged(&self, lane: usize) -> u64 {
        if let Some(flushed) = &self.flushed {
            return flushed[lane];
        }
        (self.persisted(lane) / PAGE * PAGE).max(self.lanes[lane].base)
    }

    fn ring_survives(&self) -> bool {
        true
    }

    fn oldest(&self, lane: usize) -> u64 {
        self.lanes[lane].base
    }

    fn in_ring_from(&self, lane: usize) -> u64 {
        self.persisted(lane).saturating_sub(RING).max(self.lanes[lane].base)
    }

    fn page_at(&self, lane: usize, offset: u64) -> Option<PageRef> {
        let (sequence, base) = (offset / PAGE, self.lanes[lane].base);
        let start = (sequence * PAGE).max(base);
        let whole = offset >= base && (sequence + 1) * PAGE <= self.persisted(lane);
        whole.then(|| PageRef { sequence, offset: start, len: ((sequence + 1) * PAGE - start) as u32 })
    }

    fn window(&self) -> u32 {
        WINDOW as u32
    }

    fn accept(&mut self, lane: usize, offset: u64, len: u32) -> bool {
        let end = self.persisted(lane);
        if offset + u64::from(len) > end + WINDOW {
            return false;
        }
        for at in offset.max(end)..offset + u64::from(len) {
            let unit = self.incoming.1[(at - self.incoming.0) as usize];
            self.lanes[lane].queue.insert(at, unit);
        }
        true
    }

    fn truncate(&mut self, lane: usize, to: u64) {
        assert!(to <= self.persisted(lane), "a log is never cut to more than it has");
        let (keeps_queue, at) = (self.keeps_queue, lane);
        let lane = &mut self.lanes[lane];
        lane.units.truncate(to.saturating_sub(lane.base) as usize);
        lane.base = lane.base.min(to);
        if let Some(flushed) = &mut self.flushed {
            flushed[at] = flushed[at].min(to);
        }
        if !keeps_queue {
            lane.queue.clear();
        }
    }

    fn restart(&mut self, lane: usize, at: u64) {
        self.lanes[lane] = MemLane { base: at, ..MemLane::default() };
    }
}
