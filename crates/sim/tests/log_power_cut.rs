//! The power fails after every event of a run with log traffic, links fail, and primaries are replaced: what was
//! credited comes back, gap-free and in order, on as many nodes as the mode of replication promises.
//!
//! `docs/internals/power-loss.md` tells what is promised and what these campaigns do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tidewater_core::fast::Flaw;
use tidewater_core::flaw::Injected;
use tidewater_testkit::torture::{
    Failure, LogCounts, LogEffort, LogScenario, group_scenarios, log_scenarios, torture_log, torture_split,
};

use tidewater_wire::vendor::Mode;

type Torture = fn(&LogScenario, LogEffort, u64) -> Result<LogCounts, Failure>;

/// A cut after every fifth event, so that each test takes seconds; `make torture` cuts after each.
fn quick(events: u64) -> LogEffort {
    LogEffort { cut_every: 5, ..LogEffort::sampled(events) }
}

/// Runs scenarios with each seed, and prints what was done.
fn campaign(torture: Torture, scenarios: &[LogScenario], effort: LogEffort, seeds: std::ops::Range<u64>) -> LogCounts {
    let mut all = LogCounts::default();
    let mut violations = Vec::new();
    for scenario in scenarios {
        let mut counts = LogCounts::default();
        for seed in seeds.clone() {
            match catch_unwind(AssertUnwindSafe(|| torture(scenario, effort, seed))) {
                Ok(Ok(c)) => counts.add(c),
                Ok(Err(failure)) => violations.push(failure.to_string()),
                Err(_) => violations.push(format!("{} with seed {seed}: a panic, see above", scenario.name())),
            }
        }
        println!("{}: {counts}", scenario.name());
        all.add(counts);
    }
    println!("in all: {all}, {} violations", violations.len());
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    all
}

#[test]
fn credited_bytes_survive_a_power_loss_after_any_event() {
    let effort = LogEffort { life: 1_500, nested_every: 100, ..quick(6_000) };
    let counts = campaign(torture_log, &log_scenarios(), effort, 1..2);
    assert!(counts.cuts >= 6_000 && counts.nested_cuts >= 200 && counts.states.len() >= 300, "{counts}");
    assert!(counts.turns > 0 && counts.pages.1 > 0, "{counts}");
}

#[test]
fn credited_bytes_survive_on_every_replica_that_the_mode_promises() {
    let counts = campaign(torture_log, &group_scenarios(), quick(10_000), 1..2);
    assert!(counts.cuts >= 10_000 && counts.nested_cuts >= 200 && counts.states.len() >= 300, "{counts}");
    assert!(counts.losses > 10 && counts.promotions > 0, "{counts}");
}

#[test]
fn links_that_drop_reorder_duplicate_flap_and_partition_break_no_promise() {
    let counts = campaign(torture_log, &group_scenarios(), LogEffort::links(20_000), 1..3);
    assert!(counts.link_faults > 100 && counts.promotions > 0, "{counts}");
}

#[test]
fn of_two_primaries_only_one_acknowledges_and_the_logs_become_one() {
    let effort = LogEffort { nested_every: 100, ..quick(6_000) };
    let counts = campaign(torture_split, &group_scenarios(), effort, 1..2);
    assert!(counts.promotions > 4 && counts.bytes_cut > 0, "{counts}");
}

/// Each loss takes pages from the reserve of the LBA ring: when it is used up, intake must wait for the host to trim.
#[test]
fn losses_in_quick_succession_leave_a_place_for_what_is_credited() {
    let effort = LogEffort { life: 400, nested_every: 0, ..LogEffort::sampled(16_000) };
    let scenarios = log_scenarios();
    let waits = scenarios.iter().filter(|s| s.name() == "log, few pages that wait for trim");
    let counts = campaign(torture_log, &waits.cloned().collect::<Vec<_>>(), effort, 1..3);
    assert!(counts.losses > 50 && counts.bytes > 50_000, "{counts}");
}

/// Drives that are broken on purpose, until they lose their power, must not get through with every seed.
fn is_caught(flaw: Flaw, torture: Torture, scenarios: &[LogScenario], effort: LogEffort) {
    let effort = LogEffort { flaw: Injected::of(flaw), nested_every: 0, ..effort };
    for scenario in scenarios {
        let noticed = (1..6).any(|seed| match catch_unwind(AssertUnwindSafe(|| torture(scenario, effort, seed))) {
            Ok(Ok(_)) => false,
            Ok(Err(failure)) => {
                println!("{flaw:?}: {failure}");
                true
            }
            Err(_) => {
                println!("{flaw:?} in {}: the drive noticed itself, by a panic", scenario.name());
                true
            }
        });
        assert!(noticed, "{flaw:?} was not noticed in {}", scenario.name());
    }
}

#[test]
fn an_emergency_that_forgets_the_last_page_is_caught() {
    let mut scenarios = log_scenarios();
    // Nothing is promised of volatile memory but what is on flash.
    scenarios.retain(|s| s.name() != "log in volatile memory");
    scenarios.extend(group_scenarios());
    is_caught(Flaw::ForgetLastPage, torture_log, &scenarios, quick(3_000));
}

#[test]
fn credit_that_does_not_wait_for_replicas_is_caught() {
    let mut scenarios = group_scenarios();
    scenarios.retain(|s| s.mode != Mode::Lazy);
    is_caught(Flaw::CreditAlone, torture_log, &scenarios, quick(3_000));
}

#[test]
fn a_cut_that_is_forgotten_with_the_power_is_caught() {
    let mut scenarios = group_scenarios();
    // Only pages that are cut in their middle matter: those of groups that acknowledge little during a split.
    scenarios.retain(|s| matches!(s.mode, Mode::Eager | Mode::Chain));
    is_caught(Flaw::ForgetCuts, torture_split, &scenarios, quick(6_000));
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_event_of_the_recovery_of_a_log_is_cut() {
    campaign(torture_log, &log_scenarios(), LogEffort::exhaustive(3_000), 1_000..1_001);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn every_event_of_the_recovery_of_a_replica_is_cut() {
    campaign(torture_log, &group_scenarios(), LogEffort::exhaustive(4_000), 1_000..1_001);
    campaign(torture_split, &group_scenarios(), LogEffort::exhaustive(4_000), 1_000..1_001);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn logs_keep_their_promises_for_many_seeds() {
    campaign(torture_log, &log_scenarios(), LogEffort::sampled(8_000), 100..120);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn groups_keep_their_promises_for_many_seeds() {
    campaign(torture_log, &group_scenarios(), LogEffort::sampled(8_000), 100..120);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn failing_links_break_no_promise_for_many_seeds() {
    campaign(torture_log, &group_scenarios(), LogEffort::links(40_000), 100..140);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn of_two_primaries_only_one_acknowledges_for_many_seeds() {
    campaign(torture_split, &group_scenarios(), LogEffort::sampled(8_000), 100..120);
}
