//! Every knob of a profile does something: changing it changes the result, in the direction that its meaning says.
//!
//! Simulators whose settings silently do nothing give wrong answers with confidence; here a key cannot be added without
//! saying what it does.

mod builtins;
mod fast;
mod memories;
mod random;
mod regressions;
mod rig;
mod table;
mod window;

use rig::{result, small, try_serve};
use std::collections::BTreeSet;
use table::{ELSEWHERE, KNOBS, Knob, LABELS, Must, SERVED};
use tidewater_core::profile::Profile;

#[test]
fn every_key_has_an_entry() {
    let listed: Vec<&str> = KNOBS
        .iter()
        .map(|knob| knob.key)
        .chain(LABELS.iter().map(|(key, _)| *key))
        .chain(ELSEWHERE.iter().map(|(key, _)| *key))
        .chain(fast::KEYS.iter().chain(window::KEYS).map(|(key, _)| *key))
        .chain(SERVED.iter().copied())
        .collect();
    let listed_once: BTreeSet<String> = listed.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(listed.len(), listed_once.len(), "a key is listed twice");
    let keys: BTreeSet<String> = Profile::keys().map(|info| info.key()).collect();
    let missing: Vec<&String> = keys.difference(&listed_once).collect();
    assert!(missing.is_empty(), "say in tests/knobs/table.rs what these keys do: {missing:?}");
    let gone: Vec<&String> = listed_once.difference(&keys).collect();
    assert!(gone.is_empty(), "these keys are no longer there: {gone:?}");
}

/// Faults of a knob.
fn try_knob(knob: &Knob) -> Vec<String> {
    let base = small(knob.base);
    let mut changed = base.clone();
    let key = knob.key.replace("NAME", "dram");
    if let Err(error) = changed.set(&key, knob.to) {
        return vec![error.to_string()];
    }
    let (before, after) = match (try_serve(&base, &knob.load), try_serve(&changed, &knob.load)) {
        (Ok(before), Ok(after)) => (before.record, after.record),
        (Err(error), _) => return vec![format!("{key} as it is: {error}")],
        (_, Err(error)) => return vec![format!("{key} = {}: {error}", knob.to)],
    };
    let from = base.get(&key).expect("a key of the table");
    let mut wrong = Vec::new();
    if result(&before) == result(&after) {
        wrong.push(format!("{key}: {from} and {} have the same result", knob.to));
    }
    for must in knob.must {
        let (Must::Rise((name, value)) | Must::Fall((name, value)) | Must::Change((name, value))) = must;
        let (was, is) = (value(&before), value(&after));
        println!("{key}: {from} -> {}: {name} {was:.4} -> {is:.4}", knob.to);
        let (holds, expected) = match must {
            Must::Rise(_) => (is > was, "rise"),
            Must::Fall(_) => (is < was, "fall"),
            Must::Change(_) => (is != was, "change"),
        };
        if !holds {
            wrong.push(format!(
                "{key} from {from} to {}: {name} should {expected}, and went from {was} to {is}",
                knob.to
            ));
        }
    }
    wrong
}

#[test]
fn every_knob_turns() {
    let wrong: Vec<String> = KNOBS.iter().flat_map(try_knob).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
