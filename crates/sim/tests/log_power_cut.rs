//! The power fails after every event of a run with log traffic: what was credited comes back, gap-free and in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tidewater_sim::torture::{LogCounts, LogEffort, log_scenarios, torture_log};

fn campaign(effort: LogEffort, seeds: std::ops::Range<u64>) -> LogCounts {
    let mut all = LogCounts::default();
    let mut violations = Vec::new();
    for scenario in log_scenarios() {
        let mut counts = LogCounts::default();
        for seed in seeds.clone() {
            match catch_unwind(AssertUnwindSafe(|| torture_log(&scenario, effort, seed))) {
                Ok(Ok(c)) => counts.add(c),
                Ok(Err(failure)) => violations.push(failure.to_string()),
                Err(_) => violations.push(format!("{} with seed {seed}: a panic, see above", scenario.name)),
            }
        }
        println!("{}: {counts}", scenario.name);
        all.add(counts);
    }
    println!("power cuts with a log: {all}, {} violations", violations.len());
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    all
}

#[test]
fn credited_bytes_survive_a_power_loss_after_any_event() {
    let counts = campaign(LogEffort { events: 6_000, nested_every: 100, nested_stride: 5, life: 1_500 }, 1..2);
    assert!(counts.cuts >= 30_000 && counts.nested_cuts >= 1_000 && counts.states.len() >= 1_000, "{counts}");
    assert!(counts.turns > 0 && counts.pages.1 > 0, "{counts}");
}
