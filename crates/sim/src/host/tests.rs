use super::*;
use crate::trace::Input;
use crate::workload::log::{LogFile, LogSource, LogSpec, Mix, Summary, Tpcc, mixes};
use proptest::prelude::*;
use std::collections::VecDeque;
use tidewater_base::Duration;

const END: Instant = Instant::NEVER;

fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

/// Transactions of 1,024 bytes and 10 us.
fn fixed(transactions: u64) -> LogSpec {
    let mix = Mix::Fixed(1024);
    LogSpec { mix, cpu_time: us(10), cpu_spread: 0.0, transactions: Some(transactions), ..LogSpec::default() }
}

fn workers(spec: WorkersSpec, log: &LogSpec) -> Workers {
    Workers::new(spec, LogSource::synthesize(log))
}

/// A device that takes the same time for every request.
struct Device {
    sink: DeviceSink,
    time: Duration,
    busy: Option<Instant>,
    seen: Vec<(Instant, Request)>,
}

impl Device {
    fn new(sink: DeviceSink, time: Duration) -> Device {
        Device { sink, time, busy: None, seen: vec![] }
    }
}

impl Sink for Device {
    fn commit(&mut self, now: Instant, commit: Commit) {
        self.sink.commit(now, commit);
    }

    fn deadline(&self) -> Option<Instant> {
        self.busy.into_iter().chain(self.sink.deadline()).min()
    }

    fn advance(&mut self, now: Instant) {
        self.sink.advance(now);
        if self.busy.is_some_and(|at| at <= now) {
            self.busy = None;
            self.sink.complete(now);
        }
        if let Some(request) = self.sink.poll_request() {
            self.seen.push((now, request));
            self.busy = Some(now + self.time);
        }
    }

    fn poll_durable(&mut self) -> Option<Durable> {
        self.sink.poll_durable()
    }
}

#[test]
fn without_a_log_a_transaction_takes_its_time_on_the_cpu() {
    let spec = WorkersSpec { commit_bytes: 1, ..WorkersSpec::default() };
    let mut workers = workers(spec, &fixed(8_000));
    let now = drive(&mut workers, &mut NoLog::default(), END);
    assert!(workers.is_done());
    assert_eq!(now, Instant::ZERO + us(10_000));
    assert_eq!((workers.measured().latency.min(), workers.measured().latency.max()), (us(10), us(10)));
    assert_eq!(workers.measured().transactions_per_second(now), 800_000.0);
}

#[test]
fn latency_falls_as_workers_fill_a_group_together() {
    let memory = MemorySpec::default();
    let mut last = Duration::from_ms(1);
    for count in [1, 2, 4, 8] {
        let spec = WorkersSpec { workers: count, ..WorkersSpec::default() };
        let mut workers = workers(spec, &fixed(1600));
        drive(&mut workers, &mut Memory::new(memory), END);
        // A group is 16 transactions: 16 / count rounds, and the k-th from the last waits for k rounds.
        let rounds = 16 / u64::from(count);
        let filling = Duration::from_ps(us(10).as_ps() * (rounds + 1) / 2);
        assert_eq!(workers.measured().mean_latency(), filling + memory.time(16 << 10), "{count} workers");
        assert!(workers.measured().mean_latency() < last);
        last = workers.measured().mean_latency();
        assert_eq!(workers.measured().commit.count(), 100);
        assert_eq!(workers.measured().stalled.count(), 0);
    }
}

#[test]
fn a_slow_sink_at_queue_depth_1_sets_the_throughput() {
    let mut workers = workers(WorkersSpec::default(), &fixed(32_000));
    let mut device = Device::new(DeviceSink::conventional(ConventionalSpec::default()), us(94));
    let now = drive(&mut workers, &mut device, END);
    // 16 transactions in 3 + 94 + 3 us.
    let ceiling = 160_000.0;
    let measured = workers.measured().transactions_per_second(now);
    assert!((measured / ceiling - 1.0).abs() < 0.01, "{measured}");
    assert!(workers.measured().stalled.count() > 10_000);
    assert_eq!(workers.measured().commit.max(), us(100));
    // One that stalls finds all four buffers full before it.
    assert!(workers.measured().latency.max() <= us(10 + 5 * 100), "{}", workers.measured().latency.max());
    assert_eq!(workers.measured().bytes, 32_000 << 10);
}

