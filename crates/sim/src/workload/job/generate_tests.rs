use super::*;
use crate::workload::JobSpec;

fn source(job: &str) -> JobSource {
    JobSpec::from_inline(job).unwrap().source(None, 1).unwrap()
}

fn requests(job: &str) -> Vec<Request> {
    let mut source = source(job);
    std::iter::from_fn(|| source.next()).map(|request| request.unwrap()).collect()
}

#[test]
fn a_random_write_covers_every_block_once_per_pass() {
    let all = requests("rw=randwrite,bs=4k,size=1m,number_ios=512");
    assert_eq!(all.len(), 512);
    for pass in all.chunks(256) {
        let mut offsets: Vec<u64> = pass.iter().map(|r| r.offset).collect();
        let unsorted = offsets.clone();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..256).map(|i| i * 4096).collect::<Vec<_>>());
        assert_ne!(offsets, unsorted);
    }
    assert_ne!(all[0].offset, all[256].offset);
}

#[test]
fn without_a_map_some_blocks_come_twice() {
    let all = requests("rw=randread,bs=4k,size=1m,norandommap");
    let distinct: std::collections::HashSet<u64> = all.iter().map(|r| r.offset).collect();
    // 1 - 1/e of 256.
    assert!((140..185).contains(&distinct.len()), "{}", distinct.len());
}

/// fio's shift register comes to each block once whether there is a map or not: 2,048 writes went to 1,282 places.
#[test]
fn the_generator_lfsr_visits_every_block_once_without_a_map() {
    let distinct = |job: &str| {
        let places: std::collections::HashSet<u64> = requests(job).iter().map(|r| r.offset).collect();
        places.len()
    };
    let job = |more: &str| format!("rw=randwrite,bs=4k,size=8m,{more}");
    assert_eq!(distinct(&job("norandommap,random_generator=lfsr")), 2_048);
    assert_eq!(distinct(&job("random_generator=lfsr")), 2_048);
    for generator in ["tausworthe", "tausworthe64"] {
        let places = distinct(&job(&format!("norandommap,random_generator={generator}")));
        assert!((1_200..1_400).contains(&places), "{places}");
    }
    // What was written once is read once.
    assert_eq!(requests(&job("norandommap,random_generator=lfsr,verify=crc32c")).len(), 4_096);
    assert!(JobSpec::from_inline("rw=randread,random_generator=mersenne").is_err());
}

/// The disk check that etcd's users run, which was refused: "not a multiple of 512 bytes".
#[test]
fn sizes_and_places_need_no_alignment() {
    let all = requests("rw=write,ioengine=sync,fdatasync=1,size=1m,bs=2300");
    let writes: Vec<&Request> = all.iter().filter(|r| r.op == Op::Write).collect();
    assert_eq!((writes.len(), all.len()), (455, 910));
    assert!(writes.iter().enumerate().all(|(i, r)| (r.offset, r.length) == (i as u64 * 2_300, 2_300)));
    for job in [
        "rw=randwrite,bs=1000,size=100000,offset=77",
        "rw=randread,bsrange=100-1000,size=64k,number_ios=500",
        "rw=write:100,bs=1k,size=64k",
        "rw=randwrite,bs=1000,blockalign=300,size=64k,verify=md5",
    ] {
        match JobSpec::from_inline(job).unwrap().source(None, 1) {
            Ok(mut source) => {
                let all: Vec<Request> = std::iter::from_fn(|| source.next()).map(|request| request.unwrap()).collect();
                let (base, end) = if job.contains("offset") { (77, 100_077) } else { (0, 65_536) };
                assert!(all.iter().all(|r| r.length > 0 && r.offset >= base && r.end() <= end), "{job}");
            }
            Err(error) => assert!(job.contains("verify"), "{error}"),
        }
    }
}

#[test]
fn reads_and_writes_have_force_unit_access_of_their_own() {
    let fua = |more: &str| {
        let all = requests(&format!("rw=randrw,bs=4k,size=1m,fsync=7,{more}"));
        let of = |op: Op| all.iter().filter(|r| r.op == op).all(|r| r.fua);
        assert!(all.iter().all(|r| r.op != Op::Flush || !r.fua));
        (of(Op::Read), of(Op::Write))
    };
    assert_eq!(fua("readfua=1"), (true, false));
    assert_eq!(fua("writefua=1"), (false, true));
    assert_eq!(fua("readfua=1,writefua=1"), (true, true));
    assert_eq!(fua("sync=1"), (false, true));
}

