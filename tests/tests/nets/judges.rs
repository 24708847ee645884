//! Both judges of histories find what is planted, and nothing in a history without it.

use tidewater_tests::skipped;

use crate::nets::history::{Asked, Call, Found, Verdict, judge};
use crate::nets::porcupine::{self, Judgement};

/// An append of a record of 64 bytes: its number, its time, its epoch.
fn append(number: u64, begin: u64, end: Option<u64>, epoch: u64) -> Call {
    Call { client: number % 3, begin, end, asked: Asked::Append { number, offset: Some(64 * number), epoch } }
}

fn read(begin: u64, end: u64, numbers: impl Iterator<Item = (u64, u64)>) -> Call {
    let found = numbers.map(|(number, epoch)| Found { offset: 64 * number, epoch, number }).collect();
    Call { client: 9, begin, end: Some(end), asked: Asked::Read(found) }
}

/// Three clients at once, two epochs, an append of which nothing is known and that came about, one that did not, and a
/// read in each epoch.
fn history() -> Vec<Call> {
    let mut calls: Vec<Call> = (0..40).map(|number| append(number, 10 * number, Some(10 * number + 25), 1)).collect();
    calls[30].end = None;
    calls.push(read(200, 260, (0..21).map(|number| (number, 1))));
    calls.push(append(40, 400, None, 1));
    calls.extend((41..60).map(|number| append(number, 1_000 + 10 * number, Some(1_025 + 10 * number), 2)));
    calls.push(read(2_000, 2_010, (0..40).map(|number| (number, 1)).chain((41..60).map(|number| (number, 2)))));
    calls
}

/// Verdicts of both judges.
fn judged(calls: &[Call]) -> (Verdict, Option<Judgement>) {
    let other = porcupine::judge(calls);
    if let Err(why) = &other {
        skipped(1, why);
    }
    (judge(calls), other.ok())
}

/// Both judges find what a change of the history has planted.
fn is_found(change: impl FnOnce(&mut Vec<Call>)) -> Verdict {
    let mut calls = history();
    change(&mut calls);
    let (verdict, other) = judged(&calls);
    assert!(!verdict.is_clean(), "our own finds nothing");
    assert!(other.is_none_or(|other| other == Judgement::Impossible), "Porcupine finds nothing: {verdict:?}");
    verdict
}

fn last_read(calls: &mut [Call]) -> &mut Vec<Found> {
    match calls.last_mut().map(|call| &mut call.asked) {
        Some(Asked::Read(found)) => found,
        _ => panic!("the last call is a read"),
    }
}

#[test]
fn a_history_that_can_be_is_taken_by_both_judges() {
    let (verdict, other) = judged(&history());
    assert!(verdict.is_clean(), "{verdict:?}");
    assert!(other.is_none_or(|other| other == Judgement::Linearizable));
}

#[test]
fn an_acknowledged_record_that_is_lost_is_found_by_both_judges() {
    let verdict = is_found(|calls| _ = last_read(calls).remove(25));
    assert_eq!(verdict.lost, [25]);
    // At the end of an epoch, where a bad promotion would lose it.
    let verdict = is_found(|calls| _ = last_read(calls).remove(39));
    assert_eq!(verdict.lost, [39]);
}

#[test]
fn an_acknowledgement_of_a_deposed_primary_is_found_by_both_judges() {
    // It begins after record 50 was acknowledged by the next primary.
    let verdict = is_found(|calls| {
        let number =
            calls.iter().position(|call| *call == append(40, 400, None, 1)).expect("the call is in the history");
        calls[number] = append(40, 1_600, Some(1_620), 1);
    });
    assert_eq!(verdict.deposed, [40]);
    assert_eq!(verdict.lost, [40]);
}

#[test]
fn a_read_that_forgets_repeats_or_reorders_is_found_by_both_judges() {
    is_found(|calls| {
        let last = last_read(calls);
        let first = last[0];
        last.push(Found { offset: 64 * 70, ..first });
    });
    is_found(|calls| last_read(calls).swap(3, 4));
    // A record of which nothing is known was there, and is not any more.
    is_found(|calls| {
        last_read(calls).remove(30);
        let again = read(1_900, 1_910, (0..40).map(|number| (number, 1)));
        calls.insert(0, again);
    });
}

#[test]
fn records_against_the_order_of_their_times_are_found_by_both_judges() {
    // Record 5 is acknowledged before record 3 begins, and stands behind it.
    is_found(|calls| (calls[3].begin, calls[3].end) = (100, Some(120)));
}