#[test]
fn workers_that_wait_run_in_step_with_the_sink() {
    let spec = WorkersSpec { workers: 4, commit_bytes: 4096, waits: true, ..WorkersSpec::default() };
    let mut workers = workers(spec, &fixed(400));
    let now = drive(&mut workers, &mut Device::new(DeviceSink::fast(), us(2)), END);
    // 10 us of computing, then an append and a sync of 2 us each.
    assert_eq!(now, Instant::ZERO + us(14) * 100);
    assert_eq!((workers.measured().latency.min(), workers.measured().latency.max()), (us(14), us(14)));
}

#[test]
fn a_group_that_does_not_fill_is_committed_after_its_time() {
    let spec = WorkersSpec { workers: 1, commit_timeout: us(25), ..WorkersSpec::default() };
    let mut workers = workers(spec, &fixed(4));
    let now = drive(&mut workers, &mut NoLog::default(), END);
    // Appended at 10, 20 and 30 (committed at 35), and at 40 (committed at 65).
    assert_eq!(now, Instant::ZERO + us(65));
    assert_eq!((workers.measured().commit.count(), workers.measured().latency.max()), (2, us(35)));
}

#[test]
fn a_recorded_log_arrives_when_it_did() {
    let text = b"time_us,size\n0,16384\n100,8192\n101,8192\n1000,16384\n";
    let file = LogFile::open(&Input::from_bytes("my.csv", text), None).unwrap();
    let mut workers = Workers::new(WorkersSpec { workers: 2, ..WorkersSpec::default() }, LogSource::File(file.into()));
    let mut device = Device::new(DeviceSink::fast(), us(3));
    let now = drive(&mut workers, &mut device, END);
    assert_eq!(now, Instant::ZERO + us(1006));
    let at = |index: usize| device.seen[index].0;
    assert_eq!((at(0), at(2), at(4)), (Instant::ZERO, Instant::ZERO + us(101), Instant::ZERO + us(1000)));
    assert_eq!((workers.measured().latency.min(), workers.measured().latency.max()), (us(6), us(7)));
}

#[test]
fn a_broken_log_ends_the_workers_with_its_error() {
    let file = LogFile::open(&Input::from_bytes("my.csv", b"time_us,size\n0,16384\nx,1\n"), None).unwrap();
    let mut workers = Workers::new(WorkersSpec::default(), LogSource::File(file.into()));
    drive(&mut workers, &mut NoLog::default(), END);
    assert!(workers.is_done());
    assert!(workers.error().unwrap().to_string().starts_with("my.csv:3:1: expected a time"));
}

