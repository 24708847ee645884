mod edges;
mod past;
mod policy;
mod series;
mod slc;
mod warnings;

use super::*;
use crate::workload::{JobSource, JobSpec, Op, Request, SourceError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidewater_base::Duration;
use tidewater_core::cost::lane_bytes_per_second;
use tidewater_core::ftl::Precondition;
use tidewater_testkit::profile::with;

/// Requests from a list.
struct List {
    requests: std::vec::IntoIter<Request>,
    extent: Option<u64>,
    /// Set when so many requests are left.
    cancels: Option<(usize, Arc<AtomicBool>)>,
}

impl Source for List {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        if let Some((left, cancelled)) = &self.cancels
            && self.requests.len() == *left
        {
            cancelled.store(true, Ordering::Relaxed);
        }
        self.requests.next().map(Ok)
    }

    fn extent(&self) -> Option<u64> {
        self.extent
    }

    fn place(&self) -> Option<String> {
        Some("list:7".into())
    }
}

fn list(requests: impl IntoIterator<Item = Request>) -> List {
    let requests: Vec<Request> = requests.into_iter().collect();
    List { extent: requests.iter().map(Request::end).max(), requests: requests.into_iter(), cancels: None }
}

fn request(at_us: u64, op: Op, offset: u64, length: u64) -> Request {
    Request { arrival: Instant::from_ns(at_us * 1_000), op, offset, length, fua: false }
}

/// One die of one plane and no buffer: every latency is a sum.
fn tiny() -> Profile {
    with(
        Profile::generic(),
        &[
            "drive.capacity=64MiB",
            "nand.channels=1",
            "nand.ways=1",
            "nand.dies_per_way=1",
            "nand.planes=1",
            "nand.pages_per_block=64",
            "nand.page_size=4KiB",
            "nand.oob_size=256",
            "nand.cell=slc",
            "nand.factory_bad_rate=0",
            "nand.program_fail_rate=0",
            "nand.erase_fail_rate=0",
            "nand.rber_fresh=0",
            "nand.rber_worn=0",
            "buffer.write_policy=none",
            "ftl.checkpoint_interval=0",
        ],
    )
}

/// Four dies and a small write buffer.
fn small() -> Profile {
    with(
        tiny(),
        &[
            "nand.channels=2",
            "nand.ways=2",
            "buffer.write_policy=lru",
            "buffer.write_size=256KiB",
            "ftl.checkpoint_interval=64",
        ],
    )
}

fn job(text: &str, seed: u64) -> JobSource {
    JobSpec::from_inline(text).unwrap().source(Some(64 << 20), seed).unwrap()
}

fn at_depth(depth: u32) -> RunOptions {
    RunOptions { pacing: Pacing::Depth(depth), ..RunOptions::default() }
}

fn us(time: Duration) -> f64 {
    time.as_us_f64()
}

/// Microseconds on the wire for data in TLPs.
fn on_link(profile: &Profile, bytes: u64) -> f64 {
    let link = &profile.link;
    let framed = bytes + bytes.div_ceil(u64::from(link.payload_max)) * u64::from(link.tlp_overhead);
    framed as f64 * 1e6 / (lane_bytes_per_second(link.generation) * u64::from(link.lanes)) as f64 + us(link.latency)
}

/// Microseconds on a channel for a page with its out-of-band area.
fn on_bus(profile: &Profile) -> f64 {
    f64::from(profile.nand.page_size + profile.nand.oob_size) * 1e6 / profile.nand.bus_rate as f64
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-3
}

