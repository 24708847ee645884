//! Memory that the host lends, under torture: at each access of a run it is taken away, changed, left as it was before
//! a write, or slow. Whatever happens, no read may show what it should not, every command must end, and a power cut
//! loses nothing that was promised.

use super::host::Host;
use super::scenario::{scenario, tiny};
use super::{Failure, Scenario, Victim, contents};
use std::fmt;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::device::{Device, Input, Options};
use tidewater_core::ftl::{Entry, Precondition};
use tidewater_core::host_memory::{HostFault, HostFaultPlan, State};
use tidewater_core::profile::{MemoryKind, MemoryProfile, Profile};
use tidewater_nand::FaultyNand;
use tidewater_sim::host_memory::LentMemory;
use tidewater_sim::oracle::Oracle;

/// How thorough a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct LentEffort {
    /// Events of each run.
    pub events: u64,
    /// A run for each kind of fault at every so many accesses.
    pub stride: u64,
    /// The host lends, withdraws, resizes and returns memory in between, about once in so many events. 0: never.
    pub lending_every: u64,
}

/// Totals of a campaign.
#[derive(Clone, Copy, Debug, Default)]
pub struct LentCounts {
    /// Accesses of the run without faults.
    pub accesses: u64,
    /// Runs, each with a fault of its own.
    pub runs: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Units whose check has failed.
    pub failed_checks: u64,
    /// Units that were fetched from flash instead.
    pub refetches: u64,
    /// Times that the host lent memory, or asked for it.
    pub lendings: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Commands completed.
    pub commands: u64,
    /// Pages of reads that were checked against the oracle.
    pub reads_checked: u64,
}

impl LentCounts {
    /// Adds another campaign's counts.
    pub fn add(&mut self, other: LentCounts) {
        self.accesses += other.accesses;
        self.runs += other.runs;
        self.faults += other.faults;
        self.failed_checks += other.failed_checks;
        self.refetches += other.refetches;
        self.lendings += other.lendings;
        self.cuts += other.cuts;
        self.commands += other.commands;
        self.reads_checked += other.reads_checked;
    }
}

impl fmt::Display for LentCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accesses, {} runs, {} faults, {} failed checks, {} refetches, {} lendings, {} cuts, {} commands, {} \
             reads checked",
            self.accesses,
            self.runs,
            self.faults,
            self.failed_checks,
            self.refetches,
            self.lendings,
            self.cuts,
            self.commands,
            self.reads_checked
        )
    }
}

/// A tiny drive with a memory of the host's.
fn lent() -> Profile {
    let mut p = tiny();
    p.memories.push(MemoryProfile { size: 256 << 10, ..MemoryProfile::of_kind("hmb", MemoryKind::Host) });
    p.hmb.in_flight = 4;
    p
}

/// Drives with something in memory of the host's.
pub fn lent_scenarios() -> Vec<Scenario> {
    let reading = super::Mix { read: 60, write: 30, ..super::Mix::ALL };
    let mut p = lent();
    p.buffer.read_policy = "lru".into();
    p.buffer.read_memory = "hmb".into();
    p.buffer.read_size = 128 << 10;
    let cached = Scenario {
        mix: reading,
        precondition: Precondition::Filled(0.7),
        ..scenario("read cache in host memory", p.clone())
    };
    p.buffer.write_policy = "cbm".into();
    p.buffer.write_memory = "hmb".into();
    let both = Scenario {
        mix: reading,
        precondition: Precondition::Filled(0.7),
        ..scenario("write buffer and read cache in host memory", p)
    };
    let mut scenarios = vec![cached, both];
    // A mapping cache alone, with all a host can do; and beside a read cache.
    let mut p = lent();
    map_on_host(&mut p);
    scenarios.push(Scenario { precondition: Precondition::Filled(0.7), ..scenario("map in host memory", p.clone()) });
    p.buffer.read_policy = "lru".into();
    p.buffer.read_memory = "hmb".into();
    p.buffer.read_size = 64 << 10;
    scenarios.push(Scenario {
        mix: reading,
        precondition: Precondition::Filled(0.7),
        ..scenario("map and read cache in host memory", p)
    });
    scenarios
}

/// Mapping pages of 16 entries, two of them in the drive's own memory and half of them on the host at most.
fn map_on_host(p: &mut Profile) {
    p.ftl.map_memory = "hmb".into();
    p.ftl.map_page = 64;
    p.ftl.map_floor = 128;
    p.ftl.map_size = 1 << 10;
    p.ftl.map_updates = 64;
    // Room for the pools of mapping pages.
    p.nand.blocks_per_plane += 6;
}

