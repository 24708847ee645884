//! Runs the cases, and prints what each tried, how often the fault really happened, and what went wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::nets::table::{By, CASES, Case, Length};
use crate::nets::tally::Tally;

/// Runs a case that is of these tests. `None`: it was left out, which is counted.
fn run(case: &Case, run: fn() -> Option<Tally>) -> Option<Tally> {
    let outcome = catch_unwind(AssertUnwindSafe(run));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        let violations = vec![format!("{}: {text}", case.what)];
        Some(Tally { tried: 1, fired: 1, acknowledged: 0, violations })
    })
}

/// Runs cases, and prints a row for each.
fn all(wanted: impl Fn(&Case, Length) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    println!("{:<9} {:<66} {:>5} {:>5} {:>6} {:>10}", "of", "case", "tried", "fired", "acked", "violations");
    for case in CASES {
        let Case { section, what, .. } = case;
        match case.by {
            By::Here(length, act) if wanted(case, length) => {
                let Some(tally) = run(case, act) else { continue };
                let Tally { tried, fired, acknowledged, violations } = tally;
                println!("{section:<9} {what:<66} {tried:>5} {fired:>5} {acknowledged:>6} {:>10}", violations.len());
                if fired == 0 || (fired < tried && length != Length::Chance) {
                    wrong.push(format!("{what}: tried {tried} times, and seen at work {fired} times"));
                }
                wrong.extend(violations.into_iter().map(|violation| format!("{what}: {violation}")));
            }
            _ => {}
        }
    }
    wrong
}

#[test]
fn what_was_acknowledged_outlives_links_that_are_cut_and_lossy() {
    let wrong = all(|_, length| length == Length::Quick);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `TIDEWATER_TORTURE_CASE`: part of section and name of the cases that are run, as `links cut`; without it all are.
#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_every_case_of_the_table_holds() {
    let words = std::env::var("TIDEWATER_TORTURE_CASE").unwrap_or_default();
    let is_wanted = |case: &Case| format!("{} {}", case.section, case.what).contains(&words);
    let wrong = all(|case, _| is_wanted(case));
    for case in CASES.iter().filter(|case| is_wanted(case)) {
        match case.by {
            By::Tests(tests) => println!("{:<9} {:<66} by {}", case.section, case.what, tests[0].1),
            By::None(why) => println!("{:<9} {:<66} not tried: {why}", case.section, case.what),
            By::Here(..) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
