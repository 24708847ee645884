//! Every built-in profile serves a mixed job, whatever its past, and ends at rest.

use crate::knobs::rig::{Load, load, serve};
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
