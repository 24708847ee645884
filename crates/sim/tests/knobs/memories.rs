//! Memories: what fits, what survives, and what kind can serve which use.

use crate::knobs::rig::{Load, READ_MEAN, load, result, serve, small, try_serve};
use tidewater_core::device::{Device, Input};
use tidewater_core::profile::MemoryKind;
use tidewater_sim::Outcome;

const WRITES: Load = load("rw=randwrite,bs=4k,iodepth=4,size=16m,number_ios=2000");

#[test]
fn a_memory_holds_what_fits() {
    let refused = try_serve(&small(&["memory.dram.size=128KiB"]), &WRITES).expect_err("the write buffer has 256 KiB");
    let text = refused.to_string();
    assert!(text.contains("[memory.dram] has 128KiB") && text.contains("write buffer 256KiB"), "{text}");
    // Room that nothing is placed in changes nothing.
    let fits = serve(&small(&["memory.dram.size=256KiB"]), &WRITES);
    let roomy = serve(&small(&["memory.dram.size=1GiB"]), &WRITES);
    assert_eq!(result(&fits.record), result(&roomy.record));
}

/// Lets a device come to rest.
fn settle(device: &mut Device) {
    while let Some(at) = device.deadline() {
        assert!(device.handle(at, Input::Timer).is_ok());
        while device.poll().is_some() {}
    }
}

#[test]
fn what_survives_is_there_after_a_power_cut() {
    // Sixteen pages, which stay in the write buffer.
    let burst = load("rw=write,bs=4k,iodepth=1,size=64k").fresh().with_stamps();
    // The last as in CBM (MSST 2014): its policy, with the buffer in memory that needs no capacitors.
    let nvm = ["buffer.write_policy=cbm", "memory.nvm.kind=nvm", "memory.nvm.size=1MiB", "buffer.write_memory=nvm"];
    for (survives, pages) in
        [(&["memory.dram.survives=nothing"][..], 0), (&["memory.dram.survives=by-capacitors"], 16), (&nvm, 16)]
    {
        let profile = small(survives);
        let Outcome { mut device, .. } = serve(&profile, &burst);
        settle(&mut device);
        let remains = device.cut_power();
        assert_eq!(remains.buffered().len(), pages, "{survives:?}");
        let mut device = Device::power_on(&profile, remains).expect("the profile is unchanged");
        settle(&mut device);
        let found = (0..16).filter(|&lpn| device.content(lpn).is_some()).count();
        assert_eq!(found, pages, "{survives:?}");
    }
}

/// Bytes of the largest write buffer that the stored energy is taken to last for.
fn buffers_that_it_lasts_for(energy: &str) -> u64 {
    let mut profile = small(&["memory.dram.survives=by-capacitors", "memory.dram.size=64GiB"]);
    profile.set("buffer.energy", energy).expect("the energy is valid");
    let mut lasts = |bytes: u64| {
        profile.set("buffer.write_size", &format!("{bytes}")).expect("the size is valid");
        profile.check().is_ok()
    };
    (12..36).map(|bits| 1u64 << bits).take_while(|&bytes| lasts(bytes)).last().unwrap_or(0)
}

#[test]
fn capacitors_bound_the_write_buffer_that_they_back() {
    let [none, some, more] = ["0", "0.1", "10"].map(buffers_that_it_lasts_for);
    assert!(none == 0 && some > 0 && more >= 16 * some, "{none}, {some} and {more} bytes");
}

#[test]
fn a_buffer_that_survives_need_not_be_flushed_to_flash() {
    let flushes = load("rw=randwrite,bs=4k,iodepth=1,size=16m,number_ios=1000,fsync=10");
    let flush_mean = |survives| {
        let profile = small(&[&format!("memory.dram.survives={survives}")]);
        serve(&profile, &flushes).record.latency("flush").expect("the record has flushes").mean
    };
    let (volatile, backed) = (flush_mean("nothing"), flush_mean("by-capacitors"));
    assert!(backed < volatile, "a flush takes {backed} us with capacitors and {volatile} us without");
}

/// Every kind either serves a use, with a result of its own, or is refused in words.
#[test]
fn every_kind_of_memory_serves_or_is_refused_in_words() {
    let reads = load("rw=randread,bs=4k,iodepth=1,size=128k,number_ios=500,norandommap=1");
    let mut used = Vec::new();
    for (side, policy, job) in [("write", "write_policy=lru", WRITES), ("read", "read_policy=lru", reads)] {
        let mut seen: Vec<(&str, tidewater_report::Record)> = Vec::new();
        for (kind, _) in MemoryKind::WORDS {
            let mut profile = small(&[&format!("buffer.{policy}")]);
            for (key, value) in [("kind", *kind), ("size", "1MiB")] {
                profile.set(&format!("memory.other.{key}"), value).expect("the memory's setting is valid");
            }
            profile.set(&format!("buffer.{side}_memory"), "other").expect("the memory is known");
            match try_serve(&profile, &job) {
                Ok(outcome) => {
                    let record = result(&outcome.record);
                    let figures = |r: &tidewater_report::Record| (r.latency_us.clone(), r.simulated_seconds);
                    if let Some((same, _)) = seen.iter().find(|(_, other)| figures(other) == figures(&record)) {
                        panic!("a {side} buffer in {kind} and in {same} have the same result");
                    }
                    seen.push((kind, record));
                    used.push(*kind);
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("needs a memory that is") && text.contains(kind), "{text}");
                }
            }
        }
    }
    let unused: Vec<&str> =
        MemoryKind::WORDS.iter().map(|(kind, _)| *kind).filter(|kind| !used.contains(kind)).collect();
    // Flash in single-level mode waits for a use that writes whole pages: a cache in front of the main flash.
    assert_eq!(unused, ["slc-flash"]);
}

/// A hit in the write buffer once cost what a read of the read cache's memory costs, which is nothing without one.
#[test]
fn a_hit_in_the_write_buffer_is_read_from_its_memory() {
    let hits = load("rw=randrw,rwmixread=50,bs=4k,iodepth=1,size=64k,number_ios=500,norandommap=1").fresh();
    let mean = |settings: &[&str]| (READ_MEAN.1)(&serve(&small(settings), &hits).record);
    let (fast, slow) = (mean(&[]), mean(&["memory.dram.read_latency=100us"]));
    assert!(slow > fast + 50.0, "{slow} us after {fast} us");
}
