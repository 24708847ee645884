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