/// The worked example of CBM's slides, through the whole drive: W(0), R(2), W(1), R(3), then writes to other blocks
/// that make block 0 leave, and its sequential log block merge. Apart, two pages are copied in a partial merge; with
/// merge-on-flush none is, in a switch merge.
#[test]
fn merge_on_flush_saves_the_copies_of_the_slides_example() {
    let page = |at: u64, op: Op, page: u64| request(at * 10_000, op, page * 4096, 4096);
    let (w, r) = (Op::Write, Op::Read);
    let requests = [(w, 0), (r, 2), (w, 1), (r, 3), (w, 4), (w, 5), (w, 8), (w, 9)];
    for (merge, merges, copied, went_along) in
        [("off", (0, 1, 0), 2, 0), ("always", (1, 0, 0), 0, 2), ("run", (1, 0, 0), 0, 2), ("whole", (1, 0, 0), 0, 2)]
    {
        let profile = with(
            tiny(),
            &[
                "nand.pages_per_block=4",
                "ftl.mapping=fast",
                "ftl.log_blocks=4",
                "ftl.log_write_points=1",
                "buffer.write_policy=cbm",
                "buffer.write_size=8KiB",
                "buffer.write_watermark=100%",
                "buffer.read_policy=lru",
                "buffer.read_size=64KiB",
                &format!("buffer.cbm_merge={merge}"),
            ],
        );
        let mut options = RunOptions::default();
        options.device.precondition = Precondition::Filled(1.0);
        let requests = requests.iter().zip(1..).map(|(&(op, number), at)| page(at, op, number));
        let record = run(&profile, list(requests), options).unwrap().record;
        let flash = &record.flash;
        assert_eq!((flash.merges_switch, flash.merges_partial, flash.merges_full), merges, "merge {merge}");
        assert_eq!((flash.units_collected, record.write_buffer.pages_merged), (copied, went_along), "merge {merge}");
    }
}

#[test]
fn a_single_read_takes_the_sum_of_its_steps() {
    let profile = tiny();
    let expected = us(profile.host.command_time)
        + us(profile.nand.command_time)
        + us(profile.nand.read_time[0])
        + on_bus(&profile)
        + on_link(&profile, 4_096)
        + us(profile.host.completion_time);
    let record = run(&profile, job("rw=randread,bs=4k,size=64m,number_ios=500", 1), at_depth(1)).unwrap().record;
    let read = &record.latency_us["read"];
    assert!(close(read.min, expected) && close(read.max, expected), "{read:?}, not {expected}");
    assert!(close(read.p50, expected) && close(read.p999, expected) && close(read.mean, expected));
    assert!(close(record.iops, 1e6 / expected));
    assert_eq!((record.requests, record.flash.reads_host, record.bytes_read), (500, 500, 500 * 4_096));
    let busy = (us(profile.nand.command_time) + us(profile.nand.read_time[0])) / expected;
    assert!(close(record.utilization.dies[0].read_share, busy), "{:?}", record.utilization);
    assert!(close(record.utilization.channels[0].busy_share, on_bus(&profile) / expected), "{:?}", record.utilization);
}

#[test]
fn a_single_write_through_takes_the_sum_of_its_steps() {
    let profile = tiny();
    let expected = us(profile.host.command_time)
        + on_link(&profile, 4_096)
        + us(profile.nand.command_time)
        + on_bus(&profile)
        + us(profile.nand.program_time[0])
        + us(profile.host.completion_time);
    let record = run(&profile, job("rw=write,bs=4k,size=1m", 1), at_depth(1)).unwrap().record;
    let write = &record.latency_us["write"];
    assert!(close(write.min, expected) && close(write.max, expected), "{write:?}, not {expected}");
    assert_eq!((record.requests, record.write_amplification, record.flash.programs), (256, 1.0, 256));
}

