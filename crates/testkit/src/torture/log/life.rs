//! Events of a group besides its clients: power that goes and comes, links that fail, promotions.

use super::Campaign;
use super::bench::Touched;
use tidewater_base::{Duration, Instant};
use tidewater_core::fast::transport::flag;
use tidewater_core::power::Remains;
use tidewater_nand::{FaultyNand, Nand};
use tidewater_wire::vendor::Mode;

/// A node without power, and when it has it back.
pub(super) struct Away {
    node: usize,
    back_at: Instant,
    remains: Remains<FaultyNand<Nand>>,
}

/// Simulated time in which a healed group must have become one again: many of the longest retries of 5 ms.
const CONVERGENCE_MAX: Duration = Duration::from_ms(300);

impl Campaign<'_> {
    /// One event, with all that is checked after it.
    ///
    /// # Errors
    /// The promise that was broken.
    pub(super) fn event(&mut self) -> Result<(), String> {
        let began = self.bench.now;
        let touched = loop {
            self.power_comes_back()?;
            let touched = self.bench.step()?;
            if touched != 0 {
                break touched;
            }
            if self.bench.now.since(began) > Duration::from_ms(1_000) {
                return Err(format!("nothing happens any more:{}", self.describe()));
            }
            if self.bench.now.since(began) > Duration::from_ms(1) && self.bench.primary().is_none() {
                // All wait for a primary, and clients in vain: an operator sees to it.
                self.bench.cluster.partition(&[]);
                let node = self.rng.below(self.bench.cluster.len() as u64) as usize;
                self.promote(node, false, None)?;
                break 1 << node;
            }
        };
        self.counts.events += 1;
        self.look(touched)?;
        if self.effort.cut_every > 0 {
            self.dirty |= touched;
            if self.counts.events.is_multiple_of(self.effort.cut_every) {
                let touched = std::mem::take(&mut self.dirty);
                self.cut(touched)?;
            }
        }
        Ok(())
    }

    /// The oracle looks at nodes that something has happened to, and at what clients have read.
    pub(super) fn look(&mut self, touched: Touched) -> Result<(), String> {
        for node in (0..self.bench.cluster.len()).filter(|node| touched & 1 << node != 0) {
            if let Some(function) = self.bench.function(node) {
                self.truth.observe(node, function)?;
            }
        }
        for piece in std::mem::take(&mut self.bench.pieces) {
            let Some(function) = self.bench.function(piece.node) else { continue };
            self.counts.bytes_read += piece.bytes.len() as u64;
            let checked = self.truth.check_bytes(function.epoch().0, piece.lane, piece.offset, &piece.bytes);
            checked.map_err(|what| format!("read on node {}: {what}", piece.node))?;
        }
        Ok(())
    }

    /// Events for a time.
    pub(super) fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.bench.now + time;
        while self.bench.now < end {
            self.event()?;
        }
        Ok(())
    }

    /// Events until something holds. Returns whether it came to hold within the time.
    pub(super) fn run_until(&mut self, time: Duration, holds: impl Fn(&Self) -> bool) -> Result<bool, String> {
        let end = self.bench.now + time;
        while !holds(self) {
            if self.bench.now >= end {
                return Ok(false);
            }
            self.event()?;
        }
        Ok(true)
    }

    /// Everything that has happened to a node up to now is cut before it loses its power for good.
    pub(super) fn lose_power(&mut self, node: usize, back_at: Instant) -> Result<(), String> {
        let all = (1 << self.bench.cluster.len()) - 1;
        self.dirty = 0;
        self.cut(all)?;
        self.count(node);
        self.bench.take_said()?;
        if let Some(remains) = self.bench.cut_power(node) {
            self.counts.losses += 1;
            // Not before it has gone off: destaging on stored energy takes time.
            let back_at = back_at.max(remains.at());
            self.away.push(Away { node, back_at, remains });
        }
        Ok(())
    }

    fn power_comes_back(&mut self) -> Result<(), String> {
        let now = self.bench.now;
        while let Some(place) = self.away.iter().position(|away| away.back_at <= now) {
            let Away { node, remains, .. } = self.away.swap_remove(place);
            self.bench.power_on(node, remains)?;
        }
        Ok(())
    }

    /// Power fails in earnest: of all nodes, of one, or of the primary, in whose place another is promoted.
    pub(super) fn lose_some_power(&mut self) -> Result<(), String> {
        let nodes = self.bench.cluster.len();
        let now = self.bench.now;
        let back_at = now + Duration::from_us(self.rng.below(1_000));
        match if nodes == 1 { 0 } else { self.rng.below(4) } {
            0 => {
                for node in 0..nodes {
                    self.lose_power(node, now)?;
                }
            }
            1 | 2 => {
                let node = self.rng.below(nodes as u64) as usize;
                self.lose_power(node, back_at)?;
            }
            _ => {
                let Some(primary) = self.bench.primary() else { return Ok(()) };
                self.lose_power(primary, back_at)?;
                let successor = (primary + 1 + self.rng.below(nodes as u64 - 1) as usize) % nodes;
                // With its primary dead a lazy group needs the operator's word.
                self.promote(successor, self.scenario.mode == Mode::Lazy, None)?;
            }
        }
        Ok(())
    }

    /// Asks a node to become primary, in a new group if one is given. Returns the command's identifier.
    pub(super) fn promote(&mut self, node: usize, force: bool, group: Option<(&[u8], Mode)>) -> Result<u16, String> {
        let able = self.bench.function(node).is_some();
        let cid = self.bench.promote(node, force, group);
        if able {
            self.counts.promotions += 1;
            self.look(1 << node)?;
            self.dirty |= 1 << node;
        }
        Ok(cid)
    }

    /// Links fail and come back at random, and an operator promotes a node.
    pub(super) fn disturb_links(&mut self) -> Result<(), String> {
        let nodes = self.bench.cluster.len() as u64;
        self.counts.link_faults += 1;
        let (a, b) = (self.rng.below(nodes) as usize, self.rng.below(nodes) as usize);
        match self.rng.below(6) {
            // An operator who does not know what is wrong.
            5 => drop(self.promote(a, false, None)?),
            0 => self.bench.cluster.set_up(a, b, false),
            1 => self.bench.cluster.partition(&[a]),
            2 => self.bench.cluster.partition(&[a, b]),
            _ => self.bench.cluster.partition(&[]),
        }
        Ok(())
    }

    /// Clients stop and links heal: within bounded time all logs of the group are the same.
    ///
    /// # Errors
    /// The remaining differences.
    pub(super) fn converge(&mut self) -> Result<(), String> {
        self.bench.writing = false;
        self.bench.cluster.partition(&[]);
        self.bench.cluster.set_links(self.scenario.links);
        let began = self.bench.now;
        self.away.iter_mut().for_each(|away| away.back_at = began);
        let mut next_step = began + Duration::from_ms(5);
        while !self.is_one() {
            if self.bench.now.since(began) >= CONVERGENCE_MAX {
                return Err(format!("no convergence within {CONVERGENCE_MAX:?}:{}", self.describe()));
            }
            if self.bench.now >= next_step {
                // The operators do what is theirs: trim full rings, and see to it that there is a primary.
                next_step = self.bench.now + Duration::from_ms(25);
                let lanes = self.bench.lanes();
                for lane in 0..lanes {
                    self.bench.trim(lane, u64::MAX);
                }
                let all = (1 << self.bench.cluster.len()) - 1;
                self.dirty |= all;
                self.look(all)?;
                if self.bench.primary().is_none() && self.away.is_empty() {
                    let node = self.rng.below(self.bench.cluster.len() as u64) as usize;
                    self.promote(node, false, None)?;
                }
            }
            self.event()?;
        }
        self.counts.convergence_max = self.counts.convergence_max.max(self.bench.now.since(began));
        let all = (1 << self.bench.cluster.len()) - 1;
        self.cut(all)?;
        let first = self.recovered[0].as_ref().ok_or("node 0 did not come back")?;
        if let Some(node) = self.recovered.iter().position(|r| !r.as_ref().is_some_and(|r| r.agrees(first))) {
            return Err(format!("nodes 0 and {node} say that they are one, and their logs differ"));
        }
        self.bench.writing = true;
        Ok(())
    }

    /// All nodes follow one primary and have all that it has.
    fn is_one(&self) -> bool {
        let Some(primary) = self.bench.primary().and_then(|node| self.bench.function(node)) else {
            return self.bench.cluster.len() == 1 && self.bench.function(0).is_some();
        };
        let ends =
            |f: &tidewater_core::fast::Function| -> Vec<u64> { f.lanes().iter().map(|l| l.released()).collect() };
        let expected = ends(primary);
        primary.lanes().iter().zip(&expected).all(|(lane, &end)| lane.credit() == end)
            && (0..self.bench.cluster.len()).all(|node| {
                self.bench.function(node).is_some_and(|f| {
                    f.epoch() == primary.epoch()
                        && ends(f) == expected
                        && f.transport().status().flags & flag::CATCHING_UP == 0
                })
            })
    }

    /// The state of each node, for messages.
    pub(super) fn describe(&self) -> String {
        let node = |node: usize| match self.bench.function(node) {
            None => format!("\n  node {node}: no power, or it recovers"),
            Some(f) => {
                let status = f.transport().status();
                let lanes: Vec<_> = f.lanes().iter().map(|l| (l.durable(), l.released(), l.credit())).collect();
                format!(
                    "\n  node {node}: {:?}, epoch {}, promised {}, flags {:#b}, log pages {}..{} of {}, lanes \
                     (durable, released, credit) {lanes:?}, {}",
                    status.role,
                    status.epoch,
                    status.promised,
                    status.flags,
                    f.log().head(),
                    f.log().tail(),
                    f.log().count(),
                    f.status(),
                )
            }
        };
        (0..self.bench.cluster.len()).map(node).collect()
    }
}
