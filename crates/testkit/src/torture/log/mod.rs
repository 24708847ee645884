//! Torture of the fast side: the power fails after every event, and the logs that come back are held against what was
//! written and what was credited. One drive alone, or a group of them with links that fail.

mod bench;
mod cuts;
mod life;
mod reader;
mod scenarios;
mod split;
mod truth;
mod writer;

pub use scenarios::{LogScenario, group_scenarios, log_scenarios};
pub use split::torture_split;

use super::{Failure, Place};
use bench::Bench;
use cuts::Recovered;
use life::Away;
use std::collections::HashSet;
use std::fmt;
use tidewater_base::{Duration, Rng};
use tidewater_core::fast::Flaw;
use tidewater_core::flaw::Injected;
use tidewater_sim::cluster::LinkModel;
use truth::Truth;

/// Totals of a campaign.
#[derive(Clone, Debug, Default)]
pub struct LogCounts {
    /// Events.
    pub events: u64,
    /// Power cuts of everything, after events.
    pub cuts: u64,
    /// Nodes that were brought back for that: those that something had happened to since they last were.
    pub recoveries: u64,
    /// Power cuts during a recovery.
    pub nested_cuts: u64,
    /// Different logs that came back, of all nodes together.
    pub states: HashSet<u64>,
    /// Nodes that lost their power in earnest, and lived on.
    pub losses: u64,
    /// Promotions that were asked for.
    pub promotions: u64,
    /// Bytes that a rejoin has cut.
    pub bytes_cut: u64,
    /// Links that failed or healed.
    pub link_faults: u64,
    /// Bytes taken from hosts and peers.
    pub bytes: u64,
    /// Bytes that clients read, on whatever node, and that were checked.
    pub bytes_read: u64,
    /// Pages destaged, and of these partial ones.
    pub pages: (u64, u64),
    /// The most times that an LBA ring went round.
    pub turns: u64,
    /// The longest simulated time that a healed group took to become one.
    pub convergence_max: Duration,
    /// The most joules that a cut took.
    pub energy_max: f64,
}

impl LogCounts {
    /// Adds another campaign's counts.
    pub fn add(&mut self, other: LogCounts) {
        self.events += other.events;
        self.cuts += other.cuts;
        self.recoveries += other.recoveries;
        self.nested_cuts += other.nested_cuts;
        self.states.extend(other.states);
        self.losses += other.losses;
        self.promotions += other.promotions;
        self.bytes_cut += other.bytes_cut;
        self.link_faults += other.link_faults;
        self.bytes += other.bytes;
        self.bytes_read += other.bytes_read;
        self.pages = (self.pages.0 + other.pages.0, self.pages.1 + other.pages.1);
        self.turns = self.turns.max(other.turns);
        self.convergence_max = self.convergence_max.max(other.convergence_max);
        self.energy_max = self.energy_max.max(other.energy_max);
    }
}

impl fmt::Display for LogCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events, {} cuts, {} recoveries, {} nested cuts, {} distinct logs, {} losses, {} promotions, \
             {} bytes cut, {} link faults, {} bytes, {} read, {} pages ({} partial), {} turns of the LBA ring, \
             one again in {:.1} ms, at most {:.4} J",
            self.events,
            self.cuts,
            self.recoveries,
            self.nested_cuts,
            self.states.len(),
            self.losses,
            self.promotions,
            self.bytes_cut,
            self.link_faults,
            self.bytes,
            self.bytes_read,
            self.pages.0,
            self.pages.1,
            self.turns,
            self.convergence_max.as_secs_f64() * 1e3,
            self.energy_max
        )
    }
}

/// How thorough a campaign of the fast side is.
#[derive(Clone, Copy, Debug)]
pub struct LogEffort {
    /// Events of the run.
    pub events: u64,
    /// The power of everything is cut after every so many events. 0: never.
    pub cut_every: u64,
    /// In every so many recoveries the power is cut again. 0: never.
    pub nested_every: u64,
    /// After every so many events of such a recovery.
    pub nested_stride: u64,
    /// After so many events nodes lose their power in earnest, and come back. 0: never.
    pub life: u64,
    /// After so many events a link fails or heals. 0: never.
    pub disturb: u64,
    /// Drives that are broken on purpose until they lose their power, to see that it is noticed.
    pub flaw: Injected<Flaw>,
}