#[test]
fn an_open_loop_counts_from_arrival_and_a_closed_one_from_submission() {
    let profile = with(tiny(), &["nand.cache=false"]);
    let burst = || list((0..50).map(|i| request(0, Op::Read, i * 4_096, 4_096)));
    // All 50 come at once to one die, which serves one after the other: array, then bus.
    let service = us(profile.nand.command_time) + us(profile.nand.read_time[0]) + on_bus(&profile);
    let open = run(&profile, burst(), RunOptions::default()).unwrap().record;
    let read = &open.latency_us["read"];
    assert!(close(read.max, read.min + 49.0 * service), "{read:?}: {service} each");
    let closed = run(&profile, burst(), at_depth(1)).unwrap().record;
    assert!(close(closed.latency_us["read"].max, read.min), "{:?}", closed.latency_us["read"]);
    // Apart, they do not meet.
    let apart = || list((0..50).map(|i| request(i * 1_000, Op::Read, i * 4_096, 4_096)));
    let slow = run(&profile, apart(), RunOptions::default()).unwrap().record;
    assert!(close(slow.latency_us["read"].max, read.min));
    let twice = run(&profile, apart(), RunOptions { speedup: 2.0, ..RunOptions::default() }).unwrap().record;
    assert!(close(slow.simulated_seconds, 0.049 + read.min * 1e-6), "{}", slow.simulated_seconds);
    assert!(close(twice.simulated_seconds, 0.0245 + read.min * 1e-6), "{}", twice.simulated_seconds);
    // With a depth, arrivals are kept, and latency counts from submission.
    let paced = RunOptions { pacing: Pacing::ArrivalAndDepth(1), ..RunOptions::default() };
    let paced = run(&profile, burst(), paced).unwrap().record;
    assert!(close(paced.latency_us["read"].max, read.min));
}

#[test]
fn requests_that_find_the_queues_full_wait_in_the_host() {
    let profile =
        with(tiny(), &["host.queues=2", "host.queue_entries=2", "host.outstanding_max=1", "nand.cache=false"]);
    let burst = list((0..200).map(|i| request(0, Op::Read, i * 4_096, 4_096)));
    let record = run(&profile, burst, RunOptions::default()).unwrap().record;
    let read = &record.latency_us["read"];
    assert_eq!(record.requests, 200);
    // One at a time from end to end, and the next is in a queue when one ends.
    assert!(close(read.max, 200.0 * read.min), "{read:?}");
    let error = run(&profile, list([request(0, Op::Read, 0, 1)]), at_depth(3)).unwrap_err();
    assert!(error.to_string().contains("queue_entries"), "{error}");
}

#[test]
fn every_operation_is_served_and_has_its_line() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut requests: Vec<Request> = Vec::new();
    for (i, op) in Op::ALL.into_iter().cycle().take(70).enumerate() {
        let length = if op == Op::Flush { 0 } else { 16_384 };
        let fua = i % 2 == 0;
        requests.push(Request {
            fua,
            ..request(i as u64 * 50, op, if length == 0 { 0 } else { i as u64 * 8_192 }, length)
        });
    }
    for profile in [tiny(), small()] {
        lines.lock().unwrap().clear();
        let options = RunOptions {
            requests: Some(Box::new(tidewater_report::requests::CsvRequests::new(Shared(lines.clone())))),
            ..RunOptions::default()
        };
        let Outcome { record, device } = run(&profile, list(requests.iter().copied()), options).unwrap();
        assert_eq!((record.requests, record.commands_failed), (70, 0), "{:?}", record.warnings);
        assert_eq!((device.outstanding(), record.requests_by_operation.len()), (0, 7));
        assert!(Op::ALL.iter().all(|op| record.latency_us[op.name()].count == 10));
        assert_eq!(record.latency_us["all"].count, 70);
        assert_eq!((record.bytes_read, record.bytes_written), (163_840, 163_840));
        assert_eq!(record.time_series.points.iter().map(|p| p.erases).sum::<u64>(), record.erases);
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        let mut rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.remove(0).join(","), tidewater_report::requests::CSV_HEADING);
        assert_eq!(rows.len(), 70);
        let sum: f64 = rows.iter().map(|row| row[5].parse::<f64>().unwrap()).sum();
        assert!(close(sum / 70.0, record.latency_us["all"].mean));
        rows.sort_by_key(|row| row[0].parse::<u64>().unwrap());
        assert_eq!(rows[1][..5], ["1", "50.000000", "write", "8192", "16384"]);
        assert!(rows.iter().all(|row| row.len() == 7 && row[6] == "success"));
        let read = Record::from_json(&record.to_json()).unwrap();
        assert_eq!((read.requests_by_operation, read.flash), (record.requests_by_operation, record.flash));
    }
}