#[test]
fn a_conventional_log_pads_its_groups_and_turns_in_its_ring() {
    let ring = ConventionalSpec { offset: 1 << 20, size: 40 << 10, flush: true, ..ConventionalSpec::default() };
    let mut device = Device::new(DeviceSink::conventional(ring), us(1));
    let mut now = Instant::ZERO;
    for (sequence, bytes) in [20_000, 16_384, 5].into_iter().enumerate() {
        device.commit(now, Commit { sequence: sequence as u64, bytes, transactions: 1 });
        while let Some(at) = device.deadline() {
            now = at;
            device.advance(now);
        }
    }
    let requests: Vec<_> = device.seen.iter().map(|seen| seen.1).collect();
    let write = |at: u64, length: u64| Request::Write { offset: (1 << 20) + at, length };
    let flush = Request::Flush;
    let expected = [write(0, 20_480), flush, write(20_480, 16_384), flush, write(36_864, 4_096), flush];
    assert_eq!(requests, expected);
    device.commit(now, Commit { sequence: 3, bytes: 40_961, transactions: 1 });
    device.commit(now, Commit { sequence: 4, bytes: 1, transactions: 1 });
    while let Some(at) = device.deadline() {
        device.advance(at);
    }
    let requests: Vec<_> = device.seen.iter().skip(6).map(|seen| seen.1).collect();
    assert_eq!(requests, [write(0, 40_960), write(0, 4_096), flush, write(4_096, 4_096), flush]);
    assert_eq!(std::iter::from_fn(|| device.poll_durable()).map(|d| d.sequence).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn flushes_in_order_cost_their_latency_each_and_overlapping_ones_do_not() {
    let (serial, parallel) = (MemorySpec::default(), MemorySpec::clwb());
    let line = serial.line_time + serial.flush_latency;
    assert_eq!(serial.time(64), line + serial.fence_time);
    assert_eq!(parallel.time(64), serial.time(64));
    assert_eq!(serial.time(16 << 10), line * 256 + serial.fence_time);
    // Storing a line takes longer than a twelfth of a flush.
    assert_eq!(parallel.time(16 << 10), parallel.line_time * 255 + line + serial.fence_time);
    let slow = MemorySpec { bandwidth: 1_000_000_000, ..parallel };
    assert_eq!(slow.time(16 << 10), Duration::from_ns(64) * 255 + line + serial.fence_time);
}

/// Throughput and latency of figure 9, with sinks of the speeds that docs/internals/host-model.md derives.
#[test]
fn tpc_c_on_eight_workers_meets_the_ceiling_of_a_queue_depth_of_1() {
    let run = |count: u32, sink: &mut dyn FnMut() -> Box<dyn Sink>| {
        let mut workers = workers(WorkersSpec { workers: count, ..WorkersSpec::default() }, &LogSpec::default());
        let mut sink = sink();
        let now = drive(&mut workers, &mut Dynamic(sink.as_mut()), Instant::from_ns(200_000_000));
        (workers.measured().transactions_per_second(now), workers.measured().mean_latency())
    };
    let mut memory = || Box::new(Memory::new(MemorySpec::default())) as Box<dyn Sink>;
    let mut conventional = || {
        // 22 us in the device and 6 us in the host.
        let sink = DeviceSink::conventional(ConventionalSpec::default());
        Box::new(Device::new(sink, us(22))) as Box<dyn Sink>
    };
    let mut last = Duration::from_ms(1);
    for count in [1, 2, 4] {
        let (fast, latency) = run(count, &mut memory);
        let (slow, slow_latency) = run(count, &mut conventional);
        assert!((fast / (f64::from(count) * 37_500.0) - 1.0).abs() < 0.02, "{count} workers: {fast}");
        assert!((slow / fast - 1.0).abs() < 0.01, "{count} workers: {slow} of {fast}");
        assert!(latency < last && latency < slow_latency);
        last = latency;
    }
    let (fast, latency) = run(8, &mut memory);
    let (slow, _) = run(8, &mut conventional);
    assert!(fast > 297_000.0 && latency < last, "{fast} {latency}");
    assert!((190_000.0..210_000.0).contains(&slow), "{slow}");
}

struct Dynamic<'a>(&'a mut dyn Sink);

impl Sink for Dynamic<'_> {
    fn commit(&mut self, now: Instant, commit: Commit) {
        self.0.commit(now, commit);
    }
    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
    fn advance(&mut self, now: Instant) {
        self.0.advance(now);
    }
    fn poll_durable(&mut self) -> Option<Durable> {
        self.0.poll_durable()
    }
}

/// A sink that takes a random time and finishes in any order.
struct Erratic {
    rng: tidewater_base::Rng,
    under_way: Vec<Durable>,
    done: VecDeque<Durable>,
    bytes: u64,
    depth: usize,
}

