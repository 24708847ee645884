//! The mapping cache against closed forms, and under loads that read, write and collect.

use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{Profile, builtin};
use tidewater_report::Record;
use tidewater_sim::workload::JobSpec;
use tidewater_sim::{Outcome, Pacing, RunOptions, run};
use tidewater_testkit::profile::with;

/// A drive of 64 MiB on two dies whose map has 128 mapping pages of 128 entries.
const DRIVE: &[&str] = &[
    "drive.capacity=64MiB",
    "nand.channels=2",
    "nand.ways=1",
    "nand.dies_per_way=1",
    "nand.planes=1",
    "nand.pages_per_block=64",
    "nand.page_size=16KiB",
    "nand.cell=slc",
    "nand.factory_bad_rate=0",
    "nand.program_fail_rate=0",
    "nand.erase_fail_rate=0",
    "nand.rber_fresh=0",
    "nand.rber_worn=0",
    "buffer.write_size=256KiB",
    "ftl.map_page=512",
];

fn profile(settings: &[&str]) -> Profile {
    with(with(Profile::generic(), DRIVE), settings)
}

fn serve(settings: &[&str], job: &str, past: Precondition) -> Outcome {
    serve_on(&profile(settings), job, past)
}

fn serve_on(profile: &Profile, job: &str, past: Precondition) -> Outcome {
    let source =
        JobSpec::from_inline(job).and_then(|spec| spec.source(None, 1)).unwrap_or_else(|e| panic!("{job}: {e}"));
    let mut options = RunOptions { pacing: Pacing::Depth(source.iodepth()), ..RunOptions::default() };
    options.device.precondition = past;
    let outcome = run(profile, source, options).unwrap_or_else(|e| panic!("{job}: {e}"));
    assert_eq!(outcome.device.outstanding(), 0, "{}", outcome.device.describe_outstanding());
    outcome.device.ftl().assert_consistent();
    outcome
}

fn read_mean_us(record: &Record) -> f64 {
    record.latency("read").expect("the record has reads").mean
}

const READS: &str = "rw=randread,bs=4k,iodepth=1,size=60m,number_ios=4000,norandommap=1";

#[test]
fn a_hit_costs_its_memory_and_a_miss_one_flash_read() {
    let filled = Precondition::Filled(1.0);
    let all = serve(&[], READS, filled);
    let hit = serve(&["ftl.map_memory=dram", "ftl.map_size=64KiB", "memory.dram.read_latency=3us"], READS, filled);
    let cache = hit.record.map_cache.as_ref().expect("the drive has a mapping cache");
    // All 128 pages fit: each is loaded once.
    assert_eq!(
        (cache.pages, cache.pages_held, cache.loads, cache.evictions),
        (128, 128, cache.lookups - cache.hits, 0)
    );
    assert!(cache.loads <= 128);
    assert_eq!(cache.pages * 512, (64 << 20) / 1024, "the map is 0.1 % of the capacity");
    let profile = profile(&["memory.dram.read_latency=3us"]);
    let entry_us = 3.0 + 4.0 / profile.memory("dram").expect("the drive has DRAM").bandwidth as f64 * 1e6;
    let nand = &profile.nand;
    let unit = f64::from(nand.page_size + nand.oob_size) / 4.0;
    let read_us = (nand.command_time + nand.read_time[0]).as_ps() as f64 / 1e6 + unit / nand.bus_rate as f64 * 1e6;
    let expected = cache.hit_ratio * entry_us + (1.0 - cache.hit_ratio) * read_us;
    let added = read_mean_us(&hit.record) - read_mean_us(&all.record);
    assert!((added - expected).abs() < 0.002, "{added} us are added, {expected} are expected");

    // Each read has a mapping page of its own, and two are held.
    let job = "rw=read,bs=512k,iodepth=1,size=60m,number_ios=110";
    let miss = serve(&["ftl.map_memory=sram", "ftl.map_size=1KiB", "host.transfer_max=512KiB"], job, filled);
    let cache = miss.record.map_cache.as_ref().expect("the drive has a mapping cache");
    assert_eq!((cache.hits, cache.loads, cache.lookups), (0, 110, 110), "{cache:?}");
    assert_eq!(miss.record.flash.reads_meta, 110, "mapping pages are pages of the map");
    let alone = serve(&["host.transfer_max=512KiB"], job, filled);
    let added = read_mean_us(&miss.record) - read_mean_us(&alone.record);
    assert!((added - read_us).abs() < 0.002, "{added} us are added, {read_us} is a read");
}

