//! The SLC cache through the whole drive.

use super::*;
use tidewater_report::record::Slc;

/// Four dies of TLC flash with blocks of 96 pages (32 in single-level mode), and room for 4 MiB of writes in the cache.
pub(super) fn cached(settings: &[&str]) -> Profile {
    let tlc = [
        "nand.cell=tlc",
        "nand.pages_per_block=96",
        "nand.read_time=[60us, 60us, 60us]",
        "nand.program_time=[600us, 600us, 600us]",
        "slc.size=4MiB",
        "slc.read_time=20us",
        "slc.program_time=150us",
        "buffer.write_policy=none",
    ];
    with(with(small(), &tlc), settings)
}

fn slc(record: &Record) -> Slc {
    record.slc.expect("the drive has an SLC cache")
}

/// 64 KiB writes over so many MiB, then a pause, then reads of the first MiB, 4 KiB each.
fn write_then_read(mib: u64, pause_us: u64) -> List {
    let writes = (0..mib * 16).map(|i| request(0, Op::Write, i << 16, 1 << 16));
    let reads = (0..256).map(move |i| request(1_000_000 + pause_us + 1_000 * i, Op::Read, i << 12, 1 << 12));
    list(writes.chain(reads))
}

#[test]
fn a_single_write_and_read_take_the_times_of_single_level_cells() {
    let one_die = ["nand.channels=1", "nand.ways=1", "slc.fold_after=1s", "nand.cache=false"];
    let profile = cached(&one_die);
    let (host, nand) = (&profile.host, &profile.nand);
    let around = us(host.command_time) + us(nand.command_time) + on_bus(&profile) + us(host.completion_time);
    let requests = (0..64).map(|i| {
        let op = if i < 32 { Op::Write } else { Op::Read };
        request(10_000 * i, op, i % 32 * 4_096, 4_096)
    });
    let record = run(&profile, list(requests), RunOptions::default()).unwrap().record;
    let (write, read) = (&record.latency_us["write"], &record.latency_us["read"]);
    let link = on_link(&profile, 4_096);
    assert!(close(write.max, around + link + 150.0), "{write:?}, not {}", around + link + 150.0);
    assert!(
        close(read.max, around + link + 20.0) && close(read.min, read.max),
        "{read:?}, not {}",
        around + link + 20.0
    );
    assert_eq!((slc(&record).units_written, slc(&record).reads_host, slc(&record).units_folded), (32, 32, 0));
}

/// As fast as single-level cells while there is room, then as fast as the others.
#[test]
fn bandwidth_falls_off_a_cliff_when_the_cache_is_full() {
    for (when_full, in_cache) in [("direct", 3..5), ("fold", 31..33)] {
        let full = format!("slc.when_full={when_full}");
        let bandwidth = |mib: u64| {
            let writes = list((0..mib * 16).map(|i| request(0, Op::Write, i << 16, 1 << 16)));
            let record = run(&cached(&[&full]), writes, at_depth(16)).unwrap().record;
            (record.bandwidth_mib_s.write, slc(&record), record.simulated_seconds)
        };
        let (fast, within, began) = bandwidth(4);
        let (_, beyond, ended) = bandwidth(32);
        let slow = 28.0 / (ended - began);
        // A die whose share is used up takes rows past the cache while others still have room.
        assert!(
            within.units_written >= 960 && within.units_folded <= 64 && within.fill >= 0.9,
            "{when_full}: {within:?}"
        );
        assert!(in_cache.contains(&(beyond.units_written / 256)), "{when_full}: {beyond:?}");
        // Four times the time of a program; through the cache, a row costs both programs, and a read.
        let expected = if when_full == "direct" { 4.0 } else { 5.0 };
        assert!((fast / slow / expected - 1.0).abs() < 0.15, "{when_full}: {fast} MiB/s, then {slow}");
    }
}

