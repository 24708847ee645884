//! Drives and loads that once broke a relation, as they were found.

use crate::relations::cases::Load;
use crate::relations::rig::{Run, serve_source, set};
use tidewater_base::Duration;
use tidewater_core::Input;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{Profile, builtin};
use tidewater_sim::{Pacing, RunOptions};

fn drive(base: &str, settings: &[&str]) -> Profile {
    let mut profile = builtin(base).expect("a built-in profile");
    assert!(set(&mut profile, settings), "{settings:?}");
    profile
}

fn serve(profile: &Profile, load: &Load, change: impl FnOnce(&mut RunOptions)) -> Run {
    let source = load.source(profile.drive.capacity);
    let depth = source.iodepth();
    let options = |options: &mut RunOptions| {
        options.pacing = Pacing::Depth(depth);
        change(options);
    };
    serve_source(profile, load, source, options).unwrap_or_else(|error| panic!("{load:?}: {error}"))
}

/// An ordinary victim that was half collected when enough was free again held the place that folding needed, for ever.
#[test]
fn a_half_collected_victim_does_not_keep_a_full_slc_cache_from_folding() {
    let one_die = [
        "nand.channels=1",
        "nand.ways=1",
        "nand.planes=1",
        "nand.pages_per_block=32",
        "slc.size=1MiB",
        "slc.when_full=fold",
        "buffer.write_policy=none",
        "drive.capacity=64MiB",
    ];
    for (job, fua) in [("rw=randwrite,bs=4k", false), ("rw=write,bs=64k", false), ("rw=randwrite,bs=4k", true)] {
        let load = Load { fua, ..Load::one(Precondition::Steady, job, 16_384) };
        let run = serve(&drive("generic", &one_die), &load, |_| {});
        let slc = run.record.slc.expect("the drive has an SLC cache");
        assert_eq!(run.record.requests, 16_384, "{job}");
        assert!(slc.superblocks_folded > 10 && run.record.collections > 10, "{job}: {slc:?}");
    }
}

#[test]
fn client_drives_whose_slc_cache_folds_serve_to_the_end() {
    for (base, settings) in [
        ("ssd-c", ["slc.size=32MiB", "drive.capacity=256MiB"]),
        ("ssd-d", ["slc.size=32MiB", "drive.capacity=256MiB"]),
        ("tlc-client", ["slc.size=16MiB", "drive.capacity=128MiB"]),
    ] {
        let smaller = ["nand.ways=1", "nand.pages_per_block=48", "slc.when_full=fold"];
        let load = Load::one(Precondition::Steady, "rw=randwrite,bs=4k,iodepth=32,norandommap=1", 60_000);
        let run = serve(&drive(base, &[&settings[..], &smaller[..]].concat()), &load, |_| {});
        assert_eq!(run.record.requests, 60_000, "{base}");
        assert!(run.record.slc.is_some_and(|slc| slc.superblocks_folded > 100), "{base}: {:?}", run.record.slc);
    }
}

/// Where collection shares the host's rows, what it moves is on flash already.
#[test]
fn units_that_collection_moves_are_not_lost_with_the_power() {
    let settings =
        ["nand.channels=1", "nand.ways=1", "nand.pages_per_block=32", "ftl.gc_stream=false", "drive.capacity=64MiB"];
    for flushed in [false, true] {
        let load = Load::one(Precondition::Steady, "rw=randwrite,bs=4k", 5_000);
        let load = Load { fua: !flushed, flushed, ..load };
        for ms in [100, 250, 400, 600] {
            let cut = |options: &mut RunOptions| options.power_cut = Some(Duration::from_ms(ms));
            let run = serve(&drive("generic", &settings), &load, cut);
            let lost = run.record.recovery.expect("a recovery").pages_lost.expect("a count of lost pages");
            assert!(run.record.collections > 0 && lost <= u64::from(flushed), "{ms} ms: {lost} pages lost");
        }
    }
}

