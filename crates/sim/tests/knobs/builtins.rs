//! Every built-in profile serves a mixed job, whatever its past, and ends at rest.

use crate::knobs::rig::{Load, load, outcome, serve};
use tidewater_core::profile::{Profile, builtin, names};
use tidewater_testkit::profile::set;

// Two in five requests are reads of 4 to 64 KiB; every hundredth is a flush.
const SHORT: Load =
    load("rw=randrw,rwmixread=40,bssplit=4k/60:16k/30:64k/10,iodepth=24,size=2m,number_ios=3000,fsync=100");
const LONG: Load =
    load("rw=randrw,rwmixread=40,bssplit=4k/60:16k/30:64k/10,iodepth=24,size=256m,number_ios=20000,fsync=1000");

fn profile(name: &str) -> Profile {
    builtin(name).expect("a built-in profile has its name")
}

#[test]
fn they_serve_as_they_are() {
    for name in names() {
        let outcome = serve(&profile(name), &SHORT.fresh());
        assert!(outcome.record.requests > 3_000, "{name}: requests and flushes");
        assert_eq!(outcome.record.commands_failed, 0, "{name}");
    }
}

/// Cut down to a small capacity, so that it can be filled and brought to its steady state.
#[test]
fn they_serve_when_full_and_when_collecting() {
    for name in names() {
        let mut small = profile(name);
        let full = if name == "tiny" { SHORT } else { LONG };
        if name != "tiny" {
            set(&mut small, &["drive.capacity=256MiB", "nand.blocks_per_plane=0", "nand.pages_per_block=8"]);
        }
        if small.slc.size > 0 {
            // As small as the drive: else all that is written stays in the cache, and nothing is collected.
            set(&mut small, &["slc.size=1MiB"]);
        }
        for load in [full, full.steady()] {
            let outcome = serve(&small, &load);
            assert_eq!(outcome.record.commands_failed, 0, "{name}");
            assert!(outcome.record.collections > 0 || !load.is_steady(), "{name}: a steady drive collects");
        }
    }
}

/// The drives of three papers: how large they are there (the first as in its profile's mode), how large in the
/// experiments, and loads on a part, under which flash is programmed and that of the third collected, and on all.
const AS_LARGE: [(&str, [&str; 2], [Load; 3]); 3] = [
    (
        "villars",
        ["1TiB", "8GiB"],
        [
            load("rw=randrw,bs=64k,iodepth=8,size=256m,number_ios=20000").fresh(),
            load("rw=randrw,bs=4k,iodepth=8,size=1000g,number_ios=3000").fresh(),
            load("rw=randrw,bs=4k,iodepth=16,size=1000g,number_ios=400000").fresh(),
        ],
    ),
    (
        "2b-ssd",
        ["800GiB", "8GiB"],
        [
            load("rw=randrw,bs=64k,iodepth=8,size=256m,number_ios=20000").fresh(),
            load("rw=randrw,bs=4k,iodepth=8,size=800g,number_ios=3000").fresh(),
            load("rw=randrw,bs=4k,iodepth=16,size=800g,number_ios=400000").fresh(),
        ],
    ),
    (
        "slc-cbm",
        ["320GiB", "512MiB"],
        [
            load("rw=randrw,bs=4k,iodepth=1,size=256m,number_ios=60000"),
            load("rw=randrw,bs=4k,iodepth=1,size=320g,number_ios=3000").fresh(),
            load("rw=randrw,bs=4k,iodepth=1,size=320g,number_ios=400000").fresh(),
        ],
    ),
];

fn of_size(name: &str, capacity: &str) -> Profile {
    let mut profile = profile(name);
    set(&mut profile, &[&format!("drive.capacity={capacity}"), "nand.blocks_per_plane=0"]);
    profile
}

#[test]
fn a_drive_as_large_as_its_papers_gives_what_a_small_one_does() {
    for (name, sizes, [part, whole, _]) in AS_LARGE {
        let run = |capacity, load| outcome(&of_size(name, capacity), load).expect("the load comes to its end").record;
        let [large, small] = sizes.map(|capacity| run(capacity, &part));
        let figures = [&large, &small].map(|of| {
            let mean = of.latency("all").expect("there were requests").mean;
            [mean, of.flash.programs as f64, if name == "slc-cbm" { of.erases as f64 } else { 1_000.0 }]
        });
        for (large, small) in figures[0].into_iter().zip(figures[1]) {
            assert!((large / small - 1.0).abs() < 0.02, "{name}: {figures:?}");
        }
        assert!(figures[0][1..].iter().all(|done| *done >= 1_000.0), "{name}: too little is done: {figures:?}");
        assert_eq!(run(sizes[0], &whole).commands_failed, 0, "{name}");
    }
}

/// Memory grows with what is written, not with the drive: `/usr/bin/time` says how much.
#[test]
#[ignore = "a gigabyte of memory: the maps of whole drives are looked through"]
fn torture_drives_as_large_as_the_papers() {
    for (name, sizes, [.., long]) in AS_LARGE {
        assert_eq!(serve(&of_size(name, sizes[0]), &long).record.commands_failed, 0, "{name}");
    }
}
