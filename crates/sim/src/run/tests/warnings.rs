//! Warnings of a run.

use super::*;

fn warned<'a>(record: &'a Record, part: &str) -> Option<&'a String> {
    record.warnings.iter().find(|warning| warning.contains(part))
}

#[test]
fn bursts_within_an_open_loop_are_warned_of_wherever_they_are() {
    let profile = with(tiny(), &["nand.cache=false"]);
    let calm = |at_us: u64| (0..1_000).map(move |i| request(at_us + i * 1_000, Op::Read, i * 4_096, 4_096));
    let burst = |at_us: u64, count: u64| (0..count).map(move |i| request(at_us, Op::Read, i * 4_096, 4_096));
    let run = |requests: Vec<Request>, options: RunOptions| run(&profile, list(requests), options).unwrap().record;
    let quiet = run(calm(0).collect(), RunOptions::default());
    assert!(warned(&quiet, "burst").is_none(), "{:?}", quiet.warnings);
    // Long over when the run ends.
    let early = || burst(0, 2_000).chain(calm(1_000_000)).collect::<Vec<Request>>();
    let bursting = run(early(), RunOptions::default());
    let said = warned(&bursting, "requests came in bursts").unwrap_or_else(|| panic!("{:?}", bursting.warnings));
    assert!(said.contains("up to 2,000 were outstanding at once") && said.contains("--queue-depth"), "{said}");
    // In a closed loop latency counts from submission: there is no such queue.
    let closed = run(early(), at_depth(64));
    assert!(warned(&closed, "burst").is_none(), "{:?}", closed.warnings);
    let late = run(calm(0).chain(burst(1_000_000, 4_000)).collect(), RunOptions::default());
    assert!(warned(&late, "requests came faster than the drive serves them").is_some(), "{:?}", late.warnings);
    assert!(warned(&late, "burst").is_none(), "one of the two is enough: {:?}", late.warnings);
}

#[test]
fn a_used_drive_that_never_collected_is_said_by_what_it_was() {
    let writes = |past, count: u32| {
        let mut options = at_depth(8);
        options.device.precondition = past;
        run(&tiny(), job(&format!("rw=randwrite,bs=4k,size=64m,number_ios={count},norandommap=1"), 1), options)
            .unwrap()
            .record
    };
    for (past, words) in [
        (Precondition::Fresh, "the drive started empty and never needed garbage collection"),
        (Precondition::Filled(0.5), "the drive began filled:50%, and its spare flash took all"),
        (Precondition::Filled(1.0), "the drive began filled, and its spare flash took all"),
    ] {
        let little = writes(past, 10);
        assert!(warned(&little, words).is_some(), "{past:?}: {:?}", little.warnings);
    }
    let steady = writes(Precondition::Steady, 40);
    assert!(steady.collections > 0 && warned(&steady, "the drive began").is_none(), "{:?}", steady.warnings);
}

#[test]
fn a_drive_that_is_too_small_says_what_is_true_and_what_helps() {
    let written = |settings: &[&str]| {
        let profile = with(Profile::generic(), settings);
        run(&profile, job("rw=randwrite,bs=4k,size=64m,number_ios=20000,norandommap=1", 1), at_depth(8)).unwrap().record
    };
    let large = written(&[]);
    let said = warned(&large, "effective over-provisioning is").unwrap_or_else(|| panic!("{:?}", large.warnings));
    let remedy = ["nand.ways=1", "nand.pages_per_block=64"];
    assert!(remedy.iter().all(|set| said.contains(&format!("--set {set}"))), "{said}");
    assert!(said.contains("as on a nearly empty drive"), "{said}");
    let closer = written(&remedy);
    assert!(closer.flash.over_provisioning < 0.2, "the remedy helps: {}", closer.flash.over_provisioning);
    let said = warned(&closer, "effective over-provisioning is").unwrap_or_else(|| panic!("{:?}", closer.warnings));
    assert!(said.contains("lower than a larger drive's") && !said.contains("nearly empty"), "{said}");
}

#[test]
fn one_of_a_thing_is_singular() {
    let far = [request(0, Op::Write, 0, 4_096), request(10_000, Op::Write, 4_096, 4_096)];
    for (cut, under_way) in [(Duration::from_ns(100), true), (Duration::from_ms(5), false)] {
        let options = RunOptions { power_cut: Some(cut), ..RunOptions::default() };
        let record = run(&small(), list(far), options).unwrap().record;
        let said = warned(&record, "is not counted").unwrap_or_else(|| panic!("{:?}", record.warnings));
        assert!(said.ends_with(if under_way { ", nor 1 request under way" } else { "is not counted" }), "{said}");
    }
}

#[test]
fn a_power_cut_tells_how_much_was_completed_and_lost() {
    let cut = |settings: &[&str], fsync: &str| {
        let options = RunOptions { power_cut: Some(Duration::from_ms(2)), ..at_depth(1) };
        let text = format!("rw=write,bs=4k,size=64m,number_ios=16000{fsync}");
        run(&with(small(), settings), job(&text, 1), options).unwrap().record
    };
    let lost = |record: Record| record.recovery.expect("the record has a recovery").pages_lost;
    let buffered = cut(&[], "");
    // The buffer has 64 pages, and rows are on their way.
    let held = buffered.write_buffer.pages_max;
    let pages = lost(buffered).expect("the lost pages are counted");
    assert!(pages > 10 && pages < held + 200, "{pages} of {held}");
    assert!(lost(cut(&[], ",fsync=1")).expect("the lost pages are counted") <= 1, "all but the last was flushed");
    assert_eq!(
        lost(cut(&["buffer.write_policy=none"], "")),
        Some(0),
        "without a buffer, what is completed is on flash"
    );
    assert_eq!(lost(cut(&["memory.dram.survives=by-capacitors"], "")), Some(0));
}