/// Tortures a scenario. The same scenario, effort and seed do the same again.
///
/// # Errors
/// The first promise that was broken.
pub fn torture_lent(scenario: &Scenario, effort: LentEffort, seed: u64) -> Result<LentCounts, Failure> {
    let mut counts = LentCounts::default();
    let fault_free = LentEffort { lending_every: 0, ..effort };
    counts.accesses = run(scenario, fault_free, seed, HostFaultPlan::default(), &mut counts)?;
    let kinds = [HostFault::Withdrawn, HostFault::Corrupted, HostFault::Stale, HostFault::Slow(Duration::from_us(700))];
    for at in (1..=counts.accesses).step_by(effort.stride.max(1) as usize) {
        for fault in kinds {
            run(scenario, effort, seed, HostFaultPlan::one(at, fault), &mut counts)?;
        }
    }
    Ok(counts)
}

/// One run. Returns the accesses to host memory.
fn run(
    scenario: &Scenario,
    effort: LentEffort,
    seed: u64,
    plan: HostFaultPlan,
    counts: &mut LentCounts,
) -> Result<u64, Failure> {
    let what = format!("{plan:?}: ");
    let fail = |event, why: String| Failure { scenario: scenario.name.clone(), seed, event, what: what.clone() + &why };
    let options = Options { seed, stamps: true, precondition: scenario.precondition, ..Options::default() };
    let faults = scenario.faults.clone();
    let device = Device::over(&scenario.profile, options, |nand| FaultyNand::new(nand, faults));
    let mut device: Victim = device.map_err(|error| fail(0, error.to_string()))?;
    let memory = LentMemory::of_profile(&scenario.profile, &device, Instant::ZERO).with_plan(plan);
    let oracle = Oracle::new(scenario.durability(), contents(&device));
    let mut host = Host::new(scenario, oracle, Instant::ZERO, seed, memory);
    // What the host does with its memory is another matter than its commands.
    let mut rng = Rng::new(seed, b"lending");
    for event in 0..effort.events {
        if effort.lending_every > 0 && rng.below(effort.lending_every) == 0 {
            counts.lendings += 1;
            change_lending(&mut host, &device, &mut rng);
        }
        host.step(&mut device).map_err(|why| fail(event, why))?;
    }
    device.ftl().assert_consistent();
    counts.cuts += 1;
    check_cut(scenario, device.clone(), host.oracle()).map_err(|why| fail(effort.events, why))?;
    host.come_to_rest(&mut device).map_err(|why| fail(effort.events, why))?;
    let lost = |lpn| device.ftl().map().get(lpn) == Entry::Lost;
    if let Some(lpn) = (0..device.ftl().units()).find(|&lpn| lost(lpn)) {
        return Err(fail(effort.events, format!("page {lpn} is lost")));
    }
    let (accesses, happened) = host.memory().counts();
    let statistics = device.host_memory().statistics;
    counts.runs += 1;
    counts.faults += happened;
    counts.failed_checks += statistics.failed_checks;
    counts.refetches += statistics.refetches;
    counts.commands += host.commands();
    counts.reads_checked += host.reads_checked();
    Ok(accesses)
}

/// The host lends, or takes back, in one of all ways.
fn change_lending(host: &mut Host, device: &Victim, rng: &mut Rng) {
    let now = host.now();
    let memory = host.memory();
    if memory.is_withdrawing() {
        return;
    }
    let sizes = [16u64 << 10, 64 << 10, 256 << 10];
    if memory.bytes() == 0 {
        let size = sizes[rng.below(3) as usize];
        if rng.below(4) == 0 {
            memory.corrupt_all();
        }
        memory.lend(now, size, rng.below(2) == 0);
        return;
    }
    match rng.below(4) {
        0 | 1 if device.host_memory().state() == State::Lent => memory.withdraw(now),
        2 => memory.take_away_with_notice(now),
        _ => memory.take_away(),
    }
}

/// The power fails: all that was promised comes back.
fn check_cut(scenario: &Scenario, device: Victim, oracle: &Oracle) -> Result<(), String> {
    let mut device = Device::power_on(&scenario.profile, device.cut_power()).map_err(|error| error.to_string())?;
    while device.is_recovering() {
        let at = device.deadline().ok_or("recovery hangs")?;
        device.handle(at, Input::Timer).map_err(|_| "a timer was refused")?;
    }
    device.ftl().assert_consistent();
    for (lpn, content) in (0..).zip(contents(&device)) {
        oracle.check_after_power_loss(lpn, content).map_err(|violation| violation.to_string())?;
    }
    Ok(())
}
