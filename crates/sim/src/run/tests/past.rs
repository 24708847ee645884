//! Drives that have a past: no figure of a run distinguishes it from a past that was simulated.

use super::*;

/// `generic` with its 64 dies, small.
fn many_dies() -> Profile {
    with(Profile::generic(), &["drive.capacity=4GiB", "nand.pages_per_block=64"])
}

fn random_writes(past: Precondition, warmup: u64, count: u64) -> Record {
    let mut options = RunOptions { warmup_requests: warmup, ..at_depth(32) };
    options.device.precondition = past;
    let text = format!("rw=randwrite,bs=4k,size=4g,number_ios={},norandommap=1", warmup + count);
    run(&many_dies(), job(&text, 1), options).unwrap().record
}

/// It began with two superblocks free on each die that the host could fill first, and with all dies in step: a short
/// run measured a drive that never collects.
#[test]
fn a_drive_in_the_steady_state_collects_from_its_first_writes_on() {
    let settled = random_writes(Precondition::Steady, 400_000, 100_000);
    // Fewer would tell of the write buffer, which takes the first 4,096 at once, and of rows that are still on their
    // way.
    for (count, amplification, pace) in [(40_000, 0.2, 0.4), (100_000, 0.1, 0.2)] {
        let first = random_writes(Precondition::Steady, 0, count);
        let (is, will_be) = (first.write_amplification, settled.write_amplification);
        assert!((is / will_be - 1.0).abs() < amplification, "{count} writes: {is}, and {will_be} once it has settled");
        let (is, will_be) = (first.iops, settled.iops);
        assert!((is / will_be - 1.0).abs() < pace, "{count} writes: {is} IOPS, and {will_be} once it has settled");
    }
}

/// Without checkpoints of the past all of the flash was scanned after a power loss.
#[test]
fn a_drive_with_a_past_has_checkpoints_of_it() {
    for past in [Precondition::Filled(1.0), Precondition::Steady] {
        let mut options = RunOptions { power_cut: Some(Duration::from_us(1_000)), ..at_depth(32) };
        options.device.precondition = past;
        let source = job("rw=randwrite,bs=4k,size=4g,number_ios=1000000,norandommap=1", 1);
        let outcome = run(&many_dies(), source, options).unwrap();
        let recovery = outcome.record.recovery.expect("the record has a recovery");
        let rows = outcome.device.ftl().good_superblocks() * 64;
        assert!(recovery.pages_read * 10 < u64::from(rows), "{past:?}: {} of {rows} rows read", recovery.pages_read);
    }
}