impl Sink for Erratic {
    fn commit(&mut self, now: Instant, commit: Commit) {
        let at = now + us(self.rng.below(200));
        self.bytes += commit.bytes;
        self.under_way.push(Durable { at, sequence: commit.sequence });
        self.depth = self.depth.max(self.under_way.len());
    }
    fn deadline(&self) -> Option<Instant> {
        self.under_way.iter().map(|durable| durable.at).min()
    }
    fn advance(&mut self, now: Instant) {
        self.done.extend(self.under_way.extract_if(.., |durable| durable.at <= now));
    }
    fn poll_durable(&mut self) -> Option<Durable> {
        self.done.pop_front()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_transaction_becomes_durable_once(
        seed: u64, mix in 0usize..5, count in 1u32..9, buffers in 1u32..5, queue_depth in 1u32..4, waits: bool,
        commit_bytes in 1u64..40_000, cut: bool, timeout in 1u64..300,
    ) {
        let mix = mixes()[mix].1;
        let log = LogSpec { mix, seed, transactions: Some(500), workers: count, ..LogSpec::default() };
        let mut expected = Summary::default();
        LogSource::synthesize(&log).for_each(|write| expected.add(&write.unwrap()));
        let commit_timeout = us(timeout);
        let when_idle = false;
        let spec =
            WorkersSpec { workers: count, buffers, queue_depth, waits, commit_bytes, cut, commit_timeout, when_idle };
        let mut workers = workers(spec, &log);
        let rng = tidewater_base::Rng::new(seed, b"erratic");
        let mut sink = Erratic { rng, under_way: vec![], done: VecDeque::new(), bytes: 0, depth: 0 };
        drive(&mut workers, &mut sink, END);
        prop_assert!(workers.is_done());
        prop_assert_eq!(workers.measured().transactions(), 500);
        prop_assert_eq!(workers.measured().bytes, expected.bytes());
        prop_assert_eq!(sink.bytes, expected.bytes());
        prop_assert!(sink.depth <= queue_depth.min(buffers) as usize);
    }
}

#[test]
fn groups_are_cut_at_the_mark_or_pass_it_by_a_part_of_a_large_transaction() {
    let group = |cut| {
        let log = LogSpec { transactions: Some(50_000), ..LogSpec::default() };
        let mut workers = workers(WorkersSpec { cut, ..WorkersSpec::default() }, &log);
        drive(&mut workers, &mut Memory::new(MemorySpec::clwb()), END);
        let written = Tpcc::default().mean_bytes() * 50_000.0;
        assert!((workers.measured().bytes as f64 / written - 1.0).abs() < 0.03);
        workers.measured().bytes as f64 / workers.measured().commit.count() as f64
    };
    assert!((16_380.0..=16_384.0).contains(&group(true)), "all but the last are full");
    assert!((19_000.0..20_000.0).contains(&group(false)), "{}", group(false));
}

#[test]
fn a_transaction_larger_than_all_buffers_goes_through_them_in_parts() {
    let log = LogSpec { mix: Mix::Fixed(100_000), ..fixed(3) };
    let spec = WorkersSpec { workers: 1, buffers: 2, commit_timeout: us(50), ..WorkersSpec::default() };
    let mut workers = workers(spec, &log);
    let now = drive(&mut workers, &mut Device::new(DeviceSink::fast(), us(5)), END);
    assert!(workers.is_done());
    assert_eq!((workers.measured().transactions(), workers.measured().bytes), (3, 300_000));
    // 18 full groups of 10 us each, with a stall behind the fourth and more of each, and the rest after its time.
    assert_eq!(workers.measured().commit.count(), 300_000 / 16_384 + 1);
    assert!(now > Instant::ZERO + us(190), "{now:?}");
}

/// Pages and loads of the warm-up counted beside bytes that were measured behind it.
#[test]
fn what_is_told_of_the_lane_is_of_the_time_that_was_measured() {
    let run = LogRun {
        to: LogTo::Fast,
        workers: WorkersSpec::default(),
        warm_until: Instant::ZERO + us(20_000),
        until: Instant::ZERO + us(22_000),
        seed: 1,
    };
    let villars = tidewater_core::profile::builtin("villars").unwrap();
    let outcome = run.run(&villars, LogSource::synthesize(&LogSpec::default())).unwrap();
    let (lane, groups) = (outcome.lane.unwrap(), outcome.measured.commit.count());
    assert!(lane.pages > 0 && lane.pages * 4_096 <= outcome.measured.bytes + villars.fast.size, "{lane:?}");
    assert!(lane.bytes_destaged <= outcome.measured.bytes + villars.fast.size, "{lane:?}");
    // Each group waits for its credit, and looks a few times.
    assert!(outcome.loads > 0 && outcome.loads <= 20 * groups, "{} loads for {groups} groups", outcome.loads);
    let state = outcome.state.unwrap();
    assert!(state.destaged > 2 * lane.bytes_destaged, "how it stands at the end is of all time: {state:?}");
}

#[test]
fn a_group_that_is_shipped_is_durable_when_the_other_server_has_it_too() {
    let (spec, rdma) = (MemorySpec::default(), RdmaSpec { bandwidth: 1_000_000_000, ..RdmaSpec::default() });
    let last = |sink: &mut Memory| {
        for sequence in 0..2 {
            sink.commit(Instant::ZERO, Commit { bytes: 16 << 10, sequence, transactions: 1 });
        }
        while let Some(at) = sink.deadline() {
            sink.advance(at);
        }
        std::iter::from_fn(|| sink.poll_durable()).map(|durable| durable.at).collect::<Vec<_>>()
    };
    let alone = last(&mut Memory::new(spec));
    assert_eq!(alone, [spec.time(16 << 10), spec.time(16 << 10) * 2].map(|time| Instant::ZERO + time));
    let shipped = last(&mut Memory::shipped(spec, rdma));
    // 16 KiB take 16.4 us on this wire, longer than in memory: the second group waits for it.
    let sent = Instant::ZERO + spec.time(16 << 10) + rdma.post_time + Duration::from_ns(16_384);
    assert_eq!(shipped, [sent + rdma.round_trip, sent + Duration::from_ns(16_384) + rdma.round_trip]);
}

/// Loads of the counter for a write of 16 KiB through a queue of 32 KiB with a sync, and the time that both take.
fn checked(checks: Checks) -> (f64, Duration) {
    let villars = tidewater_core::profile::builtin("villars").unwrap();
    let options = tidewater_core::Options { capacity: 8 << 30, ..tidewater_core::Options::default() };
    let mut device = tidewater_core::Device::new(&villars, options).unwrap();
    let mut client = client_of(&device, crate::pcie::Mapping::WriteCombining, None, 1);
    client.checks = checks;
    let app = Appender::new(16 << 10, true, us(100), Instant::ZERO, Instant::ZERO + us(2_000));
    let mut host = Attached::new(app, Some(client), 12);
    let mut clock = tidewater_core::drive::VirtualClock::default();
    tidewater_core::drive::drive(&mut device, &mut clock, &mut host);
    let appends = device.fast().function(0).unwrap().lanes()[0].credit() as f64 / f64::from(16 << 10);
    (host.client.unwrap().loads() as f64 / appends, host.app.latency.mean())
}

#[test]
fn checks_of_the_counter_in_between_are_loads_and_time() {
    let [plain, each, drained] = [Checks::UsedUp, Checks::Each(4096), Checks::Drained(4096)].map(checked);
    assert!((0.9..1.5).contains(&plain.0), "one to sync: {plain:?}");
    assert!(
        (3.9..5.0).contains(&each.0) && each.1 > plain.1,
        "three more, one after each 4 KiB but the last: {each:?}"
    );
    assert!(drained.0 >= each.0 && drained.1 >= each.1, "{drained:?} where all is waited for, {each:?}");
}
