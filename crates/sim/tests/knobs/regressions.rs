//! Faults that random drives brought to light, each under its name.

use crate::knobs::random::{End, Job, SEED, serve};
use tidewater_base::{Instant, Rng};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_sim::Pacing;
use tidewater_sim::workload::{Op, Request};
use tidewater_testkit::profile::with;

fn drive(settings: &[&str]) -> Profile {
    with(with(Profile::generic(), SEED), settings)
}

/// A busy host: requests of these kinds, anywhere on the drive, every 20 us.
fn busy(past: Precondition, kinds: &[Op], requests: u64) -> Job {
    let mut rng = Rng::new(5, b"regressions");
    let request = |i: u64| {
        let op = kinds[rng.below(kinds.len() as u64) as usize];
        let (offset, length) = (rng.below(4_096) * 4_096, [512, 4_096, 65_536][rng.below(3) as usize]);
        let (offset, length) = if op == Op::Flush { (0, 0) } else { (offset, length) };
        Request { arrival: Instant::from_ns(i * 20_000), op, offset, length, fua: rng.below(4) == 0 }
    };
    Job { past, pacing: Pacing::Depth(8), by_operation: false, requests: (0..requests).map(request).collect() }
}

const ALL: &[Op] = &[Op::Write, Op::Write, Op::Read, Op::Flush, Op::Deallocate, Op::WriteZeroes];

#[track_caller]
fn serves(settings: &[&str], job: &Job) {
    match serve(&drive(settings), job) {
        Ok(end) => assert_eq!(end, End::Served),
        Err(error) => panic!("{error}"),
    }
}

/// A program that failed while the past was made left a bad block in use.
#[test]
fn a_past_is_constructed_on_flash_that_fails() {
    for past in [Precondition::Steady, Precondition::Filled(1.0)] {
        serves(&["nand.program_fail_rate=2%"], &busy(past, ALL, 500));
    }
}

/// Collection panicked when it had no superblock left, and a flush waited for ever for a log that had no place.
#[test]
fn a_drive_whose_every_program_fails_comes_to_its_end() {
    for share in ["1", "0.3", "0.01"] {
        serves(&[&format!("nand.program_fail_rate={share}")], &busy(Precondition::Steady, ALL, 4_000));
    }
}

/// Spares ran out, and a page without a place of its own was charged a read of a block that was no more.
#[test]
fn a_drive_whose_erases_all_fail_comes_to_its_end() {
    for past in [Precondition::Fresh, Precondition::Steady] {
        serves(&["nand.endurance=1"], &busy(past, ALL, 8_000));
    }
}

/// Several superblocks were about to be erased, and yet collection found itself without one.
#[test]
fn slow_erases_are_waited_for() {
    for stream in [true, false] {
        let slow = ["nand.erase_time=1s", "nand.program_time=[1us, 1us, 1us]", &format!("ftl.gc_stream={stream}")];
        serves(&slow, &busy(Precondition::Steady, ALL, 4_000));
    }
}

/// Every die had been left alone for a reason that had ceased to hold: the drive stood still.
#[test]
fn collection_goes_on_when_deallocations_and_past_pages_change_what_there_is_to_do() {
    for depth in [1, 4, 32] {
        let job = Job { pacing: Pacing::Depth(depth), ..busy(Precondition::Fresh, ALL, 12_000) };
        serves(&[], &job);
    }
}

/// The log of deallocations took the superblocks that collection needs.
#[test]
fn a_log_of_deallocations_leaves_room_for_data() {
    let kinds = [Op::WriteZeroes, Op::Deallocate, Op::Flush, Op::Write];
    serves(&["nand.pages_per_block=4"], &busy(Precondition::Steady, &kinds, 8_000));
    serves(&["nand.pages_per_block=4", "drive.capacity=4KiB"], &busy(Precondition::Fresh, &kinds, 4_000));
}

/// 128 units in a row do not fit the word that says which of them are valid.
#[test]
fn a_row_of_too_many_units_is_refused() {
    let refused = drive(&["ftl.unit_size=512", "nand.planes=4"]).check().expect_err("a row of 128 units is refused");
    assert!(refused.to_string().contains("128 units") && refused.to_string().contains("at most 64"), "{refused}");
}