/// In idle time the cache is emptied: reads take longer then, and the next burst is fast again.
#[test]
fn a_pause_empties_the_cache() {
    let early = run(&cached(&["slc.fold_after=1s"]), write_then_read(4, 0), RunOptions::default()).unwrap();
    let late = run(&cached(&["slc.fold_after=10ms"]), write_then_read(4, 0), RunOptions::default()).unwrap();
    let (kept, folded) = (slc(&early.record), slc(&late.record));
    assert!(kept.units_folded == 0 && kept.reads_host == 256 && kept.units >= 960, "{kept:?}");
    // What is left is the superblock of a die that was not full.
    assert!(folded.units_folded >= 900 && folded.reads_host == 0 && folded.fill < 0.1, "{folded:?}");
    let read = |outcome: &Outcome| outcome.record.latency_us["read"].p50;
    assert!(close(read(&late) - read(&early), 40.0), "{} and {}", read(&early), read(&late));
    assert_eq!(late.record.flash.units_collected, folded.units_folded);
    // The second burst after the pause.
    let burst = |at: u64| (0..64u64).map(move |i| request(at, Op::Write, i << 16, 1 << 16));
    let record = run(&cached(&[]), list(burst(0).chain(burst(500_000))), RunOptions::default()).unwrap().record;
    assert!(slc(&record).units_written >= 1_920, "both bursts found room: {:?}", slc(&record));
}

#[test]
fn folding_stops_while_the_host_works() {
    let steady = || {
        let writes = (0..64u64).map(|i| request(0, Op::Write, i << 16, 1 << 16));
        let reads = (0..400).map(|i| request(50_000 + 1_000 * i, Op::Read, 0, 4_096));
        list(writes.chain(reads))
    };
    let busy = run(&cached(&["slc.fold_after=5ms"]), steady(), RunOptions::default()).unwrap().record;
    // It had the time between the burst and the first read, and none after.
    let quiet = run(&cached(&["slc.fold_after=500us"]), steady(), RunOptions::default()).unwrap().record;
    let (busy, quiet) = (slc(&busy), slc(&quiet));
    assert!(busy.units_folded < 300 && quiet.units_folded > 900, "{busy:?}\n{quiet:?}");
}

/// The dynamic part is what is erased, and the capacity has none of it.
#[test]
fn the_dynamic_part_shrinks_as_the_drive_fills() {
    let room = |share: f64| {
        let mut options = RunOptions::default();
        options.device.precondition = Precondition::Filled(share);
        let profile = cached(&["slc.size=0", "slc.dynamic=100%"]);
        let record = run(&profile, write_then_read(1, 0), options).unwrap().record;
        (slc(&record).superblocks_max, record.capacity_bytes)
    };
    let rooms = [0.0, 0.3, 0.6, 0.9].map(room);
    assert!(rooms.windows(2).all(|pair| pair[0].0 > pair[1].0 && pair[0].1 == pair[1].1), "{rooms:?}");
    let full = room(1.0).0;
    assert!(full <= rooms[3].0 / 2, "{full} of {rooms:?}");
}

#[test]
fn a_full_drive_serves_on_whatever_the_cache_is() {
    for settings in [
        ["slc.size=4MiB", "slc.dynamic=0", "slc.when_full=fold"],
        ["slc.size=0", "slc.dynamic=100%", "slc.when_full=fold"],
        ["slc.size=2MiB", "slc.dynamic=50%", "slc.when_full=direct"],
    ] {
        let mut options = at_depth(8);
        options.device.precondition = Precondition::Steady;
        options.device.stamps = true;
        let source = job("rw=randwrite,bs=4k,size=64m,number_ios=30000,norandommap=1", 3);
        let outcome = run(&cached(&settings), source, options).unwrap();
        outcome.device.ftl().assert_consistent();
        assert!(slc(&outcome.record).units_written > 0 && outcome.record.collections > 0, "{settings:?}");
        assert_eq!(outcome.record.commands_failed, 0, "{settings:?}");
    }
}