#[test]
fn large_requests_are_split_and_end_with_their_last_command() {
    let profile = with(tiny(), &["host.transfer_max=64KiB"]);
    let mib = 1 << 20;
    let record = run(&profile, list([request(0, Op::Read, 512, mib)]), RunOptions::default()).unwrap().record;
    // 1 MiB in 64 KiB; the offset is aligned to blocks, so none is added.
    assert_eq!((record.requests, record.commands, record.bytes_read), (1, 16, mib));
    let ends = [Op::Verify, Op::WriteZeroes].map(|op| {
        let record = run(&profile, list([request(0, op, 0, 48 << 20)]), RunOptions::default()).unwrap().record;
        record.commands
    });
    assert_eq!(ends, [2, 2], "65,536 blocks of 512 bytes are the most that a command can name");
    let trim = run(&profile, list([request(0, Op::Deallocate, 0, 48 << 20)]), RunOptions::default()).unwrap();
    assert_eq!(trim.record.commands, 1);
}

#[test]
fn addresses_are_rounded_to_blocks_outwards_or_inwards() {
    let profile = with(tiny(), &["host.block_size=4096"]);
    let requests =
        [request(0, Op::Write, 100, 1), request(1_000, Op::Write, 4_095, 2), request(2_000, Op::Deallocate, 1, 8_191)];
    let Outcome { record, device } = run(&profile, list(requests), RunOptions::default()).unwrap();
    assert_eq!((record.flash.units_host, record.commands_failed, record.bytes_written), (3, 0, 3));
    assert_eq!((device.ftl().statistics.deallocated, device.ftl().map().mapped()), (1, 1));
    let nothing = [request(0, Op::Write, 0, 4_096), request(1_000, Op::Deallocate, 1, 4_000)];
    let Outcome { record, device } = run(&profile, list(nothing), RunOptions::default()).unwrap();
    assert_eq!((record.requests, record.commands, record.commands_failed), (2, 2, 0));
    assert_eq!(device.ftl().map().mapped(), 1, "no block was asked for wholly");
}

#[test]
fn what_lies_past_the_end_is_refused_or_wrapped() {
    let capacity = 64u64 << 20;
    let requests = || {
        list([
            request(0, Op::Write, 0, 4_096),
            request(10, Op::Write, capacity - 4_096, 8_192),
            request(20, Op::Read, 3 * capacity + 512, 4_096),
        ])
    };
    let error = run(&tiny(), requests(), RunOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("list:7: request 1 (write of 8192 bytes at byte 67104768)"), "{error}");
    assert!(error.contains("67108864") && error.contains("--wrap"), "{error}");
    let record = run(&tiny(), requests(), RunOptions { wrap: true, ..RunOptions::default() }).unwrap().record;
    assert_eq!((record.requests, record.commands, record.commands_failed), (3, 4, 0), "the write goes on at address 0");
}

#[test]
fn the_drive_follows_the_workload_unless_its_size_is_given() {
    let free = with(tiny(), &["drive.capacity=0"]);
    let requests = || list([request(0, Op::Read, 5_000_000, 3)]);
    let follows = run(&free, requests(), RunOptions::default()).unwrap();
    assert_eq!(follows.record.capacity_bytes, 5_001_216);
    assert!(matches!(given_capacity(&free, &Default::default()), Ok(None)));
    let silent = List { extent: None, ..requests() };
    let error = run(&free, silent, RunOptions::default()).unwrap_err();
    assert!(matches!(error, RunError::NoCapacity) && error.to_string().contains("drive.capacity"), "{error}");
    let mut options = RunOptions::default();
    options.device.capacity = 8 << 20;
    assert_eq!(run(&free, requests(), options).unwrap().record.capacity_bytes, 8 << 20);
    assert_eq!(given_capacity(&tiny(), &Default::default()).unwrap(), Some(64 << 20));
}

