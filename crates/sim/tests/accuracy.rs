//! Closed-form truth: small simulations against formulas, in the tables of `docs/internals/accuracy.md`.
//!
//! `UPDATE_DOCS=1 cargo test -p tidewater-sim --test all accuracy` writes the tables anew. Without it the test asserts
//! that the page says what is measured, and every run asserts that each deviation is within its bound. Expected values
//! are computed here, from the settings of the profile alone: none of the firmware's own arithmetic is used, except for
//! the published curve of write amplification, which has a test of its own against figures from the paper.

mod amplification;
mod bandwidth;
mod drives;
mod errors;
mod latency;
#[path = "../../../tests/src/markdown.rs"]
mod markdown;
mod queueing;
mod steady;
mod table;

use table::Section;
use tidewater_core::profile::Profile;

#[test]
fn the_tables_are_up_to_date_and_within_their_bounds() {
    // The longest first, and each on a thread: they share nothing. The page has its own order.
    let sections: Vec<fn() -> Section> = vec![
        amplification::section,
        steady::section,
        queueing::section,
        bandwidth::section,
        latency::section,
        errors::section,
        steady::collecting,
    ];
    let measured: Vec<Section> = std::thread::scope(|scope| {
        let threads: Vec<_> = sections.iter().map(|section| scope.spawn(section)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a section does not panic")).collect()
    });
    let order = ["latency", "bandwidth", "queueing", "errors", "amplification", "steady", "collecting"];
    let tables: Vec<&Section> =
        order.iter().map(|id| measured.iter().find(|s| s.id == *id).expect("every section was measured")).collect();
    tables.iter().for_each(|section| println!("{}{}", section.id, section.table()));
    let outside: Vec<String> = tables.iter().flat_map(|section| section.outside()).collect();
    assert!(outside.is_empty(), "outside of their bounds:\n{}", outside.join("\n"));
    tables.into_iter().for_each(Section::check_page);
}

#[test]
fn the_list_of_assumptions_is_up_to_date() {
    let generic = Profile::generic();
    let assumed = Profile::keys().filter(|key| key.why.to_lowercase().contains("an assumption"));
    let mut text = String::from("\n");
    for key in assumed {
        let value = key.get(&generic).map_or_else(|| "by kind".into(), |value| format!("`{value}`"));
        text += &format!("- `{}`, {value}: {}\n", key.key(), key.why);
    }
    table::check_page("assumptions", &markdown::wrap(&text));
}
