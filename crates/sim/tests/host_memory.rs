//! Memory that the host lends: what is placed on it is used, nothing that happens to it makes data wrong, and a drive
//! without it works.

use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::host::Submission;
use tidewater_core::host_memory::{HEADER, HostFault, HostFaultPlan, State};
use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_sim::host_memory::{LentMemory, settle};
use tidewater_sim::workload::JobSpec;
use tidewater_sim::{Pacing, RunOptions, run};
use tidewater_testkit::profile::with;
use tidewater_testkit::torture::{Effort, LentCounts, LentEffort, lent_scenarios, torture, torture_lent};
use tidewater_wire::nvme::{Sqe, Status};

/// A small drive whose read cache is in host memory.
fn cached_by_host(settings: &[(&str, &str)]) -> Profile {
    let mine = [
        "drive.capacity=16MiB",
        "nand.channels=2",
        "nand.ways=2",
        "nand.planes=1",
        "nand.pages_per_block=16",
        "memory.hmb.kind=host",
        "memory.hmb.size=1MiB",
        "buffer.read_policy=lru",
        "buffer.read_memory=hmb",
        "buffer.read_size=1MiB",
    ];
    with(with(Profile::generic(), &mine), settings)
}

fn reads(profile: &Profile, size: &str) -> Record {
    let job = format!("rw=randread,bs=4k,iodepth=1,size={size},number_ios=4000,norandommap=1");
    let source = JobSpec::from_inline(&job).expect("a valid job").source(None, 1).expect("a size in the job");
    let mut options = RunOptions { pacing: Pacing::Depth(1), ..RunOptions::default() };
    options.device.precondition = tidewater_core::ftl::Precondition::Filled(1.0);
    run(profile, source, options).expect("the run succeeds").record
}

#[test]
fn a_read_cache_on_host_memory_spares_flash_and_is_paid_for_on_the_link() {
    let mean = |record: &Record| record.latency("read").expect("the record has reads").mean;
    let there = reads(&cached_by_host(&[]), "512k");
    let counts = there.host_memory.expect("the record has host memory");
    assert!(there.read_cache.hit_ratio > 0.9, "{:?}", there.read_cache);
    assert_eq!((counts.reads, counts.failed_checks, counts.refetches), (there.read_cache.hits, 0, 0));
    assert_eq!(counts.bytes_read, counts.reads * u64::from(4096 + HEADER));
    assert_eq!(counts.lent_bytes, 1 << 20);
    // Without it, every read goes to flash; with a memory of its own the drive has no link to cross.
    let without = reads(&cached_by_host(&[("hmb.enabled", "false")]), "512k");
    assert_eq!(without.host_memory.expect("the record has host memory").reads, 0);
    let own = reads(&cached_by_host(&[("memory.hmb.kind", "dram"), ("memory.hmb.size", "1MiB")]), "512k");
    assert!(
        mean(&own) < mean(&there) && 2.0 * mean(&there) < mean(&without),
        "{} {} {}",
        mean(&own),
        mean(&there),
        mean(&without)
    );
    let slow = reads(&cached_by_host(&[("link.generation", "1"), ("link.lanes", "1")]), "512k");
    assert!(mean(&slow) > 2.0 * mean(&there), "{} {}", mean(&slow), mean(&there));
}

#[test]
fn what_is_lent_bounds_what_is_cached() {
    let ratio = |size| reads(&cached_by_host(&[("hmb.size", size)]), "1m").read_cache.hit_ratio;
    let [small, half, all] = ["64KiB", "512KiB", "1MiB"].map(ratio);
    assert!(small < 0.15 && small < half && half < 0.6 && 0.85 < all, "{small} {half} {all}");
}

#[test]
fn a_write_buffer_on_host_memory_is_written_through_whatever_its_policy() {
    for policy in ["lru", "cflru", "fab", "lb-clock", "bplru", "bpac", "cbm"] {
        let profile = cached_by_host(&[
            ("buffer.read_policy", "none"),
            ("buffer.read_memory", "dram"),
            ("buffer.write_policy", policy),
            ("buffer.write_memory", "hmb"),
            ("buffer.write_size", "1MiB"),
        ]);
        let job = "rw=randrw,bs=4k,iodepth=4,size=512k,number_ios=2000,norandommap=1";
        let source = JobSpec::from_inline(job).expect("a valid job").source(None, 1).expect("a size in the job");
        let mut options = RunOptions { pacing: Pacing::Depth(4), ..RunOptions::default() };
        options.device.precondition = tidewater_core::ftl::Precondition::Filled(1.0);
        let record = run(&profile, source, options).expect("the run succeeds").record;
        // A page takes hundreds of microseconds to program: nothing is acknowledged before it is on flash.
        let write = record.latency("write").expect("the record has writes");
        assert!(write.min > 200.0, "{policy}: {write:?}");
        // Reads are not kept there either.
        let read = record.latency("read").expect("the record has reads");
        assert!(read.mean > 40.0, "{policy}: {read:?}");
    }
}

