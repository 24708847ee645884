//! Two primaries: a partition, a promotion behind it, clients that write on both sides, and what becomes of their logs.

use super::{Campaign, LogCounts, LogEffort, LogScenario};
use crate::torture::Failure;
use tidewater_base::Duration;
use tidewater_core::fast::transport::flag;
use tidewater_wire::vendor::Mode;

/// Splits a group in two, with its primary alone on one side, promotes a node on the other side while clients write on
/// both, and heals it; again and again until there have been enough events.
///
/// # Errors
/// The first promise that was broken.
///
/// # Panics
/// When a device asserts something about itself, or the profile makes no drive with a fast side.
pub fn torture_split(scenario: &LogScenario, effort: LogEffort, seed: u64) -> Result<LogCounts, Failure> {
    Campaign::new(scenario, effort, seed).finish(seed, |campaign, place| {
        campaign.begin()?;
        while campaign.counts.events < effort.events {
            campaign.run_for(Duration::from_us(300))?;
            place.event = campaign.counts.events;
            campaign.split()?;
        }
        Ok(())
    })
}

impl Campaign<'_> {
    fn split(&mut self) -> Result<(), String> {
        let nodes = self.bench.cluster.len();
        let lazy = self.scenario.mode == Mode::Lazy;
        let old = self.bench.primary().ok_or("the group has no primary")?;
        self.bench.cluster.partition(&[old]);
        self.run_for(Duration::from_us(self.rng.clone().below(200)))?;
        let new = (old + 1 + self.rng.below(nodes as u64 - 1) as usize) % nodes;
        // The lazy mode's group can't be asked as a whole: the operator says that the others are dead.
        let cid = self.promote(new, lazy)?;
        if !self.run_until(Duration::from_ms(50), |campaign| campaign.bench.answer(new, cid).is_some())? {
            return Err(format!("a promotion was not answered:{}", self.describe()));
        }
        if !self.bench.answer(new, cid).is_some_and(|status| status.is_success()) {
            return Err(format!("a promotion failed behind a partition:{}", self.describe()));
        }
        let credit = |campaign: &Self, node: usize| -> Vec<u64> {
            let lanes = campaign.bench.function(node).map_or(&[][..], |f| f.lanes());
            lanes.iter().map(|lane| lane.credit()).collect()
        };
        let deposed = credit(self, old);
        self.run_for(Duration::from_us(500))?;
        let moved = credit(self, old) != deposed;
        if moved && !lazy {
            return Err(format!(
                "node {old} acknowledged {:?} after {deposed:?} when it was deposed",
                credit(self, old)
            ));
        }
        let ends = |campaign: &Self, node: usize| -> Vec<u64> {
            let lanes = campaign.bench.function(node).map_or(&[][..], |f| f.lanes());
            lanes.iter().map(|lane| lane.released()).collect()
        };
        let before = ends(self, old);
        let start = self.bench.function(new).ok_or("no power was cut")?.transport().persistent().history.last_offsets();
        // Nobody writes while it rejoins, so that its log does not grow again before it is looked at.
        self.bench.writing = false;
        self.bench.cluster.partition(&[]);
        let epoch = self.bench.function(new).ok_or("no power was cut")?.epoch();
        let rejoined = |campaign: &Self| campaign.bench.function(old).is_some_and(|f| f.epoch() == epoch);
        if !self.run_until(Duration::from_ms(50), rejoined)? {
            return Err(format!("the deposed primary does not rejoin:{}", self.describe()));
        }
        let status = self.bench.function(old).ok_or("no power was cut")?.transport().status();
        let reported: u64 = status.cut.iter().sum();
        let divergent: u64 = before.iter().zip(start).map(|(&end, start)| end.saturating_sub(start)).sum();
        if status.flags & flag::DEPOSED == 0 {
            return Err(format!("node {old} does not say that it was deposed:{}", self.describe()));
        }
        // What had been in its queue became persistent meanwhile.
        if reported < divergent || (reported > 0) != (status.flags & flag::CUT != 0) {
            return Err(format!("{divergent} bytes diverged, {reported} are reported:{}", self.describe()));
        }
        let page = self.bench.cluster.device(old).ok_or("no power was cut")?.fast_status(0);
        if page.bytes_cut != reported {
            return Err(format!("the log page tells of {} bytes that were cut, of {reported}", page.bytes_cut));
        }
        self.counts.bytes_cut += reported;
        self.converge()
    }
}
