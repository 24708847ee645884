//! Metamorphic relations: what must hold between the figures of one run, and between runs of drives and loads that
//! differ in a way whose effect is known, for random drives under random loads.
//!
//! Every built-in profile, buffer policy, mapping and SLC setting is drawn. A drive that cannot be is refused in words;
//! one that is there must serve to the end, and keep every relation that applies to it. A violation names the relation
//! and the command line.

mod alone;
mod cases;
mod cuts;
mod ledger;
mod pairs;
mod regressions;
mod rig;
mod traces;

use cases::Case;
use ledger::Ledger;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Checks the relations of so many random drives and loads, whose numbers begin with `first`, on every core.
fn campaign(first: u64, drives: u64, requests: u64) -> Ledger {
    let next = AtomicU64::new(first);
    let work = || {
        let mut ledger = Ledger::default();
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && number < first + drives
        {
            let case = Case::draw(number, requests, &mut ledger);
            if catch_unwind(AssertUnwindSafe(|| check(&case, &mut ledger))).is_err() {
                ledger.violation("no panic", &case, "it panicked, see above");
            }
        }
        ledger
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = Ledger::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| all.add(thread.join().expect("a worker does not panic")));
    });
    println!("{all}");
    all
}

/// All relations that apply to a drive and its load.
fn check(case: &Case, ledger: &mut Ledger) {
    let Some(run) = alone::check(case, ledger) else { return };
    pairs::check(case, &run, ledger);
    traces::check(case, ledger);
    cuts::check(case, &run, ledger);
}

#[test]
fn random_drives_and_loads_keep_every_relation() {
    let ledger = campaign(1, 180, 2_000);
    ledger.assert_whole(180);
}

/// Both are right, and what was asked of them was wrong: one has more commands than its queues take, and in the other
/// a picosecond of rounding made collection take another course.
#[test]
fn drives_that_seemed_to_break_a_relation_keep_it() {
    let mut ledger = Ledger::default();
    for number in [1_967, 2_128] {
        check(&Case::draw(number, 12_000, &mut ledger), &mut ledger);
    }
    ledger.assert_whole(2);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_random_drives_and_loads_keep_every_relation() {
    let ledger = campaign(1_000, 2_000, 12_000);
    ledger.assert_whole(2_000);
    ledger.assert_all_drawn();
}