/// A small drive with 256 mapping pages of 16 entries, four of them in its own memory and the others where the host
/// lends room.
fn mapped_on_host(settings: &[(&str, &str)]) -> Profile {
    let mine = [
        ("buffer.read_policy", "none"),
        ("ftl.map_memory", "hmb"),
        ("ftl.map_page", "64"),
        ("ftl.map_floor", "256B"),
        ("ftl.map_size", "64KiB"),
    ];
    cached_by_host(&[&mine, settings].concat())
}

#[test]
fn a_map_on_host_memory_costs_the_link_where_it_hits_and_flash_where_it_misses() {
    let mean = |record: &Record| record.latency("read").expect("the record has reads").mean;
    let of = |record: &Record| record.map_cache.clone().expect("the record has a mapping cache");
    let there = reads(&mapped_on_host(&[]), "16m");
    let counts = there.host_memory.expect("the record has host memory");
    assert_eq!((of(&there).pages, of(&there).pages_held, of(&there).loads), (256, 256, 256));
    // What is in host memory is read there for each hit, and was written there once.
    assert!(counts.reads > 3_000 && counts.reads <= of(&there).hits, "{counts:?}");
    assert_eq!((counts.writes, counts.failed_checks, counts.refetches), (252, 0, 0));
    assert_eq!(counts.bytes_read, counts.reads * u64::from(64 + HEADER));
    // A part of the memory holds a part of the map; none of it, what the drive holds itself.
    let part = reads(&mapped_on_host(&[("hmb.size", "8KiB")]), "16m");
    let (held, share) = (of(&part).pages_held, of(&part).hit_ratio);
    assert_eq!(held, 4 + (8 << 10) / (64 + u64::from(HEADER)));
    assert!((share - held as f64 / 256.0).abs() < 0.05, "{share}");
    let none = reads(&mapped_on_host(&[("hmb.enabled", "false")]), "16m");
    assert_eq!((of(&none).pages_held, none.host_memory.expect("the record has host memory").reads), (4, 0));
    assert!(of(&none).hit_ratio < 0.05, "{:?}", of(&none));
    let all = reads(&mapped_on_host(&[("ftl.map_memory", "all")]), "16m");
    assert!(mean(&all) < mean(&there) && mean(&there) < mean(&part) && mean(&part) < mean(&none));
}

#[test]
fn changes_of_a_map_on_host_memory_wait_in_the_drive_until_they_are_programmed() {
    for (size, updates) in [("16KiB", "64"), ("2KiB", "512")] {
        let profile = mapped_on_host(&[("hmb.size", size), ("ftl.map_updates", updates)]);
        let job = "rw=randrw,rwmixread=30,bs=4k,iodepth=16,size=16m,number_ios=20000,norandommap=1,fsync=200";
        let source = JobSpec::from_inline(job).expect("a valid job").source(None, 1).expect("a size in the job");
        let mut options = RunOptions { pacing: Pacing::Depth(16), ..RunOptions::default() };
        options.device.precondition = tidewater_core::ftl::Precondition::Steady;
        let outcome = run(&profile, source, options).expect("the run succeeds");
        assert_eq!(outcome.device.outstanding(), 0, "{}", outcome.device.describe_outstanding());
        outcome.device.ftl().assert_consistent();
        let cache = outcome.record.map_cache.as_ref().expect("the drive has a mapping cache");
        let limit: u64 = updates.parse().expect("the limit is a number");
        let waiting = outcome.device.ftl().map_cache().expect("the drive has a mapping cache").updates_waiting();
        assert!(waiting <= 3 * limit, "{size}: {waiting} changes wait");
        assert!(cache.written > 500 && outcome.record.collections > 100, "{size}: {cache:?}");
        let counts = outcome.record.host_memory.expect("the record has host memory");
        assert!(counts.reads > 0 && counts.failed_checks == 0, "{counts:?}");
    }
}

/// A drive that is asked one thing at a time.
struct Bench {
    device: Device,
    memory: LentMemory,
    tag: u64,
}