#[test]
fn writes_may_ask_for_zeroes_or_for_verification() {
    for (mode, op) in [("zeroes", Op::WriteZeroes), ("verify", Op::Verify)] {
        let all = requests(&format!("rw=write,bs=4k,size=4m,write_mode={mode},fsync=512"));
        assert_eq!(all.iter().filter(|r| r.op == op).count(), 1_024);
        assert_eq!((all.len(), all.iter().filter(|r| r.op == Op::Flush).count()), (1_026, 2));
    }
}

#[test]
fn sequential_jobs_wrap_and_start_at_their_offset() {
    let all = requests("rw=write,bs=4k,offset=64k,size=16k,number_ios=6");
    let offsets: Vec<u64> = all.iter().map(|r| r.offset / 4096).collect();
    assert_eq!(offsets, [16, 17, 18, 19, 16, 17]);
    assert_eq!(requests("rw=read,bs=4k,size=1m").len(), 256);
    assert_eq!(requests("rw=read,bs=4k,size=1m,io_size=50%").len(), 128);
    assert_eq!(source("rw=read,bs=4k,offset=1m,size=1m").extent(), Some(2 << 20));
}

#[test]
fn shares_are_met() {
    let all =
        requests("rw=randrw,rwmixread=70,bssplit=4k/60:64k/40,16k,size=1g,number_ios=100000,percentage_random=80");
    let reads: Vec<_> = all.iter().filter(|r| r.op == Op::Read).collect();
    assert!((69_000..71_000).contains(&reads.len()), "{}", reads.len());
    let small = reads.iter().filter(|r| r.length == 4096).count() as f64 / reads.len() as f64;
    assert!((small - 0.6).abs() < 0.01, "{small}");
    assert!(all.iter().filter(|r| r.op == Op::Write).all(|r| r.length == 16384));
    let mut last = [None; 2];
    let mut continued = 0;
    for r in &all {
        assert!(r.end() <= 1 << 30 && r.offset % 4096 == 0);
        continued += usize::from(last[r.op.index()] == Some(r.offset));
        last[r.op.index()] = Some(r.end());
    }
    assert!((19_000..21_000).contains(&continued), "{continued}");
}

#[test]
fn a_rate_sets_arrivals_and_a_runtime_ends_them() {
    let all = requests("rw=randwrite,bs=4k,size=1g,rate_iops=1000,runtime=2,time_based");
    assert_eq!(all.len(), 2_000);
    assert_eq!(all[1].arrival.as_ps(), 1_000_000_000);
    let all = requests("rw=write,bs=64k,size=1g,rate=1m,number_ios=3");
    assert_eq!(all[2].arrival.as_ps(), 125_000_000_000);
    assert_eq!(requests("rw=write,bs=4k,size=1m").last().unwrap().arrival, Instant::ZERO);
    assert_eq!(source("rw=write,bs=4k,size=1m,rate=1m,runtime=5").runtime(), Some(Duration::from_ms(5_000)));
}

#[test]
fn a_rate_so_low_that_time_ends_ends_the_job() {
    assert!(requests("rw=write,bs=1g,size=1t,rate=1").len() < 3);
}

#[test]
fn flushes_come_after_every_nth_write() {
    let all = requests("rw=write,bs=4k,size=40k,fsync=4");
    let ops: Vec<Op> = all.iter().map(|r| r.op).collect();
    let w = [Op::Write; 4];
    assert_eq!(ops, [&w[..], &[Op::Flush], &w[..], &[Op::Flush], &w[..2]].concat());
    assert_eq!(source("rw=write,bs=4k,size=40k,fsync=4").expected_requests(), Some(12));
    assert!(requests("rw=write,bs=4k,size=40k,sync=1").iter().all(|r| r.fua));
}

/// The one that was given last held alone: a second of 0 left the first without effect.
#[test]
fn fsync_and_fdatasync_both_count() {
    let after = |job: &str| {
        let mut writes = 0;
        let mut after = Vec::new();
        for request in requests(job) {
            match request.op {
                Op::Flush => after.push(writes),
                _ => writes += 1,
            }
        }
        assert_eq!(source(job).expected_requests(), Some(writes + after.len() as u64), "{job}");
        after
    };
    assert_eq!(after("rw=write,bs=4k,size=48k,fsync=4,fdatasync=0"), [4, 8, 12]);
    assert_eq!(after("rw=write,bs=4k,size=48k,fdatasync=6,fsync=0"), [6, 12]);
    // One flush after a write at which both are due, as in fio.
    assert_eq!(after("rw=write,bs=4k,size=48k,fsync=4,fdatasync=6"), [4, 6, 8, 12]);
}

