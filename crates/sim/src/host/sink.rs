//! Where groups become durable: nowhere, in the host's persistent memory, or in a device.

use super::Commit;
use super::window::WindowRequest;
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant};
use tidewater_core::cost::{Rate, Server};
use tidewater_wire::vendor::{ANYWHERE, WindowCommand};

/// A group is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Since when.
    pub at: Instant,
    /// Its number.
    pub sequence: u64,
}

/// Makes groups durable, in their order.
pub trait Sink {
    /// Takes a group. Only as many are under way as the workers' queue depth says.
    fn commit(&mut self, now: Instant, commit: Commit);
    /// When something happens by itself next.
    fn deadline(&self) -> Option<Instant>;
    /// Does what is due by `now`.
    fn advance(&mut self, now: Instant);
    /// The next group that is durable.
    fn poll_durable(&mut self) -> Option<Durable>;
}

/// No log: a group is done when it is committed. With `commit_bytes` of 1, transactions are done when they are
/// computed.
#[derive(Clone, Debug, Default)]
pub struct NoLog {
    done: VecDeque<Durable>,
}

impl Sink for NoLog {
    fn commit(&mut self, now: Instant, commit: Commit) {
        self.done.push_back(Durable { at: now, sequence: commit.sequence });
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn advance(&mut self, _: Instant) {}

    fn poll_durable(&mut self) -> Option<Durable> {
        self.done.pop_front()
    }
}

/// The host's persistent memory (NVDIMM). A group is copied line by line; each line is written back with a cache-line
/// flush, so many of them at once; a fence ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySpec {
    /// Time of the core to store one line of 64 bytes and to issue its flush. Default 4.3 ns: 8 stores and a flush at
    /// one a cycle of 2.1 GHz.
    pub line_time: Duration,
    /// From the flush of a line until it is in the memory's power-fail domain. Default 45 ns, an assumption of the
    /// order of an access to local DRAM.
    pub flush_latency: Duration,
    /// Flushes under way at once. Default 1: `clflush` is ordered with other flushes (Intel SDM, volume 2), and that is
    /// what ERMIA's emulation of NVRAM uses. `clflushopt` and `clwb` are bound by the fill buffers: 12 on Skylake.
    pub flushes: u32,
    /// Bandwidth of the memory, bytes per second. Default 19.2 GB/s: one channel of DDR4-2400, the paper's server has
    /// six.
    pub bandwidth: u64,
    /// The fence. Default 15 ns, an assumption.
    pub fence_time: Duration,
}

impl Default for MemorySpec {
    fn default() -> MemorySpec {
        MemorySpec {
            line_time: Duration::from_ps(4_286),
            flush_latency: Duration::from_ns(45),
            flushes: 1,
            bandwidth: 19_200_000_000,
            fence_time: Duration::from_ns(15),
        }
    }
}

impl MemorySpec {
    /// The same memory with flushes that overlap.
    pub fn clwb() -> MemorySpec {
        MemorySpec { flushes: 12, ..MemorySpec::default() }
    }

    /// The time to make `bytes` durable: the slowest of storing, flushing and the memory sets the pace of the lines,
    /// and the last one has to arrive. An ordered flush holds the next line's.
    pub fn time(&self, bytes: u64) -> Duration {
        let lines = bytes.div_ceil(64);
        let one = self.line_time + self.flush_latency;
        let flushes = if self.flushes <= 1 { one } else { Duration::from_ps(one.as_ps() / u64::from(self.flushes)) };
        let pace = self.line_time.max(flushes).max(Rate::per_second(self.bandwidth).time(64));
        pace * lines.saturating_sub(1) + one + self.fence_time
    }
}

/// The way of a log to another server's persistent memory by RDMA: a write for each group, and its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaSpec {
    /// Time of the core to post a write. Default 100 ns, an assumption.
    pub post_time: Duration,
    /// Bandwidth of the network, bytes per second. Default 12.5 GB/s: 100 Gb/s, ConnectX-5 (the X-SSD paper, section
    /// 6).
    pub bandwidth: u64,
    /// From the last byte sent until its acknowledgement is seen. Default 3 us, an assumption: the order of a write
    /// through one switch.
    pub round_trip: Duration,
}

impl Default for RdmaSpec {
    fn default() -> RdmaSpec {
        RdmaSpec { post_time: Duration::from_ns(100), bandwidth: 12_500_000_000, round_trip: Duration::from_us(3) }
    }
}

/// A log in the host's persistent memory.
#[derive(Clone, Debug)]
pub struct Memory {
    spec: MemorySpec,
    core: Server,
    /// Where groups are shipped, too.
    rdma: Option<(RdmaSpec, Server)>,
    waiting: VecDeque<Durable>,
    done: VecDeque<Durable>,
}

impl Memory {
    /// An idle log.
    pub fn new(spec: MemorySpec) -> Memory {
        Memory { spec, core: Server::default(), rdma: None, waiting: VecDeque::new(), done: VecDeque::new() }
    }

