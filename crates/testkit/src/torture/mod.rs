//! Torture: a random workload on a tiny drive that loses its power after every event.
//!
//! A [`Campaign`] drives a device event by event. After each event a clone of the device loses its power and comes
//! back, and an [`Oracle`] that knows what the host was promised looks at every page. The recovery loses its power too,
//! at every one of its events; what has come back must go on working; and now and then the campaign itself goes on with
//! a recovered drive instead of the one that never lost its power.

mod host;
mod lent;
mod log;
mod scenario;

pub use host::Mix;
pub use lent::{LentCounts, LentEffort, lent_scenarios, torture_lent};
pub use log::{LogCounts, LogEffort, LogScenario, group_scenarios, log_scenarios, torture_log, torture_split};
pub use scenario::{
    Scenario, all_scenarios, buffer_scenarios, cbm_scenarios, fragile, hybrid_scenarios, mapping_scenarios,
    slc_scenarios, with_hybrid_mapping, with_mapping_cache, worn_out,
};

use host::Host;
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use tidewater_base::{Instant, Rng};
use tidewater_core::device::{Device, Input, Options};
use tidewater_core::flaw::Injected;
use tidewater_core::ftl::{Entry, Flaw};
use tidewater_core::power::{Remains, buffer_energy_needed};
use tidewater_nand::{FaultyNand, Nand};
use tidewater_sim::host_memory::LentMemory;
use tidewater_sim::oracle::{Content, Durability, Oracle};

/// The device that is tortured: its medium can be made to fail.
pub type Victim = Device<FaultyNand<Nand>>;

/// Events after which a recovery, or a drive that is only asked to come to rest, counts as hanging.
const EVENTS_MAX: u64 = 2_000_000;

/// How thorough a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Events (submissions and timers) of the workload, besides the warm-up.
    pub events: u64,
    /// Events before the first cut, so that the flash is full and collection runs.
    pub warm_up: u64,
    /// The power is cut after every so many events.
    pub cut_every: u64,
    /// In every so many recoveries, the power is cut at events of the recovery too. 0: never.
    pub nested_every: u64,
    /// In such a recovery, cuts come after every so many of its events.
    pub nested_stride: u64,
    /// After every so many recoveries the recovered drive must go on working, and survive another cut. 0: never.
    pub aftermath_every: u64,
    /// After so many events the campaign goes on with a drive that lost its power. 0: never.
    pub life: u64,
    /// A recovery that is broken on purpose, to see that it is noticed.
    pub flaw: Injected<Flaw>,
}

impl Effort {
    /// A cut after every event, a sample of everything else: seconds.
    pub fn sampled(events: u64) -> Effort {
        Effort {
            events,
            warm_up: 0,
            cut_every: 1,
            nested_every: 50,
            nested_stride: 7,
            aftermath_every: 25,
            life: 1_000,
            flaw: Injected::NONE,
        }
    }

    /// A cut after every event of a drive that collects, and at every event of every recovery: minutes for a few
    /// hundred.
    pub fn exhaustive(events: u64) -> Effort {
        Effort {
            events,
            warm_up: 3_000,
            cut_every: 1,
            nested_every: 1,
            nested_stride: 1,
            aftermath_every: 1,
            life: 1_000,
            flaw: Injected::NONE,
        }
    }
}

