//! Two primaries: a partition, a promotion behind it, clients that write on both sides, and what becomes of their logs.

use super::{Campaign, LogCounts, LogEffort, LogScenario};
use crate::torture::Failure;
use tidewater_base::Duration;
use tidewater_core::fast::Lane;
use tidewater_core::fast::transport::flag;
use tidewater_wire::replication::History;
use tidewater_wire::vendor::{Mode, TransportStatus};

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

/// An event around a split, besides the split.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Twist {
    Nothing,
    /// The deposed primary loses its power before it learns that it is deposed.
    OldLosesPower,
    /// All nodes lose their power as soon as it has rejoined, and once more when they have written on.
    AllLosePower,
    /// The others go on without the old primary, as a group of their own.
    NewGroup,
}

impl Campaign<'_> {
    /// The end of each lane as a function's counter says, of a node that has power.
    fn counters(&self, node: usize, counter: impl Fn(&Lane) -> u64) -> Vec<u64> {
        let lanes = self.bench.function(node).map_or(&[][..], |f| f.lanes());
        lanes.iter().map(counter).collect()
    }

    fn split(&mut self) -> Result<(), String> {
        let nodes = self.bench.cluster.len();
        let mode = self.scenario.mode;
        let lazy = mode == Mode::Lazy;
        let twists = [Twist::Nothing, Twist::OldLosesPower, Twist::AllLosePower, Twist::NewGroup];
        let twist = twists[self.rng.below(if lazy { 3 } else { 4 }) as usize];
        let old = self.bench.primary().ok_or("the group has no primary")?;
        self.bench.cluster.partition(&[old]);
        let pause = Duration::from_us(self.rng.below(200));
        self.run_for(pause)?;
        let new = (old + 1 + self.rng.below(nodes as u64 - 1) as usize) % nodes;
        let others: Vec<u8> = (0..nodes).filter(|&node| node != old && node != new).map(|node| node as u8).collect();
        let group = (twist == Twist::NewGroup).then_some((&others[..], Mode::Eager));
        // The lazy mode's group can't be asked as a whole: the operator says that the others are dead.
        self.promote_and_wait(new, lazy, group)?;
        let (deposed, begun) = (self.counters(old, Lane::credit), self.counters(new, Lane::credit));
        self.run_for(Duration::from_us(300))?;
        if twist == Twist::OldLosesPower {
            self.lose_power(old, self.bench.now)?;
            self.run_until(Duration::from_ms(50), |campaign| campaign.bench.function(old).is_some())?;
        }
        self.run_for(Duration::from_us(300))?;
        let credit = self.counters(old, Lane::credit);
        if !lazy && credit.iter().zip(&deposed).any(|(now, then)| now > then) {
            return Err(format!("node {old} acknowledged {credit:?} after {deposed:?} when it was deposed"));
        }
        let continues = twist == Twist::NewGroup || matches!(mode, Mode::Lazy | Mode::Quorum(_));
        // Replicas that lost their power may have to catch up first, at the pace of their flash.
        let moves = |campaign: &Self| campaign.counters(new, Lane::credit) != begun;
        if continues && !self.run_until(Duration::from_ms(20), moves)? {
            return Err(format!("the new primary acknowledges nothing:{}", self.describe()));
        }
        self.rejoin(old, new, twist)?;
        if twist == Twist::AllLosePower {
            for _ in 0..2 {
                (0..nodes).try_for_each(|node| self.lose_power(node, self.bench.now))?;
                self.bench.writing = true;
                self.run_for(Duration::from_us(1_500))?;
            }
        }
        self.converge()
    }

    fn promote_and_wait(&mut self, node: usize, force: bool, group: Option<(&[u8], Mode)>) -> Result<(), String> {
        let cid = self.promote(node, force, group)?;
        self.run_until(Duration::from_ms(50), |campaign| campaign.bench.answer(node, cid).is_some())?;
        match self.bench.answer(node, cid) {
            Some(status) if status.is_success() => Ok(()),
            ended => Err(format!("a promotion of node {node} ended with {ended:?}:{}", self.describe())),
        }
    }

    /// The partition heals: the deposed primary learns of it, says so, and cuts what the new one does not have.
    fn rejoin(&mut self, old: usize, new: usize, twist: Twist) -> Result<(), String> {
        // No client writes meanwhile, so that its log does not grow again before it is looked at.
        self.bench.writing = false;
        self.bench.cluster.partition(&[]);
        let says_so = |campaign: &Self| {
            campaign.bench.cluster.device(old).is_some_and(|d| d.control_page(0).status.has(TransportStatus::DEPOSED))
        };
        if !self.run_until(Duration::from_ms(50), says_so)? {
            return Err(format!("node {old} does not say that it was deposed:{}", self.describe()));
        }
        if twist == Twist::NewGroup {
            let nodes = self.bench.cluster.len();
            let others: Vec<u8> = (0..nodes).filter(|&node| node != new).map(|node| node as u8).collect();
            self.promote_and_wait(new, false, Some((&others, self.scenario.mode)))?;
        }
        let before = self.counters(old, Lane::released);
        let of_new = self.bench.function(new).ok_or("no power was cut")?;
        let epoch = of_new.epoch();
        let history = of_new.transport().persistent().history.clone();
        let rejoined = |campaign: &Self| campaign.bench.function(old).is_some_and(|f| f.epoch() == epoch);
        let own = self.bench.function(old).ok_or("no power was cut")?.transport().persistent().history.clone();
        let common = history.common(&own).map(|(there, _)| there);
        if !self.run_until(Duration::from_ms(50), rejoined)? {
            return Err(format!("the deposed primary does not rejoin:{}", self.describe()));
        }
        let status = self.bench.function(old).ok_or("no power was cut")?.transport().status();
        let reported: u64 = status.cut.iter().sum();
        if !rejoined_before(&own, epoch.0) {
            let place = common.ok_or("the primaries share no epoch")?;
            let kept = |lane: usize| history.end(place, lane).unwrap_or(u64::MAX);
            let divergent: u64 = (0..).zip(&before).map(|(lane, &end)| end.saturating_sub(kept(lane))).sum();
            // What was in its queue may have become persistent meanwhile.
            if reported < divergent {
                return Err(format!("{divergent} bytes diverged, {reported} are reported:{}", self.describe()));
            }
        }
        if (reported > 0) != (status.flags & flag::CUT != 0) {
            return Err(format!("{reported} bytes were cut, and the flags are {:#b}", status.flags));
        }
        let page = self.bench.cluster.device(old).ok_or("no power was cut")?.fast_status(0);
        if page.bytes_cut != reported {
            return Err(format!("the log page tells of {} bytes that were cut, of {reported}", page.bytes_cut));
        }
        self.counts.bytes_cut += reported;
        Ok(())
    }
}

/// Whether a history is in an epoch already.
fn rejoined_before(history: &History, epoch: u64) -> bool {
    history.last().0 == epoch
}