    /// An idle log that is shipped to another server by RDMA, whose memory is as this one: a group is durable when it
    /// is in both. It is sent once it is durable here.
    pub fn shipped(spec: MemorySpec, rdma: RdmaSpec) -> Memory {
        Memory { rdma: Some((rdma, Server::default())), ..Memory::new(spec) }
    }
}

impl Sink for Memory {
    fn commit(&mut self, now: Instant, commit: Commit) {
        let post = self.rdma.as_ref().map_or(Duration::ZERO, |(rdma, _)| rdma.post_time);
        let mut at = self.core.serve(now, self.spec.time(commit.bytes) + post);
        if let Some((rdma, wire)) = &mut self.rdma {
            at = wire.serve(at, Rate::per_second(rdma.bandwidth).time(commit.bytes)) + rdma.round_trip;
        }
        self.waiting.push_back(Durable { at, sequence: commit.sequence });
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|durable| durable.at)
    }

    fn advance(&mut self, now: Instant) {
        while let Some(durable) = self.waiting.pop_front_if(|durable| durable.at <= now) {
            self.done.push_back(durable);
        }
    }

    fn poll_durable(&mut self) -> Option<Durable> {
        self.done.pop_front()
    }
}

/// Requests of a log to a device, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Write blocks of the conventional side.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes, whole blocks.
        length: u64,
    },
    /// Flush the conventional side.
    Flush,
    /// Append to the fast side (`x_pwrite`).
    Append {
        /// Bytes.
        length: u64,
    },
    /// Wait until what was appended is persistent (`x_fsync`).
    Sync,
    /// Read blocks of the conventional side.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes, whole blocks.
        length: u64,
    },
    /// Something of the byte window.
    Window(WindowRequest),
}

/// A log in a ring of blocks on the conventional side, as a database writes it with direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConventionalSpec {
    /// First byte of the ring.
    pub offset: u64,
    /// Bytes of the ring, whole blocks.
    pub size: u64,
    /// Bytes that a write is a multiple of: a group is padded. Default 4,096.
    pub block_size: u64,
    /// Whether a flush follows each write. Default false: the paper's board acknowledges from its data buffer, and the
    /// paper takes what is in the device for durable.
    pub flush: bool,
    /// From the call to the doorbell: system call, block layer, driver. Default 3 us, an assumption.
    pub submit_time: Duration,
    /// From the interrupt to the caller. Default 3 us, an assumption.
    pub return_time: Duration,
}

impl Default for ConventionalSpec {
    fn default() -> ConventionalSpec {
        ConventionalSpec {
            offset: 0,
            size: 1 << 30,
            block_size: 4096,
            flush: false,
            submit_time: Duration::from_us(3),
            return_time: Duration::from_us(3),
        }
    }
}

/// A log in the byte window: some segments of it are pinned, one of them is filled; a full one is flushed and the next
/// of the ring pinned behind the caller's back, while the others take stores (double buffering, where there are two).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLogSpec {
    /// Segments that are pinned at once, each an entry.
    pub entries: u16,
    /// Bytes of a segment, whole logical pages.
    pub segment_bytes: u64,
    /// First logical block of the ring of segments.
    pub lba: u64,
    /// Segments of the ring, at least `entries`.
    pub segments: u64,
    /// Bytes of a logical block.
    pub block_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowLog {
    spec: WindowLogSpec,
    pinned: bool,
    /// The entry that is filled, how far, and the segment that is pinned next.
    entry: u16,
    fill: u64,
    next: u64,
}

impl WindowLog {
    /// Where the next segment is.
    fn take_segment(&mut self) -> (u64, u32) {
        let blocks = self.spec.segment_bytes / self.spec.block_bytes;
        let lba = self.spec.lba + self.next * blocks;
        self.next = (self.next + 1) % self.spec.segments;
        (lba, blocks as u32)
    }

