//! The power fails after every event, and at every event of the recovery: what was promised is still there.
//!
//! `docs/internals/power-loss.md` tells what is promised and what these campaigns do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tidewater_base::{Duration, Instant};
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::flaw::Injected;
use tidewater_core::ftl::Flaw;
use tidewater_core::host::Submission;
use tidewater_core::profile::{Mapping, Profile};
use tidewater_nand::Fault;
use tidewater_testkit::torture::{
    Counts, Effort, Scenario, all_scenarios, buffer_scenarios, cbm_scenarios, fragile, hybrid_scenarios,
    mapping_scenarios, slc_scenarios, torture, with_hybrid_mapping, with_mapping_cache, worn_out,
};
use tidewater_wire::nvme::Sqe;

/// A cut after every fifth event, so that each test takes seconds; `make torture` cuts after each.
fn quick(events: u64) -> Effort {
    Effort { cut_every: 5, ..Effort::sampled(events) }
}

/// Runs a scenario with each seed, and prints what was done.
fn campaign(scenarios: &[Scenario], effort: Effort, seeds: std::ops::Range<u64>) -> Counts {
    let mut all = Counts::default();
    let mut violations = Vec::new();
    for scenario in scenarios {
        let mut counts = Counts::default();
        for seed in seeds.clone() {
            match catch_unwind(AssertUnwindSafe(|| torture(scenario, effort, seed))) {
                Ok(Ok(c)) => counts.add(c),
                Ok(Err(failure)) => violations.push(failure.to_string()),
                Err(_) => violations.push(format!("{} with seed {seed}: a panic, see above", scenario.name)),
            }
        }
        println!("{}: {counts}", scenario.name);
        all.add(counts);
    }
    println!("power cuts: {all}, {} violations", violations.len());
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    all
}

#[test]
fn promises_are_kept_when_the_power_fails_after_any_event() {
    let counts = campaign(&all_scenarios(), quick(4_000), 1..2);
    assert!(counts.cuts >= 8_000 && counts.nested_cuts >= 4_000 && counts.states.len() >= 1_000, "{counts}");
    assert!(
        counts.collections > 0
            && counts.wear_moves > 0
            && counts.map_units > 0
            && counts.failures > 0
            && counts.reads_checked > 0,
        "{counts}"
    );
    assert!(!counts.read_only, "{counts}");
}

/// A sample that is long enough for the flash to be full.
fn sampled_buffers(events: u64) -> Effort {
    Effort { warm_up: 1_500, nested_every: 20, ..quick(events) }
}

/// Whatever leaves the buffer, with whatever goes along, and wherever the buffer is.
#[test]
fn every_buffer_policy_keeps_the_promises_in_every_memory() {
    let counts = campaign(&buffer_scenarios(Mapping::Page), sampled_buffers(400), 1..2);
    assert!(counts.cuts >= 1_760 && counts.nested_cuts >= 1_000 && counts.states.len() >= 200, "{counts}");
    assert!(counts.reads_checked > 0 && counts.destaged > 0 && counts.collections > 0, "{counts}");
}

/// The same in front of log blocks and merges.
fn every_buffer_policy_keeps_the_promises_on(mapping: Mapping) -> Counts {
    let counts = campaign(&buffer_scenarios(mapping), sampled_buffers(250), 1..2);
    assert!(counts.cuts >= 1_100 && counts.nested_cuts >= 600 && counts.states.len() >= 100, "{counts}");
    let [switch, partial, full] = counts.merges;
    assert!(switch > 0 && partial > 10 && full > 100 && counts.destaged > 0 && counts.reads_checked > 0, "{counts}");
    counts
}

#[test]
fn every_buffer_policy_keeps_the_promises_in_every_memory_on_fast() {
    every_buffer_policy_keeps_the_promises_on(Mapping::Fast);
}

#[test]
fn every_buffer_policy_keeps_the_promises_in_every_memory_on_faster() {
    let counts = every_buffer_policy_keeps_the_promises_on(Mapping::Faster);
    assert!(counts.isolated > 0, "{counts}");
}

