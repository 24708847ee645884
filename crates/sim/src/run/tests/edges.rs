//! What counts where a run begins to be measured, and where it ends.

use super::*;

/// All of a buffer's pages were there before, and each write replaced one: it was told to have held none.
#[test]
fn what_a_buffer_holds_when_its_warm_up_ends_counts_among_the_most_it_held() {
    let options = RunOptions { warmup_requests: 17, ..at_depth(1) };
    let record = run(&small(), job("rw=write,bs=4k,size=64k,number_ios=64", 1), options).unwrap().record;
    assert_eq!((record.write_buffer.hits, record.write_buffer.misses), (48, 0));
    assert_eq!(record.write_buffer.pages_max, 16);
}

/// What is on its way to flash is in the memory that survives, too: it waited for programs, and padded a row for nothing.
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