impl LogEffort {
    /// A cut after every event, a sample of everything else.
    pub fn sampled(events: u64) -> LogEffort {
        let flaw = Injected::NONE;
        LogEffort { events, cut_every: 1, nested_every: 200, nested_stride: 5, life: 500, disturb: 0, flaw }
    }

    /// As [`LogEffort::sampled`], and at every event of every recovery.
    pub fn exhaustive(events: u64) -> LogEffort {
        LogEffort { nested_every: 1, nested_stride: 1, ..LogEffort::sampled(events) }
    }

    /// Links that fail all the time, power that fails now and then, and a sample of cuts.
    pub fn links(events: u64) -> LogEffort {
        LogEffort { cut_every: 20, life: 2_000, disturb: 250, ..LogEffort::sampled(events) }
    }
}

/// One scenario under torture.
struct Campaign<'a> {
    scenario: &'a LogScenario,
    effort: LogEffort,
    bench: Bench<'a>,
    truth: Truth,
    /// State of each node after its last power cut.
    recovered: Vec<Option<Recovered>>,
    /// Nodes that something has happened to since.
    dirty: u32,
    away: Vec<Away>,
    counts: LogCounts,
    rng: Rng,
}

/// Tortures the fast side of a scenario's drives. The same scenario, effort and seed do the same again.
///
/// # Errors
/// The first promise that was broken.
///
/// # Panics
/// When a device asserts something about itself, or the profile makes no drive with a fast side.
pub fn torture_log(scenario: &LogScenario, effort: LogEffort, seed: u64) -> Result<LogCounts, Failure> {
    Campaign::new(scenario, effort, seed).finish(seed, |campaign, place| {
        campaign.begin()?;
        while campaign.counts.events < effort.events {
            campaign.event()?;
            let event = campaign.counts.events;
            place.event = event;
            if effort.disturb > 0 && event % effort.disturb == 0 {
                campaign.disturb_links()?;
            }
            if effort.life > 0 && event % effort.life == 0 {
                campaign.lose_some_power()?;
            }
        }
        campaign.converge()
    })
}

impl<'a> Campaign<'a> {
    fn new(scenario: &'a LogScenario, effort: LogEffort, seed: u64) -> Campaign<'a> {
        let bench = Bench::new(scenario, effort.flaw, seed);
        let truth = Truth::new(scenario.nodes, bench.lanes());
        Campaign {
            scenario,
            effort,
            bench,
            truth,
            recovered: vec![None; scenario.nodes],
            dirty: 0,
            away: Vec::new(),
            counts: LogCounts::default(),
            rng: Rng::new(seed, b"log torture"),
        }
    }

    /// Makes the nodes a group, if they are several, and brings them all into the first cut.
    fn begin(&mut self) -> Result<(), String> {
        if self.scenario.nodes > 1 {
            // A log from before the group becomes the group's.
            for _ in 0..50 {
                self.event()?;
            }
            if let Some(primary) = self.bench.function(0) {
                self.truth.begin_group(primary);
            }
            self.bench.set_up_group(0, self.scenario.mode)?;
            self.look((1 << self.scenario.nodes) - 1)?;
        }
        if self.effort.disturb > 0 {
            self.bench.cluster.set_links(LinkModel {
                drop: 0.05,
                duplicate: 0.1,
                jitter: Duration::from_us(20),
                ..self.scenario.links
            });
        }
        self.dirty = (1 << self.scenario.nodes) - 1;
        Ok(())
    }

    /// Runs a campaign, and says where it ended if it did not end well.
    fn finish(
        mut self,
        seed: u64,
        run: impl FnOnce(&mut Self, &mut Place<'_>) -> Result<(), String>,
    ) -> Result<LogCounts, Failure> {
        let name = self.scenario.name();
        let mut place = Place { scenario: name, seed, event: 0 };
        let ended = run(&mut self, &mut place);
        let event = self.counts.events;
        ended.map_err(|what| Failure { scenario: name.into(), seed, event, what })?;
        (0..self.bench.cluster.len()).for_each(|node| self.count(node));
        Ok(self.counts)
    }

    /// Takes a node's counters, which a power loss resets.
    fn count(&mut self, node: usize) {
        let Some(function) = self.bench.function(node) else { return };
        for lane in function.lanes() {
            self.counts.pages.0 += lane.statistics.pages;
            self.counts.pages.1 += lane.statistics.partial_pages;
            self.counts.bytes += lane.statistics.bytes;
        }
        self.counts.turns = self.counts.turns.max(function.log().tail() / u64::from(function.log().count()));
    }
}