/// Clean pages that go along by another rule, padding, and pages that stay in the read cache.
#[test]
fn every_reading_of_cbm_keeps_the_promises() {
    for mapping in [Mapping::Page, Mapping::Fast] {
        let counts = campaign(&cbm_scenarios(mapping), sampled_buffers(150), 1..2);
        assert!(counts.cuts >= 360 && counts.nested_cuts >= 150 && counts.states.len() >= 40, "{counts}");
        assert!(counts.reads_checked > 0 && counts.destaged > 0, "{counts}");
    }
}

/// Blocks in single-level mode and their folding, at every event.
#[test]
fn promises_are_kept_with_an_slc_cache() {
    let counts = campaign(&slc_scenarios(), quick(1_500), 1..2);
    assert!(counts.cuts >= 2_400 && counts.nested_cuts >= 600 && counts.states.len() >= 150, "{counts}");
    assert!(counts.folds > 0 && counts.collections > 0 && counts.reads_checked > 0 && counts.failures > 0, "{counts}");
    assert!(!counts.read_only, "{counts}");
}

#[test]
fn what_is_lost_for_good_is_said_and_the_rest_is_kept() {
    campaign(&[fragile()], quick(4_000), 1..2);
}

#[test]
fn a_worn_out_drive_refuses_writes_and_keeps_what_it_has() {
    let effort = Effort { cut_every: 20, life: 0, nested_every: 100, ..Effort::sampled(40_000) };
    let counts = campaign(&[worn_out()], effort, 1..2);
    assert!(counts.read_only, "it never wore out: {counts}");
}

#[test]
fn merges_that_are_cut_at_any_event_lose_nothing() {
    let counts = campaign(&hybrid_scenarios(), quick(1_500), 1..2);
    assert!(counts.cuts >= 3_600 && counts.nested_cuts >= 1_600 && counts.states.len() >= 300, "{counts}");
    let [_, partial, full] = counts.merges;
    assert!(partial > 50 && full > 100, "{counts}");
    assert!(counts.map_units > 0 && counts.failures > 0 && counts.reads_checked > 0, "{counts}");
    assert!(!counts.read_only, "{counts}");
}

#[test]
fn a_hybrid_drive_says_what_is_lost_and_keeps_the_rest() {
    let drives = [with_hybrid_mapping(fragile(), 0), with_hybrid_mapping(fragile(), 1)];
    campaign(&drives, quick(1_500), 1..2);
}

#[test]
fn a_worn_out_hybrid_drive_refuses_writes_and_keeps_what_it_has() {
    let effort = Effort { cut_every: 20, life: 0, nested_every: 100, ..Effort::sampled(40_000) };
    let counts = campaign(&[with_hybrid_mapping(worn_out(), 0), with_hybrid_mapping(worn_out(), 1)], effort, 1..2);
    assert!(counts.read_only, "it never wore out: {counts}");
}

#[test]
fn a_map_on_flash_comes_back_whatever_its_cache_held() {
    let counts = campaign(&mapping_scenarios(), quick(600), 1..2);
    assert!(counts.cuts >= 1_200 && counts.nested_cuts >= 600 && counts.states.len() >= 100, "{counts}");
    assert!(counts.map_units > 1_000 && counts.failures > 0 && counts.reads_checked > 0, "{counts}");
    assert!(!counts.read_only, "{counts}");
}

#[test]
fn a_map_on_flash_that_fails_says_what_is_lost_and_keeps_the_rest() {
    campaign(&[with_mapping_cache(fragile(), 0), with_mapping_cache(fragile(), 1)], quick(1_500), 1..2);
    let effort = Effort { cut_every: 20, life: 0, nested_every: 100, ..Effort::sampled(40_000) };
    let counts = campaign(&[with_mapping_cache(worn_out(), 0)], effort, 1..2);
    assert!(counts.read_only, "it never wore out: {counts}");
}

/// Seeds with one of which a flaw must be noticed.
const SEEDS_OF_A_FLAW: u64 = 5;