impl Bench {
    fn new(profile: &Profile, plan: HostFaultPlan) -> Bench {
        let device = Device::new(profile, Options { stamps: true, ..Options::default() }).expect("a valid profile");
        Bench { device, memory: LentMemory::new(plan), tag: 100 }
    }

    fn lend(&mut self, bytes: u64) {
        settle(&mut self.device, &mut self.memory, tidewater_base::Instant::ZERO, bytes).expect("the drive is idle");
    }

    /// The status of a command, and the version of what it read.
    fn ask(&mut self, sqe: Sqe) -> (Status, Option<u64>) {
        self.tag += 1;
        let submission = Submission::new(sqe, self.tag);
        self.device.handle(self.device.now(), Input::Submit { queue: 0, submission }).expect("the queue has room");
        let (mut read, mut ended) = (None, None);
        loop {
            while let Some(output) = self.device.poll() {
                match output {
                    output if self.memory.take(self.device.now(), &output) => {}
                    Output::Data { place, .. } => read = place.version(),
                    Output::Complete(completion) => ended = Some(completion.cqe.status),
                    other => panic!("{other:?}"),
                }
            }
            if let Some(status) = ended.take_if(|_| self.device.host_memory().outstanding() == 0) {
                return (status, read);
            }
            let event = self.device.deadline().unwrap_or(tidewater_base::Instant::NEVER);
            let at = event.min(self.memory.next_at()).max(self.device.now());
            let input = if event <= at { Input::Timer } else { self.memory.input(at).expect("an input is due") };
            self.device.handle(at, input).expect("the drive accepts the input");
        }
    }

    fn write(&mut self, lpn: u64) -> u64 {
        assert!(self.ask(Sqe::write(1, 8 * lpn, 7)).0.is_success());
        assert!(self.ask(Sqe::flush(1)).0.is_success());
        self.tag - 1
    }

    fn read(&mut self, lpn: u64) -> Option<u64> {
        let (status, version) = self.ask(Sqe::read(1, 8 * lpn, 7));
        assert!(status.is_success(), "{status:?}");
        version
    }

    fn counts(&self) -> (u64, u64, u64) {
        let counts = self.device.host_memory().statistics;
        (counts.reads, counts.failed_checks, counts.refetches)
    }
}

#[test]
fn a_unit_that_is_not_good_is_fetched_from_flash() {
    for fault in [HostFault::Corrupted, HostFault::Stale, HostFault::Withdrawn] {
        for at in 1..=4 {
            let mut bench = Bench::new(&cached_by_host(&[]), HostFaultPlan::one(at, fault));
            bench.lend(1 << 20);
            let versions: Vec<u64> = (0..2).map(|lpn| bench.write(lpn)).collect();
            for _ in 0..3 {
                for lpn in 0..2 {
                    assert_eq!(bench.read(lpn), Some(versions[lpn as usize]), "{fault:?} at {at}");
                }
            }
            let (reads, failed, refetches) = bench.counts();
            let gone = fault == HostFault::Withdrawn;
            assert_eq!(bench.memory.counts().1, 1, "the fault has happened");
            assert!(reads >= u64::from(!gone || at > 2), "the cache was used");
            assert_eq!(
                (failed > 0, bench.device.host_memory().state() == State::Absent),
                (!gone, gone),
                "{fault:?} at {at}"
            );
            // Of memory that goes away while it is written no data is missed.
            assert_eq!(refetches > 0, !gone || at > 2, "{fault:?} at {at}: {refetches}");
        }
    }
}

#[test]
fn a_page_of_the_map_that_is_not_good_is_fetched_from_flash() {
    for fault in [HostFault::Corrupted, HostFault::Stale, HostFault::Withdrawn] {
        for at in 1..=12 {
            let mut bench = Bench::new(&mapped_on_host(&[]), HostFaultPlan::one(at, fault));
            bench.lend(64 << 10);
            // Eight pages of the map, more than the drive holds itself.
            let versions: Vec<u64> = (0..8).map(|page| bench.write(16 * page)).collect();
            for _ in 0..3 {
                for (page, &version) in (0..).zip(&versions) {
                    assert_eq!(bench.read(16 * page), Some(version), "{fault:?} at {at}");
                }
            }
            let (reads, failed, refetches) = bench.counts();
            let gone = fault == HostFault::Withdrawn;
            assert_eq!(bench.memory.counts().1, 1, "{fault:?} at {at}: the fault has happened");
            assert!(reads > 0 || gone, "the memory was used");
            assert_eq!(bench.device.host_memory().state() == State::Absent, gone, "{fault:?} at {at}");
            // A unit that was not written as it should be is found out by the next read of it, if there is one.
            assert!(failed <= 1 && refetches >= failed, "{fault:?} at {at}: {failed} failed, {refetches} fetched");
        }
    }
}

