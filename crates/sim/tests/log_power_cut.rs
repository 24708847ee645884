//! The power fails after every event of a run with log traffic, links fail, and primaries are replaced: what was credited
//! comes back, gap-free and in order, on as many nodes as the mode of replication promises.
//!
//! `docs/internals/power-loss.md` tells what is promised and what these campaigns do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tidewater_sim::torture::{
    Failure, LogCounts, LogEffort, LogScenario, group_scenarios, log_scenarios, torture_log, torture_split,
};

type Torture = fn(&LogScenario, LogEffort, u64) -> Result<LogCounts, Failure>;

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
    let effort = LogEffort { life: 1_500, nested_every: 100, ..LogEffort::sampled(6_000) };
    let counts = campaign(torture_log, &log_scenarios(), effort, 1..2);
    assert!(counts.cuts >= 30_000 && counts.nested_cuts >= 1_000 && counts.states.len() >= 1_000, "{counts}");
    assert!(counts.turns > 0 && counts.pages.1 > 0, "{counts}");
}

#[test]
fn credited_bytes_survive_on_every_replica_that_the_mode_promises() {
    let counts = campaign(torture_log, &group_scenarios(), LogEffort::sampled(10_000), 1..2);
    assert!(counts.cuts >= 50_000 && counts.nested_cuts >= 1_000 && counts.states.len() >= 1_000, "{counts}");
    assert!(counts.losses > 10 && counts.promotions > 0, "{counts}");
}

#[test]
fn links_that_drop_reorder_duplicate_flap_and_partition_break_no_promise() {
    let counts = campaign(torture_log, &group_scenarios(), LogEffort::links(20_000), 1..3);
    assert!(counts.link_faults > 100 && counts.promotions > 0, "{counts}");
}

#[test]
fn of_two_primaries_only_one_acknowledges_and_the_logs_become_one() {
    let effort = LogEffort { nested_every: 100, ..LogEffort::sampled(6_000) };
    let counts = campaign(torture_split, &group_scenarios(), effort, 1..2);
    assert!(counts.promotions > 4 && counts.bytes_cut > 0, "{counts}");
}