#[test]
fn options_and_workloads_without_meaning_are_refused() {
    let one = || list([request(0, Op::Read, 0, 4_096)]);
    let refused = |options: RunOptions| run(&tiny(), one(), options).unwrap_err().to_string();
    assert!(refused(RunOptions { speedup: 0.0, ..RunOptions::default() }).contains("speed-up"));
    assert!(refused(RunOptions { speedup: f64::NAN, ..RunOptions::default() }).contains("speed-up"));
    assert!(refused(at_depth(0)).contains("queue depth"));
    assert!(refused(RunOptions { limit: Some(0), ..RunOptions::default() }).contains("limit"));
    assert!(refused(RunOptions { warmup_requests: 1, ..RunOptions::default() }).contains("all 1 request of"));
    let far = list([request(0, Op::Read, 0, 1), request(300 * 86_400 * 1_000_000 / 2, Op::Read, 0, 1)]);
    let slower = RunOptions { speedup: 0.5, ..RunOptions::default() };
    let error = run(&tiny(), far, slower).unwrap_err().to_string();
    assert!(error.contains("request 1 arrives after 300 days"), "{error}");
    assert!(matches!(run(&tiny(), list([]), RunOptions::default()), Err(RunError::NoRequests { warmup: 0 })));
}

#[test]
fn the_same_inputs_give_the_same_record() {
    let runs: Vec<Record> = [1, 1, 2]
        .map(|seed| {
            let mut options = at_depth(16);
            options.device.seed = seed;
            options.device.precondition = Precondition::Steady;
            run(&small(), job("rw=randrw,bssplit=4k/70:16k/30,size=64m,number_ios=20000,fsync=100", seed), options)
                .unwrap()
                .record
                .without_wall_time()
        })
        .into();
    assert!(runs[0].collections > 0 && runs[0].write_amplification > 1.5, "{}", runs[0].write_amplification);
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    for die in &runs[0].utilization.dies {
        let sum = die.read_share + die.program_share + die.erase_share + die.idle_share;
        assert!((sum - 1.0).abs() < 1e-9 && die.program_share > 0.0, "{die:?}");
    }
}

#[test]
fn a_warm_up_is_served_but_not_measured() {
    let source = || job("rw=randwrite,bs=4k,size=64m,number_ios=3000", 3);
    let whole = run(&small(), source(), at_depth(8)).unwrap().record;
    let warm = run(&small(), source(), RunOptions { warmup_requests: 1_000, ..at_depth(8) }).unwrap().record;
    assert_eq!((warm.requests, warm.latency_us["write"].count, warm.commands), (2_000, 2_000, 2_000));
    assert!(warm.simulated_seconds < whole.simulated_seconds && warm.flash.units_host < whole.flash.units_host);
    assert!(warm.timing_events < whole.timing_events);
    let limited = RunOptions { warmup_requests: 1_000, limit: Some(1_500), ..at_depth(8) };
    assert_eq!(run(&small(), source(), limited).unwrap().record.requests, 500);
}

#[test]
fn a_live_page_sees_the_warm_up_and_what_is_measured() {
    let source = job("rw=randrw,bs=4k,size=64m,number_ios=3000", 3);
    let seen = Arc::new(Mutex::new(Vec::<tidewater_gauges::Moment>::new()));
    let all = seen.clone();
    let watch: OnMoment = Box::new(move |moment| all.lock().unwrap().push(moment));
    let options = RunOptions { warmup_requests: 1_000, watch: Some(watch), ..at_depth(8) };
    let record = run(&small(), source, options).unwrap().record;
    let seen = seen.lock().unwrap();
    let last = seen.last().unwrap();
    assert_eq!((record.requests, last.state.as_str()), (2_000, "ended"));
    assert_eq!(last.commands.iter().sum::<u64>(), 3_000, "its commands are the requests beside them");
    assert_eq!(last.bytes.iter().sum::<u64>(), 3_000 * 4_096);
    assert_eq!(last.progress.unwrap().requests, 3_000);
}

#[test]
fn a_run_time_ends_an_endless_job() {
    let endless = job("rw=randread,bs=4k,size=64m,time_based=1,runtime=10", 1);
    let options = RunOptions { runtime: Some(Duration::from_ms(50)), ..at_depth(4) };
    let record = run(&tiny(), endless, options).unwrap().record;
    assert!((0.05..0.051).contains(&record.simulated_seconds), "{}", record.simulated_seconds);
    assert!(!record.partial && record.requests > 500);
}

