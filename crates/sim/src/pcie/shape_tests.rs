//! Effects of the mechanisms: the shapes of the X-SSD paper's figures 9 to 11, with a device that is no more than a
//! queue in front of a memory. `docs/internals/host-model.md` explains them.

use super::*;
use crate::host::{Commit, Durable, Memory, MemorySpec, NoLog, Sink, Workers, WorkersSpec, drive};
use crate::workload::log::{LogSource, LogSpec};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tidewater_base::Duration;
use tidewater_core::cost::{Rate, Server};

/// A memory, a queue of bytes in front of it, and a counter of the contiguous bytes in it.
struct Device {
    memory: Server,
    rate: Rate,
    /// Each byte crosses the memory's port so often: written, and read for destage.
    crossings: u64,
    writes: VecDeque<(Instant, u64, u32)>,
    reads: VecDeque<Tlp>,
    /// Pieces that are persistent out of order.
    early: BTreeMap<u64, u64>,
    persisted: u64,
}

/// The program of one core.
struct Rig {
    root: RootComplex,
    device: Device,
    now: Instant,
    /// Value of the counter at its last load.
    counter: u64,
}

impl Rig {
    fn new(bandwidth: u64, crossings: u64) -> Rig {
        let board = tidewater_core::profile::builtin("villars").expect("a built-in profile");
        let spec = PcieSpec {
            cores: 1,
            cpu: CpuSpec::default(),
            link: board.link,
            credits: CreditSpec::default(),
            drain: Drain::Any,
            seed: 1,
        };
        let device = Device {
            memory: Server::default(),
            rate: Rate::per_second(bandwidth),
            crossings,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            early: BTreeMap::new(),
            persisted: 0,
        };
        Rig { root: RootComplex::new(&spec), device, now: Instant::ZERO, counter: 0 }
    }

    fn step(&mut self) {
        let device = &mut self.device;
        let write = device.writes.front().map(|write| write.0);
        let read = device.reads.front().map(|read| read.at);
        let at = self.root.deadline().into_iter().chain(write).chain(read).min().expect("an event is due");
        self.now = self.now.max(at);
        if write == Some(at) {
            let (_, offset, length) = device.writes.pop_front().expect("the front element is present");
            device.early.insert(offset, u64::from(length));
            while let Some(length) = device.early.remove(&device.persisted) {
                device.persisted += length;
            }
            self.root.release(self.now, offset, length);
        } else if read == Some(at) {
            let read = device.reads.pop_front().expect("the front element is present");
            self.counter = device.persisted;
            self.root.complete_read(self.now, read.core);
        } else {
            self.root.advance(self.now);
        }
        while let Some(tlp) = self.root.poll_tlp() {
            match tlp.kind {
                TlpKind::Read => device.reads.push_back(tlp),
                TlpKind::Write => {
                    let cost = device.rate.time(u64::from(tlp.length) * device.crossings);
                    device.writes.push_back((device.memory.serve(tlp.at, cost), tlp.offset, tlp.length));
                }
            }
        }
    }

    fn run(&mut self, op: Op) {
        self.root.start(self.now, 0, op);
        while self.root.poll_done().is_none() {
            self.step();
        }
    }

    /// Bytes a second of a stream of writes of `size`, each kept apart from the next.
    fn stream(&mut self, size: u64, mapping: Mapping) -> f64 {
        let bytes = 1 << 18;
        for offset in (0..bytes).step_by(size as usize) {
            self.run(Op::Write { offset, length: size, mapping });
            self.run(Op::Evict);
        }
        while self.device.persisted < bytes {
            self.step();
        }
        bytes as f64 / self.now.as_secs_f64()
    }