#[test]
fn a_host_whose_memory_is_never_good_costs_time_only() {
    let profile = mapped_on_host(&[("ftl.map_updates", "64")]);
    let plan = HostFaultPlan { faults: (1..20_000).map(|at| (at, HostFault::Corrupted)).collect() };
    let mut bench = Bench::new(&profile, plan);
    bench.lend(64 << 10);
    let mut versions = vec![0; 64];
    for round in 0..15u64 {
        for page in 0..64 {
            if (round + page) % 3 == 0 || round == 0 {
                versions[page as usize] = bench.write(16 * page + round % 16);
            } else {
                bench.read(16 * page);
            }
        }
    }
    let (reads, failed, refetches) = bench.counts();
    assert!(reads > 100 && failed == reads && refetches == reads, "{reads} {failed} {refetches}");
    bench.device.ftl().assert_consistent();
}

#[test]
fn memory_that_is_returned_counts_as_far_as_its_checks_hold() {
    let mut bench = Bench::new(&cached_by_host(&[]), HostFaultPlan::default());
    bench.lend(1 << 20);
    let mut versions: Vec<u64> = (0..8).map(|lpn| bench.write(lpn)).collect();
    (0..8).for_each(|lpn| assert_eq!(bench.read(lpn), Some(versions[lpn as usize])));
    bench.lend(0);
    assert_eq!(bench.device.host_memory().state(), State::Absent);
    // What is written meanwhile is not there any more.
    versions[3] = bench.write(3);
    let now = bench.device.now();
    bench.memory.lend(now, 1 << 20, true);
    let before = bench.counts();
    (0..8).for_each(|lpn| assert_eq!(bench.read(lpn), Some(versions[lpn as usize])));
    assert_eq!((bench.counts().0 - before.0, bench.counts().1), (7, 0), "seven are still there");

    bench.lend(0);
    bench.memory.corrupt_all();
    let now = bench.device.now();
    bench.memory.lend(now, 1 << 20, true);
    (0..8).for_each(|lpn| assert_eq!(bench.read(lpn), Some(versions[lpn as usize])));
    assert_eq!(bench.counts().1, 8, "none is what it was");
    // Memory of another size is other memory.
    let before = bench.counts();
    bench.lend(1 << 19);
    (0..8).for_each(|lpn| assert_eq!(bench.read(lpn), Some(versions[lpn as usize])));
    assert_eq!(bench.counts(), before);
}

/// Each kind of fault at accesses all over a run, with memory that comes and goes besides.
fn campaign(effort: LentEffort, seeds: u64) -> LentCounts {
    let mut all = LentCounts::default();
    for scenario in lent_scenarios() {
        for seed in 0..seeds {
            let counts = torture_lent(&scenario, effort, seed).unwrap_or_else(|failure| panic!("{failure}"));
            println!("{}, seed {seed}: {counts}", scenario.name);
            all.add(counts);
        }
    }
    println!("together: {all}");
    assert!(all.faults > 0 && all.failed_checks > 0 && all.refetches > 0 && all.reads_checked > 0);
    all
}

#[test]
fn whatever_happens_at_an_access_no_data_is_wrong_and_nothing_hangs() {
    campaign(LentEffort { events: 3_000, stride: 3, lending_every: 0 }, 1);
    let counts = campaign(LentEffort { events: 3_000, stride: 5, lending_every: 300 }, 1);
    assert!(counts.lendings > 0);
}

#[test]
#[ignore = "minutes; make torture runs it"]
fn whatever_happens_at_every_access_no_data_is_wrong_and_nothing_hangs() {
    campaign(LentEffort { events: 4_000, stride: 1, lending_every: 0 }, 3);
    campaign(LentEffort { events: 4_000, stride: 1, lending_every: 300 }, 3);
}

/// The power fails after every event of drives that have something in host memory.
#[test]
fn a_power_cut_at_any_event_loses_nothing_with_host_memory() {
    for scenario in lent_scenarios() {
        let counts = torture(&scenario, Effort { cut_every: 3, ..Effort::sampled(900) }, 5);
        println!("{}: {}", scenario.name, counts.unwrap_or_else(|failure| panic!("{failure}")));
    }
}
