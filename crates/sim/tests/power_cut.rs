//! The power fails after every event, and at every event of the recovery: what was promised is still there.
//!
//! `docs/internals/power-loss.md` tells what is promised and what these campaigns do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tidewater_core::ftl::Flaw;
use tidewater_sim::torture::{Counts, Effort, Scenario, all_scenarios, fragile, torture, worn_out};

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
    let counts = campaign(&all_scenarios(), Effort::sampled(6000), 1..4);
    assert!(counts.cuts >= 5_000 && counts.nested_cuts >= 1_000 && counts.states.len() >= 1_000, "{counts}");
    assert!(counts.collections > 0 && counts.map_units > 0 && counts.failures > 0, "{counts}");
}