/// A recovery that is broken on purpose must not get through.
fn is_caught(flaw: Flaw) {
    let effort = Effort { flaw: Injected::of(flaw), nested_every: 0, ..quick(3_000) };
    // Page mapping has no merges, and only a map that lies on flash has mapping pages.
    let scenarios: Vec<Scenario> = match flaw {
        Flaw::CutMerges => hybrid_scenarios(),
        Flaw::OldDirectory => mapping_scenarios(),
        _ => all_scenarios().into_iter().chain(hybrid_scenarios()).collect(),
    };
    for scenario in scenarios {
        // What a run comes across is chance: on drives that hardly have what the flaw spoils, one of a few must.
        let noticed = (1..=SEEDS_OF_A_FLAW).any(|seed| {
            match catch_unwind(AssertUnwindSafe(|| torture(&scenario, effort, seed))) {
                Ok(Ok(counts)) => {
                    println!("{flaw:?} in {}, seed {seed}: not noticed in {counts}", scenario.name);
                    false
                }
                Ok(Err(failure)) => {
                    println!("{flaw:?}: {failure}");
                    true
                }
                Err(_) => {
                    println!("{flaw:?} in {}: the drive noticed itself, by a panic", scenario.name);
                    true
                }
            }
        });
        assert!(noticed, "{flaw:?} in {} was not noticed with any of {SEEDS_OF_A_FLAW} seeds", scenario.name);
    }
}

#[test]
fn a_recovery_that_scans_nothing_is_caught() {
    is_caught(Flaw::NoScan);
}

#[test]
fn a_recovery_that_takes_any_copy_is_caught() {
    is_caught(Flaw::AnyCopy);
}

#[test]
fn a_recovery_that_forgets_deallocations_is_caught() {
    is_caught(Flaw::NoDeallocations);
}

#[test]
fn a_recovery_that_takes_cut_merges_for_done_is_caught() {
    is_caught(Flaw::CutMerges);
}

#[test]
fn a_recovery_that_misses_the_newest_mapping_pages_is_noticed() {
    is_caught(Flaw::OldDirectory);
}

fn named(name: &str) -> Scenario {
    all_scenarios().into_iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no scenario is named {name}"))
}

/// Every loss closes what was open. If that were not opened again, soon no superblock would be left to collect with.
#[test]
fn losses_in_quick_succession_leave_room_to_collect() {
    let effort = Effort { cut_every: 60, life: 60, nested_every: 0, aftermath_every: 0, ..Effort::sampled(30_000) };
    let counts = campaign(&[named("planes in turn, larger blocks"), named("volatile buffer")], effort, 1..2);
    assert!(counts.collections > 0 && !counts.read_only, "{counts}");
}