#[test]
fn uniform_random_reads_hit_as_much_as_is_held() {
    for (size, share) in [("8KiB", 0.125), ("32KiB", 0.5)] {
        let job = "rw=randread,bs=4k,iodepth=4,size=64m,number_ios=40000,norandommap=1";
        let size = format!("ftl.map_size={size}");
        let outcome = serve(&["ftl.map_memory=sram", &size], job, Precondition::Filled(1.0));
        let cache = outcome.record.map_cache.as_ref().expect("the drive has a mapping cache");
        assert!((cache.hit_ratio - share).abs() < 0.02, "{size}: {cache:?}");
        assert!(cache.written == 0 && cache.moved == 0, "reads change nothing: {cache:?}");
    }
}

#[test]
fn prefetch_helps_what_is_sequential() {
    let job = "rw=read,bs=64k,iodepth=1,size=60m";
    let settings = ["ftl.map_memory=sram", "ftl.map_size=8KiB"];
    let plain = serve(&settings, job, Precondition::Filled(1.0));
    let ahead = serve(&[&settings[..], &["ftl.map_prefetch=4"]].concat(), job, Precondition::Filled(1.0));
    let of = |outcome: &Outcome| outcome.record.map_cache.clone().expect("the drive has a mapping cache");
    assert_eq!((of(&plain).prefetches, of(&plain).loads), (0, 120));
    assert!(of(&ahead).prefetches > 80 && of(&ahead).hit_ratio > of(&plain).hit_ratio, "{:?}", of(&ahead));
    assert!(read_mean_us(&ahead.record) < read_mean_us(&plain.record));
}

#[test]
fn writes_and_collection_go_on_with_a_cache_of_any_size() {
    let settings = ["ftl.map_memory=sram"];
    let mut written = Vec::new();
    for size in ["1KiB", "2KiB", "16KiB", "64KiB"] {
        for job in [
            "rw=randwrite,bs=4k,iodepth=16,size=64m,number_ios=30000,norandommap=1",
            "rw=randrw,rwmixread=50,bs=4k,iodepth=16,size=64m,number_ios=10000,norandommap=1,fsync=100",
            "rw=write,bs=128k,iodepth=4,size=64m,number_ios=1024",
        ] {
            let size = format!("ftl.map_size={size}");
            let outcome = serve(&[settings[0], &size], job, Precondition::Steady);
            let cache = outcome.record.map_cache.as_ref().expect("the drive has a mapping cache");
            assert!(cache.updates > 0 && cache.loads > 0, "{size} {job}: {cache:?}");
            let waiting = outcome.device.ftl().map_cache().expect("the drive has a mapping cache").updates_waiting();
            assert!(waiting <= 3 * 4_096, "{size} {job}: {waiting} changed entries wait");
            if job.starts_with("rw=randwrite") {
                let moves = cache.pages_held == cache.pages || cache.collections > 0;
                assert!(outcome.record.collections > 100 && moves, "{size}: {cache:?}");
                written.push(cache.written);
            }
        }
    }
    // Where all are at hand, only checkpoints program them. Fewer at hand need not mean more programs: changes wait for
    // each other.
    assert!(written[..3].iter().all(|&more| more > 4 * written[3]) && written[3] > 0, "{written:?}");
}

/// Rows that failed one after the other went to a die whose collection was filling a row, which came behind them. And
/// where they took a die's last superblock for mapping pages, nothing was ever collected there again.
#[test]
fn mapping_pages_whose_programs_fail_find_places() {
    for channels in ["nand.channels=2", "nand.channels=1"] {
        let drive = builtin("ssd-a").expect("the profile is there");
        let small = ["drive.capacity=512MiB", "nand.ways=2", "nand.pages_per_block=12", channels];
        let fails = ["hmb.enabled=false", "nand.program_fail_rate=2e-4", "ftl.spare_blocks=20%"];
        let job = "rw=randwrite,bs=128k,blockalign=64k,iodepth=256,size=512m,number_ios=20000";
        let outcome = serve_on(&with(with(drive, &small), &fails), job, Precondition::Fresh);
        assert!(outcome.record.flash.grown_bad_blocks > 20, "{:?}", outcome.record.flash);
    }
}