    /// `x_pwrite` of `size` bytes with a queue of `queue` bytes, and `x_fsync`; returns how long it took.
    fn append(&mut self, tail: u64, size: u64, queue: u64) -> Duration {
        const COUNTER: Op = Op::Read { offset: 1 << 40, length: 8 };
        let start = self.now;
        let mut written = tail;
        while written < tail + size {
            let credit = (self.counter + queue - written).min(tail + size - written);
            if credit > 0 {
                self.run(Op::Write { offset: written, length: credit, mapping: Mapping::WriteCombining });
                written += credit;
            } else {
                self.run(COUNTER);
            }
        }
        while self.counter < tail + size {
            self.run(COUNTER);
        }
        self.now - start
    }
}

/// Asserts that `docs/internals/host-model.md` has this table between the marks of `id`, after writing it there if
/// `UPDATE_DOCS` is set.
fn check_page(id: &str, table: &str) {
    static PAGE: Mutex<()> = Mutex::new(());
    let _alone = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/host-model.md");
    let page = std::fs::read_to_string(path).expect("the page can be read");
    let (start, end) = (format!("<!-- {id} -->\n"), format!("<!-- end {id} -->"));
    let from = page.find(&start).unwrap_or_else(|| panic!("no {start} in {path}")) + start.len();
    let to = from + page[from..].find(&end).unwrap_or_else(|| panic!("no {end} in {path}"));
    let table = format!("\n{table}\n");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{}{table}{}", &page[..from], &page[to..]);
        return std::fs::write(path, page).expect("the page can be written");
    }
    assert!(page[from..to] == table, "`{id}`: UPDATE_DOCS=1 cargo test -p tidewater-sim figure_\nfound:\n{table}");
}

const SIZES: [u64; 4] = [8, 16, 32, 64];
const SRAM: u64 = 4_000_000_000;
const FAST_DRAM: u64 = 1_600_000_000;

#[test]
fn figure_10_write_combining_is_above_uncached_and_sram_peaks_at_a_full_line_only() {
    let combined = SIZES.map(|size| Rig::new(SRAM, 2).stream(size, Mapping::WriteCombining));
    let uncached = SIZES.map(|size| Rig::new(SRAM, 2).stream(size, Mapping::Uncached));
    for (i, size) in SIZES.into_iter().enumerate() {
        assert!(combined[i] > uncached[i], "{size} bytes: {} and {}", combined[i], uncached[i]);
        let link = 2e9 * size as f64 / (size + 24) as f64;
        assert!((combined[i] / link - 1.0).abs() < 0.01, "{size} bytes: {} of {link}", combined[i]);
    }
    assert!(combined[2] < 0.8 * combined[3]);
}

#[test]
fn figure_10_dram_peaks_from_16_bytes_on() {
    let combined = SIZES.map(|size| Rig::new(FAST_DRAM, 2).stream(size, Mapping::WriteCombining));
    let peak = combined[3];
    // Every byte crosses the port twice.
    assert!((peak / 0.8e9 - 1.0).abs() < 0.01, "{peak}");
    assert!(combined[0] < 0.65 * peak, "{combined:?}");
    assert!(combined[1] > 0.98 * peak && combined[2] > 0.98 * peak, "{combined:?}");
}

#[test]
fn figure_11_a_queue_as_large_as_the_write_needs_no_check_of_the_credit() {
    let sizes = [1 << 10, 4 << 10, 16 << 10, 32 << 10];
    let queues = [1 << 10, 4 << 10, 16 << 10, 32 << 10];
    let mean = |size: u64, queue: u64| {
        let mut rig = Rig::new(SRAM, 2);
        (0..32).map(|i| rig.append(i * size, size, queue).as_us_f64()).sum::<f64>() / 32.0
    };
    let mut table = String::from("| write | queue 1 KiB | 4 KiB | 16 KiB | 32 KiB |\n|---|---|---|---|---|\n");
    for size in sizes {
        let latency = queues.map(|queue| mean(size, queue));
        let cells = latency.map(|us| format!(" {us:.2} |")).concat();
        table += &format!("| {} KiB |{cells}\n", size >> 10);
        for (i, queue) in queues.into_iter().enumerate() {
            if queue >= size {
                // The bytes on the wire and one or two round trips.
                let wire = (size / 64) as f64 * 0.044;
                assert!((wire + 0.7..wire + 2.0).contains(&latency[i]), "{size} {queue}: {}", latency[i]);
                assert!((latency[i] / latency[3] - 1.0).abs() < 0.01, "a larger queue changes nothing");
            } else {
                assert!(latency[i] > latency[3] * 1.03, "{size} {queue}: {latency:?}");
            }
        }
    }
    let throughput = (32 << 10) as f64 / mean(32 << 10, 32 << 10);
    assert!((1300.0..1455.0).contains(&throughput), "{throughput} MB/s");
    check_page("figure 11", &table);
}