    fn plan(&mut self, bytes: u64, requests: &mut VecDeque<Request>) {
        if !self.pinned {
            self.pinned = true;
            for entry in 0..self.spec.entries {
                let (lba, blocks) = self.take_segment();
                let command = WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks };
                requests.push_back(Request::Window(WindowRequest::Run(command)));
            }
        }
        let mut left = bytes;
        while left > 0 {
            let (entry, at) = (self.entry, self.fill);
            let length = left.min(self.spec.segment_bytes - at);
            requests.push_back(Request::Window(WindowRequest::Store { entry, at, length }));
            requests.push_back(Request::Window(WindowRequest::Sync { entry, at, length }));
            (self.fill, left) = (at + length, left - length);
            if self.fill == self.spec.segment_bytes {
                let (lba, blocks) = self.take_segment();
                requests.push_back(Request::Window(WindowRequest::Roll { entry, lba, blocks }));
                (self.entry, self.fill) = ((entry + 1) % self.spec.entries, 0);
                requests.push_back(Request::Window(WindowRequest::Await { entry: self.entry }));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The requests go out at this instant.
    Submitting(Instant),
    /// The device works on the request before the first that is left.
    Working,
    /// The caller has it at this instant.
    Returning(Instant),
}

/// A log in a device: groups become requests, one after the other. The driver of the device takes them from
/// [`DeviceSink::poll_request`] and says when each is done.
#[derive(Clone, Debug)]
pub struct DeviceSink {
    /// `None`: the fast side, or the byte window.
    conventional: Option<ConventionalSpec>,
    window: Option<WindowLog>,
    tail: u64,
    queue: VecDeque<Commit>,
    /// The group under way and where it is.
    current: Option<(Commit, Step)>,
    requests: VecDeque<Request>,
    ready: Option<Request>,
    done: VecDeque<Durable>,
}

impl DeviceSink {
    /// A log on the fast side: each group is appended and synced. No system call is made (the paper, section 5.1); what
    /// stores and loads cost is for [`crate::pcie`].
    pub fn fast() -> DeviceSink {
        DeviceSink {
            conventional: None,
            window: None,
            tail: 0,
            queue: VecDeque::new(),
            current: None,
            requests: VecDeque::with_capacity(2),
            ready: None,
            done: VecDeque::new(),
        }
    }

    /// A log on the conventional side. Asserts that the ring is whole blocks.
    pub fn conventional(spec: ConventionalSpec) -> DeviceSink {
        assert!(spec.block_size > 0 && spec.size > 0 && spec.size.is_multiple_of(spec.block_size), "{spec:?}");
        DeviceSink { conventional: Some(spec), ..DeviceSink::fast() }
    }

    /// A log in the byte window: each group is stored and synced (2B-SSD). Asserts that segments are whole blocks.
    pub fn window(spec: WindowLogSpec) -> DeviceSink {
        let whole = spec.segment_bytes > 0 && spec.segment_bytes.is_multiple_of(spec.block_bytes);
        assert!(whole && spec.entries > 0 && spec.segments >= spec.entries.into(), "{spec:?}");
        let window = WindowLog { spec, pinned: false, entry: 0, fill: 0, next: 0 };
        DeviceSink { window: Some(window), ..DeviceSink::fast() }
    }

    /// The next request for the device, once [`DeviceSink::advance`] has come to its time.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.ready.take()
    }

    /// The device has done the request that was polled last. Asserts that there is one.
    pub fn complete(&mut self, now: Instant) {
        let (commit, step) = self.current.expect("a request that is done was made");
        assert!(step == Step::Working && self.ready.is_none(), "a request was completed that was not polled");
        if let Some(next) = self.requests.pop_front() {
            self.ready = Some(next);
            return;
        }
        let returned = self.conventional.map_or(Duration::ZERO, |spec| spec.return_time);
        self.current = Some((commit, Step::Returning(now + returned)));
    }

    fn begin(&mut self, now: Instant) {
        if self.current.is_none()
            && let Some(commit) = self.queue.pop_front()
        {
            let submitted = self.conventional.map_or(Duration::ZERO, |spec| spec.submit_time);
            self.current = Some((commit, Step::Submitting(now + submitted)));
        }
    }

    /// The requests that a group becomes. One that passes the end of the ring is split there.
    fn plan(&mut self, commit: Commit) {
        if let Some(window) = &mut self.window {
            return window.plan(commit.bytes, &mut self.requests);
        }
        let Some(spec) = self.conventional else {
            self.requests.extend([Request::Append { length: commit.bytes }, Request::Sync]);
            return;
        };
        let mut left = commit.bytes.next_multiple_of(spec.block_size);
        while left > 0 {
            let length = left.min(spec.size - self.tail);
            self.requests.push_back(Request::Write { offset: spec.offset + self.tail, length });
            self.tail = (self.tail + length) % spec.size;
            left -= length;
        }
        if spec.flush {
            self.requests.push_back(Request::Flush);
        }
    }
}

impl Sink for DeviceSink {
    fn commit(&mut self, now: Instant, commit: Commit) {
        self.queue.push_back(commit);
        self.begin(now);
    }

    fn deadline(&self) -> Option<Instant> {
        match self.current {
            Some((_, Step::Submitting(at) | Step::Returning(at))) => Some(at),
            _ => None,
        }
    }

    fn advance(&mut self, now: Instant) {
        match self.current {
            Some((commit, Step::Submitting(at))) if at <= now => {
                self.plan(commit);
                self.ready = self.requests.pop_front();
                self.current = Some((commit, Step::Working));
            }
            Some((commit, Step::Returning(at))) if at <= now => {
                self.done.push_back(Durable { at, sequence: commit.sequence });
                self.current = None;
                self.begin(at);
            }
            _ => {}
        }
    }

    fn poll_durable(&mut self) -> Option<Durable> {
        self.done.pop_front()
    }
}