/// A program failed, and what it was to write had been overwritten. A piece of the map, written before that was on
/// flash, said that the page was where the program had failed: after a power loss it read as zeroes.
#[test]
fn a_map_on_flash_names_no_row_that_failed() {
    torture(&named("failing flash, no buffer"), Effort::sampled(1_677), 113)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// A mapping page was found in a row of which the other plane had failed, and with it what the page said.
#[test]
fn a_mapping_page_counts_only_with_what_it_says() {
    let mut scenario = with_mapping_cache(named("failing flash, no buffer"), 10);
    scenario.profile.nand.blocks_per_plane = 120;
    let nth = |i: u64| 150 + i * 31 / 3 + i % 5;
    scenario.faults.faults = (0..90).map(|i| Fault::ProgramFails { nth: nth(i) }).collect();
    let effort = Effort { warm_up: 200, ..Effort::sampled(1_500) };
    torture(&scenario, effort, 1).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A drive that is given one command at a time.
struct Drive {
    device: Device,
    profile: Profile,
    now: Instant,
}

impl Drive {
    fn new(profile: Profile) -> Drive {
        let device = Device::new(&profile, Options { stamps: true, ..Options::default() }).unwrap();
        Drive { device, profile, now: Instant::ZERO }
    }

    /// One command, to its completion.
    fn run(&mut self, sqe: Sqe, tag: u64) {
        self.device.handle(self.now, Input::Submit { queue: 0, submission: Submission::new(sqe, tag) }).unwrap();
        loop {
            self.now = self.device.deadline().expect("a command is under way");
            self.device.handle(self.now, Input::Timer).unwrap();
            if let Some(Output::Complete(completion)) = self.device.poll() {
                assert!(completion.cqe.status.is_success());
                return;
            }
        }
    }

    fn write(&mut self, lpn: u32, tag: u64) {
        self.run(Sqe::write(1, u64::from(lpn) * 8, 7), tag);
    }

    fn zero(&mut self, lpn: u32) {
        self.run(Sqe::write_zeroes(1, u64::from(lpn) * 8, 7, true), 0);
    }

    /// Content of a page after a power loss now.
    fn after_power_loss(&self, lpn: u32) -> Option<u64> {
        let mut device = Device::power_on(&self.profile, self.device.clone().cut_power()).unwrap();
        while device.is_recovering() {
            let at = device.deadline().expect("recovery is under way");
            device.handle(at, Input::Timer).unwrap();
        }
        device.content(lpn)
    }
}

/// The mode of every block comes back from what its rows say of themselves.
#[test]
fn the_mode_of_every_block_is_known_after_a_power_loss() {
    let mut profile = slc_scenarios().remove(0).profile;
    profile.slc.fold_after = Duration::from_ms(100);
    let mut drive = Drive::new(profile.clone());
    for lpn in 0..60 {
        drive.write(lpn, u64::from(lpn));
        drive.run(Sqe::flush(1), 0);
    }
    let before = drive.device.ftl().slc_fill();
    assert!(before.superblocks >= 4 && before.units >= 16, "{before:?}");
    let mut device = Device::power_on(&profile, drive.device.clone().cut_power()).unwrap();
    while device.is_recovering() {
        let at = device.deadline().expect("recovery is under way");
        device.handle(at, Input::Timer).unwrap();
    }
    assert_eq!(device.ftl().slc_fill(), before);
}

/// A deallocation takes a page from a buffer that survives: what it had overtaken on flash must not come back.
#[test]
fn a_deallocation_survives_with_the_buffer() {
    let mut drive = Drive::new(named("capacitors").profile);
    drive.write(0, 1);
    (1..100).for_each(|lpn| drive.write(lpn, 2));
    drive.write(0, 3);
    assert_eq!(drive.after_power_loss(0), Some(3));
    drive.zero(0);
    assert_eq!(drive.after_power_loss(0), None);
}

/// Without a buffer nothing is volatile: a write of zeroes that has completed is as durable as a write.
#[test]
fn zeroes_without_a_buffer_are_durable_when_they_complete() {
    let mut drive = Drive::new(named("no buffer").profile);
    drive.write(0, 1);
    assert_eq!(drive.after_power_loss(0), Some(1));
    drive.zero(0);
    assert_eq!(drive.after_power_loss(0), None);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_event_of_the_recovery_is_cut() {
    campaign(&all_scenarios(), Effort::exhaustive(300), 1_000..1_001);
    campaign(&hybrid_scenarios(), Effort::exhaustive(300), 1_000..1_001);
    campaign(&slc_scenarios(), Effort::exhaustive(300), 1_000..1_001);
}

/// Many seeds, and every event of every recovery, of every policy in every memory.
fn every_buffer_policy_for_many_seeds_on(mapping: Mapping) {
    campaign(&buffer_scenarios(mapping), Effort::sampled(4_000), 100..102);
    campaign(&buffer_scenarios(mapping), Effort { warm_up: 500, ..Effort::exhaustive(100) }, 200..201);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_reading_of_cbm_at_every_event() {
    for mapping in [Mapping::Page, Mapping::Fast, Mapping::Faster] {
        campaign(&cbm_scenarios(mapping), Effort::sampled(2_000), 100..101);
        campaign(&cbm_scenarios(mapping), Effort { warm_up: 500, ..Effort::exhaustive(100) }, 200..201);
    }
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_buffer_policy_for_many_seeds_on_page_mapping() {
    every_buffer_policy_for_many_seeds_on(Mapping::Page);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_buffer_policy_for_many_seeds_on_fast() {
    every_buffer_policy_for_many_seeds_on(Mapping::Fast);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_buffer_policy_for_many_seeds_on_faster() {
    every_buffer_policy_for_many_seeds_on(Mapping::Faster);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn promises_are_kept_for_many_seeds() {
    campaign(&[fragile()], Effort::sampled(4_000), 100..140);
    campaign(&all_scenarios(), Effort::sampled(4_000), 100..120);
    campaign(&hybrid_scenarios(), Effort::sampled(4_000), 100..120);
    campaign(&slc_scenarios(), Effort::sampled(4_000), 100..120);
    campaign(&mapping_scenarios(), Effort::sampled(600), 100..120);
    let to_the_end = Effort { cut_every: 10, life: 0, ..Effort::sampled(40_000) };
    campaign(&[worn_out()], to_the_end, 100..110);
}