/// A log on the fast side: one commit at a time, so that it can be run to its end at once.
struct Fast {
    rig: Rig,
    tail: u64,
    durable: VecDeque<Durable>,
    polled: VecDeque<Durable>,
}

impl Fast {
    fn new(bandwidth: u64) -> Fast {
        Fast { rig: Rig::new(bandwidth, 2), tail: 0, durable: VecDeque::new(), polled: VecDeque::new() }
    }
}

impl Sink for Fast {
    fn commit(&mut self, now: Instant, commit: Commit) {
        self.rig.now = self.rig.now.max(now);
        self.rig.append(self.tail, commit.bytes, 32 << 10);
        self.tail += commit.bytes;
        self.durable.push_back(Durable { at: self.rig.now, sequence: commit.sequence });
    }

    fn deadline(&self) -> Option<Instant> {
        self.durable.front().map(|durable| durable.at)
    }

    fn advance(&mut self, now: Instant) {
        self.polled.extend(self.durable.pop_front_if(|durable| durable.at <= now));
    }

    fn poll_durable(&mut self) -> Option<Durable> {
        self.polled.pop_front()
    }
}

/// Transactions a second and mean latency in microseconds of TPC-C.
fn tpcc(count: u32, commit_bytes: u64, mut sink: impl Sink) -> (f64, f64) {
    let spec = WorkersSpec { workers: count, commit_bytes, ..WorkersSpec::default() };
    let mut workers = Workers::new(spec, LogSource::synthesize(&LogSpec::default()));
    let now = drive(&mut workers, &mut sink, Instant::from_ns(50_000_000));
    (workers.measured().transactions_per_second(now), workers.measured().mean_latency().as_us_f64())
}

#[test]
fn figure_9_memory_and_sram_are_alike_and_dram_pushes_back_at_8_workers() {
    let group = WorkersSpec::default().commit_bytes;
    let mut last = f64::MAX;
    let mut table = String::from("| workers | no log | memory | SRAM | DRAM |\n|---|---|---|---|---|\n");
    for count in [1, 2, 4, 8] {
        let no_log = tpcc(count, 1, NoLog::default());
        let memory = tpcc(count, group, Memory::new(MemorySpec::default()));
        let sram = tpcc(count, group, Fast::new(SRAM));
        let dram = tpcc(count, group, Fast::new(FAST_DRAM));
        assert!((sram.1 / memory.1 - 1.0).abs() < 0.05, "{count} workers: {sram:?} and {memory:?}");
        assert!(sram.1 < last && sram.1 < dram.1);
        assert!(sram.0 > 0.99 * no_log.0);
        last = sram.1;
        let pushed_back = dram.0 < 0.95 * sram.0 && dram.1 > 1.5 * sram.1;
        assert_eq!(pushed_back, count == 8, "{count} workers: {dram:?} and {sram:?}");
        let cells = [no_log, memory, sram, dram].map(|(rate, us)| format!(" {:.1} ktxn/s, {us:.0} us |", rate / 1e3));
        table += &format!("| {count} |{}\n", cells.concat());
    }
    check_page("figure 9", &table);
}