#[test]
fn threads_are_merged_fairly_and_can_be_taken_apart() {
    let text = "[global]\nbs=4k\nsize=1m\n[a]\nrw=read\n[b]\nrw=write\niodepth=8\n";
    let make = || JobSpec::from_file("t", text).unwrap().source(None, 1).unwrap();
    let mut merged = make();
    let ops: Vec<Op> = (0..4).map(|_| merged.next().unwrap().unwrap().op).collect();
    assert_eq!(ops, [Op::Read, Op::Write, Op::Read, Op::Write]);
    assert_eq!((merged.iodepth(), merged.expected_requests()), (9, Some(512)));
    let threads = make().into_threads();
    assert_eq!((threads[1].name(), threads[1].iodepth(), threads[1].is_paced()), ("b", 8, false));
    let paced = requests("rw=randwrite,bs=4k,size=1m,numjobs=3,rate_iops=10,number_ios=50");
    assert_eq!(paced.len(), 150);
    assert!(paced.is_sorted_by_key(|r| r.arrival));
    assert_ne!(paced[0].offset, paced[1].offset);
}

#[test]
fn zipf_favours_some_blocks_anywhere_in_the_region() {
    let all = requests("rw=randwrite,bs=4k,size=256m,random_distribution=zipf:1.1,number_ios=100000");
    let mut counts = std::collections::HashMap::<u64, u32>::new();
    all.iter().for_each(|r| *counts.entry(r.offset).or_default() += 1);
    let mut hottest: Vec<_> = counts.into_iter().map(|(offset, n)| (n, offset)).collect();
    hottest.sort_unstable_by(|a, b| b.cmp(a));
    assert!(hottest[0].0 > 10_000, "{:?}", hottest[0]);
    let far = hottest[..8].iter().filter(|(_, offset)| *offset > 64 << 20).count();
    assert!(far >= 3, "{:?}", &hottest[..8]);
}

#[test]
fn percentages_refer_to_the_drive() {
    let job = JobSpec::from_inline("rw=read,bs=4k,size=25%,offset=50%").unwrap();
    assert_eq!(job.extent(), None);
    let mut source = job.source(Some(1 << 20), 1).unwrap();
    assert_eq!((source.next().unwrap().unwrap().offset, source.extent()), (512 << 10, Some(768 << 10)));
    assert!(job.source(None, 1).is_err());
    let whole = JobSpec::from_inline("rw=randread,bs=4k").unwrap();
    assert_eq!(whole.source(Some(1 << 20), 1).unwrap().expected_requests(), Some(256));
    assert!(whole.source(Some(100), 1).err().unwrap().to_string().contains("smaller than a request"));
}