/// Totals of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Events of the workload.
    pub events: u64,
    /// Power cuts during the workload.
    pub cuts: u64,
    /// Power cuts during a recovery.
    pub nested_cuts: u64,
    /// Recovered drives that were made to work on, and cut again.
    pub aftermaths: u64,
    /// Commands completed in the workload and the aftermaths.
    pub commands: u64,
    /// Reads and compares whose content was checked against the oracle.
    pub reads_checked: u64,
    /// Drives that came back, by what all their pages hold.
    pub states: HashSet<u64>,
    /// Superblocks collected in the workload.
    pub collections: u64,
    /// Superblocks of an SLC cache that were folded in the workload.
    pub folds: u64,
    /// Merges by kind in the workload, where the mapping is hybrid: switch, partial, full.
    pub merges: [u64; 3],
    /// Pages that were isolated in the workload, where the mapping is FASTer's.
    pub isolated: u64,
    /// Pages that left the write buffer for flash in the workload.
    pub destaged: u64,
    /// Collections for wear levelling in the workload.
    pub wear_moves: u64,
    /// Units of the map's checkpoints and the deallocation log that were programmed in the workload.
    pub map_units: u64,
    /// Programs and erases that failed in the workload.
    pub failures: u64,
    /// The most joules that a dump of a write buffer took.
    pub dump_energy_max: f64,
    /// The drive went read-only.
    pub read_only: bool,
}

impl Counts {
    /// Adds another campaign's counts.
    pub fn add(&mut self, other: Counts) {
        self.events += other.events;
        self.cuts += other.cuts;
        self.nested_cuts += other.nested_cuts;
        self.aftermaths += other.aftermaths;
        self.commands += other.commands;
        self.reads_checked += other.reads_checked;
        self.states.extend(other.states);
        self.collections += other.collections;
        self.folds += other.folds;
        (0..3).for_each(|kind| self.merges[kind] += other.merges[kind]);
        self.isolated += other.isolated;
        self.destaged += other.destaged;
        self.wear_moves += other.wear_moves;
        self.map_units += other.map_units;
        self.failures += other.failures;
        self.dump_energy_max = self.dump_energy_max.max(other.dump_energy_max);
        self.read_only |= other.read_only;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events, {} cuts, {} nested cuts, {} distinct states, {} aftermaths, {} commands, {} reads checked, \
             {} destaged, {} collections, {} folds, merges {:?}, {} isolated, {} for wear, {} map units, {} failed \
             operations, {:.4} J for a dump{}",
            self.events,
            self.cuts,
            self.nested_cuts,
            self.states.len(),
            self.aftermaths,
            self.commands,
            self.reads_checked,
            self.destaged,
            self.collections,
            self.folds,
            self.merges,
            self.isolated,
            self.wear_moves,
            self.map_units,
            self.failures,
            self.dump_energy_max,
            if self.read_only { ", read-only in the end" } else { "" }
        )
    }
}

/// A promise that was broken: what, and how to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The event of the workload.
    pub event: u64,
    /// The failure there.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with seed {}, event {}: {}", self.scenario, self.seed, self.event, self.what)
    }
}

impl std::error::Error for Failure {}

/// Says where a panic inside the device happened.
struct Place<'a> {
    scenario: &'a str,
    seed: u64,
    event: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("panic in {} with seed {}, event {}", self.scenario, self.seed, self.event);
        }
    }
}

/// One scenario under torture.
#[derive(Debug)]
pub struct Campaign<'a> {
    scenario: &'a Scenario,
    effort: Effort,
    durability: Durability,
    counts: Counts,
    rng: Rng,
}

/// Tortures a scenario. The same scenario, effort and seed do the same again.
///
/// # Errors
/// The first promise that was broken.
///
/// # Panics
/// When the device asserts something about itself, or the scenario's profile makes no drive.
pub fn torture(scenario: &Scenario, effort: Effort, seed: u64) -> Result<Counts, Failure> {
    let options = Options { seed, stamps: true, precondition: scenario.precondition, ..Options::default() };
    let faults = scenario.faults.clone();
    let device = Device::over(&scenario.profile, options, |nand| FaultyNand::new(nand, faults));
    let device = device.unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
    let durability = scenario.durability();
    let rng = Rng::new(seed, b"torture");
    Campaign { scenario, effort, durability, counts: Counts::default(), rng }.run(device, seed)
}