/// 2,840 of 3,000 failed writes had counted as bytes: 17.4 GiB/s over a link of 7.2.
#[test]
fn what_failed_moves_no_bytes() {
    let profile = with(tiny(), &["nand.program_fail_rate=1"]);
    let record = run(&profile, job("rw=write,bs=64k,size=48m,number_ios=500", 1), at_depth(4)).unwrap().record;
    assert!(record.commands_failed > 0 && record.commands == 500, "{} failed", record.commands_failed);
    assert_eq!(record.bytes_written, (500 - record.commands_failed) * 65_536);
    let in_series: f64 = record.time_series.points.iter().map(|point| point.write_mib_s).sum();
    assert!((in_series > 0.0) == (record.bytes_written > 0), "{in_series}");
    // A request of several commands that fails is no bytes either.
    let source = list([request(0, Op::Write, 0, 16 << 20)]);
    let large = run(&profile, source, RunOptions::default()).unwrap().record;
    assert!(large.commands > 1 && large.commands_failed > 0, "{} of {} failed", large.commands_failed, large.commands);
    assert_eq!((large.requests, large.bytes_written, large.flash_written_per_host_byte), (1, 0, None));
}

#[test]
fn a_byte_of_the_host_costs_what_was_programmed_for_it() {
    let written = |settings: &[&str]| {
        let source = job("rw=randwrite,bs=4k,size=128k,number_ios=4000,norandommap=1", 1);
        run(&with(small(), settings), source, at_depth(4)).unwrap().record
    };
    let absorbed = written(&[]);
    assert_eq!(absorbed.flash_written_per_host_byte, Some(0.0), "32 pages fit into the buffer of 64");
    let through = written(&["buffer.write_policy=none"]);
    let programmed = (through.flash.units_total() * through.flash.unit_bytes) as f64;
    assert_eq!(through.flash_written_per_host_byte, Some(programmed / through.bytes_written as f64));
    assert!(through.flash_written_per_host_byte >= Some(1.0));
    let nothing = run(&small(), list([request(0, Op::WriteZeroes, 0, 65_536)]), RunOptions::default()).unwrap().record;
    assert_eq!(nothing.flash_written_per_host_byte, None, "write zeroes bring no bytes");
}

#[test]
fn few_writes_to_a_drive_in_its_steady_state_are_no_write_amplification() {
    // A superblock of each die is 512 MiB; the drive is idle between the writes.
    let written = |past, mib: u64| {
        let mut options = RunOptions::default();
        options.device.precondition = past;
        let text = format!("rw=randwrite,bs=4k,size=1g,number_ios={},rate_iops=10000", mib * 256);
        run(&Profile::generic(), job(&text, 1), options).unwrap().record
    };
    let few = written(Precondition::Steady, 32);
    let said = warned(&few, "little was written to flash").unwrap_or_else(|| panic!("{:?}", few.warnings));
    assert!(said.contains("512 MiB") && few.write_amplification > 2.0, "{said}, {}", few.write_amplification);
    assert!(warned(&written(Precondition::Steady, 600), "little was written").is_none());
    assert!(warned(&written(Precondition::Filled(1.0), 32), "little was written").is_none());
}

#[test]
fn host_memory_that_the_drive_does_not_take_is_said() {
    let set = |changes: &[&str]| {
        let profile = with(tidewater_core::profile::builtin("ssd-a").unwrap(), changes);
        run(&profile, job("rw=randread,bs=4k,size=64m,number_ios=100", 1), at_depth(1)).unwrap().record
    };
    let lent = |size: &str| set(&[size]);
    let little = lent("hmb.size=4MiB");
    assert!(warned(&little, "no host memory was lent: 4 MiB").is_some(), "{:?}", little.warnings);
    assert!(warned(&little, "not trusted").is_none(), "{:?}", little.warnings);
    let enough = lent("hmb.size=8MiB");
    assert!(warned(&enough, "no host memory").is_none() && warned(&enough, "not trusted").is_some());
    // As much as the drive wishes, which is less than it takes.
    let wish = set(&["hmb.size=0", "memory.lent.size=4MiB"]);
    let said = warned(&wish, "no host memory was lent").unwrap_or_else(|| panic!("{:?}", wish.warnings));
    assert!(said.contains("lent: 4 MiB"), "{said}");
}

/// Several outputs of blkparse one after the other each begin at time 0: all but the first were replayed in a burst,
/// unsaid.
#[test]
fn stamps_that_go_back_are_said_where_they_are_many() {
    let replayed = |stamps: Vec<u64>| {
        let line = |ms: u64| format!("0,{},4096,W,0.{ms:03}\n", ms * 8);
        let text: String = stamps.into_iter().map(line).collect();
        let input = crate::trace::Input::from_bytes("t", text.as_bytes());
        let trace = crate::trace::Trace::open(&input, &crate::trace::Options::default()).unwrap();
        move |options: RunOptions| run(&tiny(), trace, options).unwrap().record
    };
    let twice = || replayed((0..400).chain(0..400).collect());
    let record = twice()(RunOptions::default());
    let said = warned(&record, "399 of 800 requests").unwrap_or_else(|| panic!("{:?}", record.warnings));
    assert!(said.contains("before") && said.contains("at once"), "{said}");
    // In a closed loop stamps do not count, and here and there one that is out of order changes nothing.
    assert!(warned(&twice()(at_depth(4)), "399").is_none());
    let few = replayed((0..400).chain([398]).collect())(RunOptions::default());
    assert!(warned(&few, "stamp").is_none(), "{:?}", few.warnings);
}