/// Nor does the energy of capacitors have to write it out: a buffer that has been emptied leaves nothing to dump.
#[test]
fn capacitors_write_out_nothing_that_collection_moves() {
    let settings = [
        "nand.channels=1",
        "nand.ways=1",
        "nand.pages_per_block=32",
        "ftl.gc_stream=false",
        "drive.capacity=64MiB",
        "memory.dram.survives=by-capacitors",
        "buffer.write_size=256KiB",
        "buffer.write_watermark=0%",
    ];
    let mut moving = 0;
    for requests in 2_000..2_012 {
        let load = Load::one(Precondition::Steady, "rw=randwrite,bs=4k", requests);
        let run = serve(&drive("generic", &settings), &load, |options| options.device.stamps = true);
        let mut device = run.device;
        // To its rest: all that the host wrote is on flash.
        while let Some(at) = device.deadline() {
            device.handle(at, Input::Timer).expect("the drive accepts its own deadline");
            while device.poll().is_some() {}
        }
        assert!(run.record.collections > 0, "{requests}");
        moving += device.ftl().unprogrammed().count();
        let remains = device.cut_power();
        assert!(remains.buffered().is_empty(), "after {requests}: {:?}, {:?}", remains.dump(), remains.buffered());
    }
    assert!(moving > 0, "collection has left units in the host's row");
}

/// Checkpoints go to one die. Faster than it programs them they queued there, and what came to it later waited for all
/// of them.
#[test]
fn checkpoints_do_not_queue_up_on_a_die() {
    let longest = |interval: u32| {
        let settings = [
            "drive.capacity=16GiB",
            "flash.read_priority=false",
            "flash.suspend=false",
            &format!("ftl.checkpoint_interval={interval}"),
        ];
        let load = Load::one(Precondition::Fresh, "rw=randrw,rwmixread=5,bs=64k,iodepth=256", 40_000);
        let record = serve(&drive("generic", &settings), &load, |_| {}).record;
        assert!(interval == 0 || record.flash.units_meta > 2_000, "{:?}", record.flash);
        record.latency_us["read"].max
    };
    let without = longest(0);
    for interval in [4, 16, 128] {
        let with = longest(interval);
        assert!(with < 3.0 * without, "interval {interval}: {with} us, and {without} us without checkpoints");
    }
}

/// Where the buffer survives a power loss a flush waits for nothing, and each of them has deallocations logged. They
/// share a row while others are under way, and do not queue as fast as they come.
#[test]
fn logged_deallocations_do_not_queue_up_on_a_die() {
    let settings = [
        "drive.capacity=1GiB",
        "flash.read_priority=false",
        "flash.suspend=false",
        "memory.dram.survives=by-capacitors",
        "buffer.energy=10",
    ];
    let mut load = Load::one(Precondition::Filled(1.0), "rw=randread,bs=4k,iodepth=32", 20_000);
    load.jobs.push("rw=randtrim,bs=4k,iodepth=32".into());
    load.jobs.push("rw=randwrite,bs=4k,iodepth=8,norandommap=1,random_distribution=zipf:2".into());
    load.flushed = true;
    let record = serve(&drive("generic", &settings), &load, |_| {}).record;
    assert!(record.flash.units_meta > 100, "{:?}", record.flash);
    let longest = record.latency_us["read"].max;
    assert!(longest < 10_000.0, "a read took {longest} us behind the log");
}

/// The firmware's own writes count when they are programmed, like everything in `programs`.
#[test]
fn rows_of_the_map_count_when_they_are_programmed() {
    let settings = ["drive.capacity=64MiB", "ftl.checkpoint_interval=1", "buffer.write_policy=none"];
    let load = Load::one(Precondition::Fresh, "rw=randwrite,bs=32k,iodepth=64", 2_000);
    let flash = serve(&drive("generic", &settings), &load, |_| {}).record.flash;
    assert!(flash.units_meta > 0 && flash.units_total() <= flash.programs * 8, "{flash:?}");
}

/// A block in which a program failed is erased once more before it is replaced, and that counts.
#[test]
fn erases_of_blocks_that_turn_bad_count() {
    let settings = [
        "drive.capacity=64MiB",
        "nand.channels=1",
        "nand.ways=1",
        "nand.planes=1",
        "nand.factory_bad_rate=0",
        "nand.program_fail_rate=2e-4",
        "nand.erase_fail_rate=0",
        "ftl.spare_blocks=20%",
        "flash.suspend=false",
        "buffer.write_policy=none",
    ];
    let load = Load::one(Precondition::Steady, "rw=randwrite,bs=4k,iodepth=8,norandommap=1", 40_000);
    let run = serve(&drive("generic", &settings), &load, |_| {});
    let (record, nand) = (&run.record, &run.device.profile().nand);
    let times = record.utilization.dies[0].erase_share * record.simulated_seconds / nand.erase_time.as_secs_f64();
    assert!(record.flash.grown_bad_blocks > 0, "{:?}", record.flash);
    assert!((times - record.erases as f64).abs() < 1.0, "{times} times of an erase, {} erases", record.erases);
}