#[test]
fn a_seed_repeats() {
    let draw = |seed| {
        let mut source =
            JobSpec::from_inline("rw=randrw,bs=4k,size=1g,number_ios=1000").unwrap().source(None, seed).unwrap();
        std::iter::from_fn(|| source.next()).map(|r| r.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

fn places(job: &str) -> Vec<(Op, u64)> {
    requests(job).iter().map(|r| (r.op, r.offset / 1024)).collect()
}

/// Expected: the log of fio 3.33 (`--ioengine=null --write_iolog`) for the same jobs.
#[test]
fn sequential_jobs_make_the_requests_of_fio() {
    let writes = |kib: &[u64]| kib.iter().map(|&kib| (Op::Write, kib)).collect::<Vec<_>>();
    for (job, wanted) in [
        ("rw=write,bs=4k,size=10k", writes(&[0, 4])),
        ("rw=write,bs=4k,size=1m,io_size=10k", writes(&[0, 4, 8])),
        ("rw=write,bs=3k,size=10k", writes(&[0, 3, 6])),
        ("rw=write,bs=4k,size=16k,offset=5k", writes(&[5, 9, 13, 17])),
        ("rw=write,bs=4k,size=8k,loops=2", writes(&[0, 4, 0, 4])),
        ("rw=write,bs=4k,size=8k,io_size=32k", writes(&[0, 4, 0, 4, 0, 4, 0, 4])),
        ("rw=write:4k,bs=4k,size=32k", writes(&[0, 8, 16, 24, 0, 8, 16, 24])),
        ("rw=write:8k,bs=4k,size=64k", writes(&[0, 12, 24, 36, 48, 60])),
    ] {
        assert_eq!(places(job), wanted, "{job}");
    }
    assert_eq!(requests("rw=randwrite,bs=4k,size=10k").len(), 2);
    // A place may be within a sector.
    let all = requests("rw=write,bs=4k,size=16k,offset=100");
    assert_eq!((all.len(), all[0].offset, all[3].end()), (4, 100, 16_484));
}

#[test]
fn the_last_sizes_of_a_pass_are_those_that_fit() {
    for seed in 0..20 {
        let job = format!("rw=write,bssplit=4k/50:16k/50,size=70k,randseed={seed}");
        let all = requests(&job);
        assert!(all.windows(2).all(|pair| pair[0].end() == pair[1].offset), "{all:?}");
        assert_eq!(all.last().unwrap().end(), 68 << 10);
    }
}

#[test]
fn what_is_trimmed_is_written_next() {
    for job in ["rw=trimwrite,bs=4k,size=32k", "rw=randtrimwrite,bs=4k,size=32k"] {
        let all = places(job);
        assert_eq!((all.len(), source(job).expected_requests()), (16, Some(16)), "{job}");
        for pair in all.chunks(2) {
            assert_eq!((pair[0].0, pair[1]), (Op::Deallocate, (Op::Write, pair[0].1)), "{job}");
        }
    }
    let five = places("rw=trimwrite,bs=4k,size=32k,number_ios=5");
    assert_eq!((five.len(), five[9]), (10, (Op::Write, 16)));
}

#[test]
fn a_random_place_begins_a_run() {
    let all = requests("rw=randread:4,bs=4k,size=16m,number_ios=4000");
    let breaks: Vec<usize> = (1..all.len()).filter(|&at| all[at].offset != all[at - 1].end()).collect();
    let at_runs = breaks.iter().filter(|&&at| at % 4 == 0).count();
    assert!(at_runs > 980 && breaks.len() - at_runs < 20, "{at_runs} of {}", breaks.len());
}

#[test]
fn verify_reads_what_was_written() {
    let split = |job: &str| {
        let all = places(job);
        let last = all.iter().rposition(|(op, _)| *op != Op::Read).unwrap();
        let writes: Vec<u64> = all.iter().filter(|(op, _)| *op == Op::Write).map(|(_, at)| *at).collect();
        let reads: Vec<u64> = all[last + 1..].iter().map(|(_, at)| *at).collect();
        (writes, reads)
    };
    // In the order of the writes where none is made twice, as fio does.
    for job in ["rw=write,bs=4k,size=16k,verify=crc32c", "rw=randwrite,bs=4k,size=1m,verify=md5,fsync=4"] {
        let (writes, reads) = split(job);
        assert_eq!(writes, reads, "{job}");
    }
    let bits = "rw=write,bssplit=4k/50:16k/50,size=70k,verify=crc32c";
    assert_eq!(split(bits).0, split(bits).1);
    // Each block once, in ascending order, where some are written several times.
    for job in [
        "rw=randwrite,norandommap,bs=4k,size=1m,verify=crc32c",
        "rw=randwrite,random_distribution=zipf:1.1,bs=4k,size=1m,verify=crc32c",
        "rw=write,bs=4k,size=64k,number_ios=40,verify=crc32c",
        "rw=randwrite:3,bs=4k,size=1m,verify=crc32c",
    ] {
        let (mut writes, reads) = split(job);
        let made = writes.len();
        writes.sort_unstable();
        writes.dedup();
        assert!(writes.len() < made && writes == reads, "{job}: {reads:?}");
    }
    // Reads of a mixed job are its own; those at the end are of its writes.
    let all = places("rw=randrw,bs=4k,size=1m,verify=crc32c");
    let writes: Vec<_> = all[..256].iter().filter(|(op, _)| *op == Op::Write).map(|(_, at)| *at).collect();
    let reads: Vec<_> = all[256..].iter().map(|(_, at)| *at).collect();
    assert_eq!(writes, reads);
    assert_eq!(requests("rw=write,bs=4k,size=16k,verify=crc32c,do_verify=0").len(), 4);
    assert_eq!(requests("rw=read,bs=4k,size=16k,verify=crc32c").len(), 4);
    let job = JobSpec::from_inline("rw=randwrite,norandommap,bssplit=4k/50:8k/50,size=1m,verify=md5").unwrap();
    assert!(job.source(None, 1).err().unwrap().to_string().contains("one size of write"));
}

#[test]
fn zones_get_their_shares_and_starts_are_aligned() {
    let sizes = "bssplit=512/4:1k/2:2k/4:4k/70:8k/10:16k/7:64k/3,blockalign=4k";
    let zones = "random_distribution=zoned:50/5:30/15:20/80";
    let all = requests(&format!("rw=randrw,norandommap,rwmixread=40,{sizes},{zones},number_ios=40000,size=1g"));
    assert_eq!(all.len(), 40_000);
    assert!(all.iter().all(|r| r.offset % 4_096 == 0 && r.end() <= 1 << 30));
    let share = |from: f64, to: f64| {
        let place = |r: &&Request| (from..to).contains(&(r.offset as f64 / f64::from(1 << 30) * 100.0));
        all.iter().filter(place).count() as f64 / all.len() as f64
    };
    for (from, to, wanted) in [(0.0, 5.0, 0.5), (5.0, 20.0, 0.3), (20.0, 100.0, 0.2)] {
        assert!((share(from, to) - wanted).abs() < 0.01, "{from} to {to}: {}", share(from, to));
    }
    // In bytes, the last zone the rest; and zones of reads and of writes.
    let all = requests("rw=randrw,bs=4k,size=64m,random_distribution=zoned_abs:100/1m,100/2m,number_ios=2000");
    let most = |op: Op| all.iter().filter(|r| r.op == op).map(Request::end).max().unwrap();
    assert!(most(Op::Read) <= 1 << 20 && (1 << 20..=2 << 20).contains(&most(Op::Write)));
    let rest = requests("rw=randread,bs=4k,size=64m,random_distribution=zoned_abs:10/1m:90,number_ios=2000");
    assert!(rest.iter().filter(|r| r.offset < 1 << 20).count() < 260);
    let job = JobSpec::from_inline("rw=randread,bs=4k,size=1m,random_distribution=zoned_abs:100/2m").unwrap();
    assert!(job.source(None, 1).err().unwrap().to_string().contains("larger than the region"));
}

#[test]
fn pareto_and_normal_are_as_skewed_as_in_fio() {
    // Shares of the most frequent tenth of the blocks.
    let top = |distribution: &str| {
        let job = format!("rw=randread,bs=4k,size=4m,number_ios=200000,random_distribution={distribution}");
        let mut counts = vec![0u32; 1024];
        requests(&job).iter().for_each(|r| counts[(r.offset / 4096) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        f64::from(counts[..102].iter().sum::<u32>()) / 200_000.0
    };
    // By Pareto's law a part h of the places has a part 1 - h of the requests.
    let job = "rw=randread,bs=4k,size=4m,number_ios=200000,random_distribution=pareto:0.2";
    let mut counts = vec![0u32; 1024];
    requests(job).iter().for_each(|r| counts[(r.offset / 4096) as usize] += 1);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let fifth = f64::from(counts[..205].iter().sum::<u32>()) / 200_000.0;
    assert!((fifth - 0.8).abs() < 0.01, "{fifth}");
    // The mean of twelve uniform numbers deviates by a twelfth of the range; widening makes it flatter.
    let (narrow, wide) = (top("normal:0"), top("normal:50"));
    assert!((narrow - 0.45).abs() < 0.02 && wide < narrow - 0.1, "{narrow} {wide}");
}

#[test]
fn rates_of_each_kind_are_kept() {
    let all = requests("rw=randrw,bs=4k,size=1g,rate_iops=300,100,number_ios=4000");
    let reads = all.iter().filter(|r| r.op == Op::Read).count();
    assert!((2_990..=3_010).contains(&reads) && all.is_sorted_by_key(|r| r.arrival), "{reads}");
    assert_eq!(all[3_999].arrival.as_ps() / 10_000_000_000, 999);
    // One value is of both together.
    let both = requests("rw=randrw,bs=4k,size=1g,rate_iops=400,number_ios=4000");
    assert_eq!(both[3_999].arrival.as_ps() / 10_000_000_000, 999);
}

#[test]
fn clones_share_a_drive_by_percent() {
    let job = JobSpec::from_inline("rw=write,bs=4k,size=25%,numjobs=4,offset_increment=25%").unwrap();
    let threads = job.source(Some(1 << 30), 1).unwrap().into_threads();
    let begins: Vec<u64> = threads
        .into_iter()
        .map(|mut thread| {
            assert_eq!(thread.expected_requests(), Some(65_536));
            thread.next().unwrap().unwrap().offset >> 20
        })
        .collect();
    assert_eq!(begins, [0, 256, 512, 768]);
    // A percentage is rounded up to where a block begins.
    let job = JobSpec::from_inline("rw=write,bs=64k,size=25%,offset=33%").unwrap();
    let first = job.source(Some(1 << 20), 1).unwrap().next().unwrap().unwrap().offset;
    assert_eq!(first, 6 * (64 << 10));
}

#[test]
fn a_job_can_end_with_a_flush() {
    let all = requests("rw=write,bs=4k,size=16k,end_fsync=1,verify=md5");
    let ops: Vec<Op> = all.iter().map(|r| r.op).collect();
    assert_eq!(ops, [&[Op::Write; 4][..], &[Op::Flush], &[Op::Read; 4]].concat());
}
