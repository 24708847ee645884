//! Edges of the measured period: requests and flash work at the start and at the end of a run.

use super::*;

/// All of a buffer's pages were there before, and each write replaced one: it was reported to have held none.
#[test]
fn what_a_buffer_holds_when_its_warm_up_ends_counts_among_the_most_it_held() {
    let options = RunOptions { warmup_requests: 17, ..at_depth(1) };
    let record = run(&small(), job("rw=write,bs=4k,size=64k,number_ios=64", 1), options).unwrap().record;
    assert_eq!((record.write_buffer.hits, record.write_buffer.misses), (48, 0));
    assert_eq!(record.write_buffer.pages_max, 16);
}

/// The writes end in the buffer, long before the first page that leaves it in the background is programmed: a die was
/// reported to have programmed nearly all the time.
#[test]
fn a_program_that_outlasts_the_run_counts_as_far_as_the_run_goes() {
    let profile = with(tiny(), &["buffer.write_policy=lru", "buffer.write_size=256KiB"]);
    // From the 49th page on the buffer is destaged.
    let record = run(&profile, job("rw=write,bs=4k,size=64m,number_ios=60", 1), at_depth(1)).unwrap().record;
    let (die, seconds) = (&record.utilization.dies[0], record.simulated_seconds);
    assert!(us(profile.nand.program_time[0]) * 1e-6 > seconds / 4.0, "the program ends after the run");
    let busy = die.program_share * 60.0;
    assert!(busy > 1.0 && busy <= 13.0, "as long as {busy} of the 60 writes");
    assert!((die.program_share + die.idle_share - 1.0).abs() < 1e-9, "{die:?}");
}

/// Pages on their way to flash are in surviving memory, too: the flush waited for programs and padded a row needlessly.
#[test]
fn a_flush_has_nothing_to_wait_for_where_the_buffer_survives() {
    let flush = |survives: &str| {
        let survives = format!("memory.dram.survives={survives}");
        let profile = with(small(), &["nand.page_size=16KiB", "nand.oob_size=1KiB", &survives]);
        let writes = (0..62).map(|i| request(0, Op::Write, i << 12, 1 << 12));
        let flush = request(150, Op::Flush, 0, 0);
        let zeroes = Request { fua: true, ..request(160, Op::WriteZeroes, 0, 1 << 12) };
        let record = run(&profile, list(writes.chain([flush, zeroes])), RunOptions::default()).unwrap().record;
        let around = us(profile.host.command_time) + us(profile.host.completion_time);
        let took = ["flush", "write_zeroes"].map(|operation| record.latency_us[operation].max);
        (took, around, us(profile.nand.program_time[0]), record.flash.units_padding)
    };
    let (took, around, program, padding) = flush("by-capacitors");
    assert!(
        took.iter().all(|&us| close(us, around)) && padding == 0,
        "{took:?} us, not {around}, and {padding} units of filler"
    );
    let ([took, _], around, ..) = flush("nothing");
    assert!(took > around + program / 2.0, "{took} us are less than a program: {program}");
}

/// The report was that nothing ever left it, and that as many pages went in as were not found.
#[test]
fn a_read_cache_tells_what_goes_in_and_what_leaves() {
    let profile = with(small(), &["buffer.read_policy=lru", "buffer.read_size=64KiB"]);
    let record = run(&profile, job("rw=read,bs=4k,size=64m,number_ios=100", 1), at_depth(1)).unwrap().record;
    let cache = &record.read_cache;
    assert_eq!((cache.misses, cache.insertions, cache.evictions, cache.pages_max), (100, 100, 84, 16));
    // What is written meanwhile is not kept.
    let job = job("rw=randrw,rwmixread=50,bs=4k,size=64m,number_ios=400", 1);
    let record = run(&profile, job, at_depth(16)).unwrap().record;
    let (reads, writes) = (&record.read_cache, &record.write_buffer);
    assert!(reads.insertions - reads.evictions <= 16, "{reads:?}");
    assert_eq!(writes.insertions, writes.misses);
}

/// It was 0, whatever waited.
#[test]
fn what_waits_for_room_in_the_buffer_is_told() {
    let profile = with(tiny(), &["buffer.write_policy=lru", "buffer.write_size=64KiB"]);
    let written = |count: u32, warmup_requests: u64| {
        let options = RunOptions { warmup_requests, ..at_depth(1) };
        run(&profile, job(&format!("rw=randwrite,bs=4k,size=64m,number_ios={count}"), 1), options).unwrap().record
    };
    assert_eq!(written(10, 0).write_buffer.wait_seconds, 0.0);
    for warm_up in [0, 100] {
        let record = written(300, warm_up);
        let write = &record.latency_us["write"];
        // At depth 1 all that a write takes beyond the shortest is time in which it waits.
        let least = written(10, 0).latency_us["write"].min;
        let waited = (write.mean - least) * write.count as f64 * 1e-6;
        let summed = record.write_buffer.wait_seconds;
        // The last of a warm-up is under way when the figures begin.
        let under_way = if warm_up > 0 { write.max * 1e-6 } else { 0.0 };
        assert!(
            waited > 0.01 && summed > 0.999 * waited && summed < 1.001 * waited + under_way,
            "{summed} s, not {waited}"
        );
    }
    // Of several at once each waits.
    let record = run(&profile, job("rw=randwrite,bs=4k,size=64m,number_ios=300", 1), at_depth(8)).unwrap().record;
    assert!(record.write_buffer.wait_seconds > 4.0 * record.simulated_seconds, "{:?}", record.write_buffer);
}