#[test]
fn a_cancelled_run_leaves_a_partial_record() {
    let cancelled = Arc::new(AtomicBool::new(false));
    let mut source = list((0..300_000).map(|i| request(0, Op::Read, i % 1_000 * 4_096, 4_096)));
    source.cancels = Some((250_000, cancelled.clone()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let options = RunOptions {
        cancelled,
        progress: Some(Box::new(move |progress: &Progress| told.lock().unwrap().push(*progress))),
        ..at_depth(32)
    };
    let record = run(&tiny(), source, options).unwrap().record;
    assert!(record.partial && record.partial_reason.is_some());
    assert!((50_000 - 32..100_000).contains(&record.requests), "{}", record.requests);
    assert_eq!(record.latency_us["all"].count, record.requests);
    assert_eq!(seen.lock().unwrap().last().unwrap().requests, record.requests, "the end is always reported");
}

#[test]
fn a_run_that_cannot_go_on_is_an_error_that_shows_the_state() {
    let profile = tiny();
    let mut device = Device::new(&profile, RunOptions::default().device).unwrap();
    let source = list([request(0, Op::Read, 0, 4_096)]);
    let mut host = Host::new(source, RunOptions::default(), &profile.host, device.capacity());
    host.jam();
    let Err(RunError::Stalled(state)) = serve(&mut device, &mut host) else { panic!("that went on") };
    assert!(state.contains("queues full") && state.contains("free superblocks"), "{state}");
}

#[test]
fn operations_can_have_queues_of_their_own() {
    // Reads are urgent, everything else is low; one command at a time, so that the order of fetching decides.
    let profile = with(
        tiny(),
        &[
            "host.arbitration=weighted",
            "host.queue_priorities=urgent/low/low/low/low/low/low/low",
            "host.outstanding_max=1",
        ],
    );
    let mixed = || list((0..200).map(|i| request(0, if i % 2 == 0 { Op::Write } else { Op::Read }, i * 4_096, 4_096)));
    let turn = run(&profile, mixed(), RunOptions::default()).unwrap().record;
    let options = RunOptions { queue_of: QueueOf::Operation, ..RunOptions::default() };
    let bound = run(&profile, mixed(), options).unwrap().record;
    assert!(2.0 * bound.latency_us["read"].mean < turn.latency_us["read"].mean, "{:?}", bound.latency_us["read"]);
    assert_eq!(bound.requests, 200);
}

#[test]
fn the_constructed_steady_state_is_that_of_the_slow_way() {
    let writes = |source_seed, past, warmup, count| {
        let mut options = RunOptions { warmup_requests: warmup, ..at_depth(16) };
        options.device.precondition = past;
        let text = format!("rw=randwrite,bs=4k,size=64m,number_ios={},norandommap=1", warmup + count);
        run(&with(small(), &["buffer.write_policy=none"]), job(&text, source_seed), options).unwrap().record
    };
    let units = (64 << 20) / 4_096;
    let slow = writes(1, Precondition::Filled(1.0), 6 * units, 4 * units);
    let constructed = writes(2, Precondition::Steady, 0, 4 * units);
    let changing = |record: &Record| record.warnings.iter().any(|w| w.contains("still changing"));
    assert!(!changing(&slow) && !changing(&constructed), "{:?} {:?}", slow.warnings, constructed.warnings);
    let settling = writes(1, Precondition::Fresh, 0, 3 * units);
    assert!(changing(&settling), "{:?}", settling.warnings);
    let (slow, constructed) = (slow.write_amplification, constructed.write_amplification);
    assert!((constructed / slow - 1.0).abs() < 0.05, "constructed {constructed}, the slow way {slow}");
}

#[test]
fn a_full_drive_that_collects_keeps_its_tail_within_a_few_erases() {
    let profile = with(small(), &["nand.channels=4", "nand.cell=tlc", "nand.planes=2", "nand.page_size=16KiB"]);
    let erase_us = us(profile.nand.erase_time);
    let mut options = at_depth(32);
    options.device.precondition = Precondition::Steady;
    options.device.capacity = 1 << 30;
    let writes = JobSpec::from_inline("rw=randwrite,bs=4k,size=1g,number_ios=200000,norandommap=1").unwrap();
    let record = run(&profile, writes.source(None, 1).unwrap(), options).unwrap().record;
    let write = &record.latency_us["write"];
    assert!(record.collections > 100 && write.p999 < 4.0 * erase_us, "{write:?}");
    assert!(write.max < 8.0 * erase_us, "{write:?}");
}

fn sections(text: &str) -> JobSource {
    JobSpec::from_file("a.fio", text).unwrap().source(Some(64 << 20), 3).unwrap()
}

/// Sections are threads of their own, not one that takes turns: who waits for one request at a time gets no more done
/// because another has many outstanding.
#[test]
fn sections_keep_to_their_own_depths() {
    let text = "[global]\nbs=4k\nsize=16m\nrw=randread\nnumber_ios=100000\nruntime=200ms\n[one]\niodepth=1\n[many]\n\
                bs=8k\niodepth=15\n";
    let record = run(&small(), sections(text), at_depth(16)).unwrap().record;
    let reads = record.requests as f64;
    let large = (record.bytes_read as f64 / 4096.0 - reads).round();
    let small = reads - large;
    // One die serves a request of 4 KiB and two serve one of 8 KiB; the lone one stands in the queues of the others.
    assert!((8.0..20.0).contains(&(large / small)), "{small} at depth 1, {large} at depth 15");
    // By Little's law what is outstanding is the depth.
    let outstanding = record.iops * record.latency_us["read"].mean / 1e6;
    assert!((15.5..=16.01).contains(&outstanding), "{outstanding}");
}

#[test]
fn a_section_ends_at_its_own_time_and_leaves_the_others_alone() {
    let text = "[global]\nbs=4k\nsize=16m\ntime_based\n[long]\nrw=randread\nruntime=40ms\n[short]\nrw=randwrite\n\
                runtime=10ms\n";
    let record =
        run(&tiny(), sections(text), RunOptions { runtime: Some(Duration::from_ms(40)), ..at_depth(2) }).unwrap();
    let intervals = &record.record.time_series.points;
    let wrote = intervals.iter().filter(|point| point.write_iops > 0.0).map(|point| point.t_seconds);
    assert!((0.009..0.012).contains(&wrote.fold(0.0, f64::max)));
    assert!((0.039..0.041).contains(&record.record.simulated_seconds));

    // One without an end of its own does not keep the run from ending.
    let text = "[endless]\nbs=4k\nsize=16m\ntime_based\nruntime=10ms\n[few]\nbs=4k\nsize=16m\nrw=write\nnumber_ios=5\n\
                fsync=1\n";
    let record = run(&tiny(), sections(text), at_depth(2)).unwrap().record;
    assert!((0.009..0.012).contains(&record.simulated_seconds), "{}", record.simulated_seconds);
    assert_eq!((record.requests_by_operation["write"], record.requests_by_operation["flush"]), (5, 5));
}

#[test]
fn one_depth_for_all_a_slice_and_a_warm_up_of_sections() {
    let text = "[global]\nbs=4k\nsize=1m\n[a]\nrw=randread\niodepth=1\n[b]\nrw=randwrite\niodepth=4\n";
    let mut shared = sections(text);
    shared.share_depth();
    let record = run(&tiny(), shared, at_depth(16)).unwrap().record;
    assert_eq!((record.requests, record.requests_by_operation["read"]), (512, 256));
    for (range, warmup_requests) in [(0..512, 0), (0..512, 100), (50..300, 0), (50..300, 20), (500..900, 0)] {
        let expected = range.end.min(512) - range.start - warmup_requests;
        let source = crate::workload::Slice::new(sections(text), range);
        let record = run(&tiny(), source, RunOptions { warmup_requests, ..at_depth(5) }).unwrap().record;
        assert_eq!(record.requests, expected);
    }
}