/// Contents of a drive's pages.
fn contents(device: &Victim) -> Vec<Content> {
    (0..device.ftl().units()).map(|lpn| device.content(lpn)).collect()
}

/// A drive that has come back.
struct Recovered {
    device: Victim,
    now: Instant,
    events: u64,
}

fn fingerprint(contents: &[Content]) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

impl Campaign<'_> {
    fn run(mut self, mut device: Victim, seed: u64) -> Result<Counts, Failure> {
        let name = &self.scenario.name;
        let mut place = Place { scenario: name, seed, event: 0 };
        let fail = |event, what| Failure { scenario: name.clone(), seed, event, what };
        let mut host = self.host_for(&device, Instant::ZERO);
        let last = self.effort.warm_up + self.effort.events;
        for event in 1..=last {
            place.event = event;
            host.step(&mut device).map_err(|what| fail(event, what))?;
            device.ftl().assert_consistent();
            if event > self.effort.warm_up && event % self.effort.cut_every == 0 {
                let alive = self.cut(&device, host.oracle()).map_err(|what| fail(event, what))?;
                if self.effort.life > 0 && event % self.effort.life == 0 {
                    self.collect_counts(&device, &host);
                    host = self.host_for(&alive.device, alive.now);
                    device = alive.device;
                }
            }
        }
        self.counts.events = last;
        host.come_to_rest(&mut device).map_err(|what| fail(last, what))?;
        self.collect_counts(&device, &host);
        Ok(self.counts)
    }

    /// A host that takes what the drive holds for the truth.
    fn host_for(&mut self, device: &Victim, now: Instant) -> Host {
        let oracle = Oracle::new(self.durability, contents(device));
        let memory = LentMemory::of_profile(&self.scenario.profile, device, now);
        Host::new(self.scenario, oracle, now, self.rng.next_u64(), memory)
    }

    fn collect_counts(&mut self, device: &Victim, host: &Host) {
        let s = &device.ftl().statistics;
        self.counts.collections += s.collections;
        self.counts.folds += s.slc.superblocks_folded;
        let merges = [s.merges_switch, s.merges_partial, s.merges_full];
        (0..3).for_each(|kind| self.counts.merges[kind] += merges[kind]);
        self.counts.isolated += s.units_isolated;
        self.counts.destaged += device.write_buffer().statistics.evictions;
        self.counts.wear_moves += s.wear_moves;
        self.counts.map_units += s.units_meta;
        self.counts.failures += s.program_failures + s.erase_failures;
        self.counts.read_only |= device.ftl().is_read_only();
        self.counts.commands += host.commands();
        self.counts.reads_checked += host.reads_checked();
    }

    /// The power fails now: the drive must come back with all that was promised. Returns the drive that came back.
    fn cut(&mut self, device: &Victim, oracle: &Oracle) -> Result<Recovered, String> {
        self.counts.cuts += 1;
        let remains = device.clone().cut_power();
        if let Some(dump) = remains.dump() {
            self.counts.dump_energy_max = self.counts.dump_energy_max.max(dump.energy);
            let bound = buffer_energy_needed(&self.scenario.profile).unwrap_or(0.0);
            if !dump.is_whole() || dump.energy > bound {
                return Err(format!("{dump:?}, and {bound} J were reckoned with"));
            }
        }
        let recovered = self.recover(remains.clone())?;
        let found = self.check(&recovered.device, oracle)?;
        let due = |every: u64| every > 0 && self.counts.cuts.is_multiple_of(every);
        let (nested, aftermath) = (due(self.effort.nested_every), due(self.effort.aftermath_every));
        if nested {
            self.cut_recovery(remains, recovered.events, &found)?;
        }
        if aftermath {
            self.aftermath(&recovered, found)?;
        }
        Ok(recovered)
    }

    fn power_on(&self, remains: Remains<FaultyNand<Nand>>) -> Result<Victim, String> {
        Device::power_on_with(&self.scenario.profile, remains, self.effort.flaw).map_err(|e| e.to_string())
    }

    /// Runs a recovery to its end.
    fn recover(&self, remains: Remains<FaultyNand<Nand>>) -> Result<Recovered, String> {
        let mut now = remains.at();
        let mut device = self.power_on(remains)?;
        let mut events = 0;
        while device.is_recovering() {
            now = step_recovery(&mut device)?;
            events += 1;
            if events > EVENTS_MAX {
                return Err(format!("recovery does not end:\n{}", device.describe_outstanding()));
            }
        }
        Ok(Recovered { device, now, events })
    }

    /// Checks every page of a drive that has come back.
    fn check(&mut self, recovered: &Victim, oracle: &Oracle) -> Result<Vec<Content>, String> {
        recovered.ftl().assert_consistent();
        let found = contents(recovered);
        for (lpn, &content) in (0..).zip(&found) {
            if self.scenario.lossy && recovered.ftl().map().get(lpn) == Entry::Lost {
                continue;
            }
            oracle.check_after_power_loss(lpn, content).map_err(|v| v.to_string())?;
        }
        self.counts.states.insert(fingerprint(&found));
        Ok(found)
    }

    /// Cuts the power during a recovery that takes `events` events: whenever that is, the drive must come back the
    /// same.
    fn cut_recovery(
        &mut self,
        remains: Remains<FaultyNand<Nand>>,
        events: u64,
        expected: &[Content],
    ) -> Result<(), String> {
        let mut device = self.power_on(remains)?;
        let stride = self.effort.nested_stride.max(1);
        for event in 0..=events {
            // Always right after power-on and right after recovery: the latter is recovering twice.
            if event % stride == 0 || event == events {
                self.counts.nested_cuts += 1;
                let again = self.recover(device.clone().cut_power())?.device;
                again.ftl().assert_consistent();
                if let Some(lpn) = (0..).zip(expected).find(|&(lpn, &e)| again.content(lpn) != e).map(|(lpn, _)| lpn) {
                    return Err(format!(
                        "page {lpn} holds {:?} when the power fails again at event {event} of {events} of the \
                         recovery, else {:?}",
                        again.content(lpn),
                        expected[lpn as usize]
                    ));
                }
            }
            if event < events {
                step_recovery(&mut device)?;
            }
        }
        Ok(())
    }

    /// A drive that has come back works on, keeps what it had, and survives another cut.
    fn aftermath(&mut self, recovered: &Recovered, found: Vec<Content>) -> Result<(), String> {
        self.counts.aftermaths += 1;
        let mut device = recovered.device.clone();
        let oracle = Oracle::new(self.durability, found);
        let mut host = {
            let memory = LentMemory::of_profile(&self.scenario.profile, &device, recovered.now);
            Host::new(self.scenario, oracle, recovered.now, self.rng.next_u64(), memory)
        };
        host.read_first(8);
        for _ in 0..20 + self.rng.below(200) {
            host.step(&mut device).map_err(|e| format!("after a recovery: {e}"))?;
        }
        device.ftl().assert_consistent();
        let recovered = self.recover(device.clone().cut_power())?;
        self.check(&recovered.device, host.oracle()).map_err(|e| format!("after a second cut: {e}"))?;
        if self.counts.aftermaths.is_multiple_of(4) {
            host.come_to_rest(&mut device).map_err(|e| format!("after a recovery: {e}"))?;
        }
        self.counts.commands += host.commands();
        self.counts.reads_checked += host.reads_checked();
        Ok(())
    }
}

/// One event of a recovery. Returns when it happened.
fn step_recovery(device: &mut Victim) -> Result<Instant, String> {
    let Some(at) = device.deadline() else {
        return Err(format!("recovery hangs:\n{}", device.describe_outstanding()));
    };
    device.handle(at, Input::Timer).map_err(|_| "a timer was refused")?;
    Ok(at)
}
